"""The loss of an embedding around its proxy and another one: the functions of Table III and the warp."""

import numpy as np

from cocos import measures, plots
from cocos.captions import holds

PUBLISHED = "DeMoor & Prevost 2024, Fig. 3a-d (t, t², √t and the warp with α = 3, k1 = 0.65, k2 = 1.5) and Table III"
DIFFERS = (
    "compared with what the paper derives (its Proposition III.2 and Lemma III.1). Drawn for the warp is the landscape "
    "whose slope is the gradient: the value alone is flat inside α, for Δ is held constant"
)
FUNCTIONS = ("t", "t^2", "sqrt", "t^1.5", "0.97", "0.5", "1.1", "2", "warp")
SIZE = (14.4, 12.6)


def data(progress):
    """A landscape for each function."""
    found = {name.replace(".", "_"): measures.landscape(name, points=81) for name in FUNCTIONS}
    return {name: part.drop_vars("binary") for name, part in found.items()}  # of two proxies it is the loss itself


def title(parts):
    """The claim."""
    warp = parts["warp"]
    behind = float(np.hypot(*(warp["found"].values - [warp["proxy_x"][0], warp["proxy_y"][0]])))
    others = [part for name, part in parts.items() if name != "warp" and "gap" in part.attrs]
    on = all(np.hypot(*(part["found"].values - [part["proxy_x"][0], part["proxy_y"][0]])) < 1e-3 for part in others)
    return holds(on, f"Only the warp keeps an embedding at a distance from its proxy ({behind:.2f})")


def alt(parts):
    """One sentence."""
    return f"Landscapes of the loss around two proxies for {len(parts)} functions of the distance."


def agrees(parts):
    """What a descent along the gradient found for each function."""
    ends = {}
    for part in parts.values():
        kind = "a minimum" if "gap" in part.attrs else part.attrs["found_as"].partition(":")[0]
        ends.setdefault(kind, []).append(part)
    told = "; ".join(
        f"{what}: {', '.join(part.attrs['f1'].partition('(')[0] for part in some)}" for what, some in ends.items()
    )
    gap = max(part.attrs["gap"] for part in parts.values() if "gap" in part.attrs)
    return (
        f"A descent along the gradient finds {told}. Minima lie within {gap:.0e} of the predicted ones. Closed "
        "forms: no sample."
    )


def draw(parts, figure):
    """One panel a function; below its name, what became of the minimum."""
    for part, ax in zip(parts.values(), figure.subplots(3, 3).flat, strict=True):
        plots.landscape(part, legend=False, ax=ax)
        found = part["found"].values
        where = f"minimum ({found[0]:.3f}, {abs(round(found[1], 3)):.3f})" if found[0] == found[0] else ""
        gap = f", {part.attrs['gap']:.0e} from the prediction" if "gap" in part.attrs else ""
        text = where + gap or part.attrs["predicted_as"].partition(":")[2].strip()
        ax.set_title(f"{part.attrs['f1'].replace(', delta=1', '')}\n{text}", fontsize="small")
