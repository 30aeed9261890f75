"""The program `cocos`: finds commands by their names, runs one, and ends with its exit code."""

import _thread
import atexit
import errno
import gc
import importlib
import inspect
import logging
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import cocos
from cocos.base import terminal
from cocos.base.errors import InputError, UnsafeFile, unreachable
from cocos.base.signatures import REQUIRED
from cocos.commands import _questions
from cocos.commands._answer import Answer, finish, quiet, typed
from cocos.commands._options import EVERYWHERE, Opening, shared

# All commands, in the order of the help text.
COMMANDS = (
    *("inspect", "encode", "count", "evaluate", "audit", "whatif", "plot", "report", "run", "diff", "losses", "verify"),
)
# Titles of the groups of options, with the names of their options, in the order of the help text.
OPTION_GROUPS = {
    "Loss": ("loss", "param", "eps", "convention", "against", "same_as", "tolerance"),
    "Batches": ("batch_size", "batches", "sample", "per_group", "copies", "same_group", "seed"),
    "File and model": (
        *("data", "model", "split", "evaluated", "steps", "columns", "images"),
        *("distractors", "device", "dtype"),
    ),
    "Detectors": ("detector", "fail_on"),
    "Output": ("format", "as_json", "out", "pictures", "width", "quiet", "metrics", "n90", "explain", "help"),
}
DEBUG_ROW = ("--debug", "Show the traceback of your own code (--loss, --model) as well.")
# Words of the help text for the types of options, where typer writes the names of Python.
TYPE_WORDS = {"str": "TEXT", "float": "NUMBER", "int": "NUMBER", "path": "PATH"}
# Options that the help of a command shows, before and after those that the command names itself.
SHOWN_FIRST, SHOWN_LAST = ("loss", "param", "eps", "batch_size", "batches"), ("out", "as_json")
# Largest number of options that are shown without a choice.
MOST_FIRST = 8
# Option that shows everything, and whether it was given.
HELP_ALL = "--help-all"
UsageError = typer.BadParameter.__base__  # a class of click, wherever typer keeps it

# Exit codes beside 0 (done) and 1 (`verify` found a fault, `--fail-on` an alarm).
UNUSABLE_INPUT, UNSAFE_FILE = 2, 3
# Seconds that an interrupted run has to clean up before a timer ends it.
CLEANUP_SECONDS = 3.0
# Seconds until a signal that a finaliser swallowed is sent again.
RESEND_SECONDS = 0.02
# Error numbers of the operating system that the user can put right; any other is a fault of the program.
MACHINE_ERRORS = {
    *(errno.ENAMETOOLONG, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
}
# Errors of numbers and names that do not fit together.
MISFITS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, MemoryError, RecursionError)
# Whether `--debug` is on the command line: show the traceback of the user's own code as well.
debug: ContextVar[bool] = ContextVar("debug", default=False)


class Signalled(BaseException):
    """A signal asked the run to end; it unwinds the stack and cleans up. The argument is the signal's number."""


def starved(error: BaseException | None) -> bool:
    """Whether an error, or one behind it, comes from having no file descriptor left."""
    seen = []
    while error is not None and error not in seen:
        if getattr(error, "errno", None) in {errno.EMFILE, errno.ENFILE} or os.strerror(errno.EMFILE) in str(error):
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__
    return False


def out_of_descriptors() -> int:
    """Say that no file descriptor is left, and return the exit code."""
    terminal.say("cocos: no file can be opened any more: raise the limit of open files (ulimit -n)")
    return UNUSABLE_INPUT


@contextmanager
def sentences(*, results: Sequence[Path] = ()) -> Generator[None]:
    """Turn errors that the user can put right into one sentence on stderr and an exit code.

    Args:
        results: files of results that were given: their attributes are checked where they are opened, and here is the
            net for one whose numbers do not fit together.
    """
    try:
        yield
    except InputError as error:
        if debug.get() and error.__cause__ is not None:
            for line in "".join(traceback.format_exception(error.__cause__)).splitlines():
                terminal.say(line)
        terminal.say(f"cocos: {error}")
        raise typer.Exit(UNSAFE_FILE if isinstance(error, UnsafeFile) else UNUSABLE_INPUT) from None
    except (KeyboardInterrupt, Signalled) as signalled:
        raise typer.Exit(ended(signalled)) from None
    except typer.Exit:
        raise
    except Exception as error:
        if starved(error):
            raise typer.Exit(out_of_descriptors()) from None
        if isinstance(error, OSError) and error.errno in MACHINE_ERRORS:
            where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
            terminal.say(f"cocos: {where}{unreachable(error)}")
            raise typer.Exit(UNUSABLE_INPUT) from None
        if results and isinstance(error, MISFITS):
            if debug.get():
                for line in traceback.format_exc().splitlines():
                    terminal.say(line)
            names, reason = " or ".join(map(str, results[:3])), " ".join(str(error).split())[:120]
            terminal.say(
                f"cocos: {names} is no result of cocos for this command, or a damaged one "
                f"({type(error).__name__}: {reason}); write it again"
            )
            raise typer.Exit(UNUSABLE_INPUT) from None
        raise


def ended(signalled: BaseException) -> int:
    """Say that a signal ended the run, and return the exit code: 130 after Ctrl-C, 143 after SIGTERM."""
    number = signalled.args[0] if isinstance(signalled, Signalled) else signal.SIGINT
    word = "interrupted" if number == signal.SIGINT else "terminated"
    terminal.say(f"cocos: {word}")
    return 128 + number


def unwind(number: int, frame) -> None:
    """Handle a signal by unwinding the stack; a timer ends the run if a library that is being imported swallows it.

    A second SIGTERM ends the run at once.
    """
    timer = threading.Timer(CLEANUP_SECONDS, os._exit, [128 + number])
    timer.daemon = True
    timer.start()
    if number == signal.SIGTERM:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise Signalled(number)


def resend(problem) -> None:
    """Send a signal again that arrived in a finaliser, which cannot raise; other problems are reported as usual."""
    if isinstance(problem.exc_value, Signalled):
        number = problem.exc_value.args[0]
        signal.signal(number, unwind)
        again = threading.Timer(RESEND_SECONDS, _thread.interrupt_main, [number])
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(problem)


@dataclass(frozen=True)
class Command:
    """A command as its file, or its row of questions, defines it.

    Args:
        run: the command itself; it takes keywords only.
        options: its arguments and options by their names: type with help, and value where it is not given.
        epilog: last line of its own help.
        first: names of the options that its help shows.
    """

    run: Callable[..., None]
    options: Mapping[str, tuple[Any, Any]]
    epilog: str | None
    first: tuple[str, ...]


@contextmanager
def _listening() -> Generator[None]:
    """Show warnings of the library, logged to `cocos`, as notes on stderr; with `--quiet` only errors."""
    handler, logger = logging.Handler(logging.ERROR if quiet.get() else logging.WARNING), logging.getLogger("cocos")
    handler.emit = lambda record: terminal.say(record.getMessage())
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _chosen(value: object, default: object) -> bool:
    """Whether an option has another value than its default."""
    default = default.value if isinstance(default, Enum) else default
    return value not in (None, []) and value != default


def command(*, options: Mapping[str, tuple[Any, Any]] = MappingProxyType({}), **about: Any) -> Callable[..., Command]:
    """Make a command of a function that returns an `Answer`, or None where another process speaks; see `Command`.

    The function takes its options by name; `source` stands for the options that open files. Commands have `--seed`,
    `--json` and `--quiet` too. For `about` see `made`.
    """

    def decorated(function: Callable[..., Answer | None]) -> Command:
        opening = shared("source") if "source" in inspect.signature(function).parameters else {}
        return made(function, {**options, **opening}, **about)

    return decorated


def made(
    function: Callable[..., Answer | None],
    options: Mapping[str, tuple[Any, Any]],
    *,
    words: str | None = None,
    epilog: str | None = None,
    first: str = "",
    results: Sequence[str] = (),
) -> Command:
    """Make a command of a function and its options.

    Its help has the `words`, or the docstring of the function. Members of enumerations reach the function as their
    values. `results` names the parameters that may be results of cocos.
    """
    taken = {**options, **{name: each for name, each in EVERYWHERE.items() if name not in options}}
    opens = inspect.signature(function).parameters.keys() & {"source"}
    own = options.keys() - (shared("source") if opens else {})

    def run(**given) -> None:
        given = {name: value.value if isinstance(value, Enum) else value for name, value in given.items()}
        typed.set({name: value for name, value in given.items() if _chosen(value, taken[name][1])})
        token = quiet.set(given.get("quiet", False))
        try:
            with sentences(results=_results(given, results)), _listening():
                parts = {
                    name: Opening(**{one: given[one] for one in shared("source") if one in given}) for name in opens
                }
                answer = function(**{name: value for name, value in given.items() if name in own}, **parts)
                if answer is not None:
                    finish(answer, as_json=given.get("as_json", False), quiet=quiet.get())
                    if answer.code:
                        raise typer.Exit(answer.code)
        finally:
            quiet.reset(token)

    empty, kind = inspect.Parameter.empty, inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(name, kind, default=empty if default is REQUIRED else default, annotation=annotation)
        for name, (annotation, default) in taken.items()
    ]
    run.__doc__, run.__signature__ = words or function.__doc__, inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {name: annotation for name, (annotation, _) in taken.items()}
    chosen = first.split() if len(options) > MOST_FIRST else options.keys() - {*SHOWN_FIRST, *SHOWN_LAST}
    order = [*SHOWN_FIRST, *(name for name in options if name in chosen), *SHOWN_LAST]
    return Command(run, taken, epilog, tuple(name for name in order if name in taken))


def _results(given: Mapping[str, object], names: Sequence[str]) -> list[Path]:
    """The files among some parameters that may be results, by their suffixes."""
    values = [given[name] for name in names]
    every = [each for value in values for each in (value if isinstance(value, list) else [value])]
    return [Path(str(each)) for each in every if str(each).endswith((".nc", ".jsonl"))]


def find(name: str) -> Command:
    """The command that a file of this folder, or a row of the questions, defines."""
    if (row := _questions.QUESTION_ROWS.get(name)) is not None:
        return made(row.answer, row.options(), **row.about)
    return getattr(importlib.import_module(f"cocos.commands.{name}"), name)


def _summary(name: str) -> str:
    """First line of the help of a command; the options of a question are not looked at."""
    row = _questions.QUESTION_ROWS.get(name)
    words = row.about["words"] if row is not None else find(name).run.__doc__ or ""
    return words.partition("\n")[0]


def _write_sections(
    formatter, groups: Mapping[str, Sequence[str]], rows: dict[str, tuple[str, str]], rest: str
) -> None:
    """Write rows, (name as typed, help) by name, under the titles of their groups; those in no group come first."""
    grouped = {name for names in groups.values() for name in names}
    sections = {rest: [row for name, row in rows.items() if name not in grouped]}
    sections |= {title: [rows[name] for name in names if name in rows] for title, names in groups.items()}
    for title, lines in sections.items():
        if lines:
            with formatter.section(title):
                formatter.write_dl(lines)


def _everything(ctx, args: Sequence[str]) -> list[str]:
    """Replace `--help-all` by `--help`, and remember to show everything."""
    words = list(args)
    own = words[: words.index("--")] if "--" in words else words
    if HELP_ALL not in own:
        return words
    ctx.meta[HELP_ALL] = True
    return ["--help"]


class GroupedCommand(TyperCommand):
    """A command whose help lists its first options, or all in groups, and which takes an option of one value once."""

    first: tuple[str, ...] = ()

    def parse_args(self, ctx, args):
        """Parse the command line."""
        args = _everything(ctx, args)
        *_, order = self.make_parser(ctx).parse_args(args=list(args))
        for param in order:
            single = param.param_type_name == "option" and not (param.multiple or param.is_flag or param.count)
            if single and (number := order.count(param)) > 1:
                raise UsageError(f"{param.opts[0]} is given {number} times, expected once", ctx)
        return super().parse_args(ctx, args)

    def format_options(self, ctx, formatter) -> None:
        """Write arguments, then the first options, or all options by group."""
        rows = {kind: {} for kind in ("argument", "option")}
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is not None:
                name, said = record
                name = re.sub(r"<(?:list\[)?(\w+)\]?>", lambda kind: TYPE_WORDS.get(kind[1], kind[0]), name)
                rows[param.param_type_name][param.name] = (name, said)
        options, groups = rows["option"], OPTION_GROUPS
        if {"loss", "model"} & options.keys():
            options, groups = options | {"debug": DEBUG_ROW}, groups | {"Output": (*groups["Output"], "debug")}
        _write_sections(formatter, {"Arguments": tuple(rows["argument"])}, rows["argument"], "")
        if ctx.meta.get(HELP_ALL):
            _write_sections(formatter, groups, options, "Options")
            return
        _write_sections(formatter, {}, {name: options[name] for name in self.first if name in options}, "Options")
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"{ctx.command_path} {HELP_ALL} shows all {len(options)} options.")


class Program(TyperGroup):
    """All commands, each imported when it is needed; wrong usage is one sentence, with exit code 2."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.commands, self.made = dict.fromkeys(COMMANDS), {}

    def get_command(self, ctx, cmd_name):
        """The command of a name; None where there is none."""
        if cmd_name not in self.made and cmd_name in self.commands:
            found, single = find(cmd_name), typer.Typer(add_completion=False, rich_markup_mode=None)
            single.command(cmd_name, cls=GroupedCommand, epilog=found.epilog)(found.run)
            self.made[cmd_name] = typer.main.get_command(single)
            self.made[cmd_name].first = found.first
        return self.made.get(cmd_name)

    def format_commands(self, ctx, formatter) -> None:
        """Write each command with the first line of its help."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _summary(name)) for name in COMMANDS])
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"cocos COMMAND --help shows the first options of one, {HELP_ALL} all of them.")

    def main(self, args=None, prog_name=None, standalone_mode=True, **extra):
        """Run a command; in `standalone_mode`, report wrong usage and end the process with the exit code."""
        args = list(sys.argv[1:] if args is None else args)
        own = args[: args.index("--")] if "--" in args else args
        token = debug.set("--debug" in own)
        args = [each for each in own if each != "--debug"] + args[len(own) :]
        try:
            code = super().main(args, prog_name or "cocos", standalone_mode=False, **extra)
        except UsageError as error:
            if not standalone_mode:
                raise
            code = _misused(error)
        except OSError as error:
            if error.filename is not None or error.strerror is None:
                raise
            terminal.silent(1)
            terminal.say(f"cocos: the output cannot be written ({error.strerror})")
            code = UNUSABLE_INPUT
        except SystemExit as ended:
            if not standalone_mode or ended.code != 1:
                raise
            terminal.silent(1)  # typer exits with 1 when the reader of a pipe has gone, as `head` does
            code = 0
        finally:
            debug.reset(token)
        if standalone_mode:
            sys.exit(code)
        return code


def _misused(error) -> int:
    """Report a wrong command line, and return the exit code; an empty command line gets the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return error.exit_code
    message = " ".join(error.format_message().replace("Value error, ", "").split()).rstrip(".")
    message = re.sub(r"\. Did you mean (.*)\?$", r": did you mean \1", message)
    for found in getattr(error.__cause__, "errors", list)()[:1]:  # of the validator
        right = re.sub(r"Input should be (.*?)(, .*)?$", r"\1", found["msg"]).replace("a valid", "a")
        if right != found["msg"]:
            message = (
                f"{error.param.opts[0]} {found['input']!r}: expected {right.replace('a integer', 'a whole number')}"
            )
    where = f"; see {error.ctx.command_path} --help" if error.ctx is not None else ""
    terminal.say(f"cocos: {message[:1].lower()}{message[1:]}{where}")
    return error.exit_code


app = typer.Typer(
    cls=Program,
    help="Count the negatives that contribute to the gradient of a frozen metric-learning model.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_show_locals=False,
    epilog="Exit codes: 0 done, 1 verify found a fault or a difference, or --fail-on an alarm, 2 "
    "unusable input, 3 refused as unsafe, 130 interrupted, 143 terminated. --debug, anywhere: the traceback of your "
    "own code as well.",
)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
):
    if version:
        with sentences():
            terminal.put(f"cocos {cocos.__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command; Ctrl-C ends it with exit code 130, SIGTERM with 143.

    The garbage collector rests while modules are imported and while the interpreter ends: walking the objects of
    PyTorch's modules, of which none is garbage, takes a third of the time of its import.
    """
    gc.disable()  # until `progress`
    atexit.register(gc.freeze)
    heard = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, unwind)
    sys.unraisablehook = resend
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without ± shows ? in its place
    try:
        try:
            sys.exit(app())
        finally:
            for number in heard:  # everything is written: from here on a signal ends the interpreter at once
                signal.signal(number, signal.SIG_DFL)
    except UsageError as error:
        terminal.say(f"cocos: {error.format_message()}")
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, Signalled) as signalled:
        sys.exit(ended(signalled))
    except Exception as error:
        if not starved(error):
            raise
        sys.exit(out_of_descriptors())
