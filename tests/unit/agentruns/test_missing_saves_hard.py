"""What must not go wrong while somebody makes the saves that are missing in a session."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from hummingbird_ai.abort import Abort
from hummingbird_ai.messages import ModelAdapter
from hummingbird_operator.agentruns.following import Question
from hummingbird_operator.agentruns.keeping import Keeping
from hummingbird_operator.agentruns.missing_saves import MissingSaves
from hummingbird_operator.agentruns.resuming import SessionUnreadable, before_it, opening_of
from hummingbird_operator.agentruns.tasks import Task
from hummingbird_operator.errors import Aborted, Conflict, Invalid, Unavailable
from hummingbird_operator.sessions.journal import RunJournal
from hummingbird_operator.sessions.session import SessionStore
from hummingbird_operator.sessions.testing import MemoryStore
from hummingbird_operator.sessions.tools import ToolRegistry
from tests.unit.agentruns.builders import NOW, facts, run
from tests.unit.agentruns.process import Doors
from tests.unit.agentruns.unsaved import FIRST, ME, MODEL, answers, go_on, missing, spoke, task, uid


class Hasty(Abort):
    """Its waits are over at once."""

    def wait(self, timeout: float | None) -> bool:
        return self.is_set()


class Keyless(Doors):
    """A door whose model cannot be called."""

    def model(self, name: str) -> ModelAdapter:
        raise Invalid("models", f"{name} has no key")


def test_a_store_that_takes_no_save_ends_in_an_outage_and_not_in_a_loop() -> None:
    tries = []

    class Refusing(MemoryStore):
        def put(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
            if if_match is not None:
                tries.append(key)
                assert len(tries) == 1
                raise Conflict(key)
            return super().put(key, data)

    store = Refusing()
    spoke(store, 1)
    go_on(store)
    spoke(store, 2, base=1)
    with pytest.raises(Unavailable, match="nobody did"):
        go_on(store)


@pytest.mark.parametrize("kept", [0, 1])
def test_damage_leaves_what_was_saved_as_it_is(kept: int) -> None:
    store = missing(kept + 1, kept=kept)
    key = f"runs/{uid(kept + 1)}/turns/0001.response"
    store.blobs[key] = store.blobs[key].replace(b'"context_tokens": 11', b'"context_tokens": "x"')
    before = dict(store.blobs)
    with pytest.raises(SessionUnreadable, match=key):
        go_on(store)
    assert store.blobs == before


def test_of_two_that_went_on_at_the_same_place_none_is_forgotten_silently() -> None:
    store = missing(1, kept=1)
    spoke(store, 2, base=1)
    spoke(store, 3, base=1)
    with pytest.raises(SessionUnreadable, match=f"runs/{uid(2)}/, runs/{uid(3)}/"):
        go_on(store)
    for key in [key for key in store.blobs if key.startswith(f"runs/{uid(2)}/")]:
        del store.blobs[key]
    assert answers(go_on(store)) == ["answer 1", "answer 3"]


def test_who_may_not_have_a_session_is_told_that_and_nothing_of_its_model() -> None:
    store = missing(1)
    saves = MissingSaves(store, SessionStore(store), Keyless(MODEL), str)
    with pytest.raises(Invalid, match="another namespace or target"):
        saves.resumed(task(origin="elsewhere/group/app!42"), Abort())
    with pytest.raises(SessionUnreadable, match="has no key"):
        saves.resumed(task(), Abort())


def test_the_files_that_a_later_run_saved_are_not_those_of_the_first() -> None:
    store = missing(1)
    store.put_stream(f"sessions/{FIRST}/sandbox.tar.gz", [b"files"])
    alone = dict(store.blobs)
    assert go_on(store).archive is not None
    store.blobs = alone
    spoke(store, 2, base=1)
    found = go_on(store)
    assert (found.archive, found.archive_problem) == (None, "the sandbox was gone before they were packed")


def test_records_that_are_not_there_at_the_first_try_are_waited_for() -> None:
    class Slow(MemoryStore):
        """It fails the first time that it is asked for any record of a run."""

        def __init__(self, blobs: dict[str, bytes]) -> None:
            super().__init__()
            self.blobs.update(blobs)
            self.asked: set[str] = set()

        def _first(self, key: str) -> None:
            if key.startswith("runs/") and key not in self.asked:
                self.asked.add(key)
                raise Unavailable("the session store", "made by a test")

        def get(self, key: str) -> bytes | None:
            self._first(key)
            return super().get(key)

        def list(self, prefix: str) -> list[str]:
            self._first(prefix)
            return super().list(prefix)

    store = Slow(missing(2, kept=1).blobs)
    saves = MissingSaves(store, SessionStore(store), Doors(MODEL), str, retry_seconds=5)
    assert saves.resumed(task(), Hasty()) == go_on(missing(2, kept=1))
    assert len(store.asked) > 5


def test_whoever_wants_the_end_gets_it_before_the_next_turn() -> None:
    store, abort = missing(1), Abort()
    answered = [0]

    def on_call(name: str) -> None:
        answered[0] += name == "after store.get"
        if answered[0] == 3:  # the first answer and its intent for the opening, then that answer again
            abort.set("Cancelled")

    store.on_call = on_call
    before = dict(store.blobs)
    with pytest.raises(Aborted, match="Cancelled"):
        MissingSaves(store, SessionStore(store), Doors(MODEL), str).resumed(task(), abort)
    assert answered[0] < 6
    assert store.blobs == before


async def test_admission_holds_no_thread_that_others_wait_for_and_ends_when_nobody_waits() -> None:
    inside, over = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    class Slow:
        def admit(self, task: Task, abort: Abort) -> None:
            loop.call_soon_threadsafe(inside.set)
            abort.wait(None)
            loop.call_soon_threadsafe(over.set)

    none: Any = None
    worker: Any = Slow()
    closed, threads = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
    closed.shutdown()
    keeping = Keeping(none, none, worker, none, threads, closed, retry_seconds=1, clock=lambda: NOW)
    admission = asyncio.ensure_future(keeping.admit(facts(run({"session": FIRST, "message": "and?"}, uid=ME))))
    entered = asyncio.ensure_future(inside.wait())
    await asyncio.wait({admission, entered}, return_when=asyncio.FIRST_COMPLETED)
    assert entered.done()
    admission.cancel()
    with pytest.raises(asyncio.CancelledError):
        await admission
    await over.wait()
    threads.shutdown()


OTHER = Question("asked otherwise by now", cut=False)


def began(store: MemoryStore, number: int, *, live: bool, base: int = 0) -> str:
    """The first words of that run in its next life, in which all is different."""
    saved = SessionStore(store).load(FIRST) if base else None
    how = opening_of(task(), saved, RunJournal(store, uid(number)), ToolRegistry(None), OTHER, live=live)
    return how.said


@pytest.mark.parametrize("base", [0, 1])
def test_what_a_model_answered_is_what_it_is_told_in_every_life(base: int) -> None:
    store = missing(base, kept=base)
    spoke(store, base + 1, base=base)
    assert began(store, base + 1, live=True, base=base) == f"question {base + 1}"
    assert began(store, base + 1, live=False, base=base) == f"question {base + 1}"


def test_what_no_model_answered_may_still_be_asked_otherwise() -> None:
    store = MemoryStore()
    spoke(store, 1, answered=False)
    assert OTHER.text in began(store, 1, live=True)
    assert began(store, 1, live=False) == "question 1"


def test_a_run_sees_the_session_as_it_was_when_it_began_whatever_came_later() -> None:
    store, seen = MemoryStore(), {}
    for number in (1, 2, 3):
        spoke(store, number, base=number - 1, said="again", before=4 * (number - 1))
        seen[number] = go_on(store)
    opening = RunJournal(store, uid(2)).opening()
    assert opening is not None
    assert before_it(seen[1], opening) == seen[1]
    for later in (2, 3):
        cut = before_it(seen[later], opening)
        assert cut.contents == seen[1].contents
        with pytest.raises(Conflict):
            SessionStore(store).save(FIRST, replace(cut, run=uid(9)), transcript="", archive=None, if_match=cut.etag)
