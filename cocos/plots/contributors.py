"""The candidates of one query, drawn."""

import textwrap
from collections.abc import Callable

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from matplotlib.patches import Patch

from cocos import results, summaries
from cocos.plots._labels import below, palette, plain
from cocos.plots._wording import percent

__all__ = ["contributors", "size", "title"]

MOST = 40  # bars that can be read
LONGEST = 34  # characters of a label
HIGH = 15.0  # points of a picture
LEFT = 0.45  # of the longest push: a longer pull is cut there, and has its number
OTHERS = "0.7"
ROOMY = 6.0  # inches of a panel that shows its query beside the bars; in a narrower one its title names it
LINES, CHARACTERS = 7, 18  # of the text of a query


def contributors(
    dataset: xr.Dataset,
    *,
    labels: Callable[[int], str] | None = None,
    pictures: Callable[[int], np.ndarray | None] | None = None,
    query: str | None = None,
    image: np.ndarray | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the candidates of one query: pushes to the right and pulls to the left, as parts of all push and pull.

    Positives are hatched, a pull that is cut has its number. Behind each bar stands what it and those above it hold
    together; candidates with a share that is not above eps are pale. The last bar is all other negatives.

    Args:
        dataset: of `cocos.measures.contributors`; the first 40 candidates are drawn.
        labels: row of a candidate -> its text; None: its group.
        pictures: row of a candidate -> its picture, (height, width) or (height, width, 3), beside its bar.
        query: text of the query, shown beside the bars; None: its row.
        image: picture of the query, in the place of its text.
        ax: where to draw; None is the current Axes.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> data = cocos.measures.contributors(embeddings, row=0)
        >>> cocos.plots.contributors(data).has_data()
        True
    """
    ax = ax or plt.gca()
    attrs, one = dataset.attrs, dataset.isel(candidate=slice(MOST))
    rows, part, weight = (one[name].values for name in ("candidate_index", "part", "weight"))
    positive, above = one["positive"].values, one["share"].values > attrs["eps"]
    left, others = summaries.rest(dataset, MOST)
    place, (blue, orange) = np.arange(len(rows)), palette(2)
    longest = 100 * max([others, *part[weight > 0]], default=1.0) or 100.0
    kinds = (("positive", positive, orange, "////"), ("negative", ~positive, blue, ""))
    for said, mask, colour, hatch in kinds:
        for strong, alpha in ((True, 1.0), (False, 0.45)):
            chosen = mask & (above == strong)
            length = np.maximum(100 * np.sign(weight) * part, -LEFT * longest)[chosen]
            bars = ax.barh(
                place[chosen], length, color=colour, hatch=hatch, edgecolor="white", linewidth=0, alpha=alpha
            )
            bars.set_label(said)
    texts = [plain(labels(row), LONGEST) if labels else f"group {group}, row {row}"
             for row, group in zip(rows.tolist(), one["group"].values.tolist(), strict=True)]  # fmt: skip
    if left:
        ax.barh(len(rows), 100 * others, color=OTHERS, label="others")
        texts.append(f"other {left} negatives")
    ax.set_yticks(np.arange(len(texts)), texts, fontsize="small")
    ax.axvline(0, color="0.3", linewidth=0.8)
    for at, (length, mass, held) in enumerate(zip(100 * part, weight, 100 * one["held"].values, strict=True)):
        pull = mass < 0
        if pull and length > LEFT * longest:
            ax.annotate(f"pull {length:.0f} %", (-LEFT * longest, at), xytext=(2, 0), va="center", ha="left",
                        textcoords="offset points", fontsize="x-small", color="black",
                        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # fmt: skip
        said = f"{held:.0f} % of the pull" if pull else f"{held:.0f} %" if mass > 0 else ""
        ax.text(1.01, at, said, transform=ax.get_yaxis_transform(), fontsize="x-small", va="center", color="0.25")
    if left:
        ax.text(1.01, len(rows), f"{100 * others:.0f} % more", transform=ax.get_yaxis_transform(), fontsize="x-small",
                va="center", color="0.25")  # fmt: skip
    ax.text(1.01, -0.9, "together", transform=ax.get_yaxis_transform(), fontsize="x-small", color="0.25")
    low = -1.04 * LEFT * longest if (weight < 0).any() else -0.02 * longest
    ax.set(
        xlabel="« part of the pull      part of the push »  (%)",
        ylim=(len(texts) - 0.4, -0.6),
        xlim=(low, 1.05 * longest),
    )
    ax.xaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    if not weight.any():
        ax.set_xlim(-1, 1)
        ax.text(0.5, 0.5, "this query has no gradient here", transform=ax.transAxes, ha="center", va="center",
                color="0.3", bbox={"facecolor": "white", "edgecolor": "none"})  # fmt: skip
    if pictures:
        _beside(ax, place, rows.tolist(), pictures)
    asked = f"row {attrs['row']}, group {attrs['group']}" if query is None else query
    which = f"{attrs['loss']}, {plain(attrs['direction'], 20)}"
    spec = ax.get_subplotspec()
    columns = 1 if spec is None else spec.get_gridspec().ncols
    if ax.figure.get_size_inches()[0] / columns >= ROOMY:
        _query(ax, asked, image)
    else:
        which = f'{which}, "{plain(asked, 2 * LONGEST)}"'
    ax.set_title(f"{which}: {title(dataset)}", fontsize="medium", pad=14)
    handles = [Patch(facecolor=c, hatch=h, edgecolor="white", label=s) for s, m, c, h in kinds if m.any()]
    if (~above & (weight != 0)).any():
        handles.append(Patch(facecolor=blue, alpha=0.45, label=f"not: {results.above(attrs)}"))
    below(ax, handles=handles, ncols=3)
    ax.spines[["top", "right", "left"]].set_visible(False)
    return ax


def _beside(ax: Axes, place: np.ndarray, rows: list[int], pictures: Callable[[int], np.ndarray | None]) -> None:
    """The picture of each candidate between its name and its bar."""
    ax.tick_params(axis="y", length=0, pad=HIGH + 8)
    for at, row in zip(place, rows, strict=True):
        image = pictures(row)
        if image is None:
            continue
        box = OffsetImage(image, zoom=HIGH / image.shape[0], cmap="gray", resample=True)
        ax.add_artist(AnnotationBbox(box, (0, at), xycoords=("axes fraction", "data"), xybox=(-HIGH / 2 - 5, 0),
                                     boxcoords="offset points", frameon=False, pad=0))  # fmt: skip


def _query(ax: Axes, query: str, image: np.ndarray | None) -> None:
    """The query, large, on the right of the bars."""
    beside = ax.inset_axes([1.28, 0.55, 0.34, 0.42])
    beside.set(xticks=[], yticks=[])
    beside.set_title("the query", fontsize="small")
    if image is None:
        lines = textwrap.wrap(plain(query, LINES * CHARACTERS), CHARACTERS)[:LINES]
        beside.text(0.5, 0.5, "\n".join(lines), transform=beside.transAxes, ha="center", va="center", fontsize="small")
        return
    beside.imshow(image, cmap="gray" if image.ndim == 2 else None, interpolation="nearest")


def title(dataset: xr.Dataset) -> str:
    """State how many negatives contribute to the query, and their part of its push.

    Args:
        dataset: of `cocos.measures.contributors`.
    """
    attrs = dataset.attrs
    return (
        f"{attrs['contributing']} of {attrs['negatives']} negatives contribute and carry "
        f"{percent(attrs['contributing_part'])} of the push"
    )


def size(dataset: xr.Dataset) -> tuple[float, float]:
    """Width and height of a picture in inches: a bar needs its height."""
    return 8.4, 2.2 + 0.26 * (1 + min(MOST, dataset.sizes["candidate"]))
