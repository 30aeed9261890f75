"""Build the kernel into the wheel, for every level of the processor family, so that a user needs no compiler.

This hook runs in an environment that has hatchling and nothing of cocos. An editable install gets the library for this
processor, beside its sources. Without a C compiler there is no library, and PyTorch reads the tiles.
"""

import importlib.util
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path(__file__).parent


def _build_module() -> Any:
    """Load the module `build` by its path: cocos is not installed here."""
    spec = importlib.util.spec_from_file_location("build", FOLDER / "build.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"{FOLDER / 'build.py'} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class KernelHook(BuildHookInterface[Any]):
    """Add a library for each level to the wheel, and name its platform."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the levels.

        Args:
            version: of the wheel: `standard` or `editable`.
            build_data: contents of the wheel, by hatchling.
        """
        build, editable = _build_module(), version == "editable"
        self._scratch = tempfile.mkdtemp(prefix="kernel-")
        for level in build.processor_levels()[:1] if editable else build.machine_levels():
            try:
                path = build.compile_level(level, FOLDER if editable else Path(self._scratch))
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                self.app.display_warning(f"no kernel for {level.name}: {error}")
                continue
            if not editable:
                build_data["force_include"][str(path)] = f"cocos/engine/kernel/{level.file}"
        if build_data["force_include"]:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the libraries, once they are in the wheel."""
        shutil.rmtree(getattr(self, "_scratch", ""), ignore_errors=True)
