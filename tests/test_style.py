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


def test_no_test_waits_without_a_deadline():
    """A process is started through `children`, or has a deadline of its own."""
    waiting = []
    for path in sorted(Path(__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
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
