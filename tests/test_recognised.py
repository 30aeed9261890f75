"""Modules of known losses, read through their arguments: their closed form is the gradient of the module itself."""

import importlib
import math

import pytest
import torch

import cocos
from cocos import losses
from cocos.monitor.recognised import recogniser

TARGET = torch.arange(16)


@pytest.fixture
def sides():
    draw = torch.Generator().manual_seed(3)
    query = torch.nn.functional.normalize(torch.randn(16, 8, generator=draw))
    return query, torch.nn.functional.normalize(query + 0.4 * torch.randn(16, 8, generator=draw))


def recognised(module, *args, **kwargs):
    """How a call is read; None where its backward pass is."""
    find = recogniser(module)
    return find and find(args, kwargs)


def read(module, *args, **kwargs):
    """What a monitor records of one call of a module, and the value of the call."""
    with cocos.Monitor(module) as monitor:
        value = module(*args, **kwargs)
        value.backward()
    assert len(monitor.records) == 1
    return monitor.records[0], value.detach()


def same(found, expected, names=("contributing", "idle", "effective", "hardest_share", "weight_positive")):
    for name in names:
        assert math.isclose(found[name], expected[name], rel_tol=1e-5), name


def test_cross_entropy_of_a_matrix_is_an_ntxent_of_it(sides):
    scores = (20 * sides[0] @ sides[1].T).requires_grad_()
    found, value = read(torch.nn.CrossEntropyLoss(), scores, TARGET)
    named = cocos.Monitor(losses.load("ntxent", {"scale": 20}))
    named(*sides)
    same(found["directions"]["q2c"], named.records[0]["directions"]["q2c"])
    assert found["source"] == "closed form" and math.isclose(found["value"], value, rel_tol=1e-6)
    assert found["kind"] == "softmax" and "scale" not in found and "width" not in found


def test_rows_that_cross_entropy_ignores_take_no_part(sides):
    scores = (20 * sides[0] @ sides[1].T).requires_grad_()
    some = torch.where(TARGET < 12, TARGET, -100)
    found, _ = read(torch.nn.CrossEntropyLoss(), scores, some)
    whole, _ = read(torch.nn.CrossEntropyLoss(), scores[:12].detach().requires_grad_(), TARGET[:12])
    one, other = found["directions"]["q2c"], whole["directions"]["q2c"]
    assert math.isclose(one["effective"], other["effective"], rel_tol=1e-6) and one["idle"] == other["idle"] + 4


@pytest.mark.parametrize("margin", [0.1, 1.0])
def test_triplets_of_rows(sides, margin):
    anchor, positive = sides
    negative = positive.roll(1, 0)
    module = torch.nn.TripletMarginLoss(margin=margin)
    found, value = read(module, anchor.clone().requires_grad_(), positive, negative)
    apart = [(anchor - each).norm(dim=1) for each in (positive, negative)]
    violated = apart[0] - apart[1] + margin > 0
    one = found["directions"]["q2c"]
    assert one["idle"] == int((~violated).sum()) and one["contributing"] == float(violated.double().mean())
    assert one["positives"] == 1 and one["candidates"] == 32 and found["width"] == 8
    assert math.isclose(found["value"], value, rel_tol=1e-4)


@pytest.mark.parametrize(
    "module, args",
    [
        (torch.nn.CrossEntropyLoss(label_smoothing=0.1), (torch.randn(4, 4), torch.arange(4))),
        (torch.nn.CrossEntropyLoss(weight=torch.ones(4)), (torch.randn(4, 4), torch.arange(4))),
        (torch.nn.CrossEntropyLoss(), (torch.randn(4, 4), torch.eye(4))),
        (torch.nn.CrossEntropyLoss(), (torch.randn(4, 4, 3), torch.zeros(4, 3, dtype=torch.long))),
        (torch.nn.TripletMarginLoss(p=1), (torch.randn(4, 4),) * 3),
        (torch.nn.TripletMarginLoss(swap=True), (torch.randn(4, 4),) * 3),
        (torch.nn.MSELoss(), (torch.randn(4, 4),) * 2),
        (type("CrossEntropyLoss", (torch.nn.CrossEntropyLoss,), {})(), (torch.randn(4, 4), torch.arange(4))),
    ],
)
def test_other_options_classes_and_shapes_are_left_to_the_backward_pass(module, args):
    assert recognised(module, *args) is None


def test_a_call_that_is_not_finite_is_a_record(sides):
    scores = (sides[0] @ sides[1].T).index_fill(0, torch.tensor(3), torch.nan).requires_grad_()
    found, _ = read(torch.nn.CrossEntropyLoss(), scores, TARGET)
    assert found["finite"] is False and "directions" not in found


def test_calls_of_one_module_may_be_read_either_way(sides):
    module = torch.nn.CrossEntropyLoss()
    with cocos.Monitor(module, every=2) as monitor:
        for target in (TARGET, TARGET, torch.eye(16), TARGET, TARGET):
            module((20 * sides[0] @ sides[1].T).requires_grad_(), target).backward()
        with torch.no_grad():
            module(sides[0] @ sides[1].T, TARGET)
    assert [each["call"] for each in monitor.records if each["source"] == "closed form"] == [0, 4]
    assert not module._forward_hooks and not module._forward_pre_hooks


class Compiled(torch.nn.Module):
    """What `torch.compile` makes of a module, in its form; the compiler itself takes long to import."""

    def __init__(self, module):
        super().__init__()
        self._orig_mod = module

    def forward(self, *args):
        return self._orig_mod(*args)


def test_a_compiled_loss_that_is_known_is_read_through_its_arguments(sides):
    scores = 20 * sides[0] @ sides[1].T
    found, _ = read(Compiled(torch.nn.CrossEntropyLoss()), scores.clone().requires_grad_(), TARGET)
    plain, _ = read(torch.nn.CrossEntropyLoss(), scores.clone().requires_grad_(), TARGET)
    assert found["source"] == "closed form" and found["directions"] == plain["directions"]


def test_clip_of_open_clip_has_both_directions(sides):
    open_clip = pytest.importorskip("open_clip")
    module, query = open_clip.ClipLoss(), sides[0].clone().requires_grad_()
    found, value = read(module, query, sides[1], torch.tensor(14.0))
    named = cocos.Monitor(losses.load("ntxent", {"scale": 14}))
    named(*sides)
    for direction in ("q2c", "c2q"):
        same(found["directions"][direction], named.records[0]["directions"][direction])
    assert math.isclose(found["value"], value, rel_tol=1e-5) and math.isclose(found["scale"], 14)
    bias = torch.tensor(-1.0)
    assert recognised(module, query, sides[1], torch.tensor(14.0), logit_bias=bias) is None
    assert recognised(open_clip.ClipLoss(world_size=2), query, sides[1], torch.tensor(14.0)) is None


def of_library(make):
    """A loss of the library where it is installed."""
    pytest.importorskip("pytorch_metric_learning")
    return make(
        *(importlib.import_module(f"pytorch_metric_learning.{name}") for name in ("losses", "distances", "reducers"))
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make",
    [
        lambda losses, *_: losses.NTXentLoss(temperature=0.2),
        lambda losses, *_: losses.SupConLoss(),
        lambda losses, *_: losses.TripletMarginLoss(margin=0.3),
        lambda losses, distances, _: losses.TripletMarginLoss(margin=0.3, distance=distances.CosineSimilarity()),
        lambda losses, _, reducers: losses.ContrastiveLoss(reducer=reducers.SumReducer()),  # it averages by sign
        lambda losses, *_: losses.MultiSimilarityLoss(),
        lambda losses, *_: losses.CircleLoss(),
        lambda losses, *_: losses.FastAPLoss(),
        lambda losses, *_: losses.GeneralizedLiftedStructureLoss(),
    ],
)
def test_the_gradient_of_a_loss_of_the_library_is_that_of_its_twin(make):
    module = of_library(make)
    draw = torch.Generator().manual_seed(1)
    labels = torch.arange(24) // 4
    rows = torch.randn(6, 8, generator=draw)[labels] + torch.randn(24, 8, generator=draw)
    rows = rows.double().requires_grad_()
    reading = recognised(module, rows, labels)
    (seen,) = reading()
    unit, apart = torch.nn.functional.normalize(rows), 1e-9 * torch.eye(24)[..., None]
    scores = unit @ unit.T
    if type(module.distance).__name__ == "LpDistance":
        scores = -((unit[:, None] - unit + apart).norm(dim=2) ** module.distance.power)
    assert torch.allclose(seen.scores, scores.detach(), atol=1e-4)
    (own,) = torch.autograd.grad(module(rows, labels), rows)
    (twin,) = torch.autograd.grad((scores * seen.weights).sum(), rows)
    assert float(torch.cosine_similarity(own.flatten(), twin.flatten(), dim=0)) > 1 - 1e-5
    with cocos.Monitor(module) as monitor:
        module(rows, labels).backward()
    assert monitor.records[0]["source"] == "closed form" and list(monitor.records[0]["directions"]) == ["s2s"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make",
    [
        lambda losses, *_: losses.TripletMarginLoss(swap=True),
        lambda losses, *_: losses.TripletMarginLoss(smooth_loss=True),
        lambda losses, *_: losses.TripletMarginLoss(triplets_per_anchor=2),
        lambda losses, distances, _: losses.TripletMarginLoss(distance=distances.LpDistance(p=1)),
        lambda losses, *_: losses.ArcFaceLoss(6, 8),
        lambda losses, *_: losses.NPairsLoss(),
    ],
)
def test_a_loss_of_the_library_without_a_twin_is_left_to_the_backward_pass(make):
    rows = torch.randn(24, 8)
    assert recognised(of_library(make), rows, torch.arange(24) // 4) is None
