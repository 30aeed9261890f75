"""The loss of an embedding around its proxy (star) and another one (square): the functions of Table III and the warp.

With t the whole ray behind the own proxy is as good as any point of it; t², t^1.5 and factors below 1 drive an
embedding away for ever; √t and factors above 1 draw it onto its proxy; only the warp keeps it at a distance, α.
"""

from cocos import measures, plots

PUBLISHED = "DeMoor & Prevost 2024, Fig. 3a-d (t, t², √t and the warp with α = 3, k1 = 0.65, k2 = 1.5) and Table III"
AGREES = (
    "Compared with what the paper derives (its Proposition III.2 and Lemma III.1). 3a, t: the slopes of f1 and f2 are "
    "equal, so there is no single minimum but a valley behind the own proxy. 3b, t²: the contours are straight lines "
    "across the line of the proxies, and the loss falls for ever. 3c, √t: a funnel at the own proxy. 3d, the warp: one "
    "basin, at α behind the own proxy. Each panel names the minimum that a descent along the gradient found, and its "
    "distance from the predicted one. Drawn for the warp is the landscape whose slope is the gradient: the value alone "
    "is flat inside α, for Δ is held constant."
)
FUNCTIONS = ("t", "t^2", "sqrt", "t^1.5", "0.97", "0.5", "1.1", "2", "warp")
SIZE = (14.4, 12.6)


def data(progress):
    """A landscape for each function."""
    found = {name.replace(".", "_"): measures.landscape(name, points=81) for name in FUNCTIONS}
    return {name: part.drop_vars("binary") for name, part in found.items()}  # of two proxies it is the loss itself


def draw(parts, figure):
    """One panel a function; below its name, what became of the minimum."""
    for part, ax in zip(parts.values(), figure.subplots(3, 3).flat, strict=True):
        plots.landscape(part, legend=False, ax=ax)
        found = part["found"].values
        where = f"minimum ({found[0]:.3f}, {abs(round(found[1], 3)):.3f})" if found[0] == found[0] else ""
        gap = f", {part.attrs['gap']:.0e} from the prediction" if "gap" in part.attrs else ""
        text = where + gap or part.attrs["predicted_as"].partition(":")[2].strip()
        ax.set_title(f"{part.attrs['f1'].replace(', delta=1', '')}\n{text}", fontsize="small")
