"""`cocos join`."""

from pathlib import Path

from cocos.commands._answer import Answer, answer, checked
from cocos.commands._options import SHARED, argument
from cocos.commands._program import command

JOIN_PLACE = 200  # after the other commands of its section


@command(
    "Look at a file",
    JOIN_PLACE,
    results=("parts",),
    epilog="Example: cocos join part1.nc part2.nc part3.nc --out counts.nc",
    options={
        "parts": argument(list[Path], "Results of cocos count --part i/n --out, all of them.", metavar="PART..."),
        "out": SHARED["out"],
    },
)
def join(parts, out) -> Answer:
    """Join the parts of a count: the same result as in one run, bit for bit."""
    from cocos import results

    checked(out, *parts)
    found = results.parts.join([results.open(each) for each in parts], list(map(str, parts)))
    return answer("count", found, out, about=[f"{len(parts)} parts"])
