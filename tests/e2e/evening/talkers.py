"""What people write: commands, replies, and all that only looks like them."""

from __future__ import annotations

from collections import Counter

from tests.e2e.evening.acts import Act, Mr, Said
from tests.e2e.evening.cast import (
    ALLOWED_BOT,
    APP,
    BOT,
    BYSTANDERS,
    COMMANDS,
    DEVELOPER,
    GUEST,
    IGNORED_BOT,
    LEVELS,
    MEMBERS,
    NOTHING,
    SITE,
    STRANGER,
    Means,
    meaning,
)
from tests.e2e.evening.crowd import Crowd, Verb

LONGEST_THREAD = 14
"""Notes: so that never more than twenty replies wait for one session, and none is dropped."""


class Talkers(Crowd):
    """The verbs about notes."""

    @property
    def talk(self) -> dict[Verb, int]:
        """How often which."""
        return {
            self._commands: 14,
            self._talks: 5,
            self._replies: 18,
            self._replies_elsewhere: 3,
            self._edits: 4,
            self._remarks: 2,
            self._deletes: 1,
        }

    def _commands(self) -> Act | None:
        """A command, in a comment or in somebody's thread, by whoever."""
        mr = self._any()
        user = self._draw.choices([*MEMBERS, ALLOWED_BOT, IGNORED_BOT, STRANGER, GUEST], [6, 6, 4, 1, 1, 1, 1])[0]
        number = self._draw.randrange(len(COMMANDS))
        return self._writes("commands", mr, user, COMMANDS[number][0], meaning(mr.project, number))

    def _talks(self) -> Act | None:
        """Something that asks the bot for nothing."""
        text = self._draw.choice(BYSTANDERS)
        return self._writes("talks", self._any(), self._draw.choice([*MEMBERS, STRANGER]), text, NOTHING)

    def _writes(self, verb: str, mr: Mr, user: str, text: str, means: Means) -> Act:
        token = self._token()
        body = text.replace("{q}", token)
        threads = [note for note in self._standing(mr.place) if note.author.username != BOT and not note.internal]
        if threads and self._draw.random() < 0.2:
            discussion = self._draw.choice(threads).discussion_id
            note = self._people.replies(mr.project, mr.iid, user, discussion, body)
            session, workflow = self._session(mr.place, note) if means is NOTHING else ("", "")
        else:
            inside = self._draw.random() < 0.15 and LEVELS.get(user, 0) >= DEVELOPER
            note = self._people.comments(mr.project, mr.iid, user, body, internal=inside)
            session, workflow = "", ""
        self._notes.append((mr.place, user, note.id))
        asked = token if "{q}" in text else ""
        return Act(verb, user, mr, Said(note.id, means, note.internal, session, workflow, asked))

    def _replies(self) -> Act | None:
        """A reply to a note of the bot; often several follow in the same thread, so that its session is busy."""
        mr = self._any()
        notes = self._standing(mr.place)
        lengths = Counter(note.discussion_id for note in notes)
        begun = dict.fromkeys(note.discussion_id for note in notes if note.author.username == BOT)
        short = [discussion for discussion in begun if lengths[discussion] < LONGEST_THREAD]
        if not short:
            return None
        discussion = self._draw.choice(short[-4:])
        self._burst = [(mr.place, discussion)] * self._draw.choices([0, 1, 2, 4], [6, 2, 2, 1])[0]
        return self._replies_in(mr, discussion)

    def _replies_again(self) -> Act | None:
        place, discussion = self._burst.pop()
        return self._replies_in(self._mrs[place], discussion)

    def _replies_in(self, mr: Mr, discussion: str) -> Act:
        user = self._draw.choices([*MEMBERS, IGNORED_BOT, STRANGER, GUEST], [12, 12, 8, 1, 2, 2])[0]
        token = self._token()
        return self._answers("replies", mr, user, discussion, f"And {token}?\n\nI do not see it.", token)

    def _replies_elsewhere(self) -> Act | None:
        """A reply in a thread of people, in which the bot may have spoken or not."""
        mr = self._any()
        notes = [note for note in self._standing(mr.place) if note.author.username != BOT]
        if not notes:
            return None
        token = self._token()
        discussion = self._draw.choice(notes).discussion_id
        return self._answers("replies", mr, self._draw.choice(MEMBERS), discussion, f"True, {token}", token)

    def _answers(self, verb: str, mr: Mr, user: str, discussion: str, body: str, token: str) -> Act:
        note = self._people.replies(mr.project, mr.iid, user, discussion, body)
        session, workflow = self._session(mr.place, note)
        self._notes.append((mr.place, user, note.id))
        return Act(verb, user, mr, Said(note.id, NOTHING, note.internal, session, workflow, token))

    def _edits(self) -> Act | None:
        """A note is changed, also into a command: nothing comes of it."""
        if not self._notes:
            return None
        (project, iid), user, note = self._draw.choice(self._notes)
        text = self._draw.choice(["/hummingbird review {q}", "never mind {q}"]).format(q=self._token())
        self._people.edits(project, iid, user, note, text)
        return Act("edits", user, self._mrs[project, iid])

    def _remarks(self) -> Act | None:
        """A command where no merge request is."""
        on, user = self._draw.choice(["Issue", "Commit", "Snippet"]), self._draw.choice(MEMBERS)
        self._people.remarks(self._draw.choice([APP, SITE]), user, f"/hummingbird help {self._token()}", on=on)
        return Act("remarks", user)

    def _deletes(self) -> Act | None:
        """A person's own note goes, with whatever it asked for."""
        plain = [each for each in self._notes if each[2] not in self._asking()]
        if not plain:
            return None
        chosen = self._draw.choice(plain)
        (project, iid), user, note = chosen
        self._notes.remove(chosen)
        self._people.deletes(project, iid, user, note)
        return Act("deletes", user, self._mrs[project, iid])

    def _asking(self) -> set[int]:
        """Notes that ask for something: they stay, so that each reaction can be looked for at the end."""
        said = [act.said for act in self._acts.values() if act.said is not None]
        return {each.id for each in said if each.means is not NOTHING or each.session}
