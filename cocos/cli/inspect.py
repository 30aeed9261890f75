"""`cocos inspect`."""

from cocos.cli.app import Command, app
from cocos.cli.options import Data, File, Json, Quiet
from cocos.cli.output import print_result


@app.command(cls=Command)
def inspect(file: File, data: Data = None, json: Json = False, quiet: Quiet = False):
    """Identify a file, show its recorded settings and suggest the next command. Never executes code from the file."""
    from cocos import checkpoints
    from cocos.base import terminal
    from cocos.reports import contents

    about = checkpoints.inspect(file, data)

    def text() -> str:
        table = contents.table(about)
        return table if isinstance(table, str) else table.text(terminal.room())

    print_result(text, lambda: about, as_json=json, quiet=quiet, notes=about["notes"])
