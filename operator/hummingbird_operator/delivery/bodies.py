"""The texts of a note, from placeholder to answer. Pure: values in, markdown out.

Every body ends with the marker, alone on its last line; everything that a model, a person or an error message said goes
through `redact` and `make_inert` on its way. The marker's `state` tells how far the run got.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from hummingbird_operator.api.agentrun import Notice
from hummingbird_operator.delivery.inert import one_line
from hummingbird_operator.delivery.markers import Marker
from hummingbird_operator.delivery.parts import (
    GREEN_SINCE,
    TRANSCRIPT_CHARACTERS,
    Footer,
    below,
    count,
    inert,
    sentences,
    transcript_block,
    without_secrets,
)
from hummingbird_operator.forges.notes import TRANSCRIPT_SUMMARY

__all__ = [
    "COMMAND",
    "EMPTY_ANSWER",
    "GREEN_SINCE",
    "REPLY_PROMPT",
    "RUN_PROMPT",
    "TRANSCRIPT_CHARACTERS",
    "TRANSCRIPT_SUMMARY",
    "Footer",
    "answer",
    "cancelled",
    "denied",
    "failure",
    "help_text",
    "placeholder",
    "queue_full",
    "session_expired",
    "session_internal",
    "session_never_saved",
    "session_unreadable",
    "superseded",
    "timed_out",
    "too_long",
    "unknown_command",
]

COMMAND = "/hummingbird"
EMPTY_ANSWER = "The agent ended without a text to show."
REPLY_PROMPT = (
    "Reply to this note to go on with the agent: the conversation and its files are kept (`session: {session}`)."
)
RUN_PROMPT = "The conversation and its files are kept: an AgentRun with `session: {session}` and a `message` goes on."
_MESSAGE_CHARACTERS = 4_000
_SHORT_CHARACTERS = 10_000
_SHOWN_WORKFLOWS = 100


def placeholder(*, workflow: str, marker: Marker) -> str:
    """The first text of a note, before any model call: harmless, so that a note that came out public tells nothing."""
    return _note([f"Running the {one_line(workflow)} workflow…"], marker)


def answer(
    text: str,
    *,
    footer: Footer,
    marker: Marker,
    transcript: str = "",
    reply_prompt: bool = False,
    by_comment: bool = True,
    notices: Sequence[str] = (),
    secrets: Sequence[str] = (),
) -> str:
    """The finished note. `notices` are sentences above the answer, such as that the question was cut.

    `reply_prompt` only when the session is saved and the run is not itself an answer to a reply; `by_comment` where
    comments reach the operator, else the prompt says how to go on with an AgentRun.
    """
    parts = [*sentences(notices, secrets), inert(text, secrets) or EMPTY_ANSWER]
    prompt = (REPLY_PROMPT if by_comment else RUN_PROMPT).format(session=marker.id) if reply_prompt else ""
    return _note([*parts, *below(footer, transcript, prompt, secrets)], marker)


def failure(
    message: str,
    *,
    marker: Marker,
    workflow: str = "",
    partial: str = "",
    footer: Footer | None = None,
    transcript: str = "",
    secrets: Sequence[str] = (),
) -> str:
    """The run failed: `message` is a sentence for people, `partial` what the agent had found until then.

    Without `workflow` (it is configured no more) nobody is told to start it again.
    """
    what = f" Workflow: {one_line(workflow)}." if workflow else ""
    again = _again(marker) if workflow else ""
    head = [f"Hummingbird analysis failed.{what}", inert(message, secrets, _MESSAGE_CHARACTERS), again]
    return _ended(head, partial, footer, transcript, secrets, marker)


def cancelled(
    *,
    marker: Marker,
    by: str = "",
    partial: str = "",
    footer: Footer | None = None,
    transcript: str = "",
    secrets: Sequence[str] = (),
) -> str:
    """The run was cancelled or deleted; `by` names who asked, without notifying them."""
    who = f" by {one_line(by, limit=100)}" if by else ""
    head = [f"Hummingbird analysis cancelled{who}.", _again(marker)]
    return _ended(head, partial, footer, transcript, secrets, marker)


def timed_out(
    seconds: int,
    *,
    marker: Marker,
    partial: str = "",
    footer: Footer | None = None,
    transcript: str = "",
    secrets: Sequence[str] = (),
) -> str:
    """The run used up its time, `limits.timeoutSeconds`."""
    head = [f"Hummingbird analysis stopped: it had {count(seconds, 'second')} and used them up.", _again(marker)]
    return _ended(head, partial, footer, transcript, secrets, marker)


def superseded(
    *,
    marker: Marker,
    newer_sha: str = "",
    partial: str = "",
    footer: Footer | None = None,
    transcript: str = "",
    secrets: Sequence[str] = (),
) -> str:
    """A newer commit came before the run was done; `partial` is what the agent had found about the older one."""
    newer = f" ({one_line(newer_sha, limit=64)[:12]})" if newer_sha else ""
    what = f"Superseded: the merge request has a newer commit{newer}, so this run was stopped."
    head = [what, _again(marker, when="If the newer commit gets no run by itself")]
    return _ended(head, partial, footer, transcript, secrets, marker)


def too_long(*, marker: Marker, partial: str = "", footer: Footer | None = None, secrets: Sequence[str] = ()) -> str:
    """GitLab refused the whole text for its length: the beginning of what was found, without the transcript."""
    what = "GitLab refused the full text of this note because of its length, so it is shortened here."
    where = "All of it is in the session store: ask who runs Hummingbird here for it."
    beginning = inert(partial, secrets, _SHORT_CHARACTERS)
    return _note([what, where, beginning, *(below(footer, "", "", secrets) if footer else [])], marker)


def session_expired(*, marker: Marker) -> str:
    """A reply to a session that is not kept any more: never a silent cold start (seed 000 §10.5)."""
    return _note(["This conversation is not kept any more, so the agent cannot go on with it.", _again(marker)], marker)


def session_internal(*, marker: Marker) -> str:
    """A reply in public to a session that has an internal part; nothing of that part stands in it."""
    text = "This conversation is internal, so the agent does not go on with it here: reply in its internal thread."
    return _note([text, _again(marker)], marker)


def session_never_saved(*, marker: Marker, why: str = "", secrets: Sequence[str] = ()) -> str:
    """A reply to a session that was never saved; `why` says what the earlier run knew of it."""
    head = "This conversation was never saved, so the agent cannot go on with it."
    return _note([head, _reason(why, secrets), _again(marker)], marker)


def session_unreadable(*, marker: Marker, why: str = "", secrets: Sequence[str] = ()) -> str:
    """A reply to a session whose saved files are damaged, or are another workflow's; `why` says which."""
    head = "This conversation is kept, but it cannot be read back, so the agent cannot go on with it."
    return _note([head, _reason(why, secrets), _again(marker)], marker)


def help_text(workflows: Mapping[str, str], *, marker: Marker, command: str = COMMAND) -> str:
    """The workflows of a project with their descriptions, and how to start one."""
    return _notice(Notice.HELP, [*_workflow_list(workflows, command)], marker)


def unknown_command(name: str, workflows: Mapping[str, str], *, marker: Marker, command: str = COMMAND) -> str:
    """A command that names no workflow, or more than one by its beginning."""
    fitting = [workflow for workflow in workflows if name and workflow.startswith(name)]
    said = f"“{one_line(name, limit=60)}”"
    shown = [one_line(workflow, limit=60) for workflow in fitting[:_SHOWN_WORKFLOWS]]
    several = f"{said} could be any of: {', '.join(shown)}."
    head = several if len(fitting) > 1 else f"No workflow {said}."
    return _notice(Notice.UNKNOWN_COMMAND, [head, *_workflow_list(workflows, command)], marker)


def denied(*, marker: Marker) -> str:
    """Somebody below Developer asked."""
    text = (
        "Access denied: only members of this project with the Developer role or above can do this. "
        "Ask one of them to write the comment, or a Maintainer for the role."
    )
    return _notice(Notice.DENIED, [text], marker)


def queue_full(*, marker: Marker) -> str:
    """Too many replies wait for one conversation."""
    text = "Too many replies wait for this conversation: the oldest was dropped. Please ask again later."
    return _notice(Notice.QUEUE_FULL, [text], marker)


def _notice(kind: Notice, parts: Sequence[str], marker: Marker) -> str:
    """A fixed answer: its marker names no session and no commit, so that it counts for no limit."""
    return _note(parts, dataclasses.replace(marker, id=None, sha=None, notice=kind.value))


def _again(marker: Marker, *, when: str = "To start a new run") -> str:
    """What a person can do next; the run's marker knows the workflow."""
    start = f"`{COMMAND} {one_line(marker.wf, limit=60)}`" if marker.wf else f"`{COMMAND}` and a workflow's name"
    return f"{when}, write {start} as the first line of a new comment."


def _reason(why: str, secrets: Sequence[str]) -> str:
    said = one_line(without_secrets(why, secrets), limit=500)
    return f"What is known of it: {said}" if said else ""


def _ended(
    head: Sequence[str],
    partial: str,
    footer: Footer | None,
    transcript: str,
    secrets: Sequence[str],
    marker: Marker,
) -> str:
    found = inert(partial, secrets)
    so_far = ["What the agent had found until then:", found] if found else []
    under = below(footer, transcript, "", secrets) if footer else transcript_block(transcript, secrets)
    return _note([*head, *so_far, *under], marker)


def _note(parts: Sequence[str], marker: Marker) -> str:
    """Paragraphs with blank lines between them, the marker last."""
    return "\n\n".join([*(part for part in parts if part), marker.render()])


def _workflow_list(workflows: Mapping[str, str], command: str) -> list[str]:
    if not workflows:
        return ["No workflow is set up for this project: ask who runs Hummingbird here for one."]
    start = one_line(command, limit=60)
    shown = list(workflows.items())[:_SHOWN_WORKFLOWS]
    rows = [f"- `{start} {one_line(name, limit=60)}` {one_line(text, limit=300)}" for name, text in shown]
    more = [f"- and {len(workflows) - len(shown)} more"] if len(workflows) > len(shown) else []
    head = "Write one of these as the first line of a comment; words after it go to the agent:"
    return [head, "\n".join([*rows, *more])]
