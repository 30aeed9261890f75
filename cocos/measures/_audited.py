"""Sums of an audit over the batches, and the variables that are made of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from cocos.counting import statistics
from cocos.embeddings.scores import Pairs
from cocos.embeddings.sources import SOURCES
from cocos.measures import _marked, _replay
from cocos.measures._replay import FilterTrial

# The rule of a pair that any rule suspects.
ANY_RULE = "any rule"
# Of every direction and rule: long name and units.
AUDIT_LABELS = {
    "suspects": ("suspected negatives that are drawn", "pairs"),
    "share": ("part of the negatives that is suspected", "1"),
    "push_share": ("part of the push on suspected negatives", "1"),
    "placebo": ("part of the push on as many random negatives", "1"),
    "enrichment": ("part of the push over part of the negatives", "1"),
    "push": ("summed weight above zero on suspected negatives", "weight"),
    "met": ("part of the queries that have a suspected negative", "1"),
}
# Of every pair of rules.
OVERLAP_LABELS = {
    "overlap": ("negatives that both rules suspect", "pairs"),
    "overlap_push": ("part of the push on negatives that both rules suspect", "1"),
}
# Of every suspected pair of rows.
SUSPECT_LABELS = {
    "query_index": ("row of the query in the embeddings", "1"),
    "candidate_index": ("row of the candidate in the embeddings", "1"),
    "pair_push": ("weight above zero on the pair, summed over the batches and directions", "weight"),
    "pair_part": ("part of the push of its query, mean over the times that it was drawn", "1"),
    "drawn": ("times that the pair was drawn as a query with a negative", "1"),
    "score": ("score", "score"),
    "guide_score": ("score of the guide", "score"),
    "own_hard": ("times that the candidate was drawn as a hard negative of the query itself", "1"),
}
# Of every filter and threshold.
FILTER_LABELS = {
    "filter_share": ("part of the negatives that the filter suspects", "1"),
    "filter_push": ("part of the push on them", "1"),
    "filter_left": ("part of the push that they keep", "1"),
    "precision": ("part of them that is known to be positive", "1"),
    "recall": ("part of the known ones that the filter suspects", "1"),
    "push_precision": ("part of their push that is on known ones", "1"),
    "push_recall": ("part of the push on known ones that the filter removes", "1"),
    "emptied": ("part of the queries that are left without any negative", "1"),
    "below_zero": ("queries whose positive scores below 0, so that `percent` keeps negatives above it", "queries"),
}


@dataclass(eq=False)
class Tallies:
    """Sums over the batches of one direction.

    Args:
        rules: labels, the last one for any rule.
        trials: filters.
        blocks: of each block, statistics of its queries by name, (q,) each.
        overlap: (R, R) pairs that two rules suspect, and their push.
        filters: (T, S) sums of each filter.
        labels: number of negatives that are known to be positives, and their push.
        suspects: of each block, columns of its suspected pairs by name, (n,) each.
    """

    rules: Sequence[str]
    trials: Sequence[FilterTrial]
    blocks: list[dict[str, Tensor]] = field(default_factory=list)
    overlap: np.ndarray = field(init=False)
    filters: np.ndarray = field(init=False)
    labels: np.ndarray = field(init=False)
    suspects: list[dict[str, Tensor]] = field(default_factory=list)

    def __post_init__(self):
        number = len(self.rules)
        self.overlap = np.zeros((2, number, number))
        self.filters = np.zeros((len(self.trials), len(_replay.SUMS_OF_FILTERS)))
        self.labels = np.zeros(2)

    def add(self, pairs: Pairs, weights: Tensor, found: Mapping[str, Tensor], known: Sequence[str], random) -> None:
        """Add the queries of a block.

        Args:
            pairs: of these queries.
            weights: (q, C).
            found: of every rule but the last one, the suspected negatives, (q, C) bool.
            known: rules whose suspects are known to be positives.
            random: generator of the random negatives.
        """
        part, push = statistics.spread(weights, pairs), statistics.push_of_negatives(weights, pairs)
        every = torch.stack([*found.values(), torch.zeros_like(pairs.negative)])
        every[-1] = every.any(dim=0)
        masks = [(mask, statistics.as_many(mask, pairs.negative, random)) for mask in every]
        self.blocks.append(_marked.of_block(push, masks) | {"negatives": pairs.negative.sum(dim=1)})
        row, column = every[-1].nonzero(as_tuple=True)
        hits = every[:, row, column].double()
        self.overlap += torch.stack([hits @ hits.T, (hits * push[row, column]) @ hits.T]).cpu().numpy()
        label = torch.stack([found[name] for name in known]).any(dim=0) if known else torch.zeros_like(pairs.negative)
        self.labels += [float(label.sum()), float(torch.where(label, push, 0).sum())]
        for place, trial in enumerate(self.trials):
            self.filters[place] += _replay.sums(trial, pairs, push, label)
        columns = {"row": row, "column": column, "push": push[row, column], "part": part[row, column]}
        taught = torch.full_like(pairs.scores, torch.nan) if pairs.teacher is None else pairs.teacher
        columns["guide"] = taught[row, column]
        columns["source"] = torch.zeros_like(row) if pairs.source is None else pairs.source[row, column].long()
        self.suspects.append(columns | {"score": pairs.scores[row, column], "rules": every[:-1, row, column].T})


def variables(found: Mapping[str, Tallies], width: int) -> dict[str, tuple]:
    """Variables of the sums of every direction, as `cocos.results.labelled` takes them.

    Args:
        found: direction -> sums.
        width: number of candidates of the first direction.
    """
    first = next(iter(found.values()))
    names, trials = list(first.rules), first.trials
    by_rule, overlaps, by_filter = zip(*map(_of_direction, found.values()), strict=True)
    made: dict[str, tuple] = {
        "direction": ("direction", list(found)),
        "rule": ("rule", names, "rule that suspects a negative"),
        "other_rule": ("other_rule", names, "another rule"),
    }
    for name, about in AUDIT_LABELS.items():
        made[name] = (("direction", "rule"), np.stack([each[name] for each in by_rule]), *about)
    for place, (name, about) in enumerate(OVERLAP_LABELS.items()):
        values = np.stack([each[place] for each in overlaps])
        made[name] = (("direction", "rule", "other_rule"), values, *about)
    if trials:
        labels = [f"{trial.filter} {trial.threshold:g}" for trial in trials]
        made["filter"] = ("filter", labels, "filter and its threshold")
        made["published"] = ("filter", [trial.published for trial in trials], "whether it is the published threshold")
        for name, about in FILTER_LABELS.items():
            made[name] = (("direction", "filter"), np.stack([each[name] for each in by_filter]), *about)
    listed = _listed([part for each in found.values() for part in each.suspects], width)
    for name, about in SUSPECT_LABELS.items():
        made[name] = ("pair", listed[name], *about)
    made["suspected"] = (("pair", "suspicion"), listed["rules"], "whether the rule suspects the pair", "1")
    return made | {"suspicion": ("suspicion", names[:-1], "rule that suspects a pair")}


def _of_direction(tallies: Tallies) -> tuple[dict[str, np.ndarray], tuple[np.ndarray, np.ndarray], dict]:
    """The entries of `AUDIT_LABELS`, (R,) each, of `OVERLAP_LABELS`, (R, R), and of `FILTER_LABELS`, (T,)."""
    number = len(tallies.rules)
    values = {
        name: torch.cat([block[name] for block in tallies.blocks]).cpu().numpy().astype(np.float64)
        for name in tallies.blocks[0]
    }
    plain, marked = _marked.taken(values, number)
    parts = _marked.parts(marked, plain["negatives"], plain["negative_push"], -1)
    pushed = float(plain["negative_push"].sum())
    suspects = marked["marked_negatives"]
    by_rule = {
        "suspects": suspects.sum(axis=1).astype(np.int64),
        "share": parts["marked_share"],
        "push_share": parts["marked_push"],
        "placebo": parts["placebo_push"],
        "enrichment": parts["enrichment"],
        "push": tallies.overlap[1].diagonal().copy(),
        "met": (suspects > 0).mean(axis=1),
    }
    sums = dict(zip(_replay.SUMS_OF_FILTERS, tallies.filters.T, strict=True))
    labels, label_push = tallies.labels
    by_filter = {
        "filter_share": _over(sums["masked"], plain["negatives"].sum()),
        "filter_push": _over(sums["masked_push"], pushed),
        "filter_left": _over(sums["left_push"], pushed),
        "precision": _over(sums["right"], sums["masked"] if labels else 0),
        "recall": _over(sums["right"], labels),
        "push_precision": _over(sums["right_push"], sums["masked_push"] if labels else 0),
        "push_recall": _over(sums["right_push"], label_push),
        "emptied": _over(sums["emptied"], float(len(plain["negatives"]))),
        "below_zero": sums["below_zero"],
    }
    overlap = tallies.overlap[0].astype(np.int64), _over(tallies.overlap[1], pushed)
    return by_rule, overlap, by_filter


def _over(values: np.ndarray, total: np.ndarray | float) -> np.ndarray:
    """Quotients; NaN where the total is 0."""
    total = np.broadcast_to(np.asarray(total, dtype=np.float64), values.shape)
    return np.divide(values, total, out=np.full(values.shape, np.nan), where=total > 0)


def _listed(parts: Sequence[Mapping[str, Tensor]], width: int) -> dict[str, np.ndarray]:
    """Sum up the suspected pairs over the times that they were drawn: columns, the largest push first."""
    whole = {name: torch.cat([part[name] for part in parts]).cpu() for name in parts[0]}
    keys = whole["query_index"] * width + whole["candidate_index"]
    unique, place = keys.unique(return_inverse=True)
    number = len(unique)

    def total(values: Tensor) -> Tensor:
        return torch.zeros(number, *values.shape[1:], dtype=torch.float64).index_add_(0, place, values.double())

    drawn = total(torch.ones(len(keys)))
    push, rules = total(whole["push"]), total(whole["rules"]) > 0
    order = push.argsort(descending=True, stable=True)
    made = {
        "query_index": unique // width,
        "candidate_index": unique % width,
        "pair_push": push,
        "pair_part": total(whole["part"]) / drawn,
        "drawn": drawn.long(),
        "score": total(whole["score"]) / drawn,
        "guide_score": total(whole["guide"]) / drawn,
        "own_hard": total(whole["source"] == SOURCES.index("own hard")).long(),
        "rules": rules,
    }
    return {name: values[order].numpy() for name, values in made.items()}
