"""The kinds of plots: every measure that has a plot of its name, with the options that both of them take.

Nothing is listed by hand. The options of a kind are the parameters of its measure and of its plot, their meaning comes
from the docstrings. Beside its plot, a file of `cocos.plots` may define `SIZE`, or `size(dataset)`, the width and
height of one panel in inches, `together(datasets)`, the options that panels side by side share, and `ALONE`, the reason
why several Datasets cannot share the plot.
"""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import xarray as xr
from matplotlib.axes import Axes

from cocos import measures, plots, reports, results
from cocos.base import docstrings
from cocos.base.errors import InputError, nearest
from cocos.checkpoints import Checkpoint
from cocos.data import Items
from cocos.embeddings.options import Progress
from cocos.plots import saving
from cocos.reports.tables import Table

# Inches of a panel of a plot without a size of its own: the default of matplotlib.
DEFAULT_SIZE = (6.4, 4.8)
# Panels of several runs that stand side by side, where each has one.
ACROSS = 3
# Parameters that no option sets: the data, and the texts and pictures of rows.
NOT_OPTIONS = {
    *("embeddings", "loss", "progress", "dataset", "names", "labels", "pictures", "query", "image", "last", "ax"),
}


@dataclass(frozen=True)
class PlotKind:
    """A measure, and the plot of its name."""

    name: str
    measure: Callable[..., xr.Dataset]
    plot: Callable

    @property
    def measure_parameters(self) -> Mapping[str, inspect.Parameter]:
        """Parameters of the measure."""
        return inspect.signature(self.measure).parameters

    @property
    def plot_parameters(self) -> Mapping[str, inspect.Parameter]:
        """Parameters of the plot."""
        return inspect.signature(self.plot).parameters

    @property
    def reads(self) -> str:
        """First parameter of the measure: `embeddings`, `loss`, or that of a command or question of its own."""
        return next(iter(self.measure_parameters))

    @property
    def command(self) -> str:
        """Command line that draws it."""
        return {
            "embeddings": f"cocos plot {self.name} FILE",
            "loss": f"cocos plot {self.name} --loss NAME",
            "f1": f"cocos plot {self.name}",
            "runs": f"cocos plot {self.name} RUN",
        }.get(self.reads, f"cocos {self.name}")

    @property
    def sentence(self) -> str:
        """First line of the docstring of the measure."""
        return docstrings.summary(self.measure)

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """Parameters that can be chosen, those of the measure first."""
        every = {**self.measure_parameters, **self.plot_parameters}
        return {name: each for name, each in every.items() if name == "loss" or name not in NOT_OPTIONS}

    def measured(
        self, checkpoint: Checkpoint | None, loss, options: Mapping[str, object], progress: Progress | None
    ) -> list[xr.Dataset]:
        """Measure: one Dataset, or one for each direction if the measure takes a direction and none is chosen.

        A chosen row that the second direction does not have is of the first one alone.
        """
        given = {name: value for name, value in options.items() if name in self.measure_parameters}
        given |= {"loss": loss} if loss is not None else {}
        if checkpoint is None:
            return [self.measure(**given)]
        held = []
        given |= {"progress": progress} if "progress" in self.measure_parameters else {}
        measure = partial(self.measure, once(checkpoint, options.get("direction"), held), **given)
        found = [measure()]
        if "direction" in self.measure_parameters and "direction" not in given:
            every = held[0] if held else checkpoint.on_disk  # of which rows of batches alone were read
            row = given.get("row") or 0
            found += [measure(direction=name) for name in every.directions[1:] if row < len(every.candidate)]
        return found

    def document(
        self,
        found: Sequence[xr.Dataset],
        texts: Sequence[Mapping[str, object]],
        names: Sequence[str] | None = None,
    ) -> dict:
        """Make the JSON document of `cocos plot`; several losses or files have `names`, and a document each."""
        if names:
            each = zip(names, found, texts, strict=True)
            series = [{"name": name} | self.document([data], [own]) for name, data, own in each]
            return {"kind": self.name, "series": series}
        each = zip(found, texts, strict=True)
        first, *_ = documents = [reports.document(self.name, data, **own) for data, own in each]
        parts = [
            each.get("directions", {data.attrs.get("direction"): each})
            for data, each in zip(found, documents, strict=True)
        ]
        directions = {name: part for each in parts for name, part in each.items()}
        return {"kind": self.name} | (first if "directions" in first else {}) | {"directions": directions}

    @property
    def combines(self) -> bool:
        """Whether several losses and files can be drawn on the same axes."""
        return "names" in self.plot_parameters

    @property
    def alone(self) -> str:
        """Why several Datasets cannot share the plot."""
        return getattr(sys.modules[self.plot.__module__], "ALONE", "it shows one Dataset")

    def draw(
        self,
        found: Sequence[xr.Dataset],
        options: Mapping[str, object],
        path: Path,
        texts: Sequence[Mapping[str, object]],
        *,
        names: Sequence[str] | None = None,
        width: str | float | None = None,
    ) -> Path:
        """Draw and write the figure: a panel for each Dataset, and for each direction if the plot takes a direction.

        A kind that combines draws all Datasets, with their names, in each panel; any other one draws those of one name
        in a row, with the name in their titles.
        """
        module = sys.modules[self.plot.__module__]
        size = getattr(module, "size", lambda data: getattr(module, "SIZE", DEFAULT_SIZE))
        given = getattr(module, "together", lambda datasets: {})(found)
        given |= {name: value for name, value in options.items() if name in self.plot_parameters}
        if self.combines:
            drawn, sizes = [(list(found), {"names": names})], [size(list(found))]
        else:
            drawn, sizes = zip(found, texts, strict=True), map(size, found)
        panels, owners = [], []
        for place, (data, own) in enumerate(drawn):
            first = data if isinstance(data, xr.Dataset) else data[0]
            each_side = "direction" in self.plot_parameters and "direction" not in given
            sides = first["direction"].values if each_side else [None]
            for name in sides:
                one = {} if name is None else {"direction": str(name)}
                panels.append(partial(self.plot, data, **given | own | one))
                owners.append(place)
        if "last" in self.plot_parameters:
            panels = [partial(panel, last=panel is panels[-1]) for panel in panels]
        columns = len(panels)
        if names and not self.combines:
            names = [names[place] for place in owners]
            panels = [partial(_named, panel, name) for panel, name in zip(panels, names, strict=True)]
            columns = names.count(names[0]) if len(set(names)) < len(names) else min(len(names), ACROSS)
        wide, high = map(max, zip(*sizes, strict=True))
        return saving.save_panels(panels, path, size=(wide, high), width=width, columns=columns)

    @property
    def shows(self) -> bool:
        """Whether the plot shows single rows, with their texts or pictures where these are known."""
        return bool({"labels", "pictures"} & self.plot_parameters.keys())

    def row_texts(self, data: xr.Dataset, items: Items | None) -> dict:
        """Collect what is known of single rows and taken by the plot: `labels`, `query`, `image` and `pictures`."""
        if items is None or not self.shows:
            return {}
        direction = data.attrs["direction"]
        texts = dict(zip(("query", "candidate"), items.texts(direction), strict=True))
        seen = dict(zip(("query", "candidate"), items.pictures(direction), strict=True))
        if "labels" in self.plot_parameters:
            row = data.attrs["row"]
            beside = {"pictures": seen["candidate"], "image": seen["query"] and seen["query"](row)}
            known = {name: value for name, value in beside.items() if value is not None}
            return {"labels": texts["candidate"], "query": texts["query"](row)} | known

        def look(side: str, row: int):
            picture = seen[side](row) if seen[side] else None
            return texts[side](row) if picture is None else picture

        return {"pictures": look}


def _named(panel: Callable, name: str, ax: Axes) -> object:
    """Draw a panel, with the name of its run before its title."""
    drawn = panel(ax=ax)
    ax.title.set_text(f"{name}: {ax.get_title()}" if ax.get_title() else name)
    return drawn


def names_of(runs: Sequence[tuple[Path, str | None]]) -> list[str]:
    """Name runs that share a plot by their loss, their file, or both, whichever differs."""
    files, losses = ({run[k] for run in runs} for k in (0, 1))
    stems = {file and file.stem for file in files}
    parts = [
        ([loss] if len(losses) > 1 else [])
        + ([file.stem if len(stems) == len(files) else str(file)] if len(files) > 1 else [])
        for file, loss in runs
    ]
    return [", ".join(part) for part in parts]


def once(checkpoint: Checkpoint, direction: str | None = None, held: list | None = None) -> Checkpoint:
    """Let a checkpoint encode only once, into `held`, and refuse a direction that its embeddings do not have."""
    held = [] if held is None else held

    def embedder(split, device, progress):
        if not held:
            held.append(checkpoint.embed(split, device, progress))
            results.direction(direction, held[0].directions)
        return held[0]

    return replace(checkpoint, embedder=embedder)


def plot_kinds() -> list[PlotKind]:
    """List the kinds: every measure that has a plot of its name."""
    names = sorted(set(measures.__all__) & set(plots.__all__))
    return [PlotKind(name, getattr(measures, name), getattr(plots, name)) for name in names]


def every() -> dict[str, PlotKind]:
    """All kinds by their names."""
    return {kind.name: kind for kind in plot_kinds()}


def find(name: str) -> PlotKind:
    """Find a kind by its name; a hyphen may stand for an underscore."""
    kind = every().get(name.replace("-", "_"))
    if kind is None:
        raise InputError(nearest("kind of plot", name, every()))
    if kind.name in {"diff", "run"}:
        raise InputError(f"{kind.name} has a command of its own: cocos {kind.name} --help")
    return kind


def table() -> Table:
    """List the kinds with the question that each answers, and the commands of those that are not drawn from a file."""
    usual = "cocos plot {} FILE"
    rows = tuple((kind.name, kind.sentence) for kind in plot_kinds())
    others = [kind.command for kind in plot_kinds() if kind.command != usual.format(kind.name)]
    notes = (f"Draw one: {usual.format('KIND')}. Its options: cocos plot KIND.", f"Exceptions: {'; '.join(others)}.")
    return Table(("kind", "question"), rows, (), notes if others else notes[:1], left=True)
