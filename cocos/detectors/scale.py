"""Scale: a learned temperature runs away."""

from collections.abc import Sequence
from dataclasses import dataclass

from cocos.detectors._history import Alarm, Record, Watcher, alarm, number, of_checkpoints, step, threshold

__all__ = ["Scale"]

# Part by which a scale has changed that is learned.
LEARNED = 0.01


@dataclass(frozen=True)
class Scale(Watcher):
    """The scale (one over the temperature) is learned and runs to an end of its range.

    Fires when: a scale that changes falls below `low`; or, unless the loss is a sigmoid, rises above `high`, or reaches
    it within `steps` steps of the first record: a sound training takes thousands, if it gets there.

    Try: a clamp (CLIP's is 100), no weight decay on the scale and a smaller learning rate for it. Where it falls, the
    pairs look unrelated to the loss: look at the pairing of the rows and at the learning rate.

    Args:
        low: scale below which nearly all candidates weigh alike.
        high: largest sound scale of a softmax.
        steps: since the first record; a checkpoint counts as slow.

    Source: CLIP begins at 1/0.07 and clips at 100 (Radford et al. 2021, arXiv:2103.00020, section 2.5); SigLIP has no
    clip and ends above 100 (Zhai et al. 2023, arXiv:2303.15343); the scale falls with the loss at ln C in
    https://github.com/mlfoundations/open_clip/issues/815.
    """

    READS = ("scale",)

    low: float = threshold(2.0)
    high: float = threshold(100.0)
    steps: int = threshold(1000)

    def __call__(self, history: Sequence[Record]) -> Alarm | None:
        """The alarm at the last record, if any."""
        now = number(history[-1], "scale")
        start = next((each for each in history if number(each, "scale") is not None), None)
        first = number(start, "scale") if start is not None else None
        if now is None or start is None or not first or abs(now / first - 1) <= LEARNED:
            return None
        end, taken = step(history[-1]), step(history[-1]) - step(start)
        path = f"went from {first:.3g} to {now:.3g}"
        if now < self.low:
            said = (
                f"the scale {path} (below {self.low:g}) by step {end}, where all candidates weigh nearly alike; look "
                "whether rows and their matches are paired, lower the learning rate, or fix the scale"
            )
            return alarm(self, history, now, self.low, said)
        fast = now >= (1 - LEARNED) * self.high and taken <= self.steps and not of_checkpoints(history)
        if history[-1].get("kind") == "sigmoid" or not (fast or now > (1 + LEARNED) * self.high):
            return None
        said = (
            f"the scale {path} (the usual limit is {self.high:g}) by step {end}; clamp it, leave it out of the weight "
            "decay, and give it a smaller learning rate"
        )
        return alarm(self, history, now, self.high, said)
