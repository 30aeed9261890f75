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
    """Vectors of classes, one or more of each.

    Args:
        name: of the tensor in the file.
        role: `class weights`, `proxies`, or `centers`, several proxies per class.
        vectors: (P, D), rows.
        labels: (P,) class of each; None: 0..P-1.
        notes: assumptions.
        unused: names of other tensors with such a role.
    """

    name: str
    role: str
    vectors: Tensor
    labels: Tensor | None = None
    notes: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


def role_of(name: str, shape: tuple[int, ...], dtype: str) -> str | None:
    """Return the role of a tensor by its name and shape, or None: `proxies`, `class weights` or `centers`."""
    if len(shape) != 2 or "float" not in dtype or min(shape) < 2:
        return None
    if COLUMNS.search(name):
        return "centers" if name.endswith("fc") else "class weights"
    if PROXIES.search(name):
        return "proxies"
    named = CLASS_WEIGHTS.match(name) and not PROJECTION.search(name)
    return "class weights" if named and shape[0] >= MIN_CLASSES else None


def find(file: File) -> ClassVectors | None:
    """Return the class vectors of a file, or None: proxies before class weights, and the last of several."""
    if rank_weights(file) is not None:
        vectors, note = join_ranks(file)
        return ClassVectors("weight", "class weights", vectors, notes=(note,))
    for state in state_dicts(file.content):
        roles = {name: role_of(name, tensor.shape, str(tensor.dtype)) for name, tensor in state.tensors.items()}
        roles = {name: role for name, role in roles.items() if role}
        if roles:
            *_, name = [name for name in roles if roles[name] != "class weights"] or roles
            vectors = state.tensors[name].T if COLUMNS.search(name) else state.tensors[name]
            unused = tuple(other for other in roles if other != name)
            if roles[name] != "centers":
                return ClassVectors(name, roles[name], vectors, unused=unused)
            if len(vectors) % CENTERS_PER_CLASS:
                raise InputError(
                    f"{name}: {len(vectors)} centers, expected a multiple of {CENTERS_PER_CLASS} per class, the "
                    "default of SoftTripleLoss; save them with their classes: numpy.savez(FILE, embeddings=..., "
                    "labels=..., proxies=..., proxy_labels=...)"
                )
            labels = torch.arange(len(vectors) // CENTERS_PER_CLASS).repeat_interleave(CENTERS_PER_CLASS)
            notes = (f"{name}: {CENTERS_PER_CLASS} centers per class are assumed",)
            return ClassVectors(name, "centers", vectors, labels, notes, unused)
    return None


def find_in_loss(file: File) -> ClassVectors | None:
    """Return the proxies or class weights that a loss learned next to a model, or None."""
    found = find(file)
    learned = found is not None and (found.role != "class weights" or COLUMNS.search(found.name))
    return found if learned else None


def sniff(file: File) -> bool:
    """A matrix named like proxies or class weights in a state dict, or the class weights of one rank of insightface."""
    return rank_weights(file) is not None or find(file) is not None


def load(file: File, data=None) -> Checkpoint:
    """Read the class vectors of a file, each as a sample of its class."""
    found = find(file)
    if data is not None:
        raise InputError(
            f"data {data}: {file.path} contains {found.role} and no encoder that cocos knows; name it with --model "
            "file.py:build, or save the embeddings: numpy.savez(FILE, embeddings=..., labels=..., proxies=...)"
        )
    labels = torch.arange(len(found.vectors)) if found.labels is None else found.labels
    number, width = found.vectors.shape
    contents = {found.role: f"{found.name}, {int(labels.max()) + 1} classes, {number} vectors of {width} numbers"}
    contents |= top_values(file) | ({"not used": ", ".join(found.unused)} if found.unused else {})
    settings = recorded.read_file(file)
    trained_with = "softtriple" if found.role == "centers" else None
    if list(file.record) == ["Proxies"]:  # of WarpNet
        trained_with = "warped_softmax"
    begin_with = FIRST_LOSSES[found.role]
    vectors = found.vectors.contiguous()
    return Checkpoint.of(
        file,
        "class_vectors",
        contents,
        embedder=holding(file.path, found.role, lambda: Embeddings.labelled(vectors, labels, vectors, labels)),
        **settings.fields() | {"trained_with": settings.loss or trained_with},
        begin_with=begin_with,
        notes=(*found.notes, *settings.notes, NO_SAMPLES.format(file.path)),
        proxies=vectors,
        proxy_labels=found.labels,
    )


def rank_weights(file: File) -> Tensor | None:
    """Return the class weights of one rank of insightface, (classes of that rank, D), or None."""
    content = file.record.get("state_dict_softmax_fc", file.record if RANK.search(file.path.name) else None)
    weight = content.get("weight") if isinstance(content, dict) and len(content) == 1 else None
    if file.kind == "torch" and BARE_MATRIX.search(file.path.name):
        weight = file.content
    return weight if isinstance(weight, Tensor) and weight.ndim == 2 and weight.is_floating_point() else None


def join_ranks(file: File) -> tuple[Tensor, str]:
    """Join the class weights of all ranks, (classes, D), in the order of the ranks, with a note."""
    match, weight = RANK.search(file.path.name), rank_weights(file)
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
        raise InputError(
            f"{file.path}: rank {missing[0]} is missing next to {', '.join(map(str, sorted(paths)[:8]))}; copy the "
            f"files of all ranks into {file.path.parent}"
        )
    parts = []
    for rank in sorted(paths):
        part = rank_weights(File(paths[rank]))
        if part is None or part.shape[1] != weight.shape[1] or part.dtype != weight.dtype:
            shape = "no class weights" if part is None else f"{tuple(part.shape)} {part.dtype}"
            raise InputError(f"{paths[rank]} contains {shape}, {file.path} {tuple(weight.shape)} {weight.dtype}")
        parts.append(part)
    return torch.cat(parts), f"class weights of {len(parts)} ranks, joined in their order"


def read_ranks_of(path: Path) -> Tensor | None:
    """Return the class weights saved with a backbone, (classes, D), or None.

    The backbone `Follow-model.pt` belongs to `Follow-softmax_fc_gpu_{rank}.pt`.
    """
    prefix = "Follow-" if path.name.startswith("Follow-") else ""
    for name in (f"{prefix}softmax_fc_gpu_0.pt", "rank_0_softmax_weight.pt"):
        first = path.with_name(name)
        if first.is_file() and rank_weights(file := File(first)) is not None:
            return join_ranks(file)[0]
    return None
