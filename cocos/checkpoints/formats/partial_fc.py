"""Class weights of insightface, one file a GPU: `softmax_fc_gpu_{rank}.pt`, `checkpoint_gpu_{rank}.pt`.

Partial FC divides the classes among the GPUs, in order: the weights of rank 0 are those of the first classes. The
first form holds `weight` (classes of that rank, D); the second is a checkpoint of the training, with the same under
`state_dict_softmax_fc`, beside `state_dict_backbone`; and the first version wrote the bare matrix,
`rank_{rank}_softmax_weight.pt`. Source: `partial_fc.py`, `partial_fc_v2.py` and `train_v2.py` of insightface,
recognition/arcface_torch.
"""

import re
from pathlib import Path

import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint, class_vectors
from cocos.checkpoints.class_vectors import ClassVectors
from cocos.checkpoints.files import File

LAST = True
RANK = re.compile(r"(gpu_|rank[_:])(\d{1,4})(?=\D|$)")
OLD_NAME = re.compile(r"rank[_:]\d+_softmax_weight\.")
MOST_RANKS = 1024  # files of one training


def _weight(file: File) -> Tensor | None:
    """Find the class weights of one rank."""
    of_one_rank = file.record if RANK.search(file.path.name) else None
    held = file.record.get("state_dict_softmax_fc", of_one_rank)
    weight = held.get("weight") if isinstance(held, dict) and len(held) == 1 else None
    if file.kind == "torch" and OLD_NAME.search(file.path.name):
        weight = file.content
    return weight if isinstance(weight, Tensor) and weight.ndim == 2 and weight.is_floating_point() else None


def recognises(file: File) -> bool:
    """One matrix `weight` under `state_dict_softmax_fc`, or alone in a file whose name has the rank of its GPU."""
    return _weight(file) is not None


def _siblings(path: Path) -> dict[int, Path]:
    """Find the files of all ranks of a training, by the rank; empty without a rank in the name."""
    match = RANK.search(path.name)
    if match is None:
        return {}
    before, after = path.name[: match.start(2)], path.name[match.end(2) :]
    found = {}
    for each in path.parent.glob(f"*{match[1]}*"):
        rank = each.name.removeprefix(before).removesuffix(after)
        if each.name == f"{before}{rank}{after}" and rank.isdecimal() and each.is_file():
            found[int(rank)] = each
    return dict(sorted(found.items())[:MOST_RANKS])


def joined(file: File) -> tuple[Tensor, tuple[str, ...]]:
    """Join the class weights of all ranks, (classes, D), in the order of the ranks, and say what was joined."""
    here, siblings = _weight(file), _siblings(Path(file.path))
    if not siblings:
        return here, (f"{file.path} has no rank in its name: its {len(here)} classes are taken as all",)
    ranks = list(siblings)
    missing = sorted(set(range(ranks[-1] + 1)) - siblings.keys())
    if missing:
        raise InputError(
            f"{file.path}: the class weights of rank {missing[0]} are missing beside those of "
            f"{', '.join(map(str, ranks[:8]))}; copy the files of all ranks into {Path(file.path).parent}"
        )
    parts = []
    for path in siblings.values():
        part = here if path == file.path else _weight(File(path))
        if part is None or part.shape[1] != here.shape[1] or part.dtype != here.dtype:
            shown = "no class weights" if part is None else f"{tuple(part.shape)} {part.dtype}"
            raise InputError(
                f"{path} holds {shown}, and {file.path} {tuple(here.shape)} {here.dtype}; of one training?"
            )
        parts.append(part)
    sizes = ", ".join(str(len(part)) for part in parts[:8])
    return torch.cat(parts), (f"class weights of {len(parts)} ranks joined in their order ({sizes} classes)",)


def shards(path: Path) -> Tensor | None:
    """Find the class weights that were saved beside a backbone, (classes, D); None where there are none.

    A backbone `Follow-model.pt` goes with `Follow-softmax_fc_gpu_{rank}.pt`.
    """
    before = "Follow-" if path.name.startswith("Follow-") else ""
    for name in (f"{before}softmax_fc_gpu_0.pt", "rank_0_softmax_weight.pt"):
        if (first := path.with_name(name)).is_file() and recognises(file := File(first)):
            return joined(file)[0]
    return None


def read(file: File, data=None) -> Checkpoint:
    """Read the class weights of all ranks, from the file of any of them."""
    vectors, notes = joined(file)
    name = "state_dict_softmax_fc.weight" if "state_dict_softmax_fc" in file.record else "weight"
    one = ClassVectors(name, "class weights", vectors, notes=notes)
    return class_vectors.checkpoint(file, data, one, format="partial_fc", contents={"joined": notes[0]})
