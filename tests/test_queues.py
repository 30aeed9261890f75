"""Rows of earlier steps as candidates: beside a slow loop, labelled, from a file; and what is refused."""

import json
import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cocos
from cocos import InputError, losses
from cocos.cli import app

ROWS, WIDTH, KEPT = 24, 8, 30
NTXENT = losses.load("ntxent", temperature=0.2)


def arrays(seed=0):
    """Two sides, and a queue of 30 rows, of which 3 are the pairs of the first rows as they were."""
    generator = torch.Generator().manual_seed(seed)
    query, candidate = torch.randn(2, ROWS, WIDTH, generator=generator, dtype=torch.float64)
    queue = torch.randn(KEPT, WIDTH, generator=generator, dtype=torch.float64)
    queue[:3] = candidate[:3]
    return query, candidate, queue


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
def test_push_on_queue_equals_a_loop(grouped):
    query, candidate, queue = arrays()
    embeddings = cocos.Embeddings(query, candidate, queue=(queue, group_of_queue()) if grouped else queue)
    data = cocos.measures.count(embeddings, NTXENT, batch_size=8, seed=3)
    plan = cocos.sampling.plan(cocos.Embeddings(query, candidate), batch_size=8, seed=3)
    for number, batch in enumerate(plan.batches):
        for place, row in enumerate(batch.query_index.tolist()):
            columns = [*candidate[batch.candidate_index].tolist(), *queue.tolist()]
            own = 8 + row if row < 3 else None  # the pair of this query as it was
            found = slow(query[row].tolist(), columns, place, (own,) if grouped else ())
            expected = math.fsum(found[8 + k] / 0.2 for k in range(KEPT) if not (grouped and own == 8 + k))
            one = data.sel(direction="q2c", batch=number, query=place, source="queue")
            assert float(one["source_push"]) == pytest.approx(expected, rel=1e-9)
            missing = int(grouped and row < 3)
            assert data["negatives"][0, number, place] == 7 + KEPT - missing
            assert one["source_negatives"] == KEPT - missing


def test_queue_leaves_the_batches_unchanged():
    query, candidate, queue = arrays()
    with_queue = cocos.Embeddings(query, candidate, queue=queue)
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


def test_exchanged_sides_exchange_the_queues():
    query, candidate, queue = arrays()
    one = cocos.Embeddings(query, candidate, queue=queue, query_queue=queue.flip(0))
    other = cocos.Embeddings(candidate, query, queue=queue.flip(0), query_queue=queue)
    data = [cocos.measures.count(each, NTXENT, batch_size="all") for each in (one, other)]
    order = [each["query_index"].values.argsort(axis=2) for each in data]
    values = [np.take_along_axis(each["push"].values, at, 2) for each, at in zip(data, order, strict=True)]
    np.testing.assert_allclose(values[0], values[1][::-1], rtol=1e-12)
    assert torch.equal(one.flip().flip().queue, one.queue)


def test_hard_negatives_precede_the_queue():
    query, candidate, queue = arrays()
    negatives = torch.randn(ROWS, 2, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    data = cocos.measures.count(
        cocos.Embeddings(query, candidate, negatives=negatives, queue=queue), NTXENT, batch_size=8
    )
    one = data.isel(direction=0)
    names = ["in-batch", "own hard", "others' hard", "queue"]
    assert one["source"].values.tolist() == names
    assert [int(one["source_negatives"].sel(source=name)[0, 0]) for name in names] == [7, 2, 14, KEPT]


def test_labelled_queue_has_positives():
    """Cross-batch memory: rows of the query's class in the memory are its positives (arXiv:1912.06798, sec. 3.2)."""
    query, _, queue = arrays()
    labels, classes = torch.arange(ROWS) % 6, torch.arange(KEPT) % 6
    embeddings = cocos.Embeddings.labelled(query, labels, queue=(queue, classes))
    data = cocos.measures.contributors(embeddings, "supcon", row=0, batch_size="all", top=None)
    expected = int((labels == 0).sum()) - 1 + int((classes == 0).sum())
    assert data.attrs["positives"] == expected
    assert data.attrs["negatives"] == int((labels != 0).sum()) + int((classes != 0).sum())
    one = cocos.measures.count(embeddings, "supcon", batch_size="all")
    assert one["source_negatives"].sel(source="queue").max() == int((classes != 0).sum())
    with pytest.raises(InputError, match="give queue_group"):
        cocos.Embeddings.labelled(query, labels, queue=queue)


def file(folder, **changed):
    query, candidate, queue = arrays()
    given = {"query": query, "candidate": candidate, "queue": queue} | changed
    np.savez(folder / "queue.npz", **{name: np.asarray(each) for name, each in given.items() if each is not None})
    return folder / "queue.npz"


def call(*arguments, code=0):
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == code, done.output + done.stderr
    return done


def test_queue_of_a_file_is_counted(tmp_path):
    query, candidate, queue = arrays()
    data = cocos.measures.count(cocos.Embeddings(query, candidate, queue=queue), NTXENT, batch_size=8)
    options = ("--loss", "ntxent", "-p", "temperature=0.2", "--batch-size", 8)
    found = json.loads(call("count", file(tmp_path), *options, "--json").stdout)["directions"]["q2c"]["sources"]
    push = data["source_push"].sel(direction="q2c")
    assert found["queue"]["push"]["mean"] == pytest.approx(float(push.sel(source="queue").sum() / push.sum()))


REFUSED = {
    "another width": ({"queue": np.ones((KEPT, 3))}, f"expected floating point (K, {WIDTH})"),
    "NaN": ({"queue": np.full((KEPT, WIDTH), np.nan)}, "NaN or infinity in row"),
    "groups of others": ({"queue_group": np.arange(3)}, "queue_group: shape (3,)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unusable_queues_are_refused(tmp_path, name):
    changed, said = REFUSED[name]
    done = call("count", file(tmp_path, **changed), code=2)
    assert said in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
