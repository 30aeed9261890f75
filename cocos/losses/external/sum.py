"""Losses added with coefficients: `triplet+0.5*contrastive_cosine`."""

import functools
import itertools
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cocos import losses
from cocos.base.errors import InputError, nearest
from cocos.embeddings.scores import Pairs
from cocos.losses.external.guard import UNKNOWN_UNIT, UNKNOWN_UNIT_OF_A_TERM
from cocos.losses.external.traits import StatesTraits, Traits, traits_of

CAUTION = ("exact", "stop_gradient", "autograd", "pseudo")  # a sum is as weak as its weakest term


@dataclass(frozen=True)
class Sum(StatesTraits):
    r"""Weighted sum of losses of the same scores.

    .. math:: \ell = \sum_t c_t \, \ell_t

    Weights and unit are the weighted sums of those of the terms. If the unit of a term is unknown, a share is a part of
    the query's own push.

    Args:
        terms: coefficients, above 0, and losses.

    Raises:
        InputError: two terms read different scores or directions, or match queries and candidates in different ways.
    """

    terms: tuple[tuple[float, losses.Loss], ...] = ()

    def __post_init__(self) -> None:
        known = [(losses.name_of(loss), loss.metric, traits_of(loss)) for _, loss in self.terms]
        # Which scores a loss of embeddings has is known when it is bound.
        sure = [each for each in known if each[2].reads != "embeddings" or each[2].bound]
        self._agree({metric: name for name, metric, _ in sure}, "reads {} scores")
        self._agree({" and ".join(own.directions): name for name, _, own in sure}, "reads the directions {}")
        matching = {own.matching: name for name, _, own in known if own.matching}
        self._agree(matching, "matches queries and candidates by {}")

    def _agree(self, kinds: dict[str, str], words: str) -> None:
        if len(kinds) > 1:
            said = " and ".join(f"{name} {words.format(kind.replace('_', ' '))}" for kind, name in kinds.items())
            raise InputError(f"loss {self.spelling}: {said}, so their weights cannot be added")

    @property
    def spelling(self) -> str:
        """Write the terms with their coefficients."""
        return "+".join(("" if c == 1 else f"{c:.15g}*") + losses.name_of(loss) for c, loss in self.terms)

    def __repr__(self) -> str:
        return " + ".join(("" if c == 1 else f"{c:.15g} * ") + repr(loss) for c, loss in self.terms)

    @cached_property
    def traits(self) -> Traits:  # type: ignore[override]
        """Traits that all terms have: scores, columns and batches are those of the first one."""
        terms = [loss for _, loss in self.terms]
        each = [traits_of(loss) for loss in terms]
        sources = {own.unit_from for own in each}
        unit_from = "unknown" if "unknown" in sources else "natural" if sources == {"natural"} else "sum"
        named = zip(map(losses.name_of, terms), each, strict=True)
        notes = [f"{name}: {note}" for name, own in named for note in own.notes if note != UNKNOWN_UNIT]
        first = next((loss for loss, own in zip(terms, each, strict=True) if own.reads != "embeddings"), terms[0])
        return Traits(
            metric=first.metric,
            couples=next((loss.couples for loss in terms if loss.couples != "query"), "query"),
            gradient=max((loss.gradient for loss in terms), key=CAUTION.index),
            balanced=all(loss.balanced for loss in terms),
            sample=terms[0].sample,
            reads="embeddings" if any(own.reads == "embeddings" for own in each) else "scores",
            directions=each[0].directions,
            requires=tuple(dict.fromkeys(name for own in each for name in own.requires)),
            graded=each[0].graded,
            matching=next((own.matching for own in each if own.matching), None),
            unit_from=unit_from,
            notes=(*notes, *([UNKNOWN_UNIT_OF_A_TERM] if unit_from == "unknown" else [])),
            terms=self.terms,
            spelling=self.spelling,
            reads_norms=any(loss.reads_norms for loss in terms),
            given={f"{losses.name_of(loss)}.{k}": v for loss in terms for k, v in losses.parameters(loss).items()},
        )

    def bind(self, pairs: Pairs) -> "Sum":
        """Settle the terms by a batch; the weights of each must be of the scores that the others read."""
        terms = tuple((c, loss.bind(pairs)) for c, loss in self.terms)
        for _, loss in terms:
            if len(terms) > 1 and traits_of(loss).own_scores:
                raise InputError(
                    f"loss {self.spelling}: the weights of {losses.name_of(loss)} are of scores of its own or of none, "
                    "so those of the other terms cannot be added to them"
                )
        return replace(self, terms=terms)

    def value(self, pairs: Pairs) -> Tensor:
        """Loss of each query, (Q,)."""
        return _added(c * loss(pairs) for c, loss in self.terms)

    def weight(self, pairs: Pairs) -> Tensor:
        """∂ Σ loss / ∂ score, (Q, C): by the closed form of each term that has one, by autograd elsewhere."""
        return _added(c * loss.weight(pairs) for c, loss in self.bind(pairs).terms)

    def unit_of(self, weights: Tensor, pairs: Pairs) -> Tensor:
        """The unit of weights that are known already, broadcastable to (Q, C)."""
        if self.traits.unit_from == "unknown":
            return weights.new_tensor(torch.nan)
        return _added(c * loss.unit(pairs) for c, loss in self.terms)

    def unit(self, pairs: Pairs) -> Tensor:
        """Weight of a candidate that has one unit of every term, broadcastable to (Q, C); NaN where one is unknown."""
        return self.bind(pairs).unit_of(pairs.scores, pairs)

    def radial(self, pairs: Pairs) -> Tensor:
        """∂ Σ loss / ∂ norm of the query, (Q,), of the terms that read norms; 0 without any."""
        parts = [c * loss.radial(pairs) for c, loss in self.terms if loss.reads_norms]
        return _added(parts) if parts else torch.zeros_like(pairs.scores[:, 0])


def _added(parts: Iterable[Tensor]) -> Tensor:
    return functools.reduce(torch.add, parts)


def _outside_parentheses(text: str) -> str:
    """Blank out what stands in parentheses: a sum in them is of a loss that is wrapped."""
    depth, found = 0, ""
    for letter in text:
        depth -= letter == ")"
        found += " " if depth > 0 else letter
        depth += letter == "("
    return found


def terms_of(text: str) -> list[tuple[float, str]]:
    """Read the coefficients and names of a sum; empty where the text is no sum."""
    if Path(text.rpartition(":")[0]).is_file():
        return []  # a folder may have a plus in its name
    outer = _outside_parentheses(text)
    cuts = [-1, *(each.start() for each in re.finditer(r"(?<![\d.][eE])\+", outer)), len(text)]
    if len(cuts) == 2 and "*" not in outer:
        return []
    found = []
    for start, end in itertools.pairwise(cuts):
        part, place = text[start + 1 : end], outer[start + 1 : end].rfind("*")
        coefficient, star, name = part[: max(place, 0)], place >= 0, part[place + 1 :]
        try:
            value = float(coefficient) if star else 1.0
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf or not name.strip():
            raise InputError(
                f"loss {text!r}: term {part.strip()!r}, expected a loss, or a number above 0 times one, like 0.5*ntxent"
            )
        if own := losses.brought(name):
            shelf, key = losses.canonical(name), next(iter(own))
            raise InputError(
                f"loss {text!r}: {name.strip()} is {shelf} with a {key} of its own; in a sum write {shelf} and "
                f"-p {shelf}.{key}={own[key]}"
            )
        found.append((value, losses.canonical(name)))
    return found


def canonical(text: str) -> str:
    """Write the sum as `Sum.spelling` does."""
    return "+".join(("" if c == 1 else f"{c:.15g}*") + name for c, name in terms_of(text))


def qualified(text: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Put the name of its term before each parameter."""
    names = [name for _, name in terms_of(text)]
    owned = [losses.known(name) for name in names]
    found = {}
    for key, value in parameters.items():
        places = [
            (name, key.removeprefix(f"{name}."))
            for name, own in zip(names, owned, strict=True)
            if key.startswith(f"{name}.") or own is None or key.partition(".")[0] in own
        ]
        spelled = [place for place in places if key.startswith(f"{place[0]}.")]
        places = spelled or places
        if not places:
            raise InputError(nearest(f"parameter of {text}", key, known(text) or ()))
        if len({name for name, _ in places}) > 1:
            raise InputError(
                f"parameter {key!r} of {text}: more than one term has it; write "
                f"{' or '.join(f'{name}.{own}' for name, own in places)}"
            )
        name, own = places[0]
        for at, settled in losses.qualified(name, {own: value}).items():  # a scale may be a temperature
            if f"{name}.{at}" in found:
                raise InputError(f"parameter {name}.{at} of {text} is given twice")
            found[f"{name}.{at}"] = settled
    return found


def known(text: str) -> set[str] | None:
    """List the parameters of all terms, with the name of the term before each; None: any."""
    found = set()
    for _, name in terms_of(text):
        own = losses.known(name)
        if own is None:
            return None
        found |= {f"{name}.{parameter}" for parameter in own}
    return found


def load(text: str, parameters: dict[str, Any]) -> Sum:
    """Build a sum from its terms; a parameter is `TERM.NAME`, or `NAME` where one term alone has it."""
    terms = terms_of(text)
    names = [name for _, name in terms]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"loss {text!r}: {name} stands in it twice; add up its coefficients")
    chosen: dict[str, dict[str, Any]] = {name: {} for name in names}
    for key, value in qualified(text, parameters).items():
        name = next(name for name in sorted(names, key=len, reverse=True) if key.startswith(f"{name}."))
        chosen[name][key.removeprefix(f"{name}.")] = value
    return Sum(tuple((c, losses.load(name, chosen[name])) for c, name in terms))
