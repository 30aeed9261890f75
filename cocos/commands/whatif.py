"""`cocos whatif`: the questions `replay` (--what), `solve` (--effective) and `temperature` (--settles)."""

from cocos.base.errors import InputError
from cocos.commands._answer import Answer
from cocos.commands._options import option
from cocos.commands._program import command
from cocos.commands._questions import QUESTION_ROWS, instead

BATCH_SIZE = option(
    list[str] | None,
    "Pairs or queries in a batch; with --settles repeatable, or numbers separated by commas; all is the whole set.",
)
EFFECTIVE = option(
    float | None,
    "Find the parameter with this effective number of negatives: the temperature, scale or margin, or --parameter.",
)
SETTLES = option(bool, "Find where a learned temperature settles, for each batch size.", False, "--settles")


@command(
    options=QUESTION_ROWS["temperature"].options()
    | QUESTION_ROWS["solve"].options()
    | QUESTION_ROWS["replay"].options()
    | {"batch_size": BATCH_SIZE, "effective": EFFECTIVE, "settles": SETTLES},
    first="what effective settles",
    epilog="Example: cocos whatif embeddings.npz --loss ntxent --what temperature=0.02,0.05",
)
def whatif(**asked) -> Answer | None:
    """Ask what would change with another temperature, margin, batch size, mining rule or loss on these embeddings.

    Without --effective or --settles the same batches are replayed with --what, or with the usual changes.
    """
    if asked["settles"]:
        return instead("temperature", "--settles", settles=None)
    name, by = ("replay", "--what") if asked["effective"] is None else ("solve", "--effective")
    sizes = asked["batch_size"] or [None]
    if len(sizes) > 1:
        raise InputError(f"--batch-size {' '.join(sizes)}: several sizes go with --settles; {by} takes one")
    return instead(name, by, batch_size=sizes[0])
