"""Preferences: differences of log-probabilities of a chosen and a rejected answer, less those of a reference model."""

import torch
from torch import Tensor

from cocos.base.errors import InputError
from cocos.embeddings.scores import Pairs
from cocos.losses._differences import Differences


def log_sigmoid(values: Tensor) -> Tensor:
    """Compute log σ(x), elementwise, accurate at both ends."""
    return -torch.logaddexp(-values, torch.zeros_like(values))


class Preferences(Differences):
    """A loss of β h, with h the difference of log-probabilities less that of the reference model."""

    beta: float

    def compared(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Log-probabilities less the reference's, and the pairs that have both, (Q, C) each."""
        if pairs.teacher is None:
            raise InputError(
                f"{type(self).__module__.rpartition('.')[2]} reads log-probabilities of a reference model, and there "
                "are none: give reference_chosen and reference_rejected, or teacher, of the shape of the scores"
            )
        reference = pairs.teacher.to(pairs.scores.dtype)
        return pairs.scores - reference.nan_to_num(), ~reference.isnan()

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a rejected answer that certainly wins against every chosen one, (Q, 1): β|P|."""
        return self.beta * pairs.positives()
