"""What a pickle would import, found without loading it: for a sentence on what a file is, and what it would do.

The guard is `torch.load(weights_only=True)`, which refuses all that is not allowed; this only names it beforehand.
"""

import pickletools
import re
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Iterator
from typing import IO

__all__ = ["RUNS_CODE", "UNREADABLE", "VALUES", "names"]

UNREADABLE = "an unreadable name"

RUNS_CODE = re.compile(
    r"""(os|posix|nt|sys|subprocess|shutil|socket|importlib|runpy|pty|ctypes|code|codeop|pdb|bdb|timeit|webbrowser|signal
    |multiprocessing|threading|asyncio|http|urllib|ftplib|smtplib|requests|pip|platform|tempfile|glob|io|_io|codecs|site
    |pickle|_pickle|cPickle|dill|cloudpickle|joblib|marshal|shelve
    |(builtins|__builtin__)\.(eval|exec|execfile|compile|open|file|__import__|getattr|setattr|delattr|globals|locals|vars
        |input|breakpoint|apply|reduce|map|filter)
    |operator\.(attrgetter|methodcaller|itemgetter)|functools\.(partial|reduce)|types\.(FunctionType|CodeType)
    |torch\.(load|save|hub|jit|package|serialization\.load|serialization\.save|utils\.cpp_extension)
    |numpy\.(load|save|fromfile|memmap|f2py|testing))(\.|$)""",
    re.VERBOSE,
)
VALUES = re.compile(r"torch\.|collections\.(OrderedDict|Counter)$|_codecs\.encode$|builtins\.(set|complex|bytearray)$")


def _of_today(module: str, name: str) -> str:
    """Protocols up to 2 give the names of Python 2: `commands.Popen`, `__builtin__.eval`."""
    module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
    return f"{module}.{name}"


def names(stream: IO[bytes]) -> Iterator[str]:
    """Names that the pickle at the start of a stream would import, as far as it can be read."""
    strings, memo, last = [], {}, None
    for operation, argument, _ in pickletools.genops(stream):
        name = operation.name
        if name in {"GLOBAL", "INST"}:
            yield _of_today(*argument.split(" ", 1))
        elif name == "STACK_GLOBAL":
            yield _of_today(*strings[-2:]) if len(strings) > 1 else UNREADABLE
        if name in {"PUT", "BINPUT", "LONG_BINPUT"}:
            memo[argument] = last
        elif name == "MEMOIZE":
            memo[len(memo)] = last
        else:
            last = memo.get(argument) if name in {"GET", "BINGET", "LONG_BINGET"} else argument
            if isinstance(last, str):
                strings.append(last)
