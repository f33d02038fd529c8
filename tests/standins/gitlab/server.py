"""The server: authentication, scopes, faults, recording, the control API. Threads on 127.0.0.1."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.standins.answering import Handler, Server
from tests.standins.gitlab import control, reads
from tests.standins.gitlab.events import Emitted
from tests.standins.gitlab.faults import Fault
from tests.standins.gitlab.people import People
from tests.standins.gitlab.state import Call, State, Token, User, sample_fixture
from tests.standins.gitlab.wire import ApiError, Request, Response, as_json

API = "/api/v4/"
CONTROL = "/_standin/"
SIGN_IN = b"<!DOCTYPE html><html><body>Sign in</body></html>"


class GitLabStandIn:
    """A running stand-in, a context manager: `url` is GitLab's address, `state` its memory, `people` its users."""

    def __init__(self, fixture: Mapping[str, Any] | None = None, *, port: int = 0, host: str = "127.0.0.1") -> None:
        self.state = State(sample_fixture() if fixture is None else fixture)
        self.people = People(self.state)
        self.faults: list[Fault] = []
        self.stopping = threading.Event()
        self._server = Server((host, port), _handler_for(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://{host}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        self.state.deliveries.stop()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait(self) -> None:
        """Serve until the process is stopped."""
        self._thread.join()

    def fault(self, kind: str, **details: Any) -> Fault:
        """Order a fault; see `Fault`."""
        ordered = Fault(kind, **details)
        with self.state.lock:
            self.faults.append(ordered)
        return ordered

    def limits(self, form: str, **details: Any) -> Fault:
        """Order a 429: `form` is seconds, date, fraction, none or plain."""
        ordered = Fault.limit(form, **details)
        with self.state.lock:
            self.faults.append(ordered)
        return ordered

    def lags(self, project: str, iid: int, times: int) -> None:
        """Have the next `times` reads of the merge request show what was before its latest push.

        GitLab does so right after a push, when the event already has the new head.
        """
        found = self.state.project(project)
        if found is None:
            raise KeyError(f"no project {project}")
        with self.state.lock:
            found.merge_requests[iid].stale_reads = times

    @property
    def calls(self) -> list[Call]:
        """Every request so far, the control API's left out."""
        with self.state.lock:
            return list(self.state.calls)

    @property
    def events(self) -> list[Emitted]:
        """Every event so far as GitLab would send it, also where no hook listens."""
        with self.state.lock:
            return list(self.state.events.log)

    def on_event(self, callback: Callable[[Emitted], object]) -> None:
        """Have each later event given to `callback`, in order and one at a time.

        It has been called when a verb of `people` returns, and when an API call has been answered unless events were
        being told just then. It may call GitLab and wait for others who do; what it raises reaches the thread that
        caused the event.
        """
        self.state.events.listen(callback)

    def hooks_wait(self, seconds: float = 30.0) -> bool:
        """Wait until every delivery that is queued has been made; False if some are left after `seconds`."""
        return self.state.deliveries.wait(seconds)

    def next_fault(self, method: str, path: str) -> Fault | None:
        """The fault for this call, if one is due."""
        with self.state.lock:
            return next((fault for fault in self.faults if fault.fits(method, path)), None)

    def authenticate(self, headers: Mapping[str, str]) -> tuple[User, Token]:
        """By PRIVATE-TOKEN or Bearer (header names in lower case); 401 otherwise."""
        presented = headers.get("private-token") or headers.get("authorization", "").removeprefix("Bearer ")
        for user in self.state.users.values():
            for token in user.tokens:
                if presented == token.value:
                    if user.state != "active":
                        raise ApiError(403, {"message": "403 Forbidden - Your account has been blocked."})
                    return user, token
        raise ApiError(401, {"message": "401 Unauthorized"})


def check_scope(method: str, segments: tuple[str, ...], token: Token) -> None:
    """`api` may all, `read_api` may read, `read_repository` only files; 403 names what is missing."""
    scopes = token.scopes
    reading = method in {"GET", "HEAD"}
    if "api" in scopes or (reading and "read_api" in scopes):
        return
    if reading and "read_repository" in scopes and segments[2:4] == ("repository", "files"):
        return
    text = "The request requires higher privileges than provided by the access token."
    raise ApiError(403, {"error": "insufficient_scope", "error_description": text, "scope": "api read_api"})


def _handler_for(standin: GitLabStandIn) -> type[Handler]:
    class Owned(_Handler):
        owner = standin

    return Owned


class _Handler(Handler, BaseHTTPRequestHandler):
    owner: GitLabStandIn

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _serve(self) -> None:
        with contextlib.suppress(ConnectionError):
            self._serve_call()

    def _serve_call(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        if parts.path.startswith(CONTROL):
            word, body = parts.path.removeprefix(CONTROL), json.loads(raw or b"{}")
            self._send(control.answer(self.owner, self.command, word, body))
            return
        fault = self.owner.next_fault(self.command, unquote(parts.path))
        if fault is None or fault.after_write or fault.kind in {"cut", "stall", "next_link"}:
            response, user = self._answer(parts.path, parts.query, raw)
        else:
            response, user = Response(), None
        response = self._spoil(response, fault)
        self._record(parts.path, parts.query, raw, user, response.status)
        if fault is not None and fault.kind == "stall":
            self.owner.stopping.wait(fault.seconds)
        if fault is not None and fault.kind == "drop":
            self.close_connection = True
            return
        self._send(response, cut=fault.bytes_sent if fault is not None and fault.kind == "cut" else None)

    def _answer(self, path: str, query: str, raw: bytes) -> tuple[Response, User | None]:
        user: User | None = None
        try:
            if not path.startswith(API):
                return Response(200, SIGN_IN, "text/html"), None
            with self.owner.state.turn(self.headers.get("X-Gitlab-Event-UUID", ""), wait=False):
                user, token = self.owner.authenticate({name.lower(): value for name, value in self.headers.items()})
                segments = tuple(unquote(segment) for segment in path.removeprefix(API).split("/"))
                check_scope(self.command, segments, token)
                fields = dict(parse_qsl(query, keep_blank_values=True))
                base = f"http://{self.headers.get('Host')}"
                request = Request(self.command, segments, fields, _body(raw), user, token, base, path)
                response = reads.route(request, self.owner.state)
            return response.later() if response.later else response, user
        except ApiError as refusal:
            return as_json(refusal.payload, refusal.status), user

    def _spoil(self, response: Response, fault: Fault | None) -> Response:
        if fault is None:
            return response
        if fault.kind == "status":
            return Response(fault.status, fault.body.encode(), headers=dict(fault.headers))
        if fault.kind == "html":
            return Response(200, SIGN_IN, "text/html")
        if fault.kind == "next_link":
            response.headers["Link"] = f'<{fault.target}>; rel="next"'
        return response

    def _record(self, path: str, query: str, raw: bytes, user: User | None, status: int) -> None:
        call = Call(
            self.command,
            unquote(path),
            query,
            raw.decode(errors="replace"),
            user.username if user else None,
            status,
            self.headers.get("Host", ""),
        )
        with self.owner.state.lock:
            self.owner.state.calls.append(call)

    def _send(self, response: Response, cut: int | None = None) -> None:
        chunks: Iterator[bytes]
        if isinstance(response.body, bytes):
            chunks, length = iter([response.body]), len(response.body)
        else:
            chunks, length = response.body, response.length or 0
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        if response.status != 204:
            if "Content-Type" not in response.headers:
                self.send_header("Content-Type", response.content_type)
            self.send_header("Content-Length", str(length))
        self.end_headers()
        if response.status != 204:
            self._send_body(chunks, cut)

    def _send_body(self, chunks: Iterator[bytes], cut: int | None) -> None:
        left = cut
        for chunk in chunks:
            if left is not None and len(chunk) >= left:
                self.wfile.write(chunk[:left])
                self.close_connection = True
                return
            self.wfile.write(chunk)
            left = None if left is None else left - len(chunk)


def _body(raw: bytes) -> Mapping[str, Any]:
    if not raw:
        return {}
    try:
        value = json.loads(raw)
    except ValueError:
        raise ApiError(400, {"error": "Problem parsing JSON"}) from None
    if not isinstance(value, dict):
        raise ApiError(400, {"error": "the body is not an object"})
    return value
