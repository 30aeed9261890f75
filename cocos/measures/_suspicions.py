"""Rules that suspect a negative of being a positive, as marks on pairs of rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from cocos import engine
from cocos.base.errors import InputError, nearest
from cocos.embeddings import Embeddings, likeness
from cocos.embeddings.batches import Batch
from cocos.embeddings.marks import UNMARKED, Mark
from cocos.embeddings.scores import Pairs
from cocos.engine import readers

# What each rule says of a query and its negative.
SUSPICIONS = {
    "group": "they share a group",
    "text": "they, or rows of their groups on one side, have the same text up to spelling",
    "near": "they, or rows of their groups on one side, have nearly the same text",
    "guide": "the guide scores the negative at or above the positive",
    "neighbours": "each is among the nearest rows of the other in the whole set",
}
# Rules that say of a pair that it belongs together, and do not guess it from a model.
LABEL_RULES = ("group", "text")


@dataclass(frozen=True, eq=False)
class SharedTexts:
    """Texts that the groups of two rows share on one side.

    Args:
        groups: number of the group of each row, (Q,) and (C,).
        texts: number of the text of each row, (Q,) and (C,), -1 for none.
        number: of the texts.
        known: sorted group * number + text, of the texts of the queries of each group and of its candidates.
        across: sorted text * number + text, of a query and a candidate that are alike themselves.
    """

    groups: tuple[Tensor, Tensor]
    texts: tuple[Tensor, Tensor]
    number: int
    known: tuple[Tensor, Tensor]
    across: Tensor

    def there(self, query: Tensor, candidate: Tensor) -> Tensor:
        """0 where texts are shared, -1 elsewhere, (q, c)."""
        group, text = (
            [each[side][index] for side, index in enumerate((query, candidate))] for each in (self.groups, self.texts)
        )
        of_candidate = group[0][:, None] * self.number + text[1]
        of_query = group[1] * self.number + text[0][:, None]
        found = (_within(of_candidate, self.known[1]) & (text[1] >= 0)) | (
            _within(of_query, self.known[0]) & (text[0][:, None] >= 0)
        )
        there = (text[0][:, None] >= 0) & (text[1] >= 0)
        found |= _within(text[0][:, None] * self.number + text[1], self.across) & there
        return torch.where(found, 0, UNMARKED)

    def back(self, candidate: Tensor, query: Tensor) -> Tensor:
        """The same where the candidates ask, (c, q)."""
        return self.there(query, candidate).T


def _within(values: Tensor, known: Tensor) -> Tensor:
    """Whether values are among sorted ones."""
    if not len(known):
        return torch.zeros_like(values, dtype=torch.bool)
    place = torch.searchsorted(known, values).clamp(max=len(known) - 1)
    return known[place] == values


def chosen(names: Iterable[str] | None, embeddings: Embeddings) -> tuple[str, ...]:
    """The rules that are asked for; None: all that the embeddings allow."""
    lacking = _lacking(embeddings)
    if names is None:
        return tuple(name for name in SUSPICIONS if name not in lacking)
    asked = tuple(dict.fromkeys(names))
    for name in asked:
        if name not in SUSPICIONS:
            raise InputError(nearest("rule", name, SUSPICIONS))
        if name in lacking:
            raise InputError(f"rule {name}: {lacking[name]}")
    if not asked:
        raise InputError(f"rules: none is given, expected some of {', '.join(SUSPICIONS)}")
    return asked


def _lacking(embeddings: Embeddings) -> dict[str, str]:
    """The rules that the embeddings do not allow, and what would."""
    lacking = {}
    if not any(embeddings.names or ()):
        why = (
            "the rows have no names, which are their texts; give query_name and candidate_name in the file, or --names"
        )
        lacking |= dict.fromkeys(("text", "near"), why)
    if embeddings.teacher is None:
        lacking["guide"] = (
            "there are no scores of a guide; give teacher (queries, candidates), or guide_query and guide_candidate"
        )
    if embeddings.candidate_variance is not None:
        lacking["neighbours"] = "candidates that are distributions have no nearest queries"
    return lacking


def marks(embeddings: Embeddings, rules: Sequence[str], metric: str, near: float, neighbours: int) -> dict[str, Mark]:
    """Marks of the rules that depend on rows alone: all but `guide`.

    Args:
        embeddings: the whole set.
        rules: some of `SUSPICIONS`.
        metric: of the scores.
        near: least similarity of nearly equal texts.
        neighbours: number of nearest rows in which each must be for the other.
    """
    made = {}
    groups = embeddings.groups.query, embeddings.groups.candidate
    if "group" in rules:
        made["group"] = Mark("group", ("group",), partial(_same, *groups), partial(_same, *groups[::-1]))
    if {"text", "near"} & set(rules):
        own, close = shared_texts(embeddings, near if "near" in rules else None)
        for name, shared in (("text", own), ("near", close)):
            if name in rules and shared is not None:
                made[name] = Mark(name, (name,), shared.there, shared.back)
    if "neighbours" in rules:
        found = mutual(embeddings, metric, neighbours)
        width = len(embeddings.candidate)
        keys = (found[:, 0] * width + found[:, 1]).sort().values
        made["neighbours"] = Mark(
            "neighbours",
            ("neighbours",),
            partial(_listed, keys, width),
            lambda candidate, query: _listed(keys, width, query, candidate).T,
        )
    return made


def _same(asking: Tensor, asked: Tensor, query: Tensor, candidate: Tensor) -> Tensor:
    return torch.where(asking[query][:, None] == asked[candidate], 0, UNMARKED)


def _listed(keys: Tensor, width: int, query: Tensor, candidate: Tensor) -> Tensor:
    return torch.where(_within(query[:, None] * width + candidate, keys), 0, UNMARKED)


def shared_texts(embeddings: Embeddings, near: float | None) -> tuple[SharedTexts, SharedTexts | None]:
    """The texts that groups share: equal ones, and those that are near to each other and not equal.

    A negative is suspected where its text is that of some positive of the query, or where the query's text is that of a
    query that the negative belongs to, or that of the negative itself.
    """
    said = tuple(embeddings.names or (None, None))
    sizes = len(embeddings.query), len(embeddings.candidate)
    texts = [text for names, size in zip(said, sizes, strict=True) for text in (names or [""] * size)]
    place = torch.from_numpy(likeness.numbered(texts))
    own = place[: sizes[0]], place[sizes[0] :]
    number = max(int(place.max()) + 1, 1)
    groups = embeddings.groups.query, embeddings.groups.candidate
    held = [_keys(group, text, number) for group, text in zip(groups, own, strict=True)]
    whole = SharedTexts(groups, own, number, tuple(held), torch.arange(number) * (number + 1))
    if near is None:
        return whole, None
    first: dict[int, str] = {}
    for text, where in zip(texts, place.tolist(), strict=True):
        first.setdefault(where, text)
    found = torch.from_numpy(likeness.near([first.get(each, "") for each in range(number)], near)[0])
    close = tuple(_close(keys, found, number) for keys in held)
    across = torch.cat([found, found.flip(1)]) @ torch.tensor([number, 1])
    return whole, SharedTexts(groups, own, number, close, across.sort().values)


def _keys(group: Tensor, text: Tensor, number: int) -> Tensor:
    """Group and text of the rows of one side as sorted numbers, group * number + text."""
    there = text >= 0
    return (group[there] * number + text[there]).unique()


def _close(keys: Tensor, near: Tensor, number: int) -> Tensor:
    """Groups with the texts that are near to one of theirs, as sorted numbers, without their own texts.

    Args:
        keys: sorted group * number + text.
        near: (p, 2) pairs of texts.
        number: of texts.
    """
    both = torch.cat([near, near.flip(1)])
    both = both[both[:, 0].argsort(stable=True)]
    begin = torch.searchsorted(both[:, 0].contiguous(), torch.arange(number + 1))
    text = keys % number
    many = (begin[1:] - begin[:-1])[text]
    place = torch.repeat_interleave(begin[text] - (many.cumsum(0) - many), many) + torch.arange(int(many.sum()))
    found = (torch.repeat_interleave(keys - text, many) + both[place, 1]).unique()
    return found[~_within(found, keys)]


def mutual(embeddings: Embeddings, metric: str, number: int) -> Tensor:
    """Pairs of rows of different groups of which each is among the nearest of the other, positives included, (n, 2)."""
    nearest_of = []
    sizes = len(embeddings.query), len(embeddings.candidate)
    for side in (embeddings.single(embeddings.directions[0]), embeddings.flip().single("back")):
        index = [torch.arange(len(rows), device=rows.device) for rows in (side.query, side.candidate)]
        seen = engine.view(side, Batch(*index, paired=False), metric=metric, product="float64")
        (found,) = engine.run(seen, [readers.Neighbours(min(number, len(index[1])))])
        nearest_of.append(found.candidate.cpu())
    keys = []
    for asks, found in enumerate(nearest_of):
        row = torch.arange(len(found))[:, None].expand_as(found)[found >= 0]
        other = found[found >= 0]
        keys.append(row * sizes[1] + other if asks == 0 else other * sizes[1] + row)
    both = keys[0][torch.isin(keys[0], keys[1])]
    pairs = torch.stack([both // sizes[1], both % sizes[1]], dim=1)
    groups = embeddings.groups
    return pairs[groups.query[pairs[:, 0]] != groups.candidate[pairs[:, 1]]]


def guided(pairs: Pairs, margin: float = 0.0) -> Tensor:
    """Negatives that the guide scores at or above the best positive less a margin, (Q, C) bool."""
    teacher = pairs.teacher
    best = teacher.masked_fill(~pairs.positive | teacher.isnan(), -torch.inf).amax(dim=1, keepdim=True)
    return pairs.negative & (teacher >= best - margin) & best.isfinite()


def masks(
    embeddings: Embeddings, batch: Batch, pairs: Pairs, start: int, given: Mapping[str, Mark], rules: Sequence[str]
) -> dict[str, Tensor]:
    """Suspected negatives of a block of a batch by each rule, and by each kind of mark of the file, (q, C) bool.

    Columns behind the candidates of the batch, of a loss with further directions, are not suspected.

    Args:
        embeddings: seen from the side that asks.
        batch: likewise.
        pairs: a block of its queries.
        start: its first query.
        given: the marks of the file, and of the rules.
        rules: some of `SUSPICIONS`.
    """
    found, width = {}, len(batch.candidate_index)
    query, negative = batch.query_index[start : start + len(pairs.scores)], pairs.negative[:, :width]
    for mark in given.values():
        kinds = mark.pairs(query, batch.candidate_index)
        for place, label in enumerate(mark.labels):
            mask = torch.zeros_like(pairs.negative)
            if kinds is not None:
                mask[:, :width] = (kinds.to(negative.device) == place) & negative
            found[label] = mask
    if "guide" in rules:
        found["guide"] = guided(pairs) & (torch.arange(pairs.scores.shape[1], device=negative.device) < width)
    return found


def ordered(labels: Iterable[str]) -> list[str]:
    """Labels of the rules in their order, those of marks of the file behind them."""
    labels = list(labels)
    return [name for name in SUSPICIONS if name in labels] + [name for name in labels if name not in SUSPICIONS]
