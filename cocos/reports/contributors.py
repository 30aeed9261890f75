"""Table of the candidates of one query."""

from collections.abc import Callable

import xarray as xr

from cocos import results
from cocos.counting import findings
from cocos.measures.contributors import tokens
from cocos.reports import terminal
from cocos.reports.layout import Table
from cocos.reports.phrases import has_images, percent

# Characters of the text of a candidate, which leave room for the numbers beside it.
CELL_LENGTH = 44
# Characters of the text of the query, which has a line of its own.
QUERY_LENGTH = 80
# Tokens of the query that a line names.
MOST_TOKENS = 5


def table(data: xr.Dataset, labels: Callable[[int], str] | None = None, query: str | None = None) -> Table:
    """Write the candidates of one query: a row for each, the largest share first; totals are over all candidates."""
    attrs, rows = data.attrs, []
    for place in range(data.sizes["candidate"]):
        one = {name: data[name].values[place].item() for name in data.data_vars if data[name].dims == ("candidate",)}
        name = str(one["candidate_index"])
        side = "pull" if one["weight"] < 0 else "push" if one["weight"] > 0 else ""
        rows.append((
            f"{name}  {terminal.one_line(labels(one['candidate_index']), CELL_LENGTH)}" if labels else name,
            "positive" if one["positive"] else "negative",
            str(one["group"]),
            f"{one['score']:.4f}",
            f"{one['weight']:.3g}",
            f"{one['share']:.4f}",
            f"{100 * one['part']:.1f} % {side}" if side else "0",
            f"{100 * one['held']:.1f} %" if side else "",
            "yes" if one["contributes"] == 1 else "" if one["positive"] else "no",
        ))
    share, symbol = {"probability": ("probability", "p"), "violations": ("violations", "n")}.get(
        attrs.get("share"), ("share", "share")
    )
    limit = f"{attrs['eps']:g}" if symbol == "n" else percent(float(attrs["eps"]))
    columns = ("candidate", "", "group", "score", "weight", share, "of", "cumulative", f"{symbol} > {limit}")
    if attrs.get("share") == "unknown":  # no column by the unit
        shown = [place for place, column in enumerate(columns) if column not in {share, columns[-1]}]
        columns, *rows = ([line[place] for place in shown] for line in (columns, *rows))
    return Table(columns, tuple(rows), _head(attrs, query), _notes(data), least=("weight", "group"))


def _head(attrs: dict, query: str | None) -> tuple[str, ...]:
    """Name the query, the loss and the batch."""
    which = f"row {attrs['row']} of {attrs['direction']}, group {attrs['group']}"
    return (
        *findings.first(attrs),
        which if query is None else f"{which}: {terminal.one_line(query, QUERY_LENGTH)}",
        f"{attrs['loss_repr']}, {results.above(attrs)} (eps = {attrs['eps']:g})",
        f"batch {attrs['batch'] + 1} of {attrs['batches']}, {attrs['batch_size']} {attrs['sample']}, "
        f"seed {attrs['seed']}; {attrs['dtype']} on {attrs['device']}",
        *filter(None, (results.about_weights(attrs), results.about_unit(attrs))),
    )


def _notes(data: xr.Dataset) -> tuple[str, ...]:
    """State the totals of the query, and the candidates that are not listed."""
    attrs = data.attrs
    above = [f"{attrs['contributing']} contribute ({results.above(attrs)})"] if "contributing" in attrs else []
    above += [f"{attrs['relative']} have more than {percent(attrs['eps'])} of the push"] if "relative" in attrs else []
    notes = [
        f"of {attrs['negatives']} negatives {', '.join(above)}; "
        f"effective negatives: {attrs['effective']:.1f}; positives: {attrs['positives']}; "
        f"push {attrs['push']:.4g}, pull {attrs['pull']:.4g}"
    ]
    if "token" in data.dims and attrs["push"] > 0:
        every = tokens(data)
        said = (
            f"token {each['token']} has {100 * each['part']:.1f} % (most by token {each['match']} of {each['row']})"
            for each in every[:MOST_TOKENS]
        )
        notes.append(f"which of the {len(every)} tokens of the query the push comes through: {'; '.join(said)}")
    total, shown = attrs["positives"] + attrs["negatives"], data.sizes["candidate"]
    if shown < total:
        notes.append(f"the first {shown} of {total} candidates are listed")
    if attrs["left_out"]:
        notes.append(f"{attrs['left_out']} rows of the batch are neither positive nor negative and take no part")
    if attrs["repeated"]:
        each = "an image once per caption" if has_images((attrs["direction"],)) else "a row once per partner"
        notes.append(f"{attrs['repeated']} rows repeat a candidate: a batch of pairs contains {each} drawn")
    return tuple(notes)
