"""Where careless formulas break: norms at the ends of the range, distance 0, low temperatures, sets of one or none."""

import dataclasses

import pytest
import torch

import taught
from cocos import Embeddings, Pairs, losses
from cocos.counting import weights
from cocos.embeddings import scores
from cocos.measures.shared import synthetic_inputs

NAMES = losses.names()
COLD = [name for name in NAMES if "temperature" in {f.name for f in dataclasses.fields(losses.load(name))}]
HOT = [name for name in NAMES if "scale" in {f.name for f in dataclasses.fields(losses.load(name))}]


def weigh(loss, pairs):
    return loss.weight(pairs)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("norm", (1e-20, 1.0, 1e20))
def test_directions_do_not_hang_on_norms(norm, dtype):
    generator = torch.Generator().manual_seed(3)
    query, candidate = (torch.randn(n, 5, generator=generator, dtype=dtype) for n in (4, 6))
    long = Embeddings(query * norm, candidate / norm, torch.zeros(4, dtype=int), torch.arange(6), directions=("s2p",))
    tolerance = 1e-6 if dtype == torch.float32 else 1e-14
    plain = torch.nn.functional.cosine_similarity(query.double()[:, None], candidate.double()[None], dim=2)
    assert torch.allclose(scores.pairs(long).scores.double(), plain, atol=tolerance)
    lengths = query.double().norm(dim=1) * norm
    assert torch.allclose(scores.pairs(long).query_norm.double(), lengths, rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_equal_embeddings_have_finite_weights(name):
    """Distance 0, cosine 1: queries that coincide with a positive and with a negative."""
    loss = losses.load(name)
    rows = torch.eye(3, dtype=torch.float64)[[0, 1, 2, 0, 0]]
    given = Embeddings(rows[:3], rows, torch.arange(3), torch.tensor([0, 1, 2, 0, 1]), directions=("s2p",))
    pairs = taught.pairs(scores.pairs(given, metric=loss.metric), loss)
    assert weigh(loss, pairs).isfinite().all()
    assert weights.autograd(loss, pairs).isfinite().all()


@pytest.mark.parametrize("name", COLD)
def test_a_temperature_of_five_thousandths_keeps_the_hardest_pair(name):
    loss = losses.load(name, {"temperature": 0.005})
    for dtype in (torch.float32, torch.float64):
        pairs = synthetic_inputs.build("anti-aligned", loss.metric, 3)
        same = dataclasses.replace(pairs, scores=pairs.scores.to(dtype))
        weight = weigh(loss, same)
        assert weight.isfinite().all()
        exact = weigh(loss, dataclasses.replace(same, scores=same.scores.double()))
        assert torch.allclose(weight.double(), exact, atol=1e-3 * exact.abs().max().item() + 1e-12)


@pytest.mark.parametrize("name", HOT)
def test_a_scale_of_two_hundred_keeps_the_hardest_pair(name):
    loss = losses.load(name, {"scale": 200.0})
    pairs = synthetic_inputs.build("anti-aligned", loss.metric, 3)
    single = dataclasses.replace(
        pairs, scores=pairs.scores.float(), query_norm=pairs.query_norm.float(),
        candidate_norm=pairs.candidate_norm.float(),
    )  # fmt: skip
    weight, exact = weigh(loss, single), weigh(loss, pairs)
    assert weight.isfinite().all() and exact.abs().max() > 1
    assert (weight.abs().amax(dim=1) >= 0.9 * exact.abs().amax(dim=1)).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("positive", (True, False))
def test_one_candidate_and_one_query(name, positive):
    loss = losses.load(name)
    pairs = taught.pairs(Pairs(torch.tensor([[-0.25]], dtype=torch.float64), torch.tensor([[positive]])), loss)
    assert loss(pairs).isfinite().all() and weigh(loss, pairs).isfinite().all()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "lambdaloss"])  # its equal scores have two ranks
def test_duplicated_negatives_weigh_the_same_or_one_of_them_has_it_all(name):
    loss = losses.load(name)
    pairs = synthetic_inputs.build("random", loss.metric, 3)
    columns = torch.tensor([*range(pairs.scores.shape[1]), pairs.scores.shape[1] - 1])
    twice = Pairs(
        pairs.scores[:, columns],
        pairs.positive[:, columns],
        candidate_group=pairs.candidate_group[columns],
        query_norm=pairs.query_norm,
        candidate_norm=pairs.candidate_norm[columns],
        teacher=pairs.teacher[:, columns],
    )
    first, second = weigh(loss, twice)[:, -2:].unbind(dim=1)
    assert ((first - second).abs().le(1e-12 * first.abs().max().clamp(min=1)) | (first == 0) | (second == 0)).all()
