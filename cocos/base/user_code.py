"""Code of the user, named on the command line as `file.py:attribute` or `package.module:attribute`."""

import contextlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Generator
from pathlib import Path
from typing import Any

from cocos.base.errors import InputError, nearest

PACKAGE = str(Path(__file__).parents[1])
LIBRARIES = ("site-packages", "dist-packages", "/lib/python")


@contextlib.contextmanager
def reported(name: str) -> Generator[None]:
    """Turn an exception in the user's code into one sentence with its file and line, and redirect prints to stderr."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, SyntaxError):
            raise InputError(f"{name}: SyntaxError: {error.msg} ({error.filename}:{error.lineno})") from error
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if not frame.filename.startswith((PACKAGE, "<")) and not any(part in frame.filename for part in LIBRARIES)
        ]
        place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
        raise InputError(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}{place}") from error


def load(name: str, kind: str) -> Any:
    """Import the object that the user named; `kind` describes it in messages.

    Raises:
        InputError: the module or the attribute does not exist, or the module cannot be imported.
    """
    module, _, attribute = name.rpartition(":")
    if not module.strip() or not attribute.strip():
        raise InputError(f"{kind} {name!r}: expected file.py:attribute or package.module:attribute")
    with reported(f"{kind} {name!r} cannot be imported"):
        if module.endswith(".py"):
            value = load_file(Path(module), kind)
        else:
            if str(Path.cwd()) not in sys.path:
                sys.path.insert(0, str(Path.cwd()))
            importlib.invalidate_caches()
            try:
                value = importlib.import_module(module)
            except ModuleNotFoundError as error:
                if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                    raise  # a module that the user's module imports
                raise InputError(f"{kind} {name!r}: there is no module {module!r} here or in the environment") from None
    for part in attribute.split("."):
        if not hasattr(value, part):
            public = [key for key in getattr(value, "__dict__", {}) if not key.startswith("_")]
            raise InputError(f"{kind} {name!r}: {nearest(f'attribute of {module}', part, public)}")
        value = getattr(value, part)
    return value


def load_file(path: Path, kind: str) -> Any:
    """Import a Python file as a module, again only after it was changed."""
    if not path.is_file():
        raise InputError(f"{kind} {path}: file not found")
    path = path.resolve()
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # like `python file.py`: its neighbours can be imported
    name, stamp = f"cocos_{kind}_{path.stem}", (str(path), path.stat().st_mtime_ns, path.stat().st_size)
    if getattr(sys.modules.get(name), "cocos_stamp", None) == stamp:
        return sys.modules[name]
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    module.cocos_stamp = stamp
    return module
