"""`cocos figures`."""

import time
from pathlib import Path

from cocos.base.errors import InputError
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
        "check": option(
            bool, "List the stale figures, why each is stale and its time; make nothing.", False, "--check"
        ),
    },
)
def figures(names, analysis, out, fresh, check) -> Answer:
    """Make the figures of the repository again: their data if an input has changed, the files, the index."""
    from cocos.reports import figures as scripts

    if check and fresh:
        raise InputError("--check makes nothing and --fresh computes all: give one of them")
    if check:
        found = scripts.check(names or [], analysis=analysis, folder=out)
        stale = any(each.why for each in found)
        return Answer(
            text=lambda: scripts.checked_table(found) if stale else scripts.summary(found),
            document=lambda: [{"name": e.name, "stale": e.why or None, "seconds": e.seconds} for e in found],
            notes=[scripts.summary(found)] if stale else [],
            code=int(stale),
        )
    begun = time.monotonic()
    with progress() as start:
        made = scripts.run(names or [], analysis=analysis, folder=out, fresh=fresh, progress=start)
    files, seconds = sum(len(each.files) for each in made), time.monotonic() - begun
    return Answer(
        text=lambda: scripts.table(made),
        document=lambda: [{"name": e.name, "computed": e.computed, "files": list(map(str, e.files))} for e in made],
        wrote=[f"{files} files and {out / 'README.md'} in {seconds:.0f} s"],
    )
