"""Counts against dense float64, on a small part of the draws of `python -m benchmarks.exactness`."""

import dataclasses

import numpy as np
import pytest
import torch

import oracles
import reference
from benchmarks import checks, compare, exactness
from benchmarks.draws import draw
from cocos import engine, losses
from cocos.counting import weights
from cocos.embeddings import Embeddings, scores
from cocos.engine import sweep

QUICK = 24  # draws


def pairs_of(side):
    parts = (torch.from_numpy(each) for each in (side.score, side.positive, side.negative))
    return scores.Pairs(*parts, query_norm=torch.from_numpy(side.norm))


@pytest.mark.parametrize("number", range(QUICK))
def test_the_engine_counts_what_the_definitions_count(number):
    found = exactness.look(1000 + number, large=False)
    assert found.cases and not found.wrong


def test_the_reference_is_the_closed_form_and_the_gradient_of_every_loss():
    seen = set()
    for number in range(60):
        one = draw(number, 7, large=False)
        side = compare.sides(one)[0][0]
        if len(side.score) > 60 or (one.kind in {"same", "collapsed", "duplicates"}):
            continue
        pairs = pairs_of(side)
        for name, given in one.losses:
            loss = losses.load(name, given)
            own = {key: getattr(loss, key) for key in loss.__dataclass_fields__}
            found, unit = reference.weights(name, own, side.score, side.positive, side.negative, side.norm)
            if not np.isfinite(reference.room(name, own, side, 1e-12)) and not name.startswith("triplet"):
                continue
            for right in (loss.weight(pairs), weights.autograd(loss, pairs)):
                torch.testing.assert_close(torch.from_numpy(np.array(found)), right, rtol=1e-6, atol=1e-9)
            torch.testing.assert_close(
                torch.from_numpy(np.broadcast_to(unit, found.shape).copy()), loss.unit(pairs).expand(found.shape)
            )
            seen.add(name)
    assert len(seen) >= 20


def test_the_reference_of_eq7_is_the_slow_loop():
    side = compare.sides(draw(1, 7, large=False))[0][0]
    least, most = reference.eq7(0.05, side.score[:8], side.positive[:8], side.negative[:8], 0.01, 1e-12)
    few = dataclasses.replace(side, score=side.score[:8], positive=side.positive[:8], negative=side.negative[:8])
    right = oracles.eq7(dataclasses.replace(pairs_of(few), query_norm=None), 0.05, 0.01)
    assert np.allclose(least, right) and np.allclose(most, right)


def test_float64_tiles_divide_norms_that_are_near_to_one():
    rows = torch.randn(12, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows = rows / rows.norm(dim=1, keepdim=True) * (1 + 1e-7)
    view = engine.view(Embeddings(rows[:6], rows[6:]), product="float64")
    (tile,) = sweep.tiles_of(view, (6, 6), sweep.Part(slice(0, 6), slice(0, 6)))
    place = torch.arange(6)
    right = view.exact(place.repeat_interleave(6), place.repeat(6)).reshape(6, 6)
    torch.testing.assert_close(tile.scores.fill_diagonal_(0), right.fill_diagonal_(0), rtol=0, atol=1e-14)


class Spoiled:
    """Results of the engine with one number changed."""

    def __init__(self, monkeypatch, key, change):
        self.right, self.key, self.change = compare.run_readers, key, change
        monkeypatch.setattr(compare, "run_readers", self)

    def __call__(self, view, readers):
        found = self.right(view, readers)
        for side in found[0]:
            side[self.key] = self.change(side[self.key].clone())
        return found


def plus_one(values):
    values[len(values) // 2] += 1
    return values


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("contributing", plus_one),
        ("relative", plus_one),
        ("uncertain", lambda values: values + 10**6),
        ("weight_above", lambda values: values * 1.01 + 1e-3),
        ("weight_positive", lambda values: values * 1.01 + 1e-3),
        ("push", lambda values: values * 1.01 + 1e-2),
        ("effective", lambda values: values * 1.02 + 1e-2),
        ("negatives", plus_one),
    ],
)
def test_a_wrong_number_is_found(monkeypatch, key, change):
    number = next(n for n in range(1000) if draw(n).losses[0][0] == "ntxent" and draw(n).kind == "pairs")
    assert not exactness.look(number).wrong
    Spoiled(monkeypatch, key, change)
    found = exactness.look(number).wrong
    assert any(key in each["said"] for each in found)


def test_a_crash_is_a_mismatch_with_its_draw(monkeypatch):
    def fail(*_):
        raise ArithmeticError("nothing")

    monkeypatch.setattr(compare, "run_readers", fail)
    found = exactness.look(0).wrong
    assert found and all(each["draw"] == 0 for each in found) and "ArithmeticError: nothing" in found[0]["said"]


def test_a_draw_is_the_same_each_time_and_no_two_are():
    assert str(draw(5)) == str(draw(5)) and torch.equal(draw(5).embeddings.query, draw(5).embeddings.query)
    assert len({str(draw(number)) for number in range(30)}) == 30
    kinds = {check.name.split()[0] for n in range(40) for check in checks.checks(draw(n), np.random.default_rng(n))}
    assert kinds >= {"ntxent", "triplet", "smoothap", "snm", "ranks", "reached", "threads"}
