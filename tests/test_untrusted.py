"""Names of tensors in files of unknown architectures."""

import pytest

from cocos.checkpoints import inventory

ROLES = {
    "class weights": (
        *("loss.W", "criterion.losses.a.W", "losses.0.W", "closs.W", "head.weight", "a.cls.b.weight", "arc.0.weight"),
        "fc_out.weight",
    ),
    "centers": ("m.metric_loss.fc",),
    "proxies": ("proxies", "loss.proxies.weight", "my_proxy", "class_centers"),
    None: ("glue.W", "loss.x.W", "approximate", "recenter", "head_weight", "overhead.weight"),
}


@pytest.mark.parametrize(("name", "what"), [(name, what) for what, names in ROLES.items() for name in names])
def test_names_mean_what_they_meant(name, what):
    found = inventory.role(name, (20, 4), "float32")
    assert (found and found[0]) == what
