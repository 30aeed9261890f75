"""Attributes of a third-party loss as one value, until each of these losses sets them itself."""

from dataclasses import dataclass, fields
from typing import Any

from cocos.losses.base import Loss


@dataclass(frozen=True)
class Traits:
    """The attributes of `Loss`, for losses that derive them from another one by `replace`."""

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
    reads_norms: bool = False


def traits_of(loss: Loss | None) -> Traits:
    """Return the attributes of a loss as one value; the defaults for None."""
    if loss is None:
        return Traits()
    names = {field.name for field in fields(Traits)} - {"given"}
    return Traits(**{name: getattr(loss, name) for name in names}, given=loss.parameters)


class StatesTraits(Loss):
    """A loss with its attributes in the field `traits`."""

    traits: Traits

    def __post_init__(self) -> None:
        pass

    metric = property(lambda self: self.traits.metric)
    couples = property(lambda self: self.traits.couples)
    gradient = property(lambda self: self.traits.gradient)
    balanced = property(lambda self: self.traits.balanced)
    sample = property(lambda self: self.traits.sample)
    softmax_scale = property(lambda self: self.traits.softmax_scale)
    logistic = property(lambda self: self.traits.logistic)
    hinge = property(lambda self: self.traits.hinge)
    per_positive = property(lambda self: self.traits.per_positive)
    share = property(lambda self: self.traits.share)
    reads = property(lambda self: self.traits.reads)
    own_scores = property(lambda self: self.traits.own_scores)
    matching = property(lambda self: self.traits.matching)
    unit_from = property(lambda self: self.traits.unit_from)
    bound = property(lambda self: self.traits.bound)
    twin = property(lambda self: self.traits.twin)
    counted_as = property(lambda self: self.traits.counted_as)
    terms = property(lambda self: self.traits.terms)
    normaliser = property(lambda self: self.traits.normaliser)
    through_scores = property(lambda self: self.traits.through_scores)
    notes = property(lambda self: self.traits.notes)
    spelling = property(lambda self: self.traits.spelling)
    parameters = property(lambda self: dict(self.traits.given or {}))
    directions = property(lambda self: self.traits.directions)
    requires = property(lambda self: self.traits.requires)
    graded = property(lambda self: self.traits.graded)
    reads_norms = property(lambda self: self.traits.reads_norms)
