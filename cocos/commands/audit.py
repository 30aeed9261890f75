"""`cocos audit`."""

from pathlib import Path
from typing import Annotated

from typer import Option

from cocos.base.errors import InputError
from cocos.commands._answer import Answer, checked, lines, notes_of, opened, progress, saved
from cocos.commands._options import (
    Batches,
    BatchOptions,
    Dtype,
    File,
    LossName,
    Opening,
    Param,
    Precision,
    SameGroup,
    SameGroupRows,
    named_values,
)
from cocos.commands._program import command


@command(
    "Look at a file",
    7,
    epilog="Example: cocos audit embeddings.npz --loss ntxent -p temperature=0.05 --out suspects.csv",
)
def audit(
    file: File,
    sampling: BatchOptions,
    source: Opening,
    loss: LossName = None,
    param: Param = None,
    rules: Annotated[
        str | None,
        Option(
            help="Rules that suspect a negative: some of group,text,near,guide,neighbours. [all that the data allow]"
        ),
    ] = None,
    filter: Annotated[
        list[str] | None,
        Option(
            help="A filter to replay, with its thresholds: self=0,0.1; repeatable; also relative_margin. [guide, self, "
            "percent, factor]"
        ),
    ] = None,
    against: Annotated[
        str | None,
        Option(help="Rules that say which pairs are known to be positive, to judge filters by. [group,text]"),
    ] = None,
    labels: Annotated[
        Path | None, Option(help="A list of --out with labels filled in: 1 belongs together, 0 does not.")
    ] = None,
    near: Annotated[float, Option(help="Least similarity of nearly equal texts, 0 to 1.")] = 0.7,
    neighbours: Annotated[int, Option(help="Number of nearest rows in which each must be for the other.")] = 1,
    direction: Annotated[str | None, Option(help="Direction of retrieval, like q2c. [all]")] = None,
    batches: Batches = None,
    same_group: SameGroupRows = SameGroup.negative,
    dtype: Precision = Dtype.float64,
    top: Annotated[int, Option(help="Number of suspected pairs to print.")] = 10,
    out: Annotated[
        Path | None, Option(help="Write all suspected pairs (.csv, .jsonl) or the Dataset (.nc) to this file.")
    ] = None,
):
    """List suspected false negatives by the push that they receive, and replay the filters that would remove them."""
    from cocos import measures
    from cocos.base import writing
    from cocos.engine.sampling import whole_number
    from cocos.reports import audit as report

    whole_number("top", top, 0)
    thresholds = None if filter is None else dict(map(_thresholds, filter))
    if filter is not None and len(thresholds) < len(filter):
        raise InputError(f"--filter {', '.join(filter)}: one of them is given twice")
    listed = out is not None and out.suffix != ".nc"
    if listed:
        report.writable(out)
        writing.apart(out, file, source.data, labels)
    else:
        checked(out, file, source.data, labels)
    frozen, chosen, origin = opened(file, loss, named_values(param), source)
    options = {"rules": _names(rules), "filters": thresholds, "against": _names(against), "near": near}
    options |= {
        "labels": labels,
        "neighbours": neighbours,
        "only": direction,
        "batches": batches,
        "same_group": same_group,
    }
    with progress() as start:
        found = measures.audit(frozen, chosen, **options, **vars(sampling), dtype=dtype, progress=start)
    items = frozen.items(sampling.split)
    texts = items and items.texts(found.attrs["asks"])
    wrote = (report.write(out, found, texts),) if listed else saved(found, out)
    return Answer(
        text=lambda: "\n\n".join(lines(each) for each in report.tables(found, texts, top)),
        document=lambda: measures.document("audit", found),
        about=[f"{file} ({frozen.format}): loss {found.attrs['loss']}, {origin}"],
        notes=[*frozen.notes, *notes_of(found)],
        wrote=wrote,
    )


def _names(given: str | None) -> list[str] | None:
    """Names separated by commas; None where the option is not given."""
    return None if given is None else [name.strip() for name in given.split(",") if name.strip()]


def _thresholds(given: str) -> tuple[str, list[float]]:
    """Name of a filter and its thresholds, none for the usual ones."""
    name, _, values = given.partition("=")
    try:
        return name.strip(), [float(each) for each in values.split(",") if each.strip()]
    except ValueError:
        raise InputError(f"--filter {given!r}: write it as NAME, or NAME=NUMBER,NUMBER like self=0,0.1") from None
