"""`cocos run`."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import Command, app
from cocos.cli.options import option

if TYPE_CHECKING:
    import xarray as xr

    from cocos.monitor.detectors import Detector

COLUMNS = 3  # panels per row of a figure


@app.command(cls=Command, epilog="Example: cocos run checkpoints/ --loss ntxent -p temperature=0.07 --out run.nc")
def run(
    context: typer.Context,
    run: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Folder of a training run, or its checkpoints; or monitor stores (.jsonl) and results (.nc).",
        ),
    ],
    loss: options.Loss = None,
    param: options.Param = None,
    eps: options.Eps = None,
    k: options.CutOffs = None,
    detector: options.Detectors = None,
    fail_on: options.FailOn = None,
    batch_size: options.BatchSize = None,
    batches: options.NumberOfBatches = None,
    sample: options.Sampling = None,
    per_group: options.PerGroup = None,
    copies: options.RepeatedCandidates = None,
    same_group: options.GroupRows = None,
    seed: options.Seed = None,
    dtype: options.Precision = None,
    data: options.Data = None,
    model: options.Model = None,
    dims: options.Dims = None,
    split: options.Split = None,
    evaluated: Annotated[
        str | None,
        option(
            "Split to evaluate, other data, or embeddings of the same steps.",
            default="test, val, dev or train",
            panel=options.MODEL,
        ),
    ] = None,
    steps: options.Steps = None,
    device: options.Device = "auto",
    out: options.FigureOut = None,
    width: options.Width = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Count and evaluate every checkpoint in a training run and report problems."""
    parameters = options.read_parameters(param, quiet)
    active, failing = options.read_detectors(detector, fail_on)
    output.check_output(out, data, *run, suffixes=(*output.RESULTS, *output.FIGURES))
    figure = out is not None and out.suffix != ".nc"

    from cocos import measures, reports
    from cocos.measures.run import episodes
    from cocos.reports import run as report

    stored = [path for path in run if path.suffix in (".nc", ".jsonl") and not path.is_dir()]
    if stored and (loss or param):
        raise InputError(f"--loss: {stored[0]} contains the numbers of one loss; pass the checkpoints for another")
    datasets = read_stored(run, stored, active) if stored else {}
    if not stored:
        with output.progress(quiet) as start:
            datasets["run"] = measures.run(
                run, loss, parameters=parameters, detectors=active, progress=start,
                opener=lambda path: options.open_file(path, data, model, dims),
                **options.given(
                    eps=eps, ks=options.read_integers(k, "--k", "1,5,10"), batches=batches,
                    steps=options.read_integers(steps, "--steps", "1,5,10"), evaluated=evaluated, sample=sample,
                    batch_size=options.read_batch_size(batch_size), per_group=per_group, copies=copies,
                    same_group=same_group, seed=seed, dtype=dtype, split=split, device=device,
                ),
            )  # fmt: skip
    names, several = list(datasets), len(datasets) > 1
    if several and out is not None and not figure:
        raise InputError(f"--out {out}: contains one run, not {len(datasets)}; expected a figure")
    first = datasets[names[0]]
    output.save(first, out, lambda path: draw_curves(datasets, width, path))

    def text() -> str:
        if several:
            tables = {name: output.render(report.table(dataset), context) for name, dataset in datasets.items()}
            return "\n\n".join(f"{name}:\n{table}" for name, table in tables.items())
        again = run if out is None or figure else [out]
        following = report.following(first, again, kept=bool(stored) or again is not run)
        return output.render(replace(report.table(first), typed=following), context)

    documents = {name: functools.partial(reports.document, "run", dataset) for name, dataset in datasets.items()}
    output.print_result(
        text,
        lambda: {"runs": {name: make() for name, make in documents.items()}} if several else documents[names[0]](),
        as_json=json,
        quiet=quiet,
        notes=[] if several else output.read_notes(first),
        wrote=out,
    )
    if failing & {episode["detector"] for dataset in datasets.values() for episode in episodes(dataset)}:
        raise typer.Exit(1)


def draw_curves(datasets: "Mapping[str, xr.Dataset]", width: str | None, path: Path) -> None:
    """Draw the curves of one run, or of several on the same axes."""
    from cocos.plots import saving
    from cocos.plots.run import run, shown

    several = list(datasets.values())
    named = {"dataset": several, "names": list(datasets)} if len(several) > 1 else {"dataset": several[0]}
    panels = [functools.partial(run, **named, show=name) for name in shown(several)]
    saving.save_panels(panels, path, width=width, columns=COLUMNS)


def read_stored(files: Sequence[Path], stored: Sequence[Path], active: "Sequence[Detector]") -> "dict[str, xr.Dataset]":
    """Return the Datasets of monitor stores and results by their names."""
    from cocos.measures.run import of_store, opened, with_alarms

    if other := [path for path in files if path not in stored]:
        raise InputError(f"{stored[0]} is not a checkpoint, but {other[0]} may be one; expected stores or results only")
    stems = [path.stem for path in stored]
    names = stems if len(set(stems)) == len(stems) else [str(path) for path in stored]
    if len(set(names)) < len(names):
        raise InputError(f"{stored[0]}: a file is given twice")
    return {
        name: of_store(path, active) if path.suffix == ".jsonl" else with_alarms(opened(path), active)
        for name, path in zip(names, stored, strict=True)
    }
