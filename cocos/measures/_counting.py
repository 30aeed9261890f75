"""Statistics of every query for one loss or several, from one pass over the scores for all that read the same ones."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from cocos import losses
from cocos.base import processes
from cocos.base.errors import InputError
from cocos.counting import conventions, statistics, weights
from cocos.embeddings.batches import Batch
from cocos.embeddings.scores import Pairs
from cocos.engine import readers
from cocos.engine.columns import columns
from cocos.engine.prepared import OUT_OF_RANGE, Run, passes, threads
from cocos.engine.readers.columns import ColumnsReader
from cocos.engine.sampling import within
from cocos.measures import _marked, _sourced
from cocos.measures._marked import MarkedBatch

# Relative difference of a share and eps that rounding can turn.
EQUAL_SHARES = {"float64": 1e-11, "float32": 1e-6}


def _masked(loss: losses.Filters, pairs: Pairs) -> dict[str, Tensor]:
    """Negatives that the filter suspects, their part of the query's push without it, and that push, (queries,) each."""
    suspected, push = loss.masked(pairs), statistics.push_of_negatives(weights.of(loss.unfiltered(), pairs), pairs)
    total, held = push.sum(dim=1), torch.where(suspected, push, 0).sum(dim=1)
    part = held / torch.where(total > 0, total, 1)
    return {"masked": suspected.sum(dim=1), "masked_push": part, "unfiltered_push": total}


def _sources(run: Run) -> bool:
    """Whether candidates come from more than one source, in some direction."""
    own, embeddings = losses.traits(run.loss), run.embeddings
    named = embeddings.negatives is not None or embeddings.candidate_negatives is not None
    return named or len(own.directions) > 1


@dataclass(frozen=True)
class QueryRecords:
    """Results of every query, in the order of the batches, as `variables` takes them; and those of further readers."""

    records: dict[str, list[dict]]
    sizes: dict[str, list[int]]
    others: list = field(default_factory=list)

    def sorted(self, visited: list[int]) -> "QueryRecords":
        """The same in the order of the batches, of which these are the places in the order of the entries."""
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
class Counting:
    """What is counted.

    Args:
        eps: smallest share that contributes.
        convention: `standard` or `ecir2022`.
        n90: whether the pushes of every query are sorted.
        more: gives further readers for a run whose scores are visited.
    """

    eps: float
    convention: str
    n90: bool
    more: Callable[[Run], Sequence]

    def published(self, run: Run) -> bool:
        """Whether a published counter is repeated, which reads whole batches."""
        return self.convention == "ecir2022" and isinstance(run.loss, conventions.PUBLISHED)

    def each(self, runs: Sequence[Run], report: Callable[[int, int], None] | None) -> list[QueryRecords]:
        """Count for each run; runs that read the same scores share them."""
        groups: dict[tuple, list[int]] = {}
        for place, run in enumerate(runs):
            groups.setdefault(self._key(run), []).append(place)
        found: dict[int, QueryRecords] = {}
        for done, places in enumerate(groups.values()):
            some, shown = [runs[place] for place in places], within(report, done, len(groups))
            count = self._visited if some[0].visited else self._held
            count = self._columned if some[0].visited and _sources(some[0]) else count
            found.update(zip(places, count(some, shown), strict=True))
        return [found[place] for place in range(len(runs))]

    def _key(self, run: Run) -> tuple:
        """All that the scores of a run depend on; of scores that are held, the blocks in which they are read too."""
        blocks = None if run.visited else (run.loss.couples == "query", self.published(run))
        traits = losses.traits(run.loss)
        seen = (run.loss.metric, run.same_group, run.dtype, id(run.embeddings), id(run.plan.batches))
        seen += (traits.directions, traits.graded, run.loss if run.visited and _sources(run) else None)
        return *seen, run.visited, blocks

    def _of_block(self, run: Run, pairs: Pairs, second: bool, masks: Sequence) -> dict[str, Tensor]:
        """Statistics of the queries of some pairs, (queries,) each; `masks` are those of the marked negatives."""
        found, standard = run.weighed(pairs)
        whole = losses.traits(run.loss).hinge is not None  # whole numbers are above eps or not
        unit = standard if self.convention == "standard" else conventions.unit(run.loss, pairs, standard)
        part = statistics.per_query(found, unit, pairs, self.eps, equal=0 if whole else EQUAL_SHARES[run.dtype])
        part["negatives"] = pairs.negative.sum(dim=1)
        if self.n90:
            part["n90"] = statistics.n90(statistics.spread(found, pairs))
        if whole:
            part["relative_uncertain"] = torch.zeros_like(part["negatives"])
        if isinstance(run.loss, losses.ExtraStatistics):
            part |= run.loss.extra(pairs, self.eps)
        if isinstance(run.loss, losses.Filters) and run.loss.filter != "none":
            part |= _masked(run.loss, pairs)
        if self.published(run):
            share = found.abs() / unit
            part = conventions.as_published(run.loss, pairs, share, part, second=second, eps=self.eps)
        if _sources(run):
            part |= _sourced.columns(statistics.by_source(found, unit, pairs, self.eps))
        return part | (_marked.of_block(statistics.push_of_negatives(found, pairs), masks) if masks else {})

    def _of_batch(
        self, runs: Sequence[Run], blocks: Iterable[Pairs], second: bool, marked: MarkedBatch | None
    ) -> Iterator[dict[str, Tensor]]:
        """Yield the statistics of every query of one batch for each run, from the blocks of its pairs."""
        parts: list[list[dict[str, Tensor]]] = [[] for _ in runs]
        start = 0
        for pairs in blocks:
            masks = list(marked.masks(pairs, start)) if marked else []
            start += len(pairs.scores)
            for run, own in zip(runs, parts, strict=True):
                own.append(self._of_block(run, pairs, second, masks))
        for own in parts:
            yield {name: torch.cat([part[name] for part in own]) for name in own[0]}

    def _held(self, runs: Sequence[Run], report: Callable[[int, int], None] | None) -> list[QueryRecords]:
        """Count batch by batch, the scores of each in memory; each process takes some of the batches."""
        first, sides = runs[0], runs[0].sides
        share: Sequence[tuple[int, Batch]] = processes.mine(tuple(enumerate(first.plan.batches)))
        records: list[dict[str, list[dict]]] = [{name: [] for name, _, _ in sides} for _ in runs]
        for done, (number, batch) in enumerate(share):
            with threads(len(batch.query_index) * len(batch.candidate_index)):
                seen = first.scored(batch, whole=self.published(first))
                for (name, side, _), (second, blocks) in zip(sides, seen, strict=True):
                    own = batch.flip() if second else batch
                    marked = MarkedBatch.of(side, own, first.seed, number)
                    every = self._of_batch(runs, blocks, second, marked)
                    for record, found in zip(records, every, strict=True):
                        record[name].append(found | {"query_index": own.query_index})
            if report:
                report(done + 1, len(share))
        collected = [{name: processes.collect(parts) for name, parts in own.items()} for own in records]
        return [
            QueryRecords(own, {name: [len(each["push"]) for each in parts] for name, parts in own.items()})
            for own in collected
        ]

    def _visited(self, runs: Sequence[Run], report: Callable[[int, int], None] | None) -> list[QueryRecords]:
        """Count stack by stack in passes that store no score matrix; all processes share the parts of each stack."""
        first, names = runs[0], [name for name, _, _ in runs[0].sides]
        others: list = []
        found = [QueryRecords({name: [] for name in names}, {name: [] for name in names}, others) for _ in runs]
        several = [readers.of(run.loss, self.eps, relative=True) for run in runs]
        more = self.more(first)
        for directions, asking, results in passes(first, lambda view: [[*several, *more]], report):
            others[:] = results[len(runs) :]
            for run, own, sides in zip(runs, found, results, strict=False):
                for name, part, index in zip(directions, sides, asking, strict=True):
                    if not part["push"].isfinite().all():
                        raise InputError(OUT_OF_RANGE.format(run.loss, "float64"))
                    pushes_all = {"pulled_negatives": torch.zeros_like(part["contributing"])}  # as all with a reader do
                    own.records[name].append(pushes_all | part | {"query_index": torch.cat(index)})
                    own.sizes[name].extend(rows.shape[0] for rows in index)
        return [own.sorted(first.visited_order) for own in found]

    def _columned(self, runs: Sequence[Run], report: Callable[[int, int], None] | None) -> list[QueryRecords]:
        """Count candidates by their source, stack by stack and direction by direction; no score matrix is stored."""
        (run,) = runs
        reader, directions = ColumnsReader(run.loss, self.eps), losses.traits(run.loss).directions
        found = QueryRecords({name: [] for name, _, _ in run.sides}, {name: [] for name, _, _ in run.sides})
        made = [(stack, side) for stack in run.stacks() for side in run.sides]
        for done, (stack, (name, side, second)) in enumerate(made):
            own = [batch.flip() if second else batch for batch in stack]
            options = run.seen_as(own) | {"directions": directions, "once": reader.alike}
            part = reader.read(columns(side, own, **options), within(report, done, len(made)))
            part |= _sourced.columns({key: part.pop(key) for key in statistics.SOURCE_STATISTICS})
            index = [batch.query_index for batch in own]
            found.records[name].append(part | {"query_index": torch.cat(index)})
            found.sizes[name].extend(len(rows) for rows in index)
        return [found.sorted(run.visited_order)]
