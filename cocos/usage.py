"""How the command line is read and explained: help in groups, wrong usage in one sentence."""

import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar

import typer
from typer.core import TyperCommand, TyperGroup

from cocos.reports import terminal

__all__ = ["COMMANDS", "OPTIONS", "Command", "Program", "UsageError", "debug"]

UsageError = typer.BadParameter.__base__  # of click, wherever typer keeps it
# Whether the traceback of the user's own code is asked for: `--debug`, anywhere on the line.
debug: ContextVar[bool] = ContextVar("debug", default=False)
COMMANDS = {
    "Look at a file": ("inspect", "count", "decompose", "evaluate", "query"),
    "Losses": ("losses", "verify"),
    "Pictures": ("plot", "landscape", "dtp"),
    "The repository": ("demo", "figures"),
}
OPTIONS = {
    "Loss": ("loss", "param", "eps", "convention", "against"),
    "Batches": ("batch_size", "batches", "sample", "per_group", "same_group", "seed"),
    "File and model": ("data", "split", "model", "trust", "distractors", "device", "dtype"),
    "Output": ("format", "as_json", "out", "width", "quiet", "metrics", "help"),
}
DEBUG = ("--debug", "Show the traceback of your own code (--loss, --model) as well.")


def _sections(groups: Mapping[str, Sequence[str]], rows: dict[str, tuple[str, str]], rest: str) -> dict[str, list]:
    """Rows of a help text by the title of their group; `rest` is the title of all others, which come first."""
    grouped = {name for names in groups.values() for name in names}
    found = {rest: [row for name, row in rows.items() if name not in grouped]}
    found |= {title: [rows[name] for name in names if name in rows] for title, names in groups.items()}
    return {title: lines for title, lines in found.items() if lines}


class Command(TyperCommand):
    """A command whose options stand in groups."""

    def format_options(self, ctx, formatter) -> None:
        """Write arguments, then options by group."""
        rows = {kind: {} for kind in ("argument", "option")}
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is not None:
                rows[param.param_type_name][param.name] = record
        if rows["argument"]:
            with formatter.section("Arguments"):
                formatter.write_dl(list(rows["argument"].values()))
        sections = _sections(OPTIONS, rows["option"], "Options")
        if {"loss", "model"} & rows["option"].keys():
            sections.setdefault("Output", []).append(DEBUG)
        for title, lines in sections.items():
            with formatter.section(title):
                formatter.write_dl(lines)


class Program(TyperGroup):
    """All commands in groups; what typer says of a wrong command line is one sentence, with exit code 2."""

    def format_commands(self, ctx, formatter) -> None:
        """Write the commands by group."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = {name: (name, (command.help or "").partition("\n")[0]) for name, command in commands.items()}
        for title, lines in _sections(COMMANDS, rows, "Others").items():
            with formatter.section(title):
                formatter.write_dl(lines)

    def main(self, args=None, prog_name=None, standalone_mode=True, **extra):
        """Run a command.

        Args:
            args: of the command line.
            prog_name: name of the program.
            standalone_mode: the process ends with the exit code, and an error of usage is said here.
            **extra: of typer.

        Raises:
            UsageError: the command line cannot be read, and it is to be said elsewhere.
            OSError: of a file, which is not about usage.
            SystemExit: with the exit code.
        """
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
            code = 2
        except SystemExit as ended:
            if not standalone_mode or ended.code != 1:
                raise
            terminal.silent(1)  # typer's answer to a reader that has seen enough, as `head` has
            code = 0
        finally:
            debug.reset(token)
        if standalone_mode:
            sys.exit(code)
        return code


def _misused(error) -> int:
    """Say what is wrong with a command line, and give the exit code; a line without any command gets the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return error.exit_code
    said = " ".join(error.format_message().replace("Value error, ", "").split()).rstrip(".")
    where = f"; see {error.ctx.command_path} --help" if error.ctx is not None else ""
    terminal.say(f"cocos: {said[:1].lower()}{said[1:]}{where}")
    return error.exit_code
