"""A monitor in loops that are out of the ordinary, and with options that cannot be used."""

import logging

import pytest
import torch
from torch import nn, overrides
from torch.nn.functional import cross_entropy, normalize

import cocos
from cocos.base.errors import InputError


class Clip(nn.Module):
    def forward(self, image, caption, broken=False):
        scores = 20 * normalize(image, dim=1) @ normalize(caption, dim=1).T
        if broken:
            raise RuntimeError("in the middle")
        return cross_entropy(scores, torch.arange(len(scores)))


def sides(rows=6):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(rows, 4, generator=generator).requires_grad_() for _ in range(2)]


def relative(monitor):
    return [each["directions"]["q2c"]["relative"] for each in monitor.records]


def test_an_error_in_the_middle_of_a_forward_pass_leaves_nothing_behind():
    loss = Clip()
    with cocos.Monitor(loss) as monitor:
        with pytest.raises(RuntimeError, match="middle"):
            loss(*sides(), broken=True)
        assert not overrides._get_current_function_mode_stack()
        loss(*sides()).backward()
    assert [each["step"] for each in monitor.records] == [1]


def test_two_monitors_of_one_module_read_the_same():
    loss = Clip()
    first, second = cocos.Monitor(loss), cocos.Monitor(loss, every=2)
    for _ in range(3):
        loss(*sides()).backward()
    first.close()
    loss(*sides()).backward()
    second.close()
    assert len(first.records) == 3 and relative(second) == relative(first)[:2]
    assert not loss._forward_hooks and not loss._forward_pre_hooks


def test_a_call_without_a_backward_pass_has_no_record():
    loss = Clip()
    with cocos.Monitor(loss) as monitor:
        loss(*sides())
        loss(*sides(4)).backward()
    assert [each["queries"] for each in monitor.records] == [4]


def test_groups_may_be_text_and_those_of_another_length_are_told(caplog):
    loss, ids = Clip(), list("aabbcc")
    with cocos.Monitor(loss, groups=lambda: ids) as monitor:
        loss(*sides()).backward()
    with cocos.Monitor(loss, groups=lambda: torch.tensor([0, 0, 1, 1, 2, 2])) as other:
        loss(*sides()).backward()
    assert monitor.records[0]["directions"] == other.records[0]["directions"]
    assert monitor.records[0]["directions"]["q2c"]["positives"] == 2 and not caplog.records
    with cocos.Monitor(loss, groups=lambda: ids[:5]) as monitor:
        loss(*sides()).backward()
        loss(*sides()).backward()
    assert monitor.records[0]["directions"]["q2c"]["positives"] == 1
    assert [each.getMessage() for each in caplog.records] == [
        "Clip: the groups are not used: their lengths are not those of the queries and candidates; the training goes on"
    ]


def test_a_step_that_no_store_holds_is_the_number_of_the_call(tmp_path):
    loss = Clip()
    with cocos.Monitor(loss, store=tmp_path / "run.jsonl") as monitor:
        monitor.step = 10**30
        loss(*sides()).backward()
    assert cocos.results.open(tmp_path / "run.jsonl")["step"].values.tolist() == [0]
    with pytest.raises(InputError, match="step: 1000"):
        cocos.Monitor("ntxent")(*sides(), step=10**30)


@pytest.mark.parametrize(
    "options, said",
    [
        ({"groups": [1, 2]}, "groups: list, expected a function that returns the ids"),
        ({"due": True}, "due: bool, expected a function that returns whether"),
        ({"log": "wandb"}, "log: str, expected a function of"),
    ],
)
def test_an_option_that_is_no_function_is_refused(options, said):
    with pytest.raises(InputError, match=said):
        cocos.Monitor(Clip(), **options)


def test_groups_of_a_loss_by_its_name_come_with_each_batch():
    with pytest.raises(InputError, match="groups: of a module only"):
        cocos.Monitor("ntxent", groups=list)


def test_the_reason_of_a_warning_is_one_line(caplog):
    def groups():
        raise NotImplementedError("\n".join(["an operator is missing", *["backend"] * 100]))

    caplog.set_level(logging.WARNING)
    loss = Clip()
    with cocos.Monitor(loss, groups=groups):
        loss(*sides()).backward()
    (said,) = [each.getMessage() for each in caplog.records]
    assert said.endswith("(NotImplementedError: an operator is missing); the training goes on")
