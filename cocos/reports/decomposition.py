"""Table of the parts of the gradient of each query, and of each proxy."""

import numpy as np
import xarray as xr

from cocos import measures, results
from cocos.counting import findings
from cocos.measures.decomposition import ON_PROXIES, on_proxies
from cocos.reports.layout import Table
from cocos.reports.phrases import averaging, drawn, loss_call

WRONG_SIGNS = {"pushed_positives": "positives are pushed", "pulled_negatives": "negatives are pulled"}


def table(data: xr.Dataset) -> Table:
    """Write the parts of the gradients of one loss: a row for each statistic, a column for each direction.

    Class proxies have a column of their own, empty in the rows that tell of queries alone.
    """
    found = measures.document("decomposition", data)
    directions = found["directions"]
    rows = tuple(
        (
            data[key].attrs["long_name"],
            *(_significant(entry[key]) if key in entry else "" for entry in directions.values()),
        )
        for key in next(iter(directions.values()))
    )
    head = [
        *findings.first(data.attrs),
        *(_reading(name, one) for name, one in results.sides(data).items()),
        *_of_proxies(on_proxies(data)),
        f"{loss_call(found['loss'])}, {found['metric']} scores, {results.above(data.attrs)}",
        f"{drawn(data)}; {found['dtype']} on {found['device']}",
        averaging(found),
    ]
    if about := results.about_weights(found):
        head.append(about)
    note = "lengths and counts are means over all queries; parts, angles and ranks over the queries that have them"
    notes = [note]
    if ON_PROXIES in directions:
        notes.append("proxies: of the summed loss of a batch; means over the batches, then over the proxies")
    return Table(("", *directions), rows, tuple(head), tuple(notes))


def _of_proxies(forced: xr.Dataset) -> list[str]:
    """State the main numbers of the forces on the class proxies, where there are any."""
    if not forced:
        return []
    if not bool((forced["pull_norm"] + forced["push_norm"] > 0).any()):
        return [f"{ON_PROXIES}: no proxy has a gradient."]
    text = f"{ON_PROXIES}: the pull by own samples and the push by others cancel by {_percent(forced['cancellation'])}"
    if "radial_fraction" in forced:
        text += f"; the part along the proxy, which the normalisation removes, is {_percent(forced['radial_fraction'])}"
    return [f"{text}."]


def _significant(value: dict) -> str:
    """Write a mean to three significant digits and its deviation to two: gradients have any order of magnitude."""
    if value["mean"] is None:
        return "none"
    return f"{value['mean']:.3g}" + ("" if value["std"] is None else f" ± {value['std']:.2g}")


def _percent(values: xr.DataArray) -> str:
    return f"{100 * float(values.mean()):.0f} %"


def _reading(name: str, one: xr.Dataset) -> str:
    """State the main numbers of one direction in two or three sentences; means over the queries with a gradient."""
    moved = one["pull_norm"] + one["push_norm"] > 0
    still = 100 * (1 - float(moved.sum() / one["queries"].sum()))
    if not moved.any():
        return f"{name}: no query has a gradient."
    text = f"{name}: pull and push cancel by {_percent(one['cancellation'])}"
    if "radial_fraction" in one:
        left = np.sqrt(1 - one["radial_fraction"] ** 2)
        text += f"; the normalisation takes {_percent(1 - left)} off the length of the rest"
    text += "." if still == 0 else f" ({still:.1f} % of the queries have no gradient)."
    if bool(one["hardest_share"].notnull().any()):
        first = (one["hardest_rank"] == 1).where(one["hardest_rank"].notnull())
        forced = bool(one["hardest_share_force"].notnull().any())
        force = f"the strongest {_percent(one['hardest_share_force'])} of the force" if forced else "none has any force"
        text += (
            f" Of the negatives, the heaviest has {_percent(one['hardest_share'])} of the weight and {force}; the "
            f"heaviest is the most similar one for {_percent(first)} of the queries."
        )
    wrong = [
        f"{what} for {_percent((one[key] > 0).where(moved))} of the queries"
        for key, what in WRONG_SIGNS.items()
        if bool((one[key] > 0).any())
    ]
    joined = " and ".join(wrong)
    return f"{text} {joined[0].upper()}{joined[1:]}." if wrong else text
