"""Nine faults of a short training: each is named within 60 steps, with its cause and a cure that fits the loss."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

import cocos
from cocos.monitor import callbacks, calls

SIZE, FEATURES, LATENT, EVERY, STEPS = 32, 24, 12, 5, 60
# Part of the hidden numbers that are left out, as in MiniLM; copies of a row have cosines near 0.95 then, as there.
DROPOUT = 0.1


class Ranking(nn.Module):
    """Cross-entropy of cosines times a fixed scale, the gradient of one side stopped where it is asked for."""

    def __init__(self, scale=20.0):
        super().__init__()
        self.scale = scale

    def forward(self, query, candidate):
        """Mean over the queries, ()."""
        scores = self.scale * normalize(query, dim=1) @ normalize(candidate, dim=1).T
        return cross_entropy(scores, torch.arange(len(scores)))


class SupCon(nn.Module):
    """Mean cross-entropy over the other rows of a row's class."""

    def forward(self, query, candidate, classes):
        """Mean over the rows, ()."""
        rows, diagonal = normalize(query, dim=1), torch.eye(len(query), dtype=torch.bool)
        logs = (10 * rows @ rows.T).masked_fill(diagonal, -1e9).log_softmax(dim=1)
        same = (classes[:, None] == classes) & ~diagonal
        return -((logs * same).sum(dim=1) / same.sum(dim=1).clamp(min=1)).mean()


def tower():
    return nn.Sequential(
        nn.Linear(FEATURES, 256), nn.ReLU(), nn.Dropout(DROPOUT), nn.Linear(256, 256), nn.ReLU(), nn.Dropout(DROPOUT),
        nn.Linear(256, 32),
    )  # fmt: skip


def train(fault="", *, scale=20.0, seed=0, look=False):
    """The monitor of a training that begins from a good start, as a fine-tuning does, with one thing wrong."""
    torch.manual_seed(seed)
    net, loss = tower(), Ranking(scale)
    other = tower() if fault == "detached" else net
    way = torch.randn(LATENT, FEATURES) / LATENT**0.5
    optimiser = torch.optim.Adam({*net.parameters(), *other.parameters()}, 1e-3)

    def views(rows):
        return [rows @ way + 0.2 * torch.randn(SIZE, FEATURES) for _ in range(2)]

    for _ in range(80 if fault != "detached" else 0):
        one, two = views(torch.randn(SIZE, LATENT))
        optimiser.zero_grad()
        Ranking()(net(one), net(two)).backward()
        optimiser.step()
    monitor = cocos.Monitor(loss, every=EVERY)
    for _ in range(STEPS):
        one, two = views(torch.randn(SIZE, LATENT))
        if fault == "copies":
            one, two = (each[: SIZE // 4].repeat(4, 1) for each in (one, two))
        if fault == "half":
            two = torch.cat([two[: SIZE // 2].roll(1, dims=0), two[SIZE // 2 :]])
        if fault == "mispaired":
            two = two.flip(0)
        if fault == "constant":
            one, two = torch.ones_like(one), torch.ones_like(two)
        query, candidate = net(one), other(two)
        candidate = candidate.detach() if fault == "detached" else candidate
        optimiser.zero_grad()
        loss(query, candidate).backward()
        if look:
            monitor.look(nn.ModuleDict({"image": net, "text": other}))
        optimiser.step()
    monitor.close()
    return monitor


def labelled(fault):
    """The monitor of a supervised contrastive training, with one thing wrong with its labels."""
    torch.manual_seed(0)
    net, middles = nn.Linear(FEATURES, 16), torch.randn(40, FEATURES)
    optimiser, loss = torch.optim.Adam(net.parameters(), 1e-2), SupCon()
    monitor = cocos.Monitor("ntxent")
    for step in range(STEPS):
        label = torch.randperm(40)[:8].repeat_interleave(4)
        rows = net(middles[label] + torch.randn(SIZE, FEATURES))
        label = {"alone": torch.arange(SIZE), "shuffled": label[torch.randperm(SIZE)]}.get(fault, label)
        if step % EVERY == 0:
            monitor(rows, None, groups=label, step=step)
        if fault != "alone":
            optimiser.zero_grad()
            loss(rows, rows, label).backward()
            optimiser.step()
    return monitor


def named(monitor, kind):
    """The sentence of a kind, and the step at which it was said first."""
    (found,) = (each for each in monitor.alarms if each["kind"] == kind)
    first = next(r["step"] for r in monitor.records if kind in {each["detector"] for each in r["alarms"]})
    assert found["first"] == first < STEPS
    return found["sentence"]


def test_a_sound_fine_tuning_is_silent_and_says_who_watched():
    for seed in range(3):
        monitor = train(seed=seed)
        assert monitor.alarms == []
        watched = {name for name, why in monitor.watching().items() if why is None}
        assert watched >= {"scale", "mispaired", "near_duplicates", "duplicates", "collapse", "no_positives", "idle"}
    assert labelled("").alarms == []


def test_a_fixed_scale_of_1000_is_named():
    assert "temperature 0.001" in named(train(scale=1000.0), "scale")


def test_a_fixed_scale_of_1_is_named_with_the_least_loss_that_it_allows():
    said = named(train(scale=1.0), "scale")
    assert "2.49 of ln 32 = 3.47" in said


def test_copies_of_rows_are_named_though_dropout_hides_them():
    monitor = train("copies")
    assert "dropout" in named(monitor, "near_duplicates")
    record = monitor.records[0]
    assert record["duplicates"] == record["near_duplicates"] == 0 and record["copies"] > 0.9 * SIZE


def test_half_of_the_positives_wrong_is_named():
    for seed in range(3):
        assert "threshold 30 %" in named(train("half", seed=seed), "mispaired")


def test_every_pair_mispaired_is_named():
    assert "threshold 46 %" in named(train("mispaired"), "mispaired")


def test_constant_inputs_are_no_matter_of_the_learning_rate():
    assert "check the input" in named(train("constant"), "collapse")
    assert "duplicates" not in {each["kind"] for each in train("constant").alarms}


def test_no_positives_is_not_a_batch_that_is_too_small():
    monitor = labelled("alone")
    assert "MPerClassSampler" in named(monitor, "no_positives")
    assert {each["kind"] for each in monitor.alarms} == {"no_positives"}


def test_shuffled_labels_are_named():
    monitor = labelled("shuffled")
    assert "equal labels" in named(monitor, "mispaired")


def test_a_detached_tower_is_named(caplog):
    monitor = train("detached")
    assert monitor.records[0]["no_gradient"] == "candidates" and monitor.alarms == []
    assert sum("no gradient reaches the candidates" in each for each in caplog.messages) == 1
    assert "no gradient for the candidates" in monitor.watching()["detached"]
    monitor = train("detached", look=True)
    assert "(text)" in named(monitor, "detached")
    assert train(look=True).alarms == []


def test_parts_that_no_gradient_reaches_are_named_by_their_largest_modules():
    model = nn.ModuleDict({"image": nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), "text": nn.Linear(3, 5)})
    unreached = callbacks.Unreached(model)
    assert unreached.numbers() == {}
    model["text"](torch.ones(1, 3)).sum().backward()
    unreached.look()
    assert unreached.numbers() == {"unreached": pytest.approx(24 / 44), "unreached_modules": "image"}
    model["image"][1](torch.ones(1, 3)).sum().backward()
    unreached.look()
    assert unreached.numbers() == {"unreached": pytest.approx(12 / 44), "unreached_modules": "image.0"}


@pytest.mark.parametrize(
    ("batch", "repeated"),
    [
        ({"input_ids": [[1, 2], [3, 4], [1, 2]], "attention_mask": [[1, 1], [1, 1], [1, 1]]}, 1),
        ([{"input_ids": [[1, 2], [3, 4]]}, {"input_ids": [[5, 6], [5, 6]]}], 1),
        ({"image": [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]], "label": [[0], [0], [0]]}, 2),
        (([[1, 2], [3, 4]], [0, 0]), 0),
        ({"attention_mask": [[1, 1], [1, 1]]}, None),
    ],
)
def test_rows_of_the_inputs_that_repeat_are_counted(batch, repeated):
    def tensors(value):
        if isinstance(value, dict):
            return {name: torch.tensor(each) for name, each in value.items()}
        return [tensors(each) if isinstance(each, dict) else torch.tensor(each) for each in value]

    found = calls.repeated(tensors(batch))
    assert (found if found is None else int(found)) == repeated


def test_inputs_that_are_given_to_a_monitor_show_copies():
    monitor = cocos.Monitor("ntxent")
    rows = torch.randn(8, 6)
    for step in range(4):
        monitor.inputs = torch.arange(4).repeat(2)[:, None]
        monitor(torch.randn(8, 6), rows + torch.randn(8, 6), step=step)
    assert "repeated input rows within a batch: 50 %" in named(monitor, "duplicates")
    monitor(rows, 1 + rows, step=9)
    assert "repeated_inputs" not in monitor.records[-1]
