"""Reports of events that were lost by the very record that should keep them from being doubled, or doubled after all.

The numbers are those of docs/faults.md.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from hummingbird_operator.ingest.event import Event, decode_message
from hummingbird_operator.ingest.reasons import Reason
from hummingbird_operator.ingest.serve import EventQueue
from hummingbird_operator.ingest.sqs.queue import Message, Traits
from hummingbird_operator.kube.client import AGENT_RUNS
from tests.unit.ingest.desk import NAMESPACE, Desk
from tests.unit.ingest.samples import BASE, merge_request, note, pipeline

RUNNING: dict[str, Any] = {"phase": "Running", "conditions": [{"type": "Finished", "status": "False"}]}
FINISHED: dict[str, Any] = {"phase": "Succeeded", "conditions": [{"type": "Finished", "status": "True"}]}


@pytest.mark.parametrize("status", [{}, RUNNING, FINISHED])
@pytest.mark.parametrize("payload", [note(), pipeline(), merge_request()])
async def test_an_event_that_comes_again_changes_nothing_whatever_its_run_is_doing(
    payload: dict[str, Any], status: dict[str, Any]
) -> None:
    """I2: a replay queued behind the running job, and ran again."""
    desk = Desk()
    (name,) = (await desk.see(payload)).runs
    desk.kube.set_status(AGENT_RUNS, NAMESPACE, name, status)
    before = desk.runs
    assert (await desk.see(payload)).reason is Reason.DUPLICATE
    assert desk.runs == before


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"projects": {"other/*": {}}}, Reason.NO_PROJECT),
        ({"workflows": {"rewrite": BASE["workflows"]["rewrite"]}}, Reason.NO_WORKFLOW),
        (
            {"workflows": {"review": {**BASE["workflows"]["review"], "trigger_rules": [{"action": "deny"}]}}},
            Reason.RULES_DENIED,
        ),
    ],
)
async def test_what_a_gate_refused_runs_when_it_comes_again_after_the_configuration_was_mended(
    changes: dict[str, Any], reason: Reason
) -> None:
    """I8: the event was recorded before the gates, so that it could never be delivered again."""
    refusing = Desk(**changes)
    assert (await refusing.see(merge_request())).reason is reason
    assert not refusing.runs
    assert (await Desk(refusing.kube, refusing.forge).see(merge_request())).reason is Reason.FIRED


class Sent:
    """A FIFO queue that remembers what was put on it."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str, str]] = []

    async def send(self, body: str, *, group: str, once: str) -> None:
        self.messages.append((group, once, body))

    async def receive(self, count: int, *, wait: int, visibility: int) -> list[Message]:
        return []

    async def delete(self, message: Message) -> str:
        return ""

    async def extend(self, message: Message, seconds: int) -> str:
        return ""

    async def release(self, message: Message, seconds: int = 0) -> str:
        return ""

    async def traits(self) -> Traits:
        return Traits(fifo=True, dead_letters=False)


async def test_every_event_has_a_lane_and_an_identity_however_little_it_says() -> None:
    """I44: a key that is empty for some events puts strangers into one lane, or is refused by SQS."""
    sent = Sent()
    payloads: list[dict[str, Any]] = [
        *(
            {},
            {"project": None},
            {"project": {"id": "x"}},
            {"project": {"id": 10}},
            {"project": {"id": 10**200}},
            {"a": "ä" * 9_000},
        ),
        *(note(without=("discussion_id",)), pipeline(), merge_request()),
    ]
    for payload in payloads:
        await EventQueue(sent).send(Event("gitlab", "", payload, ""))
    for group, once, body in sent.messages:
        assert group.isascii()
        assert once.isascii()
        assert 1 <= len(group) <= 128
        assert 1 <= len(once) <= 128
        assert decode_message(body, {}).payload in payloads
    assert {group for group, _, _ in sent.messages} == {"gitlab", "gitlab-10"}
    assert len({once for _, once, _ in sent.messages}) == len(payloads)


async def test_every_hand_over_is_a_message_for_a_queue_would_swallow_what_a_person_sent_again() -> None:
    """S28, S15: FIFO queues swallow an identity for five minutes. Two messages of an event make one run, by name."""
    sent = Sent()
    queue = EventQueue(sent)
    failed = [pipeline(finished_at=f"2026-11-30 10:0{minute}:00 UTC") for minute in range(3)]
    for payload, delivery in itertools.product(failed, ("", "key-1", "key-1")):
        await queue.send(Event("gitlab", "", payload, delivery))
    assert len({once for _, once, _ in sent.messages}) == len(sent.messages) == 9
