"""The webhooks of a project or a group, and what GitLab recorded of their deliveries: `/projects/:id/hooks`.

Needs a Maintainer's token, for a group's hooks an Owner's. GitLab keeps deliveries for seven days, newest first, with
the request's data but not its secret; `server_failure` covers 5xx answers as well as time-outs and refused connections
(`internal error`).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, ValidationError

from hummingbird_operator.delivery.connection import translated
from hummingbird_operator.delivery.reading import Reader, project_path
from hummingbird_operator.errors import HummingbirdError, Invalid, Unavailable
from hummingbird_operator.forges.gitlab import SERVICE
from hummingbird_operator.ingest.hooks.moments import moment

T = TypeVar("T", bound=BaseModel)
logger = logging.getLogger(__name__)

TOKEN_SETTING = "gitlab.hooks_token_env"  # noqa: S105 - the name of a setting, not a secret
WANTED: Mapping[str, bool] = {
    "merge_requests_events": True,
    "note_events": True,
    "confidential_note_events": True,
    "pipeline_events": True,
    "push_events": False,
    "enable_ssl_verification": True,
}
"""What a hook of ours listens to. Without confidential notes no reply in an internal thread ever arrives."""
TESTS = ("merge_requests_events", "push_events")
"""Tests that start nothing: GitLab's test of a merge request has no action, and pushes are none of our events."""
PAGE = 10
"""Deliveries of a page: each may hold 25 MB, though hardly one holds one."""
MOST_ROWS = 20
"""GitLab gives no larger page of them."""
SUCCESS = ("2", "3")
NOTHING_TO_SEND = "Ensure "
"""GitLab's words for a project that has nothing of that kind."""


class Hook(BaseModel):
    """One webhook of a project or a group; what an older GitLab does not say is None."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: int
    url: str | None = None
    merge_requests_events: bool | None = None
    note_events: bool | None = None
    confidential_note_events: bool | None = None
    pipeline_events: bool | None = None
    push_events: bool | None = None
    enable_ssl_verification: bool | None = None
    alert_status: str | None = None
    """executable, temporarily_disabled or disabled."""
    disabled_until: str | None = None
    custom_webhook_template: str | None = None
    """Replaces the body that we read."""
    token_present: bool | None = None
    signing_token_present: bool | None = None

    @property
    def disabled(self) -> str:
        """Empty while GitLab sends to it, else how it is disabled."""
        if self.alert_status in (None, "executable"):
            return ""
        return f"{self.alert_status}" + (f" until {self.disabled_until}" if self.disabled_until else "")


@dataclass(frozen=True)
class Attempt:
    """One delivery that was tried, by its id, which grows: many may have one moment."""

    id: int
    at: datetime
    went_well: bool


@dataclass(frozen=True)
class Delivery:
    """One delivery that failed: its id in GitLab's list, the event's name, its JSON object, its Idempotency-Key."""

    id: int
    type: str
    payload: Mapping[str, Any]
    key: str
    unreadable: bool = False
    """GitLab's row has another shape: what was sent cannot be known."""
    at: datetime | None = None
    """When GitLab tried it."""
    refused: bool = False
    """It ended in 4xx: its sender was not believed, and no replay handles it."""

    @property
    def attempt(self) -> Attempt | None:
        """Of it what tells when the hook was disabled; None where the row does not say that."""
        return Attempt(self.id, self.at, went_well=False) if self.id and self.at else None

    @property
    def oversize(self) -> bool:
        """GitLab did not keep the data: it was too large."""
        return self.payload.get("oversize") is True and "object_kind" not in self.payload


class Hooks(Reader):
    """The hooks of projects. Methods raise Unavailable, NotFound (no such hook, or GitLab older than 17.3), Invalid."""

    NEEDED: ClassVar[str] = "the role Maintainer in the project"

    def _place(self, name: str) -> str:
        return f"{project_path(name)}/hooks"

    def _about(self, name: str) -> contextlib.AbstractContextManager[None]:
        return about(f"hooks of {name}", self.NEEDED)

    def hooks(self, name: str) -> list[Hook]:
        """All hooks of the project."""
        with self._about(name):
            listed = list(self._list(self._place(name), f"hooks of {name}"))
        found = [_hook(raw) for raw in listed]
        if None in found:
            logger.warning("%d hooks of %s have another shape and are passed over", found.count(None), name)
        return [hook for hook in found if hook is not None]

    def create(self, name: str, url: str, fields: Mapping[str, Any]) -> Hook:
        """Make a hook."""
        with self._about(name):
            answer = self._connection.write.http_post(self._place(name), post_data={"url": url, **fields})
        return _parsed(Hook, answer)

    def update(self, name: str, hook: Hook, fields: Mapping[str, Any]) -> Hook:
        """Change some fields; GitLab wants the address each time."""
        with self._about(name):
            answer = self._connection.write.http_put(
                f"{self._place(name)}/{hook.id}", post_data={"url": hook.url, **fields}
            )
        return _parsed(Hook, answer)

    def enable(self, name: str, hook: Hook) -> None:
        """Have GitLab send a test: a 2xx of ours makes it use a hook again that it disabled after failures.

        Raises Invalid where that fails, or where the project has neither a merge request nor a commit to send.
        """
        for trigger in TESTS:
            last = trigger == TESTS[-1]
            try:
                with self._about(name):
                    self._connection.write.http_post(f"{self._place(name)}/{hook.id}/test/{trigger}")
            except Invalid as error:
                if last or NOTHING_TO_SEND not in str(error):  # each test that fails makes GitLab wait longer
                    raise
            else:
                return

    def failed(self, name: str, hook_id: int) -> Iterator[Delivery]:
        """Deliveries that ended in 4xx, in 5xx or without an answer, newest first, page by page."""
        for raw in self._events(name, hook_id, "client_failure,server_failure", PAGE):
            if not _status(raw).startswith(SUCCESS):
                yield _delivery(raw)

    def succeeded(self, name: str, hook_id: int) -> Iterator[Attempt]:
        """Deliveries that went well, newest first."""
        for raw in self._events(name, hook_id, "successful", MOST_ROWS):
            found = _delivery(raw).attempt
            if found is not None and _status(raw).startswith(SUCCESS):
                yield Attempt(found.id, found.at, went_well=True)

    def _events(self, name: str, hook_id: int, status: str, page: int) -> Iterator[Mapping[str, Any]]:
        """Also from a GitLab that knows no filter, which gives them all."""
        with self._about(name):
            path = f"{self._place(name)}/{hook_id}/events"
            yield from self._list(path, f"deliveries of {name}", page=page, query={"status": status})


class GroupHooks(Hooks):
    """The hooks of groups, which only Premium has: NotFound where there are none, or the name is no group's."""

    NEEDED: ClassVar[str] = "the role Owner in the group"

    def _place(self, name: str) -> str:
        return f"/groups/{quote(name, safe='')}/hooks"


@contextlib.contextmanager
def about(what: str, needed: str = Hooks.NEEDED) -> Iterator[None]:
    """As `translated`, in words for the hooks' own token."""
    try:
        with translated(what):
            yield
    except HummingbirdError as error:
        status = getattr(error.__cause__, "response_code", None)
        if status == 401:
            problem = f"it refused the hooks' token (401): renew {TOKEN_SETTING} (or hooks_token_file), with scope api"
            raise Unavailable(SERVICE, problem) from error
        if status == 403:
            problem = f"GitLab forbids it (403): {TOKEN_SETTING} (or hooks_token_file) needs scope api and {needed}"
            raise Invalid(what, problem) from error
        raise


def _parsed(model: type[T], raw: object) -> T:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise Unavailable(SERVICE, f"its answer holds no hook ({error.errors()[0]['loc']})") from None


def _hook(raw: object) -> Hook | None:
    """A row of a list, which must not hide the others whatever its shape is."""
    try:
        return Hook.model_validate(raw)
    except ValidationError:
        return None


def _status(raw: object) -> str:
    return str(raw.get("response_status")) if isinstance(raw, Mapping) else "None"


def _delivery(raw: object) -> Delivery:
    """A row of the list of deliveries: one of another shape is a delivery as well, and holds back no other."""
    row: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {}
    number, sent, given = row.get("id"), row.get("request_data"), row.get("request_headers")
    when, refused = moment(row.get("created_at")), _status(raw).startswith("4")
    if not isinstance(number, int) or not isinstance(sent, Mapping):
        known = number if isinstance(number, int) else 0
        return Delivery(known, "", {}, "", unreadable=True, at=when, refused=refused)
    headers = {str(name).lower(): str(value) for name, value in given.items()} if isinstance(given, Mapping) else {}
    kind, key = headers.get("x-gitlab-event", ""), headers.get("idempotency-key", "")
    return Delivery(number, kind, sent, key, at=when, refused=refused)
