"""What couples the queries of a batch in the cross-example losses, what mining keeps, and SupCon's own anomalies."""

import dataclasses

import pytest
import torch

from cocos import Embeddings, Pairs, losses
from cocos.counting import weights
from cocos.embeddings.similarities import squared_euclidean

CROSS = ("ce_softmax", "ce_nm")
MINED = ("snm", "ce_nm")


def paired(scores, **more):
    """A batch of pairs: row i matches column i."""
    scores = torch.as_tensor(scores, dtype=torch.float64)
    return Pairs(scores, torch.eye(*scores.shape, dtype=torch.bool), **more)


def batch(size=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return paired(torch.rand(size, size, generator=generator, dtype=torch.float64) * 2 - 1)


def kept(loss, pairs):
    """Negatives that mining left in: the loss has a slope there."""
    return (loss.weight(pairs) > 0) & pairs.negative


@pytest.mark.parametrize("name", CROSS)
def test_a_query_without_a_positive_has_no_loss_and_still_sets_the_bar(name):
    pairs = paired([[0.5, 0.1, 0.2], [0.3, 0.4, 0.1], [0.9, 0.8, 0.7]])
    alone = dataclasses.replace(pairs, positive=pairs.positive & (torch.arange(3) < 2)[:, None])
    without = dataclasses.replace(alone, negative=pairs.negative & (torch.arange(3) < 2)[:, None])
    loss = losses.load(name)
    assert loss(alone)[2] == 0
    assert (loss(alone)[:2] > loss(without)[:2] + 1).all()
    assert loss.weight(alone)[2, :2].min() > 0
    assert not loss.weight(without)[2].any()


def test_a_batch_of_one_pair_has_no_loss():
    for name in (*CROSS, *MINED, "sampled_softmax", "supcon"):
        loss, pairs = losses.load(name), paired([[0.3]])
        assert loss(pairs).tolist() == [0] and loss.weight(pairs).tolist() == [[0]]
        assert weights.autograd(loss, pairs).tolist() == [[0]]


@pytest.mark.parametrize("name", MINED)
@pytest.mark.parametrize(("negatives", "fraction", "number"), [(100, 0.29, 29), (7, 0.5, 3), (1, 0.5, 1), (9, 0.01, 1)])
def test_the_kept_part_is_rounded_down_and_never_empty(name, negatives, fraction, number):
    """0.29 · 100 is 28.999999999999996 in floating point, and 29 all the same."""
    generator = torch.Generator().manual_seed(1)
    scores = torch.rand(1, negatives + 1, generator=generator, dtype=torch.float64)
    loss, pairs = losses.load(name, {"fraction": fraction}), paired(scores)
    found = kept(loss, pairs)
    assert found.sum() == number
    assert scores[found].min() > torch.where(found | pairs.positive, -1, scores).max() or number == negatives


def test_snm_takes_its_part_of_each_query_and_ce_nm_of_the_batch():
    pairs = paired([[0.0, 0.9, 0.8, 0.7, 0.6], [0.1, 0.0, 0.2, 0.3, 0.4], [0.85, 0.45, 0.0, 0.05, 0.15]])
    assert kept(losses.load("snm"), pairs).sum(dim=1).tolist() == [2, 2, 2]
    assert kept(losses.load("ce_nm"), pairs).sum(dim=1).tolist() == [4, 0, 2]
    weight = losses.load("ce_nm").weight(pairs)
    assert weight[1].tolist() == [0, weight[1, 1].item(), 0, 0, 0]  # a query that keeps no negative only pulls
    assert weight[1, 1] < -1


@pytest.mark.parametrize("name", MINED)
def test_of_equally_hard_negatives_the_first_are_kept_by_value_and_weight_alike(name):
    pairs = paired([[0.0, 0.5, 0.5, 0.5, 0.5]])
    loss = losses.load(name)
    assert kept(loss, pairs).tolist() == [[False, True, True, False, False]]
    assert weights.gap(loss, pairs) < 1e-14
    moved = pairs.with_scores(torch.tensor([[0.0, 0.5, 0.5, 0.4, 0.4]], dtype=torch.float64))
    assert torch.equal(loss(moved), loss(pairs))


@pytest.mark.parametrize("name", (*CROSS, *MINED, "sampled_softmax", "supcon"))
def test_float32_holds_at_a_scale_of_four_hundred(name):
    """λ = 20 read as the factor of both embeddings: logits to ±400, no overflow, and no digits lost but those of λs."""
    loss = losses.load(name, {"temperature": 1 / 400} if name == "supcon" else {"scale": 400.0})
    single = batch().with_scores(batch().scores.float())
    double = single.with_scores(single.scores.double())
    assert loss(single).isfinite().all() and loss(double).max() > 100
    assert ((loss(single) - loss(double)).abs() <= 1e-6 * loss(double).abs() + 1e-4).all()
    assert (loss.weight(single) - loss.weight(double)).abs().max() <= 1e-4 * loss.weight(double).abs().max()


# --- alignment and uniformity


def uniformity(rows, t=2.0):
    """`lunif` of the paper's appendix."""
    return torch.pdist(rows).square().mul(-t).exp().mean().log()


def one_view(seed=0, size=7, width=5):
    """Unit rows x and y, and the pairs of x with y beside x: positives in the first block, negatives in the second."""
    generator = torch.Generator().manual_seed(seed)
    x, y = (
        torch.nn.functional.normalize(torch.randn(size, width, generator=generator, dtype=torch.float64))
        for _ in range(2)
    )
    own, none = torch.eye(size, dtype=torch.bool), torch.zeros(size, size, dtype=torch.bool)
    scores = squared_euclidean(x, torch.cat([y, x]))
    return x, y, Pairs(scores, torch.cat([own, none], dim=1), torch.cat([none, ~own], dim=1))


@pytest.mark.parametrize(("t", "weight"), [(2.0, 1.0), (3.0, 0.5)])
def test_align_uniform_is_the_loss_of_the_paper(t, weight):
    """Its value and the gradient of the rows, through the distances of one view and of the positives."""
    x, y, pairs = one_view()
    loss = losses.load("align_uniform", {"t": t, "weight": weight})
    expected = (x - y).square().sum(dim=1).mean() + weight * uniformity(x, t)
    assert loss(pairs).mean().item() == pytest.approx(expected.item(), rel=1e-12)

    def whole(rows):
        return len(rows) * ((rows - y).square().sum(dim=1).mean() + weight * uniformity(rows, t))

    def through(rows):
        return (squared_euclidean(rows, torch.cat([y, rows])) * loss.weight(pairs)).sum()

    torch.testing.assert_close(torch.func.grad(through)(x), torch.func.grad(whole)(x), rtol=1e-10, atol=1e-10)


def raw(number=48, width=8, seed=0):
    """Pairs of rows of any length."""
    generator = torch.Generator().manual_seed(seed)
    query, noise = (torch.randn(number, width, generator=generator) for _ in range(2))
    return Embeddings(query, query + noise)
