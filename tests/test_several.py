"""Several losses counted from one scoring pass: equal to separate calls, and nothing is done twice."""

import json

import numpy as np
import pytest
import torch
import xarray as xr
from typer.testing import CliRunner

import cocos
from cocos import Embeddings, losses, measures, reports, results
from cocos.base.errors import InputError
from cocos.cli import app
from cocos.reports import table
from cocos.reports.layouts import latex

COSINES = ("ntxent", "triplet", "triplet_sh", "smoothap", "ce_softmax")
# Losses that are visited and held, of four metrics, trained on pairs and on groups, coupled and not.
MIXED = (*COSINES, "triplet_squared", "triplet_euclidean", "multi_similarity", "proxy_anchor", "n_pair")


def paired(rows=70, width=6, captions=2):
    generator = torch.Generator().manual_seed(5)
    image = torch.randn(rows, width, generator=generator)
    group = torch.arange(rows).repeat_interleave(captions)
    caption = image[group] + 0.8 * torch.randn(len(group), width, generator=generator)
    return Embeddings(image, caption, torch.arange(rows), group)


def labelled():
    generator = torch.Generator().manual_seed(6)
    return Embeddings.labelled(torch.randn(60, 5, generator=generator), torch.arange(60) % 7)


def proxied():
    generator = torch.Generator().manual_seed(7)
    rows, proxies = torch.randn(60, 5, generator=generator), torch.randn(7, 5, generator=generator)
    return Embeddings.labelled(rows, torch.arange(60) % 7, proxies)


def same(embeddings, names, **options):
    """Compare one call with the separate ones, to the last bit, and return its result."""
    together = measures.count(embeddings, names, **options)
    asked = list(names.values()) if isinstance(names, dict) else names
    taken = list(together.values())
    assert len(taken) == len(asked)
    for loss, one in zip(asked, taken, strict=True):
        alone = measures.count(embeddings, loss, **options)
        xr.testing.assert_identical(one, alone)
        assert {name: one[name].dtype for name in one.variables} == {n: alone[n].dtype for n in alone.variables}
    return together


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 16},
        {"batch_size": 16, "sample": "groups", "dtype": "float64"},
        {"batch_size": 20, "n90": True, "eps": 0.05},
        {"batches": 2, "batch_size": 16, "metrics": True},
        {"batch_size": "all", "metrics": True},
        {"batch_size": 16, "same_group": "negative"},
    ],
    ids=",".join,
)
def test_several_losses_are_counted_as_each_alone(options):
    same(paired(), [losses.load(name) for name in MIXED], **options)


def test_names_objects_functions_and_labels_are_mixed():
    def softest(scores, positive, negative):
        return (scores.exp() * negative).sum(dim=1)

    sharp = losses.load("ntxent", {"temperature": 0.02})
    data = same(paired(), {"sharp": sharp, "soft": "ntxent", "own": softest, "hinge": losses.load("triplet")})
    assert list(data) == ["sharp", "soft", "own", "hinge"]
    assert float(data["sharp"]["contributing"].mean()) < float(data["soft"]["contributing"].mean())
    assert list(same(paired(), ["triplet", sharp])) == ["Triplet(margin=0.2)", "NTXent(temperature=0.02)"]
    assert len(same(paired(), ["triplet"])) == 1


@pytest.mark.parametrize(
    ("embeddings", "names"),
    [(labelled, ["supcon", "triplet", "multi_similarity"]), (proxied, ["normalized_softmax", "proxynca", "cosface"])],
)
def test_labelled_sets_and_proxies_too(embeddings, names):
    same(embeddings(), names, batch_size=28)


def test_the_published_way_too():
    same(paired(), ["ntxent", "triplet", "smoothap"], convention="ecir2022", batch_size=20)


def test_losses_draw_own_batches():
    data = same(paired(), ["ntxent", "smoothap"], batch_size=32)
    assert [one.attrs["sample"] for one in data.values()] == ["pairs", "groups"]
    assert len({tuple(one.sizes.values()) for one in data.values()}) == 2


def test_a_checkpoint_is_encoded_once(tmp_path, monkeypatch):
    np.savez(tmp_path / "rows.npz", query=paired(captions=1).query, candidate=paired(captions=1).candidate)
    frozen, encoded = cocos.open(tmp_path / "rows.npz"), []
    embed = type(frozen).embed
    monkeypatch.setattr(type(frozen), "embed", lambda *given: encoded.append(1) or embed(*given))
    data = measures.count(frozen, ["ntxent", "triplet"])
    assert len(encoded) == 1
    assert all(one.attrs["checkpoint_format"] == "embeddings" for one in data.values())


def test_saved_dict_is_opened_identical(tmp_path):
    names = {"z / a": "ntxent", ".": "smoothap", "a": "multi_similarity"}
    data = measures.count(paired(), names, batch_size=32)
    path = results.save(data, tmp_path / "counts.nc")
    opened = results.open(path)
    assert list(opened) == list(names)
    for label, loss in names.items():
        xr.testing.assert_identical(opened[label], measures.count(paired(), loss, batch_size=32))
    content = path.read_bytes()
    assert results.save(opened, path).read_bytes() == content
    tree = xr.open_datatree(path, engine="h5netcdf")
    assert [node.attrs["loss"] for node in tree.children.values()] == list(names.values())


def test_documents_of_losses_are_listed():
    names = ["ntxent", "triplet"]
    document = reports.document("count", measures.count(paired(), names, batch_size=32))
    assert list(document) == ["measure", "cocos", "checkpoint", "losses"] and document["measure"] == "count"
    for name, one in zip(names, document["losses"], strict=True):
        alone = reports.document("count", measures.count(paired(), name, batch_size=32))
        assert {"measure": "count", **one} == {"label": repr(losses.load(name)), **alone}
        assert "losses" not in alone and "label" not in alone


def test_tables_and_pictures_have_each_loss():
    labels = {"sharp": losses.load("ntxent", {"temperature": 0.02}), "soft": losses.load("ntxent")}
    data = measures.count(paired(), labels, batch_size=32, n90=True, metrics=True)
    text = table("count", data).text(200)
    assert all(column in text.split("\n\n")[1].splitlines()[0] for column in ("sharp q2c", "soft c2q"))
    named = table("count", measures.count(paired(), ["ntxent", "triplet"]))
    assert named.columns == ("", "ntxent q2c", "ntxent c2q", "triplet q2c", "triplet c2q")
    assert latex(data, "rows").count(r"\begin{tabular}") == 2
    assert [label.get_text().split(", ")[0] for label in cocos.plots.count(data).get_yticklabels()] == [
        "NTXent(temperature=0.02)",
        "NTXent(temperature=0.1)",
    ]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], r"loss: \[\], expected at least one loss"),
        ({}, r"loss: \{\}, expected at least one loss"),
        (["ntxent", "InfoNCE"], r"NTXent\(temperature=0.1\) is given 2 times; give each once, or a dict"),
        (["ntxent", "trplet"], "unknown loss 'trplet': did you mean 'triplet'"),
        (["ntxent", ["triplet"]], "list"),
    ],
)
def test_bad_input_is_one_sentence(given, sentence):
    with pytest.raises(InputError, match=sentence):
        measures.count(paired(), given)


def test_what_takes_one_loss_refuses_several():
    data = measures.count(paired(), ["ntxent", "triplet"])
    with pytest.raises(InputError, match=r"A: results of 2 losses, expected one"):
        measures.diff(data, data)


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_the_command_counts_several_losses(tmp_path):
    rows = paired(captions=1)
    np.savez(tmp_path / "rows.npz", query=rows.query, candidate=rows.candidate)
    options = ["count", tmp_path / "rows.npz", "--loss", "ntxent", "--loss", "triplet", "-p", "ntxent.temperature=0.02"]
    done = call(*options, "--json", "--out", tmp_path / "counts.nc")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert [each["loss"]["parameters"] for each in document["losses"]] == [{"temperature": 0.02}, {"margin": 0.2}]
    parts = results.open(tmp_path / "counts.nc")
    assert list(parts) == [each["label"] for each in document["losses"]]
    for name, one in zip(("ntxent", "triplet"), parts.values(), strict=True):
        given = ["-p", "temperature=0.02"] if name == "ntxent" else []
        alone = json.loads(call("count", tmp_path / "rows.npz", "--loss", name, *given, "--json").stdout)
        assert json.loads(json.dumps(reports.document("count", one))) == alone
    shown = call(*options)
    assert "loss triplet, margin 0.2 (default)" in shown.stderr and "ntxent c2q" in shown.stdout


def test_repeated_loss_is_counted_once(tmp_path):
    np.savez(tmp_path / "rows.npz", query=np.eye(4), candidate=np.eye(4)[::-1])
    once, twice = (call("count", tmp_path / "rows.npz", *["--loss", "ntxent"] * times, "--json") for times in (1, 2))
    assert once.exit_code == twice.exit_code == 0 and json.loads(once.stdout) == json.loads(twice.stdout)


def test_parameters_need_loss_name(tmp_path):
    np.savez(tmp_path / "rows.npz", query=np.eye(4), candidate=np.eye(4)[::-1])
    done = call("count", tmp_path / "rows.npz", "--loss", "ntxent", "--loss", "triplet", "-p", "margin=1")
    assert done.exit_code == 2 and done.stderr.count("\n") == 1
    assert "parameter margin: with several losses, expected LOSS.NAME, as in ntxent.margin" in done.stderr
