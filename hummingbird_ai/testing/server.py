"""A Gemini that runs on this computer: real HTTP, real wire format, a script in the place of the model."""

from __future__ import annotations

import json
import re
import select
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from hummingbird_ai.testing.gemini.answers import BYTES_PER_TOKEN, PrefixCache, render
from hummingbird_ai.testing.gemini.rules import refusal
from hummingbird_ai.testing.listener import Listener
from hummingbird_ai.testing.replies import Answer, Drip, HttpError, Reply, Script, Stall

_KEY_PATH = re.compile(r"/v1(?:beta)?/models/([^/:]+):generateContent")
_VERTEX_PATH = re.compile(
    r"/v1(?:beta1)?/projects/[^/]+/locations/[^/]+/publishers/google/models/([^/:]+):generateContent"
)


@dataclass(frozen=True, slots=True)
class ReceivedCall:
    """One request; `at` is time.monotonic() at its arrival, header names are lower case."""

    number: int
    at: float
    path: str
    model: str
    headers: Mapping[str, str]
    raw: bytes
    body: dict[str, Any]
    refused: HttpError | None


class GeminiServer:
    """Serves `generateContent` of the Gemini API and of Vertex AI on a loopback port, in threads.

    Use it as a context manager. `url` is the `base_url` for `build_model`. Every request is checked as Gemini checks
    it; what passes is answered by `script(body, n)`, n counting from 0 what passed. An exception of the script is
    answered with 500 and raised again by `close`. `context_window` tokens (four bytes each) fit into a prompt.

    Beside the API: `GET /calls` lists what came in, `POST /release` lets stalled calls go on.
    """

    def __init__(
        self,
        script: Script,
        *,
        api_key: str = "test-key",
        bearer_token: str = "test-token",  # noqa: S107 - a stand-in for tests, it opens nothing
        host: str = "127.0.0.1",
        port: int = 0,
        context_window: int = 1_048_576,
    ) -> None:
        self.api_key = api_key
        self.bearer_token = bearer_token
        self._script = script
        self._window = context_window
        self._cache = PrefixCache()
        self._lock = threading.Lock()
        self._calls: list[ReceivedCall] = []
        self._accepted = 0
        self._failures: list[BaseException] = []
        self._closed = False
        self._wakers: set[socket.socket] = set()
        self._server = Listener((host, port), self)
        self.port = self._server.server_port
        self.url = f"http://{host}:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="gemini-server")

    def __enter__(self) -> GeminiServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        if kind is None:
            self._raise_failure()

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def close(self) -> None:
        """End every connection and raise what the script raised, if it did."""
        self._stop()
        self._raise_failure()

    @property
    def calls(self) -> tuple[ReceivedCall, ...]:
        """What came in so far, refused requests included."""
        with self._lock:
            return tuple(self._calls)

    def listing(self) -> list[dict[str, Any]]:
        """What `GET /calls` shows of each call."""
        return [
            {"number": call.number, "model": call.model, "bytes": len(call.raw), "refused": call.refused is not None}
            for call in self.calls
        ]

    def release(self) -> None:
        """Let every call that is stalled now go on; later ones stall again."""
        with self._lock:
            for waker in self._wakers:
                waker.sendall(b"!")
            self._wakers.clear()

    def _stop(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.release()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.end_connections()
        self._server.server_close()

    def _raise_failure(self) -> None:
        if self._failures:
            raise self._failures.pop(0)

    def sleep_until_released(self, connection: socket.socket) -> bool:
        """Wait for `release`; False if the client went away or the server closes first."""
        sleeper, waker = socket.socketpair()
        with sleeper, waker:
            with self._lock:
                if self._closed:
                    return False
                self._wakers.add(waker)
            waiting = select.poll()  # not select(): 200 connections may have file numbers above its limit
            waiting.register(sleeper, select.POLLIN)
            waiting.register(connection, select.POLLIN | select.POLLRDHUP)
            ready = {number for number, _ in waiting.poll()}
            with self._lock:
                self._wakers.discard(waker)
                return sleeper.fileno() in ready and not self._closed

    def handle(self, path: str, headers: Mapping[str, str], raw: bytes) -> tuple[Reply, Any]:
        """What to answer, with the document of an Answer already rendered for it."""
        received = time.monotonic()
        match = _KEY_PATH.fullmatch(path) or _VERTEX_PATH.fullmatch(path)
        model = match.group(1) if match else ""
        vertex = "/projects/" in path
        body, problem = self._checked(path, headers, raw, model, vertex)
        with self._lock:
            number = self._accepted
            self._accepted += problem is None
            self._calls.append(ReceivedCall(len(self._calls), received, path, model, headers, raw, body, problem))
        if problem is not None:
            return problem, None
        try:
            reply = self._script(body, number)
            answer = reply.reply if isinstance(reply, Stall | Drip) else reply
            document = None
            if isinstance(answer, Answer):
                document = render(answer, body, model=model, vertex=vertex, number=number, cache=self._cache)
        except Exception as error:  # noqa: BLE001 - whatever a script raises has to reach the test that wrote it
            self._failures.append(error)
            return HttpError(500, f"the script failed: {error!r}"), None
        return reply, document

    def _checked(
        self, path: str, headers: Mapping[str, str], raw: bytes, model: str, vertex: bool
    ) -> tuple[dict[str, Any], HttpError | None]:
        if not model.startswith("gemini-"):
            return {}, HttpError(404, f"models/{model or path} is not found, or not supported for generateContent.")
        unknown = self._unauthorised(headers, vertex)
        try:
            body = json.loads(raw)
        except ValueError as error:
            return {}, unknown or HttpError(400, f"Invalid JSON payload received. {error}")
        if not isinstance(body, dict):
            return {}, unknown or HttpError(400, "Invalid JSON payload received. Expected an object.")
        problem = unknown or refusal(body, model=model, vertex=vertex)
        tokens = len(raw) // BYTES_PER_TOKEN
        if problem is None and tokens > self._window:
            problem = HttpError(
                400,
                f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({self._window}).",
            )
        return body, problem

    def _unauthorised(self, headers: Mapping[str, str], vertex: bool) -> HttpError | None:
        if vertex:
            if headers.get("authorization") == f"Bearer {self.bearer_token}":
                return None
            return HttpError(401, "Request had invalid authentication credentials.", reason="ACCESS_TOKEN_TYPE")
        key = headers.get("x-goog-api-key")
        if key is None:
            return HttpError(403, "Method doesn't allow unregistered callers (no x-goog-api-key header).")
        if key != self.api_key:
            return HttpError(400, "API key not valid. Please pass a valid API key.", reason="API_KEY_INVALID")
        return None
