"""What if: the same batches under other settings, the temperature for a number of negatives, or where one settles."""

from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from cocos.base.errors import InputError
from cocos.checkpoints import Checkpoint
from cocos.embeddings.embeddings import Embeddings
from cocos.measures.replay import replay
from cocos.measures.solve import solve
from cocos.measures.temperature import temperature


def whatif(
    embeddings: Embeddings | Checkpoint,
    loss="ntxent",
    what: str | Sequence[str] | Mapping[str, Any] | None = None,
    *,
    effective: float | None = None,
    settles: bool = False,
    **options: Any,
) -> xr.Dataset:
    """Recount batches with other settings (`what`), solve for a parameter (`effective`), or find an equilibrium.

    Args:
        embeddings: embeddings of the training set, or a checkpoint (its training set is encoded).
        loss: the loss, or its name.
        what: settings to change, as `replay` takes them; None: several of each.
        effective: find the temperature, scale or margin with this effective number of negatives, as `solve`.
        settles: find where a learned temperature settles, as `temperature`.
        **options: of `replay`, `solve` or `temperature`, such as `eps`, `batch_size` and `seed`.

    Raises:
        InputError: see the three measures; or `what` with `effective` or `settles`.

    Examples:
        >>> rows = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
        >>> data = cocos.measures.whatif(cocos.Embeddings(rows, rows + 0.5), what={"temperature": [0.05]})
        >>> data["variant"].values.tolist()
        ['as it is', 'temperature 0.05']
    """
    if (settles or effective is not None) and (what is not None or "by" in options):
        raise InputError("what, by: not with effective or settles, which change one parameter")
    if settles:
        return temperature(embeddings, loss, effective=effective, **options)
    if effective is not None:
        return solve(embeddings, loss, effective=effective, **options)
    return replay(embeddings, loss, what, **options)
