"""Sums of sigmoids through the engine: their error bounds, what is noted of the push, and constants that C repeats."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from cocos import Embeddings, engine, losses
from cocos.counting import statistics
from cocos.embeddings import scores
from cocos.engine import bounds, readers
from cocos.engine.primitives import exponentials, logistic
from cocos.engine.primitives.logistic import Logistic

BIASES = ((10.0, -10.0), (117.0, -12.9), (30.0, 0.0), (2.0, 9.0), (40.0, -30.0))


def embeddings(number=400, width=32, noise=1.0):
    generator = torch.Generator().manual_seed(3)
    query = normalize(torch.randn(number, width, generator=generator), dim=1)
    return Embeddings(query, normalize(query + noise * torch.randn(number, width, generator=generator), dim=1))


def dense(given):
    """The scores of the negatives in float64, -inf elsewhere."""
    pairs = scores.pairs(given.to(dtype=torch.float64))
    return pairs.scores.masked_fill(~pairs.negative, -torch.inf)


@pytest.mark.parametrize(("scale", "bias"), BIASES)
def test_the_sums_keep_their_bound_and_do_not_waste_it(scale, bias):
    given = embeddings()
    (sums,) = engine.run(engine.view(given), [Logistic(engine.view(given), scale, bias, 0.01, heavy=False)])
    score = dense(given)
    share = (scale * score + bias).sigmoid()
    for k, own in enumerate((share, share.T)):
        off = (sums.log2[k] * math.log(2) - own.sum(dim=1).log()).abs()
        assert (off <= sums.error[k]).all()
        assert (off < 1e-5).all()  # the bound covers scores that err by 1e-5 each; those here do not
        part = own / own.sum(dim=1, keepdim=True)
        torch.testing.assert_close(sums.effective(k), statistics.effective(part), rtol=1e-5, atol=0)
        torch.testing.assert_close(sums.participation(k), statistics.participation(part), rtol=1e-5, atol=0)
        number, uncertain, mass = sums.above(k)
        assert torch.equal(number, (own > 0.01).sum(dim=1)) and not uncertain.any()
        torch.testing.assert_close(mass, torch.where(own > 0.01, own, 0).sum(dim=1), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("room", [None, 40])
def test_parts_of_the_push_are_counted_however_few_can_be_noted(room, monkeypatch):
    """Where the list overflows, one more pass counts above the final limits."""
    given, loss = embeddings(), losses.load("siglip", {"scale": 4.0, "bias": -3.0})
    asked = []
    if room:
        monkeypatch.setattr(exponentials, "MAX_NOTED", room)
        monkeypatch.setattr(exponentials.Exponentials, "note", lambda self, k, more, *rest: self.give_up(k))
        again = logistic.LogSumExp.__init__
        monkeypatch.setattr(logistic.LogSumExp, "__init__", lambda *a, **b: (asked.append(b), again(*a, **b))[1])
    for eps in (1e-3, 0.004):
        (found,) = engine.run(engine.view(given), [readers.of(loss, eps, relative=True)])
        share = (loss.scale * dense(given) + loss.bias).sigmoid()
        for each, own in zip(found, (share, share.T), strict=True):
            part = own / own.sum(dim=1, keepdim=True)
            assert torch.equal(each["relative"], statistics.relative(part, eps))
            assert (each["relative"] > 0).all() and not each["relative_uncertain"].any()
    assert sum("floor" in each for each in asked) == (2 if room else 0)


def test_a_part_of_the_push_that_rounding_of_the_sum_hides_is_uncertain():
    """One sigmoid is 1 and the other 1 - 2e-8, so that only the larger one has more than half of the push."""
    cosine = torch.tensor([0.3, 0.726, 0.15, -0.3], dtype=torch.float64)
    candidate = torch.stack([cosine, (1 - cosine.square()).sqrt()], dim=1)
    query = torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand(4, 2).contiguous()
    given, loss = Embeddings(query, candidate), losses.load("siglip", {"scale": 117.0, "bias": 0.0})
    view = engine.view(given)
    (found,) = engine.run(view, [readers.of(loss, 0.5, relative=True)])
    share = (117 * cosine).sigmoid()
    for row in range(4):
        own = share[torch.arange(4) != row]
        number, uncertain = (int(found[0][name][row]) for name in ("relative", "relative_uncertain"))
        assert abs(number - int((own / own.sum() > 0.5).sum())) <= uncertain


@pytest.mark.parametrize("eps", [0.5, 1 - 1e-4, 1 - 1e-13])
def test_no_more_pairs_are_uncertain_than_dense_float64_cannot_tell(eps):
    """Beside an eps of nearly 1 the share of a score far below the threshold is told from it."""
    generator = torch.Generator().manual_seed(0)
    score = torch.linspace(-1, 1, 400, dtype=torch.float64)
    query = torch.stack([torch.ones_like(score), torch.zeros_like(score)], dim=1)
    candidate = torch.stack([score, (1 - score.square()).sqrt()], dim=1)[torch.randperm(400, generator=generator)]
    given, loss = Embeddings(query, candidate), losses.load("siglip", {"scale": 117.0, "bias": -12.9})
    view = engine.view(given)
    (found,) = engine.run(view, [readers.of(loss, eps)])
    pairs = scores.pairs(given)
    share = loss.weight(pairs) / loss.unit(pairs)
    told = statistics.uncertain(share, pairs, eps, bounds.equal(view.exactness, 117.0, 1))
    above = statistics.contributing(share, pairs, eps)
    assert (found[0]["uncertain"] <= told).all()
    assert ((found[0]["contributing"] - above).abs() <= told).all() and above.sum() > 0
