"""A session for python-gitlab that keeps to one host and to time limits. Notes and data sources build on it.

python-gitlab itself follows a next link to another host with the token, and has no timeout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import requests

from hummingbird_operator.errors import Unavailable

SERVICE = "GitLab"
TIMEOUT = (10.0, 60.0)
"""Seconds to connect, and between two pieces of an answer."""

Token = str | Callable[[], str]
"""A token, or what reads one at each request: a rotated file needs no restart."""


class Bearer(requests.auth.AuthBase):
    """Adds the token when a request leaves. As Authorization, which requests drops on a redirect to another host."""

    def __init__(self, token: Token) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """See requests."""
        token = self._token if isinstance(self._token, str) else self._token()
        request.headers["Authorization"] = f"Bearer {token}"
        return request


class OneHostSession(requests.Session):
    """Sets the time limits and refuses another host before the token could go there."""

    def __init__(self, url: str, token: Token, timeout: tuple[float, float] = TIMEOUT) -> None:
        super().__init__()
        self.auth = Bearer(token)
        self._origin = urlsplit(url)[:2]
        self._timeout = timeout

    def request(self, method: str | bytes, url: str | bytes, *args: Any, **kwargs: Any) -> requests.Response:
        """As in requests. Raises Unavailable for a link that leads away."""
        if urlsplit(str(url))[:2] != self._origin:
            raise Unavailable(SERVICE, f"its answer points to another host ({urlsplit(str(url)).netloc})")
        kwargs["timeout"] = self._timeout
        return super().request(method, url, *args, **kwargs)
