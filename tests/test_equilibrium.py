"""Where a learned temperature settles: derivatives by four ways, the equilibrium against slow loops and a training."""

import json
import math
import sys

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, root
from typer.testing import CliRunner

import cocos
from cocos import InputError, Pairs, losses, measures
from cocos.cli import app
from cocos.counting import equilibrium
from cocos.reports import table

PULLING = ("ntxent", "supcon", "sampled_softmax", "dcl", "siglip")  # of scale * score + bias
STATES = {"settles", "clipped", "grows", "falls", "flat"}


def noisy(rows=40, noise=0.8, seed=0, width=16):
    generator = torch.Generator().manual_seed(seed)
    query, other = (torch.randn(rows, width, generator=generator, dtype=torch.float64) for _ in range(2))
    return cocos.Embeddings(query, query + noise * other)


@pytest.fixture(scope="module")
def pairs():
    return cocos.scores.pairs(noisy(noise=2.0))


def softmax_slope(scores, scale):
    """E[s] - s_p of every query whose positive is on the diagonal, with loops."""
    found = []
    for q, row in enumerate(scores):
        mass = [math.exp(scale * (s - max(row))) for s in row]
        found.append(sum(m * s for m, s in zip(mass, row, strict=True)) / sum(mass) - row[q])
    return found


def sigmoid_slopes(scores, scale, bias):
    """Derivatives of SigLIP's loss with respect to its scale and bias, mean over the queries, with loops."""
    by_scale = by_bias = 0.0
    for q, row in enumerate(scores):
        for c, s in enumerate(row):
            chance = 1 / (1 + math.exp(-(scale * s + bias)))
            by_scale += (chance - (q == c)) * s / len(scores)
            by_bias += (chance - (q == c)) / len(scores)
    return by_scale, by_bias


@pytest.mark.parametrize("name", PULLING)
@pytest.mark.parametrize("scale", [0.7, 5.0, 40.0])
def test_derivatives_agree_with_autograd_and_finite_differences(name, scale, pairs):
    loss = equilibrium.at(losses.load(name), scale, -2.0)
    found = equilibrium.derivatives(loss, pairs)
    free = torch.tensor([scale, 0.0 if found.shape[1] == 1 else -2.0], dtype=torch.float64, requires_grad=True)
    one = equilibrium.at(losses.load(name), 1.0, 0.0)  # reads scale * score + bias as it is
    (exact,) = torch.autograd.grad(one(pairs.with_scores(free[0] * pairs.scores + free[1])).sum(), free)
    torch.testing.assert_close(found.sum(dim=0), exact[: found.shape[1]], rtol=1e-10, atol=1e-10)
    step = 1e-6 * scale
    ends = [equilibrium.at(loss, scale + sign * step)(pairs) for sign in (1, -1)]
    torch.testing.assert_close(found[:, 0], (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-7)


def test_a_softmax_compares_its_mean_score_with_that_of_the_positive(pairs):
    for scale in (1, 20, 200):
        found = equilibrium.derivatives(losses.load("ntxent", {"scale": scale}), pairs)[:, 0]
        assert found.tolist() == pytest.approx(softmax_slope(pairs.scores.tolist(), scale), rel=1e-9, abs=1e-13)


def test_a_sigmoid_has_two_derivatives(pairs):
    found = equilibrium.derivatives(losses.load("siglip", {"scale": 8, "bias": -3}), pairs).mean(dim=0)
    assert found.tolist() == pytest.approx(sigmoid_slopes(pairs.scores.tolist(), 8, -3), rel=1e-9)


@pytest.mark.parametrize("start", [0.3, 0.07, 0.005])
def test_the_equilibrium_is_that_of_a_slow_search(pairs, start):
    rows = pairs.scores.tolist()
    exact = brentq(lambda scale: sum(softmax_slope(rows, scale)), 0.1, 1000, xtol=1e-9)
    found = equilibrium.solve(losses.load("ntxent", {"temperature": start}), pairs)
    assert found.state == "settles" and found.scale == pytest.approx(exact, rel=1e-5)
    assert found.temperature == pytest.approx(1 / exact, rel=1e-5)
    assert found.loss == losses.load("ntxent", {"temperature": found.loss.temperature}) and found.bias is None


def test_a_sigmoid_settles_where_a_root_of_both_derivatives_is(pairs):
    rows = pairs.scores.tolist()
    exact = root(lambda at: sigmoid_slopes(rows, *at), [8.0, -5.0], tol=1e-12)
    assert exact.success
    found = equilibrium.solve("siglip", pairs)
    assert (found.scale, found.bias) == pytest.approx(tuple(exact.x), rel=1e-4)
    weight = found.loss.weight(pairs)
    assert weight.sum().abs() < 1e-4 * weight.abs().sum()


def test_a_scale_that_is_trained_ends_at_the_equilibrium(pairs):
    scale = torch.tensor(14.0, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([scale], lr=0.5)
    for step in range(600):
        optimizer.param_groups[0]["lr"] = 0.5 / (1 + step / 30)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(scale * pairs.scores, torch.arange(len(pairs.scores))).backward()
        optimizer.step()
    assert equilibrium.solve("ntxent", pairs).scale == pytest.approx(scale.item(), rel=1e-3)


def test_both_directions_have_one_equilibrium_between_their_own(pairs):
    other = Pairs(pairs.scores.T.contiguous() ** 3, pairs.positive)
    both, one, two = (equilibrium.solve("ntxent", each).scale for each in ([pairs, other], pairs, other))
    assert min(one, two) < both < max(one, two)
    slopes = [sum(softmax_slope(each.scores.tolist(), both)) for each in (pairs, other)]
    assert sum(slopes) == pytest.approx(0, abs=1e-6 * max(map(abs, slopes)))


def test_without_an_equilibrium_the_state_says_where_the_scale_goes():
    eye = torch.eye(4, dtype=torch.bool)
    first = Pairs(torch.eye(4, dtype=torch.float64), eye)
    found = equilibrium.solve("ntxent", first)
    assert (found.state, found.scale, found.temperature) == ("grows", None, None)
    assert found.loss == losses.load("ntxent", {"temperature": 0.01})  # it stays at the clip
    assert equilibrium.solve("siglip", first).state == "grows" and equilibrium.solve("siglip", first).bias is not None
    last = Pairs(-torch.eye(4, dtype=torch.float64), eye)
    assert equilibrium.solve("ntxent", last).state == "falls" and equilibrium.solve("ntxent", last).loss is None
    assert equilibrium.solve("ntxent", Pairs(torch.ones(4, 4, dtype=torch.float64), eye)).state == "flat"


def test_an_equilibrium_beyond_the_clip_is_held_at_the_clip(pairs):
    free = equilibrium.solve("ntxent", pairs)
    held = equilibrium.solve("ntxent", pairs, clip=free.scale / 2)
    assert held.state == "clipped" and held.scale == pytest.approx(free.scale, rel=1e-5)
    assert held.loss.scale == pytest.approx(free.scale / 2)
    biased = equilibrium.solve("siglip", pairs, clip=2.0)
    assert biased.state == "clipped" and biased.loss.scale == 2
    assert sigmoid_slopes(pairs.scores.tolist(), 2.0, biased.bias)[1] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", losses.names())
def test_every_loss_of_the_shelf_settles_or_says_why_not(name):
    pairs, loss = cocos.scores.pairs(noisy(), metric=losses.load(name).metric), losses.load(name)
    try:
        found = equilibrium.solve(loss, pairs)
    except InputError as error:
        words = ("parameter", "not a function of scale * score", "needs", "graded", "teacher")
        assert name in str(error) and any(word in str(error) for word in words), error
        return
    assert found.state in STATES and loss.hinge is None
    if found.state == "settles":
        ends = [equilibrium.at(found.loss, found.scale * by)(pairs).mean() for by in (0.98, 1, 1.02)]
        assert ends[1] < ends[0] and ends[1] < ends[2]  # a minimum of the loss


@pytest.mark.parametrize(
    ("loss", "options", "sentence"),
    [
        ("triplet", {}, "loss triplet: no temperature or scale"),
        ("cosface", {}, "loss cosface: it is not a function of scale \\* score alone"),
        ("ntxent", {"clip": math.inf}, "clip: inf, expected"),
    ],
)
def test_losses_and_clips_that_cannot_be_are_refused(pairs, loss, options, sentence):
    with pytest.raises(InputError, match=sentence):
        equilibrium.solve(loss, pairs, **options)
    with pytest.raises(InputError, match="pairs: none were given"):
        equilibrium.solve("ntxent", [])


def of_batches(embeddings, batch_size, loss="ntxent"):
    """Pairs of the full batches of a pass, both directions of each."""
    plan = cocos.sampling.plan(embeddings, batch_size=batch_size)
    full = [batch for batch in plan.batches if batch.sizes[0] == batch_size]
    metric = losses.load(loss).metric
    found = [cocos.scores.pairs(embeddings, batch, metric=metric) for batch in full]
    return found + [each.flip() for each in found]


@pytest.mark.parametrize("loss", ["ntxent", "siglip"])
def test_the_measure_settles_where_the_pairs_of_its_full_batches_do(loss):
    embeddings = noisy(70, 1.2)
    data = measures.temperature(embeddings, loss, [16, 32])
    for size in (16, 32):
        one, given = data.sel(batch_size=size), of_batches(embeddings, size)
        found = equilibrium.solve(loss, given)
        assert float(one["equilibrium_scale"]) == pytest.approx(found.scale, rel=1e-5)
        assert float(one["equilibrium_temperature"]) == pytest.approx(1 / found.scale, rel=1e-5)
        assert int(one["batches"]) == 70 // size == len(given) // 2
        assert one["queries"].values.tolist() == [size * (70 // size)] * 2
        late = [sum(int((row >= row[q]).sum() > 1) for q, row in enumerate(each.scores)) for each in given]
        assert int(one["not_first"].sum()) == sum(late) > 0
        numbers = [cocos.statistics.per_query(found.loss.weight(each), torch.ones(()), each) for each in given]
        exact = np.mean([float(each["effective"][each["effective"] > 0].mean()) for each in numbers])
        assert float(one["effective"]) == pytest.approx(exact, rel=1e-3)
        if loss == "siglip":
            assert float(one["equilibrium_bias"]) == pytest.approx(found.bias, rel=1e-4)


def test_the_bias_alone_makes_push_equal_to_pull():
    embeddings = noisy(64, 1.2)
    data = measures.temperature(embeddings, "siglip", [16, 64])
    assert data.attrs["own_bias"] == -10 and data.attrs["own_temperature"] == pytest.approx(0.1)
    for size in (16, 64):
        given, one = of_batches(embeddings, size), data.sel(batch_size=size)
        total = lambda bias, given=given: sum(sigmoid_slopes(each.scores.tolist(), 10, bias)[1] for each in given)  # noqa: E731
        assert float(one["balanced_bias"]) == pytest.approx(brentq(total, -30, 5), abs=1e-3)
        weight = torch.cat([losses.load("siglip").weight(each) for each in given])
        assert float(one["push_over_pull"]) == pytest.approx(
            float(weight[weight > 0].sum() / -weight[weight < 0].sum())
        )
    assert (data["balanced_bias"].diff("batch_size") < 0).all()  # more negatives, a lower bias


def test_the_interval_is_that_of_a_jackknife_over_rows():
    embeddings = noisy(40, 1.5, seed=3)
    data = measures.temperature(embeddings, "ntxent", ["all"]).isel(batch_size=0)
    scores = cocos.scores.pairs(embeddings).scores
    rows = scores.tolist(), scores.T.tolist()

    def settled(without):
        def slope(scale):
            found = [softmax_slope(each, scale) for each in rows]
            return sum(sum(each) - (each[without] if without is not None else 0) for each in found)

        return math.log(brentq(slope, 1, 200, xtol=1e-6))

    each = np.array([settled(k) for k in range(40)])
    error = math.sqrt(39 / 40 * ((each - each.mean()) ** 2).sum())
    reach = math.log(float(data["high"] / data["low"])) / 2
    assert reach == pytest.approx(1.96 * error, rel=0.1)
    middle = math.sqrt(float(data["high"] * data["low"]))
    assert middle == pytest.approx(float(data["equilibrium_temperature"])) == pytest.approx(math.exp(-settled(None)))


def test_the_wanted_effective_number_has_its_temperature():
    embeddings = noisy(64, 1.2)
    data = measures.temperature(embeddings, batch_sizes=[8, 32], effective=10)
    exact = measures.solve(embeddings, "ntxent", effective=10, batch_size=32)
    assert float(data["wanted_temperature"].sel(batch_size=32)) == pytest.approx(float(exact["value"]), rel=1e-3)
    assert math.isnan(data["wanted_temperature"].sel(batch_size=8))  # seven negatives are never ten


def test_usual_batch_sizes_end_with_the_whole_set():
    assert measures.temperature(noisy(40))["batch_size"].values.tolist() == [32, 40]
    assert measures.temperature(noisy(20))["batch_size"].values.tolist() == [20]
    assert measures.temperature(noisy(40), batch_sizes=["all"])["batch_size"].values.tolist() == [40]


def test_large_sets_are_read_in_part_and_say_so(monkeypatch):
    monkeypatch.setattr(sys.modules["cocos.measures.temperature"], "USUAL_SCORES", 3 * 16**2)
    data = measures.temperature(noisy(100), batch_sizes=[16])
    assert int(data["batches"][0]) == 3
    assert "batch size 16: 3 of 6 batches were read; --batches for another number" in data.attrs["notes"]
    assert int(measures.temperature(noisy(100), batch_sizes=[16], batches=6)["batches"][0]) == 6
    assert "batch size 32: 1 of 3 batches were read" in measures.temperature(noisy(100)).attrs["notes"]


def saved(tmp_path, embeddings, **more):
    np.savez(tmp_path / "e.npz", query=embeddings.query.numpy(), candidate=embeddings.candidate.numpy(), **more)
    return str(tmp_path / "e.npz")


def call(*given):
    return CliRunner().invoke(app, ["whatif", "--settles", *map(str, given)])


def test_the_command_tells_the_equilibrium_beside_the_temperature_of_the_training(tmp_path):
    file = saved(tmp_path, noisy(70, 1.2), temperature=0.05)
    done = call(file, "--batch-size", "16,32", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found["batch_sizes"]) == ["16", "32"] and found["trained_temperature"] == 0.05
    data = measures.temperature(cocos.open(file), batch_sizes=[16, 32])
    for size, one in found["batch_sizes"].items():
        there = float(data["equilibrium_temperature"].sel(batch_size=int(size)))
        assert one["equilibrium_temperature"] == there and one["effective"] > 1 and one["state"] == "settles"
        assert one["low"] < there < one["high"]
    assert set(found["directions"]) == {"q2c", "c2q"}
    text = call(file, "--batch-size", 16, "--batch-size", 32).stdout
    there = found["batch_sizes"]["32"]["equilibrium_temperature"]
    assert f"32 settles {there:.4g} " in " ".join(text.split())


def test_the_command_is_null_in_json_and_words_in_text_where_nothing_settles(tmp_path):
    solved = cocos.Embeddings(torch.eye(40), torch.eye(40) + 0.01)
    file = saved(tmp_path, solved)
    one = json.loads(call(file, "--batch-size", "all", "--json").stdout)["batch_sizes"]["40"]
    assert one["equilibrium_temperature"] is None and one["held_temperature"] == 0.01
    assert one["state"] == "grows" and one["effective"] == pytest.approx(39)
    said = " ".join(call(file, "--batch-size", "all").stdout.split())
    assert "40 grows - " in said and "clip 100" in said
    turned = saved(tmp_path, cocos.Embeddings(torch.eye(40), 1 - torch.eye(40)))
    one = json.loads(call(turned, "--json").stdout)["batch_sizes"]["40"]
    assert one["equilibrium_temperature"] is None and one["effective"] is None and one["state"] == "falls"
    assert "40 falls - " in " ".join(call(turned).stdout.split())


def test_the_command_writes_a_dataset_or_a_figure(tmp_path):
    file = saved(tmp_path, noisy(40))
    done = call(file, "--effective", 5, "--out", tmp_path / "t.png")
    assert done.exit_code == 0 and (tmp_path / "t.png").stat().st_size > 5000, done.stderr
    assert call(file, "--loss", "siglip", "--out", tmp_path / "t.nc").exit_code == 0
    data = cocos.results.open(tmp_path / "t.nc")
    assert "equilibrium_bias" in data and "Where the temperature settles" in str(table("temperature", data))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--batch-size", "1"], "batch size: 1, expected an integer of at least 2"),
        (["--batch-size", "32,,64"], "batch size: ''"),
        (["--batch-size", "some"], "batch size: 'some', expected an integer"),
        (["--batch-size", "8,8"], "batch sizes: 8 is given 2 times, expected different ones, like 32 and 128"),
        (["--effective", "0.5"], "effective: 0.5, expected an effective number of negatives"),
        (["--loss", "triplet"], "loss triplet: no temperature or scale"),
        (["--loss", "arcface"], "loss arcface: it is not a function of scale * score alone"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, given, sentence):
    done = call(saved(tmp_path, noisy(40)), *given)
    assert done.exit_code == 2 and sentence in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""
