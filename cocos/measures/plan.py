"""How often does a batch contain two rows of one group, or of one text?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Annotated, Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import results
from cocos.base import ranges
from cocos.base.annotations import Groups
from cocos.base.errors import InputError
from cocos.base.layout import Table
from cocos.checkpoints import Checkpoint
from cocos.checkpoints.data import TrainingSet
from cocos.counting.collisions import Collisions, chance_to_meet
from cocos.embeddings import Embeddings, likeness
from cocos.results import summaries

# Batch sizes that are planned where none are given; the number of rows is the last one.
USUAL_BATCH_SIZES = (32, 128, 512, 2048, 8192, 32768)
# Of every rule and batch size: long name and units.
PLAN_LABELS = {
    "probability": ("probability that a batch contains such a pair", "1"),
    "pairs": ("expected number of such pairs in a batch", "pairs"),
    "per_query": ("expected number of such rows that a query meets", "rows"),
    "met": ("expected part of the queries that meet one", "1"),
    "batches": ("full batches of one pass", "batches"),
    "batches_without": ("most full batches of one pass without any such pair", "batches"),
    "left_out": ("rows that no full batch has room for where there is no such pair", "rows"),
}
# Of every batch size, where queries name hard negatives.
HARD_LABELS = {
    "hard_per_query": ("expected number of others' hard negatives that are of a query's own group", "candidates"),
    "hard_met": ("expected part of the queries that meet one", "1"),
}
# Of every rule.
RULE_LABELS = {
    "groups": ("different groups: the largest batch without any such pair", "groups"),
    "largest_group": ("rows of the largest group", "rows"),
    "largest_batch": ("largest batch with a probability of such a pair below the bound", "rows"),
    "largest_batch_met": ("largest batch with a part of the queries that meet one below the bound", "rows"),
}


Bound = Annotated[float, ranges.number("a probability above 0 and below 1, like 0.05", lambda value: 0 < value < 1)]
# Rule that joins groups by their texts.
BOTH = "group or text"


@ranges.checked
def plan(
    data: Embeddings | Checkpoint | TrainingSet,
    batch_sizes: Sequence[int] | None = None,
    *,
    below: Bound = 0.05,
    split: str = "train",
) -> xr.Dataset:
    """Tell how often a batch of B rows contains two of one group or of one text, from the data alone.

    A batch draws rows of the larger side without replacement, each with a partner, as a shuffled loader and
    `cocos.batches.plan` do. Two of them that share a group are false negatives of each other wherever a loader knows
    nothing of groups. All numbers are exact, without simulation and without vectors: see `cocos.collisions`.

    Args:
        data: embeddings, a training set, or a checkpoint whose training set is taken without being encoded.
        batch_sizes: B, each from 2 to the number of rows; None: usual ones.
        below: bound on the probability of such a pair, for the largest batch that keeps it. Above 0 and below 1.
        split: of the checkpoint's data.

    Returns:
        Each (rule, batch_size): `probability` of such a pair in a batch, `pairs`, the expected number of them,
        `per_query`, the expected number that a query meets, `met`, the part of the queries that meet any, `batches` of
        one pass, `batches_without`, the most that can be filled without any such pair, and the rows `left_out` then.
        Where queries name hard negatives, each (batch_size,): `hard_per_query`, those of others that are of a query's
        own group, and `hard_met`, the part of the queries that meet one. Each (rule,): `groups`, `largest_group`;
        `largest_batch` and `largest_batch_met` for the bound. The rules are
        `group`; where texts are known, `text`, of the drawn rows alone, and `group or text`, where groups that share a
        text on either side count as one. Attributes: `rows`, `side`, `labelled`, `below`.

    Examples:
        Two questions to each of two passages: the second question drawn is of the same passage in one of three cases.

        >>> embeddings = cocos.Embeddings(torch.randn(4, 8), torch.randn(2, 8), [0, 0, 1, 1], [0, 1])
        >>> data = cocos.measures.plan(embeddings, [2])
        >>> round(data["probability"].item(), 6), data["batches_without"].item()
        (0.333333, 2)
    """
    known = RowGroups.of(data, split)
    rules = known.rules()
    rows = len(known.drawn)
    sizes = _sizes(batch_sizes, rows)
    values: dict[str, list[list[float]]] = {name: [] for name in PLAN_LABELS}
    for one in rules.values():
        without = [one.without(size) for size in sizes]
        values["probability"].append([one.probability(size) for size in sizes])
        values["pairs"].append([one.per_batch(size) for size in sizes])
        values["per_query"].append([one.per_query(size) for size in sizes])
        values["met"].append([one.met(size) for size in sizes])
        values["batches"].append([rows // size for size in sizes])
        values["batches_without"].append(without)
        values["left_out"].append([rows - size * many for size, many in zip(sizes, without, strict=True)])
    found = {
        "groups": [one.groups for one in rules.values()],
        "largest_group": [one.largest for one in rules.values()],
        "largest_batch": [one.largest_below(below) for one in rules.values()],
        "largest_batch_met": [one.largest_below(below, of="met") for one in rules.values()],
    }
    attrs = results.versions() | {
        "title": "Rows of one group in a batch",
        "rows": rows,
        "side": known.side,
        "labelled": int(known.labelled),
        "below": float(below),
    }
    if isinstance(data, Checkpoint):
        attrs |= data.identity() | ({"split": split} if data.splits else {})
    if known.notes:
        attrs["notes"] = "\n".join(known.notes)
    variables = {name: (("rule", "batch_size"), values[name], *about) for name, about in PLAN_LABELS.items()}
    variables |= {name: ("rule", found[name], *about) for name, about in RULE_LABELS.items()}
    variables |= {
        "rule": ("rule", list(rules), "two rows of a batch that share it"),
        "batch_size": ("batch_size", sizes, "batch size", "rows"),
    }
    if (named := known.named_by_others()) is not None:
        wrong, others = named
        met = [float(chance_to_meet(others, rows, size).mean()) for size in sizes]
        per_query = [float(wrong.mean()) * (size - 1) / (rows - 1) for size in sizes]
        for name, values in zip(HARD_LABELS, (per_query, met), strict=True):
            variables[name] = ("batch_size", values, *HARD_LABELS[name])
    return results.labelled(variables, attrs)


def _sizes(given: Sequence[int] | None, rows: int) -> list[int]:
    """Check the batch sizes; without any, those of the usual ones that are below the number of rows."""
    if given is None:
        return [size for size in USUAL_BATCH_SIZES if size < rows] or [rows]
    for size in given:
        if not isinstance(size, Integral) or isinstance(size, bool) or not 2 <= size <= rows:
            raise InputError(f"batch size: {size!r}, expected a whole number from 2 to {rows}, the rows that are drawn")
    if not len(given):
        raise InputError("batch size: none is given, expected at least one")
    return [int(size) for size in dict.fromkeys(given)]


@dataclass(frozen=True, eq=False)
class RowGroups:
    """Groups, texts and hard negatives of the rows of a data set, without any vectors.

    Args:
        groups: of both sides.
        texts: of the rows of both sides, or None.
        negatives: (Q, K) rows of the candidates that queries name, -1 for none; or None.
        notes: of the data.
        labelled: the sides are the same samples.
    """

    groups: Groups
    texts: tuple[Sequence[str] | None, Sequence[str] | None]
    negatives: Tensor | None
    notes: tuple[str, ...]
    labelled: bool

    @classmethod
    def of(cls, data: Any, split: str) -> "RowGroups":
        """Take what is known from embeddings, a training set or a checkpoint."""
        if isinstance(data, Checkpoint):
            data = data.embed(split, "cpu") if data.training is None else data.training.load(split)
        if isinstance(data, TrainingSet):
            texts = tuple(None if side.row_texts is None else tuple(side.row_texts) for side in data.sides)
            groups = Groups.of(*(side.group for side in data.sides))
            made = cls(groups, texts, data.negatives, data.notes, data.candidate is None)
        elif isinstance(data, Embeddings):
            if data.proxies:
                raise InputError("data: samples and class proxies: all proxies are in every batch, and no two collide")
            negatives = None if data.negatives is None else data.negatives.cpu()
            made = cls(data.groups, data.names or (None, None), negatives, data.notes, data.shared)
        else:
            raise InputError(
                f"data: {type(data).__name__}, expected cocos.Embeddings, a cocos.data.TrainingSet or a checkpoint"
            )
        if len(made.drawn) < 2:
            raise InputError(f"data: {len(made.drawn)} rows have a partner, expected at least 2 to draw a batch from")
        return made

    @property
    def sides(self) -> tuple[Tensor, Tensor]:
        """Numbers of the groups of both sides."""
        return self.groups.query, self.groups.candidate

    @cached_property
    def _with_partner(self) -> list[Tensor]:
        both = (self.groups.queries > 0) & (self.groups.candidates > 0)
        return [both[side].nonzero().flatten() for side in self.sides]

    @property
    def draws_candidates(self) -> bool:
        """Whether the candidates are the larger side, whose rows are drawn."""
        return len(self._with_partner[1]) >= len(self._with_partner[0]) and not self.labelled

    @property
    def drawn(self) -> Tensor:
        """Rows that are drawn: those of the larger side that have a partner."""
        return self._with_partner[self.draws_candidates]

    @property
    def side(self) -> str:
        """Name of the side whose rows are drawn."""
        return "samples" if self.labelled else ("candidates" if self.draws_candidates else "queries")

    def rules(self) -> dict[str, Collisions]:
        """The collisions of the drawn rows by each rule."""
        said, own = self.texts[self.draws_candidates], self.sides[self.draws_candidates][self.drawn].numpy()
        rules = {"group": Collisions.of(own)}
        if any(self.texts):
            if said is not None:
                number = likeness.numbered(said[row] for row in self.drawn.tolist())
                rules["text"] = Collisions.of(np.where(number < 0, number.max() + 1 + np.arange(len(number)), number))
            joined = _joined_by_text(self.sides, (self.texts[0], None if self.labelled else self.texts[1]))
            rules["group or text"] = Collisions.of(joined[own])
        return rules

    def named_by_others(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Hard negatives of others that are of a drawn row's own group, and the drawn rows that name any, (L,) each.

        None without hard negatives, or where it is drawn at random which query of a group comes with a row.
        """
        if self.negatives is None or (self.draws_candidates and int(self.groups.queries.max()) > 1):
            return None
        queries = self.drawn
        if self.draws_candidates:
            first = torch.full_like(self.groups.queries, -1)
            first[self.groups.query] = torch.arange(len(self.groups.query))
            queries = first[self.groups.candidate[self.drawn]]
        named = self.negatives[queries]
        row, place = (named >= 0).nonzero(as_tuple=True)
        group = self.groups.candidate[named[row, place]]
        number = len(self.groups.queries)
        entries = torch.bincount(group, minlength=number)
        rows = torch.bincount((row * number + group).unique() % number, minlength=number)
        own = self.groups.query[queries]  # a query never names a candidate of its own group
        return entries[own].numpy(), rows[own].numpy()


def _joined_by_text(groups: tuple[Tensor, Tensor], texts: tuple) -> np.ndarray:
    """Number the groups, (G,), alike where they share a text on one side, directly or by way of other groups."""
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components

    number = 1 + max(int(side.max()) for side in groups)
    edges, first = [np.zeros((2, 0), dtype=np.int64)], number
    for side, said in zip(groups, texts, strict=True):
        if said is None:
            continue
        place = likeness.numbered(said)
        edges.append(np.stack([side.numpy()[place >= 0], first + place[place >= 0]]))
        first += int(place.max()) + 1
    one, other = np.concatenate(edges, axis=1)
    graph = sparse.csr_array((np.ones(len(one), dtype=np.int8), (one, other)), shape=(first, first))
    return connected_components(graph, directed=False)[1][:number]


def document(data: xr.Dataset) -> dict:
    """Make the JSON document of `cocos plan --json`: by rule, its groups and what each batch size gives."""
    attrs, rules = data.attrs, {}
    for name, entry in summaries.entries(data, RULE_LABELS, "rule").items():
        sizes = summaries.entries(data.sel(rule=name), ["batch_size", *PLAN_LABELS], "batch_size")
        rules[name] = entry | {"batch_sizes": list(sizes.values())}
    head = {"cocos": attrs["cocos"], "rows": int(attrs["rows"]), "side": attrs["side"]}
    found = head | {"labelled": bool(attrs["labelled"]), "below": float(attrs["below"]), "rules": rules}
    if "hard_met" in data:
        sizes = map(int, data["batch_size"].values)
        parts = zip(sizes, *(data[name].values.tolist() for name in HARD_LABELS), strict=True)
        names = ("batch_size", "per_query", "met")
        found["hard_negatives"] = [dict(zip(names, each, strict=True)) for each in parts]
    return found


def _part(value: float) -> str:
    """Write a part in percent; a small one with its leading digits, one near 100 % as a bound."""
    percent = 100 * value
    if value and percent < 0.1:
        return f"{percent:.1g} %"
    return "> 99.9 %" if 99.95 <= percent < 100 and value < 1 else f"{percent:.1f} %"


# Column of each number of a batch size: its heading, and how it is written.
PLAN_COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "batch_size": ("batch", "  {}".format),
    "probability": ("any pair", _part),
    "pairs": ("pairs", "{:.3g}".format),
    "met": ("queries that meet one", _part),
    "per_query": ("per query", "{:.3g}".format),
    "batches": ("batches", str),
    "batches_without": ("without any", str),
    "left_out": ("left out", str),
}


def _row(each: dict) -> tuple[str, ...]:
    """Cells of a batch size, empty for numbers that it does not have."""
    return tuple(write(each[name]) if name in each else "" for name, (_, write) in PLAN_COLUMNS.items())


def table(data: xr.Dataset) -> Table:
    """Write a row for each rule and batch size, and below them the largest batch that keeps a bound, and advice."""
    found = document(data)
    rows, notes, blank = [], [], [""] * (len(PLAN_COLUMNS) - 1)
    for rule, about in found["rules"].items():
        if rule == BOTH and about == found["rules"]["group"]:
            notes.append(f"same {rule}: no other pairs than those of the same group")
            continue
        rows.append((f"same {rule}", *blank))
        rows += map(_row, about["batch_sizes"])
        notes.append(_limits(rule, about, found))
    if hard := found.get("hard_negatives"):
        rows += [("others' hard negatives of one group", *blank), *map(_row, hard)]
        if not hard[-1]["met"]:
            notes.append("no hard negative that a query names is of the group of another query")
    columns, least = tuple(heading for heading, _ in PLAN_COLUMNS.values()), ("per query", "batches", "pairs")
    return Table(columns, tuple(rows), _about(found), (*notes, *_advice(found)), least=least)


def _about(found: dict) -> tuple[str, ...]:
    partner = "" if found["labelled"] else ", each with a partner"
    return (
        f"{found['rows']} {found['side']} are drawn without replacement{partner}; two of one batch that share a group "
        "or a text are a pair",
        "any pair: probability that a batch contains one; without any: the most full batches of a pass without such a "
        "pair; left out: rows that are in none of these",
    )


def _limits(rule: str, about: dict, found: dict) -> str:
    """Say which batches keep the bound by one rule."""
    bound = f"{100 * found['below']:g} %"
    most = about["largest_group"]
    begin = f"same {rule}: {about['groups']} in {found['rows']} rows, {most} in the largest"
    if most == 1:
        return f"{begin}: no batch contains a pair"
    parts = [
        _bounded("any pair", about["largest_batch"], bound, found["rows"]),
        _bounded("queries that meet one", about["largest_batch_met"], bound, found["rows"]),
    ]
    return f"{begin}; {'; '.join(parts)}"


def _bounded(what: str, largest: int, bound: str, rows: int) -> str:
    """Say up to which batch a chance stays below its bound."""
    if largest < 2:
        return f"{what}: {bound} or more in every batch"
    return f"{what}: below {bound} {'in every batch' if largest == rows else f'up to a batch of {largest}'}"


def _advice(found: dict) -> tuple[str, ...]:
    """Say what to do about the pairs, where there are any."""
    *_, widest = found["rules"].values()
    if widest["largest_group"] == 1:
        return ()
    if found["labelled"]:
        return (
            "a labelled set: pairs of one class are positives here, and a sample that meets none has no positive in "
            "its batch; draw classes x samples instead (--sample groups)",
        )
    return (
        "without such pairs: draw each group once a batch (a sampler without duplicates), or mask rows of one group "
        "(cocos count leaves them out of the gradient; --same-group negative keeps them); cocos audit FILE tells how "
        "much push they receive",
    )
