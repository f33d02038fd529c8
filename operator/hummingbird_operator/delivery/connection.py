"""The connection that notes go over: python-gitlab on a session of ours, and GitLab's refusals as our errors.

Two clients share one session: reads are retried by python-gitlab, writes never are (it would repeat a POST after a lost
answer, and so post twice). A wait that the server asks for is not sat out here: it becomes `Unavailable` with the hint,
and the caller's step comes again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urljoin, urlsplit

import gitlab
import requests
from gitlab.exceptions import GitlabError, GitlabHttpError, GitlabParsingError

from hummingbird_ai.http import retry_after
from hummingbird_operator.delivery.bounded import ANSWER_BYTES, Turns, read_whole
from hummingbird_operator.delivery.refusals import Forbidden, Refused, TooLong
from hummingbird_operator.errors import HummingbirdError, Invalid, NotFound, Unavailable
from hummingbird_operator.forges.gitlab import SERVICE, OneHostSession, Token

TOKEN_SETTING = "gitlab.token_env"  # noqa: S105 - the name of a setting, not a secret
READ_RETRIES = 3
LONGEST_WAIT = 86_400.0
"""Seconds: a longer hint of the server is cut to this."""
_WAITS = ("Retry-After", "RateLimit-Reset")
_SAID = {429: "too many requests (429)"}


class _Session(OneHostSession):
    """Turns 429, and a 5xx that says when to come back, into `Unavailable`: the caller's step comes again.

    `check` raises where this process may not write; no answer has more than `most` bytes.
    """

    def __init__(
        self, url: str, token: Token, timeout: tuple[float, float], check: Callable[[], None], most: int, turns: Turns
    ) -> None:
        super().__init__(url, token, timeout)
        self.turns = turns
        self._check = check
        self._most = most

    def request(self, method: str | bytes, url: str | bytes, *args: Any, **kwargs: Any) -> requests.Response:
        """As in requests; never waits for a rate limit."""
        writing = method not in ("get", "GET")
        if writing:  # as late as can be: a frozen process would go on from any earlier line
            self._check()
        response = super().request(method, url, *args, **{**kwargs, "stream": True})
        read_whole(response, self.turns, self._most)
        hint = retry_after(response.headers)
        if response.status_code == 429 or (response.status_code >= 500 and hint is not None):
            response.close()
            kind = Refused if writing and response.status_code == 429 else Unavailable
            problem = _SAID.get(response.status_code, f"it answered {response.status_code}")
            raise kind(SERVICE, problem, retry_after=None if hint is None else min(hint, LONGEST_WAIT))
        for header in _WAITS:  # python-gitlab would sleep as long as they say, or break on what is no number
            response.headers.pop(header, None)
        return response

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """As in requests; a note's text follows no redirection to another host, as the token never does."""
        target = super().get_redirect_target(resp)
        if target and resp.request.method != "GET" and urlsplit(urljoin(resp.url, target))[:2] != self._origin:
            raise Unavailable(SERVICE, f"it redirects a write to another host ({urlsplit(target).netloc})")
        return target


class Connection:
    """`read` retries, `write` does not."""

    def __init__(
        self,
        url: str,
        token: Token,
        *,
        ca: str | None,
        timeout: tuple[float, float],
        check: Callable[[], None],
        most: int = ANSWER_BYTES,
        turns: Turns | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._session = _Session(self.url, token, timeout, check, most, turns or Turns())
        self.turns = self._session.turns
        verify = ca or True
        self.read = gitlab.Gitlab(
            self.url, session=self._session, retry_transient_errors=True, keep_base_url=True, ssl_verify=verify
        )
        self.write = gitlab.Gitlab(self.url, session=self._session, keep_base_url=True, ssl_verify=verify)

    def close(self) -> None:
        """Give the sockets back."""
        self._session.close()


@contextlib.contextmanager
def translated(what: str, *, writing: bool = False) -> Iterator[None]:
    """Turn every failure of a call about `what` (such as "group/app!42") into one of our errors.

    `writing`: it is told apart whether the call surely wrote nothing (`Refused`).
    """
    try:
        yield
    except HummingbirdError:
        raise
    except GitlabParsingError as error:
        raise Unavailable(SERVICE, "it answered with something other than JSON (a proxy or a sign-in page?)") from error
    except GitlabHttpError as error:
        raise _refusal(error, what, writing=writing) from error
    except GitlabError as error:
        raise _refusal(error, what, writing=writing) from error
    except requests.RequestException as error:
        raise Unavailable(SERVICE, f"no answer ({type(error).__name__})") from error


def _refusal(error: GitlabError, what: str, *, writing: bool) -> HummingbirdError:
    status, text = error.response_code or 0, readable(error.error_message)
    if status == 401:
        # Nothing is wrong with the run: it waits until somebody renewed the token.
        text = f"it refused the bot's token (401): {text}. Renew {TOKEN_SETTING} (or token_file), with scope api"
        return (Refused if writing else Unavailable)(SERVICE, text)
    if status in {403, 404} and not _gitlab_said(error):
        return Unavailable(SERVICE, f"it answered {status} in words that are not GitLab's: {text}")
    if status == 403 and "insufficient_scope" in text + str(error.response_body):
        return Forbidden(TOKEN_SETTING, "the token, or that of token_file, lacks a scope (403): notes need scope api")
    if status == 403:
        return Forbidden(what, f"GitLab forbids it (403): give the bot the Developer role in the project. {text}")
    if status == 404 and "project" in text.lower():
        return Forbidden(what, "GitLab shows no such project (404): check its path, and that the bot is a member of it")
    if status == 404:
        return NotFound(f"{what}: GitLab does not find it (404): {text}")
    if status == 413 or (status in {400, 422} and "is too long" in text):
        return TooLong(what, f"GitLab refused it ({status}): {text}")
    if status in {400, 422}:
        return Invalid(what, f"GitLab refused it ({status}): {text}")
    return Unavailable(SERVICE, f"it answered {status or 'nothing'}: {text}")


def _gitlab_said(error: GitlabError) -> bool:
    """Whether a refusal is GitLab's API's own: a proxy without a route, or a banned address, says nothing of a note."""
    try:
        return isinstance(json.loads(error.response_body or b""), dict)
    except ValueError:
        return False


def readable(message: Any) -> str:
    """GitLab's error text: a string, bytes, or a dict of lists such as {"note": ["is too long"]}."""
    if isinstance(message, bytes):
        message = message.decode(errors="replace")
    if isinstance(message, str):
        with contextlib.suppress(ValueError):
            decoded = json.loads(message)
            return readable(decoded) if isinstance(decoded, dict | list) else message[:300]
        return " ".join(message.split())[:300]
    if isinstance(message, dict):
        return "; ".join(f"{key} {readable(value)}" for key, value in message.items())[:300]
    if isinstance(message, list):
        return ", ".join(readable(item) for item in message)[:300]
    return str(message)[:300]
