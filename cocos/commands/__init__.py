"""The command line: one file per command, found by its name.

A file `name.py` defines a function `name` under the decorator `cocos.commands._program.command`. It parses its options,
calls a measure and returns an `Answer`, which the program prints in the same way for all commands. Torch and everything
built on it are imported inside the functions, so that `cocos --help` stays fast.
"""

from cocos.commands._program import app, main

__all__ = ["app", "main"]
