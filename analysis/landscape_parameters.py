"""The warp's landscape under other parameters: α alone says how far behind its proxy an embedding comes to rest.

One parameter at a time differs from those of Fig. 3d, the first panel. k1 and k2 say how steep the basin is on its near
and on its far side, and T how deep; with k1 above 1 the minimum falls onto the proxy, and with k2 below 1 an embedding
runs away. Star: the own proxy; square: the other one; circle: the minimum that a descent found; cross: the
predicted one.
"""

import numpy as np

from cocos import measures, plots
from cocos.captions import holds

PUBLISHED = (
    "DeMoor & Prevost 2024, Fig. 12 (landscapes). The picture itself was not at hand, so which parameters its panels "
    "show is not known here; these are ours, around those of its Fig. 3d (α = 3, k1 = 0.65, k2 = 1.5, T = 1)"
)
DIFFERS = "compared with what the paper derives, not with the panels of its Fig. 12"
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


def title(parts):
    """The claim."""
    base = parts["published"].attrs["behind"]
    same = [parts[name].attrs["behind"] for name in ("k1_low", "k2_high", "scale", "k2_near")]
    return holds(
        max(abs(one - base) for one in same) < 1e-3, "α alone says how far behind its proxy an embedding comes to rest"
    )


def alt(parts):
    """One sentence."""
    return f"Landscapes of the warped softmax under {len(parts)} settings."


def agrees(parts):
    """Minima found and predicted."""
    gaps = [part.attrs["gap"] for part in parts.values() if "gap" in part.attrs]
    rests = ", ".join(
        f"{CHANGES[name][0]}: {parts[name].attrs['behind']:.2f}"
        for name in ("published", "alpha_1", "alpha_6", "k1_high")
    )
    away = holds(parts["k2_low"].attrs["found_as"].startswith("none"), "none is found")
    off = holds(
        all(part.attrs["off_line"] == 0 for part in parts.values()),
        "No panel has an extremum off the line of the proxies (Lemma III.1).",
    )
    return (
        f"Distance of the minimum behind the proxy: {rests}. Where Proposition III.2 has a minimum, a descent along "
        "the gradient ends within "
        f"{max(gaps):.0e} of it, in {len(gaps)} cases; for {CHANGES['k2_low'][0]} none is predicted and {away}. {off} "
        "Closed forms: no sample, no interval."
    )


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
