"""The second study: stacked trainings are the single ones, and the batched rule is that of `cocos.Hold`."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import normalize
from typer.testing import CliRunner

import cocos
from analysis.hold_study import plan, probe, runner, tasks, training
from analysis.hold_study.__main__ import app
from cocos import Embeddings, Pairs, losses, measures, results

pytestmark = pytest.mark.slow

STEPS, RATE = 20, 0.006


@pytest.fixture(scope="module")
def brief():
    """The abstracts with few steps."""
    return dataclasses.replace(tasks.task("abstracts"), steps=STEPS)


def stack(loss="ntxent", part="cells", size=32):
    return plan.Stack(part, "abstracts", loss, 8, size, RATE, 99)


class Both(nn.Module):
    """A loss of the shelf in both directions, with a temperature to be held."""

    def __init__(self, name, temperature):
        super().__init__()
        self.name, self.temperature = name, temperature

    def forward(self, query, candidate):
        sharp = {"temperature": self.temperature} if self.name == "ntxent" else {"scale": 1 / self.temperature}
        loss, scores = losses.load(self.name, **sharp), query @ candidate.T
        eye = torch.eye(len(scores), dtype=torch.bool)
        return (loss(scores, eye).mean() + loss(scores.T, eye).mean()) / 2


class One:
    """Two single heads in the place of a stack of one."""

    def __init__(self, *heads):
        self.heads = heads

    def __call__(self, *rows):
        return [normalize(head(each), dim=-1)[None] for head, each in zip(self.heads, rows, strict=True)]


def alone(own, task, arm):
    """One arm in a plain loop, with `cocos.Hold` where it is held."""
    torch.manual_seed(own.seed)
    split = task.splits["train"]
    heads = [training.head(each.shape[-1], task.hidden, own.width) for each in (split.query, split.candidate)]
    optimizer = torch.optim.AdamW([p for head in heads for p in head.parameters()], lr=own.rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, own.rate, total_steps=task.steps, pct_start=0.1)
    loss = hold = Both(own.loss, arm.temperature)
    if arm.kind in plan.AFTER:
        hold = cocos.Hold(loss, after=plan.AFTER[arm.kind], steps=task.steps)
    generator = torch.Generator().manual_seed(own.seed)
    for rows, columns in training.batches(split, own.batch_size, task.steps, generator):
        query, candidate = One(*heads)(split.query[rows], split.candidate[rows, columns])
        optimizer.zero_grad()
        hold(query[0], candidate[0]).backward()
        optimizer.step()
        schedule.step()
    return One(*heads), hold


def test_the_plan_is_the_one_of_the_preregistration():
    cells = plan.stacks("cells")
    assert len({each.cell for each in cells}) == 24 and len({each.key for each in cells}) == 24 * 3 * 5
    assert sum(len(each.arms) for each in cells) == 3600
    assert sum(len(each.arms) for each in plan.stacks("factorial")) == 480
    sizes = {name: [len(tasks.task(name).splits[each].query) for each in tasks.SPLITS] for name in plan.DATA}
    assert sizes == {"photos": [1400, 478, 700], "emoji": [1708, 591, 932], "abstracts": [480, 160, 240]}


def test_no_item_is_in_two_splits_and_no_photo_in_the_first_study():
    with (
        np.load(tasks.DATA / "photos.npz") as new,
        np.load(tasks.DATA.parent.parent / "study/data/captions.npz") as old,
    ):
        assert len(set(new["coco_id"].tolist())) == 2578
        assert not set(new["coco_id"].tolist()) & set(old["coco_id"].tolist())
    with np.load(tasks.DATA / "abstracts.npz") as new:
        assert len(set(new["pmid"].tolist())) == 880


@pytest.mark.parametrize("loss", plan.LOSSES)
@pytest.mark.parametrize("place", [0, 3, 6])
def test_a_constant_arm_of_a_stack_is_a_training_alone(brief, loss, place):
    own = stack(loss)
    heads, _ = alone(own, brief, own.arms[place])
    found = training.trained(own, brief)
    split = brief.splits["test"]
    for many, one in zip(found.heads(split.query, split.candidate[:, 0]), heads(split.query, split.candidate[:, 0]),
                         strict=True):  # fmt: skip
        torch.testing.assert_close(many[place], one[0], atol=1e-4, rtol=0)
    assert (many[place] - many[(place + 3) % 7]).abs().max() > 0.01, "arms differ"


@pytest.mark.parametrize("loss", plan.LOSSES)
@pytest.mark.parametrize("kind", ["late", "early"])
def test_a_held_arm_is_a_training_with_hold(brief, loss, kind):
    own = stack(loss)
    place = [arm.kind for arm in own.arms].index(kind)
    _, hold = alone(own, brief, own.arms[place])
    assert not hold.alarms
    settings = training.trained(own, brief).history[place]
    # Hold stops within 0.1 % of the number, and reads the slope of a softmax from pushes in float32
    assert settings == pytest.approx([each["value"] for each in hold.history], rel=0.02)
    assert len(settings) == (6 if kind == "late" else 10)
    assert len(training.trained(own, brief).history[place + 1]) in {1, 10}


def test_the_temperature_is_solved_for_the_effective_number():
    scores = torch.randn(3, 32, 32, generator=torch.Generator().manual_seed(0)) / 4
    found = training.solved(scores, 12.0, "ntxent")
    assert training.effective(scores, found, "ntxent").tolist() == pytest.approx([12.0] * 3, rel=1e-4)
    rows = training.solved(scores, 12.0, "ce_softmax")
    pairs = Pairs(scores[0], torch.eye(32, dtype=torch.bool))
    assert cocos.sharpness.solve("ntxent", pairs, 12.0).value == pytest.approx(rows[0].item(), rel=3e-3)
    for own, temperature in zip(scores, found.flatten().tolist(), strict=True):
        pairs = [Pairs(each.contiguous(), torch.eye(32, dtype=torch.bool)) for each in (own, own.T)]
        assert cocos.sharpness.solve("ntxent", pairs, 12.0).value == pytest.approx(temperature, rel=3e-3)


def test_the_factorial_has_two_temperatures_and_is_ntxent_where_they_are_one():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(2, 8, 8, generator=generator).double() / 3
    same = torch.tensor([0.1, 0.3], dtype=torch.float64)[:, None, None]

    def slope(temperature, weight):
        leaf = scores.clone().requires_grad_()
        training.losses_of(leaf, temperature, "ntxent", weight).sum().backward()
        return leaf.grad

    torch.testing.assert_close(slope(same, same), slope(same, None))
    # from the definition: rows, then columns
    first, second, eye = 0.1, 0.4, torch.eye(8, dtype=torch.bool)
    wanted = torch.zeros(8, 8, dtype=torch.float64)
    for way in (False, True):
        own = scores[0].T if way else scores[0]
        part = (own / first).masked_fill(eye, -torch.inf).softmax(1)
        push = (1 - (own / second).softmax(1).diag())[:, None] / second * (part - eye.double()) / 16
        wanted += push.T if way else push
    torch.testing.assert_close(slope(torch.full_like(same, first), torch.full_like(same, second))[0], wanted)


def test_recall_is_that_of_the_package(brief):
    found, split = training.trained(stack(), brief), brief.splits["val"]
    query, candidate = found.heads(split.query, split.candidate.flatten(0, 1))
    group = torch.arange(len(split.query))
    for place in (0, 5):
        rows = Embeddings(query[place], candidate[place], group, group.repeat_interleave(2))
        wanted = float(measures.evaluate(rows)["rsum"].squeeze())
        assert probe.rsum(found.heads, split)[place].item() == pytest.approx(wanted, abs=1e-3)
    flat = One(lambda rows: torch.ones(len(rows), 8), lambda rows: torch.ones(len(rows), 8))
    assert probe.rsum(flat, split).item() == 0, "a tie is no hit"


def test_a_table_has_a_row_for_each_training(brief, monkeypatch):
    monkeypatch.setattr(runner, "task", lambda name: brief)
    own = stack()
    monkeypatch.setattr(runner, "stacks", lambda part: [own])
    found = runner.row(own)
    table = runner.dataset("cells", {own.key: {"row": found, "seconds": 1.0}})
    assert table.sizes == {"run": 10, "setting": 10}
    late, early, once = (table["path"].values[7 + place] for place in range(3))
    assert np.isnan(late[:4]).all() and np.isfinite(late[4:]).all() and np.isfinite(early).all()
    assert once[4] == late[4] and np.isfinite(once).sum() == 1
    assert table["rsum"].values.tolist() == found["rsum"] and table["start"].values[:7].tolist() == list(plan.GRID)


def test_a_run_that_is_repeated_says_what_differs(brief, monkeypatch):
    run = CliRunner()
    for given, sentence in (
        (["again", "nothing"], "part 'nothing' is unknown"),
        (["again", "cells", "--run", "360"], "0 to 359"),
    ):
        done = run.invoke(app, given)
        assert done.exit_code == 2 and sentence in done.stderr and done.stderr.count("\n") == 1
    kept = results.open(runner.RESULTS / "cells.nc").isel(run=slice(0, 10))
    path = kept["path"].values
    same = {name: kept[name].values.tolist() for name in runner.LABELS}
    same["settings"] = {"late": path[7, 4:].tolist(), "early": path[8].tolist(), "once": [float(path[9, 4])]}
    for change, code in ((0.0, 0), (1e-12, 1)):
        other = same | {"rsum": [same["rsum"][0] + change, *same["rsum"][1:]]}
        monkeypatch.setattr(runner, "row", lambda stack, found=other: found)
        done = run.invoke(app, ["again", "cells", "--run", "0"])
        assert done.exit_code == code and f"{140 - code} of 140 numbers are the same" in done.stdout
