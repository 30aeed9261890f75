"""cocos's own checkpoint, the embedded example: a torch file of plain data and tensors.

{"cocos": {"schema": 1, "encoder": {"name", "arguments"}, "loss": {"name", "parameters"},
           "data": {"name", "arguments"}, "training": {...}},  "state": {name: tensor}}
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from cocos import data as training_data
from cocos import losses
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import File, plain
from cocos.checkpoints.formats.networks import fill
from cocos.checkpoints.recorded import Recorded

NGRAM_LENGTHS = (2, 3, 4)  # bytes of an n-gram
CHANNELS_PER_NORM = 8  # channels of one group of a group norm


def pieces(caption: str, buckets: int) -> list[int]:
    """Hash the words of a caption and their n-grams of UTF-8 bytes, with CRC-32, to integers below `buckets`."""
    ngrams = []
    for word in caption.casefold().split() or [""]:
        text = b"<" + word.encode() + b">"
        ngrams += [text, *(text[i : i + n] for n in NGRAM_LENGTHS for i in range(len(text) - n + 1))]
    return [crc32(ngram) % buckets for ngram in ngrams]


class SmallTowers(nn.Module):
    """A convolutional image tower, and a text tower that averages the vectors of hashed n-grams.

    Group normalisation uses one image at a time, and a bag has no padding, so that an embedding is independent of the
    rest of its batch. `width` is that of the joint space, and `channels` are four multiples of 8.
    """

    kinds = ("image", "text")

    def __init__(self, width: int, channels: Sequence[int], buckets: int, hidden: int):
        super().__init__()
        a, b, c, d = channels
        self.buckets = buckets
        self.image = nn.Sequential(
            *convolution(3, a, stride=1),
            nn.MaxPool2d(2),
            *convolution(a, b, stride=2),
            *convolution(b, c, stride=2),
            *convolution(c, d, stride=2),
            nn.Flatten(),
            nn.Linear(d * 2 * 2, width),  # 32 x 32 pixels are 2 x 2 by now
        )
        self.bag = nn.EmbeddingBag(buckets, width, mode="mean")
        self.caption = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def encode(self, items: Any, kind: str, side: str) -> Tensor:
        """Encode images, (N, 3, 32, 32) from 0 to 255, or N captions, to unit vectors, (N, width)."""
        device, dtype = self.bag.weight.device, self.bag.weight.dtype
        if kind == "image":
            ink = 1 - torch.as_tensor(items).to(device, dtype) / 255  # white is 0, as is the padding of a convolution
            return normalize(self.image(ink), dim=1)
        bags = [pieces(caption, self.buckets) for caption in items]
        ids = torch.tensor([bucket for bag in bags for bucket in bag], device=device)
        offsets = torch.tensor([0, *accumulate(len(bag) for bag in bags[:-1])], device=device)
        return normalize(self.caption(self.bag(ids, offsets)), dim=1)


def convolution(before: int, after: int, stride: int) -> tuple[nn.Module, ...]:
    """Return a convolution of 3 x 3 with its norm and activation."""
    norm = nn.GroupNorm(after // CHANNELS_PER_NORM, after)
    return nn.Conv2d(before, after, 3, stride, padding=1), norm, nn.GELU()


def sniff(file: File) -> bool:
    """Recognise a torch file with a `cocos` record."""
    return "cocos" in file.record


def load(file: File, data: Any = None) -> Checkpoint:
    """Read a checkpoint with its built-in loss and its data, both given by name."""
    record = plain(file.record["cocos"])
    encoder, loss, parameters = record["encoder"], record["loss"]["name"], record["loss"]["parameters"]
    losses.load(losses.find_file(loss), parameters)
    source = record["data"]
    training = training_data.source(source["name"], **source["arguments"]) if data is None else None
    options = {"settings": Recorded(loss, {loss: parameters}), "training": training}
    options["encoder"] = lambda: fill(SmallTowers(**encoder["arguments"]), file.record["state"])
    return Checkpoint(file.path, file.sha256, "native", record, **options)
