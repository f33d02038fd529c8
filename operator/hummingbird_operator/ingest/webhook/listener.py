"""uvicorn under our own life: no signals of its own, a port that is taken is said, requests in flight are finished."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from hummingbird_operator.errors import Invalid

CONNECTIONS = 512
"""Open at once; above it uvicorn answers 503 by itself."""
FINISH_SECONDS = 10
"""For requests in flight at the end: more than one takes."""
HEADER_SECONDS = 10.0
"""From a connection, or an answer on it, to the last header of the next request."""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the process's business (lifecycle.py)."""
        yield


def _impatient(seconds: float) -> type[H11Protocol]:
    """uvicorn's protocol, which alone would wait for headers for ever, and read on after an early refusal."""

    class Impatient(H11Protocol):
        _late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
            super().connection_made(transport)
            self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._unset()
            super().connection_lost(exc)

        def on_response_complete(self) -> None:
            self._wait()
            super().on_response_complete()

        def _wait(self) -> None:
            self._unset()
            self._late = self.loop.call_later(seconds, self._close)

        def _unset(self) -> None:
            if self._late is not None:
                self._late.cancel()

        def _close(self) -> None:
            if self.cycle is None or self.cycle.response_complete:  # no request is in hand
                self.transport.close()

    return Impatient


@contextlib.asynccontextmanager
async def listening(
    app: Starlette, port: int, *, host: str = "", header_seconds: float = HEADER_SECONDS
) -> AsyncIterator[int]:
    """Serve while the block lasts, then finish what is in flight. Gives the port; 0 takes a free one.

    Raises Invalid where the port cannot be had.
    """
    try:
        door = socket.create_server((host, port), backlog=128)
    except OSError as error:
        raise Invalid("--port", f"cannot listen on port {port}: {error.strerror}; choose another") from error
    server = _Server(
        uvicorn.Config(
            app,
            http=_impatient(header_seconds),
            ws="none",
            lifespan="off",
            log_config=None,  # ours
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=FINISH_SECONDS,
        )
    )
    serving = asyncio.create_task(server.serve([door]))
    try:
        yield int(door.getsockname()[1])
    finally:
        server.should_exit = True
        await serving
