"""Texts in which a digit was typed, where only the data may supply numbers."""

import ast
import re

from cocos.reports import captions

# Names that contain a digit but are no result: sources, measures, functions, settings of the papers.
NAMES_WITH_DIGITS = re.compile(
    r"(Tables?|Figs?\.|[Ee]qs?\.|[Ss]ections?|Lemma|Proposition) [\w.-]+(, [\dIVX][\w.]*)*( (and|to) [\dIVX][\w.]*)?"
    r"|\b[kf][12]\b|R@1\b|t\^1\.5|\b[\d.]+t\b|L2\b|CUB-200|5th|95th|C\^0|i2t|t2i|q2c|c2q"
)


def typed_digits(source: str) -> list[str]:
    """Find texts of a caption with typed digits, where only the data may supply numbers.

    Inspects DIFFERS, `title`, `alt`, `agrees`, `hero`, and the functions of the script that these call. Keys, keyword
    arguments, identifiers and format specifications do not count as text.
    """
    tree = ast.parse(source)
    named = (*captions.CAPTION_FUNCTIONS, "hero")
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    waiting, seen, found = [each for each in named if each in functions], set(), []
    while waiting:
        name = waiting.pop()
        if name in seen or name in {"data", "draw"}:
            continue
        seen.add(name)
        called = (getattr(each, "id", None) for each in ast.walk(functions[name]))
        waiting += [each for each in called if each in functions]
        found += texts(functions[name].body[1 if ast.get_docstring(functions[name]) else 0 :])
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "DIFFERS":
            found += texts([node.value])
    return [text for text in found if any(letter.isdigit() for letter in NAMES_WITH_DIGITS.sub("", text))]


def texts(nodes: list[ast.AST], written: bool = False) -> list[str]:
    """Collect the texts among some nodes, and the numbers typed into f-strings."""
    found = []
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [] if node.value.isidentifier() and not written else [node.value]
        elif isinstance(node, ast.FormattedValue):
            inside = node.value
            typed = isinstance(inside, ast.Constant) and not isinstance(inside.value, str)
            found += [str(inside.value)] if typed else texts([inside])  # type: ignore[attr-defined]
        elif isinstance(node, ast.Subscript):
            found += texts([node.value])
        elif not isinstance(node, ast.keyword):
            found += texts(list(ast.iter_child_nodes(node)), isinstance(node, ast.JoinedStr))
    return found
