"""Class vectors of a file: class weights of a softmax, or proxies; they are counted without a backbone."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.checkpoints import inventory, recorded
from cocos.checkpoints.checkpoint import Checkpoint, holding
from cocos.checkpoints.files import File
from cocos.embeddings import Embeddings

# Centers of a class in SoftTripleLoss, unless its user chose another number, which the file does not record.
CENTERS_PER_CLASS = 10
# As often the projection that a contrastive loss reads as class weights: pointed at, and not counted.
PROJECTION = re.compile(r"head(\.\d+)*\.weight$")
STAND_IN = (
    "{} holds class vectors and no samples: each vector stands for a sample at the center of its class, and real "
    "samples are mostly pushed more. They count with numpy.savez(FILE, embeddings=..., labels=..., proxies=...)"
)


@dataclass(frozen=True, eq=False)
class ClassVectors:
    """Vectors of classes, one or more of each.

    Args:
        name: of the tensor in the file.
        what: `class weights`, `proxies`, or `centers`: several proxies a class.
        vectors: (P, D), rows.
        labels: (P,) class of each; None: 0..P-1.
        notes: what was assumed.
        beside: names of other tensors of the file that could be meant.
    """

    name: str
    what: str
    vectors: Tensor
    labels: Tensor | None = None
    notes: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()


def found(tensors: Mapping[str, Tensor]) -> ClassVectors | None:
    """Find the class vectors among the tensors of a state dict: proxies before class weights, and the last of them."""
    roles = {}
    for name, tensor in tensors.items():
        if not PROJECTION.search(name) and (
            about := inventory.role(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        ):
            roles[name] = about
    if not roles:
        return None
    name = max(enumerate(roles), key=lambda pair: (roles[pair[1]][0] != "class weights", pair[0]))[1]
    what, columns = roles[name]
    vectors = ClassVectors(name, what, tensors[name].T if columns else tensors[name])
    vectors = replace(vectors, beside=tuple(each for each in roles if each != name))
    return numbered(vectors) if what == "centers" else vectors


def numbered(one: ClassVectors) -> ClassVectors:
    """Number the classes of the centers of SoftTriple; a class has consecutive ones."""
    number = len(one.vectors)
    if number % CENTERS_PER_CLASS:
        raise InputError(
            f"{one.name} has {number} centers, no multiple of {CENTERS_PER_CLASS} a class, the default of "
            "SoftTripleLoss, and the file does not say how many a class has; save embeddings, labels, proxies and "
            "proxy_labels: numpy.savez(FILE, ...)"
        )
    labels = torch.arange(number // CENTERS_PER_CLASS).repeat_interleave(CENTERS_PER_CLASS)
    return replace(one, labels=labels, notes=(f"{one.name}: {CENTERS_PER_CLASS} centers a class are assumed",))


def checkpoint(
    file: File, data, one: ClassVectors, *, format: str, contents: dict | None = None, trained_with: str | None = None
) -> Checkpoint:
    """Make a checkpoint of class vectors alone; data are refused, since nothing in the file encodes them.

    `trained_with` is the loss of the training, where only one has such parameters.
    """
    if data is not None:
        raise InputError(
            f"data {data}: {file.path} holds {one.what} and no encoder that cocos knows; save embeddings, labels and "
            "proxies of your data: numpy.savez(FILE, embeddings=..., labels=..., proxies=...)"
        )
    classes = len(one.vectors) if one.labels is None else int(one.labels.max()) + 1
    about = {one.what: f"{one.name}, {classes} classes, {len(one.vectors)} vectors of {one.vectors.shape[1]} numbers"}
    about |= contents or {}
    if one.beside:
        about["not used"] = ", ".join(one.beside)
    about["loss to begin with"] = trained_with or inventory.FIRST_LOSSES[one.what]

    def found() -> Embeddings:
        labels = torch.arange(len(one.vectors)) if one.labels is None else one.labels
        vectors = one.vectors.contiguous()
        return Embeddings.labelled(vectors, labels, vectors, labels)

    settings = recorded.read_file(file)
    return Checkpoint.of(
        file,
        format,
        about,
        embedder=holding(file.path, one.what, found),
        **settings.fields() | {"trained_with": settings.loss or trained_with},
        begin_with=inventory.FIRST_LOSSES[one.what],
        notes=(*one.notes, *settings.notes, STAND_IN.format(file.path)),
        proxies=one.vectors,
        proxy_labels=one.labels,
    )
