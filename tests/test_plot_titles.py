"""Pictures that state what they show: titles from the data, one picture for several losses and files, its width."""

import inspect

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
import torch
import xarray as xr
from matplotlib import pyplot as plt
from PIL import Image
from typer.testing import CliRunner

import cocos
from cocos import Embeddings, InputError, measures, plots
from cocos.cli import app
from cocos.plots import saving, wording

LONG = "a_run_with_a_name_of_very_many_characters_and_a_seed_of_17"


def planted(images=30, captions=3, width=8, noise=0.7, directions=("q2c", "c2q")):
    generator = torch.Generator().manual_seed(3)
    image = torch.randn(images, width, generator=generator, dtype=torch.float64)
    group = torch.arange(images).repeat_interleave(captions)
    caption = image[group] + noise * torch.randn(len(group), width, generator=generator, dtype=torch.float64)
    return Embeddings(image, caption, torch.arange(images), group, directions=directions)


@pytest.fixture(scope="module")
def embeddings():
    return planted()


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, noise in (("first", 0.7), ("second", 2.0)):
        made = planted(noise=noise)
        arrays = ("query", "candidate", "query_group", "candidate_group")
        np.savez(f"{name}.npz", **{each: getattr(made, each).numpy() for each in arrays})
    return ["first.npz", "second.npz"]


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_a_long_name_loses_its_middle_and_a_strange_one_its_power():
    assert wording.middle(LONG, 20) == "a_run_with…eed_of_17" and wording.middle("short", 20) == "short"
    assert wording.plain("a\x1b$x$\nb", 20) == r"a?\$x\$ b"


@pytest.mark.parametrize(("given", "wide"), [("one", 3.3), ("two", 6.9), ("4.5", 4.5), (5, 5), (None, None)])
def test_widths_are_those_of_columns_or_inches(given, wide):
    assert saving.inches(given) == wide


@pytest.mark.parametrize("given", ["three", "1", "100", "nan", "", -3])
def test_other_widths_are_refused(given):
    with pytest.raises(InputError, match=r"inches from 2 to 40"):
        saving.inches(given)


def test_a_picture_of_one_column_is_so_wide_with_text_of_eight_points(tmp_path):
    seen = []

    def panel(*, ax):
        seen.append(ax)
        ax.set(title="a finding of many words that goes on and on", xlabel="x " * 60, ylabel="y")
        return ax

    for given, wide, columns in (("one", 3.3, 1), ("two", 6.9, 2), ("9.5", 9.5, 3)):
        seen.clear()
        path = saving.save_panels([panel] * 3, tmp_path / "a.png", size=(7, 5), width=given)
        with Image.open(path) as image:
            assert image.size[0] == pytest.approx(160 * wide, abs=1)
            assert "a finding of many words that goes on and on" in image.text["Description"]
        assert len({round(ax.get_position().x0, 2) for ax in seen}) == columns
        assert {ax.xaxis.label.get_fontsize() for ax in seen} == {8.0}
        assert all(ax.xaxis.label.get_window_extent().x0 >= 0 for ax in seen)


def test_a_width_out_of_range_is_refused(files):
    done = call("plot", "count", "first.npz", "--width", "1")
    assert done.exit_code == 2 and "expected one or two (columns of a paper)" in done.stderr


def test_runs_of_several_datasets_share_the_plot_of_distances():
    embeddings = [cocos.Embeddings(torch.eye(4), torch.eye(4) * k, directions=("s2p",)) for k in (1.0, 2.0, 3.0)]
    one = measures.dtp({"plain": embeddings[:2]}, steps=[1, 2])
    other = measures.dtp({"plain": embeddings}, steps=[1, 5, 9])
    ax = plots.dtp([one, other], names=["a", "b"], ax=plt.figure().subplots())
    drawn = {line.get_label(): line for line in ax.lines}
    np.testing.assert_array_equal(drawn["b, plain"].get_xydata().T, [[1, 5, 9], other["average"].sel(run="plain")])
    assert len(drawn["a, plain"].get_xdata()) == 2
    with pytest.raises(InputError, match="distances of cosine and euclidean: measure the runs with one metric"):
        plots.dtp([one, measures.dtp({"r": embeddings}, metric="cosine")])
    plt.close("all")


def test_the_kinds_that_combine_take_names():
    every = {name: getattr(plots, name) for name in set(measures.__all__) & set(plots.__all__)}
    combining = {name for name, plot in every.items() if "names" in inspect.signature(plot).parameters}
    apart = {"audit", "contributors", "landscape", "replay", "retrievals"}
    apart |= {"score_landscape", "weight_map"}
    assert combining == every.keys() - apart and len(combining) > 9
    for name in apart:
        with pytest.raises(InputError, match="this plot takes one Dataset, got 2: "):
            every[name]([xr.Dataset(), xr.Dataset()])
    for name in combining:
        assert inspect.signature(every[name]).parameters["names"].default is None
    plt.close("all")
