"""Contact sheet of the nearest candidates of some queries."""

import re
from collections.abc import Callable, Sequence

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from cocos.base.errors import InputError
from cocos.plots.labels import CHARACTERS_PER_INCH, LINE_SPACING, single, tiny_points
from cocos.plots.wording import plain, wrapped

# Colour and mark of positives; the green is dark enough for text.
GREEN, TICK = "#00694f", "\u2713"
# Distance between candidates, between a query and its candidates, and between rows, in units of the width of a cell.
CELL_STEP, QUERY_GAP, ROW_GAP = 1.12, 0.35, 0.46
# Outline of a confident candidate, and its distance from the frame, inside of it, in cells.
OUTLINE = {"fill": False, "edgecolor": "#d55e00", "linewidth": 1.6, "label": "confident", "zorder": 4}
OUTLINE_INSET = 0.055
# Width of a cell, in inches.
CELL_INCHES = 1.08
# Narrowest row of candidates, in cells, for the line of text above it.
NARROWEST_ROW = 2.3
# Largest sheet that a reader can look through.
MOST_QUERIES, MOST_CANDIDATES, MOST_CELLS = 60, 40, 600
# Characters per line and lines of a text in a cell, and the part of the width of the cell that it takes.
CELL_CHARACTERS, CELL_LINES, CELL_TEXT = 14, 6, 0.95
# Fewest characters of a word behind a hyphen.
SHORTEST_END = 3
# Start of a syllable inside a word: the consonants of one sound before a vowel, as German, English and Romance words
# are mostly divided; prefixes and compounds are not known.
VOWELS = "aeiouyäöüáéíóúàèùâêîôûëïœæ"
SYLLABLE = re.compile(
    rf"(?<=[{VOWELS}a-zß])(?=((?:sch|[cspt]h|(?<![{VOWELS}])s[pt]|[bcdfgkpt][lr]|[^\W\d_{VOWELS}])[{VOWELS}]))",
    re.IGNORECASE,
)
# Why several Datasets cannot share the plot.
ALONE = "its rows are pictures of what one model retrieves"


def retrievals(
    dataset: xr.Dataset | Sequence[xr.Dataset],
    *,
    pictures: Callable[[str, int], np.ndarray | str] | None = None,
    confident: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a row for each query: the query, then its candidates in order of score, each with its score below.

    A positive has a thick green frame and a tick before its score, a negative a thin dashed frame. If no positive is
    among them, the best one is at the right end, with its rank.

    Args:
        dataset: of `cocos.measures.retrievals`.
        pictures: (`query` or `candidate`, row of the embeddings) -> a picture, (height, width) or
            (height, width, 3 or 4), or a text, which is wrapped; None: the number of the row.
        confident: candidates with at least this score have an outline; 0.6 is that of Veit & Wilber 2020, Fig. 5.
        ax: where to draw; None is the current Axes.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> cocos.plots.retrievals(cocos.measures.retrievals(embeddings, queries=2, k=2)).has_data()
        True
    """
    dataset, ax = single(dataset, ALONE), ax or plt.gca()
    show = pictures or (lambda side, row: f"{side}\n{row}")
    queries, ranks = dataset.sizes["query"], dataset.sizes["rank"]
    end = 1 + QUERY_GAP + max(NARROWEST_ROW, ranks) * CELL_STEP + QUERY_GAP
    wide = 1 + QUERY_GAP + (max(NARROWEST_ROW, ranks) + 1) * CELL_STEP + QUERY_GAP
    ax.set(xlim=(-0.1, wide), ylim=(-(queries - 1) * (1 + ROW_GAP) - 1 - ROW_GAP, 0.7), aspect="equal")
    for line in range(queries):
        one, y = dataset.isel(query=line), -line * (1 + ROW_GAP)
        _cell(show("query", int(one["query_index"])), 0, y, ax)
        ax.add_patch(Rectangle((0, y - 1), 1, 1, fill=False, edgecolor="0.1", linewidth=0.8, label="query"))
        rank = float(one["best_rank"])
        for place in range(ranks):
            row = int(one["candidate"][place])
            if row >= 0:
                positive = bool(one["positive"][place])
                x, score = 1 + QUERY_GAP + place * CELL_STEP, f"{float(one['score'][place]):.3f}"
                _framed(show("candidate", row), x, y, positive, f"{TICK} {score}" if positive else score, ax)
                _outlined(float(one["score"][place]), x, y, confident, ax)
        if not np.isfinite(rank):
            ax.text(end + 0.5, y - 0.5, "no positive", ha="center", va="center", fontsize=tiny_points(), color="0.3")
        elif not one["positive"].values.any():
            said = f"{TICK} {float(one['best_score']):.3f}\nrank {rank:,.0f}"
            _framed(show("candidate", int(one["best_candidate"])), end, y, True, said, ax)
            _outlined(float(one["best_score"]), end, y, confident, ax)
    ax.text(0.5, 0.1, "query", ha="center", va="bottom", fontsize="small")
    metric = plain(dataset.attrs["metric"]).replace("_", " ")
    said = f"nearest by {metric}; green, {TICK}: positive"
    if confident is not None:
        said += f"\norange outline: a score of at least {confident:g}"
    ax.text(1 + QUERY_GAP, 0.1, said, ha="left", va="bottom", fontsize="small")
    ax.text(end + 0.5, 0.1, "missed\npositive", ha="center", va="bottom", fontsize="small")
    ax.set_title(title(dataset), fontsize="medium")
    ax.set_axis_off()
    return ax


def _framed(content: np.ndarray | str, x: float, y: float, positive: bool, below: str, ax: Axes) -> None:
    """Draw a candidate in the frame of a positive or a negative, with text below it."""
    _cell(content, x, y, ax)
    look = {"edgecolor": GREEN, "linewidth": 3.2} if positive else {"edgecolor": "0.45", "linestyle": "--"}
    name = "positive" if positive else "negative"
    ax.add_patch(Rectangle((x, y - 1), 1, 1, fill=False, label=name, zorder=3, **{"linewidth": 0.9} | look))
    ax.text(x + 0.5, y - 1.06, below, ha="center", va="top", fontsize=tiny_points(), color=GREEN if positive else "0.2")


def _outlined(score: float, x: float, y: float, confident: float | None, ax: Axes) -> None:
    """Draw the outline of a candidate that is confident."""
    if confident is not None and score >= confident:
        ax.add_patch(
            Rectangle(
                (x + OUTLINE_INSET, y - 1 + OUTLINE_INSET), 1 - 2 * OUTLINE_INSET, 1 - 2 * OUTLINE_INSET, **OUTLINE
            )
        )


def title(dataset: xr.Dataset) -> str:
    """State for how many queries a positive has rank 1."""
    first = int((dataset["best_rank"] == 1).sum())
    side = plain(dataset.attrs["direction"], 30)
    return f"{side}: a positive comes first for {first} of {dataset.sizes['query']} queries"


def size(dataset: xr.Dataset) -> tuple[float, float]:
    """Width and height of one panel in inches."""
    queries, ranks = dataset.sizes["query"], dataset.sizes["rank"]
    if queries > MOST_QUERIES or ranks > MOST_CANDIDATES or queries * ranks > MOST_CELLS:
        raise InputError(
            f"retrievals: {queries} queries x {ranks} candidates, too many for a figure: name at most "
            f"{MOST_QUERIES} queries and {MOST_CANDIDATES} candidates, {MOST_CELLS} cells in all, or write the numbers "
            f"with --direction {dataset.attrs['direction']} --out x.nc"
        )
    wide, high = 1.1 + 2 * QUERY_GAP + CELL_STEP * (max(NARROWEST_ROW, ranks) + 1), queries * (1 + ROW_GAP) + 1.1
    return CELL_INCHES * wide, CELL_INCHES * high


def _inches(ax: Axes) -> float:
    """Width of a cell in inches; the default where the axes have no limits yet."""
    spec = ax.get_subplotspec()
    columns = 1 if spec is None else spec.get_gridspec().ncols
    cells = ax.get_xlim()[1] - ax.get_xlim()[0]
    return CELL_INCHES if cells <= 1 else ax.figure.get_size_inches()[0] / columns / cells


def _cell(content: np.ndarray | str, x: float, y: float, ax: Axes) -> None:
    """Draw a picture or a text with its upper left corner at (x, y)."""
    if not isinstance(content, str):
        colours = {"cmap": "gray"} if np.ndim(content) == 2 else {}
        ax.imshow(content, extent=(x, x + 1, y - 1, y), interpolation="nearest", zorder=1, **colours)
        return
    size, inside = tiny_points(), CELL_TEXT * _inches(ax)
    most = max(6, min(CELL_CHARACTERS, int(CHARACTERS_PER_INCH * inside / size)))
    number = max(2, min(CELL_LINES, int(72 * inside / (LINE_SPACING * size))))
    content = "".join(c if c.isprintable() or c == "\n" else "?" for c in content)
    lines = [line.replace("$", r"\$") for line in wrapped(_hyphenated(content, most), most).splitlines()]
    if len(lines) > number:
        lines = [*lines[: number - 1], f"{lines[number - 1][: most - 2]} …"]
    ax.text(x + 0.5, y - 0.5, "\n".join(lines), ha="center", va="center", fontsize=size, linespacing=1.0, zorder=2)


def _hyphenated(text: str, most: int) -> str:
    """Divide the words that are longer than `most` characters: at a hyphen, between syllables, or where they end."""

    def divided(word: str) -> str:
        if len(word) <= most:
            return word
        at = min(most - 1, len(word) - SHORTEST_END)
        hyphens = [place + 1 for place, sign in enumerate(word[:most]) if sign == "-"]
        if hyphens:
            return f"{word[: hyphens[-1]]} {divided(word[hyphens[-1] :])}"
        starts, vowel = [], 0
        for found in SYLLABLE.finditer(word):
            starts += [found.start(1)] if found.start(1) >= vowel else []  # not inside of one sound
            vowel = found.end(1) - 1
        at = max((start for start in starts if SHORTEST_END <= start <= at), default=at)
        return f"{word[:at]}- {divided(word[at:])}"

    return "\n".join(" ".join(map(divided, line.split())) for line in text.splitlines())
