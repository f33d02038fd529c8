from __future__ import annotations

import gzip
import logging
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import requests
import trustme
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_ai.abort import Abort
from hummingbird_ai.errors import BadRequest, CallAborted, MalformedReply, ModelError, TransportFailed
from hummingbird_ai.http import HttpReply, _trusting, new_session, post, retry_after

Serve = Callable[[socket.socket], None]


@contextmanager
def listening(serve: Serve, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """A loopback address where each connection is handed to `serve`; it ends with the block."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()
    threads: list[threading.Thread] = []

    def one(connection: socket.socket) -> None:
        try:
            with connection if tls is None else tls.wrap_socket(connection, server_side=True) as wrapped:
                serve(wrapped)
        except OSError:
            return  # the client went away, which is what many of these tests are about

    def accept() -> None:
        while not ended.is_set():
            connection, _ = listener.accept()
            threads.append(threading.Thread(target=one, args=(connection,)))
            threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        port = listener.getsockname()[1]
        yield f"{'https' if tls else 'http'}://localhost:{port}/"
    finally:
        ended.set()
        socket.create_connection(("127.0.0.1", port)).close()
        accepting.join()
        listener.close()
        for thread in threads:
            thread.join()


def answering(*pieces: bytes, pause: float = 0.0) -> Serve:
    def serve(connection: socket.socket) -> None:
        read_request(connection)
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(pause)

    return serve


def read_request(connection: socket.socket) -> bytes:
    """Head and body: closing with a byte unread would reset the connection under the answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += received(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    while length and len(body) < int(length.group(1)):
        body += received(connection)
    return head + b"\r\n"


def received(connection: socket.socket) -> bytes:
    chunk = connection.recv(65536)
    if not chunk:
        raise ConnectionError
    return chunk


def stall(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass  # whatever comes, until the client closes


def ok(body: bytes, *headers: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers, "", ""]).encode() + body


def ask(url: str, *, session: requests.Session | None = None, abort: Abort | None = None, **more: float) -> HttpReply:
    with session or new_session() as used:
        seconds, max_bytes = more.get("seconds", 20), int(more.get("max_bytes", 10_000))
        return post(used, url, body=b"{}", headers={"k": "v"}, seconds=seconds, max_bytes=max_bytes, abort=abort)


def seconds_until_aborted(url: str, session: requests.Session | None = None) -> float:
    abort = Abort()
    set_at: list[float] = []

    def cancel() -> None:
        set_at.append(time.monotonic())
        abort.set("Cancelled")

    timer = threading.Timer(0.2, cancel)
    timer.start()
    with pytest.raises(CallAborted, match="Cancelled") as caught:
        ask(url, session=session, abort=abort)
    timer.join()
    assert caught.value.reason == "Cancelled"
    return time.monotonic() - set_at[0]


def test_an_abort_ends_a_call_that_waits_for_an_answer() -> None:
    with listening(stall) as url:
        assert seconds_until_aborted(url) < 1


def test_an_abort_ends_a_call_that_waits_inside_the_body() -> None:
    def half(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        stall(connection)

    with listening(half) as url:
        assert seconds_until_aborted(url) < 1


def test_an_abort_ends_a_call_whose_body_has_no_stated_end() -> None:
    """http.client has closed its own socket by then, so that only the duplicate can end the call."""

    def endless(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}")
        stall(connection)

    with listening(endless) as url:
        assert seconds_until_aborted(url) < 1


def test_an_abort_ends_a_call_on_a_connection_that_is_used_again() -> None:
    def first_answer_then_stall(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(ok(b"{}"))
        stall(connection)

    with listening(first_answer_then_stall) as url, new_session() as session:
        post(session, url, body=b"", headers={})
        assert seconds_until_aborted(url, session) < 1


@pytest.fixture(autouse=True)
def no_bundle_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # in requests they win over `verify`
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Path]:
    root = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    root.issue_cert("localhost").configure_cert(context)
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    root.cert_pem.write_to_path(path)
    return context, path


def test_an_abort_ends_a_call_over_tls(authority: tuple[ssl.SSLContext, Path]) -> None:
    context, path = authority
    session = new_session()
    session.verify = str(path)

    with listening(stall, tls=context) as url:
        assert seconds_until_aborted(url, session) < 1


def test_an_abort_ends_a_call_inside_the_tls_handshake() -> None:
    with listening(stall) as url:
        assert seconds_until_aborted(url.replace("http:", "https:")) < 1


@pytest.fixture
def full_house() -> Iterator[str]:
    """An address whose queue of connections is full: the kernel drops whatever knocks."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        guests = [socket.socket() for _ in range(3)]
        for guest in guests:
            guest.setblocking(False)
            guest.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        for guest in guests:
            guest.close()


def test_an_abort_ends_a_call_that_waits_for_a_connection(full_house: str) -> None:
    assert seconds_until_aborted(full_house) < 1


def test_a_call_is_not_begun_after_an_abort() -> None:
    abort = Abort()
    abort.set("Deleted")

    with pytest.raises(CallAborted, match="Deleted"):
        ask("http://localhost:1/", abort=abort)


def test_an_abort_of_one_call_does_not_touch_another_threads_call() -> None:
    released = threading.Event()
    answers: list[HttpReply] = []

    def serve(connection: socket.socket) -> None:
        if b"slow" in read_request(connection):
            stall(connection)
        released.wait(10)
        connection.sendall(ok(b"fine"))

    with listening(serve) as url, new_session() as session:
        other = threading.Thread(target=lambda: answers.append(post(session, url, body=b"", headers={}, abort=Abort())))
        other.start()
        assert seconds_until_aborted(f"{url}slow") < 1
        released.set()
        other.join()

    assert [answer.body for answer in answers] == [b"fine"]


def test_a_certificate_of_nobody_known_is_a_transport_failure(authority: tuple[ssl.SSLContext, Path]) -> None:
    with listening(stall, tls=authority[0]) as url, pytest.raises(TransportFailed, match="TLS failed"):
        ask(url)


def trusting(bundle: object, **more: object) -> requests.Session:
    session = new_session()
    session.verify = str(bundle)
    for name, value in more.items():
        setattr(session, name, value)
    return session


def status_of(url: str, session: requests.Session) -> int:
    return ask(url, session=session).status


OK = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


def test_all_sessions_load_a_bundle_once_however_it_is_named(
    authority: tuple[ssl.SSLContext, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle of the usual size costs every session that loads it 26 ms and 720 KiB."""
    context, path = authority
    with listening(OK, tls=context) as url:
        assert status_of(url, trusting(path)) == 200
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(path))
        assert status_of(url, new_session()) == 200

    assert _trusting(str(path)) is _trusting(str(path))


def test_sessions_that_share_a_bundle_connect_in_threads_and_each_name_their_protocol(
    authority: tuple[ssl.SSLContext, Path],
) -> None:
    context, path = authority
    context.set_alpn_protocols(["http/1.1"])
    named: list[str | None] = []

    def serve(connection: socket.socket) -> None:
        assert isinstance(connection, ssl.SSLSocket)
        named.append(connection.selected_alpn_protocol())
        OK(connection)

    with listening(serve, tls=context) as url, ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: status_of(url, trusting(path)), range(32))) == {200}

    assert named == ["http/1.1"] * 32


def test_a_connection_that_says_nothing_for_minutes_is_kept_from_being_forgotten() -> None:
    """Report 38: a model thinks while no byte flows, and a gateway or NAT drops what it takes for idle."""
    kept: list[int] = []
    names = (socket.SO_KEEPALIVE, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL)

    with listening(OK) as url, new_session() as session, session.post(url, stream=True, timeout=5) as response:
        sock = socket.socket(fileno=os.dup(response.raw.fileno()))
        with sock:
            kept = [sock.getsockopt(socket.SOL_SOCKET if n == names[0] else socket.IPPROTO_TCP, n) for n in names]

    assert kept == [1, 30, 15]


def test_a_bundle_that_was_replaced_is_read_again_and_trusts_nobody_else(tmp_path: Path) -> None:
    first, second, bundle = trustme.CA(), trustme.CA(), tmp_path / "ca.pem"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    second.issue_cert("localhost").configure_cert(context)
    with listening(OK, tls=context) as url:
        first.cert_pem.write_to_path(bundle)
        with pytest.raises(TransportFailed, match="TLS failed"):
            ask(url, session=trusting(bundle))
        second.cert_pem.write_to_path(bundle)
        assert status_of(url, trusting(bundle)) == 200


def test_a_client_certificate_stays_with_its_session(tmp_path: Path) -> None:
    root, bundle, own = trustme.CA(), tmp_path / "ca.pem", tmp_path / "own.pem"
    root.cert_pem.write_to_path(bundle)
    root.issue_cert("client@example.org").private_key_and_cert_chain_pem.write_to_path(own)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    root.issue_cert("localhost").configure_cert(context)
    root.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    with listening(OK, tls=context) as url:
        assert status_of(url, trusting(bundle, cert=str(own))) == 200
        with pytest.raises(TransportFailed):
            ask(url, session=trusting(bundle))


def test_a_session_may_be_told_not_to_check(authority: tuple[ssl.SSLContext, Path]) -> None:
    session = new_session()
    session.verify = False
    with listening(OK, tls=authority[0]) as url, pytest.warns(urllib3.exceptions.InsecureRequestWarning):
        assert status_of(url, session) == 200


def test_a_bundle_that_cannot_be_used_is_a_transport_failure_that_names_it(
    authority: tuple[ssl.SSLContext, Path], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    for bundle, problem in (
        (broken, "TLS failed.*broken.pem cannot be used"),
        (tmp_path, "TLS failed"),
        (tmp_path / "nowhere", "nowhere"),
    ):
        with listening(OK, tls=authority[0]) as url, pytest.raises(TransportFailed, match=problem):
            ask(url, session=trusting(bundle))


def test_a_proxy_that_is_reached_by_tls_is_checked_by_the_same_bundle(authority: tuple[ssl.SSLContext, Path]) -> None:
    context, path = authority
    refusing = answering(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n")
    with listening(refusing, tls=context) as url, pytest.raises(TransportFailed, match="the proxy did not connect"):
        ask("https://example.org/", session=trusting(path, proxies={"https": url}))


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([], id="no answer at all"),
        pytest.param([b"HTTP/1.1 2"], id="half a status line"),
        pytest.param([HEAD + b"half"], id="half a body"),
        pytest.param([CHUNKED + b"4\r\nha"], id="half a chunk"),
        pytest.param([CHUNKED + b"4\r\nhalf\r\n"], id="no last chunk"),
        pytest.param([CHUNKED + b"nonsense\r\n"], id="no chunk length"),
        pytest.param([b"SSH-2.0-OpenSSH\r\n"], id="another protocol"),
    ],
)
def test_an_answer_that_breaks_off_is_a_transport_failure(pieces: list[bytes]) -> None:
    """Report 37 and section 5: requests raises four unrelated classes for these."""
    with listening(answering(*pieces)) as url, pytest.raises(TransportFailed, match="did not hold"):
        ask(url)


def test_an_answer_in_chunks_is_read_whole() -> None:
    with listening(answering(CHUNKED, b"4\r\nhalf\r\n", b"2\r\n ok\r\n"[:4], b"k\r\n0\r\n\r\n")) as url:
        assert ask(url).body == b"half k"


def test_a_compressed_answer_is_read_plain_and_a_broken_one_is_malformed() -> None:
    data = gzip.compress(b"x" * 5000)
    with listening(answering(ok(data, "Content-Encoding: gzip"))) as url:
        assert ask(url).body == b"x" * 5000
    broken = answering(ok(b"not gzip", "Content-Encoding: gzip"))
    with listening(broken) as url, pytest.raises(MalformedReply, match="compression"):
        ask(url)


def test_an_answer_over_the_cap_is_malformed_compressed_or_not() -> None:
    bomb = gzip.compress(b"\0" * 1_000_000)
    for reply in (ok(b"x" * 20_000), ok(bomb, "Content-Encoding: gzip")):
        with listening(answering(reply)) as url, pytest.raises(MalformedReply, match="longer than 10000 bytes"):
            ask(url)


def test_a_server_that_says_nothing_is_given_up_after_the_time_limit() -> None:
    with listening(stall) as url, pytest.raises(TransportFailed, match=r"no answer within 0\.2 s"):
        ask(url, seconds=0.2)


def test_an_answer_that_only_drips_is_given_up_after_the_time_limit() -> None:
    """Report 38: each read makes progress, the whole never ends."""
    started = time.monotonic()
    drip = answering(HEAD, *[b"x"] * 100, pause=0.05)
    with listening(drip) as url, pytest.raises(TransportFailed, match=r"not complete after 0\.3 s"):
        ask(url, seconds=0.3)
    assert time.monotonic() - started < 4


def test_nobody_at_the_address_is_one_attempt_and_a_transport_failure() -> None:
    """Section 5: urllib3 would hide two more attempts to connect."""
    started = time.monotonic()
    with pytest.raises(TransportFailed, match="did not hold"):
        ask("http://localhost:1/")
    assert time.monotonic() - started < 1


@pytest.mark.parametrize("url", ["", "localhost", "ftp://localhost/", "http://", "http://localhost:99999/"])
def test_an_address_that_is_none_is_a_bad_request(url: str) -> None:
    with pytest.raises(BadRequest, match="not a valid address"):
        ask(url)


def test_a_redirect_is_not_followed() -> None:
    moved = b"HTTP/1.1 307 Moved\r\nLocation: http://localhost:1/\r\nContent-Length: 0\r\n\r\n"
    with listening(answering(moved)) as url:
        assert ask(url).status == 307


def test_a_bad_header_value_is_not_shown() -> None:
    with new_session() as session, pytest.raises(BadRequest) as caught:
        post(session, "http://localhost:1/", body=b"", headers={"x-goog-api-key": "secret\nkey"})
    assert "secret" not in f"{caught.value!r}"
    assert caught.value.__context__ is None


def drop(connection: socket.socket) -> None:
    read_request(connection)


@pytest.mark.parametrize("serve", [answering(HEAD), answering(b"no HTTP\r\n\r\n"), drop])
def test_no_failure_carries_the_request_with_its_key(
    serve: Callable[[socket.socket], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Not even as its context, where nobody looks but a tool that reports errors."""
    caplog.set_level(logging.DEBUG)
    with listening(serve) as url, new_session() as session, pytest.raises(ModelError) as caught:
        post(session, url, body=b"{}", headers={"x-goog-api-key": "secret-key"})

    assert caught.value.__context__ is None
    assert "secret-key" not in f"{caught.value!r} {caplog.text}"


def test_nobody_at_the_address_is_told_without_the_request_that_holds_the_key() -> None:
    with new_session() as session, pytest.raises(TransportFailed) as caught:
        post(session, "http://localhost:1/", body=b"{}", headers={"x-goog-api-key": "secret-key"})

    assert caught.value.__context__ is None


def test_a_netrc_entry_does_not_replace_our_authorisation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    seen: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        seen.append(read_request(connection))
        connection.sendall(ok(b""))

    with listening(serve) as url, new_session() as session:
        post(session, url, body=b"", headers={"Authorization": "Bearer ours"})

    assert b"Authorization: Bearer ours" in seen[0]


def test_connections_are_kept_alive() -> None:
    options: list[int] = []

    def serve(connection: socket.socket) -> None:
        for _ in range(2):
            options.append(len(read_request(connection)))
            connection.sendall(ok(b"{}"))

    with listening(serve) as url, new_session() as session:
        for _ in range(2):
            assert post(session, url, body=b"", headers={}).status == 200

    assert len(options) == 2


def test_reads_may_be_retried_where_a_session_is_told_so() -> None:
    asked: list[int] = []

    def serve(connection: socket.socket) -> None:
        read_request(connection)
        asked.append(1)
        status = b"503 Busy" if len(asked) < 3 else b"200 OK"
        connection.sendall(b"HTTP/1.1 " + status + b"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")

    with listening(serve) as url, new_session(retries=3, backoff_seconds=0.01) as session:
        assert session.get(url, timeout=5).status_code == 200

    assert len(asked) == 3


NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


date_pieces = st.sampled_from(["Mon,", "30", "Nov", "2026", "12:00:30", "GMT", ":", "-9999", "0"]) | st.integers(
    -(10**20), 10**20
).map(str)


@given(
    st.text(st.characters(codec="latin-1")) | st.lists(date_pieces, max_size=8).map(" ".join),
    st.sampled_from(["retry-after", "retry-after-ms"]),
)
def test_whatever_a_header_says_is_a_wait_or_none(value: str, name: str) -> None:
    hint = retry_after({name: value}, NOW)

    assert hint is None or 0 <= hint < float("inf")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Mon, 30 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:30 -0000"}, 30.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "Mon, 30 Nov 9999 23:59:59 -9999"}, None),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:30 +99999999999"}, None),
        ({"retry-after": "Mon, 30 Nov 99999999999 12:00:30 GMT"}, None),
        ({"retry-after": "Mon, 99999999999999999999 Nov 2026 12:00:30 GMT"}, None),
    ],
)
def test_a_servers_hint_is_read_in_all_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds
