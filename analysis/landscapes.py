"""The loss of an embedding around its own proxy and another one, for the functions of Table III and the warp."""

from analysis import along_proxies
from cocos import measures

PUBLISHED = "DeMoor & Prevost 2024, Fig. 3"
FUNCTIONS = ("t", "t^2", "sqrt", "t^1.5", "0.97", "0.5", "1.1", "2", "warp")
CALLED = {"t^2": "t²", "sqrt": "√t"}
WHOLE = ("t", "t^2", "sqrt", "warp")  # Fig. 3a-d
SIZE = (7.0, 5.6)


def data():
    """Compute a landscape for each function, the whole plane for the functions of Fig. 3."""
    found = {name: measures.landscape(name, points=along_proxies.POINTS) for name in FUNCTIONS}
    return {name.replace(".", "_"): along_proxies.kept(part, name in WHOLE) for name, part in found.items()}


def title(parts):
    """The claim."""
    behind = {_called(part): along_proxies.behind(part) for part in parts.values()}
    away = ", ".join(f"{name} ({distance:.2f})" for name, distance in behind.items() if distance > 1e-3)
    return f"Of {len(parts)} functions, an embedding rests at a distance behind its proxy under {away}"


def _called(part):
    """Name of a function as the paper writes it."""
    name = part.attrs["f1"].partition("(")[0]
    return CALLED.get(name, name)


def draw(parts, figure):
    """Draw maps of the functions of Fig. 3, and the line of the proxies for all."""
    labels = {name: _called(part) for name, part in parts.items()}
    along_proxies.draw(parts, labels, WHOLE, figure)
    figure.suptitle(title(parts))
