"""Fill `docs/hold_study.md` from `page.md` and the numbers of the second study: nobody types a result into the page."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from analysis.hold_study import findings, plan, scale_findings, scale_plan, tasks
from analysis.study.page import markdown, render
from cocos.checkpoints.data import emoji_captions

__all__ = ["FORMATS", "PAGE", "TABLES", "TEMPLATE", "numbers", "write"]

Found = dict[str, Any]
TEMPLATE = Path(__file__).with_name("page.md")
PAGE = Path(__file__).parent.parent.parent / "docs" / "hold_study.md"
CONSTANT = f"{plan.START:g}"
LOSSES = {"ntxent": "NT-Xent", "ce_softmax": "cross-example softmax"}
ARMS = {"grid": "validated grid", "late": "held late", "once": "set once", "early": "held from the first step"}
SPLITS = {"data": "", "width": "width ", "batch_size": "batch ", "loss": ""}
HELD = ("late", "once", "early")
SMALL = 0.01  # scores below it have one digit
SCORES = {"cosine": "cosine", "dot": "inner product"}
PARTS = {
    "negatives": "temperature that divides the push among the negatives",
    "weight": "temperature that sets the weight of the query",
    "interaction": "interaction",
}


def _listed(values: Any) -> str:
    """Numbers in a row."""
    return ", ".join(f"{value:g}" for value in values)


def numbers() -> Found:
    """All numbers that the page may say: `findings.json`, and the plan beside it."""
    found = json.loads(findings.FILE.read_text("utf-8"))
    found["plan"] = {
        "grid": _listed(plan.GRID), "values": len(plan.GRID), "constant": plan.START, "seeds": len(plan.SEEDS),
        "rates": len(next(iter(plan.RATES.values()))), "cells": len(found["cells"]), "margin": findings.MARGIN,
        "factors": _listed(plan.FACTORS), "late": 100 * plan.AFTER["late"], "samples": findings.SAMPLES,
        "factorial": plan.FACTORIAL, "coldest": min(plan.FACTORS), "warmest": max(plan.FACTORS),
    }  # fmt: skip
    found["items"] = {name: _sizes(name) for name in plan.DATA}
    found["moving"] = json.loads(scale_findings.FILE.read_text("utf-8"))
    found["moving"]["plan"] = {
        "grid": _listed(scale_plan.GRID), "grid_size": len(scale_plan.GRID), "seeds": len(scale_plan.SEEDS),
        "cells": len(found["moving"]["cells"]), "batch_size": scale_plan.BATCH_SIZE,
        "widest": max(scale_plan.GRID) / min(scale_plan.GRID),
    }  # fmt: skip
    return found


def _sizes(name: str) -> dict[str, int]:
    """Items of each split of a data set."""
    if name == "emoji":
        split = tasks.emoji_splits([each["concept"] for each in emoji_captions.records()])
    else:
        with np.load(tasks.DATA / f"{name}.npz") as held:
            split = held["split"]
    return {name: int((split == place).sum()) for place, name in enumerate(tasks.SPLITS)}


def said(one: Found, digits: int = 1) -> str:
    """A difference with its interval."""
    return f"{one['mean']:+.{digits}f} [{one['low']:+.{digits}f}, {one['high']:+.{digits}f}]"


def _p(value: float) -> str:
    return f"{value:.1g}" if value < 0.001 else f"{value:.3f}"


def _percent(one: Found) -> str:
    value, low, high = (100 * one[key] for key in ("value", "low", "high"))
    return f"{value:.0f} % [{low:.0f}, {high:.0f}]"


def _tests(found: Found) -> str:
    rows = []
    for name, words in (("h1", "H1: held late minus the validated grid"), ("h2", "H2: held late minus the constant")):
        one = found["tests"][name]
        rows.append([f"{words}{f' {CONSTANT}' if name == 'h2' else ''}", said(one, 2), f"{one['sd']:.1f}",
                     f"above {one['margin']:g}", f"{one['bound']:+.2f}", _p(one["holm"]),
                     "holds" if one["holds"] else "does not hold"])  # fmt: skip
    head = ["test", "mean [95 %]", "sd of cells", "asks for", "one-sided 95 % bound", "p, Holm", "result"]
    return markdown(head, rows)


def _regret(found: Found) -> str:
    rows = []
    for name, one in found["regret"].items():
        words = ARMS.get(name, f"constant {name}")
        rows.append([words, f"{one['mean']:.1f}", f"{one['worst']:.1f}", _cell(one["where"]), str(one["trainings"])])
    return markdown(["choice", "mean regret", "largest", "where", "trainings for a seed"], rows)


def _cell(cell: str) -> str:
    """A cell in words."""
    data, loss, width, batch = cell.split()
    return f"{data}, {LOSSES[loss]}, {width.replace('=', ' ')}, {batch.replace('=', ' ')}"


def _by(found: Found) -> str:
    rows = []
    for name, prefix in SPLITS.items():
        for value, one in found["by"]["late_grid"][name].items():
            other = found["by"]["late_constant"][name][value]
            words = f"{prefix}{LOSSES.get(value, value)}"
            rows.append([words, str(one["number"]), said(one), said(other)])
    return markdown(["cells", "n", "held late minus the validated grid", f"minus the constant {CONSTANT}"], rows)


def _cells(found: Found) -> str:
    rows = []
    for cell in found["cells"]:
        arms = cell["arms"]
        rows.append([
            _cell(cell["cell"]),
            f"{arms['grid']['rsum']:.1f} ({arms['grid']['start']:g})",
            f"{arms[CONSTANT]['rsum']:.1f}",
            f"{arms['late']['rsum']:.1f} ({arms['late']['temperature']:.3f})",
            f"{arms['once']['rsum']:.1f}",
            f"{arms['early']['rsum']:.1f}",
            f"{arms['late']['effective']:.0f} of {cell['target']:.0f}",
        ])
    head = [
        "cell",
        "grid (temperature)",
        f"constant {CONSTANT}",
        "late (at the end)",
        "once",
        "early",
        "number at the end",
    ]
    return markdown(head, rows)


def _factorial(found: Found) -> str:
    rows = [[words, *(_percent(one["parts"][name]) for one in found["factorial"].values())]
            for name, words in PARTS.items()]  # fmt: skip
    rows += [[f"{words}, both up to {plan.FACTORS[-2]:g}",
              *(f"{100 * one['cooler'][name]:.0f} %" for one in found["factorial"].values())]
             for name, words in PARTS.items()]  # fmt: skip
    return markdown(["part of the variance", *found["factorial"]], rows)


def _crossed(found: Found) -> str:
    rows = []
    for data, one in found["factorial"].items():
        for first, values, many in zip(plan.FACTORS, one["rsum"], one["effective"], strict=True):
            rows.append([data, f"{first:g} ({np.mean(many):.0f})", *(f"{value:.1f}" for value in values)])
    head = ["data", "among negatives (effective number)", *(f"weight {each:g}" for each in plan.FACTORS)]
    return markdown(head, rows)


def _moving_cell(cell: Found) -> str:
    """A cell of the third part in words."""
    return f"{cell['part']}, {SCORES[cell['score']]}, {LOSSES[cell['loss']]}"


def _moving(found: Found) -> str:
    rows = []
    for cell in found["moving"]["cells"].values():
        arms = cell["arms"]
        rows.append([
            _moving_cell(cell),
            f"{arms['grid']['rsum']:.1f} ({arms['grid']['start']:g})",
            *(f"{arms[f'{value:g}']['rsum']:.1f}" for value in scale_findings.CONSTANTS),
            *(f"{arms[kind]['rsum']:.1f}" for kind in HELD),
        ])
    constants = [f"constant {value:g}" for value in scale_findings.CONSTANTS]
    return markdown(["cell", "grid (temperature)", *constants, *HELD], rows)


def _apart(found: Found) -> str:
    rows = [[_moving_cell(cell), *(said(cell["differences"][name]) for name in scale_findings.DIFFERENCES)]
            for cell in found["moving"]["cells"].values()]  # fmt: skip
    words = [" minus ".join(ARMS.get(name, f"constant {name}") for name in pair)
             for pair in scale_findings.DIFFERENCES.values()]  # fmt: skip
    return markdown(["cell", *words], rows)


def _small(value: float) -> str:
    """A score with two decimals, or one digit where that is nothing."""
    return f"{value:.2f}" if value >= SMALL else f"{value:.1g}"


def _scale(found: Found) -> str:
    rows = []
    for cell in found["moving"]["cells"].values():
        arms = cell["arms"]
        ends = {name: _small(arms[name]["spread"]["last"]) for name in (CONSTANT, *HELD)}
        rows.append([
            _moving_cell(cell),
            _small(arms[CONSTANT]["spread"]["first"]),
            ends[CONSTANT],
            *(f"{ends[kind]} ({_small(arms[kind]['temperature'])})" for kind in HELD),
            f"{arms['late']['effective']:.0f} of {cell['target']:.0f}",
        ])
    head = ["cell", "spread at the start", f"in the last tenth, constant {CONSTANT}"]
    head += [f"{kind} (temperature at the end)" for kind in HELD]
    return markdown([*head, "number at the end, late"], rows)


def _moving_regret(found: Found) -> str:
    cells = found["moving"]["cells"]
    rows = [[ARMS.get(name, f"constant {name}"), f"{one['mean']:.1f}", f"{one['worst']:.1f}",
             _moving_cell(cells[one["where"]])] for name, one in found["moving"]["regret"].items()]  # fmt: skip
    return markdown(["choice", "mean regret", "largest", "where"], rows)


FORMATS = {
    "difference": said,
    "p": _p,
    "text": str,
    "whole": lambda value: f"{value:,.0f}",
    "one": lambda value: f"{value:.1f}",
    "signed": lambda value: f"{value:+.1f}",
    "plain": lambda value: f"{value:g}",
    "part": lambda value: f"{100 * value:.0f} %",
    "percent": _percent,
    "two": lambda value: f"{value:.2g}",
    "three": lambda value: f"{value:.3f}",
    "cell": _cell,
    "either": lambda values: " or ".join(f"{value:g}" for value in sorted(set(values))),
}

TABLES = {
    "tests": _tests, "regret": _regret, "by": _by, "cells": _cells, "factorial": _factorial, "crossed": _crossed,
    "moving": _moving, "apart": _apart, "scale": _scale, "moving_regret": _moving_regret,
}  # fmt: skip


def write() -> Path:
    """Write the page."""
    PAGE.write_text(render(TEMPLATE.read_text("utf-8"), numbers(), FORMATS, TABLES), "utf-8")
    return PAGE
