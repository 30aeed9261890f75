"""Folders of sentence-transformers and transformers: text encoders, CLIP and SigLIP, built by these libraries.

Code and pickles in the folder of any library are refused before.
"""

import importlib
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from cocos.base.errors import InputError, UnsafeFile
from cocos.checkpoints import model_card
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import File, weight_files
from cocos.checkpoints.recorded import Recorded

PAIRED = ("clip", "siglip")  # `model_type` of models with two towers
# Activations of a dense layer. sentence-transformers silently uses Tanh for one that it does not trust.
ACTIVATIONS = ("GELU", "Identity", "LeakyReLU", "ReLU", "Sigmoid", "SiLU", "Tanh")
ITEMS_AT_ONCE = 64
# Keys with which a folder requests its own code.
CODE_KEYS = {"auto_map", "trust_remote_code", "custom_pipelines"}
# Files without settings: tokens and their numbers.
TOKENS = ("tokenizer.json", "vocab.json", "added_tokens.json", ".index.json")


class TextEncoder(nn.Module):
    """A sentence-transformers model with the query and document prompts in its folder."""

    kinds, name = ("text",), "sentence-transformers"  # which sorts the texts of a batch by length

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def encode(self, items: Sequence[str], kind: str, side: str) -> Tensor:
        """Encode texts to (n, D)."""
        encode = self.model.encode_query if side == "query" else self.model.encode_document
        device = str(next(self.model.parameters()).device)
        options = {"convert_to_tensor": True, "show_progress_bar": False, "batch_size": ITEMS_AT_ONCE}
        return encode(list(items), device=device, **options)


class PairedEncoder(nn.Module):
    """CLIP or SigLIP of transformers; vectors have length 1."""

    kinds, items_at_once = ("image", "text"), ITEMS_AT_ONCE

    def __init__(self, model: Any, tokenizer: Any, processor: Any, kind: str):
        super().__init__()
        self.model, self.tokenizer, self.processor, self.name = model, tokenizer, processor, kind
        self.length = model.config.text_config.max_position_embeddings

    def encode(self, items: Any, kind: str, side: str) -> Tensor:
        """Encode texts, or uint8 images (1 or 3, height, width), to (n, D)."""
        device = next(self.model.parameters()).device
        if kind == "text":
            # SigLIP reads the padding of every text up to the full length, without a mask.
            padding = "max_length" if self.name == "siglip" else True
            options = {"truncation": True, "max_length": self.length, "return_tensors": "pt"}
            batch = self.tokenizer(list(items), padding=padding, **options).to(device)
            batch = {"input_ids": batch["input_ids"]} if self.name == "siglip" else batch
            output = self.model.get_text_features(**batch)
        else:
            pixels = self.processor(images=pillow_images(items), return_tensors="pt")["pixel_values"].to(device)
            output = self.model.get_image_features(pixel_values=pixels)
        return normalize(getattr(output, "pooler_output", output), dim=-1)  # a tensor before transformers 5


def pillow_images(items: Sequence[Any]) -> list:
    """Convert uint8 images (1 or 3, height, width) to images of Pillow."""
    from PIL import Image

    arrays = [np.moveaxis(torch.as_tensor(image).expand(3, -1, -1).numpy(), 0, -1) for image in items]
    return [Image.fromarray(np.ascontiguousarray(array)) for array in arrays]


def sniff(file: File) -> bool:
    """Recognise a folder with `modules.json`, or the `model_type` of a model in `config.json`."""
    return file.kind == "folder" and ("modules.json" in file or bool(read_type(file)))


def read_type(folder: File) -> str:
    """Return the `model_type` of a folder; empty if absent."""
    config = folder.json("config.json")
    return str(config.get("model_type") or "") if isinstance(config, dict) else ""


def load(file: File, data: Any = None) -> Checkpoint:
    """Read a folder; its library builds the model when it encodes."""
    names, kind, is_pipeline = check_folder(file), read_type(file), "modules.json" in file
    if not is_pipeline and kind in PAIRED:
        options = {"settings": read_learned(file, names, kind), "encoder": lambda: build_paired(file, kind)}
        return Checkpoint(file.path, file.sha256, "huggingface", {"towers": kind}, **options)
    settings = model_card.read_folder(file.path)
    notes, contents = settings.notes, {"text tower": kind}
    if is_pipeline:
        contents["modules"] = ", ".join(check_modules(file))
    else:
        notes += ("its folder does not define the pooling: the mean of the tokens is taken and not normalised",)

    def build() -> nn.Module:
        import_transformers()
        library = import_library("sentence_transformers", "text")
        return TextEncoder(library.SentenceTransformer(str(file.path), device="cpu", local_files_only=True).float())

    options = {"encoder": build, "settings": settings, "notes": tuple(f"{file.path}: {note}" for note in notes)}
    format_name = "sentence_transformers" if is_pipeline else "huggingface"
    return Checkpoint(file.path, file.sha256, format_name, contents, **options)


def check_modules(folder: File) -> list[str]:
    """Return the names of the modules; refuse classes and activations of other packages as unsafe."""
    names = []
    for module in folder.json("modules.json"):
        kind, subfolder = str(module.get("type")), str(module.get("path") or "").strip("/")
        if not kind.startswith("sentence_transformers."):
            raise UnsafeFile(f"{folder.path / 'modules.json'}: module {kind[:99]}, expected sentence_transformers")
        settings = folder.json(f"{subfolder}/config.json") or {}
        activation = str(settings.get("activation_function", "torch.nn.modules.activation.Tanh"))
        if not activation.startswith("torch.nn.") or activation.rpartition(".")[2] not in ACTIVATIONS:
            expected = f"expected one of torch.nn: {', '.join(ACTIVATIONS)}"
            raise UnsafeFile(f"{folder.path / subfolder}: activation_function {activation[:100]!r}, {expected}")
        names.append(kind.rpartition(".")[2])
    return names


def import_library(name: str, extra: str) -> Any:
    """Import an optional library; a message names the extra that installs it."""
    try:
        return importlib.import_module(name)
    except Exception as error:  # a broken installation raises anything
        problem = f"{name} builds this model and cannot be imported ({str(error)[:120]})"
        raise InputError(f"{problem}: pip install 'cocos-metric[{extra}]'") from None


def check_folder(folder: File) -> list[str]:
    """Return the names of the weight files in a folder; refuse code and pickles of more than tensors as unsafe."""
    for name in folder.names:
        if name.endswith(".json") and not name.endswith(TOKENS):
            folder.json(name)  # refuses a damaged file
            keys: set[str] = set()
            json.loads((folder.path / name).read_bytes(), object_hook=keys.update)
            if code := keys & CODE_KEYS:
                raise UnsafeFile(f"{folder.path / name} has {code}: the model requires code that cocos does not run")
    names = weight_files(folder)
    if not names:
        raise InputError(f"{folder.path} has no model.safetensors or pytorch_model.bin; copy the weights too")
    for name in names:
        if name.endswith(".bin"):
            folder.file(name).content  # noqa: B018
    return names


def import_transformers() -> Any:
    """Import transformers without its progress bars and warnings."""
    library = import_library("transformers", "text")
    library.utils.logging.disable_progress_bar()
    library.utils.logging.set_verbosity_error()
    return library


def read_learned(folder: File, names: list[str], kind: str) -> Recorded:
    """Read the learned scale and bias of the scores of CLIP or SigLIP."""
    loss, parameters = "siglip" if kind == "siglip" else "ntxent", {}
    weights = {key: tensor for name in names for key, tensor in folder.file(name).content.items()}
    if "logit_scale" in weights:
        scale = math.exp(float(weights["logit_scale"]))
        parameters["ntxent"] = {"temperature": 1 / scale}
        if "logit_bias" in weights:
            parameters["siglip"] = {"scale": scale, "bias": float(weights["logit_bias"])}
    return Recorded(loss, parameters)


def build_paired(file: File, kind: str) -> nn.Module:
    """Build CLIP or SigLIP; images are prepared with Pillow, without a file as by default."""
    library, local = import_transformers(), {"local_files_only": True}
    model = library.AutoModel.from_pretrained(str(file.path), **local).float()
    tokenizer = library.AutoTokenizer.from_pretrained(str(file.path), **local)
    name = "CLIPImageProcessor" if kind == "clip" else "SiglipImageProcessor"
    processor = getattr(library, f"{name}Pil", None) or getattr(library, name)
    size = dict.fromkeys(("height", "width"), model.config.vision_config.image_size)
    if "preprocessor_config.json" in file:
        processor = processor.from_pretrained(str(file.path), **local)
    else:
        crop = {"crop_size": size, "size": {"shortest_edge": size["height"]}}
        processor = processor(**crop if kind == "clip" else {"size": size})
    return PairedEncoder(model, tokenizer, processor, kind)
