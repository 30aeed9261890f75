"""`python -m cocos` is the command `cocos`."""

import os
import sys

if not sys.flags.safe_path and sys.path[:1] in ([""], [os.getcwd()]):
    del sys.path[0]  # a typer.py beside somebody's embeddings is not the one that is meant

from cocos.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
