"""Rows of earlier steps as candidates: beside a slow loop, by age, labelled, in parts; and what is refused."""

import json
import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cocos
from cocos import InputError, losses
from cocos.commands import app
from cocos.embeddings import sources
from cocos.reports import findings, table

ROWS, WIDTH, KEPT = 24, 8, 30
NTXENT = losses.load("ntxent", temperature=0.2)


def arrays(seed=0):
    """Two sides, and a queue of 5 steps with 6 rows each, of which 3 are the pairs of the first rows as they were."""
    generator = torch.Generator().manual_seed(seed)
    query, candidate = torch.randn(2, ROWS, WIDTH, generator=generator, dtype=torch.float64)
    queue = torch.randn(KEPT, WIDTH, generator=generator, dtype=torch.float64)
    queue[:3] = candidate[:3]
    return query, candidate, queue, torch.arange(KEPT) // 6 + 1


def group_of_queue():
    return torch.cat([torch.arange(3), torch.arange(100, 100 + KEPT - 3)])


def cosine(a, b):
    return math.fsum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


def slow(query, candidates, positive, out=(), temperature=0.2):
    """Probability of every candidate of one query under NT-Xent, those in `out` left out."""
    logits = [cosine(query, each) / temperature for each in candidates]
    total = math.fsum(math.exp(z) for k, z in enumerate(logits) if k not in out)
    return [0.0 if k in out else math.exp(z) / total for k, z in enumerate(logits)]


@pytest.mark.parametrize("grouped", [True, False])
def test_the_push_by_age_is_that_of_a_loop(grouped):
    query, candidate, queue, age = arrays()
    group = (group_of_queue(),) if grouped else ()
    embeddings = cocos.Embeddings(query, candidate, queue=(queue, age, *group))
    data = cocos.measures.count(embeddings, NTXENT, batch_size=8, seed=3)
    plan = cocos.batches.plan(cocos.Embeddings(query, candidate), batch_size=8, seed=3)
    assert data["age"].values.tolist() == [1, 2, 3, 4]  # 4 and 5 steps are one kind
    for number, batch in enumerate(plan.batches):
        for place, row in enumerate(batch.query_index.tolist()):
            columns = [*candidate[batch.candidate_index].tolist(), *queue.tolist()]
            own = 8 + row if row < 3 else None  # the pair of this query as it was
            found = slow(query[row].tolist(), columns, place, (own,) if grouped else ())
            expected = dict.fromkeys((1, 2, 3, 4), 0.0)
            for k in range(KEPT):
                expected[min(4, k // 6 + 1)] += 0.0 if grouped and 8 + k == own else found[8 + k] / 0.2
            one = data["age_push"].sel(direction="q2c", batch=number, query=place)
            np.testing.assert_allclose(one.values, list(expected.values()), rtol=1e-9)
            missing = int(grouped and row < 3)
            assert data["negatives"][0, number, place] == 7 + KEPT - missing
            assert data["age_negatives"].sel(direction="q2c", batch=number, query=place).sum() == KEPT - missing


def test_a_queue_asks_for_nothing_and_moves_no_batch():
    query, candidate, queue, age = arrays()
    with_queue = cocos.Embeddings(query, candidate, queue=(queue, age))
    without = cocos.Embeddings(query, candidate)
    both = [cocos.measures.count(each, NTXENT, batch_size=8, seed=1) for each in (with_queue, without)]
    second = [each.sel(direction="c2q") for each in both]
    for name in ("query_index", "contributing", "negatives"):
        np.testing.assert_array_equal(second[0][name].values, second[1][name].values)
    np.testing.assert_allclose(second[0]["push"], second[1]["push"], rtol=1e-6)  # the latter is read in float32
    assert float(both[0]["push"].sel(direction="q2c").sum()) > float(both[1]["push"].sel(direction="q2c").sum())
    ranked = [cocos.measures.evaluate(each) for each in (with_queue, without)]
    for name in ("R@1", "MRR", "candidates"):
        np.testing.assert_array_equal(ranked[0][name].values, ranked[1][name].values)


def test_queues_of_both_sides_are_exchanged_with_the_sides():
    query, candidate, queue, age = arrays()
    one = cocos.Embeddings(query, candidate, queue=(queue, age), query_queue=(queue.flip(0), age.flip(0)))
    other = cocos.Embeddings(candidate, query, queue=(queue.flip(0), age.flip(0)), query_queue=(queue, age))
    data = [cocos.measures.count(each, NTXENT, batch_size="all") for each in (one, other)]
    order = [each["query_index"].values.argsort(axis=2) for each in data]
    values = [np.take_along_axis(each["push"].values, at, 2) for each, at in zip(data, order, strict=True)]
    np.testing.assert_allclose(values[0], values[1][::-1], rtol=1e-12)
    assert torch.equal(one.flip().flip().queue, one.queue)


def test_hard_negatives_stand_before_the_queue():
    query, candidate, queue, age = arrays()
    negatives = torch.randn(ROWS, 2, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    data = cocos.measures.count(
        cocos.Embeddings(query, candidate, negatives=negatives, queue=(queue, age)), NTXENT, batch_size=8
    )
    one = data.isel(direction=0)
    names = ["in-batch", "own hard", "others' hard", "queue"]
    assert one["source"].values.tolist() == names
    assert [int(one["source_negatives"].sel(source=name)[0, 0]) for name in names] == [7, 2, 14, KEPT]
    np.testing.assert_allclose(one["age_push"].sum("age"), one["source_push"].sel(source="queue"), rtol=1e-12)


def test_a_memory_of_labelled_rows_has_positives_too():
    """Cross-batch memory: rows of the query's class in the memory are its positives (arXiv:1912.06798, sec. 3.2)."""
    query, _, queue, age = arrays()
    labels, classes = torch.arange(ROWS) % 6, torch.arange(KEPT) % 6
    embeddings = cocos.Embeddings.labelled(query, labels, queue=(queue, age, classes))
    data = cocos.measures.contributors(embeddings, "supcon", row=0, batch_size="all", top=None)
    expected = int((labels == 0).sum()) - 1 + int((classes == 0).sum())
    assert data.attrs["positives"] == expected
    assert data.attrs["negatives"] == int((labels != 0).sum()) + int((classes != 0).sum())
    one = cocos.measures.count(embeddings, "supcon", batch_size="all")
    assert one["age_negatives"].sum("age").max() == int((classes != 0).sum())
    with pytest.raises(InputError, match="give queue_group"):
        cocos.Embeddings.labelled(query, labels, queue=(queue, age))


def file(folder, **changed):
    query, candidate, queue, age = arrays()
    given = {"query": query, "candidate": candidate, "queue": queue, "queue_age": age} | changed
    np.savez(folder / "queue.npz", **{name: np.asarray(each) for name, each in given.items() if each is not None})
    return folder / "queue.npz"


def call(*arguments, code=0):
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == code, done.output + done.stderr
    return done


def test_a_file_says_which_part_of_the_push_is_how_old(tmp_path):
    query, candidate, queue, age = arrays()
    data = cocos.measures.count(cocos.Embeddings(query, candidate, queue=(queue, age)), NTXENT, batch_size=8)
    options = ("--loss", "ntxent", "-p", "temperature=0.2", "--batch-size", 8)
    found = json.loads(call("count", file(tmp_path), *options, "--json").stdout)["directions"]["q2c"]["ages"]
    total = float(data["source_push"].sel(direction="q2c").sum())
    own = [float(each) / total for each in data["age_push"].sel(direction="q2c").sum(["batch", "query"])]
    assert [each["steps"] for each in found] == [1, 2, 3, 4]
    assert [each["push"] for each in found] == pytest.approx(own)
    assert [each["since"]["push"] for each in found] == pytest.approx([sum(own[k:]) for k in range(4)])
    said = call("count", file(tmp_path), *options).stdout.replace("\n", " ")
    old = max(k for k in range(4) if sum(own[k:]) >= 0.5)
    assert f"{100 * sum(own[old:]):.1f} % of the push is on rows at least {old + 1} steps old" in said
    (each,) = [one for one in findings.of(data) if one.kind == "old push" and one.of == ("q2c",)]
    assert each.numbers["steps"] == old + 1
    assert "queue, 4 to 7 steps old: part of the push" in str(table("count", data))


def test_parts_and_results_keep_the_ages(tmp_path):
    path, made = file(tmp_path), []
    for number in (1, 2):
        made.append(tmp_path / f"part{number}.nc")
        call("count", path, "--batch-size", 8, "--part", f"{number}/2", "--out", made[-1])
    call("join", *made, "--out", tmp_path / "all.nc")
    call("count", path, "--batch-size", 8, "--out", tmp_path / "one.nc")
    both = [cocos.results.open(tmp_path / f"{name}.nc") for name in ("all", "one")]
    np.testing.assert_array_equal(both[0]["age_push"], both[1]["age_push"])


def test_kinds_of_age_are_powers_of_two_from_4_on():
    ages = torch.tensor([0, 1, 2, 3, 4, 7, 8, 15, 16, 2**20, 2**20 + 1])
    assert sources.floors(ages).tolist() == [0, 1, 2, 3, 4, 4, 8, 8, 16, 2**20, 2**20]


REFUSED = {
    "no ages": ({"queue_age": None}, "queue without queue_age"),
    "ages alone": ({"queue": None}, "queue_age without queue"),
    "ages of parts of a step": ({"queue_age": np.ones(KEPT)}, "expected whole numbers of steps"),
    "ages to come": ({"queue_age": np.full(KEPT, -1)}, "expected steps ago, at least 0"),
    "other ages": ({"queue_age": np.ones(3, dtype=int)}, "expected whole numbers of steps, (30,)"),
    "another width": ({"queue": np.ones((KEPT, 3))}, f"expected floating point (K, {WIDTH})"),
    "NaN": ({"queue": np.full((KEPT, WIDTH), np.nan)}, "queue: NaN or infinity in row"),
    "groups of others": ({"queue_group": np.arange(3)}, "queue_group: 3 ids"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_queue_that_cannot_be_read_is_refused_in_a_sentence(tmp_path, name):
    changed, said = REFUSED[name]
    done = call("count", file(tmp_path, **changed), code=2)
    assert said in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
