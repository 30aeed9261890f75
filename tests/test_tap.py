"""The tap reads the gradient of the scores from a backward pass, and changes nothing."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from cocos.monitor import _tap

ROWS, WIDTH = 6, 5


class Clip(nn.Module):
    """Both directions of a softmax with a learned scale; `way` is how the scores are computed."""

    def __init__(self, way="before"):
        super().__init__()
        self.logit_scale, self.way = nn.Parameter(torch.tensor(2.0)), way

    def scores(self, a, b):
        a, b, scale = F.normalize(a, dim=1), F.normalize(b, dim=1), self.logit_scale.exp()
        if self.way == "before":
            return scale * a @ b.T, scale * b @ a.T
        if self.way == "transposed":
            both = a @ b.T * scale
            return both, both.T
        both = torch.einsum("nd,md->mn", b, a)
        both *= scale
        return both, both.t()

    def forward(self, a, b):
        rows = torch.arange(len(a))
        return sum(F.cross_entropy(each, rows) for each in self.scores(a, b)) / 2


class SigLip(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.bias = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.tensor(-3.0))

    def forward(self, a, b):
        scores = F.normalize(a, dim=1) @ F.normalize(b, dim=1).T * self.scale.exp() + self.bias
        return -F.logsigmoid((2 * torch.eye(len(a)) - 1) * scores).sum() / len(a)


class SimClr(nn.Module):
    def forward(self, a, b):
        rows = F.normalize(torch.cat([a, b]), dim=1)
        scores = (rows @ rows.T / 0.5).fill_diagonal_(-torch.inf)
        return F.cross_entropy(scores, (torch.arange(2 * len(a)) + len(a)) % (2 * len(a)))


class TripletHardest(nn.Module):
    """VSE++: hinges of the hardest negative, in both directions of one matrix."""

    def forward(self, a, b):
        scores = F.normalize(a, dim=1) @ F.normalize(b, dim=1).T
        positive, own = scores.diag().view(-1, 1), torch.eye(len(a)) > 0
        to_b = (0.2 + scores - positive.expand_as(scores)).clamp(min=0).masked_fill(own, 0)
        to_a = (0.2 + scores - positive.t().expand_as(scores)).clamp(min=0).masked_fill(own, 0)
        return to_b.max(1)[0].sum() + to_a.max(0)[0].sum()


def embeddings(rows=ROWS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, WIDTH, generator=generator, requires_grad=True) for _ in range(2)]


def tapped(module, *args, times=1.0, **options):
    """What the tap delivers of one call, whose loss is multiplied before its backward pass."""
    found, reasons = [], []
    handle = _tap.attach(module, lambda: "token", lambda *each: found.append(each), failed=reasons.append, **options)
    (module(*args) * times).backward()
    handle.remove()
    assert not reasons
    ((token, seen),) = found
    assert token == "token"
    return seen


def gradient(loss, scores):
    """Derivative of a function of a matrix."""
    scores = scores.detach().clone().requires_grad_()
    return torch.autograd.grad(loss(scores), scores)[0]


@pytest.mark.parametrize("way", ["before", "transposed", "in place"])
@pytest.mark.parametrize("times", [1.0, 65536.0, 0.25])
def test_both_directions_of_clip(way, times):
    module, (a, b) = Clip(way), embeddings()
    seen = tapped(module, a, b, times=times)
    (both,) = seen.by_width
    scale = module.logit_scale.exp().item()
    factor = scale if way == "before" else 1
    cosines = F.normalize(a, dim=1) @ F.normalize(b, dim=1).T
    for each, name, cosine in zip(both, ("q2c", "c2q"), (cosines, cosines.T), strict=True):
        closed = gradient(lambda s: F.cross_entropy(scale / factor * s, torch.arange(ROWS)) / 2, factor * cosine)
        assert (each.direction, each.kind, each.width) == (name, "softmax", WIDTH)
        assert_close(each.weights, closed, rtol=1e-5, atol=1e-7)
        assert_close(each.scores, (factor * cosine).detach())
        assert each.scale == (None if way == "in place" else pytest.approx(scale, rel=1e-5))
        assert torch.equal(each.positive, torch.eye(ROWS) > 0) and torch.equal(each.negative, torch.eye(ROWS) == 0)
    assert_close(both[0].value, module(a, b).detach())
    assert seen.lost == 0


def test_a_sigmoid_loss():
    module, (a, b) = SigLip(), embeddings()
    ((each,),) = tapped(module, a, b).by_width
    sign, scale = 2 * torch.eye(ROWS) - 1, module.scale.exp().item()
    closed = gradient(lambda s: -F.logsigmoid(sign * (scale * s - 3)).sum() / ROWS, each.scores)
    assert each.kind == "sigmoid"
    assert each.scale == pytest.approx(scale, rel=1e-5)
    assert_close(each.weights, closed, rtol=1e-5, atol=1e-7)


def test_two_views_of_each_sample():
    ((each,),) = tapped(SimClr(), *embeddings()).by_width
    rows = torch.arange(2 * ROWS)
    assert each.direction == "s2s"
    assert torch.equal(each.positive.int().argmax(dim=1), (rows + ROWS) % (2 * ROWS))
    assert not (each.positive | each.negative).diagonal().any() and each.scores.isfinite().all()
    own = torch.eye(2 * ROWS) > 0
    softmax = (each.scores / 0.5).masked_fill(own, -torch.inf).softmax(dim=1)
    assert_close(each.weights, (softmax - each.positive.float()) / 0.5 / (2 * ROWS), rtol=1e-5, atol=1e-7)


def test_hinges_that_share_their_positives():
    (both,) = tapped(TripletHardest(), *embeddings(), times=3.0).by_width
    for each in both:
        pushed = (each.weights > 0).sum(dim=1)
        active = (0.2 + each.scores - each.scores.diag()[:, None]).masked_fill(each.positive, 0).amax(dim=1) > 0
        assert each.kind == "hinge"
        assert torch.equal(pushed, active.long()) and torch.equal(each.weights.diag(), -active.float())


@pytest.mark.parametrize("module", [Clip, SigLip, SimClr, TripletHardest])
def test_a_training_is_the_same_bit_by_bit(module):
    def train(tap):
        torch.manual_seed(0)
        towers, loss = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(2)]), module()
        parameters = [*towers.parameters(), *loss.parameters()]
        optimizer = torch.optim.Adam(parameters, lr=0.01)
        found, reasons = [], []
        handle = (
            _tap.attach(loss, lambda: True, lambda *each: found.append(each), failed=reasons.append) if tap else None
        )
        for step in range(100):
            rows = embeddings(seed=step)
            optimizer.zero_grad()
            loss(*(tower(each) for tower, each in zip(towers, rows, strict=True))).backward()
            optimizer.step()
        if handle:
            handle.remove()
            assert len(found) == 100 and not reasons
        return parameters

    for with_tap, without in zip(train(True), train(False), strict=True):
        assert torch.equal(with_tap, without)
