"""Scores from files: matrices, long tables, TREC runs; a stranger's file gets one sentence."""

import json
import re

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cocos
from cocos.base.errors import InputError
from cocos.cli import app
from cocos.measures.shared import rankings

# A small run with ties, some of them only in float32, and its judgements; made at random, seed 11.
QRELS = {
    "q0": {"d11": 2, "d12": 1, "d13": 0, "d2": 0, "d3": 0, "d7": 2, "d8": 0},
    "q1": {"d0": 0, "d10": 0, "d11": 0, "d12": 0, "d6": 0, "d7": 0, "d8": 0},
    "q2": {"d0": 2, "d11": 2, "d3": 1, "d5": 0, "d7": 0, "d8": 2, "d9": 1},
    "q3": {"d1": 0, "d10": 2, "d11": 0, "d3": 1, "d4": 2, "d5": 0, "d8": 0},
}
RUN = {
    "q0": {"d0": 0.25, "d10": 1.0, "d12": 0.75, "d13": 0.5, "d3": 0.75},
    "q1": {
        "d0": 1.0,
        "d1": 0.5,
        "d10": 0.75,
        "d12": 1.000000001,
        "d13": 1.000000001,
        "d2": 0.5,
        "d3": 0.5,
        "d8": 0.250000001,
    },
    "q2": {"d10": 1.000000001, "d2": 0.500000001, "d3": 0.250000001, "d6": 0.750000001, "d9": 0.75},
    "q9": {"d1": 1.0},
}
# What pytrec_eval-terrier 0.5.11 says of them (map, recip_rank, ndcg_cut, recall).
GOLDEN = {
    "q0": {
        "map": 0.1111111111111111,
        "ndcg_cut_1": 0.0,
        "ndcg_cut_5": 0.13291299131469791,
        "recall_1": 0.0,
        "recall_5": 0.3333333333333333,
        "recip_rank": 0.3333333333333333,
    },
    "q1": {"map": 0.0, "ndcg_cut_1": 0.0, "ndcg_cut_5": 0.0, "recall_1": 0.0, "recall_5": 0.0, "recip_rank": 0.0},
    "q2": {
        "map": 0.18,
        "ndcg_cut_1": 0.0,
        "ndcg_cut_5": 0.20037500304931566,
        "recall_1": 0.0,
        "recall_5": 0.4,
        "recip_rank": 0.5,
    },
}
OURS = {"map": "MAP", "recip_rank": "MRR", "ndcg_cut_1": "nDCG@1", "ndcg_cut_5": "nDCG@5"}
OURS |= {"recall_1": "recall@1", "recall_5": "recall@5"}
TABLE = "query,candidate,score,label,logq\na,x,2,1,-1\na,y,1,0,-2\na,z,0.5,0,-3\nb,y,3,0,-2\nb,x,2,1,-1\n"


def run_file(folder, run=None):
    """Write a run."""
    lines = [f"{query} Q0 {name} 0 {score!r} t" for query, own in (run or RUN).items() for name, score in own.items()]
    (folder / "run.trec").write_text("\n".join(lines) + "\n")
    return folder / "run.trec"


def judgements(folder, qrels=None):
    """Write judgements as TREC has them."""
    rows = [f"{query} 0 {name} {grade}" for query, own in (qrels or QRELS).items() for name, grade in own.items()]
    (folder / "judged.txt").write_text("\n".join(rows) + "\n")
    return folder / "judged.txt"


def beir(folder):
    """Write judgements as BEIR has them."""
    (folder / "qrels").mkdir()
    rows = [f"{query}\t{name}\t{grade}" for query, own in QRELS.items() for name, grade in own.items()]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    return folder


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.mark.parametrize("form", [judgements, beir])
def test_metrics_of_a_run_are_those_of_trec_eval_to_the_last_digit(tmp_path, form):
    scores = cocos.open(run_file(tmp_path), data=form(tmp_path)).embed()
    found = rankings.metrics(scores, [1, 5])
    assert list(scores.names[0]) == list(GOLDEN)
    for row, (query, expected) in enumerate(GOLDEN.items()):
        for theirs, value in expected.items():
            assert found[OURS[theirs]][row] == value, (query, theirs)


def test_evaluate_prints_the_means_and_count_takes_the_queries_with_a_listed_positive(tmp_path):
    judged, run = beir(tmp_path), run_file(tmp_path)
    found = json.loads(call("evaluate", str(run), "--data", str(judged), "--k", "1,5", "--json").stdout)
    mean = 100 * np.mean([each["ndcg_cut_5"] for each in GOLDEN.values()])
    assert found["directions"]["q2c"]["nDCG@5"]["mean"] == pytest.approx(mean, rel=1e-12)
    counted = json.loads(call("count", str(run), "--loss", "ntxent", "--json").stdout)
    listed = [query for query in GOLDEN if any(QRELS[query].get(name, 0) > 0 for name in RUN[query])]
    assert counted["directions"]["q2c"]["queries"] == len(listed)
    assert counted["checkpoint"]["format"] == "scores"


def test_a_table_is_read_as_lists_with_their_logq(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text(TABLE)
    scores = cocos.open(path).embed()
    assert scores.scores.tolist() == [[2, 1, 0.5], [3, 2, 0]]
    assert scores.positive.tolist() == [[True, False, False], [False, True, False]]
    assert scores.negative.tolist() == [[False, True, True], [True, False, False]]
    assert scores.pairs(torch.arange(2)).logq.tolist() == [[-1, -2, -3], [-2, -1, -1]]
    rows = [dict(zip(TABLE.split()[0].split(","), line.split(","), strict=True)) for line in TABLE.split()[1:]]
    lines = [json.dumps({k: v if k in {"query", "candidate"} else float(v) for k, v in row.items()}) for row in rows]
    (tmp_path / "scores.jsonl").write_text("\n".join(lines))
    assert torch.equal(cocos.open(tmp_path / "scores.jsonl").embed().scores, scores.scores)
    found = json.loads(call("count", str(path), "--loss", "logq_softmax", "--json").stdout)
    assert found["directions"]["q2c"]["queries"] == 2


def test_a_parquet_table_is_read(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.DataFrame({"query": [1, 1], "candidate": [5, 6], "score": [0.5, 0.1], "label": [1, 0]}).to_parquet(
        tmp_path / "scores.parquet"
    )
    assert cocos.open(tmp_path / "scores.parquet").embed().names == (["1"], ["5", "6"])


def test_arrays_are_read(tmp_path):
    scores, positive = np.random.default_rng(0).normal(size=(3, 4)), np.eye(3, 4, dtype=bool)
    np.savez(tmp_path / "scores.npz", scores=scores, positive=positive, logq=np.full(4, -1.0))
    found = cocos.open(tmp_path / "scores.npz").embed()
    assert torch.equal(found.scores, torch.from_numpy(scores)) and torch.equal(found.positive, torch.eye(3, 4) > 0)
    np.savez(tmp_path / "groups.npz", scores=scores, query_group=["a", "b", "c"], candidate_group=["a", "b", "c", "a"])
    assert cocos.open(tmp_path / "groups.npz").embed().positive.sum() == 4
    np.savez(tmp_path / "square.npz", scores=np.asfortranarray(scores[:, :3]))
    square = cocos.open(tmp_path / "square.npz").embed()
    assert torch.equal(square.scores, torch.from_numpy(scores[:, :3])) and torch.equal(
        square.positive, torch.eye(3) > 0
    )
    from safetensors.torch import save_file

    save_file({"scores": torch.from_numpy(scores), "positive": torch.from_numpy(positive)}, tmp_path / "s.safetensors")
    assert torch.equal(cocos.open(tmp_path / "s.safetensors").embed().scores, found.scores)


@pytest.mark.parametrize(
    "old, new, why",
    [
        ("label,logq", "labels,logq", "training data|no table|column"),
        ("candidate,score", "document,score", "there is no column 'candidate'"),
        ("a,y,1,0,-2", "a,y,nan,0,-2", "line 3: score 'nan', expected a finite number"),
        ("a,y,1,0,-2", "a,x,1,0,-1", "query 'a' and candidate 'x' are paired twice"),
        ("a,y,1,0,-2", "a,y,1,2,-2", "line 3: label 2, expected 1 or 0"),
        ("a,y,1,0,-2\na,z,0.5,0,-3\nb,y,3,0,-2", "a,y,1,0,0.5\na,z,0.5,0,-3\nb,y,3,0,0.5", "logq: 0.5 of candidate 1"),
        ("b,x,2,1,-1", "b,x,2,0,-1", "query row 1: no positive"),
    ],
)
def test_a_bad_table_gets_one_sentence(tmp_path, old, new, why):
    path = tmp_path / "scores.csv"
    path.write_text(TABLE.replace(old, new))
    with pytest.raises(InputError, match=why) as error:
        cocos.open(path).embed()
    assert "\n" not in str(error.value) and str(path) in str(error.value)
    done = call("count", str(path), "--loss", "ntxent")
    assert done.exit_code == 2 and not done.stdout and "Traceback" not in done.stderr


def test_bad_arrays_and_runs_get_one_sentence(tmp_path):
    np.savez(tmp_path / "a.npz", scores=np.full((2, 2), np.nan))
    np.savez(tmp_path / "b.npz", scores=np.zeros((2, 3)))
    np.savez(tmp_path / "c.npz", scores=np.zeros((2, 2)), positives=np.eye(2))
    for name, why in (("a", "NaN or infinity"), ("b", "neither positive nor groups"), ("c", "did you mean 'positive'")):
        with pytest.raises(InputError, match=why):
            cocos.open(tmp_path / f"{name}.npz")
    run = run_file(tmp_path)
    with pytest.raises(InputError, match="without judgements"):
        cocos.open(run)
    with pytest.raises(InputError, match="none of its queries is judged"):
        cocos.open(run, data=judgements(tmp_path, {"other": {"d1": 1}}))
    for name, arrays, why in (
        ("d", {"positive": np.eye(3, 4)[:2]}, r"positive: shape \(2, 4\), expected \(3, 4\)"),
        (
            "e",
            {"positive": np.eye(3, 4), "logq": -np.ones(3)},
            r"logq: shape \(3,\), expected \(4,\), one per candidate",
        ),
        (
            "f",
            {"positive": np.eye(3, 4), "logq": np.array([-1, -1, 0.2, -1])},
            "logq: 0.2 of candidate 2, expected the",
        ),
        ("g", {"positive": np.eye(3, 4) * [[1], [0], [1]]}, "query row 1: no positive"),
        ("h", {"positive": np.eye(3, 4), "grade": np.zeros((3, 3))}, r"grade: shape \(3, 3\), expected \(3, 4\)"),
    ):
        np.savez(tmp_path / f"{name}.npz", scores=np.zeros((3, 4)), **arrays)
        done = CliRunner().invoke(app, ["count", str(tmp_path / f"{name}.npz"), "--loss", "ntxent"])
        assert done.exit_code == 2 and re.search(why, done.stderr) and len(done.stderr.strip().splitlines()) == 1
    (tmp_path / "judged.txt").write_text("q0 0 d1 one\n")
    with pytest.raises(InputError, match="grade: .*'one', expected finite numbers"):
        cocos.open(run, data=tmp_path / "judged.txt")
    (tmp_path / "nan.trec").write_text("q0 Q0 d1 1 nan t\n")
    with pytest.raises(InputError, match="score 'nan', expected a finite number"):
        cocos.open(tmp_path / "nan.trec", data=judgements(tmp_path))
    run.write_text(run.read_text() + run.read_text().splitlines()[0] + "\n")
    with pytest.raises(InputError, match="paired twice"):
        cocos.open(run, data=judgements(tmp_path))


def test_the_push_on_unjudged_candidates_is_counted_and_audited(tmp_path):
    run, judged = run_file(tmp_path), judgements(tmp_path)
    scores = cocos.open(run, data=judged).embed()
    unjudged = {
        (scores.names[0].index(query), scores.names[1].index(name))
        for query in GOLDEN
        for name in RUN[query]
        if name not in QRELS[query] and any(QRELS[query].get(each, 0) > 0 for each in RUN[query])
    }
    data = cocos.measures.audit(scores, "ntxent")
    found = set(zip(data["query_index"].values.tolist(), data["candidate_index"].values.tolist(), strict=True))
    assert found == unjudged and data["rule"].values.tolist() == ["unjudged", "any rule"]
    counted = cocos.measures.count(scores, "ntxent")
    assert counted["marked_negatives"].sum() == len(unjudged)
    done = call("audit", run, "--data", judged, "--loss", "ntxent", "--json")
    assert json.loads(done.stdout)["directions"]["q2c"]["rules"]["unjudged"]["suspects"] == len(unjudged)
    query, candidate = cocos.open(run, data=judged).items("train").texts("q2c")
    assert {(query(row), candidate(place)) for row, place in unjudged} <= {(q, d) for q in RUN for d in RUN[q]}
