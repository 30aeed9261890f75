"""Are two rows of one identity? One threshold for all pairs: EER, TAR at FAR, minDCF, ten-fold accuracy."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import engine, results
from cocos.base import ranges
from cocos.base.errors import InputError, nearest, unreachable
from cocos.base.ranges import Positive, number
from cocos.checkpoints import Checkpoint
from cocos.counting import findings, health
from cocos.embeddings import Embeddings, similarities
from cocos.embeddings.options import Progress
from cocos.embeddings.sampling import Batch
from cocos.engine import readers
from cocos.measures.evaluate import among_samples, origin, ranked_by, split_of
from cocos.measures.shared.prepared import embedded

Report = Callable[[int, int], None] | None

Prior = Annotated[float, number("between 0 and 1, like 0.01", lambda value: 0 < value < 1)]

# Scores that are the same from either end.
SYMMETRIC_METRICS = tuple(name for name in engine.PRODUCT_METRICS if name != "cosine_dot")
# False accept rates at which the true accept rate is given.
FALSE_ACCEPT_RATES = (0.1, 0.01, 0.001, 0.0001)
# Folds of the accuracy, as LFW has them.
ACCURACY_FOLDS = 10
# Thresholds of one pass: 4 MiB of counts a part.
MOST_LEVELS = 2**18
# Target pairs whose scores are kept: 256 MiB; of more they are computed again for each pass.
MOST_KEPT = 2**24
# Thresholds of a grid, where there are more target pairs than thresholds: few enough that float32 decides most scores.
GRID_LEVELS = 2**10
# Trials whose scores are computed at a time.
SCORED_TRIALS = 2**18
# Digits of a row number.
MOST_ROW_DIGITS = 15
# Words for the label of a trial.
TRIAL_LABELS = {"1": True, "0": False, "target": True, "nontarget": False}

VERIFICATION_LABELS = {
    "value": "value",
    "deviation": "standard deviation",
    "threshold": "accepted from this score",
}


@dataclass(frozen=True, eq=False)
class Accepted:
    """Pairs that thresholds accept.

    Args:
        score: (L,) thresholds, descending; every target score that may decide a metric is one.
        targets: (L,) target pairs with at least this score.
        impostors: (L,) impostor pairs with at least this score.
        beyond: (L,) impostor pairs with a higher score.
        totals: number of target pairs, and of impostor pairs.
    """

    score: np.ndarray
    targets: np.ndarray
    impostors: np.ndarray
    beyond: np.ndarray
    totals: tuple[int, int]

    @property
    def missed(self) -> np.ndarray:
        """Part of the targets that each threshold refuses, (L,)."""
        return 1 - self.targets / self.totals[0]

    @property
    def false(self) -> np.ndarray:
        """Part of the impostors that each threshold accepts, (L,)."""
        return self.impostors / self.totals[1]

    def allowed(self, rate: float) -> int:
        """Number of impostor pairs that a false accept rate allows."""
        return math.floor(rate * self.totals[1] * (1 + 1e-12))


@dataclass(frozen=True)
class Costs:
    """Prior of a target, and costs of a miss and of a false accept, behind minDCF."""

    prior: float
    miss: float
    false: float

    def normalised(self, missed: np.ndarray, false: np.ndarray) -> np.ndarray:
        """Expected cost, over that of the better of accepting everything and refusing everything."""
        miss, accept = self.miss * self.prior, self.false * (1 - self.prior)
        return (miss * missed + accept * false) / min(miss, accept)


@dataclass(frozen=True, eq=False)
class Trials:
    """Pairs of rows to compare, (T,) each: the rows of either side, whether they are a target, and the fold."""

    first: np.ndarray
    second: np.ndarray
    target: np.ndarray
    fold: np.ndarray


class _Decisions(Protocol):
    """The pairs to decide: all of a set, or those of a list."""

    @property
    def identities(self) -> int: ...

    def accepted(self, costs: Costs, report: Report) -> Accepted:
        """Pairs that every threshold accepts that may decide a metric."""

    def accuracy(self) -> tuple[np.ndarray, str]:
        """Part that is right in each fold, and why there are no folds."""


@ranges.checked
def verification(
    embeddings: Embeddings | Checkpoint,
    *,
    trials: str | Path | Sequence[tuple] | None = None,
    metric: str | None = None,
    loss: Any = None,
    prior: Prior = 0.01,
    miss_cost: Positive = 1.0,
    false_accept_cost: Positive = 1.0,
    split: str | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> xr.Dataset:
    r"""Accept each pair whose score reaches one threshold: how many targets are refused, and how many impostors pass?

    A pair of one group is a target, any other an impostor; or a list of trials says which. With the parts
    :math:`m(t)` of the targets below a threshold t and :math:`f(t)` of the impostors at or above it:

    - `EER`: where :math:`m = f` on the line through the points :math:`(f, m)` of all scores, in their order.
      Targets and impostors with one score move together. scikit-learn's `roc_curve`, interpolated, gives the same.
    - `TAR@FAR=x`: the largest :math:`1 - m(t)` with :math:`f(t) \le x`; NaN where x allows less than one impostor.
    - `minDCF`: :math:`\min_t (C_m \pi m + C_f (1 - \pi) f) / \min(C_m \pi, C_f (1 - \pi))`, a fraction.
    - `accuracy`: in each of ten folds, the part that is right at the threshold that is best in the nine others; mean.
      The folds are those of a list in the format of LFW, tenths of any other list, or tenths of the identities with
      several rows, of which the pairs within a fold are taken, and targets weigh as much as impostors.

    All pairs are counted exactly, in one pass over the scores, or in two or three where there are many
    target pairs; the matrix is never stored. Where targets of a list tie rows together, those rows are one identity.

    Args:
        embeddings: a labelled set, or two sides; or a checkpoint (a split of its data is encoded); of
            a set with class proxies, its samples.
        trials: a file of lines `label a b` (1 or target, 0 or nontarget; the label may stand last) or in the format of
            LFW's `pairs.txt`; or tuples (label, a, b). a is a query and b a candidate: names of rows, or row numbers
            from 0. A name may also be that of a file without its folder and ending. None: all pairs.
        metric: cosine, dot, euclidean or squared_euclidean; None: that of the loss, or cosine.
        loss: of the training, whose scores are used; None: the one that the checkpoint recorded.
        prior: probability π of a target, for minDCF.
        miss_cost: :math:`C_m`, of a target that is refused.
        false_accept_cost: :math:`C_f`, of an impostor that is accepted.
        split: of the checkpoint's data; None: test, val, dev or train, the first one that it has.
        device: `auto`, `cpu`, `cuda`; None: where the embeddings are.
        progress: called with what is done (`encoding`, `scoring`); gives a function of (done, in all).

    Returns:
        `value`, `deviation` and `threshold` of each `metric`, all in percent save minDCF and thresholds.
        A metric that the pairs do not allow is NaN, and a note says why. The numbers of pairs and identities are
        attributes.

    Raises:
        InputError: no target pair, or no impostor pair.

    Source: EER and minDCF: NIST Speaker Recognition Evaluation plans. Accuracy: Huang et al. 2007, Labeled Faces in the
    Wild.

    Examples:
        >>> rows = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
        >>> labelled = cocos.Embeddings.labelled(rows, [0, 0, 1, 1])
        >>> data = cocos.measures.verification(labelled)
        >>> float(data["value"].sel(metric="EER")), data.attrs["targets"], data.attrs["impostors"]
        (0.0, 2, 4)
    """
    if metric is not None and metric not in SYMMETRIC_METRICS:
        raise InputError(nearest("metric", metric, SYMMETRIC_METRICS))
    checkpoint = embeddings if isinstance(embeddings, Checkpoint) else None
    metric, trained_with, chosen = ranked_by(checkpoint, loss, metric)
    if metric not in SYMMETRIC_METRICS:
        raise InputError(f"metric: {metric}, as of the loss, differs from either end; choose one with --metric")
    embeddings = embedded(embeddings, split_of(embeddings, split), device, progress).without_queue()
    if samples := among_samples(embeddings):
        chosen.append("the samples are compared with each other, and not with the class proxies")
        embeddings = samples
    similarities.check(embeddings, metric, checkpoint and checkpoint.path)
    spread = health.of(embeddings, metric)
    loud = health.meaningless(embeddings, metric)
    costs = Costs(prior, miss_cost, false_accept_cost)
    asked: _Decisions = _AllPairs(embeddings, metric)
    if trials is not None:
        asked = _ListedPairs(embeddings, metric, _read_trials(trials, embeddings))
    accepted = asked.accepted(costs, progress and progress("scoring"))
    found, thresholds = _metrics(accepted, costs)
    right, no_folds = asked.accuracy()
    found["accuracy"], thresholds["accuracy"] = 100 * float(right.mean()) if len(right) else math.nan, math.nan
    deviation = dict.fromkeys(found, math.nan)
    deviation["accuracy"] = 100 * float(right.std()) if len(right) else math.nan
    where, notes = origin(checkpoint, split)
    targets, impostors = accepted.totals
    if few := [rate for rate in FALSE_ACCEPT_RATES if not accepted.allowed(rate)]:
        notes.append(
            f"TAR at FAR {', '.join(f'{rate:g}' for rate in few)}: {impostors:,} impostor pairs are too few; "
            f"{few[0]:g} takes {round(1 / few[0]):,}"
        )
    notes += [f"accuracy: {no_folds}"] if no_folds else []
    attrs = {
        "title": "Verification metrics",
        "metric": metric,
        **({"trained_with": trained_with} if trained_with else {}),
        "trials": "all pairs" if trials is None else str(trials) if isinstance(trials, str | Path) else "given",
        "targets": targets,
        "impostors": impostors,
        "identities": asked.identities,
        "prior": prior,
        "miss_cost": miss_cost,
        "false_accept_cost": false_accept_cost,
        "device": embeddings.query.device.type,
        **findings.attributes([*loud, *embeddings.notes, *chosen, *notes]),
        "health": json.dumps(health.report(spread, {})),
        **where,
    }
    columns = dict(zip(VERIFICATION_LABELS, (found, deviation, thresholds), strict=True))
    variables: dict[str, tuple] = {
        name: ("metric", [values[key] for key in found], VERIFICATION_LABELS[name]) for name, values in columns.items()
    }
    return results.labelled(
        variables | {"metric": ("metric", list(found))}, results.versions() | attrs, measure="verification"
    )


def _metrics(accepted: Accepted, costs: Costs) -> tuple[dict[str, float], dict[str, float]]:
    """Metrics save the accuracy, in percent save minDCF; and the threshold of each, infinite where it refuses all."""
    missed, false, score = accepted.missed, accepted.false, accepted.score
    at = int((false >= missed).argmax())
    before = (false[at - 1], missed[at - 1]) if at else (0.0, 1.0)
    # Between two levels there are impostors alone; those at the level itself come with its targets.
    points = [before, (accepted.beyond[at] / accepted.totals[1], before[1]), (false[at], missed[at])]
    (f0, m0), (f1, m1) = next(pair for pair in pairwise(points) if pair[1][0] >= pair[1][1])
    part = (m0 - f0) / ((m0 - f0) + (f1 - m1))
    found, thresholds = {"EER": 100 * (f0 + part * (f1 - f0))}, {"EER": score[at]}
    for rate in FALSE_ACCEPT_RATES:
        name, allowed = f"TAR@FAR={rate:g}", accepted.allowed(rate)
        last = int((accepted.impostors <= allowed).sum()) - 1
        found[name] = 100 * (1 - missed[last]) if last >= 0 else 0.0
        thresholds[name] = score[last] if last >= 0 else math.inf
        if not allowed:
            found[name] = thresholds[name] = math.nan
    cost, refused = costs.normalised(missed, false), costs.normalised(np.ones(1), np.zeros(1))[0]
    best = int(cost.argmin())
    found["minDCF"] = min(cost[best], refused)
    thresholds["minDCF"] = score[best] if cost[best] <= refused else math.inf
    return ({name: float(each) for name, each in values.items()} for values in (found, thresholds))


def _right(targets: np.ndarray, impostors: np.ndarray, totals: np.ndarray, *, balanced: bool) -> np.ndarray:
    """Part that is right in each fold, (F,), at the threshold that is best in the others, the highest of several.

    Args:
        targets: (F, L) target pairs of each fold that descending thresholds accept.
        impostors: (F, L) impostor pairs, likewise.
        totals: (F, 2) target pairs and impostor pairs of each fold.
        balanced: targets weigh as much as impostors.
    """
    targets, impostors = (np.pad(each, ((0, 0), (1, 0))) for each in (targets, impostors))  # refuse everything

    def right(targets: np.ndarray, impostors: np.ndarray, totals: np.ndarray) -> np.ndarray:
        if balanced:
            return (targets / totals[0] + 1 - impostors / totals[1]) / 2
        return (targets + totals[1] - impostors) / totals.sum()

    every = [each.sum(axis=0) for each in (targets, impostors, totals)]
    found = []
    for own in zip(targets, impostors, totals, strict=True):
        best = right(*(whole - mine for whole, mine in zip(every, own, strict=True))).argmax()
        found.append(right(*own)[best])
    return np.array(found)


def _distinct(levels: Tensor, tie: float) -> Tensor:
    """Sort scores, ascending, and keep the lowest of those that tie."""
    levels = levels.sort().values
    return levels[torch.cat([levels.new_ones(1, dtype=torch.bool), levels.diff() > tie])]


def _targets(view: engine.View) -> Callable[[], Iterable[tuple[Tensor, Tensor]]]:
    """A function that gives the queries, places of the view, and the scores of all target pairs, in pieces."""

    def scored() -> Iterator[tuple[Tensor, Tensor]]:
        for start, stop in view.chunks(0):
            query, _, score = view.scored(0, start, stop)
            yield query + start, score

    if int(view.counted(0).sum()) > MOST_KEPT:
        return scored
    kept = list(scored())
    return lambda: kept


def _reached(
    view: engine.View, targets: Iterable[tuple[Tensor, Tensor]], levels: Tensor, report: Report = None
) -> tuple[np.ndarray, ...]:
    """Target pairs and impostor pairs that reach each of some ascending levels, and impostor pairs beyond, (L,) each.

    The levels, and the counts, are returned in descending order.
    """
    steps, order = torch.cat([levels, levels + 2 * view.tie]).sort(stable=True)
    (curve,) = engine.run(view, [readers.PrecisionRecall(steps)], progress=report)
    counted = torch.empty_like(curve.negatives)
    counted[order] = curve.negatives.flip(0)
    places = torch.zeros(len(levels) + 1, dtype=torch.int64, device=levels.device)
    for _, score in targets:
        found = torch.searchsorted(levels - view.tie, score, right=True)
        places += torch.bincount(found, minlength=len(places))
    impostors, beyond = counted.tensor_split(2)
    accepted = places.flip(0).cumsum(0).flip(0)[1:]
    return tuple(each.flip(0).cpu().numpy() for each in (levels, accepted, impostors, beyond))


class _AllPairs:
    """All pairs of a set: targets are of one group."""

    def __init__(self, embeddings: Embeddings, metric: str):
        self.side, self.metric = embeddings.single(embeddings.directions[0]), metric
        self.times = 1 + embeddings.shared  # every pair of a labelled set is met from both of its ends
        self.groups = embeddings.groups
        own = self.groups.queries > 1 if embeddings.shared else (self.groups.queries > 0) & (self.groups.candidates > 0)
        self.with_targets = own.nonzero().flatten()
        self.identities = len(self.groups.queries)

    def _view(self, rows: Tensor, columns: Tensor) -> engine.View:
        where = self.side.query.device
        return engine.view(self.side, Batch(rows.to(where), columns.to(where), paired=False), metric=self.metric)

    def accepted(self, costs: Costs, report: Report) -> Accepted:
        self.view = view = self._view(*(torch.arange(len(each)) for each in (self.side.query, self.side.candidate)))
        totals = int(view.counted(0).sum()) // self.times, int(view.negatives(0).sum()) // self.times
        if not totals[0]:
            why = "no class has two samples" if self.side.shared else "no group is on both sides"
            raise InputError(f"no target pair: {why}")
        if not totals[1]:
            raise InputError("no impostor pair: all rows are of one class")

        self.targets = _targets(view)

        def at(levels: Tensor) -> Accepted:
            score, *counts = _reached(view, self.targets(), _distinct(levels, view.tie), report)
            return Accepted(score, *(count // self.times for count in counts), totals=totals)

        if totals[0] <= MOST_LEVELS:
            return at(torch.cat([score for _, score in self.targets()]))
        return at(self._deciding(at, costs))

    def _deciding(self, at: Callable[[Tensor], Accepted], costs: Costs) -> Tensor:
        """Levels with every target score that may decide a metric: a grid is refined until they are few."""
        ends = torch.stack([torch.stack(score.aminmax()) for _, score in self.targets() if len(score)])
        low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
        levels = torch.linspace(low, high, GRID_LEVELS, dtype=torch.float64, device=self.view.device)
        while True:
            found = at(levels)
            missed, false, cost = found.missed, found.false, costs.normalised(found.missed, found.false)
            inside = (false[:-1] < missed[:-1]) & (false[1:] >= missed[1:])
            inside |= costs.normalised(missed[1:], false[:-1]) < cost.min()
            for allowed in map(found.allowed, FALSE_ACCEPT_RATES):
                inside |= (found.impostors[:-1] <= allowed) & (found.impostors[1:] > allowed)
            levels = torch.from_numpy(found.score[::-1].copy()).to(self.view.device)
            own = torch.from_numpy(inside[::-1].copy()).to(self.view.device)
            gap = levels.diff()
            if not len(gap):
                return levels
            if np.diff(found.targets)[inside].sum() <= MOST_LEVELS or float(gap[own].max()) <= 4 * self.view.tie:
                break
            part = torch.arange(1, 2 + GRID_LEVELS // int(own.sum()), dtype=torch.float64, device=levels.device)
            finer = levels[:-1][own][:, None] + gap[own][:, None] * part / (len(part) + 1)
            levels = torch.cat([levels, finer.flatten()])
        some = [levels]
        for _, score in self.targets():
            place = torch.searchsorted(levels, score, right=True).clamp(1, len(levels) - 1) - 1
            some.append(score[own[place]])
        return torch.cat(some)

    def accuracy(self) -> tuple[np.ndarray, str]:
        if len(self.with_targets) < 2 * ACCURACY_FOLDS:
            return np.zeros(0), (
                f"{len(self.with_targets)} identities have a target pair, and ten folds take {2 * ACCURACY_FOLDS}"
            )
        views = [
            self._view(*(torch.isin(group, part).nonzero().flatten() for group in self._group_of_rows))
            for part in self.with_targets.tensor_split(ACCURACY_FOLDS)
        ]
        targets = [_targets(view) for view in views]
        levels = torch.cat([score for own in targets for _, score in own()]).sort().values
        levels = _distinct(levels[:: -(-len(levels) // MOST_LEVELS)], max(view.tie for view in views))
        counts = [_reached(view, own(), levels)[1:3] for view, own in zip(views, targets, strict=True)]
        totals = np.array([[int(view.counted(0).sum()), int(view.negatives(0).sum())] for view in views])
        return _right(*(np.stack(each) for each in zip(*counts, strict=True)), totals, balanced=True), ""

    @property
    def _group_of_rows(self) -> tuple[Tensor, Tensor]:
        return self.groups.query, self.groups.candidate


class _ListedPairs:
    """The pairs of a list of trials."""

    def __init__(self, embeddings: Embeddings, metric: str, trials: Trials):
        self.trials = trials
        side = embeddings.single(embeddings.directions[0])
        rows, columns = (torch.arange(len(each), device=each.device) for each in (side.query, side.candidate))
        view = engine.view(side, Batch(rows, columns, paired=False), metric=metric)
        place = []
        for own, asked in zip(view.sides, (trials.first, trials.second), strict=True):
            where = torch.empty_like(own.place)
            where[own.place] = torch.arange(len(own), device=where.device)
            place.append(where[torch.from_numpy(asked).to(where.device)])
        parts = zip(*(each.split(SCORED_TRIALS) for each in place), strict=True)
        self.score = torch.cat([view.exact(*part) for part in parts]).cpu().numpy()
        self.tie = view.tie
        self.ends = self._units(embeddings)
        self.identities = len(np.unique(self.ends))

    def _units(self, embeddings: Embeddings) -> np.ndarray:
        """Identity of both ends of every trial, (2, T): rows of one group, or tied by target trials, are one."""
        from scipy.sparse import coo_array  # a tenth of a second, which only lists need
        from scipy.sparse.csgraph import connected_components

        trials, groups = self.trials, embeddings.groups
        group = np.stack([groups.query.numpy()[trials.first], groups.candidate.numpy()[trials.second]])
        one, other = group[:, trials.target]
        size = len(groups.queries)
        edges = coo_array((np.ones(len(one), dtype=bool), (one, other)), shape=(size, size))
        return connected_components(edges, directed=False)[1][group]

    def accepted(self, costs: Costs, report: Report) -> Accepted:
        target = self.trials.target
        levels = _distinct(torch.from_numpy(self.score[target]), self.tie).numpy()[::-1]
        totals = int(target.sum()), int((~target).sum())

        def reached(kept: np.ndarray, level: np.ndarray, side: str) -> np.ndarray:
            return kept.sum() - np.searchsorted(np.sort(self.score[kept]), level, side=side)

        return Accepted(
            levels,
            reached(target, levels - self.tie, "left"),
            reached(~target, levels - self.tie, "left"),
            reached(~target, levels + self.tie, "right"),
            totals,
        )

    def accuracy(self) -> tuple[np.ndarray, str]:
        folds, number = self.trials.fold, int(self.trials.fold.max()) + 1
        if number < 2:
            return np.zeros(0), f"{len(folds)} trials, and ten folds take {ACCURACY_FOLDS}"
        levels = np.unique(self.score)[::-1] - self.tie
        target, found = self.trials.target, []
        for kind in (target, ~target):
            own = [np.sort(self.score[kind & (folds == fold)]) for fold in range(number)]
            found.append(np.stack([len(each) - np.searchsorted(each, levels) for each in own]))
        totals = np.stack([np.bincount(folds[kind], minlength=number) for kind in (target, ~target)], axis=1)
        return _right(*found, totals, balanced=False), ""


def _read_trials(trials: str | Path | Sequence[tuple], embeddings: Embeddings) -> Trials:
    """The trials of a file, or of a sequence, with the rows that they name."""
    if isinstance(trials, str | Path):
        where, lines, folds = str(trials), *_lines_of_file(Path(trials))
    else:
        where, folds = "trials", None
        lines = [(f"trial {k}", *each) for k, each in enumerate(trials)]
    names = embeddings.names or (None, None)
    find = [
        _finder(known, len(side)) for known, side in zip(names, (embeddings.query, embeddings.candidate), strict=True)
    ]
    rows: tuple[list[int], list[int]] = [], []
    target = []
    for at, said, *ends in lines:
        label = str(said).lower()
        if len(ends) != 2 or label not in TRIAL_LABELS:
            raise InputError(
                f"{where}, {at}: {' '.join(map(str, (said, *ends)))!r}, expected a label and two rows, like 1 a b: 1 "
                "or target where they are of one identity, 0 or nontarget where they are not"
            )
        target.append(TRIAL_LABELS[label])
        for row, lookup, end in zip(rows, find, ends, strict=True):
            found, why = lookup(str(end))
            if why:
                raise InputError(f"{where}, {at}: {str(end)!r} {why}")
            row.append(found)
    if len(set(target)) < 2:
        kind = "target" if not any(target) else "impostor"
        raise InputError(f"{where}: no {kind} pair among {len(target)} trials, expected both kinds")
    if folds is None:
        folds = np.arange(len(target)) * ACCURACY_FOLDS // len(target) if len(target) >= ACCURACY_FOLDS else []
    fold = np.asarray(folds, dtype=np.int64) if len(folds) else np.zeros(len(target), dtype=np.int64)
    first, second = (np.array(each, dtype=np.int64) for each in rows)
    return Trials(first, second, np.array(target), fold)


def _lines_of_file(path: Path) -> tuple[list[tuple[str, ...]], list[int] | None]:
    """Lines of a file of trials: where each stands, label and two rows; and their folds, where the file says."""
    try:
        with open(path, "rb") as file:
            words = [(k, line.split()) for k, line in enumerate(file.read().decode("utf-8-sig").splitlines(), start=1)]
    except OSError as error:
        raise InputError(f"{path}: {unreachable(error)}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: no text in UTF-8, expected lines of a label and two rows, like 1 a b") from None
    words = [(k, line) for k, line in words if line]
    if not words:
        raise InputError(f"{path}: no trial, expected lines of a label and two rows, like 1 a b")
    header = words[0][1]
    if len(header) <= 2 and all(word.isdecimal() for word in header):
        return _lines_of_lfw(path, [int(word) for word in header], words[1:])
    last = not {words[0][1][0].lower()} <= set(TRIAL_LABELS)  # the label stands last, as Kaldi and NIST write it
    return [(f"line {k}", *([line[-1], *line[:-1]] if last else line)) for k, line in words], None


def _lines_of_lfw(path: Path, header: list[int], words: list[tuple[int, list[str]]]) -> tuple[list[tuple], list[int]]:
    """Trials in the format of LFW: `name i j` are two images of one person, `name i other j` of two."""
    folds, each = header if len(header) == 2 else [1, *header]
    if len(words) != 2 * folds * each:
        raise InputError(f"{path}: {len(words)} pairs, expected 2 x {folds} x {each} as its first line says")
    lines: list[tuple] = []
    for k, line in words:
        if len(line) not in {3, 4} or not all(word.isdecimal() for word in (line[1], line[-1])):
            raise InputError(f"{path}, line {k}: {' '.join(line)!r}, expected name i j, or name i other j")
        other = line[0] if len(line) == 3 else line[2]
        ends = [f"{name}_{int(number):04d}" for name, number in ((line[0], line[1]), (other, line[-1]))]
        lines.append((f"line {k}", "1" if len(line) == 3 else "0", *ends))
    return lines, [k // (2 * each) for k in range(len(lines))]


def _finder(names: Sequence[str] | None, number: int) -> Callable[[str], tuple[int, str]]:
    """A function from the name of a row, or its number, to its number, and why there is none."""
    known: dict[str, int] = {}
    for shorten in (lambda name: name, lambda name: Path(name).stem):
        made: dict[str, int] = {}
        for row, name in enumerate(names or ()):
            short = shorten(str(name))
            made[short] = -1 if short in made else row
        known = made | known

    def lookup(end: str) -> tuple[int, str]:
        row = known.get(end)
        if row is None and end.isascii() and end.isdecimal() and len(end) <= MOST_ROW_DIGITS and int(end) < number:
            row = int(end)
        if row is None:
            said = f"no name of a row, and no row number from 0 to {number - 1}"
            nameless = f"is no row number from 0 to {number - 1}, and the rows have no names (array query_name)"
            return 0, f"is {said}" if names else nameless
        return row, "is the name of several rows" if row < 0 else ""

    return lookup
