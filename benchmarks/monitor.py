"""Overhead of the monitor in real training loops: `python -m benchmarks.monitor`, see `--help`.

Equal trainings, one without a monitor and others with one, take their steps in turns, in an order drawn anew for each
step, so that a busy machine slows all of them alike. Blocks of steps are timed in CPU seconds of the training's thread
and compared with the same block without a monitor; a second training without one shows what the comparison resolves.
"""

import argparse
import gc
import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import cocos
from cocos.counting import statistics

__all__ = ["Training", "compare", "main", "sentences", "two_towers"]

# Ways in which a block is monitored, by name: the options of `cocos.Monitor`; None: without.
WAYS: dict[str, dict[str, Any] | None] = {
    "without": None,
    "without again": None,
    "every=1": {"every": 1},
    "every=50": {"every": 50},
}
# Width of the inputs and of the hidden layer of a tower, and of the embeddings.
INPUT, HIDDEN, WIDTH = 256, 512, 256
# Steps before the first block.
WARM = 3
# Texts of a batch when a sentence encoder is fine-tuned, and tokens of the longest one.
TEXTS, TOKENS = 32, 32


class Contrast(nn.Module):
    """Cross-entropy of both directions, with a learned scale."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(math.log(20.0)))

    def forward(self, query: Tensor, candidate: Tensor) -> Tensor:
        """Loss of rows that match one to one, ()."""
        scores = self.scale.exp() * functional.normalize(query) @ functional.normalize(candidate).T
        target = torch.arange(len(scores))
        return (functional.cross_entropy(scores, target) + functional.cross_entropy(scores.T, target)) / 2


@dataclass(frozen=True, eq=False)
class Training:
    """A loss, and one step of its training.

    Args:
        name: of the training.
        loss: the module that is monitored.
        step: forward pass, backward pass and update.
    """

    name: str
    loss: nn.Module
    step: Callable[[], None]


def two_towers(batch: int, seed: int = 0) -> Training:
    """Two perceptrons of three layers under a contrastive loss, on noisy views of the same rows."""
    torch.manual_seed(seed)
    towers = [
        nn.Sequential(
            nn.Linear(INPUT, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH)
        )
        for _ in range(2)
    ]
    loss = Contrast()
    parameters = [each for part in (*towers, loss) for each in part.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)

    def step() -> None:
        rows = torch.randn(batch, INPUT)
        sides = [tower(rows + 0.5 * torch.randn_like(rows)) for tower in towers]
        optimizer.zero_grad()
        loss(*sides).backward()
        optimizer.step()

    return Training(f"two towers, B = {batch:,}", loss, step)


def _texts(path: Path, seed: int) -> Iterator[list[tuple[str, str]]]:
    """Yield batches of pairs, without end: the two longest texts of each record of a JSON Lines file."""
    records = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
    texts = [sorted((value for value in each.values() if isinstance(value, str)), key=len) for each in records]
    draw = random.Random(seed)
    while True:
        yield [(each[-2], each[-1]) for each in draw.sample(texts, TEXTS)]


def sentences(model: Path, texts: Path, seed: int = 0) -> Training:
    """Fine-tuning of a sentence encoder of the Transformers library on pairs of texts."""
    from transformers import AutoModel, AutoTokenizer

    torch.manual_seed(seed)
    tokenizer, encoder, loss = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model), Contrast()
    optimizer = torch.optim.AdamW([*encoder.parameters(), *loss.parameters()], lr=2e-5)
    drawn = _texts(texts, seed)
    encoder.train()

    def encode(side: list[str]) -> Tensor:
        tokens = tokenizer(side, padding=True, truncation=True, max_length=TOKENS, return_tensors="pt")
        mask = tokens["attention_mask"][..., None]
        return (encoder(**tokens).last_hidden_state * mask).sum(dim=1) / mask.sum(dim=1)

    def step() -> None:
        batch = next(drawn)
        optimizer.zero_grad()
        loss(encode([one for one, _ in batch]), encode([other for _, other in batch])).backward()
        optimizer.step()

    return Training(f"{Path(model).name} fine-tuned, B = {TEXTS}", loss, step)


def compare(
    make: Callable[[], Training], steps: int, blocks: int, ways: Sequence[str] = tuple(WAYS), seed: int = 0
) -> dict[str, Any]:
    """Measure every way; ratios to the training without a monitor in the same block of steps.

    Args:
        make: builds a training.
        steps: of a block.
        blocks: whose ratios make the interval.
        ways: names of `WAYS`, `without` among them.
        seed: of the order of the ways.
    """
    draw, trainings = random.Random(seed), {name: make() for name in ways}
    for each in trainings.values():
        for _ in range(WARM):
            each.step()
    gc.collect()  # the first collection looks at all that was imported, whoever brings it about
    watched = {name: options for name in ways if (options := WAYS[name]) is not None}
    monitors = {name: cocos.Monitor(trainings[name].loss, **options) for name, options in watched.items()}
    seconds = {name: [0.0] * blocks for name in ways}
    for step in range(steps * blocks):
        order = list(ways)
        draw.shuffle(order)
        for name in order:
            began, start = time.perf_counter(), time.thread_time()
            trainings[name].step()
            seconds[name][step // steps] += time.thread_time() - start
            for other in monitors.keys() - {name}:  # the clock of a monitor stands still while others train
                if monitors[other]._began is not None:
                    monitors[other]._began += time.perf_counter() - began
    rows = {}
    for name in [each for each in ways if each != "without"]:
        logs = [math.log(one / other) for one, other in zip(seconds[name], seconds["without"], strict=True)]
        apart = statistics.paired(logs, [0.0] * blocks)
        percents = [100 * math.expm1(each) for each in (apart.mean, apart.low, apart.high)]
        monitor = monitors.get(name)
        told = {"records": len(monitor.records), "told": monitor.overhead} if monitor else {}
        rows[name] = dict(zip(("percent", "low", "high"), percents, strict=True)) | told
    milliseconds = 1e3 * sorted(seconds["without"])[blocks // 2] / steps
    name = trainings["without"].name
    return {"training": name, "step_ms": milliseconds, "steps": steps, "blocks": blocks, "ways": rows}


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The lines of one training."""
    yield (
        f"{found['training']}: {found['step_ms']:.1f} ms a step without a monitor; {found['blocks']} blocks of "
        f"{found['steps']} steps; change of the CPU time with its 95 % interval"
    )
    for name, row in found["ways"].items():
        told = f", {row['records']} records; it estimates {row['told']:.2f} % of all time" if "told" in row else ""
        yield f"  {name:14} {row['percent']:+6.2f} % [{row['low']:+.2f}, {row['high']:+.2f}]{told}"


def main() -> None:
    """Measure the trainings that are asked for, print each as soon as it is done, and write all to a file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.monitor", description="Overhead of the monitor.")
    parser.add_argument("--batch", type=int, action="append", default=[], metavar="N", help="batch of the two towers")
    parser.add_argument("--model", type=Path, help="folder of a sentence encoder of the Transformers library")
    parser.add_argument("--texts", type=Path, help="pairs of texts, JSON Lines; needed with --model")
    parser.add_argument("--steps", type=int, default=50, help="steps of a block")
    parser.add_argument("--blocks", type=int, default=8, help="blocks, at least 2")
    parser.add_argument("--way", action="append", choices=[*WAYS][1:], help="only this way beside none (repeatable)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements to this file")
    chosen = parser.parse_args()
    if chosen.model and not chosen.texts:
        parser.error("--model needs --texts")
    torch.set_num_threads(1)
    makers = [partial(two_towers, batch) for batch in chosen.batch or ([] if chosen.model else [128, 1024])]
    makers += [partial(sentences, chosen.model, chosen.texts)] if chosen.model else []
    ways, found = ["without", *(chosen.way or [*WAYS][1:])], []
    for make in makers:
        found.append(compare(make, chosen.steps, chosen.blocks, ways))
        print("\n".join(lines(found[-1])), flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
