"""Findings of the second study: planted differences are found, and a choice never sees the test items."""

import math

import numpy as np
import pytest
from scipy import stats

from analysis.hold_study import findings, plan, runner

pytestmark = pytest.mark.slow

LIFT = {"late": 2.0, "early": -5.0, "once": 1.0}


def planted(stack, seed_noise=0.5):
    """Recall with its top at temperature 0.15 and at the middle rate, and a lift of each arm that is held."""
    generator = np.random.default_rng([stack.seed, plan.DATA.index(stack.data), stack.width])
    cell = {"photos": 400.0, "emoji": 170.0, "abstracts": 480.0}[stack.data] + stack.width / 10 + stack.batch_size / 32
    rate = 0.0 if stack.rate == plan.RATES[stack.data][1] else -1.0
    rows = []
    for arm in stack.arms:
        if arm.kind == "factorial":
            lift = -4 * math.log(arm.temperature / 0.1) ** 2 + 2 * math.log(arm.weight)
        elif arm.kind == "constant":
            lift = -4 * math.log(arm.temperature / plan.START) ** 2
        else:
            lift = LIFT[arm.kind] + (0.1 if stack.width == plan.WIDTHS[0] else -0.1)
        rows.append(cell + rate + lift)
    noise = seed_noise * generator.normal()
    settings = {"late": [0.2] * 6, "early": [0.1] * 10, "once": [0.2]} if stack.part == "cells" else {}
    test = [each + noise for each in rows]
    return {"rsum": test, "rsum_val": rows, "effective": [12.0] * len(rows),
            "temperature": [arm.temperature for arm in stack.arms], "settings": settings}  # fmt: skip


def made(part, change=lambda stack, row: row):
    every = plan.stacks(part)
    return runner.dataset(part, {each.key: {"row": change(each, planted(each)), "seconds": 1.0} for each in every})


@pytest.fixture(scope="module")
def found():
    return findings.computed(made("cells"), made("factorial"))


def test_planted_differences_are_found(found):
    assert len(found["cells"]) == 24 and found["runs"] == {"cells": 3600, "factorial": 480}
    for cell in found["cells"]:
        assert (
            cell["arms"]["grid"]["start"] == plan.START and cell["arms"]["grid"]["rate"] == plan.RATES[cell["data"]][1]
        )
    assert found["differences"]["late_grid"]["mean"] == pytest.approx(2)
    assert found["differences"]["late_once"]["mean"] == pytest.approx(1)
    assert found["differences"]["late_early"]["mean"] == pytest.approx(7)
    emoji = found["by"]["late_constant"]["data"]["emoji"]
    half = stats.t.ppf(0.975, 7) * emoji["sd"] / np.sqrt(8)
    assert emoji == pytest.approx({
        "mean": 2,
        "low": 2 - half,
        "high": 2 + half,
        "sd": 0.1 * np.sqrt(8 / 7),
        "number": 8,
    })
    assert found["by"]["late_grid"]["width"]["8"]["mean"] == pytest.approx(2.1)
    assert found["clustered"]["late_grid"]["groups"] == 3 and found["clustered"]["late_grid"]["mean"] == pytest.approx(
        2
    )
    assert found["regret"]["grid"]["mean"] == pytest.approx(0, abs=1e-9) and found["regret"]["grid"]["trainings"] == 21
    assert (
        found["regret"]["0.05"]["mean"] == pytest.approx(4 * math.log(3) ** 2)
        and found["regret"]["late"]["trainings"] == 3
    )
    assert found["regret"]["late"]["mean"] == pytest.approx(-2)
    assert found["edges"]["grid"] == 0 and found["edges"]["temperatures"]["0.15"] == 24
    assert found["broken"] == [] and found["hours"] == pytest.approx(390 / 3600)


def test_the_tests_are_those_of_the_preregistration():
    values = np.array([-4, -1, 0.5, -2, 1, -0.5])
    cells = [{"arms": {"late": {"rsum": v}, "grid": {"rsum": 0.0}, "0.15": {"rsum": v - 0.4 - v / 10}}} for v in values]
    one = findings.tests(cells)
    error = values.std(ddof=1) / np.sqrt(6)
    assert one["h1"]["p"] == pytest.approx(stats.t.sf((values.mean() + 3) / error, 5))
    assert one["h1"]["bound"] == pytest.approx(values.mean() - stats.t.ppf(0.95, 5) * error)
    assert one["h1"]["holds"] == (one["h1"]["bound"] > -3 and one["h1"]["holm"] < 0.05)
    other = 0.4 + values / 10
    assert one["h2"]["p"] == pytest.approx(stats.t.sf(other.mean() / (other.std(ddof=1) / np.sqrt(6)), 5))
    assert one["h2"]["lower"] == 0 and one["h1"]["lower"] == 4
    smaller, larger = sorted([one["h1"], one["h2"]], key=lambda each: each["p"])
    assert smaller["holm"] == pytest.approx(2 * smaller["p"])
    assert larger["holm"] == pytest.approx(max(larger["p"], 2 * smaller["p"]))


def test_what_is_chosen_depends_on_validation_items_alone():
    def other_test(stack, row):
        return row | {"rsum": [each + 50 * (place == 0) for place, each in enumerate(row["rsum"])]}

    cells = findings.computed(made("cells", other_test), made("factorial"))["cells"]
    assert all(cell["arms"]["grid"]["start"] == plan.START for cell in cells)
    assert all(cell["best"]["temperature"] == plan.GRID[0] for cell in cells), (
        "regret is against the best on test items"
    )


def test_a_training_that_is_not_finite_counts_with_zero_and_is_listed():
    def broken(stack, row):
        if (stack.seed, stack.cell) != (101, "photos ntxent width=8 batch=32") or stack.rate != 0.006:
            return row
        return row | {"effective": [math.nan, *row["effective"][1:]], "rsum": [600.0, *row["rsum"][1:]]}

    rows, said = findings.table(made("cells", broken))
    assert said == ["photos ntxent width=8 batch=32 constant 0.03 rate=0.006 seed=101"]
    own = rows[(rows["cell"] == "photos ntxent width=8 batch=32") & (rows["start"] == 0.03) & (rows["rate"] == 0.006)]
    assert own["seeds"].iloc[0][0] == 0


def test_parts_of_the_factorial_are_those_of_two_ways(found):
    means = np.array([[1.0, 2, 4], [2, 3, 5], [7, 8, 10]])  # rows and columns add up
    first, second, both = findings._parts(means)
    assert both == pytest.approx(0, abs=1e-12) and first + second == pytest.approx(1)
    wanted = 3 * np.square(means.mean(axis=1) - means.mean()).sum() / np.square(means - means.mean()).sum()
    assert first == pytest.approx(wanted)
    one = found["factorial"]["photos"]
    rows = -4 * np.log(np.array(plan.FACTORS) / 0.1) ** 2
    columns = 2 * np.log(np.array(plan.FACTORS))
    part = rows.var() / (rows.var() + columns.var())
    assert one["parts"]["negatives"]["value"] == pytest.approx(part)
    assert one["parts"]["negatives"]["low"] == pytest.approx(part), "the seeds of a data set share their noise here"
    assert one["best"]["negatives"] == 0.1 and one["best"]["weight"] == 0.4 and one["gain"]["mean"] > 0
    assert len(np.array(one["seeds"]).shape) == 3 and one["best_negatives"] == [0.1] * 4


def test_parts_of_the_factorial_have_intervals_over_the_seeds():
    def noisy(stack, row):
        generator = np.random.default_rng(stack.seed)
        return row | {"rsum": [each + generator.normal() for each in row["rsum"]]}

    one = findings.computed(made("cells"), made("factorial", noisy))["factorial"]["emoji"]["parts"]
    assert all(each["low"] < each["value"] < each["high"] for each in (one["negatives"], one["weight"]))
    assert sum(each["value"] for each in one.values()) == pytest.approx(1)
