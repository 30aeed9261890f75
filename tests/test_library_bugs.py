"""Three bugs of public libraries, restated in a few lines: the corrected version has the same gradient, the bug not."""

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize, softplus

import cocos

PROCESSES = 2


def logits(query, candidate):
    return 10 * normalize(query, dim=-1) @ normalize(candidate, dim=-1).T


def gathered(query, candidate, negatives, *, by_process):
    """Softmax over columns gathered from processes: https://github.com/huggingface/sentence-transformers/pull/3453."""
    columns = [column.chunk(PROCESSES) for column in (candidate, *(() if negatives is None else negatives.unbind(1)))]
    rows = [part for parts in zip(*columns, strict=True) for part in parts] if by_process else sum(columns, ())
    return cross_entropy(logits(query, torch.cat(rows)), torch.arange(len(query)))


def every_process(query, candidate, *, factor):
    """Full loss per process: https://github.com/KevinMusgrave/pytorch-metric-learning/issues/363.

    Only the rows of a process have a gradient, and the gradients of all processes are averaged.
    """
    losses = []
    for part in torch.arange(len(query)).chunk(PROCESSES):
        mine = torch.isin(torch.arange(len(query)), part)[:, None]
        sides = [torch.where(mine, side, side.detach()) for side in (query, candidate)]
        losses.append(factor * cross_entropy(logits(*sides), torch.arange(len(query))))
    return torch.stack(losses).mean()


def sigmoid(query, candidate, *, sign):
    """Pairwise sigmoid loss: https://github.com/illuin-tech/colpali/pull/382."""
    scores = logits(query, candidate)
    return softplus(sign * torch.where(torch.eye(len(scores), dtype=torch.bool), scores, -scores)).sum() / len(scores)


def misaligned(query, candidate, negatives=None):
    return gathered(query, candidate, negatives, by_process=True)


def aligned(query, candidate, negatives=None):
    return gathered(query, candidate, negatives, by_process=False)


def averaged(query, candidate):
    return every_process(query, candidate, factor=1)


def multiplied(query, candidate):
    return every_process(query, candidate, factor=PROCESSES)


def upside_down(query, candidate):
    return sigmoid(query, candidate, sign=1)


def upright(query, candidate):
    return sigmoid(query, candidate, sign=-1)


CASES = {  # reference, bug, corrected version, ratio of the bug's gradient as documented in docs/howto/same_gradient.md
    "sentence-transformers": ("ntxent", misaligned, aligned, 0.48),
    "pytorch-metric-learning": ("ntxent", averaged, multiplied, 0.5),
    "colpali": ("siglip@bias=0", upside_down, upright, -0.43),
}


@pytest.mark.parametrize("library", CASES)
def test_library_bug_changes_the_gradient(library):
    reference, bug, corrected, ratio = CASES[library]
    attrs = cocos.measures.same_gradient(reference, bug).attrs
    assert not attrs["same"] and attrs["ratio"] == pytest.approx(ratio, abs=0.005)
    assert cocos.measures.same_gradient(reference, corrected).attrs["same"]
