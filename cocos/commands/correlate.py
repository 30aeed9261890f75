"""`cocos correlate`."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from cocos.commands._answer import Answer, checked, lines, saved
from cocos.commands._options import Width
from cocos.commands._program import command

if TYPE_CHECKING:
    import xarray as xr

# Panels that stand side by side in the figure, and numbers that it shows.
ABREAST, MOST_X_DRAWN = 2, 4


def _split(given: list[str] | None) -> list[str]:
    """Names that are given one by one, or separated by commas."""
    return [name.strip() for each in given or [] for name in each.split(",") if name.strip()]


def _draw(found: "xr.Dataset", width: str | None, path: Path) -> Path:
    """Draw a panel for every x, and before it one with the checkpoints where there are several."""
    from cocos import plots
    from cocos.plots.correlate import size
    from cocos.reports import saving

    shown = ("checkpoints", "runs") if found.sizes["step"] > 1 else ("runs",)
    names = [str(name) for name in found["x"].values[:MOST_X_DRAWN]]
    panels = [functools.partial(plots.correlate, found, x=name, show=show) for name in names for show in shown]
    columns = min(ABREAST, len(panels))
    wide, high = size(found)
    whole = (wide * columns, high * -(-len(panels) // columns))
    return saving.save_panels(panels, path, size=whole, width=width, columns=columns)


@command(
    "Training runs",
    3,
    results=("files",),
    epilog="Example: cocos correlate runs/*.nc --x contributing,effective --out runs.png",
)
def correlate(
    files: Annotated[
        list[Path],
        Argument(
            metavar="FILE...",
            help="Results of count, evaluate or run (.nc), stores of cocos.Monitor (.jsonl), or tables of runs (.nc).",
            show_default=False,
        ),
    ],
    x: Annotated[
        list[str] | None,
        Option(
            "--x",
            help="Number of the runs, like contributing; repeatable. [contributing, effective, idle, hardest_share]",
        ),
    ] = None,
    y: Annotated[str | None, Option("--y", help="Number that x is correlated with. [rsum, or r1]")] = None,
    family: Annotated[
        str, Option(help="Coordinate within whose values settings are compared, like family or family,batch_size.")
    ] = "family",
    config: Annotated[str, Option(help="Coordinate that the seeds of a setting share.")] = "config",
    where: Annotated[
        list[str] | None, Option(help="Only runs with a value of a coordinate, like batch_size=128; repeatable.")
    ] = None,
    baseline: Annotated[
        list[str] | None, Option(help="Number that x is to surpass, like rsum_val; repeatable.")
    ] = None,
    holm: Annotated[
        bool, Option("--holm/--no-holm", help="Adjust p-values between settings for the number of x.")
    ] = True,
    permutations: Annotated[int, Option(help="Number of random orders of a test.")] = 10_000,
    resamples: Annotated[int, Option(help="Number of resamples of an interval.")] = 10_000,
    level: Annotated[float, Option(help="Level of the intervals.")] = 0.95,
    seed: Annotated[int, Option(help="Seed for random orders and resamples.")] = 0,
    out: Annotated[
        Path | None,
        Option(help="Write the Dataset (.nc), or draw every run as a point (.png, .pdf, .svg), to this file."),
    ] = None,
    figure: Annotated[
        Path | None, Option(help="Draw every run as a point to this file as well (.png, .pdf, .svg).")
    ] = None,
    width: Width = None,
):
    """Correlate counts and recall over many runs, at every level from checkpoints to families."""
    from cocos import measures
    from cocos.base import writing
    from cocos.reports import saving
    from cocos.reports.correlate import tables

    draws = checked(out, *files, figures=True)
    if figure is not None:
        saving.writable(figure)
        writing.apart(figure, *files, out)
    saving.inches(width)
    found = measures.correlate(
        files,
        _split(x),
        y,
        family=family,
        config=config,
        where=where or [],
        baseline=_split(baseline),
        holm=holm,
        permutations=permutations,
        resamples=resamples,
        level=level,
        seed=seed,
    )
    draw = functools.partial(_draw, found, width)
    wrote = list(saved(found, out, draw if draws else None))
    if figure is not None:
        wrote.append(draw(figure))
    return Answer(
        text=lambda: "\n\n".join(lines(each) for each in tables(found)),
        document=lambda: measures.document("correlate", found),
        wrote=wrote,
    )
