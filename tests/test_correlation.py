"""Rank correlations within blocks: exact p-values, known orders, and what must be refused."""

import itertools
import math
import re

import numpy as np
import pytest
from scipy import stats

from cocos.base.errors import InputError
from cocos.results import correlation

FEW = {"resamples": 500, "permutations": 2_000}


@pytest.fixture
def table():
    """Two families of six settings with three seeds each: between settings x and y rise, between families they part."""
    rng = np.random.default_rng(3)
    family = np.repeat(["ntxent", "triplet"], 18)
    config = np.array([f"{name} {k}" for name in ("ntxent", "triplet") for k in range(6) for _ in range(3)])
    setting = np.tile(np.repeat(np.arange(6.0), 3), 2)
    x = setting + 20 * (family == "triplet") + rng.normal(0, 0.05, 36)
    y = setting - 20 * (family == "triplet") + rng.normal(0, 0.05, 36)
    return {"x": x, "y": y, "family": family, "config": config}


def test_spearman_is_that_of_scipy():
    rng = np.random.default_rng(0)
    for n in (3, 8, 40):
        x, y = rng.integers(5, size=n) + np.arange(n) % 2, rng.normal(size=n)
        assert correlation.spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


@pytest.mark.parametrize("wrong", [[1, 2], [1, math.nan, 3], [1, math.inf, 3], [2, 2, 2], [1.0, 1.0 + 1e-8, 1.0]])
def test_spearman_refuses_what_has_no_order(wrong):
    with pytest.raises(InputError, match="spearman"):
        correlation.spearman(wrong, list(range(len(wrong))))


def test_midranks_of_a_resample_are_those_of_its_members():
    values, times = np.array([3.0, 1.0, 3.0, 2.0]), np.array([[2.0, 0.0, 1.0, 1.0], [0.0, 4.0, 0.0, 0.0]])
    found = correlation._midranks(values, times)
    drawn = stats.rankdata([3.0, 3.0, 3.0, 2.0])
    assert found[0, [0, 2, 3]].tolist() == [drawn[0], drawn[2], drawn[3]]
    assert found[1, 1] == 2.5  # four that are equal


def by_hand(x, y, block):
    """P-value by listing every order within the blocks, with scipy's ranks."""
    places = [np.flatnonzero(np.array(block) == name) for name in sorted(set(block))]
    ranks = [
        np.concatenate([stats.rankdata(np.array(each)[at]) - (len(at) + 1) / 2 for at in places]) for each in (x, y)
    ]
    starts = np.cumsum([0, *map(len, places)])
    sums = []
    for orders in itertools.product(*(itertools.permutations(range(len(at))) for at in places)):
        order = np.concatenate([start + np.array(each) for start, each in zip(starts, orders, strict=False)])
        sums.append(ranks[0][order] @ ranks[1])
    observed = ranks[0] @ ranks[1]
    rho = observed / np.sqrt((ranks[0] @ ranks[0]) * (ranks[1] @ ranks[1]))
    return rho, np.mean(np.abs(sums) >= abs(observed) - 1e-9)


@pytest.mark.parametrize(
    ("x", "y", "block"),
    [
        ([1, 2, 3, 4, 5, 6], [2, 1, 4, 3, 6, 5], ["a"] * 6),
        ([1, 2, 3, 4, 9, 7, 8], [2, 1, 4, 3, 1, 2, 3], ["a"] * 4 + ["b"] * 3),
        ([1, 1, 3, 4, 9, 9, 8], [2, 1, 4, 4, 1, 2, 3], ["a"] * 4 + ["b"] * 3),
    ],
)
def test_the_p_value_of_few_units_is_exact(x, y, block):
    rho, p = by_hand(x, y, block)
    found = correlation.within(x, y, block, resamples=100)
    assert found.rho == pytest.approx(rho) and found.p == pytest.approx(p)
    drawn = correlation.within(x, y, block, resamples=100, permutations=100)  # fewer than all orders: drawn at random
    assert abs(drawn.p - p) < 0.15 and (drawn.p * 101) % 1 == pytest.approx(0, abs=1e-9)


def test_four_units_cannot_be_significant():
    found = correlation.within([1, 2, 3, 4], [1, 2, 3, 4], resamples=100)
    assert found.rho == 1 and found.p == found.smallest == 2 / 24  # both perfect orders of 4! are as extreme
    many = correlation.within(range(12), range(12), resamples=100, permutations=999)
    assert many.p == many.smallest == 1 / 1000


def test_blocks_decide_the_sign():
    x, y = [1, 2, 3, 4, 11, 12, 13, 14], [4, 3, 2, 1, 14, 13, 12, 11]
    assert correlation.within(x, y, ["a"] * 4 + ["b"] * 4, **FEW).rho == pytest.approx(-1)
    assert correlation.within(x, y, **FEW).rho == pytest.approx(0.52, abs=0.01)


def test_nothing_is_left_out_in_silence():
    x = [1, 2, 3, 4, math.nan, 1, 1, 1, 5, 6]
    y = [1, 2, 4, 3, 5, 1, 2, 3, 5, math.inf]
    few = correlation.within(x[5:], y[5:], ["constant"] * 3 + ["few"] * 2)
    assert few.undefined.startswith(
        "n = 0 in blocks that can be used, at least 4 are needed (constant: x constant, n = 3"
    )
    found = correlation.within(x, y, ["a"] * 5 + ["constant"] * 3 + ["few"] * 2, names=("count", "rsum"), **FEW)
    assert (found.number, found.blocks, found.left_out) == (4, 1, 2)
    assert dict(found.without) == {
        "constant": "count constant, n = 3",
        "few": "n = 1 finite, at least 3 are needed",
    }


@pytest.mark.parametrize(
    ("x", "said"),
    [
        ([2.0] * 12, "^x constant, n = 12$"),
        ([1 + 5e-8 * k for k in range(12)], "x constant, n = 12"),  # as float32 rounds an effective number of 1
        ([math.nan] * 12, "n = 0 finite"),
        ([*range(3), *[math.nan] * 9], "^n = 3 finite, at least 4 are needed$"),
    ],
)
def test_a_constant_column_and_nan_have_no_p_value(x, said):
    """A permutation test of a column of NaN gave p = .002 in a trial of the study: no comparison with NaN is true."""
    for found in (
        correlation.within(x, range(12), **FEW),
        correlation.beyond(x, np.arange(12) % 5, range(12), **FEW).partial,
        correlation.quadratic(x, range(12), resamples=100),
    ):
        assert math.isnan(found.p) and math.isnan(found.low)
        assert re.search(said, found.undefined)


def test_lengths_and_options_are_checked():
    with pytest.raises(InputError, match=r"x \[3\], y \[4\]"):
        correlation.within([1, 2, 3], [1, 2, 3, 4])
    with pytest.raises(InputError, match=r"block \[2\]"):
        correlation.within([1, 2, 3], [1, 2, 3], ["a", "b"])
    with pytest.raises(InputError, match="not made of numbers"):
        correlation.within(["one", "two"], [1, 2])
    for wrong in ({"permutations": 0}, {"resamples": 0}, {"level": 95}, {"level": 0}):
        with pytest.raises(InputError, match="expected"):
            correlation.within(range(5), range(5), **wrong)
        with pytest.raises(InputError, match="expected"):
            correlation.levels(range(5), range(5), family=["a"] * 5, config=range(5), **wrong)


def test_a_seed_gives_the_same_numbers_in_pieces_of_any_size(monkeypatch):
    rng = np.random.default_rng(1)
    x, y, block = rng.normal(size=20), rng.normal(size=20), ["a", "b"] * 10
    found = [correlation.within(x, y, block, seed=seed, **FEW) for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]
    assert (found[0].p - found[2].p) < 0.1
    monkeypatch.setattr(correlation, "PIECE_VALUES", 100)
    assert abs(correlation.within(x, y, block, **FEW).p - found[0].p) < 0.1


def test_the_interval_is_that_of_a_plain_bootstrap():
    rng = np.random.default_rng(2)
    x = rng.normal(size=25)
    y = x + rng.normal(size=25)
    draws = [rng.integers(25, size=25) for _ in range(2000)]
    plain = np.quantile([stats.spearmanr(x[each], y[each]).statistic for each in draws], [0.025, 0.975])
    found = correlation.within(x, y, resamples=2000, permutations=100)
    assert (found.low, found.high) == pytest.approx(plain, abs=0.03)


def test_the_partial_correlation_is_that_of_the_residuals():
    rng = np.random.default_rng(4)
    base = rng.normal(size=30)
    x, y = base + rng.normal(size=30), base + rng.normal(size=30)
    ranks = [stats.rankdata(each) for each in (x, base, y)]
    rest = [each - np.polyval(np.polyfit(ranks[1], each, 1), ranks[1]) for each in (ranks[0], ranks[2])]
    found = correlation.beyond(x, base, y, **FEW)
    assert found.partial.rho == pytest.approx(np.corrcoef(rest)[0, 1])
    assert found.x == pytest.approx(stats.spearmanr(x, y).statistic)
    assert found.baseline == pytest.approx(stats.spearmanr(base, y).statistic)
    assert found.difference == pytest.approx(abs(found.x) - abs(found.baseline))
    assert found.low < found.difference < found.high


def test_beyond_finds_what_a_baseline_lacks_and_nothing_more():
    rng = np.random.default_rng(5)
    base, more = rng.normal(size=60), rng.normal(size=60)
    y = base + more
    assert correlation.beyond(more, base, y, **FEW).partial.p < 0.01
    copies = [correlation.beyond(base + rng.normal(size=60), base, y, **FEW).partial.p for _ in range(20)]
    assert sum(p < 0.05 for p in copies) <= 3  # 20 true null hypotheses: more than three with a chance of 1.6 %
    same = correlation.beyond(base, base, y, **FEW)
    assert "orders as x" in same.partial.undefined and math.isnan(same.partial.p)


def smooth(rng, families, settings, length):
    """A Gaussian process along a grid for each family, one after the other."""
    away = np.subtract.outer(np.arange(settings), np.arange(settings)) / length
    root = np.linalg.cholesky(np.exp(-(away**2) / 2) + 1e-6 * np.eye(settings))
    return (rng.normal(size=(families, settings)) @ root.T).ravel()


@pytest.mark.slow
def test_smooth_curves_that_ignore_x_are_rejected_as_often_as_the_level_says():
    """Standard error of a rate of .05 in 300 simulations: .013; the exchange of settings rejects a quarter of them."""
    block, place = np.repeat(list("abcde"), 8), np.tile(np.arange(8.0), 5)
    p = {"within": [], "ordered": []}
    for seed in range(300):
        y = smooth(np.random.default_rng([9, seed]), 5, 8, 2)
        p["within"].append(correlation.within(place, y, block, permutations=199, resamples=100, seed=seed).p)
        p["ordered"].append(correlation.ordered(place, y, place, block, permutations=199, seed=seed).p)
    rates = {name: np.mean(np.array(each) <= 0.05) for name, each in p.items()}
    assert rates["ordered"] < 0.09 and rates["within"] > 0.15


def test_a_relation_is_found_along_a_grid():
    """The curve of each family is its own x, so that they cannot all follow it by chance."""
    rng = np.random.default_rng(3)
    block, place = np.repeat(list("abcdef"), 8), np.tile(np.arange(8.0), 6)
    x = smooth(rng, 6, 8, 1)
    found = correlation.ordered(x, x + 0.3 * rng.normal(size=48), place, block, permutations=2000)
    assert found.p < 0.01 and found.number == 48 and found.blocks == 6
    assert found.rho == pytest.approx(correlation.within(x, x, block, **FEW).rho, abs=0.2)
    independent = rng.normal(size=48)  # points without neighbours: curves along a grid say nothing that orders do not
    both = correlation.ordered(independent, x, place, block).p, correlation.within(independent, x, block, **FEW).p
    assert both[0] == pytest.approx(both[1], abs=0.12)


def test_units_at_one_place_share_a_curve():
    """Three learning rates of a setting are no three settings: copies leave the p-value nearly as it is."""
    block, place = np.repeat(list("abcd"), 8), np.tile(np.arange(8.0), 4)
    y = smooth(np.random.default_rng(4), 4, 8, 2) + place / 4
    noise = np.random.default_rng(5).normal(size=(3, 32)) * 0.05
    one = correlation.ordered(place, y, place, block)
    three = correlation.ordered(
        np.tile(place, 3), np.concatenate(y + noise), 10.0 ** np.tile(place, 3), np.tile(block, 3)
    )
    assert three.number == 96 and three.p == pytest.approx(one.p, abs=0.1)
    assert correlation.within(np.tile(place, 3), np.concatenate(y + noise), np.tile(block, 3), **FEW).p < one.p / 2


def test_a_grid_that_cannot_be_used_is_left_out_with_its_reason():
    place = np.tile(np.arange(5.0), 2)
    grid = np.where(np.arange(10) < 5, place, 1.0)
    found = correlation.ordered(place, place**2, grid, np.repeat(["a", "b"], 5), names=("count", "rsum", "value"))
    assert found.without == (("b", "value constant, n = 5"),) and found.number == 5
    assert "at least 4 are needed" in correlation.ordered([1, 2, 3], [1, 2, 3], [1, 2, 3]).undefined


def test_a_parabola_is_found_with_its_optimum():
    x = np.tile(np.linspace(0, 6, 9), 2)
    block = ["a"] * 9 + ["b"] * 9
    rng = np.random.default_rng(6)
    y = 400 - 3 * (x - 2.5) ** 2 + 30 * (np.arange(18) > 8) + rng.normal(0, 1, 18)
    found = correlation.quadratic(x, y, block, resamples=2000)
    assert found.curvature == pytest.approx(-3, abs=0.3) and found.low < -3 < found.high
    assert found.optimum_low < 2.5 < found.optimum_high and found.inside
    assert found.bent_down == 1 and found.p == 2 / 2001
    assert found.optimum == pytest.approx(-found.slope / (2 * found.curvature))
    design = np.stack([x**0 * (np.array(block) == "a"), x**0 * (np.array(block) == "b"), x, x**2], axis=1)
    for part, columns in zip(found.r2, (2, 3, 4), strict=True):
        rest = y - design[:, :columns] @ np.linalg.lstsq(design[:, :columns], y, rcond=None)[0]
        assert part == pytest.approx(1 - rest.var() / y.var())


def test_a_line_has_no_optimum():
    x, rng = np.arange(12.0), np.random.default_rng(7)
    found = correlation.quadratic(x, x + rng.normal(0, 1, 12), resamples=1000)
    assert found.p > 0.05 and (math.isnan(found.optimum) or not found.inside)
    up = correlation.quadratic(x, (x - 5) ** 2 + rng.normal(0, 1, 12), resamples=1000)
    assert up.bent_down == 0 and math.isnan(up.optimum) and math.isnan(up.optimum_low) and not up.inside
    two = correlation.quadratic(x % 2, x, resamples=100)
    assert "too few values, n = 12" in two.undefined and math.isnan(two.p)


def test_levels_stand_side_by_side(table):
    found = correlation.levels(**table, **FEW)
    assert list(found) == list(correlation.LEVELS)
    assert found["settings"].rho == pytest.approx(1) and found["settings"].number == 12
    assert found["settings"].p < 0.01
    assert found["pooled"].rho < -0.3 and found["pooled"].number == 36
    assert math.isnan(found["pooled"].p) and math.isnan(found["pooled"].low)  # never a finding
    assert correlation.LEVELS["pooled"][0] == "pooled: not a finding"
    assert found["families"].undefined == "n = 2 finite, at least 4 are needed"
    assert found["within_run"].undefined == "the runs have one checkpoint each"
    assert found["seeds"].number == 36 and found["seeds"].blocks == 12
    assert abs(found["seeds"].rho) < 0.5 and found["seeds"].p > 0.01


def test_levels_of_checkpoints(table):
    steps = np.arange(5)
    x = table["x"][:, None] - 0.5 * steps[::-1]
    y = table["y"][:, None] + 0.5 * steps[::-1]  # along a run x rises and y falls; the ends are those of the table
    whole = correlation.levels(x, y, family=table["family"], config=table["config"], **FEW)
    ends = correlation.levels(**table, **FEW)
    assert whole["within_run"].rho == pytest.approx(-1)
    assert (whole["within_run"].number, whole["within_run"].blocks) == (12, 36)
    assert 1 / 2001 == whole["within_run"].smallest <= whole["within_run"].p < 0.01  # 2000 of 4096 signs are drawn
    for level in ("seeds", "settings", "families"):
        assert repr(whole[level]) == repr(ends[level])
    x[3, 4] = math.nan  # the end of one run is undefined: it is not replaced by an earlier checkpoint
    assert correlation.levels(x, y, family=table["family"], config=table["config"], **FEW)["seeds"].left_out == 1
    y[3, 4] = math.nan  # this run has no fifth checkpoint
    assert correlation.levels(x, y, family=table["family"], config=table["config"], **FEW)["seeds"].left_out == 0


def test_seeds_find_what_differs_between_seeds(table):
    rng = np.random.default_rng(8)
    noise = rng.normal(size=36)
    table["x"], table["y"] = table["x"] + 0.01 * noise, table["y"] - 5 * noise
    assert correlation.levels(**(table | {"x": noise}), **FEW)["seeds"].rho < -0.9
    table["x"][:3] = 1  # a setting whose seeds agree says nothing of them
    assert dict(correlation.levels(**table, **FEW)["seeds"].without) == {"ntxent 0": "constant over 3 seeds"}


def test_a_setting_belongs_to_one_family(table):
    table["family"] = np.where(np.arange(36) == 1, "triplet", table["family"])
    with pytest.raises(InputError, match="config 'ntxent 0' belongs to the families ntxent, triplet"):
        correlation.levels(**table)
    with pytest.raises(InputError, match="the same number of runs"):
        correlation.levels([1, 2], [1, 2], family=["a"], config=["b"])


@pytest.mark.parametrize(("n", "rho", "least", "most"), [(4, 0.9, 0.5, 0.75), (12, 0.6, 0.92, 1), (24, 0, 0.91, 1)])
def test_the_interval_covers_the_truth_as_its_text_says(n, rho, least, most):
    """Standard error of a coverage of .95 over 300 samples: .013; Spearman of normal pairs: 6/pi asin(rho/2)."""
    truth, hits = 6 / math.pi * math.asin(rho / 2), 0
    for seed in range(300):
        one, other = np.random.default_rng([n, seed]).normal(size=(2, n))
        found = correlation.within(one, rho * one + math.sqrt(1 - rho**2) * other, resamples=400, permutations=1)
        hits += found.low <= truth <= found.high
    assert least <= hits / 300 <= most


def test_an_interval_takes_many_resamples():
    x = np.arange(8.0)
    for resamples in (0, 1, 99):
        with pytest.raises(InputError, match=f"resamples: {resamples}, expected a whole number of at least 100"):
            correlation.within(x, x[::-1], resamples=resamples)
