"""Folders, shards and state dicts: found, read, bounded, and nothing outside of them is read."""

import io
import json
import os
import pickle
import zipfile

import pytest
import safetensors.torch
import torch

from cocos import InputError, UnsafeFile
from cocos.checkpoints import files
from cocos.checkpoints.files import folder as reading

WEIGHTS = {"a.weight": torch.arange(6.0).reshape(2, 3), "b.weight": torch.ones(3)}


def model(path, **more):
    """A folder of a model."""
    (path / "1_Pooling").mkdir(parents=True)
    (path / ".git").mkdir()
    (path / ".git" / "config").write_text("hidden")
    (path / "config.json").write_text('{"model_type": "bert"}')
    (path / "1_Pooling" / "config.json").write_text("{}")
    safetensors.torch.save_file(WEIGHTS, path / "model.safetensors")
    for name, text in more.items():
        (path / name.replace("_json", ".json")).write_text(text)
    return path


def test_files_of_a_folder_are_read(tmp_path):
    path = model(tmp_path / "model")
    found = files.file_or_folder(path)
    assert found.names == ("1_Pooling/config.json", "config.json", "model.safetensors")
    assert found.json("config.json") == {"model_type": "bert"} and found.size("1_Pooling/config.json") == 2
    assert found.file("model.safetensors").path == path / "model.safetensors"
    read = files.weights(found)
    assert all(torch.equal(read[name], tensor) for name, tensor in WEIGHTS.items())
    assert (found.kind, found.is_torch, found.record, found.content, found.members) == ("folder", False, {}, None, None)


def test_the_hash_of_a_folder_is_of_what_a_model_is_built_from(tmp_path):
    path = model(tmp_path / "a")
    first = files.Folder(path).sha256
    (path / "README.md").write_text("words")
    (path / "checkpoint-500").mkdir()
    (path / "checkpoint-500" / "model.safetensors").write_text("x")
    assert files.Folder(path).sha256 == first
    (path / "tokenizer.json").write_text("{}")
    assert files.Folder(path).sha256 != first


def test_links_out_of_a_folder_are_listed_and_not_read(tmp_path):
    path = model(tmp_path / "hub" / "snapshots" / "1")
    (tmp_path / "secret.json").write_text("{}")
    (tmp_path / "hub" / "blobs").mkdir()
    (tmp_path / "hub" / "blobs" / "1f").write_text('"cached"')
    for name, target in {"out": tmp_path / "secret.json", "cached": "../../blobs/1f", "in": "config.json"}.items():
        os.symlink(target, path / f"{name}.json")
    os.symlink(tmp_path, path / "elsewhere")
    os.mkfifo(path / "pipe.json")
    found = files.Folder(path)
    assert {"out.json", "cached.json", "in.json"} < set(found.names) and not any("elsewhere" in n for n in found.names)
    assert found.json("cached.json") == "cached" and found.json("in.json") == {"model_type": "bert"}
    for read in (found.text, found.file, found.size):
        with pytest.raises(InputError, match=r"out\.json is a link to a place outside of"):
            read("out.json")
    assert len(found.sha256) == 64 and "pipe.json" not in found


def test_texts_are_bounded_and_wrong_ones_are_named(tmp_path):
    path = model(tmp_path / "m", deep_json="[" * 100_000, bad_json="{", digits_json="9" * 5000)
    (path / "latin.json").write_bytes(b'"\xe9"')
    found = files.Folder(path)
    with pytest.raises(InputError, match=r"deep\.json is 100000 bytes long, expected at most 1000"):
        found.json("deep.json", 1000)
    for name in ("deep.json", "bad.json", "digits.json", "latin.json", "absent.json"):
        with pytest.raises(InputError, match=name.replace(".", r"\.")):
            found.json(name)


def test_a_folder_of_too_many_files_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_FILES", 3)
    assert len(files.Folder(model(tmp_path / "a")).names) == 3
    for number in range(3):
        (tmp_path / "a" / f"{number}").touch()
    with pytest.raises(InputError, match="more than 3 files"):
        files.Folder(tmp_path / "a")


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_shards_are_read_as_one(tmp_path, suffix):
    stem = "model" if suffix == "safetensors" else "pytorch_model"
    save = safetensors.torch.save_file if suffix == "safetensors" else torch.save
    places = {name: f"{stem}-{k}-of-2.{suffix}" for k, name in enumerate(WEIGHTS)}
    for name, place in places.items():
        save({name: WEIGHTS[name]}, tmp_path / place)
    index = tmp_path / f"{stem}.{suffix}.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    read = files.weights(files.Folder(tmp_path))
    assert all(torch.equal(read[name], tensor) for name, tensor in WEIGHTS.items())
    for wrong, said in [
        ({"weight_map": places | {"c": places["a.weight"]}}, "'c', which no shard holds"),
        ({"weight_map": places | {"c": "../other.bin"}}, "which is not in the folder"),
        ({"weight_map": [1]}, "has no weight_map"),
        ([], "has no weight_map"),
    ]:
        index.write_text(json.dumps(wrong))
        with pytest.raises(InputError, match=said):
            files.weights(files.Folder(tmp_path))


class Planted:
    def __reduce__(self):
        return os.system, ("true",)


def test_weights_that_ask_for_code_are_refused_by_name(tmp_path):
    stored = io.BytesIO()
    torch.save({"a": torch.ones(2)}, stored)
    members = {info.filename: zipfile.ZipFile(stored).read(info) for info in zipfile.ZipFile(stored).infolist()}
    members = {n: pickle.dumps(Planted(), 2) if n.endswith("data.pkl") else raw for n, raw in members.items()}
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(UnsafeFile, match=r"would run \w+\.system"):
        files.weights(files.Folder(tmp_path))


W = torch.ones(2, 2)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"fc.weight": W}, [("", {"fc.weight"}, ()), ("", {"weight"}, ("fc.",))]),
        ({"epoch": 1, "net": {"weight": W}, "optimizer": {"state": {0: {"exp": W}}}}, [("net", {"weight"}, ())]),
        (
            {"ema": {"module": {"w": W}}, "model": {"module.w": W}},
            [("model", {"w"}, ("module.",)), ("ema.module", {"w"}, ())],
        ),
        ({"model": [{"a": W}, {"b": W}]}, [("model.0", {"a"}, ()), ("model.1", {"b"}, ())]),
        ({"cnn.module.a": W}, [("", {"cnn.a"}, ("module.",)), ("", {"a"}, ("module.", "cnn."))]),
        ({"_orig_mod.module.a": W}, [("", {"a"}, ("_orig_mod.", "module."))]),
        ({"module.a": W, "a": W}, [("", {"module.a", "a"}, ()), ("", {"a"}, ("module.",))]),  # two names, not one
        ({"module.a": W, "b": W}, [("", {"a", "b"}, ("module.",))]),
        (
            {"state_dict": {"model.0.weight": W, "model.0.bias": W[0], "loss.proxies": W}},
            [
                ("state_dict", {"model.0.weight", "model.0.bias", "loss.proxies"}, ()),
                ("state_dict", {"0.weight", "0.bias"}, ("model.",)),
                ("state_dict", {"proxies"}, ("loss.",)),
                ("state_dict", {"weight", "bias"}, ("model.", "0.")),
            ],
        ),
        ({"a": torch.tensor(1.0), "b": 3, 4: W}, []),
        (None, []),
    ],
)  # fmt: skip
def test_state_dicts_are_found_and_say_what_was_stripped(content, expected):
    found = files.state_dicts(content)
    assert [(each.place, set(each.tensors), each.stripped) for each in found] == expected


def test_a_folder_of_no_known_model_is_described(tmp_path):
    (tmp_path / "epoch_2.pt").touch()
    said = files.describe(files.Folder(tmp_path))
    assert str(tmp_path) in said and "epoch_2.pt" in said


def test_state_dicts_that_hold_each_other_are_found_once():
    many = {f"k{k}": {} for k in range(64)}
    for each in many.values():
        each.update(many, w=W)
    assert len(files.state_dicts(many)) == 64
