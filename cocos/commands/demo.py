"""`cocos demo`, and the embedded example: a frozen checkpoint, its real training data, four losses, one figure."""

import os
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from cocos.base.errors import InputError, unreachable
from cocos.commands._answer import Answer, progress
from cocos.commands._options import SHARED, option
from cocos.commands._program import command

if TYPE_CHECKING:
    import xarray as xr

    from cocos.checkpoints import Checkpoint


EXAMPLE_LOSSES = ("ntxent", "triplet", "triplet_sh", "smoothap")
# Width and height of the figure, in inches.
FIGURE_INCHES = (8.0, 6.2)


def checkpoint() -> "Checkpoint":
    """The checkpoint in the package: two small towers trained with NT-Xent on emoji and their captions."""
    from cocos import checkpoints

    return checkpoints.open(resources.files("cocos") / "example" / "emoji_ntxent.pt")


def draw(datasets: "list[xr.Dataset]", path: Path) -> Path:
    """Draw a row for each loss on one axis, and move the figure into place when it is whole."""
    from cocos import plots
    from cocos.reports import saving

    return saving.save_plot(plots.count, datasets, path, size=FIGURE_INCHES)


@command(
    "The papers and the repository",
    1,
    options={
        "out": option(Path, "Folder for the Dataset and the figure.", Path("cocos-demo")),
        "device": SHARED["device"],
        "seed": SHARED["seed"],
    },
)
def demo(out, device, seed) -> Answer:
    """Count on the embedded example: a real frozen model, its real training data, four losses."""
    from cocos import measures, reports, results
    from cocos.reports.count import overview
    from cocos.results import several

    if out.exists() and not out.is_dir():
        raise InputError(f"output folder {out} is a file; name another folder")
    results.writable((out if out.is_dir() else out.parent) / "count.nc")
    with progress() as start:
        frozen = checkpoint()
        about = frozen.identity() | {"checkpoint_path": f"cocos/example/{frozen.path.name}"}  # wherever it is installed
        embeddings = frozen.embed(device=device, progress=start("encoding"))
        losses = {name: frozen.loss(name)[0] for name in EXAMPLE_LOSSES}
        together = measures.count(embeddings, losses, seed=seed, progress=start).assign_attrs(about)
    datasets = list(several.each(together).values())
    try:
        out.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"output folder {out} cannot be made ({unreachable(error)})") from None
    shown = overview(datasets)
    path = os.path.relpath(frozen.path)
    there = str(frozen.path) if path.startswith("..") else path
    typed = tuple(each if isinstance(each, str) else replace(each, files=(there,)) for each in shown.typed)
    return Answer(
        text=lambda: replace(shown, typed=typed),
        document=lambda: [reports.document("count", data) for data in datasets],
        wrote=[results.save(together, out / "count.nc"), draw(datasets, out / "count.png")],
    )
