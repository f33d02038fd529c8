"""Commands in a pod over the websocket protocol `v5.channel.k8s.io`: no kubectl, and stdin that ends.

The first byte of each frame is its channel: 0 stdin, 1 stdout, 2 stderr, 3 a Status object when the command is over.
The two bytes 0xFF 0x00 from us close channel 0, which earlier versions could not say. Synchronous, because each run
has a thread of its own; the socket is ours, so that an abort or a deadline can shut it under any call.

A stream that ends, or that says Success, proves little: kubelets that restart do both. Callers check what the
command itself recorded (`sandboxes/`).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Protocol, cast
from urllib.parse import urlencode, urlsplit

from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from hummingbird_operator.errors import Aborted, HummingbirdError, Unavailable
from hummingbird_operator.kube import client, refusals
from hummingbird_operator.kube.connection import Endpoint
from hummingbird_operator.kube.status import ExecStatus, parse_status
from hummingbird_operator.kube.tls import TlsSocket

STDIN, STDOUT, STDERR, STATUS, CLOSE = 0, 1, 2, 3, 255
SUBPROTOCOL = Subprotocol("v5.channel.k8s.io")
FRAME = 1 << 18
"""Bytes of stdin in one frame: bounds what both sides hold in memory."""
CONNECT_SECONDS = 10.0
PING_SECONDS = 20.0
"""Load balancers cut connections that are silent for a minute; a ping is traffic."""
KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 30_000))


class Abort(Protocol):
    """What an exec needs of `hummingbird_ai.abort.Abort`."""

    @property
    def reason(self) -> str | None:
        """Why, or None while nobody asked."""

    def on_abort(self, callback: Callable[[], None]) -> AbstractContextManager[Any]:
        """Have the callback called when somebody asks, at once if it was so already."""


class StreamBroken(HummingbirdError):
    """The connection ended without a Status: the command may or may not have run, and may still run."""


class NotStarted(Unavailable):
    """No stream came about: nothing was run, the same request may be made again."""


class ExecTimeout(StreamBroken):
    """The deadline passed; the socket was shut, the command may still run."""


class ExecStream:
    """One command under way. One thread sends, one receives; `shut` may come from any."""

    def __init__(self, websocket: ClientConnection, shut: Callable[[], None]) -> None:
        self.shut = shut
        self.close = websocket.close_socket
        self._websocket = websocket

    def send(self, data: bytes) -> None:
        """To the command's stdin, in bounded frames. Raises StreamBroken once the other end is gone."""
        view = memoryview(data)
        try:
            for start in range(0, len(view), FRAME):
                self._websocket.send(b"\x00" + view[start : start + FRAME].tobytes())
        except ConnectionClosed as error:
            raise StreamBroken(f"stdin was cut: {error}") from error

    def end_stdin(self) -> None:
        """Let the command read its end of file."""
        with suppress(ConnectionClosed):  # a command that is over needs no end of file
            self._websocket.send(bytes((CLOSE, STDIN)))

    def receive(self, timeout: float | None) -> tuple[int, bytes] | None:
        """The next frame as (channel, data); None when the connection ended. Raises TimeoutError."""
        try:
            frame = self._websocket.recv(timeout=timeout)
        except ConnectionClosed:
            return None
        data = frame if isinstance(frame, bytes) else frame.encode()
        return (data[0], data[1:]) if data else (CLOSE, b"")


class ExecConnection:
    """Opens exec streams to pods of one API server. Thread-safe: each stream has a connection of its own."""

    def __init__(self, endpoint: Endpoint, *, connect_seconds: float = CONNECT_SECONDS) -> None:
        self._endpoint = endpoint
        self._connect_seconds = connect_seconds
        # an abort cuts sockets on purpose, which the library logs as errors with tracebacks
        self._quiet = logging.getLogger(f"{__name__}.websocket")
        self._quiet.setLevel(logging.CRITICAL)

    @contextmanager
    def open(
        self,
        namespace: str,
        pod: str,
        argv: Sequence[str],
        *,
        container: str = "",
        stdin: bool = True,
        deadline_seconds: float | None = None,
        abort: Abort | None = None,
    ) -> Iterator[ExecStream]:
        """Start `argv` in the pod. The socket is shut when the block ends, on abort, and at the deadline.

        Raises NotFound (no such pod), Invalid (the Role), NotStarted (the API server or the kubelet), Aborted.
        Inside the block a StreamBroken turns into Aborted or ExecTimeout when that is what broke it.
        """
        query: list[tuple[str, str]] = [("command", word) for word in argv]
        query += [("stdin", "true" if stdin else "false"), ("stdout", "true"), ("stderr", "true")]
        if container:
            query.append(("container", container))
        target = client.path(client.PODS, namespace, pod, "exec") + "?" + urlencode(query)
        expired = threading.Event()
        try:
            with ExitStack() as stack:
                sock = stack.enter_context(self._dial())
                shut = _shutter(sock)
                if abort is not None:
                    stack.enter_context(abort.on_abort(shut))
                if deadline_seconds is not None:
                    stack.enter_context(_deadline(deadline_seconds, expired, shut))
                stream = ExecStream(self._upgrade(sock, target), shut)
                stack.callback(stream.close)
                yield stream
        except (StreamBroken, Unavailable) as error:
            if abort is not None and abort.reason is not None:
                raise Aborted(abort.reason) from error
            if expired.is_set():
                raise ExecTimeout(f"no end within {deadline_seconds:g} s") from error
            raise

    def pod(self, namespace: str, name: str) -> client.Object | None:
        """The pod as it stands now, or None. A plain GET, for the threads that have no event loop."""
        split = urlsplit(self._endpoint.server)
        tls = self._endpoint.access.tls
        host, port = split.hostname or "", split.port
        http = (
            HTTPSConnection(host, port, timeout=self._connect_seconds, context=tls)
            if tls
            else HTTPConnection(host, port, timeout=self._connect_seconds)
        )
        what = f"get pods {namespace}/{name}"
        try:
            http.request("GET", split.path + client.path(client.PODS, namespace, name), headers=self._headers())
            reply = http.getresponse()
            status, raw = reply.status, reply.read()
        except (OSError, HTTPException) as error:
            raise Unavailable(refusals.SERVICE, f"{what}: {error}") from error
        finally:
            http.close()
        if status == 404:
            return None
        payload = refusals.decode(raw)
        if status != 200:
            refusals.raise_for(status, payload, what)
        return payload

    def _headers(self) -> dict[str, str]:
        authorization = self._endpoint.access.authorization()
        return {"Authorization": authorization} if authorization else {}

    @contextmanager
    def _dial(self) -> Iterator[socket.socket | TlsSocket]:
        """A connected socket, TLS included: TLS is ours and not the websocket's, so that `shut` works early."""
        split = urlsplit(self._endpoint.server)
        tls = self._endpoint.access.tls
        host = split.hostname or ""
        try:
            sock = socket.create_connection((host, split.port or (443 if tls else 80)), self._connect_seconds)
            for name, value in KEEPALIVE:
                if hasattr(socket, name):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if tls is None:
                sock.settimeout(None)
            secured = TlsSocket(sock, tls, self._endpoint.server_name or host) if tls is not None else sock
        except OSError as error:
            raise NotStarted(refusals.SERVICE, f"exec: {error}") from error
        with closing(secured):
            yield secured

    def _upgrade(self, sock: socket.socket | TlsSocket, target: str) -> ClientConnection:
        split = urlsplit(self._endpoint.server)
        try:
            return connect(
                f"ws://{split.netloc}{split.path}{target}",
                sock=cast(socket.socket, sock),
                subprotocols=[SUBPROTOCOL],
                compression=None,
                max_size=None,
                proxy=None,
                additional_headers=self._headers(),
                user_agent_header="hummingbird-operator",
                open_timeout=self._connect_seconds,
                ping_interval=PING_SECONDS,
                ping_timeout=None,  # a server that is blocked on the command's stdin answers no ping
                logger=self._quiet,
                legacy=True,
            )
        except InvalidStatus as error:
            status, raw = error.response.status_code, error.response.body or b""
            if status == 401 and asyncio.run(self._endpoint.reload()):
                raise NotStarted(refusals.SERVICE, "exec: the credentials had expired and were loaded again") from error
            try:
                refusals.raise_for(status, refusals.decode(bytes(raw)), "create pods/exec")
            except Unavailable as refusal:
                raise NotStarted(refusals.SERVICE, refusal.problem, retry_after=refusal.retry_after) from error
        except (WebSocketException, OSError, EOFError) as error:
            raise NotStarted(refusals.SERVICE, f"exec: {error}") from error


def exec_stream(
    stream: ExecStream,
    on_frame: Callable[[int, bytes], None],
    *,
    on_silence: Callable[[], None] | None = None,
    silence_seconds: float = 15.0,
) -> ExecStatus:
    """Read a stream to its Status. `on_silence` is called after each stretch without a frame and may raise:

    an exec on a pod that was removed stays open and silent for ever (kubernetes#129144), so somebody has to look.
    Raises StreamBroken when the connection ends without a Status.
    """
    while True:
        try:
            frame = stream.receive(silence_seconds if on_silence else None)
        except TimeoutError:
            if on_silence:
                on_silence()
            continue
        if frame is None:
            raise StreamBroken("the connection ended before the command did")
        channel, data = frame
        if channel == STATUS:
            return parse_status(data)
        if channel in (STDOUT, STDERR):
            on_frame(channel, data)


def _shutter(sock: socket.socket | TlsSocket) -> Callable[[], None]:
    def shut() -> None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    return shut


@contextmanager
def _deadline(seconds: float, expired: threading.Event, shut: Callable[[], None]) -> Iterator[None]:
    def expire() -> None:
        expired.set()
        shut()

    timer = threading.Timer(max(0.0, seconds), expire)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
