"""Landscapes: functions of the distance, where their minimum is, and what is drawn of it."""

import json
import math
import sys

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
import torch
import xarray as xr
from typer.testing import CliRunner

from cocos import Embeddings, InputError, Pairs, losses, measures
from cocos.cli import app
from cocos.counting import weights
from cocos.embeddings import similarities
from cocos.measures.landscape import CurveSoftmax, parse

TABLE_III = ("t", "t^2", "sqrt", "t^1.5", "0.97", "0.5", "1.1", "2")


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def still(monkeypatch):
    """No descent, where only the picture is looked at."""
    found = None, "not looked for", True
    monkeypatch.setattr(sys.modules["cocos.measures.landscape"], "descended", lambda *given: found)


@pytest.fixture
def distances():
    score = similarities.euclidean(3 * drawn(40, 3), 3 * drawn(6, 3, seed=1))
    positive = torch.zeros_like(score, dtype=torch.bool)
    positive[torch.arange(40), torch.arange(40) % 6] = True
    return Pairs(score, positive)


@pytest.mark.parametrize("f", TABLE_III)
def test_a_softmax_of_named_functions_is_that_of_the_shelf(f, distances):
    for second in ("t", f):
        mine = CurveSoftmax(parse(f), parse(second), 0.7)
        other = losses.load("euclidean_softmax", {"f1": f, "f2": second, "scale": 0.7})
        torch.testing.assert_close(mine(distances), other(distances), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(weights.autograd(mine, distances), other.weight(distances), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("delta", [1.0, 1.3])
def test_a_softmax_of_the_warp_is_that_of_the_shelf(delta, distances):
    given = {"alpha": 4.0, "k1": 0.6, "k2": 1.4, "delta": delta}
    mine = CurveSoftmax(parse("warp", **given), parse("t"))
    other = losses.load("warped_softmax", given)
    torch.testing.assert_close(mine(distances), other(distances), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(weights.autograd(mine, distances), other.weight(distances), rtol=1e-10, atol=1e-12)
    assert mine.gradient == other.gradient == "stop_gradient"


def test_function_of_the_user_and_its_slope():
    t = torch.linspace(0.1, 9, 50, dtype=torch.float64)
    curve = parse(lambda x: x + 0.3 * x.sin(), name="f1")
    torch.testing.assert_close(curve.value(t), t + 0.3 * t.sin())
    torch.testing.assert_close(curve.slope(t), 1 + 0.3 * t.cos())
    assert (curve.name, parse(torch.sqrt).name) == ("f1", "sqrt")


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("__import__('os')", "expected t, t\\^2"),
        ("t + 0.3*sin(t)", "a line such as 0.97t, or warp"),
        ("0", "expected a finite factor above 0"),
        ("-2", "expected a finite factor above 0"),
        ("inf", "expected a finite factor above 0"),
        (lambda t: 1 / (t - 1), "no finite value at t = 1"),
        (lambda t: (t - 5).log(), "no finite value at t = 0.01"),
    ],
)
def test_what_is_no_function_gets_a_sentence(function, sentence):
    with pytest.raises(InputError, match=sentence):
        parse(function, name="f1")


@pytest.mark.parametrize(
    ("f1", "behind"),
    [
        *(("sqrt", 0.0), ("warp", 3.0)),
        *((f1, None) for f1 in ("t", "0.97")),
    ],
)
def test_the_minimum_is_where_the_slopes_say(f1, behind):
    """Proposition III.2. With f2 = t a slope of f1 above 1 draws to the own proxy, one below 1 drives away for ever."""
    data = measures.landscape(f1, points=41)
    found, predicted = data["found"].values, data["predicted"].values
    if behind is None:
        assert np.isnan(found).all() and np.isnan(predicted).all() and "gap" not in data.attrs
        assert ("equal" in data.attrs["predicted_as"]) == (f1 == "t") == ("no single one" in data.attrs["found_as"])
        assert ("runs away" in data.attrs["predicted_as"]) == (f1 != "t") == ("runs away" in data.attrs["found_as"])
    else:
        np.testing.assert_allclose(predicted, [-5 - behind, 0], atol=1e-9)
        np.testing.assert_allclose(found, predicted, atol=2e-6)
        assert data.attrs["gap"] < 2e-6 and data.attrs["found_as"] == "a minimum"
    assert data.attrs["lemma"].endswith("as Lemma III.1 has it") and data.attrs["off_line"] == 0


def test_the_warp_puts_the_minimum_at_alpha():
    alpha, distance = 25.0, 30.0
    data = measures.landscape("warp", alpha=alpha, k1=0.5, k2=1.2, distance=distance, points=21)
    np.testing.assert_allclose(data["predicted"], [-distance / 2 - alpha, 0], atol=1e-9)
    np.testing.assert_allclose(data["found"], data["predicted"], atol=1e-6 * distance)
    inward = measures.landscape(
        lambda t: torch.maximum(1.2 * t, 1.5 * t - 0.3 * alpha), "t", distance=distance, points=21
    )
    np.testing.assert_allclose(inward["found"], [-distance / 2, 0], atol=1e-6 * distance)


@pytest.mark.parametrize("given", [{"alpha": 190.0, "k1": 0.9, "k2": 1.01}, {"alpha": 40.0, "proxies": 5}])
def test_the_minimum_of_a_wide_warp_is_found_where_it_must_be(given):
    """On the circle of radius α f1 is constant: only the far proxies draw along it, ever more weakly."""
    data = measures.landscape("warp", points=5, **given)
    behind = np.array([float(data["proxy_x"][0]) - given["alpha"], 0.0])
    assert data.attrs["found_as"] == "a minimum" and data.attrs["converged"] == 1
    np.testing.assert_allclose(data["found"], behind, atol=1e-5)
    if "proxies" not in given:
        np.testing.assert_allclose(data["predicted"], behind, atol=1e-9)


def test_ends_that_still_move_are_no_geometry(monkeypatch, tmp_path):
    monkeypatch.setattr(sys.modules["cocos.measures.landscape"], "SEARCHES", 0)
    done = call("plot", "landscape", "--f1", "warp", "--alpha", 50, "--json", "--out", tmp_path / "a.nc")
    said = json.loads(done.stdout)
    assert said["found"] is None and said["converged"] == 0 and said["found_as"].startswith("not converged: ")
    assert json.loads(call("plot", "landscape", "--f1", "sqrt", "--json", "--out", tmp_path / "a.nc").stdout)[
        "converged"
    ]


@pytest.mark.parametrize("f1", ["0.97", "0.97t", "0.97*t", "0.97 * t"])
def test_a_line_is_the_same_however_it_is_written(f1):
    data = measures.landscape(f1, points=5)
    assert (data.attrs["f1"], data.attrs["f2"]) == ("0.97t", "t") and "runs away" in data.attrs["found_as"]
    assert losses.load("euclidean_softmax", {"f1": f1}) == losses.load("euclidean_softmax", {"f1": "0.97"})


def test_a_function_that_is_flat_in_places_is_monotone_and_has_plateaus():
    flat = measures.landscape(lambda t: t.clamp(max=3), points=41)
    assert flat.attrs["monotone"] == 1 and "counterexample to Lemma III.1" in flat.attrs["lemma"]
    np.testing.assert_allclose(flat["predicted"], [-5, 0])
    assert flat.attrs["found_as"].startswith("no single one: the ends lie 0 to ")
    away = measures.landscape(
        lambda t: t.clamp(max=3), "t", points=41
    )  # the slopes are equal first, and that of f1 is never larger
    assert "runs away" in away.attrs["predicted_as"] and "runs away" in away.attrs["found_as"]
    assert away.attrs["lemma"].endswith("as Lemma III.1 has it")
    level = measures.landscape(lambda t: torch.maximum(t, 2 * t - 4), "t", points=21)
    assert level["predicted"].isnull().all()
    assert level.attrs["predicted_as"] == "the slopes are equal up to 4 behind the own proxy: all of that is as good"


@pytest.mark.parametrize("metric", ["squared_euclidean", "cosine", "manhattan"])
def test_a_warp_of_another_distance(metric, still):
    """Section V. The force is minus the slope of the height, and the loss that of the distances themselves."""
    rows = drawn(3, 4)
    given = {"alpha": 0.8 if metric == "cosine" else 4.0, "metric": metric}
    data = measures.landscape("warp", embeddings=Embeddings(rows, rows), points=11, **given)
    place = np.stack([data["proxy_x"], data["proxy_y"]], axis=1)
    mix = np.linalg.solve(
        np.concatenate([place, np.ones((3, 1))], axis=1).T, [float(data["x"][3]), float(data["y"][8]), 1]
    )
    point = torch.as_tensor(mix) @ rows
    distance = {
        "squared_euclidean": lambda p: float(((point - p) ** 2).sum()),
        "cosine": lambda p: 1 - float(point @ p / point.norm() / p.norm()),
        "manhattan": lambda p: float((point - p).abs().sum()),
    }[metric]
    own, *others = map(distance, rows)
    own = own if own < given["alpha"] else 1.5 * own - 0.5 * given["alpha"]
    assert float(data["loss"][8, 3]) == pytest.approx(math.log1p(sum(math.exp(own - other) for other in others)))
    assert data.attrs["title"].endswith(f", t = {metric.replace('_', ' ')} distance")
    loss = measures.landscape("0.9", metric=metric, scale=0.5, points=201, proxies=3, distance=2.0)
    slope_y, slope_x = np.gradient(loss["loss"].values, loss["y"].values, loss["x"].values)
    for mine, other in ((slope_x, "force_x"), (slope_y, "force_y")):
        assert np.quantile(np.abs(mine + loss[other].values), 0.9) < 0.02 * np.abs(loss[other].values).max()


def test_a_squared_distance_is_predicted_and_others_are_not():
    squared = measures.landscape("warp", alpha=9.0, metric="squared_euclidean", points=5)
    np.testing.assert_allclose(squared["predicted"], [-25, 0], atol=1e-9)  # 1.5 * 2t = 2 (t + 10)
    np.testing.assert_allclose(squared["found"], [-25, 0], atol=1e-5)
    other = measures.landscape("warp", metric="manhattan", points=5)
    assert other.attrs["predicted_as"] == "Proposition III.2 is for Euclidean distances" and "lemma" not in other.attrs


def test_functions_that_turn_have_extrema_off_the_line(still):
    """f1 has its minimum and f2 its maximum at 7: both circles meet at (0, ±√24)."""
    data = measures.landscape(lambda t: (t - 7) ** 2, lambda t: 14 * t - t**2, points=161)
    assert data.attrs["monotone"] == 0 and data.attrs["off_line"] == 2 and "as Lemma III.1" in data.attrs["lemma"]
    assert data["predicted"].isnull().all() and "monotone" in data.attrs["predicted_as"]
    lowest = data["height"].where(data["x"] == 0, drop=True).squeeze("x").idxmin("y")
    assert abs(float(lowest)) == pytest.approx(math.sqrt(24), abs=0.2)
    ripples = measures.landscape(
        lambda t: t + 0.3 * (3 * t).sin(), points=81
    )  # a grid shows extrema off the line that are none
    assert ripples.attrs["monotone"] == 1 and ripples.attrs["off_line"] == 0


@pytest.mark.parametrize(
    "given", [{"f1": "t^1.5"}, {"f1": "t", "scale": 0.5}, {"loss": "ntxent"}, {"loss": "triplet_squared"}]
)
def test_the_force_is_minus_the_slope_of_the_loss(given, still):
    data = measures.landscape(points=201, **given)
    slope_y, slope_x = np.gradient(data["loss"].values, data["y"].values, data["x"].values)
    inner = (slice(2, -2), slice(2, -2))
    away = np.minimum.reduce([np.hypot(data["x"] - a, data["y"] - b).transpose("y", "x").values
                              for a, b in ((-5, 0), (5, 0), (0, 0))])[inner] > 1.5  # fmt: skip
    for mine, other in ((slope_x, "force_x"), (slope_y, "force_y")):
        off = np.abs(mine + data[other].values)[inner][away]
        assert np.quantile(off, 0.98) < 0.02 * np.hypot(data["force_x"], data["force_y"]).values.max()


def test_the_height_is_what_the_force_of_a_warp_is_the_slope_of(still):
    data = measures.landscape("warp", points=201)
    slope_y, slope_x = np.gradient(data["height"].values, data["y"].values, data["x"].values)
    force = np.stack([data["force_x"].values, data["force_y"].values])
    lengths = np.hypot(*force) * np.hypot(slope_x, slope_y)
    agree = -(force[0] * slope_x + force[1] * slope_y) / lengths
    assert np.quantile(agree[lengths > 0], 0.02) > 0.999
    plain = measures.landscape("sqrt", points=21)
    np.testing.assert_array_equal(plain["height"], plain["loss"])


def test_many_classes_are_the_binary_ones_together(still):
    data = measures.landscape("warp", proxies=5, points=21)
    both = np.log1p(np.expm1(data["binary"]).sum("other"))
    np.testing.assert_allclose(both, data["loss"], rtol=1e-10)
    corners = np.stack([data["proxy_x"], data["proxy_y"]], axis=1)
    apart = np.linalg.norm(corners - np.roll(corners, 1, axis=0), axis=1)
    np.testing.assert_allclose(apart, 10)


@pytest.mark.parametrize("rows", [(4, 1, 7), (2, 0)])
@pytest.mark.parametrize("given", [{"f1": "warp"}, {"loss": "ntxent"}, {"loss": "euclidean_softmax"}])
def test_the_plane_of_embeddings_holds_what_stands_there(rows, given, still):
    candidate = drawn(8, 16)
    data = measures.landscape(embeddings=Embeddings(candidate, candidate), rows=rows, points=11, **given)
    corners = candidate[list(rows)]
    place = np.stack([data["proxy_x"], data["proxy_y"]], axis=1)
    np.testing.assert_allclose(
        np.linalg.norm(place[:, None] - place[None], axis=2), torch.cdist(corners, corners), atol=1e-9
    )
    shares, *_ = np.linalg.lstsq(
        np.concatenate([place, np.ones((len(rows), 1))], axis=1).T, np.array([place[0, 0], place[0, 1], 1]), rcond=None
    )
    np.testing.assert_allclose(shares, [1] + [0] * (len(rows) - 1), atol=1e-9)
    if len(rows) == 3:  # a point of the grid as a mixture of the three, in all dimensions
        x, y = float(data["x"][3]), float(data["y"][8])
        mix = np.linalg.solve(np.concatenate([place, np.ones((3, 1))], axis=1).T, np.array([x, y, 1]))
        point = torch.as_tensor(mix) @ corners
        loss = losses.load(given.get("loss", "warped_softmax"))
        positive = torch.tensor([[True, False, False]])
        right = loss(Pairs(similarities.METRICS[loss.metric](point[None], corners), positive))
        assert float(data["loss"][8, 3]) == pytest.approx(float(right), rel=1e-9)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"f1": "t", "loss": "ntxent", "f2": "t"}, "choose one of them"),
        ({"loss": "smoothap_x"}, "unknown loss"),
        ({"loss": "ce_softmax"}, "couples the embeddings of a batch"),
        ({"distance": -1.0}, "distance: -1.0, expected a finite number above 0"),
        ({"scale": 0.0}, "scale: 0.0, expected a finite number above 0"),
        ({"f1": "warp", "alpha": -1.0}, "alpha: -1.0, expected a finite number of at least 0"),
        ({"f1": "warp", "k1": 1.0}, r"k1: 1.0, expected a number above 0 and below 1 \(0 < k1 < 1 < k2 in eq. 7"),
        ({"f1": "warp", "k2": 1.0}, r"k2: 1.0, expected a finite number above 1 \(0 < k1 < 1 < k2 in eq. 7"),
        ({"metric": "chebyshev"}, "metric: 'chebyshev', expected one of euclidean, squared_euclidean, cosine, manh"),
        ({"metric": "manhattan", "loss": "ntxent"}, "metric 'manhattan' and a loss: it has a metric of its own"),
        ({"embeddings": Embeddings(torch.eye(3), torch.eye(3)), "rows": (0, 0)}, "two or three different ones"),
        ({"embeddings": Embeddings(torch.eye(3), torch.eye(3)), "rows": (0, 3)}, "two or three different ones"),
        ({"embeddings": Embeddings(torch.eye(3), torch.arange(1.0, 4)[:, None] * torch.ones(3, 3))}, "lie on one line"),
    ],
)  # fmt: skip
def test_what_has_no_landscape_gets_a_sentence(given, sentence):
    with pytest.raises(InputError, match=sentence):
        measures.landscape(**given)


@pytest.mark.parametrize("name", ["ntxent", "triplet", "warped_softmax", "contrastive_cosine", "circle"])
def test_the_landscape_of_two_scores_is_the_loss_of_them(name):
    loss = losses.load(name)
    data = measures.score_landscape(loss, negatives=3, points=9)
    for k, m in ((0, 8), (4, 2), (7, 7)):
        row = torch.tensor([[float(data["positive"][k])] + 3 * [float(data["negative"][m])]], dtype=torch.float64)
        pairs = Pairs(row, torch.tensor([[True, False, False, False]]))
        weight = loss.weight(pairs)
        cell = data.isel(positive=k, negative=m)
        assert float(cell["loss"]) == pytest.approx(float(loss(pairs)))
        assert float(cell["push"]) == pytest.approx(float(weight[0, 1:].sum()))
        assert float(cell["pull"]) == pytest.approx(-float(weight[0, 0]))
    with pytest.raises(InputError, match="couples the embeddings of a batch"):
        measures.score_landscape("ce_softmax")
    with pytest.raises(InputError, match="negatives: 0, expected"):
        measures.score_landscape(loss, negatives=0)


def test_the_command_says_what_it_found(tmp_path):
    data = tmp_path / "warp.nc"
    done = call("plot", "landscape", "--f1", "warp", "--alpha", 3, "--k1", 0.65, "--k2", 1.5, "--out", data)
    assert done.exit_code == 0 and xr.load_dataset(data).attrs["found_as"] == "a minimum"
    assert ["x", "-8", "-8"] in [line.split() for line in done.stdout.splitlines()]


def test_the_command_draws_the_same_bytes_each_time(tmp_path, still):
    picture = tmp_path / "warp.svg"
    assert call("plot", "landscape", "--f1", "warp", "--out", picture).exit_code == 0
    first = picture.read_bytes()
    assert first.lstrip().startswith(b"<?xml")
    assert call("plot", "landscape", "--f1", "warp", "--out", picture).exit_code == 0 and picture.read_bytes() == first


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--f1", "open(t)"), "f1: 'open(t)', expected t, t^2,"),
        (("nowhere.npz",), "1 of FILE, expected 0"),
        (("--rows", "1,2"), "--rows"),
        (("--f1", "t", "--alpha", 7), "expected --f1 warp"),
        (("--k1", 2), "expected --f1 warp"),
        (("--loss", "ntxent", "--f1", "t"), "no --loss"),
        (("--loss", "warped_softmax", "--alpha", 7), "no --loss"),
        (("--out", "n" * 300 + ".png"), "n.png: the name is too long for a file"),
        (("--k2", "nan"), "f1"),
    ],
)
def test_bad_commands_get_a_sentence(tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    if arguments[0] == "--k2":
        arguments, sentence = (*arguments, "--f1", "warp"), "k2: nan, expected a finite number above 1"
    done = call("plot", "landscape", *arguments)
    assert done.exit_code == 2 and sentence in done.stderr and not list(tmp_path.iterdir())
    assert done.stdout == "" and done.stderr.count("\n") == 1
