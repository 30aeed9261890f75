"""Readers and routes of the engine on a simulated device: the counts of the host, and no operation on both devices."""

import numpy as np
import pytest
import torch

import cocos
from cocos import Embeddings, engine, losses, measures
from cocos.engine import readers
from simulated import DEVICE

READERS = {
    "softmax": "ntxent",
    "softmax, several positives": "supcon",
    "hinge": "triplet",
    "hardest hinge": "triplet_sh",
    "sigmoid": "siglip",
    "cross-example": "ce_softmax",
    "distances": "triplet_euclidean",
    "rows": "circle",
    "whole batches": "ce_nm",
}
GENERAL = {
    "ranks": readers.Ranks,
    "precision-recall": readers.PrecisionRecall,
    "histogram": readers.Histogram,
    "neighbours": lambda: readers.Neighbours(3),
}


def embeddings(kind, number=120):
    generator = torch.Generator().manual_seed(7)
    rows, noise = torch.randn(2, number, 12, generator=generator)
    if kind == "labels":
        return Embeddings.labelled(rows, torch.arange(number) // 4)
    return Embeddings(rows, rows + noise)


def tensors_of(result):
    """All tensors of a result, in order, on the host."""
    if isinstance(result, torch.Tensor):
        return [result.cpu()]
    if isinstance(result, dict):
        return [tensor for name in sorted(result) for tensor in tensors_of(result[name])]
    if isinstance(result, list | tuple):
        return [tensor for item in result for tensor in tensors_of(item)]
    return tensors_of(vars(result)) if hasattr(result, "__dict__") else []


def assert_close(found, expected):
    assert len(found) == len(expected) > 0
    for left, right in zip(found, expected, strict=True):
        if left.is_floating_point():
            torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-6)
        else:
            assert torch.equal(left, right)


@pytest.mark.parametrize("size", [16, 120], ids=["stack", "one batch"])
@pytest.mark.parametrize("kind", ["pairs", "labels"])
@pytest.mark.parametrize("name", READERS.values(), ids=READERS)
def test_counts_on_device_equal_host(name, kind, size):
    data = embeddings(kind)
    expected = measures.count(data, losses.load(name), batch_size=size)
    result = measures.count(data.to(DEVICE), losses.load(name), batch_size=size)
    for variable in expected.data_vars:
        left, right = result[variable].values, expected[variable].values
        if variable in {"contributing", "relative", "idle", "uncertain"}:
            assert np.array_equal(left, right, equal_nan=True), variable
        elif right.dtype.kind == "f":
            np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5, err_msg=variable)


@pytest.mark.parametrize("kind", ["pairs", "labels"])
@pytest.mark.parametrize("name", GENERAL)
def test_general_readers_on_device_equal_host(name, kind):
    data = embeddings(kind)
    product = "float64" if name == "neighbours" else "float32"
    results = [engine.run(engine.view(rows, product=product), [GENERAL[name]()]) for rows in (data, data.to(DEVICE))]
    assert_close(*map(tensors_of, results[::-1]))


def test_mixed_devices_are_an_error():
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(3, device=DEVICE) + torch.ones(3)
    assert cocos.Embeddings(torch.eye(3, device=DEVICE), torch.eye(3, device=DEVICE)).query.device == DEVICE
