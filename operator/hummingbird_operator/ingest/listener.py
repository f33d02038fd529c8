"""uvicorn under our own life: no signals of its own, a port that is taken is said, requests in flight are finished."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.applications import Starlette

from hummingbird_operator.errors import Invalid

CONNECTIONS = 512
"""Open at once; above it uvicorn answers 503 by itself."""
FINISH_SECONDS = 10
"""For requests in flight at the end: more than one takes."""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the process's business (lifecycle.py)."""
        yield


@contextlib.asynccontextmanager
async def listening(app: Starlette, port: int, *, host: str = "") -> AsyncIterator[int]:
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
            http="h11",
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
