"""What the command lines of both studies share. Import it before NumPy: it fixes the threads of the linear algebra.

The order of sums, and with it the last digits and the signs of principal components, depends on their number; worker
processes inherit it.
"""

import os
import sys
from collections.abc import Collection, Sequence

from rich.console import Console

__all__ = ["compared", "known", "refused", "say"]

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

say = Console(stderr=True, highlight=False).print


def refused(reason: object) -> SystemExit:
    """Say in one sentence what cannot be done; raise the result, an end with exit code 2."""
    print(reason, file=sys.stderr)
    return SystemExit(2)


def known(what: str, names: Sequence[str], expected: Collection[str]) -> list[str]:
    """The names, or an end if one of them is not expected."""
    for name in names:
        if name not in expected:
            raise refused(f"{what} {name!r} is unknown, expected one of {', '.join(expected)}")
    return list(names)


def compared(run: str, differing: Sequence[str], numbers: int, about: str) -> bool:
    """Print the first numbers of a run that are other ones than before, and how many are the same; whether all are."""
    print(*differing[:10], sep="\n", end="\n" if differing else "")
    print(f"{run} ({about}): {numbers - len(differing)} of {numbers} numbers are the same to the last digit")
    return not differing
