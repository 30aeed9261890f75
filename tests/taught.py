"""A teacher for the losses that need one, in tests that go through all losses."""

import dataclasses

import torch

from cocos import losses


def needs(loss):
    """Whether a loss reads the scores of a teacher."""
    return "teacher" in (losses.load(loss) if isinstance(loss, str) else loss).requires


def _scores(shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(8), dtype=torch.float64)


def embeddings(given, loss):
    """The same embeddings, with a teacher that has an opinion of its own where the loss needs one."""
    if not needs(loss):
        return given
    return given.replace(teacher=_scores((len(given.query), len(given.candidate))))


def pairs(given, loss):
    """The same pairs, with a teacher of the kind above."""
    return dataclasses.replace(given, teacher=_scores(given.scores.shape)) if needs(loss) else given
