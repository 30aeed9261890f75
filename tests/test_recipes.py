"""Each recipe of the docs is run as it is written, on a small file that its library saved."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import cocos

PAGE = Path(__file__).parent.parent / "docs" / "howto" / "recipes.md"
RECIPES = dict(re.findall(r"^## (.+?)\n.*?```py\n(.*?)```", PAGE.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL))
# A user's project: a Lightning module with two towers, a trunk and an embedder.
PROJECT = """
import torch

try:
    from lightning import LightningModule
except ImportError:
    LightningModule = torch.nn.Module


class Retriever(LightningModule):
    def __init__(self, width=3):
        super().__init__()
        if LightningModule is not torch.nn.Module:
            self.save_hyperparameters()
        self.query, self.candidate = torch.nn.Linear(4, width), torch.nn.Linear(4, width)

    def training_step(self, batch, index):
        return (self.query(batch) - self.candidate(batch)).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class Trunk(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 5)


class Embedder(torch.nn.Linear):
    def __init__(self):
        super().__init__(5, 2)
"""
ROWS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
TEXTS = ["a cat", "a dog", "the cat"]
IMAGES = torch.randint(0, 256, (3, 3, 20, 20), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def imported(name):
    """Import an optional library, or skip: a broken installation raises anything."""
    try:
        return importlib.import_module(name)
    except Exception as error:
        pytest.skip(f"{name} cannot be imported ({type(error).__name__})")


def save_lightning(folder):
    """Train for one step and save with Lightning; the rows of the query tower."""
    library = imported("lightning")
    model = importlib.import_module("my_project").Retriever(width=2)
    options = {"max_steps": 1, "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = library.Trainer(accelerator="cpu", default_root_dir=folder, enable_checkpointing=False, **options)
    trainer.fit(model, torch.utils.data.DataLoader(ROWS, batch_size=6))
    trainer.save_checkpoint(folder / "last.ckpt")
    return folder / "last.ckpt", {"query": ROWS, "candidate": ROWS}, model.query(ROWS)


def save_metric_learning(folder):
    project = importlib.import_module("my_project")
    trunk, embedder = project.Trunk(), project.Embedder()
    torch.save(trunk.state_dict(), folder / "trunk_best3.pth")
    torch.save(embedder.state_dict(), folder / "embedder_best3.pth")
    return folder / "trunk_best3.pth", {"items": ROWS, "labels": [0, 0, 1, 1, 2, 2]}, embedder(trunk(ROWS))


def save_open_clip(folder):
    library = imported("open_clip")
    model = library.create_model("ViT-B-32", pretrained=None).eval()
    state = {f"module.{key}": value for key, value in model.state_dict().items()}
    torch.save({"epoch": 1, "state_dict": state}, folder / "epoch_1.pt")
    expected = model.encode_text(library.get_tokenizer("ViT-B-32")(TEXTS))
    return folder / "epoch_1.pt", {"query": IMAGES, "candidate": TEXTS}, expected


def save_torchvision(folder):
    library = imported("torchvision")
    model = library.models.resnet18().eval()
    torch.save(model.state_dict(), folder / "resnet18.pth")
    model.fc = torch.nn.Identity()
    pixels = torch.nn.functional.interpolate(IMAGES.float() / 255, (256, 256))[..., 16:240, 16:240]
    return folder / "resnet18.pth", {"items": IMAGES, "labels": [0, 0, 1]}, model(pixels)


def save_model2vec(folder):
    library, tokenizers = imported("model2vec"), imported("tokenizers")
    words = {"[UNK]": 0, "a": 1, "the": 2, "cat": 3, "dog": 4}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    model = library.StaticModel(np.eye(5, dtype="float32"), tokenizer, {})
    model.save_pretrained(folder / "model")
    return folder / "model", {"query": TEXTS, "candidate": TEXTS}, torch.from_numpy(model.encode(TEXTS))


# Heading -> how to save a file, the largest error of its first side (None: only its shape is compared).
CASES = {
    "Lightning": (save_lightning, 1e-6),
    "pytorch-metric-learning": (save_metric_learning, 1e-6),
    "open_clip": (save_open_clip, 1e-5),
    "torchvision": (save_torchvision, None),
    "model2vec": (save_model2vec, 1e-6),
}


def test_every_recipe_has_a_case():
    assert RECIPES.keys() == CASES.keys()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_recipe_gives_embeddings_of_its_library(tmp_path, monkeypatch, name):
    save, error = CASES[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(importlib.sys.modules, "my_project", raising=False)
    (tmp_path / "my_project.py").write_text(PROJECT)
    (tmp_path / "recipe.py").write_text(RECIPES[name])
    path, data, expected = save(tmp_path)
    rows = cocos.open(path, data=data, model="recipe.py:build").embed(device="cpu")
    side = rows.candidate if name == "open_clip" else rows.query
    assert side.shape == expected.shape
    if error is not None:
        torch.testing.assert_close(side, expected.detach(), rtol=0, atol=error)
