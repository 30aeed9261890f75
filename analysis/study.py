"""Recompute the numbers of docs/study.md and draw its figures: `python -m analysis.study [--figures]`.

All trainings are in `analysis/data/study.nc`. Bootstrap seeds match the original analysis (commit 25cf2001).
"""

import argparse
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
import xarray as xr
from scipy import stats

ROOT = Path(__file__).parents[1]
DATA = ROOT / "analysis" / "data" / "study.nc"
SETS = ("captions", "emoji")
LOSSES = {
    "ntxent": "NT-Xent",
    "triplet": "triplet",
    "triplet_sh": "triplet SH",
    "smoothap": "SmoothAP",
    "ce_softmax": "cross-example softmax",
}
ONE_NEGATIVE = "triplet_sh"  # its effective number is always 1, so it takes no part in the arch
BATCH_SIZE, CANDIDATES = 128, 127
KEPT, HELD = (1, 2, 4, 8, 16, 64), (2, 4, 8, 16, 32, 64, 100)
APEX = 16  # top of the preregistered parabola, where the two lines meet
MEETS = range(4, 65)  # effective numbers tried for the meeting point if it is free
MARGIN = 3.0  # points of rsum by which the controller may be worse than a search
CONSTANT = 0.15  # temperature that the controller is compared with
BLOCK_VALUES = 2**17  # random values drawn at once: fixes the random numbers
CURVE_LENGTHS = (0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # of a smooth curve, in steps of the grid
CURVE_NOISES = (0.001, 0.03, 0.1, 0.3, 1.0)  # variance of its noise, in units of its own variance


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval, p-value and number of units."""

    value: float
    low: float
    high: float
    p: float = math.nan
    n: int = 0

    def text(self, digits: int = 1, *, sign: bool = True) -> str:
        """Return value and interval, such as +8.8 [+6.4, +11.3]."""
        kind = f"{'+' if sign else ''}.{digits}f"
        return f"{self.value:{kind}} [{self.low:{kind}}, {self.high:{kind}}]"


# Data


def load(part: str) -> xr.Dataset:
    """Read `grid`, `interventions` or `hold`."""
    return xr.open_dataset(DATA, group=part, engine="h5netcdf").load()


def last(runs: xr.Dataset) -> pd.DataFrame:
    """Return the runs at their last checkpoint, one row each, with their index in the Dataset."""
    runs = runs.isel(checkpoint=-1) if "checkpoint" in runs.dims else runs
    return runs.to_dataframe().reset_index(drop=True)


def choose_rates(runs: pd.DataFrame) -> pd.DataFrame:
    """Keep the learning rate with the highest mean validation rsum of each loss and parameter value."""
    mean = runs.groupby(["loss", "value", "rate"])["rsum_val"].mean()
    best = {(loss, value): rate for loss, value, rate in mean.groupby(["loss", "value"]).idxmax()}
    return runs[[best[row.loss, row.value] == row.rate for row in runs.itertuples()]]


def settings(runs: pd.DataFrame) -> pd.DataFrame:
    """Average the seeds of each setting; equal means are ties, so digits beyond the twelfth are dropped."""
    columns = ["contributing", "effective", "rsum", "rsum_val"]
    means = runs.groupby(["loss", "value"], sort=False)[columns].mean()
    return means.map(lambda value: float(f"{value:.12g}")).reset_index()


def grid_settings(data: str, batch_size: int = BATCH_SIZE) -> pd.DataFrame:
    """Return the settings of a data set and batch size at their best learning rates."""
    runs = last(load("grid"))
    return settings(choose_rates(runs[(runs["data"] == data) & (runs["batch_size"] == batch_size)]))


# Statistics


def paired(differences: Sequence[float]) -> Estimate:
    """Return mean, interval and p-value of paired differences by Student's t."""
    test = stats.ttest_1samp(differences, 0)
    return Estimate(float(np.mean(differences)), *test.confidence_interval(), float(test.pvalue), len(differences))


def resample(statistic: Callable[[list[np.ndarray]], np.ndarray], sizes: Sequence[int], resamples: int) -> np.ndarray:
    """Return a statistic of units drawn with replacement within blocks, from the count of each unit."""
    rng, most = np.random.default_rng([0, 1]), max(1, BLOCK_VALUES // sum(sizes))

    def counts(size: int, number: int) -> np.ndarray:
        units = rng.integers(size, size=(number, size)) + size * np.arange(number)[:, None]
        return np.bincount(units.ravel(), minlength=number * size).reshape(number, size).astype(float)

    numbers = [min(most, resamples - start) for start in range(0, resamples, most)]
    return np.concatenate([statistic([counts(size, number) for size in sizes]) for number in numbers])


def interval(values: np.ndarray) -> tuple[float, float]:
    """Return the 95 % percentile interval of the finite values."""
    low, high = np.quantile(values[np.isfinite(values)], (0.025, 0.975))
    return float(low), float(high)


def smaller_tail(values: np.ndarray) -> float:
    """Return the two-sided p-value of zero among resamples."""
    values = values[np.isfinite(values)]
    tails = 1 + min((values <= 0).sum(), (values >= 0).sum())
    return float(min(1, 2 * tails / (1 + len(values))))


def centred_ranks(values: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
    """Return ranks (resamples, n) of values (n,) with these counts, ties at their mean, minus the mean rank."""
    counts = np.ones((1, len(values))) if counts is None else counts
    order = np.argsort(values, kind="stable")
    first, end = (np.searchsorted(values[order], values, side) for side in ("left", "right"))
    until = np.concatenate([np.zeros((len(counts), 1)), np.cumsum(counts[:, order], axis=1)], axis=1)
    return (until[:, first] + until[:, end] - len(values)) / 2


def blocks_of(x: np.ndarray, y: np.ndarray, block: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Split two columns into blocks; blocks of fewer than three units, or with a constant column, are left out."""
    pairs = [(x[block == name], y[block == name]) for name in np.unique(block)]
    return [pair for pair in pairs if len(pair[0]) > 2 and not any(map(is_constant, pair))]


def is_constant(values: np.ndarray) -> bool:
    """Whether values are equal up to rounding in float32."""
    return bool(np.ptp(values) <= 1e-6 * np.abs(values).max())


def correlation(blocks: Sequence[tuple[np.ndarray, np.ndarray]], counts: list[np.ndarray] | None = None) -> np.ndarray:
    """Return the rank correlation within blocks of each resample."""
    sums = np.zeros((3, 1))
    for (x, y), count in zip(blocks, counts or [np.ones((1, len(x))) for x, _ in blocks], strict=True):
        one, other = centred_ranks(x, count), centred_ranks(y, count)
        sums = sums + np.stack([(count * a * b).sum(axis=1) for a, b in ((one, other), (one, one), (other, other))])
    size = sums[1] * sums[2]
    return np.where(size > 0, sums[0] / np.sqrt(np.where(size > 0, size, 1)), np.nan)


def two_sided_p(observed: float, reference: np.ndarray, *, complete: bool) -> float:
    """Return the p-value of a permutation test; random orders count the observed one (Phipson & Smyth 2010)."""
    rounding = 1e-9 * max(np.abs(reference).max(), abs(observed))
    extreme = int((np.abs(reference) >= abs(observed) - rounding).sum())
    return extreme / len(reference) if complete else (1 + extreme) / (1 + len(reference))


def rank_correlation(x, y, block=None, *, draws: int = 10_000, resamples: int | None = None) -> Estimate:
    """Correlate ranks within blocks, with a bootstrap interval and a permutation test."""
    x, y = np.asarray(x), np.asarray(y)
    blocks = blocks_of(x, y, np.zeros(len(x)) if block is None else np.asarray(block))
    sizes = [len(one) for one, _ in blocks]
    ranks = [(centred_ranks(one)[0], centred_ranks(other)[0]) for one, other in blocks]
    if complete := math.prod(map(math.factorial, sizes)) <= draws:
        sums = np.zeros(1)
        for one, other in ranks:
            sums = np.add.outer(sums, np.array([np.dot(order, other) for order in itertools.permutations(one)])).ravel()
    else:
        rng, most, parts = np.random.default_rng([0, 0]), max(1, BLOCK_VALUES // sum(sizes)), []
        for start in range(0, draws, most):
            number = min(most, draws - start)
            orders = [rng.permuted(np.broadcast_to(one, (number, len(one))), axis=1) for one, _ in ranks]
            parts.append(sum(order @ other for order, (_, other) in zip(orders, ranks, strict=True)))
        sums = np.concatenate(parts)
    p = two_sided_p(sum(float(one @ other) for one, other in ranks), sums, complete=complete)
    low, high = interval(resample(lambda counts: correlation(blocks, counts), sizes, resamples or draws))
    return Estimate(float(correlation(blocks)[0]), low, high, p, sum(sizes))


def within_run_correlation(runs: xr.Dataset, *, draws: int = 2000) -> Estimate:
    """Average over runs the rank correlation over their checkpoints; the interval resamples settings."""
    values: dict[tuple, list[float]] = {}
    for loss, value, x, y in zip(
        *(runs[name].values for name in ("loss", "value", "contributing", "rsum")), strict=True
    ):
        if not is_constant(x) and not is_constant(y):
            values.setdefault((loss, value), []).append(float(correlation([(x, y)])[0]))
    sums, numbers = (np.array([kind(each) for each in values.values()], dtype=float) for kind in (sum, len))
    means = resample(lambda counts: (counts[0] @ sums) / (counts[0] @ numbers), [len(sums)], draws)
    return Estimate(sums.sum() / numbers.sum(), *interval(means), n=len(sums))


def smooth_curve_p(x, y, value, loss, *, draws: int = 10_000) -> float:
    """Test a rank correlation within losses against smooth curves of y along the parameter, drawn without regard to x.

    The curves are Gaussian processes. Length and noise have the largest restricted likelihood (Patterson & Thompson
    1971); the p-value is the fraction of drawn curves with at least the same correlation.
    """
    parts = [
        (x[own], y[own], stats.rankdata(value[own], "dense") - 1.0) for own in (loss == k for k in np.unique(loss))
    ]

    def covariance(step: np.ndarray, length: float, noise: float) -> np.ndarray:
        return np.exp(-(np.subtract.outer(step, step) ** 2) / (2 * length**2)) + noise * np.eye(len(step))

    def likelihood(length: float, noise: float) -> float:
        total = 0.0
        for _, curve, step in parts:
            contrasts = np.linalg.svd(np.ones((len(curve), 1)))[0][:, 1:]
            root = np.linalg.cholesky(contrasts.T @ covariance(step, length, noise) @ contrasts)
            rest = np.linalg.solve(root, contrasts.T @ curve)
            total -= len(rest) / 2 * math.log(float(rest @ rest) / len(rest)) + float(np.log(np.diag(root)).sum())
        return total

    best = max(itertools.product(CURVE_LENGTHS, CURVE_NOISES), key=lambda pair: likelihood(*pair))
    roots = [np.linalg.cholesky(covariance(step, *best)) for _, _, step in parts]
    ranks = [(centred_ranks(one)[0], centred_ranks(other)[0]) for one, other, _ in parts]
    rng, most, sums = np.random.default_rng([0, 2]), max(1, BLOCK_VALUES // len(x)), []
    for start in range(0, draws, most):
        number, total = min(most, draws - start), np.zeros(1)
        for root, (one, _) in zip(roots, ranks, strict=True):
            curves = rng.standard_normal((number, len(root))) @ root.T
            total = total + (curves.argsort(axis=1).argsort(axis=1) - (len(root) - 1) / 2) @ one
        sums.append(total)
    return two_sided_p(sum(float(one @ other) for one, other in ranks), np.concatenate(sums), complete=False)


def parabola(number, score, loss, *, resamples: int = 10_000) -> tuple[Estimate, Estimate]:
    """Fit rsum = loss + b log N + c (log N)²; return c and the N at the top, both with bootstrap intervals."""
    x = np.log(number)
    middle, scale = x.mean(), x.std()
    blocks = [(((x - middle) / scale)[loss == name], (score - score.mean())[loss == name]) for name in np.unique(loss)]

    def fit(counts: list[np.ndarray]) -> np.ndarray:
        total = np.zeros((1, 3, 3))
        for (one, other), count in zip(blocks, counts, strict=True):
            columns = np.stack([one, one**2, other])
            mean = count @ columns.T / len(one)
            moments = np.einsum("rn,in,jn->rij", count, columns, columns)
            total = total + moments - len(one) * mean[:, :, None] * mean[:, None]
        xx, xz, zz, xy, zy = (total[:, i, j] for i, j in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2)))
        bend = (xx * zy - xz * xy) / (xx * zz - xz**2)
        return np.stack([(xy - bend * xz) / xx, bend], axis=1)

    sizes = [len(one) for one, _ in blocks]
    slope, bend = fit([np.ones((1, size)) for size in sizes])[0]
    slopes, bends = resample(fit, sizes, resamples).T
    down = bends < 0
    tops = np.exp(middle - scale * slopes[down] / (2 * bends[down]))
    top = Estimate(math.exp(middle - scale * slope / (2 * bend)), *interval(tops))
    return Estimate(bend / scale**2, *interval(bends / scale**2), smaller_tail(bends), len(x)), top


def line_columns(number: np.ndarray, loss: np.ndarray, meet: float) -> np.ndarray:
    """Return the design of two lines that meet at an effective number, with a level for each loss."""
    away = np.log(number / meet)
    levels = [(loss == name) * 1.0 for name in np.unique(loss)]
    return np.column_stack([*levels, np.minimum(away, 0), np.maximum(away, 0)])


def two_lines(number, score, loss, meet: float = APEX) -> tuple[Estimate, Estimate]:
    """Fit two lines that meet at a number; return their slopes per doubling with robust errors (HC3)."""
    design = line_columns(number, loss, meet)
    inverse = np.linalg.inv(design.T @ design)
    coefficients = inverse @ design.T @ score
    rest = score - design @ coefficients
    leverage = np.einsum("ij,jk,ik->i", design, inverse, design)
    covariance = inverse @ (design.T * (rest / (1 - leverage)) ** 2) @ design @ inverse
    freedom = len(score) - design.shape[1]
    slopes = []
    for index in (-2, -1):
        value, error = coefficients[index] * math.log(2), math.sqrt(covariance[index, index]) * math.log(2)
        low, high = stats.t.interval(0.95, freedom, loc=value, scale=error)
        slopes.append(Estimate(value, low, high, 2 * float(stats.t.sf(abs(value) / error, freedom)), len(score)))
    return slopes[0], slopes[1]


def meeting_point(number, score, loss, *, resamples: int = 500) -> Estimate:
    """Return the number at which two lines fit best, with a bootstrap interval over settings within losses."""
    designs, rng = np.stack([line_columns(number, loss, meet) for meet in MEETS]), np.random.default_rng(0)
    groups = [np.flatnonzero(loss == name) for name in np.unique(loss)]

    def best(counts: np.ndarray) -> int:
        weighted = np.swapaxes(designs * counts[:, None], 1, 2)
        moments = weighted @ score
        coefficients = (np.linalg.pinv(weighted @ designs) @ moments[:, :, None])[:, :, 0]
        return MEETS[int(np.argmax((coefficients * moments).sum(axis=1)))]

    draws = [np.concatenate([rng.choice(group, len(group)) for group in groups]) for _ in range(resamples)]
    meets = [best(np.bincount(draw, minlength=len(score)) * 1.0) for draw in draws]
    return Estimate(best(np.ones(len(score))), *np.quantile(meets, (0.025, 0.975), method="nearest"))


# Findings


def arm(runs: pd.DataFrame, column: str = "rsum", **where) -> np.ndarray:
    """Return the mean of each seed over the runs with these values."""
    own = np.all([runs[name].isin(np.atleast_1d(value)) for name, value in where.items()], axis=0)
    return runs[own].groupby("seed")[column].mean().to_numpy()


def equally_contributing(runs: pd.DataFrame, k: int = KEPT[-1]) -> Estimate:
    """Compare the hardest with k random negatives at the number that contributes among the random ones.

    The hard arms of each seed are a curve over the logarithm of that number, read by linear interpolation.
    """
    hard = {name: np.stack([arm(runs, name, arm="hard", k=kept) for kept in (*KEPT, CANDIDATES)])
            for name in ("contributing", "rsum")}  # fmt: skip
    differences = []
    for seed, at in enumerate(arm(runs, "contributing", arm="random", k=k)):
        order = np.argsort(hard["contributing"][:, seed])
        number, score = (hard[name][order, seed] for name in ("contributing", "rsum"))
        differences.append(np.interp(math.log(at), np.log(number), score))
    return paired(np.array(differences) - arm(runs, arm="random", k=k))


def hold_differences() -> dict[str, np.ndarray]:
    """Return the test rsum of the controller minus the search and minus the constant, one pair per cell (24)."""
    runs = last(load("hold"))
    cell = ["data", "loss", "width", "batch_size"]
    means = runs.groupby([*cell, "arm", "temperature", "rate"], sort=False)[["rsum", "rsum_val"]].mean().reset_index()
    search, constant = [], []
    for _, rows in means.groupby(cell, sort=False):

        def chosen(own: pd.Series, rows=rows) -> float:
            return rows.loc[rows[own]["rsum_val"].idxmax(), "rsum"]

        late, plain = chosen(rows["arm"] == "late"), rows["arm"] == "constant"
        search.append(late - chosen(plain))
        constant.append(late - chosen(plain & (rows["temperature"] == CONSTANT)))
    return {"search": np.array(search), "constant": np.array(constant)}


def correlations(data: str) -> dict[str, Estimate]:
    """Correlate count and recall at each level."""
    table, runs = grid_settings(data), load("grid")
    frame = last(runs)
    chosen = choose_rates(frame[(frame["data"] == data) & (frame["batch_size"] == BATCH_SIZE)]).index
    several = table[table["loss"] != ONE_NEGATIVE]
    below = several["effective"] <= APEX
    losses = table.groupby("loss")[["contributing", "rsum"]].mean()

    def within(part: pd.DataFrame, **options) -> Estimate:
        return rank_correlation(part["contributing"], part["rsum"], part["loss"], **options)

    return {
        "checkpoints of a run": within_run_correlation(runs.isel(run=chosen)),
        "settings of a loss": within(table),
        f"settings, at most {APEX} effective negatives": within(several[below], draws=2000, resamples=1000),
        f"settings, more than {APEX}": within(several[~below], draws=2000, resamples=1000),
        "losses": rank_correlation(losses["contributing"], losses["rsum"], draws=2000),
    }


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values by Holm's method."""
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(np.argsort(p_values)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def numbers() -> Iterator[tuple[str, str]]:
    """Yield name and text of every number in docs/study.md."""
    interventions = last(load("interventions"))
    tests = []
    for data in SETS:
        table = grid_settings(data)
        several = table[table["loss"] != ONE_NEGATIVE]
        number, score, loss = (several[name].to_numpy() for name in ("effective", "rsum", "loss"))
        levels = correlations(data)
        for level, one in levels.items():
            p = f", p = {one.p:.2g}" if level == "losses" else ""
            yield f"{data}: rank correlation, {level}", f"{one.text(2)}{p}, n = {one.n}"
        columns = (table[name].to_numpy() for name in ("contributing", "rsum", "value", "loss"))
        yield f"{data}: p against smooth curves", f"p = {smooth_curve_p(*columns):.2f}"
        curvature, _ = parabola(number, score, loss)
        yield f"{data}: curvature", curvature.text(2)
        for side, slope in zip(("below", "above"), two_lines(number, score, loss), strict=True):
            yield f"{data}: slope {side} {APEX}", slope.text()
        yield f"{data}: lines meet", meeting_point(number, score, loss).text(0, sign=False)
        runs = interventions[interventions["data"] == data]
        hard, random = (arm(runs, arm=name, k=KEPT) for name in ("hard", "random"))
        equal_k = paired(hard - random)
        yield f"{data}: hard minus random, equal k", f"{equal_k.text()}, n = {equal_k.n}"
        for name in ("ntxent", "triplet"):
            own = runs[runs["loss"] == name]
            yield f"{data}: hard minus random, equally many contribute, {name}", equally_contributing(own).text()
            alone = paired(arm(own, arm="hard", k=1) - arm(own, arm="hard", k=CANDIDATES))
            yield f"{data}: hardest alone minus all, {name}", alone.text()
        best = max(HELD, key=lambda k, runs=runs: arm(runs, "rsum_val", arm="held", k=k).mean())
        yield f"{data}: best held number", f"{best}"
        if data == SETS[0]:
            cost = paired(arm(runs, arm="held", k=best) - arm(runs, arm="held", k=APEX))
            yield f"{data}: {best} held minus {APEX} held", cost.text()
            tests = [levels["settings of a loss"].p, curvature.p, equal_k.p]
            for size in (32, BATCH_SIZE, 512):
                sized = grid_settings(data, size)
                part = sized[sized["loss"] != ONE_NEGATIVE]
                top = parabola(*(part[name].to_numpy() for name in ("effective", "rsum", "loss")))[1]
                yield f"{data}: top of the parabola, batch size {size}", top.text(0, sign=False)
                own = sized[sized["loss"] == "ntxent"]
                setting = own.loc[own["rsum_val"].idxmax()]
                text = f"{setting['value']:g} (effective number {setting['effective']:.1f})"
                yield f"{data}: best temperature of NT-Xent, batch size {size}", text
    for name, p in zip(("correlation", "curvature", "hard minus random"), holm(tests), strict=True):
        yield f"captions: adjusted p, {name}", f"p = {p:.2g}" if p > 1e-4 else "p < 0.0001"
    for name, values in hold_differences().items():
        yield f"controller minus {name}", f"{paired(values).text(2)}, n = {len(values)}"


# Figures


def colours() -> dict[str, tuple[float, float, float]]:
    """Return the colour of each loss."""
    return dict(zip(LOSSES, sns.color_palette("colorblind"), strict=False))


def draw_arch() -> plt.Figure:
    """Plot recall against the effective number, with the two lines at the mean level of each loss."""
    figure, axes = plt.subplots(1, 2, figsize=(7.0, 3.4), layout="constrained")
    for ax, data in zip(axes, SETS, strict=True):
        table = grid_settings(data)
        several = table[table["loss"] != ONE_NEGATIVE]
        slopes = two_lines(*(several[name].to_numpy() for name in ("effective", "rsum", "loss")))
        clear = slopes[0].low > 0 and slopes[1].high < 0
        for loss, label in LOSSES.items():
            rows = table[table["loss"] == loss]
            style = {"color": colours()[loss], "label": label}
            if loss == ONE_NEGATIVE:
                ax.plot(rows["effective"], rows["rsum"], "^", markerfacecolor="none", **style)
                continue
            ax.plot(rows["effective"], rows["rsum"], "o", markersize=4, **style)

            def lines(number, slopes=slopes):
                away = np.log2(number / APEX)
                return slopes[0].value * np.minimum(away, 0) + slopes[1].value * np.maximum(away, 0)

            low, high = rows["effective"].min(), rows["effective"].max()
            ends = np.array([low, np.clip(APEX, low, high), high])
            heights = (rows["rsum"] - lines(rows["effective"])).mean() + lines(ends)
            ax.plot(ends, heights, "-" if clear else "--", color=colours()[loss], linewidth=1.2)
        ax.axvline(APEX, color="0.8", linewidth=0.8, linestyle=":", zorder=0)
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter("{x:g}")
        ax.set(xlabel="effective number of negatives", ylabel="test rsum", title=data)
        sns.despine(ax=ax)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return figure


def draw_correlations() -> plt.Figure:
    """Plot recall against the count for captions, and the rank correlations at each level."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.0, 3.6), layout="constrained")
    table = grid_settings(SETS[0]).sort_values("value")
    for loss, label in LOSSES.items():
        columns = table[table["loss"] == loss][["contributing", "rsum"]].to_numpy().T
        left.plot(*columns, "o:", markersize=4, linewidth=0.8, color=colours()[loss], label=label)
    left.set_xscale("symlog", linthresh=0.1)
    left.set(xlabel="contributing negatives", ylabel="test rsum", title="captions: settings of the losses")
    for data, offset, marker, colour in zip(SETS, (-0.15, 0.15), "oD", ("black", "0.5"), strict=True):
        levels = correlations(data)
        for row, one in enumerate(levels.values()):
            right.plot([one.low, one.high], [row + offset] * 2, color=colour, linewidth=1.2)
            right.plot(one.value, row + offset, marker, color=colour, markersize=4, label=None if row else data)
    right.axvline(0, color="black", linewidth=0.8)
    right.set_yticks(range(len(levels)), [name.replace(", ", ",\n") for name in levels], fontsize=8)
    right.invert_yaxis()
    right.set(xlabel="rank correlation", xlim=(-1.05, 1.05), title="count and test rsum")
    right.legend(frameon=False, fontsize=8)
    for ax in (left, right):
        sns.despine(ax=ax)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return figure


def main() -> None:
    """Print the numbers, or draw the figures."""
    parser = argparse.ArgumentParser(prog="python -m analysis.study", description=__doc__)
    parser.add_argument("--figures", action="store_true", help="draw docs/study_arch.png and study_correlations.png")
    if parser.parse_args().figures:
        for name, draw in (("arch", draw_arch), ("correlations", draw_correlations)):
            draw().savefig(ROOT / "docs" / f"study_{name}.png", dpi=150)
        return
    for name, text in numbers():
        print(f"{name}: {text}")


if __name__ == "__main__":
    main()
