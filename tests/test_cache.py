"""The kernel's cache: what is not this user's own, or not what the compiler wrote, is never loaded."""

import logging
import os
import shutil
import stat
from pathlib import Path

import pytest

from cocos.engine.kernel import build as _build

pytestmark = pytest.mark.skipif(_build.library() is None, reason="there is no C compiler")


@pytest.fixture(scope="module")
def library():
    """The kernel as this machine has built it."""
    return _build._compiled()


@pytest.fixture
def compiler(tmp_path, library):
    """Write a compiler that does what some lines of shell say with $out; it notes that it ran."""

    def write(lines='cp "$library" "$out"'):
        script = tmp_path / "compiler"
        begin = f'#!/bin/sh\nlibrary={library}\necho "$*" >> {tmp_path}/ran\n'
        script.write_text(begin + 'while [ "$1" != -o ]; do shift; done\nout="$2"\n' + lines + "\n")
        script.chmod(0o700)
        return str(script)

    return write


@pytest.fixture
def build(monkeypatch, tmp_path, compiler, caplog):
    """Load in a folder of its own, as a new process would; gives the library and what was said."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", compiler())
    monkeypatch.delenv("COCOS_KERNEL", raising=False)

    def load(**environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "cocos"):
            found = _build._open_library.__wrapped__()[0]
        return found, [record.getMessage() for record in caplog.records]

    load.folder = tmp_path / "cocos"
    load.ran = lambda: (tmp_path / "ran").read_text().splitlines() if (tmp_path / "ran").exists() else []
    return load


def made(folder):
    (path,) = folder.glob("*.so")
    return path


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_library_is_built_once_and_only_its_owner_can_write_it(build):
    build.folder.mkdir(mode=0o755)
    build.folder.chmod(0o755)
    before = os.umask(0)
    try:
        assert build()[1] == []
    finally:
        os.umask(before)
    path = made(build.folder)
    assert (mode(build.folder), mode(path)) == (0o700, 0o500)
    assert list(build.folder.iterdir()) == [path]
    assert build()[0] is not None and len(build.ran()) == 1


@pytest.mark.parametrize(
    "damage", [lambda b: b[: len(b) // 2], lambda b: b[:4096], lambda b: b"", lambda b: b"x" + b[1:]]
)
def test_a_damaged_library_is_never_loaded_but_built_again(build, damage):
    """Loading half a library is SIGBUS, in this process and in every later one."""
    build()
    path = made(build.folder)
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(damage(whole))
    path.chmod(0o500)
    found, said = build()
    assert found is not None and said == [] and len(build.ran()) == 2
    assert made(build.folder).read_bytes() == whole


def test_a_library_that_others_can_write_is_never_loaded(build):
    build()
    for right in (0o520, 0o502, 0o777):
        made(build.folder).chmod(right)
        before = len(build.ran())
        assert build()[0] is not None
        assert len(build.ran()) == before + 1 and mode(made(build.folder)) == 0o500


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_link_is_never_loaded(build, tmp_path, link):
    build()
    path = made(build.folder)
    elsewhere = path.rename(tmp_path / "elsewhere.so")
    link(path, elsewhere)
    assert build()[0] is not None and len(build.ran()) == 2
    assert not path.is_symlink() and path.lstat().st_nlink == 1 and elsewhere.exists()


def test_a_compiler_may_have_arguments(build, compiler):
    found, said = build(CC=f"{compiler()} -m64 '-DNAME=a b'")
    assert found is not None and said == []
    assert build.ran()[0].startswith("-m64 -DNAME=a b -O3")


@pytest.mark.parametrize("name", ["kernel.h", "product.c"])
def test_another_text_is_another_library(build, tmp_path, monkeypatch, name):
    build()
    shutil.copytree(_build.KERNEL_FOLDER, tmp_path / "kernel")
    monkeypatch.setattr(_build, "KERNEL_FOLDER", tmp_path / "kernel")
    (tmp_path / "kernel" / name).write_text((_build.KERNEL_FOLDER / name).read_text() + "/* changed */\n")
    assert build()[0] is not None and len(list(build.folder.glob("*.so"))) == 2


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("echo first >&2; echo no space left >&2; exit 3", "failed with exit code 3: no space left"),
        ("kill -9 $$", "was ended by signal 9"),
        ("exit 0", "made no library"),
        ('echo text > "$out"', "failed with exit code 1"),
        ('head -c 20000 "$library" > "$out"', ""),
        ('cp /proc/self/exe "$out"', "failed with exit code 1"),
    ],
)
def test_a_build_that_fails_is_said_once_and_remembered(build, compiler, lines, reason):
    """Also of what ends well and makes half a library, or another one."""
    assert build(CC=compiler(lines))[0] is None
    (marker,) = build.folder.iterdir()
    assert marker.suffix == ".failed" and len(build.ran()) == 1
    assert build() == (None, []) and len(build.ran()) == 1
    assert reason in _build._open_library.__wrapped__()[1]  # the reason can still be shown
    marker.unlink()
    found, (said,) = build()
    assert (
        found is None
        and reason in said
        and said.startswith("note: there is no compiled kernel")
        and marker.name in said
    )
    (marker.parent.parent / "compiler").write_text("#!/bin/sh\n")  # another compiler is tried
    assert build()[1] != []
    assert build(CC=compiler())[0] is not None


@pytest.mark.parametrize("changed", ["/nonexistent", "'", "/dev/null"])
def test_no_compiler_is_a_note(build, changed):
    found, said = build(CC=changed)
    assert found is None and len(said) == 1
