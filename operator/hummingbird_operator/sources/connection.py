"""The reading connection to GitLab: python-gitlab on a session of ours that waits within limits and stays on its host.

python-gitlab's own handling of 429 sleeps as long as the server says, without a bound, and crashes on a date or a
fraction; it also follows a next link to another host with the token, and has no timeout. The session takes all three
over. Transient errors (5xx, broken connections) are retried by python-gitlab: everything here only reads.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gitlab
import requests
from gitlab.exceptions import GitlabError, GitlabParsingError

from hummingbird_ai.http import retry_after
from hummingbird_operator.errors import HummingbirdError, Invalid, NotFound, Unavailable
from hummingbird_operator.forges.gitlab import SERVICE, OneHostSession, Token

CHUNK = 65_536
RETRIES = 4
_WAITS = ("Retry-After", "RateLimit-Reset")
_MOST_WAITS = 20
"""Waits of one request: a server may ask for a wait of 0 s without end."""
Sleep = Callable[[float], object]


@dataclass(frozen=True)
class Patience:
    """How long a tool call waits for GitLab's rate limit: one wait and all waits of one request, in seconds."""

    longest_wait: float = 30.0
    in_all: float = 60.0


class _Session(OneHostSession):
    """A rate limit, and a server that says when it is back, answered with a bounded wait."""

    def __init__(self, url: str, token: Token, sleep: Sleep, patience: Patience) -> None:
        super().__init__(url, token)
        self._sleep = sleep
        self._patience = patience

    def request(self, method: str | bytes, url: str | bytes, *args: Any, **kwargs: Any) -> requests.Response:
        """As in requests; raises Unavailable when the wait that is asked for is longer than our patience."""
        waited, attempt = 0.0, 0
        while True:
            response = super().request(method, url, *args, **kwargs)
            hint, status = retry_after(response.headers), response.status_code
            if status != 429 and (status < 500 or hint is None):
                for header in _WAITS:  # python-gitlab would sleep as long as they say, where no abort reaches it
                    response.headers.pop(header, None)
                return response
            response.close()
            # The Projects API sends no hint at all (gitlab-org/gitlab#365728), hence our own back-off with jitter.
            wait = hint if hint is not None else 2.0**attempt * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
            if attempt >= _MOST_WAITS or wait > self._patience.longest_wait or waited + wait > self._patience.in_all:
                said = "too many requests" if status == 429 else f"it answered {status}"
                raise Unavailable(SERVICE, f"{said}; it asks to wait {wait:.0f} s", retry_after=wait)
            self._sleep(wait)
            waited, attempt = waited + wait, attempt + 1


class Reader:
    """GET requests below /api/v4, errors as ours. The token stays inside."""

    def __init__(self, url: str, token: Token, *, ca: str | None, sleep: Sleep, patience: Patience) -> None:
        base = url.rstrip("/")
        self._gitlab = gitlab.Gitlab(
            base,
            session=_Session(base, token, sleep, patience),
            retry_transient_errors=True,
            keep_base_url=True,
            ssl_verify=ca or True,
        )

    def get(self, path: str, what: str) -> dict[str, Any]:
        """One JSON object."""
        with translated(what):
            answer = self._gitlab.http_get(path, max_retries=RETRIES)
        if not isinstance(answer, dict):
            raise Unavailable(SERVICE, f"{what}: it answered with something other than JSON (a sign-in page?)")
        return answer

    def rows(self, path: str, what: str, /, **query: Any) -> Iterator[dict[str, Any]]:
        """A list, page by page, up to the last next link. `query` reaches the server as it is (`query_parameters`)."""
        with translated(what):
            yield from self._gitlab.http_list(
                path, iterator=True, query_parameters={"per_page": 100, **query}, max_retries=RETRIES
            )

    @contextlib.contextmanager
    def stream(self, path: str, what: str, /, **query: Any) -> Iterator[requests.Response]:
        """A body that is not read yet; take it with `iter_content(CHUNK)`. The connection is given back at the end."""
        with translated(what):
            response = self._gitlab.http_get(path, query_data=query, streamed=True, raw=True, max_retries=RETRIES)
            assert isinstance(response, requests.Response)  # noqa: S101 - python-gitlab's promise for streamed=True
            with response:
                if response.headers.get("Content-Type", "").startswith("text/html"):
                    raise Unavailable(SERVICE, f"{what}: it answered with a web page (a proxy or a sign-in page?)")
                yield response


def opened(stream: Iterator[bytes]) -> Iterator[bytes]:
    """The same pieces, the first of them taken now: a refusal is then a plain error and no stream that breaks."""
    return _after(next(stream, b""), stream)


def _after(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn every failure of reading `what` into an error whose text tells the model, or a person, what to do."""
    try:
        yield
    except HummingbirdError:
        raise
    except GitlabParsingError as error:
        raise Unavailable(SERVICE, f"{what}: it answered with something other than JSON (a sign-in page?)") from error
    except GitlabError as error:
        raise _refusal(error.response_code or 0, what) from error
    except requests.exceptions.ChunkedEncodingError as error:
        raise Unavailable(SERVICE, f"{what}: the answer broke off") from error
    except requests.RequestException as error:
        raise Unavailable(SERVICE, f"{what}: no answer ({type(error).__name__})") from error


def _refusal(status: int, what: str) -> HummingbirdError:
    if status == 404:
        return NotFound(f"{what}: GitLab does not find it (404). Check the number or name; it may also be out of reach")
    if status == 401:
        return Invalid(what, "GitLab refused the reading token (401); a person must renew it. Go on without this")
    if status == 403:
        return Invalid(what, "the reading token may not see this (403); it needs scope read_api. Go on without this")
    if 400 <= status < 500:
        return Invalid(what, f"GitLab refused the request ({status}); check the arguments")
    return Unavailable(SERVICE, f"{what}: it answered {status or 'nothing'}; try again later, or go on without this")
