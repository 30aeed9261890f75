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
