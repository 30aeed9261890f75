"""A monitor says how old the rows of a queue are that the push is on: by name, and of a module with a queue."""

import numpy as np
import pytest
import torch

import cocos
from cocos import InputError, losses
from cocos.monitor import queues
from cocos.results.records import AGE_STEPS

ROWS, KEPT, WIDTH = 8, 24, 6
NTXENT = losses.load("ntxent", {"temperature": 0.2})


def rows(seed, number=ROWS):
    made = torch.randn(number, WIDTH, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(made, dim=1)


def parts(query, candidate, queue, ages):
    """Part of the push on rows at least as old, from the closed form of the softmax."""
    scores = query @ torch.cat([candidate, queue]).T
    positive = torch.eye(len(query), scores.shape[1]).bool()
    push = NTXENT.weight(cocos.Pairs(scores, positive)).masked_fill(positive, 0).sum(dim=0)
    every = torch.cat([torch.zeros(len(candidate), dtype=ages.dtype), ages])
    return {step: float(push[every >= step].sum() / push.sum()) for step in AGE_STEPS} | {
        "mean": float((push * every).sum() / push.sum())
    }


def check(found, expected):
    for step in AGE_STEPS:
        assert found[f"push_since_{step}"] == pytest.approx(expected[step], abs=1e-6)
    assert found["push_age"] == pytest.approx(expected["mean"], rel=1e-5)


def test_a_loss_by_its_name_reads_a_queue():
    query, candidate, queue = rows(0), rows(1), rows(2, KEPT)
    ages = torch.arange(KEPT) // 4 + 1
    with cocos.Monitor(NTXENT) as monitor:
        monitor(query, candidate, queue=(queue, ages))
        (record,) = monitor.records
    found = record["directions"]["q2c"]
    check(found, parts(query, candidate, queue, ages))
    assert found["negatives_queue"] == KEPT
    assert found["push_queue"] == pytest.approx(found["push_since_1"])
    assert "push_age" not in record["directions"]["c2q"]
    counted = cocos.measures.count(cocos.Embeddings(query, candidate, queue=(queue, ages)), NTXENT, batch_size="all")
    whole = float(counted["source_push"].sel(direction="q2c").sum())
    old = counted["age_push"].sel(direction="q2c", age=[4]).sum()
    assert found["push_since_4"] == pytest.approx(float(old) / whole, rel=1e-5)


class Moco(torch.nn.Module):
    """Momentum contrast, as its authors write it: the positive in front, then the queue, which is written in turn."""

    def __init__(self, pointer=True):
        super().__init__()
        self.register_buffer("queue" if pointer else "memory", rows(9, KEPT).T.clone())
        self.register_buffer("queue_ptr" if pointer else "at", torch.zeros(1, dtype=torch.long))
        self.kept = [("queue", "queue_ptr"), ("memory", "at")][not pointer]

    def forward(self, query, key):
        held, at = (getattr(self, name) for name in self.kept)
        scores = torch.cat([(query * key).sum(1, keepdim=True), query @ held.clone()], dim=1) / 0.2
        place = int(at)
        held[:, place : place + len(key)] = key.detach().T
        at[0] = (place + len(key)) % held.shape[1]
        return torch.nn.functional.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))


def trained(module, monitor, steps=6):
    """Some steps; what the queue held and its ages at the last one, and its batch."""
    for step in range(steps):
        query, key = rows(20 + step).requires_grad_(), rows(40 + step)
        held = getattr(module, module.kept[0]).T.clone()
        module(query, key).backward()
    written = [torch.arange(KEPT) // ROWS == (step % 3) for step in range(steps - 1)]
    ages = torch.zeros(KEPT, dtype=torch.long)
    for own in written:
        ages = torch.where(own, 1, ages + 1)
    return query.detach(), key, held, ages, monitor.records[-1]["directions"]


@pytest.mark.parametrize("pointer", [True, False])
def test_a_module_with_a_queue_says_how_old_its_rows_are(pointer):
    module = Moco(pointer)
    given = None if pointer else lambda: (torch.arange(KEPT) // ROWS + 1).flip(0) // 1
    monitor = cocos.Monitor(module, ages=given)
    query, key, held, ages, directions = trained(module, monitor)
    monitor.close()
    (found,) = directions.values()
    ages = ages if pointer else given()
    scores = torch.cat([(query * key).sum(1, keepdim=True), query @ held.T], dim=1)
    positive = torch.zeros_like(scores, dtype=torch.bool)
    positive[:, 0] = True
    push = NTXENT.weight(cocos.Pairs(scores, positive)).masked_fill(positive, 0).sum(dim=0)[1:]
    expected = {step: float(push[ages >= step].sum() / push.sum()) for step in AGE_STEPS}
    check(found, expected | {"mean": float((push * ages).sum() / push.sum())})
    data = monitor.dataset()
    assert data["push_age"].attrs["units"] == "steps"
    np.testing.assert_allclose(data["push_since_2"].values[-1].max(), expected[2], atol=1e-6)


def test_a_pointer_gives_ages_once_it_has_moved():
    module = Moco()
    ages = queues.pointed(module)
    assert ages() is None
    for expected in ([1, 3, 2], [2, 1, 3], [3, 2, 1], [1, 3, 2]):
        module(rows(0), rows(1))
        assert ages().view(3, ROWS)[:, 0].tolist() == expected
    assert queues.pointed(torch.nn.Linear(2, 2)) is None


@pytest.mark.parametrize("wrong", [torch.ones(KEPT), -torch.ones(KEPT, dtype=torch.long), torch.ones(2, 2).long()])
def test_ages_that_are_none_are_refused(wrong):
    query, candidate, queue = rows(0), rows(1), rows(2, KEPT)
    with pytest.raises(InputError, match="queue_age"):
        cocos.Monitor("ntxent")(query, candidate, queue=(queue, wrong))
    seen = cocos.Monitor(NTXENT)._named.seen(cocos.Embeddings(query, candidate))[0]
    with pytest.raises(InputError, match="whole numbers of steps"):
        queues.aged(seen, wrong)
