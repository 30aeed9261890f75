"""A device that is not there: its tensors name it, compute on the host, and every wait for it is noted.

A tensor of `DEVICE` is a wrapper around a tensor of the host. What a graphics card refuses is refused: operands on two
devices, the address or the numpy array of a tensor. What makes the host wait for a card is noted with the line of cocos
that asked for it: a number, a list as long as it happens to be, a copy to the host, a copy from it that is waited for.

Sources: PyTorch's Python backend for PrivateUse1 (torch/utils/backend_registration.py) gives the device its name and
its factories; a wrapper subclass gives its tensors their strides. What waits follows `warn_or_error_on_sync` in
PyTorch's aten/src/ATen/native/cuda (torch.cuda.set_sync_debug_mode).
"""

import contextlib
import dataclasses
import functools
import sys
import threading
from collections.abc import Generator, Sequence
from types import FrameType, ModuleType

import torch
from torch import Tensor
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import cocos

__all__ = ["DEVICE", "Wait", "moved", "waits"]

NAME = "pretended"
HOUSE = cocos.__file__.removesuffix("__init__.py")
# Operations whose result is a number on the host, or as long as the data happen to be.
WAITING = frozenset(
    "_local_scalar_dense bincount equal masked_select nonzero unique_consecutive unique_dim _unique2".split()
)
COPIES = frozenset(("_copy_from", "_to_copy", "copy_"))
# What PyTorch would carry out by changing the shape of a tensor in place: factories that make an empty tensor longer,
# and quantiles.
GROWING = ("arange", "arange.start", "arange.start_step", "eye", "eye.m", "linspace", "randperm", "randperm.generator")
QUANTILES = tuple(f"{name}{kind}" for name in ("quantile", "nanquantile") for kind in ("", ".scalar"))
INDEXING = frozenset("index index_put index_put_ _index_put_impl_ _unsafe_index _unsafe_index_put".split())


@dataclasses.dataclass(frozen=True)
class Wait:
    """One wait of the host.

    Args:
        operation: of PyTorch.
        upload: it is a copy to the device that is waited for.
        place: innermost line of the package: file, line, function.
        within: functions of the package that are being run, the innermost first.
    """

    operation: str
    upload: bool
    place: str
    within: tuple[str, ...]


_watchers: list[list[Wait]] = []
_change = threading.Lock()


def _frames() -> Generator[FrameType]:
    """Frames of the package, the innermost first."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.startswith(HOUSE):
            yield frame
        frame = frame.f_back


def _place() -> str:
    """The innermost line of the package that is being run: file, line, function."""
    for frame in _frames():
        return f"{frame.f_code.co_filename.removeprefix(HOUSE)}:{frame.f_lineno} {frame.f_code.co_name}"
    return "outside of cocos"


def _note(operation: str, *, upload: bool = False) -> None:
    if _watchers:
        wait = Wait(operation, upload, _place(), tuple(frame.f_code.co_name for frame in _frames()))
        with _change:
            for each in _watchers:
                each.append(wait)


@contextlib.contextmanager
def waits() -> Generator[list[Wait]]:
    """Collect the waits of the block, of all of its threads."""
    noted: list[Wait] = []
    with _change:
        _watchers.append(noted)
    try:
        yield noted
    finally:
        with _change:
            _watchers[:] = [each for each in _watchers if each is not noted]


class _Pretended(Tensor):
    """A tensor that says it is on `DEVICE`."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, host: Tensor):
        """Wrap a tensor of the host."""
        layout = {"strides": host.stride(), "storage_offset": host.storage_offset(), "dtype": host.dtype}
        with torch.inference_mode(False):  # PyTorch counts the versions of a wrapper
            made = Tensor._make_wrapper_subclass(cls, host.shape, device=DEVICE, **layout)
        made.host = host
        return made

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):  # noqa: PLW3201
        """Compute on the host."""
        return _computed(operation, *args, **(kwargs or {}))

    def tolist(self):
        """PyTorch refuses this of subclasses."""
        return self.cpu().tolist()

    def numpy(self, **_):
        """Refuse, as for any tensor that is not on the host."""
        raise TypeError(f"can't convert {NAME}:0 device type tensor to numpy")

    def data_ptr(self):
        """Refuse: nothing of cocos can do anything with an address on a device."""
        raise RuntimeError(f"the address of a tensor on {NAME}:0 is asked for at {_place()}")

    def __repr__(self, **_):
        """The values, without a wait."""
        return f"{NAME}({self.host})"


def _masked_fill(name: str, args: tuple) -> bool:
    """Whether `x[mask] = number` is carried out without counting the mask."""
    given = [each for each in args[1] if each is not None]
    return "put" in name and args[2].numel() == 1 and all(each.dtype == torch.bool for each in given)


def _checked(name: str, args: tuple, kwargs: dict, tensors: list[Tensor], written: Sequence = ()) -> None:
    """Refuse mixed devices; note what makes the host wait."""
    here = [each for each in tensors if not isinstance(each, _Pretended)]
    there = len(tensors) - len(here)
    if name in COPIES:
        target = torch.device(kwargs.get("device") or tensors[0].device) if name == "_to_copy" else args[0].device
        target = args[1].device if name == "_copy_from" else target
        source = args[1].device if name == "copy_" else args[0].device
        waited = not kwargs.get("non_blocking", False) and not (name == "copy_" and len(args) > 2 and args[2])
        if target != source and (waited or target.type == "cpu"):
            _note(name, upload=target.type != "cpu")
        return
    if name in INDEXING and isinstance(args[0], _Pretended):
        given = [each for each in args[1] if each is not None]
        if any(not isinstance(each, _Pretended) for each in given):
            _note(name, upload=True)
        if any(each.dtype in (torch.bool, torch.uint8) for each in given) and not _masked_fill(name, args):
            _note(name)
        here = [each for each in here if all(each is not index for index in given)]
    if there and any(each.ndim for each in here):
        raise RuntimeError(f"Expected all tensors to be on the same device, found {NAME} and cpu: {name}, {_place()}")
    if there and any(isinstance(each, Tensor) and not isinstance(each, _Pretended) for each in written):
        raise RuntimeError(f"{name} would write to a tensor of the host what is on {NAME}: {_place()}")
    if name in WAITING or name.startswith(("linalg_", "_linalg_")) and "norm" not in name:
        _note(name)
    if name == "repeat_interleave" and kwargs.get("output_size") is None:
        _note(name)


def _mapped(change, value):
    """Arguments, or results, with each leaf changed: `torch.utils._pytree.tree_map` in a tenth of the time."""
    if isinstance(value, list | tuple):
        return type(value)([_mapped(change, each) for each in value])
    return change(value)


@functools.cache
def _written(operation) -> tuple[tuple[int, str], ...]:
    """Place and name of the arguments that an operation writes to."""
    arguments = enumerate(operation._schema.arguments)
    return tuple((place, each.name) for place, each in arguments if each.alias_info and each.alias_info.is_write)


def _computed(operation, *args, **kwargs):
    """Carry out an operation on the tensors that are wrapped."""
    name, tensors = operation._schema.name.removeprefix("aten::"), []

    def bare(value):
        if isinstance(value, Tensor):
            tensors.append(value)
            return value.host if isinstance(value, _Pretended) else value
        return torch.device("cpu") if isinstance(value, torch.device) else value

    host, named = _mapped(bare, args), {key: _mapped(bare, value) for key, value in kwargs.items()}
    into = [args[place] if place < len(args) else kwargs.get(key) for place, key in _written(operation)]
    _checked(name, args, kwargs, tensors, into)
    if kwargs.get("generator") is not None:
        raise RuntimeError(f"Expected a '{NAME}' device type for generator but found 'cpu': {name}, {_place()}")
    result = operation(*host, **named)
    known = {id(each.host): each for each in tensors if isinstance(each, _Pretended)}
    if any(each.shape != each.host.shape for each in known.values()):
        raise NotImplementedError(f"{name} changes the shape of a tensor in place: {_place()}")
    if name == "_local_scalar_dense" or (kwargs.get("device") and torch.device(kwargs["device"]).type == "cpu"):
        return result

    def wrapped(value):
        if not isinstance(value, Tensor):
            return value
        return known[id(value)] if id(value) in known else _Pretended(value)

    return _mapped(wrapped, result)


def _copied(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """Copy where PyTorch has switched dispatch to Python off, as in `torch.tensor(values, device=...)`."""
    _checked("_copy_from", (source, target), {"non_blocking": non_blocking}, [source, target])
    into, of = (each.host if isinstance(each, _Pretended) else each for each in (target, source))
    into.copy_(of)
    return target


def _device() -> tuple[torch.device, list[torch.library.Library]]:
    """Register the device, once for the process; a library undoes its part when it is deleted."""
    module = ModuleType(f"torch.{NAME}")
    module.is_available, module.device_count, module.current_device = lambda: True, lambda: 1, lambda: 0
    module.mem_get_info = lambda device: (2**30, 2**31)
    module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    module._is_in_bad_fork, module.manual_seed_all = lambda: False, lambda seed: None
    # Random numbers of the device come from the generator of the host, so that both draw the same.
    module.device, module.manual_seed = contextlib.nullcontext, torch.default_generator.manual_seed
    module.get_rng_state = lambda device: torch.default_generator.get_state()
    module.set_rng_state = lambda state, device: torch.default_generator.set_state(state)
    _setup_privateuseone_for_python_backend(NAME, module)
    every, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    every.fallback(_computed, "PrivateUse1")
    aten.impl("_copy_from", _copied, "PrivateUse1")
    for name in (*GROWING, *QUANTILES):
        packet, _, overload = name.partition(".")
        operation = getattr(getattr(torch.ops.aten, packet), overload or "default")
        aten.impl(name, functools.partial(_computed, operation), "PrivateUse1")
    return torch.device(NAME, 0), [every, aten]


DEVICE, _LIBRARIES = _device()


def moved(embeddings: cocos.Embeddings) -> cocos.Embeddings:
    """The same embeddings on the pretended device; groups follow the rows."""
    variance = embeddings.candidate_variance
    there = {} if variance is None else {"candidate_variance": variance.to(DEVICE)}
    sides = embeddings.query.to(DEVICE), embeddings.candidate.to(DEVICE)
    return dataclasses.replace(embeddings, query=sides[0], candidate=sides[1], **there)
