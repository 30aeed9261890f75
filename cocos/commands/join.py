"""`cocos join`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from cocos.commands._answer import Answer, answer, checked
from cocos.commands._program import command

JOIN_PLACE = 200  # after the other commands of its section


@command(
    "Look at a file",
    JOIN_PLACE,
    results=("parts",),
    epilog="Example: cocos join part1.nc part2.nc part3.nc --out counts.nc",
)
def join(
    parts: Annotated[
        list[Path],
        Argument(help="Results of cocos count --part i/n --out, all of them.", metavar="PART...", show_default=False),
    ],
    out: Annotated[Path | None, Option(help="Write the Dataset to this file (.nc).")] = None,
) -> Answer:
    """Join the parts of a count: the same result as in one run, bit for bit."""
    from cocos import results

    checked(out, *parts)
    found = results.parts.join([results.open(each) for each in parts], list(map(str, parts)))
    return answer("count", found, out, about=[f"{len(parts)} parts"])
