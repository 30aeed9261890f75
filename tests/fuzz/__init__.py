"""Hostile files by the thousand: valid ones that are damaged, odd, planted or greedy, opened under a guard.

`python -m fuzz`, in tests/, opens 50,000 and prints a table; a few hundred are opened in the tests. A seed, a format
and a number make one file, so that each can be made again: `python -m fuzz --only vsepp:1234`.
"""
