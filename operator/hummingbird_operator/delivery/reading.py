"""What the parts of the bot's pen share: the connection, the bot's account, paths, pages."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlsplit

from hummingbird_operator.delivery.answers import Person, RawAccount, read
from hummingbird_operator.delivery.bounded import ANSWER_BYTES, Turns
from hummingbird_operator.delivery.connection import READ_RETRIES, Connection, translated
from hummingbird_operator.errors import Invalid, Unavailable
from hummingbird_operator.forges.gitlab import SERVICE, Token


class Reader:
    """One GitLab, seen by the bot.

    `now` is asked for the time when a membership's end is looked at; `most` is the bytes of an answer, above which
    TooLarge is raised; `turns` may be those of another reader, so that both hold one large answer between them.
    """

    def __init__(
        self,
        url: str,
        token: Token,
        *,
        ca: str | None = None,
        timeout: tuple[float, float] = (10.0, 60.0),
        check: Callable[[], None] = lambda: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        most: int = ANSWER_BYTES,
        turns: Turns | None = None,
    ) -> None:
        self.turns = turns or Turns()
        self._connection = Connection(url, token, ca=ca, timeout=timeout, check=check, most=most, turns=self.turns)
        self._now = now
        self._token: Callable[[], str] = (lambda: token) if isinstance(token, str) else token
        self._account: tuple[str, RawAccount] | None = None
        """By a hash of the token: a token that is replaced may be another account's."""

    def close(self) -> None:
        """Give the sockets back."""
        self._connection.close()

    def bot_id(self) -> int:
        """The id of the account that the token belongs to, asked once for each token."""
        number = self._whose().id
        if number is None:
            raise Unavailable(SERVICE, "it does not say whose the token is")
        return number

    def host(self) -> str:
        """The name that GitLab gives itself, which may not be the one that we call it by; empty where it says none.

        Asked once, with `bot_id`.
        """
        try:
            return urlsplit(self._whose().web_url).hostname or ""
        except ValueError:
            return ""

    def _whose(self) -> RawAccount:
        known, current = self._account, self._token_hash()
        if known is not None and current in ("", known[0]):
            return known[1]
        found = read(RawAccount, self._get("/user", "the bot's account"))
        if found.id is not None:
            self._account = current, found
        return found

    def _token_hash(self) -> str:
        """Of the token that is configured now; empty while it cannot be read."""
        try:
            return hashlib.sha256(self._token().encode()).hexdigest()
        except Invalid:
            return ""

    def probe(self) -> None:
        """Whether GitLab answers the bot at all: ask for its account, now and without a second try.

        Raises Unavailable, or Forbidden where GitLab refuses even that (say, until its terms are accepted).
        """
        with translated("the bot's account"):
            read(Person, self._connection.write.http_get("/user"))

    def _get(self, path: str, what: str) -> object:
        with translated(what):
            return self._connection.read.http_get(path, max_retries=READ_RETRIES)

    def _list(
        self, path: str, what: str, *, page: int = 100, query: Mapping[str, str] | None = None
    ) -> Iterator[Mapping[str, Any]]:
        """Follow next links to their end: a page may be short or empty without being the last."""
        with translated(what):
            try:
                yield from self._connection.read.http_list(
                    path, query_data=dict(query or {}), iterator=True, per_page=page, max_retries=READ_RETRIES
                )
            except (KeyError, TypeError) as error:  # python-gitlab counts through whatever JSON came
                raise Unavailable(SERVICE, f"it answered with something other than a list of {what}") from error


def project_path(project: str) -> str:
    """Below /api/v4, as python-gitlab takes it."""
    return f"/projects/{quote(project, safe='')}"


def merge_request_path(project: str, iid: int) -> str:
    """A merge request below /api/v4."""
    return f"{project_path(project)}/merge_requests/{iid}"


def discussion_path(project: str, iid: int, discussion: str) -> str:
    """A thread of a merge request below /api/v4."""
    return f"{merge_request_path(project, iid)}/discussions/{quote(discussion, safe='')}"
