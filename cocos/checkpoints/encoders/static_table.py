"""Static embedding tables: the vector of a text is the mean of the vectors of its tokens; there is no network."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from cocos.base.errors import InputError
from cocos.checkpoints.encoders._tokenizer import Tokenizer

__all__ = ["StaticTable", "build"]


class StaticTable(nn.Module):
    """Mean of the vectors of the tokens of a text; zeros for a text without any.

    Args:
        rows: vectors in the table.
        width: of a vector.
        files: of the tokenizer (`cocos.encoders._tokenizer`).
        tokens: of the vocabulary, where several tokens share a vector; None: one vector each.
        weighted: each token has a weight that its vector is multiplied by.
        known_alone: leave unknown words out, instead of taking the vector that stands for them.
        longest: tokens that a text is cut to, after it was cut to as many times the characters of a token of median
            length; None cuts nothing.
        unit: scale the mean to length 1.
        prompts: text in front of every text of a side, `query` and `candidate`.
    """

    kinds = ("text",)
    name = "static table"
    table: Tensor
    row: Tensor | None
    weight: Tensor | None

    def __init__(
        self,
        rows: int,
        width: int,
        files: Mapping[str, Any],
        tokens: int | None = None,
        weighted: bool = False,
        known_alone: bool = False,
        longest: int | None = None,
        unit: bool = False,
        prompts: Mapping[str, str] | None = None,
    ):
        super().__init__()
        self.register_buffer("table", torch.empty(rows, width))
        self.register_buffer("row", None if tokens is None else torch.empty(tokens, dtype=torch.int64))
        self.register_buffer("weight", torch.empty(rows if tokens is None else tokens) if weighted else None)
        self.files, self.known_alone, self.longest, self.unit = dict(files), known_alone, longest, unit
        self.prompts = dict(prompts or {})

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, built when the first texts are encoded.

        Raises:
            InputError: its files define none, or it knows more tokens than the table.
        """
        found, tokens = Tokenizer(self.files, special=False), len(self.table if self.row is None else self.row)
        if found.size > tokens:
            raise InputError(f"the tokenizer has ids up to {found.size - 1}, and the table has {tokens} tokens")
        return found

    @cached_property
    def typical(self) -> int:
        """Characters of a token of median length."""
        return int(median(map(len, self.tokenizer.backend.get_vocab())))

    def encode(self, items: Sequence[str], kind: str, side: str) -> Tensor:
        """Encode texts.

        Args:
            items: N texts.
            kind: `text`.
            side: `query` or `candidate`, which may have a prompt each.

        Returns:
            (N, width).
        """
        texts = [self.prompts.get(side, "") + text for text in items]
        if self.longest is not None:
            texts = [text[: self.longest * self.typical] for text in texts]
        ids = self.tokenizer(texts)
        if self.known_alone:
            ids = [[token for token in each if token != self.tokenizer.unknown] for each in ids]
        ids = [each[: self.longest] for each in ids]
        device = self.table.device
        whole = torch.tensor([token for each in ids for token in each], dtype=torch.int64, device=device)
        text = torch.repeat_interleave(torch.tensor([len(each) for each in ids], device=device))
        found = self.table[whole if self.row is None else self.row[whole]]
        found = found if self.weight is None else found * self.weight[whole, None]
        total = torch.zeros(len(ids), self.table.shape[1], dtype=found.dtype, device=device).index_add(0, text, found)
        mean = total / torch.bincount(text, minlength=len(ids)).clamp(min=1)[:, None]
        return normalize(mean, dim=-1) if self.unit else mean


def build(rows: int, width: int, files: Mapping[str, Any], **settings: Any) -> StaticTable:
    """Build a table, untrained.

    Args:
        rows: vectors in the table.
        width: of a vector.
        files: of the tokenizer.
        **settings: further arguments of `StaticTable`.

    Raises:
        InputError: sizes that fit no table.
    """
    if not all(isinstance(size, int) and size > 0 for size in (rows, width)):
        raise InputError(f"static table of {rows} rows of {width}, expected two whole numbers above 0")
    return StaticTable(rows, width, files, **settings)
