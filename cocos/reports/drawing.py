"""Draw Datasets by the plot of their measure, as `cocos plot` and the page do.

Next to its plot, a file of `cocos.plots` may define `SIZE` or `size(dataset)`, the width and height of one panel in
inches, and `together(datasets)`, the options that panels share.
"""

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import xarray as xr

from cocos import plots, results
from cocos.checkpoints import Checkpoint
from cocos.data.training_set import Items
from cocos.plots import saving
from cocos.plots.run import shown

# Inches of a panel of a plot without a size of its own: the default of matplotlib.
DEFAULT_SIZE = (6.4, 4.8)
# Panels per row of the figure of a run.
RUN_COLUMNS = 3


def draw(
    name: str,
    datasets: Sequence[xr.Dataset],
    path: Path,
    *,
    options: Mapping[str, object] | None = None,
    texts: Sequence[Mapping[str, object]] | None = None,
    width: str | float | None = None,
) -> Path:
    """Draw the Datasets of a measure and write the figure.

    A plot that takes several Datasets draws them on the same axes, any other one has a panel for each. A plot that
    takes a direction has a panel for each direction.

    Args:
        name: measure and plot.
        datasets: its results.
        path: figure to write.
        options: options of the measure and of the plot; those of the plot are used.
        texts: texts and pictures of the rows of each Dataset, from `row_texts`.
        width: width of the figure, as for `saving.inches`.
    """
    plot = getattr(plots, name)
    if name == "run":
        panels = [partial(plot, list(datasets), show=curve) for curve in shown(datasets)]
        return saving.save_panels(panels, path, width=width, columns=RUN_COLUMNS)
    module, parameters = sys.modules[plot.__module__], inspect.signature(plot).parameters
    size = getattr(module, "size", lambda dataset: getattr(module, "SIZE", DEFAULT_SIZE))
    shared = module.together(datasets) if hasattr(module, "together") else {}
    shared |= {key: value for key, value in (options or {}).items() if key in parameters}
    panel_data: list[tuple] = list(zip(datasets, texts or [{}] * len(datasets), strict=True))
    if "names" in parameters:
        panel_data = [(list(datasets), {})]
    panels = []
    for content, panel_texts in panel_data:
        if "direction" in parameters and "direction" not in shared:
            directions = datasets[0]["direction"].values
            panels += [partial(plot, content, direction=str(name), **shared, **panel_texts) for name in directions]
        else:
            panels.append(partial(plot, content, **shared, **panel_texts))
    if "last" in parameters:
        panels = [partial(panel, last=panel is panels[-1]) for panel in panels]
    wide, high = map(max, zip(*(size(content) for content, _ in panel_data), strict=True))
    return saving.save_panels(panels, path, size=(wide, high), width=width)


def row_texts(name: str, dataset: xr.Dataset, items: Items | None) -> dict:
    """Collect the texts and pictures of single rows that a plot takes: `labels`, `query`, `image` and `pictures`."""
    parameters = inspect.signature(getattr(plots, name)).parameters
    if items is None or not {"labels", "pictures"} & parameters.keys():
        return {}
    direction = dataset.attrs["direction"]
    texts = dict(zip(("query", "candidate"), items.texts(direction), strict=True))
    pictures = dict(zip(("query", "candidate"), items.pictures(direction), strict=True))
    if "labels" in parameters:
        row = dataset.attrs["row"]
        images = {"pictures": pictures["candidate"], "image": pictures["query"] and pictures["query"](row)}
        images = {key: image for key, image in images.items() if image is not None}
        return {"labels": texts["candidate"], "query": texts["query"](row)} | images

    def look(side: str, row: int):
        picture = pictures[side](row) if pictures[side] else None
        return texts[side](row) if picture is None else picture

    return {"pictures": look}


def with_texts(dataset: xr.Dataset, texts: dict) -> xr.Dataset:
    """Add the text of the query and of each candidate to the contributors of a query, if they are known."""
    if "labels" not in texts or "candidate_index" not in dataset:
        return dataset
    names = [texts["labels"](int(row)) for row in dataset["candidate_index"].values]
    return dataset.assign(text=("candidate", names)).assign_attrs(query_text=texts["query"])


def once(checkpoint: Checkpoint, direction: str | None = None) -> Checkpoint:
    """Let a checkpoint encode only once, and refuse a direction that its embeddings do not have."""
    cache: list = []

    def embedder(split, device, progress):
        if not cache:
            cache.append(checkpoint.embed(split, device, progress))
            results.direction(direction, cache[0].directions)
        return cache[0]

    return replace(checkpoint, embedder=embedder)
