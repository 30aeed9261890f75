"""Random and adversarial inputs of the exactness script, each determined by its number."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from cocos.embeddings import Embeddings
from cocos.embeddings.sampling import Batch

__all__ = ["Draw", "draw"]

EDGES = (15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 192, 255, 256, 257, 383, 384, 385, 511, 512, 513)
WIDTHS = (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 64, 100, 128, 256, 384, 512)
KINDS = ("pairs", "dyadic", "duplicates", "clusters", "collapsed", "same", "ascending", "ulps", "opposite", "lengths")
STRUCTURES = (
    "pairs",
    "paired",
    "captions",
    "groups",
    "labelled",
    "proxies",
    "rectangle",
    "negatives",
    "stack",
    "ragged",
)
METRICS = 12 * ["cosine"] + 2 * ["euclidean"] + 2 * ["squared_euclidean"] + ["dot", "cosine_dot"]
DTYPES = 7 * [torch.float32] + 2 * [torch.float64] + [torch.float16]
# Maximum number of rows a side.
LARGEST = 3000


@dataclass(frozen=True, eq=False)
class Draw:
    """Embeddings, and the batches to check.

    Args:
        number: number of the draw.
        kind: kind of vectors.
        structure: kind of groups and batches.
        embeddings: the set.
        batches: None is the whole set.
        metric: metric of the scores.
        same_group: `ignore` or `negative`.
        losses: name and parameters of each loss.
    """

    number: int
    kind: str
    structure: str
    embeddings: Embeddings
    batches: tuple[Batch | None, ...]
    metric: str
    same_group: str
    losses: tuple[tuple[str, dict], ...]

    def __str__(self):
        e = self.embeddings
        names = ", ".join(f"{name} {parameters}" for name, parameters in self.losses)
        dtype = str(e.query.dtype).removeprefix("torch.")
        shape = f"{len(e.query)} x {len(e.candidate)} x {e.query.shape[1]}"
        return f"{self.kind}, {self.structure}, {shape}, {dtype}, {self.metric}, {len(self.batches)} batches: {names}"


def _size(random: np.random.Generator, large: bool) -> int:
    turn = random.random()
    if large and turn > 0.997:
        return int(random.integers(700, LARGEST + 1))
    if turn > 0.985:
        return int(random.integers(200, 700))
    if turn > 0.92:
        return int(random.choice(EDGES))
    return int(random.integers(2, 13) if turn < 0.4 else random.integers(13, 120))


def _unit(rows: int, width: int, generator: torch.Generator) -> Tensor:
    return normalize(torch.randn(rows, width, generator=generator, dtype=torch.float64))


def _vectors(kind: str, own: Tensor, width: int, random: np.random.Generator) -> Tensor:
    """Draw float64 vectors, (n, width), given their groups: rows of one group are close to each other."""
    generator = torch.Generator().manual_seed(int(random.integers(2**31)))
    number, groups = len(own), int(own.max()) + 1
    centre = _unit(groups, width, torch.Generator().manual_seed(groups * 1000 + width))[own]
    if kind == "dyadic":  # unit norms and exact products: scores are multiples of 1 / 4
        exact = max(width, 4)
        rows = torch.zeros(number, exact, dtype=torch.float64)
        place = torch.rand(number, exact, generator=generator).topk(4).indices
        signs = torch.randint(0, 2, (number, 4), generator=generator).double() - 0.5
        alone = torch.rand(number, 1, generator=generator) < 0.3
        values = torch.where(alone, 2 * signs * torch.tensor([1.0, 0, 0, 0]), signs)
        return rows.scatter_(1, place, values)
    noise = float(random.choice([0.3, 1.0, 2.0]))
    vectors = centre + noise * _unit(number, width, generator)
    vectors = torch.where((vectors == 0).all(dim=1, keepdim=True), centre, normalize(vectors))
    if kind == "duplicates":
        pool = vectors[torch.randint(0, number, (max(2, number // 4),), generator=generator)]
        vectors = pool[torch.randint(0, len(pool), (number,), generator=generator)]
    elif kind == "clusters":
        many = max(1, number // int(random.choice([4, 16, 64])))
        centre = _unit(many, width, torch.Generator().manual_seed(many))
        where = torch.randint(0, many, (number,), generator=generator)
        away = float(random.choice([0.1, 0.03, 0.001]))
        vectors = normalize(centre[where] + away * _unit(number, width, generator))
    elif kind in {"collapsed", "same"}:
        away = float(random.choice([1e-2, 1e-4, 1e-6])) if kind == "collapsed" else 0.0
        axis = _unit(1, width, torch.Generator().manual_seed(width))
        vectors = (
            normalize(axis + away * _unit(number, width, generator)) if away else axis.expand(number, width).clone()
        )
    elif kind == "ascending":
        axis, part = _unit(1, width, torch.Generator().manual_seed(width)), torch.linspace(-0.9, 0.9, number)[:, None]
        vectors = normalize(part.double() * axis + 0.3 * _unit(number, width, generator))
    elif kind == "ulps":  # a few distinct rows, with the last bit of some entries changed
        base = vectors[torch.randint(0, max(2, number // 8), (number,), generator=generator) % number].float()
        step = torch.randint(-1, 2, base.shape, generator=generator).float() * 2.0**-23
        vectors = (base * (1 + step)).double()
    elif kind == "opposite":
        vectors = vectors * (torch.randint(0, 2, (number, 1), generator=generator) * 2 - 1)
    elif kind == "lengths":
        vectors = vectors * torch.exp(torch.randn(number, 1, generator=generator, dtype=torch.float64))
    return vectors


def _pick(random: np.random.Generator, *values):
    return values[int(random.integers(len(values)))]


def _parameters(name: str, random: np.random.Generator) -> dict:
    temperature = _pick(random, 0.01, 0.02, 0.05, 0.1, 0.1, 0.5, 1.0)
    scale = _pick(random, 1.0, 5.0, 20.0, 64.0)
    if name in {"ntxent", "supcon", "normalized_softmax"}:
        return {"temperature": temperature}
    if name == "smoothap":
        return {"temperature": _pick(random, 0.01, 0.05, 0.1)}
    if name.startswith("triplet"):
        return {"margin": _pick(random, 0.0, 0.05, 0.2, 0.25, 0.5)}
    if name in {"sampled_softmax", "ce_softmax", "l2_softmax", "proxynca", "proxynca_pp"}:
        return {"scale": scale}
    if name == "siglip":
        return {"scale": _pick(random, 5.0, 10.0, 30.0, 117.0), "bias": _pick(random, -90.0, -12.9, -10.0, 0.0, 2.5)}
    if name == "snm":
        return {"scale": scale, "fraction": _pick(random, 0.05, 0.1, 0.29, 0.5, 0.9, 1.0)}
    if name in {"arcface", "cosface"}:
        return {"scale": scale, "margin": _pick(random, 0.0, 0.1, 0.35, 0.5)}
    if name == "magface":
        return {"scale": scale, "l_a": 0.5, "u_a": 2.0, "l_m": 0.1, "u_m": 0.8}
    if name == "euclidean_softmax":
        return {"f1": _pick(random, "t", "t^2", "sqrt", "1.5"), "f2": _pick(random, "t", "0.5"), "scale": scale}
    if name == "warped_softmax":
        warp = {"alpha": _pick(random, 0.0, 0.5, 1.0, 3.0), "k1": _pick(random, 0.65, 1.0)}
        return warp | {
            "k2": _pick(random, 1.0, 1.5),
            "delta": _pick(random, 0.0, 1.0),
            "scale": _pick(random, 1.0, 5.0),
        }
    return {"smoothing": 0.0} if name == "linear_softmax" else {}


LOSSES = {
    "cosine": "ntxent ntxent supcon triplet triplet triplet_sh smoothap smoothap ce_softmax snm snm arcface "
    "cosface magface sampled_softmax normalized_softmax siglip siglip",
    "euclidean": "euclidean_softmax warped_softmax triplet_euclidean",
    "squared_euclidean": "proxynca proxynca_pp triplet_squared",
    "dot": "n_pair linear_softmax",
    "cosine_dot": "l2_softmax",
}


def _labels(structure: str, number: int, random: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Draw the groups of queries and candidates."""
    if structure == "captions":
        return torch.arange(number), torch.arange(number).repeat_interleave(int(random.integers(2, 6)))
    if structure in {"groups", "labelled"}:
        groups = max(2, number // int(random.choice([2, 3, 6])))
        first = torch.from_numpy(random.integers(groups, size=number))
        other = torch.from_numpy(random.integers(groups, size=max(2, int(number * random.choice([0.7, 1, 1.6])))))
        return first, other
    if structure == "proxies":
        classes = max(2, number // int(random.choice([1, 2, 5])))
        each = int(random.choice([1, 1, 2]))
        return torch.from_numpy(random.integers(classes, size=number)), torch.arange(classes * each) % classes
    if structure == "rectangle":
        return torch.arange(number), torch.arange(number + int(random.integers(1, 3 * number)))
    if structure == "paired":
        group = torch.from_numpy(random.integers(max(2, number // 2), size=number))
        return group, group.clone()
    return torch.arange(number), torch.arange(number)


def _batches(structure: str, number: int, random: np.random.Generator, group: Tensor) -> tuple[Batch | None, ...]:
    every = torch.from_numpy(random.permutation(number))
    if structure == "paired":
        return (Batch(every, every, paired=True),)
    if structure == "negatives":
        asking = max(2, number // 2)
        extra = [row for row in every[asking:].tolist() if group[row] not in group[every[:asking]]]
        columns = torch.cat([every[:asking], torch.tensor(extra, dtype=torch.int64)])
        return (Batch(every[:asking], columns, paired=True, extra=len(extra)),)
    if structure in {"stack", "ragged"}:
        size = max(2, number // int(random.integers(2, 6)))
        parts = every.split(size)
        if structure == "stack":
            parts = [part for part in parts if len(part) == size]
        elif number > 8:
            parts = every.split([2, *[max(2, (number - 2) // 3)] * 2, number - 2 - 2 * max(2, (number - 2) // 3)])
        return tuple(Batch(part, part, paired=True) for part in parts if len(part) > 1)
    return (None,)


def _collide(losses: list, query: np.ndarray, candidate: np.ndarray, random: np.random.Generator) -> list:
    """Choose margins of hinges on cosines so that some negative ties with the threshold to the last bit of a double."""
    found = []
    for name, p in losses:
        if name in {"triplet", "triplet_sh"} and random.random() < 0.4:
            row, own, other = (int(random.integers(len(side))) for side in (query, candidate, candidate))
            values = [
                query[row] @ candidate[k] / np.linalg.norm(query[row]) / np.linalg.norm(candidate[k])
                for k in (own, other)
            ]
            margin = abs(values[0] - values[1]) * float(random.choice([1, 1, 1 + 1e-9, 1 - 1e-9, 1 + 1e-7, 1 - 1e-7]))
            found.append((name, p | {"margin": float(margin)}))
        else:
            found.append((name, p))
    return found


def draw(number: int, seed: int = 0, *, large: bool = True) -> Draw:
    """Return the draw of a number and a seed, always the same.

    Args:
        number: number of the draw.
        seed: seed of the run.
        large: allow up to 3,000 rows a side.
    """
    random = np.random.default_rng([seed, number])
    metric = METRICS[int(random.integers(len(METRICS)))]
    kind, structure = _pick(random, *KINDS), _pick(random, *STRUCTURES)
    if metric == "cosine_dot":  # its other direction needs another product
        structure = _pick(random, "proxies", "rectangle")
    size, width = _size(random, large), int(random.choice(WIDTHS))
    if size > 700:
        structure, width = (
            _pick(random, "pairs", "captions", "groups", "labelled", "rectangle", "stack"),
            min(width, 128),
        )
        structure = "rectangle" if metric == "cosine_dot" else structure
        size = size // 3 if structure == "captions" else size
    dtype = DTYPES[int(random.integers(len(DTYPES)))]
    groups, others = _labels(structure, size, random)
    if structure == "labelled":
        embeddings = Embeddings.labelled(_vectors(kind, groups, width, random).to(dtype), groups)
    else:
        everyone = _vectors(kind, torch.cat([groups, others]), width, random).to(dtype)
        query, candidate = everyone[: len(groups)], everyone[len(groups) :]
        names = {"proxies": ("s2p",), "rectangle": ("q2c",)}.get(structure, ("q2c", "c2q"))
        embeddings = Embeddings(query, candidate, groups, others, names)
    batches = _batches(structure, size, random, groups)
    same_group = _pick(random, "ignore", "negative") if structure == "paired" else "ignore"
    every = LOSSES[metric].split()
    names = list(dict.fromkeys(every[int(k)] for k in random.integers(len(every), size=5)))
    losses = [(name, _parameters(name, random)) for name in names]
    if metric == "cosine":
        wide = [side.double().numpy() for side in (embeddings.query, embeddings.candidate)]
        losses = _collide(losses, *wide, random)
    return Draw(number, kind, structure, embeddings, batches, metric, same_group, tuple(losses))


def shares_eps(share: np.ndarray, random: np.random.Generator) -> float:
    """Choose an eps: usual, extreme, or equal to one of the shares to the last bit of a double."""
    there = share[(share > 1e-6) & (share < 10)]
    if len(there) and random.random() < 0.35:
        factor = float(random.choice([1, 1, 1, 1 + 1e-13, 1 - 1e-13, 1 + 1e-9, 1 - 1e-9, 1 + 1e-7, 1 - 1e-7, 1 + 1e-5]))
        return float(there[int(random.integers(len(there)))]) * factor
    return float(_pick(random, 0.01, 0.01, 0.01, 0.001, 0.1, 0.25, 0.5, 1e-4, 1.0))
