"""The queries that changed most between two results, and, from embeddings, who pushes each of them before and after."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr

from cocos import engine, losses
from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint
from cocos.checkpoints.data import AnnotatedRows, Items
from cocos.embeddings import Embeddings
from cocos.engine import readers
from cocos.engine.prepared import embedded
from cocos.engine.sampling import Sampling
from cocos.measures import _best_ranks, _paired_queries
from cocos.measures._paired_queries import QueryTable
from cocos.measures.contributors import contributors
from cocos.measures.count import count
from cocos.measures.retrievals import retrievals

# Characters of a name in a result.
ROW_NAME_CHARACTERS = 200
LISTED = {
    "pusher": ("row of each of the heaviest negatives of the query", "1"),
    "pusher_part": ("its part of the query's push", "1"),
    "nearest": ("row of each candidate in order of score", "1"),
    "nearest_positive": ("whether it is a positive", "1"),
}


def most(matched: Mapping[str, Sequence[QueryTable]], by: str, changed: int) -> dict[str, tuple]:
    """The queries whose value changed most, largest change first: variables as `results.labelled` takes them."""
    rows = np.full((len(matched), changed), -1, dtype=np.int64)
    values, best = np.full((2, len(matched), changed, 2), np.nan)
    for s, both in enumerate(matched.values()):
        if not all(by in table.values for table in both):
            continue
        one, other = (table.values[by] for table in both)
        away = np.nan_to_num(np.abs(other - one), nan=0.0)
        order = np.argsort(-away, kind="stable")[:changed]
        order = order[away[order] > 0]
        rows[s, : len(order)] = both[0].row[order]
        values[s, : len(order)] = np.stack([one[order], other[order]], axis=1)
        if all("best_rank" in table.values for table in both):
            best[s, : len(order)] = np.stack([table.values["best_rank"][order] for table in both], axis=1)
    ranks = (("direction", "changed", "version"), best, "rank of its best positive", "rank")
    return ({"best_rank": ranks} if np.isfinite(best).any() else {}) | {
        "changed_index": (("direction", "changed"), rows, "row of a query that changed most", "1"),
        "changed_value": (("direction", "changed", "version"), values, f"its {by}", ""),
        "changed": ("changed", range(1, changed + 1), "place by change", "1"),
    }


@dataclass(frozen=True, eq=False)
class CountedAlike:
    """Two sets of embeddings of the same data, counted alike.

    Args:
        embeddings: of both.
        losses: of each.
        counts: of each, by `cocos.measures.count`.
        items: names of their rows, or None.
        eps: smallest share that contributes.
        sampling: options of the batches.
    """

    embeddings: tuple[Embeddings, Embeddings]
    losses: tuple
    counts: tuple[xr.Dataset, xr.Dataset]
    items: tuple[Items | None, Items | None]
    eps: float
    sampling: Sampling

    def tables(self, place: int) -> dict[str, QueryTable]:
        """Counts and ranks of the queries of one of the two."""
        counted = _paired_queries.tables(self.counts[place], "")
        ranked = _ranks(self.embeddings[place], self.losses[place].metric)
        return {side: _paired_queries.joined(table, ranked[side]) for side, table in counted.items()}

    def listed(self, rows: np.ndarray, sides: Sequence[str], top: int) -> dict[str, tuple]:
        """Who pushes the given queries, (direction, changed), and which candidates are nearest, in both."""
        shape = (*rows.shape, 2)
        found = {name: np.full((*shape, top), -1, dtype=np.int64) for name in ("pusher", "nearest")}
        found |= {"pusher_part": np.full((*shape, top), np.nan), "nearest_positive": np.zeros((*shape, top), bool)}
        names = {f"{name}_name": np.full((*shape, top), "", dtype=object) for name in ("pusher", "nearest")}
        asked = np.full(rows.shape, "", dtype=object)
        for s, side in enumerate(sides):
            there = rows[s][rows[s] >= 0]
            for version, items in enumerate(self.items):
                if not len(there):
                    continue
                query, candidate = items.texts(side) if items else (None, None)
                nearest = self._nearest(version, side, there.tolist(), top)
                for c, row in enumerate(there.tolist()):
                    at = (s, c, version)
                    pushing = self._pushing(version, side, row, top)
                    found["pusher"][at][: len(pushing["row"])] = pushing["row"]
                    found["pusher_part"][at][: len(pushing["row"])] = pushing["part"]
                    width = nearest.sizes["rank"]
                    found["nearest"][at][:width] = nearest["candidate"][c]
                    found["nearest_positive"][at][:width] = nearest["positive"][c]
                    if candidate is not None and query is not None:
                        asked[s, c] = _short(query(row))
                        for name in ("pusher", "nearest"):
                            known = [_short(candidate(each)) if each >= 0 else "" for each in found[name][at].tolist()]
                            names[f"{name}_name"][at] = known
        dims = ("direction", "changed", "version", "place")
        variables = {name: (dims, each, *LISTED[name]) for name, each in found.items()}
        if any(self.items):
            variables |= {name: (dims, each.astype(str), "name of that row") for name, each in names.items()}
            variables["changed_name"] = (dims[:2], asked.astype(str), "name of the query")
        return variables | {"place": ("place", range(1, top + 1), "place by weight, or by score", "1")}

    def _pushing(self, version: int, side: str, row: int, top: int) -> dict[str, np.ndarray]:
        """Rows and parts of the heaviest negatives of a query, none where no batch contains it."""
        if not (self.counts[version]["query_index"].sel(direction=side) == row).any():
            return {"row": np.zeros(0, dtype=np.int64), "part": np.zeros(0)}
        options = {name: value for name, value in self.sampling.items() if name not in {"progress", "split"}}
        options |= {"dtype": "float64", "same_group": options["same_group"] or "ignore"}
        found = contributors(self.embeddings[version], self.losses[version], self.eps, row=row, direction=side,
                             top=None, **options)  # fmt: skip
        pushes = (~found["positive"].values) & (found["weight"].values > 0)
        rows, place = np.unique(found["candidate_index"].values[pushes], return_inverse=True)
        part = np.bincount(place, found["part"].values[pushes], len(rows))  # a batch may contain a row several times
        order = np.argsort(-part, kind="stable")[:top]
        return {"row": rows[order], "part": part[order]}

    def _nearest(self, version: int, side: str, rows: list[int], top: int) -> xr.Dataset:
        return retrievals(self.embeddings[version], self.losses[version], queries=rows, k=top, direction=side)


def _short(text: str) -> str:
    """A name on one line, of bounded length."""
    text = " ".join(text.split())
    return text if len(text) <= ROW_NAME_CHARACTERS else f"{text[: ROW_NAME_CHARACTERS - 1]}…"


def _ranks(embeddings: Embeddings, metric: str) -> dict[str, QueryTable]:
    """Ranks of the best positives of the queries of each direction."""
    (ranks,), found = engine.run(engine.view(embeddings, metric=metric), [readers.Ranks()]), {}
    groups = (embeddings.groups.query, embeddings.groups.candidate)
    for name, ranked, group in zip(embeddings.directions, ranks, groups, strict=False):
        rows = torch.arange(len(group))
        values = _paired_queries.with_ranks({"best_rank": _best_ranks.best(len(group), rows, ranked).numpy()})
        found[name] = QueryTable(rows.numpy(), group.numpy(), values, rows.numpy())
    return found


def counted(given: Sequence[Embeddings | Checkpoint], loss, eps: float, names: Sequence[str], sampling) -> CountedAlike:
    """Encode and count two sets of embeddings."""
    if given[0] is given[1]:
        raise InputError(f"{names[0]} and {names[1]} are the same: no query can differ; give two checkpoints")
    wanted = loss if isinstance(loss, tuple) else (loss, loss)
    used, items, seen = [], [], []
    for each, name in zip(given, wanted, strict=True):
        checkpoint = each if isinstance(each, Checkpoint) else None
        one = name
        if name is None or isinstance(name, str):
            one = checkpoint.loss(name)[0] if checkpoint else losses.load(name or "ntxent")
        used.append(losses.of(one))
        embeddings = embedded(each, sampling["split"], sampling["device"], sampling["progress"])
        known = checkpoint.items(sampling["split"]) if checkpoint else None
        items.append(known or (AnnotatedRows(embeddings) if embeddings.names else None))
        seen.append(embeddings)
    _same_names(seen, names)
    counts = []
    for each, embeddings, one in zip(given, seen, used, strict=True):
        data = count(embeddings, one, eps, **sampling)
        counts.append(data.assign_attrs(each.identity() if isinstance(each, Checkpoint) else {}))
    return CountedAlike(tuple(seen), tuple(used), tuple(counts), tuple(items), eps, sampling)


def _same_names(seen: Sequence[Embeddings], names: Sequence[str]) -> None:
    """Refuse embeddings whose rows have other names."""
    for side, which in enumerate(("query", "candidate")):
        both = [each.names and each.names[side] for each in seen]
        if both[0] and both[1] and len(both[0]) == len(both[1]):
            for row, (one, other) in enumerate(zip(*both, strict=True)):
                if one != other:
                    raise InputError(
                        f"{which} row {row} is {_short(one)[:60]!r} in {names[0]} and {_short(other)[:60]!r} in "
                        f"{names[1]}: compare embeddings of the same data, rows in the same order"
                    )


def document(one: xr.Dataset) -> list[dict]:
    """The queries of one direction that changed most, for the JSON document."""
    names, listed = [str(each) for each in one["version"].values], []
    for place in range(one.sizes["changed"]):
        query = one.isel(changed=place)
        if int(query["changed_index"]) < 0:
            continue
        entry = {"row": int(query["changed_index"])}
        entry |= {"name": str(query["changed_name"].item())} if "changed_name" in query else {}
        for version, name in enumerate(names):
            entry[name] = _version(query.isel(version=version))
        listed.append(entry)
    return listed


def _version(query: xr.Dataset) -> dict:
    """One of the two versions of a query that changed."""
    entry: dict = {"value": float(query["changed_value"])}
    if "best_rank" in query:
        entry["best_rank"] = float(query["best_rank"])
    if "pusher" not in query:
        return entry
    for name, more in (("pusher", "pusher_part"), ("nearest", "nearest_positive")):
        rows = query[name].values
        entry[name] = [
            {"row": int(row), more.partition("_")[2]: query[more].values[k].item()}
            | ({"name": str(query[f"{name}_name"].values[k])} if f"{name}_name" in query else {})
            for k, row in enumerate(rows)
            if row >= 0
        ]
    return entry
