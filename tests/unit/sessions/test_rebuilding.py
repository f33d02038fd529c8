"""What a run's journal says is what its save would have stored: whoever finds no save makes it from there."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from google.oauth2.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from hummingbird_ai.abort import Abort
from hummingbird_ai.auth import VertexAuth
from hummingbird_ai.calls import generate_with_retry
from hummingbird_ai.messages import Finish, ModelAdapter, ToolCall, ToolDef, Usage
from hummingbird_ai.models import build_model, worst_case_cost
from hummingbird_ai.testing import Answer, ClaudeServer, GeminiServer, ScriptedModel
from hummingbird_ai.testing.scripted import Step
from hummingbird_operator.errors import Invalid, Unavailable
from hummingbird_operator.sessions.budget import Budget
from hummingbird_operator.sessions.journal import RunJournal
from hummingbird_operator.sessions.loop import run_agent_loop
from hummingbird_operator.sessions.outcomes import Outcome
from hummingbird_operator.sessions.prompts import system_prompt
from hummingbird_operator.sessions.rebuilding import rebuilt
from hummingbird_operator.sessions.records import Opening, RecordedAnswer
from hummingbird_operator.sessions.session import Conversation, SavedSession, SessionStore
from hummingbird_operator.sessions.state import LoopResult
from hummingbird_operator.sessions.testing import KillAt, Killed, MemoryStore
from hummingbird_operator.sessions.turns import JournaledTurns
from tests.unit.sessions.runs import Run, cheap, said, shell
from tests.unit.sessions.test_replay import live
from tests.unit.sessions.test_replayed_requests import CALLS, RUN, SERVERS, Shell

PLACE = "ns/group/app!42"
HOW = Opening("why", "analyze", "0123", PLACE, model="scripted-model", base="", said="hello")
SCRIPTED = ScriptedModel(["never"])


def opened(run: Run) -> Run:
    system = system_prompt(run.registry.get_tool_notes(), "Do it.")
    run.opening = replace(HOW, system=system, tools=tuple(run.registry.get_tool_defs()))
    return run


def again(store: MemoryStore, base: SavedSession | None = None, run: str = "u1") -> Any:
    journal = RunJournal(store, run)
    opening = journal.opening()
    assert opening is not None
    return rebuilt(journal, opening, base, SCRIPTED, cheap)


def would_save(run: Run, result: LoopResult) -> Conversation:
    """As `agentruns.work` saves it."""
    assert run.opening is not None
    return Conversation(
        contents=run.model.to_canonical(result.contents),
        system_prompt=run.opening.system,
        tools=tuple(run.opening.tools),
        workflow="analyze",
        workflow_hash="0123",
        run="u1",
        context_tokens=result.context_tokens,
        origin=PLACE,
    )


def taken_over(root: Path, store: MemoryStore, sandbox: Any) -> Conversation:
    """What a process saves that finds the run ended by somebody else: it replays, and buys nothing."""
    over = Abort()
    over.set(Outcome.SHUTTING_DOWN)
    run = opened(live(root, store, sandbox))
    run.abort = over
    return would_save(run, run.start())


def test_of_a_run_that_ended_well_it_is_the_same_to_the_byte(tmp_path: Path) -> None:
    run = opened(live(tmp_path, MemoryStore()))
    result = run.start()
    found = again(run.store)
    assert found.conversation == would_save(run, result)
    assert json.dumps(found.conversation.contents) == json.dumps(run.model.to_canonical(result.contents))
    assert found.result == result


def seen() -> list[str]:
    with TemporaryDirectory() as folder:
        run = live(Path(folder), MemoryStore())
        opened(run)
        points = KillAt(-1)
        run.die_at(points)
        run.start()
        return points.seen


@pytest.mark.parametrize("point", range(len(seen())))
def test_of_a_run_that_died_at_any_point_it_is_what_whoever_ends_it_saves(tmp_path: Path, point: int) -> None:
    store = MemoryStore()
    first = live(tmp_path / "sandbox", store)
    opened(first)
    first.die_at(KillAt(point))
    with pytest.raises(Killed):
        first.start()
    first.die_at(lambda _: None)
    if not RunJournal(store, "u1").answered():
        assert not any(key.endswith(".response") for key in store.blobs)
        return
    written = dict(store.blobs)
    assert again(store).conversation == taken_over(tmp_path / "sandbox", store, first.sandbox)
    assert store.blobs == written


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 60), max_size=4))
def test_of_a_run_that_was_taken_over_again_and_again_it_is_what_the_last_one_had(deaths: list[int]) -> None:
    with TemporaryDirectory() as folder:
        store, sandbox = MemoryStore(), None
        for point in deaths:
            process = live(Path(folder), store, sandbox)
            opened(process)
            sandbox = process.sandbox
            process.die_at(KillAt(point))
            with contextlib.suppress(Killed):
                process.start()
        last = live(Path(folder), store, sandbox)
        opened(last)
        last.die_at(lambda _: None)
        result = last.start()
        assert again(store).conversation == would_save(last, result)


def test_calls_that_a_cancel_cut_off_get_the_words_of_the_recorded_end(tmp_path: Path) -> None:
    run = Run(tmp_path, [[shell("echo one"), shell("echo two", 2)]])
    opened(run)
    assert run.sandbox is not None
    run.sandbox.on_call = lambda name: run.abort.set("Cancelled") if name == "after sandbox.run" else None
    result = run.start()
    assert result.outcome is Outcome.CANCELLED
    journal = RunJournal(run.store, "u1")
    journal.record_answer(RecordedAnswer(result.outcome, result.text, result.message, result.iterations))
    assert "no result: ended from outside: Cancelled" in str(result.contents[-1])
    assert again(run.store).conversation == would_save(run, result)


@pytest.mark.parametrize("nothing", [said(finish=Finish.EMPTY), said("?", finish=Finish.MALFORMED)])
def test_answers_that_nobody_could_use_leave_the_question_alone(tmp_path: Path, nothing: Step) -> None:
    run = opened(Run(tmp_path, [nothing, nothing, nothing]))
    result = run.start()
    assert result.outcome is Outcome.MODEL_ERROR
    assert again(run.store).conversation == would_save(run, result)
    assert len(again(run.store).conversation.contents) == 1


def test_a_run_without_any_answer_has_nothing_that_must_be_kept(tmp_path: Path) -> None:
    run = opened(live(tmp_path, MemoryStore()))
    run.generate = lambda *_, **__: (_ for _ in ()).throw(Killed())
    with pytest.raises(Killed):
        run.start()
    journal = RunJournal(run.store, "u1")
    assert (journal.begun(), journal.answered()) == (True, False)
    assert journal.opening() == run.opening, "others may have gone on with the question all the same"


def test_the_opening_is_that_of_the_attempt_which_was_answered(tmp_path: Path) -> None:
    store = MemoryStore()
    journal = RunJournal(store, "u1")
    journal.intent(1, worst_case_usd=Decimal(1), model="m", opening=replace(HOW, said="before the death"))
    journal = RunJournal(store, "u1")
    attempt = journal.intent(1, worst_case_usd=Decimal(1), model="m", opening=HOW)
    journal.record_response(1, said("yes"), attempt=attempt, final=False)
    assert attempt == 2
    assert RunJournal(store, "u1").opening() == HOW


def test_a_journal_of_an_older_version_says_nothing_of_its_beginning(tmp_path: Path) -> None:
    run = live(tmp_path, MemoryStore())
    run.start()
    journal = RunJournal(run.store, "u1")
    assert (journal.answered(), journal.opening()) == (True, None)


def test_a_new_run_asks_its_store_no_more_often_for_it(tmp_path: Path) -> None:
    with_it, without = KillAt(-1), KillAt(-1)
    for number, points in enumerate((with_it, without)):
        run = live(tmp_path / str(number), MemoryStore())
        if points is with_it:
            opened(run)
        run.die_at(points)
        run.start()
    assert with_it.seen == without.seen


STRANGE = st.text(st.characters(), max_size=20)


@settings(max_examples=50, deadline=None)
@given(STRANGE, STRANGE, st.integers(0), st.dictionaries(STRANGE, STRANGE | st.none() | st.integers()))
def test_an_opening_comes_back_as_it_was(system: str, words: str, before: int, schema: Mapping[str, Any]) -> None:
    store = MemoryStore()
    how = replace(HOW, system=system, said=words, before=before, tools=(ToolDef("a", words, schema),))
    journal = RunJournal(store, "u1")
    attempt = journal.intent(1, worst_case_usd=Decimal(1), model="m", opening=how)
    journal.record_response(1, said("yes"), attempt=attempt, final=False)
    found = RunJournal(store, "u1").opening()
    assert found == how
    assert json.dumps(found.tools[0].parameters) == json.dumps(schema)


@pytest.mark.parametrize("damage", [{"opening": 1}, {"opening": {}}, {"opening": {"tools": [1]}}])
def test_an_opening_that_cannot_be_read_is_invalid_and_named(tmp_path: Path, damage: dict[str, Any]) -> None:
    run = opened(live(tmp_path, MemoryStore()))
    run.start()
    run.store.blobs["runs/u1/turns/0001.intent"] = json.dumps(damage).encode()
    with pytest.raises(Invalid, match=r"runs/u1/turns/0001\.intent"):
        RunJournal(run.store, "u1").opening()


def test_a_store_that_goes_away_gives_no_half_conversation(tmp_path: Path) -> None:
    run = opened(live(tmp_path, MemoryStore()))
    run.start()
    points = KillAt(-1)
    run.store.on_call = points
    again(run.store)
    for nth, name in enumerate(points.seen):
        if not name.startswith("before"):
            continue
        left = [nth]

        def fail(_: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Unavailable("the session store", "made by a test")

        run.store.on_call = fail
        with pytest.raises(Unavailable):
            again(run.store)


def test_a_damaged_turn_is_no_outage(tmp_path: Path) -> None:
    run = opened(live(tmp_path, MemoryStore()))
    run.start()
    run.store.blobs["runs/u1/turns/0002.response"] = b"{"
    with pytest.raises(Invalid, match=r"0002\.response"):
        again(run.store)


# --- with the providers' own adapters, over a session of three runs ---

NEW: list[list[Answer]] = [
    [Answer(thought="hm", text="I look.", calls=CALLS), Answer(thought="hm", text="It is a.")],
    [Answer(thought="hm", calls=CALLS[:1]), Answer(), Answer(thought="hm", text="Only arm64.")],
    [Answer(text="As I said.")],
]
SYSTEM = "You look into failed pipelines."


class Talk:
    """A session whose runs are saved, or rebuilt from their journals."""

    def __init__(self, name: str, url: str, store: MemoryStore) -> None:
        auth = VertexAuth("project", credentials=Credentials("test-token"))  # type: ignore[no-untyped-call]
        self._build: Callable[[], ModelAdapter] = partial(build_model, name, auth=auth, base_url=url)
        self._name = name
        self._store = store
        self._worst_case = partial(worst_case_cost, name)

    def run(self, uid: str, base: SavedSession | None, *, lives: Sequence[int] = ()) -> Conversation:
        """What it would save. It dies before the call of each number in `lives`, from 0."""
        how = replace(HOW, model=self._name, base=base.run if base else "", said=f"words of {uid}")
        how = how if base else replace(how, system=SYSTEM, tools=(RUN,))
        for calls in lives:
            with pytest.raises(Killed):
                self._live(uid, base, how, calls)
        result, model = self._live(uid, base, how, -1)
        assert result.outcome is Outcome.COMPLETED
        place = (how.workflow, how.workflow_hash, uid, result.context_tokens, how.origin)
        return Conversation(model.to_canonical(result.contents), SYSTEM, (RUN,), *place)

    def _live(self, uid: str, base: SavedSession | None, how: Opening, dies_at: int) -> tuple[LoopResult, ModelAdapter]:
        model, left = self._build(), [dies_at]

        def generate(*given: Any, **more: Any) -> Any:
            if not left[0]:
                raise Killed
            left[0] -= 1
            return generate_with_retry(*given, max_attempts=1, **more)

        turns = JournaledTurns(
            model,
            Shell(),
            RunJournal(self._store, uid),
            system=SYSTEM,
            tool_defs=[RUN],
            generate=generate,
            worst_case=self._worst_case,
            opening=how,
        )
        before = base.restored_by(model.from_canonical) if base else []
        budget = replace(Budget(), restored_tokens=base.tokens_for(self._name) if base else 0)
        return run_agent_loop(turns, [*before, model.make_user_content(how.said)], budget, clock=lambda: 0.0), model

    def rebuilt(self, uid: str, base: SavedSession | None) -> Conversation:
        journal = RunJournal(self._store, uid)
        opening = journal.opening()
        assert opening is not None
        return rebuilt(journal, opening, base, self._build(), self._worst_case).conversation


@pytest.mark.parametrize("lives", [(), (1,), (0, 0, 1)], ids=["alive", "dead once", "dead again and again"])
@pytest.mark.parametrize("name", SERVERS)
def test_providers_take_a_rebuilt_session_and_it_is_the_one_that_would_have_been_saved(
    name: str, lives: Sequence[int]
) -> None:
    script = [answer for run in NEW for answer in run]
    server_of: Callable[[Any], ClaudeServer | GeminiServer] = SERVERS[name]
    with server_of(lambda body, number: script[number]) as server:
        talk, store = Talk(name, server.url, MemoryStore()), SessionStore(MemoryStore())
        base: SavedSession | None = None
        for uid in ("u1", "u2"):
            would = talk.run(uid, base, lives=lives)
            made = talk.rebuilt(uid, base)
            assert made == would
            assert json.dumps(made.contents) == json.dumps(would.contents)
            etag = base.etag if base else None
            base = store.save("s", made, transcript="", archive=None, if_match=etag)
        last = talk.run("u3", base)
        assert [call.refused for call in server.calls] == [None] * len(script)
    texts = [part["text"] for each in last.contents for part in each["parts"] if part["type"] == "text"]
    assert [text for text in texts if text.startswith("words of")] == ["words of u1", "words of u2", "words of u3"]
    assert {"It is a.", "Only arm64.", "As I said."} <= set(texts)
    assert {part["type"] for each in last.contents for part in each["parts"]} >= {"tool_call", "tool_result"}


def test_what_an_internal_run_left_is_internal(tmp_path: Path) -> None:
    run = opened(live(tmp_path, MemoryStore()))
    run.start()
    RunJournal(run.store, "u1").record_internal()
    made = again(run.store).conversation
    assert made.internal
    base = SessionStore(run.store).save("u1", made, transcript="", archive=None)
    journal = RunJournal(run.store, "u2")
    attempt = journal.intent(1, worst_case_usd=Decimal(1), model="m", opening=replace(HOW, base="u1"))
    journal.record_response(1, said("And so on."), attempt=attempt, final=False)
    assert again(run.store, base, "u2").conversation.internal


def test_a_size_that_the_provider_did_not_tell_is_bounded_as_the_run_bounded_it(tmp_path: Path) -> None:
    first = opened(live(tmp_path / "first", MemoryStore()))
    first.start()
    before = replace(again(first.store).conversation, run="u0")
    base = SessionStore(first.store).save("s", before, transcript="", archive=None)
    run = Run(tmp_path / "next", [said("Yes.", usage=Usage(input_tokens=1))])
    run.opening = replace(HOW, base="u0")
    run.budget = replace(Budget(), restored_tokens=base.tokens_for(HOW.model))
    result = run.start(contents=[*base.restored_by(SCRIPTED.from_canonical), SCRIPTED.make_user_content(HOW.said)])
    assert again(run.store, base).conversation.context_tokens == result.context_tokens > base.context_tokens > 0


def test_a_run_says_where_it_goes_on_before_its_first_call_and_saying_it_twice_is_no_harm() -> None:
    store = MemoryStore()
    assert RunJournal(store, "u1").followers() == []
    for _ in range(2):
        RunJournal(store, "u2").follow("u1")
    RunJournal(store, "u3").follow("u1")
    RunJournal(store, "u4").follow("u2")
    assert RunJournal(store, "u1").followers() == ["u2", "u3"]
    assert not RunJournal(store, "u1").begun()


def test_calls_of_ids_that_nobody_gave_are_answered_too(tmp_path: Path) -> None:
    run = opened(Run(tmp_path, [ToolCall("", "nope", {}), "Done."]))
    result = run.start()
    assert again(run.store).conversation == would_save(run, result)
