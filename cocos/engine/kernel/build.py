"""Compile the kernel for levels of processors: `python cocos/engine/kernel/build.py` puts it next to its sources.

The build hook of the package (`wheel.py`) loads this file by its path, so it imports nothing of cocos.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

KERNEL_FOLDER = Path(__file__).parent
KERNEL_SOURCES = (KERNEL_FOLDER / "product.c", KERNEL_FOLDER / "tile.c")
# Flags of GCC and Clang; only sums marked by `omp simd` may be reordered.
COMPILER_FLAGS = (
    "-O3",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fopenmp-simd",
    "-fno-strict-aliasing",
    "-Wno-psabi",
    "-shared",
    "-fPIC",
)
# Time limit of the compiler in seconds; one level takes 5 s on an idle processor.
COMPILER_SECONDS = 300


@dataclass(frozen=True)
class Level:
    """A set of instructions, and the library that uses them.

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
        """Name of the library."""
        return f"kernel-{self.name}.so"


X86, ARM = ("x86_64", "AMD64"), ("aarch64", "arm64")
AVX2 = frozenset("avx2 fma bmi1 bmi2 f16c abm movbe".split())
AVX512 = AVX2 | frozenset("avx512f avx512bw avx512cd avx512dq avx512vl".split())
# The best one first. Below AVX2 the tiles are read by PyTorch, whose own code is faster than the kernel in SSE2: 1.2
# against 12 s for 6,400 x 6,400 scores of 512 dimensions on a Xeon. Source of the x86-64 levels: System V psABI,
# "Micro-Architecture Levels"; Linux spells LZCNT `abm`.
LEVELS = (
    Level("x86-64-v4", X86, ("-march=x86-64-v4", "-mprefer-vector-width=512"), AVX512),
    Level("x86-64-v3", X86, ("-march=x86-64-v3",), AVX2),
    Level("armv8-a", ARM, ("-march=armv8-a",)),
)


def machine_levels() -> list[Level]:
    """Return the levels of the processor family of this machine, the best one first; none except on Linux."""
    return [level for level in LEVELS if platform.machine() in level.machines and sys.platform == "linux"]


def processor_levels() -> list[Level]:
    """Return the levels that this processor supports, the best one first."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
    except OSError:
        lines = []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return [level for level in machine_levels() if level.needs <= set(flags)]


def compile_level(level: Level, folder: Path) -> Path:
    """Compile the kernel into a folder with CC, or the first of cc, gcc and clang; return the path of the library.

    Raises:
        OSError: there is no such compiler.
        ValueError: CC has an unclosed quote.
        subprocess.SubprocessError: the compiler failed.
    """
    default = next(filter(shutil.which, ("cc", "gcc", "clang")), "cc")
    compiler = shlex.split(os.environ.get("CC", "")) or [default]
    path = folder / level.file
    scratch = path.with_suffix(f".{os.getpid()}")
    command = [*compiler, *COMPILER_FLAGS, *level.flags, "-o", str(scratch), *map(str, KERNEL_SOURCES), "-lm"]
    subprocess.run(command, check=True, capture_output=True, timeout=COMPILER_SECONDS)
    return scratch.replace(path)


def is_current() -> bool:
    """Whether the library beside the sources, if this processor can have one, is newer than they are."""
    levels = processor_levels()[:1]
    paths = [KERNEL_FOLDER / level.file for level in levels]
    newest = max(path.stat().st_mtime for path in KERNEL_SOURCES)
    return all(path.is_file() and path.stat().st_mtime >= newest for path in paths)


def main() -> None:
    """Compile the kernel for this processor beside its sources."""
    for level in processor_levels()[:1]:
        print(compile_level(level, KERNEL_FOLDER))


if __name__ == "__main__":
    main()
