"""Losses on one screen: all of them as a table, and each on a card with its formula, source and weight curve."""

import textwrap

import numpy as np
import xarray as xr

from cocos import losses
from cocos.base import docstrings
from cocos.counting import shares
from cocos.reports.tables import Table

# Columns and lines of the chart.
CHART_WIDTH, CHART_HEIGHT = 61, 11
# Characters before the text of an entry.
ENTRY_INDENT = 12
# Characters of the longest line that is easy to read.
LINE_LENGTH = 96
EXACT = "exact: the derivative of the loss, by a closed form"
COUPLES = {
    "query": "no queries: the weights of a query depend on its own row of scores only",
    "batch": "the queries of a batch, which share a term; weights are derivatives of the sum over the batch",
    "candidate": "candidates are the anchors; weights are derivatives of the sum over the batch",
}


def table(entries: list[dict], unspecified: dict[str, str], beyond: dict[str, str]) -> Table:
    """List losses, given by `entry`, by family with their parameters; below, why others are not implemented."""
    entries = sorted(entries, key=lambda e: (e["family"], e["name"]))
    rows = tuple(
        (e["name"], e["family"], ", ".join(f"{k}={v}" for k, v in e["parameters"].items()) or "none") for e in entries
    )
    notes = (
        *(f"{name}: unspecified, {reason}" for name, reason in unspecified.items()),
        *(f"{names.split()[0]}: no function of the scores of a query; {reason}" for names, reason in beyond.items()),
        "The card of one loss, with formula, source and other names: cocos losses NAME; any of its names will do, like "
        "InfoNCE.",
        "A loss of your own: --loss package.module:attribute or --loss file.py:attribute; a sum: --loss "
        '"triplet+0.5*contrastive_cosine".',
        "A loss of another library, as it is: --loss pml:CircleLoss, open_clip:ClipLoss, lightly:NTXentLoss, "
        "st:MultipleNegativesRankingLoss.",
        'A loss of some negatives of each query: the hardest, --loss "top_k(ntxent)" -p k=16; '
        "all but the hardest, skip_k; those that score below the positive, semi_hard.",
        "No negatives, so nothing to count: vicreg, barlow_twins, w_mse, byol, simsiam; cocos evaluate FILE gives "
        "alignment, uniformity and effective rank.",
    )
    head = (f"{len(entries)} losses; the defaults of their parameters are those of their papers.",)
    return Table(("loss", "family", "parameters"), rows, head, notes, left=True)


def chart(data: xr.Dataset) -> list[str]:
    """Draw the curves of `cocos.measures.weight_curve` in characters: `*` a negative, `o` the positive, `@` both."""
    score = data["score"].values
    parts = np.array_split(np.arange(len(score)), CHART_WIDTH)
    curves = {"*": data["negative"].values, "o": data["positive"].values}
    low = min(0.0, *(float(values.min()) for values in curves.values()))
    high = max(0.0, *(float(values.max()) for values in curves.values()))
    span = (high - low) or 1.0
    extreme = {mark: [v[part][np.abs(v[part]).argmax()] for part in parts] for mark, v in curves.items()}
    grid = [[" "] * CHART_WIDTH for _ in range(CHART_HEIGHT)]
    zero = round((high - 0.0) / span * (CHART_HEIGHT - 1))
    grid[zero] = ["-"] * CHART_WIDTH
    for mark, values in extreme.items():
        for x, value in enumerate(values):
            y = round((high - value) / span * (CHART_HEIGHT - 1))
            grid[y][x] = "@" if grid[y][x] in "*o" and grid[y][x] != mark else mark
    ticks = {0: f"{high:.3g}", zero: "0", CHART_HEIGHT - 1: f"{low:.3g}"}
    lines = [f"{ticks.get(y, ''):>10} |{''.join(row).rstrip()}" for y, row in enumerate(grid)]
    left, right = f"{score[0]:g}", f"{score[-1]:g}"
    return [*lines, " " * 12 + left + right.rjust(CHART_WIDTH - len(left))]


def entry(name: str) -> dict:
    """Describe a loss as plain data: name, parameters, properties, formula and source."""
    loss = losses.load(name)
    cls = type(loss)
    said = docstrings.sections(cls)
    return {
        "name": losses.name_of(loss),
        "parameters": losses.parameters(loss),
        "metric": loss.metric,
        "couples": loss.couples,
        "gradient": loss.gradient,
        "balanced": loss.balanced,
        "sample": loss.sample,
        "family": said.get("Family", "").rstrip("."),
        "summary": docstrings.summary(cls),
        "formula": docstrings.formula(cls),
        "counts": said.get("Counts", ""),
        "net": said.get("Net", ""),
        "source": said.get("Source", ""),
        "also_called": said.get("Also called", ""),
    }


def equal_to(equal: xr.Dataset) -> list[dict]:
    """Convert the Dataset of `cocos.measures.equivalences` to plain data."""
    return [
        {"loss": str(other), "where": str(where), "gap": float(gap)}
        for other, where, gap in zip(equal["other"].values, equal["where"].values, equal["gap"].values, strict=True)
    ]


def _entry(name: str, text: str, width: int) -> list[str]:
    lines = textwrap.wrap(text, width - ENTRY_INDENT, break_on_hyphens=False) or [""]
    return [f"{name if not place else '':<{ENTRY_INDENT}}{line}".rstrip() for place, line in enumerate(lines)]


def card(name: str, curve: xr.Dataset, equal: xr.Dataset, width: int = LINE_LENGTH) -> str:
    """Write the card of a loss, the text of `cocos losses NAME`; its chart needs a width of 73 characters."""
    width = min(width, LINE_LENGTH)
    about = entry(name)
    cls = type(losses.load(name))
    documented = docstrings.parameters(cls)
    lines = [f"{about['name']}  ({cls.__name__})", *textwrap.wrap(about["summary"], width), ""]
    lines += _entry("formula", about["formula"], width)
    lines.append("")
    for parameter, value in about["parameters"].items():
        text = documented.get(parameter) or documented.get(f"{parameter}_", "")
        lines += _entry("parameter", f"{parameter} = {value}: {text}", width)
    lines += _entry("score", f"{about['metric'].replace('_', ' ')}; batches of {about['sample']}", width)
    lines += _entry("gradient", shares.about_weights(about) or EXACT, width)
    lines += _entry("couples", COUPLES[about["couples"]], width)
    for key in ("counts", "net", "family", "source", "also_called"):
        if about[key]:
            lines += _entry(key.replace("_", " "), about[key], width)
    for other in equal_to(equal):
        lines += _entry(
            "equal to", f"{other['loss']}, {other['where']}; the gradients differ by {other['gap']:.1e}", width
        )
    push, pull = curve["push"].values, curve["pull"].values
    lines += ["", *chart(curve), ""]
    lines += textwrap.wrap(
        f"weight against score, closer candidates to the right: * one negative beside eight others and a positive at "
        f"score {curve.attrs['positive_score']:g}, o the positive. As that negative comes closer, the push of the "
        f"query goes from {push[0]:.3g} to {push[-1]:.3g} (at most {push.max():.3g}) and its pull from {pull[0]:.3g} "
        f"to {pull[-1]:.3g} (at most {pull.max():.3g}).",
        width,
    )
    return "\n".join(lines)
