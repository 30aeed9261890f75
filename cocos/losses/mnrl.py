"""MNRL: the positive of a query against the batch, hard negatives and further directions, with filters."""

from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor

from cocos.base.ranges import Fraction, NonNegative, Positive, one_of
from cocos.embeddings import sources
from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss

FILTER_RULES = ("none", "guide", "self", "percent", "relative_margin", "factor")
PARTITIONS = ("joint", "per_direction")
HARDENED = ("all", "in-batch", "hard")
FIRST_DIRECTION = sources.DIRECTIONS[:1]
WITH_THE_POSITIVE = {*FIRST_DIRECTION, sources.SOURCES[sources.CANDIDATE_QUERY]}


@dataclass(frozen=True)
class MNRL(Loss):
    r"""Cross-entropy of the positive against in-batch candidates, own and others' hard negatives, and more directions.

    .. math:: \ell(s) = -\sum_{p \in P} \log \frac{e^{z_p}}{e^{z_p} + \sum_{n \in N'} e^{z_n}}, \quad
        z_n = \lambda s_n + a \, \mathrm{sg}(s_n)

    N' are the columns of the chosen directions that the filter keeps, and sg stops the gradient. With one direction and
    no hardness or filter this is NT-Xent at temperature 1/λ. The direction `candidate-query` has the score of the pair
    itself once more, as the published denominators do: there the positive is pushed.

    Args:
        scale: λ, in units of 1/score.
        directions: blocks of the denominator, `query-candidate` first; further ones are `query-query`,
            `candidate-query` and `candidate-candidate` (GTE has all four).
        partition: `joint`, one softmax over all directions; or `per_direction`, the mean of one for each, which needs
            the positive in each.
        hardness: a, 0 for none.
        hardness_on: negatives that become harder: `all`, `in-batch` or (own) `hard`; in the first direction.
        filter: negatives that are suspected to be positives: `none`; `guide`, where the teacher scores them above the
            positive - filter_margin; `self`, where s_n > s_p + filter_margin; `percent`, where s_n > percent * s_p,
            which keeps negatives above a positive whose score is below 0; `relative_margin`, where
            s_n > s_p - (1 - percent) |s_p|, which is `percent` above 0 and drops them below; `factor`, the rule of
            `self`, but suspects stay, with their logits times `factor`. Others leave the denominator. With several
            positives p is the best of them.
        filter_margin: in units of score.
        percent: of the positive's score, for the filters `percent` and `relative_margin` (95 % is a margin of 5 %).
        factor: for that filter.

    Counts: negatives with a softmax probability above eps; unit λ|P|. Symmetric MNRL is NT-Xent in both
    directions, which cocos counts one by one.
    Net: push equals pull for every query, unless suspects are weakened by a factor.
    Source: Henderson et al. 2017, arXiv:1705.00652, sec. 4; directions: Li et al. 2023, GTE, arXiv:2308.03281, eq. 1;
    hardness: Lan et al. 2025, arXiv:2503.04812, eq. 5; filters: GISTEmbed, arXiv:2402.16829; Qwen3 Embedding,
    arXiv:2506.05176, sec. 3; NV-Retriever, arXiv:2407.15831 (percent); sentence-transformers from August 2026 on, pull
    request 3821 (relative_margin).

    Examples:
        A negative above 95 % of the positive's score is left out:

        >>> loss = cocos.losses.load("mnrl", {"filter": "percent"})
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.78, 0.3]]), torch.tensor([[True, False, False]]))
        >>> loss.masked(pairs)
        tensor([[False,  True, False]])
    """

    scale: Positive = 20.0
    directions: tuple[str, ...] = FIRST_DIRECTION
    partition: Annotated[str, one_of(PARTITIONS)] = "joint"
    hardness: NonNegative = 0.0
    hardness_on: Annotated[str, one_of(HARDENED)] = "all"
    filter: Annotated[str, one_of(FILTER_RULES)] = "none"
    filter_margin: NonNegative = 0.1
    percent: Fraction = 0.95
    factor: Fraction = 0.5
    share = "probability"
    per_positive = True
    family = "softmax"
    aliases = {"GTE loss": {}, "improved contrastive loss": {}, "GISTEmbed": {}, "masked InfoNCE": {}}

    def __post_init__(self) -> None:
        super().__post_init__()
        accepted = WITH_THE_POSITIVE if self.partition == "per_direction" else {*sources.DIRECTIONS}
        repeated = len(set(self.directions)) < len(self.directions)
        if not set(self.directions) <= accepted or self.directions[:1] != FIRST_DIRECTION or repeated:
            further = ", ".join(sorted(accepted - {*FIRST_DIRECTION}))
            raise ValueError(
                f"directions must be {FIRST_DIRECTION[0]} and then some of {further} (partition {self.partition}), "
                f"each once, got {', '.join(self.directions) or 'none'}"
            )

    @property
    def balanced(self) -> bool:
        """Whether the weights of each query sum to zero."""
        return self.filter != "factor"

    @property
    def gradient(self) -> str:
        """The hardness stops the gradient."""
        return "stop_gradient" if self.hardness else "exact"

    @property
    def requires(self) -> tuple[str, ...]:
        """The guide's scores, for that filter."""
        return ("teacher",) if self.filter == "guide" else ()

    @property
    def softmax_scale(self) -> float | None:
        """λ of Σ exp(λ s), the only term in which the negatives appear; None with a filter, hardness or directions."""
        plain = self.directions == FIRST_DIRECTION and not self.hardness and self.filter == "none"
        return self.scale if plain else None

    @property
    def adds_statistics(self) -> bool:
        """Whether `extra` returns statistics: with a filter, which no fast reader of a family applies."""
        return self.filter == "percent"

    def unfiltered(self) -> "MNRL":
        """Return the same loss without a filter."""
        return replace(self, filter="none")

    def masked(self, pairs: Pairs) -> Tensor:
        """Negatives that the filter suspects, (Q, C) bool; a pair without a score of the guide is not suspected."""
        if self.filter == "none":
            return torch.zeros_like(pairs.negative)
        scores = self.teacher_scores(pairs, " with filter guide") if self.filter == "guide" else pairs.scores.detach()
        best = scores.masked_fill(~pairs.positive | scores.isnan(), -torch.inf).amax(dim=1, keepdim=True)
        bars = {
            "guide": best - self.filter_margin,
            "percent": self.percent * best,
            "relative_margin": best - (1 - self.percent) * best.abs(),
        }
        return pairs.negative & (scores > bars.get(self.filter, best + self.filter_margin)) & best.isfinite()

    def extra(self, pairs: Pairs, eps: float) -> dict[str, Tensor]:
        """Whether the filter `percent` keeps negatives above the positive of a query, whose score is below 0, (Q,)."""
        if self.filter != "percent":
            return {}
        best = pairs.scores.masked_fill(~pairs.positive, -torch.inf).amax(dim=1)
        return {"below_zero": (best.isfinite() & (best < 0)).to(pairs.scores.dtype)}

    def _logits(self, pairs: Pairs) -> tuple[Tensor, Tensor | float]:
        """Logits, (Q, C), and their slopes."""
        logits: Tensor = self.scale * pairs.scores
        slope: Tensor | float = self.scale
        if self.filter == "factor":
            slope = torch.where(self.masked(pairs), self.factor * self.scale, self.scale).to(pairs.scores)
            logits = slope * pairs.scores
        if self.hardness:
            source = torch.zeros_like(pairs.scores, dtype=torch.int8) if pairs.source is None else pairs.source
            chosen = pairs.negative & (source <= sources.OTHERS_HARD)
            if self.hardness_on != "all":
                chosen = chosen & ((source == sources.OWN_HARD) == (self.hardness_on == "hard"))
            logits = logits + torch.where(chosen, self.hardness * pairs.scores.detach(), 0)
        return logits, slope

    def _parts(self, pairs: Pairs) -> list[tuple[Tensor, Tensor]]:
        """Each softmax: the positives, and the other columns of its denominator, both (Q, C) bool."""
        remaining = pairs.negative if self.filter in {"none", "factor"} else pairs.negative & ~self.masked(pairs)
        if pairs.source is None:
            return [(pairs.positive, remaining)]
        back = pairs.source == sources.CANDIDATE_QUERY
        if self.partition == "joint":
            return [(pairs.positive & ~back, remaining | (pairs.positive & back))]
        parts = [(pairs.positive & ~back, remaining & ~back), (pairs.positive & back, remaining & back)]
        return parts[: len(self.directions)]

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        logits, _ = self._logits(pairs)
        parts, total = self._parts(pairs), pairs.scores.new_zeros(len(pairs.scores))
        for positive, rest in parts:
            terms = torch.logaddexp(logsumexp(logits, rest) - logits, torch.zeros_like(logits))
            total = total + torch.where(positive & rest.any(dim=1, keepdim=True), terms, 0).sum(dim=1)
        return total / len(parts)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form: :math:`\lambda (\mathrm{softmax}(z) - 1_p)`.

        With :math:`m_p` the probability that positive p leaves to the rest of its denominator: positives
        :math:`-\lambda m_p`, the rest :math:`\lambda (\sum_p m_p) \, \mathrm{softmax}(z)`; the mean over the softmaxes.
        A suspect that is weakened by a factor has that part of λ.
        """
        logits, slope = self._logits(pairs)
        parts, total = self._parts(pairs), torch.zeros_like(pairs.scores)
        for positive, rest in parts:
            missing = torch.where(
                positive & rest.any(dim=1, keepdim=True), (logsumexp(logits, rest) - logits).sigmoid(), 0
            )
            total = total + missing.sum(dim=1, keepdim=True) * softmax(logits, rest) - missing
        return slope * total / len(parts)

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a negative with all of the probability for every positive, (Q, 1): λ|P|."""
        positive = (
            pairs.positive if pairs.source is None else pairs.positive & (pairs.source != sources.CANDIDATE_QUERY)
        )
        return self.scale * positive.sum(dim=1, keepdim=True).clamp(min=1).to(pairs.scores.dtype)
