"""The embeddings cache: rows are encoded once, never stale, and a broken cache is a note."""

import errno

import pytest
import torch
from safetensors.torch import load_file

import cocos
from cocos.base import writing
from cocos.checkpoints import cache

ABOUT = {"checkpoint": "a" * 64, "data": "b" * 64, "device": "cpu"}
ROWS = torch.arange(16.0).reshape(8, 2)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("COCOS_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def encodings(about=ABOUT):
    """Return how often rows were encoded: 0 if they came from the cache."""
    calls = []
    rows = cache.embeddings(about, len(ROWS), lambda: calls.append(1) or ROWS)
    assert torch.equal(rows, ROWS)
    return len(calls)


def test_rows_are_encoded_once(folder):
    assert (encodings(), encodings()) == (1, 0)
    (path,) = folder.iterdir()
    assert torch.equal(load_file(path)["rows"], ROWS) and path.suffix == ".safetensors"


@pytest.mark.parametrize("name", ABOUT)
def test_other_input_is_encoded_again(name, folder):
    assert (encodings(), encodings(ABOUT | {name: "other"})) == (1, 1) and len(list(folder.iterdir())) == 2


def test_other_version_is_encoded_again(monkeypatch):
    encodings()
    monkeypatch.setattr(cache.metadata, "version", lambda name: "9.9")
    assert encodings() == 1


@pytest.mark.parametrize(("about", "setting"), [({}, None), (ABOUT, "off"), (ABOUT, "0")])
def test_nothing_is_kept_if_off(about, setting, folder, monkeypatch):
    if setting:
        monkeypatch.setenv("COCOS_CACHE", setting)
    assert (encodings(about), encodings(about)) == (1, 1) and not folder.exists()


@pytest.mark.parametrize("damage", [b"", b"text", None])
def test_damaged_file_is_encoded_again(damage, folder, caplog):
    encodings()
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-5] if damage is None else damage)
    assert (encodings(), encodings()) == (1, 0) and str(path) in caplog.text


def test_unwritable_folder_is_a_note(folder, monkeypatch, caplog):
    def full(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writing, "replacing", full)
    assert encodings() == 1 and str(folder) in caplog.text
    folder.rmdir()
    folder.write_text("a file")
    assert encodings() == 1 and folder.read_text() == "a file"


def test_folder_follows_the_platform(monkeypatch, tmp_path):
    monkeypatch.setenv("COCOS_CACHE", " ")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "cocos" / "embeddings"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    for platform, place in (("linux", ".cache"), ("darwin", "Library/Caches")):
        monkeypatch.setattr("sys.platform", platform)
        assert cache.folder() == tmp_path / place / "cocos" / "embeddings"


def test_example_is_encoded_once(folder):
    steps = []
    first = cocos.open("example").embed("test", progress=lambda *step: steps.append(step))
    assert steps[-1] == (len(first.query) + len(first.candidate),) * 2
    steps.clear()
    again = cocos.open("example").embed("test", progress=lambda *step: steps.append(step))
    assert torch.equal(again.query, first.query) and not steps
