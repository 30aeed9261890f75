"""The tapped gradient of the losses of other libraries is that of the formulas that their pages give."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from test_tap import ROWS, embeddings, gradient, tapped

LABELS = torch.tensor([0, 0, 1, 1, 2, 2])
DIAGONAL = torch.arange(ROWS)
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


def of_pml(name, *args, **options):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    return getattr(losses, name)(*args, **options)


def pairs():
    same = LABELS[:, None] == LABELS
    own = torch.eye(ROWS) > 0
    return same & ~own, ~same


def ntxent(scores):
    """Mean over the positive pairs of the cross-entropy of a positive and all negatives of its query."""
    positive, negative = pairs()
    of_negatives = (scores / 0.1).masked_fill(~negative, -torch.inf).logsumexp(dim=1, keepdim=True)
    return (torch.logaddexp(scores / 0.1, of_negatives) - scores / 0.1)[positive].mean()


def supcon(scores):
    """Mean over the queries and their positives of the cross-entropy among all others."""
    positive, negative = pairs()
    logits = (scores / 0.1).masked_fill(~(positive | negative), -torch.inf)
    return -(logits.log_softmax(dim=1).masked_fill(~positive, 0).sum(dim=1) / positive.sum(dim=1)).mean()


def triplets(scores):
    """Mean over the triplets with a loss of the hinge of a distance."""
    positive, negative = pairs()
    loss = (0.2 + scores[:, None, :] - scores[:, :, None]).clamp(min=0)[positive[:, :, None] & negative[:, None, :]]
    return loss[loss > 0].mean()


@pytest.mark.parametrize(
    ("name", "options", "formula", "scale"),
    [
        ("NTXentLoss", {"temperature": 0.1}, ntxent, 10),
        ("SupConLoss", {"temperature": 0.1}, supcon, 10),
        ("TripletMarginLoss", {"margin": 0.2}, triplets, None),
    ],
)
def test_pytorch_metric_learning(name, options, formula, scale):
    ((each,),) = tapped(of_pml(name, **options), embeddings()[0], LABELS).by_width
    positive, negative = pairs()
    assert each.direction == "s2s" and each.scale == (scale and pytest.approx(scale, rel=1e-4))
    assert_close(each.weights, gradient(formula, each.scores), **CLOSE)
    assert torch.equal(each.positive, positive) and torch.equal(each.negative, negative)


class Encoder(nn.Module):
    """What a loss of sentence-transformers asks of a model."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 8)

    def forward(self, features):
        return dict(features) | {"sentence_embedding": self.table(features["input_ids"]).mean(dim=1)}

    def __getitem__(self, place):
        return self.table

    def get_embedding_dimension(self):
        return 8


def of_texts(make, columns=2):
    """What is seen of a loss of sentence-transformers on random tokens."""
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    torch.manual_seed(0)
    module = make(losses, Encoder())
    tokens = [torch.randint(0, 50, (ROWS, 3)) for _ in range(columns)]
    return tapped(module, [{"input_ids": each, "attention_mask": torch.ones_like(each)} for each in tokens], None)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("columns", [2, 3])
def test_sentence_transformers(cached, columns):
    def make(losses, model):
        if cached:
            return losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=4)
        return losses.MultipleNegativesRankingLoss(model)

    seen = of_texts(make, columns)
    ((each,),) = seen.by_width
    assert each.scores.shape == (ROWS, (columns - 1) * ROWS) and seen.lost == 0
    assert each.scale == pytest.approx(20, rel=1e-4)
    assert_close(each.weights, gradient(lambda s: F.cross_entropy(20 * s, DIAGONAL), each.scores), **CLOSE)


@pytest.mark.parametrize("cached", [False, True])
def test_both_directions_of_sentence_transformers(cached):
    def make(losses, model):
        ways = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}
        if cached:
            return losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=4, **ways)
        return losses.MultipleNegativesRankingLoss(model, **ways)

    (both,) = of_texts(make).by_width
    assert [each.direction for each in both] == ["q2c", "c2q"]
    for each in both:
        closed = gradient(lambda s: F.cross_entropy(20 * s, DIAGONAL) / 2, each.scores)
        assert_close(each.weights, closed, **CLOSE)


def test_every_width_of_sentence_transformers():
    by_width = of_texts(
        lambda losses, model: losses.MatryoshkaLoss(
            model, losses.MultipleNegativesRankingLoss(model), [8, 4, 2], [1, 0.5, 0.25]
        )
    ).by_width
    assert [each.width for (each,) in by_width] == [8, 4, 2]
    for (each,), weight in zip(by_width, (1, 0.5, 0.25), strict=True):
        closed = gradient(lambda s, weight=weight: weight * F.cross_entropy(20 * s, DIAGONAL), each.scores)
        assert_close(each.weights, closed, **CLOSE)


def unit():
    return [F.normalize(each.detach(), dim=1).requires_grad_() for each in embeddings()]


@pytest.mark.parametrize("named", [False, True])
def test_clip_of_open_clip(named):
    losses = pytest.importorskip("open_clip.loss")
    a, b = unit()
    scale = torch.tensor(10.0, requires_grad=True)

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.loss = losses.ClipLoss()

        def forward(self, *rows):
            return self.loss(*rows, output_dict=named)["contrastive_loss"] if named else self.loss(*rows)

    (both,) = tapped(Loss(), a, b, scale).by_width
    assert [each.direction for each in both] == ["q2c", "c2q"]
    for each in both:
        assert each.scale == pytest.approx(10, rel=1e-4)
        assert_close(each.weights, gradient(lambda s: F.cross_entropy(s, DIAGONAL) / 2, each.scores), **CLOSE)


def test_siglip_of_open_clip():
    losses = pytest.importorskip("open_clip.loss")
    a, b = unit()
    scale, bias = torch.tensor(10.0, requires_grad=True), torch.tensor(-10.0, requires_grad=True)
    ((each,),) = tapped(losses.SigLipLoss(), a, b, scale, bias).by_width
    sign = 2 * torch.eye(ROWS) - 1
    closed = gradient(lambda s: -F.logsigmoid(sign * (s - 10)).sum() / ROWS, each.scores)
    assert each.kind == "sigmoid" and each.scale == pytest.approx(10, rel=1e-4)
    assert_close(each.weights, closed, **CLOSE)
