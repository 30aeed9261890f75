"""The linter and the formatter have nothing to say."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("arguments", [("check",), ("format", "--check")])
def test_ruff_is_content(arguments):
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *arguments, "--no-cache", "--quiet", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
