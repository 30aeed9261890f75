"""How many negatives contribute to the gradient of each query?"""

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Unpack

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import losses, results
from cocos.base.errors import InputError
from cocos.base.ranges import checked
from cocos.checkpoints import Checkpoint
from cocos.checkpoints import open as open_checkpoint
from cocos.checkpoints.encoding import device_of
from cocos.counting import averages, conventions, findings, marked, shares, slices, statistics
from cocos.counting.findings import Finding
from cocos.counting.marked import MarkedBatch
from cocos.embeddings import Embeddings
from cocos.embeddings.options import DEFAULTS, ONE_BATCH_DEFAULTS, OneBatch, Progress, Sampling, fill_options, within
from cocos.embeddings.sampling import Batch, Plan, read_slice
from cocos.embeddings.scores import Pairs, Scores
from cocos.embeddings.similarities import NORMALISED_SIDES
from cocos.embeddings.stored import Stored
from cocos.engine import devices, native, readers
from cocos.engine.readers.curves import PrecisionRecall
from cocos.engine.readers.ranks import Ranks
from cocos.measures.health import reports
from cocos.measures.shared import executors, retrieval
from cocos.measures.shared.executors import SourceFile
from cocos.measures.shared.prepared import (
    OUT_OF_RANGE,
    STACK_ROWS,
    Run,
    passes,
    planned,
    prepare_all,
    threads,
    together,
)

# What a reader of a count in float32, and of one whose loss turns out to have no unit, must know.
FLOAT32 = Finding(
    "float32", "note", "float32: a candidate within about 1e-6 of its threshold can be on either side", "use float64"
)
UNKNOWN_UNIT = Finding(
    "changed form",
    "note",
    "unit: unknown, the weights have a form without a natural unit in some batches",
    "set it with -p unit=",
)
# Relative difference of a share and eps that rounding can turn.
EQUAL_SHARES = {"float64": 1e-11, "float32": 1e-6}
# Queries of the first batch that decide the health and the dtype of a set on a disk.
MAX_CHECKED_QUERIES = 2**12
# Rows of the batches of a set on a disk that are read together, unless one batch has more.
STORED_ROWS = 2**15
# Ratios of the largest counts of neighbouring bins, the finest first, and the largest number of bins above 1.
BIN_RATIOS, BIN_STEPS = (2, 4, 10), 10


@devices.threads(1)
@checked
def count(
    embeddings: Embeddings | Scores | Checkpoint,
    loss="ntxent",
    eps: float = 0.01,
    *,
    convention: str = "standard",
    metrics: bool = False,
    n90: bool = False,
    batches: int | str | slice | Sequence[Batch] | None = None,
    executor: Executor | None = None,
    **sampling: Unpack[OneBatch],
) -> xr.Dataset | dict[str, xr.Dataset]:
    """Count the negatives that contribute to each query's gradient, in training batches, in every direction.

    A negative contributes where its share, |weight| / unit of the loss, is above eps, strictly: for softmax losses its
    probability, the mean over the positives of a query; for hinges a number of violations (docs/eps.md). Beside it is
    `relative`, the number of negatives whose part of the query's own push is above eps. The embeddings are computed
    once; batches are drawn from them.

    Args:
        embeddings: embeddings of the training set, or a checkpoint (its training set is encoded); or `cocos.Scores`, of
            which each row is a query as it stands.
        loss: a loss, its name, or a function, class or module of yours (see `cocos.losses.load`); a name takes the
            parameters that the checkpoint recorded for it. Or a list of losses, or a dict of label -> loss: losses with
            the same metric and batches are counted from one pass over the scores.
        eps: smallest share that contributes. Hinge losses have whole weights: any eps below 1 counts weight != 0.
        convention: `standard`, or `ecir2022` for what the published counters return, faults included.
        metrics: add retrieval metrics of the whole set. They are on the scores of the loss, read
            from the same pass where one batch is the whole set.
        n90: add the number of negatives that carry 90 % of the push; sorts all scores. These are kept in memory then,
            in float64 unless `dtype` says otherwise, however large a batch is. So they are where the embeddings have
            marks, whose parts of the negatives and of the push are counted then.
        batches: number of batches (None: one pass over the training set), or the batches themselves; or a slice of
            the batches that the seed draws, `A:B` or a Python slice: batches A to B - 1, numbered from 0, and beyond
            one pass those of the following shuffles; without B, to the end of one pass. Each batch of a slice is
            counted by itself, and `cocos.results.concat` puts slices together bit for bit.
        executor: counts chunks of the batches on its workers: any `concurrent.futures.Executor`, such as a spawned
            process pool, dask's `client.get_executor()` or `mpi4py.futures`. Results are equal to those without one.
        **sampling: options of the batches, see `Sampling`.

    Returns:
        A Dataset with dims direction, batch, query: see `variables` in its file. For a list or a dict of losses, a dict
        of label -> Dataset, each as for its loss alone; the labels are those of the dict, or the losses with their
        parameters.

    Examples:
        Each query has two negatives with a probability of 1 / (e + 2):

        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> ntxent = cocos.losses.load("ntxent", {"temperature": 1})
        >>> data = cocos.measures.count(embeddings, ntxent, batch_size="all")
        >>> data["contributing"].mean(["batch", "query"]).values
        array([2., 2.])

        A margin of 1 is violated by no negative with a score of 0:

        >>> both = {"soft": ntxent, "hinge": cocos.losses.load("triplet", {"margin": 1})}
        >>> data = cocos.measures.count(embeddings, both, batch_size="all")
        >>> {label: float(one["contributing"].sum()) for label, one in data.items()}
        {'soft': 12.0, 'hinge': 0.0}
    """
    sampling = fill_options("count", sampling, ONE_BATCH_DEFAULTS | {"dtype": None, "same_group": None})
    conventions.check(convention)
    single = not isinstance(loss, Mapping | list | tuple)
    asked = [loss] if single else list(loss.values() if isinstance(loss, Mapping) else loss)
    if not asked:
        raise InputError(f"loss: {loss!r}, expected at least one loss")
    standard = convention == "standard"
    # The published batches keep rows of one group as negatives of each other.
    sampling["same_group"] = sampling["same_group"] or ("ignore" if standard else "negative")
    sampling["copies"] = conventions.copies(convention, sampling["copies"])
    options = {"eps": eps, "visits": standard and not n90, "whole": not standard, "marks": True, "scored": True}
    how = Counting(eps, convention, n90, metrics, executor=executor, device=sampling["device"])
    if executor is not None:
        sampling["device"] = "cpu"  # the workers move their rows to the device
    chosen = read_slice(batches)
    sampling["batches"] = batches if chosen is None else chosen.stop  # type: ignore[typeddict-unknown-key]
    stored = _on_disk(embeddings, sampling["batch_size"])
    if stored is not None and metrics:
        raise InputError(f"{stored.name} is read batch by batch, which does not go with metrics")
    if stored is not None and single:
        return _count_stored(stored, embeddings, asked[0], how, options, chosen, sampling)
    # Slices of a set report the same health: of the whole set, or of the first batch of a set on disk.
    options["everything"] = chosen is not None and stored is None
    runs = prepare_all(embeddings, asked, **options, **sampling)
    _check(runs, convention)
    if metrics and isinstance(runs[0].embeddings, Scores):
        raise InputError("metrics: cocos.measures.evaluate has those of scores")
    is_sliced = chosen is not None and stored is not None
    health = reports(prepare_all(embeddings, asked, **options, **sampling | {"batches": 1}) if is_sliced else runs)
    if chosen is not None:
        only = functools.cache(lambda plan: plan.only(chosen))
        runs = [replace(run, plan=only(run.plan), apart=True) for run in runs]
        how = replace(how, begin=chosen.start)
    counts, attrs = how.labelled(runs, health, sampling["progress"])
    if chosen is not None:
        attrs = [own | _about_slice(chosen, run.plan) for own, run in zip(attrs, runs, strict=True)]
    if not single:
        labels = list(map(str, loss)) if isinstance(loss, Mapping) else [repr(run.loss) for run in runs]
        for label in labels:
            if labels.count(label) > 1:
                raise InputError(
                    f"loss: {label} is given {labels.count(label)} times; give each once, or a dict of label: loss"
                )
        counted = (results.labelled(*each, measure="count") for each in zip(counts, attrs, strict=True))
        return dict(zip(labels, counted, strict=True))
    return results.labelled(counts[0], attrs[0], measure="count")


def _about_slice(chosen: slice, plan: Plan) -> dict[str, str]:
    """Attribute of the batches of a slice, whose end may be that of a pass."""
    return {slices.BATCH_SLICE: f"{chosen.start}:{chosen.start + len(plan.batches)}"}


def _on_disk(embeddings: Any, batch_size: int | str) -> Stored | None:
    """The set of a checkpoint whose rows are read batch by batch: one that is not held."""
    disk_set = embeddings.stored if isinstance(embeddings, Checkpoint) else None
    if disk_set is None or isinstance(batch_size, str) or batch_size >= disk_set.number:
        return None
    return None if disk_set.in_memory else disk_set


def _open(file: SourceFile, dims: int | None) -> Checkpoint:
    """Open a file on a worker."""
    checkpoint = open_checkpoint(file.check())
    return checkpoint if dims is None else checkpoint.truncate(dims)


@dataclass(frozen=True)
class StoredCount:
    """Count batches of a set on a disk from their rows alone.

    Args:
        counting: how to count.
        source: the checkpoint, or the folder that a worker opens.
        dims: number of leading dimensions to keep; None: all.
        loss: that is counted.
        options: of `prepare_all`.
        sampling: options of the batches.
        plan: without its batches.
        health: of the first rows; empty before these are counted.
    """

    counting: "Counting"
    source: Checkpoint | SourceFile
    dims: int | None
    loss: losses.Loss
    options: dict[str, Any]
    sampling: Sampling
    plan: Plan
    health: tuple[dict, ...] = ()

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint, opened on this worker."""
        return self.source if isinstance(self.source, Checkpoint) else _open(self.source, self.dims)

    @cached_property
    def stored(self) -> Stored:
        """The rows on the disk."""
        return self.checkpoint.stored

    def prepare(self, batches: Sequence[Batch]) -> Run:
        """Read the rows of some batches."""
        positive = bool(NORMALISED_SIDES.get(self.loss.metric))
        embeddings, batches, rows = self.stored.take(batches, positive=positive)
        plan = replace(self.plan, batches=tuple(batches))
        (run,) = prepare_all(embeddings, [self.loss], **self.options, **self.sampling | {"batches": plan})
        return replace(run, checkpoint=self.checkpoint, rows=rows, stored=self.stored)

    def __call__(self, batches: Sequence[Batch]) -> xr.Dataset:
        """Count some batches."""
        return self.counting.dataset(self.prepare(batches), list(self.health), None)


def _count_stored(
    stored: Stored,
    checkpoint: Checkpoint,
    loss: Any,
    counting: "Counting",
    options: dict[str, Any],
    chosen: slice | None,
    sampling: Sampling,
) -> xr.Dataset:
    """Count a set on a disk, stack by stack, or batch by batch of a slice."""
    loss = losses.as_loss(checkpoint.loss(loss)[0] if isinstance(loss, str) else loss)
    plan = planned(stored, loss, DEFAULTS | sampling)
    executor, counting = counting.executor, replace(counting, executor=None)
    given = sampling | {"progress": None}
    work = StoredCount(counting, checkpoint, checkpoint.dims, loss, options, given, replace(plan, batches=()))
    first = plan.batches[0]
    if first.paired and first.square:
        index = first.query_index[:MAX_CHECKED_QUERIES], first.candidate_index[:MAX_CHECKED_QUERIES]
        first = replace(first, query_index=index[0], candidate_index=index[1])
    run = work.prepare([first])
    given |= {"dtype": run.dtype}  # of the first rows for all
    if executor is not None:
        given["device"] = counting.device
        work = replace(work, source=SourceFile.at(checkpoint.path.resolve()))
    work = replace(work, sampling=given, health=tuple(reports([run])))
    del run
    if chosen is not None:
        plan = plan.only(chosen)
        work = replace(work, plan=replace(plan, batches=()))
        stacks = [[batch] for batch in plan.batches]
    else:
        ends = together([max(batch.sizes) for batch in plan.batches], STORED_ROWS)
        stacks = [plan.batches[slice(*ends)] for ends in pairwise([0, *ends])]
    progress = sampling["progress"] and sampling["progress"]("counting")
    counts = slices.concatenated(executors.map_chunks(work, stacks, executor, progress))
    counts = counts.assign_attrs(checkpoint.identity())
    return counts if chosen is None else counts.assign_attrs(_about_slice(chosen, plan))


def _check(runs: Sequence[Run], convention: str) -> None:
    """Refuse batches that a published counter does not know, and losses whose directions no Dataset holds together."""
    first, sides = runs[0], [name for name, _, _ in runs[0].sides]
    for run in runs:
        own = [name for name, _, _ in run.sides]
        if own != sides:
            raise InputError(
                f"loss: {first.loss.name} asks in {' and '.join(sides)}, {run.loss.name} in "
                f"{' and '.join(own)}; count them one by one"
            )
        conventions.check_sample(convention, run.loss, run.plan.sample, len(sides))


def _everything(run: Run) -> bool:
    """Whether metrics can be read from the same pass: its one batch asks every query for all of its positives."""
    if not run.visited or len(run.plan.batches) > 1 or not run.plan.batches[0].square:
        return False
    (batch,), embeddings = run.plan.batches, run.embeddings
    groups = (embeddings.query_group, embeddings.candidate_group)
    single = all(len(group.unique()) == len(group) for group in groups)
    sizes = (len(batch.query_index), len(batch.candidate_index))
    whole = sizes == (len(embeddings.query), len(embeddings.candidate))
    return whole and (single or not batch.paired or run.same_group == "positive")


def _attrs(run: Run, known: bool, found: dict, convention: str) -> dict:
    """Attributes of the counts of one loss; of one whose unit is not known in all batches, that it is unknown."""
    lost = {} if known or shares.share(run.loss) == "unknown" else {"share": "unknown", "unit": "unknown"}
    notes = [each for each in run.findings if each not in run.plan.undrawn]
    if not run.visited:
        notes += [FLOAT32] if run.dtype == "float32" else []
    elif reason := "" if devices.ahead(run.embeddings.query.device) else native.reason():
        sentence = f"no compiled kernel, and PyTorch computes the scores several times more slowly: {reason}"
        notes.append(Finding("no kernel", "note", sentence, "reinstall cocos with a C compiler (gcc or clang)"))
    notes += [UNKNOWN_UNIT] if lost else []
    footnotes = conventions.footnotes(run.loss, convention, directions=len(run.sides))
    return run.provenance(
        **lost,
        title=f"Contributing negatives, {run.loss.name}",
        convention=convention,
        **findings.attributes(notes),
        undrawn="\n".join(run.plan.undrawn),
        footnotes="\n".join([*run.plan.undrawn, *footnotes]),
        health=json.dumps(found),
    )


@dataclass(frozen=True)
class QueryRecords:
    """Statistics of every query, in the order of the batches, and results of further readers.

    Args:
        records: direction -> one entry a batch, or a stack of batches -> statistic -> (queries of all of them, ...).
        sizes: direction -> queries of every batch, in the order of the entries.
        others: results of `Ranks` and `PrecisionRecall`, where the same pass has read them.
    """

    records: dict[str, list[dict]]
    sizes: dict[str, list[int]]
    others: list = field(default_factory=list)

    def add(self, name: str, part: dict[str, Tensor], index: Sequence[Tensor]) -> None:
        """Add the batches of a stack, of which `index` are the rows that ask."""
        self.records[name].append(part | {"query_index": torch.cat(list(index))})
        self.sizes[name].extend(len(rows) for rows in index)

    @classmethod
    def joined(cls, chunks: Sequence["QueryRecords"]) -> "QueryRecords":
        """Join the records of consecutive chunks."""
        records = {name: [entry for chunk in chunks for entry in chunk.records[name]] for name in chunks[0].records}
        sizes = {name: [size for chunk in chunks for size in chunk.sizes[name]] for name in chunks[0].sizes}
        return cls(records, sizes, chunks[0].others)

    def sorted(self, visited: list[int]) -> "QueryRecords":
        """Sort by batch; `visited` are the numbers of the batches in the order of the entries."""
        if visited == list(range(len(visited))):
            return self
        back, records, sizes = np.argsort(visited), {}, {}
        for name, entries in self.records.items():
            own = np.array(self.sizes[name])
            sizes[name] = own[back].tolist()
            start = torch.from_numpy(
                np.repeat((own.cumsum() - own)[back] - (own[back].cumsum() - own[back]), own[back])
            )
            rows = start + torch.arange(len(start))
            flat = {key: torch.cat([entry[key] for entry in entries]) for key in entries[0]}
            records[name] = [{key: values[rows.to(values.device)] for key, values in flat.items()}]
        return QueryRecords(records, sizes, self.others)


@dataclass(frozen=True)
class ChunkCount:
    """Count of a chunk of batches by a worker of an executor.

    Args:
        counting: how to count.
        runs: of the same embeddings, without them and without batches.
        embeddings: of the runs, or the file that has them.
        dims: number of leading dimensions to keep; None: all.
        dtype: of the embeddings.
        directions: of the embeddings.
    """

    counting: "Counting"
    runs: tuple[Run, ...]
    embeddings: Embeddings | Scores | SourceFile
    dims: int | None
    dtype: torch.dtype
    directions: tuple[str, ...]

    @cached_property
    def rows(self) -> Embeddings | Scores:
        """The embeddings on the device of this worker."""
        embeddings = self.embeddings
        if isinstance(embeddings, SourceFile):
            embeddings = _open(embeddings, self.dims).embed(self.runs[0].split, "cpu")
        embeddings = embeddings.to(device=device_of(self.counting.device or "cpu"), dtype=self.dtype)
        is_single = len(self.directions) < len(embeddings.directions)
        return embeddings.single(self.directions[0]) if is_single else embeddings

    def __call__(self, chunk: tuple[int, Sequence[Batch]]) -> list[QueryRecords]:
        """Count a chunk: the number of its first batch, and the batches."""
        begin, batches = chunk
        batches = [batch.to(self.rows.query.device) for batch in batches]
        runs = [replace(run, embeddings=self.rows, plan=replace(run.plan, batches=batches)) for run in self.runs]
        return replace(self.counting, begin=begin).count_chunk(runs, None)


@dataclass(frozen=True)
class Counting:
    """Count batches whose scores are kept in memory, read tile by tile, or read by source.

    Args:
        eps: smallest share that contributes.
        convention: `standard` or `ecir2022`.
        n90: whether the pushes of every query are sorted.
        metrics: whether ranks are read from the same pass, where it sees all that they need.
        begin: number of the first batch, which is above 0 in a slice of the batches.
        executor: counts chunks of the batches; None: they are counted here, in turn.
        device: on which a worker of the executor counts; None: the CPU.
    """

    eps: float
    convention: str
    n90: bool
    metrics: bool
    begin: int = 0
    executor: Executor | None = None
    device: str | None = None

    def dataset(self, run: Run, health: list[dict], progress: Progress | None) -> xr.Dataset:
        """Count the batches of one loss."""
        counts, attrs = self.labelled([run], health, progress)
        return results.labelled(counts[0], attrs[0], measure="count")

    def labelled(
        self, runs: Sequence[Run], health: list[dict], progress: Progress | None
    ) -> tuple[list[dict[str, tuple]], list[dict]]:
        """Count the batches of several losses: variables and attributes of each."""
        counted = self.of_runs(runs, progress and progress("counting"))
        alike = {id(run.plan.batches): (run.same_group_pairs(), run.repeated()) for run in runs}
        labels = [label for mark in runs[0].embeddings.marks.values() for label in mark.labels]
        counts: list[dict[str, tuple]] = []
        seen: dict[tuple, Any] = {}
        for run, found in zip(runs, counted, strict=True):
            pairs, repeated = alike[id(run.plan.batches)]
            ranks = {}
            if self.metrics:
                how = run.loss.metric, run.dtype
                key = *how, id(run.embeddings)
                ranked = found.others or seen.get(key) or retrieval.ranked(run.embeddings, *how, progress)
                seen.setdefault(key, ranked)
                ranks = retrieval.variables(run.embeddings.directions, *ranked)
            beside = {"repeated": repeated, "sizes": found.sizes, "marks": labels}
            idle = self.convention != "standard"
            counts.append(averages.of_records(found.records, pairs, zero_when_idle=idle, **beside) | ranks)
        known = [not np.isnan(each["idle"][1]).any() for each in counts]
        return counts, [_attrs(*each, self.convention) for each in zip(runs, known, health, strict=True)]

    def published(self, run: Run) -> bool:
        """Whether a published counter is repeated, which reads whole batches."""
        return self.convention == "ecir2022" and isinstance(run.loss, conventions.PUBLISHED)

    def of_runs(self, runs: Sequence[Run], report: Callable[[int, int], None] | None) -> list[QueryRecords]:
        """Count for each run; runs that read the same scores share them."""
        groups: dict[tuple, list[int]] = {}
        for place, run in enumerate(runs):
            groups.setdefault(self._key(run), []).append(place)
        found: dict[int, QueryRecords] = {}
        for done, places in enumerate(groups.values()):
            some, shown = [runs[place] for place in places], within(report, done, len(groups))
            found.update(zip(places, self._in_chunks(some, shown), strict=True))
        for place, run in enumerate(runs):
            for name, _, second in run.sides:
                for part in found[place].records[name]:
                    part["query_group"] = run.groups(part["query_index"], second)
                    part["query_index"] = run.numbers(part["query_index"], second)
        return [found[place] for place in range(len(runs))]

    def _in_chunks(self, runs: Sequence[Run], report: Callable[[int, int], None] | None) -> list[QueryRecords]:
        """Count runs of the same batches chunk by chunk, here or on the workers of the executor."""
        first = runs[0]
        ends = together([max(batch.sizes) for batch in first.plan.batches], STACK_ROWS)
        chunks = [(start, first.plan.batches[start:stop]) for start, stop in pairwise([0, *ends])]
        if self.executor is None:
            parts = []
            for place, (start, batches) in enumerate(chunks):
                chunk_runs = [replace(run, plan=replace(run.plan, batches=batches)) for run in runs]
                counting = replace(self, begin=self.begin + start)
                parts.append(counting.count_chunk(chunk_runs, within(report, place, len(chunks))))
        else:
            checkpoint, embeddings = first.checkpoint, first.embeddings
            rows: Any = embeddings
            if checkpoint is not None and checkpoint.encoder is None and checkpoint.path.is_file():
                rows = SourceFile.at(checkpoint.path.resolve())
            bare = {"checkpoint": None, "given": None, "embeddings": None, "plan": replace(first.plan, batches=())}
            work = ChunkCount(
                replace(self, executor=None),
                tuple(replace(run, **bare) for run in runs),
                rows,
                checkpoint and checkpoint.dims,
                embeddings.query.dtype,
                embeddings.directions,
            )
            chunks = [(self.begin + start, batches) for start, batches in chunks]
            parts = executors.map_chunks(work, chunks, self.executor, report)
        return [QueryRecords.joined(records) for records in zip(*parts, strict=True)]

    def count_chunk(self, runs: Sequence[Run], report: Callable[[int, int], None] | None) -> list[QueryRecords]:
        """Count the batches that all runs share."""
        return self._in_passes(runs, report) if runs[0].visited else self._in_memory(runs, report)

    def _key(self, run: Run) -> tuple:
        """Key of the scores of a run; for scores kept in memory, with the blocks in which they are read."""
        blocks = None if run.visited else (run.loss.couples == "query", self.published(run))
        seen = (run.loss.metric, run.same_group, run.dtype, id(run.embeddings), id(run.plan.batches))
        seen += (run.loss.directions, run.loss.graded)
        return *seen, run.visited, blocks

    def _of_block(self, run: Run, pairs: Pairs, second: bool, masks: Sequence) -> dict[str, Tensor]:
        """Statistics of the queries of some pairs, (queries, ...).

        Args:
            run: of a loss.
            pairs: of some queries.
            second: whether the batch is turned.
            masks: of the marked negatives.
        """
        found, standard = run.weighed(pairs)
        whole = run.loss.hinge is not None  # whole numbers are above eps or not
        unit = standard if self.convention == "standard" else conventions.unit(run.loss, pairs, standard)
        part = statistics.per_query(found, unit, pairs, self.eps, equal=0 if whole else EQUAL_SHARES[run.dtype])
        part["negatives"] = pairs.negative.sum(dim=1)
        if self.n90:
            part["n90"] = statistics.n90(statistics.spread(found, pairs))
        if whole:
            part["relative_uncertain"] = torch.zeros_like(part["negatives"])
        if run.loss.adds_statistics:
            part |= run.loss.extra(pairs, self.eps)
        if run.loss.filter != "none":
            part |= _masked(run.loss, pairs)
        if self.published(run):
            share = found.abs() / unit
            part = conventions.as_published(run.loss, pairs, share, part, second=second, eps=self.eps)
        if _by_source(run):
            part |= statistics.by_source(found, unit, pairs, self.eps)
        return part | (marked.of_block(statistics.push_of_negatives(found, pairs), masks) if masks else {})

    def _count_batch(
        self,
        runs: Sequence[Run],
        blocks: Iterable[Pairs],
        queries: int,
        second: bool,
        marked: MarkedBatch | None,
    ) -> list[dict[str, Tensor]]:
        """Return the statistics of every query of one batch for each run, from the blocks of its pairs.

        Each block is copied into one tensor of the batch: many small tensors between blocks would fragment the memory.
        """
        records: list[dict[str, Tensor]] = [{} for _ in runs]
        start = 0
        for pairs in blocks:
            masks = list(marked.masks(pairs, start)) if marked else []
            stop = start + len(pairs.scores)
            for run, record in zip(runs, records, strict=True):
                for name, values in self._of_block(run, pairs, second, masks).items():
                    if name not in record:
                        record[name] = values.new_empty((queries, *values.shape[1:]))
                    record[name][start:stop] = values
            start = stop
        return records

    def _in_memory(self, runs: Sequence[Run], report: Callable[[int, int], None] | None) -> list[QueryRecords]:
        """Count batch by batch with the scores of each in memory."""
        first, sides = runs[0], runs[0].sides
        records: list[dict[str, list[dict]]] = [{name: [] for name, _, _ in sides} for _ in runs]
        for number, batch in enumerate(first.plan.batches):
            with threads(len(batch.query_index) * len(batch.candidate_index)):
                seen = first.scored(batch, whole=self.published(first))
                for (name, side, _), (second, blocks) in zip(sides, seen, strict=True):
                    own = batch.flip() if second else batch
                    marked = MarkedBatch.of(side, own, first.seed, self.begin + number)
                    every = self._count_batch(runs, blocks, len(own.query_index), second, marked)
                    for record, found in zip(records, every, strict=True):
                        record[name].append(found | {"query_index": own.query_index})
            if report:
                report(number + 1, len(first.plan.batches))
        return [
            QueryRecords(own, {name: [len(each["push"]) for each in parts] for name, parts in own.items()})
            for own in records
        ]

    def _in_passes(self, runs: Sequence[Run], report: Callable[[int, int], None] | None) -> list[QueryRecords]:
        """Count stack by stack in passes that store no score matrix."""
        first, names = runs[0], [name for name, _, _ in runs[0].sides]
        others: list = []
        found = [QueryRecords({name: [] for name in names}, {name: [] for name in names}, others) for _ in runs]
        counting = [readers.of(run.loss, self.eps, relative=True) for run in runs]
        ranking = [Ranks(), PrecisionRecall()] if self.metrics and _everything(first) else []
        for directions, asking, read in passes(first, lambda view: [[*counting, *ranking]], report):
            others[:] = read[len(runs) :]
            for run, own, sides in zip(runs, found, read, strict=False):
                for name, part, index in zip(directions, sides, asking, strict=True):
                    if not part["push"].isfinite().all():
                        raise InputError(OUT_OF_RANGE.format(run.loss, "float64"))
                    pushes_all = {"pulled_negatives": torch.zeros_like(part["contributing"])}  # as all with a reader do
                    own.add(name, pushes_all | part, index)
        return [own.sorted(first.visited_order) for own in found]


def _by_source(run: Run) -> bool:
    """Whether candidates come from more than one source, in some direction."""
    embeddings = run.embeddings
    named = embeddings.negatives is not None or embeddings.candidate_negatives is not None
    return named or len(run.loss.directions) > 1 or embeddings.is_queued


def _masked(loss: losses.MNRL, pairs: Pairs) -> dict[str, Tensor]:
    """Negatives that the filter suspects, their part of the query's push without it, and that push, (queries,) each."""
    suspected, push = loss.masked(pairs), statistics.push_of_negatives(loss.unfiltered().weight(pairs), pairs)
    total, held = push.sum(dim=1), torch.where(suspected, push, 0).sum(dim=1)
    part = held / torch.where(total > 0, total, 1)
    return {"masked": suspected.sum(dim=1), "masked_push": part, "unfiltered_push": total}


def bins(most: float) -> np.ndarray:
    """Largest count of each bin of a histogram, from 0, which is a bin of its own, up to `most` or beyond.

    Beyond 1 all bins are equally wide on a logarithmic axis, so that a wider one makes no peak.
    """
    ratio = next((each for each in BIN_RATIOS if each**BIN_STEPS >= most), BIN_RATIOS[-1])
    ladder = np.array([0, *(ratio**step for step in range(BIN_STEPS + 1))])
    return ladder[: max(4, int(np.searchsorted(ladder, most)) + 1)]


def histogram(data: xr.Dataset, upper: np.ndarray | None = None, of: str = "contributing") -> xr.Dataset:
    """Counts of `cocos.measures.count` as they are drawn, each (direction,), over all queries of the run.

    Args:
        data: the counts.
        upper: largest count of each bin; None: as the counts have it.
        of: `contributing`, or `relative_per_query`.

    Returns:
        `mean`, the mean count; `idle_fraction`, the fraction of queries without any; `negatives` per query; and `part`
        (direction, bin), the part of the queries in each bin, whose largest counts ascend from 0 (None: `bins`).
    """
    found = data[of]
    upper = bins(float(found.max())) if upper is None else upper
    queries = found.notnull().sum(["batch", "query"])
    edges = np.concatenate([[-0.5], upper + 0.5])
    held = [np.histogram(each.values[np.isfinite(each.values)], edges)[0] for each in found.transpose("direction", ...)]
    part = xr.DataArray(np.stack(held), dims=("direction", "bin"), coords={"bin": upper})
    return xr.Dataset({
        "mean": found.mean(["batch", "query"]),
        "idle_fraction": (found == 0).sum(["batch", "query"]) / queries,
        "negatives": data["negatives"].mean(["batch", "query"]),
        "part": part / queries,
    })
