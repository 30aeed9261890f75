"""Compute the findings on text embeddings and write their page: python -m analysis.text_findings [FOLDER]."""

from pathlib import Path
from typing import Annotated

import torch
from typer import Argument, Exit, Typer, echo

from analysis.text_findings import compute, page
from cocos.base.errors import InputError

app = Typer(add_completion=False)


@app.command()
def main(
    folder: Annotated[
        Path | None, Argument(help="Folder of the embeddings to compute from; without it the page is filled alone.")
    ] = None,
):
    """Compute all numbers from a folder of embeddings (minutes), and fill docs/findings.md from them."""
    torch.set_num_threads(1)
    try:
        if folder is not None:
            compute.compute(folder)
            print(f"wrote {compute.RESULTS}")
        print(f"wrote {page.write()}")
    except InputError as error:
        echo(f"text_findings: {error}", err=True)
        raise Exit(2) from None


if __name__ == "__main__":
    app()
