"""Findings: one kind of object from every result, with what was not found and what could not be looked for."""

import json

import numpy as np
import pytest
import torch

from cocos import Embeddings, losses, measures, reports, results
from cocos.counting import findings as kinds
from cocos.counting import verdicts
from cocos.measures.run import episodes
from cocos.monitor import detectors
from cocos.reports import findings


def rows(seed=0, number=120, width=8):
    return torch.randn(number, width, generator=torch.Generator().manual_seed(seed))


def near(noise=0.8, number=120, width=8, **more):
    query = rows(0, number, width)
    return Embeddings(query, query + noise * rows(1, number, width), **more)


def kept(found, state="found"):
    return {each.kind: each for each in found if each.state == state}


def collapsed():
    return Embeddings(rows()[:1].repeat(120, 1), rows(1))


def test_the_document_of_a_count_has_its_findings_and_that_of_several_losses_those_of_each():
    together = measures.count(near(0.4), [losses.load(name) for name in ("ntxent", "triplet")], batch_size=40)
    whole, every = reports.document("count", together), findings.of(together)
    for one in whole["losses"]:
        assert one["findings"] == [each.document() for each in every if each.loss == one["label"]] != []
    alone = measures.count(near(0.4), losses.load("ntxent"), batch_size=40)
    found = reports.document("count", alone)["findings"]
    assert found == [each.document() for each in findings.of(alone)]
    assert {"kind", "severity", "numbers", "cure", "state"} <= found[0].keys()
    assert reports.document("count", alone) == measures.document("count", alone) | {"findings": found}


def test_the_table_of_a_count_is_its_findings():
    data = measures.count(near(0.4, 300, 16), losses.load("ntxent", {"temperature": 0.05}))
    found, table = findings.of(data), reports.table("count", data)
    above = [each.sentence for each in found if each.state == "found" and each.place == "above"]
    below = [each.sentence for each in found if each.state == "found" and each.place == "below"]
    assert list(table.head[2:]) == above and list(table.notes[: len(below)]) == below
    starved = kept(found)["starved"]
    assert starved.severity == "look" and starved.limit == verdicts.IDLE_QUERIES
    idle = measures.document("count", data)["verdicts"]["q2c"]["numbers"]["idle_fraction"]
    assert starved.part >= idle > starved.limit and starved.numbers["q2c"]["idle_fraction"] == idle
    assert starved.cure and (starved.command, starved.of) == ("whatif", ("q2c", "c2q"))
    assert {"collapsed", "mispaired", "flat", "pulled"} <= kept(found, "absent").keys()
    assert "the verdict `starved` goes before" in kept(found, "unseen")["sharp"].sentence
    json.dumps([each.document() for each in found], allow_nan=False)


def test_what_leaves_a_count_without_a_meaning_stops():
    found = findings.of(measures.count(collapsed(), batch_size=40))
    assert found[0].kind == "collapsed" and found[0].severity == "stop" and found[0].place == "first"
    assert "all 120 queries are one point" in found[0].sentence
    query = rows()
    found = findings.of(measures.count(Embeddings(query, query.flip(0)), batch_size=40))
    assert found[0].kind == "mispaired" and found[0].numbers["above"] == pytest.approx(50, abs=8)
    few = findings.of(measures.count(Embeddings(query[:8], query[:8]), batch_size="all"))
    assert "fewer than 20 queries" in kept(few, "unseen")["mispaired"].sentence


def test_what_depends_on_an_unknown_unit_could_not_be_looked_for():
    def cubic(scores, positive, negative):
        push = (torch.where(negative, scores + 1, 0) ** 3).sum(dim=1)
        return push - torch.where(positive, scores, 0).sum(dim=1)

    found = kept(findings.of(measures.count(near(), cubic, batch_size=40)), "unseen")
    assert all(findings.UNKNOWN_UNIT_REASON in found[kind].sentence for kind in findings.BY_UNIT_ALONE)


def test_several_losses_keep_theirs_apart():
    data = measures.count(near(0.4), ["ntxent", "triplet_sh"], batch_size=40)
    found = findings.of(data)
    assert {each.loss for each in found} == set(data)
    assert [each.loss for each in found if each.kind == "sharp" and each.state == "found"] == list(data)[1:]
    gone = measures.count(collapsed(), ["ntxent", "triplet"], batch_size=40)
    assert all(kinds.collapsed(one.attrs) for one in gone.values())
    assert sum(each.kind == "collapsed" for each in findings.of(gone)) == 2


def test_an_audit_says_what_it_suspects_and_which_rules_it_could_not_try():
    names = [f"text {k % 100}" for k in range(120)]
    data = measures.audit(near(names=(names, names)), batch_size=60, only="q2c")
    found, table = findings.of(data), reports.table("audit", data)
    suspected = kept(found)["suspected"]
    assert suspected.sentence == table.head[0] and suspected.severity == "look"
    part = measures.document("audit", data)["directions"]["q2c"]["rules"]["any rule"]["push_share"]
    assert suspected.part == part > 0 and "relabel" in suspected.cure
    assert "there are no scores of a guide" in kept(found, "unseen")["suspected by guide"].sentence
    assert "suspected by group" in kept(found, "absent")
    some = findings.of(measures.audit(near(names=(names, names)), batch_size=60, rules=["text"]))
    assert "other rules are asked for" in kept(some, "unseen")["suspected by neighbours"].sentence


def test_the_filter_self_is_known_by_its_rule_and_not_by_its_label():
    query, texts = rows()[:60].repeat(2, 1), [f"text {k % 60}" for k in range(120)]
    twice = Embeddings(query, query, names=(texts, texts))
    data = measures.audit(twice, batch_size="all", rules=["text"], filters={"self": [], "percent": []}, only="q2c")
    assert set(data["filter_rule"].values) == {"self", "percent"} and "kept copies" in kept(findings.of(data))
    renamed = data.assign_coords(filter=[f"{k}: otherwise called" for k in range(data.sizes["filter"])])
    assert "kept copies" in kept(findings.of(renamed))
    other = data.assign(filter_rule=("filter", ["percent"] * data.sizes["filter"]))
    assert "kept copies" not in kept(findings.of(other))


def test_a_run_has_its_detectors_with_value_threshold_and_cure():
    gone = Embeddings(rows(1), rows()[:1].repeat(120, 1))
    data = measures.run([near(3.0), gone, gone], "ntxent", steps=[0, 10, 20], batch_size=40)
    found = findings.of(data)
    fired = {each["kind"]: each for each in episodes(data)}
    assert fired and fired.keys() <= kept(found).keys()
    for kind, episode in fired.items():
        each = kept(found)[kind]
        assert each.numbers["value"] == episode["value"] and each.limit == episode["threshold"] and each.cure
        assert each.sentence.startswith(f"{kind}: ") and each.sentence in reports.table("run", data).head
        assert each.severity == type(detectors.load(kind)).SEVERITY
    assert kept(found)["collapse"].severity == "stop"
    others = {each.kind: each.state for each in found if each.kind in detectors.names() and each.kind not in fired}
    watched = json.loads(data.attrs["watching"])
    assert others == {name: "unseen" if why else "absent" for name, why in watched.items() if name not in fired}


def test_a_checkpoint_that_is_not_finite_stops(tmp_path):
    for step, candidate in ((1, rows(1)), (2, rows(1).fill_(torch.nan))):
        np.savez(tmp_path / f"step_{step}.npz", query=rows(), candidate=candidate)
    found = kept(findings.of(measures.run(tmp_path, "ntxent", batch_size=40)))
    assert found["not finite"].severity == "stop" and "step_2" in found["not finite"].sentence


def test_an_untrained_checkpoint_is_not_called_mispaired():
    query = rows()
    shuffled = Embeddings(query, query.flip(0))
    early = measures.run([shuffled, near()], "ntxent", batch_size=40)
    late = measures.run([near(), shuffled], "ntxent", batch_size=40)
    assert "mispaired" not in {each.kind for each in kinds.noted(early.attrs)} and "CAUTION" not in early.attrs["notes"]
    assert "mispaired" in {each.kind for each in kinds.noted(late.attrs)} and "CAUTION" in late.attrs["notes"]


def test_a_comparison_has_each_change_with_its_interval():
    data = measures.diff(near(0.4), near(2.5), batch_size="all")
    found = findings.of(data)
    change = next(each for each in found if each.kind == "changed" and each.numbers.get("metric") == "MRR")
    one = data.sel(direction="q2c", metric="MRR")
    assert change.interval == (float(one["low"]), float(one["high"])) and change.limit == pytest.approx(0.05)
    little = measures.diff(near(0.8), near(0.85), batch_size="all")
    for result in (data, little):
        entries = result.stack(each=("direction", "metric"))
        resolved = (entries["p_holm"] <= 0.05).values.tolist()
        unknown = entries["low"].isnull().values.tolist()
        states = [each.state for each in findings.of(result) if each.kind == "changed"]
        wanted = ["unseen" if no else "found" if yes else "absent" for no, yes in zip(unknown, resolved, strict=True)]
        assert states == wanted
    assert {"found", "absent", "unseen"} <= set(wanted)
    same = measures.diff(near(), near(), batch_size="all", names=("one", "other"))
    values = {each.kind: each for each in findings.of(same) if each.state == "found"}
    assert "changed" not in values and values["equal"].sentence.startswith("no interval, for all n = 120")


def test_evaluate_and_any_other_measure_have_theirs():
    found = findings.of(measures.evaluate(collapsed()))
    assert kept(found)["collapsed"].severity == "stop"
    assert all("have collapsed" in kept(found, "unseen")[kind].sentence for kind in ("mispaired", "turned"))
    assert {"collapsed", "mispaired", "alike", "turned"} == kept(
        findings.of(measures.evaluate(near())), "absent"
    ).keys()
    assert {each.kind for each in findings.of(measures.replay(collapsed(), what="temperature=0.2", batch_size=40))} >= {
        "collapsed"
    }
    assert findings.of(measures.weight_curve("triplet", points=5)) == []


def test_a_result_keeps_its_findings_in_a_file(tmp_path):
    data = measures.count(collapsed(), batch_size=40)
    file = results.save(data, tmp_path / "count.nc")
    assert [each.sentence for each in findings.of(results.open(file))] == [each.sentence for each in findings.of(data)]


def test_every_kind_has_a_severity_and_a_place():
    for name, row in kinds.KINDS.items():
        assert row.severity in kinds.SEVERITIES and row.place in kinds.PLACES and row.sentence, name
    assert set(kinds.OF_COUNTS) <= {name for name, row in kinds.KINDS.items() if row.looks}
    severities = {"look": "look", "stop": "stop", "ok": "ok"}
    assert {name: kinds.KINDS[name].severity for name in verdicts.SEVERITY} == {
        name: severities[each] for name, each in verdicts.SEVERITY.items()
    }
