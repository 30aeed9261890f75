"""A user's callable as a loss: the names or the order of its parameters decide which tensors it receives.

A loss of embeddings is weighed by `intercept`. If `recognise` identifies it, the built-in loss is counted in its place.
"""

import contextlib
import copy
import inspect
import math
import random
from collections.abc import Generator
from dataclasses import dataclass, replace
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
from cocos.losses.parameters import literal
from cocos.losses.recognise import plain, recognise

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
    "candidate": ("query", "candidate", "labels", "candidate_labels"),
    "embeddings": ("embeddings", "labels"),
}
RESERVED = ("arguments", "metric", "unit", "views")
EXPECTED = "(pairs), (scores, positive, negative), (embeddings, labels), or (query, candidate)"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ForeignLoss(Loss):
    r"""A third-party loss, weighed by :math:`\partial \sum \ell / \partial s` of its own code.

    Args:
        target: the callable; a module is copied for each call, since it may have a state.
        roles: parameter of each tensor.
        keywords: further arguments.
        options: the parameters that were given, by name.
        given_unit: natural size of one weight, or None.
        views: the two arguments are the views of a labelled set with two rows per group.
        reading: the scores that it reads, known when it is bound.
    """

    target: Any
    roles: dict[str, str]
    keywords: dict[str, Any]
    options: dict[str, Any]
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
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{self.name.rpartition('/')[-1]}({options})"

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that were given."""
        return dict(self.options)

    def call(self, tensors: dict[str, Any], rows: Tensor) -> Tensor:
        """Call the code with one tensor per role, and return its loss, (Q,) or ()."""
        target, queries = self.target, len(rows)
        if isinstance(target, torch.nn.Module):
            target = copy.deepcopy(target).to(device=rows.device, dtype=rows.dtype)
        keywords = {parameter: tensors[role] for role, parameter in self.roles.items()} | self.keywords
        with user_code.reported(self.name), seeded(rows.device):
            try:
                value = target(**keywords)
            except Exception:
                views = [key for key in keywords if key in ("features", "feats") and keywords[key].ndim == 2]
                if not views:
                    raise
                value = target(**keywords | {views[0]: keywords[views[0]][:, None]})  # (Q, views, D)
        value = value.get("loss") if isinstance(value, dict) else value
        value = value[0] if isinstance(value, tuple | list) and value else value
        if not isinstance(value, Tensor) or tuple(value.shape) not in {(), (1,), (queries,)}:
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise InputError(f"{self.name}: returned {shape}, expected one loss per query, ({queries},), or one number")
        if not bool(value.isfinite().all()):
            raise InputError(f"{self.name}: returned NaN or infinity, expected finite numbers")
        return value.reshape(()) if value.numel() == 1 else value

    def rows(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Return queries and candidates; the same object in a labelled set.

        Raises:
            Unfit: the pairs do not fit its arguments.
        """
        embeddings, expected = pairs.embeddings, ""
        if embeddings is None:
            raise Unfit(f"{self.name}: scores alone, expected embeddings")
        if self.views:
            sizes = embeddings.query_group.unique(return_counts=True)[1]
            if not embeddings.shared or not bool((sizes == 2).all()):
                expected = "a labelled set with two rows per group (views=true)"
        elif self.matching == "rows" and (embeddings.shared or not starts_with_matches(pairs)):
            expected = (
                "pairs of two sides, in which query i matches candidate i (--sample pairs), since it receives no "
                "labels; or, for two views of one set, embeddings with labels and -p views=true"
            )
        elif "embeddings" in self.roles and not embeddings.shared:
            expected = "one labelled set, embeddings and labels"
        if expected:
            raise Unfit(f"{self.name}: these rows do not fit its arguments, expected {expected}")
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
            return self.call(tensors | {"candidate_labels": embeddings.candidate_group.clone()}, query)

        return loss

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,); an equal part for each if it returns one number."""
        if self.reads == "scores":
            value = self.call(self.masks(pairs), pairs.scores)
        else:
            value = self.run(pairs)(*self.rows(pairs))
        return value if value.ndim else (value / len(pairs.scores)).expand(len(pairs.scores))

    def masks(self, pairs: Pairs) -> dict[str, Any]:
        """Return scores and masks.

        Raises:
            Unfit: the pairs do not fit its arguments.
        """
        tensors = {"pairs": pairs, "scores": pairs.scores, "positive": pairs.positive.clone()}
        if self.roles.keys() & {"pairs", "negative"}:
            return tensors | {"negative": pairs.negative.clone()}
        if "positive" not in self.roles and not (starts_with_matches(pairs) and len(set(pairs.scores.shape)) == 1):
            raise Unfit(
                f"{self.name}: it receives scores alone, expected pairs in which query i matches candidate i and no "
                "other (--sample pairs), or a parameter positive"
            )
        if not bool((pairs.positive | pairs.negative).all()):  # such as a sample and itself
            raise Unfit(f"{self.name}: some pairs are neither positive nor negative, expected a parameter negative")
        return tensors

    def weight(self, pairs: Pairs) -> Tensor:
        """Return ∂ Σ loss / ∂ score, (Q, C); 0 outside of both masks.

        Raises:
            InputError: the weights do not explain the gradient of its rows.
        """
        if self.reads == "embeddings" and self.reading is None:
            return self.bind(pairs).weight(pairs)
        with self.explained():
            if self.reading is not None:
                weights = intercept.weigh(self.run(pairs), *self.rows(pairs), self.reading).weights
            else:
                scores = pairs.scores.detach().clone().requires_grad_()
                with torch.enable_grad():
                    value = self.value(pairs.with_scores(scores)).sum()
                inputs = {"allow_unused": True, "materialize_grads": True}
                weights = torch.autograd.grad(value, scores, **inputs)[0] if value.requires_grad else 0 * scores
        if not bool(weights.isfinite().all()):
            raise InputError(f"{self.name}: its gradient is NaN or infinite")
        return torch.where(pairs.positive | pairs.negative, weights.to(pairs.scores.dtype), 0)

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
        with self.explained():
            loss, samples, notes = (self.weigh_scores if self.reads == "scores" else self.weigh_rows)(pairs)
        symmetrised = loss.reading is not None and loss.reading.symmetrised
        recognised = recognise(samples[:-1], samples[-1], loss.metric, symmetric=symmetrised)
        notes.insert(0, f"its weights belong to {loss.metric.replace('_', ' ')} scores")
        if recognised is None or self.given_unit is not None:
            return replace(loss, notes=(*notes, *([UNKNOWN_UNIT] if self.given_unit is None else [])))
        directions = ", in both directions, which are counted one by one" if recognised.both_directions else ""
        notes.append(f"it is counted as {recognised.loss!r}, which has the same weights{directions}")
        built_in, shared = copy.copy(recognised.loss), {"sample": self.sample, "matching": self.matching}
        built_in.set_attributes(
            spelling=self.name, unit_from=repr(recognised.loss), notes=tuple(notes), metric=loss.metric, **shared
        )
        return built_in

    def weigh_scores(self, pairs: Pairs) -> "tuple[ForeignLoss, list[Any], list[str]]":
        """Return the bound loss of scores, its weights at random scores and then of the batch, and notes."""
        loss, generator = replace(self, bound=True), torch.Generator().manual_seed(0)
        shape, device = pairs.scores.shape, pairs.scores.device
        scores = [2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1 for _ in intercept.PROBE_SEEDS]
        samples = []
        for matrix in (*scores, pairs.scores.detach().double()):
            sample = pairs.with_scores(matrix.to(device))
            samples.append(plain(sample, loss.weight(sample), loss.value(sample)))
        if not bool(samples[0].weights.any()):
            raise InputError("its result has no gradient; it is detached, or without PyTorch")
        return loss, samples, []

    def weigh_rows(self, pairs: Pairs) -> "tuple[ForeignLoss, list[Any], list[str]]":
        """Return the bound loss of rows, its weights on random rows and then of the batch, and notes."""
        run, rows = self.run(pairs), self.rows(pairs)
        reading = intercept.find(run, *rows)
        samples, reads_lengths = [], False
        for sides in (*(intercept.probes(*rows, seed) for seed in intercept.PROBE_SEEDS), rows):
            weighed = intercept.weigh(run, *sides, reading)
            scores = METRICS[reading.metric](*(side.detach().double() for side in sides))
            samples.append(plain(pairs.with_scores(scores), weighed.weights, weighed.value))
            reads_lengths = weighed.reads_lengths
        notes = ["its gradient also changes the lengths of its rows, which is not weighed"] if reads_lengths else []
        if reading.symmetrised:
            notes.append("queries and candidates of some pairs cannot be told apart in it, so each has half the weight")
        return replace(self, reading=reading, metric=reading.metric, bound=True), samples, notes

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
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        torch.manual_seed(0)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


def signature_of(target: Any) -> list[inspect.Parameter]:
    """Return the parameters of a callable or of a module's `forward`; **kwargs if Python has no signature."""
    try:
        signature = inspect.signature(target.forward if isinstance(target, torch.nn.Module) else target)
    except (TypeError, ValueError):
        return [inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)]
    return list(signature.parameters.values())


def parameters_of(target: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters of a callable by name, without *args and **kwargs."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {parameter.name: parameter for parameter in signature_of(target) if parameter.kind not in kinds}


def takes_any(target: Any) -> bool:
    """Return whether a callable takes any keyword."""
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature_of(target))


def convert(value: Any, parameter: inspect.Parameter | None) -> Any:
    """Return a value from text, or the text for a parameter with a text as default, such as `reduction="none"`."""
    return value if parameter is not None and isinstance(parameter.default, str) else literal(value)


def find_roles(name: str, parameters: dict[str, inspect.Parameter], arguments: Any) -> dict[str, str]:
    """Return the parameter that receives each tensor.

    Two required tensors of unknown names are queries and candidates.

    Raises:
        InputError: the parameters do not say what they are.
    """
    if arguments is not None:
        roles = [role.strip() for role in str(arguments).strip("()[] ").split(",")]
        for role in roles:
            if role not in NAMES:
                raise InputError(nearest("argument of a loss", role, NAMES))
        return dict(zip(roles, parameters, strict=False))
    required = [key for key, parameter in parameters.items() if parameter.default is parameter.empty]
    optional = [key for key, parameter in parameters.items() if parameter.default is None]
    required_roles = [ROLES.get(key.lower()) for key in required]
    decisive = next((role for role in TOGETHER if role in required_roles), "")
    masks = {"pairs", "scores", "positive", "negative", "labels"} & {*required_roles}
    if len(required) == 2 and not masks:
        return {"query": required[0], "candidate": required[1]}
    roles_by_name: dict[str, str] = {}
    for key in (*required, *optional):
        role = ROLES.get(key.lower(), "")
        role = "query" if role == "embeddings" and decisive == "candidate" else role
        if role in TOGETHER.get(decisive, ()) and role not in roles_by_name:
            roles_by_name[role] = key
        elif key in required:
            break
    else:
        if len(roles_by_name) > 1 or decisive in ("pairs", "scores"):
            return roles_by_name
    raise InputError(
        f"{name}: parameters ({', '.join(required)}), expected {EXPECTED}; list their tensors in order, "
        "-p arguments=query,candidate, or give other parameters as -p NAME=VALUE"
    )


def as_loss(target: Any, name: str, options: dict[str, Any]) -> Loss:
    """Return a callable, or a class that is built with the options, as a loss.

    Args:
        target: a function, class, module, or a loss.
        name: its spelling.
        options: keywords of the constructor of a class and of the call, as values or text; and, unless it has
            parameters of these names, `metric` of a loss of scores, `unit` (natural size of one weight), `arguments`
            (the tensors that it receives, in order), and `views`.

    Raises:
        InputError: an unknown option, or a callable that cannot be a loss.
    """
    keywords, arguments = dict(options), dict[str, Any]()
    if isinstance(target, type):
        fields = parameters_of(target)
        arguments = {key: convert(keywords.pop(key), fields[key]) for key in fields if key in keywords}
        missing = [key for key, field in fields.items() if field.default is field.empty and key not in arguments]
        if missing:
            raise InputError(f"{name}: parameter {missing[0]!r} is missing, expected -p {missing[0]}=...")
        with user_code.reported(name):
            target = target(**arguments)
    if isinstance(target, Loss):
        target = copy.copy(target)
        target.set_attributes(spelling=name)
        return target
    if not callable(target):
        raise InputError(f"{name}: {type(target).__name__}, expected a function or a class")
    parameters = parameters_of(target)
    reserved = {key: literal(keywords.pop(key)) for key in RESERVED if key in keywords and key not in parameters}
    for key in keywords:
        if key not in parameters and not takes_any(target):
            raise InputError(nearest(f"parameter of {name}", key, {*parameters, *RESERVED} - ROLES.keys()))
    keywords = {key: convert(value, parameters.get(key)) for key, value in keywords.items()}
    metric, unit, views = reserved.get("metric"), reserved.get("unit"), bool(reserved.get("views"))
    if unit is not None and (not isinstance(unit, int | float) or not 0 < unit < math.inf):
        raise InputError(f"{name}: unit {unit!r}, expected a number above 0, the natural size of one weight")
    free = {key: parameter for key, parameter in parameters.items() if key not in keywords}
    roles = find_roles(name, free, reserved.get("arguments"))
    reads_scores = bool(roles.keys() & {"pairs", "scores"})
    if metric is not None and (metric not in METRICS or not reads_scores):
        expected = nearest("metric", str(metric), METRICS) if reads_scores else "expected none for a loss of embeddings"
        raise InputError(f"{name}: metric {metric!r}, {expected}")
    labelled = "labels" in roles or views
    return ForeignLoss(
        target=target,
        roles=roles,
        keywords=keywords,
        options=arguments | keywords | reserved,
        given_unit=unit,
        views=views,
        spelling=name,
        metric=str(metric or getattr(target, "metric", "cosine")),
        sample="groups" if labelled else "pairs",
        reads="scores" if reads_scores else "embeddings",
        matching="labels" if labelled else None if roles.keys() & {"pairs", "negative"} else "rows",
        unit_from="unknown" if unit is None else "given",
    )
