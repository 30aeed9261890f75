"""Every detail of the trainings that moves a result, as rows of a table: enough to write the loop again.

What the code fixes is read from the code: constants of the study, and defaults of the optimiser and its schedule.
"""

import inspect
from typing import Any

import numpy as np
import torch

from analysis.study import findings, items, plan, probe, tasks, training

__all__ = ["rows"]

Row = tuple[str, str]


def _default(function: Any, name: str) -> Any:
    return inspect.signature(function).parameters[name].default


def rows(counted: dict[str, dict[str, int]]) -> list[Row]:
    """Pairs of what is fixed and how.

    Args:
        counted: items of each split of each data set.
    """
    adam, cycle = torch.optim.AdamW.__init__, torch.optim.lr_scheduler.OneCycleLR.__init__
    betas = _default(adam, "betas")
    lowest, highest = (_default(cycle, name) for name in ("base_momentum", "max_momentum"))
    both = {name: tasks.task(name) for name in findings.DATA}
    captions, emoji = both.values()
    steps = {name: each.steps for name, each in both.items()}
    passes = {
        name: ", ".join(
            f"{steps[name] * size / counted[name]['train']:.1f} ({size})"
            for size in (plan.BATCH_SIZES if name == findings.DATA[0] else (findings.BATCH_SIZE,))
        )
        for name in both
    }
    with np.load(tasks.CAPTIONS) as held:
        photos, each, width = held["embeddings"].shape
    wide = training.WIDTH
    return [
        (
            "features, captions",
            f"`embeddings` of `analysis/study/data/{tasks.CAPTIONS.name}`, {photos:,} photos x {each} captions x "
            f"{width}, "
            "cast to float32, each vector divided by its length; "
            + ", ".join(f"`split` {place} = {name}" for place, name in enumerate(tasks.SPLITS))
            + f"; the first caption is the query, the other {each - 1} are its candidates",
        ),
        (
            "features, emoji",
            f"picture: grey values halved in size, centred, first {tasks.PIXELS} principal components of the training "
            f"pictures; caption: character n-grams of 3 to 5 in {tasks.BUCKETS:,} buckets, weighted by rarity, unit "
            f"length, first {tasks.WORDS} singular directions; both scaled to a mean square of 1",
        ),
        (
            "heads",
            f"one for queries, one for candidates, no weights shared; captions: a linear layer with bias, {width} to "
            f"{wide}; emoji: a hidden layer of {emoji.hidden} with ReLU, then linear to {wide}; outputs divided "
            "by their "
            "length",
        ),
        (
            "first weights",
            "PyTorch's default of `Linear` (weights and biases uniform within 1/√inputs); the seed of the run "
            "before the "
            "query head is made, then the candidate head",
        ),
        (
            "losses",
            "on the cosines of the batch; its own candidate is a query's only positive, those of the other items "
            "are its "
            "negatives. NT-Xent: cross-entropy of scores / T. Triplet: the *sum* over negatives of [margin - "
            "positive + "
            "negative]₊; triplet SH: this with the largest negative alone. SmoothAP: 1 - 1/(1 + Σ sigmoid((negative - "
            "positive)/T)). Cross-example softmax: log(1 + e^(-scale · positive) Σ e^(scale · negative)), with the "
            "negatives of *all* queries of the direction in the sum",
        ),
        (
            "directions",
            "mean over the queries of the batch, and over the candidates as queries; half of either",
        ),
        (
            "batches",
            "the training items in random order, cut into batches; a rest that is smaller than a batch is dropped and "
            "all are shuffled anew; of the candidates of an item one is drawn at random, at each step again",
        ),
        ("steps", f"{steps['captions']} (captions), {steps['emoji']} (emoji); the model of the last step is scored"),
        (
            "times that an item is seen (batch size)",
            f"captions {passes['captions']}; emoji {passes['emoji']}; no early stopping",
        ),
        (
            "optimiser",
            f"AdamW, betas {betas[0]}, {betas[1]}, eps {_default(adam, 'eps'):g}, decay {training.DECAY} on all "
            "weights "
            "and biases; no clipping of gradients",
        ),
        (
            "learning rate",
            f"one cycle of cosines: from 1/{_default(cycle, 'div_factor'):g} of the rate to the rate in the first "
            f"{100 * training.WARM_UP:g} % of the steps, then down to 1/{_default(cycle, 'final_div_factor'):g} of the "
            f"start; the first beta goes from {highest} down to {lowest} and back, as PyTorch's `OneCycleLR` does",
        ),
        ("arithmetic", "float32, one thread; scores for evaluation and counts in float64"),
        (
            "seeds",
            "the run's seed for the weights, and once more for the batches; all losses of a seed share both",
        ),
        (
            "evaluation",
            f"`rsum`: R@{', R@'.join(map(str, items.RANKS))} in percent, summed over both directions. A query "
            "hits at k "
            "if any of its candidates is among its first k of all candidates of the split; a candidate hits if "
            "its query "
            f"is among its first k of all queries. At most {probe.RANKED} items of a split",
        ),
        (
            "choice of the rate",
            "the highest mean `rsum` of the validation items over the seeds, for each loss, value and batch size",
        ),
        (
            "counts",
            f"fixed batches of the first {probe.COUNTED} of a fixed order of training items, all queries of both "
            "directions; a share counts from eps 0.01 on",
        ),
        (
            "k kept",
            "of each query of each direction, by the scores of this step, or at random at each step; all others leave "
            "the loss",
        ),
        (
            "number held",
            f"NT-Xent; at every {training.SOLVED_EVERY}rd step the temperature between {training.TEMPERATURES[0]} and "
            f"{training.TEMPERATURES[1]:g} at which the mean effective number of the batch is the target, by "
            f"{training.BISECTIONS} bisections of its logarithm",
        ),
    ]
