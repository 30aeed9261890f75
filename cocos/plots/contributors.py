"""The candidates of one query, drawn."""

from collections.abc import Callable

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from matplotlib.patches import Patch

__all__ = ["contributors", "size"]

MOST = 40  # bars that can be read
LONGEST = 40  # characters of a label
HIGH = 15.0  # points of a picture


def contributors(
    dataset: xr.Dataset,
    *,
    labels: Callable[[int], str] | None = None,
    pictures: Callable[[int], np.ndarray | None] | None = None,
    query: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the shares of the candidates of one query as bars, the largest on top; positives are hatched.

    Args:
        dataset: of `cocos.measures.contributors`; the first 40 candidates are drawn.
        labels: row of a candidate -> its text; None: row numbers.
        pictures: row of a candidate -> its picture, (height, width) or (height, width, 3), beside its bar; or None.
        query: text of the query, for the title.
        ax: where to draw; None is the current Axes.
    """
    ax = ax or plt.gca()
    attrs, one = dataset.attrs, dataset.isel(candidate=slice(MOST))
    rows, share, positive = (one[name].values for name in ("candidate_index", "share", "positive"))
    place, colours = np.arange(len(rows)), sns.color_palette("colorblind", 2)
    kinds = (("positive", positive, colours[1], "////"), ("negative", ~positive, colours[0], ""))
    for said, mask, colour, hatch in kinds:
        ax.barh(place[mask], share[mask], color=colour, hatch=hatch, edgecolor="white", linewidth=0, label=said)
    ax.axvline(attrs["eps"], color="0.3", linewidth=0.8, linestyle="--")
    ax.set_yticks(place, [_short(labels(row)) if labels else f"row {row}" for row in rows.tolist()], fontsize="small")
    if pictures:
        ax.tick_params(axis="y", length=0, pad=HIGH + 8)
        for at, row in zip(place, rows.tolist(), strict=True):
            if (image := pictures(row)) is None:
                continue
            image = np.asarray(image)
            box = OffsetImage(image, zoom=HIGH / image.shape[0], cmap="gray", resample=True)
            ax.add_artist(AnnotationBbox(box, (0, at), xycoords=("axes fraction", "data"), xybox=(-HIGH / 2 - 5, 0),
                                         boxcoords="offset points", frameon=False, pad=0))  # fmt: skip
    total = attrs["positives"] + attrs["negatives"]
    which = f"row {attrs['row']} of {attrs['direction']}" + ("" if query is None else f': "{_short(query)}"')
    ax.set(
        xlabel=f"share (dashed: eps = {attrs['eps']:g}); {len(rows)} of {total} candidates",
        ylim=(len(rows) - 0.4, -0.6),
    )
    if not share.any():
        ax.set_xlim(0, 2 * attrs["eps"] or 1)
        ax.text(0.5, 0.5, "this query has no gradient here", transform=ax.transAxes, ha="center", va="center",
                color="0.3", bbox={"facecolor": "white", "edgecolor": "none"})  # fmt: skip
    ax.set_title(f"{attrs['loss_repr']}\n{which}\n{attrs['contributing']} negatives contribute", fontsize="medium")
    handles = [Patch(facecolor=c, hatch=h, edgecolor="white", label=s) for s, m, c, h in kinds if m.any()]
    ax.legend(handles=handles, frameon=False, loc="lower right")
    sns.despine(ax=ax)
    return ax


def size(dataset: xr.Dataset) -> tuple[float, float]:
    """Width and height of a picture in inches: a bar needs its height."""
    return 7.2, 1.6 + 0.26 * min(MOST, dataset.sizes["candidate"])


def _short(text: str) -> str:
    text = "".join(c if c.isprintable() else "?" for c in " ".join(text.split())).replace("$", r"\$")
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
