"""Do the embeddings tell rows apart, and does the gradient of a loss reach them?"""

import json
from typing import Unpack

import numpy as np
import xarray as xr

from cocos import losses, results
from cocos.checkpoints import Checkpoint
from cocos.embeddings import Embeddings
from cocos.engine.prepared import prepare
from cocos.engine.sampling import Sampling, sampled
from cocos.measures import _felt

SIDE_LABELS = {
    "rows": ("rows of the side", "rows"),
    "sampled": ("rows that spread and rank are taken of", "rows"),
    "dimensions": ("width of the embeddings", "dimensions"),
    "spread": ("root mean square distance from the mean, in parts of the length", "1"),
    "effective_rank": ("effective rank (exp of the entropy of the singular values)", "dimensions"),
    "uniformity": ("uniformity (log of the mean potential of two unit rows)", "nats"),
    "duplicates": ("rows that repeat another one exactly", "rows"),
    "near_duplicates": ("rows that repeat another one up to rounding", "rows"),
    "at_one_point": ("part of the rows within rounding of one point", "1"),
    "collapsed": ("the side is one point up to rounding", "1"),
}
ALIGNMENT_LABELS = {
    "alignment": ("alignment (mean squared distance of unit rows of positives)", "1"),
    "alignment_queries": ("queries whose positives are taken", "queries"),
}
DIRECTION_LABELS = {
    "queries": ("queries whose pull and push are added up", "queries"),
    "candidates": ("candidates that take part", "candidates"),
    "cancellation": ("part of pull and push that cancels", "1"),
    "reaching": ("part of pull and push that reaches the embeddings", "1"),
    "tied": ("queries whose best positive ties with a negative", "1"),
}


@sampled()
def health(
    embeddings: Embeddings | Checkpoint,
    loss="ntxent",
    **sampling: Unpack[Sampling],
) -> xr.Dataset:
    """Measure how far embeddings are from one point, and how much of pull and push reaches them in a training batch.

    `count` has the same numbers in its attribute `health`, and in the JSON of `cocos count`.

    Args:
        embeddings: embeddings of the training set, or a checkpoint (its training set is encoded).
        loss: a loss, or its name; spread and rank are of directions where its metric reads these.
        **sampling: options of the batches, see `cocos.sampling.Sampling`.

    Returns:
        The quantities of `cocos.health.side` and `cocos.health.felt`, (side,) and (direction,); a side is `query` or
        `candidate`, and a labelled set has one. `alignment` of the set. Quantities that are not known are missing.

    Raises:
        InputError: an option or an embedding that cannot be used.

    Examples:
        >>> embeddings = cocos.Embeddings(torch.eye(3), 2 * torch.eye(3))
        >>> data = cocos.measures.health(embeddings, batch_size="all")
        >>> sorted(data.sizes)
        ['direction', 'side']
    """
    run = prepare(embeddings, loss, **sampling)
    attrs = run.provenance(title=f"Health of the embeddings, {losses.name_of(run.loss)}")
    found = _felt.report(run)
    variables = {}
    for dim, entries, labels in (
        ("side", found["sides"], SIDE_LABELS),
        ("direction", found["directions"], DIRECTION_LABELS),
    ):
        for name, about in labels.items():
            values = [np.nan if each is None else each[name] for each in entries.values()]
            kind = bool if name == "collapsed" else np.float64
            variables[name] = (dim, np.array([np.nan if value is None else value for value in values], kind), *about)
        variables[dim] = (dim, list(entries))
    for name, about in ALIGNMENT_LABELS.items():
        variables[name] = ((), np.nan if found[name] is None else found[name], *about)
    return results.labelled(variables, attrs | {"health": json.dumps(found)})
