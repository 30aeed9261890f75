"""How was this encoder taught? Numbers of its embeddings on several sets, and what its files say of the training."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import torch
import xarray as xr

from cocos import losses, results
from cocos.base.errors import InputError
from cocos.base.ranges import whole
from cocos.checkpoints import Checkpoint
from cocos.counting import health, statistics
from cocos.embeddings import Embeddings
from cocos.engine.prepared import Run, embedded, prepare
from cocos.engine.sampling import Progress
from cocos.measures.audit import ANY_RULE, audit
from cocos.measures.evaluate import evaluate
from cocos.measures.temperature import temperature
from cocos.results import summaries

# Scale of a softmax over cosines where no other is known, that of sentence-transformers' losses of pairs.
USUAL_SCALE = 20.0
# Part of the candidates that are hubs: those with the largest push.
HUBS = 0.01
# Batch size of the numbers of a whole set, where it has so many pairs.
MAIN_BATCH = 128
SET_LABELS = {
    "queries": ("queries", "queries"),
    "candidates": ("candidates", "candidates"),
    "R@1": ("queries with a positive at rank 1", "percent"),
    "suspected": ("part of the negatives that are suspected of being positives", "1"),
    "suspected_push": ("part of the push on suspected false negatives", "1"),
    "hub_push": ("part of the push on the hundredth of the candidates with most of it", "1"),
    "rank": ("effective rank of the candidates", "dimensions"),
    "similarity": ("mean cosine of random pairs of candidates", "1"),
}
BATCH_LABELS = {
    "equilibrium_temperature": ("temperature at which dL/dscale is 0", "score"),
    "effective": ("effective number of negatives at that temperature, or at the clip", "candidates"),
    "effective_own": ("effective number of negatives at the loss's own temperature", "candidates"),
    "state": ("what a learned scale does", ""),
}
BatchSizes = Sequence[Annotated[int, whole(2)]]


def card(
    sets: Mapping[str, Embeddings | Checkpoint],
    loss: Any = None,
    *,
    batch_sizes: BatchSizes = (32, 128, 512),
    said: Mapping[str, str] | None = None,
    split: str = "train",
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> xr.Dataset:
    """Describe how an encoder was taught: where a temperature settles, what pushes, hubs, on several sets.

    Every number is that of a measure of its own: `temperature`, `audit`, `evaluate`, `health`; hubs are of the push of
    `count`. They say how the scores of the encoder are spread, and not how good it is.

    Args:
        sets: name -> embeddings of one encoder, or the checkpoint with the data of that set.
        loss: a softmax over scale * score, or its name; None: that of the training where the checkpoint records one,
            else NT-Xent with a scale of 20.
        batch_sizes: sizes of the batches; one that a set does not fill is left out there.
        said: what the files of the encoder say of its training, as `cocos.checkpoints.model_cards.read` gives it.
        split: split of the data of a checkpoint.
        seed: seed for drawing batches.
        device: `auto`, `cpu` or `cuda`; None: where the embeddings are.
        progress: as of `cocos.measures.count`.

    Returns:
        Each (set, batch_size): `equilibrium_temperature`, `state`, `effective` there and `effective_own` at the loss's
        own temperature. Each (set,): `R@1`, `suspected`, `suspected_push`, `hub_push`, `rank`, `similarity`,
        `queries`, `candidates`. Attributes: `said`, as JSON.

    Raises:
        InputError: no set, a set that fills no batch, or a loss without a temperature.

    Examples:
        >>> rows = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
        >>> data = cocos.measures.card({"pairs": cocos.Embeddings(rows, rows + 0.1)}, batch_sizes=[32])
        >>> data["state"].item(), round(data["R@1"].item())
        ('grows', 100)
    """
    if not sets:
        raise InputError("sets: none were given")
    columns: list[dict[str, Any]] = []
    where = {"split": split, "device": device, "progress": progress}
    for name, source in sets.items():
        asked = loss if loss is not None else _usual(source)
        chosen = losses.load(asked) if isinstance(asked, str) else losses.of(asked)
        held = embedded(source, split, device, progress)
        columns.append(_of_set(name, held, chosen, tuple(batch_sizes), seed, where) | {"loss": chosen})
    first, kept = next(iter(sets.values())), [each["loss"] for each in columns]
    variables: dict[str, tuple] = {
        each: ("set", [column[each] for column in columns], *about) for each, about in SET_LABELS.items()
    }
    variables |= {
        each: (("set", "batch_size"), np.array([column[each] for column in columns]), *about)
        for each, about in BATCH_LABELS.items()
    }
    variables["set"] = ("set", list(map(str, sets)), "set of texts or pictures")
    variables["batch_size"] = ("batch_size", list(batch_sizes), "rows of a batch", "rows")
    attrs = results.provenance(
        kept[0],
        title="Card of an encoder",
        seed=seed,
        said=json.dumps(dict(said or {})),
        **(first.identity() if isinstance(first, Checkpoint) else {}),
        notes="\n".join(dict.fromkeys(note for column in columns for note in column["notes"])),
    )
    return results.labelled(variables, attrs)


def _usual(source: Embeddings | Checkpoint) -> Any:
    """The loss of the training, if it is a softmax with a scale; else that of pairs."""
    if isinstance(source, Checkpoint) and source.trained_with in {"ntxent", "mnrl"}:
        return source.loss(None)[0]
    return losses.load("ntxent", {"temperature": 1 / USUAL_SCALE})


def _of_set(
    name: str, held: Embeddings, loss: losses.Loss, sizes: tuple[int, ...], seed: int, where: dict[str, Any]
) -> dict[str, Any]:
    most = min(len(held.query), len(held.candidate))
    fitting = [size for size in sizes if size <= most]
    if not fitting:
        raise InputError(f"{name}: {most} pairs fill no batch of {min(sizes)}; take a smaller batch size")
    report = where["progress"]
    settled = temperature(held, loss, fitting, seed=seed, progress=report)
    found: dict[str, Any] = {each: np.full(len(sizes), np.nan) for each in BATCH_LABELS if each != "state"}
    found["state"] = [""] * len(sizes)
    for place, size in enumerate(sizes):
        if size in settled["batch_size"].values:
            for each in BATCH_LABELS:
                found[each][place] = settled[each].sel(batch_size=size).item()
    main = max(size for size in fitting if size <= MAIN_BATCH or size == fitting[0])
    audited = audit(held, loss, batch_size=main, seed=seed, filters={}, progress=report).isel(direction=0)
    ranked, sides = evaluate(held, progress=report), health.of(held, loss.metric)
    run = prepare(held, loss, batch_size=main, seed=seed)
    first = held.directions[0]
    near = health.similarity(held.candidate)
    return found | {
        "queries": len(held.query),
        "candidates": len(held.candidate),
        "R@1": float(ranked["R@1"].sel(direction=first).squeeze()),
        "suspected": float(audited["share"].sel(rule=ANY_RULE)),
        "suspected_push": float(audited["push_share"].sel(rule=ANY_RULE)),
        "hub_push": _hubs(run),
        "rank": float(list(sides.values())[-1]["effective_rank"]),
        "similarity": math.nan if near is None else near,
        "notes": [note for note in held.notes if note],
    }


def _hubs(run: Run) -> float:
    """Part of the push, in the first direction, on the candidates that have most of it."""
    _, side, _ = run.sides[0]
    total = torch.zeros(len(side.candidate), dtype=torch.float64)
    drawn = torch.zeros(len(side.candidate), dtype=torch.bool)
    for batch in run.plan.batches:
        index = batch.candidate_index.cpu()
        drawn[index] = True
        for pairs, weights, _ in run.blocks(side, batch, whole=False):
            push = statistics.push_of_negatives(weights, pairs)[:, : len(index)].sum(dim=0)
            total.index_add_(0, index, push.double().cpu())
    most = math.ceil(HUBS * int(drawn.sum()))
    whole_push = float(total.sum())
    return float(total.topk(most).values.sum()) / whole_push if whole_push > 0 else math.nan


def document(data: xr.Dataset) -> dict:
    """Make the JSON document of `cocos card --json`: an entry for each set, and one for each of its batch sizes."""
    made = {}
    for place, name in enumerate(map(str, data["set"].values)):
        one = data.isel(set=place)
        sizes = {
            str(size): {each: summaries.plain(one[each].values[k]) for each in BATCH_LABELS}
            for k, size in enumerate(data["batch_size"].values.tolist())
            if one["state"].values[k]
        }
        made[name] = {each: summaries.plain(one[each]) for each in SET_LABELS} | {"batch_sizes": sizes}
    return results.about(data.attrs) | {"trained": json.loads(data.attrs["said"]), "sets": made}
