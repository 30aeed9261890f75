"""The page of threads: each command is run on the files of the page, and says the sentence that stands below it."""

import re
import shlex
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from cocos.commands import app

PAGE = Path(__file__).parents[1] / "docs" / "howto" / "threads.md"
THREAD = re.compile(r"^## (.+?)\n.*?^```console\n\$ cocos (.+?)\n```\n\n((?:^> [^\n]*\n)+)", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
THREADS = [(title, shlex.split(line), said) for title, line, said in THREAD.findall(PAGE.read_text("utf-8"))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("page")
    loss, data = BLOCK.findall(PAGE.read_text("utf-8"))
    (made / "threads_loss.py").write_text(loss)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        exec(compile(data, str(PAGE), "exec"), {"torch": torch})
    return made


def test_there_are_ten():
    assert len(THREADS) == 10


@pytest.mark.parametrize(("title", "words", "said"), THREADS, ids=[title for title, _, _ in THREADS])
def test_the_command_of_a_thread_says_its_sentence(folder, monkeypatch, title, words, said):
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, words)
    assert done.exit_code in {0, 1} and "Traceback" not in done.output, done.output
    printed = " ".join(done.output.split())
    sentence = " ".join(said.replace("> ", " ").split())
    assert sentence in printed, f"{sentence}\n\nnot in\n\n{done.output}"
