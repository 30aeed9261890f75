"""Part of the push on the most frequent candidates of a recommender, with logQ correction and without."""

import json
import math

import pytest
import torch
from typer.testing import CliRunner

from cocos import Scores, losses, measures
from cocos.commands import app
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
    scores, positive = torch.zeros(2, 250), torch.eye(2, 250).bool()
    data = Scores(scores, positive, logq=torch.full((250,), -5.0))
    assert data.frequent.nonzero().flatten().tolist() == [0, 1, 2]
    assert Scores(scores, positive).frequent is None


def test_without_logq_nothing_is_said():
    data = measures.count(Scores(torch.zeros(2, 4), torch.eye(2, 4).bool()), losses.load("ntxent"))
    assert not [name for name in data if "frequent" in str(name)]
    assert not [each for each in findings.of(data) if each.kind == "frequent" and each.state == "found"]


@pytest.mark.parametrize(("negatives", "centring", "said"), [(1, 0, True), (2, 0, False), (1, 0.1, False)])
def test_one_negative_pushed_as_the_positive_is_pulled_is_said(negatives, centring, said):
    """Both scores may fall where the two weights are one number; centring makes them two, and two negatives share."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(20, 1 + negatives, generator=generator, dtype=torch.float64) + 3
    positive = torch.zeros_like(scores, dtype=torch.bool)
    positive[:, 0] = True
    data = measures.count(Scores(scores, positive), losses.load("bradley_terry", {"centring": centring}))
    found = [each for each in findings.of(data) if each.kind == "one against one" and each.state == "found"]
    assert bool(found) == said
    if said:
        idle = (data["contributing"] == 0).mean().item()
        assert f"{100 * idle:.1f} % of the pairs are idle" in found[0].sentence
