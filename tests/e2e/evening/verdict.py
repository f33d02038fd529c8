"""Expected against found: every AgentRun and every note of the evening, and all that must not be."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.e2e.evening.acts import Mr, Place, marker
from tests.e2e.evening.cast import BOT, FAILURES, INTERNAL, LIMITS
from tests.e2e.evening.model import answered
from tests.e2e.evening.oracle import UNSAVED, Expected
from tests.standins.gitlab import GitLabStandIn
from tests.standins.gitlab.records import Note

SKIPPED_BEFORE_NOTE = frozenset({"AlreadyReviewed", "RunLimitReached", "Merged", "Dropped"})
STATES = {"Completed": "done", "Superseded": "superseded"}
DONE, WRONG = "white_check_mark", "x"


@dataclass(frozen=True)
class Found:
    """An AgentRun at the end."""

    raw: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.raw["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.raw["metadata"]["uid"])

    @property
    def spec(self) -> Mapping[str, Any]:
        spec: Mapping[str, Any] = self.raw["spec"]
        return spec

    @property
    def status(self) -> Mapping[str, Any]:
        status: Mapping[str, Any] = self.raw.get("status", {})
        return status

    @property
    def place(self) -> Place:
        target = self.spec["target"]["gitlab"]
        return target["project"], target["mergeRequest"]

    @property
    def sha(self) -> str:
        return str(self.spec["target"]["gitlab"].get("sha", ""))

    @property
    def automatic(self) -> bool:
        return bool(self.spec["trigger"].get("automatic"))

    @property
    def reason(self) -> str:
        """How it ended; empty while it has not."""
        conditions = {each["type"]: each for each in self.status.get("conditions", ())}
        over = conditions.get("Finished", {}).get("status") == "True"
        return str(conditions["Succeeded"]["reason"]) if over else ""

    @property
    def delivered(self) -> bool:
        conditions = {each["type"]: each["status"] for each in self.status.get("conditions", ())}
        return conditions.get("Delivered") == "True"


@dataclass
class Verdict:
    """`problems` in words; an evening without any is as it must be."""

    expected: Mapping[str, Expected]
    runs: Mapping[str, Found]
    notes: Mapping[Place, Sequence[Note]]
    heads: Mapping[Place, Mr]
    problems: list[str] = field(default_factory=list)

    def judge(self) -> list[str]:
        """Every law, one after the other."""
        self.expected = {name: self._chosen(one) for name, one in self.expected.items()}
        for law in (
            self._each_run_once,
            self._as_ordered,
            self._outcomes,
            self._replies,
            self._each_note_once,
            self._where_notes_stand,
            self._each_question_once,
            self._each_commit_once,
            self._skipped_for_a_reason,
            self._reactions,
            self._resolved,
        ):
            self.problems += [f"{law.__name__.strip('_')}: {problem}" for problem in law()]
        return self.problems

    def _chosen(self, one: Expected) -> Expected:
        """A denial with the comment that its run took: whichever of the day's came first by any way."""
        run = self.runs.get(one.name)
        number = run.spec["trigger"]["noteId"] if run and one.choices else one.note
        return replace(one, note=number, internal=one.choices[number]) if number in one.choices else one

    @property
    def bots(self) -> Iterator[tuple[Place, Note, dict[str, Any]]]:
        """The bot's notes with their markers."""
        for place, notes in self.notes.items():
            for note in notes:
                if note.author.username == BOT and not note.system:
                    yield place, note, marker(note.body)

    def _both(self) -> Iterator[tuple[Expected, Found]]:
        for name, one in self.expected.items():
            if name in self.runs:
                yield one, self.runs[name]

    def _each_run_once(self) -> Iterator[str]:
        for name, one in self.expected.items():
            if name not in self.runs and not one.optional:
                yield f"missing: {one}"
        for name in self.runs.keys() - self.expected.keys():
            yield f"unexpected: {name} {self.runs[name].spec}"

    def _as_ordered(self) -> Iterator[str]:
        for one, run in self._both():
            spec = run.spec
            want = (one.workflow, one.place, one.notice, one.session, one.kind == "automatic")
            got = (spec["workflow"], run.place, spec.get("notice", ""), spec.get("session", ""), run.automatic)
            if want != got or (one.sha and one.sha != run.sha):
                yield f"{one.name} ({one.why}): {want} {one.sha} wanted, {got} {run.sha} found"
            if one.token and one.token not in spec.get("message", ""):
                yield f"{one.name} ({one.why}): {one.token} is not in {spec.get('message')!r}"

    def _outcomes(self) -> Iterator[str]:
        for one, run in self._both():
            if run.reason not in one.outcomes:
                yield f"{one.name} ({one.why}) ended {run.reason or 'not at all'}: {run.status.get('message')}"

    def _replies(self) -> Iterator[str]:
        """Merged into exactly one that was delivered; refused only where its session was never saved."""
        carriers: defaultdict[str, list[Found]] = defaultdict(list)
        for run in self.runs.values():
            for name in run.status.get("merged", ()):
                carriers[name].append(run)
        by_uid = {run.uid: run for run in self.runs.values()}
        for run in self.runs.values():
            mine = carriers.get(run.name, [])
            if (run.reason == "Merged") != bool(mine) or len(mine) > 1:
                yield f"{run.name} ended {run.reason} and is carried by {[each.name for each in mine]}"
            for carrier in mine:
                if carrier.reason != "Completed" or not carrier.delivered:
                    yield f"{run.name} was merged into {carrier.name}, which ended {carrier.reason}"
            first = by_uid.get(run.spec.get("session", ""))
            if run.reason in UNSAVED and first is not None and first.reason == "Completed":
                yield f"{run.name} ended {run.reason}, but its session's run {first.name} was completed"

    def _each_note_once(self) -> Iterator[str]:
        seen: Counter[str] = Counter()
        for place, note, mark in self.bots:
            run = self.runs.get(mark.get("key", ""))
            if run is None or mark.get("run") != run.uid or run.place != place:
                yield f"a note of nobody: {note}"
                continue
            seen[run.name] += 1
            state = STATES.get(run.reason, "failed")
            if note.body.count("<!-- hummingbird") != 1 or mark.get("state") != state:
                yield f"{run.name} ended {run.reason}, its note {note.id} says {mark}"
            if run.status.get("note", {}).get("id") != note.id:
                yield f"{run.name} knows {run.status.get('note')}, there is {note.id}"
        for run in self.runs.values():
            wanted = 0 if run.reason in SKIPPED_BEFORE_NOTE else 1
            if run.reason == "Superseded":
                wanted = int("id" in run.status.get("note", {}))
            if seen[run.name] != wanted:
                yield f"{run.name} ended {run.reason} and has {seen[run.name]} notes, not {wanted}"

    def _where_notes_stand(self) -> Iterator[str]:
        """Internal or not as it must be; an answer in its question's thread, unless that is public and may not be."""
        for place, note, mark in self.bots:
            one = self.expected.get(mark.get("key", ""))
            if one is None:
                continue
            if note.internal != one.internal:
                yield f"{one.name} ({one.why}): internal should be {one.internal}: {note.id}"
            question = next((each for each in self.notes[place] if each.id == one.note), None)
            if question is None or (place[0] in INTERNAL and not question.internal):
                continue
            if question.discussion_id != note.discussion_id:
                yield f"{one.name} ({one.why}) was answered outside of its thread: {note.id}"

    def _each_question_once(self) -> Iterator[str]:
        said = Counter(token for _, note, _ in self.bots for token in answered(note.body))
        wanted = {
            one.token: run.name for one, run in self._both() if one.token and run.reason in {"Completed", "Merged"}
        }
        for token in said.keys() | wanted.keys():
            if said[token] != (token in wanted):
                yield f"{token} ({wanted.get(token, 'asked of nobody')}) was answered {said[token]} times"

    def _each_commit_once(self) -> Iterator[str]:
        """One answer by itself for a workflow and a commit, never more than the limit, and one for the last commit."""
        completed = [run for run in self.runs.values() if run.automatic and run.reason == "Completed"]
        for key, count in Counter((run.spec["workflow"], run.place, run.sha) for run in completed).items():
            if count > 1:
                yield f"{count} answers by themselves for {key}"
        for (workflow, place), count in Counter((run.spec["workflow"], run.place) for run in completed).items():
            if count > LIMITS[place[0]]:
                yield f"{count} answers by themselves of {workflow} on {place}"
        last = {
            (run.spec["workflow"], run.place)
            for one, run in self._both()
            if run.automatic and run.sha == self.heads[run.place].sha and not one.shut
        }
        for workflow, place in last:
            mine = [each for each in self.runs.values() if (each.spec["workflow"], each.place) == (workflow, place)]
            head = self.heads[place].sha
            if not self._spoken(workflow, place, head) and all(each.reason != "RunLimitReached" for each in mine):
                yield f"nothing of {workflow} about the last commit {head} of {place}"

    def _spoken(self, workflow: str, place: Place, sha: str) -> bool:
        marks = [mark for where, _, mark in self.bots if where == place]
        return any((mark.get("wf"), mark.get("sha"), mark.get("state")) == (workflow, sha, "done") for mark in marks)

    def _skipped_for_a_reason(self) -> Iterator[str]:
        for run in self.runs.values():
            workflow, place = run.spec["workflow"], run.place
            if run.reason == "AlreadyReviewed" and not self._spoken(workflow, place, run.sha):
                yield f"{run.name} ended AlreadyReviewed, but nothing stands about {run.sha}"
            shut = run.name in self.expected and self.expected[run.name].shut
            if run.reason == "Superseded" and run.sha == self.heads[place].sha and not shut:
                yield f"{run.name} ended Superseded, but {run.sha} is the last commit"
            sessions = {mark.get("id") for where, _, mark in self.bots if where == place and mark.get("wf") == workflow}
            if run.reason == "RunLimitReached" and len(sessions) < LIMITS[place[0]]:
                yield f"{run.name} ended RunLimitReached with {len(sessions)} conversations"

    def _reactions(self) -> Iterator[str]:
        """Each question was seen, once, and shows how it ended; one that is denied once more shows only that."""
        notes = {note.id: note for notes in self.notes.values() for note in notes}
        asked = {one.note: run for one, run in self._both() if one.note}
        only_seen = {number for one in self.expected.values() for number in one.choices} - asked.keys()
        for number, note in notes.items():
            mine = Counter(award["name"] for award in note.emoji if award["user"]["username"] == BOT)
            run = asked.get(number)
            well = run is not None and run.reason in {"Completed", "Merged"}
            end = DONE if well and run and run.spec.get("notice") in {None, "Help"} else WRONG
            wanted = Counter({"eyes": 1, end: 1} if run else {WRONG: 1} if number in only_seen else {})
            if mine != wanted:
                yield f"note {number} ({run.name if run else 'asked nothing'}) has {dict(mine)}, not {dict(wanted)}"

    def _resolved(self) -> Iterator[str]:
        for place, notes in self.notes.items():
            first = {note.discussion_id: note for note in reversed(notes)}
            for note in notes:
                begun = first[note.discussion_id]
                ours = begun.author.username == BOT and marker(begun.body).get("wf") == FAILURES
                if note.resolved_by is not None and note.resolved_by.username == BOT and not ours:
                    yield f"the bot resolved a thread of {place} that is not about pipelines: {note.discussion_id}"


def of_gitlab(gitlab: GitLabStandIn) -> Iterator[str]:
    """What the bot's text did in GitLab: nothing."""
    state = gitlab.state
    bots = {str(note.id) for notes in standing(gitlab).values() for note in notes if note.author.username == BOT}
    yield from (f"executed: {each}" for each in state.executed if each["user"] == BOT)
    yield from (f"mentioned: {each}" for each in state.mentions if each["note"] in bots)
    yield from (f"destroyed: {number}" for number in state.destroyed)


def standing(gitlab: GitLabStandIn) -> dict[Place, list[Note]]:
    """All notes by merge request, oldest first."""
    with gitlab.state.lock:
        return {
            (project.path, mr.iid): list(mr.notes.values())
            for project in gitlab.state.projects.values()
            for mr in project.merge_requests.values()
        }
