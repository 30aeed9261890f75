"""`cocos plot`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output
from cocos.cli.app import Command, app
from cocos.cli.dtp import plot_dtp
from cocos.cli.landscape import plot_landscape
from cocos.cli.options import option

if TYPE_CHECKING:
    import xarray as xr

    from cocos.checkpoints import Checkpoint
    from cocos.reports.plot_kinds import PlotKind

MAX_PANELS = 6  # losses and files that are drawn side by side
OWN_COMMANDS = {"landscape", "dtp"}
ROWS, CURVES, LANDSCAPE = "Queries and candidates", "Curves and distributions", "Landscape and DTP"  # panels


def list_kinds() -> str:
    """Return the names of all plots, without importing any."""
    folders = (Path(__file__).parents[1] / name for name in ("plots", "measures"))
    return ", ".join(sorted(set.intersection(*({path.stem for path in each.glob("[!_]*.py")} for each in folders))))


@app.command(cls=Command, epilog="Without FILE, `cocos plot KIND` lists the options of one plot.")
def plot(
    context: typer.Context,
    kind: Annotated[str | None, typer.Argument(help=f"{list_kinds()}.", show_default="list them")] = None,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Checkpoint or file of embeddings, or several.", show_default=False),
    ] = None,
    direction: Annotated[str | None, option("Direction of retrieval, such as q2c.", default="all", panel=ROWS)] = None,
    row: Annotated[
        int | None, option("contributors: row of the query on its side.", default="a median one", panel=ROWS)
    ] = None,
    top: Annotated[
        str | None, option("contributors: number of candidates, or `all`.", default="20", panel=ROWS)
    ] = None,
    neighbours: Annotated[int | None, option("audit: nearest neighbours.", default="1", panel=ROWS)] = None,
    queries: Annotated[
        str | None,
        option(
            "Number of queries, `all`, or for retrievals their rows, such as 3,17,40.", default="by plot", panel=ROWS
        ),
    ] = None,
    k: Annotated[
        str | None,
        option(
            "retrievals: candidates per query. score_distribution: ranks, such as 1,10,100.",
            default="5; 1,10,100",
            panel=ROWS,
        ),
    ] = None,
    confident: Annotated[float | None, option("retrievals: outline candidates from this score on.", panel=ROWS)] = None,
    order: Annotated[str | None, option("weight_map: order of rows.", default="hardness", panel=ROWS)] = None,
    points: Annotated[int | None, option("Points along a curve or axis.", default="by plot", panel=CURVES)] = None,
    values: Annotated[
        str | None, option("temperature_curve: values, separated by commas.", default="a range", panel=CURVES)
    ] = None,
    show: Annotated[str | None, option("temperature_curve: quantity.", default="negatives", panel=CURVES)] = None,
    bins: Annotated[int | None, option("score_distribution: bins.", default="100", panel=CURVES)] = None,
    recalls: Annotated[str | None, option("thresholds: recalls.", default="0.1,0.25,0.5,0.75", panel=CURVES)] = None,
    precisions: Annotated[str | None, option("thresholds: precisions, such as 0.5,0.9.", panel=CURVES)] = None,
    cutoffs: Annotated[str | None, option("thresholds: scores.", panel=CURVES)] = None,
    negatives: Annotated[int | None, option("score_landscape: negatives.", default="1", panel=CURVES)] = None,
    f1: Annotated[
        str | None,
        option(
            "Function of the distance to the own proxy: t, t^2, sqrt, t^1.5, 0.97t or warp.",
            default="t",
            panel=LANDSCAPE,
        ),
    ] = None,
    f2: Annotated[str | None, option("The same for the other proxies.", default="f1 or t", panel=LANDSCAPE)] = None,
    alpha: Annotated[
        list[str] | None,
        option(
            (
                "Boundary of the warp. landscape: several, such as 3,6, have a panel each. dtp: NUMBER or RUN=NUMBER, "
                "repeatable; 28,34@600 changes at step 600, 0:3,1:5 is by class."
            ),
            default="3; dtp: as recorded",
            panel=LANDSCAPE,
        ),
    ] = None,
    k1: Annotated[float | None, option("Slope of the warp inside.", default="0.65", panel=LANDSCAPE)] = None,
    k2: Annotated[float | None, option("Slope of the warp outside.", default="1.5", panel=LANDSCAPE)] = None,
    scale: Annotated[float | None, option("Factor of the exponents.", default="1", panel=LANDSCAPE)] = None,
    metric: Annotated[
        str | None, option("Distance: euclidean, squared_euclidean, cosine, ...", default="by plot", panel=LANDSCAPE)
    ] = None,
    distance: Annotated[
        float | None, option("Distance between neighbouring proxies.", default="10", panel=LANDSCAPE)
    ] = None,
    proxies: Annotated[int | None, option("Proxies, in a regular polygon.", default="2", panel=LANDSCAPE)] = None,
    rows: Annotated[
        str | None,
        option(
            "With a FILE: rows of two or three of its candidates, the own one first.", default="0,1,2", panel=LANDSCAPE
        ),
    ] = None,
    surface: Annotated[bool, option("Draw in three dimensions.", "--surface", panel=LANDSCAPE)] = False,
    steps: options.Steps = None,
    loss: options.Losses = None,
    param: options.Param = None,
    eps: Annotated[
        str | None,
        option("Threshold on the share of a negative; several for a curve.", default="0.01", panel=options.LOSS),
    ] = None,
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
    device: Annotated[str | None, option("auto, cpu or cuda.", default="auto", panel=options.MODEL)] = None,
    out: Annotated[
        Path | None,
        option(
            "Write the figure (.png, .pdf, .svg) or the Dataset (.nc) to this file.",
            default="KIND.png; none with --json",
            panel=options.OUTPUT,
        ),
    ] = None,
    width: options.Width = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Plot a measure and print its values. Without KIND, list the available plots."""
    files, parameters = files or [], options.read_parameters(param, quiet)
    lists = {"eps": eps, "values": values, "recalls": recalls, "precisions": precisions, "cutoffs": cutoffs}
    own = options.given(
        direction=direction, row=row, top=top, queries=queries, confident=confident, order=order, points=points,
        neighbours=neighbours, show=show, bins=bins, negatives=negatives, f1=f1, f2=f2, alpha=alpha or None, k1=k1,
        k2=k2, scale=scale, k=options.read_integers(k, "--k", "1,10,100"), metric=metric, distance=distance,
        proxies=proxies, rows=options.read_integers(rows, "--rows", "0,1,2"), surface=surface or None,
        steps=options.read_integers(steps, "--steps", "1,5,10"), batch_size=options.read_batch_size(batch_size),
        batches=batches, sample=sample, per_group=per_group, copies=copies,
        same_group=same_group, seed=seed, dtype=dtype, split=split, device=device,
        **{name: options.read_numbers(text, f"--{name}") for name, text in lists.items()},
    )  # fmt: skip
    source = {"data": data, "model": model, "dims": dims}
    bare = not (own or loss or parameters or out or json)

    from cocos.base import terminal
    from cocos.reports import plot_kinds

    if kind is None:
        if not bare:
            raise InputError("options without a KIND; cocos plot lists the kinds")
        return terminal.put(plot_kinds.table().text(terminal.room()))
    name = kind.replace("-", "_")
    if Path(kind).exists() and name not in plot_kinds.every():
        raise InputError(
            f"{kind}: a file, expected a KIND first: {output.command_line('cocos', 'plot', 'count', kind)}"
        )
    chosen = plot_kinds.find(kind)
    known = [
        each.replace("ks", "k") for each in (*chosen.options, *(["surface", "split"] if name == "landscape" else []))
    ]
    known = [each for each in known if each in {param.name for param in context.command.params}]
    if bare and not files:
        flags = ", ".join(f"--{each.replace('_', '-')}" for each in known)
        lines = f"{name}: {chosen.sentence}", chosen.command, f"options: {flags}"
        return terminal.put("\n".join(part for line in lines for part in terminal.wrapped(line, terminal.room())))
    for each in (*own, *(["loss"] if loss else [])):
        if each not in known:
            flags = ", ".join(f"--{each.replace('_', '-')}" for each in known)
            raise InputError(f"{name} does not take --{each.replace('_', '-')}, only {flags}")
    if name in OWN_COMMANDS:
        shared = {
            "out": out or (None if json else Path(f"{name}.png")),
            "width": width,
            "as_json": json,
            "quiet": quiet,
        }
        if name == "dtp":
            return plot_dtp(context, files, own, source, **shared)
        return plot_landscape(context, files, loss, parameters, own, source, **shared)
    if parameters and "loss" not in chosen.measure_parameters:
        raise InputError(f"{name} reads no loss, so -p does not apply")
    choose_values(name, own)
    wanted = loss or [None]
    losses, against = (wanted[:1], wanted[1:]) if "against" in chosen.options else (wanted, [])
    runs = list_runs(chosen, files, losses, parameters)
    by_loss = dict(zip(wanted, options.split_parameters(parameters, wanted), strict=True))
    target = out or (None if json else Path(f"{name}.png"))
    output.check_output(target, *files, data, suffixes=(*output.FIGURES, *output.RESULTS))
    figure = target is not None and target.suffix != ".nc"

    from cocos import losses as catalogue
    from cocos import reports
    from cocos.plots import saving

    saving.inches(width)
    names = plot_kinds.names_of(runs) if len(runs) > 1 else None
    for each in wanted if len(wanted) > 1 or names else ():
        if each or default_loss(chosen):  # some plots read scores alone
            catalogue.load(each or default_loss(chosen), by_loss[each])
    with output.progress(quiet) as start:
        results = measure_runs(chosen, runs, by_loss, against, {"device": "auto"} | own, source, start)
    datasets = [result.dataset for result in results]
    items = [
        result.checkpoint.items(split or "train") if result.checkpoint and chosen.shows else None for result in results
    ]
    texts = [chosen.row_texts(dataset, each) for dataset, each in zip(datasets, items, strict=True)]
    names = names and [names[result.position] for result in results]
    if target is not None and not figure and len(datasets) > 1:
        sides = ", ".join(dict.fromkeys(str(dataset.attrs.get("direction")) for dataset in datasets))
        content = "one loss of one file" if len(runs) > 1 else f"one direction of {sides}, expected --direction"
        raise InputError(f"--out {target}: contains {content}")
    notes = [note for result in results if result.checkpoint for note in result.checkpoint.notes]
    notes += [note for dataset in datasets for note in output.read_notes(dataset)]
    labels = [{key: each[key] for key in ("labels", "query") if key in each} for each in texts]
    output.save(datasets[0], target, lambda path: chosen.draw(datasets, own, path, texts, names=names, width=width))

    def text() -> str:
        tables = [
            "\n\n".join(output.render(table, context) for table in reports.tables(name, dataset, **label))
            for dataset, label in zip(datasets, labels, strict=True)
        ]
        return "\n\n".join(f"{names[place]}:\n{table}" if names else table for place, table in enumerate(tables))

    output.print_result(
        text,
        lambda: chosen.document(datasets, labels, names),
        as_json=json,
        quiet=quiet,
        about=dict.fromkeys(result.about for result in results if result.about),
        notes=dict.fromkeys(notes),
        wrote=target,
    )


def choose_values(kind: str, own: dict[str, Any]) -> None:
    """Give options with one or several values the type that a kind takes."""
    if "eps" in own and kind != "eps_curve":
        own["eps"] = single(own["eps"], "--eps")
    if "k" in own and kind == "retrievals":
        own["k"] = single(own["k"], "--k")
    elif "k" in own:
        own["ks"] = own.pop("k")
    for name in {"queries", "top"} & own.keys():
        several = name == "queries" and kind == "retrievals"
        if own[name] == "all" and not several:
            own[name] = None
        else:
            integers = options.read_integers(own[name], f"--{name}", "3,17,40") or ()
            own[name] = integers if several and "," in own[name] else single(integers, f"--{name}")


def single(numbers: Sequence[Any], option: str) -> Any:
    """Return the only one of some numbers."""
    if len(numbers) != 1:
        raise InputError(f"{option} {','.join(map(str, numbers))}: {len(numbers)} values, expected one")
    return numbers[0]


def default_loss(kind: "PlotKind") -> str | None:
    """Return the loss of a kind if none is given, or None if it reads scores then."""
    return kind.options["loss"].default if "loss" in kind.options else None


def list_runs(
    kind: "PlotKind", files: Sequence[Path], losses: Sequence[str | None], parameters: Mapping[str, str]
) -> list[tuple[Path | None, str | None]]:
    """Pair every file with every loss. The file of a plot of a loss alone is None, and so is the file's own loss."""
    runs = [(file, name) for file in files or [None] for name in losses]
    if (kind.reads == "embeddings") != bool(files):
        problem = f"plots a loss, not a file such as {files[0]}" if files else "missing FILE"
        raise InputError(f"{kind.name}: {problem}: {kind.command}")
    if parameters and list(losses) == [None] and default_loss(kind) is None:
        raise InputError(f"{kind.name}: parameters without --loss, so scores are cosines")
    if len(set(runs)) < len(runs):
        raise InputError(f"{kind.name}: a file or a loss is given twice")
    if len(runs) > MAX_PANELS and not kind.combines:
        raise InputError(
            f"{kind.name}: {len(runs)} losses and files, expected at most {MAX_PANELS} panels ({kind.alone})"
        )
    return runs


@dataclass(frozen=True)
class PlottedRun:
    """A Dataset, its checkpoint (None: of a loss alone), the position of its run, and a line about it."""

    dataset: "xr.Dataset"
    checkpoint: "Checkpoint | None"
    position: int
    about: str | None


def measure_runs(
    kind: "PlotKind",
    runs: Sequence[tuple[Path | None, str | None]],
    by_loss: Mapping[str | None, dict[str, str]],
    against: Sequence[str],
    own: Mapping[str, Any],
    source: Mapping[str, Any],
    start: Any,
) -> list[PlottedRun]:
    """Measure all runs, some in each direction separately. Each file is encoded once."""
    from cocos import losses as catalogue
    from cocos.reports import plot_kinds

    results: list[PlottedRun] = []
    checkpoints: dict[Path, Checkpoint] = {}
    for position, (file, name) in enumerate(runs):
        checkpoint, about = None, None
        if file is None:
            loss = catalogue.load(name or default_loss(kind), by_loss[name])
        else:
            if file not in checkpoints:
                opened, *_ = options.open_with_loss(file, name, by_loss[name], **source)
                checkpoints[file] = plot_kinds.once(opened)
            checkpoint = checkpoints[file]
            loss, origin = checkpoint.loss(name, by_loss[name])
        compared = [checkpoint.loss(each, by_loss[each])[0] for each in against] if checkpoint else []
        reads_scores = name is None and default_loss(kind) is None
        more = {"against": compared} if compared else {}
        chosen = own | more
        if checkpoint and "batch_size" in kind.options:
            origin = options.add_batch_size(chosen, checkpoint, origin)
        datasets = kind.measured(checkpoint, None if reads_scores else loss, chosen, start)
        if file is not None:
            attrs = datasets[-1].attrs
            read = f"loss {attrs['loss']}, {origin}" if default_loss(kind) else f"{attrs['metric']} scores"
            about = f"{file} ({checkpoint.format}): {read.replace('_', ' ') if not default_loss(kind) else read}"
        results += [PlottedRun(dataset, checkpoint, position, about) for dataset in datasets]
    return results
