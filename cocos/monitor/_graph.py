"""What a loss does with its scores, from the graph between them: which of their axes it reads, and how."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

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
READERS = ("LogSoftmax", "Softmax", "Logsumexp", "Max", "Min", "Amax", "Amin", "Sum", "Mean", "Sort", "Topk", "Cumsum")
TURNS = ("TBackward0", "TransposeBackward0", "PermuteBackward0")
# Nodes after which entries have lost the place that they had in the matrix.
PICKS = (
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
SAME = ("Mul", "Div", "Neg", "Add", "Sub", "Rsub", "ToCopy", "Clone", "Alias", "MaskedFill", "Where", "AsStrided")
LINEAR = (*SAME, *MOVING, "Cat", "TBackward", "Permute", "Transpose", "Reshape", "torch::autograd::CopySlices")
# Parts of the names of functions that receive rows from other processes, and how many nodes are searched for them.
RECEIVED, NEAR_NODES = ("gather", "exchange", "scatter", "reduce"), 8
ALONG_ROWS, ALONG_COLUMNS = "rows", "columns"


def shape_of(node: Node) -> tuple[int, ...]:
    """Shape of what a node computed, without a leading axis of 1 that a product in batches has."""
    about = getattr(node, "_input_metadata", None)
    shape = tuple(about[0].shape) if about else ()
    return shape[1:] if len(shape) == 3 and shape[0] == 1 else shape


def gathered(node: Node) -> bool:
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
    """The axes of a matrix along which a node reduces, 0 and 1."""
    dims = getattr(node, "_saved_dim", ())
    dims = dims if isinstance(dims, tuple | list) else (dims,)
    return {(int(each) - 2**64 if each >= 2**63 else int(each)) % 2 for each in dims}


def turns(node: Node) -> bool:
    """Whether a node turns a matrix; a turned view that was changed in place shows by its strides."""
    strides: tuple[int, ...] = getattr(node, "_saved_stride", ()) if node.name() == "AsStridedBackward0" else ()
    return node.name() in TURNS or (len(strides) == 2 and strides[0] < strides[1])


def _turned(axes: frozenset[str]) -> frozenset[str]:
    return frozenset(ALONG_COLUMNS if each == ALONG_ROWS else ALONG_ROWS for each in axes)


def _number(node: Node) -> float | None:
    """The one number by which a node multiplies or divides."""
    for name in ("_saved_other", "_saved_self"):
        value = getattr(node, name, None)
        if isinstance(value, Tensor) and value.numel() == 1:
            return float(value.detach())
        if isinstance(value, int | float):
            return float(value)
    return None


@dataclass(frozen=True, eq=False)
class Join:
    """The place of a matrix in a wider one that the loss reads as a whole.

    Args:
        token: the same for all parts.
        index: place among the parts.
        target: (Q,) columns of the positives in the wider matrix.
    """

    token: object
    index: int
    target: Tensor | None


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
        """Every node between this one and the loss."""
        found, waiting = {node}, [node]
        while waiting:
            users = {user for user, _ in self.uses.get(waiting.pop(), ())} - found
            found |= users
            waiting += users
        return found - {node}

    def kind(self, node: Node) -> str | None:
        """What makes the loss of the scores of a product."""
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
        if name.startswith(READERS) and hasattr(node, "_saved_dim"):
            found = frozenset(ALONG_ROWS if axis == 1 else ALONG_COLUMNS for axis in _axes(node))
        elif name == "CatBackward0" and len(shape_of(node)) == 2:
            found = frozenset({ALONG_ROWS}) if _axes(node) == {1} else self._later(node, known)
        elif name.startswith(PICKS) or len(shape_of(node)) not in {0, 2}:
            found = frozenset()
        else:
            found = self._beside(node) or self._later(node, known)
            found = _turned(found) if turns(node) else found
        known[node] = found
        return found

    def _later(self, node: Node, known: dict[Node, frozenset[str]]) -> frozenset[str]:
        return frozenset().union(*(self._reads(user, known) for user, _ in self.uses.get(node, ())))

    def _beside(self, node: Node) -> frozenset[str]:
        """The axis along which one number of the scores per row, or per column, is subtracted from a matrix."""
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
        """The last matrix from which both axes of a product are read, and whether it is turned."""
        turned = False
        while len(edges := self.uses.get(node, [])) == 1:
            user = edges[0][0]
            if len(self.reads(edges[0])) < 2 or user.name().startswith(PICKS) or self._beside(user):
                break
            node, turned = user, turned ^ turns(user)
        return node, turned

    def target(self, node: Node, turned: bool) -> Tensor | None:
        """Columns of the positives, (Q,), where a cross-entropy reads the matrix of a node, turned as often as said."""
        while True:
            turned ^= turns(node)
            users = [user for user, _ in self.uses.get(node, ())]
            found = [user for user in users if user.name() == "NllLossBackward0"]
            if found:
                return None if turned else found[0]._saved_target
            if len(users) != 1 or users[0].name().startswith(PICKS):
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
            others = [each for each, _ in join.next_functions if each is not None and each not in self._from_products()]
            if others and all(kept for _, kept in parts.values()):
                found[join] = list(parts)
        return found

    def _from_products(self) -> set[Node]:
        return self._derived | self.reached

    def joins(self) -> dict[Node, Join]:
        """Products whose matrices are concatenated along the columns with those of other products."""
        entered = self.entered()
        found: dict[Node, Join] = {}
        for join, parts in entered.items():
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
