"""Small networks with one proxy per class, trained with several seeds at once.

Each seed has its own network, proxies, batches and random numbers, so that up to rounding it ends where it would end
alone; together they need a few large products instead of many small ones.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from cocos import Embeddings, Pairs, engine
from cocos.embeddings import similarities
from cocos.embeddings.sampling import Batch
from cocos.engine import readers
from cocos.measures.shared import retrieval

__all__ = ["Networks", "one_thread", "recall", "trained"]


@contextmanager
def one_thread():
    """Run on one thread, so that sums have one order and the data the same bytes on any number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True, eq=False)
class Networks:
    """Networks with one hidden layer, one per seed, and the proxies of the classes.

    Args:
        layers: weights (S, F, H), biases (S, 1, H), weights (S, H, D), biases (S, 1, D).
        proxy: (S, C, D).
    """

    layers: tuple[Tensor, Tensor, Tensor, Tensor]
    proxy: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        """Embed rows, (S, N, F), or the same rows for all seeds, (N, F): (S, N, D)."""
        first, bias, second, shift = self.layers
        hidden = torch.baddbmm(bias, rows.expand(len(first), -1, -1), first).relu()
        return torch.baddbmm(shift, hidden, second)

    @torch.no_grad()
    def embedded(self, rows: Tensor, labels: Tensor, proxies: bool) -> list[Embeddings]:
        """Embeddings of rows, (N, F), one per seed: samples that query the proxies, or each other."""
        found = zip(self(rows), self.proxy.clone(), strict=True)
        return [Embeddings.labelled(each, labels, proxy if proxies else None) for each, proxy in found]


def _begun(features: int, classes: int, generators, *, hidden: int, width: int, spread: float) -> Networks:
    def normal(*shape: int, size: float) -> Tensor:
        return torch.stack([size * torch.randn(shape, generator=each) for each in generators]).requires_grad_()

    seeds = len(generators)
    layers = (
        normal(features, hidden, size=(2 / features) ** 0.5),
        torch.zeros(seeds, 1, hidden, requires_grad=True),
        normal(hidden, width, size=hidden**-0.5),
        torch.zeros(seeds, 1, width, requires_grad=True),
    )
    return Networks(layers, normal(classes, width, size=spread))


def trained(
    loss,
    rows: Tensor,
    labels: Tensor,
    *,
    seeds: Sequence[int],
    epochs: int,
    hidden: int = 256,
    width: int = 32,
    batch: int = 170,
    rate: float = 4e-3,
    proxy_rate: float = 4e-2,
    spread: float = 1.0,
) -> Iterator[Networks]:
    """The networks before the first epoch and after each one: the same, trained on, until a score is no number.

    Args:
        loss: of the shelf, one that couples nothing but the candidates of a query.
        rows: (V, N, F), each sample in V views; one of them, drawn anew, is shown in an epoch.
        labels: (N,) from 0.
        seeds: of the networks.
        epochs: number of passes.
        hidden: width of the hidden layer.
        width: of the embeddings.
        batch: samples in one step of Adam.
        rate: of Adam, for the layers.
        proxy_rate: of Adam, for the proxies.
        spread: standard deviation of the coordinates of the first proxies.

    Raises:
        ValueError: queries of one seed would be coupled with those of another.
    """
    if loss.couples != "query":
        raise ValueError(
            f"{loss}: couples {loss.couples}, and only seeds whose queries are apart can be trained at once"
        )
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    positive = torch.nn.functional.one_hot(labels).bool()
    networks = _begun(rows.shape[2], positive.shape[1], generators, hidden=hidden, width=width, spread=spread)
    groups = [{"params": networks.layers, "lr": rate}, {"params": [networks.proxy], "lr": proxy_rate}]
    steps, score = torch.optim.Adam(groups, fused=True), similarities.METRICS[loss.metric]
    yield networks
    for _ in range(epochs):
        order = torch.stack([torch.randperm(len(labels), generator=each) for each in generators])
        view = torch.stack([torch.randint(len(rows), (len(labels),), generator=each) for each in generators])
        for some, seen in zip(order.split(batch, dim=1), view.split(batch, dim=1), strict=True):
            both = zip(networks(rows[seen, some]), networks.proxy, strict=True)
            found = torch.cat([score(query, proxy) for query, proxy in both])
            if not found.isfinite().all():
                return
            value = loss(Pairs(found, positive[some].flatten(0, 1))).sum() / some.shape[1]
            steps.zero_grad()
            value.backward()
            steps.step()
        yield networks


def recall(embeddings: Embeddings, metric: str) -> float:
    """R@1 in percent: how often the nearest other sample has the same class."""
    every = torch.arange(len(embeddings.query))
    view = engine.view(embeddings, Batch(every, every, paired=False), metric=metric)
    ((ranked,),) = engine.run(view, [readers.Ranks()])
    return retrieval.metrics(ranked, (1,))["R@1"]
