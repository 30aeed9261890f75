"""Interception: weights of code by the values of its scores, compared with closed forms."""

import pytest
import torch
from torch.nn import functional
from torch.utils import checkpoint

from cocos.base.errors import InputError
from cocos.embeddings.similarities import METRICS, unit
from cocos.losses.intercept import METRICS_BY_PRIORITY, find, probes, weigh

N = 24
LABELS = torch.arange(N) % 6
SAME = LABELS[:, None] == LABELS
ITSELF = torch.eye(N, dtype=torch.bool)
TARGET = torch.arange(N)


def ranked(scores):
    return functional.cross_entropy(scores, TARGET[: len(scores)], reduction="sum")


def both(scores):
    return ranked(scores) + ranked(scores.T)


# Two sides: name -> (loss of rows, metric, the same loss of scores).
def product(query, candidate):
    return ranked(10 * functional.normalize(query) @ functional.normalize(candidate).T)


def clip(query, candidate):
    return both(10 * functional.normalize(query) @ functional.normalize(candidate).T)


def quotient_in_place(query, candidate):
    scores = query @ candidate.T
    scores /= query.norm(dim=1)[:, None]
    scores /= candidate.norm(dim=1)
    return ranked(10 * scores)


def distances_in_place(query, candidate):
    squares = query.square().sum(dim=1)[:, None] + candidate.square().sum(dim=1)
    squares.addmm_(query, candidate.T, beta=1, alpha=-2)
    return ranked(-squares.clamp(min=1e-12).sqrt())


def squares_of_distances(query, candidate):
    return ranked(-torch.cdist(query, candidate).square() / 10)


def distances_of_unit_rows(query, candidate):
    return ranked(-torch.cdist(functional.normalize(query), functional.normalize(candidate)))


def class_vectors(query, candidate):
    return ranked(functional.linear(query, functional.normalize(candidate)))


def flattened(query, candidate):
    left, right = query.repeat_interleave(N, dim=0), candidate.repeat(N, 1)
    return ranked(10 * functional.cosine_similarity(left, right).reshape(N, N))


def four_dimensions(query, candidate):
    scores = torch.einsum("aid,bjd->abij", query[None], candidate[None])
    return ranked(scores[0, 0])


def transposed(query, candidate):
    return ranked((candidate @ query.T).T)


def restacked(query, candidate):
    return ranked(torch.stack(list(10 * functional.cosine_similarity(query[:, None], candidate[None], dim=2))))


def in_chunks(query, candidate):
    scores = functional.normalize(query) @ functional.normalize(candidate).T
    return ranked(torch.cat(scores.chunk(3, dim=1), dim=1))


def sorted_and_scattered(query, candidate):
    values, order = (functional.normalize(query) @ functional.normalize(candidate).T).sort(dim=1)
    return ranked(torch.zeros_like(values).scatter(1, order, values))


def by_keyword(query, candidate):
    scores = functional.normalize(query) @ functional.normalize(candidate).T
    return ranked(torch.where(condition=scores > -2, input=scores, other=scores))


class Copy(torch.autograd.Function):
    """A function of another library that returns its input."""

    @staticmethod
    def forward(context, scores):
        return scores.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient


def through_a_custom_function(query, candidate):
    return ranked(Copy.apply(functional.normalize(query) @ functional.normalize(candidate).T) * 1.0)


def mined_on_detached_scores(query, candidate):
    scores = functional.normalize(query) @ functional.normalize(candidate).T
    hard = scores.detach() * 1.0 > 0
    return ranked(scores.masked_fill(~(hard | ITSELF), -50.0))


TWO_SIDES = {
    "product": (product, "cosine", lambda s: ranked(10 * s)),
    "clip": (clip, "cosine", lambda s: both(10 * s)),
    "quotient_in_place": (quotient_in_place, "cosine", lambda s: ranked(10 * s)),
    "distances_in_place": (distances_in_place, "euclidean", ranked),
    "squares_of_distances": (squares_of_distances, "squared_euclidean", lambda s: ranked(s / 10)),
    "distances_of_unit_rows": (distances_of_unit_rows, "chord", ranked),
    "class_vectors": (class_vectors, "projection", ranked),
    "flattened": (flattened, "cosine", lambda s: ranked(10 * s)),
    "four_dimensions": (four_dimensions, "dot", ranked),
    "transposed": (transposed, "dot", ranked),
    "restacked": (restacked, "cosine", lambda s: ranked(10 * s)),
    "in_chunks": (in_chunks, "cosine", ranked),
    "sorted_and_scattered": (sorted_and_scattered, "cosine", ranked),
    "by_keyword": (by_keyword, "cosine", ranked),
    "custom_function": (through_a_custom_function, "cosine", ranked),
    "mined": (mined_on_detached_scores, "cosine", lambda s: ranked(s.masked_fill(~((s > 0) | ITSELF), -50.0))),
}


# Pieces of the scores: two sides of N / 2 queries, with N candidates.
HALF = N // 2


def with_queue(query, candidate):
    query, candidate = functional.normalize(query), functional.normalize(candidate)
    positive = torch.einsum("nd,nd->n", query, candidate[:HALF])[:, None]
    queue = query @ candidate[HALF:].T
    return functional.cross_entropy(torch.cat([positive, queue], dim=1) / 0.2, torch.zeros(HALF, dtype=torch.long))


def queue_of_scores(scores):
    logits = torch.cat([scores.diagonal()[:, None], scores[:, HALF:]], dim=1) / 0.2
    return functional.cross_entropy(logits, torch.zeros(HALF, dtype=torch.long))


def with_hard_negatives(query, candidate):
    query, candidate = functional.normalize(query), functional.normalize(candidate)
    batch, hard = query @ candidate[:HALF].T, (query * candidate[HALF:]).sum(dim=1, keepdim=True)
    return ranked(torch.cat([batch, hard], dim=1) * 5)


def hard_negatives_of_scores(scores):
    return ranked(torch.cat([scores[:, :HALF], scores[:, HALF:].diagonal()[:, None]], dim=1) * 5)


def in_blocks(query, candidate):
    """Pairwise sigmoids in chunks of candidates."""
    query, candidate = functional.normalize(query), functional.normalize(candidate)
    labels = 2 * torch.eye(HALF, N).double() - 1
    starts = range(0, N, 8)
    return sum(
        -functional.logsigmoid(labels[:, k : k + 8] * (10 * query @ candidate[k : k + 8].T - 5)).sum() for k in starts
    )


def blocks_of_scores(scores):
    return -functional.logsigmoid((2 * torch.eye(HALF, N).double() - 1) * (10 * scores - 5)).sum()


PIECES = {
    "queue": (with_queue, "cosine", queue_of_scores),
    "hard_negatives": (with_hard_negatives, "cosine", hard_negatives_of_scores),
    "blocks": (in_blocks, "cosine", blocks_of_scores),
}


# Labelled sets: name -> (loss of rows, metric, the same loss of scores, whether roles are lost).
def supervised(rows):
    scores = functional.normalize(rows) @ functional.normalize(rows).T / 0.1
    return supervised_scores(scores * 0.1)


def supervised_scores(scores):
    logits = (scores / 0.1).masked_fill(ITSELF, -1e9)
    return -(logits.log_softmax(dim=1) * (SAME & ~ITSELF)).sum()


def batch_hard(rows):
    """The batch-hard triplet loss of person re-identification, on raw rows, with squares in place."""
    squares = rows.pow(2).sum(dim=1, keepdim=True).expand(N, N)
    squares = squares + squares.t()
    squares.addmm_(rows, rows.t(), beta=1, alpha=-2)
    return batch_hard_distances(squares.clamp(min=1e-12).sqrt())


def batch_hard_distances(distances):
    farthest = distances.masked_fill(~(SAME & ~ITSELF), -1e9).max(dim=1)[0]
    closest = distances.masked_fill(SAME, 1e9).min(dim=1)[0]
    return functional.margin_ranking_loss(closest, farthest, torch.ones(N), margin=0.3, reduction="sum")


def upper_triangle(rows):
    rows = functional.normalize(rows)
    scores, above = rows @ rows.T, torch.ones(N, N).triu(1) > 0
    return functional.softplus((10 * scores[above & ~SAME]).logsumexp(0) + (-10 * scores[above & SAME]).logsumexp(0))


def half_of_both(scores):
    above = torch.ones(N, N).triu(1) > 0
    scores = (scores + scores.T) / 2
    return functional.softplus((10 * scores[above & ~SAME]).logsumexp(0) + (-10 * scores[above & SAME]).logsumexp(0))


def two_views(rows):
    """SimCLR as one set of views: the positives come from a product of their own."""
    first, second = functional.normalize(rows).chunk(2)
    out = torch.cat([first, second])
    exponentials = (out @ out.T / 0.5).exp()
    negatives = exponentials.masked_select(~ITSELF).view(N, -1).sum(dim=1)
    positives = ((first * second).sum(dim=1) / 0.5).exp()
    return (-(torch.cat([positives, positives]) / negatives).log()).sum()


def two_views_of_scores(scores):
    partner = (TARGET + N // 2) % N
    denominators = (scores / 0.5).masked_fill(ITSELF, -1e9).logsumexp(dim=1)
    positives = (scores[TARGET, partner] + scores[partner, TARGET]) / 2
    return (denominators - positives / 0.5).sum()


def gathered_triplets(rows):
    anchors, positives, negatives = TARGET, (TARGET + 6) % N, (TARGET + 1) % N
    near, far = ((rows[anchors] - rows[ends]).pow(2).sum(dim=1) for ends in (positives, negatives))
    return functional.relu(near - far + 1.0).sum()


def gathered_scores(scores):
    scores = (scores + scores.T) / 2
    return functional.relu(scores[TARGET, (TARGET + 1) % N] - scores[TARGET, (TARGET + 6) % N] + 1.0).sum()


def with_lengths(rows):
    return supervised(rows) + 0.1 * rows.norm(dim=1).square().sum()


LABELLED = {
    "supervised": (supervised, "cosine", supervised_scores, False),
    "batch_hard": (batch_hard, "euclidean", lambda s: batch_hard_distances(-s), False),
    "with_lengths": (with_lengths, "cosine", supervised_scores, False),
    "upper_triangle": (upper_triangle, "cosine", half_of_both, True),
    "two_views": (two_views, "cosine", two_views_of_scores, True),
    "gathered_triplets": (gathered_triplets, "squared_euclidean", gathered_scores, True),
}


def without_a_metric(query, candidate):
    return ranked(-torch.cdist(query, candidate, p=1))


def reads_rows(query, candidate):
    return product(query, candidate) + 0.01 * (query - candidate).pow(4).sum()


def four_blocks(query, candidate):
    query, candidate = functional.normalize(query), functional.normalize(candidate)
    inside = (query @ query.T).masked_fill(ITSELF, -1e9)
    return ranked(torch.cat([query @ candidate.T, inside], dim=1) * 5)


class Scores(torch.autograd.Function):
    """A function that computes the scores and their gradient by itself."""

    @staticmethod
    def forward(context, query, candidate):
        context.save_for_backward(query, candidate)
        return query @ candidate.T

    @staticmethod
    def backward(context, gradient):
        query, candidate = context.saved_tensors
        return gradient @ candidate, gradient.T @ query


def detached(query, candidate):
    return product(query.detach(), candidate.detach())


def partly_detached(query, candidate):
    scores = functional.normalize(query) @ functional.normalize(candidate).T
    return ranked(scores * 10) + 0.1 * (scores.detach() * 1.0 * (query * candidate).sum(dim=1)[:, None]).sum()


REFUSED = {
    "no_metric": without_a_metric,
    "rows": reads_rows,
    "four_blocks": four_blocks,
    "detached": detached,
    "partly_detached": partly_detached,
}


def drawn(number, seed, unit_rows=False):
    rows = torch.randn(number, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return functional.normalize(rows) if unit_rows else 2 * rows


def closed(metric, loss_of_scores, query, candidate):
    scores = METRICS[metric](query, candidate).requires_grad_()
    (weights,) = torch.autograd.grad(loss_of_scores(scores), scores)
    return weights


def assert_equal(run, metric, loss_of_scores, query, candidate, dtype=torch.float64):
    reading = find(run, query, candidate)
    weighed = weigh(run, query.to(dtype), candidate.to(dtype) if candidate is not query else query, reading)
    expected = closed(reading.metric, loss_of_scores, query, candidate)
    weights = weighed.weights
    if candidate is query:
        weights, expected = (values.masked_fill(ITSELF, 0) for values in (weights, expected))
    torch.testing.assert_close(weights, expected, rtol=1e-9, atol=1e-12)
    return reading, weighed


@pytest.mark.parametrize("name", TWO_SIDES)
def test_two_sides_equal_closed_form(name):
    run, metric, loss_of_scores = TWO_SIDES[name]
    reading, _ = assert_equal(run, metric, loss_of_scores, drawn(N, 0), drawn(N, 1))
    assert (reading.metric, reading.pieces) == (metric, False)


@pytest.mark.parametrize("name", PIECES)
def test_pieces_equal_closed_form(name):
    run, metric, loss_of_scores = PIECES[name]
    reading, _ = assert_equal(run, metric, loss_of_scores, drawn(HALF, 0), drawn(N, 1))
    assert (reading.metric, reading.pieces) == (metric, True)


@pytest.mark.parametrize("name", LABELLED)
def test_labelled_set_equals_closed_form(name):
    run, metric, loss_of_scores, symmetrised = LABELLED[name]
    rows = drawn(N, 0)
    reading, weighed = assert_equal(lambda query, _: run(query), metric, loss_of_scores, rows, rows)
    assert (reading.metric, weighed.reads_lengths) == (metric, name == "with_lengths")
    assert reading.symmetrised == symmetrised


def test_batch_hard_weights_are_integers():
    rows = drawn(N, 3)
    reading = find(lambda query, _: batch_hard(query), rows, rows)
    weights = weigh(lambda query, _: batch_hard(query), rows, rows, reading).weights
    assert torch.equal(weights.round(), weights) and weights.any()


@pytest.mark.parametrize("name", REFUSED)
def test_unexplained_gradient_is_refused(name):
    with pytest.raises(InputError):
        find(REFUSED[name], drawn(N, 0), drawn(N, 1))


def test_custom_function_with_scores_is_never_wrong():
    def run(query, candidate):
        return ranked(Scores.apply(query, candidate) * 1.0)

    assert_equal(run, "dot", ranked, drawn(N, 0), drawn(N, 1))


def test_checkpointed_scores_are_never_wrong():
    def run(query, candidate):
        return ranked(checkpoint.checkpoint(lambda a, b: a @ b.T, query, candidate, use_reentrant=False))

    try:
        assert_equal(run, "dot", ranked, drawn(N, 0), drawn(N, 1))
    except (InputError, RuntimeError):
        pass


@pytest.mark.parametrize("metric", METRICS_BY_PRIORITY)
def test_metric_of_raw_rows_is_found(metric):
    reading = find(lambda query, candidate: ranked(METRICS[metric](query, candidate)), drawn(N, 0), drawn(N, 1))
    assert reading.metric == metric


@pytest.mark.parametrize("rows", [torch.ones(N, 6), torch.ones(N, 6).index_add(0, torch.tensor([0]), torch.eye(6)[:1])])
def test_collapsed_batch_has_weights(rows):
    rows = rows.double()
    reading = find(product, rows, rows.clone())
    weighed = weigh(product, rows, rows.clone(), reading)
    torch.testing.assert_close(weighed.weights, closed("cosine", lambda s: ranked(10 * s), rows, rows.clone()))


def test_inactive_batch_has_zero_weights():
    rows = unit(torch.eye(N, dtype=torch.float64))

    def run(query, candidate):
        scores = query @ candidate.T
        return functional.relu(0.2 - scores.diagonal()[:, None] + scores).masked_fill(ITSELF, 0).sum()

    assert not weigh(run, rows, rows.clone(), find(run, rows, rows.clone())).weights.any()


def test_probe_cosines_cover_the_range():
    query, candidate = probes(drawn(256, 0), drawn(256, 1), 0)
    cosines = METRICS["cosine"](query, candidate)
    assert cosines.min() < -0.99 and cosines.max() > 0.99 and abs(float(cosines.mean())) < 0.05
    assert torch.allclose(query.norm(dim=1), drawn(256, 0).norm(dim=1))
