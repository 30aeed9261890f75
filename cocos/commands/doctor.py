"""`cocos doctor`: the installation and the machine, as far as cocos depends on them.

Each section is a function that returns facts, and a sentence for each of them that needs attention.
"""

import importlib.util
import os
import platform
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import cocos
from cocos.base import processes, terminal
from cocos.base.errors import InputError
from cocos.commands._answer import Answer
from cocos.commands._program import command

if TYPE_CHECKING:
    from cocos.base.layout import Table

# Name under which this project is installed; `cocos` on the package index is another project.
DISTRIBUTION = "cocos-metric"
REQUIRED_LIBRARIES = ("torch", "numpy", "scipy", "xarray", "typer")
# Packages that cocos works without: losses to compare with, and models that `--model` functions load.
OPTIONAL_PACKAGES = ("pytorch-metric-learning", "transformers", "sentence-transformers", "open-clip-torch")
# Variables of others that change how cocos runs; its own begin with COCOS_.
ENVIRONMENT_VARIABLES = (
    *("CC", "XDG_CACHE_HOME", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "COLUMNS", "PYTHONPATH"),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"),
)
# Rows and columns of the square matrices that are multiplied to measure the speed of a device.
MATRIX_ROWS = 1024
# Number of products of which the fastest counts; the first ones start threads and load libraries.
PRODUCTS_TIMED = 5


@dataclass(frozen=True)
class Section:
    """Facts about one part of the installation.

    Args:
        title: of the part, a key of the JSON document.
        facts: plain values by name.
        attention: a sentence for each thing to put right: what is the matter, and what to do.
    """

    title: str
    facts: dict
    attention: tuple[str, ...] = ()


def _version(distribution: str) -> str | None:
    """Version of an installed distribution; None if there is none."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _unmet() -> list[str]:
    """A sentence for each requirement of the installed distribution that the environment does not meet."""
    from importlib import metadata

    from packaging.requirements import Requirement

    found = []
    for text in metadata.requires(DISTRIBUTION) or ():
        required = Requirement(text)
        if required.marker is not None and not required.marker.evaluate({"extra": ""}):
            continue
        version = _version(required.name)
        if version is None or not required.specifier.contains(version, prereleases=True):
            have = f"is {version}" if version else "is not installed"
            found.append(f"{required.name} {have}: run pip install '{required.name}{required.specifier}'")
    return found


def package() -> Section:
    """Version, origin, and other distributions that write to the same folder."""
    from importlib import metadata

    installed = _version(DISTRIBUTION)
    owners = {name for name in metadata.packages_distributions().get("cocos", ()) if name}
    others = sorted(name for name in owners if name.lower().replace("_", "-") != DISTRIBUTION)
    attention = [
        f"the distribution {name} {_version(name)} also installs a package named cocos, and one overwrites the other: "
        f"run pip uninstall {name} {DISTRIBUTION}, then install {DISTRIBUTION} again"
        for name in others
    ]
    if installed not in {None, cocos.__version__}:
        attention.append(
            f"cocos {cocos.__version__} is imported, but {DISTRIBUTION} {installed} is installed: install it again, or "
            "remove the other copy from the path of imports"
        )
    facts = {
        "version": cocos.__version__,
        "imported_from": str(Path(cocos.__file__).parent),
        "distribution": DISTRIBUTION,
        "installed": installed,
        "other_distributions": others,
    }
    return Section("cocos", facts, tuple(attention))


def versions() -> Section:
    """Versions of Python and of the libraries, and requirements that are not met."""
    facts = {"python": platform.python_version(), "system": platform.platform(terse=True)}
    facts |= {name: _version(name) for name in REQUIRED_LIBRARIES}
    unmet = [] if _version(DISTRIBUTION) is None or importlib.util.find_spec("packaging") is None else _unmet()
    if importlib.util.find_spec("torch") is None:
        unmet.append("PyTorch cannot be imported: run pip install torch")
    return Section("versions", facts, tuple(unmet))


def optional() -> Section:
    """Packages that cocos works without."""
    return Section("optional", {name: _version(name) for name in OPTIONAL_PACKAGES})


def environment() -> Section:
    """Environment variables that change what cocos does, as far as they are set."""
    names = sorted(name for name in os.environ if name.startswith("COCOS_") or name in ENVIRONMENT_VARIABLES)
    attention = []
    try:
        processes.environment()
    except InputError as error:
        attention.append(str(error))
    cache = os.environ.get("XDG_CACHE_HOME")
    if cache and not Path(cache).is_absolute():
        attention.append(f"XDG_CACHE_HOME={cache} is a relative path and is ignored: write an absolute one")
    return Section("environment", {name: os.environ[name] for name in names}, tuple(attention))


def stdout() -> Section:
    """Whether the output goes to a terminal, and its width in columns."""
    there = sys.stdout is not None and sys.stdout.isatty()
    encoding = getattr(sys.stdout, "encoding", None)
    return Section("stdout", {"terminal": there, "columns": terminal.room(), "encoding": encoding})


def kernel() -> Section:
    """Whether the kernel of the engine is compiled, and why not."""
    from cocos.engine.kernel import build

    why, switch = build.reason(), os.environ.get("COCOS_KERNEL")
    attention = []
    if why and (switch or "").lower() in build.OFF:
        attention.append(
            f"COCOS_KERNEL={switch} turns the compiled kernel off: unset it for counts several times as fast"
        )
    elif why:
        attention.append(
            f"there is no compiled kernel ({why}): install a C compiler (cc, gcc or clang) or name one with CC; "
            "until then PyTorch reads the scores, several times as slowly"
        )
    facts = {"compiled": not why, "reason": why or None, "compiler": _compiler(build), "cache": None}
    try:
        facts["cache"] = str(build.folder())
    except (OSError, RuntimeError) as error:
        facts["cache"] = f"none ({error})"
    return Section("kernel", facts, tuple(attention))


def _compiler(build) -> str | None:
    """Command of the C compiler with its path; None if it is not there."""
    try:
        first, *rest = build.compiler()
    except ValueError:
        return None
    path = shutil.which(first)
    return path and shlex.join([path, *rest])


def threads() -> Section:
    """Processors and threads."""
    import torch

    from cocos.engine import devices

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    facts = {"processors": os.cpu_count(), "usable": usable}
    facts |= {"pytorch": torch.get_num_threads(), "engine": devices.workers()}
    attention = []
    if facts["pytorch"] > usable:
        attention.append(
            f"PyTorch runs {facts['pytorch']} threads on {usable} usable processors: set OMP_NUM_THREADS={usable}"
        )
    return Section("threads", facts, tuple(attention))


def accelerators() -> Section:
    """Devices that PyTorch finds."""
    import torch

    cuda = [torch.cuda.get_device_name(place) for place in range(torch.cuda.device_count())]
    facts = {"cuda": cuda, "cuda_version": torch.version.cuda, "mps": torch.backends.mps.is_available()}
    attention = []
    if shutil.which("nvidia-smi") and not torch.cuda.is_available():
        built = f"is built for CUDA {torch.version.cuda}" if torch.version.cuda else "is built without CUDA"
        attention.append(
            f"this machine has an NVIDIA driver, but PyTorch {torch.__version__} {built} and finds no GPU: install a "
            "build for the driver's version of CUDA"
        )
    return Section("devices", facts, tuple(attention))


def product() -> Section:
    """The device, the arithmetic and the code of large batches, and the speed of matrix products there."""
    import torch

    from cocos.checkpoints import encoders
    from cocos.engine import devices, fused

    device = encoders.device_of("auto")
    code = "PyTorch" if devices.ahead(device) else fused.kernel_name()
    speed = {str(each).removeprefix("torch."): _gflops(device, each) for each in (torch.float32, torch.float64)}
    facts = {"device": str(device), "large_batches": "float32", "code": code}
    return Section("product", facts | {f"gflops_{name}": value for name, value in speed.items()})


def _gflops(device, dtype) -> float:
    """Billions of operations per second of a square product: 2 n^3 operations in the shortest time of several."""
    import torch

    from cocos.engine import devices

    one = torch.ones(MATRIX_ROWS, MATRIX_ROWS, device=device, dtype=dtype)
    times = []
    with devices.threads(), devices.rounding():
        for _ in range(PRODUCTS_TIMED):
            begun = time.perf_counter()
            (one @ one)[0, 0].item()  # waits for the device
            times.append(time.perf_counter() - begun)
    return round(2 * MATRIX_ROWS**3 / min(times) / 1e9, 1)


def memory() -> Section:
    """Memory of the host and of the GPUs, in bytes."""
    import torch

    from cocos.engine import devices

    facts = {"host_bytes": devices.memory(torch.device("cpu")), "available_bytes": None}
    about = Path("/proc/meminfo")
    lines = about.read_text("utf-8").splitlines() if about.is_file() else []
    for line in lines:
        if line.startswith("MemAvailable:"):
            facts["available_bytes"] = int(line.split()[1]) * 1024
    for place in range(torch.cuda.device_count()):
        facts[f"cuda:{place}_bytes"] = devices.memory(torch.device("cuda", place))
    return Section("memory", facts)


def sections() -> list[Section]:
    """All sections; those that need PyTorch only if it can be imported."""
    every: list[Callable[[], Section]] = [package, versions, optional, environment, stdout]
    if importlib.util.find_spec("torch") is not None:
        every[2:2] = [kernel, threads, accelerators, product, memory]
    return [each() for each in every]


def _shown(name: str, value) -> str:
    """A fact as text."""
    if name.endswith("_bytes") and value is not None:
        return f"{value / 2**30:.1f} GiB"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) or "none" if isinstance(value, list) else str(value if value is not None else "none")


def _table(sections: list[Section], attention: list[str]) -> "Table":
    """All facts, and below them what needs attention."""
    from cocos.base.layout import Table

    rows = tuple(
        (
            f"{part.title}: {name if name.isupper() else name.removesuffix('_bytes').replace('_', ' ')}",
            _shown(name, value),
        )
        for part in sections
        for name, value in part.facts.items()
    )
    notes = [f"attention: {sentence}" for sentence in attention]
    return Table(("", ""), rows, notes=tuple(notes or ["all is well"]), left=True)


@command("The installation", 1)
def doctor():
    """Examine the installation: versions, the compiled kernel, threads, devices, speed; 1 if it needs attention."""
    found = sections()
    attention = [sentence for part in found for sentence in part.attention]
    return Answer(
        text=lambda: _table(found, attention),
        document=lambda: {"ok": not attention, "attention": attention} | {part.title: part.facts for part in found},
        code=int(bool(attention)),
    )
