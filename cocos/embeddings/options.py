"""The options that measures share: their names, types, defaults and meanings, stated once."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypedDict, TypeVar, get_args

import numpy as np

from cocos.base.errors import InputError, nearest
from cocos.embeddings.sampling import Batch

T = TypeVar("T")
# Called with the name of a part of the work; gives a function of (done, in all).
Progress = Callable[[str], Callable[[int, int], None]]
# Progress steps of each of several equal parts of the work.
PROGRESS_STEPS = 1000


class SourceOptions(TypedDict, total=False):
    """Which embeddings a measure reads, and where.

    Args:
        seed: seed for drawing batches or queries.
        split: split of the checkpoint's data to encode.
        device: `auto`, `cpu` or `cuda`; None: the device of the embeddings.
        progress: called with the name of each part of the work; returns a function of (done, in all).
    """

    seed: int
    split: str
    device: str | None
    progress: Progress | None


class Queries(SourceOptions, total=False):
    """Which queries are compared with all candidates.

    Args:
        queries: number of queries sampled in each direction; None: all.
    """

    queries: int | None


class OneBatch(SourceOptions, total=False):
    """How a training batch is drawn, and how its scores are computed.

    Args:
        batch_size: pairs, queries or samples in a batch (see `cocos.sampling.plan`); `all` for the whole set.
        sample: draw `pairs`, or queries with their `groups`; None: as the loss is trained.
        per_group: candidates of a query, or samples of a class, in a batch of groups.
        copies: a row in several pairs of a batch, such as an image with two of its captions, is one candidate
            (`once`), or one for each of its pairs, as in many loaders (`keep`); None: `once`, unless `same_group` is
            `negative` or the convention is `ecir2022`.
        same_group: other rows of a query's group in a batch of pairs: `ignore` them, or count them as `negative`;
            None, in `count`: as the convention.
        dtype: dtype of the scores, `float32` or `float64`. None: float32 for losses with a reader
            (`cocos.engine.readers`), whose counts float64 decides or counts as `uncertain`, and float64 for the others.
    """

    batch_size: int | str
    sample: str | None
    per_group: int | None
    copies: str | None
    same_group: str | None
    dtype: str | None


class Sampling(OneBatch, total=False):
    """Which training batches are drawn, and how their scores are computed.

    Args:
        batches: number of batches (None: one pass over the training set), or the batches themselves.
    """

    batches: int | Sequence[Batch] | None


SOURCE_DEFAULTS: SourceOptions = {"seed": 0, "split": "train", "device": None, "progress": None}
QUERY_DEFAULTS: Queries = {"queries": None, **SOURCE_DEFAULTS}
ONE_BATCH_DEFAULTS: OneBatch = {
    "batch_size": 128,
    "sample": None,
    "per_group": None,
    "copies": None,
    "same_group": "ignore",
    "dtype": "float64",
    **SOURCE_DEFAULTS,
}
DEFAULTS: Sampling = {"batches": None, **ONE_BATCH_DEFAULTS}


def fill_options(measure: str, options: Any, defaults: Any) -> Any:
    """Return the options of a measure with the missing ones set to their defaults; reject unknown names."""
    for name in options:
        if name not in defaults:
            raise InputError(nearest(f"option of {measure}", name, defaults))
    return {**defaults, **options}


def option_names(measure: Callable) -> list[str]:
    """Return the names of all arguments of a measure, with the keys of its `**options: Unpack[...]`."""
    names = []
    for name, parameter in inspect.signature(measure).parameters.items():
        is_bundle = parameter.kind is inspect.Parameter.VAR_KEYWORD
        names += get_args(parameter.annotation)[0].__annotations__ if is_bundle else [name]
    return names


def ladder(name: str, values: Sequence[float], *, zero: bool) -> np.ndarray:
    """Check ascending values of an option, (J,) float64, from 0 on or above it."""
    grid = np.asarray(values, dtype=np.float64)
    valid = grid.ndim == 1 and len(grid) and (grid[0] >= 0 if zero else grid[0] > 0) and np.isfinite(grid[-1])
    if not valid or not (np.diff(grid) > 0).all():
        bound = "of at least" if zero else "above"
        raise InputError(f"{name}: {grid.tolist()}, expected finite numbers {bound} 0 in ascending order")
    return grid


def within(report: Callable[[int, int], None] | None, done: int, number: int) -> Callable[[int, int], None] | None:
    """Return the progress within one of a number of equal parts of the work, after `done` of them."""
    if report is None or number == 1:
        return report
    parts = PROGRESS_STEPS * number
    return lambda now, total: report(PROGRESS_STEPS * done + PROGRESS_STEPS * now // max(total, 1), parts)


def tracked(items: Sequence[T], progress: Progress | None, name: str) -> Iterator[T]:
    """Yield the items of a part of the work, and report after each how many of them are done."""
    report = progress and progress(name)
    for done, item in enumerate(items, start=1):
        yield item
        if report:
            report(done, len(items))


def copies(options: Sampling) -> str:
    """Return the rule for copies in batches of pairs: by default `keep` if rows of a group are negatives."""
    return options["copies"] or ("keep" if options["same_group"] == "negative" else "once")
