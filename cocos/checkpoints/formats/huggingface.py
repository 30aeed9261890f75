"""Folders of Hugging Face transformers: text encoders, CLIP and SigLIP; adapters of PEFT are refused."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint, encoders, recorded
from cocos.checkpoints.files import File
from cocos.checkpoints.state_dicts import weights
from cocos.checkpoints.tokenizer import tokenizer_files
from cocos.checkpoints.transformers import PAIRED_MODELS, REFUSED, TEXT_MODELS, filled

ADAPTER = "adapter_config.json"  # of a folder of PEFT
NO_LIMIT = 10**9  # tokens; folders write 1e30 where a tokenizer has no limit
OFFSET_MODELS = frozenset({
    "camembert",
    "mpnet",
    "roberta",
    "xlm-roberta",
    "xlm-roberta-xl",
})  # skip positions to padding
LIBRARIES = ("transformers",)

RESAMPLING = {2: "bilinear", 3: "bicubic"}  # numbers that Pillow gives them
# Of the images that CLIP was trained with; a preprocessor_config.json may say otherwise. Source: Radford et al. 2021.
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
SIGLIP_MEAN = SIGLIP_STD = (0.5, 0.5, 0.5)


def configuration(folder: File, within: str = "") -> dict[str, Any]:
    """Read the configuration of a model, `config.json` of a folder or of the folder `within` it."""
    _refuse_adapter(folder, within)
    if f"{within}config.json" not in folder:
        raise InputError(f"{folder.path / within} has no config.json; copy all files of the model")
    found = folder.json(f"{within}config.json")
    if not isinstance(found, dict):
        raise InputError(f"{folder.path / within}config.json is no dictionary")
    for key, reason in REFUSED.items():
        if found.get(key):
            raise InputError(f"{folder.path / within / 'config.json'} has {key} {str(found[key])[:80]}: {reason}")
    return found


def _refuse_adapter(folder: File, within: str) -> None:
    """Refuse an adapter of PEFT, which is a change of a model and no model."""
    model = any(name.startswith((f"{within}model", f"{within}pytorch_model")) for name in folder.names)
    if f"{within}{ADAPTER}" not in folder or model:
        return
    about = folder.json(f"{within}{ADAPTER}")
    base = about.get("base_model_name_or_path") if isinstance(about, dict) else None
    raise InputError(
        f"{folder.path} holds an adapter of PEFT, a change of {str(base)[:100]} and no model: merge them, "
        "model = PeftModel.from_pretrained(BASE, FOLDER).merge_and_unload(); model.save_pretrained(NEW), and save "
        "the tokenizer beside it, tokenizer.save_pretrained(NEW); then name NEW"
    )


def text_model(folder: File, within: str = "") -> dict[str, Any]:
    """Read the configuration of a text encoder."""
    found = configuration(folder, within)
    if (name := found.get("model_type")) not in TEXT_MODELS:
        raise InputError(
            f"{folder.path / within / 'config.json'} has model_type {name!r}, expected one of "
            f"{', '.join(sorted(TEXT_MODELS))}; encode it with a function of your own (--model file.py:function)"
        )
    return found


def longest_text(config: dict, files: dict, told: Any = None) -> int | None:
    """Tokens that a text is cut to: what the folder says, within the positions of the model; None for no limit."""
    positions = config.get("max_position_embeddings", config.get("n_positions"))
    positions = positions if isinstance(positions, int) and positions > 0 else None
    if positions is not None and config.get("model_type") in OFFSET_MODELS:
        positions -= config.get("pad_token_id", 1) + 1
    if told is None:
        told = (files.get("tokenizer_config.json") or {}).get("model_max_length")
    if told is not None and (not isinstance(told, int | float) or told < 1):
        raise InputError(f"longest text: {str(told)[:40]} tokens, expected a whole number above 0")
    limits = [int(each) for each in (told, positions) if each is not None and each < NO_LIMIT]
    return min(limits, default=None)


def padding(config: dict) -> int:
    """Id of the token that short texts are filled up with; no vector depends on it."""
    found = config.get("pad_token_id")
    return found if isinstance(found, int) and 0 <= found else 0


def token_width(config: dict) -> int | None:
    """Numbers in the vector of a token; None where the configuration does not say."""
    return next((config[key] for key in ("hidden_size", "dim", "d_model", "n_embd") if key in config), None)


def recognises(file: File) -> bool:
    """A folder with an adapter of PEFT, or the configuration of a text encoder, CLIP or SigLIP, without modules."""
    if file.kind != "folder" or "modules.json" in file:
        return False
    if ADAPTER in file:
        return True
    config = file.json("config.json") if "config.json" in file else None
    return isinstance(config, dict) and config.get("model_type") in TEXT_MODELS | PAIRED_MODELS


def read(file: File, data=None) -> Checkpoint:
    """Read a folder of transformers; the model is built when it encodes."""
    config, state = configuration(file), weights(file)
    if state is None:
        raise InputError(f"{file.path} has no model.safetensors or pytorch_model.bin; copy the weights too")
    return (_paired if config["model_type"] in PAIRED_MODELS else _text)(file, config, state)


def _text(file: File, config: dict, state: dict[str, Tensor]) -> Checkpoint:
    """Read a text encoder, whose tokens are averaged."""
    files, numbers = tokenizer_files(file), _numbers(state)
    longest = longest_text(config, files)
    arguments = {
        "transformer": config,
        "layers": [{"type": "Pooling", "modes": ["mean"]}],
        "files": files,
        "longest": longest,
        "padding": padding(config),
    }

    def encoder() -> nn.Module:
        return filled(lambda: encoders.build("sentence", arguments), "transformer", config, state)

    training = recorded.read_folder(file.path)
    notes = (*training.notes, "its folder does not say how tokens are pooled: their mean is taken, and not normalised")
    return Checkpoint.of(
        file,
        "huggingface",
        {
            "text tower": f"{config['model_type']}, tokens of {token_width(config)} numbers, {numbers} numbers",
            "pooling": "mean, assumed",
            "longest text": f"{longest} tokens" if longest else "no limit",
            **recorded.describe_training(file.path),
        },
        encoder=encoder,
        settings="",
        **training.fields(),
        notes=tuple(f"{file.path}: {note}" for note in notes),
    )


def _numbers(state: dict[str, Tensor], prefix: str = "") -> int:
    """Numbers of the tensors whose names begin in one way."""
    return sum(value.numel() for key, value in state.items() if key.startswith(prefix))


def scale_and_bias(state: dict[str, Tensor], where: Any) -> tuple[float | None, float | None]:
    """The learned scale, exp(logit_scale), and bias of the scores; None where the file has none."""
    found = []
    for name in ("logit_scale", "logit_bias"):
        value = state.get(name)
        if value is not None and (value.numel() != 1 or not torch.isfinite(value).all() or abs(value.item()) > 100):
            raise InputError(f"{where}: {name} is no number of -100 to 100")
        found.append(None if value is None else value.item())
    return None if found[0] is None else math.exp(found[0]), found[1]


def trained(scale: float | None, bias: float | None, *, sigmoid: bool) -> dict[str, Any]:
    """The loss of a model with two towers and its parameters, as fields of `Checkpoint`; None is not recorded.

    It is SigLIP's where it is a `sigmoid`; otherwise NT-Xent, for which a bias has no meaning.
    """
    numbers = {} if scale is None else {"ntxent": {"temperature": 1 / scale}}
    if scale is not None and sigmoid:
        numbers["siglip"] = {"scale": scale} | ({} if bias is None else {"bias": bias})
    return {"recorded": numbers, "trained_with": "siglip" if sigmoid else "ntxent"}


def _paired(file: File, config: dict, state: dict[str, Tensor]) -> Checkpoint:
    """Read CLIP or SigLIP."""
    siglip, notes = config["model_type"] == "siglip", []
    text, vision = ({} if config.get(key) is None else config[key] for key in ("text_config", "vision_config"))
    if not isinstance(text, dict) or not isinstance(vision, dict):
        raise InputError(f"{file.path / 'config.json'}: text_config and vision_config are no dictionaries")
    try:
        files = tokenizer_files(file)
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
    return Checkpoint.of(
        file,
        "huggingface",
        {
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


def _images(file: File, vision: dict, siglip: bool) -> dict[str, Any]:
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
    crop = None if crop is None else _size(file, crop)
    return {
        "resize": _size(file, size) if about.get("do_resize", True) else None,
        "crop": (crop, crop) if isinstance(crop, int) else crop,
        "mean": about.get("image_mean", SIGLIP_MEAN if siglip else CLIP_MEAN),
        "std": about.get("image_std", SIGLIP_STD if siglip else CLIP_STD),
        "resampling": resampling,
    }


def _size(file: File, size: Any) -> int | tuple[int, int]:
    """The shorter side of an image, or its height and width."""
    if isinstance(size, dict):
        size = size.get("shortest_edge") or (size.get("height"), size.get("width"))
    if isinstance(size, int) or (isinstance(size, tuple) and all(isinstance(each, int) for each in size)):
        return size
    raise InputError(f"{file.path / 'preprocessor_config.json'}: size {size!r}, expected pixels")
