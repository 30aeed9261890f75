"""Table of two gradients: the verdict, and the ratio of each kind of pair."""

import math

import xarray as xr

from cocos import measures
from cocos.reports.layout import Table
from cocos.reports.verify import difference

SAME_COLUMNS = ("gradient of", "pairs", "part of A", "B / A", "difference")


def table(data: xr.Dataset) -> Table:
    """Write the verdict, then a row for each kind of pair by the rows that its gradient reaches."""
    said = measures.document("same_gradient", data)
    rows = []
    for each in said["kinds"]:
        ratio = "only in B" if each["ratio"] is None or math.isnan(each["ratio"]) else f"{each['ratio']:.4g}"
        rows.append((each["reaches"], each["kind"], f"{100 * each['part']:.1f} %", ratio, difference(each["gap"])))
    hard = f", {said['hard_negatives']} hard negatives each" if said["hard_negatives"] else ""
    head = (
        f"A  {said['a']}",
        f"B  {said['b']}",
        f"verdict: {said['verdict']}",
        *([f"next: {said['next']}"] if said["next"] else []),
        f"{said['pairs']} pairs{hard}; largest difference {difference(said['gap'])} of the largest gradient, cosine "
        f"{said['cosine']:.6g}; the same is within {said['tolerance']:g} in {said['dtype']}.",
    )
    notes = (
        "part of A: of A's weights |dL/d cosine|; B / A: their ratio; difference: largest one from that ratio, in "
        "parts of the largest weight",
    )
    return Table(SAME_COLUMNS, tuple(rows), head, notes)
