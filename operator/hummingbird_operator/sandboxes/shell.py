"""A sandbox that is reached through a shell: everything but the transport, which a pod and a machine do differently."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TypeVar

from hummingbird_ai.abort import Abort
from hummingbird_operator.errors import Aborted, Doubt, Invalid, NotFound, Unavailable
from hummingbird_operator.kube.exec import NotStarted, StreamBroken
from hummingbird_operator.kube.status import ExecStatus
from hummingbird_operator.sandboxes import commands
from hummingbird_operator.sandboxes.patience import Patience, bounded
from hummingbird_operator.sandboxes.streams import Bounded, Output, Receiver, Source, SourceFailed, proof_of, stdout_of
from hummingbird_operator.sandboxes.transport import Transport
from hummingbird_operator.sessions.sandbox import EXEC_TIMEOUT, CommandResult, ExecResult, RunLimits

SERVICE = "the sandbox"
STREAM_SECONDS = 1800.0
"""An upper bound for moving a file: the run's own deadline normally ends it first."""
ANSWER_SECONDS = 30.0
"""How long after its time limit a command's record is waited for."""
RECONNECT_SECONDS = 180.0
"""How long a command that was cut off is asked for again, beyond its time limit: an API server may be away for minutes.
Time in doubt about who leads is not counted."""
SWEEP_TRIES = 5
CLEAN_SECONDS = 10.0
CLEAN_ABORTED_SECONDS = 1.0
"""How long the removal of half a file may take, and how long where somebody waits for the end."""
CHUNK = 1 << 16
T = TypeVar("T")


class ShellSandbox:
    """Implements sessions.sandbox.Sandbox over a Transport. Methods may be called from one thread at a time.

    `abort` ends every method, in its pauses too, but `cleanup`, `linger` and `sweep`, which are what follows an abort.
    To read files of a cancelled run, make another one without it. `check` is called before each connection and raises
    where this process may not touch the sandbox (any more); Doubt is waited out.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        abort: Abort | None = None,
        on_cleanup: Callable[[], None],
        on_linger: Callable[[str], None],
        check: Callable[[], None] = lambda: None,
        places: commands.Places = commands.IN_SANDBOX,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self._transport = transport
        self._abort = abort
        self._on_cleanup = on_cleanup
        self._on_linger = on_linger
        self._may = check
        self._places = places
        self._patience = Patience(abort, clock, pause)

    # --- the protocol ---

    def start(self) -> None:
        """Put the script in place and create /tmp/data. Safe to repeat; rides out a short outage."""
        command, data = commands.install(self._places)
        result = self._again(lambda: self._plain(command, [data], deadline=EXEC_TIMEOUT))
        if result.exit_code != 0:
            raise Invalid("the sandbox's image", f"it cannot run the shell script: {result.stderr.strip()[:500]}")

    def exec(self, command: str, *, stdin_data: bytes | None = None) -> ExecResult:
        """Run `sh -c command`. Not repeated once it may have started: Unavailable then."""
        return self._not_started(lambda: self._plain(command, [stdin_data or b""], deadline=EXEC_TIMEOUT))

    def write_file(self, path: str, data: bytes) -> None:
        """Write the file whole or raise."""
        self._again(lambda: self._write(path, [data]))

    def stream_to_file(self, path: str, chunks: Iterable[bytes]) -> tuple[int, int]:
        """Write the chunks; what was counted in the sandbox must be what was sent, else the file is removed."""
        return self._not_started(lambda: self._write(path, chunks))

    def stream_exec(self, command: str, chunks: Iterable[bytes]) -> ExecResult:
        """Run `sh -c command` on the chunks. An error of theirs cuts the connection: no end of file is faked."""
        return self._not_started(lambda: self._plain(command, chunks, deadline=STREAM_SECONDS))

    def read_file_iter(self, path: str) -> Iterator[bytes]:
        """The file in chunks. Raises NotFound before the first one, Unavailable when it was cut on the way."""
        quoted = shlex.quote(path)
        said, got = Output(), 0
        self._check()
        with (
            self._named(),
            self._transport.open(
                ["sh", "-c", commands.LOADER], deadline_seconds=STREAM_SECONDS, abort=self._abort
            ) as stream,
        ):
            stream.send(commands.line(f"wc -c <{quoted} >&2 && exec cat {quoted}"))
            stream.end_stdin()
            for data in stdout_of(stream, said, self._look):
                got += len(data)
                for start in range(0, len(data), CHUNK):
                    yield data[start : start + CHUNK]
        text, code = proof_of(said.bytes(2))
        if code:
            raise NotFound(f"{path} in the sandbox: {text.strip()[:500]}")
        if code is None or text.strip() != str(got):
            raise Unavailable(SERVICE, f"{got} of {text.strip() or 'some'} bytes of {path} arrived")

    def cleanup(self) -> None:
        """Delete the sandbox."""
        self._on_cleanup()

    def linger(self, session_id: str) -> None:
        """Keep it for the session, or delete it where its pool keeps none."""
        self._on_linger(session_id)

    def run(self, command_id: str, command: str, limits: RunLimits) -> CommandResult:
        """Run the command once and bring back its record, over as many connections as it takes."""
        request = commands.request(self._places, command_id, command, limits)
        tries = self._patience.tries(limits.timeout_seconds + ANSWER_SECONDS + RECONNECT_SECONDS)
        cut = False
        while True:
            try:
                self._check()
                with self._named():
                    answer = self._ask(request, limits)
                # after a cut, what was known is our own request
                return replace(answer, replayed=answer.replayed and not cut)
            except Unavailable as error:
                cut = cut or not isinstance(error, NotStarted)
                tries.after(error)

    def sweep(self, *, seconds: float | None = None) -> None:
        """Kill everything but PID 1; with `seconds`, or Unavailable by then."""
        if seconds is not None:
            return bounded(SERVICE, seconds, partial(self._sweep_within, seconds))
        for attempt in range(SWEEP_TRIES):
            try:
                with suppress(Aborted):  # a sweep is what follows one
                    self._check()
                return self._sweep(30.0, None)
            except Unavailable:
                if attempt == SWEEP_TRIES - 1:
                    raise
                (self._patience.replaced or time.sleep)(0.2 * 2**attempt)
        return None

    # --- one conversation ---

    def _sweep_within(self, seconds: float, over: Abort) -> None:
        tries = self._patience.tries(seconds, self._patience.replaced or over.wait)
        while True:
            try:
                return self._sweep(max(tries.left, 0.0), over)
            except Unavailable as error:
                tries.after(error)

    def _sweep(self, deadline: float, over: Abort | None) -> None:
        """The script comes on stdin: the model may have removed the installed one."""
        self._may()
        with self._named():
            status, output = self._talk(["sh", "-s", "sweep"], [commands.script()], deadline, over)
        if status.exit_code != 0:
            raise Unavailable(SERVICE, f"its processes could not be ended: {output.bytes(2).decode()[:300]}")

    def _ask(self, request: bytes, limits: RunLimits) -> CommandResult:
        argv = ["sh", self._places.script, "run"]
        deadline = limits.timeout_seconds + ANSWER_SECONDS
        for _ in range(2):
            status, output = self._talk(argv, [request], deadline, self._abort, Bounded(commands.answer_bytes(limits)))
            answer = commands.parse_answer(output.bytes(1), limits)
            if answer is not None:
                return answer
            if status.exit_code not in commands.NO_SCRIPT:
                break
            self.start()
        if status.exit_code == commands.NO_ROOM:
            raise Invalid(SERVICE, f"it has no room for the command: {output.bytes(2).decode(errors='replace')[:300]}")
        raise StreamBroken(f"the command's record did not arrive: {status.message or status.exit_code}")

    def _write(self, path: str, chunks: Iterable[bytes]) -> tuple[int, int]:
        quoted, folder = shlex.quote(path), shlex.quote(path.rpartition("/")[0] or "/")
        source = Source(chunks)
        try:
            result = self._plain(f"mkdir -p {folder} && cat >{quoted} && wc -c <{quoted}", source, STREAM_SECONDS)
            if result.exit_code != 0:
                raise Invalid(f"{path} in the sandbox", result.stderr.strip()[:500] or "it could not be written")
            if result.stdout.strip() != str(source.bytes):
                raise Unavailable(SERVICE, f"{result.stdout.strip()} of {source.bytes} bytes of {path} arrived")
        except NotStarted:
            raise
        except BaseException as error:
            seconds = CLEAN_ABORTED_SECONDS if isinstance(error, Aborted) else CLEAN_SECONDS
            remove = ["sh", "-c", commands.LOADER], [commands.line(f"rm -f {quoted}")]
            with suppress(Exception):  # half a file would be read as a whole one
                bounded(SERVICE, seconds, lambda over: self._talk(*remove, seconds, over))
            raise
        return source.bytes, source.lines

    def _plain(self, command: str, chunks: Iterable[bytes], deadline: float) -> ExecResult:
        self._check()
        source = chunks if isinstance(chunks, Source) else Source(chunks)
        stdin = chain([commands.line(command)], source)
        try:
            with self._named():
                status, output = self._talk(["sh", "-c", commands.LOADER], stdin, deadline, self._abort)
                stderr, code = proof_of(output.bytes(2))
                if code is None:
                    if not status.exit_code:
                        raise StreamBroken(f"the command's own exit code did not arrive: {status.message}")
                    code = status.exit_code
        except SourceFailed as failed:  # not the sandbox's: it must not be named like one of its errors
            raise failed.error from failed.error.__cause__
        for name, dropped in (("stdout", output.dropped[1]), ("stderr", output.dropped[2])):
            if dropped:
                stderr += f"\nhummingbird: {dropped} bytes of {name} were dropped"
        return ExecResult(code, output.bytes(1).decode(errors="replace"), stderr)

    def _talk(
        self,
        argv: Sequence[str],
        chunks: Iterable[bytes],
        deadline: float,
        abort: Abort | None,
        output: Output | None = None,
    ) -> tuple[ExecStatus, Output]:
        """Send in this thread and receive in another: a command may write before it has read all."""
        output = output or Output()
        with self._transport.open(argv, deadline_seconds=deadline, abort=abort) as stream:
            receiver = Receiver(stream, output, self._look)
            try:
                for chunk in chunks:
                    stream.send(chunk)
                stream.end_stdin()
            except StreamBroken:
                pass  # the command ended without reading all: the receiver knows how
            except BaseException:
                stream.shut()
                receiver.join()
                raise
            return receiver.status(), output

    # --- what went wrong ---

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the cause where the sandbox is lost; a broken stream is Unavailable, chained to what broke.

        Only the look says lost: a 404 of an exec may also be a proxy's, or a kubelet's that has not seen its pods yet.
        """
        try:
            yield
        except (StreamBroken, NotFound, Invalid, Unavailable) as error:
            self._look(error)
            if isinstance(error, NotFound):
                raise NotStarted(SERVICE, str(error)) from error
            if isinstance(error, StreamBroken):
                raise Unavailable(SERVICE, str(error)) from error
            raise

    def _look(self, error: Exception | None = None) -> None:
        with suppress(Unavailable):
            if (lost := self._transport.lost()) is not None:
                raise lost from error

    def _check(self) -> None:
        """Wait until it is certain that this process may go on."""
        while True:
            if self._abort is not None and self._abort.reason is not None:
                raise Aborted(self._abort.reason)
            try:
                return self._may()
            except Doubt as doubt:
                self._patience.bear(doubt)
            except Unavailable as error:
                raise NotStarted(error.service, error.problem, retry_after=error.retry_after) from error

    def _again(self, action: Callable[[], T]) -> T:
        """Repeat what is safe to repeat."""
        return self._retried(action, Unavailable)

    def _not_started(self, action: Callable[[], T]) -> T:
        """Repeat only while no connection came about: nothing was run and nothing was read of the chunks."""
        return self._retried(action, NotStarted)

    def _retried(self, action: Callable[[], T], which: type[Unavailable]) -> T:
        tries = self._patience.tries(RECONNECT_SECONDS)
        while True:
            try:
                self._check()
                return action()
            except which as error:
                tries.after(error)
