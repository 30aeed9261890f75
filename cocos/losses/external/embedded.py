"""A loss of embeddings: weighed by its scores where they can be found, else by the influence of its candidates."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from cocos.base.errors import InputError, Unfit
from cocos.embeddings import Embeddings
from cocos.embeddings.scores import METRICS, Pairs, length
from cocos.losses import ClosedForm, traits
from cocos.losses._calls import takes_tensors
from cocos.losses.external import units
from cocos.losses.external.cut import Cut, See, find, seeded
from cocos.losses.external.guard import (
    DETACHED,
    checked,
    finite,
    gradient,
    guarded,
    measured,
    reduced,
    shown,
)

Call = Callable[[Embeddings, Tensor, Tensor, See], Tensor]  # rows with their groups, queries, candidates, see

INFLUENCE = (
    "influence matrix: the length of the derivative of each query's loss with respect to each candidate, since it "
    "reads no single matrix of scores; it has no sign, so all of it is push and there is no pull"
)


def _unseen(matrix: Tensor) -> Tensor:
    return matrix


def _with(part: Embeddings, query: Tensor, candidate: Tensor) -> Embeddings:
    """The same rows with other vectors; not checked, for autograd and torch.func."""
    other = object.__new__(Embeddings)
    other.__dict__.update(part.__dict__, query=query, candidate=candidate)
    return other


@takes_tensors
@dataclass(frozen=True, eq=False)
class Embedded:
    r"""A foreign loss of embeddings.

    Its weights are :math:`\partial \sum \ell / \partial s` where all of it goes through one matrix of scores s
    (see `external.cut`), and elsewhere the influence :math:`|\partial \ell_i / \partial x_j|` of candidate j on the
    loss of query i. Which of them it is shows with the first batch: see `bind`.

    Args:
        spelling: its name for `cocos.losses.load`.
        given: the parameters that were given.
        calls: (rows, queries, candidates, see) -> (Q,) or (): ways to run it and to look at its matrices, the first of
            which that finds the scores is taken.
        matching: "labels" if it receives the groups, "rows" if row i matches row i.
        needs: "one set" where it has no place for other candidates, "proxies" where they must be class proxies.
        sample: `pairs` or `groups`.
        reduction: "mean" where one number that it returns is known to be a mean over the queries.
        sorted_by_group: it is handed the samples, or the proxies, in the order of their groups.
        unit_: natural size of one weight; None: that of its twin, or measured.
        twins: metric -> losses of the shelf that it may be, by its class and parameters.
        metric: of the scores in its Pairs.
        cut: where its scores are.
        weights: "score" or "influence".
        notes: remarks for the user, one sentence each.
        bound: the fields above are settled.
        twin: the loss of the shelf with the same weights, whose unit it takes.
        form: of `cocos.units`, that its weights have on the first batch; None: none.
    """

    spelling: str
    given: dict[str, Any]
    calls: tuple[Call, ...]
    matching: str
    sample: str
    needs: str | None = None
    reduction: str | None = None
    sorted_by_group: bool = False
    unit_: float | None = None
    twins: Callable[[str], list[ClosedForm]] | None = None
    metric: str = "cosine"
    cut: Cut | None = None
    weights: str = "score"
    notes: tuple[str, ...] = ()
    bound: bool = False
    twin: ClosedForm | None = None
    form: str | None = None
    reads: ClassVar[str] = "embeddings"
    couples: ClassVar[str] = "batch"
    gradient: ClassVar[str] = "autograd"
    balanced: ClassVar[bool] = False

    def __repr__(self) -> str:
        return shown(self.spelling, self.given)

    @property
    def own_scores(self) -> bool:
        """Its weights are of scores that are no metric of cocos: weights of other losses cannot be added to them."""
        return self.bound and (self.cut is None or self.cut.metric is None)

    @property
    def unit_from(self) -> str:
        """Where the unit comes from: `given`, the loss of the shelf that this is, the form, or `unknown`."""
        return "given" if self.unit_ is not None else repr(self.twin) if self.twin else self.form or "unknown"

    @property
    def share(self) -> str | None:
        """Meaning of a share, as for its twin, or as the form of its weights has it."""
        return traits(self.twin).share if self.twin else units.SHARES.get(str(self.form))

    @property
    def per_positive(self) -> bool:
        """As for its twin: the unit grows with the number of positives."""
        return traits(self.twin).per_positive

    def _rows(self, pairs: Pairs) -> Embeddings:
        """The rows of a batch."""
        part = pairs.embeddings
        if part is None:
            raise Unfit(f"{self.spelling}: it reads embeddings, and these pairs are scores alone")
        queries, candidates = pairs.positive.shape
        own = queries == candidates and not part.shared and bool(pairs.positive.diagonal().all())
        if self.matching == "rows" and not own:
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
        """Row numbers of queries and candidates in the order in which the loss is handed them."""
        rows = torch.arange(len(part.query), device=part.query.device)
        columns = torch.arange(len(part.candidate), device=part.query.device)
        if self.sorted_by_group and part.shared:
            rows = columns = part.query_group.argsort(stable=True)
        elif self.sorted_by_group and part.proxies:
            columns = part.candidate_group.argsort(stable=True)
        return rows, columns

    def _ordered(self, part: Embeddings, rows: Tensor, columns: Tensor) -> Embeddings:
        """The rows in that order; a labelled set is one matrix, two sides are never the same object."""
        ordered = part.rows(rows, columns)
        return _with(ordered, ordered.query, ordered.query if part.shared else ordered.candidate.clone())

    def _run(self, call: Call, part: Embeddings, query: Tensor, candidate: Tensor, see: See) -> Tensor:
        """The loss of ordered rows, (Q,) or (), a known mean as a sum."""
        with guarded(self.spelling), seeded(query.device):
            value = call(part, query, candidate, see)
        value = checked(self.spelling, value, len(query))
        return value * len(query) if self.reduction == "mean" and not value.ndim else value

    def _value(self, part: Embeddings, change: Tensor | None = None) -> Tensor:
        """The loss, (Q,) or (), with a change of its scores, (Q, C)."""
        rows, columns = self._order(part)
        ordered = self._ordered(part, rows, columns)
        see: See = _unseen
        if self.cut and change is not None:
            scores = METRICS[self.metric](ordered.query, ordered.candidate)
            see = self.cut.moved(change[rows][:, columns], scores, self.spelling)
        value = self._run(self.calls[0], ordered, ordered.query, ordered.candidate, see)
        return value[rows.argsort()] if value.ndim else value

    def bind(self, pairs: Pairs) -> "Embedded":
        """Return the same loss, with its weights settled by one batch.

        Raises:
            InputError: it returns one number, and its scores are not to be found; it cannot read these embeddings; or
                it has no gradient.
        """
        if self.bound:
            return self
        loss = self._settle(pairs)
        if not loss._has_gradient(self._rows(pairs)):
            raise InputError(f"{self.spelling}: {DETACHED}")
        return loss._with_unit(pairs)

    def _with_unit(self, pairs: Pairs) -> "Embedded":
        """The same loss with the unit of the shelf's, where there is one with these weights; a note says which."""
        if self.unit_ is not None:
            return self
        twin, form = self._twin(pairs), None
        if twin is not None:
            said = f"its unit is that of {twin!r} of the shelf, whose weights are the same here"
        else:
            try:
                form, said = measured(self.weight(pairs), pairs)
            except InputError:
                return self  # said where it is weighed
        return replace(self, twin=twin, form=form, notes=(*self.notes, said))

    def _twin(self, pairs: Pairs) -> ClosedForm | None:
        """The loss of the shelf that it is by its parameters, and by its weights of this batch; None without one."""
        if self.twins is None or self.weights == "influence":
            return None
        try:
            found = self.weight(pairs)
        except InputError:
            return None  # said where it is weighed
        room = torch.finfo(found.dtype).eps ** 0.5 * found.abs().max()
        metrics = [self.metric, "squared_euclidean"] if self.metric == "cosine" else [self.metric]
        if self.own_scores:
            metrics = ["euclidean"] if self.cut and self.cut.sign < 0 else []
        for twin in (twin for metric in metrics for twin in self.twins(metric)):
            own, factor = self._as_read(twin, pairs)
            if (factor * twin.weight(own) - found).abs().max() <= room:
                return twin
        return None

    def _as_read(self, twin: ClosedForm, pairs: Pairs) -> tuple[Pairs, float]:
        """The pairs as a twin reads them, and the slope of its scores: of unit vectors, -d² is 2 cos - 2.

        Distances of its own are those of the rows divided by their norms, where they are anything that a twin reads.
        """
        if self.own_scores:
            part = self._rows(pairs)
            query, candidate = (rows / length(rows)[:, None] for rows in (part.query, part.candidate))
            return pairs.with_scores(METRICS["euclidean"](query, candidate)), 1.0
        if twin.metric == self.metric:
            return pairs, 1.0
        return pairs.with_scores(2 * pairs.scores - 2), 2.0

    def _has_gradient(self, part: Embeddings) -> bool:
        """Whether autograd follows it; on candidates in another order, so that hinges are unlikely to be inactive."""
        leaf = part.candidate.detach().flip(0).requires_grad_()
        try:
            with torch.enable_grad():
                return self._value(_with(part, leaf if part.shared else part.query, leaf)).requires_grad
        except InputError:
            return True

    def _settle(self, pairs: Pairs) -> "Embedded":
        """Settle the loss as `bind` does, unchecked, so that torch.func can run it."""
        part = self._rows(pairs)
        ordered = self._ordered(part, *self._order(part))
        value = self._run(self.calls[0], ordered, ordered.query, ordered.candidate, _unseen)
        found = []
        for call in self.calls:

            def run(query: Tensor, candidate: Tensor, see: See, call: Call = call) -> Tensor:
                return self._run(call, ordered, query, candidate, see)

            cut = find(run, ordered.query, ordered.candidate)
            if cut and cut.beside != "other ways":
                return self._settled(call, cut, value)
            found += [(call, cut)] if cut else []
        if value.ndim:
            return replace(self, calls=self.calls[:1], weights="influence", notes=(INFLUENCE,), bound=True)
        if found:
            return self._settled(*found[0], value)
        raise InputError(
            f"{self.spelling}: it returns one number and no single matrix of scores was seen in it, so the parts of "
            'the queries cannot be told; let it return one loss per query (reduction="none"), or take scores'
        )

    def _settled(self, call: Call, cut: Cut, value: Tensor) -> "Embedded":
        """Bound to the scores that were found."""
        if cut.metric is None:
            what = "minus the distances that it computes" if cut.sign < 0 else "the scores that it computes"
            notes = [f"its weights are of {what}, which are no metric of cocos, by autograd"]
        else:
            scaled = "" if cut.factor == 1 else f" (it multiplies them by {cut.factor:.6g})"
            notes = [f"its weights are of {cut.metric.replace('_', ' ')} scores{scaled}, by autograd"]
        if cut.beside:
            what = cut.beside.replace("other", "its embeddings in other").replace("their", "the")
            notes.append(f"it reads {what} too, and that part of its gradient is not weighed")
        notes += reduced(value, self.reduction)
        metric = cut.metric or self.metric
        return replace(self, calls=(call,), cut=cut, metric=metric, notes=tuple(notes), bound=True)

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,); an equal part of it for each where it returns one number.

        If its scores were found, `pairs.scores` minus the scores of the embeddings is added to them.

        Raises:
            InputError: its gradient in the scores is asked for, and it weighs none.
        """
        loss = self if self.bound else self._settle(pairs)
        part = loss._rows(pairs)
        if loss.weights == "influence" and pairs.scores.requires_grad and not part.candidate.requires_grad:
            raise InputError(f"{self.spelling}: it weighs no scores, so it has no gradient in them (take its `weight`)")
        change = None
        if loss.cut:
            change = pairs.scores - METRICS[self.metric](part.query, part.candidate)
        value = loss._value(part, change)
        return value if value.ndim else (value / len(pairs.scores)).expand(len(pairs.scores))

    def weight(self, pairs: Pairs) -> Tensor:
        """Weights of its scores, or influences of the candidates, (Q, C); 0 for a pair in neither mask.

        Raises:
            InputError: the loss or its gradient is NaN or infinite, or its scores are computed in another way than in
                the first batch.
        """
        loss = self.bind(pairs)
        part = loss._rows(pairs)
        with torch.enable_grad():
            if loss.weights == "influence":
                found = loss._influence(part)
            else:
                change = torch.zeros_like(pairs.scores).requires_grad_()
                value = loss._value(part, change)
                finite(self.spelling, value)
                found = gradient(value, change)
        finite(self.spelling, found, "its gradient is")
        return torch.where(pairs.positive | pairs.negative, found, 0)

    def _influence(self, part: Embeddings) -> Tensor:
        """Lengths of ∂ loss of query i / ∂ candidate j, (Q, C), one query at a time."""
        leaf = part.candidate.detach().clone().requires_grad_()
        value = self._value(_with(part, leaf if part.shared else part.query, leaf))
        finite(self.spelling, value)
        found = torch.stack([gradient(each, leaf, keep=True).norm(dim=1) for each in value])
        if part.shared and found.diagonal().any() and not (found - found.diag().diag()).any():
            raise InputError(
                f"{self.spelling}: no candidate of the batch enters a query's loss; class weights of its own belong "
                "into the file, as proxies and proxy_labels"
            )
        return found

    def unit_of(self, weights: Tensor, pairs: Pairs) -> Tensor:
        """The unit of weights that are known already, broadcastable to (Q, C)."""
        if self.unit_ is not None:
            return weights.new_tensor(self.unit_)
        if self.twin is None:
            return units.of(weights, pairs, self.form)
        own, factor = self._as_read(self.twin, pairs)
        return factor * self.twin.unit(own)

    def unit(self, pairs: Pairs) -> Tensor:
        """The unit that was given, that of its twin, or measured, broadcastable to (Q, C); NaN where it is unknown."""
        loss = self.bind(pairs)
        return loss.unit_of(pairs.scores if loss.unit_ is not None or loss.twin else loss.weight(pairs), pairs)
