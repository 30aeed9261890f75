"""How far a score would move with other test items: the best setting of each loss, trained again, item by item.

All runs of the study are scored on the same test items, so that intervals over seeds say nothing about others. Each
item adds its own hits to `rsum`: those of its query, and the mean of those of its candidates. The standard error is
that of their mean over the items, with the pool of candidates as it is.
"""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from analysis.study import findings, plan
from analysis.study.runner import RESULTS
from analysis.study.tasks import Task, task
from analysis.study.training import Heads, trained
from cocos import results
from cocos.base import writing

__all__ = ["FILE", "hits", "measured", "write"]

FILE = RESULTS / "items.json"
RANKS = (1, 5, 10)
SEEDS = (0, 1, 2)


@torch.no_grad()
def hits(model: Heads, task: Task) -> np.ndarray:
    """What each test item adds to `rsum`, (N,): the mean over the items is the `rsum` of the model.

    Args:
        model: the two heads.
        task: with the test items.
    """
    split = task.splits["test"]
    query, candidate = (each.double() for each in model(split.query, split.candidate))
    scores, many = query @ candidate.flatten(0, 1).T, candidate.shape[1]
    own = torch.arange(len(query)).repeat_interleave(many)
    matches = own == torch.arange(len(query))[:, None]
    # A query's rank is that of its best candidate; a candidate's that of its query. Others that score the same stand
    # before it.
    best = scores.masked_fill(~matches, -torch.inf).max(dim=1, keepdim=True).values
    first = (scores.masked_fill(matches, -torch.inf) >= best).sum(dim=1)
    theirs = scores.T.gather(1, own[:, None])
    back = (scores.T.masked_fill(matches.T, -torch.inf) >= theirs).sum(dim=1).view(-1, many)
    return sum(100.0 * ((first < k).double() + (back < k).double().mean(dim=1)) for k in RANKS).numpy()


def measured(data: str) -> dict[str, Any]:
    """Standard errors over the test items of the best setting of each loss, and of their differences.

    Args:
        data: `captions` or `emoji`.
    """
    torch.set_num_threads(1)
    grid = results.open(RESULTS / f"{data}_grid.nc")
    runs = findings.chosen(grid, findings.BATCH_SIZE)
    made, every = {}, {}
    for loss, one in findings._best(grid)[str(findings.BATCH_SIZE)].items():
        own = (runs["family"].values == loss) & (runs["value"].values == one["value"])
        rate = float(runs["rate"].values[own][0])
        found = []
        for seed in SEEDS:
            trial = plan.Trial(data, loss, one["value"], rate, findings.BATCH_SIZE, seed)
            *_, (_, model, _) = trained(trial, task(data))
            found.append(hits(model, task(data)))
        every[loss] = np.stack(found)
        made[loss] = {"rsum": float(every[loss].mean()), "over_items": _error(every[loss].mean(axis=0))}
    pairs = {}
    for one, other in itertools.combinations(every, 2):
        away = every[one] - every[other]
        over_seeds = float(away.mean(axis=1).std(ddof=1) / math.sqrt(len(SEEDS)))
        about = {"mean": float(away.mean()), "over_items": _error(away.mean(axis=0)), "over_seeds": over_seeds}
        pairs[f"{one} {other}"] = about
    errors = {"one": [each["over_items"] for each in made.values()],
              "pair": [each["over_items"] for each in pairs.values()]}  # fmt: skip
    return {
        "items": int(every[loss].shape[1]),
        "seeds": len(SEEDS),
        "losses": made,
        "pairs": pairs,
        "least": {name: min(each) for name, each in errors.items()},
        "most": {name: max(each) for name, each in errors.items()},
    }


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def write(path: Path = FILE) -> Path:
    """Train, measure, and write the standard errors of both data sets."""
    found = findings._plain({data: measured(data) for data in findings.DATA})
    return writing.write(path, (json.dumps(found, indent=1) + "\n").encode(), "errors")
