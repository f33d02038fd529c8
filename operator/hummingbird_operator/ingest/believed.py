"""What of a comment's event is believed: GitLab itself is asked for the note before anything is made of it.

A payload comes over a queue or with a secret that a whole project shares, and it names its author itself. GitLab's
answer decides who wrote the note, where, and whether it may be seen by all. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hummingbird_operator.ingest import runs
from hummingbird_operator.ingest.reasons import Outcome, Reason

if TYPE_CHECKING:
    from hummingbird_operator.delivery.lookups import Said

EDITED = "edited since"
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True)
class Believed:
    """A comment that GitLab confirms; `words` are what it says, `remark` is for the outcome's detail."""

    comment: runs.Comment
    words: str
    remark: str = ""


def believed(comment: runs.Comment, words: str, said: Said) -> Believed | Outcome:
    """What the event says, as far as GitLab says the same.

    An edit starts nothing, and takes nothing back either: where the note was edited since, the event's words stand, for
    GitLab keeps no older ones. Where it never was, GitLab's words stand, whatever the event says.
    """
    if said.system:
        return Outcome(Reason.SYSTEM_NOTE)
    if said.author_id is None or said.author_id != comment.origin.author_id:
        return Outcome(Reason.BAD_PAYLOAD, f"object_attributes.author_id: somebody else wrote note {comment.id}")
    if said.project_id not in (None, comment.origin.project_id):
        return Outcome(Reason.BAD_PAYLOAD, f"project.id: {comment.origin.project} has the number {said.project_id}")
    day = _DAY.match(said.created_at)
    comment = replace(comment.within(internal=said.internal), day=day[0] if day else "")
    if runs.text(words) == runs.text(said.body):
        return Believed(comment, words)
    return Believed(comment, words, EDITED) if said.edited else Believed(comment, said.body)
