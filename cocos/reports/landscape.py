"""Table of a landscape: its proxies and its minimum."""

import numpy as np
import xarray as xr

from cocos.reports.layout import Table


def table(data: xr.Dataset) -> Table:
    """Write where the minimum is predicted and where a descent found it, with Lemma III.1."""

    def place(name: str) -> str:
        values = [f"{round(float(value), 9) + 0:.9g}" for value in data[name] if np.isfinite(value)]
        return f"({', '.join(values)})" if values else ""

    attrs = data.attrs
    own = ", ".join(f"{float(data[name][0]):.6g}" for name in ("proxy_x", "proxy_y"))
    rows = [("own proxy", f"({own})"), ("largest distance between proxies", f"{attrs['distance']:.6g}")]
    if "predicted_as" in attrs:
        rows.append(("minimum predicted (Proposition III.2)", f"{place('predicted')} {attrs['predicted_as']}".strip()))
    rows.append(("minimum found by descent", f"{place('found')} {attrs['found_as']}".strip()))
    if "gap" in attrs:
        rows.append(("distance between both", f"{attrs['gap']:.1e}"))
    if "lemma" in attrs:
        rows.append(("Lemma III.1", attrs["lemma"]))
    return Table(("", ""), tuple(rows), (attrs["title"],), left=True)
