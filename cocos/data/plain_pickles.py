"""Pickles of words, numbers and bytes alone: nothing is imported, and no more is called than a few inert stand-ins."""

import io
import pickle
import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from cocos.base.errors import InputError, UnsafeFile

# Tuples in a pickle, hardly any: nested in a key, they overflow the stack of Python's hash.
MAX_TUPLES = 100


@dataclass(frozen=True)
class Plain:
    """Allowed contents of a pickle.

    Args:
        what: noun for it, for messages.
        holds: what it holds, for messages.
        operations: of the pickle at most.
        stand_ins: name of a class -> what is called in its place; other names are refused.
        remedy: what to do where it is refused.
    """

    what: str
    holds: str
    operations: int
    stand_ins: Mapping[str, Callable[..., Any]]
    remedy: str

    def load(self, path: Path, stream: IO[bytes]) -> Any:
        """Load the object of a pickle, from a stream that can be read twice.

        Raises:
            UnsafeFile: it asks for a class that has no stand-in.
            InputError: it is damaged, or asks for much memory or stack.
        """
        plain = self

        class Reader(pickle.Unpickler):
            def find_class(self, module: str, name: str) -> Any:
                for each in (f"{module}.{name}", name):
                    if each in plain.stand_ins:
                        return plain.stand_ins[each]
                raise UnsafeFile(
                    f"{path} is refused as unsafe: {plain.what} holds {plain.holds}, and this file asks for "
                    f"{module}.{name}. Nothing was imported or run; {plain.remedy}"
                )

        try:
            self._check(path, stream)
            stream.seek(0)
            return Reader(stream, encoding="utf-8").load()
        except InputError:
            raise
        except Exception as error:  # a damaged or hostile pickle may fail anywhere
            reason = str(error)[:120] or type(error).__name__
            raise InputError(
                f"{path} is a damaged {self.what.partition(' ')[2]} pickle ({reason}); {self.remedy}"
            ) from None

    def _check(self, path: Path, stream: IO[bytes]) -> None:
        """Refuse a pickle for which the unpickler would need much memory or stack."""
        tuples, size, noun = 0, stream.seek(0, io.SEEK_END), self.what.partition(" ")[2]
        stream.seek(0)
        for number, (operation, argument, _) in enumerate(pickletools.genops(stream)):
            if "PUT" in operation.name and (argument or 0) > size:
                raise InputError(f"{path} is a damaged {noun} pickle (place {argument}); {self.remedy}")
            if isinstance(argument, int) and abs(argument) >= 2**60:  # as keys, such numbers can share one hash
                bits = argument.bit_length()
                raise InputError(f"{path} is no {noun}: it holds a number of {bits} bits; {self.remedy}")
            tuples += "TUPLE" in operation.name
            if tuples > MAX_TUPLES or number > self.operations:
                raise InputError(f"{path} is no {noun}: {number} operations, {tuples} of them tuples; {self.remedy}")
