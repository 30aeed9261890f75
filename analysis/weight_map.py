"""All weights of one batch of pairs under NT-Xent and under the triplet loss."""

from cocos import measures, plots
from cocos.commands import demo
from cocos.reports.captions import holds

PUBLISHED = "none; the two losses of Bleeker & de Rijke 2022, Tables 3 and 4, on one batch"
DIFFERS = "another model and other data, and one batch"
INPUTS = tuple((demo.checkpoint().path,))
LOSSES = ("ntxent", "triplet")
SIZE = (12.8, 6.4)


def data(progress):
    """Weigh the first batch of seed 0 with both losses."""
    frozen = demo.checkpoint()
    about = frozen.identity() | {"checkpoint_path": f"cocos/example/{frozen.path.name}"}
    embeddings = frozen.embed(device="cpu")
    return {
        name: measures.weight_map(embeddings, frozen.loss(name, {})[0], sample="pairs").assign_attrs(about)
        for name in LOSSES
    }


def _weighed(part):
    """Negatives with a weight, (query, candidate), the number of all negatives, and that of the queries without any."""
    push = (part["weight"] != 0) & part["negative"]
    return push, int(part["negative"].sum()), int((push.sum("candidate") == 0).sum())


def title(parts):
    """The claim."""
    push, every, done = _weighed(parts["triplet"])
    return (
        f"Under the triplet loss {int(push.sum())} of {every} negatives have a weight and {done} of "
        f"{push.sizes['query']} queries are idle; under NT-Xent every negative pushes"
    )


def alt(parts):
    """One sentence."""
    return f"Matrices of the weights of all queries and candidates of one batch, for {len(parts)} losses."


def agrees(parts):
    """Counts of the two maps."""
    soft, (push, every, _) = parts["ntxent"], _weighed(parts["triplet"])
    above = int(((soft["share"] > soft.attrs["eps"]) & soft["negative"]).sum())
    whole = holds(int(_weighed(soft)[0].sum()) == every, "Under NT-Xent every negative has some weight")
    return (
        f"{whole}, though only {above} of {every} have a softmax probability above {soft.attrs['eps']:g}. Under the "
        f"triplet loss one query has {int(push.sum('candidate').max())} of the {int(push.sum())}, and no candidate "
        f"more than {int(push.sum('query').max())}. n = one batch of {push.sizes['query']} pairs."
    )


def draw(parts, figure):
    """Draw one panel per loss, on one scale."""
    shared = max(float(part["share"].where(part["negative"], 0).max()) for part in parts.values())
    axes = figure.subplots(1, len(parts))
    for part, ax in zip(parts.values(), axes, strict=True):
        plots.weight_map(part, most=shared, last=ax is axes[-1], ax=ax)
