"""The program `cocos`: finds commands by the names of their files, runs one, and ends with its exit code."""

import atexit
import gc
import importlib
import inspect
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperCommand, TyperGroup

import cocos
from cocos.base import processes
from cocos.commands import _ending
from cocos.commands._answer import Answer, finish, quiet, typed
from cocos.commands._options import AsJson, Quiet, Unused
from cocos.reports import terminal

COMMANDS_FOLDER = Path(__file__).parent
# Titles of the groups of commands, in the order of the help text.
SECTIONS = ("Look at a file", "Training runs", "Losses", "Plots", "The repository", "The installation")
# Titles of the groups of options, with the names of their options, in the order of the help text.
OPTION_GROUPS = {
    "Loss": ("loss", "param", "eps", "convention", "against", "same_as", "tolerance"),
    "Batches": ("batch_size", "batches", "sample", "per_group", "copies", "same_group", "seed"),
    "File and model": (
        *(
            "data",
            "model",
            "recipe",
            "split",
            "evaluated",
            "steps",
            "columns",
            "images",
            "names",
            "trust",
            "distractors",
            "device",
            "dtype",
        ),
    ),
    "Detectors": ("detector", "fail_on"),
    "Output": ("format", "as_json", "out", "pictures", "width", "quiet", "metrics", "n90", "explain", "help"),
}
DEBUG_ROW = ("--debug", "Show the traceback of your own code (--loss, --model) as well.")
# Words of the help text for the types of options, where typer writes the names of Python.
TYPE_WORDS = {"str": "TEXT", "float": "NUMBER", "int": "NUMBER", "path": "PATH"}
UsageError = typer.BadParameter.__base__  # a class of click, wherever typer keeps it


@dataclass(frozen=True)
class Command:
    """A command as its file defines it.

    Args:
        run: the command itself; it takes keywords only.
        section: title of its group in `cocos --help`.
        place: its place in the group.
        epilog: last line of its own help.
    """

    run: Callable[..., None]
    section: str
    place: int
    epilog: str | None = None


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


def _options(function: Callable) -> tuple[dict[str, inspect.Parameter], dict[str, dict]]:
    """Options on the command line of a function, and those of its bundles by the name of the parameter."""
    options, bundles = {}, {}
    for name, each in inspect.signature(function).parameters.items():
        if is_dataclass(each.annotation):
            bundles[name] = {one.name: (one.type, one.default) for one in fields(each.annotation)}
            options |= bundles[name]
        else:
            options[name] = (each.annotation, each.default)
    options = {"seed": (Unused, 0), "as_json": (AsJson, False), "quiet": (Quiet, False)} | options
    made = {
        name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in options.items()
    }
    return made, bundles


def _chosen(value: object, default: object) -> bool:
    """Whether an option has another value than its default."""
    default = default.value if isinstance(default, Enum) else default
    return value not in (None, []) and value != default


def command(
    section: str, place: int, *, epilog: str | None = None, shared: bool = False, results: Sequence[str] = ()
) -> Callable[..., Command]:
    """Make a command of a function that returns an `Answer`, or None where another process speaks; see `Command`.

    The options are its parameters and the fields of its bundles; every command has `--seed`, `--json` and `--quiet`
    too. Members of enumerations reach the function as their values. A `shared` command can share its work with other
    processes. `results` names the parameters that may be results of cocos.
    """

    def made(function: Callable[..., Answer | None]) -> Command:
        options, bundles = _options(function)
        own = inspect.signature(function).parameters

        def run(**given) -> None:
            given = {name: value.value if isinstance(value, Enum) else value for name, value in given.items()}
            typed.set({name: value for name, value in given.items() if _chosen(value, options[name].default)})
            token = quiet.set(given.get("quiet", False) or processes.launched().rank > 0)
            try:
                with _ending.sentences(shared=shared, results=_results(given, results)), _listening():
                    parts = {
                        name: own[name].annotation(**{one: given[one] for one in names if one in given})
                        for name, names in bundles.items()
                    }
                    answer = function(**{name: value for name, value in given.items() if name in own}, **parts)
                    if answer is not None:
                        finish(answer, as_json=given.get("as_json", False), quiet=quiet.get())
                        if answer.code:
                            raise typer.Exit(answer.code)
            finally:
                quiet.reset(token)

        run.__doc__, run.__signature__ = function.__doc__, inspect.Signature(list(options.values()))  # type: ignore[attr-defined]
        run.__annotations__ = {name: each.annotation for name, each in options.items()}
        return Command(run, section, place, epilog)

    return made


def _results(given: Mapping[str, object], names: Sequence[str]) -> list[Path]:
    """The files among some parameters that may be results, by their suffixes."""
    values = [given[name] for name in names]
    every = [each for value in values for each in (value if isinstance(value, list) else [value])]
    return [Path(str(each)) for each in every if str(each).endswith((".nc", ".jsonl"))]


def _command(name: str) -> Command:
    """The command that a file of this folder defines."""
    return getattr(importlib.import_module(f"cocos.commands.{name}"), name)


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


class GroupedCommand(TyperCommand):
    """A command whose help lists its options in groups, and which takes an option of one value once."""

    def parse_args(self, ctx, args):
        """Parse the command line."""
        *_, order = self.make_parser(ctx).parse_args(args=list(args))
        for param in order:
            single = param.param_type_name == "option" and not (param.multiple or param.is_flag or param.count)
            if single and (number := order.count(param)) > 1:
                raise UsageError(f"{param.opts[0]} is given {number} times, expected once", ctx)
        return super().parse_args(ctx, args)

    def format_options(self, ctx, formatter) -> None:
        """Write arguments, then options by group."""
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
        _write_sections(formatter, groups, options, "Options")


class Program(TyperGroup):
    """All commands of this folder, each imported when it is needed; wrong usage is one sentence, with exit code 2."""

    def __init__(self, **settings):
        super().__init__(**settings)
        files = [Path(name) for name in os.listdir(COMMANDS_FOLDER)]
        self.commands = dict.fromkeys(sorted(f.stem for f in files if f.suffix == ".py" and not f.name.startswith("_")))

    def get_command(self, ctx, cmd_name):
        """The command of a name; None where there is none."""
        if cmd_name in self.commands and self.commands[cmd_name] is None:
            found, single = _command(cmd_name), typer.Typer(add_completion=False, rich_markup_mode=None)
            single.command(cmd_name, cls=GroupedCommand, epilog=found.epilog)(found.run)
            self.commands[cmd_name] = typer.main.get_command(single)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx, formatter) -> None:
        """Write the commands by group."""
        listed = {name: _command(name) for name in self.commands}
        names = sorted(listed, key=lambda name: listed[name].place)
        groups = {title: [name for name in names if listed[name].section == title] for title in SECTIONS}
        rows = {name: (name, listed[name].run.__doc__.partition("\n")[0]) for name in names}
        _write_sections(formatter, groups, rows, "Others")

    def main(self, args=None, prog_name=None, standalone_mode=True, **extra):
        """Run a command; in `standalone_mode`, report wrong usage and end the process with the exit code."""
        args = list(sys.argv[1:] if args is None else args)
        own = args[: args.index("--")] if "--" in args else args
        token = _ending.debug.set("--debug" in own)
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
            code = _ending.UNUSABLE_INPUT
        except SystemExit as ended:
            if not standalone_mode or ended.code != 1:
                raise
            terminal.silent(1)  # typer exits with 1 when the reader of a pipe has gone, as `head` does
            code = 0
        finally:
            _ending.debug.reset(token)
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
    epilog="Exit codes: 0 done, 1 verify found a fault or a difference, doctor a problem or --fail-on an alarm, 2 "
    "unusable input, 3 refused as unsafe, 130 interrupted, 143 terminated. --debug, anywhere: the traceback of your "
    "own code as well.",
)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
):
    if version:
        with _ending.sentences():
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
        signal.signal(number, _ending.unwind)
    sys.unraisablehook = _ending.resend
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without ± shows ? in its place
    try:
        try:
            sys.exit(app(standalone_mode=processes.launched().rank == 0))  # only rank 0 reports wrong usage
        finally:
            for number in heard:  # everything is written: from here on a signal ends the interpreter at once
                signal.signal(number, signal.SIG_DFL)
    except UsageError as error:
        terminal.say(f"cocos: {processes.turn()}{error.format_message()}")
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, _ending.Signalled) as signalled:
        sys.exit(_ending.ended(signalled))
    except Exception as error:
        if not _ending.starved(error):
            raise
        sys.exit(_ending.out_of_descriptors())
