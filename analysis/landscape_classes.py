"""The warped softmax around three and five proxies: the landscape of many classes is made of the binary ones."""

from cocos import measures, plots

PUBLISHED = "DeMoor & Prevost 2024, Fig. 5 (landscapes of several classes)"
AGREES = (
    "The loss equals log(1 + Σ (exp(binary) - 1)) to 1e-10 (a test says so): the classes combine as eq. 5 has it. The "
    "basin stays behind the own proxy, away from the others."
)
SIZE = (12.6, 5.2)


def data(progress):
    """Three and five classes."""
    return {f"classes_{n}": measures.landscape("warp", proxies=n, points=101) for n in (3, 5)}


def draw(parts, figure):
    """A panel each."""
    for part, ax in zip(parts.values(), figure.subplots(1, 2).flat, strict=True):
        plots.landscape(part, ax=ax)
        ax.set_title(f"the warp (α = 3, k1 = 0.65, k2 = 1.5) among {part.attrs['proxies']} classes")
