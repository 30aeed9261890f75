"""Results are files of strangers: none makes cocos read another file, takes more than its size explains, or runs on."""

import json
import os
import resource
import shutil
import time
import tracemalloc
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import cocos
from cocos import InputError, measures, results
from cocos.base import hdf5
from cocos.commands import app

SECRET = b"root:x:0:0:of another file"
# Budget of one opening: seconds of the processor, bytes.
MOST_CPU, MOST_MEMORY = 5.0, 500_000_000


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Results of every kind that a command reads: two counts, two evaluations, a count of two losses, a run."""
    folder = tmp_path_factory.mktemp("results")
    generator = np.random.default_rng(0)
    query = generator.normal(size=(24, 6)).astype("f")
    sets = [cocos.Embeddings(query, query + generator.normal(size=(24, 6)).astype("f")) for _ in range(2)]
    for place, each in enumerate(sets):
        counted = measures.count(each, "ntxent", batch_size=8, metrics=True)
        results.save(counted, folder / f"count_seed{place}.nc")
        results.save(measures.evaluate(each), folder / f"evaluate_seed{place}.nc")
    results.save(measures.count(sets[0], ["ntxent", "triplet"], batch_size=8), folder / "several.nc")
    results.save(measures.run(sets, steps=[10, 20], batch_size=8), folder / "run.nc")
    rows = [results.row(results.open(folder / f"count_seed{place}.nc")) for place in range(2)]
    results.save(results.concat(rows, seed=[0, 1]), folder / "runs.nc")
    return folder


@pytest.fixture
def copied(made, tmp_path):
    def copy(name):
        return Path(shutil.copy(made / name, tmp_path / name))

    return copy


def commands(path, other):
    """Every command that reads a result; one of them where the file is refused before it is looked at."""
    every = [
        ["table", "2", str(path)],
        ["run", str(path), "--json"],
        ["diff", str(path), str(other)],
        ["correlate", str(path), str(other), "--permutations", "20", "--resamples", "20"],
    ]
    try:
        results.open(path)
    except InputError:
        return every[:1]
    return every


def ended(arguments):
    """The end of a command; anything but a sentence or an answer is an error."""
    begun, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = CliRunner().invoke(app, arguments)
    spent, grown = time.process_time() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    assert done.exception is None or type(done.exception) is SystemExit, (arguments, done.exception)
    assert done.exit_code == 0 or (done.exit_code == 2 and done.stderr.count("\n") == 1), (arguments, done.output)
    assert spent < MOST_CPU and grown * 1024 < MOST_MEMORY, (arguments, spent, grown)
    return done


def test_results_as_cocos_writes_them_pass(made):
    for path in sorted(made.glob("*.nc")):
        hdf5.check(path.read_bytes())
        assert results.open(path).sizes
    assert ended(["diff", str(made / "count_seed0.nc"), str(made / "count_seed1.nc")]).exit_code == 0
    assert ended(["run", str(made / "run.nc")]).exit_code == 0


def test_a_small_result_takes_no_more_than_its_bytes_explain(made):
    """As much memory as the largest one may have was taken at once: 2 GiB of addresses, which a limit may not give."""
    path = made / "count_seed0.nc"
    results.open(path)  # imports
    tracemalloc.start()
    try:
        results.open(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50_000_000


def test_a_large_result_passes(tmp_path):
    """With lists in its attributes, and of more bytes than all attributes may have."""
    values = np.random.default_rng(0).normal(size=(300, 10_000))
    data = xr.Dataset(
        {"x": (("run", "query"), values)}, attrs={"title": "large", "authors": ["a", "b"], "some": [1, 2]}
    )
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding={"x": {"zlib": True, "complevel": 1}})
    assert (tmp_path / "a.nc").stat().st_size > hdf5.MAX_ATTRIBUTE_BYTES
    assert results.open(tmp_path / "a.nc").equals(data)


def external(file, folder):
    file.create_dataset("stolen", (len(SECRET),), "u1", external=[(str(folder / "secret"), 0, len(SECRET))])


def virtual(file, folder):
    layout = h5py.VirtualLayout((4,), "f8")
    layout[:] = h5py.VirtualSource(str(folder / "other.h5"), "numbers", (4,))
    file.create_virtual_dataset("stolen", layout)


def external_link(file, folder):
    file["stolen"] = h5py.ExternalLink(str(folder / "other.h5"), "/numbers")


def link_to_a_pipe(file, folder):
    os.mkfifo(folder / "pipe")
    file["stolen"] = h5py.ExternalLink(str(folder / "pipe"), "/numbers")


def soft_link(file, folder):
    file["again"] = h5py.SoftLink("/queries")


def group(file, folder):
    inner = file
    for _ in range(50):
        inner = inner.create_group("g")


def cycle(file, folder):
    inner = file.create_group("g")
    inner["root"] = file


def root_again(file, folder):
    file["root"] = file


def named_type(file, folder):
    file["kind"] = np.dtype("f8")


def reference(file, folder):
    file.create_dataset("r", (3,), h5py.ref_dtype)[0] = file["queries"].ref


def region(file, folder):
    file.create_dataset("r", (3,), h5py.regionref_dtype)


def compound(file, folder):
    file["c"] = np.zeros(3, [("a", "f8"), ("b", "i4")])


def opaque(file, folder):
    file["o"] = np.zeros(3, "V16")


def lists(file, folder):
    file.create_dataset("l", (3,), h5py.vlen_dtype(np.float64))


def nested_arrays(file, folder):
    file.create_dataset("n", (3,), np.dtype(("f8", (1000, 1000))))


def odd_filter(file, folder):
    file.create_dataset("lzf", data=np.zeros(5000), compression="lzf")


def scale_offset(file, folder):
    file.create_dataset("s", data=np.zeros(5000, "i4"), scaleoffset=4)


def unwritten(file, folder):
    file.create_dataset("u", (2**28,), "f4", chunks=(2**20,), compression="gzip")


def endless(file, folder):
    file.create_dataset("u", (2**40,), "f8", chunks=(2**10,))


def long_text(file, folder):
    file.create_dataset("t", (), "S2000000000")


def huge_chunk(file, folder):
    file.create_dataset("c", (4,), "f8", chunks=(2**28,), maxshape=(None,), compression="gzip")


def zeros(file, folder):
    file.create_dataset("z", data=np.zeros((2**26,), "u1"), chunks=(2**22,), compression="gzip", compression_opts=9)
    for k in range(20):
        file[f"z{k}"] = file["z"]


def bomb_of_a_chunk(file, folder):
    """A chunk of 8 bytes that unpacks to 400 MB."""
    made = file.create_dataset("b", (1,), "f8", chunks=(1,), compression="gzip")
    made.id.write_direct_chunk((0,), zlib.compress(bytes(400_000_000), 9))


def twice_packed(file, folder):
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_chunk((2**20,))
    for _ in range(3):
        made.set_deflate(9)
    space = h5py.h5s.create_simple((2**20,))
    h5py.h5d.create(file.id, b"p", h5py.h5t.NATIVE_UINT8, space, made).write(
        h5py.h5s.ALL, h5py.h5s.ALL, np.zeros(2**20, "u1")
    )


def one_text_often(file, folder):
    """Text of 64 kB once in the file, and 100,000 places that name it."""
    made = file.create_dataset("t", (100_000,), h5py.string_dtype(), chunks=(100_000,))
    made[0] = "x" * 2**16
    stored = made.id.get_chunk_info(0)
    file.flush()
    first = Path(file.filename).read_bytes()[stored.byte_offset : stored.byte_offset + 16]
    made.id.write_direct_chunk((0,), first * 100_000)


def packed_text(file, folder):
    file.create_dataset("t", data=["x"] * 1000, dtype=h5py.string_dtype(), compression="gzip")


def many_names(file, folder):
    for k in range(1500):
        file[f"n{k}"] = file["queries"]


def many_attributes(file, folder):
    for k in range(300):
        file["queries"].attrs[f"b{k}"] = "x" * 60_000


def many_dimensions(file, folder):
    file.create_dataset("d", (1,) * 30, "f8")


def scaled(file, folder):
    file["queries"].attrs["scale_factor"] = 1e308


def an_object(file, folder):
    file.attrs.create("notes", file["queries"].ref, dtype=h5py.ref_dtype)


STRUCTURES = [
    *(external, virtual, external_link, link_to_a_pipe, soft_link, group, cycle, root_again, named_type),
    *(reference, region, compound, opaque, lists, nested_arrays, odd_filter, scale_offset),
    *(unwritten, endless, long_text, huge_chunk, zeros, bomb_of_a_chunk, twice_packed, one_text_often, packed_text),
    *(many_names, many_attributes, many_dimensions, scaled, an_object),
]


@pytest.mark.parametrize("attack", STRUCTURES, ids=lambda each: each.__name__)
def test_an_hdf5_file_that_is_no_result_is_refused_before_it_is_read(copied, tmp_path, attack):
    """Other files, other storage, and sizes that its bytes do not explain."""
    path = copied("count_seed0.nc")
    (tmp_path / "secret").write_bytes(SECRET)
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["numbers"] = np.arange(4.0)
    with h5py.File(path, "a") as file:
        attack(file, tmp_path)
    begun, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=r"count_seed0.nc is no result of cocos, or a damaged one \(") as refused:
        results.open(path)
    spent, grown = time.process_time() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    assert spent < MOST_CPU and grown * 1024 < MOST_MEMORY and "\n" not in str(refused.value)
    assert isinstance(refused.value.__cause__, ValueError) and hdf5.check.__code__ in _where(refused.value.__cause__)


def _where(error):
    """Code that an error went through."""
    found, at = [], error.__traceback__
    while at is not None:
        found.append(at.tb_frame.f_code)
        at = at.tb_next
    return found


DEEP = "[" * 30_000
ATTRIBUTES = {
    "parameters deep": {"loss_parameters": DEEP},
    "parameters a list": {"loss_parameters": "[1]"},
    "parameters no JSON": {"loss_parameters": "x"},
    "eps text": {"eps": "abc"},
    "eps infinite": {"eps": np.inf},
    "eps a list": {"eps": [0.1, 0.2]},
    "alarms deep": {"alarms": DEEP},
    "alarms of no step": {"alarms": '[{"detector": "a", "sentence": "b"}]'},
    "alarms of text": {"alarms": '["a"]'},
    "alarms a number": {"alarms": "7"},
    "alarms of an odd step": {"alarms": '[{"step": "x", "detector": "a", "sentence": "b"}]'},
    "left out no text": {"left_out": '[{"step": 3, "file": 7, "reason": "b"}]'},
    "health a list": {"health": "[]"},
    "health deep": {"health": '{"sides":' * 30_000},
    "health of numbers": {"health": '{"sides": {"query": 3}}'},
    "notes a number": {"notes": 5},
    "notes nothing": {"notes": h5py.Empty("f4")},
    "title a list": {"title": [1, 2]},
    "seed text": {"seed": "x"},
    "batch size infinite": {"batch_size": np.inf},
    "level above 1": {"level": 7.0},
    "k no numbers": {"k": "1,x"},
    "loss a number": {"loss": 3.5},
    "share a list": {"share": ["a", "b"]},
    "another file to hash": {"checkpoint_mapped": "7 7", "checkpoint_path": "/etc/passwd"},
}


@pytest.mark.parametrize("attack", ATTRIBUTES)
def test_attributes_are_of_their_kind(copied, attack):
    path = copied("run.nc")
    with h5py.File(path, "a") as file:
        for key, value in ATTRIBUTES[attack].items():
            file.attrs[key] = value
    with pytest.raises(InputError, match="is no result of cocos, or a damaged one: attribute") as refused:
        results.open(path)
    assert len(str(refused.value)) < 300 + len(str(path))


@pytest.mark.parametrize("value", [5, "[]", [1, 2], None], ids=str)
@pytest.mark.parametrize("name", ["several.nc", "run.nc"])
def test_whatever_every_attribute_is_commands_end_in_a_sentence(copied, made, name, value):
    """Of one value each, or without any."""
    path = copied(name)
    with h5py.File(path, "a") as file:
        for key in set(file.attrs) - {"_NCProperties"}:
            del file.attrs[key]
            if value is not None:
                file.attrs[key] = value
    for arguments in commands(path, made / "count_seed1.nc"):
        ended(arguments)


def test_numbers_that_no_result_has_end_in_a_sentence(made, tmp_path):
    """A variable that is absent, infinite, or text, or along another dimension."""
    data = results.open(made / "run.nc")[["queries", "contributing"]]
    wrong = {
        "absent": data.drop_vars("queries"),
        "infinite": data.assign(contributing=data["contributing"] * np.inf),
        "text": data.assign(contributing=data["contributing"].astype(str)),
        "elsewhere": data.assign(contributing=("row", np.zeros(3))),
        "one step often": data.isel(checkpoint=[0] * 50),
    }
    for name, each in wrong.items():
        each.to_netcdf(tmp_path / f"{name}.nc", engine="h5netcdf")
        for arguments in commands(tmp_path / f"{name}.nc", made / "run.nc"):
            ended(arguments)


@pytest.mark.parametrize("dimension", ["direction", "checkpoint", "loss"])
def test_dimensions_whose_entries_are_read_one_by_one_have_limits(tmp_path, dimension):
    data = xr.Dataset({"x": (dimension, np.zeros(200_000, "i1"))}, {dimension: np.zeros(200_000, "i1")})
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding={"x": {"zlib": True}, dimension: {"zlib": True}})
    with pytest.raises(InputError, match=rf"200,000 along {dimension}, expected at most"):
        results.open(tmp_path / "a.nc")


def test_the_header_of_a_store_is_checked_alike(tmp_path):
    header = {"cocos": "0.1.0", "loss": "ntxent", "loss_parameters": "{}", "eps": 0.01}
    for name, value in (("eps", "x"), ("loss_parameters", DEEP), ("loss", 5), ("eps", 10**400)):
        path = tmp_path / "a.jsonl"
        path.write_text(json.dumps(header | {name: value}) + "\n" + '{"step": 1}\n')
        for call in (results.open, measures.run):
            with pytest.raises(InputError, match=f"attribute {name} is"):
                call(path)


def test_a_result_is_no_other_kind_of_file(tmp_path, made):
    os.mkfifo(tmp_path / "pipe.nc")
    (tmp_path / "text.nc").write_text("x")
    (tmp_path / "empty.nc").write_bytes(b"")
    (tmp_path / "cut.nc").write_bytes((made / "run.nc").read_bytes()[:5000])
    for name, sentence in (
        ("pipe", "no regular file"),
        ("text", "is no result of cocos, or a damaged one"),
        ("empty", "is no result of cocos, or a damaged one"),
        ("cut", "is no result of cocos, or a damaged one"),
        ("absent", "there is no such file"),
    ):
        with pytest.raises(InputError, match=sentence):
            results.open(tmp_path / f"{name}.nc")


def test_texts_beyond_ascii_are_read_as_they_were_written(tmp_path):
    """Settings of the warp are named by Greek letters."""
    names = np.array(["warp, α = 2", "τ 0.05", "plain"])
    runs = xr.Dataset({"R@1": ("run", [1.0, 2.0, 3.0], {"long_name": "R@1 über alle"})}, {"config": ("run", names)})
    found = results.open(results.save(runs, tmp_path / "runs.nc"))
    assert found["config"].values.tolist() == names.tolist() and found["R@1"].attrs["long_name"] == "R@1 über alle"
