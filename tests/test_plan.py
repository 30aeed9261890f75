"""Rows of one group in a batch: against all batches there are, whole numbers, and batches that cocos draws."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cocos
from cocos import Embeddings, measures
from cocos.base.errors import InputError
from cocos.commands import app
from cocos.counting.collisions import Collisions
from cocos.embeddings import batches
from cocos.reports import table

CASES = [[0, 0, 1, 1, 2], [0] * 5, [0, 1, 2, 3], [3, 1, 0, 3, 3, 1, 2, 5, 0, 4], [0] * 6 + [1, 2, 3, 4]]


@pytest.mark.parametrize("groups", CASES, ids=str)
def test_chances_are_those_of_all_batches(groups):
    """Every batch is listed, and every pair in it counted."""
    found, rows = Collisions.of(groups), range(len(groups))
    for size in range(1, len(groups) + 1):
        every = list(itertools.combinations(rows, size))
        others = [[sum(groups[a] == groups[b] for b in batch) - 1 for a in batch] for batch in every]
        assert found.probability(size) == pytest.approx(np.mean([any(each) for each in others]), abs=1e-13)
        assert found.per_query(size) == pytest.approx(np.mean(others), abs=1e-13)
        assert found.per_batch(size) == pytest.approx(np.mean([sum(each) / 2 for each in others]), abs=1e-12)
        assert found.met(size) == pytest.approx(np.mean([np.mean(np.array(each) > 0) for each in others]), abs=1e-13)


def polynomial(sizes):
    """Coefficients of the product of 1 + n x, in whole numbers."""
    made = [1]
    for size in sizes:
        made = [a + size * b for a, b in zip([*made, 0], [0, *made], strict=True)]
    return made


@pytest.mark.parametrize(
    "sizes", [[3] * 60 + [1] * 100 + [7] * 4, [2] * 150, [40] + [1] * 80, [1] * 299 + [2]], ids=len
)
def test_probabilities_are_those_of_whole_numbers(sizes):
    found, made, rows = Collisions.of(np.repeat(np.arange(len(sizes)), sizes)), polynomial(sizes), sum(sizes)
    for size in (2, 3, 10, 40, 80, len(sizes) - 1, len(sizes), len(sizes) + 1):
        ways = made[size] if size < len(made) else 0
        expected = float(1 - Fraction(ways, math.comb(rows, size)))
        assert found.probability(size) == pytest.approx(expected, rel=1e-10, abs=1e-13), size


def test_a_million_rows_take_no_vectors_and_little_time():
    """All pairs but one part in a million are of different groups: the chance is nearly that of its expectation."""
    found = Collisions.of(np.arange(10**6) // 2)
    assert found.probability(32) == pytest.approx(1 - np.prod(1 - np.arange(32) / (10**6 - np.arange(32))), rel=1e-6)
    assert found.probability(2) == pytest.approx(1 / (10**6 - 1), abs=1e-10)
    chance = 1 - np.cumprod(1 - np.arange(1000) / (10**6 - np.arange(1000)))  # of 1, 2, ... rows
    assert found.largest_below(0.05) == int((chance < 0.05).sum())


def test_the_largest_batch_is_the_last_one_below_the_bound():
    found = Collisions.of(CASES[3])
    for name in ("probability", "met"):
        chance = getattr(found, name)
        for bound in (0.01, 0.2, 0.5, 0.9, 0.999):
            below = [size for size in range(1, 11) if chance(size) < bound]
            assert found.largest_below(bound, of=name) == max(below)


def fillable(sizes, size, many):
    """Whether that many batches can be filled, by trying every way to deal the rows of a group to batches."""
    states = {(size,) * many}
    for rows in sizes:
        states = {
            tuple(sorted(left - (place in chosen) for place, left in enumerate(state)))
            for state in states
            for taken in range(min(rows, many) + 1)
            for chosen in itertools.combinations(range(many), taken)
            if all(state[place] > 0 for place in chosen)
        }
    return (0,) * many in states


@pytest.mark.parametrize("sizes", [[2, 2, 1], [4, 1, 1], [3, 3, 2, 1], [1, 1, 1, 1, 1], [5, 2, 2]], ids=str)
def test_batches_without_a_pair_can_be_filled_and_no_more(sizes):
    found = Collisions.of(np.repeat(np.arange(len(sizes)), sizes))
    for size in range(1, sum(sizes) + 1):
        best = max(many for many in range(sum(sizes) // size + 1) if fillable(sizes, size, many))
        assert found.without(size) == best


def questions(passages=60, seed=0):
    """Questions to passages, one to six each."""
    generator = np.random.default_rng(seed)
    group = np.repeat(np.arange(passages), generator.integers(1, 7, passages))
    query, candidate = (generator.normal(size=(number, 4)) for number in (len(group), passages))
    return Embeddings(torch.tensor(query), torch.tensor(candidate), group, np.arange(passages))


def test_batches_that_are_drawn_have_as_many_pairs():
    embeddings, size = questions(), 12
    drawn = batches.plan(embeddings, batch_size=size, batches=4000, seed=1).batches
    group = embeddings.query_group
    others = []
    for batch in drawn:
        own = group[batch.query_index]
        if len(own) == size:
            others.append((own[:, None] == own[None]).sum(dim=1) - 1)
    others = torch.stack(others).double()
    data = measures.plan(embeddings, [size]).sel(rule="group", batch_size=size)
    for name, seen in {
        "probability": (others > 0).any(dim=1).double(),
        "pairs": others.sum(dim=1) / 2,
        "per_query": others.mean(dim=1),
        "met": (others > 0).double().mean(dim=1),
    }.items():
        error = float(seen.std()) / len(seen) ** 0.5
        assert data[name].item() == pytest.approx(float(seen.mean()), abs=5 * error), name
        assert error < 0.03


def test_texts_are_alike_up_to_spelling_and_join_groups():
    names = (["What is it?", "what is IT", "Who?", "Why?"], ["a", "b", "c", "C."])
    embeddings = Embeddings(torch.randn(4, 3), torch.randn(4, 3), names=names)
    data = measures.plan(embeddings, [2])
    assert data["rule"].values.tolist() == ["group", "text", "group or text"]
    # six pairs of rows: none of one group, one of one candidate text, and one more of one query text
    assert data["probability"].values.ravel() == pytest.approx([0, 1 / 6, 2 / 6])
    assert measures.plan(embeddings.flip(), [2])["probability"].values.ravel() == pytest.approx([0, 1 / 6, 2 / 6])


def test_empty_texts_are_unlike_each_other():
    embeddings = Embeddings(torch.randn(3, 3), torch.randn(3, 3), names=(None, ["", "", "x"]))
    assert not measures.plan(embeddings, [2])["probability"].values.any()


def test_the_larger_side_is_drawn_and_only_rows_with_a_partner():
    embeddings = Embeddings(torch.randn(2, 3), torch.randn(5, 3), [0, 1], [0, 0, 1, 1, 7])
    data = measures.plan(embeddings, [2])
    assert (data.attrs["rows"], data.attrs["side"]) == (4, "candidates")
    assert data["probability"].item() == pytest.approx(2 / 6)


def test_a_labelled_set_is_drawn_row_by_row():
    embeddings = Embeddings.labelled(torch.randn(6, 3), [0, 0, 0, 1, 1, 1])
    data = measures.plan(embeddings, [2, 6])
    assert data.attrs["side"] == "samples" and data["probability"].values.tolist() == [[pytest.approx(6 / 15), 1.0]]
    assert "no positive" in table("plan", data).text()


def named(embeddings, seed=3, most=2):
    """Hard negatives of the queries: passages of other groups."""
    generator, made = np.random.default_rng(seed), []
    for group in embeddings.query_group.tolist():
        others = [row for row in range(len(embeddings.candidate)) if embeddings.candidate_group[row] != group]
        chosen = generator.choice(others, most, replace=False).tolist()
        made.append([chosen[0], chosen[1] if generator.random() < 0.5 else -1])
    return made


@pytest.mark.parametrize("turned", [False, True])
def test_hard_negatives_of_others_are_those_of_all_batches(turned):
    """Every batch of three rows is listed; each query looks for its own group among what the others name."""
    query, candidate = ([0, 1, 2, 3], [0, 0, 1, 2, 2, 3]) if turned else ([0, 0, 1, 2, 2, 3], [0, 1, 2, 3])
    embeddings = Embeddings(torch.randn(len(query), 3), torch.randn(len(candidate), 3), query, candidate)
    names = named(embeddings)
    embeddings = Embeddings(embeddings.query, embeddings.candidate, query, candidate, negatives=names)
    rows = candidate if turned else query
    asks = [query.index(group) for group in rows] if turned else list(range(len(rows)))
    found = []
    for batch in itertools.combinations(range(len(rows)), 3):
        for row in batch:
            others = [name for other in batch if other != row for name in names[asks[other]] if name >= 0]
            found.append(sum(candidate[name] == rows[row] for name in others))
    data = measures.plan(embeddings, [3])
    assert data["hard_per_query"].item() == pytest.approx(np.mean(found)) and np.mean(found) > 0.2
    assert data["hard_met"].item() == pytest.approx(np.mean(np.array(found) > 0))
    document = measures.document("plan", data)
    assert document["hard_negatives"][0]["met"] == data["hard_met"].item()
    assert "others' hard negatives" in table("plan", data).text()


def test_hard_negatives_of_a_random_partner_are_left_out():
    embeddings = Embeddings(
        torch.randn(4, 3), torch.randn(6, 3), [0, 0, 1, 2], [0, 0, 0, 1, 2, 9], negatives=[[3]] * 2 + [[0]] * 2
    )
    assert "hard_met" not in measures.plan(embeddings, [2])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"batch_sizes": [1]}, "batch size: 1, expected a whole number from 2 to"),
        ({"batch_sizes": [2.5]}, "batch size: 2.5, expected a whole number"),
        ({"batch_sizes": [10**6]}, "batch size: 1000000, expected a whole number from 2 to"),
        ({"batch_sizes": []}, "batch size: none is given"),
        ({"below": 0}, "below: 0, expected a probability above 0 and below 1"),
        ({"below": 1.5}, "below: 1.5, expected a probability"),
    ],
)
def test_bad_options_get_one_sentence(options, sentence):
    with pytest.raises(InputError, match=sentence):
        measures.plan(questions(), **options)


def test_data_that_cannot_be_planned_get_one_sentence():
    proxies = Embeddings.labelled(torch.randn(4, 3), [0, 0, 1, 1], proxies=torch.randn(2, 3))
    with pytest.raises(InputError, match="all proxies are in every batch"):
        measures.plan(proxies)
    with pytest.raises(InputError, match="1 rows have a partner"):
        measures.plan(Embeddings(torch.randn(1, 3), torch.randn(2, 3), [0], [0, 1]))
    with pytest.raises(InputError, match=r"data: list, expected cocos\.Embeddings"):
        measures.plan([1, 2])


def invoked(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_the_command_reads_data_and_embeddings_alike(tmp_path):
    lines = [{"query": f"question {k}?", "positive": f"passage {k // 2}"} for k in range(40)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    np.savez(
        tmp_path / "rows.npz",
        query=np.random.default_rng(0).normal(size=(40, 4)),
        candidate=np.random.default_rng(1).normal(size=(20, 4)),
        query_group=np.arange(40) // 2,
        candidate_group=np.arange(20),
    )
    found = [
        json.loads(invoked("plan", tmp_path / name, "--batch-size", "8,16", "--json").stdout)
        for name in ("pairs.jsonl", "rows.npz")
    ]
    assert found[0]["rules"]["group"] == found[1]["rules"]["group"]
    expected = measures.plan(cocos.open(tmp_path / "rows.npz").embed(), [8, 16])
    entry = found[1]["rules"]["group"]["batch_sizes"][0]
    assert entry["probability"] == expected["probability"].values[0, 0] and entry["batches_without"] == 5
    done = invoked("plan", tmp_path / "pairs.jsonl", "--below", "0.3", "--out", tmp_path / "plan.nc")
    assert done.exit_code == 0 and "same group or text: no other pairs than those of the same group" in done.stdout
    assert cocos.results.open(tmp_path / "plan.nc")["probability"].shape == (3, 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--batch-size", "1,x"], "write it as whole numbers, like 32,128,512"),
        (["--batch-size", "64"], "expected a whole number from 2 to 4"),
        (["--split", "dev"], "unknown split"),
        (["--below", "2"], "expected a probability above 0 and below 1"),
        (["--out", "plan.csv"], "expected .nc"),
    ],
)
def test_wrong_usage_is_one_sentence(tmp_path, arguments, sentence):
    lines = [{"query": f"question {k}?", "positive": f"passage {k}"} for k in range(4)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    done = invoked("plan", tmp_path / "pairs.jsonl", *arguments)
    assert done.exit_code == 2 and sentence in done.stderr and "Traceback" not in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("cocos: ")]) == 1
