"""Pages of the notebooks, with their kept outputs: prose, code, what it printed, and what it drew."""

import base64
import json
from pathlib import Path

from pages import only, write

COMMAND = "!cocos "


def _fenced(text: str, kind: str, *options: str) -> str:
    """Text in a fence that is longer than any of its own."""
    fence = "`" * max(3, 1 + max((len(run) for run in text.split() if set(run) == {"`"}), default=0))
    return "\n".join([f"{fence}{kind}", *options, text.rstrip("\n"), fence]) + "\n\n"


def _output(output: dict, picture: Path) -> str:
    """One output of a cell; a picture is written beside the page."""
    data = output.get("data", {"text/plain": output.get("text", [])})
    said = "".join(data.get("text/plain", []))
    if "image/png" in data:
        content = base64.b64decode(data["image/png"])
        if not picture.exists() or picture.read_bytes() != content:
            picture.write_bytes(content)
        alt = " ".join(said.split()).replace("[", "(").replace("]", ")")
        return f"![{alt}]({picture.name})\n\n"
    if "text/html" in data:
        return _fenced("".join(data["text/html"]), "{raw} html")
    return _fenced(said, "{code-block} text", ":class: output", "")


def story(path: Path, folder: Path) -> str:
    """A notebook as MyST Markdown; its pictures are written to a folder."""
    notebook, text = json.loads(path.read_text("utf-8")), ""
    for number, cell in enumerate(notebook["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            text += source.replace("](../docs/", "](/") + "\n\n"
            if not number:
                text += f"{{download}}`Notebook <../../notebooks/{path.name}>`, with these outputs.\n\n"
            continue
        if source.startswith(COMMAND):
            text += _fenced(source.replace("!cocos ", "$ cocos "), "console")
        else:
            text += _fenced(source, "python")
        for place, output in enumerate(cell["outputs"]):
            text += _output(output, folder / f"{cell['id']}-{place}.png")
    return text


def stories(notebooks: Path, folder: Path) -> None:
    """A page for each notebook."""
    folder.mkdir(exist_ok=True)
    paths = sorted(notebooks.glob("*.ipynb"))
    only(folder, [path.stem for path in paths], ".myst")
    for path in paths:
        write(folder / f"{path.stem}.myst", story(path, folder))
