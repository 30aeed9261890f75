"""Operations of a pickle and the names that it would import, read in linear time and bounded memory.

Nothing is built. The guard is `torch.load(weights_only=True)`, which refuses what is not allowed; names are only for
sentences on what a file is and would do.
"""

import codecs
import pickletools
import re
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections import deque
from collections.abc import Iterator
from typing import IO

# Operations that the pickles of one file may have: a tensor takes 40, a word 4, so 20,000 tensors or 200,000 words.
MAX_OPERATIONS = 800_000
# Bytes of one argument that are read; a longer one is skipped if its length is given, and refused otherwise.
MAX_ARGUMENT = 2**20

# A file may ask for MAX_EXPANSION times its own bytes of memory, or for ALWAYS_ALLOWED bytes if that is more: deflated
# arrays of real embeddings keep at least a tenth of their bytes, and tensors that repeat rows are small.
MAX_EXPANSION, ALWAYS_ALLOWED = 50, 2**26

FIXED_WIDTH, COUNTED_WIDTH, LINES_READ = {}, {}, {}
for _each in pickletools.opcodes:
    _code, _width = _each.code.encode("latin-1"), 0 if _each.arg is None else _each.arg.n
    if _width >= 0:
        FIXED_WIDTH[_code] = _width
    elif _width == pickletools.UP_TO_NEWLINE:
        LINES_READ[_code] = 2 if _code in {b"c", b"i"} else 1
    else:
        COUNTED_WIDTH[_code] = {-2: 1, -3: 4, -4: 4, -5: 8}[_width]
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


def most_unpacked(size: int) -> int:
    """Most bytes of memory that `size` bytes of a file may ask for."""
    return max(ALWAYS_ALLOWED, MAX_EXPANSION * size)


class TooMuch(ValueError):
    """A file asks for more memory or work than its size explains."""


def budget() -> Iterator[int]:
    """Make the budget of operations that all pickles of one file share."""
    return iter(range(MAX_OPERATIONS))


def operations(stream: IO[bytes], left: Iterator[int]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the operations of the pickle at the start of a stream, which can seek and is left behind its end.

    Each is the code of one byte, and the bytes of its argument, empty for a very long text. Each takes one of a budget.

    Raises:
        TooMuch: more operations than were left.
        ValueError: no pickle, or one that ends too early.
    """
    read = stream.read
    for _ in left:
        code = read(1)
        if (width := FIXED_WIDTH.get(code)) is not None:
            argument = read(width) if width else b""
        elif (width := COUNTED_WIDTH.get(code)) is not None:
            width = int.from_bytes(read(width), "little")
            if width > MAX_ARGUMENT:
                stream.seek(width - 1, 1)
                width, argument = 1, read(1)
                if argument:
                    yield code, b""
                    continue
            else:
                argument = read(width)
        elif (lines := LINES_READ.get(code)) is not None:
            argument = b"".join(stream.readline(MAX_ARGUMENT) for _ in range(lines))
            width = len(argument) if argument.count(b"\n") == lines else len(argument) + 1
        else:
            raise ValueError(f"no pickle operation {code!r}")
        if len(argument) < width:
            raise ValueError("a pickle that ends too early")
        yield code, argument
        if code == b".":
            return
    raise TooMuch(f"a pickle of more than {MAX_OPERATIONS:,} operations")


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
    """Yield the names that the pickle at the start of a stream would import, as far as it can be read."""
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
