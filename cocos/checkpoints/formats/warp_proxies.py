"""Proxies of the image retrieval code of the warped softmax: `Proxies/Proxy_{epoch}_{recall}Recall@1.pth`."""

from torch import Tensor

from cocos.checkpoints import Checkpoint, class_vectors
from cocos.checkpoints.class_vectors import ClassVectors
from cocos.checkpoints.files import File


def recognises(file: File) -> bool:
    """One matrix of the name `Proxies`, (classes, D), and nothing else."""
    proxies = file.record.get("Proxies")
    return len(file.record) == 1 and isinstance(proxies, Tensor) and proxies.ndim == 2


def read(file: File, data=None) -> Checkpoint:
    """Read the proxies; the network that was saved with them is another file (`Checkpoints/WarpNet_...`)."""
    one = ClassVectors("Proxies", "proxies", file.record["Proxies"])
    about = {"saved with": "the weights of the network, Checkpoints/WarpNet_{epoch}_{recall}Recall@1.pth"}
    return class_vectors.checkpoint(
        file, data, one, format="warp_proxies", contents=about, trained_with="warped_softmax"
    )
