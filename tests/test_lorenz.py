"""Lorenz curves, other temperatures, and the weights of one batch: against slow loops, and what is drawn of them."""

import importlib

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
import torch

from cocos import Embeddings, InputError, losses, measures
from cocos.counting import weights
from cocos.embeddings import scores
from cocos.embeddings.sampling import plan


def planted(images=30, captions=3, width=8, noise=0.7):
    generator = torch.Generator().manual_seed(3)
    image = torch.randn(images, width, generator=generator, dtype=torch.float64)
    group = torch.arange(images).repeat_interleave(captions)
    caption = image[group] + noise * torch.randn(len(group), width, generator=generator, dtype=torch.float64)
    return Embeddings(image, caption, torch.arange(images), group)


@pytest.fixture(scope="module")
def embeddings():
    return planted()


def weighed(embeddings, loss, direction, **options):
    """Every query of a run as (weights of its negatives, unit, negatives): plain numbers, by autograd."""
    for batch in plan(embeddings, **options).batches:
        side, seen = (embeddings, batch) if direction == "q2c" else (embeddings.flip(), batch.flip())
        pairs = scores.pairs(side, seen)
        unit = loss.unit(pairs).expand_as(pairs.scores)
        for q, row in enumerate(weights.autograd(loss, pairs).tolist()):
            yield [(max(w, 0.0), float(unit[q, c])) for c, w in enumerate(row) if pairs.negative[q, c]]


@pytest.mark.parametrize("name", ["ntxent", "triplet"])
def test_a_lorenz_curve_is_what_a_loop_over_sorted_weights_finds(embeddings, name):
    data = measures.lorenz(embeddings, name, points=13, batch_size=24, seed=2)
    sizes = set()
    for direction in ("q2c", "c2q"):
        curves, ginis, idle = [], [], 0
        for row in weighed(embeddings, losses.load(name), direction, batch_size=24, seed=2):
            x = sorted(w for w, _ in row)
            n, total = len(x), sum(x)
            sizes.add(n)
            if total == 0:
                idle += 1
                continue
            held = [sum(x[:k]) / total for k in range(n + 1)]
            curves.append(np.interp(data["part"].values, np.arange(n + 1) / n, held))
            ginis.append(sum(abs(a - b) for a in x for b in x) / (2 * n * total))  # half the mean difference, / mean
        one = data.sel(direction=direction)
        np.testing.assert_allclose(one["push"], np.mean(curves, axis=0), atol=1e-12)
        np.testing.assert_allclose(one["low"], np.quantile(curves, 0.05, axis=0), atol=1e-12)
        np.testing.assert_allclose(one["high"], np.quantile(curves, 0.95, axis=0), atol=1e-12)
        found = one["gini_per_query"].values
        np.testing.assert_allclose(found[np.isfinite(found)], ginis, atol=1e-12)
        assert float(one["gini"]) == pytest.approx(np.mean(ginis))
        assert float(one["without_push"]) == pytest.approx(idle / (idle + len(ginis)))
        assert (idle > 0) == (name == "triplet")
    assert len(sizes) > 1  # captions of one image in a batch are left out of some queries


def test_a_push_that_all_share_is_the_diagonal_and_that_of_one_has_the_largest_coefficient():
    rows = torch.eye(9, dtype=torch.float64)  # every negative has the score 0
    data = measures.lorenz(Embeddings(rows, rows), "ntxent", batch_size="all", points=8)
    np.testing.assert_allclose(data["push"], np.stack([data["part"]] * 2), atol=1e-12)
    np.testing.assert_allclose(data["gini"], 0, atol=1e-12)
    for name in ("triplet", "contrastive_cosine"):  # the latter pulls
        with pytest.raises(InputError, match="no query of q2c has any push"):
            measures.lorenz(Embeddings(rows, rows + 0.3), name, batch_size="all")
    data = measures.lorenz(planted(captions=1, noise=3), "triplet_sh", batch_size=30)
    assert data.attrs["batches"] == 1
    np.testing.assert_allclose(data["gini"], 1 - 1 / 29)
    with pytest.raises(InputError, match="points: 1, expected an integer from 2"):
        measures.lorenz(planted(), points=1)


@pytest.mark.parametrize("name", ["ntxent", "triplet"])
def test_the_heaviest_hold_what_a_loop_over_sorted_weights_finds(embeddings, name):
    data = measures.lorenz(embeddings, name, points=3, batch_size=24, seed=2)
    first, second = (str(each) for each in data["direction"].values)
    most = 0
    for direction in (first, second):
        found = []
        for row in weighed(embeddings, losses.load(name), direction, batch_size=24, seed=2):
            x = sorted((w for w, _ in row), reverse=True)
            most = max(most, len(x))
            if sum(x):
                found.append([sum(x[: int(k)]) / sum(x) for k in data["k"].values])
        one = data.sel(direction=direction)
        np.testing.assert_allclose(one["held"], np.mean(found, axis=0), atol=1e-12)
        np.testing.assert_allclose(one["held_low"], np.quantile(found, 0.05, axis=0), atol=1e-12)
    assert data["k"].values[0] == 1 and data["k"].values[-1] == most and (np.diff(data["k"]) > 0).all()


@pytest.mark.parametrize(
    ("name", "parameter"), [("ntxent", "temperature"), ("smoothap", "temperature"), ("snm", "scale")]
)
def test_another_temperature_is_another_loss_on_the_same_batches(embeddings, name, parameter):
    values = (0.02, 0.3, 5.0)
    data = measures.temperature_curve(
        embeddings, name, values, eps=0.03, sample="pairs", batch_size=24, batches=2, seed=4
    )
    assert data.attrs["parameter"] == parameter and data.attrs["own"] == losses.load(name).parameters[parameter]
    for direction in ("q2c", "c2q"):
        for value in values:
            loss, effective, counts = losses.load(name, {parameter: value}), [], []
            for row in weighed(embeddings, loss, direction, batch_size=24, batches=2, seed=4):
                total = sum(w for w, _ in row)
                counts.append(sum(w / unit > 0.03 for w, unit in row))
                if total > 0:
                    parts = [w / total for w, _ in row if w > 0]
                    effective.append(np.exp(-sum(p * np.log(p) for p in parts)))
            one = data.sel(direction=direction, value=value)
            assert float(one["contributing_all"]) == pytest.approx(np.mean(counts))
            assert float(one["idle_fraction"]) == pytest.approx(np.mean(np.array(counts) == 0))
            assert float(one["effective"]) == pytest.approx(np.mean(effective))


def test_the_own_value_is_in_the_middle_and_gives_the_count(embeddings):
    loss = losses.load("ntxent", {"temperature": 0.2})
    data = measures.temperature_curve(embeddings, loss, batch_size=24)
    assert data.sizes["value"] == 33 and data["value"].values[16] == data.attrs["own"] == 0.2
    np.testing.assert_allclose(data["value"].values[[0, -1]], [0.2 / 30, 6])
    counted = measures.count(embeddings, loss, batch_size=24)
    for direction in ("q2c", "c2q"):
        middle, whole = data.sel(direction=direction).isel(value=16), counted.sel(direction=direction)
        assert float(middle["contributing_all"]) == pytest.approx(float(whole["contributing"].mean()))
        assert float(middle["effective"]) == pytest.approx(float(whole["effective_per_query"].mean()))
    other = measures.temperature_curve(embeddings, losses.load("sampled_softmax", {"scale": 5}), batch_size=24)
    np.testing.assert_allclose(other["effective"], data["effective"].values[:, ::-1], rtol=1e-9)
    assert other["value"].attrs["units"] == "1 / score" and data["value"].attrs["units"] == "score"


@pytest.mark.parametrize(
    ("loss", "values", "sentence"),
    [
        ("triplet", None, r"loss triplet: it has no temperature or scale to change \(its parameters: margin\)"),
        (losses.load("circle"), None, r"its parameters: margin, gamma, detach\)"),
        ("ntxent+triplet", None, r"loss ntxent\+triplet: it has no temperature"),
        ("ntxent", (0.2, 0.1), r"values: \[0.2, 0.1\], expected finite numbers above 0 in ascending order"),
        ("ntxent", (0.0, 0.1), "values"),
        ("ntxent", (), "values"),
    ],
)
def test_what_no_temperature_can_be_changed_of(embeddings, loss, values, sentence):
    with pytest.raises(InputError, match=sentence):
        measures.temperature_curve(embeddings, loss, values, batch_size=24)


@pytest.mark.parametrize("direction", [None, "c2q"])
@pytest.mark.parametrize("name", ["ntxent", "triplet", "ce_softmax"])
def test_a_map_has_the_weights_of_the_first_batch(embeddings, name, direction):
    loss = losses.load(name)
    data = measures.weight_map(embeddings, name, direction=direction, batch_size=20, seed=7, order="batch")
    batch, side = plan(embeddings, batch_size=20, seed=7).batches[0], embeddings
    batch, side = (batch.flip(), side.flip()) if direction else (batch, side)
    pairs = scores.pairs(side, batch)
    weight = weights.autograd(loss, pairs)
    np.testing.assert_allclose(data["weight"], weight, atol=1e-12)
    np.testing.assert_allclose(data["share"], (weight / loss.unit(pairs)).abs(), atol=1e-12)
    np.testing.assert_array_equal(data["positive"], pairs.positive)
    np.testing.assert_array_equal(data["negative"], pairs.negative)
    np.testing.assert_array_equal(data["query_index"], batch.query_index)
    np.testing.assert_array_equal(data["candidate_group"], side.candidate_group[batch.candidate_index])
    assert data.attrs["direction"] == (direction or "q2c")
    ordered = measures.weight_map(embeddings, name, direction=direction, batch_size=20, seed=7, order="group")
    down, across = (
        sorted(range(data.sizes[s]), key=data[f"{s}_group"].values.tolist().__getitem__) for s in ("query", "candidate")
    )
    expected = data.isel(query=down, candidate=across)
    assert down != sorted(down)
    for each in data.data_vars:
        np.testing.assert_array_equal(ordered[each], expected[each], err_msg=each)
    hardest = measures.weight_map(embeddings, name, direction=direction, batch_size=20, seed=7)
    assert hardest.attrs["order"] == "hardness"
    for each, axis in (("contributing", "query"), ("received", "candidate")):
        assert (np.diff(hardest[each]) <= 0).all() and sorted(hardest[each].values) == sorted(data[each].values)
        index = data[f"{axis}_index"].values.tolist()
        assert sorted(hardest[f"{axis}_index"].values.tolist()) == sorted(index)
    push = np.clip(np.where(pairs.negative, weight, 0), 0, None)
    np.testing.assert_allclose(data["received"], push.sum(axis=0) / push.sum(), atol=1e-12)


def test_what_no_map_is_drawn_of(embeddings, monkeypatch):
    for options, sentence in (
        ({"direction": "q2x"}, "unknown direction 'q2x': did you mean 'q2c'"),
        ({"order": "groups"}, "unknown order 'groups': did you mean 'group'"),
        ({"eps": -1}, "eps: -1, expected a share"),
    ):
        with pytest.raises(InputError, match=sentence):
            measures.weight_map(embeddings, "ntxent", **options)
    monkeypatch.setattr(importlib.import_module("cocos.measures.weight_map"), "MAP_CELLS", 100)
    with pytest.raises(InputError, match="batch size: 12 x 12 cells, expected at most 100"):
        measures.weight_map(embeddings, "ntxent", batch_size=12)


def test_a_map_by_group_has_as_many_candidates_as_it_has(embeddings):
    given = {"sample": "groups", "batch_size": 10, "seed": 2}
    data = measures.weight_map(embeddings, "ntxent", order="batch", **given)
    ordered = measures.weight_map(embeddings, "ntxent", order="group", **given)
    down = np.argsort(data["query_index"].values)
    across = np.argsort(data["candidate_index"].values)  # groups ascend with the rows here
    assert data["weight"].shape == (10, 30) and not np.array_equal(down, np.arange(10))
    np.testing.assert_array_equal(ordered["weight"], data["weight"].values[down][:, across])
    np.testing.assert_array_equal(ordered["candidate_index"], np.sort(data["candidate_index"].values))


def test_where_no_query_has_any_push_there_is_no_effective_number():
    rows = torch.eye(6, dtype=torch.float64)  # at temperature 0.001 the negatives have exp(-1000) of the softmax: 0
    data = measures.temperature_curve(Embeddings(rows, rows), "ntxent", (0.001, 1), batch_size=6)
    assert data["effective"].isnull().values.tolist() == [[True, False]] * 2
    np.testing.assert_allclose(data["effective"].sel(value=1), 5)
    np.testing.assert_array_equal(data["idle_fraction"], [[1, 0]] * 2)
