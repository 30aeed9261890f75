"""The embedded example, end to end: a frozen checkpoint, its real training data, four losses, one figure."""

import functools
from importlib import resources
from pathlib import Path

import xarray as xr

from cocos import checkpoints, measures, plots, results
from cocos.checkpoints import Checkpoint
from cocos.errors import InputError, unreachable
from cocos.reports import drawing
from cocos.run import Progress

__all__ = ["LOSSES", "SIZE", "checkpoint", "draw", "run"]

LOSSES = ("ntxent", "triplet", "triplet_sh", "smoothap")
SIZE = (8.0, 6.2)  # inches of the figure


def checkpoint() -> Checkpoint:
    """The checkpoint that the package carries: two small towers trained with NT-Xent on emoji and their captions."""
    return checkpoints.open(resources.files("cocos") / "example" / "emoji_ntxent.pt")


def draw(datasets: list[xr.Dataset], path: Path) -> Path:
    """Draw a row for each loss on one axis, and move the figure into place when it is whole."""
    return drawing.draw(plots.count, datasets, path, size=SIZE)


def run(
    folder: Path, *, device: str = "auto", seed: int = 0, progress: Progress
) -> tuple[list[xr.Dataset], list[Path]]:
    """Encode the training data of the embedded checkpoint once and count for every loss.

    Args:
        folder: where the Dataset and the figure go; it is made if its parent is there.
        device: `auto`, `cpu` or `cuda`.
        seed: of the batches.
        progress: (what) -> function of (done, in all).

    Returns:
        A Dataset for each of `LOSSES`, and the files that were written.

    Raises:
        InputError: the folder cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"output folder {folder} is a file; name another folder")
    results.writable((folder if folder.is_dir() else folder.parent) / "count.nc")
    frozen = checkpoint()
    about = frozen.identity() | {"checkpoint_path": f"cocos/example/{frozen.path.name}"}  # wherever it is installed
    embeddings = frozen.embed(device=device, progress=progress("encoding"))
    datasets = []
    for name in LOSSES:
        shown = functools.partial(lambda what, name: progress(f"{what} {name}"), name=name)
        data = measures.count(embeddings, frozen.loss(name)[0], seed=seed, progress=shown)
        datasets.append(data.assign_attrs(about))
    together = xr.concat(
        datasets,
        dim=xr.Variable("loss", list(LOSSES)),
        join="outer",
        data_vars="all",
        coords="minimal",
        compat="override",
        combine_attrs="drop_conflicts",
    )
    together.attrs["losses"] = "\n".join(data.attrs["loss_repr"] for data in datasets)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"output folder {folder} cannot be made ({unreachable(error)})") from None
    return datasets, [results.save(together, folder / "count.nc"), draw(datasets, folder / "count.png")]
