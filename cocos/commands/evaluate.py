"""`cocos evaluate`."""

from pathlib import Path
from typing import Annotated

from typer import Option

from cocos import writing
from cocos.commands._answer import Answer, notes_of, saved
from cocos.commands._options import AsJson, Data, Device, File, Model, Out, Quiet, Seed, Trust, whole_numbers
from cocos.commands._program import command
from cocos.commands._progress import progress

__all__ = ["evaluate"]


@command("Look at a file", 4)
def evaluate(
    file: File,
    k: Annotated[str, Option(help="Cut-offs of R@k and mAP@k.")] = "1,5,10",
    folds: Annotated[int, Option(help="Number of parts to cut the set into: 5 is the 1k protocol of COCO.")] = 1,
    distractors: Annotated[
        Path | None, Option(help="A second file of embeddings, whose candidates match no query.")
    ] = None,
    metric: Annotated[str, Option(help="Score of a pair: cosine, dot, euclidean, ...")] = "cosine",
    seed: Seed = 0,
    split: Annotated[str | None, Option(help="Split of the checkpoint's data. [test, val, dev or train]")] = None,
    device: Device = "auto",
    data: Data = None,
    model: Model = None,
    trust: Trust = False,
    as_json: AsJson = False,
    out: Out = None,
    quiet: Quiet = False,
):
    """Measure retrieval in every direction: R@k, median and mean rank, MRR, mAP, mAP@R, R-precision, PR-AUC, NMI.

    A negative that ties with a positive ranks above it. All values except ranks are in percent.
    """
    cutoffs = whole_numbers(k, "--k", "1,5,10")
    from cocos import checkpoints, measures, results
    from cocos.reports import table

    if out is not None:
        results.writable(out)
    writing.apart(out, file, data, distractors)
    frozen = checkpoints.open(file, data=data, model=model or None, trust=trust)
    more = None if distractors is None else checkpoints.open(distractors)
    with progress(quiet) as start:
        found = measures.evaluate(
            frozen,
            metric=metric,
            ks=cutoffs,
            folds=folds,
            distractors=more,
            seed=seed,
            split=split,
            device=device,
            progress=start,
        )
    return Answer(
        text=lambda: table("evaluate", found),
        document=lambda: results.evaluated(found),
        notes=[*frozen.notes, *(more.notes if more else ()), *notes_of(found)],
        wrote=saved(found, out),
    )
