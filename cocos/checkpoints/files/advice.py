"""Sentences on files that cocos does not read as they are: what each is, and what to do with it."""

import json
import shlex
from pathlib import Path

import torch

from cocos.base.errors import UnsafeFile
from cocos.checkpoints.files.file import PROGRAM_KINDS, File
from cocos.checkpoints.files.folder import Folder
from cocos.checkpoints.files.operations import RUNS_CODE
from cocos.checkpoints.files.pickles import SAVE_INSTEAD

EMBED_INSTEAD = (
    "encode your training data with the frozen model and save the embeddings: numpy.savez(FILE, query=..., "
    "candidate=..., query_group=..., candidate_group=...), or embeddings=..., labels=... of a labelled set, then "
    "`cocos count FILE`"
)
# Files beside the weights of a Hugging Face model, which are of no use without them.
OF_A_FOLDER = ("modules.json", "tokenizer.json", "vocab.txt", "vocab.json", "preprocessor_config.json")
ADVICE = {
    "empty": "is empty (0 bytes); copy it again",
    "zip": "is a zip archive, but not of torch or numpy; unpack it and name the checkpoint or folder inside",
    "damaged zip": "is a truncated or damaged zip archive (a torch or npz file cut short?); copy it again",
    "torchscript": f"is a TorchScript archive, a program; {SAVE_INSTEAD}",
    "pt2": f"is a torch.export program, which can run code when it is loaded; {SAVE_INSTEAD}",
    "npy": "is a single numpy array, of one side; cocos reads both from one file, which this writes: {}. Row i then "
    "matches row i; query_group= and candidate_group= say otherwise, and a labelled set has embeddings= and labels=; "
    "scores that are not square want an npz with scores= and positive=",
    "netcdf": "is an HDF5 or netCDF file (a result of cocos?); open it with cocos.results.open",
    "tar": "is a tar archive; unpack it and name the checkpoint inside",
    "gzip": "is compressed with gzip; unpack it first",
    "pickle": f"is a plain Python pickle, which cocos does not load; {EMBED_INSTEAD}",
    "text": "is a text file, not a checkpoint (a download that failed, or a Git LFS pointer?); "
    "save numbers of a table as arrays: np.savez('embeddings.npz', query=..., candidate=...)",
    "unknown": "is no format that cocos knows (torch, safetensors, npz)",
}


def _joining(path: Path) -> str:
    """Write the command that joins an array and the only other one beside it in one file; neither is read whole."""
    others = [each for each in path.parent.glob("*.npy") if each.name != path.name]
    other = others[0] if len(others) == 1 else path.with_name("candidates.npy")
    both = path.with_name(f"{path.stem}_and_{other.stem}.npz")
    saved, *read = (json.dumps(str(each), ensure_ascii=False) for each in (both, path, other))
    query, candidate = (f'n.load({name}, "r")' for name in read)
    return "python -c " + shlex.quote(f"import numpy as n; n.savez({saved}, query={query}, candidate={candidate})")


def _of_folder(folder: Folder) -> str:
    held = ", ".join(name[:60] for name in folder.names[:8]) or "no files"
    return (
        f"{folder.path} is a folder; name a checkpoint or a file of embeddings in it: it is no model that cocos knows "
        f"(it holds {held})"
    )


def describe(file: File | Folder) -> str:
    """Describe a file or folder that no format recognises, and say what to do with it."""
    if file.kind == "folder":
        return _of_folder(file)
    pickles = file.pickles
    if file.kind not in PROGRAM_KINDS or any(
        RUNS_CODE.match(name) for name in pickles.imports if not name.startswith("torch.")
    ):
        pickles.refuse_code()  # a program of torch imports from torch, and is refused with its own advice
    if file.kind == "pickle" and pickles.foreign:
        raise UnsafeFile(pickles.needs_code())
    if file.kind in ADVICE:
        said = ADVICE[file.kind]
        return f"{file.path} {said.format(_joining(file.path)) if file.kind == 'npy' else said}"
    if file.kind == "npz":
        held = ", ".join(name.removesuffix(".npy")[:40] for name in list(file.members)[:8])
        return f"{file.path} has no array 'query', 'candidate' or 'embeddings' (it holds {held}); {EMBED_INSTEAD}"
    content = file.content
    if not isinstance(content, dict):
        return f"{file.path} holds a {type(content).__name__}, not named tensors; {EMBED_INSTEAD}"
    tensors = {k: v for k, v in content.items() if isinstance(v, torch.Tensor)}
    folder = file.path.parent
    if tensors and any((folder / name).is_file() for name in OF_A_FOLDER):
        return f"{file.path} holds the weights of a model whose other files lie beside it; name the folder: {folder}"
    if tensors and len(tensors) == len(content):
        heads = list(dict.fromkeys(str(k)[:40].split(".")[0] for k in tensors))
        return (
            f"{file.path} is a bare state dict of {len(tensors)} tensors ({', '.join(heads[:6])}), which does not say "
            f"which model or data it belongs to; {EMBED_INSTEAD}, or build its model: --model file.py:build"
        )
    keys = ", ".join(str(k)[:40] for k in list(content)[:8])
    return (
        f"{file.path} is a training checkpoint of an architecture that cocos does not know (keys {keys}); "
        f"{EMBED_INSTEAD}, or build its model: --model file.py:build"
    )
