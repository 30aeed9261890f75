"""`cocos inspect`."""

from cocos.commands._answer import Answer
from cocos.commands._options import SHARED
from cocos.commands._program import command


@command(
    options={
        "file": SHARED["file"],
        "data": SHARED["data"],
    },
)
def inspect(file, data) -> Answer:
    """Describe a checkpoint, what it recorded of its training, and the next command. No code in it is executed."""
    from cocos import checkpoints
    from cocos.reports import contents

    about = checkpoints.inspect(file, data)
    return Answer(text=lambda: contents.table(about), document=lambda: about, notes=about["notes"])
