"""The kinds of pictures: every measure that has a plot of its name, with the options that both of them take.

Nothing is listed by hand. What a kind takes stands in the signatures of its measure and of its plot, what it means in
their docstrings. A plot's file may say how large one panel is: `size(dataset) -> (width, height)`, in inches; and what
panels side by side have in common: `together(datasets) -> options`.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from types import NoneType, UnionType
from typing import get_args, get_origin

import xarray as xr

from cocos import measures, plots
from cocos.checkpoints import Checkpoint
from cocos.data import Items
from cocos.errors import InputError, nearest
from cocos.losses import _about
from cocos.reports import drawing, tables
from cocos.run import Progress

__all__ = ["Kind", "called", "find", "kinds", "once", "parted"]

SIZE = (6.4, 4.8)
GIVEN = {
    "embeddings",
    "loss",
    "progress",
    "dataset",
    "names",
    "labels",
    "pictures",
    "query",
    "last",
    "ax",
}  # by no option
LARGEST = 15  # digits of a whole number: all of them are float64 as well
NUMBERS = {int: "whole number", float: "number"}


@dataclass(frozen=True)
class Kind:
    """A measure and the plot of its name.

    Args:
        name: of both.
        measure: the Dataset's.
        plot: the picture's.
    """

    name: str
    measure: Callable[..., xr.Dataset]
    plot: Callable

    @cached_property
    def takes(self) -> dict[str, inspect.Parameter]:
        """Parameters of the measure, by their names."""
        return dict(inspect.signature(self.measure).parameters)

    @cached_property
    def looks(self) -> dict[str, inspect.Parameter]:
        """Parameters of the plot, by their names."""
        return dict(inspect.signature(self.plot).parameters)

    @property
    def reads(self) -> str:
        """What the measure reads first: `embeddings`, `loss`, or what only a command of its own can give it."""
        return next(iter(self.takes))

    @property
    def command(self) -> str:
        """What to type."""
        return {
            "embeddings": f"cocos plot {self.name} FILE",
            "loss": f"cocos plot {self.name} --loss NAME",
        }.get(self.reads, f"cocos {self.name}")

    @property
    def sentence(self) -> str:
        """The first line of the measure's docstring."""
        return _about.summary(self.measure)

    @cached_property
    def options(self) -> dict[str, inspect.Parameter]:
        """What can be chosen, of the measure first."""
        loss = {name: each for name, each in self.takes.items() if name == "loss"}
        return loss | {name: each for name, each in (self.takes | self.looks).items() if name not in GIVEN}

    def card(self, spelled: Callable[[str], str]) -> list[tuple[str, str, str]]:
        """Of each option how it is written, its default, and what the docstrings say of it.

        Args:
            spelled: how an option is written.
        """
        meant = _about.parameters(self.plot) | _about.parameters(self.measure)
        return [(spelled(name), _shown(each.default), meant.get(name, "")) for name, each in self.options.items()]

    def table(self, data: xr.Dataset, words: Mapping[str, object]) -> tables.Table:
        """The table of `cocos.reports.tables` that has the name of the kind, or else the summary of the Dataset.

        Args:
            data: of `measured`.
            words: what `words` gives for it.
        """
        of = getattr(tables, self.name, tables.summary)
        known = inspect.signature(of).parameters
        return of(data, **{name: value for name, value in words.items() if name in known})

    def chosen(self, given: Mapping[str, object], spelled: Callable[[str], str]) -> dict[str, object]:
        """Options as the functions take them; those that are text are read.

        Args:
            given: their values, by their names.
            spelled: how an option is written, for the sentences.

        Raises:
            InputError: one that the kind does not take, or a value that it cannot be.
        """
        for name in given:
            if name not in self.options:
                known = ", ".join(map(spelled, self.options))
                raise InputError(f"{self.name} does not take {spelled(name)}: it takes {known}")
        return {
            name: _read(value, self.options[name].annotation, spelled(name)) if isinstance(value, str) else value
            for name, value in given.items()
            if name != "loss"
        }

    def measured(
        self, checkpoint: Checkpoint | None, loss, options: Mapping[str, object], progress: Progress | None
    ) -> list[xr.Dataset]:
        """The Dataset; one for each direction where the measure has one at a time and none is chosen.

        Args:
            checkpoint: for a measure of embeddings; it is encoded once.
            loss: a loss; None: what the measure takes then.
            options: of `chosen`.
            progress: as for measures.

        Raises:
            InputError: as the measure; or a direction that the embeddings do not have.
        """
        given = {name: value for name, value in options.items() if name in self.takes}
        given |= {"loss": loss} if loss is not None else {}
        if checkpoint is None:
            return [self.measure(**given)]
        held = []
        given |= {"progress": progress} if "progress" in self.takes else {}
        measure = partial(self.measure, _once(checkpoint, options.get("direction"), held), **given)
        found = [measure()]
        if "direction" in self.takes and "direction" not in given:
            found += [measure(direction=name) for name in held[0].directions[1:]]
        return found

    @property
    def combines(self) -> bool:
        """Several losses and files go into one picture, on the same axes."""
        return "names" in self.looks

    def draw(
        self,
        found: Sequence[xr.Dataset],
        options: Mapping[str, object],
        path: Path,
        words: Sequence[Mapping[str, object]],
        *,
        names: Sequence[str] | None = None,
        width: str | float | None = None,
    ) -> Path:
        """Write the picture: a panel for each Dataset, and for each direction where the plot draws one at a time.

        A kind that combines draws all Datasets in each panel.

        Args:
            found: of `measured`.
            options: of `chosen`.
            path: of the picture.
            words: of each of them, what `words` gives.
            names: of the Datasets, where several go into one panel; None: their losses.
            width: as for `cocos.reports.drawing.draw`.

        Raises:
            InputError: the file cannot be written, or an option that the plot refuses.
        """
        about = vars(sys.modules[self.plot.__module__])
        given = about.get("together", lambda found: {})(found)
        given |= {name: value for name, value in options.items() if name in self.looks}
        size = about.get("size", lambda data: SIZE)
        if self.combines:
            drawn, sized = [(list(found), {"names": names})], [size(list(found))]
        else:
            drawn, sized = zip(found, words, strict=True), map(size, found)
        panels = []
        for data, told in drawn:
            first = data if isinstance(data, xr.Dataset) else data[0]
            sides = first["direction"].values if "direction" in self.looks and "direction" not in given else [None]
            for name in sides:
                one = {} if name is None else {"direction": str(name)}
                panels.append(partial(self.plot, data, **given | told | one))
        if "last" in self.looks:
            panels = [partial(panel, last=panel is panels[-1]) for panel in panels]
        wide, high = map(max, zip(*sized, strict=True))
        return drawing.panels(panels, path, size=(wide * len(panels), high), width=width)

    @property
    def shows(self) -> bool:
        """The plot shows single rows, with their texts or pictures where they are known."""
        return bool({"labels", "pictures"} & self.looks.keys())

    def words(self, data: xr.Dataset, items: Items | None) -> dict:
        """What a plot that shows single rows is given of them.

        Args:
            data: of `measured`.
            items: what the rows are, `Checkpoint.items`; None: it is not known.

        Returns:
            `labels`, `query`, `image` and `pictures`, those of them that the plot takes and that are known.
        """
        if items is None or not self.shows:
            return {}
        direction = data.attrs["direction"]
        texts = dict(zip(("query", "candidate"), items.texts(direction), strict=True))
        seen = dict(zip(("query", "candidate"), items.pictures(direction), strict=True))
        if "labels" in self.looks:
            row = data.attrs["row"]
            beside = {"pictures": seen["candidate"], "image": seen["query"] and seen["query"](row)}
            known = {name: value for name, value in beside.items() if value is not None}
            return {"labels": texts["candidate"], "query": texts["query"](row)} | known

        def look(side: str, row: int):
            picture = seen[side](row) if seen[side] else None
            return texts[side](row) if picture is None else picture

        return {"pictures": look}


def once(checkpoint: Checkpoint) -> Checkpoint:
    """The same checkpoint that encodes once, however often it is asked to."""
    return _once(checkpoint, None, [])


def called(runs: Sequence[tuple[Path, str | None]]) -> list[str]:
    """What runs are called in a picture: by their loss, their file, or both, whichever differs.

    Args:
        runs: file and loss of each.
    """
    files, losses = ({run[k] for run in runs} for k in (0, 1))
    stems = {file.stem for file in files}
    parts = [
        ([loss] if len(losses) > 1 else [])
        + ([file.stem if len(stems) == len(files) else str(file)] if len(files) > 1 else [])
        for file, loss in runs
    ]
    return [", ".join(part) for part in parts]


def parted(parameters: Mapping[str, str], losses: Sequence[str]) -> list[dict[str, str]]:
    """The parameters of each of several losses: those of one are written LOSS.NAME, like `ntxent.temperature`.

    Raises:
        InputError: a parameter of none of several losses.
    """
    if len(losses) < 2:
        return [dict(parameters)]
    found = [{} for _ in losses]
    for name, value in parameters.items():
        of = [k for k, loss in enumerate(losses) if name.startswith(f"{loss}.")]
        if not of:
            raise InputError(
                f"parameter {name}={value}: with several losses, write whose it is, like {losses[0]}.{name}={value}"
            )
        for k in of:
            found[k][name.removeprefix(f"{losses[k]}.")] = value
    return found


def _once(checkpoint: Checkpoint, direction: str | None, held: list) -> Checkpoint:
    """The same checkpoint that encodes once, into `held`, and knows which direction is asked for."""

    def embedder(split, device, progress):
        if not held:
            held.append(checkpoint.embedder(split, device, progress))
            if direction is not None and direction not in held[0].directions:
                raise InputError(nearest("direction", direction, held[0].directions))
        return held[0]

    return replace(checkpoint, embedder=embedder)


def _shown(default) -> str:
    """A default as it is written on the command line."""
    if default is None or default is inspect.Parameter.empty:
        return ""
    return ",".join(map(str, default)) if isinstance(default, list | tuple) else str(default)


def _read(text: str, annotation, option: str):
    """Text as the value that a parameter is annotated to have; several are separated by commas, one ends with one.

    Raises:
        InputError: it is none.
    """
    text = text.strip()
    if any(len(digits) > LARGEST for digits in re.findall(r"\d+", text) if int in (*get_args(annotation), annotation)):
        raise InputError(f"{option.removesuffix('=')} {text!r}: expected a number of at most {LARGEST} digits")
    wanted = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    several = [get_args(each)[0] for each in wanted if get_origin(each) in {Sequence, Iterable}]
    if str in wanted:
        return int(text) if int in wanted and text.lstrip("-").isdecimal() else text
    if bool in wanted and text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if NoneType in wanted and text.lower() in {"all", "none"}:
        return None
    parted = text.removesuffix(",").split(",")
    for kind, parts in (*((kind, None) for kind in wanted), *((kind, parted) for kind in several)):
        if kind in NUMBERS:
            try:
                return kind(text) if parts is None else tuple(kind(part) for part in parts)
            except ValueError:
                continue
    right = [f"a {NUMBERS[kind]}" for kind in wanted if kind in NUMBERS]
    right += [f"{NUMBERS[kind]}s, separated by commas" for kind in several if kind in NUMBERS]
    right += ["true or false"] if bool in wanted else []
    right += ["all"] if NoneType in wanted else []
    raise InputError(f"{option.removesuffix('=')} {text!r}: expected {' or '.join(right)}")


def kinds() -> list[Kind]:
    """Every measure that has a plot of its name."""
    names = sorted(set(measures.__all__) & set(plots.__all__))
    return [Kind(name, getattr(measures, name), getattr(plots, name)) for name in names]


def find(name: str) -> Kind:
    """A kind by its name; a hyphen may stand for an underscore.

    Raises:
        InputError: there is none, or only a command of its own has what it needs.
    """
    every = {kind.name: kind for kind in kinds()}
    kind = every.get(name.replace("-", "_"))
    if kind is None:
        raise InputError(nearest("kind of picture", name, every))
    if kind.reads not in {"embeddings", "loss"}:
        raise InputError(f"{kind.name} has a command of its own: cocos {kind.name} --help")
    return kind
