"""A count in parts is the count in one run, bit for bit; what does not belong together is named."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cocos
from cocos import measures, results
from cocos.base.errors import InputError
from cocos.commands import app
from cocos.results import parts


def sets():
    """Embeddings with groups, of one row a query, and labelled ones."""
    generator = torch.Generator().manual_seed(5)
    image = torch.randn(90, 12, generator=generator)
    group = torch.arange(90).repeat_interleave(2)
    caption = image[group] + 0.7 * torch.randn(180, 12, generator=generator)
    return {
        "captions": cocos.Embeddings(image, caption, torch.arange(90), group),
        "pairs": cocos.Embeddings(image, caption[::2]),
        "labelled": cocos.Embeddings.labelled(image, torch.arange(90) % 9),
    }


@pytest.mark.parametrize("name", ["captions", "pairs", "labelled"])
@pytest.mark.parametrize(
    "options",
    [
        {"loss": "ntxent", "batch_size": 16},
        {"loss": "triplet", "batch_size": 7, "batches": 11, "seed": 3},
        {"loss": "multi_similarity", "batch_size": 16},
        {"loss": "ntxent", "batch_size": 16, "n90": True, "metrics": True},
    ],
)
def test_the_parts_of_a_count_are_the_count(name, options):
    embeddings = sets()[name]
    whole = measures.count(embeddings, **options)
    number = whole.sizes["batch"]
    for every in {1, 2, 3, number}:
        made = [measures.count(embeddings, part=f"{k}/{every}", **options) for k in range(1, every + 1)]
        joined = parts.join(made[::-1])
        assert joined.identical(whole)
        assert measures.document("count", joined) == measures.document("count", whole)


def test_the_batches_of_the_parts_are_all_batches_once():
    for number in (1, 2, 5, 17, 200):
        for every in range(1, number + 1):
            found = [
                k for part in range(1, every + 1) for k in range(number)[parts.batches_of(f"{part}/{every}", number)]
            ]
            assert found == list(range(number))


@pytest.mark.parametrize("part", ["0/2", "3/2", "1/0", "1", "", "1/2/3", "-1/2", "1/9999999", "a/b", "1/100", "١/٢"])
def test_a_part_that_cannot_be_is_refused(part):
    with pytest.raises(InputError, match="part"):
        measures.count(sets()["pairs"], batch_size=16, part=part)


def test_parts_that_do_not_belong_together_are_named():
    held = sets()["pairs"]

    def made(part, **more):
        return measures.count(held, **{"batch_size": 16, "part": part} | more)

    one, two, three = (made(f"{k}/3") for k in (1, 2, 3))
    names = ["a.nc", "b.nc", "c.nc"]
    for given, said in (
        ([one, three], "2 of 3 missing"),
        ([one], "parts 2, 3 of 3 missing"),
        ([one, two, two], "c.nc and b.nc are both part 2/3"),
        ([one, made("2/2")], "b.nc is part 2/2, and a.nc is one of 3 parts"),
        ([one, two, made("3/3", seed=1)], "c.nc is of another count than a.nc: seed is 1"),
        ([one, two, made("3/3", batches=4)], "c.nc is of another count than a.nc: batches is 4"),
        ([one, two, made("3/3", eps=0.1)], "c.nc is of another count than a.nc: eps is 0.1"),
        ([one, two, made("3/3", loss="triplet")], "c.nc is of another count"),
        ([one, two, measures.count(held, batch_size=16)], "c.nc is no part of a count"),
        ([one, two, three.isel(batch=slice(0, 1))], "c.nc has 1 batches, expected"),
    ):
        with pytest.raises(InputError) as error:
            parts.join(given, names[: len(given)])
        assert said in str(error.value)
        assert "\n" not in str(error.value)


def test_what_is_unknown_in_one_part_is_unknown_in_all():
    one, other = (measures.count(sets()["pairs"], "ntxent", batch_size=16, part=f"{place}/2") for place in (1, 2))
    joined = parts.join([one, other.assign(contributing=other["contributing"] * np.nan).assign_attrs(share="unknown")])
    assert joined.attrs["share"] == "unknown" and joined["contributing"].isnull().all()


def test_the_commands_write_parts_and_join_them(tmp_path):
    held = sets()["pairs"]
    file = tmp_path / "pairs.npz"
    np.savez(file, query=held.query.numpy(), candidate=held.candidate.numpy())
    run, files = CliRunner().invoke, []
    for k in (1, 2, 3):
        files.append(str(tmp_path / f"part{k}.nc"))
        done = run(app, ["count", str(file), "--batch-size", "16", "--part", f"{k}/3", "--out", files[-1]])
        assert done.exit_code == 0, done.output
    whole = run(app, ["count", str(file), "--batch-size", "16", "--out", str(tmp_path / "one.nc"), "--json"])
    joined = run(app, ["join", *files[::-1], "--out", str(tmp_path / "all.nc"), "--json"])
    assert joined.exit_code == 0, joined.output
    assert json.loads(joined.stdout) == json.loads(whole.stdout)
    assert results.open(tmp_path / "all.nc").identical(results.open(tmp_path / "one.nc"))
    assert (tmp_path / "all.nc").read_bytes() == (tmp_path / "one.nc").read_bytes()
    done = run(app, ["join", *files[:2], "--out", str(tmp_path / "two.nc")])
    assert done.exit_code == 2
    assert not (tmp_path / "two.nc").exists()
