"""The wheel holds what cocos needs, and runs from its file alone."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (found,) = folder.glob("cocos_metric-*.whl")
    return found


def test_every_file_of_the_package_is_in_the_wheel(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    files = [p for p in (ROOT / "cocos").rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    assert {p.suffix for p in files} <= BESIDE
    assert {p.relative_to(ROOT).as_posix() for p in files} == {name for name in held if name.startswith("cocos/")}
    assert any(name.endswith("/licenses/LICENSE") for name in held)
    licences = {p.name for p in (ROOT / "cocos" / "example" / "LICENSES").iterdir()}
    assert licences <= {Path(name).name for name in held if "/licenses/cocos/example/" in name}


def test_the_installed_wheel_counts_in_an_empty_folder(wheel, tmp_path):
    """In an environment with the dependencies of this one, but without its cocos."""
    fresh, empty = tmp_path / "fresh", tmp_path / "empty"
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
    empty.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    where = [str(fresh / "bin" / "python"), "-c", "import cocos; print(cocos.__file__)"]
    done = subprocess.run(where, cwd=empty, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert Path(done.stdout.strip()).is_relative_to(fresh)
    demo = [str(fresh / "bin" / "cocos"), "demo", "--quiet"]
    done = subprocess.run(demo, cwd=empty, env=environment, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (empty / "cocos-demo").iterdir()} == {"count.nc", "count.png"}
