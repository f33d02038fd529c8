"""Where a demo lives: a folder of its own, and nothing alive of a demo that was killed."""

from __future__ import annotations

import fcntl
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster import processes


@contextmanager
def own_folder() -> Iterator[Path]:
    """`hummingbird-demo` in the folder for temporary files: empty, for us alone, and left as it is afterwards."""
    folder = Path(tempfile.gettempdir()) / "hummingbird-demo"
    with folder.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"demo: another demo uses {folder}; wait for it")
        end_processes(folder)
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(mode=0o700)
        yield folder


def end_processes(folder: Path) -> int:
    """End what a demo that was killed left running with the folder's configuration; how many there were."""
    config, found = str(folder / "config.yaml"), []
    for pid in processes.all_pids():
        words = processes.command_line(pid)
        if "hummingbird_operator" in words and config in words and (one := processes.identify("left over", pid)):
            found.append(one)
    processes.stop(found, grace=0)
    return len(found)
