"""Writes the generated pages when a build starts, and makes reStructuredText of docstrings.

Named paragraphs such as `Counts:` become fields, and the bars of |weight| are kept from being substitutions.
"""

import re
from pathlib import Path

import matplotlib as mpl
import pages
import stories
import thumbnails
from sphinx.application import Sphinx

NAMED = re.compile(r"^(Counts|Net|Source): ")
# A link of a page to a notebook, which GitHub shows and for which the site has a page.
NOTEBOOK = re.compile(r"\]\((?:\.\./)+notebooks/(\w+)\.ipynb\)")
# A heading that is one name in code: the index, which the search asks first, has the name.
NAME_HEADING = re.compile(r"^(#{2,4} `(\w+)`)$", re.MULTILINE)
# Words with their definitions, as Markdown has them, and what begins a definition.
WORDS = re.compile(r"(?:^[^\s#:].*\n: .+\n(?:  .+\n)*\n?)+", re.MULTILINE)
DEFINED = re.compile(r"^: ", re.MULTILINE)
# What the theme leaves to be desired: headings without a level, regions that scroll and cannot be reached by keys.
REPAIRS = (
    ('<p class="caption" role="heading">', '<p class="caption" role="heading" aria-level="2">'),
    ('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="Pages">'),
    ('<aside class="toc-drawer', '<aside aria-label="On this page" class="toc-drawer'),
    ("<pre>", '<pre tabindex="0">'),
    ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
    ('<div class="math notranslate', '<div tabindex="0" class="math notranslate'),
)


def prepare(_app, _what, _name, _object, _options, lines: list[str]) -> None:
    """Make reStructuredText of a docstring, in place, before the sections are read."""
    found, formula, named = [], False, False
    for line in lines:
        if line.strip() and not line.startswith(" "):
            formula = line.startswith(".. math::")
            named = bool(NAMED.match(line)) or (named and bool(found) and bool(found[-1]))
        if formula or line.lstrip().startswith((">>> ", "... ")):
            found.append(line)
        elif NAMED.match(line):
            found.append(pages.escaped(NAMED.sub(r":\1: ", line)))
        elif named and line.strip() and not line.startswith(" ") and not line.endswith(":"):
            found.append("   " + pages.escaped(line))
        else:
            found.append(pages.escaped(line))
    lines[:] = found


def read(_app: Sphinx, name: str, content: list[str]) -> None:
    """Lead links to notebooks to their pages; index headings that are names, and the words of the glossary."""
    if name == "glossary":
        content[0] = WORDS.sub(lambda found: f":::{{glossary}}\n{DEFINED.sub('  ', found[0])}:::\n", content[0])
    content[0] = NOTEBOOK.sub(r"](/notebooks/\1.myst)", content[0])
    content[0] = NAME_HEADING.sub("```{index} ! \\2\n```\n\n\\1", content[0])


def repair(app: Sphinx, failure: Exception | None) -> None:
    """Make the pages that were written reachable by keys and by screen readers; twice is once."""
    if failure is not None or app.builder.format != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):
        before = text = page.read_text("utf-8")
        for old, new in REPAIRS:
            text = text.replace(old, new)
        if text != before:
            page.write_text(text, "utf-8")


def generate(app: Sphinx) -> None:
    """Write the generated pages and pictures into the source folder, where Sphinx finds them."""
    mpl.use("Agg")
    here = Path(app.srcdir)
    pictures = here / "_static" / "losses"
    pictures.mkdir(parents=True, exist_ok=True)
    sources = [*(here.parent / "cocos").rglob("*.py"), *(here / "_ext").glob("*.py")]
    newest, made = max(path.stat().st_mtime for path in sources), here / "losses" / "index.rst"
    if not made.exists() or made.stat().st_mtime < newest:  # computes the equals of every loss: half of a build
        pages.commands_page(here / "commands.rst")
        pages.api_pages(here / "api")
        pages.losses_pages(here / "losses", pictures)
        made.touch()
    stories.stories(here.parent / "notebooks", here / "notebooks")
    thumbnails.gallery(here.parent, here / "gallery")


def setup(app: Sphinx) -> dict:
    """Connect the pages to the start of a build, and the docstrings to autodoc."""
    app.connect("builder-inited", generate)
    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", prepare, priority=400)  # before napoleon, at 500
    app.connect("build-finished", repair)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
