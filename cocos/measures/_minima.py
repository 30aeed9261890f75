"""Where a landscape has its minimum: as a descent finds it, and as Proposition III.2 and Lemma III.1 predict it.

Source: DeMoor & Prevost 2024, Realigned softmax warping, arXiv:2408.15656.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from cocos.measures._distance_functions import CurveSoftmax

# Points of the line on which a change of sign is searched for.
AXIS_POINTS = 200_001
# Distance from the own proxy at which the search for a minimum ends, in distances between the proxies.
FARTHEST = 20.0
# Points on the circle whose mean force a step of the descent follows.
CIRCLE_POINTS = 8
# Steps after which the circle is doubled if they led straight on, and halved otherwise.
DESCENT_STEPS = 15
# Rounds of such steps in which the circle stays above a twentieth of the distance.
WIDE_ROUNDS = 40
# Radius at which the descent ends, in units of the distance.
SHORTEST_RADIUS = 1e-8
# Extrema that are examined; cells and times that each is magnified.
EXTREMA, ZOOM, ZOOMS = 40, 6, 8
# Relative difference of two slopes that are equal.
EQUAL_SLOPES = 1e-9
# Starts of the descent relative to the own proxy, in units of the distance.
STARTS = ((0.4, 0.3), (0.1, -0.5), (-0.4, 0.6), (-0.2, -0.1), (0.7, 0.05), (-0.8, -0.4))


def descended(force: Callable[[Tensor], Tensor], places: Tensor, size: float) -> tuple[Tensor | None, str]:
    """Where a descent ends that only knows the force: from several places, with ever shorter steps.

    A step follows the mean force on a small circle, so that it slides along a kink and does not stop there.
    """
    at = places[0] + size * torch.tensor(STARTS, dtype=places.dtype)
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
        far = (at - places[0]).norm(dim=1) > FARTHEST * size
    if bool(far.all()):
        return None, "none: it runs away"
    away = (at - places[0]).norm(dim=1)
    if float(torch.cdist(at, at).max()) < 1e-4 * size:
        return at.mean(dim=0), "a minimum"
    ends = dict.fromkeys(f"{float(end):.4g}" for end in (away.min(), away.max()))
    return None, f"no single one: the ends lie {' to '.join(ends)} from the own proxy"


def predicted(chosen: CurveSoftmax, places: Tensor) -> tuple[Tensor | None, str]:
    """The minimum by Proposition III.2, on the line through both proxies, and why it is there."""
    size = float((places[0] - places[1]).norm())
    behind = (places[0] - places[1]) / size

    def excess(t: Tensor) -> Tensor:
        return chosen.f1.slope(t) - chosen.f2.slope(t + size)

    distance = torch.linspace(0, FARTHEST * size, AXIS_POINTS, dtype=places.dtype)[1:]
    slope = excess(distance)
    room = EQUAL_SLOPES * float(torch.maximum(slope.abs().max(), chosen.f2.slope(distance).abs().max()))
    if bool((slope.abs() <= room).all()):
        return None, "the slopes are equal: every point behind the own proxy is as good"
    if slope[0] >= -room:
        return places[0], "the slope of f1 is the larger one from the start: at the own proxy"
    over = (slope > room).nonzero().flatten()
    if not len(over):
        return None, "the slope of f1 stays below that of f2: none, it runs away"
    low, high = distance[over[0] - 1], distance[over[0]]
    while high - low > 1e-12 * size:
        middle = (low + high) / 2
        low, high = (low, middle) if float(excess(middle[None])[0]) > room else (middle, high)
    return places[0] + high * behind, f"the slope of f1 exceeds that of f2 from {float(high):.6g} behind the own proxy"


def lemma(chosen: CurveSoftmax, value: Callable[[Tensor], Tensor], coordinates: Tensor, places: Tensor) -> dict:
    """Lemma III.1: extrema lie on the line through both proxies alone where f1 and f2 are monotone."""
    farthest = float(torch.cdist(coordinates.reshape(-1, 2), places).max())
    distance = torch.linspace(0, farthest, 2001, dtype=places.dtype)[1:]
    monotone = all(bool((f.slope(distance) > 0).all()) for f in (chosen.f1, chosen.f2))
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
