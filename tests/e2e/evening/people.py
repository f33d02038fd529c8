"""People who spend the evening on merge requests. What they do is drawn from a seed; each act is recorded.

Only what stands there already (notes of the bot) depends on time: the record has it, so that the oracle need not guess.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.e2e.evening.acts import Act, Happening, Mr, Pipe, Place, Said, actor, marker
from tests.e2e.evening.cast import (
    APP,
    BOT,
    BYSTANDERS,
    COMMANDS,
    DEVELOPER,
    FORKER,
    GUEST,
    IDS,
    LEVELS,
    MEMBERS,
    NOTHING,
    SECRET,
    SITE,
    STRANGER,
    VAULT,
    Means,
    meaning,
)
from tests.standins.gitlab import ApiError, GitLabStandIn
from tests.standins.gitlab.records import MergeRequest, Note

FORK_IDS = 700
TITLES = ("Fix the parser", "Add a test", "chore: bump versions", "Round later")
MOST_OPEN = 14
"""Merge requests."""
RUNS_AGAIN = ("running", "failed", "canceled", "success")


class Evening:
    """All of its acts. One thread calls `act`; the bot acts meanwhile through GitLab's API."""

    def __init__(self, gitlab: GitLabStandIn, seed: int) -> None:
        self._gitlab = gitlab
        self._people = gitlab.people
        self._draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self._seed = seed
        self._mrs: dict[Place, Mr] = {}
        self._notes: list[tuple[Place, str, int]] = []
        """People's own: where, by whom, which."""
        self._pipes: list[tuple[Place, Pipe]] = []
        self._shas = 0
        self._tokens = 0
        self._acts: dict[int, Act] = {}
        """By position in GitLab's log of events."""
        self._burst: list[tuple[Place, str]] = []
        """Replies that follow at once: where, in which thread."""
        self.done: Counter[str] = Counter()
        self.events = 0
        """Events that people caused."""
        self._verbs: dict[Callable[[], Act | None], int] = {
            self._commands: 14,
            self._talks: 5,
            self._replies: 18,
            self._replies_elsewhere: 3,
            self._edits: 4,
            self._remarks: 2,
            self._deletes: 1,
            self._pushes: 9,
            self._starts_pipeline: 20,
            self._moves_pipeline: 10,
            self._opens: 5,
            self._drafts: 4,
            self._renames: 3,
            self._labels: 3,
            self._closes: 4,
            self._approves: 2,
            self._merges: 1,
        }

    def prepare(self) -> None:
        """One merge request in each project, two in the first."""
        for project in (APP, APP, VAULT, SITE, SECRET):
            self._record(lambda project=project: self._open(project, "alice"))  # type: ignore[misc]

    def act(self) -> None:
        """The next act; one that GitLab refuses, or for which there is no occasion, did not happen."""
        (verb,) = self._draw.choices(list(self._verbs), list(self._verbs.values()))
        if self._burst:
            verb = self._replies_again
        with contextlib.suppress(ApiError):
            self._record(verb)

    def story(self) -> list[Happening]:
        """GitLab's events so far, with the acts that caused them."""
        log = self._gitlab.events
        return [Happening(event.kind, event.payload, self._acts.get(number)) for number, event in enumerate(log)]

    def _record(self, verb: Callable[[], Act | None]) -> None:
        before = len(self._gitlab.state.events.log)
        act = verb()
        if act is None:
            return
        if act.mr is not None:
            self._mrs[act.mr.place] = act.mr
        self.done[act.verb] += 1
        log = self._gitlab.events
        mine = [number for number in range(before, len(log)) if actor(log[number].payload) != BOT]
        self._acts |= dict.fromkeys(mine, act)
        self.events += len(mine)

    # --- notes ---

    def _commands(self) -> Act | None:
        """A command, in a comment or in somebody's thread, by whoever."""
        mr = self._any()
        user = self._draw.choices([*MEMBERS, "renovate-bot", STRANGER, GUEST], [6, 6, 4, 2, 1, 1])[0]
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
        notes = [note for note in self._standing(mr.place) if note.author.username == BOT]
        if not notes:
            return None
        discussion = self._draw.choice(notes[-3:]).discussion_id
        self._burst = [(mr.place, discussion)] * self._draw.choices([0, 1, 2, 4], [6, 2, 2, 1])[0]
        return self._replies_in(mr, discussion)

    def _replies_again(self) -> Act | None:
        place, discussion = self._burst.pop()
        return self._replies_in(self._mrs[place], discussion)

    def _replies_in(self, mr: Mr, discussion: str) -> Act:
        user = self._draw.choices([*MEMBERS, STRANGER, GUEST], [6, 6, 4, 1, 1])[0]
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

    # --- pipelines ---

    def _starts_pipeline(self) -> Act | None:
        """A new one, of any kind and end."""
        mr = self._any()
        user = self._draw.choice([*MEMBERS, "ci-runner", mr.author])
        status = self._draw.choices(["failed", "success", "canceled", "skipped", "running"], [10, 3, 3, 1, 2])[0]
        ref = self._draw.choices(["head", "merge", "train"], [18, 2, 1])[0]
        source = self._draw.choices(["merge_request_event", "push"], [6, 1])[0]
        number = self._people.pipeline(mr.project, mr.iid, user, status, ref=ref, source=source)
        ours = not mr.fork or LEVELS.get(user, 0) >= DEVELOPER
        pipe = Pipe(number, status, ref, source, ours)
        self._pipes.append((mr.place, pipe))
        return Act("pipelines", user, mr, pipe=pipe)

    def _moves_pipeline(self) -> Act | None:
        """One that was there runs again, to another end or to the same a second time."""
        if not self._pipes:
            return None
        place, old = self._draw.choice(self._pipes[-8:])
        mr, user, status = self._mrs[place], self._draw.choice(MEMBERS), self._draw.choice(RUNS_AGAIN)
        self._people.pipeline(mr.project, mr.iid, user, status, pipeline_id=old.id)
        pipe = Pipe(old.id, status, old.ref, old.source, old.ours)
        return Act("pipelines again", user, mr, pipe=pipe)

    # --- merge requests ---

    def _opens(self) -> Act | None:
        if len(self._mrs) >= MOST_OPEN:
            return None
        project = self._draw.choices([APP, VAULT, SITE, SECRET], [5, 2, 2, 1])[0]
        return self._open(project, self._draw.choice([*MEMBERS, FORKER, "renovate-bot"]))

    def _open(self, project: str, user: str) -> Act:
        iid = 1 + sum(place[0] == project for place in self._mrs)
        branch = f"{'renovate' if user == 'renovate-bot' else 'topic'}/{iid}"
        made = self._people.opens(
            project,
            iid,
            user,
            self._sha(),
            title=self._draw.choice(TITLES),
            draft=self._draw.random() < 0.15,
            fork_of=FORK_IDS + IDS[project] if user == FORKER else None,
            source_branch=branch,
        )
        return Act("opens from a fork" if user == FORKER else "opens", user, self._seen(project, made))

    def _pushes(self) -> Act | None:
        mr = self._any()
        user = self._draw.choice([*MEMBERS, mr.author])
        made = self._people.pushes(mr.project, mr.iid, user, self._sha())
        return Act("pushes", user, self._seen(mr.project, made))

    def _drafts(self) -> Act | None:
        drafts = [mr for mr in self._mrs.values() if mr.draft]
        mr = self._draw.choice(drafts) if drafts and self._draw.random() < 0.6 else self._any()
        user = self._draw.choice(MEMBERS)
        change = self._people.marks_ready if mr.draft else self._people.marks_draft
        return Act("drafts, ready", user, self._seen(mr.project, change(mr.project, mr.iid, user)))

    def _renames(self) -> Act | None:
        mr, user = self._any(), self._draw.choice(MEMBERS)
        made = self._people.renames(mr.project, mr.iid, user, self._draw.choice(TITLES))
        return Act("renames", user, self._seen(mr.project, made))

    def _labels(self) -> Act | None:
        """By a quick action in a comment, which is a person's own right."""
        mr, user = self._any(), self._draw.choice(MEMBERS)
        body = f"So be it, {self._token()}\n/label ~label-{self._draw.randrange(5)}"
        note = self._people.comments(mr.project, mr.iid, user, body)
        return Act("labels", user, mr, Said(note.id))

    def _closes(self) -> Act | None:
        mr, user = self._any(), self._draw.choice(MEMBERS)
        if mr.state == "merged":
            return None
        change = self._people.closes if mr.open else self._people.reopens
        return Act("closes, reopens", user, self._seen(mr.project, change(mr.project, mr.iid, user)))

    def _approves(self) -> Act | None:
        mr, user = self._any(), self._draw.choice(MEMBERS)
        self._people.approves(mr.project, mr.iid, user)
        return Act("approves", user, mr)

    def _merges(self) -> Act | None:
        mr, user = self._any(), "maya"
        return Act("merges", user, self._seen(mr.project, self._people.merges(mr.project, mr.iid, user)))

    # --- how ---

    def _any(self) -> Mr:
        """Any, the first ones more often: on them runs wait for each other."""
        mrs = list(self._mrs.values())
        weights = [
            (3 if number < 3 else 1) * (3 if mr.open else 1) * (1 if mr.draft else 2) for number, mr in enumerate(mrs)
        ]
        return self._draw.choices(mrs, weights)[0]

    def _sha(self) -> str:
        self._shas += 1
        return hashlib.sha1(f"{self._seed} {self._shas}".encode(), usedforsecurity=False).hexdigest()

    def _token(self) -> str:
        self._tokens += 1
        return f"q-{self._tokens}"

    def _standing(self, place: Place) -> list[Note]:
        with self._gitlab.state.lock:
            return [note for note in self._record_of(place).notes.values() if not note.system]

    def _session(self, place: Place, reply: Note) -> tuple[str, str]:
        """Session and workflow of the bot's nearest note before the reply, in its thread."""
        thread = [note for note in self._standing(place) if note.discussion_id == reply.discussion_id]
        for note in sorted(thread, key=lambda each: each.id, reverse=True):
            said = marker(note.body) if note.author.username == BOT and note.id < reply.id else {}
            if "id" in said:
                return said["id"], said["wf"]
        return "", ""

    def _record_of(self, place: Place) -> MergeRequest:
        project = self._gitlab.state.project(place[0])
        assert project is not None
        return project.merge_requests[place[1]]

    def _seen(self, project: str, made: MergeRequest) -> Mr:
        fields: dict[str, Any] = made.fields
        return Mr(
            project,
            made.iid,
            fields["author"]["username"],
            fields["sha"],
            fields["title"],
            fields["source_branch"],
            fields["state"],
            fields["draft"],
            made.is_fork,
        )
