"""Names from the files of strangers: every kind of plot draws them as text of one line, whatever they contain."""

import inspect
import warnings

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.text import Text
from typer.testing import CliRunner

import cocos
from cocos import losses, measures, plots
from cocos.cli import app
from cocos.embeddings.options import option_names
from cocos.plots import saving
from cocos.plots.wording import middle, plain
from test_plot import TWINS

# A formula that is none, a line break, an escape sequence, a change of the direction of writing, another formula.
HOSTILE = "$\\frac{$\n\u202e\x1b[31m$y^{$ " + "x" * 300
# As much of that as the name of a direction may have, which is printable.
SIDES = (r"$\frac{$ " + "x" * 40, r"$b^{$")
DRAWN_ALIKE = {"loss", "loss_repr", "checkpoint_path", "title", "long_name", "y"}
MOST = 300  # characters of a line of text in a figure
# Options with which a kind is small.
FAST = {
    **{kind: {"batch_size": 12, "batches": 1} for kind in ("count", "decomposition", "eps_curve", "lorenz")},
    "replay": {"batch_size": 12},
    "temperature_curve": {"batch_size": 12, "batches": 1, "values": (0.05, 0.1, 0.2)},
    "sources": {"batch_size": 12, "loss": "mnrl", "parameters": {"directions": "query-candidate,query-query"}},
    "contributors": {"batch_size": 12, "top": 4, "direction": SIDES[0]},
    "audit": {"batch_size": 12, "neighbours": 2},
    "weight_map": {"batch_size": 8, "direction": SIDES[1]},
    "retrievals": {"queries": 2, "k": 2, "direction": SIDES[1]},
    "thresholds": {"queries": 10, "precisions": (0.1, 0.5)},
    "precision_recall": {"queries": 10, "direction": SIDES[0]},
    "score_distribution": {"queries": 10, "bins": 8, "ks": (1, 3), "direction": SIDES[0]},
    "weight_curve": {"loss": "triplet", "points": 31},
    "score_landscape": {"loss": "triplet", "points": 9},
}


@pytest.fixture(scope="module")
def embeddings():
    generator = torch.Generator().manual_seed(3)
    image = torch.randn(24, 6, generator=generator, dtype=torch.float64)
    group = torch.arange(24).repeat_interleave(2)
    caption = image[group] + 0.8 * torch.randn(48, 6, generator=generator, dtype=torch.float64)
    names = [tuple(f"{HOSTILE}{row}" for row in range(number)) for number in (24, 48)]
    return cocos.Embeddings(image, caption, torch.arange(24), group, directions=SIDES, names=tuple(names))


def spoiled(data):
    """A Dataset as a stranger may have written it: hostile text wherever a text is only shown."""
    data = data.copy()
    for each in (data, *data.variables.values()):
        each.attrs = {name: HOSTILE if name in DRAWN_ALIKE else value for name, value in each.attrs.items()}
    return data


def of_kind(name, embeddings):
    """The Dataset of a kind as `cocos plot` measures it, and the options of its plot."""
    options, measure = dict(FAST.get(name, {})), getattr(measures, name)
    measure_parameters = option_names(measure)
    plot_parameters = inspect.signature(getattr(plots, name)).parameters
    loss, parameters = options.pop("loss", None), options.pop("parameters", {})
    taken = {name: value for name, value in options.items() if name in measure_parameters}
    taken |= {"loss": losses.load(loss, parameters)} if loss else {}
    first = [embeddings] if "embeddings" in measure_parameters else []
    return measure(*first, **taken), {name: options[name] for name in options if name in plot_parameters}


def own(name, embeddings):
    """The Dataset of a kind that has a command of its own."""
    if name == "landscape":
        return measures.landscape("t^2", points=9)
    if name == "dtp":
        samples, proxies = torch.tensor([[3.0, 0.0], [0.0, 1.0]]), torch.eye(2)
        one = cocos.Embeddings(samples, proxies, [0, 1], [0, 1], directions=("$s^{$",))
        return measures.dtp({HOSTILE: [one, one], "other": [one, one]})
    if name == "diff":
        turned = cocos.Embeddings(
            embeddings.query.flip(1),
            embeddings.candidate,
            embeddings.query_group,
            embeddings.candidate_group,
            directions=SIDES,
        )
        return measures.diff(embeddings, turned, batch_size=12)
    return measures.run([embeddings, embeddings], batch_size=12)


def shown(figure):
    """Lines of text of a figure."""
    return [line for text in figure.findobj(Text) for line in text.get_text().split("\n")]


def harmless(line):
    formulae = line.startswith("$\\mathdefault{") or line.count("$") == line.count(r"\$")
    return formulae and line.isprintable() and len(line) <= MOST


@pytest.mark.parametrize("name", TWINS)
def test_every_kind_of_plot_draws_hostile_names(name, embeddings):
    """Drawn by the function alone, with nothing of `cocos plot` around it, as in a notebook."""
    measure, plot = getattr(measures, name), getattr(plots, name)
    reads, parameters = next(iter(inspect.signature(measure).parameters)), inspect.signature(plot).parameters
    data, options = of_kind(name, embeddings) if reads in {"embeddings", "loss"} else (own(name, embeddings), {})
    if "labels" in parameters:
        options |= {"labels": lambda row: HOSTILE, "query": HOSTILE}
    elif "pictures" in parameters:
        options |= {"pictures": lambda side, row: HOSTILE}
    ways = [(spoiled(data), {})]
    ways += [([spoiled(data)] * 2, {"names": [HOSTILE, f"{HOSTILE}2"]})] if "names" in parameters else []
    for given, more in ways:
        figure, ax = plt.subplots()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plot(given, ax=ax, **options, **more)
            figure.draw_without_rendering()
        assert [line for line in shown(figure) if not harmless(line)] == []
        plt.close(figure)


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        *(("score_distribution", "png"), ("audit", "pdf"), ("weight_map", "svg")),
    ],
)
def test_the_command_draws_hostile_directions(kind, form, embeddings, tmp_path):
    names = ("query", "candidate", "query_group", "candidate_group")
    arrays = {name: getattr(embeddings, name).numpy() for name in names}
    np.savez(tmp_path / "m.npz", **arrays, directions=np.array(SIDES))
    options = []
    for name, value in FAST.get(kind, {}).items():
        flag = f"--{name.replace('_', '-')}"
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        if name == "parameters":
            options += [word for key, one in value.items() for word in ("-p", f"{key}={one}")]
        elif name not in {"direction", "neighbours", "bins", "ks"}:
            options += [flag, text]
    arguments = ["plot", kind, tmp_path / "m.npz", *options, "--out", tmp_path / f"a.{form}", "--width", "one"]
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.stderr or done.exception
    assert (tmp_path / f"a.{form}").stat().st_size > 1000


def test_any_text_of_a_figure_is_drawn(tmp_path):
    """Also what a plot of a plugin, or a name that was forgotten, puts into it."""
    path = saving.save_panels([lambda ax: ax.set_title(r"$\frac{$")], tmp_path / "a.pdf", size=(3.0, 2.0))
    assert path.stat().st_size > 1000


def test_a_plain_name_is_one_short_printable_line():
    assert plain("ntxent") == "ntxent"
    assert plain("$a$\r\n\tb") == r"\$a\$ b"
    assert plain(plain(HOSTILE)) == plain(HOSTILE)
    assert plain("a\x00\u2028\u202eb") == "a? ?b"
    assert plain("שלום 中文 é") == "שלום 中文 é"
    assert len(plain(HOSTILE, 26).replace(r"\$", "$")) == 26
    for most in range(3, 30):
        assert harmless(middle(plain("$" * 40), most)) and harmless(plain("$x" * 40, most))
