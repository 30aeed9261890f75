"""`cocos plot dtp`."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cocos.base.errors import InputError, nearest
from cocos.cli import options, output

if TYPE_CHECKING:
    from cocos.checkpoints import Checkpoint


def plot_dtp(context: typer.Context, runs: Sequence[Path]) -> None:
    """Follow the distance to proxy over the checkpoints of runs."""
    from cocos import measures
    from cocos.checkpoints import runs as training_runs
    from cocos.measures.dtp import same_classes
    from cocos.plots import saving
    from cocos.reports import drawing

    out, width, steps = (context.params[name] for name in ("out", "width", "steps"))
    split, device = context.params["split"] or "train", context.params["device"] or "auto"
    saving.inches(width)
    steps_by_run = training_runs.find_runs(list(runs))
    paths_by_run = {name: list(run) for name, run in steps_by_run.items()}
    files = [path for paths in paths_by_run.values() for path in paths]
    output.check_output(out, context.params["data"], *files, suffixes=(*output.FIGURES, *output.RESULTS))
    alpha = read_alpha(context.params["alpha"] or (), list(paths_by_run))
    notes = []
    if steps is None and (steps := training_runs.common_steps(list(steps_by_run.values()))) is None:
        notes.append(training_runs.explain_order(next(iter(steps_by_run.values()))))
    elif context.params["steps"] is None:
        notes.append(f"steps {', '.join(map(str, steps))}: numbers in the file names")
    numbers = range(len(next(iter(paths_by_run.values())))) if steps is None else steps
    opener = partial(options.open_source, context)
    alpha_by_run: dict[str, Any] = {}
    for name, paths in paths_by_run.items():
        last = opener(paths[-1])
        notes += last.notes
        if name in alpha:
            phases = alpha[name]
            values = [next(number for start, number in reversed(phases) if step >= start) for step in numbers]
            alpha_by_run[name] = values if len(phases) > 1 else values[0]
        elif (recorded := recorded_alpha(last)) is not None:
            alpha_by_run[name] = recorded
            note = f"alpha of {name}: {recorded:g}, recorded in {paths[-1]}"
            if recorded_alpha(opener(paths[0])) != recorded:
                values = [recorded_alpha(opener(path)) for path in paths]
                alpha_by_run[name] = [float("nan") if value is None else value for value in values]
                note += ", different in earlier checkpoints (trained in phases)"
            notes.append(note)
    with output.progress(context.params["quiet"]) as start:
        dataset = measures.dtp(
            paths_by_run,
            steps=steps,
            alpha=alpha_by_run,
            split=split,
            device=device,
            opener=opener,
            progress=start,
            **options.chosen(context, "metric"),
        )
    same_classes(dataset)
    output.show(context, dataset, notes=notes, draw=partial(drawing.draw, "dtp", [dataset], width=width))


def recorded_alpha(checkpoint: "Checkpoint") -> float | None:
    """Return the boundary of the warp that a checkpoint was trained with, or None."""
    settings = checkpoint.settings
    parameters = settings.parameters.get("warped_softmax", {}) if settings.loss == "warped_softmax" else {}
    return float(parameters["alpha"]) if "alpha" in parameters else None


def read_alpha(texts: Sequence[str], runs: Sequence[str]) -> dict[str, list[tuple[float, float]]]:
    """Read the phases of alpha by run, each the first step and the number: NUMBER,NUMBER@STEP or RUN=NUMBER."""
    alpha: dict[str, list[tuple[float, float]]] = {}
    for text in texts:
        name, sign, value = text.rpartition("=")
        if sign and name not in runs:
            raise InputError(nearest("run", name, runs))
        first, *later = value.split(",")
        phases = [(float("-inf"), options.read_number("--alpha", first))]
        for part in later:
            number, _, step = part.partition("@")
            phases.append((options.read_number("--alpha", step), options.read_number("--alpha", number)))
        if not all(0 < number < float("inf") for _, number in phases):
            raise InputError(f"--alpha {text!r}: expected a finite number above 0")
        if phases != sorted(phases):
            raise InputError(f"--alpha {text!r}: expected steps in ascending order")
        for run in [name] if sign else runs:
            if run in alpha:
                raise InputError(f"--alpha {text!r}: {run!r} has one already")
            alpha[run] = phases
    return alpha
