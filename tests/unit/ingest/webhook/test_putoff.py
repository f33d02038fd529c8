"""What fails by itself is kept for an hour, within bounds, and goes to the queue at the end of the process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from hummingbird_operator.errors import HummingbirdError, Unavailable
from hummingbird_operator.ingest.event import Event
from hummingbird_operator.ingest.handle import NameTaken
from hummingbird_operator.ingest.payloads import read_part, size_of
from hummingbird_operator.ingest.reasons import Outcome, Reason
from hummingbird_operator.ingest.webhook.putoff import PAUSES, PutOff

FAILS = Unavailable("GitLab", "it answered 500 for this merge request")
AWAY = Unavailable("the API server", "away")


@dataclass
class Scripted:
    """A handler that fails as it is told, and a queue."""

    errors: list[Exception] = field(default_factory=list)
    outages: list[Unavailable | None] = field(default_factory=list)
    tried: list[Event] = field(default_factory=list)
    queued: list[Event] = field(default_factory=list)
    queue_error: HummingbirdError | None = None

    async def handle(self, event: Event) -> Outcome:
        self.tried.append(event)
        if self.errors:
            raise self.errors.pop(0)
        return Outcome(Reason.FIRED)

    async def away(self) -> Unavailable | None:
        return self.outages.pop(0) if self.outages else None

    async def send(self, event: Event) -> None:
        if self.queue_error is not None:
            raise self.queue_error
        self.queued.append(event)


def event(number: int = 1, **payload: Any) -> Event:
    return Event("gitlab", "Note Hook", {"object_kind": "note", **payload}, f"k{number}")


def ended(put_off: PutOff, result: str) -> float:
    return put_off.registry.get_sample_value("hummingbird_ingest_put_off_total", {"result": result}) or 0


async def test_it_is_tried_until_it_is_done() -> None:
    handler = Scripted([FAILS, TimeoutError()])
    put_off = PutOff(handler, pauses=(0, 0, 0))
    assert put_off.take(event())
    await put_off.idle()
    assert len(handler.tried) == 3
    assert ended(put_off, "done") == 1


async def test_it_is_given_up_after_the_last_pause_and_the_log_names_it(caplog: pytest.LogCaptureFixture) -> None:
    handler = Scripted([FAILS] * 9)
    put_off = PutOff(handler, pauses=(0, 0))
    put_off.take(event())
    await put_off.idle()
    assert len(handler.tried) == 2
    assert ended(put_off, "given_up") == 1
    assert "event 'k1' is given up" in caplog.text
    assert 3000 < sum(PAUSES) < 3600


async def test_a_try_while_a_service_is_away_does_not_count() -> None:
    handler = Scripted([FAILS] * 5, [AWAY] * 4)
    put_off = PutOff(handler, pauses=(0, 0))
    put_off.take(event())
    await put_off.idle()
    assert len(handler.tried) == 6
    assert ended(put_off, "done") == 1


@pytest.mark.parametrize("error", [NameTaken("agentruns note-1", "is another's"), RuntimeError("words-of-a-person")])
async def test_what_will_never_work_ends(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    put_off = PutOff(Scripted([error]), pauses=(0, 0))
    put_off.take(event())
    await put_off.idle()
    assert ended(put_off, "failed") == 1
    assert "words-of-a-person" not in caplog.text


async def test_it_is_bounded_in_number_and_memory_and_takes_nothing_at_the_end() -> None:
    put_off = PutOff(Scripted(), most=2, characters=100)
    assert put_off.take(event(1))
    assert not put_off.take(event(2, user={"username": "x" * 100}))
    assert put_off.take(event(3, builds=["y" * 1000])), "what nothing reads is not kept"
    assert not put_off.take(event(4))
    await put_off.close()
    assert not put_off.take(event(5))


async def test_one_merge_request_takes_its_share_and_no_more_and_its_oldest_gives_way() -> None:
    """Whoever may comment could else fill the list with replies that fail, and the 503 after it disable the hook."""

    def reply(number: int, iid: int) -> Event:
        return event(number, project={"id": 10}, merge_request={"iid": iid})

    handler = Scripted()
    put_off = PutOff(handler, handler, most=4, share=2)
    assert all(put_off.take(reply(number, 42)) for number in range(1, 10))
    assert put_off.take(reply(20, 43))
    assert put_off.take(event(21, project={"id": 10}, object_attributes={"iid": 44}))
    assert put_off.take(reply(10, 42))
    assert not put_off.take(reply(22, 45))
    assert ended(put_off, "given_up") == 8
    await put_off.close()
    assert {one.delivery for one in handler.queued} == {"k9", "k10", "k20", "k21"}


async def test_a_place_is_free_again_after_an_end() -> None:
    put_off = PutOff(Scripted(), most=1, pauses=(0,))
    assert put_off.take(event(1))
    await put_off.idle()
    assert put_off.take(event(2))
    await put_off.idle()


async def test_the_end_of_the_process_hands_it_to_the_queue() -> None:
    handler = Scripted()
    put_off = PutOff(handler, handler)
    for number in (1, 2):
        put_off.take(event(number))
    await put_off.close()
    assert [one.delivery for one in handler.queued] == ["k1", "k2"]
    assert ended(put_off, "queued") == 2
    assert handler.tried == []


@pytest.mark.parametrize("lost", [False, True])
async def test_without_a_queue_it_is_tried_a_last_time_and_what_is_lost_is_named(
    lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Scripted([FAILS] if lost else [], queue_error=Unavailable("SQS", "away"))
    put_off = PutOff(handler, handler)
    put_off.take(event())
    await asyncio.sleep(0)
    await put_off.close()
    assert len(handler.tried) == 1
    assert ended(put_off, "lost" if lost else "done") == 1
    assert ("event 'k1' is lost" in caplog.text) is lost


def test_an_event_is_kept_without_what_nothing_reads() -> None:
    note = {"note": "words", "description": "words", "id": 7}
    kept = read_part(
        {"object_kind": "note", "object_attributes": note, "commit": {"message": "m"}, "project": {"id": 1}}
    )
    assert kept == {"object_kind": "note", "object_attributes": {"note": "words", "id": 7}, "project": {"id": 1}}
    assert 0 < size_of(kept) < 120
