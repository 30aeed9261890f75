"""Where does a learned temperature settle on these embeddings, for each batch size?"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import losses, results
from cocos.base.errors import InputError
from cocos.base.ranges import checked
from cocos.checkpoints import Checkpoint
from cocos.counting import equilibrium, sharpness
from cocos.embeddings import Embeddings
from cocos.embeddings.options import DEFAULTS, Sampling, fill_options, tracked
from cocos.embeddings.scores import Scores
from cocos.engine import devices
from cocos.measures.shared import prepared
from cocos.measures.shared.prepared import FEW_NOTE, Run, drawn_from, prepare
from cocos.measures.shared.settings import Scored
from cocos.measures.solve import solve

# Batch sizes of a curve where none are given: those that the set fills, and then the whole set.
BATCH_SIZES = (32, 128, 512, 2048)
# Scores of one direction and one batch size that are weighed where no number of batches is given.
USUAL_SCORES = 2**22
# Standard errors on each side of a 95 % interval.
NORMAL_95 = 1.959964
# Relative step of the differences that give the curvature.
CURVATURE_STEP = 1e-4
# Temperatures that are tried on scores of others, whose scale is not that of a cosine: the default of the losses of
# PyLate and of rerankers, and that of colpali-engine (https://github.com/illuin-tech/colpali/issues/372).
TRIED_TEMPERATURES = (1.0, 0.02)
EQUILIBRIUM_LABELS = {
    "equilibrium_temperature": ("equilibrium temperature", "score"),
    "equilibrium_scale": ("equilibrium scale", "1 / score"),
    "low": ("lower 95 % limit", "score"),
    "high": ("upper 95 % limit", "score"),
    "held_temperature": ("final learned temperature", "score"),
    "state": ("learned scale", ""),
    "effective": ("effective negatives there", "candidates"),
    "effective_own": ("current effective negatives", "candidates"),
    "slope_own": ("current slope dL/dscale", "score"),
    "push_over_pull": ("current push over pull", "1"),
    "batches": ("full batches", "batches"),
    "direction_temperature": ("equilibrium temperature", "score"),
    "not_first": ("queries without positive first", "queries"),
    "queries": ("queries", "queries"),
    "equilibrium_bias": ("equilibrium bias", "1"),
    "balanced_bias": ("bias where push equals pull", "1"),
    "score_low": ("smallest score", "score"),
    "score_high": ("largest score", "score"),
    "effective_tried": ("effective negatives", "candidates"),
    "wanted_temperature": ("requested temperature", "score"),
}


def _at_batch_size(run: Run, clip: float, wanted: float | None, options: dict) -> dict[str, Any]:
    """Solve for the equilibrium at one batch size, and read the numbers beside it."""
    scored = Scored(run)

    def derivatives(loss: losses.Loss) -> dict[str, Tensor]:
        """Derivatives of every query with respect to the scale, and the bias if any, (queries, ...), by direction."""
        found: dict[str, list[Tensor]] = {name: [] for name, _, _ in run.sides}
        for name, pairs, weight in scored.weighed(loss):
            found[name].append(equilibrium.of_weights(weight, pairs, *equilibrium.values(loss)))
        return {name: torch.cat(some) for name, some in found.items()}

    @functools.cache
    def means(loss: losses.Loss) -> dict[str, list[float]]:
        return {name: each.mean(dim=0).tolist() for name, each in derivatives(loss).items()}

    def pooled(loss: losses.Loss) -> list[float]:
        return np.mean(list(means(loss).values()), axis=0).tolist()

    found = equilibrium.search(pooled, run.loss, clip=clip)
    near = run.loss if found.loss is None else found.loss
    sides = [equilibrium.search(lambda loss, name=name: means(loss)[name], near, clip=clip) for name in means(near)]
    low, high = math.nan, math.nan
    if found.loss is not None and found.scale is not None:  # beyond the clip as well
        exact = equilibrium.at(found.loss, found.scale)
        low, high = _interval(run, pooled, exact, derivatives(exact))
    weighed = [run.loss] if found.loss is None else [run.loss, found.loss]
    tried = [equilibrium.at(run.loss, 1 / each) for each in TRIED_TEMPERATURES if isinstance(run.embeddings, Scores)]
    at = {name: torch.from_numpy(each) for name, each in scored.means([*weighed, *tried]).items()}
    own, *there = at["effective"].nanmean(dim=0).tolist()
    there, at_tried = there[: len(weighed) - 1], there[len(weighed) - 1 :]
    beaten = dict.fromkeys(means(near), 0)  # queries with a negative that scores as high as one of their positives
    for name, pairs in scored.pairs():
        best = pairs.scores.masked_fill(~pairs.negative, -torch.inf).amax(dim=1)
        worst = pairs.scores.masked_fill(~pairs.positive, torch.inf).amin(dim=1)
        beaten[name] += int((best >= worst).sum())
    numbers: dict[str, Any] = {
        "equilibrium_scale": found.scale,
        "equilibrium_temperature": found.temperature,
        "low": low,
        "high": high,
        "held_temperature": None if found.loss is None else 1 / equilibrium.values(found.loss)[0],
        "state": found.state,
        "effective": there[0] if there else None,
        "effective_own": own,
        "slope_own": pooled(run.loss)[0],
        "push_over_pull": float(at["push"][:, 0].sum() / at["pull"][:, 0].sum()),
        "batches": len(run.plan.batches),
        "direction_temperature": [math.nan if each.temperature is None else each.temperature for each in sides],
        "not_first": list(beaten.values()),
        "queries": at["queries"][:, 0].long().tolist(),
    }
    if tried:
        parts = (pairs.scores[pairs.positive | pairs.negative] for _, pairs in scored.pairs())
        ends = torch.stack([torch.stack(part.aminmax()) for part in parts])
        numbers |= {"score_low": float(ends[:, 0].min()), "score_high": float(ends[:, 1].max())}
        numbers["effective_tried"] = at_tried
    if equilibrium.values(run.loss)[1] is not None:
        numbers["equilibrium_bias"] = found.bias
        numbers["balanced_bias"] = equilibrium.even_bias(pooled, run.loss)
    if wanted is not None:
        name, _ = equilibrium.names(run.loss)
        given = {key: options[key] for key in ("same_group", "sample", "seed")} | {"batches": run.plan.batches}
        try:
            value = float(solve(run.embeddings, run.loss, effective=wanted, parameter=name, **given)["value"])
            numbers["wanted_temperature"] = value ** -equilibrium.SCALE_POWERS[name.rpartition(".")[2]]
        except InputError:  # no temperature gives it
            numbers["wanted_temperature"] = None
    return {name: math.nan if value is None else value for name, value in numbers.items()}


def _interval(
    run: Run,
    pooled: Callable[[losses.Loss], list[float]],
    loss: losses.Loss,
    derivatives: Mapping[str, Tensor],
) -> tuple[float, float]:
    """95 % interval of the temperature of an equilibrium, from the scatter of the queries; NaN for fewer than two.

    With g_r the derivatives of the queries of row r, summed over directions, and H the curvature of the mean loss, the
    equilibrium has the covariance H^-1 (sum g_r g_r') H^-1 / n^2 (a sandwich, as for any M-estimator), and the interval
    is symmetric in the logarithm. In batches of pairs both directions of a pair are one row.
    """
    scale, bias = equilibrium.values(loss)
    columns = []
    for step in (CURVATURE_STEP * scale, 0.0), (0.0, CURVATURE_STEP):
        if step[0] or bias is not None:
            ends = [
                pooled(equilibrium.at(loss, scale + sign * step[0], None if bias is None else bias + sign * step[1]))
                for sign in (1, -1)
            ]
            columns.append(np.subtract(*ends) / (2 * max(step)))
    curvature, sums = np.stack(columns, axis=1), dict[int, np.ndarray]()
    offset = 0
    for name, side, second in run.sides:
        index = torch.cat([(batch.flip() if second else batch).query_index for batch in run.plan.batches]).cpu()
        if run.plan.sample == "pairs" and len(run.sides) == 2:
            rows = side.groups.query[index]
        else:
            rows, offset = index + offset, offset + len(side.query)
        each = derivatives[name].cpu().numpy() / (len(rows) * len(run.sides))
        for row, value in zip(rows.tolist(), each, strict=True):
            sums[row] = sums.get(row, 0) + value
    score = np.stack(list(sums.values()))
    if len(score) < 2 or not np.isfinite(curvature).all() or np.linalg.matrix_rank(curvature) < len(curvature):
        return math.nan, math.nan
    inverse = np.linalg.inv(curvature)
    error = math.sqrt((inverse @ (score.T @ score) @ inverse.T)[0, 0]) / scale
    reach = math.exp(min(NORMAL_95 * error, math.log(equilibrium.REACH)))
    return 1 / (scale * reach), reach / scale


def _full_batches(
    embeddings: Embeddings | Checkpoint, loss, sizes: Sequence[int | str] | None, options: dict
) -> list[Run]:
    """Prepare full batches of each size; by default of the usual sizes that the set fills, and the whole set."""
    made: list[Run] = []
    for size in sizes or BATCH_SIZES:
        disk, number = drawn_from(embeddings, DEFAULTS | options | {"batch_size": size, "batches": 1}), 0
        own = options
        if disk is not None and options["batches"] is None:  # as many as are kept of a pass below
            number = disk.number // int(size)
            few = min(number, USUAL_SCORES // int(size) ** 2, prepared.FEW_QUERIES // int(size))
            own = options | {"batches": max(1, few)}
        run = prepare(embeddings, loss, **own, batch_size=size, scored=True)
        embeddings = run.checkpoint and replace(run.checkpoint, embedder=lambda *_, e=run.embeddings: e) or embeddings
        there = run.plan.batch_size
        if sizes is None and any(each.plan.batch_size == there for each in made):
            break
        rows = [max(len(each.query_index), len(each.candidate_index) - each.extra) for each in run.plan.batches]
        least = min(there, max(rows))  # only full batches have the batch size
        full = tuple(batch for batch, number in zip(run.plan.batches, rows, strict=True) if number >= least)
        kept = full[: max(1, USUAL_SCORES // there**2)] if options["batches"] is None else full
        short = [note for note in run.plan.notes if note not in run.plan.undrawn] if sizes else []
        if len(kept) < (number := max(number, len(full))):
            short.append(f"batch size {there}: {FEW_NOTE.format(len(kept), number)}")
        made.append(replace(run, plan=replace(run.plan, batches=kept, notes=tuple(short))))
    return made


@devices.threads(1)
@checked
def temperature(
    embeddings: Embeddings | Scores | Checkpoint,
    loss="ntxent",
    batch_sizes: Sequence[int | str] | None = None,
    *,
    effective: sharpness.Effective | None = None,
    clip: equilibrium.Clip = equilibrium.CLIP,
    **sampling: Unpack[Sampling],
) -> xr.Dataset:
    """Find where a learned temperature, and SigLIP's bias, would settle on frozen embeddings, for each batch size.

    Gradient descent on the scale alone ends where dL/dscale = 0: for NT-Xent, where the expected score under the
    softmax equals that of the positive. The loss is the mean over the queries of full batches, then over the
    directions. In a training the embeddings move with the scale, so this is where the scale heads at this moment.

    Args:
        embeddings: embeddings of the training set, or a checkpoint (its training set is encoded).
        loss: a loss of scale * score (+ bias), such as ntxent or siglip, or its name.
        batch_sizes: at least 2 each, or `all`; None: 32, 128, 512 and 2048 as far as the set fills them, or else the
            whole set.
        effective: find the temperature with this effective number of negatives as well.
        clip: largest scale that training allows; 100 is CLIP's.
        **sampling: options of the batches, see `Sampling`. Without a number of batches, one pass is
            read, but at most 4.2 million scores of a direction, and of a large set on a disk 8,192 queries.

    Returns:
        Each (batch_size,): `equilibrium_temperature`, `equilibrium_scale`, the interval `low` to `high` of the
        temperature from the scatter of the queries, `state` (see `cocos.equilibrium.Equilibrium`), `held_temperature`
        (the equilibrium, or the clip), `effective` there and `effective_own` at the loss's own temperature, its
        `slope_own` and `push_over_pull`, `batches`; with a bias `equilibrium_bias` and `balanced_bias`; and
        `wanted_temperature` if asked for. Of scores that are no cosines of rows also `score_low`, `score_high`, and
        (tried, batch_size) `effective_tried`, at temperatures of other libraries. Each (direction, batch_size):
        `direction_temperature`, `not_first` and `queries`. Attributes: `own_temperature`, and `trained_temperature`
        where the file records one.

    Raises:
        InputError: a loss that is no function of scale * score + bias.

    Source: clip: Radford et al. 2021, arXiv:2103.00020, section 2.5; bias: Zhai et al. 2023, arXiv:2303.15343.

    Examples:
        Every positive ranks first, so that the loss falls with the scale without end:

        >>> embeddings = cocos.Embeddings(torch.eye(4), torch.eye(4) + 0.1)
        >>> data = cocos.measures.temperature(embeddings, batch_sizes=[4])
        >>> data["state"].item(), data["equilibrium_temperature"].item(), data["held_temperature"].item()
        ('grows', nan, 0.01)
    """
    defaults = {name: value for name, value in DEFAULTS.items() if name != "batch_size"}
    sampling = fill_options("temperature", sampling, defaults)
    sizes = [batch_sizes] if isinstance(batch_sizes, int | str) else None if batch_sizes is None else list(batch_sizes)
    if sizes is not None and len(set(sizes)) != (len(sizes) or -1):
        twice = next((each for each in sizes if sizes.count(each) > 1), None)
        said = f"{twice} is given {sizes.count(twice)} times" if sizes else "none were given"
        raise InputError(f"batch sizes: {said}, expected different ones, like 32 and 128")
    if not isinstance(loss, str):
        equilibrium.names(losses.as_loss(loss))
    runs = _full_batches(embeddings, loss, sizes, dict(sampling))
    first = runs[0]
    _, side, _ = first.sides[0]
    equilibrium.check(first.loss, next(first.pairs(side, first.plan.batches[0], whole=False)))
    watched = tracked(runs, sampling["progress"], "weighing")
    columns = [_at_batch_size(run, clip, effective, dict(sampling)) for run in watched]
    return _labelled(runs, columns, clip, effective)


def _labelled(runs: Sequence[Run], columns: Sequence[dict[str, Any]], clip: float, wanted: float | None) -> xr.Dataset:
    """The Dataset of all batch sizes."""
    first, variables = runs[0], dict[str, tuple]()
    for name, about in EQUILIBRIUM_LABELS.items():
        if name in columns[0]:
            values = np.array([each[name] for each in columns]).T
            rows = "tried" if name == "effective_tried" else "direction"
            variables[name] = ((rows, "batch_size")[-values.ndim :], values, *about)
    if "effective_tried" in variables:
        variables["tried"] = ("tried", list(TRIED_TEMPERATURES), "temperature", "score")
    variables["batch_size"] = ("batch_size", [run.plan.batch_size for run in runs], "rows of a batch", "rows")
    variables["direction"] = ("direction", [name for name, _, _ in first.sides])
    scale, bias = equilibrium.values(first.loss)
    recorded = {} if first.checkpoint is None else first.checkpoint.settings.parameters
    own, trained = recorded.get(first.loss.name), set()  # of this loss, or of any if all agree
    for each in recorded.values() if own is None else [own]:
        trained |= {float(each[name]) ** -power for name, power in equilibrium.SCALE_POWERS.items() if each.get(name)}
    extra = {"own_bias": bias, "trained_temperature": trained.pop() if len(trained) == 1 else None, "wanted": wanted}
    attrs = first.provenance(
        title=f"Where the temperature settles, {first.loss.name}",
        own_temperature=1 / scale,
        clip=float(clip),
        **{name: float(value) for name, value in extra.items() if value is not None},
        notes="\n".join(dict.fromkeys(note for run in runs for note in run.notes)),
    )
    del attrs["batch_size"]
    return results.labelled(variables, attrs, measure="temperature")
