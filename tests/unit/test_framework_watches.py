"""The watches of kopf as we set it up, run for real: silent, forgotten, torn, and refused for good."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hummingbird_operator.kube.client import LEASES
from tests.unit.kube.apiserver import ApiServer, Refusal
from tests.unit.kube.kopfrun import NAMESPACE, RUNS, KopfRun, held, make, until


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def kopf_run(server: ApiServer, tmp_path: Path) -> KopfRun:
    return KopfRun(server, tmp_path)


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
        assert kopf_run.alive, kopf_run.problem


ETCD = b'{"type": "ERROR", "object": {"code": 500, "message": "etcd"}}\n'
ENDS: dict[str, Callable[[ApiServer], None]] = {
    "404": lambda server: _refuse_watches(server, 404),
    "410": lambda server: _refuse_watches(server, 410),
    "etcd": lambda server: server.end_watches(ETCD, of="agentruns"),
}


def _refuse_watches(server: ApiServer, status: int) -> None:
    server.fault = lambda asked: Refusal(status) if asked.watch and RUNS in asked.path else None
    # The Lease's watch stays: one that is on its way while kopf ends may wait for ever for new credentials; in the real
    # process the liveness probe ends that, for no event comes any more.
    server.end_watches(of="agentruns")


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
            assert kind in run.problem
            assert run.ended == ["before"], "its daemons were told"


def test_the_pulse_beats_for_our_own_lease_only(server: ApiServer, kopf_run: KopfRun) -> None:
    with kopf_run:
        server.put(LEASES, NAMESPACE, "of-somebody-else")
        make(server, "why")
        until(lambda: held(server, "why"), "the finalizer is stored")
        assert kopf_run.pulse == 0
        server.put(LEASES, NAMESPACE, "the-lease")
        until(lambda: kopf_run.pulse == 1, "the pulse beats")
