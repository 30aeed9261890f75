"""Slices of the batches of one draw: their counts together are the count of all of them, bit for bit."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cocos
from cocos import measures, reports, results
from cocos.base.errors import InputError
from cocos.cli import app


def _sets():
    generator = torch.Generator().manual_seed(5)
    image = torch.randn(90, 12, generator=generator)
    group = torch.arange(90).repeat_interleave(2)
    caption = image[group] + 0.7 * torch.randn(180, 12, generator=generator)
    negatives = (torch.arange(90)[:, None] + torch.tensor([1, 40])) % 90
    return {
        "captions": cocos.Embeddings(image, caption, torch.arange(90), group),
        "pairs": cocos.Embeddings(image, caption[::2]),
        "labelled": cocos.Embeddings.labelled(image, torch.arange(90) % 9),
        "negatives": cocos.Embeddings(image, caption[::2], negatives=negatives),
    }


SETS = _sets()
PAIRS = SETS["pairs"]
FEW = {"batch_size": 16, "seed": 3}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(
    "options",
    [
        {"loss": "ntxent"},
        {"loss": "smoothap"},
        {"loss": "triplet", "batch_size": 7},
        {"loss": "ntxent", "n90": True, "metrics": True},
        {"loss": "ntxent", "convention": "ecir2022"},
    ],
)
def test_concat_equals_whole_slice(name, options):
    if name == "labelled" and "convention" in options:
        pytest.skip("the published counters know two sides only")
    options = FEW | options
    slices = [measures.count(SETS[name], batches=each, **options) for each in (slice(4, 9), "0:1", "1:4")]
    whole, joined = measures.count(SETS[name], batches="0:9", **options), results.concat(slices)
    assert joined.identical(whole)
    assert reports.document("count", joined) == reports.document("count", whole)
    numbered = measures.count(SETS[name], batches=9, **options)
    for each in ("query_index", "contributing", "relative", "idle", "negatives"):
        assert whole[each].equals(numbered[each])


def test_concat_of_dicts_is_a_dict():
    counts = [measures.count(PAIRS, ["ntxent", "triplet"], batches=each, **FEW) for each in ("0:2", "2:5", "0:5")]
    *slices, whole = counts
    joined = results.concat(slices)
    assert list(joined) == list(whole)
    assert all(joined[label].identical(whole[label]) for label in whole)


def test_slices_continue_with_the_next_shuffle():
    whole = measures.count(PAIRS, batches=14, **FEW)
    beyond = measures.count(PAIRS, batches="4:14", **FEW)
    assert np.array_equal(beyond["query_index"], whole["query_index"][:, 4:], equal_nan=True)
    rest = measures.count(PAIRS, batches="4:", **FEW)
    assert rest.attrs["batch_slice"] == "4:6"
    assert rest.sizes["batch"] == 2


@pytest.mark.parametrize(
    "batches",
    [
        "5:5",
        "7:5",
        "-1:5",
        "1:2:3",
        "a:b",
        ":0",
        "5",
        "",
        "x",
        "6:",
        "١:٢",
        slice(0, 4, 2),
        slice(-3, None),
        slice(5, 2),
    ],
)
def test_bad_slice_is_refused(batches):
    with pytest.raises(InputError, match=r"batches: .*expected") as error:
        measures.count(PAIRS, batches=batches, **FEW)
    assert "\n" not in str(error.value)


def test_other_measures_refuse_a_slice():
    with pytest.raises(InputError, match="only a count takes a slice"):
        measures.lorenz(PAIRS, batches="0:2")


def _slice(batches, **options):
    return measures.count(PAIRS, **FEW | {"batches": batches} | options)


@pytest.mark.parametrize(
    ("datasets", "message"),
    [
        ([], "no datasets"),
        ([_slice("0:2"), _slice("3:4")], "the batches 2:3 are missing"),
        ([_slice("0:2"), _slice("1:4")], r"datasets\[0\] has the batches 0:2, datasets\[1\] 1:4"),
        ([_slice("0:2"), _slice("0:2")], "expected each batch once"),
        ([_slice("0:2"), _slice("2:4", seed=1)], "different counts: seed is 1, expected 3"),
        ([_slice("0:2"), _slice("2:4", batch_size=8)], "batch_size is 8, expected 16"),
        ([_slice("0:2"), _slice("2:4", eps=0.1)], "eps is 0.1, expected 0.01"),
        ([_slice("0:2"), _slice("2:4", loss="triplet")], "different counts: "),
        ([_slice("0:2"), _slice("2:4", convention="ecir2022")], "convention is ecir2022, expected standard"),
        ([_slice("0:2"), measures.count(SETS["captions"], batches="2:4", **FEW)], "different counts: "),
        ([_slice("0:2"), _slice(4)], r"datasets\[1\] is not a count of a slice"),
        ([_slice("0:2"), _slice("2:5").isel(batch=[0])], r"datasets\[1\] has 1 of the batches 2:5"),
        ([_slice("0:2").assign_attrs(checkpoint_sha256="a"), _slice("2:4").assign_attrs(checkpoint_sha256="b")], "sha"),
        ([{"a": _slice("0:2")}, {"b": _slice("2:4")}], r"datasets\[1\] has the losses \['b'\], expected \['a'\]"),
    ],
)
def test_concat_refuses_other_counts(datasets, message):
    with pytest.raises(InputError, match=message) as error:
        results.concat(datasets)
    assert "\n" not in str(error.value)


def test_unknown_share_in_one_slice_is_unknown():
    one, other = _slice("0:2"), _slice("2:4")
    unknown = other.assign(contributing=other["contributing"] * np.nan).assign_attrs(share="unknown")
    joined = results.concat([one, unknown])
    assert joined.attrs["share"] == "unknown"
    assert joined["contributing"].isnull().all()


def test_absent_source_has_no_negatives():
    whole = measures.count(SETS["negatives"], batches="0:4", **FEW)
    first, second = (measures.count(SETS["negatives"], batches=each, **FEW) for each in ("0:2", "2:4"))
    label = whole["source"].values[-1]
    joined = results.concat([first.drop_sel(source=label), second])
    assert joined["source"].equals(whole["source"])
    assert (joined["source_negatives"].sel(source=label)[:, :2].sum() == 0).item()


def test_command_counts_a_slice(tmp_path):
    np.savez(tmp_path / "pairs.npz", query=PAIRS.query.numpy(), candidate=PAIRS.candidate.numpy())
    command = ["count", str(tmp_path / "pairs.npz"), "--batch-size", "16", "--json"]
    for name, batches in (("a", "0:2"), ("b", "2:5")):
        done = CliRunner().invoke(app, [*command, "--batches", batches, "--out", str(tmp_path / f"{name}.nc")])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["batches"] == {"a": 2, "b": 3}[name]
    joined = results.concat([results.open(tmp_path / f"{name}.nc") for name in "ab"])
    del joined.attrs["loss_origin"]  # of the command
    assert joined.identical(measures.count(cocos.open(tmp_path / "pairs.npz"), batches="0:5", batch_size=16))
    for batches in ("5:2", "x", "1:2:3", "0", "-1", "9:"):
        done = CliRunner().invoke(app, [*command, "--batches", batches])
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith("cocos: batches: ")
        assert done.stderr.count("\n") == 1
