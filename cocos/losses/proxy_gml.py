"""ProxyGML: the nearest proxies of all classes vote for a query's class."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cocos.base.ranges import Fraction
from cocos.embeddings.scores import Pairs, logsumexp, softmax
from cocos.losses.base import Loss


@dataclass(frozen=True)
class ProxyGML(Loss):
    r"""Cross-entropy of classes; the logit of a class is the sum of the similarities of its kept proxies.

    .. math::
        \ell(s) = -\log \frac{e^{S_y}}{\sum_{c : c \cap K \ne \emptyset} e^{S_c}}, \quad
        S_c = \sum_{k \in c \cap K} s_k, \quad |K| = \lceil r (|P| + |N|) \rceil

    The positives P of a query are its own class y, those of its negatives N that have one group another class c each
    (without groups every negative is its own class), and s are cosines. K contains the positives and then the
    nearest negatives, of equally near ones the first; no gradient flows through the choice. There is no temperature.
    The published code drops a class whose logit is exactly 0; here it stays. The paper's regulariser of the proxies
    carries no query and is left out.

    Args:
        ratio: r, the part of a query's candidates that is kept, above 0 and at most 1. The published code takes 0.05 of
            some 1200 proxies; the default of 0.3 is for smaller sets.

    Counts: kept negatives of classes with a softmax probability above eps; unit 1.
    Net: each kept proxy has the whole softmax error of its class, so push and pull differ by the numbers of
        kept proxies.
    Source: Zhu et al. 2020, Fewer is More, arXiv:2010.13636; form from its published code.
    """

    ratio: Fraction = 0.3
    share = "probability"
    family = "proxy"
    aliases = {"Proxy-Few": {}}

    def _subgraph(self, pairs: Pairs) -> Tensor:
        """The positives and the nearest negatives of each query, (Q, C) bool."""
        taking_part = pairs.positive | pairs.negative
        scores = pairs.scores.detach().masked_fill(~taking_part, -torch.inf).masked_fill(pairs.positive, torch.inf)
        rank = scores.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        number = taking_part.sum(dim=1, keepdim=True).double()
        return pairs.positive | (pairs.negative & (rank < (self.ratio * number - 1e-9).ceil()))  # 0.07 of 100 is 7

    def _classes(self, pairs: Pairs, in_subgraph: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Class of each pair, (Q, C), the query's own one last; and logits and presence of classes, (Q, G + 1)."""
        index, number = pairs.classes()
        present = index.new_zeros(len(index), number).scatter_add(1, index, in_subgraph.to(index.dtype)) > 0
        votes = torch.where(in_subgraph, pairs.scores, 0)
        return index, torch.zeros_like(present, dtype=votes.dtype).scatter_add(1, index, votes), present

    def value(self, pairs: Pairs) -> Tensor:
        """Return the loss of each query, (Q,), in nats; 0 for a query without a positive or without a kept negative."""
        _, logits, present = self._classes(pairs, self._subgraph(pairs))
        gap = logsumexp(logits[:, :-1], present[:, :-1]) - logits[:, -1:]
        return torch.where(present[:, -1:], torch.logaddexp(gap, torch.zeros_like(gap)), 0)[:, 0]

    def weight(self, pairs: Pairs) -> Tensor:
        r"""Return ∂ Σ value / ∂ score, (Q, C): :math:`e_c` on the kept proxies of class c, 0 on all others.

        :math:`e_c` is the softmax over the classes with a kept proxy, minus 1 for the own one.
        """
        in_subgraph = self._subgraph(pairs)
        index, logits, present = self._classes(pairs, in_subgraph)
        other_logits, class_logit = logits[:, :-1], logits[:, -1:]
        missing = torch.where(present[:, -1:], (logsumexp(other_logits, present[:, :-1]) - class_logit).sigmoid(), 0)
        error = torch.cat([missing * softmax(other_logits, present[:, :-1]), -missing], dim=1)
        return torch.where(in_subgraph, error.gather(1, index), 0)
