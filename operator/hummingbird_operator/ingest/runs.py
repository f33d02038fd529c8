"""The AgentRun of an event: its names, its key and its body. Pure; what leaves here is what the API server accepts.

Names are the claim: two deliveries of one event make one name, at whichever replica. Keys hold what made the event a
new one, so that a pipeline that fails twice is two, and the same event by two ways is one.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import Any

from hummingbird_operator.api import labels
from hummingbird_operator.api.agentrun import MESSAGE_CHARACTERS, AgentRun, Notice
from hummingbird_operator.errors import Invalid
from hummingbird_operator.ingest.payloads import BadPayload

Object = dict[str, Any]

TTL_SECONDS = 1_296_000
"""15 days: longer than a queue keeps a message (14), for the run's name is what a late delivery meets."""
HELP = "help"
"""The workflow of fixed answers; no real one can have the name."""

NO_MOMENT = ""
"""Stands in the key of a merge request's run where a webhook says when it changed: GitLab's lists do not say that."""

_WORD_CHARACTERS = 200
_NOT_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Refused or mangled by API servers, models or terminals: controls but tab and line feed, halves of characters."""
_URL = re.compile(r"https?://[^\s\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,2000}")


@dataclass(frozen=True)
class Origin:
    """What all runs of one event share. `host` is GitLab's name, `url` the address of what happened."""

    host: str
    event: str
    project: str
    project_id: int
    iid: int
    author: str
    author_id: int | None
    url: str

    def key(self, *parts: object) -> str:
        """The content key: `gitlab:<host>:<project id>:<event>:…`."""
        return ":".join(map(str, ("gitlab", self.host, self.project_id, self.event, *parts)))


@dataclass(frozen=True)
class Key:
    """A content key, read back. `parts` are those of the event, the workflow's name the last one."""

    event: str
    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Key | None:
        """None for what is no key of GitLab's."""
        source, *fields = text.split(":")
        return cls(fields[2], tuple(fields[3:])) if source == "gitlab" and len(fields) > 3 else None

    def commit(self) -> tuple[int, str] | None:
        """Merge request and commit of a merge request's own event."""
        if self.event != "merge_request" or len(self.parts) < 2 or not self.parts[0].isdigit():
            return None
        return int(self.parts[0]), self.parts[1]

    def end(self) -> tuple[int, str, str] | None:
        """Pipeline, status and moment of a pipeline's end."""
        if self.event != "pipeline" or len(self.parts) < 4 or not self.parts[0].isdigit():
            return None
        return int(self.parts[0]), self.parts[1], ":".join(self.parts[2:-1])


@dataclass(frozen=True)
class Comment:
    """A note that somebody wrote to the bot."""

    origin: Origin
    id: int
    discussion: str | None
    internal: bool
    day: str = ""
    """When it was written, by GitLab: YYYY-MM-DD, or empty."""

    @property
    def key(self) -> str:
        """Without a workflow: after a change of the configuration the same words may mean another one."""
        return self.origin.key(self.id)

    @property
    def denial(self) -> str:
        """The key of a denial, which is told to one person once a day on a merge request."""
        if not self.day:
            return self.key
        return self.origin.key("denied", self.origin.iid, self.origin.author_id, self.day)

    def within(self, *, internal: bool) -> Comment:
        """The comment in a thread: in an internal one it is internal, whatever its event says."""
        return replace(self, internal=self.internal or internal)


def automatic(origin: Origin, workflow: str, sha: str, *parts: object) -> Object:
    """The run that nobody asked for; `parts` are what the key holds between the event's name and the workflow's."""
    key = origin.key(*parts, workflow)
    trigger = {**_trigger(origin, key), "automatic": True}
    return _body(f"{workflow}-{_digest(key)}", origin, workflow, trigger, sha=sha)


def command(comment: Comment, workflow: str, message: str) -> Object:
    """The run that a slash command asked for, on the head that the merge request has when the run is accepted."""
    return _body(name_of(comment.key), comment.origin, workflow, _asked(comment, comment.key), message=message)


def reply(comment: Comment, workflow: str, session: str, message: str) -> Object:
    """The run that goes on with a session."""
    trigger = _asked(comment, comment.key)
    return _body(name_of(comment.key), comment.origin, workflow, trigger, message=message, session=session)


def notice(comment: Comment, kind: Notice, word: str = "") -> Object:
    """A fixed answer in the thread of the comment; `word` is what named no workflow.

    It bears the comment's own name, so that a comment has one answer whatever is decided at a second delivery. That
    the queue is full is said beside the run of the reply; a denial is shared by all that its author asks for in a day.
    """
    keys = {Notice.QUEUE_FULL: f"{comment.key}:queue-full", Notice.DENIED: comment.denial}
    key = keys.get(kind, comment.key)
    trigger = _asked(comment, key)
    return _body(name_of(key), comment.origin, HELP, trigger, message=word[:_WORD_CHARACTERS], notice=kind.value)


def name_of(key: str) -> str:
    """The name of the run that a comment's key makes."""
    return f"note-{_digest(key)}"


def text(words: str) -> str:
    """A person's words as a spec takes them: bounded, lines ended by line feeds, no control characters."""
    lines = words.replace("\r\n", "\n").replace("\r", "\n")
    return _NOT_TEXT.sub("�", lines[:MESSAGE_CHARACTERS])


def _body(
    name: str,
    origin: Origin,
    workflow: str,
    trigger: Object,
    *,
    sha: str | None = None,
    message: str = "",
    session: str | None = None,
    notice: str | None = None,
) -> Object:
    lane = labels.lane_of(f"{origin.project}!{origin.iid}", workflow)
    marks = {labels.WORKFLOW: workflow, labels.LANE: lane, labels.SESSION: session}
    target = {"project": origin.project, "mergeRequest": origin.iid, "sha": sha}
    spec = {
        "workflow": workflow,
        "target": {"gitlab": _given(target)},
        "session": session,
        "message": text(message) or None,
        "notice": notice,
        "trigger": _given(trigger),
        "ttlSecondsAfterFinished": TTL_SECONDS,
    }
    body = {
        "apiVersion": labels.API_VERSION,
        "kind": "AgentRun",
        "metadata": {
            "name": name,
            "labels": _given(marks),
            "annotations": {labels.CONTENT_KEY: trigger["key"]},
        },
        "spec": _given(spec),
    }
    try:
        AgentRun.parse(body)
    except Invalid as error:
        raise BadPayload(error.where, error.problem) from error
    return body


def _trigger(origin: Origin, key: str) -> Object:
    return {
        "source": "gitlab",
        "event": origin.event,
        "key": key,
        "author": text(origin.author)[:255] or None,
        "authorId": origin.author_id,
        "url": origin.url if _URL.fullmatch(origin.url) else None,
    }


def _asked(comment: Comment, key: str) -> Object:
    return {
        **_trigger(comment.origin, key),
        "automatic": False,
        "internal": comment.internal,
        "discussion": comment.discussion,
        "noteId": comment.id,
    }


def _given(fields: Object) -> Object:
    return {name: value for name, value in fields.items() if value is not None}


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:16]
