"""Which AgentRuns an evening must leave, from the record of acts alone. Plain rules, written from the design anew.

The product's code is not asked. Identifiers (numbers, times) are GitLab's own, from the events of each act.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.e2e.evening.acts import Act, Happening, Mr, Pipe, Place, Said
from tests.e2e.evening.cast import (
    DEVELOPER,
    FAILURES,
    IDS,
    IGNORED_BOT,
    INTERNAL,
    LEVELS,
    LIMITS,
    REVIEW,
)

HOST = "127.0.0.1"
SKIPPED = frozenset({"AlreadyReviewed", "RunLimitReached", "Superseded"})
UNSAVED = frozenset({"SessionNotFound", "SessionNotSaved"})
NOTICES = {"help": "Help", "unknown": "UnknownCommand"}


@dataclass(frozen=True)
class Expected:
    """An AgentRun that must exist once. `outcomes`: the reasons that it may end with.

    `optional`: whether it exists depends on when its event was looked at.
    """

    name: str
    kind: str
    workflow: str
    project: str
    iid: int
    outcomes: frozenset[str]
    why: str
    sha: str = ""
    notice: str = ""
    session: str = ""
    internal: bool = False
    token: str = ""
    note: int = 0
    choices: Mapping[int, bool] = field(default_factory=dict)
    """Of a denial, which is told to one person once a day on a merge request: the comments that it may answer, by
    their numbers, and whether the answer is internal then."""
    optional: bool = False
    shut: bool = False
    """Whether its merge request was closed, merged or (for a review) a draft, then or later: it may find it so."""

    @property
    def place(self) -> Place:
        """Its merge request."""
        return self.project, self.iid


def expected(happenings: Iterable[Happening]) -> dict[str, Expected]:
    """All runs by name. An event whose key was there before asks for nothing new."""
    story = list(happenings)
    newest = newest_pipelines(story)
    runs: dict[str, Expected] = {}
    latest: dict[Place, Mr] = {}
    for happening in story:
        act = happening.act
        if act is not None and act.mr is not None:
            latest[act.mr.place] = act.mr
            runs = {name: replace(run, shut=run.shut or _shut_for(run, act.mr)) for name, run in runs.items()}
        for run in _of(happening, latest, newest):
            known = runs.setdefault(run.name, replace(run, shut=_shut_for(run, latest[run.place])))
            runs[run.name] = replace(known, choices={**known.choices, **run.choices})
    return runs


def _shut_for(run: Expected, mr: Mr) -> bool:
    """A draft is not reviewed by itself; its failed pipeline is explained all the same."""
    return run.place == mr.place and (not mr.open or (mr.draft and run.workflow == REVIEW))


def newest_pipelines(story: Iterable[Happening]) -> dict[Place, int]:
    """The highest pipeline of each merge request on the whole evening."""
    newest: dict[Place, int] = {}
    for happening in story:
        act = happening.act
        if act is not None and act.pipe is not None and act.mr is not None:
            newest[act.mr.place] = max(newest.get(act.mr.place, 0), act.pipe.id)
    return newest


def _of(happening: Happening, latest: Mapping[Place, Mr], newest: Mapping[Place, int]) -> Iterator[Expected]:
    act, payload = happening.act, happening.payload
    if happening.kind == "merge_request" and act is not None:  # what the bot does starts nothing
        mr = latest[payload["project"]["path_with_namespace"], payload["object_attributes"]["iid"]]
        yield from _proposed(mr, payload["object_attributes"])
    elif happening.kind == "pipeline" and act is not None and act.pipe is not None and act.mr is not None:
        yield from _ended(act, act.pipe, act.mr, payload["object_attributes"], newest)
    elif happening.kind == "note" and act is not None and act.said is not None and act.mr is not None:
        yield from _written(act, act.said, act.mr, payload.get("object_attributes", {}))


def _proposed(mr: Mr, attributes: Mapping[str, Any]) -> Iterator[Expected]:
    """A merge request that was opened, reopened or updated: reviewed by itself where it is ready."""
    asks = attributes["action"] in {"open", "reopen", "update"} and mr.open and not mr.draft
    denied = mr.branch.startswith("renovate/") or mr.title.startswith("chore")
    if not asks or denied or mr.project not in LIMITS or not mr.project.startswith("group/"):
        return
    key = f"gitlab:{HOST}:{IDS[mr.project]}:merge_request:{mr.iid}:{mr.sha}:{attributes['updated_at']}:{REVIEW}"
    yield _automatic(REVIEW, key, mr, mr.sha, f"{attributes['action']} of the merge request")


def _ended(
    act: Act, pipe: Pipe, mr: Mr, attributes: Mapping[str, Any], newest: Mapping[Place, int]
) -> Iterator[Expected]:
    """A pipeline that failed, or was cancelled outside of forks: explained by itself."""
    wanted = pipe.status == "failed" or (pipe.status == "canceled" and not mr.fork)
    denied = (mr.branch.startswith("renovate/") and pipe.status == "failed") or act.user.startswith("ci-")
    gone = pipe.source != "merge_request_event" or not pipe.ours or not mr.open or mr.project not in LIMITS
    if not wanted or denied or gone:
        return
    finished = attributes["finished_at"] or ""
    key = f"gitlab:{HOST}:{IDS[mr.project]}:pipeline:{pipe.id}:{pipe.status}:{finished}:{FAILURES}"
    generated = pipe.ref != "head"
    yield _automatic(
        FAILURES,
        key,
        mr,
        "" if generated else attributes["sha"],
        f"{pipe.ref} pipeline {pipe.status}",
        optional=generated and newest[mr.place] > pipe.id,
    )


def _written(act: Act, said: Said, mr: Mr, attributes: Mapping[str, Any]) -> Iterator[Expected]:
    """A comment that is a command, or goes on with a session: answered, but only a Developer's is done."""
    asks = said.means.answer != "nothing" or bool(said.session)
    if not asks or mr.project not in LIMITS or act.user == IGNORED_BOT:
        return
    key = f"gitlab:{HOST}:{IDS[mr.project]}:note:{said.id}"
    command = said.means.answer != "nothing"
    notice = "Denied" if LEVELS.get(act.user, 0) < DEVELOPER else NOTICES.get(said.means.answer, "")
    internal = said.internal or mr.project in INTERNAL
    if notice == "Denied":
        day = str(attributes.get("created_at", ""))[:10]
        key = f"gitlab:{HOST}:{IDS[mr.project]}:note:denied:{mr.iid}:{attributes.get('author_id')}:{day}"
    kind = "notice" if notice else "command" if command else "reply"
    outcomes = {"notice": {"Completed"}, "command": {"Completed"}, "reply": {"Completed", "Merged", *UNSAVED}}
    yield Expected(
        name=f"note-{_digest(key)}",
        kind=kind,
        workflow="help" if notice else said.means.workflow or said.workflow,
        project=mr.project,
        iid=mr.iid,
        outcomes=frozenset(outcomes[kind]),
        why=f"{act.verb} by {act.user}",
        notice=notice,
        session="" if notice or command else said.session,
        internal=internal,
        token="" if notice else said.token,
        note=said.id,
        choices={said.id: internal} if notice == "Denied" else {},
    )


def _automatic(workflow: str, key: str, mr: Mr, sha: str, why: str, *, optional: bool = False) -> Expected:
    return Expected(
        name=f"{workflow}-{_digest(key)}",
        kind="automatic",
        workflow=workflow,
        project=mr.project,
        iid=mr.iid,
        outcomes=SKIPPED | {"Completed"},
        why=why,
        sha=sha,
        internal=mr.project in INTERNAL,
        optional=optional,
    )


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:16]
