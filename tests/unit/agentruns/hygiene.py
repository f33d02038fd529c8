"""Finds blocking calls that product code makes on the thread of a running event loop.

Deterministic: Python tells of files, sockets, processes and sleeps by audit events (PEP 578) as they are about to
happen. An event counts while the main thread runs a loop and the innermost function of this project on the stack is
product code: what a fake does in its place is the test's business, and what a library does unasked is the library's.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import SupportsIndex

ROOT = Path(__file__).parents[3]
PRODUCT = (f"{ROOT}/operator/hummingbird_operator/", f"{ROOT}/hummingbird_ai/")
PROJECT = f"{ROOT}/"
FAKES = (f"{ROOT}/hummingbird_ai/testing/",)
NOT_OURS = f"{ROOT}/.venv/"

BLOCKING = frozenset(
    {
        "open", "time.sleep", "subprocess.Popen", "fcntl.flock", "fcntl.lockf", "glob.glob", "urllib.Request",
        "socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo",
        "os.listdir", "os.scandir", "os.walk", "os.fwalk", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link",
        "os.symlink", "os.truncate", "os.chmod", "os.chown", "os.utime", "os.system", "os.posix_spawn", "os.exec",
        "os.fork", "pathlib.Path.glob", "pathlib.Path.rglob", "tempfile.mkstemp", "tempfile.mkdtemp", "shutil.copyfile",
        "shutil.copymode", "shutil.copystat", "shutil.copytree", "shutil.move", "shutil.rmtree", "shutil.chown",
        "shutil.make_archive", "shutil.unpack_archive",
    }
)  # fmt: skip
EXCUSED = ("<frozen importlib", f"{Path(socket.__file__).parent}/linecache.py")
"""Imports, which happen once; and the source lines of a traceback that is logged."""


@dataclass(frozen=True)
class Offence:
    """A blocking call on a loop's thread."""

    event: str
    about: str
    stack: tuple[str, ...]
    """Project functions, innermost first: `file:line function`."""

    def __str__(self) -> str:
        return f"{self.event} {self.about} in " + " < ".join(self.stack)


@dataclass
class Watch:
    """What was seen while it was on."""

    offences: list[Offence] = field(default_factory=list)

    @property
    def places(self) -> set[str]:
        """`file:function` of the innermost product code of each offence."""
        return {each.stack[0].split(":")[0] + ":" + each.stack[0].rsplit(" ", 1)[1] for each in self.offences}


_watches: list[Watch] = []
_inside = threading.local()
_installed: list[bool] = []


@contextmanager
def watching() -> Iterator[Watch]:
    """Keep every offence as long as the block lasts, while the main thread runs a loop."""
    if not _installed:
        sys.addaudithook(_hear)  # for ever: Python knows no way to take one out
        _installed.append(True)
    watch, sleep = Watch(), time.sleep
    _watches.append(watch)
    if sys.version_info < (3, 13):  # only then Python began to tell of it

        def told(seconds: SupportsIndex | float) -> None:
            _hear("time.sleep", (seconds,))
            sleep(seconds)

        time.sleep = told
    try:
        yield watch
    finally:
        time.sleep = sleep
        _watches.remove(watch)


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if not _watches or event not in BLOCKING or getattr(_inside, "hook", False):
        return
    if threading.current_thread() is not threading.main_thread() or asyncio._get_running_loop() is None:
        return  # a loop that a worker thread runs for itself holds nobody up
    if _harmless(event, arguments):
        return
    _inside.hook = True
    try:
        stack = _stack(sys._getframe(2 if event == "time.sleep" and sys.version_info < (3, 13) else 1))
        if stack:
            offence = Offence(event, repr(arguments[0])[:120] if arguments else "", stack)
            for watch in _watches:
                watch.offences.append(offence)
    finally:
        _inside.hook = False


def _harmless(event: str, arguments: tuple[object, ...]) -> bool:
    """A socket that does not block, and a sleep that only lets others go first; a descriptor that is open already."""
    first = arguments[0] if arguments else None
    if event == "socket.connect":
        return isinstance(first, socket.socket) and first.gettimeout() == 0
    return (event == "time.sleep" and first == 0) or (event == "open" and isinstance(first, int))


def _stack(frame: FrameType | None) -> tuple[str, ...]:
    """The project's functions on the stack where product code is the innermost of them; else nothing."""
    found: list[str] = []
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(EXCUSED):
            return ()
        if name.startswith(PROJECT) and not name.startswith(NOT_OURS):
            if not found and (not name.startswith(PRODUCT) or name.startswith(FAKES) or name.endswith("/testing.py")):
                return ()
            found.append(f"{name.removeprefix(PROJECT)}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return tuple(found[:8])
