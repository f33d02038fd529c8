"""The watch on sandboxes, against an API server that goes silent, breaks off, refuses and forgets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hummingbird_operator.kube import watch
from hummingbird_operator.kube.client import PODS
from hummingbird_operator.kube.connection import Endpoint
from hummingbird_operator.kube.watch import SILENCE_SECONDS, keep_watching
from tests.unit.kube.apiserver import RESET, ApiServer, Asked, Fault, Refusal
from tests.unit.kube.kopfrun import kubeconfig


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


class Seen(list[str]):
    """Names of the pods that were shown, and a way to wait for one."""

    def __init__(self) -> None:
        super().__init__()
        self.task: asyncio.Task[None]

    def __call__(self, body: Any) -> None:
        self.append(body["metadata"]["name"])

    async def until(self, so: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not so():
                assert not self.task.done(), self.task
                await asyncio.sleep(0.005)

    async def shows(self, name: str) -> None:
        await self.until(lambda: name in self)


@asynccontextmanager
async def watching(server: ApiServer, folder: Path, *, silence_seconds: float = 5) -> AsyncIterator[Seen]:
    endpoint, seen = await Endpoint.load(kubeconfig=kubeconfig(folder, server.url, "t0k")), Seen()
    seen.task = asyncio.create_task(
        keep_watching(
            endpoint,
            PODS,
            "n",
            label_selector="pool",
            seen=seen,
            silence_seconds=silence_seconds,
            first_pause=0.02,
        )
    )
    try:
        yield seen
    finally:
        seen.task.cancel()
        await asyncio.gather(seen.task, return_exceptions=True)


def pod(server: ApiServer, name: str, **labels: str) -> None:
    server.put(PODS, "n", name, metadata={"labels": {"pool": "default", **labels}})


async def test_what_is_there_and_what_comes_is_shown_and_what_others_have_is_not(
    server: ApiServer, tmp_path: Path
) -> None:
    pod(server, "first")
    server.put(PODS, "n", "of-others")
    async with watching(server, tmp_path) as seen:
        await seen.shows("first")
        pod(server, "second")
        await seen.shows("second")
        server.do(lambda kube: kube.delete(PODS, "n", "first"))
        await seen.until(lambda: seen.count("first") == 2)
    assert "of-others" not in seen
    assert server.asked[0].headers["Authorization"] == "Bearer t0k"
    assert server.asked[0].query["labelSelector"] == "pool"


async def test_a_watch_that_goes_silent_is_opened_again_and_shows_what_was_missed(
    server: ApiServer, tmp_path: Path
) -> None:
    async with watching(server, tmp_path, silence_seconds=0.3) as seen:
        pod(server, "first")
        await seen.shows("first")
        server.silent = True
        pod(server, "meanwhile")
        await seen.until(lambda: len(server.asked) > 1)
        server.silent = False
        await seen.shows("meanwhile")


async def test_a_quiet_watch_with_bookmarks_is_not_taken_for_a_dead_one(server: ApiServer, tmp_path: Path) -> None:
    async with watching(server, tmp_path, silence_seconds=1) as seen:
        pod(server, "first")
        await seen.shows("first")
        await asyncio.sleep(1.5)
        assert len(server.asked) == 1
    assert 60 < SILENCE_SECONDS < 120, "bookmarks come each minute"


BROKEN: dict[str, Fault] = {
    "500": lambda asked: Refusal(500),
    "429": lambda asked: Refusal(429),
    "403": lambda asked: Refusal(403),
    "404": lambda asked: Refusal(404),
    "410": lambda asked: Refusal(410),
    "reset": lambda asked: RESET,
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_no_refusal_ends_the_watch(server: ApiServer, tmp_path: Path, kind: str) -> None:
    server.fault = BROKEN[kind]
    async with watching(server, tmp_path) as seen:
        await seen.until(lambda: len(server.asked) >= 4)
        server.fault = lambda asked: None
        pod(server, "after")
        await seen.shows("after")


async def test_the_watch_waits_as_long_as_the_server_asks(server: ApiServer, tmp_path: Path) -> None:
    refused: list[Asked] = []

    def once(asked: Asked) -> Refusal | None:
        refused.append(asked)
        return Refusal(429, headers={"Retry-After": "1"}) if len(refused) == 1 else None

    server.fault = once
    async with watching(server, tmp_path) as seen:
        pod(server, "first")
        await seen.shows("first")
    assert server.asked[1].at - server.asked[0].at >= 1


async def test_a_server_that_asks_for_an_hour_is_not_obeyed(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs wait for what the watch shows: it was blind for as long as anything before the server asked for."""
    assert watch.LONGEST_ASKED_SECONDS == 60
    monkeypatch.setattr(watch, "LONGEST_ASKED_SECONDS", 0.05)
    refusals = [Refusal(429, headers={"Retry-After": text}) for text in ("3600", "1e9", "inf", "nan", "-1")]
    server.fault = lambda asked: refusals.pop(0) if refusals else None
    async with watching(server, tmp_path) as seen:
        pod(server, "first")
        await seen.shows("first")


async def test_a_connection_that_is_refused_is_tried_again_until_somebody_listens(
    server: ApiServer, tmp_path: Path
) -> None:
    async with watching(server, tmp_path) as seen:
        pod(server, "first")
        await seen.shows("first")
        await asyncio.to_thread(server.refuse)
        await asyncio.sleep(0.2)  # several tries
        await asyncio.to_thread(server.listen)
        pod(server, "after")
        await seen.shows("after")


@pytest.mark.parametrize(
    ("last_word", "torn"),
    [
        (b'{"type": "MODIFIED", "object": {"metadata"', True),
        (b'{"type": "MODIFIED", "object": {"metadata"', False),
        (b'{"type": "MODIFIED", "object": {"meta\n', False),
        (b'{"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}\n', False),
        (b'{"type": "ERROR", "object": {"code": 500, "message": "etcd"}}\n', False),
        (b"", True),
    ],
    ids=["torn off", "cut", "no JSON", "410", "error", "reset"],
)
async def test_whatever_the_stream_ends_with_it_is_opened_again(
    server: ApiServer, tmp_path: Path, last_word: bytes, torn: bool
) -> None:
    async with watching(server, tmp_path) as seen:
        pod(server, "first")
        await seen.shows("first")
        server.end_watches(last_word, torn=torn)
        pod(server, "after")
        await seen.shows("after")


async def test_a_pod_of_half_a_megabyte_is_shown(server: ApiServer, tmp_path: Path) -> None:
    async with watching(server, tmp_path) as seen:
        server.put(PODS, "n", "large", metadata={"labels": {"pool": "p"}, "annotations": {"x": "y" * 500_000}})
        await seen.shows("large")


async def test_a_rotated_token_is_read_after_a_401(server: ApiServer, tmp_path: Path) -> None:
    async with watching(server, tmp_path) as seen:
        pod(server, "first")
        await seen.shows("first")
        kubeconfig(tmp_path, server.url, "new")
        server.fault = lambda asked: None if asked.headers.get("Authorization") == "Bearer new" else Refusal(401)
        server.end_watches()
        pod(server, "after")
        await seen.shows("after")
