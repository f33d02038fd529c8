"""Make a folder once: in a temporary folder first, then renamed, under a lock."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from cluster.locks import locked


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """`folder`, filled by `make` if it does not exist. It exists only if `make` came to its end."""
    if folder.is_dir():
        return folder
    with locked(folder.with_name(folder.name + ".lock"), f"build {folder.name}"):
        if folder.is_dir():  # Another process was faster.
            return folder
        for leftover in folder.parent.glob(f".{folder.name}.*"):  # Of a build that was killed: we hold the lock.
            shutil.rmtree(leftover, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            make(work)
            work.chmod(0o755)
            work.rename(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return folder
