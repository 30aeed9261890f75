"""Which candidates make up the gradient of one query?"""

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Annotated, Any, Unpack

import torch
import xarray as xr
from torch import Tensor

from cocos import losses, results
from cocos.base.errors import InputError
from cocos.base.ranges import Share, checked, whole
from cocos.checkpoints import Checkpoint
from cocos.counting import shares, statistics
from cocos.counting.weights import check_pairs
from cocos.embeddings import Embeddings
from cocos.embeddings.options import DEFAULTS, ONE_BATCH_DEFAULTS, OneBatch, fill_options
from cocos.embeddings.sampling import Batch
from cocos.embeddings.scores import Pairs, Scores
from cocos.measures.shared.prepared import Run, drawn_from, loss_for, planned, prepare

CONTRIBUTOR_LABELS = {
    "candidate_index": ("row of the candidate", "1"),
    "group": ("group of the candidate", "1"),
    "score": ("score", "score"),
    "weight": ("weight: below 0 pulls, above 0 pushes", "weight"),
    "share": ("share of the unit", "share"),
    "part": ("push or pull fraction", "1"),
    "held": ("cumulative fraction", "1"),
    "positive": ("positive", "1"),
}


def _first(batches: Sequence[Batch], row: int, second: bool) -> int | None:
    """Number of the first batch that contains a query; None if none does."""
    for number, batch in enumerate(batches):
        if bool(((batch.flip() if second else batch).query_index == row).any()):
            return number
    return None


def _in_front(batch: Batch, row: int, side: Embeddings) -> Batch:
    """A batch with a query in front, so that the first block of the scores contains it."""
    place, order = int((batch.query_index == row).nonzero()[0, 0]), torch.arange(len(batch.query_index))
    order = torch.cat([order[place : place + 1], order[:place], order[place + 1 :]]).to(batch.query_index.device)
    candidate = batch.candidate_index
    if batch.paired or side.shared:
        candidate = torch.cat([candidate[: len(order)][order], candidate[len(order) :]])
    return replace(batch, query_index=batch.query_index[order], candidate_index=candidate)


def _middle(run: Run, side: Embeddings, second: bool) -> int:
    """Find the row with the median number of contributing negatives, or of `relative`, in the first batch."""
    batch = run.plan.batches[0].flip() if second else run.plan.batches[0]
    blocks = run.blocks(side, batch, whole=False)
    counts = []
    for pairs, weights, unit in blocks:
        by_push = unit.isnan().any()
        share = statistics.spread(weights, pairs) if by_push else weights.abs() / unit
        counts.append(statistics.contributing(share, pairs, run.eps))
    order = torch.cat(counts).argsort(stable=True)
    return int(run.numbers(batch.query_index[order[(len(order) - 1) // 2]], second))


def _ranked(pairs: Pairs, weights: Tensor, share: Tensor, index: Tensor, eps: float) -> tuple[dict, dict]:
    """Columns of the candidates of the first query by falling share, (C,) each, and totals over all of them.

    Where the unit of the loss is unknown, the order is that of the weights, and there are no totals by share.
    """
    spread, push, pull = statistics.spread(weights, pairs), statistics.push(weights)[0], statistics.pull(weights)[0]
    above, known = (share > eps) & pairs.negative, not share[0].isnan().any()
    weights, share, positive, above = (each[0] for each in (weights, share, pairs.positive, above))
    total = torch.where(weights < 0, pull, push)
    part = torch.where(weights != 0, weights.abs() / torch.where(total > 0, total, 1), 0)
    there = (pairs.positive | pairs.negative)[0].nonzero().flatten()
    for values in (
        -index,
        pairs.scores[0],
        share if known else weights.abs(),
    ):  # of equal shares the higher score first
        there = there[values[there].argsort(descending=True, stable=True)]
    order = there
    every = {"score": pairs.scores[0], "weight": weights, "share": share, "part": part, "positive": positive}
    every |= {"candidate_index": index, "contributes": above if known else torch.full_like(share, torch.nan)}
    columns = {name: values[order] for name, values in every.items()}
    pulls, parts = weights[order] < 0, part[order]
    columns["held"] = torch.where(pulls, (parts * pulls).cumsum(0), (parts * ~pulls).cumsum(0))
    by_unit = {"contributing": int(above.sum()), "contributing_part": float(part[above & (weights > 0)].sum())}
    return columns, {
        "push": float(push),
        "pull": float(pull),
        "positives": int(positive.sum()),
        "negatives": int(pairs.negative[0].sum()),
        "left_out": len(index) - len(order),
        "repeated": len(order) - len(index[order].unique()),
        "relative": int(statistics.relative(spread, eps)[0]),
        "relative_part": float(spread[0][spread[0] > eps].sum()),
        "effective": float(statistics.effective(spread)[0]),
    } | (by_unit if known else {})


@checked
def contributors(
    embeddings: Embeddings | Scores | Checkpoint,
    loss="ntxent",
    eps: Share = 0.01,
    *,
    row: int | None = None,
    direction: str | None = None,
    top: Annotated[int, whole(1)] | None = 20,
    **sampling: Unpack[OneBatch],
) -> xr.Dataset:
    """List the candidates of one query by their share of its gradient, in the first batch that contains it.

    A query that is drawn twice in that batch, with two of its positives, counts at its first place.

    Args:
        embeddings: embeddings of the training set, or a checkpoint (its training set is encoded).
        loss: a loss, or its name; a name takes the parameters that the checkpoint recorded for it.
        eps: smallest share that contributes.
        row: of the query, in the embeddings of the side that asks; None: the one with the median count of contributing
            negatives in the first batch.
        direction: which side asks; None: the first one.
        top: number of candidates to list. All, or None in Python, lists every one; totals always cover all.
        **sampling: options of the batches, see `Sampling`.

    Returns:
        Each (candidate,), from the largest share to the smallest: `candidate_index`, its row; `group`; `score`;
        `weight`, signed; `share`, |weight| / unit; `part`, its fraction of the push or, below zero, of the pull, and
        `held`, the cumulative fraction up to it; `positive`; `contributes`, a negative above eps.
        Totals are in the attributes: `push`, `pull`, `positives`, `negatives`, `contributing`, `effective`;
        `left_out`, candidates of the batch that are neither; and `repeated`, rows that repeat a candidate.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> ntxent = cocos.losses.load("ntxent", {"temperature": 1})
        >>> data = cocos.measures.contributors(embeddings, ntxent, row=0, batch_size="all")
        >>> data["share"].values.round(3).tolist()  # 1 - e / (e + 2), and 1 / (e + 2) twice
        [0.424, 0.212, 0.212]
    """
    sampling = fill_options("contributors", sampling, ONE_BATCH_DEFAULTS)
    if row is not None and not isinstance(row, Integral):
        raise InputError(f"row: {row!r}, expected an integer")
    own: dict[str, Any] = {}
    before, every = 0, 0
    if disk := drawn_from(embeddings, DEFAULTS | sampling | {"batches": 1}):
        loss = losses.as_loss(loss_for(loss, embeddings))
        plan = planned(disk, loss, DEFAULTS | sampling)
        second = disk.directions.index(results.direction(direction, disk.directions)) == 1
        before, every = (row is not None and _first(plan.batches, row, second)) or 0, len(plan.batches)
        own["batches"] = replace(plan, batches=(plan.batches[before],))  # the one that is looked at is read
    run = prepare(embeddings, loss, eps=eps, scored=True, **sampling | own)
    check_pairs(run.loss, "contributors")
    direction, side, second = run.side(direction)
    row = _middle(run, side, second) if row is None else row
    rows = len(side.query) if run.stored is None else run.stored.sides[second].shape[0]
    if not 0 <= row < rows:
        raise InputError(f"row: {row}, expected one of the queries of {direction}, 0 to {rows - 1}")
    every, place = every or len(run.plan.batches), run.place(row, second)
    number = _first(run.plan.batches, place, second)
    if number is None:
        raise InputError(
            f"row: {row} of {direction} is in none of the {every} batches; batch size all has every query that has a "
            "positive"
        )
    batch = run.plan.batches[number]
    batch = _in_front(batch.flip() if second else batch, place, side)
    pairs, weights, unit = next(run.blocks(side, batch, whole=False))
    index = batch.candidate_index
    if isinstance(side, Scores):
        index = side.candidates(torch.full_like(index, row), index)
    found, totals = _ranked(pairs, weights, weights.abs() / unit, index, eps)
    groups = side.query_group, side.candidate_group
    known = groups[0] is not None and groups[1] is not None  # scores have groups or masks
    found["group"] = groups[1][found["candidate_index"]] if known else found["candidate_index"]
    found["candidate_index"] = run.numbers(found["candidate_index"], not second)
    attrs = run.provenance(
        title=f"Contributors of row {row} of {direction}, {run.loss.name}",
        row=int(row),
        group=int(groups[0][place]) if known else int(row),
        direction=direction,
        batch=before + number,
        batches=every,
        **totals,
    )
    labels = CONTRIBUTOR_LABELS | {"contributes": (f"is a negative, {shares.above(attrs)}", "1")}
    variables = {name: ("candidate", found[name][:top], *about) for name, about in labels.items()}
    variables["candidate"] = ("candidate", range(1, len(found["share"][:top]) + 1), "rank by share", "1")
    return results.labelled(variables, attrs, measure="contributors")


def rest(data: xr.Dataset, shown: int) -> tuple[int, float]:
    """Count the negatives beyond the first candidates of a query, and add up their part of its push."""
    first = data.isel(candidate=slice(shown))
    pushing = ~first["positive"] & (first["weight"] > 0)
    held = float(first["part"].where(first["weight"] > 0, 0).sum())
    left = data.attrs["negatives"] - int((~first["positive"]).sum())
    return left, max(0.0, 1 - held) if left and data.attrs["push"] > 0 and bool(pushing.any()) else 0.0
