"""Benchmarks of a pass: time, memory, scaling and exactness. Run `python -m benchmarks`."""
