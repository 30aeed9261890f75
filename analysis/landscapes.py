"""The loss of an embedding around its own proxy and another one, for the functions of Table III and the warp."""

import along_proxies
from cocos import measures
from cocos.reports.captions import holds

PUBLISHED = "DeMoor & Prevost 2024, Fig. 3a-d (t, t², √t and the warp with α = 3, k1 = 0.65, k2 = 1.5) and Table III"
DIFFERS = (
    "compared with the derivations of the paper (Proposition III.2 and Lemma III.1). For the warp we draw the "
    "landscape whose slope is the gradient: the value itself is flat within α, because Δ is constant in the gradient. "
    "For f = t the paper has a global minimum at the proxy and a plateau behind it; here it is a whole ray of minima, "
    "the proxy and every point behind it"
)
FUNCTIONS = ("t", "t^2", "sqrt", "t^1.5", "0.97", "0.5", "1.1", "2", "warp")
CALLED = {"t^2": "t²", "sqrt": "√t"}
WHOLE = ("t", "t^2", "sqrt", "warp")  # Fig. 3a-d
SIZE, PRINTED = (7.0, 5.6), True


def data(progress):
    """Compute a landscape for each function, the whole plane for the functions of Fig. 3."""
    found = {name: measures.landscape(name, points=along_proxies.POINTS) for name in FUNCTIONS}
    return {name.replace(".", "_"): along_proxies.kept(part, name in WHOLE) for name, part in found.items()}


def title(parts):
    """The claim."""
    warp = parts["warp"]
    behind = along_proxies.behind(warp)
    others = [part for name, part in parts.items() if name != "warp" and "gap" in part.attrs]
    on = all(along_proxies.behind(part) < 1e-3 for part in others)
    alone = f"Of {len(parts)} functions only the warp keeps an embedding at a distance from its proxy: {behind:.2f}"
    return holds(on, alone) + holds(f"alpha={behind:.3g}," in warp.attrs["f1"], ", its α")


def _called(part):
    """Name of a function as the paper writes it."""
    name = part.attrs["f1"].partition("(")[0]
    return CALLED.get(name, name)


def alt(parts):
    """One sentence."""
    return f"Landscapes of the loss around two proxies for {len(parts)} functions of the distance."


def agrees(parts):
    """Ends of gradient descent for each function."""
    ends = {}
    for part in parts.values():
        kind = "a minimum" if "gap" in part.attrs else part.attrs["found_as"].partition(":")[0]
        ends.setdefault(kind, []).append(part)
    told = "; ".join(f"{what}: {', '.join(map(_called, some))}" for what, some in ends.items())
    gap = max(part.attrs["gap"] for part in parts.values() if "gap" in part.attrs)
    return f"Gradient descent finds {told}. Minima are within {gap:.0e} of the predicted ones. Closed forms: no sample."


def draw(parts, figure):
    """Draw maps of the functions of Fig. 3, and the line of the proxies for all."""
    labels = {name: _called(part) for name, part in parts.items()}
    along_proxies.draw(parts, labels, WHOLE, figure)
    figure.suptitle(title(parts))
