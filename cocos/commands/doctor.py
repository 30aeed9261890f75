"""`cocos doctor`."""

from typing import TYPE_CHECKING

from cocos.commands._answer import Answer
from cocos.commands._program import command

if TYPE_CHECKING:
    from cocos.commands._installation import Section
    from cocos.reports.layout import Table

__all__ = ["doctor"]


def _shown(name: str, value) -> str:
    """A fact as text."""
    if name.endswith("_bytes") and value is not None:
        return f"{value / 2**30:.1f} GiB"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) or "none" if isinstance(value, list) else str(value if value is not None else "none")


def _table(sections: "list[Section]", attention: list[str]) -> "Table":
    """All facts, and below them what needs attention."""
    from cocos.reports.layout import Table

    rows = tuple(
        (f"{part.title}: {name.removesuffix('_bytes').replace('_', ' ')}", _shown(name, value))
        for part in sections
        for name, value in part.facts.items()
    )
    notes = [f"attention: {sentence}" for sentence in attention]
    return Table(("", ""), rows, notes=tuple(notes or ["all is well"]), left=True)


@command("The installation", 1)
def doctor():
    """Examine the installation: versions, the compiled kernel, threads, devices, speed; 1 if it needs attention."""
    from cocos.commands._installation import sections

    found = sections()
    attention = [sentence for part in found for sentence in part.attention]
    return Answer(
        text=lambda: _table(found, attention),
        document=lambda: {"ok": not attention, "attention": attention} | {part.title: part.facts for part in found},
        code=int(bool(attention)),
    )
