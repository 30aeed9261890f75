"""Speed (`python -m benchmarks.speed`, `.cuda`), exactness (`.exactness`) and detectors (`.alarms`, `.monitor`)."""
