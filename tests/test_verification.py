"""`cocos evaluate --verification`: EER, TAR at FAR, minDCF and accuracy, against loops, scikit-learn and by hand."""

import itertools
import json
import math
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from cocos import Embeddings, InputError, measures, results
from cocos.cli import app
from cocos.embeddings import similarities
from cocos.reports import table

module = sys.modules[measures.verification.__module__]
RATES = module.FALSE_ACCEPT_RATES


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def planted(classes=40, each=6, width=12, noise=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(each)
    centres = torch.randn(classes, width, generator=generator, dtype=torch.float64)
    rows = centres[labels] + noise * torch.randn(len(labels), width, generator=generator, dtype=torch.float64)
    return Embeddings.labelled(rows, labels)


def compared(embeddings, metric):
    """Score and label of every pair, each once."""
    score = similarities.METRICS[metric](embeddings.query, embeddings.candidate)
    same = embeddings.query_group[:, None] == embeddings.candidate_group
    kept = torch.ones_like(same)
    if embeddings.shared:
        kept = torch.ones_like(same).triu(1)
    return score[kept].numpy(), same[kept].numpy()


def slow(score, target, prior=0.01, miss=1.0, false=1.0):
    """The definitions, one threshold after the other."""
    points = [(0.0, 1.0)]
    for level in sorted(set(score.tolist()), reverse=True):
        accepted = score >= level
        points.append((np.mean(accepted[~target]), 1 - np.mean(accepted[target])))
    found = {}
    for (f0, m0), (f1, m1) in itertools.pairwise(points):
        if f1 >= m1:
            part = (m0 - f0) / ((m0 - f0) - (m1 - f1))
            found["EER"] = 100 * (f0 + part * (f1 - f0))
            break
    for rate in RATES:
        enough = rate * (~target).sum() >= 1 - 1e-9
        found[f"TAR@FAR={rate:g}"] = (
            100 * max(1 - m for f, m in points if f <= rate * (1 + 1e-12)) if enough else math.nan
        )
    least = min(miss * prior, false * (1 - prior))
    found["minDCF"] = min(miss * prior * m + false * (1 - prior) * f for f, m in points) / least
    return found


def values(data):
    return {str(name): float(data["value"].sel(metric=name)) for name in data["metric"].values}


def assert_same(data, expected):
    found = values(data)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-9, nan_ok=True), name


@pytest.mark.parametrize(
    ("metric", "classes"), [("cosine", 40), ("dot", 25), ("euclidean", 25), ("squared_euclidean", 25)]
)
def test_all_pairs_of_a_labelled_set_are_what_a_loop_finds(metric, classes):
    embeddings = planted(classes)
    data = measures.verification(embeddings, metric=metric)
    score, target = compared(embeddings, metric)
    assert_same(data, slow(score, target))
    number = (15 * classes, 18 * classes * (classes - 1))  # six rows each
    assert (data.attrs["targets"], data.attrs["impostors"]) == (target.sum(), (~target).sum()) == number
    assert data.attrs["identities"] == classes


def test_scikit_learn_gives_the_same():
    roc_curve = pytest.importorskip("sklearn.metrics").roc_curve
    from scipy.interpolate import interp1d
    from scipy.optimize import brentq

    embeddings = planted(seed=4)
    score, target = compared(embeddings, "cosine")
    false, true, _ = roc_curve(target, score, drop_intermediate=False)
    found = values(measures.verification(embeddings))
    assert found["EER"] == pytest.approx(100 * brentq(lambda x: 1 - x - interp1d(false, true)(x), 0, 1), abs=1e-6)
    for rate in RATES:
        assert found[f"TAR@FAR={rate:g}"] == pytest.approx(100 * true[false <= rate].max(), abs=1e-9)


def test_float32_and_two_sides_and_other_costs_are_what_a_loop_finds():
    generator = torch.Generator().manual_seed(3)
    query, candidate = torch.randn(50, 8, generator=generator), torch.randn(90, 8, generator=generator)
    embeddings = Embeddings(query, candidate, torch.arange(50) % 30, torch.arange(90) % 45)
    data = measures.verification(embeddings, prior=0.3, miss_cost=2, false_accept_cost=0.5)
    both = Embeddings(query.double(), candidate.double(), embeddings.query_group, embeddings.candidate_group)
    assert_same(data, slow(*compared(both, "cosine"), prior=0.3, miss=2, false=0.5))


def test_proxies_stay_out_and_a_loss_brings_its_metric():
    samples = planted()
    rows, labels = samples.query, samples.query_group
    proxies = Embeddings.labelled(rows, labels, rows[::6])
    data = measures.verification(proxies, loss="triplet_euclidean")
    assert data.attrs["metric"] == "euclidean" and "not with the class proxies" in data.attrs["notes"]
    assert_same(data, slow(*compared(samples, "euclidean")))


def test_many_target_pairs_are_refined_and_nothing_changes(monkeypatch):
    embeddings = planted(classes=12, each=20, noise=1.3)
    whole = measures.verification(embeddings)
    monkeypatch.setattr(module, "MOST_LEVELS", 20)
    monkeypatch.setattr(module, "GRID_LEVELS", 16)
    passes, run = [], module.engine.run
    monkeypatch.setattr(module.engine, "run", lambda *given, **more: passes.append(1) or run(*given, **more))
    refined = measures.verification(embeddings)
    assert len(passes) > 2
    np.testing.assert_allclose(refined["value"], whole["value"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(refined["threshold"], whole["threshold"], atol=0.01)  # the same pairs are accepted
    equal = Embeddings.labelled(torch.ones(60, 3), torch.arange(60) % 6)
    assert values(measures.verification(equal))["EER"] == 50


def test_ties_of_targets_and_impostors_move_together():
    rows = torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1], [1, 0], [0, 1]])
    embeddings = Embeddings.labelled(rows, [0, 0, 1, 1, 2, 2])
    assert_same(measures.verification(embeddings), slow(*compared(embeddings, "cosine")))
    same = Embeddings.labelled(torch.ones(30, 4), torch.arange(30) // 3)
    data = measures.verification(same)
    found = values(data)
    assert found["EER"] == 50 and found["TAR@FAR=0.1"] == 0 and found["minDCF"] == 1
    assert data["threshold"].sel(metric="minDCF") == math.inf and "collapsed" in data.attrs["notes"]


# Four impostors and three targets: the line crosses between .7 and .4, where a quarter of the impostors pass.
BY_HAND = ([0.9, 0.8, 0.4], [0.7, 0.3, 0.2, 0.1])


def listed(targets, impostors, **more):
    score = torch.tensor([*targets, *impostors], dtype=torch.float64)[:, None]
    embeddings = Embeddings(score, torch.ones(1, 1, dtype=torch.float64), torch.arange(len(score)), [len(score)])
    trials = [(int(k < len(targets)), k, 0) for k in range(len(score))]
    return measures.verification(embeddings, metric="dot", trials=trials, **more)


def test_seven_trials_by_hand():
    data = listed(*BY_HAND)
    found = values(data)
    assert found["EER"] == pytest.approx(25, abs=1e-12) and found["minDCF"] == pytest.approx(1 / 3, abs=1e-12)
    assert data["threshold"].sel(metric="minDCF") == 0.8 and data["threshold"].sel(metric="EER") == 0.4
    assert math.isnan(found["TAR@FAR=0.1"]) and math.isnan(found["accuracy"])
    assert "4 impostor pairs are too few; 0.1 takes 10" in data.attrs["notes"]
    assert "accuracy: 7 trials, and ten folds take 10" in data.attrs["notes"]
    assert values(listed([0.9, 0.8], [0.1, 0.2]))["EER"] == 0
    assert values(listed([0.1, 0.2], [0.8, 0.9]))["EER"] == 100


def test_ten_folds_take_the_threshold_of_the_nine_others():
    generator = np.random.default_rng(5)
    target = generator.random(200) < 0.4
    score = generator.normal(size=200) + target
    embeddings = Embeddings(torch.from_numpy(score)[:, None], torch.ones(1, 1).double(), torch.arange(200), [200])
    trials = [(int(target[k]), k, 0) for k in range(200)]
    data = measures.verification(embeddings, metric="dot", trials=trials)
    right = []
    for fold in range(10):
        inside = np.arange(200) // 20 == fold
        levels = [math.inf, *sorted(score, reverse=True)]
        best = max(levels, key=lambda level, out=~inside: ((score >= level) == target)[out].sum())
        right.append(((score >= best) == target)[inside].mean())
    assert values(data)["accuracy"] == pytest.approx(100 * np.mean(right), abs=1e-9)
    assert float(data["deviation"].sel(metric="accuracy")) == pytest.approx(100 * np.std(right), abs=1e-9)


def test_accuracy_of_a_labelled_set_is_over_folds_of_its_identities():
    embeddings = planted(classes=25, each=4, noise=1.4)
    score = similarities.METRICS["cosine"](embeddings.query, embeddings.query)
    score, label, folds = score.numpy(), embeddings.query_group.numpy(), np.array_split(np.arange(25), 10)
    pairs = []
    for fold in folds:
        rows = np.flatnonzero(np.isin(label, fold))
        a, b = (rows[each] for each in np.triu_indices(len(rows), 1))
        pairs.append((score[a, b], label[a] == label[b]))

    def right(level, some):
        score, same = (np.concatenate(each) for each in zip(*some, strict=True))
        return ((score[same] >= level).mean() + (score[~same] < level).mean()) / 2

    found = []
    for k, own in enumerate(pairs):
        others = pairs[:k] + pairs[k + 1 :]
        levels = [math.inf, *sorted(np.concatenate([each for each, _ in others]), reverse=True)]
        best = max(right(level, others) for level in levels)
        top = next(level for level in levels if right(level, others) >= best - 1e-12)
        found.append(right(top, [own]))
    assert values(measures.verification(embeddings))["accuracy"] == pytest.approx(100 * np.mean(found))


def test_a_list_of_all_pairs_is_the_set_itself():
    embeddings = planted(classes=30, each=3)
    every = [
        (int(embeddings.query_group[a] == embeddings.query_group[b]), a, b)
        for a, b in itertools.combinations(range(90), 2)
    ]
    whole, by_list = (measures.verification(embeddings, trials=trials) for trials in (None, every))
    for name in ("value", "threshold"):
        np.testing.assert_allclose(by_list[name][:-1], whole[name][:-1], rtol=1e-9, err_msg=name)


@pytest.fixture
def faces(tmp_path, monkeypatch):
    """Six photos of three people, with names as LFW has them, and their labels."""
    monkeypatch.chdir(tmp_path)
    names = [f"{who}/{who}_{k:04d}.jpg" for who in ("Abel_Pacheco", "Zico", "Ann_Lee") for k in (1, 2)]
    rows = torch.randn(6, 4, generator=torch.Generator().manual_seed(2))
    return Embeddings.labelled(rows, [0, 0, 1, 1, 2, 2], names=names)


def test_formats_of_lists(faces, tmp_path):
    wanted = [(1, 0, 1), (0, 0, 2), (1, 2, 3), (0, 3, 5)]
    expected = measures.verification(faces, trials=wanted)
    names = faces.names[0]
    (tmp_path / "voxceleb.txt").write_text("".join(f"{t} {names[a]} {names[b]}\n" for t, a, b in wanted))
    (tmp_path / "rows.txt").write_text("\n".join(f"{t}\t{a}\t{b}" for t, a, b in wanted) + "\n\n")
    words = {1: "target", 0: "nontarget"}
    (tmp_path / "kaldi.txt").write_text("".join(f"{names[a]} {names[b]} {words[t]}\n" for t, a, b in wanted))
    lfw = "1\t2\nAbel_Pacheco\t1\t2\nZico\t1\t2\nAbel_Pacheco\t1\tZico\t1\nZico\t2\tAnn_Lee\t2\n"
    (tmp_path / "pairs.txt").write_text(lfw)
    for file in ("voxceleb.txt", "rows.txt", "kaldi.txt", "pairs.txt"):
        found = measures.verification(faces, trials=file)
        assert found.attrs["trials"] == file
        np.testing.assert_array_equal(found["value"], expected["value"], err_msg=file)


def test_folds_of_lfw_are_its_own(tmp_path):
    generator = np.random.default_rng(0)
    rows = torch.from_numpy(generator.normal(size=(40, 5)))
    names = [f"p{k // 2}_{k % 2 + 1:04d}" for k in range(40)]
    embeddings = Embeddings.labelled(rows, [k // 2 for k in range(40)], names=names)
    lines = []
    for fold in range(2):
        lines += [f"p{10 * fold + k} 1 2" for k in range(5)] + [
            f"p{10 * fold + k} 1 p{10 * fold + k + 1} 2" for k in range(5)
        ]
    (tmp_path / "pairs.txt").write_text("2 5\n" + "\n".join(lines))
    (tmp_path / "one.txt").write_text("10\n" + "\n".join(sorted(lines, key=lambda line: len(line.split()))))
    two, one = (measures.verification(embeddings, trials=tmp_path / each) for each in ("pairs.txt", "one.txt"))
    assert values(two)["EER"] == values(one)["EER"]
    assert np.isfinite(values(two)["accuracy"]) and np.isnan(values(one)["accuracy"])


def test_rows_that_targets_tie_together_are_one_identity():
    rows = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
    loose = Embeddings.labelled(rows, torch.arange(8))
    trials = [(1, 0, 1), (1, 1, 2), (1, 4, 5), (0, 0, 4), (0, 2, 6), (0, 3, 7)]
    assert measures.verification(loose, trials=trials).attrs["identities"] == 5
    known = Embeddings.labelled(rows, [0, 0, 0, 3, 4, 4, 0, 3])
    assert measures.verification(known, trials=trials).attrs["identities"] == 3


REFUSED = {
    "": "t.txt: no trial, expected lines of a label and two rows, like 1 a b",
    "1 0 1\n": "t.txt: no impostor pair among 1 trials, expected both kinds",
    "0 0 2\n": "t.txt: no target pair among 1 trials, expected both kinds",
    "1 0 1\n0 0\n": "t.txt, line 2: '0 0', expected a label and two rows, like 1 a b",
    "1 0 1\n7 0 2\n": "t.txt, line 2: '7 0 2', expected a label and two rows",
    "1 0 1\n0 0 9\n": "t.txt, line 2: '9' is no name of a row, and no row number from 0 to 5",
    "1 0 1\n0 0 Zico_0003\n": "t.txt, line 2: 'Zico_0003' is no name of a row",
    "2 2\nZico 1 2\n": "t.txt: 1 pairs, expected 2 x 2 x 2 as its first line says",
    "1 1\nZico 1 2\nZico 1 Ann_Lee x\n": "t.txt, line 3: 'Zico 1 Ann_Lee x', expected name i j, or name i other j",
    b"\xff\xfe1\x00": "t.txt: no text in UTF-8",
}


@pytest.mark.parametrize(("text", "sentence"), REFUSED.items(), ids=range(len(REFUSED)))
def test_a_list_that_cannot_be_read_is_refused_with_one_sentence(faces, tmp_path, text, sentence):
    (tmp_path / "t.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as refused:
        measures.verification(faces, trials="t.txt")
    assert str(refused.value).startswith(sentence)


def test_what_cannot_be_verified_is_refused_with_one_sentence(faces, tmp_path):
    rows = torch.randn(4, 3)
    twice = Embeddings.labelled(rows, [0, 0, 1, 1], names=["a", "a", "b", "c"])
    cases = [
        (Embeddings.labelled(rows, [5] * 4), {}, "no impostor pair: all rows are of one class"),
        (Embeddings.labelled(rows, range(4)), {}, "no target pair: no class has two samples"),
        (Embeddings(rows, rows[:2], [0, 1, 2, 3], [7, 8]), {}, "no target pair: no group is on both sides"),
        (faces, {"metric": "cosine_dot"}, "unknown metric 'cosine_dot'"),
        (twice, {"trials": [(1, "a", "b")]}, "trials, trial 0: 'a' is the name of several rows"),
        (faces, {"trials": "gone.txt"}, "gone.txt"),
    ]
    for embeddings, options, sentence in cases:
        with pytest.raises(InputError) as refused:
            measures.verification(embeddings, **options)
        assert str(refused.value).startswith(sentence)


@pytest.fixture
def labelled_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    embeddings = planted()
    np.savez("set.npz", embeddings=embeddings.query.numpy(), labels=embeddings.query_group.numpy())
    return embeddings


def test_the_command_prints_the_metrics_in_percent(labelled_file):
    document = json.loads(call("evaluate", "set.npz", "--verification", "--json").stdout)
    expected = slow(*compared(labelled_file, "cosine"))
    for name, value in expected.items():
        assert document[name]["mean"] == pytest.approx(value, abs=1e-9)
    assert (document["targets"], document["impostors"], document["identities"]) == (600, 28_080, 40)
    text = call("evaluate", "set.npz", "--verification", "--metric", "euclidean", "--out", "found.nc").stdout
    assert "TAR@FAR=0.0001" in text and ["impostors", "28080"] in [line.split() for line in text.splitlines()]
    saved = results.open("found.nc")
    assert str(table("verification", saved)) in text and saved.attrs["metric"] == "euclidean"
    with open("t.txt", "w", encoding="utf-8") as file:
        file.writelines(f"{int(k % 2)} 0 {1 if k % 2 else 6 + k}\n" for k in range(40))
    assert json.loads(call("evaluate", "set.npz", "--trials", "t.txt", "--json").stdout)["targets"] == 20


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--verification", "--folds", 5], "--folds does not go with --verification"),
        (["--trials", "set.npz", "--out", "set.npz"], "set.npz"),
    ],
)
def test_options_of_one_kind_of_evaluation_are_refused_in_the_other(labelled_file, words, sentence):
    refused = call("evaluate", "set.npz", *words)
    assert refused.exit_code == 2 and sentence in refused.stderr.replace("\n", " ")
