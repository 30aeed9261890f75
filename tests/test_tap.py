"""The tap reads the gradient of the scores from a backward pass: as a closed form has it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from cocos.monitor import tap

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
    handle = tap.Tap(module, lambda: "token", lambda *each: found.append(each), failed=reasons.append, **options)
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


class Dot(nn.Module):
    def forward(self, a, b):
        return F.cross_entropy(a @ b.T / 0.1, torch.arange(len(a)))


@pytest.mark.parametrize("other", [lambda rows: rows, lambda rows: rows.detach(), lambda rows: rows.clone()])
def test_the_target_of_a_cross_entropy_may_be_the_row_itself(other):
    rows = F.normalize(embeddings()[0], dim=1)
    ((each,),) = tapped(Dot(), rows, other(rows)).by_width
    assert torch.equal(each.positive, torch.eye(ROWS) > 0) and torch.equal(each.negative, ~each.positive)


def test_hinges_that_share_their_positives():
    (both,) = tapped(TripletHardest(), *embeddings(), times=3.0).by_width
    for each in both:
        pushed = (each.weights > 0).sum(dim=1)
        active = (0.2 + each.scores - each.scores.diag()[:, None]).masked_fill(each.positive, 0).amax(dim=1) > 0
        assert each.kind == "hinge"
        assert torch.equal(pushed, active.long()) and torch.equal(each.weights.diag(), -active.float())


class TripletSum(nn.Module):
    """Hinges of all negatives, in both directions of one matrix: only what is subtracted tells them apart."""

    def __init__(self, margin=0.2):
        super().__init__()
        self.margin = margin

    def forward(self, a, b):
        scores = F.normalize(a, dim=1) @ F.normalize(b, dim=1).T
        positive, others = scores.diag(), 1 - torch.eye(len(a))
        to_b = F.relu(self.margin + scores - positive[:, None]) * others
        return (to_b + F.relu(self.margin + scores - positive[None]) * others).sum()


def test_all_hinges_of_both_directions():
    (both,) = tapped(TripletSum(), *embeddings(), times=0.5).by_width
    assert [each.direction for each in both] == ["q2c", "c2q"]
    for each in both:
        active = (0.2 + each.scores - each.scores.diag()[:, None] > 0) & each.negative
        expected = active.float() - torch.diag(active.sum(dim=1).float())
        assert_close(each.weights, expected, rtol=1e-5, atol=1e-5)


def test_the_diagonal_matches_where_a_loss_is_idle():
    (both,) = tapped(TripletSum(margin=-2.5), *embeddings()).by_width
    for each in both:
        assert not each.weights.any() and torch.equal(each.positive, torch.eye(ROWS) > 0)


class Tiled(nn.Module):
    """A cached loss: each tile of queries is taken backward inside the forward pass, or left out."""

    def __init__(self, size=2, left_out=()):
        super().__init__()
        self.size, self.left_out = size, left_out

    def forward(self, a, b):
        rows, columns = (F.normalize(each, dim=1).detach().requires_grad_() for each in (a, b))
        total = torch.zeros(())
        for start in range(0, len(a), self.size):
            scores = 20 * rows[start : start + self.size] @ F.normalize(columns, dim=1).T
            loss = F.cross_entropy(scores, torch.arange(start, start + len(scores)), reduction="sum") / len(a)
            if start not in self.left_out:
                loss.backward()
            total = total + loss.detach()
        total.requires_grad_()
        surrogate = (F.normalize(a, dim=1) * rows.grad).sum() + (F.normalize(b, dim=1) * columns.grad).sum()
        return total.detach() + surrogate - surrogate.detach()


def test_tiles_of_a_cached_loss_are_one_matrix():
    a, b = embeddings()
    seen = tapped(Tiled(), a, b, times=8.0)
    ((each,),) = seen.by_width
    closed = gradient(lambda s: F.cross_entropy(s, torch.arange(ROWS)), each.scores)
    assert each.scores.shape == (ROWS, ROWS) and each.scale == pytest.approx(20, rel=1e-5) and seen.lost == 0
    assert_close(each.weights, closed, rtol=1e-5, atol=1e-7)
    assert torch.equal(each.positive, torch.eye(ROWS) > 0)


def test_tiles_without_a_gradient_are_lost():
    seen = tapped(Tiled(left_out=(2,)), *embeddings())
    ((each,),) = seen.by_width
    assert seen.lost == pytest.approx(1 / 3)
    assert torch.equal((each.weights == 0).all(dim=1), torch.tensor([False, False, True, True, False, False]))


class Joined(nn.Module):
    """One softmax over candidates, other queries, and with `moved` over entries that are picked first."""

    def __init__(self, moved=False):
        super().__init__()
        self.moved = moved

    def forward(self, a, b):
        a, b = F.normalize(a, dim=1), F.normalize(b, dim=1)
        across, among, own = a @ b.T / 0.1, torch.einsum("nc,mc->nm", a, a) / 0.1, torch.eye(len(a)) > 0
        among = among[~own].view(len(a), -1) if self.moved else among.masked_fill(own, -torch.inf)
        return F.cross_entropy(torch.cat([across, among], dim=1), torch.arange(len(a)))


@pytest.mark.parametrize("moved", [False, True])
def test_a_softmax_over_several_matrices_is_one_matrix(moved):
    a, b = embeddings()
    ((each,),) = tapped(Joined(moved), a, b).by_width
    own = torch.cat([torch.zeros(ROWS, ROWS), torch.eye(ROWS)], dim=1) > 0
    closed = gradient(
        lambda s: F.cross_entropy((s / 0.1).masked_fill(own, -torch.inf), torch.arange(ROWS)), each.scores
    )
    assert each.direction == "q2c" and each.scale == pytest.approx(10, rel=1e-5)
    assert_close(each.weights, closed, rtol=1e-5, atol=1e-7)
    assert torch.equal(each.positive, torch.eye(ROWS, 2 * ROWS) > 0)
    assert torch.equal(each.negative, ~each.positive & ~own) and each.candidate.shape == (2 * ROWS, WIDTH)


class Distances(nn.Module):
    """A softmax of negative distances, in several ways of computing them."""

    ways = {
        "cdist": torch.cdist,
        "difference": lambda a, b: (a[:, None] - b).pow(2).sum(-1),
        "norm": lambda a, b: torch.linalg.vector_norm(a.unsqueeze(1) - b.unsqueeze(0), dim=-1),
        "pairwise": lambda a, b: F.pairwise_distance(a[:, None], b[None], eps=0),
        "cosine": lambda a, b: -F.cosine_similarity(a[:, None], b[None], dim=-1),
        "linear": lambda a, b: -F.linear(a, b),
        "addmm": lambda a, b: -torch.addmm(torch.zeros(1), a, b.T),
    }

    def __init__(self, way):
        super().__init__()
        self.way = self.ways[way]

    def forward(self, a, b):
        return F.cross_entropy(-self.way(a, b), torch.arange(len(a)))


@pytest.mark.parametrize("way", Distances.ways)
def test_ways_of_comparing_rows(way):
    a, b = embeddings()
    ((each,),) = tapped(Distances(way), a, b).by_width
    closed = gradient(lambda s: F.cross_entropy(s, torch.arange(ROWS)), -Distances.ways[way](a, b))
    assert_close(each.scores, -Distances.ways[way](a, b).detach())
    assert_close(each.weights, closed, rtol=1e-5, atol=1e-7)
    assert torch.equal(each.query, a) and torch.equal(each.candidate, b)


class Widths(nn.Module):
    def forward(self, a, b):
        rows = torch.arange(len(a))
        parts = [(F.normalize(a[:, :width], dim=1), F.normalize(b[:, :width], dim=1)) for width in (WIDTH, 2)]
        return sum(F.cross_entropy(10 * left @ right.T, rows) for left, right in parts)


def test_each_width_is_a_record():
    wide, narrow = tapped(Widths(), *embeddings()).by_width
    assert [each.width for (each,) in (wide, narrow)] == [WIDTH, 2]
    for (each,) in (wide, narrow):
        closed = gradient(lambda s: F.cross_entropy(s, torch.arange(ROWS)), each.scores)
        assert_close(each.weights, closed, rtol=1e-5, atol=1e-7)


class Classes(nn.Module):
    """Class vectors of the loss itself, after a layer of its own."""

    def __init__(self):
        super().__init__()
        self.layer, self.vectors = nn.Linear(WIDTH, 4), nn.Parameter(torch.randn(3, 4))

    def forward(self, rows, labels):
        return F.cross_entropy(F.normalize(self.layer(rows), dim=1) @ F.normalize(self.vectors, dim=1).T / 0.1, labels)


def test_class_vectors_are_candidates_where_nothing_else_is():
    torch.manual_seed(0)
    labels = torch.tensor([0, 1, 2, 0, 1, 1])
    ((each,),) = tapped(Classes(), embeddings()[0], labels).by_width
    assert each.direction == "s2p" and each.width == 4
    assert torch.equal(each.positive, F.one_hot(labels, 3) > 0)


def test_groups_and_labels_say_which_rows_match():
    groups = torch.tensor([0, 0, 0, 1, 1, 1])
    match = groups[:, None] == groups

    class Soft(nn.Module):
        def forward(self, a, b, labels=None):
            return -((a @ b.T).log_softmax(dim=1) * match).sum() / ROWS

    a, b = embeddings()
    ((by_labels,),) = tapped(Soft(), a, b, groups).by_width
    ((by_groups,),) = tapped(Soft(), a, b, groups=lambda: (groups, groups)).by_width
    ((unknown,),) = tapped(Soft(), a, b).by_width
    assert torch.equal(by_labels.positive, match) and torch.equal(by_groups.positive, match)
    assert not by_labels.notes and "pulled" in unknown.notes[0]


class OfScores(nn.Module):
    """A loss that is given its scores."""

    def __init__(self, way):
        super().__init__()
        self.way = way

    def forward(self, scores, turned=None):
        rows = torch.arange(len(scores))
        if self.way == "one direction":
            return F.cross_entropy(scores * 2, rows)
        turned = scores.T if turned is None else turned
        return (F.cross_entropy(2 * scores, rows) + F.cross_entropy(2 * turned, rows)) / 2


@pytest.mark.parametrize("rows", ["known", "unknown"])
@pytest.mark.parametrize("way", ["one direction", "both directions", "two matrices"])
def test_a_loss_that_is_given_its_scores(rows, way):
    a, b = embeddings()
    scores = a @ b.T * 3 if rows == "known" else (a @ b.T).exp()
    module = OfScores(way)
    handle_of_other = (scores * 7).sum()  # another loss reads the scores as well
    found = []
    handle = tap.Tap(module, lambda: True, lambda _, seen: found.append(seen), failed=pytest.fail)
    given = (scores, scores.T) if way == "two matrices" else (scores,)
    (module(*given) + handle_of_other).backward()
    handle.remove()
    (directions,) = found[0].by_width
    assert [each.direction for each in directions] == ["q2c", "c2q"][: 1 if way == "one direction" else 2]
    for each, values in zip(directions, (scores, scores.T), strict=False):
        part = 1 if way == "one direction" else 2
        closed = gradient(lambda s, part=part: F.cross_entropy(2 * s, torch.arange(ROWS)) / part, values)
        assert_close(each.weights, closed, rtol=1e-5, atol=1e-7)
        assert torch.equal(each.positive, torch.eye(ROWS) > 0)
        assert (each.query is None) == (rows == "unknown") == (each.width is None)


class Queue(nn.Module):
    """MoCo: each row's own positive, beside a queue of negatives."""

    def __init__(self):
        super().__init__()
        self.register_buffer("queue", torch.randn(WIDTH, 9, generator=torch.Generator().manual_seed(1)))

    def forward(self, a, b):
        positive = torch.einsum("nc,nc->n", [a, b.detach()]).unsqueeze(-1)
        scores = torch.cat([positive, torch.einsum("nc,ck->nk", [a, self.queue.clone()])], dim=1)
        return F.cross_entropy(scores / 0.5, torch.zeros(len(a), dtype=torch.long))


class OwnCandidates(nn.Module):
    """Each query has candidates of its own, the positive first."""

    def forward(self, a, b):
        scores = torch.matmul(a.unsqueeze(1), b.view(len(a), -1, WIDTH).transpose(1, 2)).squeeze(1)
        return F.cross_entropy(scores / 0.5, torch.zeros(len(a), dtype=torch.long))


@pytest.mark.parametrize("module", [Queue, OwnCandidates])
def test_a_positive_of_each_row_stands_first(module):
    a, b = embeddings()
    ((each,),) = tapped(module(), a[:3] if module is OwnCandidates else a, b).by_width
    first = torch.zeros(len(each.scores), dtype=torch.long)
    closed = gradient(lambda s: F.cross_entropy(s / 0.5, first), each.scores)
    assert each.scores.shape == ((3, 2) if module is OwnCandidates else (ROWS, 10))
    assert_close(each.weights, closed, rtol=1e-5, atol=1e-7)
    assert torch.equal(each.positive.int().argmax(dim=1), first) and each.positive.sum() == len(first)
    assert each.candidate is None and each.query is not None
