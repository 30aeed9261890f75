"""Runs that are done stay done: one line of JSON for each, in the order in which they ended."""

import json
from collections.abc import Callable
from pathlib import Path

__all__ = ["RESULTS", "WORK", "kept"]

RESULTS = Path(__file__).parent
WORK = Path("runs-work")


def kept(file: Path, key: str, run: Callable[[], dict]) -> dict:
    """Return the row of a run from the file, or run it and append its row; a line that was cut off is run again."""
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if entry["key"] == key:
            return entry["row"]
    row = run()
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as stream:
        stream.write(f"\n{json.dumps({'key': key, 'row': row})}\n")
    return row
