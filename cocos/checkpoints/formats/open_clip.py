"""Folders of open_clip: `open_clip_config.json` and the weights, built by open_clip."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from cocos.checkpoints import recorded
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats.huggingface import check_folder, import_library, pillow_images

CONFIG = "open_clip_config.json"


class OpenClipEncoder(nn.Module):
    """Both towers of a model of open_clip, with the preparation of images that its folder defines."""

    kinds, items_at_once, name = ("image", "text"), 64, "open_clip"

    def __init__(self, model: Any, transform: Any, tokenizer: Any):
        super().__init__()
        self.model, self.transform, self.tokenizer = model, transform, tokenizer

    def encode(self, items: Sequence[Any], kind: str, side: str) -> Tensor:
        """Encode texts, or uint8 images (1 or 3, height, width), to unit vectors, (n, D)."""
        device = next(self.model.parameters()).device
        if kind == "text":
            return self.model.encode_text(self.tokenizer(list(items)).to(device), normalize=True)
        images = torch.stack([self.transform(image) for image in pillow_images(items)])
        return self.model.encode_image(images.to(device), normalize=True)


def sniff(file: File) -> bool:
    """Recognise a folder with `open_clip_config.json`."""
    return file.kind == "folder" and CONFIG in file


def load(file: File, data: Any = None) -> Checkpoint:
    """Read a folder with the learned scale and bias of its scores; open_clip builds the model when it encodes."""
    names, config = check_folder(file), file.json(CONFIG)
    settings = recorded.read_file(file.file(names[0]))

    def build() -> nn.Module:
        library = import_library("open_clip", "vision")
        folder = f"local-dir:{file.path}"
        model, transform = library.create_model_from_pretrained(folder, device="cpu", weights_only=True)
        return OpenClipEncoder(model.float(), transform, library.get_tokenizer(folder))

    contents = {"dimensions": config["model_cfg"].get("embed_dim")}
    settings = replace(settings, loss=settings.loss or "ntxent")
    return Checkpoint(file.path, file.sha256, "open_clip", contents, encoder=build, settings=settings)
