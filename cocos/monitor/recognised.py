"""Modules of known losses, read through their arguments with the closed form of their twin on the shelf."""

import copy
import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from cocos import losses
from cocos.embeddings import Embeddings
from cocos.embeddings.scores import Pairs
from cocos.embeddings.similarities import euclidean
from cocos.monitor.calls import Named, Seen, embeddings_of
from cocos.monitor.products import without_gradient

__all__ = ["Reading", "Recogniser", "inner", "recogniser"]

# What reads a call once it has returned: its directions, None where a number is not finite.
Reading = Callable[[], list[Seen] | None]
Recogniser = Callable[[tuple[Any, ...], dict[str, Any]], Reading | None]
# Largest deviation of a squared norm from 1 for a row to count as a unit vector, in half precision too.
UNIT_ROWS = 1e-2


def inner(module: nn.Module) -> nn.Module:
    """Unwrap a module that `torch.compile` wrapped; any other one stays as it is."""
    found = getattr(module, "_orig_mod", module)
    return found if isinstance(found, nn.Module) else module


def recogniser(module: nn.Module) -> Recogniser | None:
    """Make a function that reads a call by its arguments and its closed form; None for unknown modules.

    A call for which it returns None is one that only the backward pass tells.

    Args:
        module: a loss; its class, and not one that is derived from it, is recognised.
    """
    module = inner(module)
    cls = type(module)
    package = cls.__module__.partition(".")[0]
    known = READERS.get(f"{package}.{cls.__name__}")
    if package == "pytorch_metric_learning":
        found = losses.library_loss(module)
        known = partial(_of_pml, found) if found is not None else None
    if known is None:
        return None
    signature = inspect.signature(module.forward)

    def recognised(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Reading | None:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        return known(module, given.arguments)

    return recognised


def _finite(*values: Tensor) -> bool:
    return all(bool(torch.isfinite(each).all()) for each in values)


def _precise(values: Tensor) -> Tensor:
    return values.detach().to(torch.promote_types(values.dtype, torch.float32))


def _cross_entropy(module: Any, given: dict[str, Any]) -> Reading | None:
    """nn.CrossEntropyLoss of a matrix of logits and the column of each row's positive."""
    logits, target = given["input"], given["target"]
    plain = module.weight is None and module.label_smoothing == 0 and not target.is_floating_point()
    if not plain or logits.ndim != 2 or target.ndim != 1 or 0 in logits.shape:
        return None

    def read() -> list[Seen] | None:
        scores, columns = _precise(logits), torch.arange(logits.shape[1], device=logits.device)
        if not _finite(scores):
            return None
        some = target != module.ignore_index
        positive = (target[:, None] == columns) & some[:, None]
        pairs = Pairs(scores, positive, ~positive & some[:, None])
        seen = Named(losses.load("ntxent", {"temperature": 1})).of_pairs("q2c", pairs)
        return [replace(seen, scale=None)]

    return read


def _triplets(module: Any, given: dict[str, Any]) -> Reading | None:
    """nn.TripletMarginLoss: each anchor has one positive and one negative."""
    sides = [given[name] for name in ("anchor", "positive", "negative")]
    plain = module.p == 2 and not module.swap and len({each.shape for each in sides}) == 1
    if not plain or sides[0].ndim != 2 or 0 in sides[0].shape:
        return None

    def read() -> list[Seen] | None:
        query, candidate = _precise(sides[0]), torch.cat([_precise(each) for each in sides[1:]])
        if not _finite(query, candidate):
            return None
        positive = torch.eye(len(query), dtype=torch.bool, device=query.device)
        none = torch.zeros_like(positive)
        pairs = Pairs(euclidean(query, candidate), torch.cat([positive, none], 1), torch.cat([none, positive], 1))
        seen = Named(losses.load("triplet_euclidean", {"margin": module.margin})).of_pairs("q2c", pairs)
        return [replace(seen, query=query, candidate=candidate, width=query.shape[1], own_candidates=True)]

    return read


def _clip(module: Any, given: dict[str, Any]) -> Reading | None:
    """`open_clip.ClipLoss` of one process, of unit rows, without an added bias."""
    image, text, scale = (given[name] for name in ("image_features", "text_features", "logit_scale"))
    if module.world_size > 1 or given.get("logit_bias") is not None or image.shape != text.shape:
        return None

    def read() -> list[Seen] | None:
        query, candidate, factor = _precise(image), _precise(text), float(scale)
        if not (_finite(query, candidate) and 0 < factor < torch.inf):
            return None
        positive = torch.eye(len(query), dtype=torch.bool, device=query.device)
        pairs, reader = Pairs(query @ candidate.T, positive), Named(losses.load("ntxent", scale=factor))
        seen = reader.of_pairs("q2c", pairs)
        back = reader.of_pairs("c2q", pairs.with_scores(pairs.scores.T))  # the diagonal stays where it is
        unit = all(float((each.square().sum(dim=1) - 1).abs().amax()) < UNIT_ROWS for each in (query, candidate))
        names = {"rows": "queries", "columns": "candidates"}
        no_gradient = [names.get(without_gradient(*sides), "") for sides in ((image, text), (text, image))]
        rows: dict[str, Any] = {"width": query.shape[1], "scale": factor if unit else None, "stretch": 1.0}
        return [
            replace(seen, query=query, candidate=candidate, no_gradient=no_gradient[0], **rows),
            replace(back, query=candidate, candidate=query, no_gradient=no_gradient[1], **rows),
        ]

    return read


def _of_pml(twin: losses.Loss, module: Any, given: dict[str, Any]) -> Reading | None:
    """Read a loss of pytorch-metric-learning that has a twin on the shelf, of one labelled batch or of two."""
    normalised = twin.metric in {"chord", "squared_chord"}
    if normalised:
        twin = copy.copy(twin)
        twin.set_attributes(metric={"chord": "euclidean", "squared_chord": "squared_euclidean"}[twin.metric])
    query, labels = given.get("embeddings"), given.get("labels")
    other, others = given.get("ref_emb"), given.get("ref_labels")
    if given.get("indices_tuple") is not None or labels is None or (other is None) != (others is None):
        return None

    def rows(side: Any) -> Tensor:
        values = _precise(side)
        return nn.functional.normalize(values) if normalised else values

    def read() -> list[Seen] | None:
        groups = labels if other is None else (labels, others)
        embeddings: Embeddings | None = embeddings_of(rows(query), None if other is None else rows(other), groups)
        if embeddings is None:
            return None
        return Named(twin).seen(embeddings)[:1]  # the library counts one direction

    return read


READERS: dict[str, Callable[[Any, dict[str, Any]], Reading | None]] = {
    "torch.CrossEntropyLoss": _cross_entropy,
    "torch.TripletMarginLoss": _triplets,
    "open_clip.ClipLoss": _clip,
}
