"""`cocos figures`."""

import time
from pathlib import Path

from cocos.commands._answer import Answer, progress
from cocos.commands._options import argument, option
from cocos.commands._program import command


@command(
    "The papers and the repository",
    2,
    options={
        "names": argument(list[str] | None, "Names of the figures. [all]", None, metavar=None),
        "analysis": option(Path, "Folder of the scripts.", Path("analysis")),
        "out": option(Path, "Folder of the figures.", Path("figures")),
        "fresh": option(bool, "Compute all data again.", False, "--fresh"),
    },
)
def figures(names, analysis, out, fresh) -> Answer:
    """Make the figures of the repository again: their data if an input has changed, the files, the index."""
    from cocos.reports import figures as scripts

    begun = time.monotonic()
    with progress() as start:
        made = scripts.run(names or [], analysis=analysis, folder=out, fresh=fresh, progress=start)
    files, seconds = sum(len(each.files) for each in made), time.monotonic() - begun
    return Answer(
        text=lambda: scripts.table(made),
        document=lambda: [{"name": e.name, "computed": e.computed, "files": list(map(str, e.files))} for e in made],
        wrote=[f"{files} files and {out / 'README.md'} in {seconds:.0f} s"],
    )
