"""`cocos table`."""

from enum import StrEnum
from pathlib import Path

from cocos.base.errors import InputError
from cocos.commands._answer import Answer
from cocos.commands._options import argument, option
from cocos.commands._program import command

TableFormat = StrEnum("TableFormat", ["text", "markdown", "latex", "csv"])


def _named(given: str) -> tuple[str | None, Path]:
    """Label and file of FILE or LABEL=FILE; a file whose own name has an equals sign is a file."""
    label, sign, file = given.partition("=")
    return (label, Path(file)) if sign and label and file and not Path(given).exists() else (None, Path(given))


@command(
    "The papers and the repository",
    0,
    results=("files",),
    epilog="Example: cocos table 2 VSE++=seed0.nc VSE++=seed1.nc VSRN=other.nc --format latex --published > table.tex",
    options={
        "name": argument(
            str | None, "Table: 1 to 5, I to VIII, ablations, cross_example or cross_example_2. [list them]", None, None
        ),
        "files": argument(
            list[str] | None,
            "Tables of runs, or results of count --metrics, evaluate, run and dtp (.nc); LABEL=FILE: files with one "
            "label are runs of one row; LABEL:CUB=FILE names the data set. [the published numbers]",
            None,
            metavar="FILE...",
        ),
        "format": option(TableFormat, "Output: text, markdown, latex or csv.", TableFormat.text),
        "published": option(bool, "Put the published numbers beside the numbers of FILE.", False, "--published"),
    },
)
def table(name, files, format, published) -> Answer:
    """Print a table of the papers for your own runs, with mean and deviation over seeds, or as it was published."""
    from cocos import measures, results
    from cocos.base.layout import Table
    from cocos.measures.paper_table import PAPER_TABLES, document
    from cocos.reports import paper_table as reports

    if name is None:
        if format != TableFormat.text:
            raise InputError(f"--format {format}: name a table, like cocos table 2 --format {format}")
        listed = [(each.name, each.title, each.printed["cited"]) for each in PAPER_TABLES.values()]
        return Answer(
            text=lambda: Table(("table", "content", "published"), tuple(listed), left=True),
            document=lambda: [dict(zip(("table", "title", "published"), each, strict=True)) for each in listed],
        )
    given = [_named(each) for each in files or ()]
    made = measures.paper_table(
        name,
        [results.open(file) for _, file in given],
        labels=[label for label, _ in given],
        names=[str(file) for _, file in given],
        published=published or not given,
    )
    return Answer(text=lambda: reports.TABLE_FORMATS[format](made), document=lambda: document(made))
