"""Nearest candidates of some queries, drawn as a contact sheet."""

import textwrap
from collections.abc import Callable

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from cocos.errors import InputError
from cocos.plots._labels import plain

__all__ = ["retrievals", "size", "title"]

GREEN, TICK = "#00694f", "\u2713"  # of positives, dark enough for text
STEP = 1.12  # from one candidate to the next, in widths of a picture
GAP, HEAD = 0.35, 0.46  # between the query and its candidates, and below a picture, in widths of a picture
CELL = 1.08  # inches
NARROWEST = 2.3  # candidates beside each other that the line above them needs
MOST = {"queries": 60, "candidates": 40, "cells": 600}  # of a picture that can be looked at
CHARACTERS, LINES = 14, 6  # of a text in a cell


def retrievals(
    dataset: xr.Dataset,
    *,
    pictures: Callable[[str, int], np.ndarray | str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a row for each query: the query, then its candidates from the nearest on, with their scores below them.

    A positive has a thick green frame and a tick before its score, the others a thin dashed one. Where no positive is
    among them, the best one stands at the right end, with its rank.

    Args:
        dataset: of `cocos.measures.retrievals`.
        pictures: function of (`query` or `candidate`, row of the embeddings) that gives a picture, (height, width) or
            (height, width, 3 or 4), or a text, which is wrapped; None: the number of the row.
        ax: where to draw; None is the current Axes.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> data = cocos.measures.retrievals(embeddings, queries=2, k=2)
        >>> cocos.plots.retrievals(data).has_data()
        True
    """
    ax = ax or plt.gca()
    show = pictures or (lambda side, row: f"{side}\n{row}")
    queries, ranks = dataset.sizes["query"], dataset.sizes["rank"]
    end = 1 + GAP + max(NARROWEST, ranks) * STEP + GAP
    wide = 1 + GAP + (max(NARROWEST, ranks) + 1) * STEP + GAP
    ax.set(xlim=(-0.1, wide), ylim=(-(queries - 1) * (1 + HEAD) - 1 - HEAD, 0.7), aspect="equal")
    for line in range(queries):
        one, y = dataset.isel(query=line), -line * (1 + HEAD)
        _cell(show("query", int(one["query_index"])), 0, y, ax)
        ax.add_patch(Rectangle((0, y - 1), 1, 1, fill=False, edgecolor="0.1", linewidth=0.8, label="query"))
        rank = float(one["best_rank"])
        for place in range(ranks):
            row = int(one["candidate"][place])
            if row >= 0:
                positive = bool(one["positive"][place])
                x, score = 1 + GAP + place * STEP, f"{float(one['score'][place]):.3f}"
                _framed(show("candidate", row), x, y, positive, f"{TICK} {score}" if positive else score, ax)
        if not np.isfinite(rank):
            ax.text(end + 0.5, y - 0.5, "no positive", ha="center", va="center", fontsize="x-small", color="0.3")
        elif not one["positive"].values.any():
            said = f"{TICK} {float(one['best_score']):.3f}\nrank {rank:,.0f}"
            _framed(show("candidate", int(one["best_candidate"])), end, y, True, said, ax)
    ax.text(0.5, 0.1, "query", ha="center", va="bottom", fontsize="small")
    metric = dataset.attrs["metric"].replace("_", " ")
    ax.text(1 + GAP, 0.1, f"nearest by {metric}; green, {TICK}: positive", ha="left", va="bottom", fontsize="small")
    ax.text(end + 0.5, 0.1, "missed\npositive", ha="center", va="bottom", fontsize="small")
    ax.set_title(title(dataset), fontsize="medium")
    ax.set_axis_off()
    return ax


def _framed(content: np.ndarray | str, x: float, y: float, positive: bool, below: str, ax: Axes) -> None:
    """A candidate in the frame of its kind, with a line or two below it."""
    _cell(content, x, y, ax)
    look = {"edgecolor": GREEN, "linewidth": 3.2} if positive else {"edgecolor": "0.45", "linestyle": "--"}
    name = "positive" if positive else "negative"
    ax.add_patch(Rectangle((x, y - 1), 1, 1, fill=False, label=name, zorder=3, **{"linewidth": 0.9} | look))
    ax.text(x + 0.5, y - 1.06, below, ha="center", va="top", fontsize="x-small", color=GREEN if positive else "0.2")


def title(dataset: xr.Dataset) -> str:
    """State for how many queries a positive has rank 1.

    Args:
        dataset: of `cocos.measures.retrievals`.
    """
    first = int((dataset["best_rank"] == 1).sum())
    side = plain(dataset.attrs["direction"], 30)
    return f"{side}: a positive comes first for {first} of {dataset.sizes['query']} queries"


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
    return CELL * (1.1 + 2 * GAP + STEP * (max(NARROWEST, ranks) + 1)), CELL * (queries * (1 + HEAD) + 1.1)


def _inches(ax: Axes) -> float:
    """Width of a cell; where the axes have no limits yet, that of a picture of its own size."""
    spec = ax.get_subplotspec()
    columns = 1 if spec is None else spec.get_gridspec().ncols
    cells = ax.get_xlim()[1] - ax.get_xlim()[0]
    return CELL if cells <= 1 else ax.figure.get_size_inches()[0] / columns / cells


def _cell(content: np.ndarray | str, x: float, y: float, ax: Axes) -> None:
    """One picture, or one text, whose upper left corner is at (x, y)."""
    if not isinstance(content, str):
        colours = {"cmap": "gray"} if np.ndim(content) == 2 else {}
        ax.imshow(content, extent=(x, x + 1, y - 1, y), interpolation="nearest", zorder=1, **colours)
        return
    most = max(6, min(CHARACTERS, round(CHARACTERS * _inches(ax) / CELL)))
    content = "".join(c if c.isprintable() or c == "\n" else "?" for c in content).replace("$", r"\$")
    lines = [part for text in content.splitlines() for part in textwrap.wrap(text, most)]
    if len(lines) > LINES:
        lines = [*lines[: LINES - 1], f"{lines[LINES - 1][: most - 2]} …"]
    ax.text(x + 0.5, y - 0.5, "\n".join(lines), ha="center", va="center", fontsize="x-small", zorder=2)
