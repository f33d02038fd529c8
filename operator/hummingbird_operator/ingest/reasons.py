"""What becomes of an event, as a closed list: each ends in exactly one of these, which is answered, logged and counted.

`docs/ingest.md` holds the same list; a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """The outcome of an event, with a sentence for people."""

    sentence: str

    def __new__(cls, value: str, sentence: str) -> Reason:
        """A reason cannot be made without its sentence."""
        self = str.__new__(cls, value)
        self._value_ = value
        self.sentence = sentence
        return self

    FIRED = "fired", "At least one AgentRun was made."
    NOTICE = "notice", "A fixed answer was ordered: help, an unknown command, or a person without the role."
    DUPLICATE = "duplicate", "Every AgentRun of the event was there already."
    RESOLVED = (
        "resolved",
        "The pipeline succeeded: the bot's threads are resolved, and nothing else was to do.",
    )
    UNKNOWN_EVENT = "unknown_event", "No handler is for this kind of event or this source."
    BAD_PAYLOAD = "bad_payload", "The event does not have the shape of its kind; the detail names the field."
    NO_TARGET = "no_target", "The event has no merge request of this project, or it does not exist any more."
    OTHER_GITLAB = "other_gitlab", "The event's project is in another GitLab than `gitlab.url`."
    NO_PROJECT = "no_project", "The project is not in the allow list `projects`."
    NO_WORKFLOW = "no_workflow", "No workflow for this kind of event admits the project."
    ACTION_FILTERED = "action_filtered", "The merge request was not opened, reopened or updated."
    DRAFT = "draft", "The merge request is a draft."
    CLOSED = "closed", "The merge request is closed or merged: nothing starts by itself on it."
    RULES_DENIED = "rules_denied", "The trigger_rules of every workflow in question say no."
    NOT_A_MERGE_REQUEST_PIPELINE = "not_a_merge_request_pipeline", "A pipeline of a branch, a tag or a schedule."
    STATUS_FILTERED = "status_filtered", "The pipeline did not end: only success, failed, canceled and skipped count."
    STALE_EVENT = "stale_event", "The merge request has a newer pipeline than the one of the event."
    SELF_EVENT = "self_event", "The bot did it itself: wrote the note, or resolved the last thread."
    BOT_SENDER = "bot_sender", "Another bot wrote the note: it is ignored unless `gitlab.allowed_bots` names it."
    LOOP_BUDGET = "loop_budget", "Too much was asked for on this merge request within an hour."
    SYSTEM_NOTE = "system_note", "GitLab wrote the note itself."
    EDITED = "edited", "The note was changed, not written: an edit starts nothing."
    NOT_FOR_US = "not_for_us", "The note is neither a command nor a reply in a thread."
    NO_SESSION = "no_session", "The reply stands in a thread in which the bot wrote nothing that can be continued."
    TOO_LARGE = "too_large", "GitLab's answer about it is longer than is read, such as a thread of many long notes."
    FORBIDDEN = "forbidden", "GitLab refuses the bot what it needs in this project; the log says what to mend."
    PUT_OFF = "put_off", "Only this event fails, while GitLab and the API server answer: it is tried again for an hour."
    NAME_TAKEN = "name_taken", "An AgentRun of that name exists that was made from something else."


@dataclass(frozen=True)
class Outcome:
    """What became of one event. `runs` are the names of its AgentRuns, made now or there before."""

    reason: Reason
    detail: str = ""
    runs: tuple[str, ...] = ()
