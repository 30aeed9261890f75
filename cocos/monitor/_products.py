"""Calls of PyTorch that compare every row of one matrix with every row of another."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn import Parameter
from torch.utils.weak import WeakIdKeyDictionary

# Functions of two (., width) and (., width, ...) operands, by the name under which a function mode sees them.
MULTIPLIED = ("matmul", "mm", "__matmul__", "__rmatmul__")
# Functions of all pairs laid out as (rows, columns, width): those that keep the shape, and those that end it.
BROADCAST = ("sub", "__sub__", "mul", "__mul__", "rsub", "__rsub__", "subtract", "multiply")
JOINING = ("cat", "concat", "concatenate", "hstack")
KEEPING = ("pow", "square", "abs", "__pow__")
REDUCED = ("sum", "mean", "norm", "linalg_vector_norm", "var", "std")
# Number of nodes above an operand that are searched for the one parameter that it is made of.
NEAR = 40


@dataclass(eq=False)
class Product:
    """A matrix of all pairs as a function of PyTorch returned it.

    Args:
        node: of the graph, whose gradient is that of the scores.
        scores: (Q, C), detached; larger is closer where `sign` is 1.
        rows: (Q, D), detached.
        columns: (C, D), detached.
        sign: -1 for distances.
        head: the side that is a parameter, of class vectors or a layer: `rows`, `columns`, or neither.
        again: computes the scores anew, where the loss changes them in place.
        base: node of the tensor that the scores are a view of; it replaces theirs when they are changed in place.
        order: number of the product in its forward pass.
        given: the loss was given the scores, and others may read them as well.
    """

    node: Any
    scores: Tensor
    rows: Tensor
    columns: Tensor
    sign: int
    head: str
    again: Any
    base: Any = None
    order: int = 0
    given: bool = False

    def __post_init__(self) -> None:
        self.version = self.scores._version

    def freeze(self) -> None:
        """Leave the graph, with the scores as the function returned them."""
        if self.scores._version != self.version:
            self.scores = self.again()
        self.node = self.base = self.again = None


def _is_parameter(operand: Tensor) -> bool:
    """Whether an operand is a parameter, turned or normalised."""
    if isinstance(operand, Parameter):
        return True
    waiting: list[Any] = [operand.grad_fn]
    known, leaves = set(waiting), set()
    while waiting and len(known) < NEAR:
        node = waiting.pop()
        leaves |= {node.variable} if hasattr(node, "variable") else set()
        above = {each for each, _ in getattr(node, "next_functions", ()) if each is not None} - known
        known |= above
        waiting += above
    shapes = {tuple(operand.shape), tuple(operand.shape)[::-1]}
    return (
        not waiting
        and len(leaves) == 1
        and all(isinstance(each, Parameter) and tuple(each.shape) in shapes for each in leaves)
    )


def _head(rows: Tensor, columns: Tensor) -> str:
    first, second = _is_parameter(rows), _is_parameter(columns)
    return "" if first == second else "rows" if first else "columns"


class Products:
    """The products of one forward pass, in the order of their computation.

    Args:
        shapes: of the matrices among the arguments; products between their columns compare no rows.
    """

    def __init__(self, shapes: Iterable[tuple[int, ...]] = ()):
        self.found: list[Product] = []
        self.apart: list[Product] = []  # the candidates of each query are its own
        self.joined: list[tuple[Any, Tensor]] = []  # node and values of concatenated matrices
        self._shapes = set(shapes)
        self._number = 0
        self._spread = WeakIdKeyDictionary()

    def see(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Keep a call of PyTorch if it returned the scores of all pairs."""
        name = getattr(func, "__name__", "")
        if not isinstance(out, Tensor) or not out.is_floating_point():
            return
        if out.ndim == 3:
            self._see_spread(name, args, kwargs, out)
            self._see_apart(name, args, out)
        if out.ndim != 2 or not out.requires_grad or out.grad_fn is None:
            return
        if name in JOINING:
            self.joined.append((out.grad_fn, out.detach()))
        pair = self._pair(name, args, kwargs)
        if pair is None:
            return
        rows, columns, sign = pair
        if (len(rows), len(columns)) != tuple(out.shape) or rows.shape[1] != columns.shape[1]:
            return
        turned = {(rows.shape[1], len(rows)), (columns.shape[1], len(columns))}
        if turned <= self._shapes and tuple(rows.shape) not in self._shapes:
            return
        self._number += 1
        self.found.append(
            Product(
                out.grad_fn,
                out.detach(),
                rows.detach(),
                columns.detach(),
                sign,
                _head(rows, columns),
                partial(func, *(_apart(each) for each in args), **{key: _apart(each) for key, each in kwargs.items()}),
                out._base.grad_fn if out._is_view() and out._base is not None else None,
                self._number,
            )
        )

    def _pair(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor, int] | None:
        """Rows, columns, and the sign of a comparison; None for any other call."""
        operands = [each for each in args if isinstance(each, Tensor)]
        flat = len(operands) >= 2 and all(each.ndim == 2 for each in operands[:2])
        if name in MULTIPLIED and flat:
            first, second = operands[:2] if name != "__rmatmul__" else operands[1::-1]
            return first, second.T, 1
        if name in {"linear", "inner"} and flat:
            return operands[0], operands[1], 1
        if name == "addmm" and len(operands) == 3 and operands[1].ndim == operands[2].ndim == 2:
            return operands[1], operands[2].T, 1
        if name == "cdist" and flat:
            return operands[0], operands[1], -1
        if name == "einsum":
            return _einsum(args)
        if name in {"cosine_similarity", "pairwise_distance"} and len(operands) == 2:
            sides = _sides(*operands)
            return (*sides, 1 if name == "cosine_similarity" else -1) if sides else None
        if name in REDUCED and operands and operands[0] in self._spread and _is_last(args, kwargs):
            spread: tuple[Tensor, Tensor, int] = self._spread[operands[0]]
            return spread
        return None

    def _see_apart(self, name: str, args: tuple[Any, ...], out: Tensor) -> None:
        """Keep products (Q, 1, D) x (Q, D, C)."""
        operands = [each for each in args if isinstance(each, Tensor)]
        if name not in {*MULTIPLIED, "bmm"} or len(operands) != 2 or out.shape[1] != 1 or out.grad_fn is None:
            return
        rows, values = operands[0].detach(), out.detach()[:, 0]
        if rows.ndim == 3 and values.shape[1] > 1:
            unknown = values.new_empty(values.shape[1], 0)
            self.apart.append(Product(out.grad_fn, values, rows[:, 0], unknown, 1, "", values.clone))

    def join(self, node: Any, parts: list[Product]) -> Product | None:
        """The wider matrix that products enter beside something else, like the score of each row's own positive."""
        values = next((values for each, values in self.joined if each is node), None)
        if values is None or len({len(each.rows) for each in parts}) > 1 or len(parts[0].rows) != len(values):
            return None
        unknown = values.new_empty(values.shape[1], 0)
        return Product(node, values, parts[0].rows, unknown, parts[0].sign, "", values.clone, node, parts[0].order)

    def _see_spread(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> None:
        operands = [each for each in args if isinstance(each, Tensor)]
        if name in BROADCAST and len(operands) == 2:
            known = [self._spread[each] for each in operands if each in self._spread]
            sides = _sides(*operands)
            if known:
                self._spread[out] = known[0]
            elif sides:
                self._spread[out] = (*sides, 1 if "mul" in name else -1)
        elif name in KEEPING and operands and operands[0] in self._spread:
            self._spread[out] = self._spread[operands[0]]


def _is_last(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a reduction is along the last of three axes."""
    given = [kwargs[name] for name in ("dim", "axis") if name in kwargs]
    given += [each for each in args[1:] if isinstance(each, int | tuple | list) and not isinstance(each, bool)]
    return any(each in (2, -1, (2,), (-1,), [2], [-1]) for each in given)


def _sides(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor] | None:
    """Rows and columns of operands (Q, 1, D) and (1, C, D), or (C, D), in either order."""

    def rows(operand: Tensor) -> Tensor | None:
        return operand[:, 0] if operand.ndim == 3 and operand.shape[1] == 1 else None

    def columns(operand: Tensor) -> Tensor | None:
        return operand if operand.ndim == 2 else operand[0] if operand.ndim == 3 and operand.shape[0] == 1 else None

    for one, two in ((rows(first), columns(second)), (rows(second), columns(first))):
        if one is not None and two is not None:
            return one, two
    return None


def _einsum(args: tuple[Any, ...]) -> tuple[Tensor, Tensor, int] | None:
    """Rows and columns of an equation like `nd,md->nm`."""
    equation, operands = args[0], args[1:]
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    if not isinstance(equation, str) or len(operands) != 2 or not all(isinstance(each, Tensor) for each in operands):
        return None
    given, _, asked = equation.replace(" ", "").partition("->")
    labels = given.split(",")
    shared = set(labels[0]) & set(labels[-1])
    if len(labels) != 2 or [len(set(each)) for each in labels] != [2, 2] or len(shared) != 1:
        return None
    sides = [op if each[1] in shared else op.T for each, op in zip(labels, operands, strict=True)]
    names = [each.replace(next(iter(shared)), "") for each in labels]
    asked = asked or "".join(sorted(names))
    if asked not in {"".join(names), "".join(names[::-1])}:
        return None
    first, second = sides if asked == "".join(names) else sides[::-1]
    return first, second, 1


def _apart(value: Any) -> Any:
    """An argument without its graph."""
    if isinstance(value, list | tuple):
        return type(value)(_apart(each) for each in value)
    return value.detach() if isinstance(value, Tensor) else value
