"""CosFace: a softmax in which the positive must win by a margin of its cosine."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import NonNegative, Positive
from cocos.embeddings.scores import Pairs
from cocos.losses.base import SoftmaxLoss


@dataclass(frozen=True)
class CosFace(SoftmaxLoss):
    r"""Cross-entropy with a margin on the cosine of the positive, summed over the positives of a query.

    .. math::
        \ell(s) = -\sum_{p \in P} \log
        \frac{e^{\lambda (s_p - m)}}{e^{\lambda (s_p - m)} + \sum_{n \in N} e^{\lambda s_n}}

    P are the positives of the query (the proxy of its class), N its negatives (the other proxies) and s their cosines.
    The margin only moves the softmax: it does not bend the weights as an angular margin does.

    Args:
        scale: λ (s in the paper), in units of 1/score; 64 as in the paper.
        margin: m, in units of score; 0.35 as in the paper (0.4 in a widely used implementation).

    Counts: negatives with a softmax probability above eps, margin included; unit λ|P|.
    Net: push equals pull for every query.
    Source: Wang et al. 2018, CosFace, arXiv:1801.09414, eq. 4.

    Examples:
        A positive at 0.85 less the margin of 0.35 is level with two negatives at 0.5: the loss is ln 3.

        >>> pairs = cocos.Pairs(torch.tensor([[0.85, 0.5, 0.5]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("cosface")
        >>> loss(pairs)
        tensor([1.0986])
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-0.6667,  0.3333,  0.3333]])
    """

    scale: Positive = 64.0
    margin: NonNegative = 0.35
    balanced = True
    family = "margin"
    aliases = {
        "LMCL": {},
        "AM-Softmax": {},
        "additive cosine margin": {},
        "ElasticFace-Cos": {
            "margin": 0.35
        },  # margin redrawn per query with standard deviation 0.0125: arXiv:2109.09416
    }

    def logits(self, pairs: Pairs) -> tuple[Tensor, Tensor | float]:
        """Logits λ(s - m) of positives and λs of others, (Q, C), and their slope λ."""
        return self.scale * torch.where(pairs.positive, pairs.scores - self.margin, pairs.scores), self.scale
