"""How well are the positives retrieved?"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import engine, losses, results
from cocos.base import ranges
from cocos.base.errors import InputError, nearest
from cocos.base.ranges import whole
from cocos.checkpoints import Checkpoint
from cocos.checkpoints import open as open_checkpoint
from cocos.counting import findings, health
from cocos.counting.averages import DRAWN_LABELS
from cocos.embeddings import Embeddings, similarities
from cocos.embeddings.options import Progress, tracked
from cocos.embeddings.sampling import Batch, check_options
from cocos.embeddings.scores import NO_BATCHES, Scores
from cocos.engine import readers
from cocos.measures.dtp import dtp
from cocos.measures.shared import rankings, retrieval
from cocos.measures.shared.prepared import embedded
from cocos.measures.shared.queries import NO_POSITIVE, with_positives

# Splits in the order of preference.
EVALUATED_SPLITS = ("test", "val", "dev", "train")
# Variables over (direction, query): long name and units.
RANK_LABELS = {
    "best_rank": ("rank of the best positive, without distractors", "rank"),
    "query_index": DRAWN_LABELS["query_index"],
    "query_group": DRAWN_LABELS["query_group"],
}
# Ending of the metrics of the members of an ensemble, over (member, direction).
OF_MEMBERS = "_of_members"


def split_of(embeddings: Embeddings | Checkpoint, split: str | None) -> str:
    """Choose the split to evaluate: the one named, or the first of the usual ones that a checkpoint has."""
    known = getattr(embeddings, "splits", ())
    return split or next((name for name in EVALUATED_SPLITS if name in known), "train")


def ranked_by(checkpoint: Checkpoint | None, loss: Any, metric: str | None) -> tuple[str, str, list[str]]:
    """The metric of the ranking, the name of the loss of the training, and a note where the loss chose the metric.

    What is named goes first; then the metric of the loss, of `loss` or of the one that the checkpoint recorded.
    """
    if metric is not None and metric not in similarities.METRICS:
        raise InputError(nearest("metric", metric, similarities.METRICS))
    recorded = checkpoint.settings.loss if checkpoint else None
    if loss is None and recorded is None:
        return metric or "cosine", "", []
    if loss is not None:
        made = losses.load(loss) if isinstance(loss, str) else losses.as_loss(loss)
    else:
        made = checkpoint.loss()[0]  # type: ignore[union-attr]
    name = made.name
    if metric is not None or made.metric not in similarities.METRICS:
        return metric or "cosine", name, []
    origin = "the loss that is named" if loss is not None else "the loss of the training, by the file"
    said = f"ranked by {made.metric.replace('_', ' ')} scores, those of {name}, {origin}; --metric takes others"
    return made.metric, name, [said] if made.metric != "cosine" else []


def among_samples(embeddings: Embeddings) -> Embeddings | None:
    """Samples of a set with class proxies, asking each other; None without proxies, or where no sample has a positive.

    This is the image-to-image retrieval of DeMoor & Prevost 2024: proxies serve the training, and are not ranked.
    """
    if not embeddings.proxies:
        return None
    sizes = embeddings.query_group.unique(return_counts=True)[1]
    if len(sizes) < 2 or int(sizes.max()) < 2:
        return None
    return Embeddings.labelled(embeddings.query, embeddings.query_group)


def concatenated(members: Sequence[Embeddings], metric: str) -> Embeddings:
    """An ensemble: the embeddings of several models of one set, row by row behind each other.

    Cosine scores count each model alike: its rows have length 1 before. Other scores take the rows as they are.

    Args:
        members: of one set, in one order: the same groups, (N,) and (M,); widths may differ.
        metric: of the scores.

    Source: Musgrave et al. 2020, A Metric Learning Reality Check, arXiv:2003.08505, section 3.3, and DeMoor & Prevost
    2024, appendix D: four models of 128 dimensions, concatenated.

    Examples:
        >>> one = cocos.Embeddings.labelled(torch.eye(4), [0, 0, 1, 1])
        >>> cocos.measures.evaluate(one, ensemble=[one], ks=[1]).attrs["members"]
        '2'
    """
    first = members[0]
    for number, each in enumerate(members, 1):
        if each.candidate_variance is not None:
            raise InputError(f"ensemble: the candidates of member {number} are distributions, which are not joined")
        same = each.directions == first.directions and each.shared == first.shared
        for side in ("query_group", "candidate_group"):
            own, other = getattr(each, side), getattr(first, side)
            same = same and len(own) == len(other) and bool((own.cpu() == other.cpu()).all())
        if not same:
            raise InputError(
                f"ensemble: member {number} ({len(each.query)} and {len(each.candidate)} rows) is not of the set of "
                f"the first ({len(first.query)} and {len(first.candidate)} rows), or its groups differ"
            )
    unit = metric == "cosine"

    def joined(rows: list[Tensor]) -> Tensor:
        kind = torch.promote_types(max((each.dtype for each in rows), key=lambda kind: kind.itemsize), torch.float32)
        rows = [each.to(rows[0].device, kind) for each in rows]
        return torch.cat([torch.nn.functional.normalize(each) if unit else each for each in rows], dim=1)

    query = joined([each.query for each in members])
    candidate = query if first.shared else joined([each.candidate for each in members])
    return first.replace(query=query, candidate=candidate, negatives=None, candidate_negatives=None)


def origin(checkpoint: Checkpoint | None, split: str | None) -> tuple[dict, list[str]]:
    """Attributes of the checkpoint and the split that was evaluated, and a note on a split that was not asked for."""
    if checkpoint is None or checkpoint.format == "embeddings":
        return checkpoint.identity() if checkpoint else {}, []
    where = checkpoint.identity() | {"split": split_of(checkpoint, split)}
    known = f"one of {', '.join(checkpoint.splits)}" if checkpoint.splits else "the checkpoint names none"
    return where, [] if split else [f"split {where['split']}, {known}; --split takes another"]


def _with_distractors(
    embeddings: Embeddings,
    distractors: Embeddings | Checkpoint | Path | str,
    metric: str,
    dims: int | None,
    progress: Progress | None,
) -> Embeddings:
    """Append the candidates of another set, which match no query; `dims` is the width to which a file is cut."""
    if isinstance(distractors, Path | str):
        distractors = open_checkpoint(distractors)
        distractors = distractors if dims is None else distractors.truncate(dims)
    device = str(embeddings.query.device)
    more = embedded(distractors, split_of(distractors, None), device, progress).without_queue()
    extra = more.query if more.proxies and not embeddings.proxies else more.candidate
    if extra.shape[1] != embeddings.candidate.shape[1]:
        raise InputError(
            f"distractors have width {extra.shape[1]} and the embeddings have width {embeddings.candidate.shape[1]}: "
            "both must come from one joint space"
        )
    if embeddings.candidate_variance is not None:
        raise InputError("distractors: the candidates are distributions, and distractors have no variance")
    similarities.check(Embeddings(extra, extra), metric, "distractors")
    ids = torch.cat([embeddings.query_group, embeddings.candidate_group]).unique(return_inverse=True)[1]
    query_group, candidate_group = ids.split([len(embeddings.query), len(embeddings.candidate)])
    candidate = torch.cat([embeddings.candidate, extra.to(embeddings.candidate)])
    candidate_group = torch.cat([candidate_group, (ids.max() + 1).expand(len(extra))])
    del distractors, more, extra  # frees the rows of a file, which were copied
    sides = {"candidate": candidate, "candidate_group": candidate_group}
    # Samples of a labelled set are queries too, which are never asked for.
    sides |= {"query": candidate, "query_group": candidate_group} if embeddings.shared else {"query_group": query_group}
    return embeddings.replace(names=None, pictures=None, negatives=None, candidate_negatives=None, **sides)


@dataclass(frozen=True, eq=False)
class _MatchedRows:
    """Rows of the queries and of the candidates: those with a match on the other side, and those with none."""

    matched: tuple[Tensor, Tensor]
    alone: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, embeddings: Embeddings, samples: int) -> "_MatchedRows":
        """Of embeddings. A labelled set has `samples` rows that ask each other; those behind them are distractors."""
        groups = (embeddings.query_group, embeddings.candidate_group)
        if embeddings.shared:
            rows = torch.arange(len(groups[0]), device=groups[0].device)
            return cls((rows[:samples], rows[:samples]), (rows[:0], rows[samples:]))
        known = [torch.isin(own, other) for own, other in (groups, groups[::-1])]
        return cls(*(tuple(part.nonzero().flatten() for part in parts) for parts in (known, [~part for part in known])))


def _folds(embeddings: Embeddings, sides: _MatchedRows, folds: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows of the queries and candidates of each fold: the queries' groups, cut in order of first appearance."""
    groups = (embeddings.query_group[sides.matched[0]], embeddings.candidate_group[sides.matched[1]])
    ids, inverse = groups[0].unique(return_inverse=True)
    if not len(ids):
        raise InputError("no query has any positive: no group is on both sides")
    if len(ids) < 2:
        raise InputError("no query has any negative: all queries with a positive are of one group")
    if len(ids) < 2 * folds:
        raise InputError(f"folds: {folds}, expected at most {len(ids) // 2}: each needs two of the {len(ids)} groups")
    place = torch.arange(len(inverse), device=ids.device)
    seen = torch.full_like(ids, len(inverse)).scatter_reduce(0, inverse, place, "amin")
    for part in ids[seen.argsort()].tensor_split(folds):
        rows = tuple(rows[torch.isin(group, part)] for rows, group in zip(sides.matched, groups, strict=True))
        if embeddings.shared and len(rows[0]) == len(part):
            where = "" if folds == 1 else "in one of the folds "
            raise InputError(f"no query has any positive: {where}every sample is the only one of its class")
        yield rows


def ranked(
    embeddings: Embeddings, metric: str, progress: Callable[[int, int], None] | None = None
) -> dict[str, tuple[Tensor, readers.ranks.PositiveRanks]]:
    """Rank the positives of every query among the candidates that match some query, in every direction.

    Args:
        embeddings: of the set to evaluate.
        metric: one of `cocos.similarities.METRICS`.
        progress: called with what is done and what there is in all.

    Returns:
        Direction -> (rows that ask, (n,); the ranks, whose queries are places among these rows).
    """
    similarities.check(embeddings, metric)
    (rows,) = _folds(embeddings, _MatchedRows.of(embeddings, len(embeddings.query)), 1)
    view = engine.view(embeddings, Batch(*rows, paired=False), metric=metric)
    (found,) = engine.run(view, [readers.Ranks()], progress=progress)
    return dict(zip(embeddings.directions, zip(rows, found, strict=False), strict=True))


@dataclass(frozen=True, eq=False)
class _Visit:
    """One pass over the scores of a fold: who asks whom, in which directions, `without` or `with` distractors."""

    condition: str
    embeddings: Embeddings
    asking: Tensor
    asked: Tensor

    def run(self, metric: str, progress: Callable[[int, int], None] | None) -> tuple[tuple, float]:
        """Ranks of every direction, and PR-AUC of the first."""

        def view(rows: Tensor) -> engine.View:
            return engine.view(self.embeddings, Batch(rows, self.asked, paired=False), metric=metric)

        rows, every = with_positives(self.embeddings, self.asking), view(self.asking)
        if len(rows) == len(self.asking):
            ranks, curve = engine.run(every, [readers.Ranks(), readers.PrecisionRecall()], progress=progress)
        else:  # a query without a positive has no rank, and its pairs are no negatives of others
            (ranks,) = engine.run(every, [readers.Ranks()], progress=progress)
            (curve,) = engine.run(view(rows), [readers.PrecisionRecall()])
        return ranks, retrieval.average_precision(curve.score, curve.negatives)


def with_corpus(checkpoint: Checkpoint, split: str) -> tuple[Checkpoint, int]:
    """Return the checkpoint with the whole corpus of its data among the candidates, and the number of rows added."""
    if checkpoint.training is None or checkpoint.embedder is not None:
        return checkpoint, 0
    rows = checkpoint.training.load(split)
    source = replace(checkpoint.training, loader=lambda _: rows.with_corpus())
    return replace(checkpoint, training=source), len(rows.corpus or ())


def _visits(embeddings: Embeddings, sides: _MatchedRows, folds: int, *, corpus: bool = False) -> Iterator[_Visit]:
    """For each fold, one visit without distractors, and one with them for each direction that has any.

    Candidates that match no query and are the `corpus` of the data are no distractors: they are always ranked.
    """
    seen = [embeddings, *(embeddings.flip() for _ in embeddings.directions[1:])]
    seen = [side.replace(directions=(name,)) for side, name in zip(seen, embeddings.directions, strict=True)]
    for rows in _folds(embeddings, sides, folds):
        if corpus:
            for asks, side in enumerate(seen):
                yield _Visit("without", side, rows[asks], torch.cat([rows[1 - asks], sides.alone[1 - asks]]))
            continue
        yield _Visit("without", embeddings, *rows)
        for asks, side in enumerate(seen):
            if len(alone := sides.alone[1 - asks]):
                yield _Visit("with", side, rows[asks], torch.cat([rows[1 - asks], alone]))


def _clustered(visits: list[_Visit], seed: int, progress: Progress | None) -> tuple[list[float], list[str]]:
    """NMI of the classes of the samples and the clusters of their unit vectors, one number a fold; and notes on it."""
    found, notes = [], []
    for number, visit in enumerate(tracked(visits, progress, "clustering")):
        vectors, labels = visit.embeddings.query[visit.asking], visit.embeddings.query_group[visit.asking]
        vectors = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
        norms = similarities.length(vectors)[:, None]
        value, note = retrieval.clustered(vectors / torch.where(norms > 0, norms, 1), labels, seed)
        found.append(value)
        if note:
            notes.append(f"fold {number}: {note}" if len(visits) > 1 else note)
    return found, notes


def _run_visits(
    visits: list[_Visit], metric: str, ks: tuple[int, ...], progress: Progress | None
) -> tuple[dict, dict, dict]:
    """Collect the results of the passes, one entry per fold.

    Returns:
        Condition -> direction -> metrics; condition -> numbers that belong to no single direction; and, without
        distractors, direction -> rows that ask and their ranks. A direction that has no distractors is the same with
        them.
    """
    report, names = progress and progress("ranking"), visits[0].embeddings.directions
    metrics, areas, ranked_rows = {}, {}, {}
    for number, visit in enumerate(visits):
        shown = report and (lambda done, total, number=number: report(number * total + done, len(visits) * total))
        ranks, area = visit.run(metric, shown)
        for asks, (name, ranked) in enumerate(zip(visit.embeddings.directions, ranks, strict=True)):
            sizes = {"queries": len(ranked.query.unique()), "candidates": len((visit.asked, visit.asking)[asks])}
            values = sizes | retrieval.metrics(ranked, ks)
            metrics.setdefault(visit.condition, {}).setdefault(name, []).append(values)
            if visit.condition == "without":
                ranked_rows.setdefault(name, []).append(((visit.asking, visit.asked)[asks], ranked))
        if visit.embeddings.directions[0] == names[0]:
            areas.setdefault(visit.condition, []).append(area)
    records = {condition: metrics["without"] | own for condition, own in metrics.items()}
    singles = {}
    for condition in records:
        singles[condition] = {"PR-AUC": areas.get(condition, areas["without"])}
    if len(names) > 1:
        for condition, own in records.items():
            singles[condition]["rsum"] = [retrieval.rsum(*both) for both in zip(*own.values(), strict=True)]
    return records, singles, ranked_rows


def _notes(names: tuple[str, ...], left_out: list[int], unmatched: list[int], fewest: list[int], ks) -> Iterator[str]:
    """Notes for the user on which queries and candidates were ranked."""
    for name, lonely, extra, least in zip(names, left_out, unmatched, fewest, strict=True):
        if lonely:
            yield f"{name}: {lonely} queries have no positive and are left out"
        if extra:
            yield f"{name}: {extra} candidates match no query (distractors); ranked without them and with them"
        if trivial := [f"R@{k}" for k in ks if k >= least]:
            yield f"{name}: {', '.join(trivial)} among {least} candidates: every query finds its positive"


@ranges.checked
def evaluate(
    embeddings: Embeddings | Scores | Checkpoint,
    *,
    metric: str | None = None,
    loss: Any = None,
    ks: Iterable[int] = (1, 5, 10),
    folds: Annotated[int, whole(1)] = 1,
    distractors: Embeddings | Checkpoint | Path | str | None = None,
    ensemble: Sequence[Embeddings | Checkpoint] = (),
    queries: Annotated[int, whole(1)] | None = None,
    seed: int = 0,
    split: str | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> xr.Dataset:
    """Rank the candidates of every query, in every direction, and summarise the ranks of its positives.

    A negative that ties with a positive ranks above it. Queries without any positive are left out and counted. Where
    candidates match no query (distractors), everything is given without and with them. The scores are visited once,
    tile by tile, and once more for a direction that has distractors.

    Args:
        embeddings: embeddings of the set to evaluate, or a checkpoint (a split of its data is encoded). Or
            `cocos.Scores`: rankings with the metrics of `cocos.measures.shared.rankings`, in the order of trec_eval.
        metric: one of `cocos.similarities.METRICS`; None: that of the loss, or `cosine` where no loss is known.
        loss: whose scores rank, a loss or its name; None: the one that the checkpoint was trained with.
        ks: cut-offs of R@k and mAP@k.
        folds: number of parts to cut the set into: 5 is the 1k protocol of COCO. They are of nearly equal size, cut
            from the queries' groups in order of first appearance; each is evaluated on its own, with its own candidates
            and all distractors. 1 is the 5k protocol, as in `evalrank` of VSE++ (Faghri et al. 2018, arXiv:1707.05612).
        distractors: its candidates (its samples, where they ask class proxies) become candidates that match no query.
            The rows of a path are freed after they are copied.
        ensemble: other models of the same set. Their embeddings are concatenated to those of `embeddings`, and the
            metrics of each member alone stand beside (DeMoor & Prevost 2024, appendix D: "Ensemble" and "Aggregate").
        queries: rank the candidates of this many queries of each direction, drawn by the seed; None: of all. A large
            set in shards is read section by section. PR-AUC and NMI, which are of all queries, are left out.
        seed: of the k-means behind NMI, and of the queries that are drawn.
        split: of the checkpoint's data; None: test, val, dev or train, the first one that it has.
        device: `auto`, `cpu`, `cuda`; None: where the embeddings are.
        progress: called with what is done (`encoding`, `ranking`, `clustering`); gives a function of (done, in all).

    Returns:
        A Dataset with dims distractors (`without`, `with`), direction, fold. The metrics are in
        `cocos.measures.shared.retrieval`; with two directions also `rsum`, `PR-AUC` of the first
        direction with one threshold for all queries, and `NMI` for samples with classes: k-means on the unit vectors,
        one run from a k-means++ start, as many clusters as classes, at a bounded cost:
        a note says where that ended it early or left classes out. A set with class proxies has two directions: `s2p`,
        samples among proxies, and `s2s`, samples among samples, the image-to-image retrieval of papers. Its `accuracy`
        is the part of the samples whose nearest proxy is of their class, R@1 of `s2p`; `accuracy@k` has the proxy among
        the first k; `AvgDTP` is the distance to the own proxy (`cocos.measures.dtp`). With an ensemble, metrics with
        the ending `_of_members` over (member, direction). Of every query, (direction, query): `best_rank`, that
        of its best positive without distractors, its row `query_index` and its `query_group`.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> cocos.measures.evaluate(embeddings, ks=[1])["R@1"].values.ravel().tolist()
        [100.0, 100.0]
    """
    ks = retrieval.check(ks)
    check_options(seed=seed)
    checkpoint = embeddings if isinstance(embeddings, Checkpoint) else None
    asked = metric
    metric, trained_with, chosen = ranked_by(checkpoint, loss, metric)
    options: dict[str, Any] = {"metric": metric, "ks": ks, "folds": folds, "seed": seed, "split": split}
    if queries is not None:
        if folds > 1 or distractors is not None or ensemble:
            raise InputError(f"queries {queries}: folds, distractors and ensembles rank all queries")
        return _of_some(embeddings, queries, options, trained_with, chosen, device, progress)
    several = [embeddings, *ensemble] if ensemble else []
    alone = [evaluate(each, **options, device=device, progress=progress) for each in several]
    unjudged = 0
    if checkpoint is not None and distractors is None and not ensemble:
        embeddings, unjudged = with_corpus(checkpoint, split_of(checkpoint, split))
    embeddings = embedded(embeddings, split_of(embeddings, split), device, progress, scored=True)
    if isinstance(embeddings, Scores):
        if distractors is not None or ensemble or folds > 1 or asked is not None:
            raise InputError(
                "scores: distractors, ensembles, folds and metrics need vectors, and there are scores alone"
            )
        return _of_scores(embeddings, ks, origin(checkpoint, split)[0])
    embeddings = embeddings.without_queue()
    if ensemble:
        where = str(embeddings.query.device)
        others = [embedded(each, split_of(each, split), where, progress).without_queue() for each in ensemble]
        embeddings = concatenated([embeddings, *others], metric)
    if embeddings.proxies and not torch.isin(embeddings.query_group, embeddings.candidate_group).any():
        chosen.append("no sample has a proxy of its class: samples are ranked among samples, and not among proxies")
        embeddings = among_samples(embeddings) or embeddings
    similarities.check(embeddings, metric, checkpoint and checkpoint.path)
    if embeddings.proxies and metric == "cosine" and not trained_with and asked is None:
        chosen.append(
            "the loss of the training is not known: ranked by cosine; --loss NAME ranks by the scores of a loss"
        )
    samples, names = len(embeddings.query), embeddings.directions
    spread = health.of(embeddings, metric)
    without_distractors, among = embeddings, among_samples(embeddings)
    if distractors is not None:
        dims = checkpoint and checkpoint.dims
        embeddings = _with_distractors(embeddings, distractors, metric, dims, progress)
    sides = _MatchedRows.of(embeddings, samples)
    visits = list(_visits(embeddings, sides, folds, corpus=unjudged > 0))
    records, singles, asking = _run_visits(visits, metric, ks, progress)
    clustering = []
    if embeddings.shared or embeddings.proxies:
        clusters, clustering = _clustered([visit for visit in visits if visit.condition == "without"], seed, progress)
        singles = {condition: values | {"NMI": clusters} for condition, values in singles.items()}
    rows_of_sides = [(len(sides.matched[k]) + len(sides.alone[k]), len(sides.alone[1 - k])) for k in range(len(names))]
    if unjudged:
        rows_of_sides = [(len(matched), 0) for matched in sides.matched]
    if embeddings.proxies:
        singles = _of_proxies(without_distractors, records, singles, ks)
    if among is not None:
        own = list(_visits(among, _MatchedRows.of(among, samples), folds))
        found, _, theirs = _run_visits(own, metric, ks, progress)
        records = {condition: values | found["without"] for condition, values in records.items()}
        names, asking = (*names, *among.directions), asking | theirs
        rows_of_sides.append((samples, 0))
    queries = [sum(values["queries"] for values in folded) for folded in records["without"].values()]
    sizes = {
        "left_out": [rows - number for (rows, _), number in zip(rows_of_sides, queries, strict=True)],
        "unmatched": [unmatched for _, unmatched in rows_of_sides],
    }
    fewest = [min(values["candidates"] for values in folded) for folded in records["without"].values()]
    where, notes = origin(checkpoint, split)
    if unjudged:
        chosen.append(f"{unjudged:,} candidates without judgement are ranked as well: the corpus of the data")
    notes += [*chosen, *_notes(names, sizes["left_out"], sizes["unmatched"], fewest, ks), *clustering]
    attrs = {
        "title": "Retrieval metrics",
        "metric": metric,
        "k": ",".join(map(str, ks)),
        "folds": folds,
        "ties": retrieval.TIES,
        "seed": seed,
        "device": embeddings.query.device.type,
        **findings.attributes([*health.meaningless(without_distractors, metric), *embeddings.notes, *notes]),
        "health": json.dumps(
            health.report(spread, health.alignment(embeddings) | health.pairing(without_distractors, metric))
        ),
        **({"trained_with": trained_with} if trained_with else {}),
        **({"members": str(len(several))} if several else {}),
        **where,
    }
    first, made = records["without"], {}
    for name in next(iter(first.values()))[0]:
        values = [[[entry[name] for entry in entries] for entries in one.values()] for one in records.values()]
        made[name] = (("distractors", "direction", "fold"), values)
    made |= {name: (("distractors", "fold"), [one[name] for one in singles.values()]) for name in singles["without"]}
    made |= {name: ("direction", values) for name, values in sizes.items()}
    variables = {name: (dims, values, *retrieval.label(name)) for name, (dims, values) in made.items()}
    variables |= _of_members(alone, variables) | {"distractors": ("distractors", list(records))}
    variables |= {"direction": ("direction", list(first)), "fold": ("fold", range(folds))}
    return results.labelled(variables | _of_queries(embeddings, asking), results.versions() | attrs, measure="evaluate")


def _of_scores(scores: Scores, ks: tuple[int, ...], where: dict) -> xr.Dataset:
    """Metrics of rankings that somebody scored: mean over the queries, and of every query."""
    names = scores.names and scores.names[1]
    found, index = rankings.metrics(scores, ks), torch.arange(len(scores.scores))
    candidates = int((scores.positive | scores.negative).sum(dim=1).max())
    values = {"queries": len(index), "candidates": candidates}
    best = found.pop("best_rank")
    values |= {name: 100 * float(each.mean()) for name, each in found.items()}
    dims = ("distractors", "direction", "fold")
    variables = {name: (dims, [[[value]]], *retrieval.label(name)) for name, value in values.items()}
    apart = {"left_out": len(scores.query) - len(index), "unmatched": 0}
    variables |= {name: ("direction", [value], *retrieval.label(name)) for name, value in apart.items()}
    own = {"best_rank": best, "query_index": index.numpy(), "query_group": scores.groups.query[index].numpy()}
    variables |= {
        name: (("direction", "query"), each[None].astype(float), *RANK_LABELS[name]) for name, each in own.items()
    }
    variables |= {
        f"{name}_per_query": (("direction", "query"), 100 * each[None], *retrieval.label(name))
        for name, each in found.items()
    }
    coordinates = {"distractors": ("distractors", ["without"]), "direction": ("direction", list(scores.directions))}
    attrs = {
        "title": "Retrieval metrics",
        "metric": scores.metric,
        "k": ",".join(map(str, ks)),
        "folds": 1,
        "ties": rankings.TREC_ORDER if names else retrieval.TIES,
        "seed": 0,
        "device": scores.query.device.type,
        **findings.attributes([each for each in scores.notes if each != NO_BATCHES]),
        "health": json.dumps(health.report({}, {})),
        **where,
    }
    return results.labelled(
        variables | coordinates | {"fold": ("fold", [0])}, results.versions() | attrs, measure="evaluate"
    )


def _of_some(
    source: Embeddings | Scores | Checkpoint,
    queries: int,
    options: dict[str, Any],
    trained_with: str,
    notes: list[str],
    device: str | None,
    progress: Progress | None,
) -> xr.Dataset:
    """Metrics of sampled queries of each direction among all candidates."""
    metric, ks, seed, split = (options[name] for name in ("metric", "ks", "seed", "split"))
    checkpoint = source if isinstance(source, Checkpoint) else None
    stored = checkpoint and checkpoint.on_disk
    if stored is None:
        embeddings = embedded(source, split_of(source, split), device, progress).without_queue()
        similarities.check(embeddings, metric, checkpoint and checkpoint.path)
    else:
        embeddings = stored.numbered
    by_direction: dict[str, dict[str, float]] = {}
    rows: dict[str, dict[str, Tensor]] = {}
    samples = []
    for k, name in enumerate(embeddings.directions):
        side = (embeddings.flip() if k else embeddings).single(name)
        sample = torch.randperm(len(side.query), generator=torch.Generator().manual_seed(seed))[:queries].sort().values
        samples.append(f"{len(sample):,} of {len(side.query):,} {name}")
        index = with_positives(side, sample)
        if not len(index):
            raise InputError(NO_POSITIVE)
        report = progress and progress(f"ranking {name}")
        if stored is None:
            batch = Batch(index, torch.arange(len(side.candidate)), paired=False).to(side.query.device)
            ((ranks,),) = engine.run(engine.view(side, batch, metric=metric), [readers.Ranks()], progress=report)
        else:
            ranks = retrieval.rank_on_disk(stored, k, index, metric, report)
        by_direction[name] = {
            "queries": len(index),
            "candidates": len(side.candidate),
            **retrieval.metrics(ranks, ks),
            "left_out": len(sample) - len(index),
            "unmatched": int((side.groups.queries[side.groups.candidate] == 0).sum()),
        }
        rows[name] = {
            "best_rank": retrieval.best_ranks(len(sample), torch.searchsorted(sample, index), ranks),
            "query_index": sample,
            "query_group": side.groups.query[sample],
        }
    variables = results.by_direction(rows, {name: (("query",), *RANK_LABELS[name]) for name in RANK_LABELS})
    for name in next(iter(by_direction.values())):
        values = [numbers[name] for numbers in by_direction.values()]
        if name in ("left_out", "unmatched"):
            variables[name] = ("direction", values, *retrieval.label(name))
        else:
            dims = ("distractors", "direction", "fold")
            variables[name] = (dims, [[[value] for value in values]], *retrieval.label(name))
    if len(by_direction) == 2:
        rsum = retrieval.rsum(*by_direction.values())
        variables["rsum"] = (("distractors", "fold"), [[rsum]], *retrieval.label("rsum"))
    variables |= {"distractors": ("distractors", ["without"]), "fold": ("fold", [0])}
    where, split_notes = origin(checkpoint, split)
    sampled = f"queries ({' and '.join(samples)}) are ranked among all candidates"
    attrs = {
        "title": "Retrieval metrics",
        "metric": metric,
        "k": ",".join(map(str, ks)),
        "folds": 1,
        "ties": retrieval.TIES,
        "seed": seed,
        "device": embeddings.query.device.type,
        **findings.attributes([*(() if stored else embeddings.notes), *split_notes, *notes, sampled]),
        "health": json.dumps(health.report({}, {})),
        **({"trained_with": trained_with} if trained_with else {}),
        **where,
    }
    return results.labelled(variables, results.versions() | attrs, measure="evaluate")


def _of_proxies(embeddings: Embeddings, records: dict, singles: dict, ks: tuple[int, ...]) -> dict:
    """Numbers of samples and their proxies beside others of no single direction: accuracy, and AvgDTP."""
    away = float(dtp({"run": [embeddings]})["average"].squeeze())
    made = {}
    for condition, values in singles.items():
        (entries,) = records[condition].values()
        right = {f"accuracy@{k}" if k > 1 else "accuracy": [one[f"R@{k}"] for one in entries] for k in ks}
        made[condition] = values | right | {"AvgDTP": [away] * len(entries)}
    return made


def _of_members(alone: Sequence[xr.Dataset], known: dict) -> dict:
    """Metrics of each member of an ensemble by itself, the mean over its folds, (member, direction)."""
    made = {}
    for name, (dims, *_) in known.items() if alone else ():
        if dims == ("distractors", "direction", "fold") and name not in {"queries", "candidates"}:
            values = np.stack([one[name].sel(distractors="without").mean("fold").values for one in alone])
            label, units = retrieval.label(name)
            made[f"{name}{OF_MEMBERS}"] = (("member", "direction"), values, f"{label}, of a member alone", units)
    return made | ({"member": ("member", range(1, len(alone) + 1))} if alone else {})


def _of_queries(embeddings: Embeddings, found: dict[str, list[tuple[Tensor, readers.PositiveRanks]]]) -> dict:
    """Variables over (direction, query), NaN behind the last row of a side, from the rows that ask and their ranks."""
    both = embeddings.groups.query, embeddings.groups.candidate
    groups = [both[0] if embeddings.proxies else both[k] for k in range(len(found))]
    made = {name: np.full((len(found), max(map(len, groups))), np.nan) for name in RANK_LABELS}
    for k, (group, folds) in enumerate(zip(groups, found.values(), strict=True)):
        made["query_index"][k, : len(group)], made["query_group"][k, : len(group)] = np.arange(len(group)), group
        best = made["best_rank"][k, : len(group)]
        for asking, ranked in folds:
            best[:] = np.fmin(best, retrieval.best_ranks(len(group), asking, ranked).numpy())
    return {name: (("direction", "query"), each, *RANK_LABELS[name]) for name, each in made.items()}
