"""Table of a training run: a row for each checkpoint or record below the findings of the detectors."""

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

# Recall among samples; if a run has it, recall among class proxies is called accuracy.
RECALL_AMONG_SAMPLES = f"R@1{AMONG_SAMPLES}"
# Orders of the columns of a direction: means, sums, and recall, then values of a batch.
HOW = ("mean", "sum", "", "value")
# Columns of a direction by variable, with the kind of each number.
SIDE_COLUMNS = {name: (number.how, number.run) for name, number in records.DIRECTION_NUMBERS.items() if number.run}
SIDE_COLUMNS |= {"R@1": ("", RunColumn("R@1", 1))}
SIDE_COLUMNS = dict(sorted(SIDE_COLUMNS.items(), key=lambda item: HOW.index(item[1][0])))
# Columns of a whole checkpoint.
COLUMNS = {
    **{"value": RunColumn("loss", 3), "scale": RunColumn("scale", 1), RECALL_AMONG_SAMPLES: RunColumn("R@1", 1)},
    "alignment": RunColumn("alignment", 3, legend="alignment: squared distance of positive pairs"),
    "uniformity": RunColumn("uniformity", 2, legend="uniformity: the lower, the more spread out"),
    **{"dtp": RunColumn("DTP", 3), "alarm": RunColumn("alarms")},
}
# Largest number of rows of a run that are all shown; and rows of a longer one, besides those where a detector begins.
MOST_ROWS, SPACED_ROWS = 24, 13


def table(data: xr.Dataset) -> Table:
    """Return the numbers of a run at every step, and the sentences of the detectors."""
    head = [finding.sentence for finding in findings.of(data) if finding.severity in {"stop", "look"}]
    head.append(watched(data))
    data = widest(data)
    steps, sides = data[axis(data)].values, results.sides(data)
    rows = np.arange(len(steps))
    if len(steps) > MOST_ROWS:
        first = np.isin(steps, [episode["first"] for episode in episodes(data)])
        spaced = np.linspace(0, len(steps) - 1, SPACED_ROWS).round().astype(int)
        rows = np.union1d(spaced, np.flatnonzero(first))
    shown: list[tuple[str, RunColumn, np.ndarray]] = []
    recorded = {name: name in data and bool(data[name].notnull().any()) for name in SIDE_COLUMNS}
    by_push = [push for unit, push in records.BY_PUSH.items() if recorded[unit]]  # one of the two is shown
    for name, (how, column) in SIDE_COLUMNS.items():
        if not recorded[name] or name in by_push:
            continue
        heading = "accuracy" if name == "R@1" and RECALL_AMONG_SAMPLES in data else column.heading
        for side, single in sides.items():
            values = single[name] / single["queries"] if column.percent and how == "sum" else single[name]
            label = f"{heading} {side}" if len(sides) > 1 else heading
            shown.append((label, column, values.values * (100 if column.percent else 1)))
    for name, column in COLUMNS.items():
        values = data[name].values if name in data else np.array([])
        finite = values[np.isfinite(values)]
        if len(finite) and (name != "scale" or np.ptp(finite) > 0):  # the loss has a constant scale
            shown.append((column.heading, column, values))
    cells = [[f"{int(step)}" for step in steps[rows]]]
    for _, column, values in shown:  # never -0; a dash if a value is unknown
        rounded = (round(float(value), column.digits) + 0 for value in values[rows])
        cells.append([f"{value:.{column.digits}f}" if np.isfinite(value) else "-" for value in rounded])
    legend = "; ".join(dict.fromkeys(column.legend for _, column, _ in shown if column.legend))
    head += [*_best(data), *_provenance(data, len(rows))]
    columns = ("step", *(label for label, _, _ in shown))
    return Table(columns, tuple(zip(*cells, strict=True)), tuple(head), (legend,))


def _provenance(data: xr.Dataset, shown: int) -> Iterator[str]:
    """Yield the loss, the number of checkpoints and their batches."""
    attrs, steps = data.attrs, data[axis(data)].values
    noun = {"checkpoint": "checkpoint", "step": "record"}[axis(data)]
    span = f"step {int(steps[0])} to {int(steps[-1])}" if len(steps) > 1 else f"step {int(steps[0])}"
    part = "" if shown == len(steps) else f", {shown} of them shown (--json has all)"
    yield f"{len(steps)} {noun}{'' if len(steps) == 1 else 's'}, {span}{part}"
    fixed = noun == "record" or len(set(data["loss_repr"].values.tolist())) == 1
    loss = attrs.get("loss_repr", attrs["loss"]) if fixed else attrs["loss"]
    yield f"loss {loss}, {shares.above(attrs)} (eps = {float(attrs['eps']):g})"
    if noun == "checkpoint":
        batches = f"{data.sizes['batch']} batch{'' if data.sizes['batch'] == 1 else 'es'}"
        yield f"{batches} of {attrs['batch_size']} {attrs['sample']}, seed {attrs['seed']}, the same for all"
        yield f"column loss: value of {attrs['loss']} on these batches, whichever loss the training logged"


def _best(data: xr.Dataset) -> Iterator[str]:
    """Yield the step with the best recall, for each direction that was evaluated."""
    steps = data[axis(data)].values
    curves = {side: single["R@1"] for side, single in results.sides(data).items() if "R@1" in data}
    if RECALL_AMONG_SAMPLES in data:
        curves = {"s2s": data[RECALL_AMONG_SAMPLES]}
    for side, values in curves.items() if len(steps) > 1 else ():
        place = _highest(values.values)
        best = f"R@1 {side}: best at step {int(steps[place])}, {float(values[place]):.1f} %"
        yield best + ("" if place == len(steps) - 1 else f"; at the last step {float(values[-1]):.1f} %")


def _highest(values: np.ndarray) -> int:
    """Return the index of the largest value; the last one of several."""
    return int(np.flatnonzero(values == np.nanmax(values))[-1])


def watched(data: xr.Dataset) -> str:
    """Count the detectors that watched a run, and whether any fired."""
    summary = shelf.summary(json.loads(data.attrs.get("watching", "{}")))
    return summary if episodes(data) else f"no detector fires: {summary}"


def following(data: xr.Dataset, paths: Sequence[Path], *, kept: bool = False) -> tuple[Step, ...]:
    """Return the commands to type next: draw the curves, and compare the best checkpoint, or the first, with the last.

    Args:
        data: of a run.
        paths: arguments of `cocos run`, or the result that it wrote.
        kept: `paths` are a store or a result, which need no options.
    """
    steps = [Step("run", tuple(map(str, paths)), {"out": "run.png"}, carry=not kept)]
    if "file" in data and data.sizes["checkpoint"] > 1:
        files = [str(file) for file in data["file"].values]
        among = data.get(RECALL_AMONG_SAMPLES)
        place = _highest((data["R@1"].mean("direction") if among is None else among).values)
        pair = files[0 if place == len(files) - 1 else place], files[-1]
        if all(pair):
            steps.append(Step("diff", pair, lead="      "))
    return tuple(steps)
