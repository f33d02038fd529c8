"""Large things through a real run: what a command prints stays in the sandbox, what a job logged streams into it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figures import MB, line
from bench.place import place
from bench.process import Memory, cpu_seconds, forget_peak, memory
from bench.wire import relayed
from cluster import Cluster
from demo.stage import Operator
from hummingbird_ai.testing.replies import Answer, Reply, say
from tests.e2e.scene import Scene

SIZE = 200 * MB
PLAIN = "the quick brown fox jumps over the lazy dog, and once more over the lazy dog, and then it is over\n"
RUNNER = "2026-08-19T21:44:16.163313Z 00O \x1b[0;32mok\x1b[0m 1234 tests/unit/test_basket.py::test_a_price [ 42%]\n"
"""As a runner of version 18.7 and later writes them: a time in front, colours in between."""
LOGS = {101: ("plain lines", PLAIN), 102: ("lines with a runner's times and with colours", RUNNER)}
ROUNDS = 3


def measure(cluster: Cluster, folder: Path) -> None:
    """Bytes over the wire, memory of the operator, and how fast."""
    with place(cluster, folder, "large", standby=1, most=3) as world:
        jobs = {
            number: {
                "name": f"job {number}",
                "status": "failed",
                "log_repeat": {"line": text, "times": SIZE // len(text)},
            }
            for number, (_, text) in LOGS.items()
        }
        world.gitlab.state.load({"projects": [{"id": 10, "path": "group/app", "jobs": jobs}]})
        _printed(world)
        _fetched(world)


def _printed(world: Scene) -> None:
    with relayed(world.stage) as relay, world.stage.operator() as operator:
        operator.wait_until_leading()

        def count() -> int:
            return relay.bytes()["in sandboxes"]

        def run(name: str, command: str) -> Done:
            world.pool_ready()
            return _run(world, operator, name, "sandbox_exec", {"command": command}, count)

        run("warm-up", "true")
        small, large = run("true", "true"), run("print", f"yes '{PLAIN.strip()}' | head -c {SIZE}")
        assert large.result["stdout_bytes"] == SIZE, large.result
        archive = count() - large.counted
    line(
        f"a command prints {SIZE // MB} MB / nothing: bytes over the wire (bar 10 KB)",
        f"{large.counted:,} / {small.counted:,} bytes in {large.seconds:.1f} s",
    )
    line("  operator before, at most, after the run", _resident(large))
    line("  its archive, saved with the session (repeated lines: gzip makes little of them)", f"{archive:,} bytes")


def _fetched(world: Scene) -> None:
    with world.stage.operator() as operator:
        operator.wait_until_leading()
        for number, (what, _) in LOGS.items():
            arguments = {"tool": "gitlab_get_job_log", "arguments": {"job_id": number}, "path": "job.log"}
            done = []
            for turn in range(ROUNDS):
                world.pool_ready()
                done.append(_run(world, operator, f"log-{number}-{turn}", "fetch_to_sandbox", arguments))
                assert "incomplete" not in done[-1].result, done[-1].result
            line(
                f"a job log of {SIZE // MB} MB into the sandbox, {what} (bar 50)",
                ", ".join(f"{SIZE / MB / each.seconds:.0f}" for each in done) + " MB/s",
            )
            line(
                f"  the operator's CPU for it; {done[0].result['bytes'] // MB} MB are left when it is cleaned",
                ", ".join(f"{each.cpu:.1f}" for each in done) + " s",
            )
            line("  operator before, at most, after the first (bar < 20 MB)", _resident(done[0]))


@dataclass(frozen=True)
class Done:
    """A run of one tool call: its result and the operator's memory around the run.

    Between the two model calls: seconds, seconds of the operator's CPU, and what was counted.
    """

    result: Mapping[str, Any]
    before: Memory
    after: Memory
    seconds: float
    cpu: float
    counted: int


def _run(
    world: Scene,
    operator: Operator,
    name: str,
    tool: str,
    arguments: Mapping[str, Any],
    count: Callable[[], int] = lambda: 0,
) -> Done:
    """A run that makes this one call and answers."""
    counts: list[tuple[float, int]] = []

    def model(body: dict[str, Any], _: int) -> Reply:
        counts.append((cpu_seconds(operator.process.pid), count()))
        return Answer(calls=((tool, arguments),)) if len(body["contents"]) == 1 else say("done")

    world.script = model
    calls = len(world.gemini.calls)
    forget_peak(operator.process.pid)
    before = memory(operator.process.pid)
    world.run(name, delivery="None")
    assert world.finished(name, 180)["reason"] == "Completed", world.log()
    after = memory(operator.process.pid)
    first, second = world.gemini.calls[calls:]
    [result] = [
        part["functionResponse"]["response"]
        for part in second.body["contents"][-1]["parts"]
        if "functionResponse" in part
    ]
    (cpu, counted), (cpu_then, counted_then) = counts
    return Done(result, before, after, second.at - first.at, cpu_then - cpu, counted_then - counted)


def _resident(done: Done) -> str:
    before, peak, after = done.before.now, done.after.peak, done.after.now
    return f"{before:.1f}, {peak:.1f}, {after:.1f} MB resident: +{peak - before:.1f}"
