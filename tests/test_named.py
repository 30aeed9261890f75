"""Losses of other libraries by name: closed forms of the shelf against the real classes, where these are installed."""

import contextlib
import importlib
import importlib.util
import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from typer.testing import CliRunner

from cocos import Embeddings, InputError, Pairs, losses, measures
from cocos.cli import app
from cocos.embeddings import scores
from cocos.losses.external import named

QUERIES, DOCUMENTS = 4, 6
CROSS_ENCODERS = "sentence_transformers.cross_encoder"


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def graded(seed=0):
    """Lists of documents with grades: 0, 1 and 2, in descending order, without a tie where `seed` is odd."""
    found = drawn(QUERIES, DOCUMENTS, seed=seed)
    grades = torch.tensor([2.0, 1.0, 0.0, 0.0, 0.0, 0.0]).double().expand(QUERIES, -1)
    if seed % 2:
        grades = torch.arange(DOCUMENTS, 0, -1).double().expand(QUERIES, -1) / 2
    positive = torch.zeros(QUERIES, DOCUMENTS, dtype=torch.bool)
    positive[:, :2] = True
    return Pairs(found, positive, teacher=grades)


def same_up_to_a_factor(theirs, ours, room=2e-5):
    """A library takes the mean over a batch, over pairs or comparisons: one positive factor of the batch."""
    factor = (theirs * ours).sum() / ours.square().sum()
    assert factor > 0
    torch.testing.assert_close(theirs, factor * ours, rtol=room, atol=room * theirs.abs().max().item())


ODD = ("ce:ListMLELoss",)  # which read an order, so that ties are not what they are here
LAMBDAS = {"lambdarank": "LambdaRankScheme", "ndcg1": "NDCGLoss1Scheme", "ndcg2": "NDCGLoss2Scheme"}
# What each name is by the documentation of its library: settings there, and the loss of the shelf, whose formula is
# tried in test_losses.py against a slow loop.
IS = (
    ("ce:BinaryCrossEntropyLoss", {}, "siglip", {"scale": 1, "bias": 0}),
    ("ce:LambdaLoss", {}, "lambdaloss", {"scheme": "ndcg2pp", "mu": 10}),
    *(("ce:LambdaLoss", {"weighting_scheme": word}, "lambdaloss", {"scheme": own}) for own, word in LAMBDAS.items()),
    ("ce:LambdaLoss", {"sigma": 2.0, "k": 3}, "lambdaloss", {"scheme": "ndcg2pp", "mu": 10, "scale": 2, "k": 3}),
    ("ce:RankNetLoss", {}, "ranknet", {"scale": 1}),
    ("ce:ListNetLoss", {}, "kl_distill", {"temperature": 1}),
    ("ce:ListMLELoss", {}, "listmle", {}),
    ("pylate:Contrastive", {}, "ntxent", {"temperature": 1}),
    ("pylate:Distillation", {}, "kl_distill", {"temperature": 1}),
    ("colpali:ColbertLoss", {}, "ntxent", {"temperature": 0.02}),
    ("colpali:ColbertPairwiseCELoss", {}, "top_k(ntxent)", {"k": 1, "temperature": 1}),
    ("colpali:BiPairwiseCELoss", {}, "top_k(ntxent)", {"k": 1, "temperature": 0.02}),
    ("colpali:ColbertSigmoidLoss", {}, "siglip", {"scale": 50, "bias": 0}),
)


@pytest.mark.parametrize(("name", "given", "shelf", "parameters"), IS)
def test_a_name_is_a_loss_of_the_shelf(name, given, shelf, parameters):
    assert losses.load(name, given) == losses.load(shelf, parameters)


def scorer():
    """A cross-encoder that looks its scores up: the pair ("3", "5") has that of query 3 and document 5."""
    theirs = pytest.importorskip(CROSS_ENCODERS).CrossEncoder

    class Scorer(theirs):
        num_labels, device = 1, torch.device("cpu")

        def __init__(self, table):
            nn.Module.__init__(self)
            self.table = table

        def preprocess(self, pairs, **_):
            return {"index": torch.tensor([[int(each) for each in pair] for pair in pairs])}

        def forward(self, tokens):
            return {"scores": self.table[tokens["index"][:, 0], tokens["index"][:, 1]][:, None]}

    return Scorer


def of_sentence_transformers(name, pairs, **arguments):
    """Gradient of a real loss of cross-encoders in the table of scores, (Q, C)."""
    table = pairs.scores.float().requires_grad_()
    model = scorer()(table)
    library = importlib.import_module(f"{CROSS_ENCODERS}.losses")
    loss = getattr(library, name)(model, **{key: getattr(library, value)() if isinstance(value, str) else value
                                            for key, value in arguments.items()})  # fmt: skip
    rows, columns = [str(q) for q in range(QUERIES)], [str(c) for c in range(DOCUMENTS)]
    if name == "BinaryCrossEntropyLoss":
        texts = [each for each in rows for _ in columns], columns * QUERIES
        value = loss(texts, pairs.positive.float().flatten())
    elif name == "MarginMSELoss":
        texts = [rows, *([each] * QUERIES for each in columns)]
        value = loss(texts, list(pairs.teacher.float()))
    else:
        value = loss([rows, [columns] * QUERIES], list(pairs.teacher.float()))
    return torch.autograd.grad(value, table)[0].double()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("BinaryCrossEntropyLoss", {}),
        ("LambdaLoss", {}),
        ("LambdaLoss", {"k": 2, "sigma": 2.0}),
        ("LambdaLoss", {"weighting_scheme": "NDCGLoss1Scheme"}),
        ("LambdaLoss", {"weighting_scheme": "NDCGLoss1Scheme", "k": 3}),
        ("LambdaLoss", {"weighting_scheme": "NDCGLoss2Scheme"}),
        ("LambdaLoss", {"weighting_scheme": "LambdaRankScheme", "k": 2}),
        ("RankNetLoss", {"sigma": 0.5}),
        ("ListNetLoss", {}),
        ("ListMLELoss", {}),
        ("MarginMSELoss", {}),
    ],
)
def test_the_real_loss_of_a_cross_encoder_has_these_weights(name, arguments):
    pairs = graded(int(f"ce:{name}" in ODD))
    if name == "MarginMSELoss":
        pairs = Pairs(pairs.scores, torch.eye(1, DOCUMENTS).bool().expand(QUERIES, -1), teacher=pairs.teacher)
    theirs = of_sentence_transformers(name, pairs, **arguments)
    same_up_to_a_factor(theirs, losses.load(f"ce:{name}", arguments).weight(pairs))


@pytest.mark.parametrize("scale", (10, 4))
def test_the_ranking_loss_of_cross_encoders_reads_scores_after_its_sigmoid(scale):
    table = drawn(QUERIES, QUERIES).float().requires_grad_()
    library = pytest.importorskip(f"{CROSS_ENCODERS}.losses")
    loss = library.MultipleNegativesRankingLoss(scorer()(table), num_negatives=None, scale=scale)
    rows = [str(q) for q in range(QUERIES)]
    (theirs,) = torch.autograd.grad(loss([rows, rows], None), table)
    scored = table.detach().sigmoid()
    pairs = Pairs(scored, torch.eye(QUERIES, dtype=torch.bool))
    ours = losses.load("ce:MultipleNegativesRankingLoss", {"scale": scale}).weight(pairs) * scored * (1 - scored)
    same_up_to_a_factor(theirs, ours)


@contextlib.contextmanager
def part_of(package):
    """Modules of an installed package without its first file, which imports all that it needs for models."""
    if package in sys.modules or (found := importlib.util.find_spec(package)) is None:
        pytest.importorskip(package)
        yield
        return
    bare = types.ModuleType(package)
    bare.__path__ = list(found.submodule_search_locations)
    sys.modules[package] = bare
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("BiEncoderLoss", {}),
        ("BiEncoderLoss", {"temperature": 0.3}),
        ("BiPairwiseCELoss", {"temperature": 0.3}),
        ("BiSigmoidLoss", {"temperature": 0.3}),
        ("ColbertLoss", {"temperature": 0.3}),
        ("ColbertPairwiseCELoss", {}),
        ("ColbertSigmoidLoss", {"temperature": 0.3}),
    ],
)
def test_the_real_losses_of_colpali_have_these_weights(name, arguments):
    """On queries and documents of one token each MaxSim is the inner product of two vectors."""
    query, document = (F.normalize(drawn(5, 5, seed=seed), dim=1) for seed in (0, 1))
    with part_of("colpali_engine"):
        file = "late_interaction_losses" if name.startswith("Colbert") else "bi_encoder_losses"
        loss = getattr(importlib.import_module(f"colpali_engine.loss.{file}"), name)(**arguments)
        sides = (query[:, None], document[:, None]) if name.startswith("Colbert") else (query, document)
        leaf = sides[1].clone().requires_grad_()
        (theirs,) = torch.autograd.grad(loss(sides[0], leaf), leaf)
    ours = losses.load(f"colpali:{name}", arguments).weight(Pairs(query @ document.T, torch.eye(5).bool()))
    same_up_to_a_factor(theirs.reshape(5, 5), ours.T @ query)


@pytest.mark.parametrize("name", ("Contrastive", "Distillation"))
def test_the_real_losses_of_pylate_have_these_weights(name):
    pylate = pytest.importorskip("pylate.losses")
    table, teacher = drawn(4, 4).requires_grad_(), drawn(4, 4, seed=1)
    features = [{"input_ids": torch.zeros(4, 1).long(), "attention_mask": torch.ones(4, 1).bool()} for _ in range(2)]
    model = types.SimpleNamespace(skiplist=[], do_query_expansion=True)
    tokens = {"token_embeddings": torch.ones(4, 1, 2)}

    class Model(nn.Module):
        skiplist, do_query_expansion = (), True

        def forward(self, _):
            return tokens

    assert model.do_query_expansion
    metric = {"score_metric": lambda *_, **__: table}
    more = {"normalize_scores": False} if name == "Distillation" else {"temperature": 0.5}
    loss = getattr(pylate, name)(Model(), **metric, **more)
    value = loss(features, teacher) if name == "Distillation" else loss(features)
    (theirs,) = torch.autograd.grad(value, table)
    pairs = Pairs(table.detach(), torch.eye(4).bool(), teacher=teacher)
    more.pop("normalize_scores", None)
    same_up_to_a_factor(theirs, losses.load(f"pylate:{name}", more).weight(pairs))


def test_a_name_is_its_loss_of_the_shelf_in_a_count(tmp_path):
    np.savez(tmp_path / "list.npz", scores=drawn(4, 6), positive=np.eye(4, 6, dtype=bool), grade=np.eye(4, 6))
    done = CliRunner().invoke(
        app,
        ["count", str(tmp_path / "list.npz"), "--loss", "ce:LambdaLoss", "-p", "weighting_scheme=LambdaRankScheme",
         "--json", "-q"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["loss"]["name"] == "lambdaloss" and document["loss"]["parameters"]["scheme"] == "lambdarank"


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("ce:LambdLoss", {}, "unknown loss of ce 'LambdLoss': did you mean 'LambdaLoss'?"),
        ("ce:MSELoss", {}, "loss ce:MSELoss: it compares each score with that of a teacher"),
        ("ce:LambdaLoss", {"sigm": 1}, "unknown parameter of ce:LambdaLoss 'sigm': did you mean 'sigma'?"),
        ("ce:LambdaLoss", {"sigma": 1, "scale": 2}, "parameter scale of ce:LambdaLoss is given twice"),
        ("ce:LambdaLoss", {"weighting_scheme": "None"}, "lambdaloss: scheme must be one of lambdarank, ndcg1"),
        ("colpali:ColbertPairwiseCELoss", {"temperature": 0}, "temperature must be finite and above 0"),
        ("colpali:ColbertNegativeCELoss", {}, "it adds a term of own hard negatives to one of the batch"),
    ],
)
def test_a_name_or_a_parameter_that_is_none_gets_a_sentence(name, given, sentence):
    with pytest.raises(InputError) as error:
        losses.load(name, given)
    assert sentence in str(error.value)


def test_every_name_of_a_library_is_listed_in_the_docs():
    text = (Path(__file__).parents[1] / "docs" / "howto" / "loss.md").read_text()
    for library, rows in named.NAMES_OF_LIBRARIES.items():
        for name in rows:
            assert f"`{library}:{name}`" in text, f"{library}:{name}"


# Losses of sentence-transformers on embeddings, as they are.
def triples(hard=1, seed=0):
    """Pairs with hard negatives, and these, (12, hard, 8)."""
    query, negatives = drawn(12, 8, seed=seed), drawn(12, hard, 8, seed=seed + 2)
    return Embeddings(query, query + drawn(12, 8, seed=seed + 1), negatives=negatives), negatives


def contributing(data):
    """Contributing negatives of each query, in the order of the rows, of the first direction."""
    one = data.isel(direction=0)
    return one["contributing"].values.ravel()[one["query_index"].values.ravel().argsort()].tolist()


# The losses of sentence-transformers that are run as they are, in a few lines each, for where it is not installed.
SENTENCES = """
from enum import Enum

import torch
from torch import nn
from torch.nn.functional import cosine_similarity, relu


def cosine(x, y):
    return nn.functional.normalize(x, dim=1) @ nn.functional.normalize(y, dim=1).T


class TripletDistanceMetric(Enum):
    COSINE = lambda x, y: 1 - (nn.functional.normalize(x, dim=1) * nn.functional.normalize(y, dim=1)).sum(dim=1)
    EUCLIDEAN = lambda x, y: -(-torch.linalg.vector_norm(x - y, dim=1))  # as minus a similarity


class SiameseDistanceMetric(Enum):
    EUCLIDEAN = lambda x, y: nn.functional.pairwise_distance(x, y)
    COSINE_DISTANCE = lambda x, y: 1 - cosine_similarity(x, y)


class TripletLoss(nn.Module):
    def __init__(self, model, distance_metric=TripletDistanceMetric.EUCLIDEAN, triplet_margin=5):
        super().__init__()
        self.distance_metric, self.triplet_margin = distance_metric, triplet_margin

    def compute_loss_from_embeddings(self, embeddings, labels):
        anchor, positive, negative = embeddings
        near, far = self.distance_metric(anchor, positive), self.distance_metric(anchor, negative)
        return relu(near - far + self.triplet_margin).mean()


class ContrastiveLoss(nn.Module):
    def __init__(self, model, distance_metric=SiameseDistanceMetric.COSINE_DISTANCE, margin=0.5, size_average=True):
        super().__init__()
        self.distance_metric, self.margin, self.size_average = distance_metric, margin, size_average

    def compute_loss_from_embeddings(self, embeddings, labels):
        distance = self.distance_metric(*embeddings)
        each = (labels * distance.square() + (1 - labels) * relu(self.margin - distance).square()) / 2
        return each.mean() if self.size_average else each.sum()


class MegaBatchMarginLoss(nn.Module):
    def __init__(self, model, positive_margin=0.8, negative_margin=0.3, use_mini_batched_version=True):
        super().__init__()
        self.positive_margin, self.negative_margin = positive_margin, negative_margin

    def calculate_loss(self, parts):
        scores = cosine(torch.cat(parts[0]), torch.cat(parts[1]))
        hardest = scores.masked_fill(torch.eye(len(scores), dtype=torch.bool), -torch.inf).amax(dim=1)
        return (relu(self.positive_margin - scores.diagonal()) + relu(hardest - self.negative_margin)).mean()


class BatchHardTripletLossDistanceFunction:
    @staticmethod
    def cosine_distance(rows):
        return 1 - cosine(rows, rows)

    @staticmethod
    def euclidean_distance(rows):
        inner = rows @ rows.T
        squared = (inner.diagonal()[:, None] - 2 * inner + inner.diagonal()[None, :]).clamp(min=0)
        same = squared == 0
        return torch.where(same, 0, torch.where(same, 1, squared).sqrt())


class OfLabels(nn.Module):
    def __init__(self, model, distance_metric=BatchHardTripletLossDistanceFunction.euclidean_distance, margin=5):
        super().__init__()
        self.distance_metric, self.margin, self.triplet_margin = distance_metric, margin, margin

    def compute_loss_from_embeddings(self, embeddings, labels):
        distance, same = self.distance_metric(embeddings[0]), labels[:, None] == labels[None, :]
        return self.of_distances(distance, same & ~torch.eye(len(labels), dtype=torch.bool), ~same)


class BatchAllTripletLoss(OfLabels):
    def of_distances(self, distance, positive, negative):
        query, place = positive.nonzero(as_tuple=True)
        missing = relu(distance[query, place, None] - distance[query] + self.margin) * negative[query]
        return missing.sum() / (missing > 0).sum()


class BatchHardTripletLoss(OfLabels):
    def of_distances(self, distance, positive, negative):
        near = distance.masked_fill(~positive, -torch.inf).amax(dim=1)
        return relu(near - distance.masked_fill(~negative, torch.inf).amin(dim=1) + self.margin).mean()


class BatchHardSoftMarginTripletLoss(BatchHardTripletLoss):
    def __init__(self, model, distance_metric=BatchHardTripletLossDistanceFunction.euclidean_distance):
        super().__init__(model, distance_metric)

    def of_distances(self, distance, positive, negative):
        near = distance.masked_fill(~positive, -torch.inf).amax(dim=1)
        return torch.log1p((near - distance.masked_fill(~negative, torch.inf).amin(dim=1)).exp()).mean()


class BatchSemiHardTripletLoss(OfLabels):
    def of_distances(self, distance, positive, negative):
        query, place = positive.nonzero(as_tuple=True)
        own, others = distance[query, place], distance[query].masked_fill(~negative[query], torch.inf)
        beyond = others.masked_fill(others <= own[:, None], torch.inf).amin(dim=1)
        far = distance[query].masked_fill(~negative[query], -torch.inf).amax(dim=1)
        return relu(own - torch.where(beyond.isfinite(), beyond, far) + self.margin).mean()
"""


@pytest.fixture(params=("installed", "pretended"))
def sentences(request, monkeypatch, tmp_path):
    """The losses of the library, or a few lines in their place."""
    if request.param == "installed":
        yield pytest.importorskip("sentence_transformers.sentence_transformer.losses")
        return
    if importlib.util.find_spec("sentence_transformers"):
        pytest.skip("the library itself is installed")
    (tmp_path / "sentence_transformers").mkdir()
    (tmp_path / "sentence_transformers" / "__init__.py").write_text("")
    (tmp_path / "sentence_transformers" / "losses.py").write_text(SENTENCES)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("sentence_transformers.losses")
    for name in ("sentence_transformers", "sentence_transformers.losses"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("name", "given", "twin", "parameters"),
    [
        ("TripletLoss", {"triplet_margin": 0.4, "distance_metric": "COSINE"}, "triplet", {"margin": 0.4}),
        ("TripletLoss", {}, "triplet_euclidean", {"margin": 5.0}),
        ("MegaBatchMarginLoss", {}, "top_k(contrastive_cosine)", {"k": 1, "pos_margin": 0.8, "neg_margin": 0.3}),
    ],
)
def test_a_loss_of_triplets_is_that_of_the_shelf_on_its_own_documents(sentences, name, given, twin, parameters):
    embeddings, negatives = triples()
    if name != "TripletLoss":
        embeddings = Embeddings(embeddings.query, embeddings.candidate[:12])
    data = measures.count(embeddings, losses.load(f"st:{name}", given), batch_size="all")
    query, positive = embeddings.query, embeddings.candidate[:12]
    columns = [query, positive] + ([negatives[:, 0]] if name == "TripletLoss" else [])
    plain = losses.load(twin, parameters)
    score = scores.METRICS[plain.metric]
    if name == "TripletLoss":
        own = torch.stack([score(query, each).diagonal() for each in columns[1:]], dim=1)
        pairs = Pairs(own, torch.tensor([[True, False]]).expand_as(own))
    else:
        pairs = Pairs(score(query, positive), torch.eye(12).bool())
    expected = (plain.weight(pairs) / plain.unit(pairs) > 0.01) & pairs.negative
    assert contributing(data) == expected.sum(dim=1).tolist()
    theirs = getattr(sentences, name)
    if name == "TripletLoss":
        metric = {"distance_metric": vars(sentences.TripletDistanceMetric)[given.get("distance_metric", "EUCLIDEAN")]}
        value = theirs(None, triplet_margin=parameters["margin"], **metric).compute_loss_from_embeddings(columns, None)
    else:
        value = theirs(nn.Identity(), use_mini_batched_version=False).calculate_loss([[each] for each in columns])
    assert plain(pairs).mean().item() == pytest.approx(value.item(), rel=1e-6)


def test_a_contrastive_loss_counts_hard_negatives_within_its_margin(sentences):
    embeddings, negatives = triples(hard=3)
    data = measures.count(embeddings, losses.load("st:ContrastiveLoss", {"margin": 1.1}), batch_size="all")
    cosine = torch.cosine_similarity(embeddings.query[:, None], negatives, dim=2)
    # a share is the shortfall from the margin over the margin
    expected = ((1.1 - (1 - cosine)) / 1.1 > 0.01).sum(dim=1)
    assert contributing(data) == expected.tolist() and 0 < expected.sum() < expected.numel() * 3


@pytest.mark.parametrize("metric", ("cosine", "euclidean"))
@pytest.mark.parametrize(
    "name",
    ("BatchAllTripletLoss", "BatchHardTripletLoss", "BatchSemiHardTripletLoss", "BatchHardSoftMarginTripletLoss"),
)
def test_a_loss_of_labelled_rows_is_counted_by_its_own_code(sentences, name, metric):
    rows, labels = drawn(20, 6), torch.arange(20) % 4
    embeddings = Embeddings.labelled(rows, labels)
    soft = name == "BatchHardSoftMarginTripletLoss"
    given = {"distance_metric": metric} | ({} if soft else {"margin": 0.5})
    pairs = scores.pairs(embeddings, metric=metric)
    weights = losses.load(f"st:{name}", given).bind(pairs).weight(pairs)
    function = getattr(sentences.BatchHardTripletLossDistanceFunction, f"{metric}_distance")
    theirs = getattr(sentences, name)(None, distance_metric=function, **({} if soft else {"margin": 0.5}))
    leaf = rows.clone().requires_grad_()
    (expected,) = torch.autograd.grad(theirs.compute_loss_from_embeddings([leaf], labels), leaf)
    again = rows.clone().requires_grad_()
    score = scores.METRICS[metric](again, again)
    (found,) = torch.autograd.grad((torch.where(pairs.positive | pairs.negative, score, 0) * weights).sum(), again)
    same_up_to_a_factor(expected, found, 1e-6)
    if name.startswith("BatchHard"):
        negatives = torch.where(pairs.negative, weights, 0)
        assert ((negatives > 0).sum(dim=1) <= 1).all() and negatives.max() <= 1 + 1e-9


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("st:BatchAllTripletLoss", {"margi": 1}, "unknown parameter of st:BatchAllTripletLoss 'margi': did you mean"),
        ("st:BatchHardTriplet", {"distance_metric": "manhattan"}, "distance_metric 'manhattan', expected cosine or"),
        ("st:OnlineContrastiveLoss", {}, "it keeps the hardest labelled pairs of a batch"),
        ("st:AdaptiveLayerLoss", {}, "it calls another loss on every layer of a model"),
        ("st:LambdaLoss", {}, "it is a loss of cross-encoders: ce:LambdaLoss"),
        ("st:TripletLoss", {"distance_metric": "MANHATTAN"}, "unknown distance_metric of sentence-transformers"),
    ],
)
def test_what_sentence_transformers_has_and_cocos_not_gets_a_sentence(name, given, sentence):
    if "Batch" in name or "Triplet" in name:
        pytest.importorskip("sentence_transformers")
    with pytest.raises(InputError) as error:
        losses.load(name, given)
    assert sentence in str(error.value)


def test_a_loss_of_triplets_takes_one_hard_negative(sentences):
    with pytest.raises(InputError, match="st:TripletLoss takes one hard negative of each query, and here are 2"):
        measures.count(triples(hard=2)[0], losses.load("st:TripletLoss"), batch_size="all")
