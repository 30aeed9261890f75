"""Calls of PyTorch that compare every row of one matrix with every row of another."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from string import ascii_letters as LETTERS
from typing import Any

from torch import Tensor
from torch.nn import Parameter
from torch.utils.weak import WeakIdKeyDictionary

from cocos.monitor._graph import LINEAR, shape_of, turns

# Functions of two (., width) and (., width, ...) operands, by the name under which a function mode sees them.
MULTIPLIED = ("matmul", "mm", "__matmul__", "__rmatmul__")
# Functions of all pairs laid out as (rows, columns, width): those that keep the shape, and those that end it.
BROADCAST = ("sub", "__sub__", "mul", "__mul__", "rsub", "__rsub__", "subtract", "multiply")
# Functions of each row of one matrix with the same row of another.
ROW_BY_ROW = ("cosine_similarity", "pairwise_distance", "vecdot", "linalg_vecdot")
# Equations of each row of one matrix with its own of another, or of three axes, up to the names of the letters.
OWN_EINSUMS = ("ab,ab->a", "ab,acb->ac", "ab,abc->ac", "abc,ac->ab", "abc,ab->ac")
JOINING = ("cat", "concat", "concatenate", "hstack")
KEEPING = ("pow", "square", "abs", "__pow__")
REDUCED = ("sum", "mean", "norm", "linalg_norm", "linalg_vector_norm", "var", "std")
# Number of nodes above an operand that are searched for the one parameter, or the argument, that it is made of.
NEAR = 40
# Operand of a product whose rows are those of the product.
ROWS_OF = {"MmBackward0": slice(0, 1), "AddmmBackward0": slice(1, 2)}


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
        own: first and last + 1 of the columns in which each row is compared with candidates of its own.
        still: the side that needs no gradient while the other one does: `rows`, `columns`, or neither.
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
    own: tuple[tuple[int, int], ...] = ()
    still: str = ""

    def __post_init__(self) -> None:
        self.version = self.scores._version

    def freeze(self) -> None:
        """Leave the graph, with the scores as the function returned them."""
        if self.scores._version != self.version:
            self.scores = self.again()
        self.node = self.base = self.again = None


@dataclass(eq=False)
class PairScores:
    """Scores of row i of one matrix with row i of another, as a loss has them that computes its positives apart.

    Args:
        node: of the graph, whose gradient is that of the scores, (n,), or of the products of their entries, (n, D).
        rows: (n, D), detached.
        columns: (n, D), detached.
        values: (n,) scores, detached; None: the products of the rows and the columns.
    """

    node: Any
    rows: Tensor
    columns: Tensor
    values: Tensor | None = None


def without_gradient(rows: Tensor, columns: Tensor) -> str:
    """The side of a comparison that needs no gradient while the other one does; no word where there is none."""
    first, second = _is_still(rows), _is_still(columns)
    return "" if first == second else "rows" if first else "columns"


def _is_still(operand: Tensor) -> bool:
    """Whether an operand needs no gradient, or none but that of numbers like a scale."""
    if not operand.requires_grad:
        return True
    leaves, whole = _leaves(operand, numbers=True)
    return whole and bool(leaves) and all(each.numel() == 1 for each in leaves)


def _leaves(operand: Tensor, ends: Collection[Any] = (), *, numbers: bool = False) -> tuple[set[Tensor], bool]:
    """The tensors that an operand is computed from, as far as they need a gradient, and whether they are all.

    Args:
        operand: of a product.
        ends: nodes behind which the search stops: then they are not all.
        numbers: whether it stops at a tensor of several numbers.
    """
    waiting: list[Any] = [operand.grad_fn] if operand.grad_fn is not None else []
    known, leaves = set(waiting), {operand} if operand.requires_grad and operand.grad_fn is None else set()
    while waiting and len(known) < NEAR:
        node = waiting.pop()
        if node in ends:
            return leaves, False
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            leaves.add(leaf)
            if numbers and leaf.numel() > 1:
                return leaves, False
        above = {each for each, _ in getattr(node, "next_functions", ()) if each is not None} - known
        known |= above
        waiting += above
    return leaves, not waiting


def _is_parameter(operand: Tensor, ends: set[Any]) -> bool:
    """Whether an operand is a parameter, turned or normalised, and does not depend on an argument of the loss."""
    if isinstance(operand, Parameter):
        return True
    leaves, whole = _leaves(operand, ends)
    shapes = {tuple(operand.shape), tuple(operand.shape)[::-1]}
    return (
        whole
        and len(leaves) == 1
        and all(isinstance(each, Parameter) and tuple(each.shape) in shapes for each in leaves)
    )


def _head(rows: Tensor, columns: Tensor, ends: set[Any]) -> str:
    first, second = _is_parameter(rows, ends), _is_parameter(columns, ends)
    return "" if first == second else "rows" if first else "columns"


class Products:
    """The products of one forward pass, in the order of their computation.

    Args:
        arguments: tensors that the loss was given; products between the columns of matrices compare no rows.
    """

    def __init__(self, arguments: Sequence[Tensor] = ()):
        self.found: list[Product] = []
        self.apart: list[Product] = []  # the candidates of each query are its own
        self.joined: list[tuple[Any, Tensor]] = []  # node and values of concatenated matrices
        self.pairs: list[PairScores] = []
        self.across: list[Any] = []  # nodes of products of columns with columns
        self._own: set[Any] = set()  # nodes of products of each row with candidates of its own
        self._given = [each for each in arguments if each.ndim == 2 and each.is_floating_point()]
        self._ends = {each.grad_fn for each in self._given if each.grad_fn is not None}
        self._shapes = {tuple(each.shape) for each in self._given}
        self._number = 0
        self._spread = WeakIdKeyDictionary()
        self._beside = WeakIdKeyDictionary()

    def see(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Keep a call of PyTorch if it returned the scores of all pairs, or of each row with its own."""
        name = getattr(func, "__name__", "")
        if not isinstance(out, Tensor) or not out.is_floating_point():
            return
        if out.ndim == 3:
            self._see_spread(name, args, kwargs, out)
            self._see_apart(name, args, out)
        if not out.requires_grad or out.grad_fn is None:
            return
        self._see_pairs(name, args, out)
        if out.ndim != 2:
            return
        if name in JOINING:
            self.joined.append((out.grad_fn, out.detach()))
        pair = self._pair(name, args, kwargs)
        if pair is None:
            return
        rows, columns, sign = pair
        if (len(rows), len(columns)) != tuple(out.shape) or rows.shape[1] != columns.shape[1]:
            return
        if self._are_columns(rows, columns):
            self.across.append(out.grad_fn)
            return
        self._number += 1
        self.found.append(
            Product(
                out.grad_fn,
                out.detach(),
                rows.detach(),
                columns.detach(),
                sign,
                _head(rows, columns, self._ends),
                partial(func, *(_apart(each) for each in args), **{key: _apart(each) for key, each in kwargs.items()}),
                out._base.grad_fn if out._is_view() and out._base is not None else None,
                self._number,
                still=without_gradient(rows, columns),
            )
        )

    def _are_columns(self, rows: Tensor, columns: Tensor) -> bool:
        """Whether the sides of a product are columns of the arguments, so that it sums over the batch."""
        turned = {(rows.shape[1], len(rows)), (columns.shape[1], len(columns))}
        straight = {tuple(rows.shape), tuple(columns.shape)}
        if turned <= self._shapes and tuple(rows.shape) not in self._shapes:
            return True
        if straight <= self._shapes and not turned & self._shapes:
            return False
        ways = {self._turns(rows), self._turns(columns)}
        return True in ways and False not in ways

    def _turns(self, operand: Tensor) -> bool | None:
        """Whether the rows of an operand are columns of an argument, by the graph between them; None: unknown."""
        if operand.grad_fn is None:
            same = [each for each in self._given if each.data_ptr() == operand.data_ptr()]
            found = {each.stride() != operand.stride() for each in same if {*each.shape} == {*operand.shape}}
            return found.pop() if len(found) == 1 else None
        waiting: list[tuple[Any, bool]] = [(operand.grad_fn, False)]
        known, found = {operand.grad_fn}, set()
        while waiting and len(known) < NEAR:
            node, turned = waiting.pop()
            leaf = getattr(node, "variable", None)
            if node in self._ends or any(leaf is each for each in self._given):
                found.add(turned)
                continue
            if len(shape_of(node)) != 2:
                continue
            above = node.next_functions[ROWS_OF[node.name()]] if node.name() in ROWS_OF else node.next_functions
            nodes = {each for each, _ in above if each is not None} - known
            known |= nodes
            waiting += [(each, turned ^ turns(node)) for each in nodes]
        return found.pop() if len(found) == 1 else None

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

    def _see_pairs(self, name: str, args: tuple[Any, ...], out: Tensor) -> None:
        """Keep comparisons of each row with its own: scores of pairs, and those with own candidates."""
        if name == "einsum":
            equation, given = _equation(args)
            if equation in OWN_EINSUMS:
                self._own.add(out.grad_fn)
            if equation in OWN_EINSUMS[:1]:
                self._keep_pairs(out, given[0], given[1], out.detach())
            return
        operands = [each for each in args if isinstance(each, Tensor)]
        if not operands:
            return
        first, second = operands[0], operands[-1]
        alike = len(operands) == 2 and first.ndim == 2 and first.shape == second.shape
        if first in self._beside and name in KEEPING:
            self._beside[out] = self._beside[first]
        elif first in self._beside and name in REDUCED and out.numel() == len(first):
            one, other = self._beside[first]
            self._keep_pairs(out, one, other, out.detach())
        elif alike and name in BROADCAST:
            if "mul" in name:
                self._keep_pairs(out, first, second, None)
            else:
                self._beside[out] = (first, second)
        elif alike and name in ROW_BY_ROW and out.ndim == 1:
            self._keep_pairs(out, first, second, out.detach())
        elif (
            len(operands) == 2 and out.ndim == first.ndim == second.ndim == 3 and len(first) == len(second) == len(out)
        ):
            if name in {*MULTIPLIED, "bmm"} and 1 in out.shape[1:]:  # (Q, 1, D) x (Q, D, C), or turned
                self._own.add(out.grad_fn)
                if out.shape[1:] == (1, 1):
                    self._keep_pairs(out, first[:, 0], second[:, :, 0], out.detach())
            elif name in BROADCAST and "mul" in name and 1 in {first.shape[1], second.shape[1]}:
                self._own.add(out.grad_fn)  # (Q, 1, D) and (Q, C, D)

    def _keep_pairs(self, out: Tensor, rows: Tensor, columns: Tensor, values: Tensor | None) -> None:
        if values is None or values.numel() == len(rows):
            self._own.add(out.grad_fn)
            values = None if values is None else values.reshape(-1)
            self.pairs.append(PairScores(out.grad_fn, rows.detach(), columns.detach(), values))

    def join(self, node: Any, parts: list[Product]) -> Product | None:
        """The wider matrix that products enter beside something else, like the score of each row's own positive."""
        values = next((values for each, values in self.joined if each is node), None)
        if values is None or len({len(each.rows) for each in parts}) > 1 or len(parts[0].rows) != len(values):
            return None
        unknown, own, start = values.new_empty(values.shape[1], 0), [], 0
        for each, _ in node.next_functions:
            width = shape_of(each)[1] if each is not None and len(shape_of(each)) == 2 else 0
            own += [(start, start + width)] if self._is_own(each) else []
            start += width
        known = tuple(own) if start == values.shape[1] else ()
        first, make = parts[0], values.clone
        return Product(
            node, values, first.rows, unknown, first.sign, "", make, node, first.order, own=known, still=first.still
        )

    def _is_own(self, node: Any) -> bool:
        """Whether what a node computed are scores of each row with candidates of its own, up to factors and offsets."""
        for _ in range(NEAR):
            if node is None or node in self._own:
                return node is not None
            above = [each for each, _ in node.next_functions if each is not None and len(shape_of(each)) > 1]
            if len(above) != 1 or not node.name().startswith((*LINEAR, "Sum")):
                return False
            node = above[0]
        return False

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


def _equation(args: tuple[Any, ...]) -> tuple[str, tuple[Tensor, ...]]:
    """The equation of a call of `einsum`, its letters a, b, c, ... in their order, and its operands."""
    equation, operands = args[0], args[1:]
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    if not isinstance(equation, str) or not all(isinstance(each, Tensor) for each in operands):
        return "", ()
    given, _, asked = equation.replace(" ", "").partition("->")
    asked = asked if "->" in equation else "".join(sorted(each for each in given if given.count(each) == 1))
    letters: dict[str, str] = {}
    named = (
        each if each in ",.->" else letters.setdefault(each, LETTERS[len(letters)]) for each in f"{given}->{asked}"
    )
    return "".join(named), operands


def _einsum(args: tuple[Any, ...]) -> tuple[Tensor, Tensor, int] | None:
    """Rows and columns of an equation like `nd,md->nm`."""
    equation, operands = _equation(args)
    given, _, asked = equation.partition("->")
    labels = given.split(",")
    shared = set(labels[0]) & set(labels[-1])
    if len(operands) != len(labels) or [len(set(each)) for each in labels] != [2, 2] or len(shared) != 1:
        return None
    sides = [op if each[1] in shared else op.T for each, op in zip(labels, operands, strict=True)]
    names = [each.replace(next(iter(shared)), "") for each in labels]
    if asked not in {"".join(names), "".join(names[::-1])}:
        return None
    first, second = sides if asked == "".join(names) else sides[::-1]
    return first, second, 1


def _apart(value: Any) -> Any:
    """An argument without its graph."""
    if isinstance(value, list | tuple):
        return type(value)(_apart(each) for each in value)
    return value.detach() if isinstance(value, Tensor) else value
