"""How far do embeddings come to rest from the proxies of their classes, checkpoint by checkpoint?"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
import xarray as xr
from torch import Tensor

import cocos
from cocos import checkpoints as files
from cocos import results
from cocos.base.errors import InputError, nearest
from cocos.checkpoints import Checkpoint
from cocos.embeddings import Embeddings, similarities
from cocos.embeddings.options import Progress

DTP_METRICS = ("euclidean", "squared_euclidean", "cosine")
# Maximum number of classes that a note names.
NAMED_CLASSES = 5
# Quantiles over the classes.
CLASS_BAND = (0.05, 0.95)
DTP_LABELS = {
    "average": "distance to proxy (AvgDTP)",
    "low": "5th percentile over classes",
    "high": "95th percentile over classes",
    "per_class": "distance to proxy by class",
    "alpha": "boundary of the warp",
    "alpha_each": "boundary of the warp by class",
}


def dtp(
    runs: Mapping[str, Sequence[Embeddings | Checkpoint | Path | None]],
    *,
    steps: Sequence[float] | None = None,
    alpha: Mapping[str, float | Sequence[float] | Mapping[int, float]] | None = None,
    metric: str = "euclidean",
    split: str = "train",
    device: str = "auto",
    opener: Callable[[Path], Checkpoint] = files.open,
    progress: Progress | None = None,
) -> xr.Dataset:
    r"""Distance to proxy (DTP) over the checkpoints of some runs: the mean over classes of the mean over its samples.

    .. math:: \mathrm{AvgDTP} = \frac{1}{C} \sum_{c} \frac{1}{|S_c|} \sum_{x \in S_c} d(x, p_c)

    Classes count alike, however many samples they have, so this is not the mean over all samples. A class with several
    proxies has the distance to the nearest one.

    Args:
        runs: of each run or function, by its name, one entry a checkpoint: samples with the proxies as candidates
            (one direction), checkpoints that give such embeddings, or their paths, of which one is in memory at a time.
            None from there on where a run has diverged.
        steps: steps of the checkpoints, such as epochs; None: 0, 1, 2 and so on.
        alpha: of some runs, the boundary of their warp, to be marked and compared with where they come to rest: one
            number, one for each step (a training in phases, section IV-B), or class -> number (section III-C). Other
            runs have the recorded one.
        metric: distance: euclidean (eq. 9), squared_euclidean or cosine. `cosine` is 1 minus the cosine.
        split: of a checkpoint's data.
        device: where a checkpoint's model runs.
        opener: opens a path; `cocos.open`, unless models need more than their own files.
        progress: called with the text "measuring NAME" of each run, and its result with (checkpoints done, number).

    Returns:
        `average` (run, step), AvgDTP; `low` and `high` (run, step), the 5th and 95th percentile over the classes;
        `per_class` (run, step, class), NaN for a class without samples; `alpha` (run,), NaN where there is none, and of
        several numbers that of the last step, as a mean over the classes; then all are `alpha_each` (run, step, class);
        and in the attributes the correlation of alpha and the last average, where at least three runs have one, and
        `notes` of samples without a proxy, which are left out. All are NaN from where a run has diverged, and it takes
        no part in the correlation.

    Source: DeMoor & Prevost 2024, Realigned softmax warping, arXiv:2408.15656, eq. 9 and Fig. 9.

    Examples:
        One sample is at its proxy, the other at a distance of 2:

        >>> samples, proxies = torch.tensor([[3.0, 0.0], [0.0, 1.0]]), torch.eye(2)
        >>> embeddings = cocos.Embeddings(samples, proxies, [0, 1], [0, 1], directions=("s2p",))
        >>> cocos.measures.dtp({"run": [embeddings]})["average"].item()
        1.0
    """
    if metric not in DTP_METRICS:
        raise InputError(nearest("metric", metric, DTP_METRICS))
    lengths = {name: len(run) for name, run in runs.items()}
    number = max(lengths.values(), default=0)
    if not number:
        raise InputError("runs: none, expected at least one, and at least one checkpoint in each")
    if min(lengths.values()) < number:
        (first, one), *others = lengths.items()
        said = [f"{first} has {one} checkpoint{'' if one == 1 else 's'}", *(f"{name} {n}" for name, n in others)]
        raise InputError(f"runs: {', '.join(said)}; expected as many in each")
    steps = list(range(number)) if steps is None else list(steps)
    if len(steps) != number:
        raise InputError(f"steps: {len(steps)} of them, expected one for each of {number} checkpoints")
    if not all(map(math.isfinite, steps)) or any(a >= b for a, b in zip(steps, steps[1:], strict=False)):
        raise InputError(f"steps: {', '.join(map(str, steps))}; expected finite numbers in ascending order, each once")
    unknown = set(alpha or {}) - set(runs)
    if unknown:
        raise InputError(nearest("run", sorted(unknown)[0], runs))
    distances, left, opened, recorded = [], {}, [], {name: [] for name in runs}
    for name, run in runs.items():
        distances.append([])
        report = progress and progress(f"measuring {name}")
        for done, (entry, step) in enumerate(zip(run, steps, strict=True), start=1):
            checkpoint = opener(entry) if isinstance(entry, Path) else entry
            embeddings = checkpoint
            if isinstance(checkpoint, Checkpoint):
                embeddings = checkpoint.embed(split=split, device=device)
                opened.append((str(checkpoint.path), checkpoint.sha256))
                if "alpha" in (parameters := checkpoint.settings.parameters.get("warped_softmax", {})):
                    recorded[name].append(float(parameters["alpha"]))
                if not embeddings.proxies:
                    raise InputError(
                        f"{checkpoint.path}: no class proxies (directions {', '.join(embeddings.directions)}); save "
                        "them for each checkpoint: numpy.savez(FILE, embeddings=..., labels=..., proxies=...)"
                    )
            distances[-1].append(_by_class(embeddings, metric, f"{name}, step {step}"))
            left[f"{name}, step {step}"] = "" if embeddings is None else _left_out(embeddings)
            if report:
                report(done, number)
        missing = [not found for found in distances[-1]]
        if missing[0] or missing != sorted(missing):
            raise InputError(
                f"{name}: checkpoint {missing.index(True)} of {len(missing)} is None, expected None only at the end, "
                "where a run has diverged, and at least one checkpoint before it"
            )
    classes = sorted(set().union(*(found for run in distances for found in run)))
    table = torch.tensor(
        [[[found.get(c, math.nan) for c in classes] for found in run] for run in distances], dtype=torch.float64
    )
    bounds = torch.nanquantile(table, torch.tensor(CLASS_BAND, dtype=table.dtype), dim=2)
    bounds_of: dict = dict.fromkeys(runs, math.nan)
    remarks = []
    for name, numbers in recorded.items():
        if len(numbers) == number and name not in (alpha or {}):
            bounds_of[name] = numbers if len(set(numbers)) > 1 else numbers[0]
            remarks.append(f"alpha of {name}: {numbers[-1]:g}, recorded in the last checkpoint")
    bounds_of |= alpha or {}
    each = torch.stack([_bound(name, bound, number, classes) for name, bound in bounds_of.items()])
    single = torch.tensor([isinstance(bound, int | float) for bound in bounds_of.values()])
    at = torch.where(single, each[:, -1, 0], each[:, -1].mean(dim=1))
    average = table.nanmean(dim=2)
    found = {"average": average, "low": bounds[0], "high": bounds[1], "per_class": table, "alpha": at}
    if not single.all():
        found["alpha_each"] = each
    axes = ("run", "step", "class")
    variables = {name: (axes[: v.ndim], v, DTP_LABELS[name], "distance") for name, v in found.items()}
    variables["run"] = ("run", list(runs))
    variables["step"] = ("step", steps, "step of the run", "1")
    variables["class"] = ("class", classes)
    since: dict[str, str] = {}  # a note on rows that were left out: once where all steps agree, else at the first step
    for what, said in left.items():
        since.setdefault(said, what)
    notes = remarks + [said if len(since) == 1 else f"{what}: {said}" for said, what in since.items() if said]
    attrs = {"cocos": cocos.__version__, "title": "Distance to proxy", "metric": metric, "notes": "\n".join(notes)}
    if opened:
        paths, hashes = zip(*opened, strict=True)
        attrs |= {"checkpoint_path": "\n".join(paths), "checkpoint_sha256": "\n".join(hashes)}
    there = at.isfinite() & average[:, -1].isfinite()
    if int(there.sum()) >= 3 and len(at[there].unique()) > 1:
        attrs["alpha_correlation"] = float(torch.corrcoef(torch.stack([at[there], average[there, -1]]))[0, 1])
    return results.labelled(variables, attrs, measure="dtp")


def _by_class(embeddings: Embeddings | None, metric: str, what: str) -> dict[int, float]:
    """Mean distance of the samples of each class to their nearest proxy; of no class where the run has diverged."""
    if embeddings is None:
        return {}
    if not isinstance(embeddings, Embeddings):
        raise InputError(f"{what}: {type(embeddings).__name__}, expected cocos.Embeddings or a checkpoint")
    similarities.check(embeddings, metric)
    found = {}
    for group in embeddings.query_group.unique().tolist():
        own = embeddings.candidate[embeddings.candidate_group == group].double()
        if len(own):
            some = embeddings.query[embeddings.query_group == group].double()
            nearest_score = similarities.METRICS[metric](some, own).amax(dim=1)
            found[group] = float(((1 if metric == "cosine" else 0) - nearest_score).mean())
    if not found:
        raise InputError(f"{what}: no sample has a proxy of its class among the candidates")
    return found


def _bound(run: str, given: float | Sequence[float] | Mapping[int, float], steps: int, classes: list[int]) -> Tensor:
    """Boundary of the warp of a run at each step for each class, (steps, classes)."""
    if isinstance(given, Mapping):
        if missing := [name for name in classes if name not in given]:
            raise InputError(f"alpha of {run}: none for class {missing[0]}, expected one for each class")
        row = torch.tensor([float(given[name]) for name in classes], dtype=torch.float64)
        return row.expand(steps, len(classes))
    if isinstance(given, Sequence) and len(given) != steps:
        raise InputError(f"alpha of {run}: {len(given)} numbers, expected one for each of {steps} steps")
    return torch.tensor(given, dtype=torch.float64).reshape(-1, 1).expand(steps, len(classes))


def _left_out(embeddings: Embeddings) -> str:
    """State how many samples have no proxy, and of which classes; empty where each has one."""
    absent = ~torch.isin(embeddings.query_group, embeddings.candidate_group)
    number, classes = int(absent.sum()), embeddings.query_group[absent].unique().tolist()
    if not number:
        return ""
    more = f" and {len(classes) - NAMED_CLASSES} more" if len(classes) > NAMED_CLASSES else ""
    named = f"class{'es' if len(classes) > 1 else ''} {', '.join(map(str, classes[:NAMED_CLASSES]))}{more}"
    return f"{number} of {len(absent)} samples left out: {named} without a proxy"


def same_classes(data: xr.Dataset) -> None:
    """Refuse averages over unlike classes: they are other numbers."""
    missing = data["per_class"].isnull()
    for name in missing["run"].values:
        for place, step in enumerate(missing["step"].values):
            absent = missing["class"].values[missing.sel(run=name).isel(step=place).values]
            if len(absent):
                more = f" (and of {len(absent) - 1} more)" if len(absent) > 1 else ""
                raise InputError(
                    f"{name}, step {step:g}: no sample with a proxy of class {absent[0]}{more}, which others have; an "
                    "average over other classes cannot be compared: save the same classes at every step"
                )
