"""Counts and evaluations on a device that is not the host: equal to the host's, and nothing on two devices."""

import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import cocos
import pretended
from benchmarks import __main__ as benchmark
from benchmarks import child, host
from benchmarks.cases import selected
from cocos import Embeddings, losses, measures
from cocos.engine import devices
from cocos.losses.external.guard import seeded

DEVICE = pretended.DEVICE
HOUSE = Path(cocos.__file__).parent
# A softmax, one of several positives, a hinge, sigmoids, a cut-off among the negatives, a loss without a reader, and a
# warp, at whose bends the error of a share has no bound.
LOSSES = ("ntxent", "supcon", "triplet", "smoothap", "ce_softmax", "snm", "circle", "warped_softmax")


def pairs(size=48):
    generator = torch.Generator().manual_seed(7)
    query = torch.randn(size // 2, 12, generator=generator)
    group = torch.arange(size) % len(query)
    candidate = query[group] + torch.randn(size, 12, generator=generator)
    return Embeddings(query, candidate, torch.arange(len(query)), group)


def classes(size=48):
    generator = torch.Generator().manual_seed(8)
    label = torch.arange(size) % 12
    centre = torch.randn(12, 12, generator=generator)
    return centre, centre[label] + torch.randn(size, 12, generator=generator), label


def labelled():
    _, sample, label = classes()
    return Embeddings.labelled(sample, label)


def proxies():
    centre, sample, label = classes()
    return Embeddings(sample, centre, label, torch.arange(len(centre)), directions=("s2p",))


def same(one, other):
    """Two Datasets hold the same: counts to the bit, and shares as near as float32 makes them."""
    assert not host.differences(one, other)


@pytest.mark.parametrize(
    ("sides", "loss"),
    [(pairs, loss) for loss in LOSSES] + [(sides, loss) for sides in (labelled, proxies) for loss in LOSSES[::2]],
)
def test_counts_are_the_hosts(sides, loss):
    embeddings = sides()
    there = pretended.moved(embeddings)
    assert there.query.device == there.candidate_group.device == DEVICE
    for size in (16, 1000):
        expected = measures.count(embeddings, loss, batch_size=size)
        found = measures.count(there, loss, batch_size=size)
        assert found.attrs["device"] == "pretended" and (expected["contributing"] > 0).any()
        same(expected, found)


@pytest.mark.parametrize("sides", [pairs, labelled, proxies])
def test_evaluation_is_the_hosts(sides):
    embeddings = sides()
    same(measures.evaluate(embeddings), measures.evaluate(pretended.moved(embeddings)))


@pytest.mark.parametrize("how", ["chunks=4", "ranks=2,gather=detached", "accumulate=2", "temperature=0.05"])
def test_gradients_of_two_losses_are_the_hosts(how):
    embeddings = pairs()
    given = Embeddings(embeddings.query, embeddings.candidate[:24], negatives=torch.arange(24).roll(3)[:, None])
    options = {"batch_size": 16, "batches": 2}
    expected = measures.same_gradient("ntxent", f"ntxent@{how}", given, **options)
    found = measures.same_gradient("ntxent", f"ntxent@{how}", pretended.moved(given), **options)
    assert found.attrs["verdict"] == expected.attrs["verdict"]
    same(expected, found)


def test_tensors_are_made_where_they_are_asked_for():
    generator = torch.Generator().manual_seed(0)
    host = torch.randn(3, 4, generator=generator)
    there = host.to(DEVICE)
    made = [torch.zeros(3, device=DEVICE), torch.arange(2, 9, 3, device=DEVICE), torch.eye(2, device=DEVICE)]
    made += [torch.tensor([1, 2], device=DEVICE), there.new_full((2,), 3.0), torch.randperm(5, device=DEVICE)]
    made += [
        torch.empty_like(there),
        torch.randn(2, device=there.device),
        there @ there.T,
        there[1],
        there.T,
        there + 1,
    ]
    assert all(each.device == DEVICE and not each.is_cpu and not each.is_cuda for each in made)
    assert made[1].shape == (3,) and made[1].tolist() == [2, 5, 8] and made[3].tolist() == [1, 2]
    assert torch.equal(there.cpu(), host) and there.T.stride() == host.T.stride()
    there[1] += 1
    assert torch.equal(there[1].cpu(), host[1] + 1)


def test_gradients_are_computed_there():
    host = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))

    def loss(x):
        return torch.logsumexp(x @ x.T, dim=1).sum()

    for grad in (torch.func.grad(loss)(host.to(DEVICE)), torch.func.vmap(torch.func.grad(loss))(host[None].to(DEVICE))):
        assert grad.device == DEVICE and torch.allclose(grad.cpu().squeeze(0), torch.func.grad(loss)(host))
    leaf = host.to(DEVICE).requires_grad_()
    loss(leaf).backward()
    assert torch.allclose(leaf.grad.cpu(), torch.func.grad(loss)(host))


@pytest.mark.parametrize(
    "mixed",
    [
        lambda here, there: here + there,
        lambda here, there: there @ here.T,
        lambda here, there: torch.cat([here, there]),
        lambda here, there: torch.where(here > 0, there, 0),
        lambda here, there: here.add_(there),
        lambda here, there: torch.maximum(there, there, out=here),
        lambda here, there: there.gather(0, torch.zeros(1, 4, dtype=torch.int64)),
        lambda here, there: here[torch.zeros(2, dtype=torch.int64, device=DEVICE)],
        lambda here, there: torch.rand(2, device=DEVICE, generator=torch.Generator()),
        lambda here, there: np.asarray(there),
        lambda here, there: there.numpy(),
        lambda here, there: there.data_ptr(),
        lambda here, there: there.untyped_storage().data_ptr(),
    ],
)
def test_what_a_card_refuses_is_refused(mixed):
    with pytest.raises((RuntimeError, TypeError)):
        mixed(torch.ones(3, 4), torch.ones(3, 4, device=DEVICE))


def test_a_single_number_of_the_host_may_take_part():
    there = torch.ones(3, 4, device=DEVICE)
    with pretended.waits() as noted:
        assert (there + torch.tensor(1.0)).device == DEVICE
        there[there > 0] = 2.0  # a mask and a number: filled, not counted
    assert noted == []


WAITING = [
    lambda there: there.sum().item(),
    lambda there: there.tolist(),
    lambda there: bool(there.any()),
    lambda there: float(there.max()),
    lambda there: there.nonzero(),
    lambda there: there[there > 0],
    lambda there: there.masked_select(there > 0),
    lambda there: there.cpu(),
    lambda there: there.to("cpu", non_blocking=True),
    lambda there: there.unique(),
    lambda there: torch.repeat_interleave(there.long()),
    lambda there: torch.bincount(there.long()),
    lambda there: torch.equal(there, there),
    lambda there: torch.zeros(3).copy_(there),
    lambda there: there.index_put_((there > 0,), torch.ones(3, device=DEVICE)),
]


@pytest.mark.parametrize("waiting", WAITING)
def test_a_wait_is_noted_with_its_place(waiting):
    there = torch.ones(3, device=DEVICE)
    with pretended.waits() as noted:
        waiting(there)
    assert len(noted) == 1 and not noted[0].upload and noted[0].place == "outside of cocos"
    with pretended.waits() as noted:
        Embeddings(there[:, None], there[:, None])
    assert noted and {each.place.partition(":")[0] for each in noted} <= {"embeddings/__init__.py", "base/matrices.py"}


def test_copies_to_the_device_are_noted_apart():
    with pretended.waits() as noted:
        torch.ones(3).to(DEVICE)
        torch.tensor([1, 2], device=DEVICE)
        torch.ones(3, device=DEVICE)[torch.tensor([1, 2])]
    assert [each.upload for each in noted] == [True] * 3
    with pretended.waits() as noted:
        torch.ones(3).to(DEVICE, non_blocking=True)
        there = torch.full((3,), 2.0, device=DEVICE).scatter_(0, torch.arange(3, device=DEVICE), 1.0)
        torch.repeat_interleave(there, torch.full((3,), 2, device=DEVICE), output_size=6)
        there.cumsum(0).sort().values.topk(2)
    assert noted == []


def test_random_choices_of_a_loss_are_the_same_in_every_call_and_change_no_others():
    before, drawn = torch.get_rng_state(), []
    for _ in range(2):
        with seeded(DEVICE):
            drawn.append(torch.rand(4, device=DEVICE))
    assert torch.equal(*drawn) and torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_products_are_rounded_as_the_bounds_say(precision):
    """A process that trains with lower precision does not lower that of a pass; its own setting is kept."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(256, 256, generator=generator) for _ in range(2))
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(precision)
        with devices.rounding():
            error = (left @ right - left.double() @ right.double()).abs().max()
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)
    assert error < 1e-3


@pytest.mark.parametrize("loss", ["ntxent", "circle"])
def test_counts_in_float32_do_not_depend_on_the_precision_of_the_process(loss):
    """A CPU with AMX multiplies float32 in bfloat16 where a process that trains says `medium`."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(300, 256, generator=generator)
    embeddings = Embeddings(query, query + 2 * torch.randn(300, 256, generator=generator))
    expected = measures.count(embeddings, loss, batch_size=300, dtype="float32")
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        found = measures.count(embeddings, loss, batch_size=300, dtype="float32")
    finally:
        torch.set_float32_matmul_precision(before)
    assert expected.equals(found)


def test_capabilities_are_asked_of_the_device():
    assert devices.ahead(DEVICE) and not devices.ahead(torch.device("cpu"))
    assert devices.memory(DEVICE) == 2**31 and devices.memory(torch.device("cpu")) > 2**28
    assert devices.tile(DEVICE) == devices.DEVICE_TILE and 4 * devices.DEVICE_TILE[0] * devices.DEVICE_TILE[1] == 2**25


def test_no_device_is_known_by_its_name():
    """What is meant is a capability, and `devices` names it; the option --device is the only name that is read."""
    named = re.compile(r"device\.type\s*(==|!=|in|not in)\s|\.is_(cuda|cpu|mps)\b|pin_memory|torch\.cuda\.mem_get")
    files = [path for folder in ("engine", "losses", "measures") for path in (HOUSE / folder).rglob("*.py")]
    assert {path.name for path in files if named.search(path.read_text())} == {"devices.py", "units.py"}


class Event:
    """The clock of a card."""

    def __init__(self, enable_timing):
        self.at = 0.0

    def record(self):
        self.at = time.perf_counter()

    def elapsed_time(self, end):
        return 1e3 * (end.at - self.at)


@pytest.mark.slow
def test_the_benchmark_of_a_card_runs_to_its_end(tmp_path, monkeypatch, capsys):
    """`python -m benchmarks --device cuda` on small inputs, in this process, where `cuda` is the pretended device."""
    for name, value in {
        "is_available": lambda: True,
        "get_device_name": lambda: "a card",
        "Event": Event,
        "synchronize": lambda: None,
        "memory_allocated": lambda: 0,
        "max_memory_allocated": lambda: 2**20,
        "reset_peak_memory_stats": lambda: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    few = {
        case.name: replace(
            case,
            device=str(DEVICE),
            inputs=replace(case.inputs, queries=48, width=16, batches=min(2, case.inputs.batches)),
        )
        for case in selected("cuda", [], cuda=True)
    }
    tasks = {
        "machine": child.machine,
        "times": lambda name, clock, _: child.times(few[name], clock, 1),
        "memory": lambda name, row: child._memory(few[name], row),
    }
    monkeypatch.setattr(benchmark, "child", lambda task, *names, **_: json.loads(json.dumps(tasks[task](*names))))
    monkeypatch.setattr(host, "losses", SimpleNamespace(names=lambda: ["ntxent", "siglip", "bpr"], load=losses.load))
    for name, value in {"ROWS": 48, "SIZES": (16,), "LARGE": 300, "LARGE_WIDTH": 16}.items():
        monkeypatch.setattr(host, name, value)
    for each in (host.checks, host.speed):
        monkeypatch.setattr(host, each.__name__, lambda _, made=each: made(str(DEVICE)))
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--device", "cuda", "--json", str(tmp_path / "found.json")])
    with pytest.raises(SystemExit):  # 1 where a bar of time is missed
        benchmark.main()
    said, found = capsys.readouterr().out, json.loads((tmp_path / "found.json").read_text())
    assert "comparisons with the host agree" in said and "equal counts" in said and "bars reached" in said
    assert "DIFFERS" not in said and "COUNTS DIFFER" not in said
    assert found["cases"].keys() == few.keys() == {"cuda-128", "cuda-8192", "cuda"}
    for case in found["cases"].values():
        assert all("refused" not in row and row["seconds"] for row in case.values()), case
