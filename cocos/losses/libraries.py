"""Library losses by name, such as `st:MultipleNegativesRankingLoss`: each is a built-in loss with parameters.

The libraries need not be installed. Tests run them and compare their weights, at the defaults and at another setting.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cocos.base.errors import InputError, nearest
from cocos.losses import parameters

# Releases with the defaults of the rows.
VERSIONS = {
    "st": "sentence-transformers 5 and 6",
    "ce": "sentence-transformers 5 and 6",
    "pml": "pytorch-metric-learning 2.9",
    "lightly": "lightly 1.5 and 1.6",
    "open_clip": "open_clip 2 and 3",
    "pylate": "PyLate 1",
    "colpali": "colpali-engine 0.3.18",
}
PACKAGES = {
    "sentence_transformers": "st",
    "pytorch_metric_learning": "pml",
    "lightly": "lightly",
    "open_clip": "open_clip",
}
# Metric of a similarity function or of the default distance of a class, by its name in small letters.
METRICS = {
    **dict.fromkeys(("cos_sim", "pairwise_cos_sim", "cosine_distance", "cosinesimilarity", "cosine"), "cosine"),
    **dict.fromkeys(("dot_score", "pairwise_dot_score", "dot"), "dot"),
    **dict.fromkeys(("euclidean_distance", "euclidean"), "euclidean"),
    **dict.fromkeys(("lpdistance", "chord"), "chord"),
    **{"squared_chord": "squared_chord", "squared_euclidean": "squared_euclidean"},
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
        degrees: whether the margin of the library is in degrees; it is in radians in the built-in loss.
        note: a remark for the user.
    """

    loss: str | Mapping[str, str]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    similarity: str = ""
    degrees: bool = False
    note: str = ""

    @property
    def built_in(self) -> str:
        """The built-in loss at the library's default metric."""
        return self.loss if isinstance(self.loss, str) else next(iter(self.loss.values()))

    @property
    def parameter_names(self) -> set[str]:
        """Names of the parameters of the library that the built-in loss does not have."""
        return {*self.renamed, *self.fixed, *([self.similarity] if self.similarity else [])}


RANKING_NAMES = {"partition_mode": "partition", "hardness_strength": "hardness", "hardness_mode": "hardness_on"}
RANKING_VALUES = {
    **{"all_negatives": "all", "in_batch_negatives": "in-batch", "hard_negatives": "hard"},
    **{"query_to_doc": "query-candidate", "query_to_query": "query-query"},
    **{"doc_to_query": "candidate-query", "doc_to_doc": "candidate-candidate"},
}
ONE_DEVICE = {"gather_across_devices": False}
RANKING = Row("mnrl", {"scale": 20.0}, RANKING_NAMES, RANKING_VALUES, ONE_DEVICE, "similarity_fct")
SYMMETRIC_DEFAULTS = {"scale": 20.0, "directions": "query-candidate,candidate-query", "partition": "per_direction"}
SYMMETRIC = Row("mnrl", SYMMETRIC_DEFAULTS, RANKING_NAMES, RANKING_VALUES, ONE_DEVICE, "similarity_fct")
GUIDED_DIRECTIONS = "query-candidate,query-query,candidate-candidate"
GUIDED = Row(
    "mnrl",
    {"scale": 100.0, "directions": GUIDED_DIRECTIONS, "filter": "guide", "filter_margin": 0.0},
    {"margin": "filter_margin"},
    fixed={"margin_strategy": "absolute", "contrast_anchors": True, "contrast_positives": True},
)
ST_TRIPLETS = {"euclidean": "triplet_euclidean", "cosine": "triplet"}
ST_HARDEST = dict.fromkeys(("euclidean", "cosine"), "hardest_positive(triplet_sh)")
ST_OWN = {"euclidean": "own_hard(triplet_euclidean)", "cosine": "own_hard(triplet)"}
PML_TRIPLETS = {
    **{"chord": "triplet_euclidean", "euclidean": "triplet_euclidean"},
    **{"squared_chord": "triplet_squared", "squared_euclidean": "triplet_squared"},
    **{"cosine": "triplet", "dot": "triplet"},
}
PML_CONTRASTIVE = {"chord": "contrastive_linear", "euclidean": "contrastive_linear", "cosine": "contrastive_cosine"}
ALL_TRIPLETS = {"swap": False, "smooth_loss": False, "triplets_per_anchor": "all"}
SIGMA = {"sigma": "scale"}
SCHEMES = {
    **{"NDCGLoss1Scheme": "ndcg1", "NDCGLoss2Scheme": "ndcg2"},
    **{"NDCGLoss2PPScheme": "ndcg2pp", "LambdaRankScheme": "lambdarank"},
}
DEGREES = math.radians(28.6)
VIEWS = "both views take part in it: give one labelled set with two rows per sample"
PROBABILITIES = "it reads scores after the Sigmoid, as `predict` returns them"
INITIAL = "scale and bias are where open_clip begins a training; -p logit_scale= and logit_bias= set others"
MAXSIM = "it reads MaxSim scores"
MEAN_MAXSIM = "it reads MaxSim per token of the query (normalize_scores), else MaxSim"
ROWS = {
    **dict.fromkeys(("st:MultipleNegativesRankingLoss", "st:CachedMultipleNegativesRankingLoss"), RANKING),
    "st:MultipleNegativesSymmetricRankingLoss": SYMMETRIC,
    "st:CachedMultipleNegativesSymmetricRankingLoss": SYMMETRIC,
    **dict.fromkeys(("st:GISTEmbedLoss", "st:CachedGISTEmbedLoss"), GUIDED),
    "st:TripletLoss": Row(ST_OWN, {"margin": 5.0}, {"triplet_margin": "margin"}, similarity="distance_metric"),
    "st:BatchAllTripletLoss": Row(ST_TRIPLETS, {"margin": 5.0}, similarity="distance_metric"),
    "st:BatchHardTripletLoss": Row(ST_HARDEST, {"margin": 5.0}, similarity="distance_metric"),
    "st:MegaBatchMarginLoss": Row(
        "top_k(contrastive_cosine)",
        {"k": 1, "pos_margin": 0.8, "neg_margin": 0.3},
        {"positive_margin": "pos_margin", "negative_margin": "neg_margin"},
    ),
    "st:MarginMSELoss": Row("margin_mse", similarity="similarity_fct"),
    "st:DistillKLDivLoss": Row("kl_distill", {"temperature": 1.0}, similarity="similarity_fct"),
    "st:CoSENTLoss": Row("cosent", {"scale": 20.0}),
    "st:AnglELoss": Row("angle", {"scale": 20.0}),
    "pml:TripletMarginLoss": Row(PML_TRIPLETS, {"margin": 0.05}, fixed=ALL_TRIPLETS, similarity="distance"),
    "pml:ContrastiveLoss": Row(
        PML_CONTRASTIVE,
        {"pos_margin": 0.0, "neg_margin": 1.0},
        similarity="distance",
        note="the library averages positive and negative pairs apart, here all are added up",
    ),
    "pml:LiftedStructureLoss": Row(
        dict.fromkeys(("chord", "euclidean"), "lifted_structure"),
        {"margin": 1.0},
        {"neg_margin": "margin"},
        fixed={"pos_margin": 0},
        similarity="distance",
    ),
    "pml:GeneralizedLiftedStructureLoss": Row(
        dict.fromkeys(("chord", "euclidean"), "generalized_lifted"),
        {"margin": 1.0},
        {"neg_margin": "margin"},
        fixed={"pos_margin": 0},
        similarity="distance",
    ),
    "pml:FastAPLoss": Row({"squared_chord": "fastap"}, {"bins": 10}, {"num_bins": "bins"}, similarity="distance"),
    "pml:NTXentLoss": Row("ntxent", {"temperature": 0.07}),
    "pml:SupConLoss": Row("supcon", {"temperature": 0.1}),
    "pml:CircleLoss": Row("circle", {"margin": 0.4, "gamma": 80.0}, {"m": "margin"}),
    "pml:MultiSimilarityLoss": Row("multi_similarity", {"alpha": 2.0, "beta": 50.0, "base": 0.5}),
    "pml:ArcFaceLoss": Row("arcface", {"margin": DEGREES, "scale": 64.0}, degrees=True),
    "pml:SubCenterArcFaceLoss": Row("subcenter_arcface", {"margin": DEGREES, "scale": 64.0}, degrees=True),
    "pml:CosFaceLoss": Row("cosface", {"margin": 0.35, "scale": 64.0}),
    "pml:SphereFaceLoss": Row("a_softmax", {"margin": 4}, fixed={"scale": 1}),
    "pml:LargeMarginSoftmaxLoss": Row("l_softmax", {"margin": 4}, fixed={"scale": 1}),
    "pml:NormalizedSoftmaxLoss": Row("normalized_softmax", {"temperature": 0.05}),
    "pml:ProxyNCALoss": Row(
        {"squared_chord": "proxynca_pp"}, {"scale": 1.0}, {"softmax_scale": "scale"}, similarity="distance"
    ),
    "pml:ProxyAnchorLoss": Row("proxy_anchor", {"margin": 0.1, "alpha": 32.0}),
    "pml:SoftTripleLoss": Row("softtriple", {"la": 20.0, "gamma": 0.1, "margin": 0.01}),
    "lightly:NTXentLoss": Row(
        "ntxent", {"temperature": 0.5}, fixed={"memory_bank_size": 0, "gather_distributed": False}, note=VIEWS
    ),
    "lightly:DCLLoss": Row("dcl", {"temperature": 0.1}, fixed={"gather_distributed": False}, note=VIEWS),
    "lightly:DCLWLoss": Row(
        "dclw", {"temperature": 0.1, "sigma": 0.5}, fixed={"gather_distributed": False}, note=VIEWS
    ),
    "open_clip:ClipLoss": Row(
        "ntxent", {"temperature": 0.07}, {"logit_scale": "scale"}, fixed={"world_size": 1}, note=INITIAL
    ),
    "open_clip:SigLipLoss": Row(
        "siglip",
        {"scale": 10.0, "bias": -10.0},
        {"logit_scale": "scale", "logit_bias": "bias"},
        fixed={"world_size": 1},
        note=INITIAL,
    ),
    "ce:BinaryCrossEntropyLoss": Row("siglip", {"scale": 1.0, "bias": 0.0}, note="it reads logits, before any Sigmoid"),
    "ce:LambdaLoss": Row("lambdaloss", {}, SIGMA | {"weighting_scheme": "scheme"}, SCHEMES),
    "ce:RankNetLoss": Row("ranknet", {}, SIGMA),
    "ce:ListNetLoss": Row("kl_distill", {"temperature": 1.0}),
    "ce:ListMLELoss": Row("listmle", note="it reads grades without ties, and orders ties as the input"),
    "ce:MarginMSELoss": Row("margin_mse"),
    "ce:MultipleNegativesRankingLoss": Row("ntxent", {"temperature": 0.1}, note=PROBABILITIES),
    "ce:CachedMultipleNegativesRankingLoss": Row("ntxent", {"temperature": 0.1}, note=PROBABILITIES),
    "pylate:Contrastive": Row("ntxent", {"temperature": 1.0}, note=MAXSIM),
    "pylate:CachedContrastive": Row("ntxent", {"temperature": 1.0}, note=MAXSIM),
    "colpali:BiEncoderLoss": Row("ntxent", {"temperature": 0.02}),
    "colpali:BiPairwiseCELoss": Row("top_k(ntxent)", {"k": 1, "temperature": 0.02}),
    "colpali:BiSigmoidLoss": Row("siglip", {"scale": 50.0, "bias": 0.0}),
    "colpali:ColbertLoss": Row("ntxent", {"temperature": 0.02}, note=MEAN_MAXSIM),
    "colpali:ColbertPairwiseCELoss": Row("top_k(ntxent)", {"k": 1, "temperature": 1.0}, note=MEAN_MAXSIM),
    "colpali:ColbertSigmoidLoss": Row("siglip", {"scale": 50.0, "bias": 0.0}, note=MEAN_MAXSIM),
}
# Losses without a row, and the name to use instead.
INSTEAD = {
    **dict.fromkeys(("st:MatryoshkaLoss", "st:Matryoshka2dLoss"), "name its inner loss, with --dims"),
    **dict.fromkeys(("st:ContrastiveLoss", "st:OnlineContrastiveLoss"), "contrastive_cosine has one row per pair"),
    "st:BatchSemiHardTripletLoss": "semi_hard(triplet_euclidean) is the built-in loss of semi-hard negatives",
    "pml:CrossBatchMemory": "name its inner loss, with a larger batch size",
    "pml:SelfSupervisedLoss": "name its inner loss",
    "pml:MultipleLosses": "write the sum, like pml:TripletMarginLoss+0.5*pml:ContrastiveLoss",
    **dict.fromkeys(("open_clip:CoCaLoss", "open_clip:DistillClipLoss"), "open_clip:ClipLoss is its contrastive part"),
    "pylate:Distillation": "kl_distill is it with normalize_scores=False",
    "colpali:BiPairedEncoderLoss": "it is open_clip:ClipLoss at logit_scale 50",
}


def find_row(name: str) -> tuple[str, Row]:
    """Return the name as the library writes it, and its row; case and the ending `Loss` are optional.

    Raises:
        InputError: an unknown loss, or one without a built-in loss of its form.

    Examples:
        >>> find_row("st:multiplenegativesranking")[0]
        'st:MultipleNegativesRankingLoss'
    """
    library, _, class_name = (part.strip() for part in name.partition(":"))
    library, letters = library.lower(), class_name.lower().replace("-", "_")
    rows = [library_name for library_name in (*ROWS, *INSTEAD) if library_name.startswith(f"{library}:")]
    for library_name in rows:
        known_letters = library_name.partition(":")[2].lower()
        if letters in {known_letters, known_letters.removesuffix("loss")}:
            if library_name in INSTEAD:
                raise InputError(f"loss {library_name}: no built-in loss of this form; {INSTEAD[library_name]}")
            return library_name, ROWS[library_name]
    message = nearest(f"loss of {library}", f"{library}:{class_name}", rows)
    raise InputError(f"{message} (its own code: --loss package.module:{class_name or 'Class'})")


def rename(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters under the names of the built-in loss.

    Raises:
        InputError: two of them are one parameter.

    Examples:
        >>> rename("ce:LambdaLoss", {"sigma": 2.0})
        {'scale': 2.0}
    """
    name, row = find_row(name)
    renamed: dict[str, Any] = {}
    for key, value in values.items():
        parameter = row.renamed.get(key, key)
        if parameter in renamed:
            raise InputError(f"parameter {parameter} of {name} is given twice")
        renamed[parameter] = value
    return renamed


def translate(name: str, values: Mapping[str, Any]) -> tuple[str, dict[str, Any], str | None]:
    """Return the built-in loss, its parameters, and the metric if it differs from the default of the built-in loss.

    Raises:
        InputError: a value without a built-in loss.

    Examples:
        >>> translate("pml:TripletMarginLoss", {"distance": "CosineSimilarity"})
        ('triplet', {}, 'cosine')
        >>> translate("ce:LambdaLoss", {"weighting_scheme": "LambdaRankScheme"})
        ('lambdaloss', {'scheme': 'lambdarank'}, None)
    """
    name, row = find_row(name)
    translated, metric = {}, None if isinstance(row.loss, str) else next(iter(row.loss))
    for key, value in rename(name, values).items():
        if key in row.fixed:
            if parameters.literal(value) != row.fixed[key]:
                raise InputError(f"{name}: {key} {value!r}, expected {row.fixed[key]!r}")
        elif key == row.similarity:
            word = getattr(value, "__name__", str(value)).rpartition(".")[2].lower()
            metric = METRICS.get(word, "")
            if not metric or (not isinstance(row.loss, str) and metric not in row.loss):
                expected = "cos_sim or dot_score" if isinstance(row.loss, str) else ", ".join(row.loss)
                raise InputError(f"{name}: {key} {word}, expected {expected}")
        elif key == "margin" and row.degrees:
            translated[key] = math.radians(parameters.convert(key, value, float))
        elif key == "directions":
            words = value.strip("()[] ").split(",") if isinstance(value, str) else value
            translated[key] = tuple(row.values.get(word.strip(" '\""), word.strip(" '\"")) for word in words)
        else:
            translated[key] = row.values.get(value, value) if isinstance(value, str) else value
    return row.loss if isinstance(row.loss, str) else row.loss[str(metric)], translated, metric


def read_instance(module: Any) -> tuple[str, dict[str, Any]] | None:
    """Return the name and the settings of a module of a library, or None if no row has all of them.

    A module with its own parameters, such as proxies, is not read.
    """
    name = f"{PACKAGES.get(type(module).__module__.partition('.')[0])}:{type(module).__name__}"
    row = ROWS.get(name)
    trained = row is not None and list(getattr(module, "parameters", list)())
    if row is None or trained or getattr(module, "embedding_regularizer", None) is not None:
        return None
    keys = {*row.defaults, *row.renamed, *row.fixed, *parameters.INVERSE, "directions"}
    kinds = (int, float, str, tuple)
    settings = {key: getattr(module, key) for key in keys if isinstance(getattr(module, key, None), kinds)}
    if parameters.INVERSE.keys() <= settings.keys():  # one is computed from the other
        settings.pop("temperature" if "scale" in row.defaults else "scale")
    similarity = getattr(module, row.similarity, None) if row.similarity else None
    if row.similarity == "distance" and similarity is not None:
        distance = type(similarity).__name__, similarity.power, bool(similarity.normalize_embeddings)
        similarity = DISTANCES.get(distance, "") if getattr(similarity, "p", 2) == 2 else ""
    return name, settings | ({} if similarity is None else {row.similarity: similarity})
