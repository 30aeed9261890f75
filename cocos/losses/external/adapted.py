"""A loss of another library, run as it is on the columns of a batch, with the unit of its twin on the shelf."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from cocos import losses
from cocos.embeddings import Embeddings
from cocos.errors import InputError, Unfit
from cocos.losses._calls import takes_tensors
from cocos.losses.external.columns import BatchColumns, ScoreWatch, columns, places
from cocos.losses.external.cut import seeded
from cocos.losses.external.guard import UNKNOWN_UNIT, checked, finite, gradient, guarded, pushes, shown
from cocos.scores import METRICS, Pairs

Settings = dict[str, Any]
Twin = Callable[[Settings], losses.ClosedForm]


@dataclass(frozen=True)
class Adapter:
    """How one class of a library is run, and which loss of the shelf it is.

    Args:
        name: of the class.
        run: (module, columns, settings) -> value, its mean over the queries.
        twin: the loss of the shelf with the same weights, by the settings.
        counterpart: name of the loss of the shelf whose recorded parameters it takes.
        read: settings that a module of the class keeps.
        refuses: why a module with these settings cannot be run here; None: it can.
        call: settings that the call takes, with the values that training begins with; None: left out.
        scale: the setting by which it multiplies the scores.
        unit_rows: it reads rows that the model has divided by their norms, and does not divide them itself.
        synonyms: other word -> the parameter, and its value from that of the word.
        parts: objects that the constructor takes and cocos has.
        supplied: arguments of the constructor that are no parameters of the loss.
    """

    name: str
    run: Callable[[Any, BatchColumns, Settings], Any]
    twin: Twin
    counterpart: str | None = None
    read: Callable[[Any], Settings] = lambda _: {}
    refuses: Callable[[Settings], str | None] = lambda _: None
    call: Settings = field(default_factory=dict)
    scale: str = "scale"
    unit_rows: bool = False
    synonyms: dict[str, tuple[str, Callable[[Any], Any]]] = field(default_factory=dict)
    parts: Callable[[], dict[str, Any]] = dict
    supplied: tuple[str, ...] = ()


@dataclass(frozen=True)
class BothWays:
    """Half of a loss of each direction, as losses of two sides are reduced: a twin, not of the shelf.

    Args:
        loss: of one direction.
    """

    loss: losses.ClosedForm
    couples: ClassVar[str] = "batch"
    gradient: ClassVar[str] = "exact"
    sample: ClassVar[str] = "pairs"

    def __repr__(self) -> str:
        return f"{self.loss!r}, half of each direction"

    @property
    def spelling(self) -> str:
        """The loss of one direction, in words."""
        return f"{losses.name_of(self.loss)}, half of each direction"

    @property
    def metric(self) -> str:
        """Of the loss."""
        return self.loss.metric

    @property
    def balanced(self) -> bool:
        """The columns of a matrix do not sum to zero where its rows do."""
        return False

    @property
    def share(self) -> str | None:
        """Meaning of a share of the loss."""
        return losses.traits(self.loss).share

    @property
    def per_positive(self) -> bool:
        """Whether the unit of the loss grows with the number of positives."""
        return losses.traits(self.loss).per_positive

    def __call__(self, pairs: Pairs) -> Tensor:
        """Loss of each query and of its candidate, half of each, (Q,)."""
        return (self.loss(pairs) + self.loss(_turned(pairs))) / 2

    def weight(self, pairs: Pairs) -> Tensor:
        """Mean of the weights of both directions, (Q, C)."""
        return (self.loss.weight(pairs) + self.loss.weight(_turned(pairs)).T) / 2

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a negative with all of the probability in both directions: that of the loss."""
        return self.loss.unit(pairs)


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
    couples: ClassVar[str] = "batch"
    gradient: ClassVar[str] = "autograd"
    balanced: ClassVar[bool] = False
    reads: ClassVar[str] = "embeddings"
    matching: ClassVar[str] = "rows"
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
        """Where the unit comes from: `given`, the loss of the shelf that this one is, or `push`."""
        return "given" if self.unit_ is not None else repr(self.twin) if self.twin else "push"

    @property
    def share(self) -> str | None:
        """Meaning of a share, as for its twin."""
        return losses.traits(self.twin).share

    @property
    def per_positive(self) -> bool:
        """As for its twin."""
        return losses.traits(self.twin).per_positive

    def _columns(self, pairs: Pairs) -> BatchColumns:
        return columns(self.spelling, pairs, unit=self.adapter.unit_rows)

    def _run(self, given: BatchColumns) -> Tensor:
        """The loss of columns, (), as a sum over the queries."""
        with guarded(self.spelling), seeded(given.query.device):
            module = self.build()
            if isinstance(module, torch.nn.Module):
                module = module.to(device=given.query.device, dtype=given.query.dtype)
            value = self.adapter.run(module, given, self.settings)
        return checked(self.spelling, value, len(given.query)).sum() * len(given.query)

    def _value(self, pairs: Pairs, change: Tensor) -> Tensor:
        """The loss, (), with a change of the scores, (Q, C), which requires a gradient.

        Raises:
            InputError: no scores were seen in it.
        """
        given = self._columns(pairs).detached()
        factor = self.settings.get(self.adapter.scale)
        with torch.enable_grad(), ScoreWatch(places(given, self.metric), change, float(factor or 1)) as watched:
            value = self._run(given)
        if not watched.found:
            raise InputError(
                f"{self.spelling}: no matrix of {self.metric} scores was seen in it, so it is not the version of "
                f"{self.library} that cocos knows; name its class, --loss package.module:Class, as a loss of your own"
            )
        return value

    def __call__(self, pairs: Pairs) -> Tensor:
        """An equal part of the loss for each query, (Q,), with `pairs.scores` in place of the embeddings' scores."""
        change = pairs.scores - self._scores(pairs).detach()
        value = self._value(pairs, change if change.requires_grad else change.requires_grad_())
        value = value if pairs.scores.requires_grad else value.detach()
        return (value / len(pairs.scores)).expand(len(pairs.scores))

    def _scores(self, pairs: Pairs) -> Tensor:
        part = self._embeddings(pairs)
        return METRICS[self.metric](part.query, part.candidate)

    def _embeddings(self, pairs: Pairs) -> Embeddings:
        """The rows of the pairs.

        Raises:
            Unfit: there are none.
        """
        if pairs.embeddings is None:
            raise Unfit(f"{self.spelling}: it reads embeddings, and these pairs are scores alone")
        return pairs.embeddings

    def weight(self, pairs: Pairs) -> Tensor:
        """∂ Σ loss / ∂ score, (Q, C), by autograd through the library; 0 for a pair in neither mask.

        Raises:
            InputError: the loss or its gradient is NaN or infinite, or its scores were not seen.
        """
        change = torch.zeros_like(pairs.scores).requires_grad_()
        value = self._value(pairs, change)
        finite(self.spelling, value)
        found = gradient(value, change)
        finite(self.spelling, found, "its gradient is")
        return torch.where(pairs.positive | pairs.negative, found, 0)

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
            "it returns a mean over the queries, counted as a sum",
        ]
        if not self._through_scores(pairs, weights):
            notes.append("it reads its embeddings in other ways too, and that part of its gradient is not weighed")
        twin = None if self.unit_ is not None else self.adapter.twin(self.settings)
        if twin is not None:
            gap = _relative(twin.weight(pairs), weights)
            if gap <= _room(weights):
                notes.append(f"its unit is that of {twin!r}; their weights differ by {gap:.1g} of the largest")
            else:
                notes.append(f"its weights are not those of {twin!r}: they differ by {gap:.2g} of the largest")
                notes, twin = [*notes, UNKNOWN_UNIT], None
        return replace(self, twin=twin, notes=tuple(notes), bound=True)

    def _through_scores(self, pairs: Pairs, weights: Tensor) -> bool:
        """Whether the gradient of the embeddings is that of the scores, so that the weights are all of it."""
        part = self._embeddings(pairs)
        leaves = [rows.detach().clone().requires_grad_() for rows in (part.query, part.candidate)]
        moved = object.__new__(Embeddings)
        moved.__dict__.update(part.__dict__, query=leaves[0], candidate=leaves[1])
        other = pairs.with_scores(pairs.scores)
        other.__dict__["embeddings"] = moved
        with torch.enable_grad():
            whole = torch.autograd.grad(self._run(self._columns(other)), leaves, materialize_grads=True)
            by_scores = torch.autograd.grad((METRICS[self.metric](*leaves) * weights).sum(), leaves)
        return _relative(torch.cat(by_scores), torch.cat(whole)) <= _room(weights)

    def unit_of(self, weights: Tensor, pairs: Pairs) -> Tensor:
        """The unit of weights that are known already, broadcastable to (Q, C)."""
        if self.unit_ is not None:
            return weights.new_tensor(self.unit_)
        return pushes(weights, pairs) if self.twin is None else self.twin.unit(pairs)

    def unit(self, pairs: Pairs) -> Tensor:
        """The unit that was given, that of its twin, or the query's own push, broadcastable to (Q, C)."""
        loss = self.bind(pairs)
        return loss.unit_of(loss.weight(pairs) if loss.unit_from == "push" else pairs.scores, pairs)


def _turned(pairs: Pairs) -> Pairs:
    """The same scores with the candidates as queries, without their rows; not checked, for torch.func."""
    turned = {name: getattr(pairs, name).T for name in ("scores", "positive", "negative")}
    other = object.__new__(Pairs)
    other.__dict__.update(dict.fromkeys(each.name for each in fields(Pairs)) | turned)
    return other


def _relative(one: Tensor, other: Tensor) -> float:
    """Largest difference in parts of the largest entry."""
    return ((one - other).abs().max() / other.abs().max().clamp(min=torch.finfo(other.dtype).tiny)).item()


def _room(values: Tensor) -> float:
    """Relative difference of gradients that are equal up to the rounding of their dtype."""
    return float(torch.finfo(values.dtype).eps ** 0.5)
