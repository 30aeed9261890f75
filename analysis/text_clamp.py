"""Queries of HCL on its clamp, where nothing is pushed, against the temperature, for three sets of text embeddings.

Batches of pairs under several seeds; the bar of a point reaches from the lowest to the highest full batch. Solid:
with the weighting of hard negatives of HCL; dashed: without it, the debiased loss.
"""

import json

import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.text_findings.compute import BETAS, PRIOR_TEMPERATURE, RESULTS
from cocos.plots.labels import palette

PUBLISHED = "none; Robinson et al. train images at a temperature of one half"
DIFFERS = "nothing published to compare with"
INPUTS = (RESULTS,)
SIZE, PRINTED = (7.0, 4.0), True
# Style and name of the line of each β, in the order of `BETAS`.
STYLES = (("-", "HCL"), ("--", "debiased"))
MARKERS = "os^"
KEPT = ("mean", "low", "high", "over_seeds", "batches", "queries", "seeds")


def data(progress):
    """Read the queries on the clamp at each temperature."""
    found, parts = json.loads(RESULTS.read_text("utf-8"))["clamp"], {}
    for name, one in found.items():
        size = max(int(key.partition(",")[0]) for key in one["by_temperature"])
        every = {beta: one["by_temperature"][f"{size},{beta:g}"] for beta in BETAS}
        temperatures = sorted(map(float, next(iter(every.values()))))
        values = {
            key: (("beta", "temperature"), np.array([[each[f"{t:g}"]["clamped"][key] for t in temperatures]
                                                    for each in every.values()], dtype=float))
            for key in KEPT
        }  # fmt: skip
        parts[name] = xr.Dataset(values, coords={"beta": list(every), "temperature": temperatures})
        parts[name].attrs["batch_size"] = size
    return parts


def _at(part, temperature, beta):
    return part.sel(beta=beta, temperature=temperature)


def _ends(parts):
    """The paper's temperature, and a small one."""
    return float(next(iter(parts.values()))["temperature"].max()), PRIOR_TEMPERATURE


def title(parts):
    """The claim."""
    paper, small = _ends(parts)
    told = ", ".join(f"{float(_at(part, small, BETAS[0])['mean']):.0f} % ({name})" for name, part in parts.items())
    most = max(float(_at(part, paper, BETAS[0])["mean"]) for part in parts.values())
    return f"HCL pushes nothing for {told} of the queries at temperature {small:g}, for {most:.0f} % at {paper:g}"


def alt(parts):
    """One sentence."""
    return f"Percent of the queries on the clamp of HCL against the temperature, a line for each of {len(parts)} sets."


def agrees(parts):
    """Numbers at both temperatures with their deviations."""
    said = []
    for name, part in parts.items():
        cells = []
        for beta, (_, word) in zip(BETAS, STYLES, strict=True):
            for temperature in _ends(parts):
                one = _at(part, temperature, beta)
                cells.append(f"{word} at {temperature:g}: {float(one['mean']):.1f} ± {float(one['over_seeds']):.1f} %")
        first = part.isel(beta=0, temperature=0)
        said.append(
            f"{name}: {', '.join(cells)}; n = {int(first['queries']):,} draws of queries, {int(first['batches'])} full "
            f"batches of {part.attrs['batch_size']} pairs, {int(first['seeds'])} seeds"
        )
    return f"{'. '.join(said)}. ± is the deviation over seeds, which draw from the same queries."


def draw(parts, figure):
    """Draw a line for each set, with the range of its batches."""
    ax = figure.subplots()
    for part, colour, marker in zip(parts.values(), palette(len(parts)), MARKERS, strict=True):
        for beta, (style, _) in zip(BETAS, STYLES, strict=True):
            one, face = part.sel(beta=beta), colour if style == "-" else "white"
            mean = one["mean"].values
            reach = np.stack([mean - one["low"].values, one["high"].values - mean])
            ax.errorbar(one["temperature"], mean, reach, color=colour, linestyle=style, marker=marker, markersize=5,
                        markerfacecolor=face, linewidth=1.4, elinewidth=0.9)  # fmt: skip
    ax.set_xscale("log")
    temperatures = next(iter(parts.values()))["temperature"].values
    ax.xaxis.set_major_locator(FixedLocator(temperatures))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set(
        xlabel="temperature of HCL (log axis; marks: computed values)",
        ylabel="queries on the clamp, without any push (%)",
        ylim=(-3, 103),
    )
    handles = [Line2D([], [], color=colour, marker=marker, label=name)
               for name, colour, marker in zip(parts, palette(len(parts)), MARKERS, strict=True)]  # fmt: skip
    handles += [Line2D([], [], color="0.3", linestyle=style, label=word) for style, word in STYLES]
    ax.legend(handles=handles, frameon=False)
    sns.despine(ax=ax)
    figure.suptitle(title(parts))
