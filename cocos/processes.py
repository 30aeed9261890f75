"""One run in several processes: who takes which batch, how the parts come together, and who speaks.

`torchrun --nproc-per-node N -m cocos count FILE` starts N processes, the ranks 0 to N - 1. Each encodes or loads for
itself, draws the same batches from the same seed, and counts those at its places. Records travel as they are and are
put back into the order of the batches, so every number is that of one process, bit for bit; nothing is summed on the
way.

Only a process that asks to `join` shares its work. A training script that torchrun started may count on one rank, or on
each rank something else: without `join` it is alone, and nothing waits for anyone.
"""

import io
import os
import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from cocos.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor  # `cocos --help` stays free of torch

__all__ = [
    "World",
    "alike",
    "close",
    "collect",
    "environment",
    "first",
    "gather",
    "join",
    "launched",
    "mine",
    "turn",
    "world",
]

MEETING = timedelta(minutes=5)  # until all processes have started
WAITING = timedelta(hours=1)  # at a meeting point, for the slowest; one that ends is noticed at once
LINGER = 5.0  # seconds in which the launcher ends the others once one has failed
ROWS = 8  # of a tensor that are compared


@dataclass(frozen=True)
class World:
    """Which of the processes this one is, and how many there are."""

    rank: int
    size: int


_seats = [World(0, 1)]  # the last one is this process's


def _number(name: str, low: int, high: int) -> int:
    """A whole number of the environment.

    Raises:
        InputError: it is not there, or no whole number from `low` to `high`.
    """
    text = os.environ.get(name)
    if text is None or not text.isdecimal() or not low <= int(text) <= high:
        there = "missing" if text is None else repr(text)
        raise InputError(
            f"environment: {name} is {there}, expected a whole number from {low} to {high}; "
            "start all processes with torchrun, or unset RANK and WORLD_SIZE to count in one"
        )
    return int(text)


def environment() -> World:
    """What torchrun says of this process; World(0, 1) where it did not start it.

    Raises:
        InputError: a part is missing or wrong.
    """
    if "RANK" not in os.environ and "WORLD_SIZE" not in os.environ:
        return World(0, 1)
    size = _number("WORLD_SIZE", 1, 2**31 - 1)
    rank = _number("RANK", 0, size - 1)
    if size > 1:
        _number("MASTER_PORT", 1, 2**16 - 1)
        if not os.environ.get("MASTER_ADDR"):
            raise InputError("environment: MASTER_ADDR is missing, expected the host of rank 0, as torchrun sets it")
    return World(rank, size)


def launched() -> World:
    """What torchrun says of this process, whether it joins or not; World(0, 1) where that makes no sense."""
    try:
        return environment()
    except InputError:
        return World(0, 1)


def _own_gpu(device: str | None) -> int | None:
    """Number of the GPU that this process takes; None: the work is on a CPU.

    Raises:
        InputError: a GPU for all processes, or fewer GPUs than processes.
    """
    import torch

    if device is not None and device.startswith("cuda:"):
        raise InputError(f"device: {device!r}, but each process takes a GPU of its own; write cuda")
    if device not in {None, "auto", "cuda"} or not torch.cuda.is_available():
        return None
    there, place = torch.cuda.device_count(), _number("LOCAL_RANK", 0, 2**31 - 1)
    if place >= there:
        raise InputError(
            f"device: {device or 'auto'!r}, but process {place + 1} of this machine finds {there} GPUs; "
            "start as many processes as there are GPUs, or take --device cpu"
        )
    return place


def join(device: str | None = None) -> World:
    """Share the work of this process with the others that torchrun started; alone, nothing happens.

    On GPUs the processes talk through NCCL, and `cuda` means the GPU of the process's own number from here on; on a CPU
    they talk through gloo.

    Args:
        device: of the work: `auto` (None), `cpu` or `cuda`.

    Raises:
        InputError: an environment that is not whole, a device that cannot be shared, or processes that do not come.
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
            f"({_line(error)}); start all of them with torchrun, or unset RANK and WORLD_SIZE to count in one"
        ) from None
    _seats.append(here)
    return here


def close() -> None:
    """Leave the others; this process is alone again."""
    if world().size > 1:
        import torch.distributed as dist

        dist.destroy_process_group()
        _seats.pop()


def world() -> World:
    """Which of the processes that share their work this one is; World(0, 1) until it joins them."""
    return _seats[-1]


def first() -> bool:
    """This process is the one that prints and writes."""
    return world().rank == 0


def mine(items: Sequence) -> list:
    """This process's share: every size-th item from its rank on. There may be none; none is in two shares."""
    here = world()
    return list(items[here.rank :: here.size])


class _Packer(pickle.Pickler):
    """Tensors travel as arrays: one holds no more than what it shows, and names no device."""

    def persistent_id(self, value):
        """The array of a tensor."""
        import torch

        return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else None


class _Unpacker(pickle.Unpickler):
    """The tensors of `_Packer`, on a device."""

    def __init__(self, packed: bytes, device):
        super().__init__(io.BytesIO(packed))
        self._device = device

    def persistent_load(self, array):
        """The tensor of an array."""
        import torch

        return torch.from_numpy(array).to(self._device)


def gather(value, device="cpu") -> list:
    """The value of every process, in the order of the ranks, in every process; all of them must come here.

    Args:
        value: anything that can be pickled; its tensors come back bit for bit.
        device: of the tensors that come back.

    Raises:
        InputError: another process has ended, or did not come.
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
        time.sleep(LINGER)  # the one that failed has said why, and the launcher is about to end this one
        raise InputError(f"another of the {here.size} processes ended without its part ({_line(error)})") from None
    return [_Unpacker(each, device).load() for each in found]


def collect(parts: list, device="cpu") -> list:
    """The results of all processes in the order of the items that `mine` shared out, in every process.

    Args:
        parts: one entry for each item of this process's share, in its order.
        device: of tensors.

    Raises:
        InputError: another process has ended, or did not come.
    """
    if world().size == 1:
        return parts
    shares = gather(parts, device)
    return [shares[i % len(shares)][i // len(shares)] for i in range(sum(map(len, shares)))]


def alike(what: str, *tensors: "Tensor") -> None:
    """Refuse to go on with inputs that are not the same in every process: shapes and a few rows are compared.

    Hardware may differ in the last bits, so rows are held to a thousandth of their largest entry.

    Args:
        what: they are, for the message.
        tensors: that every process should have.

    Raises:
        InputError: they differ.
    """
    if world().size == 1:
        return
    seen = gather([(tuple(each.shape), each[:: max(1, len(each) // ROWS)]) for each in tensors])
    for rank, other in enumerate(seen):
        for (shape, rows), (expected, ours) in zip(other, seen[0], strict=True):
            if shape != expected or not (rows - ours).abs().max() <= 1e-3 * ours.abs().max():
                raise InputError(
                    f"{what} of ranks 0 and {rank} differ: each process encodes for itself and must get the same; "
                    "seed what is random in the model and its data, or count in one process"
                )


def turn() -> str:
    """Wait for this process's turn to say why it fails; gives what its sentence begins with.

    Rank 0 speaks at once and ends, and then the launcher ends the others: what all ranks find alike is said once. One
    that is still there has found a fault of its own.
    """
    rank = launched().rank
    if not rank:
        return ""
    time.sleep(LINGER)
    return f"rank {rank}: "


def _line(error: Exception) -> str:
    """First line of a message, without the place in the code that it begins with."""
    return str(error).partition("\n")[0].rpartition("] ")[2].rstrip(".") or type(error).__name__
