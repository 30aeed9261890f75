"""Table 1 of Cross-Example Softmax: all of its losses on the towers of the figure cross_example, with distractors.

Each loss is trained from the same starts and on the same batches, at the scale that is best on the validation split.
A-Softmax reads the scale as the length of the queries; on unit vectors L-Softmax is the same loss, so it has no runs of
its own. The distractors are the images of the other splits.
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from analysis.cross_example import SCALES, SEARCHED, SEEDS, _Split, _trained
from analysis.proxy_networks import one_thread
from analysis.runs.kept import RESULTS, WORK, kept
from cocos import Embeddings, Pairs, checkpoints, losses, measures, results
from cocos.checkpoints.formats.native import SmallTowers
from cocos.checkpoints.formats.networks import fill
from cocos.measures.shared import retrieval

__all__ = ["main"]

LOSSES = ("sampled_softmax", "a_softmax", "snm", "ce_softmax", "ce_nm")
MARGINS, ANNEALING = (2, 4), 5.0  # of A-Softmax; its published code anneals down to 5
RECALLS = ("R@1", "R@5", "R@10", "R@100")
CONDITIONS = ("without", "with")


@dataclass(frozen=True)
class _Lengthened:
    """A loss of angles and lengths for unit vectors: the queries get the length `scale`."""

    loss: losses.Loss
    scale: float

    def __call__(self, pairs: Pairs) -> torch.Tensor:
        norms = pairs.scores.new_full((len(pairs.scores),), self.scale)
        return self.loss(replace(pairs, query_norm=norms, candidate_norm=torch.ones_like(pairs.scores[0])))


def _settings(name: str) -> list[dict]:
    """Settings of a loss that the validation split chooses from."""
    margins = [{"margin": margin} for margin in MARGINS] if name == "a_softmax" else [{}]
    return [{"scale": scale} | margin for scale in SCALES for margin in margins]


def _loss(name: str, scale: float, **parameters):
    """A loss at a setting."""
    if name == "a_softmax":
        return _Lengthened(losses.load(name, parameters | {"annealing": ANNEALING}), scale)
    return losses.load(name, {"scale": scale})


class _Runs:
    """The splits of the example behind its frozen convolutions, loaded when a run is not done yet."""

    def __init__(self, work: Path):
        self.file = work / "cross_example.jsonl"
        self.loaded = None

    def _towers(self) -> tuple:
        if self.loaded is None:
            held = torch.load(checkpoints.EXAMPLE_FILE, weights_only=True)
            encoder = held["cocos"]["encoder"]["name"], held["cocos"]["encoder"]["arguments"]
            towers = fill(SmallTowers(**encoder[1]), held["state"])
            self.loaded = encoder, {split: _Split(split, towers) for split in ("train", "val", "test")}
        return self.loaded

    def _validated(self, name: str, setting: dict, seed: int) -> dict:
        """PR-AUC of the validation split."""
        encoder, splits = self._towers()
        made = splits["val"].embeddings(_trained(encoder, splits["train"], _loss(name, **setting), False, seed))
        return {"PR-AUC": measures.evaluate(made)["PR-AUC"].item()}

    def _tested(self, name: str, setting: dict, seed: int) -> dict:
        """PR-AUC and recalls of the captions of the test split, without and with distractors."""
        encoder, splits = self._towers()
        model = _trained(encoder, splits["train"], _loss(name, **setting), False, seed)
        others = torch.cat([splits[split].embeddings(model).query for split in ("train", "val")])
        asked = splits["test"].embeddings(model).flip()
        found = measures.evaluate(asked, ks=(1, 5, 10, 100), distractors=Embeddings(others, others))
        found = found.isel(fold=0).sel(direction="t2i")
        return {
            "PR-AUC": found["PR-AUC"].sel(distractors="without").item(),
            **{each: [found[each].sel(distractors=condition).item() for condition in CONDITIONS] for each in RECALLS},
            "images": [found["candidates"].sel(distractors=condition).item() for condition in CONDITIONS],
        }

    def rows(self) -> list[dict]:
        """One row for each loss and seed, at the scale with the highest mean PR-AUC on the validation split."""
        found = []
        for name in LOSSES:
            means, settings = [], _settings(name)
            for one in settings:
                ran = [
                    kept(self.file, f"val {name} {one} {seed}", partial(self._validated, name, one, seed))
                    for seed in SEEDS[:SEARCHED]
                ]
                means.append(sum(row["PR-AUC"] for row in ran))
            best = settings[int(np.argmax(means))]
            for seed in SEEDS:
                row = kept(self.file, f"test {name} {best} {seed}", partial(self._tested, name, best, seed))
                said = " ".join(f"{key}={value:g}" for key, value in best.items())
                found.append(row | {"family": name, "config": f"{name} {said}", "value": best["scale"], "seed": seed})
        return found


def table(rows: list[dict]) -> xr.Dataset:
    """Label the rows of all runs."""
    about = {name: ("run", [row[name] for row in rows]) for name in ("family", "config", "value", "seed")}
    variables = about | {"direction": ("direction", ["t2i"]), "distractors": ("distractors", list(CONDITIONS))}
    for name in RECALLS:
        values = np.array([row[name] for row in rows])[:, :, None]
        variables[name] = (("run", "distractors", "direction"), values, *retrieval.label(name))
    variables["PR-AUC"] = ("run", [row["PR-AUC"] for row in rows], *retrieval.label("PR-AUC"))
    images = rows[0]["images"]
    notes = {
        "title": "The losses of Table 1 of Cross-Example Softmax on the towers of the example",
        "notes": f"{images[0]:g} images of the test split are ranked, {images[1]:g} with the images of the other "
        "splits as distractors\n"
        "L-Softmax is A-Softmax on unit vectors; annealing 5, the scale is the length of the queries",
        "threads": 1,
    }
    return results.labelled(variables, results.versions() | notes).set_coords(list(about))


def main(work: Path = WORK, out: Path = RESULTS) -> Path:
    """Run the trainings that are not done yet, and write `cross_example.nc`."""
    with one_thread():
        return results.save(table(_Runs(work).rows()), out / "cross_example.nc")


if __name__ == "__main__":
    print(main())
