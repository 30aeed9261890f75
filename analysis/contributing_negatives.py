"""Figure `contributing_negatives`: the embedded example counted for four losses, as `cocos demo` does it."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from cocos import demo, results

FIGURES = Path(__file__).parent.parent / "figures"


def main(out: Annotated[Path, typer.Option(help="Folder for the figure and its data.")] = FIGURES):
    """Write contributing_negatives.png and the Dataset beside it."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        Progress(console=Console(stderr=True), transient=True) as bar,
    ):

        def start(what):
            task = bar.add_task(what, total=None)
            return lambda done, total: bar.update(task, completed=done, total=total)

        _, (data, figure) = demo.run(Path(scratch), device="cpu", progress=start)
        every = results.open_dataset(data)
        drawn = every.drop_vars([n for n, v in every.data_vars.items() if "query" in v.dims and n != "contributing"])
        target = out / f"{Path(__file__).stem}{figure.suffix}"
        target.write_bytes(figure.read_bytes())
        for path in (target, results.save(drawn, target.with_suffix(".nc"))):
            print(f"wrote {path}")


if __name__ == "__main__":
    typer.run(main)
