"""ProxyNCA: draw to the own proxy, and away from a softmax of the others."""

from dataclasses import dataclass

from cocos.base.ranges import Positive
from cocos.losses.families.decoupled import Decoupled


@dataclass(frozen=True)
class ProxyNCA(Decoupled):
    r"""Squared distance to each positive against the log-sum over the negatives, summed over the positives.

    .. math::
        \ell(d) = -\sum_{p \in P} \log \frac{e^{-\lambda d_p^2}}{\sum_{n \in N} e^{-\lambda d_n^2}}

    P are the positives of the query (the proxy of its class), N its negatives (the other proxies), and d² the squared
    distances, minus the score; the paper has embeddings and proxies of unit length. The positive is *not* in the
    denominator: its pull is the same at every distance, and the loss has no lower bound.

    Args:
        scale: λ, in units of 1/score. The paper has none; 9 (both sides times 3) is from the published code of
            ProxyNCA++.

    Counts: negatives with a softmax probability above eps among the negatives; unit λ|P|.
    Net: push equals pull for every query: λ for each positive.
    Source: Movshovitz-Attias et al. 2017, No fuss distance metric learning using proxies, arXiv:1703.07464.

    Examples:
        The positive is not in its own denominator: it always pulls with its whole unit.

        >>> pairs = cocos.Pairs(torch.tensor([[-1.0, -1.0, -1.0]]), torch.tensor([[True, False, False]]))
        >>> loss = cocos.losses.load("proxynca")
        >>> loss.weight(pairs) / loss.unit(pairs)
        tensor([[-1.0000,  0.5000,  0.5000]])
    """

    scale: Positive = 9.0
    metric = "squared_euclidean"
    family = "proxy"
