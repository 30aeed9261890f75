"""Stand-ins for the numpy objects that training scripts leave in checkpoints; they check what the file says.

numpy's own `__setstate__` trusts its pickle: a crafted dtype makes it read bytes of the file as pointers.
"""

import re

import numpy as np

__all__ = ["NUMPY_STAND_INS", "Array"]

NUMBER_DTYPE = re.compile(r"[?bhilqBHILQefdgFD]|[biufc]\d{1,2}")
TEXT_DTYPE = re.compile(r"U[1-9]\d{0,4}")
MAX_PICKLED_ARRAY = 2**31  # bytes of one array in a pickle


class Dtype:
    """A numpy dtype of plain numbers or text."""

    def __init__(self, code="", align=False, copy=False):
        if not isinstance(code, str) or not (NUMBER_DTYPE.fullmatch(code) or TEXT_DTYPE.fullmatch(code)):
            raise ValueError(f"an array of Python objects or records (dtype {code!r})")
        self.dtype = np.dtype(code)

    def __setstate__(self, state):
        order, fields = state[1], state[2:5]
        if order not in {"<", ">", "=", "|"} or any(part is not None for part in fields):
            raise ValueError("an array of records")
        self.dtype = self.dtype.newbyteorder(order)


class Array:
    """A numpy array whose bytes fit its shape and dtype; `value` holds it.

    Attributes:
        value: the array, None until its state was read.
    """

    def __init__(self, *arguments):
        self.value = None

    def __setstate__(self, state):
        _, shape, kind, fortran, raw = state
        if not isinstance(kind, Dtype) or not isinstance(raw, bytes):
            raise ValueError("an array of Python objects")
        if len(raw) != kind.dtype.itemsize * int(np.prod(shape, dtype=object)) or len(raw) > MAX_PICKLED_ARRAY:
            raise ValueError(f"an array of shape {shape} with {len(raw)} bytes")
        self.value = np.frombuffer(raw, kind.dtype).reshape(shape, order="F" if fortran else "C").copy()


def scalar(kind, raw):
    """Convert a numpy scalar to a Python number or text.

    Raises:
        ValueError: its bytes do not fit its dtype.
    """
    if not isinstance(kind, Dtype) or not isinstance(raw, bytes) or len(raw) != kind.dtype.itemsize:
        raise ValueError("a scalar that is no number")
    return np.frombuffer(raw, kind.dtype)[0].item()


NUMPY_STAND_INS = {
    "numpy.dtype": Dtype,
    "numpy.ndarray": Array,
    **{f"{home}.multiarray.scalar": scalar for home in ("numpy.core", "numpy._core")},
    **{f"{home}.multiarray._reconstruct": Array for home in ("numpy.core", "numpy._core")},
}
