"""How unevenly the push is spread over the negatives of a query, for four losses, as Lorenz curves.

Lines are means over queries, bands the 5th to 95th percentile.

A point says what part of the push (up) the lightest part of the negatives (right) holds. Lines far below the diagonal
are pushes of a few negatives. Queries without any push have no curve and are left out.
"""

import numpy as np

from cocos import demo, measures, plots

PUBLISHED = "none; Bleeker & de Rijke 2022 count contributing negatives at one threshold"
DIFFERS = "the paper counts at one threshold and has no such curve"
TOPS = (0.1, 0.01)
INPUTS = tuple((demo.checkpoint().path,))
SIZE = (11.4, 5.6)


def data(progress):
    """Weigh one pass over the training set for each loss."""
    frozen = demo.checkpoint()
    about = frozen.identity() | {"checkpoint_path": f"cocos/example/{frozen.path.name}"}
    embeddings = frozen.embed(device="cpu")
    parts = {}
    for name in demo.LOSSES:
        found = measures.lorenz(embeddings, frozen.loss(name, {})[0], points=1001, sample="pairs").assign_attrs(about)
        parts[name] = found.drop_vars("gini_per_query")
    return parts


def _top(part, heaviest):
    """Percent of the push that a heaviest part of the negatives holds, images asking."""
    return 100 * (1 - part["push"].sel(direction="i2t").sel(part=1 - heaviest, method="nearest").item())


def title(parts):
    """The claim."""
    soft, hinge = (_top(parts[name], TOPS[0]) for name in ("ntxent", "triplet"))
    return (
        f"The heaviest tenth of the negatives holds {soft:.0f} % of the push under NT-Xent, {hinge:.0f} % under triplet"
    )


def alt(parts):
    """One sentence."""
    return f"Lorenz curves of the push for {len(parts)} losses, whole and enlarged at their right end."


def agrees(parts):
    """Parts of the push, coefficients and idle queries."""
    told = [
        f"{name} {_top(part, TOPS[0]):.0f} % and {_top(part, TOPS[1]):.0f} %, Gini {float(part['gini'][0]):.3f}, "
        f"{100 * float(part['without_push'][0]):.0f} % of the queries have no push and are left out"
        for name, part in parts.items()
    ]
    both = max(float(abs(np.subtract(*part["gini"].values))) for part in parts.values())
    return (
        f"Push of the heaviest tenth and the heaviest hundredth, images asking: {'; '.join(told)}. Captions that ask "
        f"give the same coefficients to {both:.3f}. n = {parts['ntxent'].attrs['batches']} batches of pairs; bands are "
        "over queries and no uncertainty."
    )


def draw(parts, figure):
    """The whole curves on the left, their ends on the right; one line a loss."""
    left, right = figure.subplots(1, 2)
    for ax in (left, right):
        for name, part in parts.items():
            plots.lorenz(part.sel(direction=["i2t"]), label=name, ax=ax)
    left.set_title("images ask (i2t)")
    right.set(title="the heaviest tenth of the negatives", xlim=(0.9, 1), aspect="auto")
    right.get_legend().remove()
    figure.suptitle("Lorenz curves of the push in batches of 128 pairs: one frozen model, four losses")
