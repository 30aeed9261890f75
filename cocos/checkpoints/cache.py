"""The embeddings cache: rows of a frozen encoder on disk, one safetensors file for each model and split.

The name of a file is the SHA-256 of everything that the rows depend on. Files are written whole or not at all, so
several processes may share a folder.
"""

import hashlib
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from cocos.base import writing
from cocos.base.errors import unreachable

OFF = ("off", "0")  # values of COCOS_CACHE that switch the cache off
# Distributions that determine the embeddings, if installed.
PACKAGES = ("cocos-metric", "torch", "numpy", "pillow", "transformers", "sentence-transformers", "timm")

logger = logging.getLogger(__name__)


def folder() -> Path | None:
    """Return the folder of the cache: $COCOS_CACHE, or the cache folder of the platform; None if it is off."""
    setting = os.environ.get("COCOS_CACHE", "").strip()
    if setting:
        return None if setting.lower() in OFF else Path(setting)
    home = Path(os.path.expanduser("~"))
    platforms = {"darwin": home / "Library" / "Caches", "win32": Path(os.environ.get("LOCALAPPDATA", home))}
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    base = base if base.is_absolute() else platforms.get(sys.platform, home / ".cache")
    return base / "cocos" / "embeddings" if base.is_absolute() else None


def embeddings(key: Mapping[str, str], total: int, encode: Callable[[], Tensor]) -> Tensor:
    """Return the rows of an encoder, (total, D) float32, from the cache, or encode and store them.

    Args:
        key: everything that the rows depend on, such as the hashes of model and data; empty: the cache is not used.
        total: number of rows.
        encode: returns the rows; called if they are not in the cache.
    """
    directory = folder() if key else None
    if directory is None:
        return encode()
    versions = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    name = hashlib.sha256(json.dumps([dict(key), versions], sort_keys=True).encode()).hexdigest()
    path = directory / f"{name}.safetensors"
    try:
        with safe_open(path, "pt") as tensors:
            rows = tensors.get_tensor("rows")
            if rows.shape[0] == total and rows.dtype == torch.float32:
                return rows.clone()
    except FileNotFoundError:
        pass  # not encoded yet
    except (SafetensorError, OSError) as error:
        logger.warning("note: cache: %s is damaged (%s) and is encoded again", path, " ".join(str(error).split())[:100])
    rows = encode()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with writing.replacing(path) as temporary:
            safetensors.torch.save_file({"rows": rows.contiguous()}, temporary)
    except (OSError, SafetensorError) as error:
        reason = unreachable(error) if isinstance(error, OSError) else str(error)
        logger.warning("note: cache %s cannot be written (%s)", directory, reason)
    return rows
