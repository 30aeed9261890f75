"""Names of library losses: rows of a table, compared with the libraries where they are installed."""

import importlib
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

import cocos
from cocos import Embeddings, InputError, Pairs, losses, measures
from cocos.embeddings import scores
from cocos.losses import libraries
from cocos.losses.intercept import find, weigh
from cocos.losses.recognise import difference
from cocos.measures.shared.pair_losses import sides

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries
N, WIDTH = 24, 7
LABELS = torch.arange(N) % 6
NAMES = list(libraries.ROWS)


def drawn(seed, *shape):
    return torch.randn(*(shape or (N, WIDTH)), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("name", NAMES)
def test_name_is_built_in_loss_with_version(name):
    loss = losses.load(name)
    library = name.partition(":")[0]
    assert losses.canonical(name.lower()) == name and losses.canonical(name.removesuffix("Loss")) == name
    assert loss.name == losses.canonical(loss.name)  # a built-in loss or a wrapper of one
    assert any(libraries.VERSIONS[library] in note for note in loss.notes)
    assert losses.parameter_names(name) >= set(loss.parameters)


@pytest.mark.parametrize("name", [*libraries.INSTEAD, *(f"{library}:Absent" for library in libraries.VERSIONS)])
def test_loss_without_row_is_refused(name):
    with pytest.raises(InputError):
        losses.load(name)


@pytest.mark.parametrize("name", NAMES)
def test_name_is_listed_in_docs(name):
    page = Path(__file__).parents[1] / "docs" / "howto" / "loss.md"
    assert f"`{name}`" in page.read_text()


def test_prefixes_are_those_of_the_rows():
    assert {name.partition(":")[0] for name in libraries.ROWS} == libraries.VERSIONS.keys()


SETTINGS = {
    "st:MultipleNegativesRankingLoss": (
        {"temperature": 0.1, "similarity_fct": "dot_score"},
        "mnrl",
        {"scale": 10.0},
        "dot",
    ),
    "st:GISTEmbedLoss": ({"margin": 0.2}, "mnrl", {"filter_margin": 0.2, "scale": 100.0}, "cosine"),
    "st:TripletLoss": (
        {"triplet_margin": 1},
        "own_hard(triplet_euclidean)",
        {"triplet_euclidean.margin": 1.0},
        "euclidean",
    ),
    "st:BatchAllTripletLoss": ({"distance_metric": "cosine_distance"}, "triplet", {"margin": 5.0}, "cosine"),
    "st:BatchHardTripletLoss": ({}, "hardest_positive(triplet_sh)", {"triplet_sh.margin": 5.0}, "euclidean"),
    "st:MegaBatchMarginLoss": ({}, "top_k(contrastive_cosine)", {"contrastive_cosine.neg_margin": 0.3}, "cosine"),
    "pml:TripletMarginLoss": ({"distance": "CosineSimilarity", "margin": 0.1}, "triplet", {"margin": 0.1}, "cosine"),
    "pml:ContrastiveLoss": ({}, "contrastive_linear", {"neg_margin": 1.0}, "chord"),
    "pml:ArcFaceLoss": ({"margin": 30}, "arcface", {"margin": 0.5235987755982988}, "cosine"),
    "pml:FastAPLoss": ({"num_bins": 5}, "fastap", {"bins": 5}, "squared_chord"),
    "open_clip:ClipLoss": ({"logit_scale": 100}, "ntxent", {"temperature": 0.01}, "cosine"),
    "open_clip:SigLipLoss": ({"logit_bias": -5}, "siglip", {"scale": 10.0, "bias": -5.0}, "cosine"),
    "lightly:NTXentLoss": ({}, "ntxent", {"temperature": 0.5}, "cosine"),
    "ce:LambdaLoss": (
        {"sigma": 2, "weighting_scheme": "NDCGLoss1Scheme"},
        "lambdaloss",
        {"scale": 2.0, "scheme": "ndcg1"},
        "dot",
    ),
    "colpali:BiPairwiseCELoss": ({"temperature": 0.3}, "top_k(ntxent)", {"k": 1, "ntxent.temperature": 0.3}, "cosine"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_parameters_of_library_are_translated(name):
    values, built_in, expected, metric = SETTINGS[name]
    loss = losses.load(name, values)
    assert (loss.name, loss.metric) == (built_in, metric)
    assert {key: loss.parameters[key] for key in expected} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("st:MultipleNegativesRankingLoss", {"scal": 1}),
        ("st:MultipleNegativesRankingLoss", {"scale": 1, "temperature": 1}),
        ("st:MultipleNegativesRankingLoss", {"similarity_fct": "mine"}),
        ("st:MultipleNegativesRankingLoss", {"gather_across_devices": True}),
        ("st:GISTEmbedLoss", {"margin_strategy": "relative"}),
        ("pml:TripletMarginLoss", {"swap": True}),
        ("pml:TripletMarginLoss", {"distance": "SNRDistance"}),
        ("ce:LambdaLoss", {"sigma": 1, "scale": 2}),
        ("lightly:NTXentLoss", {"memory_bank_size": 10}),
    ],
)
def test_unknown_setting_is_refused(name, values):
    with pytest.raises(InputError):
        losses.load(name, values)


def test_margin_in_degrees_is_converted_once():
    loss, _ = cocos.open("example").loss("pml:ArcFaceLoss", {"margin": 30})
    assert loss.margin == pytest.approx(0.5235987755982988)


def test_count_takes_recorded_scale_of_library_name(tmp_path):
    assert losses.counterpart("st:MultipleNegativesRankingLoss") == "ntxent"
    embeddings = Embeddings(drawn(0), drawn(0) + drawn(1))
    data = measures.count(embeddings, "open_clip:ClipLoss", batch_size="all")
    expected = measures.count(embeddings, losses.load("ntxent", temperature=0.07), batch_size="all")
    assert (data["contributing"].values == expected["contributing"].values).all()


# --- pytorch-metric-learning, run through its public call on one labelled set or on proxies

PML_PAIRS = {
    "TripletMarginLoss": {"margin": 0.3},
    "ContrastiveLoss": {"neg_margin": 0.8},
    "LiftedStructureLoss": {"neg_margin": 0.7},
    "GeneralizedLiftedStructureLoss": {"neg_margin": 0.7},
    "FastAPLoss": {"num_bins": 6},
    "NTXentLoss": {"temperature": 0.2},
    "SupConLoss": {"temperature": 0.2},
    "CircleLoss": {"m": 0.3, "gamma": 20},
    "MultiSimilarityLoss": {"alpha": 1, "beta": 20, "base": 0.4},
}
PML_PROXIES = {
    "ArcFaceLoss": {"margin": 20, "scale": 30},
    "CosFaceLoss": {"margin": 0.2, "scale": 30},
    "SphereFaceLoss": {"margin": 2},
    "LargeMarginSoftmaxLoss": {"margin": 2},
    "NormalizedSoftmaxLoss": {"temperature": 0.1},
    "ProxyNCALoss": {"softmax_scale": 3},
    "ProxyAnchorLoss": {"margin": 0.2, "alpha": 16},
    "SoftTripleLoss": {"la": 10, "gamma": 0.2, "margin": 0.02},
    "SubCenterArcFaceLoss": {"margin": 20, "scale": 30},
}


def build(name, **values):
    """Build a loss that adds up its parts; that of ProxyAnchorLoss are proxies, with a reduction of their own."""
    library = pytest.importorskip("pytorch_metric_learning.losses")
    reducer = importlib.import_module("pytorch_metric_learning.reducers").SumReducer()
    return getattr(library, name)(**values | ({} if name == "ProxyAnchorLoss" else {"reducer": reducer}))


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("name", PML_PAIRS)
def test_pml_pairs_have_weights_of_row(name, other):
    values = PML_PAIRS[name] if other else {}
    rows = drawn(2, 6, WIDTH)[LABELS] + 0.7 * drawn(0)

    def run(query, _):
        return build(name, **values)(query, LABELS)

    loss = losses.load(f"pml:{name}", values)
    reading = find(run, rows, rows)
    weights = weigh(run, rows, rows, reading).weights
    pairs = scores.pairs(Embeddings.labelled(rows, LABELS), metric=loss.metric, same_group="negative")
    ours = loss.weight(pairs)
    if loss.metric != reading.metric:  # both are functions of the cosine: -d² = 2 cos - 2
        assert {loss.metric, reading.metric} == {"cosine", "squared_chord"}
    weights = torch.where(pairs.positive | pairs.negative, weights, 0)
    assert difference(ours, weights) < 1e-9


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("name", PML_PROXIES)
def test_pml_proxies_have_weights_of_row(name, other):
    values, classes = PML_PROXIES[name] if other else {}, 6
    one = {"SoftTripleLoss": {"centers_per_class": 1}, "SubCenterArcFaceLoss": {"sub_centers": 1}}.get(name, {})
    rows, proxies = drawn(0), drawn(3, classes, WIDTH)
    parameter = "W" if name.endswith(("FaceLoss", "SoftmaxLoss")) else "fc" if name == "SoftTripleLoss" else "proxies"

    def run(query, candidate):
        module = build(name, num_classes=classes, embedding_size=WIDTH, **one, **values).double()
        weight = candidate if dict(module.named_parameters())[parameter].shape == (classes, WIDTH) else candidate.T
        return torch.func.functional_call(module, {parameter: weight}, (query, LABELS))

    loss = losses.load(f"pml:{name}", values)
    reading = find(run, rows, proxies)
    embeddings = Embeddings.labelled(rows, LABELS, proxies, torch.arange(classes))
    pairs = scores.pairs(embeddings, metric=loss.metric, same_group="negative")
    assert difference(loss.weight(pairs), weigh(run, rows, proxies, reading).weights) < 1e-9


@pytest.mark.parametrize("name", PML_PAIRS)
def test_pml_instance_keeps_its_settings(name):
    library = pytest.importorskip("pytorch_metric_learning.losses")
    loss = losses.as_loss(getattr(library, name)(**PML_PAIRS[name]))
    assert repr(loss) == repr(losses.load(f"pml:{name}", PML_PAIRS[name]))


def test_pml_class_without_row_is_weighed_by_its_code():
    library = pytest.importorskip("pytorch_metric_learning.losses")
    rows = drawn(2, 6, WIDTH)[LABELS] + 0.7 * drawn(0)
    loss = losses.as_loss(library.IntraPairVarianceLoss())
    pairs = scores.pairs(Embeddings.labelled(rows, LABELS), metric="cosine", same_group="negative")
    bound = loss.bind(pairs)
    assert bound.metric == "cosine" and bound.unit_from == "unknown" and bound.weight(pairs).any()


# --- sentence-transformers, run on rows by a model that returns its input


class Rows(nn.Module):
    """A model of sentence-transformers that returns its features."""

    def forward(self, features, **_):
        return dict(features)

    def __getitem__(self, position):
        return self


def features(*columns):
    return [{"sentence_embedding": rows} for rows in columns]


ST_PAIRS = {
    "MultipleNegativesRankingLoss": {"scale": 8.0},
    "MultipleNegativesSymmetricRankingLoss": {"scale": 8.0},
    "MegaBatchMarginLoss": {"positive_margin": 0.6, "negative_margin": 0.1},
}


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("name", ST_PAIRS)
def test_st_loss_has_gradient_of_row(name, other):
    library = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    values = ST_PAIRS[name] if other else {}
    module = getattr(library, name)(Rows(), **values)
    leaves = [drawn(0).requires_grad_(), (drawn(0) + drawn(1)).detach().requires_grad_()]
    if name == "MegaBatchMarginLoss":
        value = module.calculate_loss([[leaves[0]], [leaves[1]]])
    else:
        value = module(features(*leaves), None)
    theirs = torch.cat(torch.autograd.grad(value, leaves))
    ours = torch.cat(torch.autograd.grad(sides(losses.load(f"st:{name}", values))(*leaves), leaves))
    assert difference(ours, theirs) < 1e-9


def test_st_hard_negatives_have_gradient_of_row():
    library = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    leaves = [drawn(seed).requires_grad_() for seed in range(3)]
    value = library.MultipleNegativesRankingLoss(Rows())(features(*leaves), None)
    theirs = torch.cat(torch.autograd.grad(value, leaves))
    loss = sides("st:MultipleNegativesRankingLoss")(leaves[0], leaves[1], leaves[2][:, None])
    assert difference(torch.cat(torch.autograd.grad(loss, leaves)), theirs) < 1e-9


@pytest.mark.parametrize("values", [{}, {"triplet_margin": 1.0}])
def test_st_triplets_have_gradient_of_row(values):
    library = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    leaves = [drawn(seed).requires_grad_() for seed in range(3)]
    module = library.TripletLoss(Rows(), **values)
    theirs = torch.cat(torch.autograd.grad(module(features(*leaves), None), leaves))
    loss = sides("st:TripletLoss", values)(leaves[0], leaves[1], leaves[2][:, None])
    assert difference(torch.cat(torch.autograd.grad(loss, leaves)), theirs) < 1e-5  # adds 1e-6 to each difference


@pytest.mark.parametrize("margin", [5.0, 1.0])
@pytest.mark.parametrize("name", ["BatchAllTripletLoss", "BatchHardTripletLoss"])
def test_st_labelled_losses_have_weights_of_row(name, margin):
    library = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    rows = drawn(2, 6, WIDTH)[LABELS] + 0.7 * drawn(0)
    module = getattr(library, name)(Rows(), margin=margin)

    def run(query, _):
        return module(features(query), LABELS)

    loss = losses.load(f"st:{name}", {"margin": margin})
    reading = find(run, rows, rows)
    pairs = scores.pairs(Embeddings.labelled(rows, LABELS), metric=loss.metric, same_group="negative")
    weights = torch.where(pairs.positive | pairs.negative, weigh(run, rows, rows, reading).weights, 0)
    assert reading.metric == loss.metric and difference(loss.weight(pairs), weights) < 1e-9


def test_st_instance_keeps_its_settings():
    library = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    loss = losses.as_loss(library.MultipleNegativesRankingLoss(Rows(), scale=5.0))
    assert (loss.name, loss.scale, loss.metric) == ("mnrl", 5.0, "cosine")


# --- cross-encoders, on a table of scores

CROSS_ENCODERS = {
    "LambdaLoss": {"sigma": 2.0},
    "RankNetLoss": {"sigma": 0.5},
    "ListNetLoss": {},
    "ListMLELoss": {},
}


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("name", CROSS_ENCODERS)
def test_cross_encoder_has_weights_of_row(name, other):
    package = pytest.importorskip("sentence_transformers.cross_encoder")
    library = importlib.import_module("sentence_transformers.cross_encoder.losses")
    values, queries, documents = CROSS_ENCODERS[name] if other else {}, 4, 6

    class Scorer(package.CrossEncoder):
        num_labels, device = 1, torch.device("cpu")

        def __init__(self, table):
            nn.Module.__init__(self)
            self.table = table

        def preprocess(self, pairs, **_):
            return {"index": torch.tensor([[int(text) for text in pair] for pair in pairs])}

        def forward(self, tokens):
            return {"scores": self.table[tokens["index"][:, 0], tokens["index"][:, 1]][:, None]}

    table = drawn(0, queries, documents).float().requires_grad_()
    grades = torch.tensor([2.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    if name == "ListMLELoss":  # orders ties as the input
        grades = torch.arange(documents, 0, -1) / 2
    grades = grades.double().expand(queries, -1)
    texts = [str(number) for number in range(documents)]
    module = getattr(library, name)(Scorer(table), **values)
    value = module([texts[:queries], [texts] * queries], list(grades.float()))
    (theirs,) = torch.autograd.grad(value, table)
    positive = torch.arange(documents).expand(queries, -1) < 2
    pairs = Pairs(table.detach().double(), positive, teacher=grades)
    ours = losses.load(f"ce:{name}", values).weight(pairs)
    assert difference(ours, theirs.double()) < 1e-4


def test_open_clip_forms_have_weights_of_rows():
    query, candidate = functional.normalize(drawn(0)), functional.normalize(drawn(0) + drawn(1))
    target = torch.arange(N)

    def clip(images, texts):
        logits = 100 / 7 * images @ texts.T
        return (functional.cross_entropy(logits, target) + functional.cross_entropy(logits.T, target)) / 2

    pairs = Pairs(query @ candidate.T, torch.eye(N) > 0)
    loss = losses.load("open_clip:ClipLoss")
    both = loss.weight(pairs) + loss.weight(Pairs(pairs.scores.T, pairs.positive)).T
    assert difference(both, weigh(clip, query, candidate, find(clip, query, candidate)).weights) < 1e-9
