"""Findings: facts needed to interpret the numbers of a result.

Findings of embeddings come from `cocos.counting.health`. A Dataset stores them in the attribute `findings`. The checks
here read counts, audits and comparisons.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import xarray as xr

from cocos.counting import averages

# Fractions of the queries and of the pull above which idle queries are the majority.
IDLE_QUERIES = MOST_PULL = 0.5
# Fraction of the negatives above which the push is spread over the whole batch, as for the detector `whole_batch`.
WHOLE_BATCH = 0.9
FEW_NEGATIVES = 8  # with fewer negatives per query, a push on nearly all of them is normal
ONE_OR_TWO = 2.0  # two equal negatives have an effective number of 2; below it, one of them dominates
SMALL_PART = 0.05  # half of the smallest fraction at which an optimum was found (docs/study.md: 46 of 511 negatives)
# Repeated rows, or a push on suspects, of 1 % change no mean in its first two digits.
LEAST_REPEATED = LEAST_PUSH = 0.01
MOST_SUSPECTED = 0.5  # a rule that suspects most of the negatives does not single any out
# Losses with a softmax or sigmoid of scale * score, which have an equilibrium temperature.
TEMPERED = ("ntxent", "supcon", "mnrl", "siglip")
# Embeddings without a verdict on their gradient: flag in the health of a count -> kind of the finding.
HEALTH_FLAGS = {"no_samples": "no samples", "collapsed": "collapsed", "at_chance": "mispaired", "alike": "alike"}
# Severity and cure of each kind of gradient.
GRADIENTS = {
    "silent": ("stop", "use a larger margin, harder negatives or a larger batch"),
    "flat": ("look", "use a smaller temperature or margin"),
    "thin": ("look", "report the effective number, or use a smaller eps"),
    "starved": ("look", "use a larger temperature or margin, a larger batch, or harder negatives"),
    "sharp": ("look", "look for false negatives, or use a larger temperature"),
    "wasteful": ("look", "use a smaller batch, or a larger temperature or margin"),
    "shared": ("ok", ""),
}
# Kinds of a direction of a count, the most severe first: of its embeddings, then of its gradient.
GRADIENT_KINDS = (*HEALTH_FLAGS.values(), *GRADIENTS)


@dataclass(frozen=True)
class Finding:
    """A fact that a reader of a result must know.

    Args:
        kind: identifier for programs.
        severity: stop (the numbers mean little), look, note, or ok.
        sentence: topic, status and labelled numbers.
        cure: suggestion; empty if there is nothing to change.
    """

    kind: str
    severity: str
    sentence: str
    cure: str = ""

    @property
    def text(self) -> str:
        """Sentence, followed by the cure if there is one.

        Examples:
            >>> cocos.counting.findings.Finding("mispaired", "stop", "pairs: mismatched", "check groups").text
            'pairs: mismatched. Check groups.'
        """
        return f"{self.sentence.rstrip('.')}. {self.cure[:1].upper()}{self.cure[1:]}." if self.cure else self.sentence

    def document(self) -> dict[str, str]:
        """Return the finding as plain data."""
        return asdict(self)


def attributes(entries: Iterable[Finding | str]) -> dict[str, str]:
    """Return attributes of a Dataset: `notes`, one text per line, and its findings as JSON in `findings`."""
    entries = list(entries)
    documents = [entry.document() for entry in entries if isinstance(entry, Finding)]
    notes = (entry.text if isinstance(entry, Finding) else entry for entry in entries)
    return {"notes": "\n".join(notes), "findings": json.dumps(documents)}


def stored(attrs: Mapping[str, Any], key: str = "findings") -> list[Finding]:
    """Return the findings in an attribute of a Dataset."""
    fields = ("kind", "severity", "sentence", "cure")
    return [Finding(*(entry[name] for name in fields)) for entry in json.loads(attrs.get(key, "[]"))]


def first(attrs: Mapping[str, Any]) -> list[str]:
    """Return the texts of stored findings that a reader must know before the numbers."""
    return [finding.text for finding in stored(attrs) if finding.severity in {"stop", "look"}]


def collapsed(attrs: Mapping[str, Any]) -> bool:
    """Return whether a side of the embeddings of a result has collapsed."""
    return any(finding.kind == "collapsed" for finding in stored(attrs))


def of(dataset: xr.Dataset) -> list[Finding]:
    """Return all findings of a result of any measure, of one loss; urgent findings of its embeddings first.

    Examples:
        >>> rows = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
        >>> data = cocos.measures.count(cocos.Embeddings(rows, rows.flip(0)), batch_size=32)
        >>> [(finding.kind, finding.severity) for finding in cocos.counting.findings.of(data)][:1]
        [('mispaired', 'stop')]
    """
    attrs, measure = dataset.attrs, dataset.attrs.get("measure")
    findings = stored(attrs)
    texts = {finding.text for finding in findings}
    findings += [Finding("note", "note", line) for line in attrs.get("notes", "").splitlines() if line not in texts]
    if measure in {"run", "monitor"}:
        return stored(attrs, "alarm_findings") + findings
    if measure == "audit":
        return findings + of_audit(dataset)
    if measure == "diff":
        return findings + of_diff(dataset)
    if measure == "count":
        urgent = [finding for finding in findings if finding.severity in {"stop", "look"}]
        return urgent + of_count(dataset) + [finding for finding in findings if finding not in urgent]
    return findings


def of_count(dataset: xr.Dataset) -> list[Finding]:
    """Return the findings that follow from the numbers of a count of one loss."""
    attrs, entries = dataset.attrs, averages.of_directions(dataset)
    health = json.loads(attrs["health"])
    findings = [] if any(health.get(flag) for flag in HEALTH_FLAGS) else gradient(entries, float(attrs["eps"]))
    for direction, entry in entries.items():
        findings += [*clamped(direction, entry, attrs), *below_zero(direction, entry), *pulled(direction, entry)]
    findings += [*undecided(entries), *same_group(dataset), *copies(entries, attrs), *repeated_rows(health)]
    undrawn = attrs.get("undrawn", "").splitlines()
    for line in filter(None, attrs.get("footnotes", "").splitlines()):
        findings.append(Finding("undrawn" if line in undrawn else "convention", "note", line))
    return findings


def gradient_kind(entry: Mapping[str, Any]) -> str:
    """Return the kind of gradient of one direction, of `GRADIENTS`, from its entry: statistic -> {"mean": ...}.

    A loss without a natural unit has no idle queries.
    """
    negatives, effective = mean(entry, "negatives"), mean(entry, "effective")
    fraction = effective / negatives if negatives else 0.0
    if not effective:
        return "silent"
    if fraction > WHOLE_BATCH and negatives >= FEW_NEGATIVES:
        return "flat"
    if mean(entry, "idle_fraction") > IDLE_QUERIES:
        return "thin" if mean(entry, "idle_pull") > MOST_PULL else "starved"
    if effective < ONE_OR_TWO:
        return "sharp"
    return "wasteful" if 0 < fraction < SMALL_PART else "shared"


def gradient(entries: Mapping[str, Mapping], eps: float) -> list[Finding]:
    """Return how the gradient is shared among queries and negatives: one finding for all directions of one kind."""
    kinds: dict[str, dict[str, Mapping]] = {}
    for direction, entry in entries.items():
        kinds.setdefault(gradient_kind(entry), {})[direction] = entry
    findings = []
    for kind, directions in kinds.items():
        numbers, idle_pulls, supplies = {}, {}, {}
        for name, entry in directions.items():
            numbers[name] = f"{rounded(mean(entry, 'effective'))} of {rounded(mean(entry, 'negatives'))}"
            idle, idle_pulls[name] = mean(entry, "idle_fraction"), percent(mean(entry, "idle_pull"))
            queries, pull = (" of queries", " of the pull") if not supplies else ("", "")
            supplies[name] = f"{percent(1 - idle)}{queries} supply {percent(1 - mean(entry, 'idle_pull'))}{pull}"
        effective = f"Effective negatives: {by_direction(numbers)}."
        sentence = {
            "silent": f"gradient: none, no negative pushes any query ({', '.join(directions)}).",
            "flat": f"gradient: flat, hard and easy negatives have nearly equal weights. {effective}",
            "thin": f"gradient: thin, queries without a negative above {100 * eps:.6g} % supply most of the pull: "
            f"{by_direction(idle_pulls)}. {effective}",
            "starved": f"gradient: starved, {by_direction(supplies)}.",
            "sharp": f"gradient: sharp, one false negative could dominate. {effective}",
            "wasteful": f"gradient: wasteful, push shared by only {by_direction(numbers, ' negatives')}.",
            "shared": f"spread of the push: OK, {by_direction(numbers, ' negatives share it')}.",
        }[kind]
        severity, cure = GRADIENTS[kind]
        findings.append(Finding(kind, severity, sentence, cure))
    return findings


def kinds_of_directions(dataset: xr.Dataset) -> dict[str, str]:
    """Return the kind of each direction of a count, of `GRADIENT_KINDS`."""
    health = json.loads(dataset.attrs["health"])
    kind = next((kind for flag, kind in HEALTH_FLAGS.items() if health.get(flag)), None)
    return {name: kind or gradient_kind(entry) for name, entry in averages.of_directions(dataset).items()}


def next_command(kind: str, loss: str) -> tuple[str, dict[str, Any]]:
    """Return the command, with its options, that examines a kind of `GRADIENT_KINDS` further."""
    if kind in {"starved", "thin", "flat"} and loss in TEMPERED:
        return "whatif", {"settles": True}
    commands = {
        "no samples": ("inspect", {}),
        **dict.fromkeys(("collapsed", "alike"), ("evaluate", {})),
        "mispaired": ("plot contributors", {"row": "0"}),
        **dict.fromkeys(("sharp", "shared"), ("audit", {})),
        **dict.fromkeys(("flat", "wasteful"), ("whatif", {"by": "effective"})),
    }
    return commands.get(kind, ("whatif", {"by": "idle"}))


def clamped(direction: str, entry: Mapping, attrs: Mapping) -> Iterator[Finding]:
    """Yield a finding for queries at the clamp of a loss."""
    if queries := mean(entry, "clamped"):
        parameters = json.loads(attrs["loss_parameters"])
        sentence = f"{direction}: queries at the clamp of the loss, without push: "
        cure = f"raise temperature ({parameters['temperature']:g}) or lower prior ({parameters['prior']:g})"
        yield Finding("clamped", "look", sentence + percent(queries / entry["batch_queries"]), cure)


def below_zero(direction: str, entry: Mapping) -> Iterator[Finding]:
    """Yield a finding for positives with a negative score, for which the filter `percent` is reversed."""
    if fraction := mean(entry, "below_zero"):
        sentence = f"{direction}: queries with a positive score below 0: {round(fraction * entry['queries'])}. "
        sentence += "The filter `percent` keeps negatives above their positive."
        yield Finding("below zero", "look", sentence, "use the filter `relative_margin`")


def pulled(direction: str, entry: Mapping) -> Iterator[Finding]:
    """Yield a finding for negatives that the loss pulls."""
    if number := mean(entry, "pulled_negatives"):
        sentence = f"{direction}: contributing negatives that are pulled instead of pushed: {rounded(number)} per query"
        yield Finding("pulled", "look", sentence, "check the labels, and the sign of a custom loss")


def undecided(entries: Mapping[str, Mapping]) -> Iterator[Finding]:
    """Yield the number of candidates with a share, or push fraction, within rounding of eps."""
    for name, label in (("uncertain", "share"), ("relative_uncertain", "push fraction")):
        if numbers := {direction: str(entry[name]) for direction, entry in entries.items() if entry.get(name)}:
            sentence = f"candidates with a {label} within rounding of eps: {by_direction(numbers)}"
            yield Finding("undecided", "note", sentence, "count in float64")


def same_group(dataset: xr.Dataset) -> Iterator[Finding]:
    """Yield the number of row pairs of one group within a batch, and their treatment."""
    if number := int(dataset["same_group_pairs"].sum()):
        images = {"i2t", "t2i"} & set(map(str, dataset["direction"].values))
        treatment = {
            "ignore": "excluded from the gradient",
            "negative": "kept as negatives of each other",
            "positive": "positives of each other for a loss with labels",
        }[dataset.attrs["same_group"]]
        sentence = f"row pairs of one {'image' if images else 'group'} in a batch: {number}, {treatment}."
        yield Finding("one group", "note", f"{sentence} The published counters keep them.")


def copies(entries: Mapping[str, Mapping], attrs: Mapping) -> Iterator[Finding]:
    """Yield the number of repeated candidates in the batches, and their treatment."""
    if numbers := {name: str(entry["repeated"]) for name, entry in entries.items() if entry.get("repeated")}:
        once = attrs["copies"] == "once"
        treatment = "deduplicated. The published counters keep them." if once else "all kept, as published."
        yield Finding("copies", "note", f"repeated candidates: {by_direction(numbers)}, {treatment}")


def repeated_rows(health: Mapping) -> Iterator[Finding]:
    """Yield a finding for each side with repeated rows: without groups, a copy of the positive is a negative."""
    for side, numbers in health["sides"].items():
        if number := numbers["near_duplicates"]:
            sentence = f"{side}: near-duplicates, {number} of {numbers['rows']} rows repeat another up to rounding. "
            sentence += "A copy of the positive may be pushed away."
            severity = "look" if number / numbers["rows"] >= LEAST_REPEATED else "note"
            cure = "use groups that mark matching rows, or remove the copies"
            yield Finding("repeated rows", severity, sentence, cure)


def of_audit(dataset: xr.Dataset) -> list[Finding]:
    """Return the findings that follow from the numbers of an audit."""
    findings, remarks = [], []
    for direction in map(str, dataset["direction"].values):
        numbers = dataset.sel(direction=direction)
        *rules, any_rule = dataset["rule"].values
        share, push, queries = (float(numbers[name].sel(rule=any_rule)) for name in ("share", "push_share", "met"))
        if int(numbers["suspects"].sel(rule=any_rule)):
            sentence = f"{direction}: likely false negatives: {percent(share)} of negatives, {percent(push)} of the "
            sentence += f"push, {percent(queries)} of queries affected"
            cure = "list all pairs with --out suspects.json, sorted by push, and relabel them"
            urgent = ("look", sentence, cure) if push >= LEAST_PUSH else ("note", sentence)
            findings.append(Finding("suspected", *urgent))
        for rule in rules:
            if (share := float(numbers["share"].sel(rule=rule))) > MOST_SUSPECTED:
                sentence = f"{direction}: rule `{rule}` flags {percent(share)} of the negatives: too many to be useful"
                findings.append(Finding("no rule", "look", sentence, "leave the rule out, or check its input"))
        if "below_zero" in dataset:
            queries_below = {"below_zero": {"mean": float(numbers["below_zero"].max())}, "queries": 1}
            remarks += below_zero(direction, queries_below)
    if int(dataset.attrs["batches"]) > 1:
        sentence = f"batches: {dataset.attrs['batches']}, only pairs drawn into the same batch are compared"
        remarks.append(Finding("partial", "note", sentence, "compare all pairs with --batch-size all"))
    return findings + remarks


def of_diff(dataset: xr.Dataset) -> list[Finding]:
    """Return the significant changes of a comparison."""
    findings = []
    for name, numbers in dataset.stack(pair=("direction", "metric")).groupby("pair"):
        difference, low, high, pairs, p = (
            numbers[key].item() for key in ("difference", "low", "high", "pairs", "p_holm")
        )
        if pairs > 0 and np.isfinite(low) and not p > 1 - float(dataset.attrs["level"]):
            chance = "< 0.0001" if p < 1e-4 else f"= {p:.4f}"
            sentence = f"{' '.join(name)}: {difference:+.4g} [{low:+.4g}, {high:+.4g}], Holm-adjusted p {chance}, "
            findings.append(Finding("changed", "look", f"{sentence}{pairs:.0f} queries in both"))
    return findings


def by_direction(texts: Mapping[str, str], unit: str = "") -> str:
    """Write a text for each direction, labelled by its name, and the unit after the first."""
    (first, text), *others = texts.items()
    return ", ".join([f"{text}{unit} ({first})", *(f"{text} ({name})" for name, text in others)])


def rounded(value: float) -> str:
    """Write a mean number with three digits or one decimal, an integer without decimals."""
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def mean(entry: Mapping, name: str) -> float:
    """Return the mean of a statistic in an entry of a direction, 0 if absent."""
    return (entry.get(name) or {}).get("mean") or 0.0


def percent(fraction: float) -> str:
    """Write a fraction in percent, with one decimal, or the first digit of a small one."""
    return f"{100 * fraction:.1g} %" if 0 < 100 * fraction < 0.05 else f"{100 * fraction:.1f} %"
