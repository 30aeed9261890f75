"""Which negatives are suspected of being positives, and how much of the push do they receive?"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Unpack

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import results
from cocos.base.errors import InputError, nearest
from cocos.base.ranges import checked, whole
from cocos.checkpoints import Checkpoint
from cocos.counting import averages, filter_rules, findings, marked, statistics
from cocos.counting.filter_rules import FilterTrial
from cocos.counting.findings import Finding
from cocos.counting.statistics import MARKED_LABELS, MARKED_PARTS
from cocos.embeddings import Embeddings
from cocos.embeddings.marks import UNMARKED, Mark, of, within
from cocos.embeddings.options import DEFAULTS, Sampling, fill_options, tracked
from cocos.embeddings.sampling import Batch
from cocos.embeddings.scores import Pairs, Scores
from cocos.embeddings.sources import OWN_HARD
from cocos.engine import devices, readers, stack, sweep
from cocos.measures.shared import equal_texts
from cocos.measures.shared.prepared import Run, drawn_from, embedded, loss_for, prepare

# Rule -> its condition on a query and a negative.
SUSPICIONS = {
    "group": "they share a group",
    "text": "they, or rows of their groups on one side, have the same text up to spelling",
    "copy": "the negative equals a positive of the query, or the query another query of the negative",
    "guide": "the guide scores the negative at or above the positive",
    "neighbours": "each is among the nearest rows of the other in the whole set",
}
# Rules that say of a pair that it belongs together, and do not guess it from a model.
LABEL_RULES = ("group", "text")
# Mark on the candidates of a benchmark that nobody judged: likely positives where they stand at the top.
UNJUDGED = "unjudged"
# The rule of a pair that any rule suspects.
ANY_RULE = "any rule"
# Of every direction and rule: long name and units.
AUDIT_LABELS = {
    "suspects": ("suspected negatives", "pairs"),
    "share": ("suspected fraction", "1"),
    "push_share": ("push on suspects", "1"),
    "placebo": ("push on random negatives", "1"),
    "enrichment": MARKED_PARTS["enrichment"].about,
    "push": ("summed push on suspects", "weight"),
    "met": ("queries with a suspect", "1"),
}
# Of every suspected pair of rows.
SUSPECT_LABELS = {
    "query_index": ("row of the query in the embeddings", "1"),
    "candidate_index": ("row of the candidate in the embeddings", "1"),
    "pair_push": ("summed push on the pair", "weight"),
    "pair_part": ("mean push fraction", "1"),
    "drawn": ("draws of the pair", "1"),
    "score": ("score", "score"),
    "guide_score": ("score of the guide", "score"),
    "own_hard": ("draws as own hard negative", "1"),
}
# Of every filter and threshold.
FILTER_LABELS = {
    "filter_share": ("filtered fraction", "1"),
    "filter_push": ("push removed", "1"),
    "filter_left": ("push kept", "1"),
    "precision": ("precision", "1"),
    "recall": ("recall", "1"),
    "push_precision": ("push precision", "1"),
    "push_recall": ("push recall", "1"),
    "emptied": ("queries without negatives", "1"),
    "below_zero": ("queries with positive below 0", "queries"),
}


@checked
@devices.threads(1)
def audit(
    embeddings: Embeddings | Scores | Checkpoint,
    loss="ntxent",
    *,
    rules: Sequence[str] | None = None,
    filters: Mapping[str, Sequence[float]] | None = None,
    against: Sequence[str] | None = None,
    neighbours: Annotated[int, whole(1, 1000)] = 1,
    only: str | None = None,
    **sampling: Unpack[Sampling],
) -> xr.Dataset:
    """Suspect negatives of being positives, and tell how much push they receive in training batches.

    Batches of pairs are drawn as a loader that knows nothing of groups draws them: a candidate stands in a batch once
    for each of its queries, and rows of one group are negatives of each other (`same_group="ignore"` leaves them out).

    Args:
        embeddings: embeddings of the training set, or a checkpoint (its training set is encoded).
        loss: a loss, or its name; its own filter, if it has one, is off.
        rules: rules that suspect a negative: some of group,text,copy,guide,neighbours. None: all that the data allow.
            `group`: a negative of the query's own group; `text`: equal texts up to spelling; `copy`: rows that equal a
            positive; `guide`: a negative that
            the guide scores at or above the positive; `neighbours`: a pair of which each is among the nearest of the
            other. Marks of the rows are rules too.
        filters: rules of a masked InfoNCE that are replayed: `guide`, `self`, `percent`, `relative_margin`, `factor` ->
            thresholds (none: the usual ones). None: all that the data allow, except for `relative_margin`, which is
            `percent` where positives score above 0.
        against: rules that say which pairs are known to be positive, to judge filters by. None: group,text. The marks
            of the rows are among them; all are of those that are asked for.
        neighbours: number of nearest rows in which each must be for the other. Positives are among these rows.
        only: the one direction to look at; None: all.
        **sampling: options of the batches, see `Sampling`.

    Returns:
        Each (direction, rule), the last rule being any of them: `suspects`, `share` of the negatives, `push_share`,
        `placebo` (of as many random negatives), `enrichment`, `push`, `met` (queries with any).
        Of every suspected pair of rows (pair,), the largest push first:
        `query_index`, `candidate_index`, as the first direction has them, `pair_push`, `pair_part`, `drawn`, `score`,
        `guide_score`, `own_hard`, and `suspected` (pair, suspicion). Of every filter and threshold (direction, filter):
        `filter_share`, `filter_push`, `filter_left`, `precision` and `recall` against known positives, by number and by
        push, and `emptied`. Attributes: `neighbours`, `against`, `known`, the known positives that were drawn.

    Source: filters: GISTEmbed, arXiv:2402.16829; Qwen3 Embedding, arXiv:2506.05176; NV-Retriever, arXiv:2407.15831.

    Examples:
        Two questions to one passage: the passage stands in the batch twice, once as a negative of each question.

        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3)[:2], [0, 0, 1], [0, 1])
        >>> data = cocos.measures.audit(embeddings, batch_size="all", rules=["group"], only="q2c")
        >>> data["suspects"].sel(rule="group").values, data["query_index"].values, data["candidate_index"].values
        (array([2]), array([0, 1]), array([0, 0]))
    """
    sampling = fill_options("audit", sampling, DEFAULTS | {"same_group": "negative"})
    source, disk = embeddings, drawn_from(embeddings, DEFAULTS | sampling)
    unread = () if disk is None else ("neighbours", *(("text",) * (not disk.matched)))
    if set(unread) & set(rules or ()):  # one of them is asked for
        unread, disk = (), None
    run = _prepared(embeddings, loss, sampling, everything=disk is None)
    if disk is not None and disk.matched:
        run = replace(run, embeddings=run.embeddings.replace(names=_texts_drawn(run)))
    chosen = suspicions(rules, run.embeddings, unread)
    trials = filter_rules.trials(
        filters,
        taught=run.embeddings.teacher is not None,
        metric=run.loss.metric,
        scale=run.loss.softmax_scale,
    )
    report = sampling["progress"] and sampling["progress"]("comparing rows")
    own = dict(run.embeddings.marks or {})
    marks = own | _marks(run.embeddings, chosen)
    if "neighbours" in chosen:
        whole = embedded(source, sampling["split"], "cpu", None) if run.stored is not None else run.embeddings
        mutual = _mutual(whole, run.loss.metric, neighbours)
        marks["neighbours"] = of("neighbours", _drawn(run, mutual), *_sizes(run.embeddings))
    if report:
        report(1, 1)
    labelled = [label for mark in own.values() for label in mark.labels]
    every = [*chosen, *labelled]
    names = [name for name in SUSPICIONS if name in every] + [name for name in every if name not in SUSPICIONS]
    if not names:
        raise InputError("rules: scores alone allow none; give judgements or a reference")
    if against is None:
        known = [name for name in names if name in (*LABEL_RULES, *labelled) and name != UNJUDGED]
    else:
        known = list(dict.fromkeys(against))
        for name in known:
            if name not in names:
                raise InputError(f"against: {nearest('rule', name, names)}")
    run = replace(run, embeddings=run.embeddings.marked(marks))
    found = {}
    for name, side, second in run.sides if only is None else (run.side(only),):
        found[name] = Tallies([*names, ANY_RULE], trials, known)
        found[name].add_batches(run, side, second, sampling["progress"])
    lacking = _lacking(run.embeddings, unread)
    untried = {name: lacking.get(name, "other rules are asked for") for name in SUSPICIONS if name not in chosen}
    texts = [text for side in run.embeddings.names or () for text in side or ()]
    cut = equal_texts.cut(texts) if "text" in chosen else 0
    shortened = f"texts: {cut} are truncated to {equal_texts.CUT_CHARACTERS} characters for the comparison"
    compared_by = [Finding("cut texts", "note", shortened)] if cut else []
    attrs = run.provenance(
        title=f"Suspected false negatives, {run.loss.name}",
        batches=len(run.plan.batches),
        neighbours=int(neighbours),
        against=", ".join(known),
        asks=run.embeddings.directions[0],
        untried=json.dumps(untried),
        **findings.attributes([*run.findings, *compared_by]),
        known=int(sum(each.known_negatives[0] for each in found.values())),
    )
    width = len(run.embeddings.candidate) if run.stored is None else run.stored.sides[1].shape[0]
    if isinstance(run.embeddings, Scores) and run.embeddings.candidate_index is not None:
        width = int(run.embeddings.candidate_index.max()) + 1
    return results.labelled(_variables(found, width), attrs, measure="audit")


def _prepared(embeddings: Embeddings | Checkpoint, loss, sampling: Sampling, *, everything: bool) -> Run:
    """Prepare the run without the filter of the loss, with batches of a loader that knows nothing of groups."""
    loss = loss_for(loss, embeddings)
    if loss.filter != "none":
        loss = loss.unfiltered()
    sampling["copies"] = sampling["copies"] or "keep"
    run = prepare(embeddings, loss, scored=True, everything=everything, **sampling)
    if run.loss.graded:
        raise InputError(f"{run.loss.name} compares graded pairs, so that no negative receives a push")
    return run


def _sizes(embeddings: Embeddings) -> tuple[int, int]:
    return len(embeddings.query), len(embeddings.candidate)


def _drawn(run: Run, pairs: Tensor) -> Tensor:
    """Pairs of rows of the whole set, (n, 2), as rows of the run; without those that it has not read."""
    if run.stored is None:
        return pairs
    both = zip(run.rows, pairs.T.contiguous(), strict=True)
    place = [torch.searchsorted(rows, own).clamp(max=len(rows) - 1) for rows, own in both]
    found = torch.stack(place, dim=1)
    there = [rows[own] == of_all for rows, own, of_all in zip(run.rows, place, pairs.T, strict=True)]
    return found[there[0] & there[1]]


def _texts_drawn(run: Run) -> Any:
    """Texts of the rows that a run has read of a set on a disk, as `Embeddings.names`."""
    items: Any = run.checkpoint and run.checkpoint.items(run.split)
    if items is None:
        return None
    sides = zip(items.sides, run.rows, strict=True)
    return tuple(None if text is None else [text(row) for row in rows.tolist()] for text, rows in sides)


def _lacking(embeddings: Embeddings, unread: Sequence[str] = ()) -> dict[str, str]:
    """Name what the embeddings lack, for each rule that they do not allow; `unread` need other rows than those read."""
    lacking = dict.fromkeys(unread, "it reads rows outside of the batches; name it in the rules to read all")
    if isinstance(embeddings, Scores):
        lacking = dict.fromkeys(SUSPICIONS, "it needs rows, and there are scores alone")
        if embeddings.teacher is not None:
            del lacking["guide"]
        return lacking
    if not any(embeddings.names or ()):
        why = "the rows have no names, which are their texts; give query_name and candidate_name in the file"
        lacking = {"text": why} | lacking
    if embeddings.teacher is None:
        lacking["guide"] = (
            "there are no scores of a guide; give teacher (queries, candidates), or guide_query and guide_candidate"
        )
    if all((numbers < 0).all() for numbers in _row_numbers(embeddings)):
        lacking["copy"] = "no row equals another"
    if embeddings.candidate_variance is not None:
        lacking["neighbours"] = "candidates that are distributions have no nearest queries"
    return lacking


def suspicions(names: Sequence[str] | None, embeddings: Embeddings, unread: Sequence[str] = ()) -> tuple[str, ...]:
    """Check the rules that are asked for; None: all that the embeddings allow, without those `unread`."""
    lacking = _lacking(embeddings, unread)
    if names is None:
        return tuple(name for name in SUSPICIONS if name not in lacking)
    for name in names:
        if name not in SUSPICIONS:
            raise InputError(nearest("rule", name, SUSPICIONS))
        if name in lacking:
            raise InputError(f"rule {name}: {lacking[name]}")
    if not names:
        raise InputError(f"rules: none is given, expected some of {', '.join(SUSPICIONS)}")
    return tuple(dict.fromkeys(names))


def _marks(embeddings: Embeddings, rules: Sequence[str]) -> dict[str, Mark]:
    """Marks of the rules that depend on groups and texts of rows alone."""
    made = {}
    if "group" in rules:
        made["group"] = of("group", (embeddings.groups.query, embeddings.groups.candidate), *_sizes(embeddings))
    if "text" in rules:
        shared = _shared_texts(embeddings)
        made["text"] = Mark("text", ("text",), shared.forward, shared.backward)
    if "copy" in rules:
        shared = _shared(embeddings, _row_numbers(embeddings))
        made["copy"] = Mark("copy", ("copy",), shared.forward, shared.backward)
    return made


@dataclass(frozen=True, eq=False)
class SharedTexts:
    """Texts that the groups of two rows share on one side.

    Args:
        groups: number of the group of each row, (Q,) and (C,).
        texts: number of the text of each row, (Q,) and (C,), -1 for none.
        number: of the texts.
        known: sorted group * number + text, of the texts of the queries of each group and of its candidates.
    """

    groups: tuple[Tensor, Tensor]
    texts: tuple[Tensor, Tensor]
    number: int
    known: tuple[Tensor, Tensor]

    def forward(self, query: Tensor, candidate: Tensor) -> Tensor:
        """0 where texts are shared, -1 elsewhere, (q, c)."""
        group, text = (
            [each[side][index] for side, index in enumerate((query, candidate))] for each in (self.groups, self.texts)
        )
        of_candidate = group[0][:, None] * self.number + text[1]
        of_query = group[1] * self.number + text[0][:, None]
        found = (within(of_candidate, self.known[1]) & (text[1] >= 0)) | (
            within(of_query, self.known[0]) & (text[0][:, None] >= 0)
        )
        there = (text[0][:, None] >= 0) & (text[1] >= 0)
        found |= (text[0][:, None] == text[1]) & there
        return torch.where(found, 0, UNMARKED)

    def backward(self, candidate: Tensor, query: Tensor) -> Tensor:
        """The same where the candidates ask, (c, q)."""
        return self.forward(query, candidate).T


def _shared_texts(embeddings: Embeddings) -> SharedTexts:
    """Return the texts that groups share.

    A negative is suspected if its text equals a positive of the query, if the query's text equals another query of the
    negative, or if both texts are equal.
    """
    sizes = len(embeddings.query), len(embeddings.candidate)
    names = zip(embeddings.names or (None, None), sizes, strict=True)
    numbers = torch.from_numpy(equal_texts.numbered([text for side, size in names for text in (side or [""] * size)]))
    return _shared(embeddings, (numbers[: sizes[0]], numbers[sizes[0] :]))


def _row_numbers(embeddings: Embeddings) -> tuple[Tensor, ...]:
    """Number the distinct rows of both sides, (Q,) and (C,), -1 for a row without a copy on its side."""

    def number_rows(*sides: Tensor) -> tuple[Tensor, ...]:
        numbers, total = [], 0
        for rows in sides:
            _, number, copies = rows.cpu().unique(dim=0, return_inverse=True, return_counts=True)
            numbers.append(torch.where(copies[number] > 1, number + total, -1))
            total += len(copies)
        return tuple(numbers)

    return embeddings.kept("row numbers", (embeddings.query, embeddings.candidate), number_rows)


def _shared(embeddings: Embeddings, own: tuple[Tensor, ...]) -> SharedTexts:
    """Return the numbers that groups share, from the number of each row, -1 for none."""
    number = max(int(torch.cat(own).max()) + 1, 1)
    groups = embeddings.groups.query, embeddings.groups.candidate
    held = [(group[text >= 0] * number + text[text >= 0]).unique() for group, text in zip(groups, own, strict=True)]
    return SharedTexts(groups, own, number, tuple(held))


def _nearest(embeddings: Embeddings, metric: str, keep: int) -> Tensor:
    """The nearest candidates of each query, decided in float64, (Q, keep) on the host; -1 for none."""
    rows = [torch.arange(len(side), device=side.device) for side in (embeddings.query, embeddings.candidate)]
    batch = Batch(*rows, paired=False)
    view = stack.view(embeddings, batch, metric=metric, product="float64")
    (found,) = sweep.run(view, [readers.Neighbours(min(keep, len(embeddings.candidate)))])
    return found.candidate.cpu()


def _mutual(embeddings: Embeddings, metric: str, number: int) -> Tensor:
    """Pairs of rows of different groups of which each is among the nearest of the other, positives included, (n, 2)."""
    sizes = len(embeddings.query), len(embeddings.candidate)
    sides = embeddings.single(embeddings.directions[0]), embeddings.flip().single("back")
    keys = []
    for asks, found in enumerate(_nearest(side, metric, number) for side in sides):
        row = torch.arange(len(found))[:, None].expand_as(found)[found >= 0]
        other = found[found >= 0]
        keys.append(row * sizes[1] + other if asks == 0 else other * sizes[1] + row)
    both = keys[0][torch.isin(keys[0], keys[1])]
    pairs = torch.stack([both // sizes[1], both % sizes[1]], dim=1)
    groups = embeddings.groups
    return pairs[groups.query[pairs[:, 0]] != groups.candidate[pairs[:, 1]]]


@dataclass(eq=False)
class Tallies:
    """Sums over the batches of one direction.

    Args:
        rules: labels, the last one for any rule.
        trials: filters.
        known: rules whose suspects are known to be positives.
        blocks: of each block, statistics of its queries by name, (q,) each.
        push: (R,) summed push on the suspects of each rule.
        filters: (T, S) sums of each filter.
        known_negatives: number of negatives that are known to be positives, and their push.
        suspects: of each block, columns of its suspected pairs by name, (n,) each.
    """

    rules: Sequence[str]
    trials: Sequence[FilterTrial]
    known: Sequence[str]
    blocks: list[dict[str, Tensor]] = field(default_factory=list)
    push: np.ndarray = field(init=False)
    filters: np.ndarray = field(init=False)
    known_negatives: np.ndarray = field(default_factory=lambda: np.zeros(2))
    suspects: list[dict[str, Tensor]] = field(default_factory=list)

    def __post_init__(self):
        self.push = np.zeros(len(self.rules))
        self.filters = np.zeros((len(self.trials), len(filter_rules.SUMS_OF_FILTERS)))

    def add_batches(self, run: Run, side: Embeddings, second: bool, progress) -> None:
        """Add all batches, `second` where the candidates ask."""
        random = torch.Generator().manual_seed(run.seed)
        for drawn in tracked(run.plan.batches, progress, "auditing"):
            batch, start = drawn.flip() if second else drawn, 0
            seen = run.seen(batch)
            for pairs, weights, _ in run.blocks(side, batch, whole=False):
                query = seen.query_index[start : start + len(pairs.scores)]
                columns = self.add(pairs, weights, self._found(side, seen, pairs, query), random)
                asks, place = query[columns.pop("row")], columns.pop("column")
                own = side.candidates(asks, place) if isinstance(side, Scores) else seen.candidate_index[place]
                rows = run.numbers(asks, second), run.numbers(own, not second)
                rows = rows[::-1] if second else rows
                self.suspects.append(columns | dict(zip(("query_index", "candidate_index"), rows, strict=True)))
                start += len(pairs.scores)

    def _found(self, side: Embeddings, batch: Batch, pairs: Pairs, query: Tensor) -> dict[str, Tensor]:
        """Suspected negatives of a block of a batch by each rule, (q, C) bool.

        Columns behind the candidates of the batch, of a loss with further directions, are not suspected.
        """
        found, width = {}, len(batch.candidate_index)
        negative = pairs.negative[:, :width]
        for mark in (side.marks or {}).values():
            kinds = mark.pairs(query, batch.candidate_index)
            for place, label in enumerate(mark.labels):
                found[label] = torch.zeros_like(pairs.negative)
                if kinds is not None:
                    found[label][:, :width] = (kinds.to(negative.device) == place) & negative
        if "guide" in self.rules and "guide" not in found:
            found["guide"] = guided(pairs) & (torch.arange(pairs.scores.shape[1], device=negative.device) < width)
        return {name: found[name] for name in self.rules[:-1]}

    def add(
        self, pairs: Pairs, weights: Tensor, found: Mapping[str, Tensor], random: torch.Generator
    ) -> dict[str, Tensor]:
        """Add the queries of a block, and return columns of their suspected pairs.

        Args:
            pairs: of these queries.
            weights: (q, C).
            found: of every rule but the last one, the suspected negatives, (q, C) bool.
            random: generator of the random negatives.
        """
        part, push = statistics.spread(weights, pairs), statistics.push_of_negatives(weights, pairs)
        every = torch.stack([*found.values(), torch.zeros_like(pairs.negative)])
        every[-1] = every.any(dim=0)
        masks = [(mask, statistics.as_many(mask, pairs.negative, random)) for mask in every]
        self.blocks.append(marked.of_block(push, masks) | {"negatives": pairs.negative.sum(dim=1)})
        at = row, column = every[-1].nonzero(as_tuple=True)
        self.push += (every[:, row, column].double() @ push[at].double()).cpu().numpy()
        known = torch.stack([found[name] for name in self.known] or [torch.zeros_like(pairs.negative)]).any(dim=0)
        self.known_negatives += [float(known.sum()), float(torch.where(known, push, 0).sum())]
        for place, trial in enumerate(self.trials):
            self.filters[place] += filter_rules.sums(trial, pairs, push, known)
        return {
            "row": row,
            "column": column,
            "push": push[at],
            "part": part[at],
            "score": pairs.scores[at],
            "guide": torch.full_like(push[at], torch.nan) if pairs.teacher is None else pairs.teacher[at],
            "own_hard": torch.zeros_like(row) if pairs.source is None else pairs.source[at] == OWN_HARD,
            "rules": every[:-1, row, column].T,
        }

    def of_rules(self) -> dict[str, np.ndarray]:
        """The entries of `AUDIT_LABELS`, (R,) each."""
        values = self._per_query()
        kinds = {name: np.ascontiguousarray(values[name].T) for name in MARKED_LABELS}
        parts = averages.marked_parts(kinds, values["negatives"], values["negative_push"], -1)
        suspects = kinds["marked_negatives"]
        return {
            "suspects": suspects.sum(axis=1).astype(np.int64),
            "share": parts["marked_share"],
            "push_share": parts["marked_push"],
            "placebo": parts["placebo_push"],
            "enrichment": parts["enrichment"],
            "push": self.push,
            "met": (suspects > 0).mean(axis=1),
        }

    def of_filters(self) -> dict[str, np.ndarray]:
        """The entries of `FILTER_LABELS`, (T,) each."""
        values = self._per_query()
        pushed = float(values["negative_push"].sum())
        sums = dict(zip(filter_rules.SUMS_OF_FILTERS, self.filters.T, strict=True))
        known, known_push = self.known_negatives
        return {
            "filter_share": _over(sums["masked"], values["negatives"].sum()),
            "filter_push": _over(sums["masked_push"], pushed),
            "filter_left": _over(sums["left_push"], pushed),
            "precision": _over(sums["right"], sums["masked"] if known else 0),
            "recall": _over(sums["right"], known),
            "push_precision": _over(sums["right_push"], sums["masked_push"] if known else 0),
            "push_recall": _over(sums["right_push"], known_push),
            "emptied": _over(sums["emptied"], float(len(values["negatives"]))),
            "below_zero": sums["below_zero"],
        }

    def _per_query(self) -> dict[str, np.ndarray]:
        """Statistics of the queries of all blocks: (Q,), and (Q, R) of the rules."""
        return {
            name: torch.cat([block[name] for block in self.blocks]).cpu().double().numpy() for name in self.blocks[0]
        }


def guided(pairs: Pairs) -> Tensor:
    """Negatives that the guide scores at or above the best positive, (Q, C) bool."""
    teacher: Any = pairs.teacher
    best = teacher.masked_fill(~pairs.positive | teacher.isnan(), -torch.inf).amax(dim=1, keepdim=True)
    return pairs.negative & (teacher >= best) & best.isfinite()


def _over(values: np.ndarray, total: np.ndarray | float) -> np.ndarray:
    """Quotients; NaN where the total is 0."""
    total = np.broadcast_to(np.asarray(total, dtype=np.float64), values.shape)
    return np.divide(values, total, out=np.full(values.shape, np.nan), where=total > 0)


def _variables(found: Mapping[str, Tallies], width: int) -> dict[str, tuple]:
    """Variables of the sums of every direction; `width`: number of candidates of the first direction."""
    first = next(iter(found.values()))
    names, trials = list(first.rules), first.trials
    made: dict[str, tuple] = {
        "direction": ("direction", list(found)),
        "rule": ("rule", names, "rule"),
        "suspicion": ("suspicion", names[:-1], "rule"),
    }
    by_rule = [each.of_rules() for each in found.values()]
    for name, about in AUDIT_LABELS.items():
        made[name] = (("direction", "rule"), np.stack([each[name] for each in by_rule]), *about)
    if trials:
        labels = [f"{trial.filter} {trial.threshold:g}" for trial in trials]
        made["filter"] = ("filter", labels, "filter and its threshold")
        made["filter_rule"] = ("filter", [trial.filter for trial in trials], "filter")
        made["published"] = ("filter", [trial.published for trial in trials], "published threshold")
        by_filter = [each.of_filters() for each in found.values()]
        for name, about in FILTER_LABELS.items():
            made[name] = (("direction", "filter"), np.stack([each[name] for each in by_filter]), *about)
    listed = _listed([part for each in found.values() for part in each.suspects], width)
    for name, about in SUSPECT_LABELS.items():
        made[name] = ("pair", listed[name], *about)
    return made | {"suspected": (("pair", "suspicion"), listed["rules"], "suspected by the rule", "1")}


def _listed(parts: Sequence[Mapping[str, Tensor]], width: int) -> dict[str, np.ndarray]:
    """Sum up the suspected pairs over the times that they were drawn: columns, the largest push first."""
    whole = {name: torch.cat([part[name] for part in parts]).cpu() for name in parts[0]}
    keys = whole["query_index"] * width + whole["candidate_index"]
    unique, place = keys.unique(return_inverse=True)

    def total(values: Tensor) -> Tensor:
        return torch.zeros(len(unique), *values.shape[1:], dtype=torch.float64).index_add_(0, place, values.double())

    drawn, push = total(torch.ones(len(keys))), total(whole["push"])
    order = push.argsort(descending=True, stable=True)
    made = {
        "query_index": unique // width,
        "candidate_index": unique % width,
        "pair_push": push,
        "pair_part": total(whole["part"]) / drawn,
        "drawn": drawn.long(),
        "score": total(whole["score"]) / drawn,
        "guide_score": total(whole["guide"]) / drawn,
        "own_hard": total(whole["own_hard"]).long(),
        "rules": total(whole["rules"]) > 0,
    }
    return {name: values[order].numpy() for name, values in made.items()}
