"""Rows of one group in a batch that is drawn at random: how often, how many, and what a batch without any leaves over.

A batch draws B of L rows without replacement, as a shuffled loader does. Two of them collide where they share a group.
Nothing is simulated, and no vectors are needed: all follows from the sizes of the groups.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Collisions", "chance_to_meet"]

# Deviations from its mean beyond which a sum of independent events has no probability that float64 could add.
FAR_DEVIATIONS = 40
# Number of events by which a sum of rare ones may exceed these deviations.
FAR_EVENTS = 64
# Bisections of the logarithm of t, after which the mean is known to far less than one event.
HALVINGS = 60


def chance_to_meet(others: Any, rows: int, batch_size: int) -> npt.NDArray[np.float64]:
    r"""Probability that the batch of a row contains at least one of some other rows, elementwise.

    :math:`1 - \prod_{j=1}^{k} (1 - \frac{B - 1}{L - j})` for k other rows: hypergeometric.

    Args:
        others: number of the other rows, whole numbers from 0 to L - 1.
        rows: L.
        batch_size: B, 1 to L.

    Examples:
        >>> cocos.collisions.chance_to_meet([0, 1, 3], rows=4, batch_size=2).round(3).tolist()
        [0.0, 0.333, 1.0]
    """
    others = np.asarray(others, dtype=np.int64)
    part = np.minimum((batch_size - 1) / (rows - np.arange(1, int(others.max(initial=0)) + 1)), 1.0)
    with np.errstate(divide="ignore"):
        alone = np.concatenate([[0.0], np.log1p(-part).cumsum()])[others]
    found: npt.NDArray[np.float64] = 0.0 - np.expm1(alone)
    return found


@dataclass(frozen=True, eq=False)
class Collisions:
    r"""The groups of the rows from which batches are drawn.

    With sizes :math:`n_g` of the groups, :math:`\sum_g n_g = L`, a batch of B rows contains no two of one group with
    probability :math:`e_B(n) / \binom{L}{B}`, where :math:`e_B` is the elementary symmetric polynomial: the number
    of ways to take B groups and one row of each.

    Args:
        size: (K,) the different sizes of groups, at least 1.
        number: (K,) groups of each size.

    Examples:
        Two pairs of twins and a single row. Of the ten pairs of rows two are twins, and a third one finds room for
        every batch of two:

        >>> twins = cocos.collisions.Collisions.of([0, 0, 1, 1, 2])
        >>> round(twins.probability(2), 12), twins.without(2)
        (0.2, 2)
    """

    size: npt.NDArray[np.int64]
    number: npt.NDArray[np.int64]

    @classmethod
    def of(cls, groups: Any) -> "Collisions":
        """Count the groups of rows.

        Args:
            groups: (L,) id of the group of each row.
        """
        sizes = np.unique(np.asarray(groups), return_counts=True)[1]
        return cls(*np.unique(sizes, return_counts=True))

    @cached_property
    def rows(self) -> int:
        """Number of rows, L."""
        return int((self.size * self.number).sum())

    @cached_property
    def groups(self) -> int:
        """Number of groups: no batch without a collision is larger."""
        return int(self.number.sum())

    @property
    def largest(self) -> int:
        """Rows of the largest group."""
        return int(self.size[-1])

    def per_query(self, batch_size: int) -> float:
        r"""Expected number of other rows of its group that a row meets, :math:`(B-1) \sum_g n_g (n_g-1) / (L (L-1))`.

        Args:
            batch_size: B, 1 to L.
        """
        pairs = float((self.number * self.size * (self.size - 1.0)).sum())
        return (batch_size - 1) * pairs / (self.rows * max(self.rows - 1.0, 1.0))

    def per_batch(self, batch_size: int) -> float:
        """Expected number of unordered pairs of one group in a batch.

        Args:
            batch_size: B, 1 to L.
        """
        return batch_size / 2 * self.per_query(batch_size)

    def met(self, batch_size: int) -> float:
        r"""Expected part of the rows of a batch that meet another row of their group, 0 to 1.

        :math:`1 - \sum_g \frac{n_g}{L} \prod_{j=1}^{n_g - 1} (1 - \frac{B - 1}{L - j})`, hypergeometric.

        Args:
            batch_size: B, 1 to L.
        """
        meets = chance_to_meet(self.size - 1, self.rows, batch_size)
        return float((meets * self.size * self.number).sum() / self.rows)

    def probability(self, batch_size: int) -> float:
        r"""Probability that a batch contains two rows of one group.

        With independent events of probability :math:`p_g = n_g t / (1 + n_g t)`, one a group, B of them happen with
        probability :math:`e_B(n) \, t^B / \prod_g (1 + n_g t)`. At the t at which B is their expected number, this
        is of the order of 1 over their deviation, and one Fourier sum gives it to the precision of float64.

        Args:
            batch_size: B, 1 to L.
        """
        if batch_size < 2 or self.largest == 1:
            return 0.0
        if batch_size > self.groups:
            return 1.0
        taken = np.arange(batch_size)
        ways = float(np.log((self.rows - taken) / (taken + 1)).sum())
        found = -math.expm1(self._log_distinct(batch_size) - ways)
        return min(max(found, 0.0), self.per_batch(batch_size), 1.0)

    def _log_distinct(self, batch_size: int) -> float:
        """Log of the number of ways to take rows of as many groups: of the elementary symmetric polynomial."""
        size, number = self.size.astype(np.float64), self.number.astype(np.float64)
        if batch_size == self.groups:
            return float((number * np.log(size)).sum())

        # n t / (1 + n t) is at most n t, and at least t / (1 + t)
        low, high = math.log(batch_size / self.rows), math.log(batch_size / (self.groups - batch_size))
        for _ in range(HALVINGS):  # any t gives the same number of ways, one near this mean gives it exactly
            log = (low + high) / 2
            product = size * math.exp(log)
            low, high = (log, high) if float((number * product / (1 + product)).sum()) < batch_size else (low, log)
        chance = product / (1 + product)
        deviation = math.sqrt(float((number * chance * (1 - chance)).sum()))
        points = min(self.groups + 1, math.ceil(2 * FAR_DEVIATIONS * deviation) + FAR_EVENTS)
        angle = 2 * np.pi * np.arange(points) / points
        turned = np.zeros(points, dtype=np.complex128)
        for p, many in zip(chance, number, strict=True):
            turned += many * np.log1p(p * np.expm1(1j * angle))
        exactly = float(np.exp(turned - 1j * angle * batch_size).real.mean())
        return math.log(exactly) + float((number * np.log1p(product)).sum()) - batch_size * log

    def largest_below(self, chance: float, *, of: str = "probability") -> int:
        """Largest batch size for which a chance stays below a bound; 1 where every batch of two exceeds it.

        Args:
            chance: the bound, above 0.
            of: `probability`, of any collision in a batch; or `met`, the part of the rows that meet one.
        """
        low, high = 1, self.rows + 1  # at `low` it is below, at `high` it is not
        rises = {"probability": self.probability, "met": self.met}[of]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if rises(middle) < chance else (low, middle)
        return low

    def without(self, batch_size: int) -> int:
        r"""Largest number of full batches that one pass can give where no two rows of a batch are of one group.

        N such batches can be filled where :math:`\sum_g \min(n_g, N) \geq N B`: dealt out in turn, group by group, no
        two rows of a group then meet. A sampler that fills one batch after the other may find fewer.

        Args:
            batch_size: B, at least 1.
        """
        low, high = 0, self.rows // batch_size + 1
        while high - low > 1:
            middle = (low + high) // 2
            there = int((np.minimum(self.size, middle) * self.number).sum())
            low, high = (middle, high) if there >= middle * batch_size else (low, middle)
        return low
