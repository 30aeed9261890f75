"""A family of checkpoints is one file of the shelf of formats; first names of those of version 0.1 keep working."""

import importlib
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FAMILY = '''
"""Means of rows, through one matrix."""
import torch
from torch import nn
from cocos.checkpoints.formats import _networks
LOSS_NUMBERS = {"my_sharpness": "scale"}
NOT_READ = ("unused.",)

class Means(nn.Module):
    kinds = ("features",)
    def __init__(self, width, dimensions):
        super().__init__()
        self.mine, self.my_sharpness = nn.Linear(width, dimensions), nn.Parameter(torch.ones(1))
    def encode(self, items, kind, side):
        return self.mine(torch.as_tensor(items).float())

def build(*, width, dimensions):
    return Means(width, dimensions)

def arguments(state):
    weight = state.get("mine.weight")
    return None if weight is None else {"width": weight.shape[1], "dimensions": weight.shape[0]}

def describe(arguments):
    return "means of my own"

def recognises(file):
    """A layer of the name `mine`."""
    return _networks.find(file, "mine") is not None

def read(file, data=None):
    return _networks.checkpoint(file, _networks.find(file, "mine"), format="mine")
'''
SCRIPT = """
import numpy as np, torch
import cocos
from cocos import data, encoders
from cocos.checkpoints import inspect
model = encoders.build("mine", {"width": 4, "dimensions": 2})
state = model.state_dict() | {"my_sharpness": torch.tensor([8.0])}
torch.save(state | {"unused.filter": torch.ones(3, 3)}, "a.pt")
torch.save({"pytorch-lightning_version": "2.5", "state_dict": {f"net.{k}": v for k, v in state.items()}}, "b.ckpt")
rows = {"items": np.ones((3, 4), "float32"), "labels": [0, 0, 1]}
for path in ("a.pt", "b.ckpt"):
    found = cocos.open(path, data=rows)
    print(found.format, found.contents["network"], found.embed().query.shape, found.recorded["ntxent"])
print(inspect("a.pt")["why"], "mine" in encoders.names(), type(found.model) is type(model))
"""


def test_a_family_is_one_file(fresh, tmp_path):
    shutil.copytree(ROOT / "cocos", tmp_path / "cocos", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "cocos" / "checkpoints" / "formats" / "mine.py").write_text(FAMILY, "utf-8")
    done = fresh(f"import os, sys\nos.chdir({str(tmp_path)!r})\nsys.path[:] = ['', *sys.path]\n{SCRIPT}")
    said = "means of my own, 2 numbers for each row torch.Size([3, 2]) {'temperature': 0.125}"
    assert done.stdout.splitlines() == [
        f"mine {said}",
        f"lightning {said}",
        "A layer of the name `mine` True True",
    ], done.stderr


@pytest.mark.parametrize("name", ["ge2e", "image_network", "iresnet", "static_table", "tfeat", "timm", "vsepp", "vsrn"])
def test_an_encoder_that_lies_beside_its_format_keeps_its_first_name(name):
    places = ("cocos.encoders", "cocos.checkpoints.encoders", "cocos.checkpoints.formats")
    found = [importlib.import_module(f"{place}.{name}") for place in places]
    assert found[0] is found[1] is found[2] and callable(found[0].build)
