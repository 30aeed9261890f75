"""Table of cut-offs."""

import numpy as np
import xarray as xr

from cocos import results
from cocos.counting import findings
from cocos.reports.layout import Table


def table(data: xr.Dataset) -> Table:
    """Write what each cut-off returns: a row over all pairs, and one for each direction, over its queries."""

    def band(one: xr.DataArray, unit: str = "") -> str:
        if not np.isfinite(one).all():
            return "-"
        low, median, high = (f"{float(value):.0f}" for value in one)
        return f"{median} ({low} to {high}){unit}"

    rows = []
    for place, cutoff in enumerate(data["cutoff"].values):
        one = data.isel(cutoff=place)
        precision = float(one["global_precision"])
        shown = f"{100 * precision:.1f} %" if np.isfinite(precision) else "-"
        cut = (f"{cutoff:.4f}", f"{float(one['distance']):.4f}")
        rows.append(("all pairs", *cut, "", shown, f"{100 * float(one['global_recall']):.1f} %", "", ""))
        for name, own in results.sides(one).items():
            shares = (f"{float(own[key]):.1f} %" for key in ("none_returned", "no_positive"))
            parts = (band(100 * own[f"{key}_band"], " %") for key in ("precision", "recall"))
            rows.append((f"  a query of {name}", *cut, band(own["returned_band"]), *parts, *shares))
    columns = ("", "cosine >=", "L2 <=", "returned", "precision", "recall", "none returned", "no positive")
    notes = [
        "over queries: median (5th to 95th percentile); precision is defined where something is returned, recall where "
        "the query has a positive"
    ]
    if missing := data.attrs.get("not_reached"):
        notes.append(f"no cut-off has a precision of {missing} over all pairs")
    head = (data.attrs["title"], *findings.first(data.attrs))
    return Table(columns, tuple(rows), head, tuple(notes))
