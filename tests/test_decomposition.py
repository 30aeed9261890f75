"""The gradient of a query taken apart: against autograd of the embeddings, slow loops, and what must hold."""

import dataclasses
import itertools
import json
import math

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cases
import cocos
import taught
from cocos import Embeddings, InputError, losses, measures, plots, reports, results
from cocos.cli import app
from cocos.counting import forces
from cocos.embeddings import scores, similarities
from cocos.embeddings.sampling import plan
from cocos.measures.shared import prepared, synthetic_inputs
from cocos.reports import table

NAMES = cases.KINDS
METRICS = sorted(similarities.METRICS)
REGIMES = ("random", "collapsed", "separated", "duplicates", "anti-aligned", "large norms")
DIFFERENCES = ("euclidean", "squared_euclidean", "mahalanobis")


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def weigh(loss, pairs):
    return loss.weight(pairs)


def radial_of(loss, pairs):
    return loss.radial(pairs) if loss.reads_norms else None


def trained(loss, pairs, *rows):
    """Gradient of the summed loss with respect to the embeddings: queries and candidates, or the one matrix of both."""
    rows = [each.clone().requires_grad_() for each in rows]
    query, candidate = rows[0], rows[-1]
    variance = (pairs.embeddings.candidate_variance,) if loss.metric == "mahalanobis" else ()
    moved = dataclasses.replace(
        pairs,
        scores=similarities.METRICS[loss.metric](query, candidate, *variance),
        query_norm=query.norm(dim=1),
        candidate_norm=candidate.norm(dim=1),
    )
    return torch.autograd.grad(loss(moved).sum(), rows, materialize_grads=True)


def close(actual, expected, tolerance=1e-10):
    scale = max(1.0, expected.abs().max().item())
    worst = (actual - expected).abs().max().item()
    assert worst <= tolerance * scale, f"off by {worst:.3e} with gradients up to {scale:.3e}"


def of(loss, name, seed):
    return scores.pairs(synthetic_inputs.embeddings(name, seed), metric=loss.metric)


def given(metric, seed=0, dtype=torch.float64):
    """Pairs of one metric, and weights that no loss has: of any sign, on a part of the pairs, in neither mask too."""
    generator = torch.Generator().manual_seed(seed)
    embeddings = synthetic_inputs.embeddings("random", seed).to(dtype=dtype)
    pairs = scores.pairs(embeddings, metric=metric)
    out = torch.rand(pairs.scores.shape, generator=generator) < 0.2
    pairs = dataclasses.replace(pairs, positive=pairs.positive & ~out, negative=pairs.negative & ~out)
    weights = torch.randn(pairs.scores.shape, generator=generator, dtype=torch.float64).to(dtype)
    return pairs, torch.where(pairs.positive, -weights.abs() + 0.3, weights + 0.5).masked_fill(out, 0)


# --- the contract: every loss of the shelf


@pytest.mark.parametrize("name", NAMES)
def test_both_roles_are_the_gradient_of_the_embeddings(name):
    loss = losses.load(name)
    for regime, seed in itertools.product(REGIMES, range(2)):
        pairs = of(loss, regime, seed)
        weights, radial = weigh(loss, pairs), radial_of(loss, pairs)
        query, candidate = trained(loss, pairs, pairs.embeddings.query, pairs.embeddings.candidate)
        pull, push = forces.sides(weights, pairs, loss.metric)
        close(forces.gradient(pull, push, pairs, loss.metric, radial), query)
        across = forces.norm_slope(loss, pairs, "candidate")
        close(forces.candidate_gradient(weights, pairs, loss.metric, across), candidate)
        forced = forces.parts(
            *forces.candidate_sides(weights, pairs, loss.metric), pairs, loss.metric, across, "candidate"
        )
        close(forced["gradient_norm"], candidate.norm(dim=1))


@pytest.mark.parametrize("name", NAMES)
def test_in_a_labelled_set_the_roles_add_up_to_the_gradient_of_the_one_matrix(name):
    loss = losses.load(name)
    for seed in range(2):
        pairs = synthetic_inputs.labelled(loss.metric, seed)
        weights = weigh(loss, pairs)
        pull, push = forces.sides(weights, pairs, loss.metric)
        found = forces.gradient(pull, push, pairs, loss.metric, radial_of(loss, pairs))
        across = forces.norm_slope(loss, pairs, "candidate")
        found = found + forces.candidate_gradient(weights, pairs, loss.metric, across)
        (expected,) = trained(loss, pairs, pairs.embeddings.query)
        assert expected.abs().max() > 0
        close(found, expected)
        if loss.metric in DIFFERENCES:  # such losses do not see a translation of the whole set
            close(found.sum(dim=0), torch.zeros(found.shape[1], dtype=found.dtype), 1e-12)


# --- slow loops


def length(vector):
    return math.hypot(*vector)


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def times(number, vector):
    return [number * x for x in vector]


def plus(*vectors):
    return [math.fsum(xs) for xs in zip(*vectors, strict=True)]


def slope(metric, x, c, variance):
    """Gradient of one score with respect to the query as the metric reads it."""
    away = plus(c, times(-1, x))
    if metric == "angle":
        half, c = len(c) // 2, times(1 / length(c), c)
        first, second = c[:half], c[half:]
        back = plus(first, times(-1, second)) + plus(second, first)
        return times(math.copysign(1, dot(back, x)), back)
    if metric == "cosine":
        return times(1 / length(c), c)
    if metric in {"dot", "cosine_dot"}:
        return c
    if metric == "projection":
        return times(1 / length(c), c)
    if metric == "chord":
        away = plus(times(1 / length(c), c), times(-1 / length(x), x))
    if metric in {"euclidean", "chord"}:
        return times(1 / length(away) if length(away) > 0 else 0, away)
    if metric == "mahalanobis":
        return [2 * d / v for d, v in zip(away, variance, strict=True)]
    if metric == "squared_chord":
        away = plus(times(1 / length(c), c), times(-1 / length(x), x))
    return times(2, away)


def jacobian(metric, g, x):
    """Gradient of the raw query."""
    if not metric.startswith(("cosine", "angle", "chord", "squared_chord")):
        return g
    unit = times(1 / length(x), x)
    return times(1 / length(x), plus(g, times(-dot(g, unit), unit)))


def missing(some, whole):
    return some / whole if whole > 0 else math.nan


def slow(weights, pairs, metric, radial):
    """Every statistic of every query, pair by pair."""
    rows = []
    query, candidate = pairs.embeddings.query.tolist(), pairs.embeddings.candidate.tolist()
    variance = pairs.embeddings.candidate_variance.tolist()
    for q, x in enumerate(query):
        row = {"w": weights[q].tolist(), "s": pairs.scores[q].tolist()}
        own = [times(w, slope(metric, x, c, v)) for w, c, v in zip(row["w"], candidate, variance, strict=True)]
        forces = [length(jacobian(metric, part, x)) for part in own]
        chosen = {"pull": pairs.positive[q].nonzero().flatten(), "push": pairs.negative[q].nonzero().flatten()}
        chosen = {key: places.tolist() for key, places in chosen.items()}
        nothing = [0.0] * len(x)
        pull, push = (plus(nothing, *(own[j] for j in chosen[key])) for key in ("pull", "push"))
        net, unit = plus(pull, push), times(1 / length(x), x)
        raw = jacobian(metric, net, x)
        mass = {key: math.fsum(row["w"][j] for j in places) for key, places in chosen.items()}
        found = {
            "pull_norm": length(pull),
            "push_norm": length(push),
            "net_norm": length(net),
            "gradient_norm": length(raw if radial is None else plus(raw, times(radial[q].item(), unit))),
            "mass_ratio": missing(mass["push"], abs(mass["pull"])),
            "pull_push_cosine": missing(dot(pull, push), length(pull) * length(push)),
            "cancellation": 1 - missing(length(net), length(pull) + length(push)),
        }
        pushed = [max(w, 0.0) for w in row["w"]]
        strong = [size if w > 0 else 0.0 for size, w in zip(forces, row["w"], strict=True)]
        for key, sizes in (("", pushed), ("_force", strong)):
            order = sorted(chosen["push"], key=lambda j: (sizes[j], row["s"][j]), reverse=True)  # noqa: B023
            some, heaviest = bool(order) and sizes[order[0]] > 0, order[:1]
            total = math.fsum(sizes[j] for j in order)
            found[f"hardest_share{key}"] = sizes[heaviest[0]] / total if some else math.nan
            above = sum(row["s"][j] > row["s"][heaviest[0]] for j in order) if some else math.nan
            found[f"hardest_rank{key}"] = 1 + above
            if not key:
                along = dot(push, own[heaviest[0]]) if some else math.nan
                found["hardest_projection"] = missing(along, length(push) ** 2)
        if metric.startswith(("cosine", "angle", "chord", "squared_chord")):
            found["tangential_norm"] = length(raw) * length(x)
            for key, side in (("", net), ("_pull", pull), ("_push", push)):
                found[f"radial_fraction{key}"] = missing(abs(dot(side, unit)), length(side))
        if radial is not None:
            found["radial"] = radial[q].item()
        total = math.fsum(abs(row["w"][j]) for places in chosen.values() for j in places)
        for key, side, sign in (("pushed_positives", "pull", 1), ("pulled_negatives", "push", -1)):
            odd = [abs(row["w"][j]) for j in chosen[side] if sign * row["w"][j] > 0]
            found[key], found[f"{key}_part"] = len(odd), missing(math.fsum(odd), total)
        rows.append(found)
    return {key: torch.tensor([row[key] for row in rows], dtype=torch.float64) for key in rows[0]}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("metric", METRICS)
def test_statistics_agree_with_slow_loops(metric, seed):
    pairs, weights = given(metric, seed)
    pairs.negative[1], pairs.positive[2] = False, False
    pairs.positive[3], pairs.negative[3] = False, False
    weights = torch.where(pairs.positive | pairs.negative, weights, 0)
    radial = weights[:, 0] if seed % 2 else None
    expected = slow(weights, pairs, metric, radial)
    found = forces.per_query(weights, pairs, metric, radial)
    assert found.keys() == expected.keys()
    for key in expected:
        torch.testing.assert_close(found[key].double(), expected[key], rtol=1e-9, atol=1e-12, equal_nan=True, msg=key)
    assert found["pushed_positives"].dtype == found["pulled_negatives"].dtype == torch.int64
    assert found["pulled_negatives"].sum() > 0
    assert found["pushed_positives"].sum() > 0 or seed % 2  # odd seeds have one positive a query


@pytest.mark.parametrize("metric", METRICS)
def test_a_force_is_the_length_of_a_candidates_own_gradient(metric):
    given_pairs, _ = given(metric)
    part = given_pairs.embeddings
    candidate = part.candidate.clone()
    candidate[2], candidate[3], candidate[4] = part.query[0], 3 * part.query[0], -part.query[0]
    embeddings = part.replace(candidate=candidate)
    pairs = scores.pairs(embeddings, metric=metric)
    weights = torch.randn(pairs.scores.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = torch.zeros_like(weights)
    for q in range(weights.shape[0]):
        for c in range(weights.shape[1]):
            x = embeddings.query[q : q + 1].clone().requires_grad_()
            variance = (embeddings.candidate_variance[c : c + 1],) if metric == "mahalanobis" else ()
            score = similarities.METRICS[metric](x, candidate[c : c + 1], *variance)
            expected[q, c] = torch.autograd.grad((weights[q, c] * score).sum(), x)[0].norm()
    if metric == "chord":  # its slope at distance 0 is that of a rounding error
        weights[0, 2:4] = expected[0, 2:4] = 0
    torch.testing.assert_close(forces.force(weights, pairs, metric), expected, rtol=1e-10, atol=1e-13)


# --- identities


@pytest.mark.parametrize("metric", ["cosine", "cosine_dot"])
def test_the_normalisation_leaves_nothing_along_the_query(metric):
    pairs, weights = given(metric)
    pull, push = forces.sides(weights, pairs, metric)
    found = forces.gradient(pull, push, pairs, metric)
    along = (found * pairs.embeddings.query).sum(dim=1)
    assert along.abs().max() < 1e-12 * found.norm(dim=1).max()
    statistics = forces.per_query(weights, pairs, metric)
    left = statistics["net_norm"] * (1 - statistics["radial_fraction"].square()).sqrt()
    close(statistics["tangential_norm"], left, 1e-12)
    close(statistics["gradient_norm"], left / pairs.query_norm, 1e-12)


def test_a_euclidean_force_is_the_weight_and_a_distance_of_0_has_none():
    pairs, weights = given("euclidean")
    assert torch.equal(forces.force(weights, pairs, "euclidean"), weights.abs())
    rows = pairs.embeddings.query
    same = scores.pairs(Embeddings(rows, rows), metric="euclidean")
    found = forces.force(torch.ones_like(same.scores), same, "euclidean")
    assert torch.equal(found, 1 - torch.eye(len(rows), dtype=torch.float64))


@pytest.mark.parametrize("metric", ["euclidean", "squared_euclidean", "mahalanobis"])
def test_near_duplicates_keep_the_direction_of_their_difference(metric):
    """Five candidates 1e-9 from a query of length 100: a difference of sums would leave no digit of it."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 4, generator=generator, dtype=torch.float64)
    query = 100 * query / query.norm()
    candidate = query + 1e-9 * torch.randn(5, 4, generator=generator, dtype=torch.float64)
    embeddings = Embeddings(
        query, candidate, [0], [0, 1, 2, 3, 4], directions=("s2p",), candidate_variance=torch.full((5, 4), 2.0)
    )
    pairs = scores.pairs(embeddings, metric=metric)
    away, weights = candidate - query, torch.tensor([[-3.0, 1.0, 1.0, 0.5, 0.5]], dtype=torch.float64)
    scale = {"euclidean": away.norm(dim=1, keepdim=True), "squared_euclidean": 0.5, "mahalanobis": 1.0}[metric]
    expected = weights.T * (away / scale)
    pull, push = forces.sides(weights, pairs, metric)
    torch.testing.assert_close(pull[0], expected[0], rtol=1e-12, atol=0)
    torch.testing.assert_close(push[0], expected[1:].sum(dim=0), rtol=1e-12, atol=0)
    torch.testing.assert_close(forces.force(weights, pairs, metric)[0], expected.norm(dim=1), rtol=1e-7, atol=0)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_cosine_force_keeps_its_digits_where_the_cosine_has_lost_them(sign):
    angle = torch.tensor([1e-3, 1e-6, 1e-9, 1e-12], dtype=torch.float64)
    candidate = sign * torch.stack([angle.cos(), angle.sin()], dim=1)
    pairs = scores.pairs(Embeddings(torch.tensor([[5.0, 0.0]], dtype=torch.float64), candidate, [0], [0, 1, 2, 3]))
    assert pairs.scores[0, 2].abs() == 1
    found = forces.force(torch.ones_like(pairs.scores), pairs, "cosine")[0]
    torch.testing.assert_close(found, angle.sin() / 5, rtol=1e-9, atol=0)


def test_a_share_by_force_is_the_share_by_weight_times_a_part_of_the_longest_lever():
    pairs, weights = given("cosine")
    unit = torch.tensor(4.0, dtype=torch.float64)
    sine = (1 - pairs.scores.square()).sqrt()
    close(forces.force_share(weights, unit, pairs, "cosine"), weights.abs() / 4 * sine, 1e-12)
    for metric in ("dot", "cosine_dot"):
        pairs, weights = given(metric)
        sine = (1 - scores.pairs(pairs.embeddings).scores.square()).sqrt() if metric == "cosine_dot" else 1
        longest = ((pairs.positive | pairs.negative) * pairs.candidate_norm).amax(dim=1, keepdim=True)
        found = forces.force_share(weights, unit, pairs, metric)
        close(found, weights.abs() / 4 * sine * pairs.candidate_norm / longest, 1e-12)


def test_of_equal_weights_the_most_similar_negative_is_the_hardest():
    scored = Embeddings(
        torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0], [0.6, 0.8], [0.8, 0.6], [0.7, 0.7]]), [0], [0, 1, 2, 3]
    )
    pairs = scores.pairs(scored)
    loss = losses.load("triplet")
    found = forces.per_query(loss.weight(pairs), pairs, "cosine")
    assert found["hardest_rank"].item() == 1
    assert found["hardest_share"].item() == pytest.approx(1 / 3)
    assert found["hardest_rank_force"].item() == 3  # the least similar of the three has the longest lever


# --- numbers of any size


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", [1e-20, 1.0, 1e20])
def test_cosine_statistics_do_not_depend_on_norms(dtype, norm):
    loss = losses.load("ntxent")
    unit = synthetic_inputs.embeddings("random", 2)
    found = []
    for factor in (1.0, norm):
        rows = unit.replace(query=factor * unit.query, candidate=factor * unit.candidate).to(dtype=dtype)
        pairs = scores.pairs(rows)
        found.append(forces.per_query(loss.weight(pairs), pairs, "cosine"))
        felt = forces.force(loss.weight(pairs), pairs, "cosine") * factor
        assert felt.isfinite().all() and felt.max() > 0.1
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    for key, expected in found[0].items():
        scaled = found[1][key] * (norm if key == "gradient_norm" else 1)
        torch.testing.assert_close(scaled, expected, rtol=10 * tolerance, atol=tolerance, equal_nan=True, msg=key)


# --- the measure


def planted(images=40, captions=3, width=8, noise=0.7):
    generator = torch.Generator().manual_seed(11)
    image = torch.randn(images, width, generator=generator, dtype=torch.float64)
    group = torch.arange(images).repeat_interleave(captions)
    caption = image[group] + noise * torch.randn(len(group), width, generator=generator, dtype=torch.float64)
    return Embeddings(image, caption, torch.arange(images), group)


def labelled(number=60, width=5):
    generator = torch.Generator().manual_seed(3)
    return Embeddings.labelled(torch.randn(number, width, generator=generator), torch.arange(number) % 6)


def test_the_measure_is_what_the_functions_say_of_each_batch():
    embeddings, loss = planted(), losses.load("smoothap")
    data = measures.decomposition(embeddings, loss, 0.02, batch_size=16, seed=5)
    batches = plan(embeddings, sample="groups", batch_size=16, seed=5).batches
    assert data.sizes["batch"] == len(batches) == 3
    for b, batch in enumerate(batches):
        for direction, side, drawn in (("q2c", embeddings, batch), ("c2q", embeddings.flip(), batch.flip())):
            pairs = scores.pairs(side, drawn)
            weights = loss.weight(pairs)
            expected = forces.per_query(weights, pairs, "cosine")
            share = weights.abs() / loss.unit(pairs)
            expected["contributing"] = ((share > 0.02) & pairs.negative).sum(dim=1)
            expected["query_index"] = drawn.query_index
            cells = data.sel(direction=direction, batch=b)
            assert cells["queries"].item() == len(weights)
            for key, values in expected.items():
                np.testing.assert_allclose(cells[key].values[: len(weights)], values, rtol=1e-12, atol=1e-14)
                assert np.isnan(cells[key].values[len(weights) :]).all()
            assert (cells["contributing_force"] <= cells["contributing"]).values[: len(weights)].all()


@pytest.mark.parametrize("name", cases.KINDS)
def test_every_kind_of_loss_is_taken_apart_in_blocks_or_at_once(name, monkeypatch):
    for plain in (planted(), labelled()):
        embeddings = taught.embeddings(plain, name)
        if len(losses.load(name).directions) > 1:  # the forces of other queries are not taken apart
            with pytest.raises(InputError, match=f"{name}: it also reads .* scores, for which decomposition has no"):
                measures.decomposition(embeddings, name, batch_size=24, batches=1)
            return
        whole = measures.decomposition(embeddings, name, batch_size=24, batches=1)
        with monkeypatch.context() as patched:
            patched.setattr(prepared, "BLOCK_SCORES", 250)
            blocks = measures.decomposition(embeddings, name, batch_size=24, batches=1)
        push = whole["push_norm"]
        some = (push > 1e-6 * push.max()).values  # ratios of rounding errors are not compared
        for key in set(whole.data_vars) - {"queries"}:
            found, expected = (each[key].values for each in (blocks, whole))
            if whole[key].dims == push.dims:
                found, expected = found[some], expected[some]
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10, err_msg=key)
        assert json.dumps(reports.document("decomposition", whole), allow_nan=False)
    assert str(table("decomposition", whole))


@pytest.mark.parametrize("name", ["supcon", "triplet_squared", "l_softmax"])
def test_in_a_labelled_set_both_roles_are_measured(name):
    embeddings, loss = labelled().to(dtype=torch.float64), losses.load(name)
    data = measures.decomposition(embeddings, loss, batch_size=60).isel(direction=0, batch=0)
    rows = embeddings.query[data["query_index"].values.astype(int)]
    pairs = scores.pairs(Embeddings.labelled(rows, data["query_index"].values.astype(int) % 6), metric=loss.metric)
    (expected,) = trained(loss, pairs, rows)
    np.testing.assert_allclose(data["both_roles_norm"], expected.norm(dim=1), rtol=1e-9)
    query, candidate = trained(loss, pairs, rows, rows)
    np.testing.assert_allclose(data["candidate_role_norm"], candidate.norm(dim=1), rtol=1e-9)
    np.testing.assert_allclose(data["gradient_norm"], query.norm(dim=1), rtol=1e-9)
    assert "both_roles_norm" not in measures.decomposition(planted(), "ntxent", batch_size=16)


@pytest.mark.parametrize("name", ["warped_softmax", "euclidean_softmax", "normalized_softmax", "proxy_anchor"])
def test_forces_on_proxies_are_those_of_autograd_and_of_a_loop(name, monkeypatch):
    generator, loss = torch.Generator().manual_seed(2), losses.load(name)
    proxies = torch.randn(7, 4, generator=generator, dtype=torch.float64)
    label = torch.arange(33) % 6  # nothing pulls the last proxy
    samples = proxies[label] + torch.randn(33, 4, generator=generator, dtype=torch.float64)
    given = Embeddings(samples, proxies, label, torch.arange(7), directions=("s2p",))
    data = measures.decomposition(given, loss, batch_size=16, seed=1)
    seen = {key: [] for key in ("pull_norm", "push_norm", "net_norm", "gradient_norm", "cancellation")}
    for batch in plan(given, sample=data.attrs["sample"], batch_size=16, seed=1).batches:
        pairs = scores.pairs(given, batch, metric=loss.metric)
        weights = weigh(loss, pairs)
        _, gradient = trained(loss, pairs, pairs.embeddings.query, pairs.embeddings.candidate)
        pull, push = np.zeros((7, 4)), np.zeros((7, 4))
        for i, j in itertools.product(range(len(weights)), range(7)):
            x, p = samples[batch.query_index[i]].numpy(), proxies[j].numpy()
            away = (x - p) / np.linalg.norm(x - p) if loss.metric == "euclidean" else x / np.linalg.norm(x)
            side = pull if label[batch.query_index[i]] == j else push
            side[j] += weights[i, j].item() * away
        lengths = [np.linalg.norm(each, axis=1) for each in (pull, push, pull + push, gradient.numpy())]
        for key, values in zip(seen, (*lengths, 1 - lengths[2] / (lengths[0] + lengths[1])), strict=True):
            seen[key].append(values)
    for key, values in seen.items():
        np.testing.assert_allclose(data[f"proxy_{key}"], np.mean(values, axis=0), rtol=1e-9, atol=1e-12, err_msg=key)
    assert data["proxy_pull_norm"][6] == 0 and (data["proxy_push_norm"] > 0).all()
    values = reports.document("decomposition", data)
    assert values["proxy_net_norm"]["mean"] == pytest.approx(np.mean(seen["net_norm"]))
    assert ("proxy_radial_fraction" in values) == (loss.metric == "cosine")
    ax = plots.decomposition(data, ax=plt.figure().subplots())
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["s2p", "proxies"]
    plt.close("all")
    monkeypatch.setattr(prepared, "BLOCK_SCORES", 20)
    blocks = measures.decomposition(given, loss, batch_size=16, seed=1)
    np.testing.assert_allclose(blocks["proxy_net_norm"], data["proxy_net_norm"], rtol=1e-9)


def test_queries_without_a_gradient_are_missing_and_not_averaged(tmp_path):
    eye = torch.eye(8, dtype=torch.float64)
    data = measures.decomposition(Embeddings(eye, eye), "triplet", batch_size=8)
    assert (data["net_norm"] == 0).all() and data["cancellation"].isnull().all()
    entry = reports.document("decomposition", data)["directions"]["q2c"]
    assert set(entry["net_norm"].values()) == {0.0}
    for key in (
        "cancellation",
        "mass_ratio",
        "radial_fraction",
        "hardest_share",
        "hardest_rank",
        "pulled_negatives_part",
    ):
        assert set(entry[key].values()) == {None}, key
    assert "nan" not in str(table("decomposition", data))
    ax = plots.decomposition(data, ax=plt.figure().subplots())
    assert "100.0 % of the queries have no gradient" in ax.texts[0].get_text()
    plt.close("all")
    assert results.open(results.save(data, tmp_path / "d.nc")).identical(data)


def test_everything_is_labelled_and_the_plot_draws_it():
    data = measures.decomposition(planted(), "ntxent", batch_size=16)
    assert all("long_name" in v.attrs and "units" in v.attrs for v in data.data_vars.values())
    assert {"loss_repr", "eps", "seed", "metric", "gradient", "cocos"} <= data.attrs.keys()
    figure, axes = plt.subplots(2)
    ax = plots.decomposition(data, ax=axes[0])
    assert [t.get_text() for t in ax.get_xticklabels()][:3] == ["pull", "push", "pull + push"]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["q2c", "c2q"]
    medians = [
        line.get_ydata()[0] for line in ax.lines if len(set(line.get_ydata())) == 1 and len(line.get_xdata()) == 2
    ]
    for stage in ("pull_norm", "push_norm", "net_norm", "tangential_norm"):
        assert any(m == pytest.approx(data[stage].sel(direction="q2c").median().item()) for m in medians)
    raw = plots.decomposition(measures.decomposition(planted(), "contrastive", batch_size=16), ax=axes[1])
    assert len(raw.get_xticks()) == 3
    plt.close(figure)


def test_what_cannot_be_taken_apart_gets_a_sentence():
    for options, sentence in (
        ({"eps": -1}, "eps: -1, expected a share"),
        ({"loss": "ntxnt"}, "did you mean 'ntxent'"),
        ({"dtype": "float16"}, "expected one of float32, float64"),
    ):
        with pytest.raises(InputError, match=sentence):
            measures.decomposition(planted(), **options)
    short = planted()
    short = short.replace(query=1e-37 * short.query)
    with pytest.raises(InputError, match=r"gradients leave the range of float32; the embeddings are too short"):
        measures.decomposition(short, losses.load("cosface"), dtype="float32")


def test_a_loss_without_a_closed_form_has_its_norm_read_by_autograd():
    @dataclasses.dataclass(frozen=True)
    class Own(losses.Loss):
        gradient = "autograd"

        def value(self, pairs):
            scaled = pairs.query_norm[:, None] * pairs.scores
            return torch.where(pairs.positive, -scaled, torch.where(pairs.negative, scaled.exp(), 0)).sum(dim=1)

    embeddings = planted()
    data = measures.decomposition(embeddings, Own(), batch_size=1000).sel(direction="q2c", batch=0)
    order = plan(embeddings, batch_size=1000).batches[0]
    pairs = scores.pairs(embeddings, order)
    expected, _ = trained(Own(), pairs, pairs.embeddings.query, pairs.embeddings.candidate)
    np.testing.assert_allclose(data["gradient_norm"], expected.norm(dim=1), rtol=1e-9)
    assert (np.abs(data["radial"]) > 0).any()


# --- the command


@pytest.fixture
def file(tmp_path):
    embeddings = planted()
    arrays = {
        name: getattr(embeddings, name).numpy() for name in ("query", "candidate", "query_group", "candidate_group")
    }
    np.savez(tmp_path / "embeddings.npz", **arrays)
    return tmp_path / "embeddings.npz"


def call(*arguments):
    return CliRunner().invoke(app, ["plot", "decomposition", *map(str, arguments)])


def test_the_command_says_what_the_measure_found(file, tmp_path):
    out = tmp_path / "d.nc"
    options = ["--loss", "arcface", "-p", "margin=0.3", "--batch-size", 16, "--eps", 0.02]
    done = call(file, *options, "--json", "--out", out)
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    loss = losses.load("arcface", {"margin": 0.3})
    expected = measures.decomposition(planted(), loss, 0.02, batch_size=16)
    assert document["directions"] == reports.document("decomposition", expected)["directions"]
    assert document["loss"] == {"name": "arcface", "parameters": {"scale": 64.0, "margin": 0.3}}
    assert document["checkpoint"]["path"] == str(file) and document["cocos"] == cocos.__version__
    np.testing.assert_array_equal(results.open(out)["net_norm"], expected["net_norm"])
    text = " ".join(call(file, *options).stdout.split())
    assert expected["cancellation"].attrs["long_name"] in text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--eps", "-1"], "eps: -1.0, expected a share"),
        (["--batch-size", "1"], "batch size: 1, expected an integer of at least 2"),
    ],
)
def test_bad_options_get_one_sentence(file, arguments, sentence):
    done = call(file, *arguments, "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert sentence in done.stderr and done.stderr.count("\n") == 1
