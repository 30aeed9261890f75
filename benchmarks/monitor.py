"""Overhead of the monitor in a training loop: `python -m benchmarks.monitor [--batch N]`.

Equal trainings of two towers, without a monitor and with one, take their steps in turns, in a new random order each
step, so that a busy machine slows all of them alike. CPU seconds of blocks of steps are compared with the same block
without a monitor; a second training without one shows the resolution of the comparison.
"""

import argparse
import math
import random
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

import cocos
from cocos.counting import statistics

# Training -> options of its monitor; None: it has none.
TRAININGS = {"without": None, "without again": None, "every=1": {"every": 1}, "every=50": {"every": 50}}
INPUT_WIDTH, HIDDEN_WIDTH, WIDTH = 256, 512, 256
WARMUP_STEPS, BLOCK_STEPS, BLOCKS = 3, 50, 8


class Contrast(nn.Module):
    """Cross-entropy of both directions, with a learned scale."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(math.log(20.0)))

    def forward(self, query: Tensor, candidate: Tensor) -> Tensor:
        """Return the loss of rows that match one to one, ()."""
        scores = self.scale.exp() * functional.normalize(query) @ functional.normalize(candidate).T
        target = torch.arange(len(scores))
        return (functional.cross_entropy(scores, target) + functional.cross_entropy(scores.T, target)) / 2


def make_training(batch: int) -> tuple[nn.Module, Callable[[], None]]:
    """Return the loss and one step of a training of two perceptrons on noisy views of the same rows."""
    torch.manual_seed(0)
    layers = (INPUT_WIDTH, HIDDEN_WIDTH), (HIDDEN_WIDTH, HIDDEN_WIDTH), (HIDDEN_WIDTH, WIDTH)
    first, second = (
        nn.Sequential(*(part for sizes in layers for part in (nn.Linear(*sizes), nn.GELU()))) for _ in range(2)
    )
    loss = Contrast()
    parameters = [*first.parameters(), *second.parameters(), *loss.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)

    def step() -> None:
        rows = torch.randn(batch, INPUT_WIDTH)
        sides = [tower(rows + 0.5 * torch.randn_like(rows)) for tower in (first, second)]
        optimizer.zero_grad()
        loss(*sides).backward()
        optimizer.step()

    return loss, step


def compare(batch: int) -> None:
    """Print the overhead of each training in percent, with its 95 % interval over the blocks."""
    trainings = {name: make_training(batch) for name in TRAININGS}
    for _, step in trainings.values():
        for _ in range(WARMUP_STEPS):
            step()
    for name, options in TRAININGS.items():
        if options is not None:
            cocos.Monitor(trainings[name][0], **options)
    seconds = {name: [0.0] * BLOCKS for name in TRAININGS}
    order, generator = list(TRAININGS), random.Random(0)
    for number in range(BLOCK_STEPS * BLOCKS):
        generator.shuffle(order)
        for name in order:
            start = time.thread_time()
            trainings[name][1]()
            seconds[name][number // BLOCK_STEPS] += time.thread_time() - start
    milliseconds = 1e3 * sorted(seconds["without"])[BLOCKS // 2] / BLOCK_STEPS
    print(f"two towers, B = {batch:,}: {milliseconds:.1f} ms a step without a monitor")
    for name in list(TRAININGS)[1:]:
        logs = [math.log(one / other) for one, other in zip(seconds[name], seconds["without"], strict=True)]
        ratio = statistics.paired(logs, [0.0] * BLOCKS)
        mean, low, high = (100 * math.expm1(value) for value in (ratio.mean, ratio.low, ratio.high))
        print(f"  {name:14} {mean:+6.2f} % [{low:+.2f}, {high:+.2f}]", flush=True)


def main() -> None:
    """Measure the batch sizes that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.monitor", description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, action="append", metavar="N", help="batch size, repeatable; 128 and 1,024")
    torch.set_num_threads(1)
    for batch in parser.parse_args().batch or [128, 1024]:
        compare(batch)


if __name__ == "__main__":
    main()
