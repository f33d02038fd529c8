"""Failed deliveries are handled late: each once, oldest first, and not while a service is still away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from hummingbird_operator.errors import NotFound, Unavailable
from hummingbird_operator.ingest.event import Event
from hummingbird_operator.ingest.handle import NameTaken
from hummingbird_operator.ingest.hooks.hooks import Attempt, Delivery, Hook
from hummingbird_operator.ingest.hooks.moments import happened
from hummingbird_operator.ingest.missed.patience import Patience
from hummingbird_operator.ingest.missed.replay import MOST, Replay
from hummingbird_operator.ingest.reasons import Outcome, Reason

NOW = datetime(2030, 1, 10, 12, tzinfo=UTC)
URL = "https://hummingbird.example.com/webhooks/gitlab"


def failed(number: int, *, at: str = "2030-01-10 11:00:00 UTC") -> Delivery:
    return Delivery(number, "Note Hook", {"object_kind": "note", "object_attributes": {"created_at": at}}, f"k{number}")


@dataclass
class Projects:
    """GitLab's lists, newest first, and a handler that does as it is told."""

    lists: dict[str, list[Delivery]]
    listed: list[Hook] = field(
        default_factory=lambda: [Hook(id=7, url=URL), Hook(id=8, url="https://other.example.com")]
    )
    handled: list[str] = field(default_factory=list)
    errors: list[Exception | None] = field(default_factory=list)
    refuses: dict[str, Exception] = field(default_factory=dict)
    enabled: list[int] = field(default_factory=list)
    poison: set[str] = field(default_factory=set)
    outage: Unavailable | None = None

    def hooks(self, project: str) -> list[Hook]:
        if project in self.refuses:
            raise self.refuses[project]
        return self.listed

    def failed(self, project: str, hook_id: int) -> Iterator[Delivery]:
        assert hook_id == 7
        return iter(self.lists[project])

    def succeeded(self, project: str, hook_id: int) -> Iterator[Attempt]:
        return iter(())

    def enable(self, project: str, hook: Hook) -> None:
        self.enabled.append(hook.id)
        if self.handled == ["refused"]:
            raise Unavailable("GitLab", "away")

    async def handle(self, event: Event) -> Outcome:
        error = self.errors.pop(0) if self.errors else None
        if event.delivery in self.poison:
            error = Unavailable("GitLab", "it answered 500 for this merge request")
        if error is not None:
            raise error
        self.handled.append(event.delivery)
        return Outcome(Reason.FIRED)

    async def away(self) -> Unavailable | None:
        return self.outage if self.errors else None


def replay(gitlab: Projects) -> Replay:
    return Replay(gitlab, Patience(gitlab, (0, 0)), URL, list(gitlab.lists), CollectorRegistry(), lambda: NOW)


def counted(made: Replay, result: str) -> float:
    return made.registry.get_sample_value("hummingbird_ingest_replayed_total", {"result": result}) or 0


async def test_deliveries_are_handled_oldest_first_and_each_once() -> None:
    gitlab = Projects({"group/app": [failed(3), failed(2), failed(1)], "group/lib": [failed(1)]})
    made = replay(gitlab)
    await made.until_done()
    assert gitlab.handled == ["k1", "k2", "k3", "k1"]
    gitlab.lists["group/app"].insert(0, failed(4))
    await made.until_done()
    assert gitlab.handled[4:] == ["k4"]
    assert counted(made, "done") == 5


async def test_a_service_that_is_still_away_is_waited_for_and_nothing_is_left_out() -> None:
    away = Unavailable("the API server", "away")
    gitlab = Projects({"group/app": [failed(2), failed(1)]}, errors=[None, away, away, away, away], outage=away)
    await replay(gitlab).until_done()
    assert gitlab.handled == ["k1", "k2"]


async def test_a_delivery_whose_own_look_up_fails_is_put_aside_and_the_others_and_the_disabled_hook_are_reached() -> (
    None
):
    gitlab = Projects({"group/app": [failed(3), failed(2), failed(1)], "group/lib": [failed(11)]}, poison={"k2"})
    gitlab.listed = [Hook(id=7, url=URL, alert_status="temporarily_disabled")]
    made = replay(gitlab)
    await made.until_done()
    assert gitlab.handled == ["k1", "k3", "k11"]
    assert gitlab.enabled == [7, 7]
    assert counted(made, "put_off") == 1
    gitlab.poison.clear()
    await made.until_done()
    assert gitlab.handled[3:] == ["k2"], "it is tried again in the next replay"


async def test_what_was_put_aside_is_reached_below_a_page_of_what_is_done() -> None:
    gitlab = Projects({"group/app": [failed(number) for number in range(30, 0, -1)]}, poison={"k2"})
    made = replay(gitlab)
    await made.until_done()
    gitlab.poison.clear()
    await made.until_done()
    assert gitlab.handled[29:] == ["k2"]


async def test_a_service_that_came_back_between_the_two_calls_costs_no_delivery_its_turn() -> None:
    gitlab = Projects({"group/app": [failed(2), failed(1)]}, errors=[Unavailable("GitLab", "it answered 502")])
    await replay(gitlab).until_done()
    assert gitlab.handled == ["k1", "k2"]


@pytest.mark.parametrize("method", ["hooks", "failed"])
@pytest.mark.parametrize("error", [Unavailable("GitLab", "it answered 500"), RuntimeError("a fault of ours")])
async def test_a_project_whose_lists_fail_though_nothing_is_away_holds_back_no_other(
    method: str, error: Exception
) -> None:
    gitlab = Projects({"broken/app": [], "group/app": [failed(1)]})
    gitlab.listed = [Hook(id=7, url=URL, alert_status="disabled")]
    works = getattr(gitlab, method)

    def fails(project: str, *rest: int) -> Any:
        if project == "broken/app":
            raise error
        return works(project, *rest)

    setattr(gitlab, method, fails)
    await replay(gitlab).until_done()
    assert gitlab.handled == ["k1"]
    reached = method == "failed" and isinstance(error, Unavailable)
    assert gitlab.enabled == ([7, 7] if reached else [7])


async def test_a_row_of_another_shape_is_counted_once_and_passed_over() -> None:
    odd = Delivery(2, "", {}, "", unreadable=True)
    gitlab = Projects({"group/app": [failed(3), odd, failed(1)]})
    made = replay(gitlab)
    await made.until_done()
    await made.until_done()
    assert gitlab.handled == ["k1", "k3"]
    assert counted(made, "unreadable") == 1


async def test_what_is_held_is_bounded_in_characters_without_what_nothing_reads_and_the_older_ones_come_next() -> None:
    def large(number: int) -> Delivery:
        made = failed(number)
        return Delivery(
            made.id, made.type, {**made.payload, "user": {"username": "x" * 1000}, "builds": ["y"] * 9999}, made.key
        )

    gitlab = Projects({"group/app": [large(number) for number in range(5, 0, -1)]})
    made = replay(gitlab)
    made.held = 2500
    await made.until_done()
    assert gitlab.handled == ["k4", "k5"]
    await made.until_done()
    await made.until_done()
    assert gitlab.handled == ["k4", "k5", "k2", "k3", "k1"]


@pytest.mark.parametrize(
    ("at", "handled"),
    [
        ("2030-01-07 12:00:01 UTC", True),
        ("2030-01-07 11:59:59 UTC", False),
        ("2030-01-07T13:59:59+02:00", False),
        ("2030-01-07T12:00:01.123Z", True),
        ("nonsense", True),
    ],
)
async def test_what_is_older_than_three_days_by_its_own_words_starts_nothing_any_more(at: str, handled: bool) -> None:
    gitlab = Projects({"group/app": [failed(1, at=at)]})
    await replay(gitlab).until_done()
    assert bool(gitlab.handled) is handled


async def test_a_resent_old_event_does_not_hide_the_younger_ones_below_it() -> None:
    gitlab = Projects({"group/app": [failed(3, at="2029-12-01 00:00:00 UTC"), failed(2)]})
    await replay(gitlab).until_done()
    assert gitlab.handled == ["k2"]


def test_an_event_is_as_old_as_its_last_moment() -> None:
    attributes = {"created_at": "2030-01-01 00:00:00 UTC", "finished_at": "2030-01-02 00:00:00 UTC", "updated_at": None}
    assert happened({"object_attributes": attributes}) == datetime(2030, 1, 2, tzinfo=UTC)
    shapes: list[Any] = [None, [], {}, {"created_at": 7}, {"created_at": "2030-99-99 00:00:00 UTC"}]
    assert [happened({"object_attributes": shape}) for shape in shapes] == [None] * 5
    assert happened({}) is None


async def test_a_fault_of_one_delivery_or_project_does_not_keep_the_others_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    taken, fault = NameTaken("agentruns note-1", "made from something else"), RuntimeError("words-of-a-person")
    lost = Delivery(9, "Note Hook", {"oversize": True}, "")
    gitlab = Projects(
        {"gone/app": [], "group/app": [failed(3), lost, failed(2), failed(1)]},
        errors=[taken, fault],
        refuses={"gone/app": NotFound("hooks of gone/app: GitLab does not find it (404)")},
    )
    made = replay(gitlab)
    await made.until_done()
    assert gitlab.handled == ["k3"]
    assert (counted(made, "failed"), counted(made, "lost"), counted(made, "done")) == (2, 1, 1)
    assert "failed deliveries of gone/app cannot be replayed" in caplog.text
    assert "too large for GitLab to keep" in caplog.text
    assert "words-of-a-person" not in caplog.text
    await made.until_done()
    assert gitlab.handled == ["k3"], "what failed for good is not tried for ever"


async def test_a_disabled_hook_is_enabled(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    gitlab = Projects({"group/app": []})
    gitlab.listed = [Hook(id=7, url=URL, alert_status="temporarily_disabled", disabled_until="2030-01-10T13:00:00Z")]
    await replay(gitlab).until_done()
    assert "temporarily_disabled until 2030-01-10T13:00:00Z" in caplog.text
    assert gitlab.enabled == [7]
    gitlab.handled = ["refused"]
    await replay(gitlab).until_done()
    assert "a test that would enable it failed, and is tried again in 0:01:00" in caplog.text


async def test_a_hook_that_is_disabled_while_its_deliveries_wait_is_enabled_in_the_same_replay() -> None:
    gitlab = Projects({"group/app": [failed(1)]})
    handle = gitlab.handle

    async def disabled_meanwhile(event: Event) -> Outcome:
        gitlab.listed = [Hook(id=7, url=URL, alert_status="temporarily_disabled")]
        return await handle(event)

    gitlab.handle = disabled_meanwhile  # type: ignore[method-assign]
    await replay(gitlab).until_done()
    assert (gitlab.handled, gitlab.enabled) == (["k1"], [7])


async def test_a_missing_hook_is_said_once_until_it_was_there_again(caplog: pytest.LogCaptureFixture) -> None:
    gitlab = Projects({"group/app": []}, listed=[])
    made = replay(gitlab)
    said = []
    for listed in ([], [], [Hook(id=7, url=URL)], []):
        gitlab.listed = listed
        await made.until_done()
        said.append(caplog.text.count("group/app has no webhook for"))
    assert said == [1, 1, 1, 2]


async def test_a_flood_of_failures_is_bounded_and_the_newest_are_handled(caplog: pytest.LogCaptureFixture) -> None:
    gitlab = Projects({"group/app": [failed(number) for number in range(MOST + 5, 0, -1)]})
    await replay(gitlab).until_done()
    assert gitlab.handled == [f"k{number}" for number in range(6, MOST + 6)]
    assert "more than 500 failed deliveries" in caplog.text


async def test_it_runs_at_the_start_and_after_each_refusal_and_never_twice_at_once() -> None:
    gitlab = Projects({"group/app": [failed(1)]})
    made, turns = replay(gitlab), asyncio.Queue[int]()
    at_once = 0

    async def handle(event: Event) -> Outcome:
        nonlocal at_once
        at_once += 1
        await turns.put(at_once)
        await asyncio.sleep(0)
        at_once -= 1
        return Outcome(Reason.FIRED)

    gitlab.handle = handle  # type: ignore[method-assign]
    running = asyncio.create_task(made.run())
    assert await turns.get() == 1
    for number in (2, 3):
        gitlab.lists["group/app"] = [failed(number)]
        made.wanted()
        made.wanted()
        assert await turns.get() == 1
    running.cancel()


def test_three_days_are_inside_of_what_gitlab_keeps() -> None:
    from hummingbird_operator.ingest.missed.gaps import SINCE

    assert timedelta(days=7) > SINCE
