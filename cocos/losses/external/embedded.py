"""A third-party loss of embeddings, weighed by the scores that it computes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from cocos.base.errors import InputError, Unfit
from cocos.embeddings import Embeddings
from cocos.embeddings.scores import METRICS, Pairs, length
from cocos.losses.base import Loss
from cocos.losses.external import guard
from cocos.losses.external.score_matrix import RECOGNISED_METRICS, ScoreMatrix, See, equal_sizes, find

Call = Callable[[Embeddings, Tensor, Tensor, See], Tensor]  # rows with their groups, queries, candidates, see


def _unchanged(matrix: Tensor) -> Tensor:
    return matrix


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Embedded(guard.Foreign):
    r"""A foreign loss of embeddings.

    Its weights are :math:`\partial \sum \ell / \partial s` by the one matrix of scores s that it computes (see
    `external.score_matrix`), which is found in the first batch: see `bind`.

    Args:
        calls: (rows, queries, candidates, see) -> (Q,) or (): ways to run it and to look at its matrices, the first of
            which that finds the scores is taken.
        needs: "one set" where it has no place for other candidates, "proxies" where they must be class proxies.
        reduction: "mean" where one number that it returns is known to be a mean over the queries.
        sorted_by_group: it is handed the samples, or the proxies, in the order of their groups.
        twins: metric -> losses of the shelf that it may be, by its class and parameters.
        matrix: where its scores are.
    """

    calls: tuple[Call, ...]
    needs: str | None = None
    reduction: str | None = None
    sorted_by_group: bool = False
    twins: Callable[[str], list[Loss]] | None = None
    matrix: ScoreMatrix | None = None

    @property
    def recognised(self) -> bool:
        """Whether its class and its settings are those of a loss of the shelf, on some scores."""
        by_class = self.twins is not None and any(map(self.twins, RECOGNISED_METRICS))
        return by_class and self.unit_ is None and not self.closed

    def _rows(self, pairs: Pairs) -> Embeddings:
        """Check the rows of a batch and return them."""
        part = guard.rows_of(self.spelling, pairs)
        queries, candidates = pairs.positive.shape
        own = queries == candidates and not part.shared and bool(pairs.positive.diagonal().all())
        if self.traits.matching == "rows" and not own:
            raise Unfit(
                f"{self.spelling}: it receives no labels, so query i must match candidate i, and here it does not; "
                "draw pairs of two sides (--sample pairs)"
            )
        if self.needs == "one set" and not part.shared:
            raise Unfit(
                f"{self.spelling}: it reads one labelled set, and there are two, queries and candidates; give a file "
                "with embeddings and labels, or a loss of (query, candidate)"
            )
        if self.needs == "proxies" and not part.proxies:
            raise Unfit(
                f"{self.spelling}: it compares samples with class proxies, and these embeddings have none; add the "
                "arrays proxies and proxy_labels to the file"
            )
        return part

    def _order(self, part: Embeddings) -> tuple[Tensor, Tensor]:
        """Number the queries and the candidates in the order in which the loss is handed them."""
        rows = torch.arange(len(part.query), device=part.query.device)
        columns = torch.arange(len(part.candidate), device=part.query.device)
        if self.sorted_by_group and part.shared:
            rows = columns = part.query_group.argsort(stable=True)
        elif self.sorted_by_group and part.proxies:
            columns = part.candidate_group.argsort(stable=True)
        return rows, columns

    def _ordered(self, part: Embeddings, rows: Tensor, columns: Tensor) -> Embeddings:
        """Put the rows in that order; a labelled set is one matrix, two sides are never the same object."""
        ordered = part.rows(rows, columns)
        return ordered.with_rows(ordered.query, ordered.query if part.shared else ordered.candidate.clone())

    def _run(self, call: Call, part: Embeddings, query: Tensor, candidate: Tensor, see: See) -> Tensor:
        """Compute the loss of ordered rows, (Q,) or (), a known mean as a sum."""
        with guard.guarded(self.spelling), guard.seeded(query.device):
            value = call(part, query, candidate, see)
        value = guard.checked(self.spelling, value, len(query))
        return value * len(query) if self.reduction == "mean" and not value.ndim else value

    def _value(self, part: Embeddings, change: Tensor | None = None) -> Tensor:
        """Compute the loss, (Q,) or (), with a change of its scores, (Q, C)."""
        rows, columns = self._order(part)
        ordered = self._ordered(part, rows, columns)
        see: See = _unchanged
        if self.matrix and change is not None:
            scores = METRICS[self.metric](ordered.query, ordered.candidate)
            see = self._matrix_in(ordered, self.matrix).adding(change[rows][:, columns], scores, self.spelling)
        value = self._run(self.calls[0], ordered, ordered.query, ordered.candidate, see)
        return value[rows.argsort()] if value.ndim else value

    def _find(self, call: Call, ordered: Embeddings) -> ScoreMatrix | None:
        """Find the matrix of scores of ordered rows; its backward pass is guarded too."""

        def run(query: Tensor, candidate: Tensor, see: See) -> Tensor:
            return self._run(call, ordered, query, candidate, see)

        with guard.guarded(self.spelling):
            return find(run, ordered.query, ordered.candidate)

    def _matrix_in(self, ordered: Embeddings, known: ScoreMatrix) -> ScoreMatrix:
        """Where the scores are in a batch: they are looked for again where other sizes of it are equal.

        In a batch of as many rows as dimensions, the rows have the shape of the scores.
        """
        if known.equal_sizes == equal_sizes(ordered.query, ordered.candidate):
            return known
        found = self._find(self.calls[0], ordered)
        return found if found is not None and found.metric == known.metric else known

    def bind(self, pairs: Pairs) -> "Embedded":
        """Return the same loss, with its weights settled by one batch."""
        if self.traits.bound:
            return self
        loss = self._bind_unchecked(pairs)
        value = loss._of_reversed_candidates(self._rows(pairs))
        if value is not None and not value.requires_grad:
            raise InputError(f"{self.spelling}: {guard.DETACHED}")
        return loss._with_unit(pairs)

    def _with_unit(self, pairs: Pairs) -> "Embedded":
        """Take the unit of a loss of the shelf with these weights, which a note names, or measure it."""
        if self.unit_ is not None:
            return self.with_unit()
        try:
            weights = self.weight(pairs)
        except InputError:
            return self  # reported where it is weighed
        twin = self._twin(pairs, weights)
        if twin is None:
            return self.with_measured_unit(weights, pairs)
        note = f"its unit is that of {twin!r} of the shelf, whose weights are the same here"
        return self.with_unit(note, twin=twin, named=repr(twin))

    def _twin(self, pairs: Pairs, weights: Tensor) -> Loss | None:
        """Find the loss of the shelf that has its parameters, and its weights on this batch; None without one."""
        if self.twins is None:
            return None
        room = torch.finfo(weights.dtype).eps ** 0.5 * weights.abs().max()
        metrics = [self.metric, "squared_euclidean"] if self.metric == "cosine" else [self.metric]
        if self.traits.own_scores:
            metrics = ["euclidean"] if self.matrix and self.matrix.sign < 0 else []
        for twin in (twin for metric in metrics for twin in self.twins(metric)):
            read, factor = self._as_read(twin, pairs)
            if (factor * twin.weight(read) - weights).abs().max() <= room:
                return twin
        return None

    def _as_read(self, twin: Loss, pairs: Pairs) -> tuple[Pairs, float]:
        """Score the pairs as a twin does, and tell the slope of its scores: of unit vectors, -d² is 2 cos - 2.

        Distances of its own are those of the rows divided by their norms, where they are anything that a twin reads.
        """
        if self.traits.own_scores:
            part = self._rows(pairs)
            query, candidate = (rows / length(rows)[:, None] for rows in (part.query, part.candidate))
            return pairs.with_scores(METRICS["euclidean"](query, candidate)), 1.0
        if twin.metric == self.metric:
            return pairs, 1.0
        return pairs.with_scores(2 * pairs.scores - 2), 2.0

    def _of_reversed_candidates(self, part: Embeddings) -> Tensor | None:
        """Compute the loss of candidates in another order, with a graph if it has one; None where it cannot read them.

        So hinges are unlikely to be inactive.
        """
        leaf = part.candidate.detach().flip(0).requires_grad_()
        try:
            with torch.enable_grad():
                return self._value(part.with_rows(leaf if part.shared else part.query, leaf))
        except InputError:
            return None

    def _bind_unchecked(self, pairs: Pairs) -> "Embedded":
        """Settle the loss as `bind` does, unchecked, so that torch.func can run it."""
        part = self._rows(pairs)
        ordered = self._ordered(part, *self._order(part))
        value = self._run(self.calls[0], ordered, ordered.query, ordered.candidate, _unchanged)
        found = []
        for call in self.calls:
            matrix = self._find(call, ordered)
            if matrix and matrix.also_read != "rows":
                return self._bound_to(call, matrix, value)
            found += [(call, matrix)] if matrix else []
        if found:
            return self._bound_to(*found[0], value)
        other = self._of_reversed_candidates(part)
        if other is not None and not other.requires_grad and not torch.equal(other, value):
            raise InputError(f"{self.spelling}: {guard.DETACHED}")
        raise InputError(
            f"{self.spelling}: no single matrix of scores was seen in it, so that its pairs have no weights; let it "
            "take scores, or compute one matrix of inner products, cosines or distances"
        )

    def _bound_to(self, call: Call, matrix: ScoreMatrix, value: Tensor) -> "Embedded":
        """Bind the loss to the matrix of scores that was found."""
        if matrix.metric is None:
            read = (
                f"{'minus the distances' if matrix.sign < 0 else 'the scores'} that it computes, which are no metric "
            )
            read += "of cocos"
        else:
            scaled = "" if matrix.factor == 1 else f" (it multiplies them by {matrix.factor:.6g})"
            read = f"{matrix.metric.replace('_', ' ')} scores{scaled}"
        note = f"its weights are of {read}, by autograd"
        unweighed = [guard.UNWEIGHED[matrix.also_read]] if matrix.also_read else []
        traits = replace(
            self.traits,
            metric=matrix.metric or self.metric,
            notes=(note, *unweighed, *guard.reduction_notes(value, self.reduction)),
            bound=True,
            own_scores=matrix.metric is None,
        )
        return replace(self, calls=(call,), matrix=matrix, traits=traits, weights_of=read, weights_note=note)

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,); an equal part of it for each where it returns one number.

        If its scores were found, `pairs.scores` minus the scores of the embeddings is added to them.
        """
        loss = self if self.traits.bound else self._bind_unchecked(pairs)
        part = loss._rows(pairs)
        change = None
        if loss.matrix:
            change = pairs.scores - METRICS[self.metric](part.query, part.candidate)
        return guard.per_query(loss._value(part, change), len(pairs.scores))

    def own_weight(self, pairs: Pairs) -> Tensor:
        """Weights of its scores, (Q, C); 0 for a pair in neither mask."""
        loss = self.bind(pairs)
        part = loss._rows(pairs)
        found = guard.derivative(
            self.spelling, lambda change: loss._value(part, change), torch.zeros_like(pairs.scores)
        )
        return torch.where(pairs.positive | pairs.negative, found, 0)

    def twin_weight(self, pairs: Pairs) -> Tensor:
        """Weights by the closed form of its twin, (Q, C); zero without a twin."""
        twin = cast(Loss | None, self.traits.twin)
        if twin is None:
            return torch.zeros_like(pairs.scores)
        own, factor = self._as_read(twin, pairs)
        return factor * twin.weight(own)

    def unit_of_twin(self, pairs: Pairs) -> Tensor:
        """Unit of its twin, broadcastable to (Q, C)."""
        twin = cast(Loss, self.traits.twin)
        own, factor = self._as_read(twin, pairs)
        return factor * twin.unit(own)

    def read_by_twin(self, pairs: Pairs) -> bool:
        """Whether its twin reads the scores of these pairs, and not distances of rows divided by their norms."""
        return not self.traits.own_scores and cast(Loss, self.traits.twin).metric == self.metric
