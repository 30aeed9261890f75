"""One visit of stored scores and weights by the kernel, against the same numbers by PyTorch."""

import math

import pytest
import torch

from cocos.engine import weighing
from cocos.engine.kernel import structs
from cocos.engine.weighing import GUESSED_FROM as GUESSED
from cocos.monitor import readings
from cocos.monitor.calls import Seen

pytestmark = pytest.mark.skipif(structs.loaded() is None, reason="there is no compiled kernel")


def arrays(queries, candidates, *, seed=0, out=0.1):
    """Scores, weights of all signs, and masks; some pairs are in neither."""
    generator = torch.Generator().manual_seed(seed)
    score, weight = (torch.randn(queries, candidates, generator=generator) for _ in range(2))
    weight *= torch.rand(queries, candidates, generator=generator) > 0.3
    positive = torch.rand(queries, candidates, generator=generator) < 0.1
    negative = ~positive & (torch.rand(queries, candidates, generator=generator) > out)
    weight[0] = 0
    return score, weight, positive, negative


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (17, 16), (5, 33), (70, 129)])
@pytest.mark.parametrize("unit", [None, 0.25])
def test_sums_are_those_of_pytorch(shape, unit, monkeypatch):
    made = arrays(*shape)
    seen = Seen("q2c", *made, unit=None if unit is None else torch.tensor(unit))
    stack = readings._Stack([seen])
    assert weighing.readable(*made)
    visit = readings._visited(seen, 0.01)
    found = readings._sums(stack, 0.01, [visit])
    monkeypatch.setattr(weighing, "readable", lambda *_: False)
    right = readings._sums(stack, 0.01)
    assert found.keys() == right.keys() and len(found) == (11 if unit is None else 15)
    for name, value in right.items():
        assert found[name][0] == pytest.approx(float(value), rel=2e-5, abs=2e-6), name
    assert visit.values["score_negative"] == pytest.approx(float((made[0] * made[3]).sum()), rel=1e-5, abs=1e-5)
    ranks, by_torch = readings._ranks(seen, visit), readings._ranks(seen)
    for name, value in by_torch.items():
        assert ranks[name] == [float(value)] or (value.isnan() and math.isnan(ranks[name][0])), name
    parts, push = visit.parts, (made[1] * made[3]).relu()
    part = push / push.sum(dim=1, keepdim=True).clamp(min=1e-30)
    assert torch.allclose(parts, part.sum(dim=0), atol=1e-6)


@pytest.mark.parametrize("out", [0.0, 0.4])
def test_the_weights_of_a_softmax_are_recognised_and_others_are_not(out):
    queries, candidates, factor = 33, 50, 3.0
    score, _, _, negative = arrays(queries, candidates, out=out)
    positive = torch.zeros_like(negative)
    positive[torch.arange(queries), torch.arange(queries)] = True
    negative &= ~positive
    if not out:
        negative = ~positive
    softmax = (factor * score).masked_fill(~(positive | negative), -math.inf).softmax(dim=1)
    weight = 0.125 * (softmax - positive.float())
    first = torch.arange(queries)
    made = (score, weight, positive, negative)
    read = weighing.read(made, first, 0.01, factor=factor)
    form, again = read.form, weighing.read(made, first, 0.01, unit=read.form.unit)
    assert read.values == again.values and again.form is None
    assert form.total / form.size == pytest.approx(0.125, rel=1e-5)
    assert form.error < 1e-5 * form.size and form.missing < 1e-5
    assert form.out == int((~(positive | negative)).sum())
    weight[20, 3] += 0.125
    assert weighing.read(made, first, 0.01, factor=factor).form.error > 1e-3 * form.size
    two = positive.clone()
    two[7, 9] = True
    assert weighing.read((score, weight, two, negative & ~two), first, 0.01, factor=factor).form.missing > 0.9


def test_a_share_near_eps_is_counted_by_the_unit_of_all_queries():
    """The first queries guess a unit that is wrong by rounding; a share between both is looked at again."""
    queries, candidates = 40, 60
    generator = torch.Generator().manual_seed(5)
    score = torch.randn(queries, candidates, generator=generator)
    positive = torch.eye(queries, candidates, dtype=torch.bool)
    first = torch.arange(queries)
    weight = score.softmax(dim=1) - positive.float()
    weight[GUESSED:] *= 1 + 3e-6
    made = (score, weight, positive, ~positive)
    shares = (weight.abs() / weighing.read(made, first, 0.01, factor=1.0).form.unit)[~positive]
    for eps in shares[::97].tolist():
        read = weighing.read(made, first, eps, factor=1.0)
        right = int(((weight.abs() / torch.tensor(read.form.unit) > torch.tensor(eps)) & ~positive).sum())
        assert read.values["contributing"] == right and read.values["doubtful"]


def test_numbers_that_are_not_finite_are_seen():
    for place in (0, 1):
        made = [each.clone() for each in arrays(9, 40)]
        made[place][4, 39] = math.nan
        found = weighing.read(tuple(made), made[2].int().argmax(dim=1), 0.01).values
        assert math.isnan(found["sum"]) and math.isnan(found["effective"]) == (place == 1)


def test_what_the_kernel_cannot_read_is_left_to_pytorch():
    made = arrays(8, 12)
    assert not weighing.readable(made[0].double(), *made[1:])
    assert not weighing.readable(made[0].T, *(each.T.contiguous() for each in made[1:]))
    assert not weighing.readable(made[0][:4], *made[1:])


@pytest.mark.parametrize("unit", [1e-30, 0.3, 7.0, 1e10, math.inf])
@pytest.mark.parametrize("eps", [0.0, 0.01, 0.3])
def test_shares_are_compared_as_float32_divides_them(unit, eps):
    generator = torch.Generator().manual_seed(1)
    near = torch.tensor(eps) * unit * (1 + 1e-7 * torch.randn(4, 100, generator=generator))
    weight = torch.where(torch.rand(4, 100, generator=generator) < 0.9, near, 0.0).nan_to_num(1.0)
    negative = torch.ones(4, 100, dtype=torch.bool)
    made = weighing.read((weight, weight, ~negative, negative), torch.zeros(4, dtype=torch.long), eps, unit=unit)
    share = weight.abs() / torch.tensor(unit)
    assert made.values["contributing"] == int((share > torch.tensor(eps)).sum())
    assert made.values["idle"] == int((~(share > torch.tensor(eps)).any(dim=1)).sum())


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (17, 16), (5, 33)])
def test_margins_are_those_of_pytorch(shape):
    generator = torch.Generator().manual_seed(3)
    score = torch.randn(*shape, generator=generator)
    first = torch.arange(shape[0]) % shape[1]
    apart = (score - score.gather(1, first[:, None])).double() * 0.5
    apart[apart.abs() <= 0.05] = 0
    mass = (apart * 3).softmax(dim=1)
    mean = (mass * apart).sum(dim=1)
    variance = (mass * apart.square()).sum(dim=1) - mean.square()
    right = [float(each.mean()) for each in (mean, variance, apart.mean(dim=1))] + [float(apart.max())]
    assert weighing.Margins(score, first, 0.5, 0.05).bent(3.0) == pytest.approx(right, rel=1e-5, abs=1e-6)
