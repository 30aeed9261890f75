"""Table of the nearest candidates of some queries."""

import numpy as np
import xarray as xr

from cocos.reports import summary
from cocos.reports.layout import Table


def table(data: xr.Dataset) -> Table:
    """Write a row for each query, with its candidates in order of score."""
    rows = []
    for place in range(data.sizes["query"]):
        one = data.isel(query=place)
        best = float(one["best_rank"])
        ranked = (one[name].values[one["candidate"].values >= 0] for name in ("candidate", "positive", "score"))
        nearest = [f"{row}{'+' if positive else ''} {score:.3f}" for row, positive, score in zip(*ranked, strict=True)]
        rows.append((
            str(int(one["query_index"])),
            str(int(one["positives"])),
            f"{best:.0f}" if np.isfinite(best) else "none",
            f"{float(one['best_score']):.3f}" if np.isfinite(best) else "",
            *nearest,
            *[""] * (data.sizes["rank"] - len(nearest)),
        ))
    columns = ("query", "positives", "best rank", "its score", *(f"rank {rank}" for rank in data["rank"].values))
    head = (f"{data.attrs['title']}, {data.attrs['direction']}", *summary.about(data)[1:])
    return Table(columns, tuple(rows), head, ("row and score of each candidate in order of score; + marks a positive",))
