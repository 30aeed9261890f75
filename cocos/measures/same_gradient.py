"""Are two losses, or two ways of computing one, the same gradient: of every row, and of every pair?"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import xarray as xr

from cocos import results
from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint
from cocos.checkpoints.encoders import device_of
from cocos.embeddings import Embeddings
from cocos.embeddings.scores import cosine
from cocos.engine.prepared import embedded
from cocos.engine.sampling import Progress, whole_number
from cocos.losses.external.sides import Sides
from cocos.measures._compared import NEXT_STEPS, Compared, Outcome, by_kind
from cocos.measures._kinds_of_pairs import ENDS, PAIR_KINDS, RowKinds, fit
from cocos.measures._rows_of_pairs import (
    OWN_COORDINATE,
    PairGradients,
    PairRows,
    drawn,
    drawn_groups,
    gradients,
    grouped,
    stretched,
    synthetic,
)
from cocos.measures._same_verdict import outcome
from cocos.measures._ways import WAY_DTYPES, Way, way

# Largest difference of gradients that are the same, in parts of the largest gradient of a row: what the rounding of a
# dtype leaves at temperatures from 0.05 on.
TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
# End of a verdict on losses of several positives that were compared with one.
ONE_POSITIVE = "with one positive a query"
# Hard negatives of a query of a synthetic batch.
SYNTHETIC_HARD = 2
# Largest distance of the length of a row from 1, if the rows are unit vectors.
UNIT_LENGTH = 1e-3
# Parameters by which a gradient may be multiplied.
SCALING_PARAMETERS = ("temperature", "scale", "unit", "gamma")


def _batches(
    embeddings: Embeddings | None, number: int, batches: int, losses: Sequence[Sides], seed: int, device: str | None
) -> list[PairRows]:
    """Batches to compare: those with hard negatives, if there are any, follow one without where both losses can."""
    named = embeddings is None or embeddings.negatives is not None
    hard, needed = all(loss.columns for loss in losses) and named, any(loss.needed for loss in losses)
    made = []
    for place in range(batches):
        beside = hard and (needed or place % 2 == 1)
        if embeddings is None:
            made.append(synthetic(number, SYNTHETIC_HARD if beside else 0, seed + place, device_of(device or "cpu")))
        else:
            made.append(drawn(embeddings, number, beside, seed + place))
    return made


def _further(
    embeddings: Embeddings | None, number: int, a: Way, b: Way, seed: int, device: torch.device, dtype: str
) -> list[PairRows]:
    """Batches that the data may not have: several positives of a query, and cosines over the whole range.

    Ways that cut a batch keep no groups, losses of hard negatives or of annotations alone are not asked, and a narrow
    dtype rounds cosines near 1 too much.
    """
    found: list[PairRows | None] = []
    if all(each.whole and each.loss.several == "groups" and not each.loss.needed for each in (a, b)):
        made = grouped(number, seed, device) if embeddings is None else drawn_groups(embeddings, number, seed)
        found.append(made)
    if dtype == "float64" and not any(each.loss.needed or each.loss.reads for each in (a, b)):
        found.append(stretched(number, seed, device))
    return [each for each in found if each is not None]


def _counts(a: Way, b: Way, number: int) -> tuple[tuple[float, str], ...]:
    """Numbers that a factor between two losses may be, each with a word for it."""
    found: list[tuple[float, str]] = []
    for one in (a, b):
        if one.way in {"ranks", "accumulate"}:
            word = "world size" if one.way == "ranks" else "mini-batches"
            found.append((
                float(one.number),
                f"{one.number} {word}?" if word == "mini-batches" else f"world size {one.number}?",
            ))
        for name in SCALING_PARAMETERS:
            value = one.scaling.get(name)
            if isinstance(value, int | float) and 0 < value < math.inf:
                found.append((float(value), f"the {name}?"))
    return (
        *found,
        (float(number), f"mean against sum over {number} queries?"),
        (float(number**2), "mean over pairs against sum over pairs?"),
    )


def _compared(a: Way, b: Way, rows: PairRows, rounded: torch.dtype | None, tolerance: float) -> Compared:
    """Gradients of both losses on a batch, and what the questions of the verdict need beside them."""
    for each in (a, b):
        each.fits(rows.number)
    a, b = (replace(each, loss=replace(each.loss, beside=rows.beside)) for each in (a, b))
    turned: list[PairGradients | None] = [None, None]
    if not rows.hard and not a.loss.reads and not b.loss.reads:
        other = PairRows(rows.candidate, rows.query, None)
        order = torch.arange(2 * rows.number).roll(rows.number)
        for place, each in enumerate((a, b)):
            found = gradients(each.spelling, each, other, rounded)
            turned[place] = PairGradients(found.value, found.rows[order.to(found.rows.device)], None)
    norms = rows.matrix.norm(dim=1)
    return Compared(
        gradients(a.spelling, a, rows, rounded),
        gradients(b.spelling, b, rows, rounded),
        RowKinds(rows.number, rows.hard, rows.query.device),
        tolerance,
        turned[0],
        turned[1],
        bool(((norms - 1).abs() <= UNIT_LENGTH).all()),
        _counts(a, b, rows.number),
        (1 - OWN_COORDINATE**2) * cosine(rows.matrix, rows.matrix),
        a.scale,
        rounded is not None,
        rows.beside.groups,
        rows.beyond,
    )


def _decided(
    a: Way, b: Way, batches: list[PairRows], rounded: torch.dtype | None, room: float, progress: Progress | None
) -> tuple[PairRows, Compared, Outcome]:
    """The first batch on which they differ, or the last one of the data with a gradient, and its outcome."""
    report = progress and progress("comparing gradients")
    shown: tuple[PairRows, Compared, Outcome] | None = None
    for place, rows in enumerate(batches):
        both = _compared(a, b, rows, rounded, room)
        found = outcome(both)
        if report:
            report(place + 1, len(batches))
        further = rows.several or rows.beyond
        if shown is None or (found.kind != "idle" and not (further and found.same)):
            shown = rows, both, found
        if not found.same and found.kind != "idle":
            break
    assert shown is not None  # there is a batch
    return shown


def _read_several(a: Way, b: Way) -> bool:
    """Whether both take several positives of a query, and are not one loss that is computed in two ways."""
    one, other = (each.spelling.partition("@")[0].strip() for each in (a, b))
    alike = one == other and a.parameters == b.parameters
    return bool(a.loss.several and b.loss.several) and not alike


def _dtypes(a: Way, b: Way) -> tuple[str, torch.dtype | None]:
    """The narrowest dtype of the two, and the one to which the rows are rounded for both."""
    own = [name for name, dtype in WAY_DTYPES.items() if dtype in {a.dtype, b.dtype}]
    return (own[-1], WAY_DTYPES[own[-1]]) if own else ("float64", None)


def same_gradient(
    a: Any,
    b: Any,
    embeddings: Embeddings | Checkpoint | None = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    batch_size: int = 64,
    batches: int = 2,
    tolerance: float | None = None,
    seed: int = 0,
    split: str = "train",
    device: str | None = None,
    progress: Progress | None = None,
) -> xr.Dataset:
    """Compare the gradients of two losses, or of two ways of computing one, and say in a sentence what differs.

    Both see the same batches: pairs of different groups, first without and then with hard negatives of each query;
    where both take several positives, a batch of groups; and, in float64, one whose cosines fill the range. By
    autograd down to the embeddings, and to the derivative of every single pair as it reaches each of its two rows.

    Args:
        a: a loss, its name, or a function of (query, candidate) or (query, candidate, negatives), which are (N, D),
            (N, D) and (N, K, D); candidate i belongs to query i. It returns one number or one per query, of which the
            mean is taken. After a name, `@` says how it is computed: `ntxent@temperature=0.05`, `@cached=32` (gradient
            caching), `@chunks=32` (of queries), `@ranks=2` (processes; `gather=grad`, `detached` or `none`,
            `loss=local` or `global`), `@accumulate=4` (mini-batches), `@dtype=bfloat16`, `@reduction=sum`.
        b: likewise.
        embeddings: real ones, or a checkpoint; None: synthetic unit vectors.
        parameters: of both losses, where they have them.
        batch_size: pairs of a batch.
        batches: number of batches.
        tolerance: largest difference of gradients that are the same, in parts of the largest gradient of a row; None:
            1e-9 in float64, 1e-4 in float32, 1e-2 in float16 and 5e-2 in bfloat16.
        seed: for drawing the batches.
        split: of the checkpoint's data.
        device: `auto`, `cpu` or `cuda`; None: where the embeddings are.
        progress: called with the name of each part of the work; gives a function of (done, in all).

    Returns:
        Of the first batch on which they differ, or of the last one: `ratio`, `gap` and `part` (end, kind): the factor
        of B over A, the largest difference from it, and the part of A's weights, of each kind of pair by the end that
        it reaches; `row_ratio` and `row_gap` (row,). Attributes: `verdict`, `next`, `same`, `ratio`, `gap`, `cosine`.

    Raises:
        InputError: an unknown loss or way, a batch that does not divide, or a loss that fails.

    Examples:
        >>> cocos.measures.same_gradient("ntxent", "ntxent@cached=16").attrs["verdict"]
        'the same'
        >>> cocos.measures.same_gradient("ntxent", "ntxent@reduction=sum").attrs["verdict"]
        'the same up to a factor of 64.00 (mean against sum over 64 queries?)'
    """
    for name, value, least in (("batch size", batch_size, 4), ("batches", batches, 1), ("seed", seed, 0)):
        whole_number(name, value, least)
    if tolerance is not None and not 0 <= tolerance < 1:
        raise InputError(f"tolerance: {tolerance}, expected a part of the largest gradient: at least 0, below 1")
    first, second = (way(each, dict(parameters or {})) for each in (a, b))
    for name in parameters or {}:
        if not any(name in each.parameters for each in (first, second)):
            raise InputError(f"parameter {name}: neither {first.spelling} nor {second.spelling} has it")
    identity = {}
    if isinstance(embeddings, Checkpoint):
        identity = embeddings.identity() | {"split": split}
    given = None if embeddings is None else embedded(embeddings, split, device, progress)
    real = None if given is None else given.to(dtype=torch.float64)
    dtype, rounded = _dtypes(first, second)
    room = TOLERANCES[dtype] if tolerance is None else tolerance
    drawn_ = _batches(real, batch_size, batches, (first.loss, second.loss), seed, device)
    place, fewest = drawn_[0].query.device, min(batch_size, drawn_[0].number)
    further = _further(real, fewest, first, second, seed + batches, place, dtype)
    rows, both, found = _decided(first, second, [*drawn_, *further], rounded, room, progress)
    if found.same and not any(each.several for each in further) and _read_several(first, second):
        found = replace(found, verdict=f"{found.verdict}, {ONE_POSITIVE}")
    notes = _notes(first, second, drawn_, rows, found, both, real, batch_size)
    attrs = results.versions() | identity
    attrs |= {
        "title": f"Gradients of {first.spelling} and {second.spelling}",
        "a": first.spelling,
        "b": second.spelling,
        "pairs": rows.number,
        "hard_negatives": rows.hard,
        "batches": len(drawn_),
        "seed": seed,
        "dtype": dtype,
        "tolerance": room,
        "notes": "\n".join(notes),
    }
    return _dataset(both, found, attrs)


def _notes(
    a: Way,
    b: Way,
    drawn_: list[PairRows],
    rows: PairRows,
    found: Outcome,
    both: Compared,
    real: Embeddings | None,
    batch_size: int,
) -> list[str]:
    """Sentences beside the verdict."""
    notes = []
    lacking = [each.spelling for each in (a, b) if not each.loss.columns]
    if lacking and (real is None or real.negatives is not None):
        plural = "take" if len(lacking) > 1 else "takes"
        notes.append(f"{' and '.join(lacking)} {plural} no hard negatives, so the batches have none")
    if rows.number < batch_size:
        notes.append(f"batches of {rows.number} pairs: there are no more groups with a query and a candidate")
    if both.pairs is None:
        notes.append("a loss depends on the width of the embeddings, so that single pairs are not compared, rows are")
    if rows.hard and not found.same and not drawn_[0].hard:
        notes.append("without hard negatives they are the same")
    return notes


def _dataset(both: Compared, found: Outcome, attrs: dict) -> xr.Dataset:
    """Label the ratios by kind of pair and by row."""
    shape = (len(ENDS), len(PAIR_KINDS))
    ratio, gap, part = (np.full(shape, np.nan) for _ in range(3))
    scale = 1.0 if both.pairs is None else max(float(each.abs().max()) for each in both.pairs) or 1.0
    for end, kind, each, share in by_kind(both):
        place = ENDS.index(end), PAIR_KINDS.index(kind)
        ratio[place], gap[place], part[place] = each.ratio, each.off / scale, share
    fits = [fit(one, other) for one, other in zip(both.first.rows, both.second.rows, strict=True)]
    a, b = both.first.rows, both.second.rows
    largest = max(float(a.abs().max()), 1e-300)
    angle = float(torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0))
    off = float((b - a).abs().max()) / largest
    variables = {
        "ratio": (("end", "kind"), ratio, "gradient of B in parts of A's"),
        "gap": (("end", "kind"), gap, "largest difference from that ratio", "largest weight"),
        "part": (("end", "kind"), part, "part of A's weights"),
        "row_ratio": ("row", [each.ratio for each in fits], "gradient of B in parts of A's"),
        "row_gap": (
            "row",
            [each.off / largest for each in fits],
            "largest difference from that ratio",
            "largest gradient",
        ),
        "row_end": ("row", np.array(ENDS)[both.layout.end.cpu().numpy()], "kind of row"),
        "end": ("end", list(ENDS), "row that the gradient reaches"),
        "kind": ("kind", list(PAIR_KINDS), "kind of pair"),
    }
    attrs |= {
        "verdict": found.verdict,
        "same": int(found.same),
        "found": found.kind,
        "next": "" if found.same else NEXT_STEPS.get(found.kind, ""),
        "ratio": found.ratio,
        "gap": off,
        "cosine": angle,
        "value_a": both.first.value,
        "value_b": both.second.value,
    }
    return results.labelled(variables, attrs)


def document(data: xr.Dataset) -> dict:
    """Make the JSON document; None for a number that does not exist."""

    def number(value: Any) -> float | None:
        return float(value) if np.isfinite(value) else None

    kinds = [
        {
            "reaches": str(end),
            "kind": str(kind),
            **{name: number(data[name].sel(end=end, kind=kind)) for name in ("ratio", "gap", "part")},
        }
        for end in data["end"].values
        for kind in data["kind"].values
        if np.isfinite(data["part"].sel(end=end, kind=kind))
    ]
    plain = ("a", "b", "verdict", "next", "found", "pairs", "hard_negatives", "batches", "seed", "dtype", "tolerance")
    return {
        **{name: data.attrs[name] for name in plain},
        "same": bool(data.attrs["same"]),
        **{name: number(data.attrs[name]) for name in ("ratio", "gap", "cosine", "value_a", "value_b")},
        "kinds": kinds,
        "notes": data.attrs["notes"].splitlines(),
    }
