"""The study: its plan, masks, interventions, measurements and runner."""

import dataclasses
import itertools
import json
import zlib

import numpy as np
import pytest
import torch

from analysis import runs
from analysis.study import plan, probe, runner, tasks, training
from cocos import Embeddings, Pairs, losses, measures, results
from cocos.base.errors import InputError
from cocos.counting import sharpness, statistics

pytestmark = pytest.mark.slow

SMALL = plan.Trial("captions", "triplet", 0.2, 0.006, batch_size=32, seed=99)


@pytest.fixture(scope="module")
def captions():
    return tasks.task("captions")


@pytest.fixture(scope="module")
def brief(captions):
    """The captions with few steps."""
    return dataclasses.replace(captions, steps=6, checkpoints=(2, 6))


def test_the_plan_is_the_one_of_the_preregistration():
    # 5 losses x 8 values x 3 rates x 3 batch sizes x 3 seeds; 10 seeds x 2 rates x (2 losses x (6 k x 2 arms + 1) + 7)
    sizes = {name: len(plan.trials(name)) for name in plan.PARTS}
    assert sizes == {
        "captions_grid": 1080,
        "captions_interventions": 10 * 2 * (2 * 13 + 7),
        "captions_masking": 10 * 3 * 4 * 2,
        "emoji_grid": 5 * 6 * 3 * 3,
        "emoji_interventions": 5 * 2 * (2 * 13 + 7),
        "emoji_masking": 10 * 3 * 4 * 2,
    }
    for name in plan.PARTS:
        assert len({trial.key for trial in plan.trials(name)}) == sizes[name]
        configs = {(trial.config, trial.seed) for trial in plan.trials(name)}
        assert len(configs) == sizes[name], "a configuration stands for one setting"


def test_photos_are_in_one_split(captions):
    assert [len(captions.splits[name].query) for name in tasks.SPLITS] == [1022, 500, 478]
    with np.load(tasks.CAPTIONS) as held:
        assert len(np.unique(held["coco_id"])) == 2000
    assert captions.splits["train"].query.norm(dim=1).sub(1).abs().max() < 1e-6


def test_features_of_the_emoji_are_principal_components():
    values = np.random.default_rng(0).normal(size=(40, 12)) * np.arange(12, 0, -1)
    fitted = np.arange(30)
    found = tasks._components(values, fitted, 3)
    right = np.linalg.svd(values[fitted])[2][:3]
    slow = values @ right.T
    slow /= np.sqrt(np.mean(slow[fitted] ** 2))
    np.testing.assert_allclose(np.sort(np.abs(found), axis=1), np.sort(np.abs(slow), axis=1), atol=1e-9)
    assert tasks._grams("ab") == {zlib.crc32(each) % tasks.BUCKETS for each in (b" ab", b"ab ", b" ab ")}
    assert tasks._grams("AB") == tasks._grams("ab")


def test_look_alikes_of_captions_are_told_by_their_cosine(captions):
    split, rows = captions.splits["train"], torch.arange(64)
    columns = rows % 4
    found = split.look_alikes(rows, columns)
    for i in range(64):
        for j in range(64):
            cosine = float(split.query[i] @ split.candidate[j, columns[j]])
            assert abs(cosine - 0.7) < 1e-6 or bool(found[i, j]) == (i != j and cosine > 0.7)
    assert found.any()


def test_all_losses_of_a_seed_see_the_same_batches_and_weights(captions):
    seen = []
    for name in ("ntxent", "triplet"):
        trial = dataclasses.replace(SMALL, loss=name)
        generator = torch.Generator().manual_seed(trial.seed)
        seen.append(list(training._batches(captions.splits["train"], 32, 4, generator)))
    for (rows, columns), (others, more) in zip(*seen, strict=True):
        assert rows.equal(others) and columns.equal(more) and len(rows.unique()) == 32
    first = [
        next(iter(training.trained(dataclasses.replace(SMALL, rate=1e-12, loss=name), captions)))
        for name in ("ntxent", "smoothap")
    ]
    assert torch.equal(
        *(torch.cat([p.flatten() for p in model.parameters()]).round(decimals=6) for _, model, _ in first)
    )


@pytest.mark.parametrize("arm", ["hard", "random"])
def test_an_intervention_keeps_k_negatives(arm):
    generator = torch.Generator().manual_seed(0)
    scores, negative = torch.randn(32, 32, generator=generator), ~torch.eye(32, dtype=torch.bool)
    trial = dataclasses.replace(SMALL, arm=arm, k=4)
    kept = training.negatives(scores, negative, None, trial, generator)
    assert kept.sum(dim=1).eq(4).all() and not (kept & ~negative).any()
    hardest = scores.masked_fill(~negative, -torch.inf).argsort(dim=1, descending=True)[:, :4].sort(dim=1).values
    same = kept.nonzero()[:, 1].view(32, 4).equal(hardest)
    assert same == (arm == "hard")


def test_masked_are_the_look_alikes_or_as_many_random_ones():
    generator = torch.Generator().manual_seed(0)
    negative = ~torch.eye(32, dtype=torch.bool)
    alike = negative & (torch.rand(32, 32, generator=generator) < 0.1)
    scores = torch.zeros(32, 32)
    without = training.negatives(scores, negative, alike, dataclasses.replace(SMALL, mask="look_alikes"), generator)
    assert without.equal(negative & ~alike)
    trial = dataclasses.replace(SMALL, mask="random")
    first, second = (training.negatives(scores, negative, alike, trial, generator) for _ in range(2))
    assert (31 - first.sum(dim=1)).equal(alike.sum(dim=1)) and not first.equal(second)
    none = dataclasses.replace(SMALL, mask="none")
    assert training.negatives(scores, negative, alike, none, generator).equal(negative)


def test_the_placebo_is_the_mean_over_all_choices():
    generator = torch.Generator().manual_seed(3)
    scores = torch.rand(8, 8, generator=generator)
    scores[0, 0] = 2  # no negative violates the margin of this query, which pushes none
    pairs = Pairs(scores, torch.eye(8, dtype=torch.bool))
    alike = pairs.negative & (torch.rand(8, 8, generator=generator) < 0.2)
    loss = losses.load("triplet", {"margin": 0.1})
    found = probe._shares(loss, pairs, alike)
    part = statistics.spread(loss.weight(pairs), pairs)
    for row in range(8):
        negatives = pairs.negative[row].nonzero().flatten().tolist()
        every = list(itertools.combinations(negatives, int(alike[row].sum())))
        mean = sum(float(part[row, list(choice)].sum()) for choice in every) / len(every)
        assert float(found["random_push"][row]) == pytest.approx(mean, abs=1e-6)
        assert float(found["look_alike_push"][row]) == pytest.approx(float(part[row][alike[row]].sum()), abs=1e-6)
    assert found["pushed"].min() == 0 and found["pushed"].max() == pytest.approx(1)
    assert probe._shares(loss, pairs, None) == {}


def test_the_temperature_is_solved_for_the_effective_number():
    generator = torch.Generator().manual_seed(1)
    scores, negative = torch.rand(64, 64, generator=generator), ~torch.eye(64, dtype=torch.bool)
    temperature = training._solved(scores, negative, 16)
    both = [training.effective(each, negative, temperature) for each in (scores, scores.T)]
    assert sum(both) / 2 == pytest.approx(16, rel=1e-2)


def test_interventions_are_the_ones_that_the_package_offers():
    generator = torch.Generator().manual_seed(2)
    scores, positive = torch.rand(64, 64, generator=generator), torch.eye(64, dtype=torch.bool)
    trial = dataclasses.replace(SMALL, arm="hard", k=4)
    for name in plan.TREATED:
        loss = losses.load(name)
        kept = loss(scores, positive, training.negatives(scores, ~positive, None, trial, generator))
        assert kept.equal(losses.top_k(loss, 4)(scores, positive))
    both = [Pairs(each.contiguous(), positive) for each in (scores, scores.T)]
    solved = sharpness.solve("ntxent", both, effective=16)
    assert training._solved(scores, ~positive, 16) == pytest.approx(solved.value, rel=5e-3)


def test_counts_are_the_ones_of_the_package(brief):
    trial = plan.Trial("captions", "ntxent", 0.1, 0.006, seed=3)
    *_, (_, model, loss) = training.trained(trial, brief)
    split = brief.splits["train"]
    own = probe._counts(model, split, trial, loss, [losses.load("triplet")])
    contributing, effective, idle = [], [], []
    for rows, columns in probe._batches(split, 128):
        with torch.no_grad():
            sides = [each.double() for each in model(split.query[rows], split.candidate[rows, columns])]
        data = measures.count(Embeddings(*sides), loss, batch_size="all")
        contributing.append(float(data["contributing"].mean()))
        effective.append(float(data["effective_per_query"].mean()))
        idle.append(float((data["contributing"] == 0).mean()))
    assert len(contributing) == 4
    assert own[0]["contributing"] == pytest.approx(np.mean(contributing), rel=1e-12)
    assert own[0]["effective"] == pytest.approx(np.mean(effective), rel=1e-6)
    assert own[0]["idle"] == pytest.approx(100 * np.mean(idle), abs=1e-9)


def test_recall_is_counted_by_hand(brief):
    *_, (_, model, _) = training.trained(SMALL, brief)
    split = brief.splits["val"]
    total, _ = probe._recalls(model, split)
    with torch.no_grad():
        query, candidate = (each.double() for each in model(split.query, split.candidate))
    scores = query @ candidate.flatten(0, 1).T
    group = torch.arange(500).repeat_interleave(4)
    own = group == torch.arange(500)[:, None]
    best = scores.masked_fill(~own, -9).amax(dim=1, keepdim=True)
    first = ((scores >= best) & ~own).sum(dim=1)  # a negative that ties with a positive stands above it
    second = ((scores >= scores.gather(0, group[None])) & ~own).sum(dim=0)
    others = first, second
    assert total == pytest.approx(sum(100 * (each < k).double().mean().item() for each in others for k in (1, 5, 10)))


def test_a_row_is_the_same_to_the_last_digit_and_as_in_the_results():
    trial = dataclasses.replace(SMALL, seed=0)
    first, second = runner.row(trial), runner.row(trial)
    assert json.dumps(first) == json.dumps(second)
    written = results.open(runner.RESULTS / "captions_grid.nc").isel(run=plan.trials("captions_grid").index(trial))
    # Another processor rounds otherwise, and a few ranks differ; `python -m analysis.study again` compares all digits.
    assert first["rsum"] == pytest.approx(written["rsum"].values, abs=6)
    assert first["effective"] == pytest.approx(written["effective"].values, rel=0.05)


def test_a_part_goes_on_where_it_stopped(tmp_path, monkeypatch):
    trials = [dataclasses.replace(SMALL, seed=seed) for seed in (0, 1)]
    monkeypatch.setattr(runner, "trials", lambda part: trials)
    made = {"step": [2], **{name: [1.0] for name in probe.LABELS}, **{name: [[0.0] * 4] for name in probe.RULER_LABELS}}
    lines = [json.dumps({"key": trial.key, "seconds": 1.0, "row": made}) for trial in trials]
    (tmp_path / "one.jsonl").write_text(f"{lines[0]}\n{lines[1][:40]}")
    known = runs.known(tmp_path / "one.jsonl")
    assert list(known) == [trials[0].key]
    (tmp_path / "one.jsonl").write_text("\n".join(lines))
    data = runner.dataset("one", runs.known(tmp_path / "one.jsonl"))
    assert data["seed"].values.tolist() == [0, 1] and data["family"].values.tolist() == ["triplet"] * 2
    assert data["rsum"].dims == ("run", "step") and data["ruler_idle"].dims == ("run", "step", "ruler")


def test_a_run_is_trained_once_more_and_compared(tmp_path, monkeypatch):
    trials = [SMALL]
    monkeypatch.setattr(runner, "trials", lambda part: trials)
    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    monkeypatch.setattr(runner, "row", lambda trial: {"step": [2, 4], "rsum": [1.0, float("nan")]})
    held = {"key": SMALL.key, "seconds": 1.0, "row": runner.row(SMALL)}
    results.save(runner.dataset("one", {SMALL.key: held}), tmp_path / "one.nc")
    assert runner.again("one", 0) == ([], 4, "triplet margin=0.2 batch=32 lr=0.006 seed=99")
    monkeypatch.setattr(runner, "row", lambda trial: {"step": [2, 4], "rsum": [1.0 + 2**-52, float("nan")]})
    ((line,), *_) = runner.again("one", 0)
    assert line.startswith("rsum [0]: ")
    with pytest.raises(InputError, match="run 1: one has 1 runs, expected 0 to 0"):
        runner.again("one", 1)
