"""People and the agent on merge requests: a real ingestor has the stand-in's hooks, a real operator answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster import Cluster
from demo import threads
from demo.evidence import MEMBERS, SHA
from demo.processes import Ingestor, free_port, wait_for
from demo.threads import Said
from hummingbird_ai.testing.replies import Answer, Reply, Stall, say
from tests.e2e.scene import Scene, scene
from tests.e2e.survival import merge_request_of
from tests.standins.gitlab import People

APP, INSIDE = "group/app", "group/inside"
"""A public project, and one whose notes are internal."""
FINDINGS = "/tmp/data/findings.txt"
"""What the agent writes in its sandbox at the first question of a session, and reads at every later one."""
FIRST_ANSWER = "The price of each item is {found}."
SECRET = "a-secret-of-the-hook"
PROMPT = "workflows/analyze-failures.md"
WORKFLOWS: dict[str, dict[str, Any] | None] = {
    "analyze-failures": {"prompt": PROMPT, "description": "Explain why the pipeline failed", "action": "pipeline"},
    "analyze-speed": {"prompt": PROMPT, "description": "Explain why the pipeline is slow"},
    "review": {
        "prompt": "workflows/review.md",
        "description": "Review the change",
        "action": "merge_request",
        # GitLab tells of the last thread that is resolved as of any change: the bot's own act starts no review
        "trigger_rules": [{"action": "deny", "user": "hummingbird-bot"}, {"action": "allow"}],
    },
    "plain": None,
}


def neighbourhood(merge_requests: range) -> dict[str, Any]:
    """Who else is there: a stranger, and the second project, with the same people and merge requests."""
    rows = [{"iid": iid, "sha": SHA, "author": {"id": 7, "username": "alice"}} for iid in merge_requests]
    return {
        "users": [{"id": 13, "username": "sam"}],
        "projects": [
            {"id": 10, "path": APP, "visibility": "public"},
            {"id": 20, "path": INSIDE, "visibility": "public", "members": MEMBERS, "merge_requests": rows},
        ],
    }


@dataclass
class Talk:
    """A scene in which people talk with the agent. `answers` is what it says on a merge request, question by question.

    Where it is in `pondering`, the model's next call there waits until `world.gemini.release`.
    """

    world: Scene
    ingestor: Ingestor
    answers: dict[int, list[str]] = field(default_factory=dict)
    pondering: set[int] = field(default_factory=set)

    @property
    def people(self) -> People:
        """Who acts."""
        return self.world.gitlab.people

    def begin(self, *iids: int, project: str = APP) -> None:
        """Have Alice ask on each of these merge requests, all at once, and wait for the answers."""
        for iid in iids:
            self.answers[iid] = [FIRST_ANSWER]
            self.people.comments(project, iid, "alice", "/hummingbird analyze-speed why is it slow?")
        for iid in iids:
            reasons = self.settled(iid, project)
            assert list(reasons.values()) == ["Completed"], reasons

    def session(self, iid: int) -> str:
        """The session that the first run there began."""
        return str(self.runs(iid)[0]["status"]["session"]["id"])

    def store(self, kind: str, name: str) -> Path:
        """The folder of a session (`sessions`) or of a run's journal (`runs`)."""
        return self.world.stage.folder / "store" / kind / name

    def answer(self, body: dict[str, Any], _: int) -> Reply:
        """At each question a command, then what is to be said, with `{found}` for what the command printed."""
        iid, parts = merge_request_of(body), body["contents"][-1]["parts"]
        questions = sum(
            content["role"] == "user" and any("text" in part for part in content["parts"])
            for content in body["contents"]
        )
        results = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
        reply = self._said(iid, questions, str(results[-1].get("stdout", "")).strip()) if results else _look(questions)
        if iid in self.pondering:
            self.pondering.discard(iid)
            return Stall(reply)
        return reply

    def _said(self, iid: int, question: int, found: str) -> Answer:
        lines = self.answers.get(iid, ["I looked at it."])
        return say(lines[min(question, len(lines)) - 1].replace("{found}", found))

    def calls(self, iid: int) -> int:
        """How often the model was asked about the merge request."""
        return sum(merge_request_of(call.body) == iid for call in self.world.gemini.calls)

    def first_message(self, iid: int) -> str:
        """The first question there, as the model got it."""
        body = next(call.body for call in self.world.gemini.calls if merge_request_of(call.body) == iid)
        return str(body["contents"][0]["parts"][0]["text"])

    def words_to_model(self, iid: int) -> str:
        """The latest question there, as the model got it."""
        bodies = [call.body for call in self.world.gemini.calls if merge_request_of(call.body) == iid]
        texts = [part["text"] for content in bodies[-1]["contents"] for part in content["parts"] if "text" in part]
        return str(texts[-1])

    def runs(self, iid: int, project: str = APP) -> list[dict[str, Any]]:
        """The merge request's AgentRuns, in the order of their making."""
        wanted = {"project": project, "mergeRequest": iid}
        items: list[dict[str, Any]] = self.world.stage.get("agentruns")["items"]
        found = [run for run in items if wanted.items() <= run["spec"].get("target", {}).get("gitlab", {}).items()]
        return sorted(found, key=lambda run: (run["metadata"]["creationTimestamp"], _note_id(run)))

    def delivered(self) -> None:
        """Wait until every event has been sent and answered: its AgentRuns exist then."""
        assert self.world.gitlab.hooks_wait(30), "webhooks are still under way"

    def settled(self, iid: int, project: str = APP, seconds: float = 60) -> dict[str, str]:
        """Wait until all that was asked there is done; reasons by AgentRun."""
        self.delivered()

        def over() -> bool:
            return all(outcome(run) for run in self.runs(iid, project))

        wait_for(over, seconds, lambda: f"{self.reasons(iid, project)}\n{self.world.log()}")
        return self.reasons(iid, project)

    def reasons(self, iid: int, project: str = APP) -> dict[str, str]:
        """The reasons of the merge request's AgentRuns, empty while they are at work."""
        return {run["metadata"]["name"]: outcome(run) for run in self.runs(iid, project)}

    def thread(self, iid: int, project: str = APP) -> list[Said]:
        """The conversation of a merge request."""
        return threads.read(self.world.gitlab, project, iid)

    def show(self, title: str, iid: int, project: str = APP) -> None:
        """Print it, to be read with `pytest -s`."""
        print("\n" + threads.page(f"{title}  ({project}!{iid})", self.thread(iid, project)))

    def waits_for_model(self, iid: int, calls: int) -> None:
        """Wait until the model has had so many calls about the merge request."""
        wait_for(lambda: self.calls(iid) >= calls, 60, lambda: f"{self.calls(iid)} calls\n{self.world.log()}")


def outcome(run: dict[str, Any]) -> str:
    """The reason of a finished run; empty while it is at work."""
    conditions = {each["type"]: each for each in run.get("status", {}).get("conditions", ())}
    over = conditions.get("Finished", {}).get("status") == "True"
    return str(conditions["Succeeded"]["reason"]) if over else ""


@contextmanager
def talking(cluster: Cluster, folder: Path, name: str, *, pool: dict[str, Any]) -> Iterator[Talk]:
    """An operator, a webhook ingestor, and hooks in both projects that `hummingbird webhook-setup` made."""
    with scene(cluster, folder, name, pool=pool) as world:
        port = free_port()
        world.gitlab.state.load(neighbourhood(range(100, 112)))
        url = f"http://127.0.0.1:{port}/webhooks/gitlab"
        world.stage.environ |= {"HOOK_SECRET": SECRET, "MAINTAINER": "maintainer-token"}
        world.configure(
            gitlab={"webhook_secret_env": ["HOOK_SECRET"], "hooks_token_env": "MAINTAINER"},
            ingest={"webhook_url": url},
            projects={APP: {}, INSIDE: {"internal_notes": True}},
            workflows=WORKFLOWS,
        )
        set_up_hooks(world)
        with world.stage.operator(), world.ingesting("webhook", port=port) as ingestor:
            found = Talk(world, ingestor)
            world.script = found.answer
            world.pool_ready()
            yield found


def _look(question: int) -> Answer:
    command = f"cat {FINDINGS}" if question > 1 else f"mkdir -p /tmp/data; echo 'rounded too early' | tee {FINDINGS}"
    return Answer(calls=(("sandbox_exec", {"command": command}),))


def _note_id(run: dict[str, Any]) -> int:
    return int(run["spec"].get("trigger", {}).get("noteId", 0))


def set_up_hooks(world: Scene, *projects: str) -> None:
    """Make the hooks as a person who runs Hummingbird does; no project: in all that the configuration names."""
    named = [argument for project in projects for argument in ("--project", project)]
    world.stage.hummingbird("webhook-setup", "--config", "config.yaml", *named)
