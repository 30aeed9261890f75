"""Half of a loss of each direction: the twin of losses of two sides, and how a twin is written."""

from dataclasses import dataclass, fields, is_dataclass
from typing import ClassVar

from torch import Tensor

from cocos import losses
from cocos.scores import Pairs


@dataclass(frozen=True)
class BothWays:
    """Half of a loss of each direction, as losses of two sides are reduced: a twin, not of the shelf.

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
        return (self.loss(pairs) + self.loss(_turned(pairs))) / 2

    def weight(self, pairs: Pairs) -> Tensor:
        """Mean of the weights of both directions, (Q, C)."""
        return (self.loss.weight(pairs) + self.loss.weight(_turned(pairs)).T) / 2

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a negative with all of the probability in both directions: that of the loss."""
        return self.loss.unit(pairs)


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


def _turned(pairs: Pairs) -> Pairs:
    """The same scores with the candidates as queries, without their rows; not checked, for torch.func."""
    turned = {name: getattr(pairs, name).T for name in ("scores", "positive", "negative")}
    other = object.__new__(Pairs)
    other.__dict__.update(dict.fromkeys(each.name for each in fields(Pairs)) | turned)
    return other
