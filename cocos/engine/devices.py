"""Capabilities of devices, asked for by purpose: the only file of the engine that knows a device by its name."""

import functools
import os
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from cocos.base import machine

# Factor of the numbers of scores that are read at once on a GPU: few large operations are faster than many small ones.
GPU_FACTOR = 8
# Number of threads that PyTorch had before `threads` reduced it; 0 outside of `threads`.
_asked: ContextVar[int] = ContextVar("asked", default=0)


def ahead(device: torch.device) -> bool:
    """Whether the device runs asynchronously, so that the host must wait for a number or the length of a list."""
    return device.type != "cpu"


def at_once(number: int, device: torch.device) -> int:
    """Number of scores that are read at once on a device, given that on a CPU."""
    return number * GPU_FACTOR if ahead(device) else number


def memory(device: torch.device) -> int | None:
    """Memory of a device, or of the host for a CPU, in bytes; None if unknown."""
    if ahead(device):
        asked = getattr(torch.get_device_module(device), "mem_get_info", None)
        return None if asked is None else asked(device)[1]
    return machine.memory()


def workers() -> int:
    """Number of threads that visit parts: PyTorch's setting, at most one per processor."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(_asked.get() or torch.get_num_threads(), processors))


@functools.cache
def _reuse_memory() -> None:
    """Make glibc reuse the memory of freed tensors: fresh pages took up to half of the time of a count.

    Freeing a block raises the size from which glibc returns blocks to the system at once, up to 32 MiB
    (`M_MMAP_THRESHOLD`, mallopt(3)). The block is never written, so that it takes no memory.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


@contextmanager
def threads(number: int | None = None) -> Generator[None]:
    """Run PyTorch on this many threads (default `workers()`): idle threads of its pool spin and occupy processors.

    On a busy machine, sequences of small operations therefore run slower on two threads than on one.
    """
    _reuse_memory()
    before, token = torch.get_num_threads(), _asked.set(workers())
    torch.set_num_threads(number or workers())
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _asked.reset(token)


@contextmanager
def rounding() -> Generator[None]:
    """Round the factors of float32 products as the bounds assume, whatever the process has set.

    `torch.set_float32_matmul_precision("medium")` makes a CPU with AMX multiply in bfloat16, and "high" a GPU in TF32.
    """
    products: list[Any] = [getattr(library, "matmul", None) for library in (torch.backends.cuda, torch.backends.mkldnn)]
    switches = [product for product in products if hasattr(product, "fp32_precision")]
    if not switches:  # before PyTorch 2.9 one setting serves every backend
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
        return
    precisions = [switch.fp32_precision for switch in switches]
    for switch in switches:
        switch.fp32_precision = "ieee"
    try:
        yield
    finally:
        for switch, precision in zip(switches, precisions, strict=True):
            switch.fp32_precision = precision
