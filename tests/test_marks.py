"""Marks on pairs: their share of the negatives and of the push, against a slow loop."""

import json

import numpy as np
import pytest
import torch
import xarray as xr
from typer.testing import CliRunner

import cocos
from cocos import Embeddings, losses, measures, reports, results
from cocos.base.errors import InputError
from cocos.cli import app
from cocos.counting import statistics
from cocos.embeddings import marks, scores
from cocos.embeddings.sampling import plan

ROWS = 40
LABELS = torch.arange(ROWS) % 5
SAME = LABELS[:, None] == LABELS
TEXTS = [f"scene {label}" for label in LABELS.tolist()]
FORMS = {"labels": (LABELS, LABELS), "texts": (TEXTS, TEXTS), "matrix": SAME, "rows": SAME.nonzero()}


def sides(width=6):
    generator = torch.Generator().manual_seed(3)
    query = torch.randn(ROWS, width, generator=generator)
    return query, query + 0.9 * torch.randn(ROWS, width, generator=generator)


def marked(marks=None):
    return Embeddings(*sides(), marks={"look-alike": (LABELS, LABELS)} if marks is None else marks)


def select(data, name, direction="q2c"):
    return data[name].sel(direction=direction, mark="look-alike")


@pytest.mark.parametrize("name", ["ntxent", "triplet", "smoothap", "proxy_anchor", "triplet_squared"])
def test_marked_push_equals_a_loop(name):
    embeddings, loss = marked(), losses.load(name)
    data = measures.count(embeddings, loss, batch_size=16, sample="pairs", seed=2)
    for b, batch in enumerate(plan(embeddings, batch_size=16, seed=2, sample="pairs").batches):
        for direction, side, way in (("q2c", embeddings, batch), ("c2q", embeddings.flip(), batch.flip())):
            pairs = scores.pairs(side.to(dtype=torch.float64), way, metric=loss.metric)
            push = loss.weight(pairs).clamp(min=0) * pairs.negative
            for q, row in enumerate(way.query_index.tolist()):
                alike = [c for c, k in enumerate(way.candidate_index.tolist()) if k != row and k % 5 == row % 5]
                cell = data.sel(direction=direction, mark="look-alike").isel(batch=b, query=q)
                assert cell["marked_negatives"].item() == len(alike)
                total = push[q].sum().item()
                expected = sum(push[q, c].item() for c in alike) / total if total else 0
                assert cell["marked_push_per_query"].item() == pytest.approx(expected, abs=1e-9)


def test_fractions_are_ratios_of_sums():
    triplet = losses.load("triplet", {"margin": 0.05})
    data = measures.count(marked(), triplet, batch_size=40)
    active = data["effective_per_query"].sel(direction="q2c").values.ravel() > 0
    assert 0 < active.sum() < len(active)
    share = select(data, "marked_negatives").values.sum() / data["negatives"].sel(direction="q2c").values.sum()
    total = data["push"].sel(direction="q2c").values.ravel()
    push = (select(data, "marked_push_per_query").values.ravel() * total).sum() / total.sum()
    for name, expected in (("marked_share", share), ("marked_push", push), ("enrichment", push / share)):
        assert select(data, name).item() == pytest.approx(expected)
    entry = reports.document("count", data)["directions"]["q2c"]["marks"]["look-alike"]
    assert entry["push"]["mean"] == pytest.approx(push) and entry["negatives"]["mean"] == pytest.approx(share)
    without = measures.count(marked({}), triplet, batch_size=40)
    assert np.array_equal(data["contributing"], without["contributing"])
    assert "mark" not in without.dims and not set(statistics.MARKED_LABELS) & set(without)
    assert all("marks" not in entry for entry in reports.document("count", without)["directions"].values())


def test_all_or_no_negatives_marked():
    whole = torch.ones(ROWS, ROWS, dtype=torch.bool)
    data = measures.count(marked({"all": whole, "none": ~whole}), "ntxent", batch_size=16)
    pushed = data["effective_per_query"] > 0
    for name, value in (("all", 1.0), ("none", 0.0)):
        for key in ("marked_push_per_query", "placebo_push_per_query"):
            np.testing.assert_allclose(data[key].sel(mark=name).values[pushed.values], value, atol=1e-12)
        np.testing.assert_allclose(data["marked_share"].sel(mark=name), value)
    np.testing.assert_allclose(data["enrichment"].sel(mark="all"), 1)
    assert data["enrichment"].sel(mark="none").isnull().all()


def test_all_forms_make_the_same_mark():
    few = torch.where(torch.arange(ROWS) < 10, LABELS, -1)
    texts = ["" if label < 0 else str(label) for label in few.tolist()]
    data = measures.count(marked(FORMS | {"few": (few, few), "few texts": (texts, texts)}), "ntxent", batch_size="all")
    for key in ("marked_negatives", "marked_push_per_query"):
        for name in FORMS:
            xr.testing.assert_equal(data[key].sel(mark=name, drop=True), data[key].sel(mark="labels", drop=True))
        xr.testing.assert_equal(data[key].sel(mark="few texts", drop=True), data[key].sel(mark="few", drop=True))
    assert int((data["marked_negatives"].sel(mark="few", direction="q2c") > 0).sum()) == 10


def test_listed_pair_is_found_in_both_directions():
    one = torch.zeros(ROWS, ROWS, dtype=torch.bool)
    one[3, 7] = True
    labels = tuple(torch.where(torch.arange(ROWS) == row, 0, -1) for row in (3, 7))
    for form in (one, [[3, 7]], labels):
        data = measures.count(marked({"pair": form}), "ntxent", batch_size="all")
        for direction, row in (("q2c", 3), ("c2q", 7)):
            part = data.sel(direction=direction, mark="pair").isel(batch=0)
            assert part["query_index"].values[part["marked_negatives"].values > 0].tolist() == [row]
    mark = marks.of("pair", [[1, 2]], 2, 3)
    for way, sizes, pair in ((mark, (2, 3), [1, 2]), (mark.flip(), (3, 2), [2, 1])):
        assert (way.pairs(*map(torch.arange, sizes)) == 0).nonzero().tolist() == [pair]


def test_sources_are_kinds_of_candidates():
    source = ["in-batch"] * 30 + ["own hard"] * 9 + [""]
    data = measures.count(marked({"source": {"candidate": source}}), "ntxent", batch_size="all")
    assert list(data["mark"].values) == ["source: in-batch", "source: own hard"]
    push = data["marked_push_per_query"].sel(direction="q2c", batch=0, mark="source: own hard")
    (batch,) = plan(marked(), batch_size="all").batches
    pairs = scores.pairs(marked().to(dtype=torch.float64), batch)
    parts = statistics.spread(losses.load("ntxent").weight(pairs), pairs)
    hard = torch.tensor([text == "own hard" for text in source])[batch.candidate_index]
    np.testing.assert_allclose(push, parts[:, hard].sum(dim=1), atol=1e-9)
    assert data["marked_push"].sel(direction="c2q").isnull().all()
    entry = reports.document("count", data)["directions"]["c2q"]["marks"]["source: own hard"]
    assert entry["push"] == {"mean": None, "std": None} and entry["queries"] == 0
    both = measures.count(marked({"source": {"candidate": source, "query": source}}), "ntxent", batch_size="all")
    assert not both["marked_push"].isnull().any()


def test_placebo_is_random_and_seeded():
    generator = torch.Generator().manual_seed(0)
    negative = torch.rand(200, 50, generator=generator) < 0.8
    mask = negative & (torch.rand(200, 50, generator=generator) < 0.2)
    drawn = statistics.as_many(mask, negative, generator)
    assert (drawn.sum(dim=1) == mask.sum(dim=1)).all() and not (drawn & ~negative).any()
    # Each negative is drawn with the probability of the mask: 6 standard deviations of 200 draws of a column.
    rate = (mask.sum(dim=1) / negative.sum(dim=1)).mean()
    assert ((drawn.sum(dim=0) / negative.sum(dim=0) - rate).abs() < 6 * (rate * (1 - rate) / 160) ** 0.5).all()
    batches = plan(marked(), batch_size=16).batches
    first, again, other = (measures.count(marked(), "ntxent", batches=batches, seed=seed) for seed in (1, 1, 2))
    xr.testing.assert_identical(first, again)
    assert not first["placebo_push"].equals(other["placebo_push"])
    assert first["marked_push"].equals(other["marked_push"])


def test_blocks_and_several_losses_change_nothing(monkeypatch):
    whole = measures.count(marked(), ["ntxent", "triplet"], batch_size="all")
    for data, loss in zip(whole.values(), ("ntxent", "triplet"), strict=True):
        xr.testing.assert_identical(data, measures.count(marked(), loss, batch_size="all"))
    monkeypatch.setattr(cocos.measures.shared.prepared, "BLOCK_SCORES", 7 * ROWS)
    blocks = measures.count(marked(), ["ntxent", "triplet"], batch_size="all")
    for label in whole:
        for key in ("marked_negatives", "marked_push", "marked_share"):
            xr.testing.assert_allclose(blocks[label][key], whole[label][key])


def test_samples_and_proxies_are_marked():
    generator = torch.Generator().manual_seed(7)
    samples, proxies = torch.randn(30, 5, generator=generator), torch.randn(6, 5, generator=generator)
    classes, superclass = torch.arange(30) % 6, torch.arange(30) % 3
    alike = Embeddings.labelled(samples, classes, marks={"super": (superclass, superclass)})
    data = measures.count(alike, "supcon", batch_size="all")
    assert set(data["marked_negatives"].values.ravel()) == {5.0}  # ten of the superclass, five of them of the class
    alike = Embeddings.labelled(samples, classes, proxies, marks={"super": (superclass, torch.arange(6) % 3)})
    data = measures.count(alike, "normalized_softmax", batch_size="all")
    assert set(data["marked_negatives"].values.ravel()) == {1.0}


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ([1], "marks: list, expected a dict of name: mark"),
        ({"": LABELS}, "marks: '', expected a name of printable text"),
        (
            {"alike": (LABELS[:3], LABELS)},
            r"marks, alike of query: shape \(3,\), expected \(40,\): one id for each row",
        ),
        ({"alike": (LABELS.double(), LABELS)}, "marks, alike of query: dtype torch.float64, expected integers"),
        ({"alike": torch.ones(3, 3, dtype=torch.bool)}, r"dtype torch.bool, expected labels .* \(40, 40\)"),
        ({"alike": LABELS}, r"marks, alike: shape \(40,\), expected labels of both sides"),
        ({"alike": "text"}, "marks, alike: .* expected labels of both sides"),
        ({"alike": [[0, 1], [2, 40]]}, r"marks, alike: \(2, 40\) in row 1, expected rows of 40 queries, 40 candidates"),
        ({"source": {"candidates": []}}, "candidates, expected candidate, and query if you like"),
        ({"source": {"candidate": ["a"]}}, "marks, source of candidate: 1 texts, expected 40 texts"),
        ({"source": {"candidate": [""] * 40}}, "marks, source: 0 kinds, expected 1 to 16"),
        ({"source": {"candidate": list(map(str, range(40)))}}, "marks, source: 40 kinds, expected 1 to 16"),
    ],
)
def test_unusable_marks_are_refused(form, sentence):
    with pytest.raises(InputError, match=sentence):
        marked(form)


def test_marks_are_kept_flipped_and_replaced():
    embeddings = marked()
    assert embeddings.to(dtype=torch.float64).marks.keys() == embeddings.flip().marks.keys() == {"look-alike"}
    assert embeddings.marks and not embeddings.marked(None).marks
    again = embeddings.marked({"pair": [[3, 7]]})
    pair = torch.tensor([3]), torch.tensor([7])
    for side, kind in ((again, 0), (again.flip(), -1), (again.flip().flip(), 0)):
        assert side.marks["pair"].pairs(*pair).item() == kind
    source = marks.of("source", {"candidate": ["a"] * 20 + ["b"] * 20}, ROWS, ROWS)
    assert marks.of("scene", embeddings.marks["look-alike"], ROWS, ROWS).labels == ["scene"]
    assert marks.of("origin", source, ROWS, ROWS).labels == ["origin: a", "origin: b"]


def save(tmp_path, **arrays):
    query, candidate = sides()
    arrays = {name: np.asarray(values) for name, values in arrays.items()}
    np.savez(tmp_path / "rows.npz", query=query, candidate=candidate, **arrays)
    return tmp_path / "rows.npz"


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.mark.parametrize("name", FORMS)
def test_marks_of_a_file_are_reported(tmp_path, name):
    form = FORMS[name]
    arrays = {"query_mark": form[0], "candidate_mark": form[1]} if isinstance(form, tuple) else {"marked": form}
    path = save(tmp_path, **arrays)
    done = call("count", path, "--json", "--batch-size", 16, "--out", tmp_path / "counts.nc")
    assert done.exit_code == 0, done.stderr
    expected = reports.document("count", measures.count(marked(), "ntxent", batch_size=16))["directions"]
    for direction, entry in json.loads(done.stdout)["directions"].items():
        assert entry["marks"] == expected[direction]["marks"]
    assert results.open(tmp_path / "counts.nc")["mark"].values.tolist() == ["look-alike"]
    assert "look-alike: push fraction" in call("count", path, "--batch-size", 16).stdout


def test_files_name_marks_sources_and_samples(tmp_path):
    source = ["in-batch"] * 30 + ["own hard"] * 10
    path = save(tmp_path, candidate_source=source, marked=[[3, 7]], mark_name="same scene")
    assert list(cocos.open(path).embed().marks) == ["same scene", "source"]
    labels, sources = np.arange(ROWS) % 10, np.array(["a", "b"] * 20)
    np.savez(tmp_path / "set.npz", embeddings=sides()[0], labels=labels, query_mark=LABELS, query_source=sources)
    data = measures.count(cocos.open(tmp_path / "set.npz"), "supcon", batch_size="all")
    assert list(data["mark"].values) == ["look-alike", "source: a", "source: b"]
    # Eight samples have the label, and four of them the class.
    assert set(data["marked_negatives"].sel(mark="look-alike").values.ravel()) == {4.0}


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"query_mark": np.arange(3), "candidate_mark": LABELS}, "shape (3,), expected (40,)"),
        ({"marked": np.ones((2, 2), bool)}, "expected labels of both sides, a bool matrix (40, 40)"),
        ({"marked": [[0, 90]]}, "(0, 90) in row 0, expected rows of 40 queries, 40 candidates"),
    ],
)
def test_files_with_unusable_marks_are_refused(tmp_path, arrays, sentence):
    done = call("count", save(tmp_path, **arrays))
    assert done.exit_code == 2 and sentence in done.stderr and done.stderr.count("\n") == 1, done.stderr
