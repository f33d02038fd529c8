"""Processes by id *and* start time: an id that the kernel gave to someone else is never signalled."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cluster.commands import environment

PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process that this package started."""

    name: str
    pid: int
    start: int  # clock ticks after boot, from /proc/<pid>/stat


def boot_id(proc: Path = PROC) -> str:
    """Ids and start times mean nothing across a reboot."""
    return (proc / "sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int, proc: Path = PROC) -> int | None:
    """When `pid` began, or None if it is gone or only waits to be reaped."""
    try:
        text = (proc / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # The name before it may hold spaces and parentheses.
    return None if fields[0] in ("Z", "X") else int(fields[19])


def identify(name: str, pid: int, proc: Path = PROC) -> Process | None:
    """The identity of a running process."""
    start = start_time(pid, proc)
    return None if start is None else Process(name, pid, start)


def alive(process: Process, proc: Path = PROC) -> bool:
    """Whether it is still that very process."""
    return start_time(process.pid, proc) == process.start


def start(name: str, argv: Sequence[str | Path], log: Path) -> Process:
    """Start in a session of its own, so that a Ctrl-C at the caller's terminal does not reach it.

    posix_spawn instead of Popen: the process outlives us, and a forgotten Popen warns about that.
    """
    words = [str(word) for word in argv]
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        words[0],
        words,
        environment(),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGPIPE],
    )
    # It cannot be recycled yet: we are its parent and have not waited for it.
    return identify(name, pid) or Process(name, pid, -1)


def send(process: Process, number: signal.Signals) -> None:
    """Signal the process itself: the handle is taken first, then the identity is looked at."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        if alive(process):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


def reap(process: Process) -> None:
    """If it was our own child, do not leave a zombie. A child of somebody else is not ours to wait for."""
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def stop(processes: Iterable[Process], grace: float) -> None:
    """SIGTERM to all, SIGKILL to those that are still there after `grace` seconds."""
    waiting = [process for process in processes if alive(process)]
    for process in waiting:
        send(process, signal.SIGTERM if grace > 0 else signal.SIGKILL)
    waiting = _wait(waiting, grace) if grace > 0 else waiting
    for process in waiting:
        send(process, signal.SIGKILL)
    _wait(waiting, 10.0)


def _wait(processes: list[Process], seconds: float) -> list[Process]:
    end = time.monotonic() + seconds
    while True:
        for process in processes:
            reap(process)
        processes = [process for process in processes if alive(process)]
        if not processes or time.monotonic() > end:
            return processes
        time.sleep(0.05)


def command_line(pid: int, proc: Path = PROC) -> list[str]:
    """Its words; none if it is gone."""
    try:
        return (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def all_pids(proc: Path = PROC) -> list[int]:
    """All process ids now."""
    return [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]
