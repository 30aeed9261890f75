"""The kernel against dense float64: the product, exact scores, thresholds, stacks, threads."""

import ctypes
import itertools

import pytest
import torch

from cocos import Embeddings, InputError, engine
from cocos.embeddings import similarities
from cocos.engine import exact, fused
from cocos.engine.kernel import native, structs
from cocos.engine.parts import parts_of
from cocos.engine.primitives.logsumexp import LogSumExp
from cocos.engine.primitives.threshold import Threshold, about_positives

compiled = pytest.mark.skipif(structs.loaded() is None, reason="there is no compiled kernel")


@pytest.fixture(params=["compiled", "plain"], autouse=True)
def kernel(request, monkeypatch):
    if request.param == "compiled" and structs.loaded() is None:
        pytest.skip("there is no compiled kernel")
    if request.param == "plain":
        monkeypatch.setattr(native, "library", lambda: None)
    return request.param


def some(m, n, d, *, seed=0, dtype=torch.float32, groups=None, whole=False):
    """Embeddings whose positives are correlated; of small whole numbers, many scores are equal."""
    generator = torch.Generator().manual_seed(seed)
    query, noise = (torch.randn(k, d, generator=generator, dtype=torch.float64) for k in (m, n))
    groups = groups or min(m, n)
    group = [torch.randint(0, groups, (k,), generator=generator) for k in (m, n)]
    candidate = query[torch.arange(n) % m] + noise
    if whole:
        query, candidate = query.round(), candidate.round()
        query[:, 0], candidate[:, 0] = 1, 1  # no zero vectors
    return Embeddings(query.to(dtype), candidate.to(dtype), *group)


def dense(view):
    """Scores in float64, and whether each pair is a negative: both (rows, columns) in visiting order."""
    left, right = (side.matrix[side.order].double() for side in view.sides)
    side, column = view.sides[0], torch.arange(len(right))
    own = (column >= side.first[:, None]) & (column < side.last[:, None])
    block = [torch.repeat_interleave(torch.from_numpy(edges).diff()) for edges in (view.rows, view.columns)]
    return similarities.METRICS[view.metric](left, right), ~own & (block[0][:, None] == block[1])


def check_counts(view, levels, found):
    true, negative = dense(view)
    for direction, level in enumerate(levels):
        score, there = (true, negative) if direction == 0 else (true.T, negative.T)
        excess = score[:, None, :] - level[:, :, None]
        above, ties = (excess > view.tie) & there[:, None], (excess.abs() <= view.tie) & there[:, None]
        close = ((excess.abs() - view.tie).abs() < 1e-13) & there[:, None]  # float64 itself may differ there
        off = (found.above[direction] - above.sum(dim=2)).abs() + (found.ties[direction] - ties.sum(dim=2)).abs()
        assert (off <= 2 * close.sum(dim=2)).all(), f"direction {direction}: {off.max()} off"


def every(view):
    """All scores of the tiles that are scores of negatives, by row and column; NaN elsewhere."""
    shape, found = [len(side) for side in view.sides], []
    none = [torch.full((len(view.sides[k]),), -torch.inf, dtype=torch.float64) for k in view.directions]
    (sums,) = engine.run(view, [LogSumExp(view, 1e-3 / view.most, base=none, offset=none)])  # it notes all negatives
    for direction in view.directions:
        row, column, score = (torch.cat(parts) for parts in zip(*sums.noted[direction], strict=True))
        row, column, score = (values[score > -torch.inf] for values in (row.long(), column.long(), score))
        assert len((row * shape[1] + column).unique()) == len(row), "a pair was listed twice"
        found.append(torch.full(shape, torch.nan).index_put_((row, column), score))
    assert all(torch.equal(found[0].nan_to_num(9), each.nan_to_num(9)) for each in found[1:])
    return found[0]


SHAPES = [*((k, 51 - k) for k in (1, 2, 7, 8, 9, 15, 16, 17, 31, 47, 48, 49, 50)), (257, 385), (290, 20), (3, 790)]


@pytest.mark.parametrize("shape", SHAPES)
def test_scores_are_within_their_bound(shape, kernel):
    for d, metric in itertools.product((1, 16, 33) if kernel == "compiled" else (3,), engine.PRODUCT_METRICS):
        embeddings = some(*shape, d, seed=d)
        if metric == "cosine_dot":
            embeddings = Embeddings(
                *(getattr(embeddings, k) for k in ("query", "candidate", "query_group", "candidate_group")),
                directions=("q2c",),
            )
        view = engine.view(embeddings, metric=metric)
        true, negative = dense(view)
        found = every(view).double()
        assert torch.equal(found.isnan(), ~negative), (d, metric)
        assert ((found - true).abs() <= view.bound(true))[negative].all(), (d, metric)


@pytest.mark.parametrize(("d", "dtype"), [(511, torch.float32), (513, torch.float64), (1100, torch.float16)])
def test_deep_products_and_other_dtypes(d, dtype):
    for metric in ("cosine", "euclidean"):
        view = engine.view(some(70, 60, d, dtype=dtype), metric=metric)
        true, negative = dense(view)
        assert ((every(view) - true).abs() <= view.bound(true))[negative].all()


@compiled
@pytest.mark.parametrize("d", [64, 65, 512, 1100])
def test_a_deep_product_is_a_sum_of_short_ones(d, kernel):
    """Every addition rounds the same way, so that the error grows with the terms that are added up at once."""
    generator = torch.Generator().manual_seed(d)
    query, candidate = ((1 + torch.rand(40, d, generator=generator) / 64).float() for _ in range(2))
    view = engine.view(Embeddings(query, candidate), metric="dot")
    deep = fused.deep(view, Threshold(view, [torch.zeros(40, 1, dtype=torch.float64)] * 2))
    true, negative = dense(view)
    if kernel == "plain":
        assert deep is None and view.bound(deep=None) == view.bound()
        return
    off = (every(view) - true).abs()[negative].max() / view.bound(deep=deep)
    assert deep == 64 and off <= 1 and view.bound(deep=deep) <= view.bound() and view.bound(deep=48) < 9e-6 * view.most


def test_rows_of_extreme_length_are_divided_in_float64():
    embeddings = some(20, 30, 8, dtype=torch.float64)
    tiny = torch.full((20, 1), 1e-170, dtype=torch.float64)
    rows = Embeddings(embeddings.query * tiny, embeddings.candidate * 1e150, *(torch.arange(k) for k in (20, 30)))
    view = engine.view(rows)
    plain, negative = dense(
        engine.view(Embeddings(embeddings.query, embeddings.candidate, *(torch.arange(k) for k in (20, 30))))
    )
    assert ((every(view) - plain).abs() <= view.bound(plain))[negative].all()
    levels, _ = about_positives(view, 0.1)
    (found,) = engine.run(view, [Threshold(view, levels)])
    assert found.above[0].sum() == ((plain > plain.diag()[:, None] - 0.1) & negative).sum()


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean", "squared_euclidean"])
def test_counts_are_those_of_dense_float64(metric, whole):
    sizes = [(40, 50, 40), (90, 33, 25), (270, 20, 200), (5, 400, 99)]
    for seed, ((m, n, groups), dtype) in enumerate(itertools.product(sizes, (torch.float32, torch.float64))):
        d = 6 if seed % 3 else 37
        view = engine.view(some(m, n, d, seed=seed, groups=groups, whole=whole, dtype=dtype), metric=metric)
        for margin in (0.0, 0.2):
            levels, _ = about_positives(view, margin)
            (found,) = engine.run(view, [Threshold(view, levels)])
            check_counts(view, levels, found)


def test_levels_at_scores_and_levels_that_are_not_there():
    view = engine.view(some(60, 70, 4, seed=3, whole=True))
    true, _ = dense(view)
    levels = []
    for score in (true, true.T):
        level = score[:, :5].sort(dim=1).values
        level[::3, 3:], level[::4] = torch.inf, torch.inf
        levels.append(level)
    (found,) = engine.run(view, [Threshold(view, levels)])
    check_counts(view, levels, found)
    assert found.ties[0].sum() > 60


def test_duplicates_and_collapse():
    base = some(80, 80, 5, seed=1)
    for query in (base.query[:1].expand(80, 5), base.query[torch.arange(80) % 7]):
        view = engine.view(Embeddings(query.contiguous(), query.contiguous(), torch.arange(80), torch.arange(80)))
        levels, _ = about_positives(view, 0.0)
        (found,) = engine.run(view, [Threshold(view, levels)])
        check_counts(view, levels, found)
    assert found.ties[0].sum() > 80


@pytest.mark.parametrize("shape", [(700, 3300), (3300, 700)])
def test_no_bit_depends_on_the_number_of_threads(shape, monkeypatch):
    view = engine.view(some(*shape, 8, groups=500))
    assert len(parts_of(view)) > 3
    levels = [level[:, :2].contiguous() for level in about_positives(view, 0.0)[0]]
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setattr("cocos.engine.sweep.workers", lambda threads=threads: threads)
        (counts,) = engine.run(view, [Threshold(view, levels)])
        found.append([*counts.above, *counts.ties])
    for each in found[1:]:
        assert all(torch.equal(*pair) for pair in zip(found[0], each, strict=True))


@pytest.mark.parametrize(("kinds", "metric"), [("ff", "dot"), ("fd", "dot"), ("df", "cosine"), ("dd", "euclidean")])
def test_exact_scores_of_pairs(kinds, metric):
    types = {"f": torch.float32, "d": torch.float64}
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(40, 37, generator=generator, dtype=types[k]) for k in kinds)
    of, with_ = torch.randint(0, 40, (2, 300), generator=generator)
    true = (left.double()[of] * right.double()[with_]).sum(dim=1)
    torch.testing.assert_close(exact.pairs(left, right, of, with_), true, rtol=0, atol=1e-13)
    gap = (left.double()[of] - right.double()[with_]).square().sum(dim=1)
    torch.testing.assert_close(exact.pairs(left, right, of, with_, gaps=True), gap, rtol=1e-14, atol=0)
    with pytest.raises(IndexError):
        exact.pairs(left, right, of + 1, with_)


@compiled
def test_a_struct_of_another_size_and_a_tensor_of_another_type_are_refused(monkeypatch, kernel):
    if kernel == "plain":
        pytest.skip("asks the kernel")
    monkeypatch.setattr(structs, "constant", lambda name: 8)
    with pytest.raises(InputError, match="build.py"):
        structs._declared_functions.__wrapped__(structs.loaded())
    made = structs.struct("threshold")
    assert made.size == ctypes.sizeof(made)
    for wrong in (torch.zeros(3), torch.zeros(4, 4, dtype=torch.float64).T[::2]):
        with pytest.raises(ValueError, match="level"):
            made.set(level=[wrong])
