"""How do counts, recall and geometry change over the checkpoints of a training run, and does a detector fire?"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import xarray as xr

from cocos import checkpoints as files
from cocos import losses, results
from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint, series
from cocos.counting import health
from cocos.embeddings import Embeddings
from cocos.engine import retrieval
from cocos.engine.sampling import Progress, Sampling, sampled
from cocos.measures import _history, _known, _one_checkpoint
from cocos.monitor import detectors as shelf
from cocos.results import records, summaries

TITLE = "Run over its checkpoints"
# Seconds of work after which the numbers so far are kept.
KEPT_SECONDS = 10.0
# Variables without the dimension of checkpoints, unless their rows differ.
SHARED_BY_CHECKPOINTS = ("query_index", "query_group")
# Files that a note names.
MOST_NAMES = 5
# Attributes of a count that hold for the whole run.
KEPT_ATTRS = (
    *("cocos", "torch", "loss", "gradient", "weights", "metric", "unit", "share", "loss_distribution", "eps"),
    *("batch_size", "sample", "copies", "same_group", "seed", "dtype", "device", "split", "convention"),
)


@sampled(dtype=None)
def run(
    checkpoints: Path | str | Sequence[Path | str | Checkpoint | Embeddings],
    loss: Any = None,
    eps: float = 0.01,
    *,
    parameters: Mapping[str, Any] | None = None,
    steps: Sequence[int] | None = None,
    ks: Sequence[int] = (1, 5, 10),
    evaluated: str | None = None,
    detectors: Sequence[shelf.Detector] | None = None,
    opener: Callable[[Path], Checkpoint] = files.open,
    known: xr.Dataset | None = None,
    keep: Callable[[xr.Dataset], object] | None = None,
    **sampling: Unpack[Sampling],
) -> xr.Dataset:
    """Count and evaluate every checkpoint of a training run, in the order of their steps, and let detectors look.

    One checkpoint is in memory at a time. One that cannot be read is left out and named in the notes. All are counted
    on the same batches, so that their queries can be compared one by one.

    Args:
        checkpoints: folder of the run, its files, or embeddings of each checkpoint. Or the store of a `cocos.Monitor`
            (.jsonl), whose records are taken as they are.
        loss: a loss, or its name; None: the one that each checkpoint was trained with, or NT-Xent.
        eps: smallest share that contributes.
        parameters: of a loss that is given by its name.
        steps: of the checkpoints; None: the numbers in their names, or 0, 1, 2 and so on.
        ks: cut-offs of R@k.
        evaluated: split of the checkpoints' data that is evaluated; None: test, val, dev or train.
        detectors: those that are on, as `cocos.detectors.chosen` gives them; None: all.
        opener: opens a path; `cocos.open`, unless models need more than their own files.
        known: a Dataset of an earlier call: checkpoints with the same bytes and options are taken from it.
        keep: called with the Dataset so far, at most every ten seconds, so that an interrupted run can be resumed.
        **sampling: options of the batches, see `cocos.sampling.Sampling`.

    Returns:
        Over `checkpoint`, whose coordinate is the step: the numbers of `cocos.Monitor` under their names
        (`contributing`, `idle`, `effective` and others over direction; `alignment`, `uniformity`, `scale`, `value` and
        others), the metrics of `cocos.measures.evaluate`, `dtp` where there are class proxies, and `alarm`, the number
        of detectors that fire. Of every query, `contributing_per_query` and `effective_per_query` (direction, batch,
        query), whose rows are in `query_index`; and `best_rank` (direction, row) of every row that is evaluated. Of
        every checkpoint `file`, `sha256` and `loss_repr`. The attribute `alarms` has what detectors say, and `left_out`
        the checkpoints that could not be read, both as JSON.

    Raises:
        InputError: no checkpoint can be read, or an option that cannot be used.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> data = cocos.measures.run([embeddings, embeddings], steps=[10, 20], batch_size="all")
        >>> data["R@1"].sel(direction="q2c").values
        array([100., 100.])
    """
    chosen = shelf.chosen() if detectors is None else tuple(detectors)
    if isinstance(checkpoints, Path | str) and records.is_store(checkpoints):
        return of_store(Path(checkpoints), chosen)
    if isinstance(loss, str):
        losses.load(loss, dict(parameters or {}))
    given, notes = _in_order(checkpoints, steps)
    asked = _one_checkpoint.EachCheckpoint(loss, dict(parameters or {}), eps, retrieval.check(ks), evaluated, sampling)
    kept, say = _known.Checkpoints(asked.options, known), sampling["progress"]
    report = say and say("measuring checkpoints")
    for done, (step, name, entry) in enumerate(given):
        try:
            opened = opener(entry) if isinstance(entry, Path) else entry
            data = kept.earlier(opened)
            fresh = data is None
            data = asked.of(opened, say and _named(say, name)) if data is None else data
        except InputError as error:
            kept.leave_out(step, name, error)
            continue
        kept.add(step, name, data)
        if keep and fresh and time.monotonic() - kept.since > KEPT_SECONDS:
            keep(_joined(kept.so_far, kept, chosen, notes))
            kept.since = time.monotonic()
        if report:
            report(done + 1, len(given))
    if not kept.parts:
        kinds = {type(error) for error in kept.errors}
        raise (kinds.pop() if len(kinds) == 1 else InputError)(_none_readable(kept.left_out))
    return _joined(kept.parts, kept, chosen, notes)


def _named(say: Progress, name: str) -> Progress:
    return lambda what: say(f"{name}: {what}")


def _none_readable(left_out: list[dict[str, Any]]) -> str:
    """Say why no checkpoint could be measured."""
    first = left_out[0]["reason"]
    if len(left_out) == 1:
        return first
    alike = len({each["reason"].replace(each["file"], "") for each in left_out}) == 1
    which = "all for one reason" if alike else "the first because of"
    return f"none of {len(left_out)} checkpoints can be measured, {which}: {first}"


def _in_order(
    checkpoints: Any, steps: Sequence[int] | None
) -> tuple[list[tuple[int, str, Path | Checkpoint | Embeddings]], list[str]]:
    """Steps, names and checkpoints of a run, and notes on the steps."""
    given = [checkpoints] if isinstance(checkpoints, Path | str) else list(checkpoints)
    if not given:
        raise InputError("checkpoints: none, expected the folder of a run, its files, or embeddings")
    notes: list[str] = []
    if all(isinstance(each, Path | str) for each in given):
        members, at, notes = found([Path(each) for each in given], steps is not None)
        entries: list[tuple[str, Any]] = [(each.name, each.path) for each in members]
    else:
        at = list(range(len(given)))
        entries = [(str(getattr(each, "path", k)), each) for k, each in enumerate(given)]
    at = at if steps is None else [int(step) for step in steps]
    if len(at) != len(entries):
        raise InputError(f"steps: {len(at)} of them, expected one for each of {len(entries)} checkpoints")
    if any(a >= b for a, b in zip(at, at[1:], strict=False)):
        raise InputError(f"steps: {', '.join(map(str, at))}; expected whole numbers in ascending order, each once")
    return [(step, *entry) for step, entry in zip(at, entries, strict=True)], notes


def found(paths: Sequence[Path], given: bool = False) -> tuple[list[series.Member], list[int], list[str]]:
    """Find the checkpoints of one run, their steps, and notes on both.

    Args:
        paths: its folder, or its files.
        given: the steps are given, so nothing is said of the numbers in the names.

    Raises:
        InputError: there are none, or several runs.
    """
    runs = series.files(paths)
    if len(runs) > 1:
        raise InputError(f"{len(runs)} runs: {', '.join(runs)}; name one, and compare two with cocos diff A B")
    ((name, members),) = runs.items()
    notes, numbered = [], [each for each in members if each.step is not None]
    if 0 < len(numbered) < len(members):
        names = [each.name for each in members if each.step is None]
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        notes.append(f"left out, without a step in the name: {', '.join(names[:MOST_NAMES])}{more}")
        members = sorted(numbered, key=lambda each: (each.step, series.natural(each.name)))
    at = series.steps({name: members})
    if at is None and not given:
        notes.append(series.unnumbered({name: members}))
    return members, list(range(len(members))) if at is None else at, notes


def _joined(
    entries: Sequence[tuple[int, xr.Dataset]],
    kept: _known.Checkpoints,
    chosen: Sequence[shelf.Detector],
    notes: Sequence[str],
) -> xr.Dataset:
    """One Dataset of checkpoints, (step, its numbers), with the alarms of the detectors."""
    parts = [data for _, data in entries]
    data = xr.concat(
        parts,
        "checkpoint",
        data_vars="all",
        coords="minimal",
        compat="override",
        join="outer",
        combine_attrs="override",
    )
    steps = [step for step, _ in entries]
    data = data.assign_coords(checkpoint=("checkpoint", steps, {"long_name": "training step", "units": "steps"}))
    for name in SHARED_BY_CHECKPOINTS:
        values = data[name]
        if bool((values == values[0]).where(values.notnull(), True).all()):
            data[name] = values.isel(checkpoint=0, drop=True)
    last, attrs = parts[-1], {name: text for name, text in parts[0].attrs.items() if name in KEPT_ATTRS}
    attrs |= {name: str(last[name].item()) for name in ("loss_repr", "loss_parameters")}
    remarks = [(str(each["file"].item()), str(each["remarks"].item()).splitlines()) for each in parts]
    early = [(file, [line for line in lines if not line.startswith(health.UNPAIRED)]) for file, lines in remarks[:-1]]
    own = _common([*early, remarks[-1]])  # positives of an untrained model score as chance has it
    attrs |= {
        "title": TITLE,
        "options": kept.options,
        "left_out": json.dumps(kept.left_out),
        "notes": "\n".join([*notes, *_unlike(data), *_missing(kept.left_out), *own]),
        "checkpoint_path": "\n".join(map(str, data["file"].values)),
        "checkpoint_sha256": "\n".join(map(str, data["sha256"].values)),
    }
    data.attrs = attrs
    return with_alarms(data, chosen)


def _common(remarks: Sequence[tuple[str, list[str]]]) -> list[str]:
    """Notes on the checkpoints, (file, its notes), once where all have the same."""
    number: dict[str, list[str]] = {}
    for file, lines in remarks:
        for line in dict.fromkeys(line.replace(file, "each checkpoint") if file else line for line in lines):
            number.setdefault(line, []).append(file)
    return [
        line if len(those) == len(remarks) else line.replace("each checkpoint", those[0])
        for line, those in number.items()
    ]


def _missing(left_out: list[dict[str, Any]]) -> Iterator[str]:
    for each in left_out:
        yield f"{each['file']} is left out: {each['reason']}"


def _unlike(data: xr.Dataset) -> Iterator[str]:
    """Yield notes where checkpoints differ in what a run has in common: they may be of several runs."""
    for name, what in (("width", "widths"), ("rows", "numbers of rows"), ("evaluated", "numbers of evaluated rows")):
        values = data[name].values
        if len(set(values.tolist())) > 1:
            at = int(np.flatnonzero(values != values[0])[0])
            where = f"{values[0]:g} at step {int(data['checkpoint'][0])} and {values[at]:g} at step"
            yield f"{what} differ, {where} {int(data['checkpoint'][at])}: are these checkpoints of one run?"


def of_store(path: Path, detectors: Sequence[shelf.Detector]) -> xr.Dataset:
    """The records of a store, over `step`, with the alarms of some detectors.

    Raises:
        InputError: it cannot be read, or has no records.
    """
    history = records.read(path)
    if not history.records:
        raise InputError(f"{path} has no records yet: the training has not come to its first one")
    data = results.sound(path, results.of_history(history))
    _run(path, data.attrs)
    return with_alarms(data, detectors, history.records)


def _run(path: Path, attrs: Mapping[str, Any]) -> None:
    """Refuse attributes without those that every run has."""
    if missing := [name for name in ("cocos", "loss", "loss_parameters", "eps") if name not in attrs]:
        raise InputError(f"{path} is no result of a run, or a damaged one (no {missing[0]}); write it again")


def with_alarms(
    data: xr.Dataset, detectors: Sequence[shelf.Detector], history: Sequence[Mapping[str, Any]] | None = None
) -> xr.Dataset:
    """The same Dataset with the alarms of some detectors.

    Args:
        data: of `run`, or of a store.
        detectors: that are on.
        history: records of the store; None: those of the checkpoints.
    """
    history = _history.of_checkpoints(data) if history is None else history
    said, watched = _history.every(history, detectors), shelf.watching(_history.by_width(history).values(), detectors)
    data = data.assign_attrs(alarms=json.dumps(said), watching=json.dumps(watched))
    axis = _history.axis(data)
    number = Counter(each["step"] for each in said)
    firing = np.array([number[step] for step in data[axis].values.tolist()], dtype=np.float64)
    data = data.assign(alarm=(axis, firing))
    data["alarm"].attrs.update(zip(("long_name", "units"), records.STEP_METRICS["alarm"], strict=True))
    return data


def opened(path: Path) -> xr.Dataset:
    """Read a Dataset of `run`.

    Raises:
        InputError: it cannot be read, or is of another measure.
    """
    data = results.open(path)
    if "checkpoint" not in data.dims or "options" not in data.attrs:
        title = data.attrs.get("title", "no result of cocos")
        raise InputError(f"{path}: {title}, expected a Dataset of cocos run")
    needed = ("direction", "contributing", "queries", "idle", "R@1", "loss_repr", "file", "sha256", "query_index")
    if missing := [name for name in needed if name not in data.variables]:
        raise InputError(f"{path} is no result of a run, or a damaged one (no {missing[0]}); write it again")
    _run(path, data.attrs)
    return data


def document(data: xr.Dataset) -> dict[str, Any]:
    """The JSON document of `cocos run --json`: numbers at every step, alarms by detector, checkpoints left out."""
    axis = "checkpoint" if "checkpoint" in data.dims else "step"
    curves = {
        str(name): each for name, each in data.data_vars.items()
        if each.dims in {(axis,), (axis, "direction")} and each.dtype.kind in "fiu"
    }  # fmt: skip
    sides = [str(name) for name in data["direction"].values]
    made = {"cocos": data.attrs["cocos"], "loss": results.about_loss(data.attrs), "eps": float(data.attrs["eps"])}
    made["steps"] = [int(step) for step in data[axis].values]
    if "file" in data:
        made["files"] = [str(name) for name in data["file"].values]
    made["values"] = {name: _list(each) for name, each in curves.items() if "direction" not in each.dims}
    made["directions"] = {
        side: {name: _list(each.sel(direction=side)) for name, each in curves.items() if "direction" in each.dims}
        for side in sides
    }
    made |= {"alarms": _history.episodes(data), "watching": json.loads(data.attrs.get("watching", "{}"))}
    return made | {"left_out": json.loads(data.attrs.get("left_out", "[]"))}


def _list(values: xr.DataArray) -> list:
    return [summaries.plain(value) for value in values.values]
