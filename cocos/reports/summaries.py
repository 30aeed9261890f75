"""Summarise a plot in numbers: totals of a Dataset, bands over its queries, and a few points of its curves."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from cocos import results
from cocos.counting import findings, shares

OPTIONS = (
    "eps",
    "batches",
    "batch_size",
    "sample",
    "copies",
    "same_group",
    "seed",
    "dtype",
    "device",
    "split",
    "metric",
)


def plain(value) -> float | int | bool | None:
    """A number as JSON represents it; None where it is not finite."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not np.isfinite(value) else value


def shortest(value) -> float | int | None:
    """A number as JSON represents it, a whole one without a fraction."""
    number = plain(value)
    return int(number) if number is not None and float(number).is_integer() else number


def entries(data: xr.Dataset, names: Iterable[str], *axes: str) -> dict[str, Any]:
    """Numbers of a Dataset as JSON has them: by the labels along some axes, one within the other, then by their names.

    Examples:
        >>> import xarray as xr
        >>> data = xr.Dataset({"part": ("rule", [0.5, float("nan")])}, {"rule": ["group", "text"]})
        >>> cocos.reports.summaries.entries(data, ["part"], "rule")
        {'group': {'part': 0.5}, 'text': {'part': None}}
    """
    if not axes:
        return {name: plain(data[name]) for name in names}
    axis, *rest = axes
    return {str(label): entries(data.sel({axis: label}), names, *rest) for label in data[axis].values}


def chosen(attrs: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Some attributes as JSON has them; a file gives them back as numbers of numpy."""
    return {name: plain(attrs[name]) for name in names}


def about(data: xr.Dataset) -> dict:
    """Version, file, loss and options."""
    attrs, about = data.attrs, results.about(data.attrs)
    about |= {"gradient": attrs["gradient"]} if "loss" in attrs else {}
    if "checkpoint_path" in attrs:
        about["health"] = {"collapsed": findings.collapsed(attrs)}
    else:
        del about["checkpoint"]
    given = {key: attrs[key] for key in OPTIONS if key in attrs}
    return about | {key: value.item() if isinstance(value, np.generic) else value for key, value in given.items()}


def head(data: xr.Dataset) -> tuple[str, ...]:
    """State the measure, the loss, and the batches or queries of a Dataset."""
    attrs = data.attrs
    lines = [attrs["title"], *findings.first(attrs)]
    if "loss_repr" in attrs:
        eps = f", {shares.above(attrs)}" if "eps" in attrs else ""
        lines.append(f"{attrs['loss_repr']}{eps}")
    where = f" on {attrs['device']}" if "device" in attrs else ""
    if "batch_size" in attrs:
        number = attrs.get("batches", data.sizes.get("batch", 1))
        batches = f"{number} batches" if number > 1 else "one batch"
        lines.append(
            f"{batches} of {attrs['batch_size']} {attrs['sample']}, seed {attrs['seed']}; {attrs['dtype']}{where}"
        )
    elif "seed" in attrs:
        drawn = ""
        if "query_index" in data:  # the array is padded to the direction with the most
            numbers = np.atleast_1d(data["query_index"].notnull().sum("query"))
            drawn = f"{' and '.join(map(str, dict.fromkeys(numbers.tolist())))} queries, "
        lines.append(f"{attrs['metric'].replace('_', ' ')} scores; {drawn}seed {attrs['seed']}{where}")
    if weights := shares.about_weights(attrs) if "gradient" in attrs else "":
        lines.append(weights)
    return tuple(lines)
