"""Pipes, sockets and links to devices among the files of models and training data, or in their place."""

import os
import socket
from pathlib import Path

from fuzz import trees

__all__ = ["of_data", "of_model"]

DEVICES = ("/dev/zero", "/dev/random", "/dev/null", "/dev/tty")


def _put(random, path: Path) -> None:
    """Put what is no regular file in the place of one."""
    path.unlink()
    kind = random.choice(["pipe", "pipe", "pipe", "socket", "device", "link"])
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to(random.choice(DEVICES))
    elif kind == "link":  # to a pipe beside it, of another name
        os.mkfifo(path.with_name("a-pipe"))
        path.symlink_to("a-pipe")
    else:
        here = os.getcwd()
        os.chdir(path.parent)  # the path of a socket has at most a hundred bytes
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name[:90])
        os.chdir(here)


def _spoil(random, folder: Path) -> None:
    """Replace some files of a folder, and of its folders, and put strange files beside the others."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    for path in random.sample(files, min(len(files), random.choice([1, 1, 2, len(files)]))):
        if path.parent.joinpath("a-pipe").exists():
            continue
        _put(random, path)
    for name in random.sample(["cocos.toml", "README.md", "params.txt", "train.jsonl", "state.json"], 2):
        if random.random() < 0.3 and not (folder / name).exists():
            os.mkfifo(folder / name)


def of_model(random, folder: Path, seed) -> tuple[Path, Path | None]:
    """Write a whole model with its training data, and spoil one of both."""
    path, data = trees.whole_model(random, folder, seed)
    _spoil(random, folder / random.choice(["model", "data"] if data else ["model"]))
    return path, data


def of_data(random, folder: Path, seed) -> Path:
    """Write whole training data, and spoil them."""
    path = trees.whole_data(random, folder, seed)
    _spoil(random, path if path.is_dir() else path.parent)
    return path
