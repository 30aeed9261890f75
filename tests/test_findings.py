"""Findings by kind and severity on constructed sets; their sentences are in sentences.json.

After a change of a sentence: `python tests/test_findings.py`, and read the difference.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from cocos import Embeddings, losses, measures, reports
from cocos.counting import findings
from cocos.measures.run import episodes
from cocos.monitor import detectors

SENTENCES = Path(__file__).with_name("sentences.json")


def rows(seed=0, number=120, width=8):
    return torch.randn(number, width, generator=torch.Generator().manual_seed(seed))


def near(noise=0.8, number=120, width=8, **more):
    query = rows(0, number, width)
    return Embeddings(query, query + noise * rows(1, number, width), **more)


def large(noise):
    return near(noise, 300, 16)


def collapsed():
    return Embeddings(rows()[:1].repeat(120, 1), rows(1))


def mispaired():
    return Embeddings(rows(), rows().flip(0))


def permuted_proxies():
    """Samples with the proxies of the next class: 0.395 of the proxies score above the own one, of ten classes."""
    proxies, labels = rows(3, 10, 16), torch.arange(200) % 10
    return Embeddings.labelled(proxies[labels] + 0.3 * rows(1, 200, 16), labels, proxies.roll(-1, dims=0))


def alike():
    return Embeddings(40 + rows(), 40 + rows() + 0.1 * rows(1))


def transposed():
    return Embeddings(*(torch.nn.functional.normalize(rows(seed, 60, 8), dim=0) for seed in (0, 1)))


def named(number=100):
    names = [f"text {place % number}" for place in range(120)]
    return near(names=(names, names))


def copied():
    names = [f"text {place % 60}" for place in range(120)]
    query = rows()[:60].repeat(2, 1)
    return Embeddings(query, query, names=(names, names))


def cubic(scores, positive, negative):
    """A loss whose weights have no natural unit."""
    return (torch.where(negative, scores + 1, 0) ** 3).sum(dim=1) - torch.where(positive, scores, 0).sum(dim=1)


def count(embeddings, loss="ntxent", **options):
    parameters = {name: options.pop(name) for name in ("temperature", "margin", "prior") if name in options}
    made = losses.load(loss, parameters) if isinstance(loss, str) else loss
    return measures.count(embeddings, made, **{"batch_size": 40, **options})


def run(*checkpoints):
    return measures.run(list(checkpoints), "ntxent", steps=[10 * k for k in range(len(checkpoints))], batch_size=40)


# Case -> the result, and its findings that ask for something or say that all is well: kind -> severity.
CASES = {
    "shared": (lambda: count(large(0.8), temperature=0.1, batch_size=128), {"shared": "ok"}),
    "flat": (lambda: count(large(0.8), temperature=20.0, batch_size=128), {"flat": "look"}),
    "thin": (lambda: count(large(0.8), temperature=0.1, batch_size=128, eps=0.3), {"thin": "look"}),
    "starved": (lambda: count(large(0.4), temperature=0.05, batch_size=128), {"starved": "look"}),
    "sharp": (lambda: count(large(1.5), "triplet_sh", margin=0.3, batch_size=128), {"sharp": "look"}),
    "wasteful": (lambda: count(large(0.8), "triplet", margin=0.2, batch_size=128), {"wasteful": "look"}),
    "silent": (lambda: count(large(0.01), "triplet", margin=0.01, batch_size=128), {"silent": "stop"}),
    "collapsed": (lambda: count(collapsed()), {"collapsed": "stop"}),
    "collapsed, evaluated": (lambda: measures.evaluate(collapsed()), {"collapsed": "stop"}),
    "mispaired": (lambda: count(mispaired()), {"mispaired": "stop"}),
    "permuted proxies": (lambda: count(permuted_proxies(), "normalized_softmax"), {"mispaired": "stop"}),
    "alike": (lambda: count(alike()), {"alike": "stop"}),
    "transposed": (lambda: count(transposed(), batch_size=20), {"mispaired": "stop"}),
    "near-duplicates": (
        lambda: count(Embeddings(rows()[:60].repeat(2, 1), near().candidate)),
        {"repeated rows": "look"},
    ),
    "clamped": (lambda: count(near(), "debiased", prior=0.6, temperature=0.1), {"clamped": "look"}),
    "unknown unit": (lambda: count(near(), cubic), {"shared": "ok"}),
    "pulled negatives": (lambda: count(near(1.2), "contextual"), {"pulled": "look"}),
    "queries never drawn": (
        lambda: count(Embeddings(rows(0, 60), near().candidate, torch.arange(60), torch.arange(120)), batch_size=20),
        {"undrawn": "note"},
    ),
    "suspected": (
        lambda: measures.audit(copied(), batch_size=60, rules=["text"]),
        {"suspected": "look"},
    ),
    "few suspected": (lambda: measures.audit(named(), batch_size=60, rules=["text"]), {"suspected": "note"}),
    "useless rule": (lambda: measures.audit(named(1), batch_size=60, rules=["text"]), {"no rule": "look"}),
    "run": (
        lambda: run(near(3.0), *(2 * [Embeddings(rows(1), rows()[:1].repeat(120, 1))])),
        {"collapse": "stop", "collapsed": "stop"},
    ),
    "change": (lambda: measures.diff(near(0.4), near(2.5), batch_size="all"), {"changed": "look"}),
    "no change": (lambda: measures.diff(near(), near(), batch_size="all", names=("one", "other")), {}),
}


@pytest.fixture(scope="module")
def results():
    """The result of each case, made once."""
    made = {}

    def result(name):
        if name not in made:
            made[name] = CASES[name][0]()
        return made[name]

    return result


def snapshot(dataset):
    """Kind -> severity, sentence and cure of the first finding of that kind."""
    first = {}
    for finding in findings.of(dataset):
        first.setdefault(finding.kind, [finding.severity, finding.sentence, finding.cure])
    return first


@pytest.mark.parametrize("name", CASES)
def test_each_case_has_its_kinds(name, results):
    severities = {finding.kind: finding.severity for finding in findings.of(results(name))}
    assert CASES[name][1].items() <= severities.items()
    urgent = {kind for kind, severity in severities.items() if severity == "stop"}
    assert urgent == {kind for kind, severity in CASES[name][1].items() if severity == "stop"}


@pytest.mark.parametrize("name", CASES)
def test_sentences_are_those_of_the_snapshot(name, results):
    assert snapshot(results(name)) == json.loads(SENTENCES.read_text())[name]


def entry(**means):
    return {name: {"mean": value, "std": None} for name, value in means.items()}


@pytest.mark.parametrize(
    ("kind", "means"),
    [
        ("silent", {"negatives": 127, "effective": None}),
        ("flat", {"negatives": 127, "effective": 120, "idle_fraction": 1.0, "idle_pull": 1.0}),
        ("thin", {"negatives": 1000, "effective": 300, "idle_fraction": 0.9, "idle_pull": 0.8}),
        ("starved", {"negatives": 121.1, "effective": 17, "idle_fraction": 0.73, "idle_pull": 0.085}),
        ("starved", {"negatives": 127, "effective": 1.4, "idle_fraction": 0.51, "idle_pull": 0.0}),
        ("sharp", {"negatives": 127, "effective": 1.9, "idle_fraction": 0.5, "idle_pull": 0.0}),
        ("wasteful", {"negatives": 127, "effective": 6.0, "idle_fraction": 0.0, "idle_pull": 0.0}),
        ("shared", {"negatives": 127, "effective": 6.5, "idle_fraction": 0.0, "idle_pull": 0.0}),
        ("shared", {"negatives": 127, "effective": 110, "idle_fraction": 0.0, "idle_pull": 0.0}),
        ("shared", {"negatives": 7, "effective": 7.0, "idle_fraction": 0.0, "idle_pull": 0.0}),
        ("sharp", {"negatives": 127, "effective": 1.5}),  # the unit of the loss is not known
        ("shared", {"negatives": 127, "effective": 17.6}),
    ],
)
def test_gradient_kinds_have_their_thresholds(kind, means):
    assert findings.gradient_kind(entry(**means)) == kind
    (finding,) = findings.gradient({"q2c": entry(**means)}, 0.01)
    assert (finding.kind, finding.severity) == (kind, findings.GRADIENTS[kind][0])
    assert bool(finding.cure) == (kind != "shared")


def test_directions_of_one_kind_share_a_finding():
    fine, starved = entry(negatives=127, effective=17), entry(negatives=127, effective=17, idle_fraction=0.7)
    both = findings.gradient({"i2t": fine, "t2i": fine}, 0.01)
    assert [finding.kind for finding in both] == ["shared"]
    assert [finding.kind for finding in findings.gradient({"i2t": fine, "t2i": starved}, 0.01)] == ["shared", "starved"]


@pytest.mark.parametrize(
    ("name", "command", "options"),
    [
        ("shared", "audit", {}),
        ("sharp", "audit", {}),
        ("starved", "whatif", {"settles": True}),
        ("wasteful", "whatif", {"by": "effective"}),
        ("silent", "whatif", {"by": "idle"}),
        ("mispaired", "plot contributors", {"row": "0"}),
        ("collapsed", "evaluate", {}),
        ("alike", "evaluate", {}),
    ],
)
def test_next_command_follows_the_gravest_kind(name, command, options, results):
    dataset = results(name)
    kinds = set(findings.kinds_of_directions(dataset).values())
    assert kinds == {name}
    assert findings.next_command(name, dataset.attrs["loss"]) == (command, options)


def test_document_has_findings_of_each_loss(results):
    keys = {"kind", "severity", "sentence", "cure"}
    document = reports.document("count", results("starved"))
    assert document["findings"] == [finding.document() for finding in findings.of(results("starved"))]
    assert all(finding.keys() == keys for finding in document["findings"]) and document["health"]["collapsed"] is False
    together = measures.count(near(0.4), [losses.load(name) for name in ("ntxent", "triplet")], batch_size=40)
    for one in reports.document("count", together)["losses"]:
        alone = count(near(0.4), one["loss"]["name"])
        assert one["findings"] == [finding.document() for finding in findings.of(alone)] != []


def test_first_lines_have_two_numbers_and_a_verdict(results):
    for name in ("shared", "flat", "starved", "sharp", "wasteful", "silent"):
        dataset = results(name)
        table = reports.table("count", dataset)
        loss, query, candidate, verdict = table.head
        assert loss.startswith(f"loss: {dataset.attrs['loss']}, ")
        assert query.startswith("q2c: ") and candidate.startswith("c2q: ")
        assert [finding.sentence for finding in findings.of(dataset) if finding.kind == name] == [verdict]
        (marked,) = (row[0] for row in table.rows if row[0].startswith("* "))
        assert marked == "* contributing negatives per query"


def test_published_convention_marks_its_own_row():
    table = reports.table("count", count(large(0.8), temperature=0.1, convention="ecir2022"))
    (marked,) = (row[0] for row in table.rows if row[0].startswith("* "))
    assert marked.endswith("(C^A)")


def test_unknown_unit_is_described_by_its_push(results):
    table = reports.table("count", results("unknown unit"))
    (marked,) = (row[0] for row in table.rows if row[0].startswith("* "))
    assert marked == "* negatives with more than 1 % of the push"
    assert not {"starved", "thin", "pulled", "undecided"} & snapshot(results("unknown unit")).keys()


def test_idle_queries_hold_their_part_of_the_pull(results):
    """A softmax pulls them all the same: "idle" alone suggests a gradient of zero."""
    dataset = results("starved")
    one = dataset.sel(direction="q2c")
    positive = one["weight_positive_per_query"]
    part = float(positive.where(one["contributing"] == 0).sum() / positive.sum())
    means = reports.document("count", dataset)["directions"]["q2c"]
    assert 0.01 < means["idle_pull"]["mean"] == pytest.approx(part, rel=1e-5)
    hinge = reports.document("count", count(large(0.4), "triplet"))["directions"]["q2c"]
    assert hinge["idle_pull"]["mean"] == 0 and hinge["idle_fraction"]["mean"] > 0.1


def test_run_has_a_finding_for_each_episode(results):
    dataset = results("run")
    every = {finding.kind: finding for finding in findings.of(dataset)}
    for episode in episodes(dataset):
        finding = every[episode["kind"]]
        assert finding.severity == type(detectors.load(episode["kind"])).SEVERITY and finding.cure
        assert (
            finding.sentence.startswith(episode["sentence"]) and finding.sentence in reports.table("run", dataset).head
        )


def test_checkpoint_that_is_not_finite_stops(tmp_path):
    for step, candidate in ((1, rows(1)), (2, rows(1).fill_(torch.nan))):
        np.savez(tmp_path / f"step_{step}.npz", query=rows(), candidate=candidate)
    assert snapshot(measures.run(tmp_path, "ntxent", batch_size=40))["not finite"][0] == "stop"


def test_untrained_checkpoint_is_not_called_mispaired():
    early = measures.run([mispaired(), near()], "ntxent", batch_size=40)
    late = measures.run([near(), mispaired()], "ntxent", batch_size=40)
    kinds = [{finding.kind for finding in findings.stored(each.attrs)} for each in (early, late)]
    assert "mispaired" not in kinds[0] and "mispaired" in kinds[1]


def test_changes_are_those_with_small_p(results):
    for name in ("change", "no change"):
        entries = results(name).stack(each=("direction", "metric"))
        significant = (entries["p_holm"] <= 0.05) & entries["low"].notnull()
        kinds = [finding.kind for finding in findings.of(results(name))]
        assert kinds.count("changed") == int(significant.sum())


if __name__ == "__main__":
    every = {name: snapshot(make()) for name, (make, _) in CASES.items()}
    SENTENCES.write_text(json.dumps(every, indent=1, ensure_ascii=False) + "\n")
