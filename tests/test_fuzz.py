"""A few hundred hostile files; and the guard that counts what they do, made to count each kind of fault."""

import ctypes
import gc
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from cocos.base.errors import InputError, UnsafeFile
from fuzz import __main__ as command
from fuzz import bombs, formats, guard, planted

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks, and limits of Linux"),
    pytest.mark.filterwarnings("ignore"),  # odd tensors are announced by torch
]
SMALL = guard.Limits(cpu=0.5, memory=100_000_000, wall=60.0)


def fails(error):
    raise error


def forever():
    while True:
        pass


# What a reader that goes wrong might do, and how it must be counted.
READERS = {
    "opens": (lambda: "opened", "opened"),
    "refuses": (lambda: fails(InputError("a sentence")), "refused"),
    "refuses as unsafe": (lambda: fails(UnsafeFile("a sentence")), "unsafe"),
    "starts a shell": (lambda: os.system("true") and "opened", "execution"),
    "starts a process": (lambda: subprocess.run(["true"], check=False, timeout=60) and "opened", "execution"),
    "runs code and hides it": (lambda: exec("1") or fails(InputError("a sentence")), "execution"),
    "imports a module": (lambda: __import__("this") and "opened", "execution"),
    "writes a file": (lambda: Path("canary").write_bytes(b"x") and "opened", "execution"),
    "loads a library": (lambda: ctypes.CDLL("libc.so.6") and "opened", "execution"),
    "raises": (lambda: fails(KeyError("x")), "traceback"),
    "never ends": (forever, "hang"),
    "takes memory": (lambda: len(bytearray(200_000_000)) and "opened", "greedy"),
    "takes more memory than there is": (lambda: len(bytearray(2**40)) and "opened", "greedy"),
    "dies of a signal": (lambda: os.kill(os.getpid(), 9), "crash"),
    "leaves": (lambda: os._exit(7), "crash"),
}


def test_the_guard_counts_every_kind_of_fault():
    """And goes on after each."""
    names = list(READERS)
    found = guard.watch(
        [(name, 0) for name in names],
        lambda name, number, folder: name,
        lambda name, turn: READERS[name][0](),
        limits=SMALL,
    )
    assert {seen.name: seen.ended for seen in found} == {name: ended for name, (_, ended) in READERS.items()}
    assert [seen.name for seen in found] == names
    table = command.lines(found)
    assert table[-1].split()[:8] == ["all", "15", "15", "1", "1", "1", "0", "6"]
    assert {fault: sum(seen.ended == fault for seen in found) for fault in guard.FAULTS} == {
        "execution": 6,
        "traceback": 1,
        "hang": 1,
        "crash": 2,
        "greedy": 2,
    }


def test_garbage_of_the_parent_does_not_hide_what_an_opening_takes():
    def opening(name, turn):
        gc.collect()
        return len(bytearray(200_000_000)) and "opened"

    cycle = [b"\1" * 150_000_000]
    cycle.append(cycle)
    gc.disable()
    try:
        del cycle
        (seen,) = guard.watch([("", 0)], lambda name, number, folder: name, opening, limits=SMALL)
    finally:
        gc.enable()
    assert seen.ended == "greedy"


def test_an_earlier_peak_does_not_hide_what_an_opening_takes():
    def make(name, number, folder):
        return len(bytearray(300_000_000))

    (seen,) = guard.watch([("", 0)], make, lambda made, turn: READERS["takes memory"][0](), limits=SMALL)
    assert seen.ended == "greedy"


def test_memory_that_the_parent_freed_does_not_hide_what_an_opening_takes():
    blocks = [b"\1" * 100_000 for _ in range(4_000)]  # below the size from which each block is mapped by itself
    last = blocks.pop()  # keeps the freed memory before it from being given back
    del blocks
    (seen,) = guard.watch(
        [("", 0)], lambda name, number, folder: name, lambda made, turn: READERS["takes memory"][0](), limits=SMALL
    )
    assert seen.ended == "greedy"
    assert last


@pytest.mark.parametrize("name", formats.FORMATS)
def test_a_file_is_made_of_its_seed_format_and_number(tmp_path, name):
    for number in range(6):
        made = []
        for _ in range(2):
            inner = tmp_path / str(number)  # links in a file name it
            shutil.rmtree(inner, ignore_errors=True)
            inner.mkdir()
            formats.make(name, number, 7, inner)
            made.append({p.name: p.read_bytes() for p in inner.rglob("*") if p.is_file() and p.stat().st_size < 10**7})
        assert made[0] == made[1]


@pytest.mark.slow
def test_whole_files_of_every_kind_open_and_a_few_hundred_hostile_ones_end_in_a_sentence(monkeypatch):
    """`python -m fuzz` opens 50,000; here are some of each format. The whole ones are opened first, in this process."""
    said, opening = [], command.opening
    monkeypatch.setattr(command, "opening", lambda case, turn: (said.append(opening(case, turn)), said[-1])[1])
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    with warnings.catch_warnings():
        found = command.run(list(formats.FORMATS), 330, seed=11)
    torch.random.set_rng_state(state)
    torch.set_num_threads(threads)
    assert set(said) == {"opened"} and len(said) >= command.TURNS * len(formats.FORMATS)
    assert {seen.name for seen in found} == set(formats.FORMATS) and len(found) >= 330
    assert [(seen.name, seen.number, seen.ended, seen.said) for seen in found if seen.ended in guard.FAULTS] == []
    assert {"opened", "refused", "unsafe"} <= {seen.ended for seen in found}


def test_pickles_are_planted_at_every_protocol_in_every_way_and_container():
    import random

    drawn = [planted.pickled(random.Random(i), i % 6) for i in range(600)]
    assert {p[1] for p in drawn if p[:1] == b"\x80"} == {2, 3, 4, 5} and any(p[:1] != b"\x80" for p in drawn)
    assert {planted.planted(random.Random(i))[0] for i in range(200)} == set(planted.CONTAINERS)
    assert len(planted.TARGETS) * len(planted.WAYS) * len(planted.CONTAINERS) > 4000
    assert "captions" in bombs.BOMBS and len(bombs.BOMBS) == 15
