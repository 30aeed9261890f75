"""Distance to proxy: the paper's average, its band, its correlation with alpha, and what is drawn."""

import json
from dataclasses import replace
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from cocos import Embeddings, InputError, checkpoints, measures, plots, results
from cocos.checkpoints import runs as training_runs
from cocos.checkpoints.recorded import Recorded
from cocos.cli import app


def samples(seed, classes=4, width=3, number=30, radius=1.0):
    generator = torch.Generator().manual_seed(seed)
    proxy = 5 * torch.randn(classes, width, generator=generator, dtype=torch.float64)
    label = torch.arange(number) ** 2 % classes
    away = torch.nn.functional.normalize(torch.randn(number, width, generator=generator, dtype=torch.float64), dim=1)
    return Embeddings(proxy[label] + radius * away, proxy, label, torch.arange(classes), directions=("s2p",))


APART = Embeddings(torch.eye(2), torch.eye(2), torch.tensor([0, 1]), torch.tensor([2, 3]))


def test_the_average_is_that_of_eq_9_on_the_golden_arrays():
    """A mean of class means, 8.711, and not the mean over the samples, 7.413: tests/data/README.md."""
    with np.load(Path(__file__).parent / "data" / "dtp.npz") as golden:
        given = {name: torch.as_tensor(golden[name]) for name in ("embeddings", "proxies", "labels")}
        right, plain = float(golden["avg_dtp"]), float(golden["plain_mean_not_eq9"])
    classes = torch.arange(len(given["proxies"]))
    embeddings = Embeddings(given["embeddings"], given["proxies"], given["labels"], classes, directions=("s2p",))
    found = measures.dtp({"run": [embeddings]})
    assert float(found["average"].squeeze()) == pytest.approx(right, rel=1e-12) and abs(right - plain) > 1
    rows, proxies, labels = (given[name].numpy() for name in ("embeddings", "proxies", "labels"))
    loop = [np.mean([np.linalg.norm(x - proxies[c]) for x in rows[labels == c]]) for c in range(len(proxies))]
    np.testing.assert_allclose(found["per_class"].squeeze(), loop, rtol=1e-12)
    np.testing.assert_allclose(found["low"].item(), np.quantile(loop, 0.05), rtol=1e-12)
    np.testing.assert_allclose(found["high"].item(), np.quantile(loop, 0.95), rtol=1e-12)


def test_samples_on_spheres_lie_at_their_radius():
    runs = {f"alpha {a}": [samples(k, radius=r) for k, r in enumerate((9.0, 4.0, a))] for a in (1.0, 2.0, 4.0)}
    found = measures.dtp(runs, steps=(0, 5, 10), alpha={f"alpha {a}": a for a in (1.0, 2.0, 4.0)})
    np.testing.assert_allclose(found["average"].sel(step=10), [1, 2, 4], rtol=1e-12)
    np.testing.assert_allclose(found["average"].sel(step=0), [9, 9, 9], rtol=1e-12)
    assert found.attrs["alpha_correlation"] == pytest.approx(1)
    two = measures.dtp(dict(list(runs.items())[:2]), alpha={"alpha 1.0": 1.0})
    assert "alpha_correlation" not in two.attrs and np.isnan(two["alpha"].values).tolist() == [False, True]
    squared = measures.dtp({"a": [samples(0, radius=3.0)]}, metric="squared_euclidean")
    assert float(squared["average"].squeeze()) == pytest.approx(9)


def test_several_proxies_and_classes_without_samples():
    one = samples(0)
    twice = Embeddings(
        one.query,
        torch.cat([one.candidate, one.candidate + 100]),
        one.query_group,
        one.candidate_group.repeat(2),
        directions=("s2p",),
    )
    np.testing.assert_allclose(measures.dtp({"a": [twice]})["average"], measures.dtp({"a": [one]})["average"])
    absent = measures.dtp({"a": [one, samples(0, classes=3)]})
    classes = set(one.query_group.tolist()) | set(samples(0, classes=3).query_group.tolist())
    assert absent["class"].values.tolist() == sorted(classes)
    unit = Embeddings(one.candidate, one.candidate, one.candidate_group, one.candidate_group, directions=("s2p",))
    assert float(measures.dtp({"a": [unit]}, metric="cosine")["average"].squeeze()) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"runs": {}}, "runs: none, expected"),
        ({"runs": {"a": [samples(0)], "b": []}}, "a has 1 checkpoint, b 0; expected as many in each"),
        ({"runs": {"a": [], "b": []}}, "runs: none, expected at least one"),
        ({"runs": {"a": [samples(0)] * 3}, "steps": (8, 7, 6)}, "steps: 8, 7, 6; expected finite .* ascending order"),
        ({"runs": {"a": [samples(0)] * 2}, "steps": (1, 1)}, "steps: 1, 1; expected .* each once"),
        ({"runs": {"a": [samples(0)]}, "steps": (1, 2)}, "steps: 2 of them, expected one for each of 1"),
        ({"runs": {"a": [samples(0)]}, "metric": "dot"}, "unknown metric 'dot'"),
        ({"runs": {"warp": [samples(0)]}, "alpha": {"wrap": 1.0}}, "unknown run 'wrap': did you mean 'warp'"),
        ({"runs": {"a": ["model.pt"]}}, "a, step 0: str, expected cocos.Embeddings"),
        ({"runs": {"a": [APART]}}, "no sample has a proxy"),
        ({"runs": {"a": [samples(0), None, samples(1)]}}, "a: checkpoint 1 of 3 is None, expected None only at"),
        ({"runs": {"a": [None, None]}}, "a: checkpoint 0 of 2 is None.* at least one checkpoint before it"),
    ],
)  # fmt: skip
def test_what_has_no_distance_gets_a_sentence(given, sentence):
    with pytest.raises(InputError, match=sentence):
        measures.dtp(**given)


def run(*names):
    return {Path(name): training_runs.read_step(Path(name)) for name in names}


def test_alpha_changes_with_the_phase_and_with_the_class():
    runs = {name: [samples(k, radius=4.0) for k in range(3)] for name in ("phases", "classes", "one")}
    classes = measures.dtp({"a": runs["one"]})["class"].values.tolist()
    by_class = {c: 2.0 + c for c in classes}
    found = measures.dtp(runs, alpha={"phases": [28.0, 28.0, 34.0], "classes": by_class, "one": 0.1})
    np.testing.assert_allclose(found["alpha"], [34, 2 + np.mean(classes), 0.1], rtol=0, atol=1e-15)
    np.testing.assert_array_equal(found["alpha_each"].sel(run="phases").isel({"class": 1}), [28, 28, 34])
    np.testing.assert_array_equal(found["alpha_each"].sel(run="classes").isel(step=0), [*by_class.values()])
    assert "alpha_each" not in measures.dtp(runs, alpha={"one": 0.1})
    with pytest.raises(InputError, match="alpha of one: 2 numbers, expected one for each of 3 steps"):
        measures.dtp(runs, alpha={"one": [1.0, 2.0]})
    with pytest.raises(InputError, match=f"alpha of one: none for class {classes[1]}, expected one for each class"):
        measures.dtp(runs, alpha={"one": {classes[0]: 1.0}})
    figure, ax = plt.subplots()
    plots.dtp(found, ax=ax)
    steps = [line.get_ydata().tolist() for line in ax.lines if line.get_drawstyle() == "steps-post"]
    assert steps == [[28, 28, 34], [2] * 3, [2 + classes[-1]] * 3]
    told = [text.get_text() for text in ax.texts]
    assert {"α = 28, 34", "α = 2", f"α = {2 + classes[-1]}", "α = 0.1"} <= set(told)
    plt.close(figure)


def test_the_command_takes_alpha_by_phase(folders):
    alpha = ("--alpha", "plain=28,34@2", "--alpha", "warp=1.5")
    document = json.loads(call("plain", "warp", *alpha, "--json", "--out", "a.nc").stdout)
    assert document["alpha"] == {"plain": 34, "warp": 1.5}
    each = results.open("a.nc")["alpha_each"]
    assert each.sel(run="plain")[:, 0].values.tolist() == [28, 34, 34]
    assert each.sel(run="warp")[0].values.tolist() == [1.5, 1.5]


def test_alpha_that_the_checkpoints_of_two_phases_recorded_is_that_of_each_step(folders, monkeypatch):
    plain = checkpoints.open

    def recorded(path, **options):
        own = {"warped_softmax": {"alpha": 19.0 if "epoch_10" in str(path) else 7.0}}
        return replace(plain(path, **options), settings=Recorded("warped_softmax", own))

    monkeypatch.setattr(checkpoints, "open", recorded)
    done = call("warp", "--json", "--out", "a.nc")
    assert results.open("a.nc")["alpha_each"].sel(run="warp")[:, 0].values.tolist() == [7, 7, 19]
    assert "alpha of warp: 19" in done.stderr


def call(*arguments):
    return CliRunner().invoke(app, ["plot", "dtp", *map(str, arguments)])


def write(path, embeddings, **change):
    path.parent.mkdir(exist_ok=True)
    given = {"embeddings": embeddings.query, "labels": embeddings.query_group, "proxies": embeddings.candidate}
    given |= {"proxy_labels": embeddings.candidate_group} | change
    np.savez(path, **{name: value.numpy() for name, value in given.items() if value is not None})


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Two runs of three epochs each, whose radius is the epoch, and that of warp twice as large."""
    monkeypatch.chdir(tmp_path)
    for name, factor in (("plain", 1.0), ("warp", 2.0)):
        for epoch in (1, 2, 10):
            write(tmp_path / name / f"epoch_{epoch}.npz", samples(epoch, radius=factor * epoch))
        (tmp_path / name / "log.txt").write_text("no checkpoint")
    return tmp_path


def test_a_folder_is_a_run_and_epoch_2_stands_before_epoch_10(folders):
    done = call("plain", "warp", "--alpha", "warp=21", "--json", "--out", "both.pdf")
    assert done.exit_code == 0 and (folders / "both.pdf").read_bytes().startswith(b"%PDF")
    values = json.loads(done.stdout)
    assert list(values["average"]["plain"]) == ["1", "2", "10"] and list(values["average"]) == ["plain", "warp"]
    np.testing.assert_allclose(list(values["average"]["warp"].values()), [2, 4, 20], rtol=1e-12)
    assert values["alpha"] == {"plain": None, "warp": 21} and "alpha_correlation" not in values
    assert values["high"]["plain"]["10"] == pytest.approx(10)
    assert "note: steps 1, 2, 10: numbers in the file names" in done.stderr
    text = call("plain", "warp", "--alpha", 3, "--quiet")
    assert text.stderr == "" and (folders / "dtp.png").read_bytes().startswith(b"\x89PNG")
    assert ["warp", "10", "20", "20", "20"] in [line.split() for line in text.stdout.splitlines()]


def test_files_are_one_run_and_the_dataset_says_which(folders):
    files = [folders / "warp" / f"epoch_{epoch}.npz" for epoch in (1, 10, 2)]
    assert call(*files, "--out", "one.nc").exit_code == 0
    saved = results.open(folders / "one.nc")
    assert saved["step"].values.tolist() == [1, 2, 10] and saved["run"].values.tolist() == ["warp"]
    np.testing.assert_allclose(saved["average"].squeeze(), [2, 4, 20], rtol=1e-9)
    assert [Path(path).name for path in saved.attrs["checkpoint_path"].splitlines()] == [
        "epoch_1.npz", "epoch_2.npz", "epoch_10.npz",
    ]  # fmt: skip
    assert saved.attrs["checkpoint_sha256"].count("\n") == 2
    one, other = folders / "start.npz", folders / "end.npz"
    for path, radius in ((one, 5.0), (other, 1.0)):
        write(path, samples(0, radius=radius))
    unnumbered = json.loads(
        call(one, other, "--json", "--out", "two.nc").stdout
    )  # in the order in which they are given
    average = unnumbered["average"][folders.name]
    assert list(average) == ["0", "1"] and average["1"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("names", "steps"),
    [
        (("e_1.pt", "e_2.pth.tar"), [1, 2]),
        (("run7_best.pt",), [7]),
        (("e_1.pt", "f_1.pt"), None),
        (("best.pt", "e_1.pt"), None),
        (("e_20260101123456789.pt",), None),
    ],
)
def test_steps_are_the_numbers_in_the_names_where_they_ascend(names, steps):
    assert training_runs.common_steps([run(*names)]) == steps
    later = run(*(f"e_{index + 50}.pt" for index in range(len(names))))
    assert training_runs.common_steps([run(*names), later]) is None


def test_the_alpha_that_a_checkpoint_recorded_is_that_of_its_run(folders, monkeypatch):
    plain = checkpoints.open

    def recorded(path, **options):
        warped = {"settings": Recorded("warped_softmax", {"warped_softmax": {"alpha": 19.0}})}
        return replace(plain(path, **options), **(warped if "warp" in str(path) else {}))

    monkeypatch.setattr(checkpoints, "open", recorded)
    done = call("plain", "warp", "--json", "--out", "a.nc")
    assert json.loads(done.stdout)["alpha"] == {"plain": None, "warp": 19}
    assert "note: alpha of warp: 19, recorded in the last checkpoint" in done.stderr
    given = call("plain", "warp", "--alpha", "warp=4", "--alpha", "plain=5", "--json", "--out", "a.nc")
    assert json.loads(given.stdout)["alpha"] == {"plain": 5, "warp": 4}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["plain", "warp/epoch_1.npz"], "expected the files of one run, or folders"),
        (["plain", "plain"], "folders of different names"),
        (["empty"], "empty: no checkpoint, expected"),
        (["plain/log.txt"], "plain/log.txt is empty or text"),
        (["bare.npz"], "bare.npz: no class proxies (directions s2s)"),
        (["plain", "short"], "runs: plain has 3 checkpoints, short 1; expected as many in each"),
        (["few"], "few, step 2: no sample with a proxy of class 3 (and of 2 more), which others have"),
        (["plain", "--alpha", "warp=3"], "unknown run 'warp'"),
        (["plain", "--alpha", "x"], "--alpha 'x': expected numbers"),
        (["plain", "--alpha", "28,34"], "--alpha '34,': expected numbers"),
        (["plain", "--alpha", "0:3"], "--alpha '0:3': expected numbers"),
        (["n" * 300 + ".npz"], "n.npz: the name is too long for a file"),
        (["plain", "--out", "n" * 300 + ".png"], "n.png: the name is too long for a file"),
        (["plain", "--out", "n" * 300 + "/a.png"], "n/a.png: the name is too long for a file"),
        (["plain", "--out", "n" * 300 + "/a.nc"], ": the name is too long for a file"),
        (["plain", "--out", "no/a.png"], "--out no/a.png: there is no folder no; create it first"),
    ],
)
def test_what_is_no_run_gets_one_sentence_and_writes_nothing(arguments, sentence, folders):
    (folders / "empty").mkdir()
    write(folders / "bare.npz", samples(0), proxies=None, proxy_labels=None)
    write(folders / "short" / "epoch_1.npz", samples(0))
    for epoch, classes in ((1, 6), (2, 3)) if arguments == ["few"] else ():
        labels = torch.arange(30) % classes
        write(folders / "few" / f"epoch_{epoch}.npz", samples(0, classes=classes).replace(query_group=labels))
    there = sorted(folders.iterdir())
    done = call(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert sentence in done.stderr and done.stderr.count("\n") == 1
    assert sorted(folders.iterdir()) == there


def test_samples_without_a_proxy_are_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = samples(0)
    label = one.query_group.unique()
    write(tmp_path / "a" / "1.npz", one.replace(candidate=one.candidate[label[:1]], candidate_group=label[:1]))
    done = call("a", "--out", "a.nc")
    left = int((one.query_group != label[0]).sum())
    assert f"note: {left} of 30 samples left out: class {label[1]} without a proxy\n" in done.stderr
    notes = results.open(tmp_path / "a.nc").attrs["notes"]
    whole = one.replace(candidate=one.candidate[label], candidate_group=label)
    part = one.replace(candidate=one.candidate[label[:1]], candidate_group=label[:1])
    assert measures.dtp({"a": [whole]}).attrs["notes"] == ""
    assert measures.dtp({"a": [part, part], "b": [part, part]}).attrs["notes"] == notes
    assert measures.dtp({"a": [whole, part, None]}).attrs["notes"] == f"a, step 1: {notes}"


def test_a_run_that_has_diverged_ends_and_says_so():
    """The other runs have the numbers that they have without it; warnings are errors here, those of NaN too."""
    whole = {f"alpha {a}": [samples(k, radius=a) for k in range(3)] for a in (1.0, 2.0, 4.0)}
    lost = {"lost": [samples(0, radius=3.0), samples(1, radius=30.0), None]}
    alpha = {f"alpha {a}": a for a in (1.0, 2.0, 4.0)}
    alone, found = (measures.dtp(runs, alpha=alpha | more) for runs, more in ((whole, {}), (whole | lost, {"lost": 9})))
    np.testing.assert_array_equal(found["average"].sel(run=list(whole)), alone["average"])
    assert found.attrs["alpha_correlation"] == pytest.approx(alone.attrs["alpha_correlation"])
    for name in ("average", "low", "high"):
        assert np.isnan(found[name].sel(run="lost")).values.tolist() == [False, False, True], name
    np.testing.assert_allclose(found["average"].sel(run="lost")[:2], [3, 30], rtol=1e-12)
    figure, ax = plt.subplots()
    plots.dtp(found, ax=ax)
    (cross,) = [line for line in ax.lines if line.get_marker() == "x"]
    assert cross.get_xydata().tolist() == [[1, pytest.approx(30)]]
    said = [text.get_text() for text in ax.texts if not text.get_text().startswith("α = ")]
    assert said == [*whole, "lost: diverged"]
    figure.canvas.draw()
    plt.close(figure)
