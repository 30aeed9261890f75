"""The trainings of the third part, as fixed in `scale_plan.md`: models in which the scale of the scores moves."""

import dataclasses
import json
from dataclasses import dataclass
from itertools import product

from analysis.hold_study.plan import AFTER, START, Arm

__all__ = ["ARMS", "CELLS", "GRID", "PARTS", "STEPS", "TENTHS", "Trial", "trials"]

GRID = (0.03, 0.05, 0.1, 0.15, 0.3, 0.6)  # temperatures; the scale of cross-example softmax is 1 / temperature
ARMS = (*(Arm("constant", each) for each in GRID), *(Arm(kind, START) for kind in AFTER))
SEEDS = (201, 202, 203, 204, 205)  # none of them was used before
CELLS = {
    "layers": tuple(product(("cosine", "dot"), ("ntxent", "ce_softmax"))),  # score and loss
    "towers": (("cosine", "ntxent"), ("dot", "ntxent")),
}
BATCH_SIZE = {"layers": 32, "towers": 64}
STEPS = {"layers": 100, "towers": 300}
RATE = {"layers": 1e-3, "towers": 3e-3}  # largest learning rate
TENTHS = 10  # of a training, at the beginning of each of which the scores are read


@dataclass(frozen=True)
class Trial:
    """One training.

    Args:
        part: `layers`, the last layer of a text encoder, or `towers`, convolution towers from scratch.
        score: `cosine`, or `dot`: the inner product in units of its first size.
        loss: `ntxent` or `ce_softmax`.
        kind: see `Arm`.
        temperature: of the loss, or at the start.
        seed: of the weights, the batches and the augmentation.
    """

    part: str
    score: str
    loss: str
    kind: str
    temperature: float
    seed: int

    @property
    def key(self) -> str:
        """The trial as one line of JSON, by which its row is found again."""
        return json.dumps(dataclasses.asdict(self))

    @property
    def cell(self) -> str:
        """Model, score and loss."""
        return f"{self.part} {self.score} {self.loss}"

    @property
    def config(self) -> str:
        """Everything but the seed."""
        return f"{self.cell} {self.kind} {self.temperature:g}"


def trials(part: str) -> list[Trial]:
    """All trainings of a part, seed by seed, so that every arm of a cell ends with as many of them."""
    return [
        Trial(part, score, loss, arm.kind, arm.temperature, seed)
        for seed in SEEDS
        for score, loss in CELLS[part]
        for arm in ARMS
    ]


PARTS = tuple(CELLS)
