"""One threshold for all queries: the same towers trained with sampled softmax and with cross-example losses.

A caption tower and the last layer of an image tower are trained on the training split of the embedded example, whose
other layers are frozen: once with each loss, from the same start and with the same batches, at the scale λ that is best
on the validation split. Left, precision and recall of one threshold on the test split, and below it the scores of the
first, tenth and hundredth negative of a caption; right, differences from sampled softmax with 95 % intervals.
"""

from importlib.resources import files

import numpy as np
import seaborn as sns
import torch
import xarray as xr
from matplotlib.lines import Line2D

import cocos
from analysis.proxy_networks import one_thread
from cocos import Embeddings, losses, measures
from cocos import data as shelf
from cocos.checkpoints.formats.native import SmallTowers, pieces
from cocos.checkpoints.formats.networks import fill
from cocos.counting.statistics import paired
from cocos.embeddings import sampling, scores
from cocos.plots.labels import tiny_points
from cocos.plots.replay import UNRESOLVED_GREY, forest

PUBLISHED = "Veit & Wilber 2020, Fig. 4 and Table 1"
TABLE_1 = {  # PR-AUC and R@1 in percent, Veit & Wilber 2020, Table 1
    "sampled_softmax": (14.6, 25.9),
    "ce_softmax": (20.1, 27.0),
    "ce_nm": (20.1, 26.9),
}
SIZE = (7.0, 5.4)
RUNS = {  # name: (label, loss, whether both sides ask, line)
    "sampled_softmax": ("sampled softmax", "sampled_softmax", False, ":"),
    "ntxent": ("sampled softmax both ways", "sampled_softmax", True, "-."),
    "ce_nm": ("cross-example negative mining", "ce_nm", False, "--"),
    "ce_softmax": ("cross-example softmax", "ce_softmax", False, "-"),
}
BASE = "sampled_softmax"
SHORT = {"ntxent": "both ways", "ce_nm": "mining", "ce_softmax": "cross-example"}
SCALES = [5.0, 10.0, 20.0, 40.0]
SEEDS, SEARCHED = [0, 1, 2, 3, 4], 3  # seeds, and those that the scale was searched with
RESOLVED = "black"  # difference whose interval does not contain 0
# Colours of the runs, none of which is that of a published difference.
COLOURS = dict(zip(RUNS, (sns.color_palette("colorblind")[k] for k in (0, 2, 4, 3)), strict=True))
LEVELS = np.linspace(0, 1, 201)  # of recall
# Smallest recall that is drawn; below it, a few pairs decide the precision.
FIRST_RECALL = 0.01
EPOCHS, BATCH = 3, 256
RATE, DECAY, WARM_UP = 0.06, 0.05, 0.1  # of AdamW; the rate at which sampled softmax does best on the validation split


class _Split:
    """Outputs of the frozen convolutions for all images, and captions as concatenated bags of n-grams."""

    def __init__(self, name, towers):
        items = shelf.load("emoji_captions", name)
        ink = 1 - items.query.items.float() / 255
        self.images = torch.cat([towers.image[:-1](some) for some in ink.split(256)])
        bags = [torch.tensor(pieces(caption, towers.buckets)) for caption in items.candidate.items]
        self.length = torch.tensor([len(bag) for bag in bags])
        self.start = self.length.cumsum(0) - self.length
        self.pieces = torch.cat(bags)
        self.groups = items.query.group, items.candidate.group

    def encoded(self, towers, images, captions):
        """Encode some images and captions as unit vectors."""
        length = self.length[captions]
        start = length.cumsum(0) - length
        place = torch.arange(int(length.sum())) + (self.start[captions] - start).repeat_interleave(length)
        vectors = towers.image[-1](self.images[images]), towers.caption(towers.bag(self.pieces[place], start))
        return [torch.nn.functional.normalize(each, dim=1) for each in vectors]

    @torch.no_grad()
    def embeddings(self, towers):
        """Embed the whole split."""
        rows = [torch.arange(len(each)) for each in self.groups]
        return Embeddings(*self.encoded(towers, *rows), *self.groups, directions=("i2t", "t2i"))


def _trained(encoder, split, loss, both, seed):
    """Train towers; the convolutions before the last layer of the image tower stay frozen."""
    torch.manual_seed(seed)
    towers = SmallTowers(**encoder[1])
    frame = Embeddings(*(torch.zeros(len(each), 1) for each in split.groups), *split.groups)
    options = {"batch_size": BATCH, "copies": "keep"}  # a row of the matrix for every pair
    plans = [sampling.plan(frame, **options, seed=EPOCHS * seed + epoch).batches for epoch in range(EPOCHS)]
    schedule = [batch for plan in plans for batch in plan]
    layers = (towers.image[-1], towers.bag, towers.caption)
    steps = torch.optim.AdamW([p for layer in layers for p in layer.parameters()], lr=RATE, weight_decay=DECAY)
    rate = torch.optim.lr_scheduler.OneCycleLR(steps, RATE, total_steps=len(schedule), pct_start=WARM_UP)
    for batch in schedule:
        images, captions = split.encoded(towers, batch.query_index, batch.candidate_index)
        similarity = captions @ images.T
        value = loss(scores.pairs(frame.flip(), batch.flip(), metric="dot").with_scores(similarity)).mean()
        if both:
            value = (value + loss(scores.pairs(frame, batch, metric="dot").with_scores(similarity.T)).mean()) / 2
        steps.zero_grad()
        value.backward()
        steps.step()
        rate.step()
    return towers


def _measured(embeddings):
    """PR-AUC, recall, the curve of one threshold, and where the k-th neighbours stand, of one run."""
    found = measures.evaluate(embeddings).squeeze(drop=True)
    curve = measures.precision_recall(embeddings)
    near = measures.score_distribution(embeddings)
    return xr.Dataset(
        {
            "pr_auc": found["PR-AUC"],
            "recall": found["R@1"],
            "mAP": found["mAP"],
            "precision": ("level", np.interp(LEVELS, curve["recall"].values, curve["precision"].values)),
            "spread": near["spread"],
            "kth_band": near["kth_band"],
        },
        coords={"level": LEVELS},
    )


@one_thread()
def data():
    """Train every loss at every scale, and test it at the scale with the best mean PR-AUC on the validation split.

    Weights depend on the order of sums, and so on the number of threads.
    """
    frozen = cocos.open("example")
    held = torch.load(files("cocos") / "example" / "emoji_ntxent.pt", weights_only=True)
    encoder = held["cocos"]["encoder"]["name"], held["cocos"]["encoder"]["arguments"]
    towers = fill(SmallTowers(**encoder[1]), held["state"])
    train, val, test = (_Split(name, towers) for name in ("train", "val", "test"))
    tried, chosen = [], []
    for _, shelved, both, _ in RUNS.values():
        made, areas = [], []
        for scale in SCALES:
            loss = losses.load(shelved, {"scale": scale})
            made.append([_trained(encoder, train, loss, both, seed) for seed in SEEDS[:SEARCHED]])
            areas.append([measures.evaluate(val.embeddings(each))["PR-AUC"].item() for each in made[-1]])
        best = max(range(len(SCALES)), key=lambda place: sum(areas[place]))
        tried.append(xr.Dataset({"pr_auc": (("scale", "run"), areas)}, {"scale": SCALES, "run": SEEDS[:SEARCHED]}))
        loss = losses.load(shelved, {"scale": SCALES[best]})
        made[best] += [_trained(encoder, train, loss, both, seed) for seed in SEEDS[SEARCHED:]]
        kept = [test.embeddings(each) for each in made[best]]
        chosen.append(xr.concat(map(_measured, kept), xr.Variable("run", SEEDS)).assign(scale=SCALES[best]))
    which = xr.Variable("loss", list(RUNS))
    about = frozen.identity() | {"seed": ", ".join(map(str, SEEDS))}
    parts = {"val": xr.concat(tried, which), "test": xr.concat(chosen, which)}
    return {name: part.assign_attrs(about) for name, part in parts.items()}


def _gain(parts, name, what, **chosen):
    """Paired difference of a loss from sampled softmax."""
    values = parts["test"][what].sel(chosen)
    return paired(values.sel(loss=name).values, values.sel(loss=BASE).values)


def title(parts):
    """The claim."""
    gain = _gain(parts, "ce_softmax", "pr_auc")
    return f"PR-AUC of cross-example minus sampled softmax: {gain.short()} points"


def draw(parts, figure):
    """Draw precision and recall, differences from sampled softmax, and scores of the k-th neighbours."""
    places = figure.add_gridspec(2, 2, width_ratios=(1, 1.1), height_ratios=(1, 1.25))
    left, middle, right = (figure.add_subplot(place) for place in (places[0, 0], places[:, 1], places[1, 0]))
    test, colours = parts["test"], COLOURS
    for name, (label, _, _, line) in RUNS.items():
        seeds = test["precision"].sel(loss=name).transpose("run", "level")
        seeds = seeds.sel(level=slice(FIRST_RECALL, None))
        left.fill_between(
            seeds["level"], seeds.min("run"), seeds.max("run"), color=colours[name], alpha=0.2, linewidth=0
        )
        left.plot(seeds["level"], seeds.mean("run"), color=colours[name], linestyle=line, linewidth=1.8, label=label)
    left.set(xlabel="recall", ylabel="precision", xlim=(0, 0.4), ylim=(0, 0.8))
    left.set_title("one threshold: mean and range of the seeds")
    _differences(parts, middle)
    _neighbours(test, colours, right)
    for ax in (left, middle, right):
        sns.despine(ax=ax, left=ax is not left)
    entries = [Line2D([], [], color=colours[name], linestyle=line, linewidth=2, label=label)
               for name, (label, _, _, line) in RUNS.items()]  # fmt: skip
    orange = sns.color_palette("colorblind")[1]
    entries += [
        Line2D([], [], color=RESOLVED, marker="o", markersize=5, linewidth=2.4, label="difference and 95 % interval"),
        Line2D([], [], color=UNRESOLVED_GREY, marker="o", markersize=5, linewidth=2.4, label="interval contains 0"),
        Line2D([], [], linestyle="", marker="D", color="none", label="Veit & Wilber, Table 1", markeredgecolor=orange),
    ]
    figure.legend(handles=entries, loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    figure.suptitle(title(parts))


def _differences(parts, ax):
    """Draw a row for each measure and loss."""
    measured = {"PR-AUC": ("pr_auc", {}), "R@1, captions": ("recall", {"direction": "t2i"}),
                "R@1, images": ("recall", {"direction": "i2t"})}  # fmt: skip
    rows = [(what, name) for what in measured for name in ("ntxent", "ce_nm", "ce_softmax")]
    at = [k + k // 3 for k in range(len(rows))]
    gains, points, told = [], [], []
    for what, name in rows:
        variable, chosen = measured[what]
        values = parts["test"][variable].sel(chosen)
        gains.append(_gain(parts, name, variable, **chosen))
        points.append((values.sel(loss=name) - values.sel(loss=BASE)).values)
        column = {"PR-AUC": 0, "R@1, captions": 1}.get(what)
        known = column is not None and name in TABLE_1
        told.append(TABLE_1[name][column] - TABLE_1[BASE][column] if known else np.nan)
    forest(gains, points, at=at, published=told, colour=RESOLVED, ax=ax)
    ax.set_yticks(at, [SHORT[name] for _, name in rows])
    for k, what in enumerate(measured):
        ax.annotate(
            what,
            (0, 4 * k - 0.75),
            xycoords=("axes fraction", "data"),
            fontweight="bold",
            fontsize="small",
            va="center",
        )
    ax.set(ylim=(at[-1] + 0.6, -1.2), xlabel="difference (points)")
    ax.tick_params(axis="y", length=0)
    ax.set_title("minus sampled softmax, paired by seed")


def _neighbours(test, colours, ax):
    """Draw a bar from the 5th to the 95th percentile over the queries for each k and loss, averaged over seeds."""
    band, names = test["kth_band"].sel(direction="t2i"), list(RUNS)
    for row, k in enumerate(band["k"].values):
        for place, name in enumerate(names):
            seeds = band.sel(k=k, loss=name)
            low, middle, high = (seeds.sel(percentile=each).values for each in (5, 50, 95))
            y = 5 * row + place
            ax.plot(
                (low.mean(), high.mean()), (y, y), color=colours[name], linewidth=4, alpha=0.55, solid_capstyle="butt"
            )
            ax.plot(middle.mean(), y, "|", color="black", markersize=6, markeredgewidth=1.4)
            for ends in (low, high):
                ax.plot(ends, np.full(len(ends), y), "o", color="black", markersize=2.2, markeredgewidth=0)
        above = {"xycoords": ("axes fraction", "data"), "fontweight": "bold", "fontsize": "small", "va": "center"}
        ax.annotate(f"neighbour {k}", (0, 5 * row - 0.9), **above)
    every = [5 * row + place for row in range(band.sizes["k"]) for place in range(len(names))]
    ax.set_yticks(every, [SHORT.get(name, "sampled") for name in names] * band.sizes["k"], fontsize=tiny_points())
    ax.tick_params(axis="y", length=0)
    ax.set(ylim=(5 * band.sizes["k"] - 1, -1.5), xlabel="score (cosine); line: median, dot: seed")
    ax.set_title("neighbours of captions, 5th to 95th percentile")
