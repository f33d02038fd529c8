"""The real boto3 against a server on loopback that answers as Amazon SQS does, errors above all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hummingbird_operator.errors import Invalid, Unavailable
from hummingbird_operator.ingest.sqs.queue import Message, SqsQueue, Traits
from tests.standins.sqs_proxy import (
    ACCESS_DENIED,
    EXPIRED_HANDLE,
    GATEWAY_ERROR,
    INVALID_HANDLE,
    NO_SUCH_QUEUE,
    NOT_IN_FLIGHT,
    SERVER_ERROR,
    SIGNATURE_EXPIRED,
    THROTTLED,
    TOKEN_EXPIRED,
    Answer,
    Fault,
    Refused,
    SqsProxy,
    Stalled,
    error,
)

HELD = Message("m", "handle", "{}", {}, 1)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def sqs() -> Iterator[SqsProxy]:
    with SqsProxy() as proxy:
        yield proxy


@pytest.fixture
def queue(sqs: SqsProxy) -> Iterator[SqsQueue]:
    queue = SqsQueue(f"{sqs.url}/1/events", region="eu-west-1", call_seconds=5)
    yield queue
    queue.close()


@pytest.fixture
def fifo(sqs: SqsProxy) -> Iterator[SqsQueue]:
    queue = SqsQueue(f"{sqs.url}/1/events.fifo", region="eu-west-1", call_seconds=0.2)
    yield queue
    queue.close()


async def test_a_received_message_has_its_text_attributes_and_its_count_of_receipts(
    sqs: SqsProxy, queue: SqsQueue
) -> None:
    found = {
        "MessageId": "m1",
        "ReceiptHandle": "h1",
        "MD5OfBody": "900150983cd24fb0d6963f7d28e17f72",
        "Body": "abc",
        "Attributes": {"ApproximateReceiveCount": "3"},
        "MessageAttributes": {
            "event_type": {"DataType": "String", "StringValue": "note"},
            "blob": {"DataType": "Binary", "BinaryValue": "AAEC"},
        },
    }
    sqs.order("ReceiveMessage", Answer(body={"Messages": [found]}), Answer())
    assert await queue.receive(4, wait=7, visibility=90) == [Message("m1", "h1", "abc", {"event_type": "note"}, 3)]
    (call,) = sqs.calls("ReceiveMessage")
    asked = {name: call.request[name] for name in ("MaxNumberOfMessages", "WaitTimeSeconds", "VisibilityTimeout")}
    assert asked == {"MaxNumberOfMessages": 4, "WaitTimeSeconds": 7, "VisibilityTimeout": 90}
    assert await queue.receive(1, wait=0, visibility=90) == []


async def test_leases_are_ended_by_their_handle(sqs: SqsProxy, queue: SqsQueue) -> None:
    sqs.order("ChangeMessageVisibility", Answer(), Answer())
    sqs.order("DeleteMessage", Answer())
    assert (await queue.extend(HELD, 60), await queue.release(HELD), await queue.delete(HELD)) == ("", "", "")
    changes = [call.request["VisibilityTimeout"] for call in sqs.calls("ChangeMessageVisibility")]
    assert changes == [60, 0]
    assert {call.request["ReceiptHandle"] for call in sqs.calls("DeleteMessage")} == {"handle"}


@pytest.mark.parametrize("answer", [EXPIRED_HANDLE, NOT_IN_FLIGHT, INVALID_HANDLE])
async def test_a_handle_that_is_no_longer_good_is_no_error(sqs: SqsProxy, queue: SqsQueue, answer: Answer) -> None:
    sqs.order("DeleteMessage", answer)
    sqs.order("ChangeMessageVisibility", answer, answer)
    for problem in (await queue.delete(HELD), await queue.extend(HELD, 60), await queue.release(HELD)):
        assert "receipt" in problem.lower()


@pytest.mark.parametrize("fault", [THROTTLED, SERVER_ERROR, GATEWAY_ERROR, Refused()])
async def test_a_server_that_cannot_now_is_unavailable_and_asked_once(
    sqs: SqsProxy, queue: SqsQueue, fault: Fault
) -> None:
    sqs.order("ReceiveMessage", fault)
    with pytest.raises(Unavailable) as raised:
        await queue.receive(1, wait=0, visibility=30)
    assert raised.value.service == "SQS"
    assert len(sqs.calls("ReceiveMessage")) == 1


async def test_a_server_that_says_when_to_come_again_is_heard(sqs: SqsProxy, queue: SqsQueue) -> None:
    sqs.order("DeleteMessage", Answer(503, SERVER_ERROR.body, {"Retry-After": "7"}))
    with pytest.raises(Unavailable) as raised:
        await queue.delete(HELD)
    assert raised.value.retry_after == 7


async def test_nobody_listens() -> None:
    queue = SqsQueue("http://127.0.0.1:9/1/events", region="eu-west-1")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9"):
        await queue.traits()
    queue.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [(ACCESS_DENIED, "allow sqs:ReceiveMessage"), (NO_SUCH_QUEUE, "create it")],
)
async def test_what_a_person_must_mend_names_the_setting(
    sqs: SqsProxy, queue: SqsQueue, answer: Answer, words: str
) -> None:
    sqs.order("ReceiveMessage", answer)
    with pytest.raises(Invalid, match=words) as raised:
        await queue.receive(1, wait=0, visibility=30)
    assert raised.value.where == "ingest.queue_url"


@pytest.mark.parametrize("answer", [SIGNATURE_EXPIRED, TOKEN_EXPIRED])
async def test_a_machine_that_slept_signs_anew_and_goes_on(sqs: SqsProxy, queue: SqsQueue, answer: Answer) -> None:
    sqs.order("ReceiveMessage", answer, Answer())
    assert await queue.receive(1, wait=0, visibility=30) == []
    assert len(sqs.calls("ReceiveMessage")) == 2


async def test_a_clock_that_stays_wrong_is_no_person_s_fault_yet(sqs: SqsProxy, queue: SqsQueue) -> None:
    sqs.order("ReceiveMessage", SIGNATURE_EXPIRED, SIGNATURE_EXPIRED)
    with pytest.raises(Unavailable, match="check the machine's clock"):
        await queue.receive(1, wait=0, visibility=30)


async def test_a_fifo_receive_without_an_answer_is_repeated_as_the_same_attempt(sqs: SqsProxy, fifo: SqsQueue) -> None:
    sqs.order("ReceiveMessage", Refused(), THROTTLED, Answer(), Answer())
    for _ in range(2):
        with pytest.raises(Unavailable):
            await fifo.receive(1, wait=0, visibility=30)
    await fifo.receive(1, wait=0, visibility=30)
    await fifo.receive(1, wait=0, visibility=30)
    first, second, third, fourth = (call.request["ReceiveRequestAttemptId"] for call in sqs.calls("ReceiveMessage"))
    assert first == second == third != fourth


async def test_a_call_that_hangs_ends_in_time(sqs: SqsProxy, fifo: SqsQueue) -> None:
    sqs.order("ChangeMessageVisibility", Stalled(60))
    with pytest.raises(Unavailable, match="Read timeout"):
        await fifo.extend(HELD, 30)


async def test_what_is_sent_has_a_lane_and_an_identity_on_fifo_only(
    sqs: SqsProxy, queue: SqsQueue, fifo: SqsQueue
) -> None:
    sqs.order("SendMessage", Answer(body={"MessageId": "1"}), Answer(body={"MessageId": "2"}))
    await queue.send("text", group="g", once="o")
    await fifo.send("text", group="g", once="o")
    plain, ordered = (call.request for call in sqs.calls("SendMessage"))
    assert (plain["MessageBody"], "MessageGroupId" in plain, "MessageDeduplicationId" in plain) == (
        "text",
        False,
        False,
    )
    assert (ordered["MessageGroupId"], ordered["MessageDeduplicationId"]) == ("g", "o")


async def test_a_lane_that_sqs_has_no_letters_for_is_named_by_its_digest(sqs: SqsProxy, fifo: SqsQueue) -> None:
    sqs.order("SendMessage", Answer(body={"MessageId": "1"}), Answer(body={"MessageId": "2"}))
    await fifo.send("text", group="group/Größe", once="")
    await fifo.send("text", group="g" * 200, once="a b")
    names = {
        call.request[name] for call in sqs.calls("SendMessage") for name in ("MessageGroupId", "MessageDeduplicationId")
    }
    assert {len(name) for name in names} == {64}
    assert len(names) == 4


async def test_a_text_that_sqs_refuses_is_invalid(sqs: SqsProxy, queue: SqsQueue) -> None:
    sqs.order(
        "SendMessage",
        error("InvalidMessageContents", "The message contains characters outside the allowed set."),
        error("InvalidParameterValue", "One or more parameters are invalid. Reason: Message must be shorter than …"),
    )
    for _ in range(2):
        with pytest.raises(Invalid):
            await queue.send("text", group="g", once="o")


async def test_the_queue_s_own_attributes_say_what_it_is(sqs: SqsProxy, queue: SqsQueue, fifo: SqsQueue) -> None:
    redrive = '{"deadLetterTargetArn": "arn:aws:sqs:eu-west-1:1:dead", "maxReceiveCount": 3}'
    sqs.order(
        "GetQueueAttributes",
        Answer(body={"Attributes": {}}),
        Answer(body={"Attributes": {"RedrivePolicy": redrive, "FifoQueue": "true"}}),
        Answer(body={}),
    )
    assert await queue.traits() == Traits(fifo=False, dead_letters=False)
    assert await queue.traits() == Traits(fifo=True, dead_letters=True)
    assert await fifo.traits() == Traits(fifo=True, dead_letters=False)


@pytest.mark.parametrize(
    "host",
    ["sqs.eu-west-1.amazonaws.com", "eu-west-1.queue.amazonaws.com", "sqs-fips.eu-west-1.amazonaws.com"],
)
async def test_the_region_is_read_from_the_queue_s_address(sqs: SqsProxy, host: str) -> None:
    queue = SqsQueue(f"https://{host}/1/events", endpoint=sqs.url)
    sqs.order("ReceiveMessage", Answer())
    await queue.receive(1, wait=0, visibility=30)
    queue.close()
    (call,) = sqs.calls("ReceiveMessage")
    assert "/eu-west-1/sqs/" in call.authorization


async def test_an_address_without_a_region_asks_for_one(sqs: SqsProxy) -> None:
    queue = SqsQueue(f"{sqs.url}/1/events")
    with pytest.raises(Invalid) as raised:
        await queue.traits()
    assert raised.value.where == "ingest.sqs_region"
    queue.close()


async def test_no_address_ends_in_a_traceback() -> None:
    with pytest.raises(Invalid):
        SqsQueue("http://[::1/1/events")
    queue = SqsQueue("http:///1/events", region="eu-west-1")
    with pytest.raises(Invalid):
        await queue.traits()
    queue.close()
