"""Contributing negatives per query of the embedded example, for four losses."""

from cocos import checkpoints, measures, plots
from cocos.reports.captions import holds
from study_tables import LOSSES

PUBLISHED = "Bleeker & de Rijke 2022: the counts of Tables 3 to 5, here as distributions"
DIFFERS = "another model and other data; only the losses that leave queries idle can be compared"
INPUTS = (checkpoints.EXAMPLE_FILE,)
SIZE, PRINTED = (7.0, 4.7), True


def data(progress):
    """Count the whole training set once for every loss."""
    frozen = checkpoints.open(checkpoints.EXAMPLE_FILE)
    about = frozen.identity() | {"checkpoint_path": f"cocos/example/{frozen.path.name}"}
    embeddings = frozen.embed(device="cpu")
    parts = {}
    for name in ("ntxent", "triplet", "triplet_sh", "smoothap"):
        counted = measures.count(embeddings, frozen.loss(name)[0]).assign_attrs(about)
        parts[name] = counted[["contributing", "negatives", "relative"]]
    return parts


def _idle(part):
    """Percent of the queries of each direction without any contributing negative."""
    counts = part["contributing"]
    return 100 * (counts == 0).where(counts.notnull()).mean(("batch", "query"))


def title(parts):
    """The claim."""
    full, hinge = (float(_idle(parts[name]).mean()) for name in ("ntxent", "triplet"))
    return f"NT-Xent leaves {full:.0f} % of the queries without a contributing negative, the triplet loss {hinge:.0f} %"


def alt(parts):
    """One sentence."""
    return (
        f"Histograms of the contributing negatives per query on one axis, a row for each of {len(parts)} losses; idle "
        "queries are grey."
    )


def agrees(parts):
    """Idle queries of each loss, with n."""
    told = []
    for name, part in parts.items():
        way = ", ".join(f"{float(idle):.0f} % ({idle['direction'].item()})" for idle in _idle(part))
        drawn = part["contributing"].notnull().sum(("batch", "query"))
        number = ", ".join(f"{int(one):,} ({one['direction'].item()})" for one in drawn)
        told.append(f"{name} {way}; n = {number} queries in {part.sizes['batch']} batches of {part.attrs['sample']}")
    hard = float(parts["triplet_sh"]["contributing"].max())
    return (
        f"Without a contributing negative at eps = {parts['ntxent'].attrs['eps']:g}: {'. '.join(told)}. "
        + holds(hard == 1, "Triplet-SH has one contributing negative or none, as in the paper.")
        + " Exact counts for one model, so there is no interval over models."
    )


def hero(parts):
    """The sentence under the first picture of README.md."""
    about = parts["ntxent"].attrs
    image, caption = (
        (f"{float(soft['contributing']):.1f}", f"{float(soft['relative']):.1f}", f"{float(idle):.0f} %")
        for soft, idle in (
            (parts["ntxent"].sel(direction=side).mean(), _idle(parts["triplet"]).sel(direction=side))
            for side in ("i2t", "t2i")
        )
    )
    eps = f"{100 * about['eps']:g} %"
    return (
        f"Of {about['batch_size'] - 1} captions that are negatives of an image in a batch, {image[0]} have a softmax "
        f"probability above {eps} under NT-Xent, and {image[1]} carry more than {eps} of its push; the triplet loss "
        f"would leave {image[2]} of the images idle. For a caption that asks for its image these are {caption[0]}, "
        f"{caption[1]} and {caption[2]}."
    )


def draw(parts, figure):
    """A row for each loss, on one axis."""
    ax = plots.count(list(parts.values()), names=[LOSSES[name] for name in parts], ax=figure.subplots())
    ax.set_title(title(parts))
    ax.set_yticks(ax.get_yticks(), [text.get_text().replace("\n", "\nmean: ") for text in ax.get_yticklabels()])
