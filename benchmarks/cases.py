"""Benchmark cases as data: inputs, rows to be timed, and their bars."""

from dataclasses import dataclass, field

from benchmarks.inputs import Inputs
from cocos.embeddings.sources import GTE_DIRECTIONS

__all__ = ["CASES", "FLOOR", "TIERS", "Bar", "Case", "Reading", "Row", "all_cases", "selected"]

# Selections of cases, each including those before it; `smoke`, `goals` and `cuda` are separate.
TIERS = ("quick", "default", "full")
FLOOR = "bare product"
# Bytes that a pass may take above its inputs: a constant, and an amount per query and loss.
MEMORY = (32 * 2**20, 200)
# Number of queries from which the memory bar applies.
GATED = 8192


@dataclass(frozen=True)
class Reading:
    """One reader: a loss of the shelf, or `ranks`, `precision_recall`, `histogram`.

    Args:
        name: name of the loss.
        parameters: parameters that differ from the defaults.
        eps: smallest share that contributes.
        spread: also compute entropy and participation.
    """

    name: str
    parameters: dict = field(default_factory=dict)
    eps: float = 0.01
    spread: bool = True


@dataclass(frozen=True)
class Bar:
    """A goal: limit on the time or memory of a row, relative to another row of the case.

    Args:
        limit: limit of the ratio.
        against: name of the other row; empty: the limit is in seconds or bytes.
        what: `seconds`, `bytes`, or `speed` (wall time of one thread over that of two; `against` is ignored).
        least: the ratio must be at least the limit instead of at most.
    """

    limit: float
    against: str = FLOOR
    what: str = "seconds"
    least: bool = False


@dataclass(frozen=True)
class Row:
    """One implementation to be timed.

    Args:
        name: label in the table.
        way: `bare`, `pass`, `count` (the public function), `autograd`, `pml`, or one of
            `benchmarks.peers`.
        readings: readers that share a pass; for other ways, the loss.
        bars: goals of the row.
    """

    name: str
    way: str = "pass"
    readings: tuple[Reading, ...] = ()
    bars: tuple[Bar, ...] = ()


@dataclass(frozen=True)
class Case:
    """Rows that are timed in turns, on the same inputs.

    Args:
        name: name on the command line.
        inputs: what to draw.
        rows: the first one is the floor.
        tier: the smallest selection that includes it.
        series: cases of one series give exponents of growth.
        rounds: number of interleaved rounds; 0: only memory is measured.
        device: where it runs.
        kernel: value of COCOS_KERNEL, like `plain`; empty: as in the environment.
    """

    name: str
    inputs: Inputs
    rows: tuple[Row, ...]
    tier: str = "default"
    series: str = ""
    rounds: int = 5
    device: str = "cpu"
    kernel: str = ""


BARE = Row(FLOOR, "bare")
T = {"temperature": 0.05}
TRIPLET, CE, CE_SUMS = Reading("triplet"), Reading("ce_softmax"), Reading("ce_softmax", spread=False)
SUMS, ALL = Reading("ntxent", T, spread=False), Reading("ntxent", T)
NTXENT = "ntxent, all statistics"
WIDTHS = (256, 512, 1024)
# Width at which dense autograd is timed as well.
AUTOGRAD_WIDTH = 512


def _most(limit: float | None) -> tuple[Bar, ...]:
    return () if limit is None else (Bar(limit),)


def _losses(*limits: float | None) -> tuple[Row, ...]:
    """Return the passes that every width has: triplet, NT-Xent twice, Cross-Example twice, three losses at once."""
    return (
        Row("triplet, certified", "pass", (TRIPLET,), _most(limits[0])),
        Row("ntxent, counts and sums", "pass", (SUMS,), _most(limits[1])),
        Row(NTXENT, "pass", (ALL,), _most(limits[2])),
        Row("ce_softmax, counts and sums", "pass", (CE_SUMS,), _most(limits[3])),
        Row("ce_softmax, all statistics", "pass", (CE,)),
        Row("triplet + ntxent + ce_softmax", "pass", (TRIPLET, ALL, CE), _most(limits[4])),
    )


def _hard(name: str, kind: str = "pairs", temperature: float = 0.05, eps: float = 0.01) -> Case:
    """Build a worst case: many noted negatives, or lists that overflow."""
    readings = Reading("triplet", eps=eps), Reading("ntxent", {"temperature": temperature}, eps, spread=False)
    rows = (Row("triplet, certified", "pass", readings[:1], _most(2.4)),)
    rows += (Row("ntxent, counts and sums", "pass", readings[1:], _most(2.4)),)
    return Case(f"hard-{name}", Inputs(8192, 512, kind), (BARE, *rows))


def _sigmoids(width: int) -> Case:
    """Passes of SigLIP: as it begins, and as it is learned."""
    limits = LIMITS[width][1:3]
    rows = (
        Row("siglip, counts and sums", "pass", (SIGLIP_SUMS,), _most(limits[0])),
        Row(SIGMOIDS, "pass", (SIGLIP,), _most(limits[1])),
        Row("siglip, scale 60, bias -12", "pass", (LEARNED,), _most(LEARNED_LIMITS[width])),
    )
    bars = (Bar(3.5, SIGMOIDS, least=True), Bar(50, SIGMOIDS, "bytes", least=True))  # one softmax less to differentiate
    dense = (Row("dense autograd", "autograd", (SIGLIP,), bars),) if width == AUTOGRAD_WIDTH else ()
    return Case(f"siglip-{width}", Inputs(8192, width), (BARE, *rows, *dense))


def _columns(queries: int, hard: int) -> Case:
    """Batches with own hard negatives of every query, and all four directions of GTE, counted by source.

    Bars are between those of `measures.count` for NT-Xent on batches of 2,048 and of 8,192.
    """
    naive, four = "mnrl, autograd + counting", "products of four directions"
    plain = Reading("mnrl"), Reading("mnrl", {"directions": GTE_DIRECTIONS})
    rows = (
        Row("mnrl, by source", "columns", plain[:1], (Bar(1.25), Bar(0.5, naive), Bar(0.1, naive, "bytes"))),
        Row(naive, "naive-columns", plain[:1]),
        Row(four, "bare-directions"),
        Row("mnrl, four directions, by source", "columns", plain[1:], (Bar(1.3, four),)),
    )
    return Case(f"columns-{hard}", Inputs(queries, 512, hard=hard), (BARE, *rows))


def _counted(name: str, inputs: Inputs) -> Case:
    """The public function on a GPU, beside autograd and counting there."""
    rows = [BARE]
    for reading in (Reading("ntxent"), TRIPLET, SIGLIP):
        rows += [Row(f"{reading.name}, measures.count", "count", (reading,))]
        rows += [Row(f"{reading.name}, autograd + counting", "naive", (reading,))]
    return Case(name, inputs, tuple(rows), "cuda", device="cuda")


def _growth(size: int) -> Case:
    rows = [BARE, Row(NTXENT, "pass", (ALL,))]
    rows += [Row("dense autograd", "autograd", (ALL,))] if size <= 8192 else []
    rows += [Row("pytorch-metric-learning SupCon", "pml", (Reading("supcon", T),))] if size <= 4096 else []
    rows += [Row("pytorch-metric-learning NTXent", "pml", (ALL,))] if size <= 512 else []
    tier = "default" if size <= 8192 else "full"
    return Case(f"growth-{size}", Inputs(size, 256), tuple(rows), tier, "growth")


# By width, for triplet, NT-Xent sums, NT-Xent all, Cross-Example, three at once.
LIMITS = {
    256: (1.15, 1.20, 1.30, 1.10, 1.50),
    512: (1.10, 1.10, 1.15, 1.08, 1.30),
    1024: (1.08, 1.08, 1.10, 1.06, 1.18),
}
LEARNED_LIMITS = {256: 1.50, 512: 1.25, 1024: 1.15}
MINING = Reading("ce_nm", {"fraction": 0.5})
OTHERS = (
    *(Reading(name) for name in ("snm", "triplet_sh", "sampled_softmax")),
    Reading("supcon", T),
    *(Reading(name) for name in ("ranks", "precision_recall", "histogram")),
)
SIGLIP, SIGLIP_SUMS = Reading("siglip"), Reading("siglip", spread=False)
SIGMOIDS = "siglip, all statistics"
# As learned: more shares are above eps, and many vectors of sigmoids are not all small, which takes the long formula.
LEARNED = Reading("siglip", {"scale": 60.0, "bias": -12.0})
WARP = Reading("warped_softmax", {"scale": 5.0})

CASES = (
    Case(
        "smoke",
        Inputs(96, 16),
        (BARE, Row(NTXENT, "pass", (ALL,), _most(1e6)), Row("dense autograd", "autograd", (ALL,))),
        "smoke",
    ),
    *(
        Case(f"wide-{d}", Inputs(8192, d), (BARE, *_losses(*LIMITS[d])), "quick" if d == min(WIDTHS) else "default")
        for d in WIDTHS
    ),
    Case(
        "readers-512",
        Inputs(8192, 512),
        (
            BARE,
            Row("ce_nm, half of the batch", "pass", (MINING,), _most(1.6)),
            *(Row(each.name, "pass", (each,)) for each in OTHERS),
            Row("all of these, and the three", "pass", (MINING, *OTHERS, TRIPLET, ALL, CE)),
        ),
    ),
    Case(
        "autograd-512",
        Inputs(8192, 512),
        (
            BARE,
            Row(NTXENT, "pass", (ALL,)),
            Row(
                "dense autograd",
                "autograd",
                (ALL,),
                (Bar(5, NTXENT, least=True), Bar(80, NTXENT, "bytes", least=True)),
            ),
        ),
    ),
    *(_sigmoids(d) for d in WIDTHS),
    _columns(4096, 1),
    _columns(2048, 7),
    *(
        Case(f"proxies-{d}", Inputs(8192, d, "proxies"), (BARE, Row("warped_softmax", "pass", (WARP,), _most(limit))))
        for d, limit in zip(WIDTHS, (1.30, 1.20, 1.12), strict=True)
    ),
    _hard("survivors", "classes"),
    _hard("ascending", "ascending"),
    _hard("collapsed", "collapsed"),
    _hard("eps", eps=1e-4),
    _hard("collapsed-eps", "collapsed", eps=1e-4),
    _hard("temperature", temperature=0.01),
    Case(
        "memory-32768",
        Inputs(32768, 512),
        (Row(NTXENT, "pass", (ALL,)), Row("triplet + ntxent + ce_softmax", "pass", (TRIPLET, ALL, CE))),
        rounds=0,
    ),
    Case(
        "memory-65536",
        Inputs(65536, 512),
        (Row(NTXENT, "pass", (ALL,)), Row("triplet + ntxent + ce_softmax", "pass", (TRIPLET, ALL, CE))),
        "full",
        rounds=0,
    ),
    Case(
        "memory-million",
        Inputs(10_000, 512, others=990_000),
        (Row(NTXENT, "pass", (ALL,)), Row("triplet + ntxent + ce_softmax", "pass", (TRIPLET, ALL, CE))),
        "full",
        rounds=0,
    ),
    *(_growth(2**power) for power in range(7, 17)),
    _counted("cuda-128", Inputs(128, 512, batches=200)),
    _counted("cuda-8192", Inputs(8192, 512)),
    Case("cuda", Inputs(131072, 512), (BARE, *_losses(1.35, 1.35, 1.35, 1.35, None)), "cuda", device="cuda", rounds=3),
)


def all_cases() -> tuple[Case, ...]:
    """Return all cases, including the goals of small batches, threads, evaluation, start-up and memory maps."""
    from benchmarks.goals import GOALS

    return CASES + GOALS


def selected(tier: str, names: list[str], *, cuda: bool) -> list[Case]:
    """Return the cases of a tier, or the named ones.

    Raises:
        ValueError: an unknown name.
    """
    cases = all_cases()
    if unknown := sorted(set(names) - {case.name for case in cases}):
        raise ValueError(f"case {unknown[0]!r}: expected one of {', '.join(case.name for case in cases)}")
    if names:
        return [case for case in cases if case.name in names]
    tiers = {*TIERS[: TIERS.index(tier) + 1], *(["cuda"] if cuda else [])} if tier in TIERS else {tier}
    return [case for case in cases if case.tier in tiers]
