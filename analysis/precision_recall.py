"""Precision against recall in three ways of counting the same pairs.

Solid: one threshold for all pairs. Squares: each query is cut at its own threshold, all at the same recall, and the
pairs above the cuts are counted together, as for one threshold. Circles: the mean over these queries of their precision
at that recall, which counts every query alike. A negative that ties with a positive ranks above it.
"""

import numpy as np
import seaborn as sns
import torch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

import cocos
from cocos import measures

PUBLISHED = "Veit & Wilber 2020, Fig. 4, left"
SIZE = (7.0, 3.6)
CHUNK = 256
FIRST_RECALL = 0.01  # below it, a few pairs decide the precision of one threshold
TICKS = (0.003, 0.01, 0.03, 0.1, 0.3, 1)


def data():
    """Measure all pairs of the training and of the test split, and cut each image query at each of its captions."""
    frozen, parts = cocos.open("example"), {}
    for split in ("train", "test"):
        beaten = _beaten(frozen.embed(split))
        found = np.arange(1, beaten.shape[1] + 1)
        part = measures.precision_recall(frozen, split=split, device="cpu").assign_attrs(queries=len(beaten))
        parts[split] = part.assign_coords(cut=found / len(found)).assign(
            pooled=("cut", found * len(beaten) / (found * len(beaten) + beaten.sum(0))),
            alike=("cut", (found / (found + beaten)).mean(0)),
            single=(
                "cut",
                [float(part["precision"][np.argmax(part["recall"].values >= r - 1e-9)]) for r in found / len(found)],
            ),
        )
    return parts


def _beaten(embeddings):
    """Negatives at or above each positive of an image query, positives in order of their scores: (query, positive)."""
    query, candidate = (
        torch.nn.functional.normalize(each.float()) for each in (embeddings.query, embeddings.candidate)
    )
    own, other = torch.as_tensor(embeddings.query_group), torch.as_tensor(embeddings.candidate_group)
    rows = []
    for some, group in zip(query.split(CHUNK), own.split(CHUNK), strict=True):
        for scores, positive in zip(some @ candidate.T, group[:, None] == other, strict=True):
            best, worse = scores[positive].sort(descending=True).values, scores[~positive].sort().values
            rows.append((len(worse) - torch.searchsorted(worse, best)).numpy())
    return np.stack(rows)


def _at(parts, split):
    """Recall of the first cut, in percent; precision there of one threshold, of the cuts, and the mean, in percent."""
    first = parts[split].isel(cut=0)
    return [100 * float(first[name]) for name in ("cut", "single", "pooled", "alike")]


def title(parts):
    """The claim."""
    (recall, *train), (_, *test) = _at(parts, "train"), _at(parts, "test")
    return (
        f"At a recall of {recall:.0f} %, precision is {train[2]:.0f} % and {test[2]:.0f} % (train, test) as a mean "
        f"over queries, {train[1]:.0f} % and {test[1]:.1f} % with their pairs counted together, and "
        f"{train[0]:.0f} % and {test[0]:.1f} % with one threshold"
    )


def draw(parts, figure):
    """Draw one panel per split."""
    blue, orange = sns.color_palette("colorblind")[:2]
    axes = figure.subplots(1, len(parts), sharey=True)
    for (split, part), ax in zip(parts.items(), axes, strict=True):
        shown = part["recall"].values >= FIRST_RECALL
        ax.plot(part["recall"][shown], part["precision"][shown], color="0.1", linewidth=1.4,
                label="one threshold for all pairs")  # fmt: skip
        ax.plot(part["cut"], part["pooled"], "s:", color=orange, markersize=5,
                label="each query cut at this recall, pairs counted together")  # fmt: skip
        ax.plot(part["cut"], part["alike"], "o--", color=blue, markersize=5,
                label="the same cuts, mean over queries")  # fmt: skip
        ax.set(yscale="log", xlim=(0, 1.03), ylim=(TICKS[0], 1.1), xlabel="recall", title=f"{split} split")
        ax.yaxis.set_major_locator(FixedLocator(TICKS))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
        sns.despine(ax=ax)
    axes[0].set_ylabel("precision (logarithmic axis)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle("Precision is high as a mean over queries, and low with their pairs counted together")
