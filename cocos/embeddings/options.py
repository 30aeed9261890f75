"""The options that measures share: their names, types, defaults and meanings, stated once."""

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from inspect import Parameter
from numbers import Real
from typing import TypedDict, TypeVar

import numpy as np

from cocos.base import ranges
from cocos.base.errors import InputError, nearest
from cocos.embeddings import scores
from cocos.embeddings.sampling import Batch, check_options

T = TypeVar("T")
# Called with the name of a part of the work; gives a function of (done, in all).
Progress = Callable[[str], Callable[[int, int], None]]
# Dtypes of the scores of a measure.
SCORE_DTYPES = ("float32", "float64")
# Progress steps of each of several equal parts of the work.
PROGRESS_STEPS = 1000


class Sampling(TypedDict, total=False):
    """Which training batches are drawn, from which embeddings, and how their scores are computed.

    Args:
        batches: number of batches (None: one pass over the training set), or the batches themselves.
        batch_size: pairs, queries or samples in a batch (see `cocos.sampling.plan`); `all` for the whole set.
        sample: draw `pairs`, or queries with their `groups`; None: as the loss is trained.
        per_group: candidates of a query, or samples of a class, in a batch of groups.
        copies: a row that several pairs of a batch have, like an image with two of its captions, is one candidate
            (`once`), or one for each of its pairs, as many loaders have it (`keep`); None: `once`, unless `same_group`
            is `negative` or the convention is `ecir2022`.
        same_group: other rows of a query's group in a batch of pairs: `ignore` them, or count them as `negative`;
            None, in `count`: as the convention.
        seed: seed for drawing batches.
        dtype: dtype of the scores, `float32` or `float64`. None: float32 for losses with a reader
            (`cocos.engine.readers`), whose counts float64 decides or counts as `uncertain`, and float64 for the others.
        split: split of the checkpoint's data to encode.
        device: `auto`, `cpu` or `cuda`; None: where the embeddings are.
        progress: called with the name of each part of the work; gives a function of (done, in all).
    """

    batches: int | Sequence[Batch] | None
    batch_size: int | str
    sample: str | None
    per_group: int | None
    copies: str | None
    same_group: str | None
    seed: int
    dtype: str | None
    split: str
    device: str | None
    progress: Progress | None


class Queries(TypedDict, total=False):
    """Which queries of which embeddings are compared with all candidates.

    Args:
        queries: number of queries sampled in each direction; None: all.
        seed: seed for sampling queries. The rest is as in `Sampling`.
    """

    queries: int | None
    seed: int
    split: str
    device: str | None
    progress: Progress | None


DEFAULTS: Sampling = {
    "batches": None,
    "batch_size": 128,
    "sample": None,
    "per_group": None,
    "copies": None,
    "same_group": "ignore",
    "seed": 0,
    "dtype": "float64",
    "split": "train",
    "device": None,
    "progress": None,
}


def sampled(bundle: type = Sampling, *, without: Sequence[str] = (), **defaults) -> Callable:
    """Decorate a measure with `**sampling`: check the names of its options and fill in their defaults.

    The signature lists the options, for the command line and `help`.

    Args:
        bundle: `Sampling` or `Queries`.
        without: options that the measure does not take.
        defaults: defaults of this measure that differ from `DEFAULTS`.
    """
    values = {"queries": None} | DEFAULTS | defaults
    options = {name: values[name] for name in bundle.__annotations__ if name not in without}
    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=value, annotation=bundle.__annotations__[name])
        for name, value in options.items()
    ]

    def decorate(measure: Callable) -> Callable:
        signature = inspect.signature(measure)
        named = [each for each in signature.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        whole = signature.replace(parameters=[*named, *parameters])

        @functools.wraps(measure)
        def call(*args, **keywords):
            for name in keywords:
                if name not in whole.parameters:
                    raise InputError(nearest(f"option of {measure.__name__}", name, whole.parameters))
            ranges.check(signature, {**dict(zip(signature.parameters, args, strict=False)), **keywords})
            return measure(*args, **options | keywords)

        call.__signature__ = whole  # type: ignore[attr-defined]
        return call

    return decorate


def ladder(name: str, values: Sequence[float], *, zero: bool) -> np.ndarray:
    """Ascending values of an option, (J,) float64, from 0 on or above it."""
    grid = np.asarray(values, dtype=np.float64)
    right = grid.ndim == 1 and len(grid) and (grid[0] >= 0 if zero else grid[0] > 0) and np.isfinite(grid[-1])
    if not right or not (np.diff(grid) > 0).all():
        bound = "of at least" if zero else "above"
        raise InputError(f"{name}: {grid.tolist()}, expected finite numbers {bound} 0 in ascending order")
    return grid


def within(report: Callable[[int, int], None] | None, done: int, number: int) -> Callable[[int, int], None] | None:
    """Return the progress within one of a number of equal parts of the work, after `done` of them."""
    if report is None or number == 1:
        return report
    parts = PROGRESS_STEPS * number
    return lambda now, every: report(PROGRESS_STEPS * done + PROGRESS_STEPS * now // max(every, 1), parts)


def tracked(items: Sequence[T], progress: Progress | None, name: str) -> Iterator[T]:
    """Yield the items of a part of the work, and report after each how many of them are done."""
    report = progress and progress(name)
    for done, each in enumerate(items, start=1):
        yield each
        if report:
            report(done, len(items))


def refuse_options(options: Sampling, eps: float | None, drawn: bool) -> None:
    """Refuse options that cannot be used, before anything is encoded; `drawn` where the batches are not given."""
    dtype, same_group = options["dtype"], options["same_group"]
    if eps is not None and not (isinstance(eps, Real) and 0 <= eps < math.inf):
        raise InputError(f"eps: {eps}, expected a share: finite and at least 0")
    if dtype is not None and dtype not in SCORE_DTYPES:
        raise InputError(f"dtype: {dtype!r}, expected one of {', '.join(SCORE_DTYPES)}")
    if same_group not in scores.SAME_GROUP:
        raise InputError(f"same group: {same_group!r}, expected one of {', '.join(scores.SAME_GROUP)}")
    number = options["batches"] if drawn else None
    sizes = options["batch_size"], number, options["per_group"], options["seed"]
    check_options(options["sample"], *sizes, options["copies"])


def copies(options: Sampling) -> str:
    """Rule for copies in batches of pairs: as asked for, or `keep` where rows of a group are negatives."""
    return options["copies"] or ("keep" if options["same_group"] == "negative" else "once")
