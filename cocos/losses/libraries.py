"""Library losses by name, such as `st:MultipleNegativesRankingLoss`: each is a built-in loss with parameters.

The libraries need not be installed. Tests run them and compare their weights, at the defaults and at another setting.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cocos.base.errors import InputError, nearest
from cocos.losses import parameters, spelling
from cocos.losses.base import Loss
from cocos.losses.foreign import literal

# Releases with the defaults of the rows.
VERSIONS = {
    "st": "sentence-transformers 5 and 6",
    "ce": "sentence-transformers 5 and 6",
    "pml": "pytorch-metric-learning 2.9",
    "lightly": "lightly 1.5 and 1.6",
    "open_clip": "open_clip 2 and 3",
    "pylate": "PyLate 1.0",
    "colpali": "colpali-engine 0.3.18",
}
PACKAGES = {
    "sentence_transformers": "st",
    "pytorch_metric_learning": "pml",
    "lightly": "lightly",
    "open_clip": "open_clip",
}
SIMILARITIES = {
    "cos_sim": "cosine",
    "dot_score": "dot",
    "pairwise_cos_sim": "cosine",
    "pairwise_dot_score": "dot",
    "cosine_distance": "cosine",
    "cosine": "cosine",
    "euclidean_distance": "euclidean",
    "euclidean": "euclidean",
}
DIRECTIONS = {
    "query_to_doc": "query-candidate",
    "query_to_query": "query-query",
    "doc_to_query": "candidate-query",
    "doc_to_doc": "candidate-candidate",
}
# Distance of pytorch-metric-learning (class, power, normalised) -> metric.
DISTANCES = {
    ("CosineSimilarity", 1, True): "cosine",
    ("DotProductSimilarity", 1, True): "cosine",
    ("DotProductSimilarity", 1, False): "dot",
    ("LpDistance", 1, True): "chord",
    ("LpDistance", 1, False): "euclidean",
    ("LpDistance", 2, True): "squared_chord",
    ("LpDistance", 2, False): "squared_euclidean",
}


@dataclass(frozen=True)
class Row:
    """A loss of a library.

    Args:
        loss: name of the built-in loss; or metric -> name, the metric of the library's default first.
        defaults: parameters of the built-in loss that are the defaults of the library.
        renamed: parameter of the library -> of the built-in loss.
        values: value in the library, in words -> of the built-in loss.
        fixed: parameters of the library for which there is one value.
        similarity: parameter of the library for the metric, or empty.
        degrees: parameters in degrees, in radians in the built-in loss.
        note: a remark for the user.
    """

    loss: str | Mapping[str, str]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    similarity: str = ""
    degrees: tuple[str, ...] = ()
    note: str = ""

    def built_in(self, metric: str | None = None) -> str:
        """Return the name of the built-in loss for a metric, by default the library's."""
        if isinstance(self.loss, str):
            return self.loss
        return next(iter(self.loss.values())) if metric is None else self.loss[metric]


def ranking(**more: Any) -> Row:
    """Return a row of the ranking losses of sentence-transformers."""
    renamed = {"partition_mode": "partition", "hardness_strength": "hardness", "hardness_mode": "hardness_on"}
    hardness = {"all_negatives": "all", "in_batch_negatives": "in-batch", "hard_negatives": "hard"}
    fixed = {"gather_across_devices": False}
    row = {"defaults": {"scale": 20.0}, "renamed": renamed, "values": hardness, "fixed": fixed}
    return Row("mnrl", **row | {"similarity": "similarity_fct"} | more)


GUIDED = Row(
    "mnrl",
    {
        "scale": 100.0,
        "directions": ("query-candidate", "query-query", "candidate-candidate"),
        "filter": "guide",
        "filter_margin": 0.0,
    },
    {"margin": "filter_margin"},
    fixed={"margin_strategy": "absolute", "contrast_anchors": True, "contrast_positives": True},
)
SYMMETRIC = {"scale": 20.0, "directions": ("query-candidate", "candidate-query"), "partition": "per_direction"}
TRIPLETS = {"euclidean": "triplet_euclidean", "cosine": "triplet"}
HARDEST_TRIPLETS = {"euclidean": "hardest_positive(triplet_sh)", "cosine": "hardest_positive(triplet_sh)"}
VIEWS = "both views take part in it: give one labelled set with two rows per sample"
PAIRS_APART = "the library averages positive and negative pairs apart, here all are added up"
PROBABILITIES = Row("ntxent", {"temperature": 0.1}, note="it reads scores after the Sigmoid, as `predict` returns them")
INNER_TEMPERATURE = {"temperature": "ntxent.temperature"}
MEAN_MAXSIM = "it reads MaxSim per token of the query (normalize_scores), else MaxSim"
MAXSIM = "it reads MaxSim scores"
OF_DISTANCES = {
    "chord": "euclidean",
    "euclidean": "euclidean",
    "squared_chord": "squared",
    "squared_euclidean": "squared",
}
PML_TRIPLETS = {
    "chord": "triplet_euclidean",
    "euclidean": "triplet_euclidean",
    "squared_chord": "triplet_squared",
    "squared_euclidean": "triplet_squared",
    "cosine": "triplet",
    "dot": "triplet",
}
ROWS: dict[str, dict[str, Row]] = {
    "st": {
        "MultipleNegativesRankingLoss": ranking(),
        "CachedMultipleNegativesRankingLoss": ranking(),
        "MultipleNegativesSymmetricRankingLoss": ranking(defaults=SYMMETRIC),
        "CachedMultipleNegativesSymmetricRankingLoss": ranking(defaults=SYMMETRIC),
        "GISTEmbedLoss": GUIDED,
        "CachedGISTEmbedLoss": GUIDED,
        "TripletLoss": Row(
            {metric: f"own_hard({name})" for metric, name in TRIPLETS.items()},
            {"margin": 5.0},
            {"triplet_margin": "margin"},
            similarity="distance_metric",
        ),
        "BatchAllTripletLoss": Row(TRIPLETS, {"margin": 5.0}, similarity="distance_metric"),
        "BatchHardTripletLoss": Row(HARDEST_TRIPLETS, {"margin": 5.0}, similarity="distance_metric"),
        "MegaBatchMarginLoss": Row(
            "top_k(contrastive_cosine)",
            {"k": 1, "pos_margin": 0.8, "neg_margin": 0.3},
            {"positive_margin": "pos_margin", "negative_margin": "neg_margin"},
        ),
        "MarginMSELoss": Row("margin_mse", similarity="similarity_fct"),
        "DistillKLDivLoss": Row("kl_distill", {"temperature": 1.0}, similarity="similarity_fct"),
        "CoSENTLoss": Row("cosent", {"scale": 20.0}),
        "AnglELoss": Row("angle", {"scale": 20.0}),
    },
    "pml": {
        "TripletMarginLoss": Row(
            PML_TRIPLETS,
            {"margin": 0.05},
            fixed={"swap": False, "smooth_loss": False, "triplets_per_anchor": "all"},
            similarity="distance",
        ),
        "ContrastiveLoss": Row(
            {"chord": "contrastive_linear", "euclidean": "contrastive_linear", "cosine": "contrastive_cosine"},
            {"pos_margin": 0.0, "neg_margin": 1.0},
            similarity="distance",
            note=PAIRS_APART,
        ),
        "LiftedStructureLoss": Row(
            {"chord": "lifted_structure", "euclidean": "lifted_structure"},
            {"margin": 1.0},
            {"neg_margin": "margin"},
            fixed={"pos_margin": 0},
            similarity="distance",
        ),
        "GeneralizedLiftedStructureLoss": Row(
            {"chord": "generalized_lifted", "euclidean": "generalized_lifted"},
            {"margin": 1.0},
            {"neg_margin": "margin"},
            fixed={"pos_margin": 0},
            similarity="distance",
        ),
        "FastAPLoss": Row({"squared_chord": "fastap"}, {"bins": 10}, {"num_bins": "bins"}, similarity="distance"),
        "NTXentLoss": Row("ntxent", {"temperature": 0.07}),
        "SupConLoss": Row("supcon", {"temperature": 0.1}),
        "CircleLoss": Row("circle", {"margin": 0.4, "gamma": 80.0}, {"m": "margin"}),
        "MultiSimilarityLoss": Row("multi_similarity", {"alpha": 2.0, "beta": 50.0, "base": 0.5}),
        "ArcFaceLoss": Row("arcface", {"margin": math.radians(28.6), "scale": 64.0}, degrees=("margin",)),
        "SubCenterArcFaceLoss": Row(
            "subcenter_arcface", {"margin": math.radians(28.6), "scale": 64.0}, degrees=("margin",)
        ),
        "CosFaceLoss": Row("cosface", {"margin": 0.35, "scale": 64.0}),
        "SphereFaceLoss": Row("a_softmax", {"margin": 4}, fixed={"scale": 1}),
        "LargeMarginSoftmaxLoss": Row("l_softmax", {"margin": 4}, fixed={"scale": 1}),
        "NormalizedSoftmaxLoss": Row("normalized_softmax", {"temperature": 0.05}),
        "ProxyNCALoss": Row(
            {"squared_chord": "proxynca_pp"}, {"scale": 1.0}, {"softmax_scale": "scale"}, similarity="distance"
        ),
        "ProxyAnchorLoss": Row("proxy_anchor", {"margin": 0.1, "alpha": 32.0}),
        "SoftTripleLoss": Row("softtriple", {"la": 20.0, "gamma": 0.1, "margin": 0.01}),
    },
    "lightly": {
        "NTXentLoss": Row(
            "ntxent", {"temperature": 0.5}, fixed={"memory_bank_size": 0, "gather_distributed": False}, note=VIEWS
        ),
        "DCLLoss": Row("dcl", {"temperature": 0.1}, fixed={"gather_distributed": False}, note=VIEWS),
        "DCLWLoss": Row("dclw", {"temperature": 0.1, "sigma": 0.5}, fixed={"gather_distributed": False}, note=VIEWS),
    },
    "open_clip": {
        "ClipLoss": Row(
            "ntxent",
            {"temperature": 0.07},
            {"logit_scale": "scale"},
            fixed={"world_size": 1},
            note="the scale is where open_clip begins a training; -p logit_scale= sets that of a trained model",
        ),
        "SigLipLoss": Row(
            "siglip",
            {"scale": 10.0, "bias": -10.0},
            {"logit_scale": "scale", "logit_bias": "bias"},
            fixed={"world_size": 1},
            note="scale and bias are where open_clip begins a training; -p logit_scale= and logit_bias= set others",
        ),
    },
    "ce": {
        "BinaryCrossEntropyLoss": Row(
            "siglip", {"scale": 1.0, "bias": 0.0}, note="it reads logits, before any Sigmoid"
        ),
        "LambdaLoss": Row(
            "lambdaloss",
            {},
            {"sigma": "scale", "weighting_scheme": "scheme"},
            {
                "NDCGLoss1Scheme": "ndcg1",
                "NDCGLoss2Scheme": "ndcg2",
                "NDCGLoss2PPScheme": "ndcg2pp",
                "LambdaRankScheme": "lambdarank",
            },
        ),
        "RankNetLoss": Row("ranknet", {}, {"sigma": "scale"}),
        "ListNetLoss": Row("kl_distill", {"temperature": 1.0}),
        "ListMLELoss": Row("listmle", note="it reads grades without ties, and orders ties as the input"),
        "MarginMSELoss": Row("margin_mse"),
        "MultipleNegativesRankingLoss": PROBABILITIES,
        "CachedMultipleNegativesRankingLoss": PROBABILITIES,
    },
    "pylate": {
        "Contrastive": Row("ntxent", {"temperature": 1.0}, note=MAXSIM),
        "CachedContrastive": Row("ntxent", {"temperature": 1.0}, note=MAXSIM),
        "Distillation": Row("kl_distill", {"temperature": 1.0}, note="it reads MaxSim, with normalize_scores=False"),
    },
    "colpali": {
        "BiEncoderLoss": Row("ntxent", {"temperature": 0.02}),
        "BiPairwiseCELoss": Row("top_k(ntxent)", {"k": 1, "ntxent.temperature": 0.02}, INNER_TEMPERATURE),
        "BiSigmoidLoss": Row("siglip", {"scale": 50.0, "bias": 0.0}),
        "ColbertLoss": Row("ntxent", {"temperature": 0.02}, note=MEAN_MAXSIM),
        "ColbertPairwiseCELoss": Row(
            "top_k(ntxent)", {"k": 1, "ntxent.temperature": 1.0}, INNER_TEMPERATURE, note=MEAN_MAXSIM
        ),
        "ColbertSigmoidLoss": Row("siglip", {"scale": 50.0, "bias": 0.0}, note=MEAN_MAXSIM),
    },
}
CLASSIFIES = "it classifies pairs, so it has no negatives to count"
COMPARES = "it compares rows or scores with those of a teacher, so it has no negatives to count"
DIMENSIONS = "it compares the dimensions of embeddings, so it has no negatives to count"
WRAPS = "it calls another loss; name that loss, with --dims for its first dimensions"
TWO_TERMS = "it adds a term of own hard negatives to one of the batch; count the two on their own candidates"
OWN_CODE = "there is no built-in loss of this form; -p unit= is not needed if you name its code, package.module:Class"
# Library -> loss -> reason for which there is no row.
REFUSED: dict[str, dict[str, str]] = {
    "st": {
        **dict.fromkeys(("MatryoshkaLoss", "Matryoshka2dLoss", "AdaptiveLayerLoss"), WRAPS),
        **dict.fromkeys(("MSELoss", "EmbedDistillLoss"), COMPARES),
        "SoftmaxLoss": CLASSIFIES,
        "DenoisingAutoEncoderLoss": "it decodes texts, so it has no negatives to count",
        "GlobalOrthogonalRegularizationLoss": "it regularises rows, so it has no negatives to count",
        "ContrastiveLoss": "it reads labelled pairs; contrastive_cosine is the loss of cosines",
        "OnlineContrastiveLoss": "it reads labelled pairs; contrastive_cosine is the loss of cosines",
        "BatchSemiHardTripletLoss": "semi_hard(triplet_euclidean) is the built-in loss of semi-hard negatives",
        "BatchHardSoftMarginTripletLoss": "it has no margin; st:BatchHardTripletLoss has",
    },
    "pml": {
        **dict.fromkeys(("BaseLossWrapper", "BaseMetricLossFunction", "GenericPairLoss"), "it is a base class"),
        **dict.fromkeys(("EmbeddingRegularizerMixin", "WeightRegularizerMixin"), "it is a part of a class"),
        "CrossBatchMemory": "it keeps rows of earlier batches; name its loss and take a larger batch",
        "SelfSupervisedLoss": "it makes labels for another loss; name that loss",
        "MultipleLosses": "it adds losses; write the sum, like pml:TripletMarginLoss+0.5*pml:ContrastiveLoss",
        "ManifoldLoss": "it draws its classes at random, so it has no positives and negatives of the batch to count",
        "VICRegLoss": DIMENSIONS,
    },
    "lightly": {
        **dict.fromkeys(("BarlowTwinsLoss", "VICRegLoss"), DIMENSIONS),
        "NegativeCosineSimilarity": "it has no negatives to count",
    },
    "open_clip": {
        "CoCaLoss": "it adds a loss of captions to ClipLoss; name open_clip:ClipLoss for its contrastive part",
        "DistillClipLoss": "it adds the scores of a teacher to ClipLoss; name open_clip:ClipLoss for its own part",
    },
    "ce": {
        "CrossEntropyLoss": CLASSIFIES,
        "MSELoss": COMPARES,
        "PListMLELoss": "it weighs the draws of ce:ListMLELoss by their place, which no built-in loss does",
    },
    "pylate": {},
    "colpali": {
        "BiPairedEncoderLoss": "it is open_clip:ClipLoss, of both directions, at logit_scale 50",
        **dict.fromkeys(
            ("BiNegativeCELoss", "BiPairwiseNegativeCELoss", "ColbertNegativeCELoss", "ColbertPairwiseNegativeCELoss"),
            TWO_TERMS,
        ),
    },
}


def find_row(name: str) -> tuple[str, str, Row]:
    """Return library, name as the library writes it, and row; case and the ending `Loss` are optional.

    Raises:
        InputError: there is no such loss, or it cannot be counted.
    """
    prefix, _, class_name = (part.strip() for part in name.partition(":"))
    library, letters = prefix.lower(), class_name.lower().replace("-", "_")
    for known_name in (*ROWS[library], *REFUSED[library]):
        if letters in {known_name.lower(), known_name.lower().removesuffix("loss")}:
            if known_name in REFUSED[library]:
                raise InputError(f"loss {library}:{known_name}: {REFUSED[library][known_name]}")
            return library, known_name, ROWS[library][known_name]
    message = nearest(f"loss of {library}", class_name, ROWS[library])
    raise InputError(f"{message}; its code is named by the module, --loss package.module:{class_name or 'Class'}")


def canonical(name: str) -> str:
    """Return the name as the library writes it.

    Examples:
        >>> canonical("st:multiplenegativesranking")
        'st:MultipleNegativesRankingLoss'
    """
    library, known_name, _ = find_row(name)
    return f"{library}:{known_name}"


def known(name: str) -> set[str] | None:
    """Return the names of the parameters, in the library and of the built-in loss."""
    row = find_row(name)[2]
    names = spelling.parse(row.built_in()).parameter_names()
    distance = (
        {"distance", "distance.power", "distance.normalize_embeddings"} if row.similarity == "distance" else set()
    )
    similarity = {row.similarity} if row.similarity else set()
    names = None if names is None else names | {name.rpartition(".")[2] for name in names}  # of a loss in a wrapper
    return None if names is None else {*row.renamed, *row.fixed, *similarity, *distance, *names}


def counterpart(name: str) -> str:
    """Return the built-in loss from which recorded parameters are taken.

    Examples:
        >>> counterpart("open_clip:ClipLoss")
        'ntxent'
    """
    built_in = find_row(name)[2].built_in()
    return "ntxent" if built_in == "mnrl" else built_in


def qualified(name: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return parameters under the names of the built-in loss; those of the metric stay.

    Raises:
        InputError: an unknown parameter, one that is given twice, or a value that the built-in loss does not have.

    Examples:
        >>> qualified("ce:LambdaLoss", {"sigma": 2.0, "weighting_scheme": "LambdaRankScheme"})
        {'scale': 2.0, 'scheme': 'lambdarank'}
    """
    library, known_name, row = find_row(name)
    accepted, renamed = known(name), dict[str, Any]()
    for key, value in values.items():
        if accepted is not None and key not in accepted:
            raise InputError(nearest(f"parameter of {library}:{known_name}", key, accepted))
        if key in row.fixed:
            if literal(value) != row.fixed[key]:
                raise InputError(f"{library}:{known_name}: {key} {value!r}, expected {row.fixed[key]!r}")
            continue
        parameter = row.renamed.get(key, key)
        if parameter in renamed:
            raise InputError(f"parameter {parameter} of {library}:{known_name} is given twice")
        if key in row.degrees:
            renamed[parameter] = math.radians(parameters.convert(key, value, float))
        elif parameter == "directions":
            words = value.strip("()[] ").split(",") if isinstance(value, str) else value
            renamed[parameter] = tuple(DIRECTIONS.get(word.strip(" '\""), word.strip(" '\"")) for word in words)
        else:
            renamed[parameter] = row.values.get(value, value) if isinstance(value, str) else value
    return renamed


def find_metric(name: str, row: Row, values: dict[str, Any]) -> str | None:
    """Remove the parameters of the metric from the values, and return the metric, or None for the default.

    Raises:
        InputError: an unknown similarity, or one for which there is no built-in loss.
    """
    similarity = values.pop(row.similarity, None) if row.similarity else None
    options = {key: literal(values.pop(f"distance.{key}", None)) for key in ("power", "normalize_embeddings")}
    if row.similarity == "distance":
        default = next(iter(row.loss)) if isinstance(row.loss, Mapping) else ""
        usual = next(key for key, metric in DISTANCES.items() if metric == default)
        distance = str(similarity or usual[0]), options["power"], options["normalize_embeddings"]
        power = (
            (usual[1] if distance[0] == usual[0] and similarity is None else 1) if distance[1] is None else distance[1]
        )
        normalised = True if distance[2] is None else distance[2]
        metric = DISTANCES.get((distance[0], power, normalised))
    elif similarity is None:
        return None
    else:
        word = getattr(similarity, "__name__", str(similarity)).rpartition(".")[2].lower()
        metric = SIMILARITIES.get(word)
    if metric is None or (isinstance(row.loss, Mapping) and metric not in row.loss):
        expected = ", ".join(row.loss) if isinstance(row.loss, Mapping) else "cos_sim or dot_score"
        raise InputError(f"{name}: {row.similarity} {similarity}, expected scores of {expected}")
    return metric


def load(name: str, values: dict[str, Any]) -> Loss:
    """Return the built-in loss with the library's defaults.

    Examples:
        >>> load("colpali:BiSigmoidLoss", {"scale": 20})
        SigLIP(scale=20.0, bias=0.0)
        >>> load("pml:TripletMarginLoss", {"distance": "CosineSimilarity"})
        Triplet(margin=0.05)
    """
    library, known_name, row = find_row(name)
    name, values = f"{library}:{known_name}", qualified(name, values)
    metric = find_metric(name, row, values)
    parsed = spelling.parse(row.built_in(metric))
    loss = copy.copy(parsed.build(parsed.qualify(dict(row.defaults)) | parsed.qualify(values)))
    if metric is None and isinstance(row.loss, Mapping):
        metric = next(iter(row.loss))
    note = f"{name} is counted as {loss!r}, with the defaults of {VERSIONS[library]}"
    loss.set_attributes(notes=(*loss.notes, *([f"{note}; {row.note}"] if row.note else [note])))
    if metric is not None:
        loss.set_attributes(metric=metric)
    return loss


def from_instance(module: Any) -> Loss | None:
    """Return the built-in loss of a module of a library with its settings, or None if no row has all of them.

    A module with parameters of its own, such as proxies, is not read.
    """
    library = PACKAGES.get(type(module).__module__.partition(".")[0], "")
    row = ROWS.get(library, {}).get(type(module).__name__)
    if row is None or list(getattr(module, "parameters", list)()):
        return None
    settings: dict[str, Any] = {}
    for name in (known(f"{library}:{type(module).__name__}") or set()) - {row.similarity}:
        value = getattr(module, name, None)
        if isinstance(value, int | float | str | tuple):
            settings[name] = value
    distance = getattr(module, "distance", None)
    if distance is not None and row.similarity == "distance":
        settings |= {"distance": type(distance).__name__, "distance.power": getattr(distance, "power", 1)}
        settings["distance.normalize_embeddings"] = bool(distance.normalize_embeddings)
    elif row.similarity and (similarity := getattr(module, row.similarity, None)) is not None:
        settings[row.similarity] = similarity
    if {"scale", "temperature"} <= settings.keys():  # one is computed from the other
        settings.pop("temperature" if "scale" in row.defaults else "scale")
    if getattr(module, "embedding_regularizer", None) is not None:
        return None
    try:
        return load(f"{library}:{type(module).__name__}", settings)
    except InputError:
        return None
