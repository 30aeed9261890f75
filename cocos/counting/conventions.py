"""How to count: `standard`, and `ecir2022`, which returns what the published counters return, faults included.

The published code is that of Bleeker & de Rijke (ECIR 2022), commit 9800594. Its numbers are in the printed tables, so
ours must be comparable; the printed ones are right only where `footnotes` is silent.
"""

import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.embeddings.scores import Pairs
from cocos.losses.ntxent import NTXent
from cocos.losses.smoothap import SmoothAP
from cocos.losses.triplet import Triplet

CONVENTIONS = ("standard", "ecir2022")
# Losses whose published counter differs from the standard one.
PUBLISHED = (Triplet, NTXent, SmoothAP)
# Captions per image that the published SmoothAP counter assumes.
PUBLISHED_CAPTIONS = 5


def check(convention: str) -> None:
    """Refuse an unknown convention."""
    if convention not in CONVENTIONS:
        raise InputError(f"convention: {convention!r}, expected one of {', '.join(CONVENTIONS)}")


def copies(convention: str, asked: str | None) -> str | None:
    """Rule for rows that several pairs of a batch share: the published batches keep the copies."""
    if convention == "ecir2022" and asked == "once":
        raise InputError(
            "copies: 'once', but convention ecir2022 keeps them, as published; use the standard convention"
        )
    return "keep" if convention == "ecir2022" else asked


def check_sample(convention: str, loss, sample: str, directions: int) -> None:
    """The published counters know one shape of batch for each loss; refuse any other."""
    if convention == "ecir2022" and isinstance(loss, PUBLISHED) and (sample != loss.sample or directions != 2):
        raise InputError(
            f"convention ecir2022: the published counter of {type(loss).__name__} knows two directions and batches of "
            f"{loss.sample} (--sample {loss.sample}) only; use the standard convention"
        )


def unit(loss, pairs: Pairs, standard: Tensor) -> Tensor:
    """Unit of a weight in the published way: that of one positive, however many a query has (docs/eps.md)."""
    if loss.terms and loss.unit_from != "unknown":
        return sum(c * unit(each, pairs, each.unit(pairs)) for c, each in loss.terms)
    return standard / pairs.positives() if loss.per_positive else standard


def eq7(pairs: Pairs, temperature: float, eps: float, *, second: bool, ranked: bool = True) -> Tensor:
    """Count of Eq. 7 over the rows that the published counter reads, (Q,).

    For query q, in both directions, it takes candidates 5q to 5q+4 for the positives. It divides by five, or by one for
    the second direction, whose query q is a caption and whose candidates are images: its own image is q // 5, so that
    it reads other images, or none; for caption 0, its own image and four others.
    """
    start = PUBLISHED_CAPTIONS * torch.arange(len(pairs.scores), device=pairs.scores.device)[:, None]
    column = torch.arange(pairs.scores.shape[1], device=pairs.scores.device)[None, :]
    band = (column >= start) & (column < start + PUBLISHED_CAPTIONS)
    mean = SmoothAP(temperature).eq7(Pairs(pairs.scores, band), eps, ranked=ranked)
    return mean * band.sum(dim=1) / (1 if second else PUBLISHED_CAPTIONS)


def as_published(
    loss, pairs: Pairs, shares: Tensor, standard: dict[str, Tensor], *, second: bool, eps: float
) -> dict[str, Tensor]:
    """Replace the statistics that the published counters return otherwise, for all pairs of one direction of a batch.

    In the second direction (whose queries are captions where it was published) Triplet's `contributing` is summed along
    the wrong axis. NT-Xent: a share of exactly eps is in neither sum. SmoothAP: `eq7` over the wrong rows.
    """
    result = dict(standard)
    if isinstance(loss, Triplet) and second:
        result["contributing"] = ((shares > eps) & pairs.negative).sum(dim=0)
    if isinstance(loss, NTXent):
        result["weight_below"] = torch.where((shares < eps) & pairs.negative, shares, 0).sum(dim=1)
    if isinstance(loss, SmoothAP):
        result["eq7"] = eq7(pairs, loss.temperature, eps, second=second)
    return result


def footnotes(loss, convention: str, *, directions: int) -> list[str]:
    """Where the two conventions differ for this loss, one sentence each; directions: how many were counted."""
    published, other = convention == "ecir2022", "(--convention ecir2022)"
    notes = []
    if isinstance(loss, Triplet) and directions == 2:
        notes.append(
            "second direction, C^A and C^0: summed along the wrong axis, as published (how many queries each candidate "
            "serves); C^B is right"
            if published
            else f"second direction, C^A and C^0: the published counter sums along the wrong axis {other}"
        )
    if isinstance(loss, NTXent) and published:
        notes.append("a share of exactly eps is in neither W- nor the share of the other negatives, as published")
    if isinstance(loss, SmoothAP):
        notes.append(
            "Eq. 7 takes columns 5q to 5q+4 for the positives of query q, as published: right where each query has "
            "five candidates in a row, wrong for every query of the second direction, for which it takes candidates of "
            "other queries, or none; for the first query, its own and four others"
            if published
            else f"Eq. 7 is counted over each query's own positives; the published counter reads wrong rows {other}"
        )
        notes.append("Eq. 7 counts pairs, positives among them, some without a gradient; C^A, C^B, C^0 count gradients")
    return notes
