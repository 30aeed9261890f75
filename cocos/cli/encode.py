"""`cocos encode`."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import Command, app
from cocos.cli.options import option

if TYPE_CHECKING:
    from cocos.checkpoints import Checkpoint
    from cocos.data import Source, TrainingSet
    from cocos.embeddings import Embeddings


@app.command(cls=Command, epilog="Example: cocos encode pairs.jsonl --model all-MiniLM-L6-v2 --out embeddings.npz")
def encode(
    model: Annotated[str, option("Frozen model: a checkpoint or folder, or file.py:function.")],
    out: Annotated[Path, option("Write the embeddings to this file (.npz, .safetensors).")],
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATA]",
            help="Training data: a file, a folder, or file.py:function. With --data: the file that the function of "
            "--model reads.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[str | None, option("Training data, instead of DATA.")] = None,
    split: options.Split = None,
    columns: Annotated[
        str | None,
        option(
            "Columns of a table: query=NAME,positive=NAME,negative=NAME,NAME or text=NAME,label=NAME.",
            default="by name",
        ),
    ] = None,
    images: Annotated[
        str | None, option("Folder of the images that a caption file lists.", default="that of DATA")
    ] = None,
    batch_size: Annotated[int | None, option("Rows to encode at once.", default="by encoder")] = None,
    pictures: Annotated[
        str,
        option(
            "Pictures in the output: auto, paths, thumbnails or none.",
            default="paths if all are in the output's folder, else thumbnails",
        ),
    ] = "auto",
    device: options.Device = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Encode training data with a frozen model and save the embeddings."""
    from cocos import checkpoints
    from cocos import data as formats
    from cocos.checkpoints import encoded

    function = ":" in model and not Path(model).exists()
    if file and data and not function:
        raise InputError(f"{file} and --data {data}: expected the training data once")
    read, data = file or data, data or file
    if not data:
        raise InputError("missing argument 'data'; see cocos encode --help")
    if pictures not in encoded.PICTURES:
        raise InputError(f"--pictures {pictures}: expected one of {', '.join(encoded.PICTURES)}")
    if batch_size is not None and batch_size < 1:
        raise InputError(f"--batch-size {batch_size}: expected at least 1")
    refuse_output(out, data)
    columns_and_images = options.given(columns=columns, images=images)
    if formats.is_own(data):
        source = replace(formats.own(data), path=Path(data))
    else:
        source = formats.find(data, columns_and_images)
    split = split or "train"
    if source.splits and split == "train" and split not in source.splits:
        split = source.splits[0]  # of data whose splits have other names
    rows = source.load(split)
    source = replace(source, loader=lambda _: rows)
    checkpoint = checkpoints.open(Path(read), data=source, model=model)
    if batch_size is not None and checkpoint.encoder is not None:
        checkpoint = replace(checkpoint, encoder=lambda build=checkpoint.encoder: limit_items(build(), batch_size))
    with output.progress(quiet) as start:
        embeddings = checkpoint.embed(split, device, start("encoding"))
    provenance = describe_provenance(checkpoint, source, rows)
    encoded.write(out, embeddings, provenance, pictures)
    sizes = describe_sizes(embeddings)
    output.print_result(
        lambda: summarise(out, embeddings, sizes),
        lambda: provenance | {"path": str(out), **sizes},
        as_json=json,
        quiet=quiet,
        about=[f"{data} ({source.kind}, {split}) under {model} ({checkpoint.format})"],
        notes=[*checkpoint.notes, *embeddings.notes],
        wrote=out,
    )


def refuse_output(out: Path, data: str) -> None:
    """Refuse an output that exists or cannot be written, before anything is encoded."""
    from cocos.base import writing
    from cocos.checkpoints.encoded import FILE_SUFFIXES

    if out.suffix not in FILE_SUFFIXES:
        raise InputError(f"--out {out}: expected a file that ends in {' or '.join(FILE_SUFFIXES)}")
    if out.exists():
        raise InputError(f"--out {out}: exists already; remove it or choose another file")
    writing.apart(writing.output(out, "--out"), data)


def limit_items(encoder: Any, batch_size: int) -> Any:
    """Limit the number of rows that an encoder takes at once."""
    encoder.items_at_once = batch_size
    return encoder


def describe_provenance(checkpoint: "Checkpoint", source: "Source", rows: "TrainingSet") -> dict[str, Any]:
    """Describe the model and the data of the embeddings."""
    import cocos

    loss = checkpoint.trained_with
    plain = {key: value for key, value in checkpoint.contents.items() if isinstance(value, str | int | float | bool)}
    return {
        "cocos": cocos.__version__,
        "model": {
            "path": str(checkpoint.path),
            "sha256": checkpoint.sha256,
            "format": checkpoint.format,
            "contents": {key: str(value)[:300] for key, value in plain.items()},
        },
        "data": {
            "path": str(source.path or source.kind),
            "kind": source.kind,
            "split": rows.split,
            "sha256": rows.identity,
        },
        "notes": list(rows.notes),
        "loss": {"name": loss, "parameters": checkpoint.recorded.get(loss, {})} if loss else None,
    }


def describe_sizes(embeddings: "Embeddings") -> dict[str, Any]:
    """Return the numbers of rows, groups, hard negatives and dimensions."""
    candidates = 0 if embeddings.shared else len(embeddings.candidate)
    return {
        "queries": len(embeddings.query),
        "candidates": candidates,
        "width": embeddings.query.shape[1],
        "groups": len(embeddings.groups.queries),
        "directions": list(embeddings.directions),
        "hard_negatives": 0 if embeddings.negatives is None else int((embeddings.negatives >= 0).sum()),
    }


def summarise(out: Path, embeddings: "Embeddings", sizes: dict[str, Any]) -> str:
    """Return the sizes of the embeddings and the next command as text."""
    rows = f"{sizes['queries']} samples" if embeddings.shared else f"{sizes['queries']} queries"
    if sizes["candidates"]:
        rows += f", {sizes['candidates']} {'proxies' if embeddings.proxies else 'candidates'}"
    more = f", {sizes['hard_negatives']} hard negatives" if sizes["hard_negatives"] else ""
    step = f"next: cocos count {shlex.quote(str(out))}"
    return f"{rows} in {sizes['groups']} groups{more}, {sizes['width']} numbers each\n{step}"
