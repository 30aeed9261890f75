"""Plot of the part of the push that each source of negatives has, beside its part of the negatives."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from cocos.embeddings.sources import SOURCES
from cocos.plots.labels import SIDE_LENGTH, below, drawn, palette, series
from cocos.plots.wording import plain

# Parts of a bar from which its percentage is written into it.
WRITTEN = 0.07
HEIGHTS = {"push": (0.18, 0.4), "share": (-0.22, 0.22)}  # middle and height of a bar, in rows
BAR = "push fraction"


def sources(
    dataset: xr.Dataset | Sequence[xr.Dataset],
    *,
    names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw two bars for each loss or file and direction: parts of the push, and below, thinner, of the negatives.

    Examples:
        >>> side = torch.eye(4, dtype=torch.float64)
        >>> embeddings = cocos.Embeddings(side, 2 * side, negatives=side)
        >>> cocos.plots.sources(cocos.measures.sources(embeddings)).has_data()
        True
    """
    ax, several = ax or plt.gca(), series(dataset, names)
    rows = _rows(several)
    there = [name for name in SOURCES if any(name in one["source"].values for _, one in rows)]
    for source, colour in zip(there, palette(len(there)), strict=True):
        ax.barh([0], [0], color=colour, label=source)
        for kind, (middle, height) in HEIGHTS.items():
            pale, written = (1, "white") if kind == "push" else (0.45, "0.2")
            for place, (_, one) in enumerate(rows):
                left, width = _span(one[kind], source)
                bar = ax.barh(-place + middle, 100 * width, height, 100 * left, color=colour, alpha=pale, gid=BAR)
                if width >= WRITTEN:
                    said = [f"{100 * width:.0f} %"]
                    ax.bar_label(bar, said, label_type="center", fontsize="small", color=written)
    label = f"push fraction (%) and, below it, fraction of negatives (%)\n{drawn(several)}"
    ax.set(xlim=(0, 100), ylim=(0.55 - len(rows), 0.55), xlabel=label)
    ax.set_yticks([-place for place in range(len(rows))], [name for name, _ in rows])
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    below(ax, lines=3, ncols=3)
    ax.set_title(title(list(several.values()), list(several)), fontsize="medium")
    return ax


def _rows(several: dict[str, xr.Dataset]) -> list[tuple[str, xr.Dataset]]:
    """Name and values of each pair of bars: directions with more than one source."""
    found = []
    for name, data in several.items():
        for direction in data["direction"].values:
            one = data.sel(direction=direction)
            if int(one["share"].notnull().sum()) > 1:
                side = plain(direction, SIDE_LENGTH)
                found.append((f"{name}, {side}" if len(several) > 1 else side, one))
    return found


def _span(parts: xr.DataArray, source: str) -> tuple[float, float]:
    """Left end and width of a source in its bar."""
    values = np.nan_to_num(parts.values)
    place = parts["source"].values.tolist().index(source) if source in parts["source"].values else len(values)
    return float(values[:place].sum()), float(values[place]) if place < len(values) else 0.0


def title(datasets: Sequence[xr.Dataset], names: Sequence[str]) -> str:
    """State which source has the most push in the first row, and its part of the negatives."""
    (name, one), *others = _rows(dict(zip(names, datasets, strict=True)))
    source = one["source"].values[int(one["push"].fillna(0).values.argmax())]
    push, share = (100 * float(one[kind].sel(source=source)) for kind in ("push", "share"))
    which = f"{name}: the" if others else "The"
    return f"{which} source {plain(source)} has {push:.0f} % of the push and {share:.0f} % of the negatives"


def size(datasets: Sequence[xr.Dataset]) -> tuple[float, float]:
    """Width and height of one panel in inches."""
    rows = _rows({str(place): data for place, data in enumerate(datasets)})
    return 7.0, 2.1 + 0.75 * max(1, len(rows))
