"""One direction of one call of a loss, as every way of reading it delivers it."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Seen:
    """One direction of one call of a loss: its scores, and the weights that the backward pass gave them.

    Args:
        direction: `q2c` or `c2q`, or `s2s` and `s2p` of a labelled set.
        scores: (Q, C) as the loss computed them, detached.
        weights: (Q, C) ∂ returned loss / ∂ scores.
        positive: (Q, C) bool.
        negative: (Q, C) bool.
        unit: natural size of one weight, broadcastable to (Q, C); None: unknown, so that there are no shares.
        share: kind of a share, as `cocos.results.share` names it; None: the unit is unknown.
        query: (Q, D) rows that were scored, detached; None: unknown.
        candidate: (C, D) likewise.
        scale: factor from a cosine to what the loss reads; None: it is not one number.
        stretch: factor from a cosine to a score, where `scale` is known.
        bias: offset of what a sigmoid reads; None: unknown.
        sources: (Q, C) int8, place of each candidate in `cocos.sources.SOURCES`; None: all are of the batch.
        kind: `softmax`, `sigmoid` or `hinge`, from the functions that the loss called; None: unknown.
        own: (C,) bool, candidates of this process where those of others were gathered; None: nothing was gathered.
        value: the loss that was returned, ().
        width: D of the product.
        factor: gradient that arrived at the returned loss, (): the weights times it are the gradient of the scores, in
            their dtype; None: 1.
        source: `closed form` or `backward pass`.
        apart: each query meets candidates of its own alone, so that others may repeat.
        still: the side that gets no gradient while the other one does: `queries`, `candidates`, or neither.
        notes: remarks for the user, one sentence each.
        plain: the weights are those of a softmax with one positive of each query.
        whole: every pair is in one of the masks; False: unknown.
    """

    direction: str
    scores: Tensor
    weights: Tensor
    positive: Tensor
    negative: Tensor
    unit: Tensor | None = None
    share: str | None = None
    query: Tensor | None = None
    candidate: Tensor | None = None
    scale: float | None = None
    stretch: float | None = None
    bias: float | None = None
    sources: Tensor | None = None
    kind: str | None = None
    own: Tensor | None = None
    value: Tensor | None = None
    width: int | None = None
    factor: Tensor | None = None
    source: str = "backward pass"
    apart: bool = False
    still: str = ""
    notes: tuple[str, ...] = ()
    plain: bool = False
    whole: bool = False
