"""Table of a run: a line for each checkpoint or record, then what the detectors say, then what to type next."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from cocos import results
from cocos.counting import findings, shares
from cocos.counting.statistics import RunColumn
from cocos.measures.run import AMONG_SAMPLES, axis, episodes, widest
from cocos.monitor import detectors as shelf
from cocos.monitor import records
from cocos.reports.tables import Step, Table

# Recall of samples among samples, beside which that among class proxies is called accuracy.
RECALL_AMONG_SAMPLES = f"R@1{AMONG_SAMPLES}"
# Orders of the columns of a direction: means, sums, and recall, then values of a batch.
HOW = ("mean", "sum", "", "value")
# Columns of a direction by variable, and how each number is made.
SIDE_COLUMNS = {name: (each.how, each.run) for name, each in records.DIRECTION_NUMBERS.items() if each.run}
SIDE_COLUMNS |= {"R@1": ("", RunColumn("R@1", 1))}
SIDE_COLUMNS = dict(sorted(SIDE_COLUMNS.items(), key=lambda each: HOW.index(each[1][0])))
# Columns of a whole checkpoint.
COLUMNS = (
    ("value", "loss", 3),
    ("scale", "scale", 1),
    (RECALL_AMONG_SAMPLES, "R@1", 1),
    *(("alignment", "alignment", 3), ("uniformity", "uniformity", 2), ("dtp", "DTP", 3), ("alarm", "alarms", 0)),
)
# Largest number of rows of a run that are all shown; and rows of a longer one, beside those where a detector begins.
MOST_ROWS, SOME_ROWS = 24, 13
# Legends of columns, by their variables.
LEGENDS = {
    "alignment": "alignment: squared distance of positive pairs",
    "uniformity": "uniformity: the lower, the more spread out",
}


def table(data: xr.Dataset) -> Table:
    """Write a run: its numbers at every step, and the sentences of the detectors."""
    several, data = data, widest(data)
    rows, steps = _rows(several), data[axis(data)].values
    sides = results.sides(data)
    cells, columns = [[f"{int(steps[k])}" for k in rows]], ["step"]
    known = {name: name in data and not bool(data[name].isnull().all()) for name in SIDE_COLUMNS}
    by_push = [push for unit, push in records.BY_PUSH.items() if known[unit]]  # one of the two is shown

    def add(label: str, values: np.ndarray, digits: int) -> None:
        columns.append(label)
        some = (values[k] for k in rows)  # never -0; a dash where a value is not known
        cells.append([f"{round(float(v), digits) + 0:.{digits}f}" if np.isfinite(v) else "-" for v in some])

    legends = []
    for name, (how, column) in SIDE_COLUMNS.items():
        if known[name] and name not in by_push:
            heading = "accuracy" if name == "R@1" and RECALL_AMONG_SAMPLES in data else column.heading
            legends += [column.legend] if column.legend else []
            for side, one in sides.items():
                values = one[name] / one["queries"] if column.percent and how == "sum" else one[name]
                values = 100 * values.values if column.percent else values.values
                add(f"{heading} {side}" if len(sides) > 1 else heading, values, column.digits)
    for name, label, digits in COLUMNS:
        if name in data and _is_shown(data, name):
            legends += [LEGENDS[name]] if name in LEGENDS else []
            add(label, data[name].values, digits)
    head = (*_sentences(several), *_best(data), *_provenance(data, len(rows)))
    return Table(tuple(columns), tuple(zip(*cells, strict=True)), head, ("; ".join(legends),))


def _is_shown(data: xr.Dataset, name: str) -> bool:
    """Whether a quantity is known, and a scale changes: one that does not stands in the loss."""
    values = data[name].values
    known = values[np.isfinite(values)]
    return bool(len(known)) and (name != "scale" or bool((known != known[0]).any()))


def _rows(data: xr.Dataset) -> list[int]:
    """Places that are shown: all of a short run; of a long one some, and those where a detector begins to fire."""
    steps = data[axis(data)].values
    if len(steps) <= MOST_ROWS:
        return list(range(len(steps)))
    begins = {each["first"] for each in episodes(data)}
    some = {round(k * (len(steps) - 1) / (SOME_ROWS - 1)) for k in range(SOME_ROWS)}
    return sorted(some | {int(np.flatnonzero(steps == step)[0]) for step in begins if step in steps})


def _provenance(data: xr.Dataset, shown: int) -> Iterator[str]:
    """Yield the loss, the number of checkpoints and their batches."""
    attrs, what = data.attrs, {"checkpoint": "checkpoint", "step": "record"}[axis(data)]
    steps = data[axis(data)].values
    number = f"{len(steps)} {what}{'' if len(steps) == 1 else 's'}"
    span = f"step {int(steps[0])} to {int(steps[-1])}" if len(steps) > 1 else f"step {int(steps[0])}"
    some = "" if shown == len(steps) else f", {shown} of them shown (--json has all)"
    yield f"{number}, {span}{some}"
    fixed = what == "record" or len(set(data["loss_repr"].values.tolist())) == 1
    loss = attrs.get("loss_repr", attrs["loss"]) if fixed else attrs["loss"]
    yield f"loss {loss}, {shares.above(attrs)} (eps = {float(attrs['eps']):g})"
    if what == "checkpoint":
        batches = f"{data.sizes['batch']} batch{'' if data.sizes['batch'] == 1 else 'es'}"
        yield f"{batches} of {attrs['batch_size']} {attrs['sample']}, seed {attrs['seed']}, the same for all"
        yield f"column loss: value of {attrs['loss']} on these batches, whichever loss the training logged"


def _best(data: xr.Dataset) -> Iterator[str]:
    """Yield where recall is best, for each direction that was evaluated."""
    steps = data[axis(data)].values
    curves = {side: one["R@1"] for side, one in results.sides(data).items() if "R@1" in data}
    if RECALL_AMONG_SAMPLES in data:
        curves = {"s2s": data[RECALL_AMONG_SAMPLES]}
    for side, values in curves.items() if len(steps) > 1 else ():
        at, last = _highest(values.values), float(values[-1])
        best = f"R@1 {side}: best at step {int(steps[at])}, {float(values[at]):.1f} %"
        yield best + ("" if at == len(steps) - 1 else f"; at the last step {last:.1f} %")


def _highest(values: np.ndarray) -> int:
    """Place of the largest value; the last one of several."""
    return int(np.flatnonzero(values == np.nanmax(values))[-1])


def _sentences(data: xr.Dataset) -> Iterator[str]:
    """Yield the checkpoints that were left out, and the sentences of the detectors."""
    yield from (each.sentence for each in findings.of(data) if each.severity in {"stop", "look"})
    yield watched(data)


def watched(data: xr.Dataset) -> str:
    """Say how many detectors were watching a run, and that none fires where none does."""
    said = shelf.summary(json.loads(data.attrs.get("watching", "{}")))
    return said if episodes(data) else f"no detector fires: {said}"


def following(data: xr.Dataset, given: Sequence[Path], *, kept: bool = False) -> tuple[Step, ...]:
    """Commands to type next: draw the curves, and compare the best checkpoint, or the first one, with the last.

    Args:
        data: of a run.
        given: the paths that were given to `cocos run`, or the result that it wrote.
        kept: `given` is a store or a result, which needs no options.
    """
    steps = [Step("run", tuple(map(str, given)), {"out": "run.png"}, carry=not kept)]
    if "file" in data and data.sizes["checkpoint"] > 1:
        files = [str(file) for file in data["file"].values]
        among = data.get(RECALL_AMONG_SAMPLES)
        at = _highest((data["R@1"].mean("direction") if among is None else among).values)
        pair = files[0 if at == len(files) - 1 else at], files[-1]
        if all(pair):
            steps.append(Step("diff", pair, lead="      "))
    return tuple(steps)
