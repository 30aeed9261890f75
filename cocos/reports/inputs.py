"""Inputs of a figure: the code and the files that its data depend on, each with its hash.

The imports are read from the source, nothing is run. Comments and docstrings do not count, and of the script itself
only what `data` reaches.
"""

import ast
import functools
import hashlib
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import cocos
from cocos.base.errors import InputError

PACKAGE = Path(cocos.__file__).parent
# Rooms of the package that draw, write or parse: the data of a figure depend on constants that the script reads there.
NOT_DATA = ("plots", "reports", "commands", "__main__.py", "example")
# Libraries whose version is an input.
VERSIONED = ("torch", "numpy")
# What marks a package whose modules are loaded by name, such as that of the losses.
SHELF = "pkgutil.iter_modules("
LOADED_WHOLE = 'import_module(f"{__name__}.{each.name}")'
WORD = re.compile("[A-Za-z_][A-Za-z0-9_-]*")
# Format of the checkpoints that cocos writes: no text names it.
OWN_FORMAT = "native"
# Digits of a hash that are kept: enough to see that a file has changed.
HASH_DIGITS = 12


def of(path: Path, module: ModuleType) -> dict[str, str]:
    """Inputs of the data of a script: name -> hash, or version; `module` is the script, run."""
    home, own = path.parent.resolve(), computing(path.read_text("utf-8"))
    files = {Path(each) for each in getattr(module, "INPUTS", ())}
    for each in files:
        if not each.is_file():
            raise InputError(f"{path.name}: its input {each} is not there")
    found = {"cocos": cocos.__version__} | {name: version(name).partition("+")[0] for name in VERSIONED}
    found[_name(path, home)] = _short(own.encode())
    for each in sorted(reached(own, home, [each.read_bytes() for each in files if each.suffix != ".py"])):
        text = each.read_text("utf-8")
        found[_name(each, home)] = _short((code(text, _constants(text)) if _draws(each) else code(text)).encode())
    for each in sorted(files):
        found.setdefault(_name(each, home), _short(each.read_bytes()))
    return found


def changed(now: dict[str, str], then: dict[str, str]) -> list[str]:
    """Names of the inputs that differ, those of the script and its data files first."""
    differing = [name for name in now.keys() | then.keys() if now.get(name) != then.get(name)]
    return sorted(differing, key=lambda name: (name.startswith("cocos/"), name))


def reached(source: str, home: Path, held: Sequence[bytes]) -> set[Path]:
    """Files that some code imports, directly or not: of the package, and of the folder of the scripts.

    Of a package that loads its modules by name, those count that a text of the scripts, a default of a function on the
    way, or a file that the script reads (`held`) names.
    """
    found: set[Path] = set()
    shelves: set[Path] = set()
    words = _words(_texts(source)) | {OWN_FORMAT}
    direct = {each for name in _imports(source) for each in _files(name, home) if _draws(each)}
    for each in direct:
        text = each.read_text("utf-8")
        words |= _words(_texts(code(text, _constants(text))))
    waiting = list(_imports(source))
    while waiting:
        for each in _files(waiting.pop(), home):
            if each in found or _draws(each):
                continue
            text = each.read_text("utf-8")
            found.add(each)
            waiting += _imports(text)
            words = words | (_words(_texts(text)) if each.is_relative_to(home) else _defaults(text))
            if each.name == "__init__.py" and LOADED_WHOLE in text and "engine" in each.parts:
                waiting += [_dotted(other, home) for other in each.parent.glob("*.py")]
            elif each.name == "__init__.py" and SHELF in text:
                shelves.add(each.parent)
        if not waiting:
            rest = {other for shelf in shelves for other in shelf.glob("[!_]*.py")} - found
            named = {
                other for other in rest if other.stem in words or any(other.stem.encode() in each for each in held)
            }
            waiting = [_dotted(other, home) for other in sorted(named)]
    return found | direct


def _draws(path: Path) -> bool:
    """Whether a file draws, writes or parses."""
    return path.is_relative_to(PACKAGE) and path.relative_to(PACKAGE).parts[0] in NOT_DATA


def _constants(source: str) -> list[ast.stmt]:
    """Assignments of a module."""
    return [node for node in ast.parse(source).body if isinstance(node, ast.Assign | ast.AnnAssign)]


def code(source: str, nodes: Iterable[ast.stmt] | None = None) -> str:
    """Lines of these statements, or of all, without comments, docstrings and empty lines."""
    tree, lines = ast.parse(source), source.splitlines()
    left_out = {at for at, line in enumerate(lines, 1) if not line.strip()}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#"):
            left_out.add(token.start[0])
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            first = body[0]
            told = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            if told and not lines[first.lineno - 1][: first.col_offset].strip():
                left_out |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    kept: Iterable[int] = range(1, len(lines) + 1)
    if nodes is not None:
        kept = (at for node in nodes for at in range(_begin(node), (node.end_lineno or node.lineno) + 1))
    return "\n".join(lines[at - 1].rstrip() for at in kept if at not in left_out)


def computing(source: str) -> str:
    """Extract the part of a script that its data depend on: `data`, `INPUTS`, and every name that they reach.

    A change of a caption or a label therefore trains no network again.
    """
    rest: list[ast.stmt] = []
    found: dict[str, list[ast.stmt]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # the docstring
        bound = {node.name} if isinstance(node, ast.FunctionDef | ast.ClassDef) else set()
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound = {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Assign):
            bound = {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
        if not bound:
            rest.append(node)
        for name in bound:
            found.setdefault(name, []).append(node)
    reached_, waiting = list(rest), ["data", "INPUTS", *(each for node in rest for each in _read(node))]
    while waiting:
        for node in found.pop(waiting.pop(), []):
            reached_.append(node)
            waiting += _read(node)
    return code(source, sorted(dict.fromkeys(reached_), key=lambda node: node.lineno))


def _read(node: ast.AST) -> list[str]:
    return [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]


def _begin(node: ast.stmt) -> int:
    return min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:HASH_DIGITS]


def _name(path: Path, home: Path) -> str:
    """Name of a file from the root of the repository, or from the package."""
    for root in (PACKAGE.parent, home.parent):
        if path.resolve().is_relative_to(root):
            return path.resolve().relative_to(root).as_posix()
    return path.name


@functools.cache
def _imports(source: str) -> tuple[str, ...]:
    """Dotted names that a source imports anywhere, and those that it reads of what it imports."""
    found, bound = [], {}
    tree = ast.parse(source)
    for node in _at_run_time(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
            bound |= {alias.asname or alias.name.partition(".")[0]: alias.asname and alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            bound |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            head, _, rest = ast.unparse(node).partition(".")
            if head in bound:
                found.append(f"{bound[head] or head}.{rest}")
    return tuple(dict.fromkeys(found))


def _at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker reads."""
    yield node
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.If) and "TYPE_CHECKING" in _read(each.test):
            for other in each.orelse:
                yield from _at_run_time(other)
        else:
            yield from _at_run_time(each)


def _files(name: str, home: Path) -> list[Path]:
    """Files that the import of a dotted name runs: its packages and its module; none of another distribution."""
    parts, found = name.split("."), []
    for root in (PACKAGE.parent, home, home.parent):
        if root == PACKAGE.parent and parts[0] != PACKAGE.name:
            continue
        place = root
        for part in parts:
            place = place / part
            inside = [each for each in (place / "__init__.py", place.with_suffix(".py")) if each.is_file()]
            found += inside
            if not inside and place.parent == PACKAGE and found:
                found += [file for each in _public().get(part, ()) for file in _files(each, home)]
            if not inside and not place.is_dir():
                break
        if found:
            break
    return found


@functools.cache
def _public() -> dict[str, tuple[str, ...]]:
    """Names of the package that it imports when they are asked for -> where they are, as it tells type checkers."""
    source = (PACKAGE / "__init__.py").read_text("utf-8") if (PACKAGE / "__init__.py").is_file() else ""
    return {
        alias.asname or alias.name: (f"{node.module}.{alias.name}",)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _dotted(path: Path, home: Path) -> str:
    """Dotted name of a module."""
    return _name(path, home).removesuffix(".py").replace("/", ".")


@functools.cache
def _defaults(source: str) -> frozenset[str]:
    """Words among the defaults of functions, such as the name of a loss."""
    given = [
        value.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.arguments)
        for value in (*node.defaults, *node.kw_defaults)
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    ]
    return frozenset(_words(given))


@functools.cache
def _texts(source: str) -> tuple[str, ...]:
    nodes = ast.walk(ast.parse(source))
    return tuple(each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str))


def _words(texts: Iterable[str]) -> set[str]:
    """Words of texts, as modules are called."""
    return {word.replace("-", "_").lower() for text in texts for word in WORD.findall(text)}
