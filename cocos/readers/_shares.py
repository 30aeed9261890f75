"""From sums of exponentials to counts: which negatives have a share above eps, exactly, or how many may."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos import shards, sweep, tiles
from cocos.readers._exponentials import Exponentials, powers
from cocos.readers._levels import summed
from cocos.sweep import View

__all__ = ["EQUAL", "Counted", "Shares", "counted", "counts_of", "recounted", "rows_exactly", "statistics_of"]

EQUAL = 1e-11  # relative difference below which two shares are equal, in float64
Shares = list[tuple[Tensor, Tensor, Tensor]]  # of each direction: see `counts_of`
UNDECIDED = 2**18  # pairs whose scores are looked up in float64 in a second pass; more stay uncertain


@dataclass(eq=False)
class Counted:
    """Negatives above eps of every query, (n,) each."""

    number: Tensor  # int64
    uncertain: Tensor  # int64, of them and of those not counted
    mass: Tensor  # float64: their shares

    def rest(self, share: Tensor, negatives: Tensor) -> Tensor:
        """Shares of the negatives that do not count, (n,), from the share of all of them."""
        return torch.where(self.number < negatives, (share - self.mass).clamp(min=0), 0)


def rows_exactly(view: View, direction: int, places: Tensor, scale: float) -> Tensor:
    """log2 Σ 2^(scale · score) over the negatives of some queries, in float64, (places,)."""
    total = torch.full((len(places),), -torch.inf, dtype=torch.float64, device=view.device)
    for part, score in view.exact_rows(direction, places):
        total[part] = torch.logaddexp2(
            total[part], (score * (scale * math.log(2))).logsumexp(dim=1) * math.log2(math.e)
        )
    return total


class _Recount:
    """The second pass, where too many negatives may count to note each: all limits are final.

    Args:
        state: the first pass.
        limits: of each direction, the scores that certainly do not count and those that certainly do, (n,) each; +inf
            where nothing is to be counted.
        reference: of each direction, a whole exponent, (n,), at least that of every negative.
    """

    def __init__(self, state: Exponentials, limits: list[tuple[Tensor, Tensor]], reference: list[Tensor]):
        self.state, self.limits, self.reference = state, limits, reference

    def begin(self, view: View) -> None:
        self.view = view
        numbers = [len(view.sides[k]) for k in view.directions]
        self.number = [torch.zeros(n, dtype=torch.int64, device=view.device) for n in numbers]
        self.mass = [torch.zeros(3, n, dtype=torch.float64, device=view.device) for n in numbers]
        self.part, self.parts = torch.zeros_like(self.mass[-1]), []
        none = torch.empty(0, dtype=torch.int32, device=view.device)
        self.between = [(none, none, none.to(torch.int8))]
        self.listed, self.unlisted = 0, [torch.zeros_like(each) for each in self.number]

    def _column(self, values: Tensor, columns: slice, width: int, beyond: float) -> Tensor:
        padded = values.new_full((width,), beyond)
        padded[: columns.stop - columns.start] = values[columns]
        return padded

    def tile(self, tile: Tensor, rows: slice, columns: slice) -> None:
        two, width = self.view.two, tile.shape[1]
        row_low, row_high = (each[rows] for each in self.limits[0])
        references, floors, column = (self.reference[0][rows], None), (row_high, None), (None, None)
        totals = (self.mass[0][:, rows], self.part[:, columns] if two else None)
        if two:
            low, high = (self._column(each, columns, width, torch.inf) for each in self.limits[1])
            references = (references[0], self._column(self.reference[1], columns, width, 0.0))
            floors = (row_high, high)
            column = (low[None], high[None])
        row_count, column_count, found = tiles.levels(tile, row_low[:, None], row_high[:, None], None, *column, None)
        tiles.sums(tile, self.state.scale, *totals, references, floors, spread=False)
        self.number[0][rows] += row_count[:, 0]
        if two:
            self.number[1][columns] += column_count[0, : columns.stop - columns.start]
        row, other, _, side = found
        self._note(row + rows.start, other + columns.start, side)

    def _note(self, row: Tensor, other: Tensor, side: Tensor) -> None:
        """Pairs that may lie on either side of a limit."""
        if self.listed + len(row) <= UNDECIDED:
            self.between.append((row, other, side))
            self.listed += len(row)
            return
        for direction, query in enumerate((row, other)[: len(self.number)]):
            mine = query[side == direction].long()
            self.unlisted[direction] += torch.bincount(mine, minlength=len(self.number[direction]))

    def watch(self, block: int, width: int) -> list | None:
        return None if self.state.wide else [_Numbers(self, block), _Masses(self, block)]

    def fold(self) -> None:
        if self.view.two:
            if self.view.together:
                self.parts.append(self.part.clone())
            self.mass[1] += self.part
            self.part.zero_()

    def merge(self) -> None:
        device = self.view.device
        self.number, self.unlisted = summed(self.number), summed(self.unlisted)
        self.mass[0] = sum(each.to(device) for each in shards.gather(self.mass[0]))
        if self.view.two:
            self.mass[1] = sum(each.to(device) for each in shards.collect(self.parts))
        every = shards.gather([tuple(each.cpu() for each in part) for part in self.between])
        self.between = [tuple(each.to(device) for each in part) for parts in every for part in parts]

    def finish(self) -> "_Recount":
        return self


class _Numbers:
    """See `cocos.tiles.fused.Watch`: how many negatives count."""

    kind = tiles.fused.Above.kind

    def __init__(self, of: _Recount, block: int):
        self.of, ends = of, [tuple(end[:, None].contiguous() for end in of.limits[0]), None]
        if of.view.two:
            width = len(of.limits[1][0]) + tiles.PAD
            every = slice(0, width - tiles.PAD)
            ends[1] = tuple(of._column(end, every, width, torch.inf)[None] for end in of.limits[1])
        self._seen = tiles.fused.Above(block, tuple(ends), 0)
        self.address, self.drain = self._seen.address, self._seen.drain

    def aim(self, rows: slice, columns: slice) -> None:
        self.columns = columns
        self._seen.aim(rows, columns, self.of.number[0][:, None])

    def settle(self) -> None:
        for row, other, _, side in self._seen.settle()[0]:
            self.of._note(row, other, side)

    def close(self) -> None:
        count, found = self._seen.close()
        if self.of.view.two:
            self.of.number[1][self.columns] += count[0, : self.columns.stop - self.columns.start]
        for row, other, _, side in found:
            self.of._note(row, other, side)


class _Masses:
    """See `cocos.tiles.fused.Watch`: what the negatives that count come to."""

    kind = tiles.fused.Exponentials.kind

    def __init__(self, of: _Recount, block: int):
        two, sides = of.view.two, []
        for total, (_, high) in zip((of.mass[0], of.part), of.limits, strict=False):
            beyond = torch.full((len(high) + tiles.PAD,), torch.inf)
            beyond[: len(high)] = high
            never = torch.full_like(beyond, torch.inf)
            known = torch.zeros(len(beyond), dtype=torch.float64)
            sides.append((tiles.Owners(total, never.clone(), known, known, never), beyond))
        self.owners = tuple(owners for owners, _ in sides) if two else (sides[0][0], None)
        floors = (sides[0][1], sides[1][1] if two else None)
        scale = of.state.scale
        self._seen = tiles.fused.Exponentials(
            block, two=two, scale=scale, slack=0.0, square=0.0, floors=floors, spread=False
        )
        self.address, self.drain = self._seen.address, self._seen.drain

    def aim(self, rows: slice, columns: slice) -> None:
        self._seen.aim(rows, columns, self.owners, (False, False), given=False)

    def settle(self) -> None:
        self._seen.settle()

    def close(self) -> None:
        self._seen.close()


def counted(
    state: Exponentials, direction: int, share: Tensor, logarithm: Tensor, error: Tensor, eps: float
) -> Counted:
    """Count the survivors of one direction whose share is above eps.

    Args:
        state: the pass.
        direction: 0 or 1.
        share: (n,) share of all negatives of a query together.
        logarithm: (n,) log2 of the sum that the share is distributed by.
        error: (n,) relative error of what a negative's share is computed with, its score aside.
        eps: smallest share that counts.
    """
    view, number = state.view, len(share)
    base = share.log2() - logarithm - math.log2(eps)
    least = -math.log2(1 + float(error.max()) + state.worst) if number else 0.0
    counts, doubts = torch.zeros(2, number, dtype=torch.int64, device=view.device)
    mass = torch.zeros_like(share)
    for part in state.survivors[direction].some():
        query, other, score = (each.to(view.device) for each in part)
        excess = base[query] + score.double() * state.scale  # log2 (share / eps)
        some = (excess > least).nonzero().flatten()
        query, other, score, excess = query[some].long(), other[some].long(), score[some], excess[some]
        certain = torch.log1p(error[query] + state.score_error(score)) * math.log2(math.e)
        near = (excess.abs() <= certain).nonzero().flatten()
        if len(near):
            places = (query[near], other[near]) if direction == 0 else (other[near], query[near])
            excess[near] = base[query[near]] + view.exact(*places) * state.scale
        certain = torch.log1p(error[query]) * math.log2(math.e)
        above, unsure = excess > 0, excess.abs() <= certain
        counts += torch.bincount(query[above], minlength=number)
        doubts += torch.bincount(query[unsure], minlength=number)
        mass.index_add_(0, query, torch.where(above, powers(excess) * eps, 0))
    return Counted(counts, doubts, mass)


def counts_of(state: Exponentials, asked: list[Shares], eps: float, *, noted: int) -> list[list[Counted]]:
    """Count both directions of each question, with one more pass where the survivors do not tell.

    Args:
        state: the pass.
        asked: of each question, and of each direction: share of all negatives together, log2 of their sum, and its
            relative error. A share of 1 makes each negative's share its part of the push.
        eps: smallest share that counts.
        noted: the survivors hold all negatives that may count for the first questions, this many; for the others the
            scores are visited again, as where there were too many to note.
    """
    view = state.view
    if eps == 0:
        return [
            [
                Counted(torch.where(share > 0, view.negatives(k), 0), torch.zeros_like(view.negatives(k)), share)
                for k, (share, _, _) in enumerate(shares)
            ]
            for shares in asked
        ]
    found: list[list] = [[None] * len(shares) for shares in asked]
    left = [[k for k in view.directions if j >= noted or state.survivors[k].spilled] for j in range(len(asked))]
    for j, shares in enumerate(asked):
        for k in view.directions:
            if k not in left[j]:
                found[j][k] = counted(state, k, *shares[k], eps)
    again = [j for j, directions in enumerate(left) if directions]
    seconds = sweep.run(view, [_second(state, asked[j], left[j], eps) for j in again]) if again else []
    for j, second in zip(again, seconds, strict=True):
        for k, each in _decided(state, second, asked[j], left[j], eps).items():
            found[j][k] = each
    return found


def _second(state: Exponentials, shares: Shares, directions: list[int], eps: float) -> _Recount:
    """The second pass of a question, for the directions that are left."""
    limits, references = [], []
    for k, (share, logarithm, error) in enumerate(shares):
        limit = (math.log2(eps) - share.log2() + logarithm) / state.scale
        width = torch.log1p(error) * math.log2(math.e) / state.scale + state.view.slack(limit) + 1e-6 * limit.abs()
        never = torch.full_like(limit, torch.inf)
        ends = [
            torch.where(limit.isfinite(), limit + sign * width, never) if k in directions else never for sign in (-1, 1)
        ]
        if state.floor is not None:
            ends = [end.clamp(min=state.floor) for end in ends]
        limits.append(tuple(end.to(state.view.dtype) for end in ends))
        reference = torch.where(logarithm.isfinite() & state.wide, logarithm.ceil(), 0)
        references.append(reference.to(state.view.dtype))
    return _Recount(state, limits, references)


def _decided(
    state: Exponentials, second: _Recount, shares: Shares, directions: list[int], eps: float
) -> dict[int, Counted]:
    """What a second pass has counted, by direction, with float64 for what lies between its limits."""
    view, found = state.view, {}
    row, other, side = (torch.cat(each) for each in zip(*second.between, strict=True))
    if view.together:
        order = (row.long() * len(view.sides[1]) + other).argsort(stable=True)
        row, other, side = row[order], other[order], side[order]
    score = view.exact(row, other)
    for k in directions:
        share, logarithm, error = shares[k]
        mine = (side == k).nonzero().flatten()
        query = (row if k == 0 else other)[mine].long()
        excess = (share.log2() - logarithm - math.log2(eps))[query] + score[mine] * state.scale
        above, unsure = excess > 0, excess.abs() <= torch.log1p(error[query]) * math.log2(math.e)
        if state.floor is not None:  # what was kept of the pairs at or below the floor
            more, its = state.inside[k][0].long(), state.inside[k][1]
            query = torch.cat([query, more])
            excess = torch.cat([excess, (share.log2() - logarithm - math.log2(eps))[more] + its * state.scale])
            above, unsure = excess > 0, excess.abs() <= torch.log1p(error[query]) * math.log2(math.e)
        number = second.number[k] + torch.bincount(query[above], minlength=len(share))
        mass = second.mass[k][0] * (share.log2() - logarithm + second.reference[k].double()).exp2()
        mass = torch.where(share > 0, mass, 0)
        mass = mass.index_add(0, query, torch.where(above, powers(excess) * eps, 0))
        uncertain = torch.bincount(query[unsure], minlength=len(share)) + second.unlisted[k]
        found[k] = Counted(number, uncertain, mass)
    return found


def recounted(
    state: Exponentials,
    found: list[Counted],
    again: list[Tensor],
    shares: Shares,
    eps: float,
) -> list[Counted]:
    """Counts of both directions after the sums of some queries were taken again in float64.

    Args:
        state: the pass.
        found: what was counted before.
        again: of each direction, those queries, (P,).
        shares: as for `counts_of`, now.
        eps: smallest share that counts.
    """
    result = []
    for k, places in enumerate(again):
        if not len(places):
            result.append(found[k])
        elif not state.survivors[k].spilled:
            result.append(counted(state, k, *shares[k], eps))
        else:
            share, logarithm, error = (each[places] for each in shares[k])
            base, sure = share.log2() - logarithm - math.log2(eps), torch.log1p(error) * math.log2(math.e)
            new = [torch.zeros_like(each) for each in (found[k].number[places], found[k].uncertain[places], share)]
            for part, score in state.view.exact_rows(k, places):
                excess = base[part, None] + score * state.scale
                above = excess > 0
                new[0][part] += above.sum(dim=1)
                new[1][part] += (excess.abs() <= sure[part, None]).sum(dim=1)
                new[2][part] += torch.where(above, excess.exp2() * eps, 0).sum(dim=1)
            old = (found[k].number, found[k].uncertain, found[k].mass)
            result.append(Counted(*(a.index_copy(0, places, b) for a, b in zip(old, new, strict=True))))
    return result


def statistics_of(
    state: Exponentials,
    direction: int,
    found: Counted,
    heavy: Counted | None,
    logarithm: Tensor,
    share: Tensor,
    positive: Tensor,
    push: Tensor,
    pull: Tensor,
) -> dict[str, Tensor]:
    """The statistics of every query of one direction, (n,) each, in the order of the batch: see `cocos.readers`.

    Args:
        state: the pass.
        direction: 0 or 1.
        found: the negatives that count.
        heavy: those whose part of the push is above eps; None: that was not asked.
        logarithm: log2 of the sum of exponentials.
        share: of all negatives together.
        positive: share of the positives.
        push: total weight above zero.
        pull: total weight below zero.
    """
    side, sums, negatives = state.view.sides[direction], state.result(direction), state.view.negatives(direction)
    active = share > 0
    top = torch.where(active, sums.top.double() * state.scale - logarithm, -torch.inf).exp2()
    result = {
        "contributing": found.number,
        "uncertain": found.uncertain,
        "weight_above": found.mass,
        "weight_below": found.rest(share, negatives),
        "weight_positive": positive,
        "push": push,
        "pull": pull,
        "hardest_share": top.clamp(max=1),
        "negatives": negatives,
    }
    if heavy is not None:
        result |= {"relative": heavy.number, "relative_uncertain": heavy.uncertain}
    if state.spread:
        numbers = (torch.where(active, each, 0).clamp(max=negatives) for each in sums.numbers())
        result |= dict(zip(("effective", "participation"), numbers, strict=True))
    return {name: side.unsorted(values) for name, values in result.items()}
