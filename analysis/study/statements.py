"""Statements of the three papers beside what the runs say of each: supported, contradicted, or undecided."""

from collections.abc import Sequence
from typing import Any

from analysis.study.plan import KEPT

__all__ = ["UNDECIDED", "Row", "rows", "said", "verdict"]

Found = dict[str, Any]
Row = tuple[str, str, str, str]  # paper, statement, finding, verdict
DATA = ("captions", "emoji")
SLIDES, CROSS, WARP = "Bleeker & de Rijke 2022", "Veit & Wilber 2020", "DeMoor & Prevost 2024"
EXTENDED = f"our extension of {SLIDES}"  # what the slides do not say, and their hypothesis suggests
MATCHED = str(KEPT[-1])  # random candidates, of which as many contribute as of some hard ones
LEVEL = 0.05  # of the permutation test of a correlation
UNDECIDED = "undecided"
WORDS = {1: "supported", -1: "contradicted", 0: UNDECIDED}


def said(one: Found, digits: int = 1) -> str:
    """A difference, or a correlation, with its interval."""
    value = one.get("mean", one.get("rho"))
    if value is None:
        return "undefined"
    between = "" if one["low"] is None else f" [{one['low']:+.{digits}f}, {one['high']:+.{digits}f}]"
    return f"{value:+.{digits}f}{between}"


def _side(one: Found, sign: int) -> int:
    """Whether an interval is on the side of a statement (1), on the other (-1), or contains 0."""
    if one.get("low") is None or ("rho" in one and one["p"] >= LEVEL):  # few units have intervals that are too narrow
        return 0
    return sign if one["low"] > 0 else -sign if one["high"] < 0 else 0


def verdict(found: dict[str, Found], sign: int = 1) -> str:
    """Words for the intervals of several data sets, of a statement that says they are above 0, or below (sign -1)."""
    sides = {name: WORDS[_side(one, sign)] for name, one in found.items()}
    if len(set(sides.values())) == 1:
        return next(iter(sides.values()))
    return "; ".join(f"{name}: {word}" for name, word in sides.items())


def _listed(found: dict[str, Found], digits: int = 1) -> str:
    return "; ".join(f"{name} {said(one, digits)}" for name, one in found.items())


def _seeds(found: dict[str, Found]) -> str:
    """Number of pairs of each data set."""
    numbers = [f"{one['number']}" for one in found.values()]
    return f"n = {numbers[0] if len(set(numbers)) == 1 else ' and '.join(numbers)} seeds"


def _against(found: Found, pair: str, statement: str) -> list[Row]:
    """Two losses: with the parameters of the papers, and each at its best setting."""
    made = []
    for kind, words in (("published", "parameters of the papers"), ("best", "each at its best setting")):
        both = {data: found["facts"]["against"][data][pair][kind] for data in DATA}
        both = {data: one["difference"] if kind == "best" else one for data, one in both.items()}
        made.append((SLIDES, f"{statement} ({words})", f"rsum {_listed(both)}, {_seeds(both)}", verdict(both)))
    return made


def _slides(found: Found) -> list[Row]:
    """The hypothesis of the slides, part by part."""
    names = {"triplet": "triplet", "ntxent": "NT-Xent", "smoothap": "SmoothAP"}
    made = []
    for rival, name in names.items():
        made += _against(found, f"triplet_sh {rival}", f"Triplet SH retrieves better than {name}")
    towers = found["again"]["towers"]
    made.append((SLIDES, "Triplet SH retrieves better than triplet (convolution towers, trained end to end)",
                 f"R@1 at most {towers['most']:.1f} % at {towers['rates']} learning rates, triplet "
                 f"{towers['plain']:.1f} %",
                 WORDS[-1]))  # fmt: skip
    p1 = {data: found[data]["p1"] for data in DATA}
    number = " and ".join(f"{found[data]['p1']['number']}" for data in DATA)
    once = said(found["facts"]["distinct"]["captions"]["p1"], 2)
    between = f"P1: ρ {_listed(p1, 2)}, n = {number} settings; captions without repeated ones {once}"
    # Settings on a grid are no independent points: the test against smooth curves decides.
    kept = {data: p1[data] | {"p": found["again"][data]["correlations"]["all"]["ordered"]["p"]} for data in DATA}
    smooth = " and ".join(f"{one['p']:.2f}" for one in kept.values())
    made.append((EXTENDED, "More contributing negatives go with lower scores, between settings of a loss",
                 f"{between}; against smooth curves p = {smooth}", verdict(kept, -1)))  # fmt: skip
    whole = {data: found[data]["levels"]["contributing"]["families"] for data in DATA}
    number = whole[DATA[0]]["number"]
    made.append((
        SLIDES,
        "Losses with lower scores take more negatives into account",
        f"ρ {_listed(whole, 2)}, n = {number} losses",
        verdict(whole, -1),
    ))
    which = {data: found[data]["p3"] for data in DATA}
    made.append((EXTENDED, "Hard negatives are more informative than random ones: as many of either are kept",
                 f"P3: hard minus random {_listed(which)}, {_seeds(which)}", verdict(which)))  # fmt: skip
    for loss in ("ntxent", "triplet"):
        one = {data: found["again"][data]["equal"][loss]["contributing"][MATCHED] for data in DATA}
        made.append((EXTENDED, f"The same where as many contribute ({names[loss]})",
                     f"rsum {_listed(one)}, {_seeds(one)}", verdict(one)))  # fmt: skip
    for loss, source in (("triplet", SLIDES), ("ntxent", EXTENDED)):
        one = {data: found[data]["interventions"][loss]["hard_minus_all"]["1"] for data in DATA}
        made.append((source, f"The hardest negative alone is better than all ({names[loss]})",
                     f"rsum {_listed(one)}, {_seeds(one)}", verdict(one)))  # fmt: skip
    return made


def _cross(found: Found) -> list[Row]:
    """Cross-example softmax: calibration, and retrieval."""
    own, made = found["facts"]["cross_example"], []
    for key, statement in (
        ("pr_auc", "One threshold serves all queries better: PR-AUC"),
        ("t2i", "It also retrieves better: R@1 of captions"),
        ("i2t", "It also retrieves better: R@1 of images"),
    ):
        one = {"points": own[key]}
        told = f"{said(own[key])} points, n = {own[key]['number']} seeds (figure cross_example)"
        made.append((CROSS, f"{statement}, cross-example minus sampled softmax", told, verdict(one)))
    best = {data: found["facts"]["against"][data]["ce_softmax ntxent"]["best"]["difference"] for data in DATA}
    made.append((CROSS, "The same against NT-Xent in this study, each at its best setting",
                 f"rsum {_listed(best)}, {_seeds(best)}", verdict(best)))  # fmt: skip
    return made


def _count(rows: Sequence[Found], sign: int) -> int:
    return sum(_side(one, sign) == 1 for one in rows)


def _warp(found: Found) -> list[Row]:
    """The warp: where embeddings rest, and its worth in recall."""
    own, made = found["facts"]["warp"], []
    near = own["rests"]
    close = all(abs(one["at"] / one["alpha"] - 1) < own["near"] for one in near)
    told = ", ".join(f"{one['at']:.1f} (α = {one['alpha']:g})" for one in near)
    made.append((WARP, "Under the warp embeddings rest at distance α from their proxy",
                 f"mean distance {told} (figure dtp_functions)", WORDS[1] if close else WORDS[-1]))  # fmt: skip
    tuned = {each["arms"][0]: each["difference"] for each in own["accuracy"]}
    told = "; ".join(f"{name} minus {own['accuracy'][0]['arms'][1]} {said(one)}" for name, one in tuned.items())
    told = f"R@1 {told} points, {_seeds(tuned)}, chosen by a search and by an earlier one"
    words = verdict(dict(zip(("search", "earlier search"), tuned.values(), strict=True)))
    made.append((WARP, "The warp retrieves better than plain softmax over distances, t", told, words))
    first, best, last = (f"{alpha:g}" for alpha in own["alphas"])
    sides = [_side(own["rise"], 1), _side(own["drop"], -1)]
    told = f"R@1 from α = {first} to the best, {best}, {said(own['rise'])}, then to {last} {said(own['drop'])} points"
    word = WORDS[min(sides)] if min(sides) == max(sides) else f"rise: {WORDS[sides[0]]}; drop: {WORDS[sides[1]]}"
    made.append((
        WARP,
        "R@1 rises with α, begins to stabilize, then drops off",
        f"{told} (figure hyperparameters)",
        word,
    ))
    slopes = own["slopes"]
    told = ", ".join(
        f"{name} = {one['value']:g} less {name} = 1 {said(one['difference'])}" for name, one in slopes.items()
    )
    made.append((WARP, "R@1 is higher when neither k1 nor k2 is 1", f"{told} points (figure hyperparameters)",
                 verdict({name: one["difference"] for name, one in slopes.items()})))  # fmt: skip
    rows = own["corrupted"]
    above, below = _count(rows, 1), _count(rows, -1)
    told = f"warp minus t above zero under {above}, below under {below} of {len(rows)} corruptions"
    word = WORDS[1] if above == len(rows) else WORDS[0] if above == below == 0 else "not supported in general"
    made.append((WARP, "The warp retrieves better on corrupted images", f"{told} (figure noise_robustness)", word))
    return made


def rows(found: Found) -> list[Row]:
    """All statements, with the finding and the verdict filled from the numbers."""
    return [*_slides(found), *_cross(found), *_warp(found)]
