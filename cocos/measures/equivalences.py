"""Which losses of the shelf is this one, with which parameters, and how exactly?"""

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from cocos import losses, results
from cocos.base.errors import InputError
from cocos.embeddings import Embeddings, scores, similarities
from cocos.losses.equivalences import equal_losses
from cocos.measures.shared import synthetic_inputs

# Seeds of the random embeddings: odd ones give one positive a query.
SEVERAL_SEEDS, ODD_SEEDS = (0, 1, 2, 3), (1, 3)


def _gradient(loss, embeddings: Embeddings, unit: bool) -> Tensor:
    """∂ Σ loss / ∂ raw queries and candidates, one below the other; `unit` divides them by their norms first."""

    def prepared(rows: Tensor) -> Tensor:
        return rows / rows.norm(dim=1, keepdim=True) if unit else rows.clone()

    given = embeddings.replace(
        query=prepared(embeddings.query),
        candidate=prepared(embeddings.candidate),
        candidate_variance=None,
    )
    pairs, score = scores.pairs(given, metric=loss.metric), similarities.METRICS[loss.metric]

    def total(query: Tensor, candidate: Tensor) -> Tensor:
        return loss(pairs.with_scores(score(prepared(query), prepared(candidate)))).sum()

    return torch.cat(torch.func.grad(total, argnums=(0, 1))(embeddings.query, embeddings.candidate))


def equivalences(loss="ntxent") -> xr.Dataset:
    """Compare a loss with the losses that it is documented to equal, by the gradient of the embeddings.

    Args:
        loss: a loss of the shelf, or its name.

    Returns:
        `gap` (other,): largest difference of the gradients with respect to raw queries and candidates, in parts of the
        largest gradient, over random embeddings in float64; and `where` (other,), the condition under which they agree.

    Examples:
        >>> bool((cocos.measures.equivalences("supcon")["gap"] < 1e-10).all())
        True
    """
    loss = losses.load(loss) if isinstance(loss, str) else losses.as_loss(loss)
    others, conditions, gaps = [], [], []
    for name, parameters, where in equal_losses(loss):
        other = losses.load(name, parameters)
        unit = "unit" in where
        if not unit and where not in {"always", "one positive"}:
            raise InputError(f"{loss.name}: equal to {name} where {where!r}, which is no known condition")
        gap = 0.0
        for seed in ODD_SEEDS if "one positive" in where else SEVERAL_SEEDS:
            given = synthetic_inputs.embeddings("random", seed)
            ours, theirs = (_gradient(each, given, unit) for each in (loss, other))
            gap = max(gap, ((ours - theirs).abs().max() / ours.abs().max()).item())
        others.append(repr(other))
        conditions.append(where)
        gaps.append(gap)
    variables = {
        "gap": ("other", np.asarray(gaps, dtype=np.float64), "largest difference of the gradients", "largest gradient"),
        "where": ("other", np.asarray(conditions, dtype=str)),
        "other": ("other", np.asarray(others, dtype=str)),
    }
    return results.labelled(
        variables, results.provenance(loss, title=f"Equal losses, {loss.name}"), measure="equivalences"
    )
