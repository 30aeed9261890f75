"""The document of `cocos inspect`, and recorded settings as the defaults of `cocos count`."""

import argparse
import json
import pickle
import re
import types
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

import cocos
from cocos import checkpoints
from cocos.base.errors import InputError, UnsafeFile
from cocos.checkpoints import inspection, runs
from cocos.cli import app


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def about(path):
    done = call("inspect", path, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def lightning(tmp_path):
    """As PyTorch Lightning writes it."""
    state = {"model.0.weight": drawn(512, 8), "model.0.bias": drawn(512), "loss.proxies": drawn(100, 512)}
    content = {
        "epoch": 7,
        "pytorch-lightning_version": "2.4.0",
        "state_dict": state,
        "optimizer_states": [{"state": {0: {"exp_avg": drawn(512, 8)}}}],
        "hparams_name": "kwargs",
        "hyper_parameters": {"lr": 1e-3, "loss": {"temperature": 0.05, "queue": None}, "backbone": "resnet50"},
    }
    torch.save(content, tmp_path / "last.ckpt")
    return tmp_path / "last.ckpt"


def test_unknown_architecture_with_proxies_is_listed(lightning):
    found = about(lightning)
    assert [(each["name"], each["shape"], each["dtype"]) for each in found["tensors"]] == [
        ("state_dict.model.0.weight", [512, 8], "float32"),
        ("state_dict.model.0.bias", [512], "float32"),
        ("state_dict.loss.proxies", [100, 512], "float32"),
    ]
    assert found["training"]["epoch"] == 7
    assert found["hyper_parameters"]["hyper_parameters"]["backbone"] == "resnet50"
    assert [(one["value"], one["reason"]) for one in found["loss_settings"]] == [(0.05, "")]
    done = call("inspect", lightning)
    assert done.exit_code == 0
    text = " ".join(done.stdout.split())
    assert "shape [512, 8], dtype float32" in text and "hyper_parameters.backbone resnet50" in text
    assert "loss.proxies, 100 classes" in text and "value 0.05, source hyper_parameters.loss.temperature" in text
    assert (found["format"], found["advice"]) == ("class_vectors", None) and "next: cocos count" in text


def test_count_prints_recorded_temperature(tmp_path):
    sides = {"query": drawn(40, 4).numpy(), "candidate": drawn(40, 4).numpy() + 1}
    np.savez(tmp_path / "a.npz", **sides, temperature=np.float32(0.07))
    tensors = {name: torch.from_numpy(side) for name, side in sides.items()}
    safetensors.torch.save_file(tensors, tmp_path / "a.safetensors", {"temperature": "0.07"})
    for name in ("a.npz", "a.safetensors"):
        done = call("count", tmp_path / name, "--loss", "ntxent", "--json")
        assert json.loads(done.stdout)["loss"]["parameters"] == {"temperature": 0.07}
        assert "temperature 0.07 (recorded in the checkpoint)" in done.stderr
    given = call("count", tmp_path / "a.npz", "--loss", "ntxent", "-p", "scale=10", "--json")
    assert json.loads(given.stdout)["loss"]["parameters"] == {"temperature": 0.1}


def test_model_function_uses_recorded_settings(lightning):
    found = cocos.open(lightning, model=lambda content: torch.nn.Identity())
    assert found.loss("ntxent")[1] == "temperature 0.05 (recorded in the checkpoint)"


class TrainingArguments:
    """Stands for the class that `training_args.bin` holds."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda p: torch.save(torch.nn.Linear(2, 2), p), "contains unsafe class"),
        (
            lambda p: torch.save(torch.nn.Linear(2, 2), p, _use_new_zipfile_serialization=False),
            "contains unsafe class",
        ),
        (lambda p: p.write_bytes(pickle.dumps(torch.nn.Linear(2, 2))), "plain Python pickle"),
        (lambda p: torch.save(TrainingArguments(), p), "TrainingArguments"),
    ],
    ids=["torch", "legacy", "pickle", "training_args.bin"],
)
def test_file_with_code_is_refused(tmp_path, write, said):
    path = tmp_path / "training_args.bin"
    write(path)
    for command in (("inspect", path), ("inspect", path, "--json"), ("count", path)):
        done = call(*command)
        assert (done.exit_code, done.stdout) == (3, ""), done.output
        assert said in done.stderr and done.stderr.count("\n") == 1
    with pytest.raises(UnsafeFile):
        checkpoints.inspect(path)


def test_class_vectors_have_reason_and_command(lightning):
    document = about(lightning)
    assert (document["container"], document["format"]) == ("torch", "class_vectors")
    assert document["proxies"] == [100, 512]
    assert document["next"] == f"cocos count {lightning} --loss proxynca"


def test_progress_and_loss_settings_are_read(tmp_path):
    state = {"similarity_weight": torch.tensor([70.0]), "similarity_bias": torch.tensor([-4.0]), "w": drawn(2, 2)}
    content = {"epoch": 3, "best_rsum": 401.5, "model_state": state}
    torch.save(content | {"args": argparse.Namespace(lr=1)}, tmp_path / "a.pt")
    found = about(tmp_path / "a.pt")
    assert found["training"] == {"epoch": 3, "best_rsum": 401.5}
    assert [(one["parameter"], one["value"]) for one in found["loss_settings"]] == [("scale", 70.0), ("bias", -4.0)]
    assert found["next"].startswith(f"cocos count {tmp_path / 'a.pt'} --model ")


def run(folder):
    """A run: files of several steps in order of neither name nor time, folders of models, and what holds no model."""
    (folder / "checkpoint-500").mkdir(parents=True)
    (folder / "checkpoint-500" / "config.json").write_text("{}")
    safetensors.torch.save_file({"w": drawn(2, 2)}, folder / "checkpoint-500" / "model.safetensors")
    torch.save(TrainingArguments(), folder / "checkpoint-500" / "training_args.bin")
    torch.save({"proxies": drawn(5, 4)}, folder / "Proxy_12_0.812Recall@1.pth")
    torch.save({"W": drawn(4, 5)}, folder / "metric_loss_2.pth")
    torch.save({"net": {"w": drawn(2, 2)}}, folder / "epoch=9-step=30.ckpt")
    torch.save({"state": {}}, folder / "trunk_optimizer_2.pth")
    torch.save(torch.nn.Linear(2, 2), folder / "whole.pt")
    return folder


def test_run_lists_checkpoints_by_step(tmp_path):
    found = about(run(tmp_path / "run"))
    assert [(each["name"], each["step"], each["format"]) for each in found["checkpoints"]] == [
        ("metric_loss_2.pth", 2, "class_vectors"),
        ("Proxy_12_0.812Recall@1.pth", 12, "class_vectors"),
        ("epoch=9-step=30.ckpt", 30, None),
        ("checkpoint-500", 500, None),
        ("whole.pt", None, None),
    ]
    last = found["checkpoints"][-1]
    assert last["container"] == "refused" and "torch.nn.modules.linear.Linear" in last["advice"]
    assert found["next"] == f"cocos inspect {tmp_path / 'run' / 'Proxy_12_0.812Recall@1.pth'}"
    text = call("inspect", tmp_path / "run").stdout
    assert "epoch=9-step=30.ckpt" in text and "container torch" in text


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("Proxy_12_0.812Recall@1.pth", 12),
        ("epoch=9-step=30.ckpt", 30),
        ("step_30_epoch_9.pt", 30),
        ("epoch_3_loss_0.25.pt", 3),
        ("model.7.pth.tar", 7),
        ("checkpoint-500", 500),
        ("checkpoint-500/pytorch_model.bin", 500),
        ("labse-2_Dense", None),
        ("resnet_v2/best.pt", None),
        ("model_20260101120000123.pt", None),
    ],
)
def test_step_is_read_from_name(name, step):
    assert runs.read_step(Path(name)) == step


def test_weights_in_model_folder_name_folder(tmp_path):
    safetensors.torch.save_file({"w": drawn(2, 2)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    assert about(tmp_path / "model.safetensors")["advice"].endswith(f"name its folder: {tmp_path}")


def test_every_format_is_documented():
    page = (Path(__file__).parent.parent / "docs" / "howto" / "checkpoint.md").read_text("utf-8")
    listed = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?`) \| ", page, flags=re.MULTILINE)))
    assert not {module.__name__.rpartition(".")[2] for module in checkpoints.formats.FORMATS} - set(listed)


def test_encoder_without_data_asks_for_data(tmp_path, monkeypatch):
    folder = run(tmp_path / "run") / "checkpoint-500"

    def sniff(file):
        """A folder."""

    def load(file, data):
        return cocos.checkpoints.Checkpoint(file.path, file.sha256, "mine", {}, encoder=list)

    mine = types.SimpleNamespace(sniff=sniff, load=load)
    monkeypatch.setattr(inspection.formats, "find", lambda file: mine)
    document = about(folder)
    assert document["next"] == f"cocos count {folder} --data DATA --loss ntxent"


def test_training_data_is_not_a_checkpoint(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"anchor": "a", "positive": "b"}\n' * 3)
    found = about(path)
    assert (found["format"], found["next"]) == (
        "pairs",
        f"cocos encode {path} --model MODEL --out embeddings.npz",
    )
    assert "pairs" in call("inspect", path).stdout


def test_image_arrays_are_training_data(tmp_path):
    np.savez(tmp_path / "train.npz", images=np.zeros((4, 5, 5), np.uint8), labels=np.arange(4) % 2)
    assert about(tmp_path / "train.npz")["format"] == "arrays"
    with pytest.raises(InputError, match=r"training data \(arrays\)"):
        cocos.open(tmp_path / "train.npz")
