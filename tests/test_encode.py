"""`cocos encode` writes embeddings that cocos reads back with everything it knows of their rows."""

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import cocos
from cocos.checkpoints.formats import native
from cocos.cli import app

PAIRS = [
    {"query": "a cat", "positive": "it purrs", "negative": "it barks"},
    {"query": "a dog", "positive": "it barks", "negative": "it purrs"},
    {"query": "a bird", "positive": "it flies" * 200, "negative": None},
]
# An encoder of the user's: letters of a text, means of an image.
CODE = """
import numpy as np
import torch

def texts(items):
    return torch.tensor([[text.count(letter) + 0.1 for letter in "abcdeit"] for text in items])

def images(items):
    return torch.stack([image.float().mean((1, 2)) + 1 for image in items])

def load(split):
    return {"query": ["a cat", split], "candidate": ["it purrs", "it barks"]}

def build(content):
    return lambda items: texts(items) @ content["weight"]
"""


@pytest.fixture
def inside(tmp_path, monkeypatch):
    """A folder with pairs, images by class, an encoder and a checkpoint's images, as the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PAIRS))
    (tmp_path / "mine.py").write_text(CODE)
    for k, name in enumerate(("cats/a.png", "cats/b.png", "dogs/c.png", "dogs/d.png")):
        (tmp_path / "pets" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (80 + k, 40), (60 * k, 0, 0)).save(tmp_path / "pets" / name)
    return tmp_path


def run(*words, code=0):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, (words, done.stderr)
    return done.stderr if code else done.stdout


def test_pairs_with_their_texts_and_hard_negatives(inside):
    out = "some.npz"
    said = json.loads(run("encode", "pairs.jsonl", "--model", "mine.py:texts", "--out", out, "--json"))
    assert (said["queries"], said["candidates"], said["width"]) == (3, 3, 7)
    source = cocos.data.find("pairs.jsonl").load()
    assert said["data"]["sha256"] == source.identity and said["data"]["kind"] == "pairs"
    found = cocos.open(out)
    read = found.embed()
    assert read.names[0] == ("a cat", "a dog", "a bird") and read.names[1][:2] == ("it purrs", "it barks")
    assert read.names[1][2].endswith("…") and len(read.names[1][2]) == 300
    assert read.negatives.tolist() == source.negatives.tolist() == [[1], [0], [-1]]
    assert read.query_group.tolist() == source.query.group.tolist() and read.directions == ("q2c", "c2q")
    assert read.query[0].tolist() == pytest.approx([2.1, 0.1, 1.1, 0.1, 0.1, 0.1, 1.1])
    assert found.items().texts("c2q")[0](1) == "it barks" and not [note for note in found.notes if "not used" in note]
    assert found.contents["provenance"]["data"]["sha256"] == source.identity
    assert "a cat" in run("plot", "contributors", out, "--row", 0, "--batch-size", "all")


def test_images_by_class_keep_their_paths_or_thumbnails(inside):
    out = "some.npz"
    run("encode", "pets", "--model", "mine.py:images", "--out", out)
    read = cocos.open(out).embed()
    assert read.shared and read.names[0] == read.names[1] == ("cats/a.png", "cats/b.png", "dogs/c.png", "dogs/d.png")
    picture = cocos.open(out).items().pictures("s2s")[1](3)
    assert picture.shape == (40, 83, 3) and picture[0, 0].tolist() == [180, 0, 0]
    (inside / "other").mkdir()
    run("encode", "pets", "--model", "mine.py:images", "--out", f"other/{out}")
    assert cocos.open(inside / "other" / out).embed().pictures is None


def example(path, number=40):
    """Images and captions as the embedded checkpoint reads them."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (number, 32, 32, 3), dtype=np.uint8)
    captions = np.array([[f"one {k}", f"zwei {k}"] for k in range(number)])
    np.savez(path, images=images, captions=captions)


def test_a_checkpoint_encodes_other_data_and_hands_on_its_loss(inside):
    example("rows.npz")
    model = cocos.checkpoints.EXAMPLE_FILE
    said = json.loads(run("encode", "rows.npz", "--model", model, "--out", "some.npz", "--json"))
    found = cocos.open("some.npz")
    assert said["model"]["sha256"] == cocos.open(model).sha256 and found.loss()[0] == cocos.open(model).loss()[0]
    assert found.embed().directions == ("i2t", "t2i") and found.embed().pictures[0].shape == (40, 32, 32, 3)
    again = cocos.open("rows.npz", model=str(model)).embed()
    assert (again.query == found.embed().query).all() and again.names[1] == found.embed().names[1]


def test_an_interrupted_run_writes_nothing(inside, monkeypatch):
    example("rows.npz", number=30)
    model, whole = cocos.checkpoints.EXAMPLE_FILE, native.SmallTowers.encode
    asked, stop = [], 3

    def encode(self, items, kind, side):
        if len(asked) == stop:
            raise KeyboardInterrupt
        asked.append((side, len(items)))
        return whole(self, items, kind, side)

    monkeypatch.setattr(native.SmallTowers, "encode", encode)
    monkeypatch.setattr(native.SmallTowers, "items_at_once", 10, raising=False)
    words = ("encode", "rows.npz", "--model", model, "--out", "some.npz")
    assert "interrupted" in run(*words, code=130) and not (inside / "some.npz").exists()
    asked, stop = [], 100
    run(*words)
    assert asked == [("query", 10)] * 3 + [("candidate", 10)] * 6 and (inside / "some.npz").exists()
    run(*words[:4], "--out", "more.npz")
    assert (inside / "some.npz").read_bytes() == (inside / "more.npz").read_bytes()


def test_data_of_a_function_and_a_model_of_a_file(inside):
    run("encode", "mine.py:load", "--model", "mine.py:texts", "--out", "some.npz", "--split", "more")
    assert cocos.open("some.npz").embed().names[0] == ("a cat", "more")
    from safetensors.numpy import save_file

    save_file({"weight": np.eye(7, 3, dtype="float32")}, "weight.safetensors")
    run("encode", "weight.safetensors", "--model", "mine.py:build", "--data", "pairs.jsonl", "--out", "other.npz")
    assert cocos.open("other.npz").embed().query.shape == (3, 3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("pairs.jsonl", "--out", "some.pt"), "some.pt.*.npz"),
        (("pairs.jsonl", "--out", "no/some.npz"), "no folder no"),
        (("pairs.jsonl", "--out", "some.npz", "--split", "dev"), "'dev'.*train"),
        (("pairs.jsonl", "--out", "some.npz", "--images", "x"), "with images"),
        (("mine.py", "--out", "some.npz"), "unknown format"),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_is_encoded(words, said, inside):
    (inside / "there.npz").write_text("mine")
    import re

    found = run("encode", *words, "--model", "mine.py:texts", code=2)
    assert re.search(said, found) and len(found.strip().splitlines()) == 1
    assert (inside / "there.npz").read_text() == "mine" and not (inside / "some.npz").exists()


def test_provenance_names_only_losses_of_the_shelf(inside):
    """A file from a stranger may say anything there."""
    rows = {"query": np.eye(2), "candidate": np.eye(2)[::-1] + 0.1}
    said = [
        '{"loss": {"name": "mine.py:loss", "parameters": {}}}',
        '{"loss": {"name": "ntxent", "parameters": {"a": 1}}}',
    ]
    for k, text in enumerate([*said, "{", "[" * 10**5, "3", '{"loss": 3}']):
        np.savez(f"{k}.npz", **rows, provenance=text)
        assert cocos.open(f"{k}.npz").loss()[0] == cocos.losses.load("ntxent")
