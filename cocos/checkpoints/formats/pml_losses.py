"""Losses of pytorch-metric-learning, saved alone: the class weights or proxies that they learn.

A loss is saved as its state dict (`metric_loss_best3.pth` of its trainer, or `torch.save(loss.state_dict(), FILE)`):

- `W` (D, classes): ArcFaceLoss, CosFaceLoss, SphereFaceLoss, LargeMarginSoftmaxLoss, NormalizedSoftmaxLoss,
  SubCenterArcFaceLoss;
- `proxies` (classes, D): ProxyNCALoss, ProxyAnchorLoss;
- `fc` (D, classes x centers): SoftTripleLoss;
- `weight` (D, classes) with columns of length 1: P2SGradLoss;
- `beta`: MarginLoss, which has no class vectors;

under `loss.` in a wrapper, and under `losses.0.` in MultipleLosses. Source: the losses of version 2.9 of the library.
"""

import re

import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint, class_vectors
from cocos.checkpoints.class_vectors import ClassVectors
from cocos.checkpoints.files import File
from cocos.checkpoints.state_dicts import whole_state_dicts

NAMES = re.compile(r"((loss|losses\.\w+)\.)*(W|proxies|fc|weight|beta)$")
# Losses that have such parameters, in words, by the last part of the name.
LEARNED_BY = {
    "W": "a softmax of pytorch-metric-learning (ArcFace, CosFace, SphereFace, NormalizedSoftmax, LargeMarginSoftmax)",
    "proxies": "ProxyNCALoss or ProxyAnchorLoss of pytorch-metric-learning",
    "fc": "SoftTripleLoss of pytorch-metric-learning",
    "weight": "P2SGradLoss of pytorch-metric-learning",
}
# Largest error of the length of a column of P2SGradLoss, which it normalises before every step.
MAX_LENGTH_ERROR = 0.02


def _learned(file: File) -> dict[str, Tensor] | None:
    """Find the parameters of a loss, if the file has nothing else."""
    whole = whole_state_dicts(file.content)
    tensors = whole[0].tensors if len(whole) == 1 and not whole[0].place else {}
    if not tensors or not all(NAMES.match(name) for name in tensors) or file.kind == "safetensors" and file.metadata:
        return None
    matrices = {name: each for name, each in tensors.items() if each.ndim == 2 and each.is_floating_point()}
    lengths = [
        each.to(torch.float64).norm(dim=0) for name, each in matrices.items() if name.rpartition(".")[2] == "weight"
    ]
    plain = any(not (each - 1).abs().max() < MAX_LENGTH_ERROR for each in lengths)
    return None if plain or not matrices or min(min(each.shape) for each in matrices.values()) < 2 else matrices


def recognises(file: File) -> bool:
    """A state dict of nothing but parameters of losses of the library."""
    return _learned(file) is not None


def vectors(file: File) -> ClassVectors | None:
    """Read the class vectors of a loss, of several losses the last; None if the file has none."""
    learned = _learned(file)
    if learned is None:
        return None
    name, found = list(learned.items())[-1]
    kind, beside = name.rpartition(".")[2], tuple(each for each in learned if each != name)
    if kind == "proxies":
        return ClassVectors(name, "proxies", found, beside=beside)
    if kind == "fc":
        return class_vectors.numbered(ClassVectors(name, "centers", found.T, beside=beside))
    return ClassVectors(name, "class weights", found.T, beside=beside)


def read(file: File, data=None) -> Checkpoint:
    """Read the class vectors of a loss; of several losses, the last."""
    one = vectors(file)
    if one is None:
        raise InputError(f"{file.path} holds no parameters of a loss of pytorch-metric-learning")
    kind = one.name.rpartition(".")[2]
    trained = "softtriple" if kind == "fc" else None
    about = {"learned by": LEARNED_BY[kind]}
    return class_vectors.checkpoint(file, data, one, format="pml_losses", contents=about, trained_with=trained)
