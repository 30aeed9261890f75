"""Say in one sentence how two gradients of one batch differ: by a factor, on some rows, or on a kind of pair."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from cocos.measures._another_temperature import another_temperature
from cocos.measures._compared import Compared, Outcome, cosine_of, named, number, span, zero
from cocos.measures._kinds_of_pairs import PAIR_KINDS, Fit, fit

THE_SAME = "the same"
# One query in so many may be pulled elsewhere without a shift of the targets.
FEW = 16
# Part of the weights that have the opposite sign in a loss that is upside down.
MOSTLY = 0.99
# Smallest cosine of two gradients that rounding alone sets apart.
LIKE = 0.99
# Part of the largest weight below which a weight says nothing on how often its column stands in a denominator.
SEEN_PART = 1e-6
# Largest difference of such a number from a whole one, in parts of it.
WHOLE_NUMBERS = 1e-3


def outcome(both: Compared) -> Outcome:
    """Answer the questions in their order; the first that applies makes the sentence."""
    if both.groups is not None or both.beyond:
        found = _unusable(both) or _scaled(both) or _along_rows(both)
        if found is not None and (found.same or found.kind == "idle"):
            return found
        return _several(both, found) if both.groups is not None else _beyond(both, found)
    for question in QUESTIONS:
        found = question(both)
        if found is not None:
            return found
    return _otherwise(both)


def _differing(both: Compared, found: Outcome | None) -> str:
    """How far the gradients differ on a batch of its own kind, after what they do on the others."""
    return found.verdict if found is not None else f"cosine {number(cosine_of(both))}, ratio {number(_ratio(both))}"


def _ratio(both: Compared) -> float:
    return fit(both.first.rows, both.second.rows).ratio


def _several(both: Compared, found: Outcome | None) -> Outcome:
    """A difference that only queries with several positives have."""
    assert both.groups is not None
    positives = (both.groups[:, None] == both.groups[None, :]).sum(dim=1)
    said = f"the same with one positive a query, but with several they differ: {_differing(both, found)}"
    if both.pairs is not None and found is None:
        mixed = both.layout.rows(0), both.layout.rows(1)  # how queries and candidates reach each other
        a, b = (each[mixed[0], mixed[1]] for each in both.pairs)
        for word, factor in (("mean over the positives in place of a sum", 1 / positives), ("sum", positives)):
            scaled = fit(a * factor[:, None], b)
            if both.close(scaled) and scaled.ratio > 0:
                words = word if word != "sum" else "sum over the positives in place of a mean"
                beside = "" if abs(scaled.ratio - 1) <= both.room else f", and a factor of {number(scaled.ratio)}"
                said = f"the same with one positive a query; with several B takes the {words}{beside}"
                return Outcome(said, False, math.nan, "positives")
    return Outcome(said, False, _ratio(both), "positives")


def _beyond(both: Compared, found: Outcome | None) -> Outcome:
    """A difference that only scores outside of the range of the data have."""
    said = f"the same on scores of the data, but at cosines from -1 to 1 they differ: {_differing(both, found)}"
    if both.pairs is None or found is not None:
        return Outcome(said, False, _ratio(both), "beyond")
    rows, columns = both.layout.rows(0), both.layout.rows(1)
    cosines = both.cosines[rows, columns]
    a, b = (each[rows, columns] for each in both.pairs)
    for name, one, other in (("B", a, b), ("A", b, a)):
        gone = (one.abs() > both.room * one.abs().max()) & (other.abs() <= both.room * other.abs().max())
        if not gone.any():
            continue
        above, below = cosines[gone & (cosines > 0)], cosines[gone & (cosines < 0)]
        ends = [f"above {float(above.min()):.2f}"] if len(above) else []
        ends += [f"below {float(below.max()):.2f}"] if len(below) else []
        where = " and ".join(ends)
        said = f"the same on scores of the data, but {name} has no gradient at some cosines {where} (a clamp?)"
        return Outcome(said, False, 0.0 if name == "B" else math.inf, "beyond")
    return Outcome(said, False, _ratio(both), "beyond")


def _unusable(both: Compared) -> Outcome | None:
    for name, one in (("A", both.first), ("B", both.second)):
        if not one.rows.isfinite().all():
            bad = (~one.rows.isfinite()).any(dim=1).nonzero().flatten().tolist()
            return Outcome(
                f"{name} has a gradient that is NaN or infinite, in {named(both, bad)}", False, math.nan, "nan"
            )
    empty = [not one.rows.any() for one in (both.first, both.second)]
    if all(empty):
        return Outcome("neither has a gradient on these rows, so nothing is compared", False, math.nan, "idle")
    if any(empty):
        name = "A" if empty[0] else "B"
        return Outcome(f"{name} has no gradient at all", False, math.inf if empty[0] else 0.0, "none")
    return None


def _scaled(both: Compared) -> Outcome | None:
    """The same, up to a factor or not."""
    rows = fit(both.first.rows, both.second.rows)
    if rows.off > both.tolerance * max(rows.other, 1e-300):
        return None
    if both.pairs is not None:
        pairs = fit(*both.pairs)
        if pairs.off > both.tolerance * max(pairs.other, 1e-300) or abs(pairs.ratio - rows.ratio) > both.room:
            return None
    if abs(rows.ratio - 1) <= both.tolerance:
        return Outcome(THE_SAME, True, rows.ratio, "same")
    if rows.ratio < 0:
        said = f"the opposite: factor {number(rows.ratio)}, so that B pulls where A pushes (a sign?)"
        return Outcome(said, False, rows.ratio, "sign")
    return Outcome(
        f"the same up to a factor of {number(rows.ratio)}{_guess(both, rows.ratio)}", False, rows.ratio, "factor"
    )


def _guess(both: Compared, ratio: float) -> str:
    """Name what a factor may come from."""
    room = 10 * both.room

    def near(value: float) -> bool:
        return abs(ratio / value - 1) <= room or abs(ratio * value - 1) <= room

    words = list(dict.fromkeys(word for value, word in both.counts if value != 1 and near(value)))
    whole = round(max(ratio, 1 / ratio))
    if not words and whole > 1 and near(whole):
        words = ["mean against sum?", "world size?", *(["two directions?"] if whole == 2 else [])]
    return f" ({' '.join(words)})" if words else ""


def _along_rows(both: Compared) -> Outcome | None:
    """The same pair by pair; what differs points along the rows themselves, which normalising removes."""
    if both.pairs is None:
        return None
    pairs = fit(*both.pairs)
    if pairs.off > both.room * max(pairs.other, 1e-300):
        return None
    factor = abs(pairs.ratio - 1) > both.room
    said = THE_SAME if not factor else f"the same up to a factor of {number(pairs.ratio)}{_guess(both, pairs.ratio)}"
    if both.unit_rows:
        said += " on unit vectors: they differ along each row alone, which a model that normalises removes"
        return Outcome(said, not factor, pairs.ratio, "normalised")
    said += " in its pairs, but not along each row: only one of them normalises"
    return Outcome(said, False, pairs.ratio, "normalised")


def _exchanged(both: Compared) -> Outcome | None:
    """The other direction, or both directions."""
    for own, other, mine, name in (
        (both.exchanged, both.second, both.first, "A"),
        (both.returned, both.first, both.second, "B"),
    ):
        if own is None:
            continue
        turned = fit(own.rows, other.rows)
        if turned.off <= both.room * max(turned.other, 1e-300) and turned.ratio > 0:
            beside = "" if abs(turned.ratio - 1) <= both.room else f", and a factor of {number(turned.ratio)}"
            return Outcome(f"queries and candidates exchanged{beside}", False, turned.ratio, "exchanged")
        mean = fit((own.rows + mine.rows) / 2, other.rows)
        if mean.off <= both.room * max(mean.other, 1e-300) and mean.ratio > 0:
            two, one = ("B", "A") if name == "A" else ("A", "B")
            scale = "" if abs(mean.ratio - 1) <= both.room else f", and a factor of {number(mean.ratio)}"
            said = f"{two} is the mean of both directions, {one} has only the queries ask{scale}"
            return Outcome(said, False, mean.ratio, "directions")
    return None


def _mini_batch(both: Compared) -> Outcome | None:
    """A range of queries that alone has a gradient of its own."""
    if both.pairs is None:
        return None
    a, b = (each[both.layout.rows(0)].abs().amax(dim=1) for each in both.pairs)
    missing = (b <= both.room * b.max()) & (a > both.room * a.max())
    left = (~missing).nonzero().flatten().tolist()
    if not missing.any() or not left or left[-1] - left[0] + 1 != len(left):
        return None
    kept = fit(both.pairs[0][left], both.pairs[1][left])
    gone = span(missing.nonzero().flatten().tolist())
    last = left[-1] == both.layout.number - 1 and len(left) < both.layout.number
    said = "the last mini-batch alone has a gradient" if last else "some queries alone have a gradient"
    said += f": queries {span(left)}, ratio {number(kept.ratio)}; 0 for queries {gone}"
    return Outcome(said, False, kept.ratio, "last" if last else "rows")


def _misaligned(both: Compared) -> Outcome | None:
    """Queries that are pulled to other rows than their own candidates."""
    if both.pairs is None:
        return None
    number_, rows = both.layout.number, both.layout.rows(0)
    a, b = (each[rows] for each in both.pairs)
    own = torch.arange(number_, device=a.device)
    pulled = a[own, number_ + own] < -both.room * a.abs().max()
    target = b.argmin(dim=1)
    elsewhere = (target != number_ + own) & (b.amin(dim=1) < 0) & (b[own, number_ + own] >= 0)
    wrong = (pulled & elsewhere).nonzero().flatten()
    if len(wrong) < max(2, number_ // FEW):
        return None
    kinds = both.layout.kind[wrong, target[wrong]].bincount(minlength=len(PAIR_KINDS))
    where = {
        "in-batch": "candidates of other queries",
        "own hard": "hard negatives of their own",
        "others' hard": "hard negatives of other queries",
        "query-query": "other queries",
    }.get(PAIR_KINDS[int(kinds.argmax())], "other rows")
    kept = float(b[own, number_ + own].clamp(max=0).sum() / a[own, number_ + own].clamp(max=0).sum())
    said = (
        f"misaligned targets: queries {span(wrong.tolist())} are pulled to {where}, pushed from their own candidates; "
        f"ratio {number(kept)} of the pull on own candidates"
    )
    return Outcome(said, False, kept, "misaligned")


def _own_positive(both: Compared) -> Outcome | None:
    """Queries whose positive stands in the denominator more than once: weights of a softmax with whole multiples.

    With g the sum over the columns of A in parts of B's, B's negatives have m g times A's weight, with m the number of
    times that a column stands there, and a positive of probability p has -1 + m g p in place of -1 + p.
    """
    if both.pairs is None:
        return None
    total, rows, columns = both.layout.number, both.layout.rows(0), both.layout.rows(1)
    a, b = (each[rows, columns] for each in both.pairs)
    scale = both.scale or _steepness(both, a)
    if scale is None:
        return None
    own = torch.eye(total, dtype=torch.bool, device=a.device)
    whole = scale / total  # weight of all of the probability
    seen = ~own & (a > SEEN_PART * a.max())
    probability = 1 + a.diagonal() / whole
    if not seen.any(dim=1).all() or not ((probability > 0) & (probability < 1)).all():
        return None
    ratios = torch.where(seen, b / torch.where(seen, a, 1), math.inf)
    unit = ratios.amin(dim=1, keepdim=True)
    if not (unit > 0).all():
        return None
    times = ratios / unit
    own_times = (1 + b.diagonal() / whole) / (unit[:, 0] * probability)
    wholes = torch.cat([times[seen], own_times])
    if ((wholes - wholes.round()).abs() > WHOLE_NUMBERS * wholes).any() or (own_times.round() < 1).any():
        return None
    again = (own_times.round() > 1).nonzero().flatten()
    if not len(again):
        return None
    extra = sorted({int(each) - 1 for each in own_times[again].round()})
    often = {1: "once", 2: "twice"}.get(extra[0], f"{extra[0]} times")
    often = often if len(extra) == 1 else f"{extra[0]} to {extra[-1]} times"
    every = len(again) == total
    kept = float(b.diagonal()[again].sum() / a.diagonal()[again].sum())
    whose = "every query" if every else f"queries {span(again.tolist())}"
    said = f"the positive stands among the negatives of {whose}, {often}: ratio {number(kept)} of the pull"
    return Outcome(said, False, kept, "own positive")


def _steepness(both: Compared, a: Tensor) -> float | None:
    """Scale of the scores in the softmax of A: the logarithm of a weight is linear in the score; None if it is not."""
    cosines = both.cosines[both.layout.rows(0), both.layout.rows(1)]
    used = (a > SEEN_PART * a.max()) & ~torch.eye(len(a), dtype=torch.bool, device=a.device)
    many = used.sum(dim=1, keepdim=True).clamp(min=1)
    logs = torch.where(used, torch.where(used, a, 1).log(), 0)
    x, y = (torch.where(used, each - (each * used).sum(dim=1, keepdim=True) / many, 0) for each in (cosines, logs))
    if not float(x.square().sum()):
        return None
    slope = float((x * y).sum() / x.square().sum())
    return slope if slope > 0 and float((y - slope * x).abs().max()) <= WHOLE_NUMBERS else None


def _blocks(both: Compared) -> Outcome | None:
    """Pairs across mini-batches or processes."""
    if both.pairs is None:
        return None
    total = both.layout.number
    sizes = [total // k for k in range(total // 2, 1, -1) if total % k == 0]
    asked = *((_apart, size) for size in sizes), *((_detached, size) for size in reversed(sizes))
    return next(filter(None, (ask(both, size) for ask, size in asked)), None)


def _apart(both: Compared, size: int) -> Outcome | None:
    """No pair across blocks of so many rows, and some within them."""
    assert both.pairs is not None
    a, b = both.pairs
    block = both.layout.pair // size
    across, mixed = block[:, None] != block[None, :], both.layout.kind == PAIR_KINDS.index("in-batch")
    if not zero(both, b, across) or zero(both, a, across) or zero(both, b, mixed & ~across):
        return None
    part = float(a[across].abs().sum() / a.abs().sum())
    length = float(both.second.rows.norm() / both.first.rows.norm())
    said = (
        f"B has no pair across mini-batches of {size} rows: ratio 0 on {100 * part:.0f} % of A's weights "
        f"(accumulated, or not gathered); its gradient has cosine {number(cosine_of(both))} with A's and "
        f"{number(length)} of its length"
    )
    return Outcome(said, False, 0.0, "blocks")


def _detached(both: Compared, size: int) -> Outcome | None:
    """The same within blocks of so many rows, and not across them."""
    assert both.pairs is not None
    a, b = both.pairs
    block = both.layout.pair // size
    across = block[:, None] != block[None, :]
    asking = (both.layout.end == 0)[:, None].expand_as(across)
    here = fit(a, b, ~across)
    if not both.close(here) or zero(both, a, across) or both.close(fit(a, b)):
        return None
    loud = f", and a factor of {number(here.ratio)} elsewhere" if abs(here.ratio - 1) > both.room else ""
    there, back, every = fit(a, b, across & asking), fit(a, b, across & ~asking), fit(a, b, across)
    if both.close(there) and abs(there.ratio - here.ratio) <= both.room:
        said = (
            f"queries have the same gradient, candidates have ratio {number(back.ratio)} of what queries of other "
            f"mini-batches of {size} rows give them (gathered without gradient){loud}"
        )
        return Outcome(said, False, back.ratio, "detached")
    said = (
        f"the same within mini-batches of {size} rows, across them ratio {number(every.ratio)} (gathered in "
        f"part without gradient){loud}"
    )
    return Outcome(said, False, every.ratio, "across")


def _sources(both: Compared) -> Outcome | None:
    """Kinds of pairs that one of them leaves out, or that alone differ."""
    if both.pairs is None:
        return None
    a, b = both.pairs
    there = {
        name: both.layout.kind == place for place, name in enumerate(PAIR_KINDS) if (both.layout.kind == place).any()
    }
    off_diagonal = ~torch.eye(len(a), dtype=torch.bool, device=a.device)
    there = {name: mask & off_diagonal for name, mask in there.items()}
    for values, others, name, word in ((b, a, "B", "leaves out"), (a, b, "B", "adds")):
        gone = [kind for kind, mask in there.items() if zero(both, values, mask) and not zero(both, others, mask)]
        if gone:
            part = sum(float(others[there[kind]].abs().sum()) for kind in gone) / float(others.abs().sum())
            rest = torch.stack([mask for kind, mask in there.items() if kind not in gone]).any(dim=0)
            same = fit(a, b, rest)
            beside = (
                f"the rest is {THE_SAME}"
                if both.close(same) and abs(same.ratio - 1) <= both.room
                else _rest(both, same)
            )
            ratio = 0.0 if word == "leaves out" else math.inf
            said = f"{name} {word} {_list(gone)}: {'ratio 0, ' if not ratio else ''}{100 * part:.0f} % of "
            whose = "A" if word == "leaves out" else "B"
            return Outcome(f"{said}{whose}'s weights; {beside}", False, ratio, "source")
    fits = {kind: fit(a, b, mask) for kind, mask in there.items() if not zero(both, a, mask)}
    if len(fits) < 2 or not all(both.close(each) for each in fits.values()):
        return _one_source(both, there)
    ratios = {kind: each.ratio for kind, each in fits.items()}
    usual = sorted(ratios.values())[len(ratios) // 2]
    apart = [kind for kind, ratio in ratios.items() if abs(ratio - usual) > 10 * both.room * max(abs(usual), 1)]
    if len(apart) == 1 and abs(usual - 1) <= 10 * both.room:
        return Outcome(
            f"differ on {_list(apart)} only: ratio {number(ratios[apart[0]])}", False, ratios[apart[0]], "source"
        )
    said = ", ".join(f"{kind} {number(ratio)}" for kind, ratio in ratios.items())
    return Outcome(f"each kind of pair has its own factor: {said}", False, math.nan, "factors")


def _rest(both: Compared, found: Fit) -> str:
    if both.close(found):
        return f"the rest has a factor of {number(found.ratio)}"
    return f"the rest changes with it (ratio {number(found.ratio)})"


def _one_source(both: Compared, there: dict[str, Tensor]) -> Outcome | None:
    """A single kind of pair that differs, and not by one factor."""
    assert both.pairs is not None
    a, b = both.pairs
    scale = both.room * float(a.abs().max())
    apart = [kind for kind, mask in there.items() if float((b - a)[mask].abs().max()) > scale]
    if len(apart) != 1:
        return None
    ratio = fit(a, b, there[apart[0]]).ratio
    return Outcome(f"differ on {_list(apart)} only: ratio {number(ratio)}", False, ratio, "source")


def _list(kinds: Sequence[str]) -> str:
    words = {
        "in-batch": "in-batch negatives",
        "own hard": "own hard negatives",
        "others' hard": "others' hard negatives",
    }
    words |= {"query-query": "query-query pairs", "candidate-candidate": "candidate-candidate pairs"}
    return " and ".join(words.get(kind, kind) for kind in kinds)


def _some_rows(both: Compared) -> Outcome | None:
    """Some queries, or a factor for each query."""
    if both.pairs is None:
        return None
    a, b = (each[both.layout.rows(0)] for each in both.pairs)
    fits = [fit(one, other) for one, other in zip(a, b, strict=True)]
    scale = both.room * float(a.abs().max())
    apart = [row for row, each in enumerate(fits) if each.off > scale or abs(each.ratio - 1) * each.size > scale]
    if not apart:
        return None
    together = fit(a[apart], b[apart])
    alike = together.off <= scale
    if alike or 2 * len(apart) <= both.layout.number:
        by = f"ratio {number(together.ratio)}{'' if alike else ', not the same in all of them'}"
        return Outcome(f"the same but for queries {span(apart)}: {by}", False, together.ratio, "rows")
    if all(each.off <= scale for each in fits):
        ratios = [each.ratio for each in fits if each.size > scale]
        said = f"the same up to a factor for each query, {number(min(ratios))} to {number(max(ratios))}"
        return Outcome(said, False, math.nan, "queries")
    return None


def _opposite(both: Compared) -> Outcome | None:
    """A pull where the other one pushes."""
    if both.pairs is None:
        return None
    a, b = both.pairs
    against = float(a[a * b < 0].abs().sum()) / max(float(a.abs().sum()), 1e-300)
    if against < MOSTLY:
        return None
    ratio, cosine = fit(a, b).ratio, number(cosine_of(both))
    said = f"the opposite: B pulls where A pushes and pushes where A pulls, ratio {number(ratio)}, cosine {cosine}"
    return Outcome(said, False, ratio, "sign")


def _push(both: Compared) -> Outcome | None:
    """The same pull, and another push."""
    if both.pairs is None:
        return None
    rows = both.layout.rows(0)
    a, b = (each[rows] for each in both.pairs)
    positive = both.layout.kind[rows] == PAIR_KINDS.index("positives")
    pull = fit(a, b, positive)
    once = torch.where(both.layout.kind[rows] == PAIR_KINDS.index("query-query"), 0.5, 1.0)  # both of its rows are here
    before, after = (float((once * each.masked_fill(positive, 0).clamp(min=0)).sum()) for each in (a, b))
    if not both.close(pull) or abs(pull.ratio - 1) > both.room or not before:
        return None
    said = f"the same pull, and {number(after / before)} times the push"
    return Outcome(f"{said}; cosine {number(cosine_of(both))}", False, after / before, "push")


def _otherwise(both: Compared) -> Outcome:
    """A difference without a pattern that is known here."""
    rows = fit(both.first.rows, both.second.rows)
    apart = (both.second.rows - rows.ratio * both.first.rows).abs().amax(dim=1)
    worst = named(both, [int(apart.argmax())])
    off = rows.off / max(rows.other, 1e-300)
    said = f"differ: cosine {number(cosine_of(both))}, ratio {number(rows.ratio)}; the largest difference is "
    return Outcome(f"{said}{100 * off:.2g} % of the largest gradient, in {worst}", False, rows.ratio, "other")


def _rounding(both: Compared) -> Outcome | None:
    """A difference that is larger than the tolerance of a narrow dtype, and still small."""
    rows = fit(both.first.rows, both.second.rows)
    off = float((both.second.rows - both.first.rows).abs().max()) / max(rows.size, 1e-300)
    if not both.narrow or off > 10 * both.tolerance or cosine_of(both) < LIKE:
        return None
    said = (
        f"differ by {100 * off:.2g} % of the largest gradient, by rounding: the tolerance is {100 * both.tolerance:g} %"
    )
    return Outcome(f"{said}; cosine {cosine_of(both):.4f}", False, rows.ratio, "rounding")


QUESTIONS: tuple[Callable[[Compared], Outcome | None], ...] = (
    _unusable,
    _scaled,
    _along_rows,
    _rounding,
    _exchanged,
    _opposite,
    _mini_batch,
    _misaligned,
    _own_positive,
    _blocks,
    _sources,
    another_temperature,
    _push,
    _some_rows,
)
