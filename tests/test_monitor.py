"""`cocos.Monitor`: numbers that equal a count of the batch, in a training that stays as it is."""

import copy
import gc
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import cocos
from cocos import losses, measures, results
from cocos.base.errors import InputError
from cocos.counting import statistics
from cocos.monitor import calls, directions, readings, records
from cocos.monitor.calls import Seen

# Seeds of the generators of tests.
SEED = 5


class Similarity(torch.nn.Module):
    """Cross-entropy of both directions of cosines."""

    def forward(self, query, candidate):
        normalize, entropy = torch.nn.functional.normalize, torch.nn.functional.cross_entropy
        scores, rows = 20 * normalize(query) @ normalize(candidate).T, torch.arange(len(query))
        return (entropy(scores, rows) + entropy(scores.T, rows)) / 2


@pytest.fixture
def sides():
    """Embeddings of a batch of pairs, on the unit sphere."""
    draw = torch.Generator().manual_seed(SEED)
    query = torch.nn.functional.normalize(torch.randn(24, 8, generator=draw))
    return query, torch.nn.functional.normalize(query + 0.3 * torch.randn(24, 8, generator=draw))


@pytest.fixture
def labelled():
    draw = torch.Generator().manual_seed(SEED)
    labels = torch.arange(24) // 4
    return torch.randn(6, 8, generator=draw)[labels] + torch.randn(24, 8, generator=draw), labels


def counted(name, embeddings, batch_size):
    """The same numbers by `cocos.measures.count` of the whole set as one batch."""
    return cocos.measures.count(embeddings, name, batch_size=batch_size, batches=1, dtype="float64")


@pytest.mark.parametrize("name", ["ntxent", "triplet", "triplet_sh", "smoothap", "multi_similarity", "circle"])
def test_numbers_of_pairs_are_those_of_a_count(sides, name):
    monitor, sides = cocos.Monitor(name), [side.double() for side in sides]
    monitor(*sides, step=3)
    found = monitor.dataset()
    whole = counted(name, cocos.Embeddings(*sides), 24)
    for direction, other in zip(("q2c", "c2q"), whole["direction"].values, strict=True):
        one, more = found.sel(step=3, direction=direction), whole.sel(direction=other, batch=0)
        assert int(one["idle"]) == int(more["idle"])
        assert math.isclose(one["contributing"], more["contributing_all"], rel_tol=1e-9)
        for name in ("effective", "hardest_share", "weight_positive"):
            assert math.isclose(one[name], more[name], rel_tol=1e-6), name
    assert monitor.records[0]["step"] == 3 and monitor.records[0]["source"] == "closed form"


@pytest.mark.parametrize("name", ["supcon", "triplet", "multi_similarity", "contrastive"])
def test_numbers_of_a_labelled_batch_are_those_of_a_count(labelled, name):
    rows, labels = labelled[0].double(), labelled[1]
    monitor = cocos.Monitor(name)
    monitor(rows, groups=labels)
    monitor(rows, rows, labels.tolist())
    whole = counted(name, cocos.Embeddings.labelled(rows, labels), 24)
    found = monitor.dataset()["contributing"].values.ravel().tolist()
    assert found == [float(whole["contributing_all"].item())] * 2
    assert monitor.records[0]["directions"]["s2s"]["positives"] == 3


def test_the_value_is_the_loss_of_the_batch(sides):
    monitor = cocos.Monitor(losses.load("ntxent", {"temperature": 0.05}))
    monitor(*sides)
    logits = sides[0] @ sides[1].T / 0.05
    expected = torch.nn.functional.cross_entropy(logits, torch.arange(24))
    assert math.isclose(monitor.records[0]["value"], expected, rel_tol=1e-5)
    assert math.isclose(monitor.records[0]["scale"], 20)


def test_readings_of_where_the_rows_lie(sides):
    query, candidate = sides
    candidate = candidate.clone()
    candidate[3] = candidate[4] = candidate[5]
    monitor = cocos.Monitor("ntxent")
    monitor(query, candidate)
    found = monitor.records[0]
    cosines = (candidate @ candidate.T).double()
    others = cosines[~torch.eye(24, dtype=torch.bool)]
    assert found["duplicates"] == 2 and found["near_duplicates"] == 3
    assert math.isclose(found["similarity"], others.mean(), rel_tol=1e-5)
    assert math.isclose(found["uniformity"], (4 * (others - 1)).exp().mean().log(), rel_tol=1e-5)
    assert math.isclose(found["alignment"], (query - candidate).square().sum(dim=1).mean(), rel_tol=1e-5)
    values = torch.linalg.svdvals(candidate.double() - candidate.double().mean(dim=0))
    part = values / values.sum()
    assert math.isclose(found["rank"], torch.special.entr(part).sum().exp(), rel_tol=1e-4)


def test_a_sample_of_many_candidates_is_near_all_of_them():
    draw = torch.Generator().manual_seed(SEED)
    rows = torch.randn(2000, 16, generator=draw) + 0.5
    eye = torch.eye(2000, dtype=torch.bool)
    seen = Seen("q2c", rows @ rows.T, rows @ rows.T, eye, ~eye, query=rows, candidate=rows)
    found = readings.geometry(seen, torch.Generator().manual_seed(0))
    unit = torch.nn.functional.normalize(rows)
    assert math.isclose(found["similarity"], (unit @ unit.T).mean(), abs_tol=0.02)
    assert found["alignment"] == 0 and found["duplicates"] == 0


def seen_of(value, scores, query=None, candidate=None, **more):
    """One direction of a loss of the scores of pairs, as the tap delivers it."""
    scores = scores.clone().requires_grad_()
    loss = value(scores)
    loss.backward()
    eye = torch.eye(len(scores), dtype=torch.bool)
    given = {"value": loss.detach(), "query": query, "candidate": candidate} | more
    return Seen("q2c", scores.detach(), scores.grad, eye, ~eye, **given)


def read(seen, eps=0.01):
    return readings.of([seen], eps, torch.Generator().manual_seed(0))


def test_a_batch_of_several_blocks_is_read_as_one(monkeypatch):
    draw = torch.Generator().manual_seed(SEED)
    scores = 5 * torch.randn(50, 70, generator=draw)
    positive = torch.zeros(50, 70, dtype=torch.bool)
    positive[torch.arange(50), torch.arange(50)] = positive[:, 60] = True
    for unit in (None, torch.tensor([[2.0]]), torch.rand(50, 1, generator=draw) + 0.1):
        seen = Seen("q2c", scores, torch.randn(50, 70, generator=draw), positive, ~positive, unit=unit)
        whole = read(seen)["directions"]["q2c"]
        with monkeypatch.context() as patch:
            patch.setattr(readings, "CACHED_SCORES", 70 * 7)
            parts = read(seen)["directions"]["q2c"]
        assert parts == pytest.approx(whole, rel=1e-5)
        pairs = cocos.Pairs(scores, positive)
        size = torch.ones(1, 1) if unit is None else unit
        more = cocos.statistics.per_query(seen.weights, size, pairs)
        assert math.isclose(whole["relative"], more["relative"].double().mean(), rel_tol=1e-6)
        assert whole["unpushed"] == int((more["effective"] == 0).sum())
        if unit is None:
            assert not whole.keys() & set(records.BY_UNIT)
        else:
            assert math.isclose(whole["contributing"], more["contributing"].double().mean(), rel_tol=1e-6)
            assert whole["idle"] == int((more["contributing"] == 0).sum())
        for name in ("effective", "hardest_share", *(["weight_positive"] if unit is not None else [])):
            assert math.isclose(whole[name], more[name].mean(), rel_tol=1e-5), name
        negative, weights = ~positive, seen.weights.double()
        push = (weights * negative).clamp(min=0)
        expected = {
            "pulled_negatives": ((weights < 0) & negative).sum() / 50,
            "pushed_positives": ((weights > 0) & positive).sum() / 50,
            **({} if unit is None else {"weight_negative": (weights.abs() * negative / size).sum() / 50}),
            "hub_share": (push / push.sum(dim=1, keepdim=True)).mean(dim=0).max(),
            "positives": positive.sum() / 50,
        }
        assert {name: whole[name] for name in expected} == pytest.approx(
            {name: float(value) for name, value in expected.items()}, rel=1e-5
        )


@pytest.mark.parametrize("scale", [1e-30, 1e-42, 1e30])
def test_weights_of_any_size_are_read_alike(sides, scale):
    scores = sides[0] @ sides[1].T
    seen = seen_of(lambda s: torch.nn.functional.cross_entropy(20 * s, torch.arange(24)), scores)
    one, other = (
        read(each)["directions"]["q2c"]
        for each in (seen, Seen("q2c", scores, (seen.weights.double() * scale).float(), seen.positive, seen.negative))
    )
    assert other["effective"] == pytest.approx(one["effective"], rel=0.2 if scale < 1e-40 else 1e-4)
    assert other["unpushed"] <= 1  # a row may underflow as a whole


def test_gradients_that_half_precision_lost_are_counted(sides):
    scores = (sides[0] @ sides[1].T).half()
    eye = torch.eye(24, dtype=torch.bool)
    weights = torch.where(eye, -1.0, 1e-5).half()
    weights[:, 0] = torch.where(eye[:, 0], -1.0, 1e-3).half()
    weights[5] = 0
    seen = Seen("q2c", scores, weights, eye, ~eye)
    found = read(seen)
    assert found["zero"] == pytest.approx(23 / (24 * 23), rel=1e-6)
    small, large = 22 * 22 * 1e-5 + 23 * 1e-5, 22 * 1e-3
    assert found["subnormal"] == pytest.approx(small / (small + large), rel=0.02)
    scaled = Seen("q2c", scores, weights.float(), eye, ~eye, factor=torch.tensor(1024.0))
    assert read(scaled)["subnormal"] == 0
    assert "subnormal" not in read(Seen("q2c", scores.float(), weights.float(), eye, ~eye))


def test_candidates_of_this_process_and_of_others_are_told_apart(sides):
    seen = seen_of(lambda s: torch.nn.functional.cross_entropy(s, torch.arange(24)), sides[0] @ sides[1].T)
    own = torch.arange(24) < 6
    seen = Seen("q2c", seen.scores, seen.weights, seen.positive, seen.negative, local=own)
    found = read(seen)["directions"]["q2c"]
    push = seen.weights.clamp(min=0)
    assert found["push_own"] == pytest.approx(float(push[:, :6].sum() / push.sum()), rel=1e-5)
    pull = -seen.weights.diagonal()
    assert found["pull_own"] == pytest.approx(float(pull[:6].sum() / pull.sum()), rel=1e-5)
    assert read(seen)["gathered"] is True


def test_a_pair_that_takes_no_part_may_be_masked_by_infinity(sides):
    rows = torch.nn.functional.normalize(torch.cat(sides))
    eye = torch.eye(48, dtype=torch.bool)
    positive = torch.eye(48, dtype=torch.bool).roll(24, 0)
    scores = (rows @ rows.T).masked_fill(eye, -torch.inf)
    weights = scores.softmax(dim=1) - positive.float()
    clean = Seen("q2c", scores, weights, positive, ~positive & ~eye)
    assert read(clean)["finite"] and math.isfinite(read(clean)["directions"]["q2c"]["effective"])
    weights = weights.clone()
    weights[3, 4] = torch.nan
    found = read(Seen("q2c", scores, weights, positive, ~positive & ~eye))
    assert found["finite"] is False and "effective" not in found["directions"]["q2c"]


def test_nothing_global_is_drawn_and_nothing_of_the_user_is_kept_or_changed(sides):
    query, candidate = (side.clone().requires_grad_() for side in sides)
    state = torch.random.get_rng_state()
    monitor = cocos.Monitor("ntxent")
    monitor(query, candidate)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert query.grad is None and torch.equal(query, sides[0])
    held = [each for each in gc.get_objects() if each is query]
    gc.collect()
    assert len(held) == 1
    assert torch.is_grad_enabled()


def test_directions_that_share_operations_have_the_numbers_of_each_alone(sides):
    def loss(scores):
        return torch.nn.functional.cross_entropy(scores, torch.arange(len(scores)))

    about = {"scale": 20.0, "stretch": 20.0, "kind": "softmax"}
    scores = 20 * sides[0] @ sides[1].T
    first, second = seen_of(loss, scores, *sides, **about), seen_of(loss, scores.T, *sides[::-1], **about)
    second = replace(second, direction="c2q", positive=first.positive, negative=first.negative)
    both = readings.of([first, second], 0.01, torch.Generator())
    for each in (first, second):
        alone = readings.of([each], 0.01, torch.Generator())["directions"][each.direction]
        assert both["directions"][each.direction] == pytest.approx(alone, rel=1e-5)


def test_masks_of_a_target_are_kept_until_it_changes():
    weights, target = torch.zeros(4, 4), torch.arange(4)
    first, again = (directions.layout_of(weights, None, target=target) for _ in range(2))
    assert again.positive is first.positive and again.negative is first.negative
    target[0] = 3  # in place
    other = directions.layout_of(weights, None, target=target)
    assert other.positive.nonzero()[:, 1].tolist() == [3, 1, 2, 3] and torch.equal(other.negative, ~other.positive)
    assert first.positive.diagonal().all()


class Operations(TorchDispatchMode):
    """Count the operations that reach a device."""

    number = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.number += 1
        return func(*args, **(kwargs or {}))


def test_a_reading_takes_a_bounded_number_of_operations():
    """On a small model operations are what a reading costs: 412, and 690 before directions shared them."""
    draw = torch.Generator().manual_seed(SEED)
    sides = [torch.randn(128, 32, generator=draw).requires_grad_() for _ in range(2)]
    numbers, module = [], Similarity()
    for watched in (False, True):
        monitor = cocos.Monitor(module) if watched else None
        for _ in range(3):
            module(*sides).backward()
        with Operations() as counted:
            module(*sides).backward()
        numbers.append(counted.number)
    monitor.close()
    assert numbers[1] - numbers[0] <= 430


def test_every_and_steps(sides):
    monitor = cocos.Monitor("ntxent", every=3)
    for _ in range(7):
        monitor(*sides)
    assert [each["step"] for each in monitor.records] == [0, 3, 6]
    monitor.step = 40
    for _ in range(3):
        monitor(*sides)
    monitor(*sides, step=50)
    monitor(*sides)
    monitor(*sides)
    assert [(each["step"], each["call"]) for each in monitor.records[3:]] == [(40, 9), (50, 12)]


def test_log_gets_names_and_the_step_however_it_takes_it(sides):
    said = []

    class Tracker:
        def metrics(self, values, prefix=None, step=None):
            said.append(("keyword", values, step, prefix))

    takes = [lambda values, step: said.append(("positional", values, step, None)), Tracker().metrics]
    takes += [lambda values, i: said.append(("other", values, i, None))]
    for log in takes:
        with cocos.Monitor("ntxent", log=log) as monitor:
            monitor(*sides, step=9)
    assert [each[0] for each in said] == ["positional", "keyword", "other"]
    assert {each[2:] for each in said} == {(9, None)}
    names = said[0][1].keys()
    assert {f"cocos/{name}" for name in ("contributing", "idle", "effective", "c2q/contributing", "alarm")} <= names
    assert all(type(each) is float and math.isfinite(each) for each in said[0][1].values())
    assert cocos.Monitor("ntxent", log=print)._log is print  # a function of C


def test_errors_of_log_are_one_warning_and_the_numbers_are_kept(sides, caplog, tmp_path):
    def log(values, step):
        raise ConnectionError(f"no network at {step}")

    monitor = cocos.Monitor("ntxent", log=log, store=tmp_path / "run.jsonl")
    for step in range(3):
        monitor(*sides, step=step)
    assert len(monitor.records) == 3 and len(results.open(tmp_path / "run.jsonl")["step"]) == 3
    assert [each.message for each in caplog.records] == [
        "the function log failed (ConnectionError: no network at 0); the training goes on"
    ]


def test_errors_of_the_monitor_itself_are_one_warning(sides, caplog, monkeypatch):
    monkeypatch.setattr(readings, "of", lambda *_: 1 / 0)
    monitor = cocos.Monitor("ntxent")
    monitor(*sides)
    monitor(*sides)
    assert [each.message for each in caplog.records] == [
        "the monitor could not read step 0 (ZeroDivisionError: division by zero); the training goes on"
    ]


def test_a_batch_that_cannot_be_used_is_an_error_only_at_first(sides, caplog):
    monitor = cocos.Monitor("ntxent")
    with pytest.raises(InputError, match="query has 24 rows and candidate 23"):
        monitor(sides[0], sides[1][:-1])
    monitor(*sides)
    monitor(sides[0], sides[1][:-1])
    assert "query has 24 rows and candidate 23" in caplog.text and len(monitor.records) == 1


def test_rows_that_are_not_finite_are_recorded_and_alarm(sides, caplog, tmp_path):
    query = sides[0].clone()
    query[2, 1] = torch.nan
    monitor = cocos.Monitor("ntxent", store=tmp_path / "run.jsonl", detectors={"collapse": False})
    monitor(query, sides[1], step=7)
    monitor(query, sides[1], step=8)
    monitor(*sides, step=9)
    monitor(query, sides[1], step=10)
    assert [each["finite"] for each in monitor.records] == [False, False, True, False]
    (episode,) = (each for each in monitor.alarms if each["kind"] == "non_finite")
    assert (episode["first"], episode["last"], episode["times"]) == (7, 10, 3)
    assert len([each for each in caplog.messages if "non_finite" in each]) == 1  # at the beginning
    data = results.open(tmp_path / "run.jsonl")
    assert data["alarm"].values.tolist() == [1, 1, 0, 1] and np.isnan(data["contributing"].values[0]).all()


def test_the_store_and_the_records_are_one_dataset(sides, tmp_path, caplog):
    path = tmp_path / "run.jsonl"
    with cocos.Monitor("ntxent", every=2, store=path, eps=0.02) as monitor:
        for step in range(5):
            monitor(*sides, step=10 * step)
    assert monitor.dataset().identical(results.open(path))
    assert monitor.dataset().attrs["eps"] == 0.02
    assert json.loads(path.read_text().splitlines()[0])["directions"] == ["q2c", "c2q"]
    monitor(*sides)  # closed: nothing happens
    assert len(monitor.records) == 3
    with pytest.raises(InputError, match="has records with eps 0.02"):
        cocos.Monitor("ntxent", store=path)
    with cocos.Monitor("ntxent", store=path, eps=0.02) as monitor:
        monitor(*sides, step=20)
    assert results.open(path)["step"].values.tolist() == [0, 20]
    assert "supersedes those from there on" in caplog.text


def test_a_run_without_records_is_an_empty_dataset():
    data = cocos.Monitor("ntxent").dataset()
    assert data.sizes["step"] == 0 and "contributing" in data


@pytest.mark.parametrize(
    "options, said",
    [
        ({"every": 0}, "every: 0, expected an integer"),
        ({"every": True}, "every: True"),
        ({"every": 2.5}, "every: 2.5"),
        ({"eps": -1}, "eps: -1"),
        ({"eps": math.nan}, "eps: nan"),
        ({"log": "wandb"}, "log: str, expected a function"),
        ({"store": "run.txt"}, "suffix '.txt'"),
        ({"detectors": {"colapse": False}}, "did you mean 'collapse'"),
    ],
)
def test_options_that_cannot_be_used(options, said):
    with pytest.raises(InputError, match=said):
        cocos.Monitor("ntxent", **options)


@pytest.mark.parametrize(
    "given, said",
    [
        (lambda q, c: (q.flatten(), c), r"query: torch.float32 of shape \(192,\)"),
        (lambda q, c: (q, c.long()), "candidate: torch.int64"),
        (lambda q, c: (q, "rows"), "candidate: str"),
        (lambda q, c: (q, c[:, :3]), "width 8 and candidate has width 3"),
        (lambda q, c: (q, None), "groups: None for a labelled batch"),
        (lambda q, c: (q, c, [1, 2]), "2"),
        (lambda q, c: (q, c, ([1], [2], [3])), "a tuple of 3"),
        (lambda q, c: (q, c, None, -1), "step: -1"),
        (lambda q, c: (q, c, None, 1.5), "step: 1.5"),
    ],
)
def test_a_call_that_cannot_be_used(sides, given, said):
    with pytest.raises(InputError, match=said):
        cocos.Monitor("ntxent")(*given(*sides))


@pytest.mark.parametrize("loss", [3, "ntxentt", torch.nn.CrossEntropyLoss, lambda pairs: 0, None])
def test_a_loss_that_cannot_be_read(loss):
    with pytest.raises(InputError):
        cocos.Monitor(loss)


def test_only_the_first_process_records(sides, monkeypatch, tmp_path):
    monkeypatch.setenv("RANK", "1")
    monitor = cocos.Monitor("ntxent", store=tmp_path / "run.jsonl")
    monitor(*sides)
    assert not monitor.records and not list(tmp_path.iterdir())


class Contrastive(torch.nn.Module):
    """Cross-entropy of both directions, as in a training loop."""

    def __init__(self, scale=20.0):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(scale))

    def forward(self, query, candidate):
        scores, target = self.scale * query @ candidate.T, torch.arange(len(query))
        cross_entropy = torch.nn.functional.cross_entropy
        return (cross_entropy(scores, target) + cross_entropy(scores.T, target)) / 2


def test_a_module_is_read_where_it_is_called(sides, tmp_path):
    loss, said = Contrastive(), []
    query = sides[0].clone().requires_grad_()
    with cocos.Monitor(loss, every=2, log=lambda values, step: said.append(step), store=tmp_path / "a.jsonl") as tapped:
        for _ in range(5):
            loss(query, sides[1]).backward()
        tapped.step = 70
        loss(query, sides[1])  # never differentiated: no record
        loss(query, sides[1]).backward()
        (loss(query, sides[1]) + loss(query, sides[1])).backward()
    loss(query, sides[1]).backward()  # closed
    assert said == [0, 2, 4, 70, 70] and not loss._forward_hooks and not loss._forward_pre_hooks
    one = results.open(tmp_path / "a.jsonl")
    assert one.attrs["loss"] == "Contrastive" and one.attrs["share"] == "probability"
    scores = 20 * sides[0] @ sides[1].T
    push = scores.softmax(dim=1).fill_diagonal_(0)
    part = push / push.sum(dim=1, keepdim=True)
    found = one.isel(step=0).sel(direction="q2c")
    assert math.isclose(found["relative"], (part > 0.01).sum(dim=1).double().mean(), rel_tol=1e-6)
    above = (push > 0.01).sum(dim=1)
    assert math.isclose(found["contributing"], above.double().mean(), rel_tol=1e-6)
    assert found["idle"] == int((above == 0).sum()) and found["unpushed"] == 0
    assert math.isclose(found["effective"], torch.special.entr(part).sum(dim=1).exp().mean(), rel_tol=1e-4)
    assert math.isclose(found["scale"], 20, rel_tol=1e-5) and found["lost"] == 0
    assert math.isclose(found["value"], loss(*sides).item(), rel_tol=1e-5)


def test_a_monitor_of_a_module_is_silent_in_evaluation_and_takes_no_batch(sides):
    loss = Contrastive()
    monitor = cocos.Monitor(loss)
    with torch.no_grad():
        loss(*sides)
    loss.eval()
    loss(sides[0].clone().requires_grad_(), sides[1]).backward()
    assert not monitor.records
    with pytest.raises(InputError, match="reads its module by itself"):
        monitor(*sides)


def test_an_error_of_a_reading_never_reaches_the_training(sides, monkeypatch, caplog):
    loss = Contrastive()
    monitor = cocos.Monitor(loss)
    monkeypatch.setattr(readings, "of", lambda *_: losses.load("nothing"))
    query = sides[0].clone().requires_grad_()
    for _ in range(3):
        loss(query, sides[1]).backward()
    assert query.grad.isfinite().all() and not monitor.records
    assert len(caplog.messages) == 1 and "could not read step 0 (InputError: " in caplog.messages[0]


def test_a_training_with_a_monitor_has_the_same_weights_bit_by_bit(every=3):
    def trained(watched):
        torch.manual_seed(SEED)
        model, loss = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.Dropout(0.2)), Contrastive()
        parameters = [*model.parameters(), *loss.parameters()]
        monitor = cocos.Monitor(loss, every=every) if watched else None
        for _ in range(100):
            rows = torch.randn(16, 12)
            sides = (torch.nn.functional.normalize(model(rows)) for _ in range(2))
            loss(*sides).backward()
            for each in parameters:  # an optimizer of PyTorch imports the compiler, which takes seconds
                each.data -= 1e-2 * each.grad
                each.grad = None
        assert monitor is None or len(monitor.records) == math.ceil(100 / every)
        return [each.detach() for each in parameters]

    assert all(map(torch.equal, trained(False), trained(True)))


@pytest.mark.parametrize("make", [Contrastive, torch.nn.CrossEntropyLoss])
def test_copies_and_pickles_of_a_module_that_is_read_are_silent_and_need_no_cocos(sides, make, tmp_path):
    loss = make()
    given = sides if make is Contrastive else (sides[0] @ sides[1].T, torch.arange(24))
    with cocos.Monitor(loss, log=lambda *_: None, store=tmp_path / "run.jsonl") as monitor:
        saved = io.BytesIO()
        torch.save(loss, saved)
        assert b"cocos" not in saved.getvalue().replace(__name__.encode(), b"")
        saved.seek(0)
        for other in (copy.deepcopy(loss), torch.load(saved, weights_only=False), loss):
            other(given[0].clone().requires_grad_(), given[1]).backward()
    assert len(monitor.records) == 1


def test_the_table_of_the_page_has_every_number_and_says_what_it_is():
    page = (Path(__file__).parent.parent / "docs" / "howto" / "monitor.md").read_text("utf-8")
    rows = [tuple(line.strip("| ").split(" | ")) for line in page.splitlines() if line.startswith("| `")]
    known = records.DIRECTION_METRICS | records.STEP_METRICS
    assert rows == [(f"`{name}`", said, unit) for name, (said, unit) in known.items()]


# Losses of the shelf with statistics of their own, and the parameters without which some have none.
SET = {"hcl": {"temperature": 0.5}, "mnrl": {"filter": "percent"}}
WITH_EXTRA = {name: SET.get(name, {}) for name in losses.names() if name in SET or losses.load(name).adds_statistics}
# Names that a row of STATISTICS has as `record`, and the monitor does not compute: why. Empty is as it should be.
NOT_COMPUTED: dict[str, str] = {}


@pytest.mark.parametrize("name", [number.record for number in readings.RECORDED])
def test_the_monitor_computes_every_number_that_a_statistic_has_for_records(name, sides):
    monitors = [cocos.Monitor(losses.load(each, given)) for each, given in WITH_EXTRA.items()]
    for monitor in monitors:
        monitor(*sides)
    found = {key for each in monitors for key in each.records[0]["directions"]["q2c"]}
    assert (name in found) == (name not in NOT_COMPUTED), "let `_further` in cocos/monitor/readings.py compute it"


def test_the_clamp_of_hcl_is_that_of_a_count(sides):
    loss, sides = losses.load("hcl", {"temperature": 0.3, "prior": 0.2}), [side.double() for side in sides]
    monitor = cocos.Monitor(loss)
    monitor(*sides)
    whole = counted(loss, cocos.Embeddings(*sides), 24)["clamped"].values.ravel().tolist()
    assert [each["clamped"] for each in monitor.records[0]["directions"].values()] == whole and 0 < whole[0] < 24
    other = cocos.Monitor("ntxent")
    other(*sides)
    assert "clamped" not in other.records[0]["directions"]["q2c"]


@pytest.mark.parametrize("name", ["participation", "n90", "weight_above", "weight_below", "idle_pull", "eq7_mean"])
def test_a_further_number_of_a_count_needs_no_more_than_its_row(name, sides, monkeypatch):
    number = replace(statistics.BATCH_NUMBERS[name], record=name)
    monkeypatch.setattr(readings, "RECORDED", (*readings.RECORDED, number))
    loss = losses.load("smoothap" if name == "eq7_mean" else "ntxent")
    sides = [side.double() for side in sides]
    seen = calls.Named(loss).seen(cocos.Embeddings(*sides))
    at_rest = readings.of(seen, 0.01, torch.Generator())["directions"]["q2c"][name]
    live = [replace(each, origin="backward pass", extra=None) for each in seen]
    backward = readings.of(live, 0.01, torch.Generator())["directions"]["q2c"].get(name)
    whole = measures.count(cocos.Embeddings(*sides), loss, batch_size=24, batches=1, dtype="float64", n90=True)
    expected = float(whole[name][0, 0])
    assert math.isclose(at_rest, expected, rel_tol=1e-9)
    assert backward is None if name == "eq7_mean" else math.isclose(backward, expected, rel_tol=1e-9)


def test_every_number_of_a_record_has_a_name(sides):
    said = []
    monitor = cocos.Monitor(Contrastive(), log=lambda values, step: said.extend(values))
    monitor._module(sides[0].clone().requires_grad_(), sides[1]).backward()
    record = monitor.records[0]
    known = {*records.DIRECTION_METRICS, *records.STEP_METRICS}
    about = {
        "step",
        "call",
        "width",
        "source",
        "kind",
        "share",
        "dtype",
        "world",
        "gathered",
        "finite",
        "directions",
        "alarms",
        "notes",
        "no_gradient",
    }
    assert record.keys() - about <= known | {"queries", "candidates"}
    assert all(each.keys() <= known for each in record["directions"].values())
    assert {each.rpartition("/")[2] for each in said} <= known
