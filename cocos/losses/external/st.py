"""Losses of sentence-transformers, as they are: `st:MultipleNegativesRankingLoss`, `st:CachedGISTEmbedLoss`."""

import importlib
from typing import Any

from torch import Tensor, nn

from cocos import losses
from cocos.errors import InputError, nearest
from cocos.losses.external.adapter import Adapter, Settings
from cocos.losses.external.columns import BatchColumns
from cocos.losses.external.library import Library
from cocos.losses.mnrl import MNRL
from cocos.sources import DIRECTIONS

SIMILARITIES = {"cos_sim": "cosine", "dot_score": "dot"}
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


def _parts() -> dict[str, Any]:
    return {"model": RowsAsTheyAre()}


def _prepared(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a constructor: functions by their names, directions as a tuple.

    Raises:
        InputError: an unknown similarity.
    """
    made = dict(given)
    if isinstance(name := made.get("similarity_fct"), str):
        if name not in SIMILARITIES:
            raise InputError(nearest("similarity_fct of sentence-transformers", name, SIMILARITIES))
        made["similarity_fct"] = getattr(importlib.import_module("sentence_transformers.util"), name)
    if isinstance(ways := made.get("directions"), str):
        made["directions"] = tuple(each.strip(" '\"") for each in ways.strip("()[] ").split(",") if each.strip())
    return made


def _named(function: Any) -> str | None:
    """Scores of a similarity function of the library; None for any other."""
    return SIMILARITIES.get(getattr(function, "__name__", ""))


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
        return f"its similarity_fct is none of {', '.join(SIMILARITIES)}; name its class, --loss package.module:Class"
    return "gather_across_devices: it gathers rows of other processes" if settings["gather"] else None


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


def _ranked(name: str, **more: Any) -> Adapter:
    options = {"run": _run, "read": _read} | more
    return Adapter(
        name,
        twin=_ranking,
        counterpart="ntxent",
        refuses=_refuses,
        columns=True,
        turned=(DIRECTIONS_BY_WAY["doc_to_doc"],),
        synonyms=SYNONYMS_OF_SCALE,
        prepared=_prepared,
        parts=_parts,
        supplied=("model",),
        **options,
    )


library = Library(
    prefix="st",
    package="sentence_transformers",
    modules=("sentence_transformers.losses", "sentence_transformers.sentence_transformer.losses"),
    install="sentence-transformers",
    adapters=(
        _ranked("MultipleNegativesRankingLoss"),
        _ranked("CachedMultipleNegativesRankingLoss", run=_cached),
        _ranked("MultipleNegativesSymmetricRankingLoss", read=_symmetric),
        _ranked("CachedMultipleNegativesSymmetricRankingLoss", run=_cached, read=_symmetric),
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
canonical, known, qualified, load = library.canonical, library.known, library.qualified, library.load
