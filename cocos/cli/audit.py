"""`cocos audit`."""

from pathlib import Path
from typing import Annotated

import typer

import cocos
from cocos.cli import options, output
from cocos.cli.app import app
from cocos.cli.options import OUTPUT, option


@app.command(epilog="Example: cocos audit embeddings.npz --loss ntxent -p temperature=0.05 --out suspects.json")
def audit(
    context: typer.Context,
    file: options.File,
    loss: options.Loss = None,
    param: options.Param = None,
    batch_size: options.BatchSize = None,
    batches: options.NumberOfBatches = None,
    sample: options.Sample = None,
    per_group: options.PerGroup = None,
    seed: options.Seed = None,
    data: options.Data = None,
    model: options.Model = None,
    split: options.Split = None,
    device: options.Device = None,
    out: Annotated[Path | None, option("Write all suspected pairs (.json) or the Dataset (.nc).", "", OUTPUT)] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """List likely false negatives, ranked by push, and test filters against them."""
    output.check_output(out, file, data, suffixes=(".nc", ".json"))
    checkpoint, (chosen,), values, _ = options.open_with_losses(context, file)
    with output.progress(quiet) as start:
        dataset = cocos.measures.audit(checkpoint, chosen, progress=start, **values)
    items = checkpoint.items(split or "train")
    texts = items and items.texts(dataset.attrs["asks"])
    output.show(context, dataset, texts=texts)
