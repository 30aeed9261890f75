"""Half of a loss of each direction: the twin of losses of two sides, and how a twin is written."""

from dataclasses import dataclass, fields, is_dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cocos import losses
from cocos.embeddings.scores import Pairs
from cocos.embeddings.sources import SOURCES

# Places in `cocos.sources.SOURCES` from which on a column is one that the candidate of a query asks for.
OF_THE_CANDIDATE = SOURCES.index("candidate-query"), SOURCES.index("candidate-candidate")


@dataclass(frozen=True)
class BothWays:
    """Half of a loss of each direction, as losses of two sides are reduced: a twin, not of the shelf.

    In pairs of all directions the two halves are the columns that a query asks for, and those that its candidate does.

    Args:
        loss: of one direction.
    """

    loss: losses.ClosedForm
    couples: ClassVar[str] = "batch"
    gradient: ClassVar[str] = "exact"
    sample: ClassVar[str] = "pairs"

    def __repr__(self) -> str:
        return f"{written(self.loss)}, half of each direction"

    @property
    def spelling(self) -> str:
        """The loss of one direction, in words."""
        return f"{losses.name_of(self.loss)}, half of each direction"

    @property
    def metric(self) -> str:
        """Of the loss."""
        return self.loss.metric

    @property
    def balanced(self) -> bool:
        """The columns of a matrix do not sum to zero where its rows do."""
        return False

    @property
    def share(self) -> str | None:
        """Meaning of a share of the loss."""
        return losses.traits(self.loss).share

    @property
    def per_positive(self) -> bool:
        """Whether the unit of the loss grows with the number of positives."""
        return losses.traits(self.loss).per_positive

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query and of its candidate, half of each, (Q,)."""
        here, there = _halves(pairs)
        return (self.loss(here) + self.loss(there)) / 2

    def weight(self, pairs: Pairs) -> Tensor:
        """Half of the weights of both directions, (Q, C)."""
        here, there = _halves(pairs)
        one, other = self.loss.weight(here) / 2, self.loss.weight(there) / 2
        return one + other.T if pairs.source is None else torch.cat([one, other], dim=1)

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a negative with all of the probability in both directions: that of the loss.

        So the shares of a query sum to at most 1. One that stands in the softmax of one direction alone has half of its
        probability there.
        """
        here, _ = _halves(pairs)
        return self.loss.unit(here)


def _halves(pairs: Pairs) -> tuple[Pairs, Pairs]:
    """Pairs that the queries ask for and that their candidates do, without their rows; not checked, for torch.func."""
    if pairs.source is None:
        return _part(pairs, slice(None)), _part(pairs, slice(None), turned=True)
    back = torch.isin(pairs.source[0], torch.tensor(OF_THE_CANDIDATE, device=pairs.source.device, dtype=torch.int8))
    start = int((~back).sum())  # the columns of the candidates come last
    return _part(pairs, slice(start)), _part(pairs, slice(start, None))


def _part(pairs: Pairs, columns: slice, *, turned: bool = False) -> Pairs:
    found = {name: getattr(pairs, name)[:, columns] for name in ("scores", "positive", "negative")}
    other = object.__new__(Pairs)
    other.__dict__.update(dict.fromkeys(each.name for each in fields(Pairs)))
    other.__dict__.update({name: values.T for name, values in found.items()} if turned else found)
    return other


def written(loss: losses.Loss) -> str:
    """A loss of the shelf with its first parameter and those that are not the default."""
    if not is_dataclass(loss) or isinstance(loss, BothWays):
        return repr(loss)
    given = [
        f"{each.name}={getattr(loss, each.name)!r}"
        for place, each in enumerate(fields(loss))
        if place == 0 or getattr(loss, each.name) != each.default
    ]
    return f"{type(loss).__name__}({', '.join(given)})"
