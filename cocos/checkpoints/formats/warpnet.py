"""WarpNet of the warped softmax (`WarpNet_{epoch}_{R@1}Recall@1.pth`), and the file of its proxies."""

from torch import Tensor, nn
from torch.nn.functional import layer_norm

from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import File
from cocos.checkpoints.formats.networks import ResNet, State, fill, find_state, part
from cocos.checkpoints.pictures import ImageEncoder, Preparation
from cocos.checkpoints.recorded import Recorded


class WarpNet(nn.Module):
    """A ResNet, maximum plus mean over the maps, layer normalisation, a linear layer; embeddings of any length.

    Source: DeMoor & Prevost 2024, Realigned softmax warping, arXiv:2408.15656; the names are those of its code.
    """

    def __init__(self, state: State):
        super().__init__()
        self.Backbone = ResNet(part(state, "Backbone"))
        width, inputs = state["Backbone.Embedding.weight"].shape
        self.Backbone.Embedding = nn.Linear(inputs, width)

    def forward(self, images: Tensor) -> Tensor:
        """Encode prepared images, (N, 3, 224, 224), to (N, D)."""
        maps = self.Backbone.maps(images)
        pooled = maps.amax(dim=(2, 3)) + maps.mean(dim=(2, 3))
        return self.Backbone.Embedding(layer_norm(pooled, pooled.shape[1:]))


NAMES = ("Backbone.conv1.weight", "Backbone.layer4.0.conv1.weight", "Backbone.Embedding.weight")


def sniff(file: File) -> bool:
    """Recognise a ResNet under `Backbone.` with the layer `Backbone.Embedding`."""
    return bool(find_state(file.content, *NAMES))


def load(file: File, data=None) -> Checkpoint:
    """Read a WarpNet with the proxies of the same epoch, from its folder or from the folder `Proxies`."""
    state = find_state(file.content, *NAMES)
    # The classifier of the ResNet is in the files and unused.
    state = {name: value for name, value in state.items() if not name.startswith("Backbone.fc.")}
    path, width = file.path, len(state["Backbone.Embedding.weight"])
    name = path.name.replace("WarpNet", "Proxy", 1)
    paths = (path.parent / name, path.parent.parent / "Proxies" / name, path.parent / "Proxies" / name)
    proxy_path = next((proxy_path for proxy_path in paths if proxy_path != path and proxy_path.is_file()), None)
    description = f"no proxies: {name} is not in its folder or in Proxies/; samples are counted against samples"
    proxies = None
    if proxy_path is not None:
        proxies = File(proxy_path).record["Proxies"]
        description = f"{len(proxies)} proxies of {proxy_path}"
    contents = {"network": f"WarpNet, {width} dimensions", "proxies": description}
    note = f"{path}: {description}; alpha, k1, k2 and scale of its loss are not recorded: set them with -p"
    options = {"settings": Recorded("warped_softmax"), "proxies": proxies, "notes": (note,)}
    options["encoder"] = lambda: ImageEncoder(fill(WarpNet(state), state), Preparation())
    return Checkpoint(path, file.sha256, "warpnet", contents, **options)
