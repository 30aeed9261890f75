"""Seeded training batches, drawn from embeddings that were computed once."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, count, islice
from numbers import Integral

import torch
from torch import Tensor

from cocos.base.errors import InputError, Unfit, rows
from cocos.embeddings import Embeddings
from cocos.embeddings.batches import _groups
from cocos.embeddings.batches._batch import Batch, alone, coverage, matches, with_negatives
from cocos.embeddings.batches._pairs import Pairing, pairs

__all__ = ["COPY_RULES", "SAMPLINGS", "Batch", "Plan", "alone", "check", "matches", "plan"]

logger = logging.getLogger(__name__)
SAMPLINGS = ("pairs", "groups")
COPY_RULES = ("once", "keep")  # whether a row that several pairs of a batch have is one candidate, or one for each
WHOLE_SET = "all"  # the batch size that puts the whole set into one batch
# Rows of a batch that is as large as any set.
UNLIMITED = 2**40

# Batches of one pass, each with the rows that count towards its size.
Drawn = Iterator[tuple[Batch, int]]


@dataclass(frozen=True, eq=False)
class Plan:
    """The batches of one run, and notes on how they were drawn.

    Args:
        batches: in the order in which they are drawn.
        sample: `pairs` or `groups`.
        batch_size: rows of a full batch.
        notes: sentences.
        undrawn: sentences on the rows that are in no batch of a pass, with their number.
        copies: `once`, a row of several pairs is one candidate of a batch, or `keep`, one for each of its pairs.

    Examples:
        >>> plan = cocos.batches.plan(cocos.Embeddings(torch.eye(4), 2 * torch.eye(4)), batch_size=2)
        >>> plan.batch_size, len(plan.batches)
        (2, 2)
    """

    batches: tuple[Batch, ...]
    sample: str
    batch_size: int
    notes: tuple[str, ...] = field(default=())
    undrawn: tuple[str, ...] = field(default=())
    copies: str = "keep"


def check(
    sample: str | None,
    batch_size: int | str,
    batches: int | None,
    per_group: int | None,
    seed: int,
    copies: str | None = None,
) -> None:
    """Refuse options that are out of range, before anything is encoded.

    Raises:
        InputError: an option out of range.

    Examples:
        >>> cocos.batches.check("pairs", 128, None, None, 0)
    """
    if sample is not None and sample not in SAMPLINGS:
        raise InputError(f"sample: {sample!r}, expected one of {', '.join(SAMPLINGS)}")
    if copies is not None and copies not in COPY_RULES:
        raise InputError(f"copies: {copies!r}, expected one of {', '.join(COPY_RULES)}")
    numbers = (
        ("batch size", 2 if batch_size == WHOLE_SET else batch_size, 2, UNLIMITED, " (a batch of one has no negative)"),
        ("batches", batches, 1, 10**7, ""),
        ("per group", per_group, 1, UNLIMITED, ""),
        ("seed", seed, 0, 2**63 - 1, ""),
    )
    for name, value, least, most, why in numbers:
        if value is not None and not isinstance(value, Integral):
            raise InputError(
                f"{name}: {value!r}, expected a whole number" + (f", or {WHOLE_SET}" if name == "batch size" else "")
            )
        if value is not None and not least <= value <= most:
            expected = f"at least {least}{why}" if value < least else f"at most {most}"
            raise InputError(f"{name}: {value}, expected {expected}")


def plan(
    embeddings: Embeddings,
    *,
    sample: str = "pairs",
    batch_size: int | str = 128,
    batches: int | None = None,
    per_group: int | None = None,
    seed: int = 0,
    copies: str = "once",
    matched: bool = False,
    hard: bool | None = None,
) -> Plan:
    """Draw the batches of a run. Only row numbers are drawn: the embeddings stay where they are.

    The row numbers come from a generator on the CPU, so that a seed means the same batches on every device.

    Args:
        embeddings: the frozen embeddings of the training set.
        sample: `pairs` draws each row of the larger side once, with a random row of the other side, of which each
            is drawn at least once (batch size = rows of the larger side). Candidates without a query are not counted.
            A seed draws the same pairs whichever side is the query. `groups` draws queries, each with its candidates
            (batch size = queries), or, in a labelled set, classes x samples (batch size = samples). Samples against
            proxies are drawn one by one in both cases.
        batch_size: at least 2. One that reaches the whole set, or `all`, puts everything into one batch.
        batches: how many; None is one pass over the training set, the last batch partial, as published. More
            than one pass goes on with the next shuffle.
        per_group: `groups`: candidates of a query (None: all), or samples of a class (None: 4, or as many as
            fill the batch where there are few classes).
        seed: of the generator.
        copies: of a row that several pairs of a batch have, such as an image that is drawn with two of its captions.
            It asks for each of them in turn. `once`: it is a candidate of all captions of the batch once; `keep`: once
            for each of its pairs, as many loaders have it.
        matched: row i of the queries must stand beside row i of the candidates, for losses that read nothing else, so
            that copies are kept.
        hard: hard negatives are drawn with the queries that name them; None: unless rows are matched.

    Raises:
        InputError: an option out of range, or a query without any positive.

    Examples:
        Every row is drawn once; a seed means the same batches on every device.

        >>> plan = cocos.batches.plan(cocos.Embeddings(torch.eye(4), 2 * torch.eye(4)), batch_size=2, seed=0)
        >>> [batch.sizes for batch in plan.batches]
        [(2, 2), (2, 2)]
        >>> sorted(row for batch in plan.batches for row in batch.query_index.tolist())
        [0, 1, 2, 3]

        Three captions ask for two images, or for three, where an image occurs once for each of its captions:

        >>> images = cocos.Embeddings(torch.eye(3)[:2], torch.eye(3), [0, 1], [0, 0, 1])
        >>> [cocos.batches.plan(images, copies=each).batches[0].flip().sizes for each in cocos.batches.COPY_RULES]
        [(3, 2), (3, 3)]
    """
    check(sample, batch_size, batches, per_group, seed, copies)
    hard, copies = not matched if hard is None else hard, "keep" if matched else copies
    everything = batch_size == WHOLE_SET
    batch_size = UNLIMITED if isinstance(batch_size, str) else batch_size
    _refuse_options(embeddings, sample, batch_size, per_group)
    by_pairs = sample == "pairs" and not embeddings.proxies
    pairing = Pairing.of(embeddings, copies=copies == "keep") if by_pairs else None
    asking = embeddings.groups.candidates[embeddings.groups.query] > 0
    whole, unit = (int(asking.sum()), "queries") if pairing is None else (len(pairing.large), "pairs")
    unit = "samples" if embeddings.shared or embeddings.proxies else unit
    notes, undrawn = [], []
    if batch_size > whole and not everything:
        notes.append(f"batch size {batch_size} is above the {whole} {unit} there are: all of them make one batch")
    size = min(batch_size, whole)
    generator = torch.Generator().manual_seed(seed)
    one_pass = _passes(embeddings, pairing, size, whole, per_group, generator)
    useful = _useful(embeddings, one_pass, hard=hard)
    first = list(useful())
    if not first:
        raise InputError(
            f"batch size: {batch_size}: no batch holds two groups, so no query has a negative; take a larger one"
        )
    if orphans := _orphans(embeddings, negatives=hard):
        undrawn.append(f"{orphans} candidates have no query and are not drawn")
    if rest := whole - sum(number for _, number in first):
        undrawn.append(f"not drawn in a pass, for want of a negative in their batch: {rest} {unit}")
    more = chain(first, (made for _ in count() for made in useful()))
    drawn = tuple(batch for batch, _ in islice(more, len(first) if batches is None else batches))
    if covered := coverage(embeddings, drawn, matched=not hard):
        sentence, complete = covered
        (notes if complete else undrawn).append(sentence)
    for note in (*notes, *undrawn):
        logger.info("note: %s", note)
    device = embeddings.query.device
    moved = tuple(batch.to(device) for batch in drawn)
    return Plan(moved, sample, size, (*notes, *undrawn), tuple(undrawn), copies)


def _refuse_options(embeddings: Embeddings, sample: str, batch_size: int, per_group: int | None) -> None:
    """Refuse options that do not fit the embeddings, and embeddings from which nothing can be drawn."""
    if embeddings.shared and per_group == 1:
        raise InputError("per group: 1, expected at least 2 samples of a class")
    if embeddings.shared and batch_size < 2 * (per_group or 2):
        raise InputError(f"batch size: {batch_size}, expected at least {2 * (per_group or 2)}: samples of two classes")
    if per_group is not None and (embeddings.proxies or sample == "pairs"):
        raise InputError(
            f"per group: {per_group}, but only batches of groups have it; add --sample groups or leave it out"
        )
    _require_both(embeddings)
    if sample == "pairs" and embeddings.shared:
        raise InputError("sample: 'pairs' needs two sides; a labelled set is drawn by class, with 'groups'")


def _require_both(embeddings: Embeddings) -> None:
    """Require a positive for every query somewhere in the set, and negatives."""
    groups = embeddings.groups
    if embeddings.shared:
        lonely, reason = groups.queries[groups.query] < 2, "the only sample of its class"
    else:
        lonely, reason = groups.candidates[groups.query] == 0, "no candidate of its group"
        if embeddings.candidate_negatives is not None:  # these are drawn as candidates of the other direction
            lonely[embeddings.candidate_negatives[embeddings.candidate_negatives >= 0].cpu()] = False
    if found := lonely.nonzero().flatten().tolist():
        ids = ", ".join(map(str, embeddings.query_group[found[:5]].tolist()))
        raise Unfit(
            f"query without any positive: {rows(found)} (group {ids}) has {reason}; remove it or give it a positive"
        )
    if int((groups.candidates > 0).sum()) < 2:
        number = len(embeddings.candidate)
        what = "there is one candidate" if number == 1 else f"all {number} candidates are of one group"
        raise Unfit(f"no query has any negative: {what}; rows of another group are its negatives")


def _passes(
    embeddings: Embeddings,
    pairing: Pairing | None,
    size: int,
    whole: int,
    per_group: int | None,
    generator: torch.Generator,
) -> Callable[[], Drawn]:
    """Choose how a pass is drawn: the result draws the next one at each call."""

    def one_pass() -> Drawn:
        if pairing is not None:
            return pairs(embeddings, pairing, size, generator)
        if embeddings.shared and size == whole:
            index = torch.randperm(whole, generator=generator)
            return iter([(Batch(index, index, paired=False), whole)])
        if embeddings.shared:
            filling = size // len(embeddings.groups.queries)
            per_class = per_group or max(2, min(_groups.SAMPLES_PER_CLASS, size // 2), filling)
            made = _groups.classes(embeddings, size, per_class, generator)
        elif embeddings.proxies:
            made = _groups.against_proxies(embeddings, size, generator)
        else:
            made = _groups.queries(embeddings, size, per_group, generator)
        return ((batch, len(batch.query_index)) for batch in made)

    return one_pass


def _useful(embeddings: Embeddings, one_pass: Callable[[], Drawn], *, hard: bool) -> Callable[[], Drawn]:
    """Add hard negatives to the batches of each pass, and leave out batches without any negative."""
    candidate_group = embeddings.candidate_group.cpu()
    named = [
        each.cpu() if hard and each is not None else None
        for each in (embeddings.negatives, embeddings.candidate_negatives)
    ]

    def useful() -> Drawn:
        for batch, number in one_pass():
            full = batch if all(each is None for each in named) else with_negatives(batch, *named)
            if embeddings.proxies or _has_negatives(full, candidate_group):
                yield full, number

    return useful


def _has_negatives(batch: Batch, candidate_group: Tensor) -> bool:
    """Whether a query may have a negative: hard ones, two pairs side by side, or candidates of two groups."""
    if batch.extra > 0 or batch.beside is not None:
        return True
    if batch.paired and batch.turned is None:
        return batch.sizes[0] > 1
    group = candidate_group[batch.candidate_index]
    return bool((group != group[0]).any())


def _orphans(embeddings: Embeddings, *, negatives: bool) -> int:
    """Count the candidates that no batch can have: of no query's group, and named by no query."""
    alone = embeddings.groups.queries[embeddings.groups.candidate] == 0
    if embeddings.proxies:
        return 0
    if negatives and embeddings.negatives is not None:
        named = embeddings.negatives[embeddings.negatives >= 0]
        alone[named.cpu()] = False
    return int(alone.sum())
