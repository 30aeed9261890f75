"""The command line: twelve plain typer functions, one file per command. `cocos --help` does not import torch."""

# ruff: noqa: F401, I001 -- each import adds a command, in the order of the help
from cocos.cli.app import app, main
from cocos.cli import inspect, encode, count, evaluate, audit, whatif, plot, report, run, diff, losses, verify

COMMANDS = tuple(command.callback.__name__ for command in app.registered_commands if command.callback)
