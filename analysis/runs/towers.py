"""The four losses of Bleeker & de Rijke 2022 on the convolution towers of the example, for Tables 1 to 5.

Each loss has the parameters of the paper, and each seed the same first weights for every loss. All runs have the same
number of steps and 128 images in a batch: Triplet, Triplet SH and NT-Xent draw pairs, so that an image stands beside
one of its captions; SmoothAP draws groups, an image with all five, and thus sees five times the captions in a step.
Triplet SH collapses to one point from these first weights; one of its seeds is trained at two lower rates as well.
"""

from functools import partial
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from analysis import train_example
from analysis.proxy_networks import one_thread
from analysis.runs.kept import RESULTS, WORK, kept
from cocos import losses, measures, reports, results
from cocos.checkpoints import encoding
from cocos.counting.statistics import BATCH_NUMBERS
from cocos.data import emoji_captions
from cocos.embeddings import sampling
from cocos.measures.shared import retrieval

__all__ = ["main"]

LOSSES = {  # Bleeker & de Rijke 2022, Tables 1 and 2
    "triplet": {"margin": 0.2},
    "triplet_sh": {"margin": 0.2},
    "ntxent": {"temperature": 0.1},
    "smoothap": {"temperature": 0.01},
}
LOWER_RATES = (1e-3, 3e-4)  # for one seed of Triplet SH, which collapses at the rate of the others
SEEDS, EPOCHS, BATCH_SIZE = (0, 1, 2), 6, 128
STEPS = EPOCHS * 98  # 98 batches of 128 pairs are one pass over the 12,485 captions
CONVENTIONS = ("standard", "ecir2022")
RECALLS = ("R@1", "R@5", "R@10", "average_recall", "mAP@5")
PUBLISHED_COUNTS = (  # Tables 3 to 5 print their deviations over batches
    *("contributing_mean", "contributing_all", "contributing_sum", "idle", "weight_above", "weight_positive"),
    *("eq7_mean", "eq7_idle"),
)
COUNTS = (*PUBLISHED_COUNTS, "weight_below", "effective", "relative", "hardest_share")


def _run(family: str, rate: float, seed: int) -> dict:
    """Train one model; evaluate it, and count its loss in one pass over the training set in both conventions."""
    loss, items = losses.load(family, LOSSES[family]), emoji_captions.load("train")
    plan = sampling.plan(
        train_example.framed(items), sample=loss.sample, batch_size=BATCH_SIZE, batches=STEPS, seed=seed
    )
    model = train_example.fitted(items, plan.batches, loss, seed, rate)
    splits = {
        split: encoding.embed(model, emoji_captions.load(split), device="cpu") for split in ("train", "val", "test")
    }
    found = {split: reports.document("evaluate", measures.evaluate(each)) for split, each in splits.items()}
    row = {
        "recall": {
            way: {name: entry[name]["mean"] for name in RECALLS} for way, entry in found["test"]["directions"].items()
        },
        "rsum": {split: each["rsum"]["mean"] for split, each in found.items()},
        "PR-AUC": found["test"]["PR-AUC"]["mean"],
    }
    for convention in CONVENTIONS:
        counted = measures.count(splits["train"], loss, batch_size=BATCH_SIZE, seed=0, convention=convention)
        directions = reports.document("count", counted)["directions"]
        row[convention] = {
            way: {name: entry[name] for name in COUNTS if name in entry} for way, entry in directions.items()
        }
    return row


def _array(rows: list[dict], name: str, value: str) -> np.ndarray:
    """One number of the counts, (run, convention, direction); NaN where a loss has none."""
    none = {"mean": None, "std": None}
    found = [
        [[entry.get(name, none)[value] for entry in row[convention].values()] for convention in CONVENTIONS]
        for row in rows
    ]
    return np.array(found, dtype=np.float64)


def _config(family: str, rate: float) -> str:
    """The setting of a run without its seed; the rate where it is not that of the others."""
    parts = [family, *(f"{name}={value}" for name, value in LOSSES[family].items())]
    return " ".join([*parts, *([] if rate == train_example.RATE else [f"rate={rate:g}"])])


def _key(family: str, rate: float, seed: int) -> str:
    """Everything that a run depends on."""
    rated = "" if rate == train_example.RATE else f" rate={rate:g}"
    return f"{losses.load(family, LOSSES[family])!r} steps={STEPS}{rated} seed={seed}"


def table(rows: dict[tuple[str, float, int], dict]) -> xr.Dataset:
    """Label the rows of all runs.

    Args:
        rows: (family, learning rate, seed) -> row of the run.
    """
    every, ways = list(rows.values()), tuple(rows[next(iter(rows))]["recall"])
    named = [losses.load(family, LOSSES[family]) for family, _, _ in rows]
    variables = {
        "family": ("run", [family for family, _, _ in rows]),
        "config": ("run", [_config(family, rate) for family, rate, _ in rows]),
        "value": ("run", [next(iter(LOSSES[family].values())) for family, _, _ in rows], "temperature or margin"),
        "learning_rate": ("run", [rate for _, rate, _ in rows]),
        "seed": ("run", [seed for _, _, seed in rows]),
        "sample": ("run", [loss.sample for loss in named]),
        "direction": ("direction", list(ways)),
        "convention": ("convention", list(CONVENTIONS)),
    }
    for name in RECALLS:
        values = [[row["recall"][way][name] for way in ways] for row in every]
        variables[name] = (("run", "direction"), np.array(values), *retrieval.label(name))
    for split, end in (("test", ""), ("val", "_val"), ("train", "_train")):
        long_name, units = retrieval.label("rsum")
        variables[f"rsum{end}"] = ("run", [row["rsum"][split] for row in every], f"{long_name}, {split} split", units)
    variables["PR-AUC"] = ("run", [row["PR-AUC"] for row in every], *retrieval.label("PR-AUC"))
    variables["r1"] = ("run", variables["R@1"][1].mean(axis=1), "R@1, mean of both directions", "%")
    dims = ("run", "convention", "direction")
    for name in COUNTS:
        long_name, units = BATCH_NUMBERS[name].about
        variables[name] = (dims, _array(every, name, "mean"), long_name, units)
        if name in PUBLISHED_COUNTS:
            over = f"{long_name}: deviation over the batches of a run"
            variables[f"{name}_over_batches"] = (dims, _array(every, name, "std"), over, units)
    about = results.versions() | {
        "title": "The four losses of Bleeker & de Rijke 2022 on the convolution towers of the example",
        "data": "emoji_captions: trained on train, evaluated on test",
        "steps": STEPS,
        "batch_size": BATCH_SIZE,
        "sampling": "pairs: an image and one of its captions; groups: an image and all five, so five times the "
        "captions in a step, at the same number of steps",
        "notes": "\n".join(_notes(variables)),
        "threads": 1,
    }
    return results.labelled(variables, about).set_coords([
        "family",
        "config",
        "value",
        "learning_rate",
        "seed",
        "sample",
    ])


def _notes(variables: dict[str, tuple]) -> list[str]:
    """Say how batches were drawn, and which settings are collapsed: all of their runs are below three times chance."""
    configs, totals = np.array(variables["config"][1]), np.array(variables["rsum_train"][1])
    images = len(emoji_captions.load("train").query.items)
    chance = 2 * (1 + 5 + 10) * 100 / images  # in either direction, one in `images` candidates is right
    gone = [name for name in dict.fromkeys(configs) if (totals[configs == name] < 3 * chance).all()]
    sampled = f"{STEPS} steps of {BATCH_SIZE} images each; pairs, but groups with all captions for SmoothAP"
    return [sampled, *(f"collapsed, rsum of the training split near chance: {', '.join(gone)}" for _ in gone[:1])]


def main(work: Path = WORK, out: Path = RESULTS) -> Path:
    """Train and measure all runs that are not done yet, and write `towers.nc`."""
    torch.use_deterministic_algorithms(True)
    with one_thread():
        planned = [(family, train_example.RATE, seed) for seed in SEEDS for family in LOSSES]
        planned += [("triplet_sh", rate, SEEDS[0]) for rate in LOWER_RATES]
        rows = {one: kept(work / "towers.jsonl", _key(*one), partial(_run, *one)) for one in planned}
    return results.save(table(rows), out / "towers.nc")


if __name__ == "__main__":
    print(main())
