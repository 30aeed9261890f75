"""Batches with columns: own hard negatives, scores of a teacher, graded pairs, further directions, sources."""

import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cocos
import oracles
from cocos import Embeddings, InputError, Pairs, losses, measures, reports
from cocos.cli import app
from cocos.counting import findings, statistics, weights
from cocos.embeddings import scores, sources, teachers
from cocos.embeddings.sampling import Batch, plan
from finding_kinds import kinds

GTE = ",".join(sources.DIRECTIONS)
SETTINGS = [
    {"directions": directions, "partition": partition, "filter": rule, "hardness": hardness, "hardness_on": on}
    for directions, partition in ((sources.DIRECTIONS[0], "joint"), (GTE, "joint"),
                                  ("query-candidate,candidate-query", "per_direction"))
    for rule in ("none", "guide", "self", "percent", "relative_margin", "factor")
    for hardness, on in ((0, "all"), (5, "hard"), (9, "in-batch"))
]  # fmt: skip


def columns(queries=8, hard=2, width=6, seed=0):
    """Embeddings with own hard negatives as vectors and a guide, near enough to each other for filters to matter."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    query = draw(queries, width)
    candidate = query + 0.7 * draw(queries, width)
    negatives = query[:, None] + 0.9 * draw(queries, hard, width)
    every = torch.cat([candidate, negatives.flatten(0, 1)])
    guide = query + 0.2 * draw(queries, width), every + 0.2 * draw(len(every), width)
    return cocos.Embeddings(query, candidate, negatives=negatives, teacher=guide)


def whole(embeddings):
    """The only batch of all queries."""
    return plan(embeddings, batch_size=len(embeddings.query)).batches[0]


def cosines(a, b):
    return [[float(x @ y / (x.norm() * y.norm())) for y in b] for x in a]


def test_vectors_become_the_last_candidates_each_in_a_group_of_its_own():
    embeddings = columns(queries=4, hard=3)
    assert embeddings.candidate.shape == (16, 6) and embeddings.candidate_group.unique().shape == (16,)
    assert embeddings.negatives.tolist() == [[4, 5, 6], [7, 8, 9], [10, 11, 12], [13, 14, 15]]
    vectors = embeddings.candidate[4:].reshape(4, 3, 6).clone()
    vectors[1, 2] = torch.nan
    fewer = cocos.Embeddings(embeddings.query, embeddings.candidate[:4], negatives=vectors)
    assert fewer.negatives.tolist() == [[4, 5, 6], [7, 8, -1], [9, 10, 11], [12, 13, 14]]
    one = cocos.Embeddings(embeddings.query, embeddings.candidate[:4], negatives=vectors[:, 0])
    assert one.negatives.tolist() == [[4], [5], [6], [7]]
    named = cocos.Embeddings(embeddings.query, embeddings.candidate[:4], [7, 8, 9, 10], [7, 8, 9, 10],
                             negatives=vectors[:, 0], names=(None, list("abcd")))  # fmt: skip
    assert named.candidate_group.tolist() == [7, 8, 9, 10, 11, 12, 13, 14] and named.names[1][4:] == ("",) * 4


def test_the_source_of_each_candidate_is_that_of_the_query_that_names_it():
    embeddings, shared = columns(queries=3, hard=1), torch.tensor([[4], [3], [0]])
    batch = Batch(torch.tensor([0, 1, 2]), torch.tensor([0, 1, 2, 3, 4]), paired=True, extra=2)
    other = cocos.Embeddings(embeddings.query, embeddings.candidate, embeddings.query_group, embeddings.candidate_group,
                             negatives=shared)  # fmt: skip
    # Row 0 of the candidates is a document of the batch, and the third query's own hard negative.
    assert scores.pairs(other, batch).source.tolist() == [[0, 0, 0, 2, 1], [0, 0, 0, 1, 2], [1, 0, 0, 2, 2]]


def test_further_directions_are_the_denominators_of_gte():
    """Value and weights against a loop over the vectors of one batch: Li et al. 2023, eq. 1, with hard negatives."""
    embeddings, scale = columns(queries=5, hard=2), 20.0
    batch = whole(embeddings)
    loss = losses.load("mnrl", {"directions": GTE, "scale": scale})
    pairs = scores.pairs(embeddings, batch, directions=sources.DIRECTIONS)
    query, document = embeddings.query[batch.query_index], embeddings.candidate[batch.candidate_index]
    qd, qq, dd = cosines(query, document), cosines(query, query), cosines(document[:5], document)
    owned = [set(embeddings.negatives[row].tolist()) for row in batch.query_index]
    for i in range(5):
        kin = {i, *(j for j, row in enumerate(batch.candidate_index.tolist()) if row in owned[i])}
        terms = [math.exp(scale * s) for s in qd[i]]
        terms += [math.exp(scale * qq[i][j]) for j in range(5) if j != i]
        terms += [math.exp(scale * qd[j][i]) for j in range(5)]
        terms += [math.exp(scale * dd[i][j]) for j in range(len(document)) if j not in kin]
        assert float(loss(pairs)[i]) == pytest.approx(math.log(math.fsum(terms)) - scale * qd[i][i], rel=1e-12)
        assert int(pairs.negative[i].sum()) == 14 + 4 + 4 + len(document) - len(kin)
    assert weights.gap(loss, pairs) < 1e-12


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: "-".join(map(str, s.values())))
def test_mnrl_is_its_slow_loop_in_value_and_weights(setting):
    embeddings = columns(seed=1)
    loss = losses.load("mnrl", setting | {"scale": 8, "filter_margin": 0.02})
    pairs = scores.pairs(embeddings, whole(embeddings), directions=loss.directions)
    slow = oracles.LOSSES["mnrl"]
    arguments = list(loss.parameters.values())
    assert loss(pairs).tolist() == pytest.approx(slow(pairs, *arguments), rel=1e-12)
    weight, step = loss.weight(pairs), 1e-6
    assert weights.gap(loss, pairs) < 1e-12
    for q, c in ((0, 3), (2, pairs.scores.shape[1] - 2)):
        change = torch.zeros_like(pairs.scores)
        change[q, c] = step
        up, down = (math.fsum(slow(pairs.with_scores(pairs.scores + s * change), *arguments, frozen=pairs))
                    for s in (1, -1))  # fmt: skip
        assert float(weight[q, c]) == pytest.approx((up - down) / (2 * step), abs=2e-6)


def test_a_filter_leaves_out_whom_its_rule_names():
    pairs = Pairs(torch.tensor([[0.8, 0.95, 0.77, 0.3]]), torch.tensor([[True, False, False, False]]),
                  teacher=torch.tensor([[0.6, 0.2, torch.nan, 0.55]]))  # fmt: skip
    expected = {"none": [], "self": [1], "percent": [1, 2], "guide": [3], "factor": [1]}
    for rule, places in expected.items():
        loss = losses.load("mnrl", {"filter": rule, "filter_margin": 0.1})
        assert loss.masked(pairs)[0].nonzero().flatten().tolist() == places
        assert (loss.weight(pairs)[0, places] == 0).all() or rule == "factor"
        assert loss.unfiltered().parameters["filter"] == "none"
    with pytest.raises(InputError, match="mnrl with filter guide reads scores of a teacher or guide"):
        losses.load("mnrl", {"filter": "guide"})(Pairs(pairs.scores, pairs.positive))


def test_counts_and_push_by_source_add_up_to_those_of_the_query():
    embeddings = columns(queries=12, hard=2)
    options = {"batch_size": 6, "seed": 3}
    data = measures.count(embeddings, "mnrl", **options)
    assert data["source"].values.tolist() == ["in-batch", "own hard", "others' hard"]
    assert np.array_equal(data["source_contributing"].sum("source"), data["contributing"])
    assert np.array_equal(data["source_negatives"].sum("source"), data["negatives"])
    np.testing.assert_allclose(data["source_push"].sum("source"), data["push"], rtol=1e-12)
    own = data["source_negatives"].sel(source="own hard")
    assert (own.sel(direction="q2c") == 2).all() and (own.sel(direction="c2q") == 0).all()
    entry = reports.document("count", data)["directions"]["q2c"]
    assert sum(each["push"]["mean"] for each in entry["sources"].values()) == pytest.approx(1)
    assert entry["sources"]["own hard"]["negatives"] == {"mean": 2.0, "std": 0.0}
    wide = measures.count(embeddings, losses.load("mnrl", {"directions": GTE}), **options)
    assert wide["direction"].values.tolist() == ["q2c"]
    assert set(wide["source"].values) == {"in-batch", "own hard", "others' hard", *sources.DIRECTIONS[1:]}
    assert "source" not in measures.count(cocos.Embeddings(embeddings.query, embeddings.candidate[:12]), **options)


def test_a_further_direction_is_the_name_of_its_source():
    assert all(name in sources.SOURCES for name in sources.DIRECTIONS[1:])


def test_a_statistic_by_source_is_a_sum_over_its_columns():
    pairs = Pairs(torch.tensor([[0.8, 0.7, 0.9, 0.1]]), torch.tensor([[True, False, False, False]]),
                  source=torch.tensor([[0, 0, 1, 2]], dtype=torch.int8))  # fmt: skip
    given = torch.tensor([[-3.0, 2.0, 4.0, -0.5]])
    found = statistics.by_source(given, torch.ones(()), pairs, 0.01)
    rest = [0] * (len(sources.SOURCES) - 3)
    assert found["source_push"][0].tolist() == [2, 4, 0, *rest]
    assert found["source_contributing"][0].tolist() == [1, 1, 1, *rest]
    assert found["source_pulled"][0].tolist() == [0, 0, 1, *rest]
    every = statistics.per_query(given, torch.ones(()), pairs)
    assert every["pulled_negatives"].tolist() == [1] and every["pushed_positives"].tolist() == [0]
    assert every["effective"].item() == pytest.approx(math.exp(-math.log(1 / 3) / 3 - 2 * math.log(2 / 3) / 3))


def test_a_teacher_of_positives_and_own_negatives_knows_those_alone():
    embeddings = columns(queries=3, hard=2)
    given = torch.tensor([[0.9, 0.1, 0.2], [0.8, 0.3, 0.4], [0.7, 0.5, 0.6]])
    taught = cocos.Embeddings(embeddings.query, embeddings.candidate[:3], teacher=given,
                              negatives=embeddings.candidate[3:].reshape(3, 2, 6))  # fmt: skip
    matrix = taught.teacher.matrix
    assert matrix[torch.arange(3), torch.arange(3)].tolist() == pytest.approx([0.9, 0.8, 0.7])
    assert matrix[1, 5:7].tolist() == pytest.approx([0.3, 0.4]) and int(matrix.isnan().sum()) == 27 - 9
    assert torch.equal(taught.flip().teacher.matrix.nan_to_num(), matrix.T.nan_to_num())
    batch = whole(taught)
    pairs = scores.pairs(taught, batch)
    assert torch.equal(pairs.teacher.nan_to_num(), matrix[batch.query_index][:, batch.candidate_index].nan_to_num())


def test_graded_pairs_are_set_against_those_of_a_lower_grade():
    side = torch.randn(4, 5, dtype=torch.float64)
    embeddings = cocos.Embeddings(side, side.flip(1), grades=[3, 1, 3, 0])
    pairs = scores.pairs(embeddings, whole(embeddings), graded=True)
    index = whole(embeddings).query_index
    own = torch.cosine_similarity(side, side.flip(1))[index]
    torch.testing.assert_close(pairs.scores, own.expand(4, 4))
    grade = embeddings.grades[index]
    assert torch.equal(pairs.negative, grade[None] < grade[:, None]) and torch.equal(pairs.positive, torch.eye(4) > 0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"negatives": torch.zeros(4, 2, 5)}, r"expected floats \(4, K, 6\)"),
        ({"negatives": torch.full((4, 1, 6), torch.inf)}, "candidate: .*infinity"),
        ({"teacher": torch.zeros(4, 9)}, r"teacher: shape \(4, 9\), expected \(4, 4\)"),
        ({"teacher": torch.full((4, 4), torch.inf)}, "teacher: infinity in row"),
        ({"teacher": (torch.zeros(4, 2), torch.zeros(3, 2))}, r"expected \(4, G\) and \(4, G\)"),
        ({"teacher": "good"}, "teacher: str, expected a matrix of numbers"),
        ({"teacher": torch.full((4, 4), torch.nan)}, "teacher: all scores are NaN"),
        ({"teacher": (torch.zeros(4, 2), None)}, "guide_candidate"),
        ({"grades": [1, 2, 3]}, r"grades: shape \(3,\)"),
        ({"grades": [1, 1, 1, 1]}, "grades of 1 to 1, expected different grades"),
        ({"grades": [1, math.nan, 1, 2]}, "grades: NaN or infinity in row 1"),
    ],
)
def test_columns_that_cannot_be_used_are_named(options, sentence):
    embeddings = columns(queries=4, hard=1)
    with pytest.raises(InputError, match=sentence):
        cocos.Embeddings(embeddings.query, embeddings.candidate[:4], **options)


@pytest.mark.parametrize("given", [("query-query",), ("query-candidate", "query-query", "query-query"), ("sideways",)])
def test_directions_that_are_none_are_named(given):
    with pytest.raises(InputError, match="direction"):
        sources.check(given)
    with pytest.raises(InputError, match="directions must be query-candidate and then some of"):
        losses.load("mnrl", {"directions": given})


def test_a_file_holds_columns_and_they_survive_a_copy(tmp_path):
    embeddings = columns(queries=12, hard=1)
    arrays = {"query": embeddings.query, "candidate": embeddings.candidate[:12]}
    np.savez(tmp_path / "triples.npz", anchor=arrays["query"], positive=arrays["candidate"],
             negative=embeddings.candidate[12:])  # fmt: skip
    np.savez(tmp_path / "guided.npz", **arrays, negatives=embeddings.candidate[12:, None],
             guide_query=embeddings.teacher.guide[0], guide_candidate=embeddings.teacher.guide[1])  # fmt: skip
    np.savez(tmp_path / "graded.npz", **arrays, grades=np.arange(12))
    triples = cocos.open(tmp_path / "triples.npz").embed()
    assert triples.negatives.tolist() == embeddings.negatives.tolist()
    done = CliRunner().invoke(app, ["count", str(tmp_path / "guided.npz"), "--loss", "mnrl", "-p", "filter=guide"])
    assert done.exit_code == 0 and "own hard: " in done.stdout
    refused = CliRunner().invoke(app, ["count", str(tmp_path / "triples.npz"), "--loss", "mnrl", "-p", "filter=guide"])
    assert refused.exit_code == 2 and "mnrl reads teacher, which the embeddings do not have" in refused.stderr
    for name in ("guided.npz", "graded.npz"):
        given = cocos.open(tmp_path / name).embed()
        given.save(tmp_path / f"copy-{name}")
        copy = cocos.open(tmp_path / f"copy-{name}").embed()
        assert (copy.grades is None) == (given.grades is None)
        if given.teacher is not None:
            asks = torch.arange(12), torch.arange(24)
            ours, theirs = (each.teacher.scores("query", asks[0], "candidate", asks[1]) for each in (copy, given))
            torch.testing.assert_close(ours, theirs)


def test_a_guide_knows_rows_of_one_side_and_a_matrix_does_not():
    rows = torch.arange(2)
    guide = teachers.of((torch.eye(2), torch.eye(2).flip(0)), 2, 2)
    for side in ("query", "candidate"):
        assert guide.scores(side, rows, side, rows).tolist() == [[1, 0], [0, 1]]
    matrix = teachers.of(torch.tensor([[0.5, 0.25], [0.1, 0.2]]), 2, 2)
    assert matrix.scores("query", rows, "query", rows).isnan().all()
    assert matrix.scores("candidate", rows, "query", rows).tolist() == matrix.matrix.T.tolist()


@pytest.mark.parametrize(("loss", "graded"), [("cosent", True), ("ntxent", True), ("cosent", False), ("ntxent", False)])
def test_grades_that_a_loss_does_not_read_are_said(loss, graded):
    side = columns(queries=12).query
    embeddings = cocos.Embeddings(side, side.flip(1), grades=torch.arange(12) if graded else None)
    found = kinds(measures.count(embeddings, loss, batch_size=6))
    assert ("unread grades" in found) == (loss == "ntxent" and graded)
    assert ("no grades" in found) == (loss == "cosent" and not graded)


def test_graded_pairs_are_drawn_without_hard_negatives():
    side = columns(queries=12)
    embeddings = cocos.Embeddings(side.query, side.candidate[:12], negatives=side.candidate[12:24],
                                  grades=torch.arange(12))  # fmt: skip
    data = measures.count(embeddings, "cosent", batch_size=6)
    assert "12 of 12 named hard negatives are not drawn" in data.attrs["notes"] + data.attrs["undrawn"]
    assert sorted(data["negatives"].isel(direction=0, batch=0).values.tolist()) == [0, 1, 2, 3, 4, 5]


BELOW = Pairs(torch.tensor([[-0.50, -0.49, -0.52, -0.80]]), torch.tensor([[True, False, False, False]]))


def test_a_relative_margin_drops_what_a_part_of_a_score_below_zero_keeps():
    """The example of sentence-transformers issue 3819: a positive at -0.50, and a negative above it at -0.49."""
    percent, margin = (losses.load("mnrl", filter=rule) for rule in ("percent", "relative_margin"))
    assert percent.masked(BELOW).tolist() == [[False, False, False, False]]
    assert margin.masked(BELOW).tolist() == [[False, True, True, False]]
    assert percent.weight(BELOW)[0].argmax() == 1 and margin.weight(BELOW)[0].argmax() == 3
    above = BELOW.with_scores(-BELOW.scores)
    assert torch.equal(percent.masked(above), margin.masked(above))
    assert [loss.extra(BELOW, 0.01) for loss in (percent, margin)] == [{"below_zero": torch.tensor([1.0])}, {}]


def test_counts_and_audits_say_how_many_positives_score_below_zero():
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(64, 8, generator=generator)
    candidate = query + 2 * torch.randn(64, 8, generator=generator)
    embeddings = Embeddings(query, candidate)
    below = int((torch.cosine_similarity(query, candidate) < 0).sum())
    assert 0 < below < 32
    for rule, there in (("percent", True), ("relative_margin", False), ("self", False)):
        data = measures.count(embeddings, losses.load("mnrl", filter=rule), batch_size=32)
        assert ("below zero" in {finding.kind for finding in findings.of(data)}) == there, rule
    entry = reports.document("count", measures.count(embeddings, losses.load("mnrl", filter="percent"), batch_size=32))
    assert entry["directions"]["q2c"]["below_zero"]["mean"] == pytest.approx(below / 64)
    data = measures.audit(embeddings, "mnrl", rules=["group"], batch_size=32)
    found = reports.document("audit", data)["directions"]["q2c"]["filters"]
    assert {label: each["below_zero"] for label, each in found.items() if label.startswith("percent")} == dict.fromkeys(
        ("percent 0.8", "percent 0.9", "percent 0.95", "percent 0.99"), below
    )
    asked = measures.audit(embeddings, "mnrl", rules=["group"], filters={"relative_margin": []}, batch_size=32)
    replayed = reports.document("audit", asked)["directions"]["q2c"]["filters"]
    for part in ("0.8", "0.95"):
        assert replayed[f"relative_margin {part}"]["filter_share"] > found[f"percent {part}"]["filter_share"]
