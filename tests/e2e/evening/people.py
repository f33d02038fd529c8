"""People who spend the evening on merge requests. What they do is drawn from a seed; each act is recorded.

Only what stands there already (notes of the bot) depends on time: the record has it, so that the oracle need not guess.
"""

from __future__ import annotations

import contextlib

from tests.e2e.evening.acts import Act, Pipe, Said
from tests.e2e.evening.cast import APP, DEVELOPER, FORKER, IDS, LEVELS, MEMBERS, SECRET, SITE, VAULT
from tests.e2e.evening.crowd import Verb
from tests.e2e.evening.talkers import Talkers
from tests.standins.gitlab import ApiError

FORK_IDS = 700
TITLES = ("Fix the parser", "Add a test", "chore: bump versions", "Round later")
MOST_OPEN = 14
"""Merge requests."""
RUNS_AGAIN = ("running", "failed", "canceled", "success")


class Evening(Talkers):
    """All of its acts."""

    def prepare(self) -> None:
        """One merge request in each project, two in the first."""
        for project in (APP, APP, VAULT, SITE, SECRET):
            self._record(lambda project=project: self._open(project, "alice"))  # type: ignore[misc]

    def act(self) -> None:
        """The next act; one that GitLab refuses, or for which there is no occasion, did not happen."""
        self._next()
        weights = self.talk | self.change
        (verb,) = self._draw.choices(list(weights), list(weights.values()))
        if self._burst:
            verb = self._replies_again
        with contextlib.suppress(ApiError):
            self._record(verb)

    @property
    def change(self) -> dict[Verb, int]:
        """The verbs about merge requests and pipelines, and how often which."""
        return {
            self._pushes: 5,
            self._starts_pipeline: 20,
            self._moves_pipeline: 10,
            self._opens: 5,
            self._drafts: 4,
            self._renames: 2,
            self._labels: 4,
            self._closes: 4,
            self._approves: 2,
            self._merges: 1,
        }

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
