"""Curves of a training run: negatives, recall and geometry at each of its checkpoints, or at each record of a store."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from cocos.base.errors import InputError, nearest
from cocos.measures.run import axis, widest
from cocos.monitor import records
from cocos.plots.labels import STYLES, below, palette, series, sides, titled
from cocos.plots.wording import listed

# Of each choice of `show`: its variables with their names, the label of its axis, and the subject of its title.
RUN_CURVES: dict[str, tuple[dict[str, str], str, str]] = {
    "negatives": (
        {"contributing": "contribute", "effective": "share the push (effective)"},
        "negatives per query",
        "Contributing negatives",
    ),
    "recall": ({"R@1": "R@1", "R@10": "R@10"}, "recall (%)", "R@1"),
    "idle": ({"idle": "idle"}, "idle queries (%)", "Idle queries"),
    "alignment": ({"alignment": "alignment"}, "squared distance of positives", "Alignment"),
    "uniformity": ({"uniformity": "uniformity"}, "log mean potential (nats)", "Uniformity"),
    "dtp": ({"dtp": "distance to proxy"}, "distance to the own proxy", "Distance to proxy"),
    "scale": ({"scale": "scale"}, "scale", "Scale"),
    "sources": (
        {f"push_{key}": key.replace("_", " ") for key in records.SOURCE_KEYS},
        "push fraction",
        "Push by source, the batch",
    ),
    "loss": ({"value": "loss"}, "loss", "Loss"),
}
# Curves of a run without the numbers by the unit of its loss.
BY_PUSH_CURVES: dict[str, tuple[dict[str, str], str, str]] = {
    "negatives": (
        {"relative": "above eps of the push", "effective": "share the push (effective)"},
        "negatives per query",
        "Negatives above eps of the push",
    ),
    "idle": ({"unpushed": "unpushed"}, "queries without any push (%)", "Queries without any push"),
}
# Size of a number from which no axis can be drawn.
MOST_DRAWN = 1e300
# Panels of the figure of a run, where their numbers are known: the first six.
PANELS = ("negatives", "idle", "recall", "sources", "alignment", "uniformity", "dtp", "loss", "scale")
MOST_PANELS = 6
# Markers of directions, or of several runs.
MARKERS = "os^Dv"
# Steps up to which every one has a marker.
MARKED_STEPS = 12
# Smallest range of an axis that does not begin at 0, so that rounding does not look like a change.
LEAST_RANGE = 0.5
# Colour of the steps at which a detector fires.
ALARM_COLOUR, ALARM_LABEL = "#c0392b", "a detector fires"


def shown(datasets: Sequence[xr.Dataset]) -> list[str]:
    """Choices of `show` whose first variable all of some Datasets have: the panels of their figure."""
    firsts = {name: next(iter(_curves(name, datasets)[0])) for name in PANELS}
    return [name for name in PANELS if all(firsts[name] in each for each in datasets)][:MOST_PANELS]


def _curves(show: str, datasets: Sequence[xr.Dataset]) -> tuple[dict[str, str], str, str]:
    """The entry of `RUN_CURVES`, or of `BY_PUSH_CURVES` where one of the Datasets lacks its first number throughout.

    One figure has one quantity: of runs of which only some have a known unit, the numbers by the push are drawn.
    """
    first = next(iter(RUN_CURVES[show][0]))
    lacking = any(first not in each or bool(each[first].isnull().all()) for each in datasets)
    return BY_PUSH_CURVES[show] if lacking and show in BY_PUSH_CURVES else RUN_CURVES[show]


def run(
    dataset: xr.Dataset | Sequence[xr.Dataset],
    *,
    names: Sequence[str] | None = None,
    show: str = "negatives",
    ax: Axes | None = None,
) -> Axes:
    """Draw one kind of number of a run against its steps; ticks below mark the steps at which a detector fires.

    Directions that agree within 2 % share a line. One run has a colour for each direction; several have a colour each,
    and only the first number of the kind is drawn.

    Args:
        dataset: of `cocos.measures.run`, or of a store of `cocos.Monitor`; or several.
        names: of several; None: the folders of their files.
        show: `negatives`, `idle`, `recall`, `sources`, `alignment`, `uniformity`, `dtp`, `scale` or `loss`.
        ax: where to draw; None is the current Axes.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> data = cocos.measures.run([embeddings, embeddings], batch_size="all")
        >>> cocos.plots.run(data, show="recall").has_data()
        True
    """
    if show not in RUN_CURVES:
        raise InputError(nearest("show", show, RUN_CURVES))
    ax = ax or plt.gca()
    several = series(dataset, _names(dataset, names))
    labels, ylabel, subject = _curves(show, list(several.values()))
    drawn = {name: _percent(widest(each)) if show == "idle" else widest(each) for name, each in several.items()}
    for name, data in drawn.items():
        if next(iter(labels)) not in data or not data[axis(data)].size:
            raise InputError(f"show {show!r}: {name} has no {next(iter(labels))} at any step")
    keys = [key for key in labels if all(key in data for data in drawn.values())]
    lines = list(_one(drawn[next(iter(drawn))], keys, labels) if len(drawn) == 1 else _several(drawn, keys[0]))
    for colour, style, marker, label, values in lines:
        steps, known = values[axis(values)], values.where(abs(values) < MOST_DRAWN)
        ax.plot(steps, known, color=palette(10)[colour % 9], linestyle=style, linewidth=1.8 if style == "-" else 1.3,
                marker=marker, markersize=4, markerfacecolor="white", label=label,
                markevery=max(1, len(steps) // MARKED_STEPS))  # fmt: skip
    _alarms(list(several.values()), ax)
    ax.margins(x=0.03, y=0.1)
    ax.set(xlabel="training step", ylabel=ylabel)
    titled(ax, _title(subject, drawn, keys[0]))
    if show in {"negatives", "recall", "idle", "sources", "dtp", "alignment"}:
        highest = max((float(np.nanmax(values)) for *_, values in lines if values.notnull().any()), default=0.0)
        ax.set_ylim(0, max(ax.get_ylim()[1], 1.05 * highest) if highest > 0 else 1)
    else:
        low, high = ax.get_ylim()  # a range that rounding cannot fill
        if high - low < LEAST_RANGE:
            ax.set_ylim((low + high - LEAST_RANGE) / 2, (low + high + LEAST_RANGE) / 2)
    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    if len(lines) > 1:
        below(ax, ncols=2)
    return ax


def _percent(data: xr.Dataset) -> xr.Dataset:
    return data.assign({name: 100 * data[name] / data["queries"] for name in ("idle", "unpushed") if name in data})


# Colour, style, marker and label of a line, and its values.
Line = tuple[int, str, str, str, xr.DataArray]


def _names(dataset: xr.Dataset | Sequence[xr.Dataset], names: Sequence[str] | None) -> list[str]:
    """Names of runs: those given, or their folders where these differ, or numbers."""
    several = [dataset] if isinstance(dataset, xr.Dataset) else list(dataset)
    if names is not None:
        return list(names)
    folders = [Path(str(each["file"].values[0])).parent.name if "file" in each else "" for each in several]
    unlike = len(set(folders)) == len(folders) and all(folders)
    return folders if unlike else [f"run {k}" for k in range(1, len(several) + 1)]


def _directions(data: xr.Dataset, keys: Sequence[str]) -> list[tuple[str, xr.Dataset]]:
    """The directions of some numbers; one without a name where they have none."""
    return sides(data, keys) if "direction" in data[keys[0]].dims else [("", data)]


def _one(data: xr.Dataset, keys: Sequence[str], labels: dict[str, str]) -> Iterator[Line]:
    """Yield the lines of one run: a colour for each direction, a style for each number."""
    for place, (side, one) in enumerate(_directions(data, keys)):
        for key, style in zip(keys, STYLES, strict=False):
            label = ", ".join(filter(None, (side, labels[key] if len(keys) > 1 else "")))
            yield place, style, MARKERS[place % len(MARKERS)], label, one[key]


def _several(several: dict[str, xr.Dataset], key: str) -> Iterator[Line]:
    """Yield the lines of several runs: a colour for each run, a style for each direction."""
    for place, (name, data) in enumerate(several.items()):
        for (side, one), style in zip(_directions(data, [key]), STYLES, strict=False):
            yield place, style, MARKERS[place % len(MARKERS)], ", ".join(filter(None, (name, side))), one[key]


def _alarms(datasets: Sequence[xr.Dataset], ax: Axes) -> None:
    """Mark the steps at which a detector fires by ticks at the foot of the axes, a row in the colour of each run."""
    named = False
    for place, data in enumerate(datasets):
        if "alarm" not in data:
            continue
        alarm = data["alarm"] if data["alarm"].ndim == 1 else data["alarm"].max(data["alarm"].dims[1:])
        steps = data[axis(data)].values[alarm.values > 0]
        if len(steps):
            colour = palette(10)[place % 9] if len(datasets) > 1 else ALARM_COLOUR
            dense = len(steps) > MARKED_STEPS
            ax.plot(steps, np.full(len(steps), 0.03 * place), transform=ax.get_xaxis_transform(), linestyle="",
                    marker="|", markersize=5 if dense else 9, markeredgewidth=1 if dense else 2, color=colour,
                    clip_on=False, zorder=3, label=None if named else ALARM_LABEL)  # fmt: skip
            named = True


def _title(subject: str, several: dict[str, xr.Dataset], key: str) -> str:
    """State the first and the last value, the mean over directions."""
    parts = []
    for data in several.values():
        values = data[key].mean([dim for dim in data[key].dims if dim != axis(data)]).values
        known = values[np.isfinite(values)]
        if not len(known):
            parts.append("not known")
            continue
        ends = known[[0, -1]] if len(known) > 1 else known
        parts.append(" to ".join(f"{value:.3g}" for value in ends))
    return f"{subject}: {listed(list(several), parts)}"
