"""Losses of lightly, as they are: `lightly:NTXentLoss`, `lightly:DCLLoss`, `lightly:DCLWLoss`."""

from typing import Any

from cocos import losses
from cocos.embeddings.sources import GTE_DIRECTIONS
from cocos.losses.dcl import DCL
from cocos.losses.dclw import DCLW
from cocos.losses.external.columns import BatchColumns
from cocos.losses.external.library import Adapter, BothWays, Library, Settings
from cocos.losses.ntxent import NTXent


def _read(module: Any) -> Settings:
    """Settings of a loss of two views: each row is set against the other view and its own."""
    bank = getattr(getattr(module, "memory_bank", None), "size", 0)
    return {
        "temperature": module.temperature,
        "sigma": getattr(getattr(module, "weight_fn", None), "keywords", {}).get("sigma"),
        "weighted": getattr(module, "weight_fn", None) is not None,
        "gather": bool(getattr(module, "gather_distributed", False)),
        "bank": bank if isinstance(bank, int) else bank[0],
        "directions": GTE_DIRECTIONS,
        "partition": "per_direction",
    }


def _refuses(settings: Settings) -> str | None:
    """Why a module with these settings cannot be run here; None: it can."""
    if settings["bank"]:
        return "memory_bank_size: it keeps rows of earlier batches, which a frozen model does not have"
    if settings["gather"]:
        return "gather_distributed: it gathers rows of other processes"
    own = settings["weighted"] and settings["sigma"] is None
    return (
        "weight_fn: weights of your own cannot be given here; name its class, --loss package.module:Class"
        if own
        else None
    )


def _run(module: Any, given: BatchColumns, _: Settings) -> Any:
    return module(given.query, given.documents[0])


def _adapter(name: str, counterpart: str, twin: Any) -> Adapter:
    return Adapter(
        name,
        _run,
        lambda settings: BothWays(twin(settings)),
        counterpart=counterpart,
        read=_read,
        refuses=_refuses,
        synonyms={"scale": ("temperature", lambda value: 1 / value)},
    )


def _dcl(settings: Settings) -> losses.Loss:
    return DCLW(settings["temperature"], settings["sigma"]) if settings["weighted"] else DCL(settings["temperature"])


library = Library(
    prefix="lightly",
    package="lightly",
    modules=("lightly.loss",),
    install="lightly",
    adapters=(
        _adapter("NTXentLoss", "ntxent", lambda settings: NTXent(settings["temperature"])),
        _adapter("DCLLoss", "dcl", _dcl),
        _adapter("DCLWLoss", "dclw", _dcl),
    ),
    unusable={
        "BarlowTwinsLoss": "it compares the dimensions of embeddings, so it has no negatives to count",
        "VICRegLoss": "it compares the dimensions of embeddings, so it has no negatives to count",
        "NegativeCosineSimilarity": "it has no negatives to count",
    },
)
canonical, known, qualified, load, of = library.canonical, library.known, library.qualified, library.load, library.of
