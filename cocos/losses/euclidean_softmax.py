"""Euclidean softmax: cross-entropy of functions of the distances to proxies."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Positive
from cocos.embeddings.scores import Pairs
from cocos.losses.base import SoftmaxLoss

CURVES = {"t^2": 2.0, "sqrt": 0.5, "t^1.5": 1.5}  # powers of the distance


def line(f: str | float) -> float | None:
    """The number k of a line kt that is written `t`, `k`, `kt` or `k*t`; None for what is none.

    Examples:
        >>> from cocos.losses.euclidean_softmax import line
        >>> line("t"), line("0.97"), line("0.97t"), line("0.97*t"), line("t^2")
        (1.0, 0.97, 0.97, 0.97, None)
    """
    if f == "t":
        return 1.0
    if isinstance(f, str) and f.endswith("t"):
        f = f.removesuffix("t").rstrip().removesuffix("*")
    try:
        return float(f)
    except (TypeError, ValueError):
        return None


def value_and_slope(f: str, distance: Tensor) -> tuple[Tensor, Tensor]:
    """Return f of the distance and its derivative, elementwise; a power has the derivative 0 at distance 0."""
    if f not in CURVES:
        return line(f) * distance, torch.full_like(distance, line(f))
    apart, exponent = distance > 0, CURVES[f]
    base = torch.where(apart, distance, 1)
    return torch.where(apart, base**exponent, 0), exponent * torch.where(apart, base ** (exponent - 1), 0)


@dataclass(frozen=True)
class EuclideanSoftmax(SoftmaxLoss):
    r"""Cross-entropy of each positive of a query against its negatives, on distances, summed over the positives.

    .. math::
        \ell(d) = \sum_{p \in P} \log \left( 1 + \sum_{n \in N} e^{T (f_1(d_p) - f_2(d_n))} \right)

    P are the positives of the query (the proxy of its class), N its negatives (the other proxies), d the Euclidean
    distances, minus the score, between raw embeddings, and T the scale. The slope of f multiplies
    the force: under t² it grows with the distance and the query drops out of its own gradient, under √t it has
    no bound at the own proxy, where the slope is taken as 0 (at distance 0 no force has a direction).

    Args:
        f1: function of the distance to a positive: `t` (eq. 4, the default), `t^2`, `sqrt`, `t^1.5`, or a number k
            for kt, also written `0.97t` or `0.97*t`.
        f2: function of the distance to a negative, likewise.
        scale: T, in units of 1/f. The paper does not state it for this study; 1 is eq. 4 as printed.

    Counts: negatives with a softmax probability above eps; unit T|P| times the slope of f at the distance.
    Net: push equals pull for every query where f1 and f2 are the same line; else not.
    Source: DeMoor & Prevost 2024, Realigned softmax warping, arXiv:2408.15656, eqs. 4-6 and 8, Table III.

    Examples:
        Three equal distances have a third of the probability each; the positive lacks the other two thirds.

        >>> pairs = cocos.Pairs(torch.tensor([[-1.0, -1.0, -1.0]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("euclidean_softmax")
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.6667,  0.3333,  0.3333]])
    """

    f1: str = "t"
    f2: str = "t"
    scale: Positive = 1.0
    metric = "euclidean"
    family = "proxy"

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("f1", "f2"):
            f = getattr(self, field)
            factor = None if f in CURVES else line(f)
            if f not in CURVES and (factor is None or not 0 < factor < math.inf):
                raise ValueError(f"{field} must be t, {', '.join(CURVES)} or a finite number above 0, got {f}")
            canonical = f if factor is None else "t" if factor == 1 else repr(factor)
            object.__setattr__(self, field, canonical)

    @property
    def softmax_scale(self) -> float | None:
        """λ of Σ exp(λ s), the only term in which the negatives of a query appear; None where f2 is a curve."""
        return None if self.f2 in CURVES else self.scale * line(self.f2)

    @property
    def balanced(self) -> bool:
        """Adding a constant to all distances of a query changes nothing: f1 and f2 are the same line."""
        return self.f1 == self.f2 and self.f1 not in CURVES

    def logits(self, pairs: Pairs) -> tuple[Tensor, Tensor | float]:
        """Logits -T f1(d) of positives and -T f2(d) of others, and their slopes T f', (Q, C) each."""
        first, second = (value_and_slope(f, -pairs.scores) for f in (self.f1, self.f2))
        value, slope = (torch.where(pairs.positive, *both) for both in zip(first, second, strict=True))
        return -self.scale * value, self.scale * slope

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a candidate with all probability for every positive, (Q, C): T|P| times its slope (1 for 0)."""
        slope = self.logits(pairs)[1]
        return torch.where(slope > 0, slope, self.scale) * pairs.positives()
