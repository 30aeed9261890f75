"""Plots as pictures: without their text against small stored ones, and on the Axes that they are given.

`COCOS_NEW_IMAGES=1 python -m pytest tests/test_images.py` writes the stored pictures anew; look at them before they are
committed.
"""

import inspect
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text
from PIL import Image

from cocos import Embeddings, measures, plots
from cocos.plots.saving import STYLE

STORED = Path(__file__).parent / "data" / "images"
NEW = "COCOS_NEW_IMAGES"
TOLERANCE = 2.5  # a longer tick makes 1.8, one level less of the contours 7.1, another palette 3.5 and more
PICTURES = ("landscape", "lorenz", "precision_recall", "score_distribution", "weight_map")


@pytest.fixture(scope="module")
def data():
    """Of 24 queries with three candidates each; the end of the descent is given, for it is drawn, not looked for."""
    generator = torch.Generator().manual_seed(0)
    centre, group = torch.randn(24, 6, generator=generator, dtype=torch.float64), torch.arange(72) // 3
    noise = torch.randn(72, 6, generator=generator, dtype=torch.float64)
    embeddings = Embeddings(centre, centre[group] + 0.8 * noise, torch.arange(24), group)
    end = torch.tensor([-8.0, 0.0], dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["cocos.measures.landscape"], "descended", lambda *given: (end, "a minimum", True))
        warp = measures.landscape("warp", points=41)
    return {
        "eps_curve": measures.eps_curve(embeddings, "ntxent", batch_size=16),
        "landscape": warp,
        "lorenz": measures.lorenz(embeddings, "ntxent", batch_size=16),
        "precision_recall": measures.precision_recall(embeddings),
        "score_distribution": measures.score_distribution(embeddings, bins=30, ks=(1, 5, 20)),
        "temperature_curve": measures.temperature_curve(embeddings, "ntxent", batch_size=16),
        "weight_curve": measures.weight_curve("ntxent"),
        "weight_map": measures.weight_map(embeddings, "ntxent", batch_size=16),
    }


def drawn(name, data):
    """A plot on Axes of its own."""
    with rc_context(STYLE):
        figure = Figure(figsize=(4, 3), dpi=50)
        FigureCanvasAgg(figure)
        ax = figure.add_subplot()
        assert getattr(plots, name)(data[name], ax=ax) is ax
    return ax


def picture(name, data):
    """A plot without text, (150, 200, 4): fonts, and the room that they take, differ between machines."""
    figure = drawn(name, data).figure
    for one in figure.findobj(lambda artist: isinstance(artist, Text | Legend)):
        one.set_visible(False)
    with rc_context(STYLE):
        figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())


def stored(name):
    with Image.open(STORED / f"{name}.png") as image:
        return np.asarray(image.convert("RGBA"))


def difference(first, second):
    """Root of the mean squared difference, 0 to 255; infinite where the sizes differ."""
    if first.shape != second.shape:
        return float("inf")
    return float(np.sqrt(np.mean((first.astype(float) - second.astype(float)) ** 2)))


@pytest.mark.parametrize("name", PICTURES)
def test_a_plot_looks_as_it_did(name, data, tmp_path):
    now = picture(name, data)
    if os.environ.get(NEW):
        Image.fromarray(now).save(STORED / f"{name}.png", optimize=True)
    Image.fromarray(now).save(tmp_path / f"{name}.png")
    found = difference(now, stored(name))
    assert found < TOLERANCE, f"{name} differs by {found:.1f} from the stored picture; it looks like {tmp_path} now"


@pytest.mark.parametrize("name", plots.__all__)
def test_every_plot_takes_axes_and_gives_them_back(name):
    signature = inspect.signature(getattr(plots, name))
    assert signature.parameters["ax"].kind is inspect.Parameter.KEYWORD_ONLY
    assert signature.parameters["ax"].default is None and signature.return_annotation is Axes
