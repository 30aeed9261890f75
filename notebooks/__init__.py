"""Notebooks that teach; `python -m notebooks` executes them in place and keeps what they print and draw."""
