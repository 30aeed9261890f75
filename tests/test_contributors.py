"""The candidates of one query: against slow loops, in a table, in a picture, and from the command line."""

import json

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
import torch
import xarray as xr
from typer.testing import CliRunner

from cocos import Embeddings, InputError, checkpoints, data, losses, measures, reports
from cocos.cli import app
from cocos.counting import weights
from cocos.embeddings import scores
from cocos.embeddings.sampling import plan
from cocos.reports import table


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def planted(images=30, captions=3, width=8, noise=0.7):
    generator = torch.Generator().manual_seed(3)
    image = torch.randn(images, width, generator=generator, dtype=torch.float64)
    group = torch.arange(images).repeat_interleave(captions)
    caption = image[group] + noise * torch.randn(len(group), width, generator=generator, dtype=torch.float64)
    return Embeddings(image, caption, torch.arange(images), group)


@pytest.fixture(scope="module")
def embeddings():
    return planted()


@pytest.fixture
def file(embeddings, tmp_path):
    names = ("query", "candidate", "query_group", "candidate_group")
    np.savez(tmp_path / "rows.npz", **{name: getattr(embeddings, name).numpy() for name in names})
    return tmp_path / "rows.npz"


def slow(embeddings, loss, row, direction, eps, **options):
    """Candidates of a query as plain numbers, by autograd, and the number of its batch."""
    options = {"sample": loss.sample} | options
    for number, batch in enumerate(plan(embeddings, **options).batches):
        first = direction == embeddings.directions[0]
        side, seen = (embeddings, batch) if first else (embeddings.flip(), batch.flip())
        if row not in seen.query_index.tolist():
            continue
        q = seen.query_index.tolist().index(row)
        pairs = scores.pairs(side, seen, metric=loss.metric)
        weight, unit = weights.autograd(loss, pairs), loss.unit(pairs).expand_as(pairs.scores)
        found = []
        for c, candidate in enumerate(seen.candidate_index.tolist()):
            if pairs.positive[q, c] or pairs.negative[q, c]:
                w, positive = weight[q, c].item(), pairs.positive[q, c].item()
                share = abs(w) / unit[q, c].item()
                group = side.candidate_group[candidate].item()
                found.append((
                    candidate,
                    group,
                    pairs.scores[q, c].item(),
                    w,
                    share,
                    positive,
                    share > eps and not positive,
                ))
        return number, sorted(found, key=lambda one: -one[4]), len(seen.candidate_index) - len(found)
    return None


@pytest.mark.parametrize("direction", ["q2c", "c2q"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ntxent", {"batch_size": 16}),
        ("ntxent", {"batch_size": "all"}),
        ("triplet", {"batch_size": 40, "seed": 3}),
        ("ce_softmax", {"batch_size": 16}),  # couples the batch
        ("supcon", {"batch_size": 10, "sample": "groups"}),
        ("circle", {"batch_size": "all", "sample": "groups"}),
    ],
)
def test_the_contributors_of_a_query_are_what_a_loop_finds(embeddings, name, options, direction):
    loss = losses.load(name)
    for row in (0, 7, 29):
        data = measures.contributors(embeddings, name, 0.02, row=row, direction=direction, top=None, **options)
        batch, expected, left_out = slow(embeddings, loss, row, direction, 0.02, **options)
        assert data.attrs["batch"] == batch and data.attrs["left_out"] == left_out
        assert data.attrs["positives"] == sum(one[5] for one in expected)
        assert data.attrs["negatives"] == sum(not one[5] for one in expected)
        assert data.attrs["contributing"] == sum(one[6] for one in expected)
        push, pull = (sum(max(0, sign * one[3]) for one in expected) for sign in (1, -1))
        assert data.attrs["push"] == pytest.approx(push) and data.attrs["pull"] == pytest.approx(pull)
        heavy = [abs(one[3]) for one in expected if not one[5] and one[3] != 0]
        number = np.exp(-sum(w / sum(heavy) * np.log(w / sum(heavy)) for w in heavy)) if heavy else 0
        assert data.attrs["effective"] == pytest.approx(number, abs=1e-9)
        np.testing.assert_allclose(data["share"], [one[4] for one in expected], atol=1e-12)
        assert data.attrs["repeated"] == len(expected) - len({one[0] for one in expected})
        there = {(one[0], one[5]): one for one in expected}
        held = {1: 0.0, -1: 0.0}
        for place in range(data.sizes["candidate"]):
            one = {key: data[key].values[place].item() for key in data.data_vars}
            _, group, score, weight, share, _, above = there[one["candidate_index"], one["positive"]]
            assert one["group"] == group and one["contributes"] == above
            found = [one[key] for key in ("score", "weight", "share")]
            np.testing.assert_allclose(found, [score, weight, share], atol=1e-12)
            if abs(weight) < 1e-12:
                continue
            sign = 1 if weight > 0 else -1
            held[sign] += abs(weight) / (push if sign > 0 else pull)
            assert one["part"] == pytest.approx(abs(weight) / (push if sign > 0 else pull))
            assert one["held"] == pytest.approx(held[sign])


def test_samples_of_a_class_ask_for_each_other_and_never_for_themselves():
    generator = torch.Generator().manual_seed(0)
    rows, labels = torch.randn(24, 5, generator=generator, dtype=torch.float64), torch.arange(24) % 4
    labelled = Embeddings.labelled(rows, labels)
    data = measures.contributors(labelled, "supcon", row=5, batch_size=24, top=None)
    assert 5 not in data["candidate_index"] and data.attrs["left_out"] == 1
    assert data.attrs["positives"] == 5 and data.attrs["negatives"] == 18
    expected = slow(labelled, losses.load("supcon"), 5, "s2s", 0.01, batch_size=24)[1]
    np.testing.assert_allclose(data["weight"], [one[3] for one in expected], atol=1e-12)


def test_the_top_leaves_the_totals_alone(embeddings):
    whole = measures.contributors(embeddings, "ntxent", row=4, batch_size=30, top=None)
    usual = measures.contributors(embeddings, "ntxent", row=4, batch_size=30)
    xr.testing.assert_identical(usual, whole.isel(candidate=slice(20)))
    top = measures.contributors(embeddings, "ntxent", row=4, batch_size=30, top=3)
    xr.testing.assert_identical(top, whole.isel(candidate=slice(3)))
    assert whole["candidate"].values[0] == 1 and whole.sizes["candidate"] == 30 - whole.attrs["left_out"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"row": 30}, "row: 30, expected one of the queries of q2c, 0 to 29"),
        ({"row": -1}, "row: -1, expected one of the queries"),
        ({"row": 90, "direction": "c2q"}, "row: 90, expected one of the queries of c2q, 0 to 89"),
        ({"row": 1.5}, "row: 1.5, expected an integer"),
        ({"direction": "q2q"}, "unknown direction 'q2q': did you mean"),
        ({"eps": float("nan")}, "eps: nan, expected a share"),
        ({"batch_size": 1}, "batch size: 1, expected an integer of at least 2"),
    ],
)
def test_what_has_no_contributors(embeddings, options, sentence):
    with pytest.raises(InputError, match=sentence):
        measures.contributors(embeddings, "ntxent", **options)


def test_a_query_is_chosen_where_none_is_named():
    made = planted()
    data = measures.contributors(made, "ntxent", batch_size=30)
    batch = plan(made, batch_size=30).batches[0]
    counts = {}
    for row in batch.query_index.tolist():
        counts[row] = measures.contributors(made, "ntxent", row=row, batch_size=30).attrs["contributing"]
    assert data.attrs["row"] in counts and data.attrs["contributing"] == sorted(counts.values())[(len(counts) - 1) // 2]
    few = Embeddings(torch.cat([made.query] * 3), made.query, torch.arange(30).repeat(3), torch.arange(30))
    for direction in few.directions:
        assert measures.contributors(few, "triplet", direction=direction).sizes["candidate"] > 1


def test_table_and_document_agree_with_dataset(embeddings):
    data = measures.contributors(embeddings, "ntxent", row=4, batch_size=30, top=5)
    listed, totals = reports.tables("contributors", data)
    assert len(listed.rows) == 5 and not {"probability", "violations"} & set(listed.columns)
    for place, cells in enumerate(listed.rows):
        row = dict(zip(listed.columns, cells, strict=True))
        one = {key: data[key].values[place].item() for key in data.data_vars}
        assert row["candidate"] == str(one["candidate_index"]) and row["share of the unit"] == f"{one['share']:.4g}"
        assert row["positive"] == ("yes" if one["positive"] else "no")
        assert row[data["contributes"].long_name] == ("yes" if not one["positive"] and one["share"] > 0.01 else "no")
    numbers = dict(totals.rows)
    assert numbers["contributing"] == str(data.attrs["contributing"])
    given = {"row": 4, "direction": "c2q", "batch_size": "all", "top": None}
    once = table("contributors", measures.contributors(embeddings, "triplet", **given))
    assert len(once.rows) == 30
    whole = table("contributors", measures.contributors(embeddings, "triplet", **given, copies="keep"))
    assert len(whole.rows) == 88


def test_the_command_lists_one_query(file, tmp_path, embeddings):
    done = call(
        "plot",
        "contributors",
        file,
        "--row",
        4,
        "--loss",
        "triplet",
        "-p",
        "margin=0.4",
        "--batch-size",
        30,
    )
    data = measures.contributors(embeddings, losses.load("triplet", {"margin": 0.4}), row=4, batch_size=30)
    assert done.exit_code == 0 and done.stdout.startswith(str(table("contributors", data)).strip())
    found = call(
        "plot",
        "contributors",
        file,
        "--row",
        80,
        "--direction",
        "c2q",
        "--json",
        "-q",
        "--batch-size",
        "all",
        "--eps",
        0.1,
    )
    document = json.loads(found.stdout)["directions"]["c2q"]
    assert found.exit_code == 0 and not found.stderr and len(document["share"]) == 20
    data = measures.contributors(embeddings, "ntxent", 0.1, row=80, direction="c2q", batch_size="all", top=20)
    assert document == reports.document("contributors", data)["directions"]["c2q"] and document["row"] == 80
    assert document["candidate_index"]["1"] == data["candidate_index"].values[0]
    out = tmp_path / "one.nc"
    assert call("plot", "contributors", file, "--row", 4, "--direction", "q2c", "--out", out).exit_code == 0
    assert xr.load_dataset(out).attrs["row"] == 4
    picture = tmp_path / "one.png"
    assert (
        call("plot", "contributors", file, "--row", 4, "--out", picture).exit_code == 0
        and picture.read_bytes()[:4] == b"\x89PNG"
    )


def test_the_command_knows_the_captions_of_the_data():
    path = checkpoints.EXAMPLE_FILE
    done = call(
        "plot",
        "contributors",
        path,
        "--split",
        "test",
        "--row",
        12,
        "--json",
        "--batch-size",
        64,
    )
    document = json.loads(done.stdout)["directions"]["i2t"]
    assert done.exit_code == 0
    for place, row in document["candidate_index"].items():
        assert document["group"][place] == row // 5
    done = call(
        "plot",
        "contributors",
        path,
        "--split",
        "test",
        "--row",
        61,
        "--direction",
        "t2i",
    )
    lines = done.stdout.splitlines()
    assert done.exit_code == 0 and any(line.split()[:1] == ["12"] and "yes" in line for line in lines)


def test_texts_of_precomputed_features(tmp_path):
    np.save(tmp_path / "dev_ims.npy", np.ones((2, 3), dtype=np.float32))
    (tmp_path / "dev_caps.txt").write_text("a\nb\nc\nd\n")
    items = data.precomputed.load("dev", tmp_path)
    image, caption = items.texts("i2t")
    assert (image(1), caption(1)) == ("features of: c", "b")
    assert [each(1) for each in items.texts("t2i")] == ["b", "features of: c"]
    assert items.pictures("i2t") == (None, None)


def test_rows_without_names_have_no_texts(file):
    assert checkpoints.open(file).items() is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--row", 30), "row: 30, expected one of the queries of q2c, 0 to 29"),
        (("--row", 1, "--direction", "xyz"), "unknown direction 'xyz': there are c2q, q2c"),
        (("--row", 1, "--batch-size", 1), "batch size: 1, expected an integer of at least 2"),
        (("--row", 1, "--batch-size", "many"), "batch size: 'many', expected an integer"),
        (("--row", 1, "--loss", "ntxentt"), "did you mean 'ntxent'"),
    ],
)
def test_bad_commands_get_a_sentence(file, arguments, sentence):
    done = call("plot", "contributors", file, *arguments)
    assert done.exit_code == 2 and sentence in done.stderr and done.stderr.count("\n") == 1 and not done.stdout
