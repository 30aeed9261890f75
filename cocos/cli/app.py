"""The program `cocos`: its help, the messages of wrong usage, and its exit codes."""

import atexit
import gc
import logging
import os
import signal
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import cocos
from cocos.base import terminal
from cocos.base.errors import InputError, UnsafeFile, unreachable

# Exit codes; 1 if `verify` found a difference, or `--fail-on` an alarm.
DONE, UNUSABLE_INPUT, UNSAFE_FILE, INTERRUPTED, TERMINATED = 0, 2, 3, 130, 143
UsageError: Any = typer.BadParameter.__base__  # a class of click, which typer may include


class Program(TyperGroup):
    """All commands. An error that the user can correct is one line on stderr and an exit code."""

    def main(self, args=None, prog_name=None, standalone_mode=True, **extra):
        """Run a command, and end the process with its exit code in `standalone_mode`."""
        args = list(sys.argv[1:] if args is None else args) or ["--help"]
        quiet = {"-q", "--quiet"} & {*args}
        logging.getLogger("cocos").setLevel(logging.ERROR if quiet else logging.NOTSET)
        message = ""
        try:
            code = super().main(args, "cocos", standalone_mode=False, **extra) or DONE
        except UsageError as error:
            code, message = UNUSABLE_INPUT, usage_message(error)
        except InputError as error:
            code, message = UNSAFE_FILE if isinstance(error, UnsafeFile) else UNUSABLE_INPUT, str(error)
        except OSError as error:
            terminal.silent(1)  # its buffer would fail again
            code, message = UNUSABLE_INPUT, f"{os.fsdecode(error.filename or 'output')}: {unreachable(error)}"
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED
        except SystemExit as error:
            if error.code != 1:
                raise
            terminal.silent(1)  # typer exits with 1 if the reader of the help has closed the pipe
            code = DONE
        finally:
            logging.getLogger("cocos").setLevel(logging.NOTSET)
        if message := message or ("interrupted" if code == INTERRUPTED else ""):
            terminal.say(f"cocos: {message}")
        if standalone_mode:
            sys.exit(code)
        return code


def usage_message(error) -> str:
    """Return the message for a wrong command line: option, value and expected values."""
    message = " ".join(error.format_message().split()).rstrip(".")
    for problem in getattr(error.__cause__, "errors", list)()[:1]:  # of the validator
        reason = problem["msg"].removeprefix("Value error, ").partition(", unable")[0].rstrip(".")
        message = f"{error.param.opts[0]} {problem['input']!r}: {reason.replace('Input should be', 'expected')}"
    if error.ctx is not None:
        flag = getattr(error, "option_name", "").lstrip("-")
        if flag and "param" in {param.name for param in error.ctx.command.params}:
            message += f"; a loss parameter is -p {flag.replace('-', '_')}=VALUE"
        message += f"; see {error.ctx.command_path} --help"
    return f"{message[:1].lower()}{message[1:]}"


app = typer.Typer(
    cls=Program,
    help="Count the negatives that contribute to the gradient of a frozen metric-learning model.",
    epilog="Exit codes: 0 done, 1 difference found by verify or alarm named by --fail-on, 2 unusable input, 3 refused "
    "as unsafe, 130 interrupted, 143 terminated.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


@app.callback(invoke_without_command=True)
def show_version(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False):
    """Print the version."""
    if version:
        terminal.put(f"cocos {cocos.__version__}")


def main() -> None:
    """Run the command line."""
    # Walking the objects of PyTorch's modules takes a third of their import time.
    gc.disable()  # until `output.progress`
    atexit.register(gc.freeze)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(TERMINATED))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without ± prints ?
    app()
