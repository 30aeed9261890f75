"""What would another temperature, margin, batch size, mining rule or loss do on the same embeddings?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import xarray as xr

from cocos import losses, results
from cocos.base.errors import InputError, nearest
from cocos.base.ranges import Level
from cocos.checkpoints import Checkpoint
from cocos.counting import statistics
from cocos.embeddings import Embeddings
from cocos.engine.prepared import embedded
from cocos.engine.sampling import Sampling, sampled, within
from cocos.measures import _variants
from cocos.measures._variants import Variant
from cocos.measures.count import count
from cocos.measures.diff import COMPARED, values_of
from cocos.results import several

# What a replay reports of every query: long name and units.
REPLAYED = {
    "contributing": COMPARED["contributing"],
    "idle": COMPARED["idle"],
    "relative": COMPARED["relative"],
    "effective": COMPARED["effective"],
    "push": ("total weight above zero", "weight"),
    "hardest_share": COMPARED["hardest_share"],
}
REPLAY_LABELS = {
    "mean": ("mean over the queries that have a value", ""),
    "base": ("mean of the setting as it is over the queries that have a value in both", ""),
    "difference": ("mean of the paired differences, the variant less the setting as it is", ""),
    "low": ("lower end of its confidence interval", ""),
    "high": ("upper end of its confidence interval", ""),
    "p": ("p-value of the paired t-test", "1"),
    "p_holm": ("p-value adjusted for the number of tests (Holm)", "1"),
    "pairs": ("queries that have a value in both", "queries"),
    "groups": ("groups of those queries, within which they may depend on each other", "groups"),
}
# What a replay cannot say.
FROZEN = (
    "The embeddings are frozen: in a training, another setting would have moved them, and these numbers with them. A "
    "replay says what the gradient at this checkpoint would be, not which setting trains better."
)


@sampled(dtype=None, same_group=None)
def replay(
    embeddings: Embeddings | Checkpoint,
    loss="ntxent",
    what: str | Mapping[str, Any] | None = None,
    *,
    eps: float = 0.01,
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
            several separated by spaces. A name is a parameter of the loss, `loss`, `batch_size`, `eps`, or a mining
            rule that wraps the loss: `top_k`, `random_k`, `skip_k`, or `semi_hard`, which stands alone or with a
            margin. None: half and twice the sharpness and the batch size, mining rules, another loss.
        eps: smallest share that contributes.
        by: value whose change the table and the plot show.
        level: of the confidence intervals.
        **sampling: options of the batches, see `cocos.sampling.Sampling`.

    Returns:
        A Dataset with dims direction, variant (the first is the setting as it is), metric: `mean`; over the queries
        that have a value in both, `base`, the mean as it is, `difference`, `low`, `high`, `p`, `p_holm`, their number
        `pairs`, and the number of their `groups`. Along variant also `changed`,
        `setting`, `loss_repr`, `eps` and `batch_size`. NaN stands where no query has a value, and in the intervals
        where all differences are equal.

    Raises:
        InputError: an option, a change or an embedding that cannot be used.

    Examples:
        At a tenth of the temperature no query of a solved set pushes any negative:

        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> ntxent = cocos.losses.load("ntxent", {"temperature": 1})
        >>> data = cocos.measures.replay(embeddings, ntxent, "temperature=0.1", batch_size="all")
        >>> data["mean"].sel(direction="q2c", metric="contributing").to_series().to_dict()
        {'as it is': 2.0, 'temperature 0.1': 0.0}
    """
    if by not in REPLAYED:
        raise InputError(nearest("value to compare by", by, REPLAYED))
    checkpoint = embeddings if isinstance(embeddings, Checkpoint) else None
    load = (lambda name: checkpoint.loss(name)[0]) if checkpoint else losses.load
    base = load(loss) if isinstance(loss, str) else losses.of(loss)
    said = (_variants.read(what), []) if what is not None else _variants.usual(base, sampling["batch_size"])
    variants = _variants.made(base, eps, sampling["batch_size"], said[0], load)
    rows = embedded(embeddings, sampling["split"], sampling["device"], sampling["progress"])
    if sampling["sample"] is None and not rows.shared:
        sampling["sample"] = base.sample
    counts = _counted(rows, variants, sampling)
    variables, notes = _compared(variants, counts, level)
    first = counts[0]
    if first.attrs["share"] == "unknown":
        by = "relative" if by in {"contributing", "idle"} else by
    notes = [*filter(None, first.attrs["notes"].splitlines()), *said[1], *_other_notes(variants, counts), *notes]
    attrs = first.attrs | (checkpoint.identity() | {"split": sampling["split"]} if checkpoint else {})
    for key in ("health", "footnotes", "undrawn", "convention"):
        attrs.pop(key, None)
    attrs |= {"title": f"Replay of {losses.name_of(base)}", "by": by, "level": level, "frozen": FROZEN}
    attrs |= {"batches": first.sizes["batch"], "notes": "\n".join(dict.fromkeys(notes))}
    return results.labelled(variables, attrs)


def _counted(embeddings: Embeddings, variants: Sequence[Variant], sampling: Sampling) -> list[xr.Dataset]:
    """Counts of each variant; those of one eps, batch size and number of directions are counted together."""
    groups: dict[tuple[float, int | str, bool], list[Variant]] = {}
    for each in variants:
        alone = losses.traits(each.loss).one_way(embeddings)
        groups.setdefault((each.eps, each.batch_size, alone), []).append(each)
    start, found = sampling["progress"], {}
    report = start and start("replaying")
    for done, ((eps, batch_size, _), some) in enumerate(groups.items()):
        shown = within(report, done, len(groups))
        options = sampling | {"batch_size": batch_size, "progress": shown and (lambda _, shown=shown: shown)}
        counted = count(embeddings, {each.label: each.loss for each in some}, eps, **options)
        found |= several.each(counted)
    return [found[each.label] for each in variants]


@dataclass(frozen=True, eq=False)
class _Draws:
    """Values of the queries of one direction in the order in which batches drew them.

    Args:
        row: (n,) row of the query in the embeddings.
        group: (n,) its group.
        values: name -> (n,), NaN where a query has no value.
    """

    row: np.ndarray
    group: np.ndarray
    values: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, one: xr.Dataset) -> "_Draws":
        """The draws of one direction of a count."""
        drawn = one["query_index"].values.ravel()
        there = np.isfinite(drawn)
        known = values_of(one, more=("push",))
        none = np.full(drawn.shape, np.nan)  # of a loss of unknown unit
        values = {name: known.get(name, none).ravel()[there] for name in REPLAYED}
        group = one["query_group"].values.ravel()[there].astype(np.int64)
        return cls(drawn[there].astype(np.int64), group, values)

    def by_row(self) -> "_Draws":
        """Every query once, in ascending order of rows, by its mean over the draws that have a value."""
        row, first, place = np.unique(self.row, return_index=True, return_inverse=True)
        values = {}
        for name, each in self.values.items():
            there = np.isfinite(each)
            total = np.bincount(place[there], each[there], len(row))
            number = np.bincount(place[there], minlength=len(row))
            values[name] = np.divide(total, number, out=np.full(len(row), np.nan), where=number > 0)
        return _Draws(row, self.group[first], values)

    def at(self, places: np.ndarray) -> "_Draws":
        """Some of the draws."""
        return _Draws(self.row[places], self.group[places], {key: each[places] for key, each in self.values.items()})

    def paired(self, other: "_Draws") -> tuple["_Draws", "_Draws"]:
        """The same queries of both: draw by draw where the batches are alike, else the rows that both have."""
        if np.array_equal(self.row, other.row):
            return self, other
        one, two = self.by_row(), other.by_row()
        _, *places = np.intersect1d(one.row, two.row, assume_unique=True, return_indices=True)
        return one.at(places[0]), two.at(places[1])

    def difference(self, base: "_Draws", name: str, level: float) -> dict[str, float]:
        """The paired difference of one value; no interval where all differences are equal or there is one group."""
        one, two = base.values[name], self.values[name]
        there = np.isfinite(one) & np.isfinite(two)
        one, two, group = one[there], two[there], self.group[there]
        found: dict[str, float] = {"pairs": len(one), "groups": len(np.unique(group))}
        if not len(one):
            return found
        found |= {"base": float(one.mean()), "difference": float((two - one).mean())}
        if found["groups"] < 2 or np.ptp(two - one) == 0:
            return found
        test = statistics.paired(two, one, level, groups=group)
        return found | {"low": test.low, "high": test.high, "p": test.p}


def _compared(
    variants: Sequence[Variant], counts: Sequence[xr.Dataset], level: float
) -> tuple[dict[str, tuple], list[str]]:
    """Variables of the comparison with the first variant, as `results.labelled` takes them, and notes."""
    sides = [str(name) for name in counts[0]["direction"].values]
    found = {name: np.full((len(sides), len(variants), len(REPLAYED)), np.nan) for name in REPLAY_LABELS}
    apart = {}
    for s, side in enumerate(sides):
        first = _Draws.of(counts[0].sel(direction=side))
        for v, data in enumerate(counts):
            if side not in data["direction"].values:
                apart[f"{variants[v].label}: this loss has no direction {side}; it asks from the queries alone"] = v
                continue
            own = _Draws.of(data.sel(direction=side))
            one, other = first.paired(own)
            if not np.array_equal(own.row, first.row) and variants[v].batch_size == variants[0].batch_size:
                apart[f"{variants[v].label}: this loss draws other batches, which adds noise to its differences"] = v
            for m, (name, values) in enumerate(own.values.items()):
                found["mean"][s, v, m] = np.nanmean(values) if np.isfinite(values).any() else np.nan
                for key, value in other.difference(one, name, level).items():
                    found[key][s, v, m] = value
    tested = np.isfinite(found["p"])
    found["p_holm"][tested] = statistics.holm(found["p"][tested].tolist())
    dims = ("direction", "variant", "metric")
    variables: dict[str, tuple] = {name: (dims, each, *REPLAY_LABELS[name]) for name, each in found.items()}
    variables["direction"] = ("direction", sides)
    variables["variant"] = ("variant", [each.label for each in variants], "setting")
    variables["metric"] = ("metric", list(REPLAYED))
    variables["changed"] = ("variant", [each.changed for each in variants], "what is changed")
    variables["setting"] = ("variant", [each.setting for each in variants], "its value")
    variables["loss_repr"] = ("variant", [repr(each.loss) for each in variants], "loss with its parameters")
    variables["loss_name"] = ("variant", [losses.name_of(each.loss) for each in variants], "name of the loss")
    variables["eps"] = ("variant", [each.eps for each in variants], "smallest share that contributes", "share")
    variables["batch_size"] = ("variant", [str(each.batch_size) for each in variants], "rows of a batch")
    return variables, [*apart, *_uncertain(variants, counts)]


def _uncertain(variants: Sequence[Variant], counts: Sequence[xr.Dataset]) -> list[str]:
    """A note on negatives that are too near eps to tell."""
    doubts = [int(data["uncertain"].sum()) if "uncertain" in data else 0 for data in counts]
    if not any(doubts):
        return []
    worst = int(np.argmax(doubts))
    return [
        f"up to {doubts[worst]} negatives of all batches and directions ({variants[worst].label}) are so near to eps "
        "that they may count or not"
    ]


def _other_notes(variants: Sequence[Variant], counts: Sequence[xr.Dataset]) -> list[str]:
    """Notes that a variant has and the setting as it is has not."""
    known = set(counts[0].attrs["notes"].splitlines())
    return [
        f"{each.label}: {line}"
        for each, data in zip(variants, counts, strict=True)
        for line in data.attrs["notes"].splitlines()
        if line and line not in known
    ]


def document(data: xr.Dataset) -> dict:
    """Make the JSON document of `cocos replay --json`."""
    attrs, directions = data.attrs, {}

    def entry(one: xr.Dataset) -> dict:
        values = {str(key): float(one[key]) for key in REPLAY_LABELS}
        found: dict[str, float | None] = {key: each if np.isfinite(each) else None for key, each in values.items()}
        return found | {key: int(np.nan_to_num(values[key])) for key in ("pairs", "groups")}

    for side in data["direction"].values:
        rows = []
        for place in range(data.sizes["variant"]):
            one = data.sel(direction=side).isel(variant=place)
            about = {key: str(one[key].item()) for key in ("variant", "changed", "setting")}
            about |= {"loss": str(one["loss_repr"].item()), "eps": float(one["eps"])}
            about["batch_size"] = str(one["batch_size"].item())
            metrics = {str(name): entry(one.sel(metric=name)) for name in data["metric"].values}
            rows.append(about | {"metrics": metrics})
        directions[str(side)] = rows
    return {
        **results.about(attrs),
        "frozen": attrs["frozen"],
        "by": attrs["by"],
        "level": float(attrs["level"]),
        "batches": int(attrs["batches"]),
        "seed": int(attrs["seed"]),
        "sample": attrs["sample"],
        "notes": [line for line in attrs["notes"].splitlines() if line],
        "directions": directions,
    }
