"""Writes the generated pages when a build starts, and makes reStructuredText of docstrings.

Named paragraphs such as `Counts:` become fields, and the bars of |weight| are kept from being substitutions.
"""

import re
from pathlib import Path

import matplotlib as mpl
import pages
from sphinx.application import Sphinx

NAMED = re.compile(r"^(Counts|Net|Source|Also called|Family): ")


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


def generate(app: Sphinx) -> None:
    """Write the generated pages and pictures into the source folder, where Sphinx finds them."""
    mpl.use("Agg")
    here = Path(app.srcdir)
    pictures = here / "_static" / "losses"
    pictures.mkdir(parents=True, exist_ok=True)
    pages.losses_pages(here / "losses", pictures)
    pages.commands_page(here / "commands.rst")
    pages.api_pages(here / "api")


def setup(app: Sphinx) -> dict:
    """Connect the pages to the start of a build, and the docstrings to autodoc."""
    app.connect("builder-inited", generate)
    app.connect("autodoc-process-docstring", prepare, priority=400)  # before napoleon, at 500
    return {"parallel_read_safe": True, "parallel_write_safe": True}
