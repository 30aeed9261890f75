"""Execute notebooks in place: `python -m notebooks [NAME ...]`; `--text FILE.py` first makes the cells of one."""

import argparse
import json
import os
import re
from pathlib import Path

import torch

from notebooks import execution

FOLDER = Path(__file__).parent
# A line that begins a cell of a Python file: `# %%`, `# %% [markdown]`, `# %% needs=lightning,torch`, `# %% varies`.
BORDER = re.compile(r"^# %%( \[markdown\])?(?: needs=(\S+))?( varies)?\n", re.MULTILINE)


def cells_of(text: str, name: str) -> list[dict]:
    """Cells of a Python file in the percent format, whose prose is in comments."""
    parts = BORDER.split(text)[1:]
    made = []
    rows = zip(parts[::4], parts[1::4], parts[2::4], parts[3::4], strict=True)
    for number, (markdown, needs, varies, body) in enumerate(rows):
        source = re.sub(r"^# ?", "", body.strip("\n"), flags=re.MULTILINE) if markdown else body.strip("\n")
        cell = {"cell_type": "markdown" if markdown else "code", "id": f"{name}-{number:02}", "metadata": {}}
        if not markdown:
            cell |= {"execution_count": None, "outputs": []}
        cell["metadata"] = ({"needs": needs.split(",")} if needs else {}) | ({"varies": True} if varies else {})
        made.append(cell | {"source": execution.split(source)})
    return made


def empty() -> dict:
    """A notebook without cells."""
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"cells": [], "metadata": about | {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}


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
    parser.add_argument("--text", type=Path, help="a Python file in the percent format: the cells of the one notebook")
    given = parser.parse_args()
    names = given.names or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    if given.text and len(names) != 1:
        parser.error("--text makes the cells of one notebook: name it")
    os.environ.pop("COCOS_FILE", None)
    torch.set_num_threads(1)
    for name in names:
        path = FOLDER / f"{name}.ipynb"
        if given.text:
            execution.write(empty() | {"cells": cells_of(given.text.read_text("utf-8"), name)}, path)
        execute(path)


if __name__ == "__main__":
    main()
