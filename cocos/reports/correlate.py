"""Tables of correlations over runs: all levels side by side, the parabola, and what a baseline leaves."""

import math

import numpy as np
import xarray as xr

from cocos import results
from cocos.reports import terminal
from cocos.reports.layout import Table
from cocos.results.correlation import LEVELS

# Blocks that are named below a table.
MOST_BLOCKS_NAMED = 2
# Smallest p-value that is written as a number.
LEAST_P = 1e-4
# Percent of simulated smooth curves, unrelated to the count, that the exchange of settings on a grid rejects at 5 %:
# `analysis/study/results/null_rates.json`, length scales of 1 to 3 steps.
REJECTED_SMOOTH = (14, 31)


def tables(data: xr.Dataset) -> list[Table]:
    """The levels, the parabolas over settings, and where there is a baseline, the comparison with it."""
    return [table(data), _curves(data), *([_baselines(data)] if "baseline" in data.dims else [])]


def table(data: xr.Dataset) -> Table:
    """Write a row for every level of every x; the level of the settings has the adjusted p-value."""
    rows, reasons = [], {}
    for name in data["x"].values:
        for level in LEVELS:
            one = data.sel(x=name, level=level)
            rows += [(str(name), "", "", "", "")] if level == next(iter(LEVELS)) else []
            rows.append(_cells(one, level, float(one["p_holm"])))
            rows += [_along(data.sel(x=name))] if level == "settings" and data.attrs.get("order") else []
            for reason in _reasons(one, level):
                reasons.setdefault(reason, []).append(str(name))
    head = [f"{data.attrs['y']} of {_counted(data)}", *(_sentence(data.sel(x=name)) for name in data["x"].values)]
    several = [str(each) for each in data["x"].values]
    told = [f"{reason}" if names == several else f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
    columns = ("between", "rho", f"{100 * data.attrs['level']:g} %", "p", "n")
    return Table(columns, tuple(rows), tuple(head), (*told, *results.lines(data.attrs), _line(data)))


def _counted(data: xr.Dataset) -> str:
    families, configs = data["family"].values.tolist(), data["config"].values.tolist()
    names = dict.fromkeys(families)
    settings = len(set(zip(families, configs, strict=True)))
    listed = ", ".join(f"{terminal.clean(name)} {families.count(name)}" for name in names)
    runs = f"{data.sizes['run']} runs, {settings} settings, "
    return runs + (f"{len(names)} families ({listed})" if len(names) > 1 else f"one family ({listed})")


def _cells(one: xr.Dataset, level: str, holm: float) -> tuple[str, ...]:
    """Cells of a level: what varies, correlation, interval, p and n."""
    varies, number = f"  {LEVELS[level][0]}", f"{int(one['number'])}"
    if str(one["undefined"].item()):
        return varies, "undefined", "", "", ""
    p = holm if level == "settings" and math.isfinite(holm) else float(one["p"])
    return varies, _signed(float(one["rho"])), _interval(float(one["low"]), float(one["high"])), _p(p), number


def _along(one: xr.Dataset) -> tuple[str, ...]:
    """Cells of the test against smooth curves along the grid of the settings."""
    varies = f"    along {terminal.clean(one.attrs['order'])}"
    if str(one["ordered_undefined"].item()):
        return varies, "undefined", "", "", ""
    return varies, "", "", _p(float(one["ordered_p_holm"])), f"{int(one['ordered_number'])}"


def _signed(value: float) -> str:
    return f"{value:+.2f}" if math.isfinite(value) else "none"


def _interval(low: float, high: float) -> str:
    return f"[{low:+.2f}, {high:+.2f}]" if math.isfinite(low) else "none"


def _p(value: float) -> str:
    return "none" if not math.isfinite(value) else "<0.0001" if value < LEAST_P else f"{value:.4f}"


def _reasons(one: xr.Dataset, level: str) -> list[str]:
    """Say why a level has no correlation, or what it leaves out."""
    (varies, unit), said = LEVELS[level], []
    if reason := str(one["undefined"].item()):
        return [f"{varies}: undefined, {reason}"]
    if number := int(one["left_out"]):
        said.append(f"left out, {unit} without a finite number: {number}")
    blocks = str(one["without"].item()).splitlines()
    if blocks:
        more = f" and {len(blocks) - MOST_BLOCKS_NAMED} more" if len(blocks) > MOST_BLOCKS_NAMED else ""
        said.append(f"left out, {'; '.join(blocks[:MOST_BLOCKS_NAMED])}{more}")
    if float(one["p"]) > 0 and float(one["smallest"]) > 1 - float(one.attrs["level"]):
        said.append(f"no p-value of {int(one['number'])} {unit} can be below {float(one['smallest']):.2g}")
    return [f"{varies}: {each}" for each in said]


def _sentence(one: xr.Dataset) -> str:
    """State what the settings of a family say; nothing is claimed where it is not resolved."""
    name, y, level = str(one["x"].item()), one.attrs["y"], one.sel(level="settings")
    reason = str(level["undefined"].item())
    if reason:
        return f"{name}: no correlation between the settings of a family is defined."
    rho, number, grid = float(level["rho"]), int(level["number"]), one.attrs.get("order", "")
    against = f" against smooth curves along {terminal.clean(grid)}" if grid else ""
    p = float(one["ordered_p_holm"] if grid else one["p_holm"])
    said = f"{_signed(rho)} {_interval(float(level['low']), float(level['high']))}, "
    said += f"p = {p:.2g}{against}, n = {number} settings"
    if not p <= 1 - float(one.attrs["level"]):
        return f"{name}: no evidence that it goes with {y} between the settings of a family ({said})."
    return f"{name}: settings of a family with more of it have {'higher' if rho > 0 else 'lower'} {y} ({said})."


def _line(data: xr.Dataset) -> str:
    tests = int(np.isfinite(data["p_holm"]).sum()) if data.attrs["holm"] else 0
    adjusted = f"; between settings adjusted for {tests} tests (Holm)" if tests > 1 else ""
    return (
        f"rho: rank correlation; n: settings, runs for their seeds; intervals: {data.attrs['resamples']:,} resamples "
        f"of settings; p: two-sided, orders within each family or setting{adjusted}. {_assumption(data)} The levels "
        "answer different questions, and points that are pooled answer none."
    )


def _assumption(data: xr.Dataset) -> str:
    """Say what the exchange of settings assumes, and how wrong it is on a grid."""
    least, most = REJECTED_SMOOTH
    said = (
        "Exchanging settings assumes that each was drawn by itself; for those on a grid it takes smooth curves that "
        f"ignore x for a finding in {least} to {most} % of simulations"
    )
    if grid := data.attrs.get("order"):
        lengths = sorted(
            {f"{float(each):g}" for each in data["ordered_length"] if math.isfinite(float(each))}, key=float
        )
        steps = f" (length scale {', '.join(lengths)} steps)" if lengths else ""
        return f"{said}: the row along {terminal.clean(grid)} is against such curves{steps}."
    return f"{said}; name their coordinate with --order."


def _curves(data: xr.Dataset) -> Table:
    """Write the parabola of every x over the settings."""
    rows, reasons = [], []
    for name in data["x"].values:
        one = data.sel(x=name)
        log = bool(one["quadratic_log"])
        label = f"log {name}" if log else str(name)
        if reason := str(one["quadratic_undefined"].item()):
            rows.append((label, "undefined", "", "", "", ""))
            reasons.append(f"{label}: undefined, {reason}")
            continue
        parts = ", ".join(f"{float(one[f'quadratic_{key}']):.2f}" for key in ("r2_blocks", "r2_linear", "r2_quadratic"))
        down, number = f"{100 * float(one['quadratic_bent_down']):.0f} %", f"{int(one['quadratic_number'])}"
        rows.append((label, down, _p(float(one["quadratic_p"])), _optimum(one, log), parts, number))
    notes = (
        *reasons,
        "bent down: resamples with a curvature below 0; p: of the curvature, not adjusted; optimum: of x itself, with "
        "its interval over these resamples; R2: of families alone, with x, and with its square.",
    )
    columns, head = ("parabola", "bent down", "p", "optimum", "R2", "n"), ("Is there an optimum between settings?",)
    return Table(columns, tuple(rows), head, notes)


def _optimum(one: xr.Dataset, log: bool) -> str:
    """Where the parabola is largest; none where it is bent up, or beyond the range of x."""
    best, *ends = (float(one[f"quadratic_{key}"]) for key in ("optimum", "optimum_low", "optimum_high"))
    if math.isnan(best):
        return "none"
    if not bool(one["quadratic_inside"]):
        return "outside"
    low, high = map(math.exp, ends) if log else ends
    return f"{math.exp(best) if log else best:.3g} [{low:.3g}, {high:.3g}]"


def _baselines(data: xr.Dataset) -> Table:
    """Write what every x says beyond every baseline."""
    rows, reasons = [], []
    for name in data["x"].values:
        rows.append((str(name), "", "", "", "", ""))
        for base in data["baseline"].values:
            one = data.sel(x=name, baseline=base)
            get = lambda key, one=one: float(one[f"beyond_{key}"])  # noqa: E731
            label, number = f"  beyond {base}", f"{int(one['beyond_number'])}"
            if reason := str(one["beyond_undefined"].item()):
                rows.append((label, "undefined", "", "", "", ""))
                reasons.append(f"{name} beyond {base}: undefined, {reason}")
                continue
            partial = f"{_signed(get('partial'))} {_interval(get('partial_low'), get('partial_high'))}"
            both = f"{_signed(get('x_alone'))}, {_signed(get('baseline_alone'))}"
            apart = f"{_signed(get('difference'))} {_interval(get('difference_low'), get('difference_high'))}"
            rows.append((label, partial, _p(get("partial_p")), both, apart, number))
    columns = ("x", "rho given it", "p", "rho of each", "difference", "n")
    head = (f"Does x predict {data.attrs['y']} beyond a baseline? Settings within families",)
    notes = (
        *reasons,
        "difference: |rho| of x less |rho| of the baseline, paired bootstrap over the settings.",
    )
    return Table(columns, tuple(rows), head, notes, least=("rho of each",))
