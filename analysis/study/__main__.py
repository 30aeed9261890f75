"""Run the study: `python -m analysis.study run` in the root of the repository."""

import sys
from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Argument, Option, Typer

app = Typer(add_completion=False, help="The study: does counting contributing negatives explain recall?")
say = Console(stderr=True, highlight=False).print


@app.command()
def run(
    parts: Annotated[list[str] | None, Argument(help="Parts of the plan; all unless named.")] = None,
    work: Annotated[Path, Option(help="Folder in which each row is kept as soon as it is there.")] = Path("study-work"),
    workers: Annotated[int, Option(help="Processes, one thread each.", min=1)] = 2,
):
    """Run the trainings that are not done yet, and write the results."""
    from analysis.study import plan, runner

    unknown = [name for name in parts or () if name not in plan.PARTS]
    if unknown:
        print(f"part {unknown[0]!r} is unknown, expected one of {', '.join(plan.PARTS)}", file=sys.stderr)
        raise SystemExit(2)
    for part in parts or plan.PARTS:
        say(str(runner.run(part, work, workers, say)))


if __name__ == "__main__":
    app()
