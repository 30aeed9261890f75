"""The trainings of the study, as fixed in `preregistration.md`: each is one `Trial`."""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

__all__ = ["PARTS", "PUBLISHED", "RULERS", "Trial", "trials"]

# Parameters of the papers (Bleeker & de Rijke 2022, section 3; Veit & Wilber 2020, section 4).
PUBLISHED = {
    "ntxent": {"temperature": 0.1},
    "triplet": {"margin": 0.2},
    "triplet_sh": {"margin": 0.2},
    "smoothap": {"temperature": 0.01},
    "ce_softmax": {"scale": 20.0},
}
RULERS = ("ntxent", "triplet", "triplet_sh", "smoothap")  # the losses of the slides count every model
PARAMETER = {name: next(iter(given)) for name, given in PUBLISHED.items()}
VALUES = {  # eight values of each loss for the captions; the emoji take the six in the middle
    "ntxent": (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.4, 1.0),
    "triplet": (0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0),
    "triplet_sh": (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.4),
    "smoothap": (0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.4),
    "ce_softmax": (2.5, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 50.0),
}
RATES = {"captions": (0.002, 0.006, 0.02), "emoji": (0.002, 0.004, 0.016)}  # around the best of trials with seed 99
BATCH_SIZES = (32, 128, 512)
KEPT = (1, 2, 4, 8, 16, 64)  # negatives of 127 that an intervention keeps
EVERY = 127
HELD = (2, 4, 8, 16, 32, 64, 100)  # effective numbers that are held
TREATED = {"ntxent": 0.05, "triplet": 0.2}  # losses whose negatives are chosen by rule, with their parameter
MASKED = {  # losses whose look-alikes are masked: a sharp parameter, and a soft one
    "ntxent": (0.05, 0.2),
    "triplet_sh": (0.1, 0.6),
    "smoothap": (0.01, 0.1),
    "ce_softmax": (20.0, 7.5),
}


@dataclass(frozen=True)
class Trial:
    """One training.

    Args:
        data: `captions` or `emoji`.
        loss: name of the loss.
        value: of the parameter that sets its sharpness, a temperature, margin or scale.
        rate: largest learning rate.
        batch_size: pairs in a step.
        seed: of the weights and of the batches, which are the same for all losses.
        arm: `hard` or `random`: only k negatives of a query are kept; `held`: the temperature is solved so that their
            effective number is k; empty: none of these.
        k: number of negatives.
        mask: `look_alikes` or `random`: they, or as many random negatives, are no candidates; `none`: nothing is masked
            and both are measured; empty: none of these.
    """

    data: str
    loss: str
    value: float
    rate: float
    batch_size: int = 128
    seed: int = 0
    arm: str = ""
    k: int = 0
    mask: str = ""

    @property
    def key(self) -> str:
        """The trial as one line of JSON, by which its row is found again."""
        return json.dumps(dataclasses.asdict(self))

    @property
    def parameters(self) -> dict[str, float]:
        """Parameters of the loss."""
        return {PARAMETER[self.loss]: self.value}

    @property
    def config(self) -> str:
        """The setting without the seed, in words."""
        said = f"{self.loss} {PARAMETER[self.loss]}={self.value:g} batch={self.batch_size} lr={self.rate:g}"
        said += f" {self.arm} k={self.k}" if self.arm else ""
        return said + (f" mask={self.mask}" if self.mask else "")


def grid(data: str) -> Iterator[Trial]:
    """Losses, values of their parameter, learning rates, batch sizes and seeds."""
    sizes, inner = (BATCH_SIZES, slice(None)) if data == "captions" else ((128,), slice(1, 7))
    for seed, size, rate, loss in product(range(3), sizes, RATES[data], VALUES):
        yield from (Trial(data, loss, value, rate, size, seed) for value in VALUES[loss][inner])


def interventions(data: str) -> Iterator[Trial]:
    """The k hardest negatives, k random ones, all, and an effective number that is held at k."""
    seeds = range(10 if data == "captions" else 5)
    for seed, rate in product(seeds, RATES[data][1:]):
        for (loss, value), k in product(TREATED.items(), KEPT):
            yield from (Trial(data, loss, value, rate, seed=seed, arm=arm, k=k) for arm in ("hard", "random"))
        yield from (Trial(data, loss, value, rate, seed=seed, arm="hard", k=EVERY) for loss, value in TREATED.items())
        yield from (Trial(data, "ntxent", TREATED["ntxent"], rate, seed=seed, arm="held", k=k) for k in HELD)


def masking(data: str) -> Iterator[Trial]:
    """Look-alikes masked, as many random negatives masked, and none."""
    for seed, (loss, values), mask in product(range(10), MASKED.items(), ("none", "look_alikes", "random")):
        yield from (Trial(data, loss, value, RATES[data][1], seed=seed, mask=mask) for value in values)


PARTS = {
    f"{data}_{name}": (part, data)
    for data in ("captions", "emoji")
    for name, part in (("interventions", interventions), ("masking", masking), ("grid", grid))
}


def trials(part: str) -> list[Trial]:
    """All trainings of a part, seed by seed."""
    make, data = PARTS[part]
    return list(make(data))
