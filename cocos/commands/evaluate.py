"""`cocos evaluate`."""

from pathlib import Path
from typing import Annotated

from typer import Option

from cocos.commands._answer import answer, checked, progress
from cocos.commands._options import Device, File, Opening, Out, Seed, whole_numbers
from cocos.commands._program import command


@command("Look at a file", 4)
def evaluate(
    file: File,
    source: Opening,
    k: Annotated[str, Option(help="Cut-offs of R@k and mAP@k.")] = "1,5,10",
    folds: Annotated[int, Option(help="Number of parts to cut the set into: 5 is the 1k protocol of COCO.")] = 1,
    distractors: Annotated[
        Path | None, Option(help="A second file of embeddings, whose candidates match no query.")
    ] = None,
    metric: Annotated[str, Option(help="Score of a pair: cosine, dot, euclidean, ...")] = "cosine",
    seed: Seed = 0,
    split: Annotated[str | None, Option(help="Split of the checkpoint's data. [test, val, dev or train]")] = None,
    device: Device = "auto",
    out: Out = None,
):
    """Measure retrieval in every direction: R@k, median and mean rank, MRR, mAP, mAP@R, R-precision, PR-AUC, NMI.

    A negative that ties with a positive ranks above it. All values except ranks are in percent.
    """
    cutoffs = whole_numbers(k, "--k", "1,5,10")
    from cocos import checkpoints, measures

    checked(out, file, source.data, distractors)
    frozen = source.open(file)
    more = None if distractors is None else checkpoints.open(distractors)
    with progress() as start:
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
    return answer("evaluate", found, out, notes=[*frozen.notes, *(more.notes if more else ())])
