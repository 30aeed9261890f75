"""A monitor reads rows of a queue as a source of their own: by name, and of a module with a queue."""

import pytest
import torch

import cocos
from cocos import losses
from cocos.monitor import queues

ROWS, KEPT, WIDTH = 8, 24, 6
NTXENT = losses.load("ntxent", {"temperature": 0.2})


def rows(seed, number=ROWS):
    made = torch.randn(number, WIDTH, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(made, dim=1)


def push_fraction(scores, positive, first):
    """Part of the push on the candidates from `first` on, from the closed form of the softmax."""
    push = NTXENT.weight(cocos.Pairs(scores, positive)).masked_fill(positive, 0).sum(dim=0)
    return float(push[first:].sum() / push.sum())


def test_a_loss_by_its_name_reads_a_queue():
    query, candidate, queue = rows(0), rows(1), rows(2, KEPT)
    with cocos.Monitor(NTXENT) as monitor:
        monitor(query, candidate, queue=queue)
        (record,) = monitor.records
    found = record["directions"]["q2c"]
    scores = query @ torch.cat([candidate, queue]).T
    expected = push_fraction(scores, torch.eye(ROWS, ROWS + KEPT).bool(), ROWS)
    assert found["negatives_queue"] == KEPT
    assert found["push_queue"] == pytest.approx(expected, rel=1e-5)
    assert not record["directions"]["c2q"].get("negatives_queue")


class Moco(torch.nn.Module):
    """Momentum contrast, as its authors write it: the positive in front, then the queue, which is written in turn."""

    def __init__(self):
        super().__init__()
        self.register_buffer("queue", rows(9, KEPT).T.clone())
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    def forward(self, query, key):
        scores = torch.cat([(query * key).sum(1, keepdim=True), query @ self.queue.clone()], dim=1) / 0.2
        place = int(self.queue_ptr)
        self.queue[:, place : place + len(key)] = key.detach().T
        self.queue_ptr[0] = (place + len(key)) % self.queue.shape[1]
        return torch.nn.functional.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))


def test_the_candidates_of_a_module_behind_its_positives_are_its_queue():
    module = Moco()
    with cocos.Monitor(module) as monitor:
        for step in range(4):
            module(rows(20 + step).requires_grad_(), rows(40 + step)).backward()
    for record in monitor.records:
        (found,) = record["directions"].values()
        assert found["negatives_queue"] == KEPT and found["push_queue"] == pytest.approx(1)


def test_a_module_without_a_write_position_has_no_queue():
    assert queues.of_module(torch.nn.Linear(2, 2)) is None
    assert queues.of_module(Moco())() == KEPT
