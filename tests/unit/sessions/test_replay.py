"""Whatever dies when: the run that follows ends the same way, buys nothing twice and runs no command twice."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hummingbird_ai.abort import Abort
from hummingbird_ai.messages import Content, Finish, ToolCall, Usage
from hummingbird_ai.testing.scripted import Step
from hummingbird_operator.errors import Aborted, Conflict, Invalid, Unavailable
from hummingbird_operator.sessions.journal import RunJournal
from hummingbird_operator.sessions.outcomes import Outcome
from hummingbird_operator.sessions.records import RecordedAnswer
from hummingbird_operator.sessions.spill import files_named
from hummingbird_operator.sessions.state import LoopResult
from hummingbird_operator.sessions.testing import KillAt, Killed, MemoryStore
from hummingbird_operator.sessions.tools import StreamingResponse
from tests.unit.sessions.runs import Run, said, shell

TURNS: list[Step] = [
    [shell("echo one >> /tmp/data/log; seq 2000"), ToolCall("b", "fetch", {}), shell("echo two >> /tmp/data/log", 3)],
    "",
    said("I think", finish=Finish.MALFORMED),
    [ToolCall("d", "fetch", {}), shell("echo three >> /tmp/data/log; cat /tmp/data/log", 5)],
    "The answer.",
]


class Process(Run):
    """One life of the operator: it answers turn by turn as the history says, so every life has the same model."""

    def die_at(self, on_call: Callable[[str], None]) -> None:
        self.store.on_call = on_call
        assert self.sandbox is not None
        self.sandbox.on_call = on_call


def script(store: MemoryStore) -> Callable[[Sequence[Content]], Step]:
    """The same model in every life: its next step is the one behind the answers that were kept."""
    return lambda _: TURNS[sum(key.endswith(".response") for key in store.blobs)]


def live(root: Path, store: MemoryStore, sandbox: Any = None) -> Process:
    run = Process(root, script(store), store=store)
    if sandbox is not None:
        run.sandbox = sandbox
        run.registry = type(run.registry)(sandbox)
    run.add_tool("fetch", lambda: StreamingResponse([b"line\n" * 3], suffix=".log", metadata={"rows": 3}))
    return run


def undisturbed(root: Path) -> tuple[LoopResult, Process, list[str]]:
    run = live(root, MemoryStore())
    points = KillAt(-1)
    run.die_at(points)
    return run.start(), run, points.seen


def points() -> list[str]:
    with TemporaryDirectory() as folder:
        return undisturbed(Path(folder))[2]


@pytest.mark.parametrize("point", range(len(points())))
def test_after_a_death_at_any_point_the_next_process_ends_the_run_the_same_way(tmp_path: Path, point: int) -> None:
    expected, reference, _ = undisturbed(tmp_path / "reference")
    store = MemoryStore()
    first = live(tmp_path / "sandbox", store)
    first.die_at(KillAt(point))
    with pytest.raises(Killed):
        first.start()
    bought_before = [key for key in store.blobs if key.endswith(".response")]

    second = live(tmp_path / "sandbox", store, first.sandbox)
    second.die_at(lambda _: None)
    result = second.start()

    assert (result.outcome, result.text) == (expected.outcome, expected.text) == (Outcome.COMPLETED, "The answer.")
    assert len(second.model.calls) == len(TURNS) - len(bought_before)
    assert second.sandbox is not None
    assert len(second.sandbox.executed) == len(set(second.sandbox.executed)) == 3
    assert second.sandbox.path("/tmp/data/log").read_text() == "one\ntwo\nthree\n"
    spilled = sorted(path.name for path in second.sandbox.path("/tmp/data/_out").iterdir())
    assert len(spilled) == len(set(spilled)) >= 3
    (command,) = [path for path in _told(store) if path.endswith(".txt")]
    assert second.sandbox.path(command).read_text() == "".join(f"{number}\n" for number in range(1, 2001))
    assert all(second.sandbox.path(path).exists() for path in _told(store))
    assert result.iterations <= expected.iterations
    assert len(result.contents) == len(expected.contents)
    assert len(reference.model.calls) == len(TURNS)


def _told(store: MemoryStore) -> list[str]:
    """The files in the sandbox that the model was told of."""
    records = [json.loads(data) for key, data in store.blobs.items() if key.endswith(".results")]
    return files_named(result for record in records for result in record["results"])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 60), max_size=6))
def test_any_number_of_deaths_costs_one_call_each_at_most(deaths: list[int]) -> None:
    with TemporaryDirectory() as folder:
        store = MemoryStore()
        sandbox, bought = None, 0
        for point in deaths:
            process = live(Path(folder), store, sandbox)
            sandbox = process.sandbox
            process.die_at(KillAt(point))
            with contextlib.suppress(Killed):
                process.start()
            bought += len(process.model.calls)
        last = live(Path(folder), store, sandbox)
        last.die_at(lambda _: None)
        result = last.start()
        assert result.text == "The answer."
        assert last.sandbox is not None
        assert len(last.sandbox.executed) == len(set(last.sandbox.executed)) == 3
        assert bought + len(last.model.calls) <= len(TURNS) + len(deaths)


def test_a_run_that_is_over_is_replayed_to_the_byte_without_a_call(tmp_path: Path) -> None:
    store = MemoryStore()
    first = live(tmp_path, store)
    result = first.start()
    second = live(tmp_path, store, first.sandbox)
    again = second.start()
    assert again == result
    assert second.model.calls == []
    assert all(progress.replayed for progress in second.lines)
    assert second.lines[0].line.endswith("(replayed)")


def test_with_an_abort_that_is_already_set_the_loop_only_replays(tmp_path: Path) -> None:
    store = MemoryStore()
    first = live(tmp_path, store)
    seen = points()
    first.die_at(KillAt(max(index for index, name in enumerate(seen) if name == "before store.create")))
    with pytest.raises(Killed):
        first.start()
    abort = Abort()
    abort.set("ShuttingDown")
    second = Process(tmp_path, ["never"], store=store, abort=abort)
    second.sandbox = first.sandbox
    result = second.start()
    assert (result.outcome, second.model.calls) == (Outcome.SHUTTING_DOWN, [])
    assert result.iterations > 0


def test_a_call_in_flight_at_a_death_is_charged_at_its_worst_case_each_time(tmp_path: Path) -> None:
    store = MemoryStore()
    for _ in range(2):
        run = live(tmp_path, store)
        run.die_at(lambda name: None)

        def die(*_: object, **__: object) -> Any:
            raise Killed

        run.generate = die
        with pytest.raises(Killed):
            run.start()
    intents = [json.loads(store.blobs[f"runs/u1/turns/0001.{kind}"]) for kind in ("intent", "intent-2")]
    assert [intent["attempt"] for intent in intents] == [1, 2]
    last = live(tmp_path / "other", store)
    result = last.start()
    reference, _, _ = undisturbed(tmp_path / "reference")
    lost = sum(Decimal(intent["worst_case_usd"]) for intent in intents)
    assert lost > 0
    assert result.cost_usd == reference.cost_usd + lost


def test_lost_calls_count_against_the_budget(tmp_path: Path) -> None:
    run = live(tmp_path, MemoryStore())
    record = {"worst_case_usd": "1.9999", "attempt": 1}
    run.store.blobs["runs/u1/turns/0001.intent"] = json.dumps(record).encode()
    result = run.start()
    assert (result.outcome, result.cost_usd, run.model.calls) == (Outcome.BUDGET_EXHAUSTED, Decimal("1.9999"), [])


def test_a_replaced_sandbox_gets_no_spill_name_that_the_history_holds(tmp_path: Path) -> None:
    store = MemoryStore()
    first = live(tmp_path / "one", store)
    assert first.sandbox is not None
    lost = first.sandbox

    def lose(name: str) -> None:
        if name == "after sandbox.run" and len(lost.executed) == 3:
            lost.lose("Evicted")

    lost.on_call = lose
    first.start()
    assert "_out/0.txt" in store.blobs["runs/u1/turns/0001.results"].decode()
    second = live(tmp_path / "two", store)
    second.registry.announce("The sandbox was replaced.")
    second.registry.never_reuse([])
    result = second.start()
    assert result.text == "The answer."
    results = [json.dumps(content) for content in result.contents]
    assert "The sandbox was replaced." not in results[2]


def test_an_announcement_is_in_the_next_result_and_in_the_journal(tmp_path: Path) -> None:
    run = live(tmp_path, MemoryStore())
    run.registry.announce("Files were lost.")
    run.registry.announce("Sorry.")
    result = run.start()
    assert json.dumps(list(result.contents)).count("Files were lost. Sorry.") == 1
    assert b"Files were lost. Sorry." in run.store.blobs["runs/u1/turns/0001.results"]


@pytest.mark.parametrize("outage", [1, 3])
def test_a_short_outage_of_the_store_loses_no_answer(outage: int) -> None:
    store, waits = MemoryStore(), list[float]()

    def wait(pause: float) -> bool:
        waits.append(pause)
        return False

    journal = RunJournal(store, "u1", retry_seconds=60, wait=wait)
    attempt = journal.intent(1, worst_case_usd=Decimal(1), model="m")
    store.fail_next = outage
    journal.record_response(1, said("paid for"), attempt=attempt, final=False)
    recorded = RunJournal(store, "u1").response(1)
    assert recorded is not None
    assert recorded.response.text == "paid for"
    assert waits == [0.5, 1.0, 2.0][:outage]


def test_an_outage_longer_than_the_patience_is_unavailable() -> None:
    store, clock = MemoryStore(), iter(range(0, 1000, 10))
    store.down = True
    journal = RunJournal(store, "u1", retry_seconds=25, clock=lambda: float(next(clock)), wait=lambda _: False)
    with pytest.raises(Unavailable):
        journal.response(1)


def test_a_wait_for_the_store_ends_with_the_run(tmp_path: Path) -> None:
    abort = Abort()
    abort.set("Cancelled")
    store = MemoryStore()
    store.down = True
    run = Run(None, ["never"], store=store, abort=abort)
    assert run.start().outcome is Outcome.STORE_UNAVAILABLE
    with pytest.raises(Aborted, match="Cancelled"):
        RunJournal(store, "u1", retry_seconds=60, abort=abort).response(1)


def test_the_end_of_a_run_is_recorded_once_and_read_back(tmp_path: Path) -> None:
    store = MemoryStore()
    journal = RunJournal(store, "u1")
    assert journal.answer() is None
    answer = RecordedAnswer("Completed", "All is well.", iterations=3, cost_usd=Decimal("0.12"), incomplete=("a",))
    assert journal.record_answer(answer) == "memory:///runs/u1/answer.md"
    assert journal.record_answer(answer) == "memory:///runs/u1/answer.md"
    assert RunJournal(store, "u1").answer() == answer
    assert store.blobs["runs/u1/answer.md"] == b"All is well."
    with pytest.raises(Conflict):
        journal.record_answer(replace(answer, text="Something else"))


def test_an_answer_that_an_older_version_kept_with_its_keys_sorted_is_the_same_answer() -> None:
    store = MemoryStore()
    answer = RecordedAnswer("Completed", "All is well.", usage=Usage(3, 4), cost_usd=Decimal("0.12"))
    RunJournal(store, "u1").record_answer(answer)
    kept = json.dumps(json.loads(store.blobs["runs/u1/answer.json"]), sort_keys=True).encode()
    assert kept != store.blobs["runs/u1/answer.json"]
    store.blobs["runs/u1/answer.json"] = kept

    taken_over = RunJournal(store, "u1")
    assert taken_over.answer() == answer
    assert taken_over.record_answer(answer) == "memory:///runs/u1/answer.md"
    assert store.blobs["runs/u1/answer.json"] == kept


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"{", b'{"response": {}}', b"\xff"])
def test_a_record_that_cannot_be_read_is_invalid_and_named(data: bytes) -> None:
    store = MemoryStore()
    for kind in ("response", "results"):
        store.blobs[f"runs/u1/turns/0001.{kind}"] = data
    store.blobs["runs/u1/answer.json"] = data
    for read in (
        lambda: RunJournal(store, "u1").response(1),
        lambda: RunJournal(store, "u1").results(1),
        lambda: RunJournal(store, "u1").answer(),
    ):
        with pytest.raises(Invalid, match="runs/u1/"):
            read()
