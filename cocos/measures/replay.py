"""What would another temperature, margin, batch size, mining rule or loss do on the same embeddings?"""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np
import xarray as xr

from cocos import results
from cocos.base.errors import InputError, nearest
from cocos.base.ranges import Level, Share, checked
from cocos.checkpoints import Checkpoint
from cocos.counting.comparisons import DIFFERENCE_LABELS, adjusted, differences
from cocos.embeddings import Embeddings
from cocos.embeddings.options import DEFAULTS, Sampling, fill_options, within
from cocos.embeddings.scores import Scores
from cocos.measures.count import count
from cocos.measures.diff import values_of
from cocos.measures.shared import settings
from cocos.measures.shared.prepared import drawn_from, embedded, few_batches, loss_for
from cocos.measures.shared.settings import Setting

# What a replay reports of every query: heading of its column, words for it in a sentence, and digits behind the point.
REPLAYED = {
    "contributing": ("count", "count", 1),
    "idle": ("idle %", "idle %", 1),
    "relative": ("relative", "relative count", 1),
    "effective": ("eff.", "effective", 1),
    "push": ("push", "push", 2),
    "hardest_share": ("hard", "hardest", 2),
}
REPLAY_LABELS = {
    "mean": ("mean over queries with a value", ""),
    "base": ("baseline mean over queries with a value in both", ""),
    "difference": ("mean change from the baseline", ""),
    **DIFFERENCE_LABELS,
}
# Of each variant: its value, long name and units.
VARIANT_LABELS: dict[str, tuple] = {
    "variant": (lambda each: each.label, "setting"),
    "changed": (lambda each: each.changed, "change"),
    "setting": (lambda each: each.value, "its value"),
    "loss_repr": (lambda each: repr(each.loss), "loss with its parameters"),
    "loss_name": (lambda each: each.loss.name, "name of the loss"),
    "eps": (lambda each: each.eps, "smallest share that contributes", "share"),
    "batch_size": (lambda each: str(each.batch_size), "rows of a batch"),
}
# What a replay cannot say.
FROZEN = (
    "The embeddings are frozen: in a training, another setting would have moved them, and these numbers with them. A "
    "replay says what the gradient at this checkpoint would be, not which setting trains better."
)


# Row, group and values of the queries of one direction, (n,) each, NaN where a query has no value.
Draws = dict[str, np.ndarray]


@checked
def replay(
    embeddings: Embeddings | Checkpoint,
    loss="ntxent",
    what: str | Sequence[str] | Mapping[str, Any] | None = None,
    *,
    eps: Share = 0.01,
    by: str = "contributing",
    level: Level = 0.95,
    **sampling: Unpack[Sampling],
) -> xr.Dataset:
    """Count the same queries and batches with one setting changed at a time, paired with the setting as it is.

    All variants draw their batches from the same seed, in the way in which the loss as it is draws them. So a variant
    of the same batch size has the same batches, and a query the same negatives; those of another batch size are cut
    from the same shuffled rows. A query is paired with itself in the same batch, and where the batches differ by its
    mean over the batches. The interval of a mean difference is Student's t, for which queries of one group may
    depend on each other (`cocos.statistics.paired`); it is about the queries, not about other trainings.

    Args:
        embeddings: embeddings of the training set, or a checkpoint (its training set is encoded).
        loss: the loss as it is, or its name; a name takes the parameters that the checkpoint recorded for it.
        what: what is changed: names with the values of each, `{"temperature": [0.05, 0.1]}` or, as text, `NAME=V1,V2`,
            several separated by spaces or as a list. A name is a parameter of the loss, `loss`, `batch_size`, `eps`, or
            a mining rule that wraps the loss: `top_k`, `skip_k`, or `semi_hard`, which stands alone or with
            a margin. None: half and twice the sharpness and the batch size, mining rules, another loss.
        eps: smallest share that contributes.
        by: value whose change is shown: contributing, idle, relative, effective, push or hardest_share.
        level: of the confidence intervals.
        **sampling: options of the batches, see `Sampling`.

    Returns:
        A Dataset with dims direction, variant (the first is the setting as it is), metric: `mean`; over the queries
        that have a value in both, `base`, the mean as it is, `difference`, `low`, `high`, `p`, `p_holm`, their number
        `pairs`, and the number of their `groups`. Along variant also `changed`,
        `setting`, `loss_repr`, `eps` and `batch_size`. NaN stands where no query has a value, and in the intervals
        where all differences are equal.

    Examples:
        At a tenth of the temperature no query of a solved set pushes any negative:

        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> ntxent = cocos.losses.load("ntxent", {"temperature": 1})
        >>> data = cocos.measures.replay(embeddings, ntxent, "temperature=0.1", batch_size="all")
        >>> data["mean"].sel(direction="q2c", metric="contributing").to_series().to_dict()
        {'as it is': 2.0, 'temperature 0.1': 0.0}
    """
    sampling = fill_options("replay", sampling, DEFAULTS | {"dtype": None, "same_group": None})
    if by not in REPLAYED:
        raise InputError(nearest("value to compare by", by, REPLAYED))
    checkpoint = embeddings if isinstance(embeddings, Checkpoint) else None
    base = loss_for(loss, embeddings)
    sampling, few = few_batches(embeddings, sampling)
    disk = drawn_from(embeddings, sampling)
    rows: Any = disk
    if disk is None:
        rows = embedded(embeddings, sampling["split"], sampling["device"], sampling["progress"], scored=True)
        if checkpoint is not None and checkpoint.queries_only(base):
            rows = rows.single(rows.directions[0])
    sized = None if isinstance(rows, Scores) else sampling["batch_size"]
    asked, left = (settings.read(what), []) if what is not None else settings.usual(base, sized)
    if sized is None and "batch_size" in asked:
        raise InputError("what: batch_size: no batches are drawn from scores, each row is a query as it stands")
    variants = Setting(base, eps, sampling["batch_size"]).all(asked, lambda name: loss_for(name, checkpoint))
    if sampling["sample"] is None and not rows.shared:
        sampling["sample"] = base.sample
    counts = _counted(embeddings if disk else rows, rows, variants, sampling)
    variables, notes = _compared(variants, counts, level)
    first = counts[0].attrs
    own = results.lines(first)
    known = [*own, *few, *left]
    for each, data in zip(variants, counts, strict=True):
        known += [f"{each.label}: {line}" for line in results.lines(data.attrs) if line not in own]
    attrs = first | (checkpoint.identity() | {"split": sampling["split"]} if checkpoint else {})
    for key in ("health", "footnotes", "undrawn", "convention"):
        attrs.pop(key, None)
    by = "relative" if first["share"] == "unknown" and by in {"contributing", "idle"} else by
    attrs |= {"title": f"Replay of {base.name}", "by": by, "level": level, "frozen": FROZEN}
    attrs |= {"batches": counts[0].sizes["batch"], "notes": "\n".join(dict.fromkeys([*known, *notes]))}
    return results.labelled(variables, attrs, measure="replay")


def _counted(
    source: Embeddings | Checkpoint, rows: Any, variants: Sequence[Setting], sampling: Sampling
) -> list[xr.Dataset]:
    """Counts of each variant; those of one eps, batch size and number of directions are counted together."""
    groups: dict[tuple[float, int | str, bool], list[Setting]] = {}
    for each in variants:
        alone = each.loss.one_way(rows)
        groups.setdefault((each.eps, each.batch_size, alone), []).append(each)
    start, found = sampling["progress"], {}
    report = start and start("replaying")
    for done, ((eps, batch_size, _), some) in enumerate(groups.items()):
        shown = within(report, done, len(groups))
        options = sampling | {"batch_size": batch_size, "progress": shown and (lambda _, shown=shown: shown)}
        counted = count(source, {each.label: each.loss for each in some}, eps, **options)
        found |= counted
    return [found[each.label] for each in variants]


def _draws(one: xr.Dataset) -> Draws:
    """The row of each query of one direction, its group and its values, in the order in which batches drew them."""
    drawn = one["query_index"].values.ravel()
    there = np.isfinite(drawn)
    known, none = values_of(one, more=("push",)), np.full(drawn.shape, np.nan)
    found = {name: known.get(name, none).ravel()[there] for name in REPLAYED}
    return {name: one[f"query_{name}"].values.ravel()[there].astype(np.int64) for name in ("index", "group")} | found


def _by_row(draws: Draws) -> Draws:
    """Every query once, in ascending order of rows, by its mean over the draws that have a value."""
    row, first, place = np.unique(draws["index"], return_index=True, return_inverse=True)
    found = {"index": row, "group": draws["group"][first]}
    for name in REPLAYED:
        there = np.isfinite(draws[name])
        total = np.bincount(place[there], draws[name][there], len(row))
        number = np.bincount(place[there], minlength=len(row))
        found[name] = np.divide(total, number, out=np.full(len(row), np.nan), where=number > 0)
    return found


def _same_queries(one: Draws, other: Draws) -> list[Draws]:
    """The same queries of both: draw by draw where the batches are alike, else the rows that both have."""
    if np.array_equal(one["index"], other["index"]):
        return [one, other]
    both = _by_row(one), _by_row(other)
    _, *places = np.intersect1d(*(each["index"] for each in both), assume_unique=True, return_indices=True)
    return [{name: values[at] for name, values in each.items()} for each, at in zip(both, places, strict=True)]


def _compared(
    variants: Sequence[Setting], counts: Sequence[xr.Dataset], level: float
) -> tuple[dict[str, tuple], list[str]]:
    """Variables of the comparison with the first variant, as `results.labelled` takes them, and notes."""
    sides = [str(name) for name in counts[0]["direction"].values]
    found = {name: np.full((len(sides), len(variants), len(REPLAYED)), np.nan) for name in REPLAY_LABELS}
    notes = []
    for s, side in enumerate(sides):
        first = _draws(counts[0].sel(direction=side))
        for v, (variant, data) in enumerate(zip(variants, counts, strict=True)):
            if side not in data["direction"].values:
                notes.append(f"{variant.label}: this loss has no direction {side}; it asks from the queries alone")
                continue
            own = _draws(data.sel(direction=side))
            one, other = _same_queries(first, own)
            if not np.array_equal(own["index"], first["index"]) and variant.batch_size == variants[0].batch_size:
                notes.append(f"{variant.label}: this loss draws other batches, which adds noise to its differences")
            for m, name in enumerate(REPLAYED):
                found["mean"][s, v, m] = np.nanmean(own[name]) if np.isfinite(own[name]).any() else np.nan
                for key, value in differences(one[name], other[name], one["group"], level).items():
                    found[key][s, v, m] = value
    found["p_holm"] = adjusted(found["p"])
    doubts = [int(data["uncertain"].sum()) if "uncertain" in data else 0 for data in counts]
    if any(doubts):
        worst = int(np.argmax(doubts))
        notes.append(
            f"up to {doubts[worst]} negatives of all batches and directions ({variants[worst].label}) are so near to "
            "eps that they may count or not"
        )
    dims = ("direction", "variant", "metric")
    variables: dict[str, tuple] = {name: (dims, each, *REPLAY_LABELS[name]) for name, each in found.items()}
    variables["direction"], variables["metric"] = ("direction", sides), ("metric", list(REPLAYED))
    for name, (of, *about) in VARIANT_LABELS.items():
        variables[name] = ("variant", [of(each) for each in variants], *about)
    return variables, notes
