"""The kernel in a pass: which readers it serves, and what a thread needs to see a part with it."""

from cocos.engine.view import View

__all__ = ["Pass", "serves"]


def serves(view: View, reader) -> bool:
    """Whether the kernel shows the scores of this view to a reader."""
    return False


class Pass:
    """One pass of the kernel over a view, for readers that it serves."""
