"""`cocos gradients` and `cocos.measures.gradients`: cosines between the gradients of losses, query by query."""

import copy
import json

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from scipy.stats import ttest_1samp
from typer.testing import CliRunner

import cocos
from cocos import Embeddings, InputError, losses, measures, plots, results
from cocos.commands import app
from cocos.embeddings import batches, scores
from cocos.measures.gradients import _cosines, _lowest, disagreeing
from cocos.reports import table

SIZE = 12
DIRECTIONS = ("query-candidate", "query-query", "candidate-query", "candidate-candidate")
LOSSES = {
    "triplet": losses.load("triplet", {"margin": 0.5}),
    "siglip": losses.load("siglip"),
    "euclidean": losses.load("triplet_euclidean", {"margin": 1.0}),
    "squared": losses.load("triplet_squared", {"margin": 1.0}),
    "dot": losses.load("n_pair"),
    "coupled": losses.load("lifted_structure"),
    "norms": losses.load("magface"),
    "wide": losses.load("mnrl", {"scale": 10, "directions": DIRECTIONS}),
}


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def made(number=36, width=6, **more):
    generator = torch.Generator().manual_seed(4)
    query = torch.randn(number, width, generator=generator, dtype=torch.float64)
    noise = 1.2 * torch.randn(number, width, generator=generator, dtype=torch.float64)
    return Embeddings(query, query + noise, **more)


@pytest.fixture(scope="module")
def embeddings():
    return made()


@pytest.fixture
def file(embeddings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = np.array([f"question {k}" for k in range(len(embeddings.query))])
    np.savez("rows.npz", query=embeddings.query.numpy(), candidate=embeddings.candidate.numpy(), query_name=names)
    return "rows.npz"


def by_autograd(embeddings, loss):
    """Row -> gradient of the raw query, by automatic differentiation of the loss of each batch from the embeddings."""
    found = {}
    for batch in batches.plan(embeddings, batch_size=SIZE, seed=0).batches:
        held, leaf = copy.copy(embeddings), embeddings.query.clone().requires_grad_()
        object.__setattr__(held, "query", leaf)
        directions = losses.traits(loss).directions
        loss(scores.pairs(held, batch, metric=loss.metric, directions=directions)).sum().backward()
        found |= {row: leaf.grad[row].numpy() for row in batch.query_index.tolist()}
    return found


def slow(one, other):
    """Cosine of two vectors by a plain loop; NaN where one is zero."""
    size = [sum(float(x) ** 2 for x in each) ** 0.5 for each in (one, other)]
    inner = sum(float(x) * float(y) for x, y in zip(one, other, strict=True))
    return inner / (size[0] * size[1]) if min(size) > 1e-12 else np.nan


@pytest.mark.parametrize("name", LOSSES)
def test_cosines_are_those_of_autograd_from_the_embeddings(embeddings, name):
    base, other = losses.load("ntxent"), LOSSES[name]
    if name == "norms":  # which magface reads from 10 on
        embeddings = Embeddings(12 * embeddings.query, embeddings.candidate)
    data = measures.gradients(embeddings, base, [other], batch_size=SIZE).sel(direction="q2c")
    ours = dict(zip(data["query_index"].values.astype(int), data["query_cosine"].isel(other=1).values, strict=True))
    both = [by_autograd(embeddings, loss) for loss in (base, other)]
    expected = {row: slow(both[0][row], both[1][row]) for row in both[0]}
    assert ours.keys() == expected.keys() and np.isfinite(list(expected.values())).sum() > 20
    for row, cosine in expected.items():
        assert ours[row] == pytest.approx(cosine, abs=1e-9, nan_ok=True)
    some = np.array([cosine for cosine in expected.values() if np.isfinite(cosine)])
    one = data.isel(one=0, other=1)
    interval = ttest_1samp(some, 0).confidence_interval(0.95)
    assert (float(one["cosine"]), float(one["opposed"]), int(one["pairs"])) == pytest.approx((
        some.mean(),
        100 * (some < 0).mean(),
        len(some),
    ))
    assert (float(one["low"]), float(one["high"])) == pytest.approx((interval.low, interval.high), rel=1e-6)
    sizes = [np.array([np.linalg.norm(each[row]) for row in expected if np.isfinite(expected[row])]) for each in both]
    assert float(one["ratio"]) == pytest.approx(np.median(sizes[1] / sizes[0]))
    assert float(one["percentiles"].sel(percentile=50)) == pytest.approx(np.median(some))


def test_a_gradient_is_a_finite_difference(embeddings):
    """A step of the raw query along and across the gradient changes the loss as it says."""
    loss, step = losses.load("ntxent"), 1e-6
    batch = batches.plan(embeddings, batch_size=SIZE, seed=0).batches[0]
    row = int(batch.query_index[3])
    gradient = torch.as_tensor(by_autograd(embeddings, loss)[row])
    for k in range(embeddings.query.shape[1]):
        values = []
        for sign in (1, -1):
            moved = embeddings.query.clone()
            moved[row, k] += sign * step
            pairs = scores.pairs(Embeddings(moved, embeddings.candidate), batch)
            values.append(float(loss(pairs).sum()))
        assert (values[0] - values[1]) / (2 * step) == pytest.approx(float(gradient[k]), abs=1e-6)


def test_the_same_loss_at_another_unit_agrees_and_is_longer(embeddings):
    data = measures.gradients(embeddings, "ntxent", [losses.load("2*ntxent")], batch_size=SIZE).isel(one=0, other=1)
    assert data["cosine"].values == pytest.approx(1) and data["ratio"].values == pytest.approx(2)
    assert (data["opposed"] == 0).all() and (data["alone"] == 0).all()


def test_opposite_losses_oppose_each_other_on_every_query(embeddings):
    def repelled(scores, positive, negative):
        return (scores * positive).sum(dim=1)

    def attracted(scores, positive, negative):
        return -(scores * positive).sum(dim=1)

    data = measures.gradients(embeddings, attracted, [repelled], batch_size=SIZE).isel(one=0, other=1)
    assert data["cosine"].values == pytest.approx(-1) and (data["opposed"] == 100).all()


def test_queries_that_one_loss_leaves_alone_are_counted_apart(embeddings):
    hard = losses.load("triplet", {"margin": 0.01})
    data = measures.gradients(embeddings, "ntxent", [hard], batch_size=SIZE).sel(direction="q2c")
    idle = 100 * float(
        (measures.count(embeddings, hard, batch_size=SIZE)["contributing"] == 0).sel(direction="q2c").mean()
    )
    assert float(data["alone"].isel(one=0, other=1)) == pytest.approx(idle) and 0 < idle < 100
    assert float(data["alone"].isel(one=1, other=0)) == 0
    assert int(data["pairs"].isel(one=0, other=1)) == round(len(embeddings.query) * (1 - idle / 100))
    assert int(np.isnan(data["query_cosine"].isel(other=1)).sum()) == round(len(embeddings.query) * idle / 100)


def test_a_query_that_stands_twice_in_a_batch_has_one_gradient():
    generator = torch.Generator().manual_seed(0)
    image, group = torch.randn(6, 5, generator=generator, dtype=torch.float64), torch.arange(6).repeat_interleave(2)
    caption = image[group] + torch.randn(12, 5, generator=generator, dtype=torch.float64)
    sides = Embeddings(image, caption, torch.arange(6), group)
    data = measures.gradients(sides, "ntxent", [losses.load("triplet", {"margin": 2.0})], batch_size="all")
    assert int(data["pairs"].sel(direction="q2c").isel(one=0, other=1)) == 6
    (batch,) = batches.plan(sides, batch_size="all").batches
    cosines = []
    for loss in (losses.load("ntxent"), losses.load("triplet", {"margin": 2.0})):
        held, leaf = copy.copy(sides), image.clone().requires_grad_()
        object.__setattr__(held, "query", leaf)
        loss(scores.pairs(held, batch)).sum().backward()
        cosines.append(leaf.grad)
    expected = torch.cosine_similarity(*cosines, dim=1).numpy()
    assert np.allclose(data["query_cosine"].sel(direction="q2c").isel(other=1).values[:6], expected)


def test_rounding_is_no_gradient():
    every = torch.zeros(2, 3, 4, dtype=torch.float64)
    every[:, 0, 0] = 1
    every[0, 1, 1], every[1, 1, 1] = 1e-14, 1.0
    size, cosine = _cosines(every)
    assert size[0].tolist() == [1, 0, 0] and cosine[0, 1].isnan().tolist() == [False, True, True]


def test_the_lowest_cosines_name_each_query_once():
    rows, cosines = np.array([7, 7, 3, 5, 9]), np.array([0.1, -0.5, 0.2, np.nan, 0.9])
    assert list(_lowest(rows, cosines, 2)) == [(7, -0.5), (3, 0.2)]
    assert [row for row, _ in _lowest(rows, cosines, 9)] == [7, 3, 9]


def test_a_labelled_set_and_a_loss_that_asks_one_way():
    rows = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(40) % 8
    shared = Embeddings(rows, rows, labels, labels, directions=("x2x",), shared=True)
    data = measures.gradients(shared, "triplet", "ntxent,smoothap", batch_size=16)
    assert data.attrs["sample"] == "groups" and int(data["groups"].isel(one=0, other=1).max()) == 8
    both = measures.gradients(made(), "ntxent", [LOSSES["wide"]], batch_size=SIZE)
    assert both["direction"].values.tolist() == ["q2c"]  # the direction that all of them have


def test_the_table_the_names_and_the_document(file):
    arguments = ["gradients", file, "--against", "triplet", "--against", "siglip", "--batch-size", SIZE]
    done = call(*arguments, "-p", "triplet.margin=0.5", "-p", "siglip.scale=4", "--disagree", 2)
    assert done.exit_code == 0, done.stderr
    chosen = [losses.load("triplet", {"margin": 0.5}), losses.load("siglip", {"scale": 4})]
    data = measures.gradients(cocos.open(file), "ntxent", chosen, batch_size=SIZE, disagree=2)
    flat = " ".join(done.stdout.split())
    place = 1 + int(np.argmin(data["cosine"].sel(direction="q2c").isel(one=0).values[1:]))
    one = data.sel(direction="q2c").isel(one=0, other=place)
    name = str(data["name"].values[place])
    name = "Triplet" if name == "triplet" else "SigLIP"
    assert f"q2c: {name} agrees least with NTXent: mean cosine {float(one['cosine']):+.2f}" in flat
    assert flat.count("These are gradients at one checkpoint") == 1
    row = int(one["disagree_index"][0])
    assert f"{float(one['disagree_cosine'][0]):+.2f} {row} question {row}" in flat
    found = json.loads(call(*arguments, "--json").stdout)
    assert [pair["other"].partition("(")[0] for pair in found["directions"]["q2c"]["pairs"]] == [
        "Triplet", "SigLIP", "SigLIP"]  # fmt: skip
    listed = found["directions"]["q2c"]["disagree"]
    assert len(listed) == 2 and all(len(each) == 5 for each in listed.values())
    first = next(iter(listed.values()))
    assert first[0]["cosine"] <= first[1]["cosine"] and first[0]["name"] == f"question {first[0]['row']}"


def test_without_queries_to_list_there_is_one_table(embeddings):
    data = measures.gradients(embeddings, "ntxent", "triplet", batch_size=SIZE, disagree=0)
    assert disagreeing(data) is None and "agrees least" not in str(table("gradients", data))
    assert "Triplet and NTXent: mean cosine" in str(table("gradients", data))


def test_it_is_drawn_and_saved(file, tmp_path, embeddings):
    assert call("gradients", file, "--out", "a.png", "--batch-size", SIZE).exit_code == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert call("gradients", file, "--out", "a.nc", "--batch-size", SIZE, "--against", "triplet").exit_code == 0
    saved = results.open(tmp_path / "a.nc")
    assert saved.sizes["one"] == 2 and saved.attrs["checkpoint_path"] == file
    data = measures.gradients(embeddings, "ntxent", batch_size=SIZE)
    figure, (left, right) = plt.subplots(1, 2)
    plots.gradients(data, ax=left)
    said = [text.get_text().splitlines()[0] for text in left.texts]
    cosine = data["cosine"].sel(direction="q2c").values
    assert said == [f"{cosine[a, b]:+.2f}" for a in range(3) for b in range(3) if a != b]
    plots.gradients(data, direction="c2q", show="queries", ax=right)
    drawn = right.lines[0].get_ydata()
    own = data["query_cosine"].sel(direction="c2q").isel(other=1).values
    assert np.array_equal(drawn, np.sort(own[np.isfinite(own)]))
    plt.close(figure)
    with pytest.raises(InputError, match="unknown show 'rows'"):
        plots.gradients(data, show="rows")


def test_what_cannot_be_compared_is_one_sentence(file, embeddings):
    wrong = {
        ("--against", "triplet", "--against", "triplet"): "--against triplet: it is named 2 times",
        ("--loss", "triplet", "--against", "triplet"): "--against triplet: it is named 2 times",
        ("--against", "triplet", "-p", "margin=0.3"): "with several losses, name the loss as well",
        ("--against", "triplet", "-p", "triplet.margin=x"): "'x' is not a float",
        ("--disagree", "-1"): "disagree: -1, expected a whole number from 0 to 1000",
        ("--level", "0"): "level: 0.0, expected a number between 0 and 1",
    }
    for options, said in wrong.items():
        done = call("gradients", file, *options, "--out", "never.nc")
        assert done.exit_code == 2 and done.stdout == "" and said in done.stderr, (options, done.stderr)
        assert len(done.stderr.strip().splitlines()) == 1 and "Traceback" not in done.stderr

    def spread(query, candidate):
        return (query - candidate).square().sum(dim=1) / query.square().sum()

    with pytest.raises(InputError, match="it weighs no scores that cocos knows"):
        measures.gradients(embeddings, "ntxent", [spread])
    with pytest.raises(InputError, match="is given 2 times"):
        measures.gradients(embeddings, "ntxent", "ntxent")
    with pytest.raises(InputError, match="expected from 1 to 11"):
        measures.gradients(embeddings, "ntxent", [losses.load("triplet", {"margin": k / 20}) for k in range(1, 14)])
