"""The figures of the repository: their files, their captions, and what a check reports."""

import shutil
from xml.etree import ElementTree

import pytest
import xarray as xr
from typer.testing import CliRunner

from analysis import __main__ as analysis
from cocos.plots import saving


def call(*arguments):
    return CliRunner().invoke(analysis.app, ["figures", *arguments])


@pytest.mark.parametrize("name", analysis.names())
def test_figure_is_drawn_from_its_data(name):
    assert not analysis.fault(name)


def test_index_has_short_captions_of_the_data():
    assert (analysis.FIGURES / "README.md").read_text("utf-8") == analysis.index()
    assert all(len(analysis.caption(name).split()) <= 60 for name in analysis.names())


def test_check_reports_missing_and_other_data(tmp_path, monkeypatch):
    data = tmp_path / "lorenz.nc"
    monkeypatch.setattr(analysis, "FIGURES", tmp_path)
    assert call("lorenz", "--check").stdout == "lorenz: no data\n"
    shutil.copy(analysis.SCRIPTS.parent / "figures" / "lorenz.nc", data)
    assert call("lorenz", "--check").stdout == "lorenz: not drawn\n"
    assert call("lorenz").exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "README.md",
        "lorenz.nc",
        "lorenz.pdf",
        "lorenz.png",
        "lorenz.svg",
    }
    assert call("lorenz", "--check").exit_code == 0
    data.write_bytes(data.read_bytes() + b"0")
    done = call("lorenz", "--check")
    assert (done.exit_code, done.stdout) == (1, "lorenz: drawn from other data\n")


def test_fresh_data_equal_the_stored_data(tmp_path, monkeypatch):
    stored = analysis.load("retrievals")
    monkeypatch.setattr(analysis, "FIGURES", tmp_path)
    analysis.compute("retrievals")
    for part, data in analysis.load("retrievals").items():
        xr.testing.assert_allclose(data, stored[part])


def test_unknown_figure_is_rejected():
    assert call("lorentz").exit_code == 2


def test_saved_plot_keeps_text_and_truetype_fonts(tmp_path):
    """Publishers reject Type 3 fonts; an SVG of outlines cannot be searched."""
    for suffix in ("pdf", "svg"):
        saving.save_panels([lambda ax: ax.set_title("it rises, 50 %") and ax], tmp_path / f"one.{suffix}", size=(3, 2))
    pdf = (tmp_path / "one.pdf").read_bytes()
    assert b"/Type3" not in pdf and b"/FontFile2" in pdf
    texts = ElementTree.parse(tmp_path / "one.svg").iter("{http://www.w3.org/2000/svg}text")
    assert "it rises, 50 %" in {text.text for text in texts}
