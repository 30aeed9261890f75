"""Plot of precision against recall: one threshold for all queries, and one for each."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import xarray as xr
from matplotlib.axes import Axes

from cocos import results
from cocos.plots.labels import below, palette, series, titled
from cocos.plots.wording import listed, plain

# Smallest recall at which one threshold is drawn; below it, a few pairs decide the precision.
FIRST_RECALL = 0.01


def precision_recall(
    dataset: xr.Dataset | Sequence[xr.Dataset],
    *,
    names: Sequence[str] | None = None,
    direction: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw precision against recall for one threshold over all pairs, and for the queries of one direction.

    One threshold gives the micro average, drawn from a recall of 1 % on; the mean over queries, each with its own
    thresholds, is the macro average. For a single Dataset, a band contains the middle half of the queries.

    Args:
        dataset: of `cocos.measures.precision_recall`, or several.
        names: of several; None: their losses.
        direction: of the queries; None: the first.
        ax: where to draw; None is the current Axes.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> cocos.plots.precision_recall(cocos.measures.precision_recall(embeddings)).has_data()
        True
    """
    ax = ax or plt.gca()
    several = series(dataset, names)
    for data in several.values():
        direction = results.direction(direction, [str(name) for name in data["direction"].values])
    single = len(several) == 1
    for (name, data), colour in zip(several.items(), palette(len(several)), strict=True):
        one, level = data.sel(direction=direction), data["level"]
        said = "" if single else f"{name}: "
        if single:
            low, high = one["band"].isel(percentile=0), one["band"].isel(percentile=-1)
            ax.fill_between(level, low, high, step="pre", facecolor=(*colour, 0.18), linewidth=0,
                            label="middle half of the queries")  # fmt: skip
        ax.plot(level, one["mean"], color=colour, linestyle="--", linewidth=2, drawstyle="steps-pre",
                label=f"{said}one threshold for each query (macro mean)")  # fmt: skip
        shown = data["recall"].values >= FIRST_RECALL
        ax.plot(data["recall"][shown], data["precision"][shown], color="0.1" if single else colour, linewidth=1.8,
                label=f"{said}one threshold for all pairs (micro)")  # fmt: skip
    ax.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02))
    titled(ax, title(list(several.values()), list(several), direction))
    below(ax, ncols=1)
    return ax


def title(datasets: Sequence[xr.Dataset], names: Sequence[str], direction: str) -> str:
    """State the cost of one threshold for all queries: PR-AUC, beside the mAP, where each query has its own."""
    one = [f"{data.attrs['pr_auc']:.1f} %" for data in datasets]
    own = [f"{float(data['mAP'].sel(direction=direction)):.1f} %" for data in datasets]
    parts = [f"PR-AUC {a}, mAP {b}" for a, b in zip(one, own, strict=True)]
    return f"{plain(direction, 24)}, one threshold for all queries or one for each: {listed(names, parts)}"
