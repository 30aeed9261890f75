"""The laws of the house: data flows one way, losses know nothing of counting, start-up is light."""

import ast
from pathlib import Path

import numpy as np
import pytest

import children
import cocos
from cocos.losses.catalogue import COMMON_FILES

HOUSE = Path(cocos.__file__).parent
ORDER = (
    "base",
    "embeddings",
    "losses",
    "counting",
    "engine",
    "data",
    "checkpoints",
    "results",
    "monitor",
    "measures",
    "plots",
    "reports",
    "cli",
    "__main__",
)
# `results.open` also reads the stores of a monitor.
BACKWARD = {("results", "cocos.monitor"), ("results", "cocos.monitor.records")}
HEAVY = ("torch", "numpy", "xarray", "matplotlib", "pandas", "scipy", "rich", "seaborn", "sympy", "h5py", "PIL")
FILES = sorted(HOUSE.rglob("*.py"))


def floor(path):
    return path.relative_to(HOUSE).with_suffix("").parts[0]


def imported(path):
    """Modules of the package that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in {path}"
            yield node.module
            if node.module == "cocos":
                yield from (f"cocos.{alias.name}" for alias in node.names)


def test_imports_never_go_back():
    rooms = {path.stem for path in HOUSE.iterdir()}
    for path in FILES:
        for name in imported(path) if floor(path) != "__init__" else ():
            parts = name.split(".")
            if (floor(path), name) in BACKWARD:
                continue
            if parts[0] == "cocos" and len(parts) > 1 and parts[1] in rooms:
                assert ORDER.index(parts[1]) <= ORDER.index(floor(path)), f"{path} imports {name}"


@pytest.mark.parametrize(
    "path",
    [p for p in FILES if p.parent == HOUSE / "losses" and p.stem not in {"__init__", *COMMON_FILES}],
    ids=lambda p: p.name,
)
def test_loss_imports_only_torch_and_pairs(path):
    known = {"torch", "math", "dataclasses", "typing", "collections.abc"}
    known |= {"cocos.base.errors", "cocos.base.ranges", "cocos.embeddings", "cocos.embeddings.scores"}
    known |= {"cocos.losses.base"}
    assert {name for name in imported(path) if not name.startswith("cocos.losses.families.")} <= known


def test_every_file_has_its_place():
    assert {floor(path) for path in FILES} - {"__init__"} == set(ORDER)


def loaded_by(python, *arguments):
    """Heavy packages that a fresh interpreter has loaded after it ran."""
    code = f"import sys, runpy; sys.argv = ['cocos', *{arguments!r}]\n"
    code += (
        "try:\n  runpy.run_module('cocos', run_name='__main__')\nexcept SystemExit: pass\n"
        if arguments
        else "import cocos\n"
    )
    code += f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    done = python(code)
    assert done.returncode == 0, done.stderr
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("arguments", [(), ("--help",), ("count", "--help"), ("--version",)])
def test_start_up_is_light(arguments):
    assert loaded_by(children.python, *arguments) in ("[]", "['rich']")


def test_the_help_of_every_command_is_light():
    code = "import contextlib, sys\nfrom cocos.cli import app\nfrom typer.testing import CliRunner\n"
    code += "from cocos.cli import COMMANDS\n"
    code += "for name in COMMANDS: CliRunner().invoke(app, [name, '--help'])\n"
    code += f"print([m for m in {HEAVY[:4]!r} if m in sys.modules])"
    assert children.python(code).stdout == "[]\n"


def test_a_count_imports_what_it_needs(fresh, tmp_path):
    np.savez(tmp_path / "some.npz", query=np.eye(8), candidate=np.eye(8)[::-1])
    assert loaded_by(fresh, "count", str(tmp_path / "some.npz")) == "['torch', 'numpy', 'xarray', 'pandas', 'rich']"


def test_the_embedded_example_is_opened_without_the_compiler(fresh):
    code = "import sys, cocos; cocos.open('example')\n"
    code += "assert not {'sympy', 'torch._dynamo'} & set(sys.modules)"
    done = fresh(code)
    assert done.returncode == 0, done.stderr


def test_the_public_names_are_there():
    assert set(cocos.__all__) < set(dir(cocos))
    assert {"Monitor", "sharpness", "equilibrium", "losses"} <= set(dir(cocos))
    for name in dir(cocos):
        assert getattr(cocos, name) is not None
    assert cocos.scores.Pairs is cocos.Pairs and cocos.count is cocos.measures.count
    with pytest.raises(AttributeError):
        _ = cocos.nothing
    assert callable(cocos.measures.count) and callable(cocos.plots.count)
