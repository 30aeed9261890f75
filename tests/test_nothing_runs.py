"""No code in a file is executed: hostile files and folders are refused, and none of their payloads leaves a trace."""

import argparse
import functools
import importlib
import json
import operator
import os
import pickle
import re
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import children
import cocos
from cocos.checkpoints.files import Array, Dtype

MARKER = "EXECUTED"
# Events of `sys.addaudithook` that a payload would cause.
CALLS = {"os.system", "subprocess.Popen", "os.posix_spawn", "os.fork", "shutil.rmtree", "os.exec"}
WATCHED: dict = {"on": False, "events": []}


def watch(event, arguments):
    """Record the calls that a payload would make, and every file opened for writing."""
    if WATCHED["on"] and (event in CALLS or (event == "open" and MARKER in str(arguments[0]))):
        WATCHED["events"].append((event, str(arguments)[:80]))


sys.addaudithook(watch)


class Call:
    """An object whose pickle calls a function."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def payloads(marker):
    """Objects whose pickles would write the marker, import a module or build an unknown class."""
    touch, write = f"touch {marker}", f"open({str(marker)!r}, 'w')"
    return {
        "os.system": Call(os.system, touch),
        "Popen": Call(subprocess.Popen, ["touch", str(marker)]),
        "exec": Call(exec, write),
        "eval": Call(eval, write),
        "open": Call(open, str(marker), "w"),
        "attrgetter": Call(operator.attrgetter, "system"),
        "partial": functools.partial(os.system, touch),
        "torch.load": Call(torch.load, str(marker)),
        "import_module": Call(importlib.import_module, "this"),
        "numpy.save": Call(np.save, str(marker), 1),
        "object array": np.array([Call(os.system, touch)], dtype=object),
        "namespace": argparse.Namespace(a=Call(os.system, touch)),
        "state dict": {"state_dict": {"w": torch.ones(2), "x": Call(os.system, touch)}},
        "module": torch.nn.Linear(2, 2),
    }


def write_files(folder, name, payload):
    """Write a payload as torch files, plain pickles and hand-made archives of all protocols."""
    paths = []
    for legacy in (False, True):
        paths.append(folder / f"{name}_{legacy}.pt")
        torch.save(payload, paths[-1], _use_new_zipfile_serialization=not legacy)
    for protocol in (0, 1, 2, 4, 5):
        raw = pickle.dumps(payload, protocol)
        paths += [folder / f"{name}_{protocol}.pkl", folder / f"{name}_{protocol}.zip.pt"]
        paths[-2].write_bytes(raw)
        with zipfile.ZipFile(paths[-1], "w") as archive:
            archive.writestr("m/data.pkl", raw)
            archive.writestr("m/version", "3")
    return paths


@pytest.fixture
def watched(tmp_path):
    """Watch for calls; afterwards the marker must be absent."""
    WATCHED.update(on=True, events=[])
    yield tmp_path / MARKER
    WATCHED["on"] = False
    assert not (tmp_path / MARKER).exists()


@pytest.mark.parametrize("name", payloads("x"))
def test_hostile_file_is_refused(tmp_path, watched, name):
    WATCHED["on"] = False
    paths = write_files(tmp_path, name.replace(" ", "_"), payloads(watched)[name])
    WATCHED["on"] = True
    for path in paths:
        for read in (cocos.open, cocos.checkpoints.inspect, functools.partial(cocos.open, model=torch.nn.Identity)):
            with pytest.raises(cocos.InputError):
                read(path)
    assert len(paths) == 12 and not WATCHED["events"]


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("name", ["os.system", "exec", "state dict", "partial", "namespace"])
def test_call_is_named_and_unsafe(tmp_path, name, protocol):
    payload = payloads(tmp_path / MARKER)[name]
    path = tmp_path / "file.pt"
    function = "exec" if name == "exec" else "functools.partial" if name == "partial" else "posix.system"
    torch.save(payload, path, pickle_protocol=protocol)
    with pytest.raises(cocos.UnsafeFile, match=re.escape(function) if protocol == 2 else "protocol"):
        cocos.open(path)


class Embedder(torch.nn.Module):
    """A model class of a user's project."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 2)


class DictConfig:
    """A configuration class of a library."""


@pytest.fixture
def classes(monkeypatch):
    """A model class and a configuration class in modules that only exist while the file is written."""
    for cls, name in ((Embedder, "models"), (DictConfig, "omegaconf.dictconfig")):
        for module in (name.partition(".")[0], name):
            monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
        setattr(sys.modules[name], cls.__name__, cls)
        monkeypatch.setattr(cls, "__module__", name)
    return Embedder, DictConfig


@pytest.mark.filterwarnings("ignore:Couldn't retrieve source")
@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("case", ["whole", "hyper_parameters"])
def test_missing_class_and_cure_are_named(tmp_path, classes, case, legacy):
    embedder, config = classes
    model = embedder()
    content = {
        "whole": model,
        "hyper_parameters": {"state_dict": model.state_dict(), "hyper_parameters": config()},
    }[case]
    path = tmp_path / "last.ckpt"
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    name = "models.Embedder" if case == "whole" else "omegaconf.dictconfig.DictConfig"
    with pytest.raises(cocos.UnsafeFile) as refusal:
        cocos.open(path)
    assert f"class {name}," in str(refusal.value)
    lines = re.search(r": (content = torch.load\(.*\)); (torch.save\(.*\))$", str(refusal.value))
    assert lines is not None
    # The two lines, run where the class is installed, write a file that opens.
    exec(f"{lines[1]}\n{lines[2].replace('last_weights.pt', str(tmp_path / 'w.pt'))}", {"torch": torch})
    weights = cocos.checkpoints.File(tmp_path / "w.pt").content
    assert {tuple(value.shape) for value in weights.values()} == {(2, 2), (2,)}


def test_refusal_has_exit_code_three(tmp_path):
    torch.save(Call(os.system, f"touch {tmp_path / MARKER}"), tmp_path / "file.pt")
    done = children.run(sys.executable, "-m", "cocos", "count", str(tmp_path / "file.pt"))
    assert done.returncode == 3 and done.stderr.count("\n") == 1 and not done.stdout
    assert not (tmp_path / MARKER).exists()


@pytest.mark.parametrize("code", ["S0", "O8", "V8", "M8", "O"])
def test_crafted_dtype_is_refused(code):
    with pytest.raises(ValueError):
        Dtype(code)


@pytest.mark.parametrize("shape", [(10**18, 10**18), ("a",), (3,)])
def test_array_of_wrong_shape_is_refused(shape):
    with pytest.raises((ValueError, TypeError)):
        Array().__setstate__((1, shape, Dtype("f8"), False, b"12345678"))


def test_no_planted_attribute_is_called(tmp_path):
    weight = torch.nn.Parameter(torch.ones(2))
    weight.item, weight.numel, weight.detach = "a", "b", "c"
    torch.save({"state_dict": {"w": weight}, "epoch": np.float64(2)}, tmp_path / "x.pt")
    content = cocos.checkpoints.File(tmp_path / "x.pt").content
    assert type(content["state_dict"]["w"]) is torch.Tensor and content["epoch"] == 2.0


def test_source_has_no_unsafe_reader():
    package = Path(cocos.__file__).parent
    for path in package.rglob("*.py"):
        text = path.read_text()
        # Words of a vocabulary without any class, and messages between processes of one run, never a file.
        assert "Unpickler" not in text or path.name in {"plain_pickles.py", "executors.py"}, path
        for call in re.findall(r"torch\.load\(.*", text):
            unsafe_advice = path.name == "files.py" and "weights_only=False); " in call
            assert "weights_only=True" in call or unsafe_advice, f"{path}: {call}"
        assert "trust_remote_code=True" not in text, path
        assert not re.search(r"\bpickle\.loads?\(|allow_pickle=True|\bmarshal\.loads?\(", text), path


# Folders that a library opens: the model class in the folder, an installed callable, automatic classes of model and
# tokenizer, pickled weights in two places, and an activation that is a function.
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]


def text_folder(path):
    """Write a tiny sentence-transformers folder with a dense layer."""
    from transformers import BertConfig, BertModel

    (path / "1_Pooling").mkdir(parents=True)
    (path / "2_Dense").mkdir()
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    BertModel(config).save_pretrained(path)
    (path / "vocab.txt").write_text("\n".join(WORDS))
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense")]
    modules = [
        {"idx": i, "name": str(i), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for i, (place, kind) in enumerate(kinds)
    ]
    dense = {
        "in_features": 16,
        "out_features": 8,
        "bias": True,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    for name, content in {
        "modules.json": modules,
        "tokenizer_config.json": {"tokenizer_class": "BertTokenizer"},
        "1_Pooling/config.json": {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True},
        "2_Dense/config.json": dense,
    }.items():
        (path / name).write_text(json.dumps(content))
    torch.save({"linear.weight": torch.ones(8, 16), "linear.bias": torch.ones(8)}, path / "2_Dense/pytorch_model.bin")
    return path


CLASSES = "class M: pass\nclass C: pass\nclass T: pass\nclass Transformer: pass"
# Name -> file, its changes; a file of weights is a payload.
HOSTILE_FOLDERS = {
    "module": ("modules.json", (0, "evil.Transformer")),
    "callable": ("modules.json", (2, "joblib.numpy_pickle")),
    "model": ("config.json", {"auto_map": {"AutoModel": "evil.M", "AutoConfig": "evil.C"}, "model_type": "evilx"}),
    "tokenizer": ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["evil.T", None]}, "tokenizer_class": "T"}),
    "weights": ("pytorch_model.bin", None),
    "dense": ("2_Dense/pytorch_model.bin", None),
    "activation": ("2_Dense/config.json", {"activation_function": "os.getcwd"}),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", HOSTILE_FOLDERS)
def test_hostile_folder_is_refused(tmp_path, watched, name):
    pytest.importorskip("sentence_transformers")
    WATCHED["on"] = False
    folder, (place, change) = text_folder(tmp_path / "model"), HOSTILE_FOLDERS[name]
    data, code = {"query": ["a b", "c"], "candidate": ["b", "a c"]}, f"open({str(watched)!r}, 'w')"
    assert cocos.open(folder, data=lambda split: data).embed().query.shape == (2, 8)
    (folder / "evil.py").write_text(f"{code}\n{CLASSES}")
    if change is None:
        (folder / "model.safetensors").unlink() if name == "weights" else None
        torch.save({"w": Call(exec, code)}, folder / place)
    else:
        content = json.loads((folder / place).read_text())
        if isinstance(change, tuple):
            content[change[0]]["type"] = change[1]
        else:
            content |= change
        (folder / place).write_text(json.dumps(content))
    with pytest.raises(cocos.InputError):
        cocos.open(folder, data=lambda split: data).embed()
    assert not watched.exists()
