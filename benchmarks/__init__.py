"""How fast the pass is, how much memory it takes, and how it grows: `python -m benchmarks`."""
