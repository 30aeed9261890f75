"""`cocos doctor` on installations that need attention, each with what to do."""

import functools
import importlib.util
import json
import platform
import shutil

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cocos
from cocos.commands import app, doctor
from cocos.commands.doctor import DISTRIBUTION
from cocos.engine.kernel import build


def call(*arguments):
    return CliRunner().invoke(app, ["doctor", *arguments])


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Pretend that a distribution with a package `cocos` is installed."""

    def installed(name, version, *requirements):
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        required = "".join(f"Requires-Dist: {each}\n" for each in requirements)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}")
        (folder / "RECORD").write_text("cocos/__init__.py,,\n")
        monkeypatch.syspath_prepend(tmp_path)

    return installed


@pytest.fixture
def kernel(monkeypatch, tmp_path):
    """A kernel that is asked for again, with another compiler and an empty cache."""
    monkeypatch.setattr(build, "_open_library", functools.cache(build._open_library.__wrapped__))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return monkeypatch.setenv


def test_the_facts_are_those_of_this_process():
    done = call("--json")
    found = json.loads(done.stdout)
    assert done.exit_code == int(bool(found["attention"])) and found["ok"] == (not found["attention"])
    assert (found["cocos"]["version"], found["versions"]["python"]) == (cocos.__version__, platform.python_version())
    assert found["versions"]["numpy"] == np.__version__
    assert found["threads"]["pytorch"] == torch.get_num_threads() and found["kernel"]["compiled"] == (
        build.library() is not None
    )
    assert found["product"]["gflops_float32"] > 0 and found["memory"]["host_bytes"] > 2**28
    assert found["stdout"]["terminal"] is False
    text = call().stdout
    assert cocos.__version__ in text and platform.python_version() in text
    assert f"{found['memory']['host_bytes'] / 2**30:.1f} GiB" in text
    assert (
        found["memory"]["available_bytes"] is None
        or found["memory"]["available_bytes"] > found["memory"]["host_bytes"] / 1024
    )
    assert ("all is well" in text) == found["ok"]


def test_another_distribution_of_the_same_import_name(install):
    install("cocos", "2.1")
    (sentence,) = doctor.package().attention
    assert "cocos 2.1" in sentence and f"pip uninstall cocos {DISTRIBUTION}" in sentence
    done = call("--json")
    assert done.exit_code == 1 and json.loads(done.stdout)["cocos"]["other_distributions"] == ["cocos"]
    assert "attention: the distribution cocos 2.1 " in call().stdout


@pytest.mark.parametrize("name", ["cocos-metric", "Cocos_Metric"])
def test_the_own_distribution_is_no_other_one(install, name):
    install(name, cocos.__version__)
    assert doctor.package().attention == ()


def test_another_version_is_installed_than_imported(install):
    install(DISTRIBUTION, "9.8")
    (sentence,) = doctor.package().attention
    assert "9.8" in sentence and cocos.__version__ in sentence


def test_requirements_that_are_not_met(install):
    install(DISTRIBUTION, cocos.__version__, "numpy>=99", "no-such-library>=1", "scipy", 'nowhere>=1; extra == "test"')
    numpy, library = doctor.versions().attention
    assert f"numpy is {np.__version__}" in numpy and "pip install 'numpy>=99'" in numpy
    assert "no-such-library is not installed" in library


def test_a_missing_compiler(kernel):
    kernel("CC", "/nonexistent/cc")
    done = call("--json")
    found = json.loads(done.stdout)
    (sentence,) = (each for each in found["attention"] if "kernel" in each)
    assert done.exit_code == 1 and not found["kernel"]["compiled"] and found["product"]["code"] == "plain torch"
    assert "/nonexistent/cc" in sentence and "CC" in sentence
    assert "/nonexistent/cc" in found["kernel"]["reason"] and found["kernel"]["compiler"] is None


def test_a_kernel_that_is_turned_off(kernel):
    kernel("COCOS_KERNEL", "plain")
    found = doctor.kernel()
    assert not found.facts["compiled"] and "COCOS_KERNEL=plain" in found.attention[0]
    assert doctor.environment().facts["COCOS_KERNEL"] == "plain"


def test_an_environment_that_half_says_torchrun(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    half, relative = doctor.environment().attention
    assert "WORLD_SIZE is missing" in half and "XDG_CACHE_HOME=here" in relative


def test_more_threads_than_processors(monkeypatch):
    assert doctor.threads().attention == () or torch.get_num_threads() > 1
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(doctor.os, "cpu_count", lambda: 8)
    monkeypatch.setattr(doctor.os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert "4 threads on 1 usable processors: set OMP_NUM_THREADS=1" in doctor.threads().attention[0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="PyTorch finds the GPU")
def test_a_driver_without_a_build_of_pytorch_for_it(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    (sentence,) = doctor.accelerators().attention
    assert torch.__version__ in sentence


def test_without_pytorch_the_rest_is_said(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find(name))
    found = {part.title: part for part in doctor.sections()}
    assert "product" not in found and "cocos" in found
    assert "pip install torch" in found["versions"].attention[-1]
