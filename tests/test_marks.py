"""Marks on candidates: their share of the negatives and of the push, against a slow loop."""

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
from cocos.counting import statistics, weights
from cocos.embeddings import marks, scores
from cocos.embeddings.sampling import plan
from cocos.reports import table

ROWS = 40
LABELS = torch.arange(ROWS) % 5


def sides(width=6):
    generator = torch.Generator().manual_seed(3)
    query = torch.randn(ROWS, width, generator=generator)
    return query, query + 0.9 * torch.randn(ROWS, width, generator=generator)


def rows(given=None):
    return Embeddings(*sides(), marks={"look-alike": (LABELS, LABELS)} if given is None else given)


def every(data, name, direction="q2c"):
    return data[name].sel(direction=direction, mark="look-alike")


@pytest.mark.parametrize("name", ["ntxent", "triplet", "smoothap", "proxy_anchor", "triplet_squared"])
def test_shares_are_what_a_loop_finds(name):
    embeddings, loss = rows(), losses.load(name)
    data = measures.count(embeddings, loss, batch_size=16, sample="pairs", seed=2)
    for b, batch in enumerate(plan(embeddings, batch_size=16, seed=2, sample="pairs").batches):
        for direction, side, drawn in (("q2c", embeddings, batch), ("c2q", embeddings.flip(), batch.flip())):
            pairs = scores.pairs(side.to(dtype=torch.float64), drawn, metric=loss.metric)
            weight = weights.of(loss, pairs)
            for q, row in enumerate(drawn.query_index.tolist()):
                push = held = negatives = 0.0
                for c, other in enumerate(drawn.candidate_index.tolist()):
                    pushed = max(weight[q, c].item(), 0) if pairs.negative[q, c] else 0
                    push += pushed
                    if row != other and row % 5 == other % 5:
                        held, negatives = held + pushed, negatives + 1
                cell = data.sel(direction=direction, mark="look-alike").isel(batch=b, query=q)
                assert cell["marked_negatives"].item() == negatives
                expected = held / push if push > 0 else 0
                assert cell["marked_push_per_query"].item() == pytest.approx(expected, abs=1e-9)


def test_parts_are_ratios_of_sums_over_all_queries():
    data = measures.count(rows(), losses.load("triplet", {"margin": 0.05}), batch_size=40)
    some = data["effective_per_query"].sel(direction="q2c").values.ravel() > 0
    assert 0 < some.sum() < len(some)
    marked = every(data, "marked_negatives").values.sum() / data["negatives"].sel(direction="q2c").values.sum()
    total = data["push"].sel(direction="q2c").values.ravel()
    push = (every(data, "marked_push_per_query").values.ravel() * total).sum() / total.sum()
    assert every(data, "marked_share").item() == pytest.approx(marked)
    assert every(data, "marked_push").item() == pytest.approx(push)
    assert every(data, "enrichment").item() == pytest.approx(push / marked)
    entry = reports.document("count", data)["directions"]["q2c"]["marks"]["look-alike"]
    assert entry["push"]["mean"] == pytest.approx(push) and entry["negatives"]["mean"] == pytest.approx(marked)
    assert np.array_equal(
        data["contributing"],
        measures.count(rows({}), losses.load("triplet", {"margin": 0.05}), batch_size=40)["contributing"],
    )


def test_all_negatives_hold_all_and_none_nothing():
    whole = torch.ones(ROWS, ROWS, dtype=torch.bool)
    data = measures.count(rows({"all": whole, "none": ~whole}), "ntxent", batch_size=16)
    pushed = data["effective_per_query"] > 0
    for name, value in (("all", 1.0), ("none", 0.0)):
        one = data.sel(mark=name)
        for key in ("marked_push_per_query", "placebo_push_per_query"):
            np.testing.assert_allclose(one[key].values[pushed.values], value, atol=1e-12)
        np.testing.assert_allclose(one["marked_share"], value)
    np.testing.assert_allclose(data["enrichment"].sel(mark="all"), 1)
    assert data["enrichment"].sel(mark="none").isnull().all()


def test_labels_matrix_and_rows_are_the_same_mark():
    same = LABELS[:, None] == LABELS
    text = [f"scene {label}" for label in LABELS.tolist()]
    given = {"labels": (LABELS, LABELS), "text": (text, text), "matrix": same, "rows": same.nonzero()}
    data = measures.count(rows(given), "ntxent", batch_size=16)
    for name in given:
        for key in ("marked_negatives", "marked_push_per_query"):
            xr.testing.assert_equal(data[key].sel(mark=name, drop=True), data[key].sel(mark="labels", drop=True))


def test_a_listed_pair_is_found_by_either_side_where_the_sides_differ_in_size():
    mark = marks.of("pair", [[1, 2]], 2, 3)
    for asking, number in ((mark, (2, 3)), (mark.flip(), (3, 2))):
        found = asking.pairs(*map(torch.arange, number))
        assert (found == 0).nonzero().tolist() == [[1, 2] if asking is mark else [2, 1]]


def test_both_directions_see_the_pair_from_their_side():
    one = torch.zeros(ROWS, ROWS, dtype=torch.bool)
    one[3, 7] = True
    for given in (
        one,
        [[3, 7]],
        (torch.where(torch.arange(ROWS) == 3, 0, -1), torch.where(torch.arange(ROWS) == 7, 0, -1)),
    ):
        data = measures.count(rows({"pair": given}), "ntxent", batch_size="all")
        for direction, row in (("q2c", 3), ("c2q", 7)):
            part = data.sel(direction=direction, mark="pair").isel(batch=0)
            assert part["query_index"].values[part["marked_negatives"].values > 0].tolist() == [row]


def test_labels_that_mark_none():
    labels = torch.where(torch.arange(ROWS) < 10, LABELS, -1)
    text = ["" if label < 0 else str(label) for label in labels.tolist()]
    data = measures.count(rows({"number": (labels, labels), "text": (text, text)}), "ntxent", batch_size="all")
    found = data["marked_negatives"].sel(direction="q2c", batch=0)
    assert (found == found.isel(mark=0)).all() and int((found.sel(mark="text") > 0).sum()) == 10


def test_sources_are_kinds_of_candidates_and_unknown_where_they_ask():
    source = ["in-batch"] * 30 + ["own hard"] * 9 + [""]
    data = measures.count(rows({"source": {"candidate": source}}), "ntxent", batch_size="all")
    assert list(data["mark"].values) == ["source: in-batch", "source: own hard"]
    both = data["marked_push_per_query"].sel(direction="q2c", batch=0)
    part = statistics.spread(*_weighed(data))
    order = plan(rows(), batch_size="all").batches[0].candidate_index
    hard = torch.tensor([text == "own hard" for text in source])[order]
    np.testing.assert_allclose(both.sel(mark="source: own hard"), part[:, hard].sum(dim=1), atol=1e-9)
    assert data["marked_push"].sel(direction="c2q").isnull().all()
    entry = reports.document("count", data)["directions"]["c2q"]["marks"]["source: own hard"]
    assert entry["push"] == {"mean": None, "std": None} and entry["queries"] == 0
    known = measures.count(rows({"source": {"candidate": source, "query": source}}), "ntxent", batch_size="all")
    assert not known["marked_push"].isnull().any()


def _weighed(data):
    pairs = scores.pairs(rows().to(dtype=torch.float64), plan(rows(), batch_size="all").batches[0])
    assert data.sizes["batch"] == 1
    return losses.load("ntxent").weight(pairs), pairs


def test_the_placebo_is_as_many_random_negatives_and_seeded():
    generator = torch.Generator().manual_seed(0)
    negative = torch.rand(200, 50, generator=generator) < 0.8
    mask = negative & (torch.rand(200, 50, generator=generator) < 0.2)
    drawn = statistics.as_many(mask, negative, generator)
    assert (drawn.sum(dim=1) == mask.sum(dim=1)).all() and not (drawn & ~negative).any()
    # Each negative is drawn with the probability of the mask: 6 standard deviations of 200 draws of a column.
    rate = (mask.sum(dim=1) / negative.sum(dim=1)).mean()
    assert ((drawn.sum(dim=0) / negative.sum(dim=0) - rate).abs() < 6 * (rate * (1 - rate) / 160) ** 0.5).all()
    one, two, other = (
        measures.count(rows(), "ntxent", batches=plan(rows(), batch_size=16).batches, seed=s) for s in (1, 1, 2)
    )
    xr.testing.assert_identical(one, two)
    assert not one["placebo_push"].equals(other["placebo_push"])
    assert one["marked_push"].equals(other["marked_push"])


def test_blocks_and_several_losses_change_nothing(monkeypatch):
    whole = measures.count(rows(), ["ntxent", "triplet"], batch_size="all")
    for name, one in whole.items():
        loss = {"NTXent(temperature=0.1)": "ntxent", "Triplet(margin=0.2)": "triplet"}[name]
        xr.testing.assert_identical(one, measures.count(rows(), loss, batch_size="all"))
    monkeypatch.setattr(cocos.measures.shared.prepared, "BLOCK_SCORES", 7 * ROWS)
    blocks = measures.count(rows(), ["ntxent", "triplet"], batch_size="all")
    for label in whole:
        for key in ("marked_negatives", "marked_push", "marked_share"):
            xr.testing.assert_allclose(blocks[label][key], whole[label][key])


def test_a_labelled_set_and_one_of_proxies():
    generator = torch.Generator().manual_seed(7)
    samples, proxies = torch.randn(30, 5, generator=generator), torch.randn(6, 5, generator=generator)
    classes, superclass = torch.arange(30) % 6, torch.arange(30) % 3
    found = Embeddings.labelled(samples, classes, marks={"super": (superclass, superclass)})
    data = measures.count(found, "supcon", batch_size="all")
    assert set(data["marked_negatives"].values.ravel()) == {5.0}  # ten of the superclass, five of them of the class
    found = Embeddings.labelled(samples, classes, proxies, marks={"super": (superclass, torch.arange(6) % 3)})
    data = measures.count(found, "normalized_softmax", batch_size="all")
    assert set(data["marked_negatives"].values.ravel()) == {1.0}


@pytest.mark.parametrize(
    ("given", "sentence"),
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
def test_bad_marks_are_one_sentence(given, sentence):
    with pytest.raises(InputError, match=sentence) as error:
        rows(given)
    assert "\n" not in str(error.value)


def test_marks_are_carried_flipped_and_replaced():
    embeddings = rows()
    assert embeddings.to(dtype=torch.float64).marks.keys() == embeddings.flip().marks.keys() == {"look-alike"}
    assert embeddings.marks and not embeddings.marked(None).marks
    again = embeddings.marked({"pair": [[3, 7]]})
    assert again.query is embeddings.query
    pair = torch.tensor([3]), torch.tensor([7])
    assert again.marks["pair"].pairs(*pair).item() == 0 and again.flip().marks["pair"].pairs(*pair).item() == -1
    assert again.flip().flip().marks["pair"].pairs(*pair).item() == 0


def file(tmp_path, **more):
    query, candidate = sides()
    np.savez(tmp_path / "rows.npz", query=query, candidate=candidate, **more)
    return tmp_path / "rows.npz"


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.mark.parametrize(
    "arrays",
    [
        {"query_mark": LABELS, "candidate_mark": LABELS},
        {"query_mark": [f"c{k}" for k in LABELS], "candidate_mark": [f"c{k}" for k in LABELS]},
        {"marked": LABELS[:, None] == LABELS},
        {"marked": (LABELS[:, None] == LABELS).nonzero()},
    ],
    ids=["numbers", "texts", "matrix", "rows"],
)
def test_the_command_reports_the_marks_of_a_file(tmp_path, arrays):
    path = file(tmp_path, **{name: np.asarray(values) for name, values in arrays.items()})
    done = call("count", path, "--json", "--batch-size", 16, "--out", tmp_path / "counts.nc")
    assert done.exit_code == 0, done.stderr
    expected = reports.document("count", measures.count(rows(), "ntxent", batch_size=16))["directions"]
    for name, entry in json.loads(done.stdout)["directions"].items():
        assert entry["marks"] == expected[name]["marks"]
        assert set(entry["marks"]["look-alike"]) == {"negatives", "push", "placebo", "enrichment", "queries"}
    assert results.open(tmp_path / "counts.nc")["mark"].values.tolist() == ["look-alike"]
    text = call("count", path, "--batch-size", 16).stdout
    assert "look-alike: push fraction" in text and "false negative" not in text


def test_sources_and_a_name_of_their_own_in_a_file(tmp_path):
    source = np.array(["in-batch"] * 30 + ["own hard"] * 10)
    path = file(tmp_path, candidate_source=source, marked=np.array([[3, 7]]), mark_name="same scene")
    found = cocos.open(path).embed()
    assert list(found.marks) == ["same scene", "source"]


def test_a_file_of_a_labelled_set_marks_its_samples(tmp_path):
    labels = np.arange(ROWS) % 5
    np.savez(tmp_path / "set.npz", embeddings=sides()[0], labels=np.arange(ROWS) % 10, query_mark=labels,
             query_source=np.array(["a", "b"] * 20))  # fmt: skip
    found = measures.count(cocos.open(tmp_path / "set.npz"), "supcon", batch_size="all")
    assert list(found["mark"].values) == ["look-alike", "source: a", "source: b"]
    assert set(found["marked_negatives"].sel(mark="look-alike").values.ravel()) == {
        4.0
    }  # 8 of the label, 4 of the class


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"query_mark": np.arange(ROWS)}, "query_mark without candidate_mark; give candidate_mark too"),
        ({"query_source": np.array(["a"] * ROWS)}, "query_source without candidate_source; give"),
        ({"query_mark": np.arange(3), "candidate_mark": np.arange(ROWS)}, "shape (3,), expected (40,)"),
        ({"marked": np.ones((2, 2), bool)}, "expected labels of both sides, a bool matrix (40, 40)"),
        ({"marked": np.array([[0, 90]])}, "(0, 90) in row 0, expected rows of 40 queries, 40 candidates"),
        (
            {"marked": np.array([[0, 1]]), "query_mark": LABELS.numpy(), "candidate_mark": LABELS.numpy()},
            "marked and query_mark both mark pairs; give one",
        ),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path, arrays, sentence):
    done = call("count", file(tmp_path, **arrays))
    assert done.exit_code == 2 and sentence in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_result_without_marks_is_as_it_was():
    data = measures.count(rows({}), "ntxent")
    assert "mark" not in data.dims and not set(statistics.MARKED_LABELS) & set(data)
    assert all("marks" not in entry for entry in reports.document("count", data)["directions"].values())
    assert "% of the push (as many" not in str(table("count", data)) and data.attrs["dtype"] == "float32"
    assert measures.count(rows(), "ntxent").attrs["dtype"] == "float64"


def test_a_mark_keeps_its_own_name():
    mark = marks.of("alike", (LABELS, LABELS), ROWS, ROWS)
    assert marks.of("scene", mark, ROWS, ROWS).labels == ["scene"]
    source = marks.of("source", {"candidate": ["a"] * 20 + ["b"] * 20}, ROWS, ROWS)
    assert marks.of("origin", source, ROWS, ROWS).labels == ["origin: a", "origin: b"]
