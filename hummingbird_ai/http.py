"""HTTP for model calls: sessions without hidden retries, bounded answers, and a call that can be cut."""

# ruff: noqa: A005 - the name is the one the seed gives; nothing here imports the standard `http`
from __future__ import annotations

import functools
import socket
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.connection import HTTPConnection
from urllib3.util.retry import Retry
from urllib3.util.ssl_ import ALPN_PROTOCOLS, create_urllib3_context

from hummingbird_ai.abort import Abort
from hummingbird_ai.errors import BadRequest, CallAborted, MalformedReply, ModelError, TransportFailed
from hummingbird_ai.flight import POOLS, Flight

MAX_REPLY_BYTES = 32 * 1024 * 1024
CONNECT_SECONDS = 10.0
CALL_SECONDS = 600.0
_READ_BYTES = 64 * 1024
_BAD_ADDRESS = (
    requests.exceptions.MissingSchema,
    requests.exceptions.InvalidSchema,
    requests.exceptions.InvalidURL,
    urllib3.exceptions.LocationValueError,
)

# A model may think for minutes while no byte flows; without these a gateway or NAT forgets the connection.
_SOCKET_OPTIONS = [
    *HTTPConnection.default_socket_options,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
]


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A complete answer; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **pool_kwargs: Any) -> None:
        super().init_poolmanager(connections, maxsize, block, socket_options=_SOCKET_OPTIONS, **pool_kwargs)
        self.poolmanager.pool_classes_by_scheme = POOLS

    def proxy_manager_for(self, proxy: str, **proxy_kwargs: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **proxy_kwargs)
        if not proxy.lower().startswith("socks"):
            manager.pool_classes_by_scheme = POOLS
        return manager

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """As requests decides it; where only a bundle is asked for, all sessions of the process load it once.

        A client certificate would stay in the shared context, and a proxy reached by TLS has a context of its own.
        """
        super().cert_verify(conn, url, verify, cert)  # type: ignore[no-untyped-call]
        bundle = conn.ca_certs or conn.ca_cert_dir
        if bundle and not cert and not (conn.proxy and conn.proxy.scheme == "https"):
            try:
                conn.conn_kw["ssl_context"] = _trusting(bundle)
            except OSError as error:
                raise requests.exceptions.SSLError(f"the CA bundle {bundle} cannot be used: {error}") from None
            conn.ca_certs = conn.ca_cert_dir = None


def _trusting(bundle: str) -> ssl.SSLContext:
    """The context that trusts this file or directory as it is now: one that was replaced is read again."""
    path = Path(bundle)
    found = path.stat()
    return _context(path, found.st_ino, found.st_size, found.st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _context(path: Path, *_version: int) -> ssl.SSLContext:
    context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
    # urllib3 sets this anew for every connection, which frees what OpenSSL may be reading in another thread
    context.set_alpn_protocols(ALPN_PROTOCOLS)
    context.set_alpn_protocols = _set_already  # type: ignore[method-assign]
    if path.is_dir():
        context.load_verify_locations(capath=str(path))
    else:
        context.load_verify_locations(cafile=str(path))
    return context


def _set_already(alpn_protocols: Iterable[str]) -> None:
    """In the place of a setter whose value stands."""


class _OwnHeadersOnly(AuthBase):
    """Keeps requests from replacing our Authorization header by an entry of a ~/.netrc file."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


def new_session(*, retries: int = 0, backoff_seconds: float = 0.5, pool_size: int = 4) -> requests.Session:
    """A session with `retries` transport retries for reads; model calls take 0.

    With more than 0 a connection that cannot be made is tried again for every method, a status (500, 502, 503, 504;
    never 429) for reads only. Proxies and CA bundles named in the environment apply, as requests does by default.
    """
    session = requests.Session()
    policy = Retry(
        total=retries,
        backoff_factor=backoff_seconds,
        status_forcelist=(500, 502, 503, 504),
        allowed_methods=("GET", "HEAD"),
        raise_on_status=False,
        respect_retry_after_header=False,
    )
    adapter = _Adapter(pool_connections=pool_size, pool_maxsize=pool_size, max_retries=policy if retries else 0)
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    session.auth = _OwnHeadersOnly()
    return session


def post(
    session: requests.Session,
    url: str,
    *,
    body: bytes,
    headers: Mapping[str, str],
    seconds: float = CALL_SECONDS,
    max_bytes: int = MAX_REPLY_BYTES,
    abort: Abort | None = None,
) -> HttpReply:
    """Send one POST and read its whole answer, of any status.

    Raises TransportFailed, MalformedReply (an answer over `max_bytes` or wrongly encoded), BadRequest (no valid
    address) and CallAborted. Redirects are not followed: they would carry the key to another host.
    """
    with cuttable(abort):
        try:
            return _exchange(session, url, body, dict(headers), seconds, max_bytes)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            problem = _in_our_words(error, url, seconds)
        raise problem  # not in the `except`: the exceptions of requests hold the request, and with it the key


@contextmanager
def cuttable(abort: Abort | None) -> Iterator[None]:
    """Within this block `abort` shuts down whatever connection of `new_session` this thread uses: CallAborted."""
    if abort is not None and abort.is_set():
        raise CallAborted(str(abort.reason))
    flight = Flight()
    with flight, abort.on_abort(flight.cut) if abort else nullcontext():
        try:
            yield
        except ModelError:
            if not flight.is_cut():
                raise
    if flight.is_cut() and abort is not None:
        # also after a complete answer: without a stated length nobody can tell whether it was cut short
        raise CallAborted(str(abort.reason))


def _exchange(
    session: requests.Session, url: str, body: bytes, headers: dict[str, str], seconds: float, max_bytes: int
) -> HttpReply:
    deadline = time.monotonic() + seconds
    with session.post(
        url,
        data=body,
        headers=headers,
        timeout=(CONNECT_SECONDS, seconds),
        stream=True,
        allow_redirects=False,
    ) as response:
        chunks = bytearray()
        while chunk := response.raw.read1(_READ_BYTES, decode_content=True):
            chunks += chunk
            if len(chunks) > max_bytes:
                raise MalformedReply(f"the answer is longer than {max_bytes} bytes", status=response.status_code)
            if time.monotonic() > deadline:
                raise TransportFailed(f"the answer was not complete after {seconds:g} s")
        lowered = {name.lower(): value for name, value in response.headers.items()}
        return HttpReply(response.status_code, lowered, bytes(chunks))


def _in_our_words(error: Exception, url: str, seconds: float) -> ModelError:
    """Most telling class first: ConnectTimeout is both a Timeout and a ConnectionError of requests."""
    if isinstance(error, requests.exceptions.InvalidHeader):
        return BadRequest("a header value has characters that HTTP does not allow")  # its text would show the value
    if isinstance(error, _BAD_ADDRESS):
        return BadRequest(f"{url.partition('?')[0]!r} is not a valid address ({type(error).__name__}); see `base_url`")
    if isinstance(error, urllib3.exceptions.DecodeError):
        return MalformedReply("the answer's compression is broken")
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return TransportFailed(f"no connection within {CONNECT_SECONDS:g} s")
    if isinstance(error, requests.Timeout | urllib3.exceptions.ReadTimeoutError | TimeoutError):
        return TransportFailed(f"no answer within {seconds:g} s")
    if isinstance(error, requests.exceptions.SSLError):
        return TransportFailed(f"TLS failed: {_short(error)}")
    if isinstance(error, requests.exceptions.ProxyError):
        return TransportFailed(f"the proxy did not connect: {_short(error)}")
    return TransportFailed(f"the connection did not hold: {_short(error)}")


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """The wait a server asks for, in seconds ≥ 0: `retry-after-ms`, then `retry-after` (seconds or an HTTP date)."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - (now or datetime.now(UTC))).total_seconds())


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
