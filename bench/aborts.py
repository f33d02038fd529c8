"""How soon an abort ends a call: seen from the other end of its socket, and by whoever made the call."""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from collections.abc import Callable
from statistics import median

from bench.figures import line
from bench.talking import RUN, SYSTEM, adapter
from hummingbird_ai.abort import Abort
from hummingbird_ai.calls import generate_with_retry
from hummingbird_ai.errors import CallAborted

ABORTS = 20
MODEL = "claude-opus-5-5"
_SETTLED = 0.05
"""Seconds until the caller reads again and finds nothing."""
_HEADERS = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n"
_HALF = _HEADERS + b'{"content": ['
_BUSY = b"HTTP/1.1 529 Overloaded\r\nContent-Length: 0\r\n\r\n"


def measure_aborts() -> None:
    """Median and worst, in milliseconds."""
    logging.getLogger("hummingbird_ai").setLevel(logging.ERROR)  # each wait is announced
    for what, sent in (("before the first byte", b""), ("in a body that stalls", _HALF)):
        found = [_aborted(sent) for _ in range(ABORTS)]
        line(f"abort {what}: socket closed, median / worst of {ABORTS}", _span([closed for closed, _ in found]))
        line("  until CallAborted is raised", _span([raised for _, raised in found]))
    waits = [_aborted(_BUSY)[1] for _ in range(ABORTS)]
    line(f"abort in the wait before the next try: until CallAborted, of {ABORTS}", _span(waits))


def _span(seconds: list[float]) -> str:
    return f"{median(seconds) * 1e3:.1f} / {max(seconds) * 1e3:.1f} ms"


def _aborted(sent: bytes) -> tuple[float, float]:
    """Seconds until the stream has ended, and until the call has raised; `sent` is what the call gets before."""
    abort = Abort()
    raised: list[float] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        caller = threading.Thread(target=_call, args=(url, abort, lambda: raised.append(time.monotonic())))
        caller.start()
        connection, _ = listening.accept()
        with connection:
            _read_request(connection)
            connection.sendall(sent)
            time.sleep(_SETTLED)
            began = time.monotonic()
            abort.set("enough")
            if sent is not _BUSY:
                while connection.recv(1 << 16):
                    continue
            closed = time.monotonic() - began
            caller.join()
    return closed, raised[0] - began


def _call(url: str, abort: Abort, ended: Callable[[], None]) -> None:
    model = adapter(url, MODEL)
    contents = [model.make_user_content("Why does the build fail?")]
    try:
        generate_with_retry(model, contents, system=SYSTEM, tools=[RUN], retry_seconds=60, abort=abort)
    except CallAborted:
        ended()


def _read_request(connection: socket.socket) -> None:
    head, _, body = connection.recv(1 << 16).partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    assert length is not None
    while len(body) < int(length.group(1)):
        body += connection.recv(1 << 16)
