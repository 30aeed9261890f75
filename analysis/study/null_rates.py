"""How often each test of a rank correlation between settings rejects curves that know nothing of the count.

The counts are those of the captions at the batch size of the tests, five losses with eight values each. In place of
recall there is a curve for each loss that is drawn without regard to the counts: independent points, Gaussian processes
of several length scales, or parabolas whose top lies anywhere on the grid. A test that keeps its level rejects 5 %.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from analysis.study import findings
from analysis.study.runner import RESULTS
from cocos import results
from cocos.base import writing
from cocos.results import correlation

__all__ = ["FILE", "LENGTHS", "curves", "measured", "write"]

FILE = RESULTS / "null_rates.json"
SIMULATIONS, CURVES, LEVEL = 1000, 999, 0.05
LENGTHS = (1.0, 2.0, 3.0)  # length scales of the smooth curves, in steps of the grid
ROUNDING = 1e-6  # on the diagonal of a covariance, so that it has a root
TESTS = ("within", "ordered")


def curves(kind: str, sizes: list[int], rng: np.random.Generator) -> np.ndarray:
    """A curve for each loss, one after the other: `points`, `arches`, or a length scale in steps of the grid.

    Args:
        kind: what is drawn.
        sizes: number of settings of each loss.
        rng: source of randomness.
    """

    def one(size: int) -> np.ndarray:
        place = np.arange(size, dtype=np.float64)
        if kind == "points":
            return rng.normal(size=size)
        if kind == "arches":
            return -((place - rng.uniform(0, size - 1)) ** 2)
        away = np.subtract.outer(place, place) / float(kind)
        return np.linalg.cholesky(np.exp(-(away**2) / 2) + ROUNDING * np.eye(size)) @ rng.normal(size=size)

    return np.concatenate([one(size) for size in sizes])


def _counts() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Loss, value of the parameter and count of each setting of the captions, in the order of both."""
    runs = findings.chosen(results.open(RESULTS / "captions_grid.nc"), findings.BATCH_SIZE)
    about = zip(*(runs[name].values.tolist() for name in ("config", "family", "value")), strict=True)
    settings = list(dict.fromkeys(about))
    count = runs["contributing"].isel(step=findings.LAST).values
    mean = [count[runs["config"].values == config].mean() for config, *_ in settings]
    family, value = (np.array(each) for each in list(zip(*settings, strict=True))[1:])
    order = np.lexsort((value, family))
    return family[order], value[order], np.array(mean)[order]


def measured(simulations: int = SIMULATIONS, drawn: int = CURVES) -> dict:
    """Fraction of simulations that each test rejects, by kind of curve.

    Args:
        simulations: of each kind.
        drawn: permutations, or curves, of each test.
    """
    family, value, count = _counts()
    sizes = [int((family == name).sum()) for name in np.unique(family)]

    def rejected(kind: str) -> Iterator[tuple[bool, bool]]:
        for seed in range(simulations):
            y = curves(kind, sizes, np.random.default_rng([ord(kind[0]), seed]))
            plain = correlation.within(count, y, family, permutations=drawn, resamples=100, seed=seed)
            kept = correlation.ordered(count, y, value, family, permutations=drawn, seed=seed)
            yield plain.p <= LEVEL, kept.p <= LEVEL

    kinds = ("points", *(f"{each:g}" for each in LENGTHS), "arches")
    rates = {kind: dict(zip(TESTS, np.mean(list(rejected(kind)), axis=0).tolist(), strict=True)) for kind in kinds}
    about = {"simulations": simulations, "drawn": drawn, "level": LEVEL, "losses": len(sizes), "settings": sum(sizes)}
    return about | {"rates": rates}


def write(path: Path = FILE) -> Path:
    """Simulate, and write the rates."""
    writing.write(path, (json.dumps(measured(), indent=1) + "\n").encode(), "rates")
    return path


if __name__ == "__main__":
    print(write())
