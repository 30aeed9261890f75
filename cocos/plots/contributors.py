"""Plot of the candidates of one query."""

import textwrap
from collections.abc import Callable, Sequence

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from matplotlib.patches import Patch

from cocos.counting import shares
from cocos.measures.contributors import rest
from cocos.plots.labels import SIDE_LENGTH, below, empty, palette, single, tiny_points
from cocos.plots.wording import percent, plain

# Largest number of bars that can be read.
MOST_BARS = 40
# Characters of the longest label.
CANDIDATE_LENGTH = 34
# Largest height of a picture beside its bar, in points, and as a part of the distance of the bars.
PICTURE_POINTS, PICTURE_PART = 15.0, 0.7
# Length at which a pull is cut and labelled with its number, as a fraction of the longest push.
LONGEST_PULL = 0.45
# Grey level of the bar of all other negatives.
OTHERS_GREY = "0.7"
# Narrowest panel that shows its query beside the bars, in inches; a narrower one names it in the title.
QUERY_INCHES = 6.0
# Opacity of candidates that do not contribute.
PALE = 0.45
BLUE, ORANGE = palette(2)
# Lines of the text of a query, and characters per line.
QUERY_LINES, QUERY_CHARACTERS = 7, 18
# Why several Datasets cannot share the plot.
ALONE = "its bars are the candidates of one query under one model"


def contributors(
    dataset: xr.Dataset | Sequence[xr.Dataset],
    *,
    labels: Callable[[int], str] | None = None,
    pictures: Callable[[int], np.ndarray | None] | None = None,
    query: str | None = None,
    image: np.ndarray | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the candidates of one query: pushes to the right and pulls to the left, as parts of all push and pull.

    Positives are hatched; a pull that is cut is labelled with its number. The numbers on the right are cumulative.
    Candidates that do not contribute are pale. The last bar is all other negatives.

    Args:
        dataset: of `cocos.measures.contributors`; at most 40 candidates are drawn.
        labels: row of a candidate -> its text; None: its group and row.
        pictures: row of a candidate -> its picture, (height, width) or (height, width, 3), beside its bar.
        query: text of the query, shown beside the bars; None: its row.
        image: picture of the query, instead of its text.
        ax: where to draw; None is the current Axes.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> cocos.plots.contributors(cocos.measures.contributors(embeddings, row=0)).has_data()
        True
    """
    dataset, ax = single(dataset, ALONE), ax or plt.gca()
    attrs, one = dataset.attrs, dataset.isel(candidate=slice(MOST_BARS))
    rows, part, weight = (one[name].values for name in ("candidate_index", "part", "weight"))
    known = attrs.get("share") != "unknown"
    positive, above = one["positive"].values, one["share" if known else "part"].values > attrs["eps"]
    left, others = rest(dataset, MOST_BARS)
    place, longest = np.arange(len(rows)), 100 * max([others, *part[weight > 0]], default=1.0) or 100.0
    kinds = (("positive", positive, ORANGE, "////"), ("negative", ~positive, BLUE, ""))
    for name, mask, colour, hatch in kinds:
        for strong, alpha in ((True, 1.0), (False, PALE)):
            chosen = mask & (above == strong)
            length = np.maximum(100 * np.sign(weight) * part, -LONGEST_PULL * longest)[chosen]
            look = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0, "alpha": alpha}
            ax.barh(place[chosen], length, **look).set_label(name)
    texts = [plain(labels(row), CANDIDATE_LENGTH) if labels else f"group {group}, row {row}"
             for row, group in zip(rows.tolist(), one["group"].values.tolist(), strict=True)]  # fmt: skip
    if left:
        ax.barh(len(rows), 100 * others, color=OTHERS_GREY, label="others")
        texts.append(f"other {left} negatives")
    ax.set_yticks(np.arange(len(texts)), texts, fontsize="small")
    ax.axvline(0, color="0.3", linewidth=0.8)
    _numbers(one, longest, others if left else None, ax)
    low = -1.04 * LONGEST_PULL * longest if (weight < 0).any() else -0.02 * longest
    ax.set(
        xlabel="« pull fraction      push fraction »  (%)",
        ylim=(len(texts) - 0.4, -0.6),
        xlim=(low, 1.05 * longest),
    )
    ax.xaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    if (100 * part[weight < 0] > LONGEST_PULL * longest).any():  # a cut bar has no length that could be read
        ax.set_xticks([at for at in ax.get_xticks() if 0 <= at <= ax.get_xlim()[1]])
        ax.set_xlabel("push fraction (%); the pull, to the left, is cut at //")
    if not weight.any():
        ax.set_xlim(-1, 1)
        empty(ax, "this query has no gradient here")
    if pictures:
        _beside(ax, place, rows.tolist(), pictures)
    _headed(dataset, query, image, ax)
    handles = [Patch(facecolor=c, hatch=h, edgecolor="white", label=s) for s, m, c, h in kinds if m.any()]
    if (~above & (weight != 0)).any():
        pale = f"does not contribute: no {shares.above(attrs)}" if known else f"no {shares.above(attrs)}"
        handles.append(Patch(facecolor=BLUE, alpha=PALE, label=pale))
    below(ax, handles=handles, ncols=3)
    ax.spines[["top", "right", "left"]].set_visible(False)
    return ax


def _numbers(one: xr.Dataset, longest: float, others: float | None, ax: Axes) -> None:
    """Write the cumulative parts on the right of the bars, and the length of each pull that is cut."""
    right = {"transform": ax.get_yaxis_transform(), "fontsize": tiny_points(), "color": "0.25"}
    rows = zip(100 * one["part"].values, one["weight"].values, 100 * one["held"].values, strict=True)
    for at, (length, mass, held) in enumerate(rows):
        pull = mass < 0
        if pull and length > LONGEST_PULL * longest:
            ax.annotate(f"{length:.0f} % //", (-LONGEST_PULL * longest, at), xytext=(2, 0), va="center", ha="left",
                        textcoords="offset points", fontsize=tiny_points(), color="black",
                        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # fmt: skip
        unit = "of the pull" if pull else "cumulative" if at == np.argmax(one["weight"].values) else ""
        ax.text(1.01, at, f"{held:.0f} % {unit}" if mass else "", va="center", **right)
    if others is not None:
        ax.text(1.01, one.sizes["candidate"], f"{100 * others:.0f} % more", va="center", **right)


def _headed(dataset: xr.Dataset, query: str | None, image: np.ndarray | None, ax: Axes) -> None:
    """Set the title, and draw the query beside the bars, or name it in the title of a narrow panel."""
    attrs = dataset.attrs
    asked = f"row {attrs['row']}, group {attrs['group']}" if query is None else query
    which = f"{plain(attrs['loss'])}, {plain(attrs['direction'], SIDE_LENGTH)}"
    spec = ax.get_subplotspec()
    columns = 1 if spec is None else spec.get_gridspec().ncols
    if ax.figure.get_size_inches()[0] / columns >= QUERY_INCHES:
        _query(ax, asked, image)
    else:
        which = f'{which}, "{plain(asked, 2 * CANDIDATE_LENGTH)}"'
    ax.set_title(f"{which}: {title(dataset)}", fontsize="medium", pad=14)


def _beside(ax: Axes, place: np.ndarray, rows: list[int], pictures: Callable[[int], np.ndarray | None]) -> None:
    """Draw the picture of each candidate between its name and its bar."""
    high = ax.get_position().height * ax.figure.get_size_inches()[1] * 72 / (1 + len(place))
    points = min(PICTURE_POINTS, PICTURE_PART * high)
    ax.tick_params(axis="y", length=0, pad=points + 8)
    for at, row in zip(place, rows, strict=True):
        image = pictures(row)
        if image is None:
            continue
        box = OffsetImage(image, zoom=points / image.shape[0], cmap="gray", resample=True)
        left = (-points / 2 - 5, 0)
        ax.add_artist(AnnotationBbox(box, (0, at), xycoords=("axes fraction", "data"), xybox=left,
                                     boxcoords="offset points", frameon=False, pad=0))  # fmt: skip


def _query(ax: Axes, query: str, image: np.ndarray | None) -> None:
    """Draw the query, large, on the right of the bars."""
    beside = ax.inset_axes([1.28, 0.55, 0.34, 0.42])
    beside.set(xticks=[], yticks=[])
    beside.set_title("the query", fontsize="small")
    if image is None:
        lines = textwrap.wrap(plain(query, QUERY_LINES * QUERY_CHARACTERS), QUERY_CHARACTERS)[:QUERY_LINES]
        beside.spines[:].set_visible(False)
        beside.text(0.5, 0.98, "\n".join(lines), transform=beside.transAxes, ha="center", va="top", fontsize="small")
        return
    beside.imshow(image, cmap="gray" if image.ndim == 2 else None, interpolation="nearest")
    beside.spines[:].set_visible(False)


def title(dataset: xr.Dataset) -> str:
    """State how many negatives contribute to the query, and their part of its push."""
    attrs = dataset.attrs
    if "contributing" not in attrs:
        return (
            f"{attrs['relative']} of {attrs['negatives']} negatives have {shares.above(attrs)}, together "
            f"{percent(attrs['relative_part'])} of it"
        )
    return (
        f"{attrs['contributing']} of {attrs['negatives']} negatives contribute and carry "
        f"{percent(attrs['contributing_part'])} of the push"
    )


def size(dataset: xr.Dataset) -> tuple[float, float]:
    """Width and height of one panel in inches: a line for each bar."""
    return 8.4, 2.2 + 0.26 * (1 + min(MOST_BARS, dataset.sizes["candidate"]))
