"""Are the weights of a loss its gradient: in every regime, in every dtype, and on real batches?"""

import contextlib
import math
from collections.abc import Iterator
from typing import Unpack

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import losses, results
from cocos.base.errors import InputError, Unfit
from cocos.checkpoints import Checkpoint
from cocos.counting import health, weights
from cocos.embeddings import Embeddings, regimes
from cocos.engine.prepared import Run, prepare
from cocos.engine.sampling import Sampling, sampled
from cocos.measures import _trials
from cocos.measures._trials import TRIED_DTYPES, Trial
from cocos.measures._verdict import TrialResult, faults_of, notes_of, saturation, verdict_of

# Gradients below this size are not compared.
NEGLIGIBLE = 1e-9


def _largest(values: Tensor) -> tuple[float, tuple[int, int]]:
    values = values.double().nan_to_num(nan=math.inf)
    return values.max().item(), divmod(int(values.argmax()), values.shape[1])


def _dtypes(loss, pairs, size: float, found: TrialResult) -> None:
    """Gap and error in every dtype that the loss can be computed in."""
    closed = losses.has_closed_form(loss)
    for name, dtype in TRIED_DTYPES.items():
        try:
            rounded = _trials.cast(pairs, dtype)
            plain = weights.autograd(loss, rounded)
            ours = loss.weight(rounded) if closed or losses.traits(loss).through_scores else plain
        except (InputError, RuntimeError):
            continue  # scores beyond the range of the dtype, or an operation that PyTorch does not have in it
        exact = weights.of(loss, _trials.cast(rounded, torch.float64))
        found.error[name] = _largest((ours.double() - exact).abs())[0] / size
        if closed:
            gap, at = _largest((ours.double() - plain.double()).abs())
            found.gap[name] = gap / size
            found.gap_at = at if name == "float64" else found.gap_at


def _against(loss, other, pairs) -> tuple[float, float]:
    """Distance from another loss up to a factor, and the factor: of the weights, or of the embeddings' gradients."""
    if _trials.reads_embeddings(loss) or _trials.reads_embeddings(other):
        ours, theirs = (_trials.embedding_gradient(each, pairs)[1] for each in (loss, other))
    else:
        own_twin = other is losses.traits(loss).twin and hasattr(loss, "twin_weight")
        ours, theirs = weights.of(loss, pairs), loss.twin_weight(pairs) if own_twin else weights.of(other, pairs)
    if max(ours.abs().max().item(), theirs.abs().max().item()) < NEGLIGIBLE:
        return math.nan, math.nan
    ratio = ((ours * theirs).sum() / theirs.square().sum().clamp(min=1e-300)).item()
    return (ours - ratio * theirs).abs().max().item() / max(ours.abs().max().item(), 1e-12), ratio


def _tried(loss, other, trial: Trial) -> TrialResult:
    """Put every question to one trial. An exception of the loss itself is an answer."""
    found, pairs = TrialResult(trial), trial.pairs
    try:
        value, weight = loss(pairs), weights.of(loss, pairs)
        unit = loss.unit(pairs)
    except Unfit:
        raise
    except Exception as error:
        said = str(error).partition("\n")[0][:240]
        found.broken = said if isinstance(error, InputError) else f"{type(error).__name__}: {said}"
        return found
    if not (value.isfinite().all() and weight.isfinite().all()):
        found.broken = "its loss or its weights are NaN or infinite"
        return found
    found.largest = weight.abs().max().item()
    size = max(found.largest, unit.nan_to_num(1.0).min().item())
    _dtypes(loss, pairs, size, found)
    known = losses.traits(loss)  # whose columns have places of their own where there are more than candidates
    fixed = (known.matching == "columns" or len(known.directions) > 1) and len(set(pairs.scores.shape)) > 1
    if not known.draws and not fixed:
        found.order = _order(loss, pairs, weight) / size
    if trial.smooth:
        if not (known.graded and known.through_scores):  # the score of a pair stands in all rows and cannot move in one
            found.slope, found.slope_at = _trials.slopes(loss, pairs, weight, size)
        if other is not None:
            found.against, found.ratio = _against(loss, other, pairs)
    return found


def _order(loss, pairs, weight: Tensor) -> float:
    """Largest change of a weight when queries and candidates are in another order; inf where they cannot be."""
    shuffled, rows, columns = _trials.permuted(pairs, together=losses.traits(loss).matching in {"rows", "columns"})
    try:
        return (weights.of(loss, shuffled) - weight[rows][:, columns]).abs().max().item()
    except Exception:
        return math.inf


def _synthetic(loss) -> tuple[losses.Loss, list[Trial]]:
    """A loss, bound if it must be, and the synthetic inputs that fit it."""
    loss = losses.of(loss)
    try:  # where the code of others keeps its scores shows with the first batch
        loss = weights.bound(loss, _trials.square(0, loss.metric, losses.traits(loss).directions))
    except Unfit:
        loss = weights.bound(loss, regimes.labelled(loss.metric))
    return loss, [trial for trial in _trials.synthetic(loss) if _trials.fits(loss, trial)]


def _real(run: Run) -> Iterator[Trial]:
    """The batches of a run, every direction of each."""
    for number, batch in enumerate(run.plan.batches):
        for name, side, second in run.sides:
            for pairs in run.pairs(side, batch.flip() if second else batch, whole=True):
                yield Trial(f"batch {number} {name}", pairs)


@sampled(without=["same_group", "dtype"], batches=2)
def verify(
    loss="ntxent",
    embeddings: Embeddings | Checkpoint | None = None,
    *,
    against=None,
    **sampling: Unpack[Sampling],
) -> xr.Dataset:
    """Compare the closed form of a loss with torch.func and with finite differences, in four dtypes.

    Without embeddings the inputs are nine regimes of synthetic input, square batches and labelled sets, four seeds
    each; with embeddings they are real batches. Finite differences move every score by itself in small batches, and all
    scores along random directions in large ones; a loss of yours that reads embeddings has these moved.

    Args:
        loss: a loss, or its name.
        embeddings: real ones, or a checkpoint.
        against: another loss that it should equal, up to a factor; or its name, with the parameters of the same name.
            None: the loss of the shelf whose unit a loss of another library takes.
        **sampling: options of the batches, see `cocos.sampling.Sampling`.

    Returns:
        `gap` (case, dtype), closed form against autograd; `error` (case, dtype), against float64 on the same rounded
        input; `finite_difference` (case,); `against` (case,), each in parts of the largest weight of the case, NaN
        where it does not apply; `largest` (case,). Attributes: `verdict`, `faults` and `notes`, a sentence a line.

    Raises:
        InputError: an option or an embedding that cannot be used, or two losses that read different scores.

    Examples:
        >>> cocos.measures.verify("triplet").attrs["faults"]
        ''
    """
    checkpoint = embeddings if isinstance(embeddings, Checkpoint) else None
    if isinstance(loss, str):
        loss = checkpoint.loss(loss)[0] if checkpoint else losses.load(loss)
    if isinstance(loss, losses.Layered):
        weights.of(loss, _trials.square(0, loss.metric))  # refuses, and says what to verify
    other = against
    if isinstance(against, str):
        shared = losses.parameters(losses.load(against)).keys() & losses.parameters(loss).keys()
        other = losses.load(against, {name: losses.parameters(loss)[name] for name in shared})
    run = None if embeddings is None else prepare(embeddings, loss, **sampling)
    loss, trials = _synthetic(loss) if run is None else (run.loss, list(_real(run)))
    twin = losses.traits(loss).twin if losses.counterpart(losses.name_of(loss)) else None
    if other is None and twin is not None and twin.metric == loss.metric:
        other = twin
    if other is not None and other.metric != loss.metric:
        raise InputError(
            f"against {losses.name_of(other)}: it reads {other.metric} scores and {losses.name_of(loss)} reads "
            f"{loss.metric}, so their weights cannot be compared"
        )
    progress = sampling["progress"]
    report = progress and progress(f"verifying {losses.name_of(loss)}")
    founds = []
    for done, trial in enumerate(trials):
        with contextlib.suppress(Unfit):  # rows that the loss cannot be told are no fault of it
            founds.append(_tried(loss, other, trial))
        if report:
            report(done + 1, len(trials))
    if not founds:
        raise InputError(
            f"loss {losses.name_of(loss)}: none of the inputs fits it; give a file of embeddings that does"
        )
    saturated, compared = saturation(loss, other), _trials.parity(loss)
    faults = faults_of(loss, other, founds, saturated, compared)
    loud = "" if run is None else health.sentence(run.spread, health.called(run.embeddings))
    attrs = results.provenance(
        loss,
        title=f"Verification, {losses.name_of(loss)}",
        against=losses.name_of(other) if other is not None else None,
        verdict=verdict_of(loss, other, founds, faults),
        saturated="; ".join(saturated.values()),
        peer=compared[2] if compared else "",
        peer_value=compared[0] if compared else math.nan,
        peer_gradient=compared[1] if compared else math.nan,
        faults="\n".join(faults),
        notes="\n".join([*filter(None, [loud]), *notes_of(loss, other, founds, saturated)]),
        **(checkpoint.identity() | {"split": sampling["split"]} if checkpoint else {}),
    )
    return _dataset(founds, attrs)


def _dataset(founds: list[TrialResult], attrs: dict) -> xr.Dataset:
    """Label the results of the trials, (case, dtype) and (case,)."""
    dtypes = {
        name: np.array([[getattr(f, name).get(dtype, math.nan) for dtype in TRIED_DTYPES] for f in founds])
        for name in ("gap", "error")
    }
    off, slopes = "largest weight of the case", [f.slope for f in founds]
    variables = {
        "gap": (("case", "dtype"), dtypes["gap"], "closed form against autograd in the same dtype", off),
        "error": (("case", "dtype"), dtypes["error"], "against float64 on the same rounded input", off),
        "finite_difference": ("case", slopes, "gradient against central differences in float64", off),
        "against": ("case", [f.against for f in founds], "against the other loss, a common factor aside", off),
        "largest": ("case", [f.largest for f in founds], "largest weight", "weight"),
        "case": ("case", np.array([f.trial.name for f in founds])),
        "dtype": ("dtype", np.array(list(TRIED_DTYPES))),
    }
    return results.labelled(variables, attrs)


def _worst_case(values: xr.DataArray) -> str | None:
    """Name of the case with the largest value; None where all are 0 or none is known."""
    known = values.dropna("case")
    return str(known["case"].values[known.values.argmax()]) if len(known) and float(known.max()) > 0 else None


def document(data: xr.Dataset) -> dict:
    """Make the JSON document of `verify`; None where a question does not apply."""

    def number(value) -> float | None:
        return float(value) if np.isfinite(value) else None

    worst = {name: data[name].where(np.isfinite(data[name])).max("case") for name in ("gap", "error")}
    return {
        "loss": results.about_loss(data.attrs),
        "gradient": data.attrs["gradient"],
        "verdict": data.attrs["verdict"],
        "faults": data.attrs["faults"].splitlines(),
        "notes": data.attrs["notes"].splitlines(),
        "cases": int(data.sizes["case"]),
        **{name: {str(d): number(each.sel(dtype=d)) for d in data["dtype"].values} for name, each in worst.items()},
        "gap_on": _worst_case(data["gap"].sel(dtype="float64")),
        "finite_difference": number(data["finite_difference"].max()),
        "peer": {name: number(data.attrs[f"peer_{name}"]) for name in ("value", "gradient")},
        "largest": number(data["largest"].max()),
    }
