"""The benchmarks: what they print must be earned, so the harness, its gate and its arithmetic are tested themselves."""

import functools
import subprocess
import sys
from dataclasses import replace
from unittest import mock

import pytest
import torch
from torch.nn.functional import normalize

from benchmarks import adapter, exact, figures, host, monitor, peers, table, ways
from benchmarks.__main__ import child
from benchmarks.cases import CASES, FLOOR, NTXENT, TIERS, Bar, Case, Reading, Row, all_cases, selected
from benchmarks.child import peak, speeds, times
from benchmarks.inputs import KINDS, Inputs
from cocos import losses, measures
from cocos.counting import weights
from cocos.embeddings import scores

SMOKE = next(case for case in CASES if case.name == "smoke")


@pytest.mark.slow
def test_a_tiny_case_runs_through_the_harness_in_a_fresh_process():
    found = child("times", "smoke", "cpu", "2")
    assert list(found) == [row.name for row in SMOKE.rows]
    for row in found.values():
        assert len(row["seconds"]) == len(row["floor"]) == 2 and min(row["seconds"]) > 0
    assert found[FLOOR]["seconds"] == found[FLOOR]["floor"]
    assert found[NTXENT]["checked"] == 2 * SMOKE.inputs.queries
    lines = table.case_lines(SMOKE, found, figures.verdicts(SMOKE, found))
    assert max(map(len, lines)) <= 100
    assert any(line.startswith(NTXENT) and line.endswith("ok") for line in lines)


def test_a_child_that_fails_says_why(monkeypatch):
    ended = subprocess.CompletedProcess([], 1, "", "Traceback (most recent call last):\n  ...\nStopIteration\n")
    monkeypatch.setattr("benchmarks.__main__.subprocess.run", lambda *given, **how: ended)
    with pytest.raises(RuntimeError, match="^StopIteration$"):
        child("times", "no such case", "cpu", "1")


def spoiled(monkeypatch, change):
    """A pass that gives what it should, changed."""
    right = adapter.passed

    def run(view, readers):
        found = right(view, readers)
        for statistics in found[0]:
            change(statistics)
        return found

    monkeypatch.setattr(adapter, "passed", run)


def test_the_gate_refuses_a_wrong_counter(monkeypatch):
    def one_too_many(statistics):
        statistics["contributing"][17] += 1

    spoiled(monkeypatch, one_too_many)
    found = times(SMOKE, rounds=1)
    assert "seconds" not in found[NTXENT]
    assert found[NTXENT]["refused"].startswith("ntxent, q2c: contributing of query 17")
    assert found[FLOOR]["seconds"]
    assert [verdict.ok for verdict in figures.verdicts(SMOKE, found)[NTXENT]] == [False]


def test_a_long_row_without_a_bar_is_timed_once(monkeypatch):
    monkeypatch.setattr("benchmarks.child.LONG", 0)
    found = times(SMOKE, rounds=3)
    assert [len(found[row.name]["seconds"]) for row in SMOKE.rows] == [1, 3, 1]  # the pass has a bar


@pytest.mark.parametrize("name", ["weight_above", "push", "effective", "hardest_share"])
def test_the_gate_refuses_a_sum_that_is_a_percent_off(monkeypatch, name):
    spoiled(monkeypatch, lambda statistics: statistics[name].mul_(1.01))
    with pytest.raises(exact.Wrong, match=name):
        exact.gate(SMOKE.rows[1], SMOKE, "cosine")


def test_the_gate_refuses_what_is_not_there_and_what_is_never_sure(monkeypatch):
    with monkeypatch.context() as patch:
        spoiled(patch, lambda statistics: statistics.pop("participation"))
        with pytest.raises(exact.Wrong, match="participation"):
            exact.gate(SMOKE.rows[1], SMOKE, "cosine")
    spoiled(monkeypatch, lambda statistics: statistics["uncertain"].fill_(1000))
    with pytest.raises(exact.Wrong, match="undecided"):
        exact.gate(SMOKE.rows[1], SMOKE, "cosine")


def test_some_queries_of_the_full_size_are_looked_at():
    row = SMOKE.rows[1]
    embeddings, batches = Inputs(600, 8).draw()
    found = ways.prepare(row, embeddings, batches, "cosine")()
    assert exact.at_size(row, found, embeddings) == 2 * exact.SPOT
    found[0][0][1]["contributing"][301] += 1
    with pytest.raises(exact.Wrong, match="c2q"):
        exact.at_size(row, found, embeddings)


@pytest.mark.parametrize("name", ["triplet", "ntxent", "smoothap"])
@pytest.mark.parametrize("batches", [1, 3])
def test_the_public_count_passes_the_gate(name, batches):
    inputs = Inputs(24, 16, per_query=5 if name == "smoothap" else 1, batches=batches)
    row = Row(name, "count", (Reading(name, spread=False),))
    assert exact.gate(row, Case("", inputs, (row,)), "cosine") == 24 * batches * (1 + inputs.per_query)


@pytest.mark.parametrize("name", ["triplet", "ntxent"])
def test_autograd_and_counting_is_the_count(name):
    row = Row(name, "naive", (Reading(name),))
    assert exact.gate(row, Case("", Inputs(24, 16), (row,)), "cosine") == 48
    query, candidate = Inputs(24, 16).draw()[0].query, Inputs(24, 16).draw()[0].candidate
    counts = peers.naive(losses.load(name), 0.01)(query, candidate)
    assert len(counts) == 2 and int(counts[0][0].sum()) > 0


def test_argsort_ranks_are_those_of_a_loop():
    embeddings = Inputs(6, 8, "faint", per_query=2).draw()[0]
    there, back = peers.PEERS["argsort"](embeddings)()
    scored = embeddings.query @ embeddings.candidate.T
    for q in range(6):
        assert there[q] == (scored[q] > scored[q, 2 * q : 2 * q + 2].max()).sum()
    assert len(back) == 12 and back[3] == (scored[:, 3] > scored[1, 3]).sum()


def test_a_map_is_opened_without_a_second_copy_of_its_values():
    embeddings = Inputs(8, 4, others=40).draw()[0]
    opened = peers.mapped(embeddings)()
    assert torch.equal(opened.candidate, embeddings.candidate) and opened.directions == ("q2c",)
    (found,) = peers.map_pass(opened, lambda: ways.reader(Reading("ntxent")))()
    assert len(found[0][0]["contributing"]) == 8


def test_two_threads_are_timed_beside_one():
    row = Row("ntxent", "pass", (Reading("ntxent"),), (Bar(1.0, what="speed", least=True),))
    case = Case("", Inputs(40, 8), (Row(FLOOR, "bare"), row), rounds=0)
    before = torch.get_num_threads()
    found = speeds(case)
    torch.set_num_threads(before)
    assert len(found["ntxent"]["one"]) == len(found["ntxent"]["two"]) == len(found["ntxent"]["load"])
    lines = table.case_lines(case, found, figures.verdicts(case, found))
    assert any("speed of two threads" in line for line in lines) and max(map(len, lines)) <= 110


@pytest.mark.parametrize("name", ["triplet", "ntxent", "smoothap"])
def test_the_published_way_counts_what_the_reference_counts(name):
    inputs = Inputs(24, 16, per_query=5 if name == "smoothap" else 1)
    row = Row(name, "published", (Reading(name),))
    assert exact.gate(row, Case("", inputs, (row,)), "cosine") == 24 * (1 + inputs.per_query)


def test_the_autograd_baseline_is_the_gradient_of_both_directions():
    embeddings = Inputs(20, 8).draw()[0].to(dtype=torch.float64)
    embeddings = replace(embeddings, query=normalize(embeddings.query), candidate=normalize(embeddings.candidate))
    reading = Reading("ntxent", {"temperature": 0.05})
    loss = ways.loss_of(reading)
    there, back = (weights.of(loss, scores.pairs(side)) for side in (embeddings, embeddings.flip()))
    torch.testing.assert_close(ways.autograd(embeddings.query, embeddings.candidate, loss), there + back.T)
    siglip = ways.loss_of(Reading("siglip"))
    found = ways.autograd(embeddings.query, embeddings.candidate, siglip)
    torch.testing.assert_close(found, siglip.weight(scores.pairs(embeddings)))  # of either direction


def test_ratios_are_taken_within_rounds():
    found = figures.ratio([2.0, 9.0, 40.0], [1.0, 2.0, 10.0])
    assert (found.value, found.low, found.high) == (4.0, 2.0, 4.5)
    with pytest.raises(ValueError, match="shorter"):
        figures.ratio([1.0, 2.0], [1.0])


def test_the_exponent_is_that_of_the_three_largest_sizes():
    values = {size: 3e-9 * size**1.5 for size in (512, 1024, 4096)} | {128: 1.0}
    assert figures.exponent(values) == pytest.approx(1.5)
    assert figures.exponent({128: 1.0, 256: 2.0}) is None
    assert figures.exponent({128: 0, 256: 2.0, 512: 3.0}) is None


def test_growth_judges_the_time_of_passes_alone():
    cases = [case for case in CASES if case.series == "growth"][:3]
    found = {
        case.name: {row.name: timed(1e-9 * case.inputs.queries**3) | {"bytes": 8} for row in case.rows}
        for case in cases
    }
    rows = figures.growth(cases, found)
    size, time, memory, verdict = rows[NTXENT]
    assert (size, time, memory) == (512, pytest.approx(3), pytest.approx(0)) and not verdict.ok
    assert rows[FLOOR][3] is None
    assert sum("MISSED" in line for line in table.growth_lines("growth", rows)) == 1


def judged(bars, found, way="pass", queries=100, others=0, losses=1):
    row = Row("row", way, losses * (Reading("ntxent"),), bars)
    case = Case("", Inputs(queries, 8, others=others), (Row(FLOOR, "bare"), row))
    return [verdict.ok for verdict in figures.verdicts(case, found)["row"]]


def timed(seconds):
    return {"seconds": [seconds], "floor": [1.0]}


def test_bars():
    found = {FLOOR: {"bytes": 10}, "row": timed(1.2) | {"bytes": 1000}}
    assert judged((Bar(1.2), Bar(1.1)), found) == [True, False]
    assert judged((Bar(100, what="bytes", least=True), Bar(101, what="bytes", least=True)), found) == [True, False]
    assert judged((Bar(1.0, "another row"),), found) == [False]  # nothing to compare with is no success
    assert judged((Bar(1.2, ""), Bar(1.1, ""), Bar(1000, "", "bytes")), found) == [True, False, True]
    found["peer"] = {"refused": "no module", "missing": True}
    assert judged((Bar(1.0, "peer"),), found) == []  # a peer that is not installed judges nobody
    found["row"] |= {"one": [3.0, 4.0, 9.0], "two": [2.0, 2.0, 3.0]}
    assert judged((Bar(2.0, what="speed", least=True), Bar(2.1, what="speed", least=True)), found) == [True, False]


def test_memory_has_a_bar_from_8192_queries():
    fits, above = (32 * 2**20 + 200 * 8192) * torch.tensor([1, 1]) + torch.tensor([0, 1])
    for size, queries, expected in ((fits, 8192, [True]), (above, 8192, [False]), (above, 8191, [])):
        assert judged((), {"row": {"bytes": int(size)}}, queries=queries) == expected
    assert judged((), {"row": {"bytes": None}}, queries=8192) == [False]
    most = 32 * 2**20 + 3 * 200 * 8192
    assert judged((), {"row": {"bytes": most}}, queries=8192, losses=3) == [True]
    assert judged((), {"row": {"bytes": most + 1}}, queries=8192, losses=3) == [False]
    assert judged((), {"row": {"bytes": most}}, queries=8192, others=5) == []  # its candidates ask as well


def test_others_match_no_query():
    inputs = Inputs(6, 8, per_query=2, others=5)
    embeddings, _ = inputs.draw()
    assert inputs.candidates == len(embeddings.candidate) == 17 and inputs.scores == 6 * 17
    assert sorted(embeddings.candidate_group[:12].tolist()) == sorted(2 * [*range(6)])
    assert not set(embeddings.candidate_group[12:].tolist()) & set(embeddings.query_group.tolist())


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_the_peak_is_what_a_call_holds_at_most():
    def call():
        torch.ones(2**24).sum()  # 64 MiB, and given back
        torch.ones(2**23).sum()

    assert 60 < peak(call) / 2**20 < 80


def test_the_cases_are_sound():
    assert len({case.name for case in all_cases()}) == len(all_cases())
    for case in all_cases():
        names = [row.name for row in case.rows]
        assert len(set(names)) == len(names)
        assert names[0] == FLOOR or not case.rounds
        assert {bar.against for row in case.rows for bar in row.bars} <= {*names, ""}
        assert case.rounds in {0, 3, 5}
        metrics = {loss.metric for row in case.rows for loss in map(ways.loss_of, row.readings) if loss}
        assert len(metrics) <= 1
    sizes = [len(selected(tier, [], cuda=False)) for tier in TIERS]
    assert sizes == sorted(set(sizes))
    assert [case.name for case in selected("quick", ["smoke", "cuda"], cuda=False)] == ["smoke", "cuda"]
    assert {case.tier for case in selected("goals", [], cuda=False)} == {"goals"}
    with pytest.raises(ValueError, match="no-such"):
        selected("quick", ["no-such"], cuda=False)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_inputs_are_the_same_each_time(kind):
    inputs = Inputs(70, 8, kind)
    (one, batches), (other, _) = inputs.draw(), inputs.draw()
    assert batches == (None,)
    assert torch.equal(one.query, other.query) and torch.equal(one.candidate, other.candidate)
    assert not torch.equal(one.query, replace(inputs, seed=1).draw()[0].query)
    length = 3.0 if kind == "proxies" else 1.0
    torch.testing.assert_close(one.candidate.norm(dim=1), torch.full((70,), length))


def test_the_overhead_of_the_monitor_is_measured_beside_a_training_without_one(monkeypatch):
    monkeypatch.setattr(monitor, "HIDDEN", 16)
    monkeypatch.setattr(torch.optim, "AdamW", mock.Mock())  # an optimizer imports the compiler, which takes seconds
    found = monitor.compare(functools.partial(monitor.two_towers, 8), steps=3, blocks=2)
    assert found["ways"].keys() == monitor.WAYS.keys() - {"without"} and found["step_ms"] > 0
    assert found["ways"]["every=1"]["records"] == 6 and found["ways"]["every=50"]["records"] == 1
    assert all(row["low"] <= row["percent"] <= row["high"] for row in found["ways"].values())
    assert len(list(monitor.lines(found))) == 5


def test_a_count_that_differs_from_the_hosts_is_named():
    data = measures.count(Inputs(40, 8).draw()[0], "ntxent", batch_size=20)
    assert host.differences(data, data) == ()
    changed = data.copy(deep=True)
    changed["contributing"][0, 0, 3] += 1
    changed["push"] = changed["push"] * 1.01
    assert host.differences(data, changed) == ("contributing", "push")
    found = [host.Check("one"), host.Check("two", ("push",)), host.Check("three", refused="no teacher")]
    assert list(host.lines(found))[0] == "1 of 2 comparisons with the host agree"


@pytest.mark.slow
def test_every_loss_of_the_shelf_is_compared_with_the_host(monkeypatch):
    """On a set that it takes; the host stands for the device."""
    monkeypatch.setattr(host, "ROWS", 48)
    monkeypatch.setattr(host, "SIZES", (16,))
    sources = host._sets()
    for name in losses.names():
        found = (check for kind in sources for check in host._counts(name, kind, sources[kind], "cpu"))
        assert any(not each.refused for each in found), name
