"""Ten faults of the package, one a group, that the golden comparison must find.

A fault is a file of the package, a piece of it that occurs once, and what stands there instead.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT = 600  # seconds of one group on a loaded machine
FAULTS = {
    "losses": (
        "losses/smoothap.py",
        "torch.where(pairs.positive, above, 0).sum(dim=1) + 0.5",
        "torch.where(pairs.positive, above, 0).sum(dim=1) + 0.50001",
    ),
    "counts": (
        "counting/statistics.py",
        '{"effective": effective, "participation": participation,',
        '{"effective": participation, "participation": effective,',
    ),
    "evaluations": (
        "measures/shared/retrieval.py",
        "torch.where(rank <= k, precision / positives.clamp(max=k), 0)",
        "torch.where(rank <= k, precision / positives, 0)",
    ),
    "queries": ("measures/audit.py", 'sampling["copies"] or "keep"', 'sampling["copies"] or "once"'),
    "whatifs": (
        "counting/comparisons.py",
        '"difference": float((other - one).mean())',
        '"difference": float((one - other).mean())',
    ),
    "curves": ("measures/lorenz.py", "torch.lerp(left, right, at - below)", "torch.lerp(left, right, below - at)"),
    "landscapes": (
        "measures/landscape.py",
        "return places[0] + high * behind,",
        "return places[0] + 1.001 * high * behind,",
    ),
    "draws": (
        "embeddings/sampling.py",
        "torch.Generator().manual_seed(seed)",
        "torch.Generator().manual_seed(seed + 1)",
    ),
    "checkpoints": ("checkpoints/formats/vsepp.py", "return image.abs() if self.use_abs else image", "return image"),
    "lines": ("counting/averages.py", '"std": float(found.std())}', '"std": 1.001 * float(found.std())}'),
}


def run_with_fault(group: str) -> bool:
    """Plant the fault of a group in a copy of the package, and return whether the comparison finds it."""
    name, piece, instead = FAULTS[group]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for part in ("cocos", "analysis", "tests/golden", "figures"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        path = copy / "cocos" / name
        text = path.read_text(encoding="utf-8")
        assert text.count(piece) == 1, f"{name}: {piece!r} occurs {text.count(piece)} times"
        path.write_text(text.replace(piece, instead), encoding="utf-8")
        command = [sys.executable, "-m", "tests.golden", group]
        options = {"cwd": copy, "env": os.environ | {"PYTHONPATH": folder}, "capture_output": True, "text": True}
        done = subprocess.run(command, **options, timeout=TIMEOUT, check=False)
        print(f"cocos/{name}:", *(done.stdout or done.stderr).splitlines()[-1:])
        return done.returncode == 1 and "differences" in done.stdout
