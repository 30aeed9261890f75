"""Pipes, sockets and devices are refused at once, wherever a file is read."""

import os
import signal
import socket
from contextlib import contextmanager

import pytest

from cocos import checkpoints, results
from cocos.base import reading, writing
from cocos.base.errors import InputError
from cocos.checkpoints import data, image_files, words
from cocos.results import records

DEADLINE = 20.0  # seconds of one reader


@contextmanager
def deadline(seconds=DEADLINE):
    """End a read that waits."""

    def over(*_):
        raise TimeoutError(f"still waiting after {seconds} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def pipe(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    return path


def test_the_kind_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("socket")
    (tmp_path / "link").symlink_to(pipe(tmp_path / "pipe"))
    for path, kind in (("pipe", "pipe"), ("link", "pipe"), ("socket", "socket"), ("/dev/zero", "device")):
        for read in (reading.stream, reading.regular):
            with deadline(), pytest.raises(InputError, match=f"{path} is no regular file but a {kind}; write"):
                read(path)
    listening.close()


def test_files_and_folders_are_as_for_open(tmp_path):
    (tmp_path / "some").write_bytes(b"ntxent")
    with reading.stream(tmp_path / "some") as stream:
        assert stream.read() == b"ntxent"
    assert reading.regular(tmp_path) == tmp_path
    with pytest.raises(IsADirectoryError):
        reading.stream(tmp_path)
    for read in (reading.stream, reading.regular):
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "none")


def test_a_result_that_is_a_pipe_is_named(tmp_path):
    with deadline(), pytest.raises(InputError, match=r"^\S*r.nc is no regular file but a pipe"):
        results.open(pipe(tmp_path / "r.nc"))


# Pipes among the files of a folder, by the reader of the folder.
INSIDE = {
    "train.jsonl": data.find,
    "data/train.parquet": data.find,
    "captions_train.json": lambda folder: data.find(folder).load("train"),
    "dataset_dict.json": data.find,
    "train_ims.npy": data.find,
    "train.npz": data.find,
    "README.md": checkpoints.open,
    "config.json": checkpoints.open,
    "model.safetensors": checkpoints.open,
    "run.jsonl": lambda folder: records.read(folder / "run.jsonl"),
    "some_vocab.pkl": lambda folder: words.read_vocabulary(folder / "some_vocab.pkl", 4),
    "a.png": lambda folder: image_files.ImageFiles((str(folder / "a.png"),))[0],
    "b.png": lambda folder: image_files.ImageFiles((str(folder / "b.png"),)).digest(),
}


@pytest.mark.parametrize("name", INSIDE)
def test_a_pipe_in_a_folder_is_refused_at_once(name, tmp_path):
    pipe(tmp_path / name)
    with deadline(), pytest.raises(InputError):
        INSIDE[name](tmp_path)


def test_an_output_that_is_a_pipe_among_the_data_is_refused(tmp_path):
    out = pipe(tmp_path / "data" / "out.nc")
    (tmp_path / "link.nc").symlink_to(out)
    with deadline(), pytest.raises(InputError, match="is a file of the data folder"):
        writing.apart(tmp_path / "link.nc", tmp_path / "data")
