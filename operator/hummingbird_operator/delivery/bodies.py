"""The texts of a note, from placeholder to answer. Pure: values in, markdown out.

Every body ends with the marker, alone on its last line; everything that a model, a person or an error message said goes
through `redact` and `make_inert` on its way. The marker's `state` tells how far the run got.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from hummingbird_operator.api.agentrun import Notice
from hummingbird_operator.delivery.cleaning import clean
from hummingbird_operator.delivery.inert import MAXIMUM, inert_block, make_inert, one_line
from hummingbird_operator.delivery.markers import Marker
from hummingbird_operator.delivery.redact import redact

TRANSCRIPT_SUMMARY = "Agent transcript"
TRANSCRIPT_CHARACTERS = 90_000
"""At most so much of the transcript stands in a note (seed 000 §9.1); the session store has all of it."""

EMPTY_ANSWER = "The agent ended without a text to show."
REPLY_PROMPT = (
    "Reply to this note to go on with the agent: the conversation and its files are kept (`session: {session}`)."
)
RUN_PROMPT = "The conversation and its files are kept: an AgentRun with `session: {session}` and a `message` goes on."
START_ANEW = "To start a new one, write `/hummingbird` and the workflow's name as the first line of a new comment."
SUPERSEDED_NEXT = "Nothing has to be done where the newer commit is looked at by itself; else start a new run."
TOO_LONG_NEXT = "All of it is in the session store: who runs Hummingbird here can read it there."
GREEN_SINCE = "The pipeline has turned green since."
_TEXT_CHARACTERS = MAXIMUM - TRANSCRIPT_CHARACTERS - 20_000
_MESSAGE_CHARACTERS = 4_000
_SHORT_CHARACTERS = 10_000
_SHOWN_INCOMPLETE = 10
_SHOWN_WORKFLOWS = 100


@dataclass(frozen=True)
class Footer:
    """What stands under an answer. Tokens are totals of the run; `sha` is the head it looked at.

    `cost_usd` None: not known. `cost_is_ceiling`: the model has no price, so the highest rate was charged.
    `incomplete` names what could not be read, in words for people.
    """

    model: str
    turns: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None
    sha: str | None = None
    cost_is_ceiling: bool = False
    incomplete: Sequence[str] = ()
    pipeline_green: bool = False

    def lines(self, secrets: Sequence[str] = ()) -> list[str]:
        """The footer as paragraphs of markdown."""
        facts = [
            f"Model {one_line(self.model, limit=100)}",
            _count(self.turns, "turn"),
            f"{self.input_tokens:,} tokens in, {self.output_tokens:,} out",
            _cost(self.cost_usd, self.cost_is_ceiling),
            f"commit {one_line(self.sha, limit=64)[:12]}" if self.sha else "",
        ]
        paragraphs = [GREEN_SINCE] if self.pipeline_green else []
        paragraphs += (
            [_not_read([_without_secrets(entry, secrets) for entry in self.incomplete])] if self.incomplete else []
        )
        return [*paragraphs, " · ".join(fact for fact in facts if fact)]


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
    parts = [*_sentences(notices, secrets), _inert(text, secrets) or EMPTY_ANSWER]
    prompt = (REPLY_PROMPT if by_comment else RUN_PROMPT).format(session=marker.id) if reply_prompt else ""
    return _note([*parts, *_below(footer, transcript, prompt, secrets)], marker)


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
    """The run failed: `message` is a sentence for people, `partial` what the agent had found until then."""
    what = f" Workflow: {one_line(workflow)}." if workflow else ""
    head = [f"Hummingbird analysis failed.{what}", _inert(message, secrets, _MESSAGE_CHARACTERS)]
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
    return _ended([f"Hummingbird analysis cancelled{who}."], partial, footer, transcript, secrets, marker)


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
    head = [f"Hummingbird analysis stopped: it had {_count(seconds, 'second')} and used them up."]
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
    head = [f"Superseded: the merge request has a newer commit{newer}, so this run was stopped. {SUPERSEDED_NEXT}"]
    return _ended(head, partial, footer, transcript, secrets, marker)


def too_long(*, marker: Marker, partial: str = "", footer: Footer | None = None, secrets: Sequence[str] = ()) -> str:
    """GitLab refused the whole text for its length: the beginning of what was found, without the transcript."""
    head = ["GitLab refused the full text of this note because of its length, so it is shortened here.", TOO_LONG_NEXT]
    beginning = _inert(partial, secrets, _SHORT_CHARACTERS)
    below = _below(footer, "", "", secrets) if footer else []
    return _note([*head, beginning, *below], marker)


def session_expired(*, marker: Marker) -> str:
    """A reply to a session that is not kept any more: never a silent cold start (seed 000 §10.5)."""
    return _note([f"This conversation is not kept any more, so the agent cannot go on with it. {START_ANEW}"], marker)


def session_never_saved(*, marker: Marker, why: str = "", secrets: Sequence[str] = ()) -> str:
    """A reply to a session that was never saved; `why` says what the earlier run knew of it."""
    head = f"This conversation was never saved, so the agent cannot go on with it. {START_ANEW}"
    return _note([head, _reason(why, secrets)], marker)


def session_unreadable(*, marker: Marker, why: str = "", secrets: Sequence[str] = ()) -> str:
    """A reply to a session whose saved files are damaged, or are another workflow's; `why` says which."""
    head = f"This conversation is kept, but it cannot be read back, so the agent cannot go on with it. {START_ANEW}"
    return _note([head, _reason(why, secrets)], marker)


def help_text(workflows: Mapping[str, str], *, marker: Marker, command: str = "/hummingbird") -> str:
    """The workflows of a project with their descriptions, and how to start one."""
    return _notice(Notice.HELP, [*_workflow_list(workflows, command)], marker)


def unknown_command(name: str, workflows: Mapping[str, str], *, marker: Marker, command: str = "/hummingbird") -> str:
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


def _reason(why: str, secrets: Sequence[str]) -> str:
    said = one_line(_without_secrets(why, secrets), limit=500)
    return f"What is known of it: {said}" if said else ""


def _ended(
    head: Sequence[str],
    partial: str,
    footer: Footer | None,
    transcript: str,
    secrets: Sequence[str],
    marker: Marker,
) -> str:
    found = _inert(partial, secrets)
    so_far = ["What the agent had found until then:", found] if found else []
    below = _below(footer, transcript, "", secrets) if footer else _transcript(transcript, secrets)
    return _note([*head, *so_far, *below], marker)


def _below(footer: Footer, transcript: str, prompt: str, secrets: Sequence[str]) -> list[str]:
    return ["---", *footer.lines(secrets), prompt, *_transcript(transcript, secrets)]


def _transcript(transcript: str, secrets: Sequence[str]) -> list[str]:
    if not transcript.strip():
        return []
    block = inert_block(_without_secrets(transcript, secrets), limit=TRANSCRIPT_CHARACTERS, language="markdown")
    return [f"<details><summary>{TRANSCRIPT_SUMMARY}</summary>", block, "</details>"]


def _note(parts: Sequence[str], marker: Marker) -> str:
    """Paragraphs with blank lines between them, the marker last."""
    return "\n\n".join([*(part for part in parts if part), marker.render()])


def _inert(text: str, secrets: Sequence[str], limit: int = _TEXT_CHARACTERS) -> str:
    """Inert, and empty where nothing would be seen. Never stripped: what stands before a slash keeps it harmless."""
    inert = make_inert(_without_secrets(text, secrets), limit=limit)
    return inert if inert.strip() else ""


def _without_secrets(text: str, secrets: Sequence[str]) -> str:
    """Cleaned first, so that a hidden character cannot split a secret; cut only afterwards, so that no half is left."""
    return redact(clean(text), secrets)


def _sentences(notices: Sequence[str], secrets: Sequence[str]) -> list[str]:
    return [f"*{one_line(_without_secrets(notice, secrets), limit=500)}*" for notice in notices if notice.strip()]


def _workflow_list(workflows: Mapping[str, str], command: str) -> list[str]:
    if not workflows:
        return ["No workflow is set up for this project."]
    start = one_line(command, limit=60)
    shown = list(workflows.items())[:_SHOWN_WORKFLOWS]
    rows = [f"- `{start} {one_line(name, limit=60)}` {one_line(text, limit=300)}" for name, text in shown]
    more = [f"- and {len(workflows) - len(shown)} more"] if len(workflows) > len(shown) else []
    head = "Write one of these as the first line of a comment; words after it go to the agent:"
    return [head, "\n".join([*rows, *more])]


def _not_read(incomplete: Sequence[str]) -> str:
    shown = [one_line(entry, limit=200) for entry in incomplete[:_SHOWN_INCOMPLETE]]
    more = len(incomplete) - len(shown)
    return "Not read: " + "; ".join([*shown, f"and {more} more"] if more else shown) + "."


def _cost(cost: Decimal | None, is_ceiling: bool) -> str:
    if cost is None:
        return "cost unknown"
    amount = f"${cost:.4f}" if cost < 1 else f"${cost:.2f}"
    return f"at most {amount} (the model has no price here)" if is_ceiling else amount


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
