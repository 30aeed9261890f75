"""`cocos plan`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from cocos.commands._answer import answer, checked
from cocos.commands._options import Opening, Out, Split, whole_numbers
from cocos.commands._program import command

if TYPE_CHECKING:
    from cocos.checkpoints import Checkpoint
    from cocos.checkpoints.data import TrainingSet


@command(
    "Look at a file",
    8,
    epilog="Example: cocos plan pairs.jsonl --batch-size 32,128,512",
)
def plan(
    file: Annotated[
        Path, Argument(help="Training data, a file of embeddings, or a frozen checkpoint.", show_default=False)
    ],
    source: Opening,
    batch_size: Annotated[
        str | None, Option(help="Batch sizes, separated by commas. [usual ones below the number of rows]")
    ] = None,
    below: Annotated[
        float, Option(help="Bound on the probability of such a pair, for the largest batch that keeps it.")
    ] = 0.05,
    split: Split = "train",
    out: Out = None,
):
    """Tell how often a batch contains two rows of one group or text, from the data alone, and a safe size."""
    sizes = None if batch_size is None else whole_numbers(batch_size, "--batch-size", "32,128,512")
    from cocos import measures
    from cocos.checkpoints import data as shelf

    checked(out, file, source.data)
    if source.data is None and source.model is None and shelf.recognised(file):
        found = shelf.find(file)
        if split == "train" and found.splits and split not in found.splits:
            split = found.splits[0]  # of data whose splits have other names
        about, notes = f"{file} ({found.kind}, {split})", found.notes
        given: Checkpoint | TrainingSet = found.load(split)
    else:
        given = frozen = source.open(file)
        about, notes = f"{file} ({frozen.format})", frozen.notes
    made = measures.plan(given, sizes, below=below, split=split)
    return answer("plan", made, out, about=[about], notes=notes)
