"""The verdict of a count: its kinds on constructed scores, one sentence, one command, and the row to report."""

import json

import pytest
import torch

from cocos import Embeddings, losses, measures, reports
from cocos.counting import verdicts
from cocos.reports import count as report


def entry(**means):
    return {name: {"mean": value, "std": None} for name, value in means.items()}


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("silent", {"negatives": 127, "effective": None}),
        ("flat", {"negatives": 127, "effective": 120, "idle_fraction": 1.0, "idle_pull": 1.0}),
        ("thin", {"negatives": 1000, "effective": 300, "idle_fraction": 0.9, "idle_pull": 0.8}),
        ("starved", {"negatives": 121.1, "effective": 17, "idle_fraction": 0.73, "idle_pull": 0.085}),
        ("starved", {"negatives": 127, "effective": 1.4, "idle_fraction": 0.51, "idle_pull": 0.0}),
        ("sharp", {"negatives": 127, "effective": 1.9, "idle_fraction": 0.5, "idle_pull": 0.0}),
        ("wasteful", {"negatives": 127, "effective": 6.0, "idle_fraction": 0.0, "idle_pull": 0.0}),
        ("fine", {"negatives": 127, "effective": 6.5, "idle_fraction": 0.0, "idle_pull": 0.0}),
        ("fine", {"negatives": 127, "effective": 110, "idle_fraction": 0.0, "idle_pull": 0.0}),
        ("fine", {"negatives": 7, "effective": 7.0, "idle_fraction": 0.0, "idle_pull": 0.0}),
        ("sharp", {"negatives": 127, "effective": 1.5}),  # where the unit of a loss is not known
        ("fine", {"negatives": 127, "effective": 17.6}),
    ],
)
def test_each_kind_has_its_limits(kind, given):
    found = verdicts.of(entry(**given))
    assert found.kind == kind and found.severity == verdicts.SEVERITY[kind]
    assert found.document().keys() == {"kind", "severity", "numbers", "command", "options"}
    json.dumps(found.document(), allow_nan=False)


def test_what_makes_a_count_meaningless_goes_first():
    fine = entry(negatives=127, effective=17)
    assert verdicts.of(fine, collapsed=True, at_chance=True).kind == "collapsed"
    assert verdicts.of(fine, at_chance=True, alike=True).kind == "mispaired"
    assert verdicts.of(fine, alike=True).kind == "alike"
    assert list(verdicts.SEVERITY)[:3] == ["collapsed", "mispaired", "alike"] and list(verdicts.SEVERITY)[-1] == "fine"


def near(noise=1.0, rows=300, width=16):
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(rows, width, generator=generator)
    return Embeddings(query, query + noise * torch.randn(rows, width, generator=generator))


@pytest.mark.parametrize(
    ("kind", "loss", "parameters", "noise"),
    [
        ("fine", "ntxent", {"temperature": 0.1}, 0.8),
        ("flat", "ntxent", {"temperature": 20.0}, 0.8),
        ("starved", "ntxent", {"temperature": 0.05}, 0.4),
        ("sharp", "triplet_sh", {"margin": 0.3}, 1.5),
        ("wasteful", "triplet", {"margin": 0.2}, 0.8),
        ("silent", "triplet", {"margin": 0.01}, 0.01),
    ],
)
def test_a_count_says_so_what_in_one_sentence(kind, loss, parameters, noise):
    data = measures.count(near(noise), losses.load(loss, parameters))
    document = measures.document("count", data)
    assert {each["kind"] for each in document["verdicts"].values()} == {kind}
    table = reports.table("count", data)
    assert [line.partition(":")[0] for line in table.head] == ["q2c", "c2q", kind.capitalize()]
    assert "collapsed" not in table.text(80)
    (marked,) = (row[0] for row in table.rows if row[0].startswith("* "))
    assert marked == "* contributing negatives per query"
    published = measures.count(near(noise), losses.load(loss, parameters), convention="ecir2022")
    (marked,) = (row[0] for row in reports.table("count", published).rows if row[0].startswith("* "))
    assert marked.endswith("(C^A)")


def test_the_pull_of_queries_without_any_is_said():
    """A softmax pulls them all the same: "idle" alone suggests a gradient of zero."""
    data = measures.count(near(0.4), losses.load("ntxent", {"temperature": 0.05}))
    found = measures.document("count", data)["directions"]["q2c"]
    one = data.sel(direction="q2c")
    share = (
        one["weight_positive_per_query"].where(one["contributing"] == 0).sum() / one["weight_positive_per_query"].sum()
    )
    assert 0.01 < found["idle_pull"]["mean"] == pytest.approx(float(share), rel=1e-5)
    first = reports.table("count", data).head[0]
    assert f"have none, and hold {100 * found['idle_pull']['mean']:.1f} % of the pull" in first
    hinge = measures.document("count", measures.count(near(0.4), "triplet"))["directions"]["q2c"]
    assert hinge["idle_pull"]["mean"] == 0 and hinge["idle_fraction"]["mean"] > 0.1


def cubic(scores, positive, negative):
    """A loss of a user's whose weights are no softmax, sigmoid or hinge of its scores."""
    return (torch.where(negative, scores + 1, 0) ** 3).sum(dim=1) - torch.where(positive, scores, 0).sum(dim=1)


def test_a_loss_with_an_unknown_unit_is_described_by_its_push():
    data = measures.count(near(0.8), cubic)
    table = reports.table("count", data)
    assert "of 114.68 negatives have more than 1 % of the push." in table.head[0]
    assert table.head[2].startswith("Fine: ") and "none" not in " ".join(cell for row in table.rows for cell in row)
    (marked,) = (row[0] for row in table.rows if row[0].startswith("* "))
    assert marked == "* negatives with more than 1 % of the push"
    two = report.overview({"cubic": data, "ntxent": measures.count(near(0.8), "ntxent")})
    assert "have more than 1 % of the push: fine." in two.head[0] and "contribute, " in two.head[1]
