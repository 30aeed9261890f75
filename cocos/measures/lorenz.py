"""How unevenly is the push spread over the negatives of a query?"""

from typing import Unpack

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import losses, results
from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint
from cocos.embeddings import Embeddings
from cocos.engine import devices
from cocos.engine.negatives import OfLines, OfPairs, numbers
from cocos.engine.prepared import prepare
from cocos.engine.primitives.kth import ascending
from cocos.engine.readers.lines import Lines
from cocos.engine.sampling import Sampling, sampled, whole_number

# Quantiles over the queries, at each place of the curve.
QUERY_BAND = (0.05, 0.95)
# Maximum number of places of the curve.
CURVE_PLACES = 10_001
# Dims of one direction, long name and units.
LORENZ_LABELS = {
    "held": (("k",), "part of the push that the k heaviest negatives hold, mean over the queries with any", "1"),
    "held_low": (("k",), "the same, 5 % of the queries", "1"),
    "held_high": (("k",), "the same, 95 % of the queries", "1"),
    "push": (("part",), "part of the push that they hold, mean over the queries with any", "1"),
    "low": (("part",), "the same, 5 % of the queries", "1"),
    "high": (("part",), "the same, 95 % of the queries", "1"),
    "gini": ((), "Gini coefficient of the push, mean over the queries with any", "1"),
    "gini_per_query": (("query",), "Gini coefficient of the push of a query", "1"),
    "without_push": ((), "part of the queries without any push", "1"),
}


def _heaviest(largest: int) -> Tensor:
    """Numbers of heaviest negatives at which the push is measured: all up to 20, then evenly in the logarithm."""
    return torch.tensor(sorted({*range(1, min(largest, 20) + 1), *np.geomspace(1, largest, 60).round().astype(int)}))


def _sorted(weight: Tensor, number: Tensor, place: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Lorenz curve of each query at parts of its negatives, (Q, points), its Gini coefficient, (Q,), and top parts.

    These are the parts of the push that its k heaviest negatives hold, (Q, K).

    Args:
        weight: (Q, C) weights of at least 0, up to a factor of each query; 0 where a pair is no negative.
        number: (Q,) negatives.
        place: (points,) parts of the negatives.
        k: (K,) numbers of them.
    """
    held = torch.nn.functional.pad(ascending(weight).cumsum(dim=1, dtype=torch.float64), (1, 0))
    held /= torch.where(held[:, -1:] > 0, held[:, -1:], 1)
    number = number[:, None]  # the last `number` steps belong to the negatives
    at = place * number
    below = at.floor().long().clamp(max=(number - 1).clamp(min=0))
    start = below + held.shape[1] - 1 - number
    left, right = held.gather(1, start), held.gather(1, (start + 1).clamp(max=held.shape[1] - 1))
    under = (held[:, 1:] + held[:, :-1]).sum(dim=1)
    top = 1 - held[:, (held.shape[1] - 1 - k).clamp(min=0)]
    return torch.lerp(left, right, at - below), 1 - under / number[:, 0].clamp(min=1), top


@devices.threads(1)
@sampled()
def lorenz(
    embeddings: Embeddings | Checkpoint,
    loss="ntxent",
    *,
    points: int = 101,
    **sampling: Unpack[Sampling],
) -> xr.Dataset:
    r"""Sort the negatives of each query from the lightest to the heaviest and accumulate their part of the push.

    The Lorenz curve of a query with n negatives of parts :math:`x_1 \le \dots \le x_n`, which sum to one, goes in
    straight lines through :math:`L(k / n) = x_1 + \dots + x_k`. Its Gini coefficient is one less twice the area under
    it:

    .. math:: G = 1 - \frac1n \sum_{k=1}^n \big( L(\tfrac{k-1}n) + L(\tfrac kn) \big)

    0 where all negatives push alike, :math:`1 - 1/n` where one of them does it alone. Curves and coefficients are
    averaged over the queries with any push, each of them counting once: :math:`\frac1{|A|} \sum_{q \in A} G_q`.

    Args:
        embeddings: embeddings of the training set, or a checkpoint (its training set is encoded).
        loss: a loss, or its name.
        points: places of the curve, evenly spaced from 0 to 1.
        **sampling: options of the batches, see `cocos.sampling.Sampling`.

    Returns:
        `held` (direction, k), the part of the push on the k heaviest negatives of a query, mean over the queries
        with any push, with `held_low` and `held_high`, 5 % and 95 % of them; `push` (direction, part), the mean Lorenz
        curve, with `low` and `high`, 5 % and 95 % of the queries; `gini` (direction,); `gini_per_query` (direction,
        query), missing for a query without any push; `without_push` (direction,), the part of such queries.

    Raises:
        InputError: no query has any push.

    Source: Lorenz 1905, "Methods of measuring the concentration of wealth"; Gini 1912, "Variabilità e mutabilità".

    Examples:
        All negatives push alike, so the Gini coefficient is 0:

        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> ntxent = cocos.losses.load("ntxent", {"temperature": 1})
        >>> data = cocos.measures.lorenz(embeddings, ntxent, batch_size="all")
        >>> data["gini"].values.round(6).tolist()
        [0.0, 0.0]
    """
    whole_number("points", points, 2, CURVE_PLACES)
    run = prepare(embeddings, loss, visits=Lines.reads, **sampling)
    report = sampling["progress"] and sampling["progress"]("weighing")
    place = torch.linspace(0, 1, points, dtype=torch.float64, device=run.embeddings.query.device)
    found = {name: [] for name, _, _ in run.sides}
    sizes = [max(len(batch.query_index), len(batch.candidate_index)) for batch in run.plan.batches]
    k = _heaviest(max(sizes)).to(place.device)

    def sorted_push(queries: OfPairs | OfLines) -> tuple[Tensor, ...]:
        """Curves, Gini coefficients, missing for a query without any push, and top parts."""
        curve, gini, top = _sorted(queries.push(), queries.number(), place, k)
        return curve, torch.where(queries.active(), gini, torch.nan), top, queries.number()

    for name, each in numbers(run, sorted_push, ("curve", "gini", "top", "number"), report):
        found[name].append([values.cpu() for values in each.values()])
    records, k = {}, k.cpu()
    told = k <= max(int(number.max()) for parts in found.values() for *_, number in parts)
    width = max(sum(len(gini) for _, gini, *_ in parts) for parts in found.values())
    for name, parts in found.items():
        curve, gini, top, _ = (torch.cat(each) for each in zip(*parts, strict=True))
        active = ~gini.isnan()
        curve, top = curve[active], top[active][:, told]
        if not len(curve):
            raise InputError(f"{run.loss!r}: no query of {name} has any push, so there is no curve of it")
        whole = torch.nn.functional.pad(gini, (0, width - len(gini)), value=torch.nan)  # the sum's order: the array's
        mean = torch.tensor(np.nanmean(whole.numpy()))
        records[name] = {"gini": mean, "gini_per_query": gini, "without_push": 1 - active.double().mean()}
        low, high = torch.from_numpy(np.quantile(curve.numpy(), QUERY_BAND, axis=0))
        records[name] |= {"push": curve.mean(dim=0), "low": low, "high": high}
        low, high = torch.from_numpy(np.quantile(top.numpy(), QUERY_BAND, axis=0))
        records[name] |= {"held": top.mean(dim=0), "held_low": low, "held_high": high}
    attrs = run.provenance(
        title=f"Push of the heaviest negatives, {losses.name_of(run.loss)}",
        batches=len(run.plan.batches),
    )
    variables = results.by_direction(records, LORENZ_LABELS) | {
        "part": ("part", place, "part of the negatives of a query, the lightest first", "1"),
        "k": ("k", k[told], "heaviest negatives of a query", "candidates"),
    }
    return results.labelled(variables, attrs)
