"""Notes, discussions and emoji: the rules of `lib/api/notes.rb`, `lib/api/discussions.rb` and the note services."""

from __future__ import annotations

import time
from typing import Any

from tests.standins.gitlab import markdown, notejson, payloads, quickactions
from tests.standins.gitlab.changes import Changes
from tests.standins.gitlab.records import MergeRequest, Note, Project, User, new_discussion_id
from tests.standins.gitlab.state import State
from tests.standins.gitlab.wire import ApiError, Request, Response, as_json, flag, not_found, page_of, paged

MAXIMUM = 1_000_000
MAY_READ_INTERNAL = 20
MAY_ADMINISTER = 40
MAY_RESOLVE = 30


def route(
    request: Request, state: State, project: Project, merge_request: MergeRequest, rest: tuple[str, ...]
) -> Response:
    """Everything below a merge request that is about notes."""
    handler = Handler(request, state, project, merge_request)
    match (request.method, *rest):
        case ("GET", "notes"):
            return handler.list_notes()
        case ("POST", "notes"):
            return handler.create_plain()
        case ("GET", "discussions"):
            return handler.list_discussions()
        case ("POST", "discussions"):
            return handler.create_discussion()
        case ("POST", "award_emoji"):
            return handler.award(merge_request.emoji)
        case (_, "notes", note_id, *deeper):
            return handler.one_note(note_id, tuple(deeper))
        case (_, "discussions", discussion_id, *deeper):
            return handler.in_discussion(discussion_id, tuple(deeper))
    raise not_found()


class Handler:
    """One call on the notes of one merge request."""

    def __init__(self, request: Request, state: State, project: Project, merge_request: MergeRequest) -> None:
        self.request = request
        self.state = state
        self.project = project
        self.merge_request = merge_request
        self.user: User = request.user
        self.changes = Changes(state, project, merge_request, self.user)

    def one_note(self, note_id: str, deeper: tuple[str, ...] = ()) -> Response:
        note = self.visible(note_id)
        match (self.request.method, *deeper):
            case ("GET",):
                return as_json(self.render(note))
            case ("PUT",):
                return self.update(note)
            case ("DELETE",):
                del self.merge_request.notes[self.administered(note_id).id]  # no event: GitLab tells nobody
                self.changes.touch()
                return Response(204)
            case ("GET", "award_emoji"):
                return paged(self.request, note.emoji, self.state.count_limit)
            case ("POST", "award_emoji"):
                return self.award(note.emoji, note)
            case ("DELETE", "award_emoji", award_id):
                return self.withdraw(note, award_id)
        raise ApiError(405, {"error": "405 Not Allowed"})

    def in_discussion(self, discussion_id: str, deeper: tuple[str, ...]) -> Response:
        notes = self.notes_of(discussion_id)
        match (self.request.method, *deeper):
            case ("GET",):
                return as_json(self.render_discussion(notes))
            case ("PUT",):
                return self.resolve(notes)
            case ("POST", "notes"):
                return self.reply(notes)
            case (_, "notes", note_id, *award):
                if note_id not in {str(note.id) for note in notes}:
                    raise not_found("Note")
                return self.one_note(note_id, tuple(award))
        raise not_found()

    def may_see(self, note: Note) -> bool:
        return not note.internal or note.author is self.user or self.project.level(self.user) >= MAY_READ_INTERNAL

    def visible(self, note_id: str) -> Note:
        note = self.merge_request.notes.get(int(note_id)) if note_id.isdigit() else None
        if note is None or not self.may_see(note):
            raise not_found("Note")
        return note

    def administered(self, note_id: str) -> Note:
        note = self.visible(note_id)
        if note.author is not self.user and self.project.level(self.user) < MAY_ADMINISTER:
            raise ApiError(403, {"message": "403 Forbidden"})
        return note

    def notes_of(self, discussion_id: str) -> list[Note]:
        notes = [n for n in self.merge_request.notes.values() if n.discussion_id == discussion_id and self.may_see(n)]
        if not notes:
            raise not_found("Discussion")
        return notes

    def list_notes(self) -> Response:
        """Invisible notes are filtered after paging, so a page may be short."""
        newest_first = self.request.query.get("sort", "desc") == "desc"
        rows = sorted(self.merge_request.notes.values(), key=lambda note: note.id, reverse=newest_first)
        page, headers = page_of(self.request, rows, self.state.count_limit)
        return as_json([self.render(note) for note in page if self.may_see(note)], headers=headers)

    def list_discussions(self) -> Response:
        grouped: dict[str, list[Note]] = {}
        for note in sorted(self.merge_request.notes.values(), key=lambda note: note.id):
            if self.may_see(note):
                grouped.setdefault(note.discussion_id, []).append(note)
        rows = [self.render_discussion(notes) for notes in grouped.values()]
        return paged(self.request, rows, self.state.count_limit)

    def create_plain(self) -> Response:
        wanted = flag(self.request.body.get("internal")) or flag(self.request.body.get("confidential"))
        allowed = self.project.level(self.user) >= self.project.internal_min_level
        # Without the right the flag is dropped without an error and the note is public (build_service.rb).
        return self.create(new_discussion_id(self.state.next_id()), None, internal=wanted and allowed)

    def create_discussion(self) -> Response:
        """`internal` is no parameter here: it is ignored. A `position` makes a thread on the diff."""
        position = self.request.body.get("position")
        kind = "DiffNote" if position else "DiscussionNote"
        discussion_id = new_discussion_id(self.state.next_id())
        answer = self.create(discussion_id, kind, internal=False, position=position)
        return as_json(self.render_discussion(self.notes_of(discussion_id)), 201) if answer.status == 201 else answer

    def reply(self, notes: list[Note]) -> Response:
        first = notes[0]
        if first.system:
            raise ApiError(400, {"message": "400 Bad request - Discussion can not be replied to."})
        answer = self.create(
            first.discussion_id,
            first.type or "DiscussionNote",
            internal=first.internal,
            resolved=first.resolved,
            position=first.position,
        )
        if answer.status == 201 and first.type is None:
            first.type = "DiscussionNote"  # a reply turns a plain note into a thread
        return answer

    def create(
        self,
        discussion_id: str,
        kind: str | None,
        *,
        internal: bool,
        resolved: bool = False,
        position: dict[str, Any] | None = None,
    ) -> Response:
        self.count_note()
        body = self.request.body.get("body")
        if body is None:
            raise ApiError(400, {"error": "body is missing"})
        text = self.checked(body)
        content, changes = self.run_commands(text, "create")
        if not content and changes:
            return as_json({"commands_changes": changes, "summary": [f"Ran {', '.join(sorted(changes))}."]}, 202)
        now = self.state.now()
        note = Note(
            self.state.next_id(), discussion_id, self.user, content, now, now, kind, internal, position=position
        )
        note.resolved = resolved
        self.merge_request.notes[note.id] = note
        self.changes.touch()
        self.record_mentions(note, "create")
        self.tell(note, "create")
        return as_json(self.render(note) | {"commands_changes": changes}, 201)

    def update(self, note: Note) -> Response:
        body = self.request.body.get("body")
        if "resolved" in self.request.body and body is not None:
            raise ApiError(400, {"error": "body, resolved are mutually exclusive"})
        if body is None and "resolved" in self.request.body and self.request.segments[-4] == "discussions":
            return self.resolve([note])
        self.administered(str(note.id))
        if body is None or not str(body).strip():
            raise ApiError(400, {"error": "body is empty"})
        content, changes = self.run_commands(self.checked(body), "update")
        if not content and changes:
            # An update made only of commands destroys the note (update_service.rb).
            del self.merge_request.notes[note.id]
            self.state.destroyed.append(note.id)
            self.changes.touch()
            return as_json({"commands_changes": changes, "summary": [f"Ran {', '.join(sorted(changes))}."]}, 202)
        changed = note.body != content
        if changed:  # the same text again is no change: neither `updated_at` nor an event (update_service.rb)
            note.body, note.updated_at, note.updated_by = content, self.state.now(), self.user
            self.changes.touch()
        self.record_mentions(note, "update")
        if changed:
            self.tell(note, "update")
        return as_json(self.render(note) | {"commands_changes": changes})

    def tell(self, note: Note, action: str) -> None:
        """The note's event, also for the notes of bots and of whoever listens."""
        trigger = "confidential_note_hooks" if note.internal else "note_hooks"
        event = payloads.note_event(self.state, self.project, self.merge_request, note, action)
        self.state.events.emit(trigger, self.project.path, event)

    def count_note(self) -> None:
        now = time.monotonic()
        self.user.created_notes = [moment for moment in self.user.created_notes if now - moment < 60]
        if len(self.user.created_notes) >= self.state.notes_per_minute:
            text = "This endpoint has been requested too many times. Try again later."
            raise ApiError(429, {"message": {"error": text}})
        self.user.created_notes.append(now)

    @staticmethod
    def checked(body: Any) -> str:
        text = str(body)
        if not text.strip():
            raise ApiError(400, {"message": '400 Bad request - Note {:note=>["can\'t be blank"]}'})
        if len(text) > MAXIMUM:
            raise ApiError(400, {"message": {"note": [f"is too long (maximum is {MAXIMUM} characters)"]}})
        if "\x00" in text:
            raise ApiError(400, {"error": "body is invalid: it holds a null byte"})
        return text

    def run_commands(self, text: str, when: str) -> tuple[str, dict[str, str]]:
        content, commands = markdown.extract(text)
        for command in commands:
            entry = {"name": command.name, "argument": command.argument, "user": self.user.username, "when": when}
            self.state.executed.append(entry)
            quickactions.apply(self.changes, command)
        return content, {command.name: command.argument for command in commands}

    def record_mentions(self, note: Note, when: str) -> None:
        for name in markdown.mentions(note.body):
            self.state.mentions.append({"name": name, "note": str(note.id), "when": when})

    def resolve(self, notes: list[Note]) -> Response:
        if "resolved" not in self.request.body:
            raise ApiError(400, {"error": "resolved is missing"})
        if not notes[0].resolvable:
            raise ApiError(400, {"message": "400 Bad request - Note is not resolvable"})
        author = self.merge_request.fields.get("author", {}).get("id")
        if self.project.level(self.user) < MAY_RESOLVE and author != self.user.id:
            raise ApiError(403, {"message": "403 Forbidden"})
        resolved, already = flag(self.request.body["resolved"]), self.all_resolved()
        now = self.state.now()
        for note in notes:
            note.resolved, note.updated_at = resolved, now
            note.resolved_by, note.resolved_at = (self.user, now) if resolved else (None, None)
        if self.all_resolved() and not already:
            self.changes.threads_resolved()
        if self.request.segments[-2] == "notes":
            return as_json(self.render(notes[0]))
        return as_json(self.render_discussion(notes))

    def all_resolved(self) -> bool:
        return all(note.resolved for note in self.merge_request.notes.values() if note.resolvable)

    def award(self, emoji: list[dict[str, Any]], note: Note | None = None) -> Response:
        """One on a note moves its `updated_at` (`AwardEmoji#expire_cache`)."""
        name = self.request.body.get("name")
        if not name:
            raise ApiError(400, {"error": "name is missing"})
        if any(award["name"] == name and award["user"]["id"] == self.user.id for award in emoji):
            raise not_found("Award Emoji Name has already been taken")
        now = self.state.now()
        award = {"id": self.state.next_id(), "name": name, "user": self.user.public(), "created_at": now}
        emoji.append(award | {"updated_at": now})
        if note is not None:
            note.updated_at = now
        return as_json(award, 201)

    def withdraw(self, note: Note, award_id: str) -> Response:
        for award in note.emoji:
            if str(award["id"]) == award_id and award["user"]["id"] == self.user.id:
                note.emoji.remove(award)
                note.updated_at = self.state.now()
                return Response(204)
        raise not_found("Award Emoji")

    def render(self, note: Note) -> dict[str, Any]:
        return notejson.note(self.project, self.merge_request, note)

    def render_discussion(self, notes: list[Note]) -> dict[str, Any]:
        return notejson.discussion(self.project, self.merge_request, notes)
