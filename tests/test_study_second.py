"""The second edition of the study: its numbers are those of the runs, and of somebody else's code.

Where a number is typed here, its source is a review of the first edition that recomputed the study with code of its own
(numpy and scipy, not cocos): the two must agree to the digit that the review printed.
"""

import json

import numpy as np
import pytest
from scipy import stats

from analysis.study import by_the_table, details, facts, findings, items, null_rates, plan, reanalysis, runner, tasks
from analysis.study.training import trained
from cocos import results
from tests.test_study_findings import close

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def again():
    return json.loads(reanalysis.FILE.read_text("utf-8"))


@pytest.fixture(scope="module")
def captions():
    """Columns of the settings of the captions at the rates chosen, by plain loops over the runs."""
    grid = results.open(runner.RESULTS / "captions_grid.nc")
    made = {}
    for loss in plan.VALUES:
        for value in plan.VALUES[loss]:
            means = []
            for rate in plan.RATES["captions"]:
                own = [
                    run
                    for run in range(grid.sizes["run"])
                    if (str(grid["family"].values[run]), float(grid["value"].values[run])) == (loss, value)
                    and (float(grid["rate"].values[run]), int(grid["batch_size"].values[run])) == (rate, 128)
                ]
                last = {name: float(grid[name].values[own, -1].mean()) for name in ("rsum", "rsum_val", "effective")}
                means.append(last)
            made[loss, value] = max(means, key=lambda each: each["rsum_val"])
    return made


def test_the_written_numbers_are_those_of_the_results(again):
    close(json.loads(json.dumps(reanalysis.computed())), again)


@pytest.mark.parametrize(
    ("data", "loss", "name", "k", "printed"),
    [
        ("captions", "ntxent", "contributing", "64", "+3.7 [+2.0, +5.4]"),
        ("captions", "triplet", "contributing", "64", "+7.2 [+5.3, +9.1]"),
        ("emoji", "ntxent", "contributing", "64", "-13.0 [-29.9, +3.9]"),
        ("emoji", "triplet", "contributing", "64", "+14.2 [+8.4, +19.9]"),
        ("captions", "ntxent", "effective", "64", "+0.6 [-0.3, +1.6]"),
    ],
)
def test_the_comparison_at_equal_numbers_is_that_of_the_review(again, data, loss, name, k, printed):
    one = again[data]["equal"][loss][name][k]
    assert f"{one['mean']:+.1f} [{one['low']:+.1f}, {one['high']:+.1f}]" == printed


def test_other_numbers_are_those_of_the_review(again):
    one, other = again["captions"], again["emoji"]
    assert f"{one['arch']['two_lines']['below']['mean']:+.1f}" == "+12.8"
    assert f"{one['arch']['two_lines']['above']['mean']:+.1f}" == "-12.5"
    assert f"{one['arch']['cubic']:.3f} {one['arch']['slopes']:.3f}" == "0.001 0.012"
    assert (
        f"{other['arch']['cubic']:.3f} {other['arch']['slopes']:.3f} {other['arch']['hc3']['p']:.3f}"
        == "0.017 0.024 0.085"
    )
    assert [f"{other['arch']['two_lines'][side]['p']:.2f}" for side in ("below", "above")] == ["0.21", "0.16"]
    sides = one["correlations"]["sides"]["20"]
    rho = [f"{sides[side][name]['rho']:+.2f}" for side in ("below", "above") for name in ("count", "effective")]
    assert rho[:2] + rho[3:] == ["+0.81", "+0.87", "-1.00"]
    both = one["temperature"]
    assert [f"{both['ntxent']['r2'][name]:.2f}" for name in ("temperature", "part", "number")] == [
        "0.71",
        "0.41",
        "0.24",
    ]
    assert [f"{both['both']['r2'][name]:.2f}" for name in ("temperature", "part", "number")] == ["0.61", "0.30", "0.33"]
    held = one["held"]["against"]["0.006"]
    assert f"{held['mean']:.1f} [{held['low']:.1f}, {held['high']:.1f}]" == "-3.8 [-7.2, -0.4]"
    pushing = one["pushing"]["ntxent"]
    assert [f"{pushing[arm]['1']['contributing']:.2f}" for arm in ("hard", "random")] == ["0.99", "0.07"]
    assert [
        one["rates"]["by_loss"]["ntxent"],
        facts._at_edges(_rates("captions")),
        facts._at_edges(_rates("emoji")),
    ] == [
        "8 of 8",
        "24 of 40",
        "13 of 30",
    ]


def _rates(data):
    return json.loads(findings.FILE.read_text("utf-8"))[data]["rates"]


def test_two_lines_and_robust_errors_by_a_plain_loop(again, captions):
    rows = [(loss, one) for (loss, _), one in captions.items() if loss != "triplet_sh"]
    names = sorted({loss for loss, _ in rows})
    design, score = [], []
    for loss, one in rows:
        away = np.log(one["effective"] / 16)
        design.append([*(float(loss == name) for name in names), min(away, 0), max(away, 0)])
        score.append(one["rsum"])
    x, y = np.array(design), np.array(score)
    inverse = np.linalg.inv(x.T @ x)
    slopes = inverse @ x.T @ y
    meat = np.zeros((len(names) + 2,) * 2)
    for row, value in zip(x, y, strict=True):
        rest = (value - row @ slopes) / (1 - row @ inverse @ row)
        meat += rest**2 * np.outer(row, row)
    errors = np.sqrt(np.diag(inverse @ meat @ inverse))
    for place, side in ((-2, "below"), (-1, "above")):
        found = again["captions"]["arch"]["two_lines"][side]
        assert found["mean"] == pytest.approx(slopes[place], rel=1e-6)
        half = stats.t.ppf(0.975, len(y) - x.shape[1]) * errors[place]
        assert (found["low"], found["high"]) == pytest.approx((slopes[place] - half, slopes[place] + half), rel=1e-6)


def test_a_side_of_the_arch_is_what_its_numbers_say(again, captions):
    below = [one for (loss, _), one in captions.items() if loss == "ntxent" and one["effective"] <= 16]
    assert len(below) == 4 and len(captions) == 40
    known = again["captions"]["correlations"]["sides"]["16"]
    assert known["below"]["count"]["number"] + known["above"]["count"]["number"] == 32
    best = max((one["rsum_val"], one["effective"]) for (loss, _), one in captions.items() if loss == "ntxent")[1]
    assert best == pytest.approx(33.7, abs=0.05)


def test_an_equal_number_that_is_not_reached_is_no_comparison(again):
    for data in findings.DATA:
        for own in again[data]["equal"].values():
            assert [k for k, one in own["contributing"].items() if one] == ["64"]
            assert all(own["effective"].values())


def test_hits_of_the_items_are_the_recall_of_the_run():
    trial = plan.Trial("captions", "ntxent", 0.15, 0.002, 128, 1)
    *_, (_, model, _) = trained(trial, tasks.task("captions"))
    found = items.hits(model, tasks.task("captions"))
    place = plan.trials("captions_grid").index(trial)
    runs = results.open(runner.RESULTS / "captions_grid.nc")
    assert found.mean() == pytest.approx(float(runs["rsum"].values[place, -1]), abs=1e-6)
    assert len(found) == 478 and found.min() >= 0 and found.max() <= 600
    known = json.loads(items.FILE.read_text("utf-8"))["captions"]
    assert found.std(ddof=1) / 478**0.5 == pytest.approx(known["losses"]["ntxent"]["over_items"], rel=0.1)


def test_a_loop_from_the_table_lands_within_the_spread_of_its_seeds():
    known = json.loads(by_the_table.FILE.read_text("utf-8"))
    name, value, rate = by_the_table.SETTINGS[0]
    assert by_the_table.trained(name, value, rate, by_the_table.SEEDS[0]) == pytest.approx(
        known[name]["rsum"][0], abs=1.5
    )
    best = json.loads(findings.FILE.read_text("utf-8"))["captions"]["best"]["128"]
    for loss, one in known.items():
        assert abs(np.mean(one["rsum"]) - best[loss]["rsum"]) < np.std(one["rsum"], ddof=1), loss
        assert one["value"] == best[loss]["value"]


def test_the_table_of_details_names_what_moves_a_result():
    told = dict(details.rows(facts._items()))
    assert "384 to 64" in told["heads"] and "192" in told["heads"]
    assert "0.9, 0.999" in told["optimiser"] and "decay 0.05" in told["optimiser"]
    assert "0.95 down to 0.85" in told["learning rate"] and "1/25" in told["learning rate"]
    assert "*sum*" in told["losses"] and "half of either" in told["directions"]
    assert "18.8 (128)" in told["times that an item is seen (batch size)"]  # 150 steps of 128 of 1,022 photos


def test_curves_that_ignore_the_count_are_smooth_as_asked():
    rng = np.random.default_rng(0)
    rows = {kind: null_rates.curves(kind, [8] * 400, rng).reshape(400, 8) for kind in ("points", "1", "3", "arches")}
    lag = {kind: np.mean([np.corrcoef(row[1:], row[:-1])[0, 1] for row in each]) for kind, each in rows.items()}
    assert abs(lag["points"]) < 0.2 < lag["1"] < lag["3"]
    assert np.unique(rows["arches"].argmax(axis=1)).tolist() == list(range(8))
