"""`cocos evaluate`."""

from pathlib import Path
from typing import Annotated

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import app
from cocos.cli.options import option

VERIFICATION = "Verification"  # panel of the help
METRIC_HELP = "Score of a pair: cosine, dot, euclidean, ..."
ENSEMBLE_HELP = "Embeddings of the same set by another model, concatenated; repeatable."
VERIFICATION_HELP = "One threshold for all pairs: EER, TAR at FAR, minDCF, ten-fold accuracy."
TRIALS_HELP = "Lines `label a b` with row numbers or names, or LFW's pairs.txt."
SPLIT_HELP, SPLITS = "Split of the checkpoint's data.", "test, val, dev or train"


@app.command()
def evaluate(
    context: typer.Context,
    file: options.File,
    loss: Annotated[str | None, option("Loss whose scores rank.", "from the checkpoint, else none")] = None,
    metric: Annotated[str | None, option(METRIC_HELP, "of the loss, else cosine")] = None,
    k: options.CutOffs = None,
    folds: Annotated[int | None, option("Folds to average over.", "1")] = None,
    queries: Annotated[int | None, option("Number of queries to rank for.", "all")] = None,
    distractors: Annotated[Path | None, option("Embeddings whose candidates match no query.")] = None,
    ensemble: Annotated[list[Path] | None, option(ENSEMBLE_HELP)] = None,
    verification: Annotated[bool, option(VERIFICATION_HELP, "", VERIFICATION, "--verification")] = False,
    trials: Annotated[Path | None, option(TRIALS_HELP, "", VERIFICATION)] = None,
    prior: Annotated[float | None, option("Prior of a match, for minDCF.", "0.01", VERIFICATION)] = None,
    seed: options.Seed = None,
    data: options.Data = None,
    model: options.Model = None,
    dims: options.Dims = None,
    split: Annotated[str | None, option(SPLIT_HELP, SPLITS, options.MODEL)] = None,
    device: options.Device = None,
    out: options.Out = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Compute retrieval metrics for each direction.

    R@k, median and mean rank, MRR, mAP, mAP@R, R-precision, PR-AUC, NMI. A negative that ties with a positive ranks
    above it. All values except ranks are in percent. With --verification: decide whether two rows share an identity.
    """
    verification = verification or trials is not None
    ranking = options.chosen(context, "k", "folds", "queries", "distractors", "ensemble")
    if wrong := ranking if verification else options.chosen(context, "prior"):
        raise InputError(f"--{next(iter(wrong))} {'does not go with' if verification else 'belongs to'} --verification")
    output.check_output(out, file, data, distractors, trials, *(ensemble or ()))

    from cocos import checkpoints, measures

    checkpoint = options.open_source(context, file)
    notes = list(checkpoint.notes)
    if verification:
        common = options.chosen(context, "loss", "metric", "split", "device", "prior")
        with output.progress(quiet) as start:
            dataset = measures.verification(checkpoint, trials=trials, progress=start, **common)
        return output.show(context, dataset, notes=notes)
    if distractors is not None:
        more = checkpoints.distractors(distractors)
        notes += more.notes
        distractors = more if dims is None else more.truncate(dims)
    with output.progress(quiet) as start:
        dataset = measures.evaluate(
            checkpoint,
            distractors=distractors,
            ensemble=[options.open_source(context, path) for path in ensemble or ()],
            progress=start,
            **({} if k is None else {"ks": k}),
            **options.chosen(context, "loss", "metric", "folds", "queries", "seed", "split", "device"),
        )
    output.show(context, dataset, notes=notes)
