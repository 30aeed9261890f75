"""Results of several losses in one Dataset with the dimension `loss`, and each of them taken out again.

Numbers stand side by side over `loss`. What is true of one loss alone (its attributes, the sizes of its batches, which
variables it has) is kept as text in the coordinate `about`, so that nothing is lost: see `each`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from cocos import results
from cocos.base.errors import InputError
from cocos.base.untrusted import parsed
from cocos.counting import findings

__all__ = ["each"]

# Dimensions along which the losses may differ in size, because each has batches of its own.
PADDED = ("batch", "query")


def given(losses: Mapping[str, Any] | Sequence[Any]) -> list[Any]:
    """The losses of a list, or of a dict of label -> loss."""
    found = list(losses.values()) if isinstance(losses, Mapping) else list(losses)
    if not found:
        raise InputError(f"loss: {losses!r}, expected one loss at least")
    return found


def labels(losses: Mapping[str, Any] | Sequence[Any], known: Sequence[str]) -> list[str]:
    """Unique labels of several losses: those of a dict, or the losses with their parameters, which are `known`."""
    found = list(map(str, losses)) if isinstance(losses, Mapping) else list(known)
    for name in found:
        if found.count(name) > 1:
            raise InputError(
                f"loss: {name} is given {found.count(name)} times; give each once, or a dict of label: loss"
            )
    return found


def stacked(
    parts: Sequence[Mapping[str, tuple]], attrs: Sequence[Mapping], names: Sequence[str], title: str
) -> xr.Dataset:
    """Label the variables of several losses over `loss`.

    Args:
        parts: variables of each loss, as `cocos.results.labelled` takes them. Along `batch` and `query` a loss with
            fewer values is padded: by NaN, and whole numbers by 0.
        attrs: attributes of each loss.
        names: labels of the losses.
        title: of all.
    """
    known = list(dict.fromkeys(name for part in parts for name in part))
    made: dict[str, tuple] = {"loss": ("loss", list(names), "loss with its parameters")}
    whole = [{name: np.asarray(values) for name, (_, values, *_) in part.items()} for part in parts]
    sizes = {name: max(len(values[name]) for values in whole if name in values) for name in known if name in PADDED}
    for name in known:
        dims, _, *about = next(part[name] for part in parts if name in part)
        given = [values.get(name) for values in whole]
        if dims == name:  # a coordinate: the longest has all values
            made[name] = (dims, max((one for one in given if one is not None), key=len), *about)
        else:
            dims = (dims,) if isinstance(dims, str) else tuple(dims)
            made[name] = (("loss", *dims), _stack_padded(given, dims, sizes), *about)
    common = {name: value for name, value in attrs[0].items() if all(each.get(name) == value for each in attrs)}
    notes = list(dict.fromkeys(line for each in attrs for line in each.get("notes", "").splitlines()))
    shared = common | {"title": title, "notes": "\n".join(notes), "findings": findings.joined(attrs)}
    about = [
        json.dumps({
            "attrs": {name: value for name, value in own.items() if shared.get(name) != value},
            "sizes": {name: len(values[name]) for name in PADDED if name in values},
            "variables": {
                name: str(array.dtype) for name, array in values.items() if name not in (*PADDED, "direction")
            },
        })
        for own, part, values in zip(attrs, parts, whole, strict=True)
    ]
    made["about"] = ("loss", about, "what is true of this loss alone, JSON")
    return results.labelled(made, shared).set_coords("about")


def _stack_padded(arrays: Sequence[np.ndarray | None], dims: tuple[str, ...], sizes: Mapping[str, int]) -> np.ndarray:
    """Stack arrays, padded at their ends to the sizes of their dimensions; one that is None is NaN throughout."""
    there = [array for array in arrays if array is not None]
    shape = tuple(sizes.get(name, size) for name, size in zip(dims, there[0].shape, strict=True))
    if len(there) == len(arrays) and all(array.shape == shape for array in there):
        return np.stack(there)
    whole = all(array.dtype.kind in "iub" for array in there) and len(there) == len(arrays)
    made = np.zeros((len(arrays), *shape), dtype=np.int64) if whole else np.full((len(arrays), *shape), np.nan)
    for own, array in zip(made, arrays, strict=True):
        if array is not None:
            own[tuple(slice(size) for size in array.shape)] = array
    return made


def each(data: xr.Dataset) -> dict[str, xr.Dataset]:
    """Take the losses of a Dataset apart: label -> the Dataset that a call with this loss alone returns.

    A Dataset without the dimension `loss` is one of its own, by the name of its loss.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> data = cocos.measures.count(embeddings, ["ntxent", "triplet"])
        >>> [one.attrs["loss"] for one in cocos.several.each(data).values()]
        ['ntxent', 'triplet']
    """
    if "loss" not in data.dims:
        return {str(data.attrs.get("loss_repr", "")): data}
    found = {}
    for place, label in enumerate(data["loss"].values):
        try:
            found[str(label)] = _dataset_of_loss(data, place)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise InputError(f"dimension loss: no result of cocos for several losses ({error})") from None
    return found


def restacked(parts: Mapping[str, xr.Dataset], data: xr.Dataset) -> xr.Dataset:
    """Stack the Datasets of single losses again, which `each` took out of results like `data`."""
    variables, attrs = [], []
    for part, about in zip(parts.values(), data["about"].values, strict=True):
        own = parsed(str(about))
        names = [*own["variables"], *(name for name in part.variables if name not in own["variables"])]
        variables.append({str(name): _as_tuple(part[name].variable) for name in names})
        attrs.append({name: part.attrs[name] for name in [*own["attrs"], *part.attrs] if name in part.attrs})
    return stacked(variables, attrs, list(parts), data.attrs["title"])


def _as_tuple(variable: xr.Variable) -> tuple:
    """Dims, values and labels of a variable, as `cocos.results.labelled` takes them."""
    dims = variable.dims[0] if len(variable.dims) == 1 else variable.dims
    return (dims, variable.values, *(variable.attrs[name] for name in ("long_name", "units") if name in variable.attrs))


def _dataset_of_loss(data: xr.Dataset, place: int) -> xr.Dataset:
    about = parsed(str(data["about"].values[place]))
    places: dict[Any, Any] = {name: slice(size) for name, size in about["sizes"].items()}
    one = data.isel({"loss": place} | places).drop_vars(["loss", "about"])[list(about["variables"])]
    one = one.assign({name: one[name].astype(kind) for name, kind in about["variables"].items()})
    one.attrs = data.attrs | about["attrs"]
    return one
