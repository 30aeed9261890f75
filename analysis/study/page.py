"""Fill `docs/study.md` from `page.md` and the numbers of the study: nobody types a result into the page.

In the template, `{{ captions/p3 | difference }}` is a number of `findings.json` by its path, in the words of a function
of `FORMATS`; `{{ table levels }}` a table of `TABLES`; and `{{ holds captions/p3/low > 0 }}` leaves nothing behind, but
refuses a page whose sentence the numbers no longer carry.
"""

import json
import operator
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from analysis.study import facts, findings, statements
from analysis.study.statements import said, verdict
from cocos.base.errors import InputError

__all__ = ["PAGE", "TEMPLATE", "markdown", "numbers", "render", "write"]

Found = dict[str, Any]
Formats = dict[str, Callable[[Any], str]]
Tables = dict[str, Callable[[Found], str]]
TEMPLATE = Path(__file__).with_name("page.md")
PAGE = facts.ROOT / "docs" / "study.md"
FIELD = re.compile(r"\{\{ (.*?) \}\}")
DATA = ("captions", "emoji")
WIDTH = 138  # characters of a line of the page
LEVELS = {
    "within_run": "within a run, over checkpoints",
    "seeds": "between seeds of a setting",
    "settings": "between settings of a loss",
    "families": "between losses",
    "pooled": "pooled: no finding",
}
NAMES = {"ntxent": "NT-Xent", "triplet": "triplet", "triplet_sh": "triplet SH", "smoothap": "SmoothAP",
         "ce_softmax": "cross-example softmax"}  # fmt: skip
COMPARED = {"<": operator.lt, ">": operator.gt, "==": operator.eq, "!=": operator.ne}


def numbers() -> Found:
    """All numbers that the page may say: `findings.json`, and `facts` beside it."""
    return json.loads(findings.FILE.read_text("utf-8")) | {"facts": facts.gathered()}


def _at(found: Found, path: str) -> Any:
    """A number by its path.

    Raises:
        InputError: there is none.
    """
    here: Any = found
    for key in path.split("/"):
        if not isinstance(here, dict) or key not in here:
            raise InputError(f"page.md: there is no number {path!r}")
        here = here[key]
    return here


def _optimum(p2: Found) -> str:
    """An effective number with its interval; none is claimed where the curve is not known to bend down inside."""
    fit, number = p2["fit"], p2["number"]
    if fit["high"] is None or fit["high"] >= 0 or not fit["inside"]:
        return "not resolvable"
    return f"{number['optimum']:.0f} [{number['optimum_low']:.0f}, {number['optimum_high']:.0f}]"


def _curvature(fit: Found) -> str:
    return f"{fit['curvature']:+.2f} [{fit['low']:+.2f}, {fit['high']:+.2f}]"


def _open(one: Found) -> str:
    """Words for an interval that carries no claim."""
    return ", not resolvable" if verdict({"": one}) == "not resolvable" else ""


def _p(value: float) -> str:
    return f"{value:.1g}" if value < 0.001 else f"{value:.3f}"


FORMATS: Formats = {
    "difference": said,
    "correlation": lambda one: said(one, 2),
    "optimum": _optimum,
    "curvature": _curvature,
    "judged": lambda one: f"{said(one)}{_open(one)}",
    "judged_correlation": lambda one: f"{said(one, 2)}{_open(one)}",
    "beyond": lambda one: said({"mean": one["difference"], "low": one["low"], "high": one["high"]}, 2),
    "p": _p,
    "text": str,
    "whole": lambda value: f"{value:,.0f}",
    "one": lambda value: f"{value:.1f}",
    "percent": lambda one: f"{one['mean']:.2g} %",
}


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _runs(found: Found) -> str:
    rows = [
        [name.replace("_", ", "), f"{one['runs']:,}", str(one["seeds"]), one["rates"], str(one["steps"]),
         f"{one['hours']:.2f}"]
        for name, one in found["facts"]["parts"].items()
    ]  # fmt: skip
    return markdown(["part", "runs", "seeds", "learning rates", "steps", "processor hours"], rows)


def _tests(found: Found) -> str:
    one, other, holm = *(found[data] for data in DATA), found["tests"]["holm"]
    rows = [
        ["P1: Spearman's ρ of count and test rsum, between settings of a loss", said(one["p1"], 2), _p(holm["p1"]),
         f"{said(other['p1'], 2)}, p = {_p(other['p1']['p'])}"],
        ["P2: curvature of test rsum in log N, points", _curvature(one["p2"]["fit"]), _p(holm["p2"]),
         f"{_curvature(other['p2']['fit'])}, p = {_p(other['p2']['fit']['p'])}"],
        ["P3: hard minus random negatives at equal k, points", said(one["p3"]), _p(holm["p3"]),
         f"{said(other['p3'])}, p = {_p(other['p3']['p'])}"],
    ]  # fmt: skip
    return markdown(["test", "captions", "p, Holm", "emoji (replication)"], rows)


def _levels(found: Found) -> str:
    rows = []
    for level, words in LEVELS.items():
        cells = [found[data]["levels"][name][level] for data in DATA for name in ("contributing", "effective")]
        few = level == "families"  # of which the intervals are too narrow
        rows.append([words, *(said(one, 2) + (f", p = {one['p']:.2g}" if few else "") for one in cells)])
    head = [f"{data}: {word}" for data in DATA for word in ("count", "effective number")]
    return markdown(["what varies", *head], rows)


def _by_k(found: Found, kind: str) -> str:
    """Differences of the interventions by k, a column for each loss and data set."""
    columns = [(data, loss) for data in DATA for loss in found[data]["interventions"]]
    ks = list(found[DATA[0]]["interventions"]["ntxent"][kind])
    rows = [[k, *(said(found[data]["interventions"][loss][kind][k]) for data, loss in columns)] for k in ks]
    return markdown(["k", *(f"{data}, {NAMES[loss]}" for data, loss in columns)], rows)


def _sizes(found: Found) -> str:
    by_size = found[DATA[0]]["by_batch_size"]
    rows = []
    for size, one in by_size.items():
        best = f"{_optimum(one['p2'])} of {one['p2']['candidates']}"
        rows.append([size, said(one["p1"], 2), _curvature(one["p2"]["fit"]), best])
    return markdown(["batch size", "P1: ρ of the count", "P2: curvature", "optimal effective number"], rows)


def _best(found: Found) -> str:
    """The best setting of each loss at the batch size of the tests."""
    made = []
    for loss, name in NAMES.items():
        cells = []
        for data in DATA:
            one = found[data]["best"][str(findings.BATCH_SIZE)][loss]
            cells += [
                f"{one['value']:g}",
                f"{one['rsum']:.1f}",
                f"{one['contributing']:.1f}",
                f"{one['effective']:.1f}",
            ]
        made.append([name, *cells])
    head = [f"{data}: {word}" for data in DATA for word in ("value", "rsum", "count", "effective")]
    return markdown(["loss", *head], made)


def _masking(found: Found) -> str:
    rows = []
    for data in DATA:
        for setting, one in found[data]["masking"].items():
            loss, value = setting.split()
            push = f"{one['look_alike_push']['mean']:.1f}", f"{one['random_push']['mean']:.2f}"
            effects = [said(one[score]["look_alikes_minus_random"]) if score in one else ""
                       for score in ("rsum", "rsum_concept")]  # fmt: skip
            rows.append([data, f"{NAMES[loss]} {value}", *push, *effects])
    head = ["push on look-alikes, %", "on as many random ones on average, %", "masking: rsum", "rsum, concept level"]
    return markdown(["data", "loss", *head], rows)


def _statements(found: Found) -> str:
    return markdown(["paper", "statement", "here", "verdict"], [list(row) for row in statements.rows(found)])


TABLES: Tables = {
    "runs": _runs,
    "tests": _tests,
    "levels": _levels,
    "hard_minus_random": lambda found: _by_k(found, "hard_minus_random"),
    "hard_minus_all": lambda found: _by_k(found, "hard_minus_all"),
    "batch_sizes": _sizes,
    "best": _best,
    "masking": _masking,
    "statements": _statements,
}


def _holds(found: Found, text: str) -> str:
    """Nothing, if a comparison holds.

    Raises:
        InputError: it does not: the sentence beside it must be rewritten.
    """
    path, sign, other = text.rsplit(" ", 2)
    right = float(other) if re.fullmatch(r"-?[\d.]+", other) else _at(found, other)
    left = _at(found, path)
    if not COMPARED[sign](left, right):
        raise InputError(f"page.md: a sentence says {text!r}, and it is {left!r} and {right!r}; rewrite the sentence")
    return ""


def _filled(found: Found, field: str, formats: Formats, tables: Tables) -> str:
    """The text of one field."""
    if field.startswith("table "):
        name = field.removeprefix("table ")
        if name not in tables:
            raise InputError(f"page.md: there is no table {name!r}, expected one of {', '.join(tables)}")
        return tables[name](found)
    if field.startswith("holds "):
        return _holds(found, field.removeprefix("holds "))
    if field.startswith("claim "):
        return _claim(field.removeprefix("claim "))
    path, _, form = field.partition(" | ")
    if form not in formats:
        raise InputError(f"page.md: {field!r} has no format of {', '.join(formats)}")
    return formats[form](_at(found, path))


def _claim(name: str) -> str:
    """The claim of a figure of the study."""
    from cocos.reports import captions

    return captions.write(*facts.figure(name)).claim


def _wrapped(text: str) -> str:
    """The same Markdown with paragraphs and items of lists in lines of at most `WIDTH` characters."""
    made: list[str] = []
    waiting: list[str] = []
    fenced = False
    for line in [*text.split("\n"), ""]:
        as_it_is = fenced or not line or line.startswith(("```", "#", "!", "|"))
        fenced ^= line.startswith("```")
        if waiting and (as_it_is or line.startswith("- ")):
            words, indent = " ".join(" ".join(waiting).split()), "  " if waiting[0].startswith("- ") else ""
            made += textwrap.wrap(words, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
            waiting = []
        if as_it_is:
            made.append(line)
        else:
            waiting.append(line)
    return "\n".join(made[:-1])


def render(template: str, found: Found, formats: Formats | None = None, tables: Tables | None = None) -> str:
    """The page with every field filled.

    Args:
        template: Markdown with fields in double braces.
        found: as from `numbers`.
        formats: words of a number, by the name of the format; None: `FORMATS`.
        tables: Markdown of a table, by its name; None: `TABLES`.

    Raises:
        InputError: a field without its number, or a sentence that the numbers do not carry.
    """
    formats, tables = formats or FORMATS, tables or TABLES
    return _wrapped(FIELD.sub(lambda field: _filled(found, field[1], formats, tables), template))


def write() -> Path:
    """Write the page."""
    PAGE.write_text(render(TEMPLATE.read_text("utf-8"), numbers()), "utf-8")
    return PAGE
