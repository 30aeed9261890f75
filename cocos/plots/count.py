"""Plot of the contributing negatives per query."""

from collections.abc import Iterable, Sequence

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from cocos import results
from cocos.counting import findings, shares
from cocos.measures.count import bins, histogram
from cocos.plots.labels import below, palette, series, small_points, tiny_points
from cocos.plots.wording import between, number, percent, plain

# Grey level of the bars of idle queries.
IDLE_GREY = "0.62"
# Height of the highest bar, and distance between the rows of two losses, in data units.
BAR_HEIGHT, ROW_HEIGHT = 0.42, 1.2
# Hatching of the first and of the second direction.
HATCHES = ("", "//////")
# Smallest part of the queries whose bar is labelled with its number.
LABELLED_PART = 0.045
# Narrowest figure that names its only row, in inches.
NAMED_INCHES = 5.0
# Part of the queries of a row that the last bin holds at most, if others are joined to it.
JOINED_PART = 0.005
# Mark of the mean of a row.
MEAN = {"marker": "D", "markersize": 4.5, "color": "white", "markeredgecolor": "black", "linestyle": ""}


def count(
    dataset: xr.Dataset | Sequence[xr.Dataset], *, names: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the distribution of contributing negatives per query, a row for each loss or file, all on one axis.

    The bins are equally wide on a logarithmic axis; the last one holds all that is rare. Idle queries are the grey bar
    at 0, labelled with their part. The first direction is drawn upwards, the second downwards and hatched. A diamond
    marks the mean.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> cocos.plots.count(cocos.measures.count(embeddings)).has_data()
        True
    """
    ax = ax or plt.gca()
    several = series(dataset, names)
    of = _drawn_of(several.values())
    upper = bins(max(float(each[of].max()) for each in several.values()))
    upper, joined = _joined(upper, [histogram(each, upper, of)["part"] for each in several.values()])
    found = {name: histogram(each, upper, of) for name, each in several.items()}
    highest = max(float(each["part"].max()) for each in found.values())
    directions = list(dict.fromkeys(str(d) for each in found.values() for d in each["direction"].values))
    colours = palette(len(directions))
    for row, part in enumerate(found.values()):
        base = -ROW_HEIGHT * row
        ax.axhline(base, color="0.3", linewidth=0.8)
        for d, name in enumerate(directions):
            if name in part["direction"].values:
                height = (-1) ** d * BAR_HEIGHT / highest
                _row(ax, part.sel(direction=name), upper, base, height, colours[d], HATCHES[d % 2])
    last, most = -ROW_HEIGHT * (len(found) - 1), max(float(each["negatives"].max()) for each in several.values())
    ticks = _ticks(upper, most, joined)
    wide, letter = ax.figure.get_size_inches()[0], 0.62 * small_points() / 0.83  # inches, and points roughly
    named = len(several) > 1 or wide >= NAMED_INCHES  # the title of a narrow one says it
    narrow = (45 if named else 58) * wide / len(upper) < letter * max(map(len, ticks[1:]))
    slanted = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if narrow else {}
    ax.set_xticks(np.arange(len(upper)), ticks, **slanted)
    rows = []
    for name, each in several.items():
        held = [f"{float(one['negatives'].mean()):.0f}" for one in results.sides(each).values()]
        rows.append(f"{name}, {plain(each.attrs['sample'])}\n{' / '.join(dict.fromkeys(held))} negatives")
    rows = rows if named else [""]
    ax.set_yticks([-ROW_HEIGHT * row for row in range(len(found))], rows)
    ax.tick_params(axis="y", length=0)
    for tick, part in zip(ax.get_yticks(), found.values(), strict=True):
        said = " / ".join(number(float(mean)) for mean in part["mean"].values)
        ax.text(1.01, tick, f"mean\n{said}", transform=ax.get_yaxis_transform(), fontsize="small", va="center")
    by_push = of != "contributing"
    attrs = [each.attrs | ({"share": "unknown"} if by_push else {}) for each in several.values()]
    above = list(dict.fromkeys(map(shares.above, attrs)))
    eps = list(dict.fromkeys(f"{each.attrs['eps']:g}" for each in several.values()))
    meant = f"{above[0]}, eps = {eps[0]}" if len(above) == 1 else f"share above eps = {' or '.join(eps)}"
    ax.set(
        xlabel=f"{'' if by_push else 'contributing '}negatives of a query ({meant})",
        xlim=(-0.6, len(upper) - 0.4),
        ylim=(last - (0.66 if len(directions) > 1 else 0.08), 0.66),
    )
    ax.set_title(title(list(several.values()), list(several)), fontsize="medium")
    ax.spines[["left", "right", "top"]].set_visible(False)
    handles = []
    for name, colour, hatch, way in zip(directions, colours, HATCHES, ("up", "down"), strict=False):
        said = f"% of {plain(name, 30)}" + (f" ({way})" if len(directions) > 1 else "")
        handles.append(Patch(facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0, label=said))
    handles += [Patch(facecolor=IDLE_GREY, label="idle: none"), Line2D([], [], label="mean", **MEAN)]
    below(ax, handles=handles, ncols=4)
    return ax


def _drawn_of(datasets: Iterable[xr.Dataset]) -> str:
    """Choose the count that is drawn: by the part of the push where the unit of any loss is unknown."""
    unknown = any(data.attrs.get("share") == "unknown" for data in datasets)
    return "relative_per_query" if unknown else "contributing"


def title(datasets: Sequence[xr.Dataset], names: Sequence[str]) -> str:
    """State the counts of one Dataset, or the losses with the most and the fewest idle queries; name a collapse."""
    collapsed = "\ncollapsed embeddings" if any(findings.collapsed(d.attrs) for d in datasets) else ""
    of = _drawn_of(datasets)
    parts = [histogram(data, of=of) for data in datasets]
    idle = [between(part["idle_fraction"].values) for part in parts]
    if len(parts) == 1:
        mean, negatives = parts[0]["mean"].values, float(parts[0]["negatives"].mean())
        kind, _ = shares.kind_of_weights(datasets[0].attrs)
        name = f"{names[0]} ({kind})" if kind else names[0]
        counts = f"{between(mean, number)} of {negatives:.0f} negatives contribute per query"
        if of != "contributing":
            above = shares.above(datasets[0].attrs | {"share": "unknown"})
            return f"{name}: {between(mean, number)} of {negatives:.0f} negatives per query have {above}{collapsed}"
        return f"{name}: {counts}; {idle[0]} of the queries have none{collapsed}"
    if of != "contributing":
        means = [float(part["mean"].mean()) for part in parts]
        most, least = int(np.argmax(means)), int(np.argmin(means))
        above = shares.above(datasets[most].attrs | {"share": "unknown"})
        return (
            f"{number(means[most])} negatives per query have {above} under {names[most]}, {number(means[least])} under "
            f"{names[least]}{collapsed}"
        )
    means = [float(part["idle_fraction"].mean()) for part in parts]
    most, least = int(np.argmax(means)), int(np.argmin(means))
    which = f"under {names[most]}, {idle[least]} under {names[least]}"
    if idle[most] == idle[least]:
        which = f"under each of the {len(parts)} losses"
    return f"{idle[most]} of the queries have no contributing negative {which}{collapsed}"


def size(datasets: Sequence[xr.Dataset]) -> tuple[float, float]:
    """Width and height of one panel in inches: a row for each Dataset."""
    return 7.2, 2.6 + 1.05 * len(datasets)


def _row(ax: Axes, part: xr.Dataset, upper, base: float, height: float, colour, hatch: str) -> None:
    """Draw the bars of one direction of one loss, its mean, and the part of its idle queries."""
    places, values = np.arange(len(upper)), height * part["part"].values
    ax.bar(places[1:], values[1:], bottom=base, width=0.94, color=colour, hatch=hatch, edgecolor="white", linewidth=0)
    ax.bar(
        places[:1], values[:1], bottom=base, width=0.94, color=IDLE_GREY, hatch=hatch, edgecolor="white", linewidth=0
    )
    for place, (value, share) in enumerate(zip(values, part["part"].values, strict=True)):
        if not place or share >= LABELLED_PART:
            said = f"{100 * share:.0f}" if place else percent(part["idle_fraction"]).replace("under ", "<")
            ax.annotate(said, (place, base + value), xytext=(0, 2 if height > 0 else -2), textcoords="offset points",
                        ha="center", va="bottom" if height > 0 else "top", fontsize=tiny_points() if place else "small",
                        color="0.45" if place else "0.1")  # fmt: skip
    edges = np.concatenate([[-0.5], upper + 0.5])  # of the counts; those of bar k are k - 0.5 and k + 0.5
    mean = np.interp(float(part["mean"]), edges, np.arange(len(edges)) - 0.5)
    ax.plot(mean, base + 0.05 * np.sign(height), zorder=4, **MEAN)


def _joined(upper: np.ndarray, parts: Sequence[xr.DataArray]) -> tuple[np.ndarray, bool]:
    """Join the last bins, if hardly any query of any row is in them; whether they are joined."""
    from_here = np.max([part.values[:, ::-1].cumsum(axis=1)[:, ::-1].max(axis=0) for part in parts], axis=0)
    last = max(3, int(np.flatnonzero(from_here > JOINED_PART)[-1]) + 1)
    return (np.append(upper[:last], upper[-1]), True) if last + 1 < len(upper) else (upper, False)


def _ticks(upper: np.ndarray, most: float, joined: bool) -> list[str]:
    """Name the counts in each bin."""
    lower = np.concatenate([[0], upper[:-1] + 1])
    upper = np.minimum(upper, np.maximum(lower, most)).astype(int)
    names = ["none"] + [f"{a}" if a == b else f"{a}–{b}" for a, b in zip(lower[1:], upper[1:], strict=True)]
    return [*names[:-1], f"{lower[-1]}+"] if joined else names
