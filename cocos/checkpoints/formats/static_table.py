"""Static embedding tables as model2vec and tokenlearn save them: a table, a tokenizer, and a configuration."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint, encoders
from cocos.checkpoints.files import File, Folder, weights
from cocos.checkpoints.tokenizer import Tokenizer, tokenizer_files

TABLES = ("embeddings", "embedding.weight")  # names of the vectors: of model2vec, of sentence-transformers
LIBRARIES = ("tokenizers",)

LONGEST = 512  # tokens that model2vec cuts a text to, unless it is told otherwise


class StaticTable(nn.Module):
    """Mean of the vectors of the tokens of a text; zeros for a text without any.

    Args:
        rows: vectors in the table.
        width: of a vector.
        files: of the tokenizer (`cocos.checkpoints.tokenizer`).
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
        if not all(isinstance(size, int) and size > 0 for size in (rows, width)):
            raise InputError(f"static table of {rows} rows of {width}, expected two whole numbers above 0")
        self.register_buffer("table", torch.empty(rows, width))
        self.register_buffer("row", None if tokens is None else torch.empty(tokens, dtype=torch.int64))
        self.register_buffer("weight", torch.empty(rows if tokens is None else tokens) if weighted else None)
        self.files, self.known_alone, self.longest, self.unit = dict(files), known_alone, longest, unit
        self.prompts = dict(prompts or {})

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, built when the first texts are encoded."""
        return Tokenizer(self.files, special=False).within(len(self.table if self.row is None else self.row), "table")

    @cached_property
    def typical(self) -> int:
        """Characters of a token of median length."""
        return int(median(map(len, self.tokenizer.backend.get_vocab())))

    def encode(self, items: Sequence[str], kind: str, side: str) -> Tensor:
        """Encode texts to (N, width); each side may have a prompt."""
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


build = StaticTable


def table(folder: Folder, within: str = "", **settings: Any) -> tuple[Callable[[], nn.Module], dict[str, Any]]:
    """Read a static table; return a function that builds its encoder, and its description.

    The vector of a token is `embeddings[mapping[token]] * weights[token]`; a file may lack `mapping` and `weights`.
    Vectors of whole numbers are multiplied by `scale` where the file has one.

    It lies in the folder `within`; `settings` are of the encoder.
    """
    state, where = weights(folder, within) or {}, folder.path / within
    vectors = next((state[name] for name in TABLES if name in state), None)
    if vectors is None or vectors.ndim != 2:
        raise InputError(f"{where} has no table of vectors, {' or '.join(TABLES)}; copy model.safetensors too")
    mapping, each = state.get("mapping"), state.get("weights")
    tokens = len(vectors) if mapping is None else len(mapping)
    _check(where, vectors, mapping, each, tokens)
    scale = state.get("scale", torch.ones(1)).float()
    found = {"table": vectors.float() * (scale[:, None] if scale.ndim == 1 and len(scale) > 1 else scale)}
    found |= {} if mapping is None else {"row": mapping.to(torch.int64)}
    found |= {} if each is None else {"weight": each.float()}
    files = tokenizer_files(folder, within)
    arguments = {"rows": vectors.shape[0], "width": vectors.shape[1], "files": files, **settings}
    arguments |= {"tokens": None if mapping is None else tokens, "weighted": each is not None}
    contents = {
        "text tower": f"static table, {tokens} tokens, {len(vectors)} vectors of {vectors.shape[1]} numbers, "
        f"{str(vectors.dtype).removeprefix('torch.')}"
    }

    def encoder() -> nn.Module:
        return encoders.freeze(encoders.build("static_table", arguments), found)

    return encoder, contents


def _check(where, vectors: Tensor, mapping: Tensor | None, each: Tensor | None, tokens: int) -> None:
    """Refuse tensors that do not fit each other."""
    rows = torch.empty(0) if mapping is None else mapping
    if (
        rows.ndim != 1
        or (mapping is not None and rows.is_floating_point())
        or ((rows < 0) | (rows >= len(vectors))).any()
    ):
        raise InputError(f"{where}: mapping points to rows outside of the table of {len(vectors)} vectors")
    if each is not None and each.shape != (tokens,):
        raise InputError(f"{where}: weights {tuple(each.shape)}, expected one for each of {tokens} tokens")


def recognises(file: File | Folder) -> bool:
    """A folder with a table and a tokenizer, and without modules or a type of model."""
    if file.kind != "folder" or "modules.json" in file or "tokenizer.json" not in file:
        return False
    config = file.json("config.json") if "config.json" in file else {}
    if not isinstance(config, dict) or config.get("model_type") not in {None, "model2vec"}:
        return False
    return "model.safetensors" in file and any(name in file.file("model.safetensors").content for name in TABLES)


def read(file: Folder, data=None) -> Checkpoint:
    """Read a static table: unknown words are left out, and texts are cut to 512 tokens, as model2vec does."""
    config = file.json("config.json") if "config.json" in file else {}
    longest = config.get("seq_length", LONGEST)
    if not isinstance(longest, int) or longest < 1:
        raise InputError(f"{file.path / 'config.json'}: seq_length {longest!r}, expected a whole number above 0")
    unit = bool(config.get("normalize"))
    encoder, contents = table(file, known_alone=True, longest=longest, unit=unit)
    return Checkpoint.of(
        file,
        "static_table",
        contents | {"vectors of texts": "of length 1" if unit else "not normalised", "config": config},
        encoder=encoder,
        settings="",
        notes=(f"{file.path} records no loss: NT-Xent is counted unless another is named",),
    )
