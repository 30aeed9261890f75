"""Options of a function with their types, defaults and meanings, read from its source without importing it."""

import ast
import builtins
import functools
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cocos.base import docstrings

PACKAGE_FOLDER = Path(__file__).parent.parent
# Modules that are imported where a signature names them; all others are read or left unknown.
IMPORTED = ("collections.abc", "enum", "math", "numbers", "pathlib", "typing", "cocos.base.errors", "cocos.base.ranges")
# Default of a parameter that has none.
REQUIRED = ...


class Unknown:
    """Stands for whatever a package that is not imported has, such as a type of PyTorch's."""

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, key):
        return self

    def __or__(self, other):
        return self

    __ror__ = __or__

    def __call__(self, *values, **options):
        """Whatever it is called with; a range that a function of the file makes is not looked at."""
        return self


UNKNOWN = Unknown()


@dataclass(frozen=True)
class Option:
    """A parameter of a function.

    Args:
        name: of the parameter.
        annotation: its type, with its range; `UNKNOWN` where another package defines it.
        default: `REQUIRED` where there is none.
        meaning: from the section `Args:` of the docstring.
    """

    name: str
    annotation: Any
    default: Any
    meaning: str


class ModuleNames(dict):
    """Names of a file of Python with their values, each evaluated when it is asked for."""

    def __init__(self, path: Path):
        super().__init__()
        self.nodes: dict[str, Any] = {}
        body = ast.parse(path.read_text("utf-8")).body
        for node in [*body, *(inner for each in body if isinstance(each, ast.If) for inner in each.body)]:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.nodes[node.name] = node
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self.nodes |= {each.asname or each.name.partition(".")[0]: (node, each) for each in node.names}
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self.nodes |= {each.id: node.value for each in targets if isinstance(each, ast.Name)}

    def __missing__(self, name: str) -> Any:
        node = self.nodes.get(name)
        if node is None and hasattr(builtins, name):
            return getattr(builtins, name)
        if isinstance(node, tuple):
            self[name] = _imported_value(*node)
        else:
            self[name] = self.value(node) if isinstance(node, ast.expr) else UNKNOWN
        return self[name]

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def value(self, node: ast.expr | None) -> Any:
        """Value of an expression; `UNKNOWN` where it needs a package that is not imported."""
        if node is None:
            return UNKNOWN
        try:
            return eval(compile(ast.Expression(node), "<signature>", "eval"), {"__builtins__": {}}, self)
        except (TypeError, NameError, AttributeError, KeyError, ValueError):
            return UNKNOWN


@functools.cache
def source(module: str) -> ModuleNames:
    """Names of a module of this package."""
    path = PACKAGE_FOLDER.joinpath(*module.split(".")[1:])
    return ModuleNames(path / "__init__.py" if path.is_dir() else path.with_suffix(".py"))


def _imported_value(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> Any:
    """Value of a name that a module imports."""
    whole = alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
    if isinstance(node, ast.Import) or whole in IMPORTED:
        return importlib.import_module(whole) if whole in IMPORTED else UNKNOWN
    if node.module in IMPORTED:
        return getattr(importlib.import_module(node.module), alias.name)
    if not (node.module or "").startswith("cocos"):
        return UNKNOWN
    path = PACKAGE_FOLDER.joinpath(*whole.split(".")[1:])
    return source(whole) if path.is_dir() or path.with_suffix(".py").is_file() else source(node.module)[alias.name]


def _options_of_sampling(module: ModuleNames, function: ast.FunctionDef) -> dict[str, Option]:
    """Options that the decorator `cocos.engine.sampling.sampled` adds."""
    calls = [each for each in function.decorator_list if isinstance(each, ast.Call)]
    for call in calls:
        if getattr(call.func, "id", None) == "sampled":
            home = source("cocos.engine.sampling")
            given = {each.arg: module.value(each.value) for each in call.keywords if each.arg}
            bundle = home.nodes[call.args[0].id if call.args else "Sampling"]  # type: ignore[attr-defined]
            meant = docstrings.parameters(ast.get_docstring(bundle) or "")
            defaults = home["DEFAULTS"] | given
            rows = [each for each in bundle.body if isinstance(each, ast.AnnAssign)]
            types = {each.target.id: home.value(each.annotation) for each in rows}  # type: ignore[union-attr]
            names = [name for name in types if name not in given.get("without", ())]
            return {name: Option(name, types[name], defaults[name], meant.get(name, "")) for name in names}
    return {}


@functools.cache
def options(module: str, name: str) -> dict[str, Option]:
    """Parameters of a function of a module of this package, in their order.

    Examples:
        >>> from cocos.base import signatures
        >>> level = signatures.options("cocos.measures.replay", "replay")["level"]
        >>> level.default, level.meaning
        (0.95, 'of the confidence intervals.')
    """
    here = source(module)
    function = here.nodes[name]
    meant = docstrings.parameters(ast.get_docstring(function) or "")
    given = function.args
    every = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(every) - len(given.defaults)) + given.defaults + given.kw_defaults
    found = {}
    for each, default in zip([*every, *given.kwonlyargs], defaults, strict=True):
        value = REQUIRED if default is None else here.value(default)
        found[each.arg] = Option(each.arg, here.value(each.annotation), value, meant.get(each.arg, ""))
    return found | _options_of_sampling(here, function)
