"""Log-sum-exp over the k hardest negatives: those above the bracket of the k-th score, and some inside it.

In: a view and k for each query or batch. Out: `Sums` over the kept negatives, and `Kept`, the ones inside the bracket.
Exact because `kth.settled` decides in float64 which negatives of the bracket are kept.
"""

from collections.abc import Generator, Sequence
from typing import Any

import torch
from torch import Tensor

from cocos.engine.primitives.kth import Kept, bracketed, listing, settled
from cocos.engine.primitives.logsumexp import Counted, LogSumExp, Question, Sums
from cocos.engine.view import View

# Number of exponentials per call of exp2: few enough that PyTorch runs the call on one thread.
POWERS_AT_ONCE = 2**14
# Multiple of elements to which arrays are padded: no SIMD vector of any processor is longer, so none is handled apart.
LONGEST_VECTOR = 64


def number_kept(fraction: float, number: Tensor) -> Tensor:
    """Number of negatives kept, floor(fraction * n), int64; at least one where there is one.

    The losses add 1e-9 for fractions that binary numbers only approximate: .29 of 100 is 29, not 28.
    """
    return torch.minimum((fraction * number.double() + 1e-9).floor().clamp(min=1).long(), number)


def hardest(
    view: View, scale: float, keeps: Sequence[Tensor], of: Sequence[Tensor] = (), **given
) -> Generator[Any, Any, tuple[Sums, list[Kept]]]:
    """Sum over the hardest negatives of every query or batch, and list the borderline negatives among them.

    Args:
        view: the scores.
        scale: as in `LogSumExp`.
        keeps: as in `bracketed`.
        of: for each direction, (n,) batch of every query, if batches keep pairs; empty if queries keep negatives.
        given: further arguments of `LogSumExp`.
    """
    for sure in (False, True) if of else (False,):  # a lost query is reweighed by the reader; a batch is too large
        brackets = yield from bracketed(view, keeps, of[0] if of else None, sure=sure)
        high = [each.ends(view)[1] for each in brackets]
        floor = [high[0][own] for own in of] or high
        seen, sums = yield listing(view, brackets), LogSumExp(view, scale, floor=floor, **given)
        found = [settled(view, k, bracket, seen, both=len(of) > 1) for k, bracket in enumerate(brackets)]
        kept = [each for some in found for each in some]
        if not bool(kept[0].lost.any()):
            break
    for k, each in enumerate(kept):
        sums = _joined(sums, k, each)
    return sums, kept  # noqa: B901 - the value of `yield from`


def _joined(sums: Sums, k: int, kept: Kept) -> Sums:
    """Add the kept negatives of a bracket to the sums over the negatives above it, which are modified."""
    of, state, query, n = sums.of, sums.state, kept.query, len(sums.top[k])
    rounded = kept.score.to(state.top[k].dtype)
    state.top[k].scatter_reduce_(0, query, rounded, "amax")
    if state.wide:
        top = state.top[k][:n]
        state.raised(k, slice(0, n), torch.maximum(state.reference[k][:n], (top * of.scale).ceil()))
    power = _powers(kept.score * of.scale - state.reference[k][query].double())
    for line, values in zip(state.total[k], (power, power * kept.score, power.square()), strict=False):
        line.index_add_(0, query, values)
    state.total[k][3, :n] += torch.bincount(query, minlength=n)
    if of.known and state.noted[k] is not None:
        row, column = (query, kept.other)[:: 1 - 2 * k]
        state.limit[k].fill_(-torch.inf)  # was the floor
        some = (rounded > state.renew(k, slice(0, n))[query]).nonzero().flatten()
        state.note(k, [(row[some].int(), column[some].int(), rounded[some])])
    return Sums(of, state)


def _powers(exponents: Tensor) -> Tensor:
    """2**x, elementwise, (n,); bit-identical for any number of PyTorch threads."""
    padded = torch.nn.functional.pad(exponents, (0, -len(exponents) % LONGEST_VECTOR))
    return torch.cat([part.exp2() for part in padded.split(POWERS_AT_ONCE)])[: len(exponents)]


def limited(sums: Sums, asked: Sequence[Question], counted: Sequence[Counted]) -> list[Counted]:
    """Cap the answer to each question, of one direction, by the sums over the kept negatives, which are the hardest."""
    found = []
    for k, (question, each) in enumerate(zip(asked, counted, strict=True)):
        ends = (each.number + sign * each.uncertain for sign in (0, -1, 1))
        number, least, most = (torch.minimum(end.clamp(min=0), sums.number(k)) for end in ends)
        uncertain = torch.maximum(number - least, most - number)
        found.append(Counted(number, uncertain, torch.minimum(each.mass, question.share)))
    return found
