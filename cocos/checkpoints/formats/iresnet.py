"""Face networks of insightface (`backbone.pth`, `model.pt`), and the class weights of each GPU."""

import math
from dataclasses import replace

from torch import Tensor, nn

from cocos.checkpoints import recorded
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats import class_vectors
from cocos.checkpoints.formats.networks import STAGES, State, fill, find_state, part, stage
from cocos.checkpoints.pictures import ImageEncoder, Preparation

SHRINKAGE = 16  # of a face to the last maps: four strides of 2
WARPED_KERNEL = 7  # of the first convolution in the code of the warped softmax; insightface has 3


class Block(nn.Module):
    """Batch normalisation before, between and after two 3 x 3 convolutions; the second one has the stride."""

    def __init__(self, state: State, stride: int):
        super().__init__()
        after, before = state["conv1.weight"].shape[:2]
        self.bn1, self.bn2, self.bn3 = nn.BatchNorm2d(before), nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.conv1 = nn.Conv2d(before, after, 3, 1, 1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, stride, 1, bias=False)
        self.prelu, self.downsample = nn.PReLU(after), None
        if "downsample.0.weight" in state:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        """Return (N, after, h, w)."""
        y = self.bn3(self.conv2(self.prelu(self.bn2(self.conv1(self.bn1(x))))))
        return y + (x if self.downsample is None else self.downsample(x))


class IResNet(nn.Module):
    """Embeddings of any length; the losses of faces read their cosines.

    With a first kernel of 7 the first convolution has the stride of 2 that otherwise the first stage has.

    Source: Duta et al. 2021, Improved residual networks, arXiv:2004.04989; Deng et al. 2019, ArcFace,
    arXiv:1801.07698; the names are those of insightface's recognition code.
    """

    def __init__(self, state: State):
        super().__init__()
        (width, inputs), last = state["fc.weight"].shape, len(state["bn2.weight"])
        stem, kernel = len(state["conv1.weight"]), state["conv1.weight"].shape[2]
        first = 1 if kernel == WARPED_KERNEL else 2
        self.conv1 = nn.Conv2d(3, stem, kernel, 2 // first, 1, bias=False)
        self.bn1, self.prelu = nn.BatchNorm2d(stem), nn.PReLU(stem)
        for number in STAGES:
            setattr(self, f"layer{number}", stage(Block, part(state, f"layer{number}"), first if number == 1 else 2))
        self.bn2, self.fc, self.features = nn.BatchNorm2d(last), nn.Linear(inputs, width), nn.BatchNorm1d(width)

    def forward(self, images: Tensor) -> Tensor:
        """Encode prepared faces, (N, 3, side, side), to (N, D)."""
        x = self.prelu(self.bn1(self.conv1(images)))
        for number in STAGES:
            x = getattr(self, f"layer{number}")(x)
        return self.features(self.fc(self.bn2(x).flatten(1)))


NAMES = ("prelu.weight", "layer1.0.prelu.weight", "bn2.weight", "fc.weight")


def sniff(file: File) -> bool:
    """Recognise residual blocks with PReLU and batch normalisation, and a linear layer over the last maps."""
    return bool(find_state(file.content, *NAMES))


def load(file: File, data=None) -> Checkpoint:
    """Read a face network with the class weights of all ranks in its folder."""
    state = find_state(file.content, *NAMES)
    prefix = "Follow-" if file.path.name.startswith("Follow-") else ""
    (width, inputs), weights = state["fc.weight"].shape, class_vectors.join_ranks(file.path.parent, prefix)
    description = f"{0 if weights is None else len(weights)} class weights in its folder"
    settings = recorded.read_file(file)
    if state["conv1.weight"].shape[2] == WARPED_KERNEL:
        settings = replace(settings, loss="warped_softmax")
    contents = {"network": f"IResNet, {width} dimensions", "class weights": description}
    note = f"{file.path}: {description}; the margin and the scale of its loss are not recorded"
    options = {"settings": settings, "proxies": weights if weights is None else weights.float(), "notes": (note,)}
    side = SHRINKAGE * math.isqrt(inputs // len(state["bn2.weight"]))
    preparation = Preparation((side, side), None, (0.5,) * 3, (0.5,) * 3)
    options["encoder"] = lambda: ImageEncoder(fill(IResNet(state), state), preparation)
    return Checkpoint(file.path, file.sha256, "iresnet", contents, **options)
