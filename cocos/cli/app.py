"""The program `cocos`: its help, the messages of wrong usage, and its exit codes."""

import atexit
import gc
import logging
import os
import re
import signal
import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import cocos
from cocos.base import terminal
from cocos.base.errors import InputError, UnsafeFile, unreachable

# Exit codes other than 0 (done) and 1 (`verify` found a difference, or `--fail-on` an alarm).
UNUSABLE_INPUT, UNSAFE_FILE, INTERRUPTED = 2, 3, 130
UsageError: Any = typer.BadParameter.__base__  # a class of click, which typer may include
# Errors that a damaged or foreign result can cause.
MISFITS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class Program(TyperGroup):
    """All commands. An error that the user can correct is one line on stderr and an exit code."""

    def main(self, args=None, prog_name=None, standalone_mode=True, **extra):
        """Run a command, and end the process with its exit code in `standalone_mode`."""
        args = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in args
        args = [arg for arg in args if arg != "--debug"]
        handler = logging.Handler(logging.ERROR if {"-q", "--quiet"} & {*args} else logging.WARNING)
        handler.emit = lambda record: terminal.say(record.getMessage())
        logging.getLogger("cocos").addHandler(handler)
        try:
            code = super().main(args, "cocos", standalone_mode=False, **extra) or 0
        except UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":
                error.show()
            else:
                terminal.say(f"cocos: {usage_message(error, args)}")
            code = error.exit_code
        except InputError as error:
            for line in traceback.format_exception(error.__cause__) if debug and error.__cause__ else ():
                terminal.say(line.rstrip("\n"))
            terminal.say(f"cocos: {error}")
            code = UNSAFE_FILE if isinstance(error, UnsafeFile) else UNUSABLE_INPUT
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED
        except SystemExit as error:
            if error.code != 1:
                raise
            terminal.silent(1)  # typer exits with 1 if the reader of the help has closed the pipe
            code = 0
        except OSError as error:
            if error.filename is None:
                terminal.silent(1)
                terminal.say(f"cocos: the output cannot be written ({unreachable(error)})")
            else:
                terminal.say(f"cocos: {os.fsdecode(error.filename)}: {unreachable(error)}")
            code = UNUSABLE_INPUT
        except MISFITS as error:
            results = [arg for arg in args if arg.endswith((".nc", ".jsonl"))]
            if debug or not results:
                raise
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
            terminal.say(f"cocos: {' or '.join(results)}: not a result that this command reads ({reason})")
            code = UNUSABLE_INPUT
        finally:
            logging.getLogger("cocos").removeHandler(handler)
        if code == INTERRUPTED:
            terminal.say("cocos: interrupted")
        if standalone_mode:
            sys.exit(code)
        return code


def usage_message(error, args: list[str]) -> str:
    """Return the message for a wrong command line: option, value and expected values."""
    message = " ".join(error.format_message().split()).rstrip(".")
    message = re.sub(r"\.? \(?Did you mean (.*?)\??\)?\??$", r": did you mean \1", message)
    for problem in getattr(error.__cause__, "errors", list)()[:1]:  # of the validator
        expected = problem["msg"].removeprefix("Value error, ").rstrip(".")
        if kind := re.match(r"Input should be a valid (\w+)", expected):
            expected = f"expected {'an' if kind[1] == 'integer' else 'a'} {kind[1]}"
        expected = re.sub(r"^'.*' is not one of", "expected one of", expected)
        message = f"{error.param.opts[0]} {problem['input']!r}: {expected}"
    flag = str(getattr(error, "option_name", ""))
    if flag and error.ctx is not None and "param" in {param.name for param in error.ctx.command.params}:
        from cocos import losses

        name = flag.lstrip("-").replace("-", "_")
        if any(name in losses.load(loss).parameters for loss in losses.names()):
            value = (args[args.index(flag) + 1 :] or ["VALUE"])[0] if flag in args else "VALUE"
            message = f"no such option {flag}; for a loss parameter, use -p {name}={value}"
    help_command = f"; see {error.ctx.command_path} --help" if error.ctx is not None else ""
    return f"{message[:1].lower()}{message[1:]}{help_command}"


app = typer.Typer(
    cls=Program,
    help="Count the negatives that contribute to the gradient of a frozen metric-learning model.",
    epilog="Exit codes: 0 done, 1 difference found by verify or alarm named by --fail-on, 2 unusable input, 3 refused "
    "as unsafe, 130 interrupted, 143 terminated. With --debug, errors in your own code print their traceback.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


@app.callback(invoke_without_command=True)
def show_version(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False):
    """Print the version."""
    if version:
        terminal.put(f"cocos {cocos.__version__}")
        raise typer.Exit


def exit_terminated(number: int, frame: object) -> None:
    """End with 143 on SIGTERM."""
    terminal.say("cocos: terminated")
    sys.exit(128 + number)


def main() -> None:
    """Run the command line.

    Garbage collection is off during imports and at exit: walking the objects of PyTorch's modules takes a third of
    their import time.
    """
    gc.disable()  # until `output.progress`
    atexit.register(gc.freeze)
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        signal.signal(signal.SIGTERM, exit_terminated)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without ± prints ?
    try:
        app()
    except KeyboardInterrupt:  # outside of a command
        terminal.say("cocos: interrupted")
        sys.exit(INTERRUPTED)
