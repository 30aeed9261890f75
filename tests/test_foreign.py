"""Third-party losses: what their parameters receive, which scores they read, which built-in loss they are."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.nn import functional

import cocos
from cocos import Embeddings, losses, measures
from cocos.base.errors import InputError
from cocos.embeddings import scores
from cocos.losses.foreign import ForeignLoss

N = 24
CODE = '''
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def ranked(scores):
    return F.cross_entropy(scores, torch.arange(len(scores)))


def scores_and_masks(scores, positive, negative):
    logits = (scores / 0.1).masked_fill(~(positive | negative), -torch.inf)
    return -(logits.log_softmax(dim=1) * positive).nan_to_num(0).sum(dim=1)


def only_scores(similarity):
    return ranked(10 * similarity)


def of_pairs(pairs):
    return scores_and_masks(pairs.scores, pairs.positive, pairs.negative)


def two_sides(image_features, text_features):
    return ranked(10 * F.normalize(image_features) @ F.normalize(text_features).T)


def by_position(foo, bar):
    return two_sides(foo, bar)


def z_names(z_i, z_j):
    return two_sides(z_i, z_j)


def numbered_names(z0, z1):
    return two_sides(z0, z1)


def first_of_tuple(query, positive_key):
    return two_sides(query, positive_key), 0.5, "accuracy"


def in_dict(query, candidate):
    return {"accuracy": 1.0, "loss": two_sides(query, candidate)}


def x_and_y(x, y):
    return two_sides(x, y)


class SupCon(nn.Module):
    """Wants (rows, views, D), as the published code does."""

    def __init__(self, temperature=0.1):
        super().__init__()
        self.temperature = temperature

    def forward(self, features, labels=None, mask=None):
        if features.ndim < 3:
            raise ValueError("features needs to be [bsz, n_views, ...]")
        rows = F.normalize(features[:, 0])
        positive = (labels[:, None] == labels).double() - torch.eye(len(rows), dtype=torch.float64)
        logits = (rows @ rows.T / self.temperature).masked_fill(torch.eye(len(rows)) > 0, -1e9)
        return -(logits.log_softmax(dim=1) * positive).sum(dim=1).div(positive.sum(dim=1)).mean()


def x_and_labels(x, y):
    return SupCon()(x[:, None], y)


class BatchHard:
    """The batch-hard triplet loss of person re-identification; returns a tuple."""

    def __init__(self, margin=0.3):
        self.ranking = nn.MarginRankingLoss(margin=margin)

    def __call__(self, global_feat, labels, normalize_feature=False):
        number = len(global_feat)
        squares = global_feat.pow(2).sum(dim=1, keepdim=True).expand(number, number)
        squares = (squares + squares.t()).addmm_(global_feat, global_feat.t(), beta=1, alpha=-2)
        distances, same = squares.clamp(min=1e-12).sqrt(), labels[:, None] == labels
        far = distances.masked_fill(~same, -1).amax(dim=1)
        near = distances.masked_fill(same, 1e9).amin(dim=1)
        return self.ranking(near, far, torch.ones_like(near)), far, near


class Clip(nn.Module):
    def forward(self, image_features, text_features, logit_scale):
        logits = logit_scale * F.normalize(image_features) @ F.normalize(text_features).T
        return (ranked(logits) + ranked(logits.T)) / 2


class Memory(nn.Module):
    """Keeps a state between calls."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, query, candidate):
        self.calls += 1
        return self.calls * two_sides(query, candidate)


class Reduced(nn.Module):
    def __init__(self, reduction="mean"):
        super().__init__()
        self.reduction = reduction

    def forward(self, query, candidate):
        costs = (0.2 + query @ candidate.T - (query * candidate).sum(1, keepdim=True)).clamp(min=0)
        costs = costs.masked_fill(torch.eye(len(query)) > 0, 0).sum(dim=1)
        return costs.mean() if self.reduction == "mean" else costs.sum()


def views(first, second):
    """NT-Xent of two views: rows of both are queries."""
    rows = F.normalize(torch.cat([first, second]))
    number = len(first)
    partners = torch.cat([torch.arange(number) + number, torch.arange(number)])
    logits = (rows @ rows.T / 0.5).masked_fill(torch.eye(2 * number) > 0, -1e9)
    return F.cross_entropy(logits, partners)


def to_proxies(embeddings, labels, proxies):
    return F.cross_entropy(20 * F.linear(F.normalize(embeddings), F.normalize(proxies)), labels)


def random(query, candidate):
    return two_sides(query + 0 * torch.randn_like(query), candidate) * (1 + torch.rand(()) + np.random.rand())


def upper(embeddings, labels):
    rows = F.normalize(embeddings)
    scores, above = rows @ rows.T, torch.ones(len(rows), len(rows)).triu(1) > 0
    same = labels[:, None] == labels
    return F.softplus((10 * scores[above & ~same]).logsumexp(0) + (-10 * scores[above & same]).logsumexp(0))


def numpy_only(query, candidate):
    return torch.tensor(float((query.detach().numpy() @ candidate.detach().numpy().T).sum()))


def as_array(query, candidate):
    return np.zeros(3)


def matrix(query, candidate):
    return query @ candidate.T


def infinite(query, candidate):
    return (query @ candidate.T).sum() / 0


def raises(query, candidate):
    raise KeyError("key")


def manhattan(query, candidate):
    return ranked(-torch.cdist(query, candidate, p=1))


def unclear(embeddings):
    return embeddings.sum()


def unknown(query, candidate, beta):
    return two_sides(query, candidate)


NUMBER = 3
'''


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    path = tmp_path_factory.mktemp("code") / "user_losses.py"
    path.write_text(CODE)
    return path


def drawn(seed, number=N):
    return torch.randn(number, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def two_sided():
    return Embeddings(drawn(0), drawn(0) + drawn(1))


def labelled(number=6):
    return Embeddings.labelled(drawn(0) + 2 * drawn(2, number)[torch.arange(N) % number], torch.arange(N) % number)


def with_proxies():
    labels = torch.arange(N) % 6
    return Embeddings.labelled(drawn(0), labels, drawn(3, 6), torch.arange(6))


def bind(path, name, embeddings, **options):
    loss = losses.load(f"{path}:{name}", options)
    pairs = scores.pairs(embeddings, metric=loss.metric, same_group="negative")
    return loss.bind(pairs)


# name -> (options, rows, type of the built-in loss, its parameters, metric)
BUILT_IN = {
    "scores_and_masks": ({}, two_sided, "NTXent", {"temperature": 0.1}, "cosine"),
    "only_scores": ({}, two_sided, "NTXent", {"temperature": 0.1}, "cosine"),
    "of_pairs": ({}, two_sided, "NTXent", {"temperature": 0.1}, "cosine"),
    "two_sides": ({}, two_sided, "NTXent", {"temperature": 0.1}, "cosine"),
    "by_position": ({}, two_sided, "NTXent", {"temperature": 0.1}, "cosine"),
    "z_names": ({}, two_sided, "NTXent", {"temperature": 0.1}, "cosine"),
    "numbered_names": ({}, two_sided, "NTXent", {"temperature": 0.1}, "cosine"),
    "first_of_tuple": ({}, two_sided, "NTXent", {"temperature": 0.1}, "cosine"),
    "in_dict": ({}, two_sided, "NTXent", {"temperature": 0.1}, "cosine"),
    "x_and_y": ({"arguments": "query,candidate"}, two_sided, "NTXent", {"temperature": 0.1}, "cosine"),
    "random": ({}, two_sided, "NTXent", {"temperature": 0.1}, "cosine"),
    "Memory": ({}, two_sided, "NTXent", {"temperature": 0.1}, "cosine"),
    "Reduced": ({}, two_sided, "Triplet", {"margin": 0.2}, "dot"),
    "Clip": ({"logit_scale": "20"}, two_sided, "NTXent", {"temperature": 0.05}, "cosine"),
    "SupCon": ({"temperature": "0.2"}, labelled, "SupCon", {"temperature": 0.2}, "cosine"),
    "x_and_labels": ({}, labelled, "SupCon", {"temperature": 0.1}, "cosine"),
    "BatchHard": ({}, labelled, "HardestPositive", {"triplet_sh.margin": 0.3}, "euclidean"),
    "views": ({"views": "true"}, lambda: labelled(12), "NTXent", {"temperature": 0.5}, "cosine"),
    "to_proxies": ({}, with_proxies, "NTXent", {"temperature": 0.05}, "cosine"),
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_code_is_counted_as_built_in_loss(code, name):
    options, rows, built_in, parameters, metric = BUILT_IN[name]
    loss = bind(code, name, rows(), **options)
    assert (type(loss).__name__, loss.metric, loss.name) == (built_in, metric, f"{code}:{name}")
    assert loss.parameters == pytest.approx(parameters, rel=1e-5)
    assert loss.closed_form and loss.bound and loss.unit_from != "unknown"


def test_count_equals_count_of_built_in_loss(code):
    ours = measures.count(two_sided(), "ntxent", batch_size=8, seed=1)
    theirs = measures.count(two_sided(), losses.load(f"{code}:two_sides"), batch_size=8, seed=1)
    assert (ours["contributing"].values == theirs["contributing"].values).all()
    assert theirs.attrs["loss"] == f"{code}:two_sides" and theirs.attrs["share"] == "probability"


def test_unidentified_loss_is_weighed_by_its_code(code):
    loss = bind(code, "upper", labelled())
    assert isinstance(loss, ForeignLoss) and loss.unit_from == "unknown" and loss.reading.symmetrised
    pairs = scores.pairs(labelled(), metric="cosine", same_group="negative")
    weights = loss.weight(pairs)
    torch.testing.assert_close(weights, weights.T)
    same = pairs.positive
    assert (weights[same] <= 0).all() and (weights[pairs.negative] >= 0).all() and weights.any()


def test_given_unit_is_kept(code):
    loss = bind(code, "two_sides", two_sided(), unit="2.5")
    pairs = scores.pairs(two_sided(), metric="cosine", same_group="negative")
    assert (loss.unit_from, float(loss.unit(pairs))) == ("given", 2.5)
    expected = losses.load("ntxent").weight(pairs) / N
    torch.testing.assert_close(loss.weight(pairs), expected)


def test_function_and_module_are_losses(code):
    def softest(scores, positive, negative):
        return (scores * negative).sum(dim=1)

    pairs = scores.pairs(two_sided(), metric="cosine", same_group="negative")
    torch.testing.assert_close(losses.as_loss(softest).weight(pairs), pairs.negative.double())
    module = torch.nn.Module()
    module.forward = lambda query, candidate: functional.cross_entropy(query @ candidate.T, torch.arange(N))
    loss = losses.as_loss(module).bind(pairs)
    assert (type(loss).__name__, loss.metric) == ("NTXent", "dot")


def test_subclass_of_loss_is_returned(code):
    class Mine(cocos.losses.Loss):
        def value(self, pairs):
            return pairs.scores.sum(dim=1)

    loss = losses.as_loss(Mine)
    assert isinstance(loss, Mine) and loss.name.endswith("Mine")


REFUSED = {
    "numpy_only": (two_sided, {}),
    "as_array": (two_sided, {}),
    "matrix": (two_sided, {}),
    "infinite": (two_sided, {}),
    "raises": (two_sided, {}),
    "manhattan": (two_sided, {}),
    "unclear": (labelled, {}),
    "unknown": (two_sided, {}),
    "NUMBER": (two_sided, {}),
    "absent": (two_sided, {}),
    "two_sides": (labelled, {}),
    "SupCon": (two_sided, {}),
    "views": (two_sided, {}),
    "Clip": (two_sided, {"logit_scal": 1}),
    "Reduced": (two_sided, {"metric": "dot"}),
    "by_position": (two_sided, {"unit": "-1"}),
    "z_names": (two_sided, {"arguments": "query,cand"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unusable_code_is_refused_with_its_name(code, name):
    rows, options = REFUSED[name]
    with pytest.raises(InputError) as error:
        bind(code, name, rows(), **options)
    assert "\n" not in str(error.value) and (name in str(error.value) or options)


def test_code_is_a_term_of_a_sum(code):
    loss = losses.load(f"{code}:two_sides+0.5*triplet", {"margin": 0.1})
    assert losses.load(loss.name, loss.parameters).parameters == {"triplet.margin": 0.1}
    with pytest.raises(InputError, match="NAME"):
        losses.load(loss.name, {"beta": 1})


def test_text_parameters_stay_text(code):
    assert losses.load(f"{code}:Reduced", {"reduction": "none"}).parameters == {"reduction": "none"}


def test_arguments_are_named_in_their_order(code):
    loss = bind(code, "unknown", two_sided(), beta=1, arguments="query,candidate")
    assert type(loss).__name__ == "NTXent"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_code_runs_in_float64(code, dtype):
    embeddings = Embeddings(drawn(0).to(dtype), (drawn(0) + drawn(1)).to(dtype))
    assert type(bind(code, "two_sides", embeddings)).__name__ == "NTXent"


def test_random_numbers_leave_generators_unchanged(code):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    bind(code, "random", two_sided())
    assert torch.equal(torch.rand(3), expected)


def test_command_counts_code_as_built_in_loss(code, tmp_path):
    path = tmp_path / "rows.npz"
    np.savez(path, query=two_sided().query, candidate=two_sided().candidate)
    command = [sys.executable, "-m", "cocos", "count", str(path), "--loss", f"{code}:Clip", "-p", "logit_scale=20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "NTXent(temperature=0.05)" in done.stdout + done.stderr
    command[6] = f"{code}:manhattan"
    done = subprocess.run(command[:7], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr
