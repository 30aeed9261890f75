"""Synthetic embeddings of every kind that a case names, reproducible from their parameters."""

from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor
from torch.nn.functional import normalize

from cocos.embeddings import Embeddings
from cocos.embeddings.batches import Batch

__all__ = ["Inputs"]

# Noise of a candidate around its query: cosines of positives are then about 0.45.
NOISE = 2.0
# Likewise: cosines of positives are about 0.16, and many negatives of d = 512 score above one of 25,000.
FAINT = 6.0
# Likewise: cosines of positives are about 0.08, and many negatives score close to one.
DEEP = 12.0
CLASS = 64
# Distance at which the warp changes slope: distances of samples to their own proxies lie on both sides of it.
RADIUS = 3.0


@dataclass(frozen=True)
class Inputs:
    """What to draw: unit vectors, unless another norm is stated.

    Args:
        queries: number of queries in a batch.
        width: d.
        kind: `pairs`, candidates are noisy copies of their query; `faint`, very noisy ones; `deep`, noisier still;
            `clusters`, rows of 64 points, in turn, with a noise of 0.1; `classes`, 64 rows of a class, of which one is
            the positive; `copies`, such rows with candidates that are nearly their queries; `ascending`, scores rise
            along rows and columns; `collapsed`, all rows are nearly equal; `proxies`, of norm 3, one a class, in one
            direction.
        per_query: number of matching candidates of each query.
        others: number of further candidates, which match no query.
        hard: number of own hard negatives of each query, which are noisier copies of it; the queries alone ask then.
        batches: 1, the whole set is one batch; otherwise the number of batches of pairs.
        seed: seed of the generator.
    """

    queries: int
    width: int
    kind: str = "pairs"
    per_query: int = 1
    others: int = 0
    hard: int = 0
    batches: int = 1
    seed: int = 0

    @property
    def scores(self) -> int:
        """Total number of scores."""
        return self.batches * self.queries * self.candidates

    @property
    def candidates(self) -> int:
        """Number of candidates in a batch."""
        return self.queries * (self.per_query + self.hard) + self.others

    def small(self, queries: int) -> "Inputs":
        """Return the same kind with a limited number of queries and few batches."""
        others = min(self.others, 4 * queries)
        return replace(self, queries=min(self.queries, queries), others=others, batches=min(self.batches, 4))

    def draw(self, device: str = "cpu") -> tuple[Embeddings, tuple[Batch | None, ...]]:
        """Draw the embeddings in float32, and the batches: `(None,)` is the whole set."""
        generator, rows = torch.Generator().manual_seed(self.seed), self.queries * self.batches
        query, candidate = KINDS[self.kind](rows, self.width, self.per_query, generator)
        group = torch.arange(rows)
        own = group.repeat_interleave(self.per_query)
        if self.others:
            candidate = torch.cat([candidate, _unit(self.others, self.width, generator)])
            own = torch.cat([own, torch.arange(rows, rows + self.others)])
        if self.hard:
            return self._with_hard(query, candidate, generator, device)
        directions = ("s2p",) if self.kind == "proxies" else ("q2c", "c2q")
        whole = Embeddings(query, candidate, group, own, directions).to(device)
        if self.batches == 1:
            return whole, (None,)
        queries = torch.arange(rows).split(self.queries)
        if self.per_query == 1:
            return whole, tuple(Batch(part, part, paired=True) for part in queries)
        candidates = torch.arange(len(candidate)).split(self.queries * self.per_query)
        return whole, tuple(Batch(*both, paired=False) for both in zip(queries, candidates, strict=True))

    def _with_hard(self, query: Tensor, candidate: Tensor, generator: Generator, device: str):
        """Pairs with own hard negatives behind the candidates, as one batch."""
        rows, index = len(query), torch.arange(len(query))
        negatives = rows + torch.arange(rows * self.hard).view(rows, self.hard)
        more = _near(query.repeat_interleave(self.hard, dim=0), FAINT, generator)
        groups, names = (index, torch.arange(rows * (1 + self.hard))), ("q2c",)
        whole = Embeddings(query, torch.cat([candidate, more]), *groups, names, negatives=negatives).to(device)
        batch = Batch(index, torch.arange(len(whole.candidate)), paired=True, extra=len(more))
        return whole, (batch.to(device),)


def _unit(rows: int, width: int, generator: Generator) -> Tensor:
    return normalize(torch.randn(rows, width, generator=generator))


def _near(centre: Tensor, noise: float, generator: Generator) -> Tensor:
    return normalize(centre + noise * _unit(*centre.shape, generator))


def _pairs(rows: int, width: int, per_query: int, generator: Generator) -> tuple[Tensor, Tensor]:
    query = _unit(rows, width, generator)
    return query, _near(query.repeat_interleave(per_query, dim=0), NOISE, generator)


def _faint(rows: int, width: int, per_query: int, generator: Generator) -> tuple[Tensor, Tensor]:
    query = _unit(rows, width, generator)
    return query, _near(query.repeat_interleave(per_query, dim=0), FAINT, generator)


def _deep(rows: int, width: int, per_query: int, generator: Generator) -> tuple[Tensor, Tensor]:
    query = _unit(rows, width, generator)
    return query, _near(query.repeat_interleave(per_query, dim=0), DEEP, generator)


def _clusters(rows: int, width: int, _: int, generator: Generator) -> tuple[Tensor, Tensor]:
    centre = _unit(CLASS, width, generator)[torch.arange(rows) % CLASS]
    return _near(centre, 0.1, generator), _near(centre, 0.1, generator)


def _classes(rows: int, width: int, _: int, generator: Generator) -> tuple[Tensor, Tensor]:
    centre = _unit(-(-rows // CLASS), width, generator).repeat_interleave(CLASS, dim=0)[:rows]
    return _near(centre, 0.5, generator), _near(centre, 0.5, generator)


def _copies(rows: int, width: int, _: int, generator: Generator) -> tuple[Tensor, Tensor]:
    centre = _unit(-(-rows // CLASS), width, generator).repeat_interleave(CLASS, dim=0)[:rows]
    query = _near(centre, 0.5, generator)
    return query, _near(query, 0.05, generator)


def _ascending(rows: int, width: int, _: int, generator: Generator) -> tuple[Tensor, Tensor]:
    axis = _unit(1, width, generator)

    def along(low: float, high: float) -> Tensor:
        part, beside = torch.linspace(low, high, rows)[:, None], _unit(rows, width, generator)
        return part * axis + (1 - part.square()).sqrt() * normalize(beside - (beside @ axis.T) * axis)

    return along(0.1, 0.9), along(-0.5, 0.9)


def _collapsed(rows: int, width: int, _: int, generator: Generator) -> tuple[Tensor, Tensor]:
    axis = _unit(1, width, generator).expand(rows, width)
    return _near(axis, 1e-3, generator), _near(axis, 1e-3, generator)


def _proxies(rows: int, width: int, per_query: int, generator: Generator) -> tuple[Tensor, Tensor]:
    query, candidate = _pairs(rows, width, per_query, generator)
    return RADIUS * query, RADIUS * candidate


KINDS = {
    "pairs": _pairs,
    "faint": _faint,
    "deep": _deep,
    "clusters": _clusters,
    "classes": _classes,
    "copies": _copies,
    "ascending": _ascending,
    "collapsed": _collapsed,
    "proxies": _proxies,
}
