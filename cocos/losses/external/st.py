"""Losses of sentence-transformers, as they are: `st:MultipleNegativesRankingLoss`, `st:CachedGISTEmbedLoss`."""

import importlib
from typing import Any

from torch import Tensor, nn

from cocos import losses
from cocos.base.errors import InputError, nearest
from cocos.embeddings.sources import DIRECTIONS
from cocos.losses.angle import AnglE
from cocos.losses.cosent import CoSENT
from cocos.losses.external.columns import BatchColumns
from cocos.losses.external.library import Adapter, Library, Settings
from cocos.losses.kl_distill import KLDistill
from cocos.losses.margin_mse import MarginMSE
from cocos.losses.mnrl import MNRL

SIMILARITIES = {"cos_sim": "cosine", "dot_score": "dot"}
PAIRWISE_SIMILARITIES = {"pairwise_cos_sim": "cosine", "pairwise_dot_score": "dot", "pairwise_angle_sim": "angle"}
DIRECTIONS_BY_WAY = dict(zip(("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc"), DIRECTIONS, strict=True))
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


def _ranking(settings: Settings) -> losses.ClosedForm:
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


def _guided_twin(settings: Settings) -> losses.ClosedForm | None:
    if settings["strategy"] != "absolute":
        return None
    return MNRL(settings["scale"], settings["directions"], filter="guide", filter_margin=settings["margin"])


def _scored(module: Any) -> Settings:
    """Settings of a loss of a query's own documents, or of graded pairs."""
    found = {"metric": _named(module.similarity_fct)}
    numbers = ("scale", "temperature", "student_temperature", "teacher_temperature")
    return found | {name: getattr(module, name) for name in numbers if hasattr(module, name)}


def _distilled(module: Any, given: BatchColumns, _: Settings) -> Any:
    return module(_features(given), given.teacher)


def _compared(module: Any, given: BatchColumns, _: Settings) -> Any:
    return module(_features(given), given.grades)


def _kl(settings: Settings) -> losses.ClosedForm:
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
    "run": _distilled,
    "reads_teacher": True,
    "synonyms": {},
}
GRADED = OWN_DOCUMENTS | {
    "run": _compared,
    "reads_teacher": False,
    "graded": True,
    "mean": False,
    "synonyms": SYNONYMS_OF_SCALE,
}


library = Library(
    prefix="st",
    package="sentence_transformers",
    modules=("sentence_transformers.losses", "sentence_transformers.sentence_transformer.losses"),
    install="sentence-transformers",
    adapters=(
        _adapter("MultipleNegativesRankingLoss"),
        _adapter("CachedMultipleNegativesRankingLoss", run=_cached),
        _adapter("MultipleNegativesSymmetricRankingLoss", read=_symmetric),
        _adapter("CachedMultipleNegativesSymmetricRankingLoss", run=_cached, read=_symmetric),
        _adapter("GISTEmbedLoss", **WITH_A_GUIDE),
        _adapter("MarginMSELoss", **OWN_DOCUMENTS, counterpart="margin_mse", twin=lambda _: MarginMSE()),
        _adapter("DistillKLDivLoss", **OWN_DOCUMENTS, counterpart="kl_distill", twin=_kl),
        _adapter("CoSENTLoss", **GRADED, counterpart="cosent", twin=lambda own: CoSENT(own["scale"])),
        _adapter("AnglELoss", **GRADED, counterpart="angle", twin=lambda own: AnglE(own["scale"])),
    ),
    unusable={
        "MatryoshkaLoss": "it calls another loss on shorter rows; name that loss, on rows that are cut to one width",
        "Matryoshka2dLoss": "it calls another loss on shorter rows and layers; name that loss",
        "AdaptiveLayerLoss": "it calls another loss on every layer of a model; name that loss",
        "SoftmaxLoss": "it classifies pairs, so it has no negatives to count",
        "MSELoss": "it compares rows with those of a teacher, so it has no negatives to count",
        "EmbedDistillLoss": "it compares rows with those of a teacher, so it has no negatives to count",
        "DenoisingAutoEncoderLoss": "it decodes texts, so it has no negatives to count",
        "GlobalOrthogonalRegularizationLoss": "it regularises rows; name the loss beside it",
    },
)
canonical, known, qualified, load, of = library.canonical, library.known, library.qualified, library.load, library.of
