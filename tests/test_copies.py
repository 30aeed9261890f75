"""A row of several pairs is one candidate of a batch, whichever side is the query; or one for each pair, if asked."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cocos import Embeddings, InputError, losses, measures, reports
from cocos.cli import app
from cocos.counting import findings, statistics, weights
from cocos.embeddings import scores
from cocos.embeddings.sampling import COPY_RULES, plan

# Of the query side and the candidate side, rows of a group.
STRUCTURES = {
    "captions": lambda k: (1, 1 + k % 5),
    "questions": lambda k: (1 + k % 4, 1),
    "blocks": lambda k: (1 + k % 3, 1 + k % 3 + k % 4),
    "either": lambda k: (1 + k % 3, 1 + k % 4),
    "twins": lambda k: (1 + k % 3, 1 + k % 3),
}
LOSSES = ["ntxent", "triplet", "triplet_sh", "siglip", "supcon", "ce_softmax", "proxy_anchor", "multi_similarity"]


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def rows(sizes, seed=0, width=6, dtype=torch.float32, **more):
    """Groups of some rows on both sides, in no order, noise around one point each."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(len(sizes), width, generator=generator)
    sides, groups = [], []
    for side in (0, 1):
        group = torch.cat([torch.full((pair[side],), k) for k, pair in enumerate(sizes)])
        groups.append(group[torch.randperm(len(group), generator=generator)])
        sides.append(points[groups[side]] + 0.7 * torch.randn(len(group), width, generator=generator))
    return Embeddings(*(side.to(dtype) for side in sides), *groups, **more)


def of(structure, number=30, **more):
    return rows([STRUCTURES[structure](k) for k in range(number)], **more)


def images():
    """Ten images with five captions each: the layout of two files that differ in what they call the query."""
    random = np.random.default_rng(0)
    image = random.normal(size=(10, 8))
    caption = np.repeat(image, 5, 0) + 0.5 * random.normal(size=(50, 8))
    group = np.arange(10)
    return Embeddings(image, caption, group, np.repeat(group, 5))


def equal(one, other):
    """Two counts of every direction, query by query."""
    for name in ("contributing", "relative_per_query", "query_index", "query_group", "negatives", "repeated"):
        for direction in one["direction"].values:
            np.testing.assert_array_equal(*(each[name].sel(direction=direction) for each in (one, other)), err_msg=name)
    for name in ("effective_per_query", "push", "pull"):
        for direction in one["direction"].values:
            both = (each[name].sel(direction=direction) for each in (one, other))
            np.testing.assert_allclose(*both, rtol=1e-4, atol=1e-6, err_msg=name)
    assert one["same_group_pairs"].values.tolist() == other["same_group_pairs"].values.tolist()


def test_captions_count_images_once():
    """Nine other images exist: 10.7 of them cannot contribute."""
    loss, sides = losses.load("triplet", {"margin": 0.6}), images()
    for embeddings in (sides, sides.flip()):
        found = reports.document("count", measures.count(embeddings, loss, batch_size="all"))["directions"]
        entry = {name: round(each["contributing_all"]["mean"], 9) for name, each in found.items()}
        assert entry == {"q2c": 10.2, "c2q": 2.14}
        assert {name: each["repeated"] for name, each in found.items()} == {"q2c": 0, "c2q": 40}
    for options in ({"copies": "keep"}, {"convention": "ecir2022"}, {"same_group": "negative"}):
        data = measures.count(sides, loss, batch_size="all", **options)
        assert data.attrs["copies"] == "keep" and data["repeated"].sel(direction="c2q").values.tolist() == [40]
        assert float(data["negatives"].sel(direction="c2q").mean()) == (
            49 if data.attrs["same_group"] != "ignore" else 45
        )
    kept = measures.count(sides, loss, batch_size="all", copies="keep")
    assert float(kept["contributing"].sel(direction="c2q").mean()) == pytest.approx(10.7)


@pytest.mark.parametrize(("loss", "structure"), [(LOSSES[k], list(STRUCTURES)[k % 5]) for k in range(8)])
def test_exchanged_sides_exchange_the_counts(structure, loss):
    embeddings = of(structure)
    for more in ({"n90": True}, {"copies": "keep"}, {"same_group": "negative"}, {"batch_size": "all"}):
        options = {"batch_size": 12, "sample": "pairs", "seed": 3} | more
        equal(*(measures.count(each, loss, **options) for each in (embeddings, embeddings.flip())))


@given(
    sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=2, max_size=14),
    size=st.integers(2, 20),
    seed=st.integers(0, 99),
    copies=st.sampled_from(COPY_RULES),
)
@settings(max_examples=60)
def test_exchanged_sides_exchange_the_draws(sizes, size, seed, copies):
    embeddings = rows(sizes, seed)
    try:
        one, other = (plan(each, batch_size=size, seed=seed, copies=copies) for each in (embeddings, embeddings.flip()))
    except InputError as error:
        assert "no batch holds two groups" in str(error)
        return
    assert (one.notes, one.copies) == (other.notes, copies)
    for a, b in zip(one.batches, other.batches, strict=True):
        for mine, theirs in ((a, b.flip()), (a.flip(), b)):
            assert torch.equal(mine.query_index, theirs.query_index) and mine.repeated == theirs.repeated
            assert torch.equal(mine.candidate_index, theirs.candidate_index) and mine.sizes == theirs.sizes
            twice = mine.flip().flip()
            assert torch.equal(twice.query_index, mine.query_index) and twice.paired == mine.paired
            if copies == "once":
                assert len(mine.candidate_index.unique()) == len(mine.candidate_index)


@pytest.mark.parametrize(("loss", "structure"), [(LOSSES[k], list(STRUCTURES)[k % 5]) for k in range(8)])
def test_counts_with_copies_equal_a_loop(structure, loss):
    """Batches with and without two rows of a group, which are visited apart, come back in their order."""
    embeddings = of(structure, number=60, dtype=torch.float64)
    options = {"batch_size": 9, "seed": 1, "sample": "pairs"}
    held, seen = (measures.count(embeddings, loss, **options, **more) for more in ({"n90": True}, {"dtype": "float64"}))
    equal(held, seen)
    drawn, made = plan(embeddings, batch_size=9, seed=1).batches, losses.load(loss)
    if structure in {"captions", "questions"}:
        assert len({batch.turned is None for batch in drawn}) == 2
    for direction, side in (("q2c", embeddings), ("c2q", embeddings.flip())):
        copies = []
        for k, batch in enumerate(drawn):
            own = batch.flip() if direction == "c2q" else batch
            pairs = scores.pairs(side, own, metric=made.metric)
            share = weights.autograd(made, pairs).abs() / made.unit(pairs)
            one = seen.sel(direction=direction).isel(batch=k)
            there = len(own.query_index)
            np.testing.assert_array_equal(
                one["contributing"].values[:there], statistics.contributing(share, pairs, 0.01)
            )
            np.testing.assert_array_equal(one["query_index"].values[:there], own.query_index)
            copies.append(own.repeated[1])
        assert seen["repeated"].sel(direction=direction).values.tolist() == copies


@pytest.mark.parametrize("structure", ["captions", "questions", "either"])
def test_directions_list_each_query_once(structure):
    """Two captions of one image in a batch: as another query's negative the image stands there once."""
    embeddings = of(structure, number=40).single("q2c")
    loss = losses.load("mnrl", {"directions": ("query-candidate", "query-query", "candidate-query"), "scale": 10})
    for options in ({}, {"same_group": "negative", "copies": "once"}):
        data = measures.count(embeddings, loss, batch_size=16, **options)
        held = measures.count(embeddings, loss, batch_size=16, n90=True, **options)
        np.testing.assert_array_equal(data["contributing"], held["contributing"])
        np.testing.assert_array_equal(data["negatives"], held["negatives"])
        np.testing.assert_allclose(data["effective_per_query"], held["effective_per_query"], rtol=1e-4)
        for k, batch in enumerate(plan(embeddings, batch_size=16).batches):
            one = data.isel(batch=k, direction=0)
            group, asked = (embeddings.query_group[index] for index in (batch.query_index, batch.query_index.unique()))
            others = (group[:, None] != asked).sum(dim=1)
            if options and batch.paired:
                others = (batch.query_index[:, None] != batch.query_index.unique()).sum(dim=1)
            listed = one["source_negatives"].sel(source="query-query").values[: len(group)]
            np.testing.assert_array_equal(listed, others)


@pytest.mark.parametrize("turned", [False, True])
def test_hard_negatives_join_distinct_rows(turned):
    plain = of("captions", number=40)
    named = torch.randint(0, len(plain.candidate), (len(plain.query), 2), generator=torch.Generator().manual_seed(4))
    named[plain.candidate_group[named] == plain.query_group[:, None]] = -1
    marked = torch.stack([torch.arange(40), torch.randint(0, len(plain.candidate), (40,))], dim=1)
    embeddings = Embeddings(plain.query, plain.candidate, plain.query_group, plain.candidate_group, negatives=named)
    for each in (embeddings, embeddings.marked({"wrong": marked})):
        sides = each.flip() if turned else each
        data, held = (measures.count(sides, "ntxent", batch_size=16, **more) for more in ({}, {"n90": True}))
        for name in ("contributing", "negatives", "query_index"):
            np.testing.assert_array_equal(data[name], held[name])
        batch = plan(sides, batch_size=16).batches[0]
        batch = batch.flip() if turned else batch
        wanted = {int(row) for row in named[batch.query_index].flatten() if row >= 0}
        assert wanted <= set(batch.candidate_index.tolist()) and batch.flip().extra == 0
        assert len(batch.candidate_index.unique()) == len(batch.candidate_index)
        assert len(batch.flip().candidate_index.unique()) == len(batch.flip().candidate_index)


@pytest.mark.parametrize("name", ["decomposition", "temperature", "solve", "replay", "eps_curve", "lorenz"])
def test_measures_follow_the_copies(name):
    """Each takes its batches from one place: exchanged sides give the same numbers."""
    embeddings = of("captions", number=20, dtype=torch.float64)
    own = {"temperature": {"batch_sizes": (16,)}, "solve": {"effective": 3, "batch_size": 16}}.get(
        name, {"batch_size": 16}
    )
    own |= {"replay": {"what": "temperature=0.3"}}.get(name, {})
    data, other = (getattr(measures, name)(each, "ntxent", **own) for each in (embeddings, embeddings.flip()))
    kept = getattr(measures, name)(embeddings, "ntxent", copies="keep", **own)
    moved = 0
    for key, values in data.data_vars.items():
        if not np.issubdtype(values.dtype, np.floating) or key in {"low", "high", "p", "p_holm"}:
            continue
        np.testing.assert_allclose(values, other[key].reindex_like(values), rtol=1e-6, atol=1e-9, err_msg=key)
        moved += not (values.shape == kept[key].shape and np.allclose(values, kept[key], equal_nan=True))
    assert moved


def test_documents_and_commands_report_copies(tmp_path):
    for copies in ("once", "keep"):
        data = measures.count(images(), "ntxent", batch_size="all", copies=copies)
        assert "copies" in {finding.kind for finding in findings.of(data)}
        document = reports.document("count", data)
        assert (document["copies"], document["directions"]["c2q"]["repeated"]) == (copies, 40)
    assert "copies" not in {finding.kind for finding in findings.of(measures.count(of("twins"), "ntxent"))}
    file = tmp_path / "rows.npz"
    np.savez(
        file, **{name: getattr(images(), name) for name in ("query", "candidate", "query_group", "candidate_group")}
    )
    done = CliRunner().invoke(app, ["count", str(file), "--copies", "keep", "--json", "-q"])
    assert done.exit_code == 0 and json.loads(done.stdout)


def test_ecir_convention_refuses_copies_once():
    with pytest.raises(InputError, match="copies: 'once', but convention ecir2022 keeps them, as published"):
        measures.count(images(), "ntxent", convention="ecir2022", copies="once")
