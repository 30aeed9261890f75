"""One checkpoint of a run: its counts, its ranks, and the numbers that `cocos.Monitor` records of a training batch."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, cast

import numpy as np
import torch
import xarray as xr

import cocos
from cocos import losses, results
from cocos.checkpoints import Checkpoint
from cocos.counting import averages
from cocos.counting.statistics import BY_NAME
from cocos.embeddings import Embeddings, batches, scores, sources
from cocos.embeddings.scores import Pairs
from cocos.engine import retrieval
from cocos.engine.prepared import Run, embedded, prepare
from cocos.engine.readers import PositiveRanks
from cocos.engine.sampling import Progress, Sampling
from cocos.measures import _known
from cocos.measures.count import count
from cocos.measures.dtp import dtp
from cocos.measures.evaluate import EVALUATED_SPLITS, ranked
from cocos.monitor import readings
from cocos.results import records

# Options that the numbers of a checkpoint depend on, beside its bytes.
DEPENDS_ON = ("batches", "batch_size", "sample", "per_group", "copies", "same_group", "seed", "dtype", "split")
# Text of each checkpoint: what it is, and what its loss is.
CHECKPOINT_TEXTS = {
    "file": "file or folder of the checkpoint",
    "sha256": "sha256 of its bytes",
    "stamp": "size and time of its data, and of a file that is mapped",
    "loss_repr": "loss with its parameters",
    "loss_parameters": "parameters of the loss, JSON",
    "remarks": "notes on the checkpoint",
}
# Training batches of which the numbers of a record are read; the counts are of all batches.
READ_BATCHES = 8
# Rows of a batch of which the numbers of a record are read; of a larger batch, as many are drawn.
READ_ROWS = 1024
# Label of the rank of a row that asks: long name and units.
RANK_LABEL = ("rank of the best positive of a row that asks", "rank")
DISTANCE_LABELS = {
    "dtp": ("distance to the own proxy, mean over classes", "distance"),
    "dtp_low": ("distance to the own proxy, 5th percentile of the classes", "distance"),
    "dtp_high": ("distance to the own proxy, 95th percentile of the classes", "distance"),
}
SIZE_LABELS = {
    "width": ("width of the embeddings", "dimensions"),
    "rows": ("queries of the training set", "rows"),
    "evaluated": ("queries of the set that is evaluated", "rows"),
}


def _measured(
    embeddings: Embeddings, held_out: Embeddings, loss: Any, eps: float, ks: tuple[int, ...], sampling: Sampling
) -> xr.Dataset:
    """Measure one checkpoint.

    Args:
        embeddings: of the training set, which is counted.
        held_out: of the set that is evaluated.
        loss: that is counted.
        eps: smallest share that contributes.
        ks: cut-offs of R@k.
        sampling: options of the batches.

    Returns:
        The variables of `cocos.measures.run` without the dimension of checkpoints, and the attributes of the count.
    """
    counted = count(embeddings.marked(None), loss, eps, **sampling)  # a run has no place for marks
    run = prepare(embeddings, loss, eps=eps, visits=True, **_read(embeddings, sampling))
    record, names = _record(run), list(embeddings.directions)
    directions = _of_count(counted, record)
    made: dict[str, tuple] = {"direction": ("direction", names)}
    for name, label in records.DIRECTION_METRICS.items():
        if any(name in each for each in directions.values()):
            made[name] = ("direction", [directions[side].get(name, np.nan) for side in names], *label)
    made |= {name: ((), record[name], *label) for name, label in records.STEP_METRICS.items() if name in record}
    for name in ("contributing", "effective"):
        values = counted[BY_NAME[name].variable].values.astype(np.float32)
        made[f"{name}_per_query"] = (averages.QUERY_DIMS, values, *BY_NAME[name].about)
    for name in ("query_index", "query_group"):
        made[name] = (averages.QUERY_DIMS, counted[name].values, *averages.DRAWN_LABELS[name])
    made |= _of_ranks(held_out, loss.metric if loss.metric in scores.METRICS else "cosine", ks)
    if embeddings.proxies:
        found = dtp({"run": [embeddings]})
        values = (float(found[name].squeeze()) for name in ("average", "low", "high"))
        made |= {name: ((), value, *DISTANCE_LABELS[name]) for name, value in zip(DISTANCE_LABELS, values, strict=True)}
    about = (embeddings.query.shape[1], len(embeddings.query), len(held_out.query))
    made |= {name: ((), size, *SIZE_LABELS[name]) for name, size in zip(SIZE_LABELS, about, strict=True)}
    made["kind"] = ((), str(record.get("kind", "")))
    places = {"batch": "training batch", "query": "place in the batch", "row": "row of the embeddings"}
    sizes = dict(zip(places, (*counted["query_index"].shape[1:], made["best_rank"][1].shape[1]), strict=True))
    made |= {name: (name, range(size), places[name]) for name, size in sizes.items()}
    return results.labelled(made, counted.attrs)


def _read(embeddings: Embeddings, sampling: Sampling) -> Sampling:
    """Options of the batches of which a record is read: fewer, and of a bounded size."""
    given, size = sampling["batches"], sampling["batch_size"]
    rows = max(len(embeddings.query), len(embeddings.candidate))
    large = (rows if size == "all" else int(size)) > READ_ROWS
    number = given if given is None or isinstance(given, Integral) else list(given)[:READ_BATCHES]
    more = {"batch_size": READ_ROWS if large else size, "batches": number, "progress": None}
    return cast(Sampling, sampling | more)


def _record(run: Run) -> dict[str, Any]:
    """The record of a training batch, as `cocos.Monitor` has it: the mean over some of the largest batches."""
    largest = max(batch.sizes for batch in run.plan.batches)
    some = [each for each in run.plan.batches if each.sizes == largest][:READ_BATCHES]
    return readings.of_batches(run.loss, (_directions(run, each) for each in some), run.eps or 0.0, run.seed)


def _directions(run: Run, batch: batches.Batch) -> list[tuple[str, Pairs]]:
    """Names and pairs of the directions of a batch."""
    made = []
    for name, side, second in run.sides:
        there = batch.flip() if second else batch
        part, own = batches.alone(side, there)
        made.append((name, _sourced(side, there, next(run.pairs(part, own, whole=True)))))
    return made


def _sourced(embeddings: Embeddings, batch: batches.Batch, pairs: Pairs) -> Pairs:
    """Pairs of a batch alone, whose queries name no hard negatives, with the sources that the whole set knows."""
    if embeddings.negatives is None or pairs.source is None:
        return pairs
    own, source = sources.of_candidates(embeddings, batch, batch.query_index), pairs.source.clone()
    source[:, : own.shape[1]] = own
    return replace(pairs, source=source)


def _of_count(counted: xr.Dataset, record: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Numbers of each direction: those of the count, over all batches, in place of a record's.

    What a batch has is the mean over the full batches. A loss of smaller batches than those counted is left out.
    """
    made, full = {}, averages.full_batches(counted)
    for name, own in record["directions"].items():
        one = counted.sel(direction=name)
        every = ~np.isnan(one["negatives"].values)
        some = one["effective_per_query"].values > 0 if "effective_per_query" in one else every
        made[name] = own | {
            "relative": _mean(one, ("relative_per_query",), every),
            "unpushed": float((every & ~some).sum(axis=1)[full].mean()),
            "contributing": float(one["contributing"].mean()),
            "idle": float(one["idle"].values[full].mean()),
            "weight_negative": _mean(one, ("weight_above_per_query", "weight_below_per_query"), every),
            "weight_positive": _mean(one, ("weight_positive_per_query",), every),
            "effective": _mean(one, ("effective_per_query",), some),
            "hardest_share": _mean(one, ("hardest_share_per_query",), some),
            "queries": float(one["queries"].values[full].mean()),
            "candidates": own["positives"] + float(np.nanmean(one["negatives"].values[full])),
        }
        if counted.attrs["share"] == "unknown":
            made[name] = {key: value for key, value in made[name].items() if key not in records.BY_UNIT}
        if made[name]["candidates"] > own["candidates"]:
            record.pop("value", None)
    return made


def _mean(one: xr.Dataset, names: tuple[str, ...], where: np.ndarray) -> float:
    """Mean over the queries in a mask of a sum of statistics; NaN where the count lacks one."""
    if any(name not in one for name in names):
        return np.nan
    return float(averages.mean(sum(one[name].values for name in names), where, (0, 1)))


def _of_ranks(embeddings: Embeddings, metric: str, ks: tuple[int, ...]) -> dict[str, tuple]:
    """Retrieval metrics, (direction,), and the rank of the best positive of each row, (direction, row)."""
    found = ranked(embeddings, metric)
    metrics = {name: retrieval.metrics(ranks, ks) for name, (_, ranks) in found.items()}
    first, *second = metrics.values()
    made = {name: ("direction", [each[name] for each in metrics.values()], *retrieval.label(name)) for name in first}
    if second:
        made["rsum"] = ((), retrieval.rsum(first, second[0]), *retrieval.label("rsum"))
    best = list(_best(embeddings, found))
    whole = np.full((len(best), max(map(len, best))), np.nan, dtype=np.float32)
    for row, values in zip(whole, best, strict=True):
        row[: len(values)] = values
    return made | {"best_rank": (("direction", "row"), whole, *RANK_LABEL)}


def _best(embeddings: Embeddings, found: dict[str, tuple[torch.Tensor, PositiveRanks]]) -> Iterator[np.ndarray]:
    """Yield the rank of the best positive of each row that asks in a direction, NaN where it has none."""
    for side, (rows, ranks) in zip((embeddings.query, embeddings.candidate), found.values(), strict=False):
        best = torch.full((len(side),), torch.inf, dtype=torch.float64)
        asking, rank = rows.cpu()[ranks.query.cpu()], (1 + ranks.above + ranks.ties).double().cpu()
        best = best.scatter_reduce(0, asking, rank, "amin")
        yield torch.where(best.isinf(), torch.nan, best).numpy()


@dataclass(frozen=True)
class EachCheckpoint:
    """What is measured of each checkpoint."""

    loss: Any
    parameters: Mapping[str, Any]
    eps: float
    ks: tuple[int, ...]
    evaluated: str | None
    sampling: Sampling

    @property
    def options(self) -> str:
        """All that the numbers depend on beside the bytes of the checkpoint, as text."""
        some = {name: self.sampling[name] for name in DEPENDS_ON}  # type: ignore[literal-required]
        more = {"parameters": self.parameters, "eps": self.eps, "k": self.ks, "evaluated": self.evaluated}
        return json.dumps({"cocos": cocos.__version__, "loss": repr(self.loss)} | more | some, default=repr)

    def of(self, given: Embeddings | Checkpoint, say: Progress | None) -> xr.Dataset:
        """Measure one checkpoint."""
        sampling: Sampling = {**self.sampling, "progress": say}
        checkpoint = given if isinstance(given, Checkpoint) else None
        if not isinstance(self.loss, str | None):
            loss = losses.of(self.loss)
        elif checkpoint is not None:
            loss, _ = checkpoint.loss(self.loss, dict(self.parameters))
        else:
            loss = losses.load(self.loss or "ntxent", dict(self.parameters))
        embeddings = embedded(given, sampling["split"], sampling["device"], say)
        other = self._held_out(checkpoint)
        same = checkpoint is None or other == sampling["split"]
        held_out = embeddings if same else embedded(given, other, sampling["device"], say)
        data = _measured(embeddings, held_out, loss, self.eps, self.ks, sampling)
        texts = {
            "file": "" if checkpoint is None else str(checkpoint.path),
            "sha256": "" if checkpoint is None else checkpoint.sha256,
            "stamp": "" if checkpoint is None else _known.stamp(checkpoint),
            "loss_repr": data.attrs["loss_repr"],
            "loss_parameters": data.attrs["loss_parameters"],
            "remarks": "\n".join([
                *(checkpoint.notes if checkpoint else ()),
                *data.attrs.get("notes", "").splitlines(),
            ]),
        }
        return data.assign({name: ((), text, {"long_name": CHECKPOINT_TEXTS[name]}) for name, text in texts.items()})

    def _held_out(self, checkpoint: Checkpoint | None) -> str:
        """Split that is evaluated: the one that was asked for, or test, val, dev or train."""
        known = checkpoint.splits if checkpoint else ()
        first = next((name for name in EVALUATED_SPLITS if name in known), self.sampling["split"])
        return self.evaluated or first
