"""The same queries in two results: the values of each, every query once, and what makes two results comparable."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from cocos.base.errors import InputError
from cocos.counting import statistics
from cocos.engine import retrieval

# Names of per-query values, and their long name and units, in the order in which they are told.
COMPARED = {
    **{f"R@{k}": (f"queries with a positive among the first {k}", "%") for k in retrieval.RECALLS},
    "MRR": ("reciprocal rank of the best positive", "%"),
    "contributing": ("contributing negatives", "candidates"),
    "idle": ("queries without any contributing negative", "%"),
    "relative": ("negatives with a part above eps of the query's own push", "candidates"),
    "effective": ("effective number of negatives, of queries with any push", "candidates"),
    "n90": ("negatives that hold 90 % of the push, of queries with any push", "candidates"),
    "hardest_share": ("part of the push on the heaviest negative, of queries with any push", "1"),
    "weight_above": ("summed share of the negatives above eps", "share"),
    "weight_positive": ("summed share of the positives", "share"),
}
# Statistics of the spread of the push, which a query without any push does not have.
OF_PUSHED = ("effective", "n90", "hardest_share")
# Settings of a count in which two results may differ, and the words for them.
COUNT_SETTINGS = {
    "loss_repr": "the loss",
    "convention": "the convention",
    "batch_size": "the batch size",
    "sample": "the way of drawing",
    "copies": "the copies of rows in a batch",
    "same_group": "the treatment of rows of one group",
    "seed": "the seed",
    "k": "the cut-offs",
    "folds": "the number of folds",
}
# How to get per-query values.
NONE_SAVED = "give results of cocos count --out or cocos evaluate --out, or the files of embeddings themselves"


@dataclass(frozen=True, eq=False)
class QueryTable:
    """Values of the queries of one direction, in ascending order of their rows.

    Args:
        row: (n,) row of the query in the embeddings.
        group: (n,) its group; None where the result has none.
        values: name -> (n,), NaN where a query has no value.
        draws: (m,) rows in the order in which batches drew them.
    """

    row: np.ndarray
    group: np.ndarray | None
    values: Mapping[str, np.ndarray]
    draws: np.ndarray

    def at(self, places: np.ndarray) -> "QueryTable":
        """Some of the queries."""
        group = None if self.group is None else self.group[places]
        return QueryTable(self.row[places], group, {key: each[places] for key, each in self.values.items()}, self.draws)


def tables(data: xr.Dataset, name: str) -> dict[str, QueryTable]:
    """The queries of each direction of a result that has any, a query that was drawn several times by its mean.

    Args:
        data: of `cocos.measures.count`, `evaluate` or `retrievals`.
        name: of the result, for the message.
    """
    if "loss" in data.dims:
        raise InputError(
            f"{name}: it is of {data.sizes['loss']} losses; give one, as cocos.several.each(data) has them"
        )
    per_query = {"contributing", "contributing_per_query", "best_rank"}
    if "query_index" not in data or not per_query & set(data.data_vars):
        title = data.attrs.get("title", "a Dataset")
        raise InputError(f"{name}: {title} has no values of single queries; {NONE_SAVED}")
    if "direction" not in data.dims:
        data = data.expand_dims(direction=[str(data.attrs.get("direction", "q2c"))])
    found = {str(side): _table(data.sel(direction=side)) for side in data["direction"].values}
    if "row" in data.dims:  # of a checkpoint of a run, whose ranks may be of another split
        same = int(data["rows"]) == int(data["evaluated"])
        for side in list(found):
            rank = data["best_rank"].sel(direction=side).values.astype(np.float64)
            ranks = QueryTable(np.arange(len(rank)), None, with_ranks({"best_rank": rank}), found[side].draws)
            found |= {side: joined(found[side], ranks)} if same else {f"{side}, evaluated": ranks}
    return found


def joined(counted: QueryTable, ranked: QueryTable) -> QueryTable:
    """The counts of some queries and the ranks of all."""
    values = dict(ranked.values)
    for name, each in counted.values.items():
        values[name] = np.full(len(ranked.row), np.nan)
        values[name][counted.row] = each
    group = ranked.group
    if group is None and counted.group is not None:
        group = -1 - np.arange(len(ranked.row))  # a row that was never drawn is a group of its own
        group[counted.row] = counted.group
    return QueryTable(ranked.row, group, values, counted.draws)


def _table(one: xr.Dataset) -> QueryTable:
    """The queries of one direction."""
    drawn = one["query_index"].values.ravel()
    there = np.isfinite(drawn)
    draws = drawn[there].astype(np.int64)
    row, place, number = np.unique(draws, return_inverse=True, return_counts=True)
    found = {key: np.bincount(place, each.ravel()[there], len(row)) / number for key, each in values_of(one).items()}
    group = None
    if "query_group" in one:
        group = np.zeros(len(row), dtype=np.int64)
        group[place] = one["query_group"].values.ravel()[there]
    return QueryTable(row, group, found, draws)


def values_of(one: xr.Dataset, more: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Values of `COMPARED` and `more` that the result of one direction has, and `best_rank`; of an idle spread, NaN.

    Args:
        one: a result, of one direction.
        more: names of values beside those of `COMPARED`.
    """
    shape = one["query_index"].dims
    found = {str(name).removesuffix("_per_query"): one[name] for name in one if one[name].dims == shape}
    found = {name: each.values.astype(np.float64) for name, each in found.items()}
    if "best_rank" in found:
        found = with_ranks(found)
    if "contributing" in found:
        found["idle"] = np.where(np.isfinite(found["contributing"]), 100.0 * (found["contributing"] == 0), np.nan)
        if np.isnan(found["contributing"]).all():  # of a loss of unknown unit
            found = {name: each for name, each in found.items() if name not in (*statistics.BY_SHARE, "idle")}
    for name in OF_PUSHED:
        if name in found:
            found[name] = np.where(found[name] > 0, found[name], np.nan)
    return {name: each for name, each in found.items() if name in {*COMPARED, *more, "best_rank"}}


def with_ranks(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Add the recall and the reciprocal rank of each query, in percent, to its `best_rank`, NaN for none."""
    rank = values["best_rank"]
    recalls = {f"R@{k}": np.where(np.isfinite(rank), 100.0 * (rank <= k), np.nan) for k in retrieval.RECALLS}
    return values | recalls | {"MRR": 100 / rank}


def matched(first: QueryTable, second: QueryTable) -> tuple[QueryTable, QueryTable]:
    """The queries that are in both, in the same order."""
    _, *places = np.intersect1d(first.row, second.row, assume_unique=True, return_indices=True)
    one, other = (table.at(place) for table, place in zip((first, second), places, strict=True))
    return one, other


def same_data(first: Mapping[str, QueryTable], second: Mapping[str, QueryTable], names: tuple[str, str]) -> list[str]:
    """Refuse results of different data, and return the directions that both have."""
    sides = [side for side in first if side in second]
    if not sides:
        raise InputError(
            f"{names[0]} has the directions {', '.join(first)} and {names[1]} has {', '.join(second)}: results of the "
            "same data share a direction"
        )
    for side in sides:
        one, other = matched(first[side], second[side])
        if not len(one.row):
            raise InputError(
                f"{side}: {names[0]} and {names[1]} have no query in common; compare results of the same data"
            )
        if one.group is not None and other.group is not None and not _alike(one.group, other.group):
            raise InputError(
                f"{side}: the queries of {names[0]} and {names[1]} belong to different groups, so they are not the "
                "same queries; compare results of the same data, rows in the same order"
            )
    return sides


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays of ids, (n,), group their rows alike."""
    both = len(np.unique(np.stack([one, other]), axis=1)[0])
    return both == len(np.unique(one)) == len(np.unique(other))


def _sizes(data: xr.Dataset) -> dict[str, int]:
    """Rows of each side of the embeddings, as far as the result says."""
    sides = json.loads(data.attrs.get("health", "{}")).get("sides", {})
    return {name: int(each["rows"]) for name, each in sides.items()}


def comparable(first: xr.Dataset, second: xr.Dataset, names: tuple[str, str]) -> list[str]:
    """Refuse results that measure different things, and return notes on settings that differ."""
    one, other = first.attrs, second.attrs
    if one.get("loss") != other.get("loss"):
        raise InputError(
            f"{names[0]} is of {one.get('loss', 'no loss')} and {names[1]} of {other.get('loss', 'no loss')}: a share "
            "means something else for each loss; count both under one loss (--loss)"
        )
    for key, words in (("eps", "eps"), ("share", "shares of a"), ("unit", "the unit"), ("metric", "the metric")):
        if one.get(key) != other.get(key):
            raise InputError(f"{names[0]} has {words} {one.get(key)} and {names[1]} has {words} {other.get(key)}: "
                             "count both alike")  # fmt: skip
    sizes = [_sizes(data) for data in (first, second)]
    if all(sizes) and sizes[0] != sizes[1]:
        said = [" and ".join(f"{number} {name} rows" for name, number in each.items()) for each in sizes]
        raise InputError(f"{names[0]} has {said[0]} and {names[1]} has {said[1]}: compare results of the same data")
    notes = list(_differing(one, other, names))
    same = one.get("checkpoint_sha256") and one["checkpoint_sha256"] == other.get("checkpoint_sha256")
    if same and not notes and one.get("split") == other.get("split"):
        raise InputError(
            f"{names[0]} and {names[1]} are of the same file (sha256 {one['checkpoint_sha256'][:12]}), measured alike: "
            "no query can differ; name two checkpoints"
        )
    return notes


def _differing(one: Mapping, other: Mapping, names: tuple[str, str]) -> Iterator[str]:
    """A note on each setting that differs."""
    for key, words in COUNT_SETTINGS.items():
        if key in one and key in other and one[key] != other[key]:
            yield f"{words} differs, {one[key]} in {names[0]} and {other[key]} in {names[1]}: part of a change is its"
