"""A loss of another library, run as it is on the columns of a batch, with the unit of its twin on the shelf."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from cocos import losses
from cocos.base.errors import InputError, Unfit
from cocos.embeddings import Embeddings
from cocos.embeddings.scores import Pairs
from cocos.embeddings.sources import DIRECTIONS, SOURCES
from cocos.losses._calls import takes_tensors
from cocos.losses.external import units
from cocos.losses.external.adapter import Adapter, Settings
from cocos.losses.external.both_ways import written
from cocos.losses.external.columns import (
    BatchColumns,
    ScoreWatch,
    columns,
    expanded,
    pairwise,
    places,
    rescored,
)
from cocos.losses.external.cut import seeded
from cocos.losses.external.guard import checked, finite, gradient, guarded, measured, shown

# Place of the direction in which the positive of a query stands again.
PLACE_OF_CANDIDATE_QUERY = SOURCES.index("candidate-query")


@takes_tensors
@dataclass(frozen=True, eq=False)
class Adapted:
    r"""A loss of another library: its own code runs, and autograd gives :math:`\partial \sum \ell / \partial s`.

    Args:
        spelling: its name for `cocos.losses.load`.
        given: the parameters that were given.
        library: its name, for sentences.
        adapter: how it is run.
        build: makes a module, anew for every call, since it may keep a state.
        settings: see `Adapter.read`.
        unit_: natural size of one weight; None: that of its twin.
        remarks: sentences for the user on its parameters.
        notes: remarks for the user, one sentence each.
        bound: a batch was seen.
        twin: loss of the shelf with the same weights.
        form: of `cocos.units`, that its weights have on the first batch; None: none.
    """

    spelling: str
    given: dict[str, Any]
    library: str
    adapter: Adapter
    build: Callable[[], Any]
    settings: Settings
    unit_: float | None = None
    remarks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    bound: bool = False
    twin: losses.ClosedForm | None = None
    form: str | None = None
    couples: ClassVar[str] = "batch"
    gradient: ClassVar[str] = "autograd"
    balanced: ClassVar[bool] = False
    reads: ClassVar[str] = "embeddings"
    through_scores: ClassVar[bool] = True
    sample: ClassVar[str] = "pairs"
    weights: ClassVar[str] = "score"

    def __repr__(self) -> str:
        return shown(self.spelling, self.given)

    @property
    def metric(self) -> str:
        """Scores that it reads."""
        return str(self.settings.get("metric", "cosine"))

    @property
    def normaliser(self) -> str | None:
        """Who divides the rows by their norms, where the loss itself does not."""
        return f"a model of {self.library}" if self.adapter.unit_rows else None

    @property
    def unit_from(self) -> str:
        """Where the unit comes from: `given`, the loss of the shelf that this is, the form, or `unknown`."""
        return "given" if self.unit_ is not None else written(self.twin) if self.twin else self.form or "unknown"

    @property
    def share(self) -> str | None:
        """Meaning of a share, as for its twin, or as the form of its weights has it."""
        return losses.traits(self.twin).share if self.twin else units.SHARES.get(str(self.form))

    @property
    def per_positive(self) -> bool:
        """As for its twin."""
        return losses.traits(self.twin).per_positive

    @property
    def directions(self) -> tuple[str, ...]:
        """Blocks of columns that it reads."""
        return tuple(self.settings.get("directions", DIRECTIONS[:1]))

    @property
    def requires(self) -> tuple[str, ...]:
        """Fields of the pairs that it cannot do without."""
        return ("teacher",) if self.adapter.taught else ()

    @property
    def graded(self) -> bool:
        """Whether it compares graded pairs."""
        return self.adapter.graded

    @property
    def matching(self) -> str:
        """Row by row, with hard negatives as further columns where it takes them."""
        return "columns" if self.adapter.columns else "rows"

    def _columns(self, pairs: Pairs) -> BatchColumns:
        """The columns of the pairs."""
        found = columns(self.spelling, pairs, self.directions, unit=self.adapter.unit_rows, graded=self.graded)
        if self.adapter.pairwise and not self.graded and len(found.documents) == 1:
            raise InputError(
                f"{self.spelling}: it sets the positive of a query against hard negatives of its own, and there are "
                "none; add the array negatives"
            )
        return found

    def _run(self, given: BatchColumns) -> Tensor:
        """The loss of columns, (), a mean as a sum over the queries."""
        with guarded(self.spelling), seeded(given.query.device):
            module = self.build()
            if isinstance(module, torch.nn.Module):
                module = module.to(device=given.query.device, dtype=given.query.dtype)
            value = self.adapter.run(module, given, self.settings)
        value = checked(self.spelling, value, len(given.query)).sum()
        return value * len(given.query) if self.adapter.mean else value

    def _value(self, pairs: Pairs, change: Tensor) -> Tensor:
        """The loss, (), with a change of the scores, (Q, W), which requires a gradient."""
        with torch.no_grad():
            given = self._columns(pairs)
            if self.adapter.pairwise:
                where = pairwise(given, self.metric)
            else:
                apart, turned = self.adapter.apart, self.adapter.turned
                where = places(given, self.metric, self.directions, apart=apart, turned=turned)
        factor = self.settings.get(self.adapter.scale)
        with torch.enable_grad(), ScoreWatch(where, self._tied(pairs, change), float(factor or 1)) as watched:
            value = self._run(given)
        if missing := dict.fromkeys(each.block for each in where if each.block not in watched.found):
            raise InputError(
                f"{self.spelling}: no {self.metric} scores of {next(iter(missing))} were seen in it, so it is not the "
                f"version of {self.library} that cocos knows; name its class, --loss package.module:Class"
            )
        return value

    def __call__(self, pairs: Pairs) -> Tensor:
        """An equal part of the loss for each query, (Q,), with `pairs.scores` in place of the embeddings' scores."""
        change = self._change(pairs)
        value = self._value(pairs, change if change.requires_grad else change.requires_grad_())
        value = value if pairs.scores.requires_grad else value.detach()
        return (value / len(pairs.scores)).expand(len(pairs.scores))

    def _change(self, pairs: Pairs) -> Tensor:
        """Scores of the pairs minus those of their embeddings, (Q, W): 0 up to rounding, unless others are given."""
        self._columns(pairs)  # which refuses pairs that do not fit
        return pairs.scores - self._scores(self._embeddings(pairs)).detach()

    def _scores(self, part: Embeddings) -> Tensor:
        return rescored(part, self.metric, self.directions, graded=self.graded)

    def _embeddings(self, pairs: Pairs) -> Embeddings:
        """The rows of the pairs."""
        if pairs.embeddings is None:
            raise Unfit(f"{self.spelling}: it reads embeddings, and these pairs are scores alone")
        return pairs.embeddings

    def _weigh(self, pairs: Pairs) -> Tensor:
        """Gradient of the library in the scores, (Q, W); of graded pairs on the diagonal, all of a pair's couples."""
        change = self._change(pairs).detach().requires_grad_()
        value = self._value(pairs, change)
        finite(self.spelling, value)
        found = gradient(value, change)
        finite(self.spelling, found, "its gradient is")
        return found

    def weight(self, pairs: Pairs) -> Tensor:
        """∂ Σ loss / ∂ score, (Q, W), by autograd through the library; 0 for a pair in neither mask.

        A loss of graded pairs has one score of each, so that its gradient is one number a pair; its couples are the
        twin's, where these add up to that number.

        Raises:
            InputError: the loss or its gradient is NaN or infinite, its scores were not seen, or its couples cannot be
                told apart.
        """
        found = self._weigh(pairs)
        if self.graded:
            twin = cast(losses.ClosedForm, self.adapter.twin(self.settings))
            couples = twin.weight(pairs)
            gap = self._uncoupled(pairs, couples, found)
            if gap > _room(found):
                raise InputError(
                    f"{self.spelling}: its gradient is not that of {written(twin)} (off by "
                    f"{gap:.2g} of the largest), so the couples of graded pairs cannot be told apart"
                )
            return couples
        return found

    def _uncoupled(self, pairs: Pairs, couples: Tensor, found: Tensor | None = None) -> float:
        """Relative difference of the sums of couples, (Q, Q), from the library's gradient of each graded pair."""
        return _relative(couples.sum(dim=0), (self._weigh(pairs) if found is None else found).diagonal())

    def _tied(self, pairs: Pairs, change: Tensor) -> Tensor:
        """The change of scores that take part; a score that stands in two softmaxes changes as the first one does."""
        change = torch.where(pairs.positive | pairs.negative, change, 0)
        if self.settings.get("partition") != "per_direction" or pairs.source is None:
            return change
        rows = torch.arange(len(change), device=change.device)
        start = int(
            (pairs.source[0] != PLACE_OF_CANDIDATE_QUERY).cumprod(dim=0).sum()
        )  # of the direction candidate-query
        return change.index_put((rows, start + rows), change[rows, rows])

    def _own(self, pairs: Pairs) -> tuple[Pairs, Tensor]:
        """The pairs of each query and its own documents, (Q, 1 + K), and their columns."""
        given = self._columns(pairs)
        positive = torch.zeros_like(given.index, dtype=torch.bool)
        positive[:, 0] = True
        return Pairs(pairs.scores.gather(1, given.index), positive, teacher=given.teacher), given.index

    def twin_weight(self, pairs: Pairs) -> Tensor:
        """Weights of the twin, (Q, W), on the columns as the library has them; zero without a twin."""
        return torch.zeros_like(pairs.scores) if self.twin is None else self._of_twin(self.twin, pairs)

    def _of_twin(self, twin: losses.ClosedForm, pairs: Pairs) -> Tensor:
        if self.matching == "rows" or self.graded:
            return self._tied_weight(pairs, twin.weight(pairs))
        if self.adapter.pairwise:
            own, index = self._own(pairs)
            return torch.zeros_like(pairs.scores).scatter_add(1, index, twin.weight(own))
        made, place = expanded(self._columns(pairs), pairs, self.directions, apart=self.adapter.apart)
        return self._tied_weight(pairs, torch.zeros_like(pairs.scores).index_add(1, place, twin.weight(made)))

    def _tied_weight(self, pairs: Pairs, weights: Tensor) -> Tensor:
        """Weights, (Q, W), of scores that are tied together."""
        leaf = torch.zeros_like(weights).requires_grad_()
        with torch.enable_grad():
            return gradient((self._tied(pairs, leaf) * weights).sum(), leaf)

    def bind(self, pairs: Pairs) -> "Adapted":
        """Return the same loss, with its unit and its notes settled by one batch.

        Raises:
            InputError: it cannot read these embeddings, or its scores are not found.
        """
        if self.bound:
            return self
        weights = self.weight(pairs)
        notes = [
            *self.remarks,
            f"its weights are of {self.metric} scores, by autograd through the code of {self.library}",
        ]
        notes += ["it returns a mean over the queries, counted as a sum"] if self.adapter.mean else []
        if not self._through_scores(pairs):
            notes.append("it reads its embeddings in other ways too, and that part of its gradient is not weighed")
        twin = None if self.unit_ is not None else self.adapter.twin(self.settings)
        if twin is not None:
            gap = _relative(self._of_twin(twin, pairs), weights) if not self.graded else self._uncoupled(pairs, weights)
            if gap <= _room(weights):
                notes.append(f"its unit is that of {written(twin)}; their weights differ by {gap:.1g} of the largest")
            else:
                notes.append(f"its weights are not those of {written(twin)}: they differ by {gap:.2g} of the largest")
                twin = None
        form = None
        if twin is None and self.unit_ is None:
            form, note = measured(weights, pairs)
            notes.append(note)
        return replace(self, twin=twin, form=form, notes=tuple(notes), bound=True)

    def _through_scores(self, pairs: Pairs) -> bool:
        """Whether the gradient of the embeddings is that of the scores, so that the weights are all of it."""
        part, weights = self._embeddings(pairs), self._weigh(pairs)
        leaves = [rows.detach().clone().requires_grad_() for rows in (part.query, part.candidate)]
        moved = object.__new__(Embeddings)
        moved.__dict__.update(part.__dict__, query=leaves[0], candidate=leaves[1])
        other = pairs.with_scores(pairs.scores)
        other.__dict__["embeddings"] = moved
        with torch.enable_grad():
            value = self._run(self._columns(other))
            whole = torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
            by_scores = torch.autograd.grad((self._scores(moved) * weights).sum(), leaves)
        return _relative(torch.cat(by_scores), torch.cat(whole)) <= _room(weights)

    def unit_of(self, weights: Tensor, pairs: Pairs) -> Tensor:
        """The unit of weights that are known already, broadcastable to (Q, C)."""
        if self.unit_ is not None:
            return weights.new_tensor(self.unit_)
        if self.twin is None:
            return units.of(weights, pairs, self.form)
        return self.twin.unit(self._own(pairs)[0] if self.adapter.pairwise and not self.graded else pairs)

    def unit(self, pairs: Pairs) -> Tensor:
        """The unit that was given, that of its twin, or measured, broadcastable to (Q, C); NaN where it is unknown."""
        loss = self.bind(pairs)
        return loss.unit_of(pairs.scores if loss.unit_ is not None or loss.twin else loss.weight(pairs), pairs)


def _relative(one: Tensor, other: Tensor) -> float:
    """Largest difference in parts of the largest entry."""
    return ((one - other).abs().max() / other.abs().max().clamp(min=torch.finfo(other.dtype).tiny)).item()


def _room(values: Tensor) -> float:
    """Relative difference of gradients that are equal up to the rounding of their dtype."""
    return float(torch.finfo(values.dtype).eps ** 0.5)
