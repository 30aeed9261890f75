"""The command line of the faults: `python -m faults`, in the folder of the tests."""

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from faults.planting import HERE, Fault, Found, Unfit, copied, load, place, preload, tried


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m faults", description="Plant faults, and see what catches them.")
    parser.add_argument("--only", action="append", metavar="NAME", help="faults, rooms or test files; repeatable")
    parser.add_argument("--list", action="store_true", help="list the faults and where each applies, and run nothing")
    parser.add_argument("--whole", action="store_true", help="run the whole suite where the test files miss a fault")
    parser.add_argument("--repository", type=Path, default=HERE.parent.parent, help="another state, as a worktree")
    parser.add_argument("--deadline", type=float, default=600.0, help="seconds that the test files of a fault may take")
    return parser.parse_args()


def _tell(found: Found) -> None:
    result = f"caught by {found.by}" if found.caught else f"MISSED: {found.by}"
    print(f"{found.fault.room:12}{found.fault.name:44}{found.seconds:6.0f} s  {result}", flush=True)


def _every(faults: list[Fault], given: argparse.Namespace) -> list[Found]:
    """The results of all faults, told one by one as they come."""
    os.environ["OMP_NUM_THREADS"] = "1"
    preload()
    results = []
    with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
        copy = copied(given.repository, Path(scratch))
        for fault in faults:
            try:
                results.append(tried(fault, copy, deadline=given.deadline, whole=given.whole))
            except Unfit as error:
                results.append(Found(fault, False, str(error), 0.0))
            _tell(results[-1])
    return results


def main() -> int:
    """Run the command line: 0 if each fault applies and is caught, else 1."""
    given, faults = _arguments(), load()
    if given.only:
        wanted = set(given.only)
        unknown = wanted - {name for each in faults for name in (each.name, each.room, *each.tests)}
        if unknown:
            print(f"no fault, room or test file is called {', '.join(sorted(unknown))}", file=sys.stderr)
            return 1
        faults = [each for each in faults if wanted & {each.name, each.room, *each.tests}]
    if given.list:
        unfit = 0
        for fault in faults:
            try:
                where = str(place(fault, given.repository).relative_to(given.repository))
            except Unfit as error:
                where, unfit = str(error), unfit + 1
            print(f"{fault.room:12}{fault.name:44}{where}")
        print(f"{len(faults)} faults, {unfit} do not apply", file=sys.stderr)
        return int(unfit > 0)
    found = _every(faults, given)
    rooms, caught = (
        Counter(each.fault.room for each in found),
        Counter(each.fault.room for each in found if each.caught),
    )
    print(", ".join(f"{room} {caught[room]} of {number}" for room, number in rooms.items()))
    return int(not all(each.caught for each in found))


if __name__ == "__main__":
    sys.exit(main())
