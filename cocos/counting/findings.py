"""Findings: what a result says beyond its numbers, as data. A kind of finding is a row of `KINDS`, with its sentence.

A finding is made where it is found, from the row of its kind and the numbers of the sentence, and nothing decides by
reading the sentence. A Dataset keeps those about its input and its batches: as text in the attribute `notes`, a
sentence a line, and as JSON in `findings`. `cocos.reports.findings.of` collects all that a result has.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cocos.base.untrusted import parsed

# The numbers mean little here; a fact to know before the next training; a remark on a number; nothing to do.
SEVERITIES = ("stop", "look", "note", "ok")
# Where a sentence stands: before the answer of a table, after it, below the table, or on stderr alone.
PLACES = ("first", "above", "below", "note")


@dataclass(frozen=True)
class Kind:
    """A row of `KINDS`.

    Args:
        severity: of `SEVERITIES`.
        looks: what was looked for, in words; empty for a remark that is not looked for by itself.
        sentence: template of its numbers.
        cure: what to try; a sentence with `{cure}` has it too.
        place: of `PLACES`.
        key: where the JSON document of the result has its numbers.
        warns: word of warning before the sentence.
        limited: template of the limit, which says what is compared with it.
    """

    severity: str
    looks: str = ""
    sentence: str = ""
    cure: str = ""
    place: str = "note"
    key: str = ""
    warns: str = ""
    limited: str = ""

    @property
    def warning(self) -> str:
        """What stands before the sentence."""
        return f"{self.warns}: " if self.warns else ""

    @property
    def ends_in_cure(self) -> bool:
        """Whether the sentence has the cure in a part of its own, which can be left out."""
        return CURE_APART in self.sentence

    @property
    def tells_cure(self) -> bool:
        """Whether the sentence has the cure."""
        return "{cure}" in self.sentence or "{Cure}" in self.sentence


@dataclass(frozen=True)
class Finding:
    """Something that a result has, lacks, or cannot show.

    Args:
        kind: of `KINDS`, a detector, or a fault of `cocos verify`.
        sentence: as users read it.
        severity: of `SEVERITIES`.
        numbers: those that it is made from; None where one is unknown.
        limit: what the deciding number was compared with.
        interval: of the deciding number.
        part: of the push, or of the queries, that it affects, 0 to 1.
        cure: what to try.
        command: that looks further, with its options.
        place: of `PLACES`.
        key: where the JSON document has the numbers.
        of: directions, or names of results, that it is about; none: the whole result.
        loss: label of the loss, where a result has several.
        state: `found`; `absent`, looked for and not found; or `unseen`, it could not be looked for.
        looks: what was looked for, where it is not found; its plain data have it in the sentence alone.
    """

    kind: str
    sentence: str
    severity: str = "note"
    numbers: Mapping[str, Any] = field(default_factory=dict)
    limit: float | None = None
    interval: tuple[float, float] | None = None
    part: float | None = None
    cure: str = ""
    command: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    place: str = "note"
    key: str = ""
    of: tuple[str, ...] = ()
    loss: str = ""
    state: str = "found"
    looks: str = ""

    @property
    def row(self) -> Kind:
        """Its row of `KINDS`; of a detector, or a fault of `cocos verify`, one that says nothing."""
        return KINDS.get(self.kind, Kind(self.severity))

    @property
    def unwarned(self) -> str:
        """The sentence without the word of warning before it, which its severity says as well."""
        return self.sentence.removeprefix(self.row.warning)

    def document(self) -> dict[str, Any]:
        """As plain data.

        Examples:
            >>> cocos.counting.findings.made("turned", width=3, rows=40).document()["severity"]
            'look'
        """
        return {name: value for name, value in asdict(self).items() if name != "looks"}


# Where a sentence has its cure in a part of its own.
CURE_APART = "; {cure}"
# Causes and cures that several sentences share.
LOST_COUNT = "a count of weights says nothing here of the gradient that reaches the encoder"
LEFT_OUT = "{file} is left out: {reason}"
NORMS = "the embeddings have norms {low:.3g} to {high:.3g}"
KINDS = {
    # Of the embeddings: made by `cocos.counting.health`.
    "collapsed": Kind(
        "stop",
        "a side of the embeddings that is one point",
        "the embeddings have collapsed: {sides} are one point up to rounding, so no score tells them apart; "
        + LOST_COUNT,
        "look where it came about, with cocos run and the earlier checkpoints",
        "first",
        "health.collapsed",
        "WARNING",
    ),
    "mispaired": Kind(
        "stop",
        "positives that score no higher than chance",
        "positives score no higher than chance: {above:.0f} % of the negatives score above them (50 % is "
        "chance), R@1 of {queries} queries {nearest:.1f} %, alignment {alignment:.2f}; either the model has learned "
        "nothing, or rows do not match those of the other side: {cure}",
        "look at their order or groups",
        "first",
        "health.at_chance",
        "CAUTION",
    ),
    "alike": Kind(
        "stop",
        "candidates that all point almost in one direction",
        "the embeddings have nearly collapsed: random pairs of candidates have a mean cosine of "
        "{similarity:.3g} (above {limit:g}), so that they are hard to tell apart and no temperature helps; {cure}",
        "look since when, with cocos run and the earlier checkpoints, and lower the learning rate or warm it up there; "
        "if it was so before any training, look at a batch as the network gets it",
        "first",
        "health.alike",
        "CAUTION",
        limited="a mean cosine of {limit:.3g}",
    ),
    "turned": Kind(
        "look",
        "arrays whose columns have length 1, and whose rows do not",
        "the columns have length 1 and the rows do not: rows are items, so the arrays are turned if these are "
        "{width} items of {rows} numbers; {cure}",
        "transpose them",
        "first",
        warns="CAUTION",
    ),
    "divided norms": Kind(
        "look",
        sentence=NORMS + "; {library} divides them by their norms before {loss}, and so they are here",
        place="first",
        warns="CAUTION",
    ),
    "raw norms": Kind(
        "look",
        sentence=NORMS + ", and {loss} reads their inner products as they are: if the model is trained on unit "
        "vectors, {cure}, since these counts are of other scores{adapted}",
        cure="divide them by their norms first",
        place="first",
        warns="CAUTION",
    ),
    "norms of distances": Kind(
        "note",
        sentence="distances of the embeddings as they are, of norms {low:.3g} to {high:.3g}; {cure} if the loss is "
        "trained on unit vectors",
        cure="divide them by their norms first",
    ),
    "no variances": Kind(
        "note", sentence="no variances of the candidates are given, so each is 1 (proxy_variance in the file sets them)"
    ),
    "unread grades": Kind(
        "note",
        sentence="grades are not read by {loss}, so that every row is a positive pair; cosent and angle read them",
    ),
    "no grades": Kind(
        "note",
        sentence="no grades: {loss} sets the positive of each query above its negatives, as if all had two grades",
    ),
    # Of a count: verdicts of `cocos.counting.verdicts`, of which the first that fits is found.
    "silent": Kind(
        "stop",
        "queries that no negative pushes",
        "Silent: no negative pushes any query, so that the count has nothing to describe.",
        "a larger margin, harder negatives or a larger batch",
        "above",
        "verdicts",
    ),
    "flat": Kind(
        "look",
        "a push that is spread over the whole batch",
        "Flat: the effective number of negatives is {effective} of {negatives}, so that hard ones weigh little more "
        "than easy ones.",
        "a smaller temperature or margin",
        "above",
        "verdicts",
        limited="{percent} of the batch",
    ),
    "thin": Kind(
        "look",
        "many light negatives in place of contributing ones",
        "Thin: most queries have no negative above {percent}, yet hold {idle_pull} of the pull: many light negatives "
        "share the push, {effective} in effect. {Cure}.",
        "report the effective number, or a smaller eps",
        "above",
        "verdicts",
        limited="{percent} of the queries",
    ),
    "starved": Kind(
        "look",
        "queries without a contributing negative, most of them",
        "Starved: most queries have no negative that contributes; the other {rest} hold {rest_pull} of the pull.",
        "a larger temperature or margin, a larger batch, or harder negatives",
        "above",
        "verdicts",
        limited="{percent} of the queries",
    ),
    "sharp": Kind(
        "look",
        "a push on one negative or two",
        "Sharp: the effective number of negatives is {effective}, so that a single false negative would have most of "
        "the push.",
        "look for false negatives, or a larger temperature",
        "above",
        "verdicts",
        limited="{limit:.3g} effective negatives",
    ),
    "wasteful": Kind(
        "look",
        "a push on a small part of the batch",
        "Wasteful: the effective number of negatives is {effective} of {negatives}; the others are scored and hardly "
        "push.",
        "a smaller batch, or a larger temperature or margin",
        "above",
        "verdicts",
        limited="{percent} of the negatives",
    ),
    "fine": Kind(
        "ok",
        sentence="Fine: the effective number of negatives is {effective} of {negatives}, neither one negative nor the "
        "whole batch.",
        place="above",
        key="verdicts",
    ),
    # Of a direction of a count.
    "clamped": Kind(
        "look",
        "queries on a clamp of the loss",
        "{name}: {clamped} of the queries in a batch are on the clamp of the loss and push nothing; {cure}.",
        "raise temperature ({temperature:g}) or lower prior ({prior:g})",
        "above",
        "directions.{name}.clamped",
    ),
    "by source": Kind("note", "", "{name}, by source: {sources}.", "", "above", "directions.{name}.sources"),
    "filtered": Kind(
        "note",
        "",
        "{name}: the filter suspects {some} negatives per query, which have {push} % of the push without it.",
        "",
        "above",
        "directions.{name}.masked",
    ),
    # Of the filter `percent`, in a count and in an audit.
    "below zero": Kind(
        "look",
        "positives below 0, where the filter `percent` is turned",
        "{name}: the positives of {number} queries score below 0, where `percent` of the score is above the score, so "
        "that it keeps negatives above the positive; {cure}{end}",
        "the filter `relative_margin` takes a part of the magnitude off instead",
        "above",
        "directions.{name}.below_zero",
    ),
    "pulled": Kind(
        "look",
        "negatives that are pulled",
        "{name}: {number} of the contributing negatives per query are pulled, and have no part of the push.",
        "look at the labels, and at the sign of a loss of your own",
        "above",
        "directions.{name}.pulled_negatives",
    ),
    "marked": Kind(
        "note",
        "",
        "{name}, {label}: {negatives} % of the negatives and {push} % of the push (as many random negatives: "
        "{placebo} %).",
        "",
        "above",
        "directions.{name}.marks",
    ),
    "no active query": Kind(
        "note",
        "batches without any contributing negative",
        "batches without any contributing negative: {each}, left out of C^A",
        "",
        "below",
        "batches_without_active_queries",
    ),
    "ranked": Kind(
        "note",
        "",
        "R@k and ranks: all queries of the set against all of its candidates; {singles}",
        "",
        "below",
        "metrics",
    ),
    "undecided": Kind(
        "note",
        "shares too near eps to decide",
        "{name}: {number} candidates of {queries} queries are too near eps to decide, so the sum of their counts may "
        "be off by that many",
        "count in float64",
        "below",
        "directions.{name}.uncertain",
    ),
    "undecided part": Kind(
        "note",
        "parts of the push too near eps to decide",
        "{name}: {number} candidates have a part of the push too near {percent} to decide",
        "count in float64",
        "below",
        "directions.{name}.relative_uncertain",
    ),
    "one group": Kind(
        "note",
        "pairs of rows of one group in a batch",
        "{number} pairs of rows in the batches {alike}, {fate} (published: kept)",
        place="below",
        key="same_group_pairs",
    ),
    "copies": Kind(
        "note",
        "copies of candidates in a batch",
        "copies of candidates among the pairs drawn: {number}; {fate} (published: kept)",
        "",
        "below",
        "directions.{name}.repeated",
    ),
    "repeated rows": Kind(
        "look",
        "rows that repeat another one",
        "{name}: {number} of {rows} rows repeat another, up to rounding, so that a copy of the match of a query may be "
        "pushed away",
        "groups that say which rows match, or data without them",
        "below",
        "health.sides.{name}.near_duplicates",
        limited="{percent} of the rows",
    ),
    "undrawn": Kind("note", "rows that are in no batch", "{text}", "", "below", "not_drawn"),
    "convention": Kind("note", "", "{text}", "", "below"),
    "float32": Kind(
        "note",
        sentence="float32: a candidate within about 1e-6 of its threshold may fall on either side; {cure}",
        cure="float64 decides it",
    ),
    "changed form": Kind(
        "note",
        sentence="in other batches its weights are of no form whose unit can be measured, so that the unit is not "
        "known after all ({cure})",
        cure="-p unit= gives it",
    ),
    "no kernel": Kind(
        "note",
        sentence="no compiled kernel, so that PyTorch reads the scores, several times as slowly: {reason}",
        cure="install a C compiler (cc, gcc or clang) or name one with CC",
    ),
    # Of an audit.
    "suspected": Kind(
        "look",
        "negatives that are suspected of being positives",
        "{name}: {push} of the push is on {share} of the negatives, which are suspected of being positives; {met} of "
        "the queries have one",
        "read and relabel them: cocos audit FILE --out suspects.csv writes all suspected pairs, the largest push first",
        "above",
        "directions.{name}.rules",
        limited="{percent} of the push",
    ),
    "no rule": Kind(
        "look",
        "a rule that suspects most of the negatives",
        "{name}: the rule `{rule}` suspects {share} of the negatives (above {most}), so that it tells none of them "
        "from the others; {cure}",
        "leave it out with --rules, or look at what it reads",
        "above",
        "directions.{name}.rules",
        limited="{percent} of the negatives",
    ),
    "kept copies": Kind(
        "note",
        "copies of a positive that a filter keeps",
        "{name}: a copy of the positive scores exactly as the positive does: filters that remove higher scores alone "
        "(self, guide without a margin) keep it",
        "a margin of the guide, or the filter `percent`",
        "below",
        "directions.{name}.filters",
    ),
    "cut texts": Kind("note", sentence="{number} texts were cut to {most} characters, and are compared by these"),
    # Of a run.
    "left out": Kind("look", "checkpoints that cannot be read", LEFT_OUT, "", "above", "left_out"),
    "not finite": Kind("stop", "checkpoints with NaN or infinity", LEFT_OUT, "", "above", "left_out"),
    # Of a comparison: settings, what is left out, and values without an interval.
    "differs": Kind(
        "note", sentence="{what} differs, {first} in {one} and {second} in {other}: part of a change is its"
    ),
    "one side alone": Kind("note", sentence="{side}: {number} queries are in {name} alone and left out"),
    "other batches": Kind(
        "note",
        sentence="{side}: the batches differ, so that a query has other negatives, which adds noise to its change",
    ),
    "no pair": Kind(
        "note", sentence="no interval, for none of the {number} queries has a value in both (n = 0): {values}"
    ),
    "one group alone": Kind("note", sentence="no interval, for n = {number}, of one group: {values}"),
    "equal": Kind("note", sentence="no interval, for all n = {number} differences are {away:g}: {values}"),
    "changed": Kind(
        "look",
        "a change that is resolved",
        "{side} {metric}: {difference:+.4g} [{low:+.4g}, {high:+.4g}], Holm-adjusted p {chance}, {pairs:.0f} queries "
        "in both",
        "",
        "above",
        "directions.{side}.metrics.{metric}",
    ),
}
# Fields of a finding that a Dataset keeps.
KEPT_FIELDS = ("kind", "sentence", "severity", "numbers", "cure", "of")
# Kinds that are looked for in the embeddings of any result with a loss or a metric.
OF_EMBEDDINGS = ("collapsed", "mispaired", "alike", "turned")
# Kinds that are looked for in a count.
OF_COUNTS = (
    *OF_EMBEDDINGS,
    *("silent", "flat", "thin", "starved", "sharp", "wasteful"),
    *("clamped", "below zero", "pulled", "no active query", "undecided", "undecided part"),
    *("one group", "copies", "repeated rows", "undrawn"),
)


def made(
    kind: str,
    *,
    of: tuple[str, ...] = (),
    part: float | None = None,
    words: Mapping[str, str] | None = None,
    **numbers: Any,
) -> Finding:
    """A finding of a row of `KINDS`, with the numbers of its sentence, and words that stand in it for some.

    The number `limit` is what the deciding one was compared with.

    Examples:
        >>> cocos.counting.findings.made("cut texts", number=2, most=80).sentence
        '2 texts were cut to 80 characters, and are compared by these'
    """
    row = KINDS[kind]
    said = numbers | dict(words or {})
    cure = row.cure.format(**said)
    sentence = row.warning + row.sentence.format(**said, cure=cure, Cure=cure[:1].upper() + cure[1:])
    key = row.key.format(**said)
    limit, place = numbers.get("limit"), row.place
    return Finding(kind, sentence, row.severity, numbers, limit, part=part, cure=cure, place=place, key=key, of=of)


def attributes(found: Iterable[Finding | str]) -> dict[str, str]:
    """Attributes of a Dataset: `notes`, a sentence a line, and those of them that are findings, as JSON."""
    every = list(found)
    kept = [{name: getattr(each, name) for name in KEPT_FIELDS} for each in every if isinstance(each, Finding)]
    notes = (each.sentence if isinstance(each, Finding) else each for each in every)
    return {"notes": "\n".join(notes), "findings": json.dumps(kept, default=str)}


def added(attrs: Mapping[str, Any], more: Finding) -> dict[str, Any]:
    """Attributes of a Dataset with one more finding after the others."""
    own = attributes([more])
    notes = "\n".join(filter(None, [attrs.get("notes", ""), own["notes"]]))
    kept = json.dumps([*parsed(attrs.get("findings", "[]")), *parsed(own["findings"])], default=str)
    return {**attrs, "notes": notes, "findings": kept}


def noted(attrs: Mapping[str, Any]) -> list[Finding]:
    """The findings that a Dataset keeps in its attributes, in the order of its notes."""
    made = []
    for each in parsed(attrs.get("findings", "[]")):
        row = KINDS.get(each["kind"], Kind("note"))
        own = {name: each[name] for name in KEPT_FIELDS} | {"of": tuple(each["of"])}
        made.append(Finding(**own, limit=own["numbers"].get("limit"), place=row.place, key=row.key))
    return made


def right(value: Any) -> bool:
    """Whether plain data are findings that `noted` can read."""
    return isinstance(value, list) and all(
        isinstance(each, dict)
        and all(isinstance(each.get(name), str) for name in ("kind", "sentence", "severity", "cure"))
        and each["severity"] in SEVERITIES
        and isinstance(each.get("numbers"), dict)
        and isinstance(each.get("of"), list)
        and all(isinstance(name, str) for name in each["of"])
        for each in value
    )


def joined(several: Iterable[Mapping[str, Any]]) -> str:
    """The attribute `findings` of several Datasets together, each once."""
    kept = {each["sentence"]: each for attrs in several for each in parsed(attrs.get("findings", "[]"))}
    return json.dumps(list(kept.values()))


def first(attrs: Mapping[str, Any]) -> list[str]:
    """Sentences that stand before a table: on embeddings that have collapsed, and on the input."""
    return [each.sentence for each in noted(attrs) if each.place == "first"]


def collapsed(attrs: Mapping[str, Any]) -> bool:
    """Whether a side of the embeddings of a result has collapsed."""
    return any(each.kind == "collapsed" for each in noted(attrs))
