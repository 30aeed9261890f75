"""State the outcome of the trials of a loss in sentences: faults, notes, and temperatures at which a gradient dies."""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from cocos import losses
from cocos.base.errors import InputError
from cocos.counting import weights
from cocos.measures import _trials
from cocos.measures._trials import TRIED_DTYPES, Trial

# Tolerance of the closed form against autograd in float64, relative to the largest weight.
AUTOGRAD_TOLERANCE = 1e-9
# Tolerance against finite differences, whose own error is about 1e-6.
SLOPE_TOLERANCE = 1e-4
# Tolerance against another loss.
SAME_LOSS = 1e-6
# Tolerance against shuffled rows and columns; code of others may compute in float32.
SHUFFLED_TOLERANCE = 1e-5
# A weight is dead that keeps less than DEAD of its size, where that is more than HEAVY of a unit.
DEAD, HEAVY = 0.01, 0.01
# Verdict on a loss without a fault, by the kind of its gradient.
VERDICTS = {"exact": "exact", "stop_gradient": "stop-gradient", "pseudo": "pseudo", "autograd": "exact, by autograd"}
TEMPERATURES = (0.2, 0.1, 0.07, 0.05, 0.02, 0.01, 0.005)
COLD = ("temperature", "tau")
HOT = ("scale", "gamma", "softmax_scale", "s", "la")


@dataclass(eq=False)
class TrialResult:
    """Result of one trial; NaN where a question does not apply."""

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


def saturation(loss, other) -> dict[str, str]:
    """Dtypes in which some query's gradient dies, and from which temperature; in the words of a sentence."""
    sentences = {}
    pairs = _trials.hardest(loss.metric)
    for name, value, variant in _colder(loss):
        judge = variant
        if other is not None and name in losses.parameters(other):
            judge = losses.load(losses.name_of(other), losses.parameters(other) | {name: value})
        for label, dtype in TRIED_DTYPES.items():
            if label in sentences:
                continue
            rounded = _trials.cast(pairs, dtype)
            try:
                have = weights.of(variant, rounded).double().abs().amax(dim=1)
            except (InputError, RuntimeError):
                continue
            exact = _trials.cast(rounded, torch.float64)
            true = weights.of(judge, exact).abs().amax(dim=1)
            heavy = true > HEAVY * judge.unit(exact).min()  # type: ignore[attr-defined]
            holds = true <= torch.finfo(dtype).max  # a larger weight is not lost by the loss, but by the dtype
            dead = heavy & holds & ~(have >= DEAD * true)
            if dead.any():
                q = int(dead.nonzero()[0])
                sentences[label] = (
                    f"{label} from {name} {value:g}: the largest weight of query {q} is {have[q]:.3g} where it should "
                    f"be {true[q]:.3g}"
                )
    return sentences


def _where(found: TrialResult, at: tuple[int, int] | None) -> str:
    place = f", query {at[0]}, candidate {at[1]}" if at else ""
    return f"{found.trial.name} ({found.trial.pairs.scores.shape[0]} x {found.trial.pairs.scores.shape[1]}){place}"


def _shape_of(wrong: list[TrialResult], right: list[TrialResult]) -> str:
    """Words for faults that only batches of one shape have."""
    told = [f for f in right if min(f.trial.pairs.scores.shape) > 1]
    if wrong and told and not any(f.square for f in wrong) and all(f.square for f in told):
        return "; it is right only for square batches"
    return ""


def as_intended(other, whole: list[TrialResult]) -> bool:
    """The loss equals another one that stops a gradient by design."""
    compared = [f.against for f in whole if not math.isnan(f.against)]
    return other is not None and other.gradient == "stop_gradient" and bool(compared) and max(compared) <= SAME_LOSS


def faults_of(
    loss, other, founds: list[TrialResult], saturated: dict[str, str], compared: tuple[float, float, str] | None
) -> list[str]:
    """Describe each fault in one sentence, the worst case first."""
    faults = []
    broken = [f for f in founds if f.broken]
    whole = [f for f in founds if not f.broken]
    if broken:
        only = _shape_of(broken, whole)
        faults.append(f"fails on {len(broken)} of {len(founds)} inputs, as on {_where(broken[0], None)}: "
                      f"{broken[0].broken}{only}")  # fmt: skip
    gaps = [f for f in whole if f.gap.get("float64", 0) > AUTOGRAD_TOLERANCE]
    if gaps:
        worst = max(gaps, key=lambda f: f.gap["float64"])
        faults.append(
            f"closed form and autograd differ by {worst.gap['float64']:.2g} of the largest weight on "
            f"{_where(worst, worst.gap_at)}"
        )
    bent = [f for f in whole if f.slope > SLOPE_TOLERANCE]
    if bent and loss.gradient in {"exact", "autograd"} and not as_intended(other, whole):
        worst = max(bent, key=lambda f: f.slope)
        faults.append(
            f"its gradient is not the derivative of its value: off by {worst.slope:.2g} of the largest weight on "
            f"{_where(worst, worst.slope_at)}; a stopped gradient or a straight-through estimator does that"
        )
    mixed = [f for f in whole if f.order > SHUFFLED_TOLERANCE and f.trial.smooth]
    if mixed:
        faults.append(
            f"its weights depend on the order of queries or candidates, as on {_where(mixed[0], None)}"
            f"{_shape_of(mixed, [f for f in whole if f.order <= SHUFFLED_TOLERANCE])}"
        )
    other_than = [f for f in whole if f.against > SAME_LOSS]
    if other_than:
        worst = max(other_than, key=lambda f: f.against)
        faults.append(
            f"differs from {losses.name_of(other)} by {worst.against:.2g} of the largest gradient on "
            f"{_where(worst, None)}, any common factor aside"
            f"{_shape_of(other_than, [f for f in whole if f.against <= SAME_LOSS])}"
        )
    over = [f for f in whole if math.isinf(f.error.get("float32", 0.0))]
    if over:
        faults.append(f"float32: NaN or infinite on {_where(over[0], None)}, where float64 is finite")
    if compared and max(compared[:2]) > SAME_LOSS:
        faults.append(f"differs from {compared[2]} by {max(compared[:2]):.2g} of the largest gradient")
    faults += [f"saturated: {saturated[dtype]}" for dtype in ("float64", "float32") if dtype in saturated]
    return faults


def verdict_of(loss, other, founds: list[TrialResult], faults: list[str]) -> str:
    """State the outcome in a few words."""
    if not faults:
        intended = as_intended(other, [f for f in founds if not f.broken])
        return VERDICTS["stop_gradient" if intended else loss.gradient]
    if all(fault.startswith("saturated") for fault in faults):
        return "saturated"
    return "not the derivative of its value" if all("straight-through" in each for each in faults) else "wrong"


def notes_of(loss, other, founds: list[TrialResult], saturated: dict[str, str]) -> list[str]:
    """Describe findings that are no fault."""
    notes = []
    whole = [f for f in founds if not f.broken]
    bent = max((f.slope for f in whole if not math.isnan(f.slope)), default=0.0)
    if loss.gradient == "stop_gradient" or as_intended(other, whole):
        off = f"are off by {bent:.2g} of the largest weight" if bent > SLOPE_TOLERANCE else "in the scores agree"
        notes.append(f"finite differences {off}, by design: a part of the loss is held fixed in training")
    if loss.gradient == "pseudo":
        notes.append(f"finite differences are off by {bent:.2g} of the largest weight: the gradient is made up")
    compared = [f for f in whole if f.against <= SAME_LOSS]
    if compared and other is not None:
        factors = [f.ratio for f in compared]
        mean = all(abs(f.ratio * f.trial.pairs.scores.shape[0] - 1) < SAME_LOSS for f in compared)
        if max(abs(k - 1) for k in factors) < SAME_LOSS:
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
