"""Class vectors without samples: the class weights of a softmax, or proxies, in a state dict of any architecture.

The losses of pytorch-metric-learning, saved alone or within a model, and the proxies of WarpNet are recognised by the
names of their parameters. Insightface saves one file for each GPU (Partial FC: `softmax_fc_gpu_{rank}.pt`), which are
joined in the order of the ranks. Sources: version 2.9 of pytorch-metric-learning; `partial_fc_v2.py` of insightface.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.checkpoints import recorded
from cocos.checkpoints.checkpoint import Checkpoint
from cocos.checkpoints.files import File, state_dicts
from cocos.embeddings import Embeddings

PROXIES = re.compile(
    r"(prox(y|ies)|(^|[._])((class_?)?prototypes?|(class_?)?cent(er|re)s?|centroids?))(\.weight)?$", re.IGNORECASE
)
CLASS_WEIGHTS = re.compile(
    r"(?is)(^|.*[._])(classifier|cls|logits?|head|arc|cosface|softmax|fc_?out|metric_fc)\w*\W.*weight$"
)
# The linear layer that ends an embedding network; a contrastive loss reads its output, not its rows.
PROJECTION = re.compile(r"head(\.\d+)*\.weight$")
# Parameters of pytorch-metric-learning with a class in each column: W of softmax losses, fc of SoftTripleLoss.
COLUMNS = re.compile(r"(^|(^|\.)(\w*loss\w*|criterion\w*|metric\w*)\.(losses\.\w+\.)?|^losses\.\w+\.)(W|fc)$")
MIN_CLASSES = 3  # with two classes a query has one negative, and every softmax is the same
CENTERS_PER_CLASS = 10  # default of SoftTripleLoss; a file does not record another number
FIRST_LOSSES = {"proxies": "proxynca", "class weights": "normalized_softmax", "centers": "softtriple"}
RANK = re.compile(r"softmax_fc_gpu_(\d+)\.pt$")
NO_SAMPLES = (
    "{} contains class vectors and no samples: each is counted as a sample of its class, and the numbers have no "
    "verdict. Save samples: numpy.savez(FILE, embeddings=..., labels=..., proxies=...), or add --model and --data"
)


@dataclass(frozen=True, eq=False)
class ClassVectors:
    """Vectors of classes."""

    name: str  # of the tensor in the file
    role: str  # `class weights`, `proxies`, or `centers`, several proxies per class
    vectors: Tensor  # (P, D)
    in_loss: bool = True  # whether they are parameters of a loss, rather than the last layer of a network

    @property
    def labels(self) -> Tensor:
        """Class of each vector, (P,)."""
        copies = CENTERS_PER_CLASS if self.role == "centers" else 1
        return torch.arange(len(self.vectors) // copies).repeat_interleave(copies)


def sniff(file: File) -> bool:
    """Recognise a matrix named like proxies or class weights in a state dict, or the class weights of insightface."""
    return find(file) is not None


def find(file: File) -> ClassVectors | None:
    """Return the class vectors in the state dicts of a file, or None: proxies before class weights, else the last."""
    if RANK.search(file.path.name) and isinstance(file.record.get("weight"), Tensor):
        prefix = RANK.sub("", file.path.name)
        return ClassVectors("weight", "class weights", join_ranks(file.path.parent, prefix))
    for tensors in state_dicts(file.content):
        matrices = []
        for name, tensor in tensors.items():
            if tensor.ndim != 2 or not tensor.is_floating_point() or min(tensor.shape) < 2:
                continue
            if COLUMNS.search(name):
                role = "centers" if name.endswith("fc") else "class weights"
                if role == "class weights" or tensor.shape[1] % CENTERS_PER_CLASS == 0:
                    matrices.append(ClassVectors(name, role, tensor.T))
            elif PROXIES.search(name):
                matrices.append(ClassVectors(name, "proxies", tensor))
            elif CLASS_WEIGHTS.match(name) and not PROJECTION.search(name) and len(tensor) >= MIN_CLASSES:
                matrices.append(ClassVectors(name, "class weights", tensor, in_loss=False))
        if matrices:
            return ([matrix for matrix in matrices if matrix.role != "class weights"] or matrices)[-1]
    return None


def join_ranks(folder: Path, prefix: str = "") -> Tensor | None:
    """Join the class weights of all ranks in a folder, (classes, D), in the order of the ranks; None if absent."""
    names = [path.name for path in folder.glob(f"{prefix}softmax_fc_gpu_*.pt") if RANK.search(path.name)]
    if not names:
        return None
    paths = [folder / f"{prefix}softmax_fc_gpu_{rank}.pt" for rank in range(len(names))]  # all files must exist
    parts = [File(path).record.get("weight") for path in paths]
    for path, part in zip(paths, parts, strict=True):
        if not isinstance(part, Tensor) or part.ndim != 2 or part.shape[1] != parts[0].shape[1]:
            raise InputError(f"{path}: expected class weights (classes, D), D as in the other ranks")
    return torch.cat(parts)


def load(file: File, data=None) -> Checkpoint:
    """Read the class vectors of a file, each as a sample of its class."""
    class_vectors, settings = find(file), recorded.read_file(file)
    role, vectors, labels = class_vectors.role, class_vectors.vectors.contiguous(), class_vectors.labels
    notes = (*settings.notes, NO_SAMPLES.format(file.path))
    if role == "centers":
        notes = (f"{class_vectors.name}: {CENTERS_PER_CLASS} centers per class are assumed", *notes)
        settings = replace(settings, loss=settings.loss or "softtriple")
    elif settings.loss is None and list(file.record) == ["Proxies"]:  # of WarpNet
        settings = replace(settings, loss="warped_softmax")
    contents = {role: f"{class_vectors.name}, {int(labels.max()) + 1} classes, vectors {tuple(vectors.shape)}"}
    options = {"settings": settings, "first_loss": FIRST_LOSSES[role], "notes": notes}
    options |= {"proxies": vectors, "proxy_labels": labels}
    embeddings = Embeddings.labelled(vectors, labels, vectors, labels)
    return Checkpoint(file.path, file.sha256, "class_vectors", contents, lambda *_: embeddings, **options)
