"""A figure on its own, drawn by a plot of the shelf and written whole or not at all."""

import io
import os
import textwrap
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import matplotlib
import seaborn as sns
import xarray as xr
from matplotlib.figure import Figure

import cocos
from cocos import writing
from cocos.errors import InputError, unreachable

__all__ = ["STYLE", "draw", "drawable", "panels", "save", "styled"]

SUFFIXES = (".png", ".pdf", ".svg")
LONGEST = 255  # bytes of a name
PER_INCH = 9  # characters of a title
# Text stays text: fonts are embedded whole in a PDF (publishers refuse Type 3), and are named in an SVG.
FONTS = {"font.family": "DejaVu Sans", "pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "cocos"}
STYLE = sns.axes_style("ticks") | FONTS


def drawable(path: Path, *more: str) -> Path:
    """Refuse a picture before anything is computed.

    Args:
        path: of the picture.
        more: suffixes that would be right too, though of no picture.

    Raises:
        InputError: a suffix that no picture has, a name that is too long, or a folder that is missing or cannot be
            written.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"picture {path}: suffix {path.suffix!r}, expected one of {', '.join((*SUFFIXES, *more))}")
    if len(os.fsencode(path.name)) > LONGEST:
        raise InputError(f"picture {path}: the name is too long for a file")
    try:
        there = path.parent.is_dir() and not path.is_dir()
    except OSError as error:
        raise InputError(f"picture {path}: {unreachable(error)}") from None
    if not there:
        raise InputError(f"picture {path}: it must be a file in a folder that is there")
    writing.writable(path.parent, f"picture {path}")
    return path


@contextmanager
def styled() -> Generator[None]:
    """The same look wherever cocos draws: the defaults of matplotlib and `STYLE`, and no `matplotlibrc` of anyone's."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def save(figure: Figure, path: Path, about: dict) -> Path:
    """Write a figure at 160 dots per inch, made in memory and then written whole or not at all.

    Args:
        figure: drawn within `styled`.
        path: .png, .pdf or .svg.
        about: metadata of the file.

    Raises:
        InputError: the file cannot be written.
    """
    stream = io.BytesIO()
    figure.savefig(stream, dpi=160, format=path.suffix[1:].lower(), metadata=about)
    return writing.write(path, stream.getvalue(), "picture")


def draw(
    plot: Callable,
    data: xr.Dataset,
    path: Path,
    *,
    size: tuple[float, float] = (6.4, 4.4),
    projection: str | None = None,
) -> Path:
    """Write the picture of a Dataset.

    Args:
        plot: of `cocos.plots`, a function of (Dataset, ax=).
        data: what it draws.
        path: .png, .pdf or .svg.
        size: inches.
        projection: of the Axes, `3d` for a surface.

    Raises:
        InputError: the file cannot be written.
    """
    return panels([partial(plot, data)], path, size=size, projection=projection)


def panels(plots: Sequence[Callable], path: Path, *, size: tuple[float, float], projection: str | None = None) -> Path:
    """Write a picture of several panels, side by side.

    Args:
        plots: functions of (ax=), one a panel.
        path: .png, .pdf or .svg.
        size: of the whole, inches.
        projection: of the Axes, `3d` for a surface.

    Raises:
        InputError: the file cannot be written.
    """
    path = drawable(path)
    suffix = path.suffix.lower()
    about = {"Creator" if suffix != ".png" else "Software": f"cocos {cocos.__version__}"}
    undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(suffix, {})
    with styled():
        figure = Figure(figsize=size, layout="constrained")
        for place, plot in enumerate(plots, start=1):
            ax = plot(ax=figure.add_subplot(1, len(plots), place, projection=projection))
            lines = ax.get_title().splitlines()
            fill = partial(textwrap.fill, width=int(PER_INCH * size[0] / len(plots)), break_on_hyphens=False)
            ax.title.set_text("\n".join(map(fill, lines)))
        return save(figure, path, about | undated)
