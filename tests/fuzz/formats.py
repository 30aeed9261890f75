"""The formats, and the files of each: a seed, a format and a number make one file."""

import json
import random as randomness
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch

from fuzz import bombs, caches, models, mutations, pipes, planted, results, seeds, sets, side_files, tokenizers, trees

__all__ = ["FORMATS", "SHARES", "Case", "make", "whole"]


@dataclass(frozen=True)
class Case:
    """A file to open.

    Args:
        path: of the file or folder.
        data: training data beside it, where its format has them.
        names: table of names of its rows.
        training: it is training data itself.
        command: that reads it, if it is a result; `data` is then another result.
        cached: it is a folder of the embeddings cache.
    """

    path: Path
    data: Path | None = None
    names: Path | None = None
    training: bool = False
    command: str = ""
    cached: bool = False


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


def _result(random, folder: Path) -> Case:
    path, other, command = results.damaged(random, folder)
    return Case(path, other, command=command)


def _side_files(random, folder: Path) -> Case:
    return Case(side_files.hostile(random, folder))


def _pipe(random, folder: Path) -> Case:
    """A model or training data of any kind, with pipes among its files."""
    if random.random() < 0.5:
        name = random.choice([each for each in sets.SETS if each not in ABSENT])
        return Case(pipes.of_data(random, folder, sets.SETS[name]), training=True)
    name = random.choice([each for each in models.MODELS if each not in ABSENT])
    return Case(*pipes.of_model(random, folder, models.MODELS[name]))


def _tokenizer(random, folder: Path) -> Case:
    return Case(*tokenizers.hostile(random, folder, models.MODELS["static tables"]))


def _cache(random, folder: Path) -> Case:
    return Case(caches.damaged(random, folder), cached=True)


def _model(seed: Callable, random, folder: Path) -> Case:
    return Case(*trees.of_model(random, folder, seed))


def _data(seed: Callable, random, folder: Path) -> Case:
    return Case(trees.of_data(random, folder, seed), training=True)


def _recipe(random, folder: Path) -> Case:
    return Case(trees.recipe(random, folder, models.MODELS["static tables"]))


def _names(random, folder: Path) -> Case:
    """A file of embeddings, and a damaged table that names its rows."""
    rows = [{"query_name": f"row {row}", "candidate_name": f"item {row}", "query_image": "a.png"} for row in range(6)]
    if random.random() < 0.7:
        rows = trees.damaged_json(random, rows)
    lines = "\n".join(map(json.dumps, rows)) if isinstance(rows, list) else str(rows)
    path = folder / "names.jsonl"
    path.write_bytes(_perhaps(random, lines.encode("utf-8", "surrogatepass"), mutations.damaged))
    return Case(_written(folder, seeds.npz(seeds.arrays(random), deflated=False)).path, names=path)


# Formats by the library without which nothing of them is made or read.
NEEDS = {
    "transformers": ("sentence-transformers", "hugging face", "clip", "open_clip"),
    "tokenizers": ("static tables", "recipes", "tokenizers"),
    "pyarrow": ("parquet", "saved datasets"),
}
ABSENT = {name for library, names in NEEDS.items() if find_spec(library) is None for name in names}
EVERY = {
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
    **{name: partial(_model, seed) for name, seed in models.MODELS.items()},
    **{name: partial(_data, seed) for name, seed in sets.SETS.items()},
    "recipes": _recipe,
    "names": _names,
    "results": _result,
    "side files": _side_files,
    "pipes": _pipe,
    "tokenizers": _tokenizer,
    "caches": _cache,
}
FORMATS = {name: make for name, make in EVERY.items() if name not in ABSENT}
# Files of a format for each file of the dearest, which take ten times as long: towers that encode, and bombs.
DEAR = {"vsepp", "vsrn", "data folders", "native", "bombs", *models.MODELS}
SHARES = {name: 1 if name in DEAR else 3 for name in FORMATS}


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
    for path, other, command in results.whole(_made(folder / "results")):
        found.append(Case(path, other, command=command))
    for name, seed in (models.MODELS | sets.SETS).items():
        for number in range(2) if name in FORMATS else ():
            inner = folder / f"{name} {number}"
            inner.mkdir()
            found.append(_unharmed(randomness.Random(number), inner, seed, name in sets.SETS))
    return found


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _unharmed(random, folder: Path, seed: Callable, training: bool) -> Case:
    if training:
        return Case(trees.whole_data(random, folder, seed), training=True)
    return Case(*trees.whole_model(random, folder, seed))
