"""Are the weights of a loss its gradient: in every regime, in every dtype, and on real batches?"""

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Unpack

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import health, losses, results, weights
from cocos.checkpoints import Checkpoint
from cocos.embeddings import Embeddings
from cocos.errors import InputError, Unfit
from cocos.measures import _regimes, _trials
from cocos.measures._peers import parity
from cocos.measures._trials import DTYPES, Trial
from cocos.run import Run, prepare
from cocos.sampling import Sampling, sampled

__all__ = ["verify"]

BAR = 1e-9  # closed form against autograd in float64, in parts of the largest weight
SLOPE = 1e-4  # against finite differences, whose own error is about 1e-6
SAME = 1e-6  # against another loss
ORDER = 1e-5  # a loss of yours may compute in float32
NOTHING = 1e-9  # gradients below it are not compared
DEAD, HEAVY = 0.01, 0.01  # a weight of more than 1 % of a unit that keeps less than 1 % of its size is gone
TEMPERATURES = (0.2, 0.1, 0.07, 0.05, 0.02, 0.01, 0.005)
COLD = ("temperature", "tau")
HOT = ("scale", "gamma", "softmax_scale", "s", "la")
WORDS = {"exact": "exact", "stop_gradient": "stop-gradient", "pseudo": "pseudo", "autograd": "exact, by autograd"}


@dataclass(eq=False)
class _Found:
    """What one trial gave; NaN where a question does not apply."""

    trial: Trial
    largest: float = math.nan
    gap: dict[str, float] = field(default_factory=dict)
    error: dict[str, float] = field(default_factory=dict)
    slope: float = math.nan
    order: float = math.nan
    against: float = math.nan
    ratio: float = math.nan
    gap_at: tuple[int, int] | None = None
    slope_at: tuple[int, int] | None = None
    broken: str = ""

    @property
    def square(self) -> bool:
        rows, columns = self.trial.pairs.scores.shape
        return rows == columns


def _largest(values: Tensor) -> tuple[float, tuple[int, int]]:
    values = values.double().nan_to_num(nan=math.inf)
    return values.max().item(), divmod(int(values.argmax()), values.shape[1])


def _dtypes(loss, pairs, size: float, found: _Found) -> None:
    """Gap and error in every dtype that the loss can be computed in."""
    closed = losses.has_closed_form(loss)
    for name, dtype in DTYPES.items():
        try:
            rounded = _trials.cast(pairs, dtype)
            plain = weights.autograd(loss, rounded)
            ours = loss.weight(rounded) if closed else plain
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
        ours, theirs = (weights.of(each, pairs) for each in (loss, other))
    if max(ours.abs().max().item(), theirs.abs().max().item()) < NOTHING:
        return math.nan, math.nan
    ratio = ((ours * theirs).sum() / theirs.square().sum().clamp(min=1e-300)).item()
    return (ours - ratio * theirs).abs().max().item() / max(ours.abs().max().item(), 1e-12), ratio


def _tried(loss, other, trial: Trial) -> _Found:
    """Ask one trial everything. What the loss itself raises is an answer.

    Raises:
        Unfit: the loss cannot be told these rows.
    """
    found, pairs = _Found(trial), trial.pairs
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
    size = max(found.largest, unit.min().item())
    _dtypes(loss, pairs, size, found)
    shuffled, rows, columns = _trials.permuted(pairs, together=losses.traits(loss).matching == "rows")
    try:
        off = (weights.of(loss, shuffled) - weight[rows][:, columns]).abs().max().item()
    except Exception:
        off = math.inf
    found.order = off / size
    if trial.smooth:
        found.slope, found.slope_at = _trials.slopes(loss, pairs, weight, size)
        if other is not None:
            found.against, found.ratio = _against(loss, other, pairs)
    return found


def _colder(loss) -> Iterator[tuple[str, float, object]]:
    """The loss at ever lower temperatures: the parameter's name, its value, and the loss."""
    held = {f.name for f in dataclasses.fields(loss)} if dataclasses.is_dataclass(loss) else set()
    for name in (*COLD, *HOT):
        values = [t if name in COLD else 1 / t for t in TEMPERATURES]
        try:
            if name in held:
                variants = [dataclasses.replace(loss, **{name: value}) for value in values]
            else:
                given = losses.parameters(loss)
                variants = [losses.load(losses.name_of(loss), given | {name: value}) for value in values]
        except (InputError, ValueError):
            continue
        yield from ((name, value, variant) for value, variant in zip(values, variants, strict=True))
        return


def _saturation(loss, other) -> dict[str, str]:
    """Dtypes in which some query's gradient dies, and from which temperature; in the words of a sentence."""
    sentences = {}
    pairs = _trials.hardest(loss.metric)
    for name, value, variant in _colder(loss):
        judge = variant
        if other is not None and name in losses.parameters(other):
            judge = losses.load(losses.name_of(other), losses.parameters(other) | {name: value})
        for label, dtype in DTYPES.items():
            if label in sentences:
                continue
            rounded = _trials.cast(pairs, dtype)
            try:
                have = weights.of(variant, rounded).double().abs().amax(dim=1)
            except (InputError, RuntimeError):
                continue
            exact = _trials.cast(rounded, torch.float64)
            true = weights.of(judge, exact).abs().amax(dim=1)
            dead = (true > HEAVY * judge.unit(exact).min()) & ~(have >= DEAD * true)  # type: ignore[attr-defined]
            if dead.any():
                q = int(dead.nonzero()[0])
                sentences[label] = (
                    f"{label} from {name} {value:g}: the largest weight of query {q} is {have[q]:.3g} where it should "
                    f"be {true[q]:.3g}"
                )
    return sentences


def _where(found: _Found, at: tuple[int, int] | None) -> str:
    place = f", query {at[0]}, candidate {at[1]}" if at else ""
    return f"{found.trial.name} ({found.trial.pairs.scores.shape[0]} x {found.trial.pairs.scores.shape[1]}){place}"


def _shape_of(wrong: list[_Found], right: list[_Found]) -> str:
    """Words for faults that only batches of one shape have."""
    told = [f for f in right if min(f.trial.pairs.scores.shape) > 1]
    if wrong and told and not any(f.square for f in wrong) and all(f.square for f in told):
        return "; it is right only for square batches"
    return ""


def _as_intended(other, whole: list[_Found]) -> bool:
    """The loss equals another one that stops a gradient by design."""
    compared = [f.against for f in whole if not math.isnan(f.against)]
    return other is not None and other.gradient == "stop_gradient" and bool(compared) and max(compared) <= SAME


def _faults(
    loss, other, founds: list[_Found], saturated: dict[str, str], compared: tuple[float, float, str] | None
) -> list[str]:
    """What is wrong, one sentence each, the worst case first."""
    faults = []
    broken = [f for f in founds if f.broken]
    whole = [f for f in founds if not f.broken]
    if broken:
        only = _shape_of(broken, whole)
        faults.append(f"fails on {len(broken)} of {len(founds)} inputs, as on {_where(broken[0], None)}: "
                      f"{broken[0].broken}{only}")  # fmt: skip
    gaps = [f for f in whole if f.gap.get("float64", 0) > BAR]
    if gaps:
        worst = max(gaps, key=lambda f: f.gap["float64"])
        faults.append(
            f"closed form and autograd differ by {worst.gap['float64']:.2g} of the largest weight on "
            f"{_where(worst, worst.gap_at)}"
        )
    bent = [f for f in whole if f.slope > SLOPE]
    if bent and loss.gradient in {"exact", "autograd"} and not _as_intended(other, whole):
        worst = max(bent, key=lambda f: f.slope)
        faults.append(
            f"its gradient is not the derivative of its value: off by {worst.slope:.2g} of the largest weight on "
            f"{_where(worst, worst.slope_at)}; a stopped gradient or a straight-through estimator does that"
        )
    mixed = [f for f in whole if f.order > ORDER and f.trial.smooth]
    if mixed:
        faults.append(
            f"its weights hang on the order of queries or candidates, as on {_where(mixed[0], None)}"
            f"{_shape_of(mixed, [f for f in whole if f.order <= ORDER])}"
        )
    other_than = [f for f in whole if f.against > SAME]
    if other_than:
        worst = max(other_than, key=lambda f: f.against)
        faults.append(
            f"differs from {losses.name_of(other)} by {worst.against:.2g} of the largest gradient on "
            f"{_where(worst, None)}, any common factor aside"
            f"{_shape_of(other_than, [f for f in whole if f.against <= SAME])}"
        )
    over = [f for f in whole if math.isinf(f.error.get("float32", 0.0))]
    if over:
        faults.append(f"float32: NaN or infinite on {_where(over[0], None)}, where float64 is finite")
    if compared and max(compared[:2]) > SAME:
        faults.append(f"differs from {compared[2]} by {max(compared[:2]):.2g} of the largest gradient")
    faults += [f"saturated: {saturated[dtype]}" for dtype in ("float64", "float32") if dtype in saturated]
    return faults


def _notes(loss, other, founds: list[_Found], saturated: dict[str, str]) -> list[str]:
    """What is worth knowing and no fault."""
    notes = []
    whole = [f for f in founds if not f.broken]
    bent = max((f.slope for f in whole if not math.isnan(f.slope)), default=0.0)
    if loss.gradient == "stop_gradient" or _as_intended(other, whole):
        off = f"are off by {bent:.2g} of the largest weight" if bent > SLOPE else "in the scores agree"
        notes.append(f"finite differences {off}, by design: a part of the loss is held fixed in training")
    if loss.gradient == "pseudo":
        notes.append(f"finite differences are off by {bent:.2g} of the largest weight: the gradient is made up")
    compared = [f for f in whole if f.against <= SAME]
    if compared and other is not None:
        factors = [f.ratio for f in compared]
        mean = all(abs(f.ratio * f.trial.pairs.scores.shape[0] - 1) < SAME for f in compared)
        if max(abs(k - 1) for k in factors) < SAME:
            words = "equal"
        elif mean:
            words = "equal up to a mean over the queries"
        else:
            words = f"equal up to a factor of {min(factors):.4g} to {max(factors):.4g} a batch (its reduction)"
        notes.append(f"{words} to {losses.name_of(other)} on {len(compared)} inputs")
    notes += [f"saturated: {saturated[dtype]}" for dtype in ("bfloat16", "float16") if dtype in saturated]
    for dtype in ("bfloat16", "float16"):
        over = [f.trial.name for f in whole if math.isinf(f.error.get(dtype, 0.0))]
        over = [name for name in over if not name.startswith("large norms")]  # made to be beyond any range
        if over:
            notes.append(f"{dtype}: it leaves the range on {len(over)} of {len(whole)} inputs, as on {over[0]}")
    return notes


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
        against: another loss that it should be, up to a factor; or the name of one, which takes the parameters of the
            same name.
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
    other, loud = against, ()
    if isinstance(against, str):
        shared = losses.parameters(losses.load(against)).keys() & losses.parameters(loss).keys()
        other = losses.load(against, {name: losses.parameters(loss)[name] for name in shared})
    if embeddings is not None:
        run = prepare(
            embeddings,
            loss,
            **sampling,
        )
        loss, trials = run.loss, list(_real(run))
        loud = filter(None, [health.sentence(run.spread, health.called(run.embeddings))])
    else:
        loss = losses.of(loss)
        try:  # where the code of others keeps its scores shows with the first batch
            loss = weights.bound(loss, _trials.square(0, loss.metric))
        except Unfit:
            loss = weights.bound(loss, _regimes.labelled(loss.metric))
        trials = [trial for trial in _trials.synthetic(loss) if _trials.fits(loss, trial)]
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
    saturated = _saturation(loss, other)
    compared = parity(loss)
    faults = _faults(loss, other, founds, saturated, compared)
    whole = [f for f in founds if not f.broken]
    verdict = WORDS["stop_gradient" if _as_intended(other, whole) else loss.gradient] if not faults else "wrong"
    if faults and all(fault.startswith("saturated") for fault in faults):
        verdict = "saturated"
    elif faults and all("straight-through" in fault for fault in faults):
        verdict = "not the derivative of its value"
    attrs = results.provenance(
        loss,
        title=f"Verification, {losses.name_of(loss)}",
        against=losses.name_of(other) if other is not None else None,
        verdict=verdict,
        saturated="; ".join(saturated.values()),
        peer=compared[2] if compared else "",
        peer_value=compared[0] if compared else math.nan,
        peer_gradient=compared[1] if compared else math.nan,
        faults="\n".join(faults),
        notes="\n".join([*loud, *_notes(loss, other, founds, saturated)]),
        **(checkpoint.identity() | {"split": sampling["split"]} if checkpoint else {}),
    )
    dtypes = {
        name: np.array([[getattr(f, name).get(dtype, math.nan) for dtype in DTYPES] for f in founds])
        for name in ("gap", "error")
    }
    largest, off = "largest weight", "largest weight of the case"
    variables = {
        "gap": (("case", "dtype"), dtypes["gap"], "closed form against autograd in the same dtype", off),
        "error": (("case", "dtype"), dtypes["error"], "against float64 on the same rounded input", off),
        "finite_difference": (
            "case",
            [f.slope for f in founds],
            "gradient against central differences in float64",
            off,
        ),
        "against": ("case", [f.against for f in founds], "against the other loss, a common factor aside", off),
        "largest": ("case", [f.largest for f in founds], largest, "weight"),
        "case": ("case", np.array([f.trial.name for f in founds])),
        "dtype": ("dtype", np.array(list(DTYPES))),
    }
    return results.labelled(variables, attrs)


def _worst_case(values: xr.DataArray) -> str | None:
    """Name of the case with the largest value; None where all are 0 or none is known."""
    known = values.dropna("case")
    return str(known["case"].values[known.values.argmax()]) if len(known) and float(known.max()) > 0 else None


def document(data: xr.Dataset) -> dict:
    """What `verify` found, as plain data; None where a question does not apply."""

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
