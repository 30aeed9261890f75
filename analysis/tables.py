"""What do the tables of the papers look like for your own runs?"""

import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from cocos import losses, reports, results
from cocos.base.errors import InputError, nearest
from cocos.counting import shares
from cocos.measures.run import AMONG_SAMPLES
from cocos.measures.shared import retrieval

# Directions of the tables; results that name theirs otherwise are read in this order.
PRINTED_DIRECTIONS = ("i2t", "t2i")
# Sources of a row.
OUR_ROWS, PUBLISHED_ROWS = "runs", "published"
# Label of the row of results that are named by their data set.
OUR_ROW = "ours"
# Coordinates of a table of runs that tell settings apart where `config` leaves them out.
VARIED_SETTINGS = ("mask", "arm", "k", "rate", "batch_size")
# Kinds of a share that a table of counts knows; losses of another kind stand in the first one.
COUNTED_SHARES = ("violations", "probability", "unit")

# Where results stand that name no data set of a table of several.
UNPLACED = "own data"
# Direction of samples among class proxies.
AMONG_PROXIES = "s2p"
# Verification accuracy, which a result of `cocos evaluate --verification` has.
VERIFIED = "verification accuracy"
# Coverage of an interval of a mean over runs.
INTERVAL_LEVEL = 0.95

# A value and its deviation over the batches or folds of the run, NaN where there is none.
Value = tuple[float, float]


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
        distractors: whether candidates that match no query are ranked too.
        place: data set that it is of, in a table of several; `UNPLACED` where a result names none of them.
        models: `Complete`, one model; of an ensemble `Ensemble`, concatenated, or `Aggregate`, the mean of its members.
    """

    group: str
    name: str
    variable: str
    direction: str | None = None
    digits: int = 1
    scale: float = 1.0
    distractors: bool = False
    place: str = ""
    models: str = ""

    @property
    def filled_by(self) -> str:
        """The command whose result has these values."""
        if self.place and self.variable == VERIFIED:
            return "cocos evaluate FILE --verification --out FOUND.nc"
        if self.models in {"Ensemble", "Aggregate"}:
            return "cocos evaluate FILE --ensemble OTHER --out FOUND.nc"
        if self.distractors:
            return "cocos evaluate FILE --distractors MORE --k 1,5,10,100 --out FOUND.nc, where captions ask images,"
        if self.variable == "AvgDTP":
            return "cocos evaluate FILE --out FOUND.nc, of samples with class proxies, or cocos plot dtp FOLDER"
        kind, _, k = self.variable.partition("@")
        if kind == "R" and k and int(k) not in retrieval.RECALLS:
            return f"cocos evaluate FILE --k {k} --out FOUND.nc"
        evaluated = {"average_recall", "rsum", "PR-AUC", "NMI", "mAP@R", "R-precision"}
        if self.variable in evaluated or k:
            return "cocos evaluate FILE --out FOUND.nc"
        return "cocos count FILE --loss LOSS --out FOUND.nc"

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
        shares: kinds of a share (`cocos.counting.shares.share`) of the losses that it is for; none: all losses.
        counts: whether it shows counts, which have a convention.
        across: coordinate of the runs whose values make the rows, while the settings make the columns.
        notes: sentences on what our numbers mean.
        beside: sentences on how the printed numbers differ from ours.
        reads: names of other tables whose runs, in a table of runs, are for this one too.
        intervals: whether the printed ± is half of a 95 % interval of the mean, and so ours.
        without: what no run of this project has.
    """

    name: str
    title: str
    columns: tuple[PaperColumn, ...]
    shares: tuple[str, ...] = ()
    counts: bool = False
    across: str | None = None
    notes: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    intervals: bool = False
    without: str = ""

    @property
    def places(self) -> tuple[str, ...]:
        """Data sets of the columns; none where a table has one."""
        return tuple(dict.fromkeys(column.place for column in self.columns if column.place not in {"", UNPLACED}))

    @property
    def printed(self) -> dict[str, Any]:
        """The printed numbers, with their place and paper."""
        found: dict[str, Any] = published_numbers()["tables"][self.name]
        return found | {"cited": f"{published_numbers()['papers'][found['paper']]}, {found['place']}"}


# Columns of Tables 1 and 2.
RETRIEVAL_COLUMNS = (
    *(PaperColumn("i2t", f"R@{k}", f"R@{k}", "i2t") for k in (1, 5, 10)),
    PaperColumn("i2t", "average", "average_recall", "i2t"),
    PaperColumn("i2t", "mAP@5", "mAP@5", "i2t", 2, 0.01),
    *(PaperColumn("t2i", f"R@{k}", f"R@{k}", "t2i") for k in (1, 5, 10)),
    PaperColumn("t2i", "average", "average_recall", "t2i"),
    PaperColumn("", "rsum", "rsum"),
)
# Columns of Table 1 of Cross-Example Softmax: captions ask for images.
CROSS_EXAMPLE_COLUMNS = (
    PaperColumn("", "PR-AUC", "PR-AUC", digits=2),
    *(PaperColumn("", f"R@{k}", f"R@{k}", "t2i", 2) for k in (1, 5, 10)),
    *(PaperColumn("+ distractors", f"R@{k}", f"R@{k}", "t2i", 2, distractors=True) for k in (1, 5, 10, 100)),
)


def _counted(*columns: tuple[str, str]) -> tuple[PaperColumn, ...]:
    """Columns of Tables 3 to 5: name and variable, for both directions."""
    return tuple(
        PaperColumn(direction, name, variable, direction, 2)
        for direction in PRINTED_DIRECTIONS
        for name, variable in columns
    )


AVERAGE_PRECISION = (
    "published mAP@5: over the hits found among the first 5; here over min(5, positives), so never higher"
)
OVER_BATCHES = "published ±: deviation over the batches of one model, not over training runs"
COUNT_NOTE = "eps = 0.01 in the paper; ecir2022 is the published way to count, faults included"
PROXY_COLUMNS = (
    PaperColumn("", "R@1", "R@1"),
    PaperColumn("", "NMI", "NMI"),
    PaperColumn("", "AvgDTP", "AvgDTP", digits=2),
)
# Cut-offs of Tables I and II for each data set; NMI is not printed for SOP.
PLACES_OF_RECALLS = {"CUB": (1, 2, 4), "CARS": (1, 2, 4), "SOP": (1, 10, 100, 1000)}
IMAGE_RETRIEVAL = (
    *(
        PaperColumn(place, name, name, place=place)
        for place, ks in PLACES_OF_RECALLS.items()
        for name in (*(f"R@{k}" for k in ks), *(() if place == "SOP" else ("NMI",)))
    ),
    *(PaperColumn(UNPLACED, name, name, place=UNPLACED) for name in ("R@1", "R@2", "R@4", "R@10", "NMI")),
)
BENCHMARKS_OF_FACES = ("LFW", "CFP-FP", "AgeDB-30", "CALFW", "CPLFW")
REALITY_CHECK = tuple(
    PaperColumn(models, name, variable, digits=2, models=models)
    for models in ("Complete", "Ensemble", "Aggregate")
    for name, variable in (("MAP@R", "mAP@R"), ("RP", "R-precision"), ("P@1", "R@1"))
)
ENSEMBLES = (
    "Complete: one model; Ensemble: models concatenated (cocos evaluate FILE --ensemble OTHER); Aggregate: the mean of "
    "its members, each alone"
)


def _reality_check(name: str, place: str) -> PaperTable:
    """Tables VI to VIII."""
    return PaperTable(
        name,
        f"Reality check, appendix D (in the paper: {place})",
        REALITY_CHECK,
        notes=(ENSEMBLES,),
        intervals=True,
        without=f"no run of this project: {place} and networks pretrained on ImageNet were not there",
    )


PAPER_TABLES = {
    table.name: table
    for table in (
        PaperTable("1", "Retrieval (in the paper: Flickr30k)", RETRIEVAL_COLUMNS, beside=(AVERAGE_PRECISION,)),
        PaperTable(
            "2",
            "Retrieval (in the paper: MS-COCO)",
            RETRIEVAL_COLUMNS,
            beside=(AVERAGE_PRECISION, "published average of 2.7 (t2i): a misprint, the mean of its recalls is 54.8"),
        ),
        PaperTable(
            "3",
            "Contributing negatives of the triplet losses",
            _counted(("C^A", "contributing_mean"), ("C^B", "contributing_sum"), ("C^0", "idle")),
            shares=("violations",),
            counts=True,
            notes=("C^A: of a query that has any; C^B: sum over a batch; C^0: queries of a batch without any",),
            beside=(
                OVER_BATCHES,
                "published C^A and C^0 of Triplet (t2i): the published counter sums along the wrong axis; C^B is right",
            ),
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
            beside=(
                OVER_BATCHES,
                "published C^q and C^0 (t2i): the published counter takes images 5i to 5i+4 for positives of caption i",
            ),
        ),
        PaperTable(
            "I",
            "Image retrieval (in the paper: CUB-200, CARS196 and SOP)",
            IMAGE_RETRIEVAL,
            beside=(
                "published: the dagger of larger crops is lost in the text that was transcribed; larger crops are the "
                "rows of its last block",
            ),
            reads=("III",),
            without="no run of this project on CUB-200, CARS196 or SOP; its runs on Omniglot stand under own data",
        ),
        PaperTable(
            "II",
            "Warped softmax with a validation set (in the paper: CUB-200, CARS196 and SOP, a row each)",
            tuple(PaperColumn("", name, name) for name in (*(f"R@{k}" for k in (1, 2, 4, 10, 100, 1000)), "NMI")),
            reads=("III",),
            without="no run of this project on CUB-200, CARS196 or SOP, but on Omniglot",
        ),
        PaperTable(
            "III",
            "Functions of the distance and where embeddings come to rest",
            PROXY_COLUMNS,
            beside=("published 0.97t and 0.5t: the last result before numerical instability",),
        ),
        PaperTable(
            "IV",
            "R@1 on corrupted images",
            tuple(PaperColumn("", name, "R@1") for name in ("HIST", "ProxyNCA++", "Regular Softmax", "Warped Softmax")),
            across="corruption",
        ),
        PaperTable(
            "V",
            "Face verification",
            (
                *(PaperColumn("", name, VERIFIED, digits=2, place=name) for name in BENCHMARKS_OF_FACES),
                PaperColumn("", UNPLACED, VERIFIED, digits=2, place=UNPLACED),
            ),
            notes=("verification accuracy of ten folds, each at the threshold that is best in the nine others",),
            without="no run of this project: faces and the lists of their pairs were not there",
        ),
        _reality_check("VI", "CUB-200"),
        _reality_check("VII", "CARS196"),
        _reality_check("VIII", "SOP"),
        PaperTable("ablations", "Parameters of the warp: α, k1, k2 and the multiplier of Δ", PROXY_COLUMNS[::2]),
        PaperTable("cross_example", "Retrieval with one threshold, and among distractors", CROSS_EXAMPLE_COLUMNS),
        PaperTable(
            "cross_example_2",
            "Retrieval on data of which nothing was trained on (in the paper: Flickr30k)",
            CROSS_EXAMPLE_COLUMNS[1:4],
            without="no run of this project: its towers are trained and tested on one set of captions",
        ),
    )
}


@functools.cache
def published_numbers() -> dict[str, Any]:
    """The printed numbers of all tables, with the papers."""
    text = Path(__file__).with_name("published.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def known(name: str) -> PaperTable:
    """A table by its name; a hyphen may stand for an underscore, and letters may be small."""
    plain = {each.lower(): each for each in PAPER_TABLES}
    asked = name.lower().replace("-", "_").removeprefix("table").strip("_ ")
    if asked not in plain:
        raise InputError(nearest("table", name, PAPER_TABLES))
    return PAPER_TABLES[plain[asked]]


@dataclass(frozen=True)
class TableRun:
    """The values of one run.

    Args:
        label: of its row; runs that differ in the seed alone share it.
        family: name of its loss, or empty.
        convention: of its counts, or empty.
        place: of a table `across`, the value of that coordinate.
        values: key of the column -> value.
    """

    label: str
    family: str = ""
    convention: str = ""
    place: str = ""
    values: Mapping[str, Value] = field(default_factory=dict)


def _named(direction: str | None, there: Sequence[str]) -> str | None:
    """The direction of a result that a column reads: that of its name, or the one in its place; None: there is none.

    A column without a direction reads that of samples among samples, or the only one; accuracy, of samples among class
    proxies, is no recall.
    """
    if direction is None:
        known = [name for name in there if name != AMONG_PROXIES]
        return known[0] if len(known) == 1 else None
    if direction in there:
        return direction
    place = PRINTED_DIRECTIONS.index(direction)
    other = set(PRINTED_DIRECTIONS).isdisjoint(there) and place < len(there)
    return there[place] if other else None


def _of_document(found: Mapping[str, Any], columns: Sequence[PaperColumn]) -> dict[str, Value]:
    """Values of the columns in a document of `count` or `evaluate`; a column that it lacks is left out."""
    values = {}
    for column in columns:
        block = found.get("with_distractors", {}) if column.distractors else found
        if column.models:
            if (column.models == "Complete") == ("members" in found):
                continue
            block = found.get("aggregate", {}) if column.models == "Aggregate" else found
        where = [block, block.get("metrics", {})]
        sides = [each.get("directions", {}) for each in where]
        name = _named(column.direction, list(sides[0]))
        single = where if column.direction is None else []
        for entries in (*single, *(side.get(name, {}) for side in sides)):
            asked = not column.distractors or found["directions"][name].get("unmatched", 1)  # 0: as without them
            if asked and column.variable in entries and column.key not in values:
                entry = entries[column.variable]
                both = entry if isinstance(entry, dict) else {"mean": entry, "std": None}
                mean, std = (math.nan if both[key] is None else float(both[key]) for key in ("mean", "std"))
                values[column.key] = mean, math.nan if found.get("folds") == 1 else std  # one fold has no deviation
    return values


def _of_row(one: xr.Dataset, columns: Sequence[PaperColumn]) -> dict[str, Value]:
    """Values of the columns in one run of a table of runs."""
    values = {}
    for column in columns:
        if column.variable not in one:
            continue
        cell, over = one[column.variable], one.get(f"{column.variable}_over_batches")
        chosen = {}
        if "direction" in cell.dims:
            name = _named(column.direction, [str(each) for each in cell["direction"].values])
            chosen = {"direction": name}
        if "distractors" in cell.dims:
            chosen["distractors"] = "with" if column.distractors else "without"
        fits = None not in chosen.values() and (column.direction is None or "direction" in cell.dims)
        if fits and column.distractors == (chosen.get("distractors") == "with"):
            picked = [math.nan if each is None else float(each.sel(chosen)) for each in (cell, over)]
            values[column.key] = picked[0], picked[1]
    return {key: value for key, value in values.items() if not math.isnan(value[0])}


def _of_table(data: xr.Dataset, table: PaperTable, label: str | None) -> Iterator[TableRun]:
    """Every run of a table of runs at its last step, once for each convention of counts."""
    data = data.isel(step=-1) if "step" in data.dims else data
    if "table" in data.coords:
        data = data.isel(run=np.flatnonzero(np.isin(data["table"].values, [table.name, *table.reads])))
    varied = [name for name in VARIED_SETTINGS if name in data.coords and len(np.unique(data[name].values)) > 1]
    conventions = [str(name) for name in data["convention"].values] if "convention" in data.dims else [""]
    for number in range(data.sizes["run"]):
        for convention in conventions if table.counts else conventions[:1]:
            one = data.isel(run=number)
            one = one.sel(convention=convention) if convention else one
            family = one.coords["family"].item() if "family" in one.coords else None
            place = str(one.coords[table.across].item()) if table.across in one.coords else ""
            columns = _columns_of(table, UNPLACED) if table.across is None else table.columns[:1]
            setting = str(one.coords["config"].item()) if "config" in one.coords else family or ""
            more = [f"{name}={one.coords[name].item()}" for name in varied if f"{name}=" not in setting]
            yield TableRun(
                " ".join([setting, *more]) if label is None else label,
                family or "",
                convention if table.counts else "",
                place,
                _of_row(one, columns),
            )


def _belongs(run: TableRun, table: PaperTable) -> bool:
    """Whether a table of counts is for the loss of a run; a loss that is unknown here belongs anywhere."""
    if not table.shares or losses.canonical(run.family) not in losses.names():
        return True
    share = shares.share(losses.load(run.family))
    return share in table.shares or (share not in COUNTED_SHARES and table.shares == COUNTED_SHARES[:1])


def _columns_of(table: PaperTable, place: str) -> tuple[PaperColumn, ...]:
    """Columns that a result fills: those of its data set, in a table of several."""
    return tuple(column for column in table.columns if not table.places or column.place == place)


def _label(given: str | None, table: PaperTable) -> tuple[str | None, str]:
    """Label of a row, and its data set: in a table of several, the label may be one of them."""
    return (OUR_ROW, given) if given in table.places else (given, UNPLACED)


def _as_table(data: xr.Dataset, name: str, label: str | None) -> xr.Dataset:
    """A result of `run` or of `dtp` as a table of runs; recall of samples with class proxies is that among samples."""
    if data.attrs["measure"] == "dtp":
        runs = [str(each) for each in data["run"].values]
        config = [label or name if len(runs) == 1 else f"{label}, {each}" if label else each for each in runs]
        return data[["average"]].rename(average="AvgDTP").assign_coords(config=("run", config))
    last = data.sel(width=data["width"].max(), drop=True) if "width" in data.dims else data
    last = last[[key for key in last if "checkpoint" in last[key].dims]].isel(checkpoint=-1, drop=True)
    last = last[[key for key in last if set(last[key].dims) <= {"direction"} and last[key].dtype.kind in "fiub"]]
    made = last.rename(contributing="contributing_all") if "contributing" in last else last
    family = str(data.attrs.get("loss", ""))
    made = made.expand_dims("run").assign_coords(config=("run", [label or name]), family=("run", [family]))
    among = {str(key): str(key).removesuffix(AMONG_SAMPLES) for key in made if str(key).endswith(AMONG_SAMPLES)}
    made = made.drop_vars([key for key in among.values() if key in made]).rename(among)
    return made.rename(dtp="AvgDTP") if "dtp" in made else made


def _read(data: xr.Dataset | dict[str, xr.Dataset], table: PaperTable, name: str, given: str | None) -> list[TableRun]:
    """Runs of a table in a table of runs or a result; `given` None: the label of each setting."""
    label, place = _label(given, table)
    measure = "count" if isinstance(data, dict) else data.attrs.get("measure")
    several = isinstance(data, dict)
    if not several and (measure == "dtp" or "checkpoint" in data.dims):
        data, label = _as_table(data, name, label), None
    if not several and "run" in data.dims:
        found = list(_of_table(data, table, label))
    elif measure == "verification" and "accuracy" in data["metric"]:
        one = data.sel(metric="accuracy")
        value = float(one["value"]), float(one["deviation"])
        keys = [column.key for column in _columns_of(table, place) if column.variable == VERIFIED]
        family = str(data.attrs.get("trained_with", ""))
        found = [TableRun(label or name, family, values=dict.fromkeys(keys, value))]
    elif measure in {"count", "evaluate"}:
        parts = data if several else {"": data}
        whole = label or name
        found = []
        for each, one in parts.items():
            counted = "contributing" in one
            entry = reports.document("count" if counted else "evaluate", one)
            family = entry["loss"]["name"] if "loss" in entry else entry.get("trained_with") or ""
            convention = entry["convention"] if counted and table.counts else ""
            own = f"{whole}, {each}" if len(parts) > 1 else whole
            values = _of_document(entry, _columns_of(table, place))
            found.append(TableRun(own, family, convention, values=values))
    else:
        raise InputError(f"{name}: neither a table of runs nor a result of cocos count, evaluate, run or dtp")
    if table.across is not None and found and not any(run.place for run in found):
        raise InputError(f"{name}: its runs have no coordinate {table.across!r}, which makes the rows of the table")
    chosen = [run for run in found if run.values and _belongs(run, table)]
    if not chosen:
        wanted = ", ".join(dict.fromkeys(column.variable for column in table.columns))
        there = ", ".join(dict.fromkeys(run.family for run in found if run.family))
        of = f"; it has runs of {there}" if there else ""
        filled = "; ".join(dict.fromkeys(column.filled_by for column in table.columns))
        raise InputError(f"{name}: nothing for table {table.name}, which shows {wanted}{of}; what fills it: {filled}")
    return chosen


@dataclass(frozen=True)
class _Cell:
    """A value in the table, with the decimals of mean and deviation."""

    mean: float
    std: float = math.nan
    digits: tuple[int, int] = (1, 1)
    number: int = 1

    @property
    def half(self) -> float:
        """Half of the 95 % interval of the mean over runs, by Student's distribution; NaN of a single run."""
        from scipy.stats import t as student

        if self.number < 2:
            return math.nan
        return float(student.ppf((1 + INTERVAL_LEVEL) / 2, self.number - 1)) * self.std / math.sqrt(self.number)


@dataclass(frozen=True)
class _Row:
    """A row of the table: a setting of our runs, or a printed one."""

    label: str
    source: str
    convention: str
    number: int
    cells: dict[str, _Cell]


def _cell(found: list[Value], column: PaperColumn) -> _Cell:
    """Mean and sample deviation over runs; of a single run, the deviation over its batches."""
    values = np.array([column.scale * value for value, _ in found])
    std = float(values.std(ddof=1)) if len(values) > 1 else column.scale * found[0][1]
    return _Cell(float(values.mean()), std, (column.digits, column.digits), len(values))


def _rows_of(runs: list[TableRun], table: PaperTable) -> list[_Row]:
    """A row for each setting and convention, or for each value of the coordinate across, with a column a setting."""
    grouped: dict[tuple[str, str], list[TableRun]] = {}
    for run in runs:
        key = (run.label, run.convention) if table.across is None else (run.place, "")
        grouped.setdefault(key, []).append(run)
    first, rows = table.columns[0], []
    for (label, convention), own in grouped.items():
        found: dict[str, list[Value]] = {}
        for column in table.columns if table.across is None else ():
            some = [run.values[column.key] for run in own if column.key in run.values]
            found |= {column.key: some} if some else {}
        for run in own if table.across is not None else ():
            found.setdefault(run.label, []).append(run.values[first.key])
        columns = {column.key: column for column in table.columns} if table.across is None else {}
        cells = {key: _cell(some, columns.get(key, first)) for key, some in found.items()}
        number = max(map(len, found.values()))
        rows.append(_Row(label, OUR_ROWS, convention, number, cells))
    return rows


def _printed(table: PaperTable) -> list[_Row]:
    rows, counted = [], "ecir2022" if table.counts else ""
    for row in table.printed["rows"]:
        cells = {}
        for key, (mean, digits, *more) in row["values"].items():
            std, std_digits = more or (math.nan, digits)
            cells[key] = _Cell(mean, std, (digits, std_digits))
        rows.append(_Row(row["label"], PUBLISHED_ROWS, counted, table.printed["runs"] or 0, cells))
    return rows


def _order(rows: list[_Row], runs: list[TableRun], table: PaperTable) -> list[_Row]:
    """Our rows before the printed ones of the same loss or of the same name, in the order of the paper."""
    families = {run.label: run.family for run in runs}
    places, own = {}, {}
    for number, row in enumerate(table.printed["rows"]):
        for key in filter(None, (row.get("loss"), row.get("of"))):
            places.setdefault(key, number)
        own[row["label"]] = places.get(row.get("loss") or row.get("of"), number)

    def place(row: _Row) -> int:
        if row.source == PUBLISHED_ROWS:
            return own[row.label]
        return min(places.get(row.label, len(places)), places.get(families.get(row.label) or "?", len(places)))

    return sorted(rows, key=lambda row: (place(row), row.source == PUBLISHED_ROWS))


def _notes(table: PaperTable, rows: list[_Row], more: Sequence[str]) -> list[str]:
    """Sentences below the table: what ± is, how the printed numbers differ."""
    ours = [row for row in rows if row.source == OUR_ROWS]
    printed = any(row.source == PUBLISHED_ROWS for row in rows)
    notes = list(table.notes)
    if any(row.number > 1 for row in ours):
        spread = f"half of its {INTERVAL_LEVEL:.0%} interval" if table.intervals else "sample standard deviation"
        notes.append(f"runs: mean ± {spread.replace('%', ' %')} over n runs")
    if any(row.number == 1 and not math.isnan(cell.std) for row in ours for cell in row.cells.values()):
        notes.append("runs with n = 1: ± is the deviation over their batches or folds")
    filled = {key for row in ours for key in row.cells}
    seen = {column.place for column in table.columns if column.key in filled}
    lacking: dict[str, list[str]] = {}
    for column in table.columns if ours and table.across is None else ():
        if column.key not in filled and (not column.place or column.place in seen):
            lacking.setdefault(column.filled_by, []).append(column.key)
    notes += [f"no value of the runs for {', '.join(keys)}: {command} has it" for command, keys in lacking.items()]
    if table.without and not ours:
        notes.append(table.without)
    if printed:
        about = table.printed
        notes.append(f"published: {about['cited']}; {about['data']}")
        notes += [f"published ±: {about['spread']}"] if about["spread"] and not table.counts else []
        notes += table.beside
    return [*notes, *more]


def _of_runs(runs: Sequence[xr.Dataset], table: PaperTable) -> list[str]:
    """Notes that tables of runs have for this table."""
    found = []
    for data in (data for data in runs if not isinstance(data, dict) and "run" in data.dims):
        own = json.loads(data.attrs.get("table_notes", "{}"))
        of_tables = {f"{name}: {note}" for name, some in own.items() for note in some}
        found += [*(line for line in results.lines(data.attrs) if line not in of_tables), *own.get(table.name, ())]
    return found


def _dataset(rows: list[_Row], keys: list[str], intervals: bool) -> xr.Dataset:
    """The table as arrays, (row, column)."""
    size = (len(rows), len(keys))
    mean, std, half = (np.full(size, np.nan) for _ in range(3))
    digits, std_digits = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    for i, row in enumerate(rows):
        for j, key in enumerate(keys):
            if key in row.cells:
                cell = row.cells[key]
                own = intervals and row.source == OUR_ROWS and cell.number > 1
                mean[i, j], std[i, j] = cell.mean, cell.half if own else cell.std
                half[i, j] = cell.half if row.source == OUR_ROWS else math.nan
                digits[i, j], std_digits[i, j] = cell.digits
    dims = ("row", "column")
    return results.labelled(
        {
            "mean": (dims, mean, "value, or mean over the runs"),
            "std": (dims, std, "half of the interval" if intervals else "standard deviation"),
            "half": (dims, half, "half of the 95 % interval of the mean over the runs"),
            "digits": (dims, digits, "decimals of the mean"),
            "std_digits": (dims, std_digits, "decimals of the deviation"),
            "column": ("column", keys),
            "label": ("row", [row.label for row in rows]),
            "source": ("row", [row.source for row in rows]),
            "counted": ("row", [row.convention for row in rows], "convention of the counts"),
            "number": ("row", [row.number for row in rows], "runs; 0 where the paper does not say", "runs"),
        },
        {},
    )


def paper_table(
    name: str,
    runs: Sequence[xr.Dataset] = (),
    *,
    labels: Sequence[str | None] | None = None,
    names: Sequence[str] | None = None,
    published: bool | None = None,
) -> xr.Dataset:
    """Make a table of a paper from runs, from the printed numbers, or from both.

    A row is a setting, with the mean and the sample standard deviation over its runs. A result of `count` or `evaluate`
    is one run; results with the same label are runs of one row.

    Args:
        name: of the table: 1 to 5 (Bleeker & de Rijke 2022), I to VIII and ablations
            (DeMoor & Prevost 2024), and cross_example and cross_example_2 (Tables 1 and 2 of Veit & Wilber 2020).
        runs: tables of runs, or results of `count`, with `metrics`, of `evaluate`, `run`
            (its last checkpoint) and `dtp`.
        labels: of the rows, one for each of `runs`; None: the settings that a table of runs names, or the name. In a
            table of several data sets a label may be the data set of the result, as `CUB`.
        names: of `runs`, for messages and as labels; None: their numbers.
        published: whether the printed numbers stand beside; None: only where there are no runs.

    Returns:
        A Dataset with dims row and column: `mean`, `std`, and their decimals.

    Examples:
        >>> table = paper_table("1")
        >>> table["mean"].sel(column="rsum").values[:2].tolist()
        [309.4, 353.8]
    """
    table = known(name)
    published = not runs if published is None else published
    names = [f"result {place}" for place in range(1, len(runs) + 1)] if names is None else names
    labels = [None] * len(runs) if labels is None else labels
    if not len(runs) == len(names) == len(labels):
        raise InputError(f"{len(runs)} results, {len(names)} names, {len(labels)} labels: expected one of each")
    if not runs and not table.printed["rows"]:
        where = f"{table.printed['place']} of the paper, {table.printed['data']}"
        raise InputError(f"table {table.name}: {where}; give runs, as in python -m analysis table {table.name} FILE")
    for one in names:
        if names.count(one) > 1:
            raise InputError(f"{one} is named {names.count(one)} times; name each result once, for each is one run")
    read_runs = [run for each in zip(runs, names, labels, strict=True) for run in _read(each[0], table, *each[1:])]
    for label in dict.fromkeys(_label(each, table)[0] for each in labels if each):
        families = list(dict.fromkeys(run.family for run in read_runs if run.label == label and run.family))
        if len(families) > 1:
            raise InputError(f"{label}: runs of {' and '.join(families)}, expected runs of one loss in a row")
    rows = _rows_of(read_runs, table)
    more = _of_runs(runs, table)
    rows = _order([*rows, *(_printed(table) if published else [])], read_runs, table) if runs else _printed(table)
    keys = [column.key for column in table.columns]
    keys += [key for key in dict.fromkeys(key for row in rows for key in row.cells) if key not in keys]
    keys = [key for key in keys if any(key in row.cells for row in rows)]
    made = _dataset(rows, keys, table.intervals)
    return made.assign_attrs(
        results.versions()
        | {
            "title": table.title,
            "table": table.name,
            "groups": json.dumps({column.key: [column.group, column.name] for column in table.columns}),
            "notes": "\n".join(_notes(table, rows, more)),
        }
    )


def document(data: xr.Dataset) -> dict:
    """The table as plain data: rows with their values, notes."""
    rows = []
    for place in range(data.sizes["row"]):
        one, values, between = data.isel(row=place), {}, dict[str, float]()
        for key in data["column"].values:
            cell = one.sel(column=key)
            if not math.isnan(float(cell["mean"])):
                std = float(cell["std"])
                values[str(key)] = {"mean": float(cell["mean"]), "std": None if math.isnan(std) else std}
                if not math.isnan(half := float(cell["half"])):
                    between[str(key)] = half
        about = {
            "label": str(one["label"].item()),
            "source": str(one["source"].item()),
            "n": int(one["number"]) or None,
        }
        convention = str(one["counted"].item())
        about |= {"convention": convention} if convention else {}
        rows.append(about | {"values": values} | ({"ci95": between} if between else {}))
    return {
        "cocos": data.attrs["cocos"],
        "table": data.attrs["table"],
        "title": data.attrs["title"],
        "rows": rows,
        "notes": results.lines(data.attrs),
    }
