"""Run the second study in the root of the repository: `python -m analysis.hold_study --help`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from analysis.console import compared, known, refused, say

app = Typer(add_completion=False, help="The second study: is it worth holding the number of negatives?")


@app.command()
def run(
    parts: Annotated[list[str] | None, Argument(help="Parts of the plan; all unless named.")] = None,
    work: Annotated[Path, Option(help="Folder in which each row is kept as soon as it is there.")] = Path("hold-work"),
    workers: Annotated[int, Option(help="Processes, one thread each.", min=1)] = 2,
):
    """Run the trainings that are not done yet, and write the results."""
    from analysis.hold_study import runner
    from cocos.base.errors import InputError

    for part in known("part", parts or runner.EVERY_PART, runner.EVERY_PART):
        try:
            say(str(runner.run(part, work, workers, say)))
        except InputError as error:
            raise refused(error) from None


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

    same = True
    for part in known("part", parts or runner.EVERY_PART, runner.EVERY_PART):
        every = len(runner.planned(part))
        for number in numbers or (0, every // 2, every - 1):
            try:
                found = runner.again(part, number)
            except (InputError, FileNotFoundError) as error:
                raise refused(error) from None
            same &= compared(f"{part} run {number}", *found)
    raise SystemExit(0 if same else 1)


@app.command()
def page():
    """Compute the numbers from the results, and fill docs/hold_study.md from its template and them."""
    from analysis.hold_study import findings, page, scale_findings
    from cocos.base.errors import InputError

    try:
        for each in (findings, scale_findings):
            say(str(each.write()))
        say(str(page.write()))
    except InputError as error:
        raise refused(error) from None


if __name__ == "__main__":
    app()
