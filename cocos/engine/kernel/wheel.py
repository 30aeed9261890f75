"""Build the kernel into the wheel, for every level of the processor family, so that a user needs no compiler.

This hook runs in the environment that builds a wheel, which has hatchling and nothing of cocos. Without a C compiler,
or on a system for which no kernel is built, the wheel is pure Python, and the kernel is compiled where it is used.
"""

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path(__file__).parent


def _settings() -> Any:
    """The module `levels` beside this file, loaded by its path: cocos is not installed here."""
    found = importlib.util.spec_from_file_location("levels", FOLDER / "levels.py")
    if found is None or found.loader is None:
        raise ImportError(f"{FOLDER / 'levels.py'} cannot be loaded")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


class KernelHook(BuildHookInterface[Any]):
    """Add a library for each level to the wheel, and name its platform."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the levels of this machine's family; an editable install compiles at its first use.

        Args:
            version: of the wheel: `standard` or `editable`.
            build_data: what hatchling puts into the wheel.
        """
        if version == "editable" or sys.platform != "linux":
            return
        settings = _settings()
        self._scratch = tempfile.mkdtemp(prefix="kernel-")
        for level in settings.of_machine():
            path = Path(self._scratch) / level.file
            command = [*settings.compiler(), *settings.COMPILER_FLAGS, *level.flags, "-o", path, FOLDER / "kernel.c"]
            try:
                subprocess.run([*map(str, command), "-lm"], check=True, capture_output=True, timeout=300)
            except (OSError, subprocess.SubprocessError) as error:
                self.app.display_warning(f"no kernel for {level.name} in this wheel: {error}")
                continue
            build_data["force_include"][str(path)] = f"cocos/engine/kernel/{level.file}"
        if build_data["force_include"]:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete what was compiled, once it is in the wheel."""
        shutil.rmtree(getattr(self, "_scratch", ""), ignore_errors=True)
