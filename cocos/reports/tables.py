"""Counts as tables: aligned text, and the LaTeX columns of the published Tables 3 to 5."""

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import xarray as xr

from cocos import health, results, summaries
from cocos.reports import terminal

__all__ = [
    "Table",
    "contents",
    "contributors",
    "count",
    "decomposition",
    "dtp",
    "evaluate",
    "figures",
    "kind",
    "kinds",
    "landscape",
    "latex",
    "losses",
    "overview",
    "plain",
    "retrievals",
    "summary",
    "thresholds",
    "verify",
]


# Spaces between two columns.
GAP = 2
# Characters that the first column keeps where numbers take the rest of a line.
LABEL = 24


@dataclass(frozen=True)
class Table:
    """Text in rows and columns, with lines above and below.

    Args:
        columns: their names.
        rows: their cells.
        head: lines above.
        notes: lines below.
        left: all columns are left-aligned text, not only the first one.
        least: columns that are dropped where there is no room for them, the first one first.
        typed: lines at the end that are to be copied to a command line, and so are never folded.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    head: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    left: bool = False
    least: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()


SETTINGS, TENSORS, PROXIES = 40, 24, 6  # lines that `inspect` shows of each
ROWS = (
    ("contributing_mean", "contributing negatives, queries with any (C^A)"),
    ("contributing_all", "contributing negatives, all queries"),
    ("contributing_sum", "contributing negatives, sum of a batch (C^B)"),
    ("idle", "queries without any, of {whole} in a batch (C^0)"),
    ("relative", "negatives with more than {percent} of the push"),
    ("weight_above", "share of the negatives above eps (W-)"),
    ("weight_below", "share of the negatives not above eps"),
    ("weight_positive", "share of the positives (W+)"),
    ("effective", "effective number of negatives (exp entropy)"),
    ("participation", "participation ratio of the negatives"),
    ("n90", "negatives that hold 90 % of the push"),
    ("hardest_share", "part of the push on the heaviest negative"),
    ("eq7_mean", "Eq. 7 count, queries with any (C^q)"),
    ("eq7_sum", "Eq. 7 count, sum of a batch"),
    ("eq7_idle", "queries without any Eq. 7 count, of {whole}"),
)
METRICS = (
    ("R@1", "R@1, % of the queries with a positive on rank 1"),
    ("R@5", "R@5"),
    ("R@10", "R@10"),
    ("median_rank", "median rank of the best positive"),
    ("mAP@R", "mAP@R, %"),
)
PARTS = (
    ("pull_norm", "length of the pull"),
    ("push_norm", "length of the push"),
    ("net_norm", "length of both together"),
    ("tangential_norm", "  of what the normalisation leaves of it"),
    ("gradient_norm", "  of the gradient of the raw embedding"),
    ("candidate_role_norm", "  of its gradient as a candidate"),
    ("both_roles_norm", "  of its gradient in both roles"),
    ("cancellation", "part of pull and push that cancels"),
    ("pull_push_cosine", "cosine between pull and push"),
    ("mass_ratio", "weight of the negatives / of the positives"),
    ("radial_fraction", "radial part, which the normalisation removes"),
    ("radial_fraction_pull", "  of the pull"),
    ("radial_fraction_push", "  of the push"),
    ("radial", "slope along the norm of the query"),
    ("contributing", "contributing negatives, by weight"),
    ("contributing_force", "  by force"),
    ("hardest_share", "part of the hardest negative, by weight"),
    ("hardest_share_force", "  by force"),
    ("hardest_projection", "  of the heaviest along the push"),
    ("hardest_rank", "rank by score of the heaviest negative"),
    ("hardest_rank_force", "  of the one with the largest force"),
    ("pushed_positives", "positives that are pushed"),
    ("pushed_positives_part", "  part of all weight"),
    ("pulled_negatives", "negatives that are pulled"),
    ("pulled_negatives_part", "  part of all weight"),
)
SIGNS = {"pushed_positives": "positives are pushed", "pulled_negatives": "negatives are pulled"}
OVERVIEW = (
    ("contributing_mean", "contributing"),
    ("contributing_sum", "batch sum"),
    ("idle", "idle"),
    ("weight_above", "W-"),
    ("weight_positive", "W+"),
    ("effective", "effective"),
    ("hardest_share", "heaviest"),
)
TRIPLET_COLUMNS = (("contributing_mean", "C^{A}"), ("contributing_sum", "C^{B}"), ("idle", "C^{0}"))
ENDS = ("5th", "95th")  # percentiles over queries
TOLD = ("queries", "candidates", "tied")  # of an evaluation, in words
FATES = {
    "ignore": "left out of the gradient",
    "negative": "kept as each other's negatives",
    "positive": "positives of each other to a loss that is told labels",
}
PLUS_MINUS = r"\pm"
LATEX = {
    "triplet": TRIPLET_COLUMNS,
    "triplet_sh": TRIPLET_COLUMNS,
    "ntxent": (("contributing_all", "C^{qv-}"), ("weight_above", "W^{qv-}"), ("weight_positive", "W^{qv+}")),
    "smoothap": (("eq7_mean", "C^{q}"), ("eq7_idle", "C^{0}")),
}


def _number(value: dict, sign: str = "±", digits: int | None = None) -> str:
    if value["mean"] is None:
        return "none"
    digits = digits or (3 if abs(value["mean"]) < 1 and value["mean"] != int(value["mean"]) else 2)
    spread = "" if value["std"] is None else f" {sign} {value['std']:.{digits}f}"
    return f"{value['mean']:.{digits}f}{spread}"


def _mean(value: dict) -> str:
    """A mean as `_number` writes it, without its deviation."""
    return _number(value | {"std": None})


def _whole(directions: dict) -> str:
    """Queries of a batch, which the idle ones are counted of: one number, or one for each direction."""
    sizes = dict.fromkeys(f"{round(entry['batch_queries'], 1):g}" for entry in directions.values())
    return " and ".join(sizes)


def _over(found: dict, batches: str = "") -> str:
    """Say what means and deviations are over.

    Args:
        found: `batches` and `full_batches`, and the convention where there are several.
        batches: columns whose means are over full batches.
    """
    if found.get("convention", "standard") != "standard":
        return "mean ± deviation over batches"
    whole = "batches" if found["full_batches"] == found["batches"] else f"the {found['full_batches']} full batches"
    whole = "the one full batch" if whole == "the 1 full batches" else whole
    parts = [batches] if batches and found["batches"] > 1 else []
    parts += ["deviations (±)"] if found["full_batches"] > 1 else []
    return f"means over all queries; {' and '.join(parts)} over {whole}" if parts else "means over all queries"


def _drawn(data: xr.Dataset) -> str:
    """How many batches of what were drawn; the real sizes where they are not all the same."""
    direction = str(data["direction"].values[0])
    what = {"s2s": "samples", "s2p": "samples, with all proxies"}.get(direction)
    what = what or ("pairs" if data.attrs["sample"] == "pairs" else "queries, each with its candidates")
    sizes = data["queries"].isel(direction=0).values.tolist()
    if len(sizes) == 1:
        text = f"1 batch of {sizes[0]} {what}"
    elif len(set(sizes[:-1])) == 1:
        text = f"{len(sizes)} batches of {sizes[0]} {what}" + (
            f" (the last of {sizes[-1]})" if len(set(sizes)) > 1 else ""
        )
    else:
        text = f"{len(sizes)} batches of {min(sizes)} to {max(sizes)} {what}"
    return f"{text}, seed {data.attrs['seed']}"


def _reading(data: xr.Dataset, summary: dict) -> list[str]:
    """What the numbers of the table say, one sentence a direction."""
    sentences = []
    for name, entry in summary["directions"].items():
        counted, active, total = entry["contributing_all"], entry["active_queries"], entry["queries"]
        negatives = float(data["negatives"].sel(direction=name).mean())
        sentence = f"{name}: of {negatives:.0f} negatives of a query, {_mean(counted)} contribute"
        sentence += f" ({results.above(summary)})"
        if 0 < active < total:
            sentence += f" ({_mean(entry['contributing_mean'])} for the {active} of {total} queries with any)"
        if data.attrs.get("share") != "push" and entry.get("relative", {}).get("mean") is not None:
            sentence += f"; {_mean(entry['relative'])} have more than {100 * summary['eps']:.6g} % of the push"
        if entry["effective"]["mean"]:
            sentence += f"; the push is spread as if over {_mean(entry['effective'])}"
        whole, idle = entry["batch_queries"], entry["idle"]
        sentence += f"; {100 * idle['mean'] / whole:.1f} % of the queries of a batch have none"
        sentences.append(f"{sentence} ({_mean(idle)} of {round(whole, 1):g}).")
    return sentences


def count(data: xr.Dataset) -> Table:
    """The counts of one loss: a row for each statistic, a column for each direction."""
    summary = results.summary(data)
    directions, percent = summary["directions"], f"{100 * summary['eps']:.6g} %"
    whole = _whole(directions)
    rows = tuple(
        (label.format(whole=whole, percent=percent), *(_number(entry[key]) for entry in directions.values()))
        for key, label in ROWS
        if next(iter(directions.values())).get(key) is not None
    )
    metrics = summary.get("metrics", {}).get("directions", {})
    rows += tuple((label, *(f"{metrics[name][key]:.2f}" for name in directions)) for key, label in METRICS if metrics)
    parameters = ", ".join(f"{k}={v}" for k, v in summary["loss"]["parameters"].items())
    head = [
        *health.warnings(data.attrs["notes"]),
        *_reading(data, summary),
        f"{summary['loss']['name']}({parameters}), {results.above(summary)} (eps = {summary['eps']:g}), "
        f"{summary['convention']} convention",
        f"{_drawn(data)}; {summary['dtype']} on {summary['device']}",
        _over(summary, "C^B, C^0"),
    ]
    if about := results.about_weights(data.attrs):
        head.append(f"weights {about}" if about.startswith("by") else about)
    if about := results.about_unit(summary):
        head.append(about)
    notes = []
    without = {name: e["batches_without_active_queries"] for name, e in directions.items()}
    notes += [
        f"batches without any contributing negative: {n} ({name}), left out of C^A" for name, n in without.items() if n
    ]
    if metrics:
        whole = [
            f"{name.replace('_', ' ')} {value:.2f}"
            for name, value in summary["metrics"].items()
            if name != "directions"
        ]
        notes.append(f"R@k and ranks: all queries of the set against all of its candidates; {', '.join(whole)}")
    for name, entry in directions.items():
        if entry["uncertain"]:
            queries = int((data["uncertain"].sel(direction=name) > 0).sum())
            notes.append(
                f"{name}: {entry['uncertain']} candidates of {queries} queries are too near eps to tell: the sum of "
                "their counts is uncertain by as many"
            )
        if entry.get("relative_uncertain"):
            notes.append(
                f"{name}: {entry['relative_uncertain']} candidates have a part of the push too near {percent} to tell"
            )
    if summary["same_group_pairs"]:
        fate = FATES[summary["same_group"]]
        alike = "show the same image" if _images(directions) else "are of one group"
        notes.append(f"{summary['same_group_pairs']} pairs of rows in the batches {alike}, {fate} (published: kept)")
    notes += [line for line in (data.attrs.get("footnotes") or "").splitlines() if line]
    notes += _health(summary["health"])
    return Table(("", *directions), rows, tuple(head), tuple(notes))


def _images(directions: Iterable[str]) -> bool:
    """Whether one side is images, which only the names of the directions tell."""
    return bool({"i2t", "t2i"} & set(directions))


def _health(found: dict) -> list[str]:
    """How the embeddings are, a line for the sides and one for the directions."""
    sides = []
    for name, each in found["sides"].items():
        repeated = f"{each['duplicates']} of {each['rows']} rows repeat another"
        if each["near_duplicates"] > each["duplicates"]:
            repeated += f" ({each['near_duplicates']} up to rounding)"
        sides.append(
            f"{name} spread {each['spread']:.3f}, effective rank {each['effective_rank']:.1f} of {each['dimensions']}, "
            f"{repeated}"
        )
    lines = [f"health: {'; '.join(sides)}"]
    for name, each in found["directions"].items():
        if each is None:
            continue
        if each["cancellation"] is None:
            parts = ["nothing pulls or pushes the embeddings"]
        else:
            parts = [f"{100 * each['cancellation']:.1f} % of pull and push cancels"]
            parts += [f"{100 * each['reaching']:.1f} % reaches the embeddings"]
        if each["tied"] is not None:
            parts.append(f"{100 * each['tied']:.1f} % of the queries tie with a negative")
        some = f"{each['queries']} queries and {each['candidates']} candidates of the first batch"
        lines.append(f"health, {name}: {', '.join(parts)} ({some})")
    return lines


def _significant(value: dict) -> str:
    """A mean to three digits and its deviation to two: gradients have any size."""
    if value["mean"] is None:
        return "none"
    return f"{value['mean']:.3g}" + ("" if value["std"] is None else f" ± {value['std']:.2g}")


def _taken_apart(data: xr.Dataset) -> list[str]:
    """What a decomposition says, two or three sentences a direction; means over the queries that have a gradient."""
    sentences = []
    for name in data["direction"].values:
        one = data.sel(direction=name)

        def percent(values: xr.DataArray) -> str:
            return f"{100 * float(values.mean()):.0f} %"

        moved = one["pull_norm"] + one["push_norm"] > 0
        still = 100 * (1 - float(moved.sum() / one["queries"].sum()))
        if not moved.any():
            sentences.append(f"{name}: no query has a gradient.")
            continue
        text = f"{name}: {percent(one['cancellation'])} of pull and push cancels"
        if "radial_fraction" in one:
            left = np.sqrt(1 - one["radial_fraction"] ** 2)
            text += f"; the normalisation takes {percent(1 - left)} off the length of the rest"
        text += "." if still == 0 else f" ({still:.1f} % of the queries have no gradient)."
        if bool(one["hardest_share"].notnull().any()):
            first = (one["hardest_rank"] == 1).where(one["hardest_rank"].notnull())
            forced = bool(one["hardest_share_force"].notnull().any())
            force = (
                f"the strongest {percent(one['hardest_share_force'])} of the force" if forced else "none has any force"
            )
            text += (
                f" Of its negatives the heaviest has {percent(one['hardest_share'])} of the weight and "
                f"{force}; the heaviest is the most similar one for "
                f"{percent(first)} of the queries."
            )
        odd = [
            f"{what} for {percent((one[key] > 0).where(moved))} of the queries"
            for key, what in SIGNS.items()
            if bool((one[key] > 0).any())
        ]
        if odd:
            joined = " and ".join(odd)
            text += f" {joined[0].upper()}{joined[1:]}."
        sentences.append(text)
    return sentences


def decomposition(data: xr.Dataset) -> Table:
    """What the gradients of one loss are made of: a row for each statistic, a column for each direction."""
    found = results.decomposed(data)
    directions = found["directions"]
    given = next(iter(directions.values()))
    rows = tuple(
        (label, *(_significant(entry[key]) for entry in directions.values())) for key, label in PARTS if key in given
    )
    parameters = ", ".join(f"{k}={v}" for k, v in found["loss"]["parameters"].items())
    head = [
        *health.warnings(data.attrs["notes"]),
        *_taken_apart(data),
        f"{found['loss']['name']}({parameters}), {found['metric']} scores, {results.above(data.attrs)}",
        f"{_drawn(data)}; {found['dtype']} on {found['device']}",
        _over(found),
    ]
    if about := results.about_weights(found):
        head.append(about)
    defined = "lengths and counts are means over all queries, parts, angles and ranks over the queries that have them"
    return Table(("", *directions), rows, tuple(head), (defined,))


def evaluate(data: xr.Dataset) -> Table:
    """Retrieval metrics: a row for each, a column for each direction, and one more where it has distractors."""
    found = results.evaluated(data)
    blocks = {"": found, " + distractors": found.get("with_distractors", {"directions": {}})}
    columns, singles = {}, {}
    for mark, block in blocks.items():
        shown = [name for name in block["directions"] if not mark or found["directions"][name]["unmatched"]]
        columns |= {f"{name}{mark}": block["directions"][name] for name in shown}
        singles |= {f"{name}{mark}": block for name in shown[:1]}  # what belongs to no direction: in the first column

    def cell(entry: dict, key: str) -> str:
        if key not in entry:
            return ""
        digits = 1 if key.endswith("_rank") else 2
        return _number(entry[key], digits=digits) if found["folds"] > 1 else f"{entry[key]['mean']:.{digits}f}"

    names = [key for key in data.data_vars if data[key].dims[-1] == "fold" and key not in TOLD]
    rows = tuple(
        (key.replace("_", " "), *(cell(entry | singles.get(name, {}), key) for name, entry in columns.items()))
        for key in names
    )
    sizes = (
        f"{name}: {entry['queries']['mean']:g} queries, {entry['candidates']['mean']:g} candidates"
        for name, entry in columns.items()
    )
    folds = f"; mean ± deviation over {found['folds']} folds, sizes of one" if found["folds"] > 1 else ""
    split = f"split {found['split']}, " if found["split"] else ""
    head = (
        *health.warnings(data.attrs["notes"]),
        f"{split}{found['metric']} scores on {found['device']}; in percent, ranks aside{folds}",
        *sizes,
    )
    tied = [
        f"{name}: the best positive of {entry['tied']['mean']:.2f} % of the queries ties with a negative"
        for name, entry in columns.items()
        if entry["tied"]["mean"]
    ]
    rule = found["ties"]
    return Table(("", *columns), rows, head, (f"{rule[0].upper()}{rule[1:]}.", *tied))


def figures(made: list[tuple[str, bool, int]]) -> Table:
    """What was made of each script: its name, whether its data were computed anew, and how many files it has."""
    rows = tuple((name, "computed" if computed else "kept", str(files)) for name, computed, files in made)
    return Table(("figure", "data", "files"), rows)


def landscape(data: xr.Dataset) -> Table:
    """What a landscape says: where the minimum must be, where it is, and what Lemma III.1 says of it."""

    def place(name: str) -> str:
        values = [f"{round(float(value), 9) + 0:.9g}" for value in data[name] if np.isfinite(value)]
        return f"({', '.join(values)})" if values else ""

    attrs = data.attrs
    own = ", ".join(f"{float(data[name][0]):.6g}" for name in ("proxy_x", "proxy_y"))
    rows = [("own proxy", f"({own})"), ("largest distance of two proxies", f"{attrs['distance']:.6g}")]
    if "predicted_as" in attrs:
        rows.append(("minimum predicted (Proposition III.2)", f"{place('predicted')} {attrs['predicted_as']}".strip()))
    rows.append(("minimum found by a descent", f"{place('found')} {attrs['found_as']}".strip()))
    if "gap" in attrs:
        rows.append(("distance of both", f"{attrs['gap']:.1e}"))
    if "lemma" in attrs:
        rows.append(("Lemma III.1", attrs["lemma"]))
    return Table(("", ""), tuple(rows), (attrs["title"],), left=True)


def overview(datasets: list[xr.Dataset]) -> Table:
    """The counts of several losses on the same embeddings: a row for each loss and direction."""
    rows, notes = [], []
    for data in datasets:
        summary = results.summary(data)
        for direction, entry in summary["directions"].items():
            rows.append((
                f"{summary['loss']['name']} {direction}",
                *(_number(entry[key]) for key, _ in OVERVIEW),
            ))
        notes.append(f"{data.attrs['loss_repr']}: {_drawn(data)}; C^0 of {_whole(summary['directions'])} queries")
    first = results.summary(datasets[0])
    file = first["checkpoint"]
    head = (
        *health.warnings(datasets[0].attrs["notes"]),
        *(
            f"{data.attrs['loss']}, {sentence}"
            for data in datasets
            for sentence in _reading(data, results.summary(data))
        ),
        f"{Path(file['path']).name}, sha256 {file['sha256'][:12]}, eps = {first['eps']:g}",
        "means over all queries; batch sum, idle and deviations (±) over full batches",
    )
    notes += [
        "contributing: negatives of a query that has any (C^A); batch sum: their sum over a batch (C^B); idle: "
        "queries of a batch without any (C^0)",
        "W-: share of the negatives above eps; W+: share of the positives",
        "effective: exp of the entropy of the push; heaviest: part of the push on the heaviest negative",
        *_health(first["health"]),
    ]
    columns = ("", *(label for _, label in OVERVIEW))
    return Table(columns, tuple(rows), head, tuple(notes), least=("batch sum", "W+", "W-"))


def losses(entries: list[dict], unspecified: dict[str, str]) -> Table:
    """Losses by family, with their parameters and defaults; below, those that are only named."""
    entries = sorted(entries, key=lambda e: (e["family"], e["name"]))
    rows = tuple(
        (e["name"], e["family"], ", ".join(f"{k}={v}" for k, v in e["parameters"].items()) or "none") for e in entries
    )
    notes = (
        *(f"{name}: unspecified, {reason}" for name, reason in unspecified.items()),
        "The card of one, with its formula, what counts, its source and its other names: cocos losses NAME. Any of its "
        "names will do, like InfoNCE.",
        "A loss of your own: --loss package.module:attribute or --loss file.py:attribute; of pytorch-metric-learning: "
        '--loss pml:CircleLoss; a sum: --loss "triplet+0.5*contrastive_cosine".',
    )
    head = (f"{len(entries)} losses; the parameters have the defaults of their papers.",)
    return Table(("loss", "family", "parameters"), rows, head, notes, left=True)


def _part(value: float | None) -> str:
    """A difference in parts of the largest weight."""
    return "" if value is None else "0" if value == 0 else f"{value:.1e}"


def thresholds(data: xr.Dataset) -> Table:
    """What cut-offs mean: a row for each one over all pairs, and one for each direction, over its queries."""

    def band(one: xr.DataArray, unit: str = "") -> str:
        if not np.isfinite(one).all():
            return "-"
        values = [f"{float(value):.0f}" for value in one]
        return f"{values[1]} ({values[0]} to {values[2]}){unit}"

    rows = []
    for place, cutoff in enumerate(data["cutoff"].values):
        one = data.isel(cutoff=place)
        precision = float(one["global_precision"])
        shown = f"{100 * precision:.1f} %" if np.isfinite(precision) else "-"
        cut = (f"{cutoff:.4f}", f"{float(one['distance']):.4f}")
        rows.append(("all pairs", *cut, "", shown, f"{100 * float(one['global_recall']):.1f} %", "", ""))
        for name in data["direction"].values:
            own = one.sel(direction=name)
            shares = (f"{float(own[key]):.1f} %" for key in ("none_returned", "no_positive"))
            parts = (band(100 * own[f"{key}_band"], " %") for key in ("precision", "recall"))
            rows.append((f"  a query of {name}", *cut, band(own["returned_band"]), *parts, *shares))
    columns = ("", "cosine >=", "L2 <=", "returned", "precision", "recall", "none returned", "no positive")
    notes = ["of queries: median (5th to 95th percentile); a precision needs something returned, a recall a positive"]
    if missing := data.attrs.get("not_reached"):
        notes.append(f"no cut-off has a precision of {missing} over all pairs")
    head = (data.attrs["title"], *health.warnings(data.attrs.get("notes", "")))
    return Table(columns, tuple(rows), head, tuple(notes))


def _label(text: str, most: int = 44) -> str:
    """Text on one line that leaves room for numbers beside it."""
    text = _text(" ".join(text.split()))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _read(value) -> str:
    """A number to four digits, or the mean and the percentiles of many."""
    if isinstance(value, dict):
        if value["p50"] is None:
            return "none"
        bands = {key: "none" if part is None else f"{part:.4g}" for key, part in value.items()}
        mean = f"{bands['mean']}: " if "mean" in value else ""
        low, high = (bands[key] for key in bands if key not in {"mean", "p50"})
        return f"{mean}{bands['p50']} ({low} to {high})"
    return "none" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _spelled(value, axes: tuple[str, ...]) -> dict[str, object]:
    """The cells of a nested variable by the places that they stand at; percentiles share one cell."""
    if not isinstance(value, dict) or ("p50" in value and not isinstance(value["p50"], dict)):
        return {"": value}
    if "p50" in value or axes[0] == "percentile":
        rest = axes if "p50" in value else axes[1:]
        parts = {key if key[0] in "mp" else f"p{key}": _spelled(one, rest) for key, one in value.items()}
        return {place: {key: one[place] for key, one in parts.items()} for place in parts["p50"]}
    found = {}
    for at, one in value.items():
        for place, cell in _spelled(one, axes[1:]).items():
            found[", ".join(filter(None, (f"{axes[0]} {at}", place)))] = cell
    return found


def _about(data: xr.Dataset) -> tuple[str, ...]:
    """What was measured, of which loss, in which batches or of how many queries."""
    attrs = data.attrs
    lines = [attrs["title"], *health.warnings(attrs.get("notes", ""))]
    if "loss_repr" in attrs:
        eps = f", {results.above(attrs)}" if "eps" in attrs else ""
        lines.append(f"{attrs['loss_repr']}{eps}")
    where = f" on {attrs['device']}" if "device" in attrs else ""
    if "batch_size" in attrs:
        batches = f"{attrs['batches']} batches" if attrs.get("batches", 1) > 1 else "one batch"
        lines.append(
            f"{batches} of {attrs['batch_size']} {attrs['sample']}, seed {attrs['seed']}; {attrs['dtype']}{where}"
        )
    elif "seed" in attrs:
        drawn = f"{data.sizes['query']} queries, " if "query" in data.sizes else ""
        lines.append(f"{attrs['metric'].replace('_', ' ')} scores; {drawn}seed {attrs['seed']}{where}")
    if about := results.about_weights(attrs) if "gradient" in attrs else "":
        lines.append(about)
    return tuple(lines)


def summary(data: xr.Dataset) -> Table:
    """The numbers of any Dataset: a row for each, a column for each direction; see `cocos.summaries.numbers`."""
    told = summaries.numbers(data)
    columns = told["directions"] or {"": {}}
    first, rows, curves, many = next(iter(columns)), [], [], False
    for key in dict.fromkeys((*told["values"], *(key for entry in columns.values() for key in entry))):
        label, axes = _named(data, key)
        cells = {name: _spelled(entry[key], axes) for name, entry in columns.items() if key in entry}
        cells |= {first: _spelled(told["values"][key], axes)} if key in told["values"] else {}
        if not cells:
            continue
        at = list(next(iter(cells.values())))
        many = many or any(isinstance(cell, dict) for one in cells.values() for cell in one.values())
        said = [[_read(cells[name][place]) if name in cells else "" for name in columns] for place in at]
        if at == [""]:
            rows.append((label, *said[0]))
        else:
            curves += [(label, *[""] * len(columns)), *((f"  {p}", *one) for p, one in zip(at, said, strict=True))]
    ends = [f"{float(each):g}th" for each in data["percentile"].values[[0, -1]]] if "percentile" in data.coords else ()
    notes = (
        (f"of queries: the mean, if it is told, and median ({' to '.join(ends or ENDS)} percentile)",) if many else ()
    )
    return Table(("", *columns), (*rows, *curves), _about(data), notes)


def _named(data: xr.Dataset, key: str) -> tuple[str, tuple[str, ...]]:
    """What a number is called, and the names of the axes along which it is told."""
    if key not in data:
        label, units = summaries.ATTRIBUTES[key]
        return f"{label}, %" if units == "%" else label, ()
    one = data[key]
    axes = [axis for axis in one.dims if axis not in {"direction", *summaries.ITEMS}]
    names = [one[axis].attrs.get("long_name", axis) if axis in one.coords else axis for axis in axes]
    short = (axis if " " in name and axis != "percentile" else name for axis, name in zip(axes, names, strict=True))
    label, units = one.attrs.get("long_name", key), one.attrs.get("units", "1")
    return f"{label}, %" if units == "%" else label, tuple("percentile" if n.startswith("perc") else n for n in short)


def retrievals(data: xr.Dataset) -> Table:
    """A contact sheet as text: a row for each query, with its candidates from the nearest on."""
    rows = []
    for place in range(data.sizes["query"]):
        one = data.isel(query=place)
        best = float(one["best_rank"])
        there = one["candidate"].values >= 0
        nearest = [
            f"{row}{'+' if positive else ''} {score:.3f}"
            for row, positive, score in zip(
                one["candidate"].values[there], one["positive"].values[there], one["score"].values[there], strict=True
            )
        ]
        rows.append((
            str(int(one["query_index"])),
            str(int(one["positives"])),
            f"{best:.0f}" if np.isfinite(best) else "none",
            f"{float(one['best_score']):.3f}" if np.isfinite(best) else "",
            *nearest,
            *[""] * (data.sizes["rank"] - len(nearest)),
        ))
    columns = ("query", "positives", "best on rank", "its score", *(f"rank {rank}" for rank in data["rank"].values))
    title = (f"{data.attrs['title']}, {data.attrs['direction']}",)
    notes = ("row and score of the candidates from the nearest on; + is a positive",)
    return Table(columns, tuple(rows), (*title, *_about(data)[1:]), notes)


def dtp(data: xr.Dataset) -> Table:
    """Distances to proxies: a row for each run, at its first and at its last step."""
    found, rows = results.distances(data), []
    for name, run in found["runs"].items():
        low, high = run["last_5"], run["last_95"]
        rows.append((
            name,
            str(run["files"]),
            f"{run['first']:.4g}",
            f"{run['last']:.4g}",
            f"{low:.4g} to {high:.4g}",
            "" if run["alpha"] is None else f"{run['alpha']:g}",
        ))
    steps = found["steps"]
    classes = f"{found['classes']} class{'' if found['classes'] == 1 else 'es'}"
    head = (
        f"AvgDTP: {found['metric'].replace('_', ' ')} distance to the own proxy, mean over {classes} of the mean over "
        "samples",
        f"steps {steps[0]:g} to {steps[-1]:g}" if len(steps) > 1 else f"step {steps[0]:g}",
    )
    notes = ()
    if found["alpha_correlation"] is not None:
        notes = (f"correlation of alpha and the last average: {found['alpha_correlation']:.4f}",)
    return Table(("run", "steps", "first", "last", "5-95 % of the classes", "alpha"), tuple(rows), head, notes)


def kinds(entries: list[tuple[str, str, str]]) -> Table:
    """What can be drawn: its name, what it shows, and below those that are drawn otherwise than from a file.

    Args:
        entries: name, command and sentence of each.
    """
    rows = tuple((name, said) for name, _, said in entries)
    usual = "cocos plot {} FILE"
    others = [command for name, command, _ in entries if command != usual.format(name)]
    notes = (f"Draw one: {usual.format('KIND')}. What it takes: cocos plot KIND.", f"But: {'; '.join(others)}.")
    return Table(("kind", "what it shows"), rows, (), notes if others else notes[:1], left=True)


def kind(name: str, said: str, usage: str, options: list[tuple[str, str, str]]) -> Table:
    """The card of one kind: what it shows, and the options that it takes."""
    return Table(("option", "default", ""), tuple(options), (f"{name}: {said}", usage), left=True)


def contributors(data: xr.Dataset, labels: Callable[[int], str] | None = None, query: str | None = None) -> Table:
    """The candidates of one query: a row for each, the largest share first; the totals are those of all.

    Args:
        data: of `cocos.measures.contributors`.
        labels: row of a candidate -> its text.
        query: text of the query.
    """
    attrs, rows = data.attrs, []
    for place in range(data.sizes["candidate"]):
        one = {name: data[name].values[place].item() for name in data.data_vars}
        name = str(one["candidate_index"])
        side = "pull" if one["weight"] < 0 else "push" if one["weight"] > 0 else ""
        rows.append((
            f"{name}  {_label(labels(one['candidate_index']))}" if labels else name,
            "positive" if one["positive"] else "negative",
            str(one["group"]),
            f"{one['score']:.4f}",
            f"{one['weight']:.3g}",
            f"{one['share']:.4f}",
            f"{100 * one['part']:.1f} % {side}" if side else "0",
            f"{100 * one['held']:.1f} %" if side else "",
            "yes" if one["contributes"] else "" if one["positive"] else "no",
        ))
    total, shown = attrs["positives"] + attrs["negatives"], data.sizes["candidate"]
    which = f"row {attrs['row']} of {attrs['direction']}, group {attrs['group']}"
    head = [
        *health.warnings(attrs["notes"]),
        which if query is None else f"{which}: {_label(query, 80)}",
        f"{attrs['loss_repr']}, {results.above(attrs)} (eps = {attrs['eps']:g})",
        f"batch {attrs['batch'] + 1} of {attrs['batches']}, {attrs['batch_size']} {attrs['sample']}, "
        f"seed {attrs['seed']}; {attrs['dtype']} on {attrs['device']}",
    ]
    head += filter(None, (results.about_weights(attrs), results.about_unit(attrs)))
    percent = f"{100 * float(attrs['eps']):.6g} %"
    what = {"probability": "probability", "violations": "violations", "push": "share"}.get(attrs.get("share"), "share")
    short = {"probability": "p", "violations": "n"}.get(attrs.get("share"), "share")
    limit = f"{attrs['eps']:g}" if short == "n" else percent
    notes = [
        f"of {attrs['negatives']} negatives {attrs['contributing']} contribute ({results.above(attrs)}), "
        + (f"{attrs['relative']} have more than {percent} of the push; " if "relative" in attrs else "")
        + f"the push is spread as if over {attrs['effective']:.1f}; positives: {attrs['positives']}; "
        f"push {attrs['push']:.4g}, pull {attrs['pull']:.4g}"
    ]
    if shown < total:
        notes.append(f"the first {shown} of {total} candidates are listed")
    if attrs["left_out"]:
        notes.append(f"neither positive nor negative, without any part: {attrs['left_out']} in the batch")
    if attrs["repeated"]:
        each = "an image once for each caption" if _images((attrs["direction"],)) else "a row once for each partner"
        notes.append(f"{attrs['repeated']} rows repeat a candidate: a batch of pairs has {each} drawn")
    columns = ("candidate", "", "group", "score", "weight", what, "of", "cumulative", f"{short} > {limit}")
    return Table(columns, tuple(rows), tuple(head), tuple(notes), least=("weight", "group"))


def verify(found: list[xr.Dataset]) -> Table:
    """Verdicts: a row for each loss, its largest differences, and below what is wrong or worth knowing."""
    rows, notes = [], []
    for one in map(results.verdict, found):
        name, gap, error = one["loss"]["name"], one["gap"], one["error"]
        numbers = (gap["float32"], error["float32"], error["bfloat16"], error["float16"], one["finite_difference"])
        peer = (one["peer"]["value"], one["peer"]["gradient"])
        rows.append((
            name,
            one["verdict"],
            _part(gap["float64"]),
            one["gap_on"] or "",
            *(_part(number) for number in (*numbers, *peer)),
        ))
        for kind, mark in (("faults", "FAULT"), ("notes", "note")):
            notes += [f"{mark}: {name}: {line}" for line in one[kind]]
    head = (
        "gap: closed form against torch.func, in float64 and float32; error: each dtype against float64 on the same "
        "rounded input; slope: against finite differences in float64; pml: value and gradient against "
        "pytorch-metric-learning, where it has the loss. Each is the largest over all inputs, in parts of the largest "
        "weight of the input.",
    )
    columns = (
        "loss",
        "verdict",
        "gap 64",
        "on",
        "gap 32",
        "error 32",
        "error bf16",
        "error 16",
        "slope",
        "pml",
        "pml grad",
    )
    least = ("error 16", "error bf16", "on", "gap 32", "pml grad")
    return Table(columns, tuple(rows), head, tuple(notes), least=least)


def contents(about: dict) -> Table:
    """What a checkpoint says of itself, and what to type next."""
    rows = [(key, str(about[key])) for key in ("path", "format", "sha256")]
    rows += [(key, _text(value)) for key, value in _flat(about["contents"])]
    if about["trained_with"]:
        rows.append(("trained with", about["trained_with"]))
    rows += [(f"recorded for {name}", _text(parameters)) for name, parameters in about["recorded"].items()]
    if about["splits"]:
        rows.append(("splits", ", ".join(about["splits"])))
    settings = _flat(about["hyper_parameters"])
    rows += [(key, _text(value)) for key, value in settings[:SETTINGS]]
    if len(settings) > SETTINGS:
        rows.append(("", f"and {len(settings) - SETTINGS} more settings (--json)"))
    rows += [(f"hint: {name}", f"{value:g}, recorded in the file") for name, value in about["hints"].items()]
    shown = about["tensors"][:TENSORS]
    rows += [(_text(each["name"]), f"({', '.join(map(str, each['shape']))}) {each['dtype']}") for each in shown]
    if about["tensors_in_all"] > len(shown):
        rows.append(("", f"and {about['tensors_in_all'] - len(shown)} more tensors (--json)"))
    notes = [each["advice"] for each in about["class_weights"][:PROXIES]]
    if about["advice"]:
        return Table(("", ""), tuple(rows), notes=(*notes, about["advice"]), left=True)
    more = f" --data {shlex.quote(about['data'])}" if about["data"] else ""
    next_line = f"next: cocos count {shlex.quote(about['path'])}{more} --loss {about['trained_with'] or 'ntxent'}"
    return Table(("", ""), tuple(rows), notes=tuple(notes), left=True, typed=(next_line,))


def _flat(values: dict, prefix: str = "") -> list[tuple[str, object]]:
    """Nested plain data as dotted names."""
    flat = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        flat += _flat(value, f"{name}.") if isinstance(value, dict) and value else [(name, value)]
    return flat


def _text(value) -> str:
    """Plain data on one line; control characters of a stranger's file do not reach the terminal."""
    if isinstance(value, dict):
        value = ", ".join(f"{k}={v}" for k, v in value.items())
    return terminal.clean(value)


def _escaped(text: str) -> str:
    """Text that LaTeX prints as it is."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in _text(text))


def _fitted(table: Table, width: int) -> Table:
    """A table without its least important columns where there is no room for them; a note names them."""
    lines, out = (table.columns, *table.rows), []
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.columns))]
    for name in table.least:
        if sum(widths) + GAP * (len(widths) - 1) > width and name in table.columns:
            out.append(name)
            widths[table.columns.index(name)] = -GAP
    if not out:
        return table
    keep = [i for i, name in enumerate(table.columns) if name not in out]
    said = f"not shown for want of room: {', '.join(out)} (COLUMNS=200 or --json has them)"
    return replace(
        table,
        columns=tuple(table.columns[i] for i in keep),
        rows=tuple(tuple(row[i] for i in keep) for row in table.rows),
        notes=(*table.notes, said),
    )


def _shares(widths: list[int], width: int) -> list[int]:
    """Widths of columns of text that have room together: only the widest ones are cut, all to one width."""
    most = max(widths)
    while most > 1 and sum(min(w, most) for w in widths) + GAP * (len(widths) - 1) > width:
        most -= 1
    return [min(w, most) for w in widths]


def _blocks(table: Table, width: int | None) -> list[tuple[list[int], list[int]]]:
    """Columns that stand side by side, and their widths; each block begins with the first column."""
    lines = (table.columns, *table.rows) if any(table.columns) else table.rows
    widths = [max((len(line[i]) for line in lines), default=0) for i in range(len(table.columns))]
    every, needed = list(range(len(widths))), sum(widths) + GAP * (len(widths) - 1)
    if width is None or needed <= width:
        return [(every, widths)]
    if table.left:
        return [(every, _shares(widths, width))]
    first = min(widths[0], max(widths[0] - (needed - width), LABEL))
    blocks, taken = [], []
    for place in every[1:]:
        used = first + sum(GAP + widths[i] for i in taken)
        if taken and used + GAP + widths[place] > width:
            blocks.append(taken)
            taken = []
        taken.append(place)
    wide = []
    for block in (*blocks, taken):
        rest = sum(GAP + widths[i] for i in block)
        wide.append(([0, *block], [min(widths[0], max(width - rest, LABEL)), *(widths[i] for i in block)]))
    return wide


def _row(cells: list[str], widths: list[int], left: bool) -> list[str]:
    """The lines of a row: cells of text that are wider than their column are folded, numbers never."""
    folded = [
        terminal.wrapped(cell, w, "" if i else " " * (len(cell) - len(cell.lstrip()) + 2)) if i == 0 or left else [cell]
        for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
    ]
    lines = []
    for at in range(max(map(len, folded))):
        parts = [cell[at] if at < len(cell) else "" for cell in folded]
        lines.append(
            (" " * GAP).join(
                part.ljust(w) if i == 0 or left else part.rjust(w)
                for i, (part, w) in enumerate(zip(parts, widths, strict=True))
            )
        )
    return lines


def plain(table: Table, width: int | None = None) -> str:
    """A table as aligned text without any control character.

    Args:
        table: what is to be printed; its cells may come from a stranger's file.
        width: characters of a line. Lines above and below are wrapped, the least important columns dropped, text in
            cells folded, and columns of numbers that are still too many stand below one another. None: as wide as
            it is.
    """

    def cell(text: str) -> str:
        return terminal.bounded(terminal.clean(text))

    table = replace(
        table, columns=tuple(map(cell, table.columns)), rows=tuple(tuple(map(cell, row)) for row in table.rows)
    )
    if width is not None:
        table = _fitted(table, width)
    body = []
    for places, widths in _blocks(table, width):
        lines = (table.columns, *table.rows) if any(table.columns) else table.rows
        body += [""] * bool(body)
        body += [line for one in lines for line in _row([one[i] for i in places], widths, table.left)]
    head, notes = (
        [line for text in map(cell, block) for line in ([text] if width is None else terminal.wrapped(text, width))]
        for block in (table.head, table.notes)
    )
    blocks = [block for block in (head, body, notes, [*map(cell, table.typed)]) if block]
    return "\n\n".join("\n".join(line.rstrip() for line in block) for block in blocks)


def latex(data: xr.Dataset, label: str) -> str:
    """The published columns of a loss as a LaTeX tabular: Table 3 (triplet), 4 (NT-Xent) or 5 (SmoothAP).

    Args:
        data: counts.
        label: first cell of the row.
    """
    summary = results.summary(data)
    columns = LATEX.get(summary["loss"]["name"], TRIPLET_COLUMNS)
    directions = summary["directions"]
    wide = len(columns)
    top = " & ".join(rf"\multicolumn{{{wide}}}{{c}}{{{_escaped(name)}}}" for name in directions)
    names = " & ".join(f"${symbol}$" for _ in directions for _, symbol in columns)
    cells = " & ".join(
        f"${_number(entry[key], sign=PLUS_MINUS, digits=2)}$" for entry in directions.values() for key, _ in columns
    )
    return "\n".join([
        f"% cocos {summary['cocos']}: {data.attrs['loss_repr']}, eps {summary['eps']:g}, "
        f"{summary['convention']} convention, {_drawn(data)}",
        *(f"% {line}" for line in health.warnings(data.attrs["notes"])),
        f"% {_over(summary, 'C^B, C^0')}; C^0 of {_whole(directions)} queries in a batch",
        f"% {summary['checkpoint']['path']} sha256 {summary['checkpoint']['sha256']}",
        *([f"% {about}"] if (about := results.about_weights(data.attrs)) else []),
        *(f"% {line}" for line in (data.attrs.get("footnotes") or "").splitlines()),
        rf"\begin{{tabular}}{{l{'r' * (wide * len(directions))}}}",
        r"\toprule",
        rf" & {top} \\",
        rf" & {names} \\",
        r"\midrule",
        rf"{_escaped(label)} & {cells} \\",
        r"\bottomrule",
        r"\end{tabular}",
    ])
