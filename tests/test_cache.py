"""The kernel's cache: what is not this user's own, or not what the compiler wrote, is never loaded."""

import logging
import os
import shutil
import signal
import stat
import time
from pathlib import Path

import pytest
import torch

from cocos import Embeddings, measures
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


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can give a file away")
def test_a_library_of_somebody_else_is_never_loaded(build):
    build()
    os.chown(made(build.folder), 12345, 12345)
    assert build()[0] is not None and len(build.ran()) == 2
    assert made(build.folder).stat().st_uid == os.getuid()


def test_a_folder_that_is_a_link_is_not_used(build, tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    build.folder.symlink_to(tmp_path / "real")
    found, said = build()
    assert found is None and "is a link" in said[0] and not list((tmp_path / "real").iterdir())


def test_a_relative_folder_is_not_heeded(build, tmp_path, monkeypatch):
    """A folder that somebody else has filled must not become the cache by standing in it."""
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    assert build(XDG_CACHE_HOME=".", HOME=str(tmp_path / "home"))[0] is not None
    assert not build.folder.exists()
    assert made(tmp_path / "home" / ".cache" / "cocos").exists()
    found, said = build(HOME="home")
    assert found is None and "relative" in said[0]


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


def gone(process):
    """Whether a process has ended; one that nobody waits for is a zombie."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


HANGS = 'sleep 300 & echo $! > "{0}/child"; echo $$ > "{0}/parent"; sleep 300'


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
@pytest.mark.parametrize("interrupted", [False, True])
def test_a_compiler_that_hangs_ends_with_all_that_it_started(build, compiler, tmp_path, monkeypatch, interrupted):
    monkeypatch.setattr(_build, "COMPILER_SECONDS", 60 if interrupted else 1)
    environment = {"CC": compiler(HANGS.format(tmp_path))}
    if interrupted:
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 1)
        with pytest.raises(KeyboardInterrupt):
            build(**environment)
        signal.signal(signal.SIGALRM, before)
        assert not list(build.folder.iterdir())
    else:
        found, said = build(**environment)
        assert found is None and "did not end within 1 s" in said[0]
        assert build() == (None, [])
    assert all(gone((tmp_path / name).read_text().strip()) for name in ("child", "parent"))


def test_what_a_killed_build_left_is_swept_up(build):
    (build.folder / "build-old").mkdir(parents=True)
    (build.folder / "build-old" / "kernel.so").write_text("half")
    (build.folder / "build-now").mkdir()
    build.folder.chmod(0o700)
    os.utime(build.folder / "build-old", (0, 0))
    build()
    assert sorted(path.name for path in build.folder.iterdir())[0] == "build-now"
    assert not (build.folder / "build-old").exists()


def test_a_count_says_why_it_is_slow(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    embeddings = Embeddings(*torch.randn(2, 40, 8, generator=generator))
    assert "slowly" not in str(measures.count(embeddings, "triplet", batch_size=20).attrs)
    monkeypatch.setattr(_build, "_open_library", lambda: (None, "cc failed with exit code 3: no space left"))
    data = measures.count(embeddings, "triplet", batch_size=20)
    assert "several times as slowly: cc failed with exit code 3: no space left" in str(data.attrs)
