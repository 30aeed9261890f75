"""A user's callable as a loss: the names or the order of its parameters decide which tensors it receives.

A loss of embeddings is weighed by `intercept`. If `recognise` identifies it, the built-in loss is counted in its place.
"""

import contextlib
import copy
import inspect
import json
import math
import random
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cocos.base import user_code
from cocos.base.errors import InputError, Unfit, nearest
from cocos.embeddings import Embeddings
from cocos.embeddings.scores import Pairs
from cocos.embeddings.similarities import METRICS
from cocos.losses import intercept
from cocos.losses.base import Loss
from cocos.losses.combined import UNKNOWN_UNIT
from cocos.losses.recognise import Recognised, plain, recognise

# Names of parameters of public code, by the tensor that they receive.
NAMES = {
    "pairs": "pairs",
    "scores": "scores score sim sims similarity similarities similarity_matrix sim_matrix logits",
    "positive": "positive positives pos pos_mask positive_mask is_positive match mask",
    "negative": "negative negatives neg neg_mask negative_mask is_negative",
    "embeddings": "embeddings embedding embs emb features feature feats x z inputs input global_feat",
    "labels": "labels label targets target y classes groups ids",
    "query": "query queries q image images img imgs im image_features image_embeddings image_embeds img_emb "
    "query_emb query_embeddings anchor anchors z0 z1 z_i zi out0 out_1",
    "candidate": "candidate candidates c text texts txt caption captions cap s key keys k text_features "
    "text_embeddings text_embeds txt_emb cap_emb candidate_emb candidate_embeddings proxies ref_emb positive_key "
    "z2 z_j zj out1 out_2",
    "candidate_labels": "candidate_labels ref_labels proxy_labels",
}
ROLES = {name: role for role, names in NAMES.items() for name in names.split()}
# Roles of one call, by the role that decides.
TOGETHER = {
    "pairs": ("pairs",),
    "scores": ("scores", "positive", "negative"),
    "two sides": ("query", "candidate", "labels", "candidate_labels"),
    "one set": ("embeddings", "labels"),
}
RESERVED = ("arguments", "metric", "unit", "views")
EXPECTED = "(pairs), (scores, positive, negative), (embeddings, labels), or (query, candidate)"
VIEWS = "if its two arguments are views of one set, give embeddings with labels and -p views=true"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ForeignLoss(Loss):
    r"""A third-party loss, weighed by :math:`\partial \sum \ell / \partial s` of its own code.

    Args:
        target: the callable; a module is copied for each call, since it may have a state.
        roles: parameter, by name or position, of each tensor.
        keywords: further arguments.
        options: the parameters that were given, by name.
        given_unit: natural size of one weight, or None.
        views: the two arguments are the views of a labelled set with two rows per group.
        reading: the scores that it reads, known when it is bound.
    """

    target: Any
    roles: dict[str, str]
    keywords: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    given_unit: float | None = None
    views: bool = False
    reading: intercept.Reading | None = None
    spelling: str | None = None
    metric: str = "cosine"
    couples: str = "batch"
    gradient: str = "autograd"
    sample: str = "pairs"
    reads: str = "embeddings"
    matching: str | None = None
    unit_from: str = "unknown"
    bound: bool = False
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"{self.name.rpartition('/')[-1]}({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"
        )

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that were given."""
        return dict(self.options)

    @property
    def reduction(self) -> str:
        """Reduction that the callable declares: `mean`, `sum`, or empty."""
        declared = getattr(self.target, "reduction", None)
        if not isinstance(self.target, torch.nn.Module) and "reduction" in parameters_of(self.target):
            declared = self.keywords.get("reduction", parameters_of(self.target)["reduction"].default)
        return declared if declared in ("mean", "sum") else ""

    def call(self, tensors: dict[str, Any], rows: Tensor) -> Tensor:
        """Call the code with one tensor per role, and return its loss, (Q,) or (), with a mean as a sum."""
        target, queries = self.target, len(rows)
        if isinstance(target, torch.nn.Module):
            target = copy.deepcopy(target).to(device=rows.device, dtype=rows.dtype)
        by_parameter = {parameter: tensors[role] for role, parameter in self.roles.items()}
        positional = [by_parameter[key] for key in sorted(key for key in by_parameter if key.isdigit())]
        keywords = {key: value for key, value in by_parameter.items() if not key.isdigit()} | self.keywords
        with user_code.reported(self.name), seeded(rows.device):
            try:
                value = target(*positional, **keywords)
            except Exception:
                views = [key for key in keywords if key in ("features", "feats") and keywords[key].ndim == 2]
                if not views:
                    raise
                value = target(*positional, **keywords | {views[0]: keywords[views[0]][:, None]})  # (Q, views, D)
        value = value.get("loss") if isinstance(value, dict) else value
        value = value[0] if isinstance(value, tuple | list) and value else value
        if not isinstance(value, Tensor) or tuple(value.shape) not in {(), (1,), (queries,)}:
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise InputError(f"{self.name}: returned {shape}, expected one loss per query, ({queries},), or one number")
        if not bool(value.isfinite().all()):
            raise InputError(f"{self.name}: returned NaN or infinity, expected finite numbers")
        value = value.reshape(()) if value.numel() == 1 else value
        return value * queries if self.reduction == "mean" and not value.ndim else value

    def rows(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Return queries and candidates; the same object in a labelled set.

        Raises:
            Unfit: the pairs do not fit its arguments.
        """
        embeddings = pairs.embeddings
        if embeddings is None:
            raise Unfit(f"{self.name}: it reads embeddings, and these pairs are scores alone")
        if self.views:
            sizes = embeddings.query_group.unique(return_counts=True)[1]
            if not embeddings.shared or not bool((sizes == 2).all()):
                raise Unfit(f"{self.name}: views=true, expected a labelled set with two rows per group")
        elif self.matching == "rows" and (embeddings.shared or not starts_with_matches(pairs)):
            raise Unfit(
                f"{self.name}: it receives no labels, so query i must match candidate i, and here it does not; draw "
                f"pairs of two sides (--sample pairs), or {VIEWS}"
            )
        if "embeddings" in self.roles and not embeddings.shared:
            raise Unfit(
                f"{self.name}: it reads one labelled set, and there are queries and candidates; give embeddings and "
                "labels, or a loss of (query, candidate)"
            )
        return embeddings.query, embeddings.query if embeddings.shared else embeddings.candidate

    def run(self, pairs: Pairs) -> intercept.Run:
        """Return the loss as a function of the rows of these pairs."""
        embeddings: Embeddings = pairs.embeddings
        labels, order = embeddings.query_group, embeddings.query_group.argsort(stable=True)
        if embeddings.proxies and "candidate_labels" not in self.roles:
            labels = (embeddings.candidate_group == labels[:, None]).to(torch.int8).argmax(dim=1)  # rows of the proxies

        def loss(query: Tensor, candidate: Tensor) -> Tensor:
            first, second = (query[order[0::2]], query[order[1::2]]) if self.views else (query, candidate)
            tensors = {"embeddings": query, "query": first, "candidate": second, "labels": labels.clone()}
            tensors |= {"candidate_labels": embeddings.candidate_group.clone(), "embeddings or query": first}
            labelled = embeddings.shared and not self.views
            tensors |= {"labels or candidate": tensors["labels" if labelled else "candidate"]}
            return self.call(tensors, query)

        return loss

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,); an equal part for each if it returns one number."""
        if self.reads == "scores":
            value = self.call(self.masks(pairs), pairs.scores)
        else:
            value = self.run(pairs)(*self.rows(pairs))
        return value if value.ndim else (value / len(pairs.scores)).expand(len(pairs.scores))

    def masks(self, pairs: Pairs) -> dict[str, Any]:
        """Return scores and masks; a loss without negatives receives no pairs that take no part.

        Raises:
            Unfit: the pairs do not fit its arguments.
        """
        tensors = {"pairs": pairs, "scores": pairs.scores, "positive": pairs.positive.clone()}
        if self.roles.keys() & {"pairs", "negative"}:
            return tensors | {"negative": pairs.negative.clone()}
        if "positive" not in self.roles and not (starts_with_matches(pairs) and len(set(pairs.scores.shape)) == 1):
            raise Unfit(
                f"{self.name}: it receives scores alone, so query i must match candidate i and no other, and here it "
                "does not; draw pairs of two sides (--sample pairs), or let it take (scores, positive)"
            )
        part = pairs.positive | pairs.negative
        number = part.sum(dim=1)
        if not bool((number == number[0]).all()):
            raise Unfit(
                f"{self.name}: it receives no negatives, and some pairs are neither positive nor negative; let it take "
                "(scores, positive, negative)"
            )
        if not bool(part.all()):  # such as a sample and itself
            columns = part.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, : int(number[0])]
            tensors |= {"scores": pairs.scores.gather(1, columns), "positive": pairs.positive.gather(1, columns)}
        return tensors

    def weighed(self, pairs: Pairs, reading: intercept.Reading) -> intercept.Weighed:
        """Return the weights of its rows and whether they depend on lengths."""
        with self.explained():
            return intercept.weigh(self.run(pairs), *self.rows(pairs), reading)

    def weight(self, pairs: Pairs) -> Tensor:
        """Return ∂ Σ loss / ∂ score, (Q, C); 0 outside of both masks.

        Raises:
            InputError: the weights do not explain the gradient of its rows.
        """
        if self.reads == "scores":
            scores = pairs.scores.detach().clone().requires_grad_()
            with torch.enable_grad(), self.explained():
                value = self.value(pairs.with_scores(scores)).sum()
                inputs = {"allow_unused": True, "materialize_grads": True}
                weights = torch.autograd.grad(value, scores, **inputs)[0] if value.requires_grad else 0 * scores
        elif self.reading is None:
            return self.bind(pairs).weight(pairs)
        else:
            weights = self.weighed(pairs, self.reading).weights.to(pairs.scores.dtype)
        if not bool(weights.isfinite().all()):
            raise InputError(f"{self.name}: its gradient is NaN or infinite")
        return torch.where(pairs.positive | pairs.negative, weights, 0)

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the given unit, or NaN."""
        return pairs.scores.new_tensor(math.nan if self.given_unit is None else self.given_unit)

    def bind(self, pairs: Pairs) -> Loss:
        """Return the built-in loss with the same weights, or the loss itself with the scores that it reads.

        Raises:
            InputError: it reads no scores of a metric, or its rows in other ways too.
        """
        if self.bound:
            return self
        if self.reads == "scores":
            return self.bind_scores(pairs)
        run, rows = self.run(pairs), self.rows(pairs)
        with self.explained():
            reading = intercept.find(run, *rows)
            weighed = [intercept.weigh(run, *intercept.probes(*rows, seed), reading) for seed in intercept.PROBE_SEEDS]
        weighed_batch = self.weighed(pairs, reading)
        metric = METRICS[reading.metric]
        probes = [pairs.with_scores(metric(*intercept.probes(*rows, seed))) for seed in intercept.PROBE_SEEDS]
        batch = pairs.with_scores(metric(*(side.detach().double() for side in rows)))
        notes = [f"its weights belong to {reading.metric.replace('_', ' ')} scores"]
        if weighed_batch.reads_lengths:
            notes.append("it also reads the lengths of its rows, and that part of its gradient is not weighed")
        if reading.symmetrised:
            notes.append("queries and candidates of some pairs cannot be told apart in it, so each has half the weight")
        loss = replace(self, reading=reading, metric=reading.metric, bound=True)
        recognised = recognise(
            [plain(probe, each.weights, each.value) for probe, each in zip(probes, weighed, strict=True)],
            plain(batch, weighed_batch.weights, weighed_batch.value),
            reading.metric,
            symmetric=reading.symmetrised,
        )
        return loss.as_recognised(recognised, notes)

    def bind_scores(self, pairs: Pairs) -> Loss:
        """Bind a loss of scores."""
        loss = replace(self, bound=True)
        probes, generator = [], torch.Generator().manual_seed(0)
        for _ in intercept.PROBE_SEEDS:
            scores = 2 * torch.rand(pairs.scores.shape, generator=generator, dtype=torch.float64) - 1
            probe = pairs.with_scores(scores.to(pairs.scores.device))
            weights = loss.weight(probe)
            if not bool(weights.any()):
                raise InputError(f"{self.name}: its result has no gradient; it is detached, or without PyTorch")
            probes.append(plain(probe, weights, loss.value(probe)))
        precise = pairs.with_scores(pairs.scores.detach().double())
        batch = plain(precise, loss.weight(precise), loss.value(precise))
        recognised = recognise(probes, batch, self.metric)
        return loss.as_recognised(recognised, [f"its weights belong to {self.metric.replace('_', ' ')} scores"])

    def as_recognised(self, recognised: Recognised | None, notes: list[str]) -> Loss:
        """Return the built-in loss under the name of this one, or this loss with its notes."""
        if self.given_unit is not None or recognised is None:
            notes += ["it returns a mean over the queries, counted as a sum"] if self.reduction == "mean" else []
            return replace(self, notes=(*notes, *([UNKNOWN_UNIT] if self.given_unit is None else [])))
        directions = ", in both directions, which are counted one by one" if recognised.both else ""
        notes.append(f"it is counted as {recognised.loss!r}, which has the same weights{directions}")
        loss = copy.copy(recognised.loss)
        shared = {"sample": self.sample, "matching": self.matching, "metric": self.metric}
        loss.set_attributes(spelling=self.name, unit_from=repr(recognised.loss), notes=tuple(notes), **shared)
        return loss

    @contextlib.contextmanager
    def explained(self) -> Generator[None]:
        """Prefix the message of an error by the name of the loss."""
        try:
            with user_code.reported(self.name):
                yield
        except InputError as error:
            message = str(error)
            raise type(error)(message if message.startswith(self.name) else f"{self.name}: {message}") from error


def starts_with_matches(pairs: Pairs) -> bool:
    """Return whether candidate i is a positive of query i."""
    queries, candidates = pairs.positive.shape
    return candidates >= queries and bool(pairs.positive[:, :queries].diagonal().all())


@contextlib.contextmanager
def seeded(device: torch.device) -> Generator[None]:
    """Seed the generators of Python, NumPy and PyTorch, so that a loss draws the same numbers in every call."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        torch.manual_seed(0)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


def literal(text: Any) -> Any:
    """Return a number, true, false, none or a JSON list from text, or the text."""
    words = {"true": True, "false": False, "none": None, "inf": math.inf, "nan": math.nan}
    if not isinstance(text, str) or text.strip().lower() in words:
        return words[text.strip().lower()] if isinstance(text, str) else text
    for read in (int, float, json.loads):
        with contextlib.suppress(ValueError):
            return read(text.strip())
    return text


def parameters_of(target: Any) -> dict[str, inspect.Parameter]:
    """Return the named parameters of a callable, of a module those of `forward`; none if Python does not know them."""
    try:
        signature = inspect.signature(target.forward if isinstance(target, torch.nn.Module) else target)
    except (TypeError, ValueError):
        return {}
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: parameter for name, parameter in signature.parameters.items() if parameter.kind not in kinds}


def takes_any(target: Any) -> bool:
    """Return whether a callable takes any keyword, or Python does not know its parameters."""
    try:
        signature = inspect.signature(target.forward if isinstance(target, torch.nn.Module) else target)
    except (TypeError, ValueError):
        return True
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values())


def call_of_instances(target: Any) -> Any:
    """Return the function that an instance of a class calls, or the target itself."""
    if not isinstance(target, type):
        return target
    return getattr(target, "forward", None) or inspect.getattr_static(target, "__call__", target)


def convert(name: str, value: Any, parameter: inspect.Parameter) -> Any:
    """Return a parameter in the type of its annotation or default.

    Raises:
        InputError: the text has another type.
    """
    annotated = {"float": float, "bool": bool, "str": str}.get(str(parameter.annotation), parameter.annotation)
    kind = annotated if annotated in (float, bool, str) else type(parameter.default)
    if kind is str:
        return value
    value = literal(value)
    if kind in (float, bool) and value is not None and not isinstance(value, int | float):
        raise InputError(f"parameter {name}: {value!r}, expected {'true or false' if kind is bool else 'a number'}")
    return kind(value) if kind in (float, bool) and value is not None else value


def find_roles(name: str, parameters: dict[str, inspect.Parameter], arguments: str | None) -> dict[str, str]:
    """Return the parameter, by name or position, that receives each tensor.

    Two required tensors of unknown names are queries and candidates; x and y may also be embeddings and labels, of a
    labelled set.

    Raises:
        InputError: the parameters do not say what they are.
    """
    if arguments is not None:
        chosen = [role.strip() for role in str(arguments).strip("()[] ").split(",")]
        for role in chosen:
            if role not in NAMES:
                raise InputError(nearest("argument of a loss", role, NAMES))
        return {role: str(position) for position, role in enumerate(chosen)}
    required = [key for key, parameter in parameters.items() if parameter.default is parameter.empty]
    optional = [key for key, parameter in parameters.items() if parameter.default is None]
    required_roles = {ROLES.get(key.lower()) for key in required}
    if "pairs" in required_roles or "scores" in required_roles:
        decisive = "pairs" if "pairs" in required_roles else "scores"
    elif required == ["x", "y"]:
        return {"embeddings or query": "x", "labels or candidate": "y"}
    elif len(required) == 2 and not required_roles & {"labels", "positive", "negative"}:
        return {"query": required[0], "candidate": required[1]}
    else:
        decisive = "two sides" if "candidate" in required_roles else "one set"
    roles: dict[str, str] = {}
    for key in (*required, *optional):
        role = ROLES.get(key.lower(), "")
        role = "query" if role == "embeddings" and decisive == "two sides" else role
        if role in TOGETHER[decisive] and role not in roles:
            roles[role] = key
        elif key in required:
            raise InputError(
                f"{name}: parameter {key!r} of ({', '.join(required)}), expected {EXPECTED}; list what they are in "
                f"their order, -p arguments=..., or give -p {key}=..."
            )
    if decisive in ("two sides", "one set") and len(roles) < 2:
        raise InputError(
            f"{name}: it takes ({', '.join(required)}), expected {EXPECTED}; list what they are, -p arguments=..."
        )
    return roles


def as_loss(target: Any, name: str, options: dict[str, Any]) -> Loss:
    """Return a callable, or a class that is built with the options, as a loss.

    Args:
        target: a function, class, module, or a loss.
        name: its spelling.
        options: keywords of the function, or of the constructor of a class and then of its call, as values or text;
            `metric` of a loss of scores, `unit` (natural size of one weight), `arguments` (the tensors that it
            receives, in order), and `views`.

    Raises:
        InputError: an unknown option, or a callable that cannot be a loss.
    """
    reserved = {key: literal(options[key]) for key in RESERVED if key in options}
    reserved = {
        key: value for key, value in reserved.items() if key not in (parameter_names(target) or set()) - {*RESERVED}
    }
    options = {key: value for key, value in options.items() if key not in reserved}
    metric, unit = reserved.get("metric"), reserved.get("unit")
    if metric is not None and metric not in METRICS:
        raise InputError(f"{name}: {nearest('metric', str(metric), METRICS)}")
    if unit is not None and (not isinstance(unit, int | float) or not 0 < unit < math.inf):
        raise InputError(f"{name}: unit {unit!r}, expected a number above 0, the natural size of one weight")
    rest = options
    if isinstance(target, type):
        fields = parameters_of(target)
        own = {key: convert(key, value, fields[key]) for key, value in options.items() if key in fields}
        rest = {key: value for key, value in options.items() if key not in fields}
        missing = [key for key, p in fields.items() if p.default is p.empty and key not in own]
        if missing:
            raise InputError(f"{name}: parameter {missing[0]!r} is missing, expected -p {missing[0]}=...")
        with user_code.reported(name):
            target = target(**own)
    if isinstance(target, Loss):
        target = copy.copy(target)
        target.set_attributes(spelling=name)
        return target
    if not callable(target):
        raise InputError(f"{name}: {type(target).__name__}, expected a function or a class")
    parameters = parameters_of(target)
    for key in rest:
        if key not in parameters and not takes_any(target):
            raise InputError(nearest(f"parameter of {name}", key, {*parameters, *RESERVED} - ROLES.keys()))
    keywords = {
        key: convert(key, value, parameters[key]) if key in parameters else literal(value)
        for key, value in rest.items()
    }
    arguments = reserved.get("arguments")
    arguments = ",".join(map(str, arguments)) if isinstance(arguments, tuple) else arguments
    roles = find_roles(name, {key: p for key, p in parameters.items() if key not in keywords}, arguments)
    of_scores, views = bool(roles.keys() & {"pairs", "scores"}), bool(reserved.get("views"))
    if metric is not None and not of_scores:
        raise InputError(f"{name}: metric {metric!r}, expected none for a loss of embeddings, which has its own scores")
    labelled = "labels" in roles or views
    matching: str | None = "labels" if labelled else "rows"
    if of_scores:
        matching = None if roles.keys() & {"pairs", "negative"} else "rows"
    elif "labels or candidate" in roles and not views:
        matching = None  # by rows, or by the labels of a labelled set
    return ForeignLoss(
        target=target,
        roles=roles,
        keywords=keywords,
        options={key: literal(value) for key, value in (options | reserved).items()},
        given_unit=unit,
        views=views,
        spelling=name,
        metric=str(metric or getattr(target, "metric", "cosine")),
        sample="groups" if labelled else "pairs",
        reads="scores" if of_scores else "embeddings",
        matching=matching,
        unit_from="unknown" if unit is None else "given",
    )


def parameter_names(target: Any) -> set[str] | None:
    """Return the names of the options of a callable, or None if any name may be one."""
    callables = [target, call_of_instances(target)]
    if any(map(takes_any, callables)):
        return None
    return {key for each in callables for key in parameters_of(each)} - {"self"} | {*RESERVED}


def canonical(name: str) -> str:
    """Return the spelling itself."""
    return name


def known(name: str) -> set[str] | None:
    """Return the names of the parameters, or None if any name may be one."""
    return parameter_names(user_code.load(name, "loss"))


def qualified(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters as they are."""
    return options


def load(name: str, options: dict[str, Any]) -> Loss:
    """Return the loss `package.module:attribute` or `file.py:attribute`."""
    return as_loss(user_code.load(name, "loss"), name, options)
