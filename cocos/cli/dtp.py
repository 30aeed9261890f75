"""`cocos plot dtp`."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import typer

import cocos
from cocos.cli import options, output


def plot_dtp(context: typer.Context, files: Sequence[Path]) -> None:
    """Follow the distance to proxy over the checkpoints of runs."""
    from cocos.measures.dtp import same_classes

    output.check_output(context.params["out"], *files, suffixes=output.FIGURES + output.RESULTS)
    steps_by_run = cocos.checkpoints.runs.find_runs(files)
    paths_by_run = {name: list(run) for name, run in steps_by_run.items()}
    first = next(iter(steps_by_run.values()))
    steps = cocos.checkpoints.runs.common_steps(list(steps_by_run.values()))
    if steps is None:
        options.add_notes(context, f"note: {cocos.checkpoints.runs.NO_ORDER}")
    else:
        options.add_notes(context, f"note: steps {', '.join(map(str, steps))}: numbers in the file names")
    alpha: dict[str, Any] = {}
    for text in context.params["alpha"] or ():
        name, _, phases = text.rpartition("=")
        alpha |= dict.fromkeys([name] if name else paths_by_run, read_alpha(phases, steps or range(len(first))))
    alpha = {name: numbers[0] if len(set(numbers)) == 1 else numbers for name, numbers in alpha.items()}
    values = options.chosen(context, "split", "device")
    opener = partial(options.open_source, context)
    with output.progress(context.params["quiet"]) as start:
        dataset = cocos.measures.dtp(paths_by_run, steps=steps, alpha=alpha, opener=opener, progress=start, **values)
    same_classes(dataset)
    output.show(context, dataset)


def read_alpha(text: str, steps: Sequence[int]) -> list[float]:
    """Return alpha at each step: NUMBER, then NUMBER@STEP for each later phase."""
    first, *later = text.split(",")
    alpha = [*options.read_numbers("--alpha", first)] * len(steps)
    for phase in later:
        number, _, step = phase.partition("@")
        number, start = options.read_numbers("--alpha", f"{number},{step}")
        alpha = [number if step >= start else before for step, before in zip(steps, alpha, strict=True)]
    return alpha
