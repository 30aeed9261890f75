"""Which queries changed from one result to another?"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Unpack

import numpy as np
import torch
import xarray as xr

from cocos import engine, losses, results
from cocos.base.errors import InputError, nearest
from cocos.base.ranges import Level, checked, whole
from cocos.checkpoints import Checkpoint
from cocos.counting import findings, statistics
from cocos.counting.comparisons import DIFFERENCE_LABELS, adjusted, differences
from cocos.counting.findings import Finding
from cocos.data.training_set import Items, annotated_rows
from cocos.embeddings import Embeddings
from cocos.embeddings.options import ONE_BATCH_DEFAULTS, OneBatch, Sampling, fill_options
from cocos.embeddings.scores import Scores
from cocos.engine import readers
from cocos.measures.count import count
from cocos.measures.evaluate import evaluate
from cocos.measures.shared import retrieval
from cocos.measures.shared.prepared import embedded, loss_for

# Statistics of the spread of the push, which a query without any push does not have.
OF_PUSHED = statistics.names("pushed")
# Metrics of rankings that are judged, of `cocos.measures.shared.rankings`.
JUDGED = (*(f"{kind}@{k}" for kind in ("nDCG", "recall") for k in retrieval.RECALLS), "MAP")
# Values of queries: long name and units, in the order in which they are listed.
COMPARED = {
    **{f"R@{k}": (f"queries with a positive among the first {k}", "%") for k in retrieval.RECALLS},
    "MRR": ("reciprocal rank of the best positive", "%"),
    **{name: retrieval.label(name) for name in JUDGED},
    "contributing": statistics.BY_NAME["contributing"].about,
    "idle": (statistics.BATCH_NUMBERS["idle"].label, "%"),
    **{
        each.name: (each.label + (", of queries with any push" if each.name in OF_PUSHED else ""), each.units)
        for each in statistics.STATISTICS
        if each.compared
    },
}
# Values by which the queries that changed most are chosen, the first that both results have.
CHANGE_BY = ("MRR", "contributing", "relative")
# Of every direction and value, and of every version where there is one: long name and units.
PAIRED_LABELS = {
    "difference": ("mean change from A to B", ""),
    **DIFFERENCE_LABELS,
    "increased": ("queries that increase", "queries"),
    "decreased": ("queries that decrease", "queries"),
    "mean": ("mean over paired queries", ""),
}
# Options of a result that its comparison keeps where both agree.
OPTIONS = ("eps", "batches", "batch_size", "sample", "copies", "same_group", "seed", "dtype", "device", "split")
# Settings in which two results may differ, and the words for them.
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
# Settings in which two results may not differ.
SAME_SETTINGS = {"eps": "eps", "share": "shares of a", "unit": "the unit", "metric": "the metric"}
# Characters of a name in a result.
ROW_NAME_CHARACTERS = 200


@checked
def diff(
    first: xr.Dataset | Embeddings | Scores | Checkpoint,
    second: xr.Dataset | Embeddings | Scores | Checkpoint,
    loss=None,
    eps: float = 0.01,
    *,
    names: Sequence[str] = ("A", "B"),
    by: str | None = None,
    changed: Annotated[int, whole(0, 1000)] = 5,
    level: Level = 0.95,
    **sampling: Unpack[OneBatch],
) -> xr.Dataset:
    """Compare two results, or the embeddings of two models for the same data, query by query.

    Each value of a query (COCOS, effective number, rank of the best positive, ...) is paired with that of the same
    query in the other result. The interval of the mean difference is Student's t, for which queries of one group may
    depend on each other (`cocos.statistics.paired`); p-values are adjusted for the number of tests by Holm's method.

    Args:
        first: result of `count`, `evaluate` or `retrievals`; or embeddings or a checkpoint, which are
            counted and ranked here; or scores, which are ranked, or counted where a loss is named.
        second: another result of the same kind, of the same data.
        loss: of embeddings: a loss or its name, or a pair with one for each; None: as a checkpoint says, or ntxent.
        eps: of embeddings: smallest share that contributes.
        names: of the two.
        by: value by which the queries that changed most are chosen. None: MRR, or contributing. The former is the
            reciprocal rank of the best positive; where ranks are not known, it is the contributing negatives, or
            `relative` where their unit is not.
        changed: number of the queries that changed most to list, of each direction.
        level: of the confidence intervals.
        **sampling: of embeddings: options of the batches, see `Sampling`.

    Returns:
        A Dataset with dims direction, metric, version (the two names), query. `mean`, `difference`, `low`, `high`, `p`,
        `p_holm`; `pairs` and `groups`, the numbers behind them; `increased` and `decreased`, numbers of queries;
        `value`, those of the queries. Of the queries that changed most, (direction, changed): `changed_index`, their
        row, and `changed_value`. For embeddings also `best_rank`. NaN, -1 and empty names stand where there is none.

    Examples:
        >>> generator = torch.Generator().manual_seed(0)
        >>> rows = torch.randn(40, 8, generator=generator)
        >>> before = cocos.Embeddings(rows, rows + 0.1 * torch.randn(40, 8, generator=generator))
        >>> after = cocos.Embeddings(rows, rows + 2.0 * torch.randn(40, 8, generator=generator))
        >>> data = cocos.measures.diff(before, after, batch_size="all")
        >>> bool(data["high"].sel(direction="q2c", metric="R@1") < 0)
        True
    """
    sampling = fill_options("diff", sampling, ONE_BATCH_DEFAULTS | {"dtype": None, "same_group": None})
    if len(names) != 2 or names[0] == names[1]:
        raise InputError(f"names: {list(names)}, expected two different ones")
    names = str(names[0]), str(names[1])
    for source, name in zip((first, second), names, strict=True):
        if isinstance(source, dict):
            raise InputError(f"{name}: results of {len(source)} losses, expected one: {', '.join(source)}")
    first, second = _ranked_alike(first, second, loss, eps, names, sampling)
    opened = [isinstance(each, xr.Dataset) for each in (first, second)]
    if any(opened) and not all(opened):
        raise InputError(f"{names[opened.index(False)]}: no result, and {names[opened.index(True)]} is one; give two")
    known = None if all(opened) else CountedAlike.of((first, second), loss, eps, names, sampling)
    pair: tuple[xr.Dataset, xr.Dataset] = known.counts if known else (first, second)  # type: ignore[assignment]
    attrs = {key: value for key, value in pair[1].attrs.items() if pair[0].attrs.get(key) == value}
    kept = (*OPTIONS, "metric", "loss", "loss_repr", "share", "gradient", "unit", "checkpoint_dims")
    attrs = {key: attrs[key] for key in kept if key in attrs} | results.versions() | {"level": level}
    for data, name in zip(pair, names, strict=True):
        if data.attrs.get("measure") in {"run", "monitor"}:
            raise InputError(f"{name} is a run: compare two of its checkpoints, or draw runs with cocos run A B --out")
    both = [] if known else [query_tables(each, name) for each, name in zip(pair, names, strict=True)]
    notes = [
        replace(each, sentence=f"{name}: {each.sentence}")
        for data, name in zip(pair, names, strict=True)
        for each in findings.stored(data.attrs)
        if each.kind == "collapsed"
    ]
    notes += _comparable(*pair, names)
    both = [known.tables(k) for k in range(2)] if known else both
    matched, unmatched = _matched(both[0], both[1], names)
    variables, more = _of_queries(matched, level)
    by = _value_of_change(by, variables["metric"][1])
    variables |= _changed(matched, by, changed)
    if known and (items := next(filter(None, known.items), None)):
        rows = variables["changed_index"][1]
        said = [_names_of_rows(items.texts(side)[0], own) for side, own in zip(matched, rows, strict=True)]
        variables["changed_name"] = (("direction", "changed"), np.stack(said).astype(str), "name of the query")
    attrs |= {"title": "Difference query by query", "by": by}
    notes += unmatched
    variables["version"] = ("version", list(names))
    return results.labelled(variables, attrs | findings.attributes([*notes, *more]), measure="diff")


def _value_of_change(by: str | None, known: Sequence[str]) -> str:
    """Choose the value by which change is measured."""
    if not known:
        raise InputError("the two have no value of queries in common: give two results of the same command")
    if by is not None and by not in known:
        raise InputError(nearest("value to compare by", by, known))
    return by or next(name for name in (*CHANGE_BY, *known) if name in known)


def _comparable(first: xr.Dataset, second: xr.Dataset, names: tuple[str, str]) -> list[Finding]:
    """Refuse results that measure different things, and find settings that differ."""
    one, other = first.attrs, second.attrs
    if one.get("loss") != other.get("loss"):
        raise InputError(
            f"{names[0]} is of {one.get('loss', 'no loss')} and {names[1]} of {other.get('loss', 'no loss')}: a share "
            "means something else for each loss; count both under one loss (--loss)"
        )
    for key, words in SAME_SETTINGS.items():
        if one.get(key) != other.get(key):
            raise InputError(
                f"{names[0]} has {words} {one.get(key)} and {names[1]} has {words} {other.get(key)}: count both alike"
            )
    sizes = [json.loads(each.get("health", "{}")).get("sides", {}) for each in (one, other)]
    said = [" and ".join(f"{int(each['rows'])} {name} rows" for name, each in sides.items()) for sides in sizes]
    if all(sizes) and said[0] != said[1]:
        raise InputError(f"{names[0]} has {said[0]} and {names[1]} has {said[1]}: compare results of the same data")
    notes = [
        Finding(
            "differs",
            "note",
            f"{words} differs: {one[key]} in {names[0]}, {other[key]} in {names[1]}, which explains part of a change",
        )
        for key, words in COUNT_SETTINGS.items()
        if key in one and key in other and one[key] != other[key]
    ]
    same = one.get("checkpoint_sha256") and one["checkpoint_sha256"] == other.get("checkpoint_sha256")
    if same and not notes and all(one.get(key) == other.get(key) for key in ("split", "checkpoint_dims")):
        raise InputError(
            f"{names[0]} and {names[1]} are of the same file (sha256 {one['checkpoint_sha256'][:12]}), measured alike: "
            "no query can differ; name two checkpoints"
        )
    return notes


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

    def ranked(self, ranks: "QueryTable") -> "QueryTable":
        """These counts of some queries beside the ranks of all."""
        values = dict(ranks.values)
        for name, each in self.values.items():
            values[name] = np.full(len(ranks.row), np.nan)
            values[name][self.row] = each
        group = ranks.group
        if group is None and self.group is not None:
            group = -1 - np.arange(len(ranks.row))  # a row that was never drawn is a group of its own
            group[self.row] = self.group
        return QueryTable(ranks.row, group, values, self.draws)


def query_tables(data: xr.Dataset, name: str) -> dict[str, QueryTable]:
    """The queries of each direction of a result that has any, a query that was drawn several times by its mean.

    Args:
        data: of `cocos.measures.count`, `evaluate` or `retrievals`.
        name: of the result, for the message.
    """
    if "query_index" not in data or not {"contributing", "contributing_per_query", "best_rank"} & set(data.data_vars):
        raise InputError(
            f"{name}: {data.attrs.get('title', 'a Dataset')} has no values of single queries; give results of cocos "
            "count --out or cocos evaluate --out, or the files of embeddings themselves"
        )
    if "direction" not in data.dims:
        data = data.expand_dims(direction=[str(data.attrs.get("direction", "q2c"))])
    found = {side: _query_table(one) for side, one in results.sides(data).items()}
    return found


def _query_table(one: xr.Dataset) -> QueryTable:
    """Collect the queries of one direction."""
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
    """Values of `COMPARED` and `more` that the result of one direction has, and `best_rank`; of an idle spread, NaN."""
    shape = one["query_index"].dims
    found = {str(name).removesuffix("_per_query"): one[name] for name in one if one[name].dims == shape}
    found = {name: each.values.astype(np.float64) for name, each in found.items()}
    if "best_rank" in found:
        found = _with_ranks(found)
    if "contributing" in found:
        found["idle"] = np.where(np.isfinite(found["contributing"]), 100.0 * (found["contributing"] == 0), np.nan)
        if np.isnan(found["contributing"]).all():  # of a loss of unknown unit
            found = {name: each for name, each in found.items() if name not in (*statistics.BY_SHARE, "idle")}
    for name in OF_PUSHED:
        if name in found:
            found[name] = np.where(found[name] > 0, found[name], np.nan)
    return {name: each for name, each in found.items() if name in {*COMPARED, *more, "best_rank"}}


def _with_ranks(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Add the recall and the reciprocal rank of each query, in percent, to its `best_rank`, NaN for none."""
    rank = values["best_rank"]
    recalls = {f"R@{k}": np.where(np.isfinite(rank), 100.0 * (rank <= k), np.nan) for k in retrieval.RECALLS}
    return values | recalls | {"MRR": 100 / rank}


# The same queries of both results, by direction.
Matched = Mapping[str, tuple[QueryTable, QueryTable]]


def _matched(
    first: Mapping[str, QueryTable], second: Mapping[str, QueryTable], names: tuple[str, str]
) -> tuple[Matched, list[Finding]]:
    """Match the queries that are in both, and collect findings; refuse results of different data."""
    sides = [side for side in first if side in second]
    if not sides:
        raise InputError(
            f"{names[0]} has the directions {', '.join(first)} and {names[1]} has {', '.join(second)}: results of the "
            "same data share a direction"
        )
    found, notes = {}, []
    for side in sides:
        both = first[side], second[side]
        _, *places = np.intersect1d(both[0].row, both[1].row, assume_unique=True, return_indices=True)
        one, other = found[side] = both[0].at(places[0]), both[1].at(places[1])
        if not len(one.row):
            raise InputError(
                f"{side}: {names[0]} and {names[1]} have no query in common; compare results of the same data"
            )
        if one.group is not None and other.group is not None and not grouped_alike(one.group, other.group):
            raise InputError(
                f"{side}: the queries of {names[0]} and {names[1]} belong to different groups, so they are not the "
                "same queries; compare results of the same data, rows in the same order"
            )
        for table, name in zip(both, names, strict=True):
            if alone := len(table.row) - len(one.row):
                notes.append(Finding("one side alone", "note", f"{side}: {alone} queries only in {name}, left out"))
        if not np.array_equal(both[0].draws, both[1].draws):
            sentence = f"{side}: the batches differ, so a query has other negatives, which adds noise to its change"
            notes.append(Finding("other batches", "note", sentence))
    return found, notes


def grouped_alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays of ids, (n,), group their rows alike."""
    both = len(np.unique(np.stack([one, other]), axis=1)[0])
    return both == len(np.unique(one)) == len(np.unique(other))


def _variables(
    entries: Iterable[tuple[tuple[int, int], dict]], shape: tuple[int, int], labels: Mapping[str, tuple]
) -> dict[str, tuple]:
    """Variables over direction and metric, and those of both versions, of the entries at (direction, metric)."""
    found = {name: np.full((*shape, 2) if name in {"mean", "last"} else shape, np.nan) for name in labels}
    for place, entry in entries:
        for name, value in entry.items():
            found[name][place] = value
    found["p_holm"] = adjusted(found["p"])
    dims = ("direction", "metric", "version")
    return {name: (dims[: each.ndim], each, *labels[name]) for name, each in found.items()}


def _of_queries(matched: Matched, level: float) -> tuple[dict[str, tuple], list[Finding]]:
    """Variables of the comparison, as `results.labelled` takes them, and values without an interval."""
    known = [one.values.keys() & other.values.keys() for one, other in matched.values()]
    metrics = [name for name in COMPARED if any(name in each for each in known)]
    width = max(len(one.row) for one, _ in matched.values())
    value = np.full((len(matched), len(metrics), 2, width), np.nan)
    rows = np.full((len(matched), width), -1, dtype=np.int64)
    entries, without = [], dict[tuple, list[str]]()
    for s, (side, both) in enumerate(matched.items()):
        rows[s, : len(both[0].row)] = both[0].row
        for m, name in enumerate(metrics):
            if name in known[s]:
                value[s, m, :, : len(both[0].row)] = [table.values[name] for table in both]
                entry, lacking = _metric_of_queries(both, name, level)
                entries.append(((s, m), entry))
                if lacking:
                    without.setdefault(lacking, []).append(f"{side} {name}")
    variables = _variables(entries, value.shape[:2], PAIRED_LABELS) | {
        "value": (("direction", "metric", "version", "query"), value, "value of the query", ""),
        "query_index": (("direction", "query"), rows, "row of the query in the embeddings", "1"),
        "metric": ("metric", metrics),
        "direction": ("direction", list(matched)),
    }
    notes = []
    for (kind, number, away), which in without.items():
        if kind == "no pair":
            reason = f"none of the {number} queries has a value in both"
        elif kind == "one group alone":
            reason = f"all n = {number} queries belong to one group"
        else:
            reason = f"all n = {number} differences are {away:g}"
        notes.append(Finding(kind, "note", f"no interval, {reason}: {', '.join(which)}"))
    return variables, notes


def _metric_of_queries(both: tuple[QueryTable, QueryTable], name: str, level: float) -> tuple[dict[str, Any], tuple]:
    """The entries of one metric of one direction; and the kind and numbers of why it has no interval, or nothing."""
    one, other = (table.values[name] for table in both)
    group = both[0].group if both[0].group is not None else both[1].group
    found: dict[str, Any] = differences(one, other, np.arange(len(one)) if group is None else group, level)
    number, there = found["pairs"], np.isfinite(one) & np.isfinite(other)
    if not number:
        return {"pairs": number}, ("no pair", len(one), None)
    away = (other - one)[there]
    found |= {"mean": [found.pop("base"), other[there].mean()]}
    found |= {"increased": (away > 0).sum(), "decreased": (away < 0).sum()}
    if found["groups"] < 2:
        return found, ("one group alone", number, None)
    return found, () if "p" in found else ("equal", number, float(f"{found['difference']:g}"))


def _changed(matched: Matched, by: str, changed: int) -> dict[str, tuple]:
    """Variables of the queries whose value changed most, largest change first."""
    rows = np.full((len(matched), changed), -1, dtype=np.int64)
    values, best = np.full((2, len(matched), changed, 2), np.nan)
    for s, (one, other) in enumerate(matched.values()):
        if by not in one.values or by not in other.values:
            continue
        away = np.nan_to_num(np.abs(other.values[by] - one.values[by]), nan=0.0)
        order = np.argsort(-away, kind="stable")[:changed]
        order = order[away[order] > 0]
        rows[s, : len(order)] = one.row[order]
        for key, found in ((by, values), ("best_rank", best)):
            if key in one.values and key in other.values:
                found[s, : len(order)] = np.stack([one.values[key][order], other.values[key][order]], axis=1)
    dims = ("direction", "changed", "version")
    return ({"best_rank": (dims, best, "rank of its best positive", "rank")} if np.isfinite(best).any() else {}) | {
        "changed_index": (dims[:2], rows, "row of a most changed query", "1"),
        "changed_value": (dims, values, f"its {by}", ""),
        "changed": ("changed", range(1, changed + 1), "rank by change", "1"),
    }


@dataclass(frozen=True, eq=False)
class CountedAlike:
    """Two sets of embeddings of the same data, counted alike.

    Args:
        embeddings: of both.
        losses: of each.
        counts: of each, by `cocos.measures.count`.
        items: names of their rows, or None.
    """

    embeddings: tuple[Embeddings, ...]
    losses: tuple
    counts: tuple[xr.Dataset, ...]
    items: tuple[Items | None, ...]

    @classmethod
    def of(cls, given: Sequence, loss, eps: float, names: Sequence[str], sampling: Sampling) -> "CountedAlike":
        """Encode and count two sets of embeddings."""
        if given[0] is given[1]:
            raise InputError(f"{names[0]} and {names[1]} are the same: no query can differ; give two checkpoints")
        used, items, seen = [], [], []
        for each, wanted in zip(given, loss if isinstance(loss, tuple) else (loss, loss), strict=True):
            used.append(losses.as_loss(loss_for(wanted, each)))
            seen.append(embedded(each, sampling["split"], sampling["device"], sampling["progress"]))
            items.append(_items(each, sampling["split"]) or _items(seen[-1], ""))
        _same_names(seen, names)
        counts = []
        for each, embeddings, one in zip(given, seen, used, strict=True):
            data = count(embeddings, one, eps, **sampling)
            counts.append(data.assign_attrs(each.identity() if isinstance(each, Checkpoint) else {}))
        return cls(tuple(seen), tuple(used), tuple(counts), tuple(items))

    def tables(self, version: int) -> dict[str, QueryTable]:
        """Counts and ranks of the queries of one of the two."""
        embeddings, found = self.embeddings[version], {}
        counted = query_tables(self.counts[version], "")
        (ranks,) = engine.run(engine.view(embeddings, metric=self.losses[version].metric), [readers.Ranks()])
        groups = (embeddings.groups.query, embeddings.groups.candidate)
        for name, ranked, group in zip(embeddings.directions, ranks, groups, strict=False):
            rows = torch.arange(len(group))
            values = _with_ranks({"best_rank": retrieval.best_ranks(len(group), rows, ranked).numpy()})
            found[name] = counted[name].ranked(QueryTable(rows.numpy(), group.numpy(), values, rows.numpy()))
        return found


def _items(source: Any, split: str) -> Items | None:
    """The texts of the rows of a source, or None."""
    if isinstance(source, Checkpoint):
        return source.items(split)
    return annotated_rows(source) if isinstance(source, Embeddings) and source.names else None


def _ranked_alike(first: Any, second: Any, loss, eps: float, names: Sequence[str], sampling: Sampling) -> tuple:
    """Two sources as they are; two of scores as results: ranks of their queries, or counts where a loss is named."""
    if any(isinstance(each, xr.Dataset) for each in (first, second)):
        return first, second
    both = [
        each.embed(sampling["split"], "cpu") if isinstance(each, Checkpoint) and each.format == "scores" else each
        for each in (first, second)
    ]
    scored = [isinstance(each, Scores) for each in both]
    if not all(scored):
        if any(scored):
            raise InputError(f"{names[scored.index(True)]} is scores and {names[scored.index(False)]} is not: give two")
        return first, second
    queries = [each.names[0] if each.names else list(range(len(each.query))) for each in both]
    if list(queries[0]) != list(queries[1]):
        raise InputError(
            f"{names[0]} and {names[1]} have other queries, or in another order: compare scores of the same"
        )
    if loss is None:
        return evaluate(first), evaluate(second)
    several = loss if isinstance(loss, tuple) else (loss, loss)
    return tuple(count(each, one, eps, **sampling) for each, one in zip((first, second), several, strict=True))


def _names_of_rows(of_row, rows: np.ndarray) -> np.ndarray:
    """Names of rows, of the same shape; empty where there is none."""
    names = [_one_line(of_row(row)) if of_row and row >= 0 else "" for row in rows.ravel().tolist()]
    return np.array(names, dtype=object).reshape(rows.shape)


def _one_line(text: str) -> str:
    """A name on one line, of bounded length."""
    text = " ".join(text.split())
    return text if len(text) <= ROW_NAME_CHARACTERS else f"{text[: ROW_NAME_CHARACTERS - 1]}…"


def _same_names(seen: Sequence[Embeddings], names: Sequence[str]) -> None:
    """Refuse embeddings whose rows have other names."""
    for side, which in enumerate(("query", "candidate")):
        first, second = (each.names and each.names[side] for each in seen)
        if not (first and second) or len(first) != len(second):
            continue
        for row, (one, other) in enumerate(zip(first, second, strict=True)):
            if one != other:
                raise InputError(
                    f"{which} row {row} is {_one_line(one)[:60]!r} in {names[0]} and {_one_line(other)[:60]!r} in "
                    f"{names[1]}: compare embeddings of the same data, rows in the same order"
                )
