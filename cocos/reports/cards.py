"""A loss on one screen: formula, parameters, what counts, what it equals, and its weight against the score."""

import textwrap

import numpy as np
import xarray as xr

from cocos import losses, results
from cocos.losses import _about
from cocos.reports import formulas

__all__ = ["card", "chart", "entry", "equal_to"]

WIDTH, HEIGHT = 61, 11
LABEL = 12  # characters before the text of an entry
TEXT = 96  # characters of a line that is still easy to read
EXACT = "exact: the derivative of the loss, by a closed form"
COUPLES = {
    "query": "no: each query's weights hang on its own row of scores",
    "batch": "yes: queries of a batch share a term, and a weight is that of the sum over the batch",
    "candidate": "candidates are the anchors: a weight is that of the sum over the batch",
}


def chart(data: xr.Dataset) -> list[str]:
    """The curves of `cocos.measures.weight_curve` in characters: `*` a negative, `o` the positive, `@` both."""
    score = data["score"].values
    parts = np.array_split(np.arange(len(score)), WIDTH)
    curves = {"*": data["negative"].values, "o": data["positive"].values}
    low = min(0.0, *(float(values.min()) for values in curves.values()))
    high = max(0.0, *(float(values.max()) for values in curves.values()))
    span = (high - low) or 1.0
    extreme = {mark: [v[part][np.abs(v[part]).argmax()] for part in parts] for mark, v in curves.items()}
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    zero = round((high - 0.0) / span * (HEIGHT - 1))
    grid[zero] = ["-"] * WIDTH
    for mark, values in extreme.items():
        for x, value in enumerate(values):
            y = round((high - value) / span * (HEIGHT - 1))
            grid[y][x] = "@" if grid[y][x] in "*o" and grid[y][x] != mark else mark
    ticks = {0: f"{high:.3g}", zero: "0", HEIGHT - 1: f"{low:.3g}"}
    lines = [f"{ticks.get(y, ''):>10} |{''.join(row).rstrip()}" for y, row in enumerate(grid)]
    left, right = f"{score[0]:g}", f"{score[-1]:g}"
    return [*lines, " " * 12 + left + right.rjust(WIDTH - len(left))]


def entry(name: str) -> dict:
    """A loss as plain data: name, parameters, what it reads and gives, and where it is from."""
    loss = losses.load(name)
    cls = type(loss)
    said = _about.sections(cls)
    return {
        "name": losses.name_of(loss),
        "parameters": losses.parameters(loss),
        "metric": loss.metric,
        "couples": loss.couples,
        "gradient": loss.gradient,
        "balanced": loss.balanced,
        "sample": loss.sample,
        "family": said.get("Family", "").rstrip("."),
        "summary": _about.summary(cls),
        "formula": _about.formula(cls),
        "counts": said.get("Counts", ""),
        "net": said.get("Net", ""),
        "source": said.get("Source", ""),
        "also_called": said.get("Also called", ""),
    }


def equal_to(equal: xr.Dataset) -> list[dict]:
    """The Dataset of `cocos.measures.equivalences` as plain data."""
    return [
        {"loss": str(other), "where": str(where), "gap": float(gap)}
        for other, where, gap in zip(equal["other"].values, equal["where"].values, equal["gap"].values, strict=True)
    ]


def _entry(name: str, text: str, width: int) -> list[str]:
    lines = textwrap.wrap(text, width - LABEL, break_on_hyphens=False) or [""]
    return [f"{name if not place else '':<{LABEL}}{line}".rstrip() for place, line in enumerate(lines)]


def card(name: str, curve: xr.Dataset, equal: xr.Dataset, width: int = TEXT) -> str:
    """The text of `cocos losses NAME`.

    Args:
        name: of a loss of the shelf.
        curve: of `cocos.measures.weight_curve`.
        equal: of `cocos.measures.equivalences`.
        width: characters of a line; the chart takes 73.
    """
    width = min(width, TEXT)
    about = entry(name)
    cls = type(losses.load(name))
    documented = _about.parameters(cls)
    lines = [f"{about['name']}  ({cls.__name__})", *textwrap.wrap(about["summary"], width), ""]
    lines += _entry("formula", formulas.readable(about["formula"]), width)
    lines.append("")
    for parameter, value in about["parameters"].items():
        text = documented.get(parameter) or documented.get(f"{parameter}_", "")
        lines += _entry("parameter", f"{parameter} = {value}: {text}", width)
    lines += _entry("score", f"{about['metric'].replace('_', ' ')}; batches of {about['sample']}", width)
    lines += _entry("gradient", results.WEIGHTS.get(about["gradient"], EXACT), width)
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
        f"weight against score, closer to the right: * one negative beside eight others and a positive at score "
        f"{curve.attrs['positive_score']:g}, o the positive. While that negative comes closer, the query's push goes "
        f"from {push[0]:.3g} to {push[-1]:.3g} (at most {push.max():.3g}) and its pull from {pull[0]:.3g} to "
        f"{pull[-1]:.3g} (at most {pull.max():.3g}).",
        width,
    )
    return "\n".join(lines)
