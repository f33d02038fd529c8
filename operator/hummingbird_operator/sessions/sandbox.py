"""What the engine needs of a sandbox, whatever stands behind it: a pod, a virtual machine or a local container.

The eight methods of seed 003 §8.1, and two more: `run`, which leaves a command's output where it was made and
answers a repeated id from its record, and `sweep`, which ends everything that still runs in there.
`hummingbird_operator.sandboxes` implements this; `sessions.testing.FakeSandbox` is the one for tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

DATA_DIR = "/tmp/data"  # noqa: S108 - a path inside the sandbox, fixed by seed 003 §8.7
"""Where the model works. It is the only folder that is archived with a session."""

SPILL_DIR = f"{DATA_DIR}/_out"
"""Where results that are too long for the conversation are kept (seed 003 §7.2)."""

OUTPUT_PREVIEW_BYTES = 4096
"""Bytes of a result that the model sees at once; what is longer is spilled."""

OUTPUT_TAIL_BYTES = 512
"""Bytes from the end of a spilled stdout or stderr that the model sees as well."""

EXEC_TIMEOUT = 120.0
"""Seconds that one command may take, unless the model asks for another limit (seed 003 §6.5)."""

MAX_STREAM_BYTES = 256 * 1024 * 1024
"""Bytes of one stream that are kept; the rest is dropped in the sandbox, and said."""


@dataclass(frozen=True)
class ExecResult:
    """What a plain command left: its exit code and its whole output, decoded."""

    exit_code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, kw_only=True)
class RunLimits:
    """Bounds of one `Sandbox.run`, and where a stream longer than `head_bytes` is kept in the sandbox."""

    stdout_path: str
    stderr_path: str
    timeout_seconds: float = EXEC_TIMEOUT
    head_bytes: int = OUTPUT_PREVIEW_BYTES
    tail_bytes: int = OUTPUT_TAIL_BYTES
    max_output_bytes: int = MAX_STREAM_BYTES


@dataclass(frozen=True)
class StreamOutput:
    """One of a command's two streams, as far as it crosses the wire.

    `head` is the whole stream when `path` is None. `tail` may overlap `head`. Neither ever begins or ends inside a
    character (`sessions.spill.head_text` and `tail_text` cut them). `bytes` and `lines` count what was kept.
    """

    head: str = ""
    tail: str = ""
    bytes: int = 0
    lines: int = 0
    path: str | None = None
    truncated: bool = False


@dataclass(frozen=True)
class CommandResult:
    """What `Sandbox.run` returns; `replayed` says that it is the record of an earlier run of the same id."""

    exit_code: int
    stdout: StreamOutput
    stderr: StreamOutput
    timed_out: bool = False
    replayed: bool = False


class Sandbox(Protocol):
    """A place with no network and nothing to steal. Every method may raise SandboxLost or Aborted."""

    def start(self) -> None:
        """Make it ready and create `/tmp/data`."""

    def exec(self, command: str, *, stdin_data: bytes | None = None) -> ExecResult:
        """Run `sh -c command` for the engine itself: short, its output is small."""

    def write_file(self, path: str, data: bytes) -> None:
        """Write the file and the folders above it."""

    def stream_to_file(self, path: str, chunks: Iterable[bytes]) -> tuple[int, int]:
        """Write the chunks as they come, with the folders above; return bytes and lines (newline bytes)."""

    def stream_exec(self, command: str, chunks: Iterable[bytes]) -> ExecResult:
        """Run `sh -c command` with the chunks as its standard input."""

    def read_file_iter(self, path: str) -> Iterator[bytes]:
        """The file in chunks of at most 64 KiB."""

    def cleanup(self) -> None:
        """Delete the sandbox. Safe to repeat."""

    def linger(self, session_id: str) -> None:
        """Keep it for a reply to that session, or delete it where the backend cannot keep one."""

    def run(self, command_id: str, command: str, limits: RunLimits) -> CommandResult:
        """Run the model's command once: a known id returns its recorded result and runs nothing."""

    def sweep(self, *, seconds: float | None = None) -> None:
        """End every process in the sandbox but its first and the one that does this.

        With `seconds` it raises Unavailable where that was not done by then, and has no effect later.
        """
