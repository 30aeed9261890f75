"""Print the tables and draw the figures of the papers: `python -m analysis table` and `python -m analysis figures`."""

import hashlib
import importlib
import json
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import xarray as xr
from matplotlib.figure import Figure
from PIL import Image

import cocos
from analysis import table_formats, tables
from cocos import results
from cocos.base.errors import InputError
from cocos.plots.saving import finish, save, styled

SCRIPTS, FIGURES = Path(__file__).parent, Path(__file__).parents[1] / "figures"
SUFFIXES = ("svg", "pdf", "png")  # only the .png is in the repository
COMPRESSED = {"zlib": True, "complevel": 6, "shuffle": True}
Format = StrEnum("Format", list(table_formats.TABLE_FORMATS))

app = typer.Typer(help=__doc__, add_completion=False, no_args_is_help=True, rich_markup_mode=None)


def names() -> list[str]:
    """List the scripts that draw a figure: those with the functions `data` and `draw`."""
    scripts = {path.stem: path.read_text("utf-8") for path in sorted(SCRIPTS.glob("*.py"))}
    return [name for name, text in scripts.items() if re.search(r"^def data\(", text, re.M) and "\ndef draw(" in text]


def load(name: str) -> dict[str, xr.Dataset]:
    """Read the data of a figure."""
    with xr.open_datatree(FIGURES / f"{name}.nc", engine="h5netcdf") as tree:
        return {part: node.to_dataset().load() for part, node in tree.children.items()}


def compute(name: str) -> None:
    """Compute the data of a figure and write them."""
    parts = importlib.import_module(f"analysis.{name}").data()
    tree = xr.DataTree.from_dict({f"/{part}": data for part, data in parts.items()})
    tree.attrs = {"cocos": cocos.__version__}
    encoding = {
        f"/{part}": {variable: COMPRESSED for variable in data.data_vars if data[variable].ndim > 1}
        for part, data in parts.items()
    }
    tree.to_netcdf(FIGURES / f"{name}.nc", engine="h5netcdf", encoding=encoding)


def source(name: str) -> str:
    """Return the sentence on the data that a figure is drawn from."""
    return f"data sha256: {hashlib.sha256((FIGURES / f'{name}.nc').read_bytes()).hexdigest()}"


def subject(name: str) -> str:
    """Return the sentence on what a figure shows, the first one of its script."""
    return " ".join(importlib.import_module(f"analysis.{name}").__doc__.split("\n\n")[0].split())


def caption(name: str) -> str:
    """Return what a figure shows, its main numbers, and the item of a paper that it repeats."""
    script = importlib.import_module(f"analysis.{name}")
    published = [f"After {script.PUBLISHED}."] if hasattr(script, "PUBLISHED") else []
    return " ".join([subject(name), f"{script.title(load(name))}.", *published])


def draw(name: str) -> None:
    """Draw a figure from its data."""
    script = importlib.import_module(f"analysis.{name}")
    about = f"cocos {cocos.__version__}; command: python -m analysis figures {name}; {source(name)}"
    with styled(printed=True):
        figure = Figure(figsize=script.SIZE, layout="constrained")
        script.draw(load(name), figure)
        finish(figure)
        for suffix in SUFFIXES:
            save(figure, FIGURES / f"{name}.{suffix}", {"Title": caption(name), "Description": about})


def fault(name: str) -> str:
    """Return the problem with the files of a figure, or an empty text."""
    picture = FIGURES / f"{name}.png"
    if not (FIGURES / f"{name}.nc").is_file():
        return "no data"
    if not picture.is_file():
        return "not drawn"
    with Image.open(picture) as image:
        return "" if source(name) in image.text.get("Description", "") else "drawn from other data"


def index() -> str:
    """Return the text of figures/README.md: every figure with its caption."""
    drawn = [name for name in names() if (FIGURES / f"{name}.png").is_file()]
    sections = [f"## {name}\n\n![{subject(name)}]({name}.png)\n\n{caption(name)}" for name in drawn]
    return "\n\n".join(["# Figures", "Written by `python -m analysis figures`.", *sections]) + "\n"


def labelled(given: str) -> tuple[str | None, Path]:
    """Split LABEL=FILE; a file whose own name has an equals sign is a file."""
    label, sign, file = given.partition("=")
    return (label, Path(file)) if sign and label and file and not Path(given).exists() else (None, Path(given))


@app.command()
def table(
    name: Annotated[str | None, typer.Argument(help="Table. [list all tables]")] = None,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RESULTS...", help="Results (.nc), LABEL=RESULT or DATASET=RESULT. [the published numbers]"
        ),
    ] = None,
    format: Annotated[Format, typer.Option(help="Format of the table.")] = Format.markdown,
    published: Annotated[bool, typer.Option("--published", help="Add the published numbers.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print a table of a paper: the published numbers, or yours with mean and deviation over the runs."""
    if name is None:
        rows = [(each.name, each.title, each.printed["cited"]) for each in tables.PAPER_TABLES.values()]
        listed = [dict(zip(("table", "title", "published"), row, strict=True)) for row in rows]
        print(json.dumps(listed) if as_json else "\n".join("  ".join(row) for row in rows))
        return
    given = [labelled(each) for each in files or ()]
    try:
        data = tables.paper_table(
            name,
            [results.open(file) for _, file in given],
            labels=[label for label, _ in given],
            names=[str(file) for _, file in given],
            published=published or not given,
        )
    except (InputError, OSError) as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from None
    print(json.dumps(tables.document(data)) if as_json else table_formats.TABLE_FORMATS[format](data))


@app.command()
def figures(
    chosen: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Figures. [all]")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute the data again.")] = False,
    check: Annotated[bool, typer.Option("--check", help="List missing and outdated files; exit 1 if any.")] = False,
) -> None:
    """Draw figures; compute their data if there are none."""
    known = names()
    if unknown := sorted(set(chosen or ()) - set(known)):
        raise typer.BadParameter(f"{unknown[0]}, expected one of {', '.join(known)}")
    if check:
        faults = {name: fault(name) for name in chosen or known}
        print("\n".join(f"{name}: {words}" for name, words in faults.items() if words) or "nothing to do")
        raise typer.Exit(int(any(faults.values())))
    for name in chosen or known:
        if fresh or not (FIGURES / f"{name}.nc").is_file():
            compute(name)
        draw(name)
        print(f"figures/{name}.png")
    (FIGURES / "README.md").write_text(index(), "utf-8")


if __name__ == "__main__":
    app()
