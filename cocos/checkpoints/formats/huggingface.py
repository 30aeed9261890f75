"""Folders of Hugging Face transformers: text encoders, CLIP and SigLIP; adapters of PEFT are refused."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint, encoders
from cocos.checkpoints.encoders._transformers import PAIRED_MODELS, TEXT_MODELS, filled
from cocos.checkpoints.files import File, Folder, weights
from cocos.checkpoints.formats import _text_folder

__all__ = ["read", "recognises"]

LIBRARIES = ("transformers",)

RESAMPLING = {2: "bilinear", 3: "bicubic"}  # numbers that Pillow gives them
# Of the images that CLIP was trained with; a preprocessor_config.json may say otherwise. Source: Radford et al. 2021.
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
SIGLIP_MEAN = SIGLIP_STD = (0.5, 0.5, 0.5)


def recognises(file: File | Folder) -> bool:
    """A folder with an adapter of PEFT, or the configuration of a text encoder, CLIP or SigLIP, without modules."""
    if file.kind != "folder" or "modules.json" in file:
        return False
    if _text_folder.ADAPTER in file:
        return True
    config = file.json("config.json") if "config.json" in file else None
    return isinstance(config, dict) and config.get("model_type") in TEXT_MODELS | PAIRED_MODELS


def read(file: Folder, data=None) -> Checkpoint:
    """Read a folder of transformers; the model is built when it encodes.

    Args:
        file: the folder.
        data: training data, found by the caller.

    Raises:
        InputError: an adapter, a configuration that names code, or files that are missing.
    """
    config, state = _text_folder.configuration(file), weights(file)
    if state is None:
        raise InputError(f"{file.path} has no model.safetensors or pytorch_model.bin; copy the weights too")
    return (_paired if config["model_type"] in PAIRED_MODELS else _text)(file, config, state)


def _text(file: Folder, config: dict, state: dict[str, Tensor]) -> Checkpoint:
    """Read a text encoder, whose tokens are averaged."""
    files, numbers = _text_folder.tokenizer_files(file), _numbers(state)
    longest = _text_folder.longest_text(config, files)
    arguments = {
        "transformer": config,
        "layers": [{"type": "Pooling", "modes": ["mean"]}],
        "files": files,
        "longest": longest,
        "padding": _text_folder.padding(config),
    }

    def encoder() -> nn.Module:
        return filled(lambda: encoders.build("sentence", arguments), "transformer", config, state)

    training = _text_folder.trained(file)
    notes = (*training.notes, "its folder does not say how tokens are pooled: their mean is taken, and not normalised")
    return Checkpoint(
        path=file.path,
        sha256=file.sha256,
        format="huggingface",
        contents={
            "text tower": f"{config['model_type']}, tokens of {_text_folder.width(config)} numbers, {numbers} numbers",
            "pooling": "mean, assumed",
            "longest text": f"{longest} tokens" if longest else "no limit",
            **training.more,
        },
        encoder=encoder,
        settings="",
        **training.loss,
        notes=tuple(f"{file.path}: {note}" for note in notes),
    )


def _numbers(state: dict[str, Tensor], prefix: str = "") -> int:
    """Numbers of the tensors whose names begin in one way."""
    return sum(value.numel() for key, value in state.items() if key.startswith(prefix))


def scale_and_bias(state: dict[str, Tensor], where: Any) -> tuple[float | None, float | None]:
    """The learned scale, exp(logit_scale), and bias of the scores; None where the file has none.

    Args:
        state: weights of both towers.
        where: the file, for the sentence.

    Raises:
        InputError: they are no finite numbers.
    """
    found = []
    for name in ("logit_scale", "logit_bias"):
        value = state.get(name)
        if value is not None and (value.numel() != 1 or not torch.isfinite(value).all() or abs(value.item()) > 100):
            raise InputError(f"{where}: {name} is no number of -100 to 100")
        found.append(None if value is None else value.item())
    return None if found[0] is None else math.exp(found[0]), found[1]


def trained(scale: float | None, bias: float | None, *, sigmoid: bool) -> dict[str, Any]:
    """The loss of a model with two towers and its parameters, as fields of `Checkpoint`.

    Args:
        scale: of the scores, as learned; None: not recorded.
        bias: added to the scaled scores; None: not recorded.
        sigmoid: whether it was trained with SigLIP's loss; otherwise with NT-Xent, for which a bias has no meaning.
    """
    numbers = {} if scale is None else {"ntxent": {"temperature": 1 / scale}}
    if scale is not None and sigmoid:
        numbers["siglip"] = {"scale": scale} | ({} if bias is None else {"bias": bias})
    return {"recorded": numbers, "trained_with": "siglip" if sigmoid else "ntxent"}


def _paired(file: Folder, config: dict, state: dict[str, Tensor]) -> Checkpoint:
    """Read CLIP or SigLIP."""
    siglip, notes = config["model_type"] == "siglip", []
    text, vision = ({} if config.get(key) is None else config[key] for key in ("text_config", "vision_config"))
    if not isinstance(text, dict) or not isinstance(vision, dict):
        raise InputError(f"{file.path / 'config.json'}: text_config and vision_config are no dictionaries")
    try:
        files = _text_folder.tokenizer_files(file)
    except InputError as error:
        files = None
        notes.append(f"images alone can be encoded: {error}")
    longest = text.get("max_position_embeddings", 64 if siglip else 77)
    arguments = {
        "config": config,
        "files": files,
        "longest": longest,
        "filled": siglip,
        "padding": text.get("pad_token_id", 1) if siglip else 0,
        **_images(file, vision, siglip),
    }

    def encoder() -> nn.Module:
        return filled(lambda: encoders.build("paired", arguments), "model", config, state)

    scale, bias = scale_and_bias(state, file.path)
    return Checkpoint(
        path=file.path,
        sha256=file.sha256,
        format="huggingface",
        contents={
            "image tower": f"{config['model_type']}, {_numbers(state, 'vision_model.')} numbers",
            "text tower": f"{config['model_type']}, {_numbers(state, 'text_model.')} numbers",
            "longest text": f"{longest} tokens",
            "scale": scale,
            **({"bias": bias} if bias is not None else {}),
        },
        encoder=encoder,
        settings="",
        **trained(scale, bias, sigmoid=siglip),
        notes=tuple(f"{file.path}: {note}" for note in notes),
    )


def _images(file: Folder, vision: dict, siglip: bool) -> dict[str, Any]:
    """How images are prepared, from `preprocessor_config.json` where there is one."""
    about = file.json("preprocessor_config.json") if "preprocessor_config.json" in file else {}
    about = about if isinstance(about, dict) else {}
    side = vision.get("image_size", 224)
    size = about.get("size", {"height": side, "width": side} if siglip else {"shortest_edge": side})
    crop = about.get("crop_size", side) if about.get("do_center_crop", not siglip) else None
    if (resampling := RESAMPLING.get(about.get("resample", 3))) is None:
        raise InputError(
            f"{file.path / 'preprocessor_config.json'}: resample {about['resample']!r}, expected "
            f"{' or '.join(f'{number} ({name})' for number, name in RESAMPLING.items())}"
        )
    return {
        "resize": _size(file, size) if about.get("do_resize", True) else None,
        "crop": None if crop is None else _pair(_size(file, crop)),
        "mean": about.get("image_mean", SIGLIP_MEAN if siglip else CLIP_MEAN),
        "std": about.get("image_std", SIGLIP_STD if siglip else CLIP_STD),
        "resampling": resampling,
    }


def _size(file: Folder, size: Any) -> int | tuple[int, int]:
    """The shorter side of an image, or its height and width."""
    if isinstance(size, dict):
        size = size.get("shortest_edge") or (size.get("height"), size.get("width"))
    if isinstance(size, int) or (isinstance(size, tuple) and all(isinstance(each, int) for each in size)):
        return size
    raise InputError(f"{file.path / 'preprocessor_config.json'}: size {size!r}, expected pixels")


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size
