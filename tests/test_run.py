"""A run over its checkpoints: its numbers are those of each checkpoint, its sentences those of the detectors."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cocos
from cocos import Embeddings, InputError, checkpoints, measures, plots, results
from cocos.checkpoints.recorded import Recorded
from cocos.cli import app
from cocos.measures.run import episodes
from cocos.reports import table, tables

STEPS = {2: 1.5, 10: 0.8, 100: 0.3}


def rows(noise, size=60, width=12, away=0.0):
    generator = torch.Generator().manual_seed(0)
    middle = torch.randn(size, width, generator=generator)
    return [middle + noise * torch.randn(size, width, generator=generator) + away for _ in range(2)]


class OfAStranger:
    """An object whose class no file may name."""


def write(path, noise, **more):
    query, candidate = rows(noise, **more)
    np.savez(path, query=query.numpy(), candidate=candidate.numpy())


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "steps"
    folder.mkdir()
    for step, noise in STEPS.items():
        write(folder / f"epoch_{step}.npz", noise)
    return folder


@pytest.fixture
def folder(written, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(written, tmp_path / "steps")
    return tmp_path / "steps"


@pytest.fixture(scope="module")
def data(written):
    return measures.run(written, "ntxent", batch_size=20)


def call(*arguments):
    return CliRunner().invoke(app, ["run", *map(str, arguments)])


def test_numbers_are_those_of_each_checkpoint(written, data):
    assert data["checkpoint"].values.tolist() == list(STEPS) and data.attrs["left_out"] == "[]"
    for step in STEPS:
        one, frozen = data.sel(checkpoint=step), checkpoints.open(written / f"epoch_{step}.npz")
        counted = measures.count(frozen, "ntxent", batch_size=20)
        np.testing.assert_allclose(one["contributing"], counted["contributing"].mean(["batch", "query"]))
        np.testing.assert_allclose(one["idle"], counted["idle"].mean("batch"))
        np.testing.assert_allclose(one["effective"], counted["effective_per_query"].mean(["batch", "query"]))
        np.testing.assert_allclose(one["contributing_per_query"], counted["contributing"])
        np.testing.assert_array_equal(data["query_index"], counted["query_index"])
        found = measures.evaluate(frozen)
        for name in ("R@1", "MRR", "mean_rank"):
            np.testing.assert_allclose(one[name], found[name].squeeze())
        np.testing.assert_allclose((one["best_rank"] <= 5).mean("row") * 100, found["R@5"].squeeze())
        assert one["sha256"].item() == frozen.sha256 and one["rsum"].item() == found["rsum"].item()


def test_numbers_of_a_batch_are_means_over_the_full_ones(written):
    counted = measures.count(checkpoints.open(written / "epoch_100.npz"), "triplet", batch_size=25)
    assert counted["queries"].sel(direction="q2c").values.tolist() == [25, 25, 10]
    found = measures.run([written / "epoch_100.npz"], "triplet", batch_size=25).isel(checkpoint=0)
    np.testing.assert_allclose(found["unpushed"], (counted["contributing"] == 0).sum("query")[:, :2].mean("batch"))
    np.testing.assert_array_equal(found["candidates"], 25)


def test_a_checkpoint_has_the_record_of_a_monitor_on_the_same_batch(tmp_path):
    query, candidate = rows(0.5, size=20)
    found = measures.run([Embeddings(query, candidate)] * 2, "ntxent", batch_size="all")
    with cocos.Monitor("ntxent") as monitor:
        monitor(query, candidate, step=1)
    right = monitor.dataset().isel(step=0)
    for name in ("alignment", "uniformity", "similarity", "rank", "scale", "value"):
        assert float(found[name][1]) == pytest.approx(float(right[name]), rel=1e-5), name
    for name in ("contributing", "idle", "effective", "hub_share", "weight_positive", "weight_negative", "candidates"):
        np.testing.assert_allclose(found[name][1], right[name], rtol=1e-5, err_msg=name)
    assert found["checkpoint"].values.tolist() == [0, 1]


def test_the_command_prints_a_line_a_step_and_what_to_type_next(folder):
    done = call(folder, "--loss", "ntxent", "--batch-size", "20", "-p", "temperature=0.2")
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("10 ")]
    assert re.search(r"no detector fires: \d+ of \d+ detectors were watching; \d+ cannot see this loss \(", done.stdout)
    options = "--loss ntxent -p temperature=0.2 --batch-size 20"
    assert lines.count(f"next: cocos run {folder} {options} --out run.png") == 1
    diff = next(line for line in lines if "cocos diff" in line)
    more = call(folder, "--batches", "2", "--k", "1,3", "--batch-size", "20").stdout.splitlines()
    assert f"next: cocos run {folder} --k 1,3 --batch-size 20 --batches 2 --out run.png" in more
    assert diff.endswith(f"epoch_100.npz {options}") and CliRunner().invoke(app, diff.split()[2:]).exit_code == 0


def test_json_has_every_step(folder):
    found = json.loads(call(folder, "--json", "--batch-size", "20").stdout)
    assert found["steps"] == [2, 10, 100] and found["alarms"] == [] and len(found["directions"]["q2c"]["R@1"]) == 3
    assert found["watching"]["collapse"] is None and found["watching"]["lost_gradient"].startswith("cannot see")
    assert found["values"]["alarm"] == [0, 0, 0] and found["loss"]["name"] == "ntxent"


def test_a_damaged_checkpoint_is_named_and_the_rest_is_kept(folder):
    (folder / "epoch_10.npz").write_bytes(b"PK\x03\x04 cut short")
    done = call(folder, "--batch-size", "20", "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 0 and found["steps"] == [2, 100]
    assert found["left_out"][0]["file"] == "epoch_10.npz" and "epoch_10.npz: left out" in done.stderr


def test_a_diverged_checkpoint_fires_at_its_step(folder):
    query, candidate = rows(0.2)
    query[3, 2] = float("nan")
    np.savez(folder / "epoch_200.npz", query=query.numpy(), candidate=candidate.numpy())
    done = call(folder, "--batch-size", "20", "--fail-on", "non_finite")
    assert (
        done.exit_code == 1
        and "non_finite:" in done.stdout
        and "[1 of 4 checkpoints, at step 200]" in " ".join(done.stdout.split())
    )


def test_a_collapsing_run_gets_sentences_and_an_exit_code(folder):
    write(folder / "epoch_200.npz", 0.3, away=40.0)
    done = call(folder, "--batch-size", "20", "--fail-on", "any", "--out", "run.nc")
    assert done.exit_code == 1 and "collapse: mean cosine" in done.stdout
    found = results.open("run.nc")
    assert found["alarm"].values.tolist()[:3] == [0, 0, 0] and found["alarm"][3] > 0
    assert {each["step"] for each in json.loads(found.attrs["alarms"])} == {200}
    off = [f"--detector={each['detector']}=off" for each in episodes(found)]
    assert call("run.nc", "--fail-on", "any").exit_code == 1 and call("run.nc", *off, "--fail-on", "any").exit_code == 0
    assert call(folder, "--batch-size", "20", "--fail-on", "scale").exit_code == 0


def test_a_store_is_read_by_the_same_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    query, candidate = rows(0.5, size=16)
    with cocos.Monitor("ntxent", store="run.jsonl") as monitor:
        for step in range(40):
            monitor(query + step, candidate + step, step=5 * step)
    done = call("run.jsonl", "--fail-on", "collapse")
    assert done.exit_code == 1 and "collapse:" in done.stdout
    assert "next: cocos run run.jsonl --out run.png" in done.stdout.splitlines()
    assert call("run.jsonl", "--detector", "collapse=off", "--fail-on", "any").stdout.count("collapse:") == 0
    assert call("run.jsonl", "--out", "run.png").exit_code == 0
    data = measures.run("run.jsonl")
    assert [each["detector"] for each in episodes(data)].count("collapse") == 1
    assert [row[0].split()[0] for row in table("run", data).rows[::2]] == ["0", "30", "65", "100", "130", "160", "195"]


def test_a_column_of_a_run_has_one_meaning(tmp_path):
    header = {"cocos": "1", "loss": "Mine", "loss_parameters": "{}", "eps": 0.01}
    by_push = {"relative": 14.5, "unpushed": 8, "effective": 9.0, "queries": 32}
    by_unit = by_push | {"contributing": 1.25, "idle": 16}
    path, found = tmp_path / "run.jsonl", {}
    for name, directions in {
        "unknown": [by_push, by_push],
        "known": [by_unit, by_unit],
        "some": [by_unit, by_push],
    }.items():
        lines = [header, *({"step": k, "directions": {"q2c": each}} for k, each in enumerate(directions))]
        path.write_text("\n".join(map(json.dumps, lines)))
        found[name] = table("run", measures.run(path))
        document = json.loads(call(path, "--json").stdout)["directions"]["q2c"]
        assert document["contributing"] == [each.get("contributing") for each in directions]
        assert document["relative"] == [14.5, 14.5]
        assert call(path, "--out", tmp_path / "run.png").exit_code == 0
    assert found["unknown"].rows[0][1:4] == ("14.5", "8", "9")
    assert found["known"].rows[1][1:4] == ("1.25", "16", "9") and found["some"].rows[1][1:4] == ("-", "-", "9")


@pytest.mark.parametrize("kind", ["labelled", "distractors"])
def test_ranks_are_those_of_evaluate(kind):
    query, candidate = rows(1.0, size=40)
    groups = torch.arange(40)
    if kind == "labelled":
        embeddings = Embeddings.labelled(query, groups // 4)
    else:
        embeddings = Embeddings(query[:30], candidate, groups[:30], groups)
    found, right = measures.run([embeddings], "ntxent", batch_size=20), measures.evaluate(embeddings)
    for name in ("R@1", "mAP@R", "MRR"):
        np.testing.assert_allclose(found[name].squeeze(), right[name].sel(distractors="without").squeeze())
    number = found["best_rank"].notnull().sum("row").values.ravel()
    assert number.tolist() == ([40] if kind == "labelled" else [30, 30])


def test_a_negative_that_ties_stands_above_the_positive():
    same = torch.ones(10, 4)
    found = measures.run([Embeddings(same, 2 * same)], "ntxent", batch_size="all")
    assert (found["best_rank"] == 10).all() and (found["R@1"] == 0).all()


def test_each_checkpoint_is_counted_with_its_own_temperature_and_evaluated_on_its_test_split():
    train, test = Embeddings(*rows(0.5)), Embeddings(*rows(1.5))
    sides = {"train": train, "test": test}
    first = cocos.Checkpoint(Path("epoch_1.pt"), "1", "made", {}, lambda split, *_: sides[split],
                             Recorded("ntxent", {"ntxent": {"temperature": 0.1}}),
                             training=cocos.data.Source("own", tuple(sides), list))  # fmt: skip
    made = [first, replace(first, sha256="2", settings=Recorded("ntxent", {"ntxent": {"temperature": 0.05}}))]
    found = measures.run(made, batch_size=20)
    np.testing.assert_allclose(found["scale"], [10, 20])
    np.testing.assert_allclose(found["R@1"][0], measures.evaluate(test)["R@1"].squeeze())
    np.testing.assert_allclose(
        found["contributing"][1],
        measures.count(train, made[1].loss()[0], batch_size=20)["contributing"].mean(["batch", "query"]),
    )
    assert found["scale"].long_name in tables("run", found)[-1].columns
    assert "loss ntxent, probability" in str(table("run", found))
    other = replace(made[1], settings=Recorded("triplet"))
    with pytest.raises(InputError, match="was trained with triplet, and checkpoints before it with ntxent; name"):
        measures.run([made[0], other], batch_size=20)
    assert measures.run([made[0], other], "ntxent", batch_size=20, evaluated="train")["evaluated"].values[0] == 60


def test_counts_are_of_one_folder_and_recall_of_another(folder, tmp_path):
    """The protocol of the papers with files of embeddings: counted on the training set, evaluated on the test set."""
    (tmp_path / "held").mkdir()
    for step, noise in STEPS.items():
        write(tmp_path / "held" / f"step_{step}.npz", 2 * noise, size=40)
    plain, found = measures.run(folder, batch_size=20), measures.run(folder, batch_size=20, evaluated="held")
    np.testing.assert_array_equal(found["contributing"], plain["contributing"])
    for k, step in enumerate(STEPS):
        expected = measures.evaluate(cocos.open(tmp_path / "held" / f"step_{step}.npz"))["R@1"].squeeze()
        np.testing.assert_array_equal(found["R@1"][k], expected)
    assert found["evaluated"].values.tolist() == [40] * 3
    (tmp_path / "held" / "step_10.npz").unlink()
    found = measures.run(folder, batch_size=20, evaluated="held")
    assert "no checkpoint of step 10; it has 2, 100" in found.attrs["notes"] and len(found["checkpoint"]) == 2
    one = measures.run([folder / "epoch_2.npz"], batch_size=20, evaluated=tmp_path / "held" / "step_100.npz")
    assert one["evaluated"].values.tolist() == [40]


def test_a_run_is_evaluated_anew_where_the_other_files_changed(folder, tmp_path):
    (tmp_path / "held").mkdir()
    for step in STEPS:
        write(tmp_path / "held" / f"step_{step}.npz", 0.1)
    words = ["run", "steps", "--evaluated", "held", "--batch-size", "20", "--out", "r.nc", "--json"]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.stderr
    for step in STEPS:
        write(tmp_path / "held" / f"step_{step}.npz", 9.0)
    second = CliRunner().invoke(app, words)
    recall = [json.loads(each.stdout)["directions"]["q2c"]["R@1"] for each in (first, second)]
    assert min(recall[0]) > max(recall[1])


def test_every_checkpoint_encodes_other_data_that_are_evaluated(tmp_path):
    lines = [json.dumps({"query": f"a {k}", "positive": f"b {k}"}) for k in range(6)]
    (tmp_path / "other.jsonl").write_text("\n".join(lines))
    (tmp_path / "own.jsonl").write_text("\n".join(lines * 2 + lines[:1] + ['{"query": "c", "positive": "d"}']))

    def letters(texts):
        return [[float(text.count(each)) + 0.1 for each in "ab012345"] for text in texts]

    made = cocos.open(tmp_path / "own.jsonl", model=letters)
    found = measures.run([made], batch_size="all", evaluated=tmp_path / "other.jsonl")
    assert (found["rows"].item(), found["evaluated"].item()) == (7, 6)
    with pytest.raises(InputError, match="there is no encoder for them"):
        measures.run([Embeddings(*rows(1.0))], evaluated=tmp_path / "other.jsonl")
    with pytest.raises(InputError, match="its directions are s2s, and those counted q2c, c2q"):
        np.savez(tmp_path / "l.npz", embeddings=rows(1.0)[0].numpy(), labels=np.arange(60) // 2)
        measures.run([Embeddings(*rows(1.0))], evaluated=tmp_path / "l.npz")


def test_proxies_give_distances(tmp_path):
    samples = torch.tensor([[3.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    made = [Embeddings(k * samples, torch.eye(2), [0, 1, 1], [0, 1], directions=("s2p",)) for k in (1.0, 2.0)]
    found = measures.run(made, "proxynca", batch_size="all")
    right = measures.dtp({"run": made})
    np.testing.assert_allclose(found["dtp"], right["average"].squeeze())
    np.testing.assert_allclose(found["dtp_high"], right["high"].squeeze())
    assert found["dtp"].long_name in tables("run", found)[-1].columns and plots.run(found, show="dtp").has_data()
    plt.close("all")


def test_recall_of_a_run_with_proxies_is_among_samples_and_beside_it_is_accuracy():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat_interleave(5)
    made = [Embeddings.labelled(torch.randn(20, 3, generator=generator), labels, torch.eye(4, 3)) for _ in range(2)]
    found = measures.run(made, "warped_softmax", batch_size="all")
    each = [measures.evaluate(one, metric="euclidean") for one in made]
    among, accuracy = ([one["R@1"].sel(direction=side).item() for one in each] for side in ("s2s", "s2p"))
    assert among != accuracy
    assert found["R@1_s2s"].values.tolist() == among
    assert found["R@1"].sel(direction="s2p").values.tolist() == accuracy == [one["accuracy"].item() for one in each]
    shown = tables("run", found)[-1]
    column = shown.columns.index(f"{found['R@1_s2s'].long_name} (%)")
    assert [float(row[column]) for row in shown.rows] == pytest.approx(among, rel=1e-3)


@pytest.mark.parametrize(
    ("names", "steps", "note"),
    [
        (("epoch_1.npz", "epoch_1_ema.npz"), [0, 1], "no ascending numbers in the names"),
        (("epoch_1.npz", "epoch_2.npz", "best.npz"), [1, 2], "left out, without a step in the name: best.npz"),
        (("a.npz", "b.npz"), [0, 1], "no ascending numbers in the names"),
        (("epoch_7.npz",), [7], ""),
    ],
)  # fmt: skip
def test_steps_that_repeat_or_lack_are_said(tmp_path, names, steps, note):
    for name in names:
        write(tmp_path / name, 0.5)
    found = measures.run(tmp_path, batch_size=20)
    assert found["checkpoint"].values.tolist() == steps and note in found.attrs["notes"]
    assert len(table("run", found).rows) == 2 * len(steps)  # two directions


def test_checkpoints_of_unlike_widths_or_rows_are_measured_with_a_note(tmp_path):
    write(tmp_path / "step_1.npz", 0.5)
    write(tmp_path / "step_2.npz", 0.5, width=6)
    write(tmp_path / "step_3.npz", 0.5, size=50)
    found = measures.run(tmp_path, batch_size=20)
    notes = found.attrs["notes"]
    assert "widths differ, 12 at step 1 and 6 at step 2" in notes and "rows differ, 60 at step 1 and 50 at" in notes
    assert found["query_index"].dims[0] == "checkpoint" and found["R@1"].notnull().all()


def test_what_is_no_run_gets_a_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "one", "two", "bad"):
        (tmp_path / name).mkdir()
    for name in ("one", "two"):
        write(tmp_path / name / "step_1.npz", 0.5)
    (tmp_path / "bad" / "step_1.npz").write_bytes(b"PK\x03\x04")
    (tmp_path / "bad" / "step_2.npz").write_bytes(b"PK\x03\x04")
    results.save(measures.weight_curve("triplet", points=5), tmp_path / "curve.nc")
    header = {"cocos": "0.1.0", "loss": "ntxent", "loss_parameters": "{}", "eps": 0.01}
    (tmp_path / "begun.jsonl").write_text(json.dumps(header) + "\n")
    record = json.dumps({"step": 0, "directions": {"q2c": {"contributing": 1}}})
    (tmp_path / "bare.jsonl").write_text(json.dumps({"cocos": "0.1.0", "loss": "x"}) + "\n" + record + "\n")
    (tmp_path / "store").mkdir()
    shutil.copy(tmp_path / "begun.jsonl", tmp_path / "store" / "run.jsonl")
    results.save(measures.run("one", batch_size=20).drop_vars("contributing"), tmp_path / "bad.nc")
    for given, sentence in (
        (["begun.jsonl"], "begun.jsonl has no records yet"),
        (["bare.jsonl"], "bare.jsonl is no result of a run, or a damaged one (no loss_parameters)"),
        (["begun.jsonl", "--loss", "triplet"], "begun.jsonl: a store or result"),
        (["store"], "store: no checkpoint, expected"),
        (["empty"], "empty: no checkpoint, expected"),
        (["one", "two"], "2 runs: one, two; name one"),
        (["bad"], "none of 2 checkpoints can be measured, all for one reason"),
        (["curve.nc"], "expected a Dataset of cocos run"),
        (["curve.nc", "one"], "curve.nc: a store or result"),
        (["bad.nc"], "bad.nc is no result of a run, or a damaged one (no contributing)"),
        (["one", "--fail-on", "colapse"], "did you mean 'collapse'"),
        (["one", "--k", "0"], "k: 0, expected integers"),
    ):
        done = call(*given)
        assert done.exit_code == 2 and sentence in done.stderr and done.stderr.count("\n") == 1, (given, done.stderr)
    (tmp_path / "one" / "step_1.npz").unlink()
    torch.save(OfAStranger(), tmp_path / "one" / "step_1.pt")
    assert call("one").exit_code == 3  # refused as unsafe
    with pytest.raises(InputError, match="checkpoints: none"):
        measures.run([])
    sides = Embeddings(*rows(0.5)), Embeddings(*rows(0.5), directions=("i2t", "t2i"))
    with pytest.raises(InputError, match="directions are i2t, t2i"):
        measures.run(sides, batch_size=20)
