"""The engine against dense float64: readers on every kind of input, whatever the kernel, tile, stack and threads."""

import functools
import math
import os
import sys
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import normalize

import children
from benchmarks import exactness
from benchmarks.exactness import Case
from cocos import engine, losses
from cocos.base.errors import InputError
from cocos.embeddings import Embeddings
from cocos.embeddings.sampling import Batch
from cocos.engine import native, plain, readers, sums, sweep

TILE = (96, 112)  # divides none of the inputs
HARD = ("random", "clustered", "near duplicates", "exact duplicates", "collapsed", "nearly collapsed", "ascending",
        "descending", "ascending both ways", "any length", "raw")  # fmt: skip
LENGTHS = {"any length", "beyond float32"}  # only for cosines
SOME = ("random", "raw", "captions", "labelled", "many positives", "proxies", "paired", "no negative")
CORE = ("ce_softmax", "ntxent", "siglip", "supcon", "triplet", "warped_softmax")
NAMES = [name for name in losses.names() if (loss := losses.load(name)).couples == "query" and not loss.wide
         and loss.metric in engine.PRODUCT_METRICS or readers.has(loss)]  # fmt: skip
KERNELS = ("compiled", "plain")


@pytest.fixture
def kernel(request, monkeypatch):
    """Switch the compiled kernel off if a test asks for the plain one."""
    if request.param == "plain":
        monkeypatch.setattr(native, "library", lambda: None)
        monkeypatch.setattr(plain, "PIECE_SCORES", 2**8)


def make(name, **parameters):
    return losses.load(name, parameters)


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
        "random": Case(Embeddings(query, candidate)),
        "clustered": Case(Embeddings(classes, near(classes, 0.4, 4))),
        "near duplicates": Case(
            Embeddings(near(query[:20].repeat(8, 1), 1e-4, 2), near(candidate[:20].repeat(8, 1), 1e-4, 3))
        ),
        "exact duplicates": Case(Embeddings(query[:20].repeat(8, 1), candidate[:20].repeat(8, 1))),
        "collapsed": Case(Embeddings(same, same)),
        "nearly collapsed": Case(Embeddings(near(same, 1e-3, 1), near(same, 1e-3, 2))),
        "ascending": Case(ordered((0.9, 0.9), (-0.5, 0.9))),
        "descending": Case(ordered((0.9, 0.9), (0.9, -0.5))),
        "ascending both ways": Case(ordered((0.1, 0.9), (-0.5, 0.9))),
        "any length": Case(Embeddings(query * lengths, candidate * lengths.flip(0))),
        "raw": Case(Embeddings(1.7 * query, 0.8 * candidate)),
        "shard": Case(Embeddings.labelled(query, torch.arange(150) % 40), Batch(some % 90, torch.arange(150), False)),
        "drawn twice": Case(Embeddings.labelled(query, torch.arange(150) % 40), Batch(some % 99, some % 99, False)),
        "int32": Case(Embeddings(*many, twins, twins), Batch(some.int(), some.int(), paired=True)),
        "captions": Case(Embeddings(many[0][:50], many[1][:250], torch.arange(50), torch.arange(250) * 7 % 50)),
        "labelled": Case(Embeddings.labelled(many[0][:140], torch.cat([torch.arange(139) % 33, torch.tensor([99])]))),
        "many positives": Case(Embeddings.labelled(many[0][:90], torch.arange(90) % 3)),
        "many positives, twins": Case(Embeddings.labelled(many[0][:30].repeat(3, 1), torch.arange(90) // 30)),
        "uneven classes": Case(Embeddings.labelled(many[0][:178], uneven)),
        "proxies": Case(Embeddings.labelled(many[0], torch.arange(331) % 40, many[1][:120], torch.arange(120) % 40)),
        "paired": Case(Embeddings(*many, twins, twins), Batch(some, some, paired=True)),
        "paired, negative": Case(Embeddings(*many, twins, twins), Batch(some, some, paired=True), "negative"),
        "paired apart": Case(Embeddings(*many, twins, twins), Batch(some, some // 3 * 3, paired=True)),
        "grouped batch": Case(Embeddings(*many, twins, twins), Batch(some[:90], some[40:], paired=False)),
        "near and far": Case(
            Embeddings(
                query[:75],
                torch.cat([near(query[:75], 0.2, 7), drawn(75, 24, 8)]),
                torch.arange(75),
                torch.arange(150) % 75,
            )
        ),
        "few duplicates": Case(Embeddings(query, torch.cat([candidate[:145], candidate[3:8]]))),
        "float16": Case(Embeddings(query.half(), candidate.half())),
        "bfloat16": Case(Embeddings(query.bfloat16(), candidate.bfloat16())),
        "float64": Case(Embeddings(normalize(drawn(150, 24).double(), dim=1), candidate.double())),
        "beyond float32": Case(Embeddings(query[:90].double() * 1e-300, candidate[:90].double() * 1e300)),
        "strided": Case(Embeddings(drawn(16, 120).T, drawn(120, 40, 1)[:, 8:24])),
        "one query": Case(Embeddings(query[:1], candidate[:50], torch.zeros(1).long(), torch.arange(50))),
        "one candidate": Case(Embeddings(query[:50], candidate[:1], torch.arange(50), torch.zeros(1).long())),
        "one pair": Case(Embeddings(query[:1], candidate[:1])),
        "two pairs": Case(Embeddings(query[:2], candidate[:2])),
        "wide": Case(Embeddings(query[:17], tall[:1000], torch.arange(17), torch.arange(1000) % 62)),
        "tall": Case(Embeddings(tall, query[:31], torch.arange(1025) % 40, torch.arange(31))),
        "no negative": Case(Embeddings(query[:40], candidate[:9], torch.arange(40) // 30, torch.zeros(9).long())),
        "no positive": Case(Embeddings(query[:60], candidate[:90], torch.arange(60), torch.arange(90) + 20)),
    }


# Name -> inputs, and losses of one metric with their eps.
def settings():
    grid = [(make("ntxent", temperature=t), eps) for t in (0.2, 0.05, 0.005) for eps in (0.01, 1e-4)]
    grid += [(make("ntxent", temperature=0.05), eps) for eps in (0.0, 0.5)]
    grid += [(make("supcon", temperature=t), 1e-4) for t in (0.2, 0.005)]
    grid += [(make("ce_softmax", scale=s), eps) for s, eps in ((5.0, 0.01), (200.0, 1e-4), (5.0, 0.0))]
    sigmoids = ((10.0, -10.0), (117.0, -12.9), (30.0, 0.0), (5.0, 40.0), (20.0, -90.0))
    labels = ("few duplicates", "captions", "labelled", "many positives")
    return {
        "softmax": (HARD, grid),
        "sigmoid": (
            (*HARD, *labels, "no negative"),
            [(make("siglip", scale=s, bias=b), eps) for s, b in sigmoids for eps in (0.01, 1e-4, 0.0)]
            + [(make("siglip"), eps) for eps in (1 / (1 + math.exp(10)), 1e-9, 1.0, 3.0)],
        ),
        "hinge": (
            (*HARD, *labels, "paired, negative"),
            [(make(name, margin=m), eps) for name in ("triplet", "triplet_sh") for m in (0.0, 0.2)
             for eps in (0.01, 1.0, 2.5)],
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_reader_equals_dense_float64(name):
    loss = losses.load(name)
    kinds = SOME
    if name in CORE:
        kinds = inputs().keys() - (LENGTHS if loss.metric != "cosine" else set()) - {*HARD[3:9]}
    for kind in sorted(kinds if readers.has(loss) else ("captions", "labelled", "paired")):
        assert not exactness.check(inputs()[kind], [(loss, 0.01)], TILE), kind


@pytest.mark.parametrize("family", ["softmax", "sigmoid", "hinge"])
@pytest.mark.parametrize("kernel", KERNELS, indirect=True)
def test_parameters_equal_dense_float64(family, kernel):
    kinds, questions = settings()[family]
    for kind in kinds:
        assert not exactness.check(inputs()[kind], questions, TILE), kind


class OnMetric:
    """A loss on another metric than its own."""

    def __init__(self, loss, metric):
        self.loss, self.metric = loss, metric

    def __getattr__(self, name):
        return getattr(self.loss, name)


@pytest.mark.parametrize("metric", ["dot", "cosine_dot", "euclidean", "squared_euclidean"])
@pytest.mark.parametrize("kernel", KERNELS, indirect=True)
def test_metric_equals_dense_float64(metric, kernel):
    questions = [(OnMetric(losses.load(name), metric), 0.01) for name in ("ntxent", "supcon", "triplet", "siglip")]
    for kind in (
        "random",
        "clustered",
        "near duplicates",
        "raw",
        "captions",
        "labelled",
        "float16",
        "float64",
        "strided",
    ):
        assert not exactness.check(inputs()[kind], questions, TILE), kind


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_distances_far_from_origin(dtype):
    rows = [(side.double() + 1000).to(dtype) for side in pairs_of(150, 24)]
    for name in ("triplet_euclidean", "warped_softmax"):
        assert not exactness.check(Case(Embeddings(*rows)), [(losses.load(name), 0.01)])


@pytest.mark.parametrize("number", range(40))
def test_random_draw_equals_dense_float64(number):
    text, case, questions = exactness.draw(number, seed=1)
    assert not exactness.check(case, questions, sums=False), text


FAMILY = (  # of one metric each, so that they share a pass
    [(make("ntxent", temperature=0.05), 0.01), (make("ntxent", temperature=0.005), 0.01), (make("supcon"), 1e-4),
     (make("ce_softmax"), 0.01), (make("triplet"), 0.01), (make("triplet", margin=0.0), 0.01),
     (make("triplet_sh"), 0.01), (make("siglip"), 0.01), (make("siglip", scale=60.0, bias=-20.0), 1e-3)],
    [(make("warped_softmax"), 0.01), (make("triplet_euclidean", margin=0.2), 0.01)],
)  # fmt: skip


@pytest.mark.parametrize("tile", [(37, 48), (1, 16), (1024, 1024), None], ids=str)
@pytest.mark.parametrize("kernel", KERNELS, indirect=True)
def test_tiles_change_no_count(tile, kernel):
    for kind in ("clustered", "exact duplicates", "labelled", "many positives", "paired"):
        for questions in FAMILY:
            assert not exactness.check(few(inputs()[kind]), questions, tile), kind


def few(case, number=30):
    """Take some queries of an input."""
    rows = [torch.arange(len(side)) for side in (case.embeddings.query, case.embeddings.candidate)]
    batch = case.batch or Batch(*rows, paired=False)
    columns = batch.candidate_index[: number if batch.paired else 2 * number]
    return replace(case, batch=Batch(batch.query_index[:number], columns, batch.paired))


@pytest.mark.parametrize("kernel", KERNELS, indirect=True)
def test_second_pass_changes_no_count(kernel, monkeypatch):
    monkeypatch.setattr(sums, "MAX_LISTED", 20)
    for kind in ("clustered", "exact duplicates", "labelled"):
        assert not exactness.check(few(inputs()[kind]), FAMILY[0], (16, 24)), kind


@pytest.mark.parametrize("size", [16, 30, 128])
@pytest.mark.parametrize("kernel", KERNELS, indirect=True)
def test_stack_equals_dense_float64(size, kernel):
    for kind in ("random", "labelled", "clustered", "proxies", "paired", "float16", "exact duplicates"):
        case = inputs()[kind]
        batch = few(case, len(case.embeddings.query)).batch
        parts = zip(batch.query_index.split(size), batch.candidate_index.split(size), strict=False)
        batches = tuple(Batch(query, candidate, batch.paired) for query, candidate in parts)
        for questions in FAMILY:
            assert not exactness.check(replace(case, batch=batches), questions), kind


@pytest.mark.parametrize("kernel", KERNELS, indirect=True)
def test_threads_change_no_bit(kernel, monkeypatch):
    case = Case(Embeddings(*pairs_of(700, 16)))

    def run():
        asked = [readers.of(loss, eps, relative=True) for loss, eps in FAMILY[0]]
        results = engine.run(case.view(), [*asked, readers.Ranks(), readers.PrecisionRecall()], tile=(600, 512))
        return [tensor for result in results for tensor in tensors(result)]

    first = run()
    monkeypatch.setattr(sweep, "workers", lambda: 3)
    assert all(torch.equal(one, other) for one, other in zip(first, run(), strict=True))


def tensors(result):
    """Yield all tensors of a result."""
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, dict | list | tuple):
        for value in result.values() if isinstance(result, dict) else result:
            yield from tensors(value)
    else:
        yield from tensors(vars(result))


@pytest.mark.parametrize("name", ["ntxent", "supcon", "normalized_softmax"])
@pytest.mark.parametrize(("factor", "counted", "uncertain"), [(1, None, 99), (1 + 1e-8, 0, 0), (1 - 1e-8, 99, 0)])
@pytest.mark.parametrize("kernel", KERNELS, indirect=True)
def test_share_equal_to_eps_is_uncertain(name, factor, counted, uncertain, kernel):
    """Each of a hundred equal candidates has a hundredth of the softmax."""
    (found,) = engine.run(inputs()["collapsed"].view(), [readers.of(losses.load(name), 0.01 * factor)])
    for direction in found:
        assert (direction["uncertain"] == uncertain).all()
        assert counted is None or (direction["contributing"] == counted).all()


@pytest.mark.parametrize("name", ["triplet", "triplet_sh"])
@pytest.mark.parametrize(("level", "eps", "uncertain"), [(0, 0.01, 1), (1, 0.01, 0), (0, 1.5, 0), (1, 1.5, 1)])
def test_hinge_tie_is_uncertain_if_decisive(name, level, eps, uncertain):
    """A negative as high as the lower, or the higher, of two positives, where it must violate one of them, or both."""
    query = normalize(drawn(6, 16), dim=1)
    candidate, group = near(query.repeat(2, 1), 0.3, 1), torch.arange(12) % 6
    positives = (query[:1] @ candidate[[0, 6]].T).argsort()[0] * 6
    twin = candidate[positives[level]][None]
    rows = Embeddings(query, torch.cat([candidate, twin]), torch.arange(6), torch.cat([group, group[-1:] + 1]))
    (found,) = engine.run(engine.view(rows), [readers.of(make(name, margin=0.0), eps)])
    assert found[0]["uncertain"][0] == uncertain
    assert found[0]["contributing"][0] == (level == 1 and eps < 1)


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("kernel", KERNELS, indirect=True)
def test_general_readers_equal_sorted_scores(metric, kernel):
    """Ranks, precision-recall, histograms and neighbours, from dense scores."""
    kinds = (*SOME, "exact duplicates", "float64", "one query", "one pair", "many positives, twins", "uneven classes")
    low, high = (-2.0, 0.0) if metric == "euclidean" else (-0.2, 0.3)
    for kind in kinds:
        view, directions = inputs()[kind].view(metric), inputs()[kind].pairs(metric)
        tie = 1e-12 * max(1.0, view.most)
        asked = [readers.Ranks(), readers.PrecisionRecall(), readers.Histogram(24, low, high)]
        ranks, curve, histogram = engine.run(view, asked, tile=TILE)
        for ranked, counts, (pairs,) in zip(ranks, histogram, directions, strict=True):
            query, candidate = pairs.positive.nonzero().T
            negatives = pairs.scores.masked_fill(~pairs.negative, -torch.inf)[query]
            score = pairs.scores[query, candidate, None]
            assert torch.equal(ranked.query, query) and torch.equal(ranked.candidate, candidate), kind
            assert torch.equal(ranked.above, (negatives > score + tie).sum(dim=1)), kind
            assert torch.equal(ranked.ties, ((negatives - score).abs() <= tie).sum(dim=1)), kind
            place = (pairs.scores - low) / (high - low) * 24
            edge = (((place - place.round()).abs() < 1e-4) & pairs.negative).sum(dim=1)
            expected = torch.zeros_like(counts).scatter_add_(
                1, place.floor().clamp(0, 23).long(), pairs.negative.long()
            )
            assert ((counts - expected).abs().sum(dim=1) <= 2 * edge).all(), kind
        pairs = directions[0][0]
        level = pairs.scores[pairs.positive].sort(descending=True).values
        torch.testing.assert_close(curve.score, level, rtol=1e-12, atol=1e-13)
        assert torch.equal(curve.negatives, (pairs.scores[pairs.negative] >= level[:, None] - tie).sum(dim=1)), kind
        (nearest,) = engine.run(inputs()[kind].view(metric, "float64"), [readers.Neighbours(3)])
        scored = pairs.scores.masked_fill(~(pairs.positive | pairs.negative), -torch.inf)
        number = min(3, scored.shape[1])
        expected = scored.topk(number, dim=1).values
        error = 1e-7 if metric == "euclidean" else 1e-12  # roots near 0
        torch.testing.assert_close(nearest.score[:, :number], expected, rtol=error, atol=error)
        assert torch.equal(nearest.number, (scored > -torch.inf).sum(dim=1)), kind


@pytest.mark.parametrize(("apart", "above"), [(3e-13, False), (-3e-13, False), (3e-12, True)])
@pytest.mark.parametrize("kernel", KERNELS, indirect=True)
def test_scores_within_tie_are_ties(apart, above, kernel):
    """Each query has one negative with the score of its positive but for `apart`."""
    query = normalize(drawn(40, 16).double(), dim=1)
    candidate = normalize(near(query, 1.0, 1), dim=1)
    twins = normalize(candidate + 1.5 * apart * query, dim=1)
    groups = torch.arange(980)
    candidates = torch.cat([candidate, twins, drawn(900, 16, 2).double()])
    case = Case(Embeddings(query, candidates, groups[:40], groups, directions=("q2c",)))
    (ranked,) = engine.run(case.view(), [readers.Ranks()])[0]
    assert ((ranked.ties > 0) != above).sum() > 35


@pytest.mark.parametrize(
    ("bins", "low", "high"), [(0, -1.0, 1.0), (4, 1.0, -1.0), (64, 0.0, 1e-37), (2**31, 0.0, 1.0), (4, 0.0, math.inf)]
)
def test_histogram_without_room_is_refused(bins, low, high):
    with pytest.raises(InputError, match=f"{bins} bins from {low} to {high}"):
        readers.Histogram(bins, low, high)


@pytest.mark.parametrize(
    ("kind", "options"),
    [("random", {"metric": "mahalanobis"}), ("any length", {"metric": "dot"}), ("random", {"product": "float16"})],
)
def test_unknown_product_is_refused(kind, options):
    with pytest.raises(InputError):
        engine.view(inputs()[kind].embeddings, **options)


def test_hard_negatives_ask_in_one_direction():
    query, candidate = pairs_of(20, 8)
    rows = Embeddings(query, candidate, directions=("q2c",))
    batch = Batch(torch.arange(6), torch.arange(10), paired=True, extra=4)
    (found,) = engine.run(engine.view(rows, batch), [readers.of(make("ntxent"), 0.01)])
    assert found[0]["negatives"].tolist() == [9] * 6


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


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports the peak")
def test_gibibyte_of_scores_takes_64_mebibytes():
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "262144"}
    done = children.python(MEMORY, env=environment)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 64


@pytest.mark.parametrize(("rows", "columns"), [(2100, 2100), (4200, 600), (600, 4200), (500, 9000)])
@pytest.mark.parametrize("kernel", KERNELS, indirect=True)
def test_large_batch_equals_dense_float64(rows, columns, kernel):
    """A batch of several parts and tiles."""
    query, candidate = drawn(rows, 24), drawn(columns, 24, 1)
    number = min(rows, columns)
    candidate[:number] = query[:number] + 0.5 * candidate[:number]
    case = Case(Embeddings(query, candidate, torch.arange(rows) % columns, torch.arange(columns) % rows))
    questions = [(make("ntxent"), 0.01), (make("supcon", temperature=0.05), 1e-3), (make("triplet"), 0.01)]
    assert not exactness.check(case, questions)
