"""CLIP and SigLIP: an image tower and a text tower of transformers with one space."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from cocos.checkpoints.pictures import Preparation
from cocos.checkpoints.tokenizer import Tokenizer
from cocos.checkpoints.transformers import PAIRED_MODELS, build_model

ITEMS_AT_ONCE = 64  # images or texts that go through a tower at once


class PairedTowers(nn.Module):
    """An image tower and a text tower, as `CLIPModel` and `SiglipModel` have them.

    SigLIP pads every text to the longest length, and its tower reads the padding too.

    Args:
        config: plain data of the `config.json` of a CLIP or SigLIP model.
        files: of the tokenizer; None where there is none.
        longest: tokens that a text is cut to.
        filled: fill every text up to `longest`.
        padding: id that short texts are filled up with.
        resize: pixels of the shorter side of an image, or its (height, width); None leaves the size.
        crop: (height, width) that is cut from the centre; None: nothing is.
        mean: of each channel, where white is 1.
        std: of each channel.
        resampling: `bilinear` or `bicubic`.
    """

    name = "CLIP or SigLIP"
    items_at_once = ITEMS_AT_ONCE
    model: Any

    def __init__(
        self,
        config: Mapping[str, Any],
        files: Mapping[str, Any] | None,
        longest: int,
        filled: bool,
        padding: int,
        resize: int | tuple[int, int] | None,
        crop: tuple[int, int] | None,
        mean: Sequence[float],
        std: Sequence[float],
        resampling: str = "bicubic",
    ):
        super().__init__()
        self.model, self.files, self.longest = build_model(config, PAIRED_MODELS), files, longest
        self.filled, self.padding = filled, padding
        self.preparation = Preparation(resize, None, tuple(mean), tuple(std), resampling)
        self.crop = crop  # cut here, where half a pixel is rounded down
        self.kinds = ("image",) if files is None else ("image", "text")
        self.pads = not filled

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, built when the first texts are encoded."""
        return Tokenizer(self.files or {}, self.longest).within(len(self._words()), "text tower")

    def _words(self) -> Tensor:
        """Vectors of the tokens."""
        return self.model.text_model.get_input_embeddings().weight

    def encode(self, items: Any, kind: str, side: str) -> Tensor:
        """Encode N texts, or N uint8 images (1 or 3, height, width), to vectors of length 1, (N, D)."""
        return normalize(self._images(items) if kind == "image" else self._texts(items), dim=-1)

    def _prepared(self, image: Any) -> Tensor:
        """Prepare an image, (3, height, width); half a pixel of the crop is rounded down."""
        pixels = self.preparation([image])[0]
        if self.crop is None:
            return pixels
        top, left = ((have - want) // 2 for have, want in zip(pixels.shape[1:], self.crop, strict=True))
        return pixels[:, top : top + self.crop[0], left : left + self.crop[1]]

    def _images(self, images: Sequence[Any]) -> Tensor:
        pixels = torch.stack([self._prepared(image) for image in images])
        found = self.model.vision_model(pixel_values=pixels.to(self._words())).pooler_output
        return self.model.visual_projection(found) if hasattr(self.model, "visual_projection") else found

    def _texts(self, texts: Sequence[str]) -> Tensor:
        """Encode texts; a causal tower never sees what stands behind the end of a text, so nothing is masked."""
        ids = self.tokenizer(texts)
        longest = self.longest if self.filled else max(1, *map(len, ids))
        whole = [each + [self.padding] * (longest - len(each)) for each in ids]
        found = self.model.text_model(input_ids=torch.tensor(whole, device=self._words().device)).pooler_output
        return self.model.text_projection(found) if hasattr(self.model, "text_projection") else found


build = PairedTowers
