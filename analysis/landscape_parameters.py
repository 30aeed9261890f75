"""The warp's landscape under other parameters: α alone says how far behind its proxy an embedding comes to rest.

One parameter at a time differs from those of Fig. 3d, the first panel. k1 and k2 say how steep the basin is on its near
and on its far side, and T how deep; with k1 above 1 the minimum falls onto the proxy, and with k2 below 1 an embedding
runs away. Star: the own proxy; square: the other one; circle: the minimum that a descent found; cross: the
predicted one.
"""

import numpy as np

from cocos import measures, plots

PUBLISHED = (
    "DeMoor & Prevost 2024, Fig. 12 (landscapes). The picture itself was not at hand, so which parameters its panels "
    "show is not known here; these are ours, around those of its Fig. 3d (α = 3, k1 = 0.65, k2 = 1.5, T = 1)"
)
AGREES = (
    "Compared with what the paper derives, not with the panels of its Fig. 12. Where Proposition III.2 has a minimum, "
    "a descent that only knows the gradient ends there, 3e-07 away or less, in all eight cases: at α for α = 1, 3 and "
    "6, whatever k1 < 1 < k2 and T are; on the proxy for k1 = 1.1. For k2 = 0.9 none is predicted and none is found. "
    "No panel has an extremum off the line of the proxies (Lemma III.1). A multiplier of Δ, as in the paper's Fig. 8, "
    "would show the same landscape: it changes how strong the gradient is within α, and nowhere its direction."
)
SIZE = (14.4, 12.6)
CHANGES = {
    "published": ("α = 3, k1 = 0.65, k2 = 1.5, T = 1", {}),
    "alpha_1": ("α = 1", {"alpha": 1.0}),
    "alpha_6": ("α = 6", {"alpha": 6.0}),
    "k1_low": ("k1 = 0.3", {"k1": 0.3}),
    "k2_high": ("k2 = 3", {"k2": 3.0}),
    "scale": ("T = 0.25", {"scale": 0.25}),
    "k1_high": ("k1 = 1.1", {"k1": 1.1}),
    "k2_near": ("k2 = 1.1", {"k2": 1.1}),
    "k2_low": ("k2 = 0.9", {"k2": 0.9}),
}


def data(progress):
    """A landscape for each change, and how far the minimum that was found is from the own proxy."""
    parts = {}
    for name, (_, change) in CHANGES.items():
        part = measures.landscape("warp", points=81, **change).drop_vars("binary")  # of two proxies the loss itself
        x, y = part["found"].values - [part["proxy_x"][0].item(), part["proxy_y"][0].item()]
        parts[name] = part.assign_attrs(behind=float(np.hypot(x, y)))
    return parts


def draw(parts, figure):
    """One panel a change; below its name, where the minimum is, or why there is none."""
    for (name, part), ax in zip(parts.items(), figure.subplots(3, 3).flat, strict=True):
        plots.landscape(part, legend=False, ax=ax)
        said = "no minimum, as predicted"
        if "gap" in part.attrs:
            behind = part.attrs["behind"]
            where = f"{behind:.3f} behind the proxy" if behind > 1e-3 else "minimum on the proxy"
            said = f"{where}, {part.attrs['gap']:.0e} from the prediction"
        ax.set_title(f"{CHANGES[name][0]}\n{said}", fontsize="small")
