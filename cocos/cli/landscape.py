"""`cocos plot landscape`."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import typer

from cocos.base.errors import InputError
from cocos.cli import options, output

WARP, POLYGON = ("alpha", "k1", "k2"), ("proxies", "distance")
CURVES = ("f1", "f2", "scale", "metric", *WARP)


def plot_landscape(context: typer.Context, files: Sequence[Path], given: dict[str, Any]) -> None:
    """Plot the loss around its proxies, with the predicted and the numerical minimum for an embedding."""
    losses, out, width = (context.params[name] for name in ("loss", "out", "width"))
    for name, values in (("files", files), ("losses", losses or ())):
        if len(values) > 1:
            raise InputError(f"landscape: {len(values)} {name}, expected at most one")
    file, name = (*files, None)[0], (*(losses or ()), None)[0]
    parameters = options.read_parameters(context)
    if parameters and name is None:
        raise InputError("parameters without --loss; the warp has --alpha, --k1 and --k2")
    if name is not None:
        refuse(given, CURVES, f"does not go with --loss {name}")
    elif "warp" not in (given.get("f1", "").strip(), given.get("f2", "").strip()):
        refuse(given, WARP, "requires --f1 warp or --f2 warp")
    if file is None:
        refuse(
            given | options.chosen(context, "data", "model", "dims"),
            ("rows", "split", "data", "model", "dims"),
            "requires a FILE",
        )
    else:
        refuse(given, POLYGON, f"does not go with {file}: its candidates are the proxies; choose them with --rows")
    for text in given.pop("alpha", ()):
        try:
            given["alpha"] = float(text)
        except ValueError:
            raise InputError(f"--alpha {text!r}: expected a number") from None
    output.check_output(out, file, context.params["data"], suffixes=(*output.FIGURES, *output.RESULTS))

    from cocos import losses as catalogue
    from cocos import measures
    from cocos.plots import saving
    from cocos.reports import drawing

    saving.inches(width)
    loss = None if name is None else catalogue.load(name, parameters)
    embeddings, about, notes, split = None, [], [], given.pop("split", "train")
    if file is not None:
        checkpoint = options.open_source(context, file)
        with output.progress(context.params["quiet"]) as start:
            embeddings = checkpoint.embed(split=split, progress=start("encoding"))
        about, notes = [f"{file} ({checkpoint.format}): its candidates are the proxies"], checkpoint.notes
    dataset = measures.landscape(loss=loss, embeddings=embeddings, **given)
    draw = partial(drawing.draw, "landscape", [dataset], width=width)
    output.show(context, dataset, about=about, notes=notes, draw=draw)


def refuse(given: dict[str, Any], names: Sequence[str], reason: str) -> None:
    """Refuse options that do not go with the others."""
    for name in names:
        if name in given:
            raise InputError(f"--{name} {reason}")
