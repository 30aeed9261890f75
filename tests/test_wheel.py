"""The wheel holds what cocos needs, and runs from its file alone."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from cocos.engine.kernel import build

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
BESIDE = {
    ".json",
    ".c",
    ".h",
    ".py",
    ".md",
    ".txt",
    ".pt",
    ".webp",
    ".gz",
    ".html",  # the page of `cocos report`, its style and its script
    ".css",
    ".js",
    ".typed",
}  # suffixes of files of the package


COMPILER = sys.platform == "linux" and any(map(shutil.which, ("cc", "gcc", "clang")))
# Prints which code reads the tiles, and what it counts.
COUNT = """
import hashlib, torch, cocos
from cocos.engine import native
rows, noise = torch.randn(2, 900, 64, generator=torch.Generator().manual_seed(0))
embeddings, found = cocos.Embeddings(rows, rows + 2 * noise), hashlib.sha256()
for loss in ("ntxent", "triplet", "siglip", "ce_softmax"):
    found.update(cocos.measures.count(embeddings, loss, batch_size=900)["contributing"].values.tobytes())
print('compiled' if native.library() else 'torch', found.hexdigest())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (found,) = folder.glob("cocos_metric-*.whl")
    return found


def test_every_file_of_the_package_is_in_the_wheel(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    files = [
        p for p in (ROOT / "cocos").rglob("*") if p.is_file() and "__pycache__" not in p.parts and p.suffix != ".so"
    ]
    assert {p.suffix for p in files} <= BESIDE
    kernels = {f"cocos/engine/kernel/{level.file}" for level in build.machine_levels()} if COMPILER else set()
    own = {p.relative_to(ROOT).as_posix() for p in files}
    assert own | kernels == {name for name in held if name.startswith("cocos/")}
    assert any(name.endswith("/licenses/LICENSE") for name in held)
    licences = {p.name for p in (ROOT / "cocos" / "example" / "LICENSES").iterdir()}
    assert licences <= {Path(name).name for name in held if "/licenses/cocos/example/" in name}


@pytest.fixture(scope="module")
def fresh(wheel, tmp_path_factory):
    """An environment with the dependencies of this one, and the wheel in place of its cocos."""
    fresh = tmp_path_factory.mktemp("environment") / "fresh"
    venv.create(fresh, symlinks=True)
    site = next(fresh.glob("lib/python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"), "utf-8")
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(fresh),
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True, timeout=120)
    return fresh


def test_the_installed_wheel_counts_in_an_empty_folder(fresh, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    where = [str(fresh / "bin" / "python"), "-c", "import cocos; print(cocos.__file__)"]
    done = subprocess.run(where, cwd=empty, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert Path(done.stdout.strip()).is_relative_to(fresh)
    count = [str(fresh / "bin" / "cocos"), "count", "example", "--quiet", "--out", "count.nc"]
    done = subprocess.run(count, cwd=empty, env=environment, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in empty.iterdir()] == ["count.nc"]


@pytest.mark.skipif(not COMPILER, reason="the wheel has a kernel where it is built with a C compiler, on Linux")
def test_the_wheel_needs_no_compiler(fresh, tmp_path):
    """Its kernel serves where there is no compiler, and counts as PyTorch does."""
    names = [level.name for level in build.processor_levels()]
    alone = os.environ | {"CC": str(tmp_path / "none"), "OMP_NUM_THREADS": "1"}
    alone.pop("PYTHONPATH", None)
    found = {}
    for asked in ("", "plain"):
        done = subprocess.run(
            [str(fresh / "bin" / "python"), "-c", COUNT], cwd=tmp_path, env=alone | {"COCOS_KERNEL": asked},
            capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        found[asked] = done.stdout.rsplit(maxsplit=1)
    assert {name: each[0] for name, each in found.items()} == {
        "": "compiled" if names else "torch",
        "plain": "torch",
    }
    assert len({each[1] for each in found.values()}) == 1
    assert not list(tmp_path.rglob("*.so"))
