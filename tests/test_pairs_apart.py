"""Positives, and own negatives, that a loss scores apart from its matrix are counted as those of one matrix."""

import logging

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import cocos
from cocos.monitor import tap

ROWS, WIDTH, TEMPERATURE, QUEUE = 24, 8, 0.1, 40
EYE, TARGET = torch.eye(ROWS, dtype=torch.bool), torch.arange(ROWS)


class Written(nn.Module):
    """A loss as somebody writes it."""

    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def forward(self, *sides):
        return self.loss(*sides)


def unit(rows):
    return F.normalize(rows, dim=-1)


def sides(noise=0.3, width=WIDTH, seed=0):
    draw = torch.Generator().manual_seed(seed)
    query, other = (torch.randn(ROWS, width, generator=draw) for _ in range(2))
    return query.requires_grad_(), (query.detach() + noise * other).requires_grad_()


def queue():
    return unit(torch.randn(QUEUE, WIDTH, generator=torch.Generator().manual_seed(7)))


def seen(loss, *given, times=1.0):
    """Directions of one call, as the tap delivers them."""
    found, reasons, module = [], [], Written(loss)
    handle = tap.Tap(module, lambda: "token", lambda _, tapped: found.append(tapped), failed=reasons.append)
    (times * module(*given)).backward()
    handle.remove()
    assert not reasons, reasons
    (directions,) = found[0].by_width
    return directions


def refused(loss, *given):
    """The reason for which a call is not read."""
    found, reasons, module = [], [], Written(loss)
    handle = tap.Tap(module, lambda: "token", lambda _, tapped: found.append(tapped), failed=reasons.append)
    module(*given).backward()
    handle.remove()
    assert not found and len(reasons) == 1, (found, reasons)
    return reasons[0]


def derivative(loss, scores):
    free = scores.detach().double().requires_grad_()
    return torch.autograd.grad(loss(free), free)[0]


def check(each, loss, positive, others=None):
    """Weights and masks of one direction are those of a loss of its whole matrix."""
    assert torch.equal(each.positive, positive)
    assert torch.equal(each.negative, ~positive if others is None else others)
    part = each.positive | each.negative
    exact = torch.where(part, derivative(loss, each.scores), 0)
    torch.testing.assert_close(each.weights.double() * part, exact, rtol=1e-3, atol=1e-6 * float(exact.abs().max()))


def pair(way):
    """Scores of pairs of unit rows, (n,), by one of many functions."""
    return {
        "product": lambda q, c: (q * c).sum(1),
        "kept axis": lambda q, c: torch.sum(q * c, dim=-1, keepdim=True).squeeze(),
        "cosine": F.cosine_similarity,
        "einsum": lambda q, c: torch.einsum("nc,nc->n", [q, c]),
        "bmm": lambda q, c: torch.bmm(q[:, None], c[:, :, None]).squeeze(),
        "matmul": lambda q, c: (q.unsqueeze(1) @ c.unsqueeze(2)).view(-1),
        "vecdot": torch.linalg.vecdot,
        "diagonal": lambda q, c: torch.diag(q @ c.T),
        "distance": lambda q, c: 1 - (q - c).pow(2).sum(1) / 2,
    }[way]


WAYS = ["product", "kept axis", "cosine", "einsum", "bmm", "matmul", "vecdot", "diagonal", "distance"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", ["logsumexp", "exp", "factor on the rows", "masked", "hinge"])
def test_a_positive_that_is_scored_apart_is_that_of_its_matrix(way, form):
    def softmax(scores):
        return F.cross_entropy(scores / TEMPERATURE, TARGET)

    def decoupled(scores):
        return (torch.logsumexp((scores / TEMPERATURE).masked_fill(EYE, -1e9), 1) - scores.diag() / TEMPERATURE).mean()

    def hinges(scores):
        return ((0.5 + scores - scores.diag()[:, None]) * ~EYE).relu().mean()

    def loss(query, candidate):
        q, c = unit(query), unit(candidate)
        positive = pair(way)(q, c) / TEMPERATURE
        if form == "logsumexp":
            return -(positive - torch.logsumexp(q @ c.T / TEMPERATURE, 1)).mean()
        if form == "exp":
            return -torch.log(positive.exp() / torch.exp(q @ c.T / TEMPERATURE).sum(1)).mean()
        if form == "factor on the rows":
            return -(positive - torch.logsumexp((q / TEMPERATURE) @ c.T, 1)).mean()
        if form == "masked":
            return (torch.logsumexp((q @ c.T / TEMPERATURE).masked_fill(EYE, -torch.inf), 1) - positive).mean()
        return ((0.5 + q @ c.T - TEMPERATURE * positive[:, None]) * ~EYE).relu().mean()

    (each,) = seen(loss, *sides())
    exact = {"masked": decoupled, "hinge": hinges}.get(form, softmax)
    factor = TEMPERATURE if each.scores.max() > 1.01 else 1  # scores, or cosines
    check(each, lambda scores: exact(scores * factor), EYE)


@pytest.mark.parametrize("way", ["product", "cosine", "bmm"])
def test_both_directions_share_the_pull_of_pairs_that_are_scored_once(way):
    def loss(query, candidate):
        q, c = unit(query), unit(candidate)
        positive, scores = pair(way)(q, c) / TEMPERATURE, q @ c.T / TEMPERATURE
        return -(2 * positive - torch.logsumexp(scores, 1) - torch.logsumexp(scores, 0)).mean() / 2

    directions = seen(loss, *sides())
    assert [each.direction for each in directions] == ["q2c", "c2q"]
    for each in directions:
        check(each, lambda scores: F.cross_entropy(scores / TEMPERATURE, TARGET) / 2, EYE)


@pytest.mark.parametrize("form", ["selected", "subtracted", "rolled"])
def test_two_views_whose_pairs_are_scored_apart(form):
    """SimCLR as many repositories have it: each pair is scored once, and is the positive of both of its rows."""
    own = torch.eye(2 * ROWS, dtype=torch.bool)

    def loss(first, second):
        one, two = unit(first), unit(second)
        rows = torch.cat([one, two])
        scores, positive = rows @ rows.T / TEMPERATURE, (one * two).sum(-1) / TEMPERATURE
        if form == "rolled":
            positive = (rows * rows.roll(ROWS, 0)).sum(1) / TEMPERATURE
            return (torch.logsumexp(scores.masked_fill(own, -1e9), 1) - positive).mean()
        if form == "subtracted":
            whole = scores.exp()
            return (torch.log(whole.sum(1) - whole.diag()) - torch.cat([positive, positive])).mean()
        others = scores.exp().masked_select(~own).view(2 * ROWS, -1)
        return -torch.log(torch.cat([positive, positive]).exp() / others.sum(-1)).mean()

    (each,) = seen(loss, *sides())
    partner = torch.cat([TARGET + ROWS, TARGET])
    positive = F.one_hot(partner, 2 * ROWS).bool()
    assert each.direction == "s2s"
    check(
        each,
        lambda scores: F.cross_entropy((scores / TEMPERATURE).masked_fill(own, -1e9), partner),
        positive,
        ~positive & ~own,
    )


def test_positives_of_another_order_are_known_by_their_rows(caplog):
    def loss(query, candidate):
        q, c = unit(query), unit(candidate)
        return -((q * c.flip(0)).sum(1) / TEMPERATURE - torch.logsumexp(q @ c.T / TEMPERATURE, 1)).mean()

    (each,) = seen(loss, *sides())
    check(each, lambda scores: F.cross_entropy(scores / TEMPERATURE, TARGET.flip(0)), EYE.flip(1))
    assert not each.notes


@pytest.mark.parametrize("form", ["columns", "terms"])
def test_the_positive_of_a_queue_is_beside_its_matrix(form):
    """MoCo: the queue has no positive, so that the matrix gets a column for it."""

    def loss(query, candidate):
        q, c = unit(query), unit(candidate).detach()
        positive, others = torch.einsum("nc,nc->n", [q, c]), torch.einsum("nc,ck->nk", [q, queue().T])
        if form == "columns":
            return F.cross_entropy(torch.cat([positive[:, None], others], 1) / TEMPERATURE, torch.zeros_like(TARGET))
        positive, others = positive / TEMPERATURE, others / TEMPERATURE
        return (torch.logaddexp(positive, torch.logsumexp(others, 1)) - positive).mean()

    (each,) = seen(loss, *sides())
    first = torch.zeros(ROWS, 1 + QUEUE, dtype=torch.bool)
    first[:, 0] = True
    check(each, lambda scores: F.cross_entropy(scores / TEMPERATURE, torch.zeros_like(TARGET)), first)


def test_an_auxiliary_term_leaves_a_matrix_with_its_own_positives():
    def loss(query, candidate):
        q, c = unit(query), unit(candidate)
        term = 0.3 * (q - c.roll(1, 0)).square().mean()
        return F.cross_entropy(q @ c.T / TEMPERATURE, TARGET) + term

    (each,) = seen(loss, *sides())
    check(each, lambda scores: F.cross_entropy(scores / TEMPERATURE, TARGET), EYE)


@pytest.mark.parametrize("form", ["mean squared error", "other rows"])
def test_a_matrix_whose_positives_are_not_known_is_refused(form, caplog):
    """Its positives are pushed in it and pulled elsewhere: they would be counted as the hardest negatives."""

    def loss(query, candidate):
        pull = F.mse_loss(query, candidate) if form == "mean squared error" else -(query * candidate).sum(1).mean()
        return pull + torch.logsumexp(unit(query) @ unit(candidate).T / TEMPERATURE, 1).mean()

    assert "only pushes" in refused(loss, *sides())
    module = Written(loss)
    with caplog.at_level(logging.WARNING, "cocos"), cocos.Monitor(module) as monitor:
        for _ in range(3):
            module(*sides()).backward()
    assert not monitor.records and len(caplog.records) == 1


def correlation(query, candidate):
    """Barlow Twins."""
    one, two = ((each - each.mean(0)) / each.std(0) for each in (query, candidate))
    return ((one.T @ two / ROWS - torch.eye(one.shape[1])) ** 2).sum()


def covariance(query, candidate):
    """VICReg."""
    centred = query - query.mean(0)
    return F.mse_loss(query, candidate) + (centred.T @ centred / (ROWS - 1)).fill_diagonal_(0).square().sum()


def summed(query, candidate):
    return (torch.einsum("bi,bj->ij", query, candidate) / ROWS - torch.eye(query.shape[1])).square().sum()


def projected(query, candidate):
    layer = torch.nn.Linear(query.shape[1], ROWS)
    return correlation(layer(query), layer(candidate))


@pytest.mark.parametrize("width", [WIDTH, ROWS])
@pytest.mark.parametrize("loss", [correlation, covariance, summed, projected])
def test_a_correlation_over_the_batch_is_no_comparison_of_rows(loss, width):
    assert "compares dimensions" in refused(loss, *sides(width=width))


def test_a_batch_as_large_as_its_width_is_read():
    (each,) = seen(lambda q, c: F.cross_entropy(unit(q) @ unit(c).T / TEMPERATURE, TARGET), *sides(width=ROWS))
    check(each, lambda scores: F.cross_entropy(scores / TEMPERATURE, TARGET), EYE)


@pytest.mark.parametrize("times", [-1.0, -0.5])
@pytest.mark.parametrize("inside", [False, True])
def test_a_loss_with_the_other_sign_pulls_its_negatives(times, inside):
    def loss(query, candidate):
        q, c = unit(query), unit(candidate)
        sign = times if inside else 1
        return sign * (torch.logsumexp(q @ c.T / TEMPERATURE, 1) - (q * c).sum(1) / TEMPERATURE).mean()

    (each,) = seen(loss, *sides(), times=1.0 if inside else times)
    size = abs(times) if inside else 1.0
    check(each, lambda scores: -size * F.cross_entropy(scores / TEMPERATURE, TARGET), EYE)
    module = Written(loss)
    with cocos.Monitor(module) as monitor:
        (module(*sides()) * (1.0 if inside else times)).backward()
    found = monitor.records[0]["directions"]["q2c"]
    assert found["pulled_negatives"] == ROWS - 1 and found["pushed_positives"] == 1


OWN = {
    "einsum": lambda q, hard: torch.einsum("nd,nkd->nk", q, hard),
    "bmm": lambda q, hard: torch.bmm(hard, q[:, :, None])[:, :, 0],
    "bmm of rows": lambda q, hard: torch.bmm(q[:, None], hard.transpose(1, 2)).squeeze(1),
    "product": lambda q, hard: (q[:, None] * hard).sum(-1),
    "matmul": lambda q, hard: (hard @ q.unsqueeze(2)).squeeze(-1),
}


@pytest.mark.parametrize("way", OWN)
def test_own_hard_negatives_that_are_scored_apart_have_their_source(way):
    hard = unit(torch.randn(ROWS, 3, WIDTH, generator=torch.Generator().manual_seed(3))).requires_grad_()
    module = Written(
        lambda q, c, h: F.cross_entropy(torch.cat([unit(q) @ unit(c).T, OWN[way](unit(q), h)], 1) / TEMPERATURE, TARGET)
    )
    query, candidate = sides()
    with cocos.Monitor(module) as monitor:
        module(query, candidate, hard).backward()
    found = monitor.records[0]["directions"]["q2c"]
    scores = torch.cat([unit(query) @ unit(candidate).T, OWN["product"](unit(query), hard)], 1)
    push = derivative(lambda each: F.cross_entropy(each / TEMPERATURE, TARGET), scores).clamp(min=0)
    assert found["push_own_hard"] == pytest.approx(float(push[:, ROWS:].sum() / push.sum()), rel=1e-4)
    assert found["push_in_batch"] == pytest.approx(1 - found["push_own_hard"], rel=1e-4)
    assert found["negatives_own_hard"] == 3 and found["negatives_in_batch"] == ROWS - 1


def test_calls_of_one_backward_pass_are_recorded_in_their_order(tmp_path):
    module = Written(lambda q, c: F.cross_entropy(unit(q) @ unit(c).T / TEMPERATURE, TARGET))
    store = tmp_path / "run.jsonl"
    with cocos.Monitor(module, store=store) as monitor:
        for k in range(3):
            losses = [module(*sides(seed=2 * k + each)) for each in range(2)]
            sum(losses).backward()
    assert [each["step"] for each in monitor.records] == list(range(6))
    assert cocos.results.open(store)["step"].values.tolist() == list(range(6))
    with cocos.Monitor(module) as alone:
        module(*sides(seed=3)).backward()
    assert alone.records[0]["value"] == pytest.approx(monitor.records[3]["value"])
