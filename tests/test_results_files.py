"""Results are untrusted files: none makes cocos read another file."""

import json
import shutil

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
def folder(tmp_path_factory):
    """Results of every kind that a command reads."""
    folder = tmp_path_factory.mktemp("results")
    generator = np.random.default_rng(0)
    query = generator.normal(size=(24, 6)).astype("f")
    sets = [cocos.Embeddings(query, query + generator.normal(size=(24, 6)).astype("f")) for _ in range(2)]
    for seed, embeddings in enumerate(sets):
        counts = measures.count(embeddings, "ntxent", batch_size=8, metrics=True)
        results.save(counts, folder / f"count_seed{seed}.nc")
        results.save(measures.evaluate(embeddings), folder / f"evaluate_seed{seed}.nc")
    results.save(measures.count(sets[0], ["ntxent", "triplet"], batch_size=8), folder / "several.nc")
    results.save(measures.run(sets, steps=[10, 20], batch_size=8), folder / "run.nc")
    return folder


@pytest.fixture
def copied(folder, tmp_path):
    """Copy a result by its name."""
    return lambda name: shutil.copy(folder / name, tmp_path / name)


def test_saved_results_open(folder):
    for path in folder.glob("*.nc"):
        data = results.open(path)
        assert all(dataset.sizes for dataset in (data.values() if isinstance(data, dict) else [data]))
    diff = ["diff", str(folder / "count_seed0.nc"), str(folder / "count_seed1.nc")]
    for arguments in (diff, ["run", str(folder / "run.nc")]):
        assert CliRunner().invoke(app, arguments).exit_code == 0


def test_third_party_dataset_opens(tmp_path):
    """Of 24 MB, with lists in its attributes."""
    values = np.random.default_rng(0).normal(size=(300, 10_000))
    attrs = {"title": "large", "authors": ["a", "b"], "numbers": [1, 2]}
    data = xr.Dataset({"x": (("run", "query"), values)}, attrs=attrs)
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


def external_in_group(file, folder):
    external(file.create_group("0"), folder)


def endless_group(file, folder):
    group = file.create_group("0")
    group["again"] = group


def endless_file(file, folder):
    file["again"] = file["/"]


ATTACKS = [external, virtual, external_link, soft_link, linked_group, external_in_group, endless_group, endless_file]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_reference_to_file_is_refused(copied, tmp_path, attack):
    path = copied("count_seed0.nc")
    (tmp_path / "secret").write_bytes(SECRET)
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["numbers"] = np.arange(4.0)
    with h5py.File(path, "a") as file:
        attack(file, tmp_path)
    with pytest.raises(UnsafeFile) as error:
        results.open(path)
    assert "\n" not in str(error.value)
    command = CliRunner().invoke(app, ["diff", str(path), str(path.with_name("other.nc"))])
    assert (command.exit_code, command.stdout) == (3, "")


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
    with pytest.raises(InputError):
        results.open(path)


def test_broken_header_of_store_is_refused(tmp_path):
    header = {"cocos": "0.1.0", "loss": "ntxent", "loss_parameters": DEEP, "eps": 0.01}
    path = tmp_path / "a.jsonl"
    path.write_text(f'{json.dumps(header)}\n{{"step": 1}}\n')
    for read in (results.open, measures.run):
        with pytest.raises(InputError, match="loss_parameters"):
            read(path)


def test_other_file_is_refused(tmp_path, folder):
    contents = {"text": b"x", "empty": b"", "cut": (folder / "run.nc").read_bytes()[:5000]}
    for name, content in contents.items():
        (tmp_path / f"{name}.nc").write_bytes(content)
        with pytest.raises(InputError, match=f"{name}.nc"):
            results.open(tmp_path / f"{name}.nc")
    with pytest.raises(FileNotFoundError):
        results.open(tmp_path / "absent.nc")
    command = CliRunner().invoke(app, ["run", str(tmp_path / "absent.nc")])
    assert (command.exit_code, command.stderr.count("\n")) == (2, 1)


def test_non_ascii_text_is_kept(tmp_path):
    names = np.array(["warp, α = 2", "τ 0.05", "plain"])
    runs = xr.Dataset({"R@1": ("run", [1.0, 2.0, 3.0], {"long_name": "R@1 über alle"})}, {"config": ("run", names)})
    data = results.open(results.save(runs, tmp_path / "runs.nc"))
    assert data["config"].values.tolist() == names.tolist() and data["R@1"].attrs["long_name"] == "R@1 über alle"
