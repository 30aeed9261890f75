"""The contract: every file on the shelf of losses is tried here, with no edit."""

import dataclasses
import re

import oracles
import pytest
import torch
from conftest import MARGINS
from torch.func import jacrev

import cocos
from cocos import InputError, Pairs, losses, weights

SEEDS = range(4)


@pytest.fixture(params=losses.names())
def loss(request):
    return losses.load(request.param, MARGINS.get(request.param))


def name_of(loss):
    return type(loss).__module__.rsplit(".", 1)[-1]


def close(actual, expected, tolerance):
    scale = max(1.0, expected.abs().max().item())
    worst = (actual - expected).abs().max().item()
    assert worst <= tolerance * scale, f"off by {worst:.3e} with weights up to {scale:.3e}"


@pytest.mark.parametrize("seed", SEEDS)
def test_the_closed_form_is_the_gradient(loss, regime, seed):
    pairs = regime(loss.metric, seed)
    expected = weights.autograd(loss, pairs)
    assert expected.isfinite().all()
    close(weights.analytic(loss, pairs), expected, 1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_float32_is_as_good_as_float32_can_be(loss, regime, seed):
    pairs = regime(loss.metric, seed)
    single = dataclasses.replace(pairs, scores=pairs.scores.float(), query_norm=None, candidate_norm=None)
    same = dataclasses.replace(single, scores=single.scores.double())
    plain = (weights.autograd(loss, single).double() - loss.weight(same)).abs().max().item()
    ours = (loss.weight(single).double() - loss.weight(same)).abs().max().item()
    assert loss.weight(single).dtype == torch.float32
    assert ours <= plain + 1e-5 * max(1.0, loss.weight(same).abs().max().item())


def test_finite_differences_agree(loss, random_pairs):
    if loss.gradient != "exact":
        pytest.skip("a gradient that is not the derivative of the value, by design")
    pairs = random_pairs(loss.metric)
    close(loss.weight(pairs), weights.finite_difference(loss, pairs), 1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_slow_loop_of_the_paper_agrees(loss, regime, seed):
    if name_of(loss) not in oracles.LOSSES:
        pytest.skip("no slow loop for it")
    pairs = regime(loss.metric, seed)
    slow = torch.tensor(oracles.LOSSES[name_of(loss)](pairs, *dataclasses.astuple(loss)), dtype=torch.float64)
    close(loss(pairs), slow, 1e-12)


def test_the_slow_loop_has_this_gradient(loss, random_pairs):
    if name_of(loss) not in oracles.LOSSES:
        pytest.skip("no slow loop for it")
    pairs = random_pairs(loss.metric, seed=2)

    def slow(moved):
        return oracles.LOSSES[name_of(loss)](moved, *dataclasses.astuple(loss))

    close(loss.weight(pairs), oracles.difference(slow, pairs), 1e-5)


def test_queries_are_coupled_as_declared(loss, random_pairs):
    pairs = random_pairs(loss.metric)
    across = jacrev(lambda s: loss(pairs.with_scores(s)))(pairs.scores)
    for q in range(len(across)):
        across[q, q] = 0
    assert (across.abs().max() > 0).item() == (loss.couples != "query")


def test_rows_are_balanced_as_declared(loss, regime):
    pairs = regime(loss.metric)
    rows = loss.weight(pairs).sum(dim=1)
    scale = max(1.0, loss.weight(pairs).abs().sum(dim=1).max().item())
    if loss.balanced:
        assert rows.abs().max().item() <= 1e-12 * scale


def test_loss_and_weights_have_their_shapes(loss, regime):
    pairs = regime(loss.metric)
    assert loss(pairs).shape == pairs.scores.shape[:1]
    assert loss.weight(pairs).shape == pairs.scores.shape
    assert (loss.unit(pairs).expand(pairs.scores.shape) > 0).all()


def test_a_pair_in_neither_mask_takes_no_part(loss, random_pairs):
    pairs = random_pairs(loss.metric)
    ignored = torch.zeros_like(pairs.positive)
    ignored[:, 4] = True
    masked = Pairs(pairs.scores, pairs.positive & ~ignored, pairs.negative & ~ignored)
    moved = masked.with_scores(torch.where(ignored, 0.9, pairs.scores))
    assert (loss.weight(masked)[ignored] == 0).all()
    assert torch.equal(loss(moved), loss(masked))
    assert torch.equal(loss.weight(moved), loss.weight(masked))


def test_a_query_without_positive_or_negative_has_no_weight(loss):
    pairs = Pairs(torch.tensor([[0.5, 0.2]], dtype=torch.float64), torch.tensor([[True, True]]))
    for positive in (pairs.positive, ~pairs.positive):
        one_sided = Pairs(pairs.scores, positive)
        if loss.balanced:
            assert (loss.weight(one_sided) == 0).all()
            assert (loss(one_sided) == 0).all()


def test_candidates_permute_with_their_weights(loss, random_pairs):
    pairs = random_pairs(loss.metric)
    order = torch.randperm(pairs.scores.shape[1], generator=torch.Generator().manual_seed(5))
    shuffled = Pairs(pairs.scores[:, order], pairs.positive[:, order], pairs.negative[:, order])
    close(loss.weight(shuffled), loss.weight(pairs)[:, order], 1e-12)


def test_the_class_says_what_it_is(loss):
    assert loss.metric in {*cocos.scores.METRICS}
    assert loss.couples in {"query", "batch", "candidate"}
    assert loss.gradient in {"exact", "stop_gradient", "pseudo", "autograd"}
    assert loss.sample in cocos.batches.SAMPLINGS
    text = type(loss).__doc__
    for section in (".. math::", "Args:", "Raises:", "Source:"):
        assert section in text
    assert re.search(r"arXiv:\d{4}\.\d{5}", losses.source(name_of(loss)))


def test_loss_and_weight_run_under_vmap(loss, random_pairs):
    first, second = random_pairs(loss.metric, 0), random_pairs(loss.metric, 1)
    both = torch.stack([first.scores, second.scores])
    values = torch.func.vmap(lambda s: loss(first.with_scores(s)))(both)
    close(values[1], loss(first.with_scores(second.scores)), 1e-12)


def test_autograd_refuses_nothing_and_analytic_says_what_is_missing(random_pairs):
    def mean(pairs):
        return torch.where(pairs.positive, pairs.scores, 0).sum(dim=1)

    pairs = random_pairs()
    assert torch.equal(weights.autograd(mean, pairs), pairs.positive.double())
    with pytest.raises(TypeError, match="no closed form"):
        weights.analytic(mean, pairs)


def test_gap_finds_a_wrong_closed_form(random_pairs):
    right = losses.load("smoothap")

    class Eq7(type(right)):
        """The integrand of Eq. 7 taken for the gradient: it lacks the rank of the positive among the positives."""

        def weight(self, pairs):
            return super().weight(pairs) / pairs.positive.sum(dim=1, keepdim=True)

    assert weights.gap(right, random_pairs()) < 1e-10
    assert weights.gap(Eq7(), random_pairs()) > 0.1


@pytest.mark.parametrize(
    ("name", "parameters", "sentence"),
    [
        ("ntxnt", {}, "unknown loss 'ntxnt': did you mean 'ntxent'?"),
        (
            "ntxent",
            {"temprature": 1},
            "unknown parameter of ntxent 'temprature': did you mean 'temperature'?",
        ),
        ("ntxent", {"temperature": 0}, "ntxent: temperature must be finite and above 0, got 0.0"),
        ("ntxent", {"temperature": "warm"}, "parameter temperature: 'warm' is not a float"),
        ("ntxent", {"temperature": float("nan")}, "ntxent: temperature must be finite and above 0, got nan"),
        ("smoothap", {"temperature": -1}, "smoothap: temperature must be finite and above 0, got -1.0"),
        ("triplet", {"margin": -0.2}, "triplet: margin must be finite and at least 0, got -0.2"),
        ("triplet-sh", {"margin": "inf"}, "triplet-sh: margin must be finite and at least 0, got inf"),
    ],
)
def test_bad_parameters_get_a_sentence(name, parameters, sentence):
    with pytest.raises(InputError) as error:
        losses.load(name, parameters)
    assert str(error.value) == sentence


def test_a_hyphen_stands_for_an_underscore():
    assert losses.load("Triplet-SH") == cocos.losses.triplet_sh.TripletSH()


def test_extreme_temperatures_stay_finite_and_keep_the_hardest():
    pairs = Pairs(torch.tensor([[0.1, 0.9, -0.5]], dtype=torch.float32), torch.tensor([[True, False, False]]))
    weight = losses.load("ntxent", {"temperature": 0.005}).weight(pairs)
    assert torch.allclose(weight, torch.tensor([[-200.0, 200.0, 0.0]]))
