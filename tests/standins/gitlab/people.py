"""What people do in GitLab. Each verb changes the state by GitLab's rules and causes the events that GitLab would.

A person is named by username, a project by its path. What GitLab refuses raises `ApiError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.standins.gitlab import payloads, pipelines, reads
from tests.standins.gitlab.changes import Changes
from tests.standins.gitlab.records import MergeRequest, Note, Project, Token, User
from tests.standins.gitlab.state import State
from tests.standins.gitlab.wire import ApiError, Request, Response

_BROWSER = Token("", frozenset({"api"}))


class NothingWritten(Exception):
    """The text was made of quick actions only: they ran, and no note came of it (GitLab answers 202)."""


class People:
    """The verbs. Safe to use from many threads; synchronous: listeners have been called when a verb returns."""

    def __init__(self, state: State) -> None:
        self._state = state

    # --- notes ---

    def comments(self, project: str, iid: int, user: str, body: str, *, internal: bool = False) -> Note:
        """Write a plain note. `internal` is dropped without a word where the right to it is missing."""
        return self._writes(project, iid, user, ("notes",), {"body": body, "internal": internal})

    def starts(self, project: str, iid: int, user: str, body: str, *, position: dict[str, Any] | None = None) -> Note:
        """Start a thread; with `position` (base_sha, head_sha, new_path, new_line, …) one on the diff."""
        fields = {"body": body} | ({"position": position} if position else {})
        return self._writes(project, iid, user, ("discussions",), fields)

    def replies(self, project: str, iid: int, user: str, discussion_id: str, body: str) -> Note:
        """Reply in a thread, or to a plain note, which becomes one; the reply is as internal as the thread."""
        return self._writes(project, iid, user, ("discussions", discussion_id, "notes"), {"body": body})

    def edits(self, project: str, iid: int, user: str, note_id: int, body: str) -> None:
        """Change a note's text; one that becomes quick actions only is destroyed."""
        self._sends(project, iid, user, "PUT", ("notes", str(note_id)), {"body": body})

    def deletes(self, project: str, iid: int, user: str, note_id: int) -> None:
        """Delete a note; GitLab tells nobody."""
        self._sends(project, iid, user, "DELETE", ("notes", str(note_id)))

    def resolves(self, project: str, iid: int, user: str, discussion_id: str, *, resolved: bool = True) -> None:
        """Resolve a thread, or open it again."""
        self._sends(project, iid, user, "PUT", ("discussions", discussion_id), {"resolved": resolved})

    def reacts(self, project: str, iid: int, user: str, note_id: int, name: str) -> None:
        """Give a note an emoji."""
        self._sends(project, iid, user, "POST", ("notes", str(note_id), "award_emoji"), {"name": name})

    def remarks(self, project: str, user: str, body: str, *, on: str = "Issue") -> int:
        """Write a note elsewhere than on a merge request (`on`: Issue, Commit or Snippet); gives its id."""
        with self._state.turn():
            found, number = self._project(project), self._state.next_id()
            event = payloads.other_note_event(self._state, found, self._state.user(user), number, body, on)
            self._state.events.emit("note_hooks", project, event)
            return number

    # --- the merge request ---

    def opens(
        self,
        project: str,
        iid: int,
        user: str,
        sha: str,
        *,
        title: str = "",
        draft: bool = False,
        fork_of: int | None = None,
        source_branch: str = "",
        message: str = "Change it\n",
    ) -> MergeRequest:
        """Open a merge request at `sha`. `fork_of`: the id of the fork that it comes from, which is made if missing."""
        with self._state.turn():
            target, person = self._project(project), self._state.user(user)
            title = title or f"Merge request {iid}"
            fields: dict[str, Any] = {
                "iid": iid,
                "sha": sha,
                "title": f"Draft: {title}" if draft else title,
                "draft": draft or title.lower().startswith("draft:"),
                "author": person.public(),
                "source_branch": source_branch or f"topic-{iid}",
                "source_project_id": self._fork(target, person, fork_of).id if fork_of else target.id,
            }
            made = self._state.new_merge_request(target, fields)
            made.commit = {"message": message, "author": {"name": person.username, "email": "[REDACTED]"}}
            target.merge_requests[iid] = made
            Changes(self._state, target, made, person).opened()
            return made

    def pushes(self, project: str, iid: int, user: str, sha: str, *, message: str = "Change it\n") -> MergeRequest:
        """Push `sha` to the source branch, its commit's `message` being what the person wrote."""
        with self._changing(project, iid, user) as changes:
            changes.pushed(sha, message)
            return changes.merge_request

    def marks_ready(self, project: str, iid: int, user: str) -> MergeRequest:
        """No longer a draft."""
        with self._changing(project, iid, user) as changes:
            changes.draft_to(False)
            return changes.merge_request

    def marks_draft(self, project: str, iid: int, user: str) -> MergeRequest:
        """A draft from now on."""
        with self._changing(project, iid, user) as changes:
            changes.draft_to(True)
            return changes.merge_request

    def renames(self, project: str, iid: int, user: str, title: str) -> MergeRequest:
        """Give it another title; one without `Draft:` makes a draft ready."""
        with self._changing(project, iid, user) as changes:
            changes.title_to(title)
            return changes.merge_request

    def labels(self, project: str, iid: int, user: str, titles: Iterable[str]) -> MergeRequest:
        """Replace its labels."""
        with self._changing(project, iid, user) as changes:
            changes.labels_to(titles)
            return changes.merge_request

    def closes(self, project: str, iid: int, user: str) -> MergeRequest:
        """Close it."""
        return self._moves(project, iid, user, "closed", "close")

    def reopens(self, project: str, iid: int, user: str) -> MergeRequest:
        """Open it again, at the commit where its branch is now."""
        return self._moves(project, iid, user, "opened", "reopen")

    def merges(self, project: str, iid: int, user: str) -> MergeRequest:
        """Merge it."""
        return self._moves(project, iid, user, "merged", "merge")

    def approves(self, project: str, iid: int, user: str) -> MergeRequest:
        """Approve it."""
        with self._changing(project, iid, user) as changes:
            changes.approval("approved")
            return changes.merge_request

    def pipeline(
        self,
        project: str,
        iid: int,
        user: str,
        status: str,
        *,
        pipeline_id: int | None = None,
        sha: str | None = None,
        ref: str = "head",
        source: str = "merge_request_event",
    ) -> int:
        """Start a pipeline for the merge request (`ref`: head, merge or train), or move one, to `status`; gives its id.

        `project` is the merge request's. That of a fork runs in the fork, and its event goes there, unless `user` is
        Developer in the target project. With another `source` it is a pipeline of the branch.
        """
        with self._state.turn():
            target, person = self._project(project), self._state.user(user)
            merge_request = self._merge_request(target, iid)
            if pipeline_id is None:
                head = sha or merge_request.fields["sha"]
                row = pipelines.start(self._state, target, merge_request, person, head, ref, source)
            else:
                row = pipelines.of(target, merge_request, pipeline_id)
            pipelines.move(self._state, merge_request, person, row, status)
            return int(row["id"])

    # --- how ---

    def _moves(self, project: str, iid: int, user: str, state: str, action: str) -> MergeRequest:
        with self._changing(project, iid, user) as changes:
            changes.state_to(state, action)
            return changes.merge_request

    @contextmanager
    def _changing(self, project: str, iid: int, user: str) -> Iterator[Changes]:
        with self._state.turn():
            target = self._project(project)
            changes = Changes(self._state, target, self._merge_request(target, iid), self._state.user(user))
            changes.check()
            yield changes

    def _writes(self, project: str, iid: int, user: str, rest: tuple[str, ...], body: dict[str, Any]) -> Note:
        with self._state.turn():
            notes = self._merge_request(self._project(project), iid).notes
            before = set(notes)
            if self._send(project, iid, user, "POST", rest, body).status == 202:
                raise NothingWritten(body["body"])
            return next(note for number, note in notes.items() if number not in before and not note.system)

    def _sends(
        self, project: str, iid: int, user: str, method: str, rest: tuple[str, ...], body: dict[str, Any] | None = None
    ) -> None:
        with self._state.turn():
            self._send(project, iid, user, method, rest, body or {})

    def _send(
        self, project: str, iid: int, user: str, method: str, rest: tuple[str, ...], body: dict[str, Any]
    ) -> Response:
        """Through the same rules as a call of the API."""
        segments = ("projects", project, "merge_requests", str(iid), *rest)
        person = self._state.user(user)
        if person.state != "active":
            raise ApiError(403, {"message": "403 Forbidden - Your account has been blocked."})
        return reads.route(Request(method, segments, {}, body, person, _BROWSER, "", ""), self._state)

    def _project(self, path: str) -> Project:
        found = self._state.project(path)
        if found is None:
            raise KeyError(f"no project {path}")
        return found

    @staticmethod
    def _merge_request(project: Project, iid: int) -> MergeRequest:
        return project.merge_requests[iid]

    def _fork(self, target: Project, person: User, number: int) -> Project:
        path = f"{person.username}/{target.path.rsplit('/', 1)[-1]}"
        fork = self._state.projects.setdefault(number, Project(number, path, target.visibility))
        fork.members.setdefault(person.id, 50)
        return fork
