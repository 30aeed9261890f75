"""Where do the negatives of a query come from, and which of these sources push?"""

from typing import Unpack

import numpy as np
import xarray as xr

from cocos import results
from cocos.base.errors import InputError
from cocos.base.ranges import checked
from cocos.checkpoints import Checkpoint
from cocos.counting.statistics import OF_SOURCES
from cocos.embeddings import Embeddings
from cocos.embeddings.options import DEFAULTS, Sampling, fill_options
from cocos.measures.count import count

# Long name and units, those of single queries first.
LABELS = {each.numbers[0].name: (f"{each.label}, per query", each.units) for each in OF_SOURCES} | {
    "share": ("fraction of negatives", "1"),
    "push": ("push fraction", "1"),
    "low": ("push fraction, 5th percentile of the batches", "1"),
    "high": ("push fraction, 95th percentile of the batches", "1"),
}


@checked
def sources(
    embeddings: Embeddings | Checkpoint,
    loss="mnrl",
    *,
    eps: float = 0.01,
    **sampling: Unpack[Sampling],
) -> xr.Dataset:
    """Take negatives, counts and push apart by source: the batch, own and others' hard negatives, further directions.

    Args:
        embeddings: embeddings with `negatives`, or any for a loss of several directions; or a checkpoint.
        loss: a loss, or its name.
        eps: smallest share that contributes.
        **sampling: options of the batches, see `Sampling`.

    Returns:
        Dims direction and source (see `cocos.sources.SOURCES`): `negatives`, `contributing` and `pulled` per query,
        `share`, the part of the negatives, and `push`, the part of the summed push over all queries, with `low` and
        `high` over batches. A source that a direction does not have is missing there.

    Raises:
        InputError: all candidates are from one source.

    Examples:
        A hard negative with the score of the positive has the push that the others leave:

        >>> side = torch.eye(4, dtype=torch.float64)
        >>> embeddings = cocos.Embeddings(side, 2 * side, negatives=side)
        >>> data = cocos.measures.sources(embeddings, "mnrl", batch_size="all")
        >>> data["push"].sel(direction="q2c", source="own hard").item() > 0.99
        True
    """
    sampling = fill_options("sources", sampling, DEFAULTS)
    data = count(embeddings, loss, eps, **sampling)
    if "source" not in data.dims or data.sizes["source"] < 2:
        raise InputError(
            "sources: all candidates are from the batch; give embeddings with negatives, or a loss of several "
            "directions, like mnrl with -p directions=query-candidate,query-query"
        )
    over = ["batch", "query"]
    known = data["source_negatives"].notnull()
    number, push = data["source_negatives"].sum(over), data["source_push"].sum("query")
    names, dims, total = ("negatives", "contributing", "pulled"), ("direction", "source"), push.sum("source")
    batches = (push / total.where(total > 0)).fillna(0)
    found = {name: data[f"source_{name}"].where(known).mean(over) for name in names} | {
        "share": number / number.sum("source"),
        "push": push.sum("batch") / push.sum(["batch", "source"]),
        "low": batches.quantile(0.05, "batch").drop_vars("quantile"),
        "high": batches.quantile(0.95, "batch").drop_vars("quantile"),
    }
    made: dict[str, tuple] = {
        name: (dims, values.where(number > 0).transpose(*dims).values, *LABELS[name]) for name, values in found.items()
    }
    made["direction"] = ("direction", data["direction"].values.tolist())
    made["source"] = ("source", data["source"].values.tolist(), "source of the candidates")
    sizes = {"batches": data.sizes["batch"], "queries": int(np.nanmax(data["queries"].sum("batch").values))}
    return results.labelled(
        made, data.attrs | sizes | {"title": f"Sources of the push, {data.attrs['loss']}"}, measure="sources"
    )
