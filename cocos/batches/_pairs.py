"""Batches of pairs: every row of the larger side once in a pass, each with a row of the other side."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.batches._batch import Batch, once
from cocos.embeddings import Embeddings


@dataclass(frozen=True, eq=False)
class Pairing:
    """Rows that can be drawn as pairs: the larger side, the smaller one, and the groups of both.

    Args:
        turned: the queries are the larger side.
        large: (L,) rows of the larger side that have a partner.
        small: (S,) rows of the other side that have one.
        large_place: (L,) number of the group of each row of the larger side, 0 to G - 1.
        small_place: (S,) likewise.
        paired: every batch is one of pairs, a row of the smaller side once for each partner.
        single: no group has two rows of a side.
    """

    turned: bool
    large: Tensor
    small: Tensor
    large_place: Tensor
    small_place: Tensor
    paired: bool
    single: bool

    @classmethod
    def of(cls, embeddings: Embeddings, *, matched: bool) -> "Pairing":
        """Find the larger side; `matched` puts the rows of a pair side by side, a candidate twice if need be."""
        groups = embeddings.groups
        both = (groups.queries > 0) & (groups.candidates > 0)
        rows_of, places = [], []
        for place in (groups.query, groups.candidate):
            own = both[place].nonzero().flatten()
            rows_of.append(own)
            places.append((both.cumsum(0) - 1)[place[own]])
        turned = len(rows_of[0]) > len(rows_of[1])
        queries, candidates = groups.queries[both], groups.candidates[both]
        paired = matched or not (turned or bool((queries > candidates).any()))
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

    def batch(self, large: Tensor, small: Tensor) -> Batch:
        """Make a batch of rows of the larger and of the smaller side."""
        query_index, candidate_index = (large, small) if self.turned else (small, large)
        return Batch(query_index, candidate_index, self.paired)


def pairs(
    embeddings: Embeddings, pairing: Pairing, size: int, generator: torch.Generator
) -> Iterator[tuple[Batch, int]]:
    """Yield the batches of one pass, each with its number of rows of the larger side.

    Every row of the larger side is drawn once, with a row of the other side. Where queries share candidates, a
    candidate occurs in a batch once, for all of its queries, and so does a query.
    """
    number = len(embeddings.query if pairing.turned else embeddings.candidate)
    large, small, more, beside = pairing.drawn(number, generator)
    if pairing.paired and not len(more):
        for own, partners in zip(large.split(size), small.split(size), strict=True):
            yield pairing.batch(own, partners), len(own)
        return
    by_batch = (beside // size).argsort(stable=True)
    ends = torch.bincount(beside // size, minlength=-(-len(large) // size)).tolist()
    parts = zip(large.split(size), small.split(size), by_batch.split(ends), strict=True)
    for own, partners, left in parts:
        asked = torch.cat([partners, more[left]])
        sides = (torch.cat([own, large[beside[left]]]), asked) if pairing.paired else (own, once(asked))
        yield pairing.batch(*sides), len(own)
