"""Losses of sentence-transformers, as they are: `st:MultipleNegativesRankingLoss`, `st:CachedGISTEmbedLoss`."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from cocos import losses
from cocos.base.errors import InputError, nearest
from cocos.embeddings.scores import Pairs
from cocos.embeddings.sources import GTE_DIRECTIONS
from cocos.losses.angle import AnglE
from cocos.losses.contrastive import Contrastive
from cocos.losses.cosent import CoSENT
from cocos.losses.external import own
from cocos.losses.external.columns import BatchColumns
from cocos.losses.external.embedded import Embedded
from cocos.losses.external.library import Adapter, Library, Settings
from cocos.losses.external.traits import StatesTraits, Traits, traits_of
from cocos.losses.kl_distill import KLDistill
from cocos.losses.margin_mse import MarginMSE
from cocos.losses.mnrl import MNRL
from cocos.losses.triplet import Triplet
from cocos.losses.triplet_euclidean import TripletEuclidean

SIMILARITIES = {"cos_sim": "cosine", "dot_score": "dot"}
PAIRWISE_SIMILARITIES = {"pairwise_cos_sim": "cosine", "pairwise_dot_score": "dot", "pairwise_angle_sim": "angle"}
WAYS_OF_GTE = ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")
DIRECTIONS_BY_WAY = dict(zip(WAYS_OF_GTE, GTE_DIRECTIONS, strict=True))
OF_CROSS_ENCODERS = ("BinaryCrossEntropyLoss", "LambdaLoss", "RankNetLoss", "ListNetLoss", "ListMLELoss", "ADRMSELoss")
# Distance in the enums of the library -> scores of which it is a function; cosine distance is 1 less the cosine.
DISTANCES = {"COSINE": "cosine", "COSINE_DISTANCE": "cosine", "EUCLIDEAN": "euclidean"}
DISTANCES_OF = {"TripletDistanceMetric": ("COSINE", "EUCLIDEAN"), "SiameseDistanceMetric": ("COSINE_DISTANCE",)}
HARDENED_BY = {"all_negatives": "all", "in_batch_negatives": "in-batch", "hard_negatives": "hard"}
SYNONYMS_OF_SCALE = {"temperature": ("scale", lambda value: 1 / value)}


class RowsAsTheyAre(nn.Module):
    """The smallest model of sentence-transformers: it returns the rows that it is handed.

    Examples:
        >>> rows = torch.eye(2)
        >>> RowsAsTheyAre()({"sentence_embedding": rows})["sentence_embedding"] is rows
        True
    """

    max_seq_length = 1

    def forward(self, features: dict[str, Tensor], **_: Any) -> dict[str, Tensor]:
        """The same features."""
        return dict(features)

    def __getitem__(self, place: int) -> "RowsAsTheyAre":
        """Itself, for losses that look at the first part of a model."""
        return self


class RowsOfTheGuide(RowsAsTheyAre):
    """A guide that returns its own rows of the same texts."""

    def forward(self, features: dict[str, Tensor], **_: Any) -> dict[str, Tensor]:
        """Features with the rows of the guide as embeddings."""
        return {"sentence_embedding": features["guide"]}


def _parts() -> dict[str, Any]:
    return {"model": RowsAsTheyAre()}


def _guided_parts() -> dict[str, Any]:
    """A model and a guide of one tokenizer, of which the losses ask the class alone."""
    made: dict[str, Any] = {"model": RowsAsTheyAre(), "guide": RowsOfTheGuide()}
    base = getattr(importlib.import_module("transformers"), "PreTrainedTokenizerBase")  # noqa: B009
    tokenizer: Any = type("OneTokenizer", (base,), {"get_vocab": lambda _: {}})
    for each in made.values():
        each.tokenizer = tokenizer.__new__(tokenizer)
    return made


def _arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a constructor: functions by their names, directions as a tuple."""
    made = dict(given)
    if isinstance(name := made.get("similarity_fct"), str):
        known = SIMILARITIES | PAIRWISE_SIMILARITIES
        if name not in known:
            raise InputError(nearest("similarity_fct of sentence-transformers", name, known))
        made["similarity_fct"] = getattr(importlib.import_module("sentence_transformers.util"), name)
    if isinstance(ways := made.get("directions"), str):
        made["directions"] = tuple(each.strip(" '\"") for each in ways.strip("()[] ").split(",") if each.strip())
    return made


def _named(function: Any) -> str | None:
    """Scores of a similarity function of the library; None for any other."""
    return (SIMILARITIES | PAIRWISE_SIMILARITIES).get(getattr(function, "__name__", ""))


def _read(module: Any) -> Settings:
    """Settings of a ranking loss; a version without directions has one."""
    ways = tuple(getattr(module, "directions", ("query_to_doc",)))
    return {
        "scale": float(module.scale),
        "metric": _named(module.similarity_fct),
        "gather": bool(getattr(module, "gather_across_devices", False)),
        "directions": tuple(name for way, name in DIRECTIONS_BY_WAY.items() if way in ways),
        "partition": getattr(module, "partition_mode", "joint"),
        "hardness": getattr(module, "hardness_strength", 0.0) if getattr(module, "hardness_mode", None) else 0.0,
        "hardness_on": HARDENED_BY.get(getattr(module, "hardness_mode", None) or "", "all"),
    }


def _symmetric(module: Any) -> Settings:
    """Settings of the ranking loss of both directions, whose older versions do not name them."""
    return _read(module) | {
        "directions": (DIRECTIONS_BY_WAY["query_to_doc"], DIRECTIONS_BY_WAY["doc_to_query"]),
        "partition": "per_direction",
    }


def _refuses(settings: Settings) -> str | None:
    """Why a module with these settings cannot be run here; None: it can."""
    if settings["metric"] is None:
        known = ", ".join(SIMILARITIES | PAIRWISE_SIMILARITIES)
        return f"its similarity_fct is none of {known}; name its class, --loss package.module:Class"
    return "gather_across_devices: it gathers rows of other processes" if settings.get("gather") else None


def _features(given: BatchColumns) -> list[dict[str, Tensor]]:
    return [{"sentence_embedding": rows} for rows in (given.query, *given.documents)]


def _run(module: Any, given: BatchColumns, _: Settings) -> Any:
    return module(_features(given), None)


def _cached(module: Any, given: BatchColumns, _: Settings) -> Any:
    """The loss of a cached one, in one mini-batch, before its gradient is cached."""
    module.mini_batch_size = len(given.query)
    return module.calculate_loss([[rows] for rows in (given.query, *given.documents)])


def _ranking(settings: Settings) -> losses.Loss:
    names = ("scale", "directions", "partition", "hardness", "hardness_on")
    return MNRL(**{name: settings[name] for name in names})


def _guided(module: Any) -> Settings:
    """Settings of a loss whose guide leaves negatives out."""
    further = ((module.contrast_anchors, "query_to_query"), (module.contrast_positives, "doc_to_doc"))
    ways = ("query_to_doc", *(way for there, way in further if there))
    return {
        "scale": 1 / module.temperature,
        "metric": "cosine",
        "gather": bool(getattr(module, "gather_across_devices", False)),
        "directions": tuple(DIRECTIONS_BY_WAY[way] for way in ways),
        "margin": float(getattr(module, "margin", 0.0)),
        "strategy": getattr(module, "margin_strategy", "absolute"),
    }


def _guided_run(module: Any, given: BatchColumns, _: Settings) -> Any:
    """The loss with the rows of the guide beside those of the model."""
    if given.guide is None:
        raise InputError("st:GISTEmbedLoss reads rows of a guide, which are not there: guide_query, guide_candidate")
    features = [each | {"guide": rows} for each, rows in zip(_features(given), given.guide, strict=True)]
    return module(features, None)


def _guided_twin(settings: Settings) -> losses.Loss | None:
    if settings["strategy"] != "absolute":
        return None
    return MNRL(settings["scale"], settings["directions"], filter="guide", filter_margin=settings["margin"])


def _scored(module: Any) -> Settings:
    """Settings of a loss of a query's own documents, or of graded pairs."""
    found = {"metric": _named(module.similarity_fct)}
    numbers = ("scale", "temperature", "student_temperature", "teacher_temperature")
    return found | {name: getattr(module, name) for name in numbers if hasattr(module, name)}


def _of_distances(enum: str) -> dict[str, Any]:
    """Fields of an adapter of a loss of pairwise distances, whose functions are in an enum of the library."""

    def functions() -> dict[str, Any]:
        found = vars(library.imported(enum))
        return {name: found[name] for name in DISTANCES_OF[enum]}

    def arguments(given: dict[str, Any]) -> dict[str, Any]:
        made = dict(given)
        if isinstance(name := made.get("distance_metric"), str):
            named = name.rpartition(".")[2].upper()
            if named not in functions():
                raise InputError(nearest("distance_metric of sentence-transformers", named, functions()))
            made["distance_metric"] = functions()[named]
        return made

    def read(module: Any) -> Settings:
        metric = next((DISTANCES[name] for name, each in functions().items() if each is module.distance_metric), None)
        return {"metric": metric, "margin": float(getattr(module, "triplet_margin", None) or module.margin)}

    def refuses(settings: Settings) -> str | None:
        known = " or ".join(functions())
        return None if settings["metric"] else f"its distance_metric is not {known}; name its class"

    return {"arguments": arguments, "read": read, "refuses": refuses, "reads_teacher": False}


def _triplets(module: Any, given: BatchColumns, _: Settings) -> Any:
    if len(given.documents) != 2:
        raise InputError(
            f"st:TripletLoss takes one hard negative of each query, and here are {len(given.documents) - 1}"
        )
    return module.compute_loss_from_embeddings([given.query, *given.documents], None)


def _labelled_pairs(module: Any, given: BatchColumns, _: Settings) -> Any:
    """The loss of each query with its positive, label 1, and with each of its hard negatives, label 0; their sum."""
    labels = (given.query.new_full((len(given.query),), float(place == 0)) for place in range(len(given.documents)))
    found = (
        module.compute_loss_from_embeddings([given.query, each], label)
        for each, label in zip(given.documents, labels, strict=True)
    )
    return sum(found) / (1 if module.size_average else len(given.query))


@dataclass(frozen=True)
class OfCosineDistance(StatesTraits):
    """A loss of distances, on cosine distances, which are 1 less the cosine: a twin, not of the shelf."""

    loss: losses.Loss

    @property
    def traits(self) -> Traits:  # type: ignore[override]
        """Those of the loss, on cosines."""
        return replace(traits_of(self.loss), metric="cosine", spelling=f"{self.loss.name} of 1 - cosine")

    def __repr__(self) -> str:
        return f"{self.loss!r} of 1 - cosine"

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,)."""
        return self.loss(pairs.with_scores(pairs.scores - 1))

    def weight(self, pairs: Pairs) -> Tensor:
        """Weights, (Q, C)."""
        return self.loss.weight(pairs.with_scores(pairs.scores - 1))

    def unit(self, pairs: Pairs) -> Tensor:
        """Unit of the loss."""
        return self.loss.unit(pairs)


def _hardest(settings: Settings) -> losses.Loss:
    margins = {name: settings[name] for name in ("pos_margin", "neg_margin")}
    return cast(losses.Loss, losses.load("top_k(contrastive_cosine)", {"k": 1} | margins))


def _cached_guided(module: Any, given: BatchColumns, _: Settings) -> Any:
    """The loss of a cached one with the rows of the guide, in one mini-batch, before its gradient is cached."""
    if given.guide is None:
        raise InputError(
            "st:CachedGISTEmbedLoss reads rows of a guide, which are not there: guide_query, guide_candidate"
        )
    module.mini_batch_size = len(given.query)
    return module.calculate_loss([[rows] for rows in (given.query, *given.documents)], [[rows] for rows in given.guide])


class Labelled(nn.Module):
    """A loss of labelled rows: `forward(embeddings, labels)` in place of texts and labels.

    Args:
        loss: of the library, which reads distances of all rows by its `distance_metric`.
        cosine: it reads 1 - cosine; otherwise Euclidean distances, which are computed here, as distances: the library
            has them from inner products, of which the weights would be.
        of_triplets: it is a mean over the triplets that violate the margin, and is multiplied by their number here.
    """

    def __init__(self, loss: Any, cosine: bool, of_triplets: bool = False) -> None:
        super().__init__()
        self.loss, self.of_triplets = loss, of_triplets
        if not cosine:
            loss.distance_metric = lambda rows: torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The loss, ()."""
        found: Tensor = self.loss.compute_loss_from_embeddings([embeddings], labels)
        return found * self._violated(embeddings.detach(), labels) if self.of_triplets else found

    def _violated(self, embeddings: Tensor, labels: Tensor) -> int:
        distance, same = self.loss.distance_metric(embeddings), labels[:, None] == labels[None, :]
        query, positive = (same & ~torch.eye(len(labels), dtype=torch.bool, device=same.device)).nonzero(as_tuple=True)
        missing = distance[query, positive, None] - distance[query] + self.loss.triplet_margin
        return int(((missing > 0) & ~same[query]).sum())


# Losses of labelled rows -> loss of the shelf by metric and margin; None: none is.
LOSSES_OF_LABELS: dict[str, Callable[[str, float], losses.Loss] | None] = {
    "BatchAllTripletLoss": lambda metric, margin: (Triplet if metric == "cosine" else TripletEuclidean)(margin),
    "BatchHardTripletLoss": None,
    "BatchSemiHardTripletLoss": None,
    "BatchHardSoftMarginTripletLoss": None,
}


class OfSentences(Library):
    """The losses of the library: of pairs, by adapters, and of labelled rows, as modules of `embeddings, labels`."""

    def _labelled(self, spelling: str) -> str | None:
        name = spelling.partition(":")[2].strip().lower()
        return next(
            (each for each in LOSSES_OF_LABELS if name in {each.lower(), each.lower().removesuffix("loss")}), None
        )

    def canonical(self, spelling: str) -> str:
        """The name as the library writes it."""
        name = self._labelled(spelling)
        return f"{self.prefix}:{name}" if name else super().canonical(spelling)

    def counterpart(self, spelling: str) -> str | None:
        """Name of the loss of the shelf whose recorded parameters it takes."""
        return None if self._labelled(spelling) else super().counterpart(spelling)

    def known(self, spelling: str) -> set[str]:
        """Names of the parameters that it takes."""
        if (name := self._labelled(spelling)) is None:
            return super().known(spelling)
        margin = set() if name == "BatchHardSoftMarginTripletLoss" else {"margin"}
        return {"distance_metric", "unit"} | margin

    def qualified(self, spelling: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """The parameters under the library's own names."""
        return dict(parameters) if self._labelled(spelling) else super().qualified(spelling, parameters)

    def load(self, spelling: str, given: dict[str, Any]) -> Any:
        """A loss of the library."""
        if (name := self._labelled(spelling)) is None:
            return super().load(spelling, given)
        for key in given.keys() - self.known(spelling):
            raise InputError(nearest(f"parameter of {self.prefix}:{name}", key, self.known(spelling)))
        wanted = str(given.get("distance_metric", "euclidean")).rpartition(".")[2].lower().removesuffix("_distance")
        if wanted not in {"cosine", "euclidean"}:
            raise InputError(f"{self.prefix}:{name}: distance_metric {wanted!r}, expected cosine or euclidean")
        made = {key: float(given[key]) for key in ("margin",) if key in given}
        functions = self.imported("BatchHardTripletLossDistanceFunction")
        made["distance_metric"] = getattr(functions, f"{wanted}_distance")
        loss = self.imported(name)(RowsAsTheyAre(), **made)
        twin, margin = LOSSES_OF_LABELS[name], made.get("margin", 5.0)
        labelled = Labelled(loss, wanted == "cosine", of_triplets=twin is not None)
        hard = name.startswith("BatchHard")  # a mean over the queries, of one triplet each, whose weight is 1 at most
        unit = {"unit": given.get("unit", 1.0)} if hard or "unit" in given else {}
        found = cast(Embedded, own.of(labelled, f"{self.prefix}:{name}", unit))
        found = replace(
            found,
            traits=replace(found.traits, given={key: value for key, value in given.items() if key != "unit"}),
            reduction="mean" if hard else None,
        )
        if twin is None:
            return found
        return replace(found, twins=lambda metric: [twin(metric, margin)] if metric == wanted else [])


def _kl(settings: Settings) -> losses.Loss:
    first = float(settings["temperature"])
    own, other = (float(settings.get(f"{whose}_temperature") or first) for whose in ("student", "teacher"))
    return KLDistill(own, teacher_temperature=None if own == other else other)


def _adapter(name: str, **more: Any) -> Adapter:
    """An adapter that differs from that of the ranking losses by some fields."""
    usual: dict[str, Any] = {
        "run": _run,
        "read": _read,
        "twin": _ranking,
        "counterpart": "ntxent",
        "synonyms": SYNONYMS_OF_SCALE,
    }
    usual |= {"refuses": _refuses, "hard_negatives": True, "arguments": _arguments, "parts": _parts}
    usual |= {"transposed": (DIRECTIONS_BY_WAY["doc_to_doc"],)}
    return Adapter(name, **usual | more)


WITH_A_GUIDE: dict[str, Any] = {
    "run": _guided_run,
    "read": _guided,
    "twin": _guided_twin,
    "parts": _guided_parts,
    "column_by_column": True,
    "reads_teacher": True,
    "transposed": (),
    "synonyms": {"scale": ("temperature", lambda value: 1 / value)},
}
OWN_DOCUMENTS: dict[str, Any] = {
    "read": _scored,
    "own_documents": True,
    "run": lambda module, given, _: module(_features(given), given.teacher),
    "reads_teacher": True,
    "synonyms": {},
}
TRIPLETS = (
    OWN_DOCUMENTS
    | _of_distances("TripletDistanceMetric")
    | {
        "run": _triplets,
        "twin": lambda own: (Triplet if own["metric"] == "cosine" else TripletEuclidean)(own["margin"]),
    }
)
LABELLED_PAIRS = (
    OWN_DOCUMENTS
    | _of_distances("SiameseDistanceMetric")
    | {"run": _labelled_pairs, "twin": lambda own: OfCosineDistance(Contrastive(own["margin"]))}
)
OF_THE_BATCH: dict[str, Any] = {
    "run": lambda module, given, _: module.calculate_loss([[given.query], [given.documents[0]]]),
    "read": lambda module: {
        "metric": "cosine",
        "pos_margin": module.positive_margin,
        "neg_margin": module.negative_margin,
    },
    "twin": _hardest,
    "counterpart": None,
    "hard_negatives": False,
    "synonyms": {},
}
GRADED = OWN_DOCUMENTS | {
    "run": lambda module, given, _: module(_features(given), given.grades),
    "reads_teacher": False,
    "graded": True,
    "mean": False,
    "synonyms": SYNONYMS_OF_SCALE,
}


library = OfSentences(
    prefix="st",
    package="sentence_transformers",
    modules=("sentence_transformers.sentence_transformer.losses", "sentence_transformers.losses"),
    install="sentence-transformers",
    adapters=(
        _adapter("MultipleNegativesRankingLoss"),
        _adapter("CachedMultipleNegativesRankingLoss", run=_cached),
        _adapter("MultipleNegativesSymmetricRankingLoss", read=_symmetric),
        _adapter("CachedMultipleNegativesSymmetricRankingLoss", run=_cached, read=_symmetric),
        _adapter("GISTEmbedLoss", **WITH_A_GUIDE),
        _adapter("CachedGISTEmbedLoss", **WITH_A_GUIDE | {"run": _cached_guided}),
        _adapter("TripletLoss", **TRIPLETS),
        _adapter("ContrastiveLoss", **LABELLED_PAIRS),
        _adapter("MegaBatchMarginLoss", **OF_THE_BATCH),
        _adapter("MarginMSELoss", **OWN_DOCUMENTS, counterpart="margin_mse", twin=lambda _: MarginMSE()),
        _adapter("DistillKLDivLoss", **OWN_DOCUMENTS, counterpart="kl_distill", twin=_kl),
        _adapter("CoSENTLoss", **GRADED, counterpart="cosent", twin=lambda own: CoSENT(own["scale"])),
        _adapter("AnglELoss", **GRADED, counterpart="angle", twin=lambda own: AnglE(own["scale"])),
    ),
    unusable={
        "MatryoshkaLoss": "it adds up another loss over first dimensions; name that loss, with --dims for one of them",
        "Matryoshka2dLoss": "it adds up another loss over layers and first dimensions; name that loss, with --dims",
        "AdaptiveLayerLoss": "it calls another loss on every layer of a model; name that loss",
        "SoftmaxLoss": "it classifies pairs, so it has no negatives to count",
        "MSELoss": "it compares rows with those of a teacher, so it has no negatives to count",
        "EmbedDistillLoss": "it compares rows with those of a teacher, so it has no negatives to count",
        "DenoisingAutoEncoderLoss": "it decodes texts, so it has no negatives to count",
        "GlobalOrthogonalRegularizationLoss": "it regularises rows; name the loss beside it",
        "OnlineContrastiveLoss": "it keeps the hardest labelled pairs of a batch; st:ContrastiveLoss has all of them",
        **{name: f"it is a loss of cross-encoders: ce:{name}" for name in OF_CROSS_ENCODERS},
    },
)
canonical, known, qualified, load, of = library.canonical, library.known, library.qualified, library.load, library.of
