"""The suspected false negatives of an audit as a file, to be read and labelled."""

import csv
import io
import json
from pathlib import Path

import xarray as xr

from cocos.base import writing
from cocos.reports.documents import suspects
from cocos.reports.layouts import KNOWN_RULE, TextOfRow

COLUMNS = (
    *(
        "query",
        "candidate",
        "query_text",
        "candidate_text",
        "score",
        "guide_score",
        "push",
        "part",
        "drawn",
        "own_hard",
    ),
    *("rules", "label"),
)


def write(path: Path, data: xr.Dataset, texts: tuple[TextOfRow, TextOfRow] | None) -> Path:
    """Write all suspected pairs, the largest push first, as CSV or JSON lines, with a `label` to fill in.

    The label is 1 for pairs of one group, which need no reading, and empty for others.
    Texts of CSV, which is made for spreadsheets, are no formulae there (`cocos.base.writing.cell`).
    """
    names = {"pair_push": "push", "pair_part": "part"}
    entries = [{names.get(key, key): value for key, value in pair.items()} for pair in suspects(data)]
    for entry in entries:
        for place, side in enumerate(("query", "candidate")):
            entry[f"{side}_text"] = texts and texts[place](entry[side])
        entry["label"] = 1 if KNOWN_RULE in entry["rules"] else None
    if path.suffix == ".jsonl":
        lines = (json.dumps(entry, ensure_ascii=False, allow_nan=False) for entry in entries)
        return writing.write(path, "".join(f"{line}\n" for line in lines).encode())
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    rows = (entry | {"rules": " ".join(name.replace(" ", "_") for name in entry["rules"])} for entry in entries)
    writer.writerows({name: writing.cell(value) for name, value in row.items()} for row in rows)
    return writing.write(path, stream.getvalue().encode())
