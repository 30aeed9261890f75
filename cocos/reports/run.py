"""Table of a training run: a row for each checkpoint or record below the findings of the detectors."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import xarray as xr

from cocos import results
from cocos.counting import findings, shares
from cocos.measures.run import AMONG_SAMPLES, axis, episodes, widest
from cocos.monitor import detectors as shelf
from cocos.monitor import records
from cocos.reports.tables import Step, Table, from_variables

# Columns by variable; percent of queries for a number of queries, and of one for a fraction.
HEADINGS = {
    **{"contributing": "contributing", "relative": "relative", "idle": "idle %", "unpushed": "unpushed %"},
    **{"effective": "effective", **{f"push_{key}": f"{key.replace('_', ' ')} %" for key in records.SOURCE_KEYS}},
    **{"R@1": "R@1", f"R@1{AMONG_SAMPLES}": "R@1 among samples", "value": "loss", "scale": "scale", "dtp": "DTP"},
    "alarm": "alarms",
}


def table(data: xr.Dataset) -> Table:
    """Return the numbers of a run, of a long one at a few steps, below the sentences of the detectors."""
    lines = [finding.sentence for finding in findings.of(data) if finding.severity in {"stop", "look"}]
    lines.append(watched(data))
    data = widest(data)
    attrs, steps = data.attrs, data[axis(data)].values
    unit = "checkpoint" if axis(data) == "checkpoint" else "record"
    lines.append(f"{len(steps)} {unit}{'' if len(steps) == 1 else 's'}, step {int(steps[0])} to {int(steps[-1])}")
    one_loss = "loss_repr" not in data or len(set(data["loss_repr"].values.tolist())) == 1
    loss = attrs.get("loss_repr", attrs["loss"]) if one_loss else attrs["loss"]
    lines.append(f"loss {loss}, {shares.above(attrs)} (eps = {float(attrs['eps']):g})")
    recorded = {name for name in HEADINGS if name in data and data[name].notnull().any()}
    recorded -= {push for unit, push in records.BY_PUSH.items() if unit in recorded}  # one of the two is shown
    columns = {}
    for name in (name for name in HEADINGS if name in recorded):
        values = data[name] / data["queries"] if name in {"idle", "unpushed"} else data[name]
        values = (100 * values if HEADINGS[name].endswith("%") else values).drop_attrs()
        sides = results.sides(data) if "direction" in values.dims else {"": data}
        for side in sides:
            heading = f"{HEADINGS[name]} {side}" if len(sides) > 1 else HEADINGS[name]
            columns[heading] = values.sel(direction=side, drop=True) if side else values
    first, *_ = from_variables(xr.Dataset(columns, attrs=attrs), columns)
    return replace(first, head=tuple(lines))


def watched(data: xr.Dataset) -> str:
    """Count the detectors that watched a run, and whether any fired."""
    summary = shelf.summary(json.loads(data.attrs.get("watching", "{}")))
    return summary if episodes(data) else f"no detector fires: {summary}"


def following(data: xr.Dataset, paths: Sequence[Path], *, kept: bool = False) -> tuple[Step, ...]:
    """Return the commands to type next: draw the curves of the `paths`, and compare the first checkpoint with the last.

    A store or a result, if `kept`, needs no options.
    """
    step = Step("run", tuple(map(str, paths)), {"out": "run.png"}, carry=not kept)
    files = [str(file) for file in data["file"].values if str(file)] if "file" in data else []
    return (step, Step("diff", (files[0], files[-1]))) if len(files) > 1 else (step,)
