"""A watch that only says "look again": it carries no state, so a missed event costs a delay and nothing else.

kopf watches our own kinds. Sandboxes are watched here: kopf would watch pods in the operator's own namespace as well,
and the operator must not be able to read pods there.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import aiohttp

from hummingbird_operator.kube.client import Resource, path
from hummingbird_operator.kube.connection import Endpoint

logger = logging.getLogger(__name__)

SERVER_SECONDS = 300
SILENCE_SECONDS = 90.0
"""The server sends a bookmark each minute: a watch that says nothing for longer is dead, whatever its socket says."""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
LONGEST_ASKED_SECONDS = 60.0
"""A server, or whatever stands before it, that asks for more is not obeyed: runs wait for what a watch shows."""


async def keep_watching(
    endpoint: Endpoint,
    resource: Resource,
    namespace: str,
    *,
    label_selector: str,
    seen: Callable[[Mapping[str, Any]], None],
    silence_seconds: float = SILENCE_SECONDS,
    first_pause: float = FIRST_PAUSE,
) -> None:
    """Call `seen` with every object that was added, changed or deleted, for ever; also after each reconnection."""
    pause = first_pause
    while True:
        asked_for = 0.0
        try:
            async for event in _events(endpoint, resource, namespace, label_selector, silence_seconds):
                pause = first_pause
                if event.get("type") in ("ADDED", "MODIFIED", "DELETED"):
                    seen(event.get("object") or {})
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            asked_for = _retry_after(error)
            text = f"{type(error).__name__}: {error}"
            logger.warning("the watch on %s ended: %s; again in %.1f s", resource.plural, text, max(pause, asked_for))
        await asyncio.sleep(max(asked_for, pause * random.uniform(0.5, 1)))  # noqa: S311 - no secret
        pause = min(2 * pause, LONGEST_PAUSE)


async def _events(
    endpoint: Endpoint, resource: Resource, namespace: str, label_selector: str, silence_seconds: float
) -> AsyncIterator[Mapping[str, Any]]:
    """The events of one connection; without a resourceVersion it begins with what is there now."""
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "labelSelector": label_selector,
        "timeoutSeconds": str(SERVER_SECONDS),
    }
    url = f"{endpoint.server}{path(resource, namespace)}?{urlencode(query)}"
    access = endpoint.access
    headers = {"Accept": "application/json"}
    if authorization := access.authorization():
        headers["Authorization"] = authorization
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=silence_seconds)
    connector = aiohttp.TCPConnector(ssl=access.tls if access.tls is not None else False)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=2**20) as session,
        session.get(url, headers=headers) as response,
    ):
        if response.status == 401:
            await endpoint.reload()
        response.raise_for_status()
        async for line in _lines(response.content):
            yield json.loads(line)


def _retry_after(error: Exception) -> float:
    """The server's own hint in seconds, as far as it is obeyed; 0 without one."""
    headers = error.headers if isinstance(error, aiohttp.ClientResponseError) else None
    try:
        asked_for = float(headers.get("Retry-After") or 0) if headers is not None else 0.0
    except ValueError:  # a date: no API server of Kubernetes sends one
        return 0.0
    return min(max(0.0, asked_for), LONGEST_ASKED_SECONDS)


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length: a pod may be larger than any reader's limit."""
    rest = b""
    async for chunk in stream.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line.strip():
                yield line
