"""`cocos dtp`."""

import functools
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from cocos.base.errors import InputError, nearest
from cocos.commands._answer import answer, checked, progress
from cocos.commands._options import Device, Figure, Opening, Split, Width, whole_numbers
from cocos.commands._program import command


def _boundaries(given: list[str], names: list[str]) -> dict[str, float]:
    """Read alpha of the runs, given for all of them or by name."""
    found = {}
    for item in given:
        name, sign, value = item.rpartition("=")
        if sign and name not in names:
            raise InputError(nearest("run", name, names))
        try:
            number = float(value)
        except ValueError:
            raise InputError(f"--alpha {item!r}: write it as a number, or as RUN=NUMBER like warp=3") from None
        if not 0 < number < float("inf"):
            raise InputError(f"--alpha {item!r}: expected a finite number above 0")
        for each in [name] if sign else names:
            if each in found:
                raise InputError(f"--alpha {item!r}: the run {each!r} has one already")
            found[each] = number
    return found


def _about_steps(at: list | None, given: bool, unnumbered: str) -> list[str]:
    """A note on the steps: the numbers in the names of the files, or none where they were given."""
    if at is None:
        return [unnumbered]
    if given:
        return []
    steps = f"steps {', '.join(map(str, at))}: the numbers" if len(at) > 1 else f"step {at[0]}: the number"
    return [f"{steps} in the names of the files"]


@command("Plots", 3)
def dtp(
    run: Annotated[list[Path], Argument(help="The checkpoints of one run, or a folder for each run.")],
    source: Opening,
    alpha: Annotated[
        list[str] | None,
        Option(help="Boundary of the warp, for all runs or as RUN=NUMBER; repeatable. [as recorded]"),
    ] = None,
    metric: Annotated[str, Option(help="Distance: euclidean (eq. 9), squared_euclidean or cosine.")] = "euclidean",
    steps: Annotated[
        str | None,
        Option(help="Steps of the checkpoints, like 1,5,10. [the numbers in their names, or 0, 1, 2, ...]"),
    ] = None,
    device: Device = "auto",
    split: Split = "train",
    out: Figure = Path("dtp.png"),
    width: Width = None,
):
    """Follow the distance to proxy over the checkpoints of runs: how far a class settles from its proxy."""
    given = None if steps is None else whole_numbers(steps, "--steps", "1,5,10")
    from cocos import measures, plots
    from cocos.checkpoints import series
    from cocos.measures.dtp import same_classes
    from cocos.reports import saving

    found = series.files(run)
    figure = checked(out, source.data, *(each.path for files in found.values() for each in files), figures=True)
    bounds = _boundaries(alpha or [], list(found))
    at = series.steps(found) if given is None else given
    notes = _about_steps(at, given is not None, series.unnumbered(found))
    for name, files in found.items():
        last = source.open(files[-1].path)
        if name not in bounds and (recorded := series.recorded_alpha(last)) is not None:
            bounds[name] = recorded
            notes.append(f"alpha of {name}: {recorded:g}, recorded in {files[-1].path}")
        notes += last.notes
    with progress() as start:
        opened = {
            name: series.Series(files, source.open, split, device, start(f"measuring {name}"))
            for name, files in found.items()
        }
        measured = measures.dtp(opened, steps=at, alpha=bounds, metric=metric)
    same_classes(measured)
    seen = [pair for each in opened.values() for pair in each.seen]
    measured = measured.assign_attrs(
        checkpoint_path="\n".join(path for path, _ in seen), checkpoint_sha256="\n".join(sha for _, sha in seen)
    )
    draw = functools.partial(saving.save_plot, plots.dtp, measured, size=(7.2, 4.6), width=width)
    return answer("dtp", measured, out, draw=draw if figure else None, notes=notes)
