"""A loss of the shelf on the embeddings that a training loop gives: the weights of its closed form."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cocos import losses, results
from cocos.base.errors import InputError
from cocos.counting import weights
from cocos.embeddings import Embeddings, scores
from cocos.embeddings.batches import Batch
from cocos.embeddings.scores import Pairs
from cocos.embeddings.similarities import SYMMETRIC
from cocos.monitor._seen import Seen


def _tensor(name: str, value: Any) -> Tensor:
    """Rows of one side without their graph, in float32 at least."""
    try:
        rows = torch.as_tensor(value).detach()
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name}: {type(value).__name__}, expected a tensor of shape (rows, width)") from None
    if rows.ndim != 2 or 0 in rows.shape or not rows.is_floating_point():
        shape = tuple(rows.shape)
        raise InputError(f"{name}: {rows.dtype} of shape {shape}, expected floating point (rows, width)")
    return rows.to(torch.promote_types(rows.dtype, torch.float32))


def embeddings_of(query: Any, candidate: Any, groups: Any, negatives: Any = None) -> Embeddings | None:
    """The batch as embeddings; None where a number is not finite.

    Args:
        query: (Q, D).
        candidate: (C, D); the same object as `query`, or None: a labelled set.
        groups: (Q,) ids for both sides, or a tuple of the ids of the queries and of the candidates; None: row i
            matches row i.
        negatives: own hard negatives, (Q, K, D); None: there are none.
    """
    shared = candidate is None or candidate is query
    rows = _tensor("query", query)
    others = rows if shared else _tensor("candidate", candidate)
    if rows.shape[1] != others.shape[1]:
        raise InputError(
            f"query has width {rows.shape[1]} and candidate has width {others.shape[1]}, expected the same"
        )
    if rows.device != others.device:
        raise InputError(f"query is on {rows.device} and candidate on {others.device}, expected the same device")
    if groups is None and shared:
        raise InputError("groups: None for a labelled batch; give the class of each row")
    if groups is None and len(rows) != len(others):
        raise InputError(
            f"query has {len(rows)} rows and candidate {len(others)}: row i matches row i without groups; "
            "give groups=(ids of the queries, ids of the candidates)"
        )
    sides = groups if isinstance(groups, tuple) else (groups, groups)
    if len(sides) != 2:
        raise InputError(f"groups: a tuple of {len(sides)}, expected ids of both sides, or (of queries, of candidates)")
    if not (rows.isfinite().all() and (shared or others.isfinite().all())):
        return None
    hard = None if negatives is None else torch.as_tensor(negatives).detach().to(rows)
    if hard is not None and not hard.isfinite().all():
        return None
    if shared and hard is None:
        return Embeddings.labelled(rows, sides[0])
    return Embeddings(rows, others, *sides, negatives=hard)


@dataclass(frozen=True, eq=False)
class Named:
    """A loss of the shelf, and the rule by which a batch is read."""

    loss: losses.Loss

    def seen(self, embeddings: Embeddings) -> list[Seen]:
        """Both directions of a batch; one of a labelled set."""
        traits = losses.traits(self.loss)
        index = [torch.arange(len(side), device=side.device) for side in (embeddings.query, embeddings.candidate)]
        groups = embeddings.query_group, embeddings.candidate_group
        extra = 0
        if embeddings.negatives is not None:  # vectors stand behind the candidates, in groups of their own
            extra = int((~torch.isin(groups[1], groups[0])).sum())
        by_rows = traits.matching != "labels" and self.loss.sample == "pairs" and not embeddings.shared
        paired = by_rows and not embeddings.proxies and torch.equal(groups[0], groups[1][: len(groups[1]) - extra])
        batch = Batch(index[0], index[1], paired=paired, extra=extra)
        apart = "negative" if traits.matching == "rows" else "ignore"

        def of(side: Embeddings, rows: Batch) -> Pairs:
            return scores.pairs(side, rows, metric=self.loss.metric, same_group=apart, directions=traits.directions)

        first, names = of(embeddings, batch), embeddings.directions
        if len(names) == 1:
            return [self.of_pairs(names[0], first)]
        turned = self.loss.metric in SYMMETRIC and batch.square and len(traits.directions) == 1
        second = first.flip() if turned else of(embeddings.flip(), batch.flip())
        return [self.of_pairs(name, pairs) for name, pairs in zip(names, (first, second), strict=True)]

    def of_pairs(self, direction: str, pairs: Pairs) -> Seen:
        """One direction of a batch, from its pairs."""
        loss = weights.bound(self.loss, pairs)
        found, traits, part = weights.of(loss, pairs), losses.traits(loss), pairs.embeddings
        kind = "softmax" if traits.softmax_scale is not None else "hinge" if traits.hinge else None
        scale, bias = traits.logistic or (traits.softmax_scale, None)
        kind = "sigmoid" if traits.logistic else kind
        known = traits.unit_from != "unknown"
        sourced = pairs.source is not None and bool((pairs.source > 0).any())
        return Seen(
            direction,
            pairs.scores,
            found,
            pairs.positive,
            pairs.negative,
            unit=weights.unit(loss, found, pairs) if known else None,
            share=results.share(loss) if known else None,
            query=part.query if part else None,
            candidate=part.candidate if part else None,
            scale=scale if loss.metric == "cosine" else None,
            stretch=1.0 if loss.metric == "cosine" else None,
            bias=bias,
            sources=pairs.source if sourced else None,
            kind=kind,
            value=loss(pairs).detach().mean(),
            width=part.query.shape[1] if part else None,
            source="closed form",
        )
