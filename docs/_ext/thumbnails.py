"""The gallery: a thumbnail of every figure and of every kind of plot, with its code, and a page for each figure."""

import re
from pathlib import Path

from pages import only, write
from pictures import PICTURES
from PIL import Image

WIDTH = 420  # of a thumbnail, in pixels
COLOURS = 48
SECTION = re.compile(r"^## (\w+)\n\n!\[(.*?)\]\(.*?\)\n\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
# Where the words that name a figure end, in the first sentence of its caption.
NAMED = re.compile(r": |, (?:for|if|where|and when)\b|\.$")
FEWEST = 20  # letters of a name


def _small(source: Path, target: Path) -> None:
    """Write a thumbnail, unless there is one that is newer than its picture."""
    if target.exists() and target.stat().st_mtime >= source.stat().st_mtime:
        return
    image = Image.open(source).convert("RGB")
    image.thumbnail((WIDTH, WIDTH), Image.Resampling.LANCZOS)
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(target, "PNG", optimize=True)


def _thumbnail(name: str, alt: str, target: str, words: str, command: str) -> str:
    """A small picture that leads to its page, a sentence, and the code that draws it."""
    picture = f":::{{figure}} gallery/{name}.png\n:alt: {alt}\n:target: {target}\n\n{words}\n:::\n\n"
    return f"::::{{container}} thumbnail\n{picture}```console\n$ {command}\n```\n::::\n\n"


def figures(root: Path) -> list[tuple[str, str, str]]:
    """Return name, subject and caption of every figure of this repository."""
    return SECTION.findall((root / "figures" / "README.md").read_text("utf-8"))


def title(sentence: str) -> str:
    """Return the first words of the subject of a figure."""
    ends = (found.start() for found in NAMED.finditer(sentence) if found.start() >= FEWEST)
    return sentence[: next(ends, None)]


def gallery(root: Path, folder: Path) -> None:
    """The thumbnails of `gallery.md`, and a page for each figure."""
    folder.mkdir(exist_ok=True)
    plots = ":::::{container} thumbnails\n\n"
    for name, picture in PICTURES.items():
        _small(root / "docs" / "pictures" / f"{name}.png", folder / f"plot-{name}.png")
        words = name.replace("_", " ")
        shown = f"**{words}**: {picture.alt[:1].lower()}{picture.alt[1:]}"
        plots += _thumbnail(f"plot-{name}", words, f"howto/{picture.page}.html", shown, picture.command)
    drawn = ":::::{container} thumbnails\n\n"
    every = figures(root)
    for name, alt, body in every:
        _small(root / "figures" / f"{name}.png", folder / f"{name}.png")
        drawn += _thumbnail(name, alt, f"gallery/{name}.html", body.strip(), f"python -m analysis figures {name}")
        page = f"# {title(alt)}\n\n![{alt}](../../figures/{name}.png)\n\n{body.strip()}\n\n"
        page += f"## Code\n\n`python -m analysis figures {name}` draws it with `analysis/{name}.py`:\n\n"
        page += f"```{{literalinclude}} ../../analysis/{name}.py\n:language: python\n```\n"
        write(folder / f"{name}.myst", page)
    only(folder, [name for name, *_ in every], ".myst")
    write(folder / "plots.inc", plots + ":::::\n")
    names = "\n".join(f"{name.replace('_', ' ')} <gallery/{name}>" for name, *_ in every)
    write(folder / "figures.inc", drawn + f":::::\n\n```{{toctree}}\n:hidden:\n\n{names}\n```\n")
