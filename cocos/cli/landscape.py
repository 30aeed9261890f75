"""`cocos plot landscape`."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output

SIZE = (6.6, 5.2)  # inches of a panel
WARP, CURVES, POLYGON = (
    ("alpha", "k1", "k2"),
    ("f1", "f2", "scale", "metric", "alpha", "k1", "k2"),
    ("proxies", "distance"),
)


def plot_landscape(
    context: typer.Context,
    files: Sequence[Path],
    losses: Sequence[str] | None,
    parameters: Mapping[str, str],
    own: Mapping[str, Any],
    source: Mapping[str, Any],
    *,
    out: Path | None,
    width: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Draw the loss around its proxies, with the predicted and the found minimum for an embedding."""
    for name, values in (("files", files), ("losses", losses or [])):
        if len(values) > 1:
            raise InputError(f"landscape: {len(values)} {name}, expected at most one")
    file, name = (files or [None])[0], (losses or [None])[0]
    if parameters and name is None:
        raise InputError("parameters without --loss; the warp has --alpha, --k1 and --k2")
    if name is not None and (option := next((each for each in CURVES if each in own), None)):
        raise InputError(f"--{option} and --loss {name}: expected --loss or f1 and f2")
    if "warp" not in {own.get("f1", "").strip(), own.get("f2", "").strip()}:
        if option := next((each for each in WARP if each in own), None):
            raise InputError(f"--{option} requires --f1 warp or --f2 warp")
    of_file = {"rows": own.get("rows"), "split": own.get("split")} | source
    if file is None and (option := next((key for key, value in of_file.items() if value is not None), None)):
        raise InputError(f"--{option} requires a FILE")
    if file is not None and (option := next((each for each in POLYGON if each in own), None)):
        raise InputError(f"--{option} and {file}: its candidates are the proxies; choose them with --rows")
    texts = [part for text in own.get("alpha", ()) for part in text.split(",")]
    try:
        alphas = [{"alpha": float(text)} for text in texts] or [{}]
    except ValueError:
        raise InputError(f"--alpha {','.join(texts)!r}: expected a number, or several such as 3,6") from None
    if len(alphas) > 1 and out is not None and out.suffix == ".nc":
        raise InputError(f"--out {out}: contains one landscape, not {len(alphas)}")
    output.check_output(out, file, source["data"], suffixes=(*output.FIGURES, *output.RESULTS))

    from cocos import losses as catalogue
    from cocos import measures, plots, reports
    from cocos.plots import saving

    saving.inches(width)
    loss = None if name is None else catalogue.load(name, dict(parameters))
    embeddings, about, notes = None, [], []
    if file is not None:
        checkpoint = options.open_file(file, **source)
        with output.progress(quiet) as start:
            embeddings = checkpoint.embed(split=own.get("split", "train"), progress=start("encoding"))
        about, notes = [f"{file} ({checkpoint.format}): its candidates are the proxies"], checkpoint.notes
    shared = {key: value for key, value in own.items() if key not in {"alpha", "split", "surface"}}
    datasets = [measures.landscape(loss=loss, embeddings=embeddings, **shared, **alpha) for alpha in alphas]
    panels = [functools.partial(plots.landscape, dataset) for dataset in datasets]
    projection = "3d" if "surface" in own else None
    draw = functools.partial(saving.save_panels, panels, size=SIZE, width=width, projection=projection)
    output.save(datasets[0], out, draw)
    documents = [functools.partial(reports.document, "landscape", dataset) for dataset in datasets]
    output.print_result(
        lambda: "\n\n".join(
            output.render(table, context) for dataset in datasets for table in reports.tables("landscape", dataset)
        ),
        lambda: {"landscapes": [make() for make in documents]} if len(documents) > 1 else documents[0](),
        as_json=as_json,
        quiet=quiet,
        about=about,
        notes=[*notes, *output.read_notes(datasets[0])],
        wrote=out,
    )
