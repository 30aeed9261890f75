"""Losses of open_clip, as they are: `open_clip:ClipLoss`, `open_clip:SigLipLoss`."""

from typing import Any

from cocos import losses
from cocos.losses.external.columns import BatchColumns
from cocos.losses.external.library import Adapter, BothWays, Library, Settings
from cocos.losses.ntxent import NTXent
from cocos.losses.siglip import SigLIP

# Initial scale of CLIP, 1 / .07, and of SigLIP, with its bias: the defaults of open_clip's models and of its training.
CLIP_SCALE, SIGLIP_SCALE, SIGLIP_BIAS = 1 / 0.07, 10.0, -10.0
SYNONYMS_OF_LOGITS = {"temperature": ("logit_scale", lambda value: 1 / value), "scale": ("logit_scale", float)}


def _refuses(settings: Settings) -> str | None:
    """Why a module of several processes, or a scale, cannot be used; None: both can."""
    size, scale = settings["world_size"], settings["logit_scale"]
    if size != 1:
        return f"world_size {size}: it gathers rows of other processes; make it for one process"
    return None if scale is not None and scale > 0 else f"logit_scale {scale}, expected a number above 0"


def _read(module: Any) -> Settings:
    return {"world_size": getattr(module, "world_size", 1)}


def _run(module: Any, given: BatchColumns, settings: Settings) -> Any:
    """Rows of unit length, as open_clip's models return them, and the learned numbers of the model."""
    scale, bias = (None if settings[name] is None else given.query.new_tensor(settings[name])
                   for name in ("logit_scale", "logit_bias"))  # fmt: skip
    return module(given.query, given.documents[0], scale, bias)


def _clip(settings: Settings) -> losses.Loss:
    return BothWays(NTXent(1 / settings["logit_scale"]))


def _sigmoid(settings: Settings) -> losses.Loss:
    return SigLIP(settings["logit_scale"], settings["logit_bias"] or 0.0)


library = Library(
    prefix="open_clip",
    package="open_clip",
    modules=("open_clip.loss",),
    install="open_clip_torch",
    adapters=(
        Adapter(
            "ClipLoss",
            _run,
            _clip,
            counterpart="ntxent",
            read=_read,
            refuses=_refuses,
            call={"logit_scale": CLIP_SCALE, "logit_bias": None},
            scale="logit_scale",
            unit_rows=True,
            synonyms=SYNONYMS_OF_LOGITS,
        ),
        Adapter(
            "SigLipLoss",
            _run,
            _sigmoid,
            counterpart="siglip",
            read=_read,
            refuses=_refuses,
            call={"logit_scale": SIGLIP_SCALE, "logit_bias": SIGLIP_BIAS},
            scale="logit_scale",
            unit_rows=True,
            synonyms=SYNONYMS_OF_LOGITS | {"bias": ("logit_bias", float)},
        ),
    ),
    unusable={
        "CoCaLoss": "it adds a loss of captions to ClipLoss; name open_clip:ClipLoss for its contrastive part",
        "DistillClipLoss": "it adds the scores of a teacher to ClipLoss; name open_clip:ClipLoss for its own part",
    },
)
canonical, known, qualified, load, of = library.canonical, library.known, library.qualified, library.load, library.of
