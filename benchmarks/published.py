"""The published counters (ECIR 2022), reimplemented from their description: all comparisons are in memory at once.

Axes are correct in both directions (in two of the published counters they are not); the amount of work is the same.
"""

import torch
from torch import Tensor

__all__ = ["COUNTERS"]


def triplet(scores: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Count the violating negatives of each query and of each candidate, from two matrices of hinges."""
    own = scores.diag()
    eye = torch.eye(len(scores), dtype=torch.bool)
    query = (margin + scores - own[:, None]).clamp(min=0).masked_fill(eye, 0)
    candidate = (margin + scores - own[None, :]).clamp(min=0).masked_fill(eye, 0)
    return (query != 0).sum(dim=1), (candidate != 0).sum(dim=0)


def ntxent(scores: Tensor, temperature: float, eps: float) -> tuple[Tensor, Tensor]:
    """Count the negatives of each query and of each candidate with a softmax above eps, and sum their shares."""
    counts = []
    for side in (scores, scores.T):
        share = (side / temperature).softmax(dim=1)
        negative = ~torch.eye(len(share), dtype=torch.bool)
        above, below = (share > eps) & negative, (share < eps) & negative
        _ = (share * above).sum(dim=1), (share * below).sum(dim=1), 1 - share.diag()
        counts.append(above.sum(dim=1))
    return tuple(counts)


def smoothap(scores: Tensor, temperature: float, eps: float) -> tuple[Tensor, Tensor]:
    """Count the terms of Eq. 7 above eps of each query and each candidate, over all triples of scores."""
    counts = []
    positives = scores.shape[1] // len(scores)
    for side, number in ((scores, positives), (scores.T, 1)):
        repeated = side[:, None, :].repeat(1, side.shape[1], 1)
        logits = ((repeated - repeated.transpose(1, 2)) / temperature).clamp(-50, 50)
        above = (1 / (1 + (-logits).exp())) * (1 - torch.eye(side.shape[1]))
        rank = 1 + above.sum(dim=2)
        terms = above * (1 - above) / rank[:, :, None].square()
        mine = [(q * number if number > 1 else q // positives) for q in range(len(side))]
        counts.append(torch.stack([(terms[q, i : i + number] > eps).sum() / number for q, i in enumerate(mine)]))
    return tuple(counts)


COUNTERS = {"triplet": triplet, "ntxent": ntxent, "smoothap": smoothap}
