"""`cocos run`."""

import contextlib
import shlex
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from cocos.commands._answer import answer, checked, progress
from cocos.commands._options import Batches, BatchOptions, DetectorOptions, Gradient, Opening, Width, whole_numbers
from cocos.commands._program import command
from cocos.errors import InputError

if TYPE_CHECKING:
    import xarray as xr


def _earlier(out: Path | None) -> "xr.Dataset | None":
    """The result of an earlier call in the file that is written, if there is one."""
    from cocos.measures.run import opened

    if out is not None and out.suffix == ".nc" and out.is_file():
        with contextlib.suppress(InputError):
            return opened(out)
    return None


def _draw(data: "xr.Dataset", path: Path, width: str | None) -> None:
    from cocos.plots.run import run, shown
    from cocos.reports import saving

    panels = [partial(run, data, show=name) for name in shown([data])]
    columns = min(3, len(panels))
    size = (4.0 * columns, 3.4 * -(-len(panels) // columns))
    saving.save_panels(panels, path, size=size, width=width, columns=columns)


def _read(paths: Sequence[Path], gradient: Gradient, watching: DetectorOptions) -> "xr.Dataset | None":
    """The Dataset of a store or of a result; None for checkpoints.

    Raises:
        InputError: several of them, or a loss, which they have.
    """
    from cocos.measures.run import of_store, opened, with_alarms

    read = [path for path in paths if path.suffix in {".jsonl", ".nc"} and not path.is_dir()]
    if not read:
        return None
    if len(paths) > 1:
        raise InputError(f"{read[0]} and {len(paths) - 1} more: give one store or result, or the checkpoints of a run")
    if gradient.loss or gradient.param:
        raise InputError(f"--loss: {read[0]} has numbers of one loss already; give the checkpoints for another")
    if read[0].suffix == ".jsonl":
        return of_store(read[0], watching.chosen)
    return with_alarms(opened(read[0]), watching.chosen)


def _typed(*bundles: Gradient | BatchOptions | Opening) -> str:
    """The options of some bundles that are not at their defaults, as they are typed."""
    words = []
    for bundle in bundles:
        for each in fields(bundle):
            value, name = getattr(bundle, each.name), f"--{each.name.replace('_', '-')}"
            if str(value) != str(each.default) and value not in (None, []):
                some = value if isinstance(value, list) else [value]
                words += [name] if value is True else [f"{name} {shlex.quote(str(one))}" for one in some]
    return " ".join(words)


@command("Training runs", 1, epilog="Example: cocos run checkpoints/ --loss ntxent -p temperature=0.07 --out run.nc")
def run(
    run: Annotated[
        list[Path],
        Argument(help="Folder of a training run, its files, a store of cocos.Monitor (.jsonl), or a result (.nc)."),
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
    from cocos.measures._history import episodes
    from cocos.reports import run as report

    figure = checked(out, source.data, *run, figures=True)
    data = _read(run, gradient, watching)
    if data is None:
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
    made = answer("run", data, out, draw=(lambda path: _draw(data, path, width)) if figure else None)
    code = watching.code(each["detector"] for each in episodes(data))
    typed = report.following(data, run, _typed(gradient, sampling, source) if "file" in data else "")
    return replace(made, text=lambda: replace(report.table(data), typed=typed), code=code)
