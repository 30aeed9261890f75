"""The user's own loss: any callable that reads scores, embeddings or Pairs, unchanged."""

import importlib
import importlib.util
import inspect
import sys
from dataclasses import dataclass
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from cocos.base.errors import InputError, nearest
from cocos.embeddings import Embeddings
from cocos.embeddings.scores import METRICS
from cocos.losses.external.cut import See, Watch
from cocos.losses.external.embedded import Embedded
from cocos.losses.external.guard import guarded
from cocos.losses.external.scored import OfScores, Told
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


def _from_file(spelling: str, path: Path, kind: str) -> Any:
    """The module of a file; it is run again only after it was changed."""
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


def _is_there(module: str) -> bool:
    """Whether there is such a module; the packages that contain it are imported."""
    parent, _, _ = module.rpartition(".")
    return (not parent or _is_there(parent)) and importlib.util.find_spec(module) is not None


def located(spelling: str, kind: str = "loss") -> Any:
    """The object that `package.module:attribute` or `file.py:attribute` names.

    Raises:
        InputError: it is not there, or importing it raises.
    """
    place, _, attribute = spelling.rpartition(":")
    if not place.strip() or not attribute.strip():
        raise InputError(f"{kind} {spelling!r}: write it as package.module:attribute, or file.py:attribute")
    with guarded(f"{kind} {spelling!r}", while_=" could not be imported"):
        if place.endswith(".py"):
            found = _from_file(spelling, Path(place), kind)
        else:
            if (here := str(Path.cwd())) not in sys.path:
                sys.path.insert(0, here)
            importlib.invalidate_caches()
            if not _is_there(place):
                raise InputError(f"{kind} {spelling!r}: there is no module {place!r} here or in the environment")
            found = importlib.import_module(place)
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [name for name in vars(found) if not name.startswith("_")] if hasattr(found, "__dict__") else []
            raise InputError(f"{kind} {spelling!r}: {nearest(f'attribute of {place}', part, public)}")
        found = getattr(found, part)
    return found


def _call_of(target: Any) -> Any:
    """The function behind a call of an instance of a class; None for anything else."""
    if not isinstance(target, type):
        return None
    return getattr(target, "forward", None) or inspect.getattr_static(target, "__call__", None)


def canonical(spelling: str) -> str:
    """The spelling itself."""
    return spelling


def qualified(spelling: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters as they are."""
    return parameters


def known(spelling: str) -> set[str] | None:
    """Names of the parameters that it takes; None: any."""
    return taken(located(spelling))


def taken(target: Any) -> set[str] | None:
    """Names of the parameters that a callable takes; None: any."""
    signatures = [signature_of(each) for each in (target, _call_of(target)) if each is not None]
    names = {name for signature in signatures for name in named(signature)}
    return None if any(map(takes_any, signatures)) else names - {"self"} | set(RESERVED)


def _split(spelling: str, target: Any, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The callable, a class built with the parameters of its constructor, and the parameters that are left."""
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
    with guarded(spelling):
        built = target(**own)
    return built, left


@dataclass(frozen=True, eq=False)
class _Sides:
    """A callable of the user's as a loss of embeddings that can be watched."""

    call: Told

    def __call__(self, part: Embeddings, query: Tensor, candidate: Tensor, see: See) -> Any:
        """Its result."""
        roles, labels = self.call.roles, part.query_group
        if part.proxies and "candidate_labels" not in roles:
            matches = part.candidate_group == part.query_group[:, None]  # its labels are rows of the proxies
            labels = matches.to(torch.int8).argmax(dim=1)
        told = {
            "embeddings": query,
            "query": query,
            "candidate": candidate,
            "labels": labels,
            "candidate_labels": part.candidate_group.clone(),
        }
        with Watch((len(query), len(candidate)), see):
            return self.call(told, query)


def of(target: Any, spelling: str, given: dict[str, Any]) -> OfScores | Embedded:
    """A loss from a callable, or from a class that is built with the parameters.

    The names of its parameters (`ROLES`) decide which values it receives: `pairs`; `scores`, `positive` and `negative`,
    (Q, C) each; `embeddings` and `labels`; or `query` and `candidate`, matched row by row or by labels. It returns one
    loss per query, or one number.

    Args:
        target: a function, a class, a module, or an object of the protocol `cocos.losses.Loss`.
        spelling: its name.
        given: parameters, as values or text: keywords of the function, or of the constructor of the class and then of
            the call; and `metric` (of a loss of scores), `unit` (natural size of one weight) and `arguments` (the
            values it receives, in order, if its names do not say it).

    Raises:
        InputError: it is not callable, its parameters are not understood, or one that is given is unknown.
    """
    signature = signature_of(target)
    names = set(named(signature)) | set(named(signature_of(_call_of(target))))
    own, reserved = parameters_of(spelling, given, names)
    given = {name: literal(value) for name, value in given.items()}
    built, left = _split(spelling, target, own)
    if not callable(built):
        raise InputError(f"{spelling}: of type {type(built).__name__}, expected a function or a class of losses")
    signature = signature_of(built)
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
    call = Told(spelling, built, roles, keywords)
    if roles.keys() & {"pairs", "scores"}:
        metric = reserved.get("metric")
        if getattr(built, "metric", "cosine") not in METRICS and metric is None:
            raise InputError(f"{spelling}: its metric is {built.metric!r}, expected one of {', '.join(METRICS)}")
        return OfScores(spelling, given, call, built, metric, reserved.get("unit"))
    if "metric" in reserved:
        raise InputError(
            f"{spelling}: metric {reserved['metric']!r} is given, but it reads embeddings and has its own scores"
        )
    labelled = "labels" in roles
    return Embedded(
        spelling,
        given,
        (_Sides(call),),
        matching="labels" if labelled else "rows",
        sample=getattr(built, "sample", "groups" if labelled else "pairs"),
        needs="one set" if "embeddings" in roles and "candidate" not in roles else None,
        reduction=call.reduction,
        unit_=reserved.get("unit"),
    )


def load(spelling: str, given: dict[str, Any]) -> OfScores | Embedded:
    """The loss that `package.module:attribute` or `file.py:attribute` names; see `of`.

    Raises:
        InputError: it is not there, or cannot be a loss.
    """
    return of(located(spelling), spelling, given)
