"""Checkpoints of open_clip (`epoch_K.pt`) and of OpenAI's CLIP with a vision transformer, from shapes alone."""

import gzip
import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from cocos.base import reading
from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint, encoders
from cocos.checkpoints.files import File, state_dicts
from cocos.checkpoints.formats.huggingface import CLIP_MEAN, CLIP_STD, scale_and_bias, trained
from cocos.checkpoints.transformers import filled

TEXT = {"positional_embedding", "token_embedding.weight", "ln_final.weight", "text_projection", "logit_scale"}
# Names in a vision transformer that CLIP does not have: scaled layers, pooling by attention, a tower of timm.
OTHER_LAYERS = re.compile(r"visual\.(trunk|attn_pool|head)\.|.*\.ls_[12]\.|visual\.layer\d")
COMPUTED = ("attn_mask", "input_resolution", "context_length", "vocab_size")  # names of numbers that are no weights
BLOCK = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
    "attn.out_proj": "self_attn.out_proj",
}
PLAIN = {
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.ln_pre.weight": "vision_model.pre_layrnorm.weight",
    "visual.ln_pre.bias": "vision_model.pre_layrnorm.bias",
    "visual.ln_post.weight": "vision_model.post_layernorm.weight",
    "visual.ln_post.bias": "vision_model.post_layernorm.bias",
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "ln_final.weight": "text_model.final_layer_norm.weight",
    "ln_final.bias": "text_model.final_layer_norm.bias",
    "logit_scale": "logit_scale",
}
HEAD = 64  # width of an attention head
SIXTEEN_HEADS = {1280, 1408, 1664, 1792}  # widths of the image towers (H, g, bigG, e) whose heads are wider
VOCABULARY = 49408  # tokens of CLIP
MERGES = "bpe_simple_vocab_16e6.txt.gz"  # merges of its tokenizer, a file of the libraries `open_clip` and `clip`
MAX_MERGES, MAX_PARAMETERS = 2**23, 2**16  # bytes of the merges, unpacked, and of the file of parameters of a run


def _state(file: File) -> dict[str, Tensor] | None:
    """The weights of both towers; None where the file has none of CLIP."""
    for found in state_dicts(file.content) if file.is_torch or file.kind == "safetensors" else ():
        if found.tensors.keys() >= TEXT and any(name.startswith("visual.") for name in found.tensors):
            return found.tensors
    return None


def recognises(file: File) -> bool:
    """The text tower of CLIP under its names, and an image tower `visual.`."""
    return _state(file) is not None


def read(file: File, data=None) -> Checkpoint:
    """Read both towers; sizes are those of the weights.

    Images are prepared as open_clip does for validation, with the mean and deviation of OpenAI's images. A text is not
    mended (`ftfy`) before it is cut into tokens, which changes nothing in text that is intact.
    """
    state = {name: value for name, value in _state(file).items() if name not in COMPUTED}
    scale, bias = scale_and_bias(state, file.path)
    run, where = _run(file.path), file.path
    other = next((name for name in state if OTHER_LAYERS.match(name)), None)
    config = None if other else _configuration(where, state)
    quick, notes = _quick(file, run)
    files, origin = _tokenizer(where) if len(state["token_embedding.weight"]) == VOCABULARY else (None, None)
    if files is None:
        notes.append(f"images alone can be encoded: copy {MERGES} of open_clip beside the file, or install open_clip")

    def encoder() -> nn.Module:
        if config is None:
            raise InputError(f"{where}: its image tower has {other}, which is not built; encode it yourself (--model)")
        return _build(config | {"quick": quick}, files, state)

    size = {side: sum(v.numel() for k, v in state.items() if k.startswith("visual.") == side) for side in (True, False)}
    name = run.get("model") or file.record.get("name")
    epoch = {key: file.record[key] for key in ("epoch",) if key in file.record}
    return Checkpoint(
        path=where,
        sha256=file.sha256,
        format="open_clip",
        contents={
            **epoch,
            **({} if name is None else {"name": str(name)[:200]}),
            "image tower": f"{_vision(config) if config else f'with {other}, not built'}, {size[True]} numbers",
            "text tower": f"transformer over {len(state['token_embedding.weight'])} tokens, {size[False]} numbers",
            "activation": "quick GELU" if quick else "GELU",
            "tokenizer": origin or "none found",
            "scale": scale,
            **({} if bias is None else {"bias": bias}),
        },
        encoder=encoder,
        settings=f"{quick} {origin}",
        **trained(scale, bias, sigmoid=run.get("siglip", str(bias is not None)) == "True"),
        notes=tuple(f"{where}: {note}" for note in notes),
    )


def _run(path: Path) -> dict[str, str]:
    """Parameters of the run that wrote the file: `params.txt`, in the folder above, a name and a value in each line."""
    for place in (path.parent / "params.txt", path.parent.parent / "params.txt"):
        if place.is_file() and place.stat().st_size <= MAX_PARAMETERS:
            with reading.stream(place) as stream:
                lines = stream.read(MAX_PARAMETERS).decode("utf-8", "replace").splitlines()
            pairs = (line.partition(": ") for line in lines)
            return {name: value for name, colon, value in pairs if colon}
    return {}


def _quick(file: File, run: dict[str, str]) -> tuple[bool, list[str]]:
    """Whether the activation is the quick one, which no shape tells, and what is to be said of it."""
    if run:
        names = f"{run.get('model')} {run.get('pretrained')}".lower()
        return run.get("force_quick_gelu") == "True" or "quickgelu" in names or "openai" in names, []
    if "quickgelu" in str(file.record.get("name")).lower() or "input_resolution" in (_state(file) or {}):
        return True, []
    return False, [
        "the file does not say its activation: GELU is taken, which open_clip trains with unless told otherwise"
    ]


def _layers(state: dict[str, Tensor], prefix: str) -> int:
    """Number of layers of a tower."""
    return len({name.removeprefix(prefix).partition(".")[0] for name in state if name.startswith(prefix)})


def _configuration(where: Path, state: dict[str, Tensor]) -> dict[str, Any]:
    """Sizes of both towers."""
    try:
        first, places = state["visual.conv1.weight"], len(state["visual.positional_embedding"]) - 1
        text, (width, joint) = state["token_embedding.weight"], state["text_projection"].shape
        inner = [state[f"{side}transformer.resblocks.0.mlp.c_fc.bias"].numel() for side in ("visual.", "")]
        patch, grid = first.shape[-1], round(places**0.5)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InputError(f"{where}: the towers of CLIP lack {str(error)[:100]}") from None
    if grid**2 != places or width % HEAD or first.shape[0] % HEAD or text.shape[1] != width:
        raise InputError(f"{where}: towers of width {first.shape[0]} and {width} on {places} patches are none of CLIP")
    return {
        "joint": joint,
        "vision": {
            "width": first.shape[0],
            "inner": inner[0],
            "layers": _layers(state, "visual.transformer.resblocks."),
        },
        "image": {"patch_size": patch, "image_size": patch * grid},
        "text": {"width": width, "inner": inner[1], "layers": _layers(state, "transformer.resblocks.")},
        "words": {"vocab_size": len(text), "max_position_embeddings": len(state["positional_embedding"])},
    }


def _vision(config: dict) -> str:
    """The image tower in words."""
    image, tower = config["image"], config["vision"]
    return (
        f"vision transformer, {tower['layers']} layers of {tower['width']}, patches of {image['patch_size']} pixels of "
        f"{image['image_size']}"
    )


def _build(config: dict, files: dict | None, state: dict[str, Tensor]) -> nn.Module:
    """Build the towers as those of transformers, which are the same functions under other names."""

    def tower(side: str) -> dict[str, Any]:
        sizes = config[side]
        wide = side == "vision" and sizes["width"] in SIXTEEN_HEADS
        return {
            "hidden_size": sizes["width"],
            "intermediate_size": sizes["inner"],
            "num_hidden_layers": sizes["layers"],
            "num_attention_heads": 16 if wide else sizes["width"] // HEAD,
            "hidden_act": "quick_gelu" if config["quick"] else "gelu",
        }

    words = config["words"]
    last = {"eos_token_id": words["vocab_size"] - 1, "bos_token_id": words["vocab_size"] - 2, "pad_token_id": 0}
    both = {
        "model_type": "clip",
        "projection_dim": config["joint"],
        "text_config": tower("text") | words | last,
        "vision_config": tower("vision") | config["image"],
    }
    side = config["image"]["image_size"]
    arguments = {
        "config": both,
        "files": files,
        "longest": words["max_position_embeddings"],
        "filled": False,
        "padding": 0,
        "resize": side,
        "crop": (side, side),
        "halves": "even",
        "mean": CLIP_MEAN,
        "std": CLIP_STD,
    }
    return filled(lambda: encoders.build("paired", arguments), "model", both, renamed(state))


def renamed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give the weights of open_clip the names that transformers has for them."""
    found = {"visual_projection.weight": state["visual.proj"].T, "text_projection.weight": state["text_projection"].T}
    for name, value in state.items():
        if name in PLAIN:
            found[PLAIN[name]] = value
            continue
        match = re.fullmatch(r"(visual\.)?transformer\.resblocks\.(\d+)\.(.+?)([._])(weight|bias)", name)
        if match is None:
            if name not in {"visual.proj", "text_projection", "logit_bias"}:
                found[name] = value  # refused by name, as no part of the model
            continue
        side, row, part, _, what = match.groups()
        place = f"{'vision' if side else 'text'}_model.encoder.layers.{row}"
        if part == "attn.in_proj":
            for letter, third in zip("qkv", value.chunk(3), strict=True):
                found[f"{place}.self_attn.{letter}_proj.{what}"] = third
        else:
            found[f"{place}.{BLOCK.get(part, part)}.{what}"] = value
    return found


def _tokenizer(path: Path) -> tuple[dict[str, str] | None, str | None]:
    """Files of CLIP's tokenizer from merges beside the file or in an installed library, and where they are from."""
    places = [(path.parent, "beside the file")]
    for name in ("open_clip", "clip"):
        spec = find_spec(name)  # looks for it and imports nothing
        if spec is not None and spec.origin is not None:
            places.append((Path(spec.origin).parent, f"of the library {name}"))
    for folder, origin in places:
        if (place := folder / MERGES).is_file():
            with reading.stream(place) as packed, gzip.open(packed, "rt", encoding="utf-8") as stream:
                lines = stream.read(MAX_MERGES).split("\n")
            merges = lines[1 : VOCABULARY - 2 * 256 - 2 + 1]
            # The tokens: bytes as letters, printable ones first; bytes that end a word; merges; start and end.
            printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
            letters = [chr(byte) for byte in printable] + [chr(256 + row) for row in range(256 - len(printable))]
            tokens = [*letters, *(f"{letter}</w>" for letter in letters), *(merge.replace(" ", "") for merge in merges)]
            vocabulary = {token: row for row, token in enumerate([*tokens, "<|startoftext|>", "<|endoftext|>"])}
            return {"vocab.json": json.dumps(vocabulary), "merges.txt": "\n".join(merges)}, origin
    return None, None
