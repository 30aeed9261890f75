"""Scores across queries: distributions, precision and recall, cut-offs and example retrievals, against slow loops."""

import math
import re
import sys

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
import xarray as xr

from cocos import Embeddings, InputError, engine, measures, plots, reports
from cocos.engine.readers import PrecisionRecall, PrecisionRecallCurve
from cocos.measures.precision_recall import _thinned
from cocos.measures.shared.queries import steps


def drawn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.fixture(scope="module")
def captions():
    """Thirty images, 26 of which have one to six captions; two captions are of no image."""
    group = torch.cat([torch.arange(26), torch.randint(26, (60,), generator=torch.Generator().manual_seed(1))])
    group = torch.cat([group, torch.tensor([90, 91])])
    group = group[torch.randperm(len(group), generator=torch.Generator().manual_seed(2))]
    centre = drawn(92, 8)
    return Embeddings(centre[:30], centre[group] + 0.7 * drawn(len(group), 8, seed=3), torch.arange(30), group)


@pytest.fixture(scope="module")
def classes():
    """Forty samples of five classes, and one that is alone in its class."""
    labels = torch.cat([torch.arange(40) % 5, torch.tensor([9])])
    return Embeddings.labelled(drawn(10, 6)[labels] + drawn(41, 6, seed=5), labels)


def slow(embeddings, direction, metric="cosine"):
    """Scores of all pairs of a direction as rows of plain numbers, and what each pair is: 1, 0, None for the query."""
    query, candidate = embeddings.query.double().numpy(), embeddings.candidate.double().numpy()
    groups = [embeddings.query_group.tolist(), embeddings.candidate_group.tolist()]
    if direction != embeddings.directions[0]:
        query, candidate, groups = candidate, query, groups[::-1]
    score, kind = [], []
    for i, q in enumerate(query):
        score.append([])
        kind.append([])
        for j, c in enumerate(candidate):
            value = math.fsum(q * c) / math.sqrt(math.fsum(q * q)) / math.sqrt(math.fsum(c * c))
            score[-1].append(value if metric == "cosine" else -math.sqrt(math.fsum((q - c) ** 2)))
            own = embeddings.shared and i == j
            kind[-1].append(None if own else int(groups[0][i] == groups[1][j]))
    return score, kind


def of(score, kind, *wanted):
    return [s for s, k in zip(score, kind, strict=True) if k in wanted]


SETS = [("captions", "q2c"), ("captions", "c2q"), ("classes", "s2s")]


@pytest.mark.parametrize(("name", "direction"), SETS)
@pytest.mark.parametrize("loss", [None, "contrastive"])
def test_distributions_are_those_of_slow_loops(name, direction, loss, request):
    embeddings = request.getfixturevalue(name)
    ks = (1, 5, 40) if direction != "c2q" else (1, 5, 29)
    data = measures.score_distribution(embeddings, loss, bins=20, ks=ks).sel(direction=direction)
    score, kind = slow(embeddings, direction, "cosine" if loss is None else "euclidean")
    data = data.isel(query=slice(len(score)))
    width, low = data.attrs["bin_width"], float(data["bin"][0]) - data.attrs["bin_width"] / 2
    if loss is None:
        assert (low, width) == (-1, 0.1)
    counts, positives, kth, within = np.zeros((len(score), 20)), np.zeros(20), np.zeros((len(score), 3)), []
    for q, (row, kinds) in enumerate(zip(score, kind, strict=True)):
        for value in of(row, kinds, 0):
            counts[q, min(19, max(0, math.floor((value - low) / width)))] += 1
        for value in of(row, kinds, 1):
            positives[min(19, max(0, math.floor((value - low) / width)))] += 1
        every = sorted(of(row, kinds, 0, 1), reverse=True)
        kth[q] = [every[k - 1] for k in ks]
        mean = math.fsum(every) / len(every)
        within.append(math.sqrt(math.fsum((v - mean) ** 2 for v in every) / len(every)))
    np.testing.assert_array_equal(data["negatives"], counts)
    np.testing.assert_array_equal(data["positives"], positives)
    np.testing.assert_allclose(data["band"], np.percentile(counts, [5, 50, 95], axis=0))
    np.testing.assert_allclose(data["kth"], kth, rtol=0, atol=1e-12)
    np.testing.assert_allclose(data["kth_band"], np.percentile(kth, [5, 50, 95], axis=0), atol=1e-12)
    np.testing.assert_allclose(data["deviation"], within, rtol=1e-10)
    np.testing.assert_allclose(data["spread"], kth.std(axis=0) / np.mean(within), rtol=1e-10)
    assert {"long_name", "units"} <= set(data["spread"].attrs) and data.attrs["metric"] != loss


def test_the_spread_by_hand():
    """Two queries on the circle, at 0° and 60°, and candidates at 0° and 180°.

    Scores 1 and -1, deviation 1; 1/2 and -1/2, deviation 1/2: the mean deviation is 3/4. Nearest: 1 and 1/2, deviation
    1/4: spread 1/3. Second: -1 and -1/2, the same.
    """
    query = torch.tensor([[1.0, 0.0], [0.5, math.sqrt(0.75)]])
    candidate = torch.tensor([[2.0, 0.0], [-3.0, 0.0]])
    data = measures.score_distribution(Embeddings(query, candidate, directions=("q2c",)), ks=(1, 2, 3))
    np.testing.assert_allclose(data["spread"][0], [1 / 3, 1 / 3, np.nan], atol=1e-6)
    assert data["kth"][0, :, 2].isnull().all() and data["kth"].sel(k=1).notnull().all()


def test_queries_are_drawn_by_the_seed(captions):
    def rows(seed):
        data = measures.score_distribution(captions, queries=7, seed=seed)
        assert data["negatives"].notnull().all() and data.sizes["query"] == 7
        return data

    first, again, other = rows(3), rows(3), rows(4)
    assert first.identical(again) and not first["query_index"].equals(other["query_index"])
    index = first["query_index"].sel(direction="c2q").values.astype(int)
    assert sorted(set(index)) == index.tolist() and max(index) < 88
    whole = measures.score_distribution(captions, queries=None)
    assert whole["kth"].sel(direction="q2c").notnull().sum() == 30 * 2  # a query has 88 candidates, fewer than 100
    np.testing.assert_array_equal(
        first["negatives"].sel(direction="c2q"), whole["negatives"].sel(direction="c2q").isel(query=index)
    )


def slow_curve(score, kind):
    """Recall and precision at each threshold where recall grows, pair by pair."""
    pairs = [
        (s, k) for row, kinds in zip(score, kind, strict=True) for s, k in zip(row, kinds, strict=True) if k in {0, 1}
    ]
    total = sum(k for _, k in pairs)
    for threshold in sorted({s for s, k in pairs if k}, reverse=True):
        hits, wrong = (sum(s >= threshold and k == kind for s, k in pairs) for kind in (1, 0))
        yield threshold, hits / total, hits / (hits + wrong)


@pytest.mark.parametrize(("name", "direction"), SETS)
def test_the_curve_and_the_band_are_those_of_slow_loops(name, direction, request):
    embeddings = request.getfixturevalue(name)
    data = measures.precision_recall(embeddings)
    score, kind = slow(embeddings, direction)
    if direction != "c2q":
        asking = [pair for pair in zip(score, kind, strict=True) if 1 in pair[1]]  # those that have a positive
        threshold, recall, precision = map(np.array, zip(*slow_curve(*zip(*asking, strict=True)), strict=True))
        tied = np.append(np.diff(threshold) > -1e-12, False)  # a pair asked twice (s2s) may differ in its last digit
        for key, values in (("threshold", threshold), ("recall", recall), ("precision", precision)):
            np.testing.assert_allclose(data[key], values[~tied], atol=1e-12)
        area = math.fsum(np.diff(data["recall"], prepend=0) * data["precision"].values)
        assert data.attrs["pr_auc"] == pytest.approx(100 * area, abs=1e-9)
    precisions, average = [], []
    for row, kinds in zip(score, kind, strict=True):
        own = sorted(of(row, kinds, 1), reverse=True)
        if own:
            at = [m / (m + sum(s >= p for s in of(row, kinds, 0))) for m, p in enumerate(own, 1)]
            precisions.append([at[max(1, math.ceil(round(level * len(own), 9))) - 1] for level in data["level"].values])
            average.append(math.fsum(at) / len(at))
    one = data.sel(direction=direction)
    np.testing.assert_allclose(one["band"], np.percentile(precisions, [25, 50, 75], axis=0), atol=1e-12)
    np.testing.assert_allclose(one["mean"], np.mean(precisions, axis=0), atol=1e-12)
    assert float(one["mAP"]) == pytest.approx(100 * np.mean(average))


def test_the_area_is_that_of_evaluate():
    image, caption = drawn(20, 6), drawn(20, 6, seed=4)
    for embeddings in (Embeddings(image, image + caption), Embeddings.labelled(image, torch.arange(20) % 4)):
        expected = measures.evaluate(embeddings)["PR-AUC"].item()
        assert measures.precision_recall(embeddings).attrs["pr_auc"] == pytest.approx(expected, abs=1e-9)


def test_steps_of_a_curve_with_ties():
    curve = PrecisionRecallCurve(torch.tensor([0.9, 0.5, 0.5, 0.1], dtype=torch.float64), torch.tensor([0, 2, 2, 7]))
    score, found, negatives = (each.tolist() for each in steps(curve))
    assert (score, found, negatives) == ([0.9, 0.5, 0.1], [1, 3, 4], [0, 2, 7])


def test_a_thinned_curve_draws_the_same_line():
    number = 50_000
    recall = np.arange(1, number + 1) / number
    noise = np.random.default_rng(0).normal(size=number)
    precision = np.clip(1 - recall + 0.1 * noise, 0, 1)
    kept = _thinned(recall, precision)
    assert len(kept) <= 2000 and kept[0] == 0 and kept[-1] == number - 1 and (np.diff(kept) > 0).all()
    for column in range(500):  # each column of a picture has the same lowest and highest point
        mine, whole = (np.floor(values * 500).clip(max=499) == column for values in (recall[kept], recall))
        assert precision[kept][mine].min() == precision[whole].min()
        assert precision[kept][mine].max() == precision[whole].max()
    assert len(_thinned(recall[:2000], precision[:2000])) == 2000


@pytest.mark.parametrize(("name", "direction"), SETS)
def test_cut_offs_are_those_of_slow_loops(name, direction, request):
    embeddings = request.getfixturevalue(name)
    score, kind = slow(embeddings, direction)
    whole = slow(embeddings, embeddings.directions[0])
    targets = (0.3, 0.5, 0.8)
    chosen = measures.thresholds(embeddings, precisions=targets)
    curve = list(slow_curve(*whole))
    expected = [min(t for t, _, p in curve if p >= target) for target in targets]
    np.testing.assert_allclose(chosen["cutoff"], expected, atol=1e-12)
    assert chosen["target"].values.tolist() == list(targets)
    given = measures.thresholds(embeddings, cutoffs=(0.75, -0.2, 0.999999))
    assert given["cutoff"].values.tolist() == [-0.2, 0.75, 0.999999] and given["target"].isnull().all()
    for data in (chosen, given):
        np.testing.assert_allclose(data["distance"], [math.sqrt(2 - 2 * s) for s in data["cutoff"].values])
        for place, cutoff in enumerate(data["cutoff"].values - 1e-12):
            pairs = [(s, k) for row, kinds in zip(*whole, strict=True) for s, k in zip(row, kinds, strict=True)]
            hits, wrong = (sum(s >= cutoff and k == kind for s, k in pairs) for kind in (1, 0))
            one = data.isel(cutoff=place)
            assert float(one["global_recall"]) == pytest.approx(hits / sum(k == 1 for _, k in pairs))
            np.testing.assert_allclose(one["global_precision"], hits / (hits + wrong) if hits + wrong else np.nan)
            own = one.sel(direction=direction).isel(query=slice(len(score)))
            rows = []
            for row, kinds in zip(score, kind, strict=True):
                found = sum(s >= cutoff for s in of(row, kinds, 1))
                returned, positives = sum(s >= cutoff for s in of(row, kinds, 0, 1)), len(of(row, kinds, 1))
                rows.append((returned, found / returned if returned else np.nan,
                             found / positives if positives else np.nan, found))  # fmt: skip
            returned, precision, recall, found = np.array(rows).T
            for key, values in (("returned", returned), ("precision", precision), ("recall", recall)):
                np.testing.assert_allclose(own[key], values)
                known = values[np.isfinite(values)]
                expected = np.percentile(known, [5, 50, 95]) if len(known) else [np.nan] * 3
                np.testing.assert_allclose(own[f"{key}_band"], expected)
            assert float(own["none_returned"]) == pytest.approx(100 * np.mean(returned == 0))
            assert float(own["no_positive"]) == pytest.approx(100 * np.mean(found == 0))


def test_precisions_that_are_not_reached_are_named_and_equal_cut_offs_are_one():
    """Scores 0.9 (negative), 0.8, 0.7 (positive), 0 (negative): precisions 1/2 and 2/3."""

    def at(*cosines):
        return torch.tensor([[c, math.sqrt(1 - c * c)] for c in cosines], dtype=torch.float64)

    group = torch.tensor([1, 0, 0, 2])
    embeddings = Embeddings(at(1.0), at(0.9, 0.8, 0.7, 0.0), torch.tensor([0]), group, directions=("q2c",))
    data = measures.thresholds(embeddings, precisions=(0.5, 0.6, 0.9))
    np.testing.assert_allclose(data["cutoff"], [0.7])
    assert data["target"].values.tolist() == [0.6] and data.attrs["not_reached"] == "0.9"
    text = "\n".join(map(str, reports.tables("thresholds", data)))
    assert re.search("not reached +0.9", text)
    nothing = measures.thresholds(embeddings, cutoffs=(0.95,))
    assert nothing["returned"].sum() == 0 and nothing["none_returned"].values.tolist() == [[100.0]]
    with pytest.raises(InputError, match="expected at most 0.667, the largest there is: take .* 0.12 and 0.6"):
        measures.thresholds(embeddings, precisions=(0.9,))


@pytest.mark.parametrize(("name", "direction"), SETS)
def test_retrievals_are_those_of_slow_loops(name, direction, request):
    embeddings = request.getfixturevalue(name)
    score, kind = slow(embeddings, direction)
    rows = [11, 29, 3, 0]
    data = measures.retrievals(embeddings, queries=rows, k=9, direction=direction)
    assert data["query_index"].values.tolist() == rows and data.attrs["direction"] == direction
    for place, row in enumerate(rows):
        order = sorted((j for j, k in enumerate(kind[row]) if k is not None), key=lambda j: -score[row][j])
        one = data.isel(query=place)
        assert one["candidate"].values.tolist() == order[:9]
        np.testing.assert_allclose(one["score"], [score[row][j] for j in order[:9]], atol=1e-12)
        assert one["positive"].values.tolist() == [kind[row][j] == 1 for j in order[:9]]
        own = [score[row][j] for j in order if kind[row][j]]
        assert int(one["positives"]) == len(own)
        if own:
            assert float(one["best_rank"]) == 1 + sum(s >= max(own) for s in of(score[row], kind[row], 0))
            assert float(one["best_score"]) == pytest.approx(max(own))
        else:
            assert bool(one["best_rank"].isnull() & one["best_score"].isnull())


def test_a_negative_that_ties_stands_first():
    candidate = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
    group = torch.tensor([0, 1, 2])
    embeddings = Embeddings(torch.tensor([[3.0, 0.0]]), candidate, torch.tensor([0]), group, directions=("q2c",))
    data = measures.retrievals(embeddings, k=5)
    assert data["candidate"].values.tolist() == [[2, 0, 1, -1, -1]]
    assert data["positive"].values.tolist() == [[False, True, False, False, False]]
    assert data["best_rank"].values.tolist() == [2] and data["score"].isnull().values.tolist() == [
        [False] * 3 + [True] * 2
    ]


def test_negatives_are_counted_above_any_score(captions):
    level = torch.tensor([0.5, -0.3, 0.2], dtype=torch.float64)
    (curve,) = engine.run(engine.view(captions), [PrecisionRecall(level)])
    score, kind = slow(captions, "q2c")
    expected = [sum(s >= v for row, kinds in zip(score, kind, strict=True) for s in of(row, kinds, 0))
                for v in (0.5, 0.2, -0.3)]  # fmt: skip
    assert curve.score.tolist() == [0.5, 0.2, -0.3] and curve.negatives.tolist() == expected


NO_MATCH = Embeddings(torch.eye(3), torch.eye(3), torch.arange(3), torch.arange(3, 6))


@pytest.mark.parametrize(
    ("measure", "given", "sentence"),
    [
        ("score_distribution", {"queries": 0}, "queries: 0, expected an integer of at least 1"),
        ("score_distribution", {"ks": (0,)}, "k: 0, expected integers of at least 1"),
        ("score_distribution", {"loss": "hist"}, "metric: 'mahalanobis', expected"),
        ("score_distribution", {"seed": -1}, "seed: -1, expected an integer from 0"),
        ("score_distribution", {"embeddings": 3}, "embeddings: int, expected cocos.Embeddings"),
        ("precision_recall", {"embeddings": NO_MATCH}, "no query has any positive"),
        ("thresholds", {"embeddings": NO_MATCH}, "no query has any positive"),
        ("thresholds", {"embeddings": NO_MATCH, "cutoffs": (0.5,)}, "no query has any positive"),
        ("retrievals", {"direction": "t2"}, "unknown direction 't2': there are c2q, q2c"),
        ("retrievals", {"queries": None}, "queries: None, expected an integer, or rows of queries"),
        ("retrievals", {"queries": (3, 30)}, "queries: row 30, expected rows from 0 to 29 of q2c"),
        ("retrievals", {"queries": (3, 3)}, r"queries: \[3, 3\], expected each row once"),
        ("retrievals", {"queries": (0.5,)}, r"queries: \[0.5\], expected an integer, or rows"),
    ],
)
def test_what_cannot_be_used_gets_a_sentence(measure, given, sentence, captions):
    with pytest.raises(InputError, match=sentence):
        getattr(measures, measure)(**({"embeddings": captions} | given))


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def line(ax, start):
    return next(each for each in ax.lines if each.get_label().startswith(start))


def test_curves_of_cut_offs_agree_with_the_cut_offs(captions):
    data = measures.thresholds(captions)
    every = measures.thresholds(captions, cutoffs=data["level"].values.tolist())
    np.testing.assert_array_equal(data["level_returned"], every["returned_band"])
    for along, at in (("none", "none_returned"), ("no_positive", "no_positive")):
        np.testing.assert_array_equal(data[f"level_{along}"], every[at])
    for key in ("precision", "recall"):
        np.testing.assert_allclose(data[f"level_{key}"], every[f"global_{key}"])


def test_cut_offs_come_from_the_data_where_none_is_given(captions):
    data = measures.thresholds(captions, recalls=(0.1, 0.5))
    chosen = data["chosen"].values.tolist()
    assert set(chosen) <= {"best F1", "recall 10 %", "recall 50 %"} and "best F1" in chosen
    precision, recall = (data[f"global_{key}"].values for key in ("precision", "recall"))
    for name, part in (("recall 10 %", 0.1), ("recall 50 %", 0.5)):
        if name in chosen:
            assert recall[chosen.index(name)] >= part - 1e-12
    best = chosen.index("best F1")
    every = measures.thresholds(captions, cutoffs=data["level"].values.tolist())
    f1 = 2 / (1 / every["global_precision"] + 1 / every["global_recall"])
    assert 2 / (1 / precision[best] + 1 / recall[best]) >= float(f1.max()) - 1e-12


def test_a_contact_sheet_shows_what_was_retrieved(captions, ax):
    data = measures.retrievals(captions, queries=[2, 29], k=3)
    plots.retrievals(data, ax=ax)
    frames = [p for p in ax.patches if p.get_label() != "query"]
    flags, missed = [], []
    for place in range(2):
        one = data.isel(query=place)
        flags += one["positive"].values.tolist()
        if np.isfinite(one["best_rank"]) and not one["positive"].values.any():
            flags.append(True)
            missed.append(f"\u2713 {float(one['best_score']):.3f}\nrank {int(one['best_rank'])}")
            assert f"candidate\n{int(one['best_candidate'])}" in [each.get_text() for each in ax.texts]
    assert [p.get_label() == "positive" for p in frames] == flags and any(flags)
    for frame, positive in zip(frames, flags, strict=True):
        assert (frame.get_linestyle() in {"-", "solid"}, frame.get_linewidth() > 2) == (positive, positive)
    texts = [each.get_text() for each in ax.texts]
    for score, positive in zip(data["score"][0].values, data["positive"][0].values, strict=True):
        assert (f"\u2713 {score:.3f}" if positive else f"{score:.3f}") in texts
    assert f"candidate\n{int(data['candidate'][1, 2])}" in texts and set(missed) <= set(texts)
    assert ("no positive" in texts) == bool(data["best_rank"].isnull().any())


@pytest.mark.parametrize(("queries", "ranks"), [(61, 1), (1, 41), (30, 21)])
def test_a_contact_sheet_that_nobody_can_look_at_is_refused(queries, ranks):
    size = sys.modules["cocos.plots.retrievals"].size
    data = xr.Dataset({"score": (("query", "rank"), np.zeros((queries, ranks)))}, attrs={"direction": "q2c"})
    with pytest.raises(InputError, match=f"{queries} queries x {ranks} candidates, too many .* --out x.nc"):
        size(data)
    assert size(data.isel(query=slice(20), rank=slice(20)))[1] < 35


def test_confident_candidates_have_an_outline(captions):
    data = measures.retrievals(captions, queries=[2, 29], k=3)
    bound = float(np.sort(data["score"].values.ravel())[2])
    figure, ax = plt.subplots()
    plots.retrievals(data, confident=bound, ax=ax)
    outlined = [patch for patch in ax.patches if patch.get_label() == "confident"]
    alone = ~data["positive"].any("rank") & (data["best_score"] >= bound)  # at the end of the row
    assert len(outlined) == int((data["score"] >= bound).sum()) + int(alone.sum()) >= 4
    assert any(f"a score of at least {bound:g}" in text.get_text() for text in ax.texts)
    inside = [patch for patch in ax.patches if patch.get_label() in {"positive", "negative"}]
    assert all(
        any(p.get_bbox().containsx(o.get_x()) and p.get_bbox().containsy(o.get_y()) for p in inside) for o in outlined
    )
    plt.close(figure)
