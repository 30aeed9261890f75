"""The landscape of the warp under other parameters.

One parameter at a time is changed from Fig. 3d. Above, three landscapes (the length of an arrow is logarithmic in
that of the gradient, full from 1 on). Below, the loss along the line of the proxies for all settings.
"""

import torch

from analysis import along_proxies
from cocos import measures

PUBLISHED = "DeMoor & Prevost 2024, Proposition III.2"
WHOLE = ("published", "k1_high", "k2_low")
SIZE = (7.0, 5.6)
CHANGES = {
    "published": ("Fig. 3d: α = 3", {}),
    "alpha_1": ("α = 1", {"alpha": 1.0}),
    "alpha_6": ("α = 6", {"alpha": 6.0}),
    "k1_low": ("k1 = 0.3", {"k1": 0.3}),
    "k2_high": ("k2 = 3", {"k2": 3.0}),
    "scale": ("T = 0.25", {"scale": 0.25}),
    "k1_high": ("k1 = 1.1", {"f1": lambda t: torch.maximum(1.1 * t - 0.3, 1.5 * t - 1.5), "f2": "t"}),
    "k2_near": ("k2 = 1.1", {"k2": 1.1}),
    "k2_low": ("k2 = 0.9", {"f1": lambda t: torch.maximum(0.65 * t + 1.05, 0.9 * t + 0.3), "f2": "t"}),
}

# Names in the picture of what needs other words there.
SHORT = {"published": "α = 3", "scale": "scale T = 0.25"}


def data():
    """Compute a landscape for each setting, whole for three of them."""
    found = {
        name: measures.landscape(points=along_proxies.POINTS, **({"f1": "warp"} | change))
        for name, (_, change) in CHANGES.items()
    }
    return {
        name: along_proxies.kept(part, name in WHOLE).assign_attrs(behind=along_proxies.behind(part))
        for name, part in found.items()
    }


def title(parts):
    """The claim."""
    return (
        "An embedding rests α behind its proxy while the slopes of the warp are k1 < 1 < k2; "
        "it is drawn onto the proxy if k1 exceeds 1, driven away if k2 falls below 1"
    )


def draw(parts, figure):
    """Draw maps of three settings, and the line of the proxies for all."""
    along_proxies.draw(parts, {name: label for name, (label, _) in CHANGES.items()} | SHORT, WHOLE, figure)
    figure.suptitle(title(parts))
