"""Losses of some of a query's negatives, such as `top_k(ntxent)`: functions that make them, and their spellings."""

from dataclasses import fields
from typing import Any, cast

from cocos import losses
from cocos.base.errors import InputError
from cocos.losses.external._choices import KeptNegatives, RandomK, SemiHard, SkipK, TopK
from cocos.losses.external._wrapped import Spellings, head_of


def top_k(loss: Any, k: int) -> losses.TrainingLoss:
    """Keep the k hardest negatives of each query: those with the highest scores, of equal ones the first.

    The others get no weight, so that the loss has the weights and the unit of the reduced pairs. It is `top_k(NAME)`
    for `load` and on the command line.

    Args:
        loss: a loss, its name, or a function of yours. One that couples the queries of a batch takes the k hardest of
            each of them; one whose anchors are the candidates, or that reads embeddings, is refused.
        k: at least 1; a query with fewer negatives keeps all.

    Raises:
        InputError: a loss or a number that cannot be used.

    Examples:
        The hardest negative of the triplet loss is that of Triplet-SH:

        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.65]]), torch.tensor([[True, False, False]]))
        >>> cocos.losses.top_k("triplet", 1).weight(pairs)
        tensor([[-1.,  1.,  0.]])
        >>> cocos.losses.name_of(cocos.losses.top_k("ntxent", 16))
        'top_k(ntxent)'
    """
    return cast(losses.TrainingLoss, TopK(_loss(loss), k))


def random_k(loss: Any, k: int, seed: int = 0) -> RandomK:
    """Keep k random negatives of each query, beside `top_k`.

    The choice depends on the seed, the step, and the rows and columns of the pairs: the same Pairs get the same choice,
    and each step of a training its own by `loss.at(step)`.

    Args:
        loss: as for `top_k`.
        k: at least 1; a query with fewer negatives keeps all.
        seed: of the choice.

    Raises:
        InputError: a loss or a number that cannot be used.

    Examples:
        >>> pairs = cocos.Pairs(torch.zeros(4, 9), torch.eye(4, 9, dtype=torch.bool))
        >>> loss = cocos.losses.random_k("triplet", 3, seed=1)
        >>> [int((loss.at(step).weight(pairs) > 0).sum()) for step in (0, 1)]  # 3 for each of 4 queries
        [12, 12]
        >>> bool((loss.at(0).weight(pairs) == loss.at(1).weight(pairs)).all())
        False
    """
    return RandomK(_loss(loss), k, seed)


def skip_k(loss: Any, k: int) -> losses.TrainingLoss:
    """Leave out the k hardest negatives of each query, which may be false negatives, beside `top_k`.

    Args:
        loss: as for `top_k`.
        k: number of negatives that are left out, at least 1; a query with at most k negatives has none left.

    Raises:
        InputError: a loss or a number that cannot be used.

    Examples:
        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.7, 0.65]]), torch.tensor([[True, False, False]]))
        >>> cocos.losses.skip_k("triplet", 1).weight(pairs)
        tensor([[-1.,  0.,  1.]])
    """
    return cast(losses.TrainingLoss, SkipK(_loss(loss), k))


def semi_hard(loss: Any, margin: float | None = None) -> losses.TrainingLoss:
    """Keep the semi-hard negatives of each query: those that score below a positive of it, by less than the margin.

    Args:
        loss: as for `top_k`.
        margin: largest distance to the positive, in units of score; None: any, for losses with a margin of their own.

    Raises:
        InputError: a loss or a number that cannot be used.

    Source: Schroff et al. 2015, arXiv:1503.03832, eq. 4.

    Examples:
        Of three negatives, the first scores above the positive, and the last is too far away:

        >>> pairs = cocos.Pairs(torch.tensor([[0.8, 0.9, 0.7, 0.1]]), torch.tensor([[True, False, False, False]]))
        >>> cocos.losses.semi_hard("triplet", margin=0.2).weight(pairs)
        tensor([[-1.,  0.,  1.,  0.]])
    """
    return cast(losses.TrainingLoss, SemiHard(_loss(loss), margin))


def _loss(loss: Any) -> losses.Loss:
    return losses.load(loss) if isinstance(loss, str) else losses.of(loss)


CHOICES_OF_NEGATIVES: dict[str, type[KeptNegatives]] = {
    wrapper.word: wrapper for wrapper in (TopK, RandomK, SkipK, SemiHard)
}


def _chosen(wrapper: type[KeptNegatives]) -> set[str]:
    return {field.name for field in fields(wrapper)} - {"loss"}


SPELLINGS_OF_CHOICES = Spellings[KeptNegatives](CHOICES_OF_NEGATIVES, _chosen)
parted, canonical = SPELLINGS_OF_CHOICES.parted, SPELLINGS_OF_CHOICES.canonical
known, qualified = SPELLINGS_OF_CHOICES.known, SPELLINGS_OF_CHOICES.qualified


def _number(text: str, key: str, value: Any) -> int | float | None:
    """A parameter of the choice, from a number or from text: a margin, or None for no margin; else a whole number."""
    whole = key != "margin"
    if not whole and str(value).lower() == "none":
        return None
    try:
        return int(str(value)) if whole else float(value)
    except (TypeError, ValueError):
        kind = "a whole number" if whole else "a number, or none"
        raise InputError(f"{text}: {key} must be {kind}, got {value!r}") from None


def load(text: str, parameters: dict[str, Any]) -> KeptNegatives:
    """Build the loss and its choice: `k`, `seed`, `step` or `margin`; others are parameters of the loss.

    Raises:
        InputError: a loss or a parameter that cannot be used, or no `k`.
    """
    wrapper, inner = SPELLINGS_OF_CHOICES.parts(text)
    given = qualified(text, parameters)
    own: dict[str, Any] = {key: _number(text, key, given.pop(key)) for key in _chosen(wrapper) & given.keys()}
    if "k" in _chosen(wrapper) - own.keys():
        raise InputError(f"{text}: give k, the number of negatives that a query keeps or skips, like -p k=16")
    head = head_of(inner)
    return wrapper(losses.load(inner, {key.removeprefix(head): value for key, value in given.items()}), **own)
