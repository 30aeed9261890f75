"""The unit of a loss that nobody knows is that of its twin on the shelf, or none."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

import cocos
from cocos.monitor import units

ROWS, WIDTH, BATCHES = 48, 32, 20


def batches(noise=0.8):
    """Paired rows, (n, D) each, of BATCHES batches."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(BATCHES):
        base, one, two = torch.randn(3, ROWS, WIDTH, generator=generator)
        yield F.normalize(base + noise * one), F.normalize(base + noise * two)


def diagonal(rows):
    return torch.arange(len(rows))


class Clip(nn.Module):
    """Both directions of a softmax with a learned scale."""

    def __init__(self):
        super().__init__()
        self.logit_scale = nn.Parameter(torch.tensor(math.log(14.0)))

    def forward(self, image, text):
        logits = self.logit_scale.exp() * F.normalize(image) @ F.normalize(text).T
        return (F.cross_entropy(logits, diagonal(image)) + F.cross_entropy(logits.T, diagonal(image))) / 2


class InfoNCE(nn.Module):
    """A temperature on the logits."""

    def forward(self, query, candidate):
        return F.cross_entropy(query @ candidate.T / 0.07, diagonal(query))


class ByHand(nn.Module):
    """Exponentials, as papers print it."""

    def forward(self, query, candidate):
        sizes = (query @ candidate.T / 0.1).exp()
        return -(sizes.diagonal() / sizes.sum(dim=1)).log().sum()


class Ranking(nn.Module):
    """Multiple negatives with a scale, as in sentence-transformers: the mean of both sides."""

    def forward(self, anchor, positive):
        scores = F.normalize(anchor) @ F.normalize(positive).T * 20.0
        labels = torch.arange(len(scores))
        return (F.cross_entropy(scores, labels) + F.cross_entropy(scores.T, labels)) / 2


class SimCLR(nn.Module):
    """Two views in one matrix, the row itself masked."""

    def forward(self, one, two):
        rows = torch.cat([one, two])
        logits = (rows @ rows.T / 0.2).masked_fill(torch.eye(len(rows)) > 0, -math.inf)
        return F.cross_entropy(logits, diagonal(rows).roll(len(one)))


class SupCon(nn.Module):
    """The mean over the positives outside of the logarithm."""

    def forward(self, rows, labels):
        own = torch.eye(len(rows)) > 0
        same = (labels[:, None] == labels) & ~own
        logits = rows @ rows.T / 0.1
        logits = logits - logits.amax(dim=1, keepdim=True).detach()
        log = logits - (logits.exp() * ~own).sum(dim=1, keepdim=True).log()
        return -((same * log).sum(dim=1) / same.sum(dim=1)).mean()


class Apart(SupCon):
    """Each positive against the negatives alone, as SimCLR's loss with labels."""

    def forward(self, rows, labels):
        same = labels[:, None] == labels
        logits = rows @ rows.T / 0.1
        away = logits.masked_fill(same, -math.inf).logsumexp(dim=1, keepdim=True)
        each = torch.logaddexp(logits, away) - logits
        return each[same & ~(torch.eye(len(rows)) > 0)].mean()


class DCL(nn.Module):
    """The positive is not in the denominator."""

    def forward(self, query, candidate):
        logits = query @ candidate.T / 0.1
        return (logits.masked_fill(torch.eye(len(logits)) > 0, -math.inf).logsumexp(1) - logits.diagonal()).mean()


class SigLIP(nn.Module):
    """A logistic term for every pair, with a learned scale and bias."""

    def __init__(self):
        super().__init__()
        self.scale, self.bias = nn.Parameter(torch.tensor(math.log(10.0))), nn.Parameter(torch.tensor(-6.0))

    def forward(self, image, text):
        logits = image @ text.T * self.scale.exp() + self.bias
        return -F.logsigmoid((2 * torch.eye(len(logits)) - 1) * logits).sum() / len(logits)


class Triplet(nn.Module):
    """The sum of hinges."""

    def forward(self, query, candidate):
        scores = query @ candidate.T
        violation = (0.2 + scores - scores.diagonal()[:, None]).clamp(min=0)
        return violation.masked_fill(torch.eye(len(scores)) > 0, 0).mean()


LABELS = torch.arange(ROWS) // 4
WRITTEN = {  # as users write them: module, twin on the shelf, and the groups of a labelled set
    "clip": (Clip, "ntxent", {"scale": 14}, None),
    "infonce": (InfoNCE, "ntxent", {"temperature": 0.07}, None),
    "exponentials": (ByHand, "ntxent", {"temperature": 0.1}, None),
    "ranking": (Ranking, "ntxent", {"temperature": 0.05}, None),
    "simclr": (SimCLR, "ntxent", {"temperature": 0.2}, torch.arange(ROWS).repeat(2)),
    "supcon": (SupCon, "supcon", {"temperature": 0.1}, LABELS),
    "apart": (Apart, "ntxent", {"temperature": 0.1}, LABELS),
    "dcl": (DCL, "dcl", {"temperature": 0.1}, None),
    "siglip": (SigLIP, "siglip", {"scale": 10, "bias": -6}, None),
    "triplet": (Triplet, "triplet", {"margin": 0.2}, None),
}
NUMBERS = {"contributing": "contributing_all", "idle": "idle", "relative": "relative", "effective": "effective"}


def seen(module, *rows, dtype=None):
    """The record of one call."""
    monitor = cocos.Monitor(module, detectors=dict.fromkeys(cocos.detectors.names(), False))
    with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
        value = module(*(each.clone().requires_grad_(each.is_floating_point()) for each in rows))
    value.backward()
    monitor.close()
    return monitor.records[-1]


@pytest.mark.parametrize("name", WRITTEN)
def test_the_monitor_and_count_say_the_same_of_the_same_batches(name):
    make, twin, parameters, groups = WRITTEN[name]
    loss, module = cocos.losses.load(twin, parameters), make()
    for one, two in batches():
        if groups is None:
            embeddings = cocos.Embeddings(one.double(), two.double())
        else:
            rows = torch.cat([one, two]) if len(groups) > ROWS else one
            embeddings = cocos.Embeddings.labelled(rows.double(), groups)
        counted = cocos.measures.count(embeddings, loss, batch_size="all", sample="pairs" if groups is None else None)
        record = seen(module, one, groups if groups is not None and len(groups) == ROWS else two)
        assert record["share"] == counted.attrs["share"]
        for direction, live in record["directions"].items():
            still = counted.sel(direction=direction).isel(batch=0)
            # A share within the rounding of float32 of eps may fall on either side of it: at most one of a batch.
            room = {"contributing": 1 / len(embeddings.query), "relative": 1 / len(embeddings.query), "idle": 1}
            for key, entry in NUMBERS.items():
                value = float(still[entry])
                assert live[key] == pytest.approx(value, rel=1e-4, abs=room.get(key, 0) + 1e-9), (direction, key)


def ones(rows=24, each=1, dtype=torch.float64, seed=0):
    """Scores of paired unit rows, (n, n), and the mask of the positives, of `each` a query."""
    group = torch.arange(rows) // each
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(rows, 16, generator=generator)[group]
    sides = [F.normalize(base + torch.randn(rows, 16, generator=generator)).to(dtype) for _ in range(2)]
    return sides[0] @ sides[1].T, group[:, None] == group


FORMS = {"softmax": ("ntxent", "dcl", "supcon", "snm", "mnrl"), "sigmoid": ("siglip",)}
FORMS |= {"hinge": ("triplet", "triplet_sh")}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("each", [1, 3])
@pytest.mark.parametrize(("form", "name"), [(form, name) for form, names in FORMS.items() for name in names])
def test_the_unit_of_a_loss_of_the_shelf_is_found(form, name, each, dtype):
    scores, positive = ones(each=each, dtype=dtype)
    loss, pairs = cocos.losses.load(name), cocos.Pairs(scores, positive)
    weights = loss.weight(pairs) / len(scores)  # a mean over the queries
    for kind in (None, form):
        found = units.found(scores, weights, positive, ~positive, kind=kind)
        assert (found.form, found.share) == (form, cocos.counting.shares.share(loss))
        expected = (loss.unit(pairs) / len(scores)).expand(len(scores), 1)
        assert_close(found.size.to(dtype).expand(len(scores), 1), expected, rtol=1e-5, atol=0)


OTHERS = ("a_softmax", "align_uniform", "angle", "arcface", "circle", "contrastive", "contrastive_cosine", "cosent")
OTHERS += (
    "contrastive_linear",
    "cosface",
    "dclw",
    "fastap",
    "hcl",
    "linear_softmax",
    "multi_similarity",
    "recall_at_k",
)
OTHERS += ("smoothap", "softtriple", "subcenter_arcface", "warped_softmax", "ce_softmax", "proxy_anchor")


@pytest.mark.parametrize("each", [1, 3])
@pytest.mark.parametrize("name", OTHERS)
def test_a_loss_of_another_form_has_no_unit(name, each):
    scores, positive = ones(each=each)
    loss = cocos.losses.load(name)
    scores = -(2 - 2 * scores).clamp(min=0) if loss.metric == "squared_euclidean" else scores
    weights = loss.weight(cocos.Pairs(scores, positive))
    for kind in (None, "softmax", "sigmoid"):
        assert units.found(scores.float(), weights.float(), positive, ~positive, kind=kind) is None


def changed(scores, positive, change):
    """Weights of a softmax whose loss of each query, (Q,), is changed."""
    scores = scores.clone().requires_grad_()
    each = F.cross_entropy(20 * scores, positive.int().argmax(dim=1), reduction="none")
    (weights,) = torch.autograd.grad(change(each, scores).sum(), scores)
    return weights


@pytest.mark.parametrize(
    "change",
    [
        lambda each, scores: each * (1 - (-each).exp()).square(),  # focal
        lambda each, scores: each * torch.linspace(1, 1.2, len(each)),  # weighted queries
        lambda each, scores: each.logsumexp(0) + 0 * each,  # of the batch as a whole
        lambda each, scores: each + 0.01 * (20 * scores).logsumexp(0),  # a second term
        lambda each, scores: 0.99 * each - 0.01 * (20 * scores).log_softmax(1).mean(1),  # label smoothing
    ],
)
@pytest.mark.parametrize("rows", [8, 64])
def test_a_softmax_that_is_no_longer_one_has_no_unit(change, rows):
    scores, positive = ones(rows, dtype=torch.float32)
    plain = units.found(scores, changed(scores, positive, lambda each, _: each), positive, ~positive)
    assert plain.size == pytest.approx(20, rel=1e-4)
    for kind in (None, "softmax"):
        assert units.found(scores, changed(scores, positive, change), positive, ~positive, kind=kind) is None


def test_negatives_that_are_left_out_and_queries_that_are_do_not_matter():
    scores, positive = ones(48)
    mask = torch.rand(48, 48, generator=torch.Generator().manual_seed(1)) < 0.5
    logits = (10 * scores).masked_fill(mask & ~positive, -math.inf)
    weights = 10 * (logits.softmax(1) - positive.double())
    weights[::5] = 0
    found = units.found(scores, weights / 7, positive, ~positive)
    assert found.form == "softmax" and found.size == pytest.approx(10 / 7, rel=1e-9)
    assert units.found(scores, torch.zeros_like(scores), positive, ~positive) is None
    assert units.found(scores, torch.zeros_like(scores), positive, ~positive, kind="hinge").size == 1
    everything = torch.zeros_like(positive)  # without a positive there is nothing to compare with
    assert units.found(scores, 10 * (10 * scores).softmax(1), everything, ~everything) is None


def test_a_large_batch_is_compared_in_part():
    scores, positive = ones(600, each=3)
    loss = cocos.losses.load("ntxent")
    weights = loss.weight(cocos.Pairs(scores, positive))
    assert_close(units.found(scores, weights, positive, ~positive).size, torch.full((600, 1), 30.0).double())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["clip", "infonce", "simclr", "supcon", "dcl", "siglip", "triplet"])
def test_the_unit_is_found_in_half_precision(name, dtype):
    """Scores, logits and gradients are rounded, and small gradients of float16 are lost."""
    make, _, _, groups = WRITTEN[name]
    one, two = next(batches())
    given = one, groups if groups is not None and len(groups) == ROWS else two
    exact, rounded = seen(make(), *given), seen(make(), *given, dtype=dtype)
    assert exact["share"] == rounded["share"] and rounded["dtype"] == str(dtype).removeprefix("torch.")
    for direction, numbers in rounded["directions"].items():
        whole = exact["directions"][direction]
        # A share moves by up to 3 % in bfloat16: with 47 or 95 negatives around eps, up to one of a query.
        assert numbers["contributing"] == pytest.approx(whole["contributing"], abs=1)
        assert numbers["weight_positive"] == pytest.approx(whole["weight_positive"], rel=0.05)


def test_a_loss_of_another_form_has_no_contributing_negatives_in_the_monitor():
    class Smooth(nn.Module):
        def forward(self, query, candidate):
            return F.cross_entropy(query @ candidate.T / 0.05, diagonal(query), label_smoothing=0.1)

    for one, two in list(batches())[:3]:
        record = seen(Smooth(), one, two)
        assert "share" not in record
        assert not record["directions"]["q2c"].keys() & set(cocos.monitor.records.BY_UNIT)
        assert record["directions"]["q2c"]["relative"] > 0
