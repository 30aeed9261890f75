"""Plot of the push on suspected false negatives, and of the push that filters remove."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from cocos.plots.labels import SIDE_LENGTH, below, palette, single, titled
from cocos.plots.wording import percent, plain

# Height of all bars of a row, in rows.
RULE_HEIGHT = 0.76
# Height of a row, and of everything beside the rows, in inches.
RULE_INCHES, AROUND_INCHES = 0.24, 1.9
# Why several Datasets cannot share the plot.
ALONE = "its rows are the rules and filters of one audit"


def audit(dataset: xr.Dataset | Sequence[xr.Dataset], *, ax: Axes | None = None) -> Axes:
    """Draw the part of the push that each rule suspects, and below them the part that each filter removes.

    A negative that is weakened counts with the push that it loses. The dark part of a filter's bar is on pairs that
    are known to be positive; a line marks the push on all of these. An asterisk marks a published
    threshold. Each direction has a bar of its own.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3)[:2], [0, 0, 1], [0, 1])
        >>> cocos.plots.audit(cocos.measures.audit(embeddings, batch_size="all")).has_data()
        True
    """
    data, ax = single(dataset, ALONE), ax or plt.gca()
    names = [str(name) for name in data["direction"].values]
    rows, colours = _rows(data), palette(max(len(names), 2))
    height = RULE_HEIGHT / len(names)
    for place, (name, colour) in enumerate(zip(names, colours, strict=False)):
        one = data.sel(direction=name)
        at = np.arange(len(rows)) - RULE_HEIGHT / 2 + (place + 0.5) * height
        whole, known = _lengths(one)
        ax.barh(at, 100 * whole, height, color=colour, alpha=0.4, linewidth=0)
        ax.barh(at, 100 * known, height, color=colour, linewidth=0)
        if (total := _push_on_known_positives(one)) > 0:
            ax.axvline(100 * total, color=colour, linewidth=1, linestyle=("--", ":")[place % 2])
    ax.set_yticks(range(len(rows)), rows, fontsize="small")
    ax.set(ylim=(len(rows) - 0.5, -0.5), xlabel="push fraction (%)\n* as published; a line: known positives")
    ax.axhline(data.sizes["rule"] - 0.5, color="0.6", linewidth=0.8)
    ax.set_xlim(0, max(1e-3, 1.05 * ax.get_xlim()[1]))
    ax.grid(axis="x", color="0.92")
    ax.set_axisbelow(True)
    titled(ax, title(data))
    labels = [plain(name, SIDE_LENGTH) for name in names]
    handles = [Patch(color=colour, label=label) for label, colour in zip(labels, colours, strict=False)]
    if data.attrs["known"] and "filter" in data.dims:
        handles.append(Patch(color=colours[0], alpha=0.4, label="removed, not known to be positive"))
    if len(handles) > 1:
        below(ax, handles=handles, ncols=3)
    return ax


def _rows(data: xr.Dataset) -> list[str]:
    """Names of the rules, and of the filters with their thresholds."""
    rows = [plain(name) for name in data["rule"].values]
    if "filter" in data.dims:
        marks = ["*" if each else "" for each in data["published"].values]
        rows += [f"filter {plain(name)}{mark}" for name, mark in zip(data["filter"].values, marks, strict=True)]
    return rows


def _lengths(one: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Parts of the push of each row, and what of them is dark: all of a rule, what is known of a filter."""
    rules = np.nan_to_num(one["push_share"].values)
    if "filter" not in one.dims:
        return rules, rules
    removed = np.nan_to_num(one["filter_push"].values - one["filter_left"].values)
    right = one["push_precision"].values
    known = np.where(np.isnan(right), 1, right) * removed  # NaN where nothing is known, or nothing removed
    return np.concatenate([rules, removed]), np.concatenate([rules, known])


def _push_on_known_positives(one: xr.Dataset) -> float:
    """Part of the push on pairs that are known to be positive; 0 where none are known, or no filter is judged."""
    if "filter" not in one.dims:
        return 0.0
    found, removed = one["push_recall"].values, one["push_precision"].values * one["filter_push"].values
    with np.errstate(invalid="ignore", divide="ignore"):
        totals = removed / found
    return float(np.nanmax(totals)) if np.isfinite(totals).any() else 0.0


def title(data: xr.Dataset) -> str:
    """State the push on suspected negatives, and their part of the negatives."""
    one = data.isel(rule=-1)
    push, share = (float(np.nan_to_num(one[name].values).max()) for name in ("push_share", "share"))
    if not push:
        return "No negative that is pushed is suspected of being a positive"
    return f"{percent(push)} of the push is on {percent(share)} of the negatives, suspected of being positives"


def size(data: xr.Dataset) -> tuple[float, float]:
    """Width and height of one panel in inches."""
    return 6.6, AROUND_INCHES + RULE_INCHES * len(_rows(data))
