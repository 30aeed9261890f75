"""Slow loops straight from the papers, in plain Python floats; they share no code with the package.

A module of this folder holds the slow losses of one family: a function named as the loss is, of (pairs, *parameters),
that gives one float a query. Where training stops a gradient it also takes `frozen`, the pairs at which the stopped
part is computed, so that central differences in `pairs` alone are the gradient that training uses.
"""

import importlib
import math
import pkgutil

import torch

from oracles._loops import rows, sigmoid

MODULES = [importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)]
LOSSES = {
    name: function
    for module in MODULES
    for name, function in vars(module).items()
    if not module.__name__.endswith("_loops")
    and getattr(function, "__module__", None) == module.__name__
    and callable(function)
    and not name.startswith("_")
}


def eq7(pairs, temperature, eps):
    """COCOS eq. 7: pairs (positive i, any other candidate j) whose term is above eps, per positive."""
    counts = []
    for row, positives, negatives in rows(pairs):
        found = 0
        for i in positives:
            others = {j: sigmoid((row[j] - row[i]) / temperature) for j in positives + negatives if j != i}
            rank = 1 + math.fsum(others.values())
            steep = {j: g * sigmoid((row[i] - row[j]) / temperature) for j, g in others.items()}
            found += sum(g / rank**2 > eps for g in steep.values())
        counts.append(found / len(positives) if positives else 0.0)
    return counts


def push_of(weights, pairs):
    """Weights above zero of the negatives of each query, as fractions of their sum, heaviest first."""
    for q in range(len(weights)):
        row = [max(0.0, float(weights[q, j])) for j in range(weights.shape[1]) if pairs.negative[q, j]]
        total = math.fsum(row)
        yield sorted((w / total for w in row if w > 0), reverse=True) if total > 0 else []


def effective(weights, pairs):
    """Hill number of order 1."""
    return [math.exp(-math.fsum(p * math.log(p) for p in row)) if row else 0.0 for row in push_of(weights, pairs)]


def participation(weights, pairs):
    """Hill number of order 2."""
    return [1 / math.fsum(p * p for p in row) if row else 0.0 for row in push_of(weights, pairs)]


def n90(weights, pairs):
    """Heaviest negatives that hold 90 % of the push."""
    result = []
    for row in push_of(weights, pairs):
        held, number = 0.0, 0
        for p in row:
            if held >= 0.9 - 1e-9:
                break
            held, number = held + p, number + 1
        result.append(number)
    return result


def difference(function, pairs, step=1e-6, *, apart=False):
    """Central differences of a summed slow loss with respect to every score.

    `apart`: the loss of a query depends on its own scores alone, so that a candidate may move for all queries at once.
    """
    result = torch.zeros_like(pairs.scores)
    for q in [slice(None)] if apart else range(pairs.scores.shape[0]):
        for c in range(pairs.scores.shape[1]):
            moved = []
            for sign in (1, -1):
                scores = pairs.scores.clone()
                scores[q, c] += sign * step
                moved.append(torch.tensor(function(pairs.with_scores(scores)), dtype=scores.dtype))
            found = (moved[0] - moved[1]) / (2 * step)
            result[q, c] = found if apart else found.sum()
    return result
