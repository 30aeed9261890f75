"""Captions of figures, filled from the data that the figure draws.

A script has `title(parts)`, the claim; `alt(parts)`, a sentence that describes the figure; `agrees(parts)`, the
evidence with its n and intervals; and the constants PUBLISHED, the source, and DIFFERS, the reasons for differences.
"""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

import xarray as xr

from cocos.base.errors import InputError

CAPTION_FUNCTIONS = ("title", "alt", "agrees")
# Names that contain a digit but are no result: sources, measures, functions, settings of the papers.
NAMES_WITH_DIGITS = re.compile(
    r"(Tables?|Figs?\.|[Ee]qs?\.|[Ss]ections?|Lemma|Proposition) [\w.-]+(, [\dIVX][\w.]*)*( (and|to) [\dIVX][\w.]*)?"
    r"|\b[kf][12]\b|R@1\b|t\^1\.5|\b[\d.]+t\b|L2\b|CUB-200|5th|95th|C\^0|i2t|t2i|q2c|c2q"
)


@dataclass(frozen=True)
class Caption:
    """Caption of one figure.

    Args:
        claim: the finding, one sentence.
        alt: one sentence that describes the figure, for readers who cannot see it.
        evidence: numbers with n and intervals.
        about: description.
        published: paper and figure, or none.
        differs: reasons why our figure is not the same.
    """

    claim: str
    alt: str
    evidence: str
    about: str
    published: str
    differs: str

    def lines(self, name: str) -> list[str]:
        """Markdown of this figure in the index."""
        rows = {"Claim": self.claim, "Evidence": self.evidence, "Published": self.published}
        rows |= {"Differs because": self.differs}
        told = [f"- **{head}:** {text}" for head, text in rows.items() if text]
        return [f"## {name}", "", f"![{self.alt}]({name}.png)", "", self.about, "", *told, ""]


def holds(condition: bool, words: str) -> str:
    """Return the words if the condition holds; otherwise the caption must be rewritten."""
    if not condition:
        raise InputError(f"the caption says {words!r}, and its data do not")
    return words


def write(module: ModuleType, parts: Mapping[str, xr.Dataset]) -> Caption:
    """Fill the caption of a script from its data."""
    name = module.__name__.removeprefix("analysis_")
    for each in CAPTION_FUNCTIONS:
        if not callable(getattr(module, each, None)):
            raise InputError(f"{name}.py: it has no function {each}(parts), which a figure needs for its caption")
    try:
        claim, alt, evidence = (" ".join(getattr(module, each)(parts).split()) for each in CAPTION_FUNCTIONS)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    except (KeyError, AttributeError, ValueError) as error:
        raise InputError(f"{name}: its caption does not fit its data ({error}); run cocos figures {name}") from error
    published, differs = getattr(module, "PUBLISHED", ""), getattr(module, "DIFFERS", "")
    return Caption(claim, alt, evidence, (module.__doc__ or "").strip(), published, differs)


def typed_digits(source: str) -> list[str]:
    """Find texts of a caption with typed digits, where only the data may supply numbers.

    Inspects DIFFERS, `title`, `alt`, `agrees`, `hero`, and the functions of the script that these call. Keys, keyword
    arguments, identifiers and format specifications do not count as text.
    """
    tree = ast.parse(source)
    named = (*CAPTION_FUNCTIONS, "hero")
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    waiting, seen, found = [each for each in named if each in functions], set(), []
    while waiting:
        name = waiting.pop()
        if name in seen or name in {"data", "draw"}:
            continue
        seen.add(name)
        called = (getattr(each, "id", None) for each in ast.walk(functions[name]))
        waiting += [each for each in called if each in functions]
        found += _texts(functions[name].body[1 if ast.get_docstring(functions[name]) else 0 :])
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "DIFFERS":
            found += _texts([node.value])
    return [text for text in found if any(letter.isdigit() for letter in NAMES_WITH_DIGITS.sub("", text))]


def _texts(nodes: list[ast.AST], written: bool = False) -> list[str]:
    """Collect the texts among some nodes, and the numbers typed into f-strings."""
    found = []
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [] if node.value.isidentifier() and not written else [node.value]
        elif isinstance(node, ast.FormattedValue):
            inside = node.value
            typed = isinstance(inside, ast.Constant) and not isinstance(inside.value, str)
            found += [str(inside.value)] if typed else _texts([inside])  # type: ignore[attr-defined]
        elif isinstance(node, ast.Subscript):
            found += _texts([node.value])
        elif not isinstance(node, ast.keyword):
            found += _texts(list(ast.iter_child_nodes(node)), isinstance(node, ast.JoinedStr))
    return found
