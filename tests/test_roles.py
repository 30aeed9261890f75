"""Roles of tensors by their names: proxies, class weights and centers."""

import pytest

from cocos.checkpoints.formats.class_vectors import role_of

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
def test_role_follows_the_name(name, role):
    assert role_of(name, (20, 4), "float32") == role
