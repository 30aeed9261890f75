"""Text encoders: a transformer, pooling over its tokens, and layers after it, as sentence-transformers stacks them."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from cocos.base.errors import InputError
from cocos.checkpoints.tokenizer import Tokenizer
from cocos.checkpoints.transformers import build_model

# Activations of a dense layer, by the last part of the name that a file has for them.
ACTIVATIONS = {
    each.__name__: each for each in (nn.GELU, nn.Identity, nn.LeakyReLU, nn.ReLU, nn.Sigmoid, nn.SiLU, nn.Tanh)
}
POOLING = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
TEXTS_AT_ONCE = 64  # texts that go through a transformer at once: of 512 tokens, about 1 GB in a base model


class Tokens(NamedTuple):
    """Output of a transformer: vectors of tokens, (N, T, D), and a mask, (N, T) bool, False at padding.

    `prompt` is the number of tokens of the prompt in front of each text.
    """

    vectors: Tensor
    mask: Tensor
    prompt: int


class Pooling(nn.Module):
    """One vector for each text from those of its tokens; those of several modes of `POOLING` stand side by side.

    The tokens of a prompt are pooled too, or not.
    """

    def __init__(self, modes: Sequence[str] = ("mean",), include_prompt: bool = True):
        super().__init__()
        if unknown := [mode for mode in modes if mode not in POOLING]:
            raise InputError(f"pooling {unknown[0]!r}, expected one of {', '.join(POOLING)}")
        self.modes, self.include_prompt = tuple(modes), include_prompt

    def forward(self, tokens: Tokens) -> Tensor:
        """Pool (N, T, D) to (N, D times the number of modes)."""
        mask = tokens.mask.clone()
        if not self.include_prompt:
            mask[:, : tokens.prompt] = False
        return torch.cat([self._pooled(mode, tokens.vectors, mask) for mode in self.modes], dim=-1)

    @staticmethod
    def _pooled(mode: str, vectors: Tensor, mask: Tensor) -> Tensor:
        """Pool in one mode; positions of `weightedmean` are counted from 1 at the beginning of the text."""
        places = torch.arange(mask.shape[1], device=mask.device)
        if mode in {"cls", "lasttoken"}:
            first, last = mask.int().argmax(1), (places * mask).argmax(1)
            return vectors[torch.arange(len(vectors), device=mask.device), first if mode == "cls" else last]
        if mode == "max":
            return vectors.masked_fill(~mask[..., None], -torch.inf).amax(1)
        weight = (mask * (places + 1 if mode == "weightedmean" else 1)).to(vectors)[..., None]
        total = weight.sum(1).clamp(min=1e-9)
        return (vectors * weight).sum(1) / (total.sqrt() if mode == "mean_sqrt_len_tokens" else total)


class Dense(nn.Module):
    """A linear layer and an activation of `ACTIVATIONS`.

    A residual layer adds its input to its output, through a linear layer of its own where the widths differ.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool, activation: str, residual: bool = False):
        super().__init__()
        if activation not in ACTIVATIONS:
            raise InputError(f"activation {activation!r} of a dense layer, expected one of {', '.join(ACTIVATIONS)}")
        self.linear = nn.Linear(in_features, out_features, bias=bias)
        self.activation, self.adds = ACTIVATIONS[activation](), residual
        if residual and in_features != out_features:
            self.residual = nn.Linear(in_features, out_features, bias=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """Map (N, in_features) to (N, out_features)."""
        found = self.activation(self.linear(vectors))
        if not self.adds:
            return found
        return found + (self.residual(vectors) if hasattr(self, "residual") else vectors)


class Normalize(nn.Module):
    """Vectors of length 1."""

    def forward(self, vectors: Tensor) -> Tensor:
        """Normalise (N, D)."""
        return normalize(vectors, dim=-1)


LAYERS = {"Pooling": Pooling, "Dense": Dense, "Normalize": Normalize}


class SentenceEncoder(nn.Module):
    """A transformer, (ids, mask) -> an object with `last_hidden_state`, (N, T, D), and the layers after it.

    Args:
        transformer: plain data of the `config.json` of a Hugging Face model.
        layers: `{"type": "Pooling", "modes": [...]}`, then any of `{"type": "Dense", "in_features": ...}` and
            `{"type": "Normalize"}`.
        files: of the tokenizer.
        longest: tokens that a text is cut to; None cuts nothing.
        lower: lower the case of every text first.
        prompts: text in front of every text of a side, `query` and `candidate`.
        padding: id that short texts are filled up with.
    """

    kinds = ("text",)
    pads = True
    items_at_once = TEXTS_AT_ONCE
    name = "sentence encoder"
    transformer: Any

    def __init__(
        self,
        transformer: Mapping[str, Any],
        layers: Sequence[Mapping[str, Any]],
        files: Mapping[str, Any],
        longest: int | None = None,
        lower: bool = False,
        prompts: Mapping[str, str] | None = None,
        padding: int = 0,
    ):
        super().__init__()
        order = [layer.get("type") for layer in layers]
        if order[:1] != ["Pooling"] or "Pooling" in order[1:] or not set(order) <= LAYERS.keys():
            raise InputError(f"layers {order} after the transformer, expected Pooling, then any of Dense and Normalize")
        made = [LAYERS[each["type"]](**{key: own for key, own in each.items() if key != "type"}) for each in layers]
        self.transformer, self.layers = build_model(transformer), nn.ModuleList(made)
        self.files, self.longest, self.lower = dict(files), longest, lower
        self.prompts, self.padding = dict(prompts or {}), padding

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, built when the first texts are encoded."""
        rows = len(self.transformer.get_input_embeddings().weight)
        return Tokenizer(self.files, self.longest, self.lower).within(rows, "model")

    def _prompt_tokens(self, prompt: str) -> int:
        """Tokens of a prompt, with the special one in front of the text and without the one behind it."""
        if not prompt:
            return 0
        ids = self.tokenizer([prompt])[0]
        return len(ids) - (bool(ids) and ids[-1] in self.tokenizer.special_ids)

    def encode(self, items: Sequence[str], kind: str, side: str) -> Tensor:
        """Encode texts to (N, D); each side may have a prompt."""
        prompt = self.prompts.get(side, "")
        ids = self.tokenizer([prompt + text for text in items])
        longest = max(1, *map(len, ids))
        weight = self.transformer.get_input_embeddings().weight
        whole = torch.tensor([each + [self.padding] * (longest - len(each)) for each in ids], device=weight.device)
        mask = torch.arange(longest) < torch.tensor([len(each) for each in ids])[:, None]
        mask = mask.to(weight.device)
        found = self.transformer(input_ids=whole, attention_mask=mask.long()).last_hidden_state
        value: Any = Tokens(found, mask, self._prompt_tokens(prompt))
        for layer in self.layers:
            value = layer(value)
        return value


build = SentenceEncoder
