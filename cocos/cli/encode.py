"""`cocos encode`."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import app
from cocos.cli.options import option

DATA_HELP = (
    "Training data: a file, a folder, or file.py:function. With --data: the file that the function of --model reads."
)
COLUMNS_HELP = "Columns of a table: query=NAME,positive=NAME,negative=NAME,NAME or text=NAME,label=NAME."
IMAGES_HELP = "Folder of the images that a caption file lists."
PICTURES_DEFAULT = "paths if all are in the output's folder"


@app.command(epilog="Example: cocos encode pairs.jsonl --model all-MiniLM-L6-v2 --out embeddings.npz")
def encode(
    context: typer.Context,
    model: Annotated[str, option("Frozen model: a checkpoint or folder, or file.py:function.")],
    out: Annotated[Path, option("Write the embeddings to this file (.npz).")],
    file: Annotated[str | None, typer.Argument(metavar="[DATA]", help=DATA_HELP, show_default=False)] = None,
    data: Annotated[str | None, option("Training data, instead of DATA.")] = None,
    split: options.Split = None,
    columns: Annotated[str | None, option(COLUMNS_HELP, "by name")] = None,
    images: Annotated[str | None, option(IMAGES_HELP, "that of DATA")] = None,
    pictures: Annotated[Literal["auto", "none"], option("Pictures in the output.", PICTURES_DEFAULT)] = "auto",
    device: options.Device = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Encode training data with a frozen model and save the embeddings."""
    from cocos import checkpoints
    from cocos import data as formats
    from cocos.checkpoints.formats import embeddings as embeddings_file

    function = ":" in model and not Path(model).exists()
    if file and data and not function:
        raise InputError(f"{file} and --data {data}: expected the training data once")
    read, data = file or data, data or file
    if not data:
        raise InputError("missing argument 'data'; see cocos encode --help")
    if out.exists():
        raise InputError(f"--out {out}: exists already; remove it or choose another file")
    output.check_output(out, data, suffixes=(".npz",))
    if formats.is_user_data(data):
        source = replace(formats.from_user(data), path=Path(data))
    else:
        source = formats.find(data, options.chosen(context, "columns", "images"))
    split = split or "train"
    if source.splits and split == "train" and split not in source.splits:
        split = source.splits[0]  # of data whose splits have other names
    rows = source.load(split)
    source = replace(source, loader=lambda _: rows)
    checkpoint = checkpoints.open(Path(read), data=source, model=model)
    with output.progress(quiet) as start:
        embeddings = checkpoint.embed(split, device or "auto", start("encoding"))
    provenance = embeddings_file.describe_provenance(checkpoint, source, rows)
    embeddings_file.write(out, embeddings, provenance, pictures)
    sizes = {
        "queries": len(embeddings.query),
        "candidates": 0 if embeddings.shared else len(embeddings.candidate),
        "width": embeddings.query.shape[1],
        "groups": len(embeddings.groups.queries),
        "directions": list(embeddings.directions),
        "hard_negatives": 0 if embeddings.negatives is None else int((embeddings.negatives >= 0).sum()),
    }
    labels = {"queries": "queries", "candidates": "proxies" if embeddings.proxies else "candidates"}
    labels |= {"groups": "groups", "hard_negatives": "hard negatives", "width": "dimensions"}
    summary = ", ".join(f"{sizes[key]} {label}" for key, label in labels.items() if sizes[key])
    output.print_result(
        context,
        lambda: [f"{summary}\nnext: cocos count {shlex.quote(str(out))}"],
        lambda: provenance | {"path": str(out), **sizes},
        about=[f"{data} ({source.kind}, {split}) under {model} ({checkpoint.format})"],
        notes=[*checkpoint.notes, *embeddings.notes],
        wrote=out,
    )
