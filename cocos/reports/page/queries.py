"""Queries of the page one by one, as the JSON document that its map, its table and its drawer read.

The page has the document in `<script type="application/json" id="queries-data">`, or no such element where a page has
no queries (results alone). Every number is of the first batch that contains the query, as in `cocos plot contributors`.

```
{"directions": [                    in the order of the count; at least one
   {"name": "i2t",
    "asks": 0, "ranked": 1,         places in "rows" of the side that asks and the side that is ranked
    "eps": 0.01,
    "unit": "share",                what `contributing` compares with eps: "share" of the natural unit, or "part" of the
                                    push where the unit of the loss is not known
    "total": 2497,                  queries of the direction; there are as many in "queries", or a sample of them
    "note": "",                     a sentence on the sample, or on what was left out; empty for all
    "queries": [                    by rising row
      {"row": 17,                   row of the query in its file
       "x": 0.1, "y": -0.3,         place on the map: first two principal components of the side that asks
       "effective": 4.2,            effective number of negatives, null where nothing pushes
       "contributing": 3,           negatives above eps
       "hardest": 0.41,             part of the push on the heaviest negative, 0 to 1
       "push": 0.83,                sum of the weights that push
       "rank": 1,                   1 + negatives of the batch that score above the best positive, null without one
       "idle": false,               no negative contributes
       "positives": [[j, part, score], ...],   part of the pull, the largest first, at most 5; j is a row of "ranked"
       "top": [[j, part, score], ...],         negatives, part of the push, the largest first, at most 20; a part below
                                               0 is a negative that is pulled
       "rest": 0.12,                part of the push on all other negatives together
       "negatives": 511}            negatives in the batch
    ]}, ...],
 "rows": [                          what a row looks like, by its number as text: side 0, and side 1 where it differs
   {"17": {"text": "a cat", "image": "data:image/webp;base64,..."}, ...}, {...}]}
```

`text` and `image` are left out where a row has none; `name(row)` is then "row 17". Texts are strangers': they are shown
by `textContent`, and an image only as the `src` of an `img`. All are deterministic.
"""

import base64
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from cocos.base import terminal
from cocos.checkpoints import Checkpoint
from cocos.counting import statistics
from cocos.counting.weights import check_pairs
from cocos.data.training_set import Items, PictureOf, TextOf
from cocos.embeddings import Embeddings
from cocos.embeddings.annotations import Picture
from cocos.embeddings.options import Sampling
from cocos.embeddings.sampling import Batch
from cocos.embeddings.scores import Pairs
from cocos.embeddings.similarities import NORMALISED_SIDES, length
from cocos.measures.shared.prepared import Run, prepare

# Scores of a direction that are weighed for the page: of a larger set, its first batches, which are drawn at random.
VISITED_SCORES = 2**20
# Rows that the map's axes are computed of.
MAP_ROWS = 512
# Side of a thumbnail in pixels, and the quality of WebP.
THUMBNAIL_PIXELS, QUALITY = 32, 50
MOST_POSITIVES = 5
# What is left out of a large document, step by step: queries of a direction, negatives of each, characters of a text,
# and thumbnails.
DOCUMENT_STEPS = ((2500, 20, 160, 2500), (2500, 20, 160, 1000), (1500, 20, 160, 1000), (1500, 10, 160, 1000),
         (1000, 10, 120, 1000), (500, 10, 80, 400), (200, 10, 80, 100))  # fmt: skip
# Bytes of a query without its negatives, and of one of these, by which a step that is too large is not tried.
QUERY_BYTES, NEGATIVE_BYTES = 230, 21
# Bytes of the document: with a charting runtime of 0.5 MB and the pictures a page stays below 3 MB.
DOCUMENT_BYTES = 1_750_000


@dataclass
class Visited:
    """Numbers of the queries of a direction that were visited, each at its first place: name -> blocks of (q, ...)."""

    row: list[Tensor] = field(default_factory=list)
    numbers: dict[str, list[Tensor]] = field(default_factory=dict)

    def add(self, rows: Tensor, found: dict[str, Tensor]) -> None:
        """Add a block of queries."""
        self.row.append(rows.cpu())
        for name, values in found.items():
            self.numbers.setdefault(name, []).append(values.cpu())

    @property
    def number(self) -> int:
        """Of the queries, each once."""
        return len(torch.cat(self.row).unique())

    def whole(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Rows of the queries in rising order, and their numbers."""
        rows, place = np.unique(torch.cat(self.row).numpy(), return_index=True)
        return rows, {name: _stacked(blocks)[place] for name, blocks in self.numbers.items()}


def _stacked(blocks: Sequence[Tensor]) -> np.ndarray:
    """Blocks below each other, of which narrow ones are filled up with NaN."""
    if blocks[0].ndim == 1:
        return torch.cat(list(blocks)).numpy()
    width = max(each.shape[1] for each in blocks)
    fill = [torch.nn.functional.pad(each, (0, width - each.shape[1]), value=torch.nan) for each in blocks]
    return torch.cat(fill).numpy()


def document(
    source: Embeddings | Checkpoint, loss: Any, eps: float, items: Items | None, **sampling: Unpack[Sampling]
) -> dict[str, Any]:
    """The queries of the page, as the docstring of this module has them.

    Args:
        source: embeddings, or a checkpoint.
        loss: a loss.
        eps: smallest share that contributes.
        items: texts and pictures of the rows; None: none.
        **sampling: options of the batches, those of the count.

    Examples:
        >>> from cocos.reports.page import queries
        >>> rows = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
        >>> made = queries.document(cocos.Embeddings(rows, rows + 0.1), cocos.losses.load("ntxent"), 0.01, None)
        >>> [(each["name"], each["total"], len(each["queries"])) for each in made["directions"]]
        [('q2c', 64, 64), ('c2q', 64, 64)]
    """
    run = prepare(source, loss, eps=eps, everything=True, **sampling)
    check_pairs(run.loss, "contributors")
    seen = [_visited(run, side, second) for _, side, second in run.sides]
    thumbnails: dict[tuple[int, int], str] = {}
    for step in DOCUMENT_STEPS:
        queries = sum(min(step[0], each.number) for each in seen)
        if queries * (QUERY_BYTES + NEGATIVE_BYTES * step[1]) > DOCUMENT_BYTES and step != DOCUMENT_STEPS[-1]:
            continue
        made = _document(run, seen, items, step, thumbnails)
        if len(packed(made)) <= DOCUMENT_BYTES:
            break
    return made


def packed(made: dict[str, Any]) -> str:
    """The document as JSON without spaces."""
    return json.dumps(made, allow_nan=False, sort_keys=True, separators=(",", ":"))


def _visited(run: Run, side: Embeddings, second: bool) -> Visited:
    """Weigh the first batches of a direction."""
    found, scores = Visited(), 0
    for drawn in run.plan.batches:
        if scores >= VISITED_SCORES:
            break
        batch, start = drawn.flip() if second else drawn, 0
        seen = run.seen(batch)
        scores += len(seen.query_index) * len(seen.candidate_index)
        for pairs, weights, unit in run.blocks(side, batch, whole=False):
            rows = seen.query_index[start : start + len(pairs.scores)]
            found.add(rows, _numbers(run, seen, pairs, weights, unit))
            start += len(rows)
    return found


def _numbers(run: Run, batch: Batch, pairs: Pairs, weights: Tensor, unit: Tensor) -> dict[str, Tensor]:
    """Numbers of the queries of a block, (q,) and (q, k)."""
    spread, width = statistics.spread(weights, pairs), len(batch.candidate_index)
    share = weights.abs() / unit
    above = statistics.relative(spread, run.eps or 0.0) if share.isnan().any() else None
    above = statistics.contributing(share, pairs, run.eps or 0.0) if above is None else above
    best = pairs.scores.masked_fill(~pairs.positive, -torch.inf).amax(dim=1, keepdim=True)
    ahead = ((pairs.scores > best) & pairs.negative).sum(dim=1) + 1
    push = statistics.push_of_negatives(weights, pairs).sum(dim=1)
    found = {
        "effective": statistics.effective(spread),
        "contributing": above,
        "hardest": spread.amax(dim=1),
        "push": push,
        "rank": torch.where(best[:, 0].isfinite(), ahead, 0),
        "negatives": pairs.negative.sum(dim=1),
    }
    pull = statistics.pull(weights).clamp(min=torch.finfo(weights.dtype).tiny)[:, None]
    part = weights / push.clamp(min=torch.finfo(weights.dtype).tiny)[:, None]
    for name, values, mask, most in (
        ("top", part, pairs.negative, DOCUMENT_STEPS[0][1]),
        ("positives", -weights / pull, pairs.positive, MOST_POSITIVES),
    ):
        size = torch.where(mask, values.abs(), -1.0)[:, :width]
        order = size.argsort(dim=1, descending=True, stable=True)[:, :most]
        there = size.gather(1, order) > (0 if name == "top" else -1)
        columns = {
            "row": batch.candidate_index[order],
            "part": values[:, :width].gather(1, order),
            "score": pairs.scores[:, :width].gather(1, order),
        }
        for key, entries in columns.items():
            found[f"{name}_{key}"] = torch.where(there, entries.double(), torch.nan)
    return found


def _document(
    run: Run,
    seen: Sequence[Visited],
    items: Items | None,
    step: tuple[int, int, int, int],
    thumbnails: dict[tuple[int, int], str],
) -> dict[str, Any]:
    """The document with as many queries, negatives, characters and thumbnails as a step has."""
    most, top, longest, images = step
    directions, shown = [], tuple(_Shown(side, longest, images, thumbnails) for side in range(2))
    for (name, side, second), visited in zip(run.sides, seen, strict=True):
        asks = int(second)
        ranked = asks if side.shared else 1 - asks
        texts = items.texts(name) if items else (None, None)
        pictures = items.pictures(name) if items else (None, None)
        for place, text, picture in zip((asks, ranked), texts, pictures, strict=True):
            shown[place].text, shown[place].picture = text, picture
        rows, values = visited.whole()
        total, kept = len(side.query), _sampled(values["hardest"], most)
        places = _map(side.query, rows[kept], run.loss.metric)
        entries = [
            _entry(int(rows[one]), places[order], {key: array[one] for key, array in values.items()}, top)
            for order, one in enumerate(kept)
        ]
        for entry in entries:
            shown[asks].show(entry["row"])
        for entry in entries:
            for each in (*entry["positives"], *entry["top"]):
                shown[ranked].show(each[0])
        directions.append({
            "name": name, "asks": asks, "ranked": ranked, "eps": run.eps, "total": total,
            "unit": "part" if np.isnan(values["contributing"]).any() else "share",
            "note": _note(len(kept), len(rows), total, step), "queries": entries,
        })  # fmt: skip
    kinds = [each.rows for each in shown]
    return {"directions": directions, "rows": kinds if kinds[1] else kinds[:1]}


def _sampled(hardest: np.ndarray, most: int) -> np.ndarray:
    """Places of at most so many queries, evenly drawn in the order of the part of their heaviest negative."""
    if len(hardest) <= most:
        return np.arange(len(hardest))
    order = np.argsort(hardest, kind="stable")
    return np.sort(order[np.linspace(0, len(order) - 1, most).round().astype(int)])


def _note(kept: int, visited: int, total: int, step: tuple[int, int, int, int]) -> str:
    """What the document leaves out."""
    said = []
    if kept < total:
        of = "" if visited == total else f", of the {visited:,} of the first batches"
        said.append(f"{kept:,} of {total:,} queries{of}, evenly drawn by the part of their heaviest negative")
    if step[1] < DOCUMENT_STEPS[0][1]:
        said.append(f"their {step[1]} heaviest negatives")
    return "; ".join(said)


def header(made: dict[str, Any]) -> str:
    """What the document leaves out, of all directions together; empty for nothing."""
    some = [
        f"{len(each['queries']):,} of {each['total']:,} queries of {each['name']}"
        for each in made["directions"]
        if len(each["queries"]) < each["total"]
    ]
    rest = next((each["note"] for each in made["directions"] if each["note"]), "")
    few = rest.rpartition("; ")[2] if not some or "; " in rest else ""
    said = [f"{' and '.join(some)}, evenly drawn by the part of their heaviest negative"] if some else []
    return "; ".join([*said, *([few] if few else [])])


def _entry(row: int, place: np.ndarray, values: dict[str, np.ndarray], top: int) -> dict[str, Any]:
    listed = {
        name: [
            [int(j), _rounded(part, 4), _rounded(score, 3)]
            for j, part, score in zip(*(values[f"{name}_{key}"] for key in ("row", "part", "score")), strict=True)
            if not np.isnan(j)
        ]
        for name in ("positives", "top")
    }
    listed["top"] = listed["top"][:top]
    held = sum(each[1] for each in listed["top"] if each[1] > 0)
    contributing = None if np.isnan(values["contributing"]) else int(values["contributing"])
    return {
        "row": row,
        "x": _rounded(place[0], 3),
        "y": _rounded(place[1], 3),
        "effective": _rounded(values["effective"], 2),
        "contributing": contributing,
        "hardest": _rounded(values["hardest"], 4),
        "push": _rounded(values["push"], 4),
        "rank": int(values["rank"]) or None,
        "idle": contributing == 0,
        **listed,
        "rest": _rounded(max(0.0, 1 - held), 4) if values["push"] > 0 else 0.0,
        "negatives": int(values["negatives"]),
    }


def _rounded(value: float, digits: int) -> float:
    """A number with few digits, and no -0."""
    return round(float(value), digits) + 0.0


def _map(rows: Tensor, chosen: np.ndarray, metric: str) -> np.ndarray:
    """First two principal components of some rows, (n, 2), of axes that at most `MAP_ROWS` drawn rows give."""
    unit = "query" in NORMALISED_SIDES.get(metric, ())

    def read(index: Tensor) -> Tensor:
        some = rows[index.to(rows.device)].double().cpu()
        return some / length(some)[:, None] if unit else some

    fit = read(torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:MAP_ROWS])
    mean = fit.mean(dim=0)
    axes = torch.linalg.svd(fit - mean, full_matrices=False).Vh[:2]
    largest = axes.gather(1, axes.abs().argmax(dim=1, keepdim=True))  # an axis has two signs
    found = (read(torch.from_numpy(chosen)) - mean) @ (axes * largest.sign()).T
    scale = found.abs().amax().item() or 1.0
    return torch.nn.functional.pad(found / scale, (0, 2 - found.shape[1])).numpy()


@dataclass
class _Shown:
    """Rows of a side as people see them, each once."""

    side: int
    longest: int
    images: int
    thumbnails: dict[tuple[int, int], str]
    text: TextOf | None = None
    picture: PictureOf | None = None
    rows: dict[str, dict[str, str]] = field(default_factory=dict)

    def show(self, row: int) -> None:
        """Add a row."""
        if str(row) in self.rows:
            return
        entry = self.rows[str(row)] = {}
        if self.text is not None:
            said = terminal.clean(" ".join(self.text(row).split()))
            if not said.startswith(f"row {row}, group "):  # of a row that has no name
                entry["text"] = terminal.bounded(said, self.longest)
        if self.picture is not None and self.images > 0:
            self.images -= 1
            key = self.side, row
            if key not in self.thumbnails:
                found = self.picture(row)
                self.thumbnails[key] = "" if found is None else thumbnail(found)
            if self.thumbnails[key]:
                entry["image"] = self.thumbnails[key]


def thumbnail(picture: Picture) -> str:
    """A picture as the address of a small one."""
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(picture))
    image.thumbnail((THUMBNAIL_PIXELS, THUMBNAIL_PIXELS))
    made = io.BytesIO()
    image.save(made, "WEBP", quality=QUALITY)
    return f"data:image/webp;base64,{base64.b64encode(made.getvalue()).decode()}"
