"""The controller of a loss in training: the number is what was asked for, and the training is that of a constant."""

import copy
import gc
import math
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

import children
import cocos
from cocos.base.errors import InputError
from cocos.counting import statistics
from cocos.monitor.hold import usual

ROWS, BATCH, STEPS = 128, 32, 20


class Contrast(nn.Module):
    """Both directions of a softmax, with the number that sets its sharpness under some name."""

    def __init__(self, name, value, factor, learned=False):
        super().__init__()
        self.name, self.factor = name, factor
        setattr(self, name, nn.Parameter(torch.tensor(value)) if learned else value)

    def forward(self, query, candidate):
        scores = normalize(query) @ normalize(candidate).T * self.factor(getattr(self, self.name))
        target = torch.arange(len(scores))
        return (cross_entropy(scores, target) + cross_entropy(scores.T, target)) / 2


def exponential(value):
    return value.exp() if isinstance(value, torch.Tensor) else math.exp(value)


class Triplets(nn.Module):
    """The mean of all triplets of a batch, by a margin."""

    def __init__(self, hardest=False):
        super().__init__()
        self.margin, self.hardest = 0.2, hardest

    def forward(self, query, candidate):
        scores = normalize(query) @ normalize(candidate).T
        own = torch.eye(len(scores), dtype=torch.bool)
        over = (scores - scores.diagonal()[:, None] + self.margin).clamp(min=0).masked_fill(own, 0)
        return over.amax(dim=1).sum() if self.hardest else over.sum()


def train(module, hold=None, steps=STEPS, seed=0, begin=0):
    """Train two small towers; the scores of the last batch before its update, and the towers."""
    torch.manual_seed(seed)
    towers = nn.Linear(12, 8), nn.Linear(12, 8)
    rows = torch.randn(ROWS, 12)
    others = rows + 0.7 * torch.randn(ROWS, 12)
    learned = [*module.parameters()] if isinstance(module, nn.Module) else []
    optimizer = torch.optim.Adam([*towers[0].parameters(), *towers[1].parameters(), *learned], 0.01)
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        batch = torch.randperm(ROWS, generator=generator)[:BATCH]
        query, candidate = towers[0](rows[batch]), towers[1](others[batch])
        optimizer.zero_grad()
        if step >= begin:
            if isinstance(module, nn.Module):
                (hold or module)(query, candidate).backward()
            else:
                scores = normalize(query) @ normalize(candidate).T
                (hold or module)(scores, torch.eye(BATCH, dtype=torch.bool)).mean().backward()
        optimizer.step()
    return (normalize(query) @ normalize(candidate).T).detach(), towers


def effective(scores, temperature):
    """Effective number of both directions, from the definition: exp of the entropy of the softmax of the negatives."""
    found = []
    for side in (scores, scores.T):
        other = side.double().masked_fill(torch.eye(len(side), dtype=torch.bool), -math.inf)
        part = (other / temperature).softmax(dim=1)
        found.append(torch.special.entr(part).sum(dim=1).exp().mean())
    return float(sum(found) / 2)


FORMS = [
    ("temperature", 0.07, lambda value: 1 / value, lambda value: value, False),
    ("temperature", 0.07, lambda value: 1 / value, lambda value: value, True),
    ("scale", 14.0, lambda value: value, lambda value: 1 / value, False),
    ("logit_scale", 2.6, exponential, lambda value: math.exp(-value), True),
    ("scale", 2.6, exponential, lambda value: math.exp(-value), True),  # a logarithm under the name of a scale
]


@pytest.mark.parametrize(("name", "value", "factor", "temperature", "learned"), FORMS)
def test_the_number_is_held_whatever_sets_it(name, value, factor, temperature, learned):
    module = Contrast(name, value, factor, learned)
    hold = cocos.Hold(module, effective=9, after=0.5, steps=STEPS, every=9)
    scores, _ = train(module, hold)
    assert [each["step"] for each in hold.history] == [10, 19] and hold.alarms == []
    last = hold.history[-1]
    assert hold.parameter == name and last["effective"] == pytest.approx(9, rel=2e-3)
    assert effective(scores, temperature(last["value"])) == pytest.approx(9, rel=2e-3)
    assert hold.history[0]["before"] != pytest.approx(9, rel=0.05)  # or there was nothing to do


def test_a_loss_of_the_shelf_is_held_in_its_place():
    hold = cocos.Hold("ntxent", effective=9, after=10, every=9)
    scores, _ = train("ntxent", hold)
    assert [each["step"] for each in hold.history] == [10, 19]
    pairs = cocos.Pairs(scores.double(), torch.eye(BATCH, dtype=torch.bool))
    number = statistics.effective(statistics.spread(hold.loss.weight(pairs), pairs))
    assert float(number.mean()) == pytest.approx(9, rel=2e-3)
    assert hold.loss == cocos.losses.load("ntxent", temperature=hold.value)


def test_between_two_settings_the_training_is_that_of_a_constant():
    """Bit by bit: before it begins that of the module alone, and afterwards that of the value which was set."""
    alone = Contrast(*FORMS[0][:3])
    _, towers = train(alone)
    module = Contrast(*FORMS[0][:3])
    _, held = train(module, cocos.Hold(module, effective=9, after=STEPS))
    assert all(torch.equal(a, b) for a, b in zip(_weights(towers), _weights(held), strict=True))

    class Switched(Contrast):
        calls = 0

        def forward(self, query, candidate):
            self.calls += 1
            self.temperature = value if self.calls > 11 else 0.07
            return super().forward(query, candidate)

    module = Contrast(*FORMS[0][:3])
    hold = cocos.Hold(module, effective=9, after=10, every=STEPS)
    _, held = train(module, hold)
    (value,) = [each["value"] for each in hold.history]
    _, switched = train(Switched(*FORMS[0][:3]))
    assert value != 0.07
    assert all(torch.equal(a, b) for a, b in zip(_weights(held), _weights(switched), strict=True))


def _weights(towers):
    return [each for tower in towers for each in tower.parameters()]


def test_an_optimizer_does_not_move_what_is_held():
    module = Contrast("temperature", 0.07, FORMS[1][2], True)
    seen = []
    module.register_forward_pre_hook(lambda module, args: seen.append(float(module.temperature.detach())))
    hold = cocos.Hold(module, effective=9, after=10, every=100)
    module.register_forward_hook(lambda module, args, out: seen.append(float(module.temperature.detach())))
    train(module, hold)
    assert len(set(seen[22::2])) > 1 and seen[23::2] == pytest.approx(9 * [hold.history[0]["value"]])


@pytest.mark.parametrize("hardest", [False, True])
def test_a_margin_leaves_the_wanted_part_of_the_queries_idle(hardest):
    module = Triplets(hardest)
    hold = cocos.Hold(module, idle=0.25, after=10, every=9)
    scores, _ = train(module, hold)
    over = (scores - scores.diagonal()[:, None]).fill_diagonal_(-math.inf).amax(dim=1)
    assert int((over + module.margin <= 0).sum()) == 8 == round(0.25 * BATCH)
    assert hold.history[-1]["idle"] == 0.25 and hold.history[-1]["value"] == module.margin
    again = cocos.Hold("triplet", idle=0.25, after=0)
    again(scores, torch.eye(BATCH, dtype=torch.bool))
    assert again.value == pytest.approx(module.margin)


def test_a_margin_holds_an_effective_number_too():
    module = Triplets()
    hold = cocos.Hold(module, effective=6, after=10, every=9)
    scores, _ = train(module, hold)
    over = (scores - scores.diagonal()[:, None] + module.margin).fill_diagonal_(-1) > 0
    number = over.sum(dim=1).double()
    assert float(number[number > 0].mean()) == pytest.approx(6, abs=0.2)  # it jumps by a thirtieth


def test_a_number_out_of_reach_is_an_alarm_and_the_training_goes_on(caplog):
    hold = cocos.Hold("ntxent", effective=500, after=0, every=1)
    train("ntxent", hold, steps=3)
    (alarm,) = hold.alarms
    assert (alarm["kind"], alarm["first"], alarm["last"]) == ("unheld", 0, 2)
    assert "500" in alarm["sentence"] and len(caplog.records) == 1


def test_a_loss_of_another_form_is_an_alarm():
    class Squared(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 3.0

        def forward(self, query, candidate):
            scores = normalize(query) @ normalize(candidate).T
            return (self.scale * scores.clamp(min=0) ** 2).sum() - scores.diagonal().sum()

    module = Squared()
    hold = cocos.Hold(module, effective=5, after=0, every=1)
    train(module, hold, steps=2)
    assert [each["kind"] for each in hold.alarms] == ["unheld"] and module.scale == 3.0 and hold.history == []


def test_bounds_are_kept():
    module = Contrast(*FORMS[0][:3])
    hold = cocos.Hold(module, effective=25, after=0, every=1, bounds=(0.05, 0.1))
    train(module, hold, steps=2)
    assert module.temperature == 0.1 and [each["kind"] for each in hold.alarms] == ["unheld"]
    (alarm,) = hold.alarms
    reached = hold.history[-1]["effective"]
    assert reached < 25 * 0.9 and f"gives {reached:.4g}" in alarm["sentence"]
    again = cocos.Hold(Contrast(*FORMS[0][:3]), effective=reached, after=0, every=1)
    train(again.loss, again, steps=1)
    assert again.value == pytest.approx(0.1, rel=0.2)  # the number of another batch


@pytest.mark.parametrize(("name", "value", "factor"), [form[:3] for form in FORMS])
def test_the_number_at_a_bound_is_that_of_its_value(name, value, factor):
    module = Contrast(name, value, factor)
    soft = module.factor(value) > module.factor(value * 1.01)
    ends = (0.9 * value, 0.95 * value) if soft else (1.05 * value, 1.1 * value)
    hold = cocos.Hold(module, effective=31 if soft else 1, after=0, every=1, bounds=tuple(sorted(ends)))
    scores, _ = train(module, hold, steps=1)
    assert module.factor(hold.value) != module.factor(value)
    wanted = effective(scores, 1 / float(module.factor(hold.value)))
    assert hold.history[0]["effective"] == pytest.approx(wanted, rel=1e-3)


def test_a_monitor_says_that_a_number_is_not_held():
    module = Contrast(*FORMS[0][:3])
    hold = cocos.Hold(module, effective=25, after=3, every=1, bounds=(0.05, 0.1))
    with cocos.Monitor(module) as monitor:
        train(module, hold, steps=10)
    (alarm,) = (each for each in monitor.alarms if each["kind"] == "unheld")
    assert alarm["first"] in {5, 6} and alarm["last"] == 9 and "target of 25" in alarm["sentence"]
    missed = abs(hold.history[-1]["effective"] / 25 - 1)
    assert alarm["value"] == pytest.approx(missed, rel=0.2) and missed > 0.1
    assert monitor.watching()["unheld"] is None
    met = cocos.Hold(Contrast(*FORMS[0][:3]), effective=9, after=0, every=1)
    with cocos.Monitor(met.loss) as monitor:
        train(met.loss, met, steps=6)
    assert monitor.watching()["unheld"] is None and not monitor.alarms
    assert monitor.records[-1]["held_target"] == 9 and monitor.records[-1]["held_missed"] < 0.01
    met.close()
    with cocos.Monitor(met.loss) as monitor:
        train(met.loss, steps=4)
    assert monitor.watching()["unheld"] == "does not apply: cocos.Hold sets nothing"


def test_a_controller_is_not_kept_alive_by_its_numbers():
    hold = cocos.Hold(Contrast(*FORMS[0][:3]), effective=9, after=0)
    gone = weakref.ref(hold)
    del hold
    gc.collect()
    assert gone() is None


def test_the_usual_target_is_a_rule_of_the_batch():
    """1.35 B^(2/3): 64 is 4 cubed, so 1.35 times 16."""
    assert usual(64) == pytest.approx(1.35 * 16) and usual(2) == 1
    hold = cocos.Hold("ntxent", after=0)
    train("ntxent", hold, steps=1)
    assert hold.history[0]["target"] == pytest.approx(1.35 * 32 ** (2 / 3))


def test_the_value_is_saved_and_goes_on():
    module = Contrast(*FORMS[0][:3])
    hold = cocos.Hold(module, effective=9, after=10, every=5)
    train(module, hold)
    other = Contrast(*FORMS[0][:3])
    again = cocos.Hold(other, effective=9, after=10, every=5)
    again.load_state_dict(copy.deepcopy(hold.state_dict()))
    assert other.temperature == module.temperature
    train(other, again, steps=1)
    assert [each["step"] for each in again.history] == [20]
    shelf = cocos.Hold("ntxent", effective=9, after=0)
    train("ntxent", shelf, steps=1)
    fresh = cocos.Hold("ntxent", effective=9, after=0)
    fresh.load_state_dict(shelf.state_dict())
    assert fresh.loss == shelf.loss


def test_evaluation_is_not_counted_and_a_closed_hold_leaves_the_loss_alone():
    module = Contrast(*FORMS[0][:3])
    hold = cocos.Hold(module, effective=9, after=0, every=1)
    with torch.no_grad():
        hold(torch.randn(8, 4), torch.randn(8, 4))
    module.eval()
    hold(torch.randn(8, 4, requires_grad=True), torch.randn(8, 4)).backward()
    assert hold.history == [] and hold.state_dict()["_extra_state"]["calls"] == 0
    module.train()
    hold.close()
    train(module, hold, steps=2)
    assert module.temperature == 0.07 and not module._forward_pre_hooks and not module._forward_hooks
    shelf = cocos.Hold("ntxent", effective=9, after=0, every=1)
    shelf.close()
    train("ntxent", shelf, steps=2)
    assert shelf.history == [] and shelf.value == 0.1


def test_a_loss_that_is_refused_is_left_as_it_was():
    module = Contrast(*FORMS[0][:3])
    with pytest.raises(InputError, match="only a hinge"):
        cocos.Hold(module, idle=0.5)
    assert not module._forward_pre_hooks and not module._forward_hooks


def test_a_monitor_beside_it_sees_the_number_that_is_held():
    module = Contrast(*FORMS[0][:3])
    hold = cocos.Hold(module, effective=9, after=10, every=1)
    with cocos.Monitor(module) as monitor:
        train(module, hold)
    found = monitor.dataset()["effective"].mean("direction").values
    assert found[11:] == pytest.approx([each["before"] for each in hold.history[1:]], rel=1e-3)
    assert abs(found[11:] / 9 - 1).max() < 0.2 < abs(found[:11] / 9 - 1).min()  # 128 rows leave some noise


def test_numbers_are_logged():
    rows = []
    module = Contrast(*FORMS[0][:3])
    hold = cocos.Hold(module, effective=9, after=10, every=9, log=lambda numbers, step: rows.append((step, numbers)))
    train(module, hold)
    assert [step for step, _ in rows] == [10, 19]
    assert rows[1][1]["cocos/hold/temperature"] == module.temperature
    assert rows[1][1].keys() == {f"cocos/hold/{name}" for name in ("temperature", "effective", "before", "target")}


REFUSED = [
    (("ntxent",), {"effective": 0.5}, "effective: 0.5, expected an effective number of negatives"),
    (("ntxent",), {"effective": 3, "idle": 0.5}, "effective: 3 and idle: 0.5, expected one of them"),
    (("ntxent",), {"idle": 0.5}, "idle: 0.5, but only a hinge"),
    (("triplet",), {"idle": 1.0}, "idle: 1.0, expected a part of the queries"),
    (("ntxent",), {"after": -1}, "after: -1, expected a part of the training"),
    (("ntxent",), {"steps": 0}, "steps: 0, expected a whole number of at least 1"),
    (("ntxent",), {"every": 0.5}, "every: 0.5, expected a whole number"),
    (("ntxent",), {"bounds": (2, 1)}, "bounds: (2, 1), expected two finite values above 0"),
    (("ntxent",), {"log": 3}, "log: int, expected a function"),
    (("ntxent",), {"parameter": "scale"}, "scale"),
    (("no_loss",), {}, "no_loss"),
    ((nn.Linear(2, 2),), {}, "loss Linear: it has no number named"),
    ((nn.ModuleList([Triplets(), Triplets()]),), {}, "several numbers set its sharpness"),
]


@pytest.mark.parametrize(("given", "options", "sentence"), REFUSED)
def test_options_that_cannot_be_used(given, options, sentence):
    with pytest.raises(InputError) as refused:
        cocos.Hold(*given, **options)
    assert sentence in str(refused.value)


def test_a_part_of_a_training_needs_its_length():
    hold = cocos.Hold("ntxent", effective=9)
    with pytest.raises(InputError, match=r"steps: None, and after=0\.4"):
        train("ntxent", hold, steps=1)
    hold.lasts(10)
    train("ntxent", hold, steps=10)
    assert [each["step"] for each in hold.history] == [4, 5, 6, 7, 8, 9]


# Two processes with other rows, a module and a loss of the shelf; each writes the values that it ends with.
IMPORTS = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import cocos
from test_hold import Contrast, FORMS, train
"""
TWO_PROCESSES = """
module = Contrast(*FORMS[0][:3])
holds = cocos.Hold(module, effective=9, after=2, every=2), cocos.Hold("ntxent", effective=9, after=2, every=2)
train(module, holds[0], steps=6, seed=rank)
train("ntxent", holds[1], steps=6, seed=rank)
with open(str(rank), "w") as file:
    print(*(each.value for each in holds), file=file)
"""


def test_all_processes_take_the_value_of_the_first(fresh, tmp_path):
    done = children.two(fresh, IMPORTS, TWO_PROCESSES, tmp_path)
    assert done.returncode == 0, done.stderr
    one, other = ((tmp_path / rank).read_text().split() for rank in "01")
    assert one == other and "0.07" not in one
