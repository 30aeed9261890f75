"""Table of retrieval metrics."""

import xarray as xr

from cocos import measures
from cocos.counting import findings
from cocos.reports.layout import Table
from cocos.reports.phrases import geometry, number

# Metrics that stand in sentences and not in rows.
IN_SENTENCES = ("queries", "candidates", "tied")


def table(data: xr.Dataset) -> Table:
    """Write retrieval metrics: a row for each, a column for each direction, and one more where it has distractors."""
    found = measures.document("evaluate", data)
    blocks = {"": found, " + distractors": found.get("with_distractors", {"directions": {}})}
    columns, singles = {}, {}
    for mark, block in blocks.items():
        shown = [name for name in block["directions"] if not mark or found["directions"][name]["unmatched"]]
        columns |= {f"{name}{mark}": block["directions"][name] for name in shown}
        singles |= {f"{name}{mark}": block for name in shown[:1]}  # metrics of no direction stand in the first column

    for name, entry in columns.items():  # recall is among samples: of proxies it is accuracy
        if "accuracy" in found and name.startswith("s2p"):
            left = [key for key in entry if key.startswith("R@") or key == "average_recall"]
            columns[name] = {key: value for key, value in entry.items() if key not in left}
    each = found.get("aggregate", {"directions": {}})["directions"]
    several = {f"{name}, members": entry for name, entry in each.items()}

    def cell(entry: dict, key: str, spread: bool) -> str:
        if key not in entry:
            return ""
        digits = 1 if key.endswith("_rank") else 2
        return number(entry[key], digits=digits) if spread else f"{entry[key]['mean']:.{digits}f}"

    folded = found["folds"] > 1
    names = [str(key) for key in data.data_vars if data[key].dims[-1] == "fold" and key not in IN_SENTENCES]
    rows = tuple(
        (
            key.replace("_", " "),
            *(cell(entry | singles.get(name, {}), key, folded) for name, entry in columns.items()),
            *(cell(entry, key, True) for entry in several.values()),
        )
        for key in names
    )
    sizes = (
        f"{name}: {entry['queries']['mean']:g} queries, {entry['candidates']['mean']:g} candidates"
        for name, entry in columns.items()
    )
    joined = (
        [f"ensemble of {found['members']}, concatenated; members: mean ± deviation of each alone"] if several else []
    )
    folds = f"; mean ± deviation over {found['folds']} folds, sizes of one fold" if folded else ""
    split = f"split {found['split']}, " if found["split"] else ""
    head = (
        *findings.first(data.attrs),
        f"{split}{found['metric']} scores on {found['device']}; in percent, except ranks{folds}",
        *joined,
        *sizes,
    )
    tied = [
        f"{name}: the best positive of {entry['tied']['mean']:.2f} % of the queries ties with a negative"
        for name, entry in columns.items()
        if entry["tied"]["mean"]
    ]
    rule = found["ties"]
    notes = (f"{rule[0].upper()}{rule[1:]}.", *tied, *geometry(found["health"], ranks=True))
    return Table(("", *columns, *several), rows, head, notes)
