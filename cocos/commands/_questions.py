"""The questions behind the commands: each is made from the signature of its measure and a row of this file.

Names, types, defaults and meanings of the options are those of the measure, read from its source without importing it;
an option that several commands share has the words of `cocos.commands._options`. A row says what is particular to a
command: `@asks(...)` stands above the function that asks, whose docstring is the first text of its help. The function
gets what was typed, and the options of the measure as it takes them; `question(...)` is a row whose answer is that of
`answer_of`: its Dataset as a table, as JSON and as a figure. A row is a command of its name, or is asked by `whatif`
(replay, solve, temperature) or `plot` (landscape, dtp). What has no measure is a command in a file.
"""

import contextlib
import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType, NoneType, SimpleNamespace
from typing import TYPE_CHECKING, Any, get_args

from cocos.base import ranges, signatures
from cocos.base.errors import InputError, nearest
from cocos.base.signatures import REQUIRED
from cocos.commands._answer import Answer, answer, checked, lines, opened, progress, saved, typed
from cocos.commands._options import (
    EVERYWHERE,
    MOST_DIGITS,
    PARAMS_OF_LOSSES,
    SEVERAL_LOSSES,
    SHARED,
    DetectorOptions,
    Opening,
    argument,
    as_help,
    batch_count,
    listed,
    named_values,
    option,
    row_count,
    shared,
    split_parameters,
    whole_numbers,
)

if TYPE_CHECKING:
    import xarray as xr

    from cocos.checkpoints import Checkpoint

# Parameters of a measure that no option sets.
NEVER_TYPED = {"loss", "progress"}
# Right values of options that are whole numbers and have no default.
EXAMPLE_NUMBERS = {"batch_size": "32,128,512", "steps": "1,5,10"}
# Suffixes of results of cocos, and of stores of a monitor.
RESULT_SUFFIXES = (".nc", ".jsonl")
# Panels that stand side by side in a figure of `run`.
CURVES_ABREAST = 3

Convention = StrEnum("Convention", ["standard", "ecir2022"])
Format = StrEnum("Format", ["table", "latex", "json"])


@dataclass(frozen=True)
class QuestionRow:
    """A question as a row of this file.

    Args:
        ask: makes the answer; None: `answer_of` does.
        measure: name of the measure, which is that of its file.
        takes: options that the measure does not have, by their names among the shared ones.
        leaves: parameters of the measure that no option sets.
        renamed: parameter of the measure -> name of the option.
        blank: whether no option has a value where it is not given.
        own: options of this command alone, or other words for one: name -> the words, or type and default as well.
        about: its last line of help, its first options, and what else `cocos.commands._program.made` takes.
    """

    ask: Callable[[SimpleNamespace, dict[str, Any]], Answer | None] | None
    measure: str
    takes: str
    leaves: str
    renamed: Mapping[str, str]
    blank: bool
    own: Mapping[str, Any]
    about: Mapping[str, Any]

    @property
    def parameters(self) -> dict[str, signatures.Option]:
        """Parameters of the measure that are options, by their names there."""
        left = {*NEVER_TYPED, *self.leaves.split()}
        every = signatures.options(f"cocos.measures.{self.measure}", self.measure)
        return {name: each for name, each in every.items() if each.default is not REQUIRED and name not in left}

    def options(self) -> dict[str, tuple[Any, Any]]:
        """Arguments and options of the command: type with its help, and value where it is not given."""
        found = shared(self.takes)
        for parameter in self.parameters.values():
            name = self.renamed.get(parameter.name, parameter.name)
            words, (known, usual) = self.own.get(name), SHARED.get(name, (None, None))
            if isinstance(words, tuple):
                continue
            if known is not None and not _fits(get_args(known)[0], parameter):
                known = None
            default = None if self.blank else usual if name == "device" else _default(parameter.default)
            if known is not None and words is None:
                found[name] = known, default
                continue
            words = words or as_help(parameter.meaning)
            words += f" [{_default(parameter.default)}]" if self.blank and words[-1] != "]" else ""
            kinds, several = ranges.kinds(parameter.annotation if known is None else get_args(known)[0])
            kind = next((each for each in kinds if each in {bool, int, float} and not several), str)
            kind = kind | None if self.blank or NoneType in kinds else kind
            found[name] = option(kind, words, default, *([f"--{name}"] if default is False else ()))
        found |= {name: each for name, each in self.own.items() if isinstance(each, tuple)}
        return {name: found[name] for name in [*SHARED, *found] if name in found}

    def answer(self, source: Opening, **given: Any) -> Answer | None:
        """Read the text of the options, and ask."""
        options = {}
        for name, parameter in self.parameters.items():
            typed_as = self.renamed.get(name, name)
            options[name] = _value(given[typed_as], parameter, typed_as)
        typed_in = SimpleNamespace(source=source, parameters=named_values(given.get("param")), **given)
        return answer_of(self.measure, typed_in, options) if self.ask is None else self.ask(typed_in, options)


def _fits(kind: Any, parameter: signatures.Option) -> bool:
    """Whether a shared option of a type has the values of a parameter of its name: one number, several, or a word."""
    wanted, several = ranges.kinds(parameter.annotation)
    typed_as = {int, float, str} & {*ranges.kinds(kind)[0]}
    return not typed_as or bool(typed_as & {*wanted}) or (str in typed_as and bool(several))


def _default(value: Any) -> Any:
    """Value of an option that is not given, from the default of a parameter."""
    if isinstance(value, tuple | list):
        return ",".join(map(str, value)) or None
    return str(value) if value == 128 and not isinstance(value, bool | float) else value


def _value(given: Any, parameter: signatures.Option, name: str) -> Any:
    wanted, several = ranges.kinds(parameter.annotation)
    if not isinstance(given, str):
        return given
    if name == "batch_size" and not several:
        return row_count(given)
    if name == "batches":
        return batch_count(given)
    flag = f"--{name.replace('_', '-')}"
    if (int in several and int not in wanted) or name == "steps":  # the names of checkpoints have whole numbers
        return whole_numbers(given, flag, EXAMPLE_NUMBERS.get(name) or _default(parameter.default))
    if str in several:
        return listed(given)
    return ranges.read(given, parameter.annotation, flag) if several and str not in wanted else given


QUESTION_ROWS: dict[str, QuestionRow] = {}


def question(
    name: str,
    words: str,
    example: str | None = None,
    *,
    ask: Callable | None = None,
    takes: str = "file source loss out",
    measure: str | None = None,
    leaves: str = "",
    renamed: Mapping[str, str] | None = None,
    blank: bool = False,
    shown: str = "",
    results: Sequence[str] = (),
    **own: Any,
) -> None:
    """Make a row; see `QuestionRow` and `cocos.commands._program.made`."""
    about = {"first": shown, "results": results, "words": words}
    about["epilog"] = example and (example if ":" in example else f"Example: cocos {example}")
    QUESTION_ROWS[name] = QuestionRow(ask, measure or name, takes, leaves, renamed or {}, blank, own, about)


def asks(example: str | None = None, **row: Any) -> Callable[[Callable], Callable]:
    """Make a row of a function that asks, with its name and its docstring; see `question`."""

    def decorated(ask: Callable) -> Callable:
        question(ask.__name__, ask.__doc__ or "", example, ask=ask, **row)
        return ask

    return decorated


def instead(name: str, by: str, **changes: Any) -> Answer | None:
    """Answer of another question to what was typed, and changes; an option that it does not take is refused.

    Args:
        name: of the other question.
        by: what leads to it, for the message.
        changes: options that it gets in the place of the typed ones; None takes one away.
    """
    row = QUESTION_ROWS[name]
    options = row.options()
    given = {each: value for each, value in {**typed.get(), **changes}.items() if value is not None}
    for each in given:
        if each not in options | EVERYWHERE:
            raise InputError(f"--{each.replace('_', '-')} does not go with {by}")
    values = {each: given.get(each, default) for each, (_, default) in options.items()}
    return row.answer(Opening(**{each: values.pop(each) for each in shared("source")}), **values)


def _measured(
    given: SimpleNamespace,
    options: dict[str, Any],
    measure: str,
    *,
    words: str = "loss {loss}, ",
) -> "tuple[Checkpoint, xr.Dataset, list[str]]":
    """Open the file, and measure: the checkpoint, the Dataset, and a line about the loss.

    Args:
        given: what was typed.
        options: of the measure.
        measure: its name.
        words: for the loss, from the attributes of the Dataset, before the origin of its parameters.
    """
    from cocos import measures

    asked = getattr(measures, measure)
    known = inspect.signature(asked).parameters
    ranges.check(inspect.signature(asked), options)
    if "loss" in known and (given.loss is not None or known["loss"].default is not None):
        frozen, loss, origin = opened(given.file, given.loss, given.parameters, given.source)
        options = {"loss": loss} | options
    else:
        frozen, words, origin = given.source.open(given.file), "", "cosines" if "loss" in known else ""
    with progress() as start:
        found = asked(frozen, **options, **({"progress": start} if "progress" in known else {}))
    about = f"{words.format_map(found.attrs)}{origin}"
    return frozen, found, [f"{given.file} ({frozen.format}){about and f': {about}'}"]


def answer_of(measure: str, given: SimpleNamespace, options: dict[str, Any], words: str = "loss {loss}, ") -> Answer:
    """Answer of a measure as it stands: its table and its document, and its figure where it has a plot of its name."""
    checked(given.out, given.file, given.source.data, figures=hasattr(given, "width"))
    frozen, found, about = _measured(given, options, measure, words=words)
    draw = drawn(measure, found, given.width) if hasattr(given, "width") else None
    return answer(measure, found, given.out, draw=draw, about=about, notes=frozen.notes)


def drawn(
    kind: str, found: "xr.Dataset", width: str | None, words: Mapping[str, object] = MappingProxyType({})
) -> Callable[[Path], object]:
    """Draw a Dataset as `cocos plot` does, with the words of single rows where they are known."""

    def draw(path: Path) -> object:
        from cocos.reports import plot_kinds

        return plot_kinds.find(kind).draw([found], {}, path, [words], width=width)

    return draw


@asks(
    "count embeddings.npz --loss ntxent -p temperature=0.07 --batch-size 256 --out counts.nc",
    takes="file source out",
    shown="explain",
    loss=SEVERAL_LOSSES,
    param=PARAMS_OF_LOSSES,
    same_group="How to treat other rows of a query's group in a batch drawn by pairs. [as the convention]",
    batches=option(str | None, "Number of batches, or a slice A:B of them. [one pass over the training set]"),
    convention=option(
        Convention, "Rules of counting; ecir2022 repeats the published tables, faults included.", Convention.standard
    ),
    dtype="Dtype of the scores. [float64; larger batches: float32, close calls decided in float64]",
    explain=option(bool, "Define every row of the table, and add the health of the embeddings.", False, "--explain"),
    format=option(Format, "Output: table, latex (the published columns) or json.", Format.table),
    as_json=EVERYWHERE["as_json"],
)
def count(given: SimpleNamespace, options: dict[str, Any]) -> Answer | None:
    """Count the negatives that contribute to each query's gradient."""
    names = given.loss or [None]
    by_loss = split_parameters(given.parameters, names)
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--loss {name}: it is given {names.count(name)} times, expected once")
    if given.as_json and given.format == "latex":
        raise InputError("--json and --format latex: choose one of them")
    from cocos import losses, measures
    from cocos.reports import count as report
    from cocos.reports.latex import latex

    checked(given.out, given.file, given.source.data)
    for name, parameters in zip(names[1:], by_loss[1:], strict=True):
        losses.load(name, parameters)
    frozen, *first = opened(given.file, names[0], by_loss[0], given.source)
    others = [frozen.loss(name, parameters) for name, parameters in zip(names[1:], by_loss[1:], strict=True)]
    asked = [tuple(first), *others]
    with progress() as start:
        several = [loss for loss, _ in asked]
        counted = measures.count(frozen, several if others else several[0], **options, progress=start)
    about = [f"{given.file} ({frozen.format}): loss {losses.name_of(loss)}, {origin}" for loss, origin in asked]
    made = answer("count", counted, given.out, about=about, notes=frozen.notes)
    shown = {
        "table": lambda: report.table(counted, explain=given.explain),
        "latex": lambda: latex(counted, given.file.name),
        "json": lambda: json.dumps(made.document(), allow_nan=False),
    }
    return replace(made, text=shown[given.format])


@asks(
    takes="file source out",
    renamed={"ks": "k"},
    shown="k split verification trials",
    metric="Score of a pair: cosine, dot, euclidean, ... [that of the loss, or cosine]",
    loss=option(str | None, "Loss whose scores rank: see `cocos losses`. [as the checkpoint says]"),
    distractors=option(
        Path | None, "A second file of embeddings, or of `candidate` alone, whose candidates match no query."
    ),
    ensemble=option(list[Path] | None, "Another model of the same set, whose embeddings are concatenated; repeatable."),
    split="Split of the checkpoint's data. [test, val, dev or train]",
    verification=option(
        bool, "One threshold for all pairs: EER, TAR at FAR, minDCF, ten-fold accuracy.", False, "--verification"
    ),
    trials=option(Path | None, "With --verification: lines `label a b`, rows by name or number, or LFW's pairs.txt."),
    prior=option(float | None, "With --verification: prior of a target, for minDCF. [0.01]"),
    miss_cost=option(float | None, "With --verification: cost of a miss. [1]"),
    false_accept_cost=option(float | None, "With --verification: cost of a false accept. [1]"),
)
def evaluate(given: SimpleNamespace, options: dict[str, Any]) -> Answer:
    """Measure retrieval in every direction: R@k, median and mean rank, MRR, mAP, mAP@R, R-precision, PR-AUC, NMI.

    A negative that ties with a positive ranks above it. All values except ranks are in percent. With --verification:
    is a pair of one identity?
    """
    from cocos import checkpoints, measures

    own = {name: getattr(given, name) for name in ("prior", "miss_cost", "false_accept_cost")}
    own = {name: value for name, value in own.items() if value is not None}
    verifying = given.verification or given.trials is not None
    for name in ("k", "folds", "distractors", "ensemble", "queries") if verifying else own:
        if name in typed.get():
            words = "does not go with --verification" if verifying else "belongs to --verification"
            raise InputError(f"--{name.replace('_', '-')} {words}")
    checked(given.out, given.file, given.source.data, given.distractors, given.trials, *(given.ensemble or ()))
    if verifying:
        own |= {"loss": given.loss} | {name: options[name] for name in ("metric", "split", "device")}
        ranges.check(inspect.signature(measures.verification), own)
    frozen = given.source.open(given.file)
    if verifying:
        with progress() as start:
            found = measures.verification(frozen, trials=given.trials, **own, progress=start)
        return answer("verification", found, given.out, notes=frozen.notes)
    more = None if given.distractors is None else checkpoints.distractors(given.distractors)
    more = more if more is None or given.source.dims is None else more.truncate(given.source.dims)
    members = [given.source.open(path) for path in given.ensemble or ()]
    with progress() as start:
        typed_as = {"distractors": more, "ensemble": members, "loss": given.loss}
        found = measures.evaluate(frozen, **options | typed_as, progress=start)
    return answer("evaluate", found, given.out, notes=[*frozen.notes, *(more.notes if more else ())])


question(
    "solve",
    "Find the temperature, scale or margin that gives a wanted effective number of negatives.",
    leaves="bounds tolerance",
    shown="effective parameter",
)


@asks(
    "report embeddings.npz --loss ntxent --out report.html",
    measure="count",
    takes="source loss",
    leaves="convention metrics n90",
    shown="files",
    results=("files",),
    files=argument(
        list[Path], "A checkpoint or file of embeddings; two of them; folders of runs, stores, or results (.nc).",
        metavar="FILE",
    ),
    out=option(Path, "Write the page to this file.", Path("report.html")),
)  # fmt: skip
def report(given: SimpleNamespace, options: dict[str, Any]) -> Answer:
    """Write one page that needs nothing else: a verdict, findings, counts, what-ifs, suspects and pictures."""
    from cocos import measures, results
    from cocos.base import writing
    from cocos.checkpoints import series
    from cocos.commands._answer import complete
    from cocos.reports import page

    page.writable(given.out)
    writing.apart(given.out, *given.files, given.source.data)
    own = {name: value for name, value in options.items() if value is not None}
    with progress() as start:

        def opened_source(path: Path) -> "tuple[Any, Any]":
            """A result, a run that is measured, or a checkpoint and its loss."""
            if path.suffix == ".jsonl":
                return measures.run(path), None
            if path.suffix == ".nc" and not path.is_dir():
                return results.open(path), None
            if path.is_dir() and series.is_run(path):
                asked = {"parameters": given.parameters, "opener": given.source.open, "progress": start}
                return measures.run(path, given.loss, **asked, **own), None
            frozen, loss, _ = opened(path, given.loss, given.parameters, given.source)
            return frozen, loss

        sources, found = zip(*map(opened_source, given.files), strict=True)
        files = given.files if all(each is None for each in found) else []
        made = page.report(*sources, loss=list(found), start=start, typed=complete, files=files, **own)
    return Answer(text=lambda: made.verdict, document=made.document, notes=made.missing, wrote=(made.save(given.out),))


@asks(
    "audit embeddings.npz --loss ntxent -p temperature=0.05 --out suspects.csv",
    takes="file source loss",
    shown="top",
    renamed={"filters": "filter", "only": "direction"},
    filter=option(
        list[str] | None,
        "A filter to replay, with its thresholds: self=0,0.1; repeatable; also relative_margin. [guide, self, percent, "
        "factor]",
    ),
    top=option(int, "Number of suspected pairs to print.", 10),
    out=option(Path | None, "Write all suspected pairs (.csv, .jsonl) or the Dataset (.nc) to this file."),
)
def audit(given: SimpleNamespace, options: dict[str, Any]) -> Answer:
    """List suspected false negatives by the push that they receive, and replay the filters that would remove them."""
    from cocos.base import writing
    from cocos.reports import audit as report

    if given.top < 0:
        raise InputError(f"top: {given.top}, expected a whole number of at least 0")

    def read(item: str) -> tuple[str, list[float]]:
        """Name of a filter and its thresholds, none for the usual ones."""
        name, _, values = item.partition("=")
        try:
            return name.strip(), [float(each) for each in values.split(",") if each.strip()]
        except ValueError:
            raise InputError(f"--filter {item!r}: write it as NAME, or NAME=NUMBER,NUMBER like self=0,0.1") from None

    thresholds = None if given.filter is None else dict(map(read, given.filter))
    if thresholds is not None and len(thresholds) < len(given.filter):
        raise InputError(f"--filter {', '.join(given.filter)}: one of them is given twice")
    listing = given.out is not None and given.out.suffix != ".nc"
    if listing:
        report.writable(given.out)
        writing.apart(given.out, given.file, given.source.data)
    else:
        checked(given.out, given.file, given.source.data)
    frozen, found, about = _measured(given, options | {"filters": thresholds}, "audit")
    items = frozen.items(given.split)
    texts = items and items.texts(found.attrs["asks"])
    return answer(
        *("audit", found, None if listing else given.out),
        about=about,
        notes=frozen.notes,
        tables=lambda data: report.tables(data, texts, given.top),
        **({"wrote": (report.write(given.out, found, texts),)} if listing else {}),
    )


@asks(
    takes="file source loss figure",
    shown="what by",
    what=option(
        list[str] | None,
        "What to change, NAME=VALUE,VALUE; repeatable. NAME is a parameter of the loss (temperature, margin, ...), "
        "loss, batch_size, eps, or a mining rule: top_k, skip_k, semi_hard. [half and twice the sharpness "
        "and the batch size, mining rules, another loss]",
    ),
)
def replay(given: SimpleNamespace, options: dict[str, Any]) -> Answer:
    """Replay the same batches with another temperature, margin, batch size, mining rule or loss: a what-if."""
    return answer_of("replay", given, options | {"what": given.what or None}, words="{loss_repr}, ")


@asks(
    takes="file source loss figure",
    renamed={"batch_sizes": "batch_size"},
    shown="effective",
    batch_size=option(
        list[str] | None,
        "Pairs or queries in a batch; repeatable, or numbers separated by commas; all is the whole set. [32, 128, 512 "
        "and 2048, as far as the set fills them]",
    ),
)
def temperature(given: SimpleNamespace, options: dict[str, Any]) -> Answer:
    """Find where a learned temperature, and SigLIP's bias, settle on frozen embeddings, for each batch size."""
    sizes: list[int | str] = []
    for part in [part.strip() for text in given.batch_size or () for part in text.split(",")]:
        if not part or len(part) > MOST_DIGITS:
            raise InputError(f"--batch-size {part!r}: write it as numbers like 32,128, or all")
        sizes.append(int(part) if part.lstrip("-").isdecimal() else part)
    if given.width is not None and (given.out is None or given.out.suffix == ".nc"):
        raise InputError(f"--width {given.width}: there is no figure; name one with --out, like temperature.png")
    from cocos.reports import saving

    checked(given.out, given.file, given.source.data, figures=True)
    saving.inches(given.width)
    options["batch_sizes"] = sizes or None
    frozen, found, about = _measured(given, options, "temperature")
    draw = drawn("temperature", found, given.width)
    return answer("temperature", found, given.out, draw=draw, about=about, notes=frozen.notes)


@asks(
    "run checkpoints/ --loss ntxent -p temperature=0.07 --out run.nc",
    takes="source loss detector fail_on figure",
    leaves="parameters detectors opener",
    renamed={"ks": "k"},
    shown="fail_on",
    results=("run",),
    run=argument(
        list[Path], "Folder of a training run, or its files; or stores of cocos.Monitor (.jsonl) and results (.nc).",
        metavar="FILE",
    ),
    evaluated="Split that is evaluated, where --split is counted; or other data, or embeddings of the same steps. "
    "[test, val, dev or train]",
    out=option(
        Path | None,
        "Write the Dataset (.nc) or the curves (.png, .pdf, .svg) to this file.",
    ),
)  # fmt: skip
def run(given: SimpleNamespace, options: dict[str, Any]) -> Answer:
    """Count and evaluate every checkpoint of a training run, and say in a sentence what looks wrong."""
    watching = DetectorOptions(given.detector, given.fail_on)
    from cocos import measures
    from cocos.measures.run import episodes
    from cocos.reports import run as report

    figure = checked(given.out, given.source.data, *given.run, figures=True)
    read = _read_runs(given, watching)
    if len(read) > 1:
        if given.out is not None and not figure:
            raise InputError(f"--out {given.out}: it holds one run, not {len(read)}; name a figure")
        if given.out is not None:
            _draw_runs(read, given.width, given.out)
        return Answer(
            text=lambda: "\n\n".join(f"{name}:\n{lines(report.table(data))}" for name, data in read.items()),
            document=lambda: {"runs": {name: measures.document("run", data) for name, data in read.items()}},
            wrote=[] if given.out is None else [given.out],
            code=watching.code(each["detector"] for data in read.values() for each in episodes(data)),
        )
    if read:
        (data,) = read.values()
    else:
        own = {"detectors": watching.chosen, "opener": given.source.open}
        with progress() as start:
            data = measures.run(
                given.run, given.loss, parameters=given.parameters, **own, **options, progress=start
            )  # fmt: skip
    draw = functools.partial(_draw_runs, {"run": data}, given.width)
    made = answer("run", data, given.out, draw=draw)
    code = watching.code(each["detector"] for each in episodes(data))
    again = given.run if given.out is None or figure else [given.out]
    following = report.following(data, again, kept=again is not given.run or bool(read))
    return replace(made, text=lambda: replace(report.table(data), typed=following), code=code)


def _draw_runs(runs: "dict[str, xr.Dataset]", width: str | None, path: Path) -> None:
    """Draw the curves of one run, or of several in the same axes."""
    from cocos.plots.run import run, shown
    from cocos.reports import saving

    several = list(runs.values())
    named = {"dataset": several, "names": list(runs)} if len(several) > 1 else {"dataset": several[0]}
    panels = [functools.partial(run, **named, show=name) for name in shown(several)]
    saving.save_panels(panels, path, width=width, columns=CURVES_ABREAST)


def _read_runs(given: SimpleNamespace, watching: DetectorOptions) -> "dict[str, xr.Dataset]":
    """The Datasets of stores and results, by their names; none for checkpoints."""
    from cocos.measures.run import of_store, opened, with_alarms

    read = [path for path in given.run if path.suffix in RESULT_SUFFIXES and not path.is_dir()]
    if not read:
        return {}
    if other := [path for path in given.run if path not in read]:
        raise InputError(f"{read[0]} is no checkpoint, and {other[0]} may be one: give stores and results alone")
    if given.loss or given.param:
        raise InputError(f"--loss: {read[0]} has numbers of one loss already; give the checkpoints for another")
    stems = [path.stem for path in read]
    names = stems if len(set(stems)) == len(stems) else [str(path) for path in read]
    if len(set(names)) < len(names):
        raise InputError(f"{read[0]}: a file is named twice")
    return {
        name: of_store(path, watching.chosen) if path.suffix == ".jsonl" else with_alarms(opened(path), watching.chosen)
        for name, path in zip(names, read, strict=True)
    }


@asks(
    "diff before.pt after.pt --loss ntxent -p temperature=0.07",
    takes="source loss figure",
    leaves="names",
    shown="by step",
    results=("first", "second"),
    first=argument(Path, "Checkpoint, file of embeddings, or result (.nc)."),
    second=argument(Path, "Another one of the same data.", metavar="OTHER"),
)
def diff(given: SimpleNamespace, options: dict[str, Any]) -> Answer:
    """Compare two results, or two models on the same data, query by query."""
    from cocos import measures, plots
    from cocos.measures.diff import document, tables
    from cocos.plots.diff import SIZE
    from cocos.reports import saving

    files, names = (given.first, given.second), _apart(given.first, given.second)
    checked(given.out, *files, given.source.data, figures=True)
    asked = {"names": names} | {name: options.pop(name) for name in ("by", "changed", "level", "queries")}
    about, notes = [], []
    with progress() as start:
        pair = _results(files, given)
        if pair is not None:
            found = measures.diff(*pair, **asked)
        else:
            each = [opened(file, given.loss, given.parameters, given.source) for file in files]
            for one, loss, origin in each:
                about.append(f"{one.path} ({one.format}): {loss!r}, {origin}")
                notes += one.notes
            frozen, losses, _ = zip(*each, strict=True)
            ranked = given.loss is None and all(one.format == "scores" for one in frozen)
            found = measures.diff(*frozen, None if ranked else losses, **options, progress=start, **asked)
    draw = functools.partial(saving.save_plot, plots.diff, found, size=SIZE, width=given.width)
    return Answer(
        text=lambda: "\n\n".join(lines(table) for table in tables(found)),
        document=lambda: document(found),
        about=about,
        notes=dict.fromkeys(notes),
        wrote=saved(found, given.out, draw),
    )


def _apart(first: Path, second: Path) -> tuple[str, str]:
    """Names of two files, their stems or as many of their last folders as tell them apart; refuse one file twice."""
    with contextlib.suppress(OSError):
        if first.exists() and second.exists() and first.samefile(second):
            raise InputError(f"{first} and {second} are the same file: no query can differ; name two")
    parts = [each.resolve().with_suffix("").parts for each in (first, second)]
    for number in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-number:]) for each in parts]
        if names[0] != names[1]:
            return names[0], names[1]
    return first.name, second.name


def _results(files: tuple[Path, Path], given: SimpleNamespace) -> "list[xr.Dataset] | None":
    """Two results; None for files of embeddings and checkpoints."""
    from cocos import results

    known = [each.suffix in RESULT_SUFFIXES and not each.is_dir() for each in files]
    if not any(known):
        return None
    if not all(known):
        other = files[known.index(False)]
        raise InputError(f"{other} is no result of cocos as the other file is; give two of the same kind")
    if given.loss or given.param:
        raise InputError(f"--loss: {files[0]} is a result, whose loss is fixed; give the files of embeddings instead")
    return [results.open(file) for file in files]


@asks(
    takes="source param",
    leaves="embeddings sample per_group copies",
    shown="same_as against",
    target=argument(
        str | None, "A checkpoint, a file of embeddings, or a loss. [synthetic input]", None, metavar="FILE"
    ),
    loss=option(str | None, "Loss to verify: see `cocos losses`. [all, or the checkpoint's own]"),
    against=option(str | None, "Another loss that should be equal, given the parameters of the same name."),
    same_as=option(
        tuple[str, str] | None,
        "Two losses: are they the same gradient? Each is a name, your file.py:function of (query, candidate), or "
        "LOSS@WAY: @chunks=32, @ranks=2[,gather=detached|none][,loss=global], @accumulate=4, "
        "@dtype=bfloat16, @reduction=sum, @temperature=0.05. The argument is then a file, or synthetic input.",
        metavar="A B",
    ),
    tolerance=option(
        float | None,
        "With --same-as: largest difference of equal gradients, in parts of the largest. [1e-9 in float64, 1e-4 in "
        "float32, 1e-2 in float16, 5e-2 in bfloat16]",
    ),
    batches=option(int, "Number of real batches to test, or of any with --same-as.", 2),
    batch_size=option(int | None, "Pairs or queries in a batch. [128, 64 with --same-as]"),
    out=option(Path | None, "Write the Dataset of one loss to this file (.nc)."),
)
def verify(given: SimpleNamespace, options: dict[str, Any]) -> Answer:
    """Check the weights of one loss or all, or whether two are the same gradient (--same-as); exit code 1 if not."""
    from cocos import losses as shelf
    from cocos import measures, results
    from cocos.reports import table

    target, loss = given.target, given.loss
    if given.same_as is not None:
        if loss is not None or given.against is not None:
            raise InputError("--same-as names both losses: leave out --loss and --against")
    elif given.tolerance is not None:
        raise InputError("--tolerance belongs to --same-as A B")
    else:
        target, loss = _parted(target, loss)
        if loss is None and target is None and (given.parameters or given.against):
            raise InputError("parameters or --against, but no loss: name it with --loss")
    if given.batch_size is None:
        options["batch_size"] = 128 if given.same_as is None else 64
    checked(given.out, target, given.source.data)
    frozen = None if target is None else given.source.open(Path(target))
    if given.same_as is not None:
        own = {"parameters": given.parameters, "tolerance": given.tolerance}
        del options["against"]
        with progress() as start:
            same = measures.same_gradient(*given.same_as, frozen, **own, **options, progress=start)
        return Answer(
            text=lambda: table("same_gradient", same),
            document=lambda: measures.document("same_gradient", same),
            notes=[*(frozen.notes if frozen else ()), *results.lines(same.attrs)],
            wrote=saved(same, given.out),
            code=1 - same.attrs["same"],
        )
    if loss is not None or frozen is not None:
        chosen = [frozen.loss(loss, given.parameters)[0] if frozen else shelf.load(loss, given.parameters)]
    else:
        chosen = [shelf.load(name) for name in shelf.names()]
    if given.out is not None and len(chosen) > 1:
        raise InputError(f"--out {given.out}: it holds one loss; name it with --loss")
    with progress() as start:
        found = [measures.verify(each, frozen, **options, progress=start) for each in chosen]
    return Answer(
        text=lambda: table("verify", found),
        document=lambda: [measures.document("verify", one) for one in found],
        notes=frozen.notes if frozen else (),
        wrote=saved(found[0], given.out),
        code=int(any(one.attrs["faults"] for one in found)),
    )


def _parted(target: str | None, loss: str | None) -> tuple[str | None, str | None]:
    """Tell a file from a loss: `cocos verify ntxent` names a loss in the place of a file."""
    from cocos import checkpoints

    if target is None or Path(target).exists() or Path(target) == checkpoints.EXAMPLE:
        return target, loss
    if loss is None and (":" in target or not Path(target).suffix):
        return None, target
    if loss is not None and not Path(target).suffix:
        raise InputError(f"{target!r} and --loss {loss!r}: a file that is not there, or two losses; name one loss")
    return target, loss


@asks(
    takes="source param figure",
    leaves="embeddings delta points",
    blank=True,
    shown="f1 f2 alpha distance rows",
    file=argument(
        Path | None, "A checkpoint or a file of embeddings, whose candidates are the proxies.", None, metavar="[FILE]"
    ),
    alpha=option(str | None, "Boundary of the warp; several, of classes or phases, have a panel each. [3.0]"),
    loss=option(str | None, "A loss of the shelf, in place of f1 and f2."),
    rows="With a FILE: rows of two or three of its candidates, the own one first.",
    surface=option(bool, "Draw the landscape in three dimensions.", False, "--surface"),
    split=option(str | None, "Split of the checkpoint's data to encode. [train]"),
)
def landscape(given: SimpleNamespace, options: dict[str, Any]) -> Answer:
    """Draw the loss around its proxies, with the predicted and the found minimum for an embedding."""
    if given.parameters and given.loss is None:
        raise InputError("parameters, but no --loss: give those of the warp as --alpha, --k1 and --k2")
    options = {name: value for name, value in options.items() if value is not None}
    warp, curves, polygon = (
        [name for name in names if name in options]
        for names in (
            ("alpha", "k1", "k2"),
            ("f1", "f2", "scale", "metric", "alpha", "k1", "k2"),
            ("proxies", "distance"),
        )
    )
    of_file = {"rows": given.rows, "split": given.split} | {
        key: value or None for key, value in vars(given.source).items()
    }
    if given.loss is not None and curves:
        raise InputError(f"--{curves[0]} and --loss {given.loss}: a loss stands in the place of f1 and f2")
    if warp and "warp" not in {(given.f1 or "").strip(), (given.f2 or "").strip()}:
        raise InputError(f"--{warp[0]}: it is of the warp, and neither --f1 nor --f2 is warp")
    if given.file is None and (name := next((key for key, value in of_file.items() if value is not None), None)):
        raise InputError(f"--{name}: it is of a FILE, and none is given")
    if given.file is not None and polygon:
        raise InputError(f"--{polygon[0]} and {given.file}: the proxies are its own; choose them with --rows")
    from cocos import losses as shelf
    from cocos import measures, plots
    from cocos.reports import saving, table

    checked(given.out, given.file, given.source.data, figures=True)
    chosen = None if given.loss is None else shelf.load(given.loss, given.parameters)
    try:
        alphas = [None] if given.alpha is None else [float(each) for each in given.alpha.split(",")]
    except ValueError:
        raise InputError(f"--alpha {given.alpha!r}: write it as a number, or as several like 3,6") from None
    if len(alphas) > 1 and given.out is not None and given.out.suffix == ".nc":
        raise InputError(f"--out {given.out}: it holds one landscape, not {len(alphas)}")
    embeddings, about, notes = None, [], []
    if given.file is not None:
        with progress() as start:
            frozen = given.source.open(given.file)
            embeddings = frozen.embed(split=given.split or "train", progress=start("encoding"))
        about, notes = [f"{given.file} ({frozen.format}): its candidates are the proxies"], frozen.notes
    every = [
        measures.landscape(loss=chosen, embeddings=embeddings, **options | ({} if alpha is None else {"alpha": alpha}))
        for alpha in alphas
    ]
    draw = functools.partial(
        saving.save_panels,
        [functools.partial(plots.landscape, found) for found in every],
        size=(6.6, 5.2),
        width=given.width,
        projection="3d" if given.surface else None,
    )
    made = answer("landscape", every[0], given.out, draw=draw, about=about, notes=notes)
    if len(every) == 1:
        return made
    return replace(
        made,
        text=lambda: "\n\n".join(lines(table("landscape", found)) for found in every),
        document=lambda: {"landscapes": [measures.document("landscape", found) for found in every]},
    )


@asks(
    takes="source device split figure",
    leaves="device split",
    shown="alpha metric steps",
    run=argument(list[Path], "The checkpoints of one run, or a folder for each run.", metavar="FILE"),
    alpha=option(
        list[str] | None,
        "Boundary of the warp, for all runs or as RUN=NUMBER; 28,34@600 changes at step 600, 0:3,1:5 is by class; "
        "repeatable. [as recorded]",
    ),
    steps=SHARED["steps"],
)
def dtp(given: SimpleNamespace, options: dict[str, Any]) -> Answer:
    """Follow the distance to proxy over the checkpoints of runs: how far a class settles from its proxy."""
    given_steps = options["steps"]
    from cocos import measures, plots
    from cocos.checkpoints import series
    from cocos.measures.dtp import same_classes
    from cocos.reports import saving

    found = series.files(given.run)
    files = [each.path for members in found.values() for each in members]
    checked(given.out, given.source.data, *files, figures=True)
    bounds, notes = _boundaries(given.alpha or [], list(found)), []
    steps = series.steps(found) if given_steps is None else given_steps
    if steps is None:
        notes.append(series.unnumbered(found))
    elif given_steps is None:
        numbers = (
            f"steps {', '.join(map(str, steps))}: the numbers" if len(steps) > 1 else f"step {steps[0]}: the number"
        )
        notes.append(f"{numbers} in the names of the files")
    for name, members in found.items():
        last = given.source.open(members[-1].path)
        if name not in bounds and (recorded := series.recorded_alpha(last)) is not None:
            bounds[name] = recorded
            notes.append(f"alpha of {name}: {recorded:g}, recorded in {members[-1].path}")
            if len(members) > 1 and series.recorded_alpha(given.source.open(members[0].path)) != recorded:
                every = [series.recorded_alpha(given.source.open(each.path)) for each in members]
                bounds[name] = [float("nan") if each is None else each for each in every]
                notes[-1] += ", and others before it: it was trained in phases"
        notes += last.notes
    with progress() as start:
        runs = {
            name: series.Series(members, given.source.open, given.split, given.device, start(f"measuring {name}"))
            for name, members in found.items()
        }
        numbers = range(len(next(iter(found.values())))) if steps is None else steps
        bounds = {name: _phases(bound, numbers) for name, bound in bounds.items()}
        measured = measures.dtp(runs, steps=steps, alpha=bounds, metric=given.metric)
    same_classes(measured)
    seen = [pair for each in runs.values() for pair in each.seen]
    measured = measured.assign_attrs(
        checkpoint_path="\n".join(path for path, _ in seen), checkpoint_sha256="\n".join(sha for _, sha in seen)
    )
    draw = functools.partial(saving.save_plot, plots.dtp, measured, size=(7.2, 4.6), width=given.width)
    return answer("dtp", measured, given.out, draw=draw, notes=notes)


def _phases(bound: Any, steps: Sequence[float]) -> Any:
    """Alpha at each step, where it is given as pairs of the step from which on it holds, and a number."""
    if not isinstance(bound, tuple):
        return bound
    return [next(number for start, number in reversed(bound) if step >= start) for step in steps]


def _boundary(value: str, item: str) -> Any:
    """Read alpha of one run: a number, ((step, number), ...) of phases, or class -> number."""
    parts = value.split(",")
    by_class = ":" in value
    pairs = [part.split(":") for part in parts] if by_class else [part.split("@")[::-1] for part in parts]
    pairs = pairs if by_class or len(pairs[0]) > 1 else [["-inf", *pairs[0]], *pairs[1:]]
    try:
        found = [(int(first) if by_class else float(first), float(second)) for first, second in pairs]
    except ValueError:
        raise InputError(f"--alpha {item!r}: write it as a number, or as RUN=NUMBER like warp=3") from None
    if not all(0 < number < float("inf") for _, number in found):
        raise InputError(f"--alpha {item!r}: expected a finite number above 0")
    if found != sorted(found) or found[0][0] > float("-inf") and not by_class:
        raise InputError(f"--alpha {item!r}: expected the first number without a step, and steps or classes in order")
    return dict(found) if by_class else tuple(found) if len(found) > 1 else found[0][1]


def _boundaries(given: list[str], names: list[str]) -> dict[str, Any]:
    """Read alpha of the runs, given for all of them or by name."""
    found = {}
    for item in given:
        name, sign, value = item.rpartition("=")
        if sign and name not in names:
            raise InputError(nearest("run", name, names))
        number = _boundary(value, item)
        for each in [name] if sign else names:
            if each in found:
                raise InputError(f"--alpha {item!r}: the run {each!r} has one already")
            found[each] = number
    return found
