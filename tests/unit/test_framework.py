"""kopf as we set it up, run for real against an API server that misbehaves: the faults of docs/faults.md."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from demo.stage import wait_for
from hummingbird_operator import framework
from hummingbird_operator.api.labels import FINALIZER
from hummingbird_operator.errors import NotFound
from hummingbird_operator.kube.client import AGENT_RUNS, LEASES, Object
from tests.unit.kube.apiserver import RESET, ApiServer, Asked, Fault, Refusal
from tests.unit.kube.kopfrun import NAMESPACE, KopfRun, kubeconfig

RUNS = "/agentruns"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def kopf_run(server: ApiServer, tmp_path: Path) -> KopfRun:
    return KopfRun(server, tmp_path)


def until(so: Callable[[], bool], what: str, seconds: float = 5) -> None:
    wait_for(so, seconds, lambda: f"it never came to this: {what}", pause=0.005)


def make(server: ApiServer, name: str, **body: Any) -> None:
    server.put(AGENT_RUNS, NAMESPACE, name, spec={"workflow": "w"}, **body)


def read(server: ApiServer, name: str) -> Object:
    return server.do(lambda kube: kube.get(AGENT_RUNS, NAMESPACE, name))


def gone(server: ApiServer, name: str) -> bool:
    try:
        read(server, name)
    except NotFound:
        return True
    return False


def held(server: ApiServer, name: str) -> bool:
    return FINALIZER in read(server, name)["metadata"].get("finalizers", [])


def write(server: ApiServer, name: str, number: int) -> None:
    body: Object = {"status": {"n": number}}
    server.do(lambda kube: kube.merge(AGENT_RUNS, NAMESPACE, name, body, subresource="status"))


def delete(server: ApiServer, name: str) -> None:
    server.do(lambda kube: kube.delete(AGENT_RUNS, NAMESPACE, name))


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


# --- watches ---


def test_a_watch_that_goes_silent_is_opened_again_and_shows_what_was_missed(
    server: ApiServer, kopf_run: KopfRun
) -> None:
    kopf_run.settings.watching.inactivity_timeout = 0.4
    with kopf_run:
        make(server, "before")
        until(lambda: held(server, "before"), "the finalizer is stored")
        server.silent, mark = True, len(server.asked)
        make(server, "meanwhile")
        until(lambda: server.count("GET", RUNS, since=mark) > 0, "kopf gave the silent watch up")
        server.silent = False
        until(lambda: held(server, "meanwhile"), "what was made meanwhile is served")
        assert kopf_run.started == {"before": 1, "meanwhile": 1}


def test_a_quiet_watch_with_bookmarks_is_not_taken_for_a_dead_one(server: ApiServer, kopf_run: KopfRun) -> None:
    kopf_run.settings.watching.inactivity_timeout = 1.0
    with kopf_run:
        make(server, "before")
        until(lambda: held(server, "before"), "the finalizer is stored")
        mark = len(server.asked)
        time.sleep(1.5)
        assert server.count("GET", RUNS, since=mark) == 0


def test_after_410_everything_is_listed_again_and_no_daemon_is_doubled(server: ApiServer, kopf_run: KopfRun) -> None:
    with kopf_run:
        make(server, "before")
        until(lambda: held(server, "before"), "the finalizer is stored")
        seen = kopf_run.seen["before"]
        server.fault = lambda asked: Refusal(503) if RUNS in asked.path else None
        server.forget()
        make(server, "meanwhile")
        server.fault = lambda asked: None
        until(lambda: held(server, "meanwhile"), "what was made meanwhile is served")
        until(lambda: kopf_run.seen["before"] > seen, "the old one was listed again")
        assert kopf_run.started == {"before": 1, "meanwhile": 1}
        assert kopf_run.ended == []


def test_an_event_that_breaks_off_in_the_middle_costs_a_reconnection(server: ApiServer, kopf_run: KopfRun) -> None:
    with kopf_run:
        make(server, "before")
        until(lambda: held(server, "before"), "the finalizer is stored")
        server.end_watches(b'{"type": "MODIFIED", "object": {"metadata"', torn=True)
        make(server, "meanwhile")
        until(lambda: held(server, "meanwhile") or not kopf_run.alive, "what was made meanwhile is served")
        assert kopf_run.alive, kopf_run.error


ENDS: dict[str, Callable[[ApiServer], None]] = {
    "404": lambda server: _refuse_watches(server, 404),
    "410": lambda server: _refuse_watches(server, 410),
    "etcd": lambda server: server.end_watches(b'{"type": "ERROR", "object": {"code": 500, "message": "etcd"}}\n'),
}


def _refuse_watches(server: ApiServer, status: int) -> None:
    server.fault = lambda asked: Refusal(status) if asked.watch and RUNS in asked.path else None
    server.end_watches()


def test_what_kopf_cannot_ride_out_ends_it_and_leaves_no_zombie(tmp_path: Path) -> None:
    """A CRD was removed, or the stream itself says an error: the process ends, and the next one says why.

    All at once, for kopf takes five seconds to end: it waits for its own look at the stop flag.
    """
    with ExitStack() as stack:
        found: dict[str, KopfRun] = {}
        for kind in ENDS:
            folder = tmp_path / kind
            folder.mkdir()
            server = stack.enter_context(ApiServer())
            found[kind] = stack.enter_context(KopfRun(server, folder))
            make(server, "before")
            until(lambda server=server: held(server, "before"), "the finalizer is stored")  # type: ignore[misc]
            ENDS[kind](server)
        until(lambda: not any(run.alive for run in found.values()), "all have ended", 20)
        for kind, run in found.items():
            assert kind in repr(run.error)
            assert run.ended == ["before"], "its daemons were told"


def test_the_pulse_beats_for_our_own_lease_only(server: ApiServer, kopf_run: KopfRun) -> None:
    with kopf_run:
        server.put(LEASES, NAMESPACE, "of-somebody-else")
        make(server, "why")
        until(lambda: held(server, "why"), "the finalizer is stored")
        assert kopf_run.pulse == 0
        server.put(LEASES, NAMESPACE, "the-lease")
        until(lambda: kopf_run.pulse == 1, "the pulse beats")


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
        assert kopf_run.alive, kopf_run.error
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
        assert kopf_run.alive, kopf_run.error
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
    assert kopf_run.error is None
