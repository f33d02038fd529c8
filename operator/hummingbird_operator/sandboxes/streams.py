"""Both directions of one command: chunks that go in, frames that come out, and the proof of how it ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

from hummingbird_operator.errors import Invalid
from hummingbird_operator.kube.exec import STATUS, STDOUT, ExecStream, StreamBroken, exec_stream
from hummingbird_operator.kube.status import ExecStatus
from hummingbird_operator.sandboxes import commands

OUTPUT_LIMIT = 8 << 20
"""Bytes per stream of a plain exec that are kept here: it is for the engine's own short commands."""


class Output:
    """Both streams of a command, each kept up to a limit; of what is beyond it, the end."""

    def __init__(self, limit: int = OUTPUT_LIMIT) -> None:
        self._limit = limit
        self._kept = {1: bytearray(), 2: bytearray()}
        self._ends = {1: b"", 2: b""}
        self.dropped = {1: 0, 2: 0}

    def add(self, channel: int, data: bytes) -> None:
        """One frame."""
        kept = self._kept[channel]
        room = self._limit - len(kept)
        kept += data[:room]
        if len(data) > room:
            self.dropped[channel] += len(data) - room
            self._ends[channel] = (self._ends[channel] + data[room:])[-64:]

    def bytes(self, channel: int) -> bytes:
        """What was kept of stdout (1) or stderr (2)."""
        return bytes(self._kept[channel]) + self._ends[channel]


class Bounded(Output):
    """Output of which nothing may be beyond the limit: the stream is not read any further."""

    def add(self, channel: int, data: bytes) -> None:
        """One frame. Raises Invalid."""
        super().add(channel, data)
        if self.dropped[channel]:
            raise Invalid(commands.FORGED, f"its answer has more than {self._limit} bytes")


class SourceFailed(Exception):
    """Carries the error of the chunks past everything that names errors of the sandbox."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Source:
    """Chunks for stdin, counted; an error of theirs is told from one of the sandbox's."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.bytes = 0
        self.lines = 0

    def __iter__(self) -> Iterator[bytes]:
        try:
            for chunk in self._chunks:
                self.bytes += len(chunk)
                self.lines += chunk.count(b"\n")
                yield chunk
        except Exception as error:
            raise SourceFailed(error) from error


class Receiver:
    """Reads a stream in a thread of its own. What fails there shuts the stream, so that the sender ends too."""

    def __init__(self, stream: ExecStream, output: Output, on_silence: Callable[[], None]) -> None:
        self._stream, self._output, self._on_silence = stream, output, on_silence
        self._status: ExecStatus | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._receive, name="exec-receiver", daemon=True)
        self._thread.start()

    def _receive(self) -> None:
        try:
            self._status = exec_stream(self._stream, self._output.add, on_silence=self._on_silence)
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits
            self._error = error
            self._stream.shut()

    def join(self) -> None:
        """Wait for the end of the stream."""
        self._thread.join()

    def status(self) -> ExecStatus:
        """The end of the stream, or what failed."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._status or ExecStatus(None, "")


def stdout_of(stream: ExecStream, said: Output, on_silence: Callable[[], None]) -> Iterator[bytes]:
    """Frames of stdout up to the Status; stderr goes to `said`."""
    while True:
        try:
            frame = stream.receive(15.0)
        except TimeoutError:
            on_silence()
            continue
        if frame is None:
            raise StreamBroken("the connection ended before the file did")
        channel, data = frame
        if channel == STATUS:
            return
        if channel == STDOUT:
            yield data
        else:
            said.add(2, data)


def proof_of(stderr: bytes) -> tuple[str, int | None]:
    """Split what a command said on stderr from the exit code that LOADER wrote behind it."""
    text, found, code = stderr.rpartition(commands.TRAILER)
    if not found or not code.strip().isdigit():
        return stderr.decode(errors="replace"), None
    return text.decode(errors="replace"), int(code)
