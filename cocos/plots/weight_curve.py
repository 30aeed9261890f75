"""Plot of the weight of a candidate against its score."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import xarray as xr
from matplotlib.axes import Axes

from cocos.plots.labels import below, heading, palette, series
from cocos.plots.wording import plain


def weight_curve(
    dataset: xr.Dataset | Sequence[xr.Dataset], *, names: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the weight of a negative and of the positive against their own scores, in units of the loss.

    Ticks at the bottom are the other negatives of the query, the dotted line is its positive.

    Examples:
        >>> cocos.plots.weight_curve(cocos.measures.weight_curve("triplet", points=9)).has_data()
        True
    """
    ax = ax or plt.gca()
    several = series(dataset, names)
    single = len(several) == 1
    colours = palette(max(2, len(several)))
    for place, (name, data) in enumerate(several.items()):
        looks = zip(("negative", "positive"), ("-", "--"), colours[:2] if single else [colours[place]] * 2, strict=True)
        for key, style, colour in looks:
            said = plain(data[key].attrs["long_name"], 80) if single else f"{name}, {key}"
            ax.plot(data["score"], data[key] / data.attrs["weight_unit"], color=colour, linestyle=style, label=said)
    ax.axhline(0, color="0.6", linewidth=0.8)
    for at in dict.fromkeys(each.attrs["positive_score"] for each in several.values()):
        ax.axvline(at, color="0.6", linewidth=0.8, linestyle=":")
    others = {float(score) for each in several.values() for score in each.attrs["others"]}
    ax.vlines(sorted(others), 0, 0.04, transform=ax.get_xaxis_transform(), color="0.35", linewidth=1, label="_others")
    unknown = any(each.attrs.get("share") == "unknown" for each in several.values())
    metrics = dict.fromkeys(plain(each.attrs["metric"]).replace("_", " ") for each in several.values())
    ax.set(
        xlabel=f"score of that candidate ({', '.join(metrics)}); dotted: the positive, ticks: other negatives",
        ylabel="weight" if unknown else "weight / unit of the loss",
    )
    ax.set_title(
        plain(heading(next(iter(several.values()))), 120) if single else "Weight against score",
        fontsize="medium",
    )
    below(ax, lines=3)
    ax.spines[["top", "right"]].set_visible(False)
    return ax
