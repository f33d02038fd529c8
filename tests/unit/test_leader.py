"""The life of the process: what it checks before it leads, and what its health says."""

from __future__ import annotations

import asyncio
import itertools
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import kopf
import pytest
from prometheus_client import CollectorRegistry

from hummingbird_operator import framework, leader, wiring
from hummingbird_operator.errors import Invalid, NotFound, Unavailable
from hummingbird_operator.kube.testing import FakeKube
from hummingbird_operator.settings import Settings
from hummingbird_operator.telemetry import (
    RENEWALS_MISSED,
    WATCH_SILENCE_SECONDS,
    Health,
    JsonFormatter,
    Liveness,
    Metrics,
    Pulse,
)
from hummingbird_operator.workflows import Workflows
from tests.unit.agentruns.builders import CONFIG

if TYPE_CHECKING:
    from hummingbird_operator.kube.client import Kube

OPTIONS = leader.Options("runs", "operator-0", None, None, 0)
SETTINGS = Settings(CONFIG, Path("config.yaml"))


async def test_missing_crds_stop_the_operator_with_the_command_that_installs_them() -> None:
    kube = FakeKube()
    kube.fail = lambda verb, resource, name: NotFound("the server could not find the requested resource")
    with pytest.raises(Invalid, match=r"agentruns\.hummingbird-project\.io: .*kubectl apply --server-side -k crds"):
        await leader._check_cluster(kube, SETTINGS, OPTIONS, asyncio.Event())


async def test_a_missing_role_stops_the_operator_with_the_verb() -> None:
    kube = FakeKube()
    kube.fail = lambda verb, resource, name: Invalid(f"{verb} {resource.plural}", "forbidden (is the Role applied?)")
    with pytest.raises(Invalid, match=r"list agentruns: forbidden \(is the Role applied\?\)"):
        await leader._check_cluster(kube, SETTINGS, OPTIONS, asyncio.Event())


async def test_an_api_server_that_is_away_at_the_start_is_waited_for_until_the_process_shall_stop() -> None:
    kube, stop = FakeKube(), asyncio.Event()
    kube.fail = lambda verb, resource, name: Unavailable("the API server", "away")
    task = asyncio.create_task(leader._check_cluster(kube, SETTINGS, OPTIONS, stop))
    await asyncio.sleep(0.05)
    assert not task.done()
    stop.set()
    await asyncio.wait_for(task, 5)


def test_kopf_is_set_up_as_the_operations_page_says() -> None:
    settings = framework.settings()
    assert settings.peering.standalone
    assert settings.scanning.disabled
    assert not settings.posting.enabled
    assert settings.persistence.finalizer == "hummingbird-project.io/operator"
    # kopf's own list of pauses ends after a minute, and the runs in flight would end with it
    assert isinstance(settings.networking.error_backoffs, framework.EndlessBackOff)
    pauses = list(itertools.islice(settings.networking.error_backoffs, 200))
    assert len(pauses) == 200
    assert max(pauses) <= 30
    assert isinstance(settings, kopf.OperatorSettings)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_liveness_fails_when_the_loop_or_the_watch_stands_still_and_a_waiting_process_needs_no_watch() -> None:
    clock, state, renewed = Clock(), Liveness(), [0]
    state.loop, state.watch, state.renewals = Pulse(clock), Pulse(clock), lambda: renewed[0]
    clock.now = WATCH_SILENCE_SECONDS + 1
    assert "event loop has been stuck" in state.alive()
    state.loop.beat()
    assert state.alive() == ""
    state.leading = True
    renewed[0] = RENEWALS_MISSED - 1
    assert state.alive() == "", "the API server was away: there was little to show"
    renewed[0] = RENEWALS_MISSED
    assert "the watch has shown none of 20 renewals" in state.alive()
    state.seen()
    assert state.alive() == ""


def test_a_watch_that_died_is_found_although_a_renewal_fails_now_and_then() -> None:
    clock, state, renewed = Clock(), Liveness(), [0]
    state.loop, state.watch, state.renewals = Pulse(clock), Pulse(clock), lambda: renewed[0]
    state.leading = True
    for _ in range(100):
        clock.now += 2
        renewed[0] += clock.now % 58 != 0
    state.loop.beat()
    assert "the watch has shown none" in state.alive()


async def test_an_end_is_heard_although_the_first_look_at_the_runs_is_not_answered() -> None:
    kube, stop = FakeKube(), asyncio.Event()
    kube.fail = lambda verb, resource, name: Unavailable("the API server", "away")
    metrics = Metrics.on(CollectorRegistry())
    kubes = cast("Kube", kube)
    process = leader._Process(SETTINGS, Workflows({}), OPTIONS, kubes, metrics, Liveness(), stop, wiring.as_it_is)
    nothing = cast("Any", None)
    looking = asyncio.create_task(process._first_look(nothing, nothing))
    await asyncio.sleep(0.05)
    stop.set()
    await asyncio.wait_for(looking, 1)


def test_health_answers_from_a_thread_of_its_own_with_the_reason() -> None:
    problem = ["starting"]
    health = Health(0, CollectorRegistry(), alive=lambda: "", ready=lambda: problem[0], host="127.0.0.1")
    health.start()
    try:
        assert fetch(health.port, "healthz") == (200, "ok")
        assert fetch(health.port, "readyz") == (503, "starting")
        problem[0] = ""
        assert fetch(health.port, "readyz")[0] == 200
        assert fetch(health.port, "metrics")[0] == 200
        assert fetch(health.port, "secret")[0] == 404
    finally:
        health.stop()


def fetch(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_no_known_secret_leaves_the_process_in_a_log_line() -> None:
    import logging

    clock, known = Clock(), ["token-of-the-bot", "token-of-the-bot-and-more", 'with"quote\\and-backslash']
    formatter = JsonFormatter(lambda: known, clock)

    def line(text: str) -> str:
        return formatter.format(logging.LogRecord("x", logging.INFO, __file__, 1, "sent %s", (text,), None))

    assert "token-of-the-bot" not in line("token-of-the-bot-and-more")
    assert "[redacted]" in line("token-of-the-bot")
    assert "backslash" not in line('with"quote\\and-backslash')
    known.append("rotated-token")
    clock.now += 60
    assert "rotated-token" not in line("rotated-token")
