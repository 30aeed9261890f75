"""The temperature, scale or margin that gives a wanted effective number of negatives, against brute force."""

import json
import math
import shlex

import numpy
import pytest
import torch
from scipy.optimize import brentq
from typer.testing import CliRunner

import cocos
import taught
from cocos import InputError, Pairs, losses
from cocos.cli import app
from cocos.counting import sharpness, statistics

# Losses without a parameter that sets the sharpness, and those whose effective number no such parameter changes.
WITHOUT = {"bpr", "fastap", "gbce", "linear_softmax", "listmle", "listwise_ap", "margin_mse", "n_pair", "proxy_gml"}
CONSTANT = {"contextual", "triplet_sh"}
# Losses in which it has a small range on these scores, away from the wanted number.
NARROW = {"generalized_lifted", "lambdaloss", "lifted_structure", "ranknet"}
WHOLE = {"a_softmax", "l_softmax"}  # their margin is a whole number
WANTED = 6.0


@pytest.fixture(scope="module")
def embeddings():
    generator = torch.Generator().manual_seed(0)
    query, other = (torch.randn(40, 16, generator=generator, dtype=torch.float64) for _ in range(2))
    return cocos.Embeddings(query, query + 0.8 * other)


@pytest.fixture(scope="module")
def pairs(embeddings):
    return cocos.scores.pairs(embeddings)


def slow(scores, temperature):
    """Mean of exp(entropy) of the softmax over the negatives of each query, matched by rows, with loops."""
    numbers = []
    for q, row in enumerate(scores.tolist()):
        most = max(s for c, s in enumerate(row) if c != q)
        mass = [math.exp((s - most) / temperature) for c, s in enumerate(row) if c != q]
        numbers.append(math.exp(-sum(m / sum(mass) * math.log(m / sum(mass)) for m in mass if m)))
    return sum(numbers) / len(numbers)


@pytest.mark.parametrize("wanted", [1.5, 4, 16, 38])
def test_the_temperature_is_that_of_a_slow_search(pairs, wanted):
    exact = brentq(lambda log: slow(pairs.scores, math.exp(log)) - wanted, math.log(1e-3), math.log(1e3))
    found = sharpness.solve("ntxent", pairs, wanted, tolerance=1e-6)
    assert found.value == pytest.approx(math.exp(exact), rel=1e-4)
    assert found.effective == pytest.approx(wanted, rel=1e-6)
    assert found.loss == losses.load("ntxent", {"temperature": found.value}) and not found.bound
    assert len(found.tried) <= 25 and (found.value, found.effective) in found.tried


def test_both_directions_of_a_batch_have_the_mean_that_is_wanted(pairs):
    other = Pairs(pairs.scores.T.contiguous() ** 3, pairs.positive)
    value = sharpness.solve("ntxent", [pairs, other], 8, tolerance=1e-6).value
    assert (slow(pairs.scores, value) + slow(other.scores, value)) / 2 == pytest.approx(8, rel=1e-5)


def test_the_margin_is_one_that_a_count_of_violations_confirms(pairs):
    found = sharpness.solve("triplet", pairs, 5)
    over = pairs.scores - pairs.scores.diagonal()[:, None] + found.value > 0
    number = (over & ~pairs.positive).sum(dim=1)
    assert number[number > 0].double().mean().item() == found.effective == pytest.approx(5, rel=1e-3)


@pytest.mark.parametrize("name", losses.names())
def test_every_loss_of_the_shelf_is_solved_or_says_why_not(name, embeddings):
    loss = losses.load(name)
    some = torch.arange(20)
    pairs = taught.pairs(cocos.scores.pairs(embeddings.rows(some, some), metric=loss.metric), loss)
    kinds = {"no parameter that sets its sharpness": WITHOUT, "is .* at any": CONSTANT, "an integer": WHOLE}
    kinds["take a number between"] = NARROW
    for said, kind in kinds.items():
        if name in kind:
            with pytest.raises(InputError, match=said):
                sharpness.solve(loss, pairs, WANTED)
            return
    found = sharpness.solve(loss, pairs, WANTED)
    number = statistics.effective(statistics.spread(found.loss.weight(pairs), pairs))
    mean = (number.sum() / (number > 0).sum()).item()
    assert mean == found.effective == pytest.approx(WANTED, rel=0.02)
    assert found.loss.parameters == loss.parameters | {found.parameter: found.value}


def test_the_search_goes_on_from_the_last_loss_in_few_steps(pairs):
    first = sharpness.solve("ntxent", pairs, 12)
    moved = pairs.with_scores(pairs.scores + 0.01 * torch.sin(40 * pairs.scores))
    again = sharpness.solve(first.loss, moved, 12)
    assert again.effective == pytest.approx(12, rel=1e-3) and len(again.tried) <= 6
    assert len(sharpness.solve(first.loss, pairs, 12).tried) == 1


def test_a_margin_without_violations_is_widened_until_there_are_some():
    scores = torch.eye(4, dtype=torch.float64) - torch.tensor([0.0, 0.1, 0.2, 0.3])  # positives lead by 0.7 to 1.3
    pairs = Pairs(scores, torch.eye(4, dtype=torch.bool))
    loss = losses.load("triplet", {"margin": 0.01})
    assert not loss.weight(pairs).any()
    found = sharpness.solve(loss, pairs, 3)
    assert found.effective == pytest.approx(3) and found.value > 1.3
    with pytest.raises(InputError, match="effective 4: triplet has 1 to 3 effective negatives"):
        sharpness.solve(loss, pairs, 4)
    alone = Pairs(torch.ones(2, 1, dtype=torch.float64), torch.ones(2, 1, dtype=torch.bool))
    with pytest.raises(InputError, match="triplet: it pushes no negative of these scores, whatever the margin"):
        sharpness.solve(loss, alone, 4)


def test_the_scores_of_a_training_step_keep_their_graph(pairs):
    scores = pairs.scores.float().requires_grad_()
    found = sharpness.solve("ntxent", Pairs(scores, pairs.positive), 12)
    found.loss(scores, pairs.positive).mean().backward()
    assert scores.grad.abs().max() > 0


def test_a_bound_is_the_value_where_the_number_lies_beyond_it(pairs):
    for wanted, bounds, value, side in ((30, (0.01, 0.05), 0.05, "upper"), (2, (0.2, 10), 0.2, "lower")):
        found = sharpness.solve("ntxent", pairs, wanted, bounds=bounds)
        assert (found.value, found.bound) == (value, side)
        assert found.effective == pytest.approx(slow(pairs.scores, value))
    scaled = sharpness.solve("sampled_softmax", pairs, 30, bounds=(20, 100))
    assert (scaled.value, scaled.bound) == (20, "lower")
    inside = sharpness.solve("ntxent", pairs, 10, bounds=(0.001, 10))
    assert not inside.bound and inside.effective == pytest.approx(10, rel=1e-3)


def test_wrapped_losses_and_sums_are_solved_for_the_parameter_of_their_loss(pairs):
    found = sharpness.solve(losses.TopK(losses.load("ntxent"), 12), pairs, WANTED)
    assert found.parameter == "ntxent.temperature" and found.effective == pytest.approx(WANTED, rel=1e-3)
    assert found.loss.parameters == {"k": 12, "ntxent.temperature": found.value}
    both = losses.load("triplet+ntxent")
    with pytest.raises(InputError, match="name the one to solve for: triplet.margin or ntxent.temperature"):
        sharpness.solve(both, pairs, WANTED)
    found = sharpness.solve(both, pairs, 15, parameter="triplet.margin")
    assert found.effective == pytest.approx(15, rel=1e-2) and found.parameter == "triplet.margin"


@pytest.mark.parametrize(
    "loss, wanted, options, said",
    [
        ("ntxent", 200, {}, r"ntxent has 1 to 39 effective negatives on these scores, for temperature from"),
        ("top_k(ntxent)", 20, {}, "has 1 to 12 effective negatives"),
        ("triplet_sh", 4, {}, "the effective number of triplet_sh is 1 at any margin"),
        ("arcface", 4, {"parameter": "margin"}, "the effective number of arcface is .* at any margin"),
        ("ntxent", math.nan, {}, "effective: nan"),
        ("ntxent", "4", {}, "effective: '4'"),
        ("ntxent", 4, {"bounds": (2, 1)}, r"bounds: \(2, 1\), expected two finite values above 0"),
        ("ntxent", 4, {"tolerance": 0}, "tolerance: 0, expected a part"),
        ("ntxent", 4, {"parameter": "temprature"}, "unknown parameter of ntxent 'temprature': did you mean"),
        ("n_pair", 4, {}, "no parameter that sets its sharpness"),
    ],
)
def test_a_number_that_no_value_gives_is_one_sentence(pairs, loss, wanted, options, said):
    loss = losses.TopK(losses.load("ntxent"), 12) if loss.startswith("top") else loss
    with pytest.raises(InputError, match=said):
        sharpness.solve(loss, pairs, wanted, **options)


@pytest.mark.parametrize("loss", ["ntxent", "triplet", "smoothap", "ce_softmax", "multi_similarity"])
def test_the_measure_finds_what_count_reports(embeddings, loss):
    options = {"batch_size": 20, "batches": 3, "seed": 4}
    found = cocos.measures.solve(embeddings, loss, effective=5, **options)
    parameter = found.attrs["parameter"]
    counted = cocos.measures.count(embeddings, losses.load(loss, {parameter: found["value"].item()}), **options)
    number = counted["effective_per_query"]
    mean = number.where(number > 0).mean(["batch", "query"])
    assert numpy.allclose(found["effective"], mean, rtol=1e-5)
    assert found["effective_mean"].item() == pytest.approx(float(mean.mean()), rel=1e-5)
    assert abs(found["effective_mean"].item() / 5 - 1) <= (1e-3 if loss != "triplet" else 0.02)
    assert found.attrs["own"] == losses.load(loss).parameters[parameter] and not found.attrs["bound"]
    assert found["tried_value"].values[0] == pytest.approx(found.attrs["own"])


def test_the_measure_names_a_bound_and_what_can_be_reached(embeddings):
    options = {"batch_size": 20, "batches": 2}
    found = cocos.measures.solve(embeddings, "ntxent", effective=15, bounds=(0.001, 0.01), **options)
    assert found.attrs["bound"] == "upper" and found["value"].item() == 0.01
    with pytest.raises(InputError, match="to 19 effective negatives"):
        cocos.measures.solve(embeddings, "ntxent", effective=20, **options)


def test_the_command_prints_the_value_and_how_to_count_with_it(embeddings, tmp_path):
    file = tmp_path / "embeddings.npz"
    numpy.savez(file, query=embeddings.query, candidate=embeddings.candidate)
    given = ["whatif", str(file), "--batch-size", "20", "--loss", "top_k(ntxent)", "-p", "k=12"]
    done = CliRunner().invoke(app, [*given, "--effective", "5", "--json", "--out", str(tmp_path / "found.nc")])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["parameter"] == "ntxent.temperature" and document["target"] == 5 and document["bound"] == ""
    assert document["effective_mean"] == pytest.approx(5, rel=1e-3) and document["directions"].keys() == {"q2c", "c2q"}
    assert cocos.results.open(tmp_path / "found.nc")["value"].item() == document["value"]
    shown = CliRunner().invoke(app, [*given, "--effective", "5"]).stdout
    value = f"{document['value']:.6g}"
    assert f"--loss 'top_k(ntxent)' -p k=12 -p ntxent.temperature={value}" in " ".join(shown.split())
    for wrong in (["--effective", "50"], ["--effective", "0"]):
        refused = CliRunner().invoke(app, [*given, *wrong])
        assert refused.exit_code == 2 and "Traceback" not in refused.output


def test_without_a_number_an_eighth_of_the_negatives_is_solved_for(embeddings, tmp_path):
    """Recall turns at 16 of 127 in docs/study.md, an eighth of them."""
    data = cocos.measures.solve(embeddings, "ntxent", batch_size=33)
    assert data.attrs["target"] == 4 and data["effective_mean"].item() == pytest.approx(4, rel=1e-3)
    assert "an eighth of the negatives of a batch is taken, 4:" in data.attrs["notes"]
    given = cocos.measures.solve(embeddings, "ntxent", batch_size=33, effective=4)
    assert given["value"].item() == data["value"].item() and "an eighth" not in given.attrs["notes"]
    numpy.savez(tmp_path / "e.npz", query=embeddings.query, candidate=embeddings.candidate)
    assert CliRunner().invoke(app, ["whatif", str(tmp_path / "e.npz")]).exit_code == 0


def test_the_table_says_how_to_count_with_the_value(tmp_path):
    generator = torch.Generator().manual_seed(4)
    query = torch.randn(96, 8, generator=generator)
    numpy.savez(tmp_path / "e.npz", query=query, candidate=query + torch.randn(96, 8, generator=generator))
    done = CliRunner().invoke(app, ["whatif", str(tmp_path / "e.npz"), "--effective", "5", "--batch-size", "32"])
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("next: cocos count ")]
    options = shlex.split(line)[2:]
    assert "--batch-size" in options
    counted = json.loads(CliRunner().invoke(app, [*options, "--json"]).stdout)
    effective = [each["effective"]["mean"] for each in counted["directions"].values()]
    assert sum(effective) / len(effective) == pytest.approx(5, rel=2e-3)
