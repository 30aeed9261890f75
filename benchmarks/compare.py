"""One draw of the exactness script: results of the engine against the definitions."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from benchmarks.draws import Draw, shares_eps
from cocos import engine, losses, measures
from cocos.engine import readers
from tests import reference

__all__ = ["Loss", "Pass", "Result", "Side", "counted", "sides"]

# Relative difference of a share and eps below which float64 may decide either way.
EQUAL = 1e-11
# Relative difference from which an uncertain negative is needlessly uncertain.
CLEAR = 1e-9
SINGLE = 2.0**-24
HINGES = ("triplet", "triplet_euclidean", "triplet_squared", "triplet_sh")
# Error of these statistics, in multiples of the error of a share.
SPREAD = {"effective": 12.0, "participation": 12.0, "hardest_share": 4.0}


@dataclass(frozen=True, eq=False)
class Side:
    """One batch from the side of its queries: dense scores and masks, and tolerances for rounding.

    Args:
        score: (Q, C) float64.
        positive: (Q, C) bool.
        negative: (Q, C) bool.
        norm: (Q,) norms of the queries.
        room: error bound of a float64 score; 0 if every score is exact.
        single: likely error of a float32 score.
        most: largest possible error of a float32 score; inf where it is not known here.
        tie: largest difference of tied scores: 1e-12 of the longest vectors; distances may be computed about any
            origin, so that it is known only to within `beside`.
        beside: error bound of a score, and of the tie.
    """

    score: np.ndarray
    positive: np.ndarray
    negative: np.ndarray
    norm: np.ndarray
    room: float
    single: float
    most: float
    tie: float
    beside: float


@dataclass
class Result:
    """The outcome of one check."""

    queries: int = 0
    negatives: int = 0
    uncertain: int = 0
    needless: int = 0
    wrong: list[str] = field(default_factory=list)


def _side(one: Draw, embeddings, rows: np.ndarray, columns: np.ndarray, *, paired: bool) -> Side:
    query, candidate = (side.double().numpy() for side in (embeddings.query, embeddings.candidate))
    query, candidate = query[rows], candidate[columns]
    groups = embeddings.query_group.numpy(), embeddings.candidate_group.numpy()
    shared = embeddings.shared
    positive, negative = reference.masks(
        *groups, rows, columns, paired=paired, shared=shared, same_group=one.same_group
    )
    exact = one.kind == "dyadic" and one.metric in {"cosine", "dot", "cosine_dot"}
    widest, width = reference.rounding(query, candidate, one.metric, SINGLE), query.shape[1]
    norm = reference.scores(query, np.zeros_like(query[:1]), "euclidean")[:, 0] * -1
    longest = max(1.0, reference.rounding(query, candidate, one.metric, 1.0) / (width + 8))
    room = 0.0 if exact else 2 * reference.rounding(query, candidate, one.metric)
    score = reference.scores(query, candidate, one.metric)
    single = widest * (8 * width**0.5 + 16) / (width + 8)
    if one.metric == "euclidean":  # products give squares; their error, divided by the distance, is that of the root
        square = single * longest
        single = min(square**0.5, square / max(1e-300, np.abs(score).min()))
    return Side(
        score,
        positive,
        negative,
        norm,
        room,
        single,
        3 * widest if one.metric == "cosine" else np.inf,
        reference.TIE * (1 + longest) / 2,
        room + reference.TIE * (longest - 1) / 2,
    )


def sides(one: Draw) -> list[list[Side]]:
    """Return, for each direction, the batches from the side of their queries."""
    found = []
    turned = (one.embeddings, one.embeddings.flip()) if len(one.embeddings.directions) > 1 else (one.embeddings,)
    for second, embeddings in enumerate(turned):
        own = []
        for batch in one.batches:
            if batch is None:
                rows, columns = (np.arange(len(side)) for side in (embeddings.query, embeddings.candidate))
            else:
                seen = batch.flip() if second else batch
                rows, columns = seen.query_index.numpy(), seen.candidate_index.numpy()
            own.append(_side(one, embeddings, rows, columns, paired=batch is not None and batch.paired))
        found.append(own)
    return found


def _worst(got: np.ndarray, bad: np.ndarray, text: str) -> list[str]:
    if not bad.any():
        return []
    row = int(np.flatnonzero(bad)[0])
    return [f"{text.format(row=row)} ({int(bad.sum())} of {len(bad)} queries)"]


class Loss:
    """A loss of a draw, its eps, and what the definitions give for it."""

    def __init__(self, name: str, given: dict, every: list[list[Side]], random: np.random.Generator):
        self.name, self.loss = name, losses.load(name, given)
        fields = self.loss.__dataclass_fields__
        self.parameters = {key: getattr(self.loss, key) for key in fields}
        self.weighed = [[self._weigh(side) for side in own] for own in every]
        weights, unit = self.weighed[0][0]
        self.eps = shares_eps((np.abs(weights) / unit)[every[0][0].negative], random)
        if name in HINGES:
            self.eps = float(random.choice([0.01, 0.5, 1.0, 2.0]))
        self.every = every

    def only(self, directions: int) -> "Loss":
        """Restrict the loss to some directions."""
        other = object.__new__(Loss)
        other.__dict__.update(self.__dict__, every=self.every[:directions], weighed=self.weighed[:directions])
        return other

    def _weigh(self, side: Side, margin: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        own = self.parameters | ({"margin": self.parameters["margin"] + margin} if margin else {})
        return reference.weights(self.name, own, side.score, side.positive, side.negative, side.norm)

    def compare(self, found: list[dict[str, np.ndarray]]) -> Result:
        """Compare the statistics of each direction, in the order of the batches, with the definitions."""
        result = Result()
        for direction, (own, statistics) in enumerate(zip(self.every, found, strict=True)):
            start = 0
            for batch, side in enumerate(own):
                part = {key: value[start : start + len(side.score)] for key, value in statistics.items()}
                start += len(side.score)
                wrong = self._batch(side, self.weighed[direction][batch], part, result)
                result.wrong += [f"direction {direction}, batch {batch}, eps {self.eps!r}: {each}" for each in wrong]
            if any(len(value) != start for value in statistics.values()):
                result.wrong.append(f"direction {direction}: not one number for each of {start} queries")
        return result

    def _batch(self, side: Side, weighed, part: dict[str, np.ndarray], result: Result) -> list[str]:
        weights, unit = weighed
        share, push = np.abs(weights) / unit, np.where(side.negative, np.maximum(weights, 0), 0)
        total = push.sum(axis=1, keepdims=True)
        of_push = push / np.where(total > 0, total, 1)
        hinge = self.name in HINGES
        room = side.room if hinge else reference.room(self.name, self.parameters, side, side.room) + EQUAL
        wide = reference.room(self.name, self.parameters, side, side.most) if not hinge else np.inf
        found = {"contributing": share, "relative": of_push}
        wrong, clear = [], np.ones(len(share), dtype=bool)
        for key, values in found.items():
            if key not in part or np.isnan(part[key]).all():
                continue  # a pass may omit it
            uncertain = part["uncertain" if key == "contributing" else "relative_uncertain"]
            if hinge:
                counted, tied = self._on_line(side, key)
            else:
                counted = reference.above(values, side.negative, self.eps, 2 * room, max(CLEAR, 20 * room))
                near = reference.above(values, side.negative, self.eps, 0, 2 * wide + 1e-4).near
                if np.isfinite(wide) and np.isfinite(room):
                    said = f"{key}: uncertain of query {{row}} is above all near it"
                    wrong += _worst(uncertain, uncertain > near, said)
                tied = np.full(len(share), not np.isfinite(room))
                if key == "relative":  # a denormal push may count as zero
                    tied |= (total[:, 0] > 0) & (total[:, 0] < np.finfo(np.float64).tiny)
            wrong += self._count(key, part[key], uncertain, counted, tied)
            if key == "contributing":
                clear = (uncertain == 0) & (counted.least == counted.most) & ~np.asarray(tied)
                clear &= ~self._tied(side, 4 * side.beside + 4 * side.tie) if hinge else clear
                if hinge and side.room == 0 and not self.parameters["margin"] % 0.25:
                    wrong += _worst(part[key], part[key] != counted.least, "ties: query {row} counts one")
                result.uncertain += int(uncertain.sum())
                result.needless += int(np.maximum(uncertain - counted.near, 0).sum())
        result.queries += len(share)
        result.negatives += int(side.negative.sum())
        wrong += _worst(part["negatives"], part["negatives"] != side.negative.sum(axis=1), "negatives of query {row}")
        return wrong + self._sums(side, weights, unit, share, part, (clear, np.ones_like(clear)))

    def _tied(self, side: Side, away: float) -> np.ndarray:
        """Queries whose weights change if the margin changes slightly, (Q,) bool."""
        return (self._weigh(side, -away)[0] != self._weigh(side, away)[0]).any(axis=1)

    def _on_line(self, side: Side, key: str):
        """Count a hinge with the margin a little smaller and larger, and find the queries that have a tie."""
        away = 2 * side.room
        given = [np.where(side.negative, self._weigh(side, m)[0], 0) for m in (-away, away)]
        tied = (given[0] != given[1]).any(axis=1)
        if key == "relative":
            given = [w / np.maximum(w.sum(axis=1, keepdims=True), 1) for w in given]
            counts = [((w > self.eps * (1 + r)).sum(axis=1)) for w, r in zip(given, (1e-12, -1e-12), strict=True)]
            wide = self._weigh(side, 1e-9 * max(1.0, side.tie / 1e-12))[0], self._weigh(side, -1e-9)[0]
            doubt = (wide[0] != wide[1]).any(axis=1)
            return reference.Counted(counts[0], counts[1], np.where(doubt, 10**9, 0)), tied
        counts = [(w > self.eps).sum(axis=1) for w in given]
        beside = 1e-9 * max(1.0, side.tie / 1e-12)
        wide = [np.where(side.negative, self._weigh(side, m)[0], 0) for m in (-beside, beside)]
        return reference.Counted(counts[0], counts[1], (wide[0] != wide[1]).sum(axis=1)), np.zeros(len(tied), bool)

    def _count(self, key: str, got, uncertain, counted, tied) -> list[str]:
        bad = ((got - uncertain > counted.most) | (got + uncertain < counted.least)) & ~np.asarray(tied)
        if not bad.any():
            return []
        q = int(np.flatnonzero(bad)[0])
        return [
            f"{key} of query {q} is {got[q]:g} with {uncertain[q]:g} uncertain, not {counted.least[q]} to "
            f"{counted.most[q]} ({int(bad.sum())} of {len(bad)} queries)"
        ]

    def _sums(self, side: Side, weights, unit, share, part, sure: tuple[np.ndarray, np.ndarray]) -> list[str]:
        (clear, known), hinge = sure, self.name in HINGES
        negative, high = side.negative, np.maximum
        own = 0.0 if hinge else reference.room(self.name, self.parameters, side, side.single) + 4e-6
        if not np.isfinite(own) or own > 0.3:
            return []
        over = (share > self.eps) & negative
        right = {
            "weight_above": np.where(over, share, 0).sum(axis=1),
            "weight_below": np.where(~over & negative, share, 0).sum(axis=1),
            "weight_positive": np.where(side.positive, share, 0).sum(axis=1),
            "push": high(weights, 0).sum(axis=1),
            "pull": high(-weights, 0).sum(axis=1),
        }
        push = np.where(negative, high(weights, 0), 0)
        total = push.sum(axis=1, keepdims=True)
        p = push / np.where(total > 0, total, 1)
        active = total[:, 0] > 0
        right["hardest_share"] = p.max(axis=1)
        right["effective"] = np.where(
            active, np.exp(-np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(axis=1)), 0
        )
        right["participation"] = np.where(active, 1 / np.where(active, (p**2).sum(axis=1), 1), 0)
        if self.name in {"arcface", "magface"} and side.score[side.positive].max(initial=-1) > 1 - 1e-7:
            right = {
                key: right[key] for key in right if key not in {"weight_positive", "pull"}
            }  # their derivative is unbounded
        wrong, largest = [], unit.max(axis=1)
        for key, want in right.items():
            got = part.get(key)
            if got is None or np.isnan(got).all():
                continue
            scale = largest if key in {"push", "pull"} else 1.0
            if key in SPREAD:  # not compared where float32 underflows
                allowed = np.where(total[:, 0] > 1e-30 * largest, SPREAD[key] * own * want + 1e-9, np.inf)
            else:
                most = np.where(key in {"weight_above", "weight_below"}, high(share.sum(axis=1), 0), want)
                allowed = own * most + (own + 1e-9) * scale * np.maximum(side.positive.sum(axis=1), 1)
            held = clear if key in {"weight_above", "weight_below"} or hinge else np.ones_like(clear)
            bad = (np.abs(got - want) > allowed) & held & known
            if bad.any():
                q = int(np.flatnonzero(bad)[0])
                wrong.append(f"{key} of query {q} is {got[q]:.9g}, not {want[q]:.9g} ({int(bad.sum())} queries)")
        if "eq7" in part:
            room = reference.room(self.name, self.parameters, side, side.room) + EQUAL
            score, masks = side.score, (side.positive, side.negative)
            least, most = reference.eq7(self.parameters["temperature"], score, *masks, self.eps, 2 * room)
            bad = (part["eq7"] < least - 1e-9) | (part["eq7"] > most + 1e-9)
            wrong += _worst(part["eq7"], bad, "eq7 of query {row}")
        return wrong


def _arrays(found: tuple[dict[str, Tensor], ...]) -> list[dict[str, np.ndarray]]:
    return [{key: value.double().cpu().numpy() for key, value in side.items()} for side in found]


def _joined(parts: list[list[dict[str, np.ndarray]]]) -> list[dict[str, np.ndarray]]:
    """Concatenate the batches of each direction."""
    return [{key: np.concatenate([one[key] for one in own]) for key in own[0]} for own in zip(*parts, strict=True)]


def counted(one: Draw, loss: Loss) -> list[dict[str, np.ndarray]]:
    """Count with the public function."""
    batches = [batch if batch is not None else _whole(one) for batch in one.batches]
    data = measures.count(one.embeddings, loss.loss, loss.eps, batches=batches, same_group=one.same_group)
    names = {
        str(key).removesuffix("_per_query"): key for key in data if data[key].dims == ("direction", "batch", "query")
    }
    found = []
    for direction in data["direction"].values:
        own = data.sel(direction=direction)
        parts = []
        for k in range(data.sizes["batch"]):
            there = np.isfinite(own["contributing"].values[k])
            parts.append({key: own[name].values[k][there].astype(float) for key, name in names.items()})
            assert float(own["idle"].values[k]) == float((parts[-1]["contributing"] == 0).sum()), "idle"
        found.append({key: np.concatenate([part[key] for part in parts]) for key in names})
    for own in found:
        for key in ("uncertain", "relative_uncertain"):
            own.setdefault(key, np.zeros_like(own["contributing"]))
        own.pop("query_index", None)
    return found


def _whole(one: Draw):
    from cocos.embeddings.sampling import Batch

    sizes = len(one.embeddings.query), len(one.embeddings.candidate)
    return Batch(*(torch.arange(size) for size in sizes), paired=False)


def run_readers(view: engine.View, wanted: list) -> list:
    """Run readers on a view; a function of its own, so that tests can spoil its results."""
    return engine.run(view, wanted)


class Pass:
    """All readers that one draw needs, in one run for each batch, or in one for a stack of batches."""

    def __init__(self, one: Draw, every: list[Loss], *, beside: bool):
        self.one, self.every, self.beside = one, every, beside
        self._found: list | None = None

    def _readers(self) -> list:
        made = [readers.of(each.loss, each.eps, relative=True) for each in self.every]
        return made + ([readers.Ranks(), readers.PrecisionRecall(), readers.Histogram()] if self.beside else [])

    def found(self) -> list:
        """One list of results for each view."""
        if self._found is None:
            batches, found = list(self.one.batches), []
            views = [batches] if len(batches) > 1 else batches
            for batch in views:
                options = {"metric": self.one.metric, "same_group": self.one.same_group}
                seen = self.one.embeddings
                if not isinstance(batch, list) and batch is not None and not batch.square:
                    seen = seen.single(seen.directions[0])
                found.append(run_readers(engine.view(seen, batch, **options), self._readers()))
            self._found = found
        return self._found

    def loss(self, k: int) -> list[dict[str, np.ndarray]]:
        """Statistics of the k-th loss."""
        return _joined([_arrays(found[k]) for found in self.found()])

    def flat(self) -> Iterator[Tensor]:
        """All result tensors."""
        for found in self.found():
            for each in found:
                yield from _tensors(each)


def _tensors(value) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for key in sorted(value):
            yield from _tensors(value[key])
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
    elif hasattr(value, "__dataclass_fields__"):
        for key in value.__dataclass_fields__:
            yield from _tensors(getattr(value, key))
