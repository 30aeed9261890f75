"""Everything that a result says beyond its numbers: found, looked for and not found, and what it cannot show.

Tables, and a page on several results, read the same findings, so that there is no second opinion.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import xarray as xr

from cocos import measures, results
from cocos.base import docstrings
from cocos.counting import findings, health, verdicts
from cocos.counting.findings import KINDS, OF_COUNTS, OF_EMBEDDINGS, Finding, made
from cocos.counting.statistics import MARKED_PARTS
from cocos.measures.audit import SUSPICIONS
from cocos.measures.run import axis, episodes
from cocos.monitor import detectors as shelf
from cocos.reports.phrases import has_images, joined, mean, mean_of, part_in_percent, percent, small_part, times, whole

# What becomes of two rows of one group in a batch of pairs, by the option `same_group`.
SAME_GROUP_FATES = {
    "ignore": "left out of the gradient",
    "negative": "kept as negatives of each other",
    "positive": "positives of each other for a loss that reads labels",
}
# Verdicts that depend on the natural unit of the loss, and other kinds that do.
BY_UNIT_ALONE = ("thin", "starved", "pulled", "no active query", "undecided")
# Words of the sentence on suspected negatives, and their numbers.
AUDITED = {"push": "push_share", "share": "share", "met": "met"}
# Detectors whose own cure is none for candidates that are alike.
BY_COLLAPSE = ("whole_batch", "stuck")
OF_COLLAPSE = "what is tried for `collapse`: no temperature tells rows apart that are alike"
# Part of the push on suspected negatives below which they are a remark.
LEAST_PUSH = 0.01
# Part of the push on a queue from which it is spoken of, and that from which its oldest rows are.
# Part of the rows that repeat another one, below which they are a remark.
LEAST_REPEATED = 0.01
# Part of the negatives above which what a rule suspects is the usual case.
MOST_SUSPECTED = 0.5
UNKNOWN_UNIT_REASON = "the natural unit of this loss is not known"


def of(data: xr.Dataset) -> list[Finding]:
    """All findings of a result, in the order in which its table has them; what was not found stands behind.

    Args:
        data: of `count`, of one loss or several, `audit`, `run` or a store of records, `diff`, `evaluate`, `verify`, or
            of any other measure, whose notes they are then.

    Returns:
        Each with its state: `found`, `absent` (looked for and not found), or `unseen` (it could not be looked for, and
        the sentence says why).

    Examples:
        >>> from cocos.reports import findings
        >>> rows = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
        >>> found = findings.of(cocos.measures.count(cocos.Embeddings(rows, rows.flip(0)), batch_size=32))
        >>> [(each.kind, each.severity) for each in found if each.place == "first"]
        [('mispaired', 'stop')]
        >>> [each.state for each in found if each.kind == "collapsed"]
        ['absent']
    """
    if isinstance(data, dict):
        return [replace(each, loss=label) for label, one in data.items() for each in of(one)]
    measure = data.attrs.get("measure")
    if measure == "run":
        return list(of_run(data))
    if measure == "count":
        return list(of_count(data, measures.document("count", data)))
    if measure == "audit":
        return list(of_audit(data, measures.document("audit", data)))
    if measure == "diff":
        return list(_of_diff(data))
    looked = OF_EMBEDDINGS if measure == "evaluate" else ()
    return [*_noted(data), *_absent(_noted(data), looked, _unpaired(data))]


def _noted(data: xr.Dataset) -> list[Finding]:
    """Findings that the Dataset keeps, and its other notes."""
    kept = findings.noted(data.attrs)
    known = {each.sentence for each in kept}
    lines = str(data.attrs.get("notes", "")).splitlines()
    return [*kept, *(Finding("note", line) for line in lines if line and line not in known)]


def _absent(found: Iterable[Finding], looked: Iterable[str], unseen: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the kinds that were looked for and not found, or for a reason could not be looked for."""
    there = {each.kind for each in found if each.state == "found"}
    if "collapsed" in there:
        unseen = {**unseen, **dict.fromkeys(OF_EMBEDDINGS, "the embeddings have collapsed")}
    for kind in looked:
        if kind not in there:
            yield _missing(kind, KINDS[kind].looks, unseen.get(kind))


def _missing(kind: str, looks: str, why: str | None) -> Finding:
    """Make the finding of a kind that is absent, or could not be looked for."""
    if why is None:
        return Finding(kind, f"not found: {looks}", "ok", state="absent", looks=looks)
    numbers = {"looks": looks, "why": why}
    return Finding(kind, f"could not be looked for: {looks} ({why})", "ok", numbers, state="unseen", looks=looks)


def _unpaired(data: xr.Dataset) -> dict[str, str]:
    """Say why the pairing of the rows could not be looked at, if so."""
    known = json.loads(data.attrs.get("health", "{}"))
    if known.get("negatives_above") is not None:
        return {}
    return {"mispaired": f"fewer than {health.LEAST_PAIRED} queries have a positive and a negative"}


def of_count(data: xr.Dataset, summary: Mapping) -> Iterator[Finding]:
    """Yield the findings of a count of one loss, of which `summary` is the JSON document."""
    noted, entries = _noted(data), summary["directions"]
    found = [each for each in noted if each.place == "first"]
    found += [*_verdicts(summary), *of_directions(summary), *_qualified(data, summary)]
    yield from found
    yield from (each for each in noted if each.place != "first")
    given = {name for entry in entries.values() for name in entry}
    # Verdicts after the last of all directions were not looked for.
    order = list(verdicts.SEVERITY)
    last = max(order.index(each["kind"]) for each in summary["verdicts"].values())
    said = f"the verdict `{order[last]}` goes before"
    unseen = _unpaired(data) | {kind: said for kind in order[last + 1 :] if KINDS[kind].looks}
    unseen |= dict.fromkeys(BY_UNIT_ALONE, UNKNOWN_UNIT_REASON) if summary["share"] == "unknown" else {}
    unseen |= {} if "clamped" in given else {"clamped": "this loss has no clamp"}
    unseen |= {} if "below_zero" in given else {"below zero": "this loss has no such filter"}
    yield from _absent(found, OF_COUNTS, unseen)


def _verdicts(summary: Mapping) -> Iterator[Finding]:
    """Yield the verdict: one for all directions of a kind, save those that a finding on the embeddings states."""
    kinds: dict[str, list[str]] = {}
    for name, verdict in summary["verdicts"].items():
        kinds.setdefault(verdict["kind"], []).append(name)
    for kind, names in kinds.items():
        if KINDS[kind].place == "first":
            continue
        verdict, numbers = summary["verdicts"][names[0]], [summary["verdicts"][name]["numbers"] for name in names]
        idle = [each["idle_fraction"] for each in numbers if each["idle_fraction"] is not None]
        each = made(
            kind,
            of=tuple(names),
            part=max(idle) if idle and kind in {"thin", "starved"} else None,
            words=_in_words(numbers, summary["eps"]),
            **dict(zip(names, numbers, strict=True)),
        )
        sentence = each.sentence
        if len(kinds) > 1:
            sentence = f"{' and '.join(names)}: {sentence[0].lower()}{sentence[1:]}"
        further = {"command": verdict["command"], "options": verdict["options"]}
        yield replace(each, sentence=sentence, limit=verdicts.LIMITS.get(kind), **further)


def _in_words(numbers: Sequence[Mapping], eps: float) -> dict[str, str]:
    """Numbers of a verdict as its sentence has them, of several directions joined."""

    def said(name: str, write: Callable[[float], str]) -> str:
        return joined([write(each[name]) for each in numbers if each[name] is not None])

    return {
        "effective": said("effective", lambda value: f"{value:.2f}"),
        "negatives": said("negatives", whole),
        "idle_pull": said("idle_pull", part_in_percent),
        "rest": said("idle_fraction", lambda value: part_in_percent(1 - value)),
        "rest_pull": said("idle_pull", lambda value: part_in_percent(1 - value)),
        "percent": percent(eps),
    }


def of_directions(summary: Mapping) -> Iterator[Finding]:
    """Yield what else a reader must know of each direction: a clamp, sources, filters, and marked candidates."""
    for name, entry in summary["directions"].items():
        about = {"of": (name,), "name": name}
        if clamped := mean_of(entry, "clamped"):
            given, part = summary["loss"]["parameters"], clamped / entry["batch_queries"]
            yield made(
                "clamped", **about, part=part, clamped=part_in_percent(part),
                temperature=given["temperature"], prior=given["prior"],
            )  # fmt: skip
        if len(sources := entry.get("sources", {})) > 1:
            yield made("by source", **about, sources="; ".join(_source(*each) for each in sources.items()))
        if mean_of(entry, "masked") is not None:
            words = {"some": mean(entry["masked"]), "push": mean(times(entry["masked_push"], 100))}
            yield made("filtered", **about, part=entry["masked_push"]["mean"], words=words)
        if below := mean_of(entry, "below_zero"):
            yield made("below zero", **about, part=below, number=round(below * entry["queries"]), end=".")
        if pulled := mean_of(entry, "pulled_negatives"):
            yield made("pulled", **about, number=pulled, words={"number": mean(entry["pulled_negatives"])})
        for label, found in entry.get("marks", {}).items():
            if (part := found["push"]["mean"]) is not None:
                parts = {key: mean(times(found[key], each.scale)) for key, each in MARKED_PARTS.items()}
                yield made("marked", **about, part=part, label=label, words=parts)


def _source(name: str, found: Mapping) -> str:
    said = [f"{name} {mean(found['negatives'])} negatives"]
    said += [] if found["contributing"]["mean"] is None else [f"{mean(found['contributing'])} contribute"]
    said += [] if found["push"]["mean"] is None else [f"{mean(times(found['push'], 100))} % of the push"]
    return ", ".join(said)


def _qualified(data: xr.Dataset, summary: Mapping) -> Iterator[Finding]:
    """Yield what qualifies the counts: batches left out, undecided candidates, rows of one group, footnotes."""
    directions = summary["directions"]
    without = {name: entry["batches_without_active_queries"] for name, entry in directions.items()}
    if any(without.values()):
        each = ", ".join(f"{number} ({name})" for name, number in without.items() if number)
        yield made("no active query", of=tuple(name for name in without if without[name]), each=each)
    if metrics := summary.get("metrics"):
        singles = [f"{name.replace('_', ' ')} {value:.2f}" for name, value in metrics.items() if name != "directions"]
        yield made("ranked", singles=", ".join(singles))
    for name, entry in directions.items():
        about = {"of": (name,), "name": name}
        if entry["uncertain"]:
            queries = int((data["uncertain"].sel(direction=name) > 0).sum())
            yield made("undecided", **about, number=entry["uncertain"], queries=queries)
        if number := entry.get("relative_uncertain"):
            yield made("undecided part", **about, number=number, percent=percent(summary["eps"]))
    if number := summary["same_group_pairs"]:
        alike = "show the same image" if has_images(directions) else "are of one group"
        yield made("one group", number=number, alike=alike, fate=SAME_GROUP_FATES[summary["same_group"]])
    if copied := {name: entry["repeated"] for name, entry in directions.items() if entry.get("repeated")}:
        number = " and ".join(f"{each} of {name}" for name, each in copied.items())
        fate = "each stands in its batch once" if summary["copies"] == "once" else "kept, each one more candidate"
        yield made("copies", of=tuple(copied), name=next(iter(copied)), number=number, fate=fate)
    for name, each in summary["health"]["sides"].items():
        if number := each["near_duplicates"]:
            part = number / each["rows"]
            one = made("repeated rows", part=part, name=name, number=number, rows=each["rows"])
            yield replace(one, limit=LEAST_REPEATED, severity=one.severity if part >= LEAST_REPEATED else "note")
    for line in results.lines(data.attrs, "footnotes"):
        yield made("undrawn" if line in summary["not_drawn"] else "convention", text=line)


def of_audit(data: xr.Dataset, document: Mapping) -> Iterator[Finding]:
    """Yield the findings of an audit, of which `document` is the JSON document."""
    found, tried = _noted(data), [str(name) for name in data["rule"].values[:-1]]
    sides = document["directions"]
    for name, entry in sides.items():
        *_, every = entry["rules"].values()
        if every["suspects"]:
            words = {key: small_part(every[number]) for key, number in AUDITED.items()}
            one = made("suspected", of=(name,), part=every["push_share"], words=words, name=name, **every)
            small = (every["push_share"] or 0) < LEAST_PUSH
            found.append(replace(one, limit=LEAST_PUSH, **({"severity": "note", "cure": ""} if small else {})))
        else:
            said = f"{name}: no negative that was drawn is suspected"
            found.append(Finding("suspected", said, "ok", place="above", of=(name,), state="absent"))
        for rule, each in list(entry["rules"].items())[:-1]:
            if (each["share"] or 0) > MOST_SUSPECTED:
                words = {"share": small_part(each["share"]), "most": percent(MOST_SUSPECTED)}
                loose = made("no rule", of=(name,), words=words, name=name, rule=rule, share=each["share"])
                found.append(replace(loose, limit=MOST_SUSPECTED))
    rules = data["filter_rule"].values.tolist() if "filter_rule" in data.variables else []
    for name, entry in sides.items():
        trials = list(entry["filters"].values())
        if any(rule == "self" and each["recall"] == 0 for rule, each in zip(rules, trials, strict=False)):
            found.append(made("kept copies", of=(name,), name=name))
        if below := max((each["below_zero"] for each in trials), default=0):
            turned = made("below zero", of=(name,), name=name, number=round(below), end="")
            found.append(replace(turned, place="below"))
    yield from found
    yield from _absent(found, OF_EMBEDDINGS, {})
    for rule in tried:
        if not any(entry["rules"][rule]["suspects"] for entry in sides.values()):
            yield _missing(f"suspected by {rule}", SUSPICIONS.get(rule, f"pairs that are marked {rule}"), None)
    for rule, why in json.loads(data.attrs.get("untried", "{}")).items():
        yield _missing(f"suspected by {rule}", SUSPICIONS[rule], why)


def of_run(data: xr.Dataset) -> Iterator[Finding]:
    """Yield the findings of a run: checkpoints that were left out, and what its detectors say, or could not see."""
    for each in json.loads(data.attrs.get("left_out", "[]")):
        kind = "left out" if each.get("finite", True) else "not finite"
        yield made(kind, of=(each["file"],), file=each["file"], reason=each["reason"])
    what = "checkpoints" if axis(data) == "checkpoint" else "records"
    known, fired = set(shelf.names()), episodes(data)
    collapsed = any(each["kind"] == "collapse" for each in fired)
    for each in fired:
        width = f" (width {each['width']})" if each["width"] is not None and "width" in data.dims else ""
        when = f"at step {each['first']}" if each["times"] == 1 else f"from step {each['first']} to {each['last']}"
        over = "" if each["now"] else "; not at the last one"
        own = type(shelf.load(each["kind"])) if each["kind"] in known else None
        tried = docstrings.sections(own)["Try"].rstrip(".") if own else ""
        yield Finding(
            each["kind"],
            f"{each['sentence']}{width} [{each['times']} of {each['of']} {what}, {when}{over}]",
            getattr(own, "SEVERITY", "look"),
            {name: each[name] for name in ("value", "first", "last", "times", "of", "now", "width")},
            limit=each["threshold"],
            cure=OF_COLLAPSE if collapsed and each["kind"] in BY_COLLAPSE else tried,
            place="above",
            key="alarms",
        )
    yield from _noted(data)
    names = {each["kind"] for each in fired}
    for name, why in json.loads(data.attrs.get("watching", "{}")).items():
        if name not in names and name in known:
            yield _missing(name, docstrings.summary(type(shelf.load(name))).rstrip("."), why)


def _of_diff(data: xr.Dataset) -> Iterator[Finding]:
    """Yield the findings of a comparison: every change that is resolved, and those that are not."""
    yield from _noted(data)
    level = float(data.attrs["level"])
    for side, of_side in results.sides(data).items():
        for metric in map(str, data["metric"].values):
            one = of_side.sel(metric=metric)
            numbers = {name: float(one[name]) for name in ("difference", "low", "high", "pairs")}
            numbers["p"] = float(one["p_holm"])
            if not numbers["pairs"] > 0:
                continue
            if not np.isfinite(numbers["low"]):
                yield _missing("changed", f"a change of {side} {metric}", "it has no interval")
            elif numbers["p"] > 1 - level:
                yield _missing("changed", f"a change of {side} {metric} that is resolved", None)
            else:
                chance = "< 0.0001" if numbers["p"] < 1e-4 else f"= {numbers['p']:.4f}"
                found = made("changed", of=(side,), side=side, metric=metric, words={"chance": chance}, **numbers)
                yield replace(found, limit=1 - level, interval=(numbers["low"], numbers["high"]))
