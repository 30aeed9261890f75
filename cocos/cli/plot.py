"""`cocos plot`."""

import inspect
from pathlib import Path
from typing import Annotated

import typer

import cocos
from cocos.base.errors import InputError, nearest
from cocos.cli import options, output
from cocos.cli.app import app
from cocos.cli.dtp import plot_dtp
from cocos.cli.options import option

# Every measure with a plot of its name, without importing any; two have their own commands.
PACKAGE = Path(__file__).parents[1]
KINDS = sorted(path.stem for path in PACKAGE.glob("plots/[!_]*.py") if (PACKAGE / "measures" / path.name).exists())
KINDS = [kind for kind in KINDS if kind not in ("diff", "run")]
WITHOUT_FILE = ("landscape", "score_landscape", "weight_curve")
WARP = ("alpha", "k1", "k2")  # options of --f1 warp
SHARED = ("kind", "files", "data", "model", "out", "width", "json", "quiet")  # options of every kind
ROWS, LANDSCAPE = "Queries and candidates", "Landscape and DTP"  # panels of the help

F1_HELP = "Function of the distance to the own proxy: t, t^2, sqrt, t^1.5, 0.97t or warp."
ALPHA_HELP = "Boundary of the warp. dtp: NUMBER or RUN=NUMBER, repeatable; 28,34@600 changes at step 600."
WIDTH_HELP = "Figure width: `one` or `two` columns of a paper (3.3 or 6.9 inches, 8 pt text), or inches."


@app.command(epilog="Example: cocos plot lorenz embeddings.npz --loss triplet")
def plot(
    context: typer.Context,
    kind: Annotated[str | None, typer.Argument(help=f"{', '.join(KINDS)}.", show_default="list them")] = None,
    files: Annotated[list[Path] | None, typer.Argument(metavar="[FILE]", help="Of dtp, several runs.")] = None,
    direction: Annotated[str | None, option("Direction of retrieval, such as q2c.", "all", ROWS)] = None,
    row: Annotated[int | None, option("contributors: row of the query on its side.", "a median one", ROWS)] = None,
    queries: Annotated[int | None, option("Number of queries.", "by plot", ROWS)] = None,
    confident: Annotated[float | None, option("retrievals: outline scores from here on.", "", ROWS)] = None,
    f1: Annotated[str | None, option(F1_HELP, "t", LANDSCAPE)] = None,
    alpha: Annotated[list[str] | None, option(ALPHA_HELP, "3; dtp: as recorded", LANDSCAPE)] = None,
    k1: Annotated[float | None, option("Slope of the warp inside.", "0.65", LANDSCAPE)] = None,
    k2: Annotated[float | None, option("Slope of the warp outside.", "1.5", LANDSCAPE)] = None,
    proxies: Annotated[int | None, option("Proxies, in a regular polygon.", "2", LANDSCAPE)] = None,
    loss: options.Loss = None,
    param: options.Param = None,
    eps: options.Eps = None,
    batch_size: options.BatchSize = None,
    batches: options.NumberOfBatches = None,
    sample: options.Sample = None,
    per_group: options.PerGroup = None,
    seed: options.Seed = None,
    data: options.Data = None,
    model: options.Model = None,
    split: options.Split = None,
    out: options.FigureOut = None,
    width: Annotated[str | None, option(WIDTH_HELP, "by plot", options.OUTPUT)] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Plot a measure and print its values. Without KIND, list the available plots. The default of --out is KIND.png."""
    if kind is None:
        return output.print_result(context, ["\n".join(KINDS)], KINDS)
    name, files = kind.replace("-", "_"), files or []
    if name not in KINDS:
        raise InputError(nearest("kind of plot", name, KINDS))
    accepted = [key for key in options_of(name) if key in context.params]
    for key in options.chosen(context, *(context.params.keys() - {*accepted, *SHARED})):
        flags = [f"--{option.replace('_', '-')}" for option in (key, *accepted)]
        raise InputError(f"{name} does not take {flags[0]}, only {', '.join(flags[1:])}")
    expected = 0 if name in WITHOUT_FILE else 1
    if len(files) < expected or (len(files) > expected and name != "dtp"):
        raise InputError(f"{name}: {len(files)} of FILE, expected {expected}")
    if out is None and not json:
        out = context.params["out"] = Path(f"{name}.png")
    if name == "dtp":
        return plot_dtp(context, files)
    output.check_output(out, *files, data, suffixes=(*output.FIGURES, *output.RESULTS))

    from cocos.embeddings.options import option_names
    from cocos.reports import drawing

    cocos.plots.saving.inches(width)
    typed = options.chosen(context, *(key for key in accepted if key not in ("loss", "param")))
    if name == "landscape" and (loss and {"f1", *WARP} & typed.keys() or f1 != "warp" and {*WARP} & typed.keys()):
        raise InputError("--f1, --alpha, --k1, --k2: expected --f1 warp with the last three, and no --loss")
    if alpha:
        typed["alpha"] = options.read_numbers("--alpha", alpha[-1])[0]
    measure = getattr(cocos.measures, name)
    parameters = option_names(measure)
    values = {key: value for key, value in typed.items() if key in parameters}
    loss_name = loss or ("loss" in parameters and inspect.signature(measure).parameters["loss"].default)
    with output.progress(quiet) as start:
        if not files:
            values |= {"loss": cocos.losses.load(loss_name, options.read_parameters(context))} if loss_name else {}
            datasets, items = [measure(**values)], None
        else:
            if loss_name:
                checkpoint, (values["loss"],), sampling, _ = options.open_with_losses(context, files[0])
                values |= {key: sampling[key] for key in sampling if key in parameters}
            else:
                checkpoint = options.open_source(context, files[0])
            checkpoint, items = drawing.once(checkpoint, direction), checkpoint.items(split or "train")
            datasets = [measure(checkpoint, progress=start, **values)]
            if "direction" in parameters and direction is None:
                embeddings = checkpoint.embed(split or "train")
                # a chosen row may be missing in the other direction
                further = embeddings.directions[1:] if (row or 0) < len(embeddings.candidate) else ()
                datasets += [measure(checkpoint, progress=start, **values | {"direction": side}) for side in further]
    if out is not None and out.suffix == ".nc" and len(datasets) > 1:
        raise InputError(f"--out {out}: contains one direction, expected --direction")
    texts = [drawing.row_texts(name, dataset, items) for dataset in datasets]
    if out is not None and out.suffix == ".nc":
        cocos.results.save(datasets[0], out)
    elif out is not None:
        drawing.draw(name, datasets, out, options=typed, texts=texts, width=width)
    datasets = [drawing.with_texts(*part) for part in zip(datasets, texts, strict=True)]
    tables = [table for dataset in datasets for table in cocos.reports.tables(name, dataset)]
    documents = [cocos.reports.document(name, dataset) for dataset in datasets]
    directions = {side: part for document in documents for side, part in document.get("directions", {}).items()}
    document = {"kind": name} | documents[0] | {"directions": directions}
    output.print_result(
        context, tables, document, [note for one in datasets for note in cocos.results.lines(one.attrs)]
    )


def options_of(kind: str) -> list[str]:
    """Return the names of the options of a kind: the parameters of its measure and of its plot."""
    from cocos.embeddings.options import option_names

    functions = getattr(cocos.measures, kind.replace("-", "_")), getattr(cocos.plots, kind.replace("-", "_"))
    names = dict.fromkeys(name for function in functions for name in option_names(function))
    if kind in ("eps_curve", "eps-curve"):
        del names["eps"]  # its thresholds
    return [*names, *(["param"] if "loss" in names else [])]
