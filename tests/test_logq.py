"""Softmax with logQ correction: its three forms, the published code of the repaired one, and what it does."""

import dataclasses

import pytest
import torch

import oracles
from cocos import Embeddings, InputError, Pairs, losses
from cocos.counting import weights
from cocos.embeddings import scores as scoring
from cocos.losses.logq_softmax import CORRECTIONS
from cocos.measures.shared import synthetic_inputs


def sampled(regime="random", seed=0):
    """Pairs whose candidates are sampled with probabilities that differ by some hundred times."""
    pairs = synthetic_inputs.build(regime, "cosine", seed)
    spread = torch.randn(pairs.scores.shape[1], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return dataclasses.replace(pairs, logq=torch.cat([3 * spread, spread.new_ones(1)]).log_softmax(0)[:-1])


@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("regime", synthetic_inputs.SYNTHETIC_REGIMES)
def test_closed_form_autograd_and_loop_agree(correction, regime):
    loss = losses.load("logq_softmax", {"temperature": 0.3, "correction": correction})
    for seed in (0, 1):
        pairs = sampled(regime, seed)
        expected = weights.autograd(loss, pairs)
        torch.testing.assert_close(loss.weight(pairs), expected, rtol=1e-10, atol=1e-10)
        slow = torch.tensor(oracles.LOSSES["logq_softmax"](pairs, 0.3, correction), dtype=torch.float64)
        torch.testing.assert_close(loss(pairs), slow, rtol=1e-11, atol=1e-11)


def test_the_repaired_form_has_the_weights_of_the_published_one():
    """Khrylchenko 2025, train_in_batch_logq_new.py: a stopped weight 1 - π times log Σ - s_p."""
    pairs = sampled(seed=1)

    def published(scores):
        found = scores.new_zeros(())
        for row, positive, negative in zip(scores, pairs.positive, pairs.negative, strict=True):
            z, own = row[negative], pairs.logq[positive].exp()
            corrected = z - (pairs.logq[negative].exp() / (1 - own)).log()
            logits = torch.cat([row[positive], corrected - torch.tensor(len(z)).log()])
            missing = 1 - logits.softmax(0)[0]
            found = found + missing.detach() * (corrected.logsumexp(0) - row[positive]).sum()
        return found

    loss = losses.load("logq_softmax_repaired")
    assert loss.correction == "repaired"
    # the published code takes the log of an int64 count in float32
    torch.testing.assert_close(loss.weight(pairs), torch.func.grad(published)(pairs.scores), rtol=1e-6, atol=1e-7)


def test_popular_candidates_are_pushed_less():
    pairs = sampled(seed=1)
    popular = pairs.logq > pairs.logq.median()
    shares = []
    for each in (dataclasses.replace(pairs, logq=None), pairs):
        push = losses.load("logq_softmax").weight(each).clamp(min=0)
        shares.append(float(push[:, popular].sum() / push.sum()))
    assert shares[1] < shares[0] / 3


def test_the_same_probability_for_all_changes_nothing():
    pairs = sampled()
    alike = dataclasses.replace(pairs, logq=torch.full_like(pairs.logq, -4))
    torch.testing.assert_close(
        losses.load("logq_softmax").weight(alike), losses.load("ntxent", {"temperature": 1}).weight(pairs)
    )


@pytest.mark.parametrize(
    ("logq", "sentence"),
    [
        ([-1.0, 0.5], "logq: 0.5 of candidate 1, expected the log of a probability, finite and at most 0"),
        ([float("nan"), -1.0], "logq: nan of candidate 0, expected the log of a probability"),
        ([-1.0], r"logq: shape \(1,\), expected \(2,\)"),
    ],
)
def test_a_logq_that_is_none_gets_a_sentence(logq, sentence):
    with pytest.raises(InputError, match=sentence):
        Pairs(torch.zeros(1, 2), torch.tensor([[True, False]]), logq=torch.tensor(logq))


def embedded():
    """Users and items of a two-tower model, and the frequencies of the items."""
    generator = torch.Generator().manual_seed(5)
    query, noise = (torch.randn(200, 8, generator=generator, dtype=torch.float64) for _ in range(2))
    logq = (torch.arange(1, 201).double() ** -1.0).div(6).log()
    return query, query + noise, logq


def test_frequencies_follow_their_rows():
    query, candidate, logq = embedded()
    embeddings = Embeddings(query, candidate, logq=logq)
    assert torch.equal(embeddings.flip().flip().logq, logq) and embeddings.flip().logq is None
    rows = torch.tensor([3, 1])
    assert torch.equal(embeddings.rows(rows, rows).logq, logq[rows])
    pairs = scoring.pairs(embeddings)
    assert torch.equal(pairs.logq, logq) and pairs.flip().logq is None
    assert torch.equal(pairs.flip().flip().logq, logq)
    wide = scoring.pairs(embeddings, directions=("query-candidate", "query-query"))
    assert torch.equal(wide.narrow().logq, logq) and (wide.logq[200:] == 0).all()
