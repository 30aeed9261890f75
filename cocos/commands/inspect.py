"""`cocos inspect`."""

from cocos.commands._answer import Answer
from cocos.commands._options import SHARED, option
from cocos.commands._program import command


@command(
    "Look at a file",
    0,
    options={
        "file": SHARED["file"],
        "data": SHARED["data"],
        "hashes": option(
            bool, "Read every shard of a set, and compare its sha256 with that in the manifest.", False, "--hashes"
        ),
    },
)
def inspect(file, data, hashes) -> Answer:
    """Describe a checkpoint, what it recorded of its training, and the next command. No code in it is executed."""
    from cocos import checkpoints
    from cocos.reports import contents

    about = checkpoints.inspect(file, data, hashes=hashes)
    return Answer(text=lambda: contents.table(about), document=lambda: about, notes=about["notes"])
