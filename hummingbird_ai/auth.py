"""Google credentials for Vertex AI: found by Application Default Credentials, refreshed in time, never shown.

This is the one module that reads the environment: `GOOGLE_CLOUD_PROJECT` itself, the rest through google-auth.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import google.auth
import google.auth.exceptions
import google.auth.transport.requests

from hummingbird_ai.abort import Abort
from hummingbird_ai.errors import AuthFailed, CallAborted, ModelError, TransportFailed
from hummingbird_ai.http import new_session

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_TOKEN_SECONDS = 15.0  # google-auth would wait 120 s for a token
_LOOK_SECONDS = 0.1
_SECRETS = ("token", "refresh_token", "client_secret")


class VertexAuth:
    """A bearer token and a project. Thread-safe; credentials are looked up at first use, not when it is built."""

    def __init__(
        self, project: str = "", *, credentials: Any = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self._explicit_project = project
        self._credentials = credentials
        self._searched = credentials is None
        self._adc_project: str | None = None
        self._environment = os.environ if environment is None else environment  # noqa: TID251 - see above
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"VertexAuth(project={self._explicit_project!r})"

    @property
    def project(self) -> str:
        """The explicit one, then GOOGLE_CLOUD_PROJECT, then the one the credentials name; AuthFailed without any.

        Where the credentials have to name it, ask after `headers`: that hears an abort while it waits for them.
        """
        named = self._explicit_project or self._environment.get("GOOGLE_CLOUD_PROJECT", "")
        if named:
            return named
        if self._credentials is None:
            with self._lock:
                self._find_credentials()
        project = self._adc_project or getattr(self._credentials, "project_id", None)
        if not project:
            raise AuthFailed("no Google Cloud project: none given, GOOGLE_CLOUD_PROJECT unset, none in the credentials")
        return str(project)

    def headers(self, *, renew: bool = False, refused: str = "", abort: Abort | None = None) -> dict[str, str]:
        """The Authorization header; `renew` fetches a new token even if the old one looks valid (after a 401).

        With `refused`, the token that was not taken, it is fetched only if nobody has done so meanwhile. Raises
        AuthFailed, TransportFailed when the token service cannot be reached, or CallAborted while another thread
        fetches the token that this one waits for.
        """
        with self._alone(abort):
            credentials = self._find_credentials()
            if not credentials.valid or (renew and refused in ("", credentials.token)):
                credentials = self._refreshed(credentials)
            return {"Authorization": f"Bearer {credentials.token}"}

    def _refreshed(self, credentials: Any) -> Any:
        """With a new token. Credentials that were found and are not taken any more are looked for once more.

        Their file may have been replaced since: a process lives longer than a key.
        """
        refused = False
        try:
            _refresh(credentials)
        except AuthFailed:
            if not self._searched:
                raise
            refused = True
        if refused:
            self._credentials = None
            credentials = self._find_credentials()
            _refresh(credentials)
        return credentials

    @contextmanager
    def _alone(self, abort: Abort | None) -> Iterator[None]:
        while not self._lock.acquire(timeout=_LOOK_SECONDS):
            if abort is not None and abort.is_set():
                raise CallAborted(str(abort.reason))
        try:
            yield
        finally:
            self._lock.release()

    def _find_credentials(self) -> Any:
        if self._credentials is None:
            found = _default_credentials()
            if isinstance(found, ModelError):
                raise found
            # the project first: `project` looks without the lock whether there are credentials
            self._adc_project, self._credentials = found
        return self._credentials


def _default_credentials() -> tuple[str | None, Any] | ModelError:
    """Project and credentials. An error is returned: raised where another one is handled, it would hold on to it."""
    try:
        credentials, project = google.auth.default(scopes=[SCOPE], request=_request())
    except google.auth.exceptions.GoogleAuthError as error:
        return _in_our_words(error, ())
    except (OSError, ValueError, AttributeError) as error:  # a file that is not what google-auth expects
        return AuthFailed(f"Google credentials: {error}"[:500])
    return project, credentials


def _refresh(credentials: Any) -> None:
    try:
        credentials.refresh(_request())
        return
    except (google.auth.exceptions.GoogleAuthError, OSError) as error:
        problem = _in_our_words(error, [getattr(credentials, name, None) for name in _SECRETS])
    raise problem  # not in the `except`: what is handled there holds the request for the token


def _request() -> Any:
    # A session of its own: google-auth closes the one it is given. Asking for a token twice does no harm.
    transport = google.auth.transport.requests.Request(session=new_session(retries=2))
    return partial(transport, timeout=_TOKEN_SECONDS)


def _in_our_words(error: Exception, secrets: Sequence[str | None]) -> ModelError:
    text = str(error.args[0]) if error.args else type(error).__name__
    for secret in filter(None, secrets):
        text = text.replace(secret, "[redacted]")
    text = f"Google credentials: {text}"[:500]
    away = isinstance(error, google.auth.exceptions.TransportError | OSError) or getattr(error, "retryable", False)
    return TransportFailed(text) if away else AuthFailed(text)
