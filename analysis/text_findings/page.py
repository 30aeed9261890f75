"""Fill `docs/findings.md` from `page.md` and `results.json`: nobody types a result into the page."""

import json
from pathlib import Path
from typing import Any

from analysis.study.page import markdown, render
from analysis.text_findings import compute
from analysis.text_findings.compute import RESULTS

__all__ = ["FORMATS", "PAGE", "TABLES", "TEMPLATE", "filled", "numbers", "write"]

Found = dict[str, Any]
TEMPLATE = Path(__file__).with_name("page.md")
# Settings of the clamp that the page shows: batch size and β, the paper's temperature, and a small one.
CLAMPED = f"{compute.CLAMP_BATCHES[-1]},{compute.BETAS[0]:g}"
DEBIASED = f"{compute.CLAMP_BATCHES[-1]},{compute.BETAS[-1]:g}"
PAPER, SMALL = compute.TEMPERATURES[0], compute.PRIOR_TEMPERATURE
PERCENT = f"percent {compute.FILTERS['percent'][0]:g}"
# Settings, and facts of others that the page names: scale of MiniLM's training (its model card), result of a trial.
SETTINGS = {
    "small": SMALL,
    "percent": compute.FILTERS["percent"][0],
    "trained": 20,
    "layers": 6,
    "version": 2,
    "two": 2,
    "zero": 0,
    "trial": 92,
    "eps": compute.EPS,
    "seeds": len(compute.SEEDS),
    "batch": compute.BATCH,
    "clamp_batch": compute.CLAMP_BATCHES[-1],
    "filter_temperature": compute.FILTER_TEMPERATURE,
}
WORDS = {"once": "once in a batch", "ignored": "copies left out", "pushed": "copies pushed"}
PAGE = Path(__file__).parent.parent.parent / "docs" / "findings.md"


def numbers() -> Found:
    """All numbers that the page may say, with the smallest and the largest of the data sets beside them."""
    found = json.loads(RESULTS.read_text("utf-8"))
    found["range"] = {
        name: _ends(found, path)
        for name, path in {
            "clamp_paper": f"clamp/{{}}/by_temperature/{CLAMPED}/{PAPER:g}/clamped",
            "clamp_small": f"clamp/{{}}/by_temperature/{CLAMPED}/{SMALL:g}/clamped",
            "pulled": f"clamp/{{}}/by_temperature/{CLAMPED}/{SMALL:g}/pulled",
            "pulled_paper": f"clamp/{{}}/by_temperature/{CLAMPED}/{PAPER:g}/pulled",
            "same_side": f"sources/{{}}/{compute.SCALES[0]:g}/candidate-candidate/push",
            "filtered_pairs": f"filters/{{}}/filters/{PERCENT}/pairs",
            "filtered_push": f"filters/{{}}/filters/{PERCENT}/push",
        }.items()
    }
    settled = {name: [one["mean"] for one in each.values()] for name, each in found["equilibrium"].items()}
    every = [value for values in settled.values() for value in values]
    found["range"]["settled"] = {"least": min(every), "most": max(every)}
    found["change"] = {name: max(values) / min(values) - 1 for name, values in settled.items()}
    found["settings"] = SETTINGS
    return found


def _ends(found: Found, path: str) -> dict[str, float]:
    """The smallest and the largest mean of the data sets."""
    means = [_at(found, path.format(name))["mean"] for name in found["data"]]
    return {"least": min(means), "most": max(means)}


def _at(found: Found, path: str) -> Any:
    for key in path.split("/"):
        found = found[key]
    return found


def _written(one: Found, digits: int = 1) -> str:
    """A mean with its deviation over seeds."""
    return f"{one['mean']:.{digits}f} ± {one['over_seeds']:.{digits}f}"


def _between(ends: Found) -> str:
    low, high = f"{ends['least']:.1f}", f"{ends['most']:.1f}"
    return low if low == high else f"{low} to {high}"


def _fine(ends: Found) -> str:
    return f"{ends['least']:.3f} to {ends['most']:.3f}"


FORMATS = {
    "between": _between,
    "fine": _fine,
    "fine_percent": lambda ends: f"{ends['least']:.2f} to {ends['most']:.2f}",
    "deviation": _written,
    "deviation2": lambda one: _written(one, 2),
    "third": lambda value: f"{value:.3f}",
    "text": str,
}


def _data(found: Found) -> str:
    rows = [
        [name, one["sides"], f"{one['queries']:,}", f"{one['candidates']:,}", one["licence"], f"`{one['sha256'][:12]}`"]
        for name, one in found["data"].items()
    ]
    return markdown(["data", "query and candidate", "queries", "candidates", "licence of the texts", "sha256"], rows)


def _clamped(one: Found) -> str:
    """A mean with its deviations over seeds and over batches."""
    return f"{_written(one)} ({one['over_batches']:.1f})"


def _clamp(found: Found, setting: str) -> str:
    """Percent of the queries on the clamp, a row for each temperature and a column for each data set."""
    every = {name: one["by_temperature"][setting] for name, one in found["clamp"].items()}
    rows = [
        [temperature, *(_clamped(one[temperature]["clamped"]) for one in every.values())]
        for temperature in next(iter(every.values()))
    ]
    return markdown(["temperature", *every], rows)


def _prior(found: Found) -> str:
    every = {name: one["by_prior"] for name, one in found["clamp"].items()}
    priors = next(iter(every.values()))
    rows = [[prior, *(_written(one[prior]["clamped"]) for one in every.values())] for prior in priors]
    return markdown(["prior", *every], rows)


def _equilibrium(found: Found) -> str:
    every = found["equilibrium"]
    rows = []
    for size in next(iter(every.values())):
        cells = [f"{one[size]['mean']:.4f} ± {one[size]['over_seeds']:.4f} ({1 / one[size]['mean']:.0f})"
                 for one in every.values()]  # fmt: skip
        rows.append([size, *cells])
    return markdown(["batch size", *every], rows)


def _shared(found: Found) -> str:
    """Temperatures and queries on the clamp, a row for each treatment of a shared paragraph."""
    sizes = next(iter(found["shared"].values()))["temperature"]
    rows = [
        [WORDS[name], *(_written(one["temperature"][size], 4) for size in sizes), _written(one["clamped"])]
        for name, one in found["shared"].items()
    ]
    return markdown(["a shared paragraph", *(f"batch size {size}" for size in sizes), "on the clamp, %"], rows)


def _sources(found: Found) -> str:
    every, rows = found["sources"], []
    for scale in next(iter(every.values())):
        for source in next(iter(every.values()))[scale]:
            cells = [_written(one[scale][source]["push"]) for one in every.values()]
            rows.append([scale, source, *cells])
    return markdown(["scale", "source", *every], rows)


def _filters(found: Found) -> str:
    rows = []
    for name, one in found["filters"].items():
        for label, entry in one["filters"].items():
            known = [_written(entry[key]) if key in entry else "not known" for key in ("precision", "recall")]
            rows.append([name, label, _written(entry["pairs"], 2), _written(entry["push"]), *known])
    head = ["data", "filter", "pairs removed, %", "push removed, %", "of one group, %", "found of one group, %"]
    return markdown(head, rows)


TABLES = {
    "data": _data,
    "clamp": lambda found: _clamp(found, CLAMPED),
    "debiased": lambda found: _clamp(found, DEBIASED),
    "prior": _prior,
    "equilibrium": _equilibrium,
    "shared": _shared,
    "sources": _sources,
    "filters": _filters,
}


def filled() -> str:
    """The page as the template and the numbers make it."""
    return render(TEMPLATE.read_text("utf-8"), numbers(), FORMATS, TABLES)


def write() -> Path:
    """Write the page."""
    PAGE.write_text(filled(), "utf-8")
    return PAGE
