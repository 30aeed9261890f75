"""`cocos plot dtp`."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from cocos.base.errors import InputError, nearest
from cocos.cli import options, output


def plot_dtp(context: typer.Context, runs: Sequence[Path], given: dict[str, Any]) -> None:
    """Follow the distance to proxy over the checkpoints of runs."""
    if not runs:
        raise InputError("dtp: missing FILE, expected the checkpoints of a run, or a folder for each run")

    from cocos import measures
    from cocos.checkpoints import series
    from cocos.measures.dtp import same_classes
    from cocos.plots import saving
    from cocos.reports import drawing

    out, width = context.params["out"], context.params["width"]
    saving.inches(width)
    members_by_run = series.files(list(runs))
    files = [member.path for members in members_by_run.values() for member in members]
    output.check_output(out, context.params["data"], *files, suffixes=(*output.FIGURES, *output.RESULTS))
    alpha = read_boundaries(given.get("alpha", ()), list(members_by_run))
    steps, notes = given.get("steps"), []
    if steps is None:
        steps = series.steps(members_by_run)
        if steps is None:
            notes.append(series.unnumbered(members_by_run))
        else:
            notes.append(f"steps {', '.join(map(str, steps))}: numbers in the file names")
    opener = functools.partial(options.open_source, context)
    for name, members in members_by_run.items():
        last = opener(members[-1].path)
        if name not in alpha and (recorded := series.recorded_alpha(last)) is not None:
            alpha[name] = recorded
            note = f"alpha of {name}: {recorded:g}, recorded in {members[-1].path}"
            if len(members) > 1 and series.recorded_alpha(opener(members[0].path)) != recorded:
                every = [series.recorded_alpha(opener(member.path)) for member in members]
                alpha[name] = [float("nan") if value is None else value for value in every]
                note += ", different in earlier checkpoints (trained in phases)"
            notes.append(note)
        notes += last.notes
    split, device = given.get("split", "train"), given.get("device", "auto")
    with output.progress(context.params["quiet"]) as start:
        measured_runs = {
            name: series.Series(members, opener, split, device, start(f"measuring {name}"))
            for name, members in members_by_run.items()
        }
        numbers = range(len(next(iter(members_by_run.values())))) if steps is None else steps
        phases = {name: alpha_by_step(value, numbers) for name, value in alpha.items()}
        dataset = measures.dtp(measured_runs, steps=steps, alpha=phases, **options.chosen(context, "metric"))
    same_classes(dataset)
    seen = [pair for run in measured_runs.values() for pair in run.seen]
    dataset = dataset.assign_attrs(
        checkpoint_path="\n".join(path for path, _ in seen), checkpoint_sha256="\n".join(sha256 for _, sha256 in seen)
    )
    output.show(context, dataset, notes=notes, draw=functools.partial(drawing.draw, "dtp", [dataset], width=width))


def alpha_by_step(alpha: Any, steps: Sequence[float]) -> Any:
    """Return alpha at each step if it is given as phases, pairs of first step and number."""
    if not isinstance(alpha, tuple):
        return alpha
    return [next(number for start, number in reversed(alpha) if step >= start) for step in steps]


def read_boundary(text: str, option: str) -> Any:
    """Read alpha of one run: a number, ((step, number), ...) of phases, or class -> number."""
    parts = text.split(",")
    by_class = ":" in text
    pairs = [part.split(":") for part in parts] if by_class else [part.split("@")[::-1] for part in parts]
    pairs = pairs if by_class or len(pairs[0]) > 1 else [["-inf", *pairs[0]], *pairs[1:]]
    try:
        values = [(int(first) if by_class else float(first), float(second)) for first, second in pairs]
    except ValueError:
        raise InputError(f"--alpha {option!r}: expected a number, or RUN=NUMBER such as warp=3") from None
    if not all(0 < number < float("inf") for _, number in values):
        raise InputError(f"--alpha {option!r}: expected a finite number above 0")
    if values != sorted(values) or (values[0][0] > float("-inf") and not by_class):
        raise InputError(f"--alpha {option!r}: expected the first number without a step, then steps in order")
    return dict(values) if by_class else tuple(values) if len(values) > 1 else values[0][1]


def read_boundaries(texts: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """Read alpha of the runs, given for all of them or by name."""
    boundaries: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.rpartition("=")
        if sign and name not in names:
            raise InputError(nearest("run", name, names))
        number = read_boundary(value, text)
        for run in [name] if sign else names:
            if run in boundaries:
                raise InputError(f"--alpha {text!r}: {run!r} has one already")
            boundaries[run] = number
    return boundaries
