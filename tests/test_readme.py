"""The output in README.md is what its commands print."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cocos.cli import app

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"```console\n\$ cocos ([^\n]+)\n```\n\n```text\n(.+?)```", README, re.DOTALL)
PAIRS = re.search(r"```python\n(import numpy as np\n.+?)```", README, re.DOTALL)[1]


def test_readme_shows_two_counts():
    assert len(SHOWN) == 2


@pytest.mark.parametrize(("line", "output"), SHOWN, ids=[line for line, _ in SHOWN])
def test_readme_output_is_printed(line, output, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(PAIRS, {})
    done = CliRunner().invoke(app, line.split())
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith(output)
