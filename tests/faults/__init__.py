"""Deliberate faults, and whether the tests catch them: `python -m faults`, in tests/."""
