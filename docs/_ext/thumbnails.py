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


def figures(root: Path) -> list[tuple[str, str, str, str]]:
    """Name, text for those who do not see it, claim and section of every figure of this repository."""
    found = []
    for name, alt, body in SECTION.findall((root / "figures" / "README.md").read_text("utf-8")):
        claim = re.search(r"^- \*\*Claim:\*\* (.*)$", body, re.MULTILINE)
        found.append((name, alt, claim[1] if claim else body.strip().splitlines()[0], body))
    return found


def title(body: str) -> str:
    """The first words of a figure's caption: what it shows, in half a line."""
    sentence = " ".join(body.strip().split("\n\n")[0].split())
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
    for name, alt, claim, body in every:
        _small(root / "figures" / f"{name}.png", folder / f"{name}.png")
        drawn += _thumbnail(name, alt, f"gallery/{name}.html", claim, f"cocos figures {name}")
        page = f"# {title(body)}\n\n![{alt}](../../figures/{name}.png)\n\n{body.strip()}\n\n"
        page += f"## Code\n\n`cocos figures {name}` in a clone draws it with this script, `analysis/{name}.py`:\n\n"
        page += f"```{{literalinclude}} ../../analysis/{name}.py\n:language: python\n```\n"
        write(folder / f"{name}.myst", page)
    only(folder, [name for name, *_ in every], ".myst")
    write(folder / "plots.inc", plots + ":::::\n")
    names = "\n".join(f"{name.replace('_', ' ')} <gallery/{name}>" for name, *_ in every)
    write(folder / "figures.inc", drawn + f":::::\n\n```{{toctree}}\n:hidden:\n\n{names}\n```\n")
