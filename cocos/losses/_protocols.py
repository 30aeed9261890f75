"""Protocols of a loss and its optional abilities, which any object can fulfil, and defaults of other attributes."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, overload, runtime_checkable

if TYPE_CHECKING:  # the names of the losses are listed without torch
    from torch import Tensor

    from cocos.embeddings import Embeddings
    from cocos.embeddings.scores import Pairs


class Loss(Protocol):
    """A loss: on the shelf a frozen dataclass whose fields are its parameters."""

    @property
    def metric(self) -> str:
        """Scores that it reads, one of `cocos.scores.METRICS`."""

    @property
    def couples(self) -> str:
        """`query`: queries are independent; `batch`: they share a term; `candidate`: candidates are the anchors."""

    @property
    def gradient(self) -> str:
        """`exact`, `stop_gradient`, `pseudo` (made up by its authors) or `autograd` (no closed form)."""

    @property
    def balanced(self) -> bool:
        """Whether the weights of each query sum to zero."""

    @property
    def sample(self) -> str:
        """How its training batches are drawn: `pairs`, or `groups` for several positives a query."""

    def __call__(self, pairs: "Pairs") -> "Tensor":
        """Loss of each query, (Q,), not reduced."""

    def unit(self, pairs: "Pairs") -> "Tensor":
        """Natural size of one weight, broadcastable to (Q, C): share = |weight| / unit."""


class TrainingLoss(Loss, Protocol):
    """A loss of `cocos.losses.load`: it is called with Pairs, or with the tensors that make them."""

    @overload
    def __call__(self, pairs: "Pairs") -> "Tensor": ...

    @overload
    def __call__(
        self, scores: "Tensor", positive: "Tensor", negative: "Tensor | None" = None, **beside: "Tensor | None"
    ) -> "Tensor": ...


class ClosedForm(Loss, Protocol):
    """A loss that computes its own weights. See `has_closed_form`."""

    def weight(self, pairs: "Pairs") -> "Tensor":
        """Compute ∂ Σ loss / ∂ score, (Q, C): below zero pulls, above zero pushes."""


@runtime_checkable
class ReadsNorms(Protocol):
    """A loss that reads the norms of the queries."""

    def radial(self, pairs: "Pairs") -> "Tensor":
        """Closed form of ∂ Σ loss / ∂ norm of the query, (Q,)."""


@runtime_checkable
class KnownEqual(Protocol):
    """A loss that equals others of the shelf, which `cocos losses NAME` and the tests check."""

    def equals(self) -> tuple[tuple[str, dict[str, Any], str], ...]:
        """List the other losses as (name, parameters, where)."""


@runtime_checkable
class HasPeer(Protocol):
    """A loss that pytorch-metric-learning has too, which `cocos verify` compares."""

    def peer(self) -> tuple[str, dict[str, Any], str] | None:
        """Name it as (class, arguments, setting); None where these parameters have no peer."""


@runtime_checkable
class ExtraStatistics(Protocol):
    """A loss with a count of its own beside those of `cocos.statistics`."""

    def extra(self, pairs: "Pairs", eps: float) -> "dict[str, Tensor]":
        """Compute its statistics by name, (Q,) each."""


def adds(loss: Any) -> bool:
    """Whether a loss has statistics of its own, which a reader of what losses state would leave out.

    Those of a loss that filters come with a filter alone, and with one it states no scale that a reader reads.

    Examples:
        >>> from cocos.losses._protocols import adds
        >>> adds(cocos.losses.load("hcl")), adds(cocos.losses.load("ntxent"))
        (True, False)
    """
    return isinstance(loss, ExtraStatistics) and not isinstance(loss, Filters)


@runtime_checkable
class Filters(Protocol):
    """A loss that leaves out, or weakens, negatives that it suspects to be positives."""

    @property
    def filter(self) -> str:
        """Name of the rule; `none` where it suspects nothing."""

    def masked(self, pairs: "Pairs") -> "Tensor":
        """Negatives that it suspects, (Q, C) bool."""

    def unfiltered(self) -> Loss:
        """Return the same loss without the rule."""


@runtime_checkable
class Bindable(Protocol):
    """A loss whose weights are settled by a first batch."""

    def bind(self, pairs: "Pairs") -> Loss:
        """Return the same loss, settled."""


@runtime_checkable
class UnitOfWeights(Protocol):
    """A loss whose unit may depend on its weights, which are not computed again for it."""

    def unit_of(self, weights: "Tensor", pairs: "Pairs") -> "Tensor":
        """Compute the unit of weights that are known already, broadcastable to (Q, C)."""


@runtime_checkable
class Recognised(Protocol):
    """A loss of others that may be one of the shelf."""

    @property
    def recognised(self) -> bool:
        """Whether its class and its settings are those of a loss of the shelf."""

    def by_closed_form(self, pairs: "Pairs") -> Loss:
        """Return the same loss, weighed by the closed form of that of the shelf if it equals it on these pairs."""


class FileOfSpellings(Protocol):
    """A file of `external`, which reads spellings that are no name on the shelf."""

    def canonical(self, spelling: str, /) -> str:
        """The one spelling of the loss."""

    def known(self, spelling: str, /) -> set[str] | None:
        """Names of its parameters; None: any."""

    def qualified(self, spelling: str, parameters: dict[str, Any], /) -> dict[str, Any]:
        """Parameters as `cocos.losses.parameters` names them."""

    def load(self, spelling: str, parameters: dict[str, Any], /) -> Loss:
        """Build the loss."""


@dataclass(frozen=True)
class Traits:
    """What a loss can do, as one value: a loss of the shelf states as attributes only what is not the default.

    Losses around a loss, and those of others, have such a value, which they derive from another one by `replace`.

    Args:
        metric: as are the next four, see `Loss`.
        couples: of a function that does not say, `query`.
        gradient: `exact` for a function that does not say.
        balanced: the weights of each query sum to zero.
        sample: `pairs` or `groups`.
        softmax_scale: λ, in units of 1/score, if the negatives enter through Σ exp(λ score) of each query alone.
        source_scales: likewise of the negatives of each source, for a loss that reads them apart.
        logistic: (λ, b), if each pair has a term of its own, with the share σ(λ score + b) of a negative.
        hinge: `all` negatives or the `hardest` one, for a sum of [margin - positive + negative]_+ with that `margin`.
        per_positive: the loss sums one term for each positive, so that its unit grows with their number.
        share: `probability` where a share is one (docs/eps.md).
        reads: `scores` or `embeddings`.
        own_scores: its weights are of scores that are no metric of cocos.
        matching: source of its positives, `labels`, `rows`, or `columns` of pairs and hard negatives; None: the masks.
        unit_from: where its unit comes from: `natural`, `own`, `sum`, `given`, a loss of the shelf, `softmax`,
            `sigmoid` or `hinge` where it is measured, or `unknown`.
        bound: its attributes are settled: see `Bindable`.
        twin: loss of the shelf with the same weights, by whose closed form it is weighed, and whose unit it takes.
        counted_as: its twin, where that reads the scores of the same pairs, so that it can be counted in its place.
        terms: coefficients and losses of a sum.
        normaliser: who divides the rows by their norms before the loss, which reads them as they are.
        through_scores: it reads embeddings, and depends on them by the pairs' scores alone.
        notes: remarks for the user, one sentence each.
        spelling: its name for `cocos.losses.load`.
        given: the parameters that were given, of a loss that has no fields of its own.
        directions: of `cocos.sources.DIRECTIONS`, columns that it reads.
        requires: fields of `Pairs` that it cannot do without, like `teacher`.
        graded: it compares graded pairs with each other, where there are grades.

    Examples:
        >>> cocos.losses.traits(cocos.losses.load("ntxent")).share
        'probability'
    """

    metric: str = "cosine"
    couples: str = "query"
    gradient: str = "exact"
    balanced: bool = False
    sample: str = "pairs"
    softmax_scale: float | None = None
    source_scales: tuple[float, ...] | None = None
    logistic: tuple[float, float] | None = None
    hinge: str | None = None
    per_positive: bool = False
    share: str | None = None
    reads: str = "scores"
    own_scores: bool = False
    matching: str | None = None
    unit_from: str = "natural"
    bound: bool = False
    twin: Loss | None = None
    counted_as: Loss | None = None
    terms: tuple[tuple[float, Loss], ...] = ()
    normaliser: str | None = None
    through_scores: bool = False
    notes: tuple[str, ...] = ()
    spelling: str | None = None
    given: dict[str, Any] | None = None
    directions: tuple[str, ...] = ("query-candidate",)
    requires: tuple[str, ...] = ()
    graded: bool = False

    @property
    def wide(self) -> bool:
        """Whether it reads more than the scores of a batch, so that these must be stored."""
        return len(self.directions) > 1 or self.graded or bool(self.requires)

    def one_way(self, embeddings: "Embeddings") -> bool:
        """Whether the queries alone ask: a loss of several directions, of columns of a library, or graded pairs."""
        further = len(self.directions) > 1 or self.matching == "columns"
        return further or (self.graded and embeddings.grades is not None)


class StatesTraits:
    """A loss whose attributes are one value, `traits`; it is called with Pairs, or with the tensors that make them.

    Examples:
        >>> isinstance(cocos.losses.load("top_k(ntxent)", {"k": 2}), cocos.losses.StatesTraits)
        True
    """

    traits: Traits

    def __init_subclass__(cls) -> None:
        from cocos.losses._calls import takes_tensors  # imports torch, without which the names of losses are listed

        if "__call__" in vars(cls):
            takes_tensors(cls)

    metric = property(lambda self: self.traits.metric, doc="Scores that it reads.")
    couples = property(lambda self: self.traits.couples, doc="Whether queries share terms.")
    gradient = property(lambda self: self.traits.gradient, doc="What its weights are.")
    balanced = property(lambda self: self.traits.balanced, doc="Whether the weights of each query sum to zero.")
    sample = property(lambda self: self.traits.sample, doc="How its training batches are drawn.")


TRAITS = tuple(each.name for each in fields(Traits))


def traits(loss: object) -> Traits:
    """What a loss can do: the value that it has, or its attributes; the only place that looks whether it has them.

    Examples:
        >>> cocos.losses.traits(cocos.losses.load("ntxent")).per_positive
        True
    """
    if isinstance(found := getattr(loss, "traits", None), Traits):
        return found
    return Traits(**{name: getattr(loss, name) for name in TRAITS if hasattr(loss, name)})


def has_weight(loss: object) -> TypeGuard[ClosedForm]:
    """Whether a loss computes its weights itself, by a closed form or as a foreign loss by autograd.

    Examples:
        >>> cocos.losses.has_weight(cocos.losses.load("ntxent"))
        True
    """
    return callable(getattr(loss, "weight", None))


def has_closed_form(loss: object) -> TypeGuard[ClosedForm]:
    """Whether a loss has a closed form of its weights.

    Examples:
        >>> cocos.losses.has_closed_form(cocos.losses.load("ntxent"))
        True
        >>> cocos.losses.has_closed_form(cocos.losses.load("contextual"))
        False
    """
    return traits(loss).gradient != "autograd" and has_weight(loss)
