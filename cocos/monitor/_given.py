"""Matrices of scores that a loss is given, instead of the rows that it would compare."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cocos.monitor._graph import LINEAR, Graph, Node, turns
from cocos.monitor._products import Product

# Number of nodes between given scores and the product that they come from.
NEAR_PRODUCT = 8


def products(tensors: Sequence[Tensor], roots: Sequence[Node]) -> list[Product]:
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
    targets = [graph.target(node, turned) for node in reached for turned in (False, True)]
    square = len(matrices) <= 2 and all(each.shape[0] == each.shape[1] for each in matrices.values())
    if not reached or not (square or any(each is not None for each in targets)):
        return []
    return [_product(node, given[node], number) for number, node in enumerate(reached)]


def _product(node: Node, scores: Tensor, number: int) -> Product:
    values = scores.detach()
    rows, columns = _operands(node, values.shape) or (
        values.new_empty(len(values), 0),
        values.new_empty(len(values.T), 0),
    )
    return Product(node, values, rows, columns, 1, "", values.clone, order=number, given=True)


def _operands(node: Node, shape: torch.Size) -> tuple[Tensor, Tensor] | None:
    """Rows and columns of the product that scores come from; None where it is not near, or has not saved them."""
    turned = False
    for _ in range(NEAR_PRODUCT):
        if node.name() == "MmBackward0":
            return _saved(node, turned, shape)
        above: list[Any] = [each for each, _ in node.next_functions if each is not None]
        if not node.name().startswith(LINEAR) or not above:
            return None
        turned ^= turns(node)
        node = above[0]
    return None


def _saved(node: Node, turned: bool, shape: torch.Size) -> tuple[Tensor, Tensor] | None:
    rows, columns = node._saved_self, node._saved_mat2
    if rows is None or columns is None:
        return None
    rows, columns = rows.detach(), columns.detach().T
    found = (columns, rows) if turned else (rows, columns)
    return found if (len(found[0]), len(found[1])) == tuple(shape) else None
