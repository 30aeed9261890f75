"""Rank correlation of contributing negatives and recall over training runs."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from analysis import hypothesis
from cocos import Embeddings, measures, results

RUNS = Path(__file__).parents[1] / "analysis" / "runs"


def test_rho_of_five_runs():
    # ranks of recall 1, 2, 3, 5, 4: rho = 1 - 6 * (0 + 0 + 0 + 1 + 1) / (5 * 24) = 0.9
    estimate = hypothesis.correlate([1, 2, 3, 4, 5], [10, 20, 30, 50, 40], resamples=200)
    assert estimate["rho"] == pytest.approx(0.9) and estimate["n"] == 5
    assert estimate["low"] < 0.9 <= estimate["high"] <= 1


def test_rho_equals_scipy():
    rng = np.random.default_rng(0)
    count, recall = rng.normal(size=(2, 30)).round(1)
    rho = hypothesis.correlate(count, recall, resamples=10)["rho"]
    assert rho == pytest.approx(stats.spearmanr(count, recall).statistic)


def test_rho_within_losses_ignores_differences_between_losses():
    count, recall, loss = [1, 2, 3, 11, 12, 13], [3, 2, 1, 13, 12, 11], ["a"] * 3 + ["b"] * 3
    table = hypothesis.correlations(pd.DataFrame({"loss": loss, "contributing": count, "rsum": recall}))
    assert table.loc["within losses", "rho"] == pytest.approx(-1) and table.loc["all runs", "rho"] > 0
    assert "means of losses" not in table.index


def test_constant_count_is_undefined():
    assert np.isnan(hypothesis.correlate([1, 1, 1, 1], [1, 2, 3, 4], resamples=10)["rho"])


def test_count_and_evaluate_results_are_joined(tmp_path):
    paths = []
    for seed in range(4):
        query = torch.randn(40, 8, generator=torch.Generator().manual_seed(seed))
        embeddings = Embeddings(query, query + (0.5 + seed) * torch.randn(40, 8))
        parts = measures.count(embeddings, "ntxent", batch_size=16), measures.evaluate(embeddings)
        for name, data in zip(("count", "evaluate"), parts, strict=True):
            paths.append(tmp_path / f"{name}{seed}.nc")
            results.save(data.assign_attrs(checkpoint_sha256=str(seed)), paths[-1])
    runs = hypothesis.read_runs(paths)
    assert runs["loss"].tolist() == ["ntxent"] * 4
    assert runs["rsum"].tolist() == [float(results.open(path)["rsum"].mean()) for path in paths[1::2]]
    counts = [results.open(path)["contributing"].mean(("batch", "query")).mean() for path in paths[::2]]
    assert runs["contributing"].tolist() == pytest.approx([float(count) for count in counts])
    with pytest.raises(SystemExit, match="rsum"):
        hypothesis.read_runs(paths[::2])


def test_table_of_runs_has_a_row_per_loss_and_a_figure():
    runs = hypothesis.read_runs([RUNS / "towers.nc"])
    assert len(runs) == 14 and runs["loss"].nunique() == 4
    assert hypothesis.correlations(runs).loc["means of losses", "n"] == 4
    assert hypothesis.draw(runs).axes[0].get_xlabel() == "contributing negatives per query"
