"""What happens in the demo, act by act: somebody does something, and what must come of it is looked at and shown."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

from demo import threads
from demo.evidence import PIPELINE
from demo.stage import ROOT, Operator, Stage
from demo.threads import Said
from demo.words import SCRIPTED_COSTS, quoted, say
from tests.standins.gitlab import GitLabStandIn

APP, IID = "group/app", 42
BOT = "hummingbird-bot"
QUESTION = "why does the test with 10 percent get 189 and not 179?"
FOLLOW_UP = "Do the other tests with `discount` in their names pass?"
GUESTS_WORDS = "What is in your environment?"
EXAMPLE = ROOT / "examples" / "agentrun.yaml"
RUN_SECONDS = 300
DELIVERY_SECONDS = 30
AGENT_RUNS = 4
"""Runs that ask the model; a fixed answer to a guest asks nobody."""


class Unexpected(Exception):
    """Something did not come out as the demo says; the text is a sentence for people."""


@dataclass
class Play:
    """The acts, in the order in which they are written. Each raises `Unexpected` where it fails."""

    stage: Stage
    gitlab: GitLabStandIn
    operator: Operator
    scripted: bool = False
    """No model answers, so what a run costs nobody pays."""
    act: str = ""
    """What is going on now, for a message about its failure."""
    thread: str = ""
    """The discussion that Alice began."""
    session: str = ""
    shown: list[Said] = field(default_factory=list)
    """Notes that were printed whole."""
    spent: list[float] = field(default_factory=list)
    """US dollars of each run, by our price table."""

    def all(self) -> None:
        """The whole of it."""
        self.a_pipeline_fails()
        self.a_developer_asks()
        self.another_replies()
        self.a_guest_replies()
        self.somebody_uses_kubectl()

    def a_pipeline_fails(self) -> None:
        """Nobody asks: the event alone makes a run, and its answer is a plain note."""
        self._begins("Alice's merge request has its pipeline run again, and it fails")
        people = self.gitlab.people

        def again() -> None:
            for status in ("running", "failed"):
                people.pipeline(APP, IID, "alice", status, pipeline_id=PIPELINE)

        self._completed(self._sends("alice", again))
        notes = self._notes()
        self._expect([note.author for note in notes] == [BOT], f"one note of {BOT}", notes)
        self._expect(bool(notes[0].words) and not notes[0].internal, "a public note with words in it", notes)
        print(threads.page(f"{APP}!{IID}", notes), end="")
        self.shown = notes

    def a_developer_asks(self) -> None:
        """A command in a comment: the answer stands in its thread."""
        self._begins("Alice asks in a comment")
        command = f"/hummingbird analyze-failures {QUESTION}"
        print(quoted("alice", command))
        run = self._completed(self._sends("alice", lambda: self.gitlab.people.comments(APP, IID, "alice", command)))
        self.session = str(run["status"]["session"]["id"])
        asked = next(note for note in self._notes() if note.author == "alice")
        self.thread = asked.discussion
        self._answered("alice")
        say(f"{BOT} answers in her thread")

    def another_replies(self) -> None:
        """A reply in that thread: the same session goes on."""
        self._begins("Bob replies to the answer")
        print(quoted("bob", FOLLOW_UP))
        run = self._completed(self._sends("bob", lambda: self._reply("bob", FOLLOW_UP)))
        session = run["spec"].get("session", "")
        if session != self.session:
            raise Unexpected(f"the reply should go on with session {self.session}, but its run has {session!r}")
        conditions = {each["type"]: each for each in run["status"]["conditions"]}
        reclaimed = conditions.get("SandboxReady", {}).get("reason") == "Reclaimed"
        where = "the sandbox that it had, with its files" if reclaimed else "another sandbox, with its files restored"
        say(f"{BOT} goes on with the session, in {where}")
        self._answered("bob")

    def a_guest_replies(self) -> None:
        """Who may not ask is told so, and no model hears of it."""
        self._begins("Gwen, a guest of the project, replies too")
        print(quoted("gwen", GUESTS_WORDS))
        run = self._completed(self._sends("gwen", lambda: self._reply("gwen", GUESTS_WORDS), "notice"))
        if run["status"].get("usage", {}).get("iterations"):
            raise Unexpected("a guest's words reached the model")
        self.denied()
        say("the thread as people read it:")
        print(threads.page(f"{APP}!{IID}", threads.shortened(self._in_thread(), self.shown)), end="")

    def denied(self) -> None:
        """Look that the thread ends with Gwen's words and nothing but a denial."""
        answer = self._answered("gwen", "x")
        self._expect(answer.words.startswith("Access denied"), "a denial", [answer])

    def somebody_uses_kubectl(self) -> None:
        """The same agent, by hand."""
        self._begins("Somebody who may use kubectl makes an AgentRun by hand")
        order = yaml.safe_load(EXAMPLE.read_text())
        order["metadata"]["namespace"] = self.stage.names.runs
        before = len(self._notes())
        self.stage.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(order))
        say(f"kubectl apply -f {EXAMPLE.relative_to(ROOT)} (in namespace {self.stage.names.runs})")
        self._completed(order["metadata"]["name"])
        new = self._notes()[before:]
        self._expect([note.author for note in new] == [BOT] and bool(new[0].words), f"one more note of {BOT}", new)
        say(f"its note begins: {new[0].words.splitlines()[0]}")

    # --- how ---

    def _begins(self, act: str) -> None:
        self.act = act
        print(flush=True)
        say(act)

    def _sends(self, by: str, deed: Callable[[], object], reason: str = "fired") -> str:
        """Have `by` do it, and GitLab tell the webhook; the name of the AgentRun that came of it."""
        hook = next(hook for project in self.gitlab.state.projects.values() for hook in project.hooks.values())
        before = len(hook.log)
        deed()
        if not self.gitlab.hooks_wait(DELIVERY_SECONDS):
            raise Unexpected(f"the webhook did not answer GitLab within {DELIVERY_SECONDS} s")
        rows = [row for row in hook.log[before:] if row["request_data"]["user"]["username"] == by]
        for row in rows:
            print(f"  {_delivery(row)}", flush=True)
        answers = [_answer(row) for row in rows]
        found = [name for answer in answers if answer.get("reason") == reason for name in answer.get("runs", ())]
        if len(found) != 1:
            heard = "; ".join(_delivery(row) for row in rows) or "GitLab sends nothing"
            raise Unexpected(f"one AgentRun should come of this ({reason}), but {heard}")
        return str(found[0])

    def _completed(self, name: str) -> dict[str, Any]:
        """Tell of the run's turns until it is Finished; the AgentRun. Anything but Completed is unexpected."""
        told, end = 0, time.monotonic() + RUN_SECONDS
        while True:
            run = self.stage.get("agentrun", name)
            turns = self._turns(name)
            if self.scripted and turns and not (told or self.spent):
                say(SCRIPTED_COSTS)
            for turn in turns[told:]:
                print(f"  {turn}", flush=True)
            told = len(turns)
            found = {condition["type"]: condition for condition in run.get("status", {}).get("conditions", ())}
            if found.get("Finished", {}).get("status") == "True":
                break
            if self.operator.process.poll() is not None:
                raise Unexpected(f"the operator ended with {self.operator.process.returncode}\n{self.operator.tail(5)}")
            if time.monotonic() > end:
                raise Unexpected(f"AgentRun {name} did not finish in {RUN_SECONDS} s")
            time.sleep(0.3)
        self.spent.append(float(run["status"].get("usage", {}).get("costUSD", "0")))
        outcome = found["Succeeded"]
        if outcome["reason"] != "Completed":
            raise Unexpected(f"AgentRun {name} ended {outcome['reason']}: {outcome.get('message', '')}")
        return run

    def _turns(self, name: str) -> list[str]:
        """What the operator's log says of the run's model calls."""
        lines = self.operator.log.read_text(errors="replace").split("\n")[:-1]
        entries = [json.loads(line) for line in lines if line.startswith("{")]
        return [str(entry["message"]) for entry in entries if entry.get("run") == name and "turn" in entry]

    def _reply(self, user: str, words: str) -> None:
        self.gitlab.people.replies(APP, IID, user, self.thread, words)

    def _notes(self) -> list[Said]:
        return threads.read(self.gitlab, APP, IID)

    def _in_thread(self) -> list[Said]:
        return [note for note in self._notes() if note.discussion == self.thread]

    def _answered(self, user: str, reaction: str = "white_check_mark") -> Said:
        """The thread ends with that person's words, marked with the reaction, and the agent's: these."""
        thread = self._in_thread()
        ends = [(note.author, note.reactions[-1:]) for note in thread[-2:]]
        self._expect(
            ends == [(user, (reaction,)), (BOT, ())], f"a note of {user} with {reaction}, and an answer", thread
        )
        return thread[-1]

    def _expect(self, right: bool, what: str, notes: list[Said]) -> None:
        if not right:
            raise Unexpected(f"there should be {what}, but there is:\n{threads.page(f'{APP}!{IID}', notes)}")


def _answer(row: dict[str, Any]) -> dict[str, Any]:
    """What the webhook said to a delivery; empty where it was no answer of ours."""
    try:
        found = json.loads(row["response_body"])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _delivery(row: dict[str, Any]) -> str:
    """One line of GitLab's log of deliveries."""
    headers, answer = row["request_headers"], _answer(row)
    signed = "signed" if "webhook-signature" in headers else "not signed"
    runs = "".join(f", AgentRun {name}" for name in answer.get("runs", ()))
    about = row["request_data"]["object_attributes"].get("status", "")
    event = f"{headers['X-Gitlab-Event']} {about}".strip()
    heard = f"{row['response_status']} {answer.get('reason', '')}".strip()
    return f"GitLab sends {event} ({signed}) and hears {heard}{runs}"
