"""Records that were damaged: each is named where it is read, before anything is made of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hummingbird_operator.errors import Invalid
from hummingbird_operator.sessions.journal import RunJournal
from hummingbird_operator.sessions.records import RecordedAnswer
from hummingbird_operator.sessions.session import SessionStore
from hummingbird_operator.sessions.testing import MemoryStore
from tests.unit.sessions.test_rebuilding import again, opened
from tests.unit.sessions.test_replay import live
from tests.unit.sessions.test_session import FIRST

Damage = Callable[[dict[str, Any]], object]
RESPONSE, RESULTS = "turns/0001.response", "turns/0001.results"
DAMAGES: dict[str, tuple[str, Damage]] = {
    "an unknown outcome": ("answer.json", lambda it: it.update(outcome="FromALaterVersion")),
    "text for tokens of the answer": ("answer.json", lambda it: it["usage"].update(input_tokens="x")),
    "no list of gaps": ("answer.json", lambda it: it.update(incomplete="all")),
    "results that are no objects": (RESULTS, lambda it: it.update(results=[1])),
    "too few results": (RESULTS, lambda it: it.update(results=[])),
    "too many results": (RESULTS, lambda it: it.update(results=[{}] * 9)),
    "content that is text": (RESPONSE, lambda it: it["response"].update(raw_content="x")),
    "content without a role": (RESPONSE, lambda it: it["response"].update(raw_content={})),
    "content of another kind": (RESPONSE, lambda it: it["response"]["raw_content"].update(parts=[{"type": "x"}])),
    "null for text": (RESPONSE, lambda it: it["response"].update(text=None)),
    "text for tokens": (RESPONSE, lambda it: it["response"]["usage"].update(context_tokens="x")),
    "a number for arguments": (RESPONSE, lambda it: it["response"]["tool_calls"][0].update(arguments=3)),
    "a number for a call": (RESPONSE, lambda it: it["response"].update(tool_calls=[3])),
    "a cost that is no number": (RESPONSE, lambda it: it["response"].update(cost_usd="NaN")),
    "null for the worst case": ("turns/0001.intent", lambda it: it.update(worst_case_usd=None)),
    "text for a number of messages": ("turns/0001.intent", lambda it: it["opening"].update(before="x")),
}


def edit(store: MemoryStore, key: str, change: Damage) -> None:
    record = json.loads(store.blobs[key])
    change(record)
    store.blobs[key] = json.dumps(record).encode()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_record_is_invalid_and_named(tmp_path: Path, damage: str) -> None:
    run = opened(live(tmp_path, MemoryStore()))
    result = run.start()
    RunJournal(run.store, "u1").record_answer(RecordedAnswer(result.outcome, result.text))
    record, change = DAMAGES[damage]
    edit(run.store, f"runs/u1/{record}", change)
    with pytest.raises(Invalid, match=f"runs/u1/{record}"):
        again(run.store)


def test_the_intent_of_a_call_that_was_lost_is_read_with_as_much_care(tmp_path: Path) -> None:
    run = opened(live(tmp_path, MemoryStore()))
    run.start()
    run.store.blobs["runs/u1/turns/0002.intent-2"] = b'{"worst_case_usd": null}'
    with pytest.raises(Invalid, match=r"runs/u1/turns/0002\.intent-2"):
        again(run.store)


def test_a_question_that_was_damaged_is_named() -> None:
    store = MemoryStore()
    RunJournal(store, "u1").record_question({"text": "why?", "cut": False, "runs": 3})
    with pytest.raises(Invalid, match=r"runs/u1/question\.json"):
        RunJournal(store, "u1").question()


def test_what_nobody_could_load_is_not_saved_over_what_is_there() -> None:
    store = MemoryStore()
    sessions = SessionStore(store)
    etag = sessions.save("s", FIRST, transcript="", archive=None).etag
    good = dict(store.blobs)
    damaged: Any = {**vars(FIRST), "run": "u2", "context_tokens": "many"}
    with pytest.raises(Invalid, match="context_tokens"):
        sessions.save("s", type(FIRST)(**damaged), transcript="", archive=[b"files"], if_match=etag)
    assert store.blobs == good


class Counting(MemoryStore):
    """Knows how often each blob was read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: Counter[str] = Counter()

    def get(self, key: str) -> bytes | None:
        self.read[key] += 1
        return super().get(key)


def test_each_record_is_read_once(tmp_path: Path) -> None:
    store = Counting()
    opened(live(tmp_path, store)).start()
    store.read.clear()
    again(store)
    # the opening is in the intent that was answered
    assert store.read.pop("runs/u1/turns/0001.response") == 2
    assert set(store.read.values()) == {1}
    assert [key for key in store.read if "intent" in key] == ["runs/u1/turns/0001.intent"]
