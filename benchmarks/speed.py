"""CPU time and memory of counts: `python -m benchmarks.speed [--against CHECKOUT] [--plain] [--case NAME]`.

Each case runs in turns in one process per checkout, on one thread, next to the same number of scores by `torch.mm` (or
by autograd for losses without a reader). The table has the median ratio of CPU seconds and its range over the rounds.
`--against` adds another checkout of cocos, whose own library must be built.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent.parent
WIDTH = 512
# Rows of the left operand of the bare product, as a batch is cut into tiles.
ROWS = 1024
# Fraction of an embedding's norm by which a pair differs from its cluster, and rows of a cluster.
NOISE, CLUSTER = 0.85, 16


@dataclass(frozen=True)
class Case:
    """A loss on batches of pairs.

    Args:
        loss: name of the loss.
        size: pairs of a batch.
        batches: number of batches.
        width: dimension.
        floor: `product`, or `autograd` for weights by autograd and a threshold.
        parameters: of the loss.
    """

    loss: str
    size: int
    batches: int = 1
    width: int = WIDTH
    floor: str = "product"
    parameters: dict = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Label in the table, and value of `--case`."""
        return f"{self.loss}-{self.size}-{self.width}"


ROUTE = ("circle", "multi_similarity", "fastap", "hcl", "contrastive_cosine", "snm")
CASES = (
    *(Case(loss, 128, 64) for loss in ("ntxent", "triplet")),
    *(Case(loss, 512, 8) for loss in ("ntxent", "triplet")),
    *(Case(loss, size) for size in (2048, 8192) for loss in ("ntxent", "triplet")),
    *(Case(loss, 128, 32, floor="autograd") for loss in ROUTE),
    *(Case(loss, 2048, 1, 64, floor="autograd") for loss in ROUTE),
)


def clustered_pairs(case: Case):
    """Embeddings of pairs, several of which are near each other."""
    import torch
    from torch.nn.functional import normalize

    import cocos

    generator = torch.Generator().manual_seed(0)
    number = case.size * case.batches

    def draw(rows: int):
        return torch.randn(rows, case.width, generator=generator)

    centre = normalize(draw(max(1, number // CLUSTER)))
    centre = centre[torch.randint(len(centre), (number,), generator=generator)]
    pair = normalize(centre + NOISE * draw(number) / case.width**0.5)
    return cocos.Embeddings(*(normalize(pair + NOISE * draw(number) / case.width**0.5) for _ in range(2)))


def floor_of(case: Case, embeddings, loss):
    """Return a function that does the work of the floor."""
    if case.floor == "product":
        left, right = embeddings.query[: min(ROWS, case.size)], embeddings.candidate[: case.size]
        number = case.batches * case.size // len(left)
        return lambda: [left @ right.T for _ in range(number)]
    import torch

    from cocos.embeddings import sampling, scores

    plan = sampling.plan(embeddings, batch_size=case.size)

    def weights_by_autograd():
        for batch in plan.batches:
            for side, rows in ((embeddings, batch), (embeddings.flip(), batch.flip())):
                pairs = scores.pairs(side, rows)
                leaf = pairs.scores.detach().requires_grad_()
                (weight,) = torch.autograd.grad(loss(replace(pairs, scores=leaf)).sum(), leaf)
                ((weight > 0.01) & pairs.negative).sum(dim=1)

    return weights_by_autograd


def serve() -> None:
    """Time cases that arrive on stdin, one JSON document a line, until it ends."""
    import torch

    from cocos import losses, measures

    torch.set_num_threads(1)
    for line in sys.stdin:
        case = Case(**json.loads(line))
        embeddings, loss = clustered_pairs(case), losses.load(case.loss, **case.parameters)
        floor = floor_of(case, embeddings, loss)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for work in (floor, partial(measures.count, embeddings, loss, batch_size=case.size)):
            work()
            begin = time.process_time()
            result = work()
            seconds = time.process_time() - begin
            if work is floor:
                floor_seconds = seconds
        counts = {str(name): int(result["contributing"].sel(direction=name).sum()) for name in result.direction.values}
        peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        row = {"floor": floor_seconds, "seconds": seconds, "mebibytes": peak, "counts": counts}
        print(json.dumps(row), flush=True)


def start(checkout: Path, plain: bool) -> subprocess.Popen:
    """Start a process that serves cases with the cocos of a checkout."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    environment |= {"COCOS_KERNEL": "plain"} if plain else {}
    command = [sys.executable, "-P", str(Path(__file__)), "--serve"]  # -P: cuda.py is not the package cuda
    return subprocess.Popen(command, env=environment, cwd=checkout, stdin=-1, stdout=-1, text=True)


def main() -> None:
    """Print the table; exit 1 if two checkouts count differently."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument("--against", type=Path, help="Another checkout of cocos.")
    parser.add_argument("--plain", action="store_true", help="Add this checkout without its kernel.")
    parser.add_argument("--case", action="append", help="Only the cases whose name begins so.")
    parser.add_argument("--rounds", type=int, default=5, help="Runs of each case.")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        return serve()
    servers = {"this": start(HERE, False)}
    if chosen.plain:
        servers["plain"] = start(HERE, True)
    if chosen.against:
        servers["against"] = start(chosen.against.resolve(), False)
    different = 0
    print(f"{'case':32}", *(f"{name + ' / floor':>22}{'ns':>7}{'MiB':>6}" for name in servers))
    for case in CASES:
        if chosen.case and not case.name.startswith(tuple(chosen.case)):
            continue
        rows: dict[str, list[dict]] = {name: [] for name in servers}
        for _ in range(chosen.rounds):
            for name, server in servers.items():
                server.stdin.write(json.dumps(case.__dict__) + "\n")
                server.stdin.flush()
                rows[name].append(json.loads(server.stdout.readline()))
        cells, scored = [], case.size**2 * case.batches
        for answers in rows.values():
            ratios = sorted(answer["seconds"] / answer["floor"] for answer in answers)
            ns = min(answer["seconds"] for answer in answers) / scored * 1e9
            cells.append(f"{median(ratios):8.2f} [{ratios[0]:5.2f},{ratios[-1]:5.2f}]{ns:7.1f}")
            cells[-1] += f"{max(answer['mebibytes'] for answer in answers):6.0f}"
        equal = len({json.dumps(answers[0]["counts"]) for answers in rows.values()}) == 1
        different += not equal
        print(f"{case.name:32}", *cells, "" if equal else "COUNTS DIFFER", flush=True)
    for server in servers.values():
        server.stdin.close()
        server.wait()
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
