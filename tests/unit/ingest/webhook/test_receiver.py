"""POST /webhooks/gitlab over a real socket: what is let in, what is answered, and what is never said."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from hummingbird_operator.config import HOOK_PATH, Config
from hummingbird_operator.delivery.lookups import MergeRequestHead, Pipeline, Said
from hummingbird_operator.delivery.threads import Thread
from hummingbird_operator.errors import Invalid, NotFound, Unavailable
from hummingbird_operator.ingest.event import BODY_BYTES, Event
from hummingbird_operator.ingest.handle import Handler, NameTaken
from hummingbird_operator.ingest.metrics import IngestMetrics
from hummingbird_operator.ingest.reasons import Outcome, Reason
from hummingbird_operator.ingest.webhook.listener import listening
from hummingbird_operator.ingest.webhook.receiver import _WORDS, Webhook
from hummingbird_operator.ingest.webhook.room import Full, Room
from hummingbird_operator.kube.testing import FakeKube
from hummingbird_operator.workflows import Workflow, Workflows
from tests.unit.ingest.webhook.test_signatures import BODY, OTHER_KEY, SIGNING, headers

TOKEN = "the-secret-token"
GOOD = {"X-Gitlab-Token": TOKEN, "X-Gitlab-Event": "Note Hook", "Idempotency-Key": "delivery-1"}


@dataclass
class Scripted:
    """A handler and a queue that do as they are told, and remember."""

    does: Callable[[Event], Outcome] = lambda event: Outcome(Reason.FIRED, "made", ("note-1",))
    hangs: asyncio.Event | None = None
    began: asyncio.Event = field(default_factory=asyncio.Event)
    events: list[Event] = field(default_factory=list)
    queued: list[Event] = field(default_factory=list)
    queue_error: Exception | None = None
    outage: Unavailable | None = field(default_factory=lambda: Unavailable("the API server", "away"))
    refused: int = 0
    cancelled: int = 0

    async def handle(self, event: Event) -> Outcome:
        self.events.append(event)
        self.began.set()
        if self.hangs is not None:
            try:
                await self.hangs.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return self.does(event)

    async def away(self) -> Unavailable | None:
        return self.outage

    async def send(self, event: Event) -> None:
        if self.queue_error is not None:
            raise self.queue_error
        self.queued.append(event)

    def lost(self) -> None:
        self.refused += 1


def raises(error: Exception) -> Callable[[Event], Outcome]:
    def does(event: Event) -> Outcome:
        raise error

    return does


@dataclass
class Door:
    """A client of the running application."""

    url: str
    session: aiohttp.ClientSession
    webhook: Webhook

    async def post(self, body: Any = BODY, sent: dict[str, str] = GOOD) -> tuple[int, dict[str, Any], Any]:
        async with self.session.post(self.url + HOOK_PATH, data=body, headers=sent) as answer:
            return answer.status, await answer.json(), answer.headers

    def answers(self, status: int) -> float:
        return self.webhook.registry.get_sample_value("hummingbird_ingest_answers_total", {"status": str(status)}) or 0


@contextlib.asynccontextmanager
async def door(handler: Any, **kwargs: Any) -> AsyncIterator[Door]:
    kwargs.setdefault("secrets", lambda: (TOKEN, SIGNING))
    webhook = Webhook(handler, registry=CollectorRegistry(), **kwargs)
    async with listening(webhook.app(), 0, host="127.0.0.1") as port, aiohttp.ClientSession() as session:
        yield Door(f"http://127.0.0.1:{port}", session, webhook)


async def test_what_fired_and_what_was_filtered_are_both_200_with_reason_and_runs() -> None:
    handler = Scripted()
    async with door(handler) as gitlab:
        status, said, _ = await gitlab.post()
        assert (status, said) == (200, {"reason": "fired", "detail": "made", "runs": ["note-1"]})
        handler.does = lambda event: Outcome(Reason.DRAFT)
        status, said, _ = await gitlab.post()
        assert (status, said["reason"]) == (200, "draft")
        assert gitlab.answers(200) == 2
    event = handler.events[0]
    assert (event.source, event.type, event.delivery) == ("gitlab", "Note Hook", "delivery-1")
    assert event.payload == json.loads(BODY)


async def test_a_signature_over_the_exact_bytes_is_let_in_and_the_same_object_in_other_bytes_is_not() -> None:
    handler = Scripted()
    async with door(handler) as gitlab:
        assert (await gitlab.post(sent=headers()))[0] == 200
        assert (await gitlab.post(BODY.replace(b"  ", b" "), headers()))[0] == 401
        assert (await gitlab.post(sent={**headers(key=OTHER_KEY), "X-Gitlab-Token": TOKEN}))[0] == 401
    assert len(handler.events) == 1


@pytest.mark.parametrize(
    "sent",
    [{}, {"X-Gitlab-Token": "wrong"}, {"X-Gitlab-Token": "wörng"}, {"X-Gitlab-Token": ""}, {"webhook-signature": "é"}],
)
async def test_a_stranger_gets_401_before_anything_is_parsed(sent: dict[str, str]) -> None:
    handler = Scripted()
    async with door(handler) as gitlab:
        status, said, _ = await gitlab.post(b"{not json", sent)
        assert (status, said["reason"]) == (401, "bad_signature")
        assert gitlab.answers(401) == 1
    assert handler.events == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "not JSON"),
        (b"", "not JSON"),
        (b"[1]", "must be a JSON object, not a list"),
        (b"null", "must be a JSON object"),
        (b'"text"', "must be a JSON object"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "nests deeper"),
        (b"[" * 100_000, "nests deeper"),
    ],
)
async def test_what_is_no_json_object_is_400_with_the_reason(body: bytes, said: str) -> None:
    async with door(Scripted()) as gitlab:
        status, answer, _ = await gitlab.post(body)
        assert status == 400
        assert said in answer["detail"]


async def test_a_signed_body_that_is_no_text_is_400() -> None:
    async with door(Scripted()) as gitlab:
        assert (await gitlab.post(b"\xff", headers(b"\xff")))[0] == 400


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
async def test_a_form_is_415_with_a_hint(kind: str) -> None:
    async with door(Scripted()) as gitlab:
        status, said, _ = await gitlab.post(b"payload=%7B%7D", {**GOOD, "Content-Type": kind})
        assert status == 415
        assert "must be JSON" in said["detail"]


async def test_other_paths_are_404_and_other_methods_405() -> None:
    async with door(Scripted()) as gitlab:
        for path in ("/webhooks", HOOK_PATH + "/"):  # a redirect would look like success to GitLab
            async with gitlab.session.post(gitlab.url + path, data=b"{}", headers=GOOD) as answer:
                assert answer.status == 404
        async with gitlab.session.get(gitlab.url + HOOK_PATH) as answer:
            assert answer.status == 405


async def raw(port_url: str, request: bytes, more: Callable[[], Iterator[bytes]]) -> tuple[bytes, int]:
    """The first line of the answer to a request that goes on until it is refused, and how many pieces were taken."""
    host, port = port_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    sent = 0
    with contextlib.suppress(ConnectionError):
        for piece in more():
            writer.write(piece)
            await writer.drain()
            sent += 1
    with contextlib.suppress(ConnectionError):
        line = await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    return line, sent


def head(*lines: str) -> bytes:
    return "\r\n".join([f"POST {HOOK_PATH} HTTP/1.1", "Host: x", f"X-Gitlab-Token: {TOKEN}", *lines, "", ""]).encode()


async def test_a_length_beyond_the_bound_is_413_before_a_byte_of_it_is_read() -> None:
    async with door(Scripted()) as gitlab:
        line, _ = await raw(gitlab.url, head(f"Content-Length: {BODY_BYTES + 1}"), lambda: iter(()))
    assert b"413" in line


async def test_a_chunked_body_is_counted_and_refused_at_the_bound_without_its_rest() -> None:
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"

    async def send(count: int) -> bytes:
        async with door(Scripted(), room=Room(held_bytes=BODY_BYTES * 2)) as gitlab:
            return (await raw(gitlab.url, head("Transfer-Encoding: chunked"), lambda: iter([chunk] * count)))[0]

    assert b"413" in await send(26)


async def test_a_body_of_exactly_the_bound_is_read() -> None:
    body = b'{"a": "' + b"x" * (BODY_BYTES - 9) + b'"}'
    assert len(body) == BODY_BYTES
    async with door(Scripted()) as gitlab:
        assert (await gitlab.post(io.BytesIO(body)))[0] == 200


async def test_what_is_in_hand_at_once_is_bounded_in_requests_and_bytes() -> None:
    handler = Scripted(hangs=asyncio.Event())
    async with door(handler, room=Room(requests=1, held_bytes=1000), refused=handler.lost) as gitlab:
        first = asyncio.create_task(gitlab.post())
        await handler.began.wait()
        status, said, answered = await gitlab.post()
        assert (status, said["detail"]) == (503, "too many events at once")
        assert int(answered["Retry-After"]) > 0
        assert handler.hangs is not None
        handler.hangs.set()
        assert (await first)[0] == 200
        assert (await gitlab.post(b'{"a": "' + b"x" * 1000 + b'"}'))[0] == 503
        assert (await gitlab.post())[0] == 200, "the place is free again"
    assert handler.refused == 2


@pytest.mark.parametrize("error", [Unavailable("GitLab", "away", retry_after=41.2), Invalid("create", "forbidden")])
async def test_a_service_that_is_away_gives_503_with_a_time_and_wakes_the_replay(error: Exception) -> None:
    handler = Scripted(raises(error))
    async with door(handler, refused=handler.lost) as gitlab:
        status, said, answered = await gitlab.post()
        assert (status, said["reason"]) == (503, "unavailable")
        assert answered["Retry-After"] == ("42" if isinstance(error, Unavailable) else "10")
    assert handler.refused == 1


async def test_with_a_queue_the_event_is_handed_over_and_the_delivery_counts_as_done() -> None:
    handler = Scripted(raises(Unavailable("the API server", "away")))
    async with door(handler, queue=handler, refused=handler.lost) as gitlab:
        status, said, _ = await gitlab.post()
        assert (status, said["reason"]) == (202, "queued")
    assert handler.queued == handler.events
    assert handler.refused == 0


async def test_a_queue_that_is_away_as_well_gives_503() -> None:
    handler = Scripted(raises(Unavailable("the API server", "away")), queue_error=Unavailable("SQS", "away"))
    async with door(handler, queue=handler, refused=handler.lost) as gitlab:
        assert (await gitlab.post())[0] == 503
    assert handler.refused == 1


async def test_an_event_that_fails_by_itself_is_accepted_and_tried_again_for_a_503_would_count_against_the_hook() -> (
    None
):
    handler = Scripted(raises(Unavailable("GitLab", "it answered 500")), outage=None)
    async with door(handler, refused=handler.lost) as gitlab:
        gitlab.webhook.put_off.pauses = (0,)
        status, said, _ = await gitlab.post()
        assert (status, said["reason"]) == (202, "put_off")
        await gitlab.webhook.put_off.idle()
        assert len(handler.events) == 2
    assert handler.refused == 0


async def test_one_that_takes_too_long_by_itself_is_put_off_as_well() -> None:
    handler = Scripted(hangs=asyncio.Event(), outage=None)
    async with door(handler, budget_seconds=0.05) as gitlab:
        status, said, _ = await gitlab.post()
        assert (status, said["reason"]) == (202, "put_off")
        assert "not done within" in said["detail"]


async def test_the_queue_is_preferred_to_the_memory_of_the_process() -> None:
    handler = Scripted(raises(Unavailable("GitLab", "it answered 500")), outage=None)
    async with door(handler, queue=handler) as gitlab:
        assert (await gitlab.post())[1]["reason"] == "queued"
        handler.queue_error = Unavailable("SQS", "away")
        assert (await gitlab.post())[1]["reason"] == "put_off"


async def test_where_nothing_more_can_be_put_off_it_is_503() -> None:
    handler = Scripted(raises(Unavailable("GitLab", "it answered 500")), outage=None)
    async with door(handler, refused=handler.lost) as gitlab:
        gitlab.webhook.put_off.close_door()
        assert (await gitlab.post())[0] == 503
    assert handler.refused == 1


UNVOUCHED = (
    f"POST {HOOK_PATH} HTTP/1.1\r\nHost: x\r\nwebhook-id: a\r\nwebhook-timestamp: 1\r\nwebhook-signature: v1,x\r\n"
)


async def test_half_a_signature_is_401_before_the_body_is_read() -> None:
    async with door(Scripted(), budget_seconds=60) as gitlab:
        request = f"POST {HOOK_PATH} HTTP/1.1\r\nHost: x\r\nwebhook-id: a\r\nContent-Length: 5\r\n\r\n".encode()
        line, _ = await raw(gitlab.url, request, lambda: iter([b"{"]))
    assert b"401" in line


def test_large_bodies_leave_room_for_small_ones() -> None:
    """Two connections of a stranger held all of it, for their signatures are checked when the bodies are whole."""
    room = Room(held_bytes=1500, large_bytes=1000, large=400)
    with room.place() as first, room.place() as second, room.place() as third:
        assert [first(400), first(100), second(500)] == [False, True, True]
        with pytest.raises(Full):
            third(401)
        assert not third(400)
        with room.place() as fourth, pytest.raises(Full):
            fourth(101)
    with room.place() as again:
        assert again(1000)
        with pytest.raises(Full):
            again(1)


async def test_a_large_body_that_nobody_vouched_for_must_come_soon() -> None:
    async with door(Scripted(), room=Room(large=10), unverified_seconds=0.05, budget_seconds=60) as gitlab:
        line, _ = await raw(gitlab.url, f"{UNVOUCHED}Content-Length: 99\r\n\r\n".encode(), lambda: iter([b"x" * 50]))
    assert b"503" in line


async def test_half_requests_of_strangers_order_one_replay_and_not_one_each() -> None:
    handler = Scripted()
    async with door(handler, refused=handler.lost, budget_seconds=0.05) as gitlab:
        for _ in range(3):
            request = f"{UNVOUCHED}Content-Length: 5\r\n\r\n".encode()
            assert b"503" in (await raw(gitlab.url, request, lambda: iter([b"{"])))[0]
        assert handler.refused == 1
        await raw(gitlab.url, head("Content-Length: 10"), lambda: iter(()))
    assert handler.refused == 2, "one that carries a token of ours counts each time"


@pytest.mark.parametrize(
    "sent", [b"", b"POST / HTTP/1.1\r\nHost: x\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /", UNVOUCHED.encode()]
)
async def test_a_connection_without_whole_headers_is_closed(sent: bytes) -> None:
    async with listening(Webhook(Scripted(), lambda: ()).app(), 0, host="127.0.0.1", header_seconds=0.05) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        async with asyncio.timeout(4):  # uvicorn itself closes after 5 s what said something before
            await reader.read()
        writer.close()


async def test_a_request_in_hand_is_not_cut_off_by_the_time_for_headers() -> None:
    handler = Scripted(hangs=asyncio.Event())
    webhook = Webhook(handler, lambda: (TOKEN,))
    app, began = webhook.app(), handler.began
    async with listening(app, 0, host="127.0.0.1", header_seconds=0.05) as port, aiohttp.ClientSession() as session:
        sending = asyncio.create_task(session.post(f"http://127.0.0.1:{port}{HOOK_PATH}", data=BODY, headers=GOOD))
        await began.wait()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await reader.read()  # a younger connection that says nothing is closed
        writer.close()
        assert handler.hangs is not None
        handler.hangs.set()
        async with await sending as answer:
            assert answer.status == 200


async def test_a_handler_that_takes_too_long_is_ended_and_the_event_put_off_while_gitlab_still_waits() -> None:
    handler = Scripted(hangs=asyncio.Event())
    async with door(handler, queue=handler, budget_seconds=0.05) as gitlab:
        assert (await gitlab.post())[0] == 202
    assert handler.cancelled == 1
    assert handler.queued == handler.events


async def test_a_body_that_does_not_come_is_503_which_gitlab_lists_as_a_failure_to_be_replayed() -> None:
    async with door(Scripted(), budget_seconds=0.05) as gitlab:
        line, _ = await raw(gitlab.url, head("Content-Length: 10"), lambda: iter(()))
    assert b"503" in line


async def test_a_name_that_something_else_holds_is_409() -> None:
    handler = Scripted(raises(NameTaken("agentruns note-1", "was made from something else")))
    async with door(handler) as gitlab:
        status, said, _ = await gitlab.post()
        assert (status, said["reason"]) == (409, "name_taken")


async def test_strangers_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async with door(Scripted()) as gitlab:
        for number in range(5):
            assert (await gitlab.post(sent={"X-Gitlab-Token": f"guess-{number}"}))[0] == 401
    assert caplog.text.count("a webhook was refused (401): the token is none of ours") == 1


async def test_secrets_are_read_at_each_request_and_none_at_all_admits_nobody() -> None:
    secrets = ["other", TOKEN]
    async with door(Scripted(), secrets=lambda: secrets) as gitlab:
        assert (await gitlab.post())[0] == 200
        secrets.remove(TOKEN)
        assert (await gitlab.post())[0] == 401

    def gone() -> list[str]:
        raise Invalid("gitlab.webhook_secret_file", "cannot read")

    async with door(Scripted(), secrets=gone) as gitlab:
        assert (await gitlab.post())[0] == 503


async def once_refused(url: str, event: asyncio.Event) -> None:
    """Set the event when nobody listens there any more."""
    host, port = url.removeprefix("http://").split(":")
    with contextlib.suppress(ConnectionError):
        while True:
            _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            await asyncio.sleep(0.01)
    event.set()


async def test_requests_in_flight_are_finished_at_the_end() -> None:
    handler = Scripted(hangs=asyncio.Event())
    async with aiohttp.ClientSession() as session:
        async with door(handler) as gitlab:
            sending = asyncio.create_task(session.post(gitlab.url + HOOK_PATH, data=BODY, headers=GOOD))
            await handler.began.wait()
            assert handler.hangs is not None
            closing = asyncio.create_task(once_refused(gitlab.url, handler.hangs))
        async with await sending as answer:
            assert answer.status == 200
        await closing


async def test_a_port_that_is_taken_is_said() -> None:
    app = Webhook(Scripted(), lambda: ()).app()
    async with listening(app, 0, host="127.0.0.1") as port:
        with pytest.raises(Invalid, match=f"--port: cannot listen on port {port}"):
            async with listening(app, port, host="127.0.0.1"):
                pass


async def test_no_log_at_any_level_holds_a_secret_a_header_or_a_body(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret_text = "words-of-a-person"
    body = json.dumps({"object_kind": "note", "text": secret_text}).encode()
    signed = headers(body)
    handler = Scripted()
    async with door(handler, queue=handler) as gitlab:
        for does in (
            handler.does,
            raises(Unavailable("GitLab", "away")),
            raises(RuntimeError(f"a fault that quotes {secret_text}")),
        ):
            handler.does = does
            for sent in (GOOD, signed, {"X-Gitlab-Token": "wrong-token-value"}, {**signed, "webhook-id": "changed"}):
                await gitlab.post(body, sent)
        await gitlab.post(b"{" + secret_text.encode(), GOOD)
        assert gitlab.answers(500) == 2
    text = "\n".join(str(vars(record)) for record in caplog.records) + caplog.text
    assert "a webhook failed: RuntimeError in does" in text
    hidden = [TOKEN, SIGNING, SIGNING.removeprefix("whsec_"), secret_text, "wrong-token-value"]
    for each in [*hidden, signed["webhook-signature"], signed["webhook-signature"].removeprefix("v1,")]:
        assert each not in text


def test_the_page_on_events_holds_every_reason_and_every_status_with_its_word() -> None:
    page = (Path(__file__).parents[4] / "docs" / "ingest.md").read_text()
    for reason in Reason:
        assert f"| `{reason.value}` | {reason.sentence} |" in page
    for status, word in {**_WORDS, 202: "queued", 409: "name_taken", 500: "error"}.items():
        assert status in (404, 405) or f"| {status} | `{word}` |" in page


CONFIG = {
    "gitlab": {"url": "https://gitlab.example.com", "token_env": "BOT"},
    "models": {"default": "gemini-3.8-flash"},
    "sessions": {"store": "file:///tmp/x"},
    "projects": {"group/app": {}},
    "workflows": {"look": {"prompt": "look.md", "action": "pipeline"}},
}


class AnyForge:
    """A GitLab where everything is there and everybody may do everything."""

    def bot_id(self) -> int:
        return 1

    def probe(self) -> None:
        return

    def host(self) -> str:
        return ""

    def said(self, project: str, iid: int, note_id: int) -> Said:
        return Said(note_id, 7, system=False, internal=False, body="/hummingbird look")

    def thread(self, project: str, iid: int, discussion: str) -> Thread:
        raise NotFound("no such thread")

    def bot_threads(self, project: str, iid: int) -> list[Thread]:
        return []

    def resolve(self, project: str, iid: int, discussion: str) -> None:
        return

    def is_bot(self, user_id: int) -> bool:
        return False

    def access_level(self, project: str, user_id: int) -> int:
        return 40

    def pipeline(self, project: str, pipeline_id: int) -> Pipeline:
        raise NotFound("no such pipeline")

    def head(self, project: str, iid: int) -> MergeRequestHead:
        raise NotFound("no such merge request")

    def react(self, project: str, iid: int, emoji: str, *, note_id: int | None = None) -> None:
        return


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
KINDS = st.sampled_from(["note", "merge_request", "pipeline", "push", "", None, 7])
PARTS = ("object_attributes", "merge_request", "project", "user", "changes", "labels", "event_type", "builds")
ATTRIBUTES = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers() | JSON,
        "iid": st.integers() | JSON,
        "action": st.sampled_from(["open", "update", "create"]) | JSON,
        "status": st.sampled_from(["failed", "success"]) | JSON,
        "source": st.just("merge_request_event") | JSON,
        "note": st.sampled_from(["/hummingbird help", "/hummingbird look at \u0000", "why?"]) | JSON,
        "noteable_type": st.just("MergeRequest") | JSON,
        "author_id": st.integers() | JSON,
        "discussion_id": st.text() | JSON,
        "last_commit": st.fixed_dictionaries({"id": st.text() | JSON}) | JSON,
        "updated_at": st.just("2030-01-01 00:00:00 UTC") | JSON,
        "finished_at": st.just("2030-01-01 00:00:00 UTC") | JSON,
    },
)
NAMED = st.fixed_dictionaries(
    {
        "object_attributes": ATTRIBUTES,
        "project": st.fixed_dictionaries({"id": st.integers() | JSON, "path_with_namespace": st.just("group/app")}),
        "merge_request": ATTRIBUTES,
    }
)
EVENTS = st.builds(
    lambda named, other, kind: {**named, **other, "object_kind": kind},
    NAMED | st.just({}),
    st.dictionaries(st.sampled_from(PARTS) | st.text(), JSON, max_size=3) | st.just({}),
    KINDS,
)


async def posted(app: Starlette, body: bytes) -> int:
    """The status of one request, without a socket."""
    pieces = iter([{"type": "http.request", "body": body, "more_body": False}])
    answers: list[Any] = []

    async def receive() -> Any:
        return next(pieces)

    async def send(message: Any) -> None:
        answers.append(message)

    named = [(b"x-gitlab-token", TOKEN.encode()), (b"content-type", b"application/json")]
    scope = {
        "type": "http",
        "method": "POST",
        "path": HOOK_PATH,
        "headers": named,
        "query_string": b"",
        "root_path": "",
    }
    await app(scope, receive, send)
    return int(answers[0]["status"])


@given(EVENTS)
def test_any_json_object_with_a_valid_secret_is_answered_below_500(payload: dict[str, Any]) -> None:
    config = Config.model_validate(CONFIG)
    prompt = Workflow("look", "Look.", config.workflows["look"], "0")

    async def once() -> int:
        with ThreadPoolExecutor(1) as threads:
            metrics = IngestMetrics.on(CollectorRegistry())
            workflows = Workflows({"look": prompt})
            handler = Handler(config, workflows, AnyForge(), FakeKube(), "runs", metrics, threads)
            return await posted(Webhook(handler, lambda: (TOKEN,)).app(), json.dumps(payload).encode())

    assert asyncio.run(once()) < 500
