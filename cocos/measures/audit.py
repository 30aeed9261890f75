"""Which negatives are suspected of being positives, and how much of the push do they receive?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import torch
import xarray as xr
from torch import Tensor

from cocos import losses, results
from cocos.base.errors import InputError, nearest
from cocos.checkpoints import Checkpoint
from cocos.embeddings import Embeddings, likeness
from cocos.embeddings.batches import Batch
from cocos.embeddings.scores import Pairs
from cocos.engine import devices
from cocos.engine.prepared import Run, prepare
from cocos.engine.sampling import Sampling, sampled, whole_number
from cocos.measures import _audited, _labels_given, _replay, _suspicions
from cocos.measures._audited import ANY_RULE, Tallies
from cocos.results import summaries
from cocos.results.summaries import plain

# Suspected pairs in the JSON document, the largest push first; a list (--out) has all of them.
MOST_LISTED = 100
# Name of the mark on pairs that are labelled as not belonging together.
DENIED = "labelled 0"


@sampled(same_group="negative")
@devices.threads(1)
def audit(
    embeddings: Embeddings | Checkpoint,
    loss="ntxent",
    *,
    rules: Sequence[str] | None = None,
    filters: Mapping[str, Sequence[float]] | None = None,
    against: Sequence[str] | None = None,
    near: float = 0.7,
    neighbours: int = 1,
    labels: Path | str | Sequence | None = None,
    only: str | None = None,
    **sampling: Unpack[Sampling],
) -> xr.Dataset:
    """Suspect negatives of being positives, and tell how much push they receive in training batches.

    Batches of pairs are drawn as a loader that knows nothing of groups draws them: a candidate stands in a batch once
    for each of its queries, and rows of one group are negatives of each other (`same_group="ignore"` leaves them out).

    Args:
        embeddings: embeddings of the training set, or a checkpoint (its training set is encoded).
        loss: a loss, or its name; its own filter, if it has one, is off.
        rules: `group`, a negative of the query's own group; `text`, equal texts up to spelling; `near`, nearly equal
            texts; `guide`, a negative that the guide scores at or above the positive; `neighbours`, a pair of which
            each is among the nearest of the other. None: all that the data allow. Marks of the rows are rules too.
        filters: rules of a masked InfoNCE that are replayed: `guide`, `self`, `percent`, `relative_margin`, `factor` ->
            thresholds (none: the usual ones). None: all that the data allow, except for `relative_margin`, which is
            `percent` where positives score above 0.
        against: rules whose suspects are taken as known positives where filters are judged; None: `group`, `text` and
            the marks of the rows, of those that are asked for.
        near: least similarity of nearly equal texts, 0 to 1: see `cocos.likeness.near`.
        neighbours: number of nearest rows in which each must be for the other, positives included.
        labels: path of a list that `cocos audit --out` wrote with labels filled in, or rows of (query, candidate,
            label). Pairs with 1 are the rule `labelled` and known positives; those with 0 are no longer suspected.
        only: the one direction to look at; None: all.
        **sampling: options of the batches, see `cocos.sampling.Sampling`.

    Returns:
        Each (direction, rule), the last rule being any of them: `suspects`, `share` of the negatives, `push_share`,
        `placebo` (of as many random negatives), `enrichment`, `push`, `met` (queries with any). Each (direction, rule,
        other_rule): `overlap`, `overlap_push`. Of every suspected pair of rows (pair,), the largest push first:
        `query_index`, `candidate_index`, as the first direction has them, `pair_push`, `pair_part`, `drawn`, `score`,
        `guide_score`, `own_hard`, and `suspected` (pair, suspicion). Of every filter and threshold (direction, filter):
        `filter_share`, `filter_push`, `filter_left`, `precision` and `recall` against known positives, by number and by
        push, and `emptied`. Attributes: `near`, `neighbours`, `against`, `known`, the known positives that were drawn.

    Raises:
        InputError: a rule, a filter, an option or an embedding that cannot be used; a loss without weights of scores.

    Source: filters: GISTEmbed, arXiv:2402.16829; Qwen3 Embedding, arXiv:2506.05176; NV-Retriever, arXiv:2407.15831.

    Examples:
        Two questions to one passage: the passage stands in the batch twice, once as a negative of each question.

        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3)[:2], [0, 0, 1], [0, 1])
        >>> data = cocos.measures.audit(embeddings, batch_size="all", rules=["group"], only="q2c")
        >>> data["suspects"].sel(rule="group").values, data["query_index"].values, data["candidate_index"].values
        (array([2]), array([0, 1]), array([0, 0]))
    """
    likeness.check(near)
    whole_number("neighbours", neighbours, 1, 1000)
    run = _prepared(embeddings, loss, sampling)
    chosen = _suspicions.chosen(rules, run.embeddings)
    trials = _replay.trials(
        filters,
        taught=run.embeddings.teacher is not None,
        metric=run.loss.metric,
        scale=losses.traits(run.loss).softmax_scale,
    )
    report = sampling["progress"] and sampling["progress"]("comparing rows")
    judged, denied = _labels_given.given(labels, run.embeddings)
    own = (run.embeddings.marks or {}) | judged
    marks = own | _suspicions.marks(run.embeddings, chosen, run.loss.metric, near, neighbours)
    if report:
        report(1, 1)
    marked = [label for mark in own.values() for label in mark.labels]
    names = _suspicions.ordered([*chosen, *marked])
    known = _known(against, names, marked)
    run = replace(run, embeddings=run.embeddings.marked(marks | ({DENIED: denied} if denied else {})))
    sides = run.sides if only is None else (run.side(only),)
    found = {}
    for name, side, second in sides:
        found[name] = _tallied(run, side, second, names, known, trials, sampling["progress"])
    attrs = run.provenance(
        title=f"Suspected false negatives, {losses.name_of(run.loss)}",
        batches=len(run.plan.batches),
        near=float(near),
        neighbours=int(neighbours),
        against=", ".join(known),
        asks=run.embeddings.directions[0],
        notes="\n".join([*run.notes, *_cut(run.embeddings, chosen)]),
        known=int(sum(each.labels[0] for each in found.values())),
    )
    return results.labelled(_audited.variables(found, len(run.embeddings.candidate)), attrs)


def _prepared(embeddings: Embeddings | Checkpoint, loss, sampling: Sampling) -> Run:
    """Prepare the run without the filter of the loss, with batches of a loader that knows nothing of groups."""
    if isinstance(loss, str):
        loss = embeddings.loss(loss)[0] if isinstance(embeddings, Checkpoint) else losses.load(loss)
    if isinstance(loss, losses.Filters) and loss.filter != "none":
        loss = loss.unfiltered()
    sampling["copies"] = sampling["copies"] or "keep"
    run = prepare(embeddings, loss, **sampling)
    traits = losses.traits(run.loss)
    if traits.graded or traits.weights == "influence":
        reason = "compares graded pairs" if traits.graded else "has no weights of scores"
        raise InputError(f"{losses.name_of(run.loss)} {reason}, so that no negative receives a push")
    return run


def _cut(embeddings: Embeddings, chosen: Sequence[str]) -> list[str]:
    """A note on texts that are compared by their beginning alone; none where there are no such texts."""
    texts = [text for names in embeddings.names or () for text in names or ()]
    number = likeness.cut(texts) if {"text", "near"} & set(chosen) else 0
    most = likeness.CUT_CHARACTERS
    return [f"{number} texts were cut to {most} characters, and are compared by these"] if number else []


def _known(against: Sequence[str] | None, names: Sequence[str], labels: Sequence[str]) -> list[str]:
    """The rules whose suspects are taken as known positives."""
    if against is None:
        return [name for name in names if name in (*_suspicions.LABEL_RULES, *labels)]
    for name in against:
        if name not in names:
            raise InputError(f"against: {nearest('rule', name, names)}")
    return list(dict.fromkeys(against))


def _blocks(run: Run, side: Embeddings, second: bool) -> Iterator[tuple[int, Batch, int, Pairs, Tensor]]:
    """Yield the blocks of all batches of a direction: number and batch, first query, pairs and weights."""
    for number, batch in enumerate(run.plan.batches):
        seen, start = batch.flip() if second else batch, 0
        for pairs, weights, _ in run.blocks(side, seen, whole=False):
            yield number, run.seen(seen), start, pairs, weights
            start += len(pairs.scores)


def _tallied(run: Run, side: Embeddings, second: bool, names, known, trials, progress) -> Tallies:
    """Sum up the batches of one direction."""
    report = progress and progress("auditing")
    tallies = Tallies([*names, ANY_RULE], trials)
    random = torch.Generator().manual_seed(run.seed)
    asked = [name for name in names if name in _suspicions.SUSPICIONS]
    for number, batch, start, pairs, weights in _blocks(run, side, second):
        found = _suspicions.masks(side, batch, pairs, start, side.marks or {}, asked)
        denied = found.pop(DENIED, None)
        if denied is not None:
            found = {name: mask & ~denied for name, mask in found.items()}
        tallies.add(pairs, weights, {name: found[name] for name in names}, known, random)
        suspects = tallies.suspects[-1]
        rows = batch.query_index[start:][suspects.pop("row")], batch.candidate_index[suspects.pop("column")]
        suspects |= dict(zip(("query_index", "candidate_index"), rows[::-1] if second else rows, strict=True))
        if report:
            report(number + 1, len(run.plan.batches))
    return tallies


def document(data: xr.Dataset) -> dict:
    """Make the JSON document of `cocos audit --json`: by direction its rules and filters; the first suspected pairs."""
    attrs, directions = data.attrs, {}
    for name in map(str, data["direction"].values):
        one = data.sel(direction=name)
        directions[name] = {
            "rules": {
                str(rule): {key: plain(one[key].sel(rule=rule)) for key in _audited.AUDIT_LABELS}
                | {
                    "overlap": {
                        str(other): plain(one["overlap"].sel(rule=rule, other_rule=other))
                        for other in data["other_rule"].values
                        if other != rule
                    }
                }
                for rule in data["rule"].values
            },
            "filters": {
                str(label): {key: plain(one[key].sel(filter=label)) for key in _audited.FILTER_LABELS}
                | {"published": bool(one["published"].sel(filter=label))}
                for label in (data["filter"].values if "filter" in data.coords else ())
            },
        }
    listed = [_pair(data.isel(pair=place)) for place in range(min(data.sizes["pair"], MOST_LISTED))]
    return summaries.about(data) | {
        **{name: attrs[name] for name in ("near", "neighbours", "known")},
        "against": [name for name in attrs["against"].split(", ") if name],
        "directions": directions,
        "pairs": data.sizes["pair"],
        "suspected": listed,
    }


def _pair(one: xr.Dataset) -> dict:
    """One suspected pair as plain data."""
    entry = {key: plain(one[key]) for key in _audited.SUSPECT_LABELS}
    rules = [str(name) for name in one["suspicion"].values[one["suspected"].values]]
    return {"query": entry.pop("query_index"), "candidate": entry.pop("candidate_index"), **entry, "rules": rules}
