"""What a run must have left, whatever happened to its operators: one note, nothing bought or done twice, no sandbox."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.stage import wait_for
from hummingbird_ai.testing.replies import Answer, Reply, say
from tests.e2e.scene import Scene

GROUP = "hummingbird-project.io"
TURNS = 3
EFFECTS = "one\ntwo\nthree\n"
"""What the commands leave in the sandbox, if each of them had its effect once."""
ANSWER = "everything ran"


def worker(body: dict[str, Any], _: int) -> Reply:
    """Two commands, one that looks at what they did, and the answer."""
    turn = turn_of(body)
    if turn == 0:
        slow = "echo one >>/tmp/data/log; touch /tmp/data/begun; sleep 0.7; echo two >>/tmp/data/log"
        return Answer(
            calls=(("sandbox_exec", {"command": slow}), ("sandbox_exec", {"command": "echo three >>/tmp/data/log"}))
        )
    if turn == 1:
        return Answer(calls=(("sandbox_exec", {"command": "cat /tmp/data/log"}),))
    return say(ANSWER)


def turn_of(body: dict[str, Any]) -> int:
    """Which turn a request asks for, from 0."""
    return sum(content["role"] == "model" for content in body["contents"])


def merge_request_of(body: dict[str, Any]) -> int:
    """Whose run asks; 0 where it has no target."""
    found = re.search(r'"iid": (\d+)', body["contents"][0]["parts"][0]["text"])
    return int(found[1]) if found else 0


@dataclass(frozen=True)
class Run:
    """A run under test, known by its merge request: nobody else has a note there."""

    world: Scene
    name: str
    iid: int

    @classmethod
    def start(cls, world: Scene, name: str, iid: int, **spec: Any) -> Run:
        """Apply it."""
        target = {"gitlab": {"project": "group/app", "mergeRequest": iid}}
        world.run(name, **{"workflow": "plain", "target": target, **spec})
        return cls(world, name, iid)

    @property
    def uid(self) -> str:
        """Its uid."""
        return str(self.world.stage.get("agentrun", self.name)["metadata"]["uid"])

    def calls(self) -> list[tuple[float, int]]:
        """When the model was asked, and for which turn."""
        calls = [(call.at, call.body) for call in list(self.world.gemini.calls)]
        return [(at, turn_of(body)) for at, body in calls if merge_request_of(body) == self.iid]

    def bought(self) -> set[int]:
        """Turns whose response is in the journal."""
        return bought(self.world, self.uid)

    def pods(self) -> list[dict[str, Any]]:
        """Sandboxes that it holds."""
        uid = self.uid
        return [pod for pod in self.world.pods() if pod["metadata"]["labels"].get(f"{GROUP}/run") == uid]

    def assert_whole(self, *, sandbox: str = EFFECTS) -> None:
        """Succeeded, one note with the answer, each command's effect once, no sandbox left."""
        assert self.world.conditions(self.name)["Succeeded"]["reason"] == "Completed", self.world.status(self.name)
        notes = self.world.notes(self.iid)
        assert [note["body"].startswith(ANSWER) for note in notes] == [True], notes
        assert '"state": "done"' in notes[0]["body"]
        assert self.seen() == sandbox
        wait_for(lambda: not self.pods(), 30, lambda: f"{self.name} left {self.pods()}")

    def seen(self) -> str:
        """What its last command printed, as the model was told."""
        last = [call.body for call in self.world.gemini.calls if merge_request_of(call.body) == self.iid][-1]
        parts = [part for content in last["contents"] for part in content["parts"] if "functionResponse" in part]
        return str(parts[-1]["functionResponse"]["response"]["stdout"])


def bought(world: Scene, uid: str) -> set[int]:
    """Turns of the run with that uid whose response is in the journal."""
    folder = Path(world.stage.folder) / "store" / "runs" / uid / "turns"
    return {int(path.name.split(".")[0]) - 1 for path in folder.glob("*.response*")}


def store(world: Scene) -> dict[str, bytes]:
    """Every blob of the session store."""
    root = Path(world.stage.folder) / "store"
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def held(log: Path) -> set[str]:
    """The points at which a mortal operator holds a run now."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith('{"held"')]
    return {json.loads(line)["held"] for line in lines}
