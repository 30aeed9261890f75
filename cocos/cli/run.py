"""`cocos run`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import cocos
from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import app
from cocos.cli.options import MODEL, option

DETECTORS = "Detectors"  # panel of the help
RUN_HELP = "Folder of a training run, or its checkpoints; or a monitor store (.jsonl) or result (.nc)."
FAIL_HELP = "Exit with 1 if one of these detectors fires: names separated by commas, or any."


@app.command(epilog="Example: cocos run checkpoints/ --loss ntxent -p temperature=0.07 --out run.nc")
def run(
    context: typer.Context,
    run: Annotated[list[Path], typer.Argument(metavar="FILE...", help=RUN_HELP)],
    loss: options.Loss = None,
    param: options.Param = None,
    eps: options.Eps = None,
    k: options.CutOffs = None,
    detector: Annotated[list[str] | None, option("NAME=off, NAME.THRESHOLD=VALUE; repeatable.", "", DETECTORS)] = None,
    fail_on: Annotated[str | None, option(FAIL_HELP, "", DETECTORS, metavar="NAMES")] = None,
    jobs: options.Jobs = None,
    dask: options.Dask = None,
    batch_size: options.BatchSize = None,
    batches: options.NumberOfBatches = None,
    sample: options.Sample = None,
    per_group: options.PerGroup = None,
    seed: options.Seed = None,
    data: options.Data = None,
    model: options.Model = None,
    split: options.Split = None,
    evaluated: Annotated[str | None, option("Split, data or embeddings to evaluate.", "test or val", MODEL)] = None,
    device: options.Device = None,
    out: options.FigureOut = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Count and evaluate every checkpoint in a training run and report problems."""
    parameters = options.read_parameters(context)
    output.check_output(out, data, *run, suffixes=output.RESULTS + output.FIGURES)
    stored = run[0].suffix in (".nc", ".jsonl")
    if stored and (len(run) > 1 or loss or param):
        raise InputError(f"{run[0]}: a store or result, expected no other file, --loss or -p")
    active = cocos.detectors.chosen(cocos.detectors.settings(detector or ()))
    failing = cocos.detectors.failing(fail_on, active)
    values = options.chosen(context, "eps", "evaluated", *options.SAMPLING)
    values |= {} if k is None else {"ks": options.read_numbers("--k", k, int)}
    values |= {"parameters": parameters, "detectors": active}
    opener = partial(options.open_file, data=data, model=model)
    with output.progress(quiet) as start, cocos.measures.shared.executors.connect(jobs, dask) as executor:
        checkpoints = run[0] if stored else run
        dataset = cocos.measures.run(checkpoints, loss, opener=opener, executor=executor, progress=start, **values)
    saved = out is not None and out.suffix == ".nc"
    steps = cocos.reports.layouts.following(dataset, [out] if saved else run, saved=stored or saved)
    output.show(context, dataset, steps)
    if failing & {episode["detector"] for episode in cocos.reports.layouts.episodes(dataset)}:
        raise typer.Exit(1)
