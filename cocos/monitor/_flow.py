"""The gradient of a product in a backward pass, one matrix for each direction in which the loss reads it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from cocos.monitor._graph import ALONG_COLUMNS, ALONG_ROWS, Graph, Join, Node
from cocos.monitor._products import PairScores, Product


@dataclass(eq=False)
class Flow:
    """One direction of a product.

    Args:
        turned: the columns of the product are the queries.
        kind: of the loss, by the nodes between.
        factor: from the scores to what the loss reads.
        target: columns of the positives, (Q,), of a cross-entropy.
        arrived: gradients by the axis that was read.
        join: the wider matrix of which it is a part.
        direct: both directions read the scores as they are, without a factor between.
    """

    turned: bool
    kind: str | None
    factor: float | None
    target: Tensor | None
    arrived: dict[str, list[Tensor]] = field(default_factory=dict)
    join: Join | None = None
    direct: bool = False

    def gradient(self) -> Tensor | None:
        """∂ root / ∂ scores of this direction, (Q, C); None where none arrived."""
        whole = self.arrived.get("whole")
        if not whole:
            return None
        all_uses = whole[0] if len(whole) == 1 else torch.stack(whole).sum(dim=0)
        found = all_uses if ALONG_ROWS not in self.arrived else self._part(all_uses)
        return found.T if self.turned else found

    def _part(self, whole: Tensor) -> Tensor:
        """What this direction has of the gradient, in the axes of the product.

        Scores that both directions read, like those of the positives, are shared such that each query's weights sum
        to zero: a softmax and a hinge read differences.
        """
        by_rows, by_columns, both = (self._sum(axis) for axis in (ALONG_ROWS, ALONG_COLUMNS, "both"))
        mine = by_columns if self.turned else by_rows
        mine = torch.zeros_like(whole) if mine is None else mine
        if both is not None:
            rows = torch.zeros_like(both) if by_rows is None else by_rows
            total = both.sum(dim=1, keepdim=True)
            part = (-rows.sum(dim=1, keepdim=True) / torch.where(total == 0, 1, total)).clamp(0, 1)
            mine = mine + ((1 - part) * both if self.turned else part * both)
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
        """Sum of the gradients that were read along an axis; None where there is none."""
        found = self.arrived.get(axis)
        if not found:
            return None
        total = found[0].to(torch.promote_types(found[0].dtype, torch.float32))
        for each in found[1:]:
            total = total + each
        return total


def _keep(
    where: list[Tensor],
    index: int,
    turned: bool,
    like: Tensor,
    gradients: tuple[Tensor | None, ...],
    *_: object,
) -> None:
    """Keep one of the gradients of a node in the axes of the product, which may be a view of what the node made."""
    gradient = gradients[index]
    if gradient is None:
        return
    gradient = gradient.detach().T if turned else gradient.detach()
    if gradient.shape != like.shape:
        gradient = gradient.contiguous().as_strided(like.size(), like.stride(), like.storage_offset())
    where.append(gradient)


def beside(graph: Graph, pairs: Sequence[PairScores]) -> list[tuple[PairScores, list[Tensor]]]:
    """Register hooks that keep the gradients of scores of pairs that the loss computes apart."""
    found = [(each, list[Tensor]()) for each in pairs if graph.has(each.node)]
    for each, arrived in found:
        each.node.register_prehook(partial(_keep_first, arrived))
        each.node = None  # hooks stay with a node
    return found


def _keep_first(where: list[Tensor], gradients: tuple[Tensor | None, ...]) -> None:
    if gradients[0] is not None:
        where.append(gradients[0].detach())


def flows(graph: Graph, product: Product, joins: Mapping[Node, Join]) -> list[Flow]:
    """Register hooks that keep the gradients of a product, one for each direction in which the loss reads it."""
    node = product.node if product.node in graph.reached else product.base
    at, turned = graph.branch(node)
    edges = graph.uses.get(at, [])
    read = [graph.reads(each) for each in edges]
    axes = frozenset().union(*read)
    kind, whole = graph.kind(node), list[Tensor]()
    if product.given:
        for user, index in graph.uses[node]:
            user.register_hook(partial(_keep, whole, index, False, product.scores))
    else:
        node.register_prehook(partial(_keep, whole, 0, False, product.scores))
    if product.head or len(axes) < 2 or any(len(each) > 1 for each in read):
        flipped = product.head == "rows" if product.head else axes == {ALONG_ROWS if turned else ALONG_COLUMNS}
        return [Flow(flipped, kind, graph.factor(node), graph.target(node, flipped), {"whole": whole}, joins.get(node))]
    arrived: dict[str, list[Tensor]] = {ALONG_ROWS: [], ALONG_COLUMNS: [], "both": [], "whole": whole}
    targets: dict[str, Tensor | None] = {}
    for edge, axis in zip(edges, read, strict=True):
        name = next(iter(axis), "both")
        if turned and name != "both":
            name = ALONG_COLUMNS if name == ALONG_ROWS else ALONG_ROWS
        targets[name] = graph.target(edge[0], turned ^ (name == ALONG_COLUMNS))
        edge[0].register_hook(partial(_keep, arrived[name], edge[1], turned, product.scores))
    factor = graph.factor(node)
    return [
        Flow(name == ALONG_COLUMNS, kind, factor, targets.get(name), arrived, direct=at is node)
        for name in (ALONG_ROWS, ALONG_COLUMNS)
    ]
