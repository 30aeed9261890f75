"""The formats, and the files of each: a seed, a format and a number make one file."""

import random as randomness
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from fuzz import bombs, mutations, planted, seeds

__all__ = ["FORMATS", "SHARES", "Case", "make", "whole"]


@dataclass(frozen=True)
class Case:
    """A file to open.

    Args:
        path: of the file.
        data: folder beside it, where its format has one.
    """

    path: Path
    data: Path | None = None


def _npz(random, folder: Path) -> Case:
    deflated, values = random.random() < 0.4, seeds.arrays(random) if random.random() < 0.6 else seeds.labelled(random)
    if random.random() < 0.4:
        values = {k: v for k, v in mutations.odd(random, dict(values)).items() if isinstance(k, str) and _plain(v)}
    payload = seeds.npz(values, deflated)
    return _written(folder, _perhaps(random, payload, mutations.damaged_archive if values else mutations.damaged))


def _plain(value) -> bool:
    return getattr(value, "dtype", None) is not None and not isinstance(value, torch.Tensor)


def _safetensors(random, folder: Path) -> Case:
    values = seeds.arrays(random) if random.random() < 0.6 else seeds.labelled(random)
    metadata = random.choice([None, None, {"directions": '["a", "b"]'}, {"directions": "i2t,t2i"}, {"x": "y"}])
    return _written(folder, _perhaps(random, seeds.safe(values, metadata), mutations.damaged_header))


def _torch(kinds: tuple[str, ...], legacy: bool | None, beside: bool = False) -> Callable:
    def make(random, folder: Path) -> Case:
        kind, old = random.choice(kinds), random.random() < 0.3 if legacy is None else legacy
        content = seeds.content(kind, random)
        if random.random() < 0.6:
            content = mutations.odd(random, content)
        try:
            payload = seeds.saved(content, legacy=old)
        except Exception:  # not everything odd can be saved
            payload = seeds.saved(seeds.content(kind, random), legacy=old)
        payload = _perhaps(random, payload, mutations.damaged if old else mutations.damaged_archive)
        if not beside:
            return _written(folder, payload)
        files = seeds.folder(random, regions=kind == "vsrn")
        if random.random() < 0.4:
            name = random.choice(list(files))
            files[name] = mutations.damaged(random, files[name])
        if random.random() < 0.1:
            del files[random.choice(list(files))]
        seeds.write(folder / "data", files)
        return Case(_written(folder, payload).path, folder / "data")

    return make


def _perhaps(random, payload: bytes, damage: Callable) -> bytes:
    """Whole, damaged as its format suggests, or anywhere."""
    way = random.random()
    if way < 0.35:
        return payload
    return damage(random, payload) if way < 0.75 else mutations.damaged(random, payload)


def _written(folder: Path, payload: bytes) -> Case:
    path = folder / "file.bin"
    path.write_bytes(payload)
    return Case(path)


def _beside(random, folder: Path) -> Case:
    """A whole checkpoint, and a damaged folder of features, captions and vocabulary."""
    kind = random.choice(["vsepp", "vsrn", "native"])
    files = seeds.folder(random, regions=kind == "vsrn")
    for name in list(files):
        if random.random() < 0.5:
            files[name] = mutations.damaged(random, files[name])
    seeds.write(folder / "data", files)
    return Case(_written(folder, seeds.saved(seeds.content(kind, random))).path, folder / "data")


def _planted(random, folder: Path) -> Case:
    container, payload = planted.planted(random)
    if container != "vocabulary":
        return _written(folder, payload)
    seeds.write(folder / "data", planted.vocabulary_folder(random, payload))
    return Case(_written(folder, seeds.saved(seeds.content("vsepp", random))).path, folder / "data")


def _bomb(random, folder: Path) -> Case:
    return Case(*bombs.bomb(random, folder))


FORMATS = {
    "npz": _npz,
    "safetensors": _safetensors,
    "torch zip": _torch(("sides",), legacy=False),
    "torch legacy": _torch(("sides", "labelled"), legacy=True),
    "labelled, proxies": _torch(("labelled",), legacy=False),
    "native": _torch(("native",), legacy=None),
    "vsepp": _torch(("vsepp",), legacy=None, beside=True),
    "vsrn": _torch(("vsrn",), legacy=None, beside=True),
    "data folders": _beside,
    "planted pickles": _planted,
    "bombs": _bomb,
}


# Files of a format for each file of the dearest, which take ten times as long: towers that encode, and bombs.
SHARES = {name: 1 if name in {"vsepp", "vsrn", "data folders", "native", "bombs"} else 3 for name in FORMATS}


def make(name: str, number: int, seed: int, folder: Path) -> Case:
    """Write one file; the same for the same format, number and seed."""
    random = randomness.Random(f"{seed}/{name}/{number}")
    torch.manual_seed(number)
    return FORMATS[name](random, folder)


def whole(folder: Path) -> list[Case]:
    """Files of every kind that nothing is wrong with."""
    random, found = randomness.Random(0), []
    for number, payload in enumerate((
        seeds.npz(seeds.arrays(random), deflated=False),
        seeds.npz(seeds.labelled(random), deflated=True),
        seeds.safe({"query": seeds.labelled(random)["embeddings"], "candidate": seeds.labelled(random)["embeddings"]}),
        seeds.saved(seeds.content("labelled", random)),
        seeds.saved(seeds.content("labelled", random), legacy=True),
    )):
        inner = folder / str(number)
        inner.mkdir()
        found.append(_written(inner, payload))
    for kind in ("vsepp", "vsrn", "native"):
        content = seeds.content(kind, random)
        (folder / kind).mkdir()
        for suffix in (".json", ".pkl"):
            files = {
                name: inner
                for name, inner in seeds.folder(random, regions=kind == "vsrn").items()
                if "vocab" not in name
            }
            words = seeds.vocabulary_file(suffix)
            names = [f"{name}_vocab{suffix}" for name in ("data", "f30k_precomp")]
            seeds.write(
                folder / kind / suffix[1:],
                {k: v for k, v in files.items() if "vocab" not in k} | dict.fromkeys(names, words),
            )
            found.append(Case(_written(folder / kind, seeds.saved(content)).path, folder / kind / suffix[1:]))
    return found
