"""The embeddings cache: rows are encoded once, never stale, and never in the way."""

import errno
import json
import os
import stat
import struct
import threading

import pytest
import torch

from cocos.base import cache, writing
from cocos.base.errors import InputError

ABOUT = {"checkpoint": "a" * 64, "data": "b" * 64, "split": "train", "device": "cpu"}
SIZES = (3, 3, 2)
ROWS = torch.arange(16.0).reshape(8, 2)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("COCOS_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


class Encoder:
    """Notes which chunks it encodes; raises at one of them."""

    def __init__(self, stop=None, error=KeyboardInterrupt):
        self.asked, self.stop, self.error = [], stop, error

    def __call__(self, chunk):
        if chunk == self.stop:
            raise self.error
        self.asked.append(chunk)
        start = sum(SIZES[:chunk])
        return ROWS[start : start + SIZES[chunk]]


def encoded(about=ABOUT, encoder=None, **options):
    """Rows, and the chunks that were encoded for them."""
    encoder = encoder or Encoder()
    rows = cache.embeddings(about, len(ROWS), lambda: cache.Work(SIZES, encoder), **options)
    assert torch.equal(rows, ROWS)
    return encoder.asked


def files():
    """Names of the files of the cache."""
    folder = cache.folder()
    return [path.name for path in folder.iterdir()] if folder and folder.is_dir() else []


def test_rows_are_encoded_once():
    told = []
    assert encoded(progress=lambda *each: told.append(each)) == [0, 1, 2]
    assert told == [(3, 8), (6, 8), (8, 8)]
    assert encoded() == []
    assert len(files()) == 1


def test_a_kept_file_is_safetensors(folder):
    from safetensors.torch import load_file

    encoded()
    (path,) = folder.iterdir()
    assert torch.equal(load_file(path)["rows"], ROWS)


@pytest.mark.parametrize("name", ABOUT)
def test_another_input_is_encoded_anew(name):
    encoded()
    assert encoded(ABOUT | {name: "other"}) == [0, 1, 2] and len(files()) == 2


def test_other_code_is_encoded_anew(monkeypatch):
    encoded()
    monkeypatch.setattr(cache, "_identity_of_code", lambda: {"code": "other"})
    assert encoded() == [0, 1, 2]


def test_the_code_is_that_of_the_encoders(monkeypatch, tmp_path):
    before = cache._identity_of_code.__wrapped__()
    assert "torch " in before["versions"] and before == cache._identity_of_code()
    assert (cache.ENCODING_ROOM / "encoders" / "sentence.py").is_file()
    (tmp_path / "encoders").mkdir()
    (tmp_path / "encoders" / "mine.py").write_text("1")
    monkeypatch.setattr(cache, "ENCODING_ROOM", tmp_path)
    one = cache._identity_of_code.__wrapped__()
    (tmp_path / "encoders" / "mine.py").write_text("2")
    assert len({each["code"] for each in (before, one, cache._identity_of_code.__wrapped__())}) == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupted_run_leaves_nothing(error, folder):
    with pytest.raises(error):
        encoded(encoder=Encoder(stop=1, error=error))
    assert files() == []
    assert encoded() == [0, 1, 2]


def test_rows_are_kept_in_their_own_order():
    order = torch.tensor([7, 2, 1, 0, 3, 6, 5, 4])

    def work():
        encoder = Encoder()
        return cache.Work(SIZES, lambda chunk: encoder(chunk) * 0 + ROWS[order.split(SIZES)[chunk]], order)

    def begin():
        raise AssertionError("the encoder was built")

    assert torch.equal(cache.embeddings(ABOUT, len(ROWS), work), ROWS)
    assert torch.equal(cache.embeddings(ABOUT, len(ROWS), begin), ROWS)


def test_nothing_is_kept_without_a_key_or_where_it_is_off(folder, monkeypatch):
    encoded({})
    for word in ("off", "OFF", "0"):
        monkeypatch.setenv("COCOS_CACHE", word)
        assert cache.folder() is None and encoded() == [0, 1, 2] and files() == []
    assert not folder.exists()


@pytest.mark.parametrize("damage", ["short", "flipped", "header", "empty", "huge", "other", "text"])
def test_a_damaged_file_is_a_note_and_is_encoded_anew(damage, folder, caplog):
    encoded()
    (path,) = folder.iterdir()
    content = path.read_bytes()
    changed = {
        "short": content[:-4],
        "flipped": content[:-1] + bytes([content[-1] ^ 1]),
        "header": content[:9] + b"\0" + content[10:],
        "empty": b"",
        "huge": b"\xff" * 8 + content[8:],
        "other": content.replace(b"a" * 64, b"c" * 64),
        "text": content.replace(b'"F32"', b'"F16"'),
    }
    path.write_bytes(changed[damage])
    assert encoded() == [0, 1, 2] and path.name in caplog.text
    assert encoded() == []


def file_of(content, header):
    """A file of the cache with another header."""
    (length,) = struct.unpack("<Q", content[:8])
    made = json.dumps(header(json.loads(content[8 : 8 + length]))).encode() if callable(header) else header
    return struct.pack("<Q", len(made)) + made + content[8 + length :]


def shaped(*shape):
    """Another shape, with the offsets that belong to it."""

    def change(header):
        size = 4 * shape[0] * shape[1]
        return header | {"rows": header["rows"] | {"shape": list(shape), "data_offsets": [0, size]}}

    return change


HOSTILE = {
    "nested": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "fractions": shaped(8.0, 2),
    "negative": shaped(-8, -2),
    "true": lambda header: header | {"rows": header["rows"] | {"shape": [8, True]}},
    "no dictionary": b"[1, 2]",
    "metadata is text": lambda header: header | {"__metadata__": "some"},
    "nested about": lambda header: header | {"__metadata__": {"about": "[" * 100_000}},
    "other rows": shaped(4, 4),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_header_is_a_note_and_is_encoded_anew(name, folder, caplog):
    encoded()
    (path,) = folder.iterdir()
    path.write_bytes(file_of(path.read_bytes(), HOSTILE[name]))
    assert encoded() == [0, 1, 2] and path.name in caplog.text
    assert encoded() == []


def planted(folder):
    """Rows that somebody else wrote, under the right key and with the right hash."""
    rows, right = torch.full_like(ROWS, 7.0), cache._Kept(folder, ABOUT | cache._identity_of_code())
    right.keep(rows)
    (path,) = folder.iterdir()
    return path


@pytest.mark.skipif(os.name != "posix", reason="owners and modes are of POSIX")
@pytest.mark.parametrize("way", ["folder", "file", "symlink", "hardlink", "owner", "folder's owner", "folder's link"])
def test_rows_that_others_can_have_planted_are_never_served(way, folder, tmp_path, caplog):
    if "owner" in way and os.getuid() != 0:
        pytest.skip("only root can give a file away")
    path, elsewhere = planted(folder), tmp_path / "elsewhere"
    if way == "folder":
        folder.chmod(0o777)
    elif way == "file":
        path.chmod(0o620)
    elif way in {"symlink", "hardlink"}:
        path.rename(elsewhere)
        getattr(path, f"{way}_to")(elsewhere)
    elif way == "folder's link":
        folder.rename(elsewhere)
        folder.symlink_to(elsewhere)
    else:
        os.chown(path if way == "owner" else folder, 12345, 12345)
    assert encoded() == [0, 1, 2] and str(folder) in caplog.text
    assert encoded() == ([0, 1, 2] if "folder" in way else [])


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_the_cache_is_private(folder):
    before = os.umask(0)
    try:
        encoded()
    finally:
        os.umask(before)
    (path,) = folder.iterdir()
    assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, path)] == [0o700, 0o600]


def test_a_folder_of_the_name_of_a_file_is_left_alone(folder):
    encoded()
    (path,) = folder.iterdir()
    path.unlink()
    path.mkdir()
    assert encoded() == [0, 1, 2] and path.is_dir()


def test_a_folder_that_is_a_file_is_a_note(folder, caplog):
    folder.write_text("mine")
    assert encoded() == [0, 1, 2] and str(folder) in caplog.text
    assert folder.read_text() == "mine" and files() == []


def test_a_full_disk_is_one_note(folder, monkeypatch, caplog):
    def full(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writing, "replacing", full)
    assert encoded() == [0, 1, 2]
    assert [each.getMessage().count(str(folder)) for each in caplog.records] == [1]


def test_several_may_write_at_once():
    both = threading.Barrier(2, timeout=20)

    def encode(chunk):
        both.wait()
        return Encoder()(chunk)

    found = []
    threads = [threading.Thread(target=lambda: found.append(encoded(encoder=Noted(encode)))) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(20)
    assert found == [[0, 1, 2]] * 2 and len(files()) == 1 and encoded() == []


class Noted:
    """A function that notes its arguments."""

    def __init__(self, function):
        self.function, self.asked = function, []

    def __call__(self, chunk):
        self.asked.append(chunk)
        return self.function(chunk)


def test_the_folder_is_that_of_the_platform(monkeypatch, tmp_path):
    monkeypatch.setenv("COCOS_CACHE", " ")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "cocos" / "embeddings"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert cache.folder() == tmp_path / ".cache" / "cocos" / "embeddings"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache.folder() == tmp_path / "Library" / "Caches" / "cocos" / "embeddings"


def test_the_key_is_in_the_file(folder):
    encoded()
    (path,) = folder.iterdir()
    header = path.read_bytes()[8:]
    said = json.JSONDecoder().raw_decode(header.decode("latin1"))[0]["__metadata__"]
    assert cache._key(json.loads(said["about"])) == path.stem


def test_the_example_is_encoded_once(monkeypatch, tmp_path):
    """Neither a changed split nor a changed byte of the file meets the rows of another."""
    import cocos

    source = cocos.checkpoints.EXAMPLE_FILE
    told = []
    first = cocos.open(source).embed("test", progress=lambda *each: told.append(each))
    assert told[-1] == (len(first.query) + len(first.candidate),) * 2
    told.clear()
    again = cocos.open(source).embed("test", progress=lambda *each: told.append(each))
    assert not told and torch.equal(first.query, again.query) and torch.equal(first.candidate, again.candidate)
    assert again.names[1] == first.names[1]
    content = torch.load(source, weights_only=True)
    next(iter(content["state"].values())).flatten()[0] += 1
    torch.save(content, tmp_path / "other.pt")
    cocos.open(tmp_path / "other.pt").embed("test", progress=lambda *each: told.append(each))
    assert told and len(files()) == 2


def test_vectors_of_two_widths_are_refused():
    work = cache.Work((1, 1), lambda chunk: torch.zeros(1, chunk + 1))
    with pytest.raises(InputError, match="1 and 2"):
        cache.embeddings({}, 2, lambda: work)
