"""Fakes that ship with the engine: a sandbox on a local folder and a store in memory, with faults to inject.

They keep the contracts of `sandbox.py` and `store.py`, so what a test shows with them holds for the real ones: the
store's battery of tests runs over `MemoryStore` as well. `FakeSandbox` isolates nothing: it runs commands with
`/bin/sh` on this machine, with `/tmp` in them standing for its own folder. Never give it a model's commands.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

from hummingbird_ai.abort import Abort
from hummingbird_operator.errors import Aborted, Conflict, SandboxLost, Unavailable
from hummingbird_operator.sessions.sandbox import CommandResult, ExecResult, RunLimits, StreamOutput
from hummingbird_operator.sessions.spill import head_text, tail_text
from hummingbird_operator.sessions.store import CHUNK_BYTES, SERVICE, checked_key

OnCall = Callable[[str], None]
"""Told `before <call>` and `after <call>`; what it raises is the fault that a test wants there."""

Stream = int | IO[bytes]

_TMP = re.compile(r"(?<![A-Za-z0-9_./-])/tmp(?![A-Za-z0-9_.-])")
_READ_BYTES = 64 * 1024
_TRANSLATED_BYTES = 1024 * 1024


class Killed(BaseException):
    """The process dies here: nothing in the engine catches it."""


class KillAt:
    """An OnCall that dies at the given point, counted from 0, once."""

    def __init__(self, point: int) -> None:
        self._point = point
        self.seen: list[str] = []

    def __call__(self, name: str) -> None:
        """Count the point; raise Killed if it is the one."""
        self.seen.append(name)
        if len(self.seen) - 1 == self._point:
            raise Killed(name)


class FakeSandbox:
    """A sandbox on the folder `root`. `executed` lists the ids of commands that really ran, in order."""

    def __init__(self, root: Path, *, abort: Abort | None = None, on_call: OnCall = lambda _: None) -> None:
        self.root = root
        self.on_call = on_call
        self.executed: list[str] = []
        self.lingers_for: str | None = None
        self.cleaned = False
        self._abort = abort or Abort()
        self._records: dict[str, CommandResult] = {}
        self._groups: list[int] = []
        self._lost: SandboxLost | None = None

    def lose(self, cause: str, detail: str = "made by a test") -> None:
        """From now on every method raises SandboxLost."""
        self._lost = SandboxLost(cause, detail)

    def path(self, path: str) -> Path:
        """Where a path of the sandbox lies on this machine."""
        return Path(_TMP.sub(str(self.root), path))

    def start(self) -> None:
        """Create `/tmp/data`."""
        with self._call("start"):
            (self.root / "data").mkdir(parents=True, exist_ok=True)

    def exec(self, command: str, *, stdin_data: bytes | None = None) -> ExecResult:
        """Run `sh -c command`."""
        with self._call("exec"):
            with self._process(command, subprocess.PIPE, subprocess.PIPE, subprocess.PIPE) as process:
                out, err = process.communicate(stdin_data)
            return ExecResult(process.returncode, self._shown(out), self._shown(err))

    def write_file(self, path: str, data: bytes) -> None:
        """Write the file and the folders above it."""
        with self._call("write_file"):
            self._target(path).write_bytes(data)

    def stream_to_file(self, path: str, chunks: Iterable[bytes]) -> tuple[int, int]:
        """Write the chunks as they come."""
        size = lines = 0
        with self._call("stream_to_file"), self._target(path).open("wb") as file:
            for chunk in chunks:
                file.write(chunk)
                size += len(chunk)
                lines += chunk.count(b"\n")
        return size, lines

    def stream_exec(self, command: str, chunks: Iterable[bytes]) -> ExecResult:
        """Run `sh -c command` with the chunks as its input."""
        return self.exec(command, stdin_data=b"".join(chunks))

    def read_file_iter(self, path: str) -> Iterator[bytes]:
        """The file in chunks of 64 KiB."""
        with self._call("read_file_iter"), self.path(path).open("rb") as file:
            while chunk := file.read(_READ_BYTES):
                yield chunk

    def cleanup(self) -> None:
        """Delete it."""
        self.sweep()
        self.cleaned = True
        shutil.rmtree(self.root, ignore_errors=True)

    def linger(self, session_id: str) -> None:
        """Remember for whom it is kept."""
        with self._call("linger"):
            self.lingers_for = session_id

    def run(self, command_id: str, command: str, limits: RunLimits) -> CommandResult:
        """Run the command once; a known id returns its record."""
        with self._call("run"):
            if command_id in self._records:
                return replace(self._records[command_id], replayed=True)
            self.executed.append(command_id)
            self._records[command_id] = self._run(command, limits)
            return self._records[command_id]

    def sweep(self, *, seconds: float | None = None) -> None:
        """Kill every process group that `run` began."""
        for group in self._groups:
            _kill(group)
        self._groups.clear()

    def _run(self, command: str, limits: RunLimits) -> CommandResult:
        out, err = self.root / ".stdout", self.root / ".stderr"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = self._process(command, subprocess.DEVNULL, stdout, stderr)
            self._groups.append(process.pid)
            timed_out = False
            with self._abort.on_abort(lambda: _kill(process.pid)):
                try:
                    process.wait(limits.timeout_seconds)
                except subprocess.TimeoutExpired:
                    timed_out = True
                    _kill(process.pid)
                    process.wait()
        if self._abort.is_set():
            raise Aborted(self._abort.reason or "Cancelled")
        return CommandResult(
            process.returncode,
            self._kept(out, limits.stdout_path, limits),
            self._kept(err, limits.stderr_path, limits),
            timed_out,
        )

    def _kept(self, file: Path, path: str, limits: RunLimits) -> StreamOutput:
        """Keep a stream in place if it is long, as a real sandbox does; only head, tail and counts leave."""
        size = file.stat().st_size
        if size <= _TRANSLATED_BYTES:
            file.write_bytes(file.read_bytes().replace(str(self.root).encode(), b"/tmp"))
            size = file.stat().st_size
        truncated = size > limits.max_output_bytes
        if truncated:
            os.truncate(file, limits.max_output_bytes)
            size = limits.max_output_bytes
        with file.open("rb") as stream:
            head = stream.read(limits.head_bytes)
            stream.seek(max(0, size - limits.tail_bytes))
            tail = stream.read(limits.tail_bytes)
            stream.seek(0)
            lines = sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(_READ_BYTES), b""))
        if size <= limits.head_bytes:
            return StreamOutput(head_text(head, limits.head_bytes), "", size, lines, None, truncated)
        file.rename(self._target(path))
        shown = head_text(head, limits.head_bytes, more=True)
        return StreamOutput(shown, tail_text(tail, limits.tail_bytes, more=True), size, lines, path, truncated)

    @contextlib.contextmanager
    def _call(self, name: str) -> Iterator[None]:
        self.on_call(f"before sandbox.{name}")
        if self._lost is not None:
            raise self._lost
        yield
        self.on_call(f"after sandbox.{name}")

    def _process(self, command: str, stdin: int, stdout: Stream, stderr: Stream) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["/bin/sh", "-c", _TMP.sub(str(self.root), command)],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=self.root,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            start_new_session=True,
        )

    def _target(self, path: str) -> Path:
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def _shown(self, data: bytes) -> str:
        return data.replace(str(self.root).encode(), b"/tmp").decode(errors="replace")


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


class MemoryStore:
    """A store in a dict. `down` makes it Unavailable until unset; `fail_next` does so for some calls only."""

    def __init__(self, *, on_call: OnCall = lambda _: None) -> None:
        self.blobs: dict[str, bytes] = {}
        self.on_call = on_call
        self.down = False
        self.fail_next = 0
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        """The whole blob."""
        with self._call("get", key):
            return self.blobs.get(key)

    def open(self, key: str) -> Iterator[bytes] | None:
        """The blob in chunks."""
        data = self.get(key)
        if data is None:
            return None
        return (data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES))

    def create(self, key: str, data: bytes) -> bool:
        """Write only if nothing is there."""
        with self._call("create", key), self._lock:
            if key in self.blobs:
                return False
            self.blobs[key] = data
            return True

    def put(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
        """Write; Conflict if `if_match` differs."""
        with self._call("put", key), self._lock:
            if if_match is not None and if_match != _etag(self.blobs.get(key)):
                raise Conflict(f"{key} was changed meanwhile")
            self.blobs[key] = data
            return hashlib.sha256(data).hexdigest()

    def etag(self, key: str) -> str | None:
        """The digest of what is there."""
        with self._call("etag", key):
            return _etag(self.blobs.get(key))

    def put_stream(self, key: str, chunks: Iterable[bytes]) -> tuple[int, str]:
        """Write the chunks."""
        with self._call("put_stream", key):
            data = b"".join(chunks)
            self.blobs[key] = data
            return len(data), hashlib.sha256(data).hexdigest()

    def url(self, key: str) -> str:
        """Nobody finds it."""
        return f"memory:///{checked_key(key)}"

    def list(self, prefix: str) -> list[str]:
        """Keys that begin with the prefix."""
        with self._call("list", "any"):
            return sorted(key for key in self.blobs if key.startswith(prefix))

    @contextlib.contextmanager
    def _call(self, name: str, key: str) -> Iterator[None]:
        checked_key(key)
        self.on_call(f"before store.{name}")
        if self.down or self.fail_next > 0:
            self.fail_next -= not self.down
            raise Unavailable(SERVICE, "a test took it down")
        yield
        self.on_call(f"after store.{name}")


def _etag(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()
