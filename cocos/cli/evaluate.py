"""`cocos evaluate`."""

from pathlib import Path
from typing import Annotated

import typer

import cocos
from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import app
from cocos.cli.options import option


@app.command()
def evaluate(
    context: typer.Context,
    file: options.File,
    loss: Annotated[str | None, option("Loss whose scores rank.", "from the checkpoint, else none")] = None,
    metric: Annotated[str | None, option("Score, such as cosine or dot.", "of the loss, else cosine")] = None,
    k: options.CutOffs = None,
    folds: Annotated[int | None, option("Folds to average over.", "1")] = None,
    queries: Annotated[int | None, option("Number of queries to rank for.", "all")] = None,
    distractors: Annotated[Path | None, option("Embeddings whose candidates match no query.")] = None,
    ensemble: Annotated[list[Path] | None, option("Other models of the same set, concatenated; repeatable.")] = None,
    verification: Annotated[bool, option("Decide whether pairs match.", "", None, "--verification")] = False,
    trials: Annotated[Path | None, option("Pairs to decide: lines `label a b`, or pairs.txt of LFW.")] = None,
    prior: Annotated[float | None, option("Prior of a match, for minDCF of --verification.", "0.01")] = None,
    seed: options.Seed = None,
    data: options.Data = None,
    model: options.Model = None,
    dims: options.Dims = None,
    split: Annotated[str | None, option("Split to evaluate.", "test, val, dev or train", options.MODEL)] = None,
    device: options.Device = None,
    out: options.Out = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Compute retrieval metrics for each direction.

    R@k, median and mean rank, MRR, mAP, mAP@R, R-precision, PR-AUC, NMI. A negative that ties with a positive ranks
    above it. All values except ranks are in percent. With --verification: EER, TAR at FAR, minDCF, ten-fold accuracy.
    """
    verification = verification or trials is not None
    ranking = options.chosen(context, "k", "folds", "queries", "distractors", "ensemble")
    if ranking and verification:
        raise InputError(f"--{next(iter(ranking))} does not go with --verification")
    output.check_output(out, file, data, distractors, trials, *(ensemble or ()))
    checkpoint = options.open_source(context, file)
    values = options.chosen(context, "loss", "metric", "split", "device")
    with output.progress(quiet) as start:
        if verification:
            values |= options.chosen(context, "prior")
            dataset = cocos.measures.verification(checkpoint, trials=trials, progress=start, **values)
        else:
            values |= options.chosen(context, "folds", "queries", "seed", "distractors")
            values |= {} if k is None else {"ks": options.read_numbers("--k", k, int)}
            values["ensemble"] = [options.open_source(context, path) for path in ensemble or ()]
            dataset = cocos.measures.evaluate(checkpoint, progress=start, **values)
    output.show(context, dataset)
