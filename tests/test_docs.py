"""The README and the pages in docs/ say what is true: their code runs, their commands and links exist."""

import doctest
import importlib
import inspect
import json
import logging
import pkgutil
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from typer.main import get_command
from typer.testing import CliRunner

import cocos
import layouts
from analysis.__main__ import app as analysis_app
from cocos.cli import app
from test_vsepp import options, save, text_state, vsepp_state, write_folder

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ELSEWHERE = {"python3", "source", ".venv/bin/pip", "pre-commit"}  # lines that start other programs
LONG = {"report"}  # has tests of its own: here only its options are read


def blocks(page, kind):
    return [text for name, text in BLOCK.findall(page.read_text("utf-8")) if name == kind]


def two_sides(seed, images=64):
    """Embeddings of images and of two captions each, with their groups."""
    rng = np.random.default_rng(seed)
    image = rng.normal(size=(images, 8)).astype("float32")
    caption = image.repeat(2, axis=0) + rng.normal(size=(2 * images, 8)).astype("float32")
    group = np.arange(images)
    return {"query": image, "candidate": caption, "query_group": group, "candidate_group": group.repeat(2)}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with every file that the pages name."""
    folder = tmp_path_factory.mktemp("docs")
    np.savez(folder / "embeddings.npz", **two_sides(0))
    np.savez(folder / "web.npz", **two_sides(1, images=4))
    rng = np.random.default_rng(2)
    labels = np.arange(24) // 4
    proxies = rng.normal(size=(6, 8))
    samples = proxies[labels] + rng.normal(size=(24, 8))
    np.savez(folder / "labelled.npz", embeddings=samples, labels=labels)
    for name in ("proxies", "first", "second", "other"):
        members = {"embeddings": samples + rng.normal(size=samples.shape), "labels": labels}
        np.savez(folder / f"{name}.npz", **members, **({"proxies": proxies} if name == "proxies" else {}))
    (folder / "trials.txt").write_text("".join(f"{int(k % 2)} 0 {1 if k % 2 else 4 + k}\n" for k in range(12)))
    (folder / "runs").mkdir()
    for run in (folder / "runs" / "plain", folder / "runs" / "warp", folder):
        run.mkdir(exist_ok=True)
        for epoch in (2, 10):
            about = {"embeddings": samples / epoch, "labels": labels, "proxies": proxies, "proxy_labels": np.arange(6)}
            np.savez(run / f"epoch_{epoch}.npz", **about)
    torch.save({name: torch.as_tensor(rows) for name, rows in two_sides(0).items()}, folder / "model.pt")
    torch.save({"table": torch.randn(256, 8, generator=torch.Generator().manual_seed(0))}, folder / "table.pt")
    lines = [json.dumps({"anchor": f"what is {number}?", "positive": f"it is {number}"}) for number in range(40)]
    (folder / "pairs.jsonl").write_text("\n".join(lines))
    (folder / "titles.csv").write_text("title,body,wrong,section\na,b,c,1\nd,e,f,1\ng,h,i,2\n")
    names = [json.dumps({"query_name": f"query {k}" if k < 64 else None, "candidate_name": str(k)}) for k in range(128)]
    (folder / "names.jsonl").write_text("\n".join(names))
    for run in ("train", "test"):
        (folder / "runs" / run).mkdir()
        for step in (2, 10):
            np.savez(folder / "runs" / run / f"step_{step}.npz", **two_sides(step + (run == "test"), images=20))
    np.savez(folder / "more.npz", candidate=rng.normal(size=(9, 8)))
    layouts.birds(folder / "CUB_200_2011")
    layouts.cars(folder / "cars196")
    layouts.products(folder / "Stanford_Online_Products")
    layouts.clothes(folder / "In-shop")
    layouts.landmarks(folder / "gld")
    write_folder(folder / "f30k_precomp")
    save(folder / "model_best.pth.tar", vsepp_state(), text_state(), options())
    for page in PAGES:
        for text in (*blocks(page, "python"), *blocks(page, "toml")):
            if named := re.match(r"# (\w+\.(py|toml))\n", text):
                (folder / named[1]).write_text(text, "utf-8")
    return folder


@pytest.fixture
def inside(files, monkeypatch):
    """The folder of those files, as the current one; pages that set the level of the logger leave it as it was."""
    monkeypatch.chdir(files)
    level = logging.getLogger("cocos").level
    yield files
    logging.getLogger("cocos").setLevel(level)
    plt.close("all")


def commands(page):
    """Arguments of each `$ cocos ...` of a page, with some files of each pattern; other programs must be known."""
    for text in blocks(page, "console"):
        for line in text.splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            assert line.startswith("$ ") and words[0] in ELSEWHERE | {"cocos", "python"}, line
            if words[0] == "cocos":
                found = {word: sorted(map(str, Path().glob(word))) for word in words[1:]}
                yield [name for word in words[1:] for name in (found[word][:: len(found[word]) // 8 + 1] or [word])]


def analysis_commands(page):
    """Return the arguments of each `$ python -m analysis ...` of a page."""
    lines = [line for text in blocks(page, "console") for line in text.splitlines()]
    return [shlex.split(line)[4:] for line in lines if line.startswith("$ python -m analysis ")]


@BY_PAGE
def test_examples_of_a_page_print_what_it_says(page):
    text = "".join(blocks(page, "pycon"))
    found = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    report = []
    assert doctest.DocTestRunner().run(found, out=report.append).failed == 0, "".join(report)


@pytest.mark.slow
@BY_PAGE
def test_python_and_commands_of_a_page_run(page, inside):
    """The lines of Python first: a page may write the files that its commands read."""
    embeddings = cocos.open("embeddings.npz").embed()
    scope = {"embeddings": embeddings, "batches": None, "torch": torch}
    for text in blocks(page, "python"):
        exec(compile(text, str(page), "exec"), scope)
    for words in commands(page):
        foreign = any(word.partition(":")[0] in cocos.losses.libraries.VERSIONS for word in words)
        if foreign or words[0] in LONG or words[1:2] in (["landscape"], ["dtp"]) or words[0] == "verify":
            get_command(app).get_command(None, words[0]).make_context(words[0], words[1:])
            continue
        asked = [re.sub(r"\.(png|pdf|svg)$", ".nc", word) for word in words]  # numbers without the picture
        drawn = words[0] == "plot" and len(words) > 2 and "--out" not in words
        done = CliRunner().invoke(app, [*asked, *["--json"] * drawn])
        assert done.exit_code == 0, (words, done.stderr)
    for words in analysis_commands(page):
        done = CliRunner().invoke(analysis_app, words)
        assert done.exit_code == 0, (words, done.stderr)


@BY_PAGE
def test_links_of_a_page_lead_to_files(page):
    made = {
        "api/index.rst",
        "commands.rst",
        *(f"losses/{name}.rst" for name in ("index", *cocos.losses.names())),
    }  # when the site is built
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8")):
        if not target.startswith("http"):
            found = (page.parent / target).resolve()
            assert found.exists() or str(found.relative_to(ROOT / "docs")) in made, f"{page}: {target}"


@BY_PAGE
def test_names_of_the_package_on_a_page_are_there(page):
    for name in re.findall(r"`(cocos(?:\.\w+)+)[`(]", page.read_text("utf-8")):
        if not name.endswith(".NAME"):
            assert pkgutil.resolve_name(name) is not None


@BY_PAGE
def test_files_and_folders_that_a_page_names_are_there(page):
    for name in re.findall(r"`((?:\w+/)+(?:\w+\.py)?|\w+\.py)`", page.read_text("utf-8")):
        mine = name.startswith("my_") or name == "file.py" or "/my_" in name
        assert mine or any((folder / name).exists() for folder in (ROOT, ROOT / "cocos", ROOT / "cocos" / "engine")), (
            name
        )


def public():
    """Everything that users are told to call: the names of `cocos` and of its modules."""
    for name in cocos.__all__:
        found = getattr(cocos, name)
        if inspect.ismodule(found):
            yield from ((f"{name}.{each}", getattr(found, each)) for each in getattr(found, "__all__", ()))
        else:
            yield name, found


def test_public_functions_and_classes_have_examples():
    called = {name: found for name, found in public() if callable(found) and not getattr(found, "_is_protocol", False)}
    inner = {name for name in called if name.startswith("results.")} - {"results.save", "results.open"}
    assert len(called) > 60
    assert not [name for name in called.keys() - inner if ">>> " not in (called[name].__doc__ or "")]


def test_every_environment_variable_that_is_read_is_documented():
    code = "".join(path.read_text("utf-8") for path in (ROOT / "cocos").rglob("*.py"))
    read = set(re.findall(r'(?:environ(?:\.get\(|\[)|_number\()"([A-Z_]+)"', code.replace("'", '"')))
    told = set(re.findall(r"^\| (.*?) \|", (ROOT / "docs" / "environment.md").read_text("utf-8"), flags=re.MULTILINE))
    told = set(re.findall(r"`([A-Z_]+)`", " ".join(told)))
    assert len(read) > 3 and read == told - {"OMP_NUM_THREADS"}  # which PyTorch reads


def test_the_drawing_shows_rooms_that_are_there(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    rooms = importlib.import_module("rooms")
    assert rooms.TARGET.read_text("utf-8") == rooms.draw()  # python docs/_ext/rooms.py
    for name in rooms.ROOMS:
        assert (ROOT / "cocos" / (name if name.endswith("/") else f"{name}.py")).exists(), name


@pytest.fixture
def extensions(monkeypatch):
    """Modules of docs/_ext by their names."""
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    return importlib.import_module


def test_each_picture_has_its_file_its_page_and_a_command_that_exists(extensions):
    """`python docs/_ext/pictures.py NAME` draws it again."""
    pictures = extensions("pictures").PICTURES
    assert {path.stem for path in (ROOT / "docs" / "pictures").glob("*.png")} == pictures.keys()
    assert set(cocos.plots.__all__) <= pictures.keys()
    for name, picture in pictures.items():
        program, *words = shlex.split(picture.command)
        assert program == "cocos"
        get_command(app).get_command(None, words[0]).make_context(words[0], [*words[1:], "--out", f"{name}.png"])
        text = (ROOT / "docs" / "howto" / f"{picture.page}.md").read_text("utf-8")
        assert f"![{picture.alt}](../pictures/{name}.png)" in text, f"howto/{picture.page}.md shows {name}.png"
        assert (ROOT / "docs" / "pictures" / f"{name}.png").stat().st_size < 120_000


def test_a_page_of_a_notebook_has_its_prose_code_and_outputs(extensions, tmp_path):
    text = extensions("stories").story(ROOT / "notebooks" / "distributed.ipynb", tmp_path)
    assert text.startswith("# Two devices train worse than one")
    assert "```console\n$ cocos verify --same-as mnrl gathered.py:loss\n```" in text
    assert "verdict: misaligned targets" in text and "import cocos" in text
    (picture,) = re.findall(r"!\[Both losses fall;.*\]\((.*)\)", text)
    assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")


def test_losses_are_titled_by_the_names_that_people_search_for(extensions):
    pages = extensions("pages")
    assert pages.loss_title("ntxent") == "NT-Xent (InfoNCE, SimCLR, in-batch softmax)"
    table = pages.common()
    assert "* - CLIP loss\n     - :doc:`ntxent <ntxent>`\n     - ``temperature=0.07``\n" in table
    assert "* - VSE++\n     - :doc:`triplet_sh <triplet_sh>`\n     -\n" in table


def test_gallery_has_every_figure(extensions):
    found = extensions("thumbnails").figures(ROOT)
    assert {name for name, *_ in found} == {path.stem for path in (ROOT / "figures").glob("*.png")}


def test_pages_of_losses_and_of_public_names_are_made(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    pages = importlib.import_module("pages")
    text = pages.loss_page("normalized_softmax", tmp_path)
    assert text.startswith("Normalized softmax (") and ".. index:: ! NormFace\n" in text
    assert "``--loss normalized_softmax``" in text and (tmp_path / "normalized_softmax.svg").exists()
    assert "NTXent" in text or "SampledSoftmax" in text
    pages.api_pages(tmp_path / "api")
    assert "autofunction:: cocos.measures.evaluate" in (tmp_path / "api" / "measures.rst").read_text("utf-8")


def test_a_page_is_repaired_for_keys_and_readers_once(extensions, tmp_path):
    pytest.importorskip("sphinx")
    shelf, app = extensions("shelf"), SimpleNamespace(outdir=tmp_path, builder=SimpleNamespace(format="html"))
    page = tmp_path / "page.html"
    page.write_text('<p class="caption" role="heading">A</p><div class="highlight"><pre>x</pre></div>')
    shelf.repair(app, None)
    first = page.read_text()
    assert 'role="heading" aria-level="2"' in first and '<pre tabindex="0">' in first
    shelf.repair(app, None)
    assert page.read_text() == first


def test_a_link_to_a_notebook_leads_to_its_page(extensions):
    pytest.importorskip("sphinx")
    text = ["See [it](../../notebooks/count.ipynb).\n\n### `collapse`\n"]
    extensions("shelf").read(None, "howto/any", text)
    assert "[it](/notebooks/count.myst)" in text[0]
    assert "```{index} ! collapse\n```\n\n### `collapse`" in text[0]
