"""A program's own default dtype changes no number: float64 for tensors that a user makes is not float64 for cocos."""

import pytest
import torch
import xarray as xr

import cocos
from cocos import losses, measures
from cocos.checkpoints.pictures import Preparation

NAMED = ("ntxent", "triplet", "siglip", "mnrl", "smoothap", "supcon", "triplet_euclidean", "align_uniform", "ce_nm")
GTE = {"directions": "query-candidate,query-query,candidate-query,candidate-candidate"}
PAIRS, LABELLED, HARD = range(3)  # embeddings of `made`


def made():
    """Pairs, a labelled set, and pairs with hard negatives, in float32 throughout."""
    generator = torch.Generator().manual_seed(0)
    query, noise = (torch.randn(64, 16, generator=generator, dtype=torch.float32) for _ in range(2))
    hard = (torch.arange(64)[:, None] + torch.tensor([1, 2])) % 64
    return (
        cocos.Embeddings(query, query + 0.8 * noise),
        cocos.Embeddings.labelled(query, torch.arange(64) // 2),
        cocos.Embeddings(query, query + 0.8 * noise, negatives=hard),
    )


def seen(embeddings):
    with cocos.Monitor("ntxent") as monitor:
        monitor(embeddings.query[:24], embeddings.candidate[:24])
        return monitor.dataset()


def counted(name, size, which=PAIRS, parameters=None):
    return which, lambda rows: measures.count(rows, losses.load(name, parameters), batch_size=size)


CASES = {
    **{f"count {name}": counted(name, 32) for name in NAMED},
    **{f"count {name} at once": counted(name, "all") for name in ("ntxent", "triplet", "siglip", "smoothap")},
    **{f"count {name} with hard negatives": counted(name, 32, HARD) for name in ("ntxent", "triplet", "siglip")},
    "count GTE": counted("mnrl", 32, PAIRS, GTE),
    "evaluate": (PAIRS, measures.evaluate),
    "evaluate labels": (LABELLED, measures.evaluate),
    "audit": (PAIRS, lambda rows: measures.audit(rows, "ntxent")),
    "temperature": (PAIRS, lambda rows: measures.temperature(rows, "ntxent", batch_sizes=(32,))),
    "temperature of a sigmoid": (PAIRS, lambda rows: measures.temperature(rows, "siglip", batch_sizes=(32,))),
    "replay": (PAIRS, lambda rows: measures.replay(rows, "ntxent", {"temperature": [0.05, 0.2], "top_k": 4})),
    "solve": (PAIRS, lambda rows: measures.solve(rows, "ntxent", effective=5)),
    "thresholds": (PAIRS, measures.thresholds),
    "precision recall": (PAIRS, measures.precision_recall),
    "decomposition": (PAIRS, lambda rows: measures.decomposition(rows, "ntxent")),
    "sources": (HARD, lambda rows: measures.sources(rows, "ntxent")),
    "same gradient": (PAIRS, lambda _: measures.same_gradient("ntxent", "triplet")),
    "monitor": (PAIRS, seen),
}


@pytest.fixture
def wide():
    """A function that sets the default dtype to float64 until the test ends."""
    before = torch.get_default_dtype()
    yield lambda: torch.set_default_dtype(torch.float64)
    torch.set_default_dtype(before)


@pytest.mark.parametrize("case", CASES)
def test_a_measure_does_not_read_the_default_dtype(case, wide):
    which, measured = CASES[case]
    usual = measured(made()[which])
    wide()
    found = measured(made()[which])
    xr.testing.assert_allclose(found, usual, rtol=1e-5, atol=1e-7)
    for name in usual.variables:
        assert found[name].dtype == usual[name].dtype, name


def test_images_and_texts_are_encoded_in_float32(wide):
    """The embedded example: both towers, and the preparation of images."""
    usual = cocos.open("example").embed("test", device="cpu")
    wide()
    found = cocos.open("example").embed("test", device="cpu")
    for side in ("query", "candidate"):
        torch.testing.assert_close(getattr(found, side), getattr(usual, side), rtol=1e-5, atol=1e-6)
    assert Preparation(None, None)(torch.zeros(1, 3, 8, 8, dtype=torch.uint8)).dtype == torch.float32
