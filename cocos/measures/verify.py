"""Are the weights of a loss its gradient: in every regime, in float64 and float32, and on real batches?

A loss is tried on inputs (`Trial`); what is wrong, or worth a note, is a `Finding`, whose kind decides on the verdict.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import losses, results
from cocos.base.errors import InputError, Unfit
from cocos.base.ranges import checked
from cocos.checkpoints import Checkpoint
from cocos.counting import findings, health, weights
from cocos.counting.comparisons import fit
from cocos.counting.findings import Finding
from cocos.embeddings import Embeddings, scores, similarities
from cocos.embeddings.options import DEFAULTS, Sampling, fill_options, tracked
from cocos.embeddings.scores import Pairs
from cocos.embeddings.sources import DIRECTIONS
from cocos.measures.shared import synthetic_inputs
from cocos.measures.shared.prepared import Run, loss_for, prepare

# Gradients below this size are not compared.
NEGLIGIBLE = 1e-9
# Tolerance of the closed form against autograd in float64, relative to the largest weight.
AUTOGRAD_TOLERANCE = 1e-9
# Tolerance against finite differences, whose own error is about 1e-6.
SLOPE_TOLERANCE = 1e-4
# Tolerance against another loss.
SAME_LOSS = 1e-6
# Tolerance against shuffled rows and columns; code of others may compute in float32.
SHUFFLED_TOLERANCE = 1e-5
# Verdict on a loss without a fault, by the kind of its gradient.
VERDICTS = {"exact": "exact", "stop_gradient": "stop-gradient", "pseudo": "pseudo", "autograd": "exact, by autograd"}
TRIED_DTYPES = {name: getattr(torch, name) for name in ("float64", "float32")}
# Seeds of each regime.
SEEDS = range(4)
# Step of central differences in float64.
STEP = 1e-6
# Part of the value that rounding leaves in a central difference.
NOISE = 1e-5
# Step of differences of a loss that computes in float32, and the largest part of a weight that they are off by.
FLOAT32_STEP, FLOAT32_ERROR = 1e-3, 0.05
# Scores up to which each is moved by itself.
MOVED_SCORES = 400
# Random directions along which larger inputs are moved.
TRIAL_DIRECTIONS = 8
# Kinds of findings that are faults; the others are notes.
FAULTS = ("broken", "gap", "slope", "order", "against", "range")
# Kind of a finding -> its message.
FINDINGS = {
    "broken": "error on {number} of {inputs} inputs, such as {where}: {error}{square}",
    "gap": "closed form: differs from autograd by {off:.2g} of the largest weight on {where}",
    "slope": "gradient: differs from the derivative of the value by {off:.2g} of the largest weight on {where}. "
    "Possible causes: a stopped gradient, a straight-through estimator",
    "order": "weights: depend on the order of queries or candidates on {where}{square}",
    "against": "gradient: differs from {other} by {off:.2g} of the largest gradient on {where}, after a common factor"
    "{square}",
    "range": "float32: NaN or infinite on {where}, finite in float64",
    "held": "finite differences: off by {off:.2g} of the largest weight by design: "
    "a part of the loss is constant in training",
    "held, flat": "finite differences: agree in the scores by design; a part of the loss is constant in training",
    "pseudo": "finite differences: off by {off:.2g} of the largest weight, since the gradient is a surrogate",
    "equal": "equal to {other} on {number} inputs",
    "equal to a mean": "equal to {other} up to a mean over the queries, on {number} inputs",
    "equal to a factor": "equal to {other} up to a factor of {least:.4g} to {most:.4g} per batch (its reduction), on "
    "{number} inputs",
}


def _finding(kind: str, numbers: Mapping[str, Any]) -> Finding:
    """A fault of a loss, or a fact worth a note, of a kind of `FINDINGS`."""
    return Finding(kind, "stop" if kind in FAULTS else "note", FINDINGS[kind].format(**numbers))


@dataclass(frozen=True, eq=False)
class Trial:
    """One input.

    Args:
        name: regime and seed, or batch and direction.
        pairs: in float64.
        smooth: finite differences mean something: no score is on a kink on purpose.
        regime: of `cocos.measures.shared.synthetic_inputs`; empty for any other input.
    """

    name: str
    pairs: Pairs
    smooth: bool = True
    regime: str = ""


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

    def where(self, at: tuple[int, int] | None = None) -> str:
        """Name of the input with its size, and of a pair of it."""
        rows, columns = self.trial.pairs.scores.shape
        return f"{self.trial.name} ({rows} x {columns}){f', query {at[0]}, candidate {at[1]}' if at else ''}"


def reads_embeddings(loss) -> bool:
    """The loss looks at embeddings and labels, not at scores."""
    return loss.reads == "embeddings"


def fits(loss, trial: Trial) -> bool:
    """Whether a loss can be tried on it: a loss that reads embeddings needs scores and masks that follow from them."""
    beyond = trial.regime == "large norms" and loss.metric == "cosine"
    if beyond and loss.gradient == "autograd":
        return False  # these scores are far outside of -1 to 1, which code of others need not survive
    if not reads_embeddings(loss):
        return True
    return trial.pairs.embeddings is not None and trial.regime != "empty rows"


def square(seed: int, metric: str, directions: Sequence[str] = DIRECTIONS[:1]) -> Pairs:
    """As many candidates as queries, one positive each: the shape of batch that a careless loss is right for."""
    given = synthetic_inputs.embeddings("random", 2 * seed + 1)
    own = given.rows(torch.arange(len(given.query)), torch.arange(len(given.query)))
    return scores.pairs(own, metric=metric, directions=directions)


def synthetic(loss) -> Iterator[Trial]:
    """Yield the nine regimes, a square batch and a labelled set, four seeds each."""
    metric = loss.metric
    for name in synthetic_inputs.SYNTHETIC_REGIMES:
        for seed in SEEDS:
            smooth = name in {"random", "anti-aligned"}
            yield Trial(f"{name} {seed}", synthetic_inputs.build(name, metric, seed), smooth, name)
    for seed in SEEDS:
        yield Trial(f"square {seed}", square(seed, metric, loss.directions))
        # A labelled matrix is symmetric: scores come in equal pairs, which is a kink for losses that choose among them.
        yield Trial(f"labelled {seed}", synthetic_inputs.labelled(metric, seed), smooth=reads_embeddings(loss))


def cast(pairs: Pairs, dtype: torch.dtype) -> Pairs:
    """Round pairs to another dtype."""
    numbers = {name: getattr(pairs, name) for name in ("scores", "teacher", "query_norm", "candidate_norm", "logq")}
    rounded = {name: each.to(dtype) for name, each in numbers.items() if each is not None}
    return replace(pairs, **rounded, embeddings=pairs.embeddings and pairs.embeddings.to(dtype=dtype))


def moved(pairs: Pairs, metric: str, query: Tensor, candidate: Tensor) -> Pairs:
    """The same pairs with other embeddings, and their scores; not checked, so that it works under torch.func."""
    part = pairs.embeddings
    variance = (part.candidate_variance,) if metric == "mahalanobis" else ()
    return pairs.unchecked(
        scores=similarities.METRICS[metric](query, candidate, *variance),
        query_norm=similarities.length(query),
        candidate_norm=similarities.length(candidate),
        embeddings=part.with_rows(query, candidate),
    )


def embedding_gradient(loss, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """Σ loss, (), and its gradient with respect to the queries and the candidates, one below the other, by autograd.

    In a labelled set, where both are the same rows, it is the gradient of the one matrix.
    """
    part = pairs.embeddings

    base = [part.query] if part.shared else [part.query, part.candidate]
    leaves = [rows.detach().clone().requires_grad_() for rows in base]  # code of others may refuse torch.func
    total = loss(moved(pairs, loss.metric, leaves[0], leaves[-1])).sum()
    return total.detach(), torch.cat(torch.autograd.grad(total, leaves))


def permuted(pairs: Pairs, seed: int = 5, *, together: bool = False) -> tuple[Pairs, Tensor, Tensor]:
    """Shuffle queries and candidates, in one order if `together`; returns the pairs and both orders."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = (torch.randperm(n, generator=generator).to(pairs.scores.device) for n in pairs.scores.shape)
    part = pairs.embeddings
    wide = part is not None and len(part.candidate) < len(columns)  # columns of further directions
    if (part is not None and part.shared and not wide) or (together and len(rows) == len(columns)):
        columns = rows
    own = None if part is None or wide else part.rows(rows, columns)
    return pairs.part(rows, columns).unchecked(embeddings=own), rows, columns


def directional(loss, pairs: Pairs, weight: Tensor | None) -> float:
    """Largest difference between a gradient and central differences along random directions.

    Args:
        loss: the loss.
        pairs: in float64.
        weight: ∂ Σ loss / ∂ score, against which the scores are moved; None: the embeddings are moved, against the
            gradient that autograd gives for them.

    Returns:
        The difference in parts of the length of the gradient, the largest derivative that a direction could have.
    """
    part, generator = pairs.embeddings, torch.Generator().manual_seed(0)
    if weight is None:
        gradient, rows = embedding_gradient(loss, pairs)[1], len(part.query)
        base = part.query if part.shared else torch.cat([part.query, part.candidate])

        def value(vectors: Tensor) -> Tensor:
            query, candidate = (vectors, vectors) if part.shared else (vectors[:rows], vectors[rows:])
            return loss(moved(pairs, loss.metric, query, candidate)).sum()

    else:
        gradient, base = weight, pairs.scores

        def value(scores: Tensor) -> Tensor:
            return loss(pairs.with_scores(scores)).sum()

    worst = 0.0
    for _ in range(TRIAL_DIRECTIONS):
        way = torch.randn(base.shape, generator=generator, dtype=torch.float64).to(base)
        way = way / way.norm()
        slope = (value(base + STEP * way) - value(base - STEP * way)) / (2 * STEP)
        worst = max(worst, (slope - (gradient * way).sum()).abs().item())
    return worst / max(gradient.norm().item(), 1e-3)


def slopes(loss, pairs: Pairs, weight: Tensor, size: float) -> tuple[float, tuple[int, int] | None]:
    """How far the weights are from finite differences, in parts of `size`, and at which pair where that is loss."""
    if reads_embeddings(loss):
        return directional(loss, pairs, None), None
    if pairs.scores.numel() > MOVED_SCORES:
        return directional(loss, pairs, weight), None
    value = loss(pairs)
    single = value.dtype != torch.float64  # code of others may compute in float32, where only long steps tell
    off = (weights.finite_difference(loss, pairs, FLOAT32_STEP if single else STEP) - weight).abs()
    size = max(size, NOISE * max(1.0, value.abs().sum().item()))  # rounding error that a difference may keep
    worst = off.max().item() / size
    if single and worst < FLOAT32_ERROR:
        return 0.0, None
    return worst, divmod(int(off.argmax()), off.shape[1])


def _largest(values: Tensor) -> tuple[float, tuple[int, int]]:
    values = values.double().nan_to_num(nan=math.inf)
    return values.max().item(), divmod(int(values.argmax()), values.shape[1])


def _questioned(loss, other, trial: Trial) -> TrialResult:
    """Put every question to one trial. An exception of the loss itself is an answer."""
    found, pairs, closed = TrialResult(trial), trial.pairs, loss.closed_form
    try:
        value, weight = loss(pairs), loss.weight(pairs)
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
    for name, dtype in TRIED_DTYPES.items():
        try:
            rounded = cast(pairs, dtype)
            by_autograd = weights.autograd(loss, rounded)
            ours = loss.weight(rounded) if closed else by_autograd
        except (InputError, RuntimeError):
            continue  # scores beyond the range of the dtype, or an operation that PyTorch does not have in it
        exact = loss.weight(cast(rounded, torch.float64))
        found.error[name] = _largest((ours.double() - exact).abs())[0] / size
        if closed:
            gap, at = _largest((ours.double() - by_autograd.double()).abs())
            found.gap[name] = gap / size
            found.gap_at = at if name == "float64" else found.gap_at
    # A loss whose columns have places of their own knows no other order where there are more than candidates.
    fixed = (loss.matching == "columns" or len(loss.directions) > 1) and len(set(pairs.scores.shape)) > 1
    if not fixed:
        shuffled, rows, columns = permuted(pairs, together=loss.matching in {"rows", "columns"})
        try:
            found.order = (loss.weight(shuffled) - weight[rows][:, columns]).abs().max().item() / size
        except Exception:
            found.order = math.inf
    if trial.smooth:
        found.slope, found.slope_at = slopes(loss, pairs, weight, size)
        if other is not None:
            found.against, found.ratio = _against(loss, other, pairs)
    return found


def _against(loss, other, pairs) -> tuple[float, float]:
    """Distance from another loss up to a factor, and the factor: of the weights, or of the embeddings' gradients."""
    if reads_embeddings(loss) or reads_embeddings(other):
        first, second = (embedding_gradient(each, pairs)[1] for each in (loss, other))
    else:
        first, second = loss.weight(pairs), other.weight(pairs)
    found = fit(second, first)
    if max(found.size, found.other) < NEGLIGIBLE:
        return math.nan, math.nan
    return found.off / max(found.other, 1e-12), found.ratio


def _as_intended(other, founds: Sequence[TrialResult]) -> bool:
    """Whether the loss equals another one that stops a gradient by design."""
    compared = [each.against for each in founds if not math.isnan(each.against)]
    return other is not None and other.gradient == "stop_gradient" and bool(compared) and max(compared) <= SAME_LOSS


def faults_of(
    loss,
    other,
    founds: Sequence[TrialResult],
) -> list[Finding]:
    """Find what is wrong with a loss, each fault with its worst case."""
    broken = [each for each in founds if each.broken]
    whole = [each for each in founds if not each.broken]
    faults: list[Finding] = []

    def add(kind: str, wrong: list[TrialResult], name: str, at: str = "", **numbers) -> None:
        """Note a fault by the largest of a number; by the first case where it has no size."""
        if wrong:
            worst = max(wrong, key=lambda each: _size(each, name)) if name else wrong[0]
            numbers |= {"off": _size(worst, name)} if name else {}
            faults.append(_finding(kind, {"where": worst.where(getattr(worst, at) if at else None)} | numbers))

    def only_square(wrong: list[TrialResult], right: list[TrialResult]) -> str:
        """Words for faults that only batches of one shape have."""
        shapes = [each.trial.pairs.scores.shape for each in right if min(each.trial.pairs.scores.shape) > 1]
        square = not any(len(set(each.trial.pairs.scores.shape)) == 1 for each in wrong)
        square = square and bool(wrong and shapes) and all(rows == columns for rows, columns in shapes)
        return "; it is right only for square batches" if square else ""

    if broken:
        about = {"number": len(broken), "inputs": len(founds), "error": broken[0].broken}
        add("broken", broken, "", square=only_square(broken, whole), **about)
    add("gap", [each for each in whole if _size(each, "gap") > AUTOGRAD_TOLERANCE], "gap", "gap_at")
    if loss.gradient in {"exact", "autograd"} and not _as_intended(other, whole):
        add("slope", [each for each in whole if each.slope > SLOPE_TOLERANCE], "slope", "slope_at")
    mixed = [each for each in whole if each.order > SHUFFLED_TOLERANCE and each.trial.smooth]
    add("order", mixed, "", square=only_square(mixed, [each for each in whole if each.order <= SHUFFLED_TOLERANCE]))
    if apart := [each for each in whole if each.against > SAME_LOSS]:
        square = only_square(apart, [each for each in whole if each.against <= SAME_LOSS])
        add("against", apart, "against", square=square, other=other.name)
    add("range", [each for each in whole if math.isinf(each.error.get("float32", 0.0))], "")
    return faults


def _size(found: TrialResult, name: str) -> float:
    return found.gap.get("float64", 0.0) if name == "gap" else getattr(found, name)


def notes_of(loss, other, founds: Sequence[TrialResult]) -> Iterator[Finding]:
    """Yield findings that are no fault."""
    whole = [each for each in founds if not each.broken]
    bent = max((each.slope for each in whole if not math.isnan(each.slope)), default=0.0)
    if loss.gradient == "stop_gradient" or _as_intended(other, whole):
        yield _finding("held" if bent > SLOPE_TOLERANCE else "held, flat", {"off": bent})
    if loss.gradient == "pseudo":
        yield _finding("pseudo", {"off": bent})
    compared = [each for each in whole if each.against <= SAME_LOSS]
    if compared and other is not None:
        factors = [each.ratio for each in compared]
        mean = all(abs(each.ratio * each.trial.pairs.scores.shape[0] - 1) < SAME_LOSS for each in compared)
        kind = "equal to a mean" if mean else "equal to a factor"
        kind = "equal" if max(abs(k - 1) for k in factors) < SAME_LOSS else kind
        numbers = {"least": min(factors), "most": max(factors)}
        yield _finding(kind, {"other": other.name, "number": len(compared)} | numbers)


@checked
def verify(
    loss="ntxent",
    embeddings: Embeddings | Checkpoint | None = None,
    *,
    against=None,
    **sampling: Unpack[Sampling],
) -> xr.Dataset:
    """Compare the closed form of a loss with torch.func and with finite differences, in float64 and float32.

    Without embeddings the inputs are nine regimes of synthetic input, square batches and labelled sets, four seeds
    each; with embeddings they are real batches. Finite differences move every score by itself in small batches, and all
    scores along random directions in large ones; a loss of yours that reads embeddings has these moved.

    Args:
        loss: a loss, or its name.
        embeddings: real ones, or a checkpoint.
        against: another loss that it should equal, up to a factor; or its name, with the parameters of the same name.
            None: the loss of the shelf whose unit a loss of another library takes.
        **sampling: options of the batches, see `Sampling`.

    Returns:
        `gap` (case, dtype), closed form against autograd; `error` (case, dtype), against float64 on the same rounded
        input; `finite_difference` (case,); `against` (case,), each in parts of the largest weight of the case, NaN
        where it does not apply; `largest` (case,). Attributes: `verdict`, `faults` and `notes`, a sentence a line.

    Examples:
        >>> cocos.measures.verify("triplet").attrs["faults"]
        ''
    """
    sampling = fill_options("verify", sampling, DEFAULTS | {"batches": 2})
    checkpoint = embeddings if isinstance(embeddings, Checkpoint) else None
    if isinstance(loss, str):
        loss = loss_for(loss, embeddings)
    other = against
    if isinstance(against, str):
        loss = losses.as_loss(loss)
        shared = losses.load(against).parameters.keys() & loss.parameters.keys()
        other = losses.load(against, {name: loss.parameters[name] for name in shared})
    run = None if embeddings is None else prepare(embeddings, loss, **sampling)
    loss, trials = _synthetic_trials(loss) if run is None else (run.loss, list(_real_trials(run)))
    if other is not None and other.metric != loss.metric:
        raise InputError(
            f"against {other.name}: it reads {other.metric} scores and {loss.name} reads "
            f"{loss.metric}, so their weights cannot be compared"
        )
    founds = []
    for trial in tracked(trials, sampling["progress"], f"verifying {loss.name}"):
        with contextlib.suppress(Unfit):  # rows that the loss cannot be told are no fault of it
            founds.append(_questioned(loss, other, trial))
    if not founds:
        raise InputError(f"loss {loss.name}: none of the inputs fits it; give a file of embeddings that does")
    faults = faults_of(loss, other, founds)
    intended = _as_intended(other, [each for each in founds if not each.broken])
    verdict = VERDICTS["stop_gradient" if intended else loss.gradient]
    if kinds := {fault.kind for fault in faults}:
        verdict = "not the derivative of its value" if kinds == {"slope"} else "wrong"
    notes = [] if run is None else health.collapse(run.embeddings, loss.metric)
    notes += notes_of(loss, other, founds)
    attrs = results.provenance(
        loss,
        title=f"Verification, {loss.name}",
        against=other.name if other is not None else None,
        verdict=verdict,
        faults="\n".join(fault.sentence for fault in faults),
        notes="\n".join(each.text for each in notes),
        findings=findings.attributes([*faults, *notes])["findings"],
        **(checkpoint.identity() | {"split": sampling["split"]} if checkpoint else {}),
    )
    gap, error = (
        np.array([[getattr(each, name).get(dtype, math.nan) for dtype in TRIED_DTYPES] for each in founds])
        for name in ("gap", "error")
    )
    off, both = "largest weight of the case", ("case", "dtype")
    variables = {
        "gap": (both, gap, "closed form against autograd in the same dtype", off),
        "error": (both, error, "against float64 on the same rounded input", off),
        "finite_difference": (
            *("case", [each.slope for each in founds], "gradient against central differences in float64", off),
        ),
        "against": ("case", [each.against for each in founds], "against the other loss, a common factor aside", off),
        "largest": ("case", [each.largest for each in founds], "largest weight", "weight"),
        "case": ("case", np.array([each.trial.name for each in founds])),
        "dtype": ("dtype", np.array(list(TRIED_DTYPES))),
    }
    return results.labelled(variables, attrs, measure="verify")


def _synthetic_trials(loss) -> tuple[losses.Loss, list[Trial]]:
    """A loss, bound if it must be, and the synthetic inputs that fit it."""
    loss = losses.as_loss(loss)
    try:  # where the code of others keeps its scores shows with the first batch
        loss = weights.bound(loss, square(0, loss.metric, loss.directions))
    except Unfit:
        loss = weights.bound(loss, synthetic_inputs.labelled(loss.metric))
    return loss, [trial for trial in synthetic(loss) if fits(loss, trial)]


def _real_trials(run: Run) -> Iterator[Trial]:
    """Yield the batches of a run, every direction of each."""
    for number, batch in enumerate(run.plan.batches):
        for name, side, second in run.sides:
            for pairs in run.pairs(side, batch.flip() if second else batch, whole=True):
                yield Trial(f"batch {number} {name}", pairs)


def difference(value: float | None) -> str:
    """Write a relative difference; an empty cell where it was not measured."""
    return "" if value is None else "0" if value == 0 else f"{value:.1e}"
