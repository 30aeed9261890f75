"""Two temperatures of one loss: which negatives are pushed, and how much a query weighs.

The gradient of NT-Xent has one temperature in the softmax that divides the push of a query among its negatives, which
sets their effective number, and one in the weight of the query, 1 - p. Here the two are set apart: mean test recall
over five seeds at the learning rate that is best on validation items. A ring marks NT-Xent, whose two temperatures are
one. Bars are 95 % intervals by t over the seeds, whose weights and batches are the same everywhere.
"""

import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from scipy import stats

from analysis.hold_study.plan import FACTORS
from cocos.plots import wording
from hold_cells import STUDY, findings

PUBLISHED = "none; Wang & Liu 2021, arXiv:2012.09740, vary one temperature"
DIFFERS = "nothing published to compare with"
INPUTS = (STUDY / "findings.py", STUDY / "plan.py", STUDY / "results" / "findings.json")
SIZE, PRINTED = (7.0, 3.6), True
PARTS = {"negatives": "among negatives", "weight": "of the query weight", "interaction": "interaction"}


def data(progress):
    """Read recall by both temperatures, and the parts of its variance."""
    parts = {}
    for name, one in findings()["factorial"].items():
        coords = {"negatives": list(FACTORS), "weight": list(FACTORS)}
        part = xr.Dataset(
            {"rsum": (("negatives", "weight"), one["rsum"]), "effective": (("negatives", "weight"), one["effective"]),
             "seeds": (("seed", "negatives", "weight"), one["seeds"])},
            coords=coords,
        )  # fmt: skip
        part.attrs = {f"{key}_{end}": one["parts"][key][end] for key in PARTS for end in ("value", "low", "high")}
        part.attrs |= {f"cooler_{key}": one["cooler"][key] for key in PARTS}
        part.attrs |= {"range": one["range"]} | {f"best_{key}": one["best"][key] for key in ("negatives", "weight")}
        part.attrs |= {f"gain_{key}": one["gain"][key] for key in ("mean", "low", "high")}
        parts[name] = part
    return parts


def _part(part, name):
    """A part of the variance with its interval, in percent."""
    value, low, high = (100 * part.attrs[f"{name}_{end}"] for end in ("value", "low", "high"))
    return f"{value:.0f} % [{low:.0f}, {high:.0f}]"


def title(parts):
    """The claim."""
    told = " and ".join(f"{100 * part.attrs['negatives_value']:.0f} % ({name})" for name, part in parts.items())
    cooler = " and ".join(f"{100 * part.attrs['cooler_negatives']:.0f}" for part in parts.values())
    return (
        f"From {FACTORS[0]:g} to {FACTORS[-1]:g} the temperature among the negatives makes {told} of the variance of "
        f"mean recalls; up to {FACTORS[-2]:g} it makes {cooler} %"
    )


def alt(parts):
    """One sentence."""
    return (
        "Test recall against the temperature among the negatives, a line for each temperature of the query weight, for "
        f"{' and '.join(parts)}."
    )


def agrees(parts):
    """All parts, the best pair, and what it gains over one temperature."""
    told = []
    for name, part in parts.items():
        attrs = part.attrs
        each = ", ".join(f"{words} {_part(part, key)}" for key, words in PARTS.items())
        told.append(
            f"{name}: {each}, range of the {part['rsum'].size} means {attrs['range']:.1f} points; best on validation "
            f"items {attrs['best_negatives']:g} among negatives and {attrs['best_weight']:g} of the weight, test rsum "
            f"minus that of the best single temperature {attrs['gain_mean']:+.1f} [{attrs['gain_low']:+.1f}, "
            f"{attrs['gain_high']:+.1f}]"
        )
    seeds = next(iter(parts.values())).sizes["seed"]
    return f"{'. '.join(told)}. n = {seeds} seeds; intervals of the parts by bootstrap over the seeds."


def draw(parts, figure):
    """Draw a panel for each data set."""
    axes = np.atleast_1d(figure.subplots(1, len(parts)))
    shades = dict(zip(FACTORS, sns.color_palette("viridis", len(FACTORS)), strict=True))
    marks = dict(zip(FACTORS, "os^D", strict=True))
    for ax, (name, part) in zip(axes, parts.items(), strict=True):
        for weight, shade in shades.items():
            own = part.sel(weight=weight)
            half = (
                own["seeds"].std("seed", ddof=1) * stats.t.ppf(0.975, own.sizes["seed"] - 1) / own.sizes["seed"] ** 0.5
            )
            ax.errorbar(own["negatives"], own["rsum"], half, color=shade, marker=marks[weight], markersize=4.5,
                        linewidth=1.2, elinewidth=0.8)  # fmt: skip
            ax.plot(weight, float(own["rsum"].sel(negatives=weight)), "o", color="none", markeredgecolor="black",
                    markersize=9)  # fmt: skip
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(FixedLocator(FACTORS))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.xaxis.set_minor_locator(NullLocator())
        shares = (f"{100 * part.attrs[f'{key}_value']:.0f} %" for key in PARTS)
        ax.set_title(f"{name}\nnegatives {next(shares)}, weight {next(shares)}, interaction {next(shares)}")
        ax.set_xlabel("temperature among the negatives")
        sns.despine(ax=ax)
    axes[0].set_ylabel("test rsum (points of 600)")
    handles = [Line2D([], [], color=shade, marker=marks[weight], markersize=4.5, label=f"{weight:g}")
               for weight, shade in shades.items()]  # fmt: skip
    handles.append(Line2D([], [], marker="o", linestyle="", color="none", markeredgecolor="black", markersize=9,
                          label="both the same: NT-Xent"))  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False,
                  title="temperature of the query weight")  # fmt: skip
    figure.suptitle(wording.wrapped(title(parts), 92))
