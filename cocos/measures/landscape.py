"""What does a loss look like around its proxies, and where does it want an embedding to be?"""

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import losses, results
from cocos.base.errors import InputError
from cocos.embeddings import Embeddings, scores
from cocos.embeddings.scores import Pairs
from cocos.engine.sampling import whole_number
from cocos.measures import _minima, _narrow
from cocos.measures._distance_functions import CurveSoftmax, parse
from cocos.measures.weight_curve import MOST_POINTS

# Margin of the picture around the proxies, in units of their largest distance.
MARGIN = 0.75
# Largest value that is drawn: its levels are differences and quantiles.
HIGHEST = 1e100


@dataclass(frozen=True)
class _Plane:
    """Points of a plane: origin + coordinates @ axes."""

    origin: Tensor  # (D,)
    axes: Tensor  # (2, D), orthonormal

    def points(self, coordinates: Tensor) -> Tensor:
        return self.origin + coordinates @ self.axes

    def coordinates(self, points: Tensor) -> Tensor:
        return (points - self.origin) @ self.axes.T


def landscape(
    f1: str = "t",
    f2: str | None = None,
    *,
    loss=None,
    alpha: float = 3.0,
    k1: float = 0.65,
    k2: float = 1.5,
    delta: float = 1.0,
    scale: float = 1.0,
    distance: float = 10.0,
    proxies: int = 2,
    embeddings: Embeddings | None = None,
    rows: Sequence[int] = (0, 1, 2),
    points: int = 161,
) -> xr.Dataset:
    """The loss of an embedding at every position in the plane of two or more proxies, the first of which is its own.

    For two proxies and functions of the distance it says where the minimum must be (Proposition III.2: behind its own
    proxy, on the line through both, where the slope of f1 less that of f2 changes its sign), and where a descent that
    only knows the gradient ends.

    Args:
        f1: function of the distance to the own proxy: see `cocos.measures._distance_functions.parse`.
        f2: of the distance to the others; None: f1 itself, and t where f1 is the warp or a factor.
        loss: a loss of the shelf in their place, or its name.
        alpha: of the warp, as are the next three.
        k1: slope inside.
        k2: slope outside.
        delta: multiplier of the factor that is held constant.
        scale: T, the factor of the exponents.
        distance: between the proxies, which form a regular polygon.
        proxies: how many.
        embeddings: their candidates are the proxies, in the place of a polygon.
        rows: which of them, two or three; the first one is the own.
        points: on each side of the picture.

    Returns:
        `loss` (y, x), in nats where the loss is; `height` (y, x), the landscape that the gradient is the slope of,
        which differs where a part of the loss is held constant (the warp); `force_x` and `force_y` (y, x), minus the
        gradient; `proxy_x` and `proxy_y` (proxy,); `binary` (other, y, x), the loss with each other proxy alone;
        `predicted` and `found` (axis,), the minimum; what they say in words, their distance, and the verdict on Lemma
        III.1 are in the attributes.

    Raises:
        InputError: a function, a number or rows that cannot be used; a loss that couples queries.

    Examples:
        A warp with α = 3 puts the minimum 3 behind the own proxy:

        >>> data = cocos.measures.landscape("warp", alpha=3, k1=0.65, k2=1.5, points=5)
        >>> round(abs(float(data["found"][0] - data["proxy_x"][0])), 2)
        3.0
    """
    whole_number("proxies", proxies, 2, MOST_POINTS)
    whole_number("points", points, 5, MOST_POINTS)
    if not 0 < distance < math.inf:
        raise InputError(f"distance: {distance}, expected a finite number above 0")
    chosen = _chosen(f1, f2, loss, scale, alpha=alpha, k1=k1, k2=k2, delta=delta)
    corners, plane = _polygon(proxies, distance) if embeddings is None else _spanned(embeddings, rows)
    places = plane.coordinates(corners)
    size = float(torch.cdist(places, places).max())
    x, y = _grid(places, size, points)
    coordinates = torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1).reshape(-1, 2)
    value = _value(chosen, plane, corners)
    grid = (len(y), len(x))
    fields = {"loss": value(coordinates).reshape(grid), "force": _force(value, coordinates).reshape(*grid, 2)}
    fields["height"] = _value(_lifted(chosen), plane, corners)(coordinates).reshape(grid)
    fields["binary"] = torch.stack([
        _value(chosen, plane, corners[[0, k]])(coordinates).reshape(grid) for k in range(1, len(corners))
    ])
    if not max(float(fields[name].abs().nan_to_num(math.inf).max()) for name in ("loss", "height")) < HIGHEST:
        raise InputError(
            f"landscape: values above {HIGHEST:g} cannot be drawn; take a smaller scale or distance (the proxies are "
            f"{size:g} apart)"
        )
    about = {"proxies": len(corners), "distance": size, "points": points}
    falling = (_odds if isinstance(chosen, CurveSoftmax) else _value)(chosen, plane, corners)
    found, state = _minima.descended(functools.partial(_force, falling), places, size)
    predicted, why = None, None
    if isinstance(chosen, CurveSoftmax):
        about |= {"f1": chosen.f1.name, "f2": chosen.f2.name, "scale": chosen.scale}
        about |= _minima.lemma(chosen, _odds(_lifted(chosen), plane, corners), coordinates.reshape(*grid, 2), places)
        if len(corners) == 2 and about["monotone"]:
            predicted, why = _minima.predicted(chosen, places)
        elif len(corners) == 2:
            why = "Proposition III.2 is for monotone functions"
    attrs = _attributes(chosen, about, predicted, why, found, state)
    unit = "nats" if "in nats" in (inspect.getdoc(type(chosen).__call__) or "") else "1"
    return _labelled(x, y, fields, places, predicted, found, attrs, unit)


def _labelled(
    x: Tensor,
    y: Tensor,
    fields: dict[str, Tensor],
    places: Tensor,
    predicted: Tensor | None,
    found: Tensor | None,
    attrs: dict,
    unit: str,
) -> xr.Dataset:
    """Label the fields, (y, x), the proxies, and both minima, NaN where there is none."""
    none, cells, slope = np.full(2, np.nan), ("y", "x"), f"{unit} per unit of distance"
    variables = {
        "loss": (cells, fields["loss"], "loss of an embedding here", unit),
        "height": (cells, fields["height"], "landscape whose slope is the gradient", unit),
        "force_x": (cells, fields["force"][..., 0], "minus the gradient, to the right", slope),
        "force_y": (cells, fields["force"][..., 1], "minus the gradient, upwards", slope),
        "binary": (("other", *cells), fields["binary"], "loss with one other proxy alone", unit),
        "proxy_x": ("proxy", places[:, 0], "proxies, the own one first", "distance"),
        "proxy_y": ("proxy", places[:, 1], "proxies, the own one first", "distance"),
        "predicted": ("axis", none if predicted is None else predicted, "minimum by Proposition III.2", "distance"),
        "found": ("axis", none if found is None else found, "minimum by a descent along the gradient", "distance"),
        "x": ("x", x, "in the plane of the proxies", "distance"),
        "y": ("y", y, "in the plane of the proxies", "distance"),
        "axis": ("axis", ["x", "y"]),
        "other": ("other", range(1, len(places)), "proxy of another class", "1"),
    }
    return results.labelled(variables, attrs)


def _chosen(f1: str, f2: str | None, loss, scale: float, **warp: float):
    """The subject of a landscape: functions of the distance, or a loss."""
    if loss is None:
        if f2 is None:
            own = parse(f1, name="f1", **warp)
            f2 = "t" if own.height or own.name.removesuffix("t").replace(".", "", 1).isdigit() else f1
        return CurveSoftmax(parse(f1, name="f1", **warp), parse(f2, name="f2", **warp), scale)
    if f1 != "t" or f2 is not None:
        raise InputError(f"f1 {f1!r} and a loss: choose one of them")
    loss = losses.load(loss) if isinstance(loss, str) else losses.of(loss)
    if losses.traits(loss).weights != "score" or loss.couples != "query":
        raise InputError(f"{losses.name_of(loss)} couples the embeddings of a batch: one alone has no landscape")
    _narrow.check(loss, "landscape", teacher=False)
    if loss.metric == "mahalanobis":
        raise InputError(f"{losses.name_of(loss)} reads variances beside its proxies: its landscape is not drawn")
    return loss


def _lifted(chosen):
    """With the functions that the gradient is the slope of."""
    if not isinstance(chosen, CurveSoftmax):
        return chosen
    first, second = (replace(f, value=f.height or f.value) for f in (chosen.f1, chosen.f2))
    return replace(chosen, f1=first, f2=second)


def _polygon(number: int, distance: float) -> tuple[Tensor, _Plane]:
    """Proxies in a regular polygon about the origin; neighbours are `distance` apart."""
    angle = torch.arange(number, dtype=torch.float64) * (2 * math.pi / number)
    circle = torch.stack([-angle.cos(), angle.sin()], dim=1)
    corners = distance / (2 * math.sin(math.pi / number)) * torch.where(circle.abs() < 1e-12, 0, circle)
    return corners, _Plane(torch.zeros(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64))


def _spanned(embeddings: Embeddings, rows: Sequence[int]) -> tuple[Tensor, _Plane]:
    """Two or three candidates, and the plane through them: from the first one to the second goes to the right."""
    rows, number = [int(row) for row in rows], len(embeddings.candidate)
    if len(rows) not in {2, 3} or len(set(rows)) < len(rows) or min(rows) < 0 or max(rows) >= number:
        raise InputError(f"rows: {rows}, expected two or three different ones from 0 to {number - 1}")
    corners = embeddings.candidate[rows].detach().to("cpu", torch.float64)
    sides = corners[1:] - corners[0]
    if len(rows) == 2:  # any direction beside the line: the one on which their mean lies, if it lies beside it
        sides = torch.cat([sides, -corners[:1]])
        if float(torch.linalg.matrix_rank(sides)) < 2:
            sides[1] = torch.eye(sides.shape[1], dtype=torch.float64)[int(sides[0].abs().argmin())]
    if sides.shape[1] < 2 or torch.linalg.matrix_rank(sides) < 2:
        raise InputError(f"rows: {rows} of the candidates lie on one line, so they span no plane; choose others")
    axes = torch.linalg.qr(sides.T).Q.T
    axes = axes * torch.where((axes * sides).sum(dim=1) < 0, -1.0, 1.0)[:, None]
    return corners, _Plane(corners.mean(dim=0), axes)


def _grid(places: Tensor, size: float, points: int) -> tuple[Tensor, Tensor]:
    """Coordinates of the picture: a square about the proxies."""
    middle = (places.amin(dim=0) + places.amax(dim=0)) / 2
    half = float((places - middle).abs().max()) + MARGIN * size
    return tuple(torch.linspace(float(m) - half, float(m) + half, points, dtype=torch.float64) for m in middle)


def _pairs(chosen, plane: _Plane, corners: Tensor, coordinates: Tensor) -> Pairs:
    """Embeddings in the plane as queries of the first proxy's class; the zero vector, which no cosine has, is moved."""
    query = plane.points(coordinates)
    if chosen.metric in scores.NORMALISED_SIDES:
        query = torch.where((query == 0).all(dim=1, keepdim=True), query.new_tensor(1e-9), query)
    score = scores.METRICS[chosen.metric](query, corners)
    if chosen.metric == "euclidean":  # the distance of a point to itself has no gradient
        score = -(query[:, None] - corners).square().sum(dim=2).clamp(min=1e-300).sqrt()
    positive = torch.zeros_like(score, dtype=torch.bool)
    positive[:, 0] = True
    blank = Pairs(score.detach(), positive, None, torch.arange(len(corners)), None, scores.length(corners))
    return blank.with_scores(score, (query * query).sum(dim=1).clamp(min=1e-300).sqrt())


def _value(chosen, plane: _Plane, corners: Tensor) -> Callable[[Tensor], Tensor]:
    """The loss at coordinates, (N,)."""
    return lambda coordinates: chosen(_pairs(chosen, plane, corners, coordinates))


def _force(value: Callable[[Tensor], Tensor], coordinates: Tensor) -> Tensor:
    """Minus the gradient of a function of coordinates, (N, 2)."""
    at = coordinates.detach().requires_grad_()
    return -torch.autograd.grad(value(at).sum(), at)[0].nan_to_num(0.0, 0.0, 0.0)


def _odds(chosen: CurveSoftmax, plane: _Plane, corners: Tensor) -> Callable[[Tensor], Tensor]:
    """Logarithm of the odds of the other classes: it falls where the loss does, and never runs out of digits."""

    def odds(coordinates: Tensor) -> Tensor:
        exponents = chosen.exponents(_pairs(chosen, plane, corners, coordinates))
        return exponents[:, 1:].logsumexp(dim=1) - exponents[:, 0]

    return odds


def _attributes(
    chosen, about: dict, predicted: Tensor | None, why: str | None, found: Tensor | None, state: str
) -> dict:
    what = f"f1 = {about['f1']}, f2 = {about['f2']}" if "f1" in about else repr(chosen)
    attrs = results.provenance(chosen, title=f"Landscape of {what}", **about)
    attrs |= {"found_as": state} | ({"predicted_as": why} if why else {})
    if predicted is not None and found is not None:
        attrs["gap"] = float((predicted - found).norm())
    return attrs


def document(data: xr.Dataset) -> dict:
    """The JSON document of a landscape: proxies, and the minimum as predicted and found, (x, y) or None."""

    def place(name: str) -> list[float] | None:
        values = data[name].values.tolist() if name in data else []
        return values if values and bool(np.isfinite(values).all()) else None

    attrs = data.attrs
    proxies = np.stack([data["proxy_x"].values, data["proxy_y"].values], axis=1)
    return {
        "cocos": attrs["cocos"],
        "title": attrs["title"],
        "loss": results.about_loss(attrs),
        "proxies": proxies.tolist(),
        "distance": float(attrs["distance"]),
        "predicted": place("predicted"),
        "found": place("found"),
        **{name: attrs.get(name) for name in ("predicted_as", "found_as", "gap", "lemma")},
    }
