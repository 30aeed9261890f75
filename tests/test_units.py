"""The unit of a loss that nobody knows is that of its twin on the shelf, or none."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import cocos

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
