"""`python -m fuzz [--openings N] [--seed N] [--format NAME ...] [--only NAME:NUMBER]`: exit 1 if a fault is found."""

import argparse
import importlib
import io
import math
import os
import pkgutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from unittest import mock

import torch
import typer

import cocos
from cocos import checkpoints
from cocos.base.errors import InputError, UnsafeFile
from cocos.checkpoints import data, transformers
from cocos.commands._program import find
from cocos.commands.inspect import inspect
from fuzz import caches, formats, results
from fuzz.guard import FAULTS, Limits, Seen, watch

__all__ = ["lines", "main", "opening", "run", "warm"]

# Nothing is kept between openings, and no library starts threads that a forked process would lack.
SURROUNDINGS = {"COCOS_CACHE": "off", "TOKENIZERS_PARALLELISM": "false", "ARROW_DEFAULT_MEMORY_POOL": "system"}
LONGEST = 3000  # characters of a sentence, most of them paths
SPLITS, ROWS = 3, 8  # that are loaded of training data, and looked at
TURNS = 2  # openings of each file: as `cocos inspect` does it, and with its embeddings


def opening(case: formats.Case, turn: int) -> str:
    """Open a file as the command line does.

    Args:
        case: the file.
        turn: 0 says what it is, as a table or as JSON; 1 embeds. A result is opened, and read by a command.

    Raises:
        InputError: what the file is, in a sentence; or UnsafeFile.
        RuntimeError: `cocos inspect` says something else than one sentence.
    """
    if case.command:
        return _read(case) if turn else _held(case.path)
    if case.cached:
        return caches.opened(case.path)
    if turn and case.training:
        return _loaded(data.find(case.path))
    if turn:
        checkpoints.open(case.path, data=case.data, names=case.names).embed(device="cpu")
        return "opened"
    return _said(
        lambda: inspect.run(file=case.path, data=case.data, hashes=not _odd(case.path), as_json=_odd(case.path))
    )


def _held(path: Path) -> str:
    """Open a result.

    Raises:
        RuntimeError: it holds bytes of another file.
    """
    found = cocos.results.open(path)
    for name, each in found.variables.items():
        if results.SECRET in each.values.tobytes():
            raise RuntimeError(f"{name} holds another file")
    return "opened"


def _read(case: formats.Case) -> str:
    """Read a result by a command."""
    given = results.COMMANDS[case.command]
    if case.command == "run":
        given = {"run": [case.path]}
    elif case.command == "diff":
        given = {"first": case.path, "second": case.data}
    else:
        files = [case.path, case.data]
        given = given | {"files": files if case.command == "correlate" else list(map(str, files))}
    command = find(case.command)
    usual = {name: default for name, (_, default) in command.options.items()}
    return _said(lambda: command.run(**usual | given | {"as_json": _odd(case.path)}))


def _said(run: Callable[[], None]) -> str:
    """Run a command.

    Raises:
        InputError: its sentence; or UnsafeFile.
        RuntimeError: it says something else than one sentence.
    """
    said, told = io.StringIO(), io.StringIO()
    try:
        with redirect_stderr(said), redirect_stdout(told):
            run()
        code = 0
    except typer.Exit as done:
        code = done.exit_code
    text, printed = said.getvalue().removesuffix("\n"), told.getvalue()
    if not all(each.isprintable() or each == "\n" for each in text + printed) or len(text) > LONGEST:
        raise RuntimeError(f"not fit for a terminal: {text[:200]!r} {printed[:200]!r}")
    if not code:
        return "opened"
    if "\n" in text or printed or code not in {2, 3}:
        raise RuntimeError(f"exit code {code} with other than one sentence: {text[:500]!r} {printed[:200]!r}")
    raise (UnsafeFile if code == 3 else InputError)(text)


def _odd(path: Path) -> bool:
    """Whether the size of a file, or the number of files of a folder, is odd."""
    try:
        return (len(os.listdir(path)) if path.is_dir() else path.stat().st_size) % 2 == 1
    except OSError:
        return False


def _loaded(source: data.Source) -> str:
    """Load splits of training data as far as they are encoded: rows, names, pictures, identity."""
    for split in source.splits[:SPLITS] or ("train",):
        found = source.load(split)
        _ = found.identity, found.names()
        for side in found.sides:
            for start in range(0, min(len(side), ROWS), 2):
                list(side.items[start : start + 2])
    return "opened"


def warm(folder: Path) -> None:
    """Open whole files of every kind: all must open; and what is loaded late is loaded before any process is forked."""
    for found in pkgutil.walk_packages(cocos.__path__, "cocos."):
        if not found.name.endswith("__main__"):
            with suppress(ModuleNotFoundError):  # a trainer is not installed
                importlib.import_module(found.name)
    for name in ("torch._subclasses.schema_check_mode", "timm"):
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = None  # each opening would run the part of it that can be imported
    for name in transformers.TEXT_MODELS | transformers.PAIRED_MODELS:
        with suppress(InputError, ImportError):
            transformers.imported(name)
    for case in formats.whole(folder):
        for turn in range(TURNS):
            opening(case, turn)


@mock.patch.dict(os.environ, SURROUNDINGS)
def run(names: list[str], openings: int, seed: int, note=lambda seen: None) -> list[Seen]:
    """Open files of some formats, each as often as its share says."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    silent = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(silent), redirect_stderr(silent):
        warm(Path(folder))
    unit = openings / (TURNS * sum(formats.SHARES[name] for name in names))
    cases = [(name, number) for name in names for number in range(math.ceil(unit * formats.SHARES[name]))]
    return watch(
        cases, lambda name, number, inner: formats.make(name, number, seed, inner), opening, turns=TURNS, note=note
    )


def lines(found: list[Seen]) -> list[str]:
    """A table: a row for each format, and the sum."""
    heads = ("files", "openings", "opened", "refused", "exit 3", "by the net", *(f"{fault}s" for fault in FAULTS[:2]))
    heads = (*heads, "hangs", "crashes", "greedy", "CPU ms", "most CPU s", "most MB")
    table = [("format", *heads)]
    for name in [*dict.fromkeys(seen.name for seen in found), "all"]:
        mine = [seen for seen in found if name in {seen.name, "all"}]
        ended = Counter(seen.ended for seen in mine)
        counts = [len({(seen.name, seen.number) for seen in mine}), len(mine), ended["opened"], ended["refused"]]
        counts += [ended["unsafe"], sum(seen.caught for seen in mine), *(ended[fault] for fault in FAULTS)]
        cpu, most = [seen.cpu for seen in mine], max(seen.memory for seen in mine) / 1e6
        ends = f"{1000 * sum(cpu) / len(cpu):.1f}", f"{max(cpu):.1f}", f"{most:.0f}"
        table.append((name, *(f"{count:,}" for count in counts), *ends))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(cell.rjust(w) if i else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
        for row in table
    ]


@mock.patch.dict(os.environ, SURROUNDINGS)
def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for and print the table."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--openings", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", action="append", choices=list(formats.FORMATS), help="repeatable; all if left out")
    parser.add_argument("--only", metavar="NAME:NUMBER", help="one file again; it is kept in fuzz-file")
    given = parser.parse_args(arguments)
    if given.only:
        name, _, number = given.only.rpartition(":")
        Path("fuzz-file").mkdir(exist_ok=True)
        warnings.simplefilter("ignore")
        case = formats.make(name, int(number), given.seed, Path("fuzz-file"))
        for turn in range(TURNS):
            print(turn, opening(case, turn))
        return 0
    begun, faults = time.monotonic(), []
    done = Counter()

    def note(seen: Seen) -> None:
        done["openings"] += 1
        if seen.ended in FAULTS:
            faults.append(seen)
            print(f"{seen.ended}: {seen.name}:{seen.number}, turn {seen.turn}: {seen.said[-1200:]}", flush=True)
        if done["openings"] % 5000 == 0:
            print(f"{done['openings']:,} openings, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)

    found = run(given.format or list(formats.FORMATS), given.openings, given.seed, note)
    print("\n".join(lines(found)))
    print(f"seed {given.seed}, {time.monotonic() - begun:.0f} s; limits of an opening: {Limits()}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
