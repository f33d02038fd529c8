"""A provider that runs on this computer: real HTTP, real wire format, a script in the place of the model."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.parse import parse_qs

from hummingbird_ai.testing.claude.provider import Claude
from hummingbird_ai.testing.errors import error_headers
from hummingbird_ai.testing.gemini.provider import Gemini
from hummingbird_ai.testing.listener import Listener, Rendered
from hummingbird_ai.testing.observing import observers
from hummingbird_ai.testing.received import ReceivedCall, Request
from hummingbird_ai.testing.replies import Answer, Drip, HttpError, Reply, Script, Stall

_TOKEN = "test-token"  # noqa: S105 - a stand-in for tests, it opens nothing
_GRANTS = ("refresh_token", "urn:ietf:params:oauth:grant-type:jwt-bearer")


class Provider(Protocol):
    """One wire format: what is asked, what is refused, and how answers read."""

    name: str
    bearer_token: str

    def model(self, path: str) -> str:
        """The model a path names, "" if the path is not served."""
        ...

    def refusal(self, request: Request) -> HttpError | None:
        """Why the provider does not take this request, None if it does."""
        ...

    def render(self, answer: Answer, request: Request, number: int) -> Any:
        """The document of a 200; `number` counts accepted requests."""
        ...

    def render_error(self, error: HttpError) -> Any:
        """The document of an error."""
        ...


class ProviderServer:
    """Serves one provider's wire format on a loopback port, in threads.

    Use it as a context manager. `url` is the `base_url` for `build_model`. Every request is checked as the provider
    checks it; what passes is answered by `script(body, n)`, n counting from 0 what passed. An exception of the script
    is answered with 500 and raised again by `close`, and so is what an observer raised (see `observing`).

    Beside the API: `GET /calls` lists what came in, `POST /release` lets stalled calls go on, and `POST /token` is a
    `token_uri` for google-auth: it gives `bearer_token`, which may be changed while the server runs, to anybody.
    """

    def __init__(
        self,
        provider: Provider,
        script: Script,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._provider = provider
        self._script = script
        self._clock = clock
        self._lock = threading.Lock()
        self._calls: list[ReceivedCall] = []
        self._accepted = 0
        self._failures: list[BaseException] = []
        self._closed = False
        self._wakers: set[socket.socket] = set()
        self._server = Listener((host, port), self)
        self.port = self._server.server_port
        self.url = f"http://{host}:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name=f"{provider.name}-server")

    def __enter__(self) -> Self:
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
        """End every connection and raise what the script or an observer raised, if one did."""
        self._stop()
        self._raise_failure()

    @property
    def bearer_token(self) -> str:
        """The token that Vertex AI takes from now on."""
        return self._provider.bearer_token

    @bearer_token.setter
    def bearer_token(self, token: str) -> None:
        self._provider.bearer_token = token

    @property
    def calls(self) -> tuple[ReceivedCall, ...]:
        """What came in so far, refused requests included."""
        with self._lock:
            return tuple(self._calls)

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

    def aside(self, method: str, path: str, raw: bytes) -> tuple[int, Any] | None:
        """Status and document of what is not the provider's API; None for the API."""
        match method, path:
            case "GET", "/calls":
                return 200, {"calls": [_listed(call) for call in self.calls]}
            case "POST", "/release":
                self.release()
                return 200, {}
            case "POST", "/token":
                return self._token(raw)
            case "POST", _:
                return None
        return 404, self._provider.render_error(HttpError(404, f"{path} is not served"))

    def _token(self, raw: bytes) -> tuple[int, Any]:
        grant = parse_qs(raw.decode(errors="replace")).get("grant_type", [""])[0]
        if grant not in _GRANTS:
            return 400, {"error": "unsupported_grant_type", "error_description": f"Invalid grant_type: {grant}"}
        return 200, {"access_token": self.bearer_token, "expires_in": 3599, "token_type": "Bearer"}

    def handle(self, path: str, headers: dict[str, str], raw: bytes) -> Rendered:
        """What to answer, with the document of an Answer or an error already rendered for it."""
        body, unreadable = _read(raw)
        request = Request(
            at=self._clock(),
            path=path,
            model=self._provider.model(path),
            headers=headers,
            raw=raw,
            body=body,
            unreadable=unreadable,
        )
        try:
            refused = self._provider.refusal(request)
        except Exception as error:  # noqa: BLE001 - a fault of the rules is a fault of the test's ground
            self._failures.append(error)
            refused = HttpError(500, f"the rules failed: {error!r}")
        number = self._record(request, refused)
        if refused is not None:
            return self._error(refused)
        try:
            reply = _checked(self._script(request.body, number), number)
            if isinstance(reply, HttpError):
                return self._error(reply)
            answer = reply.reply if isinstance(reply, Stall | Drip) else reply
            document = self._provider.render(answer, request, number) if isinstance(answer, Answer) else None
        except Exception as error:  # noqa: BLE001 - whatever a script raises has to reach the test that wrote it
            self._failures.append(error)
            return self._error(HttpError(500, f"the script failed: {error!r}"))
        return Rendered(reply, document)

    def _record(self, request: Request, refused: HttpError | None) -> int:
        """Remember the request and show it around; its number among the accepted ones."""
        fields = {name: getattr(request, name) for name in Request.__dataclass_fields__}
        with self._lock:
            number = self._accepted
            self._accepted += refused is None
            call = ReceivedCall(number=len(self._calls), refused=refused, provider=self._provider.name, **fields)
            self._calls.append(call)
        for observer in observers() if refused is None else ():
            try:
                observer(call)
            except Exception as error:  # noqa: BLE001 - it has to reach the test that opened the observer
                self._failures.append(error)
        return number

    def _error(self, error: HttpError) -> Rendered:
        return Rendered(error, self._provider.render_error(error), error_headers(error))


def _checked(reply: Any, number: int) -> Reply:
    """What the script gave, if it is a reply: a test would wait for an answer that nobody gives."""
    if isinstance(reply, Reply):
        return reply
    raise TypeError(f"it returned {reply!r} for request {number}: return an Answer, such as say('hi')")


class GeminiServer(ProviderServer):
    """`generateContent` of the Gemini API and of Vertex AI; `context_window` tokens (four bytes each) fit in."""

    def __init__(
        self,
        script: Script,
        *,
        api_key: str = "test-key",
        bearer_token: str = _TOKEN,
        host: str = "127.0.0.1",
        port: int = 0,
        context_window: int = 1_048_576,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gemini = Gemini(api_key, bearer_token, context_window)
        super().__init__(self._gemini, script, host=host, port=port, clock=clock)

    @property
    def api_key(self) -> str:
        """What the Gemini API takes as `x-goog-api-key`."""
        return self._gemini.api_key


class ClaudeServer(ProviderServer):
    """Claude's `rawPredict` on Vertex AI, as each known model takes it (see `hummingbird_ai.testing.claude`).

    `clock` gives seconds and drives the prompt cache; `context_window` (tokens of four bytes) is by default the
    model's own, `body_limit` is in bytes.
    """

    def __init__(
        self,
        script: Script,
        *,
        bearer_token: str = _TOKEN,
        host: str = "127.0.0.1",
        port: int = 0,
        context_window: int | None = None,
        body_limit: int = 30_000_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(Claude(bearer_token, context_window, body_limit), script, host=host, port=port, clock=clock)


def _read(raw: bytes) -> tuple[dict[str, Any], str]:
    """The body, or why no provider reads it: Python's parser takes NaN and lone surrogates, theirs do not."""
    try:
        body = json.loads(raw, parse_constant=_no_number)
        if b"\\ud" in raw.lower():
            json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        return {}, f"no low surrogate in string (char {error.start})"
    except (ValueError, RecursionError) as error:
        return {}, str(error)
    return (body, "") if isinstance(body, dict) else ({}, "Expected an object.")


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _listed(call: ReceivedCall) -> dict[str, Any]:
    return {"number": call.number, "model": call.model, "bytes": len(call.raw), "refused": call.refused is not None}
