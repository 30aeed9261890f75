"""Results are untrusted files: none makes cocos read another file."""

import json
import shutil
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
    return folder


@pytest.fixture
def copied(made, tmp_path):
    def copy(name):
        return Path(shutil.copy(made / name, tmp_path / name))

    return copy


def ended(arguments):
    """The end of a command; anything but a sentence or an answer is an error."""
    done = CliRunner().invoke(app, arguments)
    assert done.exception is None or type(done.exception) is SystemExit, (arguments, done.exception)
    assert done.exit_code == 0 or (done.exit_code == 2 and done.stderr.count("\n") == 1), (arguments, done.output)
    return done


def test_results_as_cocos_writes_them_pass(made):
    for path in sorted(made.glob("*.nc")):
        hdf5.check(path.read_bytes())
        assert results.open(path).sizes
    assert ended(["diff", str(made / "count_seed0.nc"), str(made / "count_seed1.nc")]).exit_code == 0
    assert ended(["run", str(made / "run.nc")]).exit_code == 0


def test_a_large_result_passes(tmp_path):
    """With lists in its attributes."""
    values = np.random.default_rng(0).normal(size=(300, 10_000))
    data = xr.Dataset(
        {"x": (("run", "query"), values)}, attrs={"title": "large", "authors": ["a", "b"], "some": [1, 2]}
    )
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding={"x": {"zlib": True, "complevel": 1}})
    assert results.open(tmp_path / "a.nc").equals(data)


def external(file, folder):
    file.create_dataset("stolen", (len(SECRET),), "u1", external=[(str(folder / "secret"), 0, len(SECRET))])


def virtual(file, folder):
    layout = h5py.VirtualLayout((4,), "f8")
    layout[:] = h5py.VirtualSource(str(folder / "other.h5"), "numbers", (4,))
    file.create_virtual_dataset("stolen", layout)


def external_link(file, folder):
    file["stolen"] = h5py.ExternalLink(str(folder / "other.h5"), "/numbers")


def soft_link(file, folder):
    file["again"] = h5py.SoftLink("/queries")


def compound(file, folder):
    file["c"] = np.zeros(3, [("a", "f8"), ("b", "i4")])


STRUCTURES = [external, virtual, external_link, soft_link, compound]


@pytest.mark.parametrize("attack", STRUCTURES, ids=lambda each: each.__name__)
def test_an_hdf5_file_that_is_no_result_is_refused_before_it_is_read(copied, tmp_path, attack):
    """Other files and other storage."""
    path = copied("count_seed0.nc")
    (tmp_path / "secret").write_bytes(SECRET)
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["numbers"] = np.arange(4.0)
    with h5py.File(path, "a") as file:
        attack(file, tmp_path)
    with pytest.raises(InputError, match=r"count_seed0.nc is no result of cocos, or a damaged one \(") as refused:
        results.open(path)
    assert "\n" not in str(refused.value)


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
    (tmp_path / "text.nc").write_text("x")
    (tmp_path / "empty.nc").write_bytes(b"")
    (tmp_path / "cut.nc").write_bytes((made / "run.nc").read_bytes()[:5000])
    for name, sentence in (
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
