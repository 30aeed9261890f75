"""gBCE: binary cross-entropy of recommenders, calibrated for the negatives that were not sampled."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from cocos.base.ranges import Range, whole
from cocos.embeddings.scores import Pairs
from cocos.losses.base import Loss


@dataclass(frozen=True)
class GBCE(Loss):
    r"""Binary cross-entropy of a query's positives and sampled negatives, with a weaker pull of the positives.

    .. math:: \ell(s) = \frac{1}{|N| + 1} \Bigl[ -\beta \sum_{p \in P} \log \sigma(s_p)
        - \sum_{n \in N} \log(1 - \sigma(s_n)) \Bigr], \quad
        \beta = t (\alpha - 1) + 1, \quad \alpha = \frac{|N|}{I - 1}

    P are the positives of the query, N its sampled negatives and s their scores; I is the number of items of the
    catalogue and α the part of its negatives that is sampled. Few negatives make a model overconfident, since most of
    the push is missing: β takes as much of the pull away.

    Args:
        calibration: t; 0 is plain binary cross-entropy, 1 gives the probabilities of the whole catalogue; 0.75 as in
            the paper.
        catalogue: I, the number of items; None: the candidates of the batch are all of them, so that α and β are 1.

    Counts: negatives with a probability σ(s) above eps of being a positive; unit 1/(|N| + 1).
    Net: pull and push follow their own pairs.
    Source: Petrov & Macdonald 2023, gSASRec: Reducing Overconfidence in Sequential Recommendation Trained with Negative
        Sampling, arXiv:2308.07192, with its β(t); the mean over the positive and its negatives from its code.

    Examples:
        Two of four negatives are sampled, α = 1/2, and with t = 1 the positive has half of its pull:

        >>> pairs = cocos.Pairs(torch.tensor([[0.0, 0.0, 0.0]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("gbce", {"calibration": 1, "catalogue": 5})
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.2500,  0.5000,  0.5000]])
    """

    calibration: Annotated[float, Range("from 0 to 1", lambda value: 0 <= value <= 1)] = 0.75
    catalogue: Annotated[int, whole(2)] | None = None
    metric = "dot"
    share = "probability"
    family = "pair"
    aliases = {
        "generalised binary cross-entropy": {},
        "gSASRec": {},
        "BCE of recommenders": {"calibration": 0},
    }

    def _numbers(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Factor β of the pull, and the number of negatives and one, (Q, 1) each."""
        number = pairs.negative.sum(dim=1, keepdim=True).to(pairs.scores.dtype)
        part = torch.ones_like(number) if self.catalogue is None else (number / (self.catalogue - 1)).clamp(max=1)
        return self.calibration * (part - 1) + 1, number + 1

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in nats; a query may have positives or negatives only."""
        calibrated, number = self._numbers(pairs)
        signed = torch.where(pairs.positive, -pairs.scores, pairs.scores)
        terms = torch.logaddexp(signed, torch.zeros_like(signed)) * torch.where(pairs.positive, calibrated, 1)
        return (torch.where(pairs.positive | pairs.negative, terms, 0) / number).sum(dim=1)

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C), by closed form.

        Positives :math:`-\beta \sigma(-s_p) / (|N| + 1)`, negatives :math:`\sigma(s_n) / (|N| + 1)`.
        """
        calibrated, number = self._numbers(pairs)
        pull = torch.where(pairs.positive, calibrated * (-pairs.scores).sigmoid(), 0)
        return (torch.where(pairs.negative, pairs.scores.sigmoid(), 0) - pull) / number

    def unit(self, pairs: Pairs) -> Tensor:
        """Return the weight of a negative that is surely taken for a positive, (Q, 1): 1/(|N| + 1)."""
        return 1 / self._numbers(pairs)[1]
