"""Say of each re-created bug what `verify --same-as` says: python -m analysis.known_bugs [NAME|list|page]."""

from typing import Annotated

import torch
from typer import Argument, BadParameter, Typer

from analysis.known_bugs import page
from analysis.known_bugs.bugs import BUGS, said

app = Typer(add_completion=False)
WORDS = ("list", "page")


@app.command()
def main(name: Annotated[str, Argument(help="A bug, `list`, or `page` to write its documentation; all bugs.")] = ""):
    """Print each bug, its thread, and the verdict on the fault and on its right twin."""
    torch.set_num_threads(1)
    if name and name not in (*BUGS, *WORDS):
        raise BadParameter(f"{name!r}, expected one of {', '.join((*BUGS, *WORDS))}")
    if name == "page":
        print(f"wrote {page.write()}")
        return
    for each in BUGS if name in {"", "list"} else [name]:
        bug = BUGS[each]
        print(f"{each}  {bug.library}: {bug.thread}")
        if name != "list":
            print(f"  fault: {bug.fault}\n    cocos: {said(bug)}\n  right twin:\n    cocos: {said(bug, cured=True)}")


if __name__ == "__main__":
    app()
