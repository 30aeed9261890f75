"""Results are untrusted files: none makes cocos read another file."""

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import cocos
from cocos import InputError, UnsafeFile, measures, results
from cocos.cli import app

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
        opened = results.open(path)
        assert all(each.sizes for each in (opened.values() if isinstance(opened, dict) else [opened]))
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


def linked_group(file, folder):
    file.create_group("0")["stolen"] = h5py.ExternalLink(str(folder / "other.h5"), "/numbers")


STRUCTURES = [external, virtual, external_link, soft_link, linked_group]


@pytest.mark.parametrize("attack", STRUCTURES, ids=lambda each: each.__name__)
def test_an_hdf5_file_that_is_no_result_is_refused_before_it_is_read(copied, tmp_path, attack):
    """Other files and other storage."""
    path = copied("count_seed0.nc")
    (tmp_path / "secret").write_bytes(SECRET)
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["numbers"] = np.arange(4.0)
    with h5py.File(path, "a") as file:
        attack(file, tmp_path)
    with pytest.raises(UnsafeFile, match="count_seed0.nc: ") as refused:
        results.open(path)
    assert "\n" not in str(refused.value)
    done = CliRunner().invoke(app, ["diff", str(path), str(path.with_name("other.nc"))])
    assert (done.exit_code, done.stdout) == (3, "")


DEEP = "[" * 30_000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("loss_parameters", DEEP),
        ("loss_parameters", "x"),
        ("alarms", DEEP),
        ("alarms", 7),
        ("health", '{"sides":' * 30_000),
        ("findings", h5py.Empty("f4")),
    ],
)
def test_broken_json_attribute_is_refused(copied, name, value):
    path = copied("run.nc")
    with h5py.File(path, "a") as file:
        file.attrs[name] = value
    with pytest.raises(InputError, match="damaged one"):
        results.open(path)


def test_a_result_is_no_other_kind_of_file(tmp_path, made):
    (tmp_path / "text.nc").write_text("x")
    (tmp_path / "empty.nc").write_bytes(b"")
    (tmp_path / "cut.nc").write_bytes((made / "run.nc").read_bytes()[:5000])
    for name in ("text", "empty", "cut"):
        with pytest.raises(InputError, match=f"{name}.nc is no result of cocos, or a damaged one"):
            results.open(tmp_path / f"{name}.nc")
    with pytest.raises(FileNotFoundError):
        results.open(tmp_path / "absent.nc")
    assert ended(["run", str(tmp_path / "absent.nc")]).exit_code == 2


def test_texts_beyond_ascii_are_read_as_they_were_written(tmp_path):
    """Settings of the warp are named by Greek letters."""
    names = np.array(["warp, α = 2", "τ 0.05", "plain"])
    runs = xr.Dataset({"R@1": ("run", [1.0, 2.0, 3.0], {"long_name": "R@1 über alle"})}, {"config": ("run", names)})
    found = results.open(results.save(runs, tmp_path / "runs.nc"))
    assert found["config"].values.tolist() == names.tolist() and found["R@1"].attrs["long_name"] == "R@1 über alle"
