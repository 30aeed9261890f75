"""Titles that state what a Dataset shows, in one sentence, from its numbers alone.

A title is also the text that stands for the picture where it cannot be seen.
"""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from cocos import health, results, summaries

__all__ = [
    "called",
    "contributors",
    "count",
    "eps_curve",
    "lorenz",
    "middle",
    "number",
    "percent",
    "precision_recall",
    "retrievals",
    "score_distribution",
    "temperature_curve",
    "thresholds",
    "weight_map",
]

THRESHOLDS = (1e-4, 1e-2)  # of a count that depends on them
LONG = 40  # characters of a name in a sentence


def middle(text: str, most: int = LONG) -> str:
    """Text that fits: what is too long loses its middle, for both ends tell names apart."""
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[: most - 1 - half]}…{text[len(text) - half :]}"


def percent(part: float) -> str:
    """A part of one as a percentage; what is not nothing is never shown as 0, and what is not all never as 100."""
    value = 100 * float(part)
    if 0 < value < 0.1:
        return "under 0.1 %"
    if 99.9 < value < 100:
        return "over 99.9 %"
    whole = value in {0, 100} or (value >= 10 and round(value) < 100)
    return f"{value:.0f} %" if whole else f"{value:.1f} %"


def number(value: float) -> str:
    """A mean of counts: three digits at most, whole numbers as such."""
    return f"{value:.0f}" if value >= 100 or value == round(value) else f"{value:.2g}" if value < 1 else f"{value:.1f}"


def called(datasets: Sequence[xr.Dataset]) -> list[str]:
    """Names of Datasets that are drawn together: their losses, with the parameters where a loss is there twice."""
    names = [middle(str(data.attrs.get("loss", data.attrs.get("title", "")))) for data in datasets]
    whole = [middle(str(data.attrs.get("loss_repr", name))) for data, name in zip(datasets, names, strict=True)]
    return [long if names.count(name) > 1 else name for name, long in zip(names, whole, strict=True)]


def _between(values: Sequence[float], shown=percent) -> str:
    """One value, or the two ends of several that are not shown alike."""
    low, high = shown(min(values)), shown(max(values))
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


def count(datasets: Sequence[xr.Dataset], names: Sequence[str]) -> str:
    """How many negatives contribute to the gradient of a query, and how many queries have none; a word at collapse."""
    gone = any(health.warnings(data.attrs.get("notes", "")) for data in datasets)
    return _counted(datasets, names) + ("\ncollapsed embeddings" if gone else "")


def _counted(datasets: Sequence[xr.Dataset], names: Sequence[str]) -> str:
    """The finding of `count`."""
    parts = [summaries.counted(data) for data in datasets]
    idle = [_between(part["idle_fraction"].values) for part in parts]
    if len(parts) == 1:
        mean, negatives = parts[0]["mean"].values, float(parts[0]["negatives"].mean())
        kind = results.about_weights(datasets[0].attrs).partition(":")[0]
        name = f"{names[0]} ({kind})" if kind else names[0]
        return (
            f"{name}: {_between(mean, number)} of {negatives:.0f} negatives contribute to a query; {idle[0]} of the "
            "queries have none"
        )
    means = [float(part["idle_fraction"].mean()) for part in parts]
    most, least = int(np.argmax(means)), int(np.argmin(means))
    if idle[most] == idle[least]:
        return f"{idle[most]} of the queries have no contributing negative, under each of {len(parts)} losses"
    return (
        f"{idle[most]} of the queries have no contributing negative under {names[most]}, {idle[least]} under "
        f"{names[least]}"
    )


def _listed(names: Sequence[str], values: Sequence[str]) -> str:
    """Values with the names that they belong to; the values alone for one name."""
    if len(names) == 1:
        return values[0]
    return ", ".join(f"{value} ({name})" for value, name in zip(values, names, strict=True))


def lorenz(datasets: Sequence[xr.Dataset], names: Sequence[str]) -> str:
    """What part of the push the ten heaviest negatives hold; the heaviest one where there are fewer than twenty."""
    k = 10 if min(int(data["k"].max()) for data in datasets) >= 20 else 1
    held = [_between(data["held"].sel(k=k).values) for data in datasets]
    heaviest = f"{k} heaviest negatives hold" if k > 1 else "heaviest negative holds"
    return f"The {heaviest} {_listed(names, held)} of a query's push"


def eps_curve(datasets: Sequence[xr.Dataset], names: Sequence[str]) -> str:
    """How much the count changes from one threshold to another: the loss where it changes most."""
    counts = [data["contributing_all"].mean("direction") for data in datasets]
    ends = [[each.sel(eps=eps, method="nearest") for eps in THRESHOLDS] for each in counts]
    change = [float(low - high) for low, high in ends]
    most, least = int(np.argmax(change)), int(np.argmin(change))
    low, high = ends[most]
    if float(low["eps"]) == float(high["eps"]):
        return f"{names[most]}: {number(float(low))} negatives contribute at eps = {float(low['eps']):g}"
    said = (
        f"{names[most]}: {number(float(low))} negatives contribute at eps = {float(low['eps']):.2g}, "
        f"{number(float(high))} at {float(high['eps']):.2g}"
    )
    if len(datasets) > 1:
        said += f"; {names[least]}: {_between([float(each) for each in ends[least]], number)}"
    return said


def temperature_curve(datasets: Sequence[xr.Dataset], names: Sequence[str], show: str = "negatives") -> str:
    """How many negatives share the push, or how many queries are idle, at the ends of the temperatures and the own."""
    parts, idle = [], show == "idle"
    for data in datasets:
        mean = data["idle_fraction" if idle else "effective"].mean("direction").dropna("value")
        if not mean.size:
            parts.append("no push at any value")
            continue
        at = [mean["value"].values[0], data.attrs["own"], mean["value"].values[-1]]
        said = [(percent if idle else number)(float(mean.sel(value=value, method="nearest"))) for value in at]
        parts.append(f"{said[0]}, {said[1]} and {said[2]} at {at[0]:.2g}, {at[1]:.2g} and {at[2]:.2g}")
    what = "Idle queries" if idle else "Effective negatives"
    return f"{what} against the {datasets[0].attrs['parameter']}: {_listed(names, parts)}"


def precision_recall(datasets: Sequence[xr.Dataset], names: Sequence[str], direction: str) -> str:
    """What one threshold for all queries costs: PR-AUC beside the mAP of queries with thresholds of their own."""
    one = [f"{data.attrs['pr_auc']:.1f} %" for data in datasets]
    own = [f"{float(data['mAP'].sel(direction=direction)):.1f} %" for data in datasets]
    parts = [f"PR-AUC {a}, mAP {b}" for a, b in zip(one, own, strict=True)]
    return f"{middle(direction, 24)}, one threshold for all against one for each: {_listed(names, parts)}"


def thresholds(datasets: Sequence[xr.Dataset], names: Sequence[str]) -> str:
    """How unequally the best cut-off treats the queries: by F1 if it is there, or else the first one."""
    (data,) = datasets
    chosen = [str(each) for each in data["chosen"].values]
    place = chosen.index("best F1") if "best F1" in chosen else 0
    one = data.isel(cutoff=place)
    low, _, high = one["returned_band"].transpose("percentile", "direction").values
    none = _between(one["none_returned"].values / 100)
    return (
        f"The cut-off of {chosen[place]} (cosine {float(one['cutoff']):.2f}) returns {min(low):.0f} to {max(high):.0f} "
        f"candidates to nine queries in ten, and nothing to {none}"
    )


def weight_map(datasets: Sequence[xr.Dataset], names: Sequence[str]) -> str:
    """How many negatives of the batch contribute, and how many queries have none."""
    (data,) = datasets
    above, idle = int(data["contributing"].sum()), int((data["contributing"] == 0).sum())
    return (
        f"{names[0]}: {above} of {int(data['negatives'].sum())} negatives contribute; {idle} of "
        f"{data.sizes['query']} queries have none"
    )


def contributors(datasets: Sequence[xr.Dataset], names: Sequence[str]) -> str:
    """How many negatives contribute to one query, and what they hold of its push."""
    about = datasets[0].attrs
    return (
        f"{about['contributing']} of {about['negatives']} negatives contribute and hold "
        f"{percent(about['contributing_part'])} of the push"
    )


def retrievals(datasets: Sequence[xr.Dataset], names: Sequence[str]) -> str:
    """For how many queries a positive comes first."""
    (data,) = datasets
    return f"A positive comes first for {int((data['best_rank'] == 1).sum())} of {data.sizes['query']} queries"


def score_distribution(datasets: Sequence[xr.Dataset], names: Sequence[str], direction: str) -> str:
    """From where to where the k-th neighbour of a query stands, for the middle one of the ks."""
    one = datasets[0].sel(direction=direction).dropna("k", how="all", subset=["kth_band"])
    if not one.sizes["k"]:
        return middle(direction)
    one = one.isel(k=one.sizes["k"] // 2)
    low, high = float(one["kth_band"].isel(percentile=0)), float(one["kth_band"].isel(percentile=-1))
    return f"{middle(direction, 24)}: neighbour {int(one['k'])} stands at a score from {low:.2f} to {high:.2f}"
