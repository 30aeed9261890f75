"""Names of library losses: rows of a table, compared with the libraries where they are installed."""

import dataclasses
import importlib
from pathlib import Path

import pytest
import torch
from torch import nn

import cocos
from cocos import Embeddings, InputError, Pairs, losses, measures
from cocos.embeddings import scores
from cocos.embeddings.similarities import unit
from cocos.embeddings.teachers import Teacher
from cocos.losses import libraries
from cocos.losses.intercept import find, weigh
from cocos.losses.recognise import difference
from cocos.measures.shared.pair_losses import Annotations, sides

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries
N, WIDTH, CLASSES = 24, 8, 6
NAMES = list(libraries.ROWS)
LABELS = torch.arange(N) % CLASSES
ST = "sentence_transformers.sentence_transformer.losses"


def drawn(seed, *shape):
    return torch.randn(*(shape or (N, WIDTH)), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def labelled():
    return drawn(2, CLASSES, WIDTH)[LABELS] + 0.7 * drawn(0)


@pytest.mark.parametrize("name", NAMES)
def test_name_is_built_in_loss_with_version(name):
    loss = losses.load(name)
    library = name.partition(":")[0]
    assert losses.canonical(name.lower()) == name and losses.canonical(name.removesuffix("Loss")) == name
    assert loss.name == losses.canonical(loss.name)  # a built-in loss or a wrapper of one
    assert any(libraries.VERSIONS[library] in note for note in loss.notes)
    assert losses.parameter_names(name) >= set(loss.parameters)
    assert f"`{name}`" in (Path(__file__).parents[1] / "docs" / "howto" / "loss.md").read_text()


@pytest.mark.parametrize("name", [*libraries.INSTEAD, *(f"{library}:Absent" for library in libraries.VERSIONS)])
def test_loss_without_row_is_refused(name):
    with pytest.raises(InputError):
        losses.load(name)


SETTINGS = {
    "st:MultipleNegativesRankingLoss": ({"temperature": 0.1, "similarity_fct": "dot_score"}, "mnrl", {"scale": 10.0}),
    "st:GISTEmbedLoss": ({"margin": 0.2}, "mnrl", {"filter_margin": 0.2, "scale": 100.0}),
    "st:TripletLoss": ({"triplet_margin": 1}, "own_hard(triplet_euclidean)", {"triplet_euclidean.margin": 1.0}),
    "st:BatchAllTripletLoss": ({"distance_metric": "cosine_distance"}, "triplet", {"margin": 5.0}),
    "st:BatchHardTripletLoss": ({"margin": 2}, "hardest_positive(triplet_sh)", {"triplet_sh.margin": 2.0}),
    "st:MegaBatchMarginLoss": ({}, "top_k(contrastive_cosine)", {"contrastive_cosine.neg_margin": 0.3}),
    "pml:TripletMarginLoss": ({"distance": "CosineSimilarity", "margin": 0.1}, "triplet", {"margin": 0.1}),
    "pml:ArcFaceLoss": ({"margin": 30}, "arcface", {"margin": 0.5235987755982988}),
    "pml:FastAPLoss": ({"num_bins": 5}, "fastap", {"bins": 5}),
    "open_clip:ClipLoss": ({"logit_scale": 100}, "ntxent", {"temperature": 0.01}),
    "open_clip:SigLipLoss": ({"logit_bias": -5}, "siglip", {"scale": 10.0, "bias": -5.0}),
    "ce:LambdaLoss": ({"sigma": 2, "weighting_scheme": "NDCGLoss1Scheme"}, "lambdaloss", {"scheme": "ndcg1"}),
    "colpali:BiPairwiseCELoss": ({"temperature": 0.3}, "top_k(ntxent)", {"k": 1, "ntxent.temperature": 0.3}),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_parameters_of_library_are_translated(name):
    values, built_in, expected = SETTINGS[name]
    loss = losses.load(name, values)
    assert loss.name == built_in
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


def test_count_takes_recorded_scale_of_library_name():
    assert losses.counterpart("st:MultipleNegativesRankingLoss") == "ntxent"
    embeddings = Embeddings(drawn(0), drawn(0) + drawn(1))
    data = measures.count(embeddings, "open_clip:ClipLoss", batch_size="all")
    expected = measures.count(embeddings, losses.load("ntxent", temperature=0.07), batch_size="all")
    assert (data["contributing"].values == expected["contributing"].values).all()


# --- labelled sets and proxies: name -> other setting; the weights of the library's code are those of the row


def module_of(name, **values):
    """Build a loss; one of pytorch-metric-learning adds up its parts, but for proxies as anchors."""
    prefix, _, class_name = name.partition(":")
    modules = {"pml": "pytorch_metric_learning.losses", "st": ST, "lightly": "lightly.loss"}
    library = pytest.importorskip(modules[prefix])
    if prefix == "pml" and class_name != "ProxyAnchorLoss":
        values["reducer"] = importlib.import_module("pytorch_metric_learning.reducers").SumReducer()
    return getattr(library, class_name)(*([Rows()] if prefix == "st" else []), **values)


class Rows(nn.Module):
    """A model of sentence-transformers that returns its features."""

    def forward(self, features, **_):
        return dict(features)

    def __getitem__(self, position):
        return self


def features(*columns):
    return [{"sentence_embedding": rows} for rows in columns]


SETS = {
    "pml:TripletMarginLoss": {"margin": 0.3},
    "pml:ContrastiveLoss": {"neg_margin": 0.8},
    "pml:LiftedStructureLoss": {"neg_margin": 0.7},
    "pml:GeneralizedLiftedStructureLoss": {"neg_margin": 0.7},
    "pml:FastAPLoss": {"num_bins": 6},
    "pml:NTXentLoss": {"temperature": 0.2},
    "pml:SupConLoss": {"temperature": 0.2},
    "pml:CircleLoss": {"m": 0.3, "gamma": 20},
    "pml:MultiSimilarityLoss": {"alpha": 1, "beta": 20, "base": 0.4},
    "st:BatchAllTripletLoss": {"margin": 1.0},
    "st:BatchHardTripletLoss": {"margin": 1.0},
    "lightly:NTXentLoss": {"temperature": 0.2},
    "lightly:DCLLoss": {"temperature": 0.2},
    "lightly:DCLWLoss": {"temperature": 0.2, "sigma": 0.3},
}


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("name", SETS)
def test_labelled_set_has_weights_of_row(name, other):
    values = SETS[name] if other else {}
    module, rows, labels = module_of(name, **values), labelled(), LABELS

    def run(query, _):
        if name.startswith("lightly"):
            return module(*query.chunk(2))
        return module(features(query), labels) if name.startswith("st") else module(query, labels)

    if name.startswith("lightly"):
        labels = torch.arange(N) % (N // 2)
    loss, reading = losses.load(name, values), find(run, rows, rows)
    pairs = scores.pairs(Embeddings.labelled(rows, labels), metric=loss.metric, same_group="negative")
    if loss.metric != reading.metric:  # both are functions of the cosine: -d² = 2 cos - 2
        assert {loss.metric, reading.metric} == {"cosine", "squared_chord"}
    weights, ours = weigh(run, rows, rows, reading).weights, loss.weight(pairs)
    ours = (ours + ours.T) / 2 if reading.symmetrised else ours
    assert difference(ours, torch.where(pairs.positive | pairs.negative, weights, 0)) < 1e-9


PROXIES = {
    "pml:ArcFaceLoss": {"margin": 20, "scale": 30},
    "pml:CosFaceLoss": {"margin": 0.2, "scale": 30},
    "pml:SphereFaceLoss": {"margin": 2},
    "pml:LargeMarginSoftmaxLoss": {"margin": 2},
    "pml:NormalizedSoftmaxLoss": {"temperature": 0.1},
    "pml:ProxyNCALoss": {"softmax_scale": 3},
    "pml:ProxyAnchorLoss": {"margin": 0.2, "alpha": 16},
    "pml:SoftTripleLoss": {"la": 10, "gamma": 0.2, "margin": 0.02},
    "pml:SubCenterArcFaceLoss": {"margin": 20, "scale": 30},
}


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("name", PROXIES)
def test_proxies_have_weights_of_row(name, other):
    values = PROXIES[name] if other else {}
    one = {"pml:SoftTripleLoss": {"centers_per_class": 1}, "pml:SubCenterArcFaceLoss": {"sub_centers": 1}}.get(name, {})
    rows, proxies = drawn(0), drawn(3, CLASSES, WIDTH)
    parameter = "fc" if "SoftTriple" in name else "proxies" if "Proxy" in name else "W"

    def run(query, candidate):
        module = module_of(name, num_classes=CLASSES, embedding_size=WIDTH, **one, **values).double()
        shape = dict(module.named_parameters())[parameter].shape
        weight = candidate if shape == (CLASSES, WIDTH) else candidate.T
        return torch.func.functional_call(module, {parameter: weight}, (query, LABELS))

    loss = losses.load(name, values)
    embeddings = Embeddings.labelled(rows, LABELS, proxies, torch.arange(CLASSES))
    pairs = scores.pairs(embeddings, metric=loss.metric, same_group="negative")
    weights = weigh(run, rows, proxies, find(run, rows, proxies)).weights
    assert difference(loss.weight(pairs), weights) < 1e-9


@pytest.mark.parametrize("name", [name for name in SETS if name.startswith("pml")])
def test_instance_keeps_its_settings(name):
    library = pytest.importorskip("pytorch_metric_learning.losses")
    loss = losses.as_loss(getattr(library, name.removeprefix("pml:"))(**SETS[name]))
    assert repr(loss) == repr(losses.load(name, SETS[name]))


def test_instance_of_another_distance_has_no_row():
    library = pytest.importorskip("pytorch_metric_learning.losses")
    distances = importlib.import_module("pytorch_metric_learning.distances")
    for distance in (distances.LpDistance(p=1), distances.LpDistance(power=3), distances.SNRDistance()):
        assert losses.library_loss(library.TripletMarginLoss(distance=distance)) is None


def test_st_instance_keeps_its_settings():
    library = pytest.importorskip(ST)
    loss = losses.as_loss(library.MultipleNegativesRankingLoss(Rows(), scale=5.0, directions=("query_to_doc",)))
    assert (loss.name, loss.scale, loss.directions) == ("mnrl", 5.0, ("query-candidate",))
    loss = losses.as_loss(library.DistillKLDivLoss(Rows(), temperature=3.0))
    assert (loss.name, loss.temperature) == ("kl_distill", 3.0)


def test_class_without_row_is_weighed_by_its_code():
    library = pytest.importorskip("pytorch_metric_learning.losses")
    loss = losses.as_loss(library.IntraPairVarianceLoss())
    pairs = scores.pairs(Embeddings.labelled(labelled(), LABELS), metric="cosine", same_group="negative")
    bound = loss.bind(pairs)
    assert bound.metric == "cosine" and bound.unit_from == "unknown" and bound.weight(pairs).any()


# --- two sides: the gradient of the library's code is that of the row

TOKEN = {"input_ids": torch.ones(N, 1, dtype=torch.long), "attention_mask": torch.ones(N, 1, dtype=torch.bool)}
GRADES = torch.arange(N).double() % 5
TEACHER = drawn(7, N, 2)
GUIDE = drawn(0) + 0.3 * drawn(5), drawn(0) + 0.3 * drawn(6)


def own_columns():
    """Scores of a teacher for the positive and the hard negative of each query, NaN for other candidates."""
    matrix = torch.full((N, 2 * N), torch.nan, dtype=torch.float64)
    matrix[torch.arange(N), torch.arange(N)], matrix[torch.arange(N), N + torch.arange(N)] = TEACHER.T
    return Annotations(teacher=Teacher(matrix))


class Guided(Rows):
    """A model of sentence-transformers with a tokenizer; the guide returns other features."""

    max_seq_length = 8

    def __init__(self, name):
        super().__init__()
        self.name = name
        base = importlib.import_module("transformers").PreTrainedTokenizerBase
        self.tokenizer = type("Tokenizer", (base,), {"__init__": lambda _: None, "get_vocab": lambda _: {}})()

    def forward(self, features, **_):
        return {"sentence_embedding": features[self.name]}


def st(name, **values):
    library = pytest.importorskip(ST)
    if name == "GISTEmbedLoss":
        module = library.GISTEmbedLoss(Guided("rows"), Guided("guide"), **values)
        return lambda q, c, _: module([{"rows": q, "guide": GUIDE[0]}, {"rows": c, "guide": GUIDE[1]}], None)
    if "similarity_fct" in values:
        similarities = importlib.import_module("sentence_transformers.util")
        values["similarity_fct"] = getattr(similarities, f"pairwise_{values['similarity_fct']}")
    module = getattr(library, name)(Rows(), **values)
    if name == "MegaBatchMarginLoss":
        return lambda q, c, _: module.calculate_loss([[q], [c]])
    if name in ("CoSENTLoss", "AnglELoss"):
        return lambda q, c, _: module.compute_loss_from_embeddings([q, c], GRADES)
    if name in ("MarginMSELoss", "DistillKLDivLoss"):
        return lambda q, c, hard: module.compute_loss_from_embeddings([q, c, hard], TEACHER)
    return lambda *columns: module(features(*(rows for rows in columns if rows is not None)), None)


def open_clip(name, logit_scale=None, **values):
    module = getattr(pytest.importorskip("open_clip.loss"), name)()
    scale = {"ClipLoss": 1 / 0.07, "SigLipLoss": 10.0}[name] if logit_scale is None else logit_scale
    bias = {"logit_bias": values.get("logit_bias", -10.0)} if name == "SigLipLoss" else {}
    return lambda q, c, _: module(*map(unit, (q, c)), torch.tensor(scale, dtype=torch.float64), **bias)


def colpali(name, **values):
    module = getattr(pytest.importorskip("colpali_engine.loss"), name)(**values)
    one_token = (slice(None), None) if name.startswith("Colbert") else ...
    return lambda q, c, _: module(unit(q)[one_token], unit(c)[one_token])


def pylate(name, **values):
    model = Rows()
    model.skiplist, model.do_query_expansion = [], False
    module = getattr(pytest.importorskip("pylate.losses"), name)(model, **values)
    return lambda *columns: module([TOKEN | {"token_embeddings": rows[:, None]} for rows in columns[:2]])


# name -> (other setting, the library's code, annotations); own hard negatives where the name has an H
TWO_SIDES = {
    "st:MultipleNegativesRankingLoss": ({"scale": 8.0}, st, None),
    "st:MultipleNegativesRankingLoss H": ({"scale": 8.0}, st, None),
    "st:MultipleNegativesSymmetricRankingLoss": ({"scale": 8.0}, st, None),
    "st:MegaBatchMarginLoss": ({"positive_margin": 0.6, "negative_margin": 0.1}, st, None),
    "st:TripletLoss H": ({"triplet_margin": 1.0}, st, None),
    "st:GISTEmbedLoss": ({"temperature": 0.1, "margin": 0.2}, st, Annotations(teacher=Teacher(guide=GUIDE))),
    "st:MarginMSELoss H": ({"similarity_fct": "cos_sim"}, st, own_columns()),
    "st:DistillKLDivLoss H": ({"temperature": 2.0}, st, own_columns()),
    "st:CoSENTLoss": ({"scale": 5.0}, st, Annotations(grades=GRADES)),
    "st:AnglELoss": ({"scale": 5.0}, st, Annotations(grades=GRADES)),
    "open_clip:ClipLoss": ({"logit_scale": 30.0}, open_clip, None),
    "open_clip:SigLipLoss": ({"logit_scale": 30.0, "logit_bias": -4.0}, open_clip, None),
    "colpali:BiEncoderLoss": ({"temperature": 0.1}, colpali, None),
    "colpali:BiPairwiseCELoss": ({"temperature": 0.1}, colpali, None),
    "colpali:BiSigmoidLoss": ({"temperature": 0.1}, colpali, None),
    "colpali:ColbertLoss": ({"temperature": 0.1}, colpali, None),
    "colpali:ColbertPairwiseCELoss": ({"temperature": 0.1}, colpali, None),
    "colpali:ColbertSigmoidLoss": ({"temperature": 0.1}, colpali, None),
    "pylate:Contrastive": ({"temperature": 0.1}, pylate, None),
}


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("case", TWO_SIDES)
def test_two_sides_have_gradient_of_row(case, other):
    values, code, annotations = TWO_SIDES[case]
    name, _, hard = case.partition(" ")
    values = values if other else {}
    leaves = [drawn(0), (drawn(0) + drawn(1)), drawn(2)][: 3 if hard else 2]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    query, candidate, negative = (*leaves, None)[:3]
    value = code(name.partition(":")[2], **values)(query, candidate, negative)
    theirs = torch.cat(torch.autograd.grad(value, leaves))
    loss = losses.load(name, values)
    row = dataclasses.replace(sides(loss), **({} if annotations is None else {"annotations": annotations}))
    ours = row(query, candidate, None if negative is None else negative[:, None])
    ours = ours + row(candidate, query) if name == "open_clip:ClipLoss" else ours
    tolerance = 1e-5 if name == "st:TripletLoss" else 1e-8  # it adds 1e-6 to each difference
    assert difference(torch.cat(torch.autograd.grad(ours, leaves)), theirs) < tolerance


# --- cross-encoders, on a table of scores

CROSS_ENCODERS = {
    "ce:LambdaLoss": {"sigma": 2.0},
    "ce:RankNetLoss": {"sigma": 0.5},
    "ce:ListNetLoss": {},
    "ce:ListMLELoss": {},
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
    if name == "ce:ListMLELoss":  # orders ties as the input
        grades = torch.arange(documents, 0, -1) / 2
    grades = grades.double().expand(queries, -1)
    texts = [str(number) for number in range(documents)]
    module = getattr(library, name.removeprefix("ce:"))(Scorer(table), **values)
    value = module([texts[:queries], [texts] * queries], list(grades.float()))
    (theirs,) = torch.autograd.grad(value, table)
    positive = torch.arange(documents).expand(queries, -1) < 2
    pairs = Pairs(table.detach().double(), positive, teacher=grades)
    assert difference(losses.load(name, values).weight(pairs), theirs.double()) < 1e-4
