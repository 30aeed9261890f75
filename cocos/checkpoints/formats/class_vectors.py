"""Class vectors without samples: the class weights of a softmax, or proxies, in a state dict of any architecture.

The losses of pytorch-metric-learning, saved alone or within a model, and the proxies of WarpNet are recognised by the
names of their parameters. Insightface saves one file for each GPU (Partial FC: `softmax_fc_gpu_{rank}.pt`,
`checkpoint_gpu_{rank}.pt`, `rank_{rank}_softmax_weight.pt`), which are joined in the order of the ranks. Sources:
version 2.9 of pytorch-metric-learning; `partial_fc_v2.py` and `train_v2.py` of insightface.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.checkpoints import recorded
from cocos.checkpoints.checkpoint import Checkpoint, holding
from cocos.checkpoints.files import File
from cocos.checkpoints.listing import top_values
from cocos.checkpoints.state_dicts import state_dicts
from cocos.embeddings import Embeddings

PROXIES = re.compile(
    r"(prox(y|ies)|(^|[._])((class_?)?prototypes?|(class_?)?cent(er|re)s?|centroids?))(\.weight)?$", re.IGNORECASE
)
CLASS_WEIGHTS = re.compile(
    r"(^|.*[._])(classifier|cls|logits?|head|arc|cosface|softmax|fc_?out|metric_fc)\w*\W.*weight$",
    re.IGNORECASE | re.DOTALL,
)
# The linear layer that ends an embedding network; a contrastive loss reads its output, not its rows.
PROJECTION = re.compile(r"head(\.\d+)*\.weight$")
# Parameters of pytorch-metric-learning with a class in each column: W of softmax losses, fc of SoftTripleLoss.
COLUMNS = re.compile(r"(^|(^|\.)(\w*loss\w*|criterion\w*|metric\w*)\.(losses\.\w+\.)?|^losses\.\w+\.)(W|fc)$")
MIN_CLASSES = 3  # with two classes a query has one negative, and every softmax is the same
CENTERS_PER_CLASS = 10  # default of SoftTripleLoss; a file does not record another number
FIRST_LOSSES = {"proxies": "proxynca", "class weights": "normalized_softmax", "centers": "softtriple"}
RANK = re.compile(r"(gpu_|rank[_:])(\d{1,4})(?=\D|$)")
BARE_MATRIX = re.compile(r"rank[_:]\d+_softmax_weight\.")
NO_SAMPLES = (
    "{} contains class vectors and no samples: each vector is counted as a sample at the center of its class, and "
    "samples are mostly pushed more, so these numbers have no verdict. Add samples: numpy.savez(FILE, embeddings=..., "
    "labels=..., proxies=...), or name the encoder and its data, --model file.py:build --data DATA"
)


@dataclass(frozen=True, eq=False)
class ClassVectors:
    """Vectors of classes.

    Args:
        name: of the tensor in the file.
        role: `class weights`, `proxies`, or `centers`, several proxies per class.
        vectors: (P, D).
        in_loss: whether they are parameters of a loss, rather than the last layer of a network.
    """

    name: str
    role: str
    vectors: Tensor
    in_loss: bool = True

    @property
    def labels(self) -> Tensor | None:
        """Class of each center, (P,); None: 0..P-1."""
        if self.role != "centers":
            return None
        return torch.arange(len(self.vectors) // CENTERS_PER_CLASS).repeat_interleave(CENTERS_PER_CLASS)


def sniff(file: File) -> bool:
    """A matrix named like proxies or class weights in a state dict, or the class weights of one rank of insightface."""
    return read_rank(file) is not None or find(file) is not None


def find(file: File) -> ClassVectors | None:
    """Return the class vectors in the state dicts of a file, or None: proxies before class weights, else the last."""
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


def load(file: File, data=None) -> Checkpoint:
    """Read the class vectors of a file, each as a sample of its class."""
    notes = []
    if read_rank(file) is not None:
        weights, note = join_ranks(file)
        class_vectors, notes = ClassVectors("weight", "class weights", weights), [note]
    else:
        class_vectors = find(file)
    role, vectors, labels = class_vectors.role, class_vectors.vectors.contiguous(), class_vectors.labels
    if data is not None:
        raise InputError(
            f"data {data}: {file.path} contains {role} and no encoder that cocos knows; name it with --model "
            "file.py:build, or save the embeddings: numpy.savez(FILE, embeddings=..., labels=..., proxies=...)"
        )
    trained_with = "warped_softmax" if list(file.record) == ["Proxies"] else None  # of WarpNet
    if labels is None:
        labels = torch.arange(len(vectors))
    else:
        notes.append(f"{class_vectors.name}: {CENTERS_PER_CLASS} centers per class are assumed")
        trained_with = "softtriple"
    number, width = vectors.shape
    contents = {role: f"{class_vectors.name}, {int(labels.max()) + 1} classes, {number} vectors of {width} numbers"}
    settings = recorded.read_file(file)
    return Checkpoint.of(
        file,
        "class_vectors",
        contents | top_values(file),
        embedder=holding(file.path, role, lambda: Embeddings.labelled(vectors, labels, vectors, labels)),
        **settings.fields() | {"trained_with": settings.loss or trained_with},
        begin_with=FIRST_LOSSES[role],
        notes=(*notes, *settings.notes, NO_SAMPLES.format(file.path)),
        proxies=vectors,
        proxy_labels=class_vectors.labels,
    )


def read_rank(file: File) -> Tensor | None:
    """Return the class weights of one rank of insightface, (classes of that rank, D), or None."""
    content = file.record.get("state_dict_softmax_fc", file.record if RANK.search(file.path.name) else None)
    weight = content.get("weight") if isinstance(content, dict) and len(content) == 1 else None
    if file.kind == "torch" and BARE_MATRIX.search(file.path.name):
        weight = file.content
    return weight if isinstance(weight, Tensor) and weight.ndim == 2 and weight.is_floating_point() else None


def join_ranks(file: File) -> tuple[Tensor, str]:
    """Join the class weights of all ranks, (classes, D), in the order of the ranks, with a note."""
    match, weight = RANK.search(file.path.name), read_rank(file)
    if match is None:
        return weight, f"{file.path} has no rank in its name: its {len(weight)} classes are taken as all"
    start, end = file.path.name[: match.start(2)], file.path.name[match.end(2) :]
    paths = {}
    for path in file.path.parent.glob(f"*{match[1]}*"):
        rank = path.name.removeprefix(start).removesuffix(end)
        if path.name == f"{start}{rank}{end}" and rank.isdecimal():
            paths[int(rank)] = path
    missing = sorted(set(range(max(paths) + 1)) - paths.keys())
    if missing:
        raise InputError(f"{file.path}: rank {missing[0]} is missing; copy the files of all ranks into its folder")
    parts = []
    for rank in sorted(paths):
        part = read_rank(File(paths[rank]))
        if part is None or part.shape[1] != weight.shape[1]:
            raise InputError(f"{paths[rank]}: expected class weights of {weight.shape[1]} columns, as in {file.path}")
        parts.append(part)
    return torch.cat(parts), f"class weights of {len(parts)} ranks, joined in their order"


def read_ranks_of(path: Path) -> Tensor | None:
    """Return the class weights saved with a backbone, (classes, D), or None.

    The backbone `Follow-model.pt` belongs to `Follow-softmax_fc_gpu_{rank}.pt`.
    """
    prefix = "Follow-" if path.name.startswith("Follow-") else ""
    for name in (f"{prefix}softmax_fc_gpu_0.pt", "rank_0_softmax_weight.pt"):
        first = path.with_name(name)
        if first.is_file() and read_rank(file := File(first)) is not None:
            return join_ranks(file)[0]
    return None
