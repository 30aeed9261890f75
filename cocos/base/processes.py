"""Share one run among several processes: which process takes which batch, how results are merged, and who prints.

`torchrun --nproc-per-node N -m cocos count FILE` starts N processes, the ranks 0 to N - 1. Each encodes or loads the
data itself, draws the same batches from the same seed, and counts every N-th batch from its rank on. Results of batches
are exchanged unchanged and put back into the order of the batches, never summed, so every number equals that of a
single process, bit for bit.

Only a process that calls `join` shares its work. A training script that torchrun started may count on one rank, or
something else on each rank: without `join` a process is alone, and no process waits for another.
"""

import io
import os
import pickle
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from cocos.base.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor  # `cocos --help` stays free of torch

# Time limit until all processes have started.
MEETING = timedelta(minutes=5)
# Time limit for the slowest process at a meeting point; a process that ends is noticed at once.
WAITING = timedelta(hours=1)
# Seconds within which the launcher terminates the remaining processes after one has failed.
LINGER = 5.0
# Number of rows of a tensor that are compared between processes.
ROWS_COMPARED = 8


@dataclass(frozen=True)
class World:
    """Rank of this process, and number of processes."""

    rank: int
    size: int


# The last entry is the current place of this process.
_seats = [World(0, 1)]


def _whole_number(name: str, low: int, high: int) -> int:
    """Read an environment variable as a whole number."""
    text = os.environ.get(name)
    if text is None or not text.isdecimal() or not low <= int(text) <= high:
        there = "missing" if text is None else repr(text)
        raise InputError(
            f"environment: {name} is {there}, expected a whole number from {low} to {high}; "
            "start all processes with torchrun, or unset RANK and WORLD_SIZE to count in one"
        )
    return int(text)


def environment() -> World:
    """The place that torchrun gives to this process; World(0, 1) if torchrun did not start it."""
    if "RANK" not in os.environ and "WORLD_SIZE" not in os.environ:
        return World(0, 1)
    size = _whole_number("WORLD_SIZE", 1, 2**31 - 1)
    rank = _whole_number("RANK", 0, size - 1)
    if size > 1:
        _whole_number("MASTER_PORT", 1, 2**16 - 1)
        if not os.environ.get("MASTER_ADDR"):
            raise InputError("environment: MASTER_ADDR is missing, expected the host of rank 0, as torchrun sets it")
    return World(rank, size)


def launched() -> World:
    """The place that torchrun gives to this process, whether it joins or not; World(0, 1) if that is invalid."""
    try:
        return environment()
    except InputError:
        return World(0, 1)


def _own_gpu(device: str | None) -> int | None:
    """Number of the GPU of this process; None on a CPU."""
    import torch

    if device is not None and device.startswith("cuda:"):
        raise InputError(f"device: {device!r}, but each process takes a GPU of its own; write cuda")
    if device not in {None, "auto", "cuda"} or not torch.cuda.is_available():
        return None
    there, place = torch.cuda.device_count(), _whole_number("LOCAL_RANK", 0, 2**31 - 1)
    if place >= there:
        raise InputError(
            f"device: {device or 'auto'!r}, but process {place + 1} of this machine finds {there} GPUs; "
            "start as many processes as there are GPUs, or take --device cpu"
        )
    return place


def join(device: str | None = None) -> World:
    """Share the work of this process with the others that torchrun started; a single process stays alone.

    On GPUs the processes communicate through NCCL, and `cuda` means the GPU of the process's local rank from then on;
    on a CPU they communicate through gloo.

    Args:
        device: of the work: `auto` (None), `cpu` or `cuda`.
    """
    here = environment()
    if here.size == 1 or world().size > 1:
        return world()
    import torch
    import torch.distributed as dist

    gpu = _own_gpu(device)
    if gpu is not None:
        torch.cuda.set_device(gpu)
    try:
        store, _, _ = next(dist.rendezvous("env://", timeout=MEETING))
        dist.init_process_group(
            "gloo" if gpu is None else "nccl",
            store=store,
            rank=here.rank,
            world_size=here.size,
            timeout=WAITING,
            device_id=None if gpu is None else torch.device("cuda", gpu),
        )
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"{here.size} processes should meet at {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']} and did not "
            f"({_first_line(error)}); start all of them with torchrun, or unset RANK and WORLD_SIZE to count in one"
        ) from None
    _seats.append(here)
    return here


@contextmanager
def apart() -> Generator[None]:
    """Work alone for a while: what is counted within is not shared with the other processes."""
    _seats.append(World(0, 1))
    try:
        yield
    finally:
        _seats.pop()


def close() -> None:
    """Leave the group; this process is alone again."""
    if world().size > 1:
        import torch.distributed as dist

        dist.destroy_process_group()
        _seats.pop()


def world() -> World:
    """Place of this process among those that share their work; World(0, 1) until it joins them."""
    return _seats[-1]


def first() -> bool:
    """Whether this process prints and writes."""
    return world().rank == 0


def memory() -> int | None:
    """Memory of this machine in bytes; None if unknown."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else None


def mine(items: Sequence) -> list:
    """Select the share of this process, possibly empty: every size-th item from its rank on. Shares are disjoint."""
    here = world()
    return list(items[here.rank :: here.size])


class _Packer(pickle.Pickler):
    """Pickle tensors as arrays, which carry neither the rest of their storage nor a device."""

    def persistent_id(self, value):
        """Return the array of a tensor."""
        import torch

        return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else None


class _Unpacker(pickle.Unpickler):
    """Restore the tensors of `_Packer` on a device."""

    def __init__(self, packed: bytes, device):
        super().__init__(io.BytesIO(packed))
        self._device = device

    def persistent_load(self, array):
        """Return the tensor of an array."""
        import torch

        return torch.from_numpy(array).to(self._device)


def gather(value, device="cpu") -> list:
    """Gather the value of every process, in order of rank, in every process; all processes must call this.

    Args:
        value: anything that can be pickled; its tensors are returned bit for bit.
        device: of the returned tensors.
    """
    here = world()
    if here.size == 1:
        return [value]
    import torch.distributed as dist

    packed, found = io.BytesIO(), [None] * here.size
    _Packer(packed, pickle.HIGHEST_PROTOCOL).dump(value)
    try:
        dist.all_gather_object(found, packed.getvalue())
    except RuntimeError as error:
        time.sleep(LINGER)  # the failed process has reported why, and the launcher is about to end this one
        raise InputError(
            f"another of the {here.size} processes ended without its part ({_first_line(error)})"
        ) from None
    return [_Unpacker(each, device).load() for each in found]


def collect(parts: list, device="cpu") -> list:
    """Merge the results of all processes, in the order of the items that `mine` distributed, in every process."""
    if world().size == 1:
        return parts
    shares = gather(parts, device)
    return [shares[i % len(shares)][i // len(shares)] for i in range(sum(map(len, shares)))]


def alike(what: str, *tensors: "Tensor") -> None:
    """Refuse inputs that differ between processes: shapes and a few rows are compared.

    The last bits may differ between machines, so the tolerance is a thousandth of the largest entry of the rows.
    """
    if world().size == 1:
        return
    seen = gather([(tuple(each.shape), each[:: max(1, len(each) // ROWS_COMPARED)]) for each in tensors])
    for rank, other in enumerate(seen):
        for (shape, rows), (expected, ours) in zip(other, seen[0], strict=True):
            if shape != expected or not (rows - ours).abs().max() <= 1e-3 * ours.abs().max():
                raise InputError(
                    f"{what} of ranks 0 and {rank} differ: each process encodes for itself and must get the same; "
                    "seed what is random in the model and its data, or count in one process"
                )


def turn() -> str:
    """Wait for this process's turn to report why it fails, and return the start of its sentence.

    Rank 0 reports at once and ends, and the launcher then terminates the others, so an error that all ranks share is
    reported once. A rank that still runs after that has found an error of its own.
    """
    rank = launched().rank
    if not rank:
        return ""
    time.sleep(LINGER)
    return f"rank {rank}: "


def _first_line(error: Exception) -> str:
    """Return the first line of a message, without the source location at its start."""
    return str(error).partition("\n")[0].rpartition("] ")[2].rstrip(".") or type(error).__name__
