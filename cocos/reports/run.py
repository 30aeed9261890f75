"""Table of a training run: a row for each checkpoint or record below the findings of the detectors."""

import json
from collections.abc import Sequence
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
# Columns of each direction, and of a whole checkpoint, by variable.
SIDE_COLUMNS = {name: number.run for name, number in records.DIRECTION_NUMBERS.items() if number.run}
SIDE_COLUMNS["R@1"] = RunColumn("R@1", 1)
COLUMNS = {
    **{"value": RunColumn("loss", 3), "scale": RunColumn("scale", 1), RECALL_AMONG_SAMPLES: RunColumn("R@1", 1)},
    **{"dtp": RunColumn("DTP", 3), "alarm": RunColumn("alarms")},
}
# Rows at each end of a run that are shown.
END_ROWS = 12


def table(data: xr.Dataset) -> Table:
    """Return the numbers of a run at its first and last steps, and the sentences of the detectors."""
    head = [finding.sentence for finding in findings.of(data) if finding.severity in {"stop", "look"}]
    head.append(watched(data))
    data = widest(data)
    steps, attrs = data[axis(data)].values, data.attrs
    count = f"{len(steps)} {'checkpoint' if axis(data) == 'checkpoint' else 'record'}{'' if len(steps) == 1 else 's'}"
    head.append(f"{count}, step {int(steps[0])} to {int(steps[-1])}")
    fixed = "loss_repr" not in data or len(set(data["loss_repr"].values.tolist())) == 1
    loss = attrs.get("loss_repr", attrs["loss"]) if fixed else attrs["loss"]
    head.append(f"loss {loss}, {shares.above(attrs)} (eps = {float(attrs['eps']):g})")
    columns = {"step": [str(int(step)) for step in steps]}
    recorded = {name for name in SIDE_COLUMNS if name in data and data[name].notnull().any()}
    recorded -= {push for unit, push in records.BY_PUSH.items() if unit in recorded}  # one of the two is shown
    for name, column in SIDE_COLUMNS.items():
        heading = "accuracy" if name == "R@1" and RECALL_AMONG_SAMPLES in data else column.heading
        for side, single in results.sides(data).items() if name in recorded else ():
            values = single[name].values * (100 if column.percent else 1)
            if column.percent and records.DIRECTION_NUMBERS[name].how == "sum":
                values = values / single["queries"].values
            columns[f"{heading} {side}" if data.sizes["direction"] > 1 else heading] = _cells(values, column.digits)
    for name, column in COLUMNS.items():
        if name in data and data[name].notnull().any():
            columns[column.heading] = _cells(data[name].values, column.digits)
    rows = list(zip(*columns.values(), strict=True))
    if len(rows) > 2 * END_ROWS:
        more = (f"{len(rows) - 2 * END_ROWS} more (--json)", *[""] * (len(columns) - 1))
        rows = [*rows[:END_ROWS], more, *rows[-END_ROWS:]]
    return Table(tuple(columns), tuple(rows), tuple(head))


def _cells(values: np.ndarray, digits: int) -> list[str]:
    """Write numbers, never -0; a dash if a value is unknown."""
    return [f"{round(float(value), digits) + 0:.{digits}f}" if np.isfinite(value) else "-" for value in values]


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
        recall = data[RECALL_AMONG_SAMPLES] if RECALL_AMONG_SAMPLES in data else data["R@1"].mean("direction")
        best = np.flatnonzero(recall == recall.max())[-1]
        pair = files[0 if best == len(files) - 1 else best], files[-1]
        if all(pair):
            steps.append(Step("diff", pair, lead="      "))
    return tuple(steps)
