"""`cocos encode`."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import cocos
from cocos.cli import options, output
from cocos.cli.app import app
from cocos.cli.options import option

DATA_HELP = "Training data: a file, a folder, or file.py:function. With --data: the file that --model reads."
COLUMNS_HELP = "Columns of a table: query=NAME,positive=NAME,negative=NAME,NAME or text=NAME,label=NAME."


@app.command(epilog="Example: cocos encode pairs.jsonl --model all-MiniLM-L6-v2 --out embeddings.npz")
def encode(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP)],
    model: Annotated[str, option("Frozen model: a checkpoint or folder, or file.py:function.")],
    out: Annotated[Path, option("Write the embeddings to this file (.npz).")],
    data: Annotated[str | None, option("Training data, if DATA is a file that --model reads.")] = None,
    split: options.Split = None,
    columns: Annotated[str | None, option(COLUMNS_HELP, "by name")] = None,
    images: Annotated[str | None, option("Folder of the images in a caption file.", "the folder of DATA")] = None,
    device: options.Device = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Encode training data with a frozen model and save the embeddings."""
    output.check_output(out, file, data, suffixes=(".npz",))
    data = data or file
    if cocos.data.is_user_data(data):
        source = replace(cocos.data.from_user(data), path=Path(data))
    else:
        source = cocos.data.find(data, options.chosen(context, "columns", "images"))
    split = split or ("train" if "train" in source.splits or not source.splits else source.splits[0])
    rows = source.load(split)
    checkpoint = cocos.open(Path(file), data=replace(source, loader=lambda _: rows), model=model)
    with output.progress(quiet) as start:
        embeddings = checkpoint.embed(split, device, start("encoding"))
    provenance = cocos.checkpoints.formats.embeddings.describe_provenance(checkpoint, source, rows)
    embeddings.save(out, provenance)
    query, candidate = embeddings.query, embeddings.candidate
    sizes = {"queries": len(query), "candidates": len(candidate), "width": query.shape[1]}
    text = f"{embeddings!r}\nnext: cocos count {shlex.quote(str(out))}"
    output.print_result(
        context, [text], provenance | {"path": str(out)} | sizes, [*checkpoint.notes, *embeddings.notes]
    )
