"""Matches that the targets of a loss miss are found among its arguments; nothing else is touched."""

import torch
from torch.nn.functional import normalize

from cocos.monitor import directions


def rows(number, seed):
    return torch.randn(number, 6, generator=torch.Generator().manual_seed(seed))


ANCHOR, POSITIVE, NEGATIVE = rows(8, 0), rows(8, 1), rows(8, 2)


def gathered(first, second, devices=2):
    """Columns device by device."""
    parts = zip(first.chunk(devices), second.chunk(devices), strict=True)
    return normalize(torch.cat([each for pair in parts for each in pair]), dim=1)


def found(candidate, target, given=(ANCHOR, POSITIVE, NEGATIVE), query=ANCHOR):
    return directions.matches_of(normalize(query, dim=1), candidate, torch.as_tensor(target), given)


def test_a_target_that_points_to_another_row_is_put_right():
    positive = found(gathered(POSITIVE, NEGATIVE), range(8))
    assert positive.sum() == 8
    assert positive.int().argmax(dim=1).tolist() == [0, 1, 2, 3, 8, 9, 10, 11]


def test_targets_that_are_right_stay():
    assert found(torch.cat([POSITIVE, NEGATIVE]), range(8)) is None
    assert found(torch.cat([NEGATIVE, POSITIVE]), range(8, 16)) is None  # the positives are the third argument
    assert found(gathered(POSITIVE, NEGATIVE), [0, 1, 2, 3, 8, 9, 10, 11]) is None
    assert found(torch.cat([ANCHOR, POSITIVE]), range(8, 16), (ANCHOR, POSITIVE)) is None
    equal = torch.ones_like(POSITIVE)  # a collapsed model: every row is every other
    assert found(torch.cat([equal, equal]), range(8), (ANCHOR, equal, equal)) is None


def test_class_vectors_and_queues_are_no_matches():
    queue = rows(40, 3)
    assert found(queue, torch.arange(8) * 3, (ANCHOR, POSITIVE, queue)) is None
    assert found(queue[:8], torch.arange(8).flip(0), (ANCHOR, queue[:8])) is None
    assert found(queue, torch.arange(8), (POSITIVE, NEGATIVE)) is None  # the queries are none of the arguments
    assert found(gathered(POSITIVE, NEGATIVE), range(7)) is None
