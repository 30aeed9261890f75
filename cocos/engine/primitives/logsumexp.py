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
from cocos.engine.primitives.threshold import Threshold
from cocos.engine.sweep import Part, Tile, zeros
from cocos.engine.view import View

__all__ = ["Counted", "LogSumExp", "Question", "Sums", "counts"]

# Largest exponent (base 2) without, and with, moments, whose power and its square float32 adds without a reference.
NARROW = (90.0, 60.0)
LOG2E = math.log2(math.e)
# float32 additions before float64 takes over: 64 rows of a tile, or 384 columns in vectors of eight (kernel/simd.h).
SHORT = 64
# Negatives that a part may note for a direction, which take 6 MiB, and all parts together, besides eight a query.
ROOM, MOST = 2**19, 2**20
# Smallest log2 of a sum with references, relative to the exponent below which the kernel counts all as 2^-100 (REACH).
CLAMPED = -26.0
Piece = tuple[Tensor, Tensor, Tensor]  # rows, columns and scores


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


@dataclass(eq=False)
class Exponentials:
    """State of `LogSumExp`; of each direction, arrays of its queries, `PAD` longer than there are.

    Args:
        total: (4, n) float64: Σ 2^z, Σ score 2^z, Σ 4^z, and the number of negatives above the floor, if there is one.
        top: (n,) largest score, above the floor.
        reference: (n,) whole exponents that z is counted from; 0 where exponents are narrow.
        limit: (n,) scores above which a negative may count.
        noted: rows, columns and scores of such negatives, in pieces, -inf where one is none; None: they were too many.
        wide: references differ.
        known: (2, n) the exponents `base` and `offset` of `LogSumExp`; none where nothing is noted.
        scale: of the exponents.
        off: score by which limits are lowered, and, for distances, the square that does so divided by the distance.
    """

    total: list[Tensor]
    top: list[Tensor]
    reference: list[Tensor]
    limit: list[Tensor]
    noted: list[list[Piece] | None]
    wide: bool
    known: list[Tensor]
    scale: float
    off: tuple[float, float]

    def merge(self, other: "Exponentials", part: Part) -> None:
        """Add the sums of a part, and append its list."""
        for k, where in enumerate((part.rows, part.columns)[: len(self.total)]):
            if self.wide:
                both = torch.maximum(self.reference[k][where], other.reference[k][where])
                for each in (self, other):
                    each.raised(k, where, both)
            self.total[k][:, where] += other.total[k][:, where]
            for mine, its in ((self.top, other.top), (self.limit, other.limit)):
                torch.maximum(mine[k][where], its[k][where], out=mine[k][where])
            self.note(k, other.noted[k])

    def raised(self, k: int, where: slice, reference: Tensor) -> None:
        """Express the sums of some queries by references that are at least the old ones."""
        part = (self.reference[k][where] - reference).double().exp2()
        self.total[k][:3, where] *= torch.stack([part, part, part.square()])
        self.reference[k][where] = reference

    def note(self, k: int, more: list[Piece] | None, most: int = MOST, tile: Tile | None = None) -> None:
        """Append to the list of a direction; if it is long, keep what is above the limits of now, or give up."""
        if more is None or self.noted[k] is None:
            return self.give_up(k)
        self.noted[k] += more
        spare, fixed = 8 * len(self.top[k]), tile is not None and tile.fixed
        if sum(len(piece[0]) for piece in self.noted[k]) > most + spare:
            self.renew(k, slice(0, self.known[k].shape[1]))
            found, room = tuple(map(torch.cat, zip(*self.noted[k], strict=True))), most // 2 + spare
            *kept, short = compact.kept(*found, found[2] > self.limit[k][found[k].long()], room if fixed else None)
            self.noted[k] = [tuple(kept)]
            if fixed:
                tile.short.append(short)
            elif len(kept[0]) > room:
                self.give_up(k)

    def renew(self, k: int, where: slice) -> Tensor:
        """Raise the limits of some queries to what follows from the sums; give them."""
        (base, offset), (room, square) = self.known[k][:, where], self.off
        exponent = self.total[k][0, where].log2() + self.reference[k][where]
        score = (torch.logaddexp2(exponent, base) + offset) / self.scale
        score = score - room - ((square / score.abs()).clamp(max=square**0.5) if square else 0.0)
        torch.maximum(self.limit[k][where], score.to(self.limit[k].dtype), out=self.limit[k][where])
        return self.limit[k][where]

    def give_up(self, k: int) -> None:
        """Note nothing any more."""
        self.noted[k] = None
        self.limit[k].fill_(torch.inf)


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
        self.size, self.notes = self.scale * view.most, offset is not None
        self.wide = self.size > NARROW[moments]
        self.floor = self._floor(floor) if self.wide or floor else None
        # A score of a tile is off by `off` and, a distance, by square / |score| besides, at most its root.
        self.square = view.rounding if view.metric == "euclidean" else 0.0
        self.off = bounds.distance(0.0, view.most).item() if self.square else float(view.bound())
        self.known = [torch.stack(each) for each in zip(base, offset, strict=True)] if self.notes else []
        self.room = self._room() if self.notes else 0.0

    def _floor(self, floor: Sequence[Tensor] | None) -> list[Tensor]:
        found = floor or [torch.full_like(side.norm, -torch.inf) for side in self.view.sides]
        return [torch.nn.functional.pad(each.to(self.view.dtype), (0, fused.PAD)) for each in found]

    def error(self, top: Tensor) -> Tensor:
        """Logarithmic errors, in nats, of sums over scores of the tiles of which none is above `top`, (n,)."""
        view, number = self.view, max(len(side) for side in self.view.sides)
        if view.dtype == torch.float64:
            nearest = float(torch.as_tensor(view.bound()).max())
            return torch.full_like(top, bounds.equal(nearest, self.nats, number), dtype=torch.float64)
        clamped = bounds.clamped(number, CLAMPED if self.floor else -self.size)
        bound = self.off + (view.bound(top.double()) if self.square else 0.0)
        added = bounds.log_sum(bound, self.nats, self.size, SHORT, number)
        return torch.full_like(top, clamped, dtype=torch.float64) + added

    def _room(self) -> float:
        """How far limits are lowered, in units of score, near 0; for distances by more, see `square`."""
        known = [each[each.isfinite()].abs() for each in self.known]
        largest = self.size + 64 + max((float(each.max()) for each in known if len(each)), default=0.0)
        return float(bounds.room(self.off, self.nats, self.error(torch.zeros(1)), largest))

    def start(self, view: View) -> Exponentials:
        """No negative yet."""
        sizes, least = [len(view.sides[k]) + fused.PAD for k in view.directions], -math.ceil(self.size) * self.wide
        tops = [torch.full((n,), -torch.inf, dtype=view.dtype, device=view.device) for n in sizes]
        return Exponentials(
            [zeros(4, n, dtype=torch.float64, device=view.device) for n in sizes],
            tops,
            [torch.full_like(top, least) for top in tops],
            [self.floor[k].clone() if self.floor else top.clone() for k, top in enumerate(tops)],
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
            if self.notes and state.noted[k] is not None:
                limit = state.renew(k, where)
                found = tile.above(*((limit, None) if k == 0 else (None, limit)))
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
        self._total = [t[:, : len(of.view.sides[k])] for k, t in enumerate(state.total)]
        least = -torch.inf if of.floor else -NARROW[False] / of.scale  # the kernel's top where there is no negative
        tops = (top[: total.shape[1]] for top, total in zip(state.top, self._total, strict=True))
        self.top = [top.masked_fill(top < least, -torch.inf) for top in tops]  # (n,) largest score
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

    def count(self, k: int, asked: Question) -> Counted | None:
        """Count the negatives of a direction that have a share above eps; None where they were too many to note."""
        of, pieces = self.of, self.noted[k]
        number = torch.zeros_like(asked.share, dtype=torch.int64)
        found = Counted(number, number.clone(), torch.zeros_like(asked.share) if asked.weighed else asked.share)
        if asked.eps == 0:
            return Counted(torch.where(asked.share > 0, of.view.negatives(k), 0), number, asked.share)
        if pieces is None:
            return None
        (self._inside if fused.serves(of.view, of) else self._outside)(k, asked, found)
        return found

    def _inside(self, k: int, asked: Question, found: Counted) -> None:
        """Count by the kernel."""
        of, made = self.of, fused.struct("shares", side=k, fresh=1, queries=len(asked.share), eps=asked.eps)
        low, high = torch.empty(2, len(asked.share))
        made.set(base=asked.base(), known=asked.error * LOG2E, low=low, high=high, scale=of.scale)
        made.set(off=of.off, square=of.square, root=of.square**0.5)
        made.set(number=found.number, uncertain=found.uncertain, mass=found.mass if asked.weighed else None)
        for row, column, score in self.noted[k]:
            made.set(row=row, column=column, score=score, entries=len(row))
            fused.call("shares", of.view, made)
            made.fresh = 0

    def _outside(self, k: int, asked: Question, found: Counted) -> None:
        """Count by PyTorch."""
        of, base, known = self.of, asked.base(), asked.error * LOG2E
        for row, column, score in self.noted[k]:
            query = (row, column)[k].long()
            excess = base[query] + score.double() * of.scale
            off = of.off + (of.view.bound(score.double()) if of.square else 0.0)
            open_ = (excess.abs() <= known[query] + off * of.scale).nonzero().flatten()
            excess[open_] = base[query[open_]] + of.view.exact(row[open_], column[open_]) * of.scale
            found.number.index_add_(0, query, (excess > 0).long())
            near = (excess.abs() <= known[query]) & (score > -torch.inf)
            found.uncertain.index_add_(0, query, near.long())
            if asked.weighed:
                found.mass.index_add_(0, query, torch.where(excess > 0, excess.exp2() * asked.eps, 0))


def counts(sums: Sums, asked: Sequence[Sequence[Question]]) -> Generator[tuple, tuple, list[list[Counted]]]:
    """Count for every question of every direction, with one more pass where the negatives were too many to note.

    In that pass limits are final: exact counts above them, and sums of the exponentials that are certainly above.

    Args:
        sums: of the first pass.
        asked: each question, for each direction.

    Returns:
        For each question, the counts of each direction.

    Yields:
        What is wanted of a pass.
    """
    of, view = sums.of, sums.of.view
    found = [[sums.count(k, question) for k, question in enumerate(questions)] for questions in asked]
    left = [j for j, each in enumerate(found) if None in each]
    wanted = []
    for j in left:
        levels, floors = [], []
        for question, done in zip(asked[j], found[j], strict=True):
            level = -question.base() / of.scale
            if done is not None:
                level = torch.full_like(level, torch.inf)
            width = question.error / of.nats
            levels.append(torch.stack([level - width, level, level + width], dim=1).nan_to_num(torch.inf, torch.inf))
            _, high = bounds.outward(level, view.bound(level) + view.tie, view.dtype)
            floors.append(high)
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
            if reader.notes:
                asker.set(base=reader.known[k][0], offset=reader.known[k][1])
                self.lists.append(fused.Lists(asker.list, level=False, side=False, room=ROOM + fused.ROOM // 2))
            self.struct.keep(asker)

    def aim(self, state: Exponentials, part: Part) -> None:
        self.state = state
        for k in self.view.directions:
            asker = self.struct.asking[k]
            asker.set(total=state.total[k], top=state.top[k], step=state.total[k].shape[1], kept=0, full=0)
            asker.set(reference=state.reference[k] if self.reader.floor else None)
            asker.set(limit=state.limit[k] if self.reader.notes else None)
            self.struct.keep(asker)

    def end(self) -> None:
        for k, found in enumerate(self.lists):
            taken = found.taken()
            noted = [(taken["row"], taken["column"], taken["score"])]
            self.state.note(k, None if self.struct.asking[k].full else noted)


LogSumExp.kernel = _Kernel
