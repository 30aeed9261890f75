"""The table of docs/howto/diff.md: how often intervals of a mean contain it: `python -m analysis.group_intervals`.

Pairs of one group share a part of their difference, whose mean is 0. Beside `cocos.statistics.paired` stands the
interval by sums of groups with one degree of freedom less than there are groups (Liang & Zeger 1986).
"""

import torch
from scipy.special import stdtrit
from torch import Tensor

from cocos.counting.statistics import paired

ROUNDS = 1000
LEVEL = 0.95
# Correlation of two pairs of one group.
SHARED = (0.0, 0.3, 0.8)
# Sizes of the groups by the words of the page.
DESIGNS = {
    "24 of 5": (5,) * 24,
    "12 of 5": (5,) * 12,
    "100 of 1 to 5": (1, 2, 3, 4, 5) * 20,
    "57 of 1, 3 of 20": (1,) * 57 + (20,) * 3,
    "200 of 1, 2 of 50": (1,) * 200 + (50,) * 2,
    "12 of 1 to 40": (1, 1, 1, 2, 2, 3, 4, 6, 9, 14, 20, 40),
    "60, the g-th of 60/g": tuple(max(1, 60 // g) for g in range(1, 61)),
}


def differences(sizes: tuple[int, ...], shared: float, seed: int) -> tuple[Tensor, Tensor]:
    """Differences of `ROUNDS` experiments, (rounds, n), of variance 1; and the group of each pair, (n,)."""
    generator = torch.Generator().manual_seed(seed)
    group = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    common = torch.randn(ROUNDS, len(sizes), generator=generator, dtype=torch.float64)[:, group]
    own = torch.randn(ROUNDS, len(group), generator=generator, dtype=torch.float64)
    return shared**0.5 * common + (1 - shared) ** 0.5 * own, group


def by_sums(away: Tensor, group: Tensor) -> float:
    """Part of the intervals by sums of groups, with one degree of freedom less than groups, that contain 0."""
    mean, number = away.mean(dim=1, keepdim=True), int(group.max()) + 1
    sums = torch.zeros(len(away), number, dtype=torch.float64).index_add(1, group, away - mean)
    error = (sums.square().sum(dim=1) * number / (number - 1)).sqrt() / away.shape[1]
    return (mean[:, 0].abs() <= float(stdtrit(number - 1, (1 + LEVEL) / 2)) * error).double().mean().item()


def covered(away: Tensor, group: Tensor) -> float:
    """Part of the intervals of `paired` that contain 0."""
    zero = torch.zeros(away.shape[1])
    return sum(not paired(each, zero, LEVEL, groups=group).resolved for each in away) / len(away)


def row(words: str) -> list[str]:
    """Coverage of one design by `paired` and by sums of groups, for each correlation, in percent."""
    made = [differences(DESIGNS[words], shared, list(DESIGNS).index(words)) for shared in SHARED]
    return [f"{100 * how(*each):.1f}" for how in (covered, by_sums) for each in made]


def table() -> str:
    """The table as Markdown."""
    heads = [f"correlation {shared:g}" for shared in SHARED]
    lines = [["groups", *heads, *(f"by sums, {shared:g}" for shared in SHARED)], ["---"] * (1 + 2 * len(SHARED))]
    lines += [[words, *row(words)] for words in DESIGNS]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(table())
