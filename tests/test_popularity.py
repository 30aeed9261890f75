"""Part of the push on the most frequent candidates of a recommender, with logQ correction and without."""

import json
import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from cocos import Embeddings, InputError, Scores, losses, measures
from cocos.commands import app
from cocos.counting import statistics
from cocos.embeddings import scores as scoring
from cocos.reports import findings

QUERIES, ITEMS, LISTED = 12, 150, 20


@pytest.fixture
def log(tmp_path):
    """A recommender's log: lists of different lengths, of popular items above all; and its rows."""
    generator = torch.Generator().manual_seed(3)
    frequency = torch.arange(1, ITEMS + 1).double() ** -1.0
    frequency /= frequency.sum()
    rows = [(f"u{QUERIES}", f"i{item}", 0.0, int(item == 7), frequency[item].log().item()) for item in range(ITEMS)]
    for query in range(QUERIES):
        drawn = torch.multinomial(frequency, LISTED - query % 5, generator=generator).tolist()
        for place, item in enumerate(drawn):
            score = torch.randn((), generator=generator, dtype=torch.float64).item()
            rows.append((f"u{query}", f"i{item}", score, int(place == 0), frequency[item].log().item()))
    lines = ["query,candidate,score,label,logq", *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    return tmp_path / "log.csv", rows


def slow(rows, corrected):
    """Part of the push, and of the negatives, on the two most frequent of 150 items, in plain floats."""
    popular = {f"i{item}" for item in range(2)}  # 1 % of 150, rounded up
    push = {True: 0.0, False: 0.0}
    number = {True: 0, False: 0}
    for query in {row[0] for row in rows}:
        own = [(item, score - (logq if corrected else 0), label) for q, item, score, label, logq in rows if q == query]
        total = math.fsum(math.exp(z) for _, z, _ in own)
        for item, z, label in own:
            if not label:
                push[item in popular] += math.exp(z) / total
                number[item in popular] += 1
    return push[True] / (push[True] + push[False]), number[True] / (number[True] + number[False])


def test_the_parts_are_those_of_a_slow_loop(log):
    path, rows = log
    done = CliRunner().invoke(app, ["count", str(path), "--json", "-q"])
    found = json.loads(done.stdout)["directions"]["q2c"]
    plain, negatives = slow(rows, corrected=False)
    corrected, _ = slow(rows, corrected=True)
    assert found["frequent_push_plain"]["mean"] == pytest.approx(plain, rel=1e-9)
    assert found["frequent_push"]["mean"] == pytest.approx(corrected, rel=1e-9)
    assert found["frequent_negatives"]["mean"] == pytest.approx(negatives, rel=1e-12)
    assert corrected < plain / 5


def test_the_table_and_a_finding_say_both(log):
    path, rows = log
    text = " ".join(CliRunner().invoke(app, ["count", str(path)]).output.split())
    plain, negatives = slow(rows, corrected=False)
    assert f"the most frequent 1 % of the candidates, {100 * negatives:.2f} % of the negatives" in text
    assert f"receive {100 * plain:.2f} % of the push; with logQ {100 * slow(rows, corrected=True)[0]:.3g}" in text
    assert "their part of the push without logQ, %" in text


def test_a_loss_that_does_not_correct_says_so(log):
    path, rows = log
    text = " ".join(
        CliRunner().invoke(app, ["count", str(path), "--loss", "ntxent", "-p", "temperature=1"]).output.split()
    )
    assert f"receive {100 * slow(rows, corrected=False)[0]:.2f} % of the push, and the loss has no logQ" in text


def test_the_most_frequent_are_one_in_a_hundred_and_the_first_of_equals():
    assert statistics.most_frequent(torch.full((250,), -5.0)).nonzero().flatten().tolist() == [0, 1, 2]
    assert statistics.most_frequent(torch.tensor([-2.0, -1.0])).tolist() == [False, True]


def embedded(tmp_path=None):
    """Users and items of a two-tower model, and the frequencies of the items."""
    generator = torch.Generator().manual_seed(5)
    query, noise = (torch.randn(200, 8, generator=generator, dtype=torch.float64) for _ in range(2))
    logq = (torch.arange(1, 201).double() ** -1.0).div(6).log()
    return query, query + noise, logq


@pytest.mark.parametrize("name", ("logq_softmax", "ntxent"))
def test_embeddings_with_logq_are_counted_in_their_batches(tmp_path, name):
    """The two most frequent of 200 items, in batches of 50 that hold some of them, by a slow loop over the batches."""
    query, candidate, logq = embedded()
    np.savez(tmp_path / "towers.npz", query=query, candidate=candidate, logq=logq)
    words = ["count", str(tmp_path / "towers.npz"), "--loss", name, "-p", "temperature=0.2", "--batch-size", "50"]
    document = json.loads(CliRunner().invoke(app, [*words, "--json", "-q"]).stdout)
    data = measures.count(Embeddings(query, candidate, logq=logq), losses.load(name, temperature=0.2), batch_size=50)
    scores = scoring.METRICS[losses.load(name).metric](query, candidate) / 0.2
    for key, corrected in (("frequent_push_plain", False), ("frequent_push", name == "logq_softmax")):
        logits = scores - logq if corrected else scores
        push, every = 0.0, 0.0
        for batch in data["query_index"].sel(direction="q2c").values.astype(int):
            own = logits[batch][:, batch].softmax(dim=1).fill_diagonal_(0)
            push, every = push + float(own[:, batch < 2].sum()), every + float(own.sum())
        assert document["directions"]["q2c"][key]["mean"] == pytest.approx(push / every, rel=1e-9)
    assert document["directions"]["c2q"]["frequent_push"]["mean"] is None  # users are asked, who have no frequencies
    text = CliRunner().invoke(app, words).output
    assert "q2c: the most frequent 1 %" in text and "c2q: the most frequent" not in text and "nan" not in text


def test_frequencies_follow_their_rows():
    query, candidate, logq = embedded()
    embeddings = Embeddings(query, candidate, logq=logq)
    assert torch.equal(embeddings.flip().flip().logq, logq) and embeddings.flip().logq is None
    rows = torch.tensor([3, 1])
    assert torch.equal(embeddings.rows(rows, rows).logq, logq[rows])
    pairs = scoring.pairs(embeddings)
    assert torch.equal(pairs.logq, logq) and pairs.flip().logq is None
    assert torch.equal(pairs.flip().flip().logq, logq)
    wide = scoring.pairs(embeddings, directions=("query-candidate", "query-query"))
    assert torch.equal(wide.narrow().logq, logq) and (wide.logq[200:] == 0).all()


@pytest.mark.parametrize(
    ("logq", "sentence"),
    [
        ([-1.0], r"logq: shape \(1,\), expected \(2,\), one for each row of candidate"),
        ([-1.0, 0.5], "logq: 0.5 of row 1, expected the log of a probability, finite and at most 0"),
    ],
)
def test_a_logq_of_embeddings_that_is_none_gets_a_sentence(logq, sentence):
    with pytest.raises(InputError, match=sentence):
        Embeddings(torch.eye(2), torch.eye(2), logq=torch.tensor(logq))


def test_without_logq_nothing_is_said():
    data = measures.count(Scores(torch.zeros(2, 4), torch.eye(2, 4).bool()), losses.load("ntxent"))
    assert not [name for name in data if "frequent" in str(name)]
    assert not [each for each in findings.of(data) if each.kind == "frequent" and each.state == "found"]
