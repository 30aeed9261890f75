"""Log-sum-exp of the negatives of every query, its moments, and the few negatives that can have a share above eps.

A sum of exponentials only grows. So a negative whose share of the whole sum is above eps has one of the sum so far that
is above eps, whenever it is seen: it is enough to note the negatives above a limit that follows from the sum so far,
less what rounding may do (`bounds.room`). After a tile at most 1 / eps of them can be above the limit of a query, and
the list is cut down to these when it is full. Where even that is too much, the same negatives are counted in a second
pass (`counts`), with limits that are final.
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.engine import bounds, compact, fused
from cocos.engine.parts import Part, Tile, zeros
from cocos.engine.primitives.exponentials import ROOM, Exponentials
from cocos.engine.primitives.threshold import Threshold
from cocos.engine.view import View

__all__ = ["Counted", "LogSumExp", "Question", "Sums", "counts"]

# Largest exponent (base 2) without, and with, moments, whose power and its square float32 adds without a reference.
NARROW = (90.0, 60.0)
LOG2E = math.log2(math.e)
# float32 additions before float64 takes over: 64 rows of a tile, or 384 columns in vectors of eight (kernel/simd.h).
SHORT = 64
# Smallest log2 of a sum with references, relative to the exponent below which the kernel counts all as 2^-100 (REACH).
CLAMPED = -26.0


@dataclass(frozen=True)
class Question:
    """Which negatives of every query of a direction have a share above eps?

    Args:
        share: (n,) share of all negatives of a query together; 0 where none is to be counted.
        log2: (n,) log2 of the sum that the share is distributed by.
        error: (n,) logarithmic error of that sum, in nats.
        eps: smallest share that counts.
        weighed: the mass of those that count is wanted.
    """

    share: Tensor
    log2: Tensor
    error: Tensor
    eps: float
    weighed: bool = True

    def base(self) -> Tensor:
        """Exponent of share / eps of a negative with a score of 0, (n,); -inf where none is to be counted."""
        return torch.where(self.share > 0, self.share.log2() - self.log2 - math.log2(self.eps), -torch.inf)


@dataclass(frozen=True)
class Counted:
    """Negatives above eps of every query, (n,) each.

    Args:
        number: int64, those above.
        uncertain: int64, of all negatives, those that may lie on either side.
        mass: float64, shares of those above, if that is wanted.
    """

    number: Tensor
    uncertain: Tensor
    mass: Tensor


class LogSumExp:
    """Sums of exponentials of the negatives of every query, and the negatives that may have a share above eps.

    Args:
        view: the scores.
        scale: λ of Σ exp(λ · score).
        base: of each direction, (n,) exponents (base 2): what else stands in the denominator of a share.
        offset: of each direction, (n,) exponents: a negative may count whose exponent is above that of the denominator
            by more. None: no negative is noted.
        moments: the effective number and the participation ratio are wanted.
        floor: of each direction, (n,) scores of the dtype of the tiles; negatives that are not above it are left out.

    `done` gives `Sums`.
    """

    def __init__(
        self,
        view: View,
        scale: float,
        *,
        base: Sequence[Tensor] | None = None,
        offset: Sequence[Tensor] | None = None,
        moments: bool = True,
        floor: Sequence[Tensor] | None = None,
    ):
        self.view, self.nats, self.scale, self.moments = view, scale, scale * LOG2E, moments
        self.size = self.scale * view.most
        self.wide = self.size > NARROW[moments]
        sizes = [len(view.sides[k]) + fused.PAD for k in view.directions]
        self.zero = [
            torch.zeros(n, dtype=view.dtype, device=view.device) for n in sizes
        ]  # not written to, nor are these
        self.lowest = [zero - torch.inf for zero in self.zero]
        self.floor = self._floor(floor) if self.wide or floor else None
        # A score of a tile is off by `off` and, a distance, by square / |score| besides, at most its root.
        self.deep = fused.deep(view, self)
        self.nearest = float(torch.as_tensor(view.bound(deep=self.deep)))  # of a score; of a distance of 0
        self.square = math.nextafter(self.nearest**2, math.inf) if view.metric == "euclidean" else 0.0
        self.off = bounds.distance(0.0, view.most).item() if self.square else self.nearest
        self.known = [] if offset is None else [torch.stack(each) for each in zip(base, offset, strict=True)]
        self.room = self._room() if self.known else 0.0

    def _floor(self, floor: Sequence[Tensor] | None) -> list[Tensor]:
        found = floor or [torch.full_like(side.norm, -torch.inf) for side in self.view.sides]
        return [torch.nn.functional.pad(each.to(self.view.dtype), (0, fused.PAD)) for each in found]

    def error(self, top: Tensor) -> Tensor:
        """Logarithmic errors, in nats, of sums over scores of the tiles of which none is above `top`, (n,)."""
        view, number = self.view, max(len(side) for side in self.view.sides)
        if view.dtype == torch.float64:
            return torch.full_like(top, bounds.equal(self.nearest, self.nats, number), dtype=torch.float64)
        masked = bounds.clamped(number, -self.size if self.floor is None else CLAMPED)
        bound = self.off + (view.bound(top.double(), deep=self.deep) if self.square else 0.0)
        error = bounds.log_sum(bound, self.nats, self.size, SHORT, number)
        return torch.full_like(top, masked, dtype=torch.float64) + error

    def _room(self) -> float:
        """How far limits are lowered, in units of score, near 0; for distances by more, see `square`."""
        known = [each[each.isfinite()].abs() for each in self.known]
        largest = self.size + 64 + max((float(each.max()) for each in known if len(each)), default=0.0)
        return float(bounds.room(self.off, self.nats, self.error(torch.zeros(1)), largest))

    def start(self, view: View) -> Exponentials:
        """No negative yet."""
        sizes = [len(lowest) for lowest in self.lowest]
        return Exponentials(
            [zeros(4 if self.floor else 3, n, dtype=torch.float64, device=view.device) for n in sizes],
            [lowest.clone() for lowest in self.lowest],
            [torch.full_like(least, -math.ceil(self.size)) if self.wide else least for least in self.zero],
            [limit.clone() if self.known else limit for limit in self.floor or self.lowest],
            [[] for _ in sizes],
            self.wide,
            self.known,
            self.scale,
            (self.room, self.square),
        )

    def see(self, state: Exponentials, tile: Tile) -> None:
        """Take in one tile."""
        powers = None if self.floor else (tile.scores * self.scale).exp2()
        for k, where in enumerate((tile.rows, tile.columns)[: len(state.total)]):
            lines, own = (tile.scores, powers) if k == 0 else (tile.scores.T, None if powers is None else powers.T)
            self._add(state, k, where, lines, own)
            if self.known and state.noted[k] is not None:
                limit = state.renew(k, where)
                ends = (limit, None)
                found = tile.between(*((ends, None) if k == 0 else (None, ends)), room=compact.MANY)
                state.note(k, [(found.row.int(), found.column.int(), found.score)], ROOM, tile)

    def _add(self, state: Exponentials, k: int, where: slice, lines: Tensor, powers: Tensor | None) -> None:
        """Add the exponentials of some lines of a tile, (queries, others), to the sums of a direction."""
        top, total = lines.amax(dim=1), state.total[k][:, where]
        if self.wide:
            state.raised(k, where, torch.maximum(state.reference[k][where], (top * self.scale).ceil()))
        if powers is None:
            kept = lines > self.floor[k][where, None]
            powers = torch.where(kept, (lines * self.scale - state.reference[k][where, None]).exp2(), 0)
            total[3] += kept.sum(dim=1)
            top = torch.where(kept.any(dim=1), top, -torch.inf)
        torch.maximum(state.top[k][where], top, out=state.top[k][where])
        total[0] += powers.sum(dim=1, dtype=torch.float64)
        if self.moments:
            total[1] += (powers * lines.clamp(min=-self.view.most)).sum(dim=1, dtype=torch.float64)
            total[2] += powers.square().sum(dim=1, dtype=torch.float64)

    def done(self, state: Exponentials) -> "Sums":
        """The sums of all parts."""
        return Sums(self, state)


class Sums:
    """What a pass has found, of each direction."""

    def __init__(self, of: LogSumExp, state: Exponentials):
        self.of, self.state, self.noted = of, state, state.noted
        self._sizes = [len(of.view.sides[k]) for k in of.view.directions]
        self._total = [total[:, :n] for total, n in zip(state.total, self._sizes, strict=True)]
        self.top = [top[:n] for top, n in zip(state.top, self._sizes, strict=True)]  # (n,) largest score
        self.error = [of.error(top) for top in self.top]  # (n,) logarithmic error of the sum, in nats
        self.log2 = [  # (n,) log2 Σ exp(λ · score), float64; -inf without a negative
            torch.where(top > -torch.inf, total[0].log2() + state.reference[k][: len(top)], -torch.inf)
            for k, (total, top) in enumerate(zip(self._total, self.top, strict=True))
        ]

    def effective(self, k: int) -> Tensor:
        """Effective number of negatives, exp of the entropy of their parts of the sum, (n,); 0 without any."""
        total = self._total[k]
        entropy = self.log2[k] - self.of.scale * total[1] / total[0]
        return torch.where(self.top[k] > -torch.inf, entropy.exp2(), 0)

    def participation(self, k: int) -> Tensor:
        """Participation ratio of the negatives, 1 / Σ part², (n,); 0 without any."""
        total = self._total[k]
        return torch.where(self.top[k] > -torch.inf, total[0].square() / total[2], 0)

    def number(self, k: int) -> Tensor:
        """Negatives above the floor, (n,) int64, where there is one."""
        return self._total[k][3].long()

    def count(self, asked: Sequence[Sequence[Question]]) -> list[list[Counted | None]]:
        """Negatives that have a share above eps, for each question and direction; None: they were too many to note."""
        found = [[None] * len(questions) for questions in asked]
        for j, questions in enumerate(asked):
            for k, question in enumerate(questions):
                number = torch.zeros_like(question.share, dtype=torch.int64)
                mass = torch.zeros_like(question.share) if question.weighed else question.share
                each = Counted(number, number.clone(), mass)
                if question.eps == 0:
                    every = torch.where(question.share > 0, self.of.view.negatives(k), 0)
                    each = Counted(every, number, question.share)
                elif self.noted[k] is None:
                    continue
                elif self.of.deep is None:
                    self._outside(k, question, each)
                else:
                    self._inside(k, question, each)
                found[j][k] = each
        return found

    def _inside(self, k: int, asked: Question, found: Counted) -> None:
        """Count by the kernel."""
        of, size = self.of, len(asked.share)
        low, high = torch.empty(2, size + fused.PAD)
        made = fused.struct("shares", side=k, fresh=1, queries=size, eps=asked.eps, low=low, high=high)
        made.set(base=asked.base(), known=asked.error * LOG2E, scale=of.scale)
        made.set(off=of.off, square=of.square, root=of.square**0.5)
        made.set(above=found.number, uncertain=found.uncertain, mass=found.mass if asked.weighed else None)
        for row, column, score in self.noted[k]:
            made.set(row=row, column=column, score=score, number=len(row))
            fused.shares(of.view, made)
            made.fresh = 0

    def _outside(self, k: int, asked: Question, found: Counted) -> None:
        """Count by PyTorch."""
        of, base, known = self.of, asked.base(), asked.error * LOG2E
        for row, column, score in self.noted[k]:
            query = (row, column)[k].long()
            excess = base[query] + score.double() * of.scale
            off = of.off + (of.view.bound(score.double(), deep=of.deep) if of.square else 0.0)
            open_ = (excess.abs() <= known[query] + off * of.scale).nonzero().flatten()
            excess[open_] = base[query[open_]] + of.view.exact(row[open_], column[open_]) * of.scale
            found.number.index_add_(0, query, (excess > 0).long())
            near = (excess.abs() <= known[query]) & (score > -torch.inf)
            found.uncertain.index_add_(0, query, near.long())
            if asked.weighed:
                found.mass.index_add_(0, query, torch.where(excess > 0, excess.exp2() * asked.eps, 0))


def counts(sums: Sums, asked: Sequence[Sequence[Question]]) -> Generator[tuple, tuple, list[list[Counted]]]:
    """Count for every question, with one more pass where the negatives were too many to note.

    In that pass limits are final: exact counts above them, and sums of the exponentials that are certainly above.

    Args:
        sums: of the first pass.
        asked: each question, for each direction.

    Returns:
        For each question, the counts of each direction.

    Yields:
        What is wanted of a pass.
    """
    of, view, found = sums.of, sums.of.view, sums.count(asked)
    left, wanted = [j for j, each in enumerate(found) if None in each], []
    for j in left:
        levels, floors = [], []
        for question, done in zip(asked[j], found[j], strict=True):
            level = torch.full_like(question.share, torch.inf) if done else -question.base() / of.scale
            width = question.error / of.nats
            levels.append(torch.stack([level - width, level, level + width], dim=1).nan_to_num(torch.inf, torch.inf))
            floors.append(bounds.outward(level, view.bound(level) + view.tie, view.dtype)[1])
        wanted += [Threshold(view, levels), LogSumExp(view, of.nats, moments=False, floor=floors)]
    seen = (yield tuple(wanted)) if wanted else ()
    for j, above, masses in zip(left, seen[::2], seen[1::2], strict=True):
        for k, question in enumerate(asked[j]):
            if found[j][k] is not None:
                continue
            low, number, high = above.above[k].unbind(dim=1)
            # A share that is above, though a tile does not tell for certain, is eps, as near as the tile tells.
            rest = (number - masses.number(k)) * question.eps
            mass = torch.where(question.share > 0, question.share * (masses.log2[k] - question.log2).exp2(), 0) + rest
            found[j][k] = Counted(number, low + above.ties[k][:, 0] - high, mass)
    return found  # noqa: B901 - the value of `yield from`


class _Kernel(fused.Arguments):
    name = "logsumexp"

    def __init__(self, reader: LogSumExp, view: View, chunk: int):
        super().__init__(reader, view, chunk)
        self.struct.set(sides=len(view.directions), moments=reader.moments, grows=reader.wide, scale=reader.scale)
        self.struct.set(room=reader.room, square=reader.square, root=reader.square**0.5)
        self.lists = []
        for k in view.directions:
            asker = self.struct.asking[k]
            asker.set(number=len(view.sides[k]) + fused.PAD)
            if reader.floor:
                asker.set(floor=reader.floor[k])
            if reader.known:
                asker.set(base=reader.known[k][0], offset=reader.known[k][1])
                self.lists.append(fused.Lists(asker.list, ROOM + fused.ROOM // 2, side=False))

    def aim(self, state: Exponentials, part: Part) -> None:
        self.state = state
        for k in self.view.directions:
            asker = self.struct.asking[k]
            asker.set(total=state.total[k], top=state.top[k], step=state.total[k].shape[1], kept=0, full=0)
            asker.set(reference=state.reference[k] if self.reader.floor else None)
            asker.set(limit=state.limit[k] if self.reader.known else None)

    def end(self) -> None:
        for k, found in enumerate(self.lists):
            taken = found.taken()
            noted = [(taken["row"], taken["column"], taken["score"])]
            self.state.note(k, None if self.struct.asking[k].full else noted)


LogSumExp.kernel = _Kernel
