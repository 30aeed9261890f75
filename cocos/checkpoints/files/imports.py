"""Names that a pickle would import, found without loading it, for sentences on what a file is and would do.

The guard is `torch.load(weights_only=True)`, which refuses what is not allowed; the names are only for the sentence.
"""

import codecs
import re
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections import deque
from collections.abc import Iterator
from typing import IO

from cocos.checkpoints.files.opcodes import budget, operations

__all__ = ["RUNS_CODE", "UNREADABLE", "VALUE_NAMES", "lines", "names", "of_today", "place"]

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
VALUE_NAMES = re.compile(
    r"torch\.|collections\.(OrderedDict|Counter)$|_codecs\.encode$|builtins\.(set|complex|bytearray)$"
)


# Operations that push text, by how it is written; that keep the top of the stack in the memo; and that push it again.
PUSH_TEXT, PUSH_QUOTED, PUSH_ESCAPED = {b"U", b"T", b"C", b"B", b"\x8e", b"X", b"\x8c", b"\x8d"}, b"S", b"V"
PUT, MEMOIZE, GET = {b"p", b"q", b"r"}, b"\x94", {b"g", b"h", b"j"}
NOTED = {b"c", b"i", b"\x93", PUSH_QUOTED, PUSH_ESCAPED, MEMOIZE} | PUSH_TEXT | PUT | GET


def of_today(module: str, name: str) -> str:
    """Translate a name of Python 2, as in pickles of protocols up to 2: `__builtin__.eval` is `builtins.eval`."""
    module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
    return f"{module}.{name}"


def lines(argument: bytes) -> tuple[str, str]:
    """Read module and name from an argument of two lines."""
    module, name = argument.decode("utf-8", "replace").split("\n")[:2]
    return module, name


def place(code: bytes, argument: bytes) -> int:
    """Read the number of a place in the memo, written as a line (protocol 0) or in bytes."""
    return int(argument) if code in {b"p", b"g"} else int.from_bytes(argument, "little")


def _text(code: bytes, argument: bytes) -> str:
    """Decode the text that an operation pushes."""
    if code == PUSH_QUOTED:
        argument = codecs.escape_decode(argument.strip()[1:-1])[0]
    return argument[:-1].decode("raw-unicode-escape") if code == PUSH_ESCAPED else argument.decode("utf-8", "replace")


def names(stream: IO[bytes], left: Iterator[int] | None = None) -> Iterator[str]:
    """Yield the names that the pickle at the start of a stream would import, as far as it can be read.

    Args:
        stream: that can seek.
        left: operations that the pickles of the file may still have; None: a new `budget`.
    """
    strings, memo, last = deque(maxlen=2), {}, None
    for code, argument in operations(stream, left or budget()):
        if code not in NOTED:
            last = None
        elif code in {b"c", b"i"}:
            last = None
            yield of_today(*lines(argument))
        elif code == b"\x93":
            last = None
            yield of_today(*(_text(*each) for each in strings)) if len(strings) > 1 else UNREADABLE
        elif code in PUT:
            memo[place(code, argument)] = last
        elif code == MEMOIZE:
            memo[len(memo)] = last
        else:
            last = memo.get(place(code, argument)) if code in GET else (code, argument)
            if last is not None:
                strings.append(last)
