"""The exec websocket against a server on loopback that speaks v5, honestly and not."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kubernetes.aio.client import Configuration
from websockets.sync.server import ServerConnection, serve
from websockets.typing import Subprotocol

from hummingbird_ai.abort import Abort
from hummingbird_operator.errors import Aborted, Unavailable
from hummingbird_operator.kube.connection import Access, Endpoint
from hummingbird_operator.kube.exec import (
    FRAME,
    ExecConnection,
    ExecTimeout,
    NotStarted,
    StreamBroken,
    exec_stream,
)
from hummingbird_operator.kube.status import ExecStatus, parse_status

SUCCESS = b"\x03" + json.dumps({"status": "Success"}).encode()


@contextmanager
def served(handler: Callable[[ServerConnection], None]) -> Iterator[ExecConnection]:
    with serve(
        handler,
        "127.0.0.1",
        0,
        subprotocols=[Subprotocol("v5.channel.k8s.io")],
        compression=None,
        close_timeout=0.2,
        max_size=None,
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        yield ExecConnection(Endpoint(Access(configuration, None, lambda: "Bearer t")))
        server.shutdown()
        thread.join()


def echo(websocket: ServerConnection) -> None:
    """What arrives on stdin goes back on stdout; the end of stdin ends the command."""
    for frame in websocket:
        assert isinstance(frame, bytes)
        if frame == b"\xff\x00":
            websocket.send(SUCCESS)
            return
        websocket.send(b"\x01" + frame[1:])


def failure(code: int) -> bytes:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return b"\x03" + json.dumps({"status": "Failure", "message": "m", "details": {"causes": causes}}).encode()


def test_stdin_is_sent_in_bounded_frames_and_ends() -> None:
    """Seed 003 §8.4: no end of stdin in v1 to v4; more than 1 MB broke the pipe."""
    got, sizes = bytearray(), []

    def handler(websocket: ServerConnection) -> None:
        for frame in websocket:
            assert isinstance(frame, bytes)
            sizes.append(len(frame))
            if frame == b"\xff\x00":
                websocket.send(SUCCESS)
                return
            got.extend(frame[1:])

    data = bytes(range(256)) * 6000
    with served(handler) as connection, connection.open("n", "p", ["cat"]) as stream:
        stream.send(data)
        stream.end_stdin()
        assert exec_stream(stream, lambda channel, part: None) == ExecStatus(0, "")
    assert bytes(got) == data
    assert max(sizes) <= FRAME + 1


def test_streams_are_told_apart_and_the_exit_code_is_read() -> None:
    def handler(websocket: ServerConnection) -> None:
        for frame in (b"\x01", b"\x01out\xff", b"\x02err", b"\x01more", failure(7)):
            websocket.send(frame)

    seen: list[tuple[int, bytes]] = []
    with served(handler) as connection, connection.open("n", "p", ["x"]) as stream:
        status = exec_stream(stream, lambda channel, data: seen.append((channel, data)))
    assert status.exit_code == 7
    assert b"".join(data for channel, data in seen if channel == 1) == b"out\xffmore"
    assert b"".join(data for channel, data in seen if channel == 2) == b"err"


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        ({"status": "Success"}, 0),
        ({"status": "Failure", "message": "container not found"}, None),
        ({"status": "Failure", "details": None}, None),
        ({"status": "Failure", "details": {"causes": [{"reason": "Other"}, "junk"]}}, None),
        ({"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "x"}]}}, None),
        ({"status": "Failure", "details": {"causes": [{"reason": "ExitCode"}]}}, None),
        ([1], None),
    ],
)
def test_any_status_is_read_without_an_error(raw: Any, code: int | None) -> None:
    """kopf.md §5: parse_error_data raises KeyError when the status has no exit code."""
    assert parse_status(json.dumps(raw).encode()).exit_code == code
    assert parse_status(b"\xffnot json").exit_code is None


def test_an_end_without_a_status_is_not_success() -> None:
    with (
        served(lambda websocket: websocket.send(b"\x01half")) as connection,
        connection.open("n", "p", ["x"]) as stream,
        pytest.raises(StreamBroken),
    ):
        exec_stream(stream, lambda channel, data: None)


def silent(websocket: ServerConnection) -> None:
    for _ in websocket:
        continue


def run_into(connection: ExecConnection, **options: Any) -> float:
    began = time.monotonic()
    with connection.open("n", "p", ["x"], **options) as stream:
        exec_stream(stream, lambda channel, data: None)
    return time.monotonic() - began


def test_a_deadline_ends_a_silent_command() -> None:
    """kopf.md §2 no. 24."""
    with served(silent) as connection:
        began = time.monotonic()
        with pytest.raises(ExecTimeout):
            run_into(connection, deadline_seconds=0.2)
        assert time.monotonic() - began < 2


def test_an_abort_ends_a_silent_command_at_once() -> None:
    abort = Abort()
    with served(silent) as connection:
        threading.Timer(0.2, abort.set, ["Cancelled"]).start()
        began = time.monotonic()
        with pytest.raises(Aborted, match="Cancelled"):
            run_into(connection, abort=abort)
        assert time.monotonic() - began < 2
        with pytest.raises(Aborted):
            run_into(connection, abort=abort)


def test_an_abort_ends_a_send_that_nobody_reads() -> None:
    abort, over = Abort(), threading.Event()

    def deaf(websocket: ServerConnection) -> None:
        over.wait(10)

    with served(deaf) as connection:
        threading.Timer(0.3, abort.set, ["TimedOut"]).start()
        with pytest.raises(Aborted), connection.open("n", "p", ["x"], abort=abort) as stream:  # noqa: PT012
            for _ in range(1000):
                stream.send(b"x" * FRAME)
        over.set()


def test_silence_is_looked_into_and_may_end_the_wait() -> None:
    """kopf.md §2 no. 25: a removed pod's exec stays open but frozen."""
    looked: list[float] = []

    def look() -> None:
        looked.append(time.monotonic())
        if len(looked) == 2:
            raise Unavailable("the pod", "gone")

    with (
        served(silent) as connection,
        pytest.raises(Unavailable, match="gone"),
        connection.open("n", "p", ["x"]) as stream,
    ):
        exec_stream(stream, lambda channel, data: None, on_silence=look, silence_seconds=0.1)
    assert len(looked) == 2


def test_a_server_that_is_away_started_nothing() -> None:
    configuration = Configuration()
    configuration.host = "http://127.0.0.1:9"
    connection = ExecConnection(Endpoint(Access(configuration, None, lambda: None)))
    with pytest.raises(NotStarted):
        run_into(connection)
    with pytest.raises(Unavailable):
        connection.pod("n", "p")


def test_the_command_the_container_and_the_token_are_sent() -> None:
    asked: list[Any] = []

    def handler(websocket: ServerConnection) -> None:
        asked.append(websocket.request)
        websocket.send(SUCCESS)

    with (
        served(handler) as connection,
        connection.open("n", "p", ["sh", "-c", "a b&c"], container="main") as stream,
    ):
        exec_stream(stream, lambda channel, data: None)
    request = asked[0]
    assert request.path.startswith("/api/v1/namespaces/n/pods/p/exec?command=sh&command=-c&command=a+b%26c&")
    assert "container=main" in request.path
    assert request.headers["Authorization"] == "Bearer t"
    assert request.headers["Sec-WebSocket-Protocol"] == "v5.channel.k8s.io"


def test_large_answers_arrive_whole() -> None:
    with served(echo) as connection, connection.open("n", "p", ["cat"]) as stream:
        data = b"\x00\xff" * 300_000
        got = bytearray()
        reader = threading.Thread(target=lambda: exec_stream(stream, lambda channel, part: got.extend(part)))
        reader.start()
        stream.send(data)
        stream.end_stdin()
        reader.join()
    assert bytes(got) == data
