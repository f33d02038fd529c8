"""Whose words may reach the model: people with the Developer role, and a few sentences that GitLab itself writes.

Seed 000 §9.1: comments are free text of anybody who can reach the merge request, and no escaping makes such text
harmless to a model, so what is not trusted is withheld. Doubt counts as no trust.
"""

from __future__ import annotations

import logging
import re
from datetime import date

from pydantic import ValidationError

from hummingbird_operator.errors import Invalid, NotFound, Unavailable
from hummingbird_operator.forges.members import DEVELOPER, Membership
from hummingbird_operator.sources.connection import Reader
from hummingbird_operator.sources.gitlab_scope import at

logger = logging.getLogger(__name__)

_LONGEST_ASKING = 3
"""After so many failures in a row GitLab is not asked for more authors: each would wait out all its attempts."""


class Authors:
    """The trust of one tool call: each author is asked for once. `today` is the day in UTC."""

    def __init__(self, reader: Reader, project: str, today: date) -> None:
        self._reader = reader
        self._project = project
        self._today = today
        self._trusted: dict[int, bool] = {}
        self._found = self._absent = self._failures = 0
        self._unknown: set[int] = set()
        self._reason = ""

    def trusted(self, user_id: int) -> bool:
        """Whether this author's words may be shown. A level that cannot be read is none."""
        if user_id not in self._trusted:
            self._trusted[user_id] = self._ask(user_id)
        return self._trusted[user_id]

    def doubts(self) -> list[str]:
        """Sentences for `incomplete`: levels that could not be read, or a token that may not see any."""
        doubts = []
        if self._unknown:
            who = "one author" if len(self._unknown) == 1 else f"{len(self._unknown)} authors"
            taken = "so their comments count as a non-member's"
            doubts.append(f"the role of {who} could not be read, {taken}: {self._reason}")
        elif self._absent and not self._found and not self._is_reader_a_member():
            doubts.append(
                f"no author is seen as a member of {self._project}; the reading token's account is none either, so "
                "roles may be hidden from it: a person must give it the Reporter role"
            )
        return doubts

    def _is_reader_a_member(self) -> bool:
        """To an account outside GitLab may answer 404 for every member; only then all comments being strange is odd."""
        try:
            account = self._reader.get("/user", "the reading token's account").get("id")
            self._reader.get(f"{at(self._project)}/members/all/{account}", "the reading token's role")
        except (Invalid, NotFound, Unavailable):
            return False
        return True

    def _ask(self, user_id: int) -> bool:
        if self._failures >= _LONGEST_ASKING:
            self._unknown.add(user_id)
            return False
        path = f"{at(self._project)}/members/all/{user_id}"
        try:
            raw = self._reader.get(path, f"a member's role in {self._project}")
            level = Membership.model_validate(raw).level(self._today)
        except NotFound:
            self._absent, self._failures = self._absent + 1, 0
            return False
        except (Invalid, Unavailable) as error:
            return self._failed(user_id, str(error))
        except ValidationError:
            return self._failed(user_id, "GitLab's answer is not understood")
        self._found, self._failures = self._found + 1, 0
        return level >= DEVELOPER

    def _failed(self, user_id: int, reason: str) -> bool:
        logger.warning("mr_discussions: user %d counts as no member of %s: %s", user_id, self._project, reason)
        self._failures += 1
        self._unknown.add(user_id)
        self._reason = reason
        return False


_HARMLESS = re.compile(
    r"""
    (?:un)?approved[ ]this[ ]merge[ ]request
    | marked[ ]this[ ]merge[ ]request[ ]as[ ]\*\*(?:draft|ready)\*\*
    | resolved[ ]all[ ]threads
    | changed[ ]the[ ]description
    | merged | closed | reopened
    | (?:un)?locked[ ](?:this|the[ ]discussion[ ]in[ ]this)[ ]merge[ ]request
    | requested[ ]changes
    | canceled[ ]the[ ]automatic[ ]merge
    | enabled[ ]an[ ]automatic[ ]merge[ ]when[ ]
      (?:the[ ]pipeline[ ]for[ ][0-9a-f]{8,64}[ ]succeeds|all[ ]merge[ ]checks[ ]for[ ][0-9a-f]{8,64}[ ]pass)
    | mentioned[ ]in[ ](?:merge[ ]request[ ]!|issue[ ]\#)\d{1,10}
    | mentioned[ ]in[ ]commit[ ][0-9a-f]{8,64}
    """,
    re.VERBOSE | re.ASCII,
)
_PUSHED = re.compile(r"added (?P<count>\d{1,9}) commits?\n", re.ASCII)
_OUTDATED = re.compile(r"changed this (?P<what>line|file) in \[?version (?P<number>\d{1,9}) of the diff", re.ASCII)


def harmless_system_note(body: str) -> str | None:
    """A system note in words that hold nothing of a person's, or None where it must be withheld.

    GitLab writes these notes, but most embed text that anybody chooses: titles, branch and label names, commit
    messages, user names. So only whole sentences of GitLab's own pass (`app/services/system_notes/`), and of two
    useful ones the part before such text, written anew.
    """
    if _HARMLESS.fullmatch(body.strip()):
        return body.strip()
    if pushed := _PUSHED.match(body):
        return f"added {pushed['count']} commit{'' if pushed['count'] == '1' else 's'}"
    if outdated := _OUTDATED.match(body):
        return f"changed this {outdated['what']} in version {outdated['number']} of the diff"
    return None
