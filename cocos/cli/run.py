"""`cocos run`."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import app
from cocos.cli.options import option

COLUMNS = 3  # panels per row of a figure
RUN_HELP = "Folder of a training run, or its checkpoints; or a monitor store (.jsonl) or result (.nc)."
EVALUATED_HELP = "Split to evaluate, other data, or embeddings of the same steps."


@app.command(epilog="Example: cocos run checkpoints/ --loss ntxent -p temperature=0.07 --out run.nc")
def run(
    context: typer.Context,
    run: Annotated[list[Path], typer.Argument(metavar="FILE...", help=RUN_HELP)],
    loss: options.Loss = None,
    param: options.Param = None,
    eps: options.Eps = None,
    k: options.CutOffs = None,
    detector: options.Detectors = None,
    fail_on: options.FailOn = None,
    jobs: options.Jobs = None,
    dask: options.Dask = None,
    batch_size: options.BatchSize = None,
    batches: options.NumberOfBatches = None,
    sample: options.Sample = None,
    per_group: options.PerGroup = None,
    copies: options.Copies = None,
    same_group: options.SameGroup = None,
    seed: options.Seed = None,
    dtype: options.Dtype = None,
    data: options.Data = None,
    model: options.Model = None,
    dims: options.Dims = None,
    split: options.Split = None,
    evaluated: Annotated[str | None, option(EVALUATED_HELP, "test, val, dev or train", options.MODEL)] = None,
    steps: options.Steps = None,
    device: options.Device = None,
    out: options.FigureOut = None,
    width: options.Width = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Count and evaluate every checkpoint in a training run and report problems."""
    from cocos import measures, reports
    from cocos.measures.run import episodes, of_store, opened, with_alarms
    from cocos.measures.shared import executors
    from cocos.monitor import detectors
    from cocos.plots import saving
    from cocos.plots.run import run as draw_run
    from cocos.plots.run import shown
    from cocos.reports import run as report

    parameters = options.read_parameters(context)
    active = detectors.chosen(detectors.settings(detector or ()))
    failing = detectors.failing(fail_on, active)
    output.check_output(out, data, *run, suffixes=(*output.RESULTS, *output.FIGURES))
    stored = [path for path in run if path.suffix in (".nc", ".jsonl") and not path.is_dir()]
    if stored and len(run) > 1:
        raise InputError(f"{stored[0]}: one of {len(run)} files, expected one store or result, or checkpoints only")
    if stored and (loss or param):
        raise InputError(f"--loss: {stored[0]} contains the numbers of one loss; pass the checkpoints for another")
    if stored:
        path = stored[0]
        dataset = of_store(path, active) if path.suffix == ".jsonl" else with_alarms(opened(path), active)
    else:
        values = options.chosen(context, "eps", "steps", "evaluated", *options.SAMPLING) | ({"ks": k} if k else {})
        opener = partial(options.open_file, data=data, model=model, dims=dims)
        with output.progress(quiet) as start, executors.connect(jobs, dask) as executor:
            dataset = measures.run(
                run,
                loss,
                parameters=parameters,
                detectors=active,
                opener=opener,
                executor=executor,
                progress=start,
                **values,
            )
    panels = [partial(draw_run, dataset, show=name) for name in shown([dataset])]
    output.save(dataset, out, partial(saving.save_panels, panels, width=width, columns=COLUMNS))
    files = [out] if out is not None and out.suffix == ".nc" else run
    following = report.following(dataset, files, kept=bool(stored) or files is not run)
    output.print_result(
        context,
        lambda: [replace(report.table(dataset), typed=following)],
        lambda: reports.document("run", dataset),
        notes=output.read_notes(dataset),
        wrote=out,
    )
    if failing & {episode["detector"] for episode in episodes(dataset)}:
        raise typer.Exit(1)
