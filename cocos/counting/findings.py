"""Findings: facts needed to interpret the numbers of a result.

A check stands beside the numbers that it reads: those of the embeddings in `cocos.counting.health`, those of counts,
audits and comparisons here. A Dataset stores the findings that its numbers do not show in the attribute `findings`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import xarray as xr

from cocos.base.untrusted import parsed
from cocos.counting import averages
from cocos.counting.statistics import MARKED_PARTS

# The numbers mean little; something to look at; a fact to know; nothing to do.
SEVERITIES = ("stop", "look", "note", "ok")
# Idle queries: above one half of them, and of the pull, they are most.
IDLE_QUERIES = MOST_PULL = 0.5
# Part of the negatives above which the push is spread over the whole batch; so does the detector `whole_batch`.
WHOLE_BATCH = 0.9
# Below this number of negatives a query, a push on nearly all of them means little; so does that detector.
FEW_NEGATIVES = 8
# Two equal negatives have an effective number of 2; below it, one of them dominates.
ONE_OR_TWO = 2.0
# Half of the smallest part that an optimum of docs/study.md has in its interval, 46 of 511.
SMALL_PART = 0.05
# A repeated row, or a push on suspects, in 1 % of all cases moves no mean in its two digits.
LEAST_REPEATED = LEAST_PUSH = 0.01
# A rule that suspects most of the negatives does not single any out.
MOST_SUSPECTED = 0.5
# Kinds of a direction of a count, the gravest first: of its embeddings, then of its gradient.
GRADIENT_KINDS = (
    *("collapsed", "mispaired", "alike"),
    *("silent", "flat", "thin", "starved", "sharp", "wasteful", "fine"),
)
# Flags of the health of the embeddings, and the findings on them.
HEALTH_FLAGS = {"collapsed": "collapsed", "at_chance": "mispaired", "alike": "alike"}
SUSPECTED_CURE = (
    "read and relabel them: cocos audit FILE --out suspects.csv lists all suspected pairs, the largest push first"
)
# Losses of scale * score, whose temperature has an equilibrium.
TEMPERED = ("ntxent", "supcon", "mnrl", "siglip")
# Severity and cure of each kind of gradient.
GRADIENTS = {
    "silent": ("stop", "use a larger margin, harder negatives or a larger batch"),
    "flat": ("look", "use a smaller temperature or margin"),
    "thin": ("look", "report the effective number, or use a smaller eps"),
    "starved": ("look", "use a larger temperature or margin, a larger batch, or harder negatives"),
    "sharp": ("look", "look for false negatives, or use a larger temperature"),
    "wasteful": ("look", "use a smaller batch, or a larger temperature or margin"),
    "fine": ("ok", ""),
}


@dataclass(frozen=True)
class Finding:
    """A fact that a reader of a result must know.

    Args:
        kind: identifier, on which programs decide.
        severity: of `SEVERITIES`.
        sentence: topic, status and labelled numbers.
        cure: what to try; empty if there is nothing to change.
    """

    kind: str
    severity: str
    sentence: str
    cure: str = ""

    @property
    def text(self) -> str:
        """The sentence, followed by the cure if there is one.

        Examples:
            >>> cocos.counting.findings.Finding("turned", "look", "arrays: transposed", "transpose them").text
            'arrays: transposed. Transpose them.'
        """
        if not self.cure:
            return self.sentence
        return f"{self.sentence.rstrip('.')}. {self.cure[:1].upper()}{self.cure[1:]}."

    def document(self) -> dict[str, str]:
        """Return the finding as plain data."""
        return asdict(self)


def attributes(several: Iterable[Finding | str]) -> dict[str, str]:
    """Return attributes of a Dataset: `notes`, one line for each text, and its findings as JSON in `findings`."""
    several = list(several)
    findings = [each.document() for each in several if isinstance(each, Finding)]
    notes = (each.text if isinstance(each, Finding) else each for each in several)
    return {"notes": "\n".join(notes), "findings": json.dumps(findings)}


def stored(attrs: Mapping[str, Any], key: str = "findings") -> list[Finding]:
    """Return the findings in an attribute of a Dataset."""
    fields = ("kind", "severity", "sentence", "cure")
    return [Finding(*(entry[name] for name in fields)) for entry in parsed(attrs.get(key, "[]"))]


def first(attrs: Mapping[str, Any]) -> list[str]:
    """Return the texts of stored findings that a reader must know before the numbers."""
    return [finding.text for finding in stored(attrs) if finding.severity in {"stop", "look"}]


def collapsed(attrs: Mapping[str, Any]) -> bool:
    """Return whether a side of the embeddings of a result has collapsed."""
    return any(finding.kind == "collapsed" for finding in stored(attrs))


def of(dataset: xr.Dataset) -> list[Finding]:
    """Return all findings of a result, the gravest of its embeddings first.

    Args:
        dataset: of any measure, of one loss.

    Examples:
        >>> rows = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
        >>> data = cocos.measures.count(cocos.Embeddings(rows, rows.flip(0)), batch_size=32)
        >>> [(each.kind, each.severity) for each in cocos.counting.findings.of(data)][:1]
        [('mispaired', 'stop')]
    """
    attrs = dataset.attrs
    findings = stored(attrs)
    texts = {finding.text for finding in findings}
    findings += [Finding("note", "note", line) for line in attrs.get("notes", "").splitlines() if line not in texts]
    measure = attrs.get("measure")
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
    """Return the findings that the numbers of a count of one loss show."""
    attrs, entries = dataset.attrs, averages.of_directions(dataset)
    health = json.loads(attrs["health"])
    findings = [] if any(health.get(flag) for flag in HEALTH_FLAGS) else gradient(entries, float(attrs["eps"]))
    for direction, entry in entries.items():
        findings += [*clamped(direction, entry, attrs), *sources(direction, entry), *filters(direction, entry)]
        findings += [*pulled(direction, entry), *marked(direction, entry)]
    findings += [*inactive_batches(entries), *ranks(dataset)]
    for direction, entry in entries.items():
        findings += undecided(direction, entry, dataset)
    findings += [*same_group(dataset), *copies(entries, attrs), *repeated_rows(health)]
    undrawn = attrs.get("undrawn", "").splitlines()
    for line in filter(None, attrs.get("footnotes", "").splitlines()):
        findings.append(Finding("undrawn" if line in undrawn else "convention", "note", line))
    return findings


def gradient_kind(entry: Mapping[str, Any]) -> str:
    """Return the kind of gradient of one direction; a later kind is one that all earlier conditions leave.

    Args:
        entry: of a direction, statistic -> {"mean": ...}; a loss without a natural unit has no idle queries.

    Examples:
        >>> entry = {"negatives": 127, "idle_fraction": 0.7, "idle_pull": 0.1, "effective": 17}
        >>> cocos.counting.findings.gradient_kind({name: {"mean": value} for name, value in entry.items()})
        'starved'
    """
    negatives, effective = _mean(entry, "negatives") or 0.0, _mean(entry, "effective")
    idle, idle_pull = _mean(entry, "idle_fraction") or 0.0, _mean(entry, "idle_pull") or 0.0
    if not effective:
        return "silent"
    part = effective / negatives if negatives else 0.0
    if part > WHOLE_BATCH and negatives >= FEW_NEGATIVES:
        return "flat"
    if idle > IDLE_QUERIES:
        return "thin" if idle_pull > MOST_PULL else "starved"
    if effective < ONE_OR_TWO:
        return "sharp"
    return "wasteful" if 0 < part < SMALL_PART else "fine"


def gradient(entries: Mapping[str, Mapping], eps: float) -> list[Finding]:
    """Find how the gradient is shared among queries and negatives: one finding for the directions of one kind.

    Args:
        entries: direction -> entry, as `gradient_kind` takes it.
        eps: smallest share that contributes.
    """
    directions: dict[str, list[str]] = {}
    for direction, entry in entries.items():
        directions.setdefault(gradient_kind(entry), []).append(direction)
    findings = []
    for kind, names in directions.items():
        chosen = {name: entries[name] for name in names}
        numbers = {name: _effective(entry) for name, entry in chosen.items()}
        effective = by_direction(numbers)
        idle_pull = by_direction({name: _percent(_mean(entry, "idle_pull") or 0.0) for name, entry in chosen.items()})
        sentence = {
            "silent": f"gradient: none, no negative pushes any query ({', '.join(names)}).",
            "flat": "gradient: flat, hard and easy negatives have nearly equal weights. "
            f"Effective negatives: {effective}.",
            "thin": f"gradient: thin, queries without a negative above {100 * eps:.6g} % supply most of the pull: "
            f"{idle_pull}. Effective negatives: {effective}.",
            "starved": f"gradient: starved, {_supply(chosen)}.",
            "sharp": f"gradient: sharp, one false negative could dominate. Effective negatives: {effective}.",
            "wasteful": f"gradient: wasteful, push shared by only {by_direction(numbers, ' negatives')}.",
            "fine": f"spread of the push: OK, {by_direction(numbers, ' negatives share it')}.",
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
    """Return the command, and its options, that looks further into a kind of `GRADIENT_KINDS`.

    Examples:
        >>> cocos.counting.findings.next_command("starved", "ntxent")
        ('whatif', {'settles': True})
    """
    if kind in {"collapsed", "alike"}:
        return "evaluate", {}
    if kind == "mispaired":
        return "plot contributors", {"row": "0"}
    if kind in {"starved", "thin", "flat"} and loss in TEMPERED:
        return "whatif", {"settles": True}
    if kind in {"sharp", "fine"}:
        return "audit", {}
    return "whatif", {"by": "effective" if kind in {"flat", "wasteful"} else "idle"}


def clamped(direction: str, entry: Mapping, attrs: Mapping) -> Iterator[Finding]:
    """Find queries on the clamp of a loss."""
    if queries := _mean(entry, "clamped"):
        parameters = json.loads(attrs["loss_parameters"])
        yield Finding(
            "clamped",
            "look",
            f"{direction}: {_percent(queries / entry['batch_queries'])} of the queries are on the clamp of the loss, "
            "without any push",
            f"raise temperature ({parameters['temperature']:g}) or lower prior ({parameters['prior']:g})",
        )


def sources(direction: str, entry: Mapping) -> Iterator[Finding]:
    """State the negatives, the contributing ones and the push of each source of negatives."""
    parts = []
    for name, source in entry.get("sources", {}).items():
        texts = [f"{name} {rounded(source['negatives']['mean'])} negatives"]
        if (count := source["contributing"]["mean"]) is not None:
            texts.append(f"{rounded(count)} contributing")
        if (push := source["push"]["mean"]) is not None:
            texts.append(f"{_percent(push)} of the push")
        parts.append(", ".join(texts))
    if len(parts) > 1:
        yield Finding("by source", "note", f"{direction}: by source: {'; '.join(parts)}")


def filters(direction: str, entry: Mapping) -> Iterator[Finding]:
    """State how much a filter removes, and find positives below zero, for which the filter `percent` fails."""
    if (masked := _mean(entry, "masked")) is not None:
        push = f", {_percent(entry['masked_push']['mean'])} of the push" if _mean(entry, "masked_push") else ""
        yield Finding("filtered", "note", f"{direction}: filtered negatives per query {rounded(masked)}{push}")
    if part := _mean(entry, "below_zero"):
        yield below_zero(direction, round(part * entry["queries"]))


def below_zero(direction: str, queries: int) -> Finding:
    """Return the finding on positives that score below zero, for which the filter `percent` is reversed."""
    return Finding(
        "below zero",
        "look",
        f"{direction}: queries with a positive score below 0: {queries}. The filter `percent` keeps negatives above "
        "their positive.",
        "use the filter `relative_margin`",
    )


def pulled(direction: str, entry: Mapping) -> Iterator[Finding]:
    """Find negatives that the loss pulls."""
    if number := _mean(entry, "pulled_negatives"):
        yield Finding(
            "pulled",
            "look",
            f"{direction}: {rounded(number)} contributing negatives per query are pulled, not pushed",
            "check the labels, and the sign of a custom loss",
        )


def marked(direction: str, entry: Mapping) -> Iterator[Finding]:
    """State the part of the negatives and of the push that is on marked candidates."""
    for label, parts in entry.get("marks", {}).items():
        if parts["push"]["mean"] is None:
            continue
        values = {key: each.scale * (parts[key]["mean"] or 0.0) for key, each in MARKED_PARTS.items()}
        yield Finding(
            "marked",
            "note",
            f"{direction}, {label}: {rounded(values['negatives'])} % of the negatives, {rounded(values['push'])} % of "
            f"the push (random negatives: {rounded(values['placebo'])} %)",
        )


def inactive_batches(entries: Mapping[str, Mapping]) -> Iterator[Finding]:
    """Count the batches without any contributing negative, which the mean C^A leaves out."""
    numbers = {name: entry["batches_without_active_queries"] for name, entry in entries.items()}
    if any(numbers.values()):
        each = by_direction({name: str(number) for name, number in numbers.items() if number})
        yield Finding("no active query", "note", f"batches without a contributing negative: {each}, excluded from C^A")


def ranks(dataset: xr.Dataset) -> Iterator[Finding]:
    """State the retrieval metrics that a count has for all directions together."""
    if any(dataset[name].dims in {(), ("direction",)} for name in dataset):
        values = {name: float(dataset[name]) for name in dataset if not dataset[name].dims}
        texts = ", ".join(f"{str(name).replace('_', ' ')} {value:.2f}" for name, value in values.items())
        yield Finding("ranked", "note", f"R@k and ranks: all queries of the set against all candidates; {texts}")


def undecided(direction: str, entry: Mapping, dataset: xr.Dataset) -> Iterator[Finding]:
    """Count candidates whose share, or part of the push, rounding may move to the other side of eps."""
    if number := entry["uncertain"]:
        queries = int((dataset["uncertain"].sel(direction=direction) > 0).sum())
        yield Finding(
            "undecided",
            "note",
            f"{direction}: {number} candidates of {queries} queries are within rounding of eps, and the sum of counts "
            "may be off by that number",
            "count in float64",
        )
    if number := entry.get("relative_uncertain"):
        eps = f"{100 * float(dataset.attrs['eps']):.6g} %"
        yield Finding(
            "undecided part",
            "note",
            f"{direction}: {number} candidates have a part of the push within rounding of {eps}",
            "count in float64",
        )


def same_group(dataset: xr.Dataset) -> Iterator[Finding]:
    """Count pairs of drawn rows that belong to one group, and state how they were treated."""
    if number := int(dataset["same_group_pairs"].sum()):
        images = {"i2t", "t2i"} & set(map(str, dataset["direction"].values))
        group = "show the same image" if images else "belong to the same group"
        treatment = {
            "ignore": "excluded from the gradient",
            "negative": "kept as negatives of each other",
            "positive": "positives of each other for a loss that reads labels",
        }[dataset.attrs["same_group"]]
        yield Finding("one group", "note", f"{number} pairs of rows in a batch {group}: {treatment} (published: kept)")


def copies(entries: Mapping[str, Mapping], attrs: Mapping) -> Iterator[Finding]:
    """Count repeated candidates among the pairs drawn, and state how they were treated."""
    numbers = {name: str(entry["repeated"]) for name, entry in entries.items() if entry.get("repeated")}
    if numbers and attrs["copies"] == "once":
        sentence = f"repeated candidates: {by_direction(numbers)}, deduplicated. The published counters keep them."
        yield Finding("copies", "note", sentence)
    elif numbers:
        sentence = f"repeated candidates: {by_direction(numbers)}, each kept as one more candidate, as published."
        yield Finding("copies", "note", sentence)


def repeated_rows(health: Mapping) -> Iterator[Finding]:
    """Find rows that repeat another one: without groups, a copy of the match of a query is a negative."""
    for side, numbers in health["sides"].items():
        if number := numbers["near_duplicates"]:
            yield Finding(
                "repeated rows",
                "look" if number / numbers["rows"] >= LEAST_REPEATED else "note",
                f"{side}: near-duplicates, {number} of {numbers['rows']} rows repeat another up to rounding, and "
                "copies of a query's match may be pushed away",
                "use groups that mark matching rows, or remove the copies",
            )


def of_audit(dataset: xr.Dataset) -> list[Finding]:
    """Return the findings that the numbers of an audit show."""
    findings, below = [], []
    for direction in map(str, dataset["direction"].values):
        one = dataset.sel(direction=direction)
        *rules, every = dataset["rule"].values
        total = one.sel(rule=every)
        push, share, met = (float(total[name]) for name in ("push_share", "share", "met"))
        if int(total["suspects"]):
            few = not push >= LEAST_PUSH
            findings.append(
                Finding(
                    "suspected",
                    "note" if few else "look",
                    f"{direction}: likely false negatives: {_small(share)} of negatives, {_small(push)} "
                    f"of the push, {_small(met)} of queries affected",
                    "" if few else SUSPECTED_CURE,
                )
            )
        for rule in rules:
            share = float(one["share"].sel(rule=rule))
            if share > MOST_SUSPECTED:
                findings.append(
                    Finding(
                        "no rule",
                        "look",
                        f"{direction}: rule `{rule}` flags {_small(share)} of the negatives: too many to be useful",
                        "leave it out with --rules, or check its input",
                    )
                )
        if "filter" not in dataset.dims:
            continue
        if "filter_rule" in dataset.variables and bool((one["recall"] == 0)[dataset["filter_rule"] == "self"].any()):
            below.append(
                Finding(
                    "kept copies",
                    "note",
                    f"{direction}: copies of the positive score exactly like it, and filters that remove only higher "
                    "scores (self, guide without a margin) keep them",
                    "use a margin of the guide, or the filter `percent`",
                )
            )
        if queries := float(one["below_zero"].max()):
            below.append(below_zero(direction, round(queries)))
    return findings + below


def of_diff(dataset: xr.Dataset) -> list[Finding]:
    """Return the significant changes of a comparison."""
    findings = []
    for direction in map(str, dataset["direction"].values):
        for metric in map(str, dataset["metric"].values):
            one = dataset.sel(direction=direction, metric=metric)
            difference, low, high, pairs = (float(one[name]) for name in ("difference", "low", "high", "pairs"))
            p = float(one["p_holm"])
            if pairs > 0 and np.isfinite(low) and not p > 1 - float(dataset.attrs["level"]):
                chance = "< 0.0001" if p < 1e-4 else f"= {p:.4f}"
                sentence = (
                    f"{direction} {metric}: {difference:+.4g} [{low:+.4g}, {high:+.4g}], Holm-adjusted p {chance}, "
                    f"{pairs:.0f} queries in both"
                )
                findings.append(Finding("changed", "look", sentence))
    return findings


def _mean(entry: Mapping, name: str) -> float | None:
    """Return the mean of a statistic in an entry of a direction, None if absent."""
    return (entry.get(name) or {}).get("mean")


def _effective(entry: Mapping) -> str:
    """Write the effective number of negatives and the number of negatives."""
    effective, negatives = _mean(entry, "effective"), _mean(entry, "negatives")
    return rounded(effective or 0.0) + ("" if negatives is None else f" of {rounded(negatives)}")


def _supply(entries: Mapping[str, Mapping]) -> str:
    """Write the part of the queries with a contributing negative, and of the pull that they supply."""
    texts: dict[str, str] = {}
    for name, entry in entries.items():
        active, pull = (1 - (_mean(entry, part) or 0.0) for part in ("idle_fraction", "idle_pull"))
        words = (" of queries", " of the pull") if not texts else ("", "")
        texts[name] = f"{_percent(active)}{words[0]} supply {_percent(pull)}{words[1]}"
    return by_direction(texts)


def by_direction(texts: Mapping[str, str], unit: str = "") -> str:
    """Write a text for each direction, labelled by its name, and the unit after the first."""
    units = [unit] + [""] * len(texts)
    return ", ".join(f"{text}{unit} ({name})" for (name, text), unit in zip(texts.items(), units, strict=False))


def rounded(value: float) -> str:
    """Write a mean number with three digits or one decimal, an integer without decimals."""
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def _percent(part: float) -> str:
    """Write a part in percent, with one decimal."""
    return f"{100 * part:.1f} %"


def _small(part: float) -> str:
    """Write a part in percent, with one decimal, or the first digit of a small one."""
    return f"{100 * part:.1g} %" if 0 < 100 * part < 0.05 else _percent(part)
