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
from cocos.checkpoints import encoders
from cocos.checkpoints.formats import native
from cocos.cli import app
from cocos.data import emoji_captions, precomp

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

def labelled():
    return {"items": np.arange(24, dtype="float32").reshape(6, 4), "labels": list("aabbcc")}

def proxied(split):
    return labelled() | {"proxies": np.eye(4, dtype="float32")[:3], "proxy_labels": list("abc")}

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
BAD_DATA = {
    "3": "returned int, expected cocos.data.TrainingSet",
    "{'query': ['a'], 'candidat': ['b']}": "unknown key 'candidat': did you mean 'candidate'?",
    "{'query': ['a']}": "a dictionary without 'candidate'",
    "{'items': ['a']}": "a dictionary without 'labels'",
    "{'items': ['a', 'b'], 'labels': [1]}": "labels",
    "{'query': 'ab', 'candidate': ['a', 'b']}": "query is str, expected rows",
    "{'query': ['a'], 'candidate': ['b', 'c']}": "1 query rows, 2 candidate rows and no groups",
    "{'query': ['a'], 'candidate': ['b'], 'query_kind': 'texts'}": "kind of rows 'texts'",
    "{'query': ['a'], 'candidate': ['b'], 'negatives': [[3]]}": "expected rows of candidate, 0 to 0",
    "{'query': ['a', 3], 'candidate': ['b', 'c']}": "query has int in row 1 among texts",
    "{'query': ['a'], 'candidate': ['b'], 'query_kind': np.ones(2)}": "query_kind is ndarray, expected one of text",
    "{'query': ['a'], 'candidate': ['b'], 'directions': 'ab'}": "directions are str, expected names",
    "{'items': np.array([{}, 1]), 'labels': [0, 1]}": "items is an array of object, expected numbers, or texts",
    "{'items': ['a'], 'labels': [0], 'proxies': [None]}": "proxies",
    "{}['x']": "KeyError: 'x'",
}


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
    return [line for line in done.stderr.splitlines() if line.startswith("note: route: ")]


@pytest.mark.parametrize(
    ("arguments", "route"),
    [
        (["w.pt", "--model", "my.py:build", "--data", "my.py:load"], "model my.py:build, data my.py:load"),
        (["w.pt", "--model", "my.py:module", "--data", "my.py:labelled"], "model my.py:module, data my.py:labelled"),
        (["w.pt", "--model", "my.py:module", "--data", "my.py:proxied"], "model my.py:module, data my.py:proxied"),
    ],
)
def test_functions_of_the_users_are_model_and_data(folder, arguments, route):
    done = call("count", *arguments, "--batch-size", "all", "--json")
    assert done.exit_code == 0, done.output
    assert notes_of(done) == [f"note: route: {route}"]
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
    assert opened.splits == ("train",) and opened.training.kind == "precomp"
    found = opened.embed(device="cpu")
    torch.testing.assert_close(found.query, images(torch.from_numpy(np.load("features/train_ims.npy"))).detach())
    assert found.directions == ("i2t", "t2i") and found.names[0][2] == "image of: the sea"
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
    monkeypatch.setattr(encoders, "ITEMS_AT_ONCE", 3)
    data = {"items": np.ones((5, 2)), "labels": [0, 0, 1, 1, 1]}
    with pytest.raises(InputError, match="3 and 2"):
        cocos.open("w.pt", model=lambda content: lambda rows: torch.ones(len(rows), len(rows)), data=data).embed()


def precomp_of(split):
    return shelf.TrainingSet(*shelf.load("precomp", "train", shelf.Path("features")).sides, "mine", split)


def test_a_model_is_a_checkpoint_and_the_file_its_data(folder):
    data = folder / "emoji"
    shutil.copytree(cocos.checkpoints.EXAMPLE_FILE.parent, data)
    (data / "emoji_ntxent.pt").rename(folder / "towers.pt")
    done = call("count", data, "--model", "towers.pt", "--split", "val", "--batches", 1)
    assert done.exit_code == 0, done.output
    assert notes_of(done) == [f"note: route: model towers.pt (native), data {data} (emoji_captions)"]
    other, given, own = (cocos.open(*each) for each in ([data, None, "towers.pt"], ["towers.pt", data], ["towers.pt"]))
    assert other.sha256 == own.sha256 and other.training.load("val").identity == own.training.load("val").identity
    assert (given.notes, own.notes) == ((f"route: data {data} (emoji_captions)",), ())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["w.pt", "--model", "gone"], "model 'gone': no function is named; write it as file.py:function"),
        (["features", "--model", "gone.pt"], "name one checkpoint or folder that is there"),
        (["features", "--model", "w.pt"], "w.pt is a bare state dict of 1 tensors (mixing)"),
        (["w.pt", "--model", "features"], "features is training data (precomp)"),
        (["features", "--model", "w.pt", "--data", "features"], "features is the data that w.pt encodes; name one"),
        (["w.pt", "--model", "my.py:build"], "--data DATA"),
        (["w.pt", "--model", "my.py:build", "--data", "my.py"], "data my.py: no known kind of training data"),
        (["w.pt", "--model", "my.py:build", "--data", "gone"], "data gone: there is no such file or folder"),
        (["w.pt", "--model", "my.py:build", "--data", "my.py:laod"], "did you mean 'load'?"),
        (["w.pt", "--model", "my.py:build", "--data", "gone.py:load"], "data gone.py: there is no such file"),
        (["w.pt", "--model", "my.py:nothing", "--data", "my.py:load"], "takes no argument"),
        (["w.pt", "--model", "my.py:short", "--data", "my.py:load"], "torch.float32 of shape (2, 4) for 6 rows"),
        (["w.pt", "--model", "my.py:flat", "--data", "my.py:load"], "torch.float32 of shape (6,) for 6 rows"),
        (["w.pt", "--model", "my.py:whole", "--data", "my.py:load"], "torch.int64 of shape (6, 4) for 6 rows"),
        (["w.pt", "--model", "my.py:undefined", "--data", "my.py:load"], "NaN or infinity in row 0 of a batch of 6"),
        (["w.pt", "--model", "my.py:words", "--data", "my.py:load"], "returned list, expected vectors, (n, D)"),
        (["w.pt", "--model", "my.py:wider", "--data", "my.py:load"], "4 and 3"),
        (["w.pt", "--model", "my.py:one_sided", "--data", "my.py:load"], "no function for the side 'candidate'"),
        (["w.pt", "--model", "my.py:raises", "--data", "my.py:load"], "KeyError: 'weight'"),
        (["w.pt", "--model", "my.py:number", "--data", "my.py:load"], "int, expected a function from a batch of rows"),
        (["w.pt", "--model", "my.py:build", "--data", "my.py:labelled", "--split", "val"], "split 'val' is asked for"),
        (["e.npz", "--data", "my.py:load"], "data my.py:load: e.npz (embeddings) has no encoder"),
        (["features"], "features is training data (precomp), and names no model: cocos count features --model"),
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


@pytest.mark.parametrize("returned", BAD_DATA)
def test_data_of_the_users_are_checked(returned):
    with pytest.raises(InputError) as error:
        shelf.own(lambda split: eval(returned)).load("train")
    assert BAD_DATA[returned] in str(error.value) and "\n" not in str(error.value)


def test_rows_are_of_the_kind_that_their_type_says():
    images = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    found = shelf.training_set({"query": images, "candidate": ["a", "b"], "query_name": ["c", "d"]}, "mine")
    assert [side.kind for side in found.sides] == ["image", "text"] and found.pictures("q2c")[0](1).shape == (4, 4, 3)
    assert found.texts("c2q")[1](1) == "d"
    assert shelf.training_set({"items": np.zeros((2, 3)), "labels": [0, 1]}, "mine").query.kind == "features"


def test_a_checkpoint_without_data_says_what_to_type():
    model = encoders.build("small_towers", {"width": 8, "channels": (8, 8, 8, 8), "buckets": 8, "hidden": 8})
    made = cocos.Checkpoint(shelf.Path("a.pt"), "0", "mine", {}, encoder=lambda: model)
    with pytest.raises(InputError, match=r"cocos count a.pt --data DATA, .* cocos encode DATA --model a.pt"):
        made.embed()
    assert made.items() is None and not made.model.training
    with pytest.raises(InputError, match="reads image and text, and the data have features"):
        encoders.embed(lambda: model, shelf.training_set({"items": np.ones((2, 3)), "labels": [0, 0]}, "mine"))


def test_identity_changes_with_every_part():
    base = {"query": ["a", "bc"], "candidate": ["d", "e"], "query_group": [0, 1], "candidate_group": [0, 1]}
    changes = ({}, {"query": ["ab", "c"]}, {"candidate_group": [1, 0]}, {"negatives": [[1], [0]]})
    found = [shelf.training_set(base | change, "mine").identity for change in changes]
    assert len(set(found)) == len(found) and found[0] == shelf.training_set(base, "yours", "dev").identity
    arrays = [np.zeros((2, 4), dtype="float32"), np.zeros((2, 2, 2), dtype="float32"), np.zeros((2, 2))]
    sets = [shelf.training_set({"items": each, "labels": [0, 1]}, "mine").identity for each in arrays]
    assert len(set(sets)) == 3
    assert emoji_captions.load("val").identity == emoji_captions.load("val").identity
    assert precomp is not native


def test_labels_are_counted_against_the_proxies_of_a_checkpoint():
    data = shelf.own(
        lambda split: {"items": np.eye(4, dtype="float32"), "labels": [0, 0, 1, 1], "items_name": list("abcd")}
    )
    made = cocos.Checkpoint(
        shelf.Path("a.pt"), "", "own", {}, encoder=lambda: encoders.own(lambda rows: rows, "same"), training=data,
        proxies=torch.eye(4)[:2], proxy_labels=torch.tensor([1, 0]),
    )  # fmt: skip
    found = made.embed(device="cpu")
    assert found.directions == ("s2p",) and found.candidate_group.tolist() == [1, 0]
    query, proxy = made.items().texts("s2p")
    assert (query(2), proxy(1)) == ("c", "proxy 1")
    (note,) = found.notes
    assert "2 classes in the data, 2 among the proxies" in note
    with pytest.raises(InputError, match="class 1 of the data has no proxy: the checkpoint has 1, of classes 0 to 0"):
        replace(made, proxies=torch.eye(4)[:1], proxy_labels=None).embed(device="cpu")


def test_rows_without_texts_are_described_by_the_other_side():
    captions, features = ["a", "b"], np.ones((2, 3), dtype="float32")
    found = shelf.training_set({"query": features, "candidate": captions}, "mine")
    assert found.names() == (("features of: a", "features of: b"), ("a", "b"))
    assert shelf.training_set({"query": features, "candidate": features}, "mine").names() == (None, None)
    assert shelf.training_set({"query": ["a\0b"], "candidate": ["c"]}, "mine").names()[0] == ("a b",)
