"""Titles that state what a Dataset shows, in one sentence, from its numbers alone.

A title is also the text that stands for the picture where it cannot be seen.
"""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from cocos import health, results, summaries

__all__ = ["called", "count", "middle", "of", "percent"]

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


def of(kind: str, datasets: Sequence[xr.Dataset], names: Sequence[str]) -> str:
    """The finding of a kind of picture; empty where there is none.

    Args:
        kind: name of the measure.
        datasets: of one picture.
        names: of each.
    """
    found = globals().get(kind)
    return found(datasets, names) if kind in FINDINGS and found else ""


FINDINGS = ("count",)
