"""Capabilities of a device, asked for by what they are: the only file of the engine that knows a device by its name."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

__all__ = ["ahead", "memory", "rounding", "threads", "tile", "workers"]

# Rows and columns of a float32 tile. 4 MiB stay in the second-level cache of a core and its share of the third.
CACHED = (1024, 1024)
# 32 MiB stay in the second-level cache of a GPU of a data centre, beside the rows that are multiplied: it has 40 MB on
# an A100, 50 MB on an H100 (NVIDIA Hopper Architecture In-Depth, developer.nvidia.com, 2022).
LARGE = (2048, 4096)
# Threads that PyTorch was told to use, inside of `threads`; 0 outside of it.
_asked: ContextVar[int] = ContextVar("asked", default=0)


def ahead(device: torch.device) -> bool:
    """Whether the host goes on while the device works, and so must wait for a number, or for the length of a list."""
    return device.type != "cpu"


def tile(device: torch.device) -> tuple[int, int]:
    """Rows and columns of a tile that stays in the cache of the device."""
    return LARGE if ahead(device) else CACHED


def memory(device: torch.device) -> int | None:
    """Bytes of memory of a device, or of the host where the device uses it; None where nobody says."""
    if ahead(device):
        asked = getattr(torch.get_device_module(device), "mem_get_info", None)
        return None if asked is None else asked(device)[1]
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else None


def workers() -> int:
    """Threads that see parts: as many as PyTorch was told to use, at most one a processor."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(_asked.get() or torch.get_num_threads(), there))


@contextmanager
def threads(number: int | None = None) -> Generator[None]:
    """Run PyTorch with this many threads, or with `workers()`. Its idle threads keep spinning and take up processors.

    On a busy machine many small operations then take longer with two threads than with one.
    """
    before, token = torch.get_num_threads(), _asked.set(workers())
    torch.set_num_threads(number or workers())
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _asked.reset(token)


@contextmanager
def rounding(*, tf32: bool = False) -> Generator[None]:
    """Round the factors of float32 products as the bounds say, whatever the process has set.

    `torch.set_float32_matmul_precision("medium")` makes a CPU with AMX multiply in bfloat16, and "high" a GPU in TF32.

    Args:
        tf32: products may round their factors to TF32; if not, to nothing.
    """
    switches = [each.matmul for each in (torch.backends.cuda, torch.backends.mkldnn) if _switch(each)]
    if not switches:  # before PyTorch 2.9 one setting serves every backend
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
        return
    kept = [each.fp32_precision for each in switches]
    for each, wanted in zip(switches, ("tf32" if tf32 else "ieee", "ieee"), strict=True):
        each.fp32_precision = wanted
    try:
        yield
    finally:
        for each, value in zip(switches, kept, strict=True):
            each.fp32_precision = value


def _switch(backend) -> bool:
    return hasattr(getattr(backend, "matmul", None), "fp32_precision")
