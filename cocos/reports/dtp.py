"""Table of distances to proxies."""

import xarray as xr

from cocos import measures
from cocos.reports.layout import Table


def table(data: xr.Dataset) -> Table:
    """Write distances to proxies: a row for each run, with its first and its last step."""
    found, rows = measures.document("dtp", data), []
    for name, run in found["runs"].items():
        low, high = run["last_5"], run["last_95"]
        rows.append((
            name,
            str(run["files"]),
            f"{run['first']:.4g}",
            f"{run['last']:.4g}",
            f"{low:.4g} to {high:.4g}",
            _bounds(run),
        ))
    steps = found["steps"]
    classes = f"{found['classes']} class{'' if found['classes'] == 1 else 'es'}"
    head = (
        f"AvgDTP: {found['metric'].replace('_', ' ')} distance to the own proxy, averaged over the samples of a class, "
        f"then over {classes}",
        f"steps {steps[0]:g} to {steps[-1]:g}" if len(steps) > 1 else f"step {steps[0]:g}",
    )
    notes = ()
    if found["alpha_correlation"] is not None:
        notes = (f"correlation of alpha with the last average: {found['alpha_correlation']:.4f}",)
    return Table(("run", "steps", "first", "last", "5-95 % of the classes", "alpha"), tuple(rows), head, notes)


def _bounds(run: dict) -> str:
    """Boundary of the warp: one, those of the phases, or the smallest to the largest of the classes."""
    if run["alpha"] is None:
        return ""
    phases = dict.fromkeys(
        f"{min(row):g}" if min(row) == max(row) else f"{min(row):g} to {max(row):g}"
        for row in run.get("alpha_each", [[run["alpha"]]])
    )
    return ", then ".join(phases)
