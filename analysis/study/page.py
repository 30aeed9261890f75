"""Fill `docs/study.md` from `page.md` and the numbers of the study: nobody types a result into the page.

In the template, `{{ captions/p3 | difference }}` is a number of `findings.json` by its path, in the words of a function
of `FORMATS`; `{{ table levels }}` a table of `TABLES`; and `{{ holds captions/p3/low > 0 }}` leaves nothing behind, but
refuses a page whose sentence the numbers no longer carry.
"""

import itertools
import json
import math
import operator
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from analysis.study import facts, findings, plan, statements
from analysis.study.statements import said
from cocos.base.errors import InputError

__all__ = ["PAGE", "TEMPLATE", "markdown", "numbers", "render", "write"]

Found = dict[str, Any]
Formats = dict[str, Callable[[Any], str]]
Tables = dict[str, Callable[[Found], str]]
TEMPLATE = Path(__file__).with_name("page.md")
PAGE = facts.ROOT / "docs" / "study.md"
FIELD = re.compile(r"\{\{ (.*?) \}\}")
DATA = ("captions", "emoji")
SMALL = 0.01  # p-values from here on have two digits
WIDTH = 138  # characters of a line of the page
LEVELS = {
    "within_run": "within a run, over checkpoints",
    "seeds": "between seeds of a setting",
    "settings": "between settings of a loss",
    "families": "between losses",
    "pooled": "pooled, which mixes the others",
}
NAMES = {"ntxent": "NT-Xent", "triplet": "triplet", "triplet_sh": "triplet SH", "smoothap": "SmoothAP",
         "ce_softmax": "cross-example softmax"}  # fmt: skip
COMPARED = {"<": operator.lt, ">": operator.gt, "==": operator.eq, "!=": operator.ne}


def numbers() -> Found:
    """All numbers that the page may say: `findings.json`, `facts`, and those of the second edition."""
    return json.loads(findings.FILE.read_text("utf-8")) | {"facts": facts.gathered()} | facts.kept()


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
        return statements.UNDECIDED
    return f"{number['optimum']:.0f} [{number['optimum_low']:.0f}, {number['optimum_high']:.0f}]"


def _curvature(fit: Found) -> str:
    return f"{fit['curvature']:+.2f} [{fit['low']:+.2f}, {fit['high']:+.2f}]"


def _p(value: float) -> str:
    return f"{value:.1g}" if value < 0.001 else f"{value:.3f}"


def _amount(one: Found, digits: int = 1) -> str:
    """The size of a difference with its interval, without its sign."""
    low, high = sorted((abs(one["low"]), abs(one["high"])))
    return f"{abs(one['mean']):.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _doubled(one: Found) -> Found:
    """A slope per doubling of the number, from one per unit of its natural logarithm."""
    return {key: math.log(2) * one[key] for key in ("mean", "low", "high")}


def _whole(one: Found) -> str:
    return f"{one['mean']:.0f} [{one['low']:.0f}, {one['high']:.0f}]"


def _ordered(one: Found) -> str:
    """The p-value against smooth curves."""
    return f"{one['ordered']['p']:.2f}" if one["ordered"]["p"] >= SMALL else _p(one["ordered"]["p"])


FORMATS: Formats = {
    "difference": said,
    "correlation": lambda one: said(one, 2),
    "optimum": _optimum,
    "curvature": _curvature,
    "meeting": _whole,
    "amount": _amount,
    "loss": _amount,
    "steep": lambda one: f"{_doubled(one)['mean']:.1f}",
    "fall": lambda one: f"{-_doubled(one)['mean']:.1f}",
    "doubling": lambda one: said(_doubled(one)),
    "signed": lambda value: f"{value:+.2f}",
    "two": lambda value: f"{value:.2f}",
    "percent_of": lambda value: f"{100 * value:.0f}",
    "percent_fine": lambda value: f"{100 * value:.1f}",
    "beyond": lambda one: said({"mean": one["difference"], "low": one["low"], "high": one["high"]}, 2),
    "p": _p,
    "text": lambda value: (
        ", ".join(f"{NAMES[k]} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
    ),
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
    again = [found["again"][data] for data in DATA]
    smooth = " and ".join(_ordered(each["correlations"]["all"]) for each in again)
    robust = " and ".join(_p(each["arch"]["hc3"]["p"]) for each in again)
    ruled = [[f"{each['correlations']['numbers'][f'ruler {ruler}']['rho']:+.2f}" for each in again]
             for ruler in plan.RULERS]  # fmt: skip
    counted = ", ".join(f"{NAMES[ruler]} {' and '.join(both)}" for ruler, both in zip(plan.RULERS, ruled, strict=True))
    equal = [said(each["equal"]["ntxent"]["contributing"][str(plan.KEPT[-1])]) for each in again]
    rows = [
        ["P1: Spearman's ρ of count and test rsum, between settings of a loss", said(one["p1"], 2), _p(holm["p1"]),
         f"{said(other['p1'], 2)}, p = {_p(other['p1']['p'])}",
         f"against smooth curves p = {smooth}; ρ of the count by {counted}"],
        ["P2: curvature of test rsum in the natural log of N, points", _curvature(one["p2"]["fit"]), _p(holm["p2"]),
         f"{_curvature(other['p2']['fit'])}, p = {_p(other['p2']['fit']['p'])}", f"robust errors (HC3) p = {robust}"],
        ["P3: hard minus random candidates at equal k, points", said(one["p3"]), _p(holm["p3"]),
         f"{said(other['p3'])}, p = {_p(other['p3']['p'])}",
         f"as many contributing, NT-Xent: {equal[0]} and {equal[1]}"],
    ]  # fmt: skip
    return markdown(["test", "captions", "p, Holm", "emoji (replication)", "beside it: captions and emoji"], rows)


def _by_the_table(found: Found) -> str:
    rows = [
        [NAMES[loss], f"{one['value']:g}", f"{one['rate']:g}", f"{one['study']:.1f}",
         f"{one['mean']:.1f} ± {one['deviation']:.1f}"]
        for loss, one in found["facts"]["by_the_table"]["losses"].items()
    ]  # fmt: skip
    return markdown(["loss", "value", "learning rate", "rsum of the study", "rsum of the other loop"], rows)


def _arch(found: Found) -> str:
    """Every look at the arch, a row each."""
    both = [(found[data], found["again"][data]) for data in DATA]
    number = found["again"]["apex"]
    looks: list[tuple[str, Callable[[Found, Found], str]]] = [
        ("curvature, registered", lambda one, _: f"{_curvature(one['p2']['fit'])}, p = {_p(one['p2']['fit']['p'])}"),
        ("curvature, robust errors (HC3)", lambda _, new: _tested(new["arch"]["hc3"])),
        (f"slope up to {number}, per doubling", lambda _, new: _slope(new["arch"]["two_lines"]["below"])),
        (f"slope beyond {number}, per doubling", lambda _, new: _slope(new["arch"]["two_lines"]["above"])),
        ("where the two lines fit best", lambda _, new: _whole(new["arch"]["meeting"])),
        ("slope beyond it, per doubling", lambda _, new: _slope(new["arch"]["meeting"]["above"])),
        ("one parabola for all losses against one cubic", lambda _, new: f"p = {_p(new['arch']['cubic'])}"),
        ("one parabola against a slope for each loss", lambda _, new: f"p = {_p(new['arch']['slopes'])}"),
        ("curvature by learning rate", lambda _, new: "; ".join(
            f"{rate}: {_curvature(fit)}" for rate, fit in new["arch"]["by_rate"].items())),
        ("top of each loss by itself", lambda _, new: ", ".join(
            f"{NAMES[loss]} {f'{at:.0f}' if at else 'none'}" for loss, at in new["arch"]["vertices"].items())),
        ("number at the best setting of each loss, on test items", lambda _, new: ", ".join(
            f"{NAMES[loss]} {at:.1f}" for loss, at in new["arch"]["best"].items())),
        ("the same on validation items, geometric mean", lambda _, new: _whole(new["arch"]["validated"])),
        ("best number that was held", lambda one, _: str(one["held"]["best"])),
        ("farthest setting from the common parabola, points", lambda _, new: f"{new['arch']['farthest']:.0f}"),
    ]  # fmt: skip
    return markdown(["curvatures in points per squared unit of the natural log of N", *DATA],
                    [[name, *(look(*each) for each in both)] for name, look in looks])  # fmt: skip


def _slope(one: Found) -> str:
    """A slope per doubling, with the p-value that no unit changes."""
    return _tested(_doubled(one) | {"p": one["p"]})


def _tested(one: Found) -> str:
    """A coefficient with its interval and p-value."""
    return f"{one['mean']:+.1f} [{one['low']:+.1f}, {one['high']:+.1f}], p = {_p(one['p'])}"


def _sides(found: Found) -> str:
    rows = []
    for at in found["again"][DATA[0]]["correlations"]["sides"]:
        for side, sign in (("below", "at most"), ("above", "more than")):
            cells = []
            for data in DATA:
                both = found["again"][data]["correlations"]["sides"][at][side]
                cells += [f"{said(both[name], 2)}, n = {both[name]['number']}" for name in ("count", "effective")]
            rows.append([f"{sign} {at}", *cells])
    head = [f"{data}: {word}" for data in DATA for word in ("count", "effective number")]
    return markdown(["effective number", *head], rows)


def _robust(found: Found) -> str:
    """The registered correlation by what is left out and what is correlated."""
    every = [found["again"][data]["correlations"] for data in DATA]
    looks: list[tuple[str, Callable[[Found], Found]]] = [
        ("all settings, as registered", lambda one: one["all"]),
        *((f"without {words}", lambda one, name=name: one["without"][name]) for name, words in (
            ("smoothap", NAMES["smoothap"]), ("triplet_sh", NAMES["triplet_sh"]),
            ("both", f"{NAMES['smoothap']} and {NAMES['triplet_sh']}"))),
        ("smaller half of each grid", lambda one: one["ends"]["lowest"]),
        ("larger half of each grid", lambda one: one["ends"]["highest"]),
        ("negatives above 1 % of the own push, in place of the count", lambda one: one["numbers"]["relative"]),
        ("effective number, in place of the count", lambda one: one["numbers"]["effective"]),
        *((f"count by {NAMES[ruler]} for all losses", lambda one, ruler=ruler: one["numbers"][f"ruler {ruler}"])
          for ruler in plan.RULERS),
    ]  # fmt: skip
    rows = []
    for name, look in looks:
        cells = [f"{said(one, 2)}, n = {one['number']}; p {_p(one['p'])}, {_ordered(one)}" for one in map(look, every)]
        rows.append([name, *cells])
    return markdown(["what is correlated", *DATA], rows)


def _pushing(found: Found) -> str:
    """Contributing negatives and idle queries of both arms by k."""
    columns = [(data, loss) for data in DATA for loss in found["again"][data]["pushing"]]
    rows = []
    for k in found["again"][DATA[0]]["pushing"]["ntxent"]["hard"]:
        cells = []
        for data, loss in columns:
            arms = [found["again"][data]["pushing"][loss][arm].get(k) for arm in ("hard", "random")]
            both = [f"{one['contributing']:.2f} ({one['idle']:.0f} %)" if one else "the same" for one in arms]
            cells.append("; ".join(both))
        rows.append([k, *cells])
    head = [f"{data}, {NAMES[loss]}: hard; random" for data, loss in columns]
    return markdown(["k", *head], rows)


def _equal(found: Found) -> str:
    """Hard minus random at equal candidates, contributing negatives and effective numbers."""
    most, fewer, rows = str(plan.KEPT[-1]), str(plan.KEPT[-2]), []
    for data in DATA:
        for loss in found["again"][data]["equal"]:
            own = found["again"][data]["equal"][loss]
            cells = [said(found[data]["interventions"][loss]["hard_minus_random"][most])]
            for name, k in (("contributing", most), ("effective", most), ("effective", fewer)):
                cells.append(f"{said(own[name][k])} at {own[name][k]['at']:.2f}")
            rows.append([f"{data}, {NAMES[loss]}", *cells])
    head = [f"as many candidates, k = {most}", f"as many contributing (random k = {most})",
            f"equal effective number (random k = {most})", f"equal effective number (random k = {fewer})"]  # fmt: skip
    return markdown(["hard minus random, points", *head], rows)


def _temperature(found: Found) -> str:
    names = {"ntxent": NAMES["ntxent"], "ce_softmax": NAMES["ce_softmax"], "both": "both losses"}
    own = found["again"][DATA[0]]["temperature"]
    rows = []
    for loss, words in names.items():
        one = own[loss]
        cells = [f"{one['r2'][name]:.2f}" + (f" (ΔAIC {one['aic'][name]:+.0f})" if name != "temperature" else "")
                 for name in ("temperature", "number", "part")]  # fmt: skip
        rows.append([f"{words}, n = {one['settings']}", *cells])
    return markdown(["loss", "log temperature", "log number", "log of the number's part of all negatives"], rows)


def _best_temperature(found: Found) -> str:
    own, rows = found["again"][DATA[0]]["temperature"], []
    for loss in ("ntxent", "ce_softmax"):
        for size, one in own[loss]["best"].items():
            rows.append([NAMES[loss], size, f"{one['temperature']:.3g}", f"{one['number']:.1f}"])
    return markdown(["loss", "batch size", "best temperature", "effective number there"], rows)


def _levels(found: Found) -> str:
    rows = []
    for level, words in LEVELS.items():
        cells = [found[data]["levels"][name][level] for data in DATA for name in ("contributing", "effective")]
        if level == "settings":  # the registered test has more resamples than the other levels
            cells[0], cells[2] = (found[data]["p1"] for data in DATA)
        few = level == "families"  # of which the intervals are too narrow
        rows.append([words, *(said(one, 2) + (f", p = {one['p']:.2g}" if few else "") for one in cells)])
    head = [f"{data}: {word}" for data in DATA for word in ("count", "effective number")]
    return markdown(["what varies", *head], rows)


def _ruled_levels(found: Found) -> str:
    """What the table of levels says, with the count by each ruler in place of the own one: a row for each ruler."""
    rows = []
    for data, ruler in itertools.product(DATA, plan.RULERS):
        again = found["again"][data]
        # of settings the correlation with more resamples, which is in the table of the appendix too
        own = again["ruled"][ruler] | {"settings": again["correlations"]["numbers"][f"ruler {ruler}"]}
        few = {"families": f", p = {own['families']['p']:.2g}"}  # of which the intervals are too narrow
        rows.append([f"{data}: by {NAMES[ruler]}", *(said(own[level], 2) + few.get(level, "") for level in LEVELS)])
    return markdown(["count", *LEVELS.values()], rows)


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
    return markdown(["batch size", "ρ of the count", "curvature", "top of the parabola"], rows)


def _best(found: Found) -> str:
    """The best setting of each loss at the batch size of the tests, with its counts by every ruler."""
    made = []
    for data in DATA:
        for loss, name in NAMES.items():
            one = found[data]["best"][str(findings.BATCH_SIZE)][loss]
            rate = found["again"][data]["rates"]["best"][loss]
            counts = [f"{one[key]:.1f}" for key in ("rsum", "contributing", "effective")]
            ruled = [f"{rate['rulers'][ruler]:.1f}" for ruler in plan.RULERS]
            made.append([data, name, f"{one['value']:g}", f"{rate['rate']:g}{'*' * rate['edge']}", *counts, *ruled])
    head = ["data", "loss", "value", "learning rate", "rsum", "count", "effective number"]
    return markdown([*head, *(f"by {NAMES[ruler]}" for ruler in plan.RULERS)], made)


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
    "details": lambda found: markdown(["what", "how"], [list(row) for row in found["facts"]["details"]]),
    "by_the_table": _by_the_table,
    "arch": _arch,
    "sides": _sides,
    "robust": _robust,
    "pushing": _pushing,
    "equal": _equal,
    "temperature": _temperature,
    "best_temperature": _best_temperature,
    "tests": _tests,
    "levels": _levels,
    "ruled_levels": _ruled_levels,
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
