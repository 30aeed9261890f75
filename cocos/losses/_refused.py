"""Names of losses that cocos knows and does not compute, and why."""

import re

from cocos.base.errors import InputError

UNSPECIFIED = {"osap": "only its abstract could be read, and it has no published code, so its formula would be a guess"}
# Losses without negatives: name and spellings, without punctuation and the word loss, and the terms they have instead.
WITHOUT_NEGATIVES = {
    "vicreg": "it keeps up the variance of each dimension and draws their covariances to 0 (arXiv:2105.04906)",
    "barlowtwins barlow": "it draws the cross-correlations of the dimensions to the identity (arXiv:2103.03230)",
    "wmse": "it whitens the batch and draws positives together (arXiv:2007.06346)",
    "byol": "it draws the predictions of one network to the outputs of its moving average (arXiv:2006.07733)",
    "simsiam": "it draws the predictions of one view to the other, whose gradient is stopped (arXiv:2011.10566)",
}
GEOMETRY_COMMAND = "cocos evaluate FILE"


def refuse(name: str) -> None:
    """Refuse a loss that is known and cannot be computed.

    Args:
        name: in any spelling.
    """
    module = name.strip().lower().replace("-", "_")
    if module in UNSPECIFIED:
        raise InputError(f"loss {name!r} is unspecified: {UNSPECIFIED[module]}")
    plain = re.sub(r"[^a-z]", "", module).removesuffix("loss")
    for spellings, terms in WITHOUT_NEGATIVES.items():
        if plain in spellings.split():
            raise InputError(
                f"loss {name!r} has no negatives, so there is nothing to count: {terms}; {GEOMETRY_COMMAND} gives the "
                "alignment, uniformity and effective rank of its embeddings"
            )
