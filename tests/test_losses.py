"""The contract: every file on the shelf of losses is tried here, with no edit."""

import dataclasses
import functools
import inspect
import itertools
import json
import re

import numpy
import pytest
import torch
from torch.func import jacrev
from typer.testing import CliRunner

import cases
import cocos
import oracles
import taught
from cocos import InputError, Pairs, losses
from cocos.base import docstrings
from cocos.cli import app
from cocos.counting import weights
from cocos.losses import catalogue
from cocos.measures.shared import synthetic_inputs

SEEDS = range(2)  # the queries of odd ones have one positive
NAMES = losses.names()
CLOSED = [name for name in NAMES if losses.load(name).closed_form]
SLOW = [name for name in NAMES if name in oracles.LOSSES]
BALANCED = [name for name in CLOSED if losses.load(name).balanced]
# Every closed form with its defaults, and with other parameters.
EVERY = [*((name, {}) for name in CLOSED), *cases.VARIANTS]
RADIAL = [name for name in NAMES if losses.load(name).reads_norms]


def on_grid(loss):
    """The same loss with every margin a multiple of 1/4, so that a tie of dyadic scores is a tie."""
    margins = {
        f.name: max(1, round(4 * getattr(loss, f.name))) / 4
        for f in dataclasses.fields(loss)
        if "margin" in f.name and isinstance(getattr(loss, f.name), float)
    }
    return dataclasses.replace(loss, **margins)


built = functools.cache(synthetic_inputs.build)


def tried(loss):
    """The loss with every regime and seed, on the grid where scores tie, and what to call the case."""
    for regime in synthetic_inputs.SYNTHETIC_REGIMES:
        tried = on_grid(loss) if regime == "ties" else loss
        for seed in SEEDS:
            yield tried, built(regime, loss.metric, seed), f"{regime}, seed {seed}"


def close(actual, expected, tolerance, what=""):
    scale = max(1.0, expected.abs().max().item())
    worst = (actual - expected).abs().max().item()
    assert worst <= tolerance * scale, f"{what}: off by {worst:.3e} with weights up to {scale:.3e}"


def cast(pairs, dtype):
    """The same pairs with scores and norms in another dtype."""
    norms = {name: getattr(pairs, name).to(dtype) for name in ("query_norm", "candidate_norm")}
    return dataclasses.replace(pairs, scores=pairs.scores.to(dtype), **norms)


def slow_loss(name, loss, frozen):
    """The slow loss as a function of pairs, what training stops being taken at `frozen`."""
    function = oracles.LOSSES[name]
    more = {"frozen": frozen} if "frozen" in inspect.signature(function).parameters else {}
    return lambda pairs: function(pairs, *dataclasses.astuple(loss), **more)


@pytest.mark.parametrize(("name", "parameters"), EVERY)
def test_the_closed_form_is_the_gradient(name, parameters):
    for loss, pairs, what in tried(losses.load(name, parameters)):
        expected = weights.autograd(loss, pairs)
        assert expected.isfinite().all(), what
        close(weights.analytic(loss, pairs), expected, 1e-10, what)


@pytest.mark.parametrize("name", CLOSED)
def test_the_closed_form_is_the_gradient_in_a_labelled_set(name):
    loss = losses.load(name)
    for seed in SEEDS:
        pairs = synthetic_inputs.labelled(loss.metric, seed)
        expected = weights.autograd(loss, pairs)
        assert expected.abs().max() > 0
        close(weights.analytic(loss, pairs), expected, 1e-10, f"seed {seed}")


@pytest.mark.parametrize(("name", "parameters"), [case for case in EVERY if case[0] in RADIAL])
def test_the_radial_part_is_the_gradient_of_the_norm(name, parameters):
    for loss, pairs, what in tried(losses.load(name, parameters)):
        close(loss.radial(pairs), cases.autograd_radial(loss, pairs), 1e-10, what)


@pytest.mark.parametrize("name", CLOSED)
def test_float32_is_as_good_as_float32_can_be(name):
    for loss, pairs, what in tried(losses.load(name)):
        single = cast(pairs, torch.float32)
        exact, found = loss.weight(cast(single, torch.float64)), loss.weight(single)
        plain = (weights.autograd(loss, single).double() - exact).abs().max().item()
        assert found.dtype == torch.float32
        assert (found.double() - exact).abs().max() <= plain + 1e-5 * max(1.0, exact.abs().max().item()), what


@pytest.mark.parametrize(("name", "parameters"), [*((name, {}) for name in SLOW), *cases.VARIANTS])
def test_the_slow_loop_of_the_paper_agrees(name, parameters):
    for loss, pairs, what in tried(losses.load(name, parameters)):
        slow = torch.tensor(slow_loss(name, loss, pairs)(pairs), dtype=torch.float64)
        close(loss(pairs), slow, 1e-11, what)


@pytest.mark.parametrize("name", SLOW)
def test_the_slow_loop_agrees_in_a_labelled_set(name):
    loss = losses.load(name)
    pairs = synthetic_inputs.labelled(loss.metric, seed=1)
    close(loss(pairs), torch.tensor(slow_loss(name, loss, pairs)(pairs), dtype=torch.float64), 1e-11)


@pytest.mark.parametrize(
    ("name", "parameters"), [(n, p) for n, p in EVERY if n in SLOW and losses.load(n, p).gradient == "stop_gradient"]
)
def test_the_slow_loop_has_this_gradient(name, parameters, random_pairs):
    """That of an exact loss is the derivative of its value, which the loop has: here is what training stops."""
    loss = losses.load(name, parameters)
    pairs = random_pairs(loss.metric, 3)
    slow = oracles.difference(slow_loss(name, loss, pairs), pairs, apart=loss.couples == "query")
    close(loss.weight(pairs), slow, 1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_queries_are_coupled_as_declared(name, random_pairs):
    loss = losses.load(name)
    pairs = random_pairs(loss.metric)
    across = jacrev(lambda s: loss(pairs.with_scores(s)))(pairs.scores).abs().amax(dim=2)
    if loss.gradient == "stop_gradient":  # what training stops may couple queries too
        for q in range(len(across)):
            moved = pairs.scores.clone()
            moved[q] *= 0.9
            across[:, q] += (loss(pairs.with_scores(moved)) - loss(pairs)).abs()
    assert (across.fill_diagonal_(0).max() > 0).item() == (loss.couples != "query")


@pytest.mark.parametrize(("name", "parameters"), EVERY)
def test_rows_are_balanced_as_declared(name, parameters):
    loss, worst = losses.load(name, parameters), 0.0
    cold = [dataclasses.replace(loss, temperature=loss.temperature / 3)] if hasattr(loss, "temperature") else []
    for regime, seed, each in itertools.product(synthetic_inputs.SYNTHETIC_REGIMES, SEEDS, [loss, *cold]):
        weight = each.weight(built(regime, loss.metric, seed))
        worst = max(worst, (weight.sum(dim=1).abs().max() / weight.abs().sum(dim=1).max().clamp(min=1)).item())
    assert (worst <= 1e-12) == loss.balanced


@pytest.mark.parametrize("name", NAMES)
def test_loss_and_weights_have_their_shapes(name):
    loss = losses.load(name)
    for regime in synthetic_inputs.SYNTHETIC_REGIMES:
        pairs = built(regime, loss.metric, 0)
        assert loss(pairs).shape == pairs.scores.shape[:1], regime
        assert loss(pairs).isfinite().all(), regime
        if name in CLOSED:
            assert loss.weight(pairs).shape == pairs.scores.shape, regime
        unit = loss.unit(pairs).expand(pairs.scores.shape)
        assert (unit > 0).all() and unit.isfinite().all(), regime


@pytest.mark.parametrize("name", CLOSED)
def test_a_pair_in_neither_mask_takes_no_part(name, random_pairs):
    loss = losses.load(name)
    pairs = random_pairs(loss.metric)
    ignored = torch.zeros_like(pairs.positive)
    ignored[:, 4] = True
    masked = dataclasses.replace(
        pairs, positive=pairs.positive & ~ignored, negative=pairs.negative & ~ignored, embeddings=None
    )
    moved = masked.with_scores(torch.where(ignored, -0.9, pairs.scores))
    assert (loss.weight(masked)[ignored] == 0).all()
    assert torch.equal(loss(moved), loss(masked))
    assert torch.equal(loss.weight(moved), loss.weight(masked))


@pytest.mark.parametrize("name", BALANCED)
def test_a_query_without_positive_or_negative_has_no_weight(name):
    loss = losses.load(name)
    scores = torch.tensor([[-0.5, -0.2]], dtype=torch.float64)
    for value in (True, False):
        one_sided = taught.pairs(Pairs(scores, torch.full_like(scores, value, dtype=torch.bool)), loss)
        assert (loss.weight(one_sided) == 0).all()
        assert (loss(one_sided) == 0).all()


@pytest.mark.parametrize("name", CLOSED)
def test_candidates_and_queries_permute_with_their_weights(name, random_pairs):
    loss, generator = losses.load(name), torch.Generator().manual_seed(5)
    for seed in (0, 1):
        pairs = random_pairs(loss.metric, seed)
        rows, columns = (torch.randperm(n, generator=generator) for n in pairs.scores.shape)
        shuffled = Pairs(
            pairs.scores[rows][:, columns],
            pairs.positive[rows][:, columns],
            pairs.negative[rows][:, columns],
            candidate_group=pairs.candidate_group[columns],
            query_norm=pairs.query_norm[rows],
            candidate_norm=pairs.candidate_norm[columns],
            teacher=pairs.teacher[rows][:, columns],
        )
        close(loss(shuffled), loss(pairs)[rows], 1e-12, f"seed {seed}")
        close(loss.weight(shuffled), loss.weight(pairs)[rows][:, columns], 1e-12, f"seed {seed}")


@pytest.mark.parametrize("name", NAMES)
def test_without_groups_and_norms_every_candidate_is_a_class_of_unit_length(name, random_pairs):
    loss = losses.load(name)
    pairs = random_pairs(loss.metric, seed=3)
    bare = Pairs(pairs.scores, pairs.positive, teacher=pairs.teacher)
    ones = torch.ones(sum(pairs.scores.shape), dtype=torch.float64).split(pairs.scores.shape)
    assert torch.equal(loss(bare), loss(dataclasses.replace(pairs, query_norm=ones[0], candidate_norm=ones[1])))


@pytest.mark.parametrize("name", NAMES)
def test_the_class_says_what_it_is(name):
    loss = losses.load(name)
    assert loss.metric in cocos.similarities.METRICS
    assert loss.couples in {"query", "batch", "candidate"}
    assert loss.gradient in {"exact", "stop_gradient", "pseudo", "autograd"}
    assert loss.sample in cocos.sampling.SAMPLINGS
    text = type(loss).__doc__
    for section in (".. math::", "Counts:", "Net:", "Source:"):
        assert section in text, f"the docstring of {name} has no {section}"
    documented = docstrings.parameters(type(loss))
    for field in dataclasses.fields(loss):
        assert documented.get(field.name) or documented[field.name.rstrip("_")]
    assert re.search(r"arXiv:\d{4}\.\d{4,5}|doi:10\.|https://", docstrings.sections(type(loss))["Source"])


@pytest.mark.parametrize("name", NAMES)
def test_loss_runs_under_vmap(name, random_pairs):
    loss = losses.load(name)
    first, second = random_pairs(loss.metric, 0), random_pairs(loss.metric, 2)
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


@pytest.mark.parametrize(("name", "parameters", "sentence"), cases.REFUSED)
def test_parameters_out_of_their_range_get_a_sentence(name, parameters, sentence):
    with pytest.raises(InputError) as error:
        losses.load(name, parameters)
    assert str(error.value) == f"{name}: {sentence}"


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
@pytest.mark.parametrize("name", NAMES)
def test_half_precision_runs(name, dtype, random_pairs):
    loss = losses.load(name)
    half = cast(random_pairs(loss.metric, 3), dtype)
    assert loss(half).dtype == dtype and weights.autograd(loss, half).isfinite().all()
    if name in CLOSED:
        assert loss.weight(half).dtype == dtype and loss.weight(half).isfinite().all()


NEW = '''"""A newcomer's loss."""

from dataclasses import dataclass

from torch import Tensor

from cocos.embeddings.scores import Pairs
from cocos.losses.base import Loss


@dataclass(frozen=True)
class Twice(Loss):
    r"""Twice the softmax cross-entropy.

    .. math:: \\ell = -2 \\log \\pi

    Counts: negatives that hold more than eps of the softmax; unit 2.
    Net: push equals pull for every query.
    Source: this test, https://example.org.
    """

    balanced = True

    def value(self, pairs: Pairs) -> Tensor:
        return 2 * pairs.cross_entropy(pairs.scores)

    def weight(self, pairs: Pairs) -> Tensor:
        return 2 * pairs.residual(pairs.scores)

    def unit(self, pairs: Pairs) -> Tensor:
        return pairs.scores.new_tensor(2.0)
'''


def test_a_new_loss_is_one_file(tmp_path, monkeypatch):
    """It is found by its name everywhere, with no edit of any other file."""
    (tmp_path / "newcomer.py").write_text(NEW)
    monkeypatch.setattr(losses, "__path__", [*losses.__path__, str(tmp_path)])
    monkeypatch.setattr(catalogue, "FOLDERS", tuple(losses.__path__))
    assert "newcomer" in losses.names()
    call = CliRunner().invoke
    assert "newcomer" in call(app, ["losses"]).stdout
    assert "push equals pull" in call(app, ["losses", "newcomer"]).stdout
    checked = json.loads(call(app, ["verify", "newcomer", "--json", "-q"]).stdout)[0]
    assert checked["verdict"] == "exact" and checked["gap"]["float64"] < 1e-12
    rows = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    numpy.savez(tmp_path / "e.npz", query=rows, candidate=rows + 0.1)
    counted = json.loads(call(app, ["count", str(tmp_path / "e.npz"), "--loss", "newcomer", "--json", "-q"]).stdout)
    assert counted["loss"] == {"name": "newcomer", "parameters": {}}
    assert counted["directions"]["q2c"]["contributing_all"]["mean"] > 1
