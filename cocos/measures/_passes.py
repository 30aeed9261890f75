"""Passes over the batches of a run, stack by stack, by some readers."""

import math
from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

from cocos import engine
from cocos.engine import View
from cocos.engine.prepared import Run
from cocos.engine.readers.lines import LINES_TILE
from cocos.engine.sampling import within


def passes(
    run: Run,
    readers: Callable[[View], Sequence[Sequence]],
    report: Callable[[int, int], None] | None,
    *,
    lines: Callable | None = None,
) -> Iterator[tuple[list[str], list[list[Tensor]], list]]:
    """Run readers over the batches, stack by stack.

    Readers are made for each view, in groups; a group is one run of the engine. Readers of whole lines need `lines`,
    which gives the tiles of a view.

    Yields:
        The directions of a view; the query rows of each batch; and the result of each reader.
    """
    run.embeddings.unchanged()
    made = []
    for stack in run.stacks():
        large = max(math.prod(batch.sizes) for batch in stack) > LINES_TILE
        made += run.views(stack, apart=lines is not None and large)
    for done, (make, names, asking) in enumerate(made):
        view, found = make(), []
        groups = readers(view)
        for place, group in enumerate(groups):
            shown = within(report, done * len(groups) + place, len(made) * len(groups))
            found += engine.run(view, group, tile=lines and lines(view), progress=shown)
        yield names, asking, found
    run.embeddings.unchanged()
