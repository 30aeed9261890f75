"""Small batches, thousands of them: one call a batch, with no more overhead than a few operations.

    count = dense.Dense(loss, eps=0.01)
    for query, candidate in loader:
        found = count(query, candidate)      # row i of the one matches row i of the other
        found["contributing"]                # (2, B): of the queries, and of the candidates asking

For large batches, groups, or any other loss see `cocos.sweep` and `cocos.readers`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos import tiles
from cocos.errors import InputError
from cocos.losses.normalized_softmax import NormalizedSoftmax
from cocos.losses.ntxent import NTXent
from cocos.losses.sampled_softmax import SampledSoftmax
from cocos.losses.supcon import SupCon
from cocos.losses.triplet import Triplet

__all__ = ["Counts", "Dense"]

SOFTMAX = (NTXent, SampledSoftmax, NormalizedSoftmax, SupCon)  # one positive: they are the same
NAMES = (
    "contributing",
    "uncertain",
    "weight_above",
    "weight_below",
    "weight_positive",
    "push",
    "pull",
    "hardest_share",
)
NAMES += ("effective", "participation")
UNIT = 1e-3  # squared norms this near to 1 are those of unit vectors
ROUNDED = 4e-6  # relative error of exponentials and their sums in float32


@dataclass(frozen=True, eq=False)
class Counts(Mapping):
    """Statistics of a batch by name, (2, B) each: the queries, then the candidates as queries; (K, 2, B) of a stack.

    The number of contributing negatives lies between `contributing` and `contributing` + `uncertain`.
    """

    values: Tensor  # (..., names, 2, B)

    def __getitem__(self, name: str) -> Tensor:
        if name not in tuple(self):
            raise KeyError(name)
        return self.values[..., NAMES.index(name), :, :]

    def __iter__(self):
        return iter(NAMES[: self.values.shape[-3]])

    def __len__(self) -> int:
        return self.values.shape[-3]


class Dense:
    """Counts and sums of one loss on batches of pairs, in both directions.

    Args:
        loss: NT-Xent or a loss that equals it on one positive, with a temperature of at least 0.025; or `triplet`.
        eps: smallest share that contributes, above 0.

    Raises:
        InputError: another loss, or an eps out of range.
    """

    def __init__(self, loss, eps: float = 0.01):
        self.hinge = type(loss) is Triplet
        if not self.hinge and not isinstance(loss, SOFTMAX):
            raise InputError(
                f"{loss!r}: small batches are counted for triplet, ntxent and the losses that equal it; "
                "cocos.sweep.run counts the others"
            )
        if not 0 < eps < (1 if self.hinge else math.inf):
            raise InputError(f"eps: {eps}, expected a share above 0" + (" and below 1" if self.hinge else ""))
        self.scale = 0.0 if self.hinge else loss.softmax_scale * math.log2(math.e)
        if self.scale > 58:  # 4^z of unit vectors stays in float32
            raise InputError(f"{loss!r}: its exponents leave the range of float32; use cocos.sweep.run")
        self.margin, self.eps = loss.margin if self.hinge else 0.0, eps
        self._held: dict[int, tuple[Tensor, ...]] = {}

    def __call__(self, query: Tensor, candidate: Tensor) -> Counts:
        """Count one batch, or each batch of a stack.

        Args:
            query: (B, d) or (K, B, d) unit vectors, float32 or float64.
            candidate: of the same shape; row i matches row i of the queries.

        Returns:
            Of a hinge only `contributing` and `uncertain`: every other statistic of it is this count.

        Raises:
            InputError: shapes that do not fit, or rows that are no unit vectors (the first one is looked at).
        """
        if query.shape != candidate.shape or query.ndim not in {2, 3} or query.shape[-2] < 2:
            raise InputError(
                f"query {tuple(query.shape)} and candidate {tuple(candidate.shape)}: expected one shape, (B, d) or "
                "(K, B, d), with at least two pairs"
            )
        query, candidate = query.detach(), candidate.detach()
        first = query.reshape(-1, query.shape[-1])[0]
        if not abs(float(first @ first) - 1) < UNIT:
            raise InputError(f"query: its first row has the norm {float(first.norm()):.4g}, expected unit vectors")
        if query.ndim == 3:
            return Counts(torch.stack([self(*each).values for each in zip(query, candidate, strict=True)]))
        size, width = query.shape
        unit = torch.finfo(query.dtype).eps / 2
        room = (width + 8) * unit * 1.1 + unit
        rounded = ROUNDED if query.dtype == torch.float32 else 1e-12
        loose = 2 * room * self.scale + rounded
        if not tiles.small(query):
            return self._plain(query @ candidate.T, room, loose)
        if size not in self._held:
            self._held[size] = (
                torch.empty(size, size),
                torch.empty(12 * size, dtype=torch.float64),
                torch.empty(16 * size),
            )
        scores, sums, work = self._held[size]
        torch.mm(query, candidate.T, out=scores)
        out = torch.empty(2 if self.hinge else len(NAMES), 2, size)
        tiles.batch(scores, self.hinge, self.scale, self.eps, self.margin, room, loose, out, sums, work)
        return Counts(out)

    def _plain(self, scores: Tensor, room: float, loose: float) -> Counts:
        """The same in torch."""
        own = scores.diagonal().clone()
        scores.fill_diagonal_(-torch.inf)
        sides = []
        for side in (scores, scores.T):
            if self.hinge:
                limit, width = own - self.margin, room
            else:
                z = side * self.scale
                shift = z.amax(dim=1)
                mass = (z - shift[:, None]).exp2()
                total = mass.sum(dim=1)
                whole = total + (own * self.scale - shift).exp2()
                limit, width = ((self.eps * whole).log2() + shift) / self.scale, room + loose / self.scale
            certain = (side > (limit + width)[:, None]).sum(dim=1)
            lines = [certain, (side > (limit - width)[:, None]).sum(dim=1) - certain]
            if not self.hinge:
                share = total / whole
                above = torch.where(side > limit[:, None], mass, 0).sum(dim=1) / whole
                part = torch.where(mass > 0, mass * (z - shift[:, None]), 0).sum(dim=1) / total
                weight = share * self.scale * math.log(2)
                lines += [above, share - above, share, weight, weight, 1 / total]
                lines += [(total.log2() - part).exp2(), total.square() / mass.square().sum(dim=1)]
            sides.append(torch.stack([line.to(scores.dtype) for line in lines]))
        return Counts(torch.stack(sides, dim=1))
