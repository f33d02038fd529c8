"""kopf as we set it up, run for real against an API server that misbehaves: the faults of docs/faults.md."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hummingbird_operator import framework
from tests.unit.kube.apiserver import RESET, ApiServer, Asked, Fault, Refusal
from tests.unit.kube.kopfrun import RUNS, KopfRun, delete, gone, held, kubeconfig, make, read, until, write


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def kopf_run(server: ApiServer, tmp_path: Path) -> KopfRun:
    return KopfRun(server, tmp_path)


# --- what kopf writes ---


def test_kopf_writes_one_patch_at_birth_and_one_at_death_however_large_the_object(
    server: ApiServer, kopf_run: KopfRun
) -> None:
    """A spec of 300 KB: change-detecting handlers would copy it to an annotation, and be refused for ever."""
    with kopf_run:
        make(server, "large", metadata={"annotations": {"note": "x" * 300_000}})
        until(lambda: held(server, "large"), "the finalizer is stored")
        seen = kopf_run.seen["large"]
        for number in range(5):
            write(server, "large", number)
        until(lambda: kopf_run.seen["large"] > seen, "status writes are seen")
        assert set(read(server, "large")["metadata"]["annotations"]) == {"note"}
        assert server.count("PATCH", RUNS) == 1
        delete(server, "large")
        until(lambda: gone(server, "large"), "the run is gone")
        assert kopf_run.started == {"large": 1}
        assert server.count("PATCH", RUNS) == 2
        assert server.count("POST") == 0, "kopf posts no events"
    assert all("json-patch" in asked.headers["Content-Type"] for asked in server.asked if asked.method == "PATCH")


def test_the_finalizer_is_stored_beside_twenty_status_writes_a_second(server: ApiServer, kopf_run: KopfRun) -> None:
    with kopf_run:
        make(server, "busy")
        for number in range(100):
            write(server, "busy", number)
            if held(server, "busy"):
                break
            time.sleep(0.05)  # the writer's own pace
        assert held(server, "busy"), "kopf's patch, which tests the version, never came through"


def test_a_run_that_is_deleted_while_its_daemon_works_goes_after_its_cleaning_up_and_not_before(
    server: ApiServer, kopf_run: KopfRun
) -> None:
    held_while_cleaning: list[bool] = []

    async def cleaning() -> None:
        await asyncio.sleep(0.2)
        held_while_cleaning.append(not gone(server, "why"))

    kopf_run.cleaning = cleaning
    with kopf_run:
        make(server, "why")
        until(lambda: held(server, "why"), "the finalizer is stored")
        delete(server, "why")
        until(lambda: kopf_run.ended == ["why"], "the daemon ended")
        write(server, "why", 1)
        until(lambda: gone(server, "why"), "the run is gone")
    assert held_while_cleaning == [True]


# --- when the API server is away ---

AWAY: dict[str, Fault] = {
    "500": lambda asked: Refusal(500, "etcdserver: request timed out"),
    "503": lambda asked: Refusal(503, "apiserver is shutting down"),
    "429": lambda asked: Refusal(429, "too many requests"),
    "403": lambda asked: Refusal(403, "forbidden: RBAC is not loaded yet"),
    "reset": lambda asked: RESET,
}
OWN_TRIES = 9
"""Tries after which kopf's own list of pauses is used up: 54 seconds."""


@pytest.mark.parametrize("kind", AWAY)
def test_an_outage_twice_as_long_as_kopf_s_patience_ends_no_daemon_and_loses_no_event(
    server: ApiServer, kopf_run: KopfRun, kind: str
) -> None:
    with kopf_run:
        make(server, "before")
        until(lambda: held(server, "before"), "the finalizer is stored")
        server.fault, mark = AWAY[kind], len(server.asked)
        server.end_watches()
        make(server, "meanwhile")
        until(lambda: server.count("GET", RUNS, since=mark) > 2 * OWN_TRIES, "kopf goes on trying")
        server.fault = lambda asked: None
        until(lambda: held(server, "meanwhile"), "what was made meanwhile is served")
        assert kopf_run.started == {"before": 1, "meanwhile": 1}
        assert kopf_run.ended == []
        assert kopf_run.alive


def test_a_refused_connection_is_tried_again_until_somebody_listens(server: ApiServer, kopf_run: KopfRun) -> None:
    with kopf_run:
        make(server, "before")
        until(lambda: held(server, "before"), "the finalizer is stored")
        server.refuse()
        make(server, "meanwhile")
        time.sleep(0.5)  # tens of tries
        server.listen()
        until(lambda: held(server, "meanwhile"), "what was made meanwhile is served")
        assert kopf_run.started == {"before": 1, "meanwhile": 1}


@pytest.mark.parametrize("verb", ["list", "watch", "patch"])
def test_kopf_waits_as_long_as_the_server_asks(server: ApiServer, kopf_run: KopfRun, verb: str) -> None:
    """429 with Retry-After, once, on each kind of request that kopf makes of our kinds."""
    refused: list[Asked] = []

    def once(asked: Asked) -> Refusal | None:
        kind = "patch" if asked.method == "PATCH" else "watch" if asked.watch else "list"
        if RUNS in asked.path and kind == verb and not refused:
            refused.append(asked)
            return Refusal(429, headers={"Retry-After": "1"})
        return None

    server.fault = once
    with kopf_run:
        make(server, "why")
        until(lambda: bool(_later(server, refused)), "the same request came again")
        until(lambda: held(server, "why"), "the finalizer is stored")
    assert _later(server, refused)[0].at - refused[0].at >= 1


def _later(server: ApiServer, refused: list[Asked]) -> list[Asked]:
    """Requests of the same kind as the one that was refused."""
    found = [asked for asked in list(server.asked) if refused and asked.at > refused[0].at]
    return [a for a in found if (a.method, a.path, a.watch) == (refused[0].method, refused[0].path, refused[0].watch)]


def test_a_finalizer_that_is_refused_for_a_while_is_stored_with_a_later_event(
    server: ApiServer, kopf_run: KopfRun
) -> None:
    """A 409 on its patch is no outage to kopf: it looks away from the object, up to ten minutes if it were let."""
    refused: list[Asked] = []

    def thrice(asked: Asked) -> Refusal | None:
        if asked.method == "PATCH" and len(refused) < 3:
            refused.append(asked)
            return Refusal(409)
        return None

    server.fault = thrice
    kopf_run.settings.queueing.error_delays = [0.01]
    with kopf_run:
        make(server, "why")
        number = 0
        while not held(server, "why"):
            number += 1
            write(server, "why", number)
            time.sleep(0.05)
        assert kopf_run.started == {"why": 1}
    assert len(refused) == 3
    assert max(framework.settings().queueing.error_delays) <= 30


# --- login ---


def test_a_rotated_token_is_read_after_a_401_and_no_daemon_notices(
    server: ApiServer, kopf_run: KopfRun, tmp_path: Path
) -> None:
    with kopf_run:
        make(server, "before")
        until(lambda: held(server, "before"), "the finalizer is stored")
        kubeconfig(tmp_path, server.url, "new")
        server.fault = lambda asked: None if asked.headers.get("Authorization") == "Bearer new" else Refusal(401)
        server.end_watches()
        make(server, "meanwhile")
        until(lambda: held(server, "meanwhile"), "what was made meanwhile is served")
        assert kopf_run.started == {"before": 1, "meanwhile": 1}


def test_a_server_that_refuses_every_token_is_not_asked_as_fast_as_the_network_allows(
    server: ApiServer, kopf_run: KopfRun
) -> None:
    """An API server whose store is away answers 401. kopf logs in again at once, for ever; our login slows it down."""
    with kopf_run:
        make(server, "before")
        until(lambda: held(server, "before"), "the finalizer is stored")
        server.fault, mark = lambda asked: Refusal(401), len(server.asked)
        server.end_watches()
        make(server, "meanwhile")
        time.sleep(1.5)
        assert 0 < len(server.asked) - mark < 15, "twice that without the pause"
        assert kopf_run.alive, kopf_run.problem
        server.fault = lambda asked: None
        until(lambda: held(server, "meanwhile"), "what was made meanwhile is served")
        assert kopf_run.started == {"before": 1, "meanwhile": 1}


def test_credentials_that_run_out_are_renewed_beside_open_watches(server: ApiServer, kopf_run: KopfRun) -> None:
    """kopf closes the session with its watches: they must open again, and not die of "Session is closed"."""
    kopf_run.credentials_seconds = 0.3
    with kopf_run:
        for number in range(3):
            make(server, f"run-{number}")
            until(lambda number=number: held(server, f"run-{number}"), "the finalizer is stored")  # type: ignore[misc]
            time.sleep(0.4)
        assert kopf_run.alive, kopf_run.problem
        assert set(kopf_run.started.values()) == {1}


# --- the end ---


def test_what_was_started_before_kopf_does_not_hold_up_its_end(server: ApiServer, kopf_run: KopfRun) -> None:
    """kopf waits five seconds for every task that was born in its loop after it."""

    async def besides() -> None:
        await asyncio.Event().wait()

    kopf_run.besides = besides
    with kopf_run:
        make(server, "why")
        until(lambda: held(server, "why"), "the finalizer is stored")
        kopf_run.stop(4)
    assert kopf_run.ended == ["why"]
    assert held(server, "why"), "the next process goes on"
    assert kopf_run.problem == ""
