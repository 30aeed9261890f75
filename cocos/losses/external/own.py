"""The user's own loss: any callable that reads scores, embeddings or Pairs, unchanged."""

import contextlib
import copy
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from cocos import losses
from cocos.base.errors import InputError, Unfit, nearest
from cocos.embeddings import Embeddings
from cocos.embeddings.scores import METRICS, Pairs
from cocos.losses.external import guard
from cocos.losses.external.embedded import Embedded
from cocos.losses.external.score_matrix import See, watch_matrices
from cocos.losses.external.signature import (
    RESERVED,
    ROLE_OF,
    literal,
    named,
    parameters_of,
    roles_of,
    signature_of,
    takes_any,
    value_of,
)
from cocos.losses.external.traits import Traits


@dataclass(frozen=True, eq=False)
class CallByRole:
    """A user's callable with its parameters; `roles` tells which of them, by name or number, receives which value."""

    spelling: str
    target: Any
    roles: dict[str, str]
    given: dict[str, Any]

    def __call__(self, values_by_role: dict[str, Any], like: Tensor) -> Any:
        """Call it with these values of the roles; it returns one loss per query where that can be had.

        A module is moved to the device and the dtype of `like`, (Q, ...).
        """
        values = {name: values_by_role[role] for role, name in self.roles.items()}
        positional = [values[str(i)] for i in range(len(values)) if str(i) in values]
        keywords = {name: value for name, value in values.items() if not name.isdigit()} | self.given
        if self.reduction:
            none = {} if isinstance(self.target, torch.nn.Module) else {"reduction": "none"}
            with contextlib.suppress(Exception):  # an error shows below, in the call as it was given
                result = self._copy_of_target(like, reduction="none")(*positional, **keywords, **none)
                if isinstance(result, Tensor) and tuple(result.shape) == (len(like),):
                    return result
        return self._copy_of_target(like)(*positional, **keywords)

    @property
    def reduction(self) -> str | None:
        """Reduction that a module or function declares, "mean" or "sum"; None without one, or if the user chose it."""
        if isinstance(self.target, torch.nn.Module):
            found = getattr(self.target, "reduction", None)
        else:
            parameter = named(signature_of(self.target)).get("reduction")
            found = None if parameter is None or "reduction" in self.given else parameter.default
        return found if found in {"mean", "sum"} else None

    def _copy_of_target(self, like: Tensor, reduction: str | None = None) -> Any:
        """Copy a module, since it may keep state between calls; anything else is returned as it is."""
        if not isinstance(self.target, torch.nn.Module):
            return self.target
        module: Any = copy.deepcopy(self.target).to(device=like.device, dtype=like.dtype)
        if reduction:
            module.reduction = reduction
        return module


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class OfScores(guard.Foreign):
    """A loss of the user's that reads scores or Pairs.

    Args:
        call: the callable and the values it receives.
        target: where `weight`, `unit` and the like are looked for: an object of the protocol `cocos.losses.Loss` has
            them, a function may have some.
    """

    call: CallByRole
    target: Any

    @property
    def _closed(self) -> bool:
        return callable(getattr(self.target, "weight", None))

    def bind(self, pairs: Pairs) -> "OfScores":
        """Return the same loss with notes from a first batch; other faults show when it is weighed."""
        notes = []
        try:
            # In another order, so that hinges are unlikely to be inactive.
            value = self._value(pairs.with_scores(pairs.scores.detach().flip(1).requires_grad_()))
        except InputError:
            return self
        if not value.requires_grad and not self._closed:
            raise InputError(f"{self.spelling}: {guard.DETACHED}")
        if self.gradient == "autograd":
            notes.append(f"its weights are of {self.metric.replace('_', ' ')} scores, by autograd")
        notes += guard.reduction_notes(value, self.call.reduction)
        loss = replace(self, traits=replace(self.traits, notes=tuple(notes)))
        if self.traits.unit_from not in {"given", "own"}:
            with contextlib.suppress(InputError):  # said where it is weighed
                return loss.with_measured_unit(self.weight(pairs), pairs)
        return loss

    def _values_by_role(self, pairs: Pairs) -> dict[str, Any]:
        """List the values of its roles; pairs that take no part are removed if it receives no negatives."""
        roles = self.call.roles
        if "pairs" in roles:
            return {"pairs": pairs}
        if "negative" in roles:
            masks = {"positive": pairs.positive.clone(), "negative": pairs.negative.clone()}  # it may write into them
            return {"scores": pairs.scores, **masks}
        scores, positive, known = pairs.scores, pairs.positive.clone(), pairs.positive | pairs.negative
        if "positive" not in roles:
            square = scores.shape[0] == scores.shape[1]
            if not square or not torch.equal(positive, torch.eye(len(scores), dtype=torch.bool, device=scores.device)):
                raise Unfit(
                    f"{self.spelling}: it receives scores alone, so query i must match candidate i and no other, and "
                    "here it does not; draw pairs of two sides (--sample pairs), or let it take (scores, positive)"
                )
        counts = known.sum(dim=1)
        if not (counts == counts[0]).all():
            raise Unfit(
                f"{self.spelling}: it receives no negatives, and some pairs are neither positive nor negative; "
                "let it take (scores, positive, negative)"
            )
        if not known.all():  # as a sample and itself in a labelled set
            columns = known.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, : int(counts[0])]
            scores, positive = scores.gather(1, columns), positive.gather(1, columns)
        return {"scores": scores, "positive": positive}

    def _value(self, pairs: Pairs) -> Tensor:
        """Compute the loss, (Q,) or (), a known mean as a sum."""
        values, queries = self._values_by_role(pairs), len(pairs.scores)
        with guard.guarded(self.spelling), guard.seeded(pairs.scores.device):
            value = self.call(values, pairs.scores)
        value = guard.checked(self.spelling, value, queries)
        return value * queries if self.call.reduction == "mean" and not value.ndim else value

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,); an equal part of it for each where it returns one number."""
        return guard.per_query(self._value(pairs), len(pairs.scores))

    def own_weight(self, pairs: Pairs) -> Tensor:
        """∂ Σ loss / ∂ score, (Q, C): the target's closed form, else by autograd; 0 for a pair in neither mask."""
        if self._closed:
            with guard.guarded(self.spelling):
                found = self.target.weight(pairs)
            if not isinstance(found, Tensor) or found.shape != pairs.scores.shape:
                shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
                raise InputError(f"{self.spelling}: its weights are {shape}, expected {tuple(pairs.scores.shape)}")
            return found
        found = guard.derivative(self.spelling, lambda scores: self._value(pairs.with_scores(scores)), pairs.scores)
        return torch.where(pairs.positive | pairs.negative, found, 0)

    def unit_of(self, weights: Tensor, pairs: Pairs) -> Tensor:
        """Compute the unit of weights that are known already."""
        if self.traits.unit_from == "own":
            with guard.guarded(self.spelling):
                return torch.as_tensor(self.target.unit(pairs)).to(weights)
        return super().unit_of(weights, pairs)

    def unit(self, pairs: Pairs) -> Tensor:
        """The unit that was given, the target's own, or measured, broadcastable to (Q, C); NaN where it is unknown."""
        if self.traits.unit_from in {"given", "own"}:
            return self.unit_of(pairs.scores, pairs)
        loss = self if self.form else self.bind(pairs)
        return loss.unit_of(loss.weight(pairs), pairs)


def _from_file(spelling: str, path: Path, kind: str) -> Any:
    """Import the module of a file; it is run again only after it was changed."""
    if not path.is_file():
        raise InputError(f"{kind} {spelling!r}: there is no file {path}")
    path = path.resolve()
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # as `python file.py` does: its neighbours can be imported
    name, stamp = f"cocos_{kind}_{path.stem}", (str(path), path.stat().st_mtime_ns, path.stat().st_size)
    if getattr(sys.modules.get(name), "cocos_stamp", None) == stamp:
        return sys.modules[name]
    spec = cast(ModuleSpec, importlib.util.spec_from_file_location(name, path))
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    cast(Loader, spec.loader).exec_module(module)
    module.cocos_stamp = stamp
    return module


def _module_exists(module: str) -> bool:
    """Whether there is such a module; the packages that contain it are imported."""
    parent, _, _ = module.rpartition(".")
    return (not parent or _module_exists(parent)) and importlib.util.find_spec(module) is not None


def located(spelling: str, kind: str = "loss") -> Any:
    """Import the object that `package.module:attribute` or `file.py:attribute` names."""
    module, _, attribute = spelling.rpartition(":")
    if not module.strip() or not attribute.strip():
        raise InputError(f"{kind} {spelling!r}: write it as package.module:attribute, or file.py:attribute")
    with guard.guarded(f"{kind} {spelling!r}", while_=" could not be imported"):
        if module.endswith(".py"):
            found = _from_file(spelling, Path(module), kind)
        else:
            if (here := str(Path.cwd())) not in sys.path:
                sys.path.insert(0, here)
            importlib.invalidate_caches()
            if not _module_exists(module):
                raise InputError(f"{kind} {spelling!r}: there is no module {module!r} here or in the environment")
            found = importlib.import_module(module)
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [name for name in vars(found) if not name.startswith("_")] if hasattr(found, "__dict__") else []
            raise InputError(f"{kind} {spelling!r}: {nearest(f'attribute of {module}', part, public)}")
        found = getattr(found, part)
    return found


def _call_of_instances(target: Any) -> Any:
    """Find the function behind a call of an instance of a class; None for anything else."""
    if not isinstance(target, type):
        return None
    return getattr(target, "forward", None) or inspect.getattr_static(target, "__call__", None)


def parameter_names(target: Any) -> set[str] | None:
    """List the names of the parameters that a callable takes; None: any."""
    signatures = [signature_of(each) for each in (target, _call_of_instances(target)) if each is not None]
    names = {name for signature in signatures for name in named(signature)}
    return None if any(map(takes_any, signatures)) else names - {"self"} | set(RESERVED)


def _built(spelling: str, target: Any, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Build a class with the parameters of its constructor; return the callable and the parameters that are left."""
    if not isinstance(target, type):
        return target, given
    signature = signature_of(target)
    fields = named(signature)
    own = {n: value_of(n, v, fields[n]) for n, v in given.items() if n in fields}
    left = {n: v for n, v in given.items() if n not in fields}
    if takes_any(signature) and not issubclass(target, torch.nn.Module):
        own, left = own | {n: literal(v) for n, v in left.items() if n not in RESERVED}, {}
    missing = [n for n, p in fields.items() if p.default is p.empty and n not in own]
    if missing:
        raise InputError(f"{spelling}: it needs the parameter {missing[0]!r}: -p {missing[0]}=...")
    with guard.guarded(spelling):
        built = target(**own)
    return built, left


def _of_rows(call: CallByRole) -> Callable[[Embeddings, Tensor, Tensor, See], Any]:
    """Make a loss of embeddings, whose matrices can be watched, of a callable of the user's."""

    def watched(part: Embeddings, query: Tensor, candidate: Tensor, see: See) -> Any:
        roles, labels = call.roles, part.query_group
        if part.proxies and "candidate_labels" not in roles:
            matches = part.candidate_group == part.query_group[:, None]  # its labels are rows of the proxies
            labels = matches.to(torch.int8).argmax(dim=1)
        values_by_role = {
            "embeddings": query,
            "query": query,
            "candidate": candidate,
            "labels": labels,
            "candidate_labels": part.candidate_group.clone(),
        }
        with watch_matrices((len(query), len(candidate)), see):
            return call(values_by_role, query)

    return watched


def of(target: Any, spelling: str, given: dict[str, Any]) -> OfScores | Embedded:
    """Make a loss of a callable, or of a class that is built with the parameters.

    The names of its parameters (`ROLES`) decide which values it receives: `pairs`; `scores`, `positive` and `negative`,
    (Q, C) each; `embeddings` and `labels`; or `query` and `candidate`, matched row by row or by labels. It returns one
    loss per query, or one number.

    Args:
        target: a function, a class, a module, or an object of the protocol `cocos.losses.Loss`.
        spelling: its name.
        given: parameters, as values or text: keywords of the function, or of the constructor of the class and then of
            the call; and `metric` (of a loss of scores), `unit` (natural size of one weight) and `arguments` (the
            values it receives, in order, if its names do not say it).
    """
    signature = signature_of(target)
    names = set(named(signature)) | set(named(signature_of(_call_of_instances(target))))
    own, reserved = parameters_of(spelling, given, names)
    given = {name: literal(value) for name, value in given.items()}
    built, left = _built(spelling, target, own)
    if not callable(built):
        raise InputError(f"{spelling}: of type {type(built).__name__}, expected a function or a class of losses")
    signature = signature_of(built.value if isinstance(built, losses.Loss) else built)
    if signature is None and "arguments" not in reserved:
        raise InputError(
            f"{spelling}: Python does not know its arguments; name them in their order with -p arguments=..."
        )
    fields = named(signature)
    for name in left:
        if name not in fields and not takes_any(signature):
            usable = (set(fields) | names) - {"self"} - set(ROLE_OF)
            raise InputError(nearest(f"parameter of {spelling}", name, usable | set(RESERVED)))
    keywords = {n: value_of(n, v, fields[n]) if n in fields else literal(v) for n, v in left.items()}
    roles = roles_of(spelling, fields, keywords, reserved.get("arguments"))
    call, unit, metric = CallByRole(spelling, built, roles, keywords), reserved.get("unit"), reserved.get("metric")
    unit_from = "unknown" if unit is None else "given"
    known = Traits(couples="batch", gradient="autograd", unit_from=unit_from, spelling=spelling, given=given)
    if roles.keys() & {"pairs", "scores"}:
        return OfScores(traits=_stated_traits(built, known, roles, metric), unit_=unit, call=call, target=built)
    if metric is not None:
        raise InputError(f"{spelling}: metric {metric!r} is given, but it reads embeddings and has its own scores")
    labelled = "labels" in roles
    sample = getattr(built, "sample", "groups" if labelled else "pairs")
    matching = "labels" if labelled else "rows"
    return Embedded(
        traits=replace(known, reads="embeddings", matching=matching, sample=sample),
        unit_=unit,
        calls=(_of_rows(call),),
        needs="one set" if "embeddings" in roles and "candidate" not in roles else None,
        reduction=call.reduction,
    )


def _stated_traits(target: Any, known: Traits, roles: Collection[str], metric: str | None) -> Traits:
    """Read what a callable of scores states of itself; one that receives no negatives takes every other pair."""
    if getattr(target, "metric", "cosine") not in METRICS and metric is None:
        raise InputError(f"{known.spelling}: its metric is {target.metric!r}, expected one of {', '.join(METRICS)}")
    own = known.unit_from != "given" and callable(getattr(target, "unit", None))
    closed = callable(getattr(target, "weight", None))
    return replace(
        known,
        metric=str(metric or getattr(target, "metric", "cosine")),
        couples=str(getattr(target, "couples", "batch")),
        gradient=str(getattr(target, "gradient", "exact" if closed else "autograd")),
        balanced=bool(getattr(target, "balanced", False)),
        sample=str(getattr(target, "sample", "pairs")),
        matching="rows" if "scores" in roles and "negative" not in roles else None,
        unit_from="own" if own else known.unit_from,
        share=getattr(target, "share", None) if own else None,
        per_positive=own and bool(getattr(target, "per_positive", False)),
    )


def canonical(spelling: str) -> str:
    """Return the spelling itself."""
    return spelling


def known(spelling: str) -> set[str] | None:
    """Names of the parameters that it takes; None: any."""
    return parameter_names(located(spelling))


def qualified(spelling: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters as they are."""
    return parameters


def load(spelling: str, given: dict[str, Any]) -> losses.Loss:
    """Load the loss that `package.module:attribute` or `file.py:attribute` names."""
    return of(located(spelling), spelling, given)
