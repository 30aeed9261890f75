"""Goals as cases: small batches, threads, evaluation, start-up and memory maps."""

from benchmarks.cases import FLOOR, Bar, Case, Reading, Row
from benchmarks.inputs import Inputs

__all__ = ["GOALS"]

WIDTH = 512
NTXENT, TRIPLET = Reading("ntxent"), Reading("triplet")
SIGLIP = Reading("siglip")
VIOLATED = Reading("triplet", {"margin": 0.6})
BARE = Row(FLOOR, "bare")


def _batches(size: int, number: int, limit: float) -> Case:
    """Batches of pairs, counted for NT-Xent, triplet and SigLIP by the public function and by peers."""
    rows = [BARE]
    for reading in (NTXENT, TRIPLET, SIGLIP):
        naive = f"{reading.name}, autograd + counting"
        bars = (Bar(limit), Bar(0.5, naive))
        rows += [Row(f"{reading.name}, measures.count", "count", (reading,), bars), Row(naive, "naive", (reading,))]
        rows += (
            [Row(f"{reading.name}, PML's gradient", "pml", (reading,))] if reading is not SIGLIP and size <= 128 else []
        )
    return Case(f"goals-{size}", Inputs(size, WIDTH, batches=number), tuple(rows), "goals")


def _curves(size: int, number: int, *limits: float) -> Case:
    """Curves on batches of pairs: 61 values of eps, Lorenz, and 33 temperatures."""
    asked = (("eps_curve", NTXENT), ("eps_curve", VIOLATED), ("lorenz", NTXENT), ("temperature_curve", NTXENT))
    rows = [
        Row(f"{r.name}, measures.{way}", way, (r,), (Bar(limit),))
        for (way, r), limit in zip(asked, limits, strict=True)
    ]
    return Case(f"goals-curves-{size}", Inputs(size, WIDTH, batches=number), (BARE, *rows), "goals", rounds=3)


def _libraries(size: int, number: int, limit: float) -> Case:
    """Losses of pytorch-metric-learning beside those of the shelf that equal them, on batches of pairs."""
    rows = [BARE]
    for reading in (NTXENT, Reading("supcon")):
        own = f"{reading.name}, measures.count"
        rows += [
            Row(own, "count", (reading,)),
            Row(f"{reading.name}, of PML", "library", (reading,), (Bar(limit, own),)),
        ]
    return Case(f"goals-libraries-{size}", Inputs(size, WIDTH, batches=number), tuple(rows), "goals")


def _plain(size: int, number: int, limit: float) -> Case:
    """Batches of pairs, counted without a compiled kernel."""
    rows = [Row(f"{r.name}, measures.count", "count", (r,), (Bar(limit),)) for r in (NTXENT, TRIPLET)]
    inputs = Inputs(size, WIDTH, batches=number)
    return Case(f"goals-plain-{size}", inputs, (BARE, *rows), "goals", rounds=3, kernel="plain")


def _large(name: str, kind: str, limit: float, *readings: Reading) -> Case:
    several = readings or (NTXENT, TRIPLET, SIGLIP)
    rows = [Row(f"{r.name}, measures.count", "count", (r,), (Bar(limit),)) for r in several]
    return Case(f"goals-{name}", Inputs(8192, WIDTH, kind), (BARE, *rows), "goals")


FUSED = ("ntxent", "triplet", "siglip", "ce_softmax", "supcon", "ranks")
OTHERS = ("precision_recall", "histogram")


def _threads() -> tuple[Case, ...]:
    """Speed-up of two threads over one: passes of the kernel, of other readers, and many small batches."""
    whole, small = Inputs(8192, WIDTH), Inputs(128, WIDTH, batches=200)
    rows = [Row(name, "pass", (Reading(name),), (Bar(1.6, what="speed", least=True),)) for name in FUSED]
    rows += [Row(name, "pass", (Reading(name),), (Bar(1.3, what="speed", least=True),)) for name in OTHERS]
    pairs = Row("ntxent, measures.count", "count", (NTXENT,), (Bar(1.0, what="speed", least=True),))
    return (
        Case("goals-threads", whole, (BARE, *rows), "goals", rounds=0),
        Case("goals-threads-128", small, (BARE, pairs), "goals", rounds=0),
    )


def _evaluate(name: str, kind: str, queries: int, captions: int) -> Case:
    """Retrieval of images and captions: all metrics, and the part of them that peers compute."""
    peers = {"argsort": "ranks by numpy's argsort", "faiss": "faiss, nearest 10", "calculator": "PML's calculator"}
    bars = (Bar(2.0), Bar(1e8, "", "bytes"), *(Bar(1.0, name) for name in peers.values()))
    rows = (BARE, Row("measures.evaluate", "evaluate", (), bars), *(Row(name, way) for way, name in peers.items()))
    return Case(f"goals-{name}", Inputs(queries, WIDTH, kind, per_query=captions), rows, "goals", rounds=3)


GOALS = (
    _batches(128, 200, 2.0),
    _batches(512, 32, 1.6),
    _batches(1024, 16, 1.4),
    _batches(2048, 8, 1.3),
    _large("8192", "pairs", 1.10),
    _large("clusters", "clusters", 1.20),
    _large("ce", "pairs", 1.25, Reading("ce_softmax")),
    _large("copies", "copies", 1.25, Reading("ntxent", {"temperature": 0.05})),
    _libraries(128, 200, 1.2),
    _libraries(8192, 1, 1.2),
    _plain(128, 200, 6.0),
    _plain(8192, 1, 1.5),
    _curves(128, 100, 14.0, 14.0, 22.0, 45.0),
    _curves(512, 16, 8.0, 9.0, 12.0, 20.0),
    *_threads(),
    _evaluate("evaluate", "faint", 5000, 5),
    _evaluate("evaluate-deep", "deep", 2000, 4),
    Case(
        "goals-startup",
        Inputs(2000, WIDTH),
        (
            Row(FLOOR, "command"),
            Row("import torch", "command"),
            Row("cocos count FILE --json", "command", (), (Bar(2.5, ""),)),
        ),
        "goals",
    ),
    Case(
        "goals-map",
        Inputs(256, WIDTH, others=500_000 - 256),
        (
            Row(FLOOR, "map-product"),
            Row("open a map of 1 GB", "map-open", (), (Bar(0.4, ""), Bar(1.15e9, "", "bytes"))),
            Row("ntxent, 256 queries", "map-pass", (NTXENT,), (Bar(1.15),)),
        ),
        "goals",
    ),
)
