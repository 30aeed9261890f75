"""Curves that the engine reads give what weights that are held in float64 give, for every loss that it reads.

How the data are drawn is no matter of a loss: every set is tried with `FEW`, and two with all of them.
"""

import numpy as np
import pytest
import torch

from cocos import Embeddings, engine, losses, measures
from cocos.engine.readers import lines
from cocos.measures.shared import prepared

READ = [name for name in losses.names() if lines.Lines.reads(losses.load(name))]
CHANGED = ("ntxent", "ce_softmax")  # of which a temperature or scale is changed
GIVEN = {"triplet": {"margin": 0.5}, "triplet_squared": {"margin": 0.5}, "triplet_sh": {"margin": 0.5}}
EFFECTIVE = 1e-5  # relative error of an effective number, for each unit of what multiplies the scores
FEW = ("ntxent", "supcon", "arcface", "euclidean_softmax", "triplet", "triplet_sh")


def captions(images=30, per=3, width=8):
    generator = torch.Generator().manual_seed(3)
    image = torch.randn(images, width, generator=generator)
    group = torch.arange(images).repeat_interleave(per)
    caption = image[group] + 0.7 * torch.randn(len(group), width, generator=generator)
    return Embeddings(image, caption, torch.arange(images), group)


def labelled(proxies=False, rows=60):
    generator = torch.Generator().manual_seed(4)
    samples, labels = torch.randn(rows, 6, generator=generator), torch.arange(rows) % 7
    means = torch.stack([samples[labels == k].mean(dim=0) for k in range(7)])
    return Embeddings.labelled(samples, labels, means if proxies else None)


SETS = {
    "groups": (captions(), {"sample": "groups", "batch_size": 12, "seed": 1}),
    "pairs": (captions(), {"sample": "pairs", "batch_size": 24, "batches": 3}),
    "negatives": (captions(), {"sample": "pairs", "batch_size": 24, "same_group": "negative"}),
    "all": (captions(), {"sample": "groups", "batch_size": "all"}),
    "labelled": (labelled(), {"batch_size": 25}),
    "proxies": (labelled(proxies=True), {"batch_size": 25}),
}


def sets(loss, some=tuple(SETS)):
    """The sets of these names that a loss counts, with their options."""
    for name in some:
        embeddings, options = SETS[name]
        if loss.metric != "cosine_dot" or len(embeddings.directions) == 1:
            yield embeddings, options


def both(monkeypatch, measure, *arguments, **options):
    """A curve by the engine, and with all weights held."""
    seen = []
    original = engine.run
    monkeypatch.setattr(engine, "run", lambda *given, **more: seen.append(given) or original(*given, **more))
    found = measure(*arguments, **options)
    assert seen, "the engine was not asked"
    with monkeypatch.context() as patch:
        patch.setattr(prepared.engine, "fits", lambda *_: False)
        number = len(seen)
        held = measure(*arguments, **options)
        assert len(seen) == number and held.attrs["dtype"] == "float64"
    return found, held


def cut(monkeypatch, small):
    """Parts, and stretches of lines, of a few rows; where they are small, each direction with a view of its own."""
    monkeypatch.setattr("cocos.engine.tiles.PART_STEP", 2)
    monkeypatch.setattr(lines, "WEIGHED_AT_ONCE", 70)
    if small:
        monkeypatch.setattr("cocos.engine.tiles.WHOLE_SCORES", 300)
        for module in ("cocos.measures.shared.prepared", "cocos.engine.readers.lines"):
            monkeypatch.setattr(f"{module}.LINES_TILE", 300)


@pytest.mark.parametrize(("name", "small"), [(name, name in FEW) for name in READ] + [("ntxent", False)])
def test_counts_at_every_eps_are_those_of_weights_that_are_held(monkeypatch, name, small):
    """In whole batches, and in stretches of lines whose direction has a view of its own."""
    cut(monkeypatch, small)
    loss = losses.load(name, GIVEN.get(name, {}))
    grid = [0, 1e-9, 1e-3, 0.01, 0.03, 1 / 3, 1, 2, 5]
    for embeddings, options in sets(loss, SETS if small else ("groups", "proxies")):
        found, held = both(monkeypatch, measures.eps_curve, embeddings, loss, grid, **options)
        assert found["contributing_all"].max() > 0
        for key in ("contributing_all", "idle_fraction"):
            np.testing.assert_allclose(found[key], held[key], rtol=0, atol=1e-12, err_msg=f"{key} {options}")


@pytest.mark.parametrize(("name", "small"), [(name, True) for name in FEW] + [("supcon", False)])
def test_lorenz_curves_are_those_of_weights_that_are_held(monkeypatch, name, small):
    cut(monkeypatch, small)
    loss = losses.load(name, GIVEN.get(name, {}))
    for embeddings, options in sets(loss, ("groups", "negatives", "proxies")):
        found, held = both(monkeypatch, measures.lorenz, embeddings, loss, points=11, **options)
        assert list(found) == list(held)
        for key in held.data_vars:
            np.testing.assert_allclose(found[key], held[key], rtol=1e-9, atol=1e-9, err_msg=f"{key} {options}")
        np.testing.assert_array_equal(found["k"], held["k"])
        single = measures.lorenz(embeddings, loss, points=11, dtype="float32", **options)
        if loss.softmax_scale and loss.metric == "cosine":
            for key in held.data_vars:
                np.testing.assert_allclose(single[key], held[key], atol=1e-3, err_msg=f"{key} {options}")


@pytest.mark.parametrize("name", CHANGED)
def test_other_temperatures_are_those_of_weights_that_are_held(monkeypatch, name):
    """More of them than are read in one pass, a 30th of the loss's own to 30 times it."""
    loss = losses.load(name)
    values = getattr(loss, "temperature" if name == "ntxent" else "scale") * np.geomspace(1 / 30, 30, 12)
    for embeddings, options in sets(loss, ("groups", "negatives", "labelled")):
        found, held = both(monkeypatch, measures.temperature_curve, embeddings, loss, values, eps=0.03, **options)
        assert found.attrs["dtype"] == "float32" and "may count or not" not in found.attrs["notes"]
        for key in ("contributing_all", "idle_fraction"):
            np.testing.assert_allclose(found[key], held[key], rtol=0, atol=1e-12, err_msg=f"{key} {options}")
        value = found["value"] if found.attrs["parameter"] == "scale" else 1 / found["value"]
        off = abs(found["effective"] / held["effective"] - 1)
        assert (off <= EFFECTIVE * (1 + value)).all(), f"{options}: {float((off / value).max())}"


@pytest.mark.parametrize("measure", [measures.eps_curve, measures.temperature_curve, measures.lorenz])
def test_the_progress_of_a_curve_grows_to_its_end(measure, monkeypatch):
    monkeypatch.setattr(prepared, "STACK_ROWS", 40)
    told = []
    embeddings, options = SETS["pairs"]
    measure(embeddings, "ntxent", progress=lambda what: lambda done, every: told.append(done / every), **options)
    assert told == sorted(told) and told[-1] == 1 and len(told) >= 3
