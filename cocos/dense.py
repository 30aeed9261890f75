"""Small batches, thousands of them: one call a batch, with no more overhead than a few operations.

    count = dense.Dense(loss, eps=0.01)
    for query, candidate in loader:
        found = count(query, candidate)      # row i of the one matches row i of the other
        found["contributing"]                # (2, B): of the queries, and of the candidates asking

    count = dense.Dense(losses.load("smoothap"))
    of_queries, of_candidates = count(query, candidate)      # with n candidates a query, one query after the other
    of_queries["eq7"]                    # (B,)

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
from cocos.losses.smoothap import SmoothAP
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
RANKED = (*NAMES[:7], "negatives", "eq7")
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


def _check_unit(query: Tensor) -> None:
    first = query.reshape(-1, query.shape[-1])[0]
    if not abs(float(first @ first) - 1) < UNIT:
        raise InputError(f"query: its first row has the norm {float(first.norm()):.4g}, expected unit vectors")


class Dense:
    """Counts and sums of one loss on batches of pairs, in both directions.

    Args:
        loss: NT-Xent or a loss that equals it on one positive, with a temperature of at least 0.025; `triplet`; or
            `smoothap`.
        eps: smallest share that contributes, above 0; for SmoothAP also the smallest term of Eq. 7.

    Raises:
        InputError: another loss, or an eps out of range.
    """

    def __init__(self, loss, eps: float = 0.01):
        self.hinge, self.ranks = type(loss) is Triplet, type(loss) is SmoothAP
        if not self.hinge and not self.ranks and not isinstance(loss, SOFTMAX):
            raise InputError(
                f"{loss!r}: small batches are counted for triplet, smoothap, ntxent and the losses that equal it; "
                "cocos.sweep.run counts the others"
            )
        if not 0 < eps < (1 if self.hinge else math.inf):
            raise InputError(f"eps: {eps}, expected a share above 0" + (" and below 1" if self.hinge else ""))
        self.margin, self.eps = loss.margin if self.hinge else 0.0, eps
        self._held: dict[object, tuple[Tensor, ...]] = {}
        if self.ranks:
            self.scale = math.log2(math.e) / loss.temperature
            return
        self.scale = 0.0 if self.hinge else loss.softmax_scale * math.log2(math.e)
        if self.scale > 58:  # 4^z of unit vectors stays in float32
            raise InputError(f"{loss!r}: its exponents leave the range of float32; use cocos.sweep.run")

    def __call__(self, query: Tensor, candidate: Tensor) -> "Counts | tuple[dict[str, Tensor], dict[str, Tensor]]":
        """Count one batch, or each batch of a stack.

        Args:
            query: (B, d) or (K, B, d) unit vectors, float32 or float64.
            candidate: of the same shape; row i matches row i of the queries. For SmoothAP (B·n, d) or (K, B·n, d): the
                n rows from i·n on match row i.

        Returns:
            Of a hinge only `contributing` and `uncertain`: every other statistic of it is this count. Of SmoothAP what
            `cocos.sweep.run` gives: float64 statistics by name, (B,) of the queries and (B·n,) of the candidates; each
            with K in front of a stack.

        Raises:
            InputError: shapes that do not fit, or rows that are no unit vectors (the first one is looked at).
        """
        if self.ranks:
            return self._ranked(query.detach(), candidate.detach())
        if query.shape != candidate.shape or query.ndim not in {2, 3} or query.shape[-2] < 2:
            raise InputError(
                f"query {tuple(query.shape)} and candidate {tuple(candidate.shape)}: expected one shape, (B, d) or "
                "(K, B, d), with at least two pairs"
            )
        query, candidate = query.detach(), candidate.detach()
        _check_unit(query)
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

    def _ranked(self, query: Tensor, candidate: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """SmoothAP of both directions.

        Raises:
            InputError: as `__call__`.
        """
        size, number = query.shape[-2] if query.ndim > 1 else 0, candidate.shape[-2] if candidate.ndim > 1 else 0
        apart = [*query.shape[:-2], query.shape[-1]] != [*candidate.shape[:-2], candidate.shape[-1]]
        if query.ndim not in {2, 3} or size < 2 or number < size or number % size or apart:
            raise InputError(
                f"query {tuple(query.shape)} and candidate {tuple(candidate.shape)}: expected (B, d) and (B·n, d), or "
                "(K, B, d) and (K, B·n, d), with at least two queries"
            )
        _check_unit(query)
        if query.ndim == 3:
            sides = zip(*(self._ranked(*each) for each in zip(query, candidate, strict=True)), strict=True)
            return tuple({name: torch.stack([each[name] for each in side]) for name in RANKED} for side in sides)
        many, width, place = number // size, query.shape[1], torch.arange(number, device=query.device)
        firsts, positives = (place[::many].contiguous(), place // many), (many, 1)
        if not (tiles.fuses(query.device) and query.dtype == candidate.dtype == torch.float32):
            scores = query.double() @ candidate.double().T
            loose = 3 * (width + 8) * torch.finfo(torch.float64).eps * self.scale + 1e-12
            sides = zip((scores, scores.T), firsts, positives, strict=True)
            return tuple(dict(zip(RANKED, self._ranks(*side, loose), strict=True)) for side in sides)
        if (size, number) not in self._held:
            held = torch.empty(size, number), torch.empty(number, size)
            self._held[size, number] = (*held, torch.empty((many + 3) * (number + 20), dtype=torch.float64))
        scores, turned, work = self._held[size, number]
        query, candidate = query.contiguous(), candidate.contiguous()
        turned.copy_(torch.mm(query, candidate.T, out=scores).T)
        unit = torch.finfo(torch.float32).eps / 2
        room, found = (width + 8) * unit * 1.1 + unit, []
        for score, rows, first, number in zip(
            (scores, turned), ((query, candidate), (candidate, query)), firsts, positives, strict=True
        ):
            out = work.new_empty(len(RANKED), len(score))
            tiles.ranked(score, *rows, first, number, self.scale, self.eps, room, out, work)
            found.append(dict(zip(RANKED, out, strict=True)))
        return tuple(found)

    def _ranks(self, score: Tensor, first: Tensor, many: int, loose: float) -> Tensor:
        """The same in torch, (9, B)."""
        place = first[:, None] + torch.arange(many, device=score.device)
        own = score.gather(1, place)
        away = torch.ones_like(score).scatter_(1, place, 0)
        share, met, terms = torch.zeros_like(score), score.new_zeros(len(score), many, many), torch.zeros_like(first)
        beside, pulled = torch.zeros_like(own), torch.zeros_like(own)
        for k in range(many):
            difference = (score - own[:, k, None]) * (self.scale * math.log(2))
            above = difference.sigmoid()
            slope = above * (-difference).sigmoid()
            below = (above * away).sum(dim=1)
            rank = 0.5 + above.gather(1, place).sum(dim=1)
            slope.scatter_(1, place[:, k, None], 0)
            square = (rank + below).square()
            share += (rank / square)[:, None] * slope * away
            pulled[:, k] = rank / square * (slope * away).sum(dim=1)
            beside[:, k], met[:, k] = below / square, slope.gather(1, place)
            terms += (slope / square[:, None] > self.eps).sum(dim=1)
        total, unit = pulled.sum(dim=1), self.scale * math.log(2) / many
        pulled += (met * (beside[:, :, None] - beside[:, None])).sum(dim=1)
        counts, mass = share > self.eps, torch.where(share > self.eps, share, 0).sum(dim=1)
        lines = [counts.sum(dim=1), ((share - self.eps).abs() <= self.eps * loose).sum(dim=1)]
        lines += [mass, (total - mass).clamp(min=0), pulled.abs().sum(dim=1)]
        lines += [unit * (total + (-pulled).clamp(min=0).sum(dim=1)), unit * pulled.clamp(min=0).sum(dim=1)]
        lines += [torch.full_like(total, score.shape[1] - many), terms.double() / many]
        return torch.stack([line.double() for line in lines])

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
