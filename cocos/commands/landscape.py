"""`cocos landscape`."""

import functools
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from cocos.base.errors import InputError
from cocos.commands._answer import answer, checked, progress
from cocos.commands._options import Figure, Opening, Param, Width, named_values, whole_numbers
from cocos.commands._program import command


@command("Plots", 2)
def landscape(
    source: Opening,
    file: Annotated[
        Path | None,
        Argument(help="A checkpoint or a file of embeddings, whose candidates are the proxies.", show_default=False),
    ] = None,
    f1: Annotated[
        str | None,
        Option(help="Function of the distance to the own proxy: t, t^2, sqrt, t^1.5, 0.97, warp, or yours. [t]"),
    ] = None,
    f2: Annotated[
        str | None, Option(help="Function of the distance to the other proxies. [f1; t for the warp and factors]")
    ] = None,
    alpha: Annotated[float | None, Option(help="Boundary of the warp. [3]")] = None,
    k1: Annotated[float | None, Option(help="Slope of the warp inside its boundary. [0.65]")] = None,
    k2: Annotated[float | None, Option(help="Slope of the warp outside its boundary. [1.5]")] = None,
    scale: Annotated[float | None, Option(help="Factor of the exponents. [1]")] = None,
    loss: Annotated[str | None, Option(help="A loss of the shelf, in place of f1 and f2.")] = None,
    param: Param = None,
    proxies: Annotated[int | None, Option(help="Number of proxies, in a regular polygon. [2]")] = None,
    distance: Annotated[float | None, Option(help="Distance between two neighbouring proxies. [10]")] = None,
    rows: Annotated[
        str | None, Option(help="With a FILE: rows of two or three of its candidates, the own one first. [0,1,2]")
    ] = None,
    surface: Annotated[bool, Option("--surface", help="Draw the landscape in three dimensions.")] = False,
    split: Annotated[str | None, Option(help="Split of the checkpoint's data to encode. [train]")] = None,
    out: Figure = Path("landscape.png"),
    width: Width = None,
):
    """Draw the loss around its proxies, with the predicted and the found minimum for an embedding."""
    parameters = named_values(param)
    if parameters and loss is None:
        raise InputError("parameters, but no --loss: give those of the warp as --alpha, --k1 and --k2")
    warp = {"alpha": alpha, "k1": k1, "k2": k2}
    curves = {"f1": f1, "f2": f2, "scale": scale} | warp
    polygon = {"proxies": proxies, "distance": distance}
    of_file = {"rows": rows, "split": split} | {name: value or None for name, value in vars(source).items()}
    warp, curves, polygon, of_file = (
        {name: value for name, value in group.items() if value is not None}
        for group in (warp, curves, polygon, of_file)
    )
    if loss is not None and curves:
        raise InputError(f"--{next(iter(curves))} and --loss {loss}: a loss stands in the place of f1 and f2")
    if warp and "warp" not in {(f1 or "").strip(), (f2 or "").strip()}:
        raise InputError(f"--{next(iter(warp))}: it is of the warp, and neither --f1 nor --f2 is warp")
    if file is None and of_file:
        raise InputError(f"--{next(iter(of_file))}: it is of a FILE, and none is given")
    if file is not None and polygon:
        raise InputError(f"--{next(iter(polygon))} and {file}: the proxies are its own; choose them with --rows")
    asked = {} if rows is None else {"rows": whole_numbers(rows, "--rows", "0,1,2")}
    from cocos import losses as shelf
    from cocos import measures, plots
    from cocos.reports import saving

    figure = checked(out, file, source.data, figures=True)
    chosen = None if loss is None else shelf.load(loss, parameters)
    embeddings, about, notes = None, [], []
    if file is not None:
        with progress() as start:
            frozen = source.open(file)
            embeddings = frozen.embed(split=split or "train", progress=start("encoding"))
        about, notes = [f"{file} ({frozen.format}): its candidates are the proxies"], frozen.notes
    found = measures.landscape(loss=chosen, embeddings=embeddings, **curves, **polygon, **asked)

    draw = functools.partial(
        *(saving.save_plot, plots.landscape, found), size=(6.6, 5.2), width=width, projection="3d" if surface else None
    )
    return answer("landscape", found, out, draw=draw if figure else None, about=about, notes=notes)
