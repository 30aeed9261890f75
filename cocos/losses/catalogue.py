"""The built-in losses: one file each, found by the name of the file, the class or an alias."""

import dataclasses
import functools
import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

from cocos.base.errors import InputError, nearest
from cocos.losses.base import Loss

FOLDERS = (str(Path(__file__).parent),)
# Files of this folder that are not a loss.
COMMON_FILES = {
    "base",
    "catalogue",
    "combined",
    "foreign",
    "intercept",
    "libraries",
    "parameters",
    "recognise",
    "spelling",
}
# Losses without a published formula, and the reason for which cocos does not compute them.
UNSPECIFIED = {"osap": "only its abstract could be read, and it has no published code, so its formula would be a guess"}
# Losses that are not functions of the scores of a query, by their spellings without punctuation, and the reason.
BEYOND_SCORES = {
    "ibc intrabatch intrabatchconnections": (
        "a message-passing network, trained with the encoder, refines each embedding from the others of its batch, and "
        "a softmax classifies the result (Seidenschwarz et al. 2021, arXiv:2102.07753): without that network there is "
        "no gradient; normalized_softmax counts the classifier beside it"
    ),
    "quintuplet aoq adaptiveofflinequintuplet": (
        "two of the five rows of a pair are drawn from lists that a trained model made of the whole training set, and "
        "their scores of each other, without the query, enter a hinge (Chen et al. 2020, arXiv:2003.03669, as its "
        "published code has it); triplet_sh is the part within the batch, without its adaptive factor"
    ),
}
# Losses without negatives, by their spellings without punctuation and the word loss, and their terms.
WITHOUT_NEGATIVES = {
    "vicreg": "it keeps up the variance of each dimension and draws their covariances to 0 (arXiv:2105.04906)",
    "barlowtwins barlow": "it draws the cross-correlations of the dimensions to the identity (arXiv:2103.03230)",
    "wmse": "it whitens the batch and draws positives together (arXiv:2007.06346)",
    "byol": "it draws the predictions of one network to the outputs of its moving average (arXiv:2006.07733)",
    "simsiam": "it draws the predictions of one view to the other, whose gradient is stopped (arXiv:2011.10566)",
}


def names() -> list[str]:
    """Return the names of all built-in losses, which are those of their files.

    Examples:
        >>> "ntxent" in cocos.losses.names()
        True
    """
    return list(list_files(FOLDERS))


@functools.cache
def list_files(folders: tuple[str, ...]) -> list[str]:
    """Return the sorted names of the files of losses in these folders."""
    files = [module.name for module in pkgutil.iter_modules(folders) if not module.ispkg]
    return sorted(name for name in files if name not in COMMON_FILES)


def class_in_file(file: str) -> type[Loss]:
    """Import the loss that a file defines."""
    module = importlib.import_module(f"cocos.losses.{file}")
    classes = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Loss)]
    (loss_class,) = (
        value for value in classes if value.__module__ == module.__name__ and dataclasses.is_dataclass(value)
    )
    return loss_class


def simplify(name: str) -> str:
    """Drop the differences between spellings of a name: case, punctuation, the word loss at its end.

    Examples:
        >>> simplify("NT-Xent loss"), simplify("ProxyNCA++")
        ('ntxent', 'proxyncapp')
    """
    letters = re.sub(r"[^a-z0-9]", "", name.lower().replace("++", "pp"))
    return letters.removesuffix("loss") or letters


@functools.cache
def aliases(folders: tuple[str, ...]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the file and the implied parameters of each simplified name and alias."""
    files = {simplify(name): (name, dict[str, Any]()) for name in list_files(folders)}
    for file in list_files(folders):
        for alias, implied in class_in_file(file).aliases.items():
            files.setdefault(simplify(alias), (file, implied))
    return files


def find_file(name: str) -> str:
    """Return the file of a loss by its name or any alias; a hyphen may replace an underscore.

    Raises:
        InputError: an unknown loss (the message contains the nearest one), or one that cannot be counted.

    Examples:
        >>> find_file("InfoNCE")
        'ntxent'
    """
    file = name.strip().lower().replace("-", "_")
    if file in names():
        return file
    refuse_uncountable(name)
    if file.endswith(".py"):
        raise InputError(f"loss {name!r}: a file; add the name of a function or class in it, such as {name}:my_loss")
    files_by_alias = aliases(FOLDERS)
    if simplify(name) not in files_by_alias:
        raise InputError(nearest("loss", name, names()))
    return files_by_alias[simplify(name)][0]


def find_class(name: str) -> type[Loss]:
    """Return the class of a loss by its name or any alias.

    Raises:
        InputError: as `find_file`.
    """
    return class_in_file(find_file(name))


def implied_parameters(name: str) -> dict[str, Any]:
    """Return the parameters that an alias implies, as defaults.

    Examples:
        >>> implied_parameters("ClipLoss")
        {'temperature': 0.07}
    """
    if name.strip().lower().replace("-", "_") in names():
        return {}
    return dict(aliases(FOLDERS).get(simplify(name), ("", {}))[1])


def refuse_uncountable(name: str) -> None:
    """Refuse a loss that cannot be counted, in any spelling.

    Raises:
        InputError: the loss has no published formula, is not a function of the scores, or has no negatives.
    """
    letters = re.sub(r"[^a-z]", "", name.lower()).removesuffix("loss")
    if letters in UNSPECIFIED:
        raise InputError(f"loss {name!r}: unspecified, {UNSPECIFIED[letters]}")
    for spellings, reason in BEYOND_SCORES.items():
        if letters in spellings.split():
            raise InputError(f"loss {name!r}: not a function of the scores of a query, {reason}")
    for spellings, terms in WITHOUT_NEGATIVES.items():
        if letters in spellings.split():
            raise InputError(
                f"loss {name!r}: without negatives, so there is nothing to count: {terms}; cocos evaluate FILE gives "
                "the alignment, uniformity and effective rank of its embeddings"
            )
