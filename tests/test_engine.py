"""The engine against dense float64: every reader on every kind of input, whatever the tile, kernel, product, stack."""

import functools
import math
import os
import sys
from dataclasses import dataclass, replace

import pytest
import torch
from torch.nn.functional import normalize

import children
import reference
from cocos import engine, losses
from cocos.base.errors import InputError
from cocos.counting import statistics, weights
from cocos.embeddings import Embeddings, scores
from cocos.embeddings.sampling import Batch
from cocos.engine import bounds, readers, sweep
from cocos.engine.kernel import structs

TILE = (96, 112)  # divides none of the inputs
ROUNDING = 4e-7  # of a float32 score of unit vectors; 1e-7 to 3e-7 were measured
SUMS = 1e-5  # relative error of float32 exponentials and their sums
TIE = 1e-9  # relative difference of a share and eps below which float64 sums, in any order, need not agree
FAR = 1e-6  # share of all the candidates that a reader leaves out as too far
HARD = (  # what breaks careless passes
    "random",
    "clustered",
    "near duplicates",
    "exact duplicates",
    "collapsed",
    "nearly collapsed",
    "ascending",
    "descending",
    "ascending both ways",
    "any length",
    "raw",
)


@dataclass(frozen=True, eq=False)
class Input:
    """A set of rows, and how they are seen."""

    embeddings: Embeddings
    batch: Batch | None = None
    same_group: str = "ignore"

    def seen(self, metric):
        """The rows; in one direction where the metric is not the same from the other side."""
        both = metric != "cosine_dot"
        return self.embeddings if both else self.embeddings.replace(directions=self.embeddings.directions[:1])

    def view(self, metric="cosine", product="float32"):
        rows = self.seen(metric)
        return engine.view(rows, self.batch, metric=metric, same_group=self.same_group, product=product)

    def pairs(self, metric="cosine"):
        """Dense scores in float64, as the queries of each direction see them."""
        return dense(self, metric)


@functools.cache
def dense(given, metric):
    sides = [(given.seen(metric), given.batch)]
    if len(given.seen(metric).directions) == 2:
        sides.append((given.embeddings.flip(), given.batch and given.batch.flip()))
    found = [
        scores.pairs(rows.to(dtype=torch.float64), batch, metric=metric, same_group=given.same_group)
        for rows, batch in sides
    ]
    return [replace(pairs, scores=reference.alike(pairs.embeddings, metric)) for pairs in found]


def drawn(number, width, seed=0):
    return torch.randn(number, width, generator=torch.Generator().manual_seed(seed))


def near(centre, noise, seed):
    """Unit vectors about others; with a noise of 2 their cosines are about 0.45."""
    return normalize(centre + noise * normalize(drawn(*centre.shape, seed), dim=1), dim=1)


def pairs_of(number, width):
    query = normalize(drawn(number, width), dim=1)
    return query, near(query, 2.0, 1)


def along(part, seed):
    """Unit vectors whose cosines to one axis are given."""
    axis = normalize(drawn(1, 16), dim=1)
    beside = drawn(len(part), 16, seed)
    beside = normalize(beside - (beside @ axis.T) * axis, dim=1)
    return part[:, None] * axis + (1 - part.square()).sqrt()[:, None] * beside


def ordered(query, candidate):
    """Scores that rise or fall along the rows and the columns."""
    return Embeddings(along(torch.linspace(*query, 141), 1), along(torch.linspace(*candidate, 141), 2))


@functools.cache
def inputs():
    """Every kind of input, by its name."""
    query, candidate = pairs_of(150, 24)
    many = pairs_of(331, 16)
    classes = near(normalize(drawn(4, 24, 2), dim=1).repeat_interleave(64, dim=0), 0.4, 3)
    twins = torch.arange(331) // 3
    some = torch.randperm(331, generator=torch.Generator().manual_seed(3))[:140]
    lengths = torch.logspace(-20, 20, 150)[:, None]
    uneven = torch.cat([torch.zeros(140), torch.ones(18), torch.arange(2, 22)]).long()
    same = torch.full((100, 8), 0.3)
    tall = near(query[torch.arange(1025) % 31], 2.0, 4)
    return {
        "random": Input(Embeddings(query, candidate)),
        "clustered": Input(Embeddings(classes, near(classes, 0.4, 4))),
        "near duplicates": Input(
            Embeddings(near(query[:20].repeat(8, 1), 1e-4, 2), near(candidate[:20].repeat(8, 1), 1e-4, 3))
        ),
        "exact duplicates": Input(Embeddings(query[:20].repeat(8, 1), candidate[:20].repeat(8, 1))),
        "collapsed": Input(Embeddings(same, same)),
        "nearly collapsed": Input(Embeddings(near(same, 1e-3, 1), near(same, 1e-3, 2))),
        "ascending": Input(ordered((0.9, 0.9), (-0.5, 0.9))),
        "descending": Input(ordered((0.9, 0.9), (0.9, -0.5))),
        "ascending both ways": Input(ordered((0.1, 0.9), (-0.5, 0.9))),
        "any length": Input(Embeddings(query * lengths, candidate * lengths.flip(0))),
        "raw": Input(Embeddings(1.7 * query, 0.8 * candidate)),
        "shard": Input(Embeddings.labelled(query, torch.arange(150) % 40), Batch(some % 90, torch.arange(150), False)),
        "drawn twice": Input(Embeddings.labelled(query, torch.arange(150) % 40), Batch(some % 99, some % 99, False)),
        "int32": Input(Embeddings(*many, twins, twins), Batch(some.int(), some.int(), paired=True)),
        "captions": Input(Embeddings(many[0][:50], many[1][:250], torch.arange(50), torch.arange(250) * 7 % 50)),
        "labelled": Input(Embeddings.labelled(many[0][:140], torch.cat([torch.arange(139) % 33, torch.tensor([99])]))),
        "many positives": Input(Embeddings.labelled(many[0][:90], torch.arange(90) % 3)),
        "many positives, twins": Input(Embeddings.labelled(many[0][:30].repeat(3, 1), torch.arange(90) // 30)),
        "uneven classes": Input(Embeddings.labelled(many[0][:178], uneven)),
        "proxies": Input(Embeddings.labelled(many[0], torch.arange(331) % 40, many[1][:120], torch.arange(120) % 40)),
        "paired": Input(Embeddings(*many, twins, twins), Batch(some, some, paired=True)),
        "paired, negative": Input(Embeddings(*many, twins, twins), Batch(some, some, paired=True), "negative"),
        "paired apart": Input(Embeddings(*many, twins, twins), Batch(some, some // 3 * 3, paired=True)),
        "grouped batch": Input(Embeddings(*many, twins, twins), Batch(some[:90], some[40:], paired=False)),
        "near and far": Input(
            Embeddings(
                query[:75],
                torch.cat([near(query[:75], 0.2, 7), drawn(75, 24, 8)]),
                torch.arange(75),
                torch.arange(150) % 75,
            )
        ),
        "few duplicates": Input(Embeddings(query, torch.cat([candidate[:145], candidate[3:8]]))),
        "float16": Input(Embeddings(query.half(), candidate.half())),
        "bfloat16": Input(Embeddings(query.bfloat16(), candidate.bfloat16())),
        "float64": Input(Embeddings(normalize(drawn(150, 24).double(), dim=1), candidate.double())),
        "beyond float32": Input(Embeddings(query[:90].double() * 1e-300, candidate[:90].double() * 1e300)),
        "strided": Input(Embeddings(drawn(16, 120).T, drawn(120, 40, 1)[:, 8:24])),
        "one query": Input(Embeddings(query[:1], candidate[:50], torch.zeros(1).long(), torch.arange(50))),
        "one candidate": Input(Embeddings(query[:50], candidate[:1], torch.arange(50), torch.zeros(1).long())),
        "one pair": Input(Embeddings(query[:1], candidate[:1])),
        "two pairs": Input(Embeddings(query[:2], candidate[:2])),
        "wide": Input(Embeddings(query[:17], tall[:1000], torch.arange(17), torch.arange(1000) % 62)),
        "tall": Input(Embeddings(tall, query[:31], torch.arange(1025) % 40, torch.arange(31))),
        "no negative": Input(Embeddings(query[:40], candidate[:9], torch.arange(40) // 30, torch.zeros(9).long())),
        "no positive": Input(Embeddings(query[:60], candidate[:90], torch.arange(60), torch.arange(90) + 20)),
    }


def visited(given, asked, *, product="float32", tile=TILE, relative=True):
    """What one pass says to readers of losses of one metric, which are given as (loss, eps)."""
    view = given.view(asked[0][0].metric, product)
    found = engine.run(view, [readers.of(loss, eps, relative=relative) for loss, eps in asked], tile=tile)
    return [(loss, eps, result) for (loss, eps), result in zip(asked, found, strict=True)]


def steepness(loss):
    """How fast the logarithm of a share changes with the score."""
    fixed = getattr(loss, "softmax_scale", None) or getattr(loss, "scale", None)
    return fixed or 1 / getattr(loss, "temperature", float("inf"))


def blur(pairs, metric):
    """How far a float32 score of each query may be off, (Q,), by the sizes that are multiplied."""
    one = torch.full_like(pairs.scores[:, 0], ROUNDING)
    left, right = pairs.query_norm.max(), pairs.candidate_norm.max()
    square = 2 * (left + right).square() * one
    if metric == "euclidean":
        nearest = pairs.scores.masked_fill(~pairs.negative, -torch.inf).amax(dim=1).abs()
        return (square / nearest).minimum(square.sqrt())
    return {"cosine": one, "cosine_dot": right * one, "dot": left * right * one, "squared_euclidean": square}[metric]


def tied(loss, share, pairs, eps):
    """Negatives whose share is eps, or that lie on a hinge, as near as float64 can tell, (Q,)."""
    ties = (share - eps).abs() <= TIE * eps
    if loss.hinge:
        size = 2 * bounds.TIE_WIDTH * max(1.0, pairs.scores.abs().max().item())
        bars = (pairs.scores - loss.margin).masked_fill(~pairs.positive, torch.inf).sort(dim=1).values
        first = torch.searchsorted(bars, pairs.scores - size)
        ties |= torch.searchsorted(bars, pairs.scores + size, right=True) > first
    return (ties & pairs.negative).sum(dim=1)


@functools.lru_cache(maxsize=100)
def weighed(loss, pairs):
    """Shares of all candidates in float64, what does not hang on eps, and the room that float32 sums have."""
    weight, unit = weights.of(loss, pairs), loss.unit(pairs)
    share, part = weight.abs() / unit, statistics.spread(weight, pairs)
    error = torch.expm1(steepness(loss) * blur(pairs, loss.metric)) + SUMS
    whole = unit.expand_as(share)[:, 0]
    positive, push, pull = statistics.weight_positive(share, pairs), statistics.push(weight), statistics.pull(weight)
    hardest, effective = statistics.hardest_share(part), statistics.effective(part)
    participation = statistics.participation(part)
    return (
        share,
        error,
        {
            "weight_positive": (positive, error * (1 + positive)),
            "push": (push, error * (whole + push)),
            "pull": (pull, error * (whole + pull)),
            "hardest_share": (hardest, error * hardest),
            "effective": (effective, 2 * error * effective),
            "participation": (participation, 2 * error * participation),
        },
    )


def check_counts(found, loss, eps, pairs, what, *, settled=True):
    """One direction against all weights in float64; the number of queries that were compared.

    A count is right where nothing is uncertain, and right within that many elsewhere. Where the reader looks again in
    float64 (`settled`), only what is a tie there too may be uncertain.
    """
    share, _, _ = weighed(loss, pairs)
    unsure, truth = found["uncertain"], statistics.contributing(share, pairs, eps)
    off = (found["contributing"] - truth).abs()
    assert (off <= unsure).all(), f"{what}: {int((off > unsure).sum())} counts are wrong, by up to {int(off.max())}"
    if settled:
        ties = tied(loss, share, pairs, eps)
        assert (unsure <= ties).all(), f"{what}: {int(unsure.sum())} are uncertain, and {int(ties.sum())} are ties"
    assert torch.equal(found["negatives"], pairs.negative.sum(dim=1)), f"{what}: negatives"
    if "relative" in found:
        part = statistics.spread(weights.of(loss, pairs), pairs)
        unsure, off = found["relative_uncertain"], (found["relative"] - statistics.relative(part, eps)).abs()
        assert (off <= unsure).all(), f"{what}: {int((off > unsure).sum())} relative counts are wrong"
        near = tied(loss, part, pairs, eps)
        near = torch.where(near > 0, len(pairs.scores[0]), 0) if loss.hinge else near
        assert not settled or (unsure <= near).all(), f"{what}: {int(unsure.sum())} relative counts are uncertain"
    return len(truth)


def check(found, loss, eps, pairs, what, *, settled=True):
    """`check_counts`, and every sum as near as float32 scores allow."""
    share, error, right = weighed(loss, pairs)
    above, below = (function(share, pairs, eps) for function in (statistics.weight_above, statistics.weight_below))
    moved = found["uncertain"] * eps * (1 + TIE) + FAR
    right = right | {
        "weight_above": (above, error * above + moved),
        "weight_below": (below, error * (above + below) + moved),
    }
    decided = found["uncertain"] == 0 if loss.hinge else torch.ones_like(above, dtype=torch.bool)
    for name in sorted(right.keys() & found.keys()):
        want, room = right[name]
        off = (found[name] - want).abs()
        assert not (off > room + 1e-12)[decided].any(), f"{what}: {name} is off by up to {off[decided].max():.3g}"
        assert not off[decided].isnan().any(), f"{what}: {name} is not a number"
    if "eq7" in found:
        assert torch.equal(found["eq7"], loss.eq7(pairs, eps)), f"{what}: eq7"
    assert {"weight_above", "weight_below", "weight_positive", "push", "pull"} <= found.keys(), what
    return check_counts(found, loss, eps, pairs, what, settled=settled)


def check_all(given, asked, what):
    """`check` in every direction for several readers of one metric, which share a pass."""
    compared = 0
    for loss, eps, found in visited(given, asked):
        for direction, pairs in zip(found, given.pairs(loss.metric), strict=True):
            compared += check(direction, loss, eps, pairs, f"{what}, {loss}, eps {eps}")
    return compared


READ = [name for name in losses.names() if readers.has(losses.load(name))]
REST = [name for name in losses.names() if name not in READ]
CORE = ("ce_softmax", "ntxent", "siglip", "supcon", "triplet", "warped_softmax")
SOME = ("random", "raw", "captions", "labelled", "many positives", "proxies", "paired", "no negative")
LENGTHS = {"any length", "beyond float32"}  # that no metric but the cosine allows


@pytest.mark.parametrize("name", READ)
def test_every_reader_finds_what_all_weights_in_float64_say(name):
    loss = losses.load(name)
    names = (
        SOME if name not in CORE else inputs().keys() - (LENGTHS if loss.metric != "cosine" else set()) - {*HARD[3:9]}
    )
    compared = sum(check_all(inputs()[kind], [(loss, 0.01)], kind) for kind in sorted(names))
    assert compared > (8000 if name in CORE else 1000)


@pytest.mark.parametrize("name", REST)
def test_other_losses_are_held_or_refused(name):
    loss = losses.load(name)
    if loss.couples != "query" or loss.wide:
        assert readers.of(loss) is None
        return
    if loss.metric not in engine.PRODUCT_METRICS:
        with pytest.raises(InputError, match=loss.metric):
            inputs()["random"].view(loss.metric)
        return
    for key in ("captions", "labelled", "paired"):
        ((_, _, found),) = visited(inputs()[key], [(loss, 0.01)])
        for direction, pairs in zip(found, inputs()[key].pairs(loss.metric), strict=True):
            check(direction, loss, 0.01, pairs, f"{key}, {name}")


@pytest.mark.parametrize("kind", HARD)
def test_counts_at_every_temperature_and_threshold(kind):
    asked = []
    for temperature in (0.2, 0.05, 0.005):
        sharp = {"temperature": temperature}
        asked += [(losses.load("ntxent", sharp), eps) for eps in (0.01, 1e-4)]
    asked += [(losses.load("ntxent", {"temperature": 0.05}), eps) for eps in (0.0, 0.5)]
    asked += [(losses.load("supcon", {"temperature": temperature}), 1e-4) for temperature in (0.2, 0.005)]
    asked += [
        (losses.load("ce_softmax", {"scale": scale}), eps) for scale, eps in ((5.0, 0.01), (200.0, 1e-4), (5.0, 0.0))
    ]
    assert check_all(inputs()[kind], asked, kind) >= 13 * 2 * 100


@pytest.mark.parametrize("kind", [*HARD, "few duplicates", "captions", "labelled", "many positives", "no negative"])
def test_sigmoids_at_every_scale_bias_and_threshold(kind):
    """Also where all negatives of a query are so far below the bias that their sigmoids cannot be summed."""
    asked = [
        (losses.load("siglip", {"scale": scale, "bias": bias}), eps)
        for scale, bias in ((10.0, -10.0), (117.0, -12.9), (30.0, 0.0), (5.0, 40.0), (20.0, -90.0))
        for eps in (0.01, 1e-4, 0.0)
    ]
    asked += [(losses.load("siglip"), eps) for eps in (1 / (1 + math.exp(10)), 1e-9, 1.0, 3.0)]
    assert check_all(inputs()[kind], asked, kind) >= 30 * len(asked)


def test_a_share_that_is_eps_is_reported(plain):
    """Equal scores whose probability is eps to the last digit: above in no arithmetic, and uncertain in every one."""
    same = torch.full((20, 8), 0.25)
    given, loss = Input(Embeddings(same, same)), losses.load("siglip", {"scale": 3.0, "bias": -3.0})
    for use in (lambda: None, plain):
        use()
        ((_, _, found),) = visited(given, [(loss, 0.5)])
        for each in found:
            assert (each["uncertain"] == 19).all() and (each["contributing"] <= 19).all()
            assert torch.allclose(each["weight_above"] + each["weight_below"], torch.tensor(9.5, dtype=torch.float64))


@pytest.mark.parametrize(
    "kind", [*HARD, "few duplicates", "captions", "labelled", "many positives", "paired, negative"]
)
def test_hinges_at_every_margin_and_threshold(kind):
    asked = [
        (losses.load(name, {"margin": margin}), eps)
        for name in ("triplet", "triplet_sh")
        for margin in (0.0, 0.2)
        for eps in (0.01, 1.0, 2.5)
    ]
    assert check_all(inputs()[kind], asked, kind) >= len(asked) * 90


@dataclass(frozen=True)
class Of:
    """A loss on another metric than its own."""

    loss: object
    metric: str

    def __getattr__(self, name):
        return getattr(self.loss, name)


@pytest.mark.parametrize("metric", ["dot", "cosine_dot", "euclidean", "squared_euclidean"])
def test_counts_on_every_metric(metric):
    asked = [(Of(losses.load(name), metric), 0.01) for name in ("ntxent", "supcon", "triplet", "siglip")]
    names = ("random", "clustered", "near duplicates", "raw", "captions", "labelled", "float16", "float64", "strided")
    assert sum(check_all(inputs()[kind], asked, f"{kind}, {metric}") for kind in names) > 3000


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_distances_far_from_the_origin(dtype):
    rows = [side.double() + 1000 for side in pairs_of(150, 24)]
    given = Input(Embeddings(*(side.to(dtype) for side in rows)))
    check_all(given, [(losses.load("triplet_euclidean"), 0.01)], "far away")
    check_all(given, [(losses.load("warped_softmax"), 0.01)], "far away")


FAMILY = (  # of one metric, so that they share a pass
    (losses.load("ntxent", {"temperature": 0.05}), 0.01),
    (losses.load("ntxent", {"temperature": 0.005}), 0.01),
    (losses.load("supcon"), 1e-4),
    (losses.load("ce_softmax"), 0.01),
    (losses.load("triplet"), 0.01),
    (losses.load("triplet", {"margin": 0.0}), 0.01),  # duplicates are ties of it
    (losses.load("triplet_sh"), 0.01),
    (losses.load("siglip"), 0.01),
    (losses.load("siglip", {"scale": 60.0, "bias": -20.0}), 1e-3),
)
DISTANCES = (
    (losses.load("warped_softmax"), 0.01),
    (losses.load("triplet_euclidean", {"margin": 0.2}), 0.01),
)


def assert_same(loss, found, other, what):
    """Whole numbers are equal, sums to the rounding of float32 scores and sums in another order."""
    room = SUMS + 2 * ROUNDING * steepness(loss) + (1e-4 if loss.metric == "euclidean" else 0)
    for mine, theirs in zip(found, other, strict=True):
        assert mine.keys() == theirs.keys()
        for name, values in mine.items():
            off = (values - theirs[name]).abs()
            some = values + mine["weight_above"] if name == "weight_below" else values  # it is what is left over
            assert (off <= (room * some + FAR if values.is_floating_point() else 0)).all(), f"{what}, {loss}: {name}"


def few(given, number=30):
    """Some queries of an input, for tiles of one row."""
    rows = [torch.arange(len(side)) for side in (given.embeddings.query, given.embeddings.candidate)]
    batch = given.batch or Batch(*rows, paired=False)
    many = number if batch.paired else 2 * number
    return replace(given, batch=Batch(batch.query_index[:number], batch.candidate_index[:many], batch.paired))


@pytest.mark.parametrize(
    "kind", ["random", "clustered", "exact duplicates", "labelled", "many positives", "paired", "all"]
)
def test_nothing_depends_on_the_tile(kind):
    whole = kind == "all"  # more rows than a strip of the kernel, and more than a tile
    given = Input(Embeddings(*pairs_of(600, 16))) if whole else few(inputs()[kind])
    for asked in (FAMILY, DISTANCES):
        first = visited(given, asked, tile=(1024, 1024))
        for tile in ((256, 256), (300, 100), None) if whole else ((37, 48), (1, 16)):
            for (loss, _, found), (_, _, other) in zip(first, visited(given, asked, tile=tile), strict=True):
                assert_same(loss, found, other, f"{kind}, {tile}")


@pytest.fixture
def plain(monkeypatch):
    """Tiles are seen by torch."""
    return lambda: monkeypatch.setattr(structs, "loaded", lambda: None)


@pytest.mark.parametrize("kind", ["random", "clustered", "exact duplicates", "captions", "labelled", "wide"])
def test_torch_finds_what_the_kernel_finds(kind, plain):
    given = inputs()[kind]
    compiled = [visited(given, asked) for asked in (FAMILY, DISTANCES)]
    plain()
    for asked, first in zip((FAMILY, DISTANCES), compiled, strict=True):
        for (loss, _, found), (_, _, other) in zip(first, visited(given, asked), strict=True):
            assert_same(loss, found, other, kind)


def stacked(given, sizes):
    """The rows of an input in batches of some sizes."""
    batch = few(given, len(given.embeddings.query)).batch
    every = [each.split(sizes) for each in (batch.query_index, batch.candidate_index)]
    number = min(map(len, every))
    return [Batch(q, c, batch.paired) for q, c in zip(every[0][:number], every[1][:number], strict=True)]


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("random", 16),
        ("labelled", 16),
        ("clustered", 30),
        ("proxies", 30),
        ("paired", 30),
        ("float16", 30),
        ("exact duplicates", 128),
        ("paired", 128),
    ],
)
def test_a_stack_finds_what_its_batches_find_alone(kind, sizes):
    given = inputs()[kind]
    batches = stacked(given, sizes)
    for asked in (FAMILY, DISTANCES):
        together = visited(replace(given, batch=tuple(batches)), asked)
        alone = [visited(replace(given, batch=batch), asked) for batch in batches]
        for k, (loss, _, found) in enumerate(together):
            each = [one[k][2] for one in alone]
            joined = [{name: torch.cat([one[d][name] for one in each]) for name in found[d]} for d in range(len(found))]
            assert_same(loss, found, joined, f"{kind}, batches of {sizes}")


@pytest.mark.parametrize("name", READ)
def test_one_large_batch_is_cut_into_parts_whatever_the_loss(name, monkeypatch):
    """Which threads share: a reader that is not cut is seen by one."""
    loss, seen, cut = losses.load(name), [], sweep.parts_of
    monkeypatch.setattr(sweep, "parts_of", lambda *given, **how: seen.append(cut(*given, **how)) or seen[-1])
    visited(Input(Embeddings(*pairs_of(600, 16))), [(loss, 0.01)])
    assert seen and all(len(parts) == 3 for parts in seen)


@pytest.mark.parametrize("fused", [True, False])
def test_the_number_of_threads_changes_no_bit(monkeypatch, plain, fused):
    if not fused:
        plain()
    given = Input(Embeddings(*pairs_of(700, 16)))
    first = visited(given, FAMILY, tile=(600, 512))
    monkeypatch.setattr(sweep, "workers", lambda: 3)
    second = visited(given, FAMILY, tile=(600, 512))
    for (loss, _, found), (_, _, other) in zip(first, second, strict=True):
        for mine, theirs in zip(found, other, strict=True):
            for name, values in mine.items():
                assert torch.equal(values, theirs[name]), f"{loss}: {name}"


@pytest.mark.parametrize("way", ["compiled", "plain"])
def test_a_share_that_is_eps_is_never_decided_silently(way, plain):
    """Of a hundred candidates that are all the same, each holds a hundredth of the softmax."""
    if way == "plain":
        plain()
    given = inputs()["collapsed"]
    for name in ("ntxent", "supcon", "normalized_softmax"):
        for eps, counted, uncertain in ((0.01, None, 99), (0.01 * (1 + 1e-8), 0, 0), (0.01 * (1 - 1e-8), 99, 0)):
            ((_, _, found),) = visited(given, [(losses.load(name), eps)])
            for direction in found:
                assert (direction["uncertain"] == uncertain).all(), f"{name}, {eps}"
                assert counted is None or (direction["contributing"] == counted).all(), f"{name}, {eps}"


@pytest.mark.parametrize("name", [name for name in READ if losses.load(name).metric == "cosine"])
def test_a_threshold_at_one_of_the_shares_is_a_tie(name):
    loss = losses.load(name)
    if loss.hinge:  # not its shares, which are whole numbers, but its scores tie
        loss = losses.load(name, {"margin": 0.0})
    for kind in ("random", "exact duplicates", "collapsed", "captions"):
        given = inputs()[kind]
        share, _, _ = weighed(loss, given.pairs()[0])
        eps = 0.01 if loss.hinge else share[3][given.pairs()[0].negative[3]].topk(2).values[1].item()
        ((_, _, found),) = visited(given, [(loss, eps)])
        for direction, pairs in zip(found, given.pairs(), strict=True):
            check_counts(direction, loss, eps, pairs, f"{kind}, {name}")
        if not loss.hinge or kind in {"exact duplicates", "collapsed"}:
            assert found[0]["uncertain"][3] > 0, f"{kind}, {name}: decided silently"


@pytest.mark.parametrize("name", ["triplet", "triplet_sh"])
@pytest.mark.parametrize(("level", "eps", "uncertain"), [(0, 0.01, 1), (1, 0.01, 0), (0, 1.5, 0), (1, 1.5, 1)])
def test_a_tie_with_a_hinge_is_uncertain_where_it_decides(name, level, eps, uncertain):
    """A negative as high as the lower, or the higher, of two positives, where it must violate one of them, or both."""
    query = normalize(drawn(6, 16), dim=1)
    candidate, group = near(query.repeat(2, 1), 0.3, 1), torch.arange(12) % 6
    positives = (query[:1] @ candidate[[0, 6]].T).argsort()[0] * 6
    twin = candidate[positives[level]][None]
    given = Input(Embeddings(query, torch.cat([candidate, twin]), torch.arange(6), torch.cat([group, group[-1:] + 1])))
    ((_, _, found),) = visited(given, [(losses.load(name, {"margin": 0.0}), eps)])
    assert found[0]["uncertain"][0] == uncertain
    assert found[0]["contributing"][0] == (level == 1 and eps < 1)


def test_the_interval_holds_the_truth_in_float64():
    for kind in ("near duplicates", "captions", "raw"):
        for asked in (FAMILY, DISTANCES):
            for loss, eps, found in visited(inputs()[kind], asked, product="float64"):
                for direction, pairs in zip(found, inputs()[kind].pairs(loss.metric), strict=True):
                    check_counts(direction, loss, eps, pairs, f"{kind}, {loss}", settled=False)


@pytest.mark.parametrize("product", list(engine.PRODUCTS))
@pytest.mark.parametrize("metric", engine.PRODUCT_METRICS)
def test_no_score_is_further_off_than_stated(metric, product):
    signs = torch.ones(64, 512)
    signs[1::2, 1::2] = -1
    names = ("random", "near duplicates", "raw", "captions", "labelled", "bfloat16", "float64")
    given = {name: inputs()[name] for name in names}
    given["signs"] = Input(Embeddings(signs / 3, signs.flip(0) * (1 + drawn(64, 1).abs()) / 3))
    given["far away"] = Input(Embeddings(drawn(60, 16).double() + 100, drawn(60, 16, 1).double() + 100))
    if metric == "cosine":
        given |= {name: inputs()[name] for name in LENGTHS}
        given["longest"] = Input(Embeddings(drawn(50, 64) * 1e37, drawn(50, 64, 1) * 5e37))
        given["shortest"] = Input(Embeddings(drawn(50, 64) * 1e-40, drawn(50, 64, 1) * 1e-30))
    worst = 0.0
    for name, each in given.items():
        view, pairs = each.view(metric, product), each.pairs(metric)[0]
        for part in sweep.parts_of(view):
            for tile in sweep.tiles_of(view, TILE, part):
                right = pairs.scores[view.sides[0].place[tile.rows, None], view.sides[1].place[tile.columns]]
                found = tile.scores.double()
                off = (found - right).abs() / (view.bound(right) + torch.zeros_like(right))
                off = off[(found > -torch.inf) & ((found - right).abs() > 1e-14)]  # where float64 itself is sure
                assert not (off > 1).any(), f"{name}: off by {off.max():.3g} of what is stated"
                worst = max(worst, off.max().item() if off.numel() else 0.0)
    assert product == "float64" or worst > 0.02, f"no score uses more than {worst:.2g} of the bound"


def by_hand(pairs, tie):
    """Positive pairs of every query, with the negatives above and those as high, one comparison at a time."""
    for query, row in enumerate(pairs.scores.tolist()):
        negative = [score for score, is_one in zip(row, pairs.negative[query].tolist(), strict=True) if is_one]
        for candidate in pairs.positive[query].nonzero().flatten().tolist():
            above = sum(score > row[candidate] + tie for score in negative)
            ties = sum(abs(score - row[candidate]) <= tie for score in negative)
            yield query, candidate, above, ties, row[candidate]


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
def test_ranks_are_those_of_a_slow_loop(metric):
    """Ties are counted on their own, so that a rank can be told pessimistically; also of above 16 positives a query."""
    compared, tied = 0, 0
    for kind in SOME if metric != "cosine" else sorted(inputs().keys() - {"tall", "wide"}):
        given = inputs()[kind]
        view = given.view(metric)
        for ranked, pairs in zip(engine.run(view, [readers.Ranks()], tile=TILE)[0], given.pairs(metric), strict=True):
            *right, score = zip(*by_hand(pairs, 1e-12 * max(1.0, view.most)), strict=True)
            for name, values in zip(("query", "candidate", "above", "ties"), right, strict=True):
                assert getattr(ranked, name).tolist() == list(values), f"{kind}: {name}"
            assert torch.allclose(ranked.score, torch.tensor(score, dtype=torch.float64), rtol=1e-12, atol=1e-13), kind
            compared, tied = compared + len(score), tied + sum(number > 0 for number in right[3])
    assert compared > (30_000 if metric == "cosine" else 5000) and (tied > 500 or metric != "cosine")


@pytest.mark.parametrize("way", ["compiled", "plain"])
@pytest.mark.parametrize(("apart", "above"), [(3e-13, False), (-3e-13, False), (3e-12, True)])
def test_scores_within_the_tie_are_ties_and_not_above(way, plain, apart, above):
    """Each query has one negative whose score is that of its positive but for `apart`, a little more than it rounds."""
    if way == "plain":
        plain()
    query = normalize(drawn(40, 16).double(), dim=1)
    candidate = normalize(near(query, 1.0, 1), dim=1)
    twins = normalize(candidate + 1.5 * apart * query, dim=1)
    others = drawn(900, 16, 2).double()  # so that few pairs are undecided
    groups = torch.arange(980)
    given = Input(Embeddings(query, torch.cat([candidate, twins, others]), groups[:40], groups, directions=("q2c",)))
    pairs = given.pairs()[0]
    rank = (pairs.scores[:, 40:80].diagonal() - pairs.scores[:, :40].diagonal()).sign()
    assert (rank == (1 if apart > 0 else -1)).all(), "float64 tells them apart"
    (ranked,) = engine.run(given.view(), [readers.Ranks()])[0]
    _, _, over, ties, _ = zip(*by_hand(pairs, 1e-12), strict=True)
    assert ranked.above.tolist() == list(over) and ranked.ties.tolist() == list(ties)
    assert ((ranked.ties > 0) != above).sum() > 35


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_precision_and_recall_are_those_of_all_pairs(metric):
    compared = 0
    for kind in (*SOME, "exact duplicates", "collapsed", "float64", "one query", "one pair"):
        given = inputs()[kind]
        view, pairs = given.view(metric), given.pairs(metric)[0]
        (curve,) = engine.run(view, [readers.PrecisionRecall()], tile=TILE)
        right = pairs.scores[pairs.positive].sort(descending=True).values
        assert torch.allclose(curve.score, right, rtol=1e-12, atol=1e-13), kind
        above = pairs.scores[pairs.negative] >= right[:, None] - 1e-12 * max(1.0, view.most)
        assert torch.equal(curve.negatives, above.sum(dim=1)), kind
        compared += len(right)
    assert compared > 3000


@pytest.mark.parametrize(
    ("metric", "low", "high"), [("cosine", -1.0, 1.0), ("cosine", -0.2, 0.3), ("euclidean", -2.0, 0.0)]
)
def test_histograms_hold_every_negative_in_its_bin(metric, low, high):
    compared = 0
    for kind in (*SOME, "tall", "exact duplicates", "float64", "one query", "one pair"):
        given = inputs()[kind]
        found = engine.run(given.view(metric), [readers.Histogram(24, low, high)], tile=TILE)[0]
        for count, pairs in zip(found, given.pairs(metric), strict=True):
            place = (pairs.scores - low) / (high - low) * 24
            edge = (((place - place.round()).abs() < 1e-4) & pairs.negative).sum(dim=1)
            right = torch.zeros_like(count).scatter_add_(1, place.floor().clamp(0, 23).long(), pairs.negative.long())
            assert torch.equal(count.sum(dim=1), pairs.negative.sum(dim=1)), kind
            assert ((count - right).abs().sum(dim=1) <= 2 * edge).all(), kind
            compared += int((edge == 0).sum())
    assert compared > 2000


@pytest.mark.parametrize(
    ("bins", "low", "high"),
    [
        (0, -1.0, 1.0),
        (4, 1.0, -1.0),
        (4, 1.0, 1.0),
        (64, 0.0, 1e-37),
        (2**31, 0.0, 1.0),
        (4, -float("inf"), 0.0),
        (4, 0.0, float("inf")),
        (4, float("nan"), 1.0),
    ],
)
def test_a_histogram_without_room_is_refused(bins, low, high):
    with pytest.raises(InputError, match=f"{bins} bins from {low} to {high}"):
        readers.Histogram(bins, low, high)


def test_what_no_product_gives_is_refused():
    rows = Embeddings(*pairs_of(20, 8))
    for metric, named in (("mahalanobis", "mahalanobis"), ("cosine_dot", "each direction has its own product")):
        with pytest.raises(InputError, match=named):
            engine.view(rows, metric=metric)
    with pytest.raises(InputError, match="float16"):
        engine.view(rows, product="float16")
    for metric in ("dot", "euclidean"):
        with pytest.raises(InputError, match="beyond the range of float32"):
            inputs()["any length"].view(metric)


MEMORY = """
import ctypes, gc, torch
from cocos import engine, losses
from cocos.embeddings import Embeddings
from cocos.engine import readers

def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024

def visit(rows):
    view = engine.view(rows)
    asked = [readers.of(losses.load(name)) for name in ("ntxent", "triplet")]
    return engine.run(view, asked)

torch.set_num_threads(1)
small, large = (Embeddings(*torch.randn(2, number, 64)) for number in (1100, 16384))
visit(small)
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
with open("/proc/self/clear_refs", "w") as reset:
    reset.write("5")
before = status("VmRSS")
visit(large)
print(status("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak")
def test_a_gibibyte_of_scores_takes_64_mebibytes():
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "262144"}
    done = children.python(MEMORY, env=environment)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 64
