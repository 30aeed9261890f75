"""A simulated device: its tensors wrap tensors of the host, and operations that mix both devices are errors.

PyTorch's Python backend for PrivateUse1 (torch/utils/backend_registration.py) gives the device its name and its
factories; a wrapper subclass gives its tensors their strides. Addresses and NumPy arrays of its tensors are errors too.
"""

import contextlib
import functools
from types import ModuleType

import torch
from torch import Tensor
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "simulated"
# Factories that PyTorch carries out by growing a tensor in place, and quantiles.
GROWING = ("arange", "arange.start", "arange.start_step", "eye", "eye.m", "linspace", "randperm", "randperm.generator")
QUANTILES = tuple(f"{name}{kind}" for name in ("quantile", "nanquantile") for kind in ("", ".scalar"))
COPIES = ("_copy_from", "_to_copy", "copy_")
# Operations that take indices of the host.
INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put")


class DeviceTensor(Tensor):
    """A tensor of `DEVICE`."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, host: Tensor):
        layout = {"strides": host.stride(), "storage_offset": host.storage_offset(), "dtype": host.dtype}
        with torch.inference_mode(False):  # PyTorch counts the versions of a wrapper
            tensor = Tensor._make_wrapper_subclass(cls, host.shape, device=DEVICE, **layout)
        tensor.host = host
        return tensor

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):  # noqa: PLW3201
        return compute(operation, *args, **(kwargs or {}))

    def tolist(self):
        return self.cpu().tolist()

    def numpy(self, **_):
        raise TypeError(f"can't convert {NAME}:0 device type tensor to numpy")

    def data_ptr(self):
        raise RuntimeError(f"address of a tensor on {NAME}:0")


def map_leaves(change, value):
    if isinstance(value, list | tuple):
        return type(value)([map_leaves(change, item) for item in value])
    return change(value)


def check_devices(name, args, tensors):
    """Raise where an operation of the device reads a tensor of the host that is not a number or an index."""
    hosts = [tensor for tensor in tensors if not isinstance(tensor, DeviceTensor)]
    if name in COPIES or len(hosts) == len(tensors):
        return
    if name in INDEXING and isinstance(args[0], DeviceTensor):
        indices = [index for index in args[1] if index is not None]
        hosts = [tensor for tensor in hosts if all(tensor is not index for index in indices)]
    if any(tensor.ndim for tensor in hosts):
        raise RuntimeError(f"Expected all tensors to be on the same device, found {NAME} and cpu: {name}")


def compute(operation, *args, **kwargs):
    """Carry out an operation on the wrapped tensors."""
    name, tensors = operation._schema.name.removeprefix("aten::"), []

    def unwrap(value):
        if isinstance(value, Tensor):
            tensors.append(value)
            return value.host if isinstance(value, DeviceTensor) else value
        return torch.device("cpu") if isinstance(value, torch.device) else value

    host_args = map_leaves(unwrap, args)
    host_kwargs = {key: map_leaves(unwrap, value) for key, value in kwargs.items()}
    check_devices(name, args, tensors)
    if kwargs.get("generator") is not None:
        raise RuntimeError(f"Expected a '{NAME}' device type for generator but found 'cpu': {name}")
    result = operation(*host_args, **host_kwargs)
    wrappers = {id(tensor.host): tensor for tensor in tensors if isinstance(tensor, DeviceTensor)}
    if name == "_local_scalar_dense" or (kwargs.get("device") and torch.device(kwargs["device"]).type == "cpu"):
        return result

    def wrap_tensor(value):
        if not isinstance(value, Tensor):
            return value
        return wrappers[id(value)] if id(value) in wrappers else DeviceTensor(value)

    return map_leaves(wrap_tensor, result)


def copy(source, target, non_blocking=False):
    """Copy where PyTorch has switched dispatch to Python off, as in `torch.tensor(values, device=...)`."""
    hosts = [tensor.host if isinstance(tensor, DeviceTensor) else tensor for tensor in (source, target)]
    hosts[1].copy_(hosts[0])
    return target


def register():
    """Register the device, once for the process; a library undoes its part when it is deleted."""
    module = ModuleType(f"torch.{NAME}")
    # Not available, so that nothing in the process chooses it, such as DataParallel or `--device auto`.
    module.is_available, module.device_count, module.current_device = lambda: False, lambda: 1, lambda: 0
    module.mem_get_info = lambda device: (2**30, 2**31)
    module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    module._is_in_bad_fork, module.manual_seed_all = lambda: False, lambda seed: None
    module.device, module.manual_seed = contextlib.nullcontext, torch.default_generator.manual_seed
    _setup_privateuseone_for_python_backend(NAME, module)
    fallback, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    fallback.fallback(compute, "PrivateUse1")
    aten.impl("_copy_from", copy, "PrivateUse1")
    for name in (*GROWING, *QUANTILES):
        packet, _, overload = name.partition(".")
        operation = getattr(getattr(torch.ops.aten, packet), overload or "default")
        aten.impl(name, functools.partial(compute, operation), "PrivateUse1")
    return torch.device(NAME, 0), [fallback, aten]


DEVICE, LIBRARIES = register()
