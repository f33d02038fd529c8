"""The consumer's rules, each against a queue that keeps Amazon's promises. Time is virtual: hours take milliseconds."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging

import pytest

from hummingbird_operator.errors import Invalid, Unavailable
from hummingbird_operator.ingest.handle import NameTaken
from tests.unit.ingest.scripted import Scene, body, play, scene

AWAY = Unavailable("GitLab", "503")


@scene()
async def test_a_message_is_deleted_only_after_it_was_handled(it: Scene) -> None:
    it.script.steps["a"] = [50.0]
    it.queue.put(body("a"))
    it.start()
    await asyncio.sleep(49)
    assert it.queue.ids("delete") == []
    await asyncio.sleep(2)
    assert it.script.done == ["a"]
    assert it.queue.left == []
    await it.end()
    assert it.count("done") == 1


@scene(fifo=True)
async def test_on_fifo_one_message_is_asked_for_at_a_time(it: Scene) -> None:
    for name in "abc":
        it.queue.put(body(name), group="one")
    it.start()
    await asyncio.sleep(1)
    assert it.script.done == ["a", "b", "c"]
    assert set(it.queue.asked) == {1}
    await it.end()


@scene()
async def test_on_a_standard_queue_as_many_as_there_are_free_workers(it: Scene) -> None:
    it.script.steps["slow"] = [100.0]
    it.start(concurrency=3)
    it.queue.put(body("slow"))
    await asyncio.sleep(1)
    it.queue.put(body("b"))
    await asyncio.sleep(1)
    assert it.queue.asked == [3, 2, 1]
    await it.end()


@scene()
async def test_amazon_gives_ten_at_most(it: Scene) -> None:
    it.start(concurrency=50)
    await asyncio.sleep(1)
    assert it.queue.asked == [10]
    await it.end()


@scene()
async def test_nothing_is_received_without_a_free_worker(it: Scene) -> None:
    for number in range(30):
        it.script.steps[f"e{number}"] = [20.0]
        it.queue.put(body(f"e{number}"))
    it.start(concurrency=4)
    await asyncio.sleep(10)
    assert len(it.queue.ids("receive")) == 4
    assert it.gauge("held") == 4
    await asyncio.sleep(200)
    assert it.script.busiest == 4
    assert sorted(it.script.done) == sorted(f"e{number}" for number in range(30))
    await it.end()


@scene()
async def test_a_lease_is_kept_for_as_long_as_the_work_takes(it: Scene) -> None:
    it.script.steps["a"] = [500.0]
    it.queue.put(body("a"))
    it.start(visibility=30)
    it.start(visibility=30)
    await asyncio.sleep(505)
    assert it.queue.ids("receive") == ["m1"]
    assert 48 <= len(it.queue.ids("extend")) <= 50
    await it.end()
    assert it.queue.left == []


@scene()
async def test_an_extension_that_fails_is_tried_again_before_the_lease_ends(it: Scene) -> None:
    it.script.steps["a"] = [300.0]
    it.queue.put(body("a"))
    it.queue.faults["extend"] = [Unavailable("SQS", "503"), Unavailable("SQS", "503"), Unavailable("SQS", "503")]
    it.start(visibility=60)
    await asyncio.sleep(301)
    assert it.queue.ids("receive") == ["m1"]
    await it.end()
    assert it.count("done") == 1


@scene(fifo=True)
async def test_a_handle_that_expired_ends_nothing_but_this_lease(it: Scene) -> None:
    it.script.steps["a"] = [100.0]
    it.queue.put(body("a"), group="one")
    it.queue.put(body("b"), group="one")
    it.queue.faults["extend"] = ["InvalidParameterValue: The receipt handle has expired"]
    it.start(visibility=30)
    await asyncio.sleep(300)
    assert it.script.done == ["a", "b", "a"], "it came again and held nothing up; the first worker finished what it did"
    assert it.queue.left == []
    await it.end()


@scene()
async def test_a_lost_answer_to_delete_is_asked_again(it: Scene) -> None:
    it.queue.put(body("a"))
    it.queue.faults["delete"] = [Unavailable("SQS", "the answer was lost")]
    it.start()
    await asyncio.sleep(10)
    assert it.queue.ids("delete") == ["m1", "m1"]
    assert it.script.done == ["a"]
    await it.end()


@scene()
async def test_a_delete_that_never_works_leaves_the_message_to_come_again(it: Scene) -> None:
    it.queue.put(body("a"))
    it.queue.faults["delete"] = [Unavailable("SQS", "503") for _ in range(4)]
    it.start()
    await asyncio.sleep(200)
    assert it.script.done == ["a", "a"]
    assert it.queue.left == []
    await it.end()
    assert it.count("undeleted") == 1


@scene()
async def test_in_an_outage_nobody_receives_and_what_is_held_stays_held(it: Scene) -> None:
    for name in "abc":
        it.queue.put(body(name))
    it.script.outage = AWAY
    it.start(concurrency=2, visibility=30)
    await asyncio.sleep(400)
    assert it.queue.ids("receive") == ["m1", "m2"]
    assert it.gauge("waiting") == 2
    it.script.outage = None
    await asyncio.sleep(31)
    assert sorted(it.script.done) == ["a", "b", "c"]
    assert [entry.receives for entry in it.queue.entries] == [1, 1, 1]
    assert it.gauge("waiting") == 0
    await it.end()


@scene()
async def test_one_waiting_message_shuts_the_gate_for_every_worker(it: Scene) -> None:
    it.script.steps["a"] = [AWAY] * 4
    it.queue.put(body("a"))
    it.start()
    await asyncio.sleep(0.3)
    polls = len(it.queue.ids("poll"))
    it.queue.put(body("b"))  # a poll that was on its way brings it: it has a worker and a lease
    await asyncio.sleep(0.1)
    it.queue.put(body("c"))
    await asyncio.sleep(2)
    assert len(it.queue.ids("poll")) == polls
    assert it.script.done == ["b"]
    await asyncio.sleep(60)
    assert sorted(it.script.done) == ["a", "b", "c"]
    await it.end()


@scene()
async def test_pauses_of_an_outage_grow_from_one_second_to_thirty(it: Scene) -> None:
    it.script.steps["a"] = [AWAY] * 12
    it.queue.put(body("a"))
    it.start()
    await asyncio.sleep(400)
    times = it.script.times("a")
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(pauses) == 12
    assert pauses[0] == pytest.approx(1)
    assert all(1 <= pause <= 30 for pause in pauses)
    assert all(pause >= 15 for pause in pauses[5:])
    await it.end()


@scene()
async def test_what_goes_through_after_an_outage_wakes_those_that_sleep(it: Scene) -> None:
    it.script.outage = AWAY
    for name in "abcd":
        it.queue.put(body(name))
    it.start(concurrency=4)
    await asyncio.sleep(400)
    it.script.outage = None
    await asyncio.sleep(60)
    assert sorted(it.script.done) == ["a", "b", "c", "d"]
    ends = [when for _, when in it.script.tries[-4:]]
    assert max(ends) - min(ends) < 1, "each would have slept for up to half a minute"
    await it.end()


@scene()
async def test_the_service_s_own_hint_is_obeyed_up_to_a_bound(it: Scene) -> None:
    it.script.steps["a"] = [
        Unavailable("GitLab", "429", retry_after=45.0),
        Unavailable("GitLab", "429", retry_after=86_400.0),
    ]
    it.queue.put(body("a"))
    it.start(visibility=30)
    await asyncio.sleep(300)
    assert it.script.times("a") == pytest.approx([0, 45, 165])
    assert it.queue.ids("receive") == ["m1"]
    await it.end()


@scene()
async def test_one_event_whose_own_look_up_always_fails_stops_nobody(it: Scene) -> None:
    it.script.sound = True
    for number in range(8):
        it.script.steps[f"broken{number}"] = [AWAY] * 1000
        it.queue.put(body(f"broken{number}"))
    it.start()
    await asyncio.sleep(15)
    it.queue.put(body("b"))
    await asyncio.sleep(11)
    assert it.script.done == ["b"]
    assert it.gauge("held") == 0
    await it.end()


@scene(fifo=True)
async def test_it_blocks_its_own_group_for_growing_whiles_and_not_for_ever(it: Scene) -> None:
    it.script.sound = True
    it.script.steps["broken"] = [AWAY] * 1000
    for name in ("broken", "behind"):
        it.queue.put(body(name), group="one")
    it.start()
    await asyncio.sleep(2 * 3600)
    receipts = it.script.times("broken")[::3]
    assert [later - earlier for earlier, later in itertools.pairwise(receipts)] == pytest.approx(
        [30, 60, 120, 240, 480, 900, 900, 900, 900], abs=5
    )
    assert it.script.done == ["behind"]
    assert it.queue.left == []
    await it.end()
    assert (it.count("failed"), it.count("dropped")) == (9, 1)


@scene(most_receives=3)
async def test_it_ends_in_the_dead_letter_queue_where_there_is_one(it: Scene) -> None:
    it.script.sound = True
    it.script.steps["broken"] = [AWAY] * 1000
    it.queue.put(body("broken"))
    it.start()
    await asyncio.sleep(300)
    assert it.queue.dead == ["m1"]
    await it.end()


@scene()
async def test_what_fails_alone_once_is_tried_again_soon(it: Scene) -> None:
    it.script.sound = True
    it.script.steps["a"] = [AWAY]
    it.queue.put(body("a"))
    it.start()
    await asyncio.sleep(3)
    assert it.script.done == ["a"]
    await it.end()


@scene()
async def test_an_outage_of_hours_is_waited_out_and_the_gate_opens_for_one_whose_fault_is_its_own(it: Scene) -> None:
    it.script.steps["broken"] = [AWAY] * 1000
    it.queue.put(body("broken"))
    it.start()
    await asyncio.sleep(11)
    it.queue.put(body("b"))
    await asyncio.sleep(2 * 3600)
    assert it.queue.ids("receive") == ["m1"]
    it.script.sound = True
    await asyncio.sleep(31)
    assert it.script.done == ["b"]
    await it.end()


@scene()
async def test_a_message_goes_back_well_before_amazon_s_twelve_hours(it: Scene) -> None:
    it.script.outage = AWAY
    it.queue.put(body("a"))
    it.start(visibility=600)
    await asyncio.sleep(5.5 * 3600)
    assert it.queue.entry("m1").receives == 1
    await asyncio.sleep(1 * 3600)
    assert it.queue.entry("m1").receives == 2
    await it.end()


@scene()
async def test_no_extension_reaches_beyond_amazon_s_twelve_hours(it: Scene) -> None:
    it.script.outage = AWAY
    it.queue.put(body("a"))
    it.start(visibility=43_200)
    await asyncio.sleep(4 * 3600 + 60)
    assert it.queue.ids("extend") == ["m1"]
    assert it.now + it.queue.hidden("m1") <= 43_200
    await it.end()


@scene()
async def test_a_lease_that_is_lost_in_an_outage_is_let_go(it: Scene) -> None:
    it.script.outage = AWAY
    it.queue.put(body("a"))
    it.queue.faults["extend"] = ["MessageNotInflight"]
    it.start(visibility=30)
    await asyncio.sleep(40)
    assert it.queue.ids("receive") == ["m1", "m1"]
    assert it.queue.ids("release") == []
    await it.end()
    assert it.count("lost") == 1


@scene()
async def test_a_machine_that_slept_knows_that_its_leases_ran_out(it: Scene) -> None:
    it.script.outage = AWAY
    it.queue.put(body("a"))
    it.start(visibility=60)
    await asyncio.sleep(5)
    it.asleep = 3600.0
    await asyncio.sleep(20)
    assert it.queue.ids("extend") == []
    assert it.gauge("held") == 0
    await it.end()


@scene()
async def test_an_answer_that_came_late_leaves_less_of_the_lease(it: Scene) -> None:
    it.queue.slow["receive"] = 25.0
    it.script.steps["a"] = [100.0]
    it.queue.put(body("a"))
    it.start(visibility=30, concurrency=1)
    await asyncio.sleep(26)
    assert it.queue.ids("extend") == ["m1"], "at once"
    await asyncio.sleep(100)
    assert it.queue.ids("receive") == ["m1"]
    await it.end()


def test_what_nobody_can_read_is_acknowledged_with_a_record(caplog: pytest.LogCaptureFixture) -> None:
    async def story(it: Scene) -> None:
        it.queue.put("no \x1b[31mJSON", group="one")
        it.queue.put(body("b"), group="one")
        it.start()
        await asyncio.sleep(1)
        assert it.queue.left == []
        assert it.script.done == ["b"]
        await it.end()
        assert it.count("dropped") == 1

    play(story, fifo=True)
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "m1 (sha256 " in record.getMessage()
    assert "not JSON" in record.getMessage()
    assert "\x1b" not in record.getMessage()


@scene(fifo=True, most_receives=3)
async def test_what_nobody_can_read_is_left_for_the_dead_letter_queue(it: Scene) -> None:
    it.queue.put("no JSON", group="one")
    it.queue.put(body("b"), group="one")
    it.start()
    await asyncio.sleep(5)
    assert it.queue.dead == ["m1"]
    assert it.script.done == ["b"]
    assert "m1" not in it.queue.ids("delete")
    await it.end()
    assert it.count("dead_letter") == 3


@scene(most_receives=1000)
async def test_a_redrive_policy_of_a_thousand_receipts_makes_no_busy_loop(it: Scene) -> None:
    it.queue.put("no JSON")
    it.start()
    await asyncio.sleep(600)
    assert len(it.queue.ids("receive")) < 30
    await it.end()


@scene()
async def test_a_topic_that_is_not_ours_is_refused(it: Scene) -> None:
    it.queue.put('{"Type": "Notification", "TopicArn": "arn:other", "Message": "{}"}')
    it.start(topic_arns=("arn:ours",))
    await asyncio.sleep(1)
    assert it.script.tries == []
    await it.end()
    assert it.count("dropped") == 1


def test_a_large_body_is_refused_by_its_size_and_its_record_is_short(caplog: pytest.LogCaptureFixture) -> None:
    async def story(it: Scene) -> None:
        it.queue.put("[" * 2_000)
        it.start()
        await asyncio.sleep(1)
        await it.end()
        assert it.count("dropped") == 1

    play(story)
    assert all(len(record.getMessage()) < 600 for record in caplog.records)


@scene()
async def test_what_waits_holds_only_what_is_looked_at(it: Scene) -> None:
    it.queue.put(json.dumps({**json.loads(body("a")), "builds": [{"id": 1}] * 3, "commits": []}))
    it.start()
    await asyncio.sleep(1)
    assert it.script.fields == {"object_kind", "object_attributes"}
    await it.end()


@scene()
async def test_a_name_that_is_taken_is_acknowledged_with_a_record(it: Scene) -> None:
    it.script.steps["a"] = [taken()]
    it.queue.put(body("a"))
    it.start()
    await asyncio.sleep(1)
    assert it.queue.left == []
    await it.end()
    assert it.count("dropped") == 1


@scene(most_receives=2)
async def test_a_name_that_is_taken_is_left_for_the_dead_letter_queue(it: Scene) -> None:
    it.script.steps["a"] = [taken(), taken()]
    it.queue.put(body("a"))
    it.start()
    await asyncio.sleep(1)
    assert it.queue.dead == ["m1"]
    await it.end()


def taken() -> Exception:
    return NameTaken("AgentRun note-1", "belongs to somebody else")


def test_an_error_of_ours_is_tried_a_few_times_and_then_acknowledged(caplog: pytest.LogCaptureFixture) -> None:
    async def story(it: Scene) -> None:
        it.script.steps["a"] = [LookupError("a bug")] * 10
        it.queue.put(body("a"), group="one")
        it.queue.put(body("b"), group="one")
        it.start()
        await asyncio.sleep(29)
        assert it.script.times("a") == [0]
        await asyncio.sleep(600)
        assert it.script.times("a") == pytest.approx([0, 30, 90, 210, 450], abs=1)
        assert it.script.done == ["b"], "nothing blocks its group for ever"
        assert it.queue.left == []
        await it.end()
        assert (it.count("failed"), it.count("dropped")) == (4, 1)

    play(story, fifo=True)
    assert any("LookupError in _step line" in record.getMessage() for record in caplog.records)
    assert "a bug" not in caplog.text, "its text may hold what people wrote"


@scene(most_receives=3)
async def test_an_error_of_ours_ends_in_the_dead_letter_queue(it: Scene) -> None:
    it.script.steps["a"] = [LookupError("a bug")] * 10
    it.queue.put(body("a"))
    it.start()
    await asyncio.sleep(300)
    assert it.queue.dead == ["m1"]
    assert it.queue.ids("delete") == []
    await it.end()


@scene()
async def test_a_try_that_hangs_gives_its_worker_back(it: Scene) -> None:
    it.script.steps["a"] = [10_000.0]
    it.queue.put(body("a"))
    it.start(concurrency=1)
    await asyncio.sleep(601)
    assert it.gauge("held") == 0
    await it.end()
    assert it.count("failed") == 1


@scene()
async def test_a_queue_that_is_away_is_asked_again(it: Scene) -> None:
    it.queue.faults["traits"] = [Unavailable("SQS", "503")]
    it.queue.faults["receive"] = [Unavailable("SQS", "throttled")] * 6
    it.queue.put(body("a"))
    it.start()
    await asyncio.sleep(100)
    assert it.script.done == ["a"]
    assert it.registry.get_sample_value("hummingbird_ingest_sqs_failures_total") == 6
    assert await it.end() <= 10


@scene()
async def test_a_queue_that_does_not_exist_is_said_at_once(it: Scene) -> None:
    it.queue.faults["traits"] = [Invalid("ingest.queue_url", "the queue does not exist")]
    it.start()
    with pytest.raises(Invalid, match=r"ingest\.queue_url"):
        await it.ended()


@scene()
async def test_a_permission_that_was_taken_away_ends_the_process_with_empty_hands(it: Scene) -> None:
    it.script.steps["a"] = [5.0]
    it.script.steps["b"] = [AWAY] * 100
    it.queue.put(body("a"))
    it.queue.put(body("b"))
    it.queue.faults["delete"] = [Invalid("ingest.queue_url", "access is denied")]
    it.start()
    with pytest.raises(Invalid, match="access is denied"):
        await it.ended()
    assert it.queue.ids("release") == ["m2"]
    assert it.now < 20


@scene()
async def test_a_permission_to_extend_that_is_missing_ends_the_process_as_well(it: Scene) -> None:
    it.script.steps["a"] = [60.0]
    it.queue.put(body("a"))
    it.queue.faults["extend"] = [Invalid("ingest.queue_url", "access is denied")]
    it.start()
    with pytest.raises(Invalid, match="access is denied"):
        await it.ended()
    assert it.script.done == ["a"]
