"""Nearest candidates of some queries, drawn as a contact sheet."""

import textwrap
from collections.abc import Callable

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from cocos.errors import InputError

__all__ = ["retrievals", "size"]

GAP, HEAD = 0.35, 0.42  # between the query and its candidates, and below a picture, in widths of a picture
CELL = 1.08  # inches
NARROWEST = 2.2  # candidates beside each other that the line above them needs
MOST = {"queries": 60, "candidates": 40, "cells": 600}  # of a picture that can be looked at
CHARACTERS, LINES = 14, 6  # of a text in a cell


def retrievals(
    dataset: xr.Dataset,
    *,
    pictures: Callable[[str, int], np.ndarray | str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a row for each query: the query, then its candidates from the nearest on, with their scores below them.

    A thick solid frame is a positive, a thin dashed one is not. Below the query stands the rank of its best positive.

    Args:
        dataset: of `cocos.measures.retrievals`.
        pictures: function of (`query` or `candidate`, row of the embeddings) that gives a picture, (height, width) or
            (height, width, 3 or 4), or a text, which is wrapped; None: the number of the row.
        ax: where to draw; None is the current Axes.
    """
    ax = ax or plt.gca()
    show = pictures or (lambda side, row: f"{side}\n{row}")
    queries, ranks = dataset.sizes["query"], dataset.sizes["rank"]
    for line in range(queries):
        one, y = dataset.isel(query=line), -line * (1 + HEAD)
        _cell(show("query", int(one["query_index"])), 0, y, ax)
        ax.add_patch(Rectangle((0, y - 1), 1, 1, fill=False, edgecolor="0.1", linewidth=0.8, label="query"))
        rank = float(one["best_rank"])
        said = f"best positive:\nrank {rank:.0f}" if np.isfinite(rank) else "no positive"
        ax.text(0.5, y - 1.05, said, ha="center", va="top", fontsize="x-small")
        for place in range(ranks):
            row, x = int(one["candidate"][place]), 1 + GAP + place * 1.12
            if row < 0:
                continue
            positive = bool(one["positive"][place])
            _cell(show("candidate", row), x, y, ax)
            look = {"edgecolor": "0.05", "linewidth": 3.2} if positive else {"edgecolor": "0.45", "linestyle": "--"}
            name = "positive" if positive else "negative"
            ax.add_patch(Rectangle((x, y - 1), 1, 1, fill=False, label=name, **{"linewidth": 0.9} | look))
            ax.text(x + 0.5, y - 1.05, f"{float(one['score'][place]):.3f}", ha="center", va="top", fontsize="x-small")
    ax.text(0.5, 0.12, "query", ha="center", va="bottom", fontsize="small")
    near = f"nearest by {dataset.attrs['metric'].replace('_', ' ')}"
    ax.text(1 + GAP, 0.12, f"{near}\nthick frame: positive, dashed: not", ha="left", va="bottom", fontsize="small")
    ax.set(
        xlim=(-0.1, 1 + GAP + max(NARROWEST, ranks) * 1.12),
        ylim=(-(queries - 1) * (1 + HEAD) - 1 - HEAD, 0.5),
        title=dataset.attrs["direction"],
        aspect="equal",
    )
    ax.set_axis_off()
    return ax


def size(dataset: xr.Dataset) -> tuple[float, float]:
    """Width and height of a picture in inches: cells that hold their texts.

    Raises:
        InputError: more than can be looked at.
    """
    queries, ranks = dataset.sizes["query"], dataset.sizes["rank"]
    if queries > MOST["queries"] or ranks > MOST["candidates"] or queries * ranks > MOST["cells"]:
        raise InputError(
            f"retrievals: {queries} queries x {ranks} candidates, too many for a picture: name at most "
            f"{MOST['queries']} queries and {MOST['candidates']} candidates, {MOST['cells']} cells in all, or write "
            f"the numbers with --direction {dataset.attrs['direction']} --out x.nc"
        )
    return CELL * (1.1 + GAP + 1.12 * max(NARROWEST, ranks)), CELL * (queries * (1 + HEAD) + 0.9)


def _cell(content: np.ndarray | str, x: float, y: float, ax: Axes) -> None:
    """One picture, or one text, whose upper left corner is at (x, y)."""
    if not isinstance(content, str):
        colours = {"cmap": "gray"} if np.ndim(content) == 2 else {}
        ax.imshow(content, extent=(x, x + 1, y - 1, y), interpolation="nearest", zorder=1, **colours)
        return
    content = "".join(c if c.isprintable() or c == "\n" else "?" for c in content).replace("$", r"\$")
    lines = [part for text in content.splitlines() for part in textwrap.wrap(text, CHARACTERS)]
    if len(lines) > LINES:
        lines = [*lines[: LINES - 1], f"{lines[LINES - 1][: CHARACTERS - 2]} …"]
    ax.text(x + 0.5, y - 0.5, "\n".join(lines), ha="center", va="center", fontsize="x-small", zorder=2)
