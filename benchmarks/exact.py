"""The gate before the clock: compares every counter with dense float64, so that a fast but wrong one is never timed."""

import torch
from torch import Tensor

from benchmarks.cases import Case, Reading, Row
from benchmarks.ways import loss_of, prepare
from cocos.counting import statistics, weights
from cocos.embeddings import Embeddings, scores
from cocos.embeddings.batches import Batch
from cocos.embeddings.scores import Pairs

__all__ = ["Wrong", "at_size", "gate"]

# Number of queries compared with dense float64, each against every candidate.
SMALL = 512
# Number of queries checked at full size, in each direction.
SPOT = 32
# Largest number of queries for which the full size is checked.
LIMIT = 16384
# Relative and absolute tolerance (in units of the weight) of sums of shares computed from float32 scores.
RELATIVE, ABSOLUTE = 1e-3, 1e-5
# Below this eps so many candidates are close to it that some stay undecided; then their interval must be correct.
CROWDED = 1e-3
# Fraction of queries that may have a candidate within rounding of its threshold.
UNDECIDED = 0.05
NAMES = ("contributing", "uncertain", "weight_above", "weight_below", "weight_positive", "push", "pull")
SPREAD = ("effective", "participation")
TIE = 1e-12


class Wrong(ArithmeticError):
    """A counter differs from the reference; the message says where."""


def _sides(embeddings: Embeddings, batch: Batch | None) -> list[tuple[str, Embeddings, Batch | None]]:
    """Return each direction from the side of its queries."""
    there, back = (embeddings, batch), (embeddings.flip(), batch and batch.flip())
    return [(name, *side) for name, side in zip(embeddings.directions, (there, back), strict=False)]


def _right(reading: Reading, embeddings: Embeddings, batch: Batch | None, block: slice | None = None) -> dict:
    """Compute statistics of some queries from all of their float64 scores."""
    loss = loss_of(reading)
    directions = loss.directions
    pairs = scores.pairs(embeddings, batch, metric=loss.metric, block=block, directions=directions)
    found = {"unit": loss.unit(pairs).max()}
    found |= statistics.per_query(weights.of(loss, pairs), loss.unit(pairs), pairs, reading.eps)
    if pairs.source is not None:
        found |= statistics.by_source(weights.of(loss, pairs), loss.unit(pairs), pairs, reading.eps)
    return found | (loss.extra(pairs, reading.eps) if loss.adds_statistics else {})


def _compare(
    name: str, found: dict[str, Tensor], right: dict[str, Tensor], spread: bool, allowed: float = UNDECIDED
) -> None:
    """Check that counts are equal where no candidate is undecided, and sums within the error of float32 scores.

    Raises:
        Wrong: they are not.
    """
    if missing := [key for key in NAMES + (SPREAD if spread else ()) if key not in found]:
        raise Wrong(f"{name}: the result lacks {', '.join(missing)}")
    unsure = found["uncertain"]
    if (many := int((unsure > 0).sum())) > allowed * len(unsure):
        raise Wrong(f"{name}: {many} of {len(unsure)} queries are undecided")
    for key in sorted(set(found) & set(right)):
        got, want = found[key].double(), right[key].double()
        least = ABSOLUTE * (right["unit"] if key.endswith(("push", "pull")) else 1)
        wide = want.ndim > 1  # by source
        unsure = found["uncertain"][:, None] if wide else found["uncertain"]
        room = unsure if "contributing" in key else (RELATIVE * want.abs() + least).where(unsure == 0, torch.inf)
        if bool((bad := (got - want).abs() > room).any()):
            place = bad.nonzero()[0].tolist()
            got, want, row = got[*place], want[*place], ", source ".join(map(str, place))
            raise Wrong(f"{name}: {key} of query {row} is {got:.6g}, not {want:.6g} ({bad.sum()} are wrong)")


def _ranked(found, pairs: Pairs) -> bool:
    """Count, for every positive pair, the negatives above it and those tied with it."""
    query, candidate = pairs.positive.nonzero(as_tuple=True)
    over, negative = pairs.scores[query] - pairs.scores[query, candidate][:, None], pairs.negative[query]
    right = query, candidate, ((over > TIE) & negative).sum(dim=1), ((over.abs() <= TIE) & negative).sum(dim=1)
    order = (found.query * pairs.scores.shape[1] + found.candidate).argsort()
    parts = found.query, found.candidate, found.above, found.ties
    return all(torch.equal(part[order], want) for part, want in zip(parts, right, strict=True))


def _curved(found, pairs: Pairs) -> bool:
    """Count, for every positive pair, the negatives of the whole matrix at or above it."""
    own = pairs.scores[pairs.positive].sort(descending=True).values
    below = torch.searchsorted(pairs.scores[pairs.negative].sort().values, own - TIE)
    return torch.allclose(found.score, own) and torch.equal(found.negatives, pairs.negative.sum() - below)


def _binned(found: Tensor, pairs: Pairs) -> bool:
    """Compare histograms of the negatives of every query in 64 bins; two negatives may lie on the edge of one."""
    right = torch.stack([row[own].histc(64, -1, 1) for row, own in zip(pairs.scores, pairs.negative, strict=True)])
    return torch.equal(found.sum(dim=1), right.sum(dim=1).long()) and bool(
        ((found - right).abs().sum(dim=1) <= 2).all()
    )


def _plain(reading: Reading, found, sides: list[Pairs]) -> None:
    """Check a reader of ranks or scores.

    Raises:
        Wrong: it differs from a count over all scores.
    """
    if reading.name == "precision_recall":
        found, sides = (found,), sides[:1]
    check = {"ranks": _ranked, "precision_recall": _curved, "histogram": _binned}[reading.name]
    if not all(check(each, pairs) for each, pairs in zip(found, sides, strict=True)):
        raise Wrong(f"{reading.name}: differs from a count over all scores")


def _passed(row: Row, found: list, wide: Embeddings, batch: Batch | None, block: slice | None = None) -> None:
    for reading, counted in zip(row.readings, found, strict=True):
        loss, sides = loss_of(reading), _sides(wide, batch)
        if loss is None and block is None:
            _plain(reading, counted, [scores.pairs(*side) for _, *side in sides])
        elif loss is not None and (block is None or loss.couples == "query"):
            for (name, *side), whole in zip(sides, counted, strict=True):
                part = {key: value[block or slice(None)].cpu() for key, value in whole.items()}
                allowed = UNDECIDED if reading.eps >= CROWDED else 1
                _compare(f"{reading.name}, {name}", part, _right(reading, *side, block), reading.spread, allowed)


def _everything(embeddings: Embeddings) -> Batch:
    """Return all rows as one batch."""
    return Batch(*(torch.arange(len(side)) for side in (embeddings.query, embeddings.candidate)), paired=False)


def gate(row: Row, case: Case, kind: str) -> int:
    """Check a row on a small input of the same kind; return the number of queries compared, over both directions.

    Raises:
        Wrong: it differs from dense float64.
    """
    if row.way not in {"pass", "columns", "count", "naive", "naive-columns"}:
        return 0
    embeddings, batches = case.inputs.small(SMALL).draw(case.device)
    wide = embeddings.to("cpu", torch.float64)
    whole = tuple(batch or _everything(embeddings) for batch in batches) if row.way == "count" else batches
    for batch, found in zip(batches, prepare(row, embeddings, whole, kind)(), strict=True):
        if row.way == "naive-columns":
            if not torch.equal(found, _right(row.readings[0], wide, batch)["source_contributing"][:, :3]):
                raise Wrong(f"{row.name}: counts by source differ from dense float64")
            continue
        if row.way in {"pass", "columns", "count"}:
            _passed(row, [found] if row.way == "count" else found, wide, batch)
            continue
        (reading,) = row.readings
        for (_, *side), (count, _) in zip(_sides(wide, batch), found, strict=True):
            if not torch.allclose(_right(reading, *side)["contributing"].double(), count.double().cpu()):
                raise Wrong(f"{row.name}: counts differ from dense float64")
    return sum(len(side) for side in (wide.query, wide.candidate)[: len(wide.directions)])


def at_size(row: Row, found: list, embeddings: Embeddings, batches: tuple[Batch | None, ...] = (None,)) -> int:
    """Check some queries of the timed input itself, if they can be computed alone; return their number.

    Raises:
        Wrong: it differs from dense float64.
    """
    number = len(embeddings.query)
    couples = [loss.couples for loss in map(loss_of, row.readings) if loss is not None]
    if row.way not in {"pass", "columns"} or len(found) > 1 or not SMALL < number <= LIMIT or "query" not in couples:
        return 0
    block = slice(number // 2, number // 2 + SPOT)
    batch = batches[0] if row.way == "columns" else None
    _passed(row, found[0], embeddings.to("cpu", torch.float64), batch, block)
    return SPOT * len(embeddings.directions)
