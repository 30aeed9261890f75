"""Every kind of plot in one column and in its own width, and every figure: no text
leaves the picture, meets another one or is too small to print, and the axes keep 40 % of the width.
"""

import importlib
import itertools

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from typer.testing import CliRunner

import cocos
from analysis import __main__ as analysis
from cocos import measures, plots, results
from cocos.cli import app
from cocos.plots import saving

pytestmark = pytest.mark.slow

LONG = "images_to_captions"
SENTENCE = "A caption of a photograph."
# Widths in inches: one column of a paper, and that of the plot itself, which is about two.
WIDTHS = (3.3, None)
# Smallest part of the width of its column that the axes of a panel keep.
KEPT = 0.4
# Smallest size of a text that is printed, in points, and the width of two columns, in inches.
PRINTED_POINTS, TWO_COLUMNS = 6.0, 7.0
# Pixels by which boxes of text may meet: the boxes of letters without descenders are higher than these.
MEETING = 2.0

SMALL = ["--batch-size", "12", "--batches", "2"]
# Commands by the kind that they draw; `FILE` is a set of pairs, `OTHER` a second one, `LABELLED` has classes.
DRAWN = {
    "audit": ["plot", "audit", "FILE", "--batch-size", "12"],
    "contributors": ["plot", "contributors", "FILE", "--batch-size", "12"],
    "count": ["plot", "count", "FILE", *SMALL],
    "decomposition": ["plot", "decomposition", "FILE", *SMALL],
    "diff": ["diff", "FILE", "OTHER", "--batch-size", "12"],
    "dtp": ["plot", "dtp", "LABELLED"],
    "eps_curve": ["plot", "eps_curve", "FILE", *SMALL],
    "landscape": ["plot", "landscape", "--f1", "warp"],
    "lorenz": ["plot", "lorenz", "FILE", *SMALL],
    "precision_recall": ["plot", "precision_recall", "FILE"],
    "replay": ["plot", "replay", "FILE", "--batch-size", "12"],
    "retrievals": ["plot", "retrievals", "FILE"],
    "run": ["run", "RUN"],
    "score_distribution": ["plot", "score_distribution", "FILE"],
    "score_landscape": ["plot", "score_landscape", "--loss", "circle"],
    "sources": [
        "plot",
        "sources",
        "FILE",
        "--batch-size",
        "12",
        "--loss",
        "mnrl",
        "-p",
        "directions=query-candidate,query-query",
    ],  # fmt: skip
    "temperature": ["whatif", "FILE", "--settles", "--batch-size", "12,24"],
    "temperature_curve": ["plot", "temperature_curve", "FILE", *SMALL],
    "thresholds": ["plot", "thresholds", "FILE"],
    "weight_curve": ["plot", "weight_curve", "--loss", "circle"],
    "weight_map": ["plot", "weight_map", "FILE", "--batch-size", "12"],
}


def pairs(noise):
    """Images with two captions each, whose directions have long names and whose captions are sentences."""
    rng = np.random.default_rng(3)
    image = rng.normal(size=(24, 6))
    group = np.repeat(np.arange(24), 2)
    return {
        "query": image,
        "candidate": image[group] + noise * rng.normal(size=(48, 6)),
        "query_group": np.arange(24),
        "candidate_group": group,
        "directions": np.array([LONG, "captions_to_images"]),
        "query_name": np.array([f"{k} {SENTENCE}" for k in range(24)]),
        "candidate_name": np.array([f"{k} {SENTENCE}" for k in range(48)]),
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Name -> path of what the commands draw."""
    folder = tmp_path_factory.mktemp("drawn")
    found = {name: folder / f"{LONG}_{name}.npz" for name in ("FILE", "OTHER", "LABELLED")}
    np.savez(found["FILE"], **pairs(0.8))
    np.savez(found["OTHER"], **pairs(1.5))
    rng = np.random.default_rng(4)
    labels = np.arange(40) % 4
    proxies = rng.normal(size=(4, 5))
    np.savez(found["LABELLED"], embeddings=proxies[labels] + 0.3 * rng.normal(size=(40, 5)), labels=labels,
             proxies=proxies, proxy_labels=np.arange(4))  # fmt: skip
    for name in ("RUN",):
        steps = [cocos.open(found["OTHER"]).embed(), cocos.open(found["FILE"]).embed()]
        found[name] = folder / f"{LONG}_{name}.nc"
        results.save(measures.run(steps, "ntxent", batch_size=12), found[name])
    return found


def visible(figure, renderer):
    """Texts of a figure that are drawn, with their boxes in pixels."""
    hidden = set()
    for ax in figure.findobj(Axes):  # those inside of others too
        for axis in (getattr(ax, f"{name}axis") for name in ax._axis_names):
            seen = ax.get_visible() and ax.axison and axis.get_visible()
            shown = set(map(id, axis._update_ticks())) if seen else set()
            hidden |= set() if seen else {id(axis.label), id(axis.get_offset_text())}
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if id(tick) not in shown:
                    hidden |= {id(tick.label1), id(tick.label2)}
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip() and id(text) not in hidden:
            yield text, Text.get_window_extent(text, renderer)  # of an annotation without its arrow


def faults(figure):
    """What is wrong with a picture, in words."""
    figure.set_dpi(saving.RESOLUTION)
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    wide, high = figure.bbox.width, figure.bbox.height
    texts = list(visible(figure, renderer))
    for text, box in texts:
        if figure.get_figwidth() <= TWO_COLUMNS and text.get_fontsize() < PRINTED_POINTS:
            yield f"{text.get_text()[:40]!r} is printed in {text.get_fontsize():.1f} points"
        out = max(-box.x0, box.x1 - wide, -box.y0, box.y1 - high)
        if out > MEETING:
            yield f"{text.get_text()[:60]!r} leaves the picture by {out:.0f} pixels"
    for (one, a), (other, b) in itertools.combinations(texts, 2):
        across, down = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        line = min(box.height / (text.get_text().count("\n") + 1) for text, box in ((one, a), (other, b)))
        if across > MEETING and down > MEETING + 0.25 * line:
            yield f"{one.get_text()[:40]!r} meets {other.get_text()[:40]!r}"
    for ax in figure.axes:
        spec = ax.get_subplotspec()
        if spec is not None and ax.get_label() != "<colorbar>":
            column = wide * len(spec.colspan) / spec.get_gridspec().ncols
            if ax.get_window_extent(renderer).width < KEPT * column:
                yield f"axes of {ax.get_title()[:40]!r} keep {ax.get_window_extent(renderer).width / column:.0%}"


@pytest.mark.parametrize("kind", DRAWN)
def test_text_has_room(kind, files, tmp_path, monkeypatch):
    """What a command draws is drawn in every width, and looked at where it would be written."""
    drawn, panels = {}, saving.save_panels

    def in_every_width(plots, path, **options):
        for width in WIDTHS:
            with monkeypatch.context() as patch:
                patch.setattr(saving, "save", lambda figure, *_, w=width: drawn.update({w: [*faults(figure)]}) or path)
                panels(plots, path, **options | {"width": width})
        return path

    monkeypatch.setattr(saving, "save_panels", in_every_width)
    typed = []
    for word in DRAWN[kind]:
        named = files.get(word, word)
        typed += map(str, named) if isinstance(named, list) else [str(named)]
    done = CliRunner().invoke(app, [*typed, "--out", str(tmp_path / "drawn.png")])
    assert done.exit_code == 0, done.stderr
    assert drawn == dict.fromkeys(WIDTHS, [])


def test_every_kind_is_drawn():
    assert {name.partition(" of ")[0] for name in DRAWN} == set(measures.__all__) & set(plots.__all__)


@pytest.mark.parametrize("name", analysis.names())
def test_a_figure_can_be_printed_in_two_columns(name):
    script = importlib.import_module(f"analysis.{name}")
    with saving.styled(printed=True):
        figure = Figure(figsize=script.SIZE, layout="constrained")
        script.draw(analysis.load(name), figure)
        saving.finish(figure)
        assert figure.get_figwidth() == TWO_COLUMNS and not [*faults(figure)]
