"""Tables of suspected false negatives: by rule, by filter, and pair by pair; and the list to relabel as a file."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import xarray as xr

from cocos import measures
from cocos.base import terminal, writing
from cocos.base.errors import InputError
from cocos.base.layout import Table, following
from cocos.counting import findings
from cocos.reports import summaries
from cocos.reports.phrases import small_part
from cocos.reports.summaries import plain

# Suffixes of a list to relabel.
LIST_SUFFIXES = (".csv", ".jsonl")
# Characters of each of the two texts of a pair.
TEXT_LENGTH = 44
# Rule whose pairs are known to belong together.
READ_RULE = "group"
RULE_COLUMNS = ("suspected by", "pairs", "of negatives", "of push", "times", "random", "queries")
FILTER_COLUMNS = ("filter", "of negatives", "of push", "kept", "right", "found", "right push", "found push", "emptied")
# Columns of the list, and their variables in the Dataset.
LIST_COLUMNS = {
    **{"query": "query_index", "candidate": "candidate_index", "score": "score", "guide_score": "guide_score"},
    **{"push": "pair_push", "part": "pair_part", "drawn": "drawn", "own_hard": "own_hard"},
}
TextOfRow = Callable[[int], str]


def tables(data: xr.Dataset, texts: tuple[TextOfRow, TextOfRow] | None = None, top: int = 10) -> list[Table]:
    """The rules, the filters if any are replayed, and the suspected pairs with the largest push.

    Args:
        data: of `cocos.measures.audit`.
        texts: row -> text of the queries and of the candidates of the first direction; None: no texts.
        top: number of pairs.
    """
    found = [table(data)]
    if "filter" in data.dims:
        found.append(_filters(data))
    return found + ([_pairs(data, texts, top)] if top and data.sizes["pair"] else [])


def _unread(data: xr.Dataset) -> np.ndarray:
    """Places of the suspected pairs that are of no common group, and are to be read, (n,)."""
    known = data["suspicion"].values == READ_RULE
    return np.flatnonzero(~data["suspected"].values[:, known].any(axis=1))


def table(data: xr.Dataset) -> Table:
    """Write the push on suspected negatives, and a row for each direction and rule that suspects any."""
    document, rows = measures.document("audit", data), []
    sides = document["directions"]
    for name, entry in sides.items():
        for rule, each in entry["rules"].items():
            if each["suspects"]:
                times = "" if each["enrichment"] is None else f"{each['enrichment']:.1f}"
                share, push, random, met = (small_part(each[key]) for key in ("share", "push_share", "placebo", "met"))
                rows.append((f"{name} {rule}", str(each["suspects"]), share, push, times, random, met))
    *tried, _ = next(iter(sides.values()))["rules"]  # the last one is any of them
    notes = [*_advice(sides, document["against"]), f"rules that were tried: {', '.join(tried)}"]
    if rows:
        notes.append(
            "times: part of the push over part of the negatives; random: part of the push on as many random negatives; "
            "queries: those that have any; rules that suspect none have no row"
        )
    checked = [finding for finding in findings.of_audit(data) if finding.kind in {"suspected", "no rule"}]
    suspected = [finding.sentence if finding.kind == "suspected" else finding.text for finding in checked]
    clean = [name for name, entry in sides.items() if not list(entry["rules"].values())[-1]["suspects"]]
    suspected += [f"{name}: likely false negatives: none" for name in clean]
    head = (*suspected, *summaries.head(data))
    step = following(data.attrs, "audit", {"out": "suspects.csv"}) if rows else ()
    columns = RULE_COLUMNS if rows else ("",)
    return Table(columns, tuple(rows), head, tuple(notes), typed=step)


def _advice(directions: dict, known: list[str]) -> Iterator[str]:
    """Say what to do about known positives, and which filter finds them best."""
    groups = max((each["rules"].get("group", {}).get("push_share") or 0) for each in directions.values())
    if groups > 0:
        yield (
            "rows of one group: draw each group once a batch, or mask them (cocos count does, unless --same-group "
            "negative)"
        )
    suspected = max(entry["rules"][rule]["suspects"] for entry in directions.values() for rule in entry["rules"])
    if suspected:
        yield findings.SUSPECTED_CURE
    if not known:
        yield "no rule says which pairs are known to be positive, so that filters are not judged (--against RULE)"


def _filters(data: xr.Dataset) -> Table:
    """Write a row for each direction, filter and threshold; an asterisk marks the published threshold."""
    document, rows, head = measures.document("audit", data), [], []
    notes = [finding.text for finding in findings.of_audit(data) if finding.kind in {"kept copies", "below zero"}]
    for name, entry in document["directions"].items():
        for label, each in entry["filters"].items():
            keys = ("filter_share", "filter_push", "filter_left", "precision", "recall", "push_precision")
            parts = [small_part(each[key]) for key in (*keys, "push_recall", "emptied")]
            if each["filter_share"]:
                rows.append((f"{name} {label}{'*' if each['published'] else ''}", *parts))
        head += _removed(name, entry["filters"])
        if best := _best(entry["filters"]):
            head.append(f"{name}: {best}")
    judged, unjudged = ", ".join(document["against"]), ("right", "found", "right push", "found push")
    notes.append(
        "each filter of a masked InfoNCE, replayed on the same batches; *: as published; kept: part of the push that "
        "weakened negatives keep; emptied: queries left without a negative; filters that remove none have no row"
    )
    if document["known"]:
        notes.append(
            f"right: part of what it removes that is known to be positive ({judged}); found: part of these that it "
            "removes; by number, and by push. What no rule knows may be positive too, so that right is a lower bound"
        )
        unjudged = ()
    keep = [place for place, name in enumerate(FILTER_COLUMNS) if name not in unjudged]
    rows = [tuple(row[place] for place in keep) for row in rows]
    columns = tuple(FILTER_COLUMNS[place] for place in keep)
    if not rows:
        return Table(("",), (), tuple(head))
    return Table(columns, tuple(rows), tuple(head), tuple(notes))


def _removed(name: str, filters: dict) -> list[str]:
    """State what the filters remove at their published thresholds."""
    published = {label: each for label, each in filters.items() if each["published"]}
    if not any(each["filter_share"] for each in published.values()):
        return [f"{name}: filters as published would remove nothing"] if published else []
    parts = [
        f"{label} {small_part(each['filter_share'])} with {small_part(each['filter_push'])}"
        for label, each in published.items()
        if each["filter_share"]
    ]
    return [f"{name}: filters as published would remove (negatives, with their push): {', '.join(parts)}"]


def _best(filters: dict) -> str:
    """Name the filter with the largest harmonic mean of right and found push; empty where nothing is known."""
    scores = {}
    for label, each in filters.items():
        right, found = each["push_precision"], each["push_recall"]
        if right and found:
            scores[label] = 2 * right * found / (right + found)
    if not scores:
        known = any(each["push_recall"] is not None for each in filters.values())
        return "no filter removes any known positive" if known else ""
    label = max(scores, key=scores.__getitem__)
    each = filters[label]
    return (
        f"{label} agrees best with what is known: it removes {small_part(each['push_recall'])} of the push on known "
        f"positives, and {small_part(each['push_precision'])} of the push that it removes is on them"
    )


def _pairs(data: xr.Dataset, texts: tuple[TextOfRow, TextOfRow] | None, top: int) -> Table:
    """Write the suspected pairs of different groups with the largest push."""
    rows, every = [], _unread(data)
    known = data.sizes["pair"] - len(every)
    beside = f"{known} more pairs are of one group, and need no reading" if known else ""
    if not len(every):
        return Table(("",), (), (), (f"all {known} suspected pairs are of one group, and need no reading",))
    for entry in to_read(data, top):
        said = [str(entry["query"]), str(entry["candidate"])]
        if texts:
            said = [
                f"{row} {terminal.one_line(text(int(row)), TEXT_LENGTH)}" for row, text in zip(said, texts, strict=True)
            ]
        rules = ", ".join([*entry["rules"], *(["own hard negative"] if entry["own_hard"] else [])])
        rows.append((*said, f"{entry['push']:.3g}", small_part(entry["part"]), f"{entry['score']:.3f}", rules))
    columns = ("query", "candidate", "push", "of push", "score", "suspected by")
    notes = (
        f"the {len(rows)} with the largest push of {len(every)} pairs to read; of push: part of the push of the query, "
        "mean over the times that the pair was drawn",
        *filter(None, [beside]),
    )
    return Table(columns, tuple(rows), (), notes, left=True)


def to_read(data: xr.Dataset, most: int) -> list[dict]:
    """The suspected pairs that no group settles, the largest push first, as plain data."""
    return _entries(data, _unread(data)[:most])


def _entries(data: xr.Dataset, places: Iterable[int]) -> list[dict]:
    """Suspected pairs as plain data, by `LIST_COLUMNS`, and the rules that suspect them."""
    columns = {name: data[variable].values for name, variable in LIST_COLUMNS.items()}
    rules, suspected = data["suspicion"].values, data["suspected"].values
    return [
        {name: plain(values[place]) for name, values in columns.items()} | {"rules": rules[suspected[place]].tolist()}
        for place in places
    ]


def writable(path: Path) -> Path:
    """Refuse a path of a list that cannot be written, before anything is computed."""
    if path.suffix not in LIST_SUFFIXES:
        raise InputError(f"output {path}: suffix {path.suffix!r}, expected one of {', '.join((*LIST_SUFFIXES, '.nc'))}")
    return writing.output(path)


def write(path: Path, data: xr.Dataset, texts: tuple[TextOfRow, TextOfRow] | None) -> Path:
    """Write all suspected pairs, the largest push first, as CSV or JSON lines, with a `label` to fill in.

    The label is 1 for pairs of one group, which need no reading, and empty for others.
    Texts of CSV, which is made for spreadsheets, are no formulae there (`cocos.base.writing.cell`).
    """
    entries = _entries(data, range(data.sizes["pair"]))
    for entry in entries:
        for place, side in enumerate(("query", "candidate")):
            entry[f"{side}_text"] = texts and texts[place](entry[side])
        entry["label"] = 1 if READ_RULE in entry["rules"] else None
    if path.suffix == ".jsonl":
        lines = (json.dumps(entry, ensure_ascii=False, allow_nan=False) for entry in entries)
        return writing.write(path, "".join(f"{line}\n" for line in lines).encode())
    stream, (query, candidate, *numbers) = io.StringIO(), LIST_COLUMNS
    names = [query, candidate, "query_text", "candidate_text", *numbers, "rules", "label"]
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    rows = (entry | {"rules": " ".join(name.replace(" ", "_") for name in entry["rules"])} for entry in entries)
    writer.writerows({name: writing.cell(value) for name, value in row.items()} for row in rows)
    return writing.write(path, stream.getvalue().encode())
