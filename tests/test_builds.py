"""The kernel built by other compilers and for other processors, and run under sanitizers."""

import ctypes
import os
import platform
import shutil
from pathlib import Path

import pytest
import torch

import children
from cocos import Embeddings, engine
from cocos.engine import fused
from cocos.engine.kernel import build, native, structs
from cocos.engine.primitives.threshold import Threshold, about_positives

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
ARM = ("aarch64-linux-gnu-gcc", "qemu-aarch64")
FUSED = ["-O1", "-fexpensive-optimizations", "-ffp-contract=fast"]  # products and sums are fused, as at -O3
FLAGS = [*build.COMPILER_FLAGS, "-Wall", "-Wextra", "-Werror"]


def counts():
    embeddings = Embeddings(*torch.randn(2, 300, 70, generator=torch.Generator().manual_seed(0)))
    found = []
    for metric in ("cosine", "euclidean"):
        view = engine.view(embeddings, metric=metric)
        levels, _ = about_positives(view, 0.1)
        (counted,) = engine.run(view, [Threshold(view, levels)])
        found += counted.above
    return found


@pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="flags of x86-64")
@pytest.mark.parametrize(
    ("compiler", "flags"),
    [
        ("gcc", ["-mavx2", "-mfma"]),
        ("gcc", []),
        ("clang", ["-march=native", "-mprefer-vector-width=512"]),
    ],
    ids=lambda each: "".join(each) if isinstance(each, list) else each,
)
def test_another_build_counts_the_same(compiler, flags, tmp_path, monkeypatch):
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    usual = counts()
    path = tmp_path / "kernel.so"
    command = [compiler, *FLAGS, *flags, "-O1", str(build.KERNEL_SOURCE), "-o", str(path), "-lm"]
    done = children.run(*command)
    assert done.returncode == 0, done.stderr[-2000:]
    library = ctypes.CDLL(str(path))
    monkeypatch.setattr(native, "library", lambda: library)
    assert structs.loaded() is library
    assert fused.kernel_name() == "compiled C"
    assert all(torch.equal(*pair) for pair in zip(usual, counts(), strict=True))


def compiled(command, path):
    """Build the trial of the kernel with a compiler, all warnings errors."""
    source = HERE / "kernel_trial.c"
    command = [*command, "-Wall", "-Wextra", "-Werror", "-Wno-psabi", f"-I{build.KERNEL_FOLDER}", str(source)]
    done = children.run(*command, "-o", path, "-lm")
    assert done.returncode == 0, done.stderr[-2000:]
    return str(path)


@pytest.mark.skipif(not all(map(shutil.which, ARM)), reason=f"needs {' and '.join(ARM)}")
def test_the_kernel_runs_on_aarch64(tmp_path):
    program = compiled([ARM[0], *FUSED, "-fno-strict-aliasing", "-static"], tmp_path / "trial")
    done = children.run(ARM[1], program)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not shutil.which("gcc") or platform.system() != "Linux", reason="needs the sanitizers of gcc")
def test_every_edge_size_is_clean_under_sanitizers(tmp_path):
    """All that the kernel reads and writes here is as long as it must be, and not longer."""
    flags = "-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all -g1".split()
    program = compiled(["gcc", "-O0", "-march=native", "-fno-strict-aliasing", *flags], tmp_path / "trial")
    quiet = os.environ | {"ASAN_OPTIONS": "detect_leaks=0"}
    done = children.run(program, env=quiet)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
