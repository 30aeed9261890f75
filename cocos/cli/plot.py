"""`cocos plot`."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cocos.base.errors import InputError, nearest
from cocos.cli import options, output
from cocos.cli.app import command
from cocos.cli.dtp import plot_dtp
from cocos.cli.landscape import plot_landscape
from cocos.cli.options import option

if TYPE_CHECKING:
    import xarray as xr

# Every measure with a plot of its name, without importing any.
KINDS = sorted(
    set.intersection(
        *(
            {path.stem for path in (Path(__file__).parents[1] / folder).glob("[!_]*.py")}
            for folder in ("plots", "measures")
        )
    )
)
OWN_COMMANDS = ("diff", "run")
ROWS, CURVES, LANDSCAPE = "Queries and candidates", "Curves and distributions", "Landscape and DTP"  # panels
# Options of the command that are not options of a measure or of a plot.
SHARED = ("kind", "files", "loss", "param", "data", "model", "dims", "out", "width", "json", "quiet")

TOP_HELP = "contributors: number of candidates, or `all`."
QUERIES_HELP = "Number of queries, `all`, or for retrievals their rows, such as 3,17,40."
K_HELP = "retrievals: candidates per query. score_distribution: ranks, such as 1,10,100."
F1_HELP = "Function of the distance to the own proxy: t, t^2, sqrt, t^1.5, 0.97t or warp."
ALPHA_HELP = (
    "Boundary of the warp. landscape: several, such as 3,6, have a panel each. dtp: NUMBER or RUN=NUMBER, repeatable; "
    "28,34@600 changes at step 600, 0:3,1:5 is by class."
)
ROWS_HELP = "With a FILE: rows of two or three of its candidates, the own one first."
EPS_HELP = "Threshold on the share of a negative; several for a curve."
OUT_HELP = "Write the figure (.png, .pdf, .svg) or the Dataset (.nc) to this file."


def read_rows(text: str) -> "str | int | tuple[int, ...]":
    """Read `all`, a number, or rows separated by commas; `5,` is one row."""
    return text if text == "all" else options.read_integers(text) if "," in text else options.read_integer(text)


@command(epilog="Example: cocos plot lorenz embeddings.npz --loss triplet")
def plot(
    context: typer.Context,
    kind: Annotated[str | None, typer.Argument(help=f"{', '.join(KINDS)}.", show_default="list them")] = None,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Checkpoint or file of embeddings, or several.", show_default=False),
    ] = None,
    direction: Annotated[str | None, option("Direction of retrieval, such as q2c.", "all", ROWS)] = None,
    row: Annotated[int | None, option("contributors: row of the query on its side.", "a median one", ROWS)] = None,
    top: Annotated[Any, option(TOP_HELP, "20", ROWS, metavar="NUMBER", parser=read_rows)] = None,
    neighbours: Annotated[int | None, option("audit: nearest neighbours.", "1", ROWS)] = None,
    queries: Annotated[Any, option(QUERIES_HELP, "by plot", ROWS, metavar="INTEGERS", parser=read_rows)] = None,
    k: Annotated[Any, option(K_HELP, "5; 1,10,100", ROWS, metavar="INTEGERS", parser=options.read_integers)] = None,
    confident: Annotated[float | None, option("retrievals: outline scores from here on.", "", ROWS)] = None,
    points: Annotated[int | None, option("Points along a curve or axis.", "by plot", CURVES)] = None,
    values: Annotated[
        Any,
        option("temperature_curve: temperatures.", "a range", CURVES, metavar="NUMBERS", parser=options.read_numbers),
    ] = None,
    bins: Annotated[int | None, option("score_distribution: bins.", "100", CURVES)] = None,
    precisions: Annotated[
        Any,
        option("thresholds: precisions, such as 0.5,0.9.", "", CURVES, metavar="NUMBERS", parser=options.read_numbers),
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
    rows: Annotated[
        Any, option(ROWS_HELP, "0,1,2", LANDSCAPE, metavar="INTEGERS", parser=options.read_integers)
    ] = None,
    steps: options.Steps = None,
    loss: options.Losses = None,
    param: options.Param = None,
    eps: Annotated[Any, option(EPS_HELP, "0.01", options.LOSS, metavar="NUMBERS", parser=options.read_numbers)] = None,
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
    device: Annotated[str | None, option("auto, cpu or cuda.", "auto", options.MODEL)] = None,
    out: Annotated[Path | None, option(OUT_HELP, "KIND.png; none with --json", options.OUTPUT)] = None,
    width: options.Width = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
):
    """Plot a measure and print its values. Without KIND, list the available plots."""
    typed = [
        name for name in context.params if output.is_typed(context, name) and name not in ("kind", "files", "quiet")
    ]
    if kind is None:
        if typed:
            raise InputError("options without a KIND; cocos plot lists the kinds")
        return output.print_result(context, list_kinds, dict)
    name = kind.replace("-", "_")
    if name not in KINDS:
        if Path(kind).exists():
            raise InputError(f"{kind}: a file, expected a KIND first: cocos plot count {kind}")
        raise InputError(nearest("kind of plot", name, KINDS))
    if name in OWN_COMMANDS:
        raise InputError(f"{name} has a command of its own: cocos {name} --help")
    accepted = [key for key in options_of(name) if key in context.params]
    flags = ", ".join(f"--{key.replace('_', '-')}" for key in accepted)
    for key in typed:
        if key not in accepted and (key == "loss" or key not in SHARED):
            raise InputError(f"{name} does not take --{key.replace('_', '-')}, only {flags}")
    given = options.chosen(context, *(key for key in context.params if key not in SHARED))
    if out is None and not json:
        out = context.params["out"] = Path(f"{name}.png")
    files = files or []
    if name == "landscape":
        return plot_landscape(context, files, given)
    if name == "dtp":
        return plot_dtp(context, files, given)

    from cocos import losses, measures, plots, reports
    from cocos.plots import saving
    from cocos.reports import drawing

    measure = getattr(measures, name)
    parameters = inspect.signature(measure).parameters
    several = "names" in inspect.signature(getattr(plots, name)).parameters
    check_sources(name, parameters, files, loss or [], param, several)
    choose_values(name, given, parameters)
    wanted = loss or [None]
    by_loss = dict(zip(wanted, options.split_parameters(options.read_parameters(context), wanted), strict=True))
    for one in loss or ():
        losses.load(one, by_loss[one])  # refuse a wrong loss before a file is opened
    output.check_output(out, *files, data, suffixes=(*output.FIGURES, *output.RESULTS))
    saving.inches(width)
    default_loss = parameters["loss"].default if "loss" in parameters else None
    datasets, texts, names, about, notes = [], [], [], [], []
    with output.progress(quiet) as start:
        for file in files or [None]:
            checkpoint = None if file is None else drawing.once(options.open_source(context, file), direction)
            notes += checkpoint.notes if checkpoint else []
            items = checkpoint.items(split or "train") if checkpoint else None
            for one in wanted:
                chosen, origin = None, ""
                if checkpoint is None:
                    chosen = losses.load(one or default_loss, by_loss[one])
                elif one or default_loss:
                    chosen, origin = checkpoint.loss(one, by_loss[one])
                own = dict(given)
                if checkpoint and "batch_size" in parameters:
                    origin = options.add_batch_size(own, checkpoint, origin)
                measured = measure_directions(measure, checkpoint, chosen, own, start)
                datasets += measured
                texts += [drawing.row_texts(name, dataset, items) for dataset in measured]
                parts = [one if len(wanted) > 1 else None, label(file, files) if len(files) > 1 else None]
                names.append(", ".join(filter(None, parts)))
                if file is not None:
                    attrs = measured[-1].attrs
                    scored = (
                        f"loss {attrs['loss']}, {origin}" if origin else f"{attrs['metric'].replace('_', ' ')} scores"
                    )
                    about.append(f"{file} ({checkpoint.format}): {scored}")
    names = names if len(names) > 1 else None
    if out is not None and out.suffix == ".nc" and len(datasets) > 1:
        sides = ", ".join(dict.fromkeys(str(dataset.attrs.get("direction")) for dataset in datasets))
        content = "one loss of one file" if names else f"one direction of {sides}, expected --direction"
        raise InputError(f"--out {out}: contains {content}")

    def draw(path: Path) -> Path:
        return drawing.draw(name, datasets, path, options=given, texts=texts, names=names, width=width)

    output.save(datasets[0], out, draw)
    labels = [{key: text[key] for key in ("labels", "query") if key in text} for text in texts]

    def tables() -> list:
        blocks = [reports.tables(name, *pair[:1], **pair[1]) for pair in zip(datasets, labels, strict=True)]
        if names is None:
            return [table for block in blocks for table in block]
        return [f"{title}:\n{output.render(context, block)}" for title, block in zip(names, blocks, strict=True)]

    output.print_result(
        context,
        tables,
        lambda: document(name, datasets, labels, names),
        about=about,
        notes=[*notes, *(note for dataset in datasets for note in output.read_notes(dataset))],
        wrote=out,
    )


def options_of(kind: str) -> list[str]:
    """Return the names of the options of a kind: the parameters of its measure and of its plot."""
    from cocos import measures, plots

    functions = getattr(measures, kind.replace("-", "_")), getattr(plots, kind.replace("-", "_"))
    names = [name for function in functions for name in inspect.signature(function).parameters]
    names += ["split"] if kind == "landscape" else []  # of the file with its proxies
    return [name for name in dict.fromkeys("k" if name == "ks" else name for name in names) if name != "names"]


def usage(kind: str) -> str:
    """Return the command line that draws a kind."""
    from cocos import measures

    first = next(iter(inspect.signature(getattr(measures, kind)).parameters))
    arguments = {"embeddings": " FILE", "loss": " --loss NAME", "runs": " RUN"}.get(first, "")
    return f"cocos {kind}" if kind in OWN_COMMANDS else f"cocos plot {kind}{arguments}"


def list_kinds() -> list:
    """Return the table of all kinds with the question that each answers, and its command."""
    from cocos import measures
    from cocos.base import docstrings
    from cocos.reports.tables import Table

    rows = tuple((kind, docstrings.summary(getattr(measures, kind))) for kind in KINDS)
    exceptions = [usage(kind) for kind in KINDS if usage(kind) != f"cocos plot {kind} FILE"]
    notes = ("Draw one: cocos plot KIND FILE.", f"Exceptions: {'; '.join(exceptions)}.")
    return [Table(("kind", "question"), rows, (), notes, left=True)]


def check_sources(
    kind: str, parameters: Any, files: Sequence[Path], losses: Sequence[str], param: Any, several: bool
) -> None:
    """Refuse files, losses and loss parameters that a kind does not plot."""
    if ("embeddings" in parameters) != bool(files):
        problem = f"plots a loss, not a file such as {files[0]}" if files else "missing FILE"
        raise InputError(f"{kind}: {problem}: {usage(kind)}")
    if param and "loss" not in parameters:
        raise InputError(f"{kind} reads no loss, so -p does not apply")
    if param and not losses and parameters["loss"].default is None:
        raise InputError(f"{kind}: parameters without --loss, so scores are cosines")
    if len(set(files)) < len(files) or len(set(losses)) < len(losses):
        raise InputError(f"{kind}: a file or a loss is given twice")
    if not several and max(len(files), len(losses)) > 1:
        raise InputError(f"{kind}: {len(files)} files and {len(losses)} losses, expected at most one of each")


def choose_values(kind: str, given: dict[str, Any], parameters: Any) -> None:
    """Give options with one or several values the type that a kind takes."""
    if "k" in given and "ks" in parameters:
        given["ks"] = given.pop("k")
    for name in ("eps", "k") if kind != "eps_curve" else ():
        if name in given:
            if len(given[name]) != 1:
                raise InputError(f"--{name} {','.join(map(str, given[name]))}: {len(given[name])} values, expected one")
            given[name] = given[name][0]
    for name in {"queries", "top"} & given.keys() if kind != "retrievals" else ():
        if isinstance(given[name], tuple):
            raise InputError(f"--{name} {','.join(map(str, given[name]))}: {len(given[name])} values, expected one")
        given[name] = None if given[name] == "all" else given[name]
    if given.get("queries") == "all":
        raise InputError("--queries 'all': expected a number of queries, or their rows, such as 3,17,40")


def measure_directions(
    measure: Any, checkpoint: Any, loss: Any, given: dict[str, Any], start: Any
) -> "list[xr.Dataset]":
    """Measure: one Dataset, or one for each direction if the measure takes a direction and none is chosen.

    A chosen row that the second direction does not have is of the first one alone.
    """
    parameters = inspect.signature(measure).parameters
    own = {name: value for name, value in given.items() if name in parameters}
    own |= {} if loss is None else {"loss": loss}
    if checkpoint is None:
        return [measure(**own)]
    own |= {"progress": start} if "progress" in parameters else {}
    datasets = [measure(checkpoint, **own)]
    if "direction" in parameters and "direction" not in own:
        embeddings = checkpoint.embed(given.get("split", "train"))
        if (own.get("row") or 0) < len(embeddings.candidate):
            datasets += [measure(checkpoint, direction=name, **own) for name in embeddings.directions[1:]]
    return datasets


def label(file: Path, files: Sequence[Path]) -> str:
    """Return the stem of a file, or its path if stems repeat."""
    return file.stem if len({path.stem for path in files}) == len(files) else str(file)


def document(kind: str, datasets: "list[xr.Dataset]", labels: list[dict], names: list[str] | None) -> dict:
    """Return the JSON document; several losses or files have `names`, and a document each."""
    from cocos import reports

    if names:
        parts = zip(names, datasets, labels, strict=True)
        series = [{"name": name} | document(kind, [dataset], [own], None) for name, dataset, own in parts]
        return {"kind": kind, "series": series}
    documents = [reports.document(kind, dataset, **own) for dataset, own in zip(datasets, labels, strict=True)]
    if "directions" in documents[0]:
        directions = {name: part for one in documents for name, part in one["directions"].items()}
        return {"kind": kind} | documents[0] | {"directions": directions}
    return {
        "kind": kind,
        "directions": {d.attrs.get("direction"): one for d, one in zip(datasets, documents, strict=True)},
    }
