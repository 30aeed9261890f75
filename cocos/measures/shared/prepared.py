"""Prepare a counting measure: check and encode, draw the batches, and give gradient weights block by block."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from cocos import engine, losses, results
from cocos.base import machine
from cocos.base.errors import InputError, Unfit
from cocos.checkpoints import Checkpoint
from cocos.checkpoints.encoding import device_of
from cocos.counting import findings, health, shares
from cocos.counting.findings import Finding
from cocos.embeddings import Embeddings, scores, similarities
from cocos.embeddings.options import DEFAULTS, Progress, Sampling, copies, within
from cocos.embeddings.sampling import OPTION_RANGES, Batch, Plan, check_options, check_pairs, select
from cocos.embeddings.sampling import plan as draw_plan
from cocos.embeddings.scores import Pairs, Scores
from cocos.embeddings.similarities import NORMALISED_SIDES, SYMMETRIC
from cocos.embeddings.stored import Stored
from cocos.engine import devices, readers
from cocos.engine.readers.lines import LINES_TILE
from cocos.losses.families.graded import GradedList

SCORE_TYPES = {"float32": torch.float32, "float64": torch.float64}
# Scores from which several threads of PyTorch save more time than they spend waiting (measured).
THREADED_SCORES = 2**20
# Scores in one block of queries: 2 MiB in float64, so that the dozen passes over a block stay in the cache, and few
# blocks divide all candidates by their norms again. Blocks of 2^22 scores took two to six times as long.
BLOCK_SCORES = 2**18
# Rows of one side of the batches that are visited together, and counted by one task of an executor.
STACK_ROWS = 2**16
# Metrics whose losses read scores as somebody gives them; others are distances of vectors.
READ_AS_GIVEN = ("cosine", "dot")
OUT_OF_RANGE = "{!r}: its weights leave the range of {}; take parameters nearer to 1"
TO_GIVE = "scores of a teacher (queries, candidates) or (queries, 1 + negatives), or guide_query and guide_candidate"
# Losses of samples and class proxies, the class weights of a softmax among them.
PROXY_LOSSES = (
    *("proxynca", "proxynca_pp", "proxy_anchor", "proxy_gml", "softtriple", "hist", "warped_softmax"),
    *("normalized_softmax", "l2_softmax", "linear_softmax", "smoothed_softmax", "euclidean_softmax"),
    *("arcface", "subcenter_arcface", "cosface", "curricularface", "magface", "adaface", "a_softmax", "l_softmax"),
    "center_contrastive",
)
# Embeddings in memory are compared as they are; a file of samples lacks the proxies of its training.
WITHOUT_PROXIES = (
    "loss {}: it compares samples with class proxies, and {} has only samples; add the proxies of the training, "
    "numpy.savez(FILE, embeddings=..., labels=..., proxies=...), or name the checkpoint that contains them, "
    "cocos count CHECKPOINT --model file.py:build --data DATA"
)
# Relation of two rows of one group, if the loss determines it.
SAME_GROUP_OF = {"labels": "positive", "rows": "negative", "columns": "negative"}
# Kinds of share that cannot exceed 1.
BOUNDED_SHARES = {"probability": "a probability", "unknown": "a part of the push"}
# Largest norm for which products of rows, and their squares, stay within the range of float32.
SINGLE_NORM = 1e15
# Rows of a batch on which a loss of others is compared with one of the shelf.
CHECKED_ROWS = 32
DOUBLE_BYTES = 8  # of a float64
# Float64 arrays of the size of the scores that weighing a whole batch takes.
WEIGHING_ARRAYS = 10


# Bytes of a side in shards from which on the rows of a few batches are read alone.
MIN_DRAWN = 2**26
# Queries of one side in the batches of a set on a disk, where no number is given and they are weighed many times.
FEW_QUERIES = 2**13
FEW_NOTE = "{:,} of {:,} batches were read; --batches for another number"


@dataclass(frozen=True, eq=False)
class Run:
    """A set of embeddings, a loss, and the batches to look at."""

    embeddings: Embeddings | Scores
    loss: losses.Loss
    plan: Plan
    same_group: str  # relation of two rows of one group: ignored, negatives, or positives of a labelled loss
    checkpoint: Checkpoint | None
    dtype: str  # of the scores
    visited: bool = False  # scores are visited tile by tile; the matrix is never stored
    seed: int = 0  # seed for drawing the batches
    split: str = "train"  # split of the checkpoint's data
    eps: float | None = None  # smallest share that contributes, where the measure has one
    stored: Stored | None = None  # the set on a disk of which some rows were read
    rows: tuple[Tensor, ...] = ()  # numbers of these rows there, of both sides, ascending
    given: Embeddings | None = None  # the embeddings before they were widened; None: they were not
    apart: bool = False  # each batch is visited by itself, so that no bit of a number depends on the others

    @property
    def findings(self) -> tuple[Finding | str, ...]:
        """Findings and notes for the user on the embeddings, the batches and the loss."""
        if isinstance(self.embeddings, Scores):
            return (*self.embeddings.notes, *self.plan.notes, *self.loss.notes)
        return (
            *health.meaningless(self.narrow, self.loss.metric),
            *health.norms(self.embeddings, self.loss),
            *self.embeddings.notes,
            *self.plan.notes,
            *self.loss.notes,
            *health.grades(self.embeddings, self.loss),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """The findings as sentences."""
        return tuple(finding.text if isinstance(finding, Finding) else finding for finding in self.findings)

    @cached_property
    def spread(self) -> dict[str, dict]:
        """Distance of each side from being one point: see `cocos.counting.health.side`."""
        return health.of(self.narrow, self.loss.metric)

    @property
    def narrow(self) -> Embeddings | Scores:
        """The embeddings in their first dtype, with which their health is cached for the next count."""
        return self.given or self.embeddings

    def provenance(self, *, title: str, **more) -> dict:
        """Return the attributes of a Dataset of this run: loss, batches, versions, file, and `more`."""
        attrs = {
            "title": title,
            "batch_size": self.plan.batch_size,
            "sample": self.plan.sample,
            "copies": self.plan.copies,
            "same_group": self.same_group,
            "seed": self.seed,
            "dtype": self.dtype,
            "device": self.embeddings.query.device.type,
            **findings.attributes(self.findings),
            "eps": self.eps,
        }
        attrs |= {"metric": self.embeddings.metric} if isinstance(self.embeddings, Scores) else {}
        attrs |= self.checkpoint.identity() | {"split": self.split} if self.checkpoint else {}
        return results.provenance(self.loss, **attrs | more)

    def side(self, direction: str | None) -> tuple[str, Embeddings, bool]:
        """Return the entry of `sides` for a direction; None: the first."""
        names = self.embeddings.directions
        return self.sides[names.index(results.direction(direction, names))]

    @cached_property
    def sides(self) -> tuple[tuple[str, Embeddings, bool], ...]:
        """Name of each direction, the embeddings seen from its queries, and whether it is the second one."""
        first, *second = self.embeddings.directions
        return ((first, self.embeddings, False), *((name, self.embeddings.flip(), True) for name in second))

    def numbers(self, index: Tensor, second: bool) -> Tensor:
        """Return the numbers in the whole set of rows of the first or second side."""
        return index if self.stored is None else self.rows[second][index.cpu()]

    def groups(self, index: Tensor, second: bool) -> Tensor:
        """Return the numbers in the whole set of the groups of rows of the first or second side."""
        if self.stored is not None:
            return self.stored.group(int(second), self.numbers(index, second))
        groups = self.embeddings.groups
        return (groups.candidate if second else groups.query)[index.cpu()]

    def place(self, row: int, second: bool) -> int:
        """Return the number in `embeddings` of a row of the whole set; -1 for a row that was not read."""
        if self.stored is None:
            return row
        places = (self.rows[second] == row).nonzero().flatten()
        return int(places[0]) if len(places) else -1

    def pairs(self, embeddings: Embeddings, batch: Batch, *, whole: bool) -> Iterator[Pairs]:
        """Yield the pairs of a batch in blocks of queries; in one block if the loss couples queries."""
        batch = self.seen(batch)
        number, size = batch.sizes
        rows = number if whole or self.loss.couples != "query" else max(1, BLOCK_SCORES // size)
        for start in range(0, number, rows):
            yield self.block(embeddings, batch, slice(start, start + rows))

    def block(self, embeddings: Embeddings, batch: Batch, block: slice) -> Pairs:
        """Return the pairs of some queries of a batch, as the loss reads it."""
        if isinstance(embeddings, Scores):
            return embeddings.pairs(batch.query_index[block])
        with devices.rounding(), threads(len(batch.query_index[block]) * len(batch.candidate_index)):
            return scores.pairs(
                embeddings,
                batch,
                metric=self.loss.metric,
                same_group="negative" if self.same_group == "negative" else "ignore",
                block=block,
                directions=self.loss.directions,
                graded=self.loss.graded,
            )

    def seen(self, batch: Batch) -> Batch:
        """Return the batch as a loss with labels reads it: every row of the query's group is a positive."""
        if self.same_group != "positive":
            return batch
        return replace(batch, paired=False, turned=batch.turned and replace(batch.turned, paired=False))

    @cached_property
    def visited_order(self) -> list[int]:
        """Places of the batches in the order of `stacks`: batches of one kind together, as a view needs."""
        kinds = [_kind(batch) for batch in self.plan.batches]
        if kinds.count(kinds[0]) == len(kinds):
            return list(range(len(kinds)))
        first = {kind: place for place, kind in reversed(tuple(enumerate(kinds)))}
        return sorted(range(len(kinds)), key=lambda place: (first[kinds[place]], place))

    def stacks(self) -> Iterator[list[Batch]]:
        """Yield the batches in `visited_order`, in lists of one kind that are visited at once."""
        stack, rows = [], 0
        for batch in (self.seen(self.plan.batches[place]) for place in self.visited_order):
            size = max(batch.sizes)
            alike = not stack or _kind(batch) == _kind(stack[0])
            if stack and (self.apart or rows + size > STACK_ROWS or not alike):
                yield stack
                stack, rows = [], 0
            stack.append(batch)
            rows += size
        yield stack

    def views(self, stack: list[Batch], *, each_way: bool = False) -> Iterator[tuple[Callable, list[str], list]]:
        """Yield views of the scores of batches: one for both directions, or one each, as with own hard negatives.

        Yields:
            A function that makes the view, its directions, and the query rows of each batch.
        """
        same_group = "negative" if self.same_group == "negative" else "ignore"
        options = {"metric": self.loss.metric, "same_group": same_group, "product": self.dtype}
        if stack[0].square and not each_way:
            indices = [[batch.query_index for batch in stack], [batch.candidate_index for batch in stack]]
            names = list(self.embeddings.directions)
            yield functools.partial(engine.view, self.embeddings, stack, **options), names, indices[: len(names)]
            return
        for name, side, second in self.sides:
            batches = [batch.flip() if second else batch for batch in stack]
            make = functools.partial(engine.view, side.single(name), batches, **options)
            yield make, [name], [[batch.query_index for batch in batches]]

    def scored(self, batch: Batch, *, whole: bool) -> Iterator[tuple[bool, Iterator[Pairs]]]:
        """Yield for each direction of a batch whether it is the second one, and the result of `pairs`.

        A batch that fits in one block is scored once; the second direction is the transpose of the first.
        """
        small = math.prod(batch.sizes) <= BLOCK_SCORES
        if small and batch.square and len(self.sides) == 2 and self.loss.metric in SYMMETRIC:
            (pairs,) = self.pairs(self.embeddings, batch, whole=True)
            yield False, iter([pairs])
            yield True, iter([pairs.flip()])
            return
        for _, side, second in self.sides:
            yield second, self.pairs(side, batch.flip() if second else batch, whole=whole)

    def sided(self, batch: Batch, *, whole: bool) -> Iterator[tuple[bool, Iterator[tuple[Pairs, Tensor, Tensor]]]]:
        """Yield for each direction of a batch whether it is the second one, and pairs, weights and unit by block."""
        for second, blocks in self.scored(batch, whole=whole):
            yield second, ((pairs, *self.weighed(pairs)) for pairs in blocks)

    def blocks(self, embeddings: Embeddings, batch: Batch, *, whole: bool) -> Iterator[tuple[Pairs, Tensor, Tensor]]:
        """Yield pairs, weights and unit of a batch, in the blocks of `pairs`."""
        for pairs in self.pairs(embeddings, batch, whole=whole):
            yield pairs, *self.weighed(pairs)

    def weighed(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Return the weights of one block and their unit, by the closed form if there is one; NaN if unknown."""
        with threads(pairs.scores.numel()):
            weight = self.loss.weight(pairs)
            unit = self.loss.unit(pairs)
        usable = (unit > 0) & unit.isfinite()
        if not self.loss.closed_form:
            usable |= unit.isnan()  # unknown
        # A finite sum has only finite terms, and is read much faster.
        if not ((weight.sum().isfinite() or weight.isfinite().all()) and usable.all()):
            raise InputError(OUT_OF_RANGE.format(self.loss, str(weight.dtype).removeprefix("torch.")))
        return weight, unit

    def first(self) -> Pairs:
        """Return the pairs of the first batch, whole, in the first direction."""
        _, side, _ = self.sides[0]
        return next(self.pairs(side, self.plan.batches[0], whole=True))

    def same_group_pairs(self) -> list[int]:
        """Return the unordered pairs of rows of one group in each batch of pairs; 0 in other batches."""
        groups, numbers = self.embeddings.groups, [0] * len(self.plan.batches)
        for k, batch in enumerate(self.plan.batches if not groups.single else ()):
            way, ids = (batch, groups.query) if batch.paired else (batch.flip(), groups.candidate)
            if way.paired:
                sizes = np.unique(ids[way.query_index.cpu()].numpy(), return_counts=True)[1]
                numbers[k] = int((sizes * (sizes - 1) // 2).sum())
        return numbers

    def repeated(self) -> dict[str, list[int]]:
        """Count the repeated candidates of each batch as drawn, kept or not: direction -> (batches,)."""
        numbers = {}
        for name, _, second in self.sides:
            batches = [batch.flip() if second else batch for batch in self.plan.batches]
            if self.plan.copies == "once" or self.embeddings.shared or self.embeddings.proxies:
                numbers[name] = [batch.repeated[1] for batch in batches]
            else:
                sizes = (len(batch.partners) - len(batch.partners.unique()) for batch in batches)
                numbers[name] = list(sizes)
        return numbers


def together(sizes: Sequence[int], most: int) -> list[int]:
    """Return the ends of groups of neighbouring batches with at most `most` rows together, or one batch."""
    ends, rows = [], 0
    for place, size in enumerate(sizes):
        if rows and rows + size > most:
            ends.append(place)
            rows = 0
        rows += size
    return [*ends, len(sizes)]


def _kind(batch: Batch) -> tuple[bool, bool, bool]:
    """Return the properties that all batches of a view share."""
    return batch.paired, batch.square, batch.flip().paired


def passes(
    run: Run,
    readers: Callable[[engine.View], Sequence[Sequence]],
    report: Callable[[int, int], None] | None,
    *,
    lines: Callable | None = None,
) -> Iterator[tuple[list[str], list[list[Tensor]], list]]:
    """Run readers over the batches, stack by stack.

    Readers are made for each view, in groups; a group is one run of the engine. Readers of whole lines need `lines`,
    which gives the tiles of a view.

    Yields:
        The directions of a view; the query rows of each batch; and the result of each reader.
    """
    made = []
    for stack in run.stacks():
        large = max(math.prod(batch.sizes) for batch in stack) > LINES_TILE
        made += run.views(stack, each_way=lines is not None and large)
    for done, (make, names, asking) in enumerate(made):
        view, found = make(), []
        groups = readers(view)
        for place, group in enumerate(groups):
            shown = within(report, done * len(groups) + place, len(made) * len(groups))
            found += engine.run(view, group, tile=lines and lines(view), progress=shown)
        yield names, asking, found


def threads(number: int) -> contextlib.AbstractContextManager:
    """Run PyTorch on all threads where a matrix of `number` scores is large enough to gain from them, else on one."""
    return devices.threads(None if number >= THREADED_SCORES else 1)


def loss_for(loss: Any, source: Any, parameters: Mapping[str, Any] | None = None) -> losses.Loss:
    """Load a loss; a name, or None, takes the parameters that a checkpoint recorded of its training."""
    if not isinstance(loss, str | None):
        return losses.as_loss(loss)
    values = dict(parameters or {})
    return source.loss(loss, values)[0] if isinstance(source, Checkpoint) else losses.load(loss or "ntxent", values)


def drawn_from(source: Any, options: Sampling) -> Stored | None:
    """Return the set on a disk if only the rows of its batches should be read; None for any other source."""
    number, batch_size = options["batches"], options["batch_size"]
    is_checkpoint = isinstance(source, Checkpoint) and source.stored is not None
    if not is_checkpoint or number is None or isinstance(batch_size, str):
        return None
    if source.on_disk is not None or not isinstance(number, Integral):
        return source.on_disk
    stored = source.stored
    if stored is None or 2 * number * batch_size > stored.number:
        return None
    return stored if max(math.prod(side.shape) * side.dtype.itemsize for side in stored.sides) >= MIN_DRAWN else None


def few_batches(source: Any, options: Sampling) -> tuple[Sampling, tuple[str, ...]]:
    """Set the number of batches of a set on disk if none is given; return the options, and a note if changed."""
    disk = source.on_disk if isinstance(source, Checkpoint) and options["batches"] is None else None
    if disk is None or isinstance(options["batch_size"], str):
        return options, ()
    number, few = disk.number // options["batch_size"], max(1, FEW_QUERIES // options["batch_size"])
    if few >= number:
        return options, ()
    return options | {"batches": few}, (FEW_NOTE.format(few, number),)


def embedded(
    embeddings, split: str, device: str | None, progress: Progress | None, *, scored: bool = False
) -> Embeddings:
    """Return embeddings on a device, encoded if they are a checkpoint; `scored` accepts scores as well."""
    if isinstance(embeddings, Checkpoint):
        with devices.threads():
            embeddings = embeddings.embed(split, device or "auto", progress and progress("encoding"))
    if isinstance(embeddings, Scores) and not scored:
        raise InputError("scores: this needs the vectors of queries and candidates, and there are scores alone")
    if not isinstance(embeddings, (Embeddings, Scores)):
        kind = type(embeddings).__name__
        raise InputError(f"embeddings: {kind}, expected cocos.Embeddings or a checkpoint, as cocos.open(path) gives")
    return embeddings.to(device=None if device is None else device_of(device))


def _refuse_unreachable(loss: losses.Loss, eps: float | None) -> None:
    """Reject an eps that no share can exceed: it may have been meant in percent."""
    kind = shares.share(loss)
    if eps is not None and eps >= 1 and kind in BOUNDED_SHARES:
        raise InputError(
            f"eps: {eps:g}, expected less than 1, since a share of {loss.name} is {BOUNDED_SHARES[kind]}: "
            f"none exceeds 1; {eps:g} % is eps {eps / 100:g}"
        )


def prepare(
    embeddings: Embeddings | Checkpoint,
    loss,
    *,
    eps: float | None = None,
    visits: bool | Callable = False,
    whole: bool = False,
    scored: bool = False,
    everything: bool = False,
    **sampling: Unpack[Sampling],
) -> Run:
    """Prepare the run of one loss: see `prepare_all`."""
    options = {"eps": eps, "visits": visits, "whole": whole, "scored": scored, "everything": everything}
    (run,) = prepare_all(embeddings, [loss], **options, **sampling)
    return run


def prepare_all(
    embeddings: Embeddings | Checkpoint,
    several: Iterable,
    *,
    eps: float | None = None,
    visits: bool | Callable = False,
    whole: bool = False,
    marks: bool = False,
    scored: bool = False,
    everything: bool = False,
    **sampling: Unpack[Sampling],
) -> list[Run]:
    """Check everything that can be checked, then encode, then draw the batches: once for all losses, where they agree.

    Args:
        embeddings: embeddings, or a checkpoint.
        several: losses, or their names.
        eps: smallest share that contributes; None: the measure has none.
        visits: whether the measure needs no weights, for losses with a reader or by a function of the loss: then scores
            are visited tile by tile, and the matrix is never stored.
        whole: keep the scores of a whole batch in memory.
        marks: whether the measure reads marks, and the sources of candidates: scores of embeddings that have marks are
            not visited then.
        scored: whether the measure needs no vectors, so that it takes scores as well.
        everything: whether the measure reads other rows than those of its batches. Of a set on a disk the rows of a
            number of batches are read alone otherwise.
        **sampling: see `Sampling`; `batches` may be a `Plan`. A dtype of None is float32 for scores that
            are visited, whose counts float64 decides, and float64 elsewhere.

    Raises:
        InputError: an option or an embedding that cannot be used.
        Unfit: a query without any positive, or no negative for any query.
    """
    options = DEFAULTS | sampling
    asked = options["batches"]
    is_number = asked is None or isinstance(asked, Integral)
    if isinstance(asked, str | slice):
        raise InputError(f"batches: {asked!r}, expected their number; only a count takes a slice of the batches")
    batches = () if is_number else tuple(asked.batches if isinstance(asked, Plan) else asked)
    if not is_number and not batches:
        raise InputError("batches: none were given")
    numbers = {key: value for key, value in options.items() if key in OPTION_RANGES and (is_number or key != "batches")}
    check_options(eps=eps, **numbers)
    checkpoint = embeddings if isinstance(embeddings, Checkpoint) else None
    several = [losses.as_loss(loss_for(loss, embeddings) if isinstance(loss, str) else loss) for loss in several]
    for loss in several if not whole else ():  # published shares are sums over the positives, which may exceed 1
        _refuse_unreachable(loss, eps)
    disk = None if everything else drawn_from(embeddings, options)
    if disk is not None and checkpoint is not None:
        settings = {"eps": eps, "visits": visits, "whole": whole, "marks": marks, "scored": scored}
        settings |= options | {"device": options["device"] or "auto"}

        def read(rows: Embeddings, losses_of_plan: list[losses.Loss], plan: Plan) -> list[Run]:
            return prepare_all(rows, losses_of_plan, **settings | {"batches": plan})

        return _of_drawn_rows(disk, checkpoint, several, options, read)
    embeddings = embedded(embeddings, options["split"], options["device"], options["progress"], scored=scored)
    memory = devices.memory(embeddings.query.device)
    if isinstance(embeddings, Scores):
        return _of_scores(embeddings, several, checkpoint, options, eps, memory, whole=whole)
    if not is_number:
        moved = tuple(batch.to(embeddings.query.device) for batch in batches)
        options["batches"] = replace(asked, batches=moved) if isinstance(asked, Plan) else moved
    planned = functools.cache(functools.partial(_planned, embeddings, checkpoint, options))
    converted, runs = functools.cache(embeddings.to), []
    for planned_loss in several:
        loss = planned_loss
        same_group = SAME_GROUP_OF.get(loss.matching, options["same_group"])
        if checkpoint is not None and embeddings.shared and loss.name in PROXY_LOSSES:
            raise InputError(WITHOUT_PROXIES.format(loss.name, checkpoint.path))
        similarities.check(embeddings, loss.metric, checkpoint and checkpoint.path)
        if missing := [name for name in loss.requires if getattr(embeddings, name) is None]:
            raise InputError(f"{loss.name} reads {missing[0]}, which the embeddings do not have: {TO_GIVE}")
        matched = loss.matching in {"rows", "columns"} or (loss.graded and embeddings.grades is not None)
        plan = planned(loss.sample, whole or matched, not whole and loss.matching == "columns")
        # Third-party code may have the weights of a built-in loss, which can be visited.
        if visits and not (loss.bound or loss.terms) and loss.unit_from == "unknown":
            few = options | {"batch_size": CHECKED_ROWS, "batches": 1}
            with contextlib.suppress(InputError):  # then it is read, or refused, without a closed form
                small = _planned(embeddings, checkpoint, few, plan.sample, matched, loss.matching == "columns")
                part, batch = select(embeddings, small.batches[0])
                part = part.single(part.directions[0]) if _queries_only(loss, part, checkpoint) else part
                small = replace(small, batches=(batch,))
                loss = loss.bind(Run(part, loss, small, same_group, checkpoint, "float64").first())
        reads = visits if callable(visits) else readers.has
        hard = embeddings.negatives is not None or embeddings.candidate_negatives is not None
        by_source = embeddings.is_queued or loss.wide or (marks and (hard or embeddings.marks))
        visited = bool(visits) and not by_source and engine.fits(embeddings, loss.metric) and reads(loss)
        if not visited:
            largest = max(math.prod(batch.sizes) for batch in plan.batches)
            _refuse_too_large(loss, largest, memory, whole=whole)
        dtype = options["dtype"]
        rows = embeddings if visited else converted(dtype=SCORE_TYPES[dtype or "float64"])
        widened = torch.finfo(rows.query.dtype).bits > torch.finfo(embeddings.query.dtype).bits
        before = embeddings if widened else None
        if _queries_only(loss, rows, checkpoint):
            rows, before = (side and side.single(side.directions[0]) for side in (rows, before))
        single = visited and (loss.metric == "cosine" or all(float(norms.max()) < SINGLE_NORM for norms in rows.norms))
        dtype = dtype or ("float32" if single else "float64")
        sampled = options["seed"], options["split"]
        run = Run(rows, loss, plan, same_group, checkpoint, dtype, visited, *sampled, eps, given=before)
        if not loss.bound:  # it must read the first batch
            run = replace(run, loss=loss.bind(run.first()))
        if not whole:
            _refuse_unreachable(run.loss, eps)
        runs.append(run)
    return runs


def _queries_only(loss: losses.Loss, embeddings: Embeddings, checkpoint: Checkpoint | None) -> bool:
    """Return whether the loss, or the training of the checkpoint with it, has one direction."""
    return loss.one_way(embeddings) or (checkpoint is not None and checkpoint.queries_only(loss))


def _of_scores(
    source: Scores,
    several: Sequence[losses.Loss],
    checkpoint: Checkpoint | None,
    options: Sampling,
    eps: float | None,
    memory: int | None,
    *,
    whole: bool,
) -> list[Run]:
    """Prepare the runs of scores: one batch of all queries."""
    if whole:
        raise InputError("convention: the published counters read embeddings; scores are counted by `standard`")
    for loss in several:
        if reason := _needs_vectors(loss, source):
            raise InputError(f"{loss.name} {reason}")
        _refuse_unreachable(loss, eps)
        _refuse_too_large(loss, max(math.prod(batch.sizes) for batch in source.plan.batches), memory, whole=False)
    dtype = options["dtype"] or "float64"
    rows = source.to(dtype=SCORE_TYPES[dtype])
    settings = (source.plan, "ignore", checkpoint, dtype, False, options["seed"], options["split"], eps)
    return [Run(rows, loss, *settings) for loss in several]


def _needs_vectors(loss: losses.Loss, source: Scores) -> str:
    """Return the input that a loss needs and scores lack, to end a sentence; empty if it needs none."""
    if loss.reads == "embeddings" or len(loss.directions) > 1:
        return "reads embeddings, and there are scores alone"
    if loss.metric not in READ_AS_GIVEN:
        return f"reads {loss.metric.replace('_', ' ')} scores of vectors, and there are scores alone"
    if "teacher" in loss.requires and source.reference is None and source.grade is None:
        if isinstance(loss, GradedList):
            return "orders candidates by their grades: add the column grade, or the array grade (queries, candidates)"
        return "reads scores of a reference or a teacher, and there are none: give reference (queries, candidates)"
    if loss.couples == "candidate" and source.candidate_index is not None:
        return "compares the queries of each candidate, and every query has a list of its own"
    # Whether other norms change the weights.
    query, candidate = torch.tensor([1.0, 30.0]), torch.tensor([1.0, 30.0, 2.0])
    values, positive = torch.tensor([[0.5, 0.4, -0.2], [0.1, 0.3, 0.2]]), torch.eye(3)[:2].bool()
    pairs = Pairs(values, positive, teacher=values, query_norm=torch.ones(2), candidate_norm=torch.ones(3))
    with contextlib.suppress(Exception):  # third-party code may not read so few rows
        weight = loss.weight(pairs)
        for norms in ({"query_norm": query}, {"query_norm": query, "candidate_norm": candidate}):
            if not torch.equal(loss.weight(replace(pairs, **norms)), weight):
                return "reads the norms of vectors, and there are scores alone"
    return ""


def _planned(
    embeddings: Embeddings,
    checkpoint: Checkpoint | None,
    options: Sampling,
    sample: str,
    matched: bool,
    hard: bool,
) -> Plan:
    """Draw the batches for a loss that is trained with `sample`, or check batches; see `cocos.sampling.plan`."""
    batches = options["batches"]
    if isinstance(batches, tuple):
        batches = Plan(batches, options["sample"] or sample, max(batch.sizes[0] for batch in batches))
    if isinstance(batches, Plan):
        for batch in batches.batches:
            check_pairs(embeddings, batch)
        return batches
    sample = options["sample"] or ("groups" if embeddings.shared else sample)
    settings = {name: options[name] for name in ("batch_size", "per_group", "seed")} | {"copies": copies(options)}
    settings |= {"sample": sample, "batches": batches, "matched": matched, "hard": hard or not matched}
    try:
        return draw_plan(embeddings, **settings)
    except Unfit as error:
        raise Unfit(f"{checkpoint.path}: {error}" if checkpoint else str(error)) from None


def planned(stored: Stored, loss: losses.Loss, options: Sampling) -> Plan:
    """Draw the batches of a set on a disk that a loss is counted on, from its ids alone.

    Args:
        stored: the set.
        loss: says how batches are drawn where `options` do not.
        options: see `Sampling`.
    """
    if not (options["batches"] is None or isinstance(options["batches"], int)):
        raise InputError("batches: rows of a set on a disk are drawn; give their number")
    if options["split"] != "train":
        raise InputError(f"split {options['split']!r}: {stored.name} holds embeddings and has no splits")
    check_options(**{name: value for name, value in options.items() if name in OPTION_RANGES})
    missing = [name for name in loss.requires if stored.matched or getattr(stored.numbered, name) is None]
    if missing or loss.graded:
        raise InputError(f"{loss.name} reads {(*missing, 'grades')[0]}, which {stored.name} does not have")
    rows, columns = loss.matching in {"rows", "columns"}, loss.matching == "columns"
    size, number, sample = options["batch_size"], stored.number, options["sample"] or loss.sample
    is_small = isinstance(size, str) or size >= number or number % size == 1
    if not stored.matched or is_small or (sample == "pairs" and options["per_group"] is not None):
        return _planned(stored.numbered, None, options, loss.sample, rows, columns)
    # The same draws as for any set, without arrays of groups: they would take 1.2 GiB for 10^7 rows.
    generator, batches = torch.Generator().manual_seed(options["seed"]), list[Batch]()
    while not batches or len(batches) < (options["batches"] or 0):
        if batches and sample == "pairs":  # the general way draws a partner for each row; here it has one
            torch.rand(number, generator=generator, dtype=torch.float64)
        permutation = torch.randperm(number, generator=generator)
        batches += [Batch(index, index, paired=sample == "pairs") for index in permutation.split(size)]
    return Plan(batches[: options["batches"]], sample, size, copies="keep" if rows else copies(options))


def _of_drawn_rows(
    stored: Stored,
    checkpoint: Checkpoint,
    several: Sequence[losses.Loss],
    options: Sampling,
    prepared: Callable[[Embeddings, list[losses.Loss], Plan], list[Run]],
) -> list[Run]:
    """Prepare the runs of some batches of a set on a disk from the rows of these batches, which are read at once."""
    plans: dict[tuple, tuple[Plan, list[int]]] = {}
    if isinstance(options["batches"], Plan):
        plans[()] = options["batches"], list(range(len(several)))
    for place, loss in enumerate(several if not plans else ()):
        key = (options["sample"] or loss.sample, loss.matching in {"rows", "columns"}, loss.matching == "columns")
        plans.setdefault(key, (planned(stored, loss, options), []))[1].append(place)
    batches = [batch for plan, _ in plans.values() for batch in plan.batches]
    memory, size = machine.memory(), 0
    for side in stored.sides[: 1 if stored.shared else 2]:
        rows = min(side.shape[0], sum(max(batch.sizes) for batch in batches))
        size += rows * side.shape[1] * (side.dtype.itemsize + DOUBLE_BYTES)
    if memory is not None and size > memory:
        raise InputError(
            f"{stored.name}: the rows of {len(batches):,} batches take {size / 2**30:.1f} GiB with copies in float64, "
            f"of which there are {memory / 2**30:.1f}; give fewer batches"
        )
    positive = any(NORMALISED_SIDES.get(loss.metric) for loss in several)
    embeddings, renumbered, numbers = stored.take(batches, positive=positive)
    runs, start = dict[int, Run](), 0
    for plan, places in plans.values():
        part = replace(plan, batches=tuple(renumbered[start : start + len(plan.batches)]))
        start += len(plan.batches)
        runs |= zip(places, prepared(embeddings, [several[place] for place in places], part), strict=True)
    return [replace(runs[k], checkpoint=checkpoint, stored=stored, rows=numbers) for k in range(len(several))]


def _refuse_too_large(loss, largest: int, memory: int | None, *, whole: bool) -> None:
    """Reject a batch if its whole score matrix is needed at once and exceeds the memory in bytes; None: unknown."""
    if loss.couples == "query" and not whole:
        return
    needed = WEIGHING_ARRAYS * DOUBLE_BYTES * largest
    reason = "is counted by the published convention" if whole else "couples the queries of a batch"
    if memory is not None and needed > memory:
        raise InputError(
            f"{loss.name} {reason}, so its {largest:,} scores must be held at once "
            f"(about {needed / 2**30:.0f} GiB, there are {memory / 2**30:.0f}); take a smaller batch size"
        )
