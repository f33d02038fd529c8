"""Replies that come while their session is busy: they wait as runs, and are answered together.

Pure. Up to ten waiting replies of one session, thread and workflow become one turn: the first of them, the carrier,
writes the names of the others into `status.merged` before its first call, and they end with it. Of more than twenty
that wait, the oldest are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hummingbird_operator.agentruns import objects
from hummingbird_operator.api import conditions as c
from hummingbird_operator.api.agentrun import MESSAGE_BYTES, cut_message
from hummingbird_operator.api.fields import utf8_prefix

if TYPE_CHECKING:
    from hummingbird_operator.agentruns.turns import RunView
    from hummingbird_operator.api.agentrun import AgentRun, AgentRunSpec

MOST_TOGETHER = 10
"""Replies that one turn answers, the carrier's included."""
MOST_WAITING = 20
"""Replies that may wait for one session."""

REPLY_CUT = "[This reply was longer; its end was cut off.]"


@dataclass(frozen=True)
class Question:
    """What the model is asked: a person's words, or those of several. `runs` are the names of the other runs."""

    text: str
    cut: bool
    runs: tuple[str, ...] = ()


def thread_of(spec: AgentRunSpec) -> str:
    """What replies must share to be answered together; empty where a run is answered by itself.

    A run that somebody made by hand, or that asks for a model, a sandbox or limits of its own, is.
    """
    own = (spec.model, spec.sandbox, spec.limits, spec.delivery)
    if spec.session is None or spec.trigger is None or not spec.trigger.discussion or not spec.message or any(own):
        return ""
    return f"{spec.session}/{spec.trigger.discussion}/{spec.workflow}"


def together(carrier: RunView, views: Iterable[RunView]) -> list[RunView]:
    """The waiting replies that this one may answer with its own, oldest first."""
    if not carrier.thread:
        return []
    fitting = [
        view
        for view in views
        if view.thread == carrier.thread and view.waits and view.uid != carrier.uid and view.order > carrier.order
    ]
    return sorted(fitting, key=lambda view: view.order)[: MOST_TOGETHER - 1]


def too_many(views: Iterable[RunView]) -> set[str]:
    """The uids of waiting replies that are one too many for their session: the oldest go."""
    by_session: dict[str, list[RunView]] = {}
    busy: set[str] = set()
    for view in views:
        if view.reply and view.waits and not view.carried:
            by_session.setdefault(view.session, []).append(view)
        elif view.started:
            busy.add(view.session)
    dropped: set[str] = set()
    for session, waiting in by_session.items():
        waiting.sort(key=lambda view: view.order)
        room = MOST_WAITING if session in busy else MOST_WAITING + 1  # one of them goes at once
        dropped |= {view.uid for view in waiting[: max(0, len(waiting) - room)]}
    return dropped


def _shares(words: Sequence[str]) -> list[int]:
    """Bytes for each of them: short ones are kept whole, and what they leave goes to the long ones."""
    sizes = [len(text.encode(errors="surrogatepass")) for text in words]
    shares, left = [0] * len(words), MESSAGE_BYTES
    for done, index in enumerate(sorted(range(len(words)), key=sizes.__getitem__)):
        shares[index] = min(sizes[index], left // (len(words) - done))
        left -= shares[index]
    return shares


def question_of(run: AgentRun, others: Sequence[AgentRun]) -> Question:
    """The words of a run and of those that it answers too, each with its author; 32 KiB of UTF-8 in all.

    Where that is not enough, the longest are cut, each where it stands.
    """
    if not others:
        text, cut = cut_message(run.spec.message or "")
        return Question(text, cut)
    asking = [run, *others]
    words = [asked.spec.message or "" for asked in asking]
    parts = ["Several replies came while you were busy. Answer them together."]
    cut = False
    for number, (asked, text, share) in enumerate(zip(asking, words, _shares(words), strict=True), 1):
        author = (asked.spec.trigger and asked.spec.trigger.author) or "somebody"
        kept = utf8_prefix(text, share)
        parts.append(f"Reply {number}, from {author}:\n{kept}" + ("" if kept == text else f"\n{REPLY_CUT}"))
        cut = cut or kept != text
    return Question("\n\n".join(parts), cut, tuple(other.metadata.name for other in others))


@dataclass(frozen=True)
class Carrier:
    """A run that answers the words of others, as far as those must know it."""

    uid: str
    name: str
    members: frozenset[str]
    """Names of the others, in its own namespace and session."""
    answered: str
    """When it had its answer, RFC 3339; empty while it works."""
    outcome: tuple[str, str] | None
    """How the others end: (reason, message); None while it is at it."""
    silent: bool
    """It is over, or going, and nobody was told anything: the others are answered by themselves."""


def carrier(run: AgentRun) -> Carrier | None:
    """What the run is to others; None where it answers itself only."""
    if not run.status.merged:
        return None
    conditions = run.status.conditions
    over = c.is_true(conditions, c.RunCondition.FINISHED)
    delivered = c.find(conditions, c.RunCondition.DELIVERED)
    told = delivered is not None and (delivered.status == "False" or delivered.reason == c.Checkpoint.NOTE_WRITTEN)
    answered = c.find(conditions, c.RunCondition.ANSWERED)
    return Carrier(
        uid=run.metadata.uid,
        name=run.metadata.name,
        members=frozenset(run.status.merged),
        answered=answered.last_transition_time if answered else "",
        outcome=_outcome_for_others(run) if told else None,
        silent=not told and (over or run.metadata.deleting),
    )


def _outcome_for_others(run: AgentRun) -> tuple[str, str]:
    reason, message = objects.outcome(run)
    name = run.metadata.name
    if reason == c.Success.COMPLETED:
        return c.Success.MERGED, f"answered together with run {name}"
    return reason, f"run {name}, which had these words too, ended so: {message}"
