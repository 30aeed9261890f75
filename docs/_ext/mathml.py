"""Formulas as MathML, which browsers draw themselves: no script, no font and no picture is needed."""

import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

LOG = logging.getLogger(__name__)
# LaTeX that docutils does not know, and what looks the same; a function and its argument are set apart.
INSTEAD = (
    (r"\\dots\b", r"\\ldots"),
    (r"\\big[lr]?(?![a-z])", ""),
    (r"\\textstyle\b", ""),
    (r"\\setminus\b", r"\\backslash"),
)
APPLIED = re.compile(r"<mo>&ApplyFunction;</mo>(?!\s*<mo stretchy=\"false\">\()")


def _converted(writer, node: nodes.math | nodes.math_block, *, block: bool) -> str:
    """The MathML of a node; a formula that cannot be converted is a warning, and with `-W` an error."""
    text = node.astext()
    for unknown, known in INSTEAD:
        text = re.sub(unknown, known, text)
    try:
        return APPLIED.sub('<mspace width="0.17em"></mspace>', tex2mathml(text, as_block=block))
    except MathError as error:
        LOG.warning("formula %r: %s", text, error, location=node)
        return f"<code>{writer.encode(text)}</code>"


def _inline(writer, node: nodes.math) -> None:
    writer.body.append(_converted(writer, node, block=False))
    raise nodes.SkipNode


def _block(writer, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math notranslate">{_converted(writer, node, block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict:
    """Register the renderer `mathml`."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
