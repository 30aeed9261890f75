"""Measures that place each weight at a query and a candidate, and so cannot use scores of further directions."""

from cocos import losses
from cocos.base.errors import InputError
from cocos.embeddings.sources import DIRECTIONS


def check(loss: losses.Loss, measure: str, *, teacher: bool = True, graded: bool = False) -> None:
    """Refuse a loss that reads more than the scores of queries with candidates.

    Args:
        loss: the loss.
        measure: its name, for the message.
        teacher: whether the measure has the scores of a teacher, where the embeddings have them.
        graded: whether the embeddings have grades, so that a weight may be of the score of a graded pair.

    Examples:
        >>> check(cocos.losses.load("ntxent"), "decomposition")
    """
    traits = losses.traits(loss)
    further = [f"{name} scores" for name in traits.directions if name != DIRECTIONS[0]]
    further += [] if teacher else [f"the {name}" for name in traits.requires]
    further += ["the scores of other graded pairs"] if graded and traits.graded else []
    if further:
        raise InputError(
            f"loss {losses.name_of(loss)}: it also reads {' and '.join(further)}, for which {measure} has no place; "
            "cocos count can count it"
        )
