"""How a merge request changes, with the system notes and the events that follow (`app/services/merge_requests`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from tests.standins.gitlab import payloads
from tests.standins.gitlab.records import MergeRequest, Note, Project, User, new_discussion_id, timestamp
from tests.standins.gitlab.state import State
from tests.standins.gitlab.wire import ApiError

MAY_CHANGE = 30
_DRAFT = re.compile(r"\s*(?:\[draft\]|\(draft\)|draft:|wip:|\[wip\])\s*", re.IGNORECASE)


class Changes:
    """What one person does to one merge request; the caller holds the state's lock."""

    def __init__(self, state: State, project: Project, merge_request: MergeRequest, user: User) -> None:
        self.state = state
        self.project = project
        self.merge_request = merge_request
        self.user = user
        self.fields = merge_request.fields

    def check(self) -> None:
        """403 for who is neither the author nor Developer."""
        if self.project.level(self.user) < MAY_CHANGE and self.fields["author"].get("id") != self.user.id:
            raise ApiError(403, {"message": "403 Forbidden"})

    def opened(self) -> None:
        """It has just been made."""
        self._tell("open", {})

    def state_to(self, state: str, action: str) -> None:
        """Close, reopen or merge; nothing happens where it is so already. Reopened, it follows its branch again."""
        if self.fields["state"] == state:
            return
        ids = {"opened": 1, "closed": 2, "merged": 3}
        before = ids.get(self.fields["state"], 1)
        self.fields["state"] = state
        self.system_note({"opened": "reopened"}.get(state, state))
        if action == "reopen" and self.merge_request.branch_sha:
            self._head(self.merge_request.branch_sha)
            self.merge_request.branch_sha = ""
        self._update(action, {"state_id": (before, ids[state])})

    def title_to(self, title: str) -> None:
        """A title decides whether it is a draft: those that begin with `Draft:` are."""
        before, was_draft = self.fields["title"], self.fields["draft"]
        draft = bool(_DRAFT.match(title))
        if title == before and draft == was_draft:
            return
        self.fields |= {"title": title, "draft": draft}
        changed: dict[str, Any] = {"title": (before, title)} if title != before else {}
        if draft != was_draft:
            changed["draft"] = (was_draft, draft)
            self.system_note(f"marked this merge request as **{'draft' if draft else 'ready'}**")
        if _DRAFT.sub("", before, count=1) != _DRAFT.sub("", title, count=1):
            self.system_note(f"changed title from **{{-{before}-}}** to **{{+{title}+}}**")
        self._update("update", changed)

    def draft_to(self, draft: bool) -> None:
        """By its title, as GitLab does it."""
        bare = _DRAFT.sub("", self.fields["title"], count=1)
        self.title_to(f"Draft: {bare}" if draft else bare)

    def labels_to(self, titles: Iterable[str]) -> None:
        """Replace the labels; the system note names those that were added and removed."""
        before, after = list(self.fields["labels"]), list(titles)
        if before == after:
            return
        self.fields["labels"] = after
        added, removed = (
            [f"~{name}" for name in names] for names in (set(after) - set(before), set(before) - set(after))
        )
        parts = [f"{verb} {' '.join(names)}" for verb, names in (("added", added), ("removed", removed)) if names]
        self.system_note(f"{' and '.join(parts)} labels")
        old, new = ([payloads.label_attributes(self.project, name) for name in names] for names in (before, after))
        self._update("update", {"labels": (old, new)})

    def approval(self, action: str) -> None:
        """`approved` or `unapproved`: an event without changes."""
        self.system_note(f"{action} this merge request")
        self._tell(action, {})

    def pushed(self, sha: str, message: str) -> None:
        """The source branch moves. One that is open follows it; `head_pipeline` stays the old one until a new one runs.

        A push event goes to the source project, a merge request event with `oldrev` to the target.
        """
        before = self.merge_request.branch_sha or self.fields["sha"]
        if sha == before:
            return
        source = self.state.projects.get(self.fields["source_project_id"], self.project)
        person = {"name": self.user.name or self.user.username, "email": "[REDACTED]"}
        commit = {"message": message, "author": person, "timestamp": self.state.now()}
        row = payloads.commit_attributes(self.state, source, sha, commit, self.state.now())
        event = payloads.push_event(self.state, source, self.user, self.fields["source_branch"], before, row)
        self.merge_request.commit = commit
        if self.fields["state"] != "opened":
            self.merge_request.branch_sha = sha
            self.state.events.emit("push_hooks", source.path, event)
            return
        self._head(sha)
        link = f"{self.fields['web_url']}/diffs?diff_id=1&start_sha={before}"
        added = f"<ul><li>{sha[:8]} - {row['title']}</li></ul>"
        self.system_note(f"added 1 commit\n\n{added}\n\n[Compare with previous version]({link})")
        self.state.events.emit("push_hooks", source.path, event)
        self._tell("update", {}, oldrev=before)

    def threads_resolved(self) -> None:
        """The last open thread was resolved: a system note, and an event whose `changes` are empty."""
        self.system_note("resolved all threads")
        self._tell("update", {})

    def touch(self) -> None:
        """Anything that happens to it, a note included, moves `updated_at`."""
        self.fields["updated_at"] = self.state.now()

    def system_note(self, body: str) -> Note:
        """A note by the system in the person's name; it fires no note event."""
        number, now = self.state.next_id(), self.state.now()
        note = Note(number, new_discussion_id(number), self.user, body, now, now, system=True)
        self.merge_request.notes[number] = note
        self.touch()
        return note

    def _head(self, sha: str) -> None:
        number = self.state.next_id()
        self.merge_request.before = dict(self.fields)
        self.fields["sha"] = sha
        self.fields["diff_refs"] = {**(self.fields["diff_refs"] or {}), "head_sha": sha}
        made = timestamp(self.state.clock() - timedelta(seconds=1))  # before the merge request says that it changed
        version = {"id": number, "head_commit_sha": sha, "created_at": made, "state": "collected"}
        refs = self.fields["diff_refs"]
        version |= {"base_commit_sha": refs.get("base_sha"), "start_commit_sha": refs.get("start_sha")}
        self.merge_request.versions.insert(0, version | {"merge_request_id": self.fields["id"]})

    def _update(self, action: str, changed: Mapping[str, tuple[Any, Any]]) -> None:
        before = payloads.hook_time(self.fields["updated_at"])
        self.touch()
        after = payloads.hook_time(self.fields["updated_at"])
        moved = {"updated_at": (before, after)} if before != after else {}
        self._tell(action, {**changed, **moved})

    def _tell(self, action: str, changed: Mapping[str, Any], *, oldrev: str = "") -> None:
        self.touch()
        event = payloads.merge_request_event(self.state, self.project, self.merge_request, self.user, action, changed)
        if oldrev:
            event["object_attributes"]["oldrev"] = oldrev
        self.state.events.emit("merge_request_hooks", self.project.path, event)
