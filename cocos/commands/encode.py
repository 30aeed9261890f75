"""`cocos encode`."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cocos.base.errors import InputError
from cocos.base.signatures import REQUIRED
from cocos.commands._answer import Answer, progress
from cocos.commands._options import SHARED, argument, option
from cocos.commands._program import command

if TYPE_CHECKING:
    from cocos.checkpoints import Checkpoint
    from cocos.checkpoints.data import Source, TrainingSet
    from cocos.embeddings import Embeddings


@command(
    epilog="Example: cocos encode pairs.jsonl --model all-MiniLM-L6-v2 --out embeddings.npz",
    options={
        "model": option(str, "A checkpoint or folder that encodes them, or your own file.py:function.", REQUIRED),
        "out": option(Path, "Write the embeddings to this file (.npz, .safetensors).", REQUIRED),
        "file": argument(
            str | None,
            "Training data: a file, a folder, or your own file.py:function; with --data, the file that the function of "
            "--model reads.",
            None,
            "DATA",
        ),
        "data": option(str | None, "Training data, in the place of DATA."),
        "split": SHARED["split"],
        "columns": option(
            str | None, "Columns of a table: query=NAME,positive=NAME,negative=NAME,NAME or text=NAME,label=NAME."
        ),
        "images": option(str | None, "Folder of the images that a file of captions names."),
        "batch_size": option(int | None, "Rows that are encoded at once. [as the encoder asks for]"),
        "pictures": option(
            str,
            "auto, paths, thumbnails or none. [auto: paths if all lie in the folder of the output, or thumbnails]",
            "auto",
        ),
        "device": SHARED["device"],
    },
)
def encode(model, out, file, data, split, columns, images, batch_size, pictures, device) -> Answer:
    """Encode training data with a frozen model, and write embeddings with names, pictures and hard negatives."""
    from cocos import checkpoints
    from cocos.checkpoints import data as shelf
    from cocos.checkpoints import encoded

    function = ":" in model and not Path(model).exists()
    if file and data and not function:
        raise InputError(f"{file} and --data {data}: give the training data once")
    read, data = file or data, data or file
    if not data:
        raise InputError("missing argument 'data'; see cocos encode --help")
    if pictures not in encoded.PICTURES:
        raise InputError(f"--pictures {pictures}: expected one of {', '.join(encoded.PICTURES)}")
    if batch_size is not None and batch_size < 1:
        raise InputError(f"--batch-size {batch_size}: expected at least 1")
    _free(out, data)
    options = {name: value for name, value in (("columns", columns), ("images", images)) if value is not None}
    own = shelf.is_own(data)
    source = replace(shelf.own(data), path=Path(data)) if own else shelf.find(data, options)
    if source.splits and split == "train" and split not in source.splits:
        split = source.splits[0]  # of data whose splits have other names
    rows = source.load(split)
    source = replace(source, loader=lambda _: rows)
    frozen = checkpoints.open(Path(read), data=source, model=model)
    if batch_size is not None and frozen.encoder is not None:
        frozen = replace(frozen, encoder=lambda build=frozen.encoder: _limited(build(), batch_size))
    with progress() as start:
        embeddings = frozen.embed(split, device, start("encoding"))
    about = _provenance(frozen, source, rows)
    encoded.write(out, embeddings, about, pictures)
    document = about | {"path": str(out), **_sizes(embeddings)}
    return Answer(
        text=lambda: _said(out, embeddings),
        document=lambda: document,
        about=[f"{data} ({source.kind}, {split}) under {model} ({frozen.format})"],
        notes=[*frozen.notes, *embeddings.notes],
        wrote=(out,),
    )


def _free(out: Path, data: str) -> None:
    """Refuse an output that is there, or that cannot be written, before anything is encoded."""
    from cocos.base import writing
    from cocos.checkpoints.encoded import FILE_SUFFIXES

    if out.suffix not in FILE_SUFFIXES:
        raise InputError(f"--out {out}: expected a file that ends in {' or '.join(FILE_SUFFIXES)}")
    if out.exists():
        raise InputError(f"--out {out}: it exists already; remove it, or name another file")
    writing.apart(writing.output(out, "--out"), data)


def _limited(encoder: Any, batch_size: int) -> Any:
    """Let an encoder take as many rows at once as the user says."""
    encoder.items_at_once = batch_size
    return encoder


def _provenance(frozen: "Checkpoint", source: "Source", rows: "TrainingSet") -> dict[str, Any]:
    """Describe the model and the data of the embeddings as plain data."""
    import cocos

    loss = frozen.trained_with
    plain = {key: each for key, each in frozen.contents.items() if isinstance(each, str | int | float | bool)}
    return {
        "cocos": cocos.__version__,
        "model": {
            "path": str(frozen.path),
            "sha256": frozen.sha256,
            "format": frozen.format,
            "contents": {key: str(each)[:300] for key, each in plain.items()},
        },
        "data": {
            "path": str(source.path or source.kind),
            "kind": source.kind,
            "split": rows.split,
            "sha256": rows.identity,
        },
        "notes": list(rows.notes),
        "loss": {"name": loss, "parameters": frozen.recorded.get(loss, {})} if loss else None,
    }


def _sizes(embeddings: "Embeddings") -> dict[str, Any]:
    candidates = 0 if embeddings.shared else len(embeddings.candidate)
    return {
        "queries": len(embeddings.query),
        "candidates": candidates,
        "width": embeddings.query.shape[1],
        "groups": len(embeddings.groups.queries),
        "directions": list(embeddings.directions),
        "hard_negatives": 0 if embeddings.negatives is None else int((embeddings.negatives >= 0).sum()),
    }


def _said(out: Path, embeddings: "Embeddings") -> str:
    sizes = _sizes(embeddings)
    rows = f"{sizes['queries']} samples" if embeddings.shared else f"{sizes['queries']} queries"
    if sizes["candidates"]:
        rows += f", {sizes['candidates']} {'proxies' if embeddings.proxies else 'candidates'}"
    more = f", {sizes['hard_negatives']} hard negatives" if sizes["hard_negatives"] else ""
    step = f"next: cocos count {shlex.quote(str(out))}"
    return f"{rows} in {sizes['groups']} groups{more}, {sizes['width']} numbers each\n{step}"
