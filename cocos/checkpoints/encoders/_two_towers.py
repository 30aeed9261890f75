"""Common parts of VSE++ and VSRN: the text tower (word embedding, GRU, last valid output), and both towers together."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pack_sequence

from cocos.base.errors import InputError
from cocos.checkpoints.encoders.words import SPECIAL, tokens

__all__ = ["GRUText", "TwoTowers"]


class GRUText(nn.Module):
    """Encode captions in the joint space.

    Args:
        vocabulary: word -> id, 0..V-1, with `<pad>`, `<start>`, `<end>` and `<unk>`.
        word_dim: width of a word.
        embed_size: width of the joint space.
        num_layers: number of layers of the GRU.
        use_abs: take absolute values of the result.

    Source: Faghri et al. 2018, VSE++, arXiv:1707.05612, section 3.1; the keys of its state dict are those of
    the published code.
    """

    def __init__(
        self,
        vocabulary: Mapping[str, int],
        word_dim: int,
        embed_size: int,
        num_layers: int = 1,
        use_abs: bool = False,
    ):
        super().__init__()
        missing = [word for word in SPECIAL if word not in vocabulary]
        if missing:
            raise InputError(f"vocabulary of {len(vocabulary)} words without {' '.join(missing)}")
        self.vocabulary, self.use_abs = dict(vocabulary), use_abs
        self.embed = nn.Embedding(len(vocabulary), word_dim)
        self.rnn = nn.GRU(word_dim, embed_size, num_layers, batch_first=True)

    def ids(self, caption: str) -> list[int]:
        """Look up the ids of `<start>`, the tokens and `<end>`; an unknown token is `<unk>`."""
        words = ("<start>", *tokens(caption), "<end>")
        return [self.vocabulary.get(word, self.vocabulary["<unk>"]) for word in words]

    def forward(self, captions: Sequence[str]) -> Tensor:
        """Encode M captions to unit vectors, (M, D): the output of the GRU at `<end>`."""
        packed: Any = pack_sequence([torch.tensor(self.ids(caption)) for caption in captions], enforce_sorted=False)
        ids = packed.to(self.embed.weight.device)
        words = ids._replace(data=self.embed(ids.data))  # not padded: one long caption would make all of them long
        last = normalize(self.rnn(words)[1][-1], dim=1, eps=0.0)
        return last.abs() if self.use_abs else last


class TwoTowers(nn.Module):
    """Both towers; the keys of its state dict are those of the published files under `image.` and `text.`.

    Args:
        name: of the architecture, for sentences.
        image: tower with a layer `fc`, the `kind` of rows that it reads, and for images their `preparation`.
        text: tower of the captions.
    """

    def __init__(self, name: str, image: Any, text: GRUText):
        super().__init__()
        self.name, self.image, self.text = name, image, text
        self.kinds = (image.kind, "text")
        if image.kind == "image":
            self.items_at_once = image.items_at_once

    @property
    def identity(self) -> str:
        """Settings that the embeddings depend on beside the weights: switches, and the ids of the words."""
        switches = {key: value for key, value in vars(self.image).items() if isinstance(value, bool)}
        words = hashlib.sha256(repr(sorted(self.text.vocabulary.items())).encode()).hexdigest()
        return f"{self.name} {switches} {self.text.use_abs} {words}"

    def encode(self, items: Any, kind: str, side: str) -> Tensor:
        """Encode images or features, as the image tower reads them, or captions, to (N, D)."""
        if kind == "text":
            return self.text(items)
        prepare = self.image.preparation if kind == "image" else torch.as_tensor
        return self.image(prepare(items).to(self.image.fc.weight))
