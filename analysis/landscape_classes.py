"""The warped softmax around three and five proxies: the landscape of many classes is made of the binary ones."""

import numpy as np

from cocos import measures, plots

PUBLISHED = "DeMoor & Prevost 2024, Fig. 5 (landscapes of several classes)"
DIFFERS = ""
EQ_5 = "log(1 + Σ (exp(binary) - 1))"
SIZE = (12.6, 5.2)


def data(progress):
    """Three and five classes."""
    return {f"classes_{n}": measures.landscape("warp", proxies=n, points=101) for n in (3, 5)}


def title(parts):
    """The claim."""
    behind = [
        float(np.hypot(*(part["found"].values - [part["proxy_x"][0], part["proxy_y"][0]]))) for part in parts.values()
    ]
    return (
        f"Among more classes the basin stays behind the own proxy ({' and '.join(f'{one:.2f}' for one in behind)} away)"
    )


def alt(parts):
    """One sentence."""
    numbers = " and ".join(str(part.attrs["proxies"]) for part in parts.values())
    return f"Landscapes of the warped softmax around {numbers} proxies."


def agrees(parts):
    """Eq. 5 on the grid."""
    worst = max(
        float(abs(np.log1p(np.expm1(part["binary"]).sum("other")) - part["loss"]).max()) for part in parts.values()
    )
    return f"The loss equals {EQ_5} of eq. 5 to {worst:.0e} on the whole grid. Closed forms: no sample."


def draw(parts, figure):
    """A panel each."""
    for part, ax in zip(parts.values(), figure.subplots(1, 2).flat, strict=True):
        plots.landscape(part, ax=ax)
        ax.set_title(f"the warp (α = 3, k1 = 0.65, k2 = 1.5) among {part.attrs['proxies']} classes")
