"""Log-sum-exp over the negatives of every query, its moments, and the few negatives whose share can exceed eps.

In: a view and the scale λ of Σ exp(λ score). Out: `Sums`, and exact counts of shares above eps (`counts`).

Why few negatives need to be noted: a sum of exponentials only grows. A negative whose share of the whole sum exceeds
eps therefore has a share of the partial sum that exceeds eps, whenever it is visited. So only negatives above a limit
that follows from the partial sum, lowered by the effect of rounding (`bounds.room`), are noted; at most 1 / eps of a
query's negatives can be above the limit after a tile, and the list is cut down to these when it is full. If even that
is too much, `counts` makes a second pass, whose limits are final. Negatives within rounding of a limit are decided in
float64.
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.engine import bounds, fused
from cocos.engine.kernel import structs
from cocos.engine.parts import Part, Tile, ones_above, zeros
from cocos.engine.primitives.exponentials import MAX_NOTED_PER_PART, Exponentials, Piece
from cocos.engine.primitives.threshold import Threshold, number_above
from cocos.engine.view import View

# Largest |exponent| (base 2), without and with moments, for which powers and their squares are summed in float32
# without a reference.
NARROW_EXPONENTS = (90.0, 60.0)
# log2(e), which turns nats into exponents of two.
LOG2E = math.log2(math.e)
# Number of float32 additions before float64 takes over: 64 rows of a tile (CHUNK in logsumexp.c), or 384 columns in
# vectors of at least eight (simd.h).
FLOAT32_ADDITIONS = 64
# Argument `least` of `bounds.clamped` for sums with references: the kernel counts exponents more than 100 below the
# reference as 2^-100 (REACH in logsumexp.c), and -126 - CLAMPED_LOG2 = -100.
CLAMPED_LOG2 = -26.0
# Scores of a stack up to which PyTorch keeps the tiles, in place of lists of noted negatives: 64 MiB.
KEPT_SCORES = 2**24
# Factor by which exponents stay below the largest number of their dtype, so that sums of a few of them do too.
EXPONENT_ROOM = 2.0**24


@dataclass(frozen=True)
class Question:
    """Which negatives of every query of one direction have a share above eps?

    Args:
        share: (n,) total share of the negatives of a query; 0 where none is to be counted.
        log2: (n,) log2 of the sum over which the share is distributed.
        error: (n,) logarithmic error of that sum, in nats.
        eps: smallest share that counts.
        weighed: whether the total share of the counted negatives is wanted.
    """

    share: Tensor
    log2: Tensor
    error: Tensor
    eps: float
    weighed: bool = True

    def base(self) -> Tensor:
        """log2 of share / eps of a hypothetical negative with score 0, (n,); -inf where none is to be counted."""
        return torch.where(self.share > 0, self.share.log2() - self.log2 - math.log2(self.eps), -torch.inf)


@dataclass(frozen=True)
class Counted:
    """Number of negatives above eps of every query, (n,) each.

    Args:
        number: int64, negatives above eps.
        uncertain: int64, negatives that may lie on either side of eps.
        mass: float64, total share of the negatives above eps, if wanted.
    """

    number: Tensor
    uncertain: Tensor
    mass: Tensor


class LogSumExp:
    """Sum the exponentials of the negatives of every query, and note the negatives whose share may exceed eps.

    Args:
        view: the scores.
        scale: λ of Σ exp(λ score).
        base: for each direction, (n,) log2 of the remaining terms of a share's denominator.
        offset: for each direction, (n,) exponents: a negative may count if its exponent exceeds the denominator's log2
            by more. None: no negative is noted.
        moments: compute the effective number and the participation ratio.
        floor: for each direction, (n,) scores in the dtype of the tiles; only negatives above the floor are summed.
        whole: whether tiles of small batches may be kept until the end of the pass, in place of lists: in those, more
            than one negative in a hundred is noted, which takes longer than to read all scores once more.

    `done` returns `Sums`.

    Raises:
        InputError: λ times the largest score leaves the range of the dtype of the tiles.
    """

    kernel: ClassVar[type[fused.Arguments] | None]
    narrow: ClassVar[tuple[float, float]] = NARROW_EXPONENTS
    stacks: ClassVar[bool] = True

    def __init__(
        self,
        view: View,
        scale: float,
        *,
        base: Sequence[Tensor] | None = None,
        offset: Sequence[Tensor] | None = None,
        moments: bool = True,
        floor: Sequence[Tensor] | None = None,
        whole: bool = False,
    ):
        self.view, self.nats, self.scale, self.moments = view, scale, scale * LOG2E, moments
        self.size = self.scale * view.most
        if not self.size < torch.finfo(view.dtype).max / EXPONENT_ROOM:
            dtype = str(view.dtype).removeprefix("torch.")
            raise InputError(
                f"exponents leave the range of {dtype}: a scale of {scale:.3g} times scores of up to {view.most:.3g}; "
                "take a scale or temperature nearer to 1"
            )
        self.wide = self.size > self.narrow[moments]
        sizes = [len(view.sides[k]) + fused.PAD for k in view.directions]
        self.zero = [torch.zeros(n, dtype=view.dtype, device=view.device) for n in sizes]  # read only, as `lowest`
        self.lowest = [zero - torch.inf for zero in self.zero]
        lines = floor or [torch.full_like(side.norm, -torch.inf) for side in view.sides]
        padded = [torch.nn.functional.pad(each.to(view.dtype), (0, fused.PAD)) for each in lines]
        self.floor = padded if self.wide or floor else None
        self.lines = 4 if self.floor else 3  # number of sums of a query
        # Error of a score of a tile: `off`; for a distance, also square / |score|, but at most the root of `square`.
        self.deep = fused.deep(view, self)
        self.nearest = float(torch.as_tensor(view.bound(deep=self.deep)))  # of a score; of a distance of 0
        self.square = math.nextafter(self.nearest**2, math.inf) if view.metric == "euclidean" else 0.0
        self.off = bounds.distance(0.0, view.most).item() if self.square else self.nearest
        self.known = [torch.stack(each) for each in zip(base or (), offset or (), strict=True)]
        self.room = self._room() if self.known else 0.0
        small = 1 < view.blocks and int(np.diff(view.rows) @ np.diff(view.columns)) <= KEPT_SCORES
        self.keeps = whole and small and self.deep is None and view.dtype == torch.float32

    def error(self, top: Tensor, *, of_scores: bool = True) -> Tensor:
        """Bound the logarithmic error, in nats, of sums over scores of the tiles that do not exceed `top`, (n,).

        Without that of the scores, it is that of the exponentials and of adding them up.
        """
        view, number = self.view, max(len(side) for side in self.view.sides)
        if view.dtype == torch.float64:
            return torch.full_like(top, bounds.equal(self.nearest, self.nats, number), dtype=torch.float64)
        masked = bounds.clamped(number, -self.size if self.floor is None else CLAMPED_LOG2)
        bound = self.off + (view.bound(top.double(), deep=self.deep) if self.square else 0.0)
        error = bounds.log_sum(bound if of_scores else 0.0, self.nats, self.size, FLOAT32_ADDITIONS, number)
        return torch.full_like(top, masked, dtype=torch.float64) + error

    def _room(self) -> float:
        """Amount by which limits are lowered, in units of score, near 0; distances add more, see `square`."""
        known = [each[each.isfinite()].abs() for each in self.known]
        largest = self.size + 64 + max((float(each.max()) for each in known if len(each)), default=0.0)
        return float(bounds.room(self.off, self.nats, self.error(torch.zeros(1, dtype=torch.float32)), largest))

    def start(self, view: View) -> Exponentials:
        """Return an empty state."""
        sizes = [len(lowest) for lowest in self.lowest]
        return Exponentials(
            [zeros(self.lines, n, dtype=torch.float64, device=view.device) for n in sizes],
            [lowest.clone() for lowest in self.lowest],
            [torch.full_like(least, -float(math.ceil(self.size))) if self.wide else least for least in self.zero],
            [limit.clone() if self.known else limit for limit in self.floor or self.lowest],
            [[] for _ in sizes],
            self.wide,
            self.known,
            self.scale,
            (self.room, self.square),
        )

    def see(self, state: Exponentials, tile: Tile) -> None:
        """Add one tile."""
        scores = tile.lines(0)
        terms = [] if self.floor else self._terms(scores, (scores * self.scale).exp2_())
        if self.keeps:
            state.tiles.append((tile.rows.start, tile.columns.start, scores.clone()))
        for k, where in enumerate((tile.rows, tile.columns)[: len(state.total)]):
            self._add(state, k, where, tile.lines(k), [each.mT for each in terms] if k else terms)
            if self.known and not self.keeps and state.noted[k] is not None:
                limit = state.renew(k, where)
                ends = (limit, None)
                found = tile.between(None if k else ends, ends if k else None)
                state.note(k, [(found.row.int(), found.column.int(), found.score)], MAX_NOTED_PER_PART)

    def _terms(self, lines: Tensor, powers: Tensor) -> list[Tensor]:
        """Terms of the sums of some lines."""
        return [powers, powers * lines.clamp(min=-self.view.most), powers.square()] if self.moments else [powers]

    def _add(self, state: Exponentials, k: int, where: slice, lines: Tensor, terms: list[Tensor]) -> None:
        """Add the terms of some lines of a tile, (blocks, queries, others), to the sums; none are given of a floor."""
        top, total = lines.amax(dim=2).flatten(), state.total[k][:, where]
        if self.wide:
            state.raised(k, where, torch.maximum(state.reference[k][where], (top * self.scale).ceil()))
        if self.floor:
            floor, reference = (each[where].view(len(lines), -1, 1) for each in (self.floor[k], state.reference[k]))
            kept = ones_above(lines, floor)
            terms = self._terms(lines, (lines * self.scale).sub_(reference).exp2_().mul_(kept))
            number = sums_of(kept)
            total[3] += number
            top = torch.where(number > 0, top, -torch.inf)
        torch.maximum(state.top[k][where], top, out=state.top[k][where])
        for place, values in enumerate(terms):
            total[place] += sums_of(values)

    def done(self, state: Exponentials) -> "Sums":
        """Return the sums of all parts."""
        return Sums(self, state)


def sums_of(terms: Tensor) -> Tensor:
    """Sum the lines of (blocks, queries, others), (blocks * queries,) float64; float32 adds pieces, which is faster."""
    dim = 2
    if terms.stride(2) != 1:  # columns of a tile: added row by row, as they stand in memory
        terms, dim = terms.mT, 1
    if terms.shape[dim] % FLOAT32_ADDITIONS == 0:
        terms = terms.unflatten(dim, (-1, FLOAT32_ADDITIONS)).sum(dim=dim + 1)
    return terms.sum(dim=dim, dtype=torch.float64).flatten()


class Sums:
    """Results of a log-sum-exp pass, for each direction."""

    def __init__(self, of: LogSumExp, state: Exponentials):
        self.of, self.state, self.noted = of, state, state.noted
        self._sizes = [len(of.view.sides[k]) for k in of.view.directions]
        self._total = [total[:, :n] for total, n in zip(state.total, self._sizes, strict=True)]
        self.top = [
            top[:n] for top, n in zip(state.top, self._sizes, strict=True)
        ]  # (n,) largest score above the floor
        self.error = [of.error(top) for top in self.top]  # (n,) logarithmic error of the sum, in nats
        self.log2 = [  # (n,) log2 Σ exp(λ · score), float64; -inf without a negative
            torch.where(top > -torch.inf, total[0].log2() + state.reference[k][: len(top)], -torch.inf)
            for k, (total, top) in enumerate(zip(self._total, self.top, strict=True))
        ]

    def effective(self, k: int) -> Tensor:
        """Effective number of negatives: exp of the entropy of their shares of the sum, (n,); 0 without any."""
        total = self._total[k]
        entropy = self.log2[k] - self.of.scale * total[1] / total[0]
        return torch.where(self.top[k] > -torch.inf, entropy.exp2(), 0)

    def participation(self, k: int) -> Tensor:
        """Participation ratio of the negatives, 1 / Σ share², (n,); 0 without any."""
        total = self._total[k]
        return torch.where(self.top[k] > -torch.inf, total[0].square() / total[2], 0)

    def number(self, k: int) -> Tensor:
        """Number of negatives above the floor, (n,) int64; only with a floor."""
        return self._total[k][3].long()

    def count(self, asked: Sequence[Sequence[Question]]) -> list[list[Counted | None]]:
        """Count the noted negatives with a share above eps, for each question and direction; None: too many to note."""
        found: list[list[Counted | None]] = [[None] * len(questions) for questions in asked]
        for j, questions in enumerate(asked):
            for k, question in enumerate(questions):
                number = torch.zeros_like(question.share, dtype=torch.int64)
                mass = torch.zeros_like(question.share) if question.weighed else question.share
                each = Counted(number, number.clone(), mass)
                if question.eps == 0:
                    every = torch.where(question.share > 0, self.of.view.negatives(k), 0)
                    each = Counted(every, number, question.share)
                elif self.of.keeps:
                    self._count_in_tiles(k, question, each)
                elif self.noted[k] is None:
                    continue
                elif self.of.deep is None:
                    self._count_in_torch(k, question, each, self.noted[k])
                else:
                    self._count_in_kernel(k, question, each)
                found[j][k] = each
        return found

    def refine(self, k: int, places: Tensor) -> None:
        """Take the noted negatives of some queries from float64 scores, so that the others' scores alone are in doubt.

        Updates `log2` and `error`. The noted negatives of all these queries must be known.
        """
        of, view, log2 = self.of, self.of.view, self.log2[k]
        mine = torch.zeros(len(log2), dtype=torch.bool, device=log2.device).index_fill_(0, places, True)
        tiles, exact = torch.zeros_like(log2), torch.zeros_like(log2)  # parts of the sum: by scores of tiles, and exact
        for row, column, score in self.noted[k] or ():
            at = mine[(row, column)[k].long()].nonzero().flatten()
            query = (row, column)[k][at].long()
            tiles.index_add_(0, query, (score[at].double() * of.scale - log2[query]).exp2())
            exact.index_add_(0, query, (view.exact(row[at], column[at]) * of.scale - log2[query]).exp2())
        added, total = of.error(self.top[k], of_scores=False), 1 + exact - tiles
        others = (1 - tiles).clamp(min=0) + added.expm1()
        off = added.expm1() + (self.error[k] - added).expm1() * others
        off = (off + bounds.equal(view.exactness, of.nats, len(view.sides[1 - k]))) / total
        better = mine & (off < 0.5) & (-(-off).log1p() < self.error[k])
        self.log2[k] = torch.where(better, log2 + total.log2(), log2)
        self.error[k] = torch.where(better, -(-off).log1p(), self.error[k])

    def _count_in_kernel(self, k: int, asked: Question, found: Counted) -> None:
        """Count in the kernel."""
        of, size = self.of, len(asked.share)
        low, high = torch.empty(2, size + fused.PAD, dtype=torch.float32)
        made = structs.struct("shares", side=k, fresh=1, queries=size, eps=asked.eps, low=low, high=high)
        made.set(base=asked.base(), known=asked.error * LOG2E, scale=of.scale)
        made.set(off=of.off, square=of.square, root=of.square**0.5)
        made.set(above=found.number, uncertain=found.uncertain, mass=found.mass if asked.weighed else None)
        for row, column, score in self.noted[k] or ():
            made.set(row=row, column=column, score=score, number=len(row))
            fused.shares(of.view, made)
            made.fresh = 0

    def _count_in_tiles(self, k: int, asked: Question, found: Counted) -> None:
        """Count in the tiles that were kept: float32 decides beyond its rounding, and few negatives need float64."""
        of, base, left = self.of, asked.base(), list[Piece]()
        level = -base / of.scale
        width = asked.error / of.nats + of.off + (of.view.bound(level, deep=of.deep) if of.square else 0.0)
        ends = bounds.outward(level, width, of.view.dtype)
        for *begin, scores in self.state.tiles:
            lines = scores.mT if k else scores
            where = slice(begin[k], begin[k] + lines.shape[0] * lines.shape[1])
            above, most = (number_above(lines, end[where]) for end in ends[::-1])
            found.number[where] += above
            low, high = (each[where].view(len(lines), -1, 1) for each in ends)
            if asked.weighed:
                one = (base[where] + math.log2(asked.eps)).view(len(lines), -1, 1).to(lines)  # share of a score of 0
                part = (lines * of.scale).add_(one).exp2_()
                found.mass[where] += sums_of(part.mul_(ones_above(lines, high)))
            doubts = (above < most).nonzero().flatten()
            block, query = doubts // lines.shape[1], doubts % lines.shape[1]
            some = lines[block, query]
            inside = (some > low[block, query]) & (some <= high[block, query])
            line, other = inside.nonzero(as_tuple=True)
            pair = doubts[line] + begin[k], block[line] * lines.shape[2] + other + begin[1 - k]
            left.append((*pair[:: 1 - 2 * k], some[line, other]))
        row, column, score = (torch.cat(each) for each in zip(*left, strict=True))
        self._count_in_torch(k, asked, found, [(row, column, score)])

    def _count_in_torch(self, k: int, asked: Question, found: Counted, noted: list[Piece]) -> None:
        """Count noted negatives in PyTorch."""
        of, base, known = self.of, asked.base(), asked.error * LOG2E
        for row, column, score in noted:
            query, there = (row, column)[k].long(), score > -torch.inf
            excess = base[query] + score.double() * of.scale
            off = of.off + (of.view.bound(score.double(), deep=of.deep) if of.square else 0.0)
            open_ = (there & (excess.abs() <= known[query] + off * of.scale)).nonzero().flatten()
            excess[open_] = base[query[open_]] + of.view.exact(row[open_], column[open_]) * of.scale
            found.number.index_add_(0, query, (excess > 0).long())
            near = there & (excess.abs() <= known[query])
            found.uncertain.index_add_(0, query, near.long())
            if asked.weighed:
                found.mass.index_add_(0, query, torch.where(excess > 0, excess.exp2() * asked.eps, 0))


def counts(sums: Sums, asked: Sequence[Sequence[Question]]) -> Generator[tuple, tuple, list[list[Counted]]]:
    """Count for every question, with one more pass if the negatives were too many to note.

    In that pass the limits are final: exact counts above them, and sums of the exponentials certainly above.

    Returns:
        For each question, the counts of each direction.

    Yields:
        The readers of the additional pass.
    """
    of, view, found = sums.of, sums.of.view, sums.count(asked)
    left, wanted = [j for j, each in enumerate(found) if None in each], []
    for j in left:
        levels, floors = [], []
        for question, done in zip(asked[j], found[j], strict=True):
            level = torch.full_like(question.share, torch.inf) if done else -question.base() / of.scale
            width = question.error / of.nats
            levels.append(torch.stack([level - width, level, level + width], dim=1).nan_to_num(torch.inf, torch.inf))
            floors.append(bounds.outward(level, view.bound(level, deep=of.deep) + view.tie, view.dtype)[1])
        wanted += [Threshold(view, levels), LogSumExp(view, of.nats, moments=False, floor=floors)]
    seen = (yield tuple(wanted)) if wanted else ()
    for j, above, masses in zip(left, seen[::2], seen[1::2], strict=True):
        for k, question in enumerate(asked[j]):
            if found[j][k] is not None:
                continue
            low, number, high = above.above[k].unbind(dim=1)
            # A share counted above eps by float64, but not certainly by the tile, equals eps to the tile's precision.
            rest = (number - masses.number(k)) * question.eps
            mass = torch.where(question.share > 0, question.share * (masses.log2[k] - question.log2).exp2(), 0) + rest
            found[j][k] = Counted(number, low + above.ties[k][:, 0] - high, mass)
    every = [[each for each in some if each is not None] for some in found]
    return every  # noqa: B901 - the value of `yield from`


class _KernelLogSumExp(fused.Arguments):
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
                base, offset = reader.known[k]
                asker.set(base=base, offset=offset)
                self.lists.append(fused.Lists(asker.list, MAX_NOTED_PER_PART + fused.LIST_ROOM // 2))

    def aim(self, state: Exponentials, part: Part) -> None:
        self.state = state
        for k in self.view.directions:
            asker = self.struct.asking[k]
            asker.set(total=state.total[k], top=state.top[k], step=state.total[k].shape[1], kept=0, full=0)
            asker.set(reference=state.reference[k] if self.reader.floor else None)
            asker.set(limit=state.limit[k] if self.reader.known else None)

    def end(self) -> None:
        for k, found in enumerate(self.lists):
            taken = found.take()
            noted = [(taken["row"], taken["column"], taken["score"])]
            self.state.note(k, None if self.struct.asking[k].full else noted)


LogSumExp.kernel = _KernelLogSumExp
