"""Table of verdicts on the weights of losses."""

from collections.abc import Sequence

import xarray as xr

from cocos import measures
from cocos.reports.layout import Table

VERDICT_COLUMNS = (
    *("loss", "verdict", "gap 64", "on", "gap 32", "error 32", "error bf16", "error 16", "slope", "pml", "pml grad"),
)
# Columns to drop where a line has no room for them, the least important first.
DROPPED_COLUMNS = ("error 16", "error bf16", "on", "gap 32", "pml grad")
VERDICT_HEAD = (
    "gap: closed form against torch.func, in float64 and float32; error: each dtype against float64 on the same "
    "rounded input; slope: against finite differences in float64; pml: value and gradient against "
    "pytorch-metric-learning, where it has the loss. Each number is the largest difference over all inputs, relative "
    "to the largest weight of the input."
)


def table(found: Sequence[xr.Dataset]) -> Table:
    """Write the verdicts: a row for each loss with its largest differences, and below them faults and notes."""
    rows, notes = [], []
    for one in (measures.document("verify", data) for data in found):
        name, gap, error, peer = one["loss"]["name"], one["gap"], one["error"], one["peer"]
        before = (name, one["verdict"], difference(gap["float64"]), one["gap_on"] or "")
        after = (gap["float32"], error["float32"], error["bfloat16"], error["float16"], one["finite_difference"])
        rows.append((*before, *map(difference, (*after, peer["value"], peer["gradient"]))))
        for kind, mark in (("faults", "FAULT"), ("notes", "note")):
            notes += [f"{mark}: {name}: {line}" for line in one[kind]]
    return Table(VERDICT_COLUMNS, tuple(rows), (VERDICT_HEAD,), tuple(notes), least=DROPPED_COLUMNS)


def difference(value: float | None) -> str:
    """Write a relative difference; an empty cell where it was not measured."""
    return "" if value is None else "0" if value == 0 else f"{value:.1e}"
