"""Compute the findings from a folder of embeddings, and keep the numbers, with their origin, in `results.json`."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from cocos import Embeddings, losses, measures
from cocos.base.errors import InputError
from cocos.results import several

__all__ = ["RESULTS", "compute", "opened"]

RESULTS = Path(__file__).with_name("results.json")
SEEDS = (0, 1, 2, 3, 4)
# Smallest share that contributes.
EPS = 0.01
# Pairs of a batch, except where the batch size is what varies.
BATCH = 128
CLAMP_BATCHES = (128, 256)
TEMPERATURES = (0.5, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05)
BETAS = (1.0, 0.0)
PRIORS = (0.1, 0.03, 0.01, 0.001, 0.0001)
PRIOR_TEMPERATURE = 0.1
EQUILIBRIUM_BATCHES = (16, 32, 64, 128, 256, 512)
SCALES = (20.0, 100.0)
DIRECTIONS = ("query-candidate", "query-query", "candidate-query", "candidate-candidate")
# Margin of the filter that removes what scores above the positive, in units of score: a copy of the positive scores as
# it does up to rounding, which differs from processor to processor.
ABOVE_ROUNDING = 1e-9
FILTERS = {"self": (ABOVE_ROUNDING, 0.1), "percent": (0.95,)}
FILTER_TEMPERATURE = 0.05
# File of each data set, with its licence and what a query and a candidate are.
FILES = {
    "PubMedQA": ("pubmedqa.npz", "MIT", "question and abstract"),
    "XQuAD": ("xquad_en.npz", "CC BY-SA 4.0", "question and paragraph"),
    "COCO": ("coco_captions.npz", "CC BY 4.0", "two captions of a photo"),
}
Found = dict[str, Any]


def opened(folder: Path, *, captions: int = 1) -> dict[str, Embeddings]:
    """The data sets of a folder; of the captions of a photo the first asks, and as many others are its candidates.

    Raises:
        InputError: a file that is not there.
    """
    held = {}
    for name, (file, *_) in FILES.items():
        if not (folder / file).is_file():
            raise InputError(f"{folder}: there is no {file}; give the folder of the embeddings, with {_files()}")
        with np.load(folder / file) as arrays:
            held[name] = {key: arrays[key] for key in arrays.files}
    one, two, three = held.values()
    photo, place = np.unique(three["group_ids"], return_inverse=True)[1], three["caption_index"]
    rows = torch.as_tensor(three["embeddings"].astype(np.float32))
    asks, asked = np.flatnonzero(place == 0), np.flatnonzero((place > 0) & (place <= captions))
    known = two["query_to_passage"], np.arange(len(two["passage_ids"]))
    made = [Embeddings(*_sides(one)), Embeddings(*_sides(two), *known)]
    made.append(Embeddings(rows[asks], rows[asked], photo[asks], photo[asked]))
    return dict(zip(FILES, made, strict=True))


def _sides(held: dict[str, np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and candidates of a file of two sides, in float32."""
    query, candidate = (torch.as_tensor(held[f"{side}_embeddings"].astype(np.float32)) for side in ("query", "passage"))
    return query, candidate


def _files() -> str:
    return ", ".join(file for file, *_ in FILES.values())


def spread(
    batches: Sequence[np.ndarray], numbers: Sequence[np.ndarray], totals: Sequence[np.ndarray] | None = None
) -> Found:
    """Mean over all queries, or ratio of sums, and deviations over full batches and over seeds.

    Args:
        batches: of each seed the means, or ratios, of its batches.
        numbers: of each seed the queries of its batches.
        totals: of ratios, what is divided by, of each batch; None: means over queries.
    """
    weights = numbers if totals is None else totals
    means = [float((each * weight).sum() / weight.sum()) for each, weight in zip(batches, weights, strict=True)]
    full = [each[number == number.max()] for each, number in zip(batches, numbers, strict=True)]
    every = np.concatenate(full)
    return {
        "mean": float(np.mean(means)),
        "over_seeds": float(np.std(means, ddof=1)),
        "over_batches": float(np.std(every, ddof=1)),
        "low": float(every.min()),
        "high": float(every.max()),
        "batches": len(every),
        "queries": int(sum(number.sum() for number in numbers)),
        "seeds": len(means),
    }


def _seeded(
    embeddings: Embeddings, chosen: Sequence[losses.Loss], read: dict[str, Callable], batch_size: int
) -> list[dict[str, Found]]:
    """Numbers of each loss over the seeds: name -> spread; `read` gives the values of queries, (batch, query)."""
    parts: list[dict[str, list]] = [{name: [] for name in (*read, "queries")} for _ in chosen]
    for seed in SEEDS:
        named = {str(place): loss for place, loss in enumerate(chosen)}
        counted = several.each(measures.count(embeddings, named, EPS, batch_size=batch_size, seed=seed))
        for part, data in zip(parts, counted.values(), strict=True):
            one = data.isel(direction=0)
            part["queries"].append(one["queries"].values)
            for name, values in read.items():
                part[name].append(np.nanmean(values(one), axis=1))
    return [{name: spread(part[name], part["queries"]) for name in read} for part in parts]


def _pushless(one: xr.Dataset) -> np.ndarray:
    """Queries without any push, (batch, query), in percent; NaN beyond the last query of a batch."""
    push = one["push"].values
    return np.where(np.isfinite(push), 100.0 * (push == 0), np.nan)


READ_HCL = {
    "clamped": lambda one: 100 * one["clamped_per_query"].values,
    "pushless": _pushless,
    "pulled": lambda one: one["pulled_negatives_per_query"].values,
}


def _clamp(embeddings: Embeddings) -> Found:
    """Queries of HCL on the clamp, by batch size, β and temperature; and by the prior at one temperature."""
    found: Found = {"by_temperature": {}, "by_prior": {}}
    for size in CLAMP_BATCHES:
        for beta in BETAS:
            chosen = [losses.load("hcl", {"temperature": each, "beta": beta}) for each in TEMPERATURES]
            every = _seeded(embeddings, chosen, READ_HCL, size)
            found["by_temperature"][f"{size},{beta:g}"] = {
                f"{each:g}": one for each, one in zip(TEMPERATURES, every, strict=True)
            }
    chosen = [losses.load("hcl", {"temperature": PRIOR_TEMPERATURE, "prior": each}) for each in PRIORS]
    every = _seeded(embeddings, chosen, READ_HCL, CLAMP_BATCHES[-1])
    found["by_prior"] = {f"{each:g}": one for each, one in zip(PRIORS, every, strict=True)}
    return found


def _equilibrium(embeddings: Embeddings) -> Found:
    """Temperature at which NT-Xent's derivative vanishes, for each batch size: mean and deviation over the seeds."""
    found: Found = {}
    for size in EQUILIBRIUM_BATCHES:
        every = [measures.temperature(embeddings, "ntxent", [size], seed=seed) for seed in SEEDS]
        values = [float(data["equilibrium_temperature"][0]) for data in every]
        first = every[0].isel(batch_size=0)
        found[str(size)] = {
            "mean": float(np.mean(values)),
            "over_seeds": float(np.std(values, ddof=1)),
            "low": float(first["low"]),
            "high": float(first["high"]),
            "directions": {
                str(name): float(np.mean([data["direction_temperature"].sel(direction=name).item() for data in every]))
                for name in first["direction"].values
            },
            "states": sorted({str(data["state"].values[0]) for data in every}),
            "batches": int(first["batches"]),
            "seeds": len(values),
        }
    return found


# Treatments of a paragraph that several questions of a batch share: in the batch once, a positive of each; once
# for each question, the copies neither positive nor negative; or the copies negatives, as in a plain softmax.
TREATMENTS: dict[str, dict[str, Any]] = {
    "once": {"copies": "once"},
    "ignored": {"copies": "keep"},
    "pushed": {"copies": "keep", "same_group": "negative"},
}


def _shared(embeddings: Embeddings) -> Found:
    """Equilibrium temperatures and queries on the clamp of HCL, by the treatment of a shared candidate."""
    found: Found = {}
    sizes = sorted({EQUILIBRIUM_BATCHES[0], BATCH, EQUILIBRIUM_BATCHES[-1]})
    loss = losses.load("hcl", {"temperature": PRIOR_TEMPERATURE})
    for name, options in TREATMENTS.items():
        entry = found[name] = {"temperature": {}}
        for size in sizes:
            every = [measures.temperature(embeddings, "ntxent", [size], seed=seed, **options) for seed in SEEDS]
            entry["temperature"][str(size)] = _over_seeds([float(one["equilibrium_temperature"][0]) for one in every])
        clamped = []
        for seed in SEEDS:
            one = measures.count(embeddings, loss, EPS, batch_size=CLAMP_BATCHES[-1], seed=seed, **options)
            clamped.append(100 * float(np.nanmean(one.isel(direction=0)["clamped_per_query"].values)))
        entry["clamped"] = _over_seeds(clamped)
    return found


def _over_seeds(values: Sequence[float]) -> Found:
    return {"mean": float(np.mean(values)), "over_seeds": float(np.std(values, ddof=1)), "seeds": len(values)}


# Quantities of a source, and the factor of their ratio: percent of the push and of the negatives, a number a query.
SOURCED = {"push": 100, "negatives": 100, "contributing": 1}


def _sources(embeddings: Embeddings) -> Found:
    """Part of the push of each source under four directions, by scale; and its part of the negatives."""
    found: Found = {}
    for scale in SCALES:
        loss, parts = losses.load("mnrl", {"scale": scale, "directions": DIRECTIONS}), {}
        for seed in SEEDS:
            one = measures.count(embeddings, loss, batch_size=BATCH, seed=seed).isel(direction=0)
            queries = one["queries"].values
            sums = {key: one[f"source_{key}"].transpose("source", ...).sum("query").values for key in SOURCED}
            totals = {key: sums[key].sum(axis=0) for key in ("push", "negatives")} | {"contributing": queries}
            for place, name in enumerate(one["source"].values.tolist()):
                own = parts.setdefault(name, {key: ([], [], []) for key in SOURCED})
                for key, factor in SOURCED.items():
                    ratio = factor * sums[key][place] / totals[key]
                    for held, values in zip(own[key], (ratio, queries, totals[key]), strict=True):
                        held.append(values)
        found[f"{scale:g}"] = {
            name: {key: spread(*values) for key, values in own.items()} for name, own in parts.items()
        }
    return found


def _filters(embeddings: Embeddings) -> Found:
    """What each filter removes: pairs and push, in percent; and how far it finds rows of the query's own group."""
    loss, known = losses.load("ntxent", {"temperature": FILTER_TEMPERATURE}), not embeddings.groups.single
    rules = ["group"] if known else ["neighbours"]
    keys = {"filter_share": "pairs", "filter_push": "push"}
    keys |= {"precision": "precision", "recall": "recall"} if known else {}
    found: Found = {"filters": {}}
    every = [
        measures.audit(embeddings, loss, rules=rules, filters=FILTERS, batch_size=BATCH, seed=seed).isel(direction=0)
        for seed in SEEDS
    ]
    for place, name in enumerate(every[0]["filter"].values.tolist()):
        entry = {}
        for key, word in keys.items():
            values = [100 * float(data[key][place]) for data in every]
            entry[word] = {"mean": float(np.mean(values)), "over_seeds": float(np.std(values, ddof=1))}
        found["filters"][name.replace(f"{ABOVE_ROUNDING:g}", "0")] = entry | {"seeds": len(every)}
    if known:
        for key, word in (("share", "pairs"), ("push_share", "push")):
            values = [100 * float(data[key].sel(rule="group")) for data in every]
            found[f"group_{word}"] = {"mean": float(np.mean(values)), "over_seeds": float(np.std(values, ddof=1))}
    return found | {"batches": int(every[0].attrs["batches"])}


def compute(folder: Path, say: Callable[[str], None] = print) -> Found:
    """Compute everything and write `results.json`."""
    paired, whole = opened(folder), opened(folder, captions=4)
    found: Found = {"data": {}, "clamp": {}, "equilibrium": {}, "sources": {}, "filters": {}}
    for name, (file, licence, sides) in FILES.items():
        say(name)
        one, more = paired[name], whole[name]
        found["data"][name] = {
            "file": file,
            "sha256": hashlib.sha256((folder / file).read_bytes()).hexdigest(),
            "licence": licence,
            "sides": sides,
            "queries": len(one.query),
            "candidates": len(one.candidate),
            "all_candidates": len(more.candidate),
        }
        found["clamp"][name], found["equilibrium"][name] = _clamp(one), _equilibrium(one)
        found["sources"][name], found["filters"][name] = _sources(one), _filters(more)
        if len(one.candidate) < len(one.query):
            found["shared"] = _shared(one)
    RESULTS.write_text(json.dumps(_rounded(found), indent=1) + "\n", "utf-8")
    return found


def _rounded(value: Any) -> Any:
    """The same numbers to six significant digits."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value
