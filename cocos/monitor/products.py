"""Comparisons of rows in a forward pass, and how the loss reads their scores, by the graph between them."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from string import ascii_letters as LETTERS
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils.weak import WeakIdKeyDictionary

Node = Any
Edge = tuple[Node, int]

# Maximum number of nodes between a loss and its scores; what lies farther away is not read.
NODES = 20_000
# Nodes that make a softmax, a sigmoid or a hinge of scores; the first kind with a node is that of the loss.
KINDS = {
    "softmax": ("LogSoftmaxBackward0", "SoftmaxBackward0", "LogsumexpBackward0"),
    "sigmoid": (
        "LogSigmoidBackward0",
        "SoftplusBackward0",
        "BinaryCrossEntropyWithLogitsBackward0",
        "SigmoidBackward0",
    ),
    "hinge": ("ReluBackward0", "ClampBackward1", "ClampMinBackward0", "ClampMinBackward1", "HardtanhBackward0"),
}
# Nodes that read a matrix along the axes that they have saved.
BY_AXIS = ("LogSoftmax", "Softmax", "Logsumexp", "Max", "Min", "Amax", "Amin", "Sum", "Mean", "Sort", "Topk", "Cumsum")
TRANSPOSING = ("TBackward0", "TransposeBackward0", "PermuteBackward0")
# Nodes after which entries have lost the place that they had in the matrix.
MISPLACING = (
    "IndexBackward",
    "IndexSelect",
    "Select",
    "Diagonal",
    "Gather",
    "MaskedSelect",
    "Take",
    "Stack",
    "CatBackward0",
)
# Nodes that change the place of entries.
MOVING = ("Index", "Select", "Slice", "View", "UnsafeView", "Unsqueeze", "Squeeze", "Expand", "Diagonal", "Gather")
# Nodes that leave entries as they are, but for a factor, an offset, or their place.
ENTRYWISE = ("Mul", "Div", "Neg", "Add", "Sub", "Rsub", "ToCopy", "Clone", "Alias", "MaskedFill", "Where", "AsStrided")
LINEAR = (*ENTRYWISE, *MOVING, "Cat", "TBackward", "Permute", "Transpose", "Reshape", "torch::autograd::CopySlices")
# Parts of the names of functions that receive rows from other processes, and how many nodes are searched for them.
RECEIVED, NEAR_NODES = ("gather", "exchange", "scatter", "reduce"), 8
ALONG_ROWS, ALONG_COLUMNS = "rows", "columns"
OTHER_AXIS = {ALONG_ROWS: ALONG_COLUMNS, ALONG_COLUMNS: ALONG_ROWS, "both": "both"}
# Functions of two (., width) and (., width, ...) operands, by the name under which a function mode sees them.
MULTIPLIED = ("matmul", "mm", "__matmul__", "__rmatmul__")
# Functions of all pairs laid out as (rows, columns, width): those that keep the shape, and those that end it.
BROADCAST = ("sub", "__sub__", "mul", "__mul__", "rsub", "__rsub__", "subtract", "multiply")
# Functions of each row of one matrix with the same row of another.
ROW_BY_ROW = ("cosine_similarity", "pairwise_distance", "vecdot", "linalg_vecdot")
# Equations of each row of one matrix with its own of another, or of three axes, up to the names of the letters.
OWN_EINSUMS = ("ab,ab->a", "ab,acb->ac", "ab,abc->ac", "abc,ac->ab", "abc,ab->ac")
JOINING = ("cat", "concat", "concatenate", "hstack")
SHAPE_KEEPING = ("pow", "square", "abs", "__pow__")
REDUCED = ("sum", "mean", "norm", "linalg_norm", "linalg_vector_norm", "var", "std")
# All functions that are looked at.
SEEN = {*MULTIPLIED, "linear", "inner", "addmm", "bmm", "cdist", "einsum"}
SEEN |= {*BROADCAST, *ROW_BY_ROW, *JOINING, *SHAPE_KEEPING, *REDUCED}
# Number of nodes above an operand that are searched for the one parameter, or the argument, that it is made of.
NEAR = 40
# Operand of a product whose rows are those of the product.
ROWS_OF = {"MmBackward0": slice(0, 1), "AddmmBackward0": slice(1, 2)}
# Number of nodes between given scores and the product that they come from.
NEAR_PRODUCT = 8


def shape_of(node: Node) -> tuple[int, ...]:
    """Shape of what a node computed, without a leading axis of 1 that a product in batches has."""
    about = getattr(node, "_input_metadata", None)
    shape = tuple(about[0].shape) if about else ()
    return shape[1:] if len(shape) == 3 and shape[0] == 1 else shape


def received(node: Node) -> bool:
    """Whether rows of other processes were received shortly before."""
    waiting, known = [node], {node}
    while waiting and len(known) < NEAR_NODES:
        each = waiting.pop(0)
        if each is None:
            continue
        if any(word in each.name().lower() for word in RECEIVED):
            return True
        above = {above for above, _ in each.next_functions} - known
        known |= above
        waiting += above
    return False


def _axes(node: Node) -> set[int]:
    """List the axes of a matrix along which a node reduces, 0 and 1."""
    dims = getattr(node, "_saved_dim", ())
    dims = dims if isinstance(dims, tuple | list) else (dims,)
    return {(int(each) - 2**64 if each >= 2**63 else int(each)) % 2 for each in dims}


def transposes(node: Node) -> bool:
    """Whether a node transposes a matrix; a transposed view that was changed in place shows by its strides."""
    strides: tuple[int, ...] = getattr(node, "_saved_stride", ()) if node.name() == "AsStridedBackward0" else ()
    return node.name() in TRANSPOSING or (len(strides) == 2 and strides[0] < strides[1])


def _number(node: Node) -> float | None:
    """Find the one number by which a node multiplies or divides."""
    for name in ("_saved_other", "_saved_self"):
        value = getattr(node, name, None)
        if isinstance(value, Tensor) and value.numel() == 1:
            return float(value.detach())
        if isinstance(value, int | float):
            return float(value)
    return None


@dataclass(frozen=True, eq=False)
class Join:
    """The place of a matrix in a wider one that the loss reads as a whole."""

    token: object  # the same for all parts
    index: int  # place among the parts
    target: Tensor | None  # (Q,) columns of the positives in the wider matrix


class Graph:
    """The part of a graph between tensors and the products on which they depend.

    Args:
        roots: nodes of the loss.
        products: nodes at which it ends.
        ends: further nodes at which it ends, those of the arguments of the loss.
    """

    def __init__(self, roots: Iterable[Node], products: Iterable[Node], ends: Iterable[Node] = ()):
        self.uses: dict[Node, list[Edge]] = {}
        products, waiting = set(products), deque(roots)
        known, last = set(waiting), products | set(ends)
        while waiting and len(known) < NODES:
            node = waiting.popleft()
            for index, (child, _) in enumerate(() if node in last else node.next_functions):
                if child is None:
                    continue
                self.uses.setdefault(child, []).append((node, index))
                if child not in known:
                    known.add(child)
                    waiting.append(child)
        self.reached = products & known
        self._derived = {each for product in self.reached for each in self.above(product)}

    def has(self, node: Node) -> bool:
        """Whether the loss depends on what a node computed, and not only through a product."""
        return node in self.uses

    def above(self, node: Node) -> set[Node]:
        """List every node between this one and the loss."""
        found, waiting = {node}, [node]
        while waiting:
            users = {user for user, _ in self.uses.get(waiting.pop(), ())} - found
            found |= users
            waiting += users
        return found - {node}

    def kind(self, node: Node) -> str | None:
        """Name the kind of function that makes the loss of the scores of a product."""
        names = {each.name() for each in self.above(node)}
        if {"ExpBackward0", "LogBackward0"} <= names:
            return "softmax"
        return next((kind for kind, makers in KINDS.items() if names & set(makers)), None)

    def reads(self, edge: Edge) -> frozenset[str]:
        """Whether a use of a matrix reads its rows, its columns, both, or neither."""
        return self._reads(edge[0], {})

    def _reads(self, node: Node, known: dict[Node, frozenset[str]]) -> frozenset[str]:
        if node in known:
            return known[node]
        known[node] = frozenset()
        name = node.name()
        if name.startswith(BY_AXIS) and hasattr(node, "_saved_dim"):
            found = frozenset(ALONG_ROWS if axis == 1 else ALONG_COLUMNS for axis in _axes(node))
        elif name == "CatBackward0" and len(shape_of(node)) == 2:
            found = frozenset({ALONG_ROWS}) if _axes(node) == {1} else self._read_by_users(node, known)
        elif name.startswith(MISPLACING) or len(shape_of(node)) not in {0, 2}:
            found = frozenset()
        else:
            found = self._subtracted_along(node) or self._read_by_users(node, known)
            found = frozenset(OTHER_AXIS[each] for each in found) if transposes(node) else found
        known[node] = found
        return found

    def _read_by_users(self, node: Node, known: dict[Node, frozenset[str]]) -> frozenset[str]:
        return frozenset().union(*(self._reads(user, known) for user, _ in self.uses.get(node, ())))

    def _subtracted_along(self, node: Node) -> frozenset[str]:
        """Find the axis along which one number of the scores per row, or column, is subtracted from a matrix."""
        if not node.name().startswith(("Sub", "Add", "Rsub")):
            return frozenset()
        rows, columns = shape_of(node) if len(shape_of(node)) == 2 else (0, 0)
        for given, _ in node.next_functions:
            expanded = given is not None and given.name() == "ExpandBackward0"
            child = given.next_functions[0][0] if expanded else given
            if child is None or child not in self._derived:
                continue
            shape = shape_of(child)
            if shape == (rows, 1) and columns > 1:
                return frozenset({ALONG_ROWS})
            if shape in {(1, columns), (columns,)} and rows > 1:
                return frozenset({ALONG_COLUMNS})
        return frozenset()

    def branch(self, node: Node) -> tuple[Node, bool]:
        """Find the last matrix from which both axes of a product are read, and whether it is transposed."""
        transposed = False
        while len(edges := self.uses.get(node, [])) == 1:
            user = edges[0][0]
            if len(self.reads(edges[0])) < 2 or user.name().startswith(MISPLACING) or self._subtracted_along(user):
                break
            node, transposed = user, transposed ^ transposes(user)
        return node, transposed

    def target(self, node: Node, transposed: bool) -> Tensor | None:
        """Find the columns of the positives, (Q,), of a cross-entropy of the matrix of a node, transposed or not."""
        while True:
            transposed ^= transposes(node)
            users = [user for user, _ in self.uses.get(node, ())]
            found = [user for user in users if user.name() == "NllLossBackward0"]
            if found:
                return None if transposed else found[0]._saved_target
            if len(users) != 1 or users[0].name().startswith(MISPLACING):
                return None
            node = users[0]

    def factor(self, node: Node) -> float | None:
        """Product of the numbers by which scores are multiplied on all ways to the loss; None: it is not one number."""
        found = self._factors(node, {})
        return next(iter(found)) if len(found) == 1 else None

    def _factors(self, node: Node, known: dict[Node, frozenset[float]]) -> frozenset[float]:
        """Factors from what a node computed to what is no product with a number."""
        if node not in known:
            known[node] = frozenset()
            ways = [self._step(user, known) for user, _ in self.uses.get(node, ())]
            known[node] = frozenset().union(*ways) or frozenset({1.0})
        return known[node]

    def _step(self, node: Node, known: dict[Node, frozenset[float]]) -> frozenset[float]:
        name = node.name().removeprefix("torch::autograd::")
        if name.startswith(("MulBackward", "DivBackward")):
            number = _number(node)
            if number is None or number == 0:
                return self._factors(node, known)
            number = abs(number if name.startswith("Mul") else 1 / number)
            return frozenset(float(f"{number * each:.6g}") for each in self._factors(node, known))
        if name.startswith("CopySlices"):
            return frozenset({0.0, 1.0})
        return self._factors(node, known) if name.startswith(LINEAR) else frozenset({1.0})

    def entered(self) -> dict[Node, dict[Node, tuple[int, bool]]]:
        """Concatenations along the columns, with the products that enter them."""
        found: dict[Node, dict[Node, tuple[int, bool]]] = {}
        for product in self.reached:
            for join, place in self._joins(product).items():
                found.setdefault(join, {})[product] = place
        return found

    def mixed(self) -> dict[Node, list[Node]]:
        """Concatenations of products, whose entries kept their places, with something else."""
        found = {}
        for join, parts in self.entered().items():
            others = {each for each, _ in join.next_functions if each is not None} - self._derived - self.reached
            if others and all(kept for _, kept in parts.values()):
                found[join] = list(parts)
        return found

    def joins(self) -> dict[Node, Join]:
        """Products whose matrices are concatenated along the columns with those of other products."""
        found: dict[Node, Join] = {}
        for join, parts in self.entered().items():
            if len(parts) > 1 and not parts.keys() & found.keys():
                kept = all(each for _, each in parts.values())
                token, target = object(), self.target(join, False) if kept else None
                found |= {product: Join(token, index, target) for product, (index, _) in parts.items()}
        return found

    def _joins(self, node: Node) -> dict[Node, tuple[int, bool]]:
        """Concatenations along the columns that a matrix enters, with its place, and whether entries kept theirs."""
        found: dict[Node, tuple[int, bool]] = {}
        waiting, known = [(node, True)], {node}
        while waiting:
            at, kept = waiting.pop()
            for user, index in self.uses.get(at, ()):
                name, axes = user.name(), len(shape_of(user))
                if name == "CatBackward0":
                    if axes == 2 and _axes(user) == {1}:
                        found.setdefault(user, (index, kept))
                elif user not in known and name.startswith(LINEAR) and axes in {1, 2}:
                    known.add(user)
                    waiting.append((user, kept and (name.startswith("IndexPut") or not name.startswith(MOVING))))
        return found


@dataclass(eq=False)
class Product:
    """A matrix of all pairs as a function of PyTorch returned it."""

    node: Any  # of the graph, whose gradient is that of the scores
    scores: Tensor  # (Q, C), detached; larger is closer where `sign` is 1
    rows: Tensor  # (Q, D), detached
    columns: Tensor  # (C, D), detached
    sign: int  # -1 for distances
    class_side: str  # the side that is a parameter, of class vectors or a layer: `rows`, `columns`, or neither
    recompute: Any  # computes the scores anew, where the loss changes them in place
    # node of the tensor that the scores are a view of; it replaces theirs when they are changed in place
    base: Any = None
    order: int = 0  # number of the product in its forward pass
    given: bool = False  # the loss was given the scores, and others may read them as well
    # first and last + 1 of the columns in which each row is compared with candidates of its own
    own_columns: tuple[tuple[int, int], ...] = ()
    no_gradient: str = ""  # the side that needs no gradient while the other one does: `rows`, `columns`, or neither

    def __post_init__(self) -> None:
        self.version = self.scores._version

    def freeze(self) -> None:
        """Leave the graph, with the scores as the function returned them."""
        if self.scores._version != self.version:
            self.scores = self.recompute()
        self.node = self.base = self.recompute = None


@dataclass(eq=False)
class PairScores:
    """Scores of row i of one matrix with row i of another, as a loss has them that computes its positives apart."""

    node: Any  # of the graph, whose gradient is that of the scores, (n,), or of the products of their entries, (n, D)
    rows: Tensor  # (n, D), detached
    columns: Tensor  # (n, D), detached
    values: Tensor | None = None  # (n,) scores, detached; None: the products of the rows and the columns


def without_gradient(rows: Tensor, columns: Tensor) -> str:
    """Name the side of a comparison without a gradient while the other one has one; "" if there is none."""
    first, second = _needs_no_gradient(rows), _needs_no_gradient(columns)
    return "" if first == second else "rows" if first else "columns"


def _needs_no_gradient(operand: Tensor) -> bool:
    """Whether an operand needs no gradient, or none but that of numbers like a scale."""
    if not operand.requires_grad:
        return True
    leaves, whole = _leaves(operand, numbers=True)
    return whole and bool(leaves) and all(each.numel() == 1 for each in leaves)


def _leaves(operand: Tensor, ends: Collection[Any] = (), *, numbers: bool = False) -> tuple[list[Tensor], bool]:
    """List tensors with a gradient behind an operand, up to nodes or one of several numbers; tell if they are all."""
    waiting: list[Any] = [operand.grad_fn] if operand.grad_fn is not None else []
    known, leaves = set(waiting), [operand] if operand.requires_grad and operand.grad_fn is None else []
    while waiting and len(known) < NEAR:
        node = waiting.pop()
        if node in ends:
            return leaves, False
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            leaves.append(leaf)
            if numbers and leaf.numel() > 1:
                return leaves, False
        for above, _ in getattr(node, "next_functions", ()):
            if above is not None and above not in known:
                known.add(above)
                waiting.append(above)
    return leaves, not waiting


def _class_side(rows: Tensor, columns: Tensor, ends: set[Any]) -> str:
    """Name the side that is a parameter, turned or normalised, and no function of the arguments: see `Product`."""
    found = []
    for operand in (rows, columns):
        leaves, whole = _leaves(operand, ends)
        shapes = {tuple(operand.shape), tuple(operand.shape)[::-1]}
        made = whole and len(leaves) == 1 and isinstance(leaf := leaves[0], Parameter)
        found.append(isinstance(operand, Parameter) or (made and tuple(leaf.shape) in shapes))
    return "" if found[0] == found[1] else "rows" if found[0] else "columns"


class Products:
    """The products of one forward pass, in the order of their computation.

    Args:
        arguments: tensors that the loss was given; products between the columns of matrices compare no rows.
    """

    def __init__(self, arguments: Sequence[Tensor] = ()):
        self.found: list[Product] = []
        self.per_query: list[Product] = []  # the candidates of each query are its own
        self.concatenated: list[tuple[Any, Tensor]] = []  # node and values of concatenated matrices
        self.pair_scores: list[PairScores] = []
        self.over_batch: list[Any] = []  # nodes of products of columns with columns
        self._own_candidates: set[Any] = set()  # nodes of products of each row with candidates of its own
        self._given = [each for each in arguments if each.ndim == 2 and each.is_floating_point()]
        self._ends = {each.grad_fn for each in self._given if each.grad_fn is not None}
        self._shapes = {tuple(each.shape) for each in self._given}
        self._number = 0
        self._broadcast = WeakIdKeyDictionary()
        self._row_pairs = WeakIdKeyDictionary()

    def see(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Keep a call of PyTorch if it returned the scores of all pairs, or of each row with its own."""
        name = getattr(func, "__name__", "")
        if name not in SEEN or not isinstance(out, Tensor) or not out.is_floating_point():
            return
        if out.ndim == 3:
            self._see_broadcast(name, args, kwargs, out)
            self._see_per_query(name, args, out)
        if not out.requires_grad or out.grad_fn is None:
            return
        self._see_pairs(name, args, out)
        if out.ndim != 2:
            return
        if name in JOINING:
            self.concatenated.append((out.grad_fn, out.detach()))
        pair = self._comparison(name, args, kwargs)
        if pair is None:
            return
        rows, columns, sign = pair
        if (rows.shape[0], columns.shape[0]) != out.shape or rows.shape[1] != columns.shape[1]:
            return
        if self._multiply_columns(rows, columns):
            self.over_batch.append(out.grad_fn)
            return
        self._number += 1
        self.found.append(
            Product(
                out.grad_fn,
                out.detach(),
                rows.detach(),
                columns.detach(),
                sign,
                _class_side(rows, columns, self._ends),
                partial(
                    func, *(_detached(each) for each in args), **{key: _detached(each) for key, each in kwargs.items()}
                ),
                out._base.grad_fn if out._is_view() and out._base is not None else None,
                self._number,
                no_gradient=without_gradient(rows, columns),
            )
        )

    def _multiply_columns(self, rows: Tensor, columns: Tensor) -> bool:
        """Whether the sides of a product are columns of the arguments, so that it sums over the batch."""
        transposed = {tuple(each.shape)[::-1] for each in (rows, columns)}
        straight = {tuple(rows.shape), tuple(columns.shape)}
        if transposed <= self._shapes and tuple(rows.shape) not in self._shapes:
            return True
        if straight <= self._shapes and not transposed & self._shapes:
            return False
        ways = {self._is_transposed(rows), self._is_transposed(columns)}
        return True in ways and False not in ways

    def _is_transposed(self, operand: Tensor) -> bool | None:
        """Whether the rows of an operand are columns of an argument, by the graph between them; None: unknown."""
        if operand.grad_fn is None:
            same = [each for each in self._given if each.data_ptr() == operand.data_ptr()]
            found = {each.stride() != operand.stride() for each in same if {*each.shape} == {*operand.shape}}
            return found.pop() if len(found) == 1 else None
        waiting: list[tuple[Any, bool]] = [(operand.grad_fn, False)]
        known, found = {operand.grad_fn}, set()
        while waiting and len(known) < NEAR:
            node, transposed = waiting.pop()
            leaf = getattr(node, "variable", None)
            if node in self._ends or any(leaf is each for each in self._given):
                found.add(transposed)
                continue
            if len(shape_of(node)) != 2:
                continue
            above = node.next_functions[ROWS_OF[node.name()]] if node.name() in ROWS_OF else node.next_functions
            nodes = {each for each, _ in above if each is not None} - known
            known |= nodes
            waiting += [(each, transposed ^ transposes(node)) for each in nodes]
        return found.pop() if len(found) == 1 else None

    def _comparison(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Tensor, Tensor, int] | None:
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
            sides = _broadcast_sides(*operands)
            return (*sides, 1 if name == "cosine_similarity" else -1) if sides else None
        if name in REDUCED and operands and operands[0] in self._broadcast:  # along the last of three axes
            given = [kwargs[each] for each in ("dim", "axis") if each in kwargs]
            given += [each for each in args[1:] if isinstance(each, int | tuple | list) and not isinstance(each, bool)]
            spread: tuple[Tensor, Tensor, int] = self._broadcast[operands[0]]
            return spread if any(each in (2, -1, (2,), (-1,), [2], [-1]) for each in given) else None
        return None

    def _see_per_query(self, name: str, args: tuple[Any, ...], out: Tensor) -> None:
        """Keep products (Q, 1, D) x (Q, D, C)."""
        operands = [each for each in args if isinstance(each, Tensor)]
        if name not in {*MULTIPLIED, "bmm"} or len(operands) != 2 or out.shape[1] != 1 or out.grad_fn is None:
            return
        rows, values = operands[0].detach(), out.detach()[:, 0]
        if rows.ndim == 3 and values.shape[1] > 1:
            unknown = values.new_empty(values.shape[1], 0)
            self.per_query.append(Product(out.grad_fn, values, rows[:, 0], unknown, 1, "", values.clone))

    def _see_pairs(self, name: str, args: tuple[Any, ...], out: Tensor) -> None:
        """Keep comparisons of each row with its own: scores of pairs, and those with own candidates."""
        if name == "einsum":
            equation, given = _equation(args)
            if equation in OWN_EINSUMS:
                self._own_candidates.add(out.grad_fn)
            if equation in OWN_EINSUMS[:1]:
                self._keep_pairs(out, given[0], given[1], out.detach())
            return
        operands = [each for each in args if isinstance(each, Tensor)]
        if not operands:
            return
        first, second = operands[0], operands[-1]
        alike = len(operands) == 2 and first.ndim == 2 and first.shape == second.shape
        if name in SHAPE_KEEPING and first in self._row_pairs:
            self._row_pairs[out] = self._row_pairs[first]
        elif name in REDUCED and first in self._row_pairs and out.numel() == len(first):
            rows, columns = self._row_pairs[first]
            self._keep_pairs(out, rows, columns, out.detach())
        elif alike and name in BROADCAST:
            if "mul" in name:
                self._keep_pairs(out, first, second, None)
            else:
                self._row_pairs[out] = (first, second)
        elif alike and name in ROW_BY_ROW and out.ndim == 1:
            self._keep_pairs(out, first, second, out.detach())
        elif (
            len(operands) == 2 and out.ndim == first.ndim == second.ndim == 3 and len(first) == len(second) == len(out)
        ):
            if name in {*MULTIPLIED, "bmm"} and 1 in out.shape[1:]:  # (Q, 1, D) x (Q, D, C), or turned
                self._own_candidates.add(out.grad_fn)
                if out.shape[1:] == (1, 1):
                    self._keep_pairs(out, first[:, 0], second[:, :, 0], out.detach())
            elif name in BROADCAST and "mul" in name and 1 in {first.shape[1], second.shape[1]}:
                self._own_candidates.add(out.grad_fn)  # (Q, 1, D) and (Q, C, D)

    def _keep_pairs(self, out: Tensor, rows: Tensor, columns: Tensor, values: Tensor | None) -> None:
        if values is None or values.numel() == len(rows):
            self._own_candidates.add(out.grad_fn)
            values = None if values is None else values.reshape(-1)
            self.pair_scores.append(PairScores(out.grad_fn, rows.detach(), columns.detach(), values))

    def join(self, node: Any, parts: list[Product]) -> Product | None:
        """Make the wider matrix that products enter beside something else, like the score of each own positive."""
        values = next((values for each, values in self.concatenated if each is node), None)
        if values is None or len({len(each.rows) for each in parts}) > 1 or len(parts[0].rows) != len(values):
            return None
        unknown, own, start = values.new_empty(values.shape[1], 0), [], 0
        for each, _ in node.next_functions:
            width = shape_of(each)[1] if each is not None and len(shape_of(each)) == 2 else 0
            own += [(start, start + width)] if self._is_of_own_candidates(each) else []
            start += width
        known = tuple(own) if start == values.shape[1] else ()
        first, make = parts[0], values.clone
        return Product(
            node,
            values,
            first.rows,
            unknown,
            first.sign,
            "",
            make,
            node,
            first.order,
            own_columns=known,
            no_gradient=first.no_gradient,
        )

    def _is_of_own_candidates(self, node: Any) -> bool:
        """Whether what a node computed are scores of each row with candidates of its own, up to factors and offsets."""
        for _ in range(NEAR):
            if node is None or node in self._own_candidates:
                return node is not None
            above = [each for each, _ in node.next_functions if each is not None and len(shape_of(each)) > 1]
            if len(above) != 1 or not node.name().startswith((*LINEAR, "Sum")):
                return False
            node = above[0]
        return False

    def _see_broadcast(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> None:
        operands = [each for each in args if isinstance(each, Tensor)]
        if name in BROADCAST and len(operands) == 2:
            known = [self._broadcast[each] for each in operands if each in self._broadcast]
            sides = _broadcast_sides(*operands)
            if known:
                self._broadcast[out] = known[0]
            elif sides:
                self._broadcast[out] = (*sides, 1 if "mul" in name else -1)
        elif name in SHAPE_KEEPING and operands and operands[0] in self._broadcast:
            self._broadcast[out] = self._broadcast[operands[0]]


def _broadcast_sides(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor] | None:
    """Find rows and columns in operands (Q, 1, D) and (1, C, D), or (C, D), in either order."""

    def rows(operand: Tensor) -> Tensor | None:
        return operand[:, 0] if operand.ndim == 3 and operand.shape[1] == 1 else None

    def columns(operand: Tensor) -> Tensor | None:
        return operand if operand.ndim == 2 else operand[0] if operand.ndim == 3 and operand.shape[0] == 1 else None

    for one, two in ((rows(first), columns(second)), (rows(second), columns(first))):
        if one is not None and two is not None:
            return one, two
    return None


def _equation(args: tuple[Any, ...]) -> tuple[str, tuple[Tensor, ...]]:
    """Read the equation of a call of `einsum`, its letters a, b, c, ... in their order, and its operands."""
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
    """Find rows and columns in an equation like `nd,md->nm`."""
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


def _detached(value: Any) -> Any:
    """An argument without its graph."""
    if isinstance(value, list | tuple):
        return type(value)(_detached(each) for each in value)
    return value.detach() if isinstance(value, Tensor) else value


def given_scores(tensors: Sequence[Tensor], roots: Sequence[Node]) -> list[Product]:
    """Scores among the arguments of a loss, where they can be told from embeddings.

    They are read by a cross-entropy whose target is one of their columns, or by a loss without other matrices, and then
    they are square.

    Args:
        tensors: arguments.
        roots: nodes of the losses.
    """
    matrices = {id(each): each for each in tensors if each.ndim == 2 and each.is_floating_point()}
    given = {each.grad_fn: each for each in matrices.values() if each.requires_grad and each.grad_fn is not None}
    graph = Graph(roots, given)
    reached = [node for node in given if node in graph.reached]
    targets = [graph.target(node, transposed) for node in reached for transposed in (False, True)]
    square = len(matrices) <= 2 and all(each.shape[0] == each.shape[1] for each in matrices.values())
    if not reached or not (square or any(each is not None for each in targets)):
        return []
    found = []
    for number, node in enumerate(reached):
        values = given[node].detach()
        unknown = values.new_empty(len(values), 0), values.new_empty(values.shape[1], 0)
        rows, columns = _operands(node, values.shape) or unknown
        found.append(Product(node, values, rows, columns, 1, "", values.clone, order=number, given=True))
    return found


def _operands(node: Node, shape: torch.Size) -> tuple[Tensor, Tensor] | None:
    """Find rows and columns of the product that scores come from; None where it is not near, or has not saved them."""
    transposed = False
    for _ in range(NEAR_PRODUCT):
        if node.name() == "MmBackward0":
            rows, columns = node._saved_self, node._saved_mat2
            if rows is None or columns is None:
                return None
            found = (columns.detach().T, rows.detach()) if transposed else (rows.detach(), columns.detach().T)
            return found if (len(found[0]), len(found[1])) == tuple(shape) else None
        above: list[Any] = [each for each, _ in node.next_functions if each is not None]
        if not node.name().startswith(LINEAR) or not above:
            return None
        transposed ^= transposes(node)
        node = above[0]
    return None


@dataclass(eq=False)
class Flow:
    """One direction of a product."""

    transposed: bool  # the columns of the product are the queries
    kind: str | None  # of the loss, by the nodes between
    factor: float | None  # from the scores to what the loss reads
    target: Tensor | None  # columns of the positives, (Q,), of a cross-entropy
    arrived: dict[str, list[Tensor]] = field(default_factory=dict)  # gradients by the axis that was read
    join: Join | None = None  # the wider matrix of which it is a part
    direct: bool = False  # both directions read the scores as they are, without a factor between

    def gradient(self) -> Tensor | None:
        """∂ root / ∂ scores of this direction, (Q, C); None where none arrived."""
        whole = self.arrived.get("whole")
        if not whole:
            return None
        every_use = whole[0] if len(whole) == 1 else torch.stack(whole).sum(dim=0)
        found = every_use if ALONG_ROWS not in self.arrived else self._part(every_use)
        return found.T if self.transposed else found

    def _part(self, whole: Tensor) -> Tensor:
        """Select this direction's part of the gradient, in the axes of the product.

        Scores that both directions read, like those of the positives, are shared such that each query's weights sum
        to zero: a softmax and a hinge read differences.
        """
        by_rows, by_columns, both = (self._sum(axis) for axis in (ALONG_ROWS, ALONG_COLUMNS, "both"))
        mine = by_columns if self.transposed else by_rows
        mine = torch.zeros_like(whole) if mine is None else mine
        if both is not None:
            rows = torch.zeros_like(both) if by_rows is None else by_rows
            total = both.sum(dim=1, keepdim=True)
            part = (-rows.sum(dim=1, keepdim=True) / torch.where(total == 0, 1, total)).clamp(0, 1)
            mine = mine + ((1 - part) * both if self.transposed else part * both)
        if self.direct:
            return mine
        line = torch.linspace(1, 2, whole.shape[1], device=whole.device, dtype=mine.dtype).cos()
        along = torch.zeros_like(mine[:, 0])  # all that was read, along a line, on which no matrix has to be made
        for each in (by_rows, by_columns, both):
            along = along if each is None else along + each @ line
        size = along.square().sum()
        stretch = ((whole.to(mine.dtype) @ line) * along).sum() / torch.where(size == 0, 1, size)
        return mine * stretch  # of the branch to the scores

    def _sum(self, axis: str) -> Tensor | None:
        """Add the gradients that were read along an axis; None where there is none."""
        found = self.arrived.get(axis)
        return sum(found[1:], found[0].to(torch.promote_types(found[0].dtype, torch.float32))) if found else None


def _keep_gradient(
    where: list[Tensor],
    index: int,
    transposed: bool,
    like: Tensor,
    gradients: tuple[Tensor | None, ...],
    *_: object,
) -> None:
    """Keep one of the gradients of a node in the axes of the product, which may be a view of what the node made."""
    gradient = gradients[index]
    if gradient is None:
        return
    gradient = gradient.detach().T if transposed else gradient.detach()
    if gradient.shape != like.shape:
        gradient = gradient.contiguous().as_strided(like.size(), like.stride(), like.storage_offset())
    where.append(gradient)


def hook_pair_scores(graph: Graph, pairs: Sequence[PairScores]) -> list[tuple[PairScores, list[Tensor]]]:
    """Register hooks that keep the gradients of scores of pairs that the loss computes apart."""
    found = [(each, list[Tensor]()) for each in pairs if graph.has(each.node)]
    for each, arrived in found:
        each.node.register_prehook(partial(_keep_pair_gradient, arrived))
        each.node = None  # hooks stay with a node
    return found


def _keep_pair_gradient(where: list[Tensor], gradients: tuple[Tensor | None, ...]) -> None:
    if gradients[0] is not None:
        where.append(gradients[0].detach())


def hook_flows(graph: Graph, product: Product, joins: Mapping[Node, Join]) -> list[Flow]:
    """Register hooks that keep the gradients of a product, one for each direction in which the loss reads it."""
    node = product.node if product.node in graph.reached else product.base
    at, transposed = graph.branch(node)
    edges = graph.uses.get(at, [])
    read = [graph.reads(each) for each in edges]
    axes = frozenset().union(*read)
    kind, whole = graph.kind(node), list[Tensor]()
    if product.given:
        for user, index in graph.uses[node]:
            user.register_hook(partial(_keep_gradient, whole, index, False, product.scores))
    else:
        node.register_prehook(partial(_keep_gradient, whole, 0, False, product.scores))
    if product.class_side or len(axes) < 2 or any(len(each) > 1 for each in read):
        by_columns = axes == {ALONG_ROWS if transposed else ALONG_COLUMNS}
        flipped = product.class_side == "rows" if product.class_side else by_columns
        return [Flow(flipped, kind, graph.factor(node), graph.target(node, flipped), {"whole": whole}, joins.get(node))]
    arrived: dict[str, list[Tensor]] = {ALONG_ROWS: [], ALONG_COLUMNS: [], "both": [], "whole": whole}
    targets: dict[str, Tensor | None] = {}
    for edge, axis in zip(edges, read, strict=True):
        name = next(iter(axis), "both")
        name = OTHER_AXIS[name] if transposed else name
        targets[name] = graph.target(edge[0], transposed ^ (name == ALONG_COLUMNS))
        edge[0].register_hook(partial(_keep_gradient, arrived[name], edge[1], transposed, product.scores))
    factor = graph.factor(node)
    return [
        Flow(name == ALONG_COLUMNS, kind, factor, targets.get(name), arrived, direct=at is node)
        for name in (ALONG_ROWS, ALONG_COLUMNS)
    ]
