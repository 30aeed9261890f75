"""The first table of docs/eps.md, counts of two losses by the number of positives: `python -m analysis.eps_units`.

Samples lie about the means of their classes, with noise as large as the means, and are one batch. Summed over the
positives the unit is that of one positive. Means and standard deviations are over the draws.
"""

import torch

from cocos import Embeddings, losses
from cocos.counting import statistics
from cocos.embeddings import scores

SAMPLES, WIDTH = 128, 32
TEMPERATURE, EPS = 0.1, 0.01
PER_CLASS = (2, 4, 8)
SEEDS = range(20)
HEADS = (
    *("samples per class", "NT-Xent, summed", "W-", "NT-Xent, per positive", "W-", "`relative`"),
    *("SupCon", "W-", "`relative`"),
)


def drawn(per_class: int, seed: int) -> Embeddings:
    """A labelled set of classes of one size."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(SAMPLES // per_class, WIDTH, generator=generator, dtype=torch.float64)
    rows = means.repeat_interleave(per_class, dim=0)
    rows = rows + torch.randn(rows.shape, generator=generator, dtype=torch.float64)
    return Embeddings.labelled(rows, torch.arange(SAMPLES) // per_class)


def counted(per_class: int, seed: int) -> list[float]:
    """The numbers of one row, of one draw."""
    pairs, found = scores.pairs(drawn(per_class, seed)), []
    for name, units in (("ntxent", ("one", "all")), ("supcon", ("all",))):
        loss = losses.load(name, temperature=TEMPERATURE)
        weights, unit = loss.weight(pairs), loss.unit(pairs)
        for kind in units:
            share = weights.abs() / (unit / pairs.positives() if kind == "one" else unit)
            every = [statistics.contributing(share, pairs, EPS), statistics.weight_above(share, pairs, EPS)]
            if kind == "all":
                every.append(statistics.relative(statistics.spread(weights, pairs), EPS))
            found += [values.double().mean().item() for values in every]
    return found


def table() -> str:
    """The table as Markdown, a mean and a deviation in each cell."""
    lines = [HEADS, ("---",) * len(HEADS)]
    for per_class in PER_CLASS:
        draws = torch.tensor([counted(per_class, seed) for seed in SEEDS], dtype=torch.float64)
        cells = []
        for place, (mean, deviation) in enumerate(zip(draws.mean(dim=0), draws.std(dim=0), strict=True)):
            digits = 2 if place in {1, 3, 6} else 1
            cells.append(f"{mean:.{digits}f} ± {deviation:.{digits}f}")
        lines.append((str(per_class), *cells))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(table())
