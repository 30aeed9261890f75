"""Names of losses: built-in and third-party losses, sums and wrappers, such as `triplet+0.5*top_k(ntxent)`."""

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cocos.base import user_code
from cocos.base.errors import InputError, nearest
from cocos.losses import catalogue, foreign, libraries, parameters
from cocos.losses.base import Loss
from cocos.losses.combined import WRAPPERS, Sum


@dataclass(frozen=True)
class Spelling:
    """A parsed name: a sum if it has `coefficients`, a wrapper if it has a `word`, else a single loss.

    Args:
        name: the one spelling of the loss, as in `Loss.name`.
        alias: the text of a single loss as it was written.
        word: name of a wrapper.
        coefficients: of the terms of a sum.
        parts: the terms, or the loss in the wrapper.
    """

    name: str
    alias: str = ""
    word: str = ""
    coefficients: tuple[float, ...] = ()
    parts: "tuple[Spelling, ...]" = ()

    def nodes(self, prefix: str = "") -> "list[tuple[str, Spelling]]":
        """Return the wrappers and single losses in it, each with the prefix of its parameters."""
        nodes = [] if self.coefficients else [(prefix, self)]
        for part in self.parts:  # a sum in a wrapper has no prefix, its terms have their own
            nodes += part.nodes(prefix if self.word and part.coefficients else f"{prefix}{part.name}.")
        return nodes

    def own_names(self) -> set[str] | None:
        """Return the names of the parameters of a wrapper or a single loss; None for code, if any name may be one."""
        if self.word:
            return {*parameters.fields_by_name(WRAPPERS[self.word])} - {"loss"}
        if is_library(self.name):
            row = libraries.find_row(self.name)[1]
            return (parse(row.built_in).parameter_names() or set()) | row.parameter_names
        return None if ":" in self.name else parameters.accepted_names(catalogue.class_in_file(self.name))

    def parameter_names(self) -> set[str] | None:
        """Return the names of all parameters, with the prefixes of their losses; None if any name may be one."""
        names_by_prefix = {prefix: node.own_names() for prefix, node in self.nodes()}
        if None in names_by_prefix.values():
            return None
        return {f"{prefix}{name}" for prefix, names in names_by_prefix.items() for name in names or ()}

    def implied(self) -> dict[str, Any]:
        """Return the parameters that aliases imply, with the prefixes of their losses."""
        implied = {prefix: catalogue.find(node.alias)[1] for prefix, node in self.nodes() if node.is_built_in}
        return {f"{prefix}{name}": value for prefix, values in implied.items() for name, value in values.items()}

    @property
    def is_built_in(self) -> bool:
        """Whether it is a single built-in loss."""
        return not self.parts and ":" not in self.name

    def qualify(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters by their full names: with the prefix of their loss, `scale` as `temperature`.

        Raises:
            InputError: an unknown or ambiguous parameter, or one that is given twice.
        """
        qualified: dict[str, Any] = {}
        for (prefix, node), own_values in zip(self.nodes(), self.distribute(values), strict=True):
            renamed = own_values
            if node.is_built_in:
                renamed = parameters.resolve_scale(node.name, catalogue.class_in_file(node.name), own_values)
            elif is_library(node.name):
                renamed = libraries.rename(node.name, own_values)
            qualified |= {f"{prefix}{name}": value for name, value in renamed.items()}
        return qualified

    def distribute(self, values: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the parameters of each node by their own names.

        Raises:
            InputError: no node or more than one has a parameter, or it is given twice.
        """
        nodes = self.nodes()
        values_by_node: list[dict[str, Any]] = [{} for _ in nodes]
        owners: dict[str, int] = {}
        for index, (prefix, node) in enumerate(nodes):
            names = node.own_names()
            if names is None:  # code checks its own parameters
                names = {name.removeprefix(prefix) for name in values if name.startswith(prefix)}
            owners |= {f"{prefix}{name}": index for name in names}
        for name, value in values.items():
            full_names = [name] if name in owners else [full for full in owners if full.endswith(f".{name}")]
            if not full_names:
                of_code = {f"{prefix}NAME" for prefix, node in nodes if node.own_names() is None}
                raise InputError(nearest(f"parameter of {self.name}", name, owners.keys() | of_code))
            if len(full_names) > 1:
                terms = " or ".join(full_names)
                raise InputError(f"parameter {name!r} of {self.name}: more than one term has it; write {terms}")
            index = owners[full_names[0]]
            short_name = full_names[0].removeprefix(nodes[index][0])
            if short_name in values_by_node[index]:
                raise InputError(f"parameter {full_names[0]} of {self.name} is given twice")
            values_by_node[index][short_name] = value
        return values_by_node

    def build(self, values: dict[str, Any]) -> Loss:
        """Build the loss.

        Raises:
            InputError: an unknown, ambiguous or missing parameter, or a value out of range.
        """
        return self.build_nodes(iter(self.distribute(values)))

    def build_nodes(self, values_by_node: Iterator[dict[str, Any]]) -> Loss:
        """Build the loss with the parameters of its nodes, in the order of `nodes`."""
        values = {} if self.coefficients else next(values_by_node)
        losses = [part.build_nodes(values_by_node) for part in self.parts]
        if self.coefficients:
            return Sum(tuple(zip(self.coefficients, losses, strict=True)))
        if self.word:
            return parameters.build(self.name, WRAPPERS[self.word], values, loss=losses[0])
        if is_library(self.name):
            return build_library_loss(self.name, values)
        if ":" in self.name:
            return foreign.as_loss(user_code.load(self.name, "loss"), self.name, values)
        loss_class = catalogue.class_in_file(self.name)
        return parameters.build(
            self.name, loss_class, self.implied() | parameters.resolve_scale(self.name, loss_class, values)
        )


def is_library(name: str) -> bool:
    """Return whether a name has the prefix of a library."""
    return name.partition(":")[0].strip().lower() in libraries.VERSIONS and ":" in name


def build_library_loss(name: str, values: dict[str, Any]) -> Loss:
    """Return the built-in loss of a library's name, with the library's defaults.

    Raises:
        InputError: as `Spelling.build`.

    Examples:
        >>> build_library_loss("colpali:BiSigmoidLoss", {"scale": 20})
        SigLIP(scale=20.0, bias=0.0)
    """
    name, row = libraries.find_row(name)
    built_in, values, metric = libraries.translate(name, values)
    spelling = parse(built_in)
    loss = spelling.build(spelling.qualify(dict(row.defaults)) | spelling.qualify(values))
    note = f"{name} is counted as {loss!r}, with the defaults of {libraries.VERSIONS[name.partition(':')[0]]}"
    notes = (*loss.notes, f"{note}; {row.note}" if row.note else note)
    loss.set_attributes(notes=notes, metric=metric or loss.metric)
    return loss


def parse(text: str) -> Spelling:
    """Parse the name of a loss.

    Raises:
        InputError: an unknown loss, or a sum with a wrong coefficient or one term twice.

    Examples:
        >>> parse("VSE++ + 0.5*Top-K(InfoNCE)").name
        'triplet_sh+0.5*top_k(ntxent)'
    """
    text = text.strip() if ":" in text else text.strip().replace("++", "pp")  # as in VSE++
    path, _, attribute = text.rpartition(":")
    parts = [] if Path(path).is_file() and "+" not in attribute else split_sum(text)  # a path may contain a plus
    if len(parts) > 1 or (parts and "*" in blank_parentheses(text)):
        coefficients, terms = zip(*(parse_term(text, part) for part in parts), strict=True)
        names = [term.name for term in terms]
        if len(set(names)) < len(names):
            raise InputError(f"loss {text!r}: a term twice, expected once; add up its coefficients")
        return Spelling(Sum.spell(coefficients, names), coefficients=coefficients, parts=terms)
    call = re.fullmatch(r"([a-z_-]+)\s*\((.*)\)", text, re.IGNORECASE)
    word = call[1].lower().replace("-", "_") if call else ""
    if call and word in WRAPPERS:
        inner = parse(call[2])
        return Spelling(f"{word}({inner.name})", word=word, parts=(inner,))
    if is_library(text):
        return Spelling(libraries.find_row(text)[0])
    return Spelling(text if ":" in text else catalogue.find_file(text), alias=text)


def split_sum(text: str) -> list[str]:
    """Split a sum at each plus outside parentheses that is not part of a number."""
    pluses = re.finditer(r"(?<![\d.][eE])\+", blank_parentheses(text))
    cuts = [-1, *(plus.start() for plus in pluses), len(text)]
    return [text[start + 1 : end] for start, end in itertools.pairwise(cuts)]


def blank_parentheses(text: str) -> str:
    """Replace everything in parentheses by spaces."""
    depth, letters = 0, ""
    for letter in text:
        depth -= letter == ")"
        letters += " " if depth > 0 else letter
        depth += letter == "("
    return letters


def parse_term(text: str, part: str) -> tuple[float, Spelling]:
    """Parse a term of a sum: a loss, or a number above 0 times one."""
    star = blank_parentheses(part).rfind("*")
    try:
        coefficient = float(part[:star]) if star >= 0 else 1.0
    except ValueError:
        coefficient = math.nan
    name = part[star + 1 :].strip()
    if not 0 < coefficient < math.inf or not name:
        raise InputError(
            f"loss {text!r}: term {part.strip()!r}, expected a loss, or a number above 0 times one, like 0.5*ntxent"
        )
    return coefficient, parse(name)
