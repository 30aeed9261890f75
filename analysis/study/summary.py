"""Print the numbers of the study, section by section, from `findings.json`."""

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["SECTIONS", "lines"]

Found = dict[str, Any]
DATA = ("captions", "emoji")


def _difference(found: Found, digits: int = 1) -> str:
    """A paired difference with its interval."""
    return f"{found['mean']:+.{digits}f} [{found['low']:+.{digits}f}, {found['high']:+.{digits}f}]"


def _mean(found: Found) -> str:
    """A mean over seeds with its interval."""
    return f"{found['mean']:.2f} [{found['low']:.2f}, {found['high']:.2f}]"


def _rho(found: Found) -> str:
    """A rank correlation with its interval, or that there is none."""
    if found["undefined"]:
        return "undefined"
    between = "" if found["low"] is None else f" [{found['low']:+.2f}, {found['high']:+.2f}]"
    return f"{found['rho']:+.2f}{between}"


def _optimum(found: Found) -> str:
    """An effective number with its interval."""
    number, inside = found["number"], "" if found["fit"]["inside"] else ", outside of the numbers measured"
    if number["optimum"] is None:
        return "no optimum: the curve does not bend down"
    interval = f"[{number['optimum_low']:.1f}, {number['optimum_high']:.1f}]"
    return f"{number['optimum']:.1f} {interval} of {found['candidates']}{inside}"


def _each(found: Found, say: Callable[[Any], str], name: str = "{}: ") -> str:
    """Entries of a dictionary in a row."""
    return "; ".join(name.format(key.replace("_", " ")) + say(each) for key, each in found.items())


def _tests(found: Found) -> Iterator[str]:
    tests = found["tests"]
    for data, own in ((data, found[data]) for data in DATA):
        one, two, three = own["p1"], own["p2"]["fit"], own["p3"]
        holm = {name: f", Holm {tests['holm'][name]:.2g}" if data == DATA[0] else "" for name in ("p1", "p2", "p3")}
        p = {name: f"p = {each['p']:.2g}{holm[name]}" for name, each in (("p1", one), ("p2", two), ("p3", three))}
        yield f"{data}: P1 rank correlation of count and rsum within losses {_rho(one)}, {p['p1']}, n = {one['number']}"
        curve = f"{two['curvature']:+.2f} [{two['low']:+.2f}, {two['high']:+.2f}]"
        yield f"{data}: P2 curvature in log N {curve}, {p['p2']}, n = {two['number']}; optimum N {_optimum(own['p2'])}"
        yield f"{data}: P3 hard minus random {_difference(three)}, {p['p3']}, n = {three['number']} seeds"
    said = tests["predicted"]
    for name, key in (("best effective number held", "best_held"), ("optimum of the emoji", "emoji")):
        where = "inside" if said[f"{key}_inside"] else "outside"
        yield f"{name} {said[key]:.3g}: {where} of the interval of the captions"


def _levels(found: Found) -> Iterator[str]:
    for data in DATA:
        for name, levels in found[data]["levels"].items():
            yield f"{data}: {name} with rsum (pooled points support no conclusion): {_each(levels, _rho, '{} ')}"


def _interventions(found: Found) -> Iterator[str]:
    for data in DATA:
        for loss, own in found[data]["interventions"].items():
            for name in ("hard_minus_random", "hard_minus_all", "random_minus_all"):
                yield f"{data}: {loss}, {name.replace('_', ' ')}: {_each(own[name], _difference, 'k = {} ')}"
        held = found[data]["held"]
        yield f"{data}: effective number held, rsum: {_each(held['mean'], '{:.1f}'.format)}"
        yield f"{data}: effective number reached at the end: {_each(held['reached'], '{:.1f}'.format)}"
        cost = _difference(held["cost"]) if held["cost"] else "none"
        yield f"{data}: best held on validation {held['best']}, nearest to the optimum {held['nearest']}: {cost}"


def _rates(found: Found) -> Iterator[str]:
    for data in DATA:
        gap = found[data]["gap"]
        yield f"{data}: triplet_sh minus triplet, margin 0.2: {_each(gap['by_rate'], _difference, 'rate {}: ')}"
        yield f"{data}: that gap at the lower rate minus at the higher: {_difference(gap['change'])}"
        best = gap["best_against_best"]
        margins = _each(best["values"], "margin {:g}".format, "{} at ")
        yield f"{data}: {margins}: {_difference(best['difference'])}, n = {best['difference']['number']}"


def _predictions(found: Found) -> Iterator[str]:
    for data in DATA:
        for when, own in found[data]["predictions"].items():
            yield f"{data}, {when} (step {own['step']}): {_each(own['baselines'], _rho, '{} ')}"
            for name, each in own["counts"].items():
                given = _each({base: more["partial"] for base, more in each["beyond"].items()}, _rho, "given {} ")
                both = f"all settings {_rho(each['alone'])}; within losses {_rho(each['within'])}"
                yield f"{data}, {when}: {name}: {both}; {given}"


def _look_alikes(found: Found) -> Iterator[str]:
    for data in DATA:
        for name, own in found[data]["masking"].items():
            parts = [_mean(own[each]) for each in ("look_alike_negatives", "look_alike_push", "random_push")]
            shares = "look-alikes {} % of the negatives, {} % of the push; as many random ones {} % on average".format(
                *parts
            )
            yield f"{data}: {name}: {shares}"
            for score in ("rsum", "rsum_concept"):
                if score in own:
                    yield f"{data}: {name}: {score}: {_each(own[score], _difference, '{} ')}"


SECTIONS = {
    "tests": _tests,
    "levels": _levels,
    "interventions": _interventions,
    "rates": _rates,
    "predictions": _predictions,
    "look-alikes": _look_alikes,
}


def lines(found: Found, section: str) -> list[str]:
    """The lines of a section of `SECTIONS`, from the values of `findings.json`."""
    return list(SECTIONS[section](found))
