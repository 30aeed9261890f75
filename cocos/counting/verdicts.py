"""Verdict of a count as data: its kind, its numbers, and the command that looks further.

A count of one frozen model says how its gradient is shared out, not how well it trains, so each kind states a fact of
the gradient. docs/concepts.md explains the limits.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from cocos.counting.findings import KINDS

# Part of the queries above which "most" of them have no contributing negative.
IDLE_QUERIES = 0.5
# Part of the pull above which queries without a contributing negative hold most of the gradient.
MOST_PULL = 0.5
# Part of the negatives: an effective number above it is the whole batch. The threshold of the detector `whole_batch`.
WHOLE_BATCH = 0.9
# Negatives per query below which an effective number near all of them means little. Also of that detector.
FEW_NEGATIVES = 8
# Effective number below which the push stands on one negative or two: two equal ones are 2.
ONE_OR_TWO = 2.0
# Part of the negatives: about half of the smallest that an optimum of docs/study.md has in its interval, 46 of 511.
SMALL_PART = 0.05
# Kind -> severity, the gravest kind first.
SEVERITY = {
    kind: KINDS[kind].severity
    for kind in ("collapsed", "mispaired", "alike", "silent", "flat", "thin", "starved", "sharp", "wasteful", "fine")
}
# What the number of a kind is compared with: a part of the negatives, of the queries, or an effective number.
LIMITS = {
    "flat": WHOLE_BATCH,
    "thin": IDLE_QUERIES,
    "starved": IDLE_QUERIES,
    "sharp": ONE_OR_TWO,
    "wasteful": SMALL_PART,
}
# Losses that are functions of scale * score, whose temperature has an equilibrium (`cocos whatif --settles`).
TEMPERED = ("ntxent", "supcon", "mnrl", "siglip")
# Kinds that another temperature, margin, batch size or mining rule would change.
SETTINGS = ("silent", "flat", "thin", "starved", "wasteful")
VERDICT_NUMBERS = ("negatives", "contributing_all", "idle_fraction", "idle_pull", "relative", "effective")


@dataclass(frozen=True)
class Verdict:
    """One direction of a count in a word.

    Args:
        kind: of `SEVERITY`.
        numbers: the means that it is made from, None where a loss does not have one.
        command: that looks further.
        options: of that command.
    """

    kind: str
    numbers: Mapping[str, float | None]
    command: str
    options: Mapping[str, str | bool] = field(default_factory=dict)

    @property
    def severity(self) -> str:
        """How much there is to do: `ok`, `look` or `stop`."""
        return SEVERITY[self.kind]

    def document(self) -> dict:
        """As plain data."""
        return {"kind": self.kind, "severity": self.severity} | asdict(self)


def of(
    entry: Mapping, *, collapsed: bool = False, at_chance: bool = False, alike: bool = False, loss: str = ""
) -> Verdict:
    """The verdict on one direction.

    Args:
        entry: of the JSON document of `cocos count`: statistic -> {"mean": ...}.
        collapsed: whether a side of the embeddings is one point.
        at_chance: whether positives score no higher than negatives.
        alike: whether the candidates all point almost in one direction.
        loss: name of the loss.

    Examples:
        >>> entry = {"negatives": 127, "contributing_all": 0.7, "idle_fraction": 0.7, "idle_pull": 0.1, "effective": 17}
        >>> cocos.counting.verdicts.of({name: {"mean": value} for name, value in entry.items()}).kind
        'starved'
        >>> cocos.counting.verdicts.of({"negatives": {"mean": 127}, "effective": {"mean": 17.6}}).kind
        'fine'
    """
    numbers = {name: (entry.get(name) or {}).get("mean") for name in VERDICT_NUMBERS}
    kind = "collapsed" if collapsed else "mispaired" if at_chance else "alike" if alike else _kind(**numbers)
    if kind in {"collapsed", "alike"}:
        return Verdict(kind, numbers, "evaluate")
    if kind == "mispaired":
        return Verdict(kind, numbers, "plot contributors", {"row": "0"})
    if kind in {"starved", "thin", "flat"} and loss in TEMPERED:
        return Verdict(kind, numbers, "whatif", {"settles": True})
    if kind in SETTINGS:
        return Verdict(kind, numbers, "whatif", {"by": "effective" if kind in {"flat", "wasteful"} else "idle"})
    return Verdict(kind, numbers, "audit")


def _kind(
    *,
    negatives: float | None,
    contributing_all: float | None,
    idle_fraction: float | None,
    idle_pull: float | None,
    relative: float | None,
    effective: float | None,
) -> str:
    """Kind of a direction that has not collapsed; later kinds are those that earlier ones leave."""
    if not effective:
        return "silent"
    part = effective / negatives if negatives else 0.0
    if part > WHOLE_BATCH and (negatives or 0) >= FEW_NEGATIVES:
        return "flat"
    if idle_fraction is not None and idle_fraction > IDLE_QUERIES:
        return "thin" if (idle_pull or 0) > MOST_PULL else "starved"
    if effective < ONE_OR_TWO:
        return "sharp"
    return "wasteful" if 0 < part < SMALL_PART else "fine"
