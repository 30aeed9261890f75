"""What a device computes beside what the host does: every loss of the shelf, the measures, and a monitored step."""

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr

import cocos
from cocos import Embeddings, Scores, losses, measures

__all__ = ["Check", "checks", "differences", "lines", "speed"]

# Names that begin so are counts, or metrics of ranks; `idle_pull` is a ratio of shares.
COUNTED = ("contributing", "idle", "uncertain", "relative", "eq7", "negatives", "R@", "rank", "mAP", "PR-AUC")
# Tolerances of sums of shares: two devices add float32 numbers in different orders.
RELATIVE, ABSOLUTE = 1e-3, 1e-5
# Largest difference of a closed form and autograd in float64, as a part of the largest weight.
GAP = 1e-9
# Rows, width and rows of a group of the sets that are compared, and the sizes of the batches; the last one is the set.
ROWS, WIDTH, GROUP, SIZES = 240, 48, 4, (64, 240)
# Rows and width of the set on which both are timed: the whole set is one batch.
LARGE, LARGE_WIDTH = 20_000, 384
# Measures that are compared with their default loss, and their options.
MEASURES = {
    "evaluate": {},
    "audit": {"batch_size": 64},
    "contributors": {"row": 3, "batch_size": 64},
    "decomposition": {"batch_size": 64},
    "eps_curve": {"batch_size": 64},
    "lorenz": {"batch_size": 64},
    "precision_recall": {},
    "replay": {"batch_size": 64},
    "score_distribution": {},
    "temperature": {"batch_sizes": (32, 128)},
    "temperature_curve": {"batch_size": 64},
    "thresholds": {},
}


@dataclass(frozen=True)
class Check:
    """One comparison.

    Args:
        what: the loss or measure, and its input.
        differs: names of the variables that differ; empty if all are the same.
        refused: the sentence of both sides, where neither computes it.
    """

    what: str
    differs: tuple[str, ...] = ()
    refused: str = ""


def differences(one: xr.Dataset, other: xr.Dataset) -> tuple[str, ...]:
    """Names of variables that differ: counts by a bit, sums of shares by more than float32 explains."""
    found = set(one.data_vars) ^ set(other.data_vars)
    for name in set(one.data_vars) & set(other.data_vars):
        kind = one[name].dtype.kind
        if kind in "iub" or (str(name).startswith(COUNTED) and name != "idle_pull"):
            alike = np.array_equal(one[name], other[name], equal_nan=kind == "f")
        else:
            above = str(name).replace("weight_below", "weight_above")  # the rest of the sum has the error of the whole
            least = ABSOLUTE + (RELATIVE * np.nan_to_num(np.abs(one[above].values)) if above != name else 0)
            alike = kind != "f" or np.allclose(one[name], other[name], RELATIVE, least, equal_nan=True)
        if not alike:
            found.add(name)
    return tuple(sorted(map(str, found)))


def _sets() -> dict[str, Embeddings | Scores]:
    """Sets of every kind: pairs, rows with labels, classes with their vectors, scores with a graded teacher."""
    generator = torch.Generator().manual_seed(5)
    label = torch.arange(ROWS) // GROUP
    centre = torch.randn(ROWS // GROUP, WIDTH, generator=generator)
    rows, others = (centre[label] + 0.8 * torch.randn(ROWS, WIDTH, generator=generator) for _ in range(2))
    scores = torch.randn(40, 16, generator=generator)
    negatives = torch.arange(ROWS).roll(9)[:, None]
    return {
        "pairs": Embeddings(rows, others),
        "pairs with hard negatives": Embeddings(rows, others, negatives=negatives, directions=("q2c",)),
        "labels": Embeddings.labelled(rows, label),
        "class vectors": Embeddings(rows, centre, label, torch.arange(len(centre)), directions=("s2p",)),
        "scores": Scores(scores, torch.arange(16).expand(40, 16) < 2),
    }


def _compared(what: str, call: Callable[[object], xr.Dataset], source, device: str) -> Check:
    """Run a measure on the host and on the device."""
    found = []
    for each in (source, source.to(device)):
        try:
            found.append(call(each))
        except ValueError as error:
            found.append(str(error))
    if isinstance(found[0], str) or isinstance(found[1], str):
        return Check(what, () if found[0] == found[1] else ("refusal",), str(found[0]))
    return Check(what, differences(*found))


def _counts(name: str, kind: str, source: Embeddings | Scores, device: str) -> Iterator[Check]:
    """Counts of a loss on a set: on drawn batches and on the whole set, or on the rows of scores."""
    loss = losses.load(name)
    for size in SIZES if isinstance(source, Embeddings) else (None,):
        options = {} if size is None else {"batch_size": size}
        what = f"{name}: {kind}" + (f", batches of {size}" if size else "")
        yield _compared(what, lambda each, o=options: measures.count(each, loss, **o), source, device)


def _gaps(device: str) -> Iterator[Check]:
    """Closed form beside autograd on the device, for every loss that takes a plain batch, in float64."""
    generator = torch.Generator().manual_seed(6)
    group = torch.arange(24) // 3
    scores = torch.rand(24, 24, generator=generator, dtype=torch.float64).to(device)
    positive = (group[:, None] == group).to(device)
    for name in losses.names():
        loss = losses.load(name)
        more = {"query_norm": scores[0] + 1, "candidate_norm": scores[1] + 1, "teacher": scores.roll(1, 0)}
        try:
            pairs = cocos.Pairs(-scores if "euclidean" in loss.metric else scores, positive, ~positive, **more)
            weight = cocos.weights.analytic(loss, pairs)
        except (TypeError, ValueError) as error:
            yield Check(f"{name}: closed form and autograd", refused=str(error))
            continue
        gap = float(cocos.weights.gap(loss, pairs) / weight.abs().max().clamp(min=1e-300))
        wrong = weight.device.type != torch.device(device).type or (loss.gradient == "exact" and gap > GAP)
        yield Check(f"{name}: closed form and autograd", (f"gap {gap:.1e}",) if wrong else ())


def _monitored(device: str) -> Check:
    """One step of two towers with a monitor, on the host and on the device."""
    generator, records = torch.Generator().manual_seed(7), []
    rows = torch.randn(256, WIDTH, generator=generator)
    tower = torch.nn.Linear(WIDTH, 32)
    with torch.no_grad():
        tower.weight.copy_(torch.randn(32, WIDTH, generator=generator))
    for place in ("cpu", device):
        here, loss = copy.deepcopy(tower).to(place), Symmetric()
        with cocos.Monitor(loss) as monitor:
            for noise in (0.5, 1.0):
                loss(here(rows.to(place)), here((rows + noise).to(place))).backward()
        records.append(monitor.dataset().drop_vars("overhead"))  # a time
    return Check("monitor: two steps of a symmetric softmax", differences(*records))


class Symmetric(torch.nn.Module):
    """Cross-entropy of both directions at a scale of 20."""

    def forward(self, query: torch.Tensor, candidate: torch.Tensor) -> torch.Tensor:
        """Loss of rows that match one to one, ()."""
        unit = torch.nn.functional.normalize
        scores = 20 * unit(query) @ unit(candidate).T
        target = torch.arange(len(scores), device=scores.device)
        entropy = torch.nn.functional.cross_entropy
        return (entropy(scores, target) + entropy(scores.T, target)) / 2


def checks(device: str) -> Iterator[Check]:
    """Compare a device with the host: counts of every loss, measures, closed forms, a monitor.

    Args:
        device: name of the device, like `cuda`.
    """
    sources = _sets()
    for name in losses.names():
        found = [check for kind in sources for check in _counts(name, kind, sources[kind], device)]
        yield from [each for each in found if not each.refused or each.differs] or found[:1]
    for name, options in MEASURES.items():
        yield _compared(name, lambda each, n=name, o=options: getattr(measures, n)(each, **o), sources["pairs"], device)
    yield from _gaps(device)
    yield _monitored(device)


def lines(found: list[Check]) -> Iterator[str]:
    """Say how many comparisons agree, and name the others."""
    wrong = [each for each in found if each.differs]
    refused = [each for each in found if each.refused and not each.differs]
    yield f"{len(found) - len(wrong) - len(refused)} of {len(found) - len(refused)} comparisons with the host agree"
    yield from (f"DIFFERS {each.what}: {', '.join(each.differs)} {each.refused}".rstrip() for each in wrong)
    yield from (f"not compared, {each.what}: {each.refused}" for each in refused)


def speed(device: str) -> Iterator[str]:
    """Time `measures.count` of NT-Xent on one large batch, on the device and on the host, and compare the counts."""
    generator = torch.Generator().manual_seed(8)
    rows, noise = (torch.randn(LARGE, LARGE_WIDTH, generator=generator) for _ in range(2))
    embeddings, took, found = Embeddings(rows, rows + 2 * noise), {}, []
    for place in (device, "cpu"):
        there, took[place] = embeddings.to(place), []
        measures.count(there, "ntxent", batch_size=256, batches=2)  # the first call sets up the libraries
        for _ in range(3):
            begun = time.perf_counter()
            found.append(measures.count(there, "ntxent", batch_size=LARGE))
            took[place].append(time.perf_counter() - begun)
    same = "equal counts" if not differences(found[0], found[-1]) else "COUNTS DIFFER"
    for place, seconds in took.items():
        yield f"count of {LARGE:,} x {LARGE:,}, d = {LARGE_WIDTH}, {place}: {min(seconds):.2f} to {max(seconds):.2f} s"
    yield f"{torch.get_num_threads()} threads of the host; {same}"
