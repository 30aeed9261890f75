"""Every figure from one call: what is kept, the same bytes twice, and what the files say of themselves."""

import ast
import dataclasses
import hashlib
import json
import re
import sys
import types
from pathlib import Path
from xml.etree import ElementTree

import h5py
import numpy as np
import pytest
import xarray as xr
from PIL import Image
from typer.testing import CliRunner

import cocos
from cocos import InputError
from cocos.commands import app
from cocos.reports import figures, inputs, saving

ROOT = Path(__file__).parent.parent
SCRIPT = '''"""A line: it rises."""

from pathlib import Path

import numpy as np
import xarray as xr

FIRST, SECOND = 1, 2
PUBLISHED = "Nobody 2020, Fig. 1"
DIFFERS = "ours is longer"
INPUTS = (Path(__file__).with_name("slope.txt"),)


def data(progress):
    slope = float(INPUTS[0].read_text())
    with INPUTS[0].with_name("calls.txt").open("a") as calls:
        calls.write("x")
    return {"line": xr.Dataset({"y": ("x", slope * np.arange(4.0))}, attrs={"checkpoint_sha256": "abc", "seed": 7})}


def title(parts):
    return f"It rises to {float(parts['line']['y'].max()):g}"


def alt(parts):
    return f"A line through {parts['line'].sizes['x']} points."


def agrees(parts):
    return f"n = {parts['line'].sizes['x']} points"


def draw(parts, figure):
    figure.subplots().plot(parts["line"]["y"])
'''


@pytest.fixture
def place(tmp_path):
    analysis, folder = tmp_path / "analysis", tmp_path / "figures"
    analysis.mkdir()
    folder.mkdir()
    (analysis / "line.py").write_text(SCRIPT)
    (analysis / "slope.txt").write_text("2")
    (analysis / "training.py").write_text("raise RuntimeError('this one draws nothing and must not be run')\n")
    return {"analysis": analysis, "folder": folder}


@pytest.fixture
def one_format(monkeypatch):
    """Where what is computed is looked at, one picture is enough."""
    monkeypatch.setattr(figures, "FIGURE_FILES", ("png",))


def calls(place):
    return len((place["analysis"] / "calls.txt").read_text())


def digests(folder, *suffixes):
    return {
        p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir()) if p.suffix in suffixes
    }


def test_a_script_becomes_data_three_pictures_and_a_line_of_the_index(place):
    (made,) = figures.run([], **place)
    assert made.name == "line" and made.computed
    assert [path.name for path in made.files] == ["line.nc", "line.svg", "line.pdf", "line.png"]
    with xr.open_datatree(made.files[0], engine="h5netcdf") as tree:
        np.testing.assert_array_equal(tree["line"]["y"], [0, 2, 4, 6])
    svg = made.files[1].read_text()
    said = f"cocos {cocos.__version__}; command: cocos figures line; checkpoint sha256: abc; seed: 7"
    assert said in svg and [described(path) for path in made.files[1:]] == [said] * 3
    assert b"/Subject" in made.files[2].read_bytes() and b"/CreationDate" not in made.files[2].read_bytes()
    index = (place["folder"] / "README.md").read_text()
    for part in (
        "## line",
        "![A line through 4 points.](line.png)",
        "A line: it rises.",
        "- **Claim:** It rises to 6",
        "- **Evidence:** n = 4 points",
        "- **Published:** Nobody 2020, Fig. 1",
        "- **Differs because:** ours is longer",
    ):
        assert f"{part}\n" in index
    with Image.open(made.files[3]) as image:
        assert image.text["Title"] == "It rises to 6. A line through 4 points."


@pytest.mark.usefixtures("one_format")
def test_a_caption_worded_anew_computes_nothing_and_is_filled_from_the_data_that_are_there(place):
    figures.run([], **place)
    anew = (
        SCRIPT.replace("A line: it rises.", "A slope.").replace("It rises to", "Up to").replace("subplots()", "gca()")
    )
    (place["analysis"] / "line.py").write_text(anew)
    assert not figures.run([], **place)[0].computed and calls(place) == 1
    index = (place["folder"] / "README.md").read_text()
    assert "Claim:** Up to 6\n" in index and "\nA slope.\n" in index and index == figures.index(**place)
    (place["analysis"] / "line.py").write_text(anew.replace("Path(__file__)", "Path(__file__).absolute()"))
    assert figures.run([], **place)[0].computed


@pytest.mark.parametrize(
    "change, sentence",
    [
        (("def title(parts):", "def heading(parts):"), "it has no function title"),
        (("parts['line'].sizes['x']", "parts['curve'].sizes['x']"), "does not fit its data"),
    ],
)
def test_a_script_whose_words_do_not_fit_is_refused_with_a_sentence(place, change, sentence):
    (place["analysis"] / "line.py").write_text(SCRIPT.replace(*change))
    with pytest.raises(InputError, match=f"line.*{sentence}"):
        figures.run([], **place)


def test_two_runs_write_the_same_bytes_and_compute_once(place):
    figures.run([], **place)
    first = digests(place["folder"], ".svg", ".pdf", ".png", ".md")
    (again,) = figures.run(["line"], **place)
    assert not again.computed and calls(place) == 1
    assert digests(place["folder"], ".svg", ".pdf", ".png", ".md") == first and len(first) == 4
    (fresh,) = figures.run(["line"], fresh=True, **place)
    assert fresh.computed and calls(place) == 2
    assert digests(place["folder"], ".svg", ".pdf", ".png", ".md") == first


@pytest.mark.usefixtures("one_format")
@pytest.mark.parametrize("change", ["input", "script", "damage", "lost"])
def test_what_has_changed_is_computed_anew(place, change):
    figures.run([], **place)
    before, data = digests(place["folder"], ".png"), place["folder"] / "line.nc"
    if change == "input":
        (place["analysis"] / "slope.txt").write_text("-3")
    elif change == "script":
        (place["analysis"] / "line.py").write_text(SCRIPT.replace("np.arange(4.0)", "np.arange(5.0)"))
    elif change == "damage":
        data.write_bytes(data.read_bytes()[:100])
    else:
        data.unlink()
    (again,) = figures.run([], **place)
    assert again.computed and calls(place) == 2
    assert (digests(place["folder"], ".png") != before) == (change in {"input", "script"})


@pytest.mark.usefixtures("one_format")
def test_a_figure_made_again_from_a_checkout_leaves_its_files_as_they_are(place):
    """Where other code makes the same data, nothing in the repository changes."""
    figures.run([], **place)
    (place["folder"] / figures.NOTES).unlink()
    data = place["folder"] / "line.nc"
    with h5py.File(data, "a") as held:
        held.attrs["inputs_sha256"] = "of other code"  # as files of earlier versions have it
    before, at = digests(place["folder"], ".nc", ".png", ".md"), data.stat().st_mtime_ns
    assert figures.run([], **place)[0].computed and data.stat().st_mtime_ns == at
    assert digests(place["folder"], ".nc", ".png", ".md") == before
    assert not figures.run([], **place)[0].computed and calls(place) == 2
    (place["analysis"] / "slope.txt").write_text("3")
    figures.run([], **place)
    assert digests(place["folder"], ".nc")["line.nc"] != before["line.nc"]
    (place["folder"] / figures.NOTES).write_text("[1")
    assert figures.run([], **place)[0].computed


HOUSE = {
    "__init__.py": """TYPE_CHECKING = False
if TYPE_CHECKING:
    from cocos.rooms.pairs import Pairs
""",
    "rooms/__init__.py": "",
    "rooms/pairs.py": "import cocos.rooms.far\n",
    "rooms/far.py": "FAR = 1\n",
    "rooms/near.py": """def near(loss="by_default"):
    from cocos import losses
    from cocos.plots import count
""",
    "rooms/unread.py": "UNREAD = 1\n",
    "losses/__init__.py": "import pkgutil\nnames = pkgutil.iter_modules(__path__)\n",
    "losses/named.py": "NAMED = 1\n",
    "losses/by_default.py": "DEFAULT = 1\n",
    "losses/in_the_input.py": "INPUT = 1\n",
    "losses/of_a_constant.py": "CONSTANT = 1\n",
    "losses/unnamed.py": "UNNAMED = 1\n",
    "plots/__init__.py": "def drawn():\n    pass\nLOSSES = ('of_a_constant',)\n",
    "plots/count.py": "COUNT = 1\n",
}
READS = """
    if not slope:
        from cocos import Pairs, plots, rooms
        rooms.near("named")
    with INPUTS"""


@pytest.fixture
def house(place, monkeypatch, tmp_path):
    """A small package, and the script of one figure that reads some of it."""
    package = tmp_path / "house" / "cocos"
    for name, text in HOUSE.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    (place["analysis"] / "line.py").write_text(
        SCRIPT.replace("    with INPUTS", READS, 1).replace(".read_text()", ".read_text().split()[0]")
    )
    (place["analysis"] / "slope.txt").write_text("2 xin_the_inputx")
    monkeypatch.setattr(inputs, "PACKAGE", package)
    inputs._public.cache_clear()
    yield package
    inputs._public.cache_clear()


def stale(place):
    (found,) = figures.check([], **place)
    return found.why


@pytest.mark.usefixtures("one_format")
def test_a_figure_hangs_on_the_modules_that_its_data_import_and_on_no_other(place, house):
    figures.run([], **place)
    assert not stale(place)
    for name, text in HOUSE.items():
        path, read = house / name, not (name == "plots/count.py" or "un" in Path(name).stem[:2])
        path.write_text(text + "\n# a comment\n")
        assert not stale(place), name
        path.write_text(text + "\nMORE = 1\n")
        assert stale(place) == (f"changed: cocos/{name}" if read else ""), name
        path.write_text(text)
    assert not stale(place) and calls(place) == 1


@pytest.mark.usefixtures("one_format")
def test_a_check_says_what_is_stale_and_why_and_computes_nothing(place):
    arguments = ["figures", "--check", "--analysis", str(place["analysis"]), "--out", str(place["folder"])]

    def told(*more):
        before = digests(place["folder"], ".nc", ".png", ".md", ".json")
        done = CliRunner().invoke(app, [*arguments, *more])
        assert digests(place["folder"], ".nc", ".png", ".md", ".json") == before
        return done.exit_code, " ".join(done.stdout.split()), done.stderr

    code, text, note = told()
    assert code == 1 and "line line.nc is not there unknown" in text and "1 of unknown time" in note
    figures.run([], **place)
    assert told() == (0, "all 1 figures are fresh", "")
    (noted,) = figures._notes(place["folder"]).values()
    figures._note(place["folder"], "line", dataclasses.replace(noted, seconds=7.0))
    (place["analysis"] / "slope.txt").write_text("3")
    code, text, note = told()
    assert code == 1 and "line changed: analysis/slope.txt 7 s" in text
    assert "1 of 1 figures are stale; cocos figures takes 7 s\n" in note
    code, text, _ = told("--json")
    assert json.loads(text) == [{"name": "line", "stale": "changed: analysis/slope.txt", "seconds": 7.0}] and code == 1
    (place["analysis"] / "slope.txt").write_text("2")
    (place["folder"] / "line.png").unlink()
    assert "line line.png is not there 7 s" in told()[1]
    figures.run([], **place)
    with h5py.File(place["folder"] / "line.nc", "a") as held:
        held["line/y"][0] = 5.0
    assert "line.nc is not the file that was computed" in told()[1] and calls(place) == 1
    code, _, said = told("--fresh")
    assert code == 2 and "give one of them" in said


@pytest.mark.usefixtures("one_format")
def test_the_last_digit_of_a_machine_changes_no_file(place):
    """Numbers are kept as another machine finds them too; those that differ by more are written."""
    figures.run([], **place)
    with h5py.File(place["folder"] / "line.nc", "a") as held:
        held["line/y"][1] = np.nextafter(2, 3)  # a file of before numbers were rounded
    before = digests(place["folder"], ".nc", ".png")
    for factor, kept in (("(1 + 4e-16)", True), ("(1 + 1e-7)", True), ("(1 + 1e-5)", False)):
        (place["analysis"] / "line.py").write_text(SCRIPT.replace("slope *", f"{factor} * slope *"))
        assert figures.run([], **place)[0].computed
        assert (digests(place["folder"], ".nc")["line.nc"] == before["line.nc"]) == kept
    for value in (1 / 3, -2 / 3e9, 5e300, np.nan):
        first, second = figures._digits(np.array([value, np.nextafter(value, 1)]))
        assert np.array_equal(first, second, equal_nan=True)
        np.testing.assert_allclose(first, value, rtol=1e-11)
    np.testing.assert_array_equal(figures._digits(np.array([0.0, -np.inf])), [0.0, -np.inf])
    assert figures._digits(np.float32([0.12345678]))[0] == np.float32(0.1234568)


@pytest.mark.usefixtures("one_format")
@pytest.mark.parametrize("far", [False, True])
def test_a_script_imports_what_stands_beside_it_and_hangs_on_it(place, far, monkeypatch):
    """Also on what that imports; nothing of it stays behind, on the path, among the modules or as bytecode."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    analysis, before = place["analysis"], (list(sys.path), set(sys.modules))
    (analysis / "line.py").write_text(SCRIPT.replace("import xarray as xr", "import slopes\nimport xarray as xr"))
    (analysis / "slopes.py").write_text("from steepness import FACTOR as FACTOR\n")
    (analysis / "steepness.py").write_text("FACTOR = 1\n")
    (analysis / "line.py").write_text((analysis / "line.py").read_text().replace("slope *", "slopes.FACTOR * slope *"))
    figures.run([], **place)
    assert not figures.run([], **place)[0].computed
    (analysis / "training.py").write_text("raise RuntimeError('nobody imports this one')\n")
    assert not figures.run([], **place)[0].computed
    if far:
        (analysis / "steepness.py").write_text("FACTOR = 3\n")  # of the same size, and within the second
    else:
        (analysis / "slopes.py").write_text("FACTOR = 3\n")
    (again,) = figures.run([], **place)
    with xr.open_datatree(again.files[0], engine="h5netcdf") as tree:
        np.testing.assert_array_equal(tree["line"]["y"], [0, 6, 12, 18])
    assert again.computed and calls(place) == 2
    assert sys.path == before[0] and not {"slopes", "steepness"} & set(sys.modules) and "training" not in sys.modules
    assert not list(analysis.glob("__pycache__")) and sys.dont_write_bytecode is False


def test_a_module_of_the_same_name_is_not_taken_for_the_one_beside_it_and_stays(place):
    elsewhere = types.ModuleType("slopes")
    (place["analysis"] / "line.py").write_text(SCRIPT.replace("import xarray", "import slopes\nimport xarray"))
    (place["analysis"] / "slopes.py").write_text("raise RuntimeError('the one beside it')\n")
    sys.modules["slopes"] = elsewhere
    try:
        with pytest.raises(RuntimeError, match="the one beside it"):
            figures.run([], **place)
        assert sys.modules["slopes"] is elsewhere
    finally:
        del sys.modules["slopes"]


def test_what_cannot_be_made_gets_a_sentence(place, tmp_path):
    for wanted, where, sentence in (
        (["lime"], place, "unknown figure 'lime': did you mean 'line'"),
        ([], place | {"folder": tmp_path / "none"}, "there is no folder"),
        ([], place | {"analysis": tmp_path / "none"}, "in a clone of the repository"),
        ([], place | {"analysis": place["folder"]}, "no script in"),
    ):
        with pytest.raises(InputError, match=sentence):
            figures.run(wanted, **where)
    (place["analysis"] / "slope.txt").unlink()
    done = CliRunner().invoke(app, ["figures", "--analysis", str(place["analysis"]), "--out", str(place["folder"])])
    assert done.exit_code == 2 and "slope.txt is not there" in done.stderr and not list(place["folder"].iterdir())


def test_the_command_says_what_it_made(place):
    arguments = ["figures", "--analysis", str(place["analysis"]), "--out", str(place["folder"])]
    for state in ("computed", "kept"):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0 and f"line    {state}" in " ".join(done.stdout.split(" ")), done.stdout
        assert "wrote 4 files" in done.stderr


def test_every_script_of_the_repository_is_in_the_index_and_has_its_files():
    index = (ROOT / "figures" / "README.md").read_text()
    for name in figures.names(ROOT / "analysis"):
        assert f"## {name}\n" in index, name
        for suffix in ("nc", "png"):
            assert (ROOT / "figures" / f"{name}.{suffix}").is_file(), f"{name}.{suffix}"


def described(path):
    """What the picture of a figure says of itself, by its suffix."""
    if path.suffix == ".svg":
        return ElementTree.parse(path).find(".//{http://purl.org/dc/elements/1.1/}description").text
    if path.suffix == ".png":
        with Image.open(path) as image:
            return image.text["Description"]
    said = re.search(rb"/Subject \(((?:[^()\\]|\\.)*)\)", path.read_bytes())[1].decode()
    return re.sub(r"\\(.)", r"\1", said)  # a PDF puts \ before a parenthesis


def test_text_stays_text_and_fonts_are_no_drawings(place):
    """Publishers refuse Type 3 fonts; an SVG whose letters are outlines cannot be searched, edited or read aloud."""
    (place["analysis"] / "line.py").write_text(
        SCRIPT.replace('figure.subplots().plot(parts["line"]["y"])', 'figure.subplots().set_title("it rises, 50 %")')
    )
    figures.run([], **place)
    svg = ElementTree.parse(place["folder"] / "line.svg")
    assert "it rises, 50 %" in {text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")}
    pdf = (place["folder"] / "line.pdf").read_bytes()
    assert b"/Type3" not in pdf and b"/FontFile2" in pdf
    saving.save_panels([lambda ax: ax.set_title("alone") and ax], place["folder"] / "one.pdf", size=(3, 2))
    assert b"/Type3" not in (place["folder"] / "one.pdf").read_bytes()


def test_what_can_be_made_again_is_not_in_git():
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert {"figures/*.svg", "figures/*.pdf"} <= set(ignored) and f"figures/{figures.NOTES}" not in ignored


@pytest.mark.parametrize("name", figures.names(ROOT / "analysis"))
def test_every_committed_figure_says_where_it_comes_from(name):
    source = ast.parse((ROOT / "analysis" / f"{name}.py").read_text("utf-8"))
    texts = {ast.unparse(node) for node in source.body if isinstance(node, ast.Assign)}
    from_example = any(text.startswith("INPUTS = ") and "EXAMPLE_FILE" in text for text in texts)
    with h5py.File(ROOT / "figures" / f"{name}.nc") as held:
        assert held.attrs["cocos"] == cocos.__version__
        attrs = [{key: np.ravel(value)[0] for key, value in part.attrs.items()} for part in held.values()]
    parts = {f"cocos {cocos.__version__}", f"command: cocos figures {name}"}
    digests = dict.fromkeys(each["checkpoint_sha256"] for each in attrs if "checkpoint_sha256" in each)
    if from_example:
        assert list(digests) == [hashlib.sha256(cocos.checkpoints.EXAMPLE_FILE.read_bytes()).hexdigest()]
    seeds = dict.fromkeys(str(each["seed"]) for each in attrs if "seed" in each)
    parts |= {f"checkpoint sha256: {', '.join(digests)}"} if digests else set()
    parts |= {f"seed: {', '.join(seeds)}"} if seeds else set()
    assert set(described(ROOT / "figures" / f"{name}.png").split("; ")) == parts
