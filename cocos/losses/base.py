"""Base classes of the losses: `Loss`, and `SoftmaxLoss` for the softmax family."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cocos.base import ranges
from cocos.base.errors import InputError
from cocos.embeddings import Embeddings
from cocos.embeddings.scores import Pairs


def autograd(loss: Callable[[Pairs], Tensor], pairs: Pairs) -> Tensor:
    """Return ∂ Σ loss / ∂ score, (Q, C), by automatic differentiation of a loss or a function of pairs.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.3]]), torch.tensor([[True, False, False]]))
        >>> cocos.weights.autograd(cocos.losses.load("triplet"), pairs)
        tensor([[-1.,  1.,  0.]])
    """

    def total(scores: Tensor) -> Tensor:
        return loss(pairs.with_scores(scores)).sum()

    if getattr(loss, "gradient", "exact") != "autograd":
        return torch.func.grad(total)(pairs.scores.detach())  # can be batched by vmap
    with torch.enable_grad():  # torch.func rejects some third-party code
        scores = pairs.scores.detach().clone().requires_grad_()
        (weight,) = torch.autograd.grad(total(scores), scores, allow_unused=True, materialize_grads=True)
    return torch.where(pairs.positive | pairs.negative, weight, 0)


class Loss:
    """A loss of the scores between queries and candidates, one number per query.

    A loss is a frozen dataclass; its parameters are the fields. It defines `value`, and `weight` and `unit` if the
    defaults below do not apply. It sets the attributes in which it differs from these defaults:

    Attributes:
        metric: scores that it reads, one of `cocos.embeddings.similarities.METRICS`.
        couples: `query` if queries are independent, `batch` if they share a term, `candidate` if candidates are the
            anchors.
        gradient: `exact`, `stop_gradient`, `pseudo` (a published backward pass that is not the derivative), or
            `autograd` (no closed form).
        balanced: whether the weights of each query sum to zero.
        sample: sampling of its training batches: `pairs`, or `groups` for several positives per query.
        softmax_scale: λ, in units of 1/score, if the negatives enter only through Σ exp(λ score) of each query.
        logistic: (λ, b) if each pair has its own term, and the share of a negative is σ(λ score + b).
        hinge: `all` negatives or the `hardest` one, for a sum of [margin - positive + negative]_+.
        per_positive: whether the loss sums one term per positive, so that its unit grows with their number.
        share: `probability` if a share is one.
        directions: directions of the columns that it reads, query-candidate first.
        requires: fields of `Pairs` that must be present, such as `teacher`.
        graded: whether it compares graded pairs with each other.
        reads_norms: whether it reads the norms of the queries, and `radial` is their derivative.
        filter: name of the rule by which it drops suspected false negatives, `none` without a rule.
        bound: False if the first batch fixes parameters, see `bind`.

        family: kind of loss, by which `cocos losses` sorts.
        aliases: other names, with the parameters that each implies.

    Attributes of sums, wrappers and third-party losses:
        spelling: name for `cocos.losses.load`; None for a built-in loss.
        terms: coefficients and losses of a sum.
        reads: `scores` or `embeddings`.
        matching: origin of the positives: `labels`, `rows`, or None for the masks.
        unit_from: origin of the unit: `natural`, `own`, `sum`, `given`, a built-in loss, a measured form, or `unknown`.
        notes: remarks for the user, one sentence each.

    Examples:
        >>> cocos.losses.load("ntxent").share
        'probability'
    """

    metric: str = "cosine"
    couples: str = "query"
    gradient: str = "exact"
    balanced: bool = False
    sample: str = "pairs"
    softmax_scale: float | None = None
    logistic: tuple[float, float] | None = None
    hinge: str | None = None
    per_positive: bool = False
    share: str | None = None
    directions: tuple[str, ...] = ("query-candidate",)
    requires: tuple[str, ...] = ()
    graded: bool = False
    reads_norms: bool = False
    filter: str = "none"
    bound: bool = True
    family: str = ""
    aliases: dict[str, dict[str, Any]] = {}
    spelling: str | None = None
    terms: "tuple[tuple[float, Loss], ...]" = ()
    reads: str = "scores"
    matching: str | None = None
    unit_from: str = "natural"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, (allowed, optional) = getattr(self, field.name), ranges.of(field.type)
            if allowed and not (optional and value is None) and not allowed.holds(value):
                words = f"None, or {allowed.words}" if optional else allowed.words
                raise InputError(f"{self.name}: {field.name.rstrip('_')} must be {words}, got {value}")

    def __call__(
        self,
        pairs: Pairs | Tensor | None = None,
        positive: Tensor | None = None,
        negative: Tensor | None = None,
        *,
        scores: Tensor | None = None,
        **fields: Any,
    ) -> Tensor:
        """Return the loss of each query, (Q,), of Pairs, or of scores and masks; see `cocos.Pairs` for the fields.

        Raises:
            InputError: masks are missing, or are given in addition to Pairs.

        Examples:
            >>> loss = cocos.losses.load("triplet", margin=0.25)
            >>> scores = torch.tensor([[0.75, 0.75, 0.0]], requires_grad=True)
            >>> loss(scores, torch.tensor([[True, False, False]])).mean().backward()
            >>> scores.grad
            tensor([[-1.,  1.,  0.]])
        """
        if isinstance(pairs, Pairs):
            if fields or not (positive is negative is scores is None):
                raise InputError("loss(pairs): masks and norms are fields of the Pairs, expected no other argument")
            return self.value(pairs)
        if positive is None:
            raise InputError(
                "positive: missing; a loss is called with Pairs, or with (scores, positive, negative), where positive "
                "is torch.eye(len(scores), dtype=torch.bool, device=scores.device) if query i matches candidate i alone"
            )
        return self.value(Pairs(scores if pairs is None else pairs, positive, negative, **fields))

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), not reduced."""
        raise NotImplementedError

    def weight(self, pairs: Pairs) -> Tensor:
        """Return ∂ Σ value / ∂ score, (Q, C), by autograd: negative weights pull, positive ones push."""
        return autograd(self, pairs)

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the natural size of one weight, broadcastable to (Q, C): share = |weight| / unit. 1 by default."""
        return pairs.scores.new_ones(())

    def radial(self, pairs: Pairs) -> Tensor:
        """Return ∂ Σ value / ∂ norm of the query, (Q,): 0 unless `reads_norms`."""
        return pairs.scores.new_zeros(len(pairs.scores))

    def extra(self, pairs: Pairs, eps: float) -> dict[str, Tensor]:
        """Return further statistics of this loss by their names in `cocos.counting.statistics`, (Q,) each."""
        return {}

    def bind(self, pairs: Pairs) -> "Loss":
        """Return the loss with all parameters that the first batch fixes."""
        return self

    @property
    def closed_form(self) -> bool:
        """Whether `weight` is a closed form."""
        return self.gradient != "autograd" and type(self).weight is not Loss.weight

    @property
    def adds_statistics(self) -> bool:
        """Whether `extra` returns statistics, which the fast readers of a family leave out."""
        return type(self).extra is not Loss.extra

    @property
    def wide(self) -> bool:
        """Whether it reads more than the query-candidate scores, so that these must be stored."""
        return len(self.directions) > 1 or self.graded or bool(self.requires)

    def one_way(self, embeddings: Embeddings) -> bool:
        """Return whether only the first side asks: several directions, or graded pairs."""
        return len(self.directions) > 1 or (self.graded and embeddings.grades is not None)

    def teacher_scores(self, pairs: Pairs, setting: str = "") -> Tensor:
        """Return the scores of the teacher or guide, (Q, C), NaN for pairs without one.

        Raises:
            InputError: the pairs have no teacher.
        """
        if pairs.teacher is None:
            raise InputError(
                f"{self.name}{setting} reads scores of a teacher or guide, and there are none: give teacher, "
                "(queries, candidates) or (queries, 1 + hard negatives), or guide_query and guide_candidate"
            )
        return pairs.teacher

    @property
    def name(self) -> str:
        """Name for `cocos.losses.load`; the class of a loss that was never loaded."""
        module = type(self).__module__
        if self.spelling is not None:
            return self.spelling
        return module.removeprefix("cocos.losses.") if module.startswith("cocos.losses.") else type(self).__name__

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters by their names in the literature.

        Examples:
            >>> cocos.losses.load("ntxent").parameters
            {'temperature': 0.1}
        """
        return {field.name.rstrip("_"): getattr(self, field.name) for field in dataclasses.fields(self)}

    def set_attributes(self, **attributes: Any) -> None:
        """Set attributes in `__post_init__` that depend on other losses, although the dataclass is frozen."""
        vars(self).update(attributes)


class SoftmaxLoss(Loss):
    r"""Cross-entropy of each positive of a query against its negatives, on logits z(s), summed over the positives.

    .. math:: \ell(s) = -\sum_{p \in P} \log \frac{e^{z_p}}{e^{z_p} + \sum_{n \in N} e^{z_n}}, \quad
        w_p = -z'_p m_p, \quad w_n = z'_n \Bigl(\sum_{p \in P} m_p\Bigr) \mathrm{softmax}_N(z)_n

    :math:`m_p` is the probability that positive p leaves to the negatives, :math:`z' = \partial z / \partial s`. Equal
    slopes z' balance each query. A loss of the family defines its `scale`, or its `logits` and `unit`.

    Examples:
        Three equal scores have a third of the probability each; the positive lacks the other two thirds.

        >>> pairs = cocos.Pairs(torch.tensor([[0.5, 0.5, 0.5]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("normalized_softmax")
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.6667,  0.3333,  0.3333]])
    """

    per_positive = True
    share = "probability"
    scale: float = 1.0  # λ of the logits z = λ s, in units of 1/score

    @property
    def softmax_scale(self) -> float | None:
        """λ of Σ exp(λ s), the only term in which the negatives of a query appear; None for other terms."""
        return self.scale

    def logits(self, pairs: Pairs) -> tuple[Tensor, Tensor | float]:
        """Return logits z, (Q, C), and their slopes z', broadcastable to (Q, C)."""
        return self.scale * pairs.scores, self.scale

    def negatives(self, pairs: Pairs) -> Tensor:
        """Return the negatives that take part, (Q, C) bool."""
        return pairs.negative

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in nats; 0 for a query without a positive or without a negative."""
        return pairs.cross_entropy(self.logits(pairs)[0], self.negatives(pairs))

    def weight(self, pairs: Pairs) -> Tensor:
        """Return ∂ Σ value / ∂ score, (Q, C): the slopes times softmax minus target, see the class."""
        logits, slope = self.logits(pairs)
        return slope * pairs.residual(logits, self.negatives(pairs))

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a negative with all of the probability for every positive, (Q, 1): λ|P|."""
        return self.scale * pairs.positives()
