"""Levels of processors for which a wheel has the kernel, and the flags with which it is compiled everywhere."""

import os
import platform
import shlex
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["COMPILER_FLAGS", "PROCESSOR_LEVELS", "Level", "compiler", "of_machine", "shipped"]

# Flags of GCC and Clang; none reorders floating-point operations.
COMPILER_FLAGS = (
    "-O3",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-Wno-psabi",
    "-shared",
    "-fPIC",
)


@dataclass(frozen=True)
class Level:
    """A set of instructions that a processor has, and the library that uses them.

    Args:
        name: as in the x86-64 psABI, or of the Arm architecture.
        machines: names of the family, as `platform.machine` gives them.
        flags: of the compiler.
        needs: names in the flags of /proc/cpuinfo, all of which a processor must have.
    """

    name: str
    machines: tuple[str, ...]
    flags: tuple[str, ...]
    needs: frozenset[str] = frozenset()

    @property
    def file(self) -> str:
        """Name of the library beside this file."""
        return f"kernel-{self.name}.so"


X86, ARM = ("x86_64", "AMD64"), ("aarch64", "arm64")
AVX2 = frozenset("avx2 fma bmi1 bmi2 f16c abm movbe".split())
AVX512 = AVX2 | frozenset("avx512f avx512bw avx512cd avx512dq avx512vl".split())
# The best one first. Below AVX2 the tiles are read by PyTorch, whose own code is faster than the kernel in SSE2: 1.2
# against 12 s for 6,400 x 6,400 scores of 512 dimensions on a Xeon. Source of the x86-64 levels: System V psABI,
# "Micro-Architecture Levels"; Linux spells LZCNT `abm`.
PROCESSOR_LEVELS = (
    Level("x86-64-v4", X86, ("-march=x86-64-v4", "-mprefer-vector-width=512"), AVX512),
    Level("x86-64-v3", X86, ("-march=x86-64-v3",), AVX2),
    Level("armv8-a", ARM, ("-march=armv8-a",)),
)


def compiler() -> list[str]:
    """Return the command of the C compiler: CC, or the first of cc, gcc and clang that there is.

    Raises:
        ValueError: CC has an unclosed quote.
    """
    usual = next(filter(shutil.which, ("cc", "gcc", "clang")), "cc")
    return shlex.split(os.environ.get("CC", "")) or [usual]


def of_machine(machine: str | None = None) -> list[Level]:
    """Levels of a family of processors, the best one first.

    Examples:
        >>> from cocos.engine.kernel import levels
        >>> [level.name for level in levels.of_machine("x86_64")]
        ['x86-64-v4', 'x86-64-v3']
    """
    return [level for level in PROCESSOR_LEVELS if (machine or platform.machine()) in level.machines]


def shipped(folder: Path, instructions: Iterable[str]) -> Path | None:
    """The best library of a wheel for a processor; None in a checkout, which has none.

    Args:
        folder: of the libraries.
        instructions: flags of the processor in /proc/cpuinfo.
    """
    there = frozenset(instructions)
    paths = (folder / level.file for level in of_machine() if level.needs <= there)
    return next((path for path in paths if path.is_file()), None)
