"""Each law of the evening's verdict notices what breaks it."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from tests.e2e.evening.acts import Mr, Place
from tests.e2e.evening.cast import APP, BOT, FAILURES, NUMBERS, REVIEW
from tests.e2e.evening.oracle import Expected
from tests.e2e.evening.table import table
from tests.e2e.evening.verdict import Found, Verdict
from tests.standins.gitlab.records import Note, User

SHA = "a" * 40
PLACE: Place = (APP, 1)
HEAD = Mr(APP, 1, "alice", SHA, "Fix the parser", "topic/1", "opened", draft=False, fork=False)
ANY = frozenset({"Completed", "AlreadyReviewed", "RunLimitReached", "Superseded"})


class Evening:
    """One automatic run with its note, one that was skipped, and two replies of which one was merged."""

    def __init__(self) -> None:
        self.expected: dict[str, Expected] = {}
        self.raw: dict[str, dict[str, Any]] = {}
        self.notes: list[Note] = []
        self.add("first", "automatic", "Completed", sha=SHA, outcomes=ANY)
        self.says("first", 11, "Answer to nobody.", discussion="d1")
        self.add("second", "automatic", "AlreadyReviewed", sha=SHA, outcomes=ANY)
        for number, (name, reason) in enumerate({"asked": "Completed", "more": "Merged"}.items(), 12):
            self.notes.append(note(number, "alice", f"And q-{number}?", "d1"))
            self.notes[-1].emoji = [{"name": one, "user": {"username": BOT}} for one in ("eyes", "white_check_mark")]
            mine: dict[str, Any] = {"session": "uid-first", "token": f"q-{number}", "note": number}
            self.add(name, "reply", reason, outcomes=frozenset({"Completed", "Merged"}), **mine)
        self.raw["asked"]["status"]["merged"] = ["more"]
        self.says("asked", 14, "Answer to q-12, q-13.", discussion="d1")

    def add(self, name: str, kind: str, reason: str, *, outcomes: frozenset[str], sha: str = "", **more: Any) -> None:
        self.expected[name] = Expected(name, kind, FAILURES, APP, 1, outcomes, "of the test", sha=sha, **more)
        conditions = [
            {"type": each, "status": "True", "reason": reason} for each in ("Succeeded", "Finished", "Delivered")
        ]
        target = {"project": APP, "mergeRequest": 1} | ({"sha": sha} if sha else {})
        spec: dict[str, Any] = {"workflow": FAILURES, "target": {"gitlab": target}, "trigger": {"automatic": bool(sha)}}
        if kind == "reply":
            spec |= {"session": more["session"], "message": f"And {more['token']}?"}
        metadata = {"name": name, "uid": f"uid-{name}"}
        self.raw[name] = {"metadata": metadata, "spec": spec, "status": {"conditions": conditions}}

    def says(self, name: str, number: int, text: str, discussion: str) -> None:
        mark = {"id": "uid-first", "wf": FAILURES, "run": f"uid-{name}", "key": name, "state": "done"}
        mark |= {"sha": SHA} if name == "first" else {}
        self.notes.append(note(number, BOT, f"{text}\n\n<!-- hummingbird: {json.dumps(mark)} -->", discussion))
        self.raw[name]["status"]["note"] = {"id": number}

    def ended(self, name: str, reason: str) -> None:
        for condition in self.raw[name]["status"]["conditions"]:
            condition["reason"] = reason

    def verdict(self) -> Verdict:
        runs = {name: Found(raw) for name, raw in self.raw.items()}
        return Verdict(self.expected, runs, {PLACE: self.notes}, {PLACE: HEAD})


def note(number: int, user: str, body: str, discussion: str) -> Note:
    return Note(number, discussion, User(NUMBERS[user], user), body, "", "")


def test_an_evening_as_it_must_be_has_no_problems() -> None:
    verdict = Evening().verdict()
    assert verdict.judge() == []
    assert "automatic analyze-failures  2         2" in table(verdict)


def doubled(evening: Evening) -> None:
    evening.notes.append(replace(evening.notes[0], id=99))


def twice_answered(evening: Evening) -> None:
    evening.notes[0].body = evening.notes[0].body.replace("to nobody", "to q-12")


def completed_twice(evening: Evening) -> None:
    evening.ended("second", "Completed")
    evening.says("second", 15, "Answer to nobody.", "d2")


def stranger(evening: Evening) -> None:
    evening.raw["strange"] = deepcopy(evening.raw["second"]) | {"metadata": {"name": "strange", "uid": "uid-strange"}}


def left_running(evening: Evening) -> None:
    evening.notes[0].body = evening.notes[0].body.replace('"done"', '"running"')


def awake(evening: Evening) -> None:
    evening.notes[0].body = "<!-- hummingbird: x -->\n" + evening.notes[0].body


def resolved(evening: Evening) -> None:
    evening.notes.append(note(16, "alice", "Mine", "d3"))
    evening.notes[-1].resolved_by = User(1, BOT)


BREAKS: dict[str, Callable[[Evening], object]] = {
    "each_run_once: missing": lambda evening: evening.raw.pop("second"),
    "each_run_once: unexpected": stranger,
    "as_ordered: first": lambda evening: evening.raw["first"]["spec"].update(workflow=REVIEW),
    "as_ordered: asked (of the test): q-12 is not": lambda evening: evening.raw["asked"]["spec"].update(message=""),
    "outcomes: asked": lambda evening: evening.ended("asked", "ModelError"),
    "outcomes: second (of the test) ended not": lambda evening: evening.raw["second"]["status"].clear(),
    "replies: more": lambda evening: evening.raw["asked"]["status"].pop("merged"),
    "replies: more was merged": lambda evening: evening.ended("asked", "TimedOut"),
    "each_note_once: first knows": doubled,
    "each_note_once: first ended Completed and has 0": lambda evening: evening.notes.pop(0),
    "each_note_once: first ended Completed, its note": left_running,
    "each_note_once: first ended Completed, its note 11": awake,
    "each_note_once: a note of nobody": lambda evening: evening.raw["first"]["metadata"].update(uid="another"),
    "where_notes_stand: first": lambda evening: setattr(evening.notes[0], "internal", True),
    "where_notes_stand: asked": lambda evening: setattr(evening.notes[-1], "discussion_id", "d9"),
    "each_question_once: q-12": twice_answered,
    "each_question_once: q-13": lambda evening: setattr(
        evening.notes[-1], "body", evening.notes[-1].body.replace(", q-13", "")
    ),
    "each_commit_once: 2 answers": completed_twice,
    "each_commit_once: nothing of": lambda evening: evening.notes.pop(0),
    "skipped_for_a_reason: second ended AlreadyReviewed": lambda evening: evening.notes.pop(0),
    "skipped_for_a_reason: second ended Superseded": lambda evening: evening.ended("second", "Superseded"),
    "skipped_for_a_reason: second ended RunLimit": lambda evening: evening.ended("second", "RunLimitReached"),
    "reactions: note 12": lambda evening: evening.notes[1].emoji.pop(),
    "resolved: the bot": resolved,
}


@pytest.mark.parametrize("problem", BREAKS)
def test_each_law_notices_what_breaks_it(problem: str) -> None:
    evening = Evening()
    BREAKS[problem](evening)
    found = evening.verdict().judge()
    assert any(each.startswith(problem) for each in found), found
