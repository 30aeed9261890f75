"""The training that the analysis scripts share: seeds apart, the same bits again, an end where numbers end."""

import pytest
import torch

from analysis import proxy_networks
from cocos import Embeddings, losses, measures

HOW = {"hidden": 12, "width": 4, "batch": 16}


def clusters(classes=5, each=12, views=2):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(classes).repeat_interleave(each)
    centre = 3 * torch.randn(classes, 8, generator=generator)
    return centre[labels] + torch.randn(views, len(labels), 8, generator=generator), labels


def last(loss, seeds, epochs=3, **more):
    rows, labels = clusters()
    *_, networks = proxy_networks.trained(loss, rows, labels, seeds=seeds, epochs=epochs, **HOW | more)
    return networks.embedded(rows[0], labels, proxies=True)


@pytest.mark.parametrize("name", ["warped_softmax", "normalized_softmax", "euclidean_softmax"])
def test_seeds_trained_together_end_where_each_ends_alone(name):
    loss = losses.load(name, {})
    both = last(loss, [0, 1])
    for seed, found in zip((0, 1), both, strict=True):
        (alone,) = last(loss, [seed])
        torch.testing.assert_close(found.query, alone.query, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(found.candidate, alone.candidate, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(both[0].candidate, both[1].candidate, atol=0.1)


def test_it_learns_and_two_runs_are_the_same_bits():
    loss = losses.load("euclidean_softmax", {})
    (before,), (after,) = last(loss, [0], epochs=0), last(loss, [0], epochs=40)
    right = [
        (torch.cdist(e.query, e.candidate).argmin(dim=1) == e.query_group).double().mean() for e in (before, after)
    ]
    assert right[0] < 0.6 and right[1] > 0.95
    state = torch.random.get_rng_state()
    with proxy_networks.one_thread():
        first, again = last(loss, [0, 1]), last(loss, [0, 1])
        assert torch.get_num_threads() == 1
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one.query, other.query) and torch.equal(one.candidate, other.candidate)
    assert torch.equal(state, torch.random.get_rng_state())


def test_one_thread_gives_the_threads_back():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with pytest.raises(KeyError), proxy_networks.one_thread():
            raise KeyError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_training_ends_where_a_score_is_no_number():
    rows, labels = clusters()
    loss, endless = losses.load("euclidean_softmax", {"f1": 0.5}), {"rate": 1e18, "proxy_rate": 1e18}
    seen = list(proxy_networks.trained(loss, rows, labels, seeds=[0], epochs=30, **HOW | endless))
    assert 1 <= len(seen) < 31


def test_a_loss_that_couples_queries_is_refused():
    with pytest.raises(ValueError, match="Softmax.*: couples (batch|candidate), and only seeds"):
        last(losses.load("ce_softmax", {}), [0])


def test_recall_is_that_of_evaluate():
    rows, labels = clusters()
    embeddings = Embeddings.labelled(rows[0] + 6 * torch.randn(rows[0].shape, generator=torch.Generator()), labels)
    for metric in ("euclidean", "cosine"):
        expected = float(measures.evaluate(embeddings, metric=metric)["R@1"].squeeze())
        assert 5 < expected < 95 and proxy_networks.recall(embeddings, metric) == pytest.approx(expected)
