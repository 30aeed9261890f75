"""Table of the rows of one group in batches of several sizes."""

import xarray as xr

from cocos import measures
from cocos.reports.layout import Table

PLAN_COLUMNS = (
    "batch",
    "any pair",
    "pairs",
    "queries that meet one",
    "per query",
    "batches",
    "without any",
    "left out",
)

# Rule that joins groups by their texts.
BOTH = "group or text"


def table(data: xr.Dataset) -> Table:
    """Write a row for each rule and batch size, and below them the largest batch that keeps a bound, and advice."""
    found = measures.document("plan", data)
    rows, notes = [], []
    for rule, about in found["rules"].items():
        if rule == BOTH and about == found["rules"]["group"]:
            notes.append(f"same {rule}: no other pairs than those of the same group")
            continue
        rows.append((f"same {rule}", *[""] * (len(PLAN_COLUMNS) - 1)))
        rows += [_row(each) for each in about["batch_sizes"]]
        notes.append(_limits(rule, about, found))
    if hard := found.get("hard_negatives"):
        blank = [""] * (len(PLAN_COLUMNS) - 1)
        rows.append(("others' hard negatives of one group", *blank))
        for each in hard:
            own = {"queries that meet one": _part(each["met"]), "per query": f"{each['per_query']:.3g}"}
            rows.append((f"  {each['batch_size']}", *(own.get(name, "") for name in PLAN_COLUMNS[1:])))
        if not hard[-1]["met"]:
            notes.append("no hard negative that a query names is of the group of another query")
    least = ("per query", "batches", "pairs")
    return Table(PLAN_COLUMNS, tuple(rows), _about(found), (*notes, *_advice(found)), least=least)


def _row(each: dict) -> tuple[str, ...]:
    met = each["met"]
    return (
        f"  {each['batch_size']}",
        _part(each["probability"]),
        f"{each['pairs']:.3g}",
        _part(met),
        f"{each['per_query']:.3g}",
        str(each["batches"]),
        str(each["batches_without"]),
        str(each["left_out"]),
    )


def _part(value: float) -> str:
    """Write a part in percent; a small one with its leading digits, one near 100 % as a bound."""
    percent = 100 * value
    if value and percent < 0.1:
        return f"{percent:.1g} %"
    return "> 99.9 %" if 99.95 <= percent < 100 and value < 1 else f"{percent:.1f} %"


def _about(found: dict) -> tuple[str, ...]:
    partner = "" if found["labelled"] else ", each with a partner"
    return (
        f"{found['rows']} {found['side']} are drawn without replacement{partner}; two of one batch that share a group "
        "or a text are a pair",
        "any pair: probability that a batch contains one; without any: the most full batches of a pass without such a "
        "pair; left out: rows that are in none of these",
    )


def _limits(rule: str, about: dict, found: dict) -> str:
    """Say which batches keep the bound by one rule."""
    bound = f"{100 * found['below']:g} %"
    most = about["largest_group"]
    begin = f"same {rule}: {about['groups']} in {found['rows']} rows, {most} in the largest"
    if most == 1:
        return f"{begin}: no batch contains a pair"
    parts = [
        _bounded("any pair", about["largest_batch"], bound, found["rows"]),
        _bounded("queries that meet one", about["largest_batch_met"], bound, found["rows"]),
    ]
    return f"{begin}; {'; '.join(parts)}"


def _bounded(what: str, largest: int, bound: str, rows: int) -> str:
    """Say up to which batch a chance stays below its bound."""
    if largest < 2:
        return f"{what}: {bound} or more in every batch"
    return f"{what}: below {bound} {'in every batch' if largest == rows else f'up to a batch of {largest}'}"


def _advice(found: dict) -> tuple[str, ...]:
    """Say what to do about the pairs, where there are any."""
    *_, widest = found["rules"].values()
    if widest["largest_group"] == 1:
        return ()
    if found["labelled"]:
        return (
            "a labelled set: pairs of one class are positives here, and a sample that meets none has no positive in "
            "its batch; draw classes x samples instead (--sample groups)",
        )
    return (
        "without such pairs: draw each group once a batch (a sampler without duplicates), or mask rows of one group "
        "(cocos count leaves them out of the gradient; --same-group negative keeps them); cocos audit FILE tells how "
        "much push they receive",
    )
