"""Run the study in the root of the repository: `python -m analysis.study --help`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from analysis.console import compared, known, refused, say

app = Typer(add_completion=False, help="The study: does counting contributing negatives explain recall?")
Work = Annotated[Path, Option(help="Folder in which each row is kept as soon as it is there.")]


@app.command()
def run(
    parts: Annotated[list[str] | None, Argument(help="Parts of the plan; all unless named.")] = None,
    work: Work = Path("study-work"),
    workers: Annotated[int, Option(help="Processes, one thread each.", min=1)] = 2,
):
    """Run the trainings that are not done yet, and write the results."""
    from analysis.study import plan, runner

    for part in known("part", parts or list(plan.PARTS), plan.PARTS):
        say(str(runner.run(part, work, workers, say)))


@app.command()
def again(
    part: Annotated[str, Argument(help="Part of the plan.")],
    number: Annotated[int, Option("--run", help="Number of the run in the part.", min=0)] = 0,
):
    """Train one run of the results once more, and compare every number to the last digit (exit code 1: one differs)."""
    from analysis.study import plan, runner
    from cocos.base.errors import InputError

    known("part", [part], plan.PARTS)
    try:
        found = runner.again(part, number)
    except InputError as error:
        raise refused(error) from None
    raise SystemExit(0 if compared(f"{part} run {number}", *found) else 1)


@app.command()
def tables(
    names: Annotated[list[str] | None, Argument(help="towers, proxies, cross_example; all unless named.")] = None,
    work: Work = Path("study-work"),
):
    """Run what the tables of the papers need and is not done yet, in one thread; `cocos table` prints them."""
    from analysis.runs import distractors, proxies, towers

    made = {"towers": towers.main, "proxies": proxies.main, "cross_example": distractors.main}
    for name in known("table", names or list(made), made):
        say(str(made[name](work)))


@app.command()
def findings(
    sections: Annotated[
        list[str] | None,
        Argument(help="tests, levels, interventions, rates, predictions, look-alikes; all unless named."),
    ] = None,
    compute: Annotated[bool, Option(help="Compute the numbers from the results first.")] = False,
):
    """Print the numbers of the study."""
    import json

    from analysis.study import findings, summary

    chosen = known("section", sections or list(summary.SECTIONS), summary.SECTIONS)
    if compute:
        say(str(findings.write()))
    found = json.loads(findings.FILE.read_text(encoding="utf-8"))
    for name in chosen:
        print(name, *summary.lines(found, name), sep="\n  ")


@app.command(name="second")
def second_edition(
    trained: Annotated[
        bool, Option(help="Train and simulate again too: errors over items, the other loop, rates.")
    ] = False,
):
    """Compute the numbers of the second edition again: reanalysis.json, and with --trained those beside it."""
    from analysis.study import by_the_table, items, null_rates, reanalysis

    for each in (reanalysis, *((items, by_the_table, null_rates) if trained else ())):
        say(str(each.write()))


@app.command()
def page():
    """Fill docs/study.md from its template and the numbers of the study."""
    from analysis.study import page
    from cocos.base.errors import InputError

    try:
        say(str(page.write()))
    except InputError as error:
        raise refused(error) from None


if __name__ == "__main__":
    app()
