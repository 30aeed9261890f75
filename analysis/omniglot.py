"""Characters of Omniglot for retrieval among unseen classes: images, views, and edge features.

The paper starts from a network pretrained on ImageNet. Here fixed edge features take its place: the strength of edges
in each of 8 directions in each of 6x6 cells.
"""

import functools
import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

__all__ = ["FILE", "edges", "images", "views"]

FILE = Path(__file__).parent / "data" / "omniglot.npz"
DIRECTIONS, CELLS = 8, 6
# Largest rotation (radians), slant, stretch and shift (in half images) of a view.
TURN, SLANT, STRETCH, SHIFT = 15 * math.pi / 180, 0.15, 0.15, 0.12


def images(split: str) -> tuple[Tensor, Tensor]:
    """Load the images, (N, 35, 35), ink 1 on 0, and their classes, (N,), of `train` or `test`."""
    with np.load(FILE) as held:
        pixels, labels = held[f"{split}_images"], held[f"{split}_labels"]
    return torch.as_tensor(pixels).float() / 255, torch.as_tensor(labels).long()


def moved(pixels: Tensor, turn: Tensor, slant: Tensor, stretch: Tensor, shift: Tensor) -> Tensor:
    """Rotate images, (N, H, W), by radians (N,), slant them (N,), stretch them (N, 2) and shift them (N, 2)."""
    above = torch.stack([stretch[:, 0] * turn.cos(), slant - turn.sin(), shift[:, 0]], dim=1)
    below = torch.stack([turn.sin(), stretch[:, 1] * turn.cos(), shift[:, 1]], dim=1)
    size = (len(pixels), 1, *pixels.shape[1:])
    grid = torch.nn.functional.affine_grid(torch.stack([above, below], dim=1), size, align_corners=False)
    return torch.nn.functional.grid_sample(pixels[:, None], grid, align_corners=False)[:, 0]


def views(pixels: Tensor, number: int, seed: int) -> Tensor:
    """Images and distorted views of them, (number, N, 35, 35); the first view is the image itself."""
    generator, seen = torch.Generator().manual_seed(seed), [pixels]
    for _ in range(number - 1):
        some = 2 * torch.rand(len(pixels), 6, generator=generator) - 1
        seen.append(
            moved(pixels, TURN * some[:, 0], SLANT * some[:, 1], 1 + STRETCH * some[:, 2:4], SHIFT * some[:, 4:])
        )
    return torch.stack(seen)


def _strengths(pixels: Tensor) -> Tensor:
    flat = torch.nn.functional.avg_pool2d(pixels.reshape(-1, 1, *pixels.shape[-2:]), 3, stride=1, padding=1)
    sobel = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]])
    angle = (torch.arange(DIRECTIONS) * 2 * math.pi / DIRECTIONS)[:, None, None]
    kernels = angle.cos() * sobel + angle.sin() * sobel.T
    found = torch.nn.functional.conv2d(flat, kernels[:, None], padding=1).relu()
    cells = torch.nn.functional.adaptive_avg_pool2d(found, CELLS)
    return cells.reshape(*pixels.shape[:-2], -1)


@functools.cache
def _typical() -> tuple[Tensor, Tensor]:
    strengths = _strengths(images("train")[0])
    return strengths.mean(dim=0), strengths.std()


def edges(pixels: Tensor) -> Tensor:
    """Edges of images (..., 35, 35) in 8 directions and 6x6 cells, (..., 288), centred and scaled as for training."""
    mean, deviation = _typical()
    return (_strengths(pixels) - mean) / deviation
