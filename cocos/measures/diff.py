"""Which queries changed from one result to another, and who pushes them now?"""

import math
from collections.abc import Mapping, Sequence
from typing import Unpack

import numpy as np
import xarray as xr

from cocos import results
from cocos.base.errors import InputError, nearest
from cocos.base.ranges import Level
from cocos.checkpoints import Checkpoint
from cocos.counting import health, statistics
from cocos.embeddings import Embeddings
from cocos.engine.sampling import Sampling, sampled, whole_number
from cocos.measures import _changed, _paired_queries, _paired_steps
from cocos.measures._paired_queries import COMPARED, QueryTable
from cocos.results import summaries

# Values by which the queries that changed most are chosen, the first that both results have.
CHANGE_BY = ("MRR", "contributing", "relative")
STATED = {
    "mean": ("mean over the paired queries", ""),
    "difference": ("mean of the paired differences, second less first", ""),
    "low": ("lower end of its confidence interval", ""),
    "high": ("upper end of its confidence interval", ""),
    "p": ("p-value of the paired t-test", "1"),
    "p_holm": ("p-value adjusted for the number of tests (Holm)", "1"),
    "pairs": ("queries that have a value in both", "queries"),
    "groups": ("groups of those queries, within which they may depend on each other", "groups"),
    "increased": ("queries whose value is larger in the second", "queries"),
    "decreased": ("queries whose value is smaller in the second", "queries"),
    "value": ("value of a query", ""),
    "query_index": ("row of the query in the embeddings", "1"),
}


@sampled(without=["batches"], dtype=None, same_group=None)
def diff(
    first: xr.Dataset | Embeddings | Checkpoint,
    second: xr.Dataset | Embeddings | Checkpoint,
    loss=None,
    eps: float = 0.01,
    *,
    names: Sequence[str] = ("A", "B"),
    by: str | None = None,
    changed: int = 5,
    top: int = 3,
    level: Level = 0.95,
    **sampling: Unpack[Sampling],
) -> xr.Dataset:
    """Compare two results, or the embeddings of two models for the same data, query by query.

    Each value of a query (COCOS, effective number, rank of the best positive, ...) is paired with that of the same
    query in the other result. The interval of the mean difference is Student's t, for which queries of one group may
    depend on each other (`cocos.statistics.paired`); p-values are adjusted for the number of tests by Holm's method.

    Args:
        first: result of `count`, `evaluate` or `retrievals`; a run, of `run`; or embeddings or a checkpoint, which are
            counted and ranked here.
        second: another result of the same kind, of the same data.
        loss: of embeddings: a loss or its name, or a pair with one for each; None: as a checkpoint says, or ntxent.
        eps: of embeddings: smallest share that contributes.
        names: of the two.
        by: value whose change makes a query one that changed most; None: the reciprocal rank of its best positive
            (`MRR`), or the contributing negatives where ranks are not known, or `relative` where their unit is not.
        changed: number of the queries that changed most to list, of each direction.
        top: number of candidates to list for each of them.
        level: of the confidence intervals.
        **sampling: of embeddings: options of the batches, see `cocos.sampling.Sampling`.

    Returns:
        A Dataset with dims direction, metric, version (the two names), query. `mean`, `difference`, `low`, `high`, `p`,
        `p_holm`; `pairs` and `groups`, the numbers behind them; `increased` and `decreased`, numbers of queries;
        `value`, those of the queries. Of the queries that changed most, (direction, changed): `changed_index`, their
        row, and `changed_value`. For embeddings also `best_rank`, and by place, up to `top`, `pusher`, the
        row of each of the heaviest negatives, `pusher_part`, its part of the push, and `nearest`, the candidates
        ranked first. NaN, -1 and empty names stand where there is none. Of two runs, which are paired at the steps that
        both have, `value` is over step instead of query, `last` is that of the last common step, `since` the first step
        from which on the difference keeps its sign, and `groups` are blocks of steps, within which they may depend on
        each other: at most 20, none where fewer than 20 steps are common.

    Raises:
        InputError: an option that cannot be used, or two results that cannot be compared.

    Examples:
        >>> generator = torch.Generator().manual_seed(0)
        >>> rows = torch.randn(40, 8, generator=generator)
        >>> before = cocos.Embeddings(rows, rows + 0.1 * torch.randn(40, 8, generator=generator))
        >>> after = cocos.Embeddings(rows, rows + 2.0 * torch.randn(40, 8, generator=generator))
        >>> data = cocos.measures.diff(before, after, batch_size="all")
        >>> bool(data["high"].sel(direction="q2c", metric="R@1") < 0)
        True
    """
    names = _checked(names, changed, top, level)
    opened = [isinstance(each, xr.Dataset) for each in (first, second)]
    if any(opened) and not all(opened):
        raise InputError(f"{names[opened.index(False)]}: no result, and {names[opened.index(True)]} is one; give two")
    known = None if all(opened) else _changed.counted((first, second), loss, eps, names, sampling)
    pair: tuple[xr.Dataset, xr.Dataset] = known.counts if known else (first, second)  # type: ignore[assignment]
    runs = [_paired_steps.axis(each) is not None for each in pair]
    if any(runs) and not all(runs):
        raise InputError(
            f"{names[runs.index(True)]} is a run and {names[runs.index(False)]} is none: give two of a kind"
        )
    if all(runs):
        return _of_runs(pair, names, level)
    both = [] if known else [_paired_queries.tables(each, name) for each, name in zip(pair, names, strict=True)]
    notes = [*_collapsed(pair, names), *_paired_queries.comparable(*pair, names)]
    both = [known.tables(k) for k in range(2)] if known else both
    sides = _paired_queries.same_data(both[0], both[1], names)
    matched = {side: _paired_queries.matched(both[0][side], both[1][side]) for side in sides}
    for side in sides:
        notes += _about(side, (both[0][side], both[1][side]), matched[side], names)
    variables, said = _compared(matched, level)
    by = _by(by, variables["metric"][1])
    variables |= _changed.most(matched, by, changed)
    if known:
        variables |= known.listed(variables["changed_index"][1], sides, top)
    variables |= {"direction": ("direction", sides), "version": ("version", list(names))}
    attrs = _attrs(pair) | {"title": "Difference query by query", "by": by, "level": level}
    return results.labelled(variables, attrs | {"notes": "\n".join([*notes, *said])})


def _collapsed(pair: Sequence[xr.Dataset], names: Sequence[str]) -> list[str]:
    """The warnings that stand beside each of the two."""
    return [
        f"{name}: {line}"
        for data, name in zip(pair, names, strict=True)
        for line in health.warnings(data.attrs.get("notes", ""))
    ]


def _attrs(pair: Sequence[xr.Dataset]) -> dict:
    """Versions, and the options that both results have."""
    attrs = {key: value for key, value in pair[1].attrs.items() if pair[0].attrs.get(key) == value}
    kept = (*summaries.OPTIONS, "loss", "loss_repr", "share", "gradient", "unit")
    return {key: attrs[key] for key in kept if key in attrs} | results.versions()


def _of_runs(pair: tuple[xr.Dataset, xr.Dataset], names: tuple[str, str], level: float) -> xr.Dataset:
    """Compare two runs at the steps that both have."""
    notes = _paired_queries.comparable(*pair, names)
    variables, said = _paired_steps.compared(pair, names, level)
    variables["version"] = ("version", list(names))
    attrs = _attrs(pair) | {"title": "Difference step by step", "level": level, "notes": "\n".join([*notes, *said])}
    return results.labelled(variables, attrs)


def _checked(names: Sequence[str], changed: int, top: int, level: float) -> tuple[str, str]:
    """Two different names."""
    whole_number("changed", changed, 0, 1000)
    whole_number("top", top, 1, 100)
    if len(names) != 2 or names[0] == names[1]:
        raise InputError(f"names: {list(names)}, expected two different ones")
    return str(names[0]), str(names[1])


def _by(by: str | None, known: Sequence[str]) -> str:
    """The value by which change is measured."""
    if not known:
        raise InputError("the two have no value of queries in common: give two results of the same command")
    if by is not None and by not in known:
        raise InputError(nearest("value to compare by", by, known))
    return by or next(name for name in (*CHANGE_BY, *known) if name in known)


def _about(side: str, both: Sequence[QueryTable], matched: Sequence[QueryTable], names: Sequence[str]) -> list[str]:
    """Notes on queries that are in one result alone, and on batches that differ."""
    paired, notes = len(matched[0].row), []
    for table, name in zip(both, names, strict=True):
        if alone := len(table.row) - paired:
            notes.append(f"{side}: {alone} queries are in {name} alone and left out")
    if not np.array_equal(both[0].draws, both[1].draws):
        notes.append(f"{side}: the batches differ, so that a query has other negatives, which adds noise to its change")
    return notes


def _compared(matched: Mapping[str, Sequence[QueryTable]], level: float) -> tuple[dict[str, tuple], list[str]]:
    """Variables of the comparison, as `results.labelled` takes them, and notes on metrics without an interval."""
    metrics = [name for name in COMPARED if any(name in both[0].values.keys() & both[1].values.keys()
                                                for both in matched.values())]  # fmt: skip
    shape, width = (len(matched), len(metrics)), max(len(both[0].row) for both in matched.values())
    found = {name: np.full(shape, np.nan) for name in STATED if name not in {"mean", "value", "query_index"}}
    found |= {"mean": np.full((*shape, 2), np.nan), "value": np.full((*shape, 2, width), np.nan)}
    found["query_index"] = np.full((len(matched), width), -1, dtype=np.int64)
    without: dict[str, list[str]] = {}
    for s, (side, both) in enumerate(matched.items()):
        found["query_index"][s, : len(both[0].row)] = both[0].row
        for m, name in enumerate(metrics):
            if not all(name in table.values for table in both):
                continue
            found["value"][s, m, :, : len(both[0].row)] = [table.values[name] for table in both]
            entry, note = _one(both, name, level)
            for key, value in entry.items():
                found[key][s, m] = value
            if note:
                without[note] = [*without.get(note, []), f"{side} {name}"]
    tested = np.isfinite(found["p"])
    found["p_holm"][tested] = statistics.holm(found["p"][tested].tolist())
    dims = {"mean": ("direction", "metric", "version"), "value": ("direction", "metric", "version", "query")}
    dims["query_index"] = ("direction", "query")
    variables = {name: (dims.get(name, ("direction", "metric")), each, *STATED[name]) for name, each in found.items()}
    notes = [f"no interval, {reason}: {', '.join(which)}" for reason, which in without.items()]
    return variables | {"metric": ("metric", metrics)}, notes


def _one(both: Sequence[QueryTable], name: str, level: float) -> tuple[dict, str]:
    """The entries of one metric of one direction, and a note where it has no interval."""
    one, other = (table.values[name] for table in both)
    there = np.isfinite(one) & np.isfinite(other)
    number, one, other = int(there.sum()), one[there], other[there]
    entry: dict = {"pairs": number}
    if not number:
        return entry, f"for none of the {len(there)} queries has a value in both (n = 0)"
    away = other - one
    entry |= {"mean": [one.mean(), other.mean()], "difference": away.mean()}
    entry |= {"increased": (away > 0).sum(), "decreased": (away < 0).sum()}
    group = both[0].group if both[0].group is not None else both[1].group
    group = np.arange(number) if group is None else group[there]
    entry["groups"] = len(np.unique(group))
    if entry["groups"] < 2:
        return entry, f"for n = {number}, of one group"
    if np.ptp(away) == 0:
        return entry, f"for all n = {number} differences are {away[0]:g}"
    test = statistics.paired(other, one, level, groups=group)
    return entry | {"low": test.low, "high": test.high, "p": test.p}, ""


def document(data: xr.Dataset) -> dict:
    """The comparison as the JSON document of `cocos diff --json`."""
    names, directions = [str(each) for each in data["version"].values], {}
    for side in data["direction"].values:
        one, entries = data.sel(direction=side), {}
        for metric in data["metric"].values:
            each, entry = one.sel(metric=metric), {}
            for key in each.data_vars:
                if each[key].dims == ("version",):
                    entry[str(key)] = dict(zip(names, map(_plain, each[key]), strict=True))
                elif not each[key].ndim:
                    entry[str(key)] = _plain(each[key])
            if entry["pairs"]:
                entries[str(metric)] = entry
        directions[str(side)] = {"metrics": entries}
        if "changed" in data.dims:
            directions[str(side)]["changed"] = _changed.document(one)
    return {
        "cocos": data.attrs["cocos"],
        "names": names,
        "by": data.attrs.get("by"),
        "steps": data["step"].values.tolist() if "step" in data.dims else None,
        "level": float(data.attrs["level"]),
        "notes": [line for line in data.attrs["notes"].splitlines() if line],
        "directions": directions,
    }


def _plain(value: xr.DataArray) -> float | int | None:
    """Convert a number for JSON: an integer where it is one; None where it is not finite."""
    number = float(value)
    return None if not math.isfinite(number) else int(number) if number.is_integer() else number
