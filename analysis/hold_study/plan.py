"""The trainings of the study, as fixed in `preregistration.md`: each `Stack` trains all arms of a cell at once."""

import dataclasses
import json
from dataclasses import dataclass
from itertools import product

__all__ = ["ARMS", "GRID", "PARTS", "Arm", "Stack", "stacks"]

DATA = ("photos", "emoji", "abstracts")
LOSSES = ("ntxent", "ce_softmax")
WIDTHS = (8, 128)  # dimensions of the embeddings
BATCH_SIZES = (32, 256)
RATES = {"photos": (0.002, 0.006, 0.02), "emoji": (0.002, 0.006, 0.02), "abstracts": (0.006, 0.02, 0.06)}
SEEDS = (101, 102, 103, 104, 105)  # none of them was used before
GRID = (0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)  # temperatures; the scale of cross-example softmax is 1 / temperature
START = 0.15  # temperature of the arms that are held, until they are
AFTER = {"late": 0.4, "early": 0.0, "once": 0.4}  # part of the training after which the number is held; once: set once
FACTORS = (0.05, 0.1, 0.2, 0.4)  # temperatures of the factorial
FACTORIAL = {"data": ("photos", "emoji"), "width": 64, "batch_size": 128}


@dataclass(frozen=True)
class Arm:
    """What is done with the temperature in one training.

    Args:
        kind: `constant`; `late`, `early` or `once`: held, see `AFTER`; `factorial`.
        temperature: of the loss, or at the start; in the factorial the one that divides the push among the negatives.
        weight: in the factorial, the temperature that sets the weight of a query; 0 elsewhere.
    """

    kind: str
    temperature: float
    weight: float = 0.0


ARMS = (*(Arm("constant", each) for each in GRID), *(Arm(kind, START) for kind in AFTER))
CROSSED = tuple(Arm("factorial", *each) for each in product(FACTORS, FACTORS))


@dataclass(frozen=True)
class Stack:
    """One training of all arms side by side: the same first weights and the same batches.

    Args:
        part: `cells` or `factorial`.
        data: one of `DATA`.
        loss: one of `LOSSES`; `ntxent` in the factorial.
        width: dimensions of the embeddings.
        batch_size: pairs in a step.
        rate: largest learning rate.
        seed: of the weights and of the batches.
    """

    part: str
    data: str
    loss: str
    width: int
    batch_size: int
    rate: float
    seed: int

    @property
    def key(self) -> str:
        """The stack as one line of JSON, by which its rows are found again."""
        return json.dumps(dataclasses.asdict(self))

    @property
    def cell(self) -> str:
        """Data, loss, width and batch size in words."""
        return f"{self.data} {self.loss} width={self.width} batch={self.batch_size}"

    @property
    def arms(self) -> tuple[Arm, ...]:
        """What is trained."""
        return CROSSED if self.part == "factorial" else ARMS


def _cells() -> list[Stack]:
    """24 cells at three learning rates, seed by seed."""
    return [
        Stack("cells", data, loss, width, size, rate, seed)
        for seed, data, width, size, loss in product(SEEDS, DATA, WIDTHS, BATCH_SIZES, LOSSES)
        for rate in RATES[data]
    ]


def _factorial() -> list[Stack]:
    """Two data sets at three learning rates, seed by seed."""
    width, size = FACTORIAL["width"], FACTORIAL["batch_size"]
    return [
        Stack("factorial", data, "ntxent", width, size, rate, seed)
        for seed, data in product(SEEDS, FACTORIAL["data"])
        for rate in RATES[data]
    ]


PARTS = {"cells": _cells, "factorial": _factorial}


def stacks(part: str) -> list[Stack]:
    """All stacks of a part."""
    return PARTS[part]()
