"""Run the second study in the root of the repository: `python -m analysis.hold_study --help`."""

import os
import sys
from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Argument, Option, Typer

# One thread of the linear algebra, so that runs repeat to the last digit; fixed before NumPy is imported.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

app = Typer(add_completion=False, help="The second study: is it worth holding the number of negatives?")
say = Console(stderr=True, highlight=False).print


def _known(part: str) -> str:
    """The name of a part, or an end with exit code 2."""
    from analysis.hold_study import runner

    if part not in runner.EVERY_PART:
        print(f"part {part!r} is unknown, expected one of {', '.join(runner.EVERY_PART)}", file=sys.stderr)
        raise SystemExit(2)
    return part


@app.command()
def run(
    parts: Annotated[list[str] | None, Argument(help="Parts of the plan; all unless named.")] = None,
    work: Annotated[Path, Option(help="Folder in which each row is kept as soon as it is there.")] = Path("hold-work"),
    workers: Annotated[int, Option(help="Processes, one thread each.", min=1)] = 2,
):
    """Run the trainings that are not done yet, and write the results."""
    from analysis.hold_study import runner
    from cocos.base.errors import InputError

    for part in [_known(part) for part in parts or runner.EVERY_PART]:
        try:
            say(str(runner.run(part, work, workers, say)))
        except InputError as error:
            print(error, file=sys.stderr)
            raise SystemExit(2) from None


@app.command()
def again(
    parts: Annotated[list[str] | None, Argument(help="Parts of the plan; all unless named.")] = None,
    numbers: Annotated[
        list[int] | None, Option("--run", help="Number of a stack or training in the part.", min=0)
    ] = None,
):
    """Train three stacks of each part, or those named, once more, and compare every number to the last digit.

    Exit code 1: a number differs.
    """
    from analysis.hold_study import runner
    from cocos.base.errors import InputError

    differs = False
    for part in [_known(part) for part in parts or runner.EVERY_PART]:
        every = len(runner.planned(part))
        for number in numbers or (0, every // 2, every - 1):
            try:
                differing, compared, config = runner.again(part, number)
            except (InputError, FileNotFoundError) as error:
                print(error, file=sys.stderr)
                raise SystemExit(2) from None
            for line in differing[:10]:
                print(line)
            same = f"{compared - len(differing)} of {compared} numbers are the same to the last digit"
            print(f"{part} run {number} ({config}): {same}")
            differs |= bool(differing)
    raise SystemExit(1 if differs else 0)


@app.command()
def page():
    """Compute the numbers from the results, and fill docs/hold_study.md from its template and them."""
    from analysis.hold_study import findings, page
    from cocos.base.errors import InputError

    try:
        say(str(findings.write()))
        say(str(page.write()))
    except InputError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    app()
