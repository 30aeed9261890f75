"""`cocos plot`."""

import inspect
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cocos.base.errors import InputError, nearest
from cocos.cli import options, output
from cocos.cli.app import app
from cocos.cli.dtp import plot_dtp
from cocos.cli.options import option

if TYPE_CHECKING:
    import xarray as xr

# Every measure with a plot of its name, without importing any.
FOLDERS = [Path(__file__).parents[1] / name for name in ("measures", "plots")]
KINDS = sorted(set.intersection(*({path.stem for path in folder.glob("[!_]*.py")} for folder in FOLDERS)))
OWN_COMMANDS = ("diff", "run")
WITHOUT_FILE = ("landscape", "score_landscape", "weight_curve")
# Landscape options: the warp, and functions of the distance in place of a loss.
WARP, CURVES = ("alpha", "k1", "k2"), ("f1", "f2", "scale", "metric", "alpha", "k1", "k2")
# Options of every kind.
SHARED = ("kind", "files", "data", "model", "dims", "out", "width", "json", "quiet")
ROWS, CURVE, LANDSCAPE = "Queries and candidates", "Curves and distributions", "Landscape and DTP"  # panels

QUERIES_HELP = "Number of queries, `all`, or for retrievals their rows, such as 3,17,40."
K_HELP = "retrievals: candidates per query. score_distribution: ranks, such as 1,10,100."
F1_HELP = "Function of the distance to the own proxy: t, t^2, sqrt, t^1.5, 0.97t or warp."
ALPHA_HELP = "Boundary of the warp. dtp: NUMBER or RUN=NUMBER, repeatable; 28,34@600 changes at step 600."
OUT_HELP = "Write the figure (.png, .pdf, .svg) or the Dataset (.nc) to this file."


@app.command(epilog="Example: cocos plot lorenz embeddings.npz --loss triplet")
def plot(
    context: typer.Context,
    kind: Annotated[str | None, typer.Argument(help=f"{', '.join(KINDS)}.", show_default="list them")] = None,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]", help="Checkpoint or file of embeddings; dtp: runs.", show_default=False),
    ] = None,
    direction: Annotated[str | None, option("Direction of retrieval, such as q2c.", "all", ROWS)] = None,
    row: Annotated[int | None, option("contributors: row of the query on its side.", "a median one", ROWS)] = None,
    top: Annotated[Any, option("contributors: candidates, or `all`.", "20", ROWS, parser=options.read_rows)] = None,
    queries: Annotated[Any, option(QUERIES_HELP, "by plot", ROWS, parser=options.read_rows)] = None,
    k: Annotated[Any, option(K_HELP, "5; 1,10,100", ROWS, parser=options.read_rows)] = None,
    confident: Annotated[float | None, option("retrievals: outline scores from here on.", "", ROWS)] = None,
    points: Annotated[int | None, option("Points along a curve or axis.", "by plot", CURVE)] = None,
    values: Annotated[
        Any, option("temperature_curve: temperatures.", "a range", CURVE, parser=options.read_numbers)
    ] = None,
    bins: Annotated[int | None, option("score_distribution: bins.", "100", CURVE)] = None,
    precisions: Annotated[
        Any, option("thresholds: precisions, such as 0.5,0.9.", "", CURVE, parser=options.read_numbers)
    ] = None,
    f1: Annotated[str | None, option(F1_HELP, "t", LANDSCAPE)] = None,
    f2: Annotated[str | None, option("The same for the other proxies.", "f1 or t", LANDSCAPE)] = None,
    alpha: Annotated[list[str] | None, option(ALPHA_HELP, "3; dtp: as recorded", LANDSCAPE)] = None,
    k1: Annotated[float | None, option("Slope of the warp inside.", "0.65", LANDSCAPE)] = None,
    k2: Annotated[float | None, option("Slope of the warp outside.", "1.5", LANDSCAPE)] = None,
    scale: Annotated[float | None, option("Factor of the exponents.", "1", LANDSCAPE)] = None,
    metric: Annotated[str | None, option("Distance: euclidean, cosine, ...", "by plot", LANDSCAPE)] = None,
    distance: Annotated[float | None, option("Distance between neighbouring proxies.", "10", LANDSCAPE)] = None,
    proxies: Annotated[int | None, option("Proxies, in a regular polygon.", "2", LANDSCAPE)] = None,
    steps: options.Steps = None,
    loss: options.Loss = None,
    param: options.Param = None,
    eps: Annotated[
        Any, option("Threshold on the share of a negative.", "0.01", options.LOSS, parser=options.read_numbers)
    ] = None,
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
    device: options.Device = None,
    out: Annotated[Path | None, option(OUT_HELP, "KIND.png; none with --json", options.OUTPUT)] = None,
    width: options.Width = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Plot a measure and print its values. Without KIND, list the available plots."""
    if kind is None:
        return output.print_result(context, list_kinds, lambda: KINDS)
    name, files = kind.replace("-", "_"), files or []
    if name not in KINDS:
        raise InputError(nearest("kind of plot", name, KINDS))
    if name in OWN_COMMANDS:
        raise InputError(f"{name} has a command of its own: cocos {name} --help")
    accepted = [key for key in options_of(name) if key in context.params]
    for key in context.params:
        if key not in (*accepted, *SHARED) and output.is_typed(context, key):
            flags = ", ".join(f"--{key.replace('_', '-')}" for key in accepted)
            raise InputError(f"{name} does not take --{key.replace('_', '-')}, only {flags}")
    if not files and name not in WITHOUT_FILE:
        raise InputError(f"{name}: missing FILE: cocos plot {name} FILE")
    if len(files) > (name not in WITHOUT_FILE) and name != "dtp":
        raise InputError(f"{name} takes {'no file' if name in WITHOUT_FILE else 'one file'}, not {files[-1]}")
    if out is None and not json:
        out = context.params["out"] = Path(f"{name}.png")
    if name == "dtp":
        return plot_dtp(context, files)

    from cocos import losses, measures, reports
    from cocos.embeddings.options import option_names
    from cocos.plots import saving
    from cocos.reports import drawing

    given = options.chosen(context, *(key for key in accepted if key not in ("loss", "param")))
    measure = getattr(measures, name)
    names = option_names(measure)
    choose_values(name, given, names, loss)
    loss_name = loss or (inspect.signature(measure).parameters["loss"].default if "loss" in names else None)
    loss_parameters = options.read_parameters(context)
    if loss_parameters and loss_name is None:
        raise InputError(f"{name}: parameters without --loss")
    loaded = losses.load(loss_name, loss_parameters) if loss or (loss_name and not files) else None
    output.check_output(out, *files, data, suffixes=(*output.FIGURES, *output.RESULTS))
    saving.inches(width)
    values = {key: value for key, value in given.items() if key in names}
    about, notes, items = [], [], None
    with output.progress(quiet) as start:
        if files:
            checkpoint, origin = drawing.once(options.open_source(context, files[0]), direction), None
            notes, items = list(checkpoint.notes), checkpoint.items(split or "train")
            if loss_name:
                values["loss"], origin = checkpoint.loss(loss, loss_parameters)
            if "batch_size" in names:
                origin = options.add_batch_size(values, checkpoint, origin)
            datasets = [measure(checkpoint, progress=start, **values)]
            if "direction" in names and direction is None:
                embeddings = checkpoint.embed(split or "train")
                # a chosen row may be missing in the other direction
                others = embeddings.directions[1:] if (row or 0) < len(embeddings.candidate) else ()
                datasets += [measure(checkpoint, direction=other, progress=start, **values) for other in others]
            attrs = datasets[0].attrs
            if origin and "loss" in attrs:
                scored = f"loss {attrs['loss']}, {origin}"
            else:
                scored = f"{attrs['metric'].replace('_', ' ')} scores"
            about = [f"{files[0]} ({checkpoint.format}): {scored}"]
        else:
            datasets = [measure(**values if loaded is None else values | {"loss": loaded})]
    if out is not None and out.suffix == ".nc" and len(datasets) > 1:
        sides = ", ".join(str(dataset.attrs["direction"]) for dataset in datasets)
        raise InputError(f"--out {out}: contains one direction of {sides}, expected --direction")
    texts = [drawing.row_texts(name, dataset, items) for dataset in datasets]
    output.save(datasets[0], out, partial(drawing.draw, name, datasets, options=given, texts=texts, width=width))
    labels = [{key: text[key] for key in ("labels", "query") if key in text} for text in texts]
    parts = list(zip(datasets, labels, strict=True))
    output.print_result(
        context,
        lambda: [table for dataset, text in parts for table in reports.tables(name, dataset, **text)],
        lambda: join_documents(name, [reports.document(name, dataset, **text) for dataset, text in parts], datasets),
        about=about,
        notes=[*notes, *(note for dataset in datasets for note in output.read_notes(dataset))],
        wrote=out,
    )


def options_of(kind: str) -> list[str]:
    """Return the names of the options of a kind: the parameters of its measure and of its plot."""
    from cocos import measures, plots
    from cocos.embeddings.options import option_names

    functions = getattr(measures, kind.replace("-", "_")), getattr(plots, kind.replace("-", "_"))
    names = dict.fromkeys(name for function in functions for name in option_names(function))
    return [*("k" if name == "ks" else name for name in names), *(["param"] if "loss" in names else [])]


def list_kinds() -> list:
    """Return the table of all kinds with the question that each answers."""
    from cocos import measures
    from cocos.base import docstrings
    from cocos.reports.tables import Table

    rows = tuple((kind, docstrings.summary(getattr(measures, kind))) for kind in KINDS)
    notes = ("Draw one: cocos plot KIND FILE.", f"Without FILE: {', '.join(WITHOUT_FILE)}.")
    commands = (f"Commands of their own: {', '.join(f'cocos {name}' for name in OWN_COMMANDS)}.",)
    return [Table(("kind", "question"), rows, (), notes + commands, left=True)]


def choose_values(kind: str, given: dict[str, Any], names: list[str], loss: str | None) -> None:
    """Give options with one or several values the type that a kind takes, and refuse those that do not go together."""
    if kind == "landscape":
        warp = "warp" in (given.get("f1"), given.get("f2"))
        reason = f"does not go with --loss {loss}" if loss else "requires --f1 warp or --f2 warp"
        for name in (CURVES if loss else () if warp else WARP) & given.keys():
            raise InputError(f"--{name} {reason}")
        if "alpha" in given:
            given["alpha"] = options.read_number("--alpha", ",".join(given["alpha"]))
    if "k" in given and "ks" in names:
        given["ks"] = given.pop("k")
    several = {"eps_curve": ("eps", "k"), "retrievals": ("queries",)}.get(kind, ("ks", "values", "precisions"))
    for name in {"eps", "k", "ks", "queries", "top", "values", "precisions"} & given.keys():
        value = given[name]
        if name in several:
            given[name] = value if isinstance(value, tuple) or kind == "retrievals" else (value,)
        elif isinstance(value, tuple):
            raise InputError(f"--{name} {','.join(map(str, value))}: {len(value)} values, expected one")
        elif value == "all" and name in ("queries", "top"):
            given[name] = None
    if given.get("queries") == "all":
        raise InputError("--queries 'all': expected a number of queries, or their rows, such as 3,17,40")


def join_documents(kind: str, documents: list[dict], datasets: "list[xr.Dataset]") -> dict:
    """Return one JSON document of all directions."""
    if "directions" in documents[0]:
        directions = {name: part for document in documents for name, part in document["directions"].items()}
        return {"kind": kind} | documents[0] | {"directions": directions}
    if "direction" not in datasets[0].attrs:
        return documents[0]
    names = [dataset.attrs["direction"] for dataset in datasets]
    return {"kind": kind, "directions": dict(zip(names, documents, strict=True))}
