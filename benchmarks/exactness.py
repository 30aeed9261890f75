"""Compare counts with dense float64: `python -m benchmarks.exactness --cases 20000 --seed 0`; exit 1 on a mismatch.

A case is one loss on one random or adversarial set, in both directions. The engine counts in float32, with the compiled
kernel or with `COCOS_KERNEL=plain`. The loss's own closed form on dense float64 scores gives the expected numbers. A
count may differ by the candidates that the engine reports as uncertain, and only ties may be uncertain.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from cocos import engine, losses
from cocos.counting import statistics
from cocos.embeddings import Embeddings, scores
from cocos.embeddings.sampling import Batch
from cocos.embeddings.scores import Pairs
from cocos.engine import bounds, readers

ROUNDING = 4e-7  # of a float32 score of unit vectors; 1e-7 to 3e-7 were measured
SUMS = 1e-5  # relative error of float32 exponentials and their sums
TIE = 1e-9  # relative difference of a share and eps below which float64 sums, in any order, need not agree
FAR = 1e-6  # share of all the candidates that a reader leaves out as too far
DRAWS_PER_PROCESS = 200
ROWS = (2, 3, 5, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 257, 384, 513)
WIDTHS = (1, 2, 3, 4, 7, 8, 9, 16, 17, 33, 64, 100, 128, 256, 512)
VECTORS = ("random", "duplicates", "clusters", "collapsed", "equal", "ascending", "ulps", "lengths")
SETS = ("pairs", "paired", "captions", "labelled", "proxies", "rectangle", "stack")
PARAMETERS = {
    "ntxent": {"temperature": (0.01, 0.05, 0.1, 0.5, 1.0)},
    "supcon": {"temperature": (0.02, 0.1, 0.5)},
    "ce_softmax": {"scale": (1.0, 5.0, 20.0, 64.0)},
    "sampled_softmax": {"scale": (5.0, 64.0)},
    "cosface": {"scale": (5.0, 20.0), "margin": (0.0, 0.35)},
    "triplet": {"margin": (0.0, 0.05, 0.2, 0.5)},
    "triplet_sh": {"margin": (0.0, 0.2, 0.25)},
    "siglip": {"scale": (5.0, 10.0, 30.0, 117.0), "bias": (-90.0, -12.9, -10.0, 0.0, 2.5)},
    "snm": {"scale": (5.0, 20.0), "fraction": (0.05, 0.29, 0.5, 1.0)},
    "circle": {},
    "multi_similarity": {},
    "n_pair": {},
    "euclidean_softmax": {"scale": (1.0, 5.0)},
    "triplet_euclidean": {"margin": (0.0, 0.2)},
}
EPS = (0.01, 0.01, 0.01, 1e-4, 0.001, 0.1, 0.25, 0.5)


@dataclass(frozen=True, eq=False)
class Case:
    """A set of rows, and how its scores are computed.

    Args:
        embeddings: the set.
        batch: a batch, or a stack of batches; None: all rows.
        same_group: `ignore` or `negative`.
    """

    embeddings: Embeddings
    batch: Batch | tuple[Batch, ...] | None = None
    same_group: str = "ignore"

    def single_direction(self, metric: str) -> Embeddings:
        """Return the rows, in one direction if the metric is not symmetric."""
        names = self.embeddings.directions
        return self.embeddings.replace(directions=names[:1]) if metric == "cosine_dot" else self.embeddings

    def view(self, metric: str = "cosine", product: str = "float32") -> engine.View:
        """Return the scores as the engine sees them."""
        rows = self.single_direction(metric)
        return engine.view(rows, self.batch, metric=metric, same_group=self.same_group, product=product)

    @functools.cache  # noqa: B019
    def pairs(self, metric: str = "cosine") -> list[list[Pairs]]:
        """Return the dense float64 scores of each batch, for each direction."""
        rows = self.single_direction(metric)
        batches = self.batch if isinstance(self.batch, tuple) else (self.batch,)
        directions = [(rows, batches)]
        if len(rows.directions) == 2:
            directions.append((rows.flip(), [batch and batch.flip() for batch in batches]))
        return [[self._dense(rows, batch, metric) for batch in batches] for rows, batches in directions]

    def _dense(self, rows: Embeddings, batch: Batch | None, metric: str) -> Pairs:
        pairs = scores.pairs(rows.to(dtype=torch.float64), batch, metric=metric, same_group=self.same_group)
        return replace(pairs, scores=dense_scores(pairs.embeddings.query, pairs.embeddings.candidate, metric))


def dense_scores(query: Tensor, candidate: Tensor, metric: str) -> Tensor:
    """Compute scores in extended precision, so that equal rows have equal scores: (Q, C) float64."""
    sides = [side.double().numpy().astype(np.longdouble) for side in (query, candidate)]
    units = {"cosine": (0, 1), "cosine_dot": (0,)}.get(metric, ())
    for side in units:
        largest = np.abs(sides[side]).max(axis=1, keepdims=True)
        rows = sides[side] / np.where(largest > 0, largest, 1)
        sides[side] = rows / np.sqrt((rows**2).sum(axis=1, keepdims=True))
    if metric in {"euclidean", "squared_euclidean"}:
        squares = np.stack([((sides[1] - row) ** 2).sum(axis=1) for row in sides[0]])
        values = -np.sqrt(squares) if metric == "euclidean" else -squares
    else:
        values = sides[0] @ sides[1].T
    return torch.from_numpy(values.astype(np.float64))


def score_error(pairs: Pairs, metric: str) -> Tensor:
    """Estimate the error of a float32 score of each query, (Q,)."""
    one = torch.full_like(pairs.scores[:, 0], ROUNDING)
    left, right = pairs.query_norm.max(), pairs.candidate_norm.max()
    square = 2 * (left + right).square() * one
    if metric == "euclidean":
        nearest = pairs.scores.masked_fill(~pairs.negative, -torch.inf).amax(dim=1).abs()
        return (square / nearest).minimum(square.sqrt())
    return {"cosine": one, "cosine_dot": right * one, "dot": left * right * one, "squared_euclidean": square}[metric]


def count_ties(loss, share: Tensor, pairs: Pairs, eps: float) -> Tensor:
    """Count the negatives at eps, or at the threshold of a hinge, as near as float64 can decide: (Q,)."""
    ties = (share - eps).abs() <= TIE * eps
    if loss.hinge:
        size = 2 * bounds.TIE_WIDTH * max(1.0, pairs.scores.abs().max().item())
        levels = (pairs.scores - loss.margin).masked_fill(~pairs.positive, torch.inf).sort(dim=1).values
        first = torch.searchsorted(levels, pairs.scores - size)
        ties |= torch.searchsorted(levels, pairs.scores + size, right=True) > first
    return (ties & pairs.negative).sum(dim=1)


def expected_sums(loss, share: Tensor, weight: Tensor, pairs: Pairs, eps: float, uncertain: Tensor) -> dict:
    """Return the sums of each query, (Q,), with the error that float32 may have."""
    steepness = (
        getattr(loss, "softmax_scale", None)
        or getattr(loss, "scale", None)
        or 1 / getattr(loss, "temperature", float("inf"))
    )
    error = torch.expm1(steepness * score_error(pairs, loss.metric)) + SUMS
    unit, part = loss.unit(pairs).expand_as(share)[:, 0], statistics.spread(weight, pairs)
    masks = (share > eps) & pairs.negative, (share <= eps) & pairs.negative, pairs.positive
    above, below, positive = (torch.where(mask, share, 0).sum(dim=1) for mask in masks)
    moved = uncertain * eps * (1 + TIE) + FAR
    push, pull = statistics.push(weight), statistics.pull(weight)
    sums = {
        "weight_above": (above, error * above + moved),
        "weight_below": (below, error * (above + below) + moved),
        "weight_positive": (positive, error * (1 + positive)),
        "push": (push, error * (unit + push)),
        "pull": (pull, error * (unit + pull)),
    }
    spread = {
        "hardest_share": statistics.hardest_share(part),
        "effective": 2 * statistics.effective(part),
        "participation": statistics.participation(part),
    }
    return sums | {
        name: (values / (2 if name == "effective" else 1), error * values) for name, values in spread.items()
    }


def compare(found: dict[str, Tensor], loss, eps: float, pairs: Pairs, *, sums: bool = True) -> list[str]:
    """Compare the statistics of one direction with the loss's closed form in float64; return the mismatches."""
    weight = loss.weight(pairs)
    share, part = weight.abs() / loss.unit(pairs), statistics.spread(weight, pairs)
    counts = {
        "contributing": (statistics.contributing(share, pairs, eps), "uncertain", share),
        "relative": (statistics.relative(part, eps), "relative_uncertain", part),
    }
    wrong = []
    for name, (expected, doubt, values) in counts.items():
        if name not in found:
            continue
        if (beyond := (found[name] - expected).abs() > found[doubt]).any():
            wrong.append(f"{name} of {int(beyond.sum())} queries, such as {int(beyond.nonzero()[0])}")
        ties = count_ties(loss, values, pairs, eps)
        if loss.hinge and name == "relative":
            ties = torch.where(ties > 0, pairs.scores.shape[1], 0)
        if (found[doubt] > ties).any():
            wrong.append(f"{doubt}: {int(found[doubt].sum())}, and {int(ties.sum())} are ties")
    if not torch.equal(found["negatives"], pairs.negative.sum(dim=1)):
        wrong.append("negatives")
    decided = found["uncertain"] == 0 if loss.hinge else torch.ones(len(share), dtype=torch.bool)
    expected = expected_sums(loss, share, weight, pairs, eps, found["uncertain"]) if sums else {}
    for name in expected.keys() & found.keys():
        values, error = expected[name]
        difference = (found[name] - values).abs()[decided]
        if not (difference <= (error + 1e-12)[decided]).all():
            wrong.append(f"{name}: off by up to {difference.max():.3g}")
    return wrong


def check(case: Case, questions: list[tuple], tile: tuple[int, int] | None = None, *, sums: bool = True) -> list[str]:
    """Count with several losses of one metric in one pass, (loss, eps) each, and return all mismatches."""
    metric = questions[0][0].metric
    asked = [readers.of(loss, eps, relative=True) for loss, eps in questions]
    results = engine.run(case.view(metric), asked, tile=tile)
    wrong = []
    for (loss, eps), directions in zip(questions, results, strict=True):
        for k, (side, batches) in enumerate(zip(directions, case.pairs(metric), strict=True)):
            start = 0
            for pairs in batches:
                stop = start + len(pairs.scores)
                found = {key: values[start:stop] for key, values in side.items()}
                wrong += [
                    f"{loss!r}, eps {eps!r}, direction {k}: {text}"
                    for text in compare(found, loss, eps, pairs, sums=sums)
                ]
                start = stop
    return wrong


def draw_vectors(kind: str, group: Tensor, width: int, random: np.random.Generator) -> Tensor:
    """Draw float64 vectors, (n, width); those of one group are near to each other."""
    generator = torch.Generator().manual_seed(int(random.integers(2**31)))
    number = len(group)

    def unit(rows: int) -> Tensor:
        return normalize(torch.randn(rows, width, generator=generator, dtype=torch.float64))

    if kind == "collapsed":
        return normalize(unit(1) + float(random.choice([1e-2, 1e-4])) * unit(number))
    if kind == "equal":
        return unit(1).expand(number, width).clone()
    if kind == "ascending":
        return normalize(torch.linspace(-0.9, 0.9, number).double()[:, None] * unit(1) + 0.3 * unit(number))
    centres = unit(int(group.max()) + 1)
    vectors = normalize(centres[group] + float(random.choice([0.3, 1.0, 2.0])) * unit(number))
    several = torch.randint(0, max(2, number // 4), (number,), generator=generator) % number
    if kind == "duplicates":
        return vectors[several]
    if kind == "clusters":
        return normalize(vectors[several] + float(random.choice([0.1, 0.03, 0.001])) * unit(number))
    if kind == "ulps":  # the last bit of some entries differs
        steps = torch.randint(-1, 2, vectors.shape, generator=generator).float() * 2.0**-23
        return (vectors[several].float() * (1 + steps)).double()
    if kind == "lengths":
        return vectors * torch.exp(torch.randn(number, 1, generator=generator, dtype=torch.float64))
    return vectors


def draw(number: int, seed: int = 0) -> tuple[str, Case, list[tuple]]:
    """Return a description, a case, and the losses of one metric with their eps; the same for the same number."""
    random = np.random.default_rng([seed, number])
    name = str(random.choice(list(PARAMETERS)))
    metric = losses.load(name).metric
    kinds = VECTORS if metric == "cosine" else ("random", "clusters", "ascending", "lengths")
    kind, structure = str(random.choice(kinds)), str(random.choice(SETS))
    rows, width = int(random.choice(ROWS)), int(random.choice(WIDTHS))
    dtype = (torch.float32, torch.float32, torch.float64, torch.float16)[int(random.integers(4))]
    group = other = torch.arange(rows)
    if structure == "captions":
        other = group.repeat_interleave(int(random.integers(2, 6)))
    elif structure == "proxies":
        classes = max(2, rows // 3)
        group, other = torch.from_numpy(random.integers(classes, size=rows)), torch.arange(classes)
    elif structure == "rectangle":
        other = torch.arange(rows + int(random.integers(1, 3 * rows)))
    elif structure in {"paired", "labelled"}:
        group = other = torch.from_numpy(random.integers(max(2, rows // 2), size=rows))
    vectors = draw_vectors(kind, torch.cat([group, other]), width, random).to(dtype)
    vectors[~vectors.any(dim=1)] = 1  # opposite vectors of width 1 add up to zero
    directions = ("q2c",) if structure in {"rectangle", "proxies"} else ("q2c", "c2q")
    if structure == "labelled":
        embeddings = Embeddings.labelled(vectors[:rows], group)
    else:
        embeddings = Embeddings(vectors[:rows], vectors[rows:], group, other, directions)
    order, batch = torch.from_numpy(random.permutation(rows)), None
    if structure == "paired":
        batch = Batch(order, order, paired=True)
    elif structure == "stack" and rows > 3:
        parts = [part for part in order.split(max(2, rows // 3)) if len(part) > 1]
        batch = tuple(Batch(part, part, paired=True) for part in parts)
    case = Case(embeddings, batch, str(random.choice(["ignore", "negative"])) if structure == "paired" else "ignore")
    questions = []
    for _ in range(3):
        parameters = {key: random.choice(values).item() for key, values in PARAMETERS[name].items()}
        loss = losses.load(name, parameters)
        pairs = case.pairs(metric)[0][0]
        shares = (loss.weight(pairs).abs() / loss.unit(pairs))[pairs.negative]
        shares = shares[(shares > 1e-6) & (shares < 1)]
        if len(shares) and random.random() < 0.35:  # at a share, or a few rounding errors away from it
            eps = shares[int(random.integers(len(shares)))].item() * float(random.choice([1, 1 + 1e-8, 1 - 1e-7]))
        else:
            eps = float(random.choice(EPS))
        questions.append((loss, eps))
    return f"{name}, {kind}, {structure}, {rows} x {width}, {dtype}", case, questions


def check_draws(first: int, stop: int, seed: int) -> None:
    """Check some draws, and print one line of JSON for each: number of cases, and mismatches."""
    torch.set_num_threads(1)
    for number in range(first, stop):
        text, case, questions = draw(number, seed)
        try:
            wrong = check(case, questions, sums=False)
        except Exception as error:  # a crash is a mismatch of its draw
            wrong = [f"{type(error).__name__}: {error}"]
        print(json.dumps([len(questions), [f"draw {number} ({text}): {each}" for each in wrong]]), flush=True)


def main() -> None:
    """Check draws in processes with and without the compiled kernel until there are enough cases."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exactness", description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=20_000, help="minimum number of cases")
    parser.add_argument("--seed", type=int, default=0, help="seed of all draws")
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return check_draws(options.first, options.first + options.child, options.seed)
    cases, mismatches, first = 0, 0, options.first
    while cases < options.cases:
        for kernel in ("", "plain"):
            command = [sys.executable, "-m", "benchmarks.exactness", "--child", str(DRAWS_PER_PROCESS)]
            command += ["--first", str(first), "--seed", str(options.seed)]
            environment = os.environ | {"COCOS_KERNEL": kernel, "OMP_NUM_THREADS": "1"}
            with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
                for number, wrong in map(json.loads, process.stdout):
                    cases, mismatches = cases + number, mismatches + len(wrong)
                    print(
                        *(f"MISMATCH {kernel or 'compiled'}, {each}" for each in wrong),
                        sep="\n",
                        end="\n" * bool(wrong),
                    )
            mismatches += process.returncode != 0
        first += DRAWS_PER_PROCESS
        print(f"draws to {first - 1}: {cases:,} cases, {mismatches} mismatches", file=sys.stderr, flush=True)
    print(f"{cases:,} cases, {mismatches} mismatches; seed {options.seed}, draws {options.first} to {first - 1}")
    return sys.exit(1 if mismatches else 0)


if __name__ == "__main__":
    main()
