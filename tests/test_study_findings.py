"""The tests of the study find planted effects, and their absence."""

import json

import numpy as np
import pytest

from analysis.study import findings, plan, probe, runner, summary
from cocos import results

pytestmark = pytest.mark.slow

OPTIMUM = 20.0


def planted(part, effect):
    """Rows of a part in which rsum depends on the effective number, the arm and the rate, with little noise."""
    rng, rows = np.random.default_rng(5), {}
    for trial in plan.trials(part):
        at = {
            name: values.index(trial.value)
            for name, values in plan.VALUES.items()
            if name == trial.loss and trial.value in values
        }
        place = at.get(trial.loss, 3)
        number = 1.0 if trial.loss == "triplet_sh" else 2.0 * 1.7**place
        rate = trial.rate == plan.RATES[trial.data][1]
        score = 400 + 10 * rate - effect * 4 * np.log(number / OPTIMUM) ** 2 * (trial.loss != "triplet_sh")
        score += (
            effect
            * {"hard": 12, "random": 0, "held": -abs(np.log(trial.k / OPTIMUM)) if trial.k else 0, "": 0}[trial.arm]
        )
        score += effect * {"look_alikes": 5, "random": 0, "none": 0, "": 0}[trial.mask]
        ends = {name: 5.0 + rng.normal() for name in probe.LABELS}
        ends |= {
            "effective": number,
            "contributing": number / 2,
            "rsum": score + rng.normal(),
            "rsum_val": score + rng.normal(),
        }
        ends |= {
            "look_alike_negatives": 0.2,
            "look_alike_push": 15 + rng.normal(),
            "random_push": 0.2 + rng.normal() / 10,
        }
        if trial.data == "captions":
            ends.pop("rsum_concept")
        row = {"step": [1, 2, 4, 8, 16]} | {
            name: [0.3 * end, 0.5 * end, 0.7 * end, 0.9 * end, end] for name, end in ends.items()
        }
        row |= {name: [[end + each for each in range(4)] for end in rng.random(5)] for name in probe.RULER_LABELS}
        rows[trial.key] = {"row": row, "seconds": 1.0}
    return runner.dataset(part, rows)


@pytest.fixture(scope="module")
def found():
    made = findings.computed(lambda part: planted(part, effect=1.0))
    return json.loads(json.dumps(findings._plain(made)))


def test_planted_effects_are_found(found):
    for data in findings.DATA:
        own = found[data]
        number = own["p2"]["number"]
        assert own["p2"]["fit"]["high"] < 0 and number["optimum_low"] < OPTIMUM < number["optimum_high"]
        assert number["optimum"] == pytest.approx(OPTIMUM, rel=0.15)
        assert [name for name, _ in own["p2"]["fit"]["without"]] == ["triplet_sh"]
        assert own["p3"]["low"] < 12 < own["p3"]["high"] and own["p3"]["number"] == (10 if data == "captions" else 5)
        for loss in plan.TREATED:
            every = own["interventions"][loss]["hard_minus_random"]
            assert list(every) == [str(k) for k in plan.KEPT]
            assert all(abs(each["mean"] - 12) < 3 for each in every.values())
        assert own["held"]["best"] in {16, 32} and own["held"]["nearest"] == 16
        masked = own["masking"]["ntxent 0.05"]["rsum"]
        assert masked["look_alikes_minus_none"]["low"] < 5 < masked["look_alikes_minus_none"]["high"]
        assert masked["random_minus_none"]["low"] < 0 < masked["random_minus_none"]["high"]
    assert found["tests"]["holm"]["p3"] >= found["tests"]["p"]["p3"] and max(found["tests"]["holm"].values()) < 0.05


def close(first, second, where=""):
    """Assert that two values of JSON are equal up to rounding."""
    if isinstance(first, dict):
        assert list(first) == list(second), where
        for name in first:
            close(first[name], second[name], f"{where} {name}")
    elif isinstance(first, list):
        assert len(first) == len(second), where
        for number, (one, other) in enumerate(zip(first, second, strict=True)):
            close(one, other, f"{where} {number}")
    elif isinstance(first, float):
        assert first == pytest.approx(second, rel=1e-6, abs=1e-9), where
    else:
        assert first == second, where


def test_the_written_findings_are_those_of_the_results():
    made = findings.computed(lambda part: results.open(runner.RESULTS / f"{part}.nc"))
    close(json.loads(json.dumps(findings._plain(made))), json.loads(findings.FILE.read_text(encoding="utf-8")))


def test_no_effect_is_no_finding():
    grid, runs = planted("captions_grid", effect=0.0), planted("captions_interventions", effect=0.0)
    assert findings._p1(grid, 128).p > 0.05
    fit = findings._p2(grid, 128)["fit"]
    assert fit.low < 0 < fit.high
    assert not findings._p3(runs).resolved


def test_the_rate_is_chosen_on_validation_items(found):
    grid = planted("captions_grid", effect=1.0)
    runs = findings.chosen(grid, 128)
    assert np.unique(runs["rate"]).tolist() == [0.006] and runs.sizes["run"] == 40 * 3
    # Where validation says another rate, that one is taken, whatever test says.
    other = (grid["rate"] == 0.002) & (grid["family"] == "triplet")
    grid["rsum_val"] = grid["rsum_val"].where(~other, 599.0)
    chosen = findings.chosen(grid, 128)
    assert np.unique(chosen["rate"][chosen["family"] == "triplet"]).tolist() == [0.002]
    assert found["captions"]["rates"]["ntxent"] == {"0.002": 0, "0.006": 8, "0.02": 0}


def test_a_difference_is_paired_by_seed():
    runs = planted("captions_interventions", effect=1.0)
    first, second = findings.differences(runs, {"arm": "hard", "k": (1, 2)}, {"arm": "random", "k": 1})
    own = runs.where((runs["seed"] == 3) & (runs["arm"] == "hard") & runs["k"].isin([1, 2]), drop=True)
    assert len(first) == 10 and first[3] == pytest.approx(float(own["rsum"].isel(step=-1).mean()))
    assert own.sizes["run"] == 2 * 2 * 2  # losses, rates, k
    assert second[0] != second[1]


def test_every_section_is_printed(found):
    for name in summary.SECTIONS:
        printed = summary.lines(found, name)
        assert printed and not any("nan" in line or "None" in line for line in printed), printed
    assert sum("support no conclusion" in line for line in summary.lines(found, "levels")) == len(
        summary.lines(found, "levels")
    )
