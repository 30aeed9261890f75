"""`cocos plot dtp`."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import typer

from cocos.base.errors import InputError, nearest
from cocos.cli import options, output


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
    members_by_run = training_runs.find_runs(list(runs))
    files = [member.path for members in members_by_run.values() for member in members]
    output.check_output(out, context.params["data"], *files, suffixes=(*output.FIGURES, *output.RESULTS))
    alpha = read_alpha(context.params["alpha"] or (), list(members_by_run))
    notes = []
    if steps is None and (steps := training_runs.common_steps(members_by_run)) is None:
        notes.append(training_runs.explain_order(members_by_run))
    elif context.params["steps"] is None:
        notes.append(f"steps {', '.join(map(str, steps))}: numbers in the file names")
    numbers = range(len(next(iter(members_by_run.values())))) if steps is None else steps
    opener = partial(options.open_source, context)
    alpha_by_run: dict[str, Any] = {}
    for name, members in members_by_run.items():
        last = opener(members[-1].path)
        notes += last.notes
        if name in alpha:
            phases = alpha[name]
            values = [next(number for start, number in reversed(phases) if step >= start) for step in numbers]
            alpha_by_run[name] = values if len(phases) > 1 else values[0]
        elif (recorded := training_runs.recorded_alpha(last)) is not None:
            alpha_by_run[name] = recorded
            note = f"alpha of {name}: {recorded:g}, recorded in {members[-1].path}"
            if training_runs.recorded_alpha(opener(members[0].path)) != recorded:
                values = [training_runs.recorded_alpha(opener(member.path)) for member in members]
                alpha_by_run[name] = [float("nan") if value is None else value for value in values]
                note += ", different in earlier checkpoints (trained in phases)"
            notes.append(note)
    with output.progress(context.params["quiet"]) as start:
        measured_runs = {
            name: training_runs.Series(members, opener, split, device, start(f"measuring {name}"))
            for name, members in members_by_run.items()
        }
        dataset = measures.dtp(measured_runs, steps=steps, alpha=alpha_by_run, **options.chosen(context, "metric"))
    same_classes(dataset)
    paths, hashes = zip(*(pair for run in measured_runs.values() for pair in run.seen), strict=True)
    dataset = dataset.assign_attrs(checkpoint_path="\n".join(paths), checkpoint_sha256="\n".join(hashes))
    output.show(context, dataset, notes=notes, draw=partial(drawing.draw, "dtp", [dataset], width=width))


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
