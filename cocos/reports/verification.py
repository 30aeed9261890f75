"""Table of verification metrics."""

import math

import xarray as xr

from cocos import measures
from cocos.counting import findings
from cocos.reports.layout import Table
from cocos.reports.phrases import geometry


def table(data: xr.Dataset) -> Table:
    """Write verification metrics: a row for each, with its interval and its threshold."""
    found = measures.document("verification", data)

    def cell(value: float | None, digits: int) -> str:
        return "" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"

    rows = []
    for name in map(str, data["metric"].values):
        entry, digits = found[name], 3 if name == "minDCF" else 2
        ends = [cell(entry[key], digits) for key in ("low", "high")]
        interval = f"{ends[0]} to {ends[1]}" if all(ends) else ""
        if name == "accuracy" and entry["std"] is not None:
            interval = f"± {cell(entry['std'], digits)} over ten folds"
        rows.append((name, cell(entry["mean"], digits) or "-", interval, cell(entry["threshold"], 4)))
    split = f"split {found['split']}, " if found["split"] else ""
    head = (
        *findings.first(data.attrs),
        f"{split}{found['metric']} scores on {found['device']}; in percent, except minDCF and thresholds",
        f"{found['trials']}: {found['targets']:,} target pairs, {found['impostors']:,} impostor pairs of "
        f"{found['identities']:,} identities",
    )
    costs = f"a miss at {found['miss_cost']:g} and a false accept at {found['false_accept_cost']:g}"
    notes = [f"minDCF: normalised, with a target prior of {found['prior']:g}, {costs}."]
    if found["resamples"]:
        notes.insert(0, f"Intervals: {100 * found['level']:g} %, {found['resamples']:,} resamples of the identities.")
    interval = f"{100 * found['level']:g} % interval"
    return Table(("", "value", interval, "threshold"), tuple(rows), head, (*notes, *geometry(found["health"])))
