"""`cocos run`."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from cocos.base.errors import InputError
from cocos.commands._answer import Answer, answer, checked, lines, progress
from cocos.commands._options import Batches, BatchOptions, DetectorOptions, Gradient, Opening, Width, whole_numbers
from cocos.commands._program import command

if TYPE_CHECKING:
    import xarray as xr


def _earlier(out: Path | None) -> "xr.Dataset | None":
    """The result of an earlier call in the file that is written, if there is one."""
    from cocos.measures.run import opened

    if out is not None and out.suffix == ".nc" and out.is_file():
        with contextlib.suppress(InputError):
            return opened(out)
    return None


def _draw(runs: "dict[str, xr.Dataset]", width: str | None, path: Path) -> None:
    """Draw the curves of one run, or of several in the same axes."""
    from cocos.plots.run import run, shown
    from cocos.reports import saving

    several = list(runs.values())
    given = {"dataset": several, "names": list(runs)} if len(several) > 1 else {"dataset": several[0]}
    panels = [partial(run, **given, show=name) for name in shown(several)]
    columns = min(3, len(panels))
    size = (4.0 * columns, 3.4 * -(-len(panels) // columns))
    saving.save_panels(panels, path, size=size, width=width, columns=columns)


def _read(paths: Sequence[Path], gradient: Gradient, watching: DetectorOptions) -> "dict[str, xr.Dataset]":
    """The Datasets of stores and results, by their names; none for checkpoints."""
    from cocos.measures.run import of_store, opened, with_alarms

    read = [path for path in paths if path.suffix in {".jsonl", ".nc"} and not path.is_dir()]
    if not read:
        return {}
    if other := [path for path in paths if path not in read]:
        raise InputError(f"{read[0]} is no checkpoint, and {other[0]} may be one: give stores and results alone")
    if gradient.loss or gradient.param:
        raise InputError(f"--loss: {read[0]} has numbers of one loss already; give the checkpoints for another")
    stems = [path.stem for path in read]
    names = stems if len(set(stems)) == len(stems) else [str(path) for path in read]
    if len(set(names)) < len(names):
        raise InputError(f"{read[0]}: a file is named twice")
    return {
        name: of_store(path, watching.chosen) if path.suffix == ".jsonl" else with_alarms(opened(path), watching.chosen)
        for name, path in zip(names, read, strict=True)
    }


def _together(runs: "dict[str, xr.Dataset]", out: Path | None, width: str | None, watching: DetectorOptions) -> Answer:
    """The answer for several runs: their tables one after the other, and one figure."""
    from cocos import measures
    from cocos.measures.run import episodes
    from cocos.reports import run as report

    if out is not None and out.suffix == ".nc":
        raise InputError(f"--out {out}: it holds one run, not {len(runs)}; name a figure")
    if out is not None:
        _draw(runs, width, out)
    return Answer(
        text=lambda: "\n\n".join(f"{name}:\n{lines(report.table(data))}" for name, data in runs.items()),
        document=lambda: {"runs": {name: measures.document("run", data) for name, data in runs.items()}},
        wrote=[] if out is None else [out],
        code=watching.code(each["detector"] for data in runs.values() for each in episodes(data)),
    )


@command(
    "Training runs",
    1,
    results=("run",),
    epilog="Example: cocos run checkpoints/ --loss ntxent -p temperature=0.07 --out run.nc",
)
def run(
    run: Annotated[
        list[Path],
        Argument(help="Folder of a training run, or its files; or stores of cocos.Monitor (.jsonl) and results (.nc)."),
    ],
    gradient: Gradient,
    sampling: BatchOptions,
    source: Opening,
    watching: DetectorOptions,
    batches: Batches = None,
    steps: Annotated[
        str | None,
        Option(help="Steps of the checkpoints, like 1,5,10. [the numbers in their names, or 0, 1, 2, ...]"),
    ] = None,
    k: Annotated[str, Option(help="Cut-offs of R@k and mAP@k.")] = "1,5,10",
    evaluated: Annotated[
        str | None,
        Option(help="Split that is evaluated; --split is the one that is counted. [test, val, dev or train]"),
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            help="Write the Dataset (.nc) or the curves (.png, .pdf, .svg) to this file. A .nc file is written "
            "while the work goes on, and checkpoints that it holds are not measured again."
        ),
    ] = None,
    width: Width = None,
):
    """Count and evaluate every checkpoint of a training run, and say in a sentence what looks wrong."""
    cutoffs = whole_numbers(k, "--k", "1,5,10")
    at = None if steps is None else whole_numbers(steps, "--steps", "1,5,10")
    from cocos import measures, results
    from cocos.measures.run import episodes
    from cocos.reports import run as report

    figure = checked(out, source.data, *run, figures=True)
    read = _read(run, gradient, watching)
    if len(read) > 1:
        return _together(read, out, width, watching)
    if read:
        (data,) = read.values()
    else:
        with progress() as start:
            data = measures.run(
                run,
                gradient.loss,
                gradient.eps,
                parameters=gradient.parameters,
                steps=at,
                ks=cutoffs,
                evaluated=evaluated,
                detectors=watching.chosen,
                opener=source.open,
                known=_earlier(out),
                keep=None if figure or out is None else partial(results.save, path=out),
                batches=batches,
                **vars(sampling),
                progress=start,
            )
    made = answer("run", data, out, draw=partial(_draw, {"run": data}, width) if figure else None)
    code = watching.code(each["detector"] for each in episodes(data))
    again = run if out is None or figure else [out]
    typed = report.following(data, again, kept=again is not run or bool(read))
    return replace(made, text=lambda: replace(report.table(data), typed=typed), code=code)
