"""Checkpoints of the VSRN training code (`model_best.pth.tar`)."""

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn.functional import normalize

from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint, encoders
from cocos.checkpoints.files import File
from cocos.checkpoints.formats.vsepp import GRUText, TwoTowers, checkpoint, tower_arguments, towers

# Dimension of (B, regions, D) that the published code normalises over; its comment says columns.
REGION_AXIS = 1


class GraphLayer(nn.Module):
    r"""Residual graph convolution over regions, all of them connected.

    .. math:: V' = V + W\left(\tfrac{1}{n}\,\theta(V)^\top \phi(V)\; g(V)^\top\right)

    with n regions; W ends with batch normalisation. Source: Li et al. 2019, VSRN, arXiv:1909.02701, eqs. 2-4.
    """

    def __init__(self, width: int):
        super().__init__()
        self.g, self.theta, self.phi = (nn.Conv1d(width, width, 1) for _ in range(3))
        self.W = nn.Sequential(nn.Conv1d(width, width, 1), nn.BatchNorm1d(width))

    def forward(self, regions: Tensor) -> Tensor:
        """Exchange information between the regions, (B, D, n), once."""
        relation = self.theta(regions).mT @ self.phi(regions) / regions.shape[2]
        return regions + self.W((relation @ self.g(regions).mT).mT)


class RegionTower(nn.Module):
    """Encode regions in the joint space; the keys of the state dict are those of the published code."""

    kind = "features"

    def __init__(
        self, img_dim: int, embed_size: int, use_abs: bool, no_imgnorm: bool, region_norm: bool, batch_norm: bool
    ):
        super().__init__()
        self.use_abs, self.no_imgnorm, self.region_norm = use_abs, no_imgnorm, region_norm
        self.fc = nn.Linear(img_dim, embed_size)
        self.img_rnn = nn.GRU(embed_size, embed_size, batch_first=True)
        self.Rs_GCN_1, self.Rs_GCN_2, self.Rs_GCN_3, self.Rs_GCN_4 = (GraphLayer(embed_size) for _ in range(4))
        self.bn = nn.BatchNorm1d(embed_size) if batch_norm else None

    def forward(self, features: Tensor) -> Tensor:
        """Encode region features, (N, regions, img_dim), to (N, D)."""
        width = self.fc.in_features
        if features.ndim != 3 or features.shape[2] != width:
            raise InputError(
                f"image features {tuple(features.shape)}: this VSRN image tower reads regions of {width}, "
                f"(n, regions, {width}); the published ones have 36 regions"
            )
        regions = self.fc(features)
        if self.region_norm:
            regions = normalize(regions, dim=REGION_AXIS, eps=0.0)
        regions = regions.mT
        for layer in (self.Rs_GCN_1, self.Rs_GCN_2, self.Rs_GCN_3, self.Rs_GCN_4):
            regions = layer(regions)
        image = self.img_rnn(normalize(regions.mT, dim=REGION_AXIS, eps=0.0))[1][0]
        if self.bn is not None:
            image = self.bn(image)
        image = image if self.no_imgnorm else normalize(image, dim=1, eps=0.0)
        return image.abs() if self.use_abs else image


def build(
    *,
    vocabulary: Mapping[str, int],
    img_dim: int = 2048,
    embed_size: int = 2048,
    word_dim: int = 300,
    num_layers: int = 1,
    use_abs: bool = False,
    no_imgnorm: bool = False,
    region_norm: bool = True,
    batch_norm: bool = False,
) -> TwoTowers:
    """Build VSRN, from the arguments of VSE++ (`cocos.encoders.vsepp`), and two of its own.

    Args:
        vocabulary: word -> id, 0..V-1.
        img_dim: width of a region's features.
        embed_size: width of the joint space.
        word_dim: width of a word.
        num_layers: of the captions' GRU.
        use_abs: absolute values of both embeddings, as for order embeddings.
        no_imgnorm: leave the image embeddings as long as they are.
        region_norm: normalise over the regions before the graph layers too; the code for Flickr30k does not.
        batch_norm: batch normalisation after the regions' GRU; the code for Flickr30k has it.

    Source: Li et al. 2019, VSRN, arXiv:1909.02701; sizes are the defaults of its code.
    """
    return TwoTowers(
        "VSRN",
        RegionTower(img_dim, embed_size, use_abs, no_imgnorm, region_norm, batch_norm),
        GRUText(vocabulary, word_dim, embed_size, num_layers, use_abs),
    )


def recognises(file: File) -> bool:
    """Two towers, of which the image tower has graph layers over regions."""
    found = towers(file)
    return found is not None and any(key.startswith("Rs_GCN_") for key in found[0])


def read(file: File, data=None) -> Checkpoint:
    """Read a VSRN checkpoint.

    The code for Flickr30k has batch normalisation at the end of the image tower, and no normalisation of the
    regions before the graph layers. The first code had neither variant, so both are decided by the weights:
    batch normalisation where its weights are in the file, the variant for Flickr30k only together with it.
    """
    image, text = towers(file)
    batch_norm = "bn.weight" in image

    def build(training, vocabulary):
        variant = {
            "batch_norm": batch_norm,
            "region_norm": not (batch_norm and training.options.get("data_name") == "f30k_precomp"),
        }
        return encoders.build("vsrn", tower_arguments(image, text, training) | variant | {"vocabulary": vocabulary})

    return checkpoint(
        file, data, format="vsrn", image_tower="VSRN, graph reasoning over regions and a GRU", build=build
    )
