"""Are two losses, or two ways of computing one, the same gradient: of every row, and of every pair?

What differs is a finding, by a form of `OUTCOMES`, which has the sentences; the questions below look for it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import losses, results
from cocos.base import ranges
from cocos.base.errors import InputError, nearest
from cocos.base.ranges import Range, whole
from cocos.checkpoints import Checkpoint
from cocos.checkpoints.encoding import device_of
from cocos.counting.comparisons import Fit, fit
from cocos.embeddings import Embeddings
from cocos.embeddings.options import Progress
from cocos.embeddings.similarities import cosine
from cocos.measures.shared.pair_gradients import (
    ENDS,
    OWN_COORDINATE,
    PAIR_KINDS,
    PairGradients,
    PairRows,
    RowKinds,
    drawn,
    drawn_groups,
    gradients,
    grouped,
    stretched,
    synthetic,
)
from cocos.measures.shared.pair_losses import Sides, sides
from cocos.measures.shared.prepared import embedded

# Dtypes in which a way can compute.
DTYPES = {name: getattr(torch, name) for name in ("float64", "float32", "bfloat16", "float16")}
# Largest difference of gradients that are the same, in parts of the largest gradient of a row: what the rounding of a
# dtype leaves at temperatures from 0.05 on.
TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
# Hard negatives of a query of a synthetic batch.
SYNTHETIC_HARD = 2
# Largest distance of the length of a row from 1, if the rows are unit vectors.
UNIT_LENGTH = 1e-3
# Parameters by which a gradient may be multiplied.
SCALING_PARAMETERS = ("temperature", "scale", "unit", "gamma")
# Part of the largest number of a gradient below which another one is zero, or a structure is found in the difference.
STRUCTURE = 1e-6
# One query in so many may be pulled elsewhere without a shift of the targets.
FEW = 16
# Part of the weights that have the opposite sign in a loss that is upside down.
MOSTLY = 0.99
# Smallest cosine of two gradients that rounding alone sets apart.
LIKE = 0.99
# Part of the largest weight below which a weight says nothing on a temperature: in float64, and in narrower dtypes.
SEEN_WEIGHT, SEEN_NARROW = 1e-8, 1e-3
# Largest difference of pull and push of a softmax, as a fraction of both: rounding in a narrow dtype.
UNBALANCED = 1e-2
# Largest difference of the logarithm of a weight from a line, in parts of the line's range.
STRAIGHT = 1e-2
# Largest difference from the pull of a softmax at the other temperature, in parts of the largest pull.
PULL_ERROR = 1e-2
PairTolerance = Annotated[
    float | None,
    Range("a part of the largest gradient: at least 0, below 1", lambda part: part is None or 0 <= part < 1),
]

# ------------------------------------------------------------------------------------------------------------ in words

# Form of an outcome -> its kind, and its message.
OUTCOMES = {
    "same": ("same", "the same"),
    "nan": ("nan", "{name} has a NaN or infinite gradient, in {where}"),
    "idle": ("idle", "neither has a gradient on these rows: nothing to compare"),
    "none": ("none", "{name} has no gradient"),
    "factor": ("factor", "the same up to a factor of {ratio}{guess}"),
    "negative factor": ("sign", "opposite sign: B is {ratio} times A"),
    "opposite": (
        "sign",
        "opposite sign: B pulls the negatives and pushes the positives, ratio {ratio}, cosine {cosine}",
    ),
    "unit vectors": (
        "normalised",
        "{inner} on unit vectors: the difference is along each row and vanishes if the model normalises",
    ),
    "one normalises": ("normalised", "{inner} between rows, but not along each row: only one of them normalises"),
    "exchanged": ("exchanged", "queries and candidates are exchanged{beside}"),
    "directions": ("directions", "{two} is the mean of both directions, {one} has only the query direction{beside}"),
    "misaligned": (
        "misaligned",
        "misaligned targets: queries {rows} are pulled to {to} instead of their own candidates, ratio {ratio} on own "
        "candidates",
    ),
    "blocks": (
        "blocks",
        "B has no pairs across mini-batches of {size} rows, {percent} of A's weights (accumulated or not gathered): "
        "cosine {cosine}, length ratio {length}",
    ),
    "detached": (
        "detached",
        "equal query gradients, ratio {ratio} for candidates from queries of other mini-batches of {size} rows "
        "(gathered without gradient){elsewhere}",
    ),
    "across": (
        "across",
        "the same within mini-batches of {size} rows, ratio {ratio} across them (partly gathered without gradient)"
        "{elsewhere}",
    ),
    "left out": ("source", "B lacks {kinds}, {percent} of A's weights; {inner}"),
    "added": ("source", "B adds {kinds}, {percent} of B's weights; {inner}"),
    "rest": ("source", "the rest is the same"),
    "scaled rest": ("source", "the rest has a factor of {ratio}"),
    "other rest": ("source", "the rest differs as well (ratio {ratio})"),
    "source": ("source", "different on {kinds} only: ratio {ratio}"),
    "factors": ("factors", "different factor for each type of pair: {factors}"),
    "temperature": ("temperature", "different temperature: cosine scale of B minus A = {slope}{temperatures}{pull}"),
    "several positives": ("positives", "the same with one positive per query, different with several: {inner}"),
    "mean over positives": (
        "positives",
        "the same with one positive per query; with several, B takes their mean instead of their sum{beside}",
    ),
    "sum over positives": (
        "positives",
        "the same with one positive per query; with several, B takes their sum instead of their mean{beside}",
    ),
    "beyond": ("beyond", "the same on the scores of the data, different at cosines from -1 to 1: {inner}"),
    "clamp": (
        "beyond",
        "the same on the scores of the data, but {name} has no gradient at cosines {cosines} (a clamp?)",
    ),
    "rounding": (
        "rounding",
        "different by rounding: {largest} of the largest gradient (tolerance {tolerance}), cosine {near}",
    ),
    "unlike": ("other", "cosine {cosine}, ratio {ratio}"),
    "other": (
        "other",
        "different: cosine {cosine}, ratio {ratio}, largest difference {largest} of the largest gradient, in {where}",
    ),
}
# Suggestion for each kind of outcome; none if they are the same, or if the cause is unknown.
NEXT_STEPS = {
    "nan": "look for a square root or logarithm of 0, a zero vector, or a row without a positive",
    "idle": "use a larger batch or a file: a hinge may be idle on these rows",
    "none": "check whether it is detached, or idle on these rows, as a hinge may be; another seed draws others",
    "factor": "divide the loss by the factor; Adam hides it, gradient clipping and a second loss do not",
    "sign": "minimise minus the loss, or exchange the terms of a difference",
    "normalised": "normalise the rows before the loss if the model does not",
    "exchanged": "exchange the first two arguments, or transpose the scores",
    "directions": "average both losses over both directions, or neither",
    "misaligned": "gather each column separately, positives first, and offset the targets by the process",
    "blocks": "gather candidates with gradient to use all negatives of the batch",
    "detached": "gather with gradient, as torch.distributed.nn.all_gather does",
    "across": "gather with gradient, as torch.distributed.nn.all_gather does, if the loss is local",
    "source": "check which columns enter the denominator, and which are detached there",
    "factors": "look for separate normalisation of positives and negatives",
    "temperature": "set one temperature for both; check whether a log scale is exponentiated, and whether both use "
    "unit vectors",
    "positives": "check for a sum or mean over the positives, and which of them enter the denominator",
    "beyond": "look for a clamp of the scores, and for overflow",
    "rounding": "compute the scores and the softmax in float32, or use a larger tolerance=",
}
# Possible cause of a factor, with its number.
GUESSES = {
    "accumulate": "{} mini-batches?",
    "ranks": "world size {}?",
    "parameter": "the {}?",
    "queries": "mean against sum over {} queries?",
    "pairs": "mean over pairs against sum over pairs?",
    "mean": "mean against sum?",
    "processes": "world size?",
    "directions": "two directions?",
}
KIND_WORDS = {
    "in-batch": "in-batch negatives",
    "own hard": "own hard negatives",
    "others' hard": "others' hard negatives",
    "query-query": "query-query pairs",
    "candidate-candidate": "candidate-candidate pairs",
}
# Rows to which a query is pulled, by the kind of pair that it makes with them.
PULLED_TO = {
    "in-batch": "candidates of other queries",
    "own hard": "hard negatives of their own",
    "others' hard": "hard negatives of other queries",
    "query-query": "other queries",
}


@dataclass(frozen=True)
class Outcome:
    """Answer to whether two losses have the same gradient.

    Args:
        kind: of `OUTCOMES`.
        sentence: the answer with its numbers.
        same: training with one is training with the other.
        ratio: of the second gradient to the first, NaN if there is none.
        cure: what to look at next.
    """

    kind: str
    sentence: str
    same: bool
    ratio: float
    cure: str = ""


def outcome(
    form: str, ratio: float = math.nan, numbers: Mapping[str, Any] = MappingProxyType({}), *, same: bool = False
) -> Outcome:
    """An answer by its form in `OUTCOMES`, with its numbers; `same`: training with one is training with the other."""
    kind, sentence = OUTCOMES[form]
    said = sentence.format(ratio=number(ratio), **{name: _written(name, value) for name, value in numbers.items()})
    return Outcome(kind, said, same, ratio, "" if same else NEXT_STEPS.get(kind, ""))


def number(value: float) -> str:
    """Write a ratio with two or three digits."""
    return f"{value:.3g}" if abs(value) >= 100 or 0 < abs(value) < 0.01 else f"{round(value, 2) + 0.0:.2f}"


def span(rows: Sequence[int], limit: int = 4) -> str:
    """Write row numbers as ranges.

    Examples:
        >>> span([0, 1, 2, 5])
        '0-2, 5'
    """
    found: list[list[int]] = []
    for row in sorted(rows):
        if found and row == found[-1][1] + 1:
            found[-1][1] = row
        else:
            found.append([row, row])
    text = [f"{a}" if a == b else f"{a}-{b}" for a, b in found]
    more = f" and {len(text) - limit} more ranges" if len(text) > limit else ""
    return ", ".join(text[:limit]) + more


def _written(name: str, value: Any) -> str:
    """Write a number of an outcome, by its name in the sentence; nothing for None."""
    match name, value:
        case _, None:
            return ""
        case _, Outcome():
            return value.sentence
        case "percent", _:
            return f"{100 * value:.0f} %"
        case "largest", _:
            return f"{100 * value:.2g} %"
        case "tolerance", _:
            return f"{100 * value:g} %"
        case "near", _:
            return f"{value:.4f}"
        case "beside", _:
            return f", and a factor of {number(value)}"
        case "elsewhere", _:
            return f", and a factor of {number(value)} elsewhere"
        case "guess", _:
            return f" ({' '.join(GUESSES[kind].format(of) for kind, of in value)})" if value else ""
        case "slope", _:
            return f"{'+' if value > 0 else ''}{number(value)}"
        case "temperatures", (own, other):
            return f" (temperature {own:.4g} instead of {other:.4g})"
        case "pull", _:
            return ", for the negatives only" if math.isnan(value) else f", and a factor of {number(value)}"
        case "to", _:
            return PULLED_TO.get(value, "other rows")
        case "kinds", _:
            return " and ".join(KIND_WORDS.get(kind, kind) for kind in value)
        case "factors", _:
            return ", ".join(f"{kind} {number(ratio)}" for kind, ratio in value.items())
        case "where", _:
            return " and ".join(f"{end} {span(rows)}" for end, rows in value.items())
        case "cosines", (above, below):
            ends = [f"above {above:.2f}"] if above is not None else []
            return " and ".join([*ends, *([f"below {below:.2f}"] if below is not None else [])])
    return number(value) if isinstance(value, float) else span(value) if isinstance(value, list) else str(value)


# ---------------------------------------------------------------------------------------------------- ways of computing

# Ways of which a spelling has one at most, with the meaning of their number.
WAYS = {
    "chunks": "chunks of this many queries, each against all candidates",
    "ranks": "this many processes, whose gradients are averaged",
    "accumulate": "this many mini-batches, whose gradients are averaged",
}
# Other options of a spelling: the field of `Way`, and its values. `gather` and `loss` are of `ranks`: what processes
# gather, with or without its gradient, and of which queries each computes the loss.
WAY_OPTIONS = {
    "gather": ("gather", ("grad", "detached", "none")),
    "loss": ("scope", ("local", "global")),
    "reduction": ("reduction", ("mean", "sum")),
    "dtype": ("dtype", tuple(DTYPES)),
}
EXAMPLE = "ntxent, ntxent@temperature=0.05, ntxent@chunks=32 or ntxent@ranks=2,gather=detached"


@dataclass(frozen=True, eq=False)
class Way:
    """A loss, and how it is computed.

    Args:
        spelling: as it was written.
        loss: of one batch.
        way: one of `WAYS`, or None: the whole batch at once.
        number: of the way.
        gather: of `ranks`: `grad`, `detached` or `none`.
        scope: of `ranks`: `local` queries, or `global`.
        reduction: `mean` over the queries, or `sum`.
        dtype: name of that of the computation; None: that of the embeddings.
        parameters: that were given to the loss.
        scaling: parameters of the loss with their values, where they are known.
        scale: factor of the scores in the softmax of the loss, where it is known.
    """

    spelling: str
    loss: Sides
    way: str | None = None
    number: int = 1
    gather: str = "grad"
    scope: str = "local"
    reduction: str = "mean"
    dtype: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    scaling: dict[str, Any] = field(default_factory=dict)
    scale: float | None = None

    def __call__(self, query: Tensor, candidate: Tensor, negatives: Tensor | None) -> Tensor:
        """The loss whose gradient a step of the training has, ()."""
        if self.dtype is not None:
            query, candidate, negatives = (
                None if each is None else each.to(DTYPES[self.dtype]) for each in (query, candidate, negatives)
            )
        value = self._value(query, candidate, negatives)
        return value * len(query) if self.reduction == "sum" else value

    def _value(self, query: Tensor, candidate: Tensor, negatives: Tensor | None) -> Tensor:
        number, size = len(query), self.number if self.way == "chunks" else max(1, len(query) // self.number)
        parts = [slice(start, min(start + size, number)) for start in range(0, number, size)]
        if self.way == "chunks":
            means = [self.loss.block(rows, query[rows], candidate, negatives) * len(query[rows]) for rows in parts]
            return torch.stack(means).sum() / number
        if self.way in {"ranks", "accumulate"}:
            return torch.stack([self._part(rows, query, candidate, negatives) for rows in parts]).mean()
        return self.loss(query, candidate, negatives)

    def _part(self, rows: slice, query: Tensor, candidate: Tensor, negatives: Tensor | None) -> Tensor:
        """The loss of a mini-batch, or of a process; DistributedDataParallel averages the gradients of these.

        A process holds its own rows. What it gathers with gradients passes them back to the process whose rows they
        are, where they are summed, as `torch.distributed.nn.all_gather` does; gathered rows that are detached pass back
        nothing, but its own rows, which it puts in their place, do.
        """
        if self.way == "accumulate" or self.gather == "none":
            return self.loss(query[rows], candidate[rows], None if negatives is None else negatives[rows])

        def gathered(side: Tensor | None) -> Tensor | None:
            if side is None or self.gather == "grad":
                return side
            return torch.cat([side[: rows.start].detach(), side[rows], side[rows.stop :].detach()])

        own = query[rows]
        query, candidate, negatives = (gathered(side) for side in (query, candidate, negatives))
        if self.scope == "global":
            return self.loss(query, candidate, negatives)
        return self.loss.block(rows, own, candidate, negatives)

    @property
    def whole(self) -> bool:
        """Whether the loss sees the whole batch."""
        return self.way is None

    def fits(self, number: int) -> None:
        """Refuse a batch that does not divide into the mini-batches or processes."""
        if self.loss.reads and not self.whole:
            raise InputError(
                f"{self.spelling}: {self.way} cuts the batch, and its loss reads {' and '.join(self.loss.reads)} of "
                "the whole batch; compare it whole"
            )
        if self.way in {"ranks", "accumulate"} and (number % self.number or number < 2 * self.number):
            raise InputError(
                f"{self.spelling}: {number} rows do not make {self.number} equal parts of at least 2; take a batch "
                f"size that is a multiple of {self.number}"
            )


def way(given: Any, parameters: Mapping[str, Any] | None = None) -> Way:
    """Read a loss and its way of computing.

    Args:
        given: `LOSS` or `LOSS@NAME=VALUE,...`, where a name is a way, one of its options, `dtype`, `reduction`, or a
            parameter of the loss; or a loss or function itself.
        parameters: of the loss, for those of them that it has.
    """
    if not isinstance(given, str):
        loss = sides(given)
        return Way(loss.name, loss)
    name, sign, text = given.strip().partition("@")
    chosen = _options(given, text) if sign else {}
    ways = [each for each in WAYS if each in chosen]
    if len(ways) > 1:
        raise InputError(f"{given}: {' and '.join(ways)} are given; one way of computing at a time")
    if not name.strip():
        raise InputError(f"{given!r}: no loss before @; write it like {EXAMPLE}")
    own = {each: value for each, value in chosen.items() if each not in {*WAYS, *WAY_OPTIONS}}
    known, shared = losses.parameter_names(name), dict(parameters or {})
    if known is not None:
        for each in own:
            if each not in known:
                raise InputError(nearest(f"way or parameter of {name}", each, {*known, *WAYS, *WAY_OPTIONS}))
        shared = {each: value for each, value in shared.items() if each in known}
    taken = shared | own
    made: dict[str, Any] = {"parameters": taken}
    loss = sides(name, taken)
    if losses.canonical(name) in losses.names():
        closed = losses.load(name, taken)
        made |= {"scaling": closed.parameters, "scale": closed.softmax_scale}
    for each, value in chosen.items():
        if each in WAYS:
            if not value.isdecimal() or not 1 <= int(value) <= 10**9:
                raise InputError(f"{given}: {each}={value}, expected an integer of at least 1: {WAYS[each]}")
            made |= {"way": each, "number": int(value)}
        elif each in WAY_OPTIONS:
            place, values = WAY_OPTIONS[each]
            if value not in values:
                raise InputError(f"{given}: {each}={value}, expected one of {', '.join(values)}")
            made[place] = value
    if {"gather", "loss"} & chosen.keys() and "ranks" not in chosen:
        raise InputError(f"{given}: gather and loss belong to ranks, like {name}@ranks=2,gather=detached")
    if made.get("gather") == "none" and "loss" in chosen:
        raise InputError(f"{given}: with gather=none each process has its own rows alone, so loss= has no meaning")
    return Way(given, loss, **made)


def _options(spelling: str, text: str) -> dict[str, str]:
    """The options after `@`, by name."""
    found: dict[str, str] = {}
    for item in text.replace("@", ",").split(","):
        name, sign, value = (part.strip() for part in item.partition("="))
        if not (name and sign and value):
            raise InputError(f"{spelling}: {item.strip()!r} after @, expected NAME=VALUE, like {EXAMPLE}")
        if name in found:
            raise InputError(f"{spelling}: {name} is given twice")
        found[name] = value
    return found


# ------------------------------------------------------------------------------------------------------- the comparison


@dataclass(frozen=True, eq=False)
class Compared:
    """Two gradients of one batch.

    Args:
        a: the loss A, and how it is computed.
        b: the loss B.
        batch: its rows.
        first: gradient of A.
        second: of B.
        exchanged: gradient of A with queries and candidates exchanged, in the order of A's rows, or None.
        returned: likewise of B.
        narrow: whether one of them computes in a dtype that is narrower than float64.
        tolerance: largest difference of gradients that are the same, in parts of the largest number.
    """

    a: Way
    b: Way
    batch: PairRows
    first: PairGradients
    second: PairGradients
    exchanged: PairGradients | None
    returned: PairGradients | None
    narrow: bool
    tolerance: float

    @cached_property
    def layout(self) -> RowKinds:
        """Kinds of the rows, and of their pairs."""
        return RowKinds(self.batch.number, self.batch.hard, self.batch.query.device)

    @cached_property
    def cosines(self) -> Tensor:
        """Cosines of all rows as their pairs were scored, (R, R)."""
        return (1 - OWN_COORDINATE**2) * cosine(self.batch.matrix, self.batch.matrix)

    @property
    def counts(self) -> Iterator[tuple[float, str, Any]]:
        """Numbers that a factor may be: value, kind of `GUESSES`, and what it says."""
        for one in (self.a, self.b):
            if one.way in {"ranks", "accumulate"}:
                yield float(one.number), one.way, one.number
            for name in SCALING_PARAMETERS:
                if isinstance(value := one.scaling.get(name), int | float) and 0 < value < math.inf:
                    yield float(value), "parameter", name
        number = self.batch.number
        yield from ((float(number), "queries", number), (float(number**2), "pairs", ""))

    @property
    def room(self) -> float:
        """Tolerance of a structure."""
        return max(self.tolerance, STRUCTURE)

    @property
    def pairs(self) -> tuple[Tensor, Tensor] | None:
        """Both matrices of pairs; None where one of them is not known."""
        a, b = self.first.pairs, self.second.pairs
        return None if a is None or b is None else (a, b)

    @property
    def cosine(self) -> float:
        """Cosine of both gradients."""
        a, b = (each.rows.flatten() for each in (self.first, self.second))
        return float(torch.nn.functional.cosine_similarity(a, b, dim=0))

    @property
    def rows(self) -> Fit:
        """B's rows as a multiple of A's."""
        return fit(self.first.rows, self.second.rows)

    def close(self, found: Fit) -> bool:
        """Whether a fit leaves nothing but rounding, in parts of the largest number of all pairs."""
        a, b = (float(each.abs().max()) for each in self.pairs or ())
        return found.off <= self.room * max(a, b / max(abs(found.ratio), 1e-9)) * max(abs(found.ratio), 1e-9)

    def zero(self, values: Tensor, mask: Tensor) -> bool:
        """Whether values are zero where a mask is set."""
        return float(values[mask].abs().max()) <= self.room * float(values.abs().max())

    def factor(self, ratio: float) -> float | None:
        """A ratio, unless it is 1."""
        return None if abs(ratio - 1) <= self.room else ratio

    def guesses(self, ratio: float) -> list[tuple[str, Any]]:
        """What a factor may come from: kinds of `GUESSES`, and what they say."""
        room = 10 * self.room

        def near(value: float) -> bool:
            return abs(ratio / value - 1) <= room or abs(ratio * value - 1) <= room

        found = list(dict.fromkeys((kind, of) for value, kind, of in self.counts if value != 1 and near(value)))
        whole = round(max(ratio, 1 / ratio))
        if not found and whole > 1 and near(whole):
            found = [(kind, "") for kind in ("mean", "processes", *(["directions"] if whole == 2 else []))]
        return found

    def where(self, rows: Sequence[int]) -> dict[str, list[int]]:
        """Row numbers by end."""
        end = self.layout.end.tolist()
        found = {
            name: [row - self.layout.rows(place).start for row in rows if end[row] == place]
            for place, name in enumerate(ENDS)
        }
        return {name: own for name, own in found.items() if own}

    def by_kind(self) -> Iterator[tuple[int, int, Fit, float]]:
        """Yield (end, kind of pair, fit, part of A's weights) for each kind of pair that one of them has."""
        a, b = self.pairs or (self.cosines[:0], self.cosines[:0])
        total = max(float(a.abs().sum()), 1e-300)
        for end in range(len(ENDS) if len(a) else 0):
            reached = (self.layout.end == end)[:, None].expand_as(a)
            for kind in range(len(PAIR_KINDS)):
                mask = reached & (self.layout.kind == kind)
                if mask.any() and bool((a[mask] != 0).any() | (b[mask] != 0).any()):
                    yield end, kind, fit(a, b, mask), float(a[mask].abs().sum()) / total


def answer(both: Compared) -> Outcome:
    """Ask the questions in their order; the first that applies has the answer."""
    if both.batch.annotations.groups is not None or both.batch.beyond:
        found = _unusable(both) or _scaled(both) or _along_rows(both)
        if found is not None and (found.same or found.kind == "idle"):
            return found
        return _several(both, found) if both.batch.annotations.groups is not None else _beyond(both, found)
    answers = (question(both) for question in QUESTIONS)
    more = (question(both, *both.pairs) for question in PAIR_QUESTIONS if both.pairs is not None)
    found = next(filter(None, answers), None) or next(filter(None, more), None)
    return found or _otherwise(both)


def _several(both: Compared, found: Outcome | None) -> Outcome:
    """A difference that only queries with several positives have."""
    groups = both.batch.annotations.groups
    assert groups is not None
    positives = (groups[:, None] == groups[None, :]).sum(dim=1)
    if both.pairs is not None and found is None:
        mixed = both.layout.rows(0), both.layout.rows(1)  # how queries and candidates reach each other
        a, b = (each[mixed[0], mixed[1]] for each in both.pairs)
        for form, factor in (("mean over positives", 1 / positives), ("sum over positives", positives)):
            scaled = fit(a * factor[:, None], b)
            if both.close(scaled) and scaled.ratio > 0:
                return outcome(form, numbers={"beside": both.factor(scaled.ratio)})
    return outcome("several positives", both.rows.ratio, {"inner": found or _unlike(both)})


def _unlike(both: Compared) -> Outcome:
    return outcome("unlike", both.rows.ratio, {"cosine": both.cosine})


def _beyond(both: Compared, found: Outcome | None) -> Outcome:
    """A difference that only scores outside of the range of the data have."""
    if both.pairs is not None and found is None:
        rows, columns = both.layout.rows(0), both.layout.rows(1)
        cosines = both.cosines[rows, columns]
        a, b = (each[rows, columns] for each in both.pairs)
        for name, one, other in (("B", a, b), ("A", b, a)):
            gone = (one.abs() > both.room * one.abs().max()) & (other.abs() <= both.room * other.abs().max())
            if gone.any():
                above, below = cosines[gone & (cosines > 0)], cosines[gone & (cosines < 0)]
                ends = (float(above.min()) if len(above) else None), (float(below.max()) if len(below) else None)
                return outcome("clamp", 0.0 if name == "B" else math.inf, {"name": name, "cosines": ends})
    return outcome("beyond", both.rows.ratio, {"inner": found or _unlike(both)})


def _unusable(both: Compared) -> Outcome | None:
    for name, one in (("A", both.first), ("B", both.second)):
        if not one.rows.isfinite().all():
            bad = (~one.rows.isfinite()).any(dim=1).nonzero().flatten().tolist()
            return outcome("nan", numbers={"name": name, "where": both.where(bad)})
    empty = [not one.rows.any() for one in (both.first, both.second)]
    if all(empty):
        return outcome("idle")
    if any(empty):
        return outcome("none", *((math.inf, {"name": "A"}) if empty[0] else (0.0, {"name": "B"})))
    return None


def _scaled(both: Compared) -> Outcome | None:
    """The same, up to a factor or not."""
    rows = both.rows
    if rows.off > both.tolerance * max(rows.other, 1e-300):
        return None
    if both.pairs is not None:
        pairs = fit(*both.pairs)
        if pairs.off > both.tolerance * max(pairs.other, 1e-300) or abs(pairs.ratio - rows.ratio) > both.room:
            return None
    if abs(rows.ratio - 1) <= both.tolerance:
        return outcome("same", rows.ratio, same=True)
    if rows.ratio < 0:
        return outcome("negative factor", rows.ratio)
    return outcome("factor", rows.ratio, {"guess": both.guesses(rows.ratio)})


def _along_rows(both: Compared) -> Outcome | None:
    """The same pair by pair; what differs points along the rows themselves, which normalising removes."""
    if both.pairs is None:
        return None
    pairs = fit(*both.pairs)
    if pairs.off > both.room * max(pairs.other, 1e-300):
        return None
    same = both.factor(pairs.ratio) is None
    inner = outcome("same") if same else outcome("factor", pairs.ratio, {"guess": both.guesses(pairs.ratio)})
    unit_rows = bool(((both.batch.matrix.norm(dim=1) - 1).abs() <= UNIT_LENGTH).all())
    form = "unit vectors" if unit_rows else "one normalises"
    return outcome(form, pairs.ratio, {"inner": inner}, same=same and unit_rows)


def _rounding(both: Compared) -> Outcome | None:
    """A difference that is larger than the tolerance of a narrow dtype, and still small."""
    rows = both.rows
    off = float((both.second.rows - both.first.rows).abs().max()) / max(rows.size, 1e-300)
    if not both.narrow or off > 10 * both.tolerance or both.cosine < LIKE:
        return None
    return outcome("rounding", rows.ratio, {"largest": off, "tolerance": both.tolerance, "near": both.cosine})


def _exchanged(both: Compared) -> Outcome | None:
    """The other direction, or both directions."""
    a, b = both.first.rows, both.second.rows
    for own, other, mine, one, two in ((both.exchanged, b, a, "A", "B"), (both.returned, a, b, "B", "A")):
        if own is None:
            continue
        for form, rows in (("exchanged", own.rows), ("directions", (own.rows + mine) / 2)):
            found = fit(rows, other)
            if found.off <= both.room * max(found.other, 1e-300) and found.ratio > 0:
                return outcome(form, found.ratio, {"one": one, "two": two, "beside": both.factor(found.ratio)})
    return None


def _opposite(both: Compared, a: Tensor, b: Tensor) -> Outcome | None:
    """A pull where the other one pushes."""
    against = float(a[a * b < 0].abs().sum()) / max(float(a.abs().sum()), 1e-300)
    return None if against < MOSTLY else outcome("opposite", fit(a, b).ratio, {"cosine": both.cosine})


def _misaligned(both: Compared, a: Tensor, b: Tensor) -> Outcome | None:
    """Queries that are pulled to other rows than their own candidates."""
    number_, rows = both.layout.number, both.layout.rows(0)
    a, b, own = a[rows], b[rows], torch.arange(both.layout.number, device=a.device)
    pulled = a[own, number_ + own] < -both.room * a.abs().max()
    target = b.argmin(dim=1)
    elsewhere = (target != number_ + own) & (b.amin(dim=1) < 0) & (b[own, number_ + own] >= 0)
    wrong = (pulled & elsewhere).nonzero().flatten()
    if len(wrong) < max(2, number_ // FEW):
        return None
    kinds = both.layout.kind[wrong, target[wrong]].bincount(minlength=len(PAIR_KINDS))
    kept = float(b[own, number_ + own].clamp(max=0).sum() / a[own, number_ + own].clamp(max=0).sum())
    return outcome("misaligned", kept, {"rows": wrong.tolist(), "to": PAIR_KINDS[int(kinds.argmax())]})


def _lines(x: Tensor, y: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """Both less their means over the entries that are used in each row, 0 elsewhere."""
    many = used.sum(dim=1, keepdim=True).clamp(min=1)
    x, y = (torch.where(used, each - (each * used).sum(dim=1, keepdim=True) / many, 0) for each in (x, y))
    return x, y


def _blocks(both: Compared, a: Tensor, b: Tensor) -> Outcome | None:
    """Pairs across mini-batches or processes."""
    total = both.layout.number
    sizes = [total // k for k in range(total // 2, 1, -1) if total % k == 0]
    asked = *((_apart, size) for size in sizes), *((_detached, size) for size in reversed(sizes))
    return next(filter(None, (ask(both, a, b, size) for ask, size in asked)), None)


def _apart(both: Compared, a: Tensor, b: Tensor, size: int) -> Outcome | None:
    """No pair across blocks of so many rows, and some within them."""
    block = both.layout.pair // size
    across, mixed = block[:, None] != block[None, :], both.layout.kind == PAIR_KINDS.index("in-batch")
    if not both.zero(b, across) or both.zero(a, across) or both.zero(b, mixed & ~across):
        return None
    part = float(a[across].abs().sum() / a.abs().sum())
    length = float(both.second.rows.norm() / both.first.rows.norm())
    return outcome("blocks", 0.0, {"size": size, "percent": part, "cosine": both.cosine, "length": length})


def _detached(both: Compared, a: Tensor, b: Tensor, size: int) -> Outcome | None:
    """The same within blocks of so many rows, and not across them."""
    block = both.layout.pair // size
    across = block[:, None] != block[None, :]
    asking = (both.layout.end == 0)[:, None].expand_as(across)
    here = fit(a, b, ~across)
    if not both.close(here) or both.zero(a, across) or both.close(fit(a, b)):
        return None
    numbers = {"size": size, "elsewhere": both.factor(here.ratio)}
    there = fit(a, b, across & asking)
    if both.close(there) and abs(there.ratio - here.ratio) <= both.room:
        return outcome("detached", fit(a, b, across & ~asking).ratio, numbers)
    return outcome("across", fit(a, b, across).ratio, numbers)


def _sources(both: Compared, a: Tensor, b: Tensor) -> Outcome | None:
    """Kinds of pairs that one of them leaves out, or that alone differ."""
    off_diagonal = ~torch.eye(len(a), dtype=torch.bool, device=a.device)
    masks = {name: both.layout.kind == place for place, name in enumerate(PAIR_KINDS)}
    there = {name: mask & off_diagonal for name, mask in masks.items() if mask.any()}
    for values, others, form, ratio in ((b, a, "left out", 0.0), (a, b, "added", math.inf)):
        gone = [kind for kind, mask in there.items() if both.zero(values, mask) and not both.zero(others, mask)]
        if gone:
            part = sum(float(others[there[kind]].abs().sum()) for kind in gone) / float(others.abs().sum())
            rest = fit(a, b, torch.stack([mask for kind, mask in there.items() if kind not in gone]).any(dim=0))
            close = "rest" if both.factor(rest.ratio) is None else "scaled rest"
            inner = outcome(close if both.close(rest) else "other rest", rest.ratio)
            return outcome(form, ratio, {"kinds": gone, "percent": part, "inner": inner})
    fits = {kind: fit(a, b, mask) for kind, mask in there.items() if not both.zero(a, mask)}
    if len(fits) < 2 or not all(both.close(each) for each in fits.values()):
        scale = both.room * float(a.abs().max())
        apart = [kind for kind, mask in there.items() if float((b - a)[mask].abs().max()) > scale]
        if len(apart) != 1:
            return None
        return outcome("source", fit(a, b, there[apart[0]]).ratio, {"kinds": apart})
    ratios = {kind: each.ratio for kind, each in fits.items()}
    usual = sorted(ratios.values())[len(ratios) // 2]
    apart = [kind for kind, ratio in ratios.items() if abs(ratio - usual) > 10 * both.room * max(abs(usual), 1)]
    if len(apart) == 1 and abs(usual - 1) <= 10 * both.room:
        return outcome("source", ratios[apart[0]], {"kinds": apart})
    return outcome("factors", numbers={"factors": ratios})


def _another_temperature(both: Compared, a: Tensor, b: Tensor) -> Outcome | None:
    """Return the difference of the scales of B and A, if both have the weights of a softmax.

    Pull and push of a softmax are equal. The logarithm of the ratio of two weights is linear in the score, and the
    slope is the difference of the scales.
    """
    rows = both.layout.rows(0)
    a, b, kind, known = a[rows], b[rows], both.layout.kind[rows], both.a.scale
    if any(float(weights.sum().abs()) > UNBALANCED * float(weights.abs().sum()) for weights in (a, b)):
        return None
    seen = SEEN_NARROW if both.narrow else SEEN_WEIGHT
    least = seen * float(a.max()), seen * float(b.max())
    used = (kind == PAIR_KINDS.index("in-batch")) & (a > least[0]) & (b > least[1])
    x, y = _lines(both.cosines[rows], torch.where(used, b / torch.where(used, a, 1), 1).log(), used)
    if not float(x.square().sum()) or int(used.sum()) < 4 * both.layout.number:
        return None
    slope = float((x * y).sum() / x.square().sum())
    off = float((y - slope * x).abs().max())
    if abs(slope) <= STRUCTURE or off > STRAIGHT * abs(slope) * float(x.abs().max()):
        return None
    if known is None or known + slope <= 0:
        return outcome("temperature", numbers={"slope": slope, "temperatures": None, "pull": None})
    scale = known + slope  # what differs from the mean of cross-entropies at that scale
    candidates, positive = kind < PAIR_KINDS.index("query-query"), kind == PAIR_KINDS.index("positives")
    shares = (scale * both.cosines[rows]).masked_fill(~candidates, -math.inf).softmax(dim=1)
    pull = fit((scale * (shares - 1) / both.layout.number)[positive], b[positive])
    ratio = None if abs(pull.ratio - 1) <= PULL_ERROR else pull.ratio
    numbers = {"slope": slope, "temperatures": (1 / scale, 1 / known)}
    numbers["pull"] = math.nan if pull.off > PULL_ERROR * pull.other else ratio
    return outcome("temperature", scale / known, numbers)


def _otherwise(both: Compared) -> Outcome:
    """A difference without a pattern that is known here."""
    rows = both.rows
    apart = (both.second.rows - rows.ratio * both.first.rows).abs().amax(dim=1)
    largest, where = rows.off / max(rows.other, 1e-300), both.where([int(apart.argmax())])
    return outcome("other", rows.ratio, {"cosine": both.cosine, "largest": largest, "where": where})


QUESTIONS: tuple[Callable[[Compared], Outcome | None], ...] = (_unusable, _scaled, _along_rows, _rounding, _exchanged)
# Questions on the derivatives by single pairs, of A and of B.
PAIR_QUESTIONS: tuple[Callable[[Compared, Tensor, Tensor], Outcome | None], ...] = (
    *(_opposite, _misaligned, _blocks, _sources, _another_temperature),
)


# -------------------------------------------------------------------------------------------------------- the answer


@ranges.checked
def same_gradient(
    a: Any,
    b: Any,
    embeddings: Embeddings | Checkpoint | None = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    batch_size: Annotated[int, whole(4)] = 64,
    batches: Annotated[int, whole(1)] = 2,
    tolerance: PairTolerance = None,
    seed: Annotated[int, whole(0)] = 0,
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
            mean is taken. After a name, `@` says how it is computed: `ntxent@temperature=0.05`, `@chunks=32` (of
            queries), `@ranks=2` (processes; `gather=grad`, `detached` or `none`,
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

    Examples:
        >>> cocos.measures.same_gradient("ntxent", "ntxent@chunks=16").attrs["verdict"]
        'the same'
        >>> cocos.measures.same_gradient("ntxent", "ntxent@reduction=sum").attrs["verdict"]
        'the same up to a factor of 64.00 (mean against sum over 64 queries?)'
    """
    first, second = (way(each, parameters) for each in (a, b))
    for name in parameters or {}:
        if not any(name in each.parameters for each in (first, second)):
            raise InputError(f"parameter {name}: neither {first.spelling} nor {second.spelling} has it")
    identity = embeddings.identity() | {"split": split} if isinstance(embeddings, Checkpoint) else {}
    given = None if embeddings is None else embedded(embeddings, split, device, progress)
    real = None if given is None else given.to(dtype=torch.float64)
    narrow = [name for name in DTYPES if name in {first.dtype, second.dtype}]
    dtype = narrow[-1] if narrow else "float64"
    room = TOLERANCES[dtype] if tolerance is None else tolerance
    drawn_ = _batches(real, batch_size, batches, (first.loss, second.loss), seed, device)
    # Further batches, which the data may not have: several positives of a query, and cosines over the whole range. Ways
    # that cut a batch keep no groups, losses of hard negatives or of annotations alone are not asked, and a narrow
    # dtype rounds cosines near 1 too much.
    place, fewest, next_seed = drawn_[0].query.device, min(batch_size, drawn_[0].number), seed + batches
    further, several, plain = list[PairRows](), None, not any(each.loss.needed for each in (first, second))
    if plain and all(each.whole and each.loss.several == "groups" for each in (first, second)):
        several = grouped(fewest, next_seed, place) if real is None else drawn_groups(real, fewest, next_seed)
        further += [] if several is None else [several]
    if plain and dtype == "float64" and not any(each.loss.reads for each in (first, second)):
        further.append(stretched(fewest, next_seed, place))
    report, every = progress and progress("comparing gradients"), [*drawn_, *further]
    shown: tuple[PairRows, Compared, Outcome] | None = None
    for done, rows in enumerate(every):  # until they differ; the last one of the data with a gradient is shown
        both = _compared(first, second, rows, DTYPES[dtype] if narrow else None, room)
        found = answer(both)
        if report:
            report(done + 1, len(every))
        if shown is None or (found.kind != "idle" and not ((rows.several or rows.beyond) and found.same)):
            shown = rows, both, found
        if not found.same and found.kind != "idle":
            break
    assert shown is not None  # there is a batch
    rows, both, found = shown
    verdict, same = found.sentence, found.same
    one, other = (each.spelling.partition("@")[0].strip() for each in (first, second))
    alike = one == other and first.parameters == second.parameters  # one loss, computed in two ways
    if same and several is None and first.loss.several and second.loss.several and not alike:
        verdict = f"{verdict}, with one positive a query"
    notes, lacking = list[str](), [each.spelling for each in (first, second) if not each.loss.columns]
    if lacking and (real is None or real.negatives is not None):
        plural = "take" if len(lacking) > 1 else "takes"
        notes.append(f"{' and '.join(lacking)} {plural} no hard negatives, so the batches have none")
    if rows.number < batch_size:
        notes.append(f"batches of {rows.number} pairs: there are no more groups with a query and a candidate")
    if both.pairs is None:
        notes.append("a loss depends on the width of the embeddings, so that single pairs are not compared, rows are")
    if rows.hard and not same and not drawn_[0].hard:
        notes.append("without hard negatives they are the same")
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
        "verdict": verdict,
        "same": int(same),
        "found": found.kind,
        "next": found.cure,
        "ratio": found.ratio,
    }
    return _dataset(both, attrs)


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


def _compared(a: Way, b: Way, rows: PairRows, rounded: torch.dtype | None, tolerance: float) -> Compared:
    """Gradients of both losses on a batch, and what the questions need beside them."""
    for each in (a, b):
        each.fits(rows.number)
    a, b = (replace(each, loss=replace(each.loss, annotations=rows.annotations)) for each in (a, b))
    turned: list[PairGradients | None] = [None, None]
    if not rows.hard and not a.loss.reads and not b.loss.reads:
        other = PairRows(rows.candidate, rows.query, None)
        order = torch.arange(2 * rows.number).roll(rows.number)
        for place, each in enumerate((a, b)):
            found = gradients(each.spelling, each, other, rounded)
            turned[place] = PairGradients(found.value, found.rows[order.to(found.rows.device)], None)
    first, second = (gradients(each.spelling, each, rows, rounded) for each in (a, b))
    return Compared(a, b, rows, first, second, *turned, narrow=rounded is not None, tolerance=tolerance)


def _dataset(both: Compared, attrs: dict) -> xr.Dataset:
    """Label the ratios by kind of pair and by row."""
    ratio, gap, part = (np.full((len(ENDS), len(PAIR_KINDS)), np.nan) for _ in range(3))
    scale = 1.0 if both.pairs is None else max(float(each.abs().max()) for each in both.pairs) or 1.0
    for end, kind, each, share in both.by_kind():
        ratio[end, kind], gap[end, kind], part[end, kind] = each.ratio, each.off / scale, share
    a, b = both.first.rows, both.second.rows
    fits, largest = [fit(one, other) for one, other in zip(a, b, strict=True)], max(float(a.abs().max()), 1e-300)
    places, of_a = ("end", "kind"), "ratio B / A"
    off = "largest difference"
    variables = {
        "ratio": (places, ratio, of_a),
        "gap": (places, gap, off, "largest weight"),
        "part": (places, part, "weight fraction in A"),
        "row_ratio": ("row", [each.ratio for each in fits], of_a),
        "row_gap": ("row", [each.off / largest for each in fits], off, "largest gradient"),
        "row_end": ("row", np.array(ENDS)[both.layout.end.cpu().numpy()], "kind of row"),
        "end": ("end", list(ENDS), "gradient of"),
        "kind": ("kind", list(PAIR_KINDS), "kind of pair"),
    }
    gap_of_rows = float((b - a).abs().max()) / largest
    values = {"value_a": both.first.value, "value_b": both.second.value}
    return results.labelled(
        variables, attrs | {"gap": gap_of_rows, "cosine": both.cosine} | values, measure="same_gradient"
    )
