"""The linter and the formatter have nothing to say, and no test waits for ever."""

import ast
import sys
from pathlib import Path

import pytest

import children

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("arguments", [("check",), ("format", "--check")])
def test_ruff_is_content(arguments):
    done = children.run(sys.executable, "-m", "ruff", *arguments, "--no-cache", "--quiet", ".", cwd=ROOT)
    assert done.returncode == 0, done.stdout


def test_what_the_test_line_leaves_out_is_run_by_a_line_of_its_own():
    for name in (".ci/run", "README.md"):
        assert ".venv/bin/python -m pytest -m slow" in (ROOT / name).read_text("utf-8")


def test_no_test_waits_without_a_deadline():
    """A process is started through `children`, or has a deadline of its own."""
    waiting = []
    for path in sorted(Path(__file__).parent.glob("*.py")):
        source = path.read_text("utf-8")
        for node in ast.walk(ast.parse(source)) if "subprocess." in source else ():
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            bounded = called and any(each.arg == "timeout" for each in node.keywords)
            started = called in {"subprocess.run", "subprocess.check_output", "subprocess.call"} and not bounded
            if started or (called == "subprocess.Popen" and path.stem != "children"):
                waiting.append(f"{path.name}:{node.lineno}")
    assert not waiting


def arithmetic(node):
    """Whether a part of an expression is a number, an operator, or a tuple."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float)
    return isinstance(node, ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop | ast.Tuple | ast.Load)


def defined(path):
    """Classes and constants that a file defines at its top level."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            yield from (each.id for each in names if isinstance(each, ast.Name) and each.id.upper() == each.id)


# Rooms in which a class or a constant has a name that nothing else in the package has.
ROOMS = ("engine/", "measures/", "plots/", "reports/", "commands/", "losses/", "monitor/detectors/")
ROOMS += ("embeddings/__init__.py", "embeddings/scores.py", "embeddings/batches/", "embeddings/likeness.py")
ROOMS += ("counting/weights.py", "counting/statistics.py", "counting/forces.py", "counting/health.py")
ROOMS += ("counting/collisions.py", "results/__init__.py", "results/rows.py", "results/correlation.py")
ROOMS += ("base/writing.py", "base/processes.py", "base/annotations.py", "base/matrices.py", "base/html.py")
ROOMS += ("base/docstrings.py", "base/errors.py", "base/plugins.py")
# Rooms in which a number has a comment.
MEASURED = ("engine/", *ROOMS[5:])


def test_a_class_or_constant_of_a_room_has_a_name_of_its_own():
    """One word, one thing: nothing else in the package has the name of a class or a constant of these rooms."""
    found = {}
    for path in sorted((ROOT / "cocos").rglob("*.py")):
        for name in set(defined(path)) - {"__all__"}:
            found.setdefault(name, []).append(str(path.relative_to(ROOT / "cocos")))
    twice = {
        name: where for name, where in found.items() if len(where) > 1 and any(each.startswith(ROOMS) for each in where)
    }
    assert not twice.keys() - {"Sampling", "Source", "SIZE", "ALONE"}  # bundles of options; what a plot may define
    assert len(found) > 300


def test_a_constant_that_is_a_number_says_its_unit():
    """In a comment beside it, or on the line above."""
    silent, numbers = [], 0
    for path in sorted((ROOT / "cocos").rglob("*.py")):
        lines, room = path.read_text("utf-8").splitlines(), str(path.relative_to(ROOT / "cocos"))
        for node in ast.parse("\n".join(lines)).body if room.startswith(MEASURED) else ():
            if isinstance(node, ast.Assign) and all(map(arithmetic, ast.walk(node.value))):
                numbers += 1
                beside = "".join(lines[node.lineno - 1 : node.end_lineno])
                if "#" not in beside and not lines[node.lineno - 2].startswith("#"):
                    silent.append(f"{room}:{node.lineno}")
    assert not silent
    assert numbers > 80


# Rooms that decide by what a finding is, words that stand for a sentence there, and what takes a text apart.
DECIDING = ("measures", "reports", "monitor", "results")
SENTENCES = {
    "notes",
    "note",
    "sentence",
    "sentences",
    "reason",
    "reasons",
    "remark",
    "remarks",
    "said",
    "error",
}
TAKES_APART = {"startswith", "endswith", "partition", "rpartition", "removeprefix", "removesuffix", "replace"}
TAKES_APART |= {"split", "rsplit", "find", "index"}
# Where a sentence is read all the same: file and function, and why.
READ = {
    ("measures/run.py", "run"): "an error of a reader names its file; whether several are of one kind",
    ("measures/run.py", "_shared_remarks"): "a note of a reader names its file; one that all have is said once",
    ("measures/verify.py", "_questioned"): "first line of an error of anybody's code",
    ("monitor/__init__.py", "_warn"): "an error of anybody's code, told once whatever the numbers in it",
    ("monitor/detectors/_history.py", "kept"): "a reason that a result has kept, or a detector of others has made",
    ("reports/page/__init__.py", "_apart"): "takes the cure off, where the row of the kind says that it stands there",
    ("reports/page/queries.py", "show"): "a row without a name is described by the reader of the data",
    ("results/__init__.py", "open"): "first line of an error of h5py or xarray",
    ("results/older.py", "_findings"): "results of version 0.1",
    ("results/older.py", "_of_tables"): "results of version 0.1",
}
# Where an expression has the name of its text.
NAMED_BY = {ast.Name: "id", ast.Attribute: "attr", ast.Constant: "value"}


def worded(node):
    """The name by which an expression has its text: that of a variable, an attribute or an entry."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return worded(node.args[0] if node.func.attr == "get" and node.args else node.func.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
        return worded(node.args[0])
    if isinstance(node, ast.Subscript):
        return worded(node.slice)
    return str(getattr(node, NAMED_BY.get(type(node), ""), ""))


def reads_a_sentence(node):
    """Whether an expression takes a sentence apart, or looks for words in it."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "re":
            return any(worded(each) in SENTENCES for each in node.args)
        return node.func.attr in TAKES_APART and worded(node.func.value) in SENTENCES
    if isinstance(node, ast.Compare):
        looked = any(isinstance(each, ast.In | ast.NotIn) for each in node.ops)
        words = isinstance(node.left, ast.JoinedStr) or isinstance(getattr(node.left, "value", None), str)
        return looked and words and any(worded(each) in SENTENCES | {"line"} for each in node.comparators)
    return False


def reading(path):
    """Functions of a file that read a sentence, the innermost ones."""
    owner = {}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):  # outer functions come first
        if isinstance(node, ast.FunctionDef):
            owner |= dict.fromkeys(ast.walk(node), node.name)
        if reads_a_sentence(node):
            yield owner.get(node, "")


def test_nothing_decides_by_reading_a_sentence():
    """A finding has a kind, a reason its parts: what is read all the same is listed, with why, and nothing else is."""
    found = {
        (str(path.relative_to(ROOT / "cocos")), name)
        for room in DECIDING
        for path in sorted((ROOT / "cocos" / room).rglob("*.py"))
        for name in reading(path)
    }
    assert found == READ.keys()


@pytest.mark.parametrize(
    "said",
    [
        'each.sentence.startswith("Sharp")',
        'str(data.attrs.get("notes", "")).partition(": ")',
        '"detectors" in line',
        'f"{name}: " in each["reason"]',
        're.search("no value", note)',
        'str(error).removeprefix("query: ")',
    ],
)
def test_what_reads_a_sentence_is_known(said):
    assert any(map(reads_a_sentence, ast.walk(ast.parse(said))))
    assert not any(map(reads_a_sentence, ast.walk(ast.parse('line in told and "notes" in data.attrs'))))
