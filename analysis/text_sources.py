"""Part of the push by source under the four directions of GTE, for three sets of real text embeddings.

One softmax over other candidates, other queries, what other queries score with the positive, and candidates compared
with the positive; batches of pairs under several seeds. A bar is the part of the push of all queries, its line the
standard deviation over full batches; the dotted line is the part of the negatives.
"""

import json

import numpy as np
import seaborn as sns
import xarray as xr
from matplotlib.lines import Line2D

from analysis.text_findings.compute import BATCH, RESULTS
from cocos.plots.labels import palette

PUBLISHED = "none; Li et al. 2023 (GTE) introduce the four directions"
DIFFERS = "nothing published to compare with"
INPUTS = (RESULTS,)
SIZE, PRINTED = (7.0, 3.6), True
BAR_WIDTH = 0.38
KEPT = ("mean", "over_seeds", "over_batches", "batches", "queries", "seeds")


def data(progress):
    """Read the part of the push and of the negatives of each source."""
    found, parts = json.loads(RESULTS.read_text("utf-8"))["sources"], {}
    for name, one in found.items():
        scales, sources = list(one), list(next(iter(one.values())))
        values = {
            key: (("scale", "source"), [[float(one[scale][source]["push"][key]) for source in sources]
                                        for scale in scales])
            for key in KEPT
        }  # fmt: skip
        negatives = [[one[scale][source]["negatives"]["mean"] for source in sources] for scale in scales]
        values["negatives"] = (("scale", "source"), negatives)
        parts[name] = xr.Dataset(values, coords={"scale": list(map(float, scales)), "source": sources})
        parts[name].attrs["batch_size"] = BATCH
    return parts


def _largest(name, part):
    """The source with the most push at the first scale, in words; none, if the bars of all sources overlap."""
    one = part.isel(scale=0)
    mean, spread = one["mean"].values, one["over_batches"].values
    place = int(np.argmax(mean))
    if all(mean - mean.min() <= spread[place] + spread[int(np.argmin(mean))]):
        return f"none on {name}, nearly equal ({mean.min():.0f} to {mean.max():.0f} %)"
    return f"{one['source'].values[place]} on {name} ({mean[place]:.0f} %)"


def title(parts):
    """The claim."""
    told = ", ".join(_largest(name, part) for name, part in parts.items())
    scale = float(next(iter(parts.values()))["scale"][0])
    return f"The largest source of push among four directions at scale {scale:g}: {told}"


def alt(parts):
    """One sentence."""
    return (
        f"Bars of the part of the push by source under four directions, for {len(parts)} sets of texts and two scales."
    )


def agrees(parts):
    """Every bar, with its deviation over seeds."""
    said = []
    for name, part in parts.items():
        for scale in part["scale"].values:
            one = part.sel(scale=scale)
            values = zip(one["source"].values, one["mean"].values, one["over_seeds"].values, strict=True)
            cells = ", ".join(f"{source} {mean:.1f} ± {deviation:.1f}" for source, mean, deviation in values)
            said.append(f"{name}, scale {scale:g}: {cells}")
        first = part.isel(scale=0, source=0)
        said[-1] += (
            f" (% of the push; n = {int(first['queries']):,} draws of queries, {int(first['batches'])} full batches of "
            f"{part.attrs['batch_size']} pairs, {int(first['seeds'])} seeds)"
        )
    return f"{'; '.join(said)}. ± is the deviation over seeds, which draw from the same queries."


def draw(parts, figure):
    """Draw a panel for each set, two bars for each source."""
    axes = figure.subplots(1, len(parts), sharex=True, sharey=True)
    for ax, (name, part) in zip(axes, parts.items(), strict=True):
        places, scales = np.arange(part.sizes["source"]), part["scale"].values
        for k, (scale, colour, hatch) in enumerate(zip(scales, palette(len(scales)), ("", "////"), strict=True)):
            one = part.sel(scale=scale)
            mean, spread = one["mean"].values, one["over_batches"].values
            ax.barh(places + (k - 0.5) * BAR_WIDTH, mean, BAR_WIDTH, color=colour, hatch=hatch, edgecolor="white",
                    linewidth=0, xerr=[np.minimum(spread, mean), spread], label=f"scale {scale:g}",
                    error_kw={"elinewidth": 1, "ecolor": "0.2"})  # fmt: skip
        for place, value in zip(places, part["negatives"].isel(scale=0).values, strict=True):
            ax.plot([value] * 2, [place - BAR_WIDTH, place + BAR_WIDTH], color="black", linewidth=1.4, linestyle=":",
                    label="part of the negatives" if place == 0 else None)  # fmt: skip
        ax.set_yticks(places, [str(source).replace("candidate-", "candidate-\n") for source in part["source"].values])
        ax.set(title=name, xlabel="part of the push (%)", xlim=(0, None))
        ax.tick_params(axis="y", length=0)
        sns.despine(ax=ax)
    axes[0].invert_yaxis()
    handles, names = axes[0].get_legend_handles_labels()
    handles.append(Line2D([], [], color="0.2", linewidth=1))
    names.append("standard deviation over batches")
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False, fontsize="small")
    figure.suptitle(title(parts))
