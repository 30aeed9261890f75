"""What `above eps` means: shares per positive, parts of a query's own push, units of losses of others (docs/eps.md)."""

import dataclasses
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import taught
from cocos import Embeddings, Pairs, engine, losses, measures, results
from cocos.cli import app
from cocos.counting import conventions, statistics
from cocos.embeddings import scores
from cocos.engine import readers
from cocos.losses.ntxent import NTXent
from cocos.losses.smoothap import SmoothAP
from cocos.measures.shared import synthetic_inputs

PAGE = Path(__file__).parents[1] / "docs" / "eps.md"
MANY = 6  # samples of a class


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def planted(per, rows=48, seed=1):
    """A labelled set about its class means."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(rows // per).repeat_interleave(per)
    means = torch.randn(rows // per, 16, generator=generator, dtype=torch.float64)
    return Embeddings.labelled(means[labels] + torch.randn(rows, 16, generator=generator, dtype=torch.float64), labels)


def repeated(pairs, times):
    """The same pairs, each positive standing there several times: more positives, and the same negatives."""
    row, column = pairs.scores, pairs.positive
    own = row[column].reshape(len(row), -1)
    assert own.shape[1] == 1
    wide = torch.cat([row, own.expand(-1, times - 1)], dim=1)
    true, false = torch.ones(len(row), times - 1, dtype=torch.bool), torch.zeros(len(row), times - 1, dtype=torch.bool)
    own_group = 10_000 + torch.zeros(times - 1, dtype=torch.int64)
    return Pairs(
        wide,
        torch.cat([column, true], dim=1),
        torch.cat([pairs.negative, false], dim=1),
        candidate_group=None if pairs.candidate_group is None else torch.cat([pairs.candidate_group, own_group]),
        query_norm=pairs.query_norm,
        teacher=torch.cat([pairs.teacher, pairs.teacher[column].reshape(len(row), -1).expand(-1, times - 1)], dim=1),
    )


def said():
    """Loss -> what docs/eps.md says of its unit for P positives instead of one."""
    found = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 4:
            found |= dict.fromkeys(re.findall(r"`(\w+)`", cells[0]), cells[3])
    return found


def test_the_page_has_every_loss():
    assert set(said()) <= set(losses.names()) and len(said()) >= 44  # a loss that is added later need not have a row


def one_positive(metric):
    found = scores.pairs(synthetic_inputs.embeddings("random", 1), metric=metric)
    return dataclasses.replace(found, candidate_norm=None)


@pytest.mark.parametrize("name", losses.names())
def test_the_unit_grows_with_the_positives_as_the_page_says(name):
    loss = losses.load(name)
    one = one_positive(loss.metric)
    columns = one.scores.shape[1]
    three = repeated(one, 3)
    if name == "contextual":  # its unit is by the number of candidates
        three = Pairs(three.scores[:, :columns], three.positive[:, :columns], three.negative[:, :columns])
    unit = loss.unit(one).expand(one.scores.shape)[one.negative]
    now = loss.unit(three).expand(three.scores.shape)[:, :columns][one.negative]
    if name == "proxy_anchor":
        now = now * three.scores.shape[1] / columns  # and by theirs
    factor = {"× P": 3, "same": 1, "÷ P": 1 / 3}[said().get(name, "× P" if loss.per_positive else "same")]
    torch.testing.assert_close(now, factor * unit, rtol=1e-12, atol=0)
    assert loss.per_positive == (factor == 3)


@pytest.mark.parametrize("name", [name for name, growth in said().items() if growth == "× P"])
def test_positives_that_are_repeated_change_no_share(name):
    loss = losses.load(name)
    one = one_positive(loss.metric)
    shares = []
    for pairs in (one, repeated(one, 4)):
        share = loss.weight(pairs).abs() / loss.unit(pairs)
        shares.append(share[:, : one.scores.shape[1]][one.negative])
    if name in {"lifted_structure"}:  # the negatives of its positives are others in a wider matrix
        return
    torch.testing.assert_close(*shares, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["ntxent", "n_pair", "snm", "sampled_softmax", "arcface", "proxynca_pp"])
def test_shares_of_the_negatives_sum_to_one_at_most(name):
    loss = losses.load(name)
    pairs = scores.pairs(planted(MANY), metric=loss.metric)
    share = loss.weight(pairs).abs() / loss.unit(pairs)
    assert torch.where(pairs.negative, share, 0).sum(dim=1).max() <= 1 + 1e-12


def test_the_count_does_not_grow_with_the_samples_of_a_class():
    """It was 10.9, 19.2 and 25.8 negatives for 2, 4 and 8 samples, of one model and one loss."""
    counts, pushes = [], []
    for per in (2, 4, 8):
        data = measures.count(planted(per, rows=96), "ntxent", batch_size=96)
        counts.append(float(data["contributing"].mean()))
        pushes.append(float(data["weight_above_per_query"].mean()))
    assert max(counts) < 1.25 * min(counts) and max(pushes) < 1


def test_ntxent_and_supcon_compare_by_their_own_push():
    found = {name: measures.count(planted(MANY), name, batch_size=48) for name in ("ntxent", "supcon")}
    relative = [data["relative_per_query"].values for data in found.values()]
    np.testing.assert_array_equal(*relative)
    assert relative[0].mean() > 3


@pytest.mark.parametrize("name", ["ntxent", "cosface", "triplet+0.5*ntxent", "triplet"])
def test_the_published_convention_keeps_its_unit(name):
    loss, pairs = losses.load(name), scores.pairs(planted(MANY))
    once = {"ntxent": 10, "cosface": 64, "triplet+0.5*ntxent": 1 + 0.5 * 10, "triplet": 1}[name]
    found = conventions.unit(loss, pairs, loss.unit(pairs)).expand(len(pairs.scores), 1)
    torch.testing.assert_close(found, torch.full_like(found, once))
    if name != "cosface":
        return
    standard, published = (
        measures.count(planted(MANY), name, batch_size=48, sample="groups", convention=each)
        for each in conventions.CONVENTIONS
    )
    np.testing.assert_allclose(published["weight_positive"], (MANY - 1) * standard["weight_positive"])


# The part of the query's own push


def slowly(weights, pairs, eps):
    """Negatives above eps of the push, by plain numbers."""
    found = []
    for row, negative in zip(weights.tolist(), pairs.negative.tolist(), strict=True):
        pushed = [w for w, own in zip(row, negative, strict=True) if own and w > 0]
        found.append(sum(w / math.fsum(pushed) > eps for w in pushed))
    return found


@pytest.mark.parametrize("name", losses.names())
def test_relative_is_what_a_loop_counts(name):
    loss = losses.load(name)
    pairs = taught.pairs(scores.pairs(planted(3), metric=loss.metric), loss)
    weights = loss.weight(pairs)
    for eps in (0, 0.013, 0.1):
        part = statistics.spread(weights, pairs)
        assert statistics.relative(part, eps).tolist() == slowly(weights, pairs, eps)


@pytest.mark.parametrize("name", [name for name in losses.names() if readers.has(losses.load(name))])
@pytest.mark.parametrize("eps", [1e-6, 0.02])
def test_one_pass_counts_parts_of_the_push_as_held_scores_do(name, eps):
    loss = losses.load(name)
    if loss.metric not in engine.PRODUCT_METRICS:
        return
    embeddings = planted(3)
    found = engine.run(engine.view(embeddings, metric=loss.metric), [readers.of(loss, eps, relative=True)])[0][0]
    pairs = scores.pairs(embeddings, metric=loss.metric)
    part = statistics.spread(loss.weight(pairs), pairs)
    assert found["relative"].tolist() == statistics.relative(part, eps).tolist()
    assert not found["relative_uncertain"].any()


def test_a_part_that_is_eps_is_not_above_it():
    """A hundred equal violations: each is one hundredth of the push, exactly."""
    pairs = Pairs(torch.full((1, 101), 0.5, dtype=torch.float64), torch.tensor([[True] + 100 * [False]]))
    weights = losses.load("triplet").weight(pairs)
    assert statistics.per_query(weights, torch.ones(()), pairs, 0.01)["relative"].item() == 0
    assert statistics.per_query(weights, torch.ones(()), pairs, 0.0099)["relative"].item() == 100


@pytest.mark.parametrize("name", ["softtriple", "cbml", "linear_softmax"])
def test_a_negative_that_is_pulled_is_no_push(name):
    loss = losses.load(name)
    pairs = scores.pairs(planted(3), metric=loss.metric)
    weights = loss.weight(pairs)
    if name == "softtriple":
        pairs = Pairs(pairs.scores, pairs.positive, pairs.negative, candidate_group=torch.arange(48) // 12)
        weights = loss.weight(pairs)
    assert (weights[pairs.negative] < 0).any(), "no negative is pulled, so nothing is tested"
    without = torch.where(pairs.negative & (weights < 0), 0, weights)
    unit = loss.unit(pairs)
    found, right = (statistics.per_query(each, unit, pairs) for each in (weights, without))
    for key in ("effective", "participation", "hardest_share", "relative"):
        torch.testing.assert_close(found[key], right[key])
    assert torch.equal(*(statistics.n90(statistics.spread(each, pairs)) for each in (weights, without)))


def test_smoothap_counts_with_any_eps():
    """σ (1 - σ) rounds to 0 where σ rounds to 1: with an eps of 1e-17 and below a pass lost such negatives."""
    loss, embeddings = losses.load("smoothap", {"temperature": 0.004}), planted(3)
    pairs = scores.pairs(embeddings)
    for eps in (1e-7, 1e-12, 1e-17, 1e-19, 1e-40):
        right = statistics.per_query(loss.weight(pairs), loss.unit(pairs), pairs, eps)
        found = engine.run(engine.view(embeddings), [readers.of(loss, eps)])[0][0]
        assert ((found["contributing"] - right["contributing"]).abs() <= found["uncertain"]).all(), eps
        assert torch.equal(found["eq7"], SmoothAP(0.004).eq7(pairs, eps))


# Words


@pytest.fixture
def file(tmp_path):
    embeddings = planted(3)
    np.savez(tmp_path / "labelled.npz", embeddings=embeddings.query.numpy(), labels=embeddings.query_group.numpy())
    return tmp_path / "labelled.npz"


def call(*arguments):
    found = CliRunner().invoke(app, list(map(str, arguments)))
    assert found.exit_code == 0, found.output
    return found


def test_the_document_has_both_counts_and_says_what_a_share_is(file):
    document = json.loads(call("count", file, "--loss", "ntxent", "--json", "-q").stdout)
    entry = document["directions"]["s2s"]
    assert set(entry["relative"]) == {"mean", "std"} and entry["relative"]["mean"] > 1
    assert (document["unit"], document["share"], entry["relative_uncertain"]) == ("natural", "probability", 0)


@pytest.mark.parametrize(
    ("loss", "eps", "words"),
    [
        ("ntxent", "0.01", "probability above 1 %"),
        ("supcon", "0.005", "probability above 0.5 %"),
        ("triplet", "0.01", "any violation"),
        ("triplet", "2", "more than 2 violations"),
        ("circle", "0.01", "weight above 1 % of its unit"),
    ],
)
def test_the_table_says_of_what(file, loss, eps, words):
    text = call("count", file, "--loss", loss, "--eps", eps, "-q").stdout
    assert f"{words} (eps = {float(eps):g})" in " ".join(text.split())
    assert f"negatives with more than {100 * float(eps):g} % of the push" in text


def test_contributors_say_of_what_they_are_above(file):
    text = call("plot", "contributors", file, "--row", "0", "--loss", "ntxent", "-q").stdout
    assert "probability above 1 %" in text and "above eps" not in text


# Losses of others


def test_a_loss_of_the_library_counts_as_the_shelf_does():
    """It was 17.69 for 19.43: a share of the largest weight in the batch."""
    found = []
    for name in ("ntxent", "pml:NTXentLoss"):
        loss = losses.load(name, {"temperature": 0.1})
        found.append(measures.count(planted(4), loss, batch_size=24))
    for key in ("contributing", "relative_per_query", "weight_above_per_query"):
        np.testing.assert_allclose(found[1][key], found[0][key], rtol=1e-5)
    assert found[1].attrs["unit"] == "natural" and found[1].attrs["share"] == "probability"


def test_the_unit_of_a_copy_is_that_of_the_original():
    """A query counts the same whatever else is in its batch."""

    def copy(scores, positive, negative):
        return NTXent(0.1)(Pairs(scores, positive, negative))

    pairs = scores.pairs(planted(4))
    loss = losses.as_loss(copy).bind(pairs)
    share = loss.weight(pairs) / loss.unit(pairs)
    few = Pairs(pairs.scores[:3], pairs.positive[:3], pairs.negative[:3])
    torch.testing.assert_close(loss.weight(few) / loss.unit(few), share[:3])
    torch.testing.assert_close(share, NTXent(0.1).weight(pairs) / NTXent(0.1).unit(pairs))
    assert loss.unit_from == "NTXent(temperature=0.1)"


def test_a_sum_with_a_term_of_unknown_unit_says_so():
    def squared(scores, positive, negative):
        return NTXent(0.1)(Pairs(scores, positive, negative)).square()

    pairs = scores.pairs(planted(4))
    known = losses.load("triplet+0.5*contrastive_cosine")
    assert known.unit_from == "natural" and (known.unit(pairs) == 1.5).all()
    mixed = type(known)(((1.0, losses.load("triplet")), (0.5, losses.as_loss(squared)))).bind(pairs)
    assert mixed.unit_from == "unknown" and sum("own push" in note for note in mixed.notes) == 1
    assert results.provenance(mixed)["share"] == "unknown"
