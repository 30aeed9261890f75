"""Losses of a library by name: its own code runs on the columns of a batch, with the unit of its twin on the shelf."""

import copy
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor, nn

from cocos import losses
from cocos.base.errors import InputError, nearest
from cocos.embeddings import Embeddings
from cocos.embeddings.scores import Pairs
from cocos.embeddings.sources import CANDIDATE_QUERY, DIRECTIONS, OF_THE_POSITIVE
from cocos.losses.external import guard
from cocos.losses.external.columns import (
    AddedChange,
    BatchColumns,
    columns,
    expanded,
    own_document_scores,
    score_blocks,
    scores_of_rows,
)
from cocos.losses.external.score_matrix import Watch
from cocos.losses.external.signature import literal, named, parameters_of, signature_of, value_of
from cocos.losses.external.traits import StatesTraits, Traits, traits_of

Settings = dict[str, Any]
Twin = Callable[[Settings], losses.Loss | None]


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
        hard_negatives: it takes hard negatives, as columns beside the positive.
        column_by_column: it scores each column of documents by itself.
        transposed: blocks of columns of which it computes the transpose.
        own_documents: it scores a query with its own documents alone.
        mean: it returns a mean over the queries.
        reads_teacher: it reads scores of a teacher, or rows of a guide.
        graded: it compares graded pairs.
        synonyms: other word -> the parameter, and its value from that of the word.
        arguments: of the constructor, by the parameters that are given.
        parts: objects that the constructor takes and cocos makes.
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
    hard_negatives: bool = False
    column_by_column: bool = False
    transposed: tuple[str, ...] = ()
    own_documents: bool = False
    mean: bool = True
    reads_teacher: bool = False
    graded: bool = False
    synonyms: dict[str, tuple[str, Callable[[Any], Any]]] = field(default_factory=dict)
    arguments: Callable[[dict[str, Any]], dict[str, Any]] = dict
    parts: Callable[[], dict[str, Any]] = dict


@dataclass(frozen=True)
class BothWays(StatesTraits):
    """Half of a loss of each direction, as losses of two sides are reduced: a twin, not of the shelf.

    In pairs of all directions the two halves are the columns that a query asks for, and those that its candidate does.
    """

    loss: losses.Loss

    def __repr__(self) -> str:
        return f"{written(self.loss)}, half of each direction"

    @cached_property
    def traits(self) -> Traits:  # type: ignore[override]
        """Traits of half of the loss: the columns of a matrix need not sum to zero where its rows do."""
        own = traits_of(self.loss)
        return Traits(
            metric=self.loss.metric,
            couples="batch",
            share=own.share,
            per_positive=own.per_positive,
            spelling=f"{self.loss.name}, half of each direction",
        )

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query and of its candidate, half of each, (Q,)."""
        asked, answered = _both_directions(pairs)
        return (self.loss(asked) + self.loss(answered)) / 2

    def weight(self, pairs: Pairs) -> Tensor:
        """Half of the weights of both directions, (Q, C)."""
        asked, answered = _both_directions(pairs)
        halves = self.loss.weight(asked) / 2, self.loss.weight(answered) / 2
        return halves[0] + halves[1].T if pairs.source is None else torch.cat(halves, dim=1)

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a negative with all of the probability in both directions: that of the loss.

        So the shares of a query sum to at most 1. One that stands in the softmax of one direction alone has half of its
        probability there.
        """
        asked, _ = _both_directions(pairs)
        return self.loss.unit(asked)


def _both_directions(pairs: Pairs) -> tuple[Pairs, Pairs]:
    """Split pairs into those that the queries ask for and those that their candidates do; unchecked, for torch.func."""
    if pairs.source is None:
        return _columns_of(pairs, slice(None)), _columns_of(pairs, slice(None), transposed=True)
    back = torch.isin(pairs.source[0], torch.tensor(OF_THE_POSITIVE, device=pairs.source.device, dtype=torch.int8))
    start = int((~back).sum())  # the columns of the candidates come last
    return _columns_of(pairs, slice(start)), _columns_of(pairs, slice(start, None))


def _columns_of(pairs: Pairs, columns_: slice, *, transposed: bool = False) -> Pairs:
    found = {name: getattr(pairs, name)[:, columns_] for name in ("scores", "positive", "negative")}
    none = dict.fromkeys(each.name for each in fields(Pairs))
    return pairs.unchecked(**none | ({name: values.T for name, values in found.items()} if transposed else found))


def written(loss: losses.Loss) -> str:
    """Write a loss of the shelf with its first parameter and those that are not the default."""
    if not is_dataclass(loss) or isinstance(loss, BothWays):
        return repr(loss)
    given = [
        f"{each.name}={getattr(loss, each.name)!r}"
        for place, each in enumerate(fields(loss))
        if place == 0 or getattr(loss, each.name) != each.default
    ]
    return f"{type(loss).__name__}({', '.join(given)})"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Adapted(guard.Foreign):
    r"""A loss of another library: its own code runs, and autograd gives :math:`\partial \sum \ell / \partial s`.

    Args:
        library: its name, for sentences.
        adapter: how it is run.
        build: makes a module, anew for every call, since it may keep a state.
        settings: see `Adapter.read`.
        remarks: sentences for the user on its parameters.
    """

    library: str
    adapter: Adapter
    build: Callable[[], Any]
    settings: Settings
    remarks: tuple[str, ...] = ()

    @property
    def recognised(self) -> bool:
        """Whether its class and its settings are those of a loss of the shelf."""
        return not self.closed and self.unit_ is None and self.adapter.twin(self.settings) is not None

    def _columns(self, pairs: Pairs) -> BatchColumns:
        found = columns(
            self.spelling, pairs, self.traits.directions, unit=self.adapter.unit_rows, graded=self.traits.graded
        )
        if self.adapter.own_documents and not self.traits.graded and len(found.documents) == 1:
            raise InputError(
                f"{self.spelling}: it sets the positive of a query against hard negatives of its own, and there are "
                "none; add the array negatives"
            )
        return found

    def _run(self, given: BatchColumns) -> Tensor:
        """Compute the loss of columns, (), a mean as a sum over the queries."""
        with guard.guarded(self.spelling), guard.seeded(given.query.device):
            module = self.build()
            if isinstance(module, torch.nn.Module):
                module = module.to(device=given.query.device, dtype=given.query.dtype)
            value = self.adapter.run(module, given, self.settings)
        value = guard.checked(self.spelling, value, len(given.query)).sum()
        return value * len(given.query) if self.adapter.mean else value

    def _value(self, pairs: Pairs, change: Tensor) -> Tensor:
        """Compute the loss, (), with a change of the scores, (Q, W), which requires a gradient."""
        with torch.no_grad():
            given = self._columns(pairs)
            if self.adapter.own_documents:
                blocks = own_document_scores(given, self.metric)
            else:
                layout = {"column_by_column": self.adapter.column_by_column, "transposed": self.adapter.transposed}
                blocks = score_blocks(given, self.metric, self.traits.directions, **layout)  # type: ignore[arg-type]
        factor = self.settings.get(self.adapter.scale)
        added = AddedChange(blocks, self._tied(pairs, change), float(factor or 1))
        with torch.enable_grad(), Watch(added.see):
            value = self._run(given)
        if missing := dict.fromkeys(each.name for each in blocks if each.name not in added.seen):
            raise InputError(
                f"{self.spelling}: no {self.metric} scores of {next(iter(missing))} were seen in it, so it is not the "
                f"version of {self.library} that cocos knows; name its class, --loss package.module:Class"
            )
        return value

    def value(self, pairs: Pairs) -> Tensor:
        """Give each query an equal part of the loss, (Q,), with `pairs.scores` in place of the embeddings' scores."""
        change = self._change(pairs)
        value = self._value(pairs, change if change.requires_grad else change.requires_grad_())
        value = value if pairs.scores.requires_grad else value.detach()
        return guard.per_query(value, len(pairs.scores))

    def _change(self, pairs: Pairs) -> Tensor:
        """Subtract the scores of the embeddings from those of the pairs, (Q, W): 0 up to rounding, unless changed."""
        self._columns(pairs)  # which refuses pairs that do not fit
        return pairs.scores - self._scores(guard.rows_of(self.spelling, pairs)).detach()

    def _scores(self, part: Embeddings) -> Tensor:
        return scores_of_rows(part, self.metric, self.traits.directions, graded=self.traits.graded)

    def _weigh(self, pairs: Pairs) -> Tensor:
        """Gradient of the library in the scores, (Q, W); of graded pairs on the diagonal, all of a pair's couples."""
        return guard.derivative(self.spelling, lambda change: self._value(pairs, change), self._change(pairs))

    def own_weight(self, pairs: Pairs) -> Tensor:
        """∂ Σ loss / ∂ score, (Q, W), by autograd through the library; 0 for a pair in neither mask.

        A loss of graded pairs has one score of each, so that its gradient is one number a pair; its couples are the
        twin's, where these add up to that number.
        """
        found = self._weigh(pairs)
        if self.traits.graded:
            twin = cast(losses.Loss, self.adapter.twin(self.settings))
            couples = twin.weight(pairs)
            gap = self._couples_gap(pairs, couples, found)
            if gap > _gradient_rounding(found):
                raise InputError(
                    f"{self.spelling}: its gradient is not that of {written(twin)} (off by "
                    f"{gap:.2g} of the largest), so the couples of graded pairs cannot be told apart"
                )
            return couples
        return found

    def _couples_gap(self, pairs: Pairs, couples: Tensor, found: Tensor | None = None) -> float:
        """Relative difference of the sums of couples, (Q, Q), from the library's gradient of each graded pair."""
        return _difference(couples.sum(dim=0), (self._weigh(pairs) if found is None else found).diagonal())

    def _tied(self, pairs: Pairs, change: Tensor) -> Tensor:
        """Restrict a change to scores that take part; a score that two softmaxes read changes as in the first one."""
        change = torch.where(pairs.positive | pairs.negative, change, 0)
        if self.settings.get("partition") != "per_direction" or pairs.source is None:
            return change
        rows = torch.arange(len(change), device=change.device)
        start = int((pairs.source[0] != CANDIDATE_QUERY).cumprod(dim=0).sum())  # of the direction candidate-query
        return change.index_put((rows, start + rows), change[rows, rows])

    def _own_documents(self, pairs: Pairs) -> tuple[Pairs, Tensor]:
        """Select the pairs of each query with its own documents, (Q, 1 + K), and their columns."""
        given = self._columns(pairs)
        positive = torch.zeros_like(given.index, dtype=torch.bool)
        positive[:, 0] = True
        return Pairs(pairs.scores.gather(1, given.index), positive, teacher=given.teacher), given.index

    def twin_weight(self, pairs: Pairs) -> Tensor:
        """Weights of the twin, (Q, W), on the columns as the library has them; zero without a twin."""
        twin = cast(losses.Loss | None, self.traits.twin)
        return torch.zeros_like(pairs.scores) if twin is None else self._weights_by(twin, pairs)

    def _weights_by(self, twin: losses.Loss, pairs: Pairs) -> Tensor:
        if self.traits.matching == "rows" or self.traits.graded:
            return self._tied_weight(pairs, twin.weight(pairs))
        if self.adapter.own_documents:
            own, index = self._own_documents(pairs)
            return torch.zeros_like(pairs.scores).scatter_add(1, index, twin.weight(own))
        apart = self.adapter.column_by_column
        made, place = expanded(self._columns(pairs), pairs, self.traits.directions, column_by_column=apart)
        return self._tied_weight(pairs, torch.zeros_like(pairs.scores).index_add(1, place, twin.weight(made)))

    def _tied_weight(self, pairs: Pairs, weights: Tensor) -> Tensor:
        """Weights, (Q, W), of scores that are tied together."""
        leaf = torch.zeros_like(weights).requires_grad_()
        with torch.enable_grad():
            return guard.gradient((self._tied(pairs, leaf) * weights).sum(), leaf)

    def bind(self, pairs: Pairs) -> "Adapted":
        """Return the same loss, with its unit and its notes settled by one batch."""
        if self.traits.bound:
            return self
        weights = self.weight(pairs)
        read = f"{self.metric} scores"
        note = f"its weights are of {read}, by autograd through the code of {self.library}"
        notes = [*self.remarks, note, *([guard.MEAN_AS_SUM] if self.adapter.mean else [])]
        if not self._through_scores(pairs):
            notes.append(guard.UNWEIGHED["rows"])
        twin = None if self.unit_ is not None else self.adapter.twin(self.settings)
        unit_note, graded = "", self.traits.graded
        if twin is not None:
            gap = self._couples_gap(pairs, weights) if graded else _difference(self._weights_by(twin, pairs), weights)
            if gap <= _gradient_rounding(weights):
                unit_note = f"its unit is that of {written(twin)}; their weights differ by {gap:.1g} of the largest"
            else:
                notes.append(f"its weights are not those of {written(twin)}: they differ by {gap:.2g} of the largest")
                twin = None
        traits = replace(self.traits, notes=tuple(notes), bound=True)
        loss = replace(self, traits=traits, weights_of=read, weights_note=note)
        if twin is None and self.unit_ is None:
            return loss.with_measured_unit(weights, pairs)
        return loss.with_unit(unit_note, twin=twin, named=written(twin) if twin else "")

    def _through_scores(self, pairs: Pairs) -> bool:
        """Whether the gradient of the embeddings is that of the scores, so that the weights are all of it."""
        part, weights = guard.rows_of(self.spelling, pairs), self._weigh(pairs)
        leaves = [rows.detach().clone().requires_grad_() for rows in (part.query, part.candidate)]
        moved = part.with_rows(*leaves)
        with torch.enable_grad():
            value = self._run(self._columns(pairs.unchecked(embeddings=moved)))
            whole = torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
            by_scores = torch.autograd.grad((self._scores(moved) * weights).sum(), leaves)
        return _difference(torch.cat(by_scores), torch.cat(whole)) <= _gradient_rounding(weights)

    def unit_of_twin(self, pairs: Pairs) -> Tensor:
        """Unit of its twin, of a query's own documents where it reads no others, broadcastable to (Q, C)."""
        alone = self.adapter.own_documents and not self.traits.graded
        return cast(losses.Loss, self.traits.twin).unit(self._own_documents(pairs)[0] if alone else pairs)

    def read_by_twin(self, pairs: Pairs) -> bool:
        """Whether its twin reads the scores of these pairs, since there are neither hard negatives nor directions."""
        same = pairs.source is None and not self.adapter.own_documents and not self.traits.graded
        return same and cast(losses.Loss, self.traits.twin).metric == self.metric


def _difference(found: Tensor, expected: Tensor) -> float:
    """Compute the largest difference in parts of the largest entry."""
    largest = expected.abs().max().clamp(min=torch.finfo(expected.dtype).tiny)
    return ((found - expected).abs().max() / largest).item()


def _gradient_rounding(values: Tensor) -> float:
    """Relative difference up to which gradients of this dtype are equal."""
    return float(torch.finfo(values.dtype).eps ** 0.5)


@dataclass(frozen=True)
class Library:
    """A library whose losses are run as they are.

    Args:
        prefix: of its losses' names, without the colon.
        package: that is imported.
        modules: with its losses, the first that is there.
        install: what pip installs.
        adapters: of its classes.
        unusable: class -> why its negatives cannot be counted.
    """

    prefix: str
    package: str
    modules: tuple[str, ...]
    install: str
    adapters: tuple[Adapter, ...]
    unusable: Mapping[str, str] = field(default_factory=dict)

    def adapter(self, spelling: str) -> Adapter:
        """Find the adapter of a class; capitals do not matter, nor does the ending `Loss`."""
        name = spelling.partition(":")[2].strip()
        usable = {each.name: each for each in self.adapters}
        for known in (*usable, *self.unusable):
            if name.lower() in {known.lower(), known.lower().removesuffix("loss")}:
                if known in self.unusable:
                    raise InputError(f"loss {self.prefix}:{known}: {self.unusable[known]}")
                return usable[known]
        words = nearest(f"loss of {self.package}", name, usable)
        raise InputError(f"{words}; any other is named by its module, --loss package.module:{name or 'Class'}")

    def canonical(self, spelling: str) -> str:
        """Write the name as the library does."""
        return f"{self.prefix}:{self.adapter(spelling).name}"

    def counterpart(self, spelling: str) -> str | None:
        """Name of the loss of the shelf whose recorded parameters it takes."""
        return self.adapter(spelling).counterpart

    def imported(self, name: str) -> Any:
        """Import a class of the library."""
        try:
            installed = importlib.util.find_spec(self.package) is not None
        except (ImportError, ValueError):
            installed = False
        if not installed:
            raise InputError(f"a loss with {self.prefix}: needs {self.package}; pip install {self.install}")
        for place in self.modules:
            with guard.guarded(
                f"loss {self.prefix}:{name}", while_=f", {self.package} could not be imported", dtypes=False
            ):
                try:
                    module = importlib.import_module(place)
                except ModuleNotFoundError as error:
                    if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                        raise
                    continue
            if isinstance(found := getattr(module, name, None), type):
                return found
        raise InputError(
            f"loss {self.prefix}:{name}: the installed {self.package} has no such class; pip install -U {self.install}"
        )

    def _signature(self, adapter: Adapter) -> dict[str, inspect.Parameter]:
        """Parameters of the constructor that are numbers or words, by name."""
        takes, made = named(_constructor(self.imported(adapter.name))), adapter.parts()
        return {name: each for name, each in takes.items() if name not in made}

    def known(self, spelling: str) -> set[str]:
        """List the names of the parameters that it takes."""
        adapter = self.adapter(spelling)
        return self._signature(adapter).keys() | adapter.call.keys() | adapter.synonyms.keys() | {"unit"}

    def qualified(self, spelling: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Rename a `temperature`, `scale` or `bias` as the library names it."""
        adapter, found = self.adapter(spelling), {}
        for name, value in parameters.items():
            own, number = name, value
            if name in adapter.synonyms:
                own, read = adapter.synonyms[name]
                try:
                    number = read(float(value))
                except (ValueError, TypeError, ZeroDivisionError):
                    raise InputError(
                        f"{self.canonical(spelling)}: {name} {value!r}, expected a number above 0"
                    ) from None
            if own in found:
                raise InputError(f"parameter {own} of {self.canonical(spelling)} is given twice")
            found[own] = number
        return found

    def load(self, spelling: str, given: dict[str, Any]) -> Adapted:
        """Build a loss of the library with the parameters of its constructor and of its call, and `unit`."""
        adapter, spelling = self.adapter(spelling), self.canonical(spelling)
        cls, fields, usable = self.imported(adapter.name), self._signature(adapter), self.known(spelling)
        own, reserved = parameters_of(spelling, self.qualified(spelling, given), usable - {"unit"})
        for name in (*reserved.keys() - {"unit"}, *own.keys() - usable):
            raise InputError(nearest(f"parameter of {spelling}", name, usable))
        plain = {name: value_of(name, value, fields[name]) for name, value in own.items() if name in fields}
        call = {name: _number(spelling, name, own[name]) for name in own.keys() & adapter.call.keys()}

        def build() -> Any:
            return cls(**adapter.parts() | adapter.arguments(plain))

        with guard.guarded(spelling):
            module = build()
        return self._adapted(adapter, spelling, module, build, call, plain | call, reserved.get("unit"))

    def of(self, module: nn.Module) -> Adapted | None:
        """Read a module of a class of the library as a loss with its settings; None: it has no adapter."""
        cls = type(module)
        adapter = next((each for each in self.adapters if each.name == cls.__name__), None)
        if adapter is None or cls.__module__.partition(".")[0] != self.package:
            return None

        def build() -> Any:
            parts = {id(getattr(module, name, None)): part for name, part in adapter.parts().items()}
            return copy.deepcopy(module, parts)  # in which they stand for its own, which are not copied

        return self._adapted(adapter, f"{self.prefix}:{adapter.name}", module, build, {}, {}, None)

    def _adapted(
        self,
        adapter: Adapter,
        spelling: str,
        module: Any,
        build: Any,
        call: Settings,
        given: dict[str, Any],
        unit: float | None,
    ) -> Adapted:
        settings = adapter.read(module) | adapter.call | call
        if why := adapter.refuses(settings):
            raise InputError(f"{spelling}: {why}")
        initial = {n: v for n, v in adapter.call.items() if n not in call and v is not None}
        values = " and ".join(f"{name} {value:.6g}" for name, value in initial.items())
        remark = (
            f"{values}: {self.package} begins a training there, and a trained model has its own, which "
            f"{' '.join(f'-p {name}=' for name in initial)} gives"
        )
        traits = Traits(
            metric=str(settings.get("metric", "cosine")),
            couples="batch",
            gradient="autograd",
            reads="embeddings",
            through_scores=True,
            unit_from="unknown" if unit is None else "given",
            normaliser=f"a model of {self.package}" if adapter.unit_rows else None,
            directions=tuple(settings.get("directions", DIRECTIONS[:1])),
            requires=("teacher",) if adapter.reads_teacher else (),
            graded=adapter.graded,
            matching="columns" if adapter.hard_negatives else "rows",
            spelling=spelling,
            given=given,
        )
        return Adapted(
            traits=traits,
            unit_=unit,
            library=self.package,
            adapter=adapter,
            build=build,
            settings=settings,
            remarks=(remark,) if initial else (),
        )


def _constructor(cls: Any) -> inspect.Signature | None:
    """Signature of the constructor; None where Python does not know it."""
    try:
        return inspect.signature(cls)
    except (TypeError, ValueError):
        return signature_of(cls)


def _number(spelling: str, name: str, value: Any) -> float | None:
    """A number of a call, from a number or from text."""
    found = literal(value)
    if found is None or (isinstance(found, int | float) and not isinstance(found, bool) and abs(found) < float("inf")):
        return found
    raise InputError(f"{spelling}: {name} {value!r}, expected a finite number")
