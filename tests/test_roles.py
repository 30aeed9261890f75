"""Roles of tensors by their names: proxies, class weights and centers."""

import pytest
import torch

from cocos.checkpoints.files import File
from cocos.checkpoints.formats import class_vectors

ROLES = {
    "class weights": (
        *("loss.W", "criterion.losses.a.W", "losses.0.W", "closs.W", "a.cls.b.weight", "arc.0.weight"),
        "fc_out.weight",
    ),
    "centers": ("m.metric_loss.fc",),
    "proxies": ("proxies", "loss.proxies.weight", "my_proxy", "class_centers"),
    None: ("glue.W", "approximate", "recenter", "head_weight", "overhead.weight"),
}


@pytest.mark.parametrize(("name", "role"), [(name, role) for role, names in ROLES.items() for name in names])
def test_role_follows_the_name(tmp_path, name, role):
    torch.save({name: torch.ones(20, 20)}, tmp_path / "a.pt")
    matrix = class_vectors.find(File(tmp_path / "a.pt"))
    assert (matrix and matrix.role) == role
