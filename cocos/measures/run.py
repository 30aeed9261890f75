"""How do counts, recall and geometry change over the checkpoints of a training run, and does a detector fire?"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np
import xarray as xr

from cocos import checkpoints as files
from cocos import data as training_data
from cocos import losses, results
from cocos.base import docstrings
from cocos.base.errors import InputError, NotFinite
from cocos.base.ranges import Share, checked
from cocos.checkpoints import Checkpoint
from cocos.checkpoints import runs as training_runs
from cocos.counting import averages, findings
from cocos.counting.findings import Finding
from cocos.counting.statistics import BATCH_NUMBERS, BY_NAME
from cocos.embeddings import Embeddings, similarities, sources
from cocos.embeddings.options import DEFAULTS, Progress, Sampling, fill_options
from cocos.embeddings.sampling import Batch, select
from cocos.embeddings.scores import Pairs
from cocos.measures.count import count
from cocos.measures.dtp import dtp
from cocos.measures.evaluate import EVALUATED_SPLITS, among_samples, ranked
from cocos.measures.shared import executors, retrieval
from cocos.measures.shared.executors import SourceFile
from cocos.measures.shared.prepared import Run, embedded, loss_for, prepare
from cocos.monitor import detectors as shelf
from cocos.monitor import readings, records

TITLE = "Run over its checkpoints"
# Variables without the dimension of checkpoints, unless their rows differ.
SHARED_BY_CHECKPOINTS = ("query_index", "query_group")
# Detectors that fire with `collapse` and have no cure of their own then.
BY_COLLAPSE = ("whole_batch", "stuck")
# Files that a note names.
MOST_NAMES = 5
# Attributes of a count that hold for the whole run.
KEPT_ATTRS = (
    *("cocos", "torch", "loss", "gradient", "metric", "unit", "share", "eps"),
    *(
        "batch_size",
        "sample",
        "copies",
        "same_group",
        "seed",
        "dtype",
        "device",
        "split",
        "convention",
        "checkpoint_dims",
    ),
)
# Training batches of which the numbers of a record are read; the counts are of all batches.
READ_BATCHES = 8
# Rows of a batch of which the numbers of a record are read; of a larger batch, as many are drawn.
READ_ROWS = 1024
# Ending of the metrics of samples among samples, where there are class proxies: no direction that is counted.
AMONG_SAMPLES = "_s2s"
# Long name and units of the variables that are neither of a record nor metrics of retrieval.
RUN_LABELS = {
    "best_rank": ("rank of the best positive", "rank"),
    "dtp": ("distance to the own proxy, mean over classes", "distance"),
    "dtp_low": ("distance to the own proxy, 5th percentile of the classes", "distance"),
    "dtp_high": ("distance to the own proxy, 95th percentile of the classes", "distance"),
    "width": ("width of the embeddings", "dimensions"),
    "rows": ("queries of the training set", "rows"),
    "evaluated": ("queries of the evaluated set", "rows"),
    "file": ("file or folder of the checkpoint",),
    "sha256": ("sha256 of its bytes",),
    "loss_repr": ("loss with its parameters",),
    "loss_parameters": ("parameters of the loss, JSON",),
    "remarks": ("notes on the checkpoint",),
    "findings": ("findings on its embeddings and batches, JSON",),
}


@checked
def run(
    checkpoints: Path | str | Sequence[Path | str | Checkpoint | Embeddings],
    loss: Any = None,
    eps: Share = 0.01,
    *,
    parameters: Mapping[str, Any] | None = None,
    steps: Sequence[int] | None = None,
    ks: Sequence[int] = (1, 5, 10),
    evaluated: Path | str | None = None,
    detectors: Sequence[shelf.Detector] | None = None,
    opener: Callable[[Path], Checkpoint] = files.open,
    executor: Executor | None = None,
    **sampling: Unpack[Sampling],
) -> xr.Dataset:
    """Count and evaluate every checkpoint of a training run, in the order of their steps, and let detectors look.

    One checkpoint is in memory at a time. One that cannot be read is left out and named in the notes. All are counted
    on the same batches, so that their queries can be compared one by one.

    Args:
        checkpoints: folder of the run, its files, or embeddings of each checkpoint. Or the store of a `cocos.Monitor`
            (.jsonl) or the result of a run (.nc), taken as they are.
        loss: a loss, or its name; None: the one that each checkpoint was trained with, or NT-Xent.
        eps: smallest share that contributes.
        parameters: of a loss that is given by its name.
        steps: of the checkpoints; None: the numbers in their names, or 0, 1, 2 and so on.
        ks: cut-offs of R@k.
        evaluated: split of the checkpoints' data that is evaluated; None: test, val, dev or train. Or a folder of files
            of embeddings, such as those of the test set, of which that of the same step is evaluated (one file, where
            there is one checkpoint); or data that every checkpoint encodes.
        detectors: those that are on, as `cocos.detectors.chosen` gives them; None: all.
        opener: opens a path; `cocos.open`, unless models need more than their own files.
        executor: measures one checkpoint a task on its workers, which open the paths themselves: any
            `concurrent.futures.Executor`, as for `cocos.measures.count`.
        **sampling: options of the batches, see `Sampling`.

    Returns:
        Over `checkpoint`, whose coordinate is the step: the numbers of `cocos.Monitor` under their names
        (`contributing`, `idle`, `effective` and others over direction; `alignment`, `uniformity`, `scale`, `value` and
        others), the metrics of `cocos.measures.evaluate`, `dtp` and the metrics of samples among samples (`R@1_s2s`)
        where there are class proxies, and `alarm`, the number of detectors that fire. Of every query,
        `contributing_per_query` and `effective_per_query` (direction, batch, query), whose rows are in `query_index`;
        and `best_rank` (direction, row) of every row that is evaluated. Of every checkpoint `file`, `sha256` and
        `loss_repr`. The attribute `alarms` has what detectors say, and `left_out` the checkpoints that could not be
        read, both as JSON.

    Raises:
        InputError: no checkpoint can be read.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> data = cocos.measures.run([embeddings, embeddings], steps=[10, 20], batch_size="all")
        >>> data["R@1"].sel(direction="q2c").values
        array([100., 100.])
    """
    sampling = fill_options("run", sampling, DEFAULTS | {"dtype": None})
    chosen = shelf.chosen() if detectors is None else tuple(detectors)
    if isinstance(checkpoints, Path | str) and records.is_store(checkpoints):
        return of_store(Path(checkpoints), chosen)
    if isinstance(checkpoints, Path | str) and Path(checkpoints).suffix == ".nc":
        return with_alarms(opened(Path(checkpoints)), chosen)
    if isinstance(loss, str):
        losses.load(loss, dict(parameters or {}))
    given, notes = _in_order(checkpoints, steps)
    progress, steps = sampling["progress"], tuple(step for step, *_ in given)
    _other_data(evaluated, steps)  # refuse them before the first checkpoint is opened
    options = sampling if executor is None else sampling | {"progress": None}
    measure = _CheckpointMeasure(
        loss, dict(parameters or {}), eps, retrieval.check(ks), evaluated, steps, options, opener
    )
    tasks = [
        (step, name, SourceFile.at(entry) if executor is not None and isinstance(entry, Path) else entry)
        for step, name, entry in given
    ]
    work = _RunSoFar(chosen, notes)
    report = progress and progress("measuring checkpoints")
    for (step, name, _), result in zip(given, executors.map_chunks(measure, tasks, executor, report), strict=True):
        if isinstance(result, InputError):
            finite = not isinstance(result, NotFinite)
            work.left_out.append({"file": name, "step": step, "reason": str(result), "finite": finite})
            work.errors.append(result)
        else:
            work.add(step, name, result)
    if work.parts:
        return work.joined()
    first, kinds = work.left_out[0]["reason"], {type(error) for error in work.errors}
    if len(work.left_out) > 1:
        alike = len({each["reason"].replace(each["file"], "") for each in work.left_out}) == 1
        which = "all for one reason" if alike else "the first because of"
        first = f"none of {len(work.left_out)} checkpoints can be measured, {which}: {first}"
    raise (kinds.pop() if len(kinds) == 1 else InputError)(first)


def _in_order(
    checkpoints: Any, steps: Sequence[int] | None
) -> tuple[list[tuple[int, str, Path | Checkpoint | Embeddings]], list[str]]:
    """Steps, names and checkpoints of a run, and notes on the steps."""
    given = [checkpoints] if isinstance(checkpoints, Path | str) else list(checkpoints)
    if not given:
        raise InputError("checkpoints: none, expected the folder of a run, its files, or embeddings")
    notes: list[str] = []
    if all(isinstance(each, Path | str) for each in given):
        run_steps, notes = find_checkpoints([Path(each) for each in given], steps is not None)
        at = list(run_steps.values())
        entries: list[tuple[str, Any]] = [(path.name, path) for path in run_steps]
    else:
        at = list(range(len(given)))
        entries = [(str(getattr(each, "path", k)), each) for k, each in enumerate(given)]
    at = at if steps is None else [int(step) for step in steps]
    if len(at) != len(entries):
        raise InputError(f"steps: {len(at)} of them, expected one for each of {len(entries)} checkpoints")
    if any(a >= b for a, b in zip(at, at[1:], strict=False)):
        raise InputError(f"steps: {', '.join(map(str, at))}; expected integers in ascending order, each once")
    return [(step, *entry) for step, entry in zip(at, entries, strict=True)], notes


def find_checkpoints(paths: Sequence[Path], steps_given: bool = False) -> tuple[dict[Path, int], list[str]]:
    """Return the checkpoints of one run with their steps, and notes on both.

    Args:
        paths: its folder, or its files.
        steps_given: whether the user gives the steps, so that the numbers in the names do not matter.
    """
    runs = training_runs.find_runs(paths)
    if len(runs) > 1:
        raise InputError(f"{len(runs)} runs: {', '.join(runs)}; name one")
    (run,) = runs.values()
    notes, names = [], [path.name for path, step in run.items() if step is None]
    if 0 < len(names) < len(run):
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        notes.append(f"left out, without a step in the name: {', '.join(names[:MOST_NAMES])}{more}")
        run = {path: step for path, step in run.items() if step is not None}
    steps = training_runs.common_steps([run])
    if steps is None and not steps_given:
        notes.append(training_runs.NO_ORDER)
    return dict(zip(run, steps or range(len(run)), strict=True)), notes


@dataclass
class _RunSoFar:
    """Checkpoints that were measured, and those that were left out."""

    detectors: Sequence[shelf.Detector]
    notes: Sequence[str]
    parts: list[tuple[int, xr.Dataset]] = field(default_factory=list)
    left_out: list[dict[str, Any]] = field(default_factory=list)
    errors: list[InputError] = field(default_factory=list)

    def add(self, step: int, name: str, data: xr.Dataset) -> None:
        """Keep a checkpoint."""
        if self.parts:
            (_, first) = self.parts[0]
            sides = [", ".join(map(str, each["direction"].values)) for each in (first, data)]
            if sides[0] != sides[1]:
                raise InputError(
                    f"{name}: its directions are {sides[1]}, and those of the checkpoints before {sides[0]}"
                )
            if first.attrs["loss"] != data.attrs["loss"]:
                raise InputError(
                    f"{name} was trained with {data.attrs['loss']}, and checkpoints before it with "
                    f"{first.attrs['loss']}; name the loss that is counted of all of them"
                )
        self.parts.append((step, data))

    def joined(self) -> xr.Dataset:
        """One Dataset of the checkpoints, with the alarms of the detectors."""
        parts = [data for _, data in self.parts]
        data = xr.concat(parts, "checkpoint", data_vars="all", coords="minimal", compat="override", join="outer",
                         combine_attrs="override")  # fmt: skip
        steps = [step for step, _ in self.parts]
        data = data.assign_coords(checkpoint=("checkpoint", steps, {"long_name": "training step", "units": "steps"}))
        for name in SHARED_BY_CHECKPOINTS:
            values = data[name]
            if bool((values == values[0]).where(values.notnull(), True).all()):
                data[name] = values.isel(checkpoint=0, drop=True)
        last, attrs = parts[-1], {name: text for name, text in parts[0].attrs.items() if name in KEPT_ATTRS}
        attrs |= {name: str(last[name].item()) for name in ("loss_repr", "loss_parameters")}
        found, remarks = [], []
        for each in parts:
            known = findings.stored({"findings": str(each["findings"].item())})
            # Positives of an untrained model score as chance has it; `collapse` says since when rows are alike.
            known_later = {"alike"} if each is last else {"mispaired", "alike"}
            early = [one.text for one in known if one.kind in known_later]
            lines = str(each["remarks"].item()).splitlines()
            remarks.append((str(each["file"].item()), [line for line in lines if line not in early]))
            found += [one for one in known if one not in found and one.text not in early]
        missing = [
            Finding(
                "left out" if each.get("finite", True) else "not finite",
                "look" if each.get("finite", True) else "stop",
                f"{each['file']}: left out, {each['reason']}",
            )
            for each in self.left_out
        ]
        attrs |= {
            "measure": "run",
            "title": TITLE,
            "left_out": json.dumps(self.left_out),
            "notes": "\n".join([
                *self.notes,
                *_inconsistencies(data),
                *(each.text for each in missing),
                *_shared_remarks(remarks),
            ]),
            "findings": findings.attributes([*missing, *found])["findings"],
            "checkpoint_path": "\n".join(map(str, data["file"].values)),
            "checkpoint_sha256": "\n".join(map(str, data["sha256"].values)),
        }
        data.attrs = attrs
        return with_alarms(data, self.detectors)


def _shared_remarks(remarks: Sequence[tuple[str, list[str]]]) -> list[str]:
    """Notes on the checkpoints, (file, its notes), once where all have the same."""
    number: dict[str, list[str]] = {}
    for file, lines in remarks:
        for note in dict.fromkeys(note.replace(file, "each checkpoint") if file else note for note in lines):
            number.setdefault(note, []).append(file)
    return [
        note if len(those) == len(remarks) else note.replace("each checkpoint", those[0])
        for note, those in number.items()
    ]


def _inconsistencies(data: xr.Dataset) -> Iterator[str]:
    """Yield notes where checkpoints differ in what a run has in common: they may be of several runs."""
    for name, what in (("width", "widths"), ("rows", "numbers of rows"), ("evaluated", "numbers of evaluated rows")):
        values = data[name].values
        if len(set(values.tolist())) > 1:
            at = int(np.flatnonzero(values != values[0])[0])
            where = f"{values[0]:g} at step {int(data['checkpoint'][0])} and {values[at]:g} at step"
            yield f"{what} differ, {where} {int(data['checkpoint'][at])}: are these checkpoints of one run?"


@dataclass(frozen=True)
class _CheckpointMeasure:
    """Measure of each checkpoint, by a worker of an executor or in turn."""

    loss: Any
    parameters: Mapping[str, Any]
    eps: float
    ks: tuple[int, ...]
    evaluated: Path | str | None
    steps: tuple[int, ...]
    sampling: Sampling
    opener: Callable[[Path], Checkpoint]

    @cached_property
    def other_data(self) -> training_data.Source | Mapping[int, Path] | None:
        """The data that are evaluated, if they are not a split of the checkpoint."""
        return _other_data(self.evaluated, self.steps)

    def __call__(self, task: tuple[int, str, Path | SourceFile | Checkpoint | Embeddings]) -> xr.Dataset | InputError:
        """Measure one checkpoint, given with its step and name; return the error if it cannot be read."""
        step, name, source = task
        progress = self.sampling["progress"]
        path = source.check() if isinstance(source, SourceFile) else source
        try:
            checkpoint = self.opener(path) if isinstance(path, Path) else path
            return self.measure(checkpoint, step, progress and (lambda work: progress(f"{name}: {work}")))
        except InputError as error:
            return error

    def measure(self, given: Embeddings | Checkpoint, step: int, say: Progress | None) -> xr.Dataset:
        """Measure one checkpoint."""
        sampling: Sampling = {**self.sampling, "progress": say}
        checkpoint = given if isinstance(given, Checkpoint) else None
        loss = loss_for(self.loss, given, self.parameters)
        embeddings = embedded(given, sampling["split"], sampling["device"], say)
        held_out = self._held_out(given, embeddings, step, say)
        data = _measured(embeddings, held_out, loss, self.eps, self.ks, sampling)
        if checkpoint is not None and checkpoint.dims is not None:
            data.attrs["checkpoint_dims"] = checkpoint.dims
        remarks = [*(checkpoint.notes if checkpoint else ()), *data.attrs.get("notes", "").splitlines()]
        texts = {
            "file": "" if checkpoint is None else str(checkpoint.path),
            "sha256": "" if checkpoint is None else checkpoint.sha256,
            "loss_repr": data.attrs["loss_repr"],
            "loss_parameters": data.attrs["loss_parameters"],
            "remarks": "\n".join(remarks),
            "findings": data.attrs["findings"],
        }
        return data.assign({name: ((), text, {"long_name": RUN_LABELS[name][0]}) for name, text in texts.items()})

    def _held_out(
        self, given: Embeddings | Checkpoint, counted: Embeddings, step: int, say: Progress | None
    ) -> Embeddings:
        """Embed what is evaluated: a split of the checkpoint's data, other data, or the other file of its step."""
        known = given.splits if isinstance(given, Checkpoint) else ()
        split, device = self.sampling["split"], self.sampling["device"]
        usual = next((name for name in EVALUATED_SPLITS if name in known), split)
        if self.other_data is None or self.evaluated in known:
            other = str(self.evaluated or usual)
            same = not isinstance(given, Checkpoint) or other == split
            return counted if same else embedded(given, other, device, say)
        if isinstance(self.other_data, training_data.Source):
            if not isinstance(given, Checkpoint) or given.encoder is None:
                raise InputError(f"evaluated {self.evaluated}: it is training data, and there is no encoder for them")
            source = replace(given, training=self.other_data, rows=None, embedder=None)
        elif step in self.other_data:
            source = files.open(self.other_data[step])
            source = source.truncate(given.dims) if isinstance(given, Checkpoint) and given.dims else source
        else:
            steps = ", ".join(map(str, self.other_data))
            raise InputError(f"evaluated {self.evaluated}: no checkpoint of step {step}; it has {steps}")
        other = next((name for name in EVALUATED_SPLITS if name in source.splits), "train")
        embeddings = embedded(source, other, device, say)
        if len(embeddings.directions) != len(counted.directions):
            sides = [", ".join(each.directions) for each in (embeddings, counted)]
            raise InputError(f"evaluated {self.evaluated}: its directions are {sides[0]}, and those counted {sides[1]}")
        return embeddings


def _other_data(evaluated: Path | str | None, steps: Sequence[int]) -> training_data.Source | Mapping[int, Path] | None:
    """Find what is evaluated beside the run: training data, or checkpoints by their steps; None of a split."""
    if evaluated is None or not (path := Path(evaluated)).exists():
        return None
    if training_data.sniff(path):
        return training_data.find(path)
    run, _ = find_checkpoints([path])
    return {(steps[0] if len(run) == len(steps) == 1 else step): checkpoint for checkpoint, step in run.items()}


def _measured(
    embeddings: Embeddings, held_out: Embeddings, loss: Any, eps: float, ks: tuple[int, ...], sampling: Sampling
) -> xr.Dataset:
    """The variables of `run` for one checkpoint, and the attributes of its count; `held_out` is evaluated."""
    counted = count(embeddings.marked(None), loss, eps, **sampling)  # a run has no place for marks
    given, size = sampling["batches"], sampling["batch_size"]  # fewer batches of a bounded size make the record
    large = (max(len(embeddings.query), len(embeddings.candidate)) if size == "all" else int(size)) > READ_ROWS
    number = given if given is None or isinstance(given, Integral) else list(given)[:READ_BATCHES]
    fewer = {"batch_size": READ_ROWS if large else size, "batches": number, "progress": None}
    run = prepare(embeddings, loss, eps=eps, visits=True, **cast(Sampling, sampling | fewer))
    record, names = _record(run), list(embeddings.directions)
    directions = _counts_by_direction(counted, record)
    made: dict[str, tuple] = {"direction": ("direction", names)}
    for name, label in records.DIRECTION_METRICS.items():
        if any(name in each for each in directions.values()):
            made[name] = ("direction", [directions[side].get(name, np.nan) for side in names], *label)
    made |= {name: ((), record[name], *label) for name, label in records.STEP_METRICS.items() if name in record}
    for name in ("contributing", "effective"):
        values = counted[BY_NAME[name].variable].values.astype(np.float32)
        made[f"{name}_per_query"] = (averages.QUERY_DIMS, values, *BY_NAME[name].about)
    for name in ("query_index", "query_group"):
        made[name] = (averages.QUERY_DIMS, counted[name].values, *averages.DRAWN_LABELS[name])
    made |= _of_ranks(held_out, loss.metric if loss.metric in similarities.METRICS else "cosine", ks)
    if embeddings.proxies:
        found = dtp({"run": [embeddings]})
        distances = {"dtp": found["average"], "dtp_low": found["low"], "dtp_high": found["high"]}
        made |= {name: ((), float(value.squeeze()), *RUN_LABELS[name]) for name, value in distances.items()}
    about = {"width": embeddings.query.shape[1], "rows": len(embeddings.query), "evaluated": len(held_out.query)}
    made |= {name: ((), size, *RUN_LABELS[name]) for name, size in about.items()}
    made["kind"] = ((), str(record.get("kind", "")))
    places = {"batch": "training batch", "query": "index in the batch", "row": "row of the embeddings"}
    sizes = dict(zip(places, (*counted["query_index"].shape[1:], made["best_rank"][1].shape[1]), strict=True))
    made |= {name: (name, range(size), places[name]) for name, size in sizes.items()}
    return results.labelled(made, counted.attrs)


def _record(run: Run) -> dict[str, Any]:
    """The record of a training batch, as `cocos.Monitor` has it: the mean over some of the largest batches."""

    def directions(batch: Batch) -> Iterator[tuple[str, Pairs]]:
        for name, side, second in run.sides:
            there = batch.flip() if second else batch
            part, own = select(side, there)
            pairs = next(run.pairs(part, own, whole=True))
            if side.negatives is not None and pairs.source is not None:  # the batch alone names no hard negatives
                known, source = sources.of_candidates(side, there, there.query_index), pairs.source.clone()
                source[:, : known.shape[1]] = known
                pairs = replace(pairs, source=source)
            yield name, pairs

    largest = max(batch.sizes for batch in run.plan.batches)
    some = [each for each in run.plan.batches if each.sizes == largest][:READ_BATCHES]
    return readings.of_batches(run.loss, (list(directions(each)) for each in some), run.eps or 0.0, run.seed)


def _counts_by_direction(counted: xr.Dataset, record: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Numbers of each direction: those of the count, over all batches, in place of a record's.

    What a batch has is the mean over the full batches. A loss of smaller batches than those counted is left out.
    """
    made, full = {}, averages.full_batches(counted)
    for name, own in record["directions"].items():
        one = counted.sel(direction=name)
        every = ~np.isnan(one["negatives"].values)
        some = one["effective_per_query"].values > 0 if "effective_per_query" in one else every
        over = averages.of_batches({str(key): each.values for key, each in one.items() if each.ndim == 2}, (0, 1))
        negative = one["weight_above_per_query"].values + one["weight_below_per_query"].values
        counts = {
            each.record: float(one[each.name].values[full].mean() if each.how == "sum" else over[each.name])
            for each in BATCH_NUMBERS.values()
            if each.record and each.name in over
        }
        made[name] = (
            own
            | counts
            | {
                "unpushed": float((every & ~some).sum(axis=1)[full].mean()),
                "weight_negative": float(averages.mean(negative, every, (0, 1))),
                "queries": float(one["queries"].values[full].mean()),
                "candidates": own["positives"] + float(np.nanmean(one["negatives"].values[full])),
            }
        )
        if counted.attrs["share"] == "unknown":
            made[name] = {key: value for key, value in made[name].items() if key not in records.BY_UNIT}
        if made[name]["candidates"] > own["candidates"]:
            record.pop("value", None)
    return made


def _of_ranks(embeddings: Embeddings, metric: str, ks: tuple[int, ...]) -> dict[str, tuple]:
    """Retrieval metrics, (direction,), and the rank of the best positive of each row, (direction, row)."""
    found = ranked(embeddings, metric)
    made = retrieval.variables(list(found), [ranks for _, ranks in found.values()], ks=ks)
    if (among := among_samples(embeddings)) is not None:
        ((_, own),) = ranked(among, metric).values()
        for name, value in retrieval.metrics(own, ks).items():
            long_name, units = retrieval.label(name)
            made[f"{name}{AMONG_SAMPLES}"] = ((), value, f"{long_name}, samples among samples", units)
    sides = zip((embeddings.query, embeddings.candidate), found.values(), strict=False)
    best = [retrieval.best_ranks(len(side), *asking).numpy() for side, asking in sides]
    whole = np.full((len(best), max(map(len, best))), np.nan, dtype=np.float32)
    for row, values in zip(whole, best, strict=True):
        row[: len(values)] = values
    return made | {"best_rank": (("direction", "row"), whole, *RUN_LABELS["best_rank"])}


def of_store(path: Path, detectors: Sequence[shelf.Detector]) -> xr.Dataset:
    """The records of a store, over `step`, with the alarms of some detectors.

    Raises:
        InputError: it cannot be read, or has no records.
    """
    history = records.read(path)
    if not history.records:
        raise InputError(f"{path} has no records yet: the training has not come to its first one")
    data = records.dataset(history)
    results.check_attributes(path, data.attrs)
    _complete(path, [], data)
    return with_alarms(data.assign_attrs(measure="run"), detectors, history.records)


def _complete(path: Path, needed: Sequence[str], data: xr.Dataset) -> xr.Dataset:
    """Refuse a Dataset without what every run has."""
    missing = [name for name in needed if name not in data.variables]
    missing += [name for name in ("cocos", "loss", "loss_parameters", "eps") if name not in data.attrs]
    if missing:
        raise InputError(f"{path} is no result of a run, or a damaged one (no {missing[0]}); write it again")
    return data


def with_alarms(
    data: xr.Dataset, detectors: Sequence[shelf.Detector], history: Sequence[Mapping[str, Any]] | None = None
) -> xr.Dataset:
    """The same Dataset with the alarms of some detectors.

    Args:
        data: of `run`, or of a store.
        detectors: that are on.
        history: records of the store; None: those of the checkpoints.
    """
    history = history_of(data) if history is None else history
    by_width, made, place = _by_width(history), tuple(detectors), axis(data)
    said = [asdict(each) | {"width": width} for width, own in by_width.items() for each in shelf.replay(own, made)]
    said.sort(key=lambda each: each["step"])
    data = data.assign_attrs(alarms=json.dumps(said), watching=json.dumps(shelf.watching(by_width.values(), made)))
    alarms = [finding.document() for finding in alarm_findings(data)]
    data = data.assign_attrs(alarm_findings=json.dumps(alarms))
    number = Counter(each["step"] for each in said)
    firing = np.array([number[step] for step in data[place].values.tolist()], dtype=np.float64)
    data = data.assign(alarm=(place, firing))
    data["alarm"].attrs.update(zip(("long_name", "units"), records.STEP_METRICS["alarm"], strict=True))
    return data


def opened(path: Path) -> xr.Dataset:
    """Read a Dataset of `run`.

    Raises:
        InputError: it cannot be read, or is of another measure.
    """
    data = results.open(path)
    if isinstance(data, dict) or data.attrs.get("measure") != "run":
        title = "several losses" if isinstance(data, dict) else data.attrs.get("title", "no result of cocos")
        raise InputError(f"{path}: {title}, expected a Dataset of cocos run")
    needed = ("direction", "contributing", "queries", "idle", "R@1", "loss_repr", "file", "sha256", "query_index")
    return _complete(path, needed, data)


def history_of(data: xr.Dataset) -> list[dict[str, Any]]:
    """Records of a run, one for each checkpoint, from its Dataset; numbers that are not known are left out.

    A checkpoint that was left out since it is not finite has a record of this alone.
    """
    found = [{"step": step, "source": "checkpoint", "finite": False} for step in not_finite(data)]
    for k, step in enumerate(data["checkpoint"].values):
        one = data.isel(checkpoint=k)
        record: dict[str, Any] = {"step": int(step), "source": "checkpoint", "finite": True}
        record |= {name: str(one[name].item()) for name in ("kind",) if name in one and str(one[name].item())}
        names = [name for name in records.STEP_METRICS if name != "alarm" and name in one]
        record |= _finite({name: float(one[name]) for name in names})
        record["directions"] = {
            side: _finite({name: float(each[name]) for name in records.DIRECTION_METRICS if name in each})
            for side, each in results.sides(one).items()
        }
        found.append(record)
    return sorted(found, key=lambda each: each["step"])


def not_finite(data: xr.Dataset) -> list[int]:
    """Steps of the checkpoints that were left out because they have NaN or infinity."""
    return [each["step"] for each in json.loads(data.attrs.get("left_out", "[]")) if not each.get("finite", True)]


def _finite(numbers: Mapping[str, float]) -> dict[str, float | int]:
    """Numbers that are finite; whole ones as integers."""
    finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
    return {name: int(value) if value == int(value) else value for name, value in finite.items()}


def _by_width(history: Sequence[Mapping[str, Any]]) -> dict[Any, list[Mapping[str, Any]]]:
    """The records of each width; one that is not finite has none, and goes to those before it."""
    by_width: dict[Any, list[Mapping[str, Any]]] = {}
    for record in history:
        by_width.setdefault(record.get("width", next(iter(by_width), None)), []).append(record)
    return by_width


def axis(data: xr.Dataset) -> str:
    """Name of the axis of steps: of checkpoints, or of the records of a store."""
    return "checkpoint" if "checkpoint" in data.dims else "step"


def widest(data: xr.Dataset) -> xr.Dataset:
    """The numbers of the largest width, where a store has several."""
    return data.sel(width=data["width"].max(), drop=True) if "width" in data.dims else data


def episodes(data: xr.Dataset) -> list[dict[str, Any]]:
    """The episodes of a Dataset in which detectors fired, in the order of their first steps.

    Returns:
        Entries as `cocos.detectors.episodes` has them, with `width`, `of` how many records, and `now`: whether it fires
        at the last one.
    """
    steps = sorted([*data[axis(data)].values.tolist(), *not_finite(data)])
    said: dict[Any, dict[Any, list[dict[str, Any]]]] = {}
    for each in json.loads(data.attrs.get("alarms", "[]")):
        said.setdefault(each.get("width"), {}).setdefault(each["step"], []).append(each)
    made = []
    for width, own in said.items():
        history = [{"step": step, "alarms": own.get(step, [])} for step in sorted({*steps, *own})]
        for entry in shelf.episodes(history):
            now = len(steps) > 0 and entry["last"] == steps[-1]
            made.append(entry | {"width": width, "now": now, "of": len(steps)})
    return sorted(made, key=lambda each: each["first"])


def alarm_findings(data: xr.Dataset) -> list[Finding]:
    """Return a finding for each episode in which a detector fired."""
    known, fired = set(shelf.names()), episodes(data)
    collapsed = any(each["kind"] == "collapse" for each in fired)
    unit = "checkpoints" if axis(data) == "checkpoint" else "records"
    found = []
    for each in fired:
        detector = type(shelf.load(each["kind"])) if each["kind"] in known else None
        width = f" (width {each['width']})" if each["width"] is not None and "width" in data.dims else ""
        when = f"at step {each['first']}" if each["times"] == 1 else f"from step {each['first']} to {each['last']}"
        over = "" if each["now"] else ", not at the last one"
        if collapsed and each["kind"] in BY_COLLAPSE:
            cure = "fix `collapse` first: no temperature separates rows that are alike"
        else:
            cure = docstrings.sections(detector)["Try"].rstrip(".") if detector else ""
        sentence = f"{each['sentence']}{width} [{each['times']} of {each['of']} {unit}, {when}{over}]"
        found.append(Finding(each["kind"], getattr(detector, "SEVERITY", "look"), sentence, cure))
    return found
