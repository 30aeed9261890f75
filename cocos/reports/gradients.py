"""Tables of a comparison of gradients: every pair of losses, and the queries on which they disagree most."""

import itertools
from collections.abc import Iterator

import numpy as np
import xarray as xr

from cocos import results
from cocos.measures.gradients import least
from cocos.reports import summary, terminal
from cocos.reports.layout import Table

# Characters of the name of a loss and of a query in these tables.
LOSS_CHARACTERS, ASKING_CHARACTERS = 40, 60


def table(data: xr.Dataset) -> Table:
    """Write a row for each pair of losses of each direction."""
    names, rows = [str(name) for name in data["one"].values], []
    short, said = _labels(names)
    for side, one in results.sides(data).items():
        rows += [(f"{side}:", *[""] * 7)] if data.sizes["direction"] > 1 else []
        indent = "  " if data.sizes["direction"] > 1 else ""
        for a, b in itertools.combinations(range(len(names)), 2):
            back = one["alone"].isel(one=b, other=a)
            rows.append((f"{indent}{short[a]}, {short[b]}", *_cells(one.isel(one=a, other=b), float(back))))
    columns = ("", "cosine", "below 0 %", "n", "1st only %", "2nd only %", "length", "5 to 95 %")
    level = 100 * float(data.attrs["level"])
    notes = (
        *said,
        f"cosine: between the gradients of a query, mean and {level:g} % interval over the n queries that have both; "
        "below 0 %: of them, the queries that the two move against each other; 1st only, 2nd only: queries with a "
        "gradient of that loss alone; length: of the second gradient in parts of the first, median; 5 to 95 %: "
        "percentiles of the cosines.",
        data.attrs["first_step"],
    )
    head = (*summary.about(data)[:1], *summary.about(data)[2:], *_sentences(data, short))
    return Table(columns, tuple(rows), head, notes, least=("5 to 95 %", "length"))


def _labels(names: list[str]) -> tuple[list[str], list[str]]:
    """Short names of the losses, and a line that explains them where parameters are left out."""
    kinds = [name.partition("(")[0] for name in names]
    short = [kind if kinds.count(kind) == 1 else name for kind, name in zip(kinds, names, strict=True)]
    short = [terminal.bounded(name, LOSS_CHARACTERS) for name in short]
    return short, [f"losses: {', '.join(names)}"]


def _cells(each: xr.Dataset, back: float) -> tuple[str, ...]:
    """Cells of a pair of losses; `back`: the queries with a gradient of the second alone."""
    number = int(each["pairs"])
    if not number:
        return ("none", "", "0", f"{float(each['alone']):.1f}", f"{back:.1f}", "", "")
    low, high = float(each["low"]), float(each["high"])
    interval = f" [{low:+.2f}, {high:+.2f}]" if np.isfinite(low) else ""
    ends = each["percentiles"].values[[0, -1]]
    return (
        f"{float(each['cosine']):+.2f}{interval}",
        f"{float(each['opposed']):.1f}",
        str(number),
        f"{float(each['alone']):.1f}",
        f"{back:.1f}",
        f"{float(each['ratio']):.3g}",
        f"{ends[0]:+.2f} to {ends[1]:+.2f}",
    )


def _sentences(data: xr.Dataset, short: list[str]) -> Iterator[str]:
    """State for each direction how far two losses agree, or which one of several agrees least with the first."""
    for side, one in results.sides(data).items():
        place = least(one)
        if place is None:
            yield f"{side}: no query has a gradient of {short[0]} and of another loss."
            continue
        each = one.isel(one=0, other=place)
        those = f"{short[place]} agrees least with {short[0]}" if len(short) > 2 else f"{short[place]} and {short[0]}"
        yield (
            f"{side}: {those}: mean cosine {float(each['cosine']):+.2f}, and {float(each['opposed']):.1f} % of the "
            f"{int(each['pairs'])} queries with both gradients have one below 0."
        )


def disagreeing(data: xr.Dataset) -> Table | None:
    """Write the queries on which each other loss and the first disagree most; None where none is listed."""
    if not data.sizes.get("place"):
        return None
    short, rows = _labels([str(name) for name in data["one"].values])[0], []
    for side, of_side in results.sides(data).items():
        for other in range(1, len(short)):
            one = of_side.isel(other=other)
            for place in range(one.sizes["place"]):
                each = one.isel(place=place)
                if int(each["disagree_index"]) < 0:
                    continue
                name = str(each["disagree_name"].item()) if "disagree_name" in each else ""
                name = terminal.bounded(terminal.clean(" ".join(name.split())), ASKING_CHARACTERS)
                row = f"{int(each['disagree_index'])} {name}".strip()
                first = place == 0
                rows.append((f"{side}, {short[other]}" if first else "", f"{float(each['disagree_cosine']):+.2f}", row))
    head = (f"Queries on which the gradients of {short[0]} and of another loss disagree most",)
    return Table(("direction, loss", "cosine", "query"), tuple(rows), head, (), left=True) if rows else None
