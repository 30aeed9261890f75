"""Would another loss move the queries of this checkpoint where its own loss moves them?"""

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Unpack

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import losses, results
from cocos.base import terminal
from cocos.base.errors import InputError
from cocos.base.layout import Table
from cocos.base.ranges import Level, whole
from cocos.checkpoints import Checkpoint
from cocos.checkpoints.data import AnnotatedRows, Items
from cocos.counting import findings, statistics
from cocos.counting.comparisons import DIFFERENCE_LABELS
from cocos.counting.forces import gradient, sides
from cocos.embeddings import Embeddings, scores
from cocos.embeddings.batches import Batch
from cocos.embeddings.scores import length
from cocos.engine.prepared import Run, drawn_from, embedded, loss_for, prepare_all
from cocos.engine.sampling import Progress, Sampling, sampled, tracked
from cocos.measures.decomposition import radial
from cocos.results import summaries
from cocos.results.summaries import chosen, shortest

# Percentiles of the cosines over the queries.
COSINE_PERCENTILES = (5, 25, 50, 75, 95)
# Length of a gradient, in parts of the longest one of its loss in a batch, below which it is rounding.
NO_GRADIENT = 1e-12
# Losses that are compared with that of the checkpoint unless others are named.
USUAL_OTHERS = ("triplet", "smoothap")
# Largest number of losses that are compared, each with each other one.
MOST_COMPARED = 12
# Characters of the name of a query.
QUERY_NAME_CHARACTERS = 200
PAIR_LABELS = {
    "cosine": ("cosine between the gradients of a query, mean over the queries that have both", "1"),
    "low": ("lower end of the confidence interval of the mean", "1"),
    "high": ("upper end of the confidence interval of the mean", "1"),
    "opposed": ("queries whose gradients have a cosine below 0", "%"),
    "ratio": ("length of the gradient of the other loss in parts of that of the one, median", "1"),
    "pairs": ("queries that have a gradient of both", "queries"),
    "groups": DIFFERENCE_LABELS["groups"],
    "alone": ("queries with a gradient of the one loss and none of the other", "%"),
}
# What the comparison cannot say.
ONE_CHECKPOINT = (
    "These are gradients at one checkpoint: they say where the first step with another loss would go, not where a "
    "training with it would end."
)
# Characters of the name of a loss and of a query in these tables.
LOSS_CHARACTERS, ASKING_CHARACTERS = 40, 60


@sampled(same_group="ignore")
def gradients(
    embeddings: Embeddings | Checkpoint,
    loss="ntxent",
    against: str | Sequence[Any] | None = None,
    *,
    disagree: Annotated[int, whole(0, 1000)] = 5,
    level: Level = 0.95,
    **sampling: Unpack[Sampling],
) -> xr.Dataset:
    r"""Compare the gradients of several losses with respect to each query embedding, on the same batches.

    A gradient is :math:`\partial \sum \text{loss} / \partial q` for the raw query q of a batch, the candidates fixed:
    the weights of the loss times its candidates, through the normalisation (`cocos.forces.gradient`); of a loss of
    several directions (`mnrl`), through all scores in which the query takes part. Two losses agree on a query where the
    cosine between their gradients is near 1, and oppose each other where it is below 0; lengths depend on units.

    Args:
        embeddings: embeddings of the training set, or a checkpoint (its training set is encoded).
        loss: the loss of the checkpoint, or its name; a name takes the parameters that the checkpoint recorded for it.
        against: other losses, or their names, as text separated by commas; None: triplet and smoothap.
        disagree: queries to list that the losses disagree on most. They have the lowest cosine, for each other loss and
            direction.
        level: of the confidence intervals.
        **sampling: options of the batches, see `cocos.sampling.Sampling`; they are drawn as for the first loss.

    Returns:
        A Dataset with dims direction, one, other (the losses): `cosine`, the mean, with its interval `low`, `high`;
        `opposed`, percent of the queries with a cosine below 0; `ratio` of the lengths; `pairs`, queries that have both
        gradients, and their `groups`; `alone`, percent of the queries with a gradient of the one loss alone; and
        `percentiles` of the cosines along `percentile`. `query_cosine` (direction, other, query) is the cosine with the
        first loss, with `query_index`. Of the queries that disagree most, `disagree_index` and `disagree_cosine`
        (direction, other, place), with names where they are known. NaN and -1 stand where there is none.

    Examples:
        One negative of each query scores above 0, and both losses push it away:

        >>> query = torch.eye(3)
        >>> embeddings = cocos.Embeddings(query, query + 0.9 * query.roll(1, 0))
        >>> data = cocos.measures.gradients(embeddings, "ntxent", "triplet", batch_size="all")
        >>> bool(data["cosine"].sel(direction="q2c", one="NTXent(temperature=0.1)").min() > 0.9)
        True
    """
    checkpoint = embeddings if isinstance(embeddings, Checkpoint) else None
    every = _losses(checkpoint, loss, against)
    disk = drawn_from(embeddings, sampling)
    rows: Any = disk or embedded(embeddings, sampling["split"], sampling["device"], sampling["progress"])
    if sampling["sample"] is None and not rows.shared:
        sampling["sample"] = every[0].sample
    runs = prepare_all(embeddings if disk else rows, every, **sampling)
    for run in runs:
        traits = losses.traits(run.loss)
        if not traits.of_its_metric:
            name = losses.name_of(run.loss)
            raise InputError(f"{name}: it weighs no scores that cocos knows, so its gradient is not known")
    known = checkpoint.items(sampling["split"]) if checkpoint else None
    items = known or (AnnotatedRows(rows) if rows.names else None)
    found = _compared(runs, sampling["progress"])
    names = [repr(run.loss) for run in runs]
    variables = _variables(found, level, disagree, items)
    variables |= {"one": ("one", names, "loss"), "other": ("other", names, "another loss")}
    variables["name"] = ("one", [losses.name_of(run.loss) for run in runs], "name of the loss")
    notes = dict.fromkeys(line for run in runs for line in run.notes)
    attrs = runs[0].provenance(
        title=f"Gradients of {losses.name_of(runs[0].loss)} and {len(runs) - 1} other{'s' * (len(runs) > 2)}",
        batches=len(runs[0].plan.batches),
        level=level,
        first_step=ONE_CHECKPOINT,
        notes="\n".join(notes),
        findings=findings.joined(findings.attributes(run.findings) for run in runs),
        **({} if checkpoint is None else checkpoint.identity() | {"split": sampling["split"]}),
    )
    return results.labelled(variables, attrs)


def _losses(checkpoint: Checkpoint | None, loss, against: str | Sequence[Any] | None) -> list[losses.Loss]:
    """The losses, that of the checkpoint first."""
    if isinstance(against, str):
        against = [name.strip() for name in against.split(",")]
    given = [loss, *(against if against is not None else [])]
    every = [loss_for(each, checkpoint) for each in given]
    if against is None:
        every += [loss_for(name, checkpoint) for name in USUAL_OTHERS if name != losses.name_of(every[0])]
    if not 2 <= len(every) <= MOST_COMPARED:
        raise InputError(f"against: {len(every) - 1} losses, expected from 1 to {MOST_COMPARED - 1}")
    names = [repr(each) for each in every]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"loss: {name} is given {names.count(name)} times; each is compared with the others once")
    return every


def _of_batch(run: Run, embeddings: Embeddings, batch: Batch, rows: Tensor, place: Tensor) -> Tensor:
    """Gradients of queries of a batch, (R, D); `rows` are these queries, `place` (q,) says which row each is."""
    if losses.traits(run.loss).wide:
        total = _through_scores(run, embeddings, batch)[rows]
    else:
        parts = []
        for pairs, weight, _ in run.blocks(embeddings, batch, whole=False):
            pull, push = sides(weight, pairs, run.loss.metric)
            parts.append(gradient(pull, push, pairs, run.loss.metric, radial(run.loss, pairs)))
        each = torch.cat(parts)
        total = each.new_zeros(len(rows), each.shape[1]).index_add(0, place, each)
    if not total.isfinite().all():
        raise InputError(f"{run.loss!r}: its gradients leave the range of float64; the embeddings are too short")
    return total


def _through_scores(run: Run, embeddings: Embeddings, batch: Batch) -> Tensor:
    """Gradient of all queries of the set, (N, D), through every score of a batch in which they take part."""
    traits = losses.traits(run.loss)
    ((_, weight, _),) = run.blocks(embeddings, batch, whole=True)
    held, leaf = copy.copy(embeddings), embeddings.query.detach().clone().requires_grad_()
    object.__setattr__(held, "query", leaf)
    with torch.enable_grad():
        found = scores.pairs(
            held,
            run.seen(batch),
            metric=run.loss.metric,
            same_group="negative" if run.same_group == "negative" else "ignore",
            directions=traits.directions,
            graded=traits.graded,
        )
        (total,) = torch.autograd.grad((found.scores * weight).sum(), leaf)
    return total


def _compared(runs: Sequence[Run], progress: Progress | None) -> dict[str, dict[str, np.ndarray]]:
    """Of each direction `row` and `group`, (n,); `length` (losses, n); `cosine` (losses, losses, n) or NaN."""
    first = runs[0]
    both = [name for name, _, _ in first.sides if all(name in {side for side, _, _ in run.sides} for run in runs)]
    found: dict[str, list[tuple[Tensor, ...]]] = {name: [] for name in both}
    for batch in tracked(first.plan.batches, progress, "comparing"):
        for name, _, second in first.sides:
            if name not in both:
                continue
            own = batch.flip() if second else batch
            rows, place = own.query_index.unique(return_inverse=True)
            every = [_of_batch(run, run.side(name)[1], own, rows, place) for run in runs]
            found[name].append((
                first.numbers(rows, second).cpu(),
                first.groups(rows, second),
                *_cosines(torch.stack(every)),
            ))
    keys = ("row", "group", "length", "cosine")
    return {
        name: {key: torch.cat(each, dim=-1).numpy() for key, each in zip(keys, zip(*parts, strict=True), strict=True)}
        for name, parts in found.items()
    }


def _cosines(every: Tensor) -> tuple[Tensor, Tensor]:
    """Lengths, (L, R), and cosines between gradients, (L, L, R), of the gradients of L losses, (L, R, D)."""
    size = torch.stack([length(each) for each in every])
    some = size > NO_GRADIENT * size.amax(dim=1, keepdim=True)
    unit = every / torch.where(size > 0, size, 1)[..., None]
    cosine = torch.einsum("ard,brd->abr", unit, unit).clamp(-1, 1)
    there = some[:, None] & some[None]
    return torch.where(some, size, 0).cpu(), torch.where(there, cosine, torch.nan).cpu()


def _variables(
    found: Mapping[str, Mapping[str, np.ndarray]], level: float, disagree: int, items: Items | None
) -> dict[str, tuple]:
    """Variables as `results.labelled` takes them: of pairs of losses, of queries, and of those that disagree most."""
    number, width = len(next(iter(found.values()))["length"]), max(len(each["row"]) for each in found.values())
    shape, sides = (len(found), number, number), len(found)
    values = {key: np.full(shape, np.nan) for key in PAIR_LABELS}
    percentiles = np.full((*shape, len(COSINE_PERCENTILES)), np.nan)
    cosines, index = np.full((sides, number, width), np.nan), np.full((sides, width), np.nan)
    lowest, rows = np.full((sides, number, disagree), np.nan), np.full((sides, number, disagree), -1, dtype=np.int64)
    names = np.full(rows.shape, "", dtype=object)
    for d, (name, each) in enumerate(found.items()):
        size, cosine, text = each["length"], each["cosine"], items.texts(name)[0] if items else None
        index[d, : len(each["row"])], cosines[d, :, : len(each["row"])] = each["row"], cosine[0]
        for one, other in itertools.product(range(number), repeat=2):
            at, there = (d, one, other), np.isfinite(cosine[one, other])
            some = cosine[one, other][there]
            values["pairs"][at], values["groups"][at] = len(some), len(np.unique(each["group"][there]))
            values["alone"][at] = 100 * ((size[one] > 0) & (size[other] == 0)).mean()
            if not len(some):
                continue
            values["cosine"][at], values["opposed"][at] = some.mean(), 100 * (some < 0).mean()
            values["ratio"][at] = np.median(size[other][there] / size[one][there])
            percentiles[at] = np.percentile(some, COSINE_PERCENTILES)
            if one != other and values["groups"][at] > 1:
                test = statistics.paired(some, np.zeros_like(some), level, groups=each["group"][there])
                values["low"][at], values["high"][at] = test.low, test.high
        for other in range(1, number):
            for k, (row, value) in enumerate(_lowest(each["row"], cosine[0, other], disagree)):
                rows[d, other, k], lowest[d, other, k] = row, value
                names[d, other, k] = text(row)[:QUERY_NAME_CHARACTERS] if text else ""
    pair, place = ("direction", "one", "other"), ("direction", "other", "place")
    of_first = "cosine with the gradient of the first loss"
    made: dict[str, tuple] = {key: (pair, each, *PAIR_LABELS[key]) for key, each in values.items()} | {
        "percentiles": ((*pair, "percentile"), percentiles, "percentiles of the cosines over the queries", "1"),
        "percentile": ("percentile", list(COSINE_PERCENTILES), "percentile over the queries", "%"),
        "direction": ("direction", list(found)),
        "query_cosine": (("direction", "other", "query"), cosines, of_first, "1"),
        "query_index": (("direction", "query"), index, "row of the query in the embeddings", "1"),
        "disagree_index": (place, rows, "row of a query with the lowest cosine", "1"),
        "disagree_cosine": (place, lowest, f"its {of_first}", "1"),
        "place": ("place", range(1, disagree + 1), "place from the lowest cosine on", "1"),
    }
    return made | ({"disagree_name": (place, names.astype(str), "name of that query")} if items else {})


def _lowest(rows: np.ndarray, cosines: np.ndarray, number: int) -> Iterator[tuple[int, float]]:
    """Yield the queries with the lowest cosines, each once, by its lowest."""
    seen: set[int] = set()
    for place in np.argsort(cosines, kind="stable"):
        if len(seen) == number or np.isnan(cosines[place]):
            return
        if (row := int(rows[place])) not in seen:
            seen.add(row)
            yield row, float(cosines[place])


def least(one: xr.Dataset) -> int | None:
    """Place of the loss that agrees least with the first in one direction; None: no query has a gradient of both."""
    cosines = one["cosine"].isel(one=0).values[1:]
    return 1 + int(np.nanargmin(cosines)) if np.isfinite(cosines).any() else None


def document(data: xr.Dataset) -> dict:
    """Make the JSON document of `cocos gradients --json`."""
    names, directions = [str(name) for name in data["one"].values], {}

    for side, one in results.sides(data).items():
        pairs, disagree = [], {}
        for a, b in itertools.combinations(range(len(names)), 2):
            each = one.isel(one=a, other=b)
            places = zip(COSINE_PERCENTILES, each["percentiles"], strict=True)
            pairs.append(
                {"one": names[a], "other": names[b]}
                | {key: shortest(each[key]) for key in PAIR_LABELS}
                | {"alone_other": shortest(one["alone"].isel(one=b, other=a))}
                | {"percentiles": {str(place): shortest(value) for place, value in places}}
            )
        for b in range(1, len(names)):
            listed = (one.isel(other=b, place=place) for place in range(one.sizes["place"]))
            disagree[names[b]] = [
                {"row": int(each["disagree_index"]), "cosine": float(each["disagree_cosine"])}
                | ({"name": str(each["disagree_name"].item())} if "disagree_name" in each else {})
                for each in listed
                if int(each["disagree_index"]) >= 0
            ]
        directions[side] = {"pairs": pairs, "disagree": disagree}
    attrs = data.attrs
    return {
        **results.about(attrs),
        "losses": names,
        **chosen(attrs, "first_step", "level", "batches", "batch_size", "seed", "sample"),
        "notes": results.lines(attrs),
        "directions": directions,
    }


def table(data: xr.Dataset) -> Table:
    """Write a row for each pair of losses of each direction."""
    names, rows = [str(name) for name in data["one"].values], []
    short, said = _labels(names)
    for side, one in results.sides(data).items():
        rows += [(f"{side}:", *[""] * 7)] if data.sizes["direction"] > 1 else []
        indent = "  " if data.sizes["direction"] > 1 else ""
        for a, b in itertools.combinations(range(len(names)), 2):
            back = one["alone"].isel(one=b, other=a)
            rows.append((f"{indent}{short[a]}, {short[b]}", *_cells(one.isel(one=a, other=b), float(back))))
    columns = ("", "cosine", "below 0 %", "n", "1st only %", "2nd only %", "length", "5 to 95 %")
    level = 100 * float(data.attrs["level"])
    notes = (
        *said,
        f"cosine: between the gradients of a query, mean and {level:g} % interval over the n queries that have both; "
        "below 0 %: of them, the queries that the two move against each other; 1st only, 2nd only: queries with a "
        "gradient of that loss alone; length: of the second gradient in parts of the first, median; 5 to 95 %: "
        "percentiles of the cosines.",
        data.attrs["first_step"],
    )
    head = (*summaries.head(data)[:1], *summaries.head(data)[2:], *_sentences(data, short))
    return Table(columns, tuple(rows), head, notes, least=("5 to 95 %", "length"))


def _labels(names: list[str]) -> tuple[list[str], list[str]]:
    """Short names of the losses, and a line that explains them where parameters are left out."""
    kinds = [name.partition("(")[0] for name in names]
    short = [kind if kinds.count(kind) == 1 else name for kind, name in zip(kinds, names, strict=True)]
    short = [terminal.bounded(name, LOSS_CHARACTERS) for name in short]
    return short, [f"losses: {', '.join(names)}"]


def _cells(each: xr.Dataset, back: float) -> tuple[str, ...]:
    """Cells of a pair of losses; `back`: the queries with a gradient of the second alone."""
    number = int(each["pairs"])
    if not number:
        return ("none", "", "0", f"{float(each['alone']):.1f}", f"{back:.1f}", "", "")
    low, high = float(each["low"]), float(each["high"])
    interval = f" [{low:+.2f}, {high:+.2f}]" if np.isfinite(low) else ""
    ends = each["percentiles"].values[[0, -1]]
    return (
        f"{float(each['cosine']):+.2f}{interval}",
        f"{float(each['opposed']):.1f}",
        str(number),
        f"{float(each['alone']):.1f}",
        f"{back:.1f}",
        f"{float(each['ratio']):.3g}",
        f"{ends[0]:+.2f} to {ends[1]:+.2f}",
    )


def _sentences(data: xr.Dataset, short: list[str]) -> Iterator[str]:
    """State for each direction how far two losses agree, or which one of several agrees least with the first."""
    for side, one in results.sides(data).items():
        place = least(one)
        if place is None:
            yield f"{side}: no query has a gradient of {short[0]} and of another loss."
            continue
        each = one.isel(one=0, other=place)
        those = f"{short[place]} agrees least with {short[0]}" if len(short) > 2 else f"{short[place]} and {short[0]}"
        yield (
            f"{side}: {those}: mean cosine {float(each['cosine']):+.2f}, and {float(each['opposed']):.1f} % of the "
            f"{int(each['pairs'])} queries with both gradients have one below 0."
        )


def tables(data: xr.Dataset) -> list[Table]:
    """The pairs of losses, and where queries are listed, those on which the losses disagree most."""
    return list(filter(None, (table(data), disagreeing(data))))


def disagreeing(data: xr.Dataset) -> Table | None:
    """Write the queries on which each other loss and the first disagree most; None where none is listed."""
    if not data.sizes.get("place"):
        return None
    short, rows = _labels([str(name) for name in data["one"].values])[0], []
    for side, of_side in results.sides(data).items():
        for other in range(1, len(short)):
            one = of_side.isel(other=other)
            for place in range(one.sizes["place"]):
                each = one.isel(place=place)
                if int(each["disagree_index"]) < 0:
                    continue
                name = str(each["disagree_name"].item()) if "disagree_name" in each else ""
                name = terminal.bounded(terminal.clean(" ".join(name.split())), ASKING_CHARACTERS)
                row = f"{int(each['disagree_index'])} {name}".strip()
                first = place == 0
                rows.append((f"{side}, {short[other]}" if first else "", f"{float(each['disagree_cosine']):+.2f}", row))
    head = (f"Queries on which the gradients of {short[0]} and of another loss disagree most",)
    return Table(("direction, loss", "cosine", "query"), tuple(rows), head, (), left=True) if rows else None
