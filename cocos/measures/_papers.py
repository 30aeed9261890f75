"""The tables of the papers: their columns, where results hold them, and the printed numbers."""

import functools
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from cocos.base.errors import InputError, nearest

# Directions of the tables; results that name theirs otherwise are read in this order.
PRINTED_DIRECTIONS = ("i2t", "t2i")


@dataclass(frozen=True)
class PaperColumn:
    """A column of a table.

    Args:
        group: heading that it shares with its neighbours, or none.
        name: of the column, as `C^A`.
        variable: name of its values in results.
        direction: of these values; None where they have none.
        digits: decimals of our numbers.
        scale: factor from results to the table.
        ranked: whether a higher value is better.
        distractors: whether candidates that match no query are ranked too.
    """

    group: str
    name: str
    variable: str
    direction: str | None = None
    digits: int = 1
    scale: float = 1.0
    ranked: bool = True
    distractors: bool = False

    @property
    def key(self) -> str:
        """Group and name: unique in a table."""
        return f"{self.group} {self.name}".strip()


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    Args:
        name: what it is called here.
        title: what it shows.
        columns: in their order; of a table `across`, those that are printed.
        shares: kinds of a share (`cocos.results.share`) of the losses that it is for; none: all losses.
        counts: whether it shows counts, which have a convention.
        across: coordinate of the runs whose values make the rows, while the settings make the columns.
        notes: sentences on what our numbers mean.
        beside: sentences on how the printed numbers differ from ours.
    """

    name: str
    title: str
    columns: tuple[PaperColumn, ...]
    shares: tuple[str, ...] = ()
    counts: bool = False
    across: str | None = None
    notes: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    @property
    def printed(self) -> dict[str, Any]:
        """The printed numbers, with their place and paper."""
        found: dict[str, Any] = published()["tables"][self.name]
        return found | {"cited": f"{published()['papers'][found['paper']]}, {found['place']}"}


def _retrieval() -> tuple[PaperColumn, ...]:
    """Columns of Tables 1 and 2."""
    found = []
    for direction in PRINTED_DIRECTIONS:
        found += [PaperColumn(direction, f"R@{k}", f"R@{k}", direction) for k in (1, 5, 10)]
        found.append(PaperColumn(direction, "average", "average_recall", direction))
        if direction == "i2t":
            found.append(PaperColumn(direction, "mAP@5", "mAP@5", direction, 2, 0.01))
    return (*found, PaperColumn("", "rsum", "rsum"))


def _counted(*columns: tuple[str, str]) -> tuple[PaperColumn, ...]:
    """Columns of Tables 3 to 5: name and variable, for both directions."""
    return tuple(
        PaperColumn(direction, name, variable, direction, 2, ranked=False)
        for direction in PRINTED_DIRECTIONS
        for name, variable in columns
    )


def _cross_example() -> tuple[PaperColumn, ...]:
    """Columns of Table 1 of Cross-Example Softmax: captions ask for images."""
    return (
        PaperColumn("", "PR-AUC", "PR-AUC", digits=2),
        *(PaperColumn("", f"R@{k}", f"R@{k}", "t2i", 2) for k in (1, 5, 10)),
        *(PaperColumn("+ distractors", f"R@{k}", f"R@{k}", "t2i", 2, distractors=True) for k in (1, 5, 10, 100)),
    )


AVERAGE_PRECISION = (
    "published mAP@5: over the hits found among the first 5; here over min(5, positives), so never higher"
)
OVER_BATCHES = "published ±: deviation over the batches of one model, not over training runs"
COUNT_NOTE = "eps = 0.01 in the paper; ecir2022 is the published way to count, faults included"
PROXY_COLUMNS = (
    PaperColumn("", "R@1", "R@1"),
    PaperColumn("", "NMI", "NMI"),
    PaperColumn("", "AvgDTP", "AvgDTP", digits=2, ranked=False),
)
PAPER_TABLES = {
    table.name: table
    for table in (
        PaperTable("1", "Retrieval (in the paper: Flickr30k)", _retrieval(), beside=(AVERAGE_PRECISION,)),
        PaperTable("2", "Retrieval (in the paper: MS-COCO)", _retrieval(), beside=(AVERAGE_PRECISION,)),
        PaperTable(
            "3",
            "Contributing negatives of the triplet losses",
            _counted(("C^A", "contributing_mean"), ("C^B", "contributing_sum"), ("C^0", "idle")),
            shares=("violations",),
            counts=True,
            notes=("C^A: of a query that has any; C^B: sum over a batch; C^0: queries of a batch without any",),
            beside=(OVER_BATCHES,),
        ),
        PaperTable(
            "4",
            "Contributing negatives of NT-Xent",
            _counted(("C^qv-", "contributing_all"), ("W^qv-", "weight_above"), ("W^qv+", "weight_positive")),
            shares=("probability",),
            counts=True,
            notes=("C^qv-: negatives above eps; W^qv-: their share; W^qv+: share of the positive", COUNT_NOTE),
            beside=(OVER_BATCHES,),
        ),
        PaperTable(
            "5",
            "Counts of Eq. 7 of SmoothAP",
            _counted(("C^q", "eq7_mean"), ("C^0", "eq7_idle")),
            shares=("unit",),
            counts=True,
            notes=("C^q: pairs above eps per positive, of a query that has any; C^0: queries without any", COUNT_NOTE),
            beside=(OVER_BATCHES,),
        ),
        PaperTable("III", "Functions of the distance and where embeddings come to rest", PROXY_COLUMNS),
        PaperTable(
            "IV",
            "R@1 on corrupted images",
            tuple(PaperColumn("", name, "R@1") for name in ("HIST", "ProxyNCA++", "Regular Softmax", "Warped Softmax")),
            across="corruption",
        ),
        PaperTable("ablations", "Parameters of the warp: α, k1, k2 and the multiplier of Δ", PROXY_COLUMNS[::2]),
        PaperTable("cross_example", "Retrieval with one threshold, and among distractors", _cross_example()),
    )
}


@functools.cache
def published() -> dict[str, Any]:
    """The printed numbers of all tables, with the papers and the footnotes."""
    text = (files("cocos.measures") / "published.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def known(name: str) -> PaperTable:
    """A table by its name; a hyphen may stand for an underscore, and letters may be small."""
    plain = {each.lower(): each for each in PAPER_TABLES}
    asked = name.lower().replace("-", "_").removeprefix("table").strip("_ ")
    if asked not in plain:
        raise InputError(nearest("table", name, PAPER_TABLES))
    return PAPER_TABLES[plain[asked]]
