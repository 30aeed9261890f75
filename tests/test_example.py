"""The embedded example: what is shipped is whole, small and licensed, and its model has learned something."""

import gzip
import json
from importlib.resources import files
from pathlib import Path
from zlib import crc32

import pytest
import torch

import cocos
from cocos import InputError
from cocos.checkpoints import encoding
from cocos.checkpoints.formats import native
from cocos.data import emoji_captions
from cocos.embeddings import scores

EXAMPLE = Path(str(files("cocos") / "example"))
NOTICES = {
    "Apache-2.0.txt": "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION",
    "cldr-Unicode-3.0.txt": "UNICODE LICENSE V3",
    "noto-emoji-Apache-2.0-notice.txt": "Copyright 2013 Google, Inc.",
    "noto-emoji-OFL-1.1.txt": "SIL OPEN FONT LICENSE Version 1.1",
}


@pytest.fixture(scope="module")
def val():
    return emoji_captions.load("val")


@pytest.fixture(scope="module")
def checkpoint():
    return cocos.open(EXAMPLE / "emoji_ntxent.pt")


@pytest.fixture(scope="module")
def embeddings(checkpoint):
    return checkpoint.embed("val", device="cpu")


@pytest.fixture(scope="module")
def towers():
    torch.manual_seed(0)
    return native.SmallTowers(16, (8, 8, 8, 8), 64, 8)


def test_the_example_stays_small():
    assert sum(path.stat().st_size for path in EXAMPLE.rglob("*") if path.is_file()) <= 5_000_000


@pytest.mark.parametrize("notice", NOTICES)
def test_every_licence_is_there_and_named(notice):
    assert NOTICES[notice] in (EXAMPLE / "LICENSES" / notice).read_text(encoding="utf-8")
    assert notice in (EXAMPLE / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("split", "number"), [("train", 2497), ("val", 376), ("test", 358)])
def test_a_split_is_whole(split, number):
    items = cocos.data.load("emoji_captions", split)
    assert items.query.items.shape == (number, 3, 32, 32)
    assert items.query.items.dtype == torch.uint8
    assert items.query.group.tolist() == list(range(number))
    assert items.candidate.group.tolist() == [image for image in range(number) for _ in range(5)]
    assert all(caption.strip() for caption in items.candidate.items)


def test_no_concept_crosses_splits():
    rows = [json.loads(line) for line in gzip.decompress((EXAMPLE / "captions.jsonl.gz").read_bytes()).splitlines()]
    assert len({row["concept"] for row in rows}) == len({(row["concept"], row["split"]) for row in rows})


@pytest.mark.parametrize(
    ("split", "name", "channel"),
    [("train", "green square", 1), ("train", "blue circle", 2), ("val", "red square", 0)],
)
def test_pictures_and_captions_are_in_step(split, name, channel):
    items = emoji_captions.load(split)
    image = items.query.items[items.candidate.group[items.candidate.items.index(name)]]
    assert image[:, 12:20, 12:20].float().mean(dim=(1, 2)).argmax() == channel


def test_damaged_example_names_the_file(tmp_path):
    for name in ("captions.jsonl.gz", "images.webp"):
        with pytest.raises(cocos.InputError, match=name):
            emoji_captions.load("val", tmp_path)
        (tmp_path / name).write_bytes((EXAMPLE / name).read_bytes()[:-1000])
        with pytest.raises(cocos.InputError, match=name):
            emoji_captions.load("val", tmp_path)
        (tmp_path / name).write_bytes((EXAMPLE / name).read_bytes())


def test_the_hash_is_the_same_everywhere():
    """The frozen weights belong to these buckets. 0xCBF43926 is the published check value of CRC-32."""
    assert crc32(b"123456789") == 0xCBF43926
    assert native.pieces("A", 2**32) == [crc32(piece) for piece in (b"<a>", b"<a", b"a>", b"<a>")]


def test_the_checkpoint_says_how_it_was_trained(checkpoint):
    assert checkpoint.settings.loss == "ntxent"
    assert checkpoint.settings.parameters == {"ntxent": {"temperature": 0.1}}
    assert checkpoint.splits == emoji_captions.SPLITS


def test_embeddings_are_unit_vectors(embeddings):
    for side in (embeddings.query, embeddings.candidate):
        torch.testing.assert_close(side.norm(dim=1), torch.ones(len(side)))


def test_an_embedding_does_not_depend_on_its_neighbours(checkpoint, embeddings, val, monkeypatch):
    monkeypatch.setattr(encoding, "ITEMS_AT_ONCE", 97)
    again = checkpoint.embed("val", device="cpu")
    torch.testing.assert_close(again.query, embeddings.query, atol=1e-6, rtol=0)
    torch.testing.assert_close(again.candidate, embeddings.candidate, atol=1e-6, rtol=0)


def test_neither_does_it_in_training(towers, val):
    for side in val.sides:
        torch.testing.assert_close(
            towers.encode(side.items[:5], side.kind, "")[3:4], towers.encode(side.items[3:4], side.kind, "")
        )


@pytest.mark.parametrize("caption", ["", " ", "z", "\U0001f600", "日本語"])
def test_any_text_has_an_embedding(towers, caption):
    assert towers.encode([caption], "text", "candidate").isfinite().all()


def test_the_model_has_learned(embeddings):
    """Recall@10 by chance is about 10 * 5 / 1880 = 2.7 %; the bar is ten times that (the model has 48 %)."""
    pairs = scores.pairs(embeddings)
    first = pairs.scores.topk(10, dim=1).indices
    assert pairs.positive.gather(1, first).any(dim=1).double().mean() > 0.27


def test_a_record_of_absurd_sizes_allocates_nothing(tmp_path):
    content = torch.load(EXAMPLE / "emoji_ntxent.pt", weights_only=True)
    content["cocos"]["encoder"]["arguments"]["buckets"] = 10**12
    torch.save(content, tmp_path / "a.pt")
    with pytest.raises(InputError, match="cannot be built"):
        _ = cocos.open(tmp_path / "a.pt").model
    content["cocos"]["encoder"]["arguments"]["width"] = -1
    torch.save(content, tmp_path / "a.pt")
    with pytest.raises(InputError, match="cannot be built"):
        _ = cocos.open(tmp_path / "a.pt").model
