"""The vocabulary of VSE++ and VSRN is found beside the training data."""

import argparse
import json

import pytest
import torch
from typer.testing import CliRunner

import cocos
import layouts
import test_vsepp
from cocos.cli import app
from golden import files as fixtures

WORDS = ["<pad>", "<start>", "<end>", "<unk>", "a", "dog", "cat", "mat", "the", "one", "two"]


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint of VSE++ on raw images, which its vocabulary; its data are elsewhere."""
    state = fixtures.state_dict(fixtures.bottleneck_shapes(""), seed=0, size=0)
    image = {f"cnn.module.{name}": value for name, value in state.items() if not name.startswith("fc.")}
    image |= {"fc.weight": torch.randn(6, 40), "fc.bias": torch.randn(6)}
    text = {f"rnn.{name}": value.detach() for name, value in torch.nn.GRU(4, 6).state_dict().items()}
    text |= {"embed.weight": torch.randn(len(WORDS), 4)}
    opt = argparse.Namespace(data_name="f30k", cnn_type="resnet", margin=0.2, max_violation=True, measure="cosine")
    path = tmp_path / "vsepp_out" / "model_best.pth.tar"
    path.parent.mkdir()
    torch.save({"epoch": 1, "model": [image, text], "opt": opt, "Eiters": 2}, path)
    return path


def vocabulary(folder):
    folder.mkdir(exist_ok=True)
    (folder / "f30k_vocab.json").write_text(json.dumps({word: k for k, word in enumerate(WORDS)}))


@pytest.mark.parametrize(
    ("kind", "place"), [("karpathy", "f30k"), ("file", "f30k/vocab"), ("pickles", "vocab"), ("karpathy", ".")]
)
def test_encode_finds_the_vocabulary_beside_the_data(kind, place, checkpoint, tmp_path):
    folder = tmp_path / "f30k"
    typed = str(folder)
    if kind == "pickles":
        layouts.bleeker(folder, splits=("train",))
    else:
        typed += "/dataset_flickr30k.json" if kind == "file" else ""
        layouts.karpathy(folder)
    words = ["encode", typed, "--model", str(checkpoint), "--out", str(tmp_path / "e.npz")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2 and "its vocabulary" in done.stderr
    vocabulary(tmp_path / place)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    found = cocos.open(tmp_path / "e.npz").embed(device="cpu")
    counted = cocos.open(checkpoint, data=typed).embed(device="cpu")
    assert torch.equal(found.query, counted.query) and torch.equal(found.candidate, counted.candidate)


@pytest.mark.parametrize("family", ["vsepp", "vsrn"])
def test_encode_finds_the_vocabulary_beside_precomputed_features(family, tmp_path):
    shape = (test_vsepp.FEATURES,) if family == "vsepp" else (test_vsepp.REGIONS, test_vsepp.FEATURES)
    folder = test_vsepp.write_folder(tmp_path / "f30k_precomp", shape=shape)
    state = test_vsepp.vsepp_state() if family == "vsepp" else test_vsepp.vsrn_state(True)
    (tmp_path / "out").mkdir()
    path = test_vsepp.save(tmp_path / "out" / "m.pth.tar", state, test_vsepp.text_state(), test_vsepp.options())
    (tmp_path / "vocab").mkdir()
    (folder / "f30k_precomp_vocab.pkl").rename(tmp_path / "vocab" / "f30k_precomp_vocab.pkl")
    words = ["encode", str(folder), "--model", str(path), "--out", str(tmp_path / "e.npz")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    found = cocos.open(tmp_path / "e.npz").embed(device="cpu")
    assert torch.equal(found.query, cocos.open(path, data=folder).embed(device="cpu").query)
    done = CliRunner().invoke(app, ["count", *words[1:4], "--batch-size", "all"])
    said = next(line for line in done.stdout.splitlines() if line.startswith("next: "))
    assert said.startswith(f"next: cocos audit {folder} ") and said.endswith(f" --model {path}")
