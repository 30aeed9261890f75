"""Memory of this machine."""

import os


def memory() -> int | None:
    """Memory of this machine in bytes; None if unknown."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else None
