"""Losses of some negatives of each query: `top_k(LOSS)`, `skip_k(LOSS)` and `semi_hard(LOSS)`."""

import dataclasses

import pytest
import torch

import cases
import cocos
from cocos import InputError, losses
from cocos.counting import weights
from cocos.measures.shared import synthetic_inputs

NAMES = [name for name in cases.KINDS if losses.load(name).couples != "candidate"]
REGIMES = ("random", "ties", "empty rows", "tiny")


def hardest(pairs, k):
    """The k hardest negatives of each query by a slow sort; of equal ones the first."""
    kept = torch.zeros_like(pairs.negative)
    for q, row in enumerate(pairs.scores.tolist()):
        places = [c for c in range(len(row)) if pairs.negative[q, c]]
        kept[q, sorted(places, key=lambda c: (-row[c], c))[:k]] = True
    return kept


def between(pairs, margin):
    """Negatives between a positive less the margin and this positive, by a slow loop over the positives."""
    kept = torch.zeros_like(pairs.negative)
    for q, row in enumerate(pairs.scores.tolist()):
        positives = [row[c] for c in range(len(row)) if pairs.positive[q, c]]
        for c in range(len(row)):
            kept[q, c] = bool(pairs.negative[q, c]) and any(p - margin < row[c] < p for p in positives)
    return kept


def reduced(pairs, kept):
    return dataclasses.replace(pairs, negative=kept)


@pytest.mark.parametrize("name", NAMES)
def test_a_loss_of_some_negatives_is_the_loss_of_the_reduced_pairs(name):
    inner = losses.load(name)
    for regime in REGIMES:
        for seed in range(2):  # the queries of odd ones have one positive
            pairs = synthetic_inputs.build(regime, inner.metric, seed)
            choice = {losses.SemiHard(inner): between(pairs, float("inf"))}
            for k in (1, 3):
                choice[losses.TopK(inner, k)] = hardest(pairs, k)
                choice[losses.SkipK(inner, k)] = pairs.negative & ~hardest(pairs, k)
                choice[losses.SemiHard(inner, 0.3 * k)] = between(pairs, 0.3 * k)
            for loss, kept in choice.items():
                small, found = reduced(pairs, kept), loss.weight(pairs)
                assert torch.equal(loss(pairs), inner(small)), (regime, seed, loss)
                assert torch.equal(found, inner.weight(small))
                assert torch.equal(loss.unit(pairs), inner.unit(small))
                assert not found[pairs.negative & ~kept].any()
                assert torch.equal(loss.unit(pairs), inner.unit(small))


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_is_autograds(name):
    inner = losses.load(name)
    pairs = synthetic_inputs.build("random", inner.metric, 1)
    for loss in (
        losses.TopK(inner, 3),
        losses.SkipK(inner, 1),
        losses.SemiHard(inner, 1),
    ):
        exact = inner.gradient != "autograd"
        found = loss.weight(pairs)
        assert not exact or (found - weights.autograd(loss, pairs)).abs().max() <= 1e-10 * max(1, found.abs().max())
        scores = pairs.scores.clone().requires_grad_()
        value = loss(scores, pairs.positive, pairs.negative, query_norm=pairs.query_norm,
                     candidate_norm=pairs.candidate_norm, candidate_group=pairs.candidate_group,
                     teacher=pairs.teacher)  # fmt: skip
        assert torch.equal(value, loss(pairs)) and value.requires_grad


@pytest.mark.parametrize(
    "spelling, given, name, parameters",
    [
        ("top_k(ntxent)", {"k": "16", "temperature": "0.05"}, "top_k(ntxent)", {"k": 16, "ntxent.temperature": 0.05}),
        ("Top-K (InfoNCE)", {"k": 2, "scale": 10}, "top_k(ntxent)", {"k": 2, "ntxent.temperature": 0.1}),
        ("top_k(triplet+0.5*ntxent)", {"k": 2, "margin": 0.3}, "top_k(triplet+0.5*ntxent)",
         {"k": 2, "triplet.margin": 0.3, "ntxent.temperature": 0.1}),
        ("2*top_k(triplet)+ntxent", {"k": 3, "temperature": 0.2}, "2*top_k(triplet)+ntxent",
         {"top_k(triplet).k": 3, "top_k(triplet).triplet.margin": 0.2, "ntxent.temperature": 0.2}),
        ("skip_k(ntxent)", {"k": 2}, "skip_k(ntxent)", {"k": 2, "ntxent.temperature": 0.1}),
        ("Semi-Hard(triplet)", {"margin": "0.3", "triplet.margin": 0.1}, "semi_hard(triplet)",
         {"margin": 0.3, "triplet.margin": 0.1}),
        ("semi_hard(ntxent)", {"margin": "none"}, "semi_hard(ntxent)", {"margin": None, "ntxent.temperature": 0.1}),
        ("skip_k(top_k(ntxent))", {"k": 3, "top_k(ntxent).k": 9}, "skip_k(top_k(ntxent))",
         {"k": 3, "top_k(ntxent).k": 9, "top_k(ntxent).ntxent.temperature": 0.1}),
    ],
)  # fmt: skip
def test_a_spelling_is_read_and_written(spelling, given, name, parameters):
    loss = losses.load(spelling, given)
    assert losses.canonical(spelling) == loss.name == name
    assert loss.parameters == parameters
    assert losses.load(name, parameters) == loss and losses.qualify(name, parameters) == parameters
    assert parameters.keys() <= losses.parameter_names(name)


def test_a_sum_in_parentheses_is_a_sum_of_choices():
    pairs = synthetic_inputs.build("random", "cosine", 1)
    one = losses.load("top_k(triplet+0.5*ntxent)", {"k": 2})
    other = losses.load("top_k(triplet)+0.5*top_k(ntxent)", {"top_k(triplet).k": 2, "top_k(ntxent).k": 2})
    assert torch.allclose(one(pairs), other(pairs)) and torch.allclose(one.weight(pairs), other.weight(pairs))
    assert torch.allclose(one.unit(pairs), other.unit(pairs))
    assert [c for c, _ in one.terms] == [1, 0.5]


@pytest.mark.parametrize(
    "spelling, given, said",
    [
        ("top_k(ntxent)", {}, "k: missing"),
        ("top_k(ntxent)", {"k": 0}, "k must be an integer of at least 1, got 0"),
        ("top_k(ntxent)", {"k": "2.5"}, "parameter k: '2.5'"),
        ("skip_k(ntxent)", {}, "k: missing"),
        ("semi_hard(ntxent)", {"margin": "wide"}, "parameter margin: 'wide'"),
        ("semi_hard(ntxent)", {"margin": -1}, "margin must be None, or a number above 0, got -1"),
        ("semi_hard(ntxent)", {"margin": "nan"}, "margin must be None, or a number above 0, got nan"),
        ("top_k(ntxent)", {"k": 2, "temprature": 1}, "unknown parameter of top_k.ntxent. 'temprature': did you mean"),
        ("top_k(ntxent)", {"k": 2, "temperature": 1, "ntxent.temperature": 1}, "ntxent.temperature .* given twice"),
        ("top_k(ntxnt)", {"k": 2}, "unknown loss 'ntxnt': did you mean 'ntxent'"),
        ("top_k(proxy_anchor)", {"k": 2}, "candidates are the anchors of proxy_anchor"),
        ("middle_k(ntxent)", {"k": 2}, "unknown loss"),
    ],
)
def test_what_cannot_be_kept_is_one_sentence(spelling, given, said):
    with pytest.raises(InputError, match=said):
        losses.load(spelling, given)


def test_a_function_of_yours_keeps_its_hardest_negatives():
    def softest(scores, positive, negative):
        return (scores * negative).sum(dim=1)

    pairs = synthetic_inputs.build("random", "cosine", 1)
    assert torch.equal(losses.TopK(losses.as_loss(softest), 2).weight(pairs) > 0, hardest(pairs, 2))


@pytest.fixture
def embeddings(tmp_path):
    generator = torch.Generator().manual_seed(0)
    query, candidate = (torch.randn(40, 6, generator=generator, dtype=torch.float64) for _ in range(2))
    return cocos.Embeddings(query, candidate + query)


def test_the_kept_negatives_are_counted(embeddings):
    options = {"batch_size": 20, "eps": 0.0}
    one = cocos.measures.count(embeddings, losses.TopK(losses.load("triplet"), 1), **options)
    other = cocos.measures.count(embeddings, "triplet_sh", **options)
    for name in ("contributing", "effective_per_query", "weight_positive_per_query", "push"):
        assert one[name].equals(other[name])
    ntxent = losses.load("ntxent")
    assert (cocos.measures.count(embeddings, losses.SkipK(ntxent, 5), **options)["contributing"] == 14).all()
    assert (cocos.measures.count(embeddings, losses.TopK(ntxent, 5), **options)["contributing"] == 5).all()
