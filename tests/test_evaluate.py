"""Retrieval metrics against slow loops over sorted candidates, the published protocols, and numbers by hand."""

import json
import math
from importlib import resources
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import cocos
from benchmarks.exactness import dense_scores
from cocos import Embeddings, InputError, measures, reports, results
from cocos.cli import app
from cocos.embeddings import similarities
from cocos.measures.shared import retrieval
from cocos.reports import table


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def ranked(score, positive, negative=None):
    """Places of all positives of a small matrix, as the pass over the scores gives them."""
    negative = ~positive if negative is None else negative
    query, candidate = positive.nonzero(as_tuple=True)
    gap = score[query] - score[query, candidate][:, None]
    return SimpleNamespace(
        query=query, above=((gap > 0) & negative[query]).sum(1), ties=((gap == 0) & negative[query]).sum(1)
    )


def loop(score, positive, negative=None, ks=(1, 5, 10)):
    """The metrics from one sorted list of candidates a query; of equal scores negatives come first."""
    negative = ~positive if negative is None else negative
    found = {name: [] for name in ("first", "MRR", "mAP", "mAP@R", "R-precision", "tied")}
    found |= {f"{kind}@{k}": [] for kind in ("R", "mAP") for k in ks}
    for s, p, n in zip(score.tolist(), positive.tolist(), negative.tolist(), strict=True):
        if not any(p):
            continue
        taking_part = [c for c in range(len(s)) if p[c] or n[c]]
        hits = [p[c] for c in sorted(taking_part, key=lambda c: (-s[c], p[c]))]
        total, rank = sum(hits), hits.index(True) + 1
        precision = [sum(hits[: i + 1]) / (i + 1) if hit else 0 for i, hit in enumerate(hits)]
        best = max(s[c] for c in taking_part if p[c])
        found["first"].append(rank)
        found["MRR"].append(1 / rank)
        found["mAP"].append(sum(precision) / total)
        found["mAP@R"].append(sum(precision[:total]) / total)
        found["R-precision"].append(sum(hits[:total]) / total)
        found["tied"].append(any(n[c] and s[c] == best for c in range(len(s))))
        for k in ks:
            found[f"R@{k}"].append(any(hits[:k]))
            found[f"mAP@{k}"].append(sum(precision[:k]) / min(k, total))
    first = found.pop("first")
    means = {name: 100 * np.mean(values) for name, values in found.items()}
    recalls = [100 * np.mean([rank <= k for rank in first]) for k in (1, 5, 10)]
    ranks = {"median_rank": np.median(first), "mean_rank": np.mean(first), "average_recall": np.mean(recalls)}
    return means | ranks


def slow_precision_recall(score, positive, negative):
    """Area under the steps of the precision-recall curve, threshold by threshold."""
    area, before, total = 0, 0, int(positive.sum())
    for threshold in sorted(set(score[positive].tolist()), reverse=True):
        hits, wrong = (int(((score >= threshold) & mask).sum()) for mask in (positive, negative))
        area += (hits - before) / total * hits / (hits + wrong)
        before = hits
    return 100 * area


def cosines(query, candidate):
    return dense_scores(query, candidate, "cosine")


@pytest.fixture(scope="module")
def captions():
    """Forty images with one to six captions each, in no order."""
    generator = torch.Generator().manual_seed(2)
    image = torch.randn(40, 12, generator=generator)
    group = torch.randint(40, (90,), generator=generator)
    group = torch.cat([group, torch.arange(40)])[torch.randperm(130, generator=generator)]
    caption = image[group] + 1.5 * torch.randn(130, 12, generator=generator)
    return Embeddings(image, caption, torch.arange(40) + 7, group + 7)


@pytest.fixture(scope="module")
def classes():
    """Ninety samples of seven classes, and one sample that is alone in its class."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.cat([torch.arange(89) % 7, torch.tensor([50])])
    labels = labels[torch.randperm(90, generator=generator)]
    centre = torch.randn(51, 8, generator=generator)
    return Embeddings.labelled(centre[labels] + 1.2 * torch.randn(90, 8, generator=generator), labels)


def values(data, direction, condition="without"):
    """The metrics of the only fold."""
    one = data.sel(distractors=condition, direction=direction).isel(fold=0)
    return {name: one[name].item() for name in one if data[name].dims == ("distractors", "direction", "fold")}


def assert_area(data, condition, expected):
    """PR-AUC is what is expected."""
    assert data["PR-AUC"].sel(distractors=condition).item() == pytest.approx(expected, abs=1e-9)


def test_a_sample_alone_in_its_class_asks_in_no_metric():
    """Two classes of two, well apart, and two samples alone whose neighbours are each other."""
    rows = torch.tensor([[1, 0], [0.9, 0.3], [0, 1], [0.3, 0.9], [0.7, 0.7], [0.7, 0.71]])
    data = measures.evaluate(Embeddings.labelled(rows, torch.tensor([0, 0, 1, 1, 2, 3])))
    assert "2 queries have no positive and are left out" in data.attrs["notes"]
    assert data["PR-AUC"].item() == pytest.approx(100)


@pytest.mark.parametrize("seed", range(4))
def test_the_area_of_a_labelled_set_is_over_the_queries_that_are_kept(seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.arange(30) % 5, torch.arange(100, 112)])[torch.randperm(42, generator=generator)]
    rows = torch.randn(42, 6, generator=generator, dtype=torch.float64)
    embeddings = Embeddings.labelled(rows, labels)
    alike, kept = labels[:, None] == labels, labels < 100
    positive, negative = (alike & ~torch.eye(42, dtype=torch.bool))[kept], ~alike[kept]
    expected = slow_precision_recall(cosines(rows, rows)[kept], positive, negative)
    assert_area(measures.evaluate(embeddings), "without", expected)
    assert measures.precision_recall(embeddings).attrs["pr_auc"] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_curve_and_the_metrics_have_one_area(seed):
    """Queries and candidates without a match: the curve is that of `evaluate` with distractors."""
    generator = torch.Generator().manual_seed(seed)
    query, candidate = (torch.randn(number, 6, generator=generator) for number in (30, 50))
    groups = torch.arange(30) // 2, torch.arange(50) // 2 + 4
    for embeddings in (Embeddings(query, candidate, *groups), Embeddings(candidate, query, *groups[::-1])):
        area = measures.evaluate(embeddings)["PR-AUC"].sel(distractors="with").item()
        assert measures.precision_recall(embeddings).attrs["pr_auc"] == pytest.approx(area, abs=1e-9)


def test_metrics_by_hand():
    # query 0: negative .9, positive .8, positive .7, negative .1; query 1: positive .5 beside a negative of .5
    score = torch.tensor([[0.9, 0.8, 0.7, 0.1], [0.1, 0.5, 0.5, 0.2]], dtype=torch.float64)
    positive = torch.tensor([[False, True, True, False], [False, True, False, False]])
    found = retrieval.metrics(ranked(score, positive), (1, 2))
    assert found["R@1"] == 0 and found["R@2"] == 100
    assert found["median_rank"] == found["mean_rank"] == 2
    assert found["MRR"] == 50
    assert found["mAP"] == pytest.approx(100 * ((1 / 2 + 2 / 3) / 2 + 1 / 2) / 2)
    assert found["mAP@2"] == pytest.approx(100 * (1 / 2 / 2 + 1 / 2) / 2)
    assert found["mAP@R"] == pytest.approx(100 * (1 / 2 / 2 + 0) / 2)
    assert found["R-precision"] == pytest.approx(100 * (1 / 2 + 0) / 2)
    assert found["tied"] == 50
    assert retrieval.rsum(found, found) == pytest.approx(2 * (0 + 100 + 100))


def test_r_precision_and_map_at_r_are_those_of_musgrave_et_al():
    """Their section 3.2: ten relevant; all of the first ten, or only the first, or the last of them, are found."""
    relevant, score = 10, -torch.arange(40, dtype=torch.float64)[None]

    def of(*hits):
        positive = torch.zeros(1, 40, dtype=torch.bool)
        positive[0, list(hits)] = True
        found = retrieval.metrics(ranked(score, positive))
        return found["R-precision"], found["mAP@R"]

    assert of(*range(relevant)) == (100, 100)
    assert of(0, *range(20, 29)) == pytest.approx((10, 10))
    assert of(9, *range(20, 29)) == pytest.approx((10, 1))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("levels", [3, 20, 10**6])
def test_metrics_are_those_of_sorted_candidates(seed, levels):
    generator = torch.Generator().manual_seed(seed)
    score = torch.randint(levels, (25, 30), generator=generator).double() / levels
    positive = torch.rand(25, 30, generator=generator) < 0.12
    negative = ~positive & (torch.rand(25, 30, generator=generator) < 0.9)
    found = ranked(score, positive, negative)
    shuffled = torch.randperm(len(found.query), generator=generator)
    for order in (slice(None), shuffled):
        given = SimpleNamespace(**{name: part[order] for name, part in vars(found).items()})
        assert retrieval.metrics(given, (1, 5, 10)) == pytest.approx(loop(score, positive, negative))


def test_collapsed_embeddings_find_nothing():
    same = torch.ones(20, 4)
    data = measures.evaluate(Embeddings(same, same), ks=(1, 19, 20))
    for direction in ("q2c", "c2q"):
        found = values(data, direction)
        assert (found["R@1"], found["R@19"], found["R@20"], found["median_rank"], found["tied"]) == (0, 0, 100, 20, 100)
    assert data["PR-AUC"].item() == pytest.approx(100 * 20 / 400)  # one threshold lets all pairs in
    for width in (7, 64):  # products in float32 that are not exact
        row = torch.randn(1, width, generator=torch.Generator().manual_seed(width))
        data = measures.evaluate(Embeddings(row.repeat(20, 1), row.repeat(20, 1)))
        assert data["R@1"].max() == 0 and data["PR-AUC"].item() == pytest.approx(100 * 20 / 400)
    assert ("tied (%)", "100.00", "100.00") in table("evaluate", data).rows


def test_both_directions_of_images_with_several_captions(captions):
    data = measures.evaluate(captions, ks=(1, 3, 10))
    score = cosines(captions.query, captions.candidate)
    positive = captions.query_group[:, None] == captions.candidate_group
    for direction, s, p in (("q2c", score, positive), ("c2q", score.T, positive.T)):
        found = values(data, direction)
        assert (found.pop("queries"), found.pop("candidates")) == tuple(s.shape)
        assert found == pytest.approx(loop(s, p, ks=(1, 3, 10)))
    both = [values(data, name)["average_recall"] for name in ("q2c", "c2q")]
    assert data["rsum"].item() == pytest.approx(3 * sum(both))
    assert_area(data, "without", slow_precision_recall(score, positive, ~positive))
    assert data["left_out"].values.tolist() == data["unmatched"].values.tolist() == [0, 0]
    assert "NMI" not in data and "with" not in data["distractors"]


def published(images, texts):
    """R@1, R@5, R@10, median and mean rank as VSE++ defines them: five captions an image, in rows, ranks from 0."""
    score = (images @ texts.T).numpy()
    order = np.argsort(-score, axis=1)
    q2c = np.array([min(int(np.flatnonzero(row == 5 * i + j)[0]) for j in range(5)) for i, row in enumerate(order)])
    order = np.argsort(-score.T, axis=1)
    c2q = np.array([int(np.flatnonzero(row == t // 5)[0]) for t, row in enumerate(order)])
    return [
        (*(100 * (ranks < k).mean() for k in (1, 5, 10)), math.floor(np.median(ranks)) + 1, ranks.mean() + 1)
        for ranks in (q2c, c2q)
    ]


def test_five_folds_are_the_1k_protocol_of_coco():
    generator = torch.Generator().manual_seed(4)
    images, group = torch.randn(100, 16, generator=generator, dtype=torch.float64), torch.arange(100)
    texts = images.repeat_interleave(5, dim=0) + 2 * torch.randn(500, 16, generator=generator, dtype=torch.float64)
    images, texts = (torch.nn.functional.normalize(side, dim=1) for side in (images, texts))
    embeddings = Embeddings(images, texts, group, group.repeat_interleave(5))
    names = ("R@1", "R@5", "R@10", "median_rank", "mean_rank")
    whole = measures.evaluate(embeddings)
    for direction, expected in zip(("q2c", "c2q"), published(images, texts), strict=True):
        found = values(whole, direction)
        assert [found[name] if "median" not in name else math.floor(found[name]) for name in names] == pytest.approx(
            list(expected)
        )
    folds = measures.evaluate(embeddings, folds=5)
    parts = [published(images[20 * i : 20 * i + 20], texts[100 * i : 100 * i + 100]) for i in range(5)]
    summary = reports.document("evaluate", folds)
    for d, direction in enumerate(("q2c", "c2q")):
        entry = summary["directions"][direction]
        assert entry["candidates"] == {"mean": (100, 20)[d], "std": 0}
        for n, name in enumerate(names):
            if name != "median_rank":
                each = [part[d][n] for part in parts]
                assert entry[name] == pytest.approx({"mean": np.mean(each), "std": np.std(each)})
    assert summary["rsum"]["mean"] == pytest.approx(
        np.mean([sum(r[k] for r in part for k in range(3)) for part in parts])
    )
    assert "mean ± standard deviation over 5 folds" in str(table("evaluate", folds))


def test_folds_are_cut_in_order_of_first_appearance_and_cover_everything(captions):
    group = captions.query_group.flip(0)
    backwards = Embeddings(captions.query.flip(0), captions.candidate, group, captions.candidate_group)
    data = measures.evaluate(backwards, folds=7)
    assert data["queries"].sel(direction="q2c").values.ravel().tolist() == [6, 6, 6, 6, 6, 5, 5]
    assert data["queries"].sel(direction="c2q").sum() == len(captions.candidate)
    first = torch.isin(captions.candidate_group, group[:6])
    alone = measures.evaluate(
        Embeddings(backwards.query[:6], captions.candidate[first], group[:6], captions.candidate_group[first])
    )
    for direction in ("q2c", "c2q"):
        one = data.sel(distractors="without", direction=direction, fold=0)
        assert {name: one[name].item() for name in values(alone, direction)} == pytest.approx(values(alone, direction))


def test_labelled_samples_never_find_themselves(classes):
    data = measures.evaluate(classes)
    score = cosines(classes.query, classes.query)
    same = classes.query_group[:, None] == classes.query_group
    positive = same & ~torch.eye(90, dtype=torch.bool)
    found = values(data, "s2s")
    assert (found.pop("queries"), found.pop("candidates"), data["left_out"].item()) == (89, 90, 1)
    assert found == pytest.approx(loop(score, positive, ~same))
    asks = positive.any(dim=1)
    assert_area(data, "without", slow_precision_recall(score[asks], positive[asks], ~same[asks]))
    assert "rsum" not in data
    assert "s2s: 1 queries have no positive and are left out" in data.attrs["notes"]


def test_labelled_metrics_are_those_of_pytorch_metric_learning(classes):
    calculator = pytest.importorskip("pytorch_metric_learning.utils.accuracy_calculator")

    def neighbours(query, k, reference, ref_includes_query):
        score = cosines(query, reference)
        if ref_includes_query:
            score.fill_diagonal_(-torch.inf)
        return score.topk(k, dim=1)

    names = {
        "precision_at_1": "R@1",
        "r_precision": "R-precision",
        "mean_average_precision_at_r": "mAP@R",
        "mean_average_precision": "mAP",
        "mean_reciprocal_rank": "MRR",
    }
    theirs = calculator.AccuracyCalculator(include=tuple(names), k=89, knn_func=neighbours).get_accuracy(
        classes.query, classes.query_group
    )
    ours = values(measures.evaluate(classes), "s2s")
    assert {name: ours[own] / 100 for name, own in names.items()} == pytest.approx(theirs)


def test_proxies_of_absent_classes_are_distractors():
    generator = torch.Generator().manual_seed(5)
    proxies, labels = torch.randn(9, 6, generator=generator), torch.arange(60) % 4
    proxy_labels = torch.tensor([0, 1, 2, 3, 0, 1, 8, 8, 9])
    samples = proxies[labels] + torch.randn(60, 6, generator=generator)
    data = measures.evaluate(Embeddings.labelled(samples, labels, proxies, proxy_labels), metric="euclidean")
    score = similarities.euclidean(samples.double(), proxies.double())
    positive = labels[:, None] == proxy_labels
    for condition, part in (("without", slice(0, 6)), ("with", slice(0, 9))):
        found = values(data, "s2p", condition)
        assert (found.pop("queries"), found.pop("candidates")) == (60, part.stop)
        assert found == pytest.approx(loop(score[:, part], positive[:, part]))
        assert_area(data, condition, slow_precision_recall(score[:, part], positive[:, part], ~positive[:, part]))
    assert data["unmatched"].values.tolist() == [3, 0] and 0 < data["NMI"].values[0, 0] < 100


def test_rows_that_match_nothing_are_left_out_as_queries_and_distract_as_candidates(captions):
    group = captions.candidate_group.clone()
    group[group < 12] = 1  # captions of no image; images 7 to 11 lose theirs
    lonely = Embeddings(captions.query, captions.candidate, captions.query_group, group)
    data = measures.evaluate(lonely)
    score = cosines(captions.query, captions.candidate)
    positive = captions.query_group[:, None] == group
    there = positive.any(dim=0)
    assert data["left_out"].values.tolist() == data["unmatched"].values.tolist()[::-1] == [5, int((~there).sum())]
    for direction, s, p in (("q2c", score, positive), ("c2q", score.T, positive.T)):
        asking, known = p.any(dim=1), p.any(dim=0)
        for condition, columns in (("without", known), ("with", torch.ones_like(known))):
            found = values(data, direction, condition)
            assert (found.pop("queries"), found.pop("candidates")) == (int(asking.sum()), int(columns.sum()))
            assert found == pytest.approx(loop(s[asking][:, columns], p[asking][:, columns]))
            if direction == "q2c":
                area = slow_precision_recall(*(m[asking][:, columns] for m in (s, p, ~p)))
                assert_area(data, condition, area)
    text = str(table("evaluate", data))
    assert "q2c + distractors" in text and "c2q + distractors" in text
    folds = measures.evaluate(lonely, folds=3)
    assert folds["candidates"].sel(direction="q2c", distractors="with").values.tolist() == [
        n + int((~there).sum()) for n in folds["candidates"].sel(direction="q2c", distractors="without").values
    ]


def test_distractors_of_another_file(captions):
    more = torch.randn(25, 12, generator=torch.Generator().manual_seed(6))
    plain = measures.evaluate(captions)
    data = measures.evaluate(captions, distractors=Embeddings(more, more))
    for direction in ("q2c", "c2q"):
        assert values(data, direction) == values(plain, direction)
    assert values(data, "c2q", "with") == values(plain, "c2q")
    score = cosines(captions.query, torch.cat([captions.candidate, more]))
    positive = torch.cat([captions.query_group[:, None] == captions.candidate_group, torch.zeros(40, 25) > 0], dim=1)
    found = values(data, "q2c", "with")
    assert (found.pop("queries"), found.pop("candidates")) == (40, 155)
    assert found == pytest.approx(loop(score, positive))
    assert found["mean_rank"] > values(plain, "q2c")["mean_rank"]
    assert (data["rsum"].sel(distractors="with") <= data["rsum"].sel(distractors="without")).all()


@pytest.mark.parametrize("suffix", [".npz", ".pt", ".safetensors"])
def test_a_file_of_distractors_may_have_candidates_alone(captions, suffix, tmp_path):
    more = torch.randn(25, 12, generator=torch.Generator().manual_seed(6))
    path = tmp_path / f"more{suffix}"
    if suffix == ".npz":
        np.savez(path, candidate=more.numpy())
    elif suffix == ".pt":
        torch.save({"candidate": more}, path)
    else:
        save_file({"candidate": more}, path)
    np.savez(tmp_path / "a.npz", **{name: getattr(captions, name) for name in ("query", "candidate", "query_group",
                                                                               "candidate_group")})  # fmt: skip
    done = CliRunner().invoke(app, ["evaluate", str(tmp_path / "a.npz"), "--distractors", str(path), "--json"])
    assert done.exit_code == 0, done.stderr
    found = measures.evaluate(captions, distractors=Embeddings(more, more))
    said = json.loads(done.stdout)["with_distractors"]["directions"]["q2c"]
    assert said["R@1"]["mean"] == pytest.approx(values(found, "q2c", "with")["R@1"])


@pytest.mark.parametrize(
    ("rows", "said"),
    [(np.ones(4), "shape"), (np.full((2, 12), np.nan), "NaN"), (np.array(["a"]), "dtype"), (np.ones((0, 12)), "shape")],
)
def test_distractors_that_are_none_are_one_sentence(captions, rows, said, tmp_path):
    np.savez(tmp_path / "more.npz", candidate=rows)
    with pytest.raises(InputError, match=f"more.npz.*{said}"):
        cocos.open(tmp_path / "more.npz")


def test_distractors_of_a_labelled_set_leave_every_sample_out_of_its_own_candidates(classes):
    more = torch.randn(25, 8, generator=torch.Generator().manual_seed(6))
    samples = measures.evaluate(classes, distractors=Embeddings.labelled(more, torch.arange(25)))
    score = cosines(classes.query, torch.cat([classes.query, more]))
    same = torch.cat([classes.query_group[:, None] == classes.query_group, torch.zeros(90, 25) > 0], dim=1)
    found = values(samples, "s2s", "with")
    assert (found.pop("queries"), found.pop("candidates"), samples["left_out"].item()) == (89, 115, 1)
    assert found == pytest.approx(loop(score, same & ~torch.eye(90, 115, dtype=torch.bool), ~same))
    assert values(samples, "s2s") == values(measures.evaluate(classes), "s2s")


def test_the_area_counts_pairs_that_tie_together():
    score = torch.tensor([0.9, 0.5, 0.5, 0.1], dtype=torch.float64)
    negatives = torch.tensor([0, 2, 2, 6])
    # thresholds .9, .5, .1: precision 1/1, 3/5, 4/10 for recall 1/4, 2/4 more, 1/4 more
    assert retrieval.average_precision(score, negatives) == pytest.approx(100 * (1 / 4 + 3 / 5 / 2 + 4 / 10 / 4))


def test_nmi_is_that_of_the_table_of_both_partitions():
    generator = np.random.default_rng(0)
    for classes, clusters in ((2, 2), (5, 3), (4, 9)):
        left, right = generator.integers(classes, size=50), generator.integers(clusters, size=50)
        left[:20] = right[:20] % classes
        shared = [[np.mean((left == a) & (right == b)) for b in set(right)] for a in set(left)]
        rows, columns = np.sum(shared, axis=1), np.sum(shared, axis=0)
        mutual = sum(
            p * math.log(p / rows[i] / columns[j]) for i, row in enumerate(shared) for j, p in enumerate(row) if p
        )
        apart = -sum(p * math.log(p) for p in (*rows, *columns))
        found = retrieval.nmi(torch.from_numpy(left * 10), torch.from_numpy(right - 4))
        assert found == pytest.approx(100 * 2 * mutual / apart)
    labels = torch.tensor([0, 0, 1, 1])
    assert retrieval.nmi(labels, 1 - labels) == pytest.approx(100)
    assert retrieval.nmi(labels, torch.tensor([0, 1, 0, 1])) == pytest.approx(0)
    assert retrieval.nmi(labels, torch.zeros(4, dtype=torch.int64)) == pytest.approx(0)


def noisy(classes, samples, noise, seed=9):
    """Unit vectors about as many centres as there are classes, and their classes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(samples)
    rows = torch.randn(classes, 16, generator=generator)[labels]
    rows = rows + noise * torch.randn(len(labels), 16, generator=generator)
    return torch.nn.functional.normalize(rows, dim=1), labels


def test_nmi_is_that_of_the_clusters_of_scikit_learn_from_the_same_start():
    cluster = pytest.importorskip("sklearn.cluster")
    metrics = pytest.importorskip("sklearn.metrics")
    for seed in range(3):
        vectors, labels = noisy(30, 20, 0.7, seed)
        starts = retrieval.kmeans_plus_plus(vectors, 30, seed)
        theirs = cluster.KMeans(30, init=starts.numpy(), n_init=1, max_iter=100, tol=0).fit(vectors.numpy()).labels_
        right = 100 * metrics.normalized_mutual_info_score(labels.numpy(), theirs)
        assert retrieval.clustered(vectors, labels, seed)[0] == pytest.approx(right, abs=0.5) and right < 99


def test_a_checkpoint_is_evaluated_on_its_test_split():
    frozen = cocos.open("example")
    data = measures.evaluate(frozen)
    assert data.attrs["split"] == "test" and "split test, one of train, val, test" in data.attrs["notes"]
    assert data.attrs["checkpoint_sha256"] == frozen.sha256
    own = frozen.embed("test", "cpu")
    positive = own.query_group[:, None] == own.candidate_group
    found = values(data, "i2t")
    assert (found.pop("queries"), found.pop("candidates")) == (358, 1790)
    score = cosines(own.query, own.candidate)
    gap = score[:, :, None] - score[positive].view(358, 1, 5)
    beaten = ((gap >= -1e-12) & ~positive[:, :, None]).sum(dim=1)
    assert found["R@1"] == pytest.approx(100 * (beaten.min(dim=1).values == 0).double().mean().item())
    assert found["tied"] > 1  # some emoji share a caption
    negatives = score[~positive].sort().values
    at = score[positive].sort(descending=True).values
    assert_area(data, "without", retrieval.average_precision(at, len(negatives) - torch.searchsorted(negatives, at)))


@pytest.mark.parametrize(
    ("splits", "asked", "taken", "note"),
    [
        (("train", "val", "test"), None, "test", "split test, one of train, val, test; --split takes another"),
        (("train", "dev", "val"), None, "val", "split val, one of train, dev, val; --split takes another"),
        (("train", "dev"), None, "dev", "split dev, one of train, dev; --split takes another"),
        (("train", "odd"), None, "train", "split train, one of train, odd; --split takes another"),
        ((), None, "train", "split train, the checkpoint names none; --split takes another"),
        (("train", "test"), "train", "train", ""),
    ],
)
def test_the_split_is_one_that_the_checkpoint_has(captions, splits, asked, taken, note):
    encoded = []

    def embedder(split, device, progress):
        encoded.append(split)
        return captions

    training = cocos.data.Source("own", splits, list)
    frozen = cocos.Checkpoint("a.pt", sha256="0", format="own", contents={}, embedder=embedder, training=training)
    data = measures.evaluate(frozen, split=asked)
    assert encoded == [taken] == [data.attrs["split"]]
    assert data.attrs["notes"] == note


FAULTS = (
    ({"ks": ()}, "k: none is given"),
    ({"ks": (0, 1)}, "k: 0, expected integers of at least 1"),
    ({"ks": (1.5,)}, "k: 1.5, expected integers"),
    ({"folds": 2.0}, "folds: 2.0, expected an integer"),
    ({"folds": 21}, "folds: 21, expected at most 20: each needs two of the 40 groups"),
    ({"metric": "cosin"}, "unknown metric 'cosin': did you mean 'cosine'?"),
    ({"seed": -1}, "seed: -1, expected an integer from 0"),
    ({"distractors": Embeddings(torch.ones(3, 5), torch.ones(3, 5))}, "distractors have width 5 and the embeddings"),
    ({"distractors": Embeddings(torch.ones(2, 12), torch.eye(2, 12) * 0)}, "zero vector in rows 0, 1"),
    ({"distractors": torch.ones(3, 12)}, "embeddings: Tensor, expected cocos.Embeddings or a checkpoint"),
)


@pytest.mark.parametrize(("options", "sentence"), FAULTS, ids=[sentence[:24] for _, sentence in FAULTS])
def test_bad_options_get_one_sentence(captions, options, sentence):
    with pytest.raises(InputError) as caught:
        measures.evaluate(captions, **options)
    assert sentence in str(caught.value)


def test_sets_without_a_positive_or_a_negative_are_refused():
    side = torch.eye(4)
    for groups, sentence in (
        ((torch.arange(4), torch.arange(4) + 9), "no query has any positive"),
        (
            (torch.zeros(4, dtype=torch.int64),) * 2,
            "no query has any negative: all queries with a positive are of one group",
        ),
    ):
        with pytest.raises(InputError, match=sentence):
            measures.evaluate(Embeddings(side, side, *groups))
    with pytest.raises(InputError, match="no query has any positive: every sample is the only one of its class"):
        measures.evaluate(Embeddings.labelled(side, torch.arange(4)))
    with pytest.raises(InputError, match="in one of the folds every sample is the only one"):
        measures.evaluate(Embeddings.labelled(torch.eye(6), torch.tensor([0, 0, 1, 1, 2, 3])), folds=2)


@pytest.fixture
def files(tmp_path, captions):
    arrays = {
        name: getattr(captions, name).numpy() for name in ("query", "candidate", "query_group", "candidate_group")
    }
    np.savez(tmp_path / "a.npz", **arrays)
    np.savez(tmp_path / "more.npz", query=arrays["query"], candidate=arrays["query"][:, ::-1])
    np.savez(tmp_path / "narrow.npz", query=arrays["query"][:, :5], candidate=arrays["query"][:, :5])
    return tmp_path


def test_the_command_prints_one_document(files, captions):
    done = call(
        "evaluate",
        files / "a.npz",
        "--k",
        "1,20",
        "--distractors",
        files / "more.npz",
        "--json",
        "--out",
        files / "a.nc",
    )
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["k"] == [1, 20] and document["ties"] == "a negative that ties with a positive stands above it"
    assert document["checkpoint"]["format"] == "embeddings" and document["split"] is None
    saved = results.open(files / "a.nc")
    assert reports.document("evaluate", saved) == document
    expected = measures.evaluate(captions, ks=(1, 20))
    assert document["directions"]["c2q"]["R@20"]["mean"] == values(expected, "c2q")["R@20"]
    assert document["directions"]["q2c"]["unmatched"] == document["directions"]["c2q"]["left_out"] == 40
    with_distractors = document["with_distractors"]["directions"]["q2c"]
    assert with_distractors["mean_rank"]["mean"] > document["directions"]["q2c"]["mean_rank"]["mean"]
    assert "note: q2c: 40 candidates match no query (distractors)" in done.stderr
    quiet = call("evaluate", files / "a.npz", "--quiet")
    assert quiet.exit_code == 0 and quiet.stderr == ""
    assert "R@1 " in quiet.stdout and "a negative that ties with a positive stands above it" in quiet.stdout
    assert "ties with a positive" in call("evaluate", "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--k", "0"), "k: 0, expected integers of at least 1"),
        (("--k", "one"), "--k 'one': expected numbers"),
        (("--k", ""), "--k '': expected numbers"),
        (("--folds", "30"), "folds: 30, expected at most 20"),
        (("--split", "val"), "'val'"),
        (("--distractors", "narrow.npz"), "distractors have width 5 and the embeddings have width 12"),
        (("--distractors", "none.npz"), "file not found"),
        (("--metric", "manhattan"), "unknown metric 'manhattan'"),
    ],
)
def test_bad_arguments_get_one_sentence(files, monkeypatch, arguments, sentence):
    monkeypatch.chdir(files)
    done = call("evaluate", "a.npz", "--json", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert sentence in done.stderr and done.stderr.count("\n") == 1


def with_proxies(seed=0, *, shift=0):
    """30 samples of 5 classes with two far-out dimensions of their own, and a proxy for each class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(5).repeat_interleave(6)
    proxies = 2 * torch.randn(5, 4, generator=generator)
    samples = proxies[labels] * torch.rand(30, 1, generator=generator) + torch.randn(30, 4, generator=generator)
    return Embeddings.labelled(samples, labels, proxies, torch.arange(5) + shift)


def test_samples_with_proxies_are_ranked_among_samples_and_their_accuracy_has_its_own_name():
    embeddings = with_proxies()
    data = measures.evaluate(embeddings, metric="euclidean", ks=(1, 2))
    samples, labels, proxies = embeddings.query.numpy(), embeddings.query_group.numpy(), embeddings.candidate.numpy()
    apart = np.linalg.norm(samples[:, None] - samples[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    recall = 100 * np.mean(labels[apart.argmin(axis=1)] == labels)
    own = np.linalg.norm(samples[:, None] - proxies[None], axis=2)
    accuracy = 100 * np.mean(own.argmin(axis=1) == labels)
    assert recall != pytest.approx(accuracy)
    assert data["R@1"].sel(direction="s2s").item() == pytest.approx(recall)
    assert data["accuracy"].item() == data["R@1"].sel(direction="s2p").item() == pytest.approx(accuracy)
    second = 100 * np.mean([label in row for label, row in zip(labels, own.argsort(axis=1)[:, :2], strict=True)])
    assert data["accuracy@2"].item() == pytest.approx(second)
    away = [np.mean([own[i, c] for i in np.flatnonzero(labels == c)]) for c in range(5)]
    assert data["AvgDTP"].item() == pytest.approx(np.mean(away))
    said = table("evaluate", data)
    assert said.columns == ("", "s2p", "s2s")
    assert next(row for row in said.rows if row[0] == "R@1 (%)") == ("R@1 (%)", f"{accuracy:.2f}", f"{recall:.2f}")
    assert next(row for row in said.rows if row[0] == "accuracy (%)") == ("accuracy (%)", *[f"{accuracy:.2f}"] * 2)


def test_samples_whose_classes_have_no_proxy_are_ranked_among_samples_alone():
    """A test set of classes that the training did not see, as of CUB-200."""
    other = with_proxies(shift=7)
    data = measures.evaluate(other, metric="euclidean")
    alone = measures.evaluate(Embeddings.labelled(other.query, other.query_group), metric="euclidean")
    assert data["direction"].values.tolist() == ["s2s"] and data["R@1"].item() == alone["R@1"].item()
    assert "no sample has a proxy of its class" in data.attrs["notes"] and "accuracy" not in data


def test_the_loss_of_the_training_chooses_the_metric_and_a_named_metric_wins(tmp_path):
    embeddings = with_proxies()
    euclidean, cosine = (measures.evaluate(embeddings, metric=each)["MRR"].values for each in ("euclidean", "cosine"))
    assert not np.array_equal(euclidean, cosine)
    given = measures.evaluate(embeddings, loss="warped_softmax")
    assert given.attrs["metric"] == "euclidean" and np.array_equal(given["MRR"].values, euclidean)
    assert given.attrs["trained_with"] == "warped_softmax" and "those of warped_softmax" in given.attrs["notes"]
    wins = measures.evaluate(embeddings, loss="warped_softmax", metric="cosine")
    assert wins.attrs["metric"] == "cosine" and np.array_equal(wins["MRR"].values, cosine)
    assert wins.attrs["trained_with"] == "warped_softmax" and "those of" not in wins.attrs["notes"]
    found = reports.document("evaluate", measures.evaluate(embeddings))
    assert found["metric"] == "cosine" and found["trained_with"] is None
    said = "the loss of the training is not known: ranked by cosine"
    assert said in measures.evaluate(embeddings).attrs["notes"]
    assert said not in measures.evaluate(embeddings, metric="cosine").attrs["notes"]
    checkpoint = cocos.open(resources.files("cocos") / "example" / "emoji_ntxent.pt")
    assert measures.evaluate(checkpoint, ks=[1]).attrs["trained_with"] == "ntxent"


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_an_ensemble_is_concatenated_and_its_members_stand_beside(metric, tmp_path):
    sets = [with_proxies(seed) for seed in range(3)]
    sets = [Embeddings.labelled(3**place * each.query, each.query_group) for place, each in enumerate(sets)]
    data = measures.evaluate(sets[0], metric=metric, ensemble=sets[1:], ks=[1])
    rows = [each.query / each.query.norm(dim=1, keepdim=True) if metric == "cosine" else each.query for each in sets]
    whole = measures.evaluate(Embeddings.labelled(torch.cat(rows, 1), sets[0].query_group), metric=metric, ks=[1])
    assert data["mAP@R"].item() == pytest.approx(whole["mAP@R"].item())
    alone = [measures.evaluate(each, metric=metric, ks=[1])["mAP@R"].item() for each in sets]
    found = reports.document("evaluate", data)
    assert found["members"] == 3
    wanted = {"mean": np.mean(alone), "std": np.std(alone)}
    assert found["aggregate"]["directions"]["s2s"]["mAP@R"] == pytest.approx(wanted)
    for place, each in enumerate(sets):
        np.savez(tmp_path / f"{place}.npz", embeddings=each.query.numpy(), labels=each.query_group.numpy())
    others = ["--ensemble", tmp_path / "1.npz", "--ensemble", tmp_path / "2.npz", "--k", "1", "--metric", metric]
    done = call("evaluate", tmp_path / "0.npz", *others, "--json")
    assert json.loads(done.stdout)["aggregate"] == found["aggregate"]


def test_members_of_another_set_are_refused():
    one, other = with_proxies(), with_proxies(1)
    shorter = Embeddings.labelled(other.query[:20], other.query_group[:20])
    turned = Embeddings.labelled(one.query, one.query_group.flip(0))
    for member in (shorter, turned):
        with pytest.raises(InputError, match="ensemble: member 2 .* is not of the set of the first"):
            measures.evaluate(Embeddings.labelled(one.query, one.query_group), ensemble=[member])
