"""Results of earlier versions, as they are read today: the one place that knows a finding by the words of a line."""

import json
from typing import Any

import numpy as np
import xarray as xr

from cocos.counting import findings

# First letters of numbers that were parts of the push, under the names of shares, where the unit was unknown.
FILLED_BY_PUSH = (
    "contributing",
    "idle",
    "weight_",
    "pulled_",
    "pushed_",
    "source_contributing",
    "source_pulled",
    "share",
)
# How the lines on embeddings began in results of version 0.1, and their kinds of findings.
FIRST_WORDS = {
    "WARNING: ": "collapsed",
    "CAUTION: positives": "mispaired",
    "CAUTION: the columns": "turned",
    "CAUTION: the embeddings": "raw norms",
}


def as_today(data: xr.Dataset) -> xr.Dataset:
    """Give a result of an earlier version what one of today has in its place.

    Findings, which version 0.1 kept as lines of text alone, are found by how these began; notes that name a table of a
    paper, and pairs of runs to compare, were text as well. Numbers by the unit that were filled with parts of the push
    are NaN.

    Examples:
        >>> from cocos.results import older
        >>> old = xr.Dataset({"table": ("run", ["III"])}, attrs={"notes": "III: small", "compared": "a minus b"})
        >>> older.as_today(old).attrs["table_notes"], older.as_today(old).attrs["comparisons"]
        ('{"III": ["small"]}', '[["a", "b"]]')
    """
    data = data.assign_attrs(_findings(data) | _of_tables(data))
    if data.attrs.get("share") != "push":
        return data
    gone = [name for name in data.data_vars if str(name).startswith(FILLED_BY_PUSH)]
    made = data.assign({name: data[name].astype(np.float64).where(False) for name in gone})
    made.attrs = data.attrs | {"share": "unknown", "unit": "unknown"}
    return made


def _findings(data: xr.Dataset) -> dict[str, Any]:
    """The findings of version 0.1, where there are notes."""
    if "findings" in data.attrs or not (notes := data.attrs.get("notes", "")):
        return {}
    known = [
        (note, kind) for note in notes.splitlines() for start, kind in FIRST_WORDS.items() if note.startswith(start)
    ]
    made = [findings.Finding(kind, note, findings.KINDS[kind].severity) for note, kind in known]
    return {"findings": findings.attributes(made)["findings"]}


def _of_tables(data: xr.Dataset) -> dict[str, Any]:
    """Notes of a table of runs on the tables of a paper, by their names, and the pairs of runs that are compared."""
    made: dict[str, Any] = {}
    if "table_notes" not in data.attrs and "table" in data.variables and "run" in data.dims:
        own: dict[str, list[str]] = {}
        tables = set(map(str, data["table"].values.ravel().tolist()))
        for name, _, said in (note.partition(": ") for note in data.attrs.get("notes", "").splitlines()):
            if said and name in tables:
                own.setdefault(name, []).append(said)
        made |= {"table_notes": json.dumps(own)} if own else {}
    if "comparisons" not in data.attrs and data.attrs.get("compared"):
        pairs = [each.split(" minus ") for each in str(data.attrs["compared"]).split("; ")]
        made["comparisons"] = json.dumps([each for each in pairs if len(each) == 2])
    return made
