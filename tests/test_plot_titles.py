"""Pictures that state what they show: titles from the data, one picture for several losses and files, its width."""

import json

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
import torch
import xarray as xr
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from PIL import Image
from typer.testing import CliRunner

import cocos
from cocos import Embeddings, InputError, losses, measures, plots
from cocos.commands import app
from cocos.measures.count import bins
from cocos.plots import labels, wording
from cocos.plots.count import title as title_of_count
from cocos.reports import plot_kinds, saving

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


def test_a_title_has_the_numbers_of_the_data(embeddings):
    data = measures.count(embeddings, "triplet", batch_size=24)
    counted = data["contributing"]
    parts = {str(n): float((one == 0).sum() / one.notnull().sum()) for n, one in counted.groupby("direction")}
    said = title_of_count([data], ["triplet"])
    for part in parts.values():
        assert wording.percent(part).removesuffix(" %") in said
    other = measures.count(embeddings, "ntxent", batch_size=24)
    said = title_of_count([other, data], ["ntxent", "triplet"])
    assert said.index("under triplet") < said.index("under ntxent")
    assert wording.percent(max(parts.values())) in said


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (0, "0 %"),
        (1e-6, "under 0.1 %"),
        (0.0123, "1.2 %"),
        (0.456, "46 %"),
        (0.9999, "over 99.9 %"),
        (1, "100 %"),
        (0.998, "99.8 %"),
    ],
)
def test_what_is_not_nothing_is_never_shown_as_nothing(part, said):
    assert wording.percent(part) == said


def test_bins_of_counts_hold_all_of_them():
    for most in (0, 1, 7, 127, 201, 12_484, 3_000_000):
        upper = bins(most)
        assert upper[0] == 0 and upper[-1] >= most and (np.diff(upper) > 0).all() and len(upper) <= 16
        np.testing.assert_allclose(np.diff(np.log(upper[1:])), np.log(upper[2]))  # so that a wide bin is no peak


def test_what_hardly_any_query_has_is_one_bin():
    """Of 1,000 queries 4 have 40 negatives and 3 have 60: less than half a percent beyond 16 in the first row only."""
    counts = np.repeat([0, 3, 14, 40], [496, 250, 250, 4])
    rare, more = (
        xr.Dataset({"contributing": (("direction", "batch", "query"), values[None, None]),
                    "negatives": (("direction", "batch", "query"), np.full((1, 1, 1000), 127.0))},
                   coords={"direction": ["q2c"]}, attrs={"eps": 0.01, "sample": "pairs", "loss": "ntxent"})
        for values in (counts, np.where(counts == 3, 60, counts))
    )  # fmt: skip
    for data, last in ((rare, "17+"), (more, "33–64"), ([rare, more], "33–64")):
        ax = plots.count(data, names=["a", "b"][: 2 if isinstance(data, list) else 1], ax=plt.figure().subplots())
        assert ax.get_xticklabels()[-1].get_text() == last
        plt.close(ax.figure)


def test_directions_that_agree_are_one():
    data = xr.Dataset({"x": (("direction", "at"), [[1.0, 100.0], [2.0, 99.0]])}, coords={"direction": ["a", "b"]})
    ((name, one),) = labels.sides(data, ["x"])
    assert name == "" and one["x"].values.tolist() == [1.5, 99.5]
    apart = data.assign(x=data["x"] * xr.DataArray([1, 1.05], dims="direction"))
    assert [name for name, _ in labels.sides(apart, ["x"])] == ["a", "b"]


def test_labels_are_moved_apart_and_stay_on_the_axes():
    for places in ([0.5] * 4, [0, 0.01, 0.02], [1, 0.99, 0.3], [-2, 3]):
        moved = labels.spread(places, 0.1)
        assert (np.diff(np.sort(moved)) >= 0.1 - 1e-12).all() and moved.min() >= -1e-12 and moved.max() <= 1 + 1e-12
        assert (np.argsort(moved, kind="stable") == np.argsort(places, kind="stable")).all()


def test_a_long_name_loses_its_middle_and_a_strange_one_its_power():
    assert wording.middle(LONG, 20) == "a_run_with…eed_of_17" and wording.middle("short", 20) == "short"
    assert wording.plain("a\x1b$x$\nb", 20) == r"a?\$x\$ b"


def test_a_number_stays_with_its_unit_and_an_interval_is_whole():
    said = "a change of -1.00 [-1.05, -0.95], p = 0.12, n = 8 and 36 % of it"
    for most in range(16, 60):
        lines = wording.wrapped(said, most).splitlines()
        assert " ".join(lines) == said and max(map(len, lines)) <= most
        assert all(any(one in line for line in lines) for one in ("[-1.05, -0.95]", "p = 0.12", "n = 8", "36 %"))


def test_long_directions_do_not_cover_a_count():
    data = measures.count(planted(directions=(LONG, f"{LONG}_back")), "ntxent", batch_size=24)
    figure = Figure(figsize=(7.2, 2.8), layout="constrained")
    ax = plots.count(data, ax=figure.subplots())
    figure.draw_without_rendering()
    legend = ax.get_legend().get_window_extent()
    assert legend.y1 <= ax.bbox.y0 and 0 <= legend.x0 and legend.x1 <= figure.bbox.x1


@pytest.mark.parametrize(("given", "wide"), [("one", 3.3), ("two", 6.9), ("4.5", 4.5), (5, 5), (None, None)])
def test_widths_are_those_of_columns_or_inches(given, wide):
    assert saving.inches(given) == wide


@pytest.mark.parametrize("given", ["three", "1", "100", "nan", "", -3])
def test_other_widths_are_refused(given):
    with pytest.raises(InputError, match=r"expected one \(.*3.3 inches\), two \(.*6.9 inches\), .* from 2 to 40"):
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


def test_several_losses_and_files_are_one_picture(files, tmp_path):
    done = call(
        "plot",
        "count",
        files[0],
        "--loss",
        "ntxent",
        "--loss",
        "triplet",
        "--batch-size",
        24,
        "-p",
        "ntxent.temperature=0.2",
    )
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "count.png").is_file() and "ntxent:\n" in done.stdout and "triplet:\n" in done.stdout
    assert "temperature=0.2" in done.stdout
    done = call("plot", "count", *files, "--loss", "ntxent", "--loss", "triplet", "--batch-size", 24, "--json")
    document = json.loads(done.stdout)
    named = [each["name"] for each in document["series"]]
    assert named == ["ntxent, first", "triplet, first", "ntxent, second", "triplet, second"]
    second = measures.count(planted(noise=2.0), losses.load("triplet"), batch_size=24)
    assert document["series"][3]["directions"] == measures.document("count", second)["directions"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["weight_map", "first.npz", *(f"--loss={name}" for name in losses.names()[:7])],
            "7 losses and files, expected at most 6",
        ),
        (["count", "first.npz", "first.npz"], "a file or a loss is named twice"),
        (
            ["count", "first.npz", "--loss", "ntxent", "--loss", "triplet", "-p", "margin=1"],
            "like ntxent.margin=1",
        ),
        (
            ["count", "first.npz", "--loss", "ntxent", "--loss", "triplet", "--out", "c.nc"],
            "it holds one loss of one file, not 2",
        ),
        (["count", "first.npz", "--width", "1"], "expected one (column, 3.3 inches)"),
    ],
)
def test_what_cannot_be_combined_gets_a_sentence(files, arguments, sentence):
    done = call("plot", *arguments)
    assert done.exit_code == 2 and sentence in done.stderr and done.stderr.count("\n") == 1


MAPS = [f"{name}: ntxent, {direction}" for name in ("first", "second") for direction in ("q2c", "c2q")]


@pytest.mark.parametrize(
    ("arguments", "panels"),
    [
        (["weight_map", "first.npz", "second.npz"], MAPS),
        (["contributors", "first.npz", "second.npz", "--direction", "q2c"], ["first: ntxent", "second: ntxent"]),
        (["score_landscape", "--loss", "ntxent", "--loss", "triplet"], ["ntxent: NTXent", "triplet: Triplet"]),
    ],
)
def test_runs_that_would_cover_each_other_have_panels_of_their_own(files, arguments, panels):
    done = call("plot", *arguments, "--out", "a.png")
    assert done.exit_code == 0, done.output
    with Image.open("a.png") as picture:
        said = picture.info["Description"]
    places = [said.index(panel) for panel in panels]
    assert places == sorted(places)
    named = json.loads(call("plot", *arguments, "--json").stdout)["series"]
    assert [each["name"] for each in named] == [panel.partition(": ")[0] for panel in panels]


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_runs_share_the_plots_of_lengths_scores_and_cut_offs(files):
    first, second = (cocos.open(file) for file in files)
    data = [measures.decomposition(each, "ntxent", batch_size=24) for each in (first, second)]
    ax = plots.decomposition(data, names=["before", "after"], ax=plt.figure().subplots())
    assert legend(ax) == ["before, q2c", "before, c2q", "after, q2c", "after, c2q"]
    medians = {line.get_ydata()[0] for line in ax.lines if len(line.get_xdata()) == 2}
    for each in data:
        for side in ("q2c", "c2q"):
            assert any(m == pytest.approx(float(each["push_norm"].sel(direction=side).median())) for m in medians)
    data = [measures.score_distribution(each, queries=20) for each in (first, second)]
    ax = plots.score_distribution(data, names=["before", "after"], direction="c2q", ax=plt.figure().subplots())
    for line, each in zip(ax.lines, data, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), each["band"].sel(direction="c2q", percentile=50))
    (strip,) = ax.child_axes
    for patch, each in zip(strip.patches, data, strict=True):
        np.testing.assert_array_equal(patch.get_data().values, each["positives"].sel(direction="c2q"))
    with pytest.raises(InputError, match=r"bins are of 0.02 in before and 0.2 in after: draw those with one metric"):
        plots.score_distribution([data[0], measures.score_distribution(second, bins=10)], names=["before", "after"])
    data = [measures.thresholds(each, queries=20) for each in (first, second)]
    ax = plots.thresholds(data, names=["before", "after"], ax=plt.figure().subplots())
    whole = ax.child_axes[2]
    drawn = [line.get_ydata() for line in whole.lines if line.get_label().startswith("recall")]
    for values, each in zip(drawn, data, strict=True):
        np.testing.assert_array_equal(values, 100 * each["level_recall"])
    assert "before, q2c" in legend(ax) and "(before)" in ax.get_title() and "(after)" in ax.get_title()
    done = call("plot", "thresholds", *files, "--queries", 10)
    assert done.exit_code == 0, done.stderr
    assert "first:\n" in done.stdout and "second:\n" in done.stdout
    plt.close("all")


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


def test_datasets_without_names_of_their_own_are_told_apart():
    data = measures.lorenz(planted(), batch_size=24)
    assert list(labels.series([data, data], None)) == ["NTXent(temperature=0.1) (1)", "NTXent(temperature=0.1) (2)"]
    from_files = [data.assign_attrs(checkpoint_path=f"run/{name}.pt") for name in ("old", "new")]
    assert list(labels.series(from_files, None)) == ["old", "new"]
    with pytest.raises(InputError, match="names: 1 of them for 2 Datasets"):
        plots.lorenz([data, data], names=["a"])


def test_the_kinds_that_combine_take_names():
    combining = {kind.name for kind in plot_kinds.plot_kinds() if kind.combines}
    every = {kind.name: kind for kind in plot_kinds.plot_kinds()}
    apart = {"audit", "contributors", "correlate", "gradients", "landscape", "replay", "retrievals"}
    apart |= {"score_landscape", "weight_map"}
    assert combining == every.keys() - apart and len(combining) > 9
    for name in apart:
        assert every[name].alone != "it shows one Dataset"
        with pytest.raises(InputError, match=f"this plot takes one Dataset, got 2: {every[name].alone}; draw each on"):
            every[name].plot([xr.Dataset(), xr.Dataset()])
    for kind in plot_kinds.plot_kinds():
        assert not kind.combines or kind.looks["names"].default is None
    plt.close("all")
