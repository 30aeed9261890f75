"""Results of cocos (.nc) and stores of its monitor (.jsonl) with other structures, attributes, numbers and bytes."""

import copy
import functools
import json
import os
import tempfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import torch

import cocos
from cocos import Embeddings, measures, results
from fuzz import mutations, trees

__all__ = ["COMMANDS", "SECRET", "damaged", "whole"]

# Commands that read results, with what makes each of them quick.
COMMANDS = {"run": {}, "diff": {}, "correlate": {"permutations": 100, "resamples": 100}, "table": {"name": "2"}}
# Results that each of them reads.
KINDS = {
    "run": ["run"],
    "diff": ["count", "run"],
    "correlate": ["count", "run", "runs", "several"],
    "table": ["tabled", "evaluate"],
}
# Content of a file beside the result, which no reader may read.
SECRET = b"of another file, not of this result."
# Variables that results of a seed keep, so that opening one is quick; those that are needed to read it are kept too.
KEPT = {
    *(
        "contributing",
        "contributing_all",
        "queries",
        "idle",
        "effective_per_query",
        "query_index",
        "query_group",
        "R@1",
    ),
    *("rsum", "best_rank", "file", "sha256", "loss_repr", "value", "direction"),
}
# Those that the command `table` reads, with all that a batch or a fold has.
TABLED = {"tabled", "evaluate", "several"}
TEXTS = [*mutations.TEXTS, "", "[" * 5000, '{"sides":' * 5000, "nan", "1e999", "9" * 5000, "[]", "{}", "null", "7"]
NUMBERS = [0, -1, 1, 5, 2**31, 2**63 - 1, 0.5, 1e308, float("nan"), float("inf"), -0.0]
JSON = ("loss_parameters", "alarms", "left_out", "health", "options", "watching", "findings")
RECORD = {"step": 1, "value": 2.5, "directions": {"q2c": {"contributing": 1.5, "effective": 2.0, "queries": 8}}}
ALARM = {"step": 1, "detector": "collapse", "sentence": "a sentence", "width": None}


@functools.cache
def seeds() -> dict[str, bytes]:
    """Bytes of a result of each kind."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(12, 4, generator=generator)
    sets = [Embeddings(rows, rows + torch.randn(12, 4, generator=generator)) for _ in range(2)]
    counts = [measures.count(each, "ntxent", batch_size=4, metrics=True) for each in sets]
    found = {
        "count": counts[0],
        "other count": counts[1],
        "tabled": measures.count(sets[0], "triplet", batch_size=4, metrics=True),
        "evaluate": measures.evaluate(sets[0]).drop_dims("query"),
        "several": measures.count(sets[0], ["ntxent", "triplet"], batch_size=4),
        "run": measures.run(sets, steps=[10, 20], batch_size=4),
        "other run": measures.run(sets[::-1], steps=[10, 20], batch_size=4),
    }
    small = {
        name: each if name in TABLED else each.drop_vars([v for v in each.data_vars if v not in KEPT])
        for name, each in found.items()
    }
    for place, each in enumerate(small.values()):
        each.attrs["checkpoint_sha256"] = f"{place:064x}"
    small["run"].attrs["alarms"] = json.dumps([ALARM])
    rows = [results.row(each) * (1 + k / 9) for k, each in enumerate(counts * 3)]
    rows = [each.drop_vars([name for name in each.data_vars if name not in KEPT]) for each in rows]
    small["runs"] = results.concat(rows, seed=[0, 1] * 3, config=list("aabbcc"))
    with tempfile.TemporaryDirectory() as folder:
        return {name: results.save(each, Path(folder, "a.nc")).read_bytes() for name, each in small.items()}


def _store(random) -> bytes:
    """A store of a monitor with a few records, some of them other than they should be."""
    header = {"cocos": cocos.__version__, "loss": "ntxent", "loss_parameters": '{"temperature": 0.1}', "eps": 0.01}
    lines = [header, *(RECORD | {"step": step} for step in range(3))]
    lines = [trees.damaged_json(random, each) if random.random() < 0.4 else each for each in lines]
    return "\n".join(json.dumps(each) for each in lines).encode("utf-8", "surrogatepass") + b"\n"


def _value(random):
    kinds = [
        lambda: random.choice(NUMBERS),
        lambda: random.choice(TEXTS),
        lambda: np.array([random.choice(NUMBERS) for _ in range(random.choice([0, 1, 3, 3000]))], float),
        lambda: np.array(["a", "b"], dtype=h5py.string_dtype()),
        lambda: h5py.Empty(random.choice(["f8", "S1", "i4"])),
        lambda: np.bool_(True),
        lambda: np.ones((2, 2), np.complex64),
        lambda: np.bytes_(b"\xff\xfe"),
    ]
    return random.choice(kinds)()


def _attribute(random, file: h5py.File, folder: Path) -> None:
    """Another value of an attribute, or other JSON in it, or one less."""
    thing = file if random.random() < 0.85 else file[random.choice(list(file))]
    names = [name for name in thing.attrs if name not in {"DIMENSION_LIST", "REFERENCE_LIST"}]
    if not names:
        return
    name = random.choice(names)
    if name in JSON and random.random() < 0.7:
        thing.attrs[name] = json.dumps(trees.damaged_json(random, json.loads(thing.attrs[name])))[:60_000]
    elif random.random() < 0.15:
        del thing.attrs[name]
    else:
        thing.attrs[random.choice([name, "checkpoint_mapped", "_FillValue", "coordinates", "units", "k"])] = _value(
            random
        )


def _variable(random, file: h5py.File, folder: Path) -> None:
    """A variable that is absent, or has other numbers, another type or another shape."""
    name = random.choice(list(file))
    old, way = file[name], random.randrange(6)
    if way == 0:
        del file[name]
    elif way == 1 and old.dtype.kind == "f" and old.size:
        old[...] = random.choice(NUMBERS)
    elif way == 2 and old.dtype.kind in "iu" and old.size:
        old[...] = random.choice([0, -1, 2**31, 2**62])
    elif way == 3 and old.dtype.kind == "O" and old.shape:
        old[...] = np.array([random.choice(TEXTS) for _ in range(old.size)], dtype=object).reshape(old.shape)
    else:
        shape = random.choice([old.shape, (), (3,), (0,), (2, 2), (2, 3, 4), old.shape[::-1]])
        kind = random.choice(["f8", "f4", "f2", "i8", "u1", "i1", "S3", h5py.string_dtype(), "?", "c8", "V4", ">f8"])
        attributes = dict(old.attrs) if random.random() < 0.5 else {}
        del file[name]
        made = file.create_dataset(name, shape, kind)
        for key, value in attributes.items():
            if key not in {"DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME"}:
                made.attrs[key] = value


def _dimension(random, file: h5py.File, folder: Path) -> None:
    """Another order, name or number of the dimensions of a variable."""
    name = random.choice([name for name in file if file[name].shape] or list(file))
    thing, scales = file[name], [each for each in file.values() if each.is_scale]
    if random.random() < 0.3 or not scales or not thing.shape:
        for key in ("DIMENSION_LIST", "_Netcdf4Coordinates", "_Netcdf4Dimid", "CLASS", "NAME", "REFERENCE_LIST"):
            if key in thing.attrs and random.random() < 0.6:
                del thing.attrs[key]
    elif not thing.is_scale:
        thing.dims[random.randrange(len(thing.shape))].attach_scale(random.choice(scales))


def _elsewhere(random, file: h5py.File, folder: Path) -> None:
    """Data in another file, a link to one, or to this file itself."""
    (folder / "secret").write_bytes(SECRET)
    with h5py.File(folder / "secret.h5", "w") as other:
        other["numbers"] = np.frombuffer(SECRET, np.uint8)
    name = random.choice([*file, "stolen", "stolen"])
    if name in file:
        del file[name]
    way = random.randrange(8)
    target = random.choice([str(folder / "secret.h5"), "secret.h5", "/etc/passwd", "/dev/zero", str(folder / "pipe")])
    if way == 0:
        place = random.choice([str(folder / "secret"), "/etc/passwd", "secret"])
        file.create_dataset(name, (len(SECRET),), "u1", external=[(place, 0, len(SECRET))])
    elif way == 1:
        layout = h5py.VirtualLayout((len(SECRET),), "u1")
        layout[:] = h5py.VirtualSource(target, "numbers", (len(SECRET),))
        file.create_virtual_dataset(name, layout)
    elif way == 2:
        if not (folder / "pipe").exists():
            os.mkfifo(folder / "pipe")
        file[name] = h5py.ExternalLink(target, "/numbers")
    elif way == 3:
        file[name] = h5py.SoftLink(random.choice(["/", "/queries", "/nowhere", f"/{name}"]))
    elif way == 4:
        file[name] = file
    elif way == 5:
        inner = file.create_group(name)
        for _ in range(random.choice([0, 3, 300])):
            inner = inner.create_group("g")
        inner["root"] = file
    elif way == 6:
        file[name] = np.dtype(random.choice(["f8", "S4"]))
    else:
        file[name] = file[random.choice(list(file))]


def _large(random, file: h5py.File, folder: Path) -> None:
    """A size, a chunk or a text that the bytes of the file do not explain, or an odd filter or type."""
    name, way = f"large{random.randrange(99)}", random.randrange(11)
    size = random.choice([2**20, 2**24, 2**28, 2**40])
    if way == 0:
        file.create_dataset(name, (size,), "f4", chunks=(2**16,), compression=random.choice([None, "gzip"]))
    elif way == 1:
        file.create_dataset(name, (), f"S{random.choice([10**6, 2 * 10**9])}")
    elif way == 2:
        file.create_dataset(name, (4,), "f8", chunks=(random.choice([2**20, 2**28]),), maxshape=(None,))
    elif way == 3:
        made = file.create_dataset(name, (1,), "f8", chunks=(1,), compression="gzip")
        made.id.write_direct_chunk((0,), zlib.compress(bytes(random.choice([10**3, 10**7])), 9))
    elif way == 4:
        options = random.choice([{"compression": "lzf"}, {"scaleoffset": 3}, {"shuffle": True, "fletcher32": True}])
        file.create_dataset(name, data=np.zeros(500, "i4"), **options)
    elif way == 5:
        kinds = [h5py.ref_dtype, h5py.regionref_dtype, h5py.vlen_dtype("f8"), [("a", "f8")], "V9", ("f8", (9, 9))]
        file.create_dataset(name, (3,), np.dtype(random.choice(kinds)))
    elif way == 6:
        made = file.create_dataset(name, (1000,), h5py.string_dtype(), chunks=(1000,))
        made[0] = "x" * 60_000
        place = made.id.get_chunk_info(0).byte_offset
        file.flush()
        raw = Path(file.filename).read_bytes()[place : place + 16]
        made.id.write_direct_chunk((0,), raw * 1000)
    elif way == 7:
        file.create_dataset(name, (1,) * random.choice([9, 31]), "f8")
    elif way == 8:
        file[random.choice(list(file))].attrs[random.choice(["scale_factor", "add_offset", "_Unsigned"])] = 2.0
    elif way == 9:
        for k in range(random.choice([30, 1200])):
            file[f"{name}_{k}"] = file[random.choice(["direction", *list(file)[:1]])] if k < 2 else file[f"{name}_0"]
    else:
        for k in range(40):
            file.attrs[f"{name}_{k}"] = random.choice([1, "x" * 60_000])


WAYS = [_attribute] * 5 + [_variable] * 4 + [_dimension, _dimension, _elsewhere, _elsewhere, _large, _large]


def damaged(random, folder: Path) -> tuple[Path, Path, str]:
    """Write a result, or a store, with which something is wrong.

    Returns:
        It, a whole one beside it, and the command that reads it.
    """
    command = random.choice(list(COMMANDS))
    if command != "table" and random.random() < 0.12:
        path, other = folder / "run.jsonl", folder / "other.jsonl"
        raw = _store(random)
        path.write_bytes(mutations.damaged(random, raw) if random.random() < 0.3 else raw)
        other.write_bytes(_store(copy.copy(random)))
        return path, other, command
    kind = random.choice(KINDS[command])
    path, other = _written(folder, kind, command)
    try:
        with h5py.File(path, "a") as file:
            for _ in range(random.choice([1, 1, 1, 2, 3])):
                random.choice(WAYS)(random, file, folder)
    except Exception:  # not everything odd can be written
        pass
    if random.random() < 0.25:
        path.write_bytes(mutations.damaged(random, path.read_bytes()))
    return path, other, command


def _written(folder: Path, kind: str, command: str) -> tuple[Path, Path]:
    path, other = folder / "epoch_1_seed1.nc", folder / "epoch_1_seed2.nc"
    path.write_bytes(seeds()[kind])
    other.write_bytes(
        seeds()["runs" if command == "correlate" else f"other {kind}" if f"other {kind}" in seeds() else kind]
    )
    return path, other


def whole(folder: Path) -> list[tuple[Path, Path, str]]:
    """Write results with which nothing is wrong, for every command."""
    found = []
    for command, names in KINDS.items():
        for name in names:
            inner = folder / f"{command} {name}"
            inner.mkdir()
            found.append((*_written(inner, name, command), command))
    return found
