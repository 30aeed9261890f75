"""Write docs/library_bugs.md: the bugs with their threads and the verdicts that were computed for them."""

from pathlib import Path

from analysis.known_bugs.bugs import BUGS, said

PAGE = Path(__file__).parents[2] / "docs" / "library_bugs.md"
HEAD = """# Known library bugs and how cocos names them

{number} bugs of public libraries and repositories, each re-created from its thread as a small function, in code of our
own, and compared with the loss that was meant. The verdict names the fault; the
corrected version of each is reported as *the same*.
Such code trains, its loss falls, and nothing in a log tells it from a slow run. Most of these bugs have been repaired
in their libraries.

```console
$ python3 -m analysis.known_bugs list
$ python3 -m analysis.known_bugs misaligned-gather
```

Batches have 64 pairs, the second one with two hard negatives for each query; two processes hold 32 pairs each.
[Are these the same gradient?](howto/same_gradient.md) says how to compare a loss of your own. This page is written by
`python3 -m analysis.known_bugs page`, and a test compares it with what the functions give now.
"""


def text() -> str:
    """The page."""
    parts = [HEAD.format(number=len(BUGS))]
    for name, bug in BUGS.items():
        parts.append(
            f"## {name}\n\n{bug.fault} ([{bug.library}]({bug.thread}))\n\n"
            f"- verdict: *{said(bug)}*\n- corrected: *{said(bug, cured=True)}*\n"
        )
    return "\n".join(parts)


def write() -> Path:
    """Write the page, and return its path."""
    PAGE.write_text(text(), "utf-8")
    return PAGE.relative_to(PAGE.parents[1])
