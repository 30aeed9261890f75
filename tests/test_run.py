"""A run over its checkpoints: its numbers are those of each checkpoint, its sentences those of the detectors."""

import numpy as np
import pytest
import torch

from cocos import checkpoints, measures

SIZE, WIDTH = 60, 12


def rows(noise, seed=0, size=SIZE, width=WIDTH):
    generator = torch.Generator().manual_seed(seed)
    middle = torch.randn(size, width, generator=generator)
    return [middle + noise * torch.randn(size, width, generator=generator) for _ in range(2)]


def write(path, noise, **more):
    query, candidate = rows(noise, **more)
    np.savez(path, query=query.numpy(), candidate=candidate.numpy())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "steps").mkdir()
    for step, noise in ((2, 1.5), (10, 0.8), (100, 0.3)):
        write(tmp_path / "steps" / f"epoch_{step}.npz", noise)
    return tmp_path / "steps"


def test_numbers_are_those_of_each_checkpoint(folder):
    data = measures.run(folder, "ntxent", batch_size=20)
    assert data["checkpoint"].values.tolist() == [2, 10, 100] and data.attrs["left_out"] == "[]"
    for step in (2, 10, 100):
        one = data.sel(checkpoint=step)
        frozen = checkpoints.open(folder / f"epoch_{step}.npz")
        counted = measures.count(frozen, "ntxent", batch_size=20)
        np.testing.assert_allclose(one["contributing"], counted["contributing"].mean(["batch", "query"]))
        np.testing.assert_allclose(one["idle"], counted["idle"].mean("batch"))
        np.testing.assert_allclose(one["contributing_per_query"], counted["contributing"])
        np.testing.assert_array_equal(data["query_index"], counted["query_index"])
        found = measures.evaluate(frozen)
        for name in ("R@1", "MRR", "mean_rank"):
            np.testing.assert_allclose(one[name], found[name].squeeze())
        np.testing.assert_allclose((one["best_rank"] <= 5).mean("row") * 100, found["R@5"].squeeze())
        assert one["sha256"].item() == frozen.sha256
