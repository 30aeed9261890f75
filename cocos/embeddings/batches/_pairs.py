"""Batches of pairs: every row of the larger side once in a pass, each with a row of the other side."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cocos.embeddings import Embeddings
from cocos.embeddings.batches._batch import Batch, once


@dataclass(frozen=True, eq=False)
class Pairing:
    """Rows that can be drawn as pairs: the larger side, the smaller one, and the groups of both.

    Args:
        turned: the queries are the larger side.
        large: (L,) rows of the larger side that have a partner.
        small: (S,) rows of the other side that have one.
        large_place: (L,) number of the group of each row of the larger side, 0 to G - 1.
        small_place: (S,) likewise.
        paired: of batches in which the queries ask, and of those in which the candidates do, whether the two rows of a
            pair stand side by side, because no row that is asked for has several partners in any group. Otherwise a
            row that is asked for stands in a batch once, and all rows of its group are positives.
        single: no group has two rows of a side.
    """

    turned: bool
    large: Tensor
    small: Tensor
    large_place: Tensor
    small_place: Tensor
    paired: tuple[bool, bool]
    single: bool

    @classmethod
    def of(cls, embeddings: Embeddings, *, copies: bool) -> "Pairing":
        """Find the larger side; `copies` puts the rows of a pair side by side, one that is asked for twice if need be.

        Which of the two sides is called the query changes nothing.
        """
        groups = embeddings.groups
        both = (groups.queries > 0) & (groups.candidates > 0)
        rows_of, places = [], []
        for place in (groups.query, groups.candidate):
            own = both[place].nonzero().flatten()
            rows_of.append(own)
            places.append((both.cumsum(0) - 1)[place[own]])
        turned = _queries_are_larger(embeddings, len(rows_of[0]), len(rows_of[1]))
        queries, candidates = groups.queries[both], groups.candidates[both]
        paired = copies or bool((queries <= candidates).all()), copies or bool((candidates <= queries).all())
        if turned:
            rows_of, places = rows_of[::-1], places[::-1]
        return cls(turned, rows_of[1], rows_of[0], places[1], places[0], paired, groups.single)

    def drawn(self, number: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draw one pass: the larger side in random order, a partner for each row, and the rows left over with partners.

        The rows of a group take turns: each of the smaller side is drawn before one of them is drawn again.

        Args:
            number: rows of the larger side, with and without a partner.
            generator: of the draw.

        Returns:
            Rows of the larger side (L,) and their partners (L,); the rows left over, of groups with more rows on the
            smaller side, and the place in (L,) of the partner of each.
        """
        at = torch.randperm(number, generator=generator)
        if len(self.large) < number:
            at = torch.full((number,), -1).index_copy_(0, self.large, torch.arange(len(self.large)))[at]
            at = at[at >= 0]
        place = self.large_place[at]
        chance = torch.rand(len(place), generator=generator, dtype=torch.float64)[: len(self.small)]
        if self.single:  # there is one partner to choose
            partner = torch.empty_like(self.small).index_copy_(0, self.small_place, self.small)
            return self.large[at], partner[place], self.small[:0], at[:0]
        chance = chance.argsort()
        members = chance[self.small_place[chance].argsort(stable=True)]
        sizes, own = torch.bincount(self.small_place), torch.bincount(self.large_place)
        first, begin = sizes.cumsum(0) - sizes, own.cumsum(0) - own
        sorted_ = place.argsort(stable=True)
        turn = torch.empty_like(place).index_copy_(0, sorted_, torch.arange(len(place)) - begin[place[sorted_]])
        partner = members[first[place] + turn % sizes[place]]
        group = self.small_place[members]
        rank = torch.arange(len(members)) - first[group]
        more = rank >= own[group]
        beside = sorted_[begin[group[more]] + rank[more] % own[group[more]]]
        return self.large[at], self.small[partner], self.small[members[more]], beside

    def batch(self, large: Tensor, small: Tensor, *, apart: bool) -> Batch:
        """Make a batch of pairs, (n,) rows of the larger side and (n,) of the smaller one.

        Args:
            large: rows of the larger side.
            small: their partners.
            apart: no two pairs are of one group, so that both directions have the same rows.
        """
        sides = (large, small) if self.turned else (small, large)
        if all(self.paired) or (apart and any(self.paired)):
            return Batch(*sides, self.paired[0])
        if not any(self.paired):
            distinct = once(sides[0]), once(sides[1])
            return Batch(
                *distinct, paired=False, dropped=(len(large) - len(distinct[0]), len(large) - len(distinct[1]))
            )
        asking = []
        for paired, query, candidate in zip(self.paired, sides, sides[::-1], strict=True):
            rows = candidate if paired else once(candidate)
            asking.append(Batch(query, rows, paired, dropped=(0, len(candidate) - len(rows))))
        return replace(asking[0], turned=asking[1])


def _queries_are_larger(embeddings: Embeddings, queries: int, candidates: int) -> bool:
    """Whether the queries are the side of which each row is drawn once: they are more, or else come later in order.

    Sides of one size are ordered by their groups, then by their vectors, so that a seed draws the same pairs where the
    sides are exchanged.

    Args:
        embeddings: both sides.
        queries: number of queries that have a partner.
        candidates: number of candidates that have one.
    """
    sizes = (queries, len(embeddings.query)), (candidates, len(embeddings.candidate))
    if sizes[0] != sizes[1]:
        return sizes[0] > sizes[1]
    one, other = embeddings.query_group, embeddings.candidate_group
    if torch.equal(one, other):
        if embeddings.groups.single:  # row i is the partner of row i, whichever is drawn
            return False
        rows = zip(embeddings.query, embeddings.candidate, strict=True)
        one, other = next((pair for pair in rows if not torch.equal(*pair)), (one, other))
    differ = (one != other).nonzero().flatten()
    return len(differ) > 0 and bool(one[differ[0]] > other[differ[0]])


def pairs(
    embeddings: Embeddings, pairing: Pairing, size: int, generator: torch.Generator
) -> Iterator[tuple[Batch, int]]:
    """Yield the batches of one pass, each with its number of rows of the larger side.

    Every row of the larger side is drawn once, with a row of the other side. A row that is asked for stands in a batch
    once, for all of its partners, unless `pairing` keeps the copies.
    """
    number = len(embeddings.query if pairing.turned else embeddings.candidate)
    large, small, more, beside = pairing.drawn(number, generator)
    numbered = torch.arange(len(large)) // size
    batches = int(numbered[-1]) + 1
    left_over, apart = [more] * batches, [True] * batches
    if len(more):
        of = beside // size
        left_over = list(of.argsort(stable=True).split(torch.bincount(of, minlength=batches).tolist()))
    if not all(pairing.paired):
        groups = embeddings.groups.query if pairing.turned else embeddings.groups.candidate
        key = (numbered * (int(groups.max()) + 1) + groups[large]).sort()
        again = numbered[key.indices[1:][key.values.diff() == 0]]
        apart = (torch.bincount(again, minlength=batches) == 0).tolist()
    for own, partners, left, alone in zip(large.split(size), small.split(size), left_over, apart, strict=True):
        drawn, asked = own, partners
        if len(left):
            drawn, asked = torch.cat([own, large[beside[left]]]), torch.cat([partners, more[left]])
        yield pairing.batch(drawn, asked, apart=alone and not len(left)), len(own)
