"""VSE++ and VSRN: `model_best.pth.tar` of the published training code, on images, features or region features.

A file contains `model`, the state dicts of the image and text towers, and `opt`, the options of the training script.

Source: Faghri et al. 2018, VSE++, arXiv:1707.05612; Li et al. 2019, VSRN, arXiv:1909.02701; the names of the tensors
are those of the published code.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pack_sequence

from cocos import data as training_data
from cocos.base.errors import InputError
from cocos.checkpoints import recorded
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import File, plain
from cocos.checkpoints.formats import vocabulary
from cocos.checkpoints.formats.networks import ResNet, State, fill, part
from cocos.checkpoints.pictures import IMAGES_AT_ONCE, Preparation
from cocos.checkpoints.recorded import Recorded

SWITCHES = ("use_abs", "no_imgnorm", "max_violation")
# Option `criterion` -> loss, the option with its parameter, and the parameter. The first code has no such option.
LOSSES = {
    "triplet": ("triplet", "margin", "margin"),
    "ntxent": ("ntxent", "tau", "temperature"),
    "ranking": ("smoothap", "tau", "temperature"),
}
REGION_AXIS = 1  # of (N, regions, D): the published code normalises over the regions


class GRUText(nn.Module):
    """Captions in the joint space: the output of a GRU at `<end>`, with length 1."""

    def __init__(self, words: Mapping[str, int], state: State, use_abs: bool):
        super().__init__()
        self.words, self.use_abs = dict(words), use_abs
        self.embed = nn.Embedding(*state["embed.weight"].shape)
        layers = sum(key.startswith("rnn.weight_ih_l") for key in state)
        self.rnn = nn.GRU(self.embed.embedding_dim, state["rnn.weight_hh_l0"].shape[1], layers, batch_first=True)

    def forward(self, captions: Sequence[str]) -> Tensor:
        """Encode captions to unit vectors, (N, D)."""
        unknown = self.words["<unk>"]
        tokens = (("<start>", *vocabulary.tokens(caption), "<end>") for caption in captions)
        ids = [torch.tensor([self.words.get(token, unknown) for token in caption]) for caption in tokens]
        packed: Any = pack_sequence(ids, enforce_sorted=False)  # unpadded: captions of any length
        packed = packed.to(self.embed.weight.device)
        last = self.rnn(packed._replace(data=self.embed(packed.data)))[1][-1]
        last = normalize(last, dim=1, eps=0.0)
        return last.abs() if self.use_abs else last


class FeatureTower(nn.Module):
    """VSE++ on precomputed features: one linear layer."""

    kind, items_at_once = "features", 512
    prepare: Any = staticmethod(torch.as_tensor)

    def __init__(self, state: State):
        super().__init__()
        width, features = state["fc.weight"].shape
        self.fc = nn.Linear(features, width)

    def forward(self, features: Tensor) -> Tensor:
        """Encode features, (N, F), to (N, D)."""
        return self.fc(features)


class ImageTower(FeatureTower):
    """VSE++ on images: a linear layer on the unit vectors of a ResNet."""

    kind, items_at_once = "image", IMAGES_AT_ONCE
    prepare = Preparation()

    def __init__(self, state: State):
        super().__init__(state)
        self.cnn = ResNet(part(state, "cnn"))

    def forward(self, images: Tensor) -> Tensor:
        """Encode prepared images, (N, 3, 224, 224), to (N, D)."""
        return self.fc(normalize(self.cnn(images), dim=1, eps=0.0))


class GraphLayer(nn.Module):
    r"""Residual graph convolution over regions, all of them connected.

    .. math:: V' = V + W\left(\tfrac{1}{n}\,\theta(V)^\top \phi(V)\; g(V)^\top\right)

    with n regions; W ends with batch normalisation. Source: VSRN, eqs. 2-4.
    """

    def __init__(self, width: int):
        super().__init__()
        self.g, self.theta, self.phi = (nn.Conv1d(width, width, 1) for _ in range(3))
        self.W = nn.Sequential(nn.Conv1d(width, width, 1), nn.BatchNorm1d(width))

    def forward(self, regions: Tensor) -> Tensor:
        """Exchange information between the regions, (N, D, n), once."""
        relation = self.theta(regions).mT @ self.phi(regions) / regions.shape[2]
        return regions + self.W((relation @ self.g(regions).mT).mT)


class RegionTower(FeatureTower):
    """VSRN: graph layers over region features and a GRU.

    The code for Flickr30k ends with batch normalisation and does not normalise the regions before the graph layers.
    """

    def __init__(self, state: State, flickr: bool):
        super().__init__(state)
        width = self.fc.out_features
        self.img_rnn = nn.GRU(width, width, batch_first=True)
        self.Rs_GCN_1, self.Rs_GCN_2, self.Rs_GCN_3, self.Rs_GCN_4 = (GraphLayer(width) for _ in range(4))
        self.bn = nn.BatchNorm1d(width) if "bn.weight" in state else None
        self.region_norm = not (flickr and self.bn is not None)

    def forward(self, features: Tensor) -> Tensor:
        """Encode region features, (N, regions, F), to (N, D)."""
        regions = self.fc(features)
        if self.region_norm:
            regions = normalize(regions, dim=REGION_AXIS, eps=0.0)
        regions = regions.mT
        for layer in (self.Rs_GCN_1, self.Rs_GCN_2, self.Rs_GCN_3, self.Rs_GCN_4):
            regions = layer(regions)
        image = self.img_rnn(normalize(regions.mT, dim=REGION_AXIS, eps=0.0))[1][0]
        return image if self.bn is None else self.bn(image)


class TwoTowers(nn.Module):
    """Both towers, with the switches of the training script."""

    name = "VSE++ or VSRN"

    def __init__(self, image: FeatureTower, text: GRUText, no_imgnorm: bool):
        super().__init__()
        self.image, self.text, self.no_imgnorm = image, text, no_imgnorm
        self.kinds, self.items_at_once = (image.kind, "text"), image.items_at_once

    def encode(self, items: Any, kind: str, side: str) -> Tensor:
        """Encode captions, images or features to (n, D)."""
        if kind == "text":
            return self.text(items)
        image = self.image(self.image.prepare(items).to(self.image.fc.weight))
        image = image if self.no_imgnorm else normalize(image, dim=1, eps=0.0)
        return image.abs() if self.text.use_abs else image


def sniff(file: File) -> bool:
    """Recognise two towers with the names of the published code, and the options of its training script."""
    model = file.record.get("model")
    if not isinstance(file.record.get("opt"), Namespace) or not isinstance(model, list | tuple) or len(model) != 2:
        return False
    names = {"embed.weight", "rnn.weight_ih_l0", "rnn.weight_hh_l0"}
    return all(isinstance(tower, dict) for tower in model) and "fc.weight" in model[0] and names <= model[1].keys()


def load(file: File, data: Any = None) -> Checkpoint:
    """Read a checkpoint; its data are a folder of features or images, with captions and the vocabulary."""
    image, text = file.record["model"]
    options = {str(key): plain(value) for key, value in sorted(vars(file.record["opt"]).items())}
    use_abs, no_imgnorm, max_violation = (str(options.get(name)).lower() in {"true", "1"} for name in SWITCHES)
    graph, raw = any(key.startswith("Rs_GCN_") for key in image), any(key.startswith("cnn.") for key in image)
    image = {key.replace("cnn.module.", "cnn.", 1): value for key, value in image.items()}  # of DataParallel
    loss, option, parameter = LOSSES.get(options.get("criterion") or "triplet", (None, "", ""))
    value = recorded.number(options.get(option))
    losses = ("triplet", "triplet_sh") if loss == "triplet" else (loss,)
    loss = "triplet_sh" if loss == "triplet" and max_violation else loss
    # The folder of the data: from `--data`, or the recorded one if it is on this machine.
    name, recorded_path = str(options.get("data_name") or ""), options.get("data_path")
    folder = Path(str(recorded_path or "") if data is None else data)
    if name and training_data.sniff(folder / name):
        folder /= name
    has_data = data is not None or bool(recorded_path and training_data.sniff(folder))
    path, rows = file.path, len(text["embed.weight"])
    # The vocabulary is near the data or next to the checkpoint; as published, in `vocab` next to the folder `data`.
    data_folder = ((folder if folder.is_dir() else folder.parent) if has_data else path.parent).resolve()
    folders = [parent / sub for parent in (data_folder, *data_folder.parents[:2], path.parent) for sub in ("", "vocab")]
    names = [f"{name or data_folder.name}_vocab{suffix}" for suffix in (".pkl", ".json")]
    words = next((parent / name for parent in folders for name in names if (parent / name).is_file()), None)

    def encoder() -> nn.Module:
        measure, attention = options.get("measure"), options.get("cross_attn")
        if measure == "order" or attention is not None:
            raise InputError(f"{path}: measure {measure}, cross_attn {attention}, expected cosines")
        if words is None:
            missing = f"its vocabulary of {rows} words, {' or '.join(names)}, is not in {data_folder}"
            raise InputError(f"{path}: {missing}; copy it there")
        flickr = options.get("data_name") == "f30k_precomp"
        tower = RegionTower(image, flickr) if graph else ImageTower(image) if raw else FeatureTower(image)
        texts = GRUText(vocabulary.read(words, rows), text, use_abs)
        return TwoTowers(fill(tower, image), fill(texts, text), no_imgnorm)

    contents = {key: plain(file.record.get(key)) for key in ("epoch", "best_rsum", "Eiters")}
    contents["image tower"] = f"{'VSRN' if graph else 'VSE++'} on {'images' if raw else 'features'}"
    contents["scores"] = "inner products (no_imgnorm)" if no_imgnorm else "cosines"
    return Checkpoint(
        path,
        file.sha256,
        "vsrn" if graph else "vsepp",
        contents | {"dimensions": len(image["fc.weight"]), "vocabulary": f"{rows} words", "opt": options},
        encoder=encoder,
        training=training_data.find(folder) if has_data else None,
        settings=Recorded(loss, {} if value is None else dict.fromkeys(losses, {parameter: value})),
    )
