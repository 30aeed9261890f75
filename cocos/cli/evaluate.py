"""`cocos evaluate`."""

from pathlib import Path
from typing import Annotated

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import Command, app
from cocos.cli.options import option

VERIFICATION = "Verification"  # panel of the help


@app.command(cls=Command)
def evaluate(
    context: typer.Context,
    file: options.File,
    loss: Annotated[str | None, option("Loss whose scores rank.", default="from the checkpoint, else none")] = None,
    metric: Annotated[
        str | None, option("Score of a pair: cosine, dot, euclidean, ...", default="of the loss, else cosine")
    ] = None,
    k: options.CutOffs = None,
    folds: Annotated[int | None, option("Folds to average over.", default="1")] = None,
    queries: Annotated[int | None, option("Number of queries to rank for.", default="all")] = None,
    distractors: Annotated[Path | None, option("Embeddings whose candidates match no query.")] = None,
    ensemble: Annotated[
        list[Path] | None, option("Embeddings of the same set by another model, concatenated; repeatable.")
    ] = None,
    verification: Annotated[
        bool,
        option(
            "One threshold for all pairs: EER, TAR at FAR, minDCF, ten-fold accuracy.",
            "--verification",
            panel=VERIFICATION,
        ),
    ] = False,
    trials: Annotated[
        Path | None, option("Lines `label a b` with row numbers or names, or LFW's pairs.txt.", panel=VERIFICATION)
    ] = None,
    prior: Annotated[float | None, option("Prior of a match, for minDCF.", default="0.01", panel=VERIFICATION)] = None,
    miss_cost: Annotated[float | None, option("Cost of a miss.", default="1", panel=VERIFICATION)] = None,
    false_accept_cost: Annotated[
        float | None, option("Cost of a false accept.", default="1", panel=VERIFICATION)
    ] = None,
    seed: options.Seed = None,
    data: options.Data = None,
    model: options.Model = None,
    dims: options.Dims = None,
    split: Annotated[
        str | None, option("Split of the checkpoint's data.", default="test, val, dev or train", panel=options.MODEL)
    ] = None,
    device: options.Device = "auto",
    out: options.Out = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Compute retrieval metrics for each direction.

    R@k, median and mean rank, MRR, mAP, mAP@R, R-precision, PR-AUC, NMI. A negative that ties with a positive ranks
    above it. All values except ranks are in percent. With --verification: decide whether two rows share an identity.
    """
    verification = verification or trials is not None
    ranking = options.given(
        ks=options.read_integers(k, "--k", "1,5,10"), folds=folds, queries=queries, distractors=distractors,
        ensemble=ensemble or None,
    )  # fmt: skip
    verifying = options.given(prior=prior, miss_cost=miss_cost, false_accept_cost=false_accept_cost)
    if wrong := ranking if verification else verifying:
        name = next(iter(wrong)).replace("ks", "k").replace("_", "-")
        raise InputError(f"--{name} {'does not go with' if verification else 'belongs to'} --verification")
    output.check_output(out, file, data, distractors, trials, *(ensemble or ()))
    common = options.given(metric=metric, loss=loss, split=split, device=device)

    from cocos import checkpoints, measures

    checkpoint = options.open_file(file, data, model, dims)
    notes = list(checkpoint.notes)
    if verification:
        with output.progress(quiet) as start:
            dataset = measures.verification(checkpoint, trials=trials, progress=start, **common, **verifying)
        return output.show(context, "verification", dataset, out=out, as_json=json, quiet=quiet, notes=notes)
    if distractors is not None:
        more = checkpoints.distractors(distractors)
        ranking["distractors"] = more if dims is None else more.truncate(dims)
        notes += more.notes
    ranking["ensemble"] = [options.open_file(path, data, model, dims) for path in ensemble or ()]
    with output.progress(quiet) as start:
        dataset = measures.evaluate(checkpoint, progress=start, **common, **ranking, **options.given(seed=seed))
    output.show(context, "evaluate", dataset, out=out, as_json=json, quiet=quiet, notes=notes)
