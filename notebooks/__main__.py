"""Execute notebooks in place: `python -m notebooks [NAME ...]`."""

import argparse
import json
import os
from pathlib import Path

import torch

from notebooks import execution

FOLDER = Path(__file__).parent


def execute(path: Path) -> None:
    """Execute a notebook, store its outputs without numbers of execution, and print the time and the size."""
    notebook, spent = execution.read(path), -sum(os.times()[:4])
    for cell, found in execution.outputs(notebook, path.stem):
        cell["execution_count"] = None
        if found is None:
            print(f"{path.stem}: {cell['id']} keeps its outputs: {', '.join(execution.absent(cell))} not installed")
        else:
            cell["outputs"] = found
    spent += sum(os.times()[:4])
    execution.write(notebook, path)
    size = len(json.dumps([cell["outputs"] for cell in execution.code_cells(notebook)]))
    print(f"{path.stem}: {spent:.0f} s of CPU time, outputs {size / 1000:.0f} kB")


def main() -> None:
    """Parse the arguments and execute the notebooks that they name, or all."""
    parser = argparse.ArgumentParser(prog="python -m notebooks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="notebooks to execute, without .ipynb; default: all")
    given = parser.parse_args()
    names = given.names or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    os.environ.pop("COCOS_FILE", None)
    torch.set_num_threads(1)
    for name in names:
        execute(FOLDER / f"{name}.ipynb")


if __name__ == "__main__":
    main()
