"""Compare the numbers of this state with the stored ones, write them, or see that planted faults are found."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from golden import calls, faults, files, store  # noqa: E402


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("groups", nargs="*", default=[], help=f"of {', '.join(calls.GROUPS)}")
    parser.add_argument("--write", action="store_true", help="store the numbers of this state")
    parser.add_argument("--faults", action="store_true", help="plant a fault of each group in a copy of the package")
    chosen = parser.parse_args()
    if unknown := set(chosen.groups) - set(calls.GROUPS):
        parser.error(f"{', '.join(sorted(unknown))}: expected groups of {', '.join(calls.GROUPS)}")
    if chosen.write and not chosen.groups:
        files.write_example()
    if chosen.faults:
        missed = [group for group in chosen.groups or calls.GROUPS if not faults.run_with_fault(group)]
        print(f"not found: {', '.join(missed)}" if missed else "every planted fault was found")
        return 1 if missed else 0
    failed = 0
    for group in chosen.groups or calls.GROUPS:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            entries = list(calls.entries(group, Path(folder)))
        if chosen.write:
            path = store.write(group, entries)
            outcome = f"{path.stat().st_size / 1e6:.2f} MB written"
        else:
            lines = store.differences(group, entries, files.OPTIONAL)
            failed += len(lines)
            outcome = f"{len(lines)} differences"
            print(*(f"  {line}" for line in lines[:20]), sep="\n", end="\n" if lines else "")
        print(f"{group}: {len(entries):,} entries, {outcome}, {time.perf_counter() - start:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
