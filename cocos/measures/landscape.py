"""What does a loss look like around its proxies, and where does it want an embedding to be?

Source: DeMoor & Prevost 2024, Realigned softmax warping, arXiv:2408.15656.
"""

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import losses, results
from cocos.base import ranges
from cocos.base.errors import InputError
from cocos.base.ranges import Range, one_of, whole
from cocos.counting.weights import check_pairs
from cocos.embeddings import Embeddings, similarities
from cocos.embeddings.scores import Pairs
from cocos.losses.euclidean_softmax import CURVES, line
from cocos.measures.weight_curve import MOST_POINTS

# Margin of the picture around the proxies, in units of their largest distance.
MARGIN = 0.75
# Largest value that is drawn: its levels are differences and quantiles.
HIGHEST = 1e100
# Distances that functions of t can be of.
BASES = ("euclidean", "squared_euclidean", "cosine", "manhattan")
# Points of the line on which a change of sign is searched for.
AXIS_POINTS = 200_001
# Distance from the own proxy at which the search for a minimum ends, in distances between the proxies or in α.
FARTHEST = 20.0
# Points on the circle whose mean force a step of the descent follows.
CIRCLE_POINTS = 8
# Steps after which the circle is doubled if they led straight on, and halved otherwise.
DESCENT_STEPS = 15
# Rounds of such steps in which the circle stays above a twentieth of the distance.
WIDE_ROUNDS = 40
# Radius at which the descent ends, in units of the distance.
SHORTEST_RADIUS = 1e-8
# Angles and distances at which a line search looks for the end of a fall, and its bisections.
SEARCHED, BISECTIONS = 512, 60
# Line searches along circle and ray, and the smallest force that is one, in parts of the largest.
SEARCHES, LEAST_FORCE = 40, 1e-11
# Largest distance, in units of that between the proxies, of ends that are one.
SAME_PLACE = 1e-4
# Extrema that are examined; cells and times that each is magnified.
EXTREMA, ZOOM, ZOOMS = 40, 6, 8
# Relative difference of two slopes that are equal.
EQUAL_SLOPES = 1e-9
# Starts of the descent relative to the own proxy, in units of the distance.
STARTS = ((0.4, 0.3), (0.1, -0.5), (-0.4, 0.6), (-0.2, -0.1), (0.7, 0.05), (-0.8, -0.4))
Distance = Annotated[float, Range("a finite number above 0", lambda number: 0 < number < math.inf)]


@dataclass(frozen=True)
class Curve:
    """A function of a distance t ≥ 0, and the slope that a gradient sees.

    Args:
        name: as it is written.
        value: of distances, element by element.
        height: a function whose derivative is the slope; None: the value itself. They differ where a part of the value
            is held constant, as in the warp.
    """

    name: str
    value: Callable[[Tensor], Tensor] = field(repr=False, compare=False)
    height: Callable[[Tensor], Tensor] | None = field(default=None, repr=False, compare=False)

    def slope(self, distance: Tensor) -> Tensor:
        """Derivative at each distance by torch.func, of the shape of `distance`."""
        return torch.func.grad(lambda t: self.value(t).sum())(distance)


def parse(
    text: str | Callable,
    *,
    name: str = "f",
    alpha: float = 3.0,
    k1: float = 0.65,
    k2: float = 1.5,
    delta: float = 1.0,
) -> Curve:
    """The function that a text names.

    Args:
        text: `t`, `t^2`, `sqrt`, `t^1.5`, a line `0.97`, `0.97t` or `0.97*t`, or `warp`; or a function of a tensor of
            distances, element by element.
        name: of the function, for the error.
        alpha: of the warp, as are the next ones: its boundary.
        k1: its slope inside, below 1.
        k2: its slope outside, above 1.
        delta: multiplier of the factor that is held constant.
    """
    if callable(text):
        called = getattr(text, "__name__", "<lambda>")
        return _checked(Curve(name if called == "<lambda>" else called, text), name)
    text = str(text).strip()
    if text == "warp":
        for what, value in (("alpha", alpha), ("delta", delta)):
            if not 0 <= value < math.inf:
                raise InputError(f"{what}: {value}, expected a finite number of at least 0")
        if not 0 < k1 < 1:
            raise InputError(f"k1: {k1}, expected a number above 0 and below 1 (0 < k1 < 1 < k2 in eq. 7 of the paper)")
        if not 1 < k2 < math.inf:
            raise InputError(f"k2: {k2}, expected a finite number above 1 (0 < k1 < 1 < k2 in eq. 7 of the paper)")
        return Curve(
            f"warp(alpha={alpha:g}, k1={k1:g}, k2={k2:g}, delta={delta:g})",
            lambda t: torch.where(t < alpha, k1 * t + delta * (t - k1 * t).detach(), k2 * t + (1 - k2) * alpha),
            lambda t: alpha + torch.where(t < alpha, k1, k2) * (t - alpha),
        )
    if text in CURVES:  # at distance 0 the value is 0, and no force has a direction
        return Curve(text, lambda t: torch.where(t > 0, torch.where(t > 0, t, 1.0) ** CURVES[text], 0.0))
    factor = line(text)
    if factor is None:
        raise InputError(f"{name}: {text[:40]!r}, expected t, {', '.join(CURVES)}, a line such as 0.97t, or warp")
    if not 0 < factor < math.inf:
        raise InputError(f"{name}: {text!r}, expected a finite factor above 0")
    return Curve("t" if factor == 1 else f"{factor:g}t", lambda t: factor * t)


def _checked(curve: Curve, name: str) -> Curve:
    """Refuse a function of the user's without a finite value and slope at every distance that is tried."""
    distance = torch.logspace(-2, 2, 41, dtype=torch.float64)
    for what, values in (("value", curve.value(distance)), ("slope", curve.slope(distance))):
        if not values.isfinite().all():
            at = float(distance[~values.isfinite()][0])
            raise InputError(f"{name}: {curve.name} has no finite {what} at t = {at:g}")
    return curve


@dataclass(frozen=True)
class CurveSoftmax(losses.Loss):
    r"""Cross-entropy of each positive against the negatives, on any functions of the distances: eq. 5 of the paper.

    .. math:: \ell(d) = \sum_{p \in P} \log \left( 1 + \sum_{n \in N} e^{T (f_1(d_p) - f_2(d_n))} \right)

    Args:
        f1: of the distance to a positive.
        f2: of the distance to a negative.
        scale: T.
        metric: of the distances, one of `BASES`; `cosine` is 1 minus the cosine. Section V of the paper.

    Source: DeMoor & Prevost 2024, eqs. 5-7.
    """

    f1: Curve
    f2: Curve
    scale: float = 1.0
    metric: str = "euclidean"
    spelling = "curves"

    def __post_init__(self):
        if not 0 < self.scale < math.inf:
            raise InputError(f"scale: {self.scale}, expected a finite number above 0")

    @property
    def parameters(self) -> dict:
        """The parameters, as text and numbers."""
        base = {} if self.metric == "euclidean" else {"metric": self.metric}
        return {"f1": self.f1.name, "f2": self.f2.name, "scale": self.scale} | base

    @property
    def gradient(self) -> str:
        """Kind of the weights: see `cocos.losses.Loss`."""
        return "stop_gradient" if self.f1.height or self.f2.height else "autograd"

    def exponents(self, pairs: Pairs) -> Tensor:
        """T times -f1 at the positives and -f2 at the negatives, (Q, C)."""
        distance = -pairs.scores
        return -self.scale * torch.where(pairs.positive, self.f1.value(distance), self.f2.value(distance))

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,), in nats."""
        return pairs.cross_entropy(self.exponents(pairs))


@dataclass(frozen=True)
class _Plane:
    """Points of a plane: origin + coordinates @ axes."""

    origin: Tensor  # (D,)
    axes: Tensor  # (2, D), orthonormal

    def points(self, coordinates: Tensor) -> Tensor:
        return self.origin + coordinates @ self.axes

    def coordinates(self, points: Tensor) -> Tensor:
        return (points - self.origin) @ self.axes.T


@ranges.checked
def landscape(
    f1: str | Callable = "t",
    f2: str | Callable | None = None,
    *,
    loss=None,
    alpha: float = 3.0,
    k1: float = 0.65,
    k2: float = 1.5,
    delta: float = 1.0,
    scale: float = 1.0,
    metric: Annotated[str, one_of(BASES)] = "euclidean",
    distance: Distance = 10.0,
    proxies: Annotated[int, whole(2, MOST_POINTS)] = 2,
    embeddings: Embeddings | None = None,
    rows: Sequence[int] = (0, 1, 2),
    points: Annotated[int, whole(5, MOST_POINTS)] = 161,
) -> xr.Dataset:
    """The loss of an embedding at every position in the plane of two or more proxies, the first of which is its own.

    For two proxies and functions of the distance it says where the minimum must be (Proposition III.2: behind its own
    proxy, on the line through both, where the slope of f1 less that of f2 changes its sign), and where a descent that
    only knows the gradient ends.

    Args:
        f1: function of the distance to the own proxy: t, t^2, sqrt, t^1.5, 0.97t or another line, or warp. In Python
            also a function of a tensor of distances, such as `lambda t: t + 0.3 * t.sin()`.
        f2: function of the distance to the other proxies. None: f1; t for the warp and lines.
        loss: a loss of the shelf in their place, or its name.
        alpha: of the warp, as are the next three: its boundary, that of the own proxy's class.
        k1: slope of the warp inside its boundary, below 1.
        k2: slope of the warp outside its boundary, above 1.
        delta: multiplier of the factor that is held constant.
        scale: factor of the exponents. It is T of the paper.
        metric: distance t: euclidean, squared_euclidean, cosine or manhattan. `cosine` is 1 minus the cosine.
        distance: distance between two neighbouring proxies.
        proxies: number of proxies, in a regular polygon.
        embeddings: their candidates are the proxies, in the place of a polygon.
        rows: which of them, two or three; the first one is the own.
        points: on each side of the picture.

    Returns:
        `loss` (y, x), in nats where the loss is; `height` (y, x), the landscape that the gradient is the slope of,
        which differs where a part of the loss is held constant (the warp); `force_x` and `force_y` (y, x), minus the
        gradient; `proxy_x` and `proxy_y` (proxy,); `binary` (other, y, x), the loss with each other proxy alone;
        `predicted` and `found` (axis,), the minimum; what they say in words, whether the descent has `converged`, their
        distance, and the verdict on Lemma III.1 are in the attributes.

    Examples:
        A warp with α = 3 puts the minimum 3 behind the own proxy:

        >>> data = cocos.measures.landscape("warp", alpha=3, k1=0.65, k2=1.5, points=5)
        >>> round(abs(float(data["found"][0] - data["proxy_x"][0])), 2)
        3.0
    """
    chosen = _subject(f1, f2, loss, scale, metric, alpha=alpha, k1=k1, k2=k2, delta=delta)
    corners, plane = _polygon(proxies, distance) if embeddings is None else _spanned(embeddings, rows)
    places = plane.coordinates(corners)
    size = float(torch.cdist(places, places).max())
    middle = (places.amin(dim=0) + places.amax(dim=0)) / 2  # of the picture: a square about the proxies
    half = float((places - middle).abs().max()) + MARGIN * size
    x, y = (torch.linspace(float(m) - half, float(m) + half, points, dtype=torch.float64) for m in middle)
    coordinates = torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1).reshape(-1, 2)
    value = _value(chosen, plane, corners)
    grid = (len(y), len(x))
    fields = {"loss": value(coordinates).reshape(grid), "force": _force(value, coordinates).reshape(*grid, 2)}
    fields["height"] = _value(_with_heights(chosen), plane, corners)(coordinates).reshape(grid)
    fields["binary"] = torch.stack([
        _value(chosen, plane, corners[[0, k]])(coordinates).reshape(grid) for k in range(1, len(corners))
    ])
    if not max(float(fields[name].abs().nan_to_num(math.inf).max()) for name in ("loss", "height")) < HIGHEST:
        raise InputError(
            f"landscape: values above {HIGHEST:g} cannot be drawn; take a smaller scale or distance (the proxies are "
            f"{size:g} apart)"
        )
    about = {"proxies": len(corners), "distance": size, "points": points}
    warped = isinstance(chosen, CurveSoftmax) and (chosen.f1.height or chosen.f2.height)
    reach = FARTHEST * max(size, alpha if warped else 0.0)
    falling = (_odds if isinstance(chosen, CurveSoftmax) else _value)(chosen, plane, corners)
    found, state, settled = descended(functools.partial(_force, falling), places, size, reach)
    about["converged"] = int(settled)
    predicted, why = None, None
    if isinstance(chosen, CurveSoftmax):
        about |= {"f1": chosen.f1.name, "f2": chosen.f2.name, "scale": chosen.scale}
        if "euclidean" in chosen.metric:
            about |= lemma(chosen, _odds(_with_heights(chosen), plane, corners), coordinates.reshape(*grid, 2), places)
            if len(corners) == 2 and about["monotone"]:
                predicted, why = predicted_minimum(chosen, places, reach)
            elif len(corners) == 2:
                why = "Proposition III.2 is for monotone functions"
        elif len(corners) == 2:
            why = "Proposition III.2 is for Euclidean distances"
    what = f"f1 = {about['f1']}, f2 = {about['f2']}" if "f1" in about else repr(chosen)
    if "f1" in about and metric != "euclidean":
        what += f", t = {metric.replace('_', ' ')} distance"
    attrs = results.provenance(chosen, title=f"Landscape of {what}", **about, found_as=state, predicted_as=why)
    if predicted is not None and found is not None:
        attrs["gap"] = float((predicted - found).norm())
    unit = "nats" if "in nats" in (inspect.getdoc(type(chosen).value) or "") else "1"
    none, cells, slope = np.full(2, np.nan), ("y", "x"), f"{unit} per unit of distance"
    variables = {
        "loss": (cells, fields["loss"], "loss", unit),
        "height": (cells, fields["height"], "height", unit),
        "force_x": (cells, fields["force"][..., 0], "minus the gradient, to the right", slope),
        "force_y": (cells, fields["force"][..., 1], "minus the gradient, upwards", slope),
        "binary": (("other", *cells), fields["binary"], "loss with one other proxy alone", unit),
        "proxy_x": ("proxy", places[:, 0], "proxies, the own one first", "distance"),
        "proxy_y": ("proxy", places[:, 1], "proxies, the own one first", "distance"),
        "predicted": ("axis", none if predicted is None else predicted, "predicted minimum", "distance"),
        "found": ("axis", none if found is None else found, "minimum by descent", "distance"),
        "x": ("x", x, "in the plane of the proxies", "distance"),
        "y": ("y", y, "in the plane of the proxies", "distance"),
        "axis": ("axis", ["x", "y"]),
        "other": ("other", range(1, len(places)), "proxy of another class", "1"),
    }
    return results.labelled(variables, attrs, measure="landscape")


def _subject(f1: str | Callable, f2: str | Callable | None, loss, scale: float, metric: str, **warp: float):
    """Choose the subject of a landscape: functions of the distance, or a loss."""
    if loss is None:
        own = parse(f1, name="f1", **warp)
        if f2 is None:
            f2 = "t" if own.height or line(own.name) is not None else f1
        return CurveSoftmax(own, parse(f2, name="f2", **warp), scale, metric)
    if f1 != "t" or f2 is not None:
        raise InputError(f"f1 {f1!r} and a loss: choose one of them")
    if metric != "euclidean":
        raise InputError(f"metric {metric!r} and a loss: it has a metric of its own")
    loss = losses.load(loss) if isinstance(loss, str) else losses.as_loss(loss)
    if loss.couples != "query":
        raise InputError(f"{loss.name} couples the embeddings of a batch: one alone has no landscape")
    check_pairs(loss, "landscape", teacher=False)
    if loss.metric == "mahalanobis":
        raise InputError(f"{loss.name} reads variances beside its proxies: its landscape is not drawn")
    return loss


def _with_heights(chosen):
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


def _pairs(chosen, plane: _Plane, corners: Tensor, coordinates: Tensor) -> Pairs:
    """Embeddings in the plane as queries of the first proxy's class; the zero vector, which no cosine has, is moved."""
    query = plane.points(coordinates)
    curves = isinstance(chosen, CurveSoftmax)
    if chosen.metric in similarities.NORMALISED_SIDES:
        query = torch.where((query == 0).all(dim=1, keepdim=True), query.new_tensor(1e-9), query)
    if chosen.metric == "euclidean":  # the distance of a point to itself has no gradient
        score = -(query[:, None] - corners).square().sum(dim=2).clamp(min=1e-300).sqrt()
    elif curves and chosen.metric == "manhattan":
        score = -(query[:, None] - corners).abs().sum(dim=2)
    else:
        score = similarities.METRICS[chosen.metric](query, corners)
        score = score - 1 if curves and chosen.metric == "cosine" else score
    positive = torch.zeros_like(score, dtype=torch.bool)
    positive[:, 0] = True
    blank = Pairs(score.detach(), positive, None, torch.arange(len(corners)), None, similarities.length(corners))
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


def descended(
    force: Callable[[Tensor], Tensor], places: Tensor, size: float, reach: float
) -> tuple[Tensor | None, str, bool]:
    """Where a descent ends that only knows the force, in words, and whether its ends no longer move.

    It starts from several places, with ever shorter steps.

    A step follows the mean force on a small circle, so that it slides along a kink and does not stop there. Where the
    ends still differ, line searches go on from them.
    """
    at = places[0] + size * torch.tensor(STARTS, dtype=places.dtype)
    weak = LEAST_FORCE * float(force(at).norm(dim=1).max())
    angle = torch.arange(CIRCLE_POINTS, dtype=places.dtype) * (2 * math.pi / CIRCLE_POINTS)
    circle, radius = torch.stack([angle.cos(), angle.sin()], dim=1), at.new_full((len(at), 1), size / 20)
    far, turn = torch.zeros(len(at), dtype=torch.bool), 0
    while bool((~far & (radius[:, 0] > SHORTEST_RADIUS * size)).any()):
        before, turn = at, turn + 1
        for _ in range(DESCENT_STEPS):
            here = force((at[:, None] + radius[:, None] * circle).reshape(-1, 2)).reshape(len(at), CIRCLE_POINTS, 2)
            longest = here.norm(dim=2).amax(dim=1)[:, None]
            at = at + radius * torch.where(longest > 0, here.mean(dim=1) / longest, 0)
        straight = (at - before).norm(dim=1, keepdim=True) > 0.7 * DESCENT_STEPS * radius
        least = size / 20 if turn < WIDE_ROUNDS else 0.0  # along a kink it gets ahead with long steps only
        radius = torch.where(straight & (radius >= size / 20), 2 * radius, (radius / 2).clamp(min=least))
        far = (at - places[0]).norm(dim=1) > reach
    if bool(far.all()):
        return None, "none: it runs away", True
    moved = 0.0
    if not _coincide(at, size):
        at = at.clone()
        at[~far], moved = _line_searched(force, at[~far], places[0], reach, size, weak)
    if _coincide(at, size):
        return at.mean(dim=0), "a minimum", True
    away = (at - places[0]).norm(dim=1)
    away = torch.where(away > SHORTEST_RADIUS * size, away, 0)
    ends = " to ".join(dict.fromkeys(f"{float(end):.4g}" for end in (away.min(), away.max())))
    if moved > SAME_PLACE * size:
        return None, f"not converged: the ends are {ends} from the own proxy and still move", False
    return None, f"no single one: the ends lie {ends} from the own proxy", True


def _coincide(at: Tensor, size: float) -> bool:
    """Whether all places are the same."""
    return float(torch.cdist(at, at).max()) < SAME_PLACE * size


def _line_searched(
    force: Callable[[Tensor], Tensor], at: Tensor, centre: Tensor, reach: float, size: float, weak: float
) -> tuple[Tensor, float]:
    """Line searches from each place, by turns along the circle about the own proxy and along the ray from it.

    A function of the distance to the own proxy has its kinks on such circles: on that of radius α the warp is constant,
    and a descent by steps hardly gets ahead there.

    Args:
        force: minus the gradient, of places (N, 2).
        at: the places, (N, 2).
        centre: the own proxy, (2,).
        reach: distance from it at which a search ends.
        size: largest distance between the proxies.
        weak: largest force that counts as none.

    Returns:
        The places, and how far the last two searches moved one at most.
    """
    rows = torch.arange(len(at))

    def slope(circle: bool, place: Tensor, fixed: Tensor) -> tuple[Tensor, Tensor]:
        """Places (N, K, 2) at K angles, or distances, and the force along the circle or the ray there, (N, K)."""
        angle, radius = (place, fixed) if circle else (fixed, place)
        ray = torch.stack(torch.broadcast_tensors(angle.cos(), angle.sin()), dim=-1)
        points = centre + radius[..., None] * ray
        along = torch.stack([-ray[..., 1], ray[..., 0]], dim=-1) if circle else ray
        found = force(points.reshape(-1, 2)).reshape(points.shape)
        return points, (found * along).sum(dim=-1)

    moved = math.inf
    part = torch.linspace(0, 1, SEARCHED, dtype=at.dtype)
    away = at - centre
    angle, radius = torch.atan2(away[:, 1], away[:, 0])[:, None], away.norm(dim=1)[:, None]
    for _ in range(SEARCHES):
        before = at
        for circle in (True, False):
            start, fixed = (angle, radius) if circle else (radius, angle)
            _, here = slope(circle, start, fixed)
            way = torch.where(here.abs() > weak, here.sign(), 0)
            span = 2 * math.pi if circle else torch.where(way < 0, radius, (reach - radius).clamp(min=0))
            place = start + way * span * part
            still = (slope(circle, place, fixed)[1] * way > weak).to(torch.int8)
            last = still.cumprod(dim=1).sum(dim=1).clamp(1, SEARCHED - 1)  # the first place from which nothing falls
            low, high = place[rows, last - 1][:, None], place[rows, last][:, None]
            for _ in range(BISECTIONS):
                middle = (low + high) / 2
                falls = slope(circle, middle, fixed)[1] * way > weak
                low, high = torch.where(falls, middle, low), torch.where(falls, high, middle)
            angle, radius = (low, radius) if circle else (angle, low)
        at = slope(True, angle, radius)[0][:, 0]
        moved = float((at - before).norm(dim=1).max())
        if moved < SHORTEST_RADIUS * size:
            break
    return at, moved


def predicted_minimum(chosen: CurveSoftmax, places: Tensor, reach: float) -> tuple[Tensor | None, str]:
    """Predict the minimum by Proposition III.2, on the line through both proxies, and say why it is there."""
    size = float((places[0] - places[1]).norm())
    behind = (places[0] - places[1]) / size

    f1, f2 = (_of_distance(f, chosen.metric) for f in (chosen.f1, chosen.f2))

    def excess(t: Tensor) -> Tensor:
        return f1.slope(t) - f2.slope(t + size)

    distance = torch.linspace(0, reach, AXIS_POINTS, dtype=places.dtype)[1:]
    slope = excess(distance)
    room = EQUAL_SLOPES * float(torch.maximum(slope.abs().max(), f2.slope(distance).abs().max()))
    over, under = ((sign * slope > room).nonzero().flatten().tolist() for sign in (1, -1))
    if not over and not under:
        return None, "the slopes are equal: every point behind the own proxy is as good"
    if over and over[0] < min(under, default=len(slope)):
        if over[0] == 0:
            return places[0], "the slope of f1 is the larger one from the start: at the own proxy"
        return (
            None,
            f"the slopes are equal up to {float(distance[over[0]]):.4g} behind the own proxy: all of that is as good",
        )
    over = [place for place in over if place > under[0]]
    if not over:
        return None, "the slope of f1 stays below that of f2: none, it runs away"
    low, high = distance[over[0] - 1], distance[over[0]]
    while high - low > 1e-12 * size:
        middle = (low + high) / 2
        low, high = (low, middle) if float(excess(middle[None])[0]) > room else (middle, high)
    return places[0] + high * behind, f"the slope of f1 exceeds that of f2 from {float(high):.6g} behind the own proxy"


def _of_distance(curve: Curve, metric: str) -> Curve:
    """Rewrite a function in terms of the Euclidean distance."""
    return replace(curve, value=lambda t: curve.value(t * t)) if metric == "squared_euclidean" else curve


def lemma(chosen: CurveSoftmax, value: Callable[[Tensor], Tensor], coordinates: Tensor, places: Tensor) -> dict:
    """Lemma III.1: extrema lie on the line through both proxies alone where f1 and f2 are monotone.

    The paper calls a function that never falls monotone; one that is flat in places may have plateaus off the line.
    """
    farthest = float(torch.cdist(coordinates.reshape(-1, 2), places).max())
    distance = torch.linspace(0, farthest, 2001, dtype=places.dtype)[1:]
    slopes = torch.stack([_of_distance(f, chosen.metric).slope(distance) for f in (chosen.f1, chosen.f2)])
    monotone = bool((slopes >= 0).all())
    about = {"monotone": int(monotone)}
    if len(places) > 2:
        return about
    height = value(coordinates.reshape(-1, 2)).reshape(coordinates.shape[:2])
    inner = height[1:-1, 1:-1]
    around = torch.stack([
        height[1 + a : height.shape[0] - 1 + a, 1 + b : height.shape[1] - 1 + b]
        for a in (-1, 0, 1)
        for b in (-1, 0, 1)
        if a or b
    ])
    extreme = (inner > around.amax(dim=0)) | (inner < around.amin(dim=0))
    along = (places[1] - places[0]) / (places[1] - places[0]).norm()
    away = coordinates[1:-1, 1:-1] - places[0]
    beside = (away[..., 0] * along[1] - away[..., 1] * along[0]).abs()
    cell = float(coordinates[0, 1, 0] - coordinates[0, 0, 0])
    candidates = coordinates[1:-1, 1:-1][extreme & (beside > 1.5 * cell)][:EXTREMA]
    off = sum(_extreme(value, place, cell) for place in candidates)
    level = (inner == around.amax(dim=0)) & (inner == around.amin(dim=0)) & (beside > 1.5 * cell)
    if monotone and bool(level.any()):
        told = (
            "f1 and f2 are monotone, and flat in places; plateaus off the line of the proxies, of points that are as "
            "good as those around them: a counterexample to Lemma III.1 as it is worded"
        )
        return about | {"off_line": off, "lemma": told}
    kind = "f1 and f2 are monotone" if monotone else "f1 or f2 is not monotone"
    where = f"{off} extrema off the line of the proxies" if off else "no extremum off the line of the proxies"
    verdict = "as Lemma III.1 has it" if monotone == (off == 0) else "against Lemma III.1"
    if not monotone and not off:
        verdict = "Lemma III.1 promises nothing here"
    return about | {"off_line": off, "lemma": f"{kind}; {where}: {verdict}"}


def _extreme(value: Callable[[Tensor], Tensor], place: Tensor, cell: float) -> bool:
    """Whether a point of a grid that is higher, or lower, than its neighbours is so on ever finer grids too."""
    ends = torch.arange(-ZOOM, ZOOM + 1, dtype=place.dtype) / ZOOM
    window = torch.stack(torch.meshgrid(ends, ends, indexing="xy"), dim=-1)
    start, high = value(place[None]), None
    for _ in range(ZOOMS):
        around = value((place + 1.5 * cell * window).reshape(-1, 2)).reshape(window.shape[:2])
        if high is None:
            high = bool(start > around.median())
        at = int((around if high else -around).argmax())
        row, column = divmod(at, len(ends))
        if {row, column} & {0, len(ends) - 1}:
            return False
        place, cell = place + 1.5 * cell * window[row, column], 1.5 * cell / ZOOM
    return True
