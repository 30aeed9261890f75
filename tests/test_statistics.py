"""Statistics against slow loops, and the properties that a count must have."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import stdtr

import cocos
import oracles
from cocos import Pairs, losses
from cocos.counting import statistics
from cocos.losses.smoothap import SmoothAP

LOSSES = [name for name in losses.names() if hasattr(losses.load(name), "weight")]
seeds = st.integers(0, 2**31 - 1)
names = st.sampled_from(LOSSES)


def drawn(seed, queries=6, candidates=9):
    """Random pairs, with a teacher, in which a few queries miss a positive or a negative, and a few scores tie."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(queries, candidates, generator=generator, dtype=torch.float64) * 2 - 1
    values = torch.where(torch.rand(values.shape, generator=generator) < 0.2, (values * 4).round() / 4, values)
    place = torch.rand(values.shape, generator=generator)
    return Pairs(values, place < 0.25, (place >= 0.25) & (place < 0.9), teacher=values.sin())


def per_query(weights, unit, pairs):
    """Every statistic, n90 among them."""
    found = statistics.per_query(weights, unit, pairs)
    assert "n90" not in found
    return found | {"n90": statistics.n90(statistics.spread(weights, pairs))}


# Of equal negatives these keep the first ones, wherever they stand: only their places may differ.
FIRST = ("triplet_sh", "ce_nm", "snm", "proxy_gml")
UNORDERED = [name for name in LOSSES if name not in {"blackbox_ap", "lambdaloss"}]  # which rank ties by their places


@given(seeds, st.sampled_from(UNORDERED))
@settings(max_examples=60)
def test_permuted_candidates_permute_the_weights_and_keep_every_statistic(seed, name):
    pairs, loss = drawn(seed), losses.load(name)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(seed))
    moved = {key: getattr(pairs, key)[:, order] for key in ("scores", "positive", "negative", "teacher")}
    shuffled = Pairs(**moved)
    if name not in FIRST:
        torch.testing.assert_close(loss.weight(shuffled), loss.weight(pairs)[:, order], rtol=1e-9, atol=1e-12)
    before = per_query(loss.weight(pairs), loss.unit(pairs), pairs)
    after = per_query(loss.weight(shuffled), loss.unit(shuffled), shuffled)
    for key in before:
        torch.testing.assert_close(after[key], before[key], rtol=1e-9, atol=1e-12)


@dataclasses.dataclass(frozen=True)
class Scaled(losses.Loss):
    """A loss times a constant."""

    loss: object
    factor: float

    def value(self, pairs):
        return self.factor * self.loss(pairs)

    def weight(self, pairs):
        return self.factor * self.loss.weight(pairs)

    def unit(self, pairs):
        return self.factor * self.loss.unit(pairs)


DERIVED = [name for name in LOSSES if losses.load(name).gradient != "pseudo"]  # a made-up one need not be linear


@given(seeds, st.sampled_from(DERIVED), st.sampled_from([0.125, 0.5, 4.0, 1024.0]))
@settings(max_examples=60)
def test_scaling_a_loss_scales_its_weights_and_changes_no_count(seed, name, factor):
    pairs, loss = drawn(seed), losses.load(name)
    scaled = Scaled(loss, factor)
    torch.testing.assert_close(
        scaled.weight(pairs), cocos.weights.autograd(scaled, pairs), rtol=1e-9, atol=1e-9 * factor
    )
    before = per_query(loss.weight(pairs), loss.unit(pairs), pairs)
    after = per_query(scaled.weight(pairs), scaled.unit(pairs), pairs)
    for key in set(before) - {"push", "pull"}:
        torch.testing.assert_close(after[key], before[key], rtol=1e-9, atol=1e-12)
    for key in ("push", "pull"):
        torch.testing.assert_close(after[key], factor * before[key])


@given(seeds, names)
@settings(max_examples=60)
def test_the_spread_agrees_with_slow_loops_and_is_ordered(seed, name):
    pairs, loss = drawn(seed), losses.load(name)
    weights = loss.weight(pairs)
    found = per_query(weights, loss.unit(pairs), pairs)
    np.testing.assert_allclose(found["effective"], oracles.effective(weights, pairs), rtol=1e-9)
    np.testing.assert_allclose(found["participation"], oracles.participation(weights, pairs), rtol=1e-9)
    assert found["n90"].tolist() == oracles.n90(weights, pairs)
    active = found["effective"] > 0
    support = ((weights > 0) & pairs.negative).sum(dim=1)  # a negative that is pulled is no push
    hill = [support.double(), found["effective"], found["participation"], 1 / found["hardest_share"]]
    for larger, smaller in zip(hill, hill[1:], strict=False):
        assert (larger[active] >= smaller[active] * (1 - 1e-12)).all()
    assert torch.equal(active, support > 0)


@given(seeds, names, st.floats(0, 0.5))
@settings(max_examples=60)
def test_above_and_below_eps_make_the_whole_and_the_count_is_strict(seed, name, eps):
    pairs, loss = drawn(seed), losses.load(name)
    weights, unit = loss.weight(pairs), loss.unit(pairs)
    found = statistics.per_query(weights, unit, pairs, eps)
    share = weights.abs() / unit
    whole = torch.where(pairs.negative, share, 0).sum(dim=1)
    torch.testing.assert_close(found["weight_above"] + found["weight_below"], whole)
    slow = [sum(bool(pairs.negative[q, c]) and float(share[q, c]) > eps for c in range(9)) for q in range(6)]
    assert found["contributing"].tolist() == slow
    exactly = share[pairs.negative].max().item()
    assert statistics.contributing(share, pairs, exactly).sum() == 0


@given(seeds)
@settings(max_examples=40)
def test_idle_queries_of_all_negatives_are_those_of_the_hardest(seed):
    pairs = drawn(seed)
    every, hardest = losses.load("triplet"), losses.load("triplet_sh")
    counts = [statistics.contributing(loss.weight(pairs).abs(), pairs, 0) for loss in (every, hardest)]
    assert torch.equal(counts[0] == 0, counts[1] == 0)
    assert counts[1].max() <= 1


@given(seeds)
@settings(max_examples=40)
def test_push_and_pull_balance_where_the_loss_is_balanced(seed):
    pairs = drawn(seed)
    for loss in map(losses.load, LOSSES):
        if loss.balanced:
            weights = loss.weight(pairs)
            torch.testing.assert_close(statistics.push(weights), statistics.pull(weights), rtol=1e-9, atol=1e-9)


@given(seeds, st.sampled_from([0.01, 0.05, 0.2]), st.sampled_from([0.001, 0.01, 0.05]))
@settings(max_examples=40)
def test_eq7_agrees_with_the_slow_loop(seed, temperature, eps):
    pairs = drawn(seed)
    np.testing.assert_allclose(SmoothAP(temperature).eq7(pairs, eps), oracles.eq7(pairs, temperature, eps), rtol=1e-12)


def test_equal_weights_count_alike_in_every_measure():
    """Seven of eight negatives push equally: all effective numbers are 7, and 90 % of 7 needs 7."""
    scores = torch.tensor([[0.0] + 7 * [0.5] + [-1.0]], dtype=torch.float64)
    pairs = Pairs(scores, torch.tensor([[True] + 8 * [False]]))
    found = per_query(losses.load("triplet").weight(pairs), torch.ones(()), pairs)
    assert found["contributing"].item() == found["n90"].item() == 7
    for key in ("effective", "participation"):
        assert found[key].item() == pytest.approx(7, rel=1e-14)
    assert found["hardest_share"].item() == pytest.approx(1 / 7, rel=1e-14)
    assert found["weight_positive"].item() == 7


def test_nine_of_ten_equal_negatives_hold_ninety_percent():
    """Ten times 0.1 is not 1 in floating point; the count must not see it."""
    pairs = Pairs(torch.zeros(1, 11, dtype=torch.float64), torch.tensor([[True] + 10 * [False]]))
    weights = torch.tensor([[-1.0] + 10 * [0.1]], dtype=torch.float64)
    assert statistics.n90(statistics.spread(weights, pairs)).item() == 9


@given(seeds, st.sampled_from([0.01, 0.05, 0.3]), st.sampled_from([0.001, 0.01, 0.1]))
@settings(max_examples=40)
def test_eq7_is_the_gradient_count_where_a_query_has_one_positive(seed, temperature, eps):
    """With |P| = 1 the rank among the positives is 1, and a share is exactly a term of Eq. 7."""
    pairs = drawn(seed)
    first = pairs.positive & (pairs.positive.cumsum(dim=1) == 1)
    pairs = Pairs(pairs.scores, first, pairs.negative)
    loss = losses.load("smoothap", {"temperature": temperature})
    share = loss.weight(pairs) / loss.unit(pairs)
    counted = statistics.contributing(share, pairs, eps)
    assert counted.tolist() == SmoothAP(temperature).eq7(pairs, eps).tolist()


def test_a_query_without_push_is_zero_and_never_nan():
    pairs = Pairs(torch.tensor([[1.0, -1.0, -1.0]], dtype=torch.float64), torch.tensor([[True, False, False]]))
    found = per_query(losses.load("triplet").weight(pairs), torch.ones(()), pairs)
    assert all(value.item() == 0 for value in found.values())


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e30])
def test_tiny_and_huge_weights_keep_their_spread(size):
    pairs = Pairs(torch.zeros(1, 4, dtype=torch.float64), torch.tensor([[True, False, False, False]]))
    weights = torch.tensor([[-3.0, 1.0, 1.0, 1.0]], dtype=torch.float64) * size
    assert statistics.effective(statistics.spread(weights, pairs)).item() == pytest.approx(3)
    assert statistics.participation(statistics.spread(weights, pairs)).item() == pytest.approx(3)


def test_perfect_captions_have_an_eq7_count_but_no_gradient():
    """Five positives at one score, far above all negatives: Eq. 7 counts 4.0, all positives; the gradient is nil."""
    scores = torch.tensor([5 * [1.0] + 20 * [0.0]], dtype=torch.float64)
    pairs = Pairs(scores, torch.tensor([5 * [True] + 20 * [False]]))
    loss = losses.load("smoothap")
    assert SmoothAP(0.01).eq7(pairs).item() == 4
    assert loss.weight(pairs).abs().max() < 1e-20
    assert statistics.per_query(loss.weight(pairs), loss.unit(pairs), pairs)["contributing"].item() == 0


def test_paired_differences_are_those_of_scipy():
    from scipy.stats import ttest_rel

    generator = torch.Generator().manual_seed(3)
    for number in (2, 3, 10, 40):
        one, other = torch.randn(2, number, generator=generator, dtype=torch.float64).numpy()
        theirs, ours = ttest_rel(one, other), statistics.paired(one, other)
        interval = theirs.confidence_interval(0.95)
        expected = (float((one - other).mean()), interval.low, interval.high, theirs.pvalue)
        assert (ours.mean, ours.low, ours.high, ours.p) == pytest.approx(expected, rel=1e-12)
        assert ours.number == number and ours.resolved == (theirs.pvalue < 0.05)


def test_a_difference_says_no_more_than_its_interval():
    first, second = [70.0, 71.0, 69.0], [66.0, 66.0, 66.0]
    wide = statistics.paired([1.0, -1.0, 0.5], [0.0, 0.0, 0.0])
    assert not wide.resolved and statistics.paired(first, second).short() == "+4.0 [+1.5, +6.5]"
    assert statistics.paired(second, second).p == 1
    for wrong in (([1.0], [2.0]), ([1.0, 2.0], [1.0]), ([1.0, float("nan")], [0.0, 0.0])):
        with pytest.raises(ValueError, match="paired: "):
            statistics.paired(*wrong)


def test_pairs_of_one_group_may_depend_on_each_other():
    generator = torch.Generator().manual_seed(8)
    one = torch.randn(30, generator=generator, dtype=torch.float64)
    alone = statistics.paired(one, torch.zeros(30), groups=torch.arange(30))
    usual = statistics.paired(one, torch.zeros(30))
    assert (alone.low, alone.high, alone.p) == pytest.approx((usual.low, usual.high, usual.p)) and alone.groups == 30
    held, rounds = {True: 0, False: 0}, 400
    for _ in range(rounds):  # five pairs a group that share most of their difference, whose mean is 0
        away = torch.randn(20, 1, generator=generator) + 0.3 * torch.randn(20, 5, generator=generator)
        group = torch.arange(20).repeat_interleave(5)
        for known in held:
            found = statistics.paired(away.flatten(), torch.zeros(100), groups=group if known else None)
            held[known] += not found.resolved
    assert 0.92 < held[True] / rounds < 0.975 and held[False] / rounds < 0.8
    for wrong in ([0, 0, 0], [0, 1]):
        with pytest.raises(ValueError, match="paired: groups of shape"):
            statistics.paired([1.0, 2.0, 4.0], [0.0, 0.0, 0.0], groups=wrong)


def test_blocks_of_steps_that_correlate_contain_the_mean_as_often_as_the_docs_say():
    generator, rounds, steps = torch.Generator().manual_seed(1), 500, 300
    noise = torch.randn(steps, rounds, generator=generator, dtype=torch.float64)
    walk = [noise[0] / (1 - 0.9**2) ** 0.5]
    for each in noise[1:]:
        walk.append(0.9 * walk[-1] + each)
    blocks, zero = torch.arange(steps) * 17 // steps, torch.zeros(steps)
    held = [
        sum(not statistics.paired(away, zero, groups=groups).resolved for away in torch.stack(walk).T) / rounds
        for groups in (blocks, None)
    ]
    assert held == pytest.approx([0.87, 0.33], abs=0.05)


def test_holm_multiplies_the_smallest_p_by_the_number_of_tests():
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.holm([0.6, 0.5]) == [1, 1] and statistics.holm([]) == []


def test_a_share_of_exactly_eps_is_below_it_and_doubts_are_parts_of_eps():
    scores = torch.zeros(1, 4, dtype=torch.float64)
    pairs = Pairs(scores, torch.tensor([[True, False, False, False]]))
    share = torch.tensor([[1.0, 0.25, 0.5, 0.2501]], dtype=torch.float64)
    for equal, number in ((1e-3, 2), (3e-4, 1)):  # 0.2501 is 0.0004 of eps away
        values = statistics.per_query(share, torch.ones(()), pairs, 0.25, equal=equal)
        assert values["weight_below"].tolist() == [0.25] and values["weight_above"].tolist() == [0.7501]
        assert values["uncertain"].tolist() == [number]


@pytest.mark.parametrize("sizes", [(1,) * 57 + (20,) * 3, (1, 1, 1, 2, 2, 3, 4, 6, 9, 14, 20, 40)])
def test_paired_interval_covers_grouped_mean(sizes):
    """95 % intervals contain the mean 0 where few groups are large, in 300 experiments."""
    generator = torch.Generator().manual_seed(0)
    group = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    common = torch.randn(300, len(sizes), generator=generator, dtype=torch.float64)[:, group]
    differences = 0.8**0.5 * common + 0.2**0.5 * torch.randn(common.shape, generator=generator, dtype=torch.float64)
    zero = torch.zeros(len(group))
    assert sum(not statistics.paired(row, zero, 0.95, groups=group).resolved for row in differences) > 0.94 * 300


def test_degrees_of_freedom_are_those_of_the_whole_covariance():
    """Against the quadratic form with its full matrices, pair by pair."""
    generator = torch.Generator().manual_seed(2)
    size = torch.tensor([1, 1, 1, 4, 9, 20], dtype=torch.float64)
    own = torch.repeat_interleave(torch.arange(6), size.long())
    away = torch.randn(36, generator=generator, dtype=torch.float64) + torch.randn(6, generator=generator)[own]
    rest = away - away.mean()
    same = own[:, None] == own
    couples = same & ~torch.eye(36, dtype=torch.bool)
    shared = (rest[:, None] * rest)[couples].mean().clamp(min=0)
    whole = torch.eye(36, dtype=torch.float64)
    model = torch.where(same, shared, 0) + whole * (rest.square().mean() - shared)
    centre = whole - 1 / 36
    form = (own[:, None] == torch.arange(6)) / (1 - size / 36).sqrt()
    spread = form.T @ centre @ model @ centre @ form
    free = spread.trace() ** 2 / (spread @ spread).trace()
    error = ((form.T @ rest).square().sum().sqrt() / 36).item()
    found = statistics.paired(away, torch.zeros(36), groups=own)
    assert found.p == pytest.approx(2 * float(stdtr(float(free), -abs(found.mean) / error)), rel=1e-9)
    assert 1 < free < 5
