"""Losses that are not on the shelf: sums, callables of the user's, and those of pytorch-metric-learning."""

import json
import random
import sys
import types

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cocos
from cocos import Embeddings, InputError, losses, measures, results
from cocos.base.errors import Unfit
from cocos.cli import app
from cocos.counting import shares, weights
from cocos.embeddings import scores
from cocos.measures.shared import synthetic_inputs
from cocos.reports import table
from finding_kinds import kinds

FILE = '''
import random
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn


def of_pairs(pairs, scale=3.0):
    return torch.where(pairs.negative, scale * pairs.scores, 0).sum(dim=1)


def ntxent(scores, positive, negative, tau=0.1):
    logits = scores / tau
    rest = logits.masked_fill(~negative, -torch.inf).logsumexp(dim=1, keepdim=True)
    return torch.where(positive, torch.logaddexp(rest - logits, torch.zeros_like(logits)), 0).sum(dim=1)


def without_negatives(sims, pos_mask, tau=0.1):
    return ntxent(sims, pos_mask, ~pos_mask, tau)


def of_scores_alone(similarity, margin=0.2):
    own = similarity.diag()[:, None]
    return (margin + similarity - own).clamp(min=0).masked_fill(torch.eye(len(similarity)) > 0.5, 0).sum()


def dot_hinge(scores, positive, negative):
    return torch.where(negative, scores.clamp(min=0), 0).sum(dim=1)


dot_hinge.metric = "dot"


def reduced(scores, positive, negative, reduction="mean"):
    each = ntxent(scores, positive, negative)
    return each.mean() if reduction == "mean" else each


class VSE(nn.Module):
    """As published: both directions, a sum, written for images and sentences."""

    def __init__(self, margin=0.2, max_violation=False):
        super().__init__()
        self.margin, self.max_violation = margin, max_violation

    def forward(self, im, s):
        scores = im.mm(s.t())
        own = scores.diag().view(im.size(0), 1)
        sentences = (self.margin + scores - own.expand_as(scores)).clamp(min=0)
        images = (self.margin + scores - own.t().expand_as(scores)).clamp(min=0)
        same = torch.eye(scores.size(0)) > 0.5
        sentences, images = sentences.masked_fill_(same, 0), images.masked_fill_(same, 0)
        if self.max_violation:
            sentences, images = sentences.max(1)[0], images.max(0)[0]
        return sentences.sum() + images.sum()


class Clip(nn.Module):
    """Two products that are each other's transpose."""

    def forward(self, image_features, text_features, logit_scale):
        image, text = F.normalize(image_features, dim=-1), F.normalize(text_features, dim=-1)
        per_image, per_text = logit_scale * image @ text.T, logit_scale * text @ image.T
        labels = torch.arange(len(image))
        return (F.cross_entropy(per_image, labels) + F.cross_entropy(per_text, labels)) / 2


class SupCon(nn.Module):
    def __init__(self, temperature=0.1, reduction="mean"):
        super().__init__()
        self.temperature, self.reduction = temperature, reduction

    def forward(self, features, labels=None, mask=None):
        x = F.normalize(features)
        logits = x @ x.T / self.temperature
        logits = logits - logits.max(dim=1, keepdim=True)[0].detach()
        own = torch.eye(len(x), dtype=torch.bool)
        same = (labels[:, None] == labels) & ~own
        log_prob = logits - logits.masked_fill(own, -torch.inf).logsumexp(dim=1, keepdim=True)
        each = -torch.where(same, log_prob, 0).sum(dim=1) / same.sum(dim=1)
        return each if self.reduction == "none" else each.mean()


def batch_hard(embeddings, labels, margin=0.3):
    """Squared distances by an operation in place, then the hardest of each sample."""
    n = embeddings.size(0)
    dist = torch.pow(embeddings, 2).sum(dim=1, keepdim=True).expand(n, n)
    dist = dist + dist.t()
    dist.addmm_(embeddings, embeddings.t(), beta=1, alpha=-2)
    dist = dist.clamp(min=1e-12).sqrt()
    mask = labels.expand(n, n).eq(labels.expand(n, n).t())
    return torch.stack([(d[m].max() - d[~m].min() + margin).clamp(min=0) for d, m in zip(dist, mask)]).mean()


def by_hand(x, y):
    """Cosines as a quotient of two matrices, neither of which is the whole of it."""
    norm = x.norm(dim=1)
    return softplus((x @ x.T) / (norm[:, None] * norm[None, :]), y)


def softplus(similarity, y):
    other = y[:, None] != y
    return torch.where(other, F.softplus(5 * similarity), F.softplus(-5 * similarity)).sum()


def by_differences(z, labels):
    return softplus(-(z[:, None] - z[None]).pow(2).sum(dim=2), labels)


def with_regulariser(embeddings, labels):
    return softplus(F.normalize(embeddings) @ F.normalize(embeddings).T, labels) + embeddings.norm(dim=1).sum()


def to_centres(embeddings, labels):
    """No matrix of pairs anywhere."""
    one_hot = F.one_hot(labels).to(embeddings.dtype)
    own = one_hot / one_hot.sum(dim=0).clamp(min=1)
    other = (1 - one_hot) / (1 - one_hot).sum(dim=0)
    means = lambda part: (part[:, :, None] * embeddings[:, None, :]).sum(dim=0)[labels]
    return (embeddings - means(own)).norm(dim=1) - (embeddings - means(other)).norm(dim=1)


def to_centres_in_all(embeddings, labels):
    return to_centres(embeddings, labels).sum()


def two_matrices(query, candidate):
    """Two kinds of scores."""
    return (query @ candidate.T).diag().sum() + torch.cdist(query.flip(1), candidate).logsumexp(dim=1).sum()


def to_proxies(embeddings, proxies, labels, scale=8.0):
    return F.cross_entropy(scale * F.normalize(embeddings) @ F.normalize(proxies).T, labels, reduction="none")


def at_random(scores, positive, negative):
    kept = torch.rand_like(scores) < random.random()
    return torch.where(negative & kept, scores, 0).sum(dim=1)


class Old(torch.autograd.Function):
    """Without setup_context, which torch.func refuses."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 3 * gradient


def old(scores, positive, negative):
    return Old.apply(ntxent(scores, positive, negative))


@dataclass(frozen=True)
class Whole:
    """Everything that the protocol asks for."""

    scale: float = 5.0
    ks: tuple[int, ...] = (1, 2)
    metric: ClassVar[str] = "dot"
    couples: ClassVar[str] = "query"
    gradient: ClassVar[str] = "exact"
    balanced: ClassVar[bool] = True
    sample: ClassVar[str] = "groups"

    def __call__(self, pairs):
        return pairs.cross_entropy(self.scale * pairs.scores)

    def weight(self, pairs):
        return self.scale * pairs.residual(self.scale * pairs.scores)

    def unit(self, pairs):
        return pairs.scores.new_tensor(self.scale)


ready = SupCon(temperature=0.2)
number = 3


def matrix(scores, positive, negative):
    return scores


def nothing(scores, positive, negative):
    return None


def not_a_number(scores, positive, negative):
    return torch.where(negative, scores, 0).sum(dim=1) * torch.nan


def detached(scores, positive, negative):
    return ntxent(scores.detach(), positive, negative)


def detached_too(query, candidate):
    return -(query @ candidate.T).detach().diag()


def wants_unit_vectors(query, candidate):
    assert torch.allclose(query.norm(dim=1), torch.ones(len(query), dtype=query.dtype)), "not normalised"
    return F.cross_entropy(10 * query @ candidate.T, torch.arange(len(query)), reduction="none")


def raises(scores, positive, negative):
    raise KeyError("never there")


def odd(foo, bar):
    return (foo * bar).sum(dim=1)


def says_too_little(embeddings):
    return embeddings.sum(dim=1)


def prints(scores, positive, negative):
    print("step 1")
    return ntxent(scores, positive, negative)


class NeedsMore(nn.Module):
    def __init__(self, dim):
        super().__init__()

    def forward(self, query, candidate):
        return (query * candidate).sum()
'''


def unit(rows):
    return rows / rows.norm(dim=1, keepdim=True)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """`own("name")`: a loss of the file above; `own.file`, `own.folder`."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("my_losses", "broken", "leaves"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    path = tmp_path / "my_losses.py"
    path.write_text(FILE)

    def load(name, parameters=None):
        return losses.load(f"{path}:{name}", parameters)

    load.file, load.folder = path, tmp_path
    return load


def rows(seed=0, number=24, width=6):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(number) % 6
    centres = torch.randn(6, width, generator=generator, dtype=torch.float64)
    return centres[labels] + 0.7 * torch.randn(number, width, generator=generator, dtype=torch.float64), labels


def labelled(seed=0, prepared=torch.clone):
    samples, labels = rows(seed)
    return Embeddings.labelled(prepared(samples), labels)


def two_sided(seed=0, prepared=torch.clone, number=24):
    images, _ = rows(seed, number)
    captions = images + 0.7 * rows(seed + 100, number)[0]
    return Embeddings(prepared(images), prepared(captions))


def with_proxies(seed=0, prepared=torch.clone, per_class=1):
    samples, labels = rows(seed)
    proxies, _ = rows(seed + 50, 6 * per_class)
    order = torch.randperm(6 * per_class, generator=torch.Generator().manual_seed(3))
    classes = 10 + torch.arange(6).repeat(per_class)[order]
    return Embeddings.labelled(prepared(samples), labels + 10, prepared(proxies), classes)


def pairs_of(embeddings, metric="cosine", **more):
    return scores.pairs(embeddings, metric=metric, **more)


def close(actual, expected, tolerance=1e-10):
    scale = max(1.0, expected.abs().max().item())
    worst = (actual - expected).abs().max().item()
    assert worst <= tolerance * scale, f"off by {worst:.3e} with weights up to {scale:.3e}"


def matched(embeddings):
    """Pairs of which row i matches row i and everything else is a negative."""
    return pairs_of(embeddings, same_group="negative")


# Callables of scores


@pytest.mark.parametrize("given", [labelled, two_sided, with_proxies])
def test_a_function_of_scores_has_the_weights_of_its_formula(own, given):
    pairs = pairs_of(given())
    loss, shelf = own("ntxent", {"tau": "0.07"}), losses.load("ntxent", {"temperature": 0.07})
    close(loss(pairs), shelf(pairs))
    close(loss.weight(pairs), shelf.weight(pairs))
    close(weights.autograd(loss, pairs), shelf.weight(pairs))
    assert (loss.metric, loss.gradient, loss.couples) == ("cosine", "autograd", "batch")


def test_self_similarities_are_no_negatives_of_a_function_that_is_told_none(own):
    pairs = pairs_of(labelled())
    close(own("without_negatives").weight(pairs), losses.load("ntxent").weight(pairs))


def test_a_function_of_pairs_and_one_of_scores_alone(own):
    pairs = matched(two_sided())
    close(own("of_pairs", {"scale": 2}).weight(pairs), 2.0 * pairs.negative)
    alone = own("of_scores_alone")
    close(alone.weight(pairs), losses.load("triplet").weight(pairs))
    assert alone(pairs).sum().item() == pytest.approx(losses.load("triplet")(pairs).sum().item())
    with pytest.raises(InputError, match="scores alone"):
        alone.weight(pairs_of(labelled()))


def test_the_metric_is_an_attribute_or_a_parameter(own):
    assert own("dot_hinge").metric == "dot"
    assert own("ntxent", {"metric": "squared_euclidean"}).metric == "squared_euclidean"
    assert measures.count(two_sided(), own("ntxent", {"metric": "dot"})).attrs["metric"] == "dot"


BY_UNIT = ("contributing_mean", "contributing_all", "contributing_sum", "idle", "idle_fraction", "idle_pull")
BY_UNIT += ("weight_above", "weight_below", "weight_positive", "pulled_negatives", "pushed_positives")


def test_a_loss_of_unknown_unit_has_nothing_by_it(files):
    """Every number by a unit is missing for a smoothed softmax, and no other number has its name."""
    (files / "smooth.py").write_text(
        "import torch.nn.functional as F\n\n\ndef smooth(scores, positive):\n"
        "    target = positive.int().argmax(1)\n"
        "    return F.cross_entropy(10 * scores, target, label_smoothing=0.1, reduction='none')\n"
    )
    done = call(
        "count", files / "two.npz", "--loss", f"{files / 'smooth.py'}:smooth", "--out", files / "c.nc", "--json"
    )
    found = json.loads(done.stdout)
    assert (found["unit"], found["share"]) == ("unknown", "unknown")
    for part in found["directions"].values():
        assert {key: part[key] for key in BY_UNIT} == dict.fromkeys(BY_UNIT, {"mean": None, "std": None})
        assert part["relative"]["mean"] > 0 and part["effective"]["mean"] > 1 and part["queries"] == 24
    said = str(table("count", results.open(files / "c.nc")))
    assert "contribut" not in said and "C^A" not in said and "* negatives with more than 1 % of the push" in said
    assert "the unit of this loss is not known: parts of the query's own push are counted" in said


def test_a_unit_that_another_batch_does_not_have_is_unknown(own):
    """The form is looked for on the first batch; where a later one has another, nothing is by the unit."""
    calls = []

    def changing(scores, positive, negative):
        calls.append(len(scores))
        sharp = 10 if len(scores) == 10 else 10 * scores.detach()  # no softmax of the last batch, of 4 rows
        return losses.load("ntxent", {"temperature": 1})(cocos.Pairs(sharp * scores, positive, negative))

    data = measures.count(two_sided(), losses.as_loss(changing), batch_size=10)
    assert 4 in calls and data["contributing"].isnull().all() and data.attrs["share"] == "unknown"
    assert "changed form" in kinds(data)


def test_the_unit_is_given_or_measured(own):
    pairs = pairs_of(two_sided())
    loss = own("ntxent")
    close(loss.unit(pairs), torch.tensor(10.0, dtype=torch.float64))
    data, shelf = measures.count(two_sided(), loss, batch_size=10), measures.count(two_sided(), "ntxent", batch_size=10)
    np.testing.assert_array_equal(data["contributing"], shelf["contributing"])
    assert (data.attrs["unit"], data.attrs["share"]) == ("softmax", "probability")
    assert "the unit is measured: the weights are those of a softmax of the scores" in " ".join(
        str(table("count", data)).split()
    )
    exact = own("ntxent", {"unit": "10"})
    assert exact.unit(pairs) == 10
    for name in ("contributing", "weight_above", "idle", "hardest_share"):
        counted, shelf = measures.count(two_sided(), exact), measures.count(two_sided(), "ntxent")
        np.testing.assert_allclose(counted[name], shelf[name], rtol=1e-5)


def test_a_mean_is_taken_apart_where_it_says_that_it_is_one(own):
    pairs = pairs_of(two_sided())
    close(own("reduced")(pairs), losses.load("ntxent")(pairs))
    close(own("reduced", {"reduction": "mean"}).weight(pairs), losses.load("ntxent").weight(pairs) / 24)
    notes = own("reduced", {"reduction": "mean"}).bind(pairs).notes
    assert "it returns one number: its weights are of the loss as reduced by it" in notes


def test_random_choices_are_the_same_every_time_and_disturb_no_others(own):
    pairs, loss = pairs_of(two_sided()), own("at_random")
    torch.manual_seed(7)
    before, others = torch.get_rng_state(), (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002
    first = loss.weight(pairs)
    assert torch.equal(torch.get_rng_state(), before)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == others  # noqa: NPY002
    assert torch.equal(first, loss.weight(pairs)) and 0 < (first > 0).double().mean() < 0.96


def test_an_old_function_of_autograd_is_followed(own):
    pairs = pairs_of(two_sided())
    close(own("old").weight(pairs), 3 * losses.load("ntxent").weight(pairs))


def test_an_object_of_the_protocol_keeps_what_it_says(own):
    loss = own("Whole", {"scale": "7", "ks": "3,4"})
    pairs = pairs_of(two_sided(), "dot")
    assert (loss.metric, loss.couples, loss.gradient, loss.balanced, loss.sample) == (
        "dot",
        "query",
        "exact",
        True,
        "groups",
    )
    close(loss.weight(pairs), weights.autograd(loss, pairs))
    assert weights.gap(loss, pairs) < 1e-10 and loss.unit(pairs) == 7
    assert loss.parameters == {"scale": 7, "ks": (3, 4)}
    shelf = losses.load("cocos.losses.ntxent:NTXent", {"temperature": 0.05})
    close(
        shelf.weight(pairs_of(two_sided())), losses.load("ntxent", {"temperature": 0.05}).weight(pairs_of(two_sided()))
    )


def test_a_callable_needs_no_name():
    def mine(scores, positive, negative):
        return torch.where(negative, scores, 0).sum(dim=1)

    data = measures.count(two_sided(), mine)
    assert data.attrs["loss"].endswith("mine") and float(data["relative"].mean()) == 23
    assert data["contributing"].isnull().all() and data.attrs["share"] == "unknown"  # all push alike, no hinge is seen


# Callables of embeddings


def test_the_scores_of_a_loss_of_embeddings_are_found(own):
    pairs = pairs_of(labelled())
    loss = own("SupCon").bind(pairs)
    assert (loss.metric, loss.matching, (not loss.matrix.also_read)) == (
        "cosine",
        "labels",
        True,
    )
    close(loss.weight(pairs), losses.load("supcon").weight(pairs))
    close(loss(pairs), losses.load("supcon")(pairs))
    close(weights.autograd(own("SupCon"), pairs), loss.weight(pairs))
    close(own("ready").weight(pairs), losses.load("supcon", {"temperature": 0.2}).weight(pairs))


@pytest.mark.parametrize(("name", "metric"), [("VSE", "dot"), ("Clip", "cosine")])
def test_two_sides_are_matched_row_by_row(own, name, metric):
    pairs = matched(two_sided())
    loss = own(name, {"logit_scale": 20} if name == "Clip" else {}).bind(pairs)
    assert (loss.matching, loss.metric) == ("rows", metric)
    read = matched(two_sided()).with_scores(scores.METRICS[metric](pairs.embeddings.query, pairs.embeddings.candidate))
    there = read.with_scores(read.scores.T)
    shelf, mean = (losses.load("triplet"), 1) if name == "VSE" else (losses.load("sampled_softmax"), 48)
    close(loss.weight(pairs), (shelf.weight(read) + shelf.weight(there).T) / mean)


def test_a_user_of_the_published_loss_counts_as_the_shelf_does(own):
    hardest = own("VSE", {"max_violation": "true", "unit": 1})
    found = measures.count(two_sided(prepared=unit), hardest, batch_size=8)
    assert found.attrs["sample"] == "pairs" and found.attrs["same_group"] == "negative"
    assert float(found["contributing"].max()) <= 8 and float(found["contributing"].min()) >= 0


@pytest.mark.parametrize(
    ("name", "metric"),
    [("batch_hard", "squared_euclidean"), ("by_hand", "cosine"), ("by_differences", "squared_euclidean")],
)
def test_however_the_scores_are_computed(own, name, metric):
    pairs = pairs_of(labelled())
    loss = own(name).bind(pairs)
    assert (loss.metric, (not loss.matrix.also_read), loss.own_scores) == (metric, True, False)
    read = pairs_of(labelled(), metric)
    weight = loss.weight(read)
    step, total = 1e-6, loss(read).sum()
    for place in ((0, 6), (3, 1), (5, 20)):
        change = torch.zeros_like(read.scores)
        change[place] = step
        slope = (loss(read.with_scores(read.scores + change)).sum() - total) / step
        assert slope.item() == pytest.approx(weight[place].item(), abs=1e-4)
    assert (weight[read.positive] <= 0).all() and (weight[read.negative] >= 0).all()


def test_a_loss_that_wants_unit_vectors_is_given_no_others(own):
    pairs = matched(two_sided(prepared=unit))
    loss = own("wants_unit_vectors").bind(pairs)
    assert loss.metric == "cosine" and loss.matrix.factor == pytest.approx(10)
    close(loss.weight(pairs), losses.load("ntxent").weight(pairs))


def test_what_is_detached_is_no_part_of_the_gradient():
    """A miner on detached embeddings chooses, and detached factors are held; both move the value with the scores."""
    normal = torch.nn.functional.normalize

    def mined(query, candidate):
        with torch.no_grad():
            apart = torch.cdist(normal(query), normal(candidate)).fill_diagonal_(9)
        s = normal(query) @ normal(candidate).T
        return (s.gather(1, apart.argmin(dim=1, keepdim=True))[:, 0] - s.diag()).sum()

    def held(query, candidate):
        factors = (5 * (normal(query.detach()) @ normal(candidate.detach()).T)).softmax(dim=1)
        return (factors * (normal(query) @ normal(candidate).T)).sum(dim=1)

    pairs = matched(two_sided())
    hardest = pairs.scores.masked_fill(pairs.positive, -torch.inf).argmax(dim=1)
    close(losses.as_loss(mined).weight(pairs), torch.eye(24, dtype=torch.float64)[hardest] - torch.eye(24))
    loss, changed = losses.as_loss(held).bind(pairs), pairs.with_scores(pairs.scores.flip(0))
    close(loss.weight(pairs), (5 * pairs.scores).softmax(dim=1))
    assert loss.matrix.detached and (len(loss.matrix.positions), loss.matrix.also_read) == (2, "")
    close(loss(changed), ((5 * changed.scores).softmax(dim=1) * changed.scores).sum(dim=1))


def test_the_scores_of_a_large_batch_are_found_in_single_precision():
    """A mean over many pairs is nearly the same number for any embeddings."""
    generator = torch.Generator().manual_seed(0)
    query, candidate = (torch.randn(96, 64, generator=generator) for _ in "qc")

    def both(query, candidate):
        s, own = query @ candidate.T, torch.arange(len(query))
        return torch.nn.functional.cross_entropy(0.01 * s, own) + torch.nn.functional.cross_entropy(0.01 * s.T, own)

    loss = losses.as_loss(both).bind(matched(Embeddings(query, candidate)))
    assert loss.metric == "dot" and not loss.matrix.also_read


@pytest.mark.parametrize("width", [8, 12, 4])
@pytest.mark.parametrize("power", [2, 1])
def test_a_batch_of_as_many_rows_as_dimensions_has_the_scores_where_they_are(width, power):
    """Rows have the shape of the scores there: of the first batch of 12, of the last one of 4, or of no batch."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(2, 28, width, generator=generator, dtype=torch.float64)

    def distant(query, candidate):
        normal = torch.nn.functional.normalize
        distances = torch.cdist(5 * normal(query), 5 * normal(candidate), p=power)  # for p = 1 no metric of cocos
        return torch.nn.functional.cross_entropy(-distances, torch.arange(len(query)), reduction="none")

    def of_distances(distances):
        return torch.nn.functional.cross_entropy(-distances, torch.arange(len(distances)), reduction="none")

    loss = losses.as_loss(distant)
    for start, stop in ((0, 12), (12, 24), (24, 28)):
        pairs = matched(Embeddings(*rows[:, start:stop]))
        loss = loss.bind(pairs)
        distances = torch.cdist(*torch.nn.functional.normalize(5 * rows[:, start:stop], dim=2) * 5, p=power)
        expected = -torch.func.grad(lambda each: of_distances(each).sum())(distances)
        close(loss.weight(pairs), expected)
    data = measures.count(Embeddings(*rows), distant, batch_size=12)
    assert int(data["relative_per_query"].notnull().sum()) == 2 * 28


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_scores_of_a_library_are_found_in_half_precision(library, dtype):
    pairs = pairs_of(labelled(prepared=unit).to(dtype=dtype))
    assert losses.load("pml:NTXentLoss").bind(pairs).metric == "cosine"


def test_a_labelled_loss_is_told_the_groups_in_a_batch_of_pairs(own):
    images, labels = rows()
    embeddings = Embeddings(images, images + 0.3, labels, labels)

    def mine(query, candidate, labels, candidate_labels):
        near = torch.nn.functional.normalize(query) @ torch.nn.functional.normalize(candidate).T
        return torch.where(labels[:, None] == candidate_labels, -near, near.exp()).sum(dim=1)

    data = measures.count(embeddings, mine, sample="pairs", batch_size=12)
    assert data.attrs["same_group"] == "positive"
    assert 6 < float(data["negatives"].mean()) < 11
    assert int(data["same_group_pairs"].sum()) > 0
    assert "positives of each other" in str(table("count", data))


def test_a_loss_against_proxies_reads_their_rows(own):
    pairs = pairs_of(with_proxies())
    loss = own("to_proxies").bind(pairs)
    close(loss.weight(pairs), losses.load("normalized_softmax", {"temperature": 1 / 8}).weight(pairs))


def test_code_is_not_changed_by_being_read(own):
    memory = []

    class Remembers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, embeddings, labels):
            self.seen += 1
            memory.append(self.seen.item())
            return torch.nn.functional.softplus(embeddings @ embeddings.T).sum(dim=1)

    loss = losses.as_loss(Remembers())
    loss.weight(pairs_of(labelled()))
    assert set(memory) == {1.0}


def test_one_set_is_not_two_sides(own):
    with pytest.raises(InputError, match="reads one labelled set"):
        measures.count(two_sided(), own("SupCon"))
    with pytest.raises(InputError, match="query i must match candidate i"):
        measures.count(labelled(), own("VSE"))
    with pytest.raises(InputError, match="these pairs are scores alone"):
        own("SupCon").weight(synthetic_inputs.build("ties"))
    assert own("VSE")(matched(two_sided())).isfinite().all()
    with pytest.raises(Unfit, match="query i must match candidate i"):
        own("VSE")(pairs_of(labelled()))


# What it is called, and what a Dataset says


def test_names_and_parameters_come_back(own):
    for name, given in ((f"{own.file}:ntxent", {"tau": 0.2}), ("triplet+0.5*ntxent", {"triplet.margin": 0.3}),
                        ("circle", {"margin": 0.3}), ("center_contrastive", {"weight": 2.0})):  # fmt: skip
        loss = losses.load(name, given)
        assert loss.name == name
        assert loss.parameters.items() >= given.items()
        again = losses.load(loss.name, loss.parameters)
        assert repr(again) == repr(loss)
    assert losses.canonical(" Triplet-SH ") == "triplet_sh"
    assert losses.canonical("1*Triplet-SH + 2 * ntxent") == "triplet_sh+2*ntxent"


def test_provenance_is_json(own):
    recall = results.provenance(losses.load("recall_at_k"))
    assert json.loads(recall["loss_parameters"])["ks"] == [1, 2, 4, 8, 16]
    assert json.loads(results.provenance(losses.load("multi_similarity"))["loss_parameters"])["mining"] is None
    infinite = results.provenance(own("ntxent", {"tau": float("inf")}))
    assert json.loads(infinite["loss_parameters"], parse_constant=pytest.fail) == {"tau": "inf"}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("ntxent", ""),
        ("circle", "stop-gradient: what training uses; a factor of the loss is held fixed in it"),
        ("blackbox_ap", "pseudo-gradient: made up by the backward pass of its authors, not the derivative of the loss"),
    ],
)
def test_a_gradient_that_is_not_the_derivative_is_said_so(name, sentence):
    data = measures.count(labelled(), name)
    assert shares.about_weights(data.attrs) == sentence
    assert sentence in str(table("count", data))
    kind = f", {sentence.partition(':')[0]}" if sentence else ""
    assert cocos.plots.labels.heading(data) == data.attrs["loss_repr"] + kind


# Sums


def test_weights_add(own):
    pairs = pairs_of(two_sided())
    loss = losses.load(f"0.5*triplet + ntxent+2 * {own.file}:ntxent", {"tau": 0.3, "margin": 0.1})
    parts = (losses.load("triplet", {"margin": 0.1}), losses.load("ntxent"), own("ntxent", {"tau": 0.3}))
    close(loss.weight(pairs), sum(c * part.weight(pairs) for c, part in zip((0.5, 1, 2), parts, strict=True)))
    close(loss(pairs), sum(c * part(pairs) for c, part in zip((0.5, 1, 2), parts, strict=True)))
    close(loss.unit(pairs), torch.tensor(0.5 + 10 + 2 / 0.3, dtype=torch.float64))  # the last one is measured
    known = losses.load(f"0.5*triplet + ntxent+2 * {own.file}:ntxent", {"tau": 0.3, "margin": 0.1, "unit": 3})
    close(known.unit(pairs).expand(24, 1), torch.full((24, 1), 0.5 + 10 + 2 * 3, dtype=torch.float64))
    close(loss.weight(pairs), weights.autograd(loss, pairs))
    assert (loss.gradient, loss.couples, loss.sample, loss.balanced) == ("autograd", "batch", "pairs", False)


@pytest.mark.parametrize(
    ("text", "gradient", "couples", "balanced"),
    [
        ("triplet+ntxent", "exact", "query", True),
        ("triplet+circle", "stop_gradient", "query", False),
        ("circle+blackbox_ap", "pseudo", "query", False),
        ("ntxent+ce_softmax", "exact", "batch", False),
    ],
)
def test_a_sum_is_as_weak_as_its_weakest_term(text, gradient, couples, balanced):
    loss = losses.load(text)
    assert (loss.gradient, loss.couples, loss.balanced) == (gradient, couples, balanced)


def test_parameters_find_their_term():
    loss = losses.load("triplet+0.5*contrastive_cosine", {"contrastive_cosine.pos_margin": "0.8", "margin": "0.3"})
    assert loss.parameters == {
        "triplet.margin": 0.3, "contrastive_cosine.pos_margin": 0.8, "contrastive_cosine.neg_margin": 0.6
    }  # fmt: skip
    assert loss.name == "triplet+0.5*contrastive_cosine"
    assert (losses.load("2e+0*triplet+ntxent")).name == "2*triplet+ntxent"


def test_norms_are_read_through_a_sum():
    pairs = pairs_of(with_proxies())
    loss, alone = losses.load("ntxent+2*magface"), losses.load("magface")
    close(loss.radial(pairs), 2 * alone.radial(pairs))
    assert (losses.load("ntxent+triplet").radial(pairs) == 0).all()


def test_a_checkpoint_gives_each_term_what_it_recorded(tmp_path):
    frozen = cocos.Checkpoint(tmp_path, "0", "embeddings", {}, None, recorded={"triplet": {"margin": 0.4}})
    loss, origin = frozen.loss("triplet+0.5*ntxent", {"temperature": "0.3"})
    assert loss.parameters == {"triplet.margin": 0.4, "ntxent.temperature": 0.3}
    assert origin == "triplet.margin 0.4 (recorded in the checkpoint), ntxent.temperature 0.3 (given)"
    assert (frozen.loss("triplet+ntxent", {"margin": 0.1})[0]).parameters["triplet.margin"] == 0.1


@pytest.mark.parametrize("name", ["my_losses:ntxent", "pml:NTXentLoss", "my_losses.py:ntxent"])
def test_a_file_never_names_code(tmp_path, name):
    frozen = cocos.Checkpoint(tmp_path, "0", "native", {}, None, trained_with=name)
    with pytest.raises(InputError, match="unknown loss"):
        frozen.loss()


@pytest.mark.parametrize(
    ("text", "parameters", "sentence"),
    [
        ("triplet+contrastive", {}, "triplet reads cosine scores and contrastive reads euclidean scores"),
        ("triplet+0.5*triplet", {}, "add up its coefficients"),
        ("triplet+triplet_sh", {"margin": 1}, "more than one term has it; write triplet.margin or triplet_sh.margin"),
        ("triplet+ntxent", {"temprature": 1}, "unknown parameter of triplet+ntxent 'temprature'"),
        ("triplet+ntxent", {"triplet.temperature": 1}, "unknown parameter of triplet 'temperature'"),
        ("triplet+-1*ntxent", {}, "term '-1*ntxent', expected a loss, or a number above 0 times one"),
        ("inf*triplet", {}, "term 'inf*triplet', expected a loss"),
        ("triplet+", {}, "term '', expected a loss"),
        ("triplet+ntxnt", {}, "unknown loss 'ntxnt': did you mean 'ntxent'?"),
        ("osap", {}, "loss 'osap': unspecified"),
        ("OSAP", {}, "loss 'OSAP': unspecified"),
        ("triplet+osap", {}, "loss 'osap': unspecified"),
        ("ibc", {}, "loss 'ibc': not a function of the scores of a query, a message-passing network"),
        ("Intra-Batch", {}, "loss 'Intra-Batch': not a function of the scores of a query, a message-passing network"),
        ("AOQ loss", {}, "loss 'AOQ loss': not a function of the scores of a query, two of the five rows"),
        ("triplet+quintuplet", {}, "loss 'quintuplet': not a function of the scores of a query, two of the five rows"),
        (":x", {}, "write it as package.module:attribute, or file.py:attribute"),
        ("nowhere.at.all:x", {}, "there is no module 'nowhere.at.all' here or in the environment"),
        ("json:lods", {}, "unknown attribute of json 'lods': did you mean 'loads'?"),
        ("missing.py:x", {}, "there is no file missing.py"),
    ],
)
def test_unusable_names_get_a_sentence(text, parameters, sentence):
    with pytest.raises(InputError) as error:
        losses.load(text, parameters)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("name", "parameters", "sentence"),
    [
        ("ntxent", {"tua": 1}, "unknown parameter of {file}:ntxent 'tua': did you mean 'tau'?"),
        ("ntxent", {"tau": "warm"}, "parameter tau: 'warm' is not a number"),
        ("ntxent", {"metric": "cosin"}, "unknown metric 'cosin': did you mean 'cosine'?"),
        ("ntxent", {"unit": "0"}, "unit 0, expected a number above 0"),
        ("SupCon", {"temprature": 1}, "did you mean 'temperature'?"),
        ("SupCon", {"metric": "dot"}, "it reads embeddings and has its own scores"),
        ("number", {}, "of type int, expected a function or a class of losses"),
        ("odd", {}, "it takes (foo, bar), and 'foo' is not understood"),
        ("odd", {"arguments": "scores,positif"}, "unknown argument of a loss 'positif': did you mean 'positive'?"),
        ("says_too_little", {}, "it takes (embeddings), which says too little"),
        ("NeedsMore", {}, "it needs the parameter 'dim'"),
        ("Clip", {}, "'logit_scale' is not understood"),
    ],
)
def test_unusable_callables_get_a_sentence(own, name, parameters, sentence):
    with pytest.raises(InputError) as error:
        own(name, parameters)
    assert sentence.format(file=own.file) in str(error.value)


# The command line


@pytest.fixture
def files(own, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    embeddings, samples = two_sided(), labelled()
    np.savez(tmp_path / "two.npz", query=embeddings.query, candidate=embeddings.candidate)
    np.savez(tmp_path / "one.npz", embeddings=samples.query, labels=samples.query_group)
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "syntax.py").write_text("def f(:\n")
    (tmp_path / "leaves.py").write_text("raise SystemExit(0)\n")
    return tmp_path


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.mark.parametrize(
    ("file", "loss", "parameters", "share"),
    [
        ("two.npz", "my_losses:ntxent", {"tau": 0.2}, "probability"),
        ("two.npz", "my_losses.py:VSE", {"margin": 0.1}, "unknown"),  # both directions at once
        ("one.npz", "my_losses:SupCon", {}, "probability"),
        ("two.npz", "triplet+0.5*contrastive_cosine", {"triplet.margin": 0.1}, "unit"),
    ],
)
def test_a_run_of_the_command(files, file, loss, parameters, share):
    given = [part for name, value in parameters.items() for part in ("-p", f"{name}={value}")]
    done = call("count", files / file, "--loss", loss, *given, "--json", "--batch-size", 12)
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["loss"]["name"] == loss
    assert found["loss"]["parameters"].items() >= parameters.items()
    key = "relative" if share == "unknown" else "contributing_all"
    assert found["share"] == share and all(part[key]["mean"] > 0 for part in found["directions"].values())


@pytest.mark.parametrize(
    ("loss", "sentence"),
    [
        ("my_lossez:ntxent", "there is no module 'my_lossez'"),
        ("my_losses:ntxnt", "unknown attribute of my_losses 'ntxnt': did you mean 'ntxent'?"),
        ("my_losses:number", "of type int"),
        ("my_losses:matrix", "returned shape (24, 24), expected one loss per query, (24,), or one number"),
        ("my_losses:nothing", "returned NoneType"),
        ("my_losses:not_a_number", "returned NaN or infinity for queries 0, 1"),
        ("my_losses:detached", "its result has no gradient; it is detached somewhere"),
        ("my_losses:detached_too", "its result has no gradient; it is detached somewhere"),
        ("my_losses:wants_unit_vectors", "AssertionError: not normalised ("),
        ("my_losses:raises", "my_losses:raises: KeyError: 'never there' ("),
        ("broken:f", "could not be imported: ModuleNotFoundError: No module named 'nothing_of_that_name' ("),
        ("syntax.py:f", "could not be imported: SyntaxError: invalid syntax ("),
        ("leaves:f", "could not be imported: SystemExit: 0 ("),
        ("my_losses:SupCon", "reads one labelled set"),
    ],
)
def test_bad_losses_get_a_sentence(files, loss, sentence):
    done = call("count", files / "two.npz", "--loss", loss)
    assert done.exit_code == 2 and done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("cocos: ")]
    assert sentence in line and "Traceback" not in done.stderr


# pytorch-metric-learning

STANDIN = '''
import torch
from torch import nn


class DoNothingReducer(nn.Module):
    def forward(self, parts, embeddings, labels):
        return parts


class CosineSimilarity(nn.Module):
    def forward(self, query, reference=None):
        reference = query if reference is None else reference
        return nn.functional.normalize(query) @ nn.functional.normalize(reference).T


class LpDistance(nn.Module):
    def __init__(self, power=1):
        super().__init__()
        self.power = power

    def forward(self, query, reference=None):
        return torch.cdist(query, query if reference is None else reference) ** self.power


class Base(nn.Module):
    def __init__(self, reducer=None, distance=None):
        super().__init__()
        self.reducer, self.distance = reducer, distance or self.get_default_distance()

    def get_default_distance(self):
        return CosineSimilarity()

    def forward(self, embeddings, labels=None, indices_tuple=None, ref_emb=None, ref_labels=None):
        if ref_emb is None:
            ref_emb, ref_labels = embeddings, labels
        return self.reducer(self.compute_loss(embeddings, labels, ref_emb, ref_labels), embeddings, labels)


class NTXentLoss(Base):
    """With the trap: the same labels object means that a sample is not its own candidate."""

    def __init__(self, temperature=0.07, **kwargs):
        super().__init__(**kwargs)
        self.temperature = temperature

    def compute_loss(self, embeddings, labels, ref_emb, ref_labels):
        same = labels[:, None] == ref_labels
        positive = same.clone()
        if ref_labels is labels:
            positive.fill_diagonal_(False)
        sign = -1 if type(self.distance).__name__ == "LpDistance" else 1
        logits = sign * self.distance(embeddings, ref_emb) / self.temperature
        rest = logits.masked_fill(same, -torch.inf).logsumexp(dim=1, keepdim=True)
        a, p = torch.where(positive)
        losses = torch.logaddexp(rest[a, 0] - logits[a, p], torch.zeros(len(a)))
        return {"loss": {"losses": losses, "indices": (a, p), "reduction_type": "pos_pair"}}


class AngularLoss(Base):
    """Without a matrix of scores."""

    def compute_loss(self, embeddings, labels, ref_emb, ref_labels):
        a, n = torch.where(labels[:, None] != ref_labels)
        losses = (embeddings[a] * ref_emb[n]).sum(dim=1).relu()
        return {"loss": {"losses": losses, "indices": (a, n), "reduction_type": "neg_pair"}}


class NormalizedSoftmaxLoss(Base):
    def __init__(self, num_classes, embedding_size, temperature=0.05, **kwargs):
        super().__init__(**kwargs)
        self.temperature = temperature
        self.W = nn.Parameter(torch.randn(embedding_size, num_classes))

    def compute_loss(self, embeddings, labels, ref_emb, ref_labels):
        logits = self.distance(embeddings, self.W.t()) / self.temperature
        losses = nn.functional.cross_entropy(logits, labels, reduction="none")
        return {"loss": {"losses": losses, "indices": torch.arange(len(losses)), "reduction_type": "element"}}
'''


@pytest.fixture(params=["the library", "a stand-in"])
def library(request, monkeypatch):
    """pytorch-metric-learning, or a few lines with the same interface, so that this is tried without it too."""
    if request.param == "the library":
        pytest.importorskip("pytorch_metric_learning")
        return
    for name in [name for name in sys.modules if name.startswith("pytorch_metric_learning")]:
        monkeypatch.delitem(sys.modules, name)
    package = types.ModuleType("pytorch_metric_learning")
    package.__path__ = []
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning", package)
    for part in ("losses", "distances", "reducers", "miners", "regularizers"):
        module = types.ModuleType(f"pytorch_metric_learning.{part}")
        exec(STANDIN, vars(module))
        monkeypatch.setitem(sys.modules, f"pytorch_metric_learning.{part}", module)


@pytest.mark.parametrize("given", [labelled, two_sided, with_proxies])
def test_ntxent_of_the_library_is_ours(library, given):
    pairs = pairs_of(given())
    loss, shelf = losses.load("pml:NTXentLoss", {"temperature": "0.1"}), losses.load("ntxent")
    close(loss.weight(pairs), shelf.weight(pairs))
    close(loss(pairs), shelf(pairs))
    close(weights.autograd(loss, pairs), shelf.weight(pairs))
    bound = loss.bind(pairs)
    assert (bound.metric, bound.gradient) == ("cosine", "autograd")
    assert loss.name == "pml:NTXentLoss" and loss.parameters == {"temperature": 0.1}


def test_a_loss_of_the_library_that_is_ours_is_counted_by_the_closed_form(library):
    given = {"temperature": 0.1}
    theirs, ours = (measures.count(labelled(), losses.load(name, given)) for name in ("pml:NTXentLoss", "ntxent"))
    for name in ("contributing", "relative", "idle"):
        assert np.array_equal(theirs[name], ours[name], equal_nan=True), name
    np.testing.assert_allclose(theirs["effective"], ours["effective"], rtol=1e-5)
    assert theirs.attrs["gradient"] == "exact" and theirs.attrs["loss"] == "pml:NTXentLoss"
    assert "by the closed form of NTXent(temperature=0.1), the same loss" in theirs.attrs["notes"]
    measured = measures.count(labelled(), losses.load("pml:NTXentLoss", given | {"unit": 10}))
    assert measured.attrs["gradient"] == "autograd" and np.array_equal(measured["idle"], ours["idle"])


def test_a_module_of_the_library_is_the_loss_of_its_class_and_settings(library):
    from pytorch_metric_learning import distances
    from pytorch_metric_learning import losses as theirs

    pairs = pairs_of(labelled())
    for module, given in (
        (theirs.NTXentLoss(temperature=0.2), {"temperature": 0.2}),
        (theirs.NTXentLoss(), {}),
        (theirs.NTXentLoss(distance=distances.LpDistance(power=2)), {"distance": "LpDistance", "distance.power": 2}),
    ):
        loss = losses.as_loss(module)
        assert loss.name == "pml:NTXentLoss" and loss.parameters == given
        close(loss.weight(pairs), losses.load("pml:NTXentLoss", given).weight(pairs))
    assert losses.as_loss(theirs.NTXentLoss(temperature=0.2)).bind(pairs).unit_from == "NTXent(temperature=0.2)"
    own = losses.as_loss(theirs.NormalizedSoftmaxLoss(num_classes=4, embedding_size=6))  # with proxies of its own
    assert own.name.endswith(":NormalizedSoftmaxLoss") and not own.name.startswith("pml:")


def test_equal_labels_on_two_sides_are_not_one_set(library):
    """The trap: row i and candidate i are different vectors, and the diagonal must stay."""
    embeddings, labels = rows()[0], torch.arange(24)
    sides = Embeddings(embeddings, embeddings + 0.1, labels, labels)
    weight = losses.load("pml:NTXentLoss").weight(pairs_of(sides))
    assert (weight.diagonal() < 0).all()
    same = Embeddings(embeddings, embeddings, labels, labels)
    pairs = pairs_of(same)
    close(losses.load("pml:NTXentLoss").weight(pairs), losses.load("ntxent", {"temperature": 0.07}).weight(pairs))


def test_proxies_of_the_embeddings_are_those_of_the_loss(library):
    pairs = pairs_of(with_proxies())
    loss = losses.load("pml:NormalizedSoftmaxLoss", {"temperature": 0.1})
    close(loss.weight(pairs), losses.load("normalized_softmax", {"temperature": 0.1}).weight(pairs))
    with pytest.raises(InputError, match="add the arrays proxies and proxy_labels to the file"):
        measures.count(labelled(), loss)
    with pytest.raises(InputError, match="2 proxies a class, and it has one"):
        measures.count(with_proxies(per_class=2), loss)


def test_the_distance_can_be_chosen(library):
    pairs = pairs_of(labelled(prepared=unit))
    loss = losses.load("pml:NTXentLoss", {"temperature": 0.5, "distance": "LpDistance"})
    close(
        loss.weight(pairs),
        losses.load("ntxent", {"temperature": 0.5}).weight(pairs_of(labelled(prepared=unit), "euclidean")),
    )


@pytest.mark.parametrize(
    ("text", "parameters", "sentence"),
    [
        ("pml:NTXentLos", {}, "unknown loss of pytorch-metric-learning 'NTXentLos': did you mean 'NTXentLoss'?"),
        ("pml:NTXentLoss", {"temprature": 1}, "unknown parameter of pml:NTXentLoss 'temprature'"),
        ("pml:NTXentLoss", {"num_classes": 1}, "unknown parameter of pml:NTXentLoss 'num_classes'"),
        ("pml:NTXentLoss", {"metric": "dot"}, "unknown parameter of pml:NTXentLoss 'metric'"),
        ("pml:NTXentLoss", {"distance": "Cosine"}, "did you mean 'CosineSimilarity'?"),
        ("pml:NTXentLoss", {"distance": "LpDistance", "distance.pwer": 2}, "did you mean 'power'?"),
        ("pml:NTXentLoss", {"temperature.x": 2}, "unknown parameter of pml:NTXentLoss 'temperature.x'"),
    ],
)
def test_unusable_names_of_the_library_get_a_sentence(library, text, parameters, sentence):
    with pytest.raises(InputError) as error:
        losses.load(text, parameters)
    assert sentence in str(error.value)


def test_without_the_library_the_sentence_says_how_to_get_it(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("pytorch_metric_learning")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning", None)
    with pytest.raises(InputError, match="needs pytorch-metric-learning; pip install pytorch-metric-learning"):
        losses.load("pml:CircleLoss")


OUTCOMES = {  # of a labelled set, two sides and class proxies: score, or a part of the sentence
    "AngularLoss": ("no single matrix", "no single matrix", "no single matrix"),
    "ArcFaceLoss": ("class proxies", "class proxies", "score"),
    "BaseLossWrapper": ("a base class",) * 3,
    "BaseMetricLossFunction": ("a base class",) * 3,
    "CircleLoss": ("score", "score", "score"),
    "ContrastiveLoss": ("score", "score", "score"),
    "CosFaceLoss": ("class proxies", "class proxies", "score"),
    "CrossBatchMemory": ("earlier batches",) * 3,
    "DynamicSoftMarginLoss": ("score", "score", "score"),
    "EmbeddingRegularizerMixin": ("a part of a class",) * 3,
    "FastAPLoss": ("score", "one labelled set", "one labelled set"),
    "GeneralizedLiftedStructureLoss": ("score", "score", "score"),
    "GenericPairLoss": ("a base class",) * 3,
    "HistogramLoss": ("score", "one labelled set", "one labelled set"),
    "InstanceLoss": ("score", "one labelled set", "one labelled set"),
    "IntraPairVarianceLoss": ("score", "score", "score"),
    "LargeMarginSoftmaxLoss": ("class proxies", "class proxies", "score"),
    "LiftedStructureLoss": ("score", "score", "score"),
    "ManifoldLoss": ("classes at random",) * 3,
    "MarginLoss": ("score", "score", "score"),
    "MultiSimilarityLoss": ("score", "score", "score"),
    "MultipleLosses": ("write the sum",) * 3,
    "NCALoss": ("score", "score", "score"),
    "NPairsLoss": ("no single matrix", "one labelled set", "one labelled set"),
    "NTXentLoss": ("score", "score", "score"),
    "NormalizedSoftmaxLoss": ("class proxies", "class proxies", "score"),
    "P2SGradLoss": ("class proxies", "class proxies", "score"),
    "PNPLoss": ("score", "one labelled set", "one labelled set"),
    "ProxyAnchorLoss": ("class proxies", "class proxies", "score"),
    "ProxyNCALoss": ("class proxies", "class proxies", "score"),
    "RankedListLoss": ("score", "one labelled set", "one labelled set"),
    "SelfSupervisedLoss": ("labels for another loss",) * 3,
    "SignalToNoiseRatioContrastiveLoss": ("score", "score", "score"),
    "SmoothAPLoss": ("score", "one labelled set", "one labelled set"),
    "SoftTripleLoss": ("class proxies", "class proxies", "score"),
    "SphereFaceLoss": ("class proxies", "class proxies", "score"),
    "SubCenterArcFaceLoss": ("class proxies", "class proxies", "score"),
    "SupConLoss": ("score", "score", "score"),
    "ThresholdConsistentMarginLoss": ("no single matrix",) * 3,
    "TripletMarginLoss": ("score", "score", "score"),
    "TupletMarginLoss": ("score", "score", "score"),
    "VICRegLoss": ("dimensions of embeddings",) * 3,
    "WeightRegularizerMixin": ("a part of a class",) * 3,
}
NEEDED = {"RankedListLoss": {"margin": 0.4, "Tn": 10}}


def test_every_loss_of_the_library_has_an_outcome():
    library = pytest.importorskip("pytorch_metric_learning.losses")
    assert {name for name, value in vars(library).items() if isinstance(value, type)} <= OUTCOMES.keys()


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_loss_of_the_library_is_weighed_or_refused_with_a_sentence(name):
    pytest.importorskip("pytorch_metric_learning")
    for given, outcome in zip((labelled, two_sided, with_proxies), OUTCOMES[name], strict=True):
        pairs = pairs_of(given())
        try:
            loss = losses.load(f"pml:{name}", NEEDED.get(name)).bind(pairs)
        except InputError as error:
            assert outcome in str(error), error
            continue
        assert outcome == "score"
        weight, unit = loss.weight(pairs), loss.unit(pairs)
        assert weight.isfinite().all() and weight.abs().max() > 0
        assert unit.isnan().all() if loss.unit_from == "unknown" else (unit > 0).all()
        assert (weight[~(pairs.positive | pairs.negative)] == 0).all()


PEERS = [name for name in losses.names() if hasattr(losses.load(name), "peer") and losses.load(name).peer()]
GIVEN = {"labelled": labelled, "pairs": two_sided, "proxies": with_proxies}


@pytest.mark.parametrize("name", PEERS)
def test_a_loss_of_the_shelf_and_its_peer_weigh_alike(name):
    pytest.importorskip("pytorch_metric_learning")
    loss = losses.load(name)
    cls, arguments, setting = loss.peer()
    if "distance" not in arguments and loss.metric not in {"cosine", "euclidean"} and setting != "proxies":
        pytest.skip("its peer needs another distance, which it does not say")
    embeddings = GIVEN[setting](prepared=unit)
    other = losses.load(f"pml:{cls}", arguments).bind(pairs_of(embeddings))
    if other.metric != loss.metric and not (other.metric, loss.metric) == ("cosine", "squared_euclidean"):
        pytest.skip("its peer needs another distance, which it does not say")
    ours = loss.weight(pairs_of(embeddings, loss.metric))
    chain = 2 if other.metric != loss.metric else 1  # of unit vectors, minus the squared distance is 2 cosine - 2
    close(other.weight(pairs_of(embeddings)), chain * ours, 1e-8)


def test_autograd_differentiates_and_never_asks_a_loss_for_its_own_weights():
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randn(12, 5, generator=generator, dtype=torch.float64) for _ in range(2)]

    def squared(scores, positive, negative):
        return ((scores * negative) ** 2).sum(dim=1) - (scores * positive).sum(dim=1).detach()

    loss, pairs = losses.as_loss(squared), scores.pairs(cocos.Embeddings(*rows))
    expected = torch.where(pairs.negative, 2 * pairs.scores, 0)
    assert torch.allclose(weights.of(loss, pairs), expected)
    object.__setattr__(loss, "weight", lambda pairs: pytest.fail("asked for its weights"))
    assert torch.allclose(weights.autograd(loss, pairs), expected)
    with pytest.raises(TypeError, match="closed form"):
        weights.analytic(loss, pairs)


def test_measures_without_embeddings_take_a_bare_function():
    """`weight_curve` and `score_landscape` ended with an AttributeError; `count` and `verify` took it."""

    def hinge(scores, positive, negative):
        own = torch.where(positive, scores, 0).sum(dim=1, keepdim=True)
        return torch.where(negative, (0.2 + scores - own).clamp(min=0), 0).sum(dim=1)

    same = measures.weight_curve("triplet", points=41)
    assert np.array_equal(measures.weight_curve(hinge, points=41)["negative"], same["negative"])
    with pytest.raises(InputError, match="hinge couples"):
        measures.score_landscape(hinge)
    hinge.couples = "query"
    assert np.allclose(measures.score_landscape(hinge)["loss"], measures.score_landscape("triplet")["loss"])
