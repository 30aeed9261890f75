"""The routes from what a user types to a model and its data: functions and paths."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cocos
from cocos import InputError
from cocos import data as shelf
from cocos.checkpoints import encoding
from cocos.cli import app

TEXTS = ("a red cat", "two dogs", "the sea", "a hill at night", "rain", "a green boat")
CODE = """
import numpy as np
import torch

def vector(texts):
    return np.array([[len(each), each.count("a"), each.count("e"), 1.0] for each in texts], dtype="float32")

def build(content):
    print("a line of the user's")
    weight = content["mixing"]
    return lambda texts: torch.as_tensor(vector(texts)) @ weight

def nothing():
    return {"query": vector, "candidate": lambda texts: 2 * vector(texts)}

def load(split):
    texts = ["a red cat", "two dogs", "the sea", "a hill at night", "rain", "a green boat"]
    return {"query": texts, "candidate": [each + " again" for each in texts]}

def labelled(split):
    return {"items": np.arange(24, dtype="float32").reshape(6, 4), "labels": list("aabbcc")}

def proxied(split):
    return labelled(split) | {"proxies": np.eye(4, dtype="float32")[:3], "proxy_labels": list("abc")}

class Module(torch.nn.Module):
    def forward(self, rows):
        return rows @ self.weight

def module(content):
    made = Module()
    made.weight = torch.nn.Parameter(content["mixing"])
    return made

model = torch.nn.Identity()

def short(content):
    return lambda rows: torch.ones(2, 4)

def flat(content):
    return lambda rows: torch.ones(len(rows))

def whole(content):
    return lambda rows: torch.ones(len(rows), 4, dtype=int)

def undefined(content):
    return lambda rows: torch.full((len(rows), 4), float("nan"))

def words(content):
    return lambda rows: ["a"] * len(rows)

def wider(content):
    return {"query": vector, "candidate": lambda texts: vector(texts)[:, :3]}

def one_sided(content):
    return {"query": vector}

def raises(content):
    return {}["weight"]

def number(content):
    return 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with code of the user's, a checkpoint that cocos does not know, and the features of six images."""
    (tmp_path / "my.py").write_text(CODE)
    torch.manual_seed(0)
    torch.save({"mixing": torch.randn(4, 4)}, tmp_path / "w.pt")
    data = tmp_path / "features"
    data.mkdir()
    np.save(data / "train_ims.npy", np.random.default_rng(0).normal(size=(6, 4)).astype("float32"))
    (data / "train_caps.txt").write_text("\n".join(TEXTS) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments), "--device", "cpu"])


def notes_of(done):
    return [line for line in done.stderr.splitlines() if line.startswith("note: data ")]


@pytest.mark.parametrize(
    ("model", "data"),
    [("my.py:build", "my.py:load"), ("my.py:module", "my.py:labelled"), ("my.py:module", "my.py:proxied")],
)
def test_functions_of_the_users_are_model_and_data(folder, model, data):
    done = call("count", "w.pt", "--model", model, "--data", data, "--batch-size", "all", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["checkpoint"]["format"] == "own"


def test_the_vectors_are_those_of_the_functions(folder):
    found = cocos.open("w.pt", model="my.py:build", data="my.py:load").embed(device="cpu")
    lengths = torch.tensor([[len(t), t.count("a"), t.count("e"), 1.0] for t in TEXTS])
    torch.testing.assert_close(found.query, lengths @ torch.load("w.pt", weights_only=True)["mixing"])
    assert found.names == (TEXTS, tuple(f"{text} again" for text in TEXTS))
    module = cocos.open("w.pt", model="my.py:module", data="my.py:proxied").embed(device="cpu")
    assert module.directions == ("s2p",) and module.candidate.tolist() == torch.eye(4)[:3].tolist()
    rows = torch.arange(24.0).reshape(6, 4) @ torch.load("w.pt", weights_only=True)["mixing"]
    torch.testing.assert_close(module.query, rows)
    assert module.query_group.tolist() == [0, 0, 1, 1, 2, 2] and module.candidate_group.tolist() == [0, 1, 2]
    alone = cocos.open("w.pt", model="my.py:module", data="my.py:labelled").embed(device="cpu")
    assert alone.shared and alone.directions == ("s2s",)


def test_python_takes_the_functions_themselves(folder):
    images, texts = torch.nn.Linear(4, 3), lambda rows: torch.ones(len(rows), 3)
    opened = cocos.open("features", model=lambda: {"query": images, "candidate": texts})
    assert opened.splits == ("train",) and opened.training.kind == "precomputed"
    found = opened.embed(device="cpu")
    torch.testing.assert_close(found.query, images(torch.from_numpy(np.load("features/train_ims.npy"))).detach())
    assert found.directions == ("i2t", "t2i") and found.names[0][2] == "features of: the sea"
    rows = {"items": np.eye(4, dtype="float32"), "labels": [0, 0, 1, 1]}
    opened = cocos.open("w.pt", model=lambda content: torch.nn.Identity(), data=rows)
    assert opened.embed(device="cpu").query.tolist() == np.eye(4).tolist()
    again = cocos.open("w.pt", model=lambda content: lambda rows: rows, data=precomp_of)
    assert again.training.load("dev").split == "dev"


def test_a_module_of_the_users_stays_as_it_is(folder):
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
    module[0].eval()
    data = {"items": np.eye(4, dtype="float32"), "labels": [0, 0, 1, 1]}
    found = cocos.open("w.pt", model=lambda content: module, data=data).embed(device="cpu")
    torch.testing.assert_close(found.query, module[0](torch.eye(4)).detach())  # nothing was dropped
    assert [each.training for each in module.modules()] == [True, False, True]
    assert all(each.requires_grad for each in module.parameters()) and not found.query.requires_grad


def test_a_width_that_depends_on_the_batch_gets_a_sentence(folder, monkeypatch):
    monkeypatch.setattr(encoding, "ITEMS_AT_ONCE", 3)
    data = {"items": np.ones((5, 2)), "labels": [0, 0, 1, 1, 1]}
    with pytest.raises(InputError, match=r"\(2, 2\) for the query side"):
        cocos.open("w.pt", model=lambda content: lambda rows: torch.ones(len(rows), len(rows)), data=data).embed()


def precomp_of(split):
    return shelf.TrainingSet(*shelf.load("precomputed", "train", shelf.Path("features")).sides, "mine", split)


def test_a_model_is_a_checkpoint_and_the_file_its_data(folder):
    data = folder / "emoji"
    shutil.copytree(cocos.checkpoints.EXAMPLE_FILE.parent, data)
    (data / "emoji_ntxent.pt").rename(folder / "towers.pt")
    done = call("count", data, "--model", "towers.pt", "--split", "val", "--batches", 1)
    assert done.exit_code == 0, done.output
    assert notes_of(done) == [f"note: data {data} (emoji_captions)"]
    other, given, own = (cocos.open(*each) for each in ([data, None, "towers.pt"], ["towers.pt", data], ["towers.pt"]))
    assert other.sha256 == own.sha256 and other.training.load("val").identity == own.training.load("val").identity
    assert (given.notes, own.notes) == ((f"data {data} (emoji_captions)",), ())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["w.pt", "--model", "gone"], "model 'gone': expected file.py:function"),
        (["features", "--model", "gone.pt"], "expected file.py:function, or a checkpoint that exists"),
        (["features", "--model", "w.pt"], "no weights of a known architecture (mixing)"),
        (["w.pt", "--model", "features"], "features: contains training data (precomputed)"),
        (["features", "--model", "w.pt", "--data", "features"], "features is the data that w.pt encodes; name one"),
        (["w.pt", "--model", "my.py:build"], "--data DATA"),
        (["w.pt", "--model", "my.py:build", "--data", "my.py"], "data my.py: unknown format"),
        (["w.pt", "--model", "my.py:build", "--data", "gone"], "data gone: file not found"),
        (["w.pt", "--model", "my.py:build", "--data", "my.py:laod"], "did you mean 'load'?"),
        (["w.pt", "--model", "my.py:build", "--data", "gone.py:load"], "data gone.py: file not found"),
        (["w.pt", "--model", "my.py:nothing", "--data", "my.py:load"], "takes 0 positional arguments"),
        (["w.pt", "--model", "my.py:short", "--data", "my.py:load"], "torch.float32 (2, 4)"),
        (["w.pt", "--model", "my.py:flat", "--data", "my.py:load"], "torch.float32 (6,) for the query"),
        (["w.pt", "--model", "my.py:whole", "--data", "my.py:load"], "torch.int64 (6, 4)"),
        (["w.pt", "--model", "my.py:undefined", "--data", "my.py:load"], "NaN or infinity in rows 0"),
        (["w.pt", "--model", "my.py:words", "--data", "my.py:load"], "my.py:words': ValueError"),
        (["w.pt", "--model", "my.py:wider", "--data", "my.py:load"], "(6, 3) for the candidate side"),
        (["w.pt", "--model", "my.py:one_sided", "--data", "my.py:load"], "dict, expected a function"),
        (["w.pt", "--model", "my.py:raises", "--data", "my.py:load"], "KeyError: 'weight'"),
        (
            ["w.pt", "--model", "my.py:number", "--data", "my.py:load"],
            "int, expected a function",
        ),
        (["e.npz", "--data", "my.py:load"], "data my.py:load: e.npz (embeddings) has no encoder"),
        (["features"], "features: contains training data (precomputed) but no model. Add --model"),
        (["empty"], "name a checkpoint"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_a_wrong_route_gets_a_sentence(folder, arguments, sentence):
    np.savez("e.npz", query=np.eye(4), candidate=np.eye(4)[::-1])
    (folder / "empty").mkdir()
    done = call("count", *arguments)
    assert done.exit_code == 2 and not done.stdout, done.output
    assert sentence in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr, done.stderr


def test_labels_are_counted_against_the_proxies_of_a_checkpoint():
    data = shelf.from_user(
        lambda split: {"items": np.eye(4, dtype="float32"), "labels": [0, 0, 1, 1], "items_name": list("abcd")}
    )
    made = cocos.Checkpoint(
        shelf.Path("a.pt"), "", "mine", {}, encoder=lambda: encoding.user_encoder(lambda rows: rows, "same"),
        training=data,
        proxies=torch.eye(4)[:2], proxy_labels=torch.tensor([1, 0]),
    )  # fmt: skip
    found = made.embed(device="cpu")
    assert found.directions == ("s2p",) and found.candidate_group.tolist() == [1, 0]
    query, proxy = made.items().texts("s2p")
    assert (query(2), proxy(1)) == ("c", "proxy 1")
    (note,) = found.notes
    assert "class k of the data is matched" in note
    alone = replace(made, proxies=torch.eye(4)[:1], proxy_labels=None).embed(device="cpu")
    assert alone.directions == ("s2s",) and "1 classes without one" in alone.notes[0]
